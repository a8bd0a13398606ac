/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: crc32c is the one of iSCSI and chains as documented.
 * Method: published check values, a bitwise reference, every split of a buffer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_base.h"

static uint32_t slow_crc(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void cn_crc32c__check_value__is_the_published_one(void **state)
{
    static const uint8_t zero[32];

    (void)state;
    assert_int_equal(cn_crc32c(0, "123456789", 9), 0xE3069283u);
    assert_int_equal(cn_crc32c(0, zero, sizeof(zero)), 0x8A9136AAu); /* RFC 3720, B.4 */
}

static void cn_crc32c__nothing__changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(cn_crc32c(0, NULL, 0), 0);
    assert_int_equal(cn_crc32c(0x1234567u, "", 0), 0x1234567u);
}

static void cn_crc32c__any_split__chains(void **state)
{
    uint8_t data[300];
    uint32_t whole;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(cn_mix64(i) >> 8);
    whole = slow_crc(data, sizeof(data));
    for (size_t i = 0; i <= sizeof(data); i++) {
        assert_int_equal(cn_crc32c(cn_crc32c(0, data, i), data + i, sizeof(data) - i), whole);
        assert_int_equal(cn_crc32c(0, data, i), slow_crc(data, i));
    }
}

static void cn_crc32c_behind__any_size__is_that_of_the_bytes_in_a_row(void **state)
{
    uint8_t row[16 + 600];
    const struct le64 first = le64_make(0x0123456789abcdefu), second = le64_make(42);

    (void)state;
    memcpy(row, &first, 8);
    memcpy(row + 8, &second, 8);
    for (size_t i = 16; i < sizeof(row); i++)
        row[i] = (uint8_t)(cn_mix64(i) >> 8);
    for (size_t size = 0; size <= sizeof(row) - 16; size++)
        assert_int_equal(cn_crc32c_behind(7, 0x0123456789abcdefu, 42, row + 16, size),
            cn_crc32c(7, row, 16 + size));
}

static void cn_crc32c_two__any_sizes__each_its_own(void **state)
{
    static uint8_t bytes[2][1100];

    (void)state;
    for (uint32_t i = 0; i < sizeof(bytes); i++)
        bytes[i % 2][i / 2] = (uint8_t)(i * 7 + i / 256);
    for (uint32_t i = 0; i < 4000; i++) {
        const size_t size[2] = {i * 37 % 1100, i < 1100 ? i : i * 101 % 1100};
        const void *const data[2] = {bytes[0], bytes[1]};
        uint32_t crc[2] = {i, ~i};
        cn_crc32c_two(crc, data, size);
        assert_int_equal(crc[0], cn_crc32c(i, bytes[0], size[0]));
        assert_int_equal(crc[1], cn_crc32c(~i, bytes[1], size[1]));
    }
}

static void cn_crc64__check_value_and_splits__as_published(void **state)
{
    const char *digits = "123456789";

    (void)state;
    for (size_t i = 0; i <= 9; i++) /* CRC-64/XZ */
        assert_true(cn_crc64(cn_crc64(0, digits, i), digits + i, 9 - i) ==
            UINT64_C(0x995DC9BBDF1939FA));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_crc32c__check_value__is_the_published_one),
        cmocka_unit_test(cn_crc32c__nothing__changes_nothing),
        cmocka_unit_test(cn_crc32c__any_split__chains),
        cmocka_unit_test(cn_crc32c_behind__any_size__is_that_of_the_bytes_in_a_row),
        cmocka_unit_test(cn_crc32c_two__any_sizes__each_its_own),
        cmocka_unit_test(cn_crc64__check_value_and_splits__as_published),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
