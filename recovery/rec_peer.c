/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_peer.c: connections to the other nodes, for questions about records in doubt. Made when one
 * is needed, kept while it stands, tried again with back-off. Questions are idempotent and asked
 * again, so nothing is queued here.
 */
#include "recovery/rec_internal.h"

#define RETRY_NS_MIN (10 * REC_MS)
#define RETRY_NS_MAX (1000 * REC_MS)
#define CONNECT_NS (1000 * REC_MS)
#define COMPLAIN_EVERY 64u /* tries */

void rec_peer_init(struct rec_node *node)
{
    for (uint32_t i = 0; i < node->config->node_count; i++) {
        struct rec_peer *peer = &node->peer[i];
        peer->link.kind = REC_LINK_PEER;
        peer->config = &node->config->node[i];
    }
}

struct rec_peer *rec_peer_find(struct rec_node *node, uint16_t id)
{
    for (uint32_t i = 0; i < node->config->node_count; i++)
        if (node->peer[i].config->id == id && id != node->id)
            return &node->peer[i];
    return NULL;
}

static void lost(struct rec_node *node, struct rec_peer *peer)
{
    if (peer->link.conn != NULL)
        rd_conn_delete(peer->link.conn);
    peer->link.conn = NULL;
    peer->state = REC_PEER_DOWN;
    uint64_t wait = RETRY_NS_MIN << cn_min64(peer->failures, 8);
    peer->next_try_ns = rec_now(node) + cn_min64(wait, RETRY_NS_MAX);
    peer->failures++;
}

/* Why a peer is away: the first time, and then seldom. */
static void say_down(struct rec_node *node, const struct rec_peer *peer, const char *text)
{
    if (peer->failures == 0 || peer->failures % COMPLAIN_EVERY == 0)
        cn_log(node->env, CN_LOG_WARNING, "node %u: node %u (%s) is away: %s", node->id,
            peer->config->id, peer->config->address, text);
}

static void on_down(struct rec_node *node, struct rec_peer *peer, const struct rd_event *event)
{
    if (event->size != 0)
        (void)rd_wire_refusal(event->data, event->size); /* leaves its text */
    say_down(node, peer,
        event->size != 0           ? cairn_last_error()
            : event->text != NULL  ? event->text
            : event->status != 0   ? cairn_error_name(event->status)
                                   : "connection closed");
    lost(node, peer);
}

static void connect_to(struct rec_node *node, struct rec_peer *peer)
{
    struct rd_hello_wire hello;
    uint64_t now = rec_now(node);
    if (peer->state != REC_PEER_DOWN || now < peer->next_try_ns)
        return;
    memset(&hello, 0, sizeof(hello));
    hello.magic = le32_make(RD_WIRE_MAGIC);
    hello.version = le16_make(RD_WIRE_VERSION);
    hello.role = le16_make(RD_ROLE_NODE);
    hello.cluster = node->config->cluster;
    hello.view = le32_make(node->config->view);
    hello.node = le16_make(peer->config->id);
    hello.from_node = le16_make(node->id);
    int error = rd_connect(
        node->ep, peer->config->address, &hello, sizeof(hello), now + CONNECT_NS, &peer->link.conn);
    if (error != 0) {
        say_down(node, peer, cairn_last_error());
        lost(node, peer);
        return;
    }
    peer->link.conn->user = &peer->link;
    peer->state = REC_PEER_CONNECTING;
}

bool rec_peer_send(struct rec_node *node, struct rec_peer *peer, uint32_t type, uint32_t id,
    const void *body, uint32_t size)
{
    struct rd_message_wire *head = (struct rd_message_wire *)(void *)node->message;
    if (peer->state != REC_PEER_UP) {
        connect_to(node, peer);
        return false;
    }
    head->magic = le32_make(RD_WIRE_MAGIC);
    head->type = le16_make((uint16_t)type);
    head->size = le16_make((uint16_t)size);
    head->id = le32_make(id);
    head->status = le32_make(0);
    memcpy(head + 1, body, size);
    int error = rd_send(peer->link.conn, head, (uint32_t)sizeof(*head) + size);
    if (error != 0 && error != CAIRN_E_AGAIN)
        lost(node, peer);
    return error == 0;
}

static void on_message(struct rec_node *node, struct rec_peer *peer, const struct rd_event *event)
{
    const struct rd_message_wire *head = event->data;
    if (rd_wire_check(event->data, event->size) != 0) {
        cn_log(
            node->env, CN_LOG_ERROR, "node %u dropped: %s", peer->config->id, cairn_last_error());
        lost(node, peer);
        return;
    }
    if (le16_get(head->type) == RD_MSG_ANSWER)
        rec_on_answer(node, (const struct rd_answer_wire *)(const void *)(head + 1));
    else if (le16_get(head->type) == RD_MSG_PURGE_REPLY)
        rec_on_purge_reply(node, peer, le32_get(head->id), le32_get(head->status));
}

void rec_peer_event(struct rec_node *node, struct rec_peer *peer, const struct rd_event *event)
{
    switch (event->type) {
    case RD_EV_UP:
        if (rd_wire_check_welcome(event->data, event->size, peer->config->id, false) != 0) {
            cn_log(node->env, CN_LOG_ERROR, "node %u: %s", peer->config->id, cairn_last_error());
            lost(node, peer);
            return;
        }
        peer->state = REC_PEER_UP;
        peer->failures = 0;
        for (struct rec_doubt *doubt = node->doubts; doubt != NULL; doubt = doubt->next)
            doubt->next_ask_ns = 0; /* it may have been waiting for this */
        break;
    case RD_EV_DOWN: on_down(node, peer, event); break;
    case RD_EV_MESSAGE: on_message(node, peer, event); break;
    default: break;
    }
}
