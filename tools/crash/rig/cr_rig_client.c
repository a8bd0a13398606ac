/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig_client.c: `cairn-crash-client`: one coordinator of the second rig, a process that may be
 * killed anywhere. It runs one call of the workload: set-up, steps until it is told to stop, or the
 * resolution of what has no outcome and the check. Everything that counts is in the shared memory
 * (cr_rig_shared.h) before the API is called. The calls of workload.h are implemented here, over
 * the library as it ships.
 *
 * Exit: 0 done, 1 a violation (its text is in the shared memory), 2 environment.
 */
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "include/internal/cn_mutant.h"
#include "tools/crash/rig/cr_rig_shared.h"
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work.h"
#include "tools/tl.h"
#include "txn/txn_ctx.h"

#define MS UINT64_C(1000000)
#define PATIENCE (30000 * MS) /* for set-up, check and resolution */
#define PAUSE_US 2000
#define PACE_US 200
#define START_WAIT (1000 * MS)

struct memory {
    struct memory *next;
    max_align_t bytes[];
};

struct cairn_run {
    struct rig_shared *shared;
    const struct cairn_workload *workload;
    uint32_t part, client, generation;
    enum rig_call call;
    uint64_t random;
    uint64_t taken[8]; /* operations of this call that are neither offered nor given up */
    uint32_t taken_count;
    struct cairn_ctx *ctx;
    struct memory *memory;
};

static uint64_t now(void)
{
    return cn_now_ns(cn_env_system());
}

static struct rig_client *me(const struct cairn_run *run)
{
    return &run->shared->client[run->client];
}

/* ---- the calls of workload.h ---- */

void *cairn_run_state(struct cairn_run *run)
{
    return rig_at(run->shared, run->shared->part[run->part].state_off);
}

uint32_t cairn_run_client(const struct cairn_run *run)
{
    return run->client;
}

uint32_t cairn_run_clients(const struct cairn_run *run)
{
    return run->shared->clients;
}

uint32_t cairn_run_table(const struct cairn_run *run)
{
    return run->shared->table;
}

static uint32_t draw(struct cairn_run *run, uint32_t bound)
{
    return tl_draw(&run->random, bound);
}

uint32_t cairn_run_choose(struct cairn_run *run, const char *label, uint32_t bound)
{
    if (bound == 0) {
        cairn_run_fail(run, "cairn_run_choose(\"%s\") of 0 possibilities", label);
        return 0;
    }
    return draw(run, bound);
}

uint64_t cairn_run_now(const struct cairn_run *run)
{
    (void)run;
    return now();
}

void *cairn_run_alloc(struct cairn_run *run, size_t size)
{
    struct memory *m = size < SIZE_MAX / 2 ? calloc(1, sizeof(*m) + size) : NULL;

    if (m == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a workload");
    m->next = run->memory;
    run->memory = m;
    return m->bytes;
}

void cairn_run_fail(struct cairn_run *run, const char *format, ...)
{
    char text[RIG_TEXT_MAX], what[RIG_TEXT_MAX + 80];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)snprintf(what, sizeof(what), "%.60s: %s", run->workload->name, text);
    rig_fail(run->shared, what);
}

/* ---- operations ---- */

uint64_t cairn_run_op(struct cairn_run *run)
{
    struct rig_part *p = &run->shared->part[run->part];
    uint64_t op = __atomic_add_fetch(&p->op_count, 1, __ATOMIC_ACQ_REL);
    struct rig_op *at = rig_op_at(run->shared, run->part, op);

    if (at == NULL) { /* no room: this is its last step, and commits nothing */
        me(run)->full = 1;
        return op;
    }
    at->client = run->client;
    if (run->taken_count < CN_ARRAY_SIZE(run->taken))
        run->taken[run->taken_count++] = op;
    return op;
}

static void settle(struct cairn_run *run, uint64_t op, enum cairn_outcome outcome)
{
    struct rig_op *at = rig_op_at(run->shared, run->part, op);
    struct rig_client *c = me(run);

    c->committed += outcome == CAIRN_OUTCOME_COMMITTED;
    c->aborted += outcome == CAIRN_OUTCOME_ABORTED;
    c->unknown += outcome == CAIRN_OUTCOME_UNKNOWN;
    if (at != NULL)
        __atomic_store_n(&at->outcome, (uint32_t)outcome, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < run->taken_count; i++)
        if (run->taken[i] == op)
            run->taken[i] = run->taken[--run->taken_count];
}

/* Of half of the transactions, so that the verdict on what a killed coordinator left is known. */
static int keep_token(struct cairn_run *run, uint64_t op, struct cairn_tx *tx)
{
    struct rig_op *at = rig_op_at(run->shared, run->part, op);
    char token[CAIRN_TOKEN_SIZE];

    if (at == NULL || draw(run, 2) == 0)
        return 0;
    int rc = cairn_tx_token(tx, token);
    if (rc == 0)
        rig_op_set_token(at, token);
    return rc == CAIRN_E_STATE ? 0 : rc;
}

int cairn_run_commit(
    struct cairn_run *run, uint64_t op, struct cairn_tx *tx, enum cairn_outcome *ret_outcome)
{
    struct rig_op *at = rig_op_at(run->shared, run->part, op);
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    int rc = me(run)->full != 0 ? CAIRN_E_AGAIN : op == 0 ? 0 : keep_token(run, op, tx);

    if (rc == 0)
        rc = cairn_commit(tx, &outcome);
    else
        cairn_abort(tx);
    if (rc != 0 && outcome != CAIRN_OUTCOME_ABORTED)
        cairn_run_fail(run, "commit failed with %s and outcome %s", cairn_error_name(rc),
            cairn_outcome_name(outcome));
    if (outcome == CAIRN_OUTCOME_UNKNOWN && op == 0)
        cairn_run_fail(run, "a transaction that was committed as number 0, only reading, came out "
            "UNKNOWN");
    if (outcome == CAIRN_OUTCOME_UNKNOWN && op != 0) {
        char token[CAIRN_TOKEN_SIZE];
        int error = cairn_ctx_token(run->ctx, token);
        if (error != 0)
            cairn_run_fail(run, "UNKNOWN and no token: %s", cairn_error_name(error));
        else if (at != NULL)
            rig_op_set_token(at, token);
    }
    if (op != 0)
        settle(run, op, outcome);
    *ret_outcome = outcome;
    return rc;
}

void cairn_run_aborted(struct cairn_run *run, uint64_t op)
{
    settle(run, op, CAIRN_OUTCOME_ABORTED);
}

enum cairn_outcome cairn_run_outcome(const struct cairn_run *run, uint64_t op)
{
    const struct rig_op *at = rig_op_at(run->shared, run->part, op);

    if (at == NULL)
        return CAIRN_OUTCOME_NONE;
    uint32_t outcome = __atomic_load_n(&at->outcome, __ATOMIC_ACQUIRE);
    return outcome == CAIRN_OUTCOME_NONE ? CAIRN_OUTCOME_UNKNOWN : (enum cairn_outcome)outcome;
}

/* ---- history ---- */

/* A full log takes nothing, which is no mistake. */
static bool is_open(struct cairn_run *run, bool open, const char *call)
{
    const struct rig_client *c = me(run);

    if (c->full == 0 && (c->open != 0) != open)
        cairn_run_fail(run, "%s() %s", call,
            open ? "without cairn_run_history_begin()"
                 : "twice, no cairn_run_history_end() between");
    return (c->open != 0) == open;
}

void cairn_run_history_begin(struct cairn_run *run)
{
    if (!is_open(run, false, "cairn_run_history_begin"))
        return;
    (void)rig_event_begin(run->shared, run->client, run->part, me(run)->process, now(),
        run->call == RIG_CHECK);
}

void cairn_run_history_append(struct cairn_run *run, uint64_t key, uint32_t element)
{
    if (is_open(run, true, "cairn_run_history_append"))
        (void)rig_event_mop(run->shared, run->client, RIG_APPEND, key, &element, 1);
}

void cairn_run_history_read(
    struct cairn_run *run, uint64_t key, const uint32_t *elements, uint32_t count)
{
    if (is_open(run, true, "cairn_run_history_read"))
        (void)rig_event_mop(run->shared, run->client, RIG_READ, key, elements, count);
}

void cairn_run_history_end(struct cairn_run *run, enum cairn_outcome outcome)
{
    if (!is_open(run, true, "cairn_run_history_end"))
        return;
    rig_event_end(run->shared, run->client, outcome, now());
    if (outcome == CAIRN_OUTCOME_UNKNOWN)
        me(run)->process++; /* a process of unknown outcome invokes no more */
}

/* ---- the frame ---- */

static void end_call(struct cairn_run *run, int rc)
{
    while (run->memory != NULL) {
        struct memory *m = run->memory;
        run->memory = m->next;
        free(m);
    }
    if (rc != 0 && !cr_error_is_explained(rc))
        cairn_run_fail(run, "a call returned %s, which no fault explains: %s (%s)",
            cairn_error_name(rc), cairn_strerror(rc), cairn_last_error());
    while (run->taken_count > 0) {
        uint64_t op = run->taken[0];
        if (rc == 0)
            cairn_run_fail(run, "step() returned 0 without cairn_run_commit() or "
                "cairn_run_aborted() for operation %llu", (unsigned long long)op);
        settle(run, op, CAIRN_OUTCOME_ABORTED);
    }
    if (me(run)->open != 0) {
        if (rc == 0 && me(run)->full == 0)
            cairn_run_fail(run, "a call returned 0 between cairn_run_history_begin() and "
                "cairn_run_history_end()");
        cairn_run_history_end(run, CAIRN_OUTCOME_UNKNOWN);
    }
    if (run->ctx->tx_open)
        cairn_run_fail(run, "a call left its transaction open");
}

static bool has_failed(const struct rig_shared *s)
{
    return __atomic_load_n(&s->failed, __ATOMIC_ACQUIRE) != 0;
}

static int call_of(struct cairn_run *run)
{
    const struct cairn_workload *w = run->workload;
    int rc = run->call == RIG_SETUP ? w->setup(run, run->ctx)
        : run->call == RIG_STEP     ? w->step(run, run->ctx)
                                    : w->check(run, run->ctx);

    end_call(run, rc);
    return rc;
}

/* Until it returns 0: nothing is killed meanwhile. */
static void insist(struct cairn_run *run)
{
    uint64_t deadline = now() + PATIENCE;

    for (uint32_t tries = 0; !has_failed(run->shared); tries++) {
        if (run->call == RIG_SETUP && tries > 0) /* as workload.h says */
            memset(cairn_run_state(run), 0, run->shared->part[run->part].state_size);
        int rc = call_of(run);
        if (rc == 0)
            return;
        if (now() > deadline) {
            cairn_run_fail(run, "liveness: a call does not get through: %s (%s)",
                cairn_error_name(rc), cairn_last_error());
            return;
        }
        (void)usleep(PAUSE_US);
    }
}

static void resolve_one(struct cairn_run *run, uint64_t number, uint64_t deadline)
{
    struct rig_op *op = rig_op_at(run->shared, run->part, number);
    enum cairn_outcome outcome;

    if (op == NULL || op->token[0] == '\0' ||
        (op->outcome != CAIRN_OUTCOME_NONE && op->outcome != CAIRN_OUTCOME_UNKNOWN))
        return;
    for (;;) {
        int rc = cairn_resolve(run->ctx, op->token, &outcome);
        if (rc == 0) {
            op->outcome = (uint32_t)outcome;
            run->shared->resolved++;
            return;
        }
        if (!cr_error_is_explained(rc) || now() > deadline) {
            cairn_run_fail(run, "no verdict on %s: %s (%s)", op->token, cairn_error_name(rc),
                cairn_last_error());
            return;
        }
        (void)usleep(PAUSE_US);
    }
}

static void resolve_part(struct cairn_run *run)
{
    uint64_t count = run->shared->part[run->part].op_count, deadline = now() + PATIENCE;

    for (uint64_t i = 1; i <= count && !has_failed(run->shared); i++)
        resolve_one(run, i, deadline);
}

/* All begin together, or a short workload is over before the second client has started. */
static void await_others(struct cairn_run *run)
{
    struct rig_shared *s = run->shared;
    uint64_t deadline = now() + START_WAIT;

    if (run->generation != 0)
        return;
    (void)__atomic_add_fetch(&s->ready, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) < s->clients && now() < deadline)
        (void)usleep(100);
}

static void step_on(struct cairn_run *run, const struct cairn_workload *const *parts)
{
    struct rig_shared *s = run->shared;
    struct rig_client *c = me(run);

    await_others(run);
    while (!has_failed(s) && c->full == 0 && __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE) == 0) {
        run->part = draw(run, s->parts);
        run->workload = parts[run->part];
        if (rig_is_ahead(s, run->part,
                cr_work_find(run->workload->name) == run->workload, now())) {
            (void)usleep(PACE_US);
            continue;
        }
        int rc = call_of(run);
        if (rc == CAIRN_E_NODE_DOWN || rc == CAIRN_E_SLOTS)
            (void)usleep(PAUSE_US); /* else all steps are spent on a node that is down */
    }
}

static void run_parts(struct cairn_run *run, const struct cairn_workload *const *parts)
{
    for (run->part = 0; run->part < run->shared->parts; run->part++) {
        run->workload = parts[run->part];
        if (run->call == RIG_CHECK)
            resolve_part(run);
        insist(run);
    }
}

static int run_all(struct cairn_run *run, const char *config)
{
    const struct cairn_workload *parts[RIG_PARTS_MAX];
    struct cairn *cairn;
    uint32_t count;
    int rc = rig_parts(run->shared->workload, parts, &count);

    if (rc != 0)
        return rc;
    run->workload = parts[0];
    rc = cairn_open(config, NULL, &cairn);
    if (rc != 0)
        return rc;
    rc = cairn_ctx_open(cairn, &run->ctx);
    if (rc == 0) {
        run->shared->table = cairn->config->table[0].id;
        rig_log_resume(run->shared, run->client);
        me(run)->process = ((uint64_t)run->client << 32) + ((uint64_t)run->generation << 16);
        if (run->call == RIG_STEP)
            step_on(run, parts);
        else
            run_parts(run, parts);
        cairn_ctx_close(&run->ctx);
    }
    cairn_close(&cairn);
    return rc;
}

/* False: they are not compiled in. */
static bool use_mutant(int mutant)
{
#ifdef CAIRN_MUTANTS
    cn_mutant_active = mutant;
    return true;
#else
    return mutant == 0;
#endif
}

static int run_client(const struct tl_command *self, int argc, char **argv)
{
    const char *config = NULL, *shared = NULL, *call = NULL;
    uint64_t client = 0, generation = 0, mutant = 0;
    struct cairn_run run = {0};
    int first;
    const struct tl_option options[] = {
        {"config", "FILE", "of the cluster", .text = &config},
        {"shared", "FILE", "shared memory of the rig", .text = &shared},
        {"call", "NAME", "setup, step or check", .text = &call},
        {"client", "N", "number", .number = &client, .max = RIG_CLIENTS_MAX},
        {"mutant-number", "N", "break this rule (cn_mutant.h)", .number = &mutant,
            .max = CN_MUTANT_COUNT - 1},
        {"generation", "N", "how often it was started before", .number = &generation,
            .max = 65535},
        {0},
    };
    int rc = tl_parse(self, options, argc, argv, 0, 0, &first);
    if (rc != -1)
        return rc;
    if (config == NULL || shared == NULL || call == NULL)
        return tl_error(self, "--config, --shared and --call are needed");
    if (!use_mutant((int)mutant))
        return tl_error(self, "--mutant-number: this program has no mutants");
    rc = rig_shared_map(shared, &run.shared);
    if (rc != 0)
        return tl_cairn_error(self, rc, false);
    run.client = (uint32_t)client;
    run.generation = (uint32_t)generation;
    run.call = strcmp(call, "setup") == 0 ? RIG_SETUP
        : strcmp(call, "check") == 0      ? RIG_CHECK
                                          : RIG_STEP;
    run.random = cn_mix64(run.shared->seed ^ cn_mix64(client << 32 | generation));
    if (client > run.shared->clients)
        return tl_error(self, "--client: there are %u", run.shared->clients);
    rc = run_all(&run, config);
    bool failed = has_failed(run.shared);
    rig_shared_unmap(&run.shared);
    return rc != 0 ? tl_cairn_error(self, rc, false) : failed ? TL_BAD : TL_OK;
}

int main(int argc, char **argv)
{
    static const struct tl_command self = {
        .name = "crash-client",
        .args = "OPTION...",
        .summary = "A coordinator of `cairn crash rig`, which starts it.",
        .example = "  (not meant to be started by hand)\n",
        .run = run_client,
    };

    (void)signal(SIGPIPE, SIG_IGN);
    cn_env_system_log_level(CN_LOG_ERROR);
    return run_client(&self, argc, argv);
}
