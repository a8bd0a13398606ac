/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_run.c: the frames around a workload's calls, and the verdicts on what it did. What its writer
 * can get wrong is looked for here and told in words that name the call and the workload.
 */
#include "tools/crash/cluster/cr_run.h"

#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/workload/cr_kit.h"
#include "txn/txn_ctx.h"

#define STEP_LIMIT (600 * SIM_MS) /* virtual: no transaction may take longer */
#define TRIES 100u                /* of set-up and check, 2 virtual ms between them */

const char *cr_call_name(enum cr_call call)
{
    static const char *const names[] = {"no call", "setup()", "step()", "check()"};

    return names[call];
}

/* ---- parts ---- */

static unsigned draw_work(struct cr_cluster *c)
{
    unsigned all = (1u << CR_WORK_COUNT) - 1;
    unsigned work = c->setup.work != 0 ? c->setup.work & all : 1 + sim_choose(&c->sim, "work", all);

    return work | 1u << CR_WORK_APPEND; /* the one whose history is checked */
}

static void forget(struct cr_part *part)
{
    sim_free(part->op);
    part->op = NULL;
    part->op_count = 0;
    part->op_room = 0;
    cr_history_delete(&part->history);
}

/* As before set-up. States may be big and hardly touched: new pages are zero for nothing. */
static void start_over(struct cr_part *part)
{
    forget(part);
    sim_free(part->state);
    part->state = NULL;
    if (part->workload->state_size != 0)
        part->state = sim_calloc(1, part->workload->state_size);
}

static void add_part(struct cr_cluster *c, const struct cairn_workload *workload)
{
    CAIRN_ASSERT(c->part_count < CR_PARTS_MAX);
    struct cr_part *part = &c->part[c->part_count++];

    part->workload = workload;
    start_over(part);
}

void cr_run_open(struct cr_cluster *c)
{
    if (c->setup.workload[0] != NULL) {
        for (uint32_t i = 0; c->setup.workload[i] != NULL; i++)
            add_part(c, c->setup.workload[i]);
    } else if (c->setup.body == NULL || c->setup.work != 0) {
        unsigned work = draw_work(c);
        for (uint32_t i = 0; i < CR_WORK_COUNT; i++)
            if ((work >> i & 1) != 0)
                add_part(c, cr_work_at(i));
    }
    for (uint32_t i = 0; i < c->client_count; i++)
        c->client[i].run.client = &c->client[i];
    c->extra.run.client = &c->extra;
}

void cr_run_close(struct cr_cluster *c)
{
    for (uint32_t i = 0; i < c->part_count; i++) {
        forget(&c->part[i]);
        sim_free(c->part[i].state);
    }
    c->part_count = 0;
}

/* ---- what went wrong in a call ---- */

void cr_run_error(struct cairn_run *run, const char *what, int rc)
{
    struct cr_cluster *c = run->client->cluster;

    c->counts.errors++;
    run->client->trouble |= rc == CAIRN_E_NODE_DOWN || rc == CAIRN_E_SLOTS;
    if (!cr_error_is_explained(rc))
        sim_fail(&c->sim, "%s: %s of client %s returned %s, which no fault explains: %s (the last "
            "error said: %s)%s", run->part->workload->name, what, run->client->actor->name,
            cairn_error_name(rc), cairn_strerror(rc), cairn_last_error(),
            rc == CAIRN_E_TX_SIZE ? "; set .tx_bytes of the workload to what it writes" : "");
}

static void begin_call(struct cairn_run *run, enum cr_call call, struct cr_part *part)
{
    run->call = call;
    run->part = part;
    run->calls++;
    run->first_op = part->op_count;
    run->commits = 0;
    run->noted = NULL;
}

/* An operation that this call took and neither committed nor gave up. */
static void settle_rest(struct cairn_run *run, int rc)
{
    struct cr_part *part = run->part;
    struct cr_cluster *c = run->client->cluster;

    for (uint32_t i = run->first_op; i < part->op_count; i++) {
        struct cr_op *op = &part->op[i];
        if (op->client != run->client->index || op->call != run->calls || op->offered ||
            op->state != CR_OP_PENDING)
            continue;
        if (rc == 0)
            sim_fail(&c->sim, "%s: %s returned 0 without cairn_run_commit() or "
                "cairn_run_aborted() for operation %u", part->workload->name,
                cr_call_name(run->call), i + 1);
        op->state = CR_OP_ABORTED;
        c->counts.aborted++;
    }
}

static bool leaves_open(const struct cairn_run *run)
{
    const struct cairn_ctx *ctx = run->client->ctx;

    return ctx->running != NULL ? ctx->running->open : ctx->tx_open != 0;
}

/* The call came back. */
static void end_call(struct cairn_run *run, int rc)
{
    struct cr_cluster *c = run->client->cluster;
    const char *name = run->part->workload->name;

    if (rc > 0)
        sim_fail(&c->sim, "%s: %s returned %d: it must be 0 or an error of Cairn", name,
            cr_call_name(run->call), rc);
    else if (rc != 0)
        cr_run_error(run, cr_call_name(run->call), rc);
    settle_rest(run, rc);
    if (leaves_open(run))
        sim_fail(&c->sim, "%s: %s left its transaction open: cairn_abort() it before returning%s",
            name, cr_call_name(run->call), rc != 0 ? " an error" : "");
    if (run->noted != NULL && rc == 0)
        sim_fail(&c->sim, "%s: %s returned 0 between cairn_run_history_begin() and "
            "cairn_run_history_end()", name, cr_call_name(run->call));
    cr_history_drop(run);
    cr_run_free(run);
    run->call = CR_CALL_NONE;
}

void cr_run_crashed(struct cr_client *client)
{
    struct cairn_run *run = &client->run;

    cr_run_free(run);
    run->noted = NULL; /* an invoke that nothing follows */
    run->call = CR_CALL_NONE;
}

void cr_run_step(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    struct cairn_run *run = &client->run;
    uint32_t which = c->part_count > 1 ? sim_choose(&c->sim, "which", c->part_count) : 0;
    uint64_t begun = c->sim.now;

    if (c->part_count == 0)
        return;
    c->counts.ops++;
    begin_call(run, CR_CALL_STEP, &c->part[which]);
    int rc = run->part->workload->step(run, client->ctx);
    /* Those that share a context wait for each other's end. */
    uint64_t limit = STEP_LIMIT * (1 + run->commits) * c->group;
    end_call(run, rc);
    sim_trace(&c->sim, "step of %s ends: %s", run->part->workload->name,
        rc == 0 ? "0" : cairn_error_name(rc));
    if (c->sim.now - begun > limit && client->actor->paused_until == 0)
        sim_fail(&c->sim, "%s: a step of %s with %u commits took %lu virtual ms: something hangs",
            run->part->workload->name, client->actor->name, run->commits,
            (c->sim.now - begun) / SIM_MS);
}

/* ---- set-up and check ---- */

/* Until it returns 0, or an error that no fault explains. */
static void insist(struct cairn_run *run, enum cr_call call, struct cr_part *part)
{
    const struct cairn_workload *w = part->workload;
    struct cr_client *client = run->client;
    struct sim *sim = &client->cluster->sim;
    int rc = 0;

    for (uint32_t i = 0; i < TRIES && !sim->stop; i++) {
        if (call == CR_CALL_SETUP && i > 0)
            start_over(part);
        begin_call(run, call, part);
        rc = call == CR_CALL_SETUP ? w->setup(run, client->ctx) : w->check(run, client->ctx);
        end_call(run, rc);
        if (rc == 0)
            return;
        sim_sleep(sim, sim->now + 2 * SIM_MS);
    }
    if (!sim->stop)
        sim_fail(sim, "%s: liveness: %s does not get through: %s (%s)", w->name,
            cr_call_name(call), cairn_error_name(rc), cairn_last_error());
}

void cr_run_setup(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;

    for (uint32_t i = 0; i < c->part_count && !c->sim.stop; i++)
        insist(&client->run, CR_CALL_SETUP, &c->part[i]);
}

static void resolve_part(struct cairn_run *run, struct cr_part *part)
{
    struct cr_cluster *c = run->client->cluster;

    run->part = part;
    for (uint32_t i = 0; i < part->op_count && !c->sim.stop; i++) {
        struct cr_op *op = &part->op[i];
        if ((op->state != CR_OP_UNKNOWN && op->state != CR_OP_PENDING) || op->token[0] == '\0')
            continue;
        for (uint32_t tries = 0; tries < 20 && !c->sim.stop; tries++)
            if (cr_run_resolve(run, op))
                break;
        if (op->state == CR_OP_UNKNOWN || op->state == CR_OP_PENDING)
            sim_fail(&c->sim, "liveness: no verdict on %s: %s", op->token, cairn_last_error());
    }
}

void cr_run_check(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;

    for (uint32_t i = 0; i < c->part_count && !c->sim.stop; i++)
        resolve_part(&client->run, &c->part[i]);
    for (uint32_t i = 0; i < c->part_count && !c->sim.stop; i++)
        insist(&client->run, CR_CALL_CHECK, &c->part[i]);
}

void cr_run_verify(struct cr_cluster *c)
{
    for (uint32_t i = 0; i < c->part_count; i++) {
        const struct cr_part *part = &c->part[i];
        for (uint32_t j = 0; j < part->op_count; j++)
            if (part->op[j].state == CR_OP_UNKNOWN)
                sim_fail(&c->sim, "%s: the outcome of operation %u stayed UNKNOWN",
                    part->workload->name, j + 1);
        if (part->history != NULL)
            cr_history_check(c, part);
    }
}

static int write_history(const char *folder, const char *name, const struct hs_history *h)
{
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s.edn", folder, name);
    int rc = hs_history_write_edn(h, HS_WRITE_LISTS, path);
    if (rc != 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%s/%s.json", folder, name);
    return hs_history_write_json(h, HS_WRITE_LISTS, path);
}

int cr_run_write_histories(struct cr_cluster *c)
{
    int rc = 0;

    for (uint32_t i = 0; c->setup.history != NULL && i < c->part_count && rc == 0; i++) {
        const struct cr_part *part = &c->part[i];
        struct hs_history *h = cr_history_make(part->history);
        if (h == NULL)
            continue;
        rc = write_history(c->setup.history, part->workload->name, h);
        hs_history_delete(&h);
    }
    return rc;
}
