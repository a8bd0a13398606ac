/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_smallbank.c: SmallBank: customers with a savings and a checking account, six
 * transactions. Every account's chain (cr_kit.h) must be what the ledger says, so the money that
 * was paid in and out is accounted for too. The demo's (tools/smallbank.c) draws from many accounts
 * and keeps a ledger of its own format; only the six transactions are the same.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define CUSTOMERS_MAX 5u
#define ACCOUNTS_MAX (2 * CUSTOMERS_MAX)
#define BALANCE 100

enum kind { BALANCES, DEPOSIT, TRANSACT_SAVINGS, AMALGAMATE, WRITE_CHECK, SEND_PAYMENT, KINDS };
static const char *const kind_names[] = {"read the balances", "deposit", "transact savings",
    "amalgamate", "write a check", "send a payment"};

struct smallbank {
    uint32_t customers;
    struct cr_chain chain;
    uint8_t kind[CR_CHAIN_OPS];
};

/* Account numbers: savings of a customer, then checking. */
static struct cr_key account(uint32_t i)
{
    return cr_key('y', i / 2, i % 2);
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct smallbank *s = cairn_run_state(run);
    struct cr_link first = {.value = BALANCE};
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    s->customers = 2 + cairn_run_choose(run, "customers", CUSTOMERS_MAX - 1);
    for (uint32_t i = 0; i < 2 * s->customers && rc == 0; i++) {
        struct cr_key k = account(i);
        rc = cr_kit_put(&kit, &k, &first, sizeof(first));
    }
    uint64_t op = cairn_run_op(run);
    rc = cr_kit_end(&kit, op, rc, &outcome);
    return rc == 0 && outcome != CAIRN_OUTCOME_COMMITTED ? CAIRN_E_CONFLICT : rc;
}

/* Which accounts, and which of them are written. */
static void plan(struct cr_chain_op *o, enum kind kind, uint32_t a, uint32_t b)
{
    struct cr_touch savings = {.key = 2 * a}, checking = {.key = 2 * a + 1};
    struct cr_touch other = {.key = 2 * b + 1, .written = true};

    savings.written = kind == TRANSACT_SAVINGS || kind == AMALGAMATE;
    checking.written = kind != BALANCES && kind != TRANSACT_SAVINGS;
    o->count = 0;
    if (kind != DEPOSIT && kind != SEND_PAYMENT)
        o->touch[o->count++] = savings;
    if (kind != TRANSACT_SAVINGS)
        o->touch[o->count++] = checking;
    if (kind == AMALGAMATE || kind == SEND_PAYMENT)
        o->touch[o->count++] = other;
}

/* New values from the old ones. False: the bank says no. */
static bool apply(struct cr_chain_op *o, enum kind kind, int64_t amount)
{
    struct cr_touch *t = o->touch;

    switch (kind) {
    case DEPOSIT:
    case TRANSACT_SAVINGS:
        t[0].value = t[0].old.value + amount;
        return t[0].value >= 0;
    case AMALGAMATE:
        t[0].value = 0;
        t[1].value = 0;
        t[2].value = t[2].old.value + t[0].old.value + t[1].old.value;
        return true;
    case WRITE_CHECK: /* an overdraft costs one more */
        t[1].value = t[1].old.value - amount - (t[0].old.value + t[1].old.value < amount);
        return true;
    case SEND_PAYMENT:
        t[0].value = t[0].old.value - amount;
        t[1].value = t[1].old.value + amount;
        return t[0].value >= 0;
    default: return true;
    }
}

static int execute(struct cr_kit *kit, struct cr_chain_op *o, uint64_t op, enum kind kind)
{
    int64_t amount = 1 + cairn_run_choose(kit->run, "amount", 60);
    bool lock = cr_chance(kit->run, "lock", 2, 3);
    int rc = 0;

    if (kind == TRANSACT_SAVINGS && cr_chance(kit->run, "withdraw", 1, 2))
        amount = -amount;
    for (uint32_t i = 0; i < o->count && rc == 0; i++) {
        struct cr_key k = account(o->touch[i].key);
        rc = cr_chain_read(kit, &k, lock && o->touch[i].written, &o->touch[i].old);
    }
    if (rc == 0 && !apply(o, kind, amount))
        return CAIRN_E_CONFLICT; /* refused */
    for (uint32_t i = 0; i < o->count && rc == 0; i++) {
        struct cr_key k = account(o->touch[i].key);
        if (o->touch[i].written)
            rc = cr_chain_write(kit, &k, op, &o->touch[i]);
    }
    return rc;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct smallbank *s = cairn_run_state(run);
    enum kind kind = (enum kind)cairn_run_choose(run, "smallbank", KINDS);
    uint32_t a = cairn_run_choose(run, "customer", s->customers);
    uint32_t b = (a + 1 + cairn_run_choose(run, "payee", s->customers - 1)) % s->customers;
    struct cr_chain_op look, *o = &look;
    enum cairn_outcome outcome;
    struct cr_kit kit;
    uint64_t op = 0;

    if (kind != BALANCES) {
        op = cr_chain_begin(&s->chain, run);
        if (op == 0)
            return 0;
        o = &s->chain.op[op];
        s->kind[op] = (uint8_t)kind;
    }
    plan(o, kind, a, b);
    int rc = cr_kit_begin(&kit, run, ctx);
    return rc != 0 ? rc : cr_kit_end(&kit, op, execute(&kit, o, op, kind), &outcome);
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct smallbank *s = cairn_run_state(run);
    struct cr_link links[ACCOUNTS_MAX];
    int64_t first[ACCOUNTS_MAX];
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < 2 * s->customers && rc == 0; i++) {
        struct cr_key k = account(i);
        rc = cr_chain_read(&kit, &k, false, &links[i]);
        first[i] = BALANCE;
    }
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    cr_chain_check(&s->chain, run, links, first, 2 * s->customers);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct smallbank *s = cairn_run_state(run);
    uint64_t at = op < CR_CHAIN_OPS ? op : 0;

    (void)snprintf(text, size, "%s, customer %u", kind_names[s->kind[at]],
        s->chain.op[at].touch[0].key / 2);
}

const struct cairn_workload cr_work_smallbank = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "smallbank",
    .summary = "the six SmallBank transactions: every account's chain of writers holds",
    .state_size = sizeof(struct smallbank),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
