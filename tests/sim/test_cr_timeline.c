/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a timeline tells what happened and changes nothing; a tape plays back also when a part of
 * it is left out; a run of calm choices alone is calm. Method: runs of small clusters, watched and
 * not, and tapes of them with choices taken away.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/crash/tell/cr_diff.h"
#include "tools/crash/tell/cr_timeline_tell.h"
#include "tools/sim/sim_calm.h"
#include "tools/sim/sim_replay.h"

#define SEEDS 6u

/* Power fails at node 1 when the first record has been found. */
static const struct cr_setup crashing = {.nodes = 2, .clients = 2, .ops = 4, .plain = true,
    .faults = CR_FAULT_NODE_POWER, .work = 1u << CR_WORK_BANK, .durability = RD_DURABILITY_APM,
    .plan = {.role = SIM_NODE, .any_actor = true, .step = CN_STEP_a_body, .occurrence = 2,
        .kind = SIM_CRASH_POWER}};

static struct cr_timeline *watch(const struct cr_setup *setup, uint64_t seed, struct cr_result *r)
{
    struct cr_setup s = *setup;

    s.timeline = cr_timeline_new();
    cr_cluster_run(&s, seed, r);
    return s.timeline;
}

static size_t count_kind(const struct cr_timeline *t, enum sim_moment_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < t->count; i++)
        n += t->moment[i].kind == kind;
    return n;
}

/* ---- timelines ---- */

static void timeline__watched__same_run(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 8, .faults = CR_FAULTS_ALL};

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cr_result plain, watched;
        cr_cluster_run(&setup, seed, &plain);
        struct cr_timeline *t = watch(&setup, seed, &watched);
        assert_int_equal(plain.hash, watched.hash);
        assert_true(t->count > 100);
        for (size_t i = 1; i < t->count; i++)
            assert_true(t->moment[i].ns >= t->moment[i - 1].ns);
        cr_timeline_delete(&t);
    }
    sim_fiber_trim();
}

static void timeline__power_failure__told_with_what_was_lost(void **state)
{
    (void)state;
    struct cr_result r;
    struct cr_timeline *t = watch(&crashing, 3, &r);
    uint32_t words = 0;

    assert_false(r.failed);
    assert_int_equal(1, count_kind(t, SIM_MOMENT_POWER));
    for (size_t i = 0; i < t->count; i++)
        words += t->moment[i].kind == SIM_MOMENT_LOST ? t->moment[i].words : 0;
    /* The step is behind the stores and before the fence: what its CPU stored may be gone. */
    assert_true(count_kind(t, SIM_MOMENT_LOST) > 0);
    assert_true(r.words_lost == 0 || words > 0);
    assert_true(count_kind(t, SIM_MOMENT_START) > 2);
    assert_true(t->work_ns > 0 && t->heal_ns > t->work_ns);
    cr_timeline_delete(&t);
    sim_fiber_trim();
}

static void timeline__operations__described_with_their_outcomes(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 1, .clients = 1, .ops = 3, .calm_rest = true,
        .work = 1u << CR_WORK_BANK};
    struct cr_result r;
    struct cr_timeline *t = watch(&setup, 1, &r);

    assert_int_equal(3, t->operation_count);
    for (size_t i = 0; i < 3; i++) {
        const struct cr_operation *o = &t->operation[i];
        assert_int_equal(1u << 16 | (i + 1), o->id);
        assert_string_equal("COMMITTED", o->outcome);
        assert_true(o->end_ns > o->begin_ns);
        assert_true(strlen(o->text) > 0);
    }
    assert_true(count_kind(t, SIM_MOMENT_SAY) > 0);
    assert_true(count_kind(t, SIM_MOMENT_POST) > 0);
    assert_true(count_kind(t, SIM_MOMENT_COMPLETE) > 0);
    cr_timeline_delete(&t);
    sim_fiber_trim();
}

static size_t lines_of(const struct cr_timeline *t, bool all, const char *must)
{
    struct cr_timeline_options options = {.all = all, .lines = 100000};
    char *text = NULL;
    size_t size = 0, lines = 0;
    FILE *f = open_memstream(&text, &size);

    assert_non_null(f);
    cr_timeline_print(t, &options, f);
    fclose(f);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    if (must != NULL)
        assert_non_null(strstr(text, must));
    free(text);
    return lines;
}

static void print__default__leaves_out_what_is_minor(void **state)
{
    (void)state;
    struct cr_result r;
    struct cr_timeline *t = watch(&crashing, 3, &r);
    size_t some = lines_of(t, false, "loses power"), all = lines_of(t, true, "loses power");

    assert_true(some > 20);
    assert_true(all > 2 * some);
    (void)lines_of(t, false, "No violation.");
    cr_timeline_delete(&t);
    sim_fiber_trim();
}

static int fail_setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct cairn_tx *tx;
    enum cairn_outcome outcome;

    if (cairn_begin(ctx, &tx) != 0 || cairn_put(tx, cairn_run_table(run), "k", 1, "v", 1) != 0 ||
        cairn_commit(tx, &outcome) != 0)
        return CAIRN_E_CONFLICT;
    cairn_run_fail(run, "planted");
    return 0;
}

static int do_nothing(struct cairn_run *run, struct cairn_ctx *ctx)
{
    (void)run;
    (void)ctx;
    return 0;
}

static void print__violation_in_setup__setting_up_is_told(void **state)
{
    (void)state;
    static const struct cairn_workload broken = {.abi = CAIRN_WORKLOAD_ABI, .name = "broken",
        .summary = "fails while it is set up", .setup = fail_setup, .step = do_nothing,
        .check = do_nothing};
    struct cr_setup setup = {.nodes = 2, .clients = 1, .ops = 1, .workload = {&broken}};
    struct cr_result r;
    struct cr_timeline *t = watch(&setup, 1, &r);

    assert_true(r.failed);
    assert_true(lines_of(t, false, "c_lock") > 5);
    cr_timeline_delete(&t);
    sim_fiber_trim();
}

static void json__all__has_every_moment(void **state)
{
    (void)state;
    struct cr_result r;
    struct cr_timeline *t = watch(&crashing, 3, &r);
    json_t *all = cr_timeline_json(t, true), *some = cr_timeline_json(t, false);

    assert_non_null(all);
    assert_non_null(some);
    assert_int_equal(1, json_integer_value(json_object_get(all, "version")));
    assert_true(json_is_null(json_object_get(all, "violation")));
    assert_int_equal(t->count, json_array_size(json_object_get(all, "moments")));
    assert_true(json_array_size(json_object_get(some, "moments")) < t->count);
    assert_int_equal(t->actor_count, json_array_size(json_object_get(all, "actors")));
    assert_int_equal(t->operation_count, json_array_size(json_object_get(all, "operations")));
    json_t *first = json_array_get(json_object_get(all, "moments"), 0);
    assert_non_null(json_string_value(json_object_get(first, "kind")));
    assert_non_null(json_string_value(json_object_get(first, "text")));
    json_decref(all);
    json_decref(some);
    cr_timeline_delete(&t);
    sim_fiber_trim();
}

/* ---- tapes ---- */

static void replay__what_is_not_calm_alone__same_run(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 8, .faults = CR_FAULTS_ALL, .record = true};

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct cr_result first, second;
        size_t n = 0;
        cr_cluster_run(&setup, seed, &first);
        for (size_t i = 0; i < first.tape_count; i++)
            if (!first.tape[i].calm)
                first.tape[n++] = first.tape[i];
        assert_true(n < first.tape_count);
        struct cr_setup again = setup;
        again.record = false;
        again.calm_rest = true;
        again.replay = first.tape;
        again.replay_count = n;
        cr_cluster_run(&again, seed, &second);
        assert_int_equal(first.hash, second.hash);
        assert_int_equal(first.choices, second.choices);
        assert_int_equal(first.virtual_ns, second.virtual_ns);
        assert_int_equal(first.stats.events, second.stats.events);
        assert_false(second.diverged);
        assert_int_equal(0, second.replay_unused);
        sim_free(first.tape);
    }
    sim_fiber_trim();
}

static void replay__whole_tape__neither_diverged_nor_unused(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 5, .faults = CR_FAULTS_ALL, .record = true};
    struct cr_result first, second;

    cr_cluster_run(&setup, 5, &first);
    setup.record = false;
    setup.replay = first.tape;
    setup.replay_count = first.tape_count;
    cr_cluster_run(&setup, 5, &second);
    assert_int_equal(first.hash, second.hash);
    assert_false(second.diverged);
    assert_int_equal(0, second.replay_unused);
    /* Another run does not fit the tape, and that is seen. */
    setup.nodes = first.node_count == 2 ? 3 : 2;
    cr_cluster_run(&setup, 5, &second);
    assert_true(second.diverged || second.replay_unused > 0);
    sim_free(first.tape);
    sim_fiber_trim();
}

static void keys__a_choice_falls_away__others_keep_their_values(void **state)
{
    (void)state;
    static const struct sim_choice tape[] = {
        {.label = "a", .value = 1, .bound = 9, .who = 1, .nth = 0},
        {.label = "b", .value = 2, .bound = 9, .who = 1, .nth = 0},
        {.label = "a", .value = 3, .bound = 9, .who = 2, .nth = 0},
        {.label = "a", .value = 4, .bound = 9, .who = 1, .nth = 2}};
    struct sim_keys *keys = sim_keys_new(tape, 4);
    uint32_t nth, calm;

    /* "b" is never asked for. */
    assert_int_equal(2, sim_keys_next(keys, "a", 2, &nth, &calm));
    assert_int_equal(0, sim_keys_next(keys, "a", 1, &nth, &calm));
    assert_int_equal(SIZE_MAX, sim_keys_next(keys, "a", 1, &nth, &calm));
    assert_int_equal(3, sim_keys_next(keys, "a", 1, &nth, &calm));
    assert_int_equal(2, nth);
    assert_int_equal(SIZE_MAX, sim_keys_next(keys, "c", 1, &nth, &calm));
    assert_int_equal(0, nth);
    sim_keys_delete(&keys);
}

/* ---- calm ---- */

static void calm_run__faults_allowed__nothing_goes_wrong(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 2, .clients = 1, .ops = 20, .calm_rest = true,
        .faults = CR_FAULTS_ALL,
        .hazard = {[SIM_NODE] = {.process = 5, .power = 5, .pause = 5, .pause_us = 50, .store = 5},
            [SIM_CLIENT] = {.process = 5, .pause = 5, .pause_us = 50}}};
    struct cr_result a, b;

    cr_cluster_run(&setup, 1, &a);
    if (a.failed)
        print_error("%s\n", a.failure);
    assert_false(a.failed);
    assert_int_equal(0, a.counts.crashes_node + a.counts.crashes_client + a.counts.pauses);
    assert_int_equal(0, a.counts.partitions + a.counts.breaks + a.stats.hazard_pauses);
    assert_int_equal(0, a.counts.aborted + a.counts.unknown + a.counts.errors);
    assert_int_equal(0, a.words_lost);
    assert_int_equal(20, a.counts.ops);
    /* No seed has any say in it but for names and keys of hashes. */
    cr_cluster_run(&setup, 2, &b);
    assert_false(b.failed);
    assert_int_equal(0, b.counts.aborted + b.counts.crashes_node + b.counts.crashes_client);
    sim_fiber_trim();
}

static void calm__labels_of_the_harness__are_in_the_table(void **state)
{
    (void)state;
    static const char *const known[] = {"hazard-power", "image", "tail", "lanes", "packet-max",
        "acks-lost", "cas-halves", "power-at-end", "which"};
    static const char *const kept[] = {"image-cpu", "image-nic", "few-kept", "line"};

    for (size_t i = 0; i < CN_ARRAY_SIZE(known); i++)
        assert_true(sim_calm_knows(known[i], 8));
    assert_true(sim_calm_knows("any delay", SIM_DELAY_BOUND));
    assert_false(sim_calm_knows("no such label", 8));
    for (size_t i = 0; i < CN_ARRAY_SIZE(kept); i++)
        assert_true(sim_calm_find(kept[i]) != sim_calm_find("no such label"));
    /* What is not in the table: a chance says no, a number is 0. */
    assert_int_equal(7, sim_calm_at(sim_calm_find("no such label"), 8, true));
    assert_int_equal(0, sim_calm_at(sim_calm_find("no such label"), 8, false));
}

/* ---- two runs of one seed ---- */

static uint32_t leftover; /* what a broken workload keeps between runs */

static void forgetful(struct cr_client *client)
{
    struct sim *sim = &client->cluster->sim;

    if (client->index == 0 && leftover++ % 2 == 1)
        (void)sim_choose(sim, "leftover", 7);
    sim_sleep(sim, sim->now + sim_delay(sim, "rest"));
}

static void steady(struct cr_client *client)
{
    struct sim *sim = &client->cluster->sim;

    sim_sleep(sim, sim->now + sim_delay(sim, "rest"));
}

static void diff_unseed__workload_with_a_memory__first_difference_told(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 1, .clients = 2, .plain = true, .body = forgetful};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    assert_non_null(f);
    assert_false(cr_diff_unseed(&setup, 4, f));
    fclose(f);
    assert_non_null(strstr(text, "-> second choice"));
    assert_non_null(strstr(text, "leftover"));
    free(text);
    setup.body = steady;
    f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_true(cr_diff_unseed(&setup, 4, f));
    fclose(f);
    assert_int_equal(0, size);
    free(text);
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeline__watched__same_run),
        cmocka_unit_test(timeline__power_failure__told_with_what_was_lost),
        cmocka_unit_test(timeline__operations__described_with_their_outcomes),
        cmocka_unit_test(print__default__leaves_out_what_is_minor),
        cmocka_unit_test(print__violation_in_setup__setting_up_is_told),
        cmocka_unit_test(json__all__has_every_moment),
        cmocka_unit_test(replay__what_is_not_calm_alone__same_run),
        cmocka_unit_test(replay__whole_tape__neither_diverged_nor_unused),
        cmocka_unit_test(keys__a_choice_falls_away__others_keep_their_values),
        cmocka_unit_test(calm_run__faults_allowed__nothing_goes_wrong),
        cmocka_unit_test(calm__labels_of_the_harness__are_in_the_table),
        cmocka_unit_test(diff_unseed__workload_with_a_memory__first_difference_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
