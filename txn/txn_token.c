/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_token.c: tokens as text. One form: "c1-", then 44 bytes as 88 lower-case hex digits, then 4
 * hex digits of check: 95 characters, so that CAIRN_TOKEN_SIZE holds it with its zero. The bytes,
 * integers big-endian so that tokens read like the numbers in logs:
 *
 *     0 coordinator 16 | 16 count 8 | 24 node 2 | 26 slot 2 | 28 epoch 8 | 36 seq 8
 *
 * The check is the low 16 bits of crc32c over the bytes and the cluster's uuid: it catches slips
 * and tokens of another cluster, not forgery: what a token names is checked where it is kept.
 */
#include "txn/txn_token.h"

#define PREFIX "c1-"
#define PREFIX_SIZE 3u
#define BYTES 44u
#define CHECK_DIGITS 4u
#define TEXT_SIZE (PREFIX_SIZE + 2 * BYTES + CHECK_DIGITS)

_Static_assert(TEXT_SIZE + 1 == CAIRN_TOKEN_SIZE, "the token fits exactly");

static void put_be(uint8_t *p, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        p[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static uint64_t get_be(const uint8_t *p, unsigned size)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++)
        value = value << 8 | p[i];
    return value;
}

static void put_hex(char *text, const uint8_t *bytes, unsigned size)
{
    static const char digit[] = "0123456789abcdef";
    for (unsigned i = 0; i < size; i++) {
        text[2 * i] = digit[bytes[i] >> 4];
        text[2 * i + 1] = digit[bytes[i] & 15];
    }
}

static bool get_hex(const char *text, uint8_t *bytes, unsigned size)
{
    for (unsigned i = 0; i < 2 * size; i++) {
        unsigned v;
        if (text[i] >= '0' && text[i] <= '9')
            v = (unsigned)(text[i] - '0');
        else if (text[i] >= 'a' && text[i] <= 'f')
            v = (unsigned)(text[i] - 'a') + 10;
        else
            return false;
        bytes[i / 2] = (uint8_t)((unsigned)bytes[i / 2] << 4 | v);
    }
    return true;
}

static uint16_t check_of(const uint8_t *bytes, const struct cn_uuid *cluster)
{
    return (uint16_t)cn_crc32c(cn_crc32c(0, bytes, BYTES), cluster->b, sizeof(cluster->b));
}

void txn_token_format(
    const struct txn_token *token, const struct cn_uuid *cluster, char text[CAIRN_TOKEN_SIZE])
{
    uint8_t bytes[BYTES], check[2];

    memcpy(bytes, token->txid.coordinator.b, 16);
    put_be(bytes + 16, token->txid.count, 8);
    put_be(bytes + 24, token->node, 2);
    put_be(bytes + 26, token->slot, 2);
    put_be(bytes + 28, token->epoch, 8);
    put_be(bytes + 36, token->seq, 8);
    put_be(check, check_of(bytes, cluster), 2);
    memcpy(text, PREFIX, PREFIX_SIZE);
    put_hex(text + PREFIX_SIZE, bytes, BYTES);
    put_hex(text + PREFIX_SIZE + 2 * BYTES, check, 2);
    text[TEXT_SIZE] = '\0';
}

int txn_token_parse(const char *text, const struct cn_uuid *cluster, struct txn_token *ret_token)
{
    uint8_t bytes[BYTES] = {0}, check[2] = {0};
    struct txn_token token;

    if (strncmp(text, PREFIX, PREFIX_SIZE) != 0)
        return cn_fail(CAIRN_E_TOKEN, "not a token: it does not begin with \"" PREFIX "\"");
    size_t size = strnlen(text, TEXT_SIZE + 1);
    if (size != TEXT_SIZE)
        return cn_fail(CAIRN_E_TOKEN, "not a token: it is %s than %u characters; is it cut off?",
            size < TEXT_SIZE ? "shorter" : "longer", TEXT_SIZE);
    if (!get_hex(text + PREFIX_SIZE, bytes, BYTES) ||
        !get_hex(text + PREFIX_SIZE + 2 * BYTES, check, 2))
        return cn_fail(CAIRN_E_TOKEN, "not a token: it holds a character that is not 0-9, a-f");
    if (get_be(check, 2) != check_of(bytes, cluster))
        return cn_fail(CAIRN_E_TOKEN, "the token is mistyped, or of another cluster");
    memcpy(token.txid.coordinator.b, bytes, 16);
    token.txid.count = get_be(bytes + 16, 8);
    token.node = (uint16_t)get_be(bytes + 24, 2);
    token.slot = (uint16_t)get_be(bytes + 26, 2);
    token.epoch = get_be(bytes + 28, 8);
    token.seq = get_be(bytes + 36, 8);
    if (token.node == 0 || token.epoch == 0 || token.seq == 0)
        return cn_fail(CAIRN_E_TOKEN, "the token names no place: node, epoch or sequence is 0");
    *ret_token = token;
    return 0;
}
