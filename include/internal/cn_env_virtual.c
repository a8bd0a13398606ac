/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_env_virtual.c: a clock of one thread's processor time and of what it skipped.
 *
 * The thread's processor time costs a system call to ask for. So the wall clock measures between
 * two such questions, and they are asked when it has moved further than a thread moves that runs
 * (it was put aside, or slept), and now and then. What the wall clock counted too much until then
 * is taken back by standing still: the clock never goes back.
 */
#include <time.h>

#include "include/internal/cn_env.h"

#define GAP_NS UINT64_C(20000)     /* between two looks: did the thread run all the time? */
#define SYNC_NS UINT64_C(1000000)  /* compare at least so often */
#define MEASURE_ROUNDS 32u
#define MEASURE_LOOKS 64u

/* Its address is another one in each thread. */
static _Thread_local char thread_mark;

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;

    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t read_wall_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t read_used_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void compare_clocks(struct cn_env_virtual *v)
{
    v->sync_own_ns = cn_max64(
        v->sync_own_ns, minus(v->clocks.used_ns() - v->base_used_ns, v->looks * v->look_ns));
    v->sync_looks = v->looks;
    v->sync_wall_ns = v->wall_ns = v->clocks.wall_ns();
}

static uint64_t virtual_now_ns(void *arg)
{
    struct cn_env_virtual *v = arg;
    uint64_t shown = __atomic_load_n(&v->shown_ns, __ATOMIC_RELAXED);

    if (v->owner != &thread_mark)
        return shown;
    uint64_t wall = v->clocks.wall_ns(), before = v->wall_ns;
    v->wall_ns = wall;
    v->looks++;
    if (CN_UNLIKELY(wall - before > GAP_NS || wall - v->sync_wall_ns > SYNC_NS))
        compare_clocks(v);
    uint64_t looks_ns = (v->looks - v->sync_looks) * v->look_ns;
    uint64_t now = v->start_ns + v->skipped_ns + v->sync_own_ns +
        minus(v->wall_ns - v->sync_wall_ns, looks_ns);
    if (now <= shown)
        return shown;
    __atomic_store_n(&v->shown_ns, now, __ATOMIC_RELAXED);
    return now;
}

static void virtual_skip(void *arg, uint64_t ns)
{
    struct cn_env_virtual *v = arg;

    CAIRN_ASSERT(v->owner == &thread_mark);
    v->skipped_ns += ns;
    __atomic_fetch_add(&v->shown_ns, ns, __ATOMIC_RELAXED);
}

void cn_env_virtual_init_with(
    struct cn_env_virtual *v, const struct cn_env_clocks *clocks, uint64_t look_ns)
{
    memset(v, 0, sizeof(*v));
    v->env = *cn_env_system();
    v->env.arg = v;
    v->env.now_ns = virtual_now_ns;
    v->env.skip = virtual_skip;
    v->clocks = *clocks;
    v->owner = &thread_mark;
    v->look_ns = look_ns;
    v->base_used_ns = clocks->used_ns();
    v->start_ns = v->shown_ns = v->wall_ns = v->sync_wall_ns = clocks->wall_ns();
}

/* The least of some rounds: nobody came between. */
static uint64_t measure_look(struct cn_env_virtual *v)
{
    uint64_t least = UINT64_MAX;

    for (unsigned round = 0; round < MEASURE_ROUNDS; round++) {
        uint64_t start = read_wall_ns();
        for (unsigned i = 0; i < MEASURE_LOOKS; i++)
            (void)cn_now_ns(&v->env);
        least = cn_min64(least, read_wall_ns() - start);
    }
    return least / MEASURE_LOOKS;
}

void cn_env_virtual_init(struct cn_env_virtual *v)
{
    static const struct cn_env_clocks clocks = {read_wall_ns, read_used_ns};

    cn_env_virtual_init_with(v, &clocks, 0);
    uint64_t look_ns = measure_look(v);
    cn_env_virtual_init_with(v, &clocks, look_ns);
}
