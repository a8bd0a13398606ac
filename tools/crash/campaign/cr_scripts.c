/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_scripts.c: scripts of clients that keep to the protocol. What several clients share lies in
 * cr_cluster.shared, which a run begins with zeroes.
 */
#include "tools/crash/campaign/cr_scripts_internal.h"

#include "txn/txn_cache.h"
#include "txn/txn_ctx.h"

#include <stdio.h>

#define ROUNDS 12u
#define PATIENCE (10 * SIM_MS) /* half of what get_for_update waits that holds nothing */

static void nap(struct cr_client *client, const char *label)
{
    struct sim *sim = &client->cluster->sim;

    sim_sleep(sim, sim->now + sim_choose(sim, label, 12) * SIM_US);
}

/* Until the others have come so far; false: they do not. */
static bool meet(struct cr_client *client, uint64_t *mine, uint64_t *other, uint64_t round)
{
    struct sim *sim = &client->cluster->sim;
    uint64_t limit = sim->now + 500 * SIM_MS;

    *mine = round;
    while (*other < round && sim->now < limit && !sim->stop)
        sim_sleep(sim, sim->now + SIM_US);
    return *other >= round;
}

bool cr_script_put(struct cr_client *client, const char *key, const void *value, size_t size)
{
    struct sim *sim = &client->cluster->sim;
    enum cairn_outcome outcome;
    struct cairn_tx *tx;

    for (uint32_t tries = 0; tries < 100 && !sim->stop; tries++) {
        if (cairn_begin(client->ctx, &tx) == 0) {
            if (cairn_put(tx, CR_SCRIPT_TABLE, key, strlen(key), value, size) != 0)
                cairn_abort(tx);
            else if (cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
                return true;
        }
        sim_sleep(sim, sim->now + 100 * SIM_US);
    }
    return false;
}

int cr_script_get(struct cairn_tx *tx, const char *key, bool lock)
{
    uint8_t buf[512];
    size_t size;

    return lock ? cairn_get_for_update(
                      tx, CR_SCRIPT_TABLE, key, strlen(key), buf, sizeof(buf), &size)
                : cairn_get(tx, CR_SCRIPT_TABLE, key, strlen(key), buf, sizeof(buf), &size);
}

/* ---- twins ---- */

static void insert_twin(struct cr_client *client, const char *own, const char *other)
{
    enum cairn_outcome outcome;
    struct cairn_tx *tx;

    if (cairn_begin(client->ctx, &tx) != 0)
        return;
    int rc = cr_script_get(tx, other, false);
    nap(client, "twin-between");
    if (rc == CAIRN_E_NOT_FOUND)
        rc = cr_script_get(tx, own, false);
    if (rc == CAIRN_E_NOT_FOUND && cairn_put(tx, CR_SCRIPT_TABLE, own, strlen(own), "v", 1) == 0)
        (void)!cairn_commit(tx, &outcome);
    else
        cairn_abort(tx);
}

static void count_twins(struct cr_client *client, const char *own, const char *other)
{
    enum cairn_outcome outcome;
    struct cairn_tx *tx;

    if (cairn_begin(client->ctx, &tx) != 0)
        return;
    int a = cr_script_get(tx, own, false), b = cr_script_get(tx, other, false);
    if (cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED && a == 0 && b == 0)
        sim_fail(&client->cluster->sim, "twins: %s and %s were both inserted, each by who saw that "
                 "the other is not there", own, other);
}

void cr_script_twins(struct cr_client *client)
{
    uint64_t *shared = client->cluster->shared;
    uint32_t me = client->index;
    char key[2][16];

    for (uint32_t round = 1; round <= ROUNDS && me < 2; round++) {
        for (uint32_t i = 0; i < 2; i++)
            (void)snprintf(key[i], sizeof(key[i]), "t%u.%u", round, i);
        if (!meet(client, &shared[me], &shared[1 - me], 2 * round - 1))
            return;
        nap(client, "twin-start");
        insert_twin(client, key[me], key[1 - me]);
        if (!meet(client, &shared[me], &shared[1 - me], 2 * round))
            return;
        count_twins(client, key[me], key[1 - me]);
    }
}

/* ---- mover ---- */

enum { MOVES, OVER };
#define OTHERS 24u
#define SMALL 20u
#define LARGE 460u
#define AWAY (4 * SIM_MS)

/* The key of a move. Nothing is known of where it is, and it is read. */
static void look_for_it(struct cr_client *client, const char *key)
{
    struct cr_cluster *c = client->cluster;
    enum cairn_outcome outcome;
    struct cairn_tx *tx;

    if (cairn_begin(client->ctx, &tx) != 0)
        return;
    if (cr_script_get(tx, key, false) == 0)
        txn_cache_drop(c->cairn->cache, client->ctx->peer[tx->key[0].peer].node,
            tx->key[0].table, tx->key[0].hash);
    cairn_abort(tx);
    if (cairn_begin(client->ctx, &tx) != 0)
        return;
    int rc = cr_script_get(tx, key, false);
    if (rc != CAIRN_E_NOT_FOUND)
        cairn_abort(tx);
    else if (cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
        sim_fail(&c->sim, "mover: %s, which always exists, was not found", key);
}

/* Others come to where the key has been. */
static void put_others(struct cr_client *client)
{
    static const uint8_t value[SMALL];
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    char key[16];

    for (uint32_t i = 0; i < OTHERS; i++) {
        (void)snprintf(key, sizeof(key), "m%u", i);
        if (cairn_begin(client->ctx, &tx) != 0)
            return;
        if (cairn_delete(tx, CR_SCRIPT_TABLE, key, strlen(key)) == 0)
            (void)!cairn_commit(tx, &outcome);
        else
            cairn_abort(tx);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        (void)snprintf(key, sizeof(key), "m%u", i);
        (void)cr_script_put(client, key, value, sizeof(value));
    }
}

static void move_it(struct cr_client *client, uint32_t round)
{
    static const uint8_t value[LARGE];
    struct cr_cluster *c = client->cluster;
    char key[16];

    (void)snprintf(key, sizeof(key), "mover%u", round);
    if (!cr_script_put(client, key, value, SMALL))
        return; /* the pool is full */
    c->shared[MOVES] = round;
    sim_sleep(&c->sim, c->sim.now + 40 * SIM_US);
    nap(client, "mover-start");
    nap(client, "mover-start");
    uint64_t until = c->sim.now + AWAY;
    sim_actor_pause(c->client[0].actor, until);
    (void)cr_script_put(client, key, value, LARGE);
    put_others(client);
    sim_sleep(&c->sim, until + 50 * SIM_US);
}

void cr_script_mover(struct cr_client *client)
{
    uint64_t *shared = client->cluster->shared;
    struct sim *sim = &client->cluster->sim;
    char key[16];

    for (uint32_t i = 1; client->index == 1 && i <= 6 && !sim->stop; i++)
        move_it(client, i);
    shared[OVER] |= client->index == 1;
    while (client->index == 0 && shared[OVER] == 0 && !sim->stop) {
        (void)snprintf(key, sizeof(key), "mover%lu", shared[MOVES]);
        if (shared[MOVES] != 0)
            look_for_it(client, key);
        else
            sim_sleep(sim, sim->now + 10 * SIM_US);
    }
}

/* ---- holder ---- */

enum { HOLDS, TRIES, TRIED };

static void hold(struct cr_client *client, const char *key)
{
    uint64_t *shared = client->cluster->shared;
    struct sim *sim = &client->cluster->sim;
    struct cairn_tx *tx;

    if (cairn_begin(client->ctx, &tx) != 0)
        return;
    int rc = cr_script_get(tx, key, true);
    shared[HOLDS] = rc == 0 ? 1 : 2;
    while (shared[TRIES] == 0 && !sim->stop)
        sim_sleep(sim, sim->now + SIM_US);
    for (uint64_t limit = sim->now + PATIENCE; shared[TRIED] == 0 && !sim->stop;) {
        if (sim->now > limit && rc == 0)
            sim_fail(sim, "R13: a client holds a lock and waits for another");
        sim_sleep(sim, sim->now + 10 * SIM_US);
    }
    cairn_abort(tx);
}

static void try_beside(struct cr_client *client, const char *own, const char *key, bool lock)
{
    uint64_t *shared = client->cluster->shared;
    struct sim *sim = &client->cluster->sim;
    struct cairn_tx *tx;

    while (shared[HOLDS] == 0 && !sim->stop)
        sim_sleep(sim, sim->now + SIM_US);
    if (cairn_begin(client->ctx, &tx) == 0) {
        if (cr_script_get(tx, own, true) == 0) {
            shared[TRIES] = 1;
            (void)cr_script_get(tx, key, lock);
        }
        cairn_abort(tx);
    }
    shared[TRIES] = shared[TRIED] = 1;
}

void cr_script_holder(struct cr_client *client)
{
    bool lock = client->index == 0 && sim_chance(&client->cluster->sim, "holder-lock", 1, 2);

    if (client->index == 1)
        (void)cr_script_put(client, "held", "v", 1);
    if (client->index == 1)
        hold(client, "held");
    else if (cr_script_put(client, "own", "v", 1))
        try_beside(client, "own", "held", lock);
}

/* ---- burst ---- */

void cr_script_burst(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    char key[16];

    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 24 && !c->sim.stop; i++) {
            if (i == 0 && round != 0)
                sim_actor_pause(c->node[0].actor, c->sim.now + 5 * SIM_MS);
            (void)snprintf(key, sizeof(key), "b%u", i);
            (void)cr_script_put(client, key, &round, sizeof(round));
        }
}

/* ---- relay ---- */

enum { FIRST, SECOND, THIRD, FOURTH, RUNNERS };
#define TRACK 64u  /* of a key's names to choose from */
#define SHORT 40u  /* FIRST's value, whose record names one participant more: ... */
#define LONG (SHORT + (uint32_t)sizeof(struct pm_participant_pm)) /* ... all records are as long */

struct relay {
    struct cr_client *client;
    struct runner {
        struct relay *relay;
        char key[2][16]; /* at the first node; FIRST's other one at the second. "": none */
        bool ready, go, over;
    } runner[RUNNERS];
};

/* The node of a key, by index; it is made there. */
static uint32_t settle(struct cr_client *client, const char *key, uint32_t size)
{
    static const uint8_t value[LONG];
    uint32_t at = CR_NODES_MAX;
    struct cairn_tx *tx;

    if (!cr_script_put(client, key, value, size) || cairn_begin(client->ctx, &tx) != 0)
        return at;
    if (cr_script_get(tx, key, false) == 0)
        at = client->ctx->peer[tx->key[0].peer].node - 1u;
    cairn_abort(tx);
    return at;
}

/* All keys, at the nodes where they are to be; false: not found, or the run is over. */
static bool line_up(struct relay *r)
{
    uint32_t found = 0;
    char name[16];

    for (uint32_t i = 0; i < TRACK && found <= RUNNERS && !r->client->cluster->sim.stop; i++) {
        char *to = found < RUNNERS ? r->runner[found].key[0] : r->runner[FIRST].key[1];
        (void)snprintf(name, sizeof(name), "r%u", i);
        if (settle(r->client, name, found == FIRST ? SHORT : LONG) != (found < RUNNERS ? 0 : 1))
            continue;
        memcpy(to, name, sizeof(name));
        found++;
    }
    return found > RUNNERS;
}

/* A lane: it has its locks, and commits when it is told to. */
static void run_leg(void *arg)
{
    struct runner *me = arg;
    struct cairn_ctx *ctx = me->relay->client->ctx;
    static const uint8_t value[LONG];
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    int rc = cairn_begin(ctx, &tx);

    if (rc == 0) {
        for (uint32_t i = 0; i < 2 && me->key[i][0] != '\0' && rc == 0; i++)
            rc = cr_script_get(tx, me->key[i], true);
        me->ready = true;
        while (!me->go && !me->relay->client->cluster->sim.stop)
            txn_pause(ctx, txn_now(ctx) + SIM_US);
        for (uint32_t i = 0; i < 2 && me->key[i][0] != '\0' && rc == 0; i++)
            rc = cairn_put(tx, CR_SCRIPT_TABLE, me->key[i], strlen(me->key[i]), value,
                me == &me->relay->runner[FIRST] ? SHORT : LONG);
        if (rc == 0)
            (void)!cairn_commit(tx, &outcome);
        else
            cairn_abort(tx);
    }
    me->ready = me->over = true;
}

/* Let the lanes go on, until the flag is set or for so long. */
static void conduct(struct relay *r, const bool *flag, uint64_t us)
{
    struct sim *sim = &r->client->cluster->sim;
    uint64_t until = sim->now + us * SIM_US;

    while ((flag == NULL || !*flag) && sim->now < until && !sim->stop) {
        (void)cairn_poll(r->client->ctx);
        sim_sleep(sim, sim->now + 200);
    }
}

void cr_script_relay(struct cr_client *client)
{
    uint32_t me = client->actor->id, node[2];
    struct sim *sim = &client->cluster->sim;
    struct relay r = {.client = client};

    for (uint32_t i = 0; i < 2; i++)
        node[i] = client->cluster->node[i].actor->id;
    if (!line_up(&r))
        return;
    for (uint32_t i = 0; i < RUNNERS; i++) {
        r.runner[i].relay = &r;
        if (txn_spawn(client->ctx, run_leg, &r.runner[i]) != 0)
            r.runner[i].ready = r.runner[i].over = true;
    }
    for (uint32_t i = 0; i < RUNNERS; i++)
        conduct(&r, &r.runner[i].ready, 2000);
    sim_fabric_block(sim, node[1], me, SIM_MS * 100);
    r.runner[FIRST].go = true; /* waits for the second node, and has been flushed at the first */
    conduct(&r, NULL, 100);
    r.runner[SECOND].go = true;
    conduct(&r, &r.runner[SECOND].over, 2000); /* nothing is on its way to the first any more */
    sim_fabric_block(sim, me, node[0], SIM_MS * 100);
    r.runner[THIRD].go = true; /* its record is */
    conduct(&r, NULL, 10);
    sim_fabric_heal(sim);
    sim_fabric_block(sim, me, node[0], SIM_MS * 100);
    conduct(&r, &r.runner[FIRST].over, 1000);
    r.runner[FOURTH].go = true;
    conduct(&r, NULL, 10);
    sim_fabric_heal(sim);
    (void)txn_await_lanes(client->ctx);
}

/* ---- killer ---- */

static void on_kill(void *arg, uint64_t tag)
{
    (void)tag;
    sim_actor_crash(arg, SIM_CRASH_PROCESS);
}

void cr_script_killer(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    struct sim *sim = &c->sim;
    char key[16];

    sim->store_yield = 2;
    for (uint32_t i = 0; i < ROUNDS && !sim->stop; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i % 4);
        if (cr_script_put(client, key, &i, sizeof(i)))
            sim_after(sim, sim_choose(sim, "kill-at", 40) * 250, on_kill, c->node[0].actor, 0);
        sim_sleep(sim, sim->now + 50 * SIM_US);
    }
}
