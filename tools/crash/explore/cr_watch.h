/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch.h: seeing every read that the code under test makes of a range of memory.
 *
 * For the closed set, what takes part in a recovery is compiled with the instrumentation of
 * ThreadSanitizer, which calls a function before each access, and linked with functions of ours
 * (cr_watch_hooks.c) instead of the sanitizer's. What is no access of compiled code is wrapped by
 * the linker: memcpy() and its kin, which are compiled as calls, and the checksums, which are
 * assembly. Writes to a pool are not told: the tracer of struct pm has them.
 *
 * In other programs, and with another compiler or a sanitizer, nothing is seen, and
 * cr_watch_works() says so.
 *
 *   cr_watch.c         who watches what
 *   cr_watch_hooks.c   what instrumented code calls; functions that read
 *   cr_watch_record.c  records: a torn one is none, whichever of its words are lost
 *   cr_watch_calls.c   functions that read more than they say
 *   cr_watch_ask.c     asking them for all that they may read
 *
 * The last four are linked where reads are seen, and only there.
 */
#ifndef CR_WATCH_H
#define CR_WATCH_H

#include "include/internal/cn_base.h"

struct cr_watch {
    uintptr_t from, size; /* of the range; size 0: nothing is told */
    const uint8_t *lines; /* per 64 bytes of it: whether they are looked for */
    uintptr_t copy, copy_size; /* another range, of which writes are told as well */
    void (*read)(void *arg, const void *at, size_t size); /* some byte of it is looked for */
    void (*write)(void *arg, const void *at, size_t size);
    void *arg;
};

extern struct cr_watch cr_watching; /* what is told now; for the hooks */
static inline const struct cr_watch *cr_watch_now(void)
{
    return &cr_watching;
}
/* From here on `watch` is told; returns what was before. */
struct cr_watch cr_watch_set(struct cr_watch watch);
/* Nothing is, until what it returns is set again. */
static inline struct cr_watch cr_watch_stop(void)
{
    return cr_watch_set((struct cr_watch){0});
}
/* memcpy() of something that the product reads. */
void cr_watch_copy(void *to, const void *from, size_t size);
/* The product's reads are seen: tried with some of them. */
bool cr_watch_works(void);

#endif
