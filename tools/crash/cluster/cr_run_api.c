/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_run_api.c: the calls of workload.h but for the history: memory, choices, operations and their
 * outcomes. They run in the fiber of a client, on which a workload's call is under way.
 */
#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/cluster/cr_run.h"
#include "tools/crash/cluster/cr_timeline.h"

#include <stdarg.h>

struct cr_memory { /* in front of what cairn_run_alloc() gives */
    struct cr_memory *next;
    max_align_t bytes[];
};

static struct cr_cluster *cluster_of(const struct cairn_run *run)
{
    return run->client->cluster;
}

static const char *name_of(const struct cairn_run *run)
{
    return run->part->workload->name;
}

void *cairn_run_state(struct cairn_run *run)
{
    return run->part->state;
}

uint32_t cairn_run_client(const struct cairn_run *run)
{
    return run->client->index;
}

uint32_t cairn_run_clients(const struct cairn_run *run)
{
    return cluster_of(run)->client_count;
}

uint32_t cairn_run_table(const struct cairn_run *run)
{
    return cluster_of(run)->config.table[0].id;
}

uint32_t cairn_run_choose(struct cairn_run *run, const char *label, uint32_t bound)
{
    if (bound == 0) {
        cairn_run_fail(run, "cairn_run_choose(\"%s\") of 0 possibilities", label);
        return 0;
    }
    return sim_choose(&cluster_of(run)->sim, label, bound);
}

uint64_t cairn_run_now(const struct cairn_run *run)
{
    return cluster_of(run)->sim.now;
}

static struct cr_op *find(const struct cairn_run *run, uint64_t number)
{
    return number >= 1 && number <= run->part->op_count ? &run->part->op[number - 1] : NULL;
}

/* Operations that a violation names, "operation 7", are pointed at in the timeline. */
static void point_at(struct cairn_run *run, const char *text)
{
    static const char word[] = "operation ";

    for (const char *p = strstr(text, word); p != NULL; p = strstr(p + 1, word)) {
        const struct cr_op *op = find(run, strtoull(p + sizeof(word) - 1, NULL, 10));
        if (op != NULL)
            cr_timeline_point_at(&cluster_of(run)->sim, op->concern);
    }
}

void cairn_run_fail(struct cairn_run *run, const char *format, ...)
{
    struct sim *sim = &cluster_of(run)->sim;
    char text[sizeof(sim->failure) - 64];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sim_fail(sim, "%.40s: %s", name_of(run), text);
    point_at(run, text);
}

/* ---- memory ---- */

void *cairn_run_alloc(struct cairn_run *run, size_t size)
{
    CAIRN_ASSERT(size < SIZE_MAX / 2);
    struct cr_memory *m = sim_calloc(1, sizeof(*m) + size);

    m->next = run->memory;
    run->memory = m;
    return m->bytes;
}

void cr_run_free(struct cairn_run *run)
{
    while (run->memory != NULL) {
        struct cr_memory *m = run->memory;
        run->memory = m->next;
        sim_free(m);
    }
}

/* ---- operations ---- */

uint64_t cairn_run_op(struct cairn_run *run)
{
    struct cr_part *part = run->part;

    if (part->op_count == part->op_room) {
        part->op_room = part->op_room == 0 ? 64 : 2 * part->op_room;
        part->op = sim_realloc(part->op, part->op_room * sizeof(*part->op));
    }
    part->op[part->op_count++] =
        (struct cr_op){.client = run->client->index, .call = run->calls,
            .concern = run->client->actor->concern};
    return part->op_count;
}

static void settle(struct cairn_run *run, uint64_t number, enum cr_op_state state)
{
    struct cr_cluster *c = cluster_of(run);
    struct cr_op *op = find(run, number);

    c->counts.committed += state == CR_OP_COMMITTED;
    c->counts.aborted += state == CR_OP_ABORTED;
    c->counts.unknown += state == CR_OP_UNKNOWN;
    if (op != NULL)
        op->state = state;
    cr_tell_outcome(run->client,
        state == CR_OP_COMMITTED ? "COMMITTED" : state == CR_OP_ABORTED ? "ABORTED" : "UNKNOWN");
}

void cr_run_describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    text[0] = '\0';
    if (run->part->workload->describe != NULL)
        run->part->workload->describe(run, op, text, size);
}

static void tell(struct cairn_run *run, uint64_t number)
{
    struct sim *sim = &cluster_of(run)->sim;
    char text[160];

    if (!sim_is_watched(sim) || number == 0)
        return;
    cr_run_describe(run, number, text, sizeof(text));
    cr_tell_about(run->client, text[0] != '\0' ? text : name_of(run));
}

static void tell_verdict(struct cairn_run *run, uint64_t number, enum cairn_outcome outcome)
{
    char text[160];

    if (!sim_is_watched(&cluster_of(run)->sim))
        return;
    cr_run_describe(run, number, text, sizeof(text));
    cr_tell_verdict(run->client, find(run, number)->concern,
        text[0] != '\0' ? text : name_of(run), cairn_outcome_name(outcome));
}

bool cr_run_resolve(struct cairn_run *run, struct cr_op *op)
{
    struct cr_cluster *c = cluster_of(run);
    char token[CAIRN_TOKEN_SIZE];
    uint64_t number = (uint64_t)(op - run->part->op) + 1;
    enum cairn_outcome outcome;

    memcpy(token, op->token, sizeof(token)); /* the ledger may move meanwhile */
    for (uint32_t i = 0; i < 2; i++) {
        int rc = cairn_resolve(run->client->ctx, token, &outcome);
        if (rc == 0) {
            bool committed = outcome == CAIRN_OUTCOME_COMMITTED;
            c->counts.resolved_committed += committed;
            c->counts.resolved_aborted += !committed;
            find(run, number)->state = committed ? CR_OP_COMMITTED : CR_OP_ABORTED;
            tell_verdict(run, number, outcome);
            return true;
        }
        cr_run_error(run, "cairn_resolve()", rc);
        sim_sleep(&c->sim, c->sim.now + SIM_MS);
    }
    return false;
}

/* What was committed before somebody crashes has its token in the ledger, now and then. */
static int keep_token(struct cairn_run *run, uint64_t number, struct cairn_tx *tx)
{
    char token[CAIRN_TOKEN_SIZE];
    int rc = cairn_tx_token(tx, token);

    if (rc == CAIRN_E_STATE)
        return 0; /* it has written nothing in the end */
    if (rc == 0) {
        memcpy(find(run, number)->token, token, sizeof(token));
        cr_rules_token(cluster_of(run)->rules, &cluster_of(run)->config.cluster, token);
    }
    return rc;
}

/* 0: the operation may be offered. */
static int check_number(struct cairn_run *run, uint64_t number)
{
    struct cr_op *op = find(run, number);
    const char *wrong = NULL;

    if (number == 0)
        return 0;
    if (op == NULL)
        wrong = "that cairn_run_op() never gave";
    else if (op->offered)
        wrong = "for the second time: take a new number for each transaction";
    else if (op->state != CR_OP_PENDING)
        wrong = "after cairn_run_aborted()";
    else
        op->offered = true;
    if (wrong == NULL)
        return 0;
    cairn_run_fail(run, "cairn_run_commit() of operation %lu %s", number, wrong);
    return CAIRN_E_STATE;
}

static enum cairn_outcome meet_unknown(struct cairn_run *run, uint64_t number)
{
    struct cr_cluster *c = cluster_of(run);
    char token[CAIRN_TOKEN_SIZE];

    sim_trace(&c->sim, "UNKNOWN");
    if (number == 0) {
        cairn_run_fail(run, "a transaction that was committed as number 0, only reading, came "
            "out UNKNOWN");
        return CAIRN_OUTCOME_UNKNOWN;
    }
    int rc = cairn_ctx_token(run->client->ctx, token);
    if (rc != 0) {
        cairn_run_fail(run, "UNKNOWN and no token: %s", cairn_error_name(rc));
        return CAIRN_OUTCOME_UNKNOWN;
    }
    memcpy(find(run, number)->token, token, sizeof(token));
    settle(run, number, CR_OP_UNKNOWN);
    if (sim_chance(&c->sim, "resolve-now", 1, 2) && cr_run_resolve(run, find(run, number)))
        return find(run, number)->state == CR_OP_COMMITTED ? CAIRN_OUTCOME_COMMITTED
                                                           : CAIRN_OUTCOME_ABORTED;
    return CAIRN_OUTCOME_UNKNOWN;
}

int cairn_run_commit(
    struct cairn_run *run, uint64_t number, struct cairn_tx *tx, enum cairn_outcome *ret_outcome)
{
    struct cr_cluster *c = cluster_of(run);
    bool step = run->call == CR_CALL_STEP;
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    char before[CAIRN_TOKEN_SIZE];
    int rc = check_number(run, number);

    run->commits++;
    tell(run, number);
    if (rc == 0 && step && number != 0 && sim_chance(&c->sim, "token", 1, 4))
        rc = keep_token(run, number, tx);
    if (rc != 0 || (step && sim_chance(&c->sim, "abort", 1, 16))) {
        cairn_abort(tx);
    } else {
        cr_discipline_before(run->client->ctx, before);
        rc = cairn_commit(tx, &outcome);
        if (rc != 0 && outcome != CAIRN_OUTCOME_ABORTED)
            cairn_run_fail(run, "commit failed with %s and outcome %s", cairn_error_name(rc),
                cairn_outcome_name(outcome));
        if (c->discipline != NULL && outcome == CAIRN_OUTCOME_COMMITTED)
            (void)!cr_discipline_acked(
                c->discipline, run->client->ctx, &c->config.cluster, before);
    }
    if (outcome == CAIRN_OUTCOME_UNKNOWN)
        outcome = meet_unknown(run, number);
    else
        settle(run, number,
            outcome == CAIRN_OUTCOME_COMMITTED ? CR_OP_COMMITTED : CR_OP_ABORTED);
    if (find(run, number) != NULL)
        find(run, number)->acked = outcome == CAIRN_OUTCOME_COMMITTED;
    *ret_outcome = outcome;
    return rc;
}

void cairn_run_aborted(struct cairn_run *run, uint64_t number)
{
    struct cr_op *op = find(run, number);

    if (op == NULL)
        cairn_run_fail(run, "cairn_run_aborted() of operation %lu, which cairn_run_op() never "
            "gave", number);
    else if (op->state == CR_OP_PENDING)
        settle(run, number, CR_OP_ABORTED);
    else if (op->state != CR_OP_ABORTED)
        cairn_run_fail(run, "cairn_run_aborted() of operation %lu, which came out %s", number,
            op->state == CR_OP_COMMITTED ? "COMMITTED" : "UNKNOWN");
}

enum cairn_outcome cairn_run_outcome(const struct cairn_run *run, uint64_t number)
{
    static const enum cairn_outcome outcomes[] = {CAIRN_OUTCOME_UNKNOWN, CAIRN_OUTCOME_COMMITTED,
        CAIRN_OUTCOME_ABORTED, CAIRN_OUTCOME_UNKNOWN};
    const struct cr_op *op = find(run, number);

    return op == NULL ? CAIRN_OUTCOME_NONE : outcomes[op->state];
}
