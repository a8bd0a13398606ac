/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: SmallBank's transactions do what they say to balances, and values and keys survive their
 * encoding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/smallbank.h"

/* Run a plan on accounts with these balances: savings of a, checking of a, checking of b. */
static bool apply(enum sb_kind kind, int64_t amount, int64_t balance[3], int64_t *ret_delta)
{
    struct sb_plan plan = {.kind = kind, .account = {5, 3}, .amount = amount};
    const uint32_t keys[3] = {sb_savings(5), sb_checking(5), sb_checking(3)};
    struct sb_touch touch[SB_TOUCHES_MAX];
    uint32_t count = sb_touches(&plan, touch);

    for (uint32_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < 3; k++) {
            if ((touch[i].key & ~SB_WRITTEN) == keys[k])
                touch[i].old_balance = balance[k];
        }
    }
    *ret_delta = 0;
    if (!sb_apply(&plan, touch, count, ret_delta))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < 3; k++) {
            if ((touch[i].key & ~SB_WRITTEN) == keys[k])
                balance[k] = touch[i].new_balance;
        }
    }
    return true;
}

static void expect(enum sb_kind kind, int64_t amount, const int64_t after[3], int64_t delta_due)
{
    int64_t balance[3] = {100, 50, 7}, delta;

    assert_true(apply(kind, amount, balance, &delta));
    for (unsigned k = 0; k < 3; k++)
        assert_int_equal(balance[k], after[k]);
    assert_int_equal(delta, delta_due);
}

static void sb_apply__each_kind__balances(void **state)
{
    (void)state;
    expect(SB_BALANCE, 10, (int64_t[]){100, 50, 7}, 0);
    expect(SB_DEPOSIT_CHECKING, 10, (int64_t[]){100, 60, 7}, 10);
    expect(SB_TRANSACT_SAVINGS, -10, (int64_t[]){90, 50, 7}, -10);
    expect(SB_AMALGAMATE, 10, (int64_t[]){0, 0, 157}, 0);
    expect(SB_WRITE_CHECK, 10, (int64_t[]){100, 40, 7}, -10);
    expect(SB_WRITE_CHECK, 151, (int64_t[]){100, -102, 7}, -152); /* overdraft costs one */
    expect(SB_SEND_PAYMENT, 10, (int64_t[]){100, 40, 17}, 0);
}

static void sb_apply__not_enough__refused(void **state)
{
    int64_t balance[3] = {100, 50, 7}, delta;

    (void)state;
    assert_false(apply(SB_TRANSACT_SAVINGS, -101, balance, &delta));
    assert_false(apply(SB_SEND_PAYMENT, 51, balance, &delta));
}

static void sb_apply__deposit_on_an_overdraft__taken(void **state)
{
    int64_t balance[3] = {0, -200, 7}, delta;

    (void)state;
    assert_true(apply(SB_DEPOSIT_CHECKING, 10, balance, &delta));
    assert_int_equal(balance[1], -190);
    assert_int_equal(delta, 10);
}

/* Keys in one order for all, so that two transactions seldom abort each other for nothing. */
static void sb_touches__any_plan__ascending_and_unique(void **state)
{
    uint64_t random = 1;
    uint32_t kinds[SB_KIND_COUNT] = {0};

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        struct sb_touch touch[SB_TOUCHES_MAX];
        struct sb_plan plan;
        sb_draw(&random, 1000, &plan);
        assert_true(plan.account[0] < 1000 && plan.account[1] < 1000);
        assert_int_not_equal(plan.account[0], plan.account[1]);
        uint32_t count = sb_touches(&plan, touch);
        assert_in_range(count, 1, SB_TOUCHES_MAX);
        for (uint32_t j = 1; j < count; j++)
            assert_true((touch[j - 1].key & ~SB_WRITTEN) < (touch[j].key & ~SB_WRITTEN));
        kinds[plan.kind]++;
    }
    for (unsigned k = 0; k < SB_KIND_COUNT; k++)
        assert_in_range(
            kinds[k], k == SB_SEND_PAYMENT ? 2200 : 1300, k == SB_SEND_PAYMENT ? 2800 : 1700);
}

static void sb_value_pack__any__round_trip(void **state)
{
    const struct sb_value value = {-5, 7, 0xfffffffe, UINT64_C(1) << 40};
    uint8_t bytes[SB_VALUE_SIZE], name[SB_KEY_SIZE];
    struct sb_value back;

    (void)state;
    sb_value_pack(&value, bytes);
    assert_true(sb_value_unpack(bytes, sizeof(bytes), &back));
    assert_int_equal(back.balance, -5);
    assert_int_equal(back.writer, 7);
    assert_int_equal(back.number, 0xfffffffe);
    assert_int_equal(back.count, UINT64_C(1) << 40);
    assert_false(sb_value_unpack(bytes, sizeof(bytes) - 1, &back));
    sb_key_pack(sb_checking(42), name);
    assert_memory_equal(name, "00000042", SB_KEY_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sb_apply__each_kind__balances),
        cmocka_unit_test(sb_apply__not_enough__refused),
        cmocka_unit_test(sb_apply__deposit_on_an_overdraft__taken),
        cmocka_unit_test(sb_touches__any_plan__ascending_and_unique),
        cmocka_unit_test(sb_value_pack__any__round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
