/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: bn_zipf.c draws what the distribution says, at every skew, and scrambles one to one.
 * Method: frequencies of many draws from a fixed seed against the exact probabilities, by Pearson's
 * chi-square; the seed is fixed, so the outcome is too.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tools/bench/bn_load.h"
#include "tools/bench/bn_zipf.h"

#define N 40u
#define DRAWS 400000u
/* Of 39 degrees of freedom: 1 of 1000 samples of the right distribution lies above. */
#define CHI_SQUARE 72.1

static double chi_square(double theta, const uint64_t *count, uint64_t n, uint64_t draws)
{
    double sum = 0, chi = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += pow((double)i + 1, -theta);
    for (uint64_t i = 0; i < n; i++) {
        double wanted = (double)draws * pow((double)i + 1, -theta) / sum;
        chi += ((double)count[i] - wanted) * ((double)count[i] - wanted) / wanted;
    }
    return chi;
}

static void draw__every_skew__frequencies_are_exact(void **state)
{
    static const double thetas[] = {0, 0.3, 0.99, 1, 1.0000001, 1.5, 3};

    (void)state;
    for (size_t t = 0; t < CN_ARRAY_SIZE(thetas); t++) {
        uint64_t count[N] = {0}, random = 7;
        struct bn_zipf zipf;
        bn_zipf_init(&zipf, N, thetas[t]);
        for (uint32_t i = 0; i < DRAWS; i++) {
            uint64_t rank = bn_zipf_draw(&zipf, &random);
            assert_true(rank < N);
            count[rank]++;
        }
        assert_true(chi_square(thetas[t], count, N, DRAWS) < CHI_SQUARE);
        /* and the measure can tell: it is not the distribution of a slightly other skew */
        assert_true(chi_square(thetas[t] + 0.05, count, N, DRAWS) > CHI_SQUARE);
    }
}

/* Where n is large only the head can be compared: the first ranks, and all others together. */
static void draw__many_keys__head_and_rest_are_exact(void **state)
{
    const uint64_t n = 1000000;
    const double theta = 0.99;
    uint64_t count[8] = {0}, random = 11;
    double sum = 0;
    struct bn_zipf zipf;

    (void)state;
    bn_zipf_init(&zipf, n, theta);
    for (uint64_t i = 1; i <= n; i++)
        sum += pow((double)i, -theta);
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint64_t rank = bn_zipf_draw(&zipf, &random);
        assert_true(rank < n);
        if (rank < 8)
            count[rank]++;
    }
    for (uint32_t i = 0; i < 8; i++) {
        double p = pow(i + 1.0, -theta) / sum, wanted = p * DRAWS;
        assert_true(fabs((double)count[i] - wanted) < 4 * sqrt(wanted * (1 - p)));
    }
}

static void draw__one_key__is_it(void **state)
{
    uint64_t random = 1;
    struct bn_zipf zipf;

    (void)state;
    bn_zipf_init(&zipf, 1, 0.99);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(bn_zipf_draw(&zipf, &random), 0);
}

static void draw__same_seed__same_numbers(void **state)
{
    uint64_t a = 5, b = 5;
    struct bn_zipf zipf;

    (void)state;
    bn_zipf_init(&zipf, 1000, 0.8);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(bn_zipf_draw(&zipf, &a), bn_zipf_draw(&zipf, &b));
}

static void scramble__any_count__is_a_permutation(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097, 100000};

    (void)state;
    for (size_t c = 0; c < CN_ARRAY_SIZE(counts); c++) {
        uint8_t *seen = calloc(counts[c], 1);
        assert_non_null(seen);
        for (uint64_t i = 0; i < counts[c]; i++) {
            uint64_t to = bn_scramble(i, counts[c]);
            assert_true(to < counts[c]);
            assert_int_equal(seen[to], 0);
            seen[to] = 1;
        }
        free(seen);
    }
}

/* The popular ranks do not lie side by side. */
static void scramble__first_ranks__are_spread(void **state)
{
    uint64_t near = 0;

    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t a = bn_scramble(i, 1000000), b = bn_scramble(i + 1, 1000000);
        near += (a > b ? a - b : b - a) < 1000;
    }
    assert_true(near < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draw__every_skew__frequencies_are_exact),
        cmocka_unit_test(draw__many_keys__head_and_rest_are_exact),
        cmocka_unit_test(draw__one_key__is_it),
        cmocka_unit_test(draw__same_seed__same_numbers),
        cmocka_unit_test(scramble__any_count__is_a_permutation),
        cmocka_unit_test(scramble__first_ranks__are_spread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
