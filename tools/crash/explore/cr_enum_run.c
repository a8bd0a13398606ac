/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_run.c: the small cluster of one case: pools, nodes, clients as actors, from the start of
 * the nodes to the quiet after the last transaction.
 */
#include "tools/crash/explore/cr_enum_run.h"

#include "pmem/pm_format.h"
#include "tools/crash/cluster/cr_cache.h"

#define LIMIT (4000 * SIM_MS) /* virtual time in which all must be over */
#define POOL_CHUNKS 12u
#define TABLE 1u

/* ---- configuration ---- */

/* The smallest that leaves room for what a case stores. A slot for each client that lives at a
 * time. */
static void set_geometry(const struct cr_case *c, struct pm_geometry *g)
{
    *g = (struct pm_geometry){.chunk_shift = 12, .window = 4, .ring_size = 4096, .retired_max = 16,
        .root_map_max = 8, .bucket_slots = 8, .fingerprint_bits = 8,
        .depth0 = PM_GEOMETRY_DEPTH0_ZERO};
    g->slot_count = 1 + (c->dies ? 1u : c->client_count);
}

static enum txn_persistence persistence(enum rd_durability durability)
{
    return durability == RD_DURABILITY_GPSPM ? TXN_PERSISTENCE_GPSPM
        : durability == RD_DURABILITY_EADR   ? TXN_PERSISTENCE_EADR
                                             : TXN_PERSISTENCE_APM;
}

static void make_config(struct cr_small *run)
{
    struct txn_config *config = &run->config;

    snprintf(config->path, sizeof(config->path), "sim");
    snprintf(config->fabric, sizeof(config->fabric), "sim");
    cn_random(&run->sim.env, config->cluster.b, sizeof(config->cluster.b));
    config->view = 1;
    config->node_count = run->c->node_count;
    for (uint32_t i = 0; i < config->node_count; i++) {
        struct txn_config_node *n = &config->node[i];
        n->id = (uint16_t)(i + 1);
        snprintf(n->address, sizeof(n->address), "n%u", i + 1);
        snprintf(n->pool, sizeof(n->pool), "/sim/n%u.pool", i + 1);
        n->pool_size = 1u << 24;
        n->persistence = persistence(run->sim.fabric->durability);
    }
    config->table_count = 1;
    config->table[0].id = TABLE;
    snprintf(config->table[0].name, sizeof(config->table[0].name), "t");
    set_geometry(run->c, &config->geometry);
    config->lease_ms = 10;
    config->resolve_ms = 5;
    config->verdict_s = 86400;
    if (txn_config_check(config) != 0)
        sim_unable(&run->sim, "configuration: %s", cairn_last_error());
}

/* ---- nodes ---- */

static void node_main(struct sim_actor *actor)
{
    struct cr_small_node *n = actor->arg;
    struct sim *sim = actor->sim;
    struct pm pm;

    sim_pool_pm(n->pool, &actor->env, &pm);
    int rc = pm_attach(&n->pm_pool, &pm, n->super_off);
    n->pm_pool.is_pmem = true;
    n->pm_pool.auto_flush = sim->mode == SIM_EADR;
    struct rec_node_options options = {.config = &n->run->config, .node = n->pm_pool.super.node,
        .fabric = &sim->fabric->base, .env = &actor->env, .pool = &n->pm_pool};
    if (rc == 0)
        rc = rec_node_open(&options, &n->node);
    if (rc != 0) {
        sim_fail(sim, "%s: start: %s (%s)", actor->name, cairn_error_name(rc),
            cairn_last_error());
        return;
    }
    for (;;) {
        if (rec_node_poll(n->node) == 0)
            rec_node_sleep(n->node, cn_now_ns(&actor->env) + 5 * SIM_MS);
        sim_yield(sim, 100);
    }
}

static void node_abandon(struct sim_actor *actor)
{
    struct cr_small_node *n = actor->arg;

    if (n->node != NULL)
        rec_node_abandon(&n->node);
}

static void node_new(struct cr_small *run, uint32_t i)
{
    struct cr_small_node *n = &run->node[i];
    struct pm_geometry g = run->config.geometry;
    struct pm_super s = {.extent_count = 1};
    char name[16];
    struct pm pm;

    n->run = run;
    snprintf(name, sizeof(name), "n%u", i + 1);
    n->actor = sim_actor_new(&run->sim, SIM_NODE, name, node_main, node_abandon, n);
    int rc = pm_geometry_complete(&g);
    n->super_off = UINT64_C(1) << g.chunk_shift;
    s.geometry = g;
    s.pool_size = 1u << 18; /* room for the descriptors of more chunks than there will be */
    s.extent[0].off = n->super_off;
    pm_geometry_place(&s);
    uint64_t size = s.heap_off + ((uint64_t)POOL_CHUNKS << g.chunk_shift);
    n->pool = run->pool[i] = sim_pool_new(&run->sim, size);
    n->pool->owner = n->actor;
    sim_fabric_add_pool(run->sim.fabric, n->pool);
    sim_pool_pm(n->pool, &run->sim.env, &pm);
    pm.tracer = NULL;
    struct pm_extent_pm extent = {le64_make(n->super_off), le64_make(size - n->super_off)};
    if (rc == 0)
        rc = pm_format(
            &pm, &extent, 1, &run->config.geometry, &run->config.cluster, (uint16_t)(i + 1));
    if (rc != 0)
        sim_unable(&run->sim, "format: %s (%s)", cairn_error_name(rc), cairn_last_error());
    sim_pool_settle(n->pool);
}

/* ---- names ---- */

/* The first name of a kind that lies at a node. */
static void name_key(struct cr_small *run, char letter, uint32_t node, char *ret, size_t size)
{
    uint32_t first = (uint32_t)(run->options->seed & 0xff) * 16;

    for (uint32_t i = first;; i++) {
        int n = snprintf(ret, size, "%c%u", letter, i);
        if (txn_config_shard(&run->config, TABLE, ret, (size_t)n) == node)
            return;
    }
}

static void name_all(struct cr_small *run)
{
    uint32_t nodes = run->c->node_count;

    for (uint32_t i = 0; i < nodes; i++)
        run->turn[i] = (uint8_t)((i + run->options->seed) % nodes);
    for (uint32_t i = 0; i < run->c->key_count; i++)
        name_key(run, (char)('a' + (int)i), run->turn[run->c->at[i]], run->key[i],
            sizeof(run->key[i]));
    for (uint32_t i = 0; i < nodes; i++)
        name_key(run, 's', i, run->node[i].still, sizeof(run->node[i].still));
}

/* ---- values ---- */

uint32_t cr_small_value(const struct cr_small *run, uint32_t key, uint32_t id, uint8_t *ret)
{
    /* With an odd seed the first write goes into a block of another class. */
    bool large = id == cr_value_of(0, 0) && (run->options->seed & 1) != 0;
    uint32_t size = large ? CR_SMALL_VALUE_LARGE : CR_SMALL_VALUE_SIZE;

    for (uint32_t i = 0; i < size; i++)
        ret[i] = (uint8_t)cn_mix64((uint64_t)id << 32 | key << 16 | i);
    return size;
}

uint32_t cr_small_still(const struct cr_small_node *n, uint8_t *ret)
{
    for (uint32_t i = 0; i < n->still_size; i++)
        ret[i] = (uint8_t)cn_mix64((uint64_t)n->still_round << 32 | i);
    return n->still_size;
}

bool cr_small_is_quiet(const struct cr_small *run)
{
    for (uint32_t i = 0; i < run->c->node_count; i++)
        if (run->node[i].node == NULL || !rec_node_is_quiet(run->node[i].node))
            return false;
    return true;
}

/* ---- the run ---- */

static void on_crash(struct sim *sim, struct sim_actor *actor, enum sim_crash kind)
{
    (void)sim;
    if (kind != SIM_CRASH_NONE && actor->role == SIM_CLIENT) {
        struct cr_small_client *client = actor->arg;
        client->dead = true;
    }
}

static void build(struct cr_small *run)
{
    static const char *const names[CR_CASE_CLIENTS] = {"c1", "c2"};
    struct cairn_options options = {.size = sizeof(options), .connect_timeout_ms = 20,
        .op_timeout_ms = 50, .cache_entries = 1u << 10, .inflight = 1};

    make_config(run);
    for (uint32_t i = 0; i < run->c->node_count && !run->sim.stop; i++)
        node_new(run, i);
    name_all(run);
    for (uint32_t i = 0; i < run->c->client_count; i++) {
        run->client[i] = (struct cr_small_client){.run = run, .index = i};
        run->client[i].actor = sim_actor_new(&run->sim, SIM_CLIENT, names[i], cr_small_client_main,
            cr_small_client_abandon, &run->client[i]);
    }
    if (run->sim.stop)
        return;
    int rc = txn_cluster_open(
        &run->config, &run->sim.fabric->base, &run->sim.env, &options, &run->cairn);
    if (rc != 0)
        sim_unable(&run->sim, "cluster: %s", cairn_last_error());
}

static bool all_finished(const struct cr_small *run)
{
    for (uint32_t i = 0; i < run->c->client_count; i++)
        if (!run->client[i].finished && !run->client[i].dead)
            return false;
    return true;
}

static void run_all(struct cr_small *run)
{
    struct sim *sim = &run->sim;
    uint64_t limit = sim->now + LIMIT;

    cr_small_watch(run);
    run->exploring = run->c->cold;
    for (uint32_t i = 0; i < run->c->node_count && !sim->stop; i++)
        sim_actor_start(run->node[i].actor, 0);
    sim_run(sim, sim->now + SIM_MS);
    for (uint32_t i = 0; i < run->c->client_count && !sim->stop; i++)
        sim_actor_start(run->client[i].actor, sim_delay(sim, "start"));
    while (!sim->stop && sim->now < limit && !(all_finished(run) && cr_small_is_quiet(run)))
        sim_run(sim, sim->now + 100 * SIM_US);
    if (!sim->stop && sim->now >= limit)
        sim_fail(sim, "liveness: not over within %lu virtual ms", LIMIT / SIM_MS);
    if (!sim->stop)
        cr_small_look(run, "end");
    run->exploring = false;
}

static void set_platform(struct cr_small *run)
{
    struct sim *sim = &run->sim;

    sim->calm = true;
    sim->jitter = 0;
    sim->mode = run->options->mode;
    sim->verbose = run->options->verbose;
    sim->on_crash = on_crash;
    sim->fabric->durability =
        run->options->durability != 0 ? run->options->durability : RD_DURABILITY_APM;
    sim->fabric->packet_max = 4096;
    sim->fabric->whole_reads = true;
    sim->fabric->lanes = SIM_LANES_MAX;
    sim->fabric->prompt = true;
    sim->fabric->refusal_fails = true;
    if (run->c->client_count > 1) { /* who meets whom, and where, is drawn */
        sim->jitter = 1;
        sim->step_yield = 3;
    }
}

static void report(struct cr_small *run, struct cr_small_result *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->failed = run->sim.failed;
    ret->unable = run->sim.unable;
    snprintf(ret->failure, sizeof(ret->failure), "%.1023s", run->sim.failure);
    if (run->explorer != NULL)
        ret->explored = *cr_explorer_stats(run->explorer);
    ret->steps = run->steps;
    memcpy(ret->passed, run->sim.stats.steps, sizeof(ret->passed));
    ret->hash = run->sim.tape.hash;
    for (uint32_t i = 0; i < run->c->tx_count; i++) {
        ret->committed += run->progress[i].phase == CR_TX_COMMITTED;
        ret->aborted += run->progress[i].phase == CR_TX_ABORTED;
        ret->unknown += run->progress[i].phase == CR_TX_COMMITTING;
    }
    ret->disciplined = run->discipline != NULL ? cr_discipline_stats(run->discipline)->acked : 0;
    ret->c = *run->c;
}

void cr_small_case(
    const struct cr_case *c, const struct cr_enum_options *options, struct cr_small_result *ret)
{
    struct cr_small *run = sim_calloc(1, sizeof(*run));
    uint64_t seed = options->seed;

    run->options = options;
    run->c = c;
    if (c->client_count > 1)
        seed = cn_mix64(seed * 64 + c->interleaving + 1);
    sim_init(&run->sim, seed, false);
    set_platform(run);
    cr_cache_use(&run->sim);
    build(run);
    if (!run->sim.stop && cr_small_look_open(run))
        run_all(run);
    report(run, ret);
    sim_fini(&run->sim);
    cr_small_look_close(run);
    if (run->cairn != NULL) {
        run->cairn->contexts = 0; /* contexts of crashed clients are gone without a word */
        cairn_close(&run->cairn);
    }
    for (uint32_t i = 0; i < c->node_count; i++)
        if (run->node[i].pool != NULL)
            sim_pool_delete(run->node[i].pool);
    cr_cache_use(NULL);
    sim_free(run);
}
