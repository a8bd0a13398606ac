/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_stand_try.c: starts and reads one variant of a stand's pools: nodes, the reader, an attacker,
 * and what fails meanwhile.
 */
#include "tools/crash/faults/cr_stand_internal.h"

#include "recovery/rec_node.h"
#include "tools/crash/cluster/cr_guard.h"
#include "txn/txn_cluster.h"

#define TRY_LIMIT (20000 * SIM_MS) /* many waits of 50 ms for what is damaged */

static int read_key(struct cr_stand_client *client, const struct cr_stand_key *k, size_t *ret_size)
{
    struct cr_stand_cluster *c = client->cluster;
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    struct cairn_tx *tx;
    int rc = cairn_begin(client->ctx, &tx);

    if (rc != 0)
        return rc;
    rc = cairn_get(tx, CR_STAND_TABLE, k->name, strlen(k->name), c->buf, sizeof(c->buf), ret_size);
    if (rc == CAIRN_E_NOT_FOUND) {
        *ret_size = SIZE_MAX;
        rc = 0;
    }
    if (rc != 0) {
        cairn_abort(tx);
        return rc;
    }
    rc = cairn_commit(tx, &outcome);
    return rc != 0 ? rc : outcome == CAIRN_OUTCOME_COMMITTED ? 0 : CAIRN_E_CONFLICT;
}

static bool holds(
    struct cr_stand_cluster *c, const struct cr_stand_key *k, uint32_t value, size_t size)
{
    if (value == 0 || size == SIZE_MAX)
        return value == 0 && size == SIZE_MAX;
    return size == cr_stand_value(k, value, c->expected) && memcmp(c->buf, c->expected, size) == 0;
}

static void judge(struct cr_stand_cluster *c, const struct cr_stand_key *k, size_t size)
{
    struct cr_stand_outcome *o = c->outcome;

    if (holds(c, k, k->value, size)) {
        o->right++;
        return;
    }
    bool stale = k->logged && holds(c, k, k->before, size);
    o->stale += stale;
    o->stale_alone += stale && k->alone;
    o->wrong += !stale;
    if (o->what[0] == '\0')
        snprintf(o->what, sizeof(o->what), "%s of n%u: %s", k->name, k->node + 1u,
            stale                 ? "the value before its last transaction"
                : size == SIZE_MAX ? "absent, and should be there"
                : k->value == 0    ? "there, and should be absent"
                                   : "a value that nobody stored");
}

static int insert(struct cr_stand_client *client, uint32_t number)
{
    struct cairn_tx *tx;
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    char name[16];
    int rc = cairn_begin(client->ctx, &tx);

    if (rc != 0)
        return rc;
    int n = snprintf(name, sizeof(name), "new-%u", number);
    rc = cairn_put(tx, CR_STAND_TABLE, name, (size_t)n, name, sizeof(name));
    if (rc != 0) {
        cairn_abort(tx);
        return rc;
    }
    rc = cairn_commit(tx, &outcome);
    return rc != 0 ? rc : outcome == CAIRN_OUTCOME_COMMITTED ? 0 : CAIRN_E_IN_DOUBT;
}

/* New keys, so that indexes grow; in the midst of it another coordinator dies. */
static int grow(struct cr_stand_client *client)
{
    struct cr_stand_cluster *c = client->cluster;
    int rc = 0;

    for (uint32_t i = 0; i < c->variant->grow && rc == 0; i++) {
        if (i == c->variant->grow / 2) {
            cr_stand_plan_death(c, c->dier.actor);
            sim_actor_start(c->dier.actor, 0);
        }
        rc = CAIRN_E_AGAIN;
        for (uint32_t tries = 0; tries < 100 && rc != 0 && !c->sim.stop; tries++) {
            rc = insert(client, i);
            if (rc != 0)
                sim_sleep(&c->sim, c->sim.now + 200 * SIM_US);
        }
    }
    return rc;
}

/* A coordinator that dies: what it had begun is aborted by the nodes, and its keys are free. */
static void victim_main(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;
    struct cr_stand_change change = cr_stand_pick_both(client->cluster->truth, 1);

    if (cr_stand_open_ctx(client) == 0)
        (void)cr_stand_change_keys(client, &change);
    cairn_ctx_close(&client->ctx);
}

static void reader_main(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;
    struct cr_stand_cluster *c = client->cluster;
    struct cr_stand_outcome *o = c->outcome;
    bool quick = c->variant->quick;
    uint32_t down[CR_STAND_NODES] = {0};

    int rc = cr_stand_open_ctx(client);
    if (rc != 0) {
        o->error = rc;
        rc = cr_stand_open_ctx(client);
    }
    if (rc != 0) {
        o->failed = CR_STAND_KEYS;
        cr_stand_note_heap(c, actor);
        client->finished = true;
        return;
    }
    for (uint32_t i = 0; i < CR_STAND_KEYS; i++) {
        const struct cr_stand_key *k = &c->truth->key[i];
        size_t size = 0;
        rc = CAIRN_E_NODE_DOWN;
        for (uint32_t tries = quick ? 1 : 4; tries > 0 && rc != 0 && down[k->node] < 2; tries--) {
            rc = read_key(client, k, &size);
            if (rc != 0 && tries > 1)
                sim_sleep(&c->sim, c->sim.now + 2 * SIM_MS);
        }
        down[k->node] += rc == CAIRN_E_NODE_DOWN && c->outcome->open[k->node] != 0;
        o->failed += rc != 0;
        o->error = o->error == 0 ? rc : o->error;
        if (rc == 0)
            judge(c, k, size);
    }
    if (!quick) {
        uint32_t last = CR_STAND_KEYS - 3;
        struct cr_stand_change change = {
            2, {last, last - 1}, {c->truth->key[last].value, c->truth->key[last - 1].value}};
        o->write = CAIRN_E_AGAIN;
        for (uint32_t tries = 0; tries < 4 && o->write != 0; tries++)
            o->write = cr_stand_change_once(client, &change);
        if (o->write == 0 && c->variant->grow > 0)
            o->write = grow(client);
    }
    cairn_ctx_close(&client->ctx);
    cr_stand_note_heap(c, actor);
    client->finished = true;
}

static void attacker_main(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;
    struct cr_stand_cluster *c = client->cluster;

    c->variant->attack(actor, c->truth, c->variant->attack_arg);
    client->finished = true;
}

static void prepare_try(struct cr_stand_cluster *c)
{
    const struct cr_stand_variant *v = c->variant;

    c->config = c->truth->config;
    if (v->pace != NULL)
        c->config.pace = *v->pace;
    c->sim.verbose = v->verbose;
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        if (v->persistence != 0)
            c->config.node[i].persistence = v->persistence;
        cr_stand_node_new(c, i, v->bytes[i]);
        sim_actor_start(c->node[i].actor, v->late_ns[i]);
    }
    cr_stand_client_new(c, &c->client, "reader", reader_main);
    if (v->grow > 0)
        cr_stand_client_new(c, &c->dier, "dier", victim_main);
    c->other.finished = true;
    if (v->attack != NULL) {
        c->guard = v->trusted ? NULL : cr_guard_new(&c->sim);
        for (uint32_t i = 0; i < CR_STAND_NODES && c->guard != NULL; i++)
            cr_guard_watch(c->guard, c->node[i].pool, c->truth->super_off);
        c->other.finished = false;
        cr_stand_client_new(c, &c->other, "attacker", attacker_main);
        sim_actor_start(c->other.actor, SIM_MS);
    }
    for (uint32_t i = 0; i <= CR_STAND_NODES; i++) {
        struct sim_actor *a = &c->sim.actor[i];
        a->wall_jump_s = v->clock[i].wall_jump_s;
        a->wall_frozen = v->clock[i].wall_frozen;
        a->clock_ahead = v->clock[i].ahead;
        a->clock_ppm = v->clock[i].ppm;
        if (i == v->fail_actor)
            a->heap.fail_at = v->fail_at;
    }
    c->sim.fabric->failure[v->fail.actor] =
        (struct sim_failure){.call = v->fail.call, .then = v->fail.then, .at = v->fail.at};
    cr_stand_open_cluster(c);
}

static void fail_power(struct cr_stand_cluster *c)
{
    sim_run(&c->sim, c->sim.now + c->variant->power_ns);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct cr_stand_node *n = &c->node[i];
        sim_actor_crash(n->actor, SIM_CRASH_POWER);
        sim_pool_power_fail(n->pool);
        sim_pool_reopen(n->pool);
    }
    sim_run(&c->sim, c->sim.now + SIM_MS);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_actor_start(c->node[i].actor, 0);
}

/* The pools as files would be: what fsck says of those that were served. */
static void look_at_pools(struct cr_stand_cluster *c)
{
    struct cr_stand_outcome *o = c->outcome;

    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        const struct pm_fsck_options options = {0};
        struct pm_fsck_report report;
        struct pm_pool pool;
        if (o->open[i] != 0 || cr_stand_look(c->truth, c->node[i].pool->visible, &pool) != 0)
            continue;
        pool.pm.read_only = true;
        if (pm_fsck(&pool, &options, &report) != 0)
            continue;
        o->damages += report.damages;
        o->canonical = cn_mix64(o->canonical + report.canonical_values);
    }
}

void cr_stand_try(const struct cr_stand *stand, const struct cr_stand_variant *variant,
    struct cr_stand_outcome *ret)
{
    /* Not the seed of the making: what is random is never given twice, nonces above all. */
    struct cr_stand_cluster *c = cr_stand_cluster_new(cn_mix64(variant->seed ^ UINT64_C(0x7279)));
    uint64_t limit = c->sim.now + TRY_LIMIT;

    memset(ret, 0, sizeof(*ret));
    c->truth = stand;
    c->variant = variant;
    c->outcome = ret;
    prepare_try(c);
    if (variant->power_ns != 0)
        fail_power(c);
    /* An attacker is first, so that its doings can be seen. */
    while (!c->other.finished && !c->sim.stop && c->sim.now < limit)
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    limit = c->sim.now + TRY_LIMIT;
    sim_actor_start(c->client.actor, variant->attack != NULL ? 0 : SIM_MS);
    while (!c->client.finished && !c->sim.stop && c->sim.now < limit)
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct rec_node_stats stats = {0};
        if (c->node[i].node != NULL)
            rec_node_stats(c->node[i].node, &stats);
        ret->rejected += stats.records_rejected;
    }
    if (!variant->quick) {
        sim_run(&c->sim, c->sim.now + 20 * SIM_MS + variant->rest_ns);
        c->closing = variant->close;
        if (variant->close)
            sim_run(&c->sim, c->sim.now + 100 * SIM_MS);
        look_at_pools(c);
    }
    ret->hung = !c->client.finished || c->sim.failed;
    if (c->sim.failed)
        snprintf(ret->what, sizeof(ret->what), "%.150s", c->sim.failure);
    for (uint32_t i = 0; i < c->sim.actor_count; i++)
        if (c->sim.actor[i].alive)
            cr_stand_note_heap(c, &c->sim.actor[i]);
    ret->call_failed = c->sim.fabric->failure[variant->fail.actor].hit;
    for (uint32_t i = 0; i < CR_STAND_NODES && variant->write_back; i++)
        memcpy(variant->bytes[i], c->node[i].pool->visible, stand->pool_size);
    ret->choices = c->sim.tape.count;
    ret->hash = c->sim.tape.hash;
    cr_stand_cluster_delete(c);
}
