/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the image explorer recovers every image it should, finds what is wrong and nothing else,
 * and does the same twice. Method: two participants with the smallest pools (xp_pair.h), built with
 * CAIRN_MUTANTS; power fails before anything becomes durable, and again inside each recovery. The
 * shipped rules pass; each broken one that a loss of power can show is found, as are wrong steps of
 * the coordinator. `--bench` prints the rate.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "include/internal/cn_mutant.h"
#include "tests/sim/xp_pair.h"
#include "tools/crash/explore/cr_watch.h"

#ifndef CAIRN_MUTANTS
static int cn_mutant_active; /* never set: the cases that need it are skipped */
#endif

static const struct cr_explore_options plain = {
    .depth = 1, .exhaustive_log2 = 8, .nested_log2 = 6, .samples = 20, .seed = 1};
static const struct cr_explore_options shallow = {.exhaustive_log2 = 10, .samples = 50, .seed = 1};

static const struct cr_explore_stats *stats(const struct xp_pair *p)
{
    return cr_explorer_stats(p->explorer);
}

static void expect_right(const struct xp_pair *p)
{
    if (p->failed)
        fail_msg("%s", cr_explorer_failure(p->explorer));
    assert_int_equal(stats(p)->violations, 0);
}

static void expect_wrong(const struct xp_pair *p, const char *text)
{
    assert_true(p->failed);
    assert_int_equal(stats(p)->violations, 1);
    if (strstr(cr_explorer_failure(p->explorer), text) == NULL)
        fail_msg("expected %s, got: %s", text, cr_explorer_failure(p->explorer));
}

/* Two pools, untouched. */
static int begin(void **state)
{
    struct xp_pair *p = calloc(1, sizeof(*p));

    assert_non_null(p);
    xp_begin(p);
    *state = p;
    return 0;
}

static int end(void **state)
{
    xp_end(*state);
    free(*state);
    return 0;
}

/* ---- what is explored ---- */

static void explore__locks_only__exactly_the_product(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    xp_lock(p);
    assert_true(xp_explore(p, "locked"));
    /* A word each, which is there or not. */
    assert_int_equal(stats(p)->images, 4);
    assert_int_equal(stats(p)->distinct, 4);
    assert_int_equal(stats(p)->moments_exhaustive, 1);
    assert_true(fabs(stats(p)->admissible_log2 - 2) < 1e-9);
    assert_int_equal(stats(p)->units_lost, 4);
    /* The same again: all is known. */
    assert_true(xp_explore(p, "locked still"));
    assert_int_equal(stats(p)->images, 8);
    assert_int_equal(stats(p)->distinct, 4);
    assert_true(fabs(stats(p)->admissible_log2 - 3) < 1e-9);
}

static void explore__nothing_dirty__one_image(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    assert_true(xp_explore(p, "quiet"));
    assert_int_equal(stats(p)->images, 1);
    assert_int_equal(stats(p)->recoveries, 2); /* and once more, of the result */
    assert_true(stats(p)->steps_max > 20);
}

static void explore__transaction__right_at_every_moment(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, plain);
    xp_transaction(p);
    expect_right(p);
    assert_true(stats(p)->moments > 8);
    assert_true(stats(p)->moments_exhaustive > stats(p)->moments / 2);
    assert_true(stats(p)->nested > 1000);
    assert_true(stats(p)->pairs > 50);
    assert_true(stats(p)->admissible_log2 > 40); /* the words of two records */
}

static void explore__depth_2__right(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, (struct cr_explore_options){.depth = 2, .exhaustive_log2 = 1, .nested_log2 = 4});
    xp_lock(p);
    p->watching = false;
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        xp_log(p, i);
        xp_flush(p, i);
    }
    (void)xp_explore(p, "logged");
    expect_right(p);
    assert_true(stats(p)->nested > stats(p)->images / 2);
}

/* Its record is at one node only: it is prevented at the other one, and has no effect. */
static void explore__one_record__aborted(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, plain);
    xp_lock(p);
    xp_log(p, 0);
    xp_flush(p, 0);
    p->decided = true;
    (void)xp_explore(p, "logged once");
    expect_right(p);
}

static void explore__prevented_by_the_node__aborted(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, plain);
    xp_lock(p);
    xp_log(p, 0);
    xp_flush(p, 0);
    xp_prevent(p, 0);
    p->decided = true;
    (void)xp_explore(p, "prevented");
    expect_right(p);
}

static void explore__eadr__one_image_per_store(void **state)
{
    struct xp_pair *p = *state;

    for (uint32_t i = 0; i < XP_POOLS; i++)
        p->pool[i]->keeps_all = true;
    xp_watch(p, plain);
    xp_lock(p);
    assert_int_equal(stats(p)->moments, 2);
    assert_int_equal(stats(p)->images - stats(p)->nested, 2);
    assert_true(fabs(stats(p)->admissible_log2 - 1) < 1e-9);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_log(p, i);
    xp_acknowledge(p);
    (void)xp_explore(p, "acknowledged");
    expect_right(p);
}

static void explore__without_expectation__each_moment_anew(void **state)
{
    struct xp_pair p;
    struct cr_explorer *x;
    const struct cr_explore_options options = {.env = &p.env, .exhaustive_log2 = 4};
    (void)state;
    xp_begin(&p);
    assert_int_equal(cr_explorer_new(&options, &x), 0);
    assert_true(cr_explore(x, p.pool, XP_POOLS, "now"));
    assert_true(cr_explore(x, p.pool, XP_POOLS, "now"));
    assert_int_equal(cr_explorer_stats(x)->distinct, 2);
    cr_explorer_delete(&x);
    xp_end(&p);
}

static void explore__same_seed__same_figures(void **state)
{
    struct cr_explore_stats first = {0};
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct xp_pair p;
        xp_begin(&p);
        xp_watch(&p, shallow);
        xp_transaction(&p);
        struct cr_explore_stats s = *stats(&p);
        s.seconds = 0;
        if (round == 0)
            first = s;
        assert_memory_equal(&s, &first, sizeof(s));
        xp_end(&p);
    }
}

static void explore__pools_unchanged(void **state)
{
    struct xp_pair p;
    uint8_t *before = malloc(1u << 17);
    (void)state;
    assert_non_null(before);
    xp_begin(&p);
    xp_watch(&p, plain);
    p.watching = false;
    xp_lock(&p);
    xp_log(&p, 0);
    uint64_t size = p.pool[0]->size;
    memcpy(before, p.pool[0]->visible, size);
    memcpy(before + size, p.pool[0]->persistent, size);
    uint32_t dirty = p.pool[0]->dirty_count;
    (void)xp_explore(&p, "logged");
    expect_right(&p);
    assert_memory_equal(before, p.pool[0]->visible, size);
    assert_memory_equal(before + size, p.pool[0]->persistent, size);
    assert_int_equal(p.pool[0]->dirty_count, dirty);
    free(before);
    xp_end(&p);
}

static void new__too_deep__refused(void **state)
{
    const struct cn_env *env = cn_env_system();
    const struct cr_explore_options options = {.env = env, .depth = 100};
    struct cr_explorer *x = NULL;
    (void)state;
    assert_int_equal(cr_explorer_new(&options, &x), CAIRN_E_CONFIG);
    assert_null(x);
}

/* ---- what is found ---- */

static void find__acknowledged_before_the_flush__lost(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    xp_lock(p);
    xp_log(p, 0);
    xp_log(p, 1);
    xp_flush(p, 0);
    assert_true(xp_explore(p, "flushed once"));
    uint64_t distinct = stats(p)->distinct;
    xp_acknowledge(p); /* the same images as before; now some are wrong */
    assert_false(xp_explore(p, "acknowledged"));
    expect_wrong(p, "an acknowledged transaction is lost");
    assert_true(stats(p)->distinct > distinct);
    assert_non_null(strstr(cr_explorer_failure(p->explorer), "acknowledged"));
}

static void find__marked_before_the_flush__torn(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    xp_lock(p);
    xp_log(p, 0);
    xp_log(p, 1);
    xp_flush(p, 0);
    xp_mark(p, 0);
    assert_false(xp_explore(p, "marked"));
    expect_wrong(p, "torn transaction");
}

static void find__damaged_item__fsck_tells(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    p->pool[1]->persistent[p->node[1].item + 41] ^= 1;
    assert_false(xp_explore(p, "now"));
    expect_wrong(p, "pool 1: fsck");
    p->pool[1]->persistent[p->node[1].item + 41] ^= 1;
    p->failed = false;
    assert_true(xp_explore(p, "mended")); /* goes on when it is called again */
}

static void find__no_superblock__told(void **state)
{
    struct xp_pair *p = *state;

    xp_watch(p, shallow);
    p->pool[0]->persistent[xp_geometry.chunk_shift == 12 ? 4096 : 0] ^= 1;
    assert_false(xp_explore(p, "now"));
    expect_wrong(p, "pool 0: there is no superblock");
}

/* ---- mutants ---- */

enum way { EVERY, REPRESENTATIVES, DIRECTED };

static void expect_killed(int mutant, const char *name, enum way way)
{
    struct cr_explore_options options = plain;
    struct xp_pair p;

    options.representatives = way == REPRESENTATIVES;
    options.directed = way == DIRECTED && cr_watch_works();
    xp_begin(&p);
    cn_mutant_active = mutant;
    xp_watch(&p, options);
    p.watching = false; /* the last moments first */
    xp_lock(&p);
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        xp_log(&p, i);
        xp_flush(&p, i);
    }
    (void)xp_explore(&p, "logged");
    p.watching = true;
    if (!p.failed) {
        xp_acknowledge(&p);
        for (uint32_t i = 0; i < XP_POOLS; i++)
            xp_mark(&p, i);
        for (uint32_t i = 0; i < XP_POOLS; i++)
            xp_apply(&p, i);
    }
    cn_mutant_active = CN_MUTANT_none;
    if (!p.failed)
        fail_msg("%s is not found", name);
    printf("%-26s %8llu states: %.100s\n", name, (unsigned long long)stats(&p)->distinct,
        cr_explorer_failure(p.explorer));
    xp_end(&p);
}

static void find__mutants__killed(void **state)
{
    (void)state;
#ifdef CAIRN_MUTANTS
#define KILL(name)                                                                                 \
    expect_killed(CN_MUTANT_##name, #name, EVERY),                                                 \
        expect_killed(CN_MUTANT_##name, #name, REPRESENTATIVES),                                   \
        expect_killed(CN_MUTANT_##name, #name, DIRECTED)
    KILL(n_no_body_fence);
    KILL(n_no_applied_fence);
    KILL(n_release_before_applied);
    KILL(n_no_release_fence);
    KILL(n_no_redo_release);
#undef KILL
#else
    skip();
    (void)expect_killed;
#endif
}

/* Processes die while nodes apply, and power fails in the recovery of what they left in caches. */
static void apply_and_die(struct xp_pair *p)
{
    const struct cr_explore_options options = {.depth = 1, .exhaustive_log2 = 2, .nested_log2 = 4,
        .samples = 10, .seed = 1, .process_death = true};

    xp_watch(p, options);
    p->watching = false;
    xp_lock(p);
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        xp_log(p, i);
        xp_flush(p, i);
    }
    xp_acknowledge(p);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_mark(p, i);
    p->watching = true;
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_apply(p, i);
}

static void explore__process_death__right(void **state)
{
    struct xp_pair *p = *state;

    apply_and_die(p);
    expect_right(p);
    assert_true(stats(p)->process_deaths > 4);
}

/* T5: what reads right already is not flushed. Power alone cannot show it. */
static void find__flush_changed_only__by_process_death(void **state)
{
    struct xp_pair *p = *state;

#ifdef CAIRN_MUTANTS
    cn_mutant_active = CN_MUTANT_p_flush_changed_only;
    apply_and_die(p);
    cn_mutant_active = CN_MUTANT_none;
    expect_wrong(p, "all processes die before");
#endif
}

/* An unmarked record counts although the other one is missing. */
static void find__commit_unmarked__torn(void **state)
{
    struct xp_pair *p = *state;

#ifdef CAIRN_MUTANTS
    cn_mutant_active = CN_MUTANT_n_commit_unmarked;
    xp_watch(p, shallow);
    xp_lock(p);
    xp_log(p, 0);
    xp_flush(p, 0);
    (void)xp_explore(p, "logged once");
    cn_mutant_active = CN_MUTANT_none;
    expect_wrong(p, "torn transaction");
#endif
}

/* ---- the rate ---- */

static void print_rate(uint32_t depth, uint32_t rounds)
{
    struct cr_explore_options options = plain;
    struct xp_pair p;

    xp_begin(&p);
    options.depth = depth;
    options.exhaustive_log2 = depth == 0 ? 16 : 8;
    options.samples = 200;
    xp_watch(&p, options);
    for (uint32_t i = 0; i < rounds && !p.failed; i++)
        xp_transaction(&p);
    expect_right(&p);
    const struct cr_explore_stats *s = stats(&p);
    printf("2 pools of %llu bytes, depth %u: %llu images, %llu states, %llu recoveries, %.2f s of "
           "CPU: %.0f states/s\n",
        (unsigned long long)p.pool[0]->size, depth, (unsigned long long)s->images,
        (unsigned long long)s->distinct, (unsigned long long)s->recoveries, s->seconds,
        (double)s->distinct / s->seconds);
    xp_end(&p);
}

static void rate__printed(void **state)
{
    (void)state;
    print_rate(0, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(explore__locks_only__exactly_the_product, begin, end),
        cmocka_unit_test_setup_teardown(explore__nothing_dirty__one_image, begin, end),
        cmocka_unit_test_setup_teardown(explore__transaction__right_at_every_moment, begin, end),
        cmocka_unit_test_setup_teardown(explore__depth_2__right, begin, end),
        cmocka_unit_test_setup_teardown(explore__one_record__aborted, begin, end),
        cmocka_unit_test_setup_teardown(explore__prevented_by_the_node__aborted, begin, end),
        cmocka_unit_test_setup_teardown(explore__eadr__one_image_per_store, begin, end),
        cmocka_unit_test(explore__without_expectation__each_moment_anew),
        cmocka_unit_test(explore__same_seed__same_figures),
        cmocka_unit_test(explore__pools_unchanged),
        cmocka_unit_test(new__too_deep__refused),
        cmocka_unit_test_setup_teardown(find__acknowledged_before_the_flush__lost, begin, end),
        cmocka_unit_test_setup_teardown(find__marked_before_the_flush__torn, begin, end),
        cmocka_unit_test_setup_teardown(find__damaged_item__fsck_tells, begin, end),
        cmocka_unit_test_setup_teardown(find__no_superblock__told, begin, end),
        cmocka_unit_test(find__mutants__killed),
        cmocka_unit_test_setup_teardown(explore__process_death__right, begin, end),
        cmocka_unit_test_setup_teardown(find__flush_changed_only__by_process_death, begin, end),
        cmocka_unit_test_setup_teardown(find__commit_unmarked__torn, begin, end),
        cmocka_unit_test(rate__printed),
    };
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        print_rate(0, 8);
        print_rate(1, 2);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
