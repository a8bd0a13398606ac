/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: exploring by what recovery reads leaves nothing out that image by image finds, and a read
 * that is not seen is noticed. Method: the same moments both ways, and the states that their images
 * end in; a check that looks at a pool behind the explorer's back, and the same check through the
 * product; limits that are too small, which have to be told.
 * Invariant: only where cr_watch_works(), that is, with gcc and without sanitizers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/xp_pair.h"
#include "tools/crash/explore/cr_enum_run.h"
#include "tools/crash/explore/cr_watch.h"

static const struct cr_explore_options directed = {.depth = 2, .exhaustive_log2 = 16,
    .nested_log2 = 16, .seed = 1, .directed = true, .prove_each = 1};

static const struct cr_explore_stats *stats(const struct xp_pair *p)
{
    return cr_explorer_stats(p->explorer);
}

/* ---- reads are seen ---- */

struct told { uintptr_t at[64]; size_t size[64]; uint32_t count; };

static void tell(void *arg, const void *at, size_t size)
{
    struct told *told = arg;

    if (told->count < CN_ARRAY_SIZE(told->at)) {
        told->at[told->count] = (uintptr_t)at;
        told->size[told->count++] = size;
    }
}

static bool was_told(const struct told *told, const void *at, size_t size)
{
    uintptr_t from = (uintptr_t)at;

    for (uint32_t i = 0; i < told->count; i++)
        if (told->at[i] < from + size && told->at[i] + told->size[i] > from)
            return true;
    return false;
}

static void watch__each_kind_of_read__told(void **state)
{
    (void)state;
    static const uint8_t lines[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static _Alignas(64) uint8_t bytes[512];
    static const uint8_t key[16];
    const struct pm pm = {.base = bytes, .size = sizeof(bytes)};
    struct told told = {.count = 0};
    struct pm_item_view item;
    uint8_t copy[128];

    const struct cr_watch watch = {.from = (uintptr_t)bytes, .size = sizeof(bytes), .lines = lines,
        .read = tell, .arg = &told};
#define EXPECT(at, length, call)                                                                   \
    do {                                                                                           \
        told.count = 0;                                                                            \
        (void)cr_watch_set(watch);                                                                 \
        call;                                                                                      \
        (void)cr_watch_stop();                                                                     \
        if (!was_told(&told, bytes + (at), length))                                                \
            fail_msg("not told: " #call);                                                          \
    } while (0)
    EXPECT(64, 128, pm_read(&pm, 64, copy, 128));
    EXPECT(8, 1, (void)cn_crc32c(0, bytes, 100));
    EXPECT(300, 1, (void)cn_crc32c(0, bytes, 400)); /* by the library */
    EXPECT(100, 1, (void)cn_crc64(0, bytes, 128));
    EXPECT(20, 1, (void)cn_siphash(key, bytes, 32));
    EXPECT(8, 8, pm_item_look(bytes, 128, 0, 0, 1, &item));
    EXPECT(24, 8, (void)pm_record_peek(bytes, 64); (void)cn_crc32c(0, bytes, 64));
#undef EXPECT
    told.count = 0;
    pm_read(&pm, 64, copy, 128);
    assert_int_equal(0, told.count); /* nobody watches */
}

/* ---- both ways ---- */

static void explore_pair(struct xp_pair *p, const struct cr_explore_options *options)
{
    xp_begin(p);
    xp_watch(p, *options);
    xp_transaction(p);
    if (p->failed)
        fail_msg("%s", cr_explorer_failure(p->explorer));
}

static void explore__both_ways__same_states(void **state)
{
    (void)state;
    static struct xp_pair by_reads, by_image;
    struct cr_explore_options each = {.exhaustive_log2 = 16, .samples = 2000, .seed = 1};

    explore_pair(&by_reads, &directed);
    explore_pair(&by_image, &each);
    const struct cr_explore_stats *a = stats(&by_reads), *b = stats(&by_image);
    assert_int_equal(a->moments, b->moments);
    assert_int_equal(a->moments, a->moments_exhaustive);
    assert_int_equal(a->inside, a->inside_exhaustive);
    assert_true(a->inside > 100 && a->proven > 100);
    assert_true(b->moments_exhaustive < b->moments); /* a record is too much for it */
    assert_true(a->states > 1);
    assert_int_equal(a->states, b->states);
    assert_int_equal(a->states_hash, b->states_hash);
    xp_end(&by_reads);
    xp_end(&by_image);
}

static void run_case(uint32_t number, bool each_image, struct cr_enum_stats *ret,
    struct cr_report *report)
{
    struct cr_enum_options options = {.one = true, .only = number, .exhaustive_log2 = 16,
        .each_image = each_image, .prove_each = 4};

    cr_report_init(report);
    cr_enum_run(&options, report, ret);
    for (uint32_t i = 0; i < report->failure_count; i++)
        print_error("%s\n  %s\n", report->failure[i].what, report->failure[i].replay);
    assert_int_equal(0, report->violations);
    assert_int_equal(1, ret->cases);
}

static void enum_run__both_ways__same_states(void **state)
{
    (void)state;
    uint32_t singles = cr_enum_count(CR_ENUM_SINGLES);
    uint32_t rings = singles + cr_enum_count(CR_ENUM_PAIRS);
    /* Put; put where there is nothing, delete; two participants; three; a pair; a ring. */
    const uint32_t cases[] = {2, 50, 77, 1850, singles + 9, rings + 24};
    static struct cr_report report;
    uint64_t sets = 0, images = 0;

    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        struct cr_enum_stats by_reads, by_image;
        run_case(cases[i], false, &by_reads, &report);
        sets += report.images_explored;
        run_case(cases[i], true, &by_image, &report);
        images += report.images_explored;
        printf("case %u: %lu states, %lu moments, %lu and %lu whole\n", cases[i], by_reads.states,
            by_reads.moments, by_reads.moments_exhaustive, by_image.moments_exhaustive);
        assert_int_equal(by_reads.moments, by_image.moments);
        assert_int_equal(by_reads.moments, by_reads.moments_exhaustive);
        assert_int_equal(by_reads.states, by_image.states);
        assert_int_equal(by_reads.states_hash, by_image.states_hash);
        assert_true(by_reads.proven > 0);
    }
    assert_true(images > 10 * sets);
}

/* ---- a read that is not seen ---- */

static struct { const struct xp_pair *pair; uint64_t off[2]; bool seen; } spy;

/* Of two words of a record the first has come and the second has not: that is wrong, says who looks
 * at the memory by itself, or as the product does. */
static bool spy_on_ring(void *arg, struct cr_recovered *state, char *why, size_t size)
{
    const struct pm *pm = &state->pool[0]->pm;
    bool there[2];

    (void)arg;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t now, new;
        if (spy.seen)
            pm_read(pm, spy.off[i], &now, sizeof(now));
        else
            now = *(const volatile uint64_t *)(const void *)(pm->base + spy.off[i]);
        memcpy(&new, spy.pair->pool[0]->visible + spy.off[i], sizeof(new));
        there[i] = now == new;
    }
    if (!there[0] || there[1])
        return true;
    snprintf(why, size, "half of it is there");
    return false;
}

/* Power fails while a record is on its way. */
static bool explore_record(struct xp_pair *p, bool seen, uint32_t prove_each)
{
    struct cr_explore_options options = {.env = &p->env, .exhaustive_log2 = 16, .seed = 1,
        .directed = true, .prove_each = prove_each, .check = spy_on_ring};

    xp_begin(p);
    assert_int_equal(0, cr_explorer_new(&options, &p->explorer));
    xp_lock(p);
    xp_log(p, 0);
    spy.pair = p;
    spy.seen = seen;
    spy.off[0] = p->node[0].record_at + 40; /* of the transaction's id */
    spy.off[1] = p->node[0].record_at + 80; /* of a participant */
    return cr_explore(p->explorer, p->pool, XP_POOLS, "logged");
}

static void explore__read_seen__told_apart(void **state)
{
    (void)state;
    static struct xp_pair p;

    assert_false(explore_record(&p, true, 0));
    assert_non_null(strstr(cr_explorer_failure(p.explorer), "half of it is there"));
    xp_end(&p);
}

static void explore__read_missed__found_by_trying_others(void **state)
{
    (void)state;
    static struct xp_pair p;

    assert_true(explore_record(&p, false, 0)); /* it stands for images that are wrong */
    xp_end(&p);
    assert_false(explore_record(&p, false, 1));
    assert_non_null(strstr(cr_explorer_failure(p.explorer), "half of it is there"));
    xp_end(&p);
}

/* ---- what is left out ---- */

static void explore_locked(struct xp_pair *p, const struct cr_explore_options *options)
{
    xp_begin(p);
    xp_watch(p, *options);
    p->watching = false;
    xp_lock(p);
    assert_true(xp_explore(p, "locked"));
    assert_int_equal(1, stats(p)->moments);
}

static void explore__limit_inside__moment_is_not_whole(void **state)
{
    (void)state;
    static struct xp_pair p;
    struct cr_explore_options options = {
        .depth = 1, .exhaustive_log2 = 12, .nested_log2 = 1, .samples = 2, .seed = 1};

    explore_locked(&p, &options);
    assert_true(stats(&p)->inside_exhaustive < stats(&p)->inside);
    assert_int_equal(0, stats(&p)->moments_exhaustive); /* though all its own images were taken */
    xp_end(&p);
    options.nested_log2 = 12;
    explore_locked(&p, &options);
    assert_int_equal(stats(&p)->inside, stats(&p)->inside_exhaustive);
    assert_int_equal(1, stats(&p)->moments_exhaustive);
    xp_end(&p);
}

static void explore__limit_of_sets__moment_is_not_whole(void **state)
{
    (void)state;
    static struct xp_pair p;
    struct cr_explore_options options = directed;

    options.exhaustive_log2 = 0; /* one */
    xp_begin(&p);
    xp_watch(&p, options);
    p.watching = false;
    xp_lock(&p);
    xp_log(&p, 0);
    assert_true(xp_explore(&p, "logged"));
    assert_int_equal(1, stats(&p)->moments);
    assert_int_equal(0, stats(&p)->moments_exhaustive);
    xp_end(&p);
}

static void new__directed_and_process_death__refused(void **state)
{
    (void)state;
    struct cr_explore_options options = {.env = NULL, .directed = true, .process_death = true};
    struct cr_explorer *x;

    assert_int_equal(CAIRN_E_CONFIG, cr_explorer_new(&options, &x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watch__each_kind_of_read__told),
        cmocka_unit_test(explore__both_ways__same_states),
        cmocka_unit_test(enum_run__both_ways__same_states),
        cmocka_unit_test(explore__read_seen__told_apart),
        cmocka_unit_test(explore__read_missed__found_by_trying_others),
        cmocka_unit_test(explore__limit_inside__moment_is_not_whole),
        cmocka_unit_test(explore__limit_of_sets__moment_is_not_whole),
        cmocka_unit_test(new__directed_and_process_death__refused),
    };

    if (!cr_watch_works())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
