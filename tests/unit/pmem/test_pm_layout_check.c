/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the bytes on media are the documented ones. Sizes and offsets are asserted at compile time;
 * here the *contents*: what the code writes for fixed inputs has fixed checksums. A change of one
 * of these numbers is a change of the format, and needs a new layout version.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "pmem/pm_slot.h"
#include "tests/support/ts_pool.h"

#define WORD_MARK UINT64_C(0x081a5c1377856b73)
#define WORD_APPLIED UINT64_C(0x4a70373ecc0c009d)
#define WORD_TOMBSTONE UINT64_C(0xb4d1c517d020eccb)
#define RECORD_CRC 0xf486f16fu
#define SUPER_CRC 0xe13c8260u
#define SLOT_CRC 0xa5797a51u
#define RETIRED_CRC 0xec3a6b91u

static uint32_t crc_of(const struct ts_pool *t, uint64_t off, uint64_t size)
{
    return cn_crc32c(0, t->visible + off, size);
}

static void layout__words__have_fixed_values(void **state)
{
    (void)state;
    assert_true(pm_word_value(1, 2, PM_WORD_MARK) == WORD_MARK);
    assert_true(pm_word_value(1, 2, PM_WORD_APPLIED) == WORD_APPLIED);
    assert_true(pm_word_value(1, 2, PM_WORD_TOMBSTONE) == WORD_TOMBSTONE);
}

static void layout__record__has_fixed_bytes(void **state)
{
    uint8_t buf[PM_RECORD_VOID_SIZE] __attribute__((aligned(64)));
    struct pm_place place = {.pool = {{1}}, .slot = 3, .epoch = 9, .nonce = 77, .log_off = 640};
    struct cn_txid txid = {.coordinator = {{5, 6}}, .count = 42};

    (void)state;
    assert_memory_equal("CRED", &(struct le32){htole32(PM_RECORD_MAGIC)}, 4);
    pm_record_make_void(buf, &txid, 12, 3, &place);
    assert_int_equal(cn_crc32c(0, buf, sizeof(buf)), RECORD_CRC);
}

static void layout__pool__has_fixed_bytes(void **state)
{
    struct ts_pool *t = ts_pool_new(NULL, 0);
    struct pm_slot slot = {.number = 1, .state = PM_SLOT_CLOSED, .epoch = 2, .nonce = 3,
        .position_seq = 4, .position_off = 640, .closing_seq = 4};
    struct pm_retired_table *table;
    uint64_t slot_off = t->pool.super.slots_off + t->pool.super.slot_stride;

    (void)state;
    assert_memory_equal(t->visible + t->extent_off, "CARNBSB1", 8);
    assert_int_equal(crc_of(t, t->extent_off, PM_SUPER_AREA_SIZE), SUPER_CRC);
    pm_slot_store(&t->pool, &slot);
    assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, 3), 0);
    pm_slot_set_applied(&t->pool, &slot, 4);
    assert_int_equal(crc_of(t, slot_off, t->pool.super.slot_stride), SLOT_CRC);
    assert_int_equal(pm_retired_open(&t->pool, &table), 0);
    assert_int_equal(pm_retired_add(table, &slot, 5), 0);
    pm_retired_close(&table);
    assert_int_equal(crc_of(t, t->pool.super.retired_off, 128), RETIRED_CRC);
    ts_pool_delete(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout__words__have_fixed_values),
        cmocka_unit_test(layout__record__has_fixed_bytes),
        cmocka_unit_test(layout__pool__has_fixed_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
