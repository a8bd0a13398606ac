/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc.c: the load `tpcc`: TPC-C (revision 5.11), all five transactions: its options, what each
 * transaction adds to the ledger, and the load's entry. Rows, keys and the tables that are kept
 * besides: bn_tpcc.h.
 */
#include <errno.h>
#include <inttypes.h>

#include "include/internal/cn_env.h"
#include "tools/bench/bn_tpcc.h"

#define WAREHOUSES_MAX 1000u
#define SCALE_MAX 30u

static uint64_t option_warehouses = 2, option_scale = 1, option_orders = 200000;
static const struct tl_option options[] = {
    {.name = "warehouses",
        .arg = "N",
        .help = "warehouses; default 2",
        .number = &option_warehouses,
        .min = 1,
        .max = WAREHOUSES_MAX},
    {.name = "scale",
        .arg = "N",
        .help = "1/N of the specification's customers, orders and items; default 1: all of them",
        .number = &option_scale,
        .min = 1,
        .max = SCALE_MAX},
    {.name = "orders",
        .arg = "N",
        .help = "new orders that a cluster of one's own has room for; default 200000",
        .number = &option_orders,
        .min = 1,
        .max = 100000000},
    {.name = NULL},
};

static int setup(struct bn_load *load)
{
    struct bn_tpcc *t = (struct bn_tpcc *)load;
    uint64_t random = cn_mix64(load->seed + 1);

    t->warehouses = (uint32_t)option_warehouses;
    t->items = BN_TPCC_ITEMS / (uint32_t)option_scale;
    t->customers = BN_TPCC_CUSTOMERS / (uint32_t)option_scale;
    t->names = t->customers < BN_TPCC_NAMES ? t->customers : BN_TPCC_NAMES;
    t->delivered = t->customers / 10 * 7;
    t->c_load = bn_tpcc_between(&random, 0, 255);
    t->c_last = bn_tpcc_run_constant(&random, t->c_load);
    t->c_id = bn_tpcc_between(&random, 0, 1023);
    t->c_item = bn_tpcc_between(&random, 0, 8191);
    t->date = (int64_t)cn_now_ns(cn_env_system());
    if (option_scale != 1) {
        (void)snprintf(t->note, sizeof(t->note),
            "not to the specification: %u items, %u customers and orders of a district", t->items,
            t->customers);
        load->note = t->note;
    }
    return 0;
}

static uint64_t bytes(const struct bn_load *load)
{
    return bn_tpcc_bytes((const struct bn_tpcc *)load, option_orders);
}

static void worker_end(struct bn_load *load, void *worker)
{
    struct bn_tpcc_worker *w = worker;

    (void)load;
    free(w->district);
    free(w->rooms);
    w->district = NULL;
    w->rooms = w->free_room = NULL;
}

static int worker_init(struct bn_load *load, void *worker, uint32_t number)
{
    struct bn_tpcc_worker *w = worker;
    uint32_t rooms = load->inflight == 0 ? 1 : load->inflight;

    w->number = number;
    w->district = calloc(bn_tpcc_district_count((struct bn_tpcc *)load), sizeof(*w->district));
    w->rooms = calloc(rooms, sizeof(*w->rooms));
    if (w->district == NULL || w->rooms == NULL) {
        worker_end(load, worker);
        return cn_fail(-ENOMEM, "tpcc: no memory for the ledger");
    }
    for (uint32_t i = 0; i < rooms; i++)
        w->rooms[i].next = i + 1 < rooms ? &w->rooms[i + 1] : NULL;
    w->free_room = w->rooms;
    return 0;
}

static int body(struct cairn_tx *tx, void *slot)
{
    struct bn_tpcc_slot *s = slot;

    switch (s->kind) {
    case BN_TPCC_NEW_ORDER_TX: return bn_tpcc_new_order(tx, s);
    case BN_TPCC_PAYMENT_TX: return bn_tpcc_payment(tx, s);
    case BN_TPCC_ORDER_STATUS_TX: return bn_tpcc_order_status(tx, s);
    case BN_TPCC_DELIVERY_TX: return bn_tpcc_delivery(tx, s);
    case BN_TPCC_STOCK_LEVEL_TX: return bn_tpcc_stock_level(tx, s);
    case BN_TPCC_KINDS: break;
    }
    return cn_fail(CAIRN_E_STATE, "no such kind of transaction");
}

/* ---- the ledger ---- */

static void settle_new_order(
    struct bn_tpcc_worker *w, const struct bn_tpcc_slot *s, struct bn_tpcc_count *district)
{
    district->new_orders++;
    district->lines += s->u.new_order.ol_cnt;
    for (uint32_t i = 0; i < s->u.new_order.ol_cnt; i++) {
        w->quantity += s->u.new_order.line[i].quantity;
        w->remote_lines += s->u.new_order.line[i].supply_w_id != s->w;
    }
}

static void settle_delivery(struct bn_tpcc_worker *w, const struct bn_tpcc_slot *s)
{
    for (uint32_t d = 1; d <= BN_TPCC_DISTRICTS; d++) {
        w->district[bn_tpcc_district_index(s->w, d)].delivered += s->u.delivery.done[d - 1];
        w->delivered += s->u.delivery.done[d - 1];
    }
    w->delivered_amount += s->u.delivery.amount;
}

static void settle_stock_level(struct bn_tpcc_worker *w, const struct bn_tpcc_slot *s)
{
    if (s->u.stock_level.left_count == 0)
        return;
    CAIRN_ASSERT(w->rest_count < CN_ARRAY_SIZE(w->rest)); /* one per transaction in flight */
    struct bn_tpcc_rest *rest = &w->rest[w->rest_count++];
    rest->w = s->u.stock_level.rest.w;
    rest->threshold = s->u.stock_level.rest.threshold;
    rest->count = s->u.stock_level.left_count;
    memcpy(rest->item, s->u.stock_level.left, rest->count * sizeof(rest->item[0]));
}

static void settle(struct bn_load *load, void *worker, const void *slot, bool committed)
{
    struct bn_tpcc_worker *w = worker;
    const struct bn_tpcc_slot *s = slot;

    (void)load;
    s->room->next = w->free_room;
    w->free_room = s->room;
    if (!committed)
        return;
    switch (s->kind) {
    case BN_TPCC_NEW_ORDER_TX:
        settle_new_order(w, s, &w->district[bn_tpcc_district_index(s->w, s->d)]);
        break;
    case BN_TPCC_PAYMENT_TX:
        w->district[bn_tpcc_district_index(s->w, s->d)].payments++;
        w->district[bn_tpcc_district_index(s->w, s->d)].paid += s->u.payment.amount;
        break;
    case BN_TPCC_DELIVERY_TX: settle_delivery(w, s); break;
    case BN_TPCC_STOCK_LEVEL_TX: settle_stock_level(w, s); break;
    default: break;
    }
}

const struct bn_load_ops bn_tpcc = {
    .name = "tpcc",
    .summary =
        "TPC-C: a wholesaler's orders, all five transactions, consistency checked at the end.",
    .example = "  cairn bench tpcc --warehouses 4 --inflight 8\n"
               "  cairn bench tpcc --warehouses 1 --scale 10 --json     # small and quick\n",
    .tables = {[BN_TPCC_WAREHOUSE] = "warehouse",
        [BN_TPCC_DISTRICT] = "district",
        [BN_TPCC_CUSTOMER] = "customer",
        [BN_TPCC_HISTORY] = "history",
        [BN_TPCC_NEW_ORDER] = "new_order",
        [BN_TPCC_ORDERS] = "orders",
        [BN_TPCC_ORDER_LINE] = "order_line",
        [BN_TPCC_ITEM] = "item",
        [BN_TPCC_STOCK] = "stock",
        [BN_TPCC_CUSTOMER_NAME] = "customer_name",
        [BN_TPCC_CUSTOMER_ORDER] = "customer_order",
        [BN_TPCC_OLDEST_ORDER] = "oldest_order",
        [BN_TPCC_RECENT_ORDERS] = "recent_orders"},
    .kinds = {[BN_TPCC_NEW_ORDER_TX] = "new_order",
        [BN_TPCC_PAYMENT_TX] = "payment",
        [BN_TPCC_ORDER_STATUS_TX] = "order_status",
        [BN_TPCC_DELIVERY_TX] = "delivery",
        [BN_TPCC_STOCK_LEVEL_TX] = "stock_level"},
    .size = sizeof(struct bn_tpcc),
    .worker_size = sizeof(struct bn_tpcc_worker),
    .slot_size = sizeof(struct bn_tpcc_slot),
    .options = options,
    .option_count = CN_ARRAY_SIZE(options) - 1,
    .setup = setup,
    .bytes = bytes,
    .load = bn_tpcc_load,
    .worker_init = worker_init,
    .worker_end = worker_end,
    .draw = bn_tpcc_draw,
    .body = body,
    .settle = settle,
    .check = bn_tpcc_check,
};
