/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_workload.c: what clients do, over the public API only: transfers between accounts, appends to
 * lists, reads of several lists, counters, private keys that come and go and change size, and pairs
 * of keys of which at most one may exist (write skew on absence).
 *
 * Every operation is tried once and recorded with its outcome: in the ledger always, in the history
 * when it is about lists or accounts. Elements of lists are unique over the run.
 */
#include "tests/sim/sim_cluster.h"

#define TABLE 1u
#define OP_LIMIT (600 * SIM_MS) /* no call may take longer, in virtual time */

struct key { char text[24]; size_t size; };

static struct key make_key(char kind, uint32_t a, uint32_t b)
{
    struct key k;

    k.size = (size_t)snprintf(k.text, sizeof(k.text), "%c%u.%u", kind, a, b);
    return k;
}

struct sim_entry *sim_entry_new(struct sim_cluster *c, enum sim_work work)
{
    struct sim_entry *e = sim_calloc(1, sizeof(*e));

    if (c->entry_count == c->entry_room) {
        c->entry_room = c->entry_room == 0 ? 64 : 2 * c->entry_room;
        c->entry = sim_realloc(c->entry, c->entry_room * sizeof(struct sim_entry *));
    }
    c->entry[c->entry_count++] = e;
    e->work = work;
    return e;
}

/* ---- one operation ---- */

struct op { /* on the client's stack */
    struct sim_client *client;
    struct sim_cluster *c;
    struct cairn_tx *tx;
    struct sim_entry *entry;
    enum ts_f f;
    bool in_history;
    /* what was read, for the history's ok */
    uint32_t read_count;
    struct { uint32_t list, count, element[SIM_LIST_SIZE_MAX]; } read[3];
    int64_t balance[SIM_ACCOUNTS_MAX];
    uint8_t buf[SIM_VALUE_MAX];
};

static bool error_is_normal(int rc)
{
    switch (rc) {
    case CAIRN_E_AGAIN:
    case CAIRN_E_CONFLICT:
    case CAIRN_E_TIMEOUT:
    case CAIRN_E_NODE_DOWN:
    case CAIRN_E_FENCED:
    case CAIRN_E_SLOTS:
    case CAIRN_E_RING_FULL:
    case CAIRN_E_POOL_FULL:
    case CAIRN_E_IN_DOUBT:
        return true;
    default:
        return false;
    }
}

/* A call failed: it must be for one of the reasons that faults explain. */
static int failed(struct op *op, const char *what, int rc)
{
    op->c->counts.errors++;
    op->client->trouble |= rc == CAIRN_E_NODE_DOWN || rc == CAIRN_E_SLOTS;
    if (!error_is_normal(rc))
        sim_fail(&op->c->sim, "%s: %s failed: %s (%s)", op->client->actor->name, what,
            cairn_error_name(rc), cairn_last_error());
    return rc;
}

static int get(struct op *op, const struct key *k, bool lock, void *buf, size_t room, size_t *size)
{
    int rc = lock ? cairn_get_for_update(op->tx, TABLE, k->text, k->size, buf, room, size)
                  : cairn_get(op->tx, TABLE, k->text, k->size, buf, room, size);

    if (rc == CAIRN_E_NOT_FOUND) {
        *size = SIZE_MAX;
        return 0;
    }
    return rc == 0 ? 0 : failed(op, lock ? "get_for_update" : "get", rc);
}

static int put(struct op *op, const struct key *k, const void *value, size_t size)
{
    int rc = cairn_put(op->tx, TABLE, k->text, k->size, value, size);

    return rc == 0 ? 0 : failed(op, "put", rc);
}

static int del(struct op *op, const struct key *k)
{
    int rc = cairn_delete(op->tx, TABLE, k->text, k->size);

    return rc == 0 ? 0 : failed(op, "delete", rc);
}

static void record(struct op *op, enum ts_type type)
{
    struct ts_history *h = op->c->history;
    const struct sim_entry *e = op->entry;

    if (!op->in_history)
        return;
    sim_heap_use(NULL); /* the history's memory is not the actor's */
    ts_event_begin(h, type, op->f, op->client->process, op->c->sim.now);
    if (op->f == TS_F_TRANSFER)
        ts_event_transfer(h, e->from, e->to, e->amount);
    else if (op->f == TS_F_BANK_READ && type == TS_OK)
        for (uint32_t i = 0; i < op->c->accounts; i++)
            ts_event_balance(h, i, op->balance[i]);
    else if (op->f == TS_F_TXN || op->f == TS_F_FINAL) {
        for (uint32_t i = 0; i < op->read_count; i++)
            ts_event_read(h, op->read[i].list, type == TS_OK ? op->read[i].element : NULL,
                type == TS_OK ? op->read[i].count : TS_UNREAD);
        for (uint32_t i = 0; e != NULL && i < e->lists; i++)
            ts_event_append(h, e->list[i], e->element[i]);
    }
    ts_event_end(h);
    sim_heap_use(&op->client->actor->heap);
}

static int read_list(struct op *op, uint32_t list, uint32_t at, bool lock)
{
    struct key k = make_key('l', list, 0);
    size_t size;
    int rc = get(op, &k, lock, op->buf, sizeof(op->buf), &size);

    if (rc != 0)
        return rc;
    op->read[at].count = size == SIZE_MAX ? 0 : (uint32_t)(size / 4);
    if (size != SIZE_MAX)
        memcpy(op->read[at].element, op->buf, size);
    return 0;
}

/* ---- bodies: 0, or the error that aborts ---- */

static int body_bank(struct op *op)
{
    struct sim_cluster *c = op->c;
    struct sim_entry *e = op->entry;
    struct key from = make_key('b', e->from, 0), to = make_key('b', e->to, 0);
    bool lock = sim_chance(&c->sim, "lock", 2, 3);
    int64_t a, b;
    size_t size;
    int rc = get(op, &from, lock, &a, sizeof(a), &size);

    if (rc == 0)
        rc = get(op, &to, lock, &b, sizeof(b), &size);
    if (rc != 0)
        return rc;
    if (size != sizeof(b)) {
        sim_fail(&c->sim, "an account is gone");
        return CAIRN_E_NOT_FOUND;
    }
    a -= e->amount;
    b += e->amount;
    rc = put(op, &from, &a, sizeof(a));
    return rc != 0 ? rc : put(op, &to, &b, sizeof(b));
}

static int body_bank_read(struct op *op)
{
    for (uint32_t i = 0; i < op->c->accounts; i++) {
        struct key k = make_key('b', i, 0);
        size_t size;
        int rc = get(op, &k, false, &op->balance[i], sizeof(op->balance[i]), &size);
        if (rc != 0)
            return rc;
        if (size != sizeof(op->balance[i]))
            sim_fail(&op->c->sim, "account %u is gone", i);
    }
    return 0;
}

static int body_append(struct op *op)
{
    struct sim_entry *e = op->entry;

    for (uint32_t i = 0; i < e->lists; i++) {
        struct key k = make_key('l', e->list[i], 0);
        bool lock = sim_chance(&op->c->sim, "lock", 1, 2);
        int rc = read_list(op, e->list[i], i, lock);
        if (rc != 0)
            return rc;
        uint32_t n = op->read[i].count;
        if (n + 1 >= SIM_LIST_SIZE_MAX)
            return CAIRN_E_CONFLICT;
        op->read[i].element[n] = e->element[i]; /* behind what is recorded as read */
        rc = put(op, &k, op->read[i].element, 4 * ((size_t)n + 1));
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int body_read(struct op *op)
{
    for (uint32_t i = 0; i < op->read_count; i++) {
        int rc = read_list(op, op->read[i].list, i, false);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int body_counter(struct op *op)
{
    struct key k = make_key('c', op->entry->from, 0);
    uint64_t v = 0;
    size_t size;
    int rc = get(op, &k, sim_chance(&op->c->sim, "lock", 1, 2), &v, sizeof(v), &size);

    if (rc != 0)
        return rc;
    v += op->entry->amount;
    return put(op, &k, &v, sizeof(v));
}

static int body_churn(struct op *op)
{
    struct sim_entry *e = op->entry;
    struct key k = make_key('p', e->client, e->key);
    size_t size;

    if (sim_chance(&op->c->sim, "churn-read", 1, 2)) {
        int rc = get(
            op, &k, sim_chance(&op->c->sim, "lock", 1, 2), op->buf, sizeof(op->buf), &size);
        if (rc != 0)
            return rc;
    }
    if (e->unique == 0)
        return del(op, &k);
    memset(op->buf, (int)(e->unique & 0xff), e->size);
    memcpy(op->buf, &e->unique, 4);
    return put(op, &k, op->buf, e->size);
}

static int body_skew(struct op *op)
{
    struct sim_entry *e = op->entry;
    struct key k[2] = {make_key('s', e->key, 0), make_key('s', e->key, 1)};
    size_t size[2];

    for (uint32_t i = 0; i < 2; i++) {
        int rc = get(op, &k[i], false, op->buf, sizeof(op->buf), &size[i]);
        if (rc != 0)
            return rc;
    }
    if (size[0] == SIZE_MAX && size[1] == SIZE_MAX)
        return put(op, &k[e->from], &e->unique, 4);
    return del(op, &k[size[0] == SIZE_MAX ? 1 : 0]);
}

/* ---- the frame around a body ---- */

static void settle(struct op *op, enum sim_entry_state state)
{
    struct sim_cluster *c = op->c;
    static const enum ts_type types[] = {TS_INFO, TS_OK, TS_FAIL, TS_INFO};

    if (op->entry != NULL)
        op->entry->state = state;
    record(op, types[state]);
    if (state == SIM_UNKNOWN && op->in_history)
        op->client->process = ++c->next_process;
    c->counts.committed += state == SIM_COMMITTED;
    c->counts.aborted += state == SIM_ABORTED;
    c->counts.unknown += state == SIM_UNKNOWN;
}

static enum sim_entry_state resolve_now(struct op *op)
{
    struct sim_cluster *c = op->c;
    enum cairn_outcome outcome;

    for (uint32_t i = 0; i < 2; i++) {
        int rc = cairn_resolve(op->client->ctx, op->entry->token, &outcome);
        if (rc == 0) {
            c->counts.resolved_committed += outcome == CAIRN_OUTCOME_COMMITTED;
            c->counts.resolved_aborted += outcome == CAIRN_OUTCOME_ABORTED;
            return outcome == CAIRN_OUTCOME_COMMITTED ? SIM_COMMITTED : SIM_ABORTED;
        }
        (void)failed(op, "resolve", rc);
        sim_sleep(&c->sim, c->sim.now + SIM_MS);
    }
    return SIM_UNKNOWN;
}

static enum sim_entry_state commit(struct op *op)
{
    struct sim_cluster *c = op->c;
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    int rc = cairn_commit(op->tx, &outcome);

    if (rc != 0) {
        (void)failed(op, "commit", rc);
        if (outcome != CAIRN_OUTCOME_ABORTED)
            sim_fail(&c->sim, "commit failed with %s and outcome %s", cairn_error_name(rc),
                cairn_outcome_name(outcome));
        return SIM_ABORTED;
    }
    if (outcome == CAIRN_OUTCOME_COMMITTED && op->entry != NULL)
        op->entry->acked = true;
    if (outcome != CAIRN_OUTCOME_UNKNOWN)
        return outcome == CAIRN_OUTCOME_COMMITTED ? SIM_COMMITTED : SIM_ABORTED;
    sim_trace(&c->sim, "UNKNOWN");
    if (op->entry == NULL) {
        sim_fail(&c->sim, "a read-only transaction came out UNKNOWN");
        return SIM_ABORTED;
    }
    rc = cairn_ctx_token(op->client->ctx, op->entry->token);
    if (rc != 0) {
        sim_fail(&c->sim, "UNKNOWN and no token: %s", cairn_error_name(rc));
        return SIM_UNKNOWN;
    }
    return sim_chance(&c->sim, "resolve-now", 1, 2) ? resolve_now(op) : SIM_UNKNOWN;
}

static enum sim_entry_state run_body(struct op *op, int (*body)(struct op *))
{
    struct sim_cluster *c = op->c;
    int rc = cairn_begin(op->client->ctx, &op->tx);

    if (rc != 0) {
        (void)failed(op, "begin", rc);
        return SIM_ABORTED;
    }
    rc = body(op);
    if (rc == 0 && sim_chance(&c->sim, "abort", 1, 16))
        rc = CAIRN_E_CONFLICT;
    if (rc == 0 && op->entry != NULL && sim_chance(&c->sim, "token", 1, 4)) {
        char token[CAIRN_TOKEN_SIZE];
        rc = cairn_tx_token(op->tx, token);
        if (rc == CAIRN_E_STATE)
            rc = 0; /* it has written nothing in the end */
        else if (rc == 0)
            memcpy(op->entry->token, token, sizeof(token));
        else
            (void)failed(op, "token", rc);
    }
    if (rc == 0)
        return commit(op);
    cairn_abort(op->tx);
    return SIM_ABORTED;
}

static void run_op(struct op *op, int (*body)(struct op *))
{
    struct sim_client *client = op->client;
    struct sim_cluster *c = op->c;
    uint64_t begun = c->sim.now;

    c->counts.ops++;
    client->entry = op->entry;
    record(op, TS_INVOKE);
    enum sim_entry_state state = run_body(op, body);
    settle(op, state);
    client->entry = NULL;
    sim_trace(&c->sim, "operation %u ends: %u", op->entry != NULL ? op->entry->work : 99u, state);
    if (c->sim.now - begun > OP_LIMIT && client->actor->paused_until == 0)
        sim_fail(&c->sim, "an operation of %s took %lu virtual ms", client->actor->name,
            (c->sim.now - begun) / SIM_MS);
}

static struct op *op_new(struct sim_client *client, enum sim_work work, bool writes)
{
    struct op *op = sim_calloc(1, sizeof(*op));

    client->op = op; /* freed by a crash otherwise */
    op->client = client;
    op->c = client->cluster;
    if (writes)
        op->entry = sim_entry_new(op->c, work);
    return op;
}

static void op_delete(struct op *op)
{
    op->client->op = NULL;
    sim_free(op);
}

static void once_bank(struct op *op)
{
    struct sim *sim = &op->c->sim;

    op->in_history = true;
    if (op->entry == NULL) {
        op->f = TS_F_BANK_READ;
        run_op(op, body_bank_read);
        return;
    }
    op->f = TS_F_TRANSFER;
    op->entry->from = sim_choose(sim, "from", op->c->accounts);
    op->entry->to = (op->entry->from + 1 + sim_choose(sim, "to", op->c->accounts - 1)) %
        op->c->accounts;
    op->entry->amount = 1 + sim_choose(sim, "amount", 9);
    run_op(op, body_bank);
}

static void draw_lists(struct op *op, uint32_t count)
{
    struct sim *sim = &op->c->sim;
    uint32_t first = sim_choose(sim, "list", op->c->lists);
    uint32_t step = op->c->lists > 2 ? 1 + sim_choose(sim, "list-step", op->c->lists - 2) : 1;

    if (count * step > op->c->lists)
        step = 1;
    op->read_count = count < op->c->lists ? count : op->c->lists;
    for (uint32_t i = 0; i < op->read_count; i++)
        op->read[i].list = (first + i * step) % op->c->lists;
}

static void once_lists(struct op *op)
{
    draw_lists(op, 1 + sim_choose(&op->c->sim, "list-count", 3));
    op->in_history = true;
    op->f = TS_F_TXN;
    if (op->entry == NULL) {
        run_op(op, body_read);
        return;
    }
    op->entry->lists = op->read_count;
    for (uint32_t i = 0; i < op->read_count; i++) {
        op->entry->list[i] = op->read[i].list;
        op->entry->element[i] = ++op->c->next_element;
    }
    run_op(op, body_append);
}

static void once_private(struct op *op)
{
    struct sim *sim = &op->c->sim;
    static const uint32_t sizes[] = {4, 24, 60, 200, 500, 900};

    op->entry->client = op->client->index;
    op->entry->key = sim_choose(sim, "private", op->c->privates);
    op->entry->unique = sim_chance(sim, "private-delete", 1, 3) ? 0 : ++op->c->next_element;
    op->entry->size = sizes[sim_choose(sim, "size", CN_ARRAY_SIZE(sizes))];
    run_op(op, body_churn);
}

void sim_work_once(struct sim_client *client)
{
    struct sim_cluster *c = client->cluster;
    struct sim *sim = &c->sim;
    enum sim_work work;

    do
        work = sim_choose(sim, "which", SIM_WORK_COUNT);
    while ((c->work >> work & 1) == 0);
    bool writes = work == SIM_WORK_READ ? false
        : work == SIM_WORK_BANK         ? sim_chance(sim, "transfer", 3, 4)
                                        : true;
    struct op *op = op_new(client, work, writes);
    switch (work) {
    case SIM_WORK_BANK:
        once_bank(op);
        break;
    case SIM_WORK_APPEND:
    case SIM_WORK_READ:
        once_lists(op);
        break;
    case SIM_WORK_COUNTER:
        op->entry->from = sim_choose(sim, "counter", c->counters);
        op->entry->amount = 1;
        run_op(op, body_counter);
        break;
    case SIM_WORK_CHURN:
        once_private(op);
        break;
    default:
        op->entry->key = sim_choose(sim, "pair", c->pairs);
        op->entry->from = sim_choose(sim, "pair-side", 2);
        op->entry->unique = ++c->next_element;
        run_op(op, body_skew);
        break;
    }
    op_delete(op);
}

/* ---- set-up and final reads ---- */

/* Until it commits; false: not in a hundred tries. */
static bool insist(struct op *op, int (*body)(struct op *), const char *what)
{
    struct sim *sim = &op->c->sim;

    for (uint32_t i = 0; i < 100 && !sim->stop; i++) {
        int rc = cairn_begin(op->client->ctx, &op->tx);
        enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
        if (rc == 0) {
            rc = body(op);
            if (rc != 0)
                cairn_abort(op->tx);
            else
                rc = cairn_commit(op->tx, &outcome);
        }
        if (rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
            return true;
        if (rc != 0)
            (void)failed(op, what, rc);
        sim_sleep(sim, sim->now + 2 * SIM_MS);
    }
    sim_fail(sim, "liveness: %s does not get through (%s)", what, cairn_last_error());
    return false;
}

static int body_open_accounts(struct op *op)
{
    int64_t balance = SIM_BALANCE0;

    for (uint32_t i = 0; i < op->c->accounts; i++) {
        struct key k = make_key('b', i, 0);
        int rc = put(op, &k, &balance, sizeof(balance));
        if (rc != 0)
            return rc;
    }
    return 0;
}

void sim_work_setup(struct sim_client *client)
{
    struct op *op = op_new(client, SIM_WORK_BANK, false);

    (void)insist(op, body_open_accounts, "opening the accounts");
    op_delete(op);
}

static void resolve_ledger(struct op *op)
{
    struct sim_cluster *c = op->c;

    for (uint32_t i = 0; i < c->entry_count && !c->sim.stop; i++) {
        struct sim_entry *e = c->entry[i];
        if ((e->state != SIM_UNKNOWN && e->state != SIM_PENDING) || e->token[0] == '\0')
            continue;
        op->entry = e;
        for (uint32_t tries = 0; tries < 20 && !c->sim.stop; tries++) {
            enum sim_entry_state state = resolve_now(op);
            if (state != SIM_UNKNOWN) {
                e->state = state;
                break;
            }
        }
        if (e->state == SIM_UNKNOWN || e->state == SIM_PENDING)
            sim_fail(&c->sim, "liveness: no verdict on %s: %s", e->token, cairn_last_error());
        op->entry = NULL;
    }
}

static int body_final_counters(struct op *op)
{
    struct sim_cluster *c = op->c;
    size_t size;

    for (uint32_t i = 0; i < c->counters; i++) {
        struct key k = make_key('c', i, 0);
        uint64_t v = 0;
        int rc = get(op, &k, false, &v, sizeof(v), &size);
        if (rc != 0)
            return rc;
        c->counter[i] = v;
    }
    for (uint32_t i = 0; i < c->pairs * 2; i++) {
        struct key k = make_key('s', i / 2, i % 2);
        int rc = get(op, &k, false, op->buf, sizeof(op->buf), &size);
        if (rc != 0)
            return rc;
        c->pair_present[i / 2][i % 2] = size != SIZE_MAX;
    }
    return 0;
}

static int body_final_private(struct op *op)
{
    struct sim_cluster *c = op->c;

    for (uint32_t i = 0; i < c->client_count * c->privates; i++) {
        struct key k = make_key('p', i / c->privates, i % c->privates);
        uint32_t *unique = &c->private_unique[i / c->privates][i % c->privates];
        size_t size;
        int rc = get(op, &k, false, op->buf, sizeof(op->buf), &size);
        if (rc != 0)
            return rc;
        *unique = 0;
        if (size == SIZE_MAX)
            continue;
        memcpy(unique, op->buf, 4);
        for (size_t j = 4; j < size; j++)
            if (op->buf[j] != (*unique & 0xff))
                sim_fail(&c->sim, "a value is mixed: %s byte %zu", k.text, j);
    }
    return 0;
}

static void final_lists(struct op *op)
{
    struct sim_cluster *c = op->c;

    for (uint32_t i = 0; i < c->lists && !c->sim.stop; i++) {
        op->f = TS_F_FINAL;
        op->in_history = true;
        op->read_count = 1;
        op->read[0].list = i;
        record(op, TS_INVOKE);
        if (!insist(op, body_read, "a final read"))
            return;
        record(op, TS_OK);
        c->list[i].known = true;
        c->list[i].count = op->read[0].count;
        memcpy(c->list[i].element, op->read[0].element, 4 * (size_t)op->read[0].count);
    }
}

void sim_work_final(struct sim_client *client)
{
    struct op *op = op_new(client, SIM_WORK_READ, false);
    struct sim_cluster *c = client->cluster;

    resolve_ledger(op);
    op->in_history = true;
    op->f = TS_F_BANK_READ;
    record(op, TS_INVOKE);
    if (!c->sim.stop && insist(op, body_bank_read, "a final read")) {
        record(op, TS_OK);
        memcpy(c->balance, op->balance, sizeof(c->balance));
    }
    op->in_history = false;
    if (!c->sim.stop)
        (void)insist(op, body_final_counters, "a final read");
    if (!c->sim.stop)
        (void)insist(op, body_final_private, "a final read");
    final_lists(op);
    op_delete(op);
}
