/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 02-workload.c: a small shop under the crash harness. An order takes pieces from the stock and
 * money from the customer, and is written down, in one transaction. What must hold, whatever
 * crashes: pieces and money are where they were or in an order, and an order that was acknowledged
 * is there. Build and run (README.md says where from):
 *
 *   cc -shared -fPIC -o shop.so 02-workload.c && cairn crash run --workload ./shop.so
 *
 * With -DBROKEN it reads the stock outside of the transaction, and the harness finds it out.
 */
#include <cairn/workload.h>
#include <stdio.h>
#define COUNT 3    /* of items, and of customers */
#define ORDERS 200 /* at most: a transaction reads up to 256 keys */
#define STOCK 100
#define MONEY 2000
#define PRICE 10

struct order { long customer, item, pieces; };
/* The run's state, which no crash touches: what each operation was about to do, by its number. */
struct shop { struct order order[ORDERS + 1]; };

/* Values lie under keys like "stock/2". */
static int get(struct cairn_tx *tx, uint32_t table, const char *kind, long i, void *v, size_t size)
{
    char key[32];
    size_t key_size = (size_t)snprintf(key, sizeof(key), "%s/%ld", kind, i), v_size;
    return cairn_get(tx, table, key, key_size, v, size, &v_size);
}

static int put(
    struct cairn_tx *tx, uint32_t table, const char *kind, long i, const void *v, size_t size)
{
    char key[32];
    size_t key_size = (size_t)snprintf(key, sizeof(key), "%s/%ld", kind, i);
    return cairn_put(tx, table, key, key_size, v, size);
}

/* Before anything crashes. After an error it is called again. */
static int open_shop(struct cairn_tx *tx, void *run)
{
    long stock = STOCK, money = MONEY;
    int rc = 0;
    for (long i = 0; i < COUNT && rc == 0; i++)
        if ((rc = put(tx, cairn_run_table(run), "stock", i, &stock, sizeof(stock))) == 0)
            rc = put(tx, cairn_run_table(run), "money", i, &money, sizeof(money));
    return rc;
}
static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    return cairn_run(ctx, open_shop, run, 1000, NULL);
}

/* The service's own code: what it does in one transaction. */
static int place(struct cairn_tx *tx, uint32_t table, long op, const struct order *o, long stock)
{
    long money;
    int rc = stock >= 0 ? 0 : get(tx, table, "stock", o->item, &stock, sizeof(stock));
    if (rc != 0 || (rc = get(tx, table, "money", o->customer, &money, sizeof(money))) != 0)
        return rc;
    if (stock < o->pieces || money < o->pieces * PRICE)
        return CAIRN_E_CONFLICT; /* no sale */
    stock -= o->pieces;
    money -= o->pieces * PRICE;
    if ((rc = put(tx, table, "stock", o->item, &stock, sizeof(stock))) != 0 ||
        (rc = put(tx, table, "money", o->customer, &money, sizeof(money))) != 0)
        return rc;
    return put(tx, table, "order", op, o, sizeof(*o));
}

/* One order, tried once. All decisions are cairn_run_choose()'s, so that a run can be repeated. */
static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct shop *shop = cairn_run_state(run);
    uint32_t table = cairn_run_table(run);
    uint64_t op = cairn_run_op(run); /* 1, 2, ... over all clients */
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    long stock = -1; /* not read yet */
    if (op > ORDERS)
        return cairn_run_aborted(run, op), 0;
    struct order *o = &shop->order[op];
    o->customer = cairn_run_choose(run, "customer", COUNT);
    o->item = cairn_run_choose(run, "item", COUNT);
    o->pieces = 1 + cairn_run_choose(run, "pieces", 3);
    int rc = cairn_begin(ctx, &tx);
    if (rc != 0)
        return rc;
#ifdef BROKEN
    rc = get(tx, table, "stock", o->item, &stock, sizeof(stock));
    cairn_abort(tx); /* what was read may be sold by now */
    if (rc != 0 || (rc = cairn_begin(ctx, &tx)) != 0)
        return rc;
#endif
    rc = place(tx, table, (long)op, o, stock);
    if (rc == 0)
        return cairn_run_commit(run, op, tx, &outcome); /* the harness keeps the outcome */
    cairn_abort(tx);
    cairn_run_aborted(run, op);
    return rc;
}

/* Afterwards, all nodes are up again and nobody else is there: compare with the ledger. */
static int audit(struct cairn_tx *tx, void *run)
{
    uint32_t table = cairn_run_table(run);
    long stock[COUNT], money[COUNT];
    int rc = 0;
    for (long i = 0; i < COUNT && rc == 0; i++)
        if ((rc = get(tx, table, "stock", i, &stock[i], sizeof(stock[i]))) == 0)
            rc = get(tx, table, "money", i, &money[i], sizeof(money[i]));
    for (long op = 1; op <= ORDERS && rc == 0; op++) {
        enum cairn_outcome known = cairn_run_outcome(run, (uint64_t)op); /* NONE: not taken */
        struct order o = {0, 0, 0};
        rc = get(tx, table, "order", op, &o, sizeof(o));
        if (rc == 0 && known == CAIRN_OUTCOME_ABORTED)
            cairn_run_fail(run, "order %ld was aborted, and is there", op);
        if (rc == CAIRN_E_NOT_FOUND && known == CAIRN_OUTCOME_COMMITTED)
            cairn_run_fail(run, "lost: order %ld was acknowledged", op);
        rc = rc == CAIRN_E_NOT_FOUND ? 0 : rc; /* if UNKNOWN, it is there or not */
        stock[o.item] += o.pieces;
        money[o.customer] += o.pieces * PRICE;
    }
    for (int i = 0; i < COUNT && rc == 0; i++)
        if (stock[i] != STOCK || money[i] != MONEY)
            cairn_run_fail(run, "%d: %ld pieces and %ld coins, should be %d and %d", i, stock[i],
                money[i], STOCK, MONEY);
    return rc;
}
static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    return cairn_run(ctx, audit, run, 1000, NULL);
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct order *o = &((struct shop *)cairn_run_state(run))->order[op <= ORDERS ? op : 0];
    snprintf(text, size, "sell %ld of item %ld to customer %ld", o->pieces, o->item, o->customer);
}

const struct cairn_workload *cairn_workload(void)
{
    static const struct cairn_workload shop = {.abi = CAIRN_WORKLOAD_ABI, .name = "shop",
        .summary = "orders take stock and money: nothing appears and nothing is lost",
        .state_size = sizeof(struct shop), .setup = setup, .step = step, .check = check,
        .describe = describe};
    return &shop;
}
