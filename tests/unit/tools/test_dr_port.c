/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a port's state, GIDs, network devices, counters and congestion control are what sysfs
 * shows; what it does not show, or shows wrongly, is unknown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/dr_tree.h"

#define PORT "sys/class/infiniband/d0/ports/1/"

static struct dr_device device;
static struct dr_port port;

static int setup(void **state)
{
    struct dr_tree *tree = calloc(1, sizeof(*tree));
    assert_non_null(tree);
    dr_tree_make(tree);
    memset(&device, 0, sizeof(device));
    (void)snprintf(device.name, sizeof(device.name), "d0");
    *state = tree;
    return 0;
}

static int teardown(void **state)
{
    dr_tree_remove(*state);
    free(*state);
    return 0;
}

static void port_read__state__numbers_and_words(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "state", "2: INIT");
    dr_tree_file(t, PORT "phys_state", "5: LinkUp");
    dr_tree_file(t, PORT "rate", "2.5 Gb/sec (1X SDR)");
    dr_tree_file(t, PORT "link_layer", "InfiniBand");
    dr_tree_file(t, PORT "lid", "0xffff");
    dr_tree_file(t, PORT "sm_lid", "0x0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.state, DR_STATE_INIT);
    assert_string_equal(port.state_text, "INIT");
    assert_int_equal(port.phys, DR_PHYS_UP);
    assert_int_equal(port.rate_mbps, 2500);
    assert_int_equal(port.link, DR_LINK_INFINIBAND);
    assert_int_equal(port.lid, 0xffff);
    assert_true(port.sm_known);
    dr_tree_file(t, PORT "rate", "400 Gb/sec (4X NDR)");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.rate_mbps, 400000);
}

static void port_read__empty__unknown(void **state)
{
    struct dr_tree *t = *state;

    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.state, 0);
    assert_int_equal(port.rate_mbps, 0);
    assert_false(port.sm_known);
    assert_int_equal(port.gid_count, 0);
    assert_int_equal(port.tos, -1);
    assert_int_equal(port.congestion_control, DR_UNKNOWN);
    assert_int_equal(t->root.malformed_count, 0);
}

static void port_read__wrong_words__unknown(void **state)
{
    static const char *const bad[] = {"ACTIVE", "4 ACTIVE", ":", "4:", "x: ACTIVE"};
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "rate", "fast");
    dr_tree_file(t, PORT "link_layer", "Tokenring");
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        dr_tree_file(t, PORT "state", bad[i]);
        dr_port_read(&t->root, &device, 1, &port);
        assert_int_equal(port.state, 0);
        assert_string_equal(port.state_text, "");
    }
    assert_int_equal(port.rate_mbps, 0);
    assert_int_equal(port.link, DR_LINK_UNKNOWN);
}

static void add_gid(
    struct dr_tree *t, unsigned i, const char *gid, const char *type, const char *dev)
{
    char path[96];

    (void)snprintf(path, sizeof(path), PORT "gids/%u", i);
    dr_tree_file(t, path, gid);
    (void)snprintf(path, sizeof(path), PORT "gid_attrs/types/%u", i);
    if (type != NULL)
        dr_tree_file(t, path, type);
    (void)snprintf(path, sizeof(path), PORT "gid_attrs/ndevs/%u", i);
    if (dev != NULL)
        dr_tree_file(t, path, dev);
}

static void port_read__gids__counted_by_kind(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "link_layer", "Ethernet");
    add_gid(t, 0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1", "eth0");
    add_gid(t, 1, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2", "eth0");
    add_gid(t, 2, "0000:0000:0000:0000:0000:0000:0000:0000", NULL, NULL);
    add_gid(t, 3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0.7");
    add_gid(t, 4, "fe80:0000:0000:0000:0000:0000:0000:0000", NULL, NULL); /* prefix alone */
    add_gid(t, 5, "not a gid", "RoCE v2", "eth0");
    add_gid(t, 6, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth;x");
    add_gid(t, 8, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"); /* behind a gap */
    dr_tree_file(t, "sys/class/net/eth0/mtu", "9000");
    dr_tree_file(t, "sys/class/net/eth0.7/mtu", "1500");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.gid_count, 4);
    assert_int_equal(port.roce1, 1);
    assert_int_equal(port.roce2, 3);
    assert_int_equal(port.routable, 2);
    assert_int_equal(port.gid[2].index, 3);
    assert_int_equal(port.netdev_count, 2);
    assert_string_equal(port.netdev[1].name, "eth0.7");
    assert_int_equal(port.netdev[1].mtu, 1500);
}

static void port_read__many_gids__all_counted_some_kept(void **state)
{
    struct dr_tree *t = *state;

    for (unsigned i = 0; i < DR_GIDS_MAX + 8; i++) {
        char gid[48], dev[16];
        (void)snprintf(gid, sizeof(gid), "2001:0db8:0000:0000:0000:0000:0000:%04x", i + 1);
        (void)snprintf(dev, sizeof(dev), "eth%u", i);
        add_gid(t, i, gid, "RoCE v2", dev);
    }
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.gid_count, DR_GIDS_MAX + 8);
    assert_int_equal(port.gid_kept, DR_GIDS_MAX);
    assert_int_equal(port.netdev_count, DR_NETDEVS_MAX);
}

static void port_read__no_gid__netdev_of_parent_or_card(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "link_layer", "Ethernet");
    dr_tree_file(t, "sys/class/infiniband/d0/parent", "dummy0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.netdev_count, 1);
    assert_string_equal(port.netdev[0].name, "dummy0");
    dr_tree_bytes(t, "sys/class/infiniband/d0/parent", "", 0);
    dr_tree_file(t, "sys/class/infiniband/d0/device/net/ens1/mtu", "1500");
    (void)snprintf(device.pci, sizeof(device.pci), "0000:5e:00.0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.netdev_count, 1);
    assert_string_equal(port.netdev[0].name, "ens1");
}

static void port_read__counters__classed_and_summed(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "hw_counters/out_of_sequence", "5");
    dr_tree_file(t, PORT "hw_counters/to_retransmits", "7");
    dr_tree_file(t, PORT "counters/port_xmit_discards", "3");
    dr_tree_file(t, PORT "counters/port_rcv_packets", "1000");
    dr_tree_file(t, PORT "hw_counters/retry_exceeded_err", "1");
    dr_tree_file(t, PORT "hw_counters/something_new", "99");
    dr_tree_file(t, PORT "counters/symbol_error", "-1");
    dr_tree_file(t, "sys/class/infiniband/d0/hw_counters/tcpRetransSegs", "11"); /* older place */
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(dr_port_count(&port, DR_COUNT_LOSS), 5 + 7 + 11);
    assert_int_equal(dr_port_count(&port, DR_COUNT_DISCARD), 3);
    assert_int_equal(dr_port_count(&port, DR_COUNT_PACKETS), 1000);
    assert_int_equal(dr_port_count(&port, DR_COUNT_GIVEN_UP), 1);
    assert_int_equal(dr_port_count(&port, DR_COUNT_LINK), 0);
    assert_int_equal(port.counter_count, 6);
}

static void port_count__overflow__saturates(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, PORT "hw_counters/out_of_sequence", "18446744073709551615");
    dr_tree_file(t, PORT "hw_counters/packet_seq_err", "2");
    dr_port_read(&t->root, &device, 1, &port);
    assert_true(dr_port_count(&port, DR_COUNT_LOSS) == UINT64_MAX);
}

static void port_read__ecn__mask_of_priorities(void **state)
{
    struct dr_tree *t = *state;

    add_gid(t, 0, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.netdev[0].ecn_np, -1);
    dr_tree_file(t, "sys/class/net/eth0/ecn/roce_np/enable/0", "0");
    dr_tree_file(t, "sys/class/net/eth0/ecn/roce_np/enable/3", "1");
    dr_tree_file(t, "sys/class/net/eth0/ecn/roce_rp/enable/3", "0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.netdev[0].ecn_np, 8);
    assert_int_equal(port.netdev[0].ecn_rp, 0);
}

static void port_read__configfs__mode_tos_and_switches(void **state)
{
    struct dr_tree *t = *state;

    dr_tree_file(t, "sys/kernel/config/rdma_cm/d0/ports/1/default_roce_mode", "IB/RoCE v1");
    dr_tree_file(t, "sys/kernel/config/rdma_cm/d0/ports/1/default_roce_tos", "106");
    dr_tree_file(t, "sys/kernel/config/irdma/d0/roce_dcqcn_enable", "0");
    dr_port_read(&t->root, &device, 1, &port);
    assert_string_equal(port.roce_mode, "IB/RoCE v1");
    assert_int_equal(port.tos, 106);
    assert_int_equal(port.congestion_control, DR_NO);
    dr_tree_file(t, "sys/kernel/config/irdma/d0/roce_timely_enable", "1");
    dr_tree_file(t, "sys/kernel/config/rdma_cm/d0/ports/1/default_roce_tos", "256");
    dr_port_read(&t->root, &device, 1, &port);
    assert_int_equal(port.congestion_control, DR_YES);
    assert_int_equal(port.tos, -1);
}

static void path_mtu__edges__as_the_kernel_rounds(void **state)
{
    (void)state;
    assert_int_equal(dr_path_mtu(9000), 4096);
    assert_int_equal(dr_path_mtu(4192), 4096);
    assert_int_equal(dr_path_mtu(4191), 2048);
    assert_int_equal(dr_path_mtu(1500), 1024);
    assert_int_equal(dr_path_mtu(352), 256);
    assert_int_equal(dr_path_mtu(351), 0);
    assert_int_equal(dr_path_mtu(UINT64_MAX), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(port_read__state__numbers_and_words, setup, teardown),
        cmocka_unit_test_setup_teardown(port_read__empty__unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(port_read__wrong_words__unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(port_read__gids__counted_by_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(
            port_read__many_gids__all_counted_some_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(
            port_read__no_gid__netdev_of_parent_or_card, setup, teardown),
        cmocka_unit_test_setup_teardown(port_read__counters__classed_and_summed, setup, teardown),
        cmocka_unit_test_setup_teardown(port_count__overflow__saturates, setup, teardown),
        cmocka_unit_test_setup_teardown(port_read__ecn__mask_of_priorities, setup, teardown),
        cmocka_unit_test_setup_teardown(
            port_read__configfs__mode_tos_and_switches, setup, teardown),
        cmocka_unit_test_setup_teardown(path_mtu__edges__as_the_kernel_rounds, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
