/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the histogram says what was recorded. Method: compare with the sorted values themselves;
 * random ones over all magnitudes, and the edges of buckets. Invariants: the relative error stays
 * below 1/2^(BN_SUB_BITS + 1); merging is adding.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/bench/bn_histogram.h"

#define VALUES 20000u

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static struct bn_histogram *new_histogram(void)
{
    struct bn_histogram *h = calloc(1, sizeof(*h));

    assert_non_null(h);
    return h;
}

static void assert_near(uint64_t told, uint64_t exact)
{
    uint64_t off = told > exact ? told - exact : exact - told;

    if (off << (BN_SUB_BITS + 1) > exact)
        fail_msg("told %llu, exact %llu", (unsigned long long)told, (unsigned long long)exact);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void quantile__empty__0(void **state)
{
    struct bn_histogram *h = new_histogram();

    (void)state;
    assert_int_equal(bn_histogram_quantile(h, 0.5), 0);
    assert_true(bn_histogram_mean(h) == 0);
    free(h);
}

static void quantile__one_value__is_that_value(void **state)
{
    (void)state;
    for (uint32_t shift = 0; shift < BN_VALUE_BITS; shift++) {
        for (int64_t by = -1; by <= 1; by++) {
            uint64_t value = (UINT64_C(1) << shift) + (uint64_t)by;
            struct bn_histogram *h = new_histogram();
            bn_histogram_add(h, value);
            assert_int_equal(bn_histogram_quantile(h, 0), value);
            assert_int_equal(bn_histogram_quantile(h, 1), value);
            assert_int_equal(h->min, value);
            assert_int_equal(h->max, value);
            free(h);
        }
    }
}

static void quantile__every_magnitude__error_is_bounded(void **state)
{
    (void)state;
    for (uint32_t shift = 0; shift < BN_VALUE_BITS - 1; shift++) {
        for (uint64_t part = 0; part < 300; part++) {
            uint64_t value = (UINT64_C(1) << shift) + ((UINT64_C(1) << shift) * part) / 300;
            struct bn_histogram *h = new_histogram();
            bn_histogram_add(h, 0);
            bn_histogram_add(h, value);
            bn_histogram_add(h, BN_VALUE_MAX);
            assert_near(bn_histogram_quantile(h, 0.5), value);
            free(h);
        }
    }
}

static void quantile__random_values__that_of_the_rank(void **state)
{
    static const double quantiles[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1};
    uint64_t *value = calloc(VALUES, sizeof(*value)), random = 7;
    struct bn_histogram *h = new_histogram();
    double sum = 0;

    (void)state;
    assert_non_null(value);
    for (uint32_t i = 0; i < VALUES; i++) {
        value[i] = next_random(&random) >> (25 + next_random(&random) % 30);
        sum += (double)value[i];
        bn_histogram_add(h, value[i]);
    }
    qsort(value, VALUES, sizeof(*value), compare);
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(quantiles); i++) {
        double exact = quantiles[i] * VALUES;
        uint64_t rank = (uint64_t)exact + ((double)(uint64_t)exact < exact);
        assert_near(bn_histogram_quantile(h, quantiles[i]), value[rank == 0 ? 0 : rank - 1]);
    }
    assert_int_equal(h->count, VALUES);
    assert_int_equal(h->min, value[0]);
    assert_int_equal(h->max, value[VALUES - 1]);
    double off = bn_histogram_mean(h) - sum / VALUES;
    assert_true(off < 1 && off > -1);
    free(value);
    free(h);
}

static void quantile__known_distribution__p50_and_p99(void **state)
{
    struct bn_histogram *h = new_histogram();

    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        bn_histogram_add(h, i); /* below 2^BN_SUB_BITS: exact */
    assert_int_equal(bn_histogram_quantile(h, 0.5), 50);
    assert_int_equal(bn_histogram_quantile(h, 0.99), 99);
    assert_int_equal(bn_histogram_quantile(h, 0.991), 100);
    assert_int_equal(bn_histogram_quantile(h, -1), 1);
    assert_int_equal(bn_histogram_quantile(h, 2), 100);
    free(h);
}

static void add__beyond_the_largest__counts_as_it(void **state)
{
    struct bn_histogram *h = new_histogram();

    (void)state;
    bn_histogram_add(h, UINT64_C(1) << 50);
    bn_histogram_add(h, UINT64_C(1) << 50);
    assert_int_equal(h->bucket[BN_BUCKETS - 1], 2);
    assert_int_equal(h->max, UINT64_C(1) << 50);
    free(h);
}

static void merge__two__as_if_added_to_one(void **state)
{
    struct bn_histogram *a = new_histogram(), *b = new_histogram(), *all = new_histogram();
    struct bn_histogram *empty = new_histogram();
    uint64_t random = 99;

    (void)state;
    for (uint32_t i = 0; i < VALUES; i++) {
        uint64_t value = next_random(&random) >> (24 + next_random(&random) % 30);
        bn_histogram_add(i % 3 == 0 ? a : b, value);
        bn_histogram_add(all, value);
    }
    bn_histogram_merge(a, b);
    bn_histogram_merge(a, empty);
    assert_memory_equal(a, all, sizeof(*a));
    bn_histogram_merge(empty, all);
    assert_memory_equal(empty, all, sizeof(*a));
    free(a);
    free(b);
    free(all);
    free(empty);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantile__empty__0),
        cmocka_unit_test(quantile__one_value__is_that_value),
        cmocka_unit_test(quantile__every_magnitude__error_is_bounded),
        cmocka_unit_test(quantile__random_values__that_of_the_rank),
        cmocka_unit_test(quantile__known_distribution__p50_and_p99),
        cmocka_unit_test(add__beyond_the_largest__counts_as_it),
        cmocka_unit_test(merge__two__as_if_added_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
