/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_nemesis.c: faults at drawn times: crashes of nodes (process, power, all at once) and clients,
 * pauses, partitions, lost connections, and one crash at a drawn named step.
 */
#include "tools/crash/cluster/cr_cluster.h"

#define SLOWER 100u
#define STALLS 4u       /* one in so many commits */
#define STALL_US 40000u /* the longest: records are resolved after 5 ms, and no flush times out */

static struct sim_actor *draw_actor(struct cr_cluster *c)
{
    uint32_t i = sim_choose(&c->sim, "actor", c->node_count + c->client_count);

    return i < c->node_count ? c->node[i].actor : c->client[i - c->node_count].actor;
}

static void crash_node(struct cr_cluster *c, enum sim_crash kind)
{
    sim_actor_crash(c->node[sim_choose(&c->sim, "node", c->node_count)].actor, kind);
}

static void on_heal(void *arg, uint64_t tag)
{
    (void)tag;
    sim_fabric_heal(arg);
}

static void partition(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    const struct sim_actor *a = draw_actor(c), *b = draw_actor(c);
    uint64_t patience = SIM_MS + sim_choose(sim, "patience", 20000) * SIM_US;
    uint32_t kind = sim_choose(sim, "partition", 4);

    if (a == b)
        return;
    c->counts.partitions++;
    if (kind != 1)
        sim_fabric_block(sim, a->id, b->id, patience);
    if (kind != 2)
        sim_fabric_block(sim, b->id, a->id, patience);
    sim_after(sim, sim_choose(sim, "partition-us", 40000) * SIM_US, on_heal, sim, 0);
}

/* What has just been posted gets to the node, and its answers wait; or it waits itself. Connections
 * outlive it. */
void cr_nemesis_step(struct cr_cluster *c, struct sim_actor *actor, enum cn_step step)
{
    struct sim *sim = &c->sim;

    if (c->stalls == NULL || step != CN_STEP_c_logged)
        return;
    uint32_t node = c->stalls->actor->id, client = actor->id;
    if (sim->fabric->blocked[node][client] || sim->fabric->blocked[client][node] ||
        !sim_chance(sim, "stall", 1, STALLS))
        return;
    uint64_t length = sim_choose(sim, "stall-us", STALL_US) * SIM_US;
    bool there = sim_chance(sim, "stall-there", 1, 2);
    sim_fabric_block(sim, there ? client : node, there ? node : client, length + 1);
    sim_after(sim, length, on_heal, sim, 0);
}

static void pause_one(struct cr_cluster *c)
{
    struct sim_actor *actor = draw_actor(c);
    uint64_t length = sim_choose(&c->sim, "pause-kind", 2) == 0
        ? sim_choose(&c->sim, "pause-us", 2000) * SIM_US
        : sim_choose(&c->sim, "pause-ms", 60) * SIM_MS;

    c->counts.pauses++;
    sim_actor_pause(actor, c->sim.now + length);
}

static void on_fault(void *arg, uint64_t tag)
{
    struct cr_cluster *c = arg;
    unsigned fault = (unsigned)tag;

    if ((c->faults & fault) == 0)
        return; /* healed meanwhile */
    switch (fault) {
    case CR_FAULT_NODE_PROCESS:
        crash_node(c, SIM_CRASH_PROCESS);
        break;
    case CR_FAULT_NODE_POWER:
        crash_node(c, SIM_CRASH_POWER);
        break;
    case CR_FAULT_ALL_POWER:
        for (uint32_t i = 0; i < c->node_count; i++)
            sim_actor_crash(c->node[i].actor, SIM_CRASH_POWER);
        break;
    case CR_FAULT_CLIENT:
        sim_actor_crash(c->client[sim_choose(&c->sim, "client", c->client_count)].actor,
            SIM_CRASH_PROCESS);
        break;
    case CR_FAULT_PAUSE:
        pause_one(c);
        break;
    case CR_FAULT_PARTITION:
        partition(c);
        break;
    case CR_FAULT_BREAK:
        c->counts.breaks += sim_fabric_break_some(&c->sim);
        break;
    default:
        break;
    }
}

static void draw_step(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    enum cn_step step = sim_choose(sim, "crash-step", CN_STEP_COUNT);
    bool client = step <= CN_STEP_c_void;

    sim->plan[1] = (struct sim_plan){.role = client ? SIM_CLIENT : SIM_NODE, .any_actor = true,
        .step = step, .occurrence = 1 + sim_choose(sim, "crash-occurrence", 12),
        .kind = client || sim_chance(sim, "crash-kind", 1, 2) ? SIM_CRASH_PROCESS
                                                               : SIM_CRASH_POWER};
}

/* Rates per named step: a transaction passes about a dozen, a record's life at its node about as
 * many. */
static void draw_hazards(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    static const uint32_t client[] = {0, 400, 100, 40}, node[] = {0, 2000, 500, 100};
    static const uint32_t store[] = {0, 0, 10000, 1500};
    static const uint32_t us[] = {300, 3000, 30000, 60000};
    struct sim_hazard *h = &sim->hazard[SIM_CLIENT];

    h->process = client[sim_choose(sim, "hazard-1", 4)];
    h->pause = client[sim_choose(sim, "hazard-2", 4)];
    h->pause_us = us[sim_choose(sim, "hazard-3", 4)];
    h = &sim->hazard[SIM_NODE];
    h->process = node[sim_choose(sim, "hazard-4", 4)];
    h->power = node[sim_choose(sim, "hazard-5", 4)];
    h->pause = node[sim_choose(sim, "hazard-6", 4)];
    h->pause_us = us[sim_choose(sim, "hazard-7", 4)];
    h->store = store[sim_choose(sim, "hazard-8", 4)];
}

static void on_wall_jump(void *arg, uint64_t tag)
{
    struct sim_actor *actor = arg;

    actor->wall_jump_s = (int64_t)tag - (INT64_C(1) << 31);
}

/* What clocks say decides when something is tried again or given up, never what is true. */
static void draw_clocks(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    static const uint64_t ahead[] = {0, SIM_MS, 1000 * SIM_MS, UINT64_C(1) << 50};
    static const int32_t ppm[] = {0, 200, -200, 20000, -20000, 400000, -400000};
    static const int64_t jumps[] = {0, 3600, -3600, 400 * 86400, -400 * 86400};

    for (uint32_t i = 0; i < sim->actor_count; i++) {
        struct sim_actor *actor = &sim->actor[i];
        actor->clock_ahead = ahead[sim_choose(sim, "clock-ahead", CN_ARRAY_SIZE(ahead))];
        actor->clock_ppm = ppm[sim_choose(sim, "clock-ppm", CN_ARRAY_SIZE(ppm))];
        actor->wall_frozen = sim_chance(sim, "wall-frozen", 1, 4);
        for (uint32_t k = 0; k < 2; k++) {
            int64_t jump = jumps[sim_choose(sim, "wall-jump", CN_ARRAY_SIZE(jumps))];
            sim_after(sim, sim_choose(sim, "wall-jump-us", 10000) * SIM_US, on_wall_jump, actor,
                (uint64_t)(jump + (INT64_C(1) << 31)));
        }
    }
}

void cr_nemesis_prepare(struct cr_cluster *c)
{
    if ((c->setup.faults & CR_FAULT_CLOCK) != 0)
        draw_clocks(c);
}

void cr_nemesis_start(struct cr_cluster *c)
{
    struct sim *sim = &c->sim;
    static const uint64_t horizons[] = {300 * SIM_US, SIM_MS, 4 * SIM_MS, 30 * SIM_MS};

    if (c->setup.faults == 0)
        return;
    if ((c->setup.faults & CR_FAULT_SLOW) != 0)
        c->node[sim_choose(sim, "slow", c->node_count)].actor->slow = SLOWER;
    if ((c->setup.faults & CR_FAULT_STALL) != 0)
        c->stalls = &c->node[sim_choose(sim, "stall-node", c->node_count)];
    if (sim->plan[1].occurrence == 0 && (c->faults & CR_FAULT_STEP) != 0 &&
        sim_chance(sim, "step-crash", 2, 3))
        draw_step(c);
    if ((c->faults & CR_FAULT_HAZARD) != 0)
        draw_hazards(c);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sim_hazard *h = &c->setup.hazard[i];
        if (h->process != 0 || h->power != 0 || h->pause != 0 || h->store != 0)
            sim->hazard[i] = *h;
    }
    uint64_t horizon = horizons[sim_choose(sim, "horizon", CN_ARRAY_SIZE(horizons))];
    uint32_t count = sim_choose(sim, "fault-count", 7);
    for (uint32_t i = 0; i < count; i++) {
        unsigned fault = 1u << sim_choose(sim, "fault", 7);
        uint64_t at = (horizon >> 10) * sim_choose(sim, "fault-time", 1024);
        sim_after(sim, at, on_fault, c, fault);
    }
}
