/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric.h: the modelled fabric: struct rd_ops with the semantics of rdma/rd.h and not
 * stronger. Work requests execute later, unit by unit (a packet of a write, a piece of a read), as
 * events among all others; their completions come later still. See sim_fabric_exec.c for the order
 * rules, sim_fabric_serve.c for what the node's CPU does for its peers, sim_fabric_down.c for what
 * happens when a connection ends.
 */
#ifndef SIM_FABRIC_H
#define SIM_FABRIC_H

#include "rdma/rd.h"
#include "tools/sim/sim_pmem.h"

#define SIM_PIECES_MAX 8u
#define SIM_UNREAD_MAX 128u /* of a connection: then sends fail for a while */
#define SIM_LANES_MAX 8u

/* The queues of a link: what goes to the ring (writes, flushes, marks); answers of the node's CPU;
 * from SIM_Q_LANE on lanes of reads and compare-and-swaps. */
enum { SIM_Q_LOG, SIM_Q_ANSWER, SIM_Q_LANE, SIM_QUEUES = SIM_Q_LANE + SIM_LANES_MAX };

struct sim_link;
struct sim_ep;

struct sim_notice { /* an event on its way to, or at, an endpoint */
    struct sim_notice *next;
    struct rd_event event;
    uint32_t size;
    _Alignas(8) uint8_t data[]; /* as aligned as what malloc() gives */
};

struct sim_arena { /* stays until the last work request that may read it */
    uint32_t users;
    uint64_t size, log_size; /* the last log_size bytes are for rings */
    void *allocation;
    uint8_t *memory; /* aligned, in it */
};

struct sim_region {
    struct rd_region base;
    uint64_t number; /* from 1; never given twice */
    struct sim_ep *ep;
    struct sim_region *next;
    struct sim_pool *pool; /* NULL: plain memory */
    uint8_t *memory;       /* at pool_off; used without a pool */
    enum rd_durability durability;
    bool revoked; /* no peer may be given it before rd_ring_rearm() */
};

struct sim_grant { /* what a connection may access; outlives the region's owner */
    uint64_t off, size;
    unsigned access;
    struct sim_pool *pool;
    uint8_t *memory;
    uint64_t origin; /* the region's number: by address a later one might be taken for it */
};

struct sim_conn {
    struct rd_conn base;
    struct sim_link *link; /* NULL: detached by a crash */
    struct sim_conn *next; /* of the endpoint */
    bool up; /* its user has seen RD_EV_UP */
    uint32_t unread; /* messages that wait to be polled */
    bool passive, told; /* told: the DOWN event was queued; posts fail from then on */
    int told_status;
};

struct sim_ep {
    struct rd_ep base;
    struct sim *sim;
    struct sim_actor *actor;
    struct sim_ep *next;
    struct sim_arena *arena;
    uint32_t connections_max, outstanding_max;
    struct sim_conn *conns;
    uint32_t conn_count;
    struct sim_region *regions;
    struct sim_notice *first, **last; /* events ready to be polled */
    struct sim_notice *polled;        /* given out by the last poll */
    bool armed, signal;
    uint32_t idle; /* polls in a row that gave nothing */
    char address[RD_ADDRESS_SIZE_MAX]; /* listens here; empty: nowhere */
    struct rd_counters counters;
};

enum sim_op { SIM_READ, SIM_CAS, SIM_WRITE, SIM_FLUSH, SIM_MARK, SIM_BELL };
struct sim_wr {
    struct sim_wr *next;
    enum sim_op op;
    uint64_t wr_id, remote;
    uint8_t *local;
    uint32_t size, done;
    unsigned flags;
    uint64_t expected, desired, old, flush_seq;
    uint32_t number;  /* from 1, over all requests of the run */
    uint32_t concern; /* the operation that posted it */
    const struct sim_grant *grant; /* of the link */
    struct sim_arena *arena;
    uint8_t *copy; /* of what is still to be written, when the buffer is no longer ours */
    bool orphan; /* reported, or its owner is gone: touches no local memory, gives no completion */
    bool reserved; /* holds the target's atomic unit */
    bool held;     /* posted with RD_MORE: the doorbell has not been rung for it */
    uint32_t piece_count, piece_done;
    uint32_t piece[SIM_PIECES_MAX + 1];
    uint8_t order[SIM_PIECES_MAX];
};

struct sim_queue {
    struct sim_wr *first, **last; /* not executed */
    struct sim_wr *done_first, **done_last; /* executed, not acknowledged */
    bool exec_scheduled, ack_scheduled;
    bool acks_lost;
    uint32_t budget; /* units that may still execute when the link is dying */
};

struct sim_range { uint64_t off, size, seq; };

enum sim_link_state { SIM_LINK_CONNECTING, SIM_LINK_OFFERED, SIM_LINK_ACCEPTED, SIM_LINK_UP };
struct sim_link {
    struct sim *sim;
    struct sim_link *next; /* of the fabric */
    uint32_t users;        /* ends and scheduled events */
    uint32_t id;
    enum sim_link_state state;
    struct sim_conn *end[2]; /* 0 active, 1 passive; NULL: gone */
    struct sim_actor *actor[2];
    char address[RD_ADDRESS_SIZE_MAX];
    uint64_t deadline;
    uint8_t hello[RD_HELLO_SIZE_MAX];
    uint32_t hello_size;
    struct sim_grant *grant; /* the ring last */
    uint32_t grant_count;
    uint64_t ring; /* the region's number; 0: none */
    enum rd_durability durability; /* of the ring */
    struct sim_queue queue[SIM_QUEUES];
    struct sim_wr *inbox, **inbox_last; /* arrived, and the node's CPU is to execute them */
    uint32_t outstanding, flushes; /* flushes: those of them that are flushes */
    struct sim_range *range; /* written and not flushed */
    uint32_t range_count, range_room;
    struct sim_notice *message_first[2], **message_last[2]; /* by the end that gets them */
    bool message_scheduled[2];
    bool loop;
    bool holding;     /* some request is held */
    bool established; /* the passive side has its RD_EV_UP: messages may follow */
    bool dying;   /* broken: only a tail of each queue still executes */
    bool stopped; /* nothing executes any more */
    bool lingers; /* the passive process is gone: only what goes to the ring executes */
    bool fenced;
};

struct sim_request { /* of a work request, for who watches */
    uint32_t concern;
    enum sim_op op;
    const struct sim_actor *actor;
};

/* Calls that can be made to fail: sim_fabric_fail.c. The last two: what the node asks of its own
 * memory completes with an error, or never. */
enum sim_call {
    SIM_CALL_NONE,
    SIM_CALL_EP_OPEN,
    SIM_CALL_LISTEN,
    SIM_CALL_REGION,
    SIM_CALL_ACCEPT,
    SIM_CALL_REJECT,
    SIM_CALL_FENCE,
    SIM_CALL_REVOKE,
    SIM_CALL_REARM,
    SIM_CALL_CONNECT,
    SIM_CALL_LOOPBACK,
    SIM_CALL_SEND,
    SIM_CALL_LOOP_POST,
    SIM_CALL_LOOP_ERROR,
    SIM_CALL_LOOP_SILENT,
    SIM_CALL_COUNT
};
struct sim_failure { /* of an actor: its call number `at`, from 1, of a kind; NONE: none */
    enum sim_call call, then; /* then: the next one of that kind behind it */
    uint64_t at, made;
    bool hit;
};

struct sim_fabric {
    struct rd_fabric base;
    struct sim *sim;
    struct sim_ep *eps;
    struct sim_link *links;
    uint32_t link_count;
    uint64_t region_count; /* ever made */
    bool blocked[SIM_ACTORS_MAX][SIM_ACTORS_MAX]; /* [from][to] */
    bool atomic_busy[SIM_ACTORS_MAX];
    struct sim_pool *pool[SIM_ACTORS_MAX];
    uint32_t pool_count;
    uint32_t packet_max; /* bytes of a write that execute at once */
    bool whole_reads;    /* reads are not torn */
    bool linger;         /* peers of a dead process go on writing into its rings */
    uint32_t lanes;      /* reads and cas of a connection go over so many: 1 is post order */
    bool message_atomics; /* cas are executed by the node's CPU */
    enum rd_durability durability; /* of rings whose owner does not say */
    bool prompt;         /* RD_MORE holds nothing back */
    bool refusal_fails;  /* a mark refused for an outstanding flush fails the run */
    /* A request of a peer is about to change bytes of a pool; NULL: nobody looks. */
    void (*on_store)(void *arg, const struct sim_link *link, const struct sim_wr *wr, uint64_t off,
        uint32_t size);
    void *on_store_arg;
    /* A message is sent, and may still be lost; NULL: nobody looks. */
    void (*on_message)(
        void *arg, const struct sim_actor *from, const void *message, uint32_t size);
    void *on_message_arg;
    struct sim_failure failure[SIM_ACTORS_MAX];
    uint64_t ops[SIM_BELL + 1], flushes_served, cas_served;
    uint32_t request_count;
    struct sim_request *request; /* all of them, by number; only while somebody watches */
    uint32_t request_room;
};

void sim_fabric_new(struct sim *sim);
void sim_fabric_delete(struct sim *sim);
/* Memory of this pool is persistent memory to the fabric. */
void sim_fabric_add_pool(struct sim_fabric *fabric, struct sim_pool *pool);
/* A crash, before and after the product's objects are abandoned. */
void sim_fabric_actor_crashed(struct sim_actor *actor, enum sim_crash kind);
void sim_fabric_actor_reap(struct sim_actor *actor);
/* The next life of a node begins: no peer of an earlier one has any access any more, except, with
 * `linger`, to the ring that it had: a peer that maps its memory writes there until
 * rd_ring_revoke(). */
void sim_fabric_teardown(struct sim_actor *actor, bool linger);
/* Nothing gets from one to the other. Existing connections break after some time unless healed. */
void sim_fabric_block(struct sim *sim, uint32_t from, uint32_t to, uint64_t patience);
void sim_fabric_heal(struct sim *sim);
/* Break one connection, drawn from the tape. False: there is none. */
bool sim_fabric_break_some(struct sim *sim);

/* ---- moments: sim_fabric_tell.c. Call them only where sim_is_watched(). ---- */
void sim_tell_post(const struct sim_link *link, const struct sim_wr *wr);
/* `bytes` of it have just taken effect. */
void sim_tell_execute(const struct sim_link *link, const struct sim_wr *wr, uint32_t bytes);
/* The poster gets its completion. */
void sim_tell_complete(const struct sim_link *link, const struct sim_wr *wr, int status);
/* The link ends: what is still to execute never will. */
void sim_tell_dropped(const struct sim_link *link);
/* A flush is about to make the link's earlier writes durable. */
void sim_tell_flushed(const struct sim_link *link, const struct sim_wr *flush);

const char *sim_call_name(enum sim_call call);

/* ---- between the fabric's files ---- */
/* The running actor makes this call: is it the one that is to fail? */
bool sim_call_hits(struct sim *sim, enum sim_call call);
/* 0, or the error that it fails with; the link that it was made on is lost then. */
int sim_call(struct sim *sim, enum sim_call call);
int sim_call_on(struct sim_link *link, enum sim_call call);
void sim_link_release(struct sim_link *link);
void sim_link_kick(struct sim_link *link);
void sim_queue_kick(struct sim_link *link, uint32_t which);
/* Execute up to `units` units of a queue now. */
void sim_queue_advance(struct sim_link *link, uint32_t which, uint32_t units);
/* Acknowledge the first executed request. */
void sim_queue_ack(struct sim_link *link, uint32_t which);
/* Something has executed: its acknowledgement may go. */
void sim_queue_answer(struct sim_link *link, uint32_t which);
void sim_wr_free(struct sim_link *link, struct sim_wr *wr);
/* Memory that a request names, at the node. */
uint8_t *sim_wr_target(const struct sim_wr *wr);
bool sim_wr_by_message(const struct sim_link *link, const struct sim_wr *wr);
/* A request for the node's CPU has arrived. */
void sim_serve_later(struct sim_link *link, struct sim_wr *wr);
/* The CPU executes the first of them; false: there is none, or nothing executes any more. */
bool sim_serve_one(struct sim_link *link);
/* The endpoint's owner polls. True: it did something. */
bool sim_serve(struct sim_ep *ep);
/* Versions of what the link wrote up to `seq`: those not of that age stay in its list. */
void sim_link_persist(struct sim_link *link, struct sim_pool *pool, uint64_t seq, bool by_cpu);
int sim_post(struct sim_conn *conn, const struct sim_wr *request);
void sim_bell(struct sim_ep *ep);
void sim_notice_push(struct sim_ep *ep, struct sim_notice *notice);
struct sim_notice *sim_notice_new(
    enum rd_event_type type, int status, const void *data, uint32_t size);
void sim_message_kick(struct sim_link *link, uint32_t to);
bool sim_link_blocked(const struct sim_link *link, uint32_t from);
/* The link is lost: tails, and notices to both ends with these statuses. */
void sim_link_break(struct sim_link *link, int active_status, int passive_status);
void sim_link_stop(struct sim_link *link);
void sim_link_detach(struct sim_conn *conn);
int sim_fence(struct rd_conn *conn);
void sim_conn_delete(struct rd_conn *conn);
int sim_connect(struct rd_ep *ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn);
int sim_loopback(struct rd_ep *ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn);
int sim_accept(struct rd_conn *conn, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size);
int sim_reject(struct rd_conn *conn, const void *reason, uint32_t size);
extern const struct rd_ops sim_rd_ops;

#endif
