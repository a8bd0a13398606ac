/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_smallbank.c: the load `smallbank`: SmallBank (Alomari et al. 2008) with the mix, the amounts
 * and the hot accounts of H-Store and FORD. What a transaction touches and does to balances is
 * tools/smallbank.h; here it is done in as few trips and instructions as the protocol allows:
 * everything is laid out when the transaction is drawn, one cairn_get_many() reads and locks, small
 * values.
 *
 * Tables `savings` and `checking`. Key: account, 8 bytes big endian. Value: balance, number of
 * writes, 16 bytes. At the end each key must have been written as often as transactions committed
 * that write it, and all the money must be what was loaded and what came and went.
 */
#include "tools/bench/bn_fill.h"

#include <errno.h>
#include <inttypes.h>

#include "tools/smallbank.h"

#define ACCOUNTS_MAX 100000000u
#define PER_TX 64u
#define INITIAL_BALANCE 1000000 /* cents; the least that H-Store loads */

enum { SAVINGS, CHECKING };

static uint64_t option_accounts = 100000, option_hot = 4, option_hot_access = 90;
static const struct tl_option options[] = {
    {.name = "accounts",
        .arg = "N",
        .help = "accounts; default 100000",
        .number = &option_accounts,
        .min = 2,
        .max = ACCOUNTS_MAX},
    {.name = "hot",
        .arg = "PERCENT",
        .help = "of the accounts that are hot; default 4",
        .number = &option_hot,
        .min = 1,
        .max = 100},
    {.name = "hot-access",
        .arg = "PERCENT",
        .help = "of transactions with hot accounts; default 90; 0: uniform",
        .number = &option_hot_access,
        .min = 0,
        .max = 100},
    {.name = NULL},
};

struct bank {
    struct bn_load base;
    struct sb_spread spread;
};
struct value {
    int64_t balance;
    uint64_t writes;
};
_Static_assert(sizeof(struct value) == 16, "a value is 16 bytes");
struct worker {
    uint32_t *writes; /* that are committed, per key: account * 2 + (1 for checking) */
    int64_t deposited, withdrawn;
};
struct slot {
    struct sb_plan plan;
    uint32_t count;
    int64_t delta;
    struct sb_touch touch[SB_TOUCHES_MAX];
    struct cairn_read read[SB_TOUCHES_MAX];
    struct value value[SB_TOUCHES_MAX];
    uint8_t key[SB_TOUCHES_MAX][SB_KEY_SIZE];
};

static int setup(struct bn_load *load)
{
    struct bank *bank = (struct bank *)load;
    uint64_t hot = option_accounts * option_hot / 100;

    if (option_hot_access > 0 && hot < 2)
        return cn_fail(CAIRN_E_CONFIG,
            "--hot: %" PRIu64 " %% of %" PRIu64 " accounts are less than two; more accounts, or "
            "--hot-access 0",
            option_hot, option_accounts);
    bank->spread = (struct sb_spread){.accounts = (uint32_t)option_accounts,
        .hot = (uint32_t)cn_max64(hot, 2),
        .hot_in = (uint32_t)option_hot_access,
        .hot_of = 100};
    return 0;
}

static uint64_t bytes(const struct bn_load *load)
{
    return 2 * (uint64_t)((const struct bank *)load)->spread.accounts *
        bn_item_bytes(SB_KEY_SIZE, sizeof(struct value));
}

static int put_account(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const struct value value = {.balance = INITIAL_BALANCE};
    uint8_t key[SB_KEY_SIZE];
    int rc;

    bn_put_be64(key, index);
    rc = cairn_put(tx, load->table[SAVINGS], key, sizeof(key), &value, sizeof(value));
    if (rc == 0)
        rc = cairn_put(tx, load->table[CHECKING], key, sizeof(key), &value, sizeof(value));
    return rc;
}

static int load_accounts(struct bn_load *load, struct cairn_ctx *ctx)
{
    const struct bn_fill fill = {.what = "accounts",
        .count = ((struct bank *)load)->spread.accounts,
        .per_tx = PER_TX,
        .put = put_account};

    return bn_fill(load, ctx, &fill);
}

static int worker_init(struct bn_load *load, void *worker, uint32_t number)
{
    struct worker *w = worker;

    (void)number;
    w->writes = calloc(2 * (size_t)((struct bank *)load)->spread.accounts, sizeof(*w->writes));
    return w->writes == NULL ? cn_fail(-ENOMEM, "smallbank: no memory for the ledger") : 0;
}

static void worker_end(struct bn_load *load, void *worker)
{
    struct worker *w = worker;

    (void)load;
    free(w->writes);
    w->writes = NULL;
}

/* ---- transactions ---- */

CN_HOT
static uint32_t draw(struct bn_load *load, void *worker, uint64_t *random, void *slot)
{
    struct slot *s = slot;

    sb_draw_spread(random, &((struct bank *)load)->spread, &s->plan);
    s->count = sb_touches(&s->plan, s->touch);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t key = s->touch[i].key & ~SB_WRITTEN;
        /* A random place of the ledger, needed when it has committed: no part of what it costs. */
        __builtin_prefetch(&((const struct worker *)worker)->writes[key], 1);
        bn_put_be64(s->key[i], key / 2);
        s->read[i] = (struct cairn_read){.key = s->key[i],
            .key_size = sizeof(s->key[i]),
            .buf = &s->value[i],
            .buf_size = sizeof(s->value[i]),
            .table = load->table[key % 2 == 0 ? SAVINGS : CHECKING],
            .for_update = (s->touch[i].key & SB_WRITTEN) != 0};
    }
    return s->plan.kind;
}

CN_HOT
static int body(struct cairn_tx *tx, void *slot)
{
    struct slot *s = slot;
    int rc = cairn_get_many(tx, s->read, s->count);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->count; i++) {
        if (CN_UNLIKELY(s->read[i].status != 0 || s->read[i].value_size != sizeof(s->value[i])))
            return cn_fail(CAIRN_E_STATE, "%s of account %u is gone, or is none of ours",
                (s->touch[i].key & 1) == 0 ? "savings" : "checking",
                (s->touch[i].key & ~SB_WRITTEN) / 2);
        s->touch[i].old_balance = s->value[i].balance;
    }
    if (!sb_apply(&s->plan, s->touch, s->count, &s->delta))
        return BN_REFUSED;
    for (uint32_t i = 0; i < s->count && rc == 0; i++) {
        if (!s->read[i].for_update)
            continue;
        s->value[i].balance = s->touch[i].new_balance;
        s->value[i].writes++;
        rc = cairn_put(tx, s->read[i].table, s->key[i], sizeof(s->key[i]), &s->value[i],
            sizeof(s->value[i]));
    }
    return rc;
}

CN_HOT
static void settle(struct bn_load *load, void *worker, const void *slot, bool committed)
{
    struct worker *w = worker;
    const struct slot *s = slot;

    (void)load;
    if (!committed)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        if ((s->touch[i].key & SB_WRITTEN) != 0)
            w->writes[s->touch[i].key & ~SB_WRITTEN]++;
    }
    if (s->delta > 0)
        w->deposited += s->delta;
    else
        w->withdrawn -= s->delta;
}

/* ---- the end ---- */

struct look {
    const struct bank *bank;
    uint32_t table; /* SAVINGS or CHECKING */
    int64_t total;
};

static void key_of(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    bn_put_be64(ret_key, index);
}

static int take_account(void *arg, uint64_t index, const void *bytes_read, size_t size)
{
    struct look *look = arg;
    const struct bn_load *load = &look->bank->base;
    const char *name = load->ops->tables[look->table];
    struct value value;
    uint64_t due = 0;

    if (bytes_read == NULL || size != sizeof(value))
        return cn_fail(CAIRN_E_STATE, "%s of account %" PRIu64 " is gone, or is none of ours", name,
            index);
    memcpy(&value, bytes_read, sizeof(value));
    for (uint32_t i = 0; i < load->threads; i++)
        due += ((const struct worker *)load->worker[i])->writes[index * 2 + look->table];
    if (value.writes != due)
        return cn_fail(CAIRN_E_STATE,
            "%s of account %" PRIu64 " was written %" PRIu64 " times, but %" PRIu64
            " transactions that write it have committed",
            name, index, value.writes, due);
    look->total += value.balance;
    return 0;
}

static int check_money(const struct bank *bank, int64_t total)
{
    int64_t loaded = 2 * (int64_t)bank->spread.accounts * INITIAL_BALANCE;
    int64_t deposited = 0, withdrawn = 0;

    for (uint32_t i = 0; i < bank->base.threads; i++) {
        deposited += ((const struct worker *)bank->base.worker[i])->deposited;
        withdrawn += ((const struct worker *)bank->base.worker[i])->withdrawn;
    }
    if (total == loaded + deposited - withdrawn)
        return 0;
    return cn_fail(CAIRN_E_STATE,
        "all accounts have %" PRId64 ", but should have %" PRId64 " loaded + %" PRId64
        " deposited - %" PRId64 " withdrawn = %" PRId64,
        total, loaded, deposited, withdrawn, loaded + deposited - withdrawn);
}

static int check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked)
{
    struct look look = {.bank = (struct bank *)load};
    struct bn_scan scan = {.count = look.bank->spread.accounts,
        .key_size = SB_KEY_SIZE,
        .value_size_max = sizeof(struct value),
        .key = key_of,
        .take = take_account,
        .arg = &look};
    int rc = 0;

    for (look.table = SAVINGS; look.table <= CHECKING && rc == 0; look.table++) {
        scan.what = load->ops->tables[look.table];
        scan.table = load->table[look.table];
        rc = bn_scan(load, ctx, &scan);
    }
    if (rc == 0)
        rc = check_money(look.bank, look.total);
    if (rc == 0)
        *ret_checked = 2 * scan.count + 1;
    return rc;
}

static const struct bn_target targets[] = {
    {.figure = "throughput_per_core", .fabric = "emu", .value = 1e6},
    {.figure = "work_requests", .fabric = "rpma", .value = 7.5, .at_most = true},
};

const struct bn_load_ops bn_smallbank = {
    .name = "smallbank",
    .summary = "SmallBank: six kinds of transactions over accounts, some of them hot.",
    .example =
        "  cairn bench smallbank --inflight 32 --participants 3\n"
        "  cairn bench smallbank --accounts 1000000 --hot-access 0 --json | jq .throughput\n",
    .tables = {[SAVINGS] = "savings", [CHECKING] = "checking"},
    .kinds = {[SB_BALANCE] = "balance",
        [SB_DEPOSIT_CHECKING] = "deposit_checking",
        [SB_TRANSACT_SAVINGS] = "transact_savings",
        [SB_AMALGAMATE] = "amalgamate",
        [SB_WRITE_CHECK] = "write_check",
        [SB_SEND_PAYMENT] = "send_payment"},
    .size = sizeof(struct bank),
    .worker_size = sizeof(struct worker),
    .slot_size = sizeof(struct slot),
    .options = options,
    .option_count = CN_ARRAY_SIZE(options) - 1,
    .setup = setup,
    .bytes = bytes,
    .load = load_accounts,
    .worker_init = worker_init,
    .worker_end = worker_end,
    .draw = draw,
    .body = body,
    .settle = settle,
    .check = check,
    .targets = targets,
    .target_count = CN_ARRAY_SIZE(targets),
};
