/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a device's transport, driver, PCIe link and interfaces are taken from what sysfs shows, and
 * what it does not show stays unknown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/tools/dr_tree.h"

#define DEV "sys/class/infiniband/d0/"

static struct dr_device device;

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

static void add_pci(struct dr_tree *t, const char *driver)
{
    char target[128];

    dr_tree_link(t, DEV "device", "../../../devices/0000:5e:00.0");
    (void)snprintf(target, sizeof(target), "../../bus/pci/drivers/%s", driver);
    dr_tree_link(t, "sys/devices/0000:5e:00.0/driver", target);
}

static void device_read__pci_drivers__known_by_name(void **state)
{
    static const struct {
        const char *pci, *rdma;
        enum dr_answer odp;
    } expect[] = {{"mlx5_core", "mlx5_ib", DR_YES}, {"ice", "irdma", DR_NO},
        {"bnxt_en", "bnxt_re", DR_NO}, {"brand_new", "brand_new", DR_UNKNOWN}};
    struct dr_tree *t = *state;

    dr_tree_file(t, DEV "node_type", "1: CA");
    for (size_t i = 0; i < CN_ARRAY_SIZE(expect); i++) {
        add_pci(t, expect[i].pci);
        dr_device_read(&t->root, "d0", &device);
        assert_string_equal(device.driver, expect[i].rdma);
        assert_int_equal(device.odp, expect[i].odp);
        assert_string_equal(device.pci, "0000:5e:00.0");
        assert_false(device.software);
    }
    add_pci(t, "x;y");
    dr_device_read(&t->root, "d0", &device);
    assert_string_equal(device.driver, "");
}

static void device_read__software__told_by_itself(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, DEV "node_type", "1: CA");
    dr_tree_file(t, DEV "parent", "eth0");
    dr_device_read(&t->root, "d0", &device);
    assert_string_equal(device.driver, "rdma_rxe");
    assert_true(device.software);
    add_pci(t, "e1000e"); /* some kernels give siw the card as a parent */
    dr_tree_file(t, "sys/class/infiniband/d1/node_type", "4: RNIC");
    dr_tree_file(t, "sys/class/infiniband/d1/node_desc", "Software iWARP stack");
    dr_device_read(&t->root, "d1", &device);
    assert_string_equal(device.driver, "siw");
    assert_int_equal(device.transport, DR_IWARP);
    assert_int_equal(device.atomics, DR_NO);
    assert_string_equal(device.pci, "");
}

static void device_read__transport__by_type_and_link(void **state)
{
    static const struct {
        const char *type, *link;
        enum dr_transport transport;
    } expect[] = {{"1: CA", "InfiniBand", DR_INFINIBAND}, {"1: CA", "Ethernet", DR_ROCE},
        {"4: RNIC", "Ethernet", DR_IWARP}, {"7: unspecified", "Unspecified", DR_OTHER},
        {"5: usNIC", "Ethernet", DR_OTHER}, {"1: CA", "", DR_OTHER}, {"", "Ethernet", DR_OTHER},
        {"nonsense", "Ethernet", DR_OTHER}, {"99999999999999999999: CA", "Ethernet", DR_OTHER}};
    struct dr_tree *t = *state;

    for (size_t i = 0; i < CN_ARRAY_SIZE(expect); i++) {
        dr_tree_file(t, DEV "node_type", expect[i].type);
        dr_tree_file(t, DEV "ports/1/link_layer", expect[i].link);
        dr_device_read(&t->root, "d0", &device);
        assert_int_equal(device.transport, expect[i].transport);
    }
}

static void device_read__pcie__speed_and_width(void **state)
{
    struct dr_tree *t = *state;

    add_pci(t, "mlx5_core");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/current_link_speed", "2.5 GT/s PCIe");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/max_link_speed", "16 GT/s"); /* old kernels */
    dr_tree_file(t, "sys/devices/0000:5e:00.0/current_link_width", "4");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/max_link_width", "16");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/numa_node", "1");
    dr_device_read(&t->root, "d0", &device);
    assert_int_equal(device.speed, 25);
    assert_int_equal(device.speed_max, 160);
    assert_int_equal(device.width, 4);
    assert_int_equal(device.width_max, 16);
    assert_int_equal(device.numa, 1);
}

static void device_read__pcie_not_shown__unknown(void **state)
{
    static const char *const bad[] = {"Unknown", "", "16.0", "x GT/s", "16.0 GB/s", "-1 GT/s"};
    struct dr_tree *t = *state;

    add_pci(t, "mlx5_core");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/max_link_width", "255");
    dr_tree_file(t, "sys/devices/0000:5e:00.0/numa_node", "-1");
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        dr_tree_file(t, "sys/devices/0000:5e:00.0/current_link_speed", bad[i]);
        dr_device_read(&t->root, "d0", &device);
        assert_int_equal(device.speed, 0);
    }
    assert_int_equal(device.width_max, 0);
    assert_int_equal(device.numa, -1);
    assert_int_equal(t->root.malformed_count, 0); /* -1 is what the kernel says */
}

static void device_read__uverbs__the_entry_that_names_it(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, DEV "node_type", "1: CA");
    dr_tree_file(t, "sys/class/infiniband_verbs/abi_version", "6");
    dr_tree_file(t, "sys/class/infiniband_verbs/uverbs0/ibdev", "d1");
    dr_device_read(&t->root, "d0", &device);
    assert_string_equal(device.uverbs, "");
    dr_tree_file(t, "sys/class/infiniband_verbs/uverbs1/ibdev", "d0");
    dr_device_read(&t->root, "d0", &device);
    assert_string_equal(device.uverbs, "uverbs1");
}

static void device_read__many_ports__bounded(void **state)
{
    struct dr_tree *t = *state;
    char path[64];

    for (unsigned i = 1; i <= DR_PORTS_MAX + 4; i++) {
        (void)snprintf(path, sizeof(path), DEV "ports/%u/state", i);
        dr_tree_file(t, path, "4: ACTIVE");
    }
    dr_device_read(&t->root, "d0", &device);
    assert_int_equal(device.port_count, DR_PORTS_MAX);
}

static void facts_read__tree__devices_and_only_one(void **state)
{
    struct dr_tree *t = *state;
    struct dr_options options = {.root = t->dir};
    struct dr_facts *facts = NULL;

    dr_tree_file(t, DEV "node_type", "1: CA");
    dr_tree_file(t, "sys/class/infiniband/d1/node_type", "4: RNIC");
    dr_tree_bytes(t, "sys/class/infiniband/d1/fw_ver", "\xff", 1);
    assert_int_equal(dr_facts_read(&options, &facts), 0);
    assert_int_equal(facts->device_count, 2);
    assert_false(facts->live);
    assert_int_equal(facts->malformed_count, 1);
    dr_facts_free(&facts);
    assert_null(facts);
    options.device = "d1";
    assert_int_equal(dr_facts_read(&options, &facts), 0);
    assert_int_equal(facts->device_count, 1);
    assert_int_equal(facts->device_all, 2);
    assert_string_equal(facts->device[0].name, "d1");
    dr_facts_free(&facts);
}

static void facts_read__wrong_inputs__errors(void **state)
{
    struct dr_tree *t = *state;
    char path[128];
    struct dr_options options = {.root = "/nowhere/at/all"};
    struct dr_facts *facts = NULL;

    assert_int_equal(dr_facts_read(&options, &facts), -ENOENT);
    options.root = t->dir;
    options.config = "/nowhere/cairn.conf";
    assert_int_equal(dr_facts_read(&options, &facts), -ENOENT);
    dr_tree_file(t, "c.conf",
        "cluster = \"0b0e5c1e-2c39-4d25-9c5e-5f2b1b9a7e11\";\n"
        "nodes = ( { id = 1; address = \"n1.sock\"; pool = \"n1.pool\"; size = \"1G\"; } );\n"
        "tables = ( { id = 1; name = \"t\"; } );");
    (void)snprintf(path, sizeof(path), "%s/c.conf", t->dir);
    options.config = path;
    options.node = 2;
    assert_int_equal(dr_facts_read(&options, &facts), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "no node 2"));
    assert_null(facts);
    options.node = 1;
    assert_int_equal(dr_facts_read(&options, &facts), 0);
    assert_int_equal(facts->pool_count, 1);
    assert_true(facts->one_node);
    dr_facts_free(&facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_read__pci_drivers__known_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(device_read__software__told_by_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(device_read__transport__by_type_and_link, setup, teardown),
        cmocka_unit_test_setup_teardown(device_read__pcie__speed_and_width, setup, teardown),
        cmocka_unit_test_setup_teardown(device_read__pcie_not_shown__unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(
            device_read__uverbs__the_entry_that_names_it, setup, teardown),
        cmocka_unit_test_setup_teardown(device_read__many_ports__bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_read__tree__devices_and_only_one, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_read__wrong_inputs__errors, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
