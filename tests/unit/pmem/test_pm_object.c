/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what is accepted is whole, unlocked and in its place; everything else has the right name.
 * Method: images made by the code, each byte flipped; golden bytes for the formats.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_object.h"

#define OFF UINT64_C(0x40000)
#define SEED 77u
#define TAG 5u

static void set_word(void *object, uint64_t word)
{
    struct le64 v = le64_make(word);

    memcpy(object, &v, sizeof(v));
}

static uint32_t make(uint8_t *buf, uint64_t version)
{
    uint32_t size = pm_item_make(buf, OFF, SEED, version, 2, 9, 0x1234, "key", 3, "value", 5);

    set_word(buf, version);
    return size;
}

static void classes__sizes__are_those_of_the_layout(void **state)
{
    (void)state;
    assert_int_equal(pm_class_size(0), 64);
    assert_int_equal(pm_class_size(20), 69632);
    assert_int_equal(pm_class_size(21), 0);
    assert_int_equal(pm_class_size(PM_CLASS_COUNT), 0);
    assert_int_equal(pm_class_size(UINT32_MAX), 0);
    assert_int_equal(pm_item_size(3, 5), 40 + 8 + 5);
    assert_int_equal(pm_class_for(8, 16), 0);
    assert_int_equal(pm_class_for(8, 17), 1);
    assert_int_equal(pm_class_for(255, 65536), 20);
    assert_int_equal(pm_class_for(1024, 65536 + 3000), 20);
    assert_int_equal(pm_class_for(1024, 65536 + 3033), PM_CLASS_COUNT);
    assert_int_equal(pm_class_for(UINT32_MAX, UINT32_MAX), PM_CLASS_COUNT);
    for (uint32_t c = 1; c < PM_CLASS_COUNT - 1; c++)
        assert_true(pm_class_size(c) > pm_class_size(c - 1));
}

static void slot_ref__pack_and_unpack__are_inverse(void **state)
{
    uint64_t packed = pm_slot_ref_pack(UINT64_C(0x1fedcba98740), 20, 0xabcd);
    struct pm_slot_ref ref = pm_slot_ref_unpack(packed);

    (void)state;
    assert_int_equal(packed, UINT64_C(0x1fedcba98740) / 64 << 21 | 20 << 16 | 0xabcd);
    assert_int_equal(ref.off, UINT64_C(0x1fedcba98740));
    assert_int_equal(ref.class_, 20);
    assert_int_equal(ref.fingerprint, 0xabcd);
}

static void item_look__good_item__is_accepted(void **state)
{
    uint8_t buf[192];
    struct pm_item_view v;
    uint32_t size = make(buf, 7);

    (void)state;
    assert_int_equal(size, 53);
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_OK);
    assert_int_equal(v.version, 7);
    assert_int_equal(v.index, 9);
    assert_int_equal(v.class_, 2);
    assert_int_equal(v.hash, 0x1234);
    assert_int_equal(v.key_size, 3);
    assert_memory_equal(v.key, "key", 3);
    assert_int_equal(v.value_size, 5);
    assert_memory_equal(v.value, "value", 5);
}

static void item_look__any_bit_flipped__is_not_accepted(void **state)
{
    uint8_t buf[192];
    struct pm_item_view v;
    uint32_t size = make(buf, 7);

    (void)state;
    for (uint32_t bit = 0; bit < size * 8; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        pm_item_look(buf, size, OFF, SEED, TAG, &v);
        /* Of the word only the version and, in the current tag, the lock count. */
        if (bit < 40 || bit >= 64)
            assert_int_not_equal(v.seen, PM_SEEN_OK);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    pm_item_look(buf, size, OFF + 64, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
    pm_item_look(buf, size, OFF, SEED + 1, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
}

static void item_look__locks__count_by_tag(void **state)
{
    uint8_t buf[192];
    struct pm_item_view v;
    uint32_t size = make(buf, 7);

    (void)state;
    set_word(buf, pm_word_make_locked(TAG, 3, 7));
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_LOCKED);
    set_word(buf, pm_word_make_locked(TAG - 1, 3, 7));
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_OK);
    set_word(buf, 6);
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
}

static void item_look__sizes__are_bounded(void **state)
{
    uint8_t buf[192];
    struct pm_item_view v;
    struct le32 huge = le32_make(UINT32_MAX);
    uint32_t size = make(buf, 7);

    (void)state;
    pm_item_look(buf, 39, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_SHORT);
    assert_int_equal(v.size_needed, 40);
    pm_item_look(buf, size - 1, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_SHORT);
    assert_int_equal(v.size_needed, size);
    memcpy(buf + 24, &huge, 4);
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
    memset(buf + 8, 0, sizeof(buf) - 8);
    pm_item_look(buf, size, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_EMPTY);
}

static void item_look__dead_and_moved__are_other(void **state)
{
    struct pm_item_pm h = {
        .head = {.index = le32_make(9)}, .hash = le64_make(pm_slot_ref_pack(0x8000, 4, 1))};
    struct pm_item_view v;

    (void)state;
    h.head.word = le64_make(8);
    h.head.meta = le64_make(pm_meta_make(8, PM_KIND_MOVED, 2));
    h.head.crc = le32_make(pm_object_crc(&h, sizeof(h), OFF, SEED));
    pm_item_look(&h, sizeof(h), OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_OTHER);
    assert_int_equal(v.kind, PM_KIND_MOVED);
    assert_int_equal(v.hash, 0);
    assert_int_equal(v.moved_to.off, 0x8000);
    assert_int_equal(v.moved_to.class_, 4);
    h.head.meta = le64_make(pm_meta_make(8, PM_KIND_DEAD, 2));
    pm_item_look(&h, sizeof(h), OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
    h.head.crc = le32_make(pm_object_crc(&h, sizeof(h), OFF, SEED));
    pm_item_look(&h, sizeof(h), OFF, SEED, TAG, &v);
    assert_int_equal(v.kind, PM_KIND_DEAD);
    h.head.meta = le64_make(pm_meta_make(8, PM_KIND_BUCKET, 2));
    h.head.crc = le32_make(pm_object_crc(&h, sizeof(h), OFF, SEED));
    pm_item_look(&h, sizeof(h), OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
}

static struct pm_bucket_pm make_bucket(void)
{
    struct pm_bucket_pm b = {
        .head = {.index = le32_make(3)}, .number = le64_make(5), .count = le16_make(1)};

    b.head.word = le64_make(4);
    b.head.meta = le64_make(pm_meta_make(4, PM_KIND_BUCKET, 3));
    b.slot[0] = le64_make(pm_slot_ref_pack(0x8000, 1, 2));
    b.head.crc = le32_make(pm_object_crc(&b, sizeof(b), OFF, SEED));
    return b;
}

static void bucket_look__good_bucket__is_accepted(void **state)
{
    struct pm_bucket_pm b = make_bucket();
    struct pm_bucket_view v;

    (void)state;
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_OK);
    assert_true(v.body_good);
    assert_int_equal(v.number, 5);
    assert_int_equal(v.depth, 3);
    assert_int_equal(v.index, 3);
    assert_int_equal(v.count, 1);
    b.head.word = le64_make(pm_word_make_locked(TAG, 1, 4));
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_LOCKED);
    assert_true(v.body_good);
    b.slot[7].le = 1;
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_LOCKED);
    assert_false(v.body_good);
}

static void bucket_look__any_bit_flipped__is_not_accepted(void **state)
{
    struct pm_bucket_pm b = make_bucket();
    struct pm_bucket_view v;

    (void)state;
    for (uint32_t bit = 64; bit < sizeof(b) * 8; bit++) {
        ((uint8_t *)&b)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        pm_bucket_look(&b, OFF, SEED, TAG, &v);
        assert_int_equal(v.seen, PM_SEEN_TORN);
        ((uint8_t *)&b)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint32_t bit = 0; bit < PM_VERSION_BITS; bit++) { /* T2: the word is not its copy's */
        b.head.word.le ^= UINT64_C(1) << bit;
        pm_bucket_look(&b, OFF, SEED, TAG, &v);
        assert_int_equal(v.seen, PM_SEEN_TORN);
        b.head.word.le ^= UINT64_C(1) << bit;
    }
    b.number = le64_make(8); /* not below 2^depth, under a good crc */
    b.head.crc = le32_make(pm_object_crc(&b, sizeof(b), OFF, SEED));
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_TORN);
    memset((uint8_t *)&b + 8, 0, sizeof(b) - 8);
    b.head.word = le64_make(pm_word_make_locked(TAG, 0, 0));
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_EMPTY); /* a child's place under lock: not born yet */
    b.slot[55].le = 1;
    pm_bucket_look(&b, OFF, SEED, TAG, &v);
    assert_int_equal(v.seen, PM_SEEN_LOCKED);
}

static struct pm_index_pm make_root(void)
{
    struct pm_index_pm r = {
        .magic = le64_make(PM_INDEX_MAGIC),
        .layout_version = le32_make(PM_LAYOUT_VERSION),
        .index = le32_make(2),
        .table = le16_make(7),
        .shard = le16_make(1),
        .kind = 1,
        .depth0 = 3,
        .bucket_slots = 56,
        .fingerprint_bits = 16,
        .map_max = le32_make(100),
        .grow = le64_make(pm_grow_make(5, 9)),
        .items = le64_make(1000),
    };

    r.crc = le32_make(pm_index_crc(&r, OFF, SEED));
    return r;
}

static void index_look__good_root__is_read(void **state)
{
    struct pm_index_pm r = make_root();
    struct pm_index index;

    (void)state;
    assert_int_equal(pm_index_look(&r, OFF, SEED, &index), 0);
    assert_int_equal(index.off, OFF);
    assert_int_equal(index.index, 2);
    assert_int_equal(index.table, 7);
    assert_int_equal(index.shard, 1);
    assert_int_equal(index.level, 5);
    assert_int_equal(index.sweep, 9);
    assert_int_equal(index.items, 1000);
    r.grow = le64_make(pm_grow_make(50, 0)); /* impossible hints: the start */
    assert_int_equal(pm_index_look(&r, OFF, SEED, &index), 0);
    assert_int_equal(index.level, 3);
    r.grow = le64_make(pm_grow_make(5, 32));
    assert_int_equal(pm_index_look(&r, OFF, SEED, &index), 0);
    assert_int_equal(index.level, 3);
    assert_int_equal(index.sweep, 0);
}

static void index_look__damage__is_an_error(void **state)
{
    struct pm_index_pm r = make_root();
    struct pm_index index;

    (void)state;
    for (uint32_t bit = 0; bit < 128 * 8; bit++) {
        int rc;

        ((uint8_t *)&r)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        rc = pm_index_look(&r, OFF, SEED, &index);
        assert_int_equal(rc, bit / 32 == 2 ? CAIRN_E_LAYOUT_VERSION : CAIRN_E_CORRUPT_INDEX);
        ((uint8_t *)&r)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(pm_index_look(&r, OFF + 64, SEED, &index), CAIRN_E_CORRUPT_INDEX);
    r.bucket_slots = 57;
    r.crc = le32_make(pm_index_crc(&r, OFF, SEED));
    assert_int_equal(pm_index_look(&r, OFF, SEED, &index), CAIRN_E_CORRUPT_INDEX);
}

static void guess__level_and_sweep__give_the_number(void **state)
{
    (void)state;
    assert_int_equal(pm_index_guess(0x13, 4, 0), 3);
    assert_int_equal(pm_index_guess(0x13, 4, 4), 0x13);
    assert_int_equal(pm_bucket_parent(0x13), 3);
    assert_int_equal(pm_bucket_parent(1), 0);
    assert_int_equal(pm_bucket_parent(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes__sizes__are_those_of_the_layout),
        cmocka_unit_test(slot_ref__pack_and_unpack__are_inverse),
        cmocka_unit_test(item_look__good_item__is_accepted),
        cmocka_unit_test(item_look__any_bit_flipped__is_not_accepted),
        cmocka_unit_test(item_look__locks__count_by_tag),
        cmocka_unit_test(item_look__sizes__are_bounded),
        cmocka_unit_test(item_look__dead_and_moved__are_other),
        cmocka_unit_test(bucket_look__good_bucket__is_accepted),
        cmocka_unit_test(bucket_look__any_bit_flipped__is_not_accepted),
        cmocka_unit_test(index_look__good_root__is_read),
        cmocka_unit_test(index_look__damage__is_an_error),
        cmocka_unit_test(guess__level_and_sweep__give_the_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
