/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_message.c: messages between a context and its nodes. Requests that are waited for are in
 * ctx->request; grants are asked for ahead of need and taken whenever they come; PING is answered
 * from any poll. A malformed message ends the connection: nothing of it is used.
 */
#include "txn/txn_ctx.h"

#define QUEUE_FULL_NS 1000000u

int txn_send(struct txn_peer *peer, enum rd_message_type type, const void *body, uint32_t size,
    uint32_t *ret_id)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct {
        struct rd_message_wire head;
        uint8_t body[64];
    } m = {
        .head =
            {
                .magic = le32_make(RD_WIRE_MAGIC),
                .type = le16_make((uint16_t)type),
                .size = le16_make((uint16_t)size),
            },
    };

    CAIRN_ASSERT(size <= sizeof(m.body));
    if (++ctx->request_counter == 0)
        ctx->request_counter = 1;
    m.head.id = le32_make(ctx->request_counter);
    if (size != 0)
        memcpy(m.body, body, size);
    if (peer->state != TXN_PEER_UP)
        return cn_fail(CAIRN_E_NODE_DOWN, "node %u (%s): not connected", peer->node, peer->address);
    int rc = rd_send(peer->conn, &m, (uint32_t)sizeof(m.head) + size);
    if (rc != 0)
        return txn_peer_fail(peer, rc);
    ctx->stats.messages++;
    *ret_id = ctx->request_counter;
    return 0;
}

int txn_send_by(struct txn_peer *peer, enum rd_message_type type, const void *body, uint32_t size,
    uint64_t deadline_ns, uint32_t *ret_id)
{
    struct cairn_ctx *ctx = peer->ctx;
    uint32_t idle = 0;

    for (;;) {
        int rc = txn_send(peer, type, body, size, ret_id);
        uint64_t now = txn_now(ctx);
        if (rc != CAIRN_E_AGAIN)
            return rc;
        if (now >= deadline_ns)
            return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): does not take %s in time", peer->node,
                peer->address, rd_wire_type_name(type));
        /* That there is room again may come without an event. */
        txn_wait_some(ctx, &idle, cn_min64(deadline_ns, now + QUEUE_FULL_NS));
        if (ctx->lost != 0 && !ctx->closing)
            return txn_lost_error(ctx);
    }
}

static void answer_ping(struct txn_peer *peer, const struct rd_message_wire *ping)
{
    struct rd_message_wire pong = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(RD_MSG_PONG),
        .id = ping->id,
    };

    peer->ctx->stats.messages++;
    (void)!rd_send(peer->conn, &pong, sizeof(pong)); /* a full queue: the node asks again */
}

/* A reply: to the waiting call, or to a grant asked for ahead of need. Others are late and ignored.
 */
static void take_reply(
    struct txn_peer *peer, const struct rd_message_wire *head, const void *body, uint32_t size)
{
    struct txn_request *r = peer->ctx->request;
    uint32_t id = le32_get(head->id);
    uint32_t code = le32_get(head->status);
    int status = code <= 30000 ? -(int)code : CAIRN_E_PROTOCOL;

    if (le16_get(head->type) == RD_MSG_GRANT_REPLY) {
        for (uint32_t c = 0; c < PM_CLASS_COUNT; c++) {
            if (peer->grant_id[c] == id && id != 0)
                txn_grant_reply(peer, c, status, body, size);
        }
        return;
    }
    while (r != NULL && (r->id != id || r->peer != peer->at || r->done))
        r = r->next;
    if (r == NULL)
        return;
    r->done = true;
    r->status = status;
    r->type = le16_get(head->type);
    r->size = size;
    memcpy(r->body.bytes, body, cn_min64(size, sizeof(r->body.bytes)));
}

/* Advice: the word itself is read again. (A reply with an error has no body.) */
static void take_word(
    struct txn_peer *peer, const struct rd_message_wire *head, const uint8_t *body)
{
    struct rd_word_reply_wire reply;

    peer->word_replied = le32_get(head->id);
    peer->word_answer = 0;
    if (le16_get(head->size) != sizeof(reply))
        return;
    memcpy(&reply, body, sizeof(reply));
    peer->word_answer = le32_get(reply.answer);
}

void txn_message(struct txn_peer *peer, const void *data, uint32_t size)
{
    struct rd_message_wire head;
    const uint8_t *body = (const uint8_t *)data + sizeof(head);

    if (peer->state != TXN_PEER_UP)
        return;
    if (rd_wire_check(data, size) != 0) {
        cn_log(peer->ctx->env, CN_LOG_ERROR, "node %u (%s): %s", peer->node, peer->address,
            cairn_last_error());
        txn_peer_drop(peer, CAIRN_E_PROTOCOL);
        return;
    }
    memcpy(&head, data, sizeof(head));
    peer->ctx->stats.messages++;
    switch (le16_get(head.type)) {
    case RD_MSG_PING: answer_ping(peer, &head); break;
    case RD_MSG_CLOSE_REPLY: peer->close_replied = true; break;
    case RD_MSG_GRANT_REPLY:
    case RD_MSG_ROOM_REPLY:
    case RD_MSG_TABLE_REPLY:
    case RD_MSG_RESOLVE_REPLY: take_reply(peer, &head, body, size - (uint32_t)sizeof(head)); break;
    case RD_MSG_WORD_REPLY: take_word(peer, &head, body); break;
    default: txn_peer_drop(peer, CAIRN_E_PROTOCOL); break;
    }
}

static void forget(struct cairn_ctx *ctx, const struct txn_request *r)
{
    struct txn_request **link = &ctx->request;

    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
}

int txn_ask(struct txn_peer *peer, enum rd_message_type type, const void *body, uint32_t size,
    uint64_t deadline_ns, struct txn_request *r)
{
    struct cairn_ctx *ctx = peer->ctx;

    *r = (struct txn_request){.peer = peer->at};
    int rc = txn_send_by(peer, type, body, size, deadline_ns, &r->id);
    if (rc != 0)
        return rc;
    r->next = ctx->request;
    ctx->request = r;
    bool done = txn_wait_flag(ctx, &r->done, deadline_ns);
    forget(ctx, r);
    if (!done && ctx->lost != 0)
        return txn_lost_error(ctx);
    if (r->cut)
        return cn_fail(CAIRN_E_NODE_DOWN, "node %u (%s): no answer to %s before the session ended",
            peer->node, peer->address, rd_wire_type_name(type));
    if (!done)
        return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): no answer to %s in time", peer->node,
            peer->address, rd_wire_type_name(type));
    if (r->type != (uint32_t)type + 1)
        return cn_fail(CAIRN_E_PROTOCOL, "node %u (%s): answers %s with %s", peer->node,
            peer->address, rd_wire_type_name(type), rd_wire_type_name(r->type));
    if (r->status != 0)
        return cn_fail(r->status, "node %u (%s): answers %s to %s: %s", peer->node, peer->address,
            cairn_error_name(r->status), rd_wire_type_name(type), cairn_strerror(r->status));
    return 0;
}

uint32_t txn_ask_word(struct txn_peer *peer, uint64_t off, uint64_t word)
{
    struct rd_word_wire body = {.off = le64_make(off), .word = le64_make(word)};
    uint32_t id;

    return txn_send(peer, RD_MSG_WORD, &body, sizeof(body), &id) == 0 ? id : 0;
}
