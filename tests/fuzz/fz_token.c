/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: a token as text (txn_token.c), and uuids.
 * Input: flags (1), then the text (flag 1 clear), or the fields of a token and edits of its text.
 * Oracle: what is accepted is formatted to the same text again; a token that was formatted and not
 * changed is accepted with the same fields, one that was changed is not (a changed check of 16 bits
 * passes one time in 65536: then it is the text of another token).
 */
#include "txn/txn_token.h"

#include "tests/fuzz/fz_common.h"

static void parse(const char *text)
{
    char again[CAIRN_TOKEN_SIZE], uuid_text[CN_UUID_TEXT_SIZE];
    struct txn_token token;
    struct cn_uuid uuid;
    int rc = txn_token_parse(text, &fz_cluster_uuid, &token);

    FZ_NEED(rc == 0 || rc == CAIRN_E_TOKEN, "error %d", rc);
    if (rc == 0) {
        FZ_NEED(token.node != 0 && token.epoch != 0 && token.seq != 0, "it names no place");
        txn_token_format(&token, &fz_cluster_uuid, again);
        FZ_NEED(strcmp(again, text) == 0, "%s became %s", text, again);
    }
    if (cn_uuid_parse(text, &uuid)) {
        cn_uuid_format(&uuid, uuid_text);
        FZ_NEED(strcasecmp(uuid_text, text) == 0, "%s became %s", text, uuid_text);
    }
}

static void edit(struct fz_input *in)
{
    struct txn_token token = {.txid.count = fz_u64(in), .node = fz_u16(in), .slot = fz_u16(in),
        .epoch = fz_u64(in), .seq = fz_u64(in)}, parsed;
    char text[CAIRN_TOKEN_SIZE], changed[CAIRN_TOKEN_SIZE];
    bool place = token.node != 0 && token.epoch != 0 && token.seq != 0;

    token.txid.coordinator = fz_session_uuid;
    txn_token_format(&token, &fz_cluster_uuid, text);
    FZ_NEED((txn_token_parse(text, &fz_cluster_uuid, &parsed) == 0) == place, "%s", text);
    FZ_NEED(!place || (cn_txid_equal(&parsed.txid, &token.txid) && parsed.node == token.node &&
                parsed.slot == token.slot && parsed.epoch == token.epoch &&
                parsed.seq == token.seq), "other fields");
    FZ_NEED(txn_token_parse(text, &fz_pool_uuid, &parsed) == CAIRN_E_TOKEN || !place,
        "of another cluster");
    memcpy(changed, text, sizeof(text));
    while (in->left > 0) {
        uint8_t at = fz_u8(in) % (CAIRN_TOKEN_SIZE - 1);
        changed[at] = (char)fz_u8(in);
    }
    parse(fz_guard_end(1, changed, sizeof(changed)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    uint8_t flags = fz_u8(&in);
    char *text;

    if ((flags & 1) != 0) {
        edit(&in);
        return 0;
    }
    size = cn_min64(in.left, 4096);
    text = fz_guard_end(0, NULL, size + 1);
    if (size > 0)
        memcpy(text, in.at, size);
    parse(text);
    return 0;
}
