/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_client.c: clients: coordinators that run the workloads' operations. Each has a context of its
 * own, or several share one (cr_setup.group), as the transactions in flight of one thread do: then
 * they are lanes of their leader's context, live in its actor and die with it. A workload does not
 * see the difference: its calls that wait let the others go on.
 */
#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/cluster/cr_timeline.h"
#include "txn/txn_ctx.h"

#define LOOK_NS SIM_MS /* a leader whose lanes all wait looks again after so long */

/* ---- operations ---- */

/* Let time pass for this client, and not for those that share its context. */
static void rest(struct cr_client *client, uint64_t ns)
{
    struct sim *sim = &client->cluster->sim;

    if (client->cluster->group == 1)
        sim_sleep(sim, sim->now + ns);
    else
        txn_pause(client->ctx, txn_now(client->ctx) + ns);
}

static bool is_left_out(const struct cr_client *client)
{
    return client->operation <= 64 &&
        (client->cluster->setup.skip[client->index] >> (client->operation - 1) & 1) != 0;
}

static void work(void *arg)
{
    struct cr_client *client = arg;
    struct sim *sim = &client->cluster->sim;

    while (client->ops_left > 0 && !sim->stop) {
        client->ops_left--;
        cr_tell_begin(client, "an operation");
        if (is_left_out(client)) {
            cr_tell_end(client);
            continue;
        }
        if (sim_chance(sim, "think", 1, 4))
            rest(client, sim_delay(sim, "think-time"));
        cr_run_step(client);
        /* Else all operations are spent on a node that is down. */
        if (client->trouble && sim_chance(sim, "wait", 3, 4))
            rest(client, sim_choose(sim, "wait-us", 2000) * SIM_US);
        client->trouble = false;
        cr_tell_end(client);
    }
    client->finished = true;
}

/* ---- lanes ---- */

/* The clients that share a context with `leader`, itself first. */
static uint32_t members(struct cr_client *leader, struct cr_client *ret[CR_CLIENTS_MAX])
{
    struct cr_cluster *c = leader->cluster;
    uint32_t count = 0;

    for (uint32_t i = leader->index; i < c->client_count && count < c->group; i++)
        ret[count++] = &c->client[i];
    return count;
}

static bool all_finished(struct cr_client *const member[], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!member[i]->finished)
            return false;
    return true;
}

/* The loop of a service that has nothing else to do. */
static void carry_on(struct cairn_ctx *ctx)
{
    (void)cairn_poll(ctx);
    int timeout_ms = cairn_arm(ctx);
    if (timeout_ms != 0)
        rd_ep_sleep(ctx->ep, txn_now(ctx) +
                (timeout_ms < 0 ? LOOK_NS : cn_min64((uint64_t)timeout_ms * SIM_MS, LOOK_NS)));
}

static void work_together(struct cr_client *leader)
{
    struct sim *sim = &leader->cluster->sim;
    struct cr_client *member[CR_CLIENTS_MAX];
    uint32_t count = members(leader, member);

    for (uint32_t i = 0; i < count; i++) {
        member[i]->ctx = leader->ctx;
        if (member[i]->finished)
            continue;
        if (txn_spawn(leader->ctx, work, member[i]) != 0)
            sim_fail(sim, "%s: %s", leader->actor->name, cairn_last_error());
    }
    while (!all_finished(member, count) && !sim->stop)
        carry_on(leader->ctx);
}

/* ---- actors ---- */

static void client_main(struct sim_actor *actor)
{
    struct cr_client *client = actor->arg;
    struct cr_cluster *c = client->cluster;
    int rc = txn_ctx_open(c->cairn, &actor->env, &client->ctx);

    if (rc != 0) {
        sim_fail(&c->sim, "%s: context: %s", actor->name, cairn_last_error());
        return;
    }
    if (c->setup.body != NULL) {
        c->setup.body(client);
        client->ops_left = 0;
    }
    if (c->group == 1)
        work(client);
    else
        work_together(client);
    client->finished = false; /* not before its context is closed */
    client->busy = true;
    client->busy_since = c->sim.now;
    cairn_ctx_close(&client->ctx);
    client->busy = false;
    client->finished = true;
}

static void client_abandon(struct sim_actor *actor)
{
    struct cr_client *leader = actor->arg, *member[CR_CLIENTS_MAX] = {leader};
    uint32_t count = leader == &leader->cluster->extra ? 1 : members(leader, member);

    if (leader->ctx != NULL)
        txn_ctx_abandon(&leader->ctx);
    leader->busy = false;
    for (uint32_t i = 0; i < count; i++) {
        member[i]->ctx = NULL;
        cr_run_crashed(member[i]);
        /* The operation in flight stays PENDING in the ledger; its process invokes no more. */
        member[i]->process = ++leader->cluster->next_process;
    }
}

static void on_restart(void *arg, uint64_t tag)
{
    struct cr_client *leader = arg, *member[CR_CLIENTS_MAX];
    uint32_t count = members(leader, member);

    (void)tag;
    if (!leader->actor->alive && !all_finished(member, count))
        sim_actor_start(leader->actor, 0);
}

void cr_client_restart(struct cr_client *client, uint64_t delay)
{
    sim_after(&client->cluster->sim, delay, on_restart, client, 0);
}

static void extra_main(struct sim_actor *actor)
{
    struct cr_client *client = actor->arg;
    struct cr_cluster *c = client->cluster;
    int rc = txn_ctx_open(c->cairn, &actor->env, &client->ctx);

    if (rc != 0) {
        sim_fail(&c->sim, "%s: context: %s", actor->name, cairn_last_error());
        return;
    }
    if (client->ops_left == 1)
        cr_run_setup(client);
    else
        cr_run_check(client);
    cairn_ctx_close(&client->ctx);
    client->finished = true;
}

static void client_init(struct cr_cluster *c, struct cr_client *client, uint32_t index)
{
    client->cluster = c;
    client->index = index;
    client->process = ++c->next_process;
}

void cr_clients_new(struct cr_cluster *c)
{
    static const char *const names[] = {"c1", "c2", "c3", "c4", "c5", "c6"};

    for (uint32_t i = 0; i < c->client_count; i++) {
        struct cr_client *client = &c->client[i];
        client_init(c, client, i);
        client->ops_left = c->setup.ops;
        client->actor = i % c->group != 0
            ? c->client[i - i % c->group].actor
            : sim_actor_new(&c->sim, SIM_CLIENT, names[i], client_main, client_abandon, client);
    }
    client_init(c, &c->extra, c->client_count);
    c->extra.actor =
        sim_actor_new(&c->sim, SIM_CLIENT, "extra", extra_main, client_abandon, &c->extra);
}

void cr_clients_start(struct cr_cluster *c)
{
    for (uint32_t i = 0; i < c->client_count && !c->sim.stop; i += c->group)
        sim_actor_start(c->client[i].actor, sim_delay(&c->sim, "start"));
}
