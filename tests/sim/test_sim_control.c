/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the harness itself is to be trusted: it finds lost data where the platform loses it (adr
 * with DDIO and the one-sided method), and a seed is a run: the same seed gives the same run, and a
 * recorded tape too.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"

static void cluster_run__ddio_and_power_failures__loses_data(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL, .mode = SIM_ADR_DDIO,
        .durability = RD_DURABILITY_APM, .power_at_end = true};
    struct cr_result r;
    uint64_t seed;

    for (seed = 1; seed <= 2000; seed++) {
        cr_cluster_run(&setup, seed, &r);
        if (r.failed && (strstr(r.failure, "lost:") != NULL || strstr(r.failure, "ledger") != NULL))
            break;
    }
    assert_true(seed <= 2000);
    printf("DDIO loses data at seed %lu: %s\n", seed, r.failure);
    sim_fiber_trim();
}

/* The very seeds that lose data by the one-sided method. */
static void cluster_run__ddio_and_gpspm__loses_nothing(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL, .mode = SIM_ADR_DDIO,
        .durability = RD_DURABILITY_GPSPM, .power_at_end = true};
    struct sw_sweep sweep = {.first = 1, .count = 300, .seconds = 15};

    assert_true(sw_sweep("sim-sim_control", &setup, &sweep));
    sw_sweep_print(&sweep);
    assert_true(sweep.counts.flushes_served > sweep.counts.committed / 2);
    assert_true(sweep.words_lost > 0);
}

static void cluster_run__same_seed__same_run(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 15, .faults = CR_FAULTS_ALL};

    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct cr_result a, b;
        cr_cluster_run(&setup, seed, &a);
        cr_cluster_run(&setup, seed, &b);
        assert_int_equal(a.hash, b.hash);
        assert_int_equal(a.choices, b.choices);
        assert_int_equal(a.virtual_ns, b.virtual_ns);
    }
    sim_fiber_trim();
}

/* With other runs in between, so that memory lies elsewhere: nothing depends on addresses. */
static void cluster_run__failing_allocations__same_run(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_KNOWN};
    uint64_t hash[30];

    for (uint32_t round = 0; round < 3; round++)
        for (uint64_t seed = 0; seed < CN_ARRAY_SIZE(hash); seed++) {
            struct cr_result r;
            cr_cluster_run(&setup, 1 + (seed * (round == 1 ? 7 : 1)) % CN_ARRAY_SIZE(hash), &r);
            uint64_t *at = &hash[(seed * (round == 1 ? 7 : 1)) % CN_ARRAY_SIZE(hash)];
            if (round == 0)
                *at = r.hash;
            assert_int_equal(*at, r.hash);
        }
    sim_fiber_trim();
}

static void cluster_run__two_seeds__two_runs(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 5};
    struct cr_result a, b;

    cr_cluster_run(&setup, 1, &a);
    cr_cluster_run(&setup, 2, &b);
    assert_int_not_equal(a.hash, b.hash);
    sim_fiber_trim();
}

static void cluster_run__recorded_tape__same_choices(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 10, .faults = CR_FAULTS_ALL, .record = true};
    struct cr_result a, b;

    cr_cluster_run(&setup, 11, &a);
    assert_true(a.tape_count > 100);
    assert_int_equal(a.choices, a.tape_count);
    setup.replay = a.tape;
    setup.replay_count = a.tape_count;
    cr_cluster_run(&setup, 11, &b);
    assert_int_equal(a.hash, b.hash);
    /* A changed choice is another run, if it is one of those that decide by all of their value. */
    bool other = false;
    for (size_t i = a.tape_count / 2, tries = 0; !other && tries < 20; i++, tries++) {
        struct cr_result c;
        a.tape[i].value ^= 1;
        cr_cluster_run(&setup, 11, &c);
        other = c.hash != a.hash;
        sim_free(c.tape);
    }
    assert_true(other);
    sim_free(a.tape);
    sim_free(b.tape);
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_run__same_seed__same_run),
        cmocka_unit_test(cluster_run__failing_allocations__same_run),
        cmocka_unit_test(cluster_run__two_seeds__two_runs),
        cmocka_unit_test(cluster_run__recorded_tape__same_choices),
        cmocka_unit_test(cluster_run__ddio_and_power_failures__loses_data),
        cmocka_unit_test(cluster_run__ddio_and_gpspm__loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
