/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the small copies, comparisons and zeros of cn_base.h do what memcpy, memcmp and memset do.
 * Method: every size up to some words, at every alignment, with guards around.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_base.h"

#define SIZE_MAX_TRIED 40u

static uint8_t from[64], to[64], want[64];

static void refill(void)
{
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(cn_mix64(i) >> 8 | 1);
    memset(to, 0xcc, sizeof(to));
    memset(want, 0xcc, sizeof(want));
}

static void cn_copy_small__any_size__is_memcpy(void **state)
{
    (void)state;
    for (size_t at = 0; at < 9; at++) {
        for (size_t size = 0; size <= SIZE_MAX_TRIED; size++) {
            refill();
            memcpy(want + 8, from + at, size);
            cn_copy_small(to + 8, from + at, size);
            assert_memory_equal(to, want, sizeof(to));
        }
    }
}

static void cn_copy_words__any_words__is_memcpy(void **state)
{
    (void)state;
    for (size_t size = 0; size <= SIZE_MAX_TRIED; size += 8) {
        refill();
        memcpy(want + 8, from + 3, size);
        cn_copy_words(to + 8, from + 3, size);
        assert_memory_equal(to, want, sizeof(to));
    }
}

static void cn_rest64__any_size__last_bytes_and_zeros_above(void **state)
{
    (void)state;
    refill();
    for (size_t size = 0; size <= SIZE_MAX_TRIED; size++) {
        struct le64 word = {0};
        memcpy(&word, from + 1 + (size - size % 8), size % 8);
        assert_true(cn_rest64(from + 1, size) == le64_get(word));
    }
}

static void cn_bytes_equal__one_byte_off_anywhere__is_noticed(void **state)
{
    (void)state;
    for (size_t size = 0; size <= SIZE_MAX_TRIED; size++) {
        refill();
        memcpy(to + 5, from, size);
        assert_true(cn_bytes_equal(to + 5, from, size));
        for (size_t i = 0; i < size; i++) {
            to[5 + i] ^= 0x80;
            assert_false(cn_bytes_equal(to + 5, from, size));
            to[5 + i] ^= 0x80;
        }
    }
}

static void check_zero(void *at, size_t size, const uint8_t *whole, size_t whole_size)
{
    const uint8_t *b = at;

    for (size_t i = 0; i < whole_size; i++)
        assert_int_equal(whole[i], &whole[i] >= b && &whole[i] < b + size ? 0 : 0xcc);
}

static void cn_zero__known_and_unknown_sizes__just_that(void **state)
{
    _Alignas(16) uint8_t whole[320];

    (void)state;
#define KNOWN(size)                                                                                \
    memset(whole, 0xcc, sizeof(whole));                                                            \
    cn_zero(whole + 8, size);                                                                      \
    check_zero(whole + 8, size, whole, sizeof(whole));
    KNOWN(0)
    KNOWN(8)
    KNOWN(16)
    KNOWN(24)
    KNOWN(64)
    KNOWN(136)
    KNOWN(248)
    KNOWN(256)
    KNOWN(264)
    for (volatile size_t size = 0; size <= 264; size += 8) {
        memset(whole, 0xcc, sizeof(whole));
        cn_zero(whole + 8, size);
        check_zero(whole + 8, size, whole, sizeof(whole));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_copy_small__any_size__is_memcpy),
        cmocka_unit_test(cn_copy_words__any_words__is_memcpy),
        cmocka_unit_test(cn_rest64__any_size__last_bytes_and_zeros_above),
        cmocka_unit_test(cn_bytes_equal__one_byte_off_anywhere__is_noticed),
        cmocka_unit_test(cn_zero__known_and_unknown_sizes__just_that),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
