/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_internal.h: the structs of a node, shared by recovery/'s files only.
 *
 *   rec_node.c     the event loop and its timers
 *   rec_start.c    opening a pool is recovery: the table of steps
 *   rec_durability.c  how rings are made durable here, or why the node does not start
 *   rec_slot.c     a slot's life: hand-out, fence, retirement, reuse
 *   rec_message.c  what coordinators and tools ask for
 *   rec_verdict.c  find or prevent at one participant; the verdict over all
 *   rec_resolve.c  records in doubt: who is asked, what is done with the verdict
 *   rec_purge.c    forgetting retired epochs
 *   rec_peer.c     connections to the other nodes
 *   rec_stats.c    counters and their JSON
 */
#ifndef REC_INTERNAL_H
#define REC_INTERNAL_H

#include "rdma/rd.h"
#include "rdma/rd_wire.h"
#include "recovery/rec_node.h"
#include "txn/txn_part.h"

#define REC_MS UINT64_C(1000000)
#define REC_EVENTS_MAX 64u
#define REC_WAITERS_MAX 4u
#define REC_REPLIES_MAX 64u /* of one guest: more than one context asks for at a time */

enum rec_link_kind { REC_LINK_GUEST, REC_LINK_PEER };

/* First member of what a connection's `user` points to. */
struct rec_link {
    enum rec_link_kind kind;
    struct rd_conn *conn; /* NULL: none */
};

struct rec_reply { /* an answer that found the connection's queue full */
    struct rec_reply *next;
    uint32_t size;
    uint8_t message[];
};

struct rec_guest { /* an accepted connection */
    struct rec_link link;
    struct rec_guest *next;
    enum rd_wire_role role;
    uint16_t slot; /* 0: none */
    uint16_t from_node;
    bool stranger; /* a tool that did not name the cluster: it may ask for statistics */
    bool doomed; /* to be deleted at the end of the turn */
    uint64_t heard_ns;
    uint64_t ping_ns; /* a ping is out since then; 0: none */
    struct rec_reply *replies; /* in order; at most REC_REPLIES_MAX */
    uint32_t reply_count;
};

enum rec_peer_state { REC_PEER_DOWN, REC_PEER_CONNECTING, REC_PEER_UP };
struct rec_peer { /* a connection to another node, made when it is needed */
    struct rec_link link;
    const struct txn_config_node *config;
    enum rec_peer_state state;
    uint64_t next_try_ns;
    uint32_t failures;
};

struct rec_slot {
    struct txn_part_slot *part;
    struct rd_region *ring;
    struct rec_guest *guest;
    bool quarantined;    /* a peer process may still write into the ring's memory */
    bool stuck;          /* sealing failed: nothing is answered about it */
    bool seal_again;     /* ... for want of memory: it is tried again */
    bool wait_pass;      /* reuse waits for scrub passes (its owner may have left locks) */
    uint64_t reuse_pass; /* ... until this many are done */
};

struct rec_waiter { /* who asked for a verdict that is not known yet */
    struct rec_guest *guest;
    uint32_t id;
    uint64_t deadline_ns;
};
struct rec_doubt { /* a record in doubt */
    struct rec_doubt *next;
    uint32_t id;
    uint16_t slot;
    uint64_t seq, epoch;
    struct cn_txid txid;
    struct txn_entry *entry; /* may serve another sequence once the position has passed */
    uint64_t since_ns, next_ask_ns;
    uint32_t asked; /* rounds of questions */
    bool complained;
    struct rec_waiter waiter[REC_WAITERS_MAX];
    uint8_t answer[PM_RECORD_PARTICIPANTS_MAX]; /* enum rd_verdict, by participant */
};

struct rec_purge { /* a retired epoch that all nodes must let go before it is forgotten */
    bool active;
    uint32_t id; /* of the question */
    uint16_t slot;
    uint64_t epoch, next_ask_ns;
    struct cn_uuid owner;
    bool acknowledged[CAIRN_NODES_MAX];
};

struct rec_node {
    const struct txn_config *config;
    uint16_t id;
    uint32_t shard;
    struct rd_fabric *fabric;
    const struct cn_env *env;
    struct pm_pool *pool;
    struct pm_store *store;
    struct pm_retired_table *retired;
    struct txn_part part;

    struct rd_ep *ep;
    struct rd_ep
        *loop_ep; /* of its own, so that waiting for a compare-and-swap takes no other event */
    struct rd_conn *loop;
    struct rd_region *extent[PM_EXTENTS_MAX];
    uint32_t extent_count;
    enum rd_durability durability; /* of the rings */
    uint64_t loop_id;              /* of the last compare-and-swap on `loop` */

    struct rec_slot *slot;
    struct rec_guest *guests;
    struct rec_peer peer[CAIRN_NODES_MAX];
    struct rec_doubt *doubts;
    uint32_t doubt_id;
    struct rec_purge purge;

    uint32_t background_budget, scrub_budget;
    bool serve_damaged;
    uint64_t next_probe_ns, next_scrub_ns;
    uint64_t worked_ns;  /* last turn that did something */
    bool hears_late;     /* doorbells may stay away for a while (rd_fabric_config.linger_us) */
    bool serving;
    bool scrub_wanted; /* slots wait for a pass */
    bool retired_full; /* a drained slot cannot be retired: no room for its final state */
    struct rec_node_stats stats;
    uint8_t message[RD_MESSAGE_SIZE_MAX];
};

static inline uint64_t rec_now(const struct rec_node *node) { return cn_now_ns(node->env); }

/* ---- rec_node.c ---- */
/* Does the pace allow an idle node to sleep now? In the adaptive mode it lingers after work: its
 * peers count on that and ring seldom. */
bool rec_may_sleep(const struct rec_node *node, uint64_t now);

/* ---- rec_slot.c ---- */
/* `slot` NULL: for a peer that only sends messages. */
void rec_make_welcome(
    const struct rec_node *node, const struct rec_slot *slot, struct rd_welcome_wire *w);
/* Answer a coordinator's connect with a slot, or refuse. */
void rec_slot_hand_out(
    struct rec_node *node, struct rec_guest *guest, const struct rd_hello_wire *hello);
/*
 * End the slot's epoch (R14). Idempotent. `clean`: the owner said that it holds no lock.
 * Errors: -ENOMEM, CAIRN_E_LIMIT: then the slot is stuck, and nothing may be decided about it. For
 * want of memory it is tried again by rec_slot_turn().
 */
CN_MUST_CHECK int rec_slot_fence(struct rec_node *node, uint16_t number, bool clean);
/* Retire drained slots, probe quarantined ones, fence broken ones. Returns how many changed. */
uint32_t rec_slot_turn(struct rec_node *node);
/* T10: may words of this slot, locked in this incarnation, be freed by whoever meets them? */
bool rec_slot_may_free(void *node, uint16_t number);

/* ---- rec_node.c ---- */
/* Apply what has come in, within bounds. True: there was something. Whoever was told that a delete
 * is done may ask for its room before it is applied: nobody is refused room before this. */
bool rec_catch_up(struct rec_node *node);

/* ---- rec_message.c ---- */
void rec_message(
    struct rec_node *node, struct rec_guest *guest, const void *message, uint32_t size);
/* Send a reply: body is copied behind a header. It waits its turn where the connection's queue is
 * full; a peer that takes none of many is dropped. */
void rec_reply(struct rec_node *node, struct rec_guest *guest, uint32_t type, uint32_t id,
    int status, const void *body, uint32_t size);
void rec_guest_drop(struct rec_node *node, struct rec_guest *guest);
/* Send replies that wait. Returns how many went. */
uint32_t rec_reply_turn(struct rec_node *node);
void rec_reply_forget(struct rec_guest *guest);
/* Owners that did not answer a ping in time are fenced. */
void rec_ping_turn(struct rec_node *node);

/* ---- rec_resolve.c ---- */
/* Find or prevent: what this node says about a place. NONE: it cannot say (yet). */
enum rd_verdict rec_answer(struct rec_node *node, const struct rd_place_wire *place);
void rec_on_answer(struct rec_node *node, const struct rd_answer_wire *answer);
void rec_on_told(struct rec_node *node, const struct rd_answer_wire *told);
void rec_on_resolve(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_place_wire *place);
/* A guest is going: it waits for nothing any more. */
void rec_resolve_forget_guest(struct rec_node *node, const struct rec_guest *guest);
uint32_t rec_resolve_turn(struct rec_node *node);
void rec_resolve_free(struct rec_node *node);
/* Does a slot hold an unresolved record that names this word, of a lock or of a block it takes? */
bool rec_word_is_named(struct rec_node *node, uint16_t number, uint64_t off);

/* ---- rec_purge.c: forgetting retired epochs ---- */
void rec_purge_turn(struct rec_node *node);
void rec_on_purge(struct rec_node *node, struct rec_guest *guest, uint32_t id,
    const struct rd_purge_wire *purge);
void rec_on_purge_reply(
    struct rec_node *node, const struct rec_peer *peer, uint32_t id, uint32_t status);

/* ---- rec_peer.c ---- */
void rec_peer_init(struct rec_node *node);
/* NULL: no node of this id. */
struct rec_peer *rec_peer_find(struct rec_node *node, uint16_t id);
/* Send, connecting first if need be. False: not now (ask again later). */
bool rec_peer_send(struct rec_node *node, struct rec_peer *peer, uint32_t type, uint32_t id,
    const void *body, uint32_t size);
void rec_peer_event(struct rec_node *node, struct rec_peer *peer, const struct rd_event *event);

/* ---- rec_durability.c ---- */
CN_MUST_CHECK int rec_durability_decide(struct rec_node *node);

/* ---- rec_start.c ---- */
/* struct pm_cas over the loopback connection; `arg` is the node. One that does not come back ends
 * the connection, with what it may still write into, and a new one is made: it may or may not have
 * taken effect. Errors: CAIRN_E_TIMEOUT, those of rd_cas() and rd_loopback(). */
int rec_loop_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old);
CN_MUST_CHECK int rec_start(struct rec_node *node);
void rec_stop(struct rec_node *node);

/* ---- rec_stats.c ---- */
/* Allocated JSON text (free()), or NULL. */
char *rec_stats_json(const struct rec_node *node);

#endif
