/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_peer.h: a peer of a stand's first node that does by hand what coordinators, tools and nodes
 * do: shakes hands, posts messages, and expects an answer, silence, or the loss of its connection.
 * It runs beside the reader, as cr_stand_variant.attack. The first thing that is not as it should
 * be is kept in `why`.
 */
#ifndef CR_PEER_H
#define CR_PEER_H

#include "rdma/rd_wire.h"
#include "tools/crash/faults/cr_stand.h"

struct cr_peer {
    const struct cr_stand *stand;
    struct sim_actor *actor;
    struct rd_ep *ep;
    struct rd_conn *conn;
    uint32_t id;
    const void *arg; /* the script's */
    /* what came */
    bool up, down;
    int refusal;
    uint32_t type, answer_id, body_size;
    int status;
    uint64_t completed; /* wr_id of the last completion */
    uint8_t body[4096] __attribute__((aligned(8)));
    struct rd_welcome_wire welcome;
    char why[160];
};

struct cr_peer_play {
    void (*script)(struct cr_peer *peer);
    const void *arg;
    char why[160]; /* out */
};
/* A cr_stand_variant.attack; `arg`: a struct cr_peer_play. */
void cr_peer_run(struct sim_actor *actor, const struct cr_stand *stand, void *arg);

/* Not as it should be: `what`, and what came instead. */
void cr_peer_wrong(struct cr_peer *p, const char *what, const char *have);
void cr_peer_turn(struct cr_peer *p);
void cr_peer_rest(struct cr_peer *p, uint64_t us);
struct rd_hello_wire cr_peer_hello(const struct cr_peer *p, enum rd_wire_role role);
/* Connect to the first node; `size` of the hello. */
void cr_peer_meet(struct cr_peer *p, const struct rd_hello_wire *hello, uint32_t size);
void cr_peer_must_meet(
    struct cr_peer *p, enum rd_wire_role role, uint8_t session, const char *what);
void cr_peer_end(struct cr_peer *p);
CN_MUST_CHECK int cr_peer_post(struct cr_peer *p, uint32_t type, const void *body, uint32_t size);
/* Send it and see that this answer comes, with this status. */
void cr_peer_expect(
    struct cr_peer *p, uint32_t type, const void *body, uint32_t answer, int status);
void cr_peer_expect_silence(struct cr_peer *p, uint32_t type, const void *body);
/* The sender loses its connection. */
void cr_peer_expect_loss(struct cr_peer *p, uint32_t type, const void *body, uint32_t size);

#endif
