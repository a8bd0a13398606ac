/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: pm_apply_check() refuses every record that contradicts the store.
 * Method: a good record of each shape, one thing in it (or in the store) made wrong, the check
 * asked, the thing put right again; then the good record must pass. Invariants: a check stores
 * nothing.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_record.h"
#include "tests/support/ts_store.h"

#define PUT(k, n)                                      \
    {                                                  \
        .key = (k), .value = { true, 1000 + (k), (n) } \
    }
#define DEL(k)     \
    {              \
        .key = (k) \
    }

struct case_ {
    struct ts_store *s;
    struct pm_record *r;
    struct pm_lock_pm *lock, *block;
    struct pm_write_pm *write[3]; /* update 0, delete 1, insert 5 */
    struct pm_root *root;
};

/* Locks: item 0; bucket, item 1. */
static struct case_ new_case(void)
{
    static const struct ts_write w[3] = {PUT(0, 11), DEL(1), PUT(5, 20)};
    struct case_ c = {.s = ts_store_new(NULL, 0, 9)};
    uint32_t cursor;
    struct pm_record_write decoded;

    for (uint32_t key = 0; key < 3; key++)
        assert_int_equal(ts_store_put(c.s, 1, key, 10), 0);
    assert_int_equal(ts_store_begin(c.s, 1, w, 3), 0);
    c.r = &c.s->slot[1].record;
    c.lock = (struct pm_lock_pm *)(uintptr_t)c.r->lock;
    c.block = (struct pm_lock_pm *)(uintptr_t)c.r->block;
    cursor = c.r->writes_off;
    for (uint32_t i = 0; i < 3; i++) {
        c.write[i] = (void *)(c.s->slot[1].buf + cursor);
        assert_true(pm_record_next_write(c.r, &cursor, &decoded));
    }
    c.root = c.s->s->c.root[0];
    assert_int_equal(c.r->lock_count, 3);
    assert_int_equal(c.r->block_count, 1);
    return c;
}

static uint8_t *value_of(struct pm_write_pm *w)
{
    return (uint8_t *)(w + 1) + cn_align_up(le16_get(w->key_size), 8);
}

/* ---- what can be wrong; each returns the slot that is said to have sent the record ---- */

static uint16_t lock_unaligned(struct case_ *c)
{
    c->lock[0].off.le += 8;
    return 1;
}
static uint16_t lock_inside_item(struct case_ *c)
{
    c->lock[0].off.le += 4096 - 32;
    return 1;
}
static uint16_t lock_in_superblock(struct case_ *c)
{
    c->lock[0].off = le64_make(4096);
    return 1;
}
static uint16_t lock_in_root(struct case_ *c)
{
    c->lock[0].off = le64_make(c->root->index.off);
    return 1;
}
static uint16_t lock_beyond(struct case_ *c)
{
    c->lock[0].off = le64_make(UINT64_MAX - 63);
    return 1;
}
static uint16_t lock_base_behind(struct case_ *c)
{
    c->lock[0].base.le -= 1;
    return 1;
}
static uint16_t lock_base_ahead(struct case_ *c)
{
    c->lock[0].base.le += 1;
    return 1;
}
static uint16_t lock_base_end(struct case_ *c)
{
    c->lock[0].base = le64_make(PM_VERSION_MAX);
    return 1;
}
static uint16_t lock_base_huge(struct case_ *c)
{
    c->lock[0].base = le64_make(UINT64_MAX);
    return 1;
}
static uint16_t lock_of_other_slot(struct case_ *c)
{
    (void)c;
    return 2;
}
static uint16_t lock_not_held(struct case_ *c)
{
    pm_store64(&c->s->t->pm, le64_get(c->lock[1].off), le64_get(c->lock[1].base));
    return 1;
}
static uint16_t lock_old_tag(struct case_ *c)
{
    pm_store64(&c->s->t->pm, le64_get(c->lock[1].off),
        pm_word_make_locked((uint16_t)(c->s->t->pool.tag - 1), 1, le64_get(c->lock[1].base)));
    return 1;
}
static uint16_t block_unaligned(struct case_ *c)
{
    c->block[0].off.le += 64;
    return 1;
}
static uint16_t block_in_bucket(struct case_ *c)
{
    c->block[0].off = le64_make(le64_get(c->lock[1].off) + 512);
    c->write[2]->block = c->block[0].off;
    return 1;
}
static uint16_t block_not_granted(struct case_ *c)
{
    pm_heap_return(c->s->s, le64_get(c->block[0].off));
    return 1;
}
static uint16_t block_base(struct case_ *c)
{
    c->block[0].base.le += 1;
    return 1;
}
static uint16_t block_base_end(struct case_ *c)
{
    c->block[0].base = le64_make(PM_VERSION_MAX);
    return 1;
}
static uint16_t block_alive(struct case_ *c)
{
    uint64_t meta = pm_load64(&c->s->t->pm, le64_get(c->lock[0].off) + 8);

    pm_store64(&c->s->t->pm, le64_get(c->block[0].off) + 8, meta - 1);
    return 1;
}
static uint16_t block_unlisted(struct case_ *c)
{
    c->write[2]->block.le += 64;
    return 1;
}
static uint16_t block_unused(struct case_ *c)
{
    c->write[2]->op = PM_OP_UPDATE;
    return 1;
}
static uint16_t block_class(struct case_ *c)
{
    c->write[2]->class_++;
    return 1;
}
static uint16_t block_class_none(struct case_ *c)
{
    c->write[2]->class_ = 200;
    return 1;
}
static uint16_t bucket_unlisted(struct case_ *c)
{
    c->write[2]->bucket.le += 512;
    return 1;
}
static uint16_t bucket_is_item(struct case_ *c)
{
    c->write[2]->bucket = c->lock[0].off;
    return 1;
}
static uint16_t item_unlisted(struct case_ *c)
{
    c->write[0]->item.le += 640;
    return 1;
}
static uint16_t item_is_bucket(struct case_ *c)
{
    c->write[0]->item = c->lock[1].off;
    return 1;
}
static uint16_t item_twice(struct case_ *c)
{
    c->write[1]->item = c->write[0]->item;
    return 1;
}
static uint16_t item_of_other_key(struct case_ *c)
{
    struct le64 swap = c->write[0]->item;

    c->write[0]->item = c->write[1]->item;
    c->write[1]->item = swap;
    return 1;
}
static uint16_t index_unknown(struct case_ *c)
{
    c->write[0]->index = le32_make(9);
    return 1;
}
static uint16_t index_zero(struct case_ *c)
{
    c->write[2]->index = le32_make(0);
    return 1;
}
static uint16_t hash_wrong(struct case_ *c)
{
    c->write[2]->hash.le ^= 1;
    return 1;
}
static uint16_t key_wrong(struct case_ *c)
{
    ((uint8_t *)(c->write[2] + 1))[0] ^= 1;
    return 1;
}
static uint16_t op_growth(struct case_ *c)
{
    c->write[2]->op = PM_OP_SPLIT;
    return 1;
}
static uint16_t value_too_big(struct case_ *c)
{
    c->write[0]->value_size = le32_make(pm_class_size(0)); /* the update; later writes shift */
    return 1;
}
static uint16_t fewer_writes(struct case_ *c)
{
    c->r->write_count = 5;
    return 1;
}
static uint16_t type_growth(struct case_ *c)
{
    c->r->type = PM_RECORD_GROWTH;
    return 1;
}
static uint16_t type_void(struct case_ *c)
{
    c->r->type = PM_RECORD_VOID;
    return 1;
}
static uint16_t from_slot_0(struct case_ *c)
{
    (void)c;
    return 0;
}
static uint16_t bucket_full(struct case_ *c)
{
    c->root->index.bucket_slots = 2;
    return 1;
}
static uint16_t key_exists(struct case_ *c)
{
    uint8_t key[32];
    uint32_t size = ts_key(2, key);

    c->write[2]->key_size = le16_make((uint16_t)size);
    memset(c->write[2] + 1, 0, 16);
    memcpy(c->write[2] + 1, key, size);
    c->write[2]->hash = le64_make(pm_index_hash(&c->root->index, key, size));
    return 1;
}
/* The bucket, with another body under a good crc. */
static void change_bucket(struct case_ *c, uint32_t depth, uint32_t drop_slot)
{
    struct pm_bucket_pm b;
    uint64_t off = le64_get(c->lock[1].off), version = le64_get(c->lock[1].base);

    assert_int_equal(pm_place_kind(&c->s->s->c, off), PM_KIND_BUCKET);
    memcpy(&b, pm_at(&c->s->t->pm, off), sizeof(b));
    b.head.meta = le64_make(pm_meta_make(version, PM_KIND_BUCKET, depth));
    if (drop_slot != 0)
        memset(b.slot, 0, sizeof(b.slot));
    pm_bucket_finish(&b, off, version, c->s->t->pool.crc_seed);
    memcpy((uint8_t *)pm_at(&c->s->t->pm, off) + 8, (uint8_t *)&b + 8, sizeof(b) - 8);
}
static uint16_t bucket_lacks_item(struct case_ *c)
{
    change_bucket(c, 0, 1);
    return 1;
}
static uint16_t bucket_other_range(struct case_ *c)
{
    /* So deep that bucket 0 loses the key of the insert. */
    change_bucket(c, 1 + (uint32_t)__builtin_ctzll(le64_get(c->write[2]->hash)), 0);
    return 1;
}

typedef uint16_t (*spoil_fn)(struct case_ *);

static void expect(spoil_fn spoil, int error, const char *text)
{
    struct case_ c = new_case();
    uint64_t events;
    uint16_t slot;
    int rc;

    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), 0);
    slot = spoil(&c);
    events = c.s->t->events;
    rc = pm_apply_check(c.s->s, c.r, slot, PM_APPLY_LIVE);
    if (rc != error || strstr(cairn_last_error(), text) == NULL)
        fail_msg("expected %d \"%s\", got %d: %s", error, text, rc, cairn_last_error());
    assert_int_equal(c.s->t->events, events);
    ts_store_delete(&c.s);
}

static void check__hostile_record__is_refused(void **state)
{
    static const struct {
        spoil_fn spoil;
        const char *text;
    } cases[] = {
        {lock_unaligned, "no lock word"},
        {lock_inside_item, "no lock word"},
        {lock_in_superblock, "no lock word"},
        {lock_in_root, "no lock word"},
        {lock_beyond, "no lock word"},
        {lock_base_behind, "does not hold the lock"},
        {lock_base_ahead, "does not hold the lock"},
        {lock_base_end, "at its end"},
        {lock_base_huge, "at its end"},
        {lock_of_other_slot, "does not hold the lock"},
        {lock_not_held, "does not hold the lock"},
        {lock_old_tag, "does not hold the lock"},
        {block_unaligned, "is not listed"},
        {block_in_bucket, "no block at"},
        {block_not_granted, "was not granted"},
        {block_base, "not free at base"},
        {block_base_end, "at its end"},
        {block_alive, "not free at base"},
        {block_unlisted, "is not listed"},
        {block_unused, "is not locked"},
        {block_class, "does not fit into its block"},
        {block_class_none, "does not fit into its block"},
        {bucket_unlisted, "bucket"},
        {bucket_is_item, "bucket"},
        {item_unlisted, "is not locked"},
        {item_is_bucket, "is not locked"},
        {item_twice, "two writes of the item"},
        {item_of_other_key, "another key"},
        {index_unknown, "no index"},
        {index_zero, "no index"},
        {hash_wrong, "hash is not the key's"},
        {key_wrong, "hash is not the key's"},
        {op_growth, "growth operation"},
        {fewer_writes, "fewer writes"},
        {type_growth, "a record of type"},
        {type_void, "a record of type"},
        {from_slot_0, "in ring 0"},
        {bucket_full, "no room"},
        {key_exists, "a key that exists"},
        {bucket_lacks_item, "does not hold its item"},
        {value_too_big, ""},
        {bucket_other_range, "does not cover its key"},
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        expect(cases[i].spoil, CAIRN_E_CORRUPT_RECORD, cases[i].text);
    }
}

/* More inserts than the bucket has room for, counting deletes of the same record. */
static void check__room__counts_deletes(void **state)
{
    static const struct ts_write w[3] = {DEL(0), PUT(5, 20), PUT(6, 20)};
    struct ts_store *s = ts_store_new(NULL, 0, 9);
    struct pm_record *r = &s->slot[1].record;
    struct pm_write_pm *write;

    (void)state;
    for (uint32_t key = 0; key < 3; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    /* 3 of 4 used; one goes, two come: the room counts as the bucket lies. */
    s->s->c.root[0]->index.bucket_slots = 5; /* so that the coordinator does not ask for room */
    assert_int_equal(ts_store_begin(s, 1, w, 3), 0);
    s->s->c.root[0]->index.bucket_slots = 4;
    assert_int_equal(pm_apply_check(s->s, r, 1, PM_APPLY_LIVE), 0);
    write = (void *)(s->slot[1].buf + r->writes_off);
    assert_int_equal(write->op, PM_OP_DELETE);
    write->op = PM_OP_UPDATE;
    assert_int_equal(pm_apply_check(s->s, r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    assert_non_null(strstr(cairn_last_error(), "no room"));
    ts_store_delete(&s);
}

static void check__two_inserts_of_a_key__are_refused(void **state)
{
    static const struct ts_write w[2] = {PUT(7, 20), PUT(14, 20)}; /* keys of 5 and 6 bytes */
    struct ts_store *s = ts_store_new(NULL, 0, 9);
    struct pm_record *r = &s->slot[1].record;
    struct pm_write_pm *write[2];

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, w, 2), 0);
    write[0] = (void *)(s->slot[1].buf + r->writes_off);
    write[1] = (void *)(value_of(write[0]) + cn_align_up(le32_get(write[0]->value_size), 8));
    assert_int_equal(pm_apply_check(s->s, r, 1, PM_APPLY_LIVE), 0);
    write[1]->key_size = write[0]->key_size;
    write[1]->hash = write[0]->hash;
    memcpy(write[1] + 1, write[0] + 1, 8);
    assert_int_equal(pm_apply_check(s->s, r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    assert_non_null(strstr(cairn_last_error(), "a key that exists"));
    ts_store_delete(&s);
}

static void check__two_writes_into_a_block__are_refused(void **state)
{
    static const struct ts_write w[2] = {PUT(5, 20), PUT(6, 20)};
    struct ts_store *s = ts_store_new(NULL, 0, 9);
    struct pm_record *r = &s->slot[1].record;
    struct pm_write_pm *write[2];

    (void)state;
    assert_int_equal(ts_store_begin(s, 1, w, 2), 0);
    write[0] = (void *)(s->slot[1].buf + r->writes_off);
    write[1] = (void *)(value_of(write[0]) + cn_align_up(le32_get(write[0]->value_size), 8));
    write[1]->block = write[0]->block;
    assert_int_equal(pm_apply_check(s->s, r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    assert_non_null(strstr(cairn_last_error(), "two writes into the block"));
    ts_store_delete(&s);
}

static void check__corrupt_objects__are_named(void **state)
{
    struct case_ c = new_case();
    uint64_t bucket = le64_get(c.lock[1].off), item = le64_get(c.lock[0].off), old;

    (void)state;
    old = pm_load64(&c.s->t->pm, bucket + 64);
    pm_store64(&c.s->t->pm, bucket + 64, old ^ 1);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_BUCKET);
    pm_store64(&c.s->t->pm, bucket + 64, old);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), 0);
    /* An item that is locked only: its crc would be renewed over whatever lies there. */
    c.write[0]->op = PM_OP_DELETE;
    c.write[0]->bucket = c.lock[1].off;
    c.r->write_count = 1;
    c.r->block_count = 0;
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), 0);
    item = le64_get(c.lock[2].off);
    old = pm_load64(&c.s->t->pm, item + 48);
    pm_store64(&c.s->t->pm, item + 48, old ^ 1);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_ITEM);
    pm_store64(&c.s->t->pm, item + 24, UINT32_MAX);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_ITEM);
    ts_store_delete(&c.s);
}

static void check__replay__takes_base_and_base_plus_one_only(void **state)
{
    struct case_ c = new_case();
    struct pm *pm = &c.s->t->pm;
    uint64_t item = le64_get(c.lock[0].off), block = le64_get(c.block[0].off), meta;

    (void)state;
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), 0);
    pm_heap_consume(c.s->s, block); /* no grants in replay */
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), 0);
    pm_apply_body(c.s->s, c.r);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), 0);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    meta = pm_load64(pm, item + 8);
    pm_store64(pm, item + 8, meta + 1);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), CAIRN_E_CORRUPT_RECORD);
    pm_store64(pm, item + 8, meta - 2);
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), CAIRN_E_CORRUPT_RECORD);
    pm_store64(pm, item + 8, meta);
    meta = pm_load64(pm, block + 8);
    pm_store64(pm, block + 8, pm_meta_make(pm_word_version(meta), PM_KIND_DEAD, pm_meta_sub(meta)));
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), CAIRN_E_CORRUPT_RECORD);
    pm_store64(pm, block + 8, meta);
    pm_store64(
        pm, item + 40, ~pm_load64(pm, item + 40)); /* another key: never rewritten in place */
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), CAIRN_E_CORRUPT_RECORD);
    pm_store64(pm, item + 40, ~pm_load64(pm, item + 40));
    pm_store64(
        pm, le64_get(c.lock[1].off) + 64, pm_slot_ref_pack(64, 0, 0)); /* a slot to nowhere */
    assert_int_equal(pm_apply_check(c.s->s, c.r, 1, PM_APPLY_REPLAY), CAIRN_E_CORRUPT_BUCKET);
    ts_store_delete(&c.s);
}

/* Random bytes anywhere in a record: refused, or harmless. */
static void check__random_damage__never_breaks_the_store(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        struct case_ c = new_case();
        uint8_t *b = c.s->slot[1].buf;
        uint32_t at = (uint32_t)(ts_random(&seed) % (c.s->slot[1].size - 104)) + 104;
        struct pm_place place = pm_slot_place(&c.s->t->pool, &c.s->slot[1].slot, c.s->slot[1].tail);
        struct pm_record again;
        struct pm_fsck_report report;

        b[at] ^= (uint8_t)(1u << ts_random(&seed) % 8);
        /* A peer knows the nonce and makes the crc good. */
        ts_record_mend(b, c.s->slot[1].size, &place);
        if (pm_record_check(b, c.s->slot[1].size, &place, 1, &again) == 0 &&
            pm_apply_check(c.s->s, &again, 1, PM_APPLY_LIVE) == 0) {
            pm_apply_body(c.s->s, &again);
            pm_apply_release(c.s->s, &again);
            pm_apply_done(c.s->s, &again, 1);
            assert_int_equal(pm_fsck(&c.s->t->pool, NULL, &report), 0);
            assert_int_equal(report.damages, 0);
        }
        ts_store_delete(&c.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__hostile_record__is_refused),
        cmocka_unit_test(check__room__counts_deletes),
        cmocka_unit_test(check__two_inserts_of_a_key__are_refused),
        cmocka_unit_test(check__two_writes_into_a_block__are_refused),
        cmocka_unit_test(check__corrupt_objects__are_named),
        cmocka_unit_test(check__replay__takes_base_and_base_plus_one_only),
        cmocka_unit_test(check__random_damage__never_breaks_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
