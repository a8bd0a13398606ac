/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_stand.c: a stand's cluster, and how its pools are made: a client stores and deletes keys;
 * another dies between two of its records; when all is quiet the earlier copies are taken; then the
 * nodes stop, and the first client commits records that no node has seen when everything is copied.
 */
#include "tools/crash/faults/cr_stand_internal.h"

#include "pmem/pm_format.h"
#include "recovery/rec_node.h"
#include "tools/crash/cluster/cr_cache.h"
#include "tools/crash/cluster/cr_guard.h"
#include "txn/txn_cluster.h"

#define CHUNKS 40u
#define MAKE_LIMIT (4000 * SIM_MS)
#define MAKE_TRIES 8u
#define LAST_RECORDS 6u /* transactions while the nodes stand still */

uint32_t cr_stand_value(const struct cr_stand_key *key, uint32_t value, uint8_t *ret)
{
    for (uint32_t i = 0; i < key->size; i++)
        ret[i] = (uint8_t)(cn_mix64(value + (uint64_t)i * 1000003) & 0xff);
    memcpy(ret, &value, sizeof(value));
    return key->size;
}

/* What it asked for, before its heap is gone. */
void cr_stand_note_heap(struct cr_stand_cluster *c, const struct sim_actor *actor)
{
    if (c->outcome == NULL || actor->id > CR_STAND_NODES)
        return;
    c->outcome->allocations[actor->id] = actor->heap.allocations;
    c->outcome->alloc_failed = c->outcome->alloc_failed || actor->heap.failed;
}

/* ---- nodes ---- */

static void node_main(struct sim_actor *actor)
{
    static const volatile int never = 0;
    struct cr_stand_node *n = actor->arg;
    struct cr_stand_cluster *c = n->cluster;
    struct rec_node_options options = {.config = &c->config, .node = (uint16_t)(n->at + 1),
        .fabric = &c->sim.fabric->base, .env = &actor->env, .pool = &n->pm_pool,
        .serve_damaged = c->variant != NULL && c->variant->serve_damaged};
    struct pm pm;

    if (n->at == 0 && c->variant != NULL && c->variant->first_id != 0)
        options.node = c->variant->first_id;
    sim_pool_pm(n->pool, &actor->env, &pm);
    int rc = pm_attach(&n->pm_pool, &pm, c->truth->super_off);
    if (rc == 0) {
        n->pm_pool.is_pmem = true;
        rc = rec_node_open(&options, &n->node);
    }
    if (rc != 0) {
        if (c->outcome == NULL) {
            sim_fail(&c->sim, "%s: %s", actor->name, cairn_last_error());
            return;
        }
        c->outcome->open[n->at] = rc;
        cr_stand_note_heap(c, actor);
        snprintf(c->outcome->text[n->at], sizeof(c->outcome->text[n->at]), "%s",
            cairn_last_error());
        return;
    }
    if (c->config.pace.mode == CN_PACE_EVENT)
        rec_node_run(n->node, &never);
    while (!c->closing) {
        if (c->variant != NULL && c->variant->pace != NULL)
            rec_node_rest(n->node, rec_node_poll(n->node), cn_now_ns(&actor->env) + 5 * SIM_MS);
        else if (rec_node_poll(n->node) == 0)
            rec_node_sleep(n->node, cn_now_ns(&actor->env) + 5 * SIM_MS);
        sim_yield(&c->sim, 100);
    }
    rec_node_close(&n->node);
}

static void node_abandon(struct sim_actor *actor)
{
    struct cr_stand_node *n = actor->arg;

    if (n->node != NULL)
        rec_node_abandon(&n->node);
}

static void make_config(struct cr_stand_cluster *c)
{
    struct txn_config *config = &c->config;

    snprintf(config->path, sizeof(config->path), "sim");
    snprintf(config->fabric, sizeof(config->fabric), "sim");
    cn_random(&c->sim.env, config->cluster.b, sizeof(config->cluster.b));
    config->view = 1;
    config->node_count = CR_STAND_NODES;
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct txn_config_node *n = &config->node[i];
        n->id = (uint16_t)(i + 1);
        snprintf(n->address, sizeof(n->address), "n%u", i + 1);
        snprintf(n->pool, sizeof(n->pool), "/sim/n%u.pool", i + 1);
        n->pool_size = 1u << 24;
        n->persistence = TXN_PERSISTENCE_APM;
    }
    config->table_count = 1;
    config->table[0].id = CR_STAND_TABLE;
    snprintf(config->table[0].name, sizeof(config->table[0].name), "t");
    config->geometry = (struct pm_geometry){.chunk_shift = 13, .slot_count = 8, .window = 8,
        .ring_size = 8192, .retired_max = 64, .root_map_max = 64, .bucket_slots = 4,
        .fingerprint_bits = 8, .depth0 = PM_GEOMETRY_DEPTH0_ZERO};
    config->lease_ms = 10;
    config->resolve_ms = 5;
    config->verdict_s = 86400;
    if (txn_config_check(config) != 0)
        sim_fail(&c->sim, "configuration: %s", cairn_last_error());
}

/* An empty pool, formatted or of given bytes. */
void cr_stand_node_new(struct cr_stand_cluster *c, uint32_t i, const uint8_t *bytes)
{
    struct cr_stand_node *n = &c->node[i];
    struct pm_geometry g = c->config.geometry;
    char name[16];

    n->cluster = c;
    n->at = i;
    snprintf(name, sizeof(name), "n%u", i + 1);
    n->actor = sim_actor_new(&c->sim, SIM_NODE, name, node_main, node_abandon, n);
    if (bytes == NULL) {
        struct pm_super s = {.extent_count = 1};
        if (pm_geometry_complete(&g) != 0)
            sim_fail(&c->sim, "geometry: %s", cairn_last_error());
        s.geometry = g;
        s.pool_size = 1u << 20;
        c->stand->super_off = UINT64_C(1) << g.chunk_shift;
        s.extent[0].off = c->stand->super_off;
        pm_geometry_place(&s);
        c->stand->pool_size = s.heap_off + ((uint64_t)CHUNKS << g.chunk_shift);
    }
    n->pool = bytes != NULL ? c->truth->spare[i] : NULL;
    if (n->pool == NULL)
        n->pool = sim_pool_new(&c->sim, c->truth->pool_size);
    n->pool->sim = &c->sim;
    n->pool->owner = n->actor;
    sim_fabric_add_pool(c->sim.fabric, n->pool);
    if (bytes != NULL) {
        memcpy(n->pool->visible, bytes, c->truth->pool_size);
    } else {
        struct pm pm;
        struct pm_extent_pm extent = {le64_make(c->truth->super_off),
            le64_make(c->truth->pool_size - c->truth->super_off)};
        sim_pool_pm(n->pool, &c->sim.env, &pm);
        pm.tracer = NULL;
        if (pm_format(&pm, &extent, 1, &c->config.geometry, &c->config.cluster,
                (uint16_t)(i + 1)) != 0)
            sim_fail(&c->sim, "format: %s", cairn_last_error());
    }
    sim_pool_settle(n->pool);
}

/* ---- clients ---- */

int cr_stand_open_ctx(struct cr_stand_client *client)
{
    return txn_ctx_open(client->cluster->cairn, &client->actor->env, &client->ctx);
}

static void client_abandon(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;

    if (client->ctx != NULL)
        txn_ctx_abandon(&client->ctx);
}

void cr_stand_client_new(struct cr_stand_cluster *c, struct cr_stand_client *client,
    const char *name, void (*main)(struct sim_actor *))
{
    client->cluster = c;
    client->actor = sim_actor_new(&c->sim, SIM_CLIENT, name, main, client_abandon, client);
}

/* One transaction. 0: committed. */
int cr_stand_change_once(struct cr_stand_client *client, const struct cr_stand_change *change)
{
    struct cr_stand_cluster *c = client->cluster;
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    struct cairn_tx *tx;
    int rc = cairn_begin(client->ctx, &tx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < change->count && rc == 0; i++) {
        const struct cr_stand_key *k = &c->truth->key[change->key[i]];
        uint32_t size = cr_stand_value(k, change->value[i], c->buf);
        rc = change->value[i] == 0
            ? cairn_delete(tx, CR_STAND_TABLE, k->name, strlen(k->name))
            : cairn_put(tx, CR_STAND_TABLE, k->name, strlen(k->name), c->buf, size);
    }
    if (rc != 0) {
        cairn_abort(tx);
        return rc;
    }
    rc = cairn_commit(tx, &outcome);
    return rc != 0 ? rc : outcome == CAIRN_OUTCOME_COMMITTED ? 0 : CAIRN_E_IN_DOUBT;
}

int cr_stand_change_keys(struct cr_stand_client *client, const struct cr_stand_change *change)
{
    struct sim *sim = &client->cluster->sim;
    int rc = CAIRN_E_AGAIN;

    for (uint32_t tries = 0; tries < 200 && rc != 0 && rc != CAIRN_E_IN_DOUBT; tries++) {
        rc = cr_stand_change_once(client, change);
        if (rc != 0)
            sim_sleep(sim, sim->now + 200 * SIM_US);
    }
    return rc;
}

/* Two keys of each node, to be changed by somebody who dies between the two records: such a
 * transaction can only come to be aborted. */
struct cr_stand_change cr_stand_pick_both(const struct cr_stand *stand, uint32_t value)
{
    struct cr_stand_change change = {0};

    for (uint32_t n = 0; n < CR_STAND_NODES; n++) {
        uint32_t left = 2;
        for (uint32_t i = 0; i < CR_STAND_KEYS && left > 0; i++) {
            if (stand->key[i].node != n || stand->key[i].value == 0)
                continue;
            change.key[change.count] = i;
            change.value[change.count++] = value;
            left--;
        }
    }
    return change;
}

void cr_stand_plan_death(struct cr_stand_cluster *c, const struct sim_actor *actor)
{
    c->sim.plan[0] = (struct sim_plan){.role = SIM_CLIENT, .actor = actor->id,
        .step = CN_STEP_c_log, .occurrence = 2, .kind = SIM_CRASH_PROCESS};
}

/* ---- making ---- */

static void must_change(struct cr_stand_client *client, const struct cr_stand_change *change)
{
    struct cr_stand_cluster *c = client->cluster;
    int rc = cr_stand_change_keys(client, change);

    if (rc != 0)
        sim_fail(&c->sim, "making the pools: %s (%s)", cairn_error_name(rc), cairn_last_error());
    for (uint32_t i = 0; i < change->count; i++) {
        struct cr_stand_key *k = &c->stand->key[change->key[i]];
        k->before = k->value;
        k->value = change->value[i];
    }
}

static void await_quiet(struct cr_stand_cluster *c)
{
    bool quiet = false;

    while (!quiet && !c->sim.stop) {
        sim_sleep(&c->sim, c->sim.now + SIM_MS);
        quiet = true;
        for (uint32_t i = 0; i < CR_STAND_NODES; i++)
            quiet = quiet && c->node[i].node != NULL && rec_node_is_quiet(c->node[i].node);
    }
}

/* Which node a key is at: where its bytes are found. */
static void find_homes(struct cr_stand_cluster *c)
{
    for (uint32_t i = 0; i < CR_STAND_KEYS; i++) {
        struct cr_stand_key *k = &c->stand->key[i];
        const struct sim_pool *second = c->node[1].pool;
        uint64_t heap = c->stand->super[1].heap_off;
        k->node =
            memmem(second->visible + heap, second->size - heap, k->name, strlen(k->name)) != NULL;
    }
}

static void fill(struct cr_stand_client *client)
{
    struct cr_stand_cluster *c = client->cluster;

    for (uint32_t i = 0; i < CR_STAND_KEYS; i += 2) {
        struct cr_stand_change both = {2, {i, i + 1}, {++c->next_value, 0}};
        both.value[1] = ++c->next_value;
        must_change(client, &both);
    }
    for (uint32_t i = 0; i < CR_STAND_KEYS; i += 3) {
        struct cr_stand_change one = {1, {i}, {++c->next_value}};
        must_change(client, &one);
    }
    must_change(client, &(struct cr_stand_change){1, {CR_STAND_KEYS - 1}, {0}});
    must_change(client, &(struct cr_stand_change){1, {CR_STAND_KEYS - 2}, {0}});
    await_quiet(c);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        c->stand->super[i] = c->node[i].pm_pool.super;
    find_homes(c);
}

/* The nodes stand still, records pile up. Keys of both nodes, and one alone, in turn. */
static void pile_up(struct cr_stand_client *client)
{
    struct cr_stand_cluster *c = client->cluster;
    struct cr_stand *stand = c->stand;
    uint32_t at[CR_STAND_NODES] = {0};

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_actor_pause(c->node[i].actor, SIM_FOREVER);
    for (uint32_t t = 0; t < LAST_RECORDS; t++) {
        struct cr_stand_change change = {0};
        for (uint32_t n = 0; n < CR_STAND_NODES; n++) {
            if (t % 2 == 1 && n != t / 2 % 2)
                continue;
            while (at[n] < CR_STAND_KEYS - 2 && stand->key[at[n]].node != n)
                at[n]++;
            change.key[change.count] = at[n]++;
            change.value[change.count++] = ++c->next_value;
        }
        must_change(client, &change);
        for (uint32_t i = 0; i < change.count; i++) {
            stand->key[change.key[i]].logged = true;
            stand->key[change.key[i]].alone = change.count == 1;
        }
        stand->records += change.count;
    }
    /* Marks are not waited for by the client. */
    sim_sleep(&c->sim, c->sim.now + 100 * SIM_US);
}

static void copy_pools(struct cr_stand_cluster *c, bool earlier)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct cr_stand_pool *to = &c->stand->pool[i];
        uint8_t **bytes = earlier ? &to->earlier : &to->bytes;
        *bytes = sim_calloc(1, c->stand->pool_size);
        memcpy(*bytes, c->node[i].pool->visible, c->stand->pool_size);
    }
}

static void maker_main(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;
    struct cr_stand_cluster *c = client->cluster;

    if (cr_stand_open_ctx(client) != 0) {
        sim_fail(&c->sim, "context: %s", cairn_last_error());
        return;
    }
    fill(client);
    cr_stand_plan_death(c, c->other.actor);
    sim_actor_start(c->other.actor, 0);
    while (!c->sim.plan[0].fired && !c->sim.stop)
        sim_sleep(&c->sim, c->sim.now + SIM_MS);
    sim_sleep(&c->sim, c->sim.now + 50 * SIM_MS);
    await_quiet(c);
    for (uint32_t i = 0; i < CR_STAND_NODES && !c->sim.stop; i++)
        cr_stand_shift(client->ctx, i, c->node[i].node, &c->start);
    copy_pools(c, true);
    if (!c->sim.stop)
        pile_up(client);
    copy_pools(c, false);
    client->finished = true;
    c->sim.stop = true;
}

static void dier_main(struct sim_actor *actor)
{
    struct cr_stand_client *client = actor->arg;
    struct cr_stand_change change = cr_stand_pick_both(client->cluster->truth, 1);

    if (cr_stand_open_ctx(client) == 0)
        (void)cr_stand_change_keys(client, &change);
    sim_fail(&client->cluster->sim, "the client that is to die lives");
}

struct cr_stand_cluster *cr_stand_cluster_new(uint64_t seed)
{
    struct cr_stand_cluster *c = sim_calloc(1, sizeof(*c));

    sim_init(&c->sim, seed, false);
    c->sim.user = c;
    c->sim.calm = true;
    c->sim.mode = SIM_ADR;
    cr_cache_use(&c->sim);
    return c;
}

void cr_stand_open_cluster(struct cr_stand_cluster *c)
{
    struct cairn_options options = {.size = sizeof(options), .connect_timeout_ms = 20,
        .op_timeout_ms = 50, .cache_entries = 1u << 10, .inflight = 1};

    if (txn_cluster_open(&c->config, &c->sim.fabric->base, &c->sim.env, &options, &c->cairn) != 0)
        sim_fail(&c->sim, "cluster: %s", cairn_last_error());
}

void cr_stand_cluster_delete(struct cr_stand_cluster *c)
{
    if (c->guard != NULL)
        cr_guard_delete(&c->guard);
    sim_fini(&c->sim);
    if (c->cairn != NULL) {
        c->cairn->contexts = 0;
        cairn_close(&c->cairn);
    }
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct sim_pool *pool = c->node[i].pool;
        if (pool != NULL && c->stand == NULL) {
            sim_pool_forget(pool);
            pool->seq = 0;
            c->truth->spare[i] = pool;
        } else if (pool != NULL) {
            sim_pool_delete(pool);
        }
    }
    cr_cache_use(NULL);
    sim_free(c);
}

static struct cr_stand *make(
    uint64_t seed, const struct cr_stand_start *start, char *why, size_t size)
{
    struct cr_stand *stand = sim_calloc(1, sizeof(*stand));

    stand->spare = sim_calloc(CR_STAND_NODES, sizeof(struct sim_pool *));
    struct cr_stand_cluster *c = cr_stand_cluster_new(seed);

    c->stand = stand;
    c->truth = stand;
    make_config(c);
    stand->config = c->config;
    if (start != NULL)
        c->start = *start;
    for (uint32_t i = 0; i < CR_STAND_KEYS; i++) {
        snprintf(stand->key[i].name, sizeof(stand->key[i].name), "key-%04u", i);
        stand->key[i].size = 16 + i % 5 * 40;
    }
    for (uint32_t i = 0; i < CR_STAND_NODES && !c->sim.stop; i++) {
        cr_stand_node_new(c, i, NULL);
        sim_actor_start(c->node[i].actor, 0);
    }
    cr_stand_client_new(c, &c->client, "maker", maker_main);
    cr_stand_client_new(c, &c->other, "dier", dier_main);
    cr_stand_open_cluster(c);
    if (!c->sim.stop)
        sim_actor_start(c->client.actor, SIM_MS);
    sim_run(&c->sim, c->sim.now + MAKE_LIMIT);
    bool good = !c->sim.failed && c->client.finished;
    snprintf(why, size, "%s",
        c->sim.failed ? c->sim.failure : good ? "" : "the pools were not made in time");
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        stand->crc_seed[i] = c->node[i].pm_pool.crc_seed;
    cr_stand_cluster_delete(c);
    if (!good)
        cr_stand_delete(&stand);
    return stand;
}

/* A context that sleeps too long is fenced, and then an outcome may be unknown: another seed. */
struct cr_stand *cr_stand_new(
    uint64_t seed, const struct cr_stand_start *start, char *why, size_t size)
{
    struct cr_stand *stand = NULL;

    for (uint32_t tries = 0; tries < MAKE_TRIES && stand == NULL; tries++)
        stand = make(seed + tries * UINT64_C(1000003), start, why, size);
    return stand;
}

void cr_stand_delete(struct cr_stand **stand)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        sim_free((*stand)->pool[i].bytes);
        sim_free((*stand)->pool[i].earlier);
        if ((*stand)->spare[i] != NULL)
            sim_pool_delete((*stand)->spare[i]);
    }
    sim_free((*stand)->spare);
    sim_free(*stand);
    *stand = NULL;
}

uint8_t *cr_stand_copy(const struct cr_stand *stand, uint32_t node, bool earlier)
{
    uint8_t *copy = sim_calloc(1, stand->pool_size);

    memcpy(copy, earlier ? stand->pool[node].earlier : stand->pool[node].bytes, stand->pool_size);
    return copy;
}

