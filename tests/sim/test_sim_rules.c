/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each rule is needed, and the tests notice when it is broken: every mutant of cn_mutant.h
 * dies. Method: the product's sources built with CAIRN_MUTANTS; one mutant at a time is switched on
 * and seeds of a shape of run that makes its situation likely, until a check fails. Before that the
 * first seeds of each shape run unmutated and must pass. Mutants whose situation is a few stores
 * are noticed by a unit test, named in the table. CAIRN_SIM_MUTANT runs one by number;
 * CAIRN_SIM_RATE=n runs n seeds of it to the end, mutated and not, and says how many fail.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_mutant.h"
#include "tests/sim/sim_main.h"

#define SEEDS 150u /* a mutant that needs more than these is not shown well enough */
#define CLEAN 4u   /* seeds of each shape that run unmutated */

static const char *const names[] = {
    "none",
#define CN_X(name, rule) #name,
    CN_MUTANTS(CN_X)
#undef CN_X
};

#define WORK(name) (1u << SIM_WORK_##name)
#define PM "unit-pmem-pm_mutants"
#define TXN "unit-txn-txn_mutants"
#define PART "unit-txn-txn_part_mutants"
#define REC "unit-recovery-rec_mutants"

/* ---- the shapes ---- */

static const struct sim_setup mixed = {.ops = 20, .faults = SIM_FAULTS_ALL};
/* No faults: conflicts only. */
static const struct sim_setup busy = {.nodes = 2, .clients = 4, .ops = 40,
    .work = (1u << SIM_WORK_COUNT) - 1};
/* Nodes die and are back at once, so sessions end and begin. */
static const struct sim_setup sessions = {.nodes = 2, .clients = 4, .ops = 40, .work = WORK(BANK),
    .hazard = {[SIM_NODE] = {.process = 80}}, .faults = SIM_FAULT_NODE_PROCESS, .quick = true};
/* A coordinator stops between its records for about as long as a record may stay unmarked. */
static const struct sim_setup pauses = {.nodes = 2, .clients = 3, .ops = 15, .work = WORK(BANK),
    .hazard = {[SIM_CLIENT] = {.pause = 25, .pause_us = 20000}}, .faults = SIM_FAULT_PAUSE};
/* Nodes are back before their peers know that they were gone. */
static const struct sim_setup zombies = {.nodes = 2, .clients = 4, .ops = 30,
    .hazard = {[SIM_NODE] = {.process = 60}, [SIM_CLIENT] = {.pause = 4, .pause_us = 60}},
    .faults = SIM_FAULT_NODE_PROCESS, .quick = true};
/* Power fails often. */
static const struct sim_setup power = {.nodes = 2, .clients = 4, .ops = 25,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER), .hazard = {[SIM_NODE] = {.power = 100}},
    .faults = SIM_FAULT_NODE_POWER, .quick = true};
/* Power fails while coordinators wait for their flushes. */
static const struct sim_setup flushes = {.nodes = 2, .clients = 4, .ops = 30, .work = WORK(BANK),
    .durability = RD_DURABILITY_APM, .mode = SIM_ADR, .prompt = true,
    .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}},
    .faults = SIM_FAULT_NODE_POWER, .quick = true};
/* The same, and it is the node's CPU that makes flushes durable. */
static const struct sim_setup by_message = {.nodes = 2, .clients = 4, .ops = 30,
    .durability = RD_DURABILITY_GPSPM, .mode = SIM_ADR_DDIO, .work = WORK(BANK),
    .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}},
    .faults = SIM_FAULT_NODE_POWER, .quick = true};
/* Nodes and coordinators die: records in doubt at a node that has just started. */
static const struct sim_setup doubts = {.nodes = 2, .clients = 4, .ops = 40,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER),
    .hazard = {[SIM_CLIENT] = {.process = 60}, [SIM_NODE] = {.process = 100}},
    .faults = SIM_FAULT_NODE_PROCESS};
/* Coordinators die all the time, nodes are slow. */
static const struct sim_setup slow = {.nodes = 2, .clients = 4, .ops = 40,
    .work = WORK(BANK) | WORK(COUNTER) | WORK(CHURN),
    .hazard = {[SIM_CLIENT] = {.process = 20}, [SIM_NODE] = {.pause = 100, .pause_us = 300}},
    .faults = SIM_FAULT_NODE_PROCESS | SIM_FAULT_PARTITION};
/* Coordinators die all the time. */
static const struct sim_setup deaths = {.nodes = 1, .clients = 5, .ops = 30, .work = WORK(BANK),
    .hazard = {[SIM_CLIENT] = {.process = 20}}, .faults = SIM_FAULT_CLIENT};
/* Values that grow move to other blocks, by coordinators that die with records in flight. */
static const struct sim_setup grants = {.nodes = 2, .clients = 4, .ops = 40, .work = WORK(APPEND),
    .hazard = {[SIM_CLIENT] = {.process = 30}, [SIM_NODE] = {.process = 60}},
    .faults = SIM_FAULT_NODE_PROCESS | SIM_FAULT_CLIENT};

struct aim {
    int mutant;
    const char *unit;              /* the unit test that notices, or NULL */
    const struct sim_setup *setup; /* the simulation that does, or NULL */
};

#define M(name) CN_MUTANT_##name
static const struct aim aims[] = {
    {M(c_log_before_validate), NULL, &mixed},
    {M(c_skip_validate), NULL, &mixed},
    {M(c_validate_ignores_lock), NULL, &busy},
    {M(c_mark_before_flush), NULL, &flushes},
    {M(c_ack_before_flush), NULL, &flushes},
    {M(c_flush_skipped), NULL, &flushes},
    {M(c_release_unacquired), NULL, &mixed},
    {M(c_reuse_send_buffer), NULL, &mixed},
    {M(c_merge_beliefs), TXN, NULL},
    {M(c_skip_absence_recheck), TXN, NULL},
    {M(c_reuse_sequence), TXN, NULL},
    {M(c_wait_holding_lock), TXN, NULL},
    {M(c_ring_past_position), TXN, NULL},
    {M(c_session_continues), NULL, &sessions},
    {M(n_apply_unpersisted), PART, NULL},
    {M(n_commit_unmarked), PART, &doubts},
    {M(n_no_body_fence), PART, NULL},
    {M(n_no_applied_fence), PART, NULL},
    {M(n_release_before_applied), PART, NULL},
    {M(n_no_release_fence), PART, NULL},
    {M(n_no_redo_release), PART, &power},
    {M(n_publish_before_position), PART, NULL},
    {M(n_position_skips), PART, NULL},
    {M(n_tombstone_volatile), PART, NULL},
    {M(n_records_before_tombstones), PART, NULL},
    {M(n_present_volatile), REC, NULL},
    {M(n_present_without_txid), REC, NULL},
    {M(n_abort_without_fence), REC, &pauses},
    {M(n_no_fence), NULL, &pauses},
    {M(n_no_gap_tombstones), PART, NULL},
    {M(n_no_start_revoke), NULL, &zombies},
    {M(n_no_relock), NULL, &doubts},
    {M(n_free_words_at_applied), NULL, &slow},
    {M(n_reuse_without_scrub), NULL, &deaths},
    {M(n_grants_at_fence), NULL, &grants},
    {M(p_flush_changed_only), PM, NULL},
    {M(p_version_restarts), PM, NULL},
    {M(p_release_ahead), PM, NULL},
    {M(n_auto_apm), NULL, &by_message},
    {M(f_answer_unpersisted), NULL, &by_message},
};

static bool run(const struct aim *aim, int mutant, uint64_t seed, char *failure)
{
    struct sim_result r;

    cn_mutant_active = mutant;
    sim_cluster_run(aim->setup, seed, &r);
    cn_mutant_active = CN_MUTANT_none;
    if (r.failed)
        snprintf(failure, 200, "%.199s", r.failure);
    return !r.failed;
}

static void print_rate(const struct aim *aim, uint64_t seeds)
{
    char failure[200];
    double begun = sim_seconds();
    uint64_t failed = 0, clean = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        if (!run(aim, aim->mutant, seed, failure)) {
            printf("  seed %lu: %.120s\n", seed, failure);
            failed++;
        }
        if (!run(aim, CN_MUTANT_none, seed, failure)) {
            printf("  UNMUTATED seed %lu: %.120s\n", seed, failure);
            clean++;
        }
    }
    printf("%2d %-28s %lu of %lu seeds fail, unmutated %lu; %.1f s\n", aim->mutant,
        names[aim->mutant], failed, seeds, clean, sim_seconds() - begun);
}

/* The number of seeds it took; 0: it survives. */
static uint64_t kill(const struct aim *aim, char *failure)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (!run(aim, aim->mutant, seed, failure))
            return seed;
    return 0;
}

static void mutant__switched_on__is_caught(void **state)
{
    const char *one = getenv("CAIRN_SIM_MUTANT"), *rate = getenv("CAIRN_SIM_RATE");
    bool seen[CN_MUTANT_COUNT] = {true};
    uint32_t survivors = 0;

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(aims); i++) {
        const struct aim *a = &aims[i];
        char failure[200] = "";
        uint64_t seeds = 0;
        seen[a->mutant] = true;
        if (one != NULL && atoi(one) != a->mutant)
            continue;
        if (rate != NULL && a->setup != NULL) {
            print_rate(a, strtoull(rate, NULL, 0));
            continue;
        }
        assert_true(a->unit != NULL || a->setup != NULL);
        if (a->setup != NULL)
            seeds = kill(a, failure);
        if (a->setup == NULL)
            printf("%2d %-28s %s\n", a->mutant, names[a->mutant], a->unit);
        else if (seeds != 0)
            printf("%2d %-28s seeds %3lu%s%s: %.100s\n", a->mutant, names[a->mutant], seeds,
                a->unit != NULL ? ", " : "", a->unit != NULL ? a->unit : "", failure);
        else
            printf("%2d %-28s SURVIVES %u seeds\n", a->mutant, names[a->mutant], SEEDS);
        fflush(stdout);
        survivors += a->setup != NULL && seeds == 0;
    }
    sim_fiber_trim();
    for (int m = 0; m < CN_MUTANT_COUNT; m++)
        if (!seen[m])
            fail_msg("nothing is aimed at %s", names[m]);
    assert_int_equal(0, survivors);
}

static void mutant__none__survives(void **state)
{
    const struct sim_setup *last = NULL;

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(aims); i++) {
        char failure[200] = "";
        if (aims[i].setup == NULL || aims[i].setup == last)
            continue;
        last = aims[i].setup;
        for (uint64_t seed = 1; seed <= CLEAN; seed++)
            if (!run(&aims[i], CN_MUTANT_none, seed, failure))
                fail_msg("aimed at %s, seed %lu, unmutated: %s", names[aims[i].mutant], seed,
                    failure);
    }
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutant__none__survives),
        cmocka_unit_test(mutant__switched_on__is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
