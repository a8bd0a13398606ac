/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: numbers of loads: below their bound, all of them, and again from the same seed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bn_load.h"

static void below__small_bound__even(void **state)
{
    uint64_t count[7] = {0}, random = 3;

    (void)state;
    for (uint32_t i = 0; i < 70000; i++) {
        uint64_t value = bn_below(&random, 7);
        assert_true(value < 7);
        count[value]++;
    }
    for (uint32_t i = 0; i < 7; i++)
        assert_in_range(count[i], 9600, 10400);
}

static void below__largest_bound__in_it(void **state)
{
    uint64_t random = 3, high = 0;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++)
        high += bn_below(&random, UINT64_MAX) >> 63;
    assert_in_range(high, 400, 600);
    assert_int_equal(bn_below(&random, 1), 0);
}

static void random__same_seed__same_sequence(void **state)
{
    uint64_t a = 9, b = 9, c = 10;

    (void)state;
    assert_true(bn_random(&a) != bn_random(&c));
    (void)bn_random(&b);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(bn_random(&a) == bn_random(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(below__small_bound__even),
        cmocka_unit_test(below__largest_bound__in_it),
        cmocka_unit_test(random__same_seed__same_sequence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
