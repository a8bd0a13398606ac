/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: uuids and transaction ids have one text, and only well-formed text is taken.
 * Method: round trips; every single-character damage of a good text.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_base.h"

static const char good[] = "00112233-4455-6677-8899-aabbccddeeff";

static void cn_uuid_format__bytes__in_order(void **state)
{
    struct cn_uuid uuid;
    char text[CN_UUID_TEXT_SIZE];

    (void)state;
    for (unsigned i = 0; i < 16; i++)
        uuid.b[i] = (uint8_t)(i * 0x11);
    cn_uuid_format(&uuid, text);
    assert_string_equal(text, good);
}

static void cn_uuid_parse__good__round_trip_in_either_case(void **state)
{
    struct cn_uuid uuid;
    char text[CN_UUID_TEXT_SIZE];

    (void)state;
    assert_true(cn_uuid_parse(good, &uuid));
    cn_uuid_format(&uuid, text);
    assert_string_equal(text, good);
    assert_true(cn_uuid_parse("00112233-4455-6677-8899-AABBCCDDEEFF", &uuid));
    cn_uuid_format(&uuid, text);
    assert_string_equal(text, good);
}

static void cn_uuid_parse__malformed__refused_and_output_untouched(void **state)
{
    struct cn_uuid uuid, before;
    char text[CN_UUID_TEXT_SIZE + 1];

    (void)state;
    memset(&uuid, 0x5a, sizeof(uuid));
    before = uuid;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        memcpy(text, good, sizeof(good));
        text[i] = text[i] == '-' ? '0' : 'g';
        assert_false(cn_uuid_parse(text, &uuid));
        text[i] = '\0'; /* cut short */
        assert_false(cn_uuid_parse(text, &uuid));
    }
    (void)snprintf(text, sizeof(text), "%s0", good);
    assert_false(cn_uuid_parse(text, &uuid));
    assert_memory_equal(&uuid, &before, sizeof(uuid));
}

static void cn_txid_format__any__session_dot_count(void **state)
{
    struct cn_txid txid = {.coordinator = {{0xde, 0xad, 0xbe, 0x0f, 0x77}}, .count = UINT64_MAX};
    char text[CN_TXID_TEXT_SIZE];

    (void)state;
    assert_string_equal(cn_txid_format(&txid, text), "deadbe0f.18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_uuid_format__bytes__in_order),
        cmocka_unit_test(cn_uuid_parse__good__round_trip_in_either_case),
        cmocka_unit_test(cn_uuid_parse__malformed__refused_and_output_untouched),
        cmocka_unit_test(cn_txid_format__any__session_dot_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
