/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the closed set leaves nothing out, and its checks are right. Method: the list of singles
 * against all transactions over three named keys and nodes, each canonised; the model against cases
 * worked out by hand; all strict subsets of a record's changed words against pm_record_check(),
 * which is what the classes none, torn and whole rest on; and parts of the set, run, by what
 * recovery reads where that is seen.
 * CAIRN_ENUM_PART and CAIRN_ENUM_DEPTH run another part, or deeper.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "pmem/pm_record.h"
#include "tools/crash/explore/cr_enum_run.h"
#include "tools/crash/explore/cr_watch.h"

#define SINGLES 1878u

/* ---- the list ---- */

struct codes { uint64_t code[16384]; uint32_t count; };

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void add(struct codes *codes, uint64_t code)
{
    for (uint32_t i = 0; i < codes->count; i++)
        if (codes->code[i] == code)
            return;
    assert_true(codes->count < CN_ARRAY_SIZE(codes->code));
    codes->code[codes->count++] = code;
}

/* All with this many operations over keys 0..2 at nodes 0..2, each key there or not. */
static void add_all(struct codes *codes, uint32_t ops)
{
    uint32_t kinds = 1, keys = 1;

    for (uint32_t i = 0; i < ops; i++) {
        kinds *= CR_OP_KINDS;
        keys *= 3;
    }
    for (uint32_t n = 0; n < kinds * keys * 27 * 8; n++) {
        struct cr_case c = {.key_count = 3};
        uint32_t rest = n;
        c.tx[0].count = (uint8_t)ops;
        for (uint32_t i = 0; i < ops; i++) {
            c.tx[0].op[i].kind = (uint8_t)(rest % CR_OP_KINDS);
            rest /= CR_OP_KINDS;
            c.tx[0].op[i].key = (uint8_t)(rest % 3);
            rest /= 3;
        }
        for (uint32_t i = 0; i < 3; i++) {
            c.at[i] = (uint8_t)(rest % 3);
            rest /= 3;
            c.present[i] = rest % 2 != 0;
            rest /= 2;
        }
        add(codes, cr_case_code(&c));
    }
}

static void case_single__all__are_those_of_brute_force(void **state)
{
    (void)state;
    static struct codes all, listed;
    struct cr_case c;

    for (uint32_t ops = 1; ops <= CR_CASE_OPS; ops++)
        add_all(&all, ops);
    for (uint32_t i = 0; cr_case_single(i, &c); i++) {
        uint32_t before = listed.count;
        add(&listed, cr_case_code(&c));
        assert_int_equal(before + 1, listed.count); /* none twice */
        assert_true(c.node_count >= 1 && c.node_count <= c.key_count);
    }
    assert_int_equal(SINGLES, listed.count);
    assert_int_equal(SINGLES, cr_enum_count(CR_ENUM_SINGLES));
    assert_int_equal(listed.count, all.count);
    qsort(all.code, all.count, sizeof(all.code[0]), compare);
    qsort(listed.code, listed.count, sizeof(listed.code[0]), compare);
    assert_memory_equal(all.code, listed.code, all.count * sizeof(all.code[0]));
}

static void case_get__each__told_and_in_bounds(void **state)
{
    (void)state;
    uint32_t all = cr_enum_count(CR_ENUM_ALL);
    struct cr_case c;
    char text[300];

    for (uint32_t i = 0; i < all; i++) {
        assert_true(cr_case_get(i, &c));
        assert_true(c.key_count <= CR_CASE_KEYS && c.tx_count <= CR_CASE_TXS);
        for (uint32_t t = 0; t < c.tx_count; t++) {
            assert_true(c.tx[t].client < c.client_count && c.tx[t].count <= CR_CASE_OPS);
            for (uint32_t k = 0; k < c.tx[t].count; k++)
                assert_true(c.tx[t].op[k].key < c.key_count);
        }
        for (uint32_t k = 0; k < c.key_count; k++)
            assert_true(c.at[k] < c.node_count);
        assert_true(cr_enum_describe(i, text, sizeof(text)));
        assert_true(strlen(text) < sizeof(text) - 1);
    }
    assert_false(cr_case_get(all, &c));
    assert_true(cr_enum_describe(2, text, sizeof(text)));
    assert_string_equal("put a; keys a@1 (absent)", text);
}

/* ---- the model ---- */

/* "read a, put b" and "read b, put a", both keys absent. */
static struct cr_case skew(void)
{
    return (struct cr_case){.node_count = 1, .key_count = 2, .client_count = 2, .tx_count = 2,
        .tx = {{0, 2, {{CR_OP_READ, 0}, {CR_OP_PUT, 1}}},
            {1, 2, {{CR_OP_READ, 1}, {CR_OP_PUT, 0}}}}};
}

static void allows(bool expected, const struct cr_case *c, const struct cr_progress *p, uint32_t a,
    uint32_t b)
{
    uint32_t value[CR_CASE_KEYS] = {a, b};

    assert_int_equal(expected, cr_case_allows(c, p, value));
}

static void case_allows__one_transaction__by_phase(void **state)
{
    (void)state;
    struct cr_case c = {.node_count = 2, .key_count = 2, .client_count = 1, .tx_count = 1,
        .present = {true, false}, .tx = {{0, 2, {{CR_OP_DELETE, 0}, {CR_OP_PUT, 1}}}}};
    struct cr_progress p = {.phase = CR_TX_ACTIVE};
    uint32_t put = cr_value_of(0, 1);

    allows(true, &c, &p, CR_VALUE_FIRST, 0);
    allows(false, &c, &p, 0, put);
    p.phase = CR_TX_COMMITTING;
    allows(true, &c, &p, CR_VALUE_FIRST, 0);
    allows(true, &c, &p, 0, put);
    allows(false, &c, &p, 0, 0); /* torn */
    allows(false, &c, &p, CR_VALUE_FIRST, put);
    p.phase = CR_TX_COMMITTED;
    allows(false, &c, &p, CR_VALUE_FIRST, 0); /* lost */
    allows(true, &c, &p, 0, put);
    p.phase = CR_TX_ABORTED;
    allows(true, &c, &p, CR_VALUE_FIRST, 0);
    allows(false, &c, &p, 0, put);
}

static void case_allows__write_skew__refused(void **state)
{
    (void)state;
    struct cr_case c = skew();
    struct cr_progress p[2] = {{.phase = CR_TX_COMMITTED, .seen = {0, CR_VALUE_UNREAD}},
        {.phase = CR_TX_COMMITTED, .seen = {0, CR_VALUE_UNREAD}}};
    uint32_t a = cr_value_of(1, 1), b = cr_value_of(0, 1);

    allows(false, &c, p, a, b); /* both saw nothing */
    p[1].seen[0] = b;           /* the second saw the first */
    allows(true, &c, p, a, b);
    p[1].seen[0] = 0;
    p[1].phase = CR_TX_COMMITTING;
    allows(true, &c, p, 0, b);
    allows(false, &c, p, a, b);
    allows(false, &c, p, 0, 0);
}

static void case_allows__one_ended_before_the_other__in_that_order(void **state)
{
    (void)state;
    struct cr_case c = {.node_count = 1, .key_count = 1, .client_count = 2, .tx_count = 2,
        .tx = {{0, 1, {{CR_OP_PUT, 0}}}, {1, 1, {{CR_OP_PUT, 0}}}}};
    struct cr_progress p[2] = {{.phase = CR_TX_COMMITTED, .begun = 1, .ended = 2},
        {.phase = CR_TX_COMMITTED, .begun = 3, .ended = 4}};

    allows(true, &c, p, cr_value_of(1, 0), 0);
    allows(false, &c, p, cr_value_of(0, 0), 0);
    p[1].begun = 1; /* side by side: either may be last */
    allows(true, &c, p, cr_value_of(0, 0), 0);
}

/* ---- torn records ---- */

#define RECORD_MAX 512u
struct maker {
    struct pm_place place;
    uint32_t participants, size;
    uint64_t count;
    _Alignas(8) uint8_t bytes[RECORD_MAX];
};

/* One key, a small value; what differs between two of them is what does in a row of updates. */
static void make(struct maker *m, uint64_t seq)
{
    struct cn_txid txid = {.coordinator = {.b = {1, 2, 3, 4, 5, 6, 7, 8, 9}}, .count = m->count};
    struct pm_write_pm write = {.op = PM_OP_UPDATE, .key_size = le16_make(2),
        .value_size = le32_make(8), .index = le32_make(1), .hash = le64_make(0x1234567890),
        .item = le64_make(0xc3c0), .key_base = le64_make(seq)};
    struct pm_record_writer w;
    uint64_t value = cn_mix64(seq);

    pm_record_begin(&w, m->bytes, sizeof(m->bytes));
    w.done = seq - 1;
    for (uint32_t i = 0; i < m->participants; i++)
        pm_record_add_participant(&w, (uint16_t)(i + 1), (uint16_t)i, 0, 1, m->place.epoch, seq);
    pm_record_add_lock(&w, 0xc3c0, seq);
    (void)pm_record_add_write(&w, &write, "k1", &value);
    m->size = pm_record_end(&w, PM_RECORD_TX, &txid, seq, 1, &m->place);
    assert_true(m->size != 0);
}

/* Every strict subset of the words that differ, `old` elsewhere; also without the mark word where
 * it is a word of its own. How many were tried. */
static uint64_t refuse_subsets(const struct maker *new, const uint8_t *old)
{
    _Alignas(8) uint8_t torn[RECORD_MAX];
    uint32_t word[64], words = 0;
    struct pm_record record;

    for (uint32_t off = 0; off < new->size; off += 8)
        if (memcmp(old + off, new->bytes + off, 8) != 0)
            word[words++] = off;
    assert_in_range(words, 2, 28);
    memcpy(torn, old, new->size);
    uint64_t all = (UINT64_C(1) << words) - 1, before = 0;
    for (uint64_t n = 0; n < all; n++) {
        uint64_t set = n ^ n >> 1, changed = set ^ before; /* Gray code: a word at a time */
        for (uint32_t i = 0; changed != 0 && i < words; i++)
            if ((changed >> i & 1) != 0)
                memcpy(torn + word[i], ((set >> i & 1) != 0 ? new->bytes : old) + word[i], 8);
        before = set;
        if (set == all)
            continue;
        if (pm_record_check(torn, new->size, &new->place, 1, &record) == 0)
            fail_msg("the subset %#lx of %u words passes for a record", set, words);
    }
    memcpy(torn, new->bytes, new->size);
    assert_int_equal(0, pm_record_check(torn, new->size, &new->place, 1, &record));
    return all;
}

static void refuse_both(uint32_t participants)
{
    static const uint8_t zero[RECORD_MAX];
    struct maker old = {.participants = participants, .count = 7,
        .place = {.pool = {.b = {9, 8, 7}}, .slot = 1, .epoch = 3, .nonce = 0x1122334455667788}};
    struct maker new = old;

    old.place.log_off = 4096;
    make(&old, 21);
    new.place.log_off = 2 * 4096; /* the lap after */
    new.count = 29;
    make(&new, 40);
    assert_int_equal(old.size, new.size);
    uint64_t over_old = refuse_subsets(&new, old.bytes), over_zero = refuse_subsets(&new, zero);
    printf("%u participants, %u bytes: %lu subsets over an old record, %lu over zeros\n",
        participants, new.size, over_old, over_zero);
}

static void record_check__each_strict_subset_of_words__refused(void **state)
{
    (void)state;
    refuse_both(1);
}

/* With two the mark is no part of it: whole but for the mark it is a record, unmarked. */
static void record_check__two_participants_each_strict_subset__refused(void **state)
{
    (void)state;
    refuse_both(2);
}

/* ---- runs ---- */

/* A sanitizer looks at every access of fewer of them: images are tried one by one there. */
#ifdef __SANITIZE_ADDRESS__
#define PARTS(n) (4 * (n))
#else
#define PARTS(n) (n)
#endif

static void run(struct cr_enum_options *options, struct cr_report *report,
    struct cr_enum_stats *stats)
{
    cr_report_init(report);
    cr_enum_run(options, report, stats);
    for (uint32_t i = 0; i < report->failure_count; i++)
        print_error("%s\n  %s\n", report->failure[i].what, report->failure[i].replay);
    assert_int_equal(0, report->violations);
    assert_false(report->cut_short);
    printf("%lu cases, %lu moments (%lu with nothing left out), %lu inside (%lu), %lu images, %lu "
           "distinct, %lu recoveries, %lu other images\n", stats->cases, stats->moments,
        stats->moments_exhaustive, stats->inside, stats->inside_exhaustive,
        report->images_explored, report->images_distinct, report->recoveries, stats->proven);
}

/* By what recovery reads nothing is left out, and trying others shows that nothing was missed. */
static void expect_whole(const struct cr_enum_stats *stats)
{
    if (!cr_watch_works())
        return;
    assert_int_equal(stats->moments, stats->moments_exhaustive);
    assert_int_equal(stats->inside, stats->inside_exhaustive);
    assert_true(stats->proven > 0);
}

static uint32_t setting(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (uint32_t)strtoul(text, NULL, 0) : otherwise;
}

static void enum_run__part_of_the_singles__nothing_found(void **state)
{
    (void)state;
    struct cr_enum_options options = {.sets = CR_ENUM_SINGLES, .parts = PARTS(60),
        .part = setting("CAIRN_ENUM_PART", 7), .prove_each = 64,
        .depth = setting("CAIRN_ENUM_DEPTH", cr_watch_works())};
    static struct cr_report report;
    struct cr_enum_stats stats;

    run(&options, &report, &stats);
    assert_int_equal(stats.cases, stats.committed);
    expect_whole(&stats);
    assert_true(stats.disciplined > 0 && report.images_distinct > 1000);
    assert_int_equal(SINGLES, report.cases_total);
}

static void enum_run__inside_recovery__nothing_found(void **state)
{
    (void)state;
    /* "put a" into a node; deep, what fits into seconds. */
    struct cr_enum_options options = {
        .one = true, .only = 2, .depth = cr_watch_works() ? 2 : 1, .prove_each = 16};
    static struct cr_report report, flat;
    struct cr_enum_stats stats;

    run(&options, &report, &stats);
    expect_whole(&stats);
    assert_int_equal(stats.inside, report.moments_inside);
    assert_int_equal(stats.inside_exhaustive, report.moments_inside_exhaustive);
    assert_true(report.nested_pairs > 50);
    options.depth = 0;
    run(&options, &flat, &stats);
    assert_true(report.images_explored > 2 * flat.images_explored);
    assert_int_equal(stats.moments, stats.moments_exhaustive);
}

/* Of recoveries that do the same one is crashed inside of: far fewer images. */
static void enum_run__every_recovery_or_one_of_a_kind__nothing_found(void **state)
{
    (void)state;
    struct cr_enum_options options = {.one = true, .only = 2, .depth = 1, .each_image = true};
    static struct cr_report every, some;
    struct cr_enum_stats stats;

    run(&options, &some, &stats);
    options.nest_every = true;
    run(&options, &every, &stats);
    assert_true(every.images_explored > 10 * some.images_explored);
    assert_true(some.nested_pairs > 50); /* one that is like another counts for its moment alone */
}

static void enum_run__some_pairs__serial(void **state)
{
    (void)state;
    struct cr_enum_options options = {.sets = CR_ENUM_PAIRS, .parts = PARTS(13),
        .part = setting("CAIRN_ENUM_PART", 5), .prove_each = 64};
    static struct cr_report report;
    struct cr_enum_stats stats;

    run(&options, &report, &stats);
    expect_whole(&stats);
    assert_int_equal(2 * stats.cases, stats.committed);
}

static void enum_run__some_rings__wrap_and_recycle(void **state)
{
    (void)state;
    struct cr_enum_options options = {.sets = CR_ENUM_RINGS, .parts = PARTS(5),
        .part = setting("CAIRN_ENUM_PART", 3), .prove_each = 64};
    static struct cr_report report;
    struct cr_enum_stats stats;

    run(&options, &report, &stats);
    expect_whole(&stats);
    assert_true(stats.unknown > 0); /* of those whose coordinator died */
    assert_true(report.cell[CN_STEP_s_fence_closed][CR_CELL_PASSED] > 0);
}

static void enum_run__twice__the_same(void **state)
{
    (void)state;
    struct cr_enum_options options = {.one = true, .only = 2100};
    static struct cr_report report[2];
    struct cr_enum_stats stats;

    run(&options, &report[0], &stats);
    run(&options, &report[1], &stats);
    assert_true(report[0].unseed != 0);
    assert_int_equal(report[0].unseed, report[1].unseed);
    assert_int_equal(report[0].images_explored, report[1].images_explored);
    assert_int_equal(report[0].recoveries, report[1].recoveries);
}

static void enum_run__no_such_case__no_pass(void **state)
{
    (void)state;
    struct cr_enum_options options = {.one = true, .only = 1u << 30};
    static struct cr_report report;

    cr_report_init(&report);
    cr_enum_run(&options, &report, NULL);
    cr_report_close(&report);
    assert_int_equal(CR_INCONCLUSIVE, report.verdict);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_single__all__are_those_of_brute_force),
        cmocka_unit_test(case_get__each__told_and_in_bounds),
        cmocka_unit_test(case_allows__one_transaction__by_phase),
        cmocka_unit_test(case_allows__write_skew__refused),
        cmocka_unit_test(case_allows__one_ended_before_the_other__in_that_order),
        cmocka_unit_test(record_check__each_strict_subset_of_words__refused),
        cmocka_unit_test(record_check__two_participants_each_strict_subset__refused),
        cmocka_unit_test(enum_run__part_of_the_singles__nothing_found),
        cmocka_unit_test(enum_run__inside_recovery__nothing_found),
        cmocka_unit_test(enum_run__every_recovery_or_one_of_a_kind__nothing_found),
        cmocka_unit_test(enum_run__some_pairs__serial),
        cmocka_unit_test(enum_run__some_rings__wrap_and_recycle),
        cmocka_unit_test(enum_run__twice__the_same),
        cmocka_unit_test(enum_run__no_such_case__no_pass),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    sim_fiber_trim();
    return failed;
}
