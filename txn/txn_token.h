/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_token.h: a transaction's token: where one of its records is or would be, as text:
 *   "c1-" + hex of {coordinator 16, count 8, node 2, slot 2, epoch 8, seq 8} with leading zero
 * bytes of the integers kept, + 4 hex digits of crc32c over the bytes and the cluster uuid. At most
 * CAIRN_TOKEN_SIZE - 1 characters (base32 where hex would not fit: the implementation uses one form
 * only, documented there).
 */
#ifndef TXN_TOKEN_H
#define TXN_TOKEN_H

#include "include/internal/cn_base.h"

struct txn_token {
    struct cn_txid txid;
    uint16_t node, slot;
    uint64_t epoch, seq;
};
void txn_token_format(
    const struct txn_token *token, const struct cn_uuid *cluster, char text[CAIRN_TOKEN_SIZE]);
/* Errors: CAIRN_E_TOKEN (malformed, mistyped, or of another cluster). */
CN_MUST_CHECK int txn_token_parse(
    const char *text, const struct cn_uuid *cluster, struct txn_token *ret_token);

#endif
