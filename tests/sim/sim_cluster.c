/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_cluster.c: geometry and configuration from the seed, nodes and clients as actors, the phases
 * of a run.
 */
#include "tests/sim/sim_cluster.h"

#include "pmem/pm_format.h"
#include "tests/sim/sim_cache.h"

#define WORK_LIMIT (4000 * SIM_MS) /* virtual time in which all clients must have finished */
#define QUIET_LIMIT (4000 * SIM_MS)
#define POOL_CHUNKS 40u

/* ---- configuration ---- */

static void draw_geometry(struct sim_cluster *c, struct pm_geometry *g)
{
    struct sim *sim = &c->sim;
    static const uint32_t windows[] = {8, 16, 12, 4};
    static const uint64_t rings[] = {8192, 16384, 4096, 12288};

    *g = (struct pm_geometry){.chunk_shift = 13, .slot_count = 10, .window = 8, .ring_size = 8192,
        .retired_max = 256, .root_map_max = 64, .bucket_slots = 4, .fingerprint_bits = 2,
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
static enum txn_persistence draw_persistence(struct sim_cluster *c)
{
    enum rd_durability durability = c->sim.fabric->durability;

    if (durability == RD_DURABILITY_APM)
        return TXN_PERSISTENCE_APM;
    if (!c->setup.plain && sim_chance(&c->sim, "persistence-auto", 1, 2))
        return TXN_PERSISTENCE_AUTO;
    return durability == RD_DURABILITY_GPSPM ? TXN_PERSISTENCE_GPSPM : TXN_PERSISTENCE_EADR;
}

static void make_config(struct sim_cluster *c)
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
    config->lease_ms = 10;
    config->resolve_ms = 5;
    config->verdict_s = 86400;
    int rc = txn_config_check(config);
    if (rc != 0)
        sim_fail(&c->sim, "configuration: %s", cairn_last_error());
}

/* ---- nodes ---- */

static void node_main(struct sim_actor *actor)
{
    struct sim_node *n = actor->arg;
    struct sim_cluster *c = n->cluster;
    struct pm pm;

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
    if (rc != 0) {
        sim_fail(&c->sim, "%s: open: %s (%s)", actor->name, cairn_error_name(rc),
            cairn_last_error());
        return;
    }
    n->opens++;
    sim_trace(&c->sim, "serves");
    while (!c->closing) {
        if (rec_node_poll(n->node) == 0)
            rec_node_sleep(n->node, c->sim.now + 5 * SIM_MS);
        sim_yield(&c->sim, 100);
    }
    rec_node_close(&n->node);
}

static void node_abandon(struct sim_actor *actor)
{
    struct sim_node *n = actor->arg;

    if (n->node != NULL)
        rec_node_abandon(&n->node);
}

static void on_restart(void *arg, uint64_t tag)
{
    struct sim_node *n = arg;

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
    sim_actor_start(n->actor, 0);
}

void sim_node_restart(struct sim_node *n, uint64_t delay)
{
    if (n->actor->alive || n->restart_planned)
        return;
    n->restart_planned = true;
    sim_after(&n->cluster->sim, delay, on_restart, n, 0);
}

static void node_new(struct sim_cluster *c, uint32_t i)
{
    struct sim_node *n = &c->node[i];
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
    uint64_t size = s.heap_off + ((uint64_t)POOL_CHUNKS << g.chunk_shift);
    n->pool = sim_pool_new(&c->sim, size);
    n->pool->owner = n->actor;
    sim_fabric_add_pool(c->sim.fabric, n->pool);
    sim_pool_pm(n->pool, &c->sim.env, &pm);
    pm.tracer = NULL;
    struct pm_extent_pm extent = {le64_make(n->super_off), le64_make(size - n->super_off)};
    if (rc == 0)
        rc = pm_format(&pm, &extent, 1, &c->config.geometry, &c->config.cluster, n->id);
    if (rc != 0)
        sim_fail(&c->sim, "format: %s (%s)", cairn_error_name(rc), cairn_last_error());
    sim_pool_settle(n->pool);
}

/* ---- clients ---- */

static void client_main(struct sim_actor *actor)
{
    struct sim_client *client = actor->arg;
    struct sim_cluster *c = client->cluster;
    int rc = txn_ctx_open(c->cairn, &actor->env, &client->ctx);

    if (rc != 0) {
        sim_fail(&c->sim, "%s: context: %s", actor->name, cairn_last_error());
        return;
    }
    if (c->setup.body != NULL) {
        c->setup.body(client);
        client->ops_left = 0;
    }
    while (client->ops_left > 0 && !c->sim.stop) {
        client->ops_left--;
        if (sim_chance(&c->sim, "think", 1, 4))
            sim_sleep(&c->sim, c->sim.now + sim_delay(&c->sim, "think-time"));
        sim_work_once(client);
        /* Else all operations are spent on a node that is down. */
        if (client->trouble && sim_chance(&c->sim, "wait", 3, 4))
            sim_sleep(&c->sim, c->sim.now + sim_choose(&c->sim, "wait-us", 2000) * SIM_US);
        client->trouble = false;
    }
    client->busy = true;
    client->busy_since = c->sim.now;
    cairn_ctx_close(&client->ctx);
    client->busy = false;
    client->finished = true;
}

static void client_abandon(struct sim_actor *actor)
{
    struct sim_client *client = actor->arg;

    if (client->ctx != NULL)
        txn_ctx_abandon(&client->ctx);
    client->busy = false;
    sim_free(client->op);
    client->op = NULL;
    /* The operation in flight stays PENDING in the ledger; its process invokes no more. */
    client->entry = NULL;
    client->process = ++client->cluster->next_process;
}

static void on_client_restart(void *arg, uint64_t tag)
{
    struct sim_client *client = arg;

    (void)tag;
    if (!client->actor->alive && !client->finished)
        sim_actor_start(client->actor, 0);
}

static void setup_main(struct sim_actor *actor)
{
    struct sim_client *client = actor->arg;
    struct sim_cluster *c = client->cluster;
    int rc = txn_ctx_open(c->cairn, &actor->env, &client->ctx);

    if (rc != 0) {
        sim_fail(&c->sim, "%s: context: %s", actor->name, cairn_last_error());
        return;
    }
    if (client->ops_left == 1)
        sim_work_setup(client);
    else
        sim_work_final(client);
    cairn_ctx_close(&client->ctx);
    client->finished = true;
}

static void client_new(struct sim_cluster *c, struct sim_client *client, const char *name,
    void (*main)(struct sim_actor *))
{
    client->cluster = c;
    client->process = ++c->next_process;
    client->actor = sim_actor_new(&c->sim, SIM_CLIENT, name, main, client_abandon, client);
}

/* ---- phases ---- */

static void on_crash(struct sim *sim, struct sim_actor *actor, enum sim_crash kind)
{
    struct sim_cluster *c = sim->user;

    if (kind == SIM_CRASH_NONE)
        return;
    if (actor->role == SIM_NODE) {
        struct sim_node *n = actor->arg;
        c->counts.crashes_node++;
        if (kind == SIM_CRASH_POWER)
            sim_pool_power_fail(n->pool);
        else
            n->power_too = c->keep_alive && sim_chance(sim, "power-too", 1, 8);
        if (c->keep_alive) {
            uint64_t delay = sim_delay(sim, "restart");
            if (!c->setup.quick && sim_chance(sim, "restart-late", 1, 2))
                delay += sim_choose(sim, "restart-ms", 20000) * SIM_US;
            sim_node_restart(n, delay);
        }
    } else {
        struct sim_client *client = actor->arg;
        c->counts.crashes_client++;
        if (c->keep_alive)
            sim_after(sim, sim_delay(sim, "client-restart"), on_client_restart, client, 0);
    }
    if ((c->faults & SIM_FAULT_NESTED) != 0 && sim_chance(sim, "nested", 1, 2)) {
        /* At some step of what follows, most likely recovery. */
        c->counts.nested++;
        sim->plan[2] = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
            .step = CN_STEP_a_found + sim_choose(sim, "nested-step",
                                          CN_STEP_COUNT - CN_STEP_a_found),
            .occurrence = 1 + sim_choose(sim, "nested-occurrence", 3),
            .kind = sim_chance(sim, "nested-kind", 1, 2) ? SIM_CRASH_POWER : SIM_CRASH_PROCESS};
    }
}

static void on_step(struct sim *sim, struct sim_actor *actor, enum cn_step step)
{
    (void)sim;
    if (step == CN_STEP_s_handout && actor->role == SIM_NODE)
        sim_check_handout(actor->arg);
}

/* Run until the client is done. */
static void await_client(struct sim_cluster *c, struct sim_client *client, const char *what)
{
    uint64_t limit = c->sim.now + WORK_LIMIT;

    while (!c->sim.stop && !client->finished && c->sim.now < limit)
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    if (!client->finished)
        sim_fail(&c->sim, "liveness: %s did not end within %lu virtual ms", what,
            WORK_LIMIT / SIM_MS);
}

static void run_extra(struct sim_cluster *c, uint32_t what, const char *name)
{
    c->extra.ops_left = what;
    c->extra.finished = false;
    if (!c->sim.stop)
        sim_actor_start(c->extra.actor, 0);
    await_client(c, &c->extra, name);
}

static void await_quiet(struct sim_cluster *c)
{
    uint64_t limit = c->sim.now + QUIET_LIMIT;

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

static void await_clients(struct sim_cluster *c)
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
                    sim_fail(&c->sim, "liveness: %s has %u operations left after %lu virtual ms",
                        c->client[i].actor->name, c->client[i].ops_left, WORK_LIMIT / SIM_MS);
            return;
        }
        sim_run(&c->sim, c->sim.now + 100 * SIM_US);
    }
}

static void heal(struct sim_cluster *c)
{
    c->faults = 0;
    for (uint32_t i = 1; i < SIM_PLANS_MAX; i++)
        c->sim.plan[i].occurrence = 0;
    memset(c->sim.hazard, 0, sizeof(c->sim.hazard));
    sim_fabric_heal(&c->sim);
    for (uint32_t i = 0; i < c->sim.actor_count; i++)
        c->sim.actor[i].paused_until = 0;
    for (uint32_t i = 0; i < c->node_count; i++)
        sim_node_restart(&c->node[i], SIM_US);
}

static void fail_all_power(struct sim_cluster *c)
{
    for (uint32_t i = 0; i < c->node_count; i++)
        sim_actor_crash(c->node[i].actor, SIM_CRASH_POWER);
    sim_run(&c->sim, c->sim.now + 10 * SIM_MS);
    heal(c);
    sim_run(&c->sim, c->sim.now + 100 * SIM_MS);
}

static void close_all(struct sim_cluster *c)
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

static void read_and_check(struct sim_cluster *c, const char *name)
{
    run_extra(c, 2, name);
    await_quiet(c);
    if (!c->sim.failed)
        sim_check(c);
    if (!c->sim.failed)
        sim_check_pools(c);
}

static void phases(struct sim_cluster *c)
{
    struct sim *sim = &c->sim;

    for (uint32_t i = 0; i < c->node_count && !sim->stop; i++)
        sim_actor_start(c->node[i].actor, 0);
    sim_run(sim, sim->now + SIM_MS);
    run_extra(c, 1, "set-up");
    sim->plan[0] = c->setup.plan;
    sim->plan[1] = c->setup.first;
    c->keep_alive = true;
    for (uint32_t i = 0; i < c->client_count && !sim->stop; i++)
        sim_actor_start(c->client[i].actor, sim_delay(sim, "start"));
    sim_nemesis_start(c);
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
static void draw_fabric(struct sim_cluster *c)
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

static void draw_setup(struct sim_cluster *c)
{
    struct sim *sim = &c->sim;
    static const uint32_t yields[] = {0, 512, 64, 8}, budgets[] = {0, 256, 32};

    sim->verbose = c->setup.verbose;
    draw_fabric(c);
    c->node_count = c->setup.nodes != 0 ? c->setup.nodes : 2 + sim_choose(sim, "nodes", 2);
    c->client_count = c->setup.clients != 0 ? c->setup.clients : 2 + sim_choose(sim, "clients", 3);
    c->lists = 2 + sim_choose(sim, "lists", 4);
    c->accounts = 3 + sim_choose(sim, "accounts", 3);
    c->counters = 1 + sim_choose(sim, "counters", 2);
    c->privates = 3;
    c->pairs = 2;
    c->work = c->setup.work != 0 ? c->setup.work
                                 : 1 + sim_choose(sim, "work", (1u << SIM_WORK_COUNT) - 1);
    c->work |= 1u << SIM_WORK_APPEND;
    c->faults = c->setup.faults & (sim_choose(sim, "faults", SIM_FAULTS_ALL + 1) | SIM_FAULT_STEP);
    sim->fabric->linger = c->setup.quick;
    if (c->setup.plain)
        return;
    sim->fabric->linger |= sim_chance(sim, "linger", 1, 2);
    c->scrub_budget = budgets[sim_choose(sim, "scrub-budget", CN_ARRAY_SIZE(budgets))];
    sim->jitter = sim_choose(sim, "jitter", 4);
    sim->store_yield = yields[sim_choose(sim, "store-yield", CN_ARRAY_SIZE(yields))];
    sim->step_yield = yields[sim_choose(sim, "step-yield", CN_ARRAY_SIZE(yields))] / 4;
    sim->fabric->packet_max = 64u << sim_choose(sim, "packet-max", 5);
}

static void build(struct sim_cluster *c)
{
    static const char *const names[] = {"c1", "c2", "c3", "c4", "c5", "c6"};
    struct cairn_options options = {sizeof(options), 20, 50, 1u << 10};

    make_config(c);
    for (uint32_t i = 0; i < c->node_count && !c->sim.stop; i++)
        node_new(c, i);
    for (uint32_t i = 0; i < c->client_count; i++) {
        c->client[i].index = i;
        c->client[i].ops_left = c->setup.ops;
        client_new(c, &c->client[i], names[i], client_main);
    }
    client_new(c, &c->extra, "extra", setup_main);
    if (c->sim.stop)
        return;
    int rc = txn_cluster_open(&c->config, &c->sim.fabric->base, &c->sim.env, &options, &c->cairn);
    if (rc != 0)
        sim_fail(&c->sim, "cluster: %s", cairn_last_error());
}

static void report(struct sim_cluster *c, struct sim_result *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->failed = c->sim.failed;
    memcpy(ret->failure, c->sim.failure, sizeof(ret->failure));
    ret->hash = c->sim.tape.hash;
    ret->plan_fired = c->sim.plan[0].fired;
    ret->choices = c->sim.tape.count;
    ret->virtual_ns = c->sim.now;
    memcpy(ret->steps, c->sim.stats.steps, sizeof(ret->steps));
    ret->counts = c->counts;
    ret->stats = c->sim.stats;
    ret->counts.flushes_served = c->sim.fabric->flushes_served;
    ret->counts.cas_served = c->sim.fabric->cas_served;
    for (uint32_t i = 0; i < c->node_count; i++)
        ret->words_lost += c->node[i].pool != NULL ? c->node[i].pool->words_lost : 0;
}

void sim_cluster_run(const struct sim_setup *setup, uint64_t seed, struct sim_result *ret)
{
    struct sim_cluster *c = sim_calloc(1, sizeof(*c));

    c->setup = *setup;
    c->history = ts_history_new();
    sim_init(&c->sim, seed, setup->record);
    sim_tape_play(&c->sim.tape, setup->replay, setup->replay_count);
    c->sim.user = c;
    c->sim.on_crash = on_crash;
    c->sim.on_step = on_step;
    c->sim.calm = setup->plain;
    sim_cache_use(&c->sim);
    draw_setup(c);
    build(c);
    if (!c->sim.stop)
        phases(c);
    report(c, ret);
    if (setup->record) {
        ret->tape = c->sim.tape.choice;
        ret->tape_count = c->sim.tape.choice_count;
        c->sim.tape.choice = NULL;
        c->sim.tape.record = false;
    }
    sim_fini(&c->sim);
    if (c->cairn != NULL) {
        c->cairn->contexts = 0; /* contexts of crashed clients are gone without a word */
        cairn_close(&c->cairn);
    }
    for (uint32_t i = 0; i < c->node_count; i++)
        if (c->node[i].pool != NULL)
            sim_pool_delete(c->node[i].pool);
    for (uint32_t i = 0; i < c->entry_count; i++)
        sim_free(c->entry[i]);
    sim_free(c->entry);
    ts_history_delete(&c->history);
    sim_cache_use(NULL);
    sim_free(c);
}
