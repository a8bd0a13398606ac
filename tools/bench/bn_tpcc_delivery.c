/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_delivery.c: TPC-C's transactions about a warehouse's orders: delivery (clause 2.7), which
 * is one transaction over all ten districts, and stock-level (clause 2.8).
 *
 * Delivery finds the oldest new order of each district through oldest_order, and stock-level the
 * items of the last 20 orders through recent_orders. Stock-level needs the stock of some 190 items,
 * at most 300, and a transaction has at most CAIRN_TX_KEYS_MAX keys: what does not fit is looked at
 * by a transaction of its own (bn_tpcc_rest). The specification asks no more of stock-level than
 * that all it reads is committed.
 */
#include "tools/bench/bn_tpcc.h"

/* ---- delivery ---- */

struct delivery_work {
    struct bn_tpcc_oldest_order oldest[BN_TPCC_DISTRICTS];
    struct bn_tpcc_new_order fresh[BN_TPCC_DISTRICTS];
    struct bn_tpcc_order order[BN_TPCC_DISTRICTS];
    struct bn_tpcc_customer customer[BN_TPCC_DISTRICTS];
    struct bn_tpcc_order_line line[BN_TPCC_DISTRICTS][BN_TPCC_LINES_MAX];
};
_Static_assert(sizeof(struct delivery_work) <= BN_TPCC_WORK_SIZE, "it fits in a slot");

static int read_oldest(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct delivery_work *work)
{
    s->read_count = 0;
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++)
        bn_tpcc_asked(s,
            bn_tpcc_key_wd(bn_tpcc_ask(s, BN_TPCC_OLDEST_ORDER, &work->oldest[d],
                               sizeof(work->oldest[d]), true),
                s->w, d + 1));
    int rc = bn_tpcc_read(tx, s);
    return rc != 0 ? rc : bn_tpcc_expect(s, 0, s->read_count);
}

/* Read the new orders; a district without one is passed over. */
static int read_orders(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct delivery_work *work)
{
    int rc;

    s->read_count = 0;
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++) {
        bn_tpcc_asked(s,
            bn_tpcc_key_wdn(bn_tpcc_ask(s, BN_TPCC_NEW_ORDER, &work->fresh[d],
                                sizeof(work->fresh[d]), true),
                s->w, d + 1, work->oldest[d].o_id));
        bn_tpcc_asked(s,
            bn_tpcc_key_wdn(bn_tpcc_ask(s, BN_TPCC_ORDERS, &work->order[d], sizeof(work->order[d]),
                                true),
                s->w, d + 1, work->oldest[d].o_id));
    }
    rc = bn_tpcc_read(tx, s);
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS && rc == 0; d++) {
        s->u.delivery.done[d] = s->room->read[2 * d].status == 0;
        if (!s->u.delivery.done[d])
            continue;
        rc = bn_tpcc_expect(s, 2 * d, 2 * d + 2);
        if (rc == 0 && work->order[d].ol_cnt > BN_TPCC_LINES_MAX)
            rc = cn_fail(CAIRN_E_STATE, "order %u.%u.%u has %u lines", s->w, d + 1,
                work->oldest[d].o_id, work->order[d].ol_cnt);
    }
    return rc;
}

/* Put the orders, while their keys are known, and ask for what is next. */
static int deliver_orders(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct delivery_work *work)
{
    uint8_t key[BN_TPCC_KEY_MAX];
    int rc = 0;

    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS && rc == 0; d++) {
        if (!s->u.delivery.done[d])
            continue;
        work->order[d].carrier_id = s->u.delivery.carrier_id;
        rc = cairn_delete(tx, s->room->read[2 * d].table, s->room->read[2 * d].key,
            s->room->read[2 * d].key_size);
        if (rc == 0)
            rc = bn_tpcc_put_back(tx, s, 2 * d + 1);
        work->oldest[d].o_id++;
        if (rc == 0)
            rc = bn_tpcc_put(tx, s, BN_TPCC_OLDEST_ORDER, key, bn_tpcc_key_wd(key, s->w, d + 1),
                &work->oldest[d], sizeof(work->oldest[d]));
    }
    return rc;
}

static int read_lines(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct delivery_work *work)
{
    s->read_count = 0;
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++) {
        const struct bn_tpcc_order *order = &work->order[d];
        if (!s->u.delivery.done[d])
            continue;
        bn_tpcc_asked(s,
            bn_tpcc_key_wdn(bn_tpcc_ask(s, BN_TPCC_CUSTOMER, &work->customer[d],
                                sizeof(work->customer[d]), true),
                s->w, d + 1, order->c_id));
        for (uint32_t i = 0; i < order->ol_cnt; i++)
            bn_tpcc_asked(s,
                bn_tpcc_key_line(bn_tpcc_ask(s, BN_TPCC_ORDER_LINE, &work->line[d][i],
                                     sizeof(work->line[d][i]), true),
                    s->w, d + 1, order->o_id, i + 1));
    }
    int rc = bn_tpcc_read(tx, s);
    return rc != 0 ? rc : bn_tpcc_expect(s, 0, s->read_count);
}

static void deliver_lines(struct bn_tpcc_slot *s, struct delivery_work *work)
{
    s->u.delivery.amount = 0;
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++) {
        int64_t sum = 0;
        if (!s->u.delivery.done[d])
            continue;
        for (uint32_t i = 0; i < work->order[d].ol_cnt; i++) {
            work->line[d][i].delivery_d = s->date;
            sum += work->line[d][i].amount;
        }
        work->customer[d].balance += sum;
        work->customer[d].delivery_cnt++;
        s->u.delivery.amount += sum;
    }
}

int bn_tpcc_delivery(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    struct delivery_work *work = (struct delivery_work *)s->room->work;
    int rc = read_oldest(tx, s, work);

    if (rc == 0)
        rc = read_orders(tx, s, work);
    if (rc == 0)
        rc = deliver_orders(tx, s, work);
    if (rc == 0)
        rc = read_lines(tx, s, work);
    if (rc != 0)
        return rc;
    deliver_lines(s, work);
    for (uint32_t i = 0; i < s->read_count && rc == 0; i++)
        rc = bn_tpcc_put_back(tx, s, i);
    return rc;
}

/* ---- stock-level ---- */

#define ITEMS_MAX (BN_TPCC_RECENT * BN_TPCC_LINES_MAX)
#define ITEMS_PER_TX (CAIRN_TX_KEYS_MAX - 2) /* the district, its recent orders */
#define SET_SIZE 1024u
_Static_assert(ITEMS_MAX - ITEMS_PER_TX <= BN_TPCC_REST_MAX, "the rest fits");

struct stock_work {
    struct bn_tpcc_district district;
    struct bn_tpcc_recent_orders recent;
    uint32_t set[SET_SIZE];
    uint32_t item_count, item[ITEMS_MAX]; /* each once */
    struct bn_tpcc_stock stock[ITEMS_PER_TX];
};
_Static_assert(sizeof(struct stock_work) <= BN_TPCC_WORK_SIZE, "it fits in a slot");

static void add_item(struct stock_work *work, uint32_t item)
{
    uint32_t at = (uint32_t)cn_mix64(item) % SET_SIZE;

    while (work->set[at] != 0 && work->set[at] != item)
        at = (at + 1) % SET_SIZE;
    if (work->set[at] == item)
        return;
    work->set[at] = item;
    work->item[work->item_count++] = item;
}

static int read_items(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct stock_work *work)
{
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_wd(
            bn_tpcc_ask(s, BN_TPCC_DISTRICT, &work->district, sizeof(work->district), false), s->w,
            s->d));
    bn_tpcc_asked(s,
        bn_tpcc_key_wd(
            bn_tpcc_ask(s, BN_TPCC_RECENT_ORDERS, &work->recent, sizeof(work->recent), false),
            s->w, s->d));
    int rc = bn_tpcc_read(tx, s);
    if (rc == 0)
        rc = bn_tpcc_expect(s, 0, s->read_count);
    if (rc != 0)
        return rc;
    if (work->district.next_o_id != work->recent.next_o_id)
        return CAIRN_E_CONFLICT; /* a new order came between the two reads */
    memset(work->set, 0, sizeof(work->set));
    work->item_count = 0;
    for (uint32_t o = 0; o < BN_TPCC_RECENT; o++) {
        for (uint32_t i = 0; i < work->recent.ol_cnt[o] && i < BN_TPCC_LINES_MAX; i++)
            add_item(work, work->recent.i_id[o][i]);
    }
    return 0;
}

int bn_tpcc_stock_level(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    struct stock_work *work = (struct stock_work *)s->room->work;
    const struct bn_tpcc_rest *rest = &s->u.stock_level.rest;
    int rc = 0;

    if (s->u.stock_level.is_rest) {
        work->item_count = rest->count;
        memcpy(work->item, rest->item, rest->count * sizeof(rest->item[0]));
    } else
        rc = read_items(tx, s, work);
    if (rc != 0)
        return rc;
    uint32_t count = (uint32_t)cn_min64(work->item_count, ITEMS_PER_TX);
    s->read_count = 0;
    for (uint32_t i = 0; i < count; i++)
        bn_tpcc_asked(s,
            bn_tpcc_key_stock(
                bn_tpcc_ask(s, BN_TPCC_STOCK, &work->stock[i], sizeof(work->stock[i]), false),
                rest->w, work->item[i]));
    rc = bn_tpcc_read(tx, s);
    if (rc == 0)
        rc = bn_tpcc_expect(s, 0, s->read_count);
    s->u.stock_level.low = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        s->u.stock_level.low += work->stock[i].quantity < (int32_t)rest->threshold;
    s->u.stock_level.left_count = work->item_count - count;
    memcpy(s->u.stock_level.left, work->item + count,
        s->u.stock_level.left_count * sizeof(work->item[0]));
    return rc;
}
