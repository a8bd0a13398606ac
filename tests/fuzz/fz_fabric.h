/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_fabric.h: a fabric without another side: a node (recovery/) runs over it, and a fuzz target is
 * everybody who talks to it. Nothing happens but what the target puts there. What the node sends is
 * checked and thrown away.
 */
#ifndef FZ_FABRIC_H
#define FZ_FABRIC_H

#include "rdma/rd.h"
#include "rdma/rd_wire.h"
#include "tests/fuzz/fz_pool.h"

#define FZ_CONNS 12u

enum fz_conn_state { FZ_CONN_FREE, FZ_CONN_ASKS, FZ_CONN_UP, FZ_CONN_CALLED };

struct fz_conn {
    struct rd_conn rd;
    enum fz_conn_state state; /* CALLED: the node wants it, active */
    struct rd_welcome_wire welcome;
    bool takes_none; /* its queue is full */
    uint64_t log_off, seq; /* of the next record in its ring */
    uint32_t last_size;    /* of the one before */
    uint32_t received, last_id;
    uint8_t last_body[64]; /* the beginning of what the node sent last */
};

struct fz_fabric {
    struct rd_fabric rd;
    struct fz_pool *pool;
    struct fz_conn conn[FZ_CONNS];
};

void fz_fabric_open(struct fz_fabric *fabric, struct fz_pool *pool);
/* The node has been closed: nothing of it is left. */
void fz_fabric_check(const struct fz_fabric *fabric);
/* An event for the node's next turn. `data` stays until then. */
void fz_fabric_put(struct fz_conn *conn, enum rd_event_type type, int status, const void *data,
    uint32_t size);

#endif
