/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: TPC-C's keys are ordered as their rows and unique, and its random draws are those of the
 * specification: NURand, last names, their constants.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bn_tpcc.h"

static void bn_tpcc_last_name__of_the_specification__as_there(void **state)
{
    static const struct {
        uint32_t number;
        const char *name;
    } expected[] = {{371, "PRICALLYOUGHT"}, {40, "BARPRESBAR"}, {0, "BARBARBAR"},
        {999, "EINGEINGEING"}, {178, "OUGHTCALLYATION"}};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(expected); i++) {
        char name[BN_TPCC_NAME_SIZE], padded[BN_TPCC_NAME_SIZE] = {0};
        memcpy(padded, expected[i].name, strlen(expected[i].name));
        bn_tpcc_last_name(expected[i].number, name);
        assert_memory_equal(name, padded, sizeof(name));
    }
}

static void bn_tpcc_last_name__all__differ(void **state)
{
    char names[1000][BN_TPCC_NAME_SIZE];

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        bn_tpcc_last_name(i, names[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_memory_not_equal(names[i], names[j], BN_TPCC_NAME_SIZE);
    }
}

/* (((random(0, A) | random(x, y)) + C) % (y - x + 1)) + x, with the same draws. */
static void bn_tpcc_nurand__fixed_seed__formula(void **state)
{
    static const struct {
        uint32_t a, x, y, c;
    } cases[] = {{255, 0, 999, 123}, {1023, 1, 3000, 259}, {8191, 1, 100000, 7911}, {0, 5, 5, 0}};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        uint32_t a = cases[i].a, x = cases[i].x, y = cases[i].y, c = cases[i].c;
        uint64_t random = 99 + i, same = 99 + i;
        for (uint32_t n = 0; n < 10000; n++) {
            uint32_t first = (uint32_t)bn_below(&same, (uint64_t)a + 1);
            uint32_t second = x + (uint32_t)bn_below(&same, (uint64_t)(y - x) + 1);
            uint32_t got = bn_tpcc_nurand(&random, a, x, y, c);
            assert_in_range(got, x, y);
            assert_int_equal(got, (((first | second) + c) % (y - x + 1)) + x);
        }
    }
}

static void bn_tpcc_nurand__customers__not_uniform(void **state)
{
    uint64_t random = 3;
    uint32_t ones = 0;

    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        ones += bn_tpcc_nurand(&random, 1023, 1, 3000, 0) % 8 == 0;
        ones += bn_tpcc_nurand(&random, 255, 0, 999, 0) % 8 == 7;
    }
    /* Each of three bits is set three times of four: 42 %; the uniform share would be 12.5 %. */
    assert_in_range(ones, 200000 * 38 / 100, 200000 * 46 / 100);
}

static void bn_tpcc_run_constant__any__differs_as_specified(void **state)
{
    uint64_t random = 1;

    (void)state;
    for (uint32_t c_load = 0; c_load <= 255; c_load++) {
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t c = bn_tpcc_run_constant(&random, c_load);
            uint32_t delta = c > c_load ? c - c_load : c_load - c;
            assert_in_range(c, 0, 255);
            assert_in_range(delta, 65, 119);
            assert_true(delta != 96 && delta != 112);
        }
    }
}

static void keys__ascending_rows__ascending_keys(void **state)
{
    uint8_t last[BN_TPCC_KEY_MAX] = {0}, key[BN_TPCC_KEY_MAX];

    (void)state;
    for (uint32_t w = 255; w < 258; w++) {
        for (uint32_t d = 1; d <= BN_TPCC_DISTRICTS; d++) {
            for (uint32_t o = 254; o < 258; o++) {
                for (uint32_t number = 1; number <= BN_TPCC_LINES_MAX; number++) {
                    assert_int_equal(bn_tpcc_key_line(key, w, d, o, number), 10);
                    assert_true(memcmp(last, key, 10) < 0);
                    memcpy(last, key, 10);
                }
                assert_int_equal(bn_tpcc_key_wdn(key, w, d, o), 9);
                assert_memory_equal(key, last, 9);
            }
            assert_int_equal(bn_tpcc_key_wd(key, w, d), 5);
            assert_memory_equal(key, last, 5);
        }
        assert_int_equal(bn_tpcc_key_w(key, w), 4);
        assert_memory_equal(key, last, 4);
    }
}

static void keys__stock_history_names__ordered(void **state)
{
    uint8_t a[BN_TPCC_KEY_MAX], b[BN_TPCC_KEY_MAX];
    char one[BN_TPCC_NAME_SIZE], two[BN_TPCC_NAME_SIZE];

    (void)state;
    assert_int_equal(bn_tpcc_key_stock(a, 1, 100000), 8);
    assert_int_equal(bn_tpcc_key_stock(b, 2, 1), 8);
    assert_true(memcmp(a, b, 8) < 0);
    assert_int_equal(bn_tpcc_key_history(a, 0, UINT64_MAX), 12);
    assert_int_equal(bn_tpcc_key_history(b, 1, 0), 12);
    assert_true(memcmp(a, b, 12) < 0);
    bn_tpcc_last_name(0, one);
    bn_tpcc_last_name(40, two);
    assert_int_equal(bn_tpcc_key_name(a, 3, 4, one), 21);
    assert_int_equal(bn_tpcc_key_name(b, 3, 4, two), 21);
    assert_memory_equal(a, b, 5);
    assert_memory_equal(a + 5, one, sizeof(one));
    assert_memory_not_equal(a, b, 21);
}

static void bn_tpcc_text__bounds__kept(void **state)
{
    uint64_t random = 1;
    uint32_t least = 99, most = 0;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        char text[32];
        memset(text, 0, sizeof(text));
        uint32_t size = bn_tpcc_text(&random, text, 14, 24);
        assert_int_equal(strnlen(text, sizeof(text)), size);
        least = size < least ? size : least;
        most = size > most ? size : most;
        bn_tpcc_digits(&random, text, 9);
        for (uint32_t k = 0; k < 9; k++)
            assert_in_range(text[k], '0', '9');
    }
    assert_int_equal(least, 14);
    assert_int_equal(most, 24);
}

/* Rows lie in values as they are: what one transaction puts the next must read. */
static void rows__fields__where_they_are_due(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct bn_tpcc_district, address), 31);
    assert_int_equal(offsetof(struct bn_tpcc_customer, data_size), 176);
    assert_int_equal(offsetof(struct bn_tpcc_customer, data), 178);
    assert_int_equal(offsetof(struct bn_tpcc_order_line, dist_info), 35);
    assert_int_equal(offsetof(struct bn_tpcc_stock, dist), 28);
    assert_int_equal(offsetof(struct bn_tpcc_recent_orders, i_id), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bn_tpcc_last_name__of_the_specification__as_there),
        cmocka_unit_test(bn_tpcc_last_name__all__differ),
        cmocka_unit_test(bn_tpcc_nurand__fixed_seed__formula),
        cmocka_unit_test(bn_tpcc_nurand__customers__not_uniform),
        cmocka_unit_test(bn_tpcc_run_constant__any__differs_as_specified),
        cmocka_unit_test(keys__ascending_rows__ascending_keys),
        cmocka_unit_test(keys__stock_history_names__ordered),
        cmocka_unit_test(bn_tpcc_text__bounds__kept),
        cmocka_unit_test(rows__fields__where_they_are_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
