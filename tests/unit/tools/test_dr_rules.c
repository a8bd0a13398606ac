/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each rule on devices and ports speaks when its fact is spoiled, and is silent on a healthy
 * host; findings are sorted, bounded, and no more than notes where RDMA is not used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/dr_facts.h"

static struct dr_sample s;
static struct dr_port *port;

static int setup(void **state)
{
    (void)state;
    dr_sample_make(&s);
    port = &s.device[0].port[0];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return 0;
}

static void make_infiniband(void)
{
    s.device[0].transport = DR_INFINIBAND;
    port->link = DR_LINK_INFINIBAND;
    port->lid = 3;
    port->sm_lid = 1;
    port->netdev_count = 0;
    port->gid_count = 1;
    port->roce2 = port->routable = 0;
}

static void rules__healthy_roce__only_that_it_is_usable(void **state)
{
    (void)state;
    assert_int_equal(dr_sample_count(&s, "port-usable"), 1);
    assert_int_equal(s.report.count, 1);
    assert_int_equal(dr_report_worst(&s.report), DR_OK);
}

static void rules__healthy_infiniband__only_that_it_is_usable(void **state)
{
    (void)state;
    make_infiniband();
    assert_int_equal(dr_sample_count(&s, "port-usable"), 1);
    assert_int_equal(s.report.count, 1);
}

static void rules__nothing_known__silent(void **state)
{
    (void)state;
    memset(&s.device[0], 0, sizeof(s.device[0]));
    memset(&s.facts.host, 0, sizeof(s.facts.host));
    s.facts.host.uverbs = true;
    s.facts.live = false;
    s.facts.owners_known = DR_UNKNOWN;
    s.device[0].transport = DR_ROCE;
    s.device[0].port_count = 1;
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, 0);
}

static void device_opens__error__said(void **state)
{
    (void)state;
    s.device[0].opened = DR_NO;
    (void)snprintf(s.device[0].open_error, sizeof(s.device[0].open_error), "Permission denied");
    assert_int_equal(dr_sample_severity(&s, "device-not-opened"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "device-not-opened")->text, "Permission denied"));
    assert_null(dr_sample_find(&s, "port-usable"));
    s.device[0].opened = DR_UNKNOWN;
    assert_int_equal(dr_sample_count(&s, "device-not-opened"), 0);
}

static void transport__other__error_unless_another_device(void **state)
{
    (void)state;
    s.device[0].transport = DR_OTHER;
    assert_int_equal(dr_sample_severity(&s, "transport-unsupported"), DR_ERROR);
    s.facts.device_count = 2;
    assert_int_equal(dr_sample_severity(&s, "transport-unsupported"), DR_NOTE);
    assert_int_equal(s.report.count, 2);
}

static void atomics__none__warning_but_note_on_iwarp(void **state)
{
    (void)state;
    s.device[0].atomics = DR_NO;
    assert_int_equal(dr_sample_severity(&s, "no-atomics"), DR_WARNING);
    s.device[0].transport = DR_IWARP;
    assert_int_equal(dr_sample_severity(&s, "no-atomics"), DR_NOTE);
    s.device[0].atomics = DR_UNKNOWN;
    assert_int_equal(dr_sample_count(&s, "no-atomics"), 0);
}

static void pcie__narrow_or_slow__by_what_the_ports_need(void **state)
{
    (void)state;
    s.device[0].width = 8; /* 8 GT/s x8: 63 Gb/s for 100 */
    assert_int_equal(dr_sample_severity(&s, "pcie-link"), DR_WARNING);
    s.device[0].speed = s.device[0].speed_max = 160; /* 126 Gb/s: enough */
    assert_int_equal(dr_sample_severity(&s, "pcie-link"), DR_NOTE);
    s.device[0].width = 16;
    s.device[0].speed = 80;
    assert_int_equal(dr_sample_severity(&s, "pcie-link"), DR_NOTE);
    s.device[0].speed = 50; /* 64 Gb/s after 8b/10b */
    assert_int_equal(dr_sample_severity(&s, "pcie-link"), DR_WARNING);
    assert_non_null(strstr(dr_sample_find(&s, "pcie-link")->why, "64000 Mb/s"));
    s.device[0].speed = 0; /* not shown */
    assert_int_equal(dr_sample_count(&s, "pcie-link"), 0);
}

static void port_down__the_only_one__error(void **state)
{
    (void)state;
    port->state = DR_STATE_DOWN;
    port->phys = DR_PHYS_DISABLED;
    assert_int_equal(dr_sample_severity(&s, "port-down"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "port-down")->remedy, "ip link set dev eth0 up"));
    s.facts.device_count = 2;
    assert_int_equal(dr_sample_severity(&s, "port-down"), DR_NOTE);
    port->state = 0;
    assert_int_equal(dr_sample_count(&s, "port-down"), 0);
}

static void subnet_manager__link_up_and_port_not__error(void **state)
{
    (void)state;
    make_infiniband();
    port->state = DR_STATE_INIT;
    assert_int_equal(dr_sample_severity(&s, "no-subnet-manager"), DR_ERROR);
    assert_int_equal(dr_sample_count(&s, "port-down"), 0); /* said once */
    port->state = DR_STATE_ACTIVE;
    port->sm_lid = 0;
    assert_int_equal(dr_sample_severity(&s, "no-subnet-manager"), DR_ERROR);
    port->sm_known = false;
    assert_int_equal(dr_sample_count(&s, "no-subnet-manager"), 0);
    port->state = DR_STATE_DOWN;
    port->phys = DR_PHYS_POLLING;
    port->sm_known = true;
    assert_int_equal(dr_sample_count(&s, "no-subnet-manager"), 0);
    assert_int_equal(dr_sample_severity(&s, "port-down"), DR_ERROR);
}

static void subnet_manager__roce__none_is_needed(void **state)
{
    (void)state;
    port->state = DR_STATE_INIT;
    port->sm_lid = 0;
    assert_int_equal(dr_sample_count(&s, "no-subnet-manager"), 0);
}

static void netdev__none_or_down__said(void **state)
{
    (void)state;
    port->netdev_count = 0;
    assert_int_equal(dr_sample_severity(&s, "netdev"), DR_ERROR);
    port->netdev_count = 1;
    (void)snprintf(port->netdev[0].operstate, sizeof(port->netdev[0].operstate), "down");
    assert_int_equal(dr_sample_severity(&s, "netdev"), DR_WARNING);
    (void)snprintf(port->netdev[0].operstate, sizeof(port->netdev[0].operstate), "unknown");
    assert_int_equal(dr_sample_count(&s, "netdev"), 0); /* what dummy and lo say */
}

static void gid__none_v1_or_link_local__said(void **state)
{
    (void)state;
    port->gid_count = port->roce2 = port->routable = 0;
    assert_int_equal(dr_sample_severity(&s, "gid"), DR_ERROR);
    port->gid_count = port->roce1 = 2;
    assert_int_equal(dr_sample_severity(&s, "gid"), DR_WARNING);
    assert_non_null(strstr(dr_sample_find(&s, "gid")->text, "v1"));
    port->roce2 = 1;
    assert_int_equal(dr_sample_severity(&s, "gid"), DR_WARNING);
    assert_non_null(strstr(dr_sample_find(&s, "gid")->text, "link-local"));
    s.device[0].transport = DR_IWARP;
    s.device[0].atomics = DR_NO;
    assert_int_equal(dr_sample_count(&s, "gid"), 0);
}

static void roce_mode__v1_where_v2_is__warning(void **state)
{
    (void)state;
    (void)snprintf(port->roce_mode, sizeof(port->roce_mode), "IB/RoCE v1");
    assert_int_equal(dr_sample_severity(&s, "roce-mode"), DR_WARNING);
    (void)snprintf(port->roce_mode, sizeof(port->roce_mode), "RoCE v2");
    assert_int_equal(dr_sample_count(&s, "roce-mode"), 0);
}

static void mtu_mismatch__two_netdevs__warning(void **state)
{
    (void)state;
    port->netdev_count = 2;
    port->netdev[1] = port->netdev[0];
    (void)snprintf(port->netdev[1].name, sizeof(port->netdev[1].name), "eth0.7");
    port->netdev[1].mtu = 4200; /* another MTU, the same path MTU */
    assert_int_equal(dr_sample_count(&s, "mtu-mismatch"), 0);
    port->netdev[1].mtu = 1500;
    assert_int_equal(dr_sample_severity(&s, "mtu-mismatch"), DR_WARNING);
    assert_non_null(
        strstr(dr_sample_find(&s, "mtu-mismatch")->remedy, "ip link set dev eth0.7 mtu 9000"));
    port->netdev[1].mtu = 0; /* not known */
    assert_int_equal(dr_sample_count(&s, "mtu-mismatch"), 0);
}

static void mtu_mismatch__port_above_netdev__warning(void **state)
{
    (void)state;
    port->netdev[0].mtu = 1500;
    port->mtu_active = 4096;
    assert_int_equal(dr_sample_severity(&s, "mtu-mismatch"), DR_WARNING);
    port->mtu_active = 1024;
    assert_int_equal(dr_sample_count(&s, "mtu-mismatch"), 0);
    port->mtu_active = 512; /* below is only slow */
    assert_int_equal(dr_sample_count(&s, "mtu-mismatch"), 0);
}

static void mtu_small__by_path_mtu__note_or_warning(void **state)
{
    (void)state;
    port->netdev[0].mtu = 1500;
    assert_int_equal(dr_sample_severity(&s, "mtu-small"), DR_NOTE);
    port->netdev[0].mtu = 1000;
    assert_int_equal(dr_sample_severity(&s, "mtu-small"), DR_WARNING);
    port->netdev[0].mtu = 4200;
    assert_int_equal(dr_sample_count(&s, "mtu-small"), 0);
}

/* Each class of counters: silent at zero; what it is above one in a million packets, and below. */
static void counters__each_class__by_share_of_packets(void **state)
{
    static const struct {
        enum dr_counter_class class;
        const char *id;
        enum dr_severity much;
    } expect[] = {
        {DR_COUNT_GIVEN_UP, "retries-used-up", DR_WARNING},
        {DR_COUNT_LOSS, "packet-loss", DR_WARNING},
        {DR_COUNT_DISCARD, "discards", DR_WARNING},
        {DR_COUNT_LINK, "link-errors", DR_WARNING},
        {DR_COUNT_RNR, "receiver-not-ready", DR_NOTE},
        {DR_COUNT_ACCESS, "refused-accesses", DR_NOTE},
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(expect); i++) {
        dr_sample_make(&s);
        dr_sample_counter(&s, "some_counter", expect[i].class, 0);
        assert_int_equal(dr_sample_count(&s, expect[i].id), 0);
        s.device[0].port[0].counter[0].value = 5;
        assert_int_equal(dr_sample_severity(&s, expect[i].id), expect[i].much);
        assert_non_null(strstr(dr_sample_find(&s, expect[i].id)->text, "some_counter 5"));
        dr_sample_counter(&s, "packets", DR_COUNT_PACKETS, 5000000);
        assert_int_equal(dr_sample_severity(&s, expect[i].id), DR_NOTE);
        s.device[0].port[0].counter[1].value = 4000000;
        assert_int_equal(dr_sample_severity(&s, expect[i].id), expect[i].much);
        s.device[0].software = true;
        assert_int_equal(dr_sample_severity(&s, expect[i].id), DR_NOTE);
    }
}

static void counters__link_downed_and_ecn__no_finding(void **state)
{
    (void)state;
    dr_sample_counter(&s, "link_downed", DR_COUNT_DOWNED, 3);
    dr_sample_counter(&s, "rp_cnp_handled", DR_COUNT_ECN, 3);
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, 1);
}

static void counters__a_long_list__cut_not_overrun(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DR_COUNTERS_MAX; i++)
        dr_sample_counter(&s, "a_counter_with_a_long_name_of_many_letters", DR_COUNT_LOSS, 1);
    assert_int_equal(dr_sample_count(&s, "packet-loss"), 1);
    assert_true(strlen(dr_sample_find(&s, "packet-loss")->text) < 400);
}

static void congestion__off_or_half__said(void **state)
{
    (void)state;
    port->netdev[0].ecn_rp = 0;
    assert_int_equal(dr_sample_severity(&s, "congestion-control"), DR_WARNING);
    assert_non_null(strstr(dr_sample_find(&s, "congestion-control")->text, "half on"));
    port->netdev[0].ecn_np = 0;
    assert_int_equal(dr_sample_severity(&s, "congestion-control"), DR_NOTE);
    dr_sample_counter(&s, "port_xmit_discards", DR_COUNT_DISCARD, 1);
    assert_int_equal(dr_sample_severity(&s, "congestion-control"), DR_WARNING);
}

static void congestion__not_shown__note_unless_otherwise_known(void **state)
{
    (void)state;
    port->netdev[0].ecn_np = port->netdev[0].ecn_rp = -1;
    assert_int_equal(dr_sample_severity(&s, "congestion-control"), DR_NOTE);
    port->congestion_control = DR_NO;
    assert_int_equal(dr_sample_severity(&s, "congestion-control"), DR_NOTE);
    assert_non_null(
        strstr(dr_sample_find(&s, "congestion-control")->remedy, "config/irdma/mlx5_0"));
    port->congestion_control = DR_YES;
    assert_int_equal(dr_sample_count(&s, "congestion-control"), 0);
    port->congestion_control = DR_UNKNOWN;
    s.device[0].param_count = 1;
    assert_int_equal(dr_sample_count(&s, "congestion-control"), 0);
    s.device[0].param_count = 0;
    s.device[0].software = true;
    assert_int_equal(dr_sample_count(&s, "congestion-control"), 0);
}

static void rules__fabric_emu__notes_at_most(void **state)
{
    (void)state;
    (void)snprintf(s.config.fabric, sizeof(s.config.fabric), "emu");
    s.facts.config = &s.config;
    port->state = DR_STATE_DOWN;
    assert_int_equal(dr_sample_severity(&s, "port-down"), DR_NOTE);
    s.facts.device_count = 0;
    assert_int_equal(dr_sample_severity(&s, "no-rdma-device"), DR_NOTE);
    (void)snprintf(s.config.fabric, sizeof(s.config.fabric), "rpma");
    assert_int_equal(dr_sample_severity(&s, "no-rdma-device"), DR_ERROR);
}

static void rules__several_findings__worst_first_then_by_rule(void **state)
{
    (void)state;
    port->netdev[0].mtu = 1500;        /* note */
    s.device[0].atomics = DR_NO;       /* warning */
    port->gid_count = port->roce2 = 0; /* error */
    s.device[0].width = 1;             /* warning, before atomics */
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, 5);
    static const char *const order[] = {
        "gid", "pcie-link", "no-atomics", "mtu-small", "port-usable"};
    for (size_t i = 0; i < CN_ARRAY_SIZE(order); i++)
        assert_string_equal(s.report.finding[i].id, order[i]);
    assert_int_equal(dr_report_worst(&s.report), DR_ERROR);
    assert_string_equal(s.report.finding[0].object, "mlx5_0/1");
    assert_string_equal(s.report.finding[1].object, "mlx5_0");
}

static void rules__very_many__bounded(void **state)
{
    static struct dr_device many[DR_DEVICES_MAX];

    (void)state;
    for (unsigned i = 0; i < DR_DEVICES_MAX; i++) {
        many[i] = s.device[0];
        many[i].port_count = DR_PORTS_MAX;
        for (unsigned k = 0; k < DR_PORTS_MAX; k++) {
            many[i].port[k] = *port;
            many[i].port[k].netdev[0].mtu = 1500;
        }
    }
    s.facts.device = many;
    s.facts.device_count = DR_DEVICES_MAX;
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, DR_FINDINGS_MAX);
    assert_int_equal(s.report.lost, DR_DEVICES_MAX * DR_PORTS_MAX * 2 - DR_FINDINGS_MAX);
}

static void rules__every_finding__says_why_and_what_mends_it(void **state)
{
    (void)state;
    port->netdev[0].mtu = 1500;
    port->netdev[0].ecn_np = 0;
    s.device[0].atomics = DR_NO;
    s.device[0].width = 1;
    for (int class = DR_COUNT_GIVEN_UP; class <= DR_COUNT_LINK; class ++)
        dr_sample_counter(&s, "c", (enum dr_counter_class) class, 1);
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, 11);
    for (unsigned i = 0; i + 1 < s.report.count; i++) { /* the last is the good one */
        assert_string_not_equal(s.report.finding[i].text, "");
        assert_string_not_equal(s.report.finding[i].why, "");
        assert_string_not_equal(s.report.finding[i].remedy, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            rules__healthy_roce__only_that_it_is_usable, setup, teardown),
        cmocka_unit_test_setup_teardown(
            rules__healthy_infiniband__only_that_it_is_usable, setup, teardown),
        cmocka_unit_test_setup_teardown(rules__nothing_known__silent, setup, teardown),
        cmocka_unit_test_setup_teardown(device_opens__error__said, setup, teardown),
        cmocka_unit_test_setup_teardown(
            transport__other__error_unless_another_device, setup, teardown),
        cmocka_unit_test_setup_teardown(atomics__none__warning_but_note_on_iwarp, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pcie__narrow_or_slow__by_what_the_ports_need, setup, teardown),
        cmocka_unit_test_setup_teardown(port_down__the_only_one__error, setup, teardown),
        cmocka_unit_test_setup_teardown(
            subnet_manager__link_up_and_port_not__error, setup, teardown),
        cmocka_unit_test_setup_teardown(subnet_manager__roce__none_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(netdev__none_or_down__said, setup, teardown),
        cmocka_unit_test_setup_teardown(gid__none_v1_or_link_local__said, setup, teardown),
        cmocka_unit_test_setup_teardown(roce_mode__v1_where_v2_is__warning, setup, teardown),
        cmocka_unit_test_setup_teardown(mtu_mismatch__two_netdevs__warning, setup, teardown),
        cmocka_unit_test_setup_teardown(mtu_mismatch__port_above_netdev__warning, setup, teardown),
        cmocka_unit_test_setup_teardown(mtu_small__by_path_mtu__note_or_warning, setup, teardown),
        cmocka_unit_test_setup_teardown(counters__each_class__by_share_of_packets, setup, teardown),
        cmocka_unit_test_setup_teardown(counters__link_downed_and_ecn__no_finding, setup, teardown),
        cmocka_unit_test_setup_teardown(counters__a_long_list__cut_not_overrun, setup, teardown),
        cmocka_unit_test_setup_teardown(congestion__off_or_half__said, setup, teardown),
        cmocka_unit_test_setup_teardown(
            congestion__not_shown__note_unless_otherwise_known, setup, teardown),
        cmocka_unit_test_setup_teardown(rules__fabric_emu__notes_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(
            rules__several_findings__worst_first_then_by_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(rules__very_many__bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(
            rules__every_finding__says_why_and_what_mends_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
