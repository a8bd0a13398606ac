/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the load `tpcc` does the five transactions, and its check sees what breaks a consistency
 * condition, what commits without being in the ledger, and the reverse.
 * Method: the load, at its smallest, over a table in memory (bt_cairn.h), where a committed write
 * can be lost and a row changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/bt_cairn.h"
#include "tools/bench/bn_tpcc.h"

#define SCALE 30u
#define CUSTOMERS 100u /* of a district */
#define ITEMS 3333u

static struct bt_load *start(uint64_t warehouses)
{
    bt_option(&bn_tpcc, "warehouses", warehouses);
    bt_option(&bn_tpcc, "scale", SCALE);
    return bt_load_new(&bn_tpcc);
}

static void must_fail(struct bt_load *b, const char *text)
{
    uint64_t checked;

    assert_int_equal(bt_load_check(b, &checked), CAIRN_E_STATE);
    if (strstr(cairn_last_error(), text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, cairn_last_error());
}

static void must_hold(struct bt_load *b)
{
    uint64_t checked;

    if (bt_load_check(b, &checked) != 0)
        fail_msg("%s", cairn_last_error());
    assert_true(checked > 1000);
}

/* Draw until the next transaction of worker 0 is of this kind, and will commit. */
static void seek(struct bt_load *b, uint32_t kind)
{
    const struct bn_tpcc_slot *s = b->slot;
    uint64_t random;

    do {
        random = b->random;
        (void)bn_tpcc.draw(b->load, b->worker[0], &b->random, b->slot);
        bn_tpcc.settle(b->load, b->worker[0], b->slot, false);
    } while (s->kind != kind || (kind == BN_TPCC_NEW_ORDER_TX && s->u.new_order.unused_item));
    b->random = random;
}

static void load__smallest__rows_of_the_population(void **state)
{
    struct bt_load *b = start(2);

    (void)state;
    assert_int_equal(bt_count(b, BN_TPCC_WAREHOUSE), 2);
    assert_int_equal(bt_count(b, BN_TPCC_DISTRICT), 20);
    assert_int_equal(bt_count(b, BN_TPCC_CUSTOMER), 20 * CUSTOMERS);
    assert_int_equal(bt_count(b, BN_TPCC_HISTORY), 20 * CUSTOMERS);
    assert_int_equal(bt_count(b, BN_TPCC_ORDERS), 20 * CUSTOMERS);
    assert_int_equal(bt_count(b, BN_TPCC_NEW_ORDER), 20 * CUSTOMERS * 3 / 10);
    assert_int_equal(bt_count(b, BN_TPCC_ITEM), ITEMS);
    assert_int_equal(bt_count(b, BN_TPCC_STOCK), 2 * ITEMS);
    assert_int_equal(bt_count(b, BN_TPCC_CUSTOMER_ORDER), 20 * CUSTOMERS);
    assert_in_range(bt_count(b, BN_TPCC_ORDER_LINE), 20 * CUSTOMERS * 9, 20 * CUSTOMERS * 11);
    assert_true(b->progress > 0);
    must_hold(b);
    bt_load_delete(&b);
}

/* At the specification's size, a name is shared: its customers ascend by first name. */
static void load__names_shared__lists_ordered_by_first_name(void **state)
{
    uint32_t longest = 0, listed = 0;

    (void)state;
    bt_option(&bn_tpcc, "warehouses", 1);
    bt_option(&bn_tpcc, "scale", 2); /* 1500 customers of 1000 names */
    struct bt_load *b = bt_load_new(&bn_tpcc);
    for (uint32_t name = 0; name < 1000; name++) {
        char text[BN_TPCC_NAME_SIZE], last[17] = "";
        uint8_t key[BN_TPCC_KEY_MAX];
        size_t size, row_size;
        bn_tpcc_last_name(name, text);
        uint32_t key_size = bn_tpcc_key_name(key, 1, 3, text);
        const uint32_t *c = bt_value(b, BN_TPCC_CUSTOMER_NAME, key, key_size, &size);
        for (uint32_t i = 0; i < size / 4; i++) {
            char first[17] = "";
            key_size = bn_tpcc_key_wdn(key, 1, 3, c[i]);
            const struct bn_tpcc_customer *row =
                bt_value(b, BN_TPCC_CUSTOMER, key, key_size, &row_size);
            assert_int_equal(row_size, sizeof(*row));
            assert_memory_equal(row->last, text, sizeof(text));
            memcpy(first, row->first, sizeof(row->first));
            assert_true(strcmp(last, first) <= 0);
            memcpy(last, first, sizeof(last));
        }
        listed += (uint32_t)(size / 4);
        longest = size / 4 > longest ? (uint32_t)(size / 4) : longest;
    }
    assert_int_equal(listed, 1500);
    assert_true(longest > 2);
    bt_load_delete(&b);
}

static void check__after_many__holds(void **state)
{
    static const uint32_t percent[BN_TPCC_KINDS] = {45, 43, 4, 4, 4};
    struct bt_load *b = start(2);
    uint32_t count[BN_TPCC_KINDS] = {0}, refused[BN_TPCC_KINDS] = {0};
    const uint32_t all = 10000;

    (void)state;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t kind = bt_load_step(b, i % 2);
        count[kind]++;
        refused[kind] += !b->committed;
    }
    for (uint32_t k = 0; k < BN_TPCC_KINDS; k++) {
        assert_in_range(count[k], percent[k] * 100 - 200, percent[k] * 100 + 200);
        assert_true(k == BN_TPCC_NEW_ORDER_TX || refused[k] == 0);
    }
    assert_in_range(refused[BN_TPCC_NEW_ORDER_TX], 20, 75); /* 1 % of 4500 */
    must_hold(b);
    bt_load_delete(&b);
}

/* ---- what the transactions leave behind ---- */

static void expect_stock(struct bt_load *b)
{
    uint8_t key[BN_TPCC_KEY_MAX];
    size_t size;

    for (uint32_t i = 1; i <= ITEMS; i++) {
        const struct bn_tpcc_stock *stock =
            bt_value(b, BN_TPCC_STOCK, key, bn_tpcc_key_stock(key, 1, i), &size);
        assert_in_range(stock->quantity, 10, 100);
    }
}

static void expect_order(struct bt_load *b, uint32_t d, uint32_t o, bool delivered)
{
    uint8_t key[BN_TPCC_KEY_MAX];
    size_t size;
    const struct bn_tpcc_order *order =
        bt_value(b, BN_TPCC_ORDERS, key, bn_tpcc_key_wdn(key, 1, d, o), &size);

    assert_int_equal(order->o_id, o);
    assert_int_equal(order->carrier_id != 0, delivered);
    for (uint32_t number = 1; number <= order->ol_cnt; number++) {
        const struct bn_tpcc_order_line *line =
            bt_value(b, BN_TPCC_ORDER_LINE, key, bn_tpcc_key_line(key, 1, d, o, number), &size);
        const struct bn_tpcc_item *item =
            bt_value(b, BN_TPCC_ITEM, key, bn_tpcc_key_w(key, line->i_id), &size);
        assert_int_equal(line->number, number);
        assert_int_equal(line->delivery_d != 0, delivered);
        if (o > CUSTOMERS)
            assert_int_equal(line->amount, (int64_t)line->quantity * item->price);
    }
}

static void transactions__many__rows_as_specified(void **state)
{
    struct bt_load *b = start(1);
    uint8_t key[BN_TPCC_KEY_MAX];
    uint32_t delivered = 0, noted = 0;
    size_t size;

    (void)state;
    for (uint32_t i = 0; i < 6000; i++)
        (void)bt_load_step(b, 0);
    expect_stock(b);
    for (uint32_t d = 1; d <= BN_TPCC_DISTRICTS; d++) {
        const struct bn_tpcc_district *district =
            bt_value(b, BN_TPCC_DISTRICT, key, bn_tpcc_key_wd(key, 1, d), &size);
        const struct bn_tpcc_oldest_order *oldest =
            bt_value(b, BN_TPCC_OLDEST_ORDER, key, bn_tpcc_key_wd(key, 1, d), &size);
        assert_true(district->next_o_id > 2 * CUSTOMERS);
        delivered += oldest->o_id > CUSTOMERS;
        for (uint32_t o = 1; o < district->next_o_id; o++)
            expect_order(b, d, o, o < oldest->o_id);
    }
    assert_int_equal(delivered, BN_TPCC_DISTRICTS);
    for (uint32_t c = 1; c <= CUSTOMERS; c++) {
        const struct bn_tpcc_customer *customer =
            bt_value(b, BN_TPCC_CUSTOMER, key, bn_tpcc_key_wdn(key, 1, 1, c), &size);
        char number[16];
        int n = snprintf(number, sizeof(number), "%u 1 1 ", c);
        bool has = memcmp(customer->data, number, (size_t)n) == 0;
        assert_in_range(customer->data_size, 300, 500);
        assert_true(!has || memcmp(customer->credit, "BC", 2) == 0);
        noted += has;
    }
    assert_true(noted > 0);
    bt_load_delete(&b);
}

/* Twenty orders of fifteen different items: more stock than keys in a transaction. */
static void stock_level__more_items_than_keys__rest_in_another(void **state)
{
    struct bt_load *b = start(1);
    struct bn_tpcc_worker *w = b->worker[0];
    uint8_t key[BN_TPCC_KEY_MAX];
    size_t size;

    (void)state;
    for (uint32_t d = 1; d <= BN_TPCC_DISTRICTS; d++) {
        struct bn_tpcc_recent_orders *recent =
            bt_value(b, BN_TPCC_RECENT_ORDERS, key, bn_tpcc_key_wd(key, 1, d), &size);
        for (uint32_t o = 0; o < BN_TPCC_RECENT; o++) {
            recent->ol_cnt[o] = BN_TPCC_LINES_MAX;
            for (uint32_t i = 0; i < BN_TPCC_LINES_MAX; i++)
                recent->i_id[o][i] = 1 + o * BN_TPCC_LINES_MAX + i;
        }
    }
    for (uint32_t i = 1; i <= ITEMS; i++) { /* all low */
        struct bn_tpcc_stock *stock =
            bt_value(b, BN_TPCC_STOCK, key, bn_tpcc_key_stock(key, 1, i), &size);
        stock->quantity = 9;
    }
    const struct bn_tpcc_slot *s = b->slot;
    seek(b, BN_TPCC_STOCK_LEVEL_TX);
    assert_int_equal(bt_load_step(b, 0), BN_TPCC_STOCK_LEVEL_TX);
    uint32_t low = s->u.stock_level.low, threshold = s->u.stock_level.rest.threshold;
    assert_int_equal(low, 254);
    assert_int_equal(w->rest_count, 1);
    assert_int_equal(bt_keys_max(b), CAIRN_TX_KEYS_MAX);
    assert_int_equal(bt_load_step(b, 0), BN_TPCC_STOCK_LEVEL_TX);
    assert_int_equal(s->u.stock_level.rest.threshold, threshold);
    assert_int_equal(low + s->u.stock_level.low, 300);
    assert_int_equal(w->rest_count, 0);
    bt_load_delete(&b);
}

static void check__a_write_lost__refused(void **state)
{
    static const uint32_t lost[][2] = {{BN_TPCC_NEW_ORDER_TX, BN_TPCC_DISTRICT},
        {BN_TPCC_NEW_ORDER_TX, BN_TPCC_ORDERS}, {BN_TPCC_NEW_ORDER_TX, BN_TPCC_NEW_ORDER},
        {BN_TPCC_NEW_ORDER_TX, BN_TPCC_ORDER_LINE}, {BN_TPCC_NEW_ORDER_TX, BN_TPCC_STOCK},
        {BN_TPCC_NEW_ORDER_TX, BN_TPCC_CUSTOMER_ORDER},
        {BN_TPCC_NEW_ORDER_TX, BN_TPCC_RECENT_ORDERS}, {BN_TPCC_PAYMENT_TX, BN_TPCC_WAREHOUSE},
        {BN_TPCC_PAYMENT_TX, BN_TPCC_DISTRICT}, {BN_TPCC_PAYMENT_TX, BN_TPCC_CUSTOMER},
        {BN_TPCC_PAYMENT_TX, BN_TPCC_HISTORY}, {BN_TPCC_DELIVERY_TX, BN_TPCC_OLDEST_ORDER},
        {BN_TPCC_DELIVERY_TX, BN_TPCC_NEW_ORDER}, {BN_TPCC_DELIVERY_TX, BN_TPCC_CUSTOMER}};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(lost); i++) {
        struct bt_load *b = start(1);
        uint64_t checked;
        seek(b, lost[i][0]);
        bt_lose(b, lost[i][1]);
        assert_int_equal(bt_load_step(b, 0), lost[i][0]);
        assert_true(b->committed);
        if (bt_load_check(b, &checked) != CAIRN_E_STATE)
            fail_msg("a lost write of %s to %s is not seen", bn_tpcc.kinds[lost[i][0]],
                bn_tpcc.tables[lost[i][1]]);
        bt_load_delete(&b);
    }
}

static void check__ledger_off_by_one__refused(void **state)
{
    static const struct {
        size_t offset;
        const char *text;
    } counts[] = {
        {offsetof(struct bn_tpcc_count, new_orders), "D_NEXT_O_ID"},
        {offsetof(struct bn_tpcc_count, lines), "ORDER-LINE"},
        {offsetof(struct bn_tpcc_count, delivered), "rows of NEW-ORDER"},
        {offsetof(struct bn_tpcc_count, payments), "C_PAYMENT_CNT"},
        {offsetof(struct bn_tpcc_count, paid), "D_YTD"},
    };
    static const struct {
        size_t offset;
        const char *text;
    } totals[] = {
        {offsetof(struct bn_tpcc_worker, quantity), "S_YTD"},
        {offsetof(struct bn_tpcc_worker, remote_lines), "S_REMOTE_CNT"},
        {offsetof(struct bn_tpcc_worker, delivered), "C_DELIVERY_CNT"},
        {offsetof(struct bn_tpcc_worker, delivered_amount), "C_BALANCE"},
    };
    struct bt_load *b = start(1);
    struct bn_tpcc_worker *w = b->worker[1];

    (void)state;
    for (uint32_t i = 0; i < 200; i++)
        (void)bt_load_step(b, i % 2);
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(counts); i++) {
        uint64_t *count = (uint64_t *)(void *)((char *)&w->district[4] + counts[i].offset);
        *count += 1;
        must_fail(b, counts[i].text);
        *count -= 1;
        must_hold(b);
    }
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(totals); i++) {
        uint64_t *count = (uint64_t *)(void *)((char *)w + totals[i].offset);
        *count += 1;
        must_fail(b, totals[i].text);
        *count -= 1;
        must_hold(b);
    }
    bt_load_delete(&b);
}

/* Both a row and the ledger are wrong alike: only the condition sees it. */
static void check__conditions_broken__each_named(void **state)
{
    struct bt_load *b = start(1);
    struct bn_tpcc_worker *w = b->worker[0];
    uint8_t key[BN_TPCC_KEY_MAX];
    size_t size;

    (void)state;
    struct bn_tpcc_district *district =
        bt_value(b, BN_TPCC_DISTRICT, key, bn_tpcc_key_wd(key, 1, 2), &size);
    struct bn_tpcc_warehouse *warehouse =
        bt_value(b, BN_TPCC_WAREHOUSE, key, bn_tpcc_key_w(key, 1), &size);
    struct bn_tpcc_order *order =
        bt_value(b, BN_TPCC_ORDERS, key, bn_tpcc_key_wdn(key, 1, 2, 50), &size);
    struct bn_tpcc_recent_orders *recent =
        bt_value(b, BN_TPCC_RECENT_ORDERS, key, bn_tpcc_key_wd(key, 1, 2), &size);
    district->next_o_id++;
    w->district[1].new_orders++;
    must_fail(b, "condition 2: the highest O_ID");
    district->next_o_id--;
    w->district[1].new_orders--;
    order->ol_cnt++;
    must_fail(b, "condition 4");
    order->ol_cnt--;
    warehouse->ytd++;
    must_fail(b, "condition 1");
    district->ytd++;
    must_fail(b, "district 1.2: D_YTD");
    warehouse->ytd--;
    must_fail(b, "condition 1");
    district->ytd--;
    recent->i_id[3][1]++;
    must_fail(b, "recent_orders: lines");
    recent->i_id[3][1]--;
    must_hold(b);
    bt_load_delete(&b);
}

/* A new order that is gone, which the ledger knows of as a delivery: the last, and one in between.
 */
static void check__new_order_out_of_turn__condition_2_and_3(void **state)
{
    static const char *const text[] = {"condition 2: the highest NO_O_ID", "condition 3"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct bt_load *b = start(1);
        struct bn_tpcc_worker *w = b->worker[0];
        uint8_t key[BN_TPCC_KEY_MAX];
        bt_delete(b, BN_TPCC_NEW_ORDER, key, bn_tpcc_key_wdn(key, 1, 2, i == 0 ? CUSTOMERS : 90));
        w->district[1].delivered++;
        must_fail(b, text[i]);
        bt_load_delete(&b);
    }
}

static void setup__scale__noted(void **state)
{
    struct bt_load *b = start(1);

    (void)state;
    assert_non_null(b->load->note);
    assert_non_null(strstr(b->load->note, "not to the specification: 3333 items, 100 customers"));
    bt_load_delete(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load__smallest__rows_of_the_population),
        cmocka_unit_test(load__names_shared__lists_ordered_by_first_name),
        cmocka_unit_test(check__after_many__holds),
        cmocka_unit_test(transactions__many__rows_as_specified),
        cmocka_unit_test(stock_level__more_items_than_keys__rest_in_another),
        cmocka_unit_test(check__a_write_lost__refused),
        cmocka_unit_test(check__ledger_off_by_one__refused),
        cmocka_unit_test(check__conditions_broken__each_named),
        cmocka_unit_test(check__new_order_out_of_turn__condition_2_and_3),
        cmocka_unit_test(setup__scale__noted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
