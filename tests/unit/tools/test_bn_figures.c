/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: figures and their targets (bn_figures.c), from counts made by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tools/bench/bn_drive.h"

struct stand {
    struct bn_run run;
    struct bn_load load;
    struct bn_load_ops ops;
    struct bn_point point[2];
};

static struct stand *make_stand(void)
{
    struct stand *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->run.load = &s->load;
    s->load.ops = &s->ops;
    s->run.point = s->point;
    s->run.options.fabric = "emu";
    s->run.options.point_count = 2;
    s->run.options.point[0] = 1;
    s->run.options.point[1] = 64;
    s->point[0].rate = 1000;
    s->point[1].rate = 20000;
    s->point[1].kind[0].committed = 300;
    s->point[1].kind[2].committed = 100;
    s->point[1].count[BN_COUNT_cpu_ns] = 200000000;
    s->point[1].count[BN_COUNT_round_trips] = 800;
    s->point[1].count[BN_COUNT_reads] = 400;
    s->point[1].count[BN_COUNT_cas] = 400;
    s->point[1].count[BN_COUNT_writes] = 800;
    s->point[1].count[BN_COUNT_flushes] = 800;
    s->point[1].count[BN_COUNT_marks] = 200;
    bn_histogram_add(&s->point[1].kind[0].latency, 100);
    bn_histogram_add(&s->point[1].kind[2].latency, 300);
    return s;
}

static void assert_value(double value, double wanted)
{
    assert_true(fabs(value - wanted) < 1e-9 * fabs(wanted) + 1e-12);
}

static void figure__counts__per_transaction_and_second(void **state)
{
    struct stand *s = make_stand();
    const struct bn_point *p = &s->point[1];

    (void)state;
    assert_int_equal(bn_best_point(&s->run), 1);
    assert_int_equal(bn_committed(p), 400);
    assert_value(bn_figure(&s->run, p, "throughput"), 20000);
    assert_value(bn_figure(&s->run, p, "throughput_per_core"), 2000);
    assert_value(bn_figure(&s->run, p, "sweep_gain"), 20);
    assert_value(bn_figure(&s->run, p, "work_requests"), 6.5);
    assert_value(bn_figure(&s->run, p, "round_trips"), 2);
    assert_value(bn_figure(&s->run, p, "latency_p50_ns"), 100);
    assert_value(bn_figure(&s->run, p, "latency_p99_ns"), 300);
    assert_true(isnan(bn_figure(&s->run, p, "nonsense")));
    free(s);
}

static void figure__nothing_committed__is_not_known(void **state)
{
    struct stand *s = make_stand();

    (void)state;
    assert_true(isnan(bn_figure(&s->run, &s->point[0], "work_requests")));
    assert_true(isnan(bn_figure(&s->run, &s->point[0], "throughput_per_core")));
    assert_true(isnan(bn_figure(&s->run, &s->point[0], "latency_p50_ns")));
    s->run.options.point[0] = 2; /* a sweep without one in flight */
    assert_true(isnan(bn_figure(&s->run, &s->point[1], "sweep_gain")));
    free(s);
}

static void target__met_missed_or_of_another_fabric(void **state)
{
    static const struct bn_target least[] = {{"sweep_gain", "emu", 20, false, 0}};
    static const struct bn_target most[] = {{"round_trips", "emu", 1.9, true, 0}};
    static const struct bn_target other[] = {{"round_trips", "rpma", 1.9, true, 0}};
    static const struct bn_target modelled[] = {{"round_trips", "emu", 1.9, true, 2}};
    struct stand *s = make_stand();
    double value;

    (void)state;
    assert_true(bn_targets_are_met(&s->run)); /* none */
    s->ops.target_count = 1;
    s->ops.targets = least;
    assert_true(bn_targets_are_met(&s->run));
    s->point[1].rate = 19999;
    assert_false(bn_targets_are_met(&s->run));
    s->ops.targets = most;
    assert_false(bn_targets_are_met(&s->run));
    s->point[1].count[BN_COUNT_round_trips] = 700;
    assert_true(bn_target_is_met(&s->run, most, &value));
    assert_value(value, 1.75);
    assert_true(bn_target_is_met(&s->run, other, &value));
    assert_true(isnan(value));
    assert_true(bn_target_is_met(&s->run, modelled, &value));
    assert_true(isnan(value));
    s->run.options.projection = true; /* figures of a modelled network are judged as such */
    s->run.options.rtt_us = 2;
    assert_true(bn_target_is_met(&s->run, most, &value));
    assert_true(isnan(value));
    assert_true(bn_target_is_met(&s->run, modelled, &value));
    assert_value(value, 1.75);
    free(s);
}

static void rounded__figures__three_digits(void **state)
{
    (void)state;
    assert_value(bn_rounded(1.23456), 1.235);
    assert_value(bn_rounded(0), 0);
    assert_value(bn_rounded(1e15), 1e15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figure__counts__per_transaction_and_second),
        cmocka_unit_test(figure__nothing_committed__is_not_known),
        cmocka_unit_test(target__met_missed_or_of_another_fabric),
        cmocka_unit_test(rounded__figures__three_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
