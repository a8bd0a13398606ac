/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: limits, memory, interfaces and persistent memory of the host are what /proc and /sys show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/dr_tree.h"

static struct dr_host host;

static int setup(void **state)
{
    struct dr_tree *tree = calloc(1, sizeof(*tree));
    assert_non_null(tree);
    dr_tree_make(tree);
    *state = tree;
    return 0;
}

static int teardown(void **state)
{
    dr_tree_remove(*state);
    free(*state);
    return 0;
}

static void host_read__limits__of_the_process_asked_for(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "proc/self/limits",
        "Limit   Soft   Hard   Units\nMax locked memory         8388608              unlimited     "
        "       bytes\nMax processes 1 2 processes");
    dr_tree_file(t, "proc/77/limits", "Max locked memory  unlimited  unlimited  bytes");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.memlock_known, DR_YES);
    assert_int_equal(host.memlock, 8388608);
    assert_true(host.memlock_hard == UINT64_MAX);
    dr_host_read(&t->root, 77, &host);
    assert_true(host.memlock == UINT64_MAX);
}

static void host_read__malformed_limits__unknown(void **state)
{
    static const char *const bad[] = {"", "Max locked memory", "Max locked memory x y bytes",
        "Max locked memory 5", "Max locked memory -1 -1",
        "Max locked memory 99999999999999999999 1", "  Max locked memory 5 5"};
    struct dr_tree *t = *state;

    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        dr_tree_file(t, "proc/self/limits", bad[i]);
        dr_host_read(&t->root, 0, &host);
        assert_int_equal(host.memlock_known, DR_UNKNOWN);
    }
}

static void host_read__capabilities__bit_14(void **state)
{
    struct dr_tree *t = *state;

    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.ipc_lock, DR_UNKNOWN);
    dr_tree_file(t, "proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCapBnd:\t0");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.ipc_lock, DR_YES);
    dr_tree_file(t, "proc/self/status", "CapEff:\t000001ffffffbfff");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.ipc_lock, DR_NO);
    dr_tree_file(t, "proc/self/status", "CapEff:\tnone");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.ipc_lock, DR_UNKNOWN);
}

static void host_read__memory__huge_pages(void **state)
{
    struct dr_tree *t = *state;

    dr_host_read(&t->root, 0, &host);
    assert_false(host.huge_known);
    dr_tree_file(t, "proc/meminfo",
        "MemTotal:  2048 kB\nHugePages_Total:   4\nHugePages_Free:  3\nHugepagesize:  2048 kB");
    dr_tree_file(t, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    dr_host_read(&t->root, 0, &host);
    assert_true(host.huge_known);
    assert_int_equal(host.memory, 2048 * 1024);
    assert_int_equal(host.huge_total, 4);
    assert_int_equal(host.huge_free, 3);
    assert_int_equal(host.huge_size, 2 << 20);
    assert_string_equal(host.thp, "never");
    dr_tree_file(t, "proc/meminfo",
        "HugePages_Total: x\nHugepagesize: 18446744073709551615 kB\nMemTotal: 18446744073709551615 "
        "kB");
    dr_tree_file(t, "sys/kernel/mm/transparent_hugepage/enabled", "[");
    dr_host_read(&t->root, 0, &host);
    assert_false(host.huge_known);
    assert_int_equal(host.memory, 0);
    assert_string_equal(host.thp, "");
}

static void host_read__kernel__version_as_a_number(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "proc/sys/kernel/osrelease", "6.1.0-18-amd64");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.kernel, 6001);
    dr_tree_file(t, "proc/sys/kernel/osrelease", "unknown");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.kernel, 0);
}

static void host_read__interfaces__there_or_not_or_not_shown(void **state)
{
    struct dr_tree *t = *state;

    dr_host_read(&t->root, 0, &host);
    assert_false(host.uverbs);
    assert_int_equal(host.rdma_cm, DR_UNKNOWN);
    dr_tree_file(t, "sys/class/misc/hpet/dev", "10:228");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.rdma_cm, DR_NO);
    dr_tree_file(t, "sys/class/misc/rdma_cm/dev", "10:60");
    dr_tree_file(t, "sys/class/infiniband_verbs/abi_version", "6");
    dr_host_read(&t->root, 0, &host);
    assert_true(host.uverbs);
    assert_int_equal(host.rdma_cm, DR_YES);
    assert_string_equal(host.cm_error, ""); /* a tree: nothing is opened */
}

static void host_read__nd__regions_namespaces_dimms(void **state)
{
    struct dr_tree *t = *state;
    char path[96];

    dr_tree_file(t, "sys/bus/nd/devices/region0/persistence_domain", "memory_controller");
    dr_tree_file(t, "sys/bus/nd/devices/region1/size", "1");
    dr_tree_file(t, "sys/bus/nd/devices/namespace0.0/mode", "raw");
    dr_tree_file(t, "sys/bus/nd/devices/namespace0.0/size", "4096");
    dr_tree_file(t, "sys/bus/nd/devices/nmem0/nfit/flags", "not_armed");
    dr_tree_file(t, "sys/bus/nd/devices/ndbus0/provider", "ACPI.NFIT");
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.region_count, 2);
    assert_string_equal(host.region[0].domain, "memory_controller");
    assert_string_equal(host.region[1].domain, "");
    assert_int_equal(host.namespace_count, 1);
    assert_int_equal(host.namespace[0].size, 4096);
    assert_int_equal(host.nvdimm_count, 1);
    assert_string_equal(host.nvdimm[0].flags, "not_armed");
    for (unsigned i = 2; i < DR_REGIONS_MAX + 10; i++) {
        (void)snprintf(path, sizeof(path), "sys/bus/nd/devices/region%u/persistence_domain", i);
        dr_tree_file(t, path, "cpu_cache");
    }
    dr_host_read(&t->root, 0, &host);
    assert_int_equal(host.region_count, DR_REGIONS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            host_read__limits__of_the_process_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(host_read__malformed_limits__unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(host_read__capabilities__bit_14, setup, teardown),
        cmocka_unit_test_setup_teardown(host_read__memory__huge_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(host_read__kernel__version_as_a_number, setup, teardown),
        cmocka_unit_test_setup_teardown(
            host_read__interfaces__there_or_not_or_not_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(host_read__nd__regions_namespaces_dimms, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
