/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what the writer makes is what the checker reads; overflows are sticky and harmless.
 * Method: round trips; every buffer size below the needed one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_record.h"

static const struct pm_place place = {
    .pool = {{1}}, .slot = 3, .epoch = 9, .nonce = 77, .log_off = 640};
static const struct cn_txid txid = {.coordinator = {{5, 6}}, .count = 42};

static uint32_t build(uint8_t *buf, uint32_t size_max)
{
    struct pm_record_writer w;
    struct pm_write_pm update = {.op = PM_OP_UPDATE, .key_size = le16_make(3),
        .value_size = le32_make(5), .index = le32_make(1), .hash = le64_make(99),
        .key_base = le64_make(7), .item = le64_make(4096)};
    struct pm_write_pm insert = {.op = PM_OP_INSERT, .class_ = 2, .key_size = le16_make(8),
        .value_size = le32_make(0), .bucket = le64_make(8192), .block = le64_make(512)};
    void *value;

    pm_record_begin(&w, buf, size_max);
    pm_record_add_participant(&w, 2, 1, 0, 3, 9, 11);
    pm_record_add_participant(&w, 4, 2, 0, 1, 6, 50);
    pm_record_add_lock(&w, 4096, 7);
    pm_record_add_lock(&w, 8192, 1);
    pm_record_add_block(&w, 512, 3);
    value = pm_record_add_write(&w, &update, "key", NULL);
    if (value != NULL)
        memcpy(value, "value", 5);
    (void)pm_record_add_write(&w, &insert, "keykey88", "");
    return pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &place);
}

static void pm_record_end__two_writes__reads_back(void **state)
{
    uint8_t buf[1024] __attribute__((aligned(64)));
    struct pm_record r;
    struct pm_record_write w;
    uint32_t size, cursor;

    (void)state;
    memset(buf, 0xcc, sizeof(buf));
    size = build(buf, sizeof(buf));
    assert_int_equal(size, cn_align_up(80 + 2 * 24 + 3 * 16 + 56 + 8 + 8 + 56 + 8, 64));
    assert_int_equal(pm_record_peek(buf, size), size);
    assert_int_equal(pm_record_peek(buf, size - 64), 0);
    assert_int_equal(pm_record_check(buf, size, &place, 2, &r), 0);
    assert_int_equal(r.type, PM_RECORD_TX);
    assert_int_equal(r.seq, 11);
    assert_int_equal(r.view, 1);
    assert_int_equal(r.log_off, 640);
    assert_true(cn_txid_equal(&r.txid, &txid));
    assert_int_equal(r.participant_count, 2);
    assert_int_equal(le16_get(r.participant[1].node), 4);
    assert_int_equal(le64_get(r.participant[1].seq), 50);
    assert_int_equal(r.lock_count, 2);
    assert_int_equal(le64_get(r.lock[1].off), 8192);
    assert_int_equal(r.block_count, 1);
    assert_int_equal(le64_get(r.block[0].base), 3);
    cursor = r.writes_off;
    assert_true(pm_record_next_write(&r, &cursor, &w));
    assert_int_equal(w.op, PM_OP_UPDATE);
    assert_int_equal(w.key_size, 3);
    assert_memory_equal(w.key, "key", 3);
    assert_memory_equal(w.value, "value", 5);
    assert_int_equal(w.hash, 99);
    assert_int_equal(w.item, 4096);
    assert_true(pm_record_next_write(&r, &cursor, &w));
    assert_int_equal(w.op, PM_OP_INSERT);
    assert_int_equal(w.class_, 2);
    assert_memory_equal(w.key, "keykey88", 8);
    assert_int_equal(w.value_size, 0);
    assert_false(pm_record_next_write(&r, &cursor, &w));
}

/* The coordinator's way: arrays opened whole, key and value padded already. */
static void pm_record_open__filled_in__same_bytes_as_added(void **state)
{
    uint8_t buf[512] __attribute__((aligned(64))), other[512] __attribute__((aligned(64)));
    static const uint8_t key[8] = "key", value[8] = "value";
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = PM_OP_UPDATE,
        .key_size = le16_make(3),
        .value_size = le32_make(5),
        .item = le64_make(4096)};
    struct pm_participant_pm *p;
    struct pm_lock_pm *l;
    struct pm_write_pm *at;

    (void)state;
    memset(buf, 0xcc, sizeof(buf));
    memset(other, 0xee, sizeof(other));
    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, 2, 1, 0, 3, 9, 11);
    pm_record_add_participant(&w, 4, 2, 0, 1, 6, 50);
    pm_record_add_lock(&w, 4096, 7);
    (void)pm_record_add_write(&w, &write, "key", "value");
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &place);
    assert_int_not_equal(size, 0);
    pm_record_begin(&w, other, sizeof(other));
    p = pm_record_open_participants(&w, 2);
    assert_non_null(p);
    pm_participant_set(&p[0], 2, 1, 0, 3, 9, 11);
    pm_participant_set(&p[1], 4, 2, 0, 1, 6, 50);
    l = pm_record_open_locks(&w, 1);
    assert_non_null(l);
    *l = pm_lock_make(4096, 7);
    at = pm_record_open_write(&w, 3, 5);
    assert_non_null(at);
    *at = write;
    pm_record_put_padded(at, key, 3, value, 5);
    struct pm_place known = place;
    known.crc = pm_place_crc(&place);
    assert_int_equal(pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &known), size);
    assert_memory_equal(buf, other, size);
    uint8_t *const both[2] = {buf, other};
    const struct pm_place elsewhere = {.slot = 5, .epoch = 6, .nonce = 7, .log_off = 64};
    const struct pm_place *const places[2] = {&elsewhere, &known};
    ((struct pm_record_pm *)(void *)other)->crc = le32_make(0);
    pm_record_sign_two((void *const *)both, places);
    assert_int_equal(le32_get(((struct pm_record_pm *)(void *)buf)->crc),
        pm_record_crc(buf, size, &elsewhere));
    pm_record_sign(buf, &place);
    assert_memory_equal(buf, other, size);
    pm_record_begin(&w, other, 100);
    assert_null(pm_record_open_participants(&w, 2));
    assert_null(pm_record_open_locks(&w, 1));
    assert_null(pm_record_open_write(&w, 3, 5));
    assert_int_equal(pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &place), 0);
}

static void pm_record_end__any_smaller_buffer__overflow_and_no_overrun(void **state)
{
    uint8_t buf[1024] __attribute__((aligned(64)));
    uint32_t size = build(buf, sizeof(buf));

    (void)state;
    for (uint32_t max = 0; max < size; max++) {
        memset(buf, 0xcc, sizeof(buf));
        assert_int_equal(build(buf, max), 0);
        for (uint32_t i = max; i < sizeof(buf); i++)
            assert_int_equal(buf[i], 0xcc);
    }
    assert_int_equal(build(buf, size), size);
}

static void pm_record_add__too_many__overflow(void **state)
{
    static uint8_t buf[PM_RECORD_SIZE_MAX] __attribute__((aligned(64)));
    struct pm_record_writer w;
    struct pm_write_pm huge = {.op = PM_OP_UPDATE, .value_size = le32_make(UINT32_MAX - 3)};

    (void)state;
    pm_record_begin(&w, buf, sizeof(buf));
    for (unsigned i = 0; i < PM_RECORD_LOCKS_MAX; i++)
        pm_record_add_lock(&w, 64 + i * 64, 0);
    assert_false(w.overflow);
    pm_record_add_lock(&w, 1, 0);
    assert_true(w.overflow);
    assert_int_equal(pm_record_end(&w, PM_RECORD_TX, &txid, 1, 1, &place), 0);
    pm_record_begin(&w, buf, sizeof(buf));
    assert_null(pm_record_open_participants(&w, PM_RECORD_PARTICIPANTS_MAX + 1));
    assert_true(w.overflow);
    pm_record_begin(&w, buf, sizeof(buf));
    assert_non_null(pm_record_open_locks(&w, PM_RECORD_LOCKS_MAX));
    assert_null(pm_record_open_locks(&w, 1));
    pm_record_begin(&w, buf, sizeof(buf));
    assert_null(pm_record_add_write(&w, &huge, "", NULL));
    assert_true(w.overflow);
}

static void pm_record_make_void__any__is_a_valid_void(void **state)
{
    uint8_t buf[PM_RECORD_VOID_SIZE + 8] __attribute__((aligned(64)));
    struct pm_record r;

    (void)state;
    memset(buf, 0xcc, sizeof(buf));
    pm_record_make_void(buf, &txid, 12, 3, &place);
    assert_int_equal(buf[PM_RECORD_VOID_SIZE], 0xcc);
    assert_int_equal(pm_record_check(buf, PM_RECORD_VOID_SIZE, &place, 1, &r), 0);
    assert_int_equal(r.type, PM_RECORD_VOID);
    assert_int_equal(r.seq, 12);
    assert_true(cn_txid_equal(&r.txid, &txid));
}

static void pm_record_make_pad__any_size__writes_one_line(void **state)
{
    uint8_t buf[192] __attribute__((aligned(64)));
    struct pm_record r;

    (void)state;
    for (uint32_t size = 64; size <= 4096; size += 64) {
        memset(buf, 0xcc, sizeof(buf));
        pm_record_make_pad(buf, size, &place);
        assert_int_equal(buf[64], 0xcc);
        assert_int_equal(pm_record_peek(buf, size), size);
        assert_int_equal(pm_record_check(buf, 64, &place, 2, &r), 0);
        assert_int_equal(r.type, PM_RECORD_PAD);
        assert_int_equal(r.size, size);
    }
}

static void pm_record_crc__mark__is_outside(void **state)
{
    uint8_t buf[1024] __attribute__((aligned(64)));
    uint32_t size = build(buf, sizeof(buf));
    struct pm_record r;

    (void)state;
    memset(buf + offsetof(struct pm_record_pm, mark), 0x77, 8);
    assert_int_equal(pm_record_check(buf, size, &place, 2, &r), 0);
}

/* A record of one participant is whole or refused: any byte, and its mark word. */
static void pm_record_end__one_participant__sealed(void **state)
{
    uint8_t buf[512] __attribute__((aligned(64))) = {0};
    struct pm_record_writer w;
    struct pm_record r;

    (void)state;
    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, 2, 1, 0, 3, 9, 11);
    pm_record_add_lock(&w, 4096, 7);
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, 11, 1, &place);
    assert_int_equal(pm_record_check(buf, size, &place, 2, &r), 0);
    assert_true(le64_get(r.head->mark) == pm_record_seal(buf, size, &place));
    for (uint32_t i = 0; i < size; i++) { /* with the crc mended: the seal alone */
        struct le32 crc, old = r.head->crc;
        if (i >= offsetof(struct pm_record_pm, crc) && i < offsetof(struct pm_record_pm, type))
            continue;
        buf[i] ^= 0x10;
        crc = le32_make(pm_record_crc(buf, size, &place));
        memcpy(buf + offsetof(struct pm_record_pm, crc), &crc, sizeof(crc));
        assert_int_not_equal(pm_record_check(buf, size, &place, 2, &r), 0);
        memcpy(buf + offsetof(struct pm_record_pm, crc), &old, sizeof(old));
        buf[i] ^= 0x10;
        assert_int_equal(pm_record_check(buf, size, &place, 2, &r), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_record_end__two_writes__reads_back),
        cmocka_unit_test(pm_record_open__filled_in__same_bytes_as_added),
        cmocka_unit_test(pm_record_end__any_smaller_buffer__overflow_and_no_overrun),
        cmocka_unit_test(pm_record_add__too_many__overflow),
        cmocka_unit_test(pm_record_make_void__any__is_a_valid_void),
        cmocka_unit_test(pm_record_make_pad__any_size__writes_one_line),
        cmocka_unit_test(pm_record_crc__mark__is_outside),
        cmocka_unit_test(pm_record_end__one_participant__sealed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
