/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the checker says false for every planted anomaly and names it, and true for what is right.
 * Method: small histories by hand, one per anomaly; test_ts_graph.c does it at random.
 * Invariants: a history without a completed transaction is unknown, never true.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/history/hs_check.h"

/* ---- histories in text: "a5:1" appends 1 to key 5, "r5:1,2" reads, "r5:" reads nothing ---- */

static void add_mops(struct hs_history *h, const char *text, bool known)
{
    char copy[512], *save = NULL;
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *rest;
        const uint64_t key = strtoull(word + 1, &rest, 10);
        uint32_t list[64], count = 0;
        assert_int_equal(*rest, ':');
        while (*rest == ':' || *rest == ',') {
            if (rest[1] == '\0')
                break;
            list[count++] = (uint32_t)strtoul(rest + 1, &rest, 10);
        }
        if (word[0] == 'a')
            hs_event_append(h, key, list[0]);
        else
            hs_event_read(h, key, known ? list : NULL, known ? count : HS_UNREAD);
    }
}

static void event(
    struct hs_history *h, enum hs_type type, enum hs_f f, uint64_t process, const char *text)
{
    hs_event_begin(h, type, f, process, h->event_count + 1);
    add_mops(h, text, type == HS_OK);
    hs_event_end(h);
}

static void invoke(struct hs_history *h, uint64_t process, const char *text)
{
    event(h, HS_INVOKE, HS_F_TXN, process, text);
}

static void ok(struct hs_history *h, uint64_t process, const char *text)
{
    event(h, HS_OK, HS_F_TXN, process, text);
}

/* Invoke and completion at once. */
static void whole(struct hs_history *h, enum hs_type type, uint64_t process, const char *text)
{
    invoke(h, process, text);
    event(h, type, HS_F_TXN, process, text);
}

static void final_read(struct hs_history *h, const char *text)
{
    event(h, HS_INVOKE, HS_F_FINAL, 1000, text);
    event(h, HS_OK, HS_F_FINAL, 1000, text);
}

static struct hs_check_report report;

static void expect(struct hs_history *h, enum hs_anomaly anomaly)
{
    const enum hs_verdict verdict = hs_check_lists(h, NULL, &report);

    if (verdict != HS_FALSE || report.count[anomaly] == 0)
        print_error("expected %s, got %s:\n%s", hs_anomaly_name(anomaly), hs_verdict_name(verdict),
            report.text);
    assert_int_equal(verdict, HS_FALSE);
    assert_true(report.count[anomaly] > 0);
    assert_non_null(strstr(report.text, hs_anomaly_name(anomaly)));
    hs_history_delete(&h);
}

static void expect_true(struct hs_history *h)
{
    const enum hs_verdict verdict = hs_check_lists(h, NULL, &report);
    if (verdict != HS_TRUE)
        print_error("expected true, got %s:\n%s", hs_verdict_name(verdict), report.text);
    assert_int_equal(verdict, HS_TRUE);
    hs_history_delete(&h);
}

static void expect_unknown(struct hs_history *h)
{
    assert_int_equal(hs_check_lists(h, NULL, &report), HS_UNKNOWN);
    assert_true(report.text[0] != '\0');
    hs_history_delete(&h);
}

/* ---- clean ---- */

static void hs_check__empty_history__unknown(void **state)
{
    (void)state;
    expect_unknown(hs_history_new());
}

static void hs_check__serial_history__true(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "r5: a5:1");
    whole(h, HS_OK, 2, "r5:1 a5:2 a6:1 r5:1,2");
    whole(h, HS_FAIL, 1, "a5:3");
    whole(h, HS_INFO, 3, "a6:9");
    whole(h, HS_OK, 1, "r5:1,2 r6:1");
    final_read(h, "r5:1,2 r6:1,9");
    expect_true(h);
    assert_int_equal(report.info_observed, 1);
    assert_int_equal(report.keys_without_final, 0);
}

static void hs_check__concurrent_in_either_order__true(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1");
    invoke(h, 2, "a5:2");
    ok(h, 1, "a5:1");
    ok(h, 2, "a5:2");
    final_read(h, "r5:2,1");
    expect_true(h);
}

static void hs_check__unknown_outcome_without_trace__true(void **state)
{
    struct hs_history *h = hs_history_new();
    (void)state;

    invoke(h, 1, "a5:1 a6:1");
    whole(h, HS_OK, 2, "a5:2");
    final_read(h, "r5:2 r6:");
    expect_true(h);
}

/* ---- what single lists tell ---- */

static void hs_check__garbage__named(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    final_read(h, "r5:1,7");
    expect(h, HS_A_GARBAGE_READ);
}

static void hs_check__duplicate_element__named(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 1, "a5:2");
    final_read(h, "r5:1,2,1");
    expect(h, HS_A_DUPLICATE);
}

static void hs_check__not_a_prefix__incompatible_order(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1");
    invoke(h, 2, "a5:2");
    whole(h, HS_OK, 3, "r5:1");
    ok(h, 1, "a5:1");
    ok(h, 2, "a5:2");
    final_read(h, "r5:2,1");
    expect(h, HS_A_INCOMPATIBLE_ORDER);
}

static void hs_check__does_not_see_own_append__internal(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1 r5:");
    final_read(h, "r5:1");
    expect(h, HS_A_INTERNAL);
}

static void hs_check__two_reads_differ_in_one_transaction__internal(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "r5: r5:");
    whole(h, HS_OK, 2, "a5:1");
    ok(h, 1, "r5: r5:1");
    final_read(h, "r5:1");
    expect(h, HS_A_INTERNAL);
}

static void hs_check__sees_own_append_too_early__internal(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "r5:1 a5:1");
    final_read(h, "r5:1");
    expect(h, HS_A_INTERNAL);
}

static void hs_check__read_of_aborted__g1a(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_FAIL, 1, "a5:1");
    whole(h, HS_OK, 2, "r5:1");
    expect(h, HS_A_G1A);
}

static void hs_check__read_in_the_middle__g1b(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1 a5:2");
    whole(h, HS_OK, 2, "r5:1");
    ok(h, 1, "a5:1 a5:2");
    final_read(h, "r5:1,2");
    expect(h, HS_A_G1B);
}

static void hs_check__acknowledged_and_gone__lost_append(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 1, "a6:1");
    final_read(h, "r5:1 r6:");
    expect(h, HS_A_LOST_APPEND);
}

static void hs_check__acknowledged_read_and_gone__lost_append(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 1, "a5:2");
    whole(h, HS_OK, 1, "r5:1,2");
    final_read(h, "r5:1");
    expect(h, HS_A_LOST_APPEND);
}

static void hs_check__half_of_an_unknown__torn(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_INFO, 1, "a5:1 a6:1");
    final_read(h, "r5:1 r6:");
    expect(h, HS_A_TORN);
}

/* ---- cycles ---- */

static void hs_check__lost_update__named(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    invoke(h, 1, "r5:1 a5:2");
    invoke(h, 2, "r5:1 a5:3");
    ok(h, 1, "r5:1 a5:2");
    ok(h, 2, "r5:1 a5:3");
    final_read(h, "r5:1,3");
    expect(h, HS_A_LOST_UPDATE);
    assert_true(report.count[HS_A_LOST_APPEND] > 0);
}

static void hs_check__lost_update_of_the_empty_list__named(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "r5: a5:2");
    invoke(h, 2, "r5: a5:3");
    ok(h, 1, "r5: a5:2");
    ok(h, 2, "r5: a5:3");
    final_read(h, "r5:2,3");
    expect(h, HS_A_LOST_UPDATE);
}

static void hs_check__write_skew__g2_item(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "r5: r6: a5:1");
    invoke(h, 2, "r5: r6: a6:1");
    ok(h, 1, "r5: r6: a5:1");
    ok(h, 2, "r5: r6: a6:1");
    final_read(h, "r5:1 r6:1");
    expect(h, HS_A_G2_ITEM);
    assert_int_equal(report.cycles, 1);
}

static void hs_check__write_skew_that_nobody_read__g2_item(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "r6: a5:1");
    invoke(h, 2, "r5: a6:1");
    ok(h, 1, "r6: a5:1");
    ok(h, 2, "r5: a6:1");
    expect(h, HS_A_G2_ITEM);
}

static void hs_check__writes_in_opposite_orders__g0(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1 a6:1");
    invoke(h, 2, "a5:2 a6:2");
    ok(h, 1, "a5:1 a6:1");
    ok(h, 2, "a5:2 a6:2");
    final_read(h, "r5:1,2 r6:2,1");
    expect(h, HS_A_G0);
}

static void hs_check__circular_reads__g1c(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1 r6:1");
    invoke(h, 2, "a6:1 r5:1");
    ok(h, 1, "a5:1 r6:1");
    ok(h, 2, "a6:1 r5:1");
    final_read(h, "r5:1 r6:1");
    expect(h, HS_A_G1C);
}

static void hs_check__read_skew__g_single(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "r5: r6:1");
    whole(h, HS_OK, 2, "a5:1 a6:1");
    ok(h, 1, "r5: r6:1");
    final_read(h, "r5:1 r6:1");
    expect(h, HS_A_G_SINGLE);
}

static void hs_check__stale_read__realtime(void **state)
{
    struct hs_history *h = hs_history_new();
    const struct hs_check_options weak = {.serializable_only = true};

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "r5:");
    final_read(h, "r5:1");
    assert_int_equal(hs_check_lists(h, &weak, &report), HS_TRUE);
    expect(h, HS_A_G_SINGLE_REALTIME);
}

static void hs_check__stale_read_in_one_process__process(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 1, "r5:");
    final_read(h, "r5:1");
    expect(h, HS_A_G_SINGLE_PROCESS);
}

static void hs_check__stale_read_without_final__realtime(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "r5:");
    expect(h, HS_A_G_SINGLE_REALTIME);
}

static void hs_check__append_order_against_time__g0_realtime(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "a5:2");
    final_read(h, "r5:2,1");
    expect(h, HS_A_G0_REALTIME);
}

/* The frontier forgets transactions only when a later one stands for them. */
static void hs_check__time_over_several_completions__found(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 9, "a9:9");
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "a6:1");
    whole(h, HS_OK, 3, "a6:2");
    whole(h, HS_OK, 4, "r5:");
    ok(h, 9, "a9:9");
    final_read(h, "r5:1 r6:1,2 r9:9");
    expect(h, HS_A_G_SINGLE_REALTIME);
}

static void hs_check__cycle_of_unknown_outcome__found(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    invoke(h, 1, "a5:1 a6:1");
    whole(h, HS_OK, 2, "r5:1 r6:");
    final_read(h, "r5:1 r6:1");
    expect(h, HS_A_G_SINGLE);
}

static void hs_check__dot__written(void **state)
{
    struct hs_history *h = hs_history_new();
    char path[] = "/tmp/hs_check_XXXXXX", line[128] = "";
    const int fd = mkstemp(path);
    const struct hs_check_options options = {.dot_path = path};
    FILE *in;

    (void)state;
    assert_true(fd >= 0);
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "a5:2");
    final_read(h, "r5:2,1");
    assert_int_equal(hs_check_lists(h, &options, &report), HS_FALSE);
    in = fdopen(fd, "r");
    assert_non_null(in);
    assert_non_null(fgets(line, sizeof(line), in));
    assert_string_equal(line, "digraph \"G0-realtime\" {\n");
    (void)fclose(in);
    (void)remove(path);
    hs_history_delete(&h);
}

/* ---- not checkable ---- */

static void hs_check__element_twice__unknown(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_OK, 1, "a5:1");
    whole(h, HS_OK, 2, "a5:1");
    expect_unknown(h);
}

static void hs_check__process_goes_on_after_info__unknown(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    whole(h, HS_INFO, 1, "a5:1");
    whole(h, HS_OK, 1, "a5:2");
    expect_unknown(h);
}

static void hs_check__completion_without_invoke__unknown(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    ok(h, 1, "a5:1");
    expect_unknown(h);
}

static void hs_check__final_read_missing__unknown_when_needed(void **state)
{
    struct hs_history *h = hs_history_new();
    const struct hs_check_options options = {.need_final = true};

    (void)state;
    whole(h, HS_OK, 1, "a5:1 a6:1");
    final_read(h, "r5:1");
    assert_int_equal(hs_check_lists(h, &options, &report), HS_UNKNOWN);
    expect_true(h);
}

/* ---- bank ---- */

static void snapshot(struct hs_history *h, int64_t a, int64_t b, int64_t c)
{
    hs_event_begin(h, HS_INVOKE, HS_F_BANK_READ, 1, h->event_count);
    hs_event_end(h);
    hs_event_begin(h, HS_OK, HS_F_BANK_READ, 1, h->event_count);
    hs_event_balance(h, 0, a);
    hs_event_balance(h, 1, b);
    hs_event_balance(h, 2, c);
    hs_event_end(h);
}

static void hs_check_bank__totals__judged(void **state)
{
    static const struct hs_bank_options options = {.accounts = 3, .total = 30};
    struct hs_history *h = hs_history_new();

    (void)state;
    assert_int_equal(hs_check_bank(h, &options, &report), HS_UNKNOWN);
    snapshot(h, 10, 10, 10);
    snapshot(h, 0, 20, 10);
    assert_int_equal(hs_check_bank(h, &options, &report), HS_TRUE);
    snapshot(h, 1, 20, 10);
    assert_int_equal(hs_check_bank(h, &options, &report), HS_FALSE);
    assert_int_equal(report.count[HS_A_BANK_TOTAL], 1);
    hs_history_delete(&h);
}

static void hs_check_bank__negative_balance__judged_as_allowed(void **state)
{
    struct hs_bank_options options = {.accounts = 3, .total = 30};
    struct hs_history *h = hs_history_new();

    (void)state;
    snapshot(h, -5, 25, 10);
    assert_int_equal(hs_check_bank(h, &options, &report), HS_FALSE);
    assert_int_equal(report.count[HS_A_BANK_NEGATIVE], 1);
    options.negative_allowed = true;
    assert_int_equal(hs_check_bank(h, &options, &report), HS_TRUE);
    hs_history_delete(&h);
}

static void hs_check_bank__account_missing__false(void **state)
{
    static const struct hs_bank_options options = {.accounts = 4, .total = 30};
    struct hs_history *h = hs_history_new();

    (void)state;
    snapshot(h, 10, 10, 10);
    assert_int_equal(hs_check_bank(h, &options, &report), HS_FALSE);
    assert_int_equal(report.count[HS_A_BANK_ACCOUNTS], 1);
    hs_history_delete(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hs_check__empty_history__unknown),
        cmocka_unit_test(hs_check__serial_history__true),
        cmocka_unit_test(hs_check__concurrent_in_either_order__true),
        cmocka_unit_test(hs_check__unknown_outcome_without_trace__true),
        cmocka_unit_test(hs_check__garbage__named),
        cmocka_unit_test(hs_check__duplicate_element__named),
        cmocka_unit_test(hs_check__not_a_prefix__incompatible_order),
        cmocka_unit_test(hs_check__does_not_see_own_append__internal),
        cmocka_unit_test(hs_check__two_reads_differ_in_one_transaction__internal),
        cmocka_unit_test(hs_check__sees_own_append_too_early__internal),
        cmocka_unit_test(hs_check__read_of_aborted__g1a),
        cmocka_unit_test(hs_check__read_in_the_middle__g1b),
        cmocka_unit_test(hs_check__acknowledged_and_gone__lost_append),
        cmocka_unit_test(hs_check__acknowledged_read_and_gone__lost_append),
        cmocka_unit_test(hs_check__half_of_an_unknown__torn),
        cmocka_unit_test(hs_check__lost_update__named),
        cmocka_unit_test(hs_check__lost_update_of_the_empty_list__named),
        cmocka_unit_test(hs_check__write_skew__g2_item),
        cmocka_unit_test(hs_check__write_skew_that_nobody_read__g2_item),
        cmocka_unit_test(hs_check__writes_in_opposite_orders__g0),
        cmocka_unit_test(hs_check__circular_reads__g1c),
        cmocka_unit_test(hs_check__read_skew__g_single),
        cmocka_unit_test(hs_check__stale_read__realtime),
        cmocka_unit_test(hs_check__stale_read_in_one_process__process),
        cmocka_unit_test(hs_check__stale_read_without_final__realtime),
        cmocka_unit_test(hs_check__append_order_against_time__g0_realtime),
        cmocka_unit_test(hs_check__time_over_several_completions__found),
        cmocka_unit_test(hs_check__cycle_of_unknown_outcome__found),
        cmocka_unit_test(hs_check__dot__written),
        cmocka_unit_test(hs_check__element_twice__unknown),
        cmocka_unit_test(hs_check__process_goes_on_after_info__unknown),
        cmocka_unit_test(hs_check__completion_without_invoke__unknown),
        cmocka_unit_test(hs_check__final_read_missing__unknown_when_needed),
        cmocka_unit_test(hs_check_bank__totals__judged),
        cmocka_unit_test(hs_check_bank__negative_balance__judged_as_allowed),
        cmocka_unit_test(hs_check_bank__account_missing__false),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
