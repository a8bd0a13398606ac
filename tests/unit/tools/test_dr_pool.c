/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a pool lies on is found by device class, mount and file; the nd region behind it by
 * its path; the memory that a node locks is the pool and its connections' buffers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "tests/tools/dr_tree.h"

static struct dr_host host;
static struct dr_pool pool;
static struct txn_config config;
static struct txn_config_node node;

static int setup(void **state)
{
    struct dr_tree *tree = calloc(1, sizeof(*tree));
    assert_non_null(tree);
    dr_tree_make(tree);
    memset(&host, 0, sizeof(host));
    memset(&config, 0, sizeof(config));
    memset(&node, 0, sizeof(node));
    config.geometry.slot_count = 64;
    config.node_count = 3;
    node.id = 2;
    node.pool_size = 1 << 30;
    *state = tree;
    return 0;
}

static int teardown(void **state)
{
    dr_tree_remove(*state);
    free(*state);
    return 0;
}

static enum dr_pool_kind kind_of(struct dr_tree *t, const char *path)
{
    (void)snprintf(node.pool, sizeof(node.pool), "%s", path);
    dr_pool_read(&t->root, &host, &config, &node, &pool);
    return pool.kind;
}

static void pool_read__files__by_the_longest_mount(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "proc/self/mounts",
        "/dev/sda1 / ext4 rw,relatime 0 0\n"
        "tmpfs /dev/shm tmpfs rw 0 0\n"
        "/dev/pmem0 /mnt/pmem xfs rw,dax=always,inode64 0 0\n"
        "/dev/pmem1 /mnt/two\\040words ext4 rw,dax 0 0\n"
        "/dev/sdb1 /mnt/pmem/disk ext4 rw,daxfoo 0 0\n"
        "/dev/pmem2 /mnt/never ext4 rw,dax=never 0 0\n"
        "none /mnt/huge hugetlbfs rw 0 0\n"
        "a broken line");
    assert_int_equal(kind_of(t, "/var/n1.pool"), DR_POOL_FILE);
    assert_string_equal(pool.fs, "ext4");
    assert_int_equal(kind_of(t, "/dev/shm/n1.pool"), DR_POOL_TMPFS);
    assert_int_equal(kind_of(t, "/dev/shmoo/n1.pool"), DR_POOL_FILE);
    assert_int_equal(kind_of(t, "/mnt/pmem/n1.pool"), DR_POOL_FSDAX);
    assert_int_equal(kind_of(t, "/mnt/two words/n1.pool"), DR_POOL_FSDAX);
    assert_int_equal(kind_of(t, "/mnt/pmem/disk/n1.pool"), DR_POOL_FILE);
    assert_int_equal(kind_of(t, "/mnt/never/n1.pool"), DR_POOL_FILE);
    assert_int_equal(kind_of(t, "/mnt/huge/n1.pool"), DR_POOL_TMPFS);
}

static void pool_read__mounted_over__the_last_one(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "proc/self/mounts", "/dev/pmem0 /mnt ext4 rw,dax 0 0\ntmpfs /mnt tmpfs rw 0 0");
    assert_int_equal(kind_of(t, "/mnt/n1.pool"), DR_POOL_TMPFS);
}

static void pool_read__no_mounts__unknown(void **state)
{
    struct dr_tree *t = *state;

    assert_int_equal(kind_of(t, "/var/n1.pool"), DR_POOL_UNKNOWN);
    assert_false(pool.exists);
    assert_string_equal(pool.fs, "");
}

static void pool_read__file_there__its_own_size(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "proc/self/mounts", "/dev/sda1 / ext4 rw 0 0");
    dr_tree_bytes(t, "var/n1.pool", "12345", 5);
    assert_int_equal(kind_of(t, "/var/n1.pool"), DR_POOL_FILE);
    assert_true(pool.exists);
    assert_int_equal(pool.size, 5);
    assert_int_equal(kind_of(t, "/var/n2.pool"), DR_POOL_FILE);
    assert_false(pool.exists);
    assert_int_equal(pool.size, 1 << 30);
    assert_int_equal(kind_of(t, "/var"), DR_POOL_OTHER);
}

static void pool_read__dax_device__region_size_numa(void **state)
{
    struct dr_tree *t = *state;

    host.region_count = 2;
    (void)snprintf(host.region[0].name, DR_NAME_SIZE, "region1");
    (void)snprintf(host.region[1].name, DR_NAME_SIZE, "region12");
    (void)snprintf(host.region[1].domain, sizeof(host.region[1].domain), "cpu_cache");
    dr_tree_link(t, "sys/bus/dax/devices/dax12.0", "../../../devices/ndbus0/region12/dax12.0");
    dr_tree_file(t, "sys/devices/ndbus0/region12/dax12.0/size", "4194304");
    dr_tree_file(t, "sys/devices/ndbus0/region12/dax12.0/align", "2097152");
    dr_tree_file(t, "sys/devices/ndbus0/region12/dax12.0/numa_node", "1");
    assert_int_equal(kind_of(t, "/dev/dax12.0"), DR_POOL_DEVDAX);
    assert_true(pool.exists);
    assert_int_equal(pool.size, 4194304);
    assert_int_equal(pool.align, 2097152);
    assert_int_equal(pool.numa, 1);
    assert_string_equal(pool.region, "region12");
    assert_string_equal(pool.domain, "cpu_cache");
    assert_int_equal(kind_of(t, "/dev/dax0.0"), DR_POOL_UNKNOWN);
    assert_false(pool.exists);
    assert_int_equal(pool.numa, -1);
}

static void pool_read__fsdax__region_of_its_block_device(void **state)
{
    struct dr_tree *t = *state;

    host.region_count = 1;
    (void)snprintf(host.region[0].name, DR_NAME_SIZE, "region0");
    (void)snprintf(host.region[0].domain, sizeof(host.region[0].domain), "memory_controller");
    dr_tree_file(t, "proc/self/mounts", "/dev/pmem0 /mnt ext4 rw,dax 0 0");
    dr_tree_link(
        t, "sys/class/block/pmem0", "../../devices/ndbus0/region0/namespace0.0/block/pmem0");
    dr_tree_file(t, "sys/bus/nd/devices/region0/numa_node", "-1");
    assert_int_equal(kind_of(t, "/mnt/n1.pool"), DR_POOL_FSDAX);
    assert_string_equal(pool.region, "region0");
    assert_string_equal(pool.domain, "memory_controller");
    assert_int_equal(pool.numa, -1);
}

static void pool_read__pinned__pool_and_buffers_without_overflow(void **state)
{
    struct dr_tree *t = *state;

    (void)kind_of(t, "/var/n1.pool");
    assert_true(pool.pinned > (1u << 30));
    assert_true(pool.pinned < (1u << 30) + (64u << 20));
    node.pool_size = UINT64_MAX - 1;
    (void)kind_of(t, "/var/n1.pool");
    assert_true(pool.pinned == UINT64_MAX);
}

static void pool_read__live__this_machine(void **state)
{
    struct dr_root root;

    (void)state;
    assert_int_equal(dr_root_open(NULL, &root), 0);
    (void)snprintf(node.pool, sizeof(node.pool), "/dev/null");
    dr_pool_read(&root, &host, &config, &node, &pool);
    assert_int_equal(pool.kind, DR_POOL_OTHER);
    assert_true(pool.exists);
    (void)snprintf(node.pool, sizeof(node.pool), "/proc/self/status");
    dr_pool_read(&root, &host, &config, &node, &pool);
    if (geteuid() != 0) /* root may write everywhere */
        assert_string_not_equal(pool.denied, "");
    dr_root_close(&root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pool_read__files__by_the_longest_mount, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_read__mounted_over__the_last_one, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_read__no_mounts__unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_read__file_there__its_own_size, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_read__dax_device__region_size_numa, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_read__fsdax__region_of_its_block_device, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_read__pinned__pool_and_buffers_without_overflow, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_read__live__this_machine, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
