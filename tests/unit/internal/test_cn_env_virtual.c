/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the partly virtual clock counts the time its thread runs and what was skipped, and nothing
 * else.
 * Method: both clocks below it are the test's.
 * Invariants: it never goes back.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "include/internal/cn_env.h"

#define LOOK 10u

static uint64_t wall, used;

static uint64_t get_wall(void)
{
    return wall;
}

static uint64_t get_used(void)
{
    return used;
}

static void run_for(uint64_t ns)
{
    wall += ns;
    used += ns;
}

static uint64_t open_clock(struct cn_env_virtual *v, uint64_t look_ns)
{
    static const struct cn_env_clocks clocks = {get_wall, get_used};

    wall = 1000000;
    used = 500;
    cn_env_virtual_init_with(v, &clocks, look_ns);
    return cn_now_ns(&v->env);
}

static void now__thread_runs__counts(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, 0);

    (void)state;
    run_for(7);
    assert_int_equal(cn_now_ns(&v.env) - start, 7);
    for (int i = 0; i < 1000; i++) { /* over several comparisons */
        run_for(5003);
        assert_int_equal(cn_now_ns(&v.env) - start, 7 + 5003 * (uint64_t)(i + 1));
    }
    run_for(50000000);
    assert_int_equal(cn_now_ns(&v.env) - start, 7 + 5003000 + 50000000);
}

static void now__thread_put_aside__stands_still(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, 0);

    (void)state;
    run_for(100);
    wall += 4000000;
    assert_int_equal(cn_now_ns(&v.env) - start, 100);
    run_for(50);
    assert_int_equal(cn_now_ns(&v.env) - start, 150);
}

/* Too short to be noticed at once: taken back when the clocks are compared. */
static void now__put_aside_for_microseconds__taken_back(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, 0), last = start;

    (void)state;
    for (int i = 0; i < 50; i++) {
        run_for(10000);
        wall += 9000;
        uint64_t now = cn_now_ns(&v.env);
        assert_true(now >= last);
        last = now;
    }
    assert_true(last - start > 500000);
    for (int i = 0; i < 2000; i++) {
        run_for(1000);
        uint64_t now = cn_now_ns(&v.env);
        assert_true(now >= last);
        last = now;
    }
    assert_int_equal(last - start, 500000 + 2000000);
}

static void now__looks__cost_nothing(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, LOOK);

    (void)state;
    for (int i = 0; i < 100000; i++) {
        run_for(LOOK);
        (void)cn_now_ns(&v.env);
    }
    assert_true(cn_now_ns(&v.env) - start <= LOOK);
    run_for(300 + 2 * LOOK);
    assert_in_range(cn_now_ns(&v.env) - start, 300 - LOOK, 300 + 2 * LOOK);
}

static void skip__adds__exactly(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, 0);

    (void)state;
    assert_non_null(v.env.skip);
    (v.env.skip)(v.env.arg, 2000);
    assert_int_equal(cn_now_ns(&v.env) - start, 2000);
    run_for(3);
    (v.env.skip)(v.env.arg, 1);
    assert_int_equal(cn_now_ns(&v.env) - start, 2004);
    wall += 100000; /* the owner sleeps */
    (v.env.skip)(v.env.arg, 100000);
    assert_int_equal(cn_now_ns(&v.env) - start, 102004);
}

static void *look(void *arg)
{
    const struct cn_env_virtual *v = arg;
    static uint64_t seen;

    run_for(1000);
    seen = cn_now_ns(&v->env);
    return &seen;
}

static void now__other_thread__sees_what_the_owner_saw(void **state)
{
    struct cn_env_virtual v;
    uint64_t start = open_clock(&v, 0);
    pthread_t thread;
    void *seen;

    (void)state;
    run_for(40);
    (void)cn_now_ns(&v.env);
    assert_int_equal(pthread_create(&thread, NULL, look, &v), 0);
    assert_int_equal(pthread_join(thread, &seen), 0);
    assert_int_equal(*(uint64_t *)seen - start, 40);
}

static void init__clocks_of_the_system__moves_with_work(void **state)
{
    struct cn_env_virtual v;
    volatile uint64_t work = 0;

    (void)state;
    cn_env_virtual_init(&v);
    assert_true(v.look_ns > 0);
    uint64_t start = cn_now_ns(&v.env);
    for (uint64_t i = 0; i < 30000000; i++)
        work += i;
    uint64_t end = cn_now_ns(&v.env);
    assert_true(work > 0);
    assert_true(end > start);
    (v.env.skip)(v.env.arg, UINT64_C(3600000000000));
    assert_true(cn_now_ns(&v.env) - end >= UINT64_C(3600000000000));
    assert_true(cn_wall_s(&v.env) > UINT64_C(1600000000));
    assert_true(cn_random64(&v.env) != cn_random64(&v.env));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(now__thread_runs__counts),
        cmocka_unit_test(now__thread_put_aside__stands_still),
        cmocka_unit_test(now__put_aside_for_microseconds__taken_back),
        cmocka_unit_test(now__looks__cost_nothing),
        cmocka_unit_test(skip__adds__exactly),
        cmocka_unit_test(now__other_thread__sees_what_the_owner_saw),
        cmocka_unit_test(init__clocks_of_the_system__moves_with_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
