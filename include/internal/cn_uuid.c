/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_uuid.c: the text of uuids and transaction ids. A uuid's bytes are printed in the order they
 * lie in memory: 8-4-4-4-12 hex digits, lower case. Parsing takes exactly that form, in either
 * case.
 */
#include <inttypes.h>

#include "include/internal/cn_base.h"

static const char digits[] = "0123456789abcdef";

static bool is_dash_before(unsigned byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void cn_uuid_format(const struct cn_uuid *uuid, char text[CN_UUID_TEXT_SIZE])
{
    unsigned at = 0;

    for (unsigned i = 0; i < sizeof(uuid->b); i++) {
        if (is_dash_before(i))
            text[at++] = '-';
        text[at++] = digits[uuid->b[i] >> 4];
        text[at++] = digits[uuid->b[i] & 15];
    }
    text[at] = '\0';
    CAIRN_DASSERT(at == CN_UUID_TEXT_SIZE - 1);
}

/* -1: not a hex digit. */
static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool cn_uuid_parse(const char *text, struct cn_uuid *ret_uuid)
{
    struct cn_uuid uuid;

    for (unsigned i = 0; i < sizeof(uuid.b); i++) {
        int high, low;

        if (is_dash_before(i) && *text++ != '-')
            return false;
        high = digit_value(text[0]);
        if (high < 0) /* also the end of the text: do not look further */
            return false;
        low = digit_value(text[1]);
        if (low < 0)
            return false;
        uuid.b[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return false;
    *ret_uuid = uuid;
    return true;
}

const char *cn_txid_format(const struct cn_txid *txid, char text[CN_TXID_TEXT_SIZE])
{
    const uint8_t *b = txid->coordinator.b;

    (void)snprintf(text, CN_TXID_TEXT_SIZE, "%02x%02x%02x%02x.%" PRIu64, b[0], b[1], b[2], b[3],
        txid->count);
    return text;
}
