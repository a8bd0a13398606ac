/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_body.c: what the clients of a small run do. The first sets up what the case says was
 * there, moves the log's end where the case wants it, and waits until everything is quiet; each
 * other makes itself known to the nodes; then all run their transactions.
 */
#include "tools/crash/explore/cr_enum_run.h"

#define TABLE 1u
#define TRIES_MAX 200u
#define RETRIES_MAX 20u /* of a transaction that met another */
#define STILL_FIRST 24u

static void fail(struct cr_small_client *client, const char *what, int rc)
{
    sim_fail(&client->run->sim, "%s: %s: %s (%s)", client->actor->name, what,
        cairn_error_name(rc), cairn_last_error());
}

static void nap(struct cr_small_client *client)
{
    sim_sleep(&client->run->sim, client->run->sim.now + SIM_MS);
}

static void await_quiet(struct cr_small_client *client)
{
    nap(client);
    for (uint32_t i = 0; i < TRIES_MAX && !cr_small_is_quiet(client->run); i++)
        nap(client);
}

/* ---- setting up ---- */

static int put_all(struct cr_small_client *client, struct cairn_tx *tx)
{
    struct cr_small *run = client->run;
    uint8_t value[CR_SMALL_STILL_MAX];
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < run->c->key_count; i++) {
        if (!run->c->present[i])
            continue;
        uint32_t size = cr_small_value(run, i, CR_VALUE_FIRST, value);
        rc = cairn_put(tx, TABLE, run->key[i], strlen(run->key[i]), value, size);
    }
    for (uint32_t i = 0; rc == 0 && i < run->c->node_count; i++) {
        struct cr_small_node *n = &run->node[i];
        n->still_size = STILL_FIRST;
        uint32_t size = cr_small_still(n, value);
        rc = cairn_put(tx, TABLE, n->still, strlen(n->still), value, size);
    }
    return rc;
}

/* One put of a node's still key. */
static int put_still(struct cr_small_client *client, struct cairn_tx *tx, uint32_t at)
{
    struct cr_small_node *n = &client->run->node[at];
    uint8_t value[CR_SMALL_STILL_MAX];
    uint32_t size = cr_small_still(n, value);

    return cairn_put(tx, TABLE, n->still, strlen(n->still), value, size);
}

/* All of it, or the still key of one node: again until it is committed. */
static void insist(struct cr_small_client *client, int at)
{
    int rc = 0;

    for (uint32_t i = 0; i < TRIES_MAX && !client->run->sim.stop; i++) {
        enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
        struct cairn_tx *tx;
        rc = cairn_begin(client->ctx, &tx);
        if (rc == 0) {
            rc = at < 0 ? put_all(client, tx) : put_still(client, tx, (uint32_t)at);
            if (rc != 0)
                cairn_abort(tx);
            else
                rc = cairn_commit(tx, &outcome);
            if (rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
                return;
        }
        nap(client);
    }
    fail(client, "set-up", rc);
}

/* Where the next record of the first client goes in a node's ring: behind the last one applied. */
static uint64_t log_end(const struct cr_small_node *n)
{
    struct pm_pool look = n->pm_pool;
    struct pm_slot slot;

    look.pm.tracer = NULL;
    look.pm.read_only = true;
    for (uint16_t s = 1; s < look.super.geometry.slot_count; s++)
        if (pm_slot_load(&look, s, &slot) == 0 && slot.state == PM_SLOT_OPEN)
            return slot.position_off % look.super.geometry.ring_size;
    return 0;
}

/*
 * Put the still key with values of such sizes that the log ends `before_end` units before the
 * ring's end. The record of an update has a fixed part and the value; one that changes class is
 * longer; so the sizes are tried: what matters is where it ends, which is looked up.
 */
static void turn_log(struct cr_small_client *client, uint32_t at)
{
    struct cr_small *run = client->run;
    struct cr_small_node *n = &run->node[at];
    uint64_t ring = run->config.geometry.ring_size;
    uint64_t goal = (ring - run->c->before_end * PM_RECORD_ALIGN) % ring;

    for (uint32_t i = 0; i < TRIES_MAX && !run->sim.stop; i++) {
        uint64_t left = (goal + ring - log_end(n)) % ring;
        if (left == 0)
            return;
        /* 256 bytes is what an update of a small value takes; 64 more per line of value. */
        uint64_t step = left < 2 * 256 ? left : left < 3 * 256 ? 256 : cn_min64(left - 256, 512);
        n->still_round++;
        n->still_size = step >= 320 ? STILL_FIRST + (uint32_t)(step - 256) : STILL_FIRST;
        insist(client, (int)at);
        await_quiet(client);
    }
    if (!run->sim.stop)
        sim_fail(&run->sim, "the log of node %u does not end %u units before the ring's end",
            at + 1, run->c->before_end);
}

static void set_up(struct cr_small_client *client)
{
    struct cr_small *run = client->run;

    insist(client, -1);
    await_quiet(client);
    for (uint32_t i = 0; run->c->turned && i < run->c->node_count; i++)
        turn_log(client, i);
}

/* Read a key of each node, so that there is a connection, and an index is known. */
static void warm_up(struct cr_small_client *client)
{
    struct cr_small *run = client->run;
    uint8_t buf[CR_SMALL_STILL_MAX];
    int rc = 0;

    for (uint32_t i = 0; i < TRIES_MAX && !run->sim.stop; i++) {
        enum cairn_outcome outcome;
        struct cairn_tx *tx;
        size_t size;
        rc = cairn_begin(client->ctx, &tx);
        for (uint32_t k = 0; rc == 0 && k < run->c->node_count; k++)
            rc = cairn_get(tx, TABLE, run->node[k].still, strlen(run->node[k].still), buf,
                sizeof(buf), &size);
        if (rc == 0 && cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
            return;
        if (rc != 0)
            cairn_abort(tx);
        nap(client);
    }
    fail(client, "warming up", rc);
}

/* ---- the transactions ---- */

static int read_one(struct cr_small_client *client, struct cairn_tx *tx, uint32_t t, uint32_t i)
{
    struct cr_small *run = client->run;
    uint32_t key = run->c->tx[t].op[i].key;
    uint8_t buf[CR_SMALL_STILL_MAX], value[CR_SMALL_VALUE_LARGE];
    size_t size;
    int rc = cairn_get(
        tx, TABLE, run->key[key], strlen(run->key[key]), buf, sizeof(buf), &size);

    if (rc == CAIRN_E_NOT_FOUND) {
        run->progress[t].seen[i] = 0;
        return 0;
    }
    if (rc != 0)
        return rc;
    for (uint32_t id = CR_VALUE_FIRST; id < cr_value_of(run->c->tx_count, 0); id++) {
        if (cr_small_value(run, key, id, value) == size && memcmp(value, buf, size) == 0) {
            run->progress[t].seen[i] = id;
            return 0;
        }
    }
    sim_fail(&run->sim, "key %c read as %zu bytes that nobody wrote", 'a' + (int)key, size);
    return 0;
}

static int do_op(struct cr_small_client *client, struct cairn_tx *tx, uint32_t t, uint32_t i)
{
    struct cr_small *run = client->run;
    const struct cr_case_op *op = &run->c->tx[t].op[i];
    uint8_t value[CR_SMALL_VALUE_LARGE];
    const char *key = run->key[op->key];

    if (op->kind == CR_OP_READ)
        return read_one(client, tx, t, i);
    if (op->kind == CR_OP_DELETE)
        return cairn_delete(tx, TABLE, key, strlen(key));
    uint32_t size = cr_small_value(run, op->key, cr_value_of(t, i), value);
    return cairn_put(tx, TABLE, key, strlen(key), value, size);
}

static void commit(struct cr_small_client *client, struct cairn_tx *tx, uint32_t t)
{
    struct cr_small *run = client->run;
    struct cr_progress *p = &run->progress[t];
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    char before[CAIRN_TOKEN_SIZE];

    cr_discipline_before(client->ctx, before);
    cr_small_look(run, "commit"); /* the last moment at which it surely has no effect */
    p->phase = CR_TX_COMMITTING;
    int rc = cairn_commit(tx, &outcome);
    if (rc != 0 || outcome == CAIRN_OUTCOME_ABORTED) {
        p->phase = CR_TX_ABORTED;
        if (run->c->tx_count == 1)
            fail(client, "a transaction that is alone does not commit", rc);
    } else if (outcome == CAIRN_OUTCOME_COMMITTED) {
        p->phase = CR_TX_COMMITTED;
        p->ended = ++run->clock;
        (void)!cr_discipline_acked(
            run->discipline, client->ctx, &run->config.cluster, before);
    }
}

/* What comes out is in its progress. An error of one of the calls aborts. */
static void try_tx(struct cr_small_client *client, uint32_t t)
{
    struct cr_small *run = client->run;
    struct cr_progress *p = &run->progress[t];
    struct cairn_tx *tx;

    *p = (struct cr_progress){.phase = CR_TX_ACTIVE, .begun = ++run->clock};
    for (uint32_t i = 0; i < CR_CASE_OPS; i++)
        p->seen[i] = CR_VALUE_UNREAD;
    int rc = cairn_begin(client->ctx, &tx);
    if (rc != 0) {
        p->phase = CR_TX_ABORTED;
        return;
    }
    for (uint32_t i = 0; rc == 0 && i < run->c->tx[t].count; i++)
        rc = do_op(client, tx, t, i);
    if (rc == 0) {
        commit(client, tx, t);
        return;
    }
    cairn_abort(tx);
    p->phase = CR_TX_ABORTED;
    if (run->c->tx_count == 1)
        fail(client, "a transaction that is alone fails", rc);
}

static void run_txs(struct cr_small_client *client)
{
    struct cr_small *run = client->run;

    for (uint32_t t = 0; t < run->c->tx_count && !run->sim.stop; t++) {
        if (run->c->tx[t].client != client->index)
            continue;
        if (run->c->dies && client->index == 0)
            run->sim.plan[0] = (struct sim_plan){.role = SIM_CLIENT, .actor = client->actor->id,
                .step = run->c->death, .occurrence = run->c->death_nth, .kind = SIM_CRASH_PROCESS};
        for (uint32_t i = 0; i <= RETRIES_MAX; i++) {
            try_tx(client, t);
            if (run->progress[t].phase != CR_TX_ABORTED || run->sim.stop)
                break;
            sim_sleep(&run->sim, run->sim.now + (1 + i) * sim_delay(&run->sim, "retry"));
        }
        if (run->progress[t].phase == CR_TX_ABORTED && !run->sim.stop)
            sim_fail(&run->sim, "liveness: transaction %u is aborted each time", t + 1);
    }
}

/* What the survivors see must be allowed as well, and nobody's write may be missing from it. */
static void read_back(struct cr_small_client *client)
{
    struct cr_small *run = client->run;
    uint32_t state[CR_CASE_KEYS] = {0};
    char text[400];

    for (uint32_t i = 0; i < run->c->key_count && !run->sim.stop; i++) {
        uint8_t buf[CR_SMALL_STILL_MAX], value[CR_SMALL_VALUE_LARGE];
        struct cairn_tx *tx;
        size_t size = 0;
        int rc = cairn_begin(client->ctx, &tx);
        if (rc == 0) {
            rc = cairn_get(tx, TABLE, run->key[i], strlen(run->key[i]), buf, sizeof(buf), &size);
            cairn_abort(tx);
        }
        if (rc != 0 && rc != CAIRN_E_NOT_FOUND)
            fail(client, "reading back", rc);
        state[i] = rc == 0 ? UINT32_MAX : 0;
        for (uint32_t id = CR_VALUE_FIRST; rc == 0 && id < cr_value_of(run->c->tx_count, 0); id++)
            if (cr_small_value(run, i, id, value) == size && memcmp(value, buf, size) == 0)
                state[i] = id;
    }
    if (run->sim.stop || cr_case_allows(run->c, run->progress, state))
        return;
    cr_case_tell(run->c, run->progress, state, text, sizeof(text));
    sim_fail(&run->sim, "read back, no serial order gives this: %s", text);
}

/* ---- actors ---- */

/*
 * What setting up left dirty (second copies of slot headers, published positions) is evicted: it
 * would multiply the images of every moment, and has nothing to do with the transaction. Pairs and
 * rings keep it.
 */
static void evict(struct cr_small *run)
{
    for (uint32_t i = 0; i < run->c->node_count; i++)
        sim_pool_settle(run->pool[i]);
}

/* Nobody begins before the others are warm, then all at about the same time; the successor of one
 * that dies does not wait. */
static void await_others(struct cr_small_client *client)
{
    struct cr_small *run = client->run;
    struct sim *sim = &run->sim;
    uint32_t together = run->c->dies ? 1 : run->c->client_count;

    run->ready++;
    while (run->ready < together && !sim->stop)
        nap(client);
    if (run->ready > together)
        return;
    if (client->index == 0) {
        await_quiet(client);
        if (run->c->set == CR_ENUM_SINGLES)
            evict(run);
        run->exploring = true;
        run->begin_ns = sim->now + 2 * SIM_MS;
    }
    while (run->begin_ns == 0 && !sim->stop)
        nap(client);
    sim_sleep(sim, run->begin_ns + sim_delay(sim, "begin"));
}

void cr_small_client_main(struct sim_actor *actor)
{
    struct cr_small_client *client = actor->arg;
    struct cr_small *run = client->run;
    bool successor = run->c->dies && client->index > 0;

    while (successor && !run->client[0].dead && !run->client[0].finished && !run->sim.stop)
        nap(client);
    while (!successor && client->index > 0 && run->ready == 0 && !run->sim.stop)
        nap(client);
    int rc = txn_ctx_open(run->cairn, &actor->env, &client->ctx);
    if (rc != 0) {
        fail(client, "context", rc);
        return;
    }
    if (client->index == 0)
        set_up(client);
    else
        warm_up(client);
    await_others(client);
    run_txs(client);
    if (run->c->client_count == 1 || client->index > 0) {
        await_quiet(client);
        if (run->c->client_count == 1 || run->client[0].finished || run->client[0].dead)
            read_back(client);
    }
    if (run->c->client_count > 1)
        cairn_ctx_close(&client->ctx);
    client->finished = true;
    while (run->c->client_count == 1 && !run->sim.stop)
        nap(client); /* its slot stays open until all have looked */
}

void cr_small_client_abandon(struct sim_actor *actor)
{
    struct cr_small_client *client = actor->arg;

    if (client->ctx != NULL)
        txn_ctx_abandon(&client->ctx);
}
