/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no bytes whatever make the checker read out of bounds or take a record that is not one.
 * Method: a valid record in a heap buffer of exactly its size (so that a sanitizer sees every
 * overrun), damaged in every field and every bit, with the crc mended and not; random bytes; wrong
 * places.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_record.h"
#include "tests/support/ts_record.h"
#include "tests/support/ts_pool.h"

static const struct pm_place place = {
    .pool = {{1}}, .slot = 3, .epoch = 9, .nonce = 77, .log_off = 640};
static const struct pm_place place0 = {
    .pool = {{1}}, .slot = 0, .epoch = 9, .nonce = 77, .log_off = 640};
static const struct cn_txid txid = {.coordinator = {{5, 6}}, .count = 42};

struct copy {
    uint8_t *bytes;
    uint32_t size;
};

#define PARTICIPANT_OFF 80u
#define LOCK_OFF (PARTICIPANT_OFF + 2 * 24)
#define BLOCK_OFF (LOCK_OFF + 3 * 16)
#define WRITE_OFF (BLOCK_OFF + 16)
#define KEY_OFF (WRITE_OFF + 56)
#define VALUE_OFF (KEY_OFF + 8)
#define END_OFF (VALUE_OFF + 16)

/* 2 participants, 3 locks, 1 block, 1 write with 3 bytes of key and 11 of value. */
static struct copy make(enum pm_record_type type)
{
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = type == PM_RECORD_GROWTH ? PM_OP_CHUNK : PM_OP_UPDATE,
        .key_size = le16_make(3), .value_size = le32_make(11), .item = le64_make(4096)};
    const struct pm_place *at = type == PM_RECORD_GROWTH ? &place0 : &place;
    struct copy c;

    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, 2, 1, 0, at->slot, 9, 11);
    pm_record_add_participant(&w, 4, 2, 0, 1, 6, 50);
    pm_record_add_lock(&w, 4096, 7);
    pm_record_add_lock(&w, 8192, 1);
    pm_record_add_lock(&w, 16384, 1);
    pm_record_add_block(&w, 512, 3);
    assert_non_null(pm_record_add_write(&w, &write, "key", "elevenbytes"));
    c.size = pm_record_end(&w, type, &txid, 11, 1, at);
    assert_int_equal(c.size, cn_align_up(END_OFF, 64));
    c.bytes = aligned_alloc(64, c.size);
    assert_non_null(c.bytes);
    memcpy(c.bytes, buf, c.size);
    return c;
}

static void mend(struct copy *c, const struct pm_place *at)
{
    ts_record_mend(c->bytes, c->size, at);
}

/* Walk all that a checked record says; the sanitizer is the judge. */
static uint64_t walk(const struct pm_record *r)
{
    uint64_t sum = 0;
    struct pm_record_write w;
    uint32_t cursor = r->writes_off, n = 0;

    for (unsigned i = 0; i < r->participant_count; i++)
        sum += le64_get(r->participant[i].seq);
    for (unsigned i = 0; i < r->lock_count; i++)
        sum += le64_get(r->lock[i].base);
    for (unsigned i = 0; i < r->block_count; i++)
        sum += le64_get(r->block[i].base);
    while (pm_record_next_write(r, &cursor, &w)) {
        n++;
        for (unsigned i = 0; i < w.key_size; i++)
            sum += w.key[i];
        for (unsigned i = 0; i < w.value_size; i++)
            sum += w.value[i];
    }
    assert_int_equal(n, r->write_count);
    return sum;
}

/* One byte changed, crc mended: refused. */
static void expect_refused(enum pm_record_type type, uint32_t off, uint8_t value)
{
    struct copy c = make(type);
    const struct pm_place *at = type == PM_RECORD_GROWTH ? &place0 : &place;
    struct pm_record r;

    assert_int_not_equal(c.bytes[off], value);
    c.bytes[off] = value;
    mend(&c, at);
    if (pm_record_check(c.bytes, c.size, at, 2, &r) != CAIRN_E_CORRUPT_RECORD)
        fail_msg("byte %u := %u was taken", off, value);
    free(c.bytes);
}

static void pm_record_check__each_field_hostile_with_good_crc__refused(void **state)
{
    static const struct { uint32_t off; uint8_t value; } cases[] = {
        {0, 0},                         /* magic */
        {4, 0}, {4, 0x41}, {4, 0x80}, {5, 0}, {5, 2}, {7, 0xff}, /* size */
        {12, 0}, {12, PM_RECORD_VOID}, {12, PM_RECORD_GROWTH}, {12, 5}, {12, 255}, /* type */
        {13, 1}, {15, 1},               /* reserved */
        {16, 0}, {16, 12}, {23, 1},     /* seq: none, or not that of the participant */
        {64, 0}, {64, 1}, {64, 3}, {65, 1}, {65, 0xff}, /* participant_count */
        {66, 0}, {66, 2}, {66, 4}, {67, 4}, {67, 0xff}, /* lock_count */
        {68, 0}, {68, 2}, {69, 2}, {69, 0xff},          /* block_count */
        {70, 0}, {70, 2}, {71, 2}, {71, 0xff},          /* write_count */
        {72, 11}, {72, 255}, {79, 1},   /* done: itself or later ones */
        {PARTICIPANT_OFF, 3},           /* node: not us */
        {PARTICIPANT_OFF + 4, 4}, {PARTICIPANT_OFF + 7, 1}, {PARTICIPANT_OFF + 8, 8},
        {PARTICIPANT_OFF + 16, 12},
        {PARTICIPANT_OFF + 24, 2},      /* the second participant is us as well, elsewhere */
        {PARTICIPANT_OFF + 24 + 7, 1},
        {WRITE_OFF, 0}, {WRITE_OFF, PM_OP_SPLIT}, {WRITE_OFF, 8}, {WRITE_OFF, 255}, /* op */
        {WRITE_OFF + 2, 0}, {WRITE_OFF + 2, 2}, {WRITE_OFF + 2, 9}, {WRITE_OFF + 3, 1},
        {WRITE_OFF + 2, 255},           /* key_size */
        {WRITE_OFF + 4, 0}, {WRITE_OFF + 4, 10}, {WRITE_OFF + 4, 0x41}, {WRITE_OFF + 6, 1},
        {WRITE_OFF + 7, 0xff}, {WRITE_OFF + 7, 0x7f}, /* value_size */
        {WRITE_OFF + 12, 1}, {WRITE_OFF + 15, 0x80},  /* reserved */
        {KEY_OFF + 3, 1}, {KEY_OFF + 7, 1},           /* padding of the key */
        {VALUE_OFF + 11, 1}, {VALUE_OFF + 15, 1},     /* of the value */
        {END_OFF, 1}, {END_OFF + 7, 1},               /* of the record */
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++)
        expect_refused(PM_RECORD_TX, cases[i].off, cases[i].value);
}

static void pm_record_check__twice_named__refused(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    struct pm_record r;

    (void)state;
    memcpy(c.bytes + LOCK_OFF + 16, c.bytes + LOCK_OFF, 8); /* a lock twice */
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    assert_non_null(strstr(cairn_last_error(), "listed twice"));
    free(c.bytes);
    c = make(PM_RECORD_TX);
    memcpy(c.bytes + BLOCK_OFF, c.bytes + LOCK_OFF, 8); /* a block that is a lock */
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    free(c.bytes);
    c = make(PM_RECORD_TX);
    memcpy(c.bytes + PARTICIPANT_OFF + 24, c.bytes + PARTICIPANT_OFF, 24); /* a participant twice */
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    c.bytes[PARTICIPANT_OFF + 24 + 2] = 9; /* another shard of the same node: fine */
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), 0);
    c.bytes[PARTICIPANT_OFF + 24] = 4;
    c.bytes[PARTICIPANT_OFF + 24 + 16] = 50;
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), 0);
    free(c.bytes);
}

/* Long lists are sorted to find what is there twice. */
static void pm_record_check__long_lists__twice_is_found(void **state)
{
    static uint8_t buf[65536] __attribute__((aligned(64)));
    struct pm_record r;

    (void)state;
    for (unsigned twice = 0; twice < 2; twice++) {
        struct pm_record_writer w;
        uint32_t size;

        pm_record_begin(&w, buf, sizeof(buf));
        pm_record_add_participant(&w, 2, 1, 0, 3, 9, 11);
        for (uint64_t i = 0; i < 900; i++)
            pm_record_add_lock(&w, cn_mix64(i), 0);
        for (uint64_t i = 0; i < 500; i++)
            pm_record_add_block(&w, twice == 1 && i == 499 ? cn_mix64(123) : cn_mix64(1000 + i), 0);
        size = pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &place);
        assert_int_not_equal(size, 0);
        assert_int_equal(pm_record_check(buf, size, &place, 2, &r),
            twice == 1 ? CAIRN_E_CORRUPT_RECORD : 0);
    }
}

static void pm_record_check__any_bit_without_mending__refused(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    struct pm_record r;

    (void)state;
    for (uint32_t bit = 0; bit < c.size * 8; bit++) {
        bool mark = bit / 8 >= 24 && bit / 8 < 32;

        c.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r),
            mark ? 0 : CAIRN_E_CORRUPT_RECORD);
        c.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(c.bytes);
}

static void pm_record_check__any_byte_mended__refused_or_walks_in_bounds(void **state)
{
    struct pm_record r;
    uint64_t sum = 0;

    (void)state;
    for (unsigned type = PM_RECORD_TX; type <= PM_RECORD_GROWTH; type += 3) {
        const struct pm_place *at = type == PM_RECORD_GROWTH ? &place0 : &place;
        struct copy c = make(type);

        assert_int_equal(pm_record_check(c.bytes, c.size, at, 2, &r), 0);
        for (uint32_t off = 0; off < c.size; off++) {
            uint8_t old = c.bytes[off];

            for (unsigned value = 0; value < 256; value++) {
                c.bytes[off] = (uint8_t)value;
                mend(&c, at);
                if (pm_record_check(c.bytes, c.size, at, 2, &r) == 0)
                    sum += r.type == PM_RECORD_PAD ? 0 : walk(&r);
            }
            c.bytes[off] = old;
        }
        free(c.bytes);
    }
    assert_true(sum != 0);
}

static void pm_record_check__many_bytes_mended__refused_or_walks_in_bounds(void **state)
{
    uint64_t seed = 1, sum = 0;
    struct pm_record r;

    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        static struct copy c;

        if (round % 1000 == 0) {
            free(c.bytes);
            c = make(PM_RECORD_TX);
        }
        for (unsigned n = 0; n < 1 + ts_random(&seed) % 3; n++) {
            uint32_t off = (uint32_t)(ts_random(&seed) % 4 == 0 ? 64 + ts_random(&seed) % 8
                                                                 : ts_random(&seed) % c.size);

            c.bytes[off] =
                (uint8_t)(ts_random(&seed) % 3 == 0 ? ts_random(&seed) : ts_random(&seed) % 4);
        }
        mend(&c, &place);
        if (pm_record_check(c.bytes, c.size, &place, 2, &r) == 0 && r.type != PM_RECORD_PAD)
            sum += walk(&r);
    }
    (void)sum;
}

static void pm_record_check__any_other_size_of_copy__refused(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    struct pm_record r;

    (void)state;
    for (uint32_t size = 0; size < c.size; size++) {
        uint8_t *part = aligned_alloc(64, cn_align_up(size + 1, 64));

        memcpy(part, c.bytes, size);
        assert_int_equal(pm_record_check(part, size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
        free(part);
    }
    free(c.bytes);
}

static void pm_record_check__longer_than_its_contents__refused(void **state)
{
    struct copy c = make(PM_RECORD_TX), longer = {.size = c.size + 64};
    struct le32 size_field = le32_make(longer.size);
    struct pm_record r;

    (void)state;
    longer.bytes = aligned_alloc(64, longer.size);
    memset(longer.bytes, 0, longer.size);
    memcpy(longer.bytes, c.bytes, c.size);
    memcpy(longer.bytes + offsetof(struct pm_record_pm, size), &size_field, sizeof(size_field));
    mend(&longer, &place);
    assert_int_equal(
        pm_record_check(longer.bytes, longer.size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    free(longer.bytes);
    free(c.bytes);
}

static void pm_record_check__another_place__refused(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    struct pm_place other[5] = {place, place, place, place, place};
    struct pm_record r;

    (void)state;
    other[0].pool.b[15] = 1;
    other[1].slot = 4;
    other[2].epoch = 8;
    other[3].nonce = 78;
    other[4].log_off += 8192;
    for (size_t i = 0; i < CN_ARRAY_SIZE(other); i++)
        assert_int_equal(
            pm_record_check(c.bytes, c.size, &other[i], 2, &r), CAIRN_E_CORRUPT_RECORD);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 4, &r), CAIRN_E_CORRUPT_RECORD);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 7, &r), CAIRN_E_CORRUPT_RECORD);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), 0);
    free(c.bytes);
}

static void pm_record_check__type_and_slot__must_agree(void **state)
{
    uint8_t buf[256] __attribute__((aligned(64)));
    struct pm_record r;
    struct copy c = make(PM_RECORD_GROWTH);

    (void)state;
    assert_int_equal(pm_record_check(c.bytes, c.size, &place0, 2, &r), 0);
    mend(&c, &place);
    assert_int_equal(pm_record_check(c.bytes, c.size, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    free(c.bytes);
    pm_record_make_void(buf, &txid, 1, 1, &place0);
    assert_int_equal(
        pm_record_check(buf, PM_RECORD_VOID_SIZE, &place0, 2, &r), CAIRN_E_CORRUPT_RECORD);
}

static void pm_record_check__pad_with_contents__refused(void **state)
{
    static const uint8_t offs[] = {13, 16, 32, 48, 56};
    uint8_t buf[64] __attribute__((aligned(64)));
    struct copy c = {buf, 64};
    struct pm_record r;

    (void)state;
    for (size_t i = 0; i < sizeof(offs); i++) {
        pm_record_make_pad(buf, 640, &place);
        buf[offs[i]] = 1;
        mend(&c, &place);
        assert_int_equal(pm_record_check(buf, 64, &place, 2, &r), CAIRN_E_CORRUPT_RECORD);
    }
}

static void pm_record_peek__random_lines__never_beyond_the_room(void **state)
{
    uint64_t seed = 7;
    unsigned taken = 0;

    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        uint64_t line[8], room = ts_random(&seed) % 100 * 64;
        struct le32 magic = le32_make(PM_RECORD_MAGIC), size_field;
        uint32_t size;

        for (unsigned i = 0; i < 8; i++)
            line[i] = ts_random(&seed);
        memcpy(line, &magic, 4);
        size_field = le32_make((uint32_t)(ts_random(&seed) % 8192));
        if (round % 2 == 0)
            memcpy((uint8_t *)line + 4, &size_field, 4);
        ((uint8_t *)line)[12] &= 7;
        size = pm_record_peek(line, room);
        assert_true(size <= room && size % 64 == 0);
        taken += size != 0;
    }
    assert_true(taken > 100);
}

/* By what it says itself; never of the place's own record, whatever else is wrong with it. */
static void pm_record_is_elsewhere__other_epoch_slot_sequence__true(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    const size_t own = PARTICIPANT_OFF;

    (void)state;
    assert_false(pm_record_is_elsewhere(c.bytes, c.size, &place, 2));
    assert_true(pm_record_is_elsewhere(c.bytes, c.size, &place, 4)); /* there it is slot 1 */
    assert_false(pm_record_is_elsewhere(c.bytes, c.size, &place, 5)); /* it says nothing of 5 */
    c.bytes[own + 4] ^= 1;
    assert_true(pm_record_is_elsewhere(c.bytes, c.size, &place, 2));
    c.bytes[own + 4] ^= 1;
    c.bytes[own + 8] ^= 1;
    assert_true(pm_record_is_elsewhere(c.bytes, c.size, &place, 2));
    c.bytes[own + 8] ^= 1;
    c.bytes[own + 16] ^= 1;
    assert_true(pm_record_is_elsewhere(c.bytes, c.size, &place, 2));
    c.bytes[own + 16] ^= 1;
    memset(c.bytes + 64, 0xff, 2); /* more participants than there is room for */
    memset(c.bytes + own, 0, 2);
    (void)pm_record_is_elsewhere(c.bytes, c.size, &place, 2); /* the sanitizer is the judge */
    c.bytes[12] = PM_RECORD_VOID;
    assert_false(pm_record_is_elsewhere(c.bytes, c.size, &place, 4));
    free(c.bytes);
}

static void pm_record_move__checked_record__says_the_same_elsewhere(void **state)
{
    struct copy c = make(PM_RECORD_TX);
    uint8_t *to = aligned_alloc(64, c.size);
    struct pm_record r;

    (void)state;
    assert_non_null(to);
    assert_null(pm_record_fault(c.bytes, c.size, &place, 2, &r));
    uint64_t sum = walk(&r);
    memcpy(to, c.bytes, c.size);
    pm_record_move(&r, to);
    memset(c.bytes, 0, c.size);
    free(c.bytes);
    assert_ptr_equal(r.head, to);
    assert_true(walk(&r) == sum);
    to[KEY_OFF] ^= 1;
    assert_non_null(pm_record_fault(to, c.size, &place, 2, &r));
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_record_check__each_field_hostile_with_good_crc__refused),
        cmocka_unit_test(pm_record_is_elsewhere__other_epoch_slot_sequence__true),
        cmocka_unit_test(pm_record_move__checked_record__says_the_same_elsewhere),
        cmocka_unit_test(pm_record_check__twice_named__refused),
        cmocka_unit_test(pm_record_check__long_lists__twice_is_found),
        cmocka_unit_test(pm_record_check__any_bit_without_mending__refused),
        cmocka_unit_test(pm_record_check__any_byte_mended__refused_or_walks_in_bounds),
        cmocka_unit_test(pm_record_check__many_bytes_mended__refused_or_walks_in_bounds),
        cmocka_unit_test(pm_record_check__any_other_size_of_copy__refused),
        cmocka_unit_test(pm_record_check__longer_than_its_contents__refused),
        cmocka_unit_test(pm_record_check__another_place__refused),
        cmocka_unit_test(pm_record_check__type_and_slot__must_agree),
        cmocka_unit_test(pm_record_check__pad_with_contents__refused),
        cmocka_unit_test(pm_record_peek__random_lines__never_beyond_the_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
