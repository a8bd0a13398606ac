/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tpcc.h: the load `tpcc`: rows, keys, draws and the ledger of TPC-C (revision 5.11).
 *
 * Keys are the primary keys of the specification, fixed-size integers in big endian, so that they
 * sort as the rows do. Rows are structs of fixed size in this machine's byte order (they never
 * leave the run); texts are padded with zeros. Money is in cents, rates in 1/10000.
 *
 * Without an ordered index the application maintains four tables more, in the same transactions
 * that change what they are made from:
 *   customer_name   (w, d, last name) -> its customers, ascending by first name; never changes
 *   customer_order  (w, d, c) -> the customer's last order and its number of lines
 *   oldest_order    (w, d) -> the order that is to be delivered next
 *   recent_orders   (w, d) -> the items of the district's last 20 orders
 */
#ifndef BN_TPCC_H
#define BN_TPCC_H

#include "tools/bench/bn_fill.h"

enum bn_tpcc_table {
    BN_TPCC_WAREHOUSE,
    BN_TPCC_DISTRICT,
    BN_TPCC_CUSTOMER,
    BN_TPCC_HISTORY,
    BN_TPCC_NEW_ORDER,
    BN_TPCC_ORDERS,
    BN_TPCC_ORDER_LINE,
    BN_TPCC_ITEM,
    BN_TPCC_STOCK,
    BN_TPCC_CUSTOMER_NAME,
    BN_TPCC_CUSTOMER_ORDER,
    BN_TPCC_OLDEST_ORDER,
    BN_TPCC_RECENT_ORDERS,
};
enum bn_tpcc_kind {
    BN_TPCC_NEW_ORDER_TX,
    BN_TPCC_PAYMENT_TX,
    BN_TPCC_ORDER_STATUS_TX,
    BN_TPCC_DELIVERY_TX,
    BN_TPCC_STOCK_LEVEL_TX,
    BN_TPCC_KINDS,
};

#define BN_TPCC_DISTRICTS 10u
#define BN_TPCC_LINES_MIN 5u
#define BN_TPCC_LINES_MAX 15u
#define BN_TPCC_RECENT 20u
#define BN_TPCC_NAMES 1000u
#define BN_TPCC_NAME_SIZE 16u
#define BN_TPCC_NAMESAKES_MAX 250u
#define BN_TPCC_CUSTOMERS 3000u /* of a district, by the specification */
#define BN_TPCC_ITEMS 100000u   /* likewise */

/* ---- rows ---- */

struct bn_tpcc_address {
    char street_1[20], street_2[20], city[20], state[2], zip[9];
};
struct bn_tpcc_warehouse {
    int64_t ytd;
    uint32_t w_id, tax;
    char name[10];
    struct bn_tpcc_address address;
    uint8_t reserved[7];
};
struct bn_tpcc_district {
    int64_t ytd;
    uint32_t w_id, next_o_id, tax;
    uint8_t d_id;
    char name[10];
    struct bn_tpcc_address address;
    uint8_t reserved[2];
};
struct bn_tpcc_customer {
    int64_t credit_lim, balance, ytd_payment, since;
    uint32_t c_id, w_id, discount, payment_cnt, delivery_cnt;
    uint8_t d_id;
    char credit[2];
    char first[16], middle[2], last[BN_TPCC_NAME_SIZE];
    struct bn_tpcc_address address;
    char phone[16];
    uint16_t data_size;
    char data[500];
    uint8_t reserved[2];
};
struct bn_tpcc_history {
    int64_t date, amount;
    uint32_t c_id, c_w_id, w_id;
    uint8_t c_d_id, d_id;
    char data[24];
    uint8_t reserved[2];
};
struct bn_tpcc_new_order {
    uint32_t o_id, w_id;
    uint8_t d_id;
    uint8_t reserved[3];
};
struct bn_tpcc_order {
    int64_t entry_d;
    uint32_t o_id, c_id, w_id;
    uint8_t d_id, carrier_id /* 0: null */, ol_cnt, all_local;
};
struct bn_tpcc_order_line {
    int64_t delivery_d /* 0: null */, amount;
    uint32_t o_id, w_id, i_id, supply_w_id;
    uint8_t d_id, number, quantity;
    char dist_info[24];
    uint8_t reserved[5];
};
struct bn_tpcc_item {
    uint32_t i_id, im_id, price;
    char name[24], data[50];
    uint8_t reserved[2];
};
struct bn_tpcc_stock {
    int64_t ytd;
    uint32_t i_id, w_id, order_cnt, remote_cnt;
    int32_t quantity;
    char dist[BN_TPCC_DISTRICTS][24];
    char data[50];
    uint8_t reserved[2];
};
struct bn_tpcc_customer_order {
    uint32_t o_id, ol_cnt;
};
struct bn_tpcc_oldest_order {
    uint32_t o_id; /* = next_o_id of the district: there is none */
};
struct bn_tpcc_recent_orders {
    uint32_t next_o_id;              /* as the district's */
    uint8_t ol_cnt[BN_TPCC_RECENT];  /* of order o at o % 20 */
    uint32_t i_id[BN_TPCC_RECENT][BN_TPCC_LINES_MAX];
};
_Static_assert(sizeof(struct bn_tpcc_address) == 71, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_warehouse) == 104, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_district) == 104, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_customer) == 680, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_history) == 56, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_new_order) == 12, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_order) == 24, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_order_line) == 64, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_item) == 88, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_stock) == 320, "no hidden padding");
_Static_assert(sizeof(struct bn_tpcc_recent_orders) == 1224, "no hidden padding");

/* ---- keys (bn_tpcc_schema.c); each returns the size ---- */
#define BN_TPCC_KEY_MAX 24u
uint32_t bn_tpcc_key_w(uint8_t *ret_key, uint32_t w); /* warehouse; item */
uint32_t bn_tpcc_key_wd(uint8_t *ret_key, uint32_t w, uint32_t d);
uint32_t bn_tpcc_key_wdn(uint8_t *ret_key, uint32_t w, uint32_t d, uint32_t n); /* c or o */
uint32_t bn_tpcc_key_line(uint8_t *ret_key, uint32_t w, uint32_t d, uint32_t o, uint32_t number);
uint32_t bn_tpcc_key_stock(uint8_t *ret_key, uint32_t w, uint32_t i);
uint32_t bn_tpcc_key_name(
    uint8_t *ret_key, uint32_t w, uint32_t d, const char name[BN_TPCC_NAME_SIZE]);
/* The table has no primary key; ours is who put the row, and its how manieth. */
#define BN_TPCC_LOADER UINT32_MAX
uint32_t bn_tpcc_key_history(uint8_t *ret_key, uint32_t worker, uint64_t number);

/* ---- draws (bn_tpcc_schema.c) ---- */
/* In [low, high]. */
uint32_t bn_tpcc_between(uint64_t *random, uint32_t low, uint32_t high);
/* NURand(a, x, y) of clause 2.1.6 with its constant `c`. */
uint32_t bn_tpcc_nurand(uint64_t *random, uint32_t a, uint32_t x, uint32_t y, uint32_t c);
/* Clause 4.3.2.3: of a number in [0, 999], padded with zeros. */
void bn_tpcc_last_name(uint32_t number, char ret_name[BN_TPCC_NAME_SIZE]);
/* C of last names while the transactions run, for the one of the population: clause 2.1.6.1. */
uint32_t bn_tpcc_run_constant(uint64_t *random, uint32_t c_load);
/* A text of [min, max] letters and digits; returns its length. What follows stays. */
uint32_t bn_tpcc_text(uint64_t *random, char *to, uint32_t min, uint32_t max);
void bn_tpcc_digits(uint64_t *random, char *to, uint32_t count);

/* ---- the load ---- */
struct bn_tpcc {
    struct bn_load base;
    uint32_t warehouses, items;
    uint32_t customers;   /* of a district, and the orders that it has at the beginning */
    uint32_t names;       /* last names in use */
    uint32_t delivered;   /* of the first orders: the later ones are new orders */
    uint32_t c_load;      /* NURand's constants: last names of the population, */
    uint32_t c_last, c_id, c_item; /* and of the run */
    int64_t date;         /* of the population */
    char note[256];
    /* Only while it loads: */
    uint32_t *permutation; /* of each district: the customers of its orders */
    uint32_t *name_first;  /* of each district: `names` + 1 indexes into namesake */
    uint32_t *namesake;    /* of each district: its customers, by last name and first name */
};
static inline uint32_t bn_tpcc_district_index(uint32_t w, uint32_t d)
{
    return (w - 1) * BN_TPCC_DISTRICTS + d - 1;
}
static inline uint32_t bn_tpcc_district_count(const struct bn_tpcc *t)
{
    return t->warehouses * BN_TPCC_DISTRICTS;
}
/* An order of the population: its number of lines and their items. *ret_random: for what else. */
uint32_t bn_tpcc_initial_order(const struct bn_tpcc *t, uint32_t w, uint32_t d, uint32_t o,
    uint32_t ret_items[BN_TPCC_LINES_MAX], uint64_t *ret_random);
/* As bn_load_ops.load and .bytes; `orders`: room for so many new ones. */
int bn_tpcc_load(struct bn_load *load, struct cairn_ctx *ctx);
uint64_t bn_tpcc_bytes(const struct bn_tpcc *t, uint64_t orders);

/* ---- the ledger: what has committed ---- */
struct bn_tpcc_count { /* of a district */
    uint64_t new_orders, lines, delivered, payments;
    int64_t paid;
};
/* Stock-level may have more items than fit in a transaction; these are left for another. */
#define BN_TPCC_REST_MAX 64u
struct bn_tpcc_rest {
    uint32_t w, threshold, count;
    uint32_t item[BN_TPCC_REST_MAX];
};
struct bn_tpcc_room;
struct bn_tpcc_worker {
    uint32_t number;
    uint64_t histories; /* drawn: keys of history are below */
    struct bn_tpcc_count *district;
    uint64_t quantity, remote_lines, delivered;
    int64_t delivered_amount;
    uint32_t rest_count;
    struct bn_tpcc_rest rest[CAIRN_INFLIGHT_MAX];
    struct bn_tpcc_room *rooms, *free_room; /* one for each transaction in flight */
};
/* As bn_load_ops.check. */
int bn_tpcc_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked);
/* The districts' part of it: conditions 1 to 4, districts' and secondary tables. */
int bn_tpcc_check_districts(struct bn_tpcc *t, struct cairn_ctx *ctx, uint64_t *checked);
/* What a district's workers have done together. */
void bn_tpcc_sum(const struct bn_tpcc *t, uint32_t district, struct bn_tpcc_count *ret);

/* ---- transactions ---- */
struct bn_tpcc_line {
    uint32_t i_id, supply_w_id;
    uint8_t quantity;
};
struct bn_tpcc_who { /* a customer, by number or by last name */
    uint32_t w, d, c;
    bool by_name;
    char name[BN_TPCC_NAME_SIZE];
};
/* Where a transaction has its rows: a worker's, from draw to settle. */
#define BN_TPCC_READS_MAX CAIRN_TX_KEYS_MAX
#define BN_TPCC_WORK_SIZE (88u * 1024)
struct bn_tpcc_room {
    struct bn_tpcc_room *next; /* of those that are free */
    struct cairn_read read[BN_TPCC_READS_MAX];
    uint8_t key[BN_TPCC_READS_MAX][BN_TPCC_KEY_MAX];
    uint64_t work[BN_TPCC_WORK_SIZE / 8];
};
struct bn_tpcc_slot {
    const struct bn_tpcc *tpcc;
    struct bn_tpcc_room *room;
    enum bn_tpcc_kind kind;
    uint32_t w, d;
    int64_t date;
    struct bn_tpcc_who who; /* of new-order, payment, order-status */
    union {
        struct {
            uint32_t ol_cnt;
            bool unused_item; /* the last line's */
            struct bn_tpcc_line line[BN_TPCC_LINES_MAX];
        } new_order;
        struct {
            int64_t amount;
            uint32_t worker;
            uint64_t number; /* of the history row */
        } payment;
        struct {
            uint8_t carrier_id;
            bool done[BN_TPCC_DISTRICTS]; /* out */
            int64_t amount;               /* out */
        } delivery;
        struct {
            bool is_rest;             /* the items in `rest` are to be looked at, and no others */
            struct bn_tpcc_rest rest; /* warehouse and threshold in any case */
            uint32_t low;             /* out: items below the threshold, and ... */
            uint32_t left_count;      /* ... how many are left for another transaction */
            uint32_t left[BN_TPCC_REST_MAX];
        } stock_level;
    } u;
    uint32_t read_count;
};
/*
 * Reads are asked for one by one and done together. bn_tpcc_ask() returns where the key is to be
 * written; its size is told to bn_tpcc_asked():
 *     bn_tpcc_asked(s, bn_tpcc_key_w(bn_tpcc_ask(s, BN_TPCC_WAREHOUSE, row, sizeof(*row), false),
 * w));
 */
uint8_t *bn_tpcc_ask(struct bn_tpcc_slot *s, enum bn_tpcc_table table, void *row, size_t size,
    bool for_update);
void bn_tpcc_asked(struct bn_tpcc_slot *s, uint32_t key_size);
/* Do what was asked for: s->room->read[0..s->read_count) have their answers. */
int bn_tpcc_read(struct cairn_tx *tx, struct bn_tpcc_slot *s);
/* Reads from..to have each found a row of the right size. Errors: CAIRN_E_STATE. */
int bn_tpcc_expect(const struct bn_tpcc_slot *s, uint32_t from, uint32_t to);
/* Put a row; put back the one that was read there, as it is now. */
int bn_tpcc_put(struct cairn_tx *tx, const struct bn_tpcc_slot *s, enum bn_tpcc_table table,
    const uint8_t *key, uint32_t key_size, const void *row, size_t size);
int bn_tpcc_put_back(struct cairn_tx *tx, const struct bn_tpcc_slot *s, uint32_t at);
/* A customer's number, looked up by last name if that is what is known. */
int bn_tpcc_find_customer(struct cairn_tx *tx, struct bn_tpcc_slot *s, uint32_t *ret_c);

int bn_tpcc_new_order(struct cairn_tx *tx, struct bn_tpcc_slot *s);
int bn_tpcc_payment(struct cairn_tx *tx, struct bn_tpcc_slot *s);
int bn_tpcc_order_status(struct cairn_tx *tx, struct bn_tpcc_slot *s);
int bn_tpcc_delivery(struct cairn_tx *tx, struct bn_tpcc_slot *s);
int bn_tpcc_stock_level(struct cairn_tx *tx, struct bn_tpcc_slot *s);

/* As bn_load_ops.draw (bn_tpcc_draw.c). */
uint32_t bn_tpcc_draw(struct bn_load *load, void *worker, uint64_t *random, void *slot);
enum bn_tpcc_kind bn_tpcc_draw_kind(uint64_t *random);

#endif
