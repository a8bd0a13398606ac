/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a crash at every named step, at several of its occurrences, of either kind, and a pause
 * there, breaks no promise; and the steps are really reached. Method: for each crash point the runs
 * of cr_points.c, always all of them: seeds of a small cluster with the crash planned there.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"
#include "tools/crash/campaign/cr_points.h"

static bool crash_at(enum cn_step step, enum cr_cell kind, uint32_t attempt, bool *ret_fired)
{
    struct cr_setup setup;
    struct cr_result r;
    uint64_t seed;

    cr_point_setup(step, kind, attempt, 1, &setup, &seed);
    cr_cluster_run(&setup, seed, &r);
    *ret_fired = r.plan_fired;
    if (r.plan_fired)
        assert_true(r.stats.at_step[step][setup.plan.kind] > 0);
    if (r.failed)
        print_error("%s at %s, occurrence %u, seed %lu: %s\n", cr_cell_name(kind),
            cn_step_name(step), setup.plan.occurrence, seed, r.failure);
    return !r.failed;
}

static void step__crash_there__promises_hold(void **state)
{
    (void)state;
    uint32_t failures = 0, missed = 0;
    double begun = sw_seconds();
    enum cn_step step;
    enum cr_cell kind;

    for (uint32_t at = 0; cr_point_at(at, &step, &kind); at++) {
        uint32_t fired = 0, runs = 0;
        for (; runs < CR_POINT_TRIES; runs++) {
            bool hit;
            failures += !crash_at(step, kind, runs, &hit);
            fired += hit;
        }
        printf("%-16s %-8s %2u of %2u runs\n", cn_step_name(step), cr_cell_name(kind), fired, runs);
        if (fired == 0) {
            print_error("%s was never reached\n", cn_step_name(step));
            missed++;
        }
    }
    printf("%.1f s\n", sw_seconds() - begun);
    sim_fiber_trim();
    assert_int_equal(0, failures);
    assert_int_equal(0, missed);
}

/* Every step is in the table of texts, and only what cannot happen in a run is left out. */
static void point__all_steps__told_and_defined(void **state)
{
    (void)state;
    uint32_t undefined = 0;

    for (uint32_t s = 0; s < CN_STEP_COUNT; s++) {
        assert_non_null(cr_point_text(s));
        undefined += !cr_point_is_defined(s, CR_CELL_PROCESS);
        assert_int_equal(
            cr_point_is_defined(s, CR_CELL_PROCESS), cr_point_is_defined(s, CR_CELL_PAUSED));
    }
    assert_int_equal(2, undefined); /* pools are made before a run */
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(point__all_steps__told_and_defined),
        cmocka_unit_test(step__crash_there__promises_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
