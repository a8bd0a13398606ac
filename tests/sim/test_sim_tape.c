/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the choice tape: the same seed gives the same choices, a recording plays back, and the
 * odometer visits every tape once. Method: programs whose choices depend on each other.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/sim/sim.h"

/* Runs `program` over all tapes; how often each of its results came up. */
static uint64_t count_all(struct sim_odometer *o, uint32_t (*program)(struct sim_tape *tape),
    uint32_t *seen, uint32_t room)
{
    bool more = true;

    while (more) {
        struct sim_tape tape;
        sim_tape_init(&tape, 7, false);
        tape.odometer = o;
        o->on = true;
        uint32_t result = program(&tape);
        assert_true(result < room);
        seen[result]++;
        sim_tape_fini(&tape);
        more = sim_odometer_next(o);
    }
    return o->runs;
}

static uint32_t two_digits(struct sim_tape *tape)
{
    uint32_t a = sim_tape_choose(tape, "a", 3);

    return 4 * a + sim_tape_choose(tape, "b", 4);
}

static void next__independent_choices__each_once(void **state)
{
    (void)state;
    struct sim_odometer o;
    uint32_t seen[12] = {0};

    sim_odometer_init(&o);
    assert_int_equal(12, count_all(&o, two_digits, seen, 12));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(1, seen[i]);
    assert_false(o.diverged);
    sim_odometer_fini(&o);
}

/* 0: alone; 1: with a chance; 2: with another choice of three. */
static uint32_t a_tree(struct sim_tape *tape)
{
    uint32_t a = sim_tape_choose(tape, "a", 3);

    if (a == 1)
        return sim_tape_chance(tape, "b", 1, 100) ? 1 : 2;
    if (a == 2)
        return 3 + sim_tape_choose(tape, "c", 3);
    return 0;
}

static void next__bounds_depend_on_choices__each_leaf_once(void **state)
{
    (void)state;
    struct sim_odometer o;
    uint32_t seen[6] = {0};

    sim_odometer_init(&o);
    assert_int_equal(6, count_all(&o, a_tree, seen, 6));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(1, seen[i]);
    sim_odometer_fini(&o);
}

static uint32_t wide(struct sim_tape *tape)
{
    return sim_tape_choose(tape, "delay", 1000);
}

static void next__wide_choice__least_and_greatest(void **state)
{
    (void)state;
    struct sim_odometer o;
    uint32_t seen[1000] = {0};

    sim_odometer_init(&o);
    assert_int_equal(2, count_all(&o, wide, seen, 1000));
    assert_int_equal(1, seen[0]);
    assert_int_equal(1, seen[999]);
    sim_odometer_fini(&o);
}

static void next__fixed_label__first_value_only(void **state)
{
    (void)state;
    static const char *const fixed[] = {"x", "a", NULL};
    struct sim_odometer o;
    uint32_t seen[12] = {0};

    sim_odometer_init(&o);
    o.fixed = fixed;
    assert_int_equal(4, count_all(&o, two_digits, seen, 12));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(i < 4, seen[i]);
    sim_odometer_fini(&o);
}

static uint32_t calls;
static uint32_t not_determined(struct sim_tape *tape)
{
    return sim_tape_choose(tape, "a", 2 + calls++ % 2) + 2 * sim_tape_choose(tape, "b", 2);
}

static void next__program_with_hidden_state__diverged(void **state)
{
    (void)state;
    struct sim_odometer o;
    uint32_t seen[8] = {0};

    sim_odometer_init(&o);
    (void)count_all(&o, not_determined, seen, 8);
    assert_true(o.diverged);
    sim_odometer_fini(&o);
}

/* While it is off the choices are those of the seed, and no digit is used up. */
static void choose__odometer_off__as_without(void **state)
{
    (void)state;
    struct sim_odometer o;
    struct sim_tape with, without;

    sim_odometer_init(&o);
    sim_tape_init(&with, 3, false);
    sim_tape_init(&without, 3, false);
    with.odometer = &o;
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(
            sim_tape_choose(&without, "x", 50 + i), sim_tape_choose(&with, "x", 50 + i));
    assert_int_equal(0, o.count);
    assert_false(sim_odometer_next(&o));
    sim_tape_fini(&with);
    sim_tape_fini(&without);
    sim_odometer_fini(&o);
}

static void play__recording_of_an_odometer__same_choices(void **state)
{
    (void)state;
    struct sim_odometer o;
    struct sim_tape first, again;

    sim_odometer_init(&o);
    for (uint32_t skip = 0; skip < 3; skip++) {
        sim_tape_init(&first, 1, true);
        first.odometer = &o;
        o.on = true;
        uint32_t result = a_tree(&first);
        sim_tape_init(&again, 1, false);
        sim_tape_play(&again, first.choice, first.choice_count);
        assert_int_equal(result, a_tree(&again));
        assert_int_equal(first.hash, again.hash);
        sim_tape_fini(&first);
        sim_tape_fini(&again);
        assert_true(sim_odometer_next(&o));
    }
    sim_odometer_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next__independent_choices__each_once),
        cmocka_unit_test(next__bounds_depend_on_choices__each_leaf_once),
        cmocka_unit_test(next__wide_choice__least_and_greatest),
        cmocka_unit_test(next__fixed_label__first_value_only),
        cmocka_unit_test(next__program_with_hidden_state__diverged),
        cmocka_unit_test(choose__odometer_off__as_without),
        cmocka_unit_test(play__recording_of_an_odometer__same_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
