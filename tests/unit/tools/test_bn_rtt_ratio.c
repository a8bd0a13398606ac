/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the verdict of `bench rtt --check` follows from the medians. Method: histograms made by
 * hand. Invariants: a ratio is a commit over the sum of its parts; one target exceeded is enough to
 * fail; what was not measured has no verdict.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "tools/bench/bn_rtt.h"

static struct bn_histogram op[RTT_OP_COUNT];

static const struct rtt_ratio *find(const char *name)
{
    const struct rtt_ratio *r;

    for (uint32_t i = 0; (r = rtt_ratio_at(i)) != NULL; i++) {
        if (strcmp(r->name, name) == 0)
            return r;
    }
    fail_msg("no ratio %s", name);
    return NULL;
}

static void set(enum rtt_op which, uint64_t median)
{
    memset(&op[which], 0, sizeof(op[which]));
    bn_histogram_add(&op[which], median);
    bn_histogram_add(&op[which], median);
    bn_histogram_add(&op[which], median * 50); /* a tail does not count */
}

static int setup(void **state)
{
    (void)state;
    memset(op, 0, sizeof(op));
    set(RTT_RAW_READ, 100);
    set(RTT_RAW_LOCK_READ, 120);
    set(RTT_RAW_LOCK_READ_READ, 120);
    set(RTT_RAW_VALIDATE, 90);
    set(RTT_RAW_FLUSH, 80);
    set(RTT_READ_ONLY, 115);
    set(RTT_WRITE, 256);
    set(RTT_READ_WRITE, 376);
    return 0;
}

static bool is_near(double value, double wanted)
{
    return value > wanted * 0.99 && value < wanted * 1.01;
}

static void value__commit_over_its_parts(void **state)
{
    (void)state;
    assert_true(is_near(rtt_ratio_value(find("read_only_over_raw_read"), op), 1.15));
    assert_true(is_near(rtt_ratio_value(find("write_commit_over_parts"), op), 1.28));
    assert_true(is_near(rtt_ratio_value(find("read_write_commit_over_parts"), op), 376.0 / 290));
}

static void value__not_measured__no_number_and_no_verdict(void **state)
{
    (void)state;
    assert_true(isnan(rtt_ratio_value(find("write_all_commit_over_parts"), op)));
    assert_true(rtt_is_good(op));
    memset(op, 0, sizeof(op));
    assert_true(isnan(rtt_ratio_value(find("read_only_over_raw_read"), op)));
    assert_true(rtt_is_good(op));
}

static void is_good__one_target_exceeded__false(void **state)
{
    static const struct {
        enum rtt_op which;
        uint64_t good, bad;
    } cases[] = {{RTT_READ_ONLY, 114, 118}, {RTT_WRITE, 258, 264}, {RTT_READ_WRITE, 374, 382}};

    (void)state;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        set(cases[i].which, cases[i].good);
        assert_true(rtt_is_good(op));
        set(cases[i].which, cases[i].bad);
        assert_false(rtt_is_good(op));
        set(cases[i].which, cases[i].good);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(value__commit_over_its_parts, setup),
        cmocka_unit_test_setup(value__not_measured__no_number_and_no_verdict, setup),
        cmocka_unit_test_setup(is_good__one_target_exceeded__false, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
