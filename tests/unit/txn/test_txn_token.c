/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a token survives the trip through text, and a slip of any one character is found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "txn/txn_token.h"

static const struct cn_uuid cluster = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const struct txn_token sample = {
    .txid = {.coordinator = {{0xab, 0xcd, 0xef}}, .count = 77},
    .node = 3,
    .slot = 4095,
    .epoch = UINT64_C(0x1122334455667788),
    .seq = 9,
};

static void txn_token_format__any__round_trip(void **state)
{
    struct txn_token back;
    char text[CAIRN_TOKEN_SIZE];

    (void)state;
    txn_token_format(&sample, &cluster, text);
    assert_int_equal(strlen(text), CAIRN_TOKEN_SIZE - 1);
    assert_memory_equal(text, "c1-abcdef00", 11);
    assert_int_equal(txn_token_parse(text, &cluster, &back), 0);
    assert_true(cn_txid_equal(&back.txid, &sample.txid));
    assert_int_equal(back.node, 3);
    assert_int_equal(back.slot, 4095);
    assert_int_equal(back.epoch, sample.epoch);
    assert_int_equal(back.seq, 9);
}

static void txn_token_parse__one_character_wrong__refused(void **state)
{
    struct txn_token back = {.seq = 42};
    char text[CAIRN_TOKEN_SIZE], wrong[CAIRN_TOKEN_SIZE];

    (void)state;
    txn_token_format(&sample, &cluster, text);
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        for (const char *c = "0123456789abcdefxA- "; *c != '\0'; c++) {
            if (text[i] == *c)
                continue;
            memcpy(wrong, text, sizeof(text));
            wrong[i] = *c;
            assert_int_equal(txn_token_parse(wrong, &cluster, &back), CAIRN_E_TOKEN);
        }
    }
    assert_int_equal(back.seq, 42);
}

static void txn_token_parse__other_cluster__refused(void **state)
{
    struct cn_uuid other = cluster;
    struct txn_token back;
    char text[CAIRN_TOKEN_SIZE];

    (void)state;
    other.b[0] ^= 1;
    txn_token_format(&sample, &cluster, text);
    assert_int_equal(txn_token_parse(text, &other, &back), CAIRN_E_TOKEN);
    assert_non_null(strstr(cairn_last_error(), "another cluster"));
}

static void txn_token_parse__wrong_length__says_so(void **state)
{
    struct txn_token back;
    char text[CAIRN_TOKEN_SIZE + 2];

    (void)state;
    txn_token_format(&sample, &cluster, text);
    memcpy(text + CAIRN_TOKEN_SIZE - 1, "0", 2);
    assert_int_equal(txn_token_parse(text, &cluster, &back), CAIRN_E_TOKEN);
    assert_non_null(strstr(cairn_last_error(), "longer"));
    text[40] = '\0';
    assert_int_equal(txn_token_parse(text, &cluster, &back), CAIRN_E_TOKEN);
    assert_non_null(strstr(cairn_last_error(), "cut off"));
    assert_int_equal(txn_token_parse("", &cluster, &back), CAIRN_E_TOKEN);
}

static void txn_token_parse__names_no_place__refused(void **state)
{
    struct txn_token zero = sample, back;
    char text[CAIRN_TOKEN_SIZE];

    (void)state;
    zero.node = 0;
    txn_token_format(&zero, &cluster, text);
    assert_int_equal(txn_token_parse(text, &cluster, &back), CAIRN_E_TOKEN);
    zero = sample;
    zero.epoch = 0;
    txn_token_format(&zero, &cluster, text);
    assert_int_equal(txn_token_parse(text, &cluster, &back), CAIRN_E_TOKEN);
    zero = sample;
    zero.seq = 0;
    txn_token_format(&zero, &cluster, text);
    assert_int_equal(txn_token_parse(text, &cluster, &back), CAIRN_E_TOKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(txn_token_format__any__round_trip),
        cmocka_unit_test(txn_token_parse__one_character_wrong__refused),
        cmocka_unit_test(txn_token_parse__other_cluster__refused),
        cmocka_unit_test(txn_token_parse__wrong_length__says_so),
        cmocka_unit_test(txn_token_parse__names_no_place__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
