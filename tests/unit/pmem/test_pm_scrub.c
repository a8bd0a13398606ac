/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a pass clears all old tags, and in the current incarnation only what may be cleared (T10);
 * its progress survives crashes without skipping a word.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static bool never(void *arg, uint16_t slot)
{
    (void)arg;
    (void)slot;
    return false;
}
static bool only(void *arg, uint16_t slot)
{
    return slot == *(uint16_t *)arg;
}

static void pass(struct ts_store *s, pm_scrub_may_free_fn may_free, void *arg)
{
    bool done = false;

    for (uint32_t i = 0; !done && i < 1000000; i++)
        (void)pm_scrub_step(s->s, 7, may_free, arg, &done);
    assert_true(done);
}

static uint64_t field(struct ts_store *s, size_t off)
{
    return pm_load64(&s->t->pm, s->t->pool.super_off + PM_SCRUB_OFF + off);
}

static struct ts_store *new_store(struct ts_place *p)
{
    struct ts_store *s = ts_store_new(NULL, 0, 4);

    /* Items in the last chunks: no cursor is persisted behind them. */
    s->s->chunk_cursor = s->s->c.count - 3;
    assert_int_equal(ts_store_put(s, 1, 0, 10), 0);
    assert_int_equal(ts_store_lookup(s, 0, p), TS_FOUND);
    return s;
}

static void lock(struct ts_store *s, uint64_t off, uint16_t tag, uint16_t slot)
{
    pm_store64(
        &s->t->pm, off, pm_word_make_locked(tag, slot, pm_word_version(pm_load64(&s->t->pm, off))));
}

static void pass__old_tags__are_cleared_durably(void **state)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);
    uint16_t old = (uint16_t)(s->t->pool.tag - 1);

    (void)state;
    lock(s, p.item, old, 2);
    lock(s, p.bucket, old, 3);
    lock(s, p.bucket + 512, old, 0); /* a child that was never born */
    pass(s, never, NULL);
    assert_int_equal(pm_load64(&s->t->pm, p.item), p.item_word);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket), p.bucket_word);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket + 512), 0);
    assert_true(ts_pool_is_durable(s->t, p.item, 8));
    assert_true(ts_pool_is_durable(s->t, p.bucket, 8));
    assert_int_equal(field(s, offsetof(struct pm_scrub_pm, done)), s->t->pool.incarnation - 1);
    assert_false(pm_scrub_is_due(s->s));
    assert_int_equal(pm_scrub_passes(s->s), 1);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void pass__current_tag__only_what_may_be_freed(void **state)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);
    uint16_t tag = s->t->pool.tag, dead = 2;
    uint64_t locked;

    (void)state;
    lock(s, p.item, tag, 2);
    lock(s, p.bucket, tag, 3);
    locked = pm_load64(&s->t->pm, p.bucket);
    pass(s, never, NULL);
    assert_int_equal(
        pm_load64(&s->t->pm, p.item), pm_word_make_locked(tag, 2, pm_word_version(p.item_word)));
    pass(s, only, &dead);
    assert_int_equal(pm_load64(&s->t->pm, p.item), p.item_word);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket), locked);
    ts_store_delete(&s);
}

static void pass__version_differs_from_the_object__is_left(void **state)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);
    uint64_t word = pm_word_make_locked(
        (uint16_t)(s->t->pool.tag - 1), 2, pm_word_version(p.item_word) + 1);

    (void)state;
    pm_store64(&s->t->pm, p.item, word);
    pass(s, never, NULL);
    assert_int_equal(pm_load64(&s->t->pm, p.item), word);
    ts_store_delete(&s);
}

static void step__fabric_fails__word_is_looked_at_again(void **state)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);

    (void)state;
    lock(s, p.item, (uint16_t)(s->t->pool.tag - 1), 2);
    lock(s, p.bucket, (uint16_t)(s->t->pool.tag - 1), 2);
    s->cas_fails = 2;
    pass(s, never, NULL);
    assert_int_equal(pm_load64(&s->t->pm, p.item), p.item_word);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket), p.bucket_word);
    ts_store_delete(&s);
}

static void step__restart_in_a_pass__goes_on_with_the_goal(void **state)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);
    uint64_t goal;
    bool done;

    (void)state;
    ts_store_restart(s);
    goal = s->t->pool.incarnation - 1;
    assert_true(pm_scrub_is_due(s->s));
    (void)pm_scrub_step(s->s, 70, never, NULL, &done); /* over the first cursor */
    assert_false(done);
    assert_int_equal(field(s, offsetof(struct pm_scrub_pm, goal)), goal);
    ts_store_restart(s);
    pass(s, never, NULL);
    assert_int_equal(field(s, offsetof(struct pm_scrub_pm, done)), goal);
    assert_int_equal(pm_scrub_passes(s->s), 0); /* begun before: does not count */
    ts_store_restart(s);
    assert_true(pm_scrub_is_due(s->s));
    pass(s, never, NULL);
    assert_int_equal(pm_scrub_passes(s->s), 1);
    assert_int_equal(field(s, offsetof(struct pm_scrub_pm, done)), s->t->pool.incarnation - 1);
    ts_store_delete(&s);
}

static void run_pass(struct ts_pool *t, void *arg)
{
    bool done = false;

    (void)t;
    while (!done)
        (void)pm_scrub_step(((struct ts_store *)arg)->s, 40, never, NULL, &done);
}

static bool crash_pass_at(uint64_t at, uint64_t seed)
{
    struct ts_place p;
    struct ts_store *s = new_store(&p);
    bool crashed;

    ts_store_restart(s);
    pass(s, never, NULL); /* leaves a cursor behind, maybe */
    ts_store_restart(s);
    lock(s, p.item, (uint16_t)(s->t->pool.tag - 1), 2);
    ts_pool_settle(s->t);
    crashed = ts_pool_run(s->t, at, run_pass, s);
    assert_int_equal(ts_pool_crash(s->t, seed, TS_CRASH_RANDOM), 0);
    if (pm_word_locked_bit(pm_load64(&s->t->pm, p.item)))
        assert_true(field(s, offsetof(struct pm_scrub_pm, done)) < s->t->pool.incarnation - 1);
    ts_store_restart(s);
    pass(s, never, NULL);
    assert_int_equal(pm_load64(&s->t->pm, p.item), p.item_word);
    ts_store_delete(&s);
    return crashed;
}

/* `done` must never be durable while a word it vouches for is not. */
static void pass__crash_at_every_event__done_implies_clear(void **state)
{
    uint64_t at = 1;

    (void)state;
    for (; crash_pass_at(at, 0); at++) {
        for (uint64_t seed = 1; seed < 24; seed++)
            (void)crash_pass_at(at, seed);
    }
    assert_true(at > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pass__old_tags__are_cleared_durably),
        cmocka_unit_test(pass__current_tag__only_what_may_be_freed),
        cmocka_unit_test(pass__version_differs_from_the_object__is_left),
        cmocka_unit_test(step__fabric_fails__word_is_looked_at_again),
        cmocka_unit_test(step__restart_in_a_pass__goes_on_with_the_goal),
        cmocka_unit_test(pass__crash_at_every_event__done_implies_clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
