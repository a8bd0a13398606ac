/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cluster.c: geometry and configuration from the seed, nodes and clients as actors, the phases
 * of a run.
 */
#include "tools/crash/cluster/cr_cluster.h"

#include <errno.h>

#include "pmem/pm_format.h"
#include "tools/crash/cluster/cr_cache.h"
#include "tools/crash/cluster/cr_guard.h"
#include "tools/crash/cluster/cr_timeline.h"
#include "tools/crash/cluster/cr_timeline_api.h"
#include "tools/crash/cluster/cr_watch.h"

#define WORK_LIMIT (4000 * SIM_MS) /* virtual time in which all clients must have finished */
#define QUIET_LIMIT (4000 * SIM_MS)
#define MEMORY_EACH 60u /* a start of a node takes about thirty allocations */
#define LOOK_ROUND (100 * SIM_MS) /* pauses are over, and every node has polled */
#define POOL_CHUNKS 40u
#define RECOVERY_STEPS 64u /* of a start that finds nothing, generously */
#define TX_BYTES 1024u /* that any geometry's rings and chunks hold, with all headers */

/* ---- configuration ---- */

/* Workloads that are named get what they write at most; drawn ones take what there is. */
static uint32_t tx_bytes(const struct cr_cluster *c)
{
    uint32_t bytes = 0;

    for (uint32_t i = 0; c->setup.workload[i] != NULL; i++)
        bytes = bytes > c->setup.workload[i]->tx_bytes ? bytes : c->setup.workload[i]->tx_bytes;
    return bytes > TX_BYTES ? bytes : 0;
}

static void fit_geometry(const struct cr_cluster *c, struct pm_geometry *g)
{
    uint32_t bytes = tx_bytes(c);

    if (bytes == 0)
        return;
    g->ring_size = cn_max64(g->ring_size, cn_align_up(2 * ((uint64_t)bytes + TX_BYTES), 4096));
    while (g->chunk_shift < 21 && UINT64_C(1) << g->chunk_shift <
            cn_min64(bytes, CAIRN_VALUE_SIZE_MAX) + TX_BYTES)
        g->chunk_shift++;
}

static void draw_geometry(struct cr_cluster *c, struct pm_geometry *g)
{
    struct sim *sim = &c->sim;
    static const uint32_t windows[] = {8, 16, 12, 4};
    static const uint64_t rings[] = {8192, 16384, 4096, 12288};

    *g = (struct pm_geometry){.chunk_shift = 13, .slot_count = 10, .window = 8, .ring_size = 8192,
        .retired_max = 256, .root_map_max = 256, .bucket_slots = 4, .fingerprint_bits = 2,
        .depth0 = PM_GEOMETRY_DEPTH0_ZERO};
    if (c->setup.plain)
        return;
    g->slot_count = 8 + sim_choose(sim, "slots", 5);
    g->window = windows[sim_choose(sim, "window", CN_ARRAY_SIZE(windows))];
    g->ring_size = rings[sim_choose(sim, "ring", CN_ARRAY_SIZE(rings))];
    g->bucket_slots = 2 + sim_choose(sim, "bucket-slots", 3);
    g->fingerprint_bits = 1 + sim_choose(sim, "fingerprint", 2);
}

/* What the nodes make of it is checked by txn, against their rings and against this. */
static enum txn_persistence draw_persistence(struct cr_cluster *c)
{
    enum rd_durability durability = c->sim.fabric->durability;

    if (durability == RD_DURABILITY_APM)
        return TXN_PERSISTENCE_APM;
    if (!c->setup.plain && sim_chance(&c->sim, "persistence-auto", 1, 2))
        return TXN_PERSISTENCE_AUTO;
    return durability == RD_DURABILITY_GPSPM ? TXN_PERSISTENCE_GPSPM : TXN_PERSISTENCE_EADR;
}

static void make_config(struct cr_cluster *c)
{
    struct txn_config *config = &c->config;
    enum txn_persistence persistence = draw_persistence(c);

    snprintf(config->path, sizeof(config->path), "sim");
    snprintf(config->fabric, sizeof(config->fabric), "sim");
    cn_random(&c->sim.env, config->cluster.b, sizeof(config->cluster.b));
    config->view = 1;
    config->node_count = c->node_count;
    for (uint32_t i = 0; i < c->node_count; i++) {
        struct txn_config_node *n = &config->node[i];
        n->id = (uint16_t)(i + 1);
        snprintf(n->address, sizeof(n->address), "n%u", i + 1);
        snprintf(n->pool, sizeof(n->pool), "/sim/n%u.pool", i + 1);
        n->pool_size = 1u << 24;
        n->persistence = persistence;
    }
    config->table_count = 1;
    config->table[0].id = 1;
    snprintf(config->table[0].name, sizeof(config->table[0].name), "t");
    draw_geometry(c, &config->geometry);
    fit_geometry(c, &config->geometry);
    config->lease_ms = 10;
    config->resolve_ms = 5;
    config->verdict_s = 86400;
    int rc = txn_config_check(config);
    if (rc != 0)
        sim_unable(&c->sim, "configuration: %s", cairn_last_error());
}

/* ---- nodes ---- */

static void on_retry(void *arg, uint64_t tag)
{
    struct cr_node *n = arg;

    (void)tag;
    cr_node_restart(n, SIM_US);
}

/* Its process ends by itself: it is started again a little later. */
static void retry_node(struct cr_node *n)
{
    sim_after(&n->cluster->sim, SIM_MS, on_retry, n, 0);
}

/* With CR_FAULT_MEMORY: the next failing allocation of this life. */
static void plan_failure(struct cr_cluster *c, struct sim_actor *actor)
{
    struct sim_heap *heap = &actor->heap;

    c->counts.allocations_failed += heap->failed;
    heap->failed = false;
    heap->fail_at = 0;
    if ((c->setup.faults & CR_FAULT_MEMORY) != 0 && c->faults != 0)
        heap->fail_at = heap->allocations + 1 + sim_choose(&c->sim, "allocation", MEMORY_EACH);
}

static void node_main(struct sim_actor *actor)
{
    struct cr_node *n = actor->arg;
    struct cr_cluster *c = n->cluster;
    struct pm pm;

    n->steps = 0;
    plan_failure(c, actor);
    sim_pool_pm(n->pool, &actor->env, &pm);
    int rc = pm_attach(&n->pm_pool, &pm, n->super_off);
    if (rc != 0) {
        sim_fail(&c->sim, "%s: attach: %s (%s)", actor->name, cairn_error_name(rc),
            cairn_last_error());
        return;
    }
    n->pm_pool.is_pmem = true;
    n->pm_pool.auto_flush = c->sim.mode == SIM_EADR;
    struct rec_node_options options = {.config = &c->config, .node = n->id,
        .fabric = &c->sim.fabric->base, .env = &actor->env, .pool = &n->pm_pool,
        .scrub_budget = c->scrub_budget};
    rc = rec_node_open(&options, &n->node);
    if (rc == -ENOMEM && actor->heap.failed) {
        plan_failure(c, actor);
        retry_node(n);
        return;
    }
    if (rc != 0) {
        sim_fail(&c->sim, "%s: open: %s (%s)", actor->name, cairn_error_name(rc),
            cairn_last_error());
        return;
    }
    n->opens++;
    actor->recovering = false;
    c->recovery_steps_max = cn_max64(c->recovery_steps_max, n->steps);
    sim_trace(&c->sim, "serves");
    while (!c->closing) {
        if (actor->heap.failed || (c->faults == 0 && actor->heap.fail_at != 0))
            plan_failure(c, actor);
        if (rec_node_poll(n->node) == 0)
            rec_node_sleep(n->node, cn_now_ns(&actor->env) + 5 * SIM_MS);
        sim_yield(&c->sim, 100);
    }
    rec_node_close(&n->node);
}

static void node_abandon(struct sim_actor *actor)
{
    struct cr_node *n = actor->arg;

    if (n->node != NULL)
        rec_node_abandon(&n->node);
}

static void on_restart(void *arg, uint64_t tag)
{
    struct cr_node *n = arg;

    (void)tag;
    n->restart_planned = false;
    if (n->actor->alive)
        return;
    n->cluster->counts.restarts++;
    sim_fabric_teardown(n->actor, n->cluster->sim.fabric->linger && !n->power_too);
    if (n->power_too)
        sim_pool_power_fail(n->pool);
    n->power_too = false;
    sim_pool_reopen(n->pool);
    n->actor->recovering = true;
    sim_actor_start(n->actor, 0);
}

void cr_node_restart(struct cr_node *n, uint64_t delay)
{
    if (n->actor->alive || n->restart_planned)
        return;
    n->restart_planned = true;
    sim_after(&n->cluster->sim, delay, on_restart, n, 0);
}

static void node_new(struct cr_cluster *c, uint32_t i)
{
    struct cr_node *n = &c->node[i];
    struct pm_geometry g = c->config.geometry;
    struct pm_super s = {.extent_count = 1};
    char name[16];
    struct pm pm;

    n->cluster = c;
    n->id = (uint16_t)(i + 1);
    snprintf(name, sizeof(name), "n%u", i + 1);
    n->actor = sim_actor_new(&c->sim, SIM_NODE, name, node_main, node_abandon, n);
    int rc = pm_geometry_complete(&g);
    n->super_off = UINT64_C(1) << g.chunk_shift;
    s.geometry = g;
    s.pool_size = 1u << 20;
    s.extent[0].off = n->super_off;
    pm_geometry_place(&s);
    uint64_t chunks = c->setup.chunks != 0 ? c->setup.chunks : POOL_CHUNKS;
    uint64_t size = s.heap_off + (chunks << g.chunk_shift);
    n->pool = sim_pool_new(&c->sim, size);
    n->pool->owner = n->actor;
    sim_fabric_add_pool(c->sim.fabric, n->pool);
    sim_pool_pm(n->pool, &c->sim.env, &pm);
    pm.tracer = NULL;
    struct pm_extent_pm extent = {le64_make(n->super_off), le64_make(size - n->super_off)};
    if (rc == 0)
        rc = pm_format(&pm, &extent, 1, &c->config.geometry, &c->config.cluster, n->id);
    if (rc != 0)
        sim_unable(&c->sim, "format: %s (%s)", cairn_error_name(rc), cairn_last_error());
    sim_pool_settle(n->pool);
    if (c->sim.failed)
        return;
    cr_guard_watch(c->guard, n->pool, n->super_off);
    if (c->setup.garbage) {
        n->pool->garbage_from = s.rings_off;
        n->pool->garbage_end = s.heap_off;
    }
}

/* ---- phases ---- */

static void on_crash(struct sim *sim, struct sim_actor *actor, enum sim_crash kind)
{
    struct cr_cluster *c = sim->user;

    if (kind == SIM_CRASH_NONE)
        return;
    if (actor->role == SIM_NODE) {
        struct cr_node *n = actor->arg;
        c->counts.crashes_node++;
        if (kind == SIM_CRASH_POWER)
            sim_pool_power_fail(n->pool);
        else
            n->power_too = c->keep_alive && sim_chance(sim, "power-too", 1, 8);
        if (c->keep_alive) {
            uint64_t delay = sim_delay(sim, "restart");
            if (!c->setup.quick && sim_chance(sim, "restart-late", 1, 2))
                delay += sim_choose(sim, "restart-ms", 20000) * SIM_US;
            cr_node_restart(n, delay);
        }
    } else {
        struct cr_client *client = actor->arg;
        c->counts.crashes_client++;
        if (c->keep_alive)
            cr_client_restart(client, sim_delay(sim, "client-restart"));
    }
    if ((c->faults & CR_FAULT_NESTED) != 0 && sim_chance(sim, "nested", 1, 2)) {
        /* At some step of what follows, most likely recovery. */
        c->counts.nested++;
        sim->plan[2] = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
            .step = CN_STEP_a_found + sim_choose(sim, "nested-step",
                                          CN_STEP_COUNT - CN_STEP_a_found),
            .occurrence = 1 + sim_choose(sim, "nested-occurrence", 3),
            .kind = sim_chance(sim, "nested-kind", 1, 2) ? SIM_CRASH_POWER : SIM_CRASH_PROCESS};
    }
}

/* A start has so many slots, records and releases to see to, and no more. */
static void count_step(struct cr_cluster *c, struct cr_node *n)
{
    const struct pm_geometry *g = &c->config.geometry;
    uint64_t most = RECOVERY_STEPS + g->slot_count * (8 + 4 * (uint64_t)g->window);

    if (n->node == NULL && ++n->steps > most)
        sim_fail(&c->sim, "recovery: %s took more than %lu steps to start", n->actor->name, most);
}

static void on_step(struct sim *sim, struct sim_actor *actor, enum cn_step step)
{
    cr_watch_excuse(true);
    if (actor->role == SIM_NODE)
        count_step(sim->user, actor->arg);
    if (actor->role == SIM_CLIENT)
        cr_nemesis_step(sim->user, actor, step);
    if (step == CN_STEP_s_handout && actor->role == SIM_NODE)
        cr_check_handout(actor->arg);
    cr_watch_excuse(false);
}

/* Run until the client is done. */
static void await_client(struct cr_cluster *c, struct cr_client *client, const char *what)
{
    uint64_t limit = c->sim.now + WORK_LIMIT;

    while (!c->sim.stop && !client->finished && c->sim.now < limit)
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    if (!client->finished)
        sim_fail(&c->sim, "liveness: %s did not end within %lu virtual ms", what,
            WORK_LIMIT / SIM_MS);
}

static void run_extra(struct cr_cluster *c, uint32_t what, const char *name)
{
    c->extra.ops_left = what;
    c->extra.finished = false;
    if (!c->sim.stop)
        sim_actor_start(c->extra.actor, 0);
    await_client(c, &c->extra, name);
}

static void await_quiet(struct cr_cluster *c)
{
    uint64_t limit = c->sim.now + QUIET_LIMIT;

    /* A node that sleeps, or was paused, does not know what lies in its rings. */
    if (!c->sim.stop)
        sim_run(&c->sim, c->sim.now + LOOK_ROUND);
    while (!c->sim.stop) {
        bool quiet = true;
        for (uint32_t i = 0; i < c->node_count; i++)
            quiet = quiet && c->node[i].node != NULL && rec_node_is_quiet(c->node[i].node);
        if (quiet)
            return;
        if (c->sim.now >= limit) {
            sim_fail(&c->sim, "liveness: not quiet within %lu virtual ms", QUIET_LIMIT / SIM_MS);
            return;
        }
        sim_run(&c->sim, c->sim.now + SIM_MS);
    }
}

static void fail_unfinished(struct cr_cluster *c, const struct cr_client *client)
{
    bool inside = client->run.call == CR_CALL_STEP;

    sim_fail(&c->sim, "liveness: %s has %u operations left after %lu virtual ms%s%s",
        client->actor->name, client->ops_left, WORK_LIMIT / SIM_MS,
        inside ? ", and is inside step() of " : "",
        inside ? client->run.part->workload->name : "");
}

static void await_clients(struct cr_cluster *c)
{
    uint64_t limit = c->sim.now + WORK_LIMIT;

    for (;;) {
        bool finished = true;
        for (uint32_t i = 0; i < c->client_count; i++)
            finished = finished && c->client[i].finished;
        if (finished || c->sim.stop)
            return;
        if (c->sim.now >= limit) {
            for (uint32_t i = 0; i < c->client_count; i++)
                if (!c->client[i].finished)
                    fail_unfinished(c, &c->client[i]);
            return;
        }
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    }
}

static void heal(struct cr_cluster *c)
{
    cr_tell_phase(&c->sim, CR_PHASE_HEAL, "everything heals: no more faults, all nodes up");
    c->faults = 0;
    c->stalls = NULL;
    for (uint32_t i = 1; i < SIM_PLANS_MAX; i++)
        c->sim.plan[i].occurrence = 0;
    memset(c->sim.hazard, 0, sizeof(c->sim.hazard));
    sim_fabric_heal(&c->sim);
    for (uint32_t i = 0; i < c->sim.actor_count; i++)
        c->sim.actor[i].paused_until = c->sim.actor[i].slow = 0;
    for (uint32_t i = 0; i < c->node_count; i++)
        cr_node_restart(&c->node[i], SIM_US);
}

static void fail_all_power(struct cr_cluster *c)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        sim_actor_crash(c->node[i].actor, SIM_CRASH_POWER);
    sim_run(&c->sim, c->sim.now + 10 * SIM_MS);
    heal(c);
    sim_run(&c->sim, c->sim.now + 100 * SIM_MS);
}

static void close_all(struct cr_cluster *c)
{
    uint64_t limit = c->sim.now + 1000 * SIM_MS;
    bool alive = true;

    c->closing = true;
    while (alive && !c->sim.stop) {
        alive = false;
        for (uint32_t i = 0; i < c->node_count; i++)
            alive = alive || c->node[i].actor->alive;
        if (c->sim.now > limit)
            sim_fail(&c->sim, "liveness: a node does not close");
        sim_run(&c->sim, c->sim.now + SIM_MS);
    }
    c->closing = false;
    heal(c);
    sim_run(&c->sim, c->sim.now + 100 * SIM_MS);
}

static void read_and_check(struct cr_cluster *c, const char *name)
{
    cr_tell_phase(&c->sim, CR_PHASE_CHECK, name);
    run_extra(c, 2, name);
    await_quiet(c);
    if (!c->sim.failed)
        cr_run_verify(c);
    if (!c->sim.failed)
        cr_check_pools(c);
}

/* Until all serve, for the first time. */
static void await_nodes(struct cr_cluster *c)
{
    uint64_t limit = c->sim.now + WORK_LIMIT;
    bool all = false;

    while (!all && !c->sim.stop) {
        sim_run(&c->sim, c->sim.now + SIM_MS);
        all = true;
        for (uint32_t i = 0; i < c->node_count; i++)
            all = all && c->node[i].opens > 0;
        if (!all && c->sim.now >= limit)
            sim_fail(&c->sim, "liveness: a node does not serve within %lu virtual ms",
                WORK_LIMIT / SIM_MS);
    }
}

static void phases(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;

    cr_nemesis_prepare(c);
    for (uint32_t i = 0; i < c->node_count && !sim->stop; i++)
        sim_actor_start(c->node[i].actor, 0);
    await_nodes(c);
    run_extra(c, 1, "set-up");
    sim->plan[0] = c->setup.plan;
    sim->plan[1] = c->setup.first;
    c->keep_alive = true;
    cr_tell_phase(sim, CR_PHASE_WORK, "the clients begin");
    cr_clients_start(c);
    cr_nemesis_start(c);
    await_clients(c);
    heal(c);
    read_and_check(c, "final reads");
    if (!sim->failed && (c->setup.power_at_end || sim_chance(sim, "power-at-end", 1, 4))) {
        fail_all_power(c);
        read_and_check(c, "final reads after a power failure");
    }
    if (!sim->failed && (c->setup.clean_end || sim_chance(sim, "clean-end", 1, 8))) {
        close_all(c);
        read_and_check(c, "final reads after a clean close");
    }
}

/* What the fabric and the platform are like. */
static void draw_fabric(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    struct sim_fabric *fabric = sim->fabric;
    static const struct { enum rd_durability durability; enum sim_mode mode; } ways[] = {
        {RD_DURABILITY_APM, SIM_ADR}, {RD_DURABILITY_GPSPM, SIM_ADR_DDIO},
        {RD_DURABILITY_APM, SIM_ADR}, {RD_DURABILITY_GPSPM, SIM_ADR},
        {RD_DURABILITY_APM, SIM_ADR}, {RD_DURABILITY_GPSPM, SIM_ADR_DDIO},
        {RD_DURABILITY_APM, SIM_ADR}, {RD_DURABILITY_EADR, SIM_EADR}};
    static const uint32_t lanes[] = {SIM_LANES_MAX, 1, SIM_LANES_MAX, 2};

    fabric->refusal_fails = true;
    fabric->prompt = c->setup.prompt;
    fabric->durability = c->setup.durability;
    sim->mode = c->setup.mode;
    if (c->setup.durability == 0) {
        uint32_t way = c->setup.plain ? 0 : sim_choose(sim, "durability", CN_ARRAY_SIZE(ways));
        fabric->durability = ways[way].durability;
        sim->mode = ways[way].mode;
    }
    fabric->lanes = c->setup.lanes;
    fabric->message_atomics = c->setup.message_atomics;
    if (c->setup.lanes == 0) {
        fabric->lanes = lanes[c->setup.plain ? 0 : sim_choose(sim, "lanes", 4)];
        fabric->message_atomics = !c->setup.plain && sim_chance(sim, "message-atomics", 1, 4);
    }
    sim_trace(sim, "platform %u, flushes by %s, %u lanes, atomics by %s", sim->mode,
        rd_durability_name(fabric->durability), fabric->lanes,
        fabric->message_atomics ? "message" : "NIC");
}

/* How many clients share a context. A clock that stands still would let none of them rest. */
static uint32_t draw_group(struct cr_cluster *c)
{
    static const uint32_t groups[] = {1, 1, 2, 3};

    if (c->setup.group != 0)
        return c->setup.group;
    if (c->setup.plain || c->setup.body != NULL || (c->setup.faults & CR_FAULT_CLOCK) != 0 ||
        c->setup.plan.occurrence != 0) /* counted over coordinators */
        return 1;
    return groups[sim_choose(&c->sim, "group", CN_ARRAY_SIZE(groups))];
}

static void draw_setup(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    static const uint32_t yields[] = {0, 512, 64, 8}, budgets[] = {0, 256, 32};

    sim->verbose = c->setup.verbose;
    draw_fabric(c);
    c->node_count = c->setup.nodes != 0 ? c->setup.nodes : 2 + sim_choose(sim, "nodes", 2);
    c->client_count = c->setup.clients != 0 ? c->setup.clients : 2 + sim_choose(sim, "clients", 3);
    c->group = draw_group(c);
    c->faults = c->setup.faults & (sim_choose(sim, "faults", CR_FAULTS_ALL + 1) | CR_FAULT_STEP);
    sim->fabric->linger = c->setup.quick;
    if (c->setup.plain)
        return;
    sim->fabric->linger |= sim_chance(sim, "linger", 1, 2);
    c->scrub_budget = budgets[sim_choose(sim, "scrub-budget", CN_ARRAY_SIZE(budgets))];
    sim->jitter = sim_choose(sim, "jitter", 4);
    sim->store_yield = yields[sim_choose(sim, "store-yield", CN_ARRAY_SIZE(yields))];
    sim->step_yield = yields[sim_choose(sim, "step-yield", CN_ARRAY_SIZE(yields))] / 4;
    sim->fabric->packet_max = 64u << sim_choose(sim, "packet-max", 5);
    if (tx_bytes(c) != 0) /* a record takes no longer than a small one: leases are short */
        sim->fabric->packet_max *= 1 + tx_bytes(c) / TX_BYTES;
}

static void build(struct cr_cluster *c)
{
    struct cairn_options options = {.size = sizeof(options), .connect_timeout_ms = 20,
        .op_timeout_ms = 50, .cache_entries = 1u << 10, .inflight = c->group};

    make_config(c);
    c->guard = cr_guard_new(&c->sim);
    for (uint32_t i = 0; i < c->node_count && !c->sim.stop; i++)
        node_new(c, i);
    c->discipline = c->setup.discipline ? cr_discipline_new(&c->sim) : NULL;
    for (uint32_t i = 0; c->discipline != NULL && i < c->node_count && !c->sim.stop; i++)
        cr_discipline_watch(c->discipline, c->node[i].pool, c->node[i].super_off);
    c->rules = c->setup.rules && !c->sim.stop ? cr_rules_new(&c->sim) : NULL;
    for (uint32_t i = 0; c->rules != NULL && i < c->node_count && !c->sim.stop; i++)
        cr_rules_watch(c->rules, c->node[i].pool, c->node[i].super_off);
    cr_clients_new(c);
    cr_run_open(c);
    if (c->sim.stop)
        return;
    int rc = txn_cluster_open(&c->config, &c->sim.fabric->base, &c->sim.env, &options, &c->cairn);
    if (rc != 0)
        sim_unable(&c->sim, "cluster: %s", cairn_last_error());
}

static void add_node(struct cr_result *ret, const struct cr_node *n)
{
    const struct sim_pool *pool = n->pool;
    struct rec_node_stats stats = {0};

    if (pool == NULL)
        return;
    if (n->node != NULL)
        rec_node_stats(n->node, &stats);
    ret->counts.fulls += stats.store.grants_full;
    ret->words_lost += pool->words_lost;
    ret->counts.words_spoiled += pool->words_spoiled;
    ret->counts.flush_lines += pool->flush_lines;
    ret->counts.flush_lines_clean += pool->flush_lines_clean;
    ret->counts.fences += pool->fences;
    ret->counts.fences_idle += pool->fences_idle;
}

static void report(struct cr_cluster *c, struct cr_result *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->failed = c->sim.failed;
    ret->unable = c->sim.unable;
    memcpy(ret->failure, c->sim.failure, sizeof(ret->failure));
    memcpy(ret->failure_class, c->sim.failure_class, sizeof(ret->failure_class));
    ret->diverged = c->sim.tape.diverged;
    ret->node_count = c->node_count;
    ret->client_count = c->client_count;
    ret->replay_unused = c->sim.tape.replay_count - c->sim.tape.replay_used;
    ret->hash = c->sim.tape.hash;
    ret->plan_fired = c->sim.plan[0].fired;
    ret->choices = c->sim.tape.count;
    ret->virtual_ns = c->sim.now;
    memcpy(ret->steps, c->sim.stats.steps, sizeof(ret->steps));
    ret->counts = c->counts;
    ret->stats = c->sim.stats;
    ret->counts.flushes_served = c->sim.fabric->flushes_served;
    ret->counts.cas_served = c->sim.fabric->cas_served;
    ret->recovery_steps_max = c->recovery_steps_max;
    if (c->guard != NULL) {
        struct cr_guard_stats guard;
        cr_guard_stats(c->guard, &guard);
        ret->counts.guarded = guard.stores;
    }
    for (uint32_t i = 0; i < c->node_count; i++)
        add_node(ret, &c->node[i]);
}

void cr_cluster_run(const struct cr_setup *setup, uint64_t seed, struct cr_result *ret)
{
    struct cr_cluster *c = sim_calloc(1, sizeof(*c));

    c->setup = *setup;
    sim_init(&c->sim, seed, setup->record);
    c->sim.tape.calm_rest = setup->calm_rest;
    sim_tape_play(&c->sim.tape, setup->replay, setup->replay_count);
    c->sim.events_max = setup->events_max;
    c->sim.verbose = setup->verbose;
    if (setup->timeline != NULL)
        cr_timeline_attach(setup->timeline, &c->sim);
    cr_timeline_api_use(&c->sim);
    c->sim.user = c;
    c->sim.on_crash = on_crash;
    c->sim.on_step = on_step;
    c->sim.calm = setup->plain;
    cr_cache_use(&c->sim);
    draw_setup(c);
    build(c);
    cr_watch_start(c, setup->watch_seconds != 0 ? setup->watch_seconds : CR_WATCH_SECONDS);
    if (!c->sim.stop)
        phases(c);
    cr_watch_stop();
    report(c, ret);
    ret->history_error = cr_run_write_histories(c);
    cr_timeline_api_use(NULL);
    if (setup->timeline != NULL)
        cr_timeline_close(setup->timeline, &c->sim);
    if (setup->record) {
        ret->tape = c->sim.tape.choice;
        ret->tape_count = c->sim.tape.choice_count;
        c->sim.tape.choice = NULL;
        c->sim.tape.record = false;
    }
    cr_rules_delete(&c->rules);
    if (c->guard != NULL)
        cr_guard_delete(&c->guard);
    sim_fini(&c->sim);
    if (c->cairn != NULL) {
        c->cairn->contexts = 0; /* contexts of crashed clients are gone without a word */
        cairn_close(&c->cairn);
    }
    cr_discipline_delete(&c->discipline);
    for (uint32_t i = 0; i < c->node_count; i++)
        if (c->node[i].pool != NULL)
            sim_pool_delete(c->node[i].pool);
    cr_run_close(c);
    cr_cache_use(NULL);
    sim_free(c);
}
