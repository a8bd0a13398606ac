/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the load `smallbank` draws the standard mix over hot accounts, and its check sees money and
 * writes that are off by one.
 * Method: the load over a table in memory (bt_cairn.h), where a committed write can be lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/bt_cairn.h"
#include "tools/bench/bn_fill.h"
#include "tools/smallbank.h"

enum { SAVINGS, CHECKING };

static struct bt_load *start(void)
{
    bt_option(&bn_smallbank, "accounts", 200);
    bt_option(&bn_smallbank, "hot", 4);
    bt_option(&bn_smallbank, "hot-access", 90);
    return bt_load_new(&bn_smallbank);
}

static void kinds__names__are_smallbanks(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < SB_KIND_COUNT; k++)
        assert_string_equal(bn_smallbank.kinds[k], sb_kind_name((enum sb_kind)k));
    assert_null(bn_smallbank.kinds[SB_KIND_COUNT]);
}

static void draw__fixed_seed__mix_of_the_standard(void **state)
{
    static const uint32_t percent[SB_KIND_COUNT] = {[SB_BALANCE] = 15,
        [SB_DEPOSIT_CHECKING] = 15,
        [SB_TRANSACT_SAVINGS] = 15,
        [SB_AMALGAMATE] = 15,
        [SB_WRITE_CHECK] = 15,
        [SB_SEND_PAYMENT] = 25};
    struct bt_load *b = start();
    uint32_t count[SB_KIND_COUNT] = {0};

    (void)state;
    for (uint32_t i = 0; i < 100000; i++)
        count[bn_smallbank.draw(b->load, b->worker[0], &b->random, b->slot)]++;
    for (uint32_t k = 0; k < SB_KIND_COUNT; k++)
        assert_in_range(count[k], percent[k] * 1000 - 500, percent[k] * 1000 + 500);
    bt_load_delete(&b);
}

/* As published: only payments can lack money, and only after an amalgamate took it. */
static void sb_draw_spread__each_kind__amounts_of_the_standard(void **state)
{
    static const int64_t amount[SB_KIND_COUNT] = {[SB_DEPOSIT_CHECKING] = 130,
        [SB_TRANSACT_SAVINGS] = 2020,
        [SB_WRITE_CHECK] = 500,
        [SB_SEND_PAYMENT] = 500};
    const struct sb_spread spread = {.accounts = 1000, .hot = 40, .hot_in = 90, .hot_of = 100};
    uint64_t random = 1;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        struct sb_plan plan;
        sb_draw_spread(&random, &spread, &plan);
        assert_int_equal(plan.amount, amount[plan.kind]);
    }
}

static void sb_draw_spread__fixed_seed__hot_accounts(void **state)
{
    const struct sb_spread spread = {.accounts = 1000, .hot = 40, .hot_in = 90, .hot_of = 100};
    uint64_t random = 1;
    uint32_t hot = 0, both = 0;

    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        struct sb_plan plan;
        sb_draw_spread(&random, &spread, &plan);
        assert_true(plan.account[0] < 1000 && plan.account[1] < 1000);
        assert_int_not_equal(plan.account[0], plan.account[1]);
        hot += plan.account[0] < 40;
        both += plan.account[0] < 40 && plan.account[1] < 40;
    }
    assert_in_range(hot, 90400 - 500, 90400 + 500);  /* 90 %, and 4 % of the rest */
    assert_in_range(both, 90016 - 500, 90016 + 500); /* drawn for the transaction, not for each */
}

static void check__after_many__holds(void **state)
{
    struct bt_load *b = start();
    uint64_t checked;
    uint32_t refused = 0;

    (void)state;
    assert_true(b->progress > 0);
    assert_int_equal(bt_count(b, SAVINGS), 200);
    assert_int_equal(bt_count(b, CHECKING), 200);
    for (uint32_t i = 0; i < 20000; i++) {
        (void)bt_load_step(b, i % 2);
        refused += !b->committed;
    }
    assert_true(refused > 0);
    assert_int_equal(bt_load_check(b, &checked), 0);
    assert_int_equal(checked, 401);
    assert_int_equal(bt_keys_max(b), 128); /* the loader's and the checker's transactions */
    bt_load_delete(&b);
}

static void check__a_write_lost__refused(void **state)
{
    static const uint32_t kinds[] = {SB_DEPOSIT_CHECKING, SB_SEND_PAYMENT, SB_AMALGAMATE};
    uint64_t checked;

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(kinds); i++) {
        struct bt_load *b = start();
        bt_lose(b, CHECKING);
        bt_load_until(b, kinds[i]);
        assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
        assert_non_null(strstr(cairn_last_error(), "checking of account"));
        bt_load_delete(&b);
    }
}

static void check__ledger_off_by_one__refused(void **state)
{
    struct bt_load *b = start();
    uint64_t checked;

    (void)state;
    bt_load_until(b, SB_BALANCE);
    bn_smallbank.settle(b->load, b->worker[1], b->slot, true); /* writes nothing */
    assert_int_equal(bt_load_check(b, &checked), 0);
    bt_load_until(b, SB_SEND_PAYMENT);
    bn_smallbank.settle(b->load, b->worker[1], b->slot, false);
    assert_int_equal(bt_load_check(b, &checked), 0);
    bn_smallbank.settle(b->load, b->worker[1], b->slot, true);
    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    bt_load_delete(&b);
}

/* Counts are right, but a coin is too much. */
static void check__money_off_by_one__refused(void **state)
{
    struct bt_load *b = start();
    uint64_t checked;
    uint8_t key[SB_KEY_SIZE];
    size_t size;
    int64_t *balance;

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        (void)bt_load_step(b, i % 2);
    bn_put_be64(key, 17);
    balance = bt_value(b, SAVINGS, key, sizeof(key), &size);
    assert_int_equal(size, 16);
    *balance += 1;
    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    assert_non_null(strstr(cairn_last_error(), "withdrawn"));
    *balance -= 1;
    assert_int_equal(bt_load_check(b, &checked), 0);
    bt_load_delete(&b);
}

static void setup__hot_accounts_too_few__refused(void **state)
{
    (void)state;
    bt_option(&bn_smallbank, "accounts", 20);
    bt_option(&bn_smallbank, "hot", 4);
    bt_option(&bn_smallbank, "hot-access", 90);
    assert_int_equal(bt_setup(&bn_smallbank), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "--hot"));
    bt_option(&bn_smallbank, "hot-access", 0);
    assert_int_equal(bt_setup(&bn_smallbank), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds__names__are_smallbanks),
        cmocka_unit_test(draw__fixed_seed__mix_of_the_standard),
        cmocka_unit_test(sb_draw_spread__each_kind__amounts_of_the_standard),
        cmocka_unit_test(sb_draw_spread__fixed_seed__hot_accounts),
        cmocka_unit_test(check__after_many__holds),
        cmocka_unit_test(check__a_write_lost__refused),
        cmocka_unit_test(check__ledger_off_by_one__refused),
        cmocka_unit_test(check__money_off_by_one__refused),
        cmocka_unit_test(setup__hot_accounts_too_few__refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
