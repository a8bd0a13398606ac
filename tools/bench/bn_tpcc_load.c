/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_load.c: the population of TPC-C's tables, clause 4.3.3.1. Each row is a function of the
 * seed and its key, so that a transaction that runs again puts the same, and the check can compute
 * what the orders of the beginning had.
 */
#include <errno.h>

#include "tools/bench/bn_tpcc.h"

#define AMOUNT_FIRST 1000 /* cents: of each customer's first payment */
#define LINES_MEAN 10u

static uint64_t random_of(const struct bn_tpcc *t, enum bn_tpcc_table table, uint64_t a, uint64_t b)
{
    return cn_mix64(cn_mix64(cn_mix64(t->base.seed + table) + a) + b);
}

static const struct bn_tpcc *tpcc_of(const struct bn_load *load)
{
    return (const struct bn_tpcc *)load;
}

static int put(struct cairn_tx *tx, const struct bn_load *load, enum bn_tpcc_table table,
    const uint8_t *key, uint32_t key_size, const void *row, size_t size)
{
    return cairn_put(tx, load->table[table], key, key_size, row, size);
}

/* ---- items and stock ---- */

static void draw_data(uint64_t *random, char to[50])
{
    uint32_t size = bn_tpcc_text(random, to, 26, 50);

    if (bn_below(random, 10) == 0)
        memcpy(to + bn_below(random, size - 7), "ORIGINAL", 8);
}

static int put_item(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    struct bn_tpcc_item row = {.i_id = (uint32_t)index + 1};
    uint64_t random = random_of(tpcc_of(load), BN_TPCC_ITEM, row.i_id, 0);
    uint8_t key[BN_TPCC_KEY_MAX];

    row.im_id = bn_tpcc_between(&random, 1, 10000);
    row.price = bn_tpcc_between(&random, 100, 10000);
    (void)bn_tpcc_text(&random, row.name, 14, 24);
    draw_data(&random, row.data);
    return put(tx, load, BN_TPCC_ITEM, key, bn_tpcc_key_w(key, row.i_id), &row, sizeof(row));
}

static int put_stock(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct bn_tpcc *t = tpcc_of(load);
    struct bn_tpcc_stock row = {
        .w_id = (uint32_t)(index / t->items) + 1, .i_id = (uint32_t)(index % t->items) + 1};
    uint64_t random = random_of(t, BN_TPCC_STOCK, row.w_id, row.i_id);
    uint8_t key[BN_TPCC_KEY_MAX];

    row.quantity = (int32_t)bn_tpcc_between(&random, 10, 100);
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++)
        (void)bn_tpcc_text(&random, row.dist[d], 24, 24);
    draw_data(&random, row.data);
    return put(tx, load, BN_TPCC_STOCK, key, bn_tpcc_key_stock(key, row.w_id, row.i_id), &row,
        sizeof(row));
}

/* ---- warehouses and districts ---- */

static void draw_address(uint64_t *random, struct bn_tpcc_address *ret)
{
    (void)bn_tpcc_text(random, ret->street_1, 10, 20);
    (void)bn_tpcc_text(random, ret->street_2, 10, 20);
    (void)bn_tpcc_text(random, ret->city, 10, 20);
    (void)bn_tpcc_text(random, ret->state, 2, 2);
    bn_tpcc_digits(random, ret->zip, 4);
    memcpy(ret->zip + 4, "11111", 5);
}

uint32_t bn_tpcc_initial_order(const struct bn_tpcc *t, uint32_t w, uint32_t d, uint32_t o,
    uint32_t ret_items[BN_TPCC_LINES_MAX], uint64_t *ret_random)
{
    uint64_t random = random_of(t, BN_TPCC_ORDERS, bn_tpcc_district_index(w, d), o);
    uint32_t count = bn_tpcc_between(&random, BN_TPCC_LINES_MIN, BN_TPCC_LINES_MAX);

    for (uint32_t i = 0; i < count; i++)
        ret_items[i] = bn_tpcc_between(&random, 1, t->items);
    *ret_random = random;
    return count;
}

static int put_recent(struct cairn_tx *tx, const struct bn_load *load, uint32_t w, uint32_t d)
{
    const struct bn_tpcc *t = tpcc_of(load);
    struct bn_tpcc_recent_orders row = {.next_o_id = t->customers + 1};
    struct bn_tpcc_oldest_order oldest = {.o_id = t->delivered + 1};
    uint8_t key[BN_TPCC_KEY_MAX];
    uint64_t random;

    for (uint32_t o = row.next_o_id - BN_TPCC_RECENT; o < row.next_o_id; o++)
        row.ol_cnt[o % BN_TPCC_RECENT] =
            (uint8_t)bn_tpcc_initial_order(t, w, d, o, row.i_id[o % BN_TPCC_RECENT], &random);
    uint32_t size = bn_tpcc_key_wd(key, w, d);
    int rc = put(tx, load, BN_TPCC_RECENT_ORDERS, key, size, &row, sizeof(row));
    return rc != 0 ? rc
                   : put(tx, load, BN_TPCC_OLDEST_ORDER, key, size, &oldest, sizeof(oldest));
}

static int put_district(struct cairn_tx *tx, const struct bn_load *load, uint32_t w, uint32_t d)
{
    const struct bn_tpcc *t = tpcc_of(load);
    struct bn_tpcc_district row = {.w_id = w,
        .d_id = (uint8_t)d,
        .next_o_id = t->customers + 1,
        .ytd = (int64_t)t->customers * AMOUNT_FIRST};
    uint64_t random = random_of(t, BN_TPCC_DISTRICT, w, d);
    uint8_t key[BN_TPCC_KEY_MAX];

    row.tax = bn_tpcc_between(&random, 0, 2000);
    (void)bn_tpcc_text(&random, row.name, 6, 10);
    draw_address(&random, &row.address);
    int rc = put(tx, load, BN_TPCC_DISTRICT, key, bn_tpcc_key_wd(key, w, d), &row, sizeof(row));
    return rc != 0 ? rc : put_recent(tx, load, w, d);
}

static int put_warehouse(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct bn_tpcc *t = tpcc_of(load);
    struct bn_tpcc_warehouse row = {.w_id = (uint32_t)index + 1,
        .ytd = (int64_t)t->customers * BN_TPCC_DISTRICTS * AMOUNT_FIRST};
    uint64_t random = random_of(t, BN_TPCC_WAREHOUSE, row.w_id, 0);
    uint8_t key[BN_TPCC_KEY_MAX];

    row.tax = bn_tpcc_between(&random, 0, 2000);
    (void)bn_tpcc_text(&random, row.name, 6, 10);
    draw_address(&random, &row.address);
    int rc = put(
        tx, load, BN_TPCC_WAREHOUSE, key, bn_tpcc_key_w(key, row.w_id), &row, sizeof(row));
    for (uint32_t d = 1; d <= BN_TPCC_DISTRICTS && rc == 0; d++)
        rc = put_district(tx, load, row.w_id, d);
    return rc;
}

/* ---- customers ---- */

/* Last name and first name: drawn before all else, also to make the lists of namesakes. */
static uint32_t draw_names(const struct bn_tpcc *t, uint32_t w, uint32_t d, uint32_t c,
    char ret_first[16], uint64_t *ret_random)
{
    uint64_t random = random_of(t, BN_TPCC_CUSTOMER, bn_tpcc_district_index(w, d), c);
    uint32_t name =
        c <= t->names ? c - 1 : bn_tpcc_nurand(&random, 255, 0, t->names - 1, t->c_load);

    (void)bn_tpcc_text(&random, ret_first, 8, 16);
    *ret_random = random;
    return name;
}

static int put_first_history(struct cairn_tx *tx, const struct bn_load *load, uint64_t index,
    const struct bn_tpcc_customer *c)
{
    struct bn_tpcc_history row = {.date = c->since,
        .amount = AMOUNT_FIRST,
        .c_id = c->c_id,
        .c_w_id = c->w_id,
        .w_id = c->w_id,
        .c_d_id = c->d_id,
        .d_id = c->d_id};
    uint64_t random = random_of(tpcc_of(load), BN_TPCC_HISTORY, index, 0);
    uint8_t key[BN_TPCC_KEY_MAX];

    (void)bn_tpcc_text(&random, row.data, 12, 24);
    return put(tx, load, BN_TPCC_HISTORY, key, bn_tpcc_key_history(key, BN_TPCC_LOADER, index),
        &row, sizeof(row));
}

static int put_customer(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct bn_tpcc *t = tpcc_of(load);
    uint32_t district = (uint32_t)(index / t->customers);
    struct bn_tpcc_customer row = {.c_id = (uint32_t)(index % t->customers) + 1,
        .w_id = district / BN_TPCC_DISTRICTS + 1,
        .d_id = (uint8_t)(district % BN_TPCC_DISTRICTS + 1),
        .credit_lim = 5000000,
        .balance = -AMOUNT_FIRST,
        .ytd_payment = AMOUNT_FIRST,
        .payment_cnt = 1,
        .since = t->date,
        .middle = "OE"};
    uint64_t random;
    uint8_t key[BN_TPCC_KEY_MAX];

    bn_tpcc_last_name(draw_names(t, row.w_id, row.d_id, row.c_id, row.first, &random), row.last);
    draw_address(&random, &row.address);
    bn_tpcc_digits(&random, row.phone, sizeof(row.phone));
    memcpy(row.credit, bn_below(&random, 10) == 0 ? "BC" : "GC", 2);
    row.discount = bn_tpcc_between(&random, 0, 5000);
    row.data_size = (uint16_t)bn_tpcc_text(&random, row.data, 300, 500);
    int rc = put(tx, load, BN_TPCC_CUSTOMER, key,
        bn_tpcc_key_wdn(key, row.w_id, row.d_id, row.c_id), &row, sizeof(row));
    return rc != 0 ? rc : put_first_history(tx, load, index, &row);
}

static int put_namesakes(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct bn_tpcc *t = tpcc_of(load);
    uint32_t district = (uint32_t)(index / t->names), name = (uint32_t)(index % t->names);
    const uint32_t *first = t->name_first + (size_t)district * (t->names + 1) + name;
    char text[BN_TPCC_NAME_SIZE];
    uint8_t key[BN_TPCC_KEY_MAX];

    bn_tpcc_last_name(name, text);
    return put(tx, load, BN_TPCC_CUSTOMER_NAME, key,
        bn_tpcc_key_name(key, district / BN_TPCC_DISTRICTS + 1, district % BN_TPCC_DISTRICTS + 1,
            text),
        t->namesake + (size_t)district * t->customers + first[0],
        (first[1] - first[0]) * sizeof(uint32_t));
}

/* ---- orders ---- */

static int put_lines(struct cairn_tx *tx, const struct bn_load *load,
    const struct bn_tpcc_order *order, const uint32_t *items, uint64_t *random)
{
    uint8_t key[BN_TPCC_KEY_MAX];
    int rc = 0;

    for (uint32_t i = 0; i < order->ol_cnt && rc == 0; i++) {
        struct bn_tpcc_order_line row = {.o_id = order->o_id,
            .w_id = order->w_id,
            .d_id = order->d_id,
            .number = (uint8_t)(i + 1),
            .i_id = items[i],
            .supply_w_id = order->w_id,
            .quantity = 5};
        if (order->carrier_id != 0)
            row.delivery_d = order->entry_d;
        else
            row.amount = bn_tpcc_between(random, 1, 999999);
        (void)bn_tpcc_text(random, row.dist_info, 24, 24);
        rc = put(tx, load, BN_TPCC_ORDER_LINE, key,
            bn_tpcc_key_line(key, row.w_id, row.d_id, row.o_id, row.number), &row, sizeof(row));
    }
    return rc;
}

static int put_order(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct bn_tpcc *t = tpcc_of(load);
    uint32_t w = (uint32_t)(index / t->customers / BN_TPCC_DISTRICTS) + 1;
    uint32_t d = (uint32_t)(index / t->customers % BN_TPCC_DISTRICTS) + 1;
    uint32_t o = (uint32_t)(index % t->customers) + 1, items[BN_TPCC_LINES_MAX];
    uint64_t random;
    struct bn_tpcc_order row = {.entry_d = t->date,
        .o_id = o,
        .c_id = t->permutation[index],
        .w_id = w,
        .d_id = (uint8_t)d,
        .all_local = 1};
    struct bn_tpcc_customer_order last = {.o_id = o};
    struct bn_tpcc_new_order fresh = {.o_id = o, .w_id = w, .d_id = (uint8_t)d};
    uint8_t key[BN_TPCC_KEY_MAX];

    row.ol_cnt = (uint8_t)bn_tpcc_initial_order(t, w, d, o, items, &random);
    last.ol_cnt = row.ol_cnt;
    if (o <= t->delivered)
        row.carrier_id = (uint8_t)bn_tpcc_between(&random, 1, 10);
    uint32_t size = bn_tpcc_key_wdn(key, w, d, o);
    int rc = put(tx, load, BN_TPCC_ORDERS, key, size, &row, sizeof(row));
    if (rc == 0 && o > t->delivered)
        rc = put(tx, load, BN_TPCC_NEW_ORDER, key, size, &fresh, sizeof(fresh));
    if (rc == 0)
        rc = put_lines(tx, load, &row, items, &random);
    if (rc == 0)
        rc = put(tx, load, BN_TPCC_CUSTOMER_ORDER, key, bn_tpcc_key_wdn(key, w, d, row.c_id), &last,
            sizeof(last));
    return rc;
}

/* ---- what rows of a district have in common ---- */

static void permute(const struct bn_tpcc *t, uint32_t district)
{
    uint32_t *to = t->permutation + (size_t)district * t->customers;
    uint64_t random = random_of(t, BN_TPCC_ORDERS, UINT64_MAX, district);

    for (uint32_t i = 0; i < t->customers; i++) {
        uint32_t j = (uint32_t)bn_below(&random, i + 1);
        to[i] = to[j];
        to[j] = i + 1;
    }
}

/* Customers by last name, then first name. */
static void list_namesakes(const struct bn_tpcc *t, uint32_t district, char (*first_name)[16],
    uint32_t *name)
{
    uint32_t *first = t->name_first + (size_t)district * (t->names + 1);
    uint32_t *to = t->namesake + (size_t)district * t->customers;
    uint64_t random;

    memset(first, 0, (t->names + 1) * sizeof(*first));
    memset(first_name, 0, t->customers * sizeof(*first_name));
    for (uint32_t c = 0; c < t->customers; c++) {
        name[c] = draw_names(t, district / BN_TPCC_DISTRICTS + 1,
            district % BN_TPCC_DISTRICTS + 1, c + 1, first_name[c], &random);
        first[name[c] + 1]++;
    }
    for (uint32_t n = 0; n < t->names; n++)
        first[n + 1] += first[n];
    memset(to, 0, t->customers * sizeof(*to));
    for (uint32_t c = 0; c < t->customers; c++) {
        uint32_t at = first[name[c]];
        while (to[at] != 0 && memcmp(first_name[to[at] - 1], first_name[c], 16) <= 0)
            at++;
        uint32_t moved = c + 1;
        for (; moved != 0; at++) {
            uint32_t next = to[at];
            to[at] = moved;
            moved = next;
        }
    }
}

static int prepare(struct bn_tpcc *t)
{
    size_t districts = bn_tpcc_district_count(t), customers = districts * t->customers;
    char(*first_name)[16] = calloc(t->customers, sizeof(*first_name));
    uint32_t *name = calloc(t->customers, sizeof(*name));

    t->permutation = calloc(customers, sizeof(*t->permutation));
    t->namesake = calloc(customers, sizeof(*t->namesake));
    t->name_first = calloc(districts * (t->names + 1), sizeof(*t->name_first));
    bool ok = first_name != NULL && name != NULL && t->permutation != NULL && t->namesake != NULL &&
        t->name_first != NULL;
    for (uint32_t district = 0; district < districts && ok; district++) {
        permute(t, district);
        list_namesakes(t, district, first_name, name);
    }
    free(first_name);
    free(name);
    if (!ok)
        return cn_fail(-ENOMEM, "tpcc: no memory for the population of %u warehouses",
            t->warehouses);
    for (size_t i = 0; i < districts * (t->names + 1) - 1; i++) {
        if (t->name_first[i + 1] > t->name_first[i] + BN_TPCC_NAMESAKES_MAX)
            return cn_fail(CAIRN_E_LIMIT, "tpcc: more than %u customers of a district have one "
                                          "last name: another --seed, please",
                BN_TPCC_NAMESAKES_MAX);
    }
    return 0;
}

int bn_tpcc_load(struct bn_load *load, struct cairn_ctx *ctx)
{
    struct bn_tpcc *t = (struct bn_tpcc *)load;
    uint64_t districts = bn_tpcc_district_count(t), customers = districts * t->customers;
    const struct bn_fill fills[] = {
        {"items", t->items, 128, put_item},
        {"warehouses", t->warehouses, 2, put_warehouse},
        {"stock", (uint64_t)t->warehouses * t->items, 64, put_stock},
        {"customers", customers, 32, put_customer},
        {"last names", districts * t->names, 128, put_namesakes},
        {"orders", customers, 12, put_order}, /* each at most 18 keys */
    };
    int rc = prepare(t);

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(fills) && rc == 0; i++)
        rc = bn_fill(load, ctx, &fills[i]);
    free(t->permutation);
    free(t->namesake);
    free(t->name_first);
    t->permutation = t->namesake = t->name_first = NULL;
    return rc;
}

uint64_t bn_tpcc_bytes(const struct bn_tpcc *t, uint64_t orders)
{
    uint64_t order = bn_item_bytes(9, sizeof(struct bn_tpcc_order)) +
        LINES_MEAN * bn_item_bytes(10, sizeof(struct bn_tpcc_order_line));
    uint64_t history = bn_item_bytes(12, sizeof(struct bn_tpcc_history));
    uint64_t new_order = bn_item_bytes(9, sizeof(struct bn_tpcc_new_order));
    uint64_t customer = bn_item_bytes(9, sizeof(struct bn_tpcc_customer)) + history +
        bn_item_bytes(9, sizeof(struct bn_tpcc_customer_order)) + order + new_order;
    uint64_t district = bn_item_bytes(5, sizeof(struct bn_tpcc_district)) +
        bn_item_bytes(5, sizeof(struct bn_tpcc_recent_orders)) +
        bn_item_bytes(5, sizeof(struct bn_tpcc_oldest_order)) + t->customers * customer +
        t->names * bn_item_bytes(21, 4 * t->customers / t->names);

    return t->items * bn_item_bytes(4, sizeof(struct bn_tpcc_item)) +
        (uint64_t)t->warehouses * t->items * bn_item_bytes(8, sizeof(struct bn_tpcc_stock)) +
        t->warehouses * bn_item_bytes(4, sizeof(struct bn_tpcc_warehouse)) +
        bn_tpcc_district_count(t) * district + orders * (order + new_order + history);
}
