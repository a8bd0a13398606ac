/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: under crashes (process, power, all at once, during recovery), pauses, partitions and lost
 * connections every promise of the design holds. Method: many seeds; each draws its cluster,
 * workload and faults. CAIRN_SIM_SEEDS, CAIRN_SIM_FIRST and CAIRN_SIM_SECONDS change how many.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"

static void cluster_run__all_faults__promises_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL};
    struct sw_sweep sweep = {.first = 1, .count = 1000000, .seconds = 40};
    bool good = sw_sweep("sim-sim_crash", &setup, &sweep);

    sw_sweep_print(&sweep);
    assert_true(good);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_run__all_faults__promises_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
