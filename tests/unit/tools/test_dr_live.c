/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the kernel's list of RDMA objects is counted by process; what is no such list is refused;
 * on a host without devices nothing is asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/dr_facts.h"

static struct dr_facts facts;

static int setup(void **state)
{
    (void)state;
    memset(&facts, 0, sizeof(facts));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return 0;
}

static void parse__objects_of_processes__counted(void **state)
{
    (void)state;
    assert_true(dr_live_parse(&facts, DR_OBJECT_QP,
        "[{\"ifindex\":0,\"ifname\":\"rxe0\",\"lqpn\":1,\"type\":\"GSI\",\"comm\":\"[ib_core]\"},"
        "{\"ifname\":\"rxe0\",\"lqpn\":17,\"type\":\"RC\",\"pid\":7,\"comm\":\"cairn\"},"
        "{\"ifname\":\"rxe0\",\"lqpn\":18,\"type\":\"RC\",\"pid\":7,\"comm\":\"cairn\"},"
        "{\"ifname\":\"rxe0\",\"lqpn\":19,\"type\":\"RC\",\"pid\":9,\"comm\":\"other\"}]"));
    assert_true(dr_live_parse(&facts, DR_OBJECT_MR,
        "[{\"mrn\":1,\"mrlen\":4096,\"pid\":7,\"comm\":\"cairn\"},"
        "{\"mrn\":2,\"mrlen\":8192,\"pid\":7,\"comm\":\"cairn\"}]"));
    assert_int_equal(facts.owner_count, 2);
    assert_int_equal(facts.owner[0].pid, 7);
    assert_int_equal(facts.owner[0].count[DR_OBJECT_QP], 2);
    assert_int_equal(facts.owner[0].count[DR_OBJECT_MR], 2);
    assert_int_equal(facts.owner[0].bytes, 12288);
    assert_int_equal(facts.owner[1].count[DR_OBJECT_QP], 1);
}

static void parse__empty__nothing(void **state)
{
    (void)state;
    assert_true(dr_live_parse(&facts, DR_OBJECT_QP, ""));
    assert_true(dr_live_parse(&facts, DR_OBJECT_QP, " \n"));
    assert_true(dr_live_parse(&facts, DR_OBJECT_QP, "[]"));
    assert_int_equal(facts.owner_count, 0);
}

static void parse__no_list__refused(void **state)
{
    static const char *const bad[] = {"{}", "[", "null", "error: no netlink", "[1,", "\xff"};

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++)
        assert_false(dr_live_parse(&facts, DR_OBJECT_QP, bad[i]));
}

static void parse__odd_members__skipped(void **state)
{
    (void)state;
    assert_true(dr_live_parse(&facts, DR_OBJECT_MR,
        "[1, null, {}, {\"pid\": -5}, {\"pid\": \"7\"}, {\"pid\": 3, \"comm\": 4, \"mrlen\": -1},"
        "{\"pid\": 4, \"comm\": \"\\u001b[31m a name that is much longer than a comm can be\"}]"));
    assert_int_equal(facts.owner_count, 2);
    assert_int_equal(facts.owner[0].bytes, 0);
    assert_int_equal(strlen(facts.owner[1].name), 31);
    assert_int_equal(facts.owner[1].name[0], '?');
}

static void parse__very_many_processes__bounded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DR_OWNERS_MAX + 5; i++) {
        char json[64];
        (void)snprintf(json, sizeof(json), "[{\"pid\": %u, \"comm\": \"x\"}]", i + 1);
        assert_true(dr_live_parse(&facts, DR_OBJECT_QP, json));
    }
    assert_int_equal(facts.owner_count, DR_OWNERS_MAX);
}

static void live_read__no_device__nothing_asked(void **state)
{
    (void)state;
    dr_live_read(&facts);
    assert_int_equal(facts.owners_known, DR_UNKNOWN);
}

static void live_read__a_device_that_verbs_do_not_know__not_opened(void **state)
{
    static struct dr_sample s;

    (void)state;
    dr_sample_make(&s);
    (void)snprintf(s.device[0].name, sizeof(s.device[0].name), "no_such_device");
    dr_live_read(&s.facts);
    assert_int_equal(s.device[0].opened, DR_NO);
    assert_string_not_equal(s.device[0].open_error, "");
    assert_int_not_equal(s.facts.owners_known, DR_UNKNOWN);
    if (s.facts.owners_known == DR_NO)
        assert_string_not_equal(s.facts.owners_error, "");
}

static void live_read__no_program_rdma__said(void **state)
{
    static struct dr_sample s;
    char path[4096];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s", getenv("PATH"));
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    dr_sample_make(&s);
    dr_live_read(&s.facts);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_int_equal(s.facts.owners_known, DR_NO);
    assert_non_null(strstr(s.facts.owners_error, "iproute2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parse__objects_of_processes__counted, setup, teardown),
        cmocka_unit_test_setup_teardown(parse__empty__nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(parse__no_list__refused, setup, teardown),
        cmocka_unit_test_setup_teardown(parse__odd_members__skipped, setup, teardown),
        cmocka_unit_test_setup_teardown(parse__very_many_processes__bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(live_read__no_device__nothing_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(
            live_read__a_device_that_verbs_do_not_know__not_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(live_read__no_program_rdma__said, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
