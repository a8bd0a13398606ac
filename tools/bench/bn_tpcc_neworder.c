/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_neworder.c: TPC-C's new-order transaction (clause 2.4), and the reads and writes that all
 * five share. One trip reads everything: which order it will be is known only then, but nothing
 * that is read depends on it.
 */
#include "tools/bench/bn_tpcc.h"

/* ---- reads and writes of all transactions ---- */

uint8_t *bn_tpcc_ask(
    struct bn_tpcc_slot *s, enum bn_tpcc_table table, void *row, size_t size, bool for_update)
{
    CAIRN_ASSERT(s->read_count < BN_TPCC_READS_MAX);
    uint8_t *key = s->room->key[s->read_count];

    s->room->read[s->read_count] = (struct cairn_read){.key = key,
        .buf = row,
        .buf_size = size,
        .table = s->tpcc->base.table[table],
        .for_update = for_update};
    return key;
}

void bn_tpcc_asked(struct bn_tpcc_slot *s, uint32_t key_size)
{
    s->room->read[s->read_count++].key_size = key_size;
}

int bn_tpcc_read(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    return s->read_count == 0 ? 0 : cairn_get_many(tx, s->room->read, s->read_count);
}

int bn_tpcc_expect(const struct bn_tpcc_slot *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const struct cairn_read *r = &s->room->read[i];
        uint32_t table = 0;
        if (CN_LIKELY(r->status == 0 && r->value_size == r->buf_size))
            continue;
        while (s->tpcc->base.table[table] != r->table)
            table++;
        return cn_fail(CAIRN_E_STATE, "%s: warehouse %u, district %u: a row of %s is %s",
            s->tpcc->base.ops->kinds[s->kind], s->w, s->d, s->tpcc->base.ops->tables[table],
            r->status == CAIRN_E_NOT_FOUND ? "not there" : "none of ours");
    }
    return 0;
}

int bn_tpcc_put(struct cairn_tx *tx, const struct bn_tpcc_slot *s, enum bn_tpcc_table table,
    const uint8_t *key, uint32_t key_size, const void *row, size_t size)
{
    return cairn_put(tx, s->tpcc->base.table[table], key, key_size, row, size);
}

int bn_tpcc_put_back(struct cairn_tx *tx, const struct bn_tpcc_slot *s, uint32_t at)
{
    const struct cairn_read *r = &s->room->read[at];

    return cairn_put(tx, r->table, r->key, r->key_size, r->buf, r->buf_size);
}

/* ---- new-order ---- */

enum { WAREHOUSE, DISTRICT, CUSTOMER, RECENT, LAST, FIRST_ITEM }; /* in the order of reads */

struct work {
    struct bn_tpcc_warehouse warehouse;
    struct bn_tpcc_district district;
    struct bn_tpcc_customer customer;
    struct bn_tpcc_recent_orders recent;
    struct bn_tpcc_customer_order last;
    struct bn_tpcc_item item[BN_TPCC_LINES_MAX];
    struct bn_tpcc_stock stock[BN_TPCC_LINES_MAX];
    /* Lines may name an item, and its stock, twice: read once, at the first of them. */
    uint8_t item_of[BN_TPCC_LINES_MAX], stock_of[BN_TPCC_LINES_MAX];
    uint8_t stock_read[BN_TPCC_LINES_MAX]; /* where in the room's reads */
    uint32_t o_id;
    /* What the customer is told: brand or generic, and the sum in cents. */
    char brand[BN_TPCC_LINES_MAX];
    int64_t total;
};
_Static_assert(sizeof(struct work) <= BN_TPCC_WORK_SIZE, "it fits in a slot");

static void find_doubles(const struct bn_tpcc_slot *s, struct work *work)
{
    const struct bn_tpcc_line *line = s->u.new_order.line;

    for (uint8_t i = 0; i < s->u.new_order.ol_cnt; i++) {
        uint8_t j = 0;
        while (line[j].i_id != line[i].i_id)
            j++;
        work->item_of[i] = j;
        for (; line[j].i_id != line[i].i_id || line[j].supply_w_id != line[i].supply_w_id;)
            j++;
        work->stock_of[i] = j;
    }
}

static void ask_lines(struct bn_tpcc_slot *s, struct work *work)
{
    for (uint32_t i = 0; i < s->u.new_order.ol_cnt; i++) {
        const struct bn_tpcc_line *line = &s->u.new_order.line[i];
        if (work->item_of[i] == i)
            bn_tpcc_asked(s,
                bn_tpcc_key_w(bn_tpcc_ask(s, BN_TPCC_ITEM, &work->item[i], sizeof(work->item[i]),
                                  false),
                    line->i_id));
        if (work->stock_of[i] != i || line->i_id > s->tpcc->items)
            continue; /* an unused item has no stock */
        work->stock_read[i] = (uint8_t)s->read_count;
        bn_tpcc_asked(s,
            bn_tpcc_key_stock(bn_tpcc_ask(s, BN_TPCC_STOCK, &work->stock[i],
                                  sizeof(work->stock[i]), true),
                line->supply_w_id, line->i_id));
    }
}

/* 0, or BN_REFUSED: there is no such item, which is what the last line may be for. */
static int read_all(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct work *work)
{
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_w(bn_tpcc_ask(s, BN_TPCC_WAREHOUSE, &work->warehouse, sizeof(work->warehouse),
                          false),
            s->w));
    bn_tpcc_asked(s,
        bn_tpcc_key_wd(
            bn_tpcc_ask(s, BN_TPCC_DISTRICT, &work->district, sizeof(work->district), true), s->w,
            s->d));
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(
            bn_tpcc_ask(s, BN_TPCC_CUSTOMER, &work->customer, sizeof(work->customer), false), s->w,
            s->d, s->who.c));
    bn_tpcc_asked(s,
        bn_tpcc_key_wd(
            bn_tpcc_ask(s, BN_TPCC_RECENT_ORDERS, &work->recent, sizeof(work->recent), true), s->w,
            s->d));
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(
            bn_tpcc_ask(s, BN_TPCC_CUSTOMER_ORDER, &work->last, sizeof(work->last), true), s->w,
            s->d, s->who.c));
    ask_lines(s, work);
    int rc = bn_tpcc_read(tx, s);
    if (rc != 0)
        return rc;
    uint32_t found = s->read_count - s->u.new_order.unused_item; /* its item was asked for last */
    rc = bn_tpcc_expect(s, 0, found);
    if (rc != 0 || !s->u.new_order.unused_item)
        return rc;
    return s->room->read[found].status == CAIRN_E_NOT_FOUND
        ? BN_REFUSED
        : cn_fail(CAIRN_E_STATE, "new_order: there is an item %u, which should be unused",
              s->tpcc->items + 1);
}

static bool all_local(const struct bn_tpcc_slot *s)
{
    for (uint32_t i = 0; i < s->u.new_order.ol_cnt; i++) {
        if (s->u.new_order.line[i].supply_w_id != s->w)
            return false;
    }
    return true;
}

static int put_order(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct work *work)
{
    const struct bn_tpcc_order order = {.entry_d = s->date,
        .o_id = work->o_id,
        .c_id = s->who.c,
        .w_id = s->w,
        .d_id = (uint8_t)s->d,
        .ol_cnt = (uint8_t)s->u.new_order.ol_cnt,
        .all_local = all_local(s)};
    const struct bn_tpcc_new_order fresh = {
        .o_id = work->o_id, .w_id = s->w, .d_id = (uint8_t)s->d};
    uint8_t key[BN_TPCC_KEY_MAX];
    uint32_t size = bn_tpcc_key_wdn(key, s->w, s->d, work->o_id);

    int rc = bn_tpcc_put(tx, s, BN_TPCC_ORDERS, key, size, &order, sizeof(order));
    if (rc == 0)
        rc = bn_tpcc_put(tx, s, BN_TPCC_NEW_ORDER, key, size, &fresh, sizeof(fresh));
    work->district.next_o_id = work->o_id + 1;
    if (rc == 0)
        rc = bn_tpcc_put_back(tx, s, DISTRICT);
    work->last = (struct bn_tpcc_customer_order){.o_id = work->o_id, .ol_cnt = order.ol_cnt};
    if (rc == 0)
        rc = bn_tpcc_put_back(tx, s, LAST);
    work->recent.next_o_id = work->o_id + 1;
    work->recent.ol_cnt[work->o_id % BN_TPCC_RECENT] = order.ol_cnt;
    for (uint32_t i = 0; i < order.ol_cnt; i++)
        work->recent.i_id[work->o_id % BN_TPCC_RECENT][i] = s->u.new_order.line[i].i_id;
    return rc != 0 ? rc : bn_tpcc_put_back(tx, s, RECENT);
}

static void take_from_stock(
    struct bn_tpcc_stock *stock, const struct bn_tpcc_line *line, uint32_t home)
{
    stock->quantity -= line->quantity;
    if (stock->quantity < 10)
        stock->quantity += 91;
    stock->ytd += line->quantity;
    stock->order_cnt++;
    stock->remote_cnt += line->supply_w_id != home;
}

static bool is_original(const char data[50])
{
    return memmem(data, 50, "ORIGINAL", 8) != NULL;
}

static int put_line(struct cairn_tx *tx, struct bn_tpcc_slot *s, struct work *work, uint32_t i)
{
    const struct bn_tpcc_line *line = &s->u.new_order.line[i];
    struct bn_tpcc_stock *stock = &work->stock[work->stock_of[i]];
    struct bn_tpcc_order_line row = {
        .amount = (int64_t)line->quantity * work->item[work->item_of[i]].price,
        .o_id = work->o_id,
        .w_id = s->w,
        .i_id = line->i_id,
        .supply_w_id = line->supply_w_id,
        .d_id = (uint8_t)s->d,
        .number = (uint8_t)(i + 1),
        .quantity = line->quantity};
    uint8_t key[BN_TPCC_KEY_MAX];

    take_from_stock(stock, line, s->w);
    memcpy(row.dist_info, stock->dist[s->d - 1], sizeof(row.dist_info));
    work->total += row.amount;
    work->brand[i] =
        is_original(work->item[work->item_of[i]].data) && is_original(stock->data) ? 'B' : 'G';
    return bn_tpcc_put(tx, s, BN_TPCC_ORDER_LINE, key,
        bn_tpcc_key_line(key, s->w, s->d, work->o_id, i + 1), &row, sizeof(row));
}

int bn_tpcc_new_order(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    struct work *work = (struct work *)s->room->work;
    uint32_t count = s->u.new_order.ol_cnt;

    find_doubles(s, work);
    int rc = read_all(tx, s, work);
    if (rc != 0)
        return rc;
    if (work->district.next_o_id != work->recent.next_o_id) /* both are locked */
        return cn_fail(CAIRN_E_STATE,
            "district %u.%u: its next order is %u, but that of its recent ones %u", s->w, s->d,
            work->district.next_o_id, work->recent.next_o_id);
    work->o_id = work->district.next_o_id;
    work->total = 0;
    rc = put_order(tx, s, work);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = put_line(tx, s, work, i);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (work->stock_of[i] == i)
            rc = bn_tpcc_put_back(tx, s, work->stock_read[i]);
    }
    work->total = work->total * (10000 - work->customer.discount) / 10000 *
        (10000 + work->warehouse.tax + work->district.tax) / 10000;
    return rc;
}
