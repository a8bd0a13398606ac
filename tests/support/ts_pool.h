/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_pool.h: a small pool in memory for tests, with power failures.
 *
 * Beside the memory that the code sees there is a *shadow*: what is durable. A tracer moves bytes
 * into it when a line was flushed and then fenced. A crash ends the code under test anywhere (after
 * any 8-byte store, flush or fence) and chooses what of the rest survives.
 *
 * A power failure keeps any subset of the 8-byte words that are visible but not durable. That is
 * more than x86 allows within a line, on purpose: nothing may rely on more than 8 bytes.
 */
#ifndef TS_POOL_H
#define TS_POOL_H

#include <setjmp.h>

#include "pmem/pm_pool.h"

enum ts_crash {
    TS_CRASH_ALL_LOST, /* power failure; only what is durable survives */
    TS_CRASH_ALL_KEPT, /* power failure; all was written back in time */
    TS_CRASH_RANDOM,   /* power failure; per word an old or a newer value, by the seed */
    TS_CRASH_PROCESS,  /* process death: all that is visible stays, and is still not durable */
};

struct ts_pool {
    struct pm_pool pool; /* attached */
    struct pm pm;        /* as used for the pool */
    struct cn_env env;   /* deterministic */
    struct pm_tracer tracer;
    uint64_t seed;       /* of the env's random bytes; changes as they are taken */
    uint64_t now_ns, wall_s;
    uint64_t extent_off; /* = the superblock's place */

    uint8_t *visible, *shadow, *writing; /* `writing`: lines as they were when flushed */
    uint8_t *line_flags;
    uint32_t *dirty, *flushed; /* lists of lines */
    uint32_t dirty_count, flushed_count;
    uint64_t size;

    uint64_t events;     /* stores, flushes, fences and steps so far */
    uint64_t crash_at;   /* crash when `events` reaches it; 0: never */
    uint64_t step_count[CN_STEP_COUNT];
    bool may_crash;
    jmp_buf crash_point;
};

/* NULL: 4 KiB chunks, 4 slots, window 8, 8 KiB rings, buckets of 4, depth0 0. */
extern const struct pm_geometry ts_geometry_small;

/* A formatted and attached pool of `size` bytes (rounded up to whole chunks; 0: 64 chunks of heap).
 * One chunk is left out before the extent, so that offset 0 is never an object. Aborts on any
 * error. */
struct ts_pool *ts_pool_new(const struct pm_geometry *geometry, uint64_t size);
/* The same memory, all zero and durable, not formatted. */
struct ts_pool *ts_pool_new_blank(const struct pm_geometry *geometry, uint64_t size);
CN_MUST_CHECK int ts_pool_format(struct ts_pool *t, const struct pm_geometry *geometry);
void ts_pool_delete(struct ts_pool **t);

/*
 * Run `fn`, crashing it at the n-th event from now (0: let it run). True if it crashed; false if it
 * came to its end before. Locals of the crashed code are lost: memory that it holds leaks (so the
 * code under test should own none, or the test keeps it).
 */
bool ts_pool_run(
    struct ts_pool *t, uint64_t crash_at, void (*fn)(struct ts_pool *t, void *arg), void *arg);
/* What a crash leaves; attaches again (into t->pool). Returns what pm_attach() says. */
CN_MUST_CHECK int ts_pool_crash(struct ts_pool *t, uint64_t seed, enum ts_crash mode);
/* Is [off, off+size) durable as it is visible? */
bool ts_pool_is_durable(const struct ts_pool *t, uint64_t off, uint64_t size);
/* Make all that is visible durable (the test wrote it behind the tracer's back). */
void ts_pool_settle(struct ts_pool *t);

/* Whole state (memory, shadow, attachment), to go back to. */
struct ts_image;
struct ts_image *ts_pool_save(const struct ts_pool *t);
void ts_pool_restore(struct ts_pool *t, const struct ts_image *image);
void ts_image_delete(struct ts_image **image);

/* Next random number of a seed. */
static inline uint64_t ts_random(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(*seed);
}

#endif
