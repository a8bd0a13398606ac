/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_peer.c: see cr_peer.h.
 */
#include "tools/crash/faults/cr_peer.h"

#define WAIT_US 3000u

void cr_peer_turn(struct cr_peer *p)
{
    struct rd_event e;
    struct rd_message_wire head;

    while (rd_poll(p->ep, &e, 1) == 1) {
        if (e.type == RD_EV_UP && e.conn == p->conn) {
            p->up = true;
            memcpy(&p->welcome, e.data, cn_min64(e.size, sizeof(p->welcome)));
        }
        if (e.type == RD_EV_COMPLETION && e.conn == p->conn)
            p->completed = e.wr_id;
        if (e.type == RD_EV_DOWN && e.conn == p->conn) {
            p->down = true;
            p->refusal = e.size != 0 ? rd_wire_refusal(e.data, e.size) : 0;
        }
        if (e.type != RD_EV_MESSAGE || e.conn != p->conn || rd_wire_check(e.data, e.size) != 0)
            continue;
        memcpy(&head, e.data, sizeof(head));
        p->type = le16_get(head.type);
        p->answer_id = le32_get(head.id);
        p->status = -(int)le32_get(head.status);
        p->body_size = le16_get(head.size);
        memcpy(p->body, (const uint8_t *)e.data + sizeof(head), p->body_size);
    }
}

void cr_peer_rest(struct cr_peer *p, uint64_t us)
{
    for (uint64_t until = p->actor->sim->now + us * SIM_US; p->actor->sim->now < until;)
        cr_peer_turn(p);
}

void cr_peer_wrong(struct cr_peer *p, const char *what, const char *have)
{
    if (p->why[0] == '\0')
        (void)snprintf(p->why, sizeof(p->why), "%.80s: %.60s", what, have);
}

void cr_peer_end(struct cr_peer *p)
{
    if (p->conn != NULL)
        rd_conn_delete(p->conn);
    p->conn = NULL;
}

void cr_peer_meet(struct cr_peer *p, const struct rd_hello_wire *hello, uint32_t size)
{
    p->up = p->down = false;
    p->refusal = 0;
    if (rd_connect(p->ep, p->stand->config.node[0].address, hello, size,
            p->actor->sim->now + 20 * SIM_MS, &p->conn) != 0) {
        cr_peer_wrong(p, "connect", cairn_last_error());
        p->down = true;
        return;
    }
    for (uint64_t until = p->actor->sim->now + 25 * SIM_MS;
         !p->up && !p->down && p->actor->sim->now < until;)
        cr_peer_turn(p);
}

struct rd_hello_wire cr_peer_hello(const struct cr_peer *p, enum rd_wire_role role)
{
    return (struct rd_hello_wire){.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .role = le16_make((uint16_t)role),
        .cluster = p->stand->config.cluster, .view = le32_make(p->stand->config.view),
        .node = le16_make(1), .from_node = le16_make(role == RD_ROLE_NODE ? 2 : 0)};
}

void cr_peer_must_meet(struct cr_peer *p, enum rd_wire_role role, uint8_t session, const char *what)
{
    struct rd_hello_wire hello = cr_peer_hello(p, role);

    hello.peer.b[0] = session;
    cr_peer_meet(p, &hello, sizeof(hello));
    if (!p->up || p->down)
        cr_peer_wrong(p, what, "no connection");
}

int cr_peer_post(struct cr_peer *p, uint32_t type, const void *body, uint32_t size)
{
    uint8_t message[sizeof(struct rd_message_wire) + 256] __attribute__((aligned(8)));
    struct rd_message_wire head = {.magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make((uint16_t)type), .size = le16_make((uint16_t)size),
        .id = le32_make(++p->id)};

    memcpy(message, &head, sizeof(head));
    memset(message + sizeof(head), 0, 256);
    if (body != NULL)
        memcpy(message + sizeof(head), body, size);
    p->type = 0;
    return rd_send(p->conn, message, (uint32_t)sizeof(head) + size);
}

void cr_peer_expect(struct cr_peer *p, uint32_t type, const void *body, uint32_t answer, int status)
{
    if (p->conn == NULL || p->down)
        return;
    if (cr_peer_post(p, type, body, rd_wire_body_size(type)) != 0)
        cr_peer_wrong(p, rd_wire_type_name(type), cairn_last_error());
    for (uint64_t until = p->actor->sim->now + WAIT_US * SIM_US;
         p->type == 0 && !p->down && p->actor->sim->now < until;)
        cr_peer_turn(p);
    if (p->type != answer || p->answer_id != p->id || p->status != status)
        cr_peer_wrong(p, rd_wire_type_name(type),
            p->down ? "connection lost"
                : p->type == 0 ? "no answer"
                : p->status == 0 ? rd_wire_type_name(p->type)
                                 : cairn_error_name(p->status));
}

void cr_peer_expect_silence(struct cr_peer *p, uint32_t type, const void *body)
{
    if (p->conn == NULL || p->down)
        return;
    (void)!cr_peer_post(p, type, body, rd_wire_body_size(type));
    cr_peer_rest(p, 300);
    if (p->type != 0 || p->down)
        cr_peer_wrong(p, rd_wire_type_name(type), p->down ? "connection lost" : "was answered");
}

void cr_peer_expect_loss(struct cr_peer *p, uint32_t type, const void *body, uint32_t size)
{
    if (p->conn == NULL || p->down)
        return;
    (void)!cr_peer_post(p, type, body, size);
    for (uint64_t until = p->actor->sim->now + WAIT_US * SIM_US;
         !p->down && p->actor->sim->now < until;)
        cr_peer_turn(p);
    if (!p->down)
        cr_peer_wrong(p, rd_wire_type_name(type), "the connection stays");
    cr_peer_end(p);
}

void cr_peer_run(struct sim_actor *actor, const struct cr_stand *stand, void *arg)
{
    struct cr_peer_play *play = arg;
    struct cr_peer *p = sim_calloc(1, sizeof(*p));
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 64,
        .outstanding_max = 64, .memory_size = 4096, .log_memory_size = 2048, .name = "peer"};

    p->stand = stand;
    p->actor = actor;
    p->arg = play->arg;
    if (rd_ep_open(&actor->sim->fabric->base, &config, &p->ep) == 0) {
        play->script(p);
        cr_peer_end(p);
        rd_ep_close(p->ep);
    } else {
        cr_peer_wrong(p, "endpoint", cairn_last_error());
    }
    memcpy(play->why, p->why, sizeof(play->why));
    sim_free(p);
}
