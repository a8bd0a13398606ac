/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_check_district.c: what must hold of each district when TPC-C has run: consistency
 * conditions 2, 3 and 4 (clauses 3.3.2.2 to 3.3.2.4), the ledger's counts of orders, lines and
 * deliveries, and that the tables which the application maintains say what the orders do.
 *
 * Without a scan by order rows are counted by asking for their keys: up to PROBE orders beyond the
 * next one, and all 15 lines of each order.
 */
#include <errno.h>
#include <inttypes.h>

#include "tools/bench/bn_tpcc.h"

#define PROBE 10u

struct district {
    const struct bn_tpcc *t;
    uint32_t w, d;
    struct bn_tpcc_district row;
    struct bn_tpcc_oldest_order oldest;
    struct bn_tpcc_recent_orders recent;
    /* Counted: */
    uint64_t orders, new_orders, lines, ol_cnt;
    uint32_t order_max, new_order_min, new_order_max;
    struct bn_tpcc_customer_order *last; /* of each customer, by the orders */
    uint32_t wrong_recent;               /* lines of recent orders with another item */
    uint32_t wrong_last;                 /* customers of which another order is the last */
};

static int fail(const struct district *look, const char *what, uint64_t is, uint64_t due)
{
    return cn_fail(CAIRN_E_STATE, "district %u.%u: %s: %" PRIu64 ", should be %" PRIu64, look->w,
        look->d, what, is, due);
}

/* ---- the district and what is kept of it ---- */

static void district_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    const struct district *look = arg;

    (void)index;
    (void)bn_tpcc_key_wd(ret_key, look->w, look->d);
}

static int take_row(
    const struct district *look, const char *table, void *to, size_t due, const void *value,
    size_t size)
{
    if (value == NULL || size != due)
        return cn_fail(CAIRN_E_STATE, "district %u.%u: its row of %s is gone, or is none of ours",
            look->w, look->d, table);
    memcpy(to, value, due);
    return 0;
}

static int take_district(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;

    (void)index;
    return take_row(look, "district", &look->row, sizeof(look->row), value, size);
}

static int take_oldest(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;

    (void)index;
    return take_row(look, "oldest_order", &look->oldest, sizeof(look->oldest), value, size);
}

static int take_recent(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;

    (void)index;
    return take_row(look, "recent_orders", &look->recent, sizeof(look->recent), value, size);
}

/* ---- orders ---- */

static void order_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    const struct district *look = arg;

    (void)bn_tpcc_key_wdn(ret_key, look->w, look->d, (uint32_t)index + 1);
}

static int take_order(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;
    struct bn_tpcc_order row;

    if (value == NULL)
        return 0;
    if (size != sizeof(row))
        return fail(look, "an order that is none of ours", index + 1, 0);
    memcpy(&row, value, sizeof(row));
    if (row.c_id < 1 || row.c_id > look->t->customers)
        return fail(look, "the customer of an order", row.c_id, look->t->customers);
    look->orders++;
    look->order_max = (uint32_t)index + 1;
    look->ol_cnt += row.ol_cnt;
    look->last[row.c_id - 1] =
        (struct bn_tpcc_customer_order){.o_id = row.o_id, .ol_cnt = row.ol_cnt};
    return 0;
}

static int take_new_order(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;

    (void)size;
    if (value == NULL)
        return 0;
    if (look->new_orders++ == 0)
        look->new_order_min = (uint32_t)index + 1;
    look->new_order_max = (uint32_t)index + 1;
    return 0;
}

static void line_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    const struct district *look = arg;

    (void)bn_tpcc_key_line(ret_key, look->w, look->d, (uint32_t)(index / BN_TPCC_LINES_MAX) + 1,
        (uint32_t)(index % BN_TPCC_LINES_MAX) + 1);
}

static int take_line(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;
    uint32_t o = (uint32_t)(index / BN_TPCC_LINES_MAX) + 1;
    uint32_t at = (uint32_t)(index % BN_TPCC_LINES_MAX), recent = o % BN_TPCC_RECENT;
    struct bn_tpcc_order_line row = {.i_id = 0};

    if (value != NULL && size != sizeof(row))
        return fail(look, "an order line that is none of ours", index, 0);
    if (value != NULL)
        memcpy(&row, value, sizeof(row));
    look->lines += value != NULL;
    if (o >= look->row.next_o_id || o + BN_TPCC_RECENT < look->row.next_o_id)
        return 0;
    if ((at < look->recent.ol_cnt[recent]) != (value != NULL) ||
        (value != NULL && look->recent.i_id[recent][at] != row.i_id))
        look->wrong_recent++;
    return 0;
}

static void customer_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    order_key(arg, index, ret_key); /* made the same way */
}

static int take_customer_order(void *arg, uint64_t index, const void *value, size_t size)
{
    struct district *look = arg;

    if (value == NULL || size != sizeof(look->last[index]) ||
        memcmp(value, &look->last[index], size) != 0)
        look->wrong_last++;
    return 0;
}

/* ---- what must hold ---- */

static int check_conditions(const struct district *look)
{
    uint32_t last = look->row.next_o_id - 1;

    if (look->order_max != last)
        return fail(look, "condition 2: the highest O_ID against D_NEXT_O_ID - 1", look->order_max,
            last);
    if (look->new_orders != 0 && look->new_order_max != last)
        return fail(look, "condition 2: the highest NO_O_ID against D_NEXT_O_ID - 1",
            look->new_order_max, last);
    if (look->new_orders != 0 &&
        look->new_order_max - look->new_order_min + 1 != look->new_orders)
        return fail(look, "condition 3: rows of NEW-ORDER against its highest - lowest + 1",
            look->new_orders, look->new_order_max - look->new_order_min + 1);
    if (look->ol_cnt != look->lines)
        return fail(look, "condition 4: rows of ORDER-LINE against the sum of O_OL_CNT",
            look->lines, look->ol_cnt);
    return 0;
}

static int check_ledger(const struct district *look)
{
    const struct bn_tpcc *t = look->t;
    struct bn_tpcc_count count;
    uint32_t items[BN_TPCC_LINES_MAX];
    uint64_t lines = 0, random;

    bn_tpcc_sum(t, bn_tpcc_district_index(look->w, look->d), &count);
    for (uint32_t o = 1; o <= t->customers; o++)
        lines += bn_tpcc_initial_order(t, look->w, look->d, o, items, &random);
    if (look->row.next_o_id - 1 != t->customers + count.new_orders)
        return fail(look, "D_NEXT_O_ID - 1 against the orders that have committed",
            look->row.next_o_id - 1, t->customers + count.new_orders);
    if (look->orders != t->customers + count.new_orders)
        return fail(look, "rows of ORDER against those that have committed", look->orders,
            t->customers + count.new_orders);
    if (look->lines != lines + count.lines)
        return fail(look, "rows of ORDER-LINE against those that have committed", look->lines,
            lines + count.lines);
    if (look->new_orders != t->customers - t->delivered + count.new_orders - count.delivered)
        return fail(look, "rows of NEW-ORDER against what has committed", look->new_orders,
            t->customers - t->delivered + count.new_orders - count.delivered);
    return 0;
}

static int check_kept(const struct district *look)
{
    uint32_t oldest = look->new_orders != 0 ? look->new_order_min : look->row.next_o_id;

    if (look->oldest.o_id != oldest)
        return fail(look, "oldest_order", look->oldest.o_id, oldest);
    if (look->recent.next_o_id != look->row.next_o_id)
        return fail(look, "recent_orders: next order", look->recent.next_o_id, look->row.next_o_id);
    if (look->wrong_recent != 0)
        return fail(
            look, "recent_orders: lines that differ from ORDER-LINE", look->wrong_recent, 0);
    if (look->wrong_last != 0)
        return fail(look, "customer_order: customers with another last order", look->wrong_last, 0);
    return 0;
}

static int read_district(struct district *look, struct cairn_ctx *ctx)
{
    const struct bn_load *load = &look->t->base;
    const struct bn_scan rows[] = {
        {"district", 1, load->table[BN_TPCC_DISTRICT], 5, sizeof(look->row), district_key,
            take_district, look},
        {"oldest order", 1, load->table[BN_TPCC_OLDEST_ORDER], 5, sizeof(look->oldest),
            district_key, take_oldest, look},
        {"recent orders", 1, load->table[BN_TPCC_RECENT_ORDERS], 5, sizeof(look->recent),
            district_key, take_recent, look},
    };
    int rc = 0;

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(rows) && rc == 0; i++)
        rc = bn_scan(load, ctx, &rows[i]);
    if (rc != 0)
        return rc;
    uint64_t count = (uint64_t)look->row.next_o_id - 1 + PROBE;
    const struct bn_scan scans[] = {
        {"orders", count, load->table[BN_TPCC_ORDERS], 9, sizeof(struct bn_tpcc_order), order_key,
            take_order, look},
        {"new orders", count, load->table[BN_TPCC_NEW_ORDER], 9, sizeof(struct bn_tpcc_new_order),
            order_key, take_new_order, look},
        {"order lines", count * BN_TPCC_LINES_MAX, load->table[BN_TPCC_ORDER_LINE], 10,
            sizeof(struct bn_tpcc_order_line), line_key, take_line, look},
        {"last orders", look->t->customers, load->table[BN_TPCC_CUSTOMER_ORDER], 9,
            sizeof(struct bn_tpcc_customer_order), customer_key, take_customer_order, look},
    };
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(scans) && rc == 0; i++)
        rc = bn_scan(load, ctx, &scans[i]);
    return rc;
}

int bn_tpcc_check_districts(struct bn_tpcc *t, struct cairn_ctx *ctx, uint64_t *checked)
{
    struct bn_tpcc_customer_order *last = calloc(t->customers, sizeof(*last));
    int rc = last == NULL ? cn_fail(-ENOMEM, "tpcc: no memory for the check") : 0;

    for (uint32_t i = 0; i < bn_tpcc_district_count(t) && rc == 0; i++) {
        struct district look = {
            .t = t, .w = i / BN_TPCC_DISTRICTS + 1, .d = i % BN_TPCC_DISTRICTS + 1, .last = last};
        rc = read_district(&look, ctx);
        if (rc == 0)
            rc = check_conditions(&look);
        if (rc == 0)
            rc = check_ledger(&look);
        if (rc == 0)
            rc = check_kept(&look);
        /* Four parts of conditions 2 to 4, four counts, three of what is kept, and each
         * customer's last order. */
        *checked += 11 + t->customers;
    }
    free(last);
    return rc;
}
