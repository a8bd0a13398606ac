/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what the writer of a workload gets wrong is told in words that name the call and what to
 * do. Method: a small workload that makes one mistake at a time, in a cluster without faults. And
 * the calls of workload.h, one by one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "tests/sim/sw_sweep.h"

enum mistake {
    NONE,
    NO_COMMIT,        /* takes a number and returns 0 */
    OPEN_TX,          /* returns with its transaction open */
    OPEN_TX_ERROR,    /* the same, with an error */
    NOT_FOUND,        /* returns an error that faults do not explain */
    POSITIVE,         /* returns 1 */
    TWICE,            /* commits one number twice */
    NO_NUMBER,        /* commits a number that nobody gave */
    ABORTED_LATE,     /* says aborted behind a commit */
    WRITES_UNNUMBERED, /* commits what it wrote as number 0, while nodes die */
    HISTORY_OPEN,     /* no end */
    HISTORY_TWICE,    /* two beginnings */
    HISTORY_READ,     /* a read outside */
    CHOOSE_ZERO,
    LOOPS,            /* for ever, and calls nothing */
    LOOPS_CHOOSING,   /* for ever, and takes decisions */
    BLOCKS,           /* waits for real time */
    TOO_BIG,          /* writes more than it said */
    SETUP_FAILS,      /* always, with an error that time could mend */
    CHECK_FAILS,
};

struct state { uint64_t steps, checks, marks; };

static enum mistake mistake;
static uint32_t choices; /* of the clock, so to say: not from the tape */

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct state *s = cairn_run_state(run);

    (void)ctx;
    assert_int_equal(0, s->steps);
    assert_int_equal(cairn_run_clients(run), cairn_run_client(run));
    return mistake == SETUP_FAILS ? CAIRN_E_AGAIN : 0;
}

static int write_one(struct cairn_run *run, struct cairn_ctx *ctx, uint64_t op, size_t size)
{
    uint8_t *value = cairn_run_alloc(run, size);
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    int rc = cairn_begin(ctx, &tx);

    uint32_t key = cairn_run_choose(run, "key", 5);
    if (rc == 0)
        rc = cairn_put(tx, cairn_run_table(run), &key, sizeof(key), value, size);
    return rc != 0 ? rc : cairn_run_commit(run, op, tx, &outcome);
}

static int leave_open(struct cairn_ctx *ctx, int rc)
{
    struct cairn_tx *tx;
    int error = cairn_begin(ctx, &tx);

    return error != 0 ? error : rc;
}

static void loop(struct cairn_run *run)
{
    volatile uint64_t spin = 0;

    for (;;) {
        spin++;
        if (mistake == LOOPS_CHOOSING)
            (void)cairn_run_choose(run, "spin", 7);
        if (mistake == BLOCKS)
            (void)pause();
    }
}

static int use_history(struct cairn_run *run)
{
    if (mistake != HISTORY_READ)
        cairn_run_history_begin(run);
    if (mistake == HISTORY_TWICE)
        cairn_run_history_begin(run);
    if (mistake == HISTORY_READ)
        cairn_run_history_read(run, 1, NULL, 0);
    return 0;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct state *s = cairn_run_state(run);
    uint64_t op;
    int rc;

    s->steps++;
    switch (mistake) {
    case OPEN_TX: return leave_open(ctx, 0);
    case OPEN_TX_ERROR: return leave_open(ctx, CAIRN_E_CONFLICT);
    case NOT_FOUND: return CAIRN_E_NOT_FOUND;
    case POSITIVE: return 1;
    case NO_NUMBER: return write_one(run, ctx, 77777, 10);
    case WRITES_UNNUMBERED: return write_one(run, ctx, 0, 10);
    case HISTORY_OPEN:
    case HISTORY_TWICE:
    case HISTORY_READ: return use_history(run);
    case CHOOSE_ZERO: return (int)cairn_run_choose(run, "nothing", 0);
    case LOOPS:
    case LOOPS_CHOOSING:
    case BLOCKS: loop(run); return 0;
    default: break;
    }
    op = cairn_run_op(run);
    if (mistake == NO_COMMIT)
        return 0;
    rc = write_one(run, ctx, op, mistake == TOO_BIG ? 30000 : 10);
    if (mistake == TWICE && rc == 0)
        return write_one(run, ctx, op, 10);
    if (mistake == ABORTED_LATE && cairn_run_outcome(run, op) == CAIRN_OUTCOME_COMMITTED)
        cairn_run_aborted(run, op);
    return rc;
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct state *s = cairn_run_state(run);

    (void)ctx;
    s->checks++;
    assert_int_equal(CAIRN_OUTCOME_NONE, cairn_run_outcome(run, 0));
    assert_int_equal(CAIRN_OUTCOME_NONE, cairn_run_outcome(run, 999999));
    return mistake == CHECK_FAILS ? CAIRN_E_NODE_DOWN : 0;
}

static const struct cairn_workload workload = {.abi = CAIRN_WORKLOAD_ABI, .name = "mistaken",
    .summary = "makes one mistake", .state_size = sizeof(struct state), .setup = setup,
    .step = step, .check = check};

static void run(enum mistake what, unsigned faults, struct cr_result *ret)
{
    struct cr_setup set = {.nodes = 2, .clients = 2, .ops = 10, .faults = faults,
        .workload = {&workload}, .watch_seconds = 1};

    mistake = what;
    for (uint64_t seed = 1; seed <= (faults != 0 ? 200 : 1); seed++) {
        cr_cluster_run(&set, seed, ret);
        if (ret->failed)
            break;
    }
    mistake = NONE;
    sim_fiber_trim();
}

static void expect(enum mistake what, const char *words)
{
    struct cr_result r;

    run(what, 0, &r);
    if (!r.failed || strstr(r.failure, words) == NULL || strstr(r.failure, "mistaken") == NULL)
        fail_msg("mistake %d: \"%s\" does not say \"%s\"", what, r.failed ? r.failure : "", words);
}

static void step__no_mistake__passes(void **state)
{
    (void)state;
    struct cr_result r;

    run(NONE, CR_FAULTS_ALL, &r);
    if (r.failed)
        fail_msg("%s", r.failure);
}

/* The second operation's record comes to a node that sleeps, until after the run's end. */
static int step_asleep(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct sim *sim = &run->client->cluster->sim;
    uint64_t value = 0, op = cairn_run_op(run);
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    size_t size;
    int rc = cairn_begin(ctx, &tx);

    if (rc == 0)
        rc = cairn_get_for_update(
            tx, cairn_run_table(run), "k", 1, &value, sizeof(value), &size);
    if (rc == 0 || rc == CAIRN_E_NOT_FOUND)
        rc = cairn_put(tx, cairn_run_table(run), "k", 1, &op, sizeof(op));
    assert_int_equal(0, rc);
    if (op > 1)
        sim_actor_pause(run->client->cluster->node[0].actor, sim->now + 120 * SIM_MS);
    else
        sim_sleep(sim, sim->now + SIM_MS);
    return cairn_run_commit(run, op, tx, &outcome);
}

static const struct cairn_workload sleepers = {.abi = CAIRN_WORKLOAD_ABI, .name = "sleepers",
    .summary = "nodes sleep", .state_size = sizeof(struct state), .setup = setup,
    .step = step_asleep, .check = check};

/* The harness waits by itself until the nodes have applied what lies in their rings. */
static void check__lets_no_time_pass__state_is_final_all_the_same(void **state)
{
    (void)state;
    struct cr_setup set = {.nodes = 1, .clients = 1, .ops = 2, .plain = true,
        .durability = RD_DURABILITY_APM, .mode = SIM_ADR, .lanes = 1, .workload = {&sleepers},
        .power_at_end = true};
    struct cr_result r;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        cr_cluster_run(&set, seed, &r);
        if (r.failed)
            fail_msg("seed %lu: %s", seed, r.failure);
    }
    sim_fiber_trim();
}

static void step__operations_mixed_up__told(void **state)
{
    (void)state;
    expect(NO_COMMIT, "step() returned 0 without cairn_run_commit() or cairn_run_aborted()");
    expect(TWICE, "for the second time: take a new number");
    expect(NO_NUMBER, "operation 77777 that cairn_run_op() never gave");
    expect(ABORTED_LATE, "which came out COMMITTED");
}

static void commit__number_0_and_wrote__told_once_it_is_unknown(void **state)
{
    (void)state;
    struct cr_result r;

    run(WRITES_UNNUMBERED, CR_FAULTS_ALL, &r);
    assert_true(r.failed);
    assert_non_null(strstr(r.failure, "as number 0, only reading"));
}

static void step__transaction_left_open__told(void **state)
{
    (void)state;
    expect(OPEN_TX, "step() left its transaction open: cairn_abort() it");
    expect(OPEN_TX_ERROR, "before returning an error");
}

static void step__errors__told_when_no_fault_explains_them(void **state)
{
    (void)state;
    expect(NOT_FOUND, "CAIRN_E_NOT_FOUND, which no fault explains");
    expect(POSITIVE, "returned 1: it must be 0 or an error of Cairn");
    expect(TOO_BIG, "set .tx_bytes of the workload");
    expect(CHOOSE_ZERO, "cairn_run_choose(\"nothing\") of 0 possibilities");
}

static void history__out_of_order__told(void **state)
{
    (void)state;
    expect(HISTORY_OPEN, "between cairn_run_history_begin() and cairn_run_history_end()");
    expect(HISTORY_TWICE, "cairn_run_history_begin() twice");
    expect(HISTORY_READ, "cairn_run_history_read() without cairn_run_history_begin()");
}

static void step__never_comes_back__is_cut(void **state)
{
    (void)state;
    expect(LOOPS, "step() of client c");
    expect(LOOPS_CHOOSING, "has let no time pass for 1 s");
    expect(BLOCKS, "a call that blocks");
}

static void setup_check__never_get_through__told(void **state)
{
    (void)state;
    expect(SETUP_FAILS, "setup() does not get through: CAIRN_E_AGAIN");
    expect(CHECK_FAILS, "check() does not get through: CAIRN_E_NODE_DOWN");
}

/* ---- a run that is not repeatable ---- */

static int step_by_clock(struct cairn_run *run, struct cairn_ctx *ctx)
{
    return choices++ % 3 == 0 ? 0 : write_one(run, ctx, cairn_run_op(run), 10 + choices % 7);
}

static const struct cairn_workload clockwork = {.abi = CAIRN_WORKLOAD_ABI, .name = "clockwork",
    .summary = "decides by itself", .state_size = sizeof(struct state), .setup = setup,
    .step = step_by_clock, .check = check};

static void step__decides_by_itself__another_run_and_a_hint(void **state)
{
    (void)state;
    struct cr_setup set = {.nodes = 2, .clients = 2, .ops = 11, .workload = {&clockwork}};
    struct cr_result a, b;

    cr_cluster_run(&set, 1, &a);
    cr_cluster_run(&set, 1, &b);
    assert_int_not_equal(a.hash, b.hash);
    assert_non_null(strstr(cr_work_mismatch_hint(set.workload), "cairn_run_choose()"));
    const struct cairn_workload *built_in[] = {cr_work_at(0), NULL};
    assert_non_null(strstr(cr_work_mismatch_hint(built_in), "the harness itself"));
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__no_mistake__passes),
        cmocka_unit_test(check__lets_no_time_pass__state_is_final_all_the_same),
        cmocka_unit_test(step__operations_mixed_up__told),
        cmocka_unit_test(commit__number_0_and_wrote__told_once_it_is_unknown),
        cmocka_unit_test(step__transaction_left_open__told),
        cmocka_unit_test(step__errors__told_when_no_fault_explains_them),
        cmocka_unit_test(history__out_of_order__told),
        cmocka_unit_test(step__never_comes_back__is_cut),
        cmocka_unit_test(setup_check__never_get_through__told),
        cmocka_unit_test(step__decides_by_itself__another_run_and_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
