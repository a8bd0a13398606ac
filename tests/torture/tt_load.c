/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_load.c: the clients while the nemesis is at work; see tt_load.h. What a call returned is
 * mapped so: COMMITTED is ok; ABORTED and every error of a call is fail; UNKNOWN is what
 * cairn_resolve() says of it, or info.
 */
#include "tests/torture/tt_load.h"

#include "txn/txn_cluster.h"

#include <pthread.h>
#include <unistd.h>

#define LIST_SIZE 100u
#define LIST_MAX 1000u
#define MOPS_MAX 4u
#define RESOLVE_TRIES 40u
#define SKEW_PAUSE_US 300u

struct client {
    const struct tt_load *load;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    struct hs_history *history;
    FILE *tokens;
    struct tt_random random;
    struct tt_stepper stepper;
    uint64_t process; /* changes after each info */
};

struct mop {
    bool append;
    bool lock; /* get_for_update */
    uint64_t key;
    uint32_t slot, element;
    uint32_t list[LIST_MAX + 1], count; /* as read */
};

struct plan {
    struct mop mop[MOPS_MAX];
    uint32_t count;
};

static void bump(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static struct tt_shared *shared_of(const struct client *c)
{
    return c->load->cluster->shared;
}

/* ---- lists ---- */

/* 0: list in m->list; a key that does not exist is empty. */
static int get_list(struct cairn_tx *tx, struct mop *m)
{
    size_t size = 0;
    const int r = (m->lock ? cairn_get_for_update : cairn_get)(
        tx, TT_TABLE_LISTS, &m->key, sizeof(m->key), m->list, sizeof(m->list), &size);

    m->count = (uint32_t)(size / sizeof(uint32_t));
    if (r == CAIRN_E_NOT_FOUND)
        m->count = 0;
    return r == CAIRN_E_NOT_FOUND ? 0 : r;
}

static int put_list(struct cairn_tx *tx, const struct mop *m)
{
    uint32_t list[LIST_MAX + 1];

    if (m->count >= LIST_MAX)
        return CAIRN_E_LIMIT;
    memcpy(list, m->list, m->count * sizeof(uint32_t));
    list[m->count] = m->element;
    return cairn_put(tx, TT_TABLE_LISTS, &m->key, sizeof(m->key), list,
        (m->count + 1) * sizeof(uint32_t));
}

/* An append is recorded with the read that it is made of. */
static void record_lists(struct client *c, const struct plan *p, enum hs_type type)
{
    hs_event_begin(c->history, type, HS_F_TXN, c->process, tt_now_ns());
    for (uint32_t i = 0; i < p->count; i++) {
        const struct mop *m = &p->mop[i];
        if (type == HS_OK)
            hs_event_read(c->history, m->key, m->list, m->count);
        else
            hs_event_read(c->history, m->key, NULL, HS_UNREAD);
        if (m->append)
            hs_event_append(c->history, m->key, m->element);
    }
    hs_event_end(c->history);
}

static void plan_lists(struct client *c, struct plan *p)
{
    struct tt_shared *shared = shared_of(c);
    const bool planted = c->load->plant != TT_PLANT_NONE;

    p->count = planted ? 2 : 1 + tt_random_below(&c->random, MOPS_MAX);
    for (uint32_t i = 0; i < p->count; i++) {
        struct mop *m = &p->mop[i];
        m->slot = tt_random_below(&c->random, c->load->keys);
        m->key = __atomic_load_n(&shared->active[m->slot].key, __ATOMIC_RELAXED);
        m->append = planted ? i == 0 : tt_random_below(&c->random, 2) == 0;
        m->lock = m->append && !planted && tt_random_below(&c->random, 2) == 0;
        if (m->append)
            m->element = __atomic_add_fetch(&shared->element, 1, __ATOMIC_RELAXED);
    }
}

/* Another key takes the place of one that is full. */
static void rotate(struct client *c, const struct plan *p)
{
    struct tt_shared *shared = shared_of(c);

    for (uint32_t i = 0; i < p->count; i++) {
        const struct mop *m = &p->mop[i];
        if (!m->append ||
            __atomic_load_n(&shared->active[m->slot].key, __ATOMIC_RELAXED) != m->key ||
            __atomic_add_fetch(&shared->active[m->slot].appends, 1, __ATOMIC_RELAXED) != LIST_SIZE)
            continue;
        __atomic_store_n(&shared->active[m->slot].appends, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->active[m->slot].key,
            __atomic_fetch_add(&shared->next_key, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    }
}

static void note_token(struct client *c, const char *token, const struct plan *p)
{
    char line[512];
    int used = snprintf(line, sizeof(line), "%s", token);

    for (uint32_t i = 0; p != NULL && i < p->count; i++)
        if (p->mop[i].append)
            used += snprintf(line + used, sizeof(line) - (size_t)used, " %llu:%u",
                (unsigned long long)p->mop[i].key, p->mop[i].element);
    (void)fprintf(c->tokens, "%s\n", line);
    (void)fflush(c->tokens);
}

/* ---- outcomes ---- */

static enum hs_type resolve_unknown(struct client *c, const struct plan *p)
{
    struct tt_shared *shared = shared_of(c);
    enum cairn_outcome outcome = CAIRN_OUTCOME_UNKNOWN;
    char token[CAIRN_TOKEN_SIZE];

    bump(&shared->unknown);
    if (cairn_ctx_token(c->ctx, token) != 0) {
        (void)fprintf(stderr, "no token after UNKNOWN: %s\n", cairn_last_error());
        bump(&shared->errors);
        return HS_INFO;
    }
    note_token(c, token, p);
    if (tt_random_below(&c->random, 2) == 0)
        return HS_INFO; /* another process will ask */
    for (uint32_t i = 0; i < RESOLVE_TRIES; i++) {
        if (cairn_resolve(c->ctx, token, &outcome) == 0) {
            bump(&shared->resolved);
            return outcome == CAIRN_OUTCOME_COMMITTED ? HS_OK : HS_FAIL;
        }
        tt_sleep_us(50000);
    }
    return HS_INFO;
}

/* The type of the completion of a transaction whose body returned r. */
static enum hs_type finish(struct client *c, struct cairn_tx *tx, int r, const struct plan *p)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    char token[CAIRN_TOKEN_SIZE];

    if (r != 0) {
        cairn_abort(tx);
        return HS_FAIL;
    }
    if (p != NULL && p->mop[0].append && tt_random_below(&c->random, 10) == 0 &&
        cairn_tx_token(tx, token) == 0)
        note_token(c, token, p);
    r = cairn_commit(tx, &outcome);
    if (r != 0 || outcome == CAIRN_OUTCOME_ABORTED)
        return HS_FAIL;
    if (outcome == CAIRN_OUTCOME_UNKNOWN)
        return resolve_unknown(c, p);
    return HS_OK;
}

static void count(struct client *c, enum hs_type type)
{
    struct tt_shared *shared = shared_of(c);

    bump(type == HS_OK ? &shared->ok : type == HS_FAIL ? &shared->fail : &shared->info);
    if (type == HS_INFO)
        c->process++;
}

/* ---- list transactions ---- */

static int run_body(struct cairn_tx *tx, struct plan *p)
{
    int r = 0;

    for (uint32_t i = 0; i < p->count && r == 0; i++) {
        r = get_list(tx, &p->mop[i]);
        if (r == 0 && p->mop[i].append)
            r = put_list(tx, &p->mop[i]);
    }
    return r;
}

/* The broken client: one transaction reads, another writes. */
static enum hs_type run_planted(struct client *c, struct plan *p)
{
    const uint32_t first = c->load->plant == TT_PLANT_SKEW ? 1 : 0;
    struct cairn_tx *tx;
    enum hs_type type;
    int r;

    if (cairn_begin(c->ctx, &tx) != 0)
        return HS_FAIL;
    r = get_list(tx, &p->mop[first]);
    type = finish(c, tx, r, NULL);
    if (type != HS_OK)
        return type;
    tt_sleep_us(SKEW_PAUSE_US);
    if (cairn_begin(c->ctx, &tx) != 0)
        return HS_FAIL;
    r = first == 1 ? get_list(tx, &p->mop[0]) : get_list(tx, &p->mop[1]);
    if (r == 0)
        r = put_list(tx, &p->mop[0]);
    return finish(c, tx, r, NULL);
}

static void run_lists(struct client *c)
{
    enum hs_type type = HS_FAIL;
    struct cairn_tx *tx;
    struct plan p;

    plan_lists(c, &p);
    if (c->load->plant != TT_PLANT_NONE && p.mop[0].key == p.mop[1].key)
        return;
    record_lists(c, &p, HS_INVOKE);
    if (c->load->plant != TT_PLANT_NONE)
        type = run_planted(c, &p);
    else if (cairn_begin(c->ctx, &tx) == 0)
        type = finish(c, tx, run_body(tx, &p), &p);
    record_lists(c, &p, type);
    count(c, type);
    rotate(c, &p);
}

/* ---- bank ---- */

static int get_balance(struct cairn_tx *tx, uint64_t account, bool lock, int64_t *ret_balance)
{
    size_t size;
    const int r = (lock ? cairn_get_for_update : cairn_get)(tx, TT_TABLE_BANK, &account,
        sizeof(account), ret_balance, sizeof(*ret_balance), &size);

    if (r == 0 && size != sizeof(*ret_balance))
        return CAIRN_E_CORRUPT_ITEM;
    return r;
}

static int put_balance(struct cairn_tx *tx, uint64_t account, int64_t balance)
{
    return cairn_put(tx, TT_TABLE_BANK, &account, sizeof(account), &balance, sizeof(balance));
}

static int transfer(struct cairn_tx *tx, uint64_t from, uint64_t to, int64_t amount, bool lock)
{
    int64_t a, b;
    int r = get_balance(tx, from, lock, &a);

    if (r == 0)
        r = get_balance(tx, to, lock, &b);
    if (r == 0 && a < amount)
        r = CAIRN_E_LIMIT;
    if (r == 0)
        r = put_balance(tx, from, a - amount);
    if (r == 0)
        r = put_balance(tx, to, b + amount);
    return r;
}

static void record_transfer(struct client *c, enum hs_type type, uint64_t from, uint64_t to,
    int64_t amount)
{
    hs_event_begin(c->history, type, HS_F_TRANSFER, c->process, tt_now_ns());
    hs_event_transfer(c->history, from, (uint32_t)to, (uint64_t)amount);
    hs_event_end(c->history);
}

static void run_transfer(struct client *c)
{
    const uint64_t from = tt_random_below(&c->random, TT_ACCOUNTS);
    const uint64_t to = (from + 1 + tt_random_below(&c->random, TT_ACCOUNTS - 1)) % TT_ACCOUNTS;
    const int64_t amount = 1 + (int64_t)tt_random_below(&c->random, 30);
    const bool lock = tt_random_below(&c->random, 2) == 0;
    enum hs_type type = HS_FAIL;
    struct cairn_tx *tx;

    record_transfer(c, HS_INVOKE, from, to, amount);
    if (cairn_begin(c->ctx, &tx) == 0)
        type = finish(c, tx, transfer(tx, from, to, amount, lock), NULL);
    record_transfer(c, type, from, to, amount);
    count(c, type);
    bump(&shared_of(c)->transfers);
}

static int read_bank(struct cairn_tx *tx, int64_t balance[TT_ACCOUNTS])
{
    int r = 0;

    for (uint64_t i = 0; i < TT_ACCOUNTS && r == 0; i++)
        r = get_balance(tx, i, false, &balance[i]);
    return r;
}

static void run_bank_read(struct client *c)
{
    int64_t balance[TT_ACCOUNTS];
    enum hs_type type = HS_FAIL;
    struct cairn_tx *tx;

    hs_event_begin(c->history, HS_INVOKE, HS_F_BANK_READ, c->process, tt_now_ns());
    hs_event_end(c->history);
    if (cairn_begin(c->ctx, &tx) == 0)
        type = finish(c, tx, read_bank(tx, balance), NULL);
    hs_event_begin(c->history, type, HS_F_BANK_READ, c->process, tt_now_ns());
    for (uint64_t i = 0; i < TT_ACCOUNTS && type == HS_OK; i++)
        hs_event_balance(c->history, i, balance[i]);
    hs_event_end(c->history);
    count(c, type);
    if (type == HS_OK)
        bump(&shared_of(c)->bank_reads);
}

/* ---- processes ---- */

static FILE *open_file(
    const struct tt_load *load, uint32_t thread, const char *kind, const char *end)
{
    char path[400];

    (void)snprintf(path, sizeof(path), "%s/%s-%u-%u-%u.%s", load->cluster->dir, kind,
        load->coordinator, load->generation, thread, end);
    return fopen(path, "ae");
}

static void open_history(struct client *c, uint32_t thread)
{
    char path[400];

    (void)snprintf(path, sizeof(path), "%s/hist-%u-%u-%u.log", c->load->cluster->dir,
        c->load->coordinator, c->load->generation, thread);
    c->history = hs_history_new();
    if (hs_history_log_to(c->history, path, false) != 0)
        cn_panic(__FILE__, __LINE__, cairn_last_error());
}

struct thread_arg {
    const struct tt_load *load;
    struct cairn *cluster;
    uint32_t thread;
    pthread_t id;
};

static void *run_client(void *arg)
{
    const struct thread_arg *a = arg;
    const struct tt_load *load = a->load;
    struct client c = {.load = load, .cluster = a->cluster};

    c.process = (((uint64_t)load->generation * 16 + load->coordinator) * 16 + a->thread) << 20;
    c.random.state = cn_mix64(load->seed + c.process);
    c.tokens = open_file(load, a->thread, "tokens", "txt");
    open_history(&c, a->thread);
    CAIRN_ASSERT(c.tokens != NULL);
    tt_stepper_init(&c.stepper, load->cluster->shared, TT_NODES_MAX + load->coordinator,
        load->seed + c.process + 1);
    if (txn_ctx_open(a->cluster, &c.stepper.env, &c.ctx) != 0)
        cn_panic(__FILE__, __LINE__, cairn_last_error());
    while (__atomic_load_n(&load->cluster->shared->stop, __ATOMIC_ACQUIRE) == 0) {
        const uint32_t what = load->plant != TT_PLANT_NONE ? 0 : tt_random_below(&c.random, 10);
        if (what < 6)
            run_lists(&c);
        else if (what < 9)
            run_transfer(&c);
        else
            run_bank_read(&c);
        if (load->pause_us_max > 0)
            tt_sleep_us(tt_random_below(&c.random, load->pause_us_max));
    }
    cairn_ctx_close(&c.ctx);
    hs_history_delete(&c.history);
    (void)fclose(c.tokens);
    return NULL;
}

int tt_run_load(void *arg)
{
    static const struct cairn_options options = {
        .size = sizeof(options),
        .connect_timeout_ms = 1000,
        .op_timeout_ms = 2000,
        .cache_entries = 1u << 12,
    };
    const struct tt_load *load = arg;
    struct thread_arg thread[16];
    struct cairn *cluster;

    CAIRN_ASSERT(load->threads <= CN_ARRAY_SIZE(thread));
    if (cairn_open(load->cluster->config, &options, &cluster) != 0) {
        (void)fprintf(stderr, "cannot open the cluster: %s\n", cairn_last_error());
        return 4;
    }
    for (uint32_t i = 0; i < load->threads; i++) {
        thread[i] = (struct thread_arg){.load = load, .cluster = cluster, .thread = i};
        if (pthread_create(&thread[i].id, NULL, run_client, &thread[i]) != 0)
            return 4;
    }
    for (uint32_t i = 0; i < load->threads; i++)
        (void)pthread_join(thread[i].id, NULL);
    cairn_close(&cluster);
    return 0;
}

/* ---- set-up ---- */

static int make_accounts(struct cairn_tx *tx, void *arg)
{
    int r = 0;

    (void)arg;
    for (uint64_t i = 0; i < TT_ACCOUNTS && r == 0; i++)
        r = put_balance(tx, i, TT_BALANCE);
    return r;
}

int tt_run_setup(void *arg)
{
    struct tt_cluster *tc = arg;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    const uint64_t end = tt_now_ns() + UINT64_C(10000000000);
    int r;

    for (uint32_t i = 0; i < TT_ACTIVE_KEYS; i++)
        tc->shared->active[i].key = i + 1;
    tc->shared->next_key = TT_ACTIVE_KEYS + 1;
    if (cairn_open(tc->config, NULL, &cluster) != 0 || cairn_ctx_open(cluster, &ctx) != 0) {
        (void)fprintf(stderr, "cannot open the cluster: %s\n", cairn_last_error());
        return 4;
    }
    do
        r = cairn_run(ctx, make_accounts, NULL, 10000, NULL);
    while (r == CAIRN_E_TIMEOUT && tt_now_ns() < end); /* a machine may be slow */
    if (r != 0)
        (void)fprintf(stderr, "no accounts: %s: %s\n", cairn_error_name(r), cairn_last_error());
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return r != 0;
}
