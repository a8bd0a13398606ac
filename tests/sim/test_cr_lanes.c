/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: several transactions in flight in one context keep every promise that one at a time keeps,
 * under all faults, and also what is asserted without a crash (discipline, rules). Method: clients
 * that share a context (cr_setup.group), with few keys, so that they meet, and a small window, so
 * that their records do.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"

static void sweep(const struct cr_setup *setup, uint64_t first, uint64_t count)
{
    struct sw_sweep s = {.first = first, .count = count, .seconds = 8};
    bool good = sw_sweep("sim-cr_lanes", setup, &s);

    sw_sweep_print(&s);
    assert_true(good);
    assert_true(s.done != 0);
}

static void cluster_run__clients_share_contexts__promises_hold(void **state)
{
    (void)state;
    sweep(&(struct cr_setup){.clients = 6, .group = 3, .ops = 20, .faults = CR_FAULTS_ALL}, 1,
        1000000);
}

static void cluster_run__all_share_one_context__promises_hold(void **state)
{
    (void)state;
    sweep(&(struct cr_setup){.clients = 6, .group = 6, .ops = 20, .faults = CR_FAULTS_ALL,
              .discipline = true, .rules = true},
        1, 300);
}

/* Some wait long for one node; the others go on, and come round the rings of the other nodes. */
static void cluster_run__one_node_stalls__promises_hold(void **state)
{
    (void)state;
    sweep(&(struct cr_setup){.clients = 6, .group = 6, .ops = 30,
              .work = 1u << CR_WORK_BANK | 1u << CR_WORK_LARGE,
              .faults = CR_FAULTS_ALL | CR_FAULT_STALL, .discipline = true, .rules = true},
        1, 300);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_run__clients_share_contexts__promises_hold),
        cmocka_unit_test(cluster_run__all_share_one_context__promises_hold),
        cmocka_unit_test(cluster_run__one_node_stalls__promises_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
