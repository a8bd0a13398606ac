/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a report sums what its parts did, in an order that matters only for the unseed; nothing but
 * a good run passes; its JSON has the keys that are promised.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "tools/crash/tell/cr_report.h"

/* A part that is well. */
static struct cr_report *good(void)
{
    struct cr_report *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    cr_report_init(r);
    r->seeds = 3;
    r->txns = 30;
    r->ok = 28;
    r->unseed = 77;
    return r;
}

static uint32_t verdict(struct cr_report *r)
{
    cr_report_close(r);
    uint32_t v = r->verdict;
    free(r);
    return v;
}

static void close__good_run__pass(void **state)
{
    (void)state;
    assert_int_equal(CR_PASS, verdict(good()));
}

static void init__never_closed__inconclusive(void **state)
{
    (void)state;
    struct cr_report *r = good();

    assert_int_equal(CR_INCONCLUSIVE, r->verdict);
    free(r);
}

static void close__nothing_done__inconclusive(void **state)
{
    (void)state;
    struct cr_report *r = good();

    r->seeds = 0;
    cr_report_close(r);
    assert_int_equal(CR_INCONCLUSIVE, r->verdict);
    assert_string_equal("nothing was run", r->doubt);
    free(r);
}

static void close__cut_short__inconclusive(void **state)
{
    (void)state;
    struct cr_report *r = good();

    r->cut_short = true;
    assert_int_equal(CR_INCONCLUSIVE, verdict(r));
}

static void close__two_runs_of_a_seed_differ__inconclusive(void **state)
{
    (void)state;
    struct cr_report *r = good();

    r->reruns = 3;
    r->mismatches = 1;
    assert_int_equal(CR_INCONCLUSIVE, verdict(r));
}

static void close__violation_and_doubt__violation(void **state)
{
    (void)state;
    struct cr_report *r = good();

    cr_report_doubt(r, "interrupted");
    cr_report_fail(r, 7, "lost: everything", "cairn crash replay --seed 7");
    assert_int_equal(CR_VIOLATION, verdict(r));
}

static void close__images_alone__pass_with_rate(void **state)
{
    (void)state;
    struct cr_report *r = good();

    r->seeds = 0;
    r->images_explored = 10;
    r->states = 1000;
    r->explore_seconds = 0.5;
    cr_report_close(r);
    assert_int_equal(CR_PASS, r->verdict);
    assert_true(fabs(r->states_per_s - 2000) < 1e-6);
    free(r);
}

static void close__points__counted_where_defined(void **state)
{
    (void)state;
    struct cr_report *r = good();

    r->cell[CN_STEP_c_log][CR_CELL_PROCESS] = 4;
    r->cell[CN_STEP_c_log][CR_CELL_PAUSED] = 1;
    r->cell[CN_STEP_c_log][CR_CELL_PASSED] = 9;  /* no crash point */
    r->cell[CN_STEP_c_log][CR_CELL_POWER] = 1;   /* not defined: a client has no pool */
    r->cell[CN_STEP_r_format][CR_CELL_POWER] = 1; /* not defined */
    cr_report_close(r);
    assert_int_equal(2, r->points_reached);
    assert_int_equal(3 * (CN_STEP_COUNT - 2) - (CN_STEP_c_void + 1), r->points_defined);
    free(r);
}

static void add__two_parts__sums_first_texts_and_images(void **state)
{
    (void)state;
    struct cr_report *sum = calloc(1, sizeof(*sum)), *a = good(), *b = good();

    cr_report_init(sum);
    a->images_explored = 5;
    a->images_admissible_log2 = 10;
    b->images_explored = 6;
    b->images_admissible_log2 = 10;
    b->cell[CN_STEP_a_body][CR_CELL_POWER] = 2;
    b->cases_total = 100;
    b->cut_short = true;
    cr_report_doubt(b, "second");
    cr_report_fail(b, 9, "what", "again");
    cr_report_add(sum, a);
    cr_report_add(sum, b);
    assert_int_equal(6, sum->seeds);
    assert_int_equal(60, sum->txns);
    assert_int_equal(11, sum->images_explored);
    assert_true(fabs(sum->images_admissible_log2 - 11) < 1e-9);
    assert_int_equal(2, sum->cell[CN_STEP_a_body][CR_CELL_POWER]);
    assert_int_equal(100, sum->cases_total);
    assert_true(sum->cut_short);
    assert_string_equal("second", sum->doubt);
    assert_int_equal(1, sum->violations);
    assert_int_equal(9, sum->failure[0].seed);
    free(sum);
    free(a);
    free(b);
}

static void add__other_order__other_unseed(void **state)
{
    (void)state;
    struct cr_report *x = calloc(1, sizeof(*x)), *y = calloc(1, sizeof(*y));
    struct cr_report *a = good(), *b = good();

    b->unseed = 78;
    cr_report_add(x, a);
    cr_report_add(x, b);
    cr_report_add(y, b);
    cr_report_add(y, a);
    assert_int_not_equal(x->unseed, y->unseed);
    assert_int_not_equal(0, x->unseed);
    free(x);
    free(y);
    free(a);
    free(b);
}

static void fail__many__first_kept_all_counted(void **state)
{
    (void)state;
    struct cr_report *sum = calloc(1, sizeof(*sum)), *r = good();

    for (uint64_t i = 0; i < CR_FAILURES_MAX + 3; i++)
        cr_report_fail(r, i, "two\nlines \x80", "again");
    cr_report_add(sum, r);
    cr_report_add(sum, r);
    assert_int_equal(2 * (CR_FAILURES_MAX + 3), sum->violations);
    assert_int_equal(CR_FAILURES_MAX, sum->failure_count);
    assert_int_equal(0, sum->failure[0].seed);
    assert_string_equal("two lines ?", sum->failure[0].what);
    free(sum);
    free(r);
}

static void json__any_report__promised_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"seed", "mode", "points_defined", "points_reached",
        "images_admissible_log2", "images_explored", "images_distinct", "nested_pairs",
        "recoveries", "violations", "states_per_s", "txns", "ok", "fail", "unknown", "unseed",
        "verdict", "workload", "seeds", "resolved", "crashes_node", "crashes_client",
        "power_failures", "restarts", "pauses", "partitions", "breaks", "words_lost", "reruns",
        "mismatches", "seconds", "cut_short", "failures", "points", "states", "cases",
        "cases_total", "moments", "moments_exhaustive", "moments_inside",
        "moments_inside_exhaustive", "moments_by_chance", "images_proven",
        "inconclusive"};
    struct cr_report *r = good();

    r->seed = UINT64_MAX;
    cr_report_fail(r, UINT64_MAX, "what \"quoted\"", "again");
    cr_report_close(r);
    json_t *o = cr_report_json(r);
    assert_non_null(o);
    for (size_t i = 0; i < CN_ARRAY_SIZE(keys); i++)
        if (json_object_get(o, keys[i]) == NULL)
            fail_msg("no key %s", keys[i]);
    /* Numbers that a reader of JSON would round are texts. */
    assert_string_equal("18446744073709551615", json_string_value(json_object_get(o, "seed")));
    assert_string_equal("000000000000004d", json_string_value(json_object_get(o, "unseed")));
    json_t *failure = json_array_get(json_object_get(o, "failures"), 0);
    assert_string_equal("what \"quoted\"", json_string_value(json_object_get(failure, "what")));
    json_t *point = json_object_get(json_object_get(o, "points"), "c_log");
    assert_true(json_is_null(json_object_get(point, "power")));
    assert_true(json_is_integer(json_object_get(point, "process")));
    json_decref(o);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init__never_closed__inconclusive),
        cmocka_unit_test(close__good_run__pass),
        cmocka_unit_test(close__nothing_done__inconclusive),
        cmocka_unit_test(close__cut_short__inconclusive),
        cmocka_unit_test(close__two_runs_of_a_seed_differ__inconclusive),
        cmocka_unit_test(close__violation_and_doubt__violation),
        cmocka_unit_test(close__images_alone__pass_with_rate),
        cmocka_unit_test(close__points__counted_where_defined),
        cmocka_unit_test(add__two_parts__sums_first_texts_and_images),
        cmocka_unit_test(add__other_order__other_unseed),
        cmocka_unit_test(fail__many__first_kept_all_counted),
        cmocka_unit_test(json__any_report__promised_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
