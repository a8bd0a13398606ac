/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc_payment.c: TPC-C's transactions about one customer: payment (clause 2.5) and order-status
 * (clause 2.6). Each finds the customer by number, or by last name: the one in the middle of its
 * namesakes, in the order of first names. customer_name holds their numbers in that order, so that
 * just the one row is read.
 */
#include <inttypes.h>

#include "tools/bench/bn_tpcc.h"

/* ---- the customer ---- */

int bn_tpcc_find_customer(struct cairn_tx *tx, struct bn_tpcc_slot *s, uint32_t *ret_c)
{
    uint32_t c[BN_TPCC_NAMESAKES_MAX];

    if (!s->who.by_name) {
        *ret_c = s->who.c;
        return 0;
    }
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_name(bn_tpcc_ask(s, BN_TPCC_CUSTOMER_NAME, c, sizeof(c), false), s->who.w,
            s->who.d, s->who.name));
    int rc = bn_tpcc_read(tx, s);
    if (rc != 0)
        return rc;
    size_t count = s->room->read[0].value_size / sizeof(c[0]);
    if (s->room->read[0].status != 0 || count == 0)
        return cn_fail(CAIRN_E_STATE, "district %u.%u has no customer %.16s", s->who.w, s->who.d,
            s->who.name);
    *ret_c = c[(count + 1) / 2 - 1];
    return 0;
}

/* ---- payment ---- */

struct payment_work {
    struct bn_tpcc_warehouse warehouse;
    struct bn_tpcc_district district;
    struct bn_tpcc_customer customer;
};
_Static_assert(sizeof(struct payment_work) <= BN_TPCC_WORK_SIZE, "it fits in a slot");

/* What happened goes before what a customer of bad credit has done so far; 500 bytes are kept. */
static void note_bad_credit(const struct bn_tpcc_slot *s, struct bn_tpcc_customer *c)
{
    char text[100];
    int size = snprintf(text, sizeof(text), "%u %u %u %u %u %" PRId64 ".%02" PRId64 "|", c->c_id,
        s->who.d, s->who.w, s->d, s->w, s->u.payment.amount / 100, s->u.payment.amount % 100);
    size_t kept = cn_min64(c->data_size, sizeof(c->data) - (size_t)size);

    memmove(c->data + size, c->data, kept);
    memcpy(c->data, text, (size_t)size);
    c->data_size = (uint16_t)((size_t)size + kept);
}

static size_t text_size(const char *text, size_t size_max)
{
    return strnlen(text, size_max);
}

static int put_history(
    struct cairn_tx *tx, const struct bn_tpcc_slot *s, const struct payment_work *work)
{
    struct bn_tpcc_history row = {.date = s->date,
        .amount = s->u.payment.amount,
        .c_id = work->customer.c_id,
        .c_w_id = s->who.w,
        .w_id = s->w,
        .c_d_id = (uint8_t)s->who.d,
        .d_id = (uint8_t)s->d};
    size_t w_size = text_size(work->warehouse.name, sizeof(work->warehouse.name));
    size_t d_size = text_size(work->district.name, sizeof(work->district.name));
    uint8_t key[BN_TPCC_KEY_MAX];

    memcpy(row.data, work->warehouse.name, w_size);
    memset(row.data + w_size, ' ', 4);
    memcpy(row.data + w_size + 4, work->district.name, d_size);
    return bn_tpcc_put(tx, s, BN_TPCC_HISTORY, key,
        bn_tpcc_key_history(key, s->u.payment.worker, s->u.payment.number), &row, sizeof(row));
}

int bn_tpcc_payment(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    struct payment_work *work = (struct payment_work *)s->room->work;
    uint32_t c;
    int rc = bn_tpcc_find_customer(tx, s, &c);

    if (rc != 0)
        return rc;
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_w(bn_tpcc_ask(s, BN_TPCC_WAREHOUSE, &work->warehouse, sizeof(work->warehouse),
                          true),
            s->w));
    bn_tpcc_asked(s,
        bn_tpcc_key_wd(
            bn_tpcc_ask(s, BN_TPCC_DISTRICT, &work->district, sizeof(work->district), true), s->w,
            s->d));
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(
            bn_tpcc_ask(s, BN_TPCC_CUSTOMER, &work->customer, sizeof(work->customer), true),
            s->who.w, s->who.d, c));
    rc = bn_tpcc_read(tx, s);
    if (rc == 0)
        rc = bn_tpcc_expect(s, 0, s->read_count);
    if (rc != 0)
        return rc;
    work->warehouse.ytd += s->u.payment.amount;
    work->district.ytd += s->u.payment.amount;
    work->customer.balance -= s->u.payment.amount;
    work->customer.ytd_payment += s->u.payment.amount;
    work->customer.payment_cnt++;
    if (memcmp(work->customer.credit, "BC", 2) == 0)
        note_bad_credit(s, &work->customer);
    for (uint32_t i = 0; i < 3 && rc == 0; i++)
        rc = bn_tpcc_put_back(tx, s, i);
    return rc != 0 ? rc : put_history(tx, s, work);
}

/* ---- order-status ---- */

struct status_work {
    struct bn_tpcc_customer customer;
    struct bn_tpcc_customer_order last;
    struct bn_tpcc_order order;
    struct bn_tpcc_order_line line[BN_TPCC_LINES_MAX];
};
_Static_assert(sizeof(struct status_work) <= BN_TPCC_WORK_SIZE, "it fits in a slot");

static int read_order(
    struct cairn_tx *tx, struct bn_tpcc_slot *s, struct status_work *work, uint32_t c)
{
    uint32_t o = work->last.o_id, count = work->last.ol_cnt;

    if (count < BN_TPCC_LINES_MIN || count > BN_TPCC_LINES_MAX)
        return cn_fail(CAIRN_E_STATE, "customer %u.%u.%u: the last order has %u lines", s->w, s->d,
            c, count);
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(bn_tpcc_ask(s, BN_TPCC_ORDERS, &work->order, sizeof(work->order), false),
            s->w, s->d, o));
    for (uint32_t i = 0; i < count; i++)
        bn_tpcc_asked(s,
            bn_tpcc_key_line(bn_tpcc_ask(s, BN_TPCC_ORDER_LINE, &work->line[i],
                                 sizeof(work->line[i]), false),
                s->w, s->d, o, i + 1));
    int rc = bn_tpcc_read(tx, s);
    if (rc == 0)
        rc = bn_tpcc_expect(s, 0, s->read_count);
    if (rc == 0 && (work->order.c_id != c || work->order.ol_cnt != count))
        return cn_fail(CAIRN_E_STATE,
            "order %u.%u.%u is of customer %u with %u lines, but customer %u has it as the last, "
            "with %u",
            s->w, s->d, o, work->order.c_id, work->order.ol_cnt, c, count);
    return rc;
}

int bn_tpcc_order_status(struct cairn_tx *tx, struct bn_tpcc_slot *s)
{
    struct status_work *work = (struct status_work *)s->room->work;
    uint32_t c;
    int rc = bn_tpcc_find_customer(tx, s, &c);

    if (rc != 0)
        return rc;
    s->read_count = 0;
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(
            bn_tpcc_ask(s, BN_TPCC_CUSTOMER, &work->customer, sizeof(work->customer), false), s->w,
            s->d, c));
    bn_tpcc_asked(s,
        bn_tpcc_key_wdn(
            bn_tpcc_ask(s, BN_TPCC_CUSTOMER_ORDER, &work->last, sizeof(work->last), false), s->w,
            s->d, c));
    rc = bn_tpcc_read(tx, s);
    if (rc == 0)
        rc = bn_tpcc_expect(s, 0, s->read_count);
    return rc != 0 ? rc : read_order(tx, s, work, c);
}
