/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_check.c: what must hold when TPC-C has run, over warehouses, stock, customers and
 * history: consistency condition 1 (clause 3.3.2.1), and that the sums of all rows are what the
 * committed transactions of the ledgers add up to. The districts' part: bn_tpcc_check_district.c.
 */
#include <errno.h>
#include <inttypes.h>

#include "tools/bench/bn_tpcc.h"

#define AMOUNT_FIRST 1000 /* cents: of each customer's first payment */

static const struct bn_tpcc_worker *worker_of(const struct bn_tpcc *t, uint32_t at)
{
    return t->base.worker[at];
}

void bn_tpcc_sum(const struct bn_tpcc *t, uint32_t district, struct bn_tpcc_count *ret)
{
    struct bn_tpcc_count sum = {0};

    for (uint32_t i = 0; i < t->base.threads; i++) {
        const struct bn_tpcc_count *one = &worker_of(t, i)->district[district];
        sum.new_orders += one->new_orders;
        sum.lines += one->lines;
        sum.delivered += one->delivered;
        sum.payments += one->payments;
        sum.paid += one->paid;
    }
    *ret = sum;
}

static int gone(const char *what, uint64_t index)
{
    return cn_fail(CAIRN_E_STATE, "%s %" PRIu64 " is gone, or is none of ours", what, index + 1);
}

static int differ(const char *what, int64_t is, int64_t due)
{
    return is == due ? 0
                     : cn_fail(CAIRN_E_STATE,
                           "%s: %" PRId64 ", but what has committed adds up to %" PRId64, what, is,
                           due);
}

/* ---- warehouses ---- */

struct warehouses {
    const struct bn_tpcc *t;
    int64_t *warehouse, *district; /* W_YTD and D_YTD of each */
};

static void warehouse_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    (void)bn_tpcc_key_w(ret_key, (uint32_t)index + 1);
}

static int take_warehouse(void *arg, uint64_t index, const void *value, size_t size)
{
    struct warehouses *look = arg;
    struct bn_tpcc_warehouse row;

    if (value == NULL || size != sizeof(row))
        return gone("warehouse", index);
    memcpy(&row, value, sizeof(row));
    look->warehouse[index] = row.ytd;
    return 0;
}

static void district_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    (void)bn_tpcc_key_wd(ret_key, (uint32_t)(index / BN_TPCC_DISTRICTS) + 1,
        (uint32_t)(index % BN_TPCC_DISTRICTS) + 1);
}

static int take_district(void *arg, uint64_t index, const void *value, size_t size)
{
    struct warehouses *look = arg;
    struct bn_tpcc_district row;

    if (value == NULL || size != sizeof(row))
        return gone("district", index);
    memcpy(&row, value, sizeof(row));
    look->district[index] = row.ytd;
    return 0;
}

/* Condition 1, and both sides of it against the ledger. */
static int check_warehouse(const struct warehouses *look, uint32_t at)
{
    int64_t sum = 0, first = (int64_t)look->t->customers * AMOUNT_FIRST;
    int64_t due = first * BN_TPCC_DISTRICTS;
    struct bn_tpcc_count count;

    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++)
        sum += look->district[at * BN_TPCC_DISTRICTS + d];
    if (look->warehouse[at] != sum)
        return cn_fail(CAIRN_E_STATE,
            "condition 1: warehouse %u: W_YTD is %" PRId64 ", but its D_YTD add up to %" PRId64,
            at + 1, look->warehouse[at], sum);
    for (uint32_t d = 0; d < BN_TPCC_DISTRICTS; d++) {
        bn_tpcc_sum(look->t, at * BN_TPCC_DISTRICTS + d, &count);
        due += count.paid;
        if (look->district[at * BN_TPCC_DISTRICTS + d] != first + count.paid)
            return cn_fail(CAIRN_E_STATE,
                "district %u.%u: D_YTD is %" PRId64 ", but the committed payments make %" PRId64,
                at + 1, d + 1, look->district[at * BN_TPCC_DISTRICTS + d], first + count.paid);
    }
    if (look->warehouse[at] != due)
        return cn_fail(CAIRN_E_STATE,
            "warehouse %u: W_YTD is %" PRId64 ", but the committed payments make %" PRId64, at + 1,
            look->warehouse[at], due);
    return 0;
}

static int check_warehouses(struct bn_tpcc *t, struct cairn_ctx *ctx, uint64_t *checked)
{
    uint32_t count = bn_tpcc_district_count(t);
    struct warehouses look = {.t = t,
        .warehouse = calloc(t->warehouses, sizeof(int64_t)),
        .district = calloc(count, sizeof(int64_t))};
    const struct bn_scan warehouses = {"warehouses", t->warehouses,
        t->base.table[BN_TPCC_WAREHOUSE], 4, sizeof(struct bn_tpcc_warehouse), warehouse_key,
        take_warehouse, &look};
    const struct bn_scan districts = {"districts", count, t->base.table[BN_TPCC_DISTRICT], 5,
        sizeof(struct bn_tpcc_district), district_key, take_district, &look};
    int rc = look.warehouse == NULL || look.district == NULL
        ? cn_fail(-ENOMEM, "tpcc: no memory for the check")
        : bn_scan(&t->base, ctx, &warehouses);

    if (rc == 0)
        rc = bn_scan(&t->base, ctx, &districts);
    for (uint32_t i = 0; i < t->warehouses && rc == 0; i++)
        rc = check_warehouse(&look, i);
    free(look.warehouse);
    free(look.district);
    *checked += (uint64_t)t->warehouses * 2 + count;
    return rc;
}

/* ---- stock, customers, history: sums over all rows ---- */

struct sums {
    const struct bn_tpcc *t;
    int64_t ytd, order_cnt, remote_cnt;                                /* stock */
    int64_t balance, ytd_payment, payment_cnt, delivery_cnt;           /* customers */
    int64_t histories, amount;                                         /* history, of the run */
    uint32_t worker;
};

static void stock_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    uint32_t items = ((const struct sums *)arg)->t->items;

    (void)bn_tpcc_key_stock(ret_key, (uint32_t)(index / items) + 1, (uint32_t)(index % items) + 1);
}

static int take_stock(void *arg, uint64_t index, const void *value, size_t size)
{
    struct sums *sums = arg;
    struct bn_tpcc_stock row;

    if (value == NULL || size != sizeof(row))
        return gone("stock", index);
    memcpy(&row, value, sizeof(row));
    sums->ytd += row.ytd;
    sums->order_cnt += row.order_cnt;
    sums->remote_cnt += row.remote_cnt;
    return 0;
}

static void customer_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    uint32_t customers = ((const struct sums *)arg)->t->customers;
    uint32_t district = (uint32_t)(index / customers);

    (void)bn_tpcc_key_wdn(ret_key, district / BN_TPCC_DISTRICTS + 1,
        district % BN_TPCC_DISTRICTS + 1, (uint32_t)(index % customers) + 1);
}

static int take_customer(void *arg, uint64_t index, const void *value, size_t size)
{
    struct sums *sums = arg;
    struct bn_tpcc_customer row;

    if (value == NULL || size != sizeof(row))
        return gone("customer", index);
    memcpy(&row, value, sizeof(row));
    sums->balance += row.balance;
    sums->ytd_payment += row.ytd_payment;
    sums->payment_cnt += row.payment_cnt;
    sums->delivery_cnt += row.delivery_cnt;
    return 0;
}

static void history_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)bn_tpcc_key_history(ret_key, ((const struct sums *)arg)->worker, index);
}

static int take_history(void *arg, uint64_t index, const void *value, size_t size)
{
    struct sums *sums = arg;
    struct bn_tpcc_history row;

    if (value == NULL)
        return 0; /* it did not commit */
    if (size != sizeof(row))
        return gone("history", index);
    memcpy(&row, value, sizeof(row));
    sums->histories++;
    sums->amount += row.amount;
    return 0;
}

static int read_sums(struct bn_tpcc *t, struct cairn_ctx *ctx, struct sums *sums)
{
    uint64_t customers = (uint64_t)bn_tpcc_district_count(t) * t->customers;
    const struct bn_scan stock = {"stock", (uint64_t)t->warehouses * t->items,
        t->base.table[BN_TPCC_STOCK], 8, sizeof(struct bn_tpcc_stock), stock_key, take_stock, sums};
    const struct bn_scan customer = {"customers", customers, t->base.table[BN_TPCC_CUSTOMER], 9,
        sizeof(struct bn_tpcc_customer), customer_key, take_customer, sums};
    int rc = bn_scan(&t->base, ctx, &stock);

    if (rc == 0)
        rc = bn_scan(&t->base, ctx, &customer);
    for (sums->worker = 0; sums->worker < t->base.threads && rc == 0; sums->worker++) {
        const struct bn_scan history = {"history", worker_of(t, sums->worker)->histories,
            t->base.table[BN_TPCC_HISTORY], 12, sizeof(struct bn_tpcc_history), history_key,
            take_history, sums};
        rc = bn_scan(&t->base, ctx, &history);
    }
    return rc;
}

/* What the ledgers say that the sums must be. */
static void add_up(const struct bn_tpcc *t, struct sums *ret)
{
    int64_t customers = (int64_t)bn_tpcc_district_count(t) * t->customers;
    struct sums due = {.balance = -customers * AMOUNT_FIRST,
        .ytd_payment = customers * AMOUNT_FIRST,
        .payment_cnt = customers};

    for (uint32_t district = 0; district < bn_tpcc_district_count(t); district++) {
        struct bn_tpcc_count count;
        bn_tpcc_sum(t, district, &count);
        due.order_cnt += (int64_t)count.lines;
        due.histories += (int64_t)count.payments;
        due.amount += count.paid;
    }
    due.balance -= due.amount;
    due.ytd_payment += due.amount;
    due.payment_cnt += due.histories;
    for (uint32_t i = 0; i < t->base.threads; i++) {
        const struct bn_tpcc_worker *w = worker_of(t, i);
        due.ytd += (int64_t)w->quantity;
        due.remote_cnt += (int64_t)w->remote_lines;
        due.delivery_cnt += (int64_t)w->delivered;
        due.balance += w->delivered_amount;
    }
    *ret = due;
}

static int check_sums(struct bn_tpcc *t, struct cairn_ctx *ctx, uint64_t *checked)
{
    struct sums is = {.t = t}, due;
    int rc = read_sums(t, ctx, &is);

    if (rc != 0)
        return rc;
    add_up(t, &due);
    const struct {
        const char *what;
        int64_t is, due;
    } table[] = {
        {"sum of S_YTD", is.ytd, due.ytd},
        {"sum of S_ORDER_CNT", is.order_cnt, due.order_cnt},
        {"sum of S_REMOTE_CNT", is.remote_cnt, due.remote_cnt},
        {"sum of C_BALANCE", is.balance, due.balance},
        {"sum of C_YTD_PAYMENT", is.ytd_payment, due.ytd_payment},
        {"sum of C_PAYMENT_CNT", is.payment_cnt, due.payment_cnt},
        {"sum of C_DELIVERY_CNT", is.delivery_cnt, due.delivery_cnt},
        {"rows of HISTORY", is.histories, due.histories},
        {"sum of H_AMOUNT", is.amount, due.amount},
    };
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(table) && rc == 0; i++)
        rc = differ(table[i].what, table[i].is, table[i].due);
    *checked += CN_ARRAY_SIZE(table);
    return rc;
}

int bn_tpcc_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked)
{
    struct bn_tpcc *t = (struct bn_tpcc *)load;
    uint64_t checked = 0;
    int rc = check_warehouses(t, ctx, &checked);

    if (rc == 0)
        rc = bn_tpcc_check_districts(t, ctx, &checked);
    if (rc == 0)
        rc = check_sums(t, ctx, &checked);
    if (rc == 0)
        *ret_checked = checked;
    return rc;
}
