/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the load `counter` counts what commits, and its check sees a single increment that is
 * missing or one too many; what loads share (bn_fill.c) puts and reads every index once, in order.
 * Method: the load over a table in memory (bt_cairn.h), where a committed write can be lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/bt_cairn.h"
#include "tools/bench/bn_fill.h"

static struct bt_load *start(uint64_t keys, bool two)
{
    bt_option(&bn_counter, "keys", keys);
    bt_option(&bn_counter, "two", two);
    return bt_load_new(&bn_counter);
}

static void check__sum_is_committed__holds(void **state)
{
    (void)state;
    for (unsigned two = 0; two < 2; two++) {
        struct bt_load *b = start(4, two != 0);
        uint64_t checked, sum = 0;
        for (uint32_t i = 0; i < 1000; i++)
            (void)bt_load_step(b, i % 2);
        assert_int_equal(bt_load_check(b, &checked), 0);
        assert_int_equal(checked, 5);
        for (uint64_t key = 0; key < 4; key++) {
            uint8_t name[8];
            size_t size;
            bn_put_be64(name, key);
            uint64_t *count = bt_value(b, 0, name, sizeof(name), &size);
            assert_int_equal(size, 8);
            sum += *count;
        }
        assert_int_equal(sum, two != 0 ? 2000 : 1000);
        bt_load_delete(&b);
    }
}

static void check__lost_increment__told_with_figures(void **state)
{
    struct bt_load *b = start(4, false);
    uint64_t checked;

    (void)state;
    for (uint32_t i = 0; i < 10; i++)
        (void)bt_load_step(b, 0);
    bt_lose(b, 0);
    (void)bt_load_step(b, 0);
    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    assert_non_null(strstr(cairn_last_error(), "add up to 10, but 11 increments"));
    assert_int_equal(checked, 0);
    bt_load_delete(&b);
}

static void check__one_too_many__refused(void **state)
{
    struct bt_load *b = start(4, false);
    uint64_t checked, seed = 1;
    uint8_t slot[256] = {0};

    (void)state;
    assert_true(bn_counter.slot_size <= sizeof(slot));
    (void)bn_counter.draw(b->load, b->worker[1], &seed, slot);
    bn_counter.settle(b->load, b->worker[1], slot, false);
    assert_int_equal(bt_load_check(b, &checked), 0); /* a refused one counts for nothing */
    bn_counter.settle(b->load, b->worker[1], slot, true);
    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    bt_load_delete(&b);
}

static void setup__two_of_one_key__refused(void **state)
{
    (void)state;
    bt_option(&bn_counter, "keys", 1);
    bt_option(&bn_counter, "two", 1);
    assert_int_equal(bt_setup(&bn_counter), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "--keys"));
    bt_option(&bn_counter, "two", 0);
    assert_int_equal(bt_setup(&bn_counter), 0);
}

/* ---- bn_fill.c ---- */

struct seen {
    uint64_t next;
    uint64_t stop_at;
};

static int put_one(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    uint8_t key[8];

    bn_put_be64(key, index);
    return index == 999 ? cn_fail(CAIRN_E_POOL_FULL, "no room for %u", 999u)
                        : cairn_put(tx, load->table[0], key, sizeof(key), &index, sizeof(index));
}

static void key_of(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    bn_put_be64(ret_key, index);
}

static int take(void *arg, uint64_t index, const void *value, size_t size)
{
    struct seen *seen = arg;

    assert_int_equal(index, seen->next++);
    if (index < 700) {
        assert_int_equal(size, sizeof(index));
        assert_memory_equal(value, &index, sizeof(index));
    } else
        assert_null(value);
    return index == seen->stop_at ? cn_fail(CAIRN_E_STATE, "stopped") : 0;
}

static void bn_scan__what_bn_fill_put__each_once_in_order(void **state)
{
    struct bt_load *b = start(1, false);
    struct seen seen = {.stop_at = UINT64_MAX};
    const struct bn_fill fill = {.what = "things", .count = 700, .per_tx = 9, .put = put_one};
    struct bn_scan scan = {.what = "things",
        .count = 800, /* in 13 transactions, 3 at a time */
        .table = 1,
        .key_size = 8,
        .value_size_max = 8,
        .key = key_of,
        .take = take,
        .arg = &seen};

    (void)state;
    assert_int_equal(bn_fill(b->load, b->ctx, &fill), 0);
    assert_int_equal(bt_count(b, 0), 700);
    assert_int_equal(bn_scan(b->load, b->ctx, &scan), 0);
    assert_int_equal(seen.next, 800);
    seen = (struct seen){.stop_at = 100};
    assert_int_equal(bn_scan(b->load, b->ctx, &scan), CAIRN_E_STATE);
    assert_non_null(strstr(cairn_last_error(), "things: stopped"));
    assert_int_equal(seen.next, 101);
    scan.value_size_max = 7;
    seen = (struct seen){.stop_at = UINT64_MAX};
    assert_int_equal(bn_scan(b->load, b->ctx, &scan), CAIRN_E_STATE);
    bt_load_delete(&b);
}

static void bn_fill__a_put_fails__first_error_told(void **state)
{
    struct bt_load *b = start(1, false);
    const struct bn_fill fill = {.what = "things", .count = 5000, .per_tx = 9, .put = put_one};

    (void)state;
    assert_int_equal(bn_fill(b->load, b->ctx, &fill), CAIRN_E_POOL_FULL);
    assert_string_equal(cairn_last_error(), "things: no room for 999");
    assert_true(bt_count(b, 0) < 1100);
    bt_load_delete(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__sum_is_committed__holds),
        cmocka_unit_test(check__lost_increment__told_with_figures),
        cmocka_unit_test(check__one_too_many__refused),
        cmocka_unit_test(setup__two_of_one_key__refused),
        cmocka_unit_test(bn_scan__what_bn_fill_put__each_once_in_order),
        cmocka_unit_test(bn_fill__a_put_fails__first_error_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
