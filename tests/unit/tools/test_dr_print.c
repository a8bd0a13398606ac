/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the report has stable keys and every fact that was read; text for people is wrapped and
 * complete.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "tests/tools/dr_facts.h"

static struct dr_sample s;

static int setup(void **state)
{
    (void)state;
    dr_sample_make(&s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return 0;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static void json__facts_and_findings__stable_keys(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    s.device[0].atomics = DR_NO;
    s.device[0].port[0].gid_kept = 1;
    (void)snprintf(s.device[0].port[0].gid[0].type, 16, "RoCE v2");
    dr_sample_counter(&s, "out_of_sequence", DR_COUNT_LOSS, UINT64_MAX);
    s.facts.owner_count = 1;
    s.facts.owner[0] = (struct dr_owner){.pid = 7, .name = "cairn"};
    s.facts.malformed_count = DR_MALFORMED_MAX + 1;
    dr_rules_run(&s.facts, &s.report);
    json_t *root = dr_json(&s.facts, &s.report);
    assert_string_equal(text_of(root, "worst"), "warning");
    const json_t *finding = json_array_get(json_object_get(root, "findings"), 0);
    assert_string_equal(text_of(finding, "id"), "packet-loss");
    assert_string_equal(text_of(finding, "severity"), "warning");
    assert_string_equal(text_of(finding, "object"), "mlx5_0/1");
    assert_string_not_equal(text_of(finding, "remedy"), "");
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    assert_string_equal(text_of(device, "transport"), "RoCE");
    assert_true(json_is_false(json_object_get(device, "atomics")));
    const json_t *port = json_array_get(json_object_get(device, "ports"), 0);
    assert_string_equal(text_of(port, "state"), "ACTIVE");
    assert_true(json_is_null(json_object_get(port, "rdma_cm_tos")));
    assert_string_equal(text_of(json_object_get(port, "counters"), "out_of_sequence"),
        "18446744073709551615"); /* above what JSON numbers here hold */
    const json_t *pool = json_array_get(json_object_get(root, "pools"), 0);
    assert_string_equal(text_of(pool, "kind"), "devdax");
    assert_string_equal(text_of(pool, "persistence"), "auto");
    assert_string_equal(text_of(json_object_get(root, "host"), "memlock"), "unlimited");
    assert_int_equal(json_array_size(json_object_get(root, "processes")), 1);
    assert_int_equal(json_array_size(json_object_get(root, "malformed")), DR_MALFORMED_MAX);
    char *dump = json_dumps(root, 0);
    assert_non_null(dump);
    free(dump);
    json_decref(root);
}

static void json__nothing__still_all_keys(void **state)
{
    static const char *const keys[] = {
        "worst", "live", "findings", "devices", "host", "pools", "processes", "malformed"};

    (void)state;
    memset(&s, 0, sizeof(s));
    json_t *root = dr_json(&s.facts, &s.report);
    for (size_t i = 0; i < CN_ARRAY_SIZE(keys); i++)
        assert_non_null(json_object_get(root, keys[i]));
    assert_string_equal(text_of(root, "worst"), "ok");
    json_decref(root);
}

/* What dr_print() writes to stdout. */
static char *print(bool all)
{
    static char text[65536];
    FILE *file = tmpfile();

    assert_non_null(file);
    (void)fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    dr_print(&s.facts, &s.report, all);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void print__healthy__says_so(void **state)
{
    (void)state;
    dr_rules_run(&s.facts, &s.report);
    char *text = print(false);
    assert_non_null(strstr(text, "cairn doctor: nothing is wrong"));
    assert_null(strstr(text, "port-usable"));
    assert_non_null(strstr(text, "mlx5_0: RoCE, driver mlx5_ib"));
    assert_non_null(strstr(text, "eth0: up, MTU 9000 (path MTU 4096)"));
    assert_non_null(strstr(print(true), "port-usable"));
}

static void print__findings__counted_and_wrapped(void **state)
{
    (void)state;
    s.device[0].port[0].state = DR_STATE_DOWN;
    s.device[0].atomics = DR_NO;
    dr_rules_run(&s.facts, &s.report);
    char *text = print(false);
    assert_non_null(strstr(text, "cairn doctor: 1 error, 1 warning\n"));
    assert_non_null(strstr(text, "\nERROR: mlx5_0/1 (port-down)\n"));
    assert_non_null(strstr(text, "    mend: ip link set dev eth0 up"));
    assert_true(strstr(text, "ERROR: ") < strstr(text, "WARNING: "));
    char *findings_end = strstr(text, "\nDevices:");
    assert_non_null(findings_end);
    *findings_end = '\0';
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        assert_true(strcspn(line, "\n") <= 97);
    }
}

static void print__pools_and_owners__listed(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    s.facts.owner_count = 1;
    s.facts.owner[0] = (struct dr_owner){.pid = 7, .name = "cairn", .count = {[DR_OBJECT_QP] = 2}};
    s.report.lost = 3;
    char *text = print(false);
    assert_non_null(strstr(text, "node 1: /dev/dax0.0: devdax"));
    assert_non_null(strstr(text, "7 cairn: 2 qp"));
    assert_non_null(strstr(text, "3 findings more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(json__facts_and_findings__stable_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(json__nothing__still_all_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(print__healthy__says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(print__findings__counted_and_wrapped, setup, teardown),
        cmocka_unit_test_setup_teardown(print__pools_and_owners__listed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
