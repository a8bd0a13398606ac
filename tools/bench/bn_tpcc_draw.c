/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_draw.c: the input of TPC-C's transactions (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1).
 * There are no terminals: each transaction draws its warehouse, and stock-level its district too.
 */
#include "include/internal/cn_env.h"
#include "tools/bench/bn_tpcc.h"

#define BY_NAME_PERCENT 60u
#define REMOTE_CUSTOMER_PERCENT 15u
#define REMOTE_LINE_PERCENT 1u
#define ROLLBACK_PERCENT 1u

enum bn_tpcc_kind bn_tpcc_draw_kind(uint64_t *random)
{
    /* The least that clause 5.2.3 allows of each but new-order, which has the rest: 45 %. */
    static const uint8_t upto[BN_TPCC_KINDS] = {45, 88, 92, 96, 100};
    uint64_t dice = bn_below(random, 100);
    uint32_t kind = 0;

    while (dice >= upto[kind])
        kind++;
    return (enum bn_tpcc_kind)kind;
}

static uint32_t draw_other_warehouse(const struct bn_tpcc *t, uint64_t *random, uint32_t w)
{
    uint32_t other = bn_tpcc_between(random, 1, t->warehouses - 1);

    return other + (other >= w);
}

static uint32_t draw_customer(const struct bn_tpcc *t, uint64_t *random)
{
    return bn_tpcc_nurand(random, 1023, 1, t->customers, t->c_id);
}

static void draw_who(const struct bn_tpcc *t, uint64_t *random, struct bn_tpcc_who *who)
{
    who->by_name = bn_below(random, 100) < BY_NAME_PERCENT;
    if (who->by_name)
        bn_tpcc_last_name(bn_tpcc_nurand(random, 255, 0, t->names - 1, t->c_last), who->name);
    else
        who->c = draw_customer(t, random);
}

static void draw_new_order(const struct bn_tpcc *t, uint64_t *random, struct bn_tpcc_slot *s)
{
    uint32_t count = bn_tpcc_between(random, BN_TPCC_LINES_MIN, BN_TPCC_LINES_MAX);

    s->who = (struct bn_tpcc_who){.w = s->w, .d = s->d, .c = draw_customer(t, random)};
    s->u.new_order.ol_cnt = count;
    s->u.new_order.unused_item = bn_below(random, 100) < ROLLBACK_PERCENT;
    for (uint32_t i = 0; i < count; i++) {
        struct bn_tpcc_line *line = &s->u.new_order.line[i];
        line->i_id = bn_tpcc_nurand(random, 8191, 1, t->items, t->c_item);
        line->supply_w_id = s->w;
        if (t->warehouses > 1 && bn_below(random, 100) < REMOTE_LINE_PERCENT)
            line->supply_w_id = draw_other_warehouse(t, random, s->w);
        line->quantity = (uint8_t)bn_tpcc_between(random, 1, 10);
    }
    if (s->u.new_order.unused_item)
        s->u.new_order.line[count - 1].i_id = t->items + 1;
}

static void draw_payment(
    const struct bn_tpcc *t, struct bn_tpcc_worker *w, uint64_t *random, struct bn_tpcc_slot *s)
{
    s->who = (struct bn_tpcc_who){.w = s->w, .d = s->d};
    if (t->warehouses > 1 && bn_below(random, 100) < REMOTE_CUSTOMER_PERCENT) {
        s->who.w = draw_other_warehouse(t, random, s->w);
        s->who.d = bn_tpcc_between(random, 1, BN_TPCC_DISTRICTS);
    }
    draw_who(t, random, &s->who);
    s->u.payment.amount = bn_tpcc_between(random, 100, 500000);
    s->u.payment.worker = w->number;
    s->u.payment.number = w->histories++;
}

uint32_t bn_tpcc_draw(struct bn_load *load, void *worker, uint64_t *random, void *slot)
{
    const struct bn_tpcc *t = (struct bn_tpcc *)load;
    struct bn_tpcc_worker *w = worker;
    struct bn_tpcc_slot *s = slot;

    memset(s, 0, sizeof(*s));
    s->tpcc = t;
    s->room = w->free_room;
    CAIRN_ASSERT(s->room != NULL); /* as many as are in flight */
    w->free_room = s->room->next;
    s->date = (int64_t)cn_now_ns(cn_env_system());
    if (w->rest_count > 0) { /* the rest of a stock-level comes before anything new */
        s->kind = BN_TPCC_STOCK_LEVEL_TX;
        s->u.stock_level.is_rest = true;
        s->u.stock_level.rest = w->rest[--w->rest_count];
        return s->kind;
    }
    s->kind = bn_tpcc_draw_kind(random);
    s->w = bn_tpcc_between(random, 1, t->warehouses);
    s->d = bn_tpcc_between(random, 1, BN_TPCC_DISTRICTS);
    switch (s->kind) {
    case BN_TPCC_NEW_ORDER_TX: draw_new_order(t, random, s); break;
    case BN_TPCC_PAYMENT_TX: draw_payment(t, w, random, s); break;
    case BN_TPCC_ORDER_STATUS_TX:
        s->who = (struct bn_tpcc_who){.w = s->w, .d = s->d};
        draw_who(t, random, &s->who);
        break;
    case BN_TPCC_DELIVERY_TX:
        s->u.delivery.carrier_id = (uint8_t)bn_tpcc_between(random, 1, 10);
        break;
    case BN_TPCC_STOCK_LEVEL_TX:
        s->u.stock_level.is_rest = false;
        s->u.stock_level.rest.w = s->w;
        s->u.stock_level.rest.threshold = bn_tpcc_between(random, 10, 20);
        s->u.stock_level.rest.count = 0;
        break;
    case BN_TPCC_KINDS: break;
    }
    return s->kind;
}
