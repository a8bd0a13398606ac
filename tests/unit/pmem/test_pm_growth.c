/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: buckets split in any order, whoever holds what, and never wrongly (I1); the policy keeps
 * lookups at one bucket READ and the index small. Method: single splits with contention and broken
 * fabric; 200,000 inserts with the default geometry.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static uint64_t root_off(struct ts_store *s)
{
    return pm_store_index(s->s, 1, 0)->off;
}

static uint64_t hash_of(struct ts_store *s, uint32_t key)
{
    uint8_t bytes[32];
    uint32_t size = ts_key(key, bytes);

    return pm_index_hash(pm_store_index(s->s, 1, 0), bytes, size);
}

static struct ts_store *new_full_bucket(void)
{
    struct ts_store *s = ts_store_new(NULL, 0, 4);

    for (uint32_t key = 0; key < 4; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    return s;
}

static void room__enough__splits_nothing(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 4);
    struct pm_store_stats st;

    (void)state;
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 4), 0);
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 0), 0);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_room, 0);
    ts_store_delete(&s);
}

static void room__full_bucket__splits_until_it_fits(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct ts_place p;

    (void)state;
    for (uint32_t key = 0; key < 5; key++) {
        assert_int_equal(pm_growth_room(s->s, root_off(s), hash_of(s, key), 2), 0);
        assert_true(ts_store_lookup(s, key, &p) != TS_BUSY);
    }
    ts_store_check(s);
    ts_store_delete(&s);
}

static void room__bad_requests__are_refused(void **state)
{
    struct ts_store *s = new_full_bucket();

    (void)state;
    assert_int_equal(pm_growth_room(s->s, root_off(s) + 64, 0, 1), CAIRN_E_PROTOCOL);
    assert_int_equal(pm_growth_room(s->s, 0, 0, 1), CAIRN_E_PROTOCOL);
    ts_store_delete(&s);
}

static void room__more_than_a_bucket_holds__makes_progress_only(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct pm_store_stats st;

    (void)state;
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 1000), 0);
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 1000), 0);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_room, 2);
    ts_store_delete(&s);
}

static void room__locked_bucket__says_again(void **state)
{
    struct ts_store *s = new_full_bucket();
    const struct ts_write w = {.key = 0};

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0); /* delete: holds the bucket */
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 2), CAIRN_E_AGAIN);
    ts_store_drain(s);
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 2), 0);
    ts_store_drain(s);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void room__largest_index__says_full(void **state)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    int rc = 0;

    (void)state;
    g.root_map_max = 2; /* 16 buckets */
    s = ts_store_new(&g, 0, 4);
    for (uint32_t i = 0; rc == 0 && i < 20; i++)
        rc = pm_growth_room(s->s, root_off(s), 0, 1000);
    assert_int_equal(rc, CAIRN_E_POOL_FULL);
    assert_non_null(strstr(cairn_last_error(), "largest"));
    ts_store_check(s);
    ts_store_delete(&s);
}

static void room__version_end_and_depth__are_errors(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct pm_bucket_pm b;
    uint64_t off;
    struct ts_place p;

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    off = p.bucket;
    memcpy(&b, pm_at(&s->t->pm, off), sizeof(b));
    pm_bucket_finish(&b, off, PM_VERSION_MAX, s->t->pool.crc_seed);
    b.head.word = le64_make(PM_VERSION_MAX);
    memcpy(pm_at(&s->t->pm, off), &b, sizeof(b));
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 4), CAIRN_E_VERSION_END);
    b.head.meta = le64_make(pm_meta_make(1, PM_KIND_BUCKET, PM_DEPTH_MAX));
    pm_bucket_finish(&b, off, 1, s->t->pool.crc_seed);
    b.head.word = le64_make(1);
    memcpy(pm_at(&s->t->pm, off), &b, sizeof(b));
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 4), CAIRN_E_LIMIT);
    ts_store_delete(&s);
}

static void split__hash_of_an_item_is_wrong__stores_nothing(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct ts_place p;
    struct pm_store_stats st;

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    pm_store64(&s->t->pm, p.item + 8, pm_meta_make(1, PM_KIND_DEAD, 0));
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 4), CAIRN_E_CORRUPT_ITEM);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_room, 0);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket), p.bucket_word); /* unlocked again */
    ts_store_delete(&s);
}

static void split__child_place_taken__is_corruption(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct ts_place p;

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    pm_store64(&s->t->pm, p.bucket + 512 + 8, 1);
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 4), CAIRN_E_CORRUPT_BUCKET);
    assert_int_equal(pm_load64(&s->t->pm, p.bucket), p.bucket_word);
    ts_store_delete(&s);
}

/* After a crash before the record, both words carry an old tag of slot 0: that counts as unlocked.
 */
static void split__old_locks_of_slot_0__are_taken_over(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct ts_place p;
    uint16_t tag = (uint16_t)(s->t->pool.tag - 1);

    (void)state;
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    pm_store64(&s->t->pm, p.bucket, pm_word_make_locked(tag, 0, pm_word_version(p.bucket_word)));
    pm_store64(&s->t->pm, p.bucket + 512, pm_word_make_locked(tag, 0, 0));
    assert_int_equal(pm_growth_room(s->s, root_off(s), hash_of(s, 0), 1), 0);
    ts_store_check(s);
    ts_store_delete(&s);
}

static uint64_t stolen;
static void steal(void *arg, enum cn_step step)
{
    struct ts_pool *t = arg;

    if (step == CN_STEP_g_zero)
        pm_store64(&t->pm, stolen, pm_word_make_locked(t->pool.tag, 1, pm_load64(&t->pm, stolen)));
}

/* Between the read and the lock of the parent (a chunk is taken meanwhile) a coordinator gets it.
 */
static void split__parent_taken_after_it_was_read__says_again(void **state)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    uint64_t locked;

    (void)state;
    g.depth0 = 3; /* all of the first chunk: the child needs another */
    s = ts_store_new(&g, 0, 4);
    stolen = pm_bucket_place(&s->s->c, s->s->c.root[0], 0);
    locked = pm_word_make_locked(s->t->pool.tag, 1, pm_load64(&s->t->pm, stolen));
    s->t->env.step = steal;
    assert_int_equal(pm_growth_room(s->s, root_off(s), 0, 100), CAIRN_E_AGAIN);
    s->t->env.step = NULL;
    assert_int_equal(pm_load64(&s->t->pm, stolen), locked);
    pm_store64(&s->t->pm, stolen, pm_word_version(locked));
    ts_store_check(s);
    ts_store_delete(&s);
}

static void split__fabric_fails__holds_nothing_afterwards(void **state)
{
    struct ts_store *s = new_full_bucket();
    bool failed = false;

    (void)state;
    s->cas_fails = 2;
    for (uint32_t i = 0; i < 40; i++) {
        int rc = pm_growth_room(s->s, root_off(s), ts_random(&s->seed), 4);

        failed = failed || rc == CAIRN_E_AGAIN;
        assert_true(rc == 0 || rc == CAIRN_E_AGAIN);
    }
    assert_true(failed);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void step__nearly_full_bucket__is_split_early(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct pm_store_stats st;

    (void)state;
    while (pm_growth_step(s->s, 1) != 0)
        ;
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_early, 1);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void step__locked_bucket__comes_later(void **state)
{
    struct ts_store *s = new_full_bucket();
    struct pm_store_stats st;
    const struct ts_write w = {.key = 0};

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, &w, 1), 0);
    assert_true(pm_growth_step(s->s, 10) < 10); /* no waiting, no spinning */
    assert_int_equal(pm_growth_step(s->s, 10), 0);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_early, 0);
    assert_true(st.splits_skipped > 0);
    for (uint32_t i = 0; i < s->slot[1].record.lock_count; i++) { /* the coordinator aborts */
        const struct pm_lock_pm *l = &s->slot[1].record.lock[i];

        pm_store64(&s->t->pm, le64_get(l->off), le64_get(l->base));
    }
    s->slot[1].phase = TS_IDLE;
    assert_true(pm_growth_step(s->s, 10) > 0);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.splits_early, 1);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void sweep__locked_bucket__is_passed(void **state)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    struct pm_root *root;

    (void)state;
    g.depth0 = 2;
    s = ts_store_new(&g, 0, 4);
    root = s->s->c.root[0];
    root->index.items = 4 * 4;
    root->sweep_credit = 4 * 4;
    pm_store64(
        &s->t->pm, pm_bucket_place(&s->s->c, root, 1), pm_word_make_locked(s->t->pool.tag, 1, 1));
    assert_true(pm_growth_step(s->s, 100) >= 3);
    assert_int_equal(root->index.level, 3); /* the in-doubt bucket does not stop growth */
    assert_int_equal(root->index.sweep, 0);
    pm_store64(&s->t->pm, pm_bucket_place(&s->s->c, root, 1), 1);
    /* The next sweep meets bucket 5, not born: its parent first. */
    root->index.items = 8 * 4;
    root->sweep_credit = 4 * 20;
    while (pm_growth_step(s->s, 100) != 0)
        ;
    assert_int_equal(root->index.level, 4);
    ts_store_check(s);
    ts_store_delete(&s);
}

/* ---- the default geometry ---- */

#define MANY 200000u
#define HALF 30000u

struct load {
    struct ts_store *s;
    struct pm_root *root;
    struct pm_lock_pm block[64];
    uint32_t blocks;
};

/* An insert without the coordinator's detours: reads, CAS and record as real ones. */
static void insert_fast(struct load *l, uint64_t key)
{
    struct ts_store *s = l->s;
    struct ts_slot *t = &s->slot[1];
    uint64_t hash = pm_index_hash(&l->root->index, &key, 8), number, off;
    uint8_t value[64] = {0};
    struct pm_write_pm w = {.op = PM_OP_INSERT,
        .key_size = le16_make(8),
        .value_size = le32_make(64),
        .index = le32_make(1),
        .hash = le64_make(hash)};
    struct pm_record_writer writer;
    struct pm_place place = pm_slot_place(&s->t->pool, &t->slot, 0);
    struct cn_txid id = {.count = 1};

    if (l->blocks == 0)
        assert_int_equal(pm_heap_grant(s->s, 1, 1, 64, l->block, &l->blocks), 0);
    number = pm_index_guess(hash, l->root->index.level, l->root->index.sweep);
    for (;;) {
        off = pm_bucket_place(&s->s->c, l->root, number);
        if (off == 0 || pm_load64(&s->t->pm, off + 8) == 0)
            number = pm_bucket_parent(number);
        else if (pm_hash_number(hash, pm_meta_sub(pm_load64(&s->t->pm, off + 8))) != number)
            number = pm_hash_number(hash, pm_meta_sub(pm_load64(&s->t->pm, off + 8)));
        else
            break;
    }
    l->blocks--;
    w.bucket = le64_make(off);
    w.block = l->block[l->blocks].off;
    w.class_ = 1;
    pm_record_begin(&writer, t->buf, TS_RECORD_MAX);
    pm_record_add_participant(&writer, 1, 0, 0, 1, t->slot.epoch, 1);
    pm_record_add_lock(&writer, off, pm_load64(&s->t->pm, off));
    pm_record_add_block(&writer, le64_get(w.block), le64_get(l->block[l->blocks].base));
    (void)pm_record_add_write(&writer, &w, &key, value);
    t->size = pm_record_end(&writer, PM_RECORD_TX, &id, 1, 0, &place);
    assert_int_equal(pm_record_check(t->buf, t->size, &place, 1, &t->record), 0);
    pm_store64(&s->t->pm, off, pm_word_make_locked(s->t->pool.tag, 1, pm_load64(&s->t->pm, off)));
    if (pm_apply_check(s->s, &t->record, 1, PM_APPLY_LIVE) != 0)
        fail_msg("%s", cairn_last_error());
    pm_apply_body(s->s, &t->record);
    pm_apply_release(s->s, &t->record);
    pm_apply_done(s->s, &t->record, 1);
}

/* Mean bucket READs of cold lookups that know the current `grow`. */
static double measure_hops(struct load *l, uint64_t keys)
{
    uint64_t reads = 0, asked = 0;

    for (uint64_t key = 0; key < keys; key += 7) {
        uint64_t hash = pm_index_hash(&l->root->index, &key, 8);
        uint64_t number = pm_index_guess(hash, l->root->index.level, l->root->index.sweep);

        asked++;
        for (;;) {
            uint64_t off = pm_bucket_place(&l->s->s->c, l->root, number), meta;

            if (off == 0) {
                number = pm_bucket_parent(number); /* known from the map: no READ */
                continue;
            }
            reads++;
            meta = pm_load64(&l->s->t->pm, off + 8);
            if (meta == 0)
                number = pm_bucket_parent(number);
            else if (pm_hash_number(hash, pm_meta_sub(meta)) != number)
                number = pm_hash_number(hash, pm_meta_sub(meta));
            else
                break;
        }
    }
    return (double)reads / (double)asked;
}

static void sweep__many_inserts__one_read_per_lookup_and_a_small_index(void **state)
{
    const struct pm_geometry g = {
        .slot_count = 2, .ring_size = 64 * 1024, .window = 64, .retired_max = 16};
    struct load l = {.s = ts_store_new(&g, UINT64_C(96) << 20, 6)};
    struct pm_store_stats st;
    struct pm_fsck_report report;
    double worst = 0, sum = 0;
    uint32_t measured = 0;

    (void)state;
    l.root = l.s->s->c.root[0];
    l.s->t->pool.pm.tracer = NULL;
    l.s->t->pm.tracer = NULL;
    assert_int_equal(l.root->index.depth0, 12);
    for (uint64_t key = 0; key < MANY; key++) {
        insert_fast(&l, key);
        (void)pm_growth_step(l.s->s, 1);
        if (key > HALF && key % 5000 == 0) {
            double hops = measure_hops(&l, key);

            worst = hops > worst ? hops : worst;
            sum += hops;
            measured++;
        }
    }
    assert_int_equal(pm_fsck(&l.s->t->pool, NULL, &report), 0);
    assert_int_equal(report.damages, 0);
    assert_int_equal(report.items, MANY);
    pm_store_stats(l.s->s, &st);
    print_message("bucket READs: mean %.4f, worst %.4f; %" PRIu64 " early and %" PRIu64
                  " sweep splits; %.1f index bytes per item\n",
        sum / measured, worst, st.splits_early, st.splits_sweep,
        (double)(st.chunks_buckets << 21) / MANY);
    assert_true(sum / measured <= 1.02 && worst <= 1.07);
    assert_int_equal(st.splits_room, 0);
    assert_true((st.chunks_buckets << 21) / MANY <= 32);
    ts_store_delete(&l.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room__enough__splits_nothing),
        cmocka_unit_test(room__full_bucket__splits_until_it_fits),
        cmocka_unit_test(room__bad_requests__are_refused),
        cmocka_unit_test(room__more_than_a_bucket_holds__makes_progress_only),
        cmocka_unit_test(room__locked_bucket__says_again),
        cmocka_unit_test(room__largest_index__says_full),
        cmocka_unit_test(room__version_end_and_depth__are_errors),
        cmocka_unit_test(split__hash_of_an_item_is_wrong__stores_nothing),
        cmocka_unit_test(split__child_place_taken__is_corruption),
        cmocka_unit_test(split__old_locks_of_slot_0__are_taken_over),
        cmocka_unit_test(split__parent_taken_after_it_was_read__says_again),
        cmocka_unit_test(split__fabric_fails__holds_nothing_afterwards),
        cmocka_unit_test(step__nearly_full_bucket__is_split_early),
        cmocka_unit_test(step__locked_bucket__comes_later),
        cmocka_unit_test(sweep__locked_bucket__is_passed),
        cmocka_unit_test(sweep__many_inserts__one_read_per_lookup_and_a_small_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
