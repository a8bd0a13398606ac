/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_bank.c: transfers between a few accounts, and reads of all of them. A read sees one
 * total; in the end every account's chain (cr_kit.h) says the same as the ledger.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define ACCOUNTS_MAX 8u
#define BALANCE 100

struct bank {
    uint32_t accounts;
    struct cr_chain chain;
};

static struct cr_key account(uint32_t i)
{
    return cr_key('b', i, 0);
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct bank *bank = cairn_run_state(run);
    struct cr_link first = {.value = BALANCE};
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    bank->accounts = 3 + cairn_run_choose(run, "accounts", 3);
    for (uint32_t i = 0; i < bank->accounts && rc == 0; i++) {
        struct cr_key k = account(i);
        rc = cr_kit_put(&kit, &k, &first, sizeof(first));
    }
    uint64_t op = cairn_run_op(run);
    rc = cr_kit_end(&kit, op, rc, &outcome);
    return rc == 0 && outcome != CAIRN_OUTCOME_COMMITTED ? CAIRN_E_CONFLICT : rc;
}

static int move(struct cr_kit *kit, struct cr_chain_op *o, uint64_t op, int64_t amount)
{
    bool lock = cr_chance(kit->run, "lock", 2, 3);
    int rc = 0;

    for (uint32_t i = 0; i < 2 && rc == 0; i++) {
        struct cr_touch *t = &o->touch[i];
        struct cr_key k = account(t->key);
        rc = cr_chain_read(kit, &k, lock, &t->old);
        t->value = t->old.value + (i == 0 ? -amount : amount);
    }
    o->count = 2;
    for (uint32_t i = 0; i < 2 && rc == 0; i++) {
        struct cr_key k = account(o->touch[i].key);
        rc = cr_chain_write(kit, &k, op, &o->touch[i]);
    }
    return rc;
}

static int transfer(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct bank *bank = cairn_run_state(run);
    uint64_t op = cr_chain_begin(&bank->chain, run);
    uint32_t from = cairn_run_choose(run, "from", bank->accounts);
    uint32_t to = (from + 1 + cairn_run_choose(run, "to", bank->accounts - 1)) % bank->accounts;
    int64_t amount = 1 + cairn_run_choose(run, "amount", 9);
    struct cr_chain_op *o = &bank->chain.op[op];
    enum cairn_outcome outcome;
    struct cr_kit kit;

    if (op == 0)
        return 0;
    o->touch[0] = (struct cr_touch){.key = from, .written = true};
    o->touch[1] = (struct cr_touch){.key = to, .written = true};
    int rc = cr_kit_begin(&kit, run, ctx);
    return rc != 0 ? rc : cr_kit_end(&kit, op, move(&kit, o, op, amount), &outcome);
}

/* All accounts in one transaction. *ret_total is right when it commits. */
static int read_all(
    struct cr_kit *kit, struct bank *bank, struct cr_link *links, int64_t *ret_total)
{
    int rc = 0;

    *ret_total = 0;
    for (uint32_t i = 0; i < bank->accounts && rc == 0; i++) {
        struct cr_key k = account(i);
        rc = cr_chain_read(kit, &k, false, &links[i]);
        *ret_total += links[i].value;
    }
    return rc;
}

static int look(struct cairn_run *run, struct cairn_ctx *ctx, struct cr_link *links)
{
    struct bank *bank = cairn_run_state(run);
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int64_t total;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    rc = cr_kit_end(&kit, 0, read_all(&kit, bank, links, &total), &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    if (total != BALANCE * (int64_t)bank->accounts)
        cairn_run_fail(run, "the bank's total is %ld, should be %ld", (long)total,
            BALANCE * (long)bank->accounts);
    return 0;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct cr_link links[ACCOUNTS_MAX];

    return cr_chance(run, "transfer", 3, 4) ? transfer(run, ctx) : look(run, ctx, links);
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct bank *bank = cairn_run_state(run);
    struct cr_link links[ACCOUNTS_MAX];
    int64_t first[ACCOUNTS_MAX];
    int rc = look(run, ctx, links);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < bank->accounts; i++)
        first[i] = BALANCE;
    cr_chain_check(&bank->chain, run, links, first, bank->accounts);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct bank *bank = cairn_run_state(run);
    const struct cr_touch *t = bank->chain.op[op < CR_CHAIN_OPS ? op : 0].touch;

    if (op == 1 || op > bank->chain.ops)
        (void)snprintf(text, size, "open %u accounts", bank->accounts);
    else
        (void)snprintf(text, size, "transfer %ld from account %u (%ld) to %u (%ld)",
            (long)(t[1].value - t[1].old.value), t[0].key, (long)t[0].old.value, t[1].key,
            (long)t[1].old.value);
}

const struct cairn_workload cr_work_bank = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "bank",
    .summary = "transfers between accounts: the total and every account's chain of writers hold",
    .state_size = sizeof(struct bank),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
