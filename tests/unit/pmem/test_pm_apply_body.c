/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: applying and replaying end in the same store, whatever a crash keeps (T5, T6, T9, T10).
 * Method: coordinators of ts_store.h over a pool whose every store, flush and fence is a crash
 * point. Invariants: after each recovery fsck finds nothing, and contents equal the model of
 * commits.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static void run_steps(struct ts_pool *t, void *arg)
{
    (void)t;
    for (uint32_t i = 0; i < 400; i++)
        ts_store_step(arg);
}

static void run_restart(struct ts_pool *t, void *arg)
{
    (void)t;
    ts_store_restart(arg);
}

/* Crash now, recover with at most `nested` crashes in recovery, check. */
static void crash_and_recover(
    struct ts_store *s, uint64_t *seed, enum ts_crash mode, uint32_t nested)
{
    assert_int_equal(ts_pool_crash(s->t, ts_random(seed), mode), 0);
    for (uint32_t i = 0; i < nested; i++) {
        if (!ts_pool_run(s->t, 1 + ts_random(seed) % 400, run_restart, s))
            break;
        assert_int_equal(
            ts_pool_crash(s->t, ts_random(seed), (enum ts_crash)(ts_random(seed) % 4)), 0);
        if (i + 1 == nested)
            ts_store_restart(s);
    }
    if (nested == 0)
        ts_store_restart(s);
}

static struct ts_store *new_random(uint64_t seed)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;

    g.bucket_slots = 2 + (uint32_t)(seed % 3);
    g.fingerprint_bits = 1;
    g.ring_size = seed % 5 == 0 ? 4096 : 8192;
    /* Every third heap is so small that blocks are reused at once. */
    s = ts_store_new(&g, seed % 3 == 0 ? 31 * 4096 + 4096 * (seed % 16) : 0, seed);
    s->random_guess = seed % 2 != 0;
    s->cas_fails = seed % 4 == 0 ? 20 : 0;
    s->keys = 10 + (uint32_t)(seed % 40);
    return s;
}

static void apply__random_work_and_crashes__model_and_fsck_agree(void **state)
{
    const char *seeds = getenv("CAIRN_TEST_SEEDS"), *first = getenv("CAIRN_TEST_SEED");
    uint64_t from = first != NULL ? strtoull(first, NULL, 0) : 1;
    uint64_t count = seeds != NULL ? strtoull(seeds, NULL, 0) : 40;
    uint64_t commits = 0, splits = 0, replays = 0, full = 0;

    (void)state;
    for (uint64_t seed = from; seed < from + count; seed++) {
        struct ts_store *s = new_random(seed);
        uint64_t r = seed;

        for (uint32_t round = 0; round < 20; round++) {
            if (ts_pool_run(s->t, 1 + ts_random(&r) % 3000, run_steps, s))
                crash_and_recover(s, &r, (enum ts_crash)(ts_random(&r) % 4), 3);
            if (ts_random(&r) % 2 == 0)
                continue; /* what is undecided stays so for a while */
            ts_store_drain(s);
            ts_store_check(s);
        }
        ts_store_drain(s);
        ts_store_check(s);
        commits += s->commits;
        splits += s->splits;
        replays += s->replays;
        full += s->full;
        ts_store_delete(&s);
    }
    print_message("%" PRIu64 " commits, %" PRIu64 " splits, %" PRIu64 " replays, %" PRIu64
                  " times full\n",
        commits, splits, replays, full);
    assert_true(commits > 50 * count && splits > 5 * count && replays > count / 2);
}

/* ---- every crash point of short programs ---- */

struct program {
    const char *name;
    uint32_t count;
    struct ts_write write[4];
    bool split; /* ask for room afterwards */
};
#define PUT(k, n)                                      \
    {                                                  \
        .key = (k), .value = { true, 1000 + (k), (n) } \
    }
#define DEL(k)     \
    {              \
        .key = (k) \
    }
/* Keys 0 to 4 are there before, with 10 bytes; a bucket has 4 slots. */
static const struct program programs[] = {
    {"insert", 1, {PUT(5, 20)}, false},
    {"two inserts", 2, {PUT(5, 20), PUT(6, 90)}, false},
    {"update", 1, {PUT(0, 12)}, false},
    {"delete", 1, {DEL(0)}, false},
    {"delete and insert", 3, {DEL(0), DEL(1), PUT(6, 30)}, false},
    {"move", 1, {PUT(0, 120)}, false},
    {"all", 4, {PUT(0, 120), PUT(1, 11), DEL(2), PUT(7, 60)}, false},
    {"insert, split", 1, {PUT(5, 20)}, true},
};

static void run_program(struct ts_pool *t, void *arg)
{
    void **args = arg;
    struct ts_store *s = args[0];
    const struct program *p = args[1];

    (void)t;
    assert_int_equal(ts_store_begin(s, 1, p->write, p->count), 0);
    while (s->slot[1].phase != TS_IDLE)
        ts_store_advance(s, 1);
    if (p->split)
        assert_int_equal(pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, 0, 4), 0);
}

static bool crash_program_at(const struct program *p, uint64_t at, enum ts_crash mode)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    void *args[2];
    uint64_t seed = at * 4 + mode;
    bool crashed;

    g.fingerprint_bits = 1;
    g.retired_max = 4;
    g.slot_count = 2;
    s = ts_store_new(&g, 0, 3);
    for (uint32_t key = 0; key < 5; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    ts_pool_settle(s->t);
    args[0] = s;
    args[1] = (void *)(uintptr_t)p;
    crashed = ts_pool_run(s->t, at, run_program, args);
    if (crashed)
        crash_and_recover(s, &seed, mode, (uint32_t)(at % 2));
    ts_store_drain(s);
    ts_store_check(s);
    ts_store_delete(&s);
    return crashed;
}

static void apply__crash_at_every_event__store_is_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(programs); i++) {
        uint64_t at = 1;

        while (crash_program_at(&programs[i], at, (enum ts_crash)(at % 4)))
            at++;
        assert_true(at > 30);
        for (uint64_t k = 1; k < at; k += 11)
            assert_true(crash_program_at(&programs[i], k, TS_CRASH_RANDOM));
    }
}

/* ---- single rules ---- */

static struct ts_store *new_plain(void)
{
    struct ts_store *s = ts_store_new(NULL, 0, 9);

    for (uint32_t key = 0; key < 3; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    return s;
}

static void body__already_right_but_only_in_cache__is_flushed(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w[2] = {PUT(5, 20), DEL(0)};
    struct ts_slot *t = &s->slot[1];

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, w, 2), 0);
    ts_store_advance(s, 1); /* logged */
    assert_int_equal(pm_apply_check(s->s, &t->record, 1, PM_APPLY_LIVE), 0);
    pm_apply_body(s->s, &t->record);
    pm_apply_release(s->s, &t->record);
    /* Process death before any fence: all visible, nothing durable. */
    assert_int_equal(ts_pool_crash(s->t, 1, TS_CRASH_PROCESS), 0);
    assert_false(ts_pool_is_durable(s->t, le64_get(t->record.lock[0].off), PM_BUCKET_SIZE));
    pm_apply_body(s->s, &t->record);
    pm_fence(&s->t->pm, CN_STEP_a_body);
    pm_apply_release(s->s, &t->record);
    pm_fence(&s->t->pm, CN_STEP_a_release);
    for (uint32_t i = 0; i < t->record.lock_count; i++)
        assert_true(ts_pool_is_durable(s->t, le64_get(t->record.lock[i].off), PM_LINE));
    assert_true(ts_pool_is_durable(s->t, le64_get(t->record.lock[0].off), PM_BUCKET_SIZE));
    assert_true(ts_pool_is_durable(s->t, le64_get(t->record.block[0].off), 128));
    ts_store_delete(&s);
}

static void release__newer_word__stays(void **state)
{
    struct ts_store *s = new_plain();
    struct ts_slot *t = &s->slot[1];
    struct ts_place p;
    uint64_t word;

    (void)state;
    assert_int_equal(ts_store_put(s, 1, 0, 11), 0); /* its record stays in t->record */
    assert_int_equal(ts_store_put(s, 2, 0, 12), 0);
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    word = pm_load64(&s->t->pm, p.item);
    pm_apply_release(s->s, &t->record);
    assert_int_equal(pm_load64(&s->t->pm, p.item), word);
    ts_store_delete(&s);
}

static void release__body_behind__word_is_not_set(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w = PUT(0, 11);
    struct ts_slot *t = &s->slot[1];
    uint64_t off, word;

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0);
    off = le64_get(t->record.lock[0].off);
    word = pm_load64(&s->t->pm, off);
    pm_apply_release(s->s, &t->record); /* as if its peer had replaced an applied record */
    assert_int_equal(pm_load64(&s->t->pm, off), word);
    ts_store_delete(&s);
}

static void untouched_lock__item_and_bucket__get_the_next_version(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w = PUT(0, 11);
    struct ts_slot *t = &s->slot[1];
    struct pm_record_writer writer;
    struct pm_place place;
    struct ts_place p, q;
    struct cn_txid id = {.count = 1};
    uint64_t off[2];

    (void)state;
    assert_int_equal(ts_store_lookup(s, 1, &p), TS_FOUND);
    off[0] = p.item;
    off[1] = p.bucket;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0);
    /* Instead of that record: one that writes nothing and holds an item and a bucket. */
    pm_record_begin(&writer, t->buf, TS_RECORD_MAX);
    pm_record_add_participant(&writer, 1, 0, 0, 1, t->slot.epoch, t->seq + 1);
    pm_record_add_lock(&writer, le64_get(t->record.lock[0].off), le64_get(t->record.lock[0].base));
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t word = pm_load64(&s->t->pm, off[i]);

        pm_record_add_lock(&writer, off[i], word);
        pm_store64(&s->t->pm, off[i], pm_word_make_locked(s->t->pool.tag, 1, word));
    }
    place = pm_slot_place(&s->t->pool, &t->slot, t->tail);
    t->size = pm_record_end(&writer, PM_RECORD_TX, &id, t->seq + 1, 0, &place);
    assert_int_equal(pm_record_check(t->buf, t->size, &place, 1, &t->record), 0);
    t->write_count = 0;
    ts_store_advance(s, 1);
    ts_store_advance(s, 1);          /* body */
    pm_apply_body(s->s, &t->record); /* repeatable */
    assert_int_equal(pm_apply_check(s->s, &t->record, 1, PM_APPLY_REPLAY), 0);
    while (t->phase != TS_IDLE)
        ts_store_advance(s, 1);
    assert_int_equal(ts_store_lookup(s, 1, &q), TS_FOUND);
    assert_int_equal(q.item_word, p.item_word + 1);
    assert_int_equal(q.bucket_word, p.bucket_word + 1);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void unlock__own_lock_and_old_tag__are_freed_and_others_stay(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w[2] = {PUT(0, 11), PUT(1, 11)};
    struct ts_slot *t = &s->slot[1];
    uint64_t off[2], base[2];
    uint16_t old_tag = (uint16_t)(s->t->pool.tag - 1);

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, w, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        off[i] = le64_get(t->record.lock[i].off);
        base[i] = le64_get(t->record.lock[i].base);
    }
    pm_store64(&s->t->pm, off[0], pm_word_make_locked(old_tag, 2, base[0]));
    ts_pool_settle(s->t);
    pm_apply_unlock(s->s, &t->record, 1);
    pm_fence(&s->t->pm, CN_STEP_a_unlock);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pm_load64(&s->t->pm, off[i]), base[i]);
        assert_true(ts_pool_is_durable(s->t, off[i], 8));
    }
    /* Taken by another since: not touched when repeated. */
    pm_store64(&s->t->pm, off[0], pm_word_make_locked(s->t->pool.tag, 2, base[0]));
    pm_store64(&s->t->pm, off[1], base[1] + 1);
    pm_apply_unlock(s->s, &t->record, 1);
    assert_int_equal(pm_load64(&s->t->pm, off[0]), pm_word_make_locked(s->t->pool.tag, 2, base[0]));
    assert_int_equal(pm_load64(&s->t->pm, off[1]), base[1] + 1);
    ts_store_delete(&s);
}

static void unlock__repeated__takes_no_block_from_another(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w = PUT(5, 20);
    struct ts_slot *t = &s->slot[1];
    struct pm_lock_pm got;
    uint32_t count;
    uint64_t off;

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0);
    off = le64_get(t->record.block[0].off);
    pm_apply_unlock(s->s, &t->record, 1);
    assert_false(pm_heap_is_granted(s->s, 1, off));
    assert_int_equal(pm_heap_grant(s->s, 2, pm_class_for(6, 20), 1, &got, &count), 0);
    assert_int_equal(le64_get(got.off), off);
    pm_apply_unlock(s->s, &t->record, 1);
    assert_true(pm_heap_is_granted(s->s, 2, off));
    ts_store_delete(&s);
}

static void body__move__old_place_names_the_new_one(void **state)
{
    struct ts_store *s = new_plain();
    struct ts_place before, after;
    struct pm_item_view v;

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &before), TS_FOUND);
    assert_int_equal(ts_store_put(s, 1, 0, 100), 0);
    assert_int_equal(ts_store_lookup(s, 0, &after), TS_FOUND);
    pm_item_look(pm_at(&s->t->pm, before.item), PM_ITEM_HEADER_SIZE, before.item,
        s->t->pool.crc_seed, s->t->pool.tag, &v);
    assert_int_equal(v.seen, PM_SEEN_OTHER);
    assert_int_equal(v.kind, PM_KIND_MOVED);
    assert_int_equal(v.moved_to.off, after.item);
    assert_int_equal(v.moved_to.class_, after.item_view.class_);
    assert_int_equal(v.version, before.item_view.version + 1);
    ts_store_delete(&s);
}

static void relock__version_is_not_base__is_refused_and_changes_nothing(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w[2] = {PUT(0, 11), PUT(1, 11)};
    struct ts_slot *t = &s->slot[1];
    uint64_t off[2], base[2];

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, w, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        off[i] = le64_get(t->record.lock[i].off);
        base[i] = le64_get(t->record.lock[i].base);
        pm_store64(&s->t->pm, off[i], base[i]);
    }
    pm_store64(&s->t->pm, off[1], base[1] + 1);
    assert_int_equal(pm_apply_relock(s->s, &t->record, 1), CAIRN_E_CORRUPT_ITEM);
    assert_int_equal(pm_load64(&s->t->pm, off[0]), base[0]);
    pm_store64(&s->t->pm, off[1], base[1]);
    assert_int_equal(pm_apply_relock(s->s, &t->record, 1), 0);
    assert_int_equal(pm_apply_relock(s->s, &t->record, 1), 0);
    assert_int_equal(pm_load64(&s->t->pm, off[0]), pm_word_make_locked(s->t->pool.tag, 1, base[0]));
    /* Two undecided records that lock one word: I7. */
    assert_int_equal(pm_apply_relock(s->s, &t->record, 2), CAIRN_E_CORRUPT_ITEM);
    ((struct pm_lock_pm *)(uintptr_t)t->record.lock)[0].off = le64_make(off[0] + 8);
    assert_int_equal(pm_apply_relock(s->s, &t->record, 1), CAIRN_E_CORRUPT_RECORD);
    ts_store_delete(&s);
}

static void done__before__old_block_is_not_granted(void **state)
{
    struct ts_store *s = new_plain();
    const struct ts_write w = DEL(0);
    struct ts_slot *t = &s->slot[1];
    struct ts_place p;
    struct pm_lock_pm got;
    uint32_t count, class_;

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    class_ = p.item_view.class_;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0);
    while (t->phase != TS_RELEASED)
        ts_store_advance(s, 1);
    /* T6: until the release is done the block is nobody's, though its header says DEAD. */
    for (uint32_t i = 0; i < 200; i++) {
        assert_int_equal(pm_heap_grant(s->s, 2, class_, 1, &got, &count), 0);
        assert_int_not_equal(le64_get(got.off), p.item);
    }
    ts_store_advance(s, 1);
    assert_int_equal(pm_heap_grant(s->s, 2, class_, 1, &got, &count), 0);
    assert_int_equal(le64_get(got.off), p.item);
    assert_int_equal(le64_get(got.base), p.item_view.version + 1);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apply__random_work_and_crashes__model_and_fsck_agree),
        cmocka_unit_test(apply__crash_at_every_event__store_is_whole),
        cmocka_unit_test(body__already_right_but_only_in_cache__is_flushed),
        cmocka_unit_test(release__newer_word__stays),
        cmocka_unit_test(release__body_behind__word_is_not_set),
        cmocka_unit_test(untouched_lock__item_and_bucket__get_the_next_version),
        cmocka_unit_test(unlock__own_lock_and_old_tag__are_freed_and_others_stay),
        cmocka_unit_test(unlock__repeated__takes_no_block_from_another),
        cmocka_unit_test(body__move__old_place_names_the_new_one),
        cmocka_unit_test(relock__version_is_not_base__is_refused_and_changes_nothing),
        cmocka_unit_test(done__before__old_block_is_not_granted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
