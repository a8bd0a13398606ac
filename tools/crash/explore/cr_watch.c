/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch.c: what is watched. Whoever watches is alone: the image explorer has one thread.
 */
#include "tools/crash/explore/cr_watch.h"

#include "pmem/pm_record.h"

struct cr_watch cr_watching;

struct cr_watch cr_watch_set(struct cr_watch watch)
{
    struct cr_watch before = cr_watching;

    cr_watching = watch;
    return before;
}

static void count(void *arg, const void *at, size_t size)
{
    uint32_t *n = arg;

    (void)at;
    *n += size != 0;
}

bool cr_watch_works(void)
{
    static const uint8_t lines[1] = {1};
    static const _Alignas(64) uint8_t line[64];
    uint32_t n = 0;
    struct cr_watch before = cr_watch_set((struct cr_watch){
        .from = (uintptr_t)line, .size = sizeof(line), .lines = lines, .read = count, .arg = &n});

    (void)pm_record_peek(line, sizeof(line)); /* reads a byte, which nobody would wrap */
    (void)cr_watch_set(before);
    return n != 0;
}
