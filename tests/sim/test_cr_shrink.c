/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a failing run becomes small and still fails for the same reason, and can be kept as a
 * regression test. Method: rules of the protocol are broken one at a time (cn_mutant.h), the first
 * failing seed of a busy cluster is shrunk; the result must be few operations, few faults and few
 * choices, run the same way twice, and pass with the rule in force.
 * CAIRN_SHRINK_SHOW=1 prints the timelines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "include/internal/cn_mutant.h"
#include "tests/sim/sw_regress.h"
#include "tools/crash/tell/cr_shrink.h"
#include "tools/crash/tell/cr_timeline_tell.h"

#define WORK(name) (1u << CR_WORK_##name)
#define SEEDS 150u
#define RUNS 3000u

static const struct cr_setup flushes = {.nodes = 2, .clients = 4, .ops = 30, .work = WORK(BANK),
    .durability = RD_DURABILITY_APM, .mode = SIM_ADR, .prompt = true,
    .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}},
    .faults = CR_FAULT_NODE_POWER, .quick = true};
#ifndef __SANITIZE_ADDRESS__
static const struct cr_setup mixed = {.ops = 20, .faults = CR_FAULTS_ALL};
static const struct cr_setup sessions = {.nodes = 2, .clients = 4, .ops = 40, .work = WORK(BANK),
    .hazard = {[SIM_NODE] = {.process = 80}}, .faults = CR_FAULT_NODE_PROCESS, .quick = true};
static const struct cr_setup doubts = {.nodes = 2, .clients = 4, .ops = 40,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER),
    .hazard = {[SIM_CLIENT] = {.process = 60}, [SIM_NODE] = {.process = 100}},
    .faults = CR_FAULT_NODE_PROCESS};
#endif

/* The first seed that fails, and not before half of the operations are done: there is something to
 * make small. 0: none. */
static uint64_t find_seed(const struct cr_setup *setup, int mutant)
{
    struct cr_result r;

    cn_mutant_active = mutant;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        cr_cluster_run(setup, seed, &r);
        if (r.failed && r.counts.ops * 2 > (uint64_t)setup->clients * setup->ops)
            return seed;
    }
    return 0;
}

static void print_size(const char *title, const struct cr_shrink_size *z)
{
    printf("  %s nodes %u clients %u operations %lu faults %lu words lost %lu choices %lu of %lu\n",
        title, z->nodes, z->clients, z->operations, z->faults, z->words_lost, z->listed,
        z->choices);
}

static void show(const struct cr_shrink_result *r)
{
    struct cr_setup setup = r->setup;
    struct cr_timeline_options options = {.lines = 300};
    struct cr_result result;

    print_size("before", &r->before);
    print_size("after ", &r->after);
    printf("  %u runs, %.1f s: %s\n", r->runs, r->seconds, r->failure);
    if (getenv("CAIRN_SHRINK_SHOW") == NULL)
        return;
    setup.timeline = cr_timeline_new();
    cr_cluster_run(&setup, r->seed, &result);
    cr_timeline_print(setup.timeline, &options, stdout);
    cr_timeline_delete(&setup.timeline);
}

/* Fails as recorded with the mutant, and passes without. */
static void check(const struct cr_shrink_result *r, int mutant)
{
    struct cr_result again;

    assert_true(r->reproduced);
    assert_true(r->verified);
    cn_mutant_active = mutant;
    cr_cluster_run(&r->setup, r->seed, &again);
    assert_true(again.failed);
    assert_string_equal(r->failure_class, again.failure_class);
    assert_int_equal(r->hash, again.hash);
    assert_int_equal(0, again.replay_unused);
    cn_mutant_active = CN_MUTANT_none;
    cr_cluster_run(&r->setup, r->seed, &again);
    if (again.failed)
        print_error("with the rule in force: %s\n", again.failure);
    assert_false(again.failed);
}

static void shrink(const struct cr_setup *setup, int mutant, struct cr_shrink_result *ret)
{
    struct cr_shrink_options options = {.setup = setup, .seed = find_seed(setup, mutant),
        .runs_max = RUNS};

    assert_int_not_equal(0, options.seed);
    cr_shrink(&options, ret);
    show(ret);
    check(ret, mutant);
}

static void shrink__ack_before_flush__one_power_failure(void **state)
{
    (void)state;
    struct cr_shrink_result r;

    shrink(&flushes, CN_MUTANT_c_ack_before_flush, &r);
    assert_true(r.before.operations > 50);
    assert_true(r.after.operations <= 6);
    assert_true(r.after.faults <= 3);
    assert_true(r.after.listed * 20 < r.before.listed);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

#ifndef __SANITIZE_ADDRESS__
static void shrink__no_validation__no_fault_is_left(void **state)
{
    (void)state;
    struct cr_shrink_result r;

    shrink(&mixed, CN_MUTANT_c_skip_validate, &r);
    assert_true(r.after.operations <= 6);
    assert_int_equal(0, r.after.faults);
    assert_true(r.after.listed * 20 < r.before.listed);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

static void shrink__session_goes_on__few_operations(void **state)
{
    (void)state;
    struct cr_shrink_result r;

    shrink(&sessions, CN_MUTANT_c_session_continues, &r);
    /* How few depends on the run: what it loses may take many to be seen. */
    assert_true(r.after.operations * 4 <= r.before.operations);
    assert_true(r.after.faults <= 6);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

static void shrink__not_relocked__few_operations(void **state)
{
    (void)state;
    struct cr_shrink_result r;

    shrink(&doubts, CN_MUTANT_n_no_relock, &r);
    assert_true(r.after.operations * 4 <= r.before.operations); /* as above */
    assert_true(r.after.faults <= 8);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

#endif

/* ---- bounds ---- */

static void shrink__run_that_passes__not_reproduced(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 1, .clients = 1, .ops = 2};
    struct cr_shrink_options options = {.setup = &setup, .seed = 1};
    struct cr_shrink_result r;

    cn_mutant_active = CN_MUTANT_none;
    cr_shrink(&options, &r);
    assert_false(r.reproduced);
    assert_int_equal(1, r.runs);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

/* Fails always; as one thing where a choice is 3 and a delay is long, as another elsewhere. */
static void two_faces(struct cr_client *client)
{
    struct sim *sim = &client->cluster->sim;
    uint32_t face = sim_choose(sim, "face", 4), noise = 0;

    for (uint32_t i = 0; i < 20; i++)
        noise += sim_choose(sim, "noise", 10);
    if (face == 3 && sim_choose(sim, "weight", 1000) > 250)
        sim_fail(sim, "first face: noise %u", noise);
    else
        sim_fail(sim, "second face: noise %u", noise);
}

static void shrink__smaller_run_fails_otherwise__class_is_kept(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 1, .clients = 1, .body = two_faces};
    struct cr_shrink_options options = {.setup = &setup};
    struct cr_shrink_result r;
    struct cr_result found;

    cn_mutant_active = CN_MUTANT_none;
    do
        cr_cluster_run(&setup, ++options.seed, &found);
    while (strcmp(found.failure_class, "first-face") != 0 && options.seed < SEEDS);
    assert_string_equal("first-face", found.failure_class);
    cr_shrink(&options, &r);
    assert_true(r.reproduced && r.verified);
    assert_string_equal("first-face", r.failure_class);
    /* What it takes, as small as it can be, and nothing else. */
    assert_string_equal("first face: noise 0", r.failure);
    assert_int_equal(2, r.choice_count);
    for (size_t i = 0; i < r.choice_count; i++)
        assert_int_equal(strcmp(r.choice[i].label, "face") == 0 ? 3 : 251, r.choice[i].value);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

static bool count_calls(void *arg, const struct cr_shrink_progress *p)
{
    uint32_t *left = arg;

    assert_non_null(p->phase);
    return (*left)-- > 0;
}

static void shrink__stopped_early__best_so_far_still_fails(void **state)
{
    (void)state;
    uint64_t seed = find_seed(&flushes, CN_MUTANT_c_ack_before_flush);
    uint32_t left = 40;
    struct cr_shrink_options options = {.setup = &flushes, .seed = seed,
        .progress = count_calls, .arg = &left};
    struct cr_shrink_result a, b;

    cr_shrink(&options, &a);
    assert_true(a.cut_short);
    check(&a, CN_MUTANT_c_ack_before_flush);
    /* The same bound, the same result. */
    left = 40;
    cn_mutant_active = CN_MUTANT_c_ack_before_flush;
    cr_shrink(&options, &b);
    assert_int_equal(a.hash, b.hash);
    assert_int_equal(a.choice_count, b.choice_count);
    assert_int_equal(a.runs, b.runs);
    cn_mutant_active = CN_MUTANT_none;
    cr_shrink_release(&a);
    cr_shrink_release(&b);
    sim_fiber_trim();
}

#ifndef __SANITIZE_ADDRESS__
/* ---- kept as a test ---- */

static void regress__shrunk_run__fails_with_the_mutant_only(void **state)
{
    (void)state;
    char folder[] = "/tmp/cairn-regress-XXXXXX", **paths = NULL;
    struct sw_regress_outcome *outcome = calloc(1, sizeof(*outcome));
    struct cr_tape_file *tape = calloc(1, sizeof(*tape));
    struct cr_shrink_result r;
    size_t count = 0;

    assert_non_null(mkdtemp(folder));
    shrink(&flushes, CN_MUTANT_c_ack_before_flush, &r);
    *tape = (struct cr_tape_file){.build = "test", .mutant = "c_ack_before_flush",
        .workload = "mixed", .seed = r.seed, .calm_rest = true, .choice = r.choice,
        .count = r.choice_count};
    (void)cr_setup_print(&r.setup, tape->setup);
    assert_int_not_equal(0, cr_regress_write(folder, "passed", tape));
    snprintf(tape->failure, sizeof(tape->failure), "%s", r.failure);
    assert_int_not_equal(0, cr_regress_write(folder, "../out", tape));
    assert_int_not_equal(0, cr_regress_write(folder, "", tape));
    assert_int_equal(0, cr_regress_write(folder, "ack-before-flush", tape));
    assert_int_equal(0, sw_regress_list(folder, &paths, &count));
    assert_int_equal(1, count);
    cn_mutant_active = CN_MUTANT_none;
    assert_int_equal(0, sw_regress_run(paths[0], outcome));
    assert_false(outcome->failed);
    assert_string_equal("c_ack_before_flush", outcome->mutant);
    cn_mutant_active = CN_MUTANT_c_ack_before_flush;
    assert_int_equal(0, sw_regress_run(paths[0], outcome));
    cn_mutant_active = CN_MUTANT_none;
    assert_true(outcome->failed);
    assert_int_equal(r.hash, outcome->hash);
    assert_string_equal(r.failure_class, outcome->failure_class);
    assert_int_equal(outcome->listed, outcome->used);
    assert_int_equal(0, unlink(paths[0]));
    assert_int_equal(0, rmdir(folder));
    sim_free(paths[0]);
    sim_free(paths);
    free(outcome);
    free(tape);
    cr_shrink_release(&r);
    sim_fiber_trim();
}

#endif

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrink__ack_before_flush__one_power_failure),
#ifndef __SANITIZE_ADDRESS__ /* some thousand runs each */
        cmocka_unit_test(shrink__no_validation__no_fault_is_left),
        cmocka_unit_test(shrink__session_goes_on__few_operations),
        cmocka_unit_test(shrink__not_relocked__few_operations),
        cmocka_unit_test(regress__shrunk_run__fails_with_the_mutant_only),
#endif
        cmocka_unit_test(shrink__run_that_passes__not_reproduced),
        cmocka_unit_test(shrink__smaller_run_fails_otherwise__class_is_kept),
        cmocka_unit_test(shrink__stopped_early__best_so_far_still_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
