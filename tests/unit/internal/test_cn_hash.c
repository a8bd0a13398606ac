/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the key hash is SipHash-2-4, little-endian, keyed.
 * Method: vectors of the SipHash paper; libsodium; sensitivity to key and length.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sodium/crypto_shorthash_siphash24.h>

#include "include/internal/cn_base.h"

static const uint8_t key[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static void cn_siphash__paper_vector__matches(void **state)
{
    uint8_t data[15];

    (void)state;
    for (uint8_t i = 0; i < sizeof(data); i++)
        data[i] = i;
    assert_true(cn_siphash(key, data, sizeof(data)) == UINT64_C(0xa129ca6149be45e5));
    assert_true(cn_siphash(key, NULL, 0) == UINT64_C(0x726fdb47dd0e0e31));
}

/* The library's own, which takes over where keys are long. */
static void cn_siphash__any_size__as_the_library(void **state)
{
    uint8_t data[200];
    struct le64 expected;

    (void)state;
    for (uint32_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(255 - 7 * i);
    for (uint32_t size = 0; size <= sizeof(data) - 8; size++) {
        const uint8_t *at = data + size % 8; /* any alignment */
        (void)crypto_shorthash_siphash24((unsigned char *)&expected, at, size, key);
        assert_true(cn_siphash(key, at, size) == le64_get(expected));
        assert_true(cn_siphash_words(UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908),
                        at, size) == le64_get(expected));
    }
}

static void cn_siphash__other_key__differs(void **state)
{
    uint8_t other[16] = {0};

    (void)state;
    assert_true(cn_siphash(key, "a", 1) != cn_siphash(other, "a", 1));
    assert_true(cn_siphash(key, "a", 1) != cn_siphash(key, "a\0", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_siphash__paper_vector__matches),
        cmocka_unit_test(cn_siphash__any_size__as_the_library),
        cmocka_unit_test(cn_siphash__other_key__differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
