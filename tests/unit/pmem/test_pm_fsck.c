/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: fsck finds each kind of damage and nothing else.
 * Method: a store with a few hundred operations behind it; one thing in it spoilt at a time.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static struct ts_store *new_store(void)
{
    struct ts_store *s = ts_store_new(NULL, 0, 4);

    for (uint32_t i = 0; i < 200; i++)
        ts_store_step(s);
    ts_store_drain(s);
    for (uint32_t key = 0; key < 12; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    ts_store_check(s);
    return s;
}

static char found[512];
static void remember(void *arg, enum pm_fsck_severity severity, const char *text)
{
    (void)arg;
    if (severity == PM_FSCK_DAMAGE && found[0] == 0)
        snprintf(found, sizeof(found), "%s", text);
}

static struct pm_fsck_report check(struct ts_store *s)
{
    const struct pm_fsck_options o = {.report = remember};
    struct pm_fsck_report r;

    found[0] = 0;
    assert_int_equal(pm_fsck(&s->t->pool, &o, &r), 0);
    return r;
}

struct spoil {
    struct ts_store *s;
    struct pm *pm;
    struct ts_place p; /* of key 0 */
    struct pm_bucket_pm *b;
    struct pm_item_pm *i;
    uint32_t seed;
};

static void fix_bucket(struct spoil *x)
{
    pm_bucket_finish(x->b, x->p.bucket, pm_word_version(x->p.bucket_word), x->seed);
}
static uint32_t slot_of_key_0(struct spoil *x)
{
    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++) {
        if (pm_slot_ref_unpack(le64_get(x->b->slot[k])).off == x->p.item)
            return k;
    }
    fail();
    return 0;
}
static uint32_t empty_slot(struct spoil *x)
{
    for (uint32_t k = 0; k < 4; k++) {
        if (x->b->slot[k].le == 0)
            return k;
    }
    return 4;
}

static void descriptor(struct spoil *x)
{
    pm_store64(x->pm, pm_chunk_desc_off(&x->s->s->c, (uint32_t)(x->p.item >> 12)) + 8, 1);
}
static void root_crc(struct spoil *x)
{
    pm_store64(x->pm, pm_store_index(x->s->s, 1, 0)->off + 32, 1);
}
static void map_entry(struct spoil *x)
{
    pm_store64(x->pm, pm_store_index(x->s->s, 1, 0)->off + PM_INDEX_MAP_OFF + 8 * 200, 4096);
}
static void root_place(struct spoil *x)
{
    uint64_t off = pm_store_index(x->s->s, 1, 0)->off;

    /* A second root of one index, in a place of its own if the chunk has one; else over the map. */
    if (x->s->s->c.roots_per_chunk > 1)
        pm_store64(x->pm, off + x->s->s->c.root_size + 8, 1);
    else
        pm_store64(x->pm, off + PM_INDEX_MAP_OFF + 8 * 255, 1);
}
static void bucket_crc(struct spoil *x)
{
    x->b->number.le ^= 1;
}
static void bucket_number(struct spoil *x)
{
    x->b->number.le ^= 1;
    fix_bucket(x);
}
static void bucket_count(struct spoil *x)
{
    x->b->count.le++;
    x->b->head.crc = le32_make(pm_object_crc(x->b, 512, x->p.bucket, x->seed));
}
static void bucket_version(struct spoil *x)
{
    x->b->head.word.le++;
}
static void bucket_depth(struct spoil *x)
{
    uint64_t meta = le64_get(x->b->head.meta);

    x->b->head.meta = le64_make(pm_meta_make(meta, PM_KIND_BUCKET, pm_meta_sub(meta) + 1));
    fix_bucket(x);
}
static void bucket_gone(struct spoil *x)
{
    memset(x->b, 0, 512);
}
static void slot_gone(struct spoil *x)
{
    x->b->slot[slot_of_key_0(x)].le = 0;
    fix_bucket(x);
}
static void slot_twice(struct spoil *x)
{
    x->b->slot[empty_slot(x)] = x->b->slot[slot_of_key_0(x)];
    fix_bucket(x);
}
static void slot_nowhere(struct spoil *x)
{
    x->b->slot[empty_slot(x)] = le64_make(pm_slot_ref_pack(4096, 0, 1));
    fix_bucket(x);
}
static void slot_beyond(struct spoil *x)
{
    x->b->slot[9] = x->b->slot[slot_of_key_0(x)];
    x->b->slot[slot_of_key_0(x)].le = 0;
    fix_bucket(x);
}
static void slot_fingerprint(struct spoil *x)
{
    x->b->slot[slot_of_key_0(x)].le ^= 1;
    fix_bucket(x);
}
static void slot_class(struct spoil *x)
{
    uint32_t k = slot_of_key_0(x);

    x->b->slot[k] = le64_make(le64_get(x->b->slot[k]) ^ 1 << 16);
    fix_bucket(x);
}
static void item_crc(struct spoil *x)
{
    ((uint8_t *)x->i)[41] ^= 1;
}
static void item_version(struct spoil *x)
{
    x->i->head.word.le++;
}
static void item_index(struct spoil *x)
{
    x->i->head.index = le32_make(7);
    x->i->head.crc = le32_make(pm_object_crc(x->i,
        pm_item_size(le16_get(x->i->key_size), le32_get(x->i->value_size)), x->p.item, x->seed));
}
static void item_dead(struct spoil *x)
{
    x->i->head.meta = le64_make(
        pm_meta_make(x->p.item_view.version, PM_KIND_DEAD, x->p.item_view.class_));
    x->i->head.crc = le32_make(pm_object_crc(x->i, sizeof(*x->i), x->p.item, x->seed));
}
static void word_owner(struct spoil *x)
{
    x->i->head.word = le64_make(x->p.item_word | UINT64_C(3) << 40);
}
static void free_block(struct spoil *x)
{
    struct pm_lock_pm got;
    uint32_t count;

    assert_int_equal(pm_heap_grant(x->s->s, 1, 0, 1, &got, &count), 0);
    pm_store64(x->pm, le64_get(got.off) + 24, 9);
}
static void key_twice(struct spoil *x)
{
    struct pm_lock_pm got;
    uint32_t count;
    uint8_t *copy;
    uint64_t off;
    uint32_t size = pm_item_size(x->p.item_view.key_size, x->p.item_view.value_size);
    uint32_t class_ = x->p.item_view.class_;

    assert_int_equal(pm_heap_grant(x->s->s, 1, class_, 1, &got, &count), 0);
    off = le64_get(got.off);
    copy = pm_at(x->pm, off);
    memcpy(copy, x->i, size);
    ((struct pm_item_pm *)(void *)copy)->head.crc = le32_make(
        pm_object_crc(copy, size, off, x->seed));
    x->b->slot[empty_slot(x)] = le64_make(
        pm_slot_ref_pack(off, (uint8_t)class_, (uint16_t)le64_get(x->b->slot[slot_of_key_0(x)])));
    fix_bucket(x);
}

static void fsck__each_damage__is_found(void **state)
{
    static const struct {
        void (*spoil)(struct spoil *);
        const char *text;
    } cases[] = {
        {descriptor, "descriptor of chunk"},
        {root_crc, "crc does not fit"},
        {map_entry, "map entry 200"},
        {root_place, ""},
        {bucket_crc, "(index 1) is corrupt"},
        {bucket_number, "(index 1) is corrupt"},
        {bucket_count, "slots and says"},
        {bucket_version, "at version"},
        {bucket_depth, ""},
        {bucket_gone, ""},
        {slot_gone, "no slot points to the item"},
        {slot_twice, "two slots point"},
        {slot_nowhere, "no block of class"},
        {slot_beyond, "uses slot 9"},
        {slot_fingerprint, "does not belong"},
        {slot_class, "no block of class"},
        {item_crc, "no whole item"},
        {item_version, "no whole item"},
        {item_index, "does not belong"},
        {item_dead, "no whole item"},
        {word_owner, "unlocked and has an owner"},
        {free_block, "neither unused nor dead"},
        {key_twice, "one key twice"},
    };

    (void)state;
    for (size_t n = 0; n < CN_ARRAY_SIZE(cases); n++) {
        struct ts_store *s = new_store();
        struct spoil x = {.s = s, .pm = &s->t->pm, .seed = s->t->pool.crc_seed};
        struct pm_fsck_report r = check(s);

        assert_int_equal(r.damages, 0);
        assert_int_equal(r.words_locked, 0);
        for (uint32_t key = 0; key < 12; key++) {
            assert_int_equal(ts_store_lookup(s, key, &x.p), TS_FOUND);
            x.b = pm_at(x.pm, x.p.bucket);
            if (empty_slot(&x) < 4)
                break;
        }
        x.i = pm_at(x.pm, x.p.item);
        cases[n].spoil(&x);
        r = check(s);
        if (r.damages == 0 || strstr(found, cases[n].text) == NULL)
            fail_msg("case %zu: wanted \"%s\", got \"%s\"", n, cases[n].text, found);
        ts_store_delete(&s);
    }
}

static void fsck__canonical__is_independent_of_order_and_place(void **state)
{
    struct ts_store *a = ts_store_new(NULL, 0, 4), *b = ts_store_new(NULL, 0, 4);
    struct pm_fsck_report ra, rb;

    (void)state;
    for (uint32_t key = 0; key < 4; key++) {
        a->values = b->values = 100 + key;
        assert_int_equal(ts_store_put(a, 1, key, 10), 0);
        a->values = b->values = 103 - key;
        assert_int_equal(ts_store_put(b, 1, 3 - key, 10), 0);
    }
    ra = check(a);
    rb = check(b);
    assert_int_equal(ra.items, 4);
    assert_int_equal(ra.canonical, rb.canonical);
    assert_int_equal(ra.canonical_values, rb.canonical_values);
    a->values = 100;
    assert_int_equal(
        ts_store_put(a, 1, 0, 10), 0); /* the same value again: only its version differs */
    ra = check(a);
    assert_int_not_equal(ra.canonical, rb.canonical);
    assert_int_equal(ra.canonical_values, rb.canonical_values);
    assert_int_equal(ts_store_put(a, 1, 0, 10), 0);
    ra = check(a);
    assert_int_not_equal(ra.canonical_values, rb.canonical_values);
    ts_store_delete(&a);
    ts_store_delete(&b);
}

static void fsck__undecided_records__explain_locks(void **state)
{
    struct ts_store *s = new_store();
    const struct ts_write w[3] = {{.key = 0}, {.key = 50, .value = {true, 1, 5}}, {.key = 1}};
    const struct pm_record *records[2] = {&s->slot[1].record, &s->slot[1].record};
    const uint16_t slots[2] = {1, 1};
    struct pm_fsck_options o = {
        .unresolved = records, .unresolved_slot = slots, .unresolved_count = 1, .report = remember};
    struct pm_fsck_report r;

    (void)state;
    s->keys = 60;
    assert_int_equal(ts_store_begin(s, 1, w, 3), 0);
    found[0] = 0;
    assert_int_equal(pm_fsck(&s->t->pool, &o, &r), 0);
    assert_string_equal(found, "");
    assert_int_equal(r.damages, 0);
    assert_int_equal(r.words_locked, s->slot[1].record.lock_count);
    o.unresolved_count = 2; /* one word in two records: I7 */
    assert_int_equal(pm_fsck(&s->t->pool, &o, &r), 0);
    assert_non_null(strstr(found, "two undecided records"));
    o.unresolved_count = 1;
    found[0] = 0;
    pm_store64(
        &s->t->pm, le64_get(records[0]->lock[0].off), le64_get(records[0]->lock[0].base) + 5);
    assert_int_equal(pm_fsck(&s->t->pool, &o, &r), 0);
    assert_non_null(strstr(found, "a record names it"));
    ts_store_delete(&s);
}

static void fsck__read_only_pool__stores_nothing(void **state)
{
    struct ts_store *s = new_store();
    struct pm_pool pool;
    struct pm pm = s->t->pm;
    struct pm_fsck_report r;
    uint64_t events = s->t->events;

    (void)state;
    pm.read_only = true;
    assert_int_equal(pm_attach(&pool, &pm, s->t->extent_off), 0);
    assert_int_equal(pm_fsck(&pool, NULL, &r), 0);
    assert_int_equal(r.damages, 0);
    assert_true(r.items > 0 && r.buckets > 0 && r.chunks > 0);
    assert_int_equal(s->t->events, events);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fsck__each_damage__is_found),
        cmocka_unit_test(fsck__canonical__is_independent_of_order_and_place),
        cmocka_unit_test(fsck__undecided_records__explain_locks),
        cmocka_unit_test(fsck__read_only_pool__stores_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
