/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_fake_fabric.h: a fabric for unit tests of the coordinator: "remote" memory is the test's own,
 * every operation completes at the next poll, and the test scripts what goes wrong and hears of
 * every post. The far side of messages is a callback of the test.
 */
#ifndef TS_FAKE_FABRIC_H
#define TS_FAKE_FABRIC_H

#include "rdma/rd.h"
#include "rdma/rd_wire.h"

#define TS_FAKE_NODES 4u
#define TS_FAKE_EVENTS 4096u
#define TS_FAKE_LOG 65536u

enum ts_fake_op {
    TS_FAKE_READ,
    TS_FAKE_CAS,
    TS_FAKE_WRITE,
    TS_FAKE_FLUSH,
    TS_FAKE_MARK,
    TS_FAKE_SEND
};

struct ts_fake_post { /* one line of the log of posts */
    enum ts_fake_op op;
    uint16_t node;
    uint64_t remote, value; /* value: desired of a cas, of a mark */
    uint32_t size;
};

struct ts_fake;
struct ts_fake_conn {
    struct rd_conn rd;
    struct ts_fake *fake;
    uint16_t node;
    int down; /* posts fail with this */
    bool open;
};

struct ts_fake_node {
    uint8_t *memory;
    uint64_t size;
    struct rd_welcome_wire welcome;
    int refuse;  /* error of a refusal instead of a welcome */
    int fail;    /* the fabric's own error instead of a welcome, with ... */
    const char *fail_text; /* ... its words, or NULL */
    enum rd_durability ring_durability; /* of the ring granted; 0: as the welcome says */
    bool silent; /* nothing completes and nobody answers */
    uint32_t connects;
};

struct ts_fake {
    struct rd_fabric rd;
    struct rd_ep ep;
    struct ts_fake_node node[TS_FAKE_NODES]; /* by node id - 1 */
    struct ts_fake_conn conn[64];
    uint32_t conn_count;
    void *arena;
    uint64_t arena_size, log_size; /* the last log_size bytes are for rings */
    struct rd_event event[TS_FAKE_EVENTS];
    uint8_t data[64][512]; /* bodies of messages and refusals */
    uint32_t data_next;
    uint32_t head, tail;
    struct ts_fake_post post[TS_FAKE_LOG];
    uint32_t post_count;
    struct rd_counters counters;
    uint64_t polls, sleeps;
    uint64_t now_ns; /* virtual time: advanced by sleeping, and a little by asking */
    uint64_t seed;
    struct cn_env env;
    uint32_t step_count[CN_STEP_COUNT];
    void *arg;
    bool cas_orders_reads; /* as connections will say; it is so here in any case */
    /* Before a post takes effect. Non-zero: the post fails with it. May be NULL. */
    int (*on_post)(struct ts_fake *fake, const struct ts_fake_post *post);
    /* A message of the coordinator; answer with ts_fake_reply(). May be NULL. */
    void (*on_message)(struct ts_fake *fake, struct ts_fake_conn *conn,
        const struct rd_message_wire *head, const void *body);
};

/* `nodes` nodes with `size` bytes of memory each and a usable welcome: extents from 64 KiB on. */
void ts_fake_open(struct ts_fake *fake, uint32_t nodes, uint64_t size);
void ts_fake_close(struct ts_fake *fake);
void ts_fake_reply(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *request, uint16_t type, int status, const void *body,
    uint32_t size);
void ts_fake_send(struct ts_fake *fake, struct ts_fake_conn *conn, uint16_t type, uint32_t id);
/* The connection to a node is lost: outstanding operations fail. */
void ts_fake_down(struct ts_fake *fake, uint16_t node, int status);
/* The same, and the fabric says why. Owner: the text stays. */
void ts_fake_down_text(struct ts_fake *fake, uint16_t node, int status, const char *text);
/* The open connection to a node; NULL: none. */
struct ts_fake_conn *ts_fake_conn(struct ts_fake *fake, uint16_t node);
uint32_t ts_fake_count(const struct ts_fake *fake, enum ts_fake_op op);

#endif
