/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the load `tatp` has the specification's population, mix and rates of found rows, and its
 * check sees a row, an update, an insertion or deletion too many or too few.
 * Method: the load over a table in memory (bt_cairn.h), where a committed write can be lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/bt_cairn.h"
#include "tools/bench/bn_tatp.h"

#define SUBSCRIBERS 2000u

static struct bt_load *start(void)
{
    bt_option(&bn_tatp, "subscribers", SUBSCRIBERS);
    return bt_load_new(&bn_tatp);
}

static void keys__any__ordered_and_unique(void **state)
{
    uint8_t last[BN_TATP_KEY_MAX] = {0}, key[BN_TATP_KEY_MAX];

    (void)state;
    for (uint32_t s_id = 250; s_id < 260; s_id++) {
        for (uint32_t type = 1; type <= BN_TATP_TYPES; type++) {
            for (uint32_t start = 0; start <= 16; start += 8) {
                uint32_t size = bn_tatp_forwarding_key(s_id, type, start, key);
                assert_int_equal(size, 6);
                assert_true(memcmp(last, key, size) < 0);
                memcpy(last, key, size);
                assert_true(bn_tatp_forwarding(type, start) < BN_TATP_FORWARDINGS);
            }
            assert_int_equal(bn_tatp_type_key(s_id, type, key), 5);
            assert_memory_equal(key, last, 5);
        }
        assert_int_equal(bn_tatp_subscriber_key(s_id, key), 4);
        assert_memory_equal(key, last, 4);
    }
    assert_int_equal(bn_tatp_number_key(1234567, key), BN_TATP_DIGITS);
    assert_memory_equal(key, "000000001234567", BN_TATP_DIGITS);
}

static void bn_tatp_profile__many__population_of_the_specification(void **state)
{
    uint32_t access = 0, facility = 0, active = 0, forwarding = 0, none = 0;
    struct bn_tatp_profile p, again;

    (void)state;
    for (uint32_t s_id = 1; s_id <= 100000; s_id++) {
        bn_tatp_profile(5, s_id, &p);
        assert_in_range(p.access_info, 1, 15);
        assert_in_range(p.facility, 1, 15);
        assert_int_equal(p.is_active & ~p.facility, 0);
        access += (uint32_t)__builtin_popcount(p.access_info);
        facility += (uint32_t)__builtin_popcount(p.facility);
        active += (uint32_t)__builtin_popcount(p.is_active);
        forwarding += (uint32_t)__builtin_popcount(p.forwarding);
        for (uint32_t at = 0; at < BN_TATP_FORWARDINGS; at++) {
            uint32_t begin = at % BN_TATP_STARTS * 8;
            assert_in_range(p.end_time[at], begin + 1, begin + 8);
            none += (p.forwarding >> at & 1) != 0 && (p.facility >> at / BN_TATP_STARTS & 1) == 0;
        }
    }
    assert_int_equal(none, 0); /* no forwarding without its facility */
    assert_in_range(access, 250000 - 1500, 250000 + 1500);
    assert_in_range(facility, 250000 - 1500, 250000 + 1500);
    assert_in_range(active, 212500 - 1500, 212500 + 1500);
    assert_in_range(forwarding, 375000 - 3000, 375000 + 3000);
    bn_tatp_profile(5, 100000, &again);
    assert_memory_equal(&p, &again, sizeof(p));
    bn_tatp_profile(6, 100000, &again);
    assert_memory_not_equal(&p, &again, sizeof(p));
}

static void bn_tatp_draw_subscriber__many__in_range_and_not_uniform(void **state)
{
    uint64_t random = 1;
    uint32_t ones = 0;

    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t s_id = bn_tatp_draw_subscriber(&random, 100000);
        assert_in_range(s_id, 1, 100000);
        ones += (s_id - 1) % 16 == 15; /* each bit is set three times of four */
    }
    assert_in_range(ones, 31641 - 700, 31641 + 700);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(bn_tatp_draw_subscriber(&random, 1), 1);
}

static void body__fixed_seed__mix_and_share_of_found_rows(void **state)
{
    static const double mix[BN_TATP_KINDS] = {35, 10, 35, 2, 14, 2, 2};
    static const double found[BN_TATP_KINDS] = {100, 14.8, 62.5, 62.5, 100, 31.25, 31.25};
    static const double within[BN_TATP_KINDS] = {0.1, 0.9, 1.5, 4.5, 0.1, 4.5, 4.5};
    struct bt_load *b = start();
    uint32_t count[BN_TATP_KINDS] = {0}, committed[BN_TATP_KINDS] = {0};
    const uint32_t all = 60000;

    (void)state;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t kind = bt_load_step(b, i % 2);
        count[kind]++;
        committed[kind] += b->committed;
    }
    for (uint32_t k = 0; k < BN_TATP_KINDS; k++) {
        double percent = 100.0 * count[k] / all, rate = 100.0 * committed[k] / count[k];
        assert_true(percent > mix[k] - 0.7 && percent < mix[k] + 0.7);
        assert_true(rate > found[k] - within[k] && rate < found[k] + within[k]);
    }
    bt_load_delete(&b);
}

static void check__after_many__holds(void **state)
{
    struct bt_load *b = start();
    uint64_t checked, before = bt_count(b, BN_TATP_CALL_FORWARDING);

    (void)state;
    assert_int_equal(bt_count(b, BN_TATP_SUBSCRIBER), SUBSCRIBERS);
    assert_int_equal(bt_count(b, BN_TATP_SUBSCRIBER_NUMBER), SUBSCRIBERS);
    assert_true(b->progress > 0);
    for (uint32_t i = 0; i < 20000; i++)
        (void)bt_load_step(b, i % 2);
    assert_int_equal(bt_load_check(b, &checked), 0);
    assert_int_equal(checked, SUBSCRIBERS * (1 + BN_TATP_TYPES + BN_TATP_FORWARDINGS) + 1);
    assert_int_not_equal(bt_count(b, BN_TATP_CALL_FORWARDING), before);
    bt_load_delete(&b);
}

static void check__a_write_lost__refused(void **state)
{
    static const uint32_t lost[][2] = {{BN_TATP_UPDATE_LOCATION, BN_TATP_SUBSCRIBER},
        {BN_TATP_UPDATE_SUBSCRIBER_DATA, BN_TATP_SPECIAL_FACILITY},
        {BN_TATP_INSERT_CALL_FORWARDING, BN_TATP_CALL_FORWARDING},
        {BN_TATP_DELETE_CALL_FORWARDING, BN_TATP_CALL_FORWARDING}};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(lost); i++) {
        struct bt_load *b = start();
        uint64_t checked;
        bt_lose(b, lost[i][1]);
        bt_load_until(b, lost[i][0]);
        assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
        bt_load_delete(&b);
    }
}

static void check__ledger_off_by_one__refused(void **state)
{
    static const uint32_t kinds[] = {BN_TATP_UPDATE_LOCATION, BN_TATP_UPDATE_SUBSCRIBER_DATA,
        BN_TATP_INSERT_CALL_FORWARDING, BN_TATP_DELETE_CALL_FORWARDING};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(kinds); i++) {
        struct bt_load *b = start();
        uint64_t checked;
        bt_load_until(b, kinds[i]);
        assert_int_equal(bt_load_check(b, &checked), 0);
        bn_tatp.settle(b->load, b->worker[1], b->slot, true);
        assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
        bt_load_delete(&b);
    }
}

static void check__totals_off_by_one__refused(void **state)
{
    struct bt_load *b = start();
    struct bn_tatp_worker *w = b->worker[0];
    uint64_t checked;

    (void)state;
    w->inserted++;
    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    assert_non_null(strstr(cairn_last_error(), "1 inserted, 0 deleted"));
    bt_load_delete(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys__any__ordered_and_unique),
        cmocka_unit_test(bn_tatp_profile__many__population_of_the_specification),
        cmocka_unit_test(bn_tatp_draw_subscriber__many__in_range_and_not_uniform),
        cmocka_unit_test(body__fixed_seed__mix_and_share_of_found_rows),
        cmocka_unit_test(check__after_many__holds),
        cmocka_unit_test(check__a_write_lost__refused),
        cmocka_unit_test(check__ledger_off_by_one__refused),
        cmocka_unit_test(check__totals_off_by_one__refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
