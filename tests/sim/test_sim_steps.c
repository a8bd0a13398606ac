/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a crash at every named step, at several of its occurrences, of either kind, breaks no
 * promise; and the steps are really reached. Method: for each step, seeds of a small cluster of two
 * nodes with a crash planned there. Steps of recovery need an earlier crash, which faults at drawn
 * times provide.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sim_main.h"

#define OCCURRENCES 4u
#define SEEDS 5u

/* Not reached by a running cluster: making a pool, and forgetting verdicts after a day. */
static bool is_exempt(enum cn_step step)
{
    return step == CN_STEP_r_format || step == CN_STEP_r_formatted || step == CN_STEP_s_purged;
}

/* Make the step likely. */
static void aim(struct sim_setup *setup, enum cn_step step, uint64_t seed)
{
    if (step >= CN_STEP_r_ask && step <= CN_STEP_r_told) {
        /* Transactions of two nodes whose coordinator dies between its records. */
        setup->clients = 4;
        setup->ops = 25;
        setup->work = 1u << SIM_WORK_BANK;
        setup->faults |= SIM_FAULT_HAZARD;
        setup->first = (struct sim_plan){.role = SIM_CLIENT, .any_actor = true,
            .step = CN_STEP_c_logged, .occurrence = 2 * (uint32_t)seed, .kind = SIM_CRASH_PROCESS};
    } else if (step >= CN_STEP_r_incarnation && step <= CN_STEP_r_serving) {
        setup->first = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
            .step = CN_STEP_a_body, .occurrence = (uint32_t)seed, .kind = SIM_CRASH_POWER};
    } else if (step == CN_STEP_g_locked) {
        setup->clients = 4;
        setup->ops = 40;
        setup->work = 1u << SIM_WORK_CHURN | 1u << SIM_WORK_SKEW | 1u << SIM_WORK_COUNTER;
    } else if (seed == 1 && step != CN_STEP_a_found) {
        setup->faults = 0; /* nothing but the crash */
    }
}

static bool crash_at(enum cn_step step, uint32_t occurrence, enum sim_crash kind, uint64_t seed,
    bool *ret_fired)
{
    bool client = step <= CN_STEP_c_void;
    struct sim_setup setup = {.nodes = 2, .clients = 3, .ops = 12,
        .faults = SIM_FAULT_NODE_PROCESS | SIM_FAULT_NODE_POWER | SIM_FAULT_CLIENT |
            SIM_FAULT_BREAK,
        .clean_end = step == CN_STEP_r_clean,
        .plan = {.role = client ? SIM_CLIENT : SIM_NODE, .any_actor = true, .step = step,
            .occurrence = occurrence, .kind = kind}};
    struct sim_result r;

    aim(&setup, step, seed);
    sim_cluster_run(&setup, seed, &r);
    *ret_fired = r.plan_fired;
    if (r.failed)
        print_error("crash at %s, occurrence %u, %s, seed %lu: %s\n", cn_step_name(step),
            occurrence, kind == SIM_CRASH_POWER ? "power" : "process", seed, r.failure);
    return !r.failed;
}

static void step__crash_there__promises_hold(void **state)
{
    (void)state;
    uint32_t failures = 0, missed = 0;
    double begun = sim_seconds();

    for (uint32_t step = 0; step < CN_STEP_COUNT; step++) {
        uint32_t fired = 0, runs = 0;
        for (uint32_t occurrence = 1; occurrence <= OCCURRENCES; occurrence++)
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                for (uint32_t kind = SIM_CRASH_PROCESS; kind <= SIM_CRASH_POWER; kind++) {
                    bool hit;
                    if (step <= CN_STEP_c_void && kind == SIM_CRASH_POWER)
                        continue; /* a client has no persistent memory */
                    runs++;
                    failures += !crash_at(step, occurrence, kind, seed, &hit);
                    fired += hit;
                }
        printf("%-16s crashed there %3u of %3u runs\n", cn_step_name(step), fired, runs);
        if (fired == 0 && !is_exempt(step)) {
            print_error("%s was never reached\n", cn_step_name(step));
            missed++;
        }
    }
    printf("%.1f s\n", sim_seconds() - begun);
    sim_fiber_trim();
    assert_int_equal(0, failures);
    assert_int_equal(0, missed);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__crash_there__promises_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
