/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma.h: what the files of the `rpma` back end share: its objects, who may touch what, and what
 * travels between two of its endpoints (docs/wire-format.md).
 *
 *   rd_rpma.c          fabric, endpoint, arena, poll, sleeping: the table of operations
 *   rd_rpma_device.c   devices: librpma's peer and our protection domain, capabilities
 *   rd_rpma_region.c   registered regions, rings, their keys; arena registration
 *   rd_rpma_error.c    librpma's log captured; errno and work completion status to our errors
 *   rd_rpma_cm.c       rdma_cm: ids, queue pairs for reads and cas, listening, private data
 *   rd_rpma_conn.c     a connection's life: states, loss, fence, delete, events
 *   rd_rpma_active.c   connect: the steps of the active side
 *   rd_rpma_passive.c  listen, accept, reject: the steps of the passive side
 *   rd_rpma_timer.c    deadlines, heartbeats
 *   rd_rpma_loop.c     loopback: a queue pair of a node to itself
 *   rd_rpma_post.c     read, cas, write, flush, mark; send-queue accounting
 *   rd_rpma_complete.c completions to events
 *   rd_rpma_message.c  frames over librpma's send and receive; persist and cas by message
 *   rd_rpma_wire.c     checkers of frames and private data
 *
 * A connection is several queue pairs between two endpoints:
 * - the *log* connection, librpma's: record writes, flushes, marks, ring reads, messages;
 * - `qp_count` RC queue pairs by rdma_cm, called *object* queue pairs: reads and cas of extents.
 *   An operation goes by a hash of its remote offset, so one word is always served by one of them.
 * The active side opens the first object queue pair at port P (asynchronously: this resolves and
 * warms up the address), is told a cookie, opens the further ones and then the log connection at
 * port P + 1 with that cookie, and sends HELLO over it. Only a complete connection is shown to the
 * passive side's user.
 *
 * Why two protection domains: librpma shows neither its domain nor its keys, and cannot ask for
 * remote atomics. Each byte is registered in exactly one of them: rings, the arena's log memory and
 * message buffers in librpma's; extents, the rest of the arena and the beat page in ours.
 *
 * Threads. An endpoint and everything of it belong to its thread. Devices are shared by the
 * endpoints of a fabric, under its lock. What librpma calls not thread-safe (rpma_conn_req_new,
 * _delete, rpma_ep_*, rpma_mr_reg, _dereg, rpma_utils_get_ibv_context) runs under one process-wide
 * mutex: rd_rpma_control_lock().
 *
 * No system call is made by post and poll except what the provider makes, and a look at the event
 * descriptors once in NIC_LOOK_POLLS polls.
 */
#ifndef RD_RPMA_H
#define RD_RPMA_H

#include <infiniband/verbs.h>
#include <librpma.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "rdma/rd.h"

/* ---- what travels: private data of rdma_cm, and frames over the log connection ---- */

#define RD_RPMA_MAGIC UINT32_C(0x31524e43) /* "CNR1" */
#define RD_RPMA_VERSION 1u

enum rd_rpma_channel {
    RD_RPMA_CHANNEL_FIRST = 1,
    RD_RPMA_CHANNEL_FURTHER = 2,
    RD_RPMA_CHANNEL_LOG = 3,
};
/* With every connect (56 bytes are allowed) and every accept of an object queue pair. The received
 * length is that of the field, not ours: what follows is zero. */
struct rd_rpma_cm_wire { /* 48 bytes */
    struct le32 magic;
    struct le16 version;
    uint8_t channel;       /* enum rd_rpma_channel */
    uint8_t index;         /* of a FURTHER queue pair: 1 to 7 */
    struct le64 cookie;    /* 8: names the connection on the passive side; FIRST connect: zero */
    struct le64 beat_addr; /* 16: 64 bytes at the sender, for self-test and heartbeat; FIRST only */
    struct le32 beat_rkey; /* 24 */
    struct le32 error;     /* 28: of a reject: -(CAIRN_E_*) as a positive number */
    uint8_t reserved[16];
};
struct rd_rpma_beat { /* 64 bytes, one per connection of an endpoint */
    uint64_t test; /* the active side's self-test compares and swaps here */
    uint64_t beat; /* read by heartbeats */
    uint64_t seen; /* the peer's word, read or compared by us last: ours alone */
    uint64_t pad[5];
};

enum rd_rpma_frame_type {
    RD_RPMA_HELLO = 1,     /* active: hello */
    RD_RPMA_ACCEPT = 2,    /* passive: rd_rpma_accept_wire, regions, welcome */
    RD_RPMA_REJECT = 3,    /* passive: reason */
    RD_RPMA_READY = 4,     /* active: self-test passed, in use from now on; no payload */
    RD_RPMA_MESSAGE = 5,   /* either: a message of the user */
    RD_RPMA_BELL = 6,      /* active: there is something in the ring; no payload */
    RD_RPMA_PERSIST = 7,   /* active: `count` x rd_rpma_persist_wire (GPSPM) */
    RD_RPMA_PERSISTED = 8, /* passive: `count` x rd_rpma_done_wire */
    RD_RPMA_CAS = 9,       /* active: `count` x rd_rpma_cas_wire */
    RD_RPMA_CAS_DONE = 10, /* passive: `count` x rd_rpma_done_wire, in the same order */
    RD_RPMA_CREDIT = 11,   /* either: nothing but `returned`; no payload */
    RD_RPMA_FRAME_TYPE_COUNT,
};
struct rd_rpma_frame_wire { /* 16 bytes, then `size` bytes of payload */
    struct le32 magic;
    struct le16 type;
    struct le16 count; /* elements, where the payload is an array; else 0 */
    struct le32 size;
    struct le32 returned; /* receives that the sender has posted again so far, modulo 2^32 */
};
#define RD_RPMA_PAYLOAD_MAX RD_MESSAGE_SIZE_MAX
#define RD_RPMA_FRAME_SIZE_MAX (sizeof(struct rd_rpma_frame_wire) + RD_RPMA_PAYLOAD_MAX)

struct rd_rpma_region_wire { /* 32 bytes: an extent */
    struct le64 pool_off;
    struct le64 size;
    struct le64 addr; /* 16: of pool_off at the sender */
    struct le32 rkey;
    struct le32 access; /* enum rd_access; never WRITE */
};
struct rd_rpma_accept_wire { /* 80 bytes, then region_count regions, then the welcome */
    struct le32 region_count;
    struct le32 welcome_size;
    struct le32 linger_us;
    uint8_t durability;      /* 12: enum rd_durability, of the ring; 0: no ring */
    uint8_t message_atomics; /* 13: 1: cas goes by RD_RPMA_CAS */
    uint8_t descriptor_size; /* 14: of the ring's librpma descriptor; 0: no ring */
    uint8_t reserved0;
    struct le64 ring_off;    /* 16: pool offset of the ring region ... */
    struct le64 ring_size;   /* 24: ... and its bytes, header page included */
    uint8_t descriptor[32];  /* 32 */
    uint8_t reserved[16];    /* 64 */
};
struct rd_rpma_persist_wire { struct le64 tag, off; struct le64 size; };
struct rd_rpma_cas_wire { struct le64 tag, off, expected, desired; };
struct rd_rpma_done_wire { /* 24 bytes */
    struct le64 tag;
    struct le64 old;    /* CAS_DONE */
    struct le32 status; /* 0 or -(CAIRN_E_*) as a positive number */
    uint8_t reserved[4];
};

/* ---- bounds ---- */
#define NIC_QPS_MAX 8u
#define NIC_CONNECTIONS_MAX 4096u /* per endpoint; at most 2^16, see nic_wr_id() */
#define NIC_CHAIN_MAX 32u      /* a longer chain is posted in parts */
#define NIC_RANGES 8u          /* written and not yet flushed, as EMU_RANGES */
#define NIC_LOG_SQ_MAX 1024u   /* send queue of a log connection: records, pads and marks of all
                                * transactions in flight (CAIRN_INFLIGHT_MAX), and what is shared */
#define NIC_RX 16u             /* posted receives per connection; the same on both sides */
#define NIC_TX 8u              /* messages sent and not yet completed, per connection */
#define NIC_SPARE_USER 2u      /* buffers, here and at the peer, that the user's messages leave */
#define NIC_SPARE_FRAMES 1u    /* and other frames, to CREDIT */
#define NIC_RECEIVE_ID (UINT64_C(1) << 63) /* in the wr_id of a receive, with its buffer's index */
#define NIC_FRAME_STRIDE 4160u /* of a message buffer: a frame, 64-byte aligned */
#define NIC_LOOK_POLLS 256u    /* polls between looks at event descriptors; 1 while any
                                 * connection is being made ... */
#define NIC_GREET_POLLS 16u    /* ... this, if only by strangers */
#define NIC_RESOLVE_MS 500     /* librpma resolves again what rdma_cm has just resolved */
#define NIC_PASSIVE_NS UINT64_C(10000000000) /* a peer must be complete within this */
#define NIC_GREET_NS UINT64_C(1000000000) /* and has this time, even where others want its place */
#define NIC_DRAIN_NS UINT64_C(5000000)       /* messages before a fence or delete */
#define NIC_CLOSE_NS UINT64_C(100000000)     /* a refusal on its way */
#define NIC_PARKED_MAX 64u     /* queue pairs given up while connecting, see rd_rpma_cm.c */
#define NIC_BEATS_MISSED 3u    /* heartbeat intervals without an answer; the transport, too, tries
                                 * for so long at least */
#define NIC_TRIES_MAX 7u       /* of the transport; 8 would be for ever on some devices */
#define NIC_TEXT_MAX 256u

enum nic_state {
    NIC_FREE,
    NIC_ADDRESS,    /* active: resolving the address */
    NIC_ROUTE,      /* active: resolving the route */
    NIC_FIRST,      /* active: first object queue pair connecting */
    NIC_FURTHER,    /* active: further ones */
    NIC_LOG,        /* active: log connection connecting */
    NIC_ASKING,     /* active: hello sent */
    NIC_TESTING,    /* active: accepted; compare-and-swap self-test runs */
    NIC_GREETING,   /* passive: queue pairs, log connection and hello due */
    NIC_ASKED,      /* passive: the user is to accept or reject */
    NIC_ACCEPTED,   /* passive: ready due */
    NIC_UP,
    NIC_REFUSING,   /* passive: deleted by the user, the refusal is on its way */
    NIC_DOWN,       /* queue pairs are gone; to be deleted by the user */
    NIC_LOOPBACK,
    NIC_DELETED,    /* free at the next poll: events of this batch may still name it */
};

struct nic_region;
struct nic_ep;
struct nic_conn;

struct nic_device {
    struct nic_device *next;
    struct ibv_context *verbs; /* librdmacm's; never closed by us */
    char name[64];
    struct rpma_peer *peer;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    bool has_atomics, iwarp;
    uint32_t message_max; /* bytes of one operation: least max_msg_sz of its active ports; 0: none
                           * is known */
    uint32_t users;       /* endpoints */
};

struct nic_fabric {
    struct rd_fabric base;
    struct rd_fabric_config config; /* defaults filled in */
    pthread_mutex_t lock;           /* devices */
    struct nic_device *devices;
    uint32_t endpoints; /* atomic */
    uint32_t warned;    /* atomic bit set: what cannot be had is said once */
    void (*flush_line)(const void *line);
};

/* What the passive side exposes. A ring (access WRITE) has `log_mr`, everything else `mr`. */
struct nic_region {
    struct rd_region base;
    struct nic_ep *ep;
    struct nic_region *next;
    uint8_t *memory;
    enum rd_durability durability;
    struct ibv_mr *mr;
    struct rpma_mr_local *log_mr; /* NULL: revoked */
    bool rekeyed;                 /* registered anew at least once */
};

/* What the active side was granted: extents by pool_off. */
struct nic_grant {
    uint64_t pool_off, size, addr;
    uint32_t rkey, access;
};

/* One posted work request. Slots of a queue are used and freed in post order. A completion frees
 * the earlier slots that have asked for none too; the others wait for their own, as Soft-iWARP
 * completes a write before a read that was posted before it. */
struct nic_op {
    uint64_t wr_id;
    uint64_t *old;  /* cas by message: where the old value goes */
    uint32_t order; /* of posting, over all queues of a connection */
    uint8_t kind;   /* enum nic_op_kind */
    uint8_t buffer; /* SEND: of tx */
    bool wanted;    /* RD_SIGNALED: yields an event */
    bool asked;     /* for a completion ... */
    bool done;      /* ... which has come */
};
enum nic_op_kind {
    NIC_OP_READ, NIC_OP_CAS, NIC_OP_WRITE, NIC_OP_FLUSH, NIC_OP_MARK, NIC_OP_SEND,
    NIC_OP_BEAT, NIC_OP_TEST,
};
struct nic_queue {
    struct nic_op *op;     /* size slots; allocated with the endpoint */
    uint32_t size;          /* power of two, at most what the queue pair has */
    uint64_t head, tail;    /* posted, completed */
    uint64_t unsignaled;    /* posted since the last one with a completion */
    uint64_t due;           /* behind the last one with a completion; due > tail: one will come */
    uint64_t done;          /* behind the last completed one */
};

struct nic_asked { /* parameters of an operation by message, until it is sent */
    uint64_t off, a, b; /* persist: size; cas: expected, desired */
};

struct nic_chain { /* work requests that RD_MORE holds back: one list, one doorbell */
    struct ibv_send_wr wr[NIC_CHAIN_MAX];
    struct ibv_sge sge[NIC_CHAIN_MAX];
    uint32_t count;
};

struct nic_qp { /* object queue pair */
    struct rdma_cm_id *id;
    bool has_qp, up;
    bool connecting; /* active: no answer yet */
    uint32_t number;
    struct nic_queue queue;
    struct nic_chain chain;
};

struct nic_range { /* pool offsets */
    uint64_t off, end;
};

struct nic_conn {
    struct rd_conn base;
    uint32_t index;
    uint16_t generation; /* completions of an earlier one are dropped */
    enum nic_state state;
    bool active, fenced, down_due, down_delivered, up_due;
    bool refused; /* RD_EV_DOWN carries `welcome` (the reason) as its data */
    bool suspect; /* overdue; down, if still so at the next look */
    bool closed;  /* by the peer, in order: nothing to warn of */
    int down_status;
    char text[NIC_TEXT_MAX]; /* text of RD_EV_DOWN, unless empty */
    uint64_t deadline_ns; /* of the states before UP, and of REFUSING */
    uint64_t cookie;
    struct sockaddr_storage peer_addr;
    uint32_t qp_count;
    struct nic_qp qp[NIC_QPS_MAX];
    uint8_t hello[RD_HELLO_SIZE_MAX];
    uint32_t hello_size;
    uint8_t welcome[RD_WELCOME_SIZE_MAX];
    uint32_t welcome_size;

    /* Log connection. */
    struct rpma_conn *log; /* NULL: not yet or no more */
    struct rpma_cq *log_cq; /* its completions, receives too */
    bool log_up;
    struct nic_queue log_queue;
    uint8_t *rx, *tx;       /* NIC_RX, NIC_TX buffers of NIC_FRAME_STRIDE in the endpoint's block */
    uint32_t tx_free;       /* bit set */
    uint32_t rx_taken;      /* bit set: given to the user, posted again at the next poll */
    uint64_t tx_out;        /* sends not completed */
    /* Flow control, modulo 2^32: no frame is sent without a receive posted for it. */
    uint32_t frames_sent, frames_returned; /* by us; of these the peer has posted again */
    uint32_t returned, returned_told;      /* receives posted again by us; the peer knows of */
    struct { uint8_t at; uint16_t type, count; } held[NIC_RX]; /* requests that wait for a buffer to
                                                                * answer with */
    uint32_t held_count;

    /* Posting. */
    uint32_t outstanding; /* RD_SIGNALED, from post until poll delivers the completion */
    uint32_t order;       /* of the next post */
    bool chained;         /* a chain of its queue pairs is not empty */
    bool bell_due;        /* a doorbell found no buffer */
    uint8_t hot;          /* polls that look at it still, after something came */

    /* Active: operations that go by message (flush under GPSPM, cas without atomics): in post
     * order, sent in batches as frames become free; the slot's number is the tag. */
    struct nic_queue persist, cas;
    uint64_t persist_sent, cas_sent; /* how many of them have been put into frames */
    struct nic_asked *asked;         /* parameters, persist.size + cas.size of them */
    struct nic_range written[NIC_RANGES]; /* GPSPM: since the last flush was posted */
    uint32_t written_count;

    /* Active: what was granted. */
    struct nic_grant grant[RD_REGIONS_MAX];
    uint32_t grant_count, grant_hint;
    bool message_atomics;
    uint64_t linger_ns;
    uint64_t bell_ns;     /* when the node was last told, or found by itself, that there is more */
    uint64_t bell_writes; /* `writes` at that time */
    uint64_t writes;      /* writes and marks posted */
    uint64_t ring_off, ring_size;
    struct rpma_mr_remote *ring_mr; /* NULL: no ring was granted */

    /* Passive: what was granted, so that messages can be checked against it. */
    struct nic_region *ring;
    struct nic_region *region[RD_REGIONS_MAX];
    uint32_t region_count;

    /* Heartbeat over the first object queue pair. */
    uint64_t peer_beat_addr;
    uint32_t peer_beat_rkey;
    uint64_t beat_ns;      /* when it was sent, or one is due */
    uint64_t beat_late_ns; /* one is out: when its next interval is over */
    uint8_t beats_missed;  /* intervals over without an answer */
    bool beat_out;
    uint8_t test_step;
};

struct nic_event { /* waits for a poll: completions of failed connections, up, down, connect */
    enum rd_event_type type;
    int status;
    struct nic_conn *conn;
    uint16_t generation;
    uint64_t wr_id;
};

struct nic_ep {
    struct rd_ep base;
    struct nic_fabric *fabric;
    const struct cn_env *env;
    char name[32];
    char address[RD_ADDRESS_SIZE_MAX]; /* "" : none */
    uint32_t connections_max, outstanding_max;
    struct rd_counters counters;

    /* One mapping: object memory, log memory (each padded to whole pages), message buffers, beats.
     * 2 MiB-aligned, huge pages where allowed, locked. */
    uint8_t *block;
    size_t block_size;
    bool huge;
    uint8_t *memory; /* the arena */
    uint64_t memory_size, log_memory_size;
    uint8_t *messages;
    struct rd_rpma_beat *beats; /* one per connection */

    struct nic_device *device; /* NULL until it is known */
    struct ibv_mr *object_mr, *beat_mr;
    struct rpma_mr_local *log_mr; /* log memory; NULL: it has none */
    struct rpma_mr_local *message_mr; /* never the sink of a read: on iWARP that is open to peers */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq; /* of all object queue pairs */
    uint32_t cq_size, cq_used; /* posted work requests that may still need an entry */
    uint32_t cq_unacked;       /* events of the channel not acknowledged yet */
    uint32_t cq_stale; /* of cq_used: entries of destroyed queue pairs, there until it was empty */

    struct rdma_event_channel *cm; /* of all ids of this endpoint; non-blocking */
    struct rdma_cm_id *listen_id;
    struct rdma_cm_id *parked[NIC_PARKED_MAX]; /* to be destroyed when they have been answered */
    uint32_t parked_count;
    struct rpma_conn *parked_log[NIC_PARKED_MAX]; /* the same of log connections */
    uint32_t parked_log_count;
    struct rpma_ep *log_listen;
    int log_listen_fd;
    bool listening;     /* rd_rpma_listen() has succeeded */
    uint32_t log_leaks; /* ids that librpma lost: the log listener is to be renewed */
    int epoll_fd, wake_fd;
    int timer_fd; /* since rd_ep_fd(): timers for who sleeps on epoll_fd himself; else -1 */
    bool armed;   /* somebody may: polls look for what has woken him */
    int look_fd; /* epoll of the descriptors of events (rdma_cm, log listener, log connections); it
                  * is watched by epoll_fd itself */
    uint64_t passive_ns; /* 0: NIC_PASSIVE_NS; tests shorten it */
    uint32_t deleted;    /* connections in NIC_DELETED */

    struct nic_conn *conns;
    struct nic_op *ops; /* of all queues */
    struct nic_region *regions;
    struct nic_event *events; /* a ring */
    uint32_t event_size;      /* power of two */
    uint64_t event_head, event_tail;
    uint32_t making;      /* connections that are being made, refused or deleted: look each poll */
    uint32_t greeting;    /* in NIC_GREETING: look each NIC_GREET_POLLS polls */
    uint32_t polls;       /* since the last look */
    bool look_due;        /* slept, or idle for long: there may be an event at a descriptor */
    bool idle;            /* rd_ep_look() was called */
    bool unfinished;      /* a completion queue was not seen empty: no sleep */
    bool receives_due;    /* messages were given to the user: return_receives at the next poll */
    uint32_t sleeping, woken; /* atomic; see rd_rpma.c */
    uint32_t log_turn;    /* polls; who comes first changes with it */
    uint32_t idle_next;   /* idle log connections are polled in rotation */
    uint64_t busy[NIC_CONNECTIONS_MAX / 64]; /* bits: look at its log connection or its chains each
                                              * poll; may be set in vain */
    uint64_t next_timer_ns;
};

static inline struct nic_ep *nic_ep(struct rd_ep *ep) { return (struct nic_ep *)(void *)ep; }
static inline struct nic_conn *nic_conn(struct rd_conn *c) { return (struct nic_conn *)(void *)c; }
static inline struct nic_region *nic_region(struct rd_region *r)
{
    return (struct nic_region *)(void *)r;
}
static inline struct nic_ep *nic_conn_ep(const struct nic_conn *c) { return nic_ep(c->base.ep); }

/* ---- rd_rpma.c ---- */
/* Errors: CAIRN_E_NO_DEVICE (no device, or none of the name asked for; no rdma_cm), -ENOMEM. */
CN_MUST_CHECK int rd_rpma_fabric_new(
    const struct rd_fabric_config *config, struct rd_fabric **ret_fabric);
/* Queue an event for a later poll. Never fails: the ring has room for all that can be queued (per
 * connection: every outstanding operation, one up, one down or connect, and NIC_RX messages).
 * RD_EV_MESSAGE (one that must come after an event queued before, as UP): `wr_id` is nic_message_id
 * of its receive buffer; rx_taken is set when it is delivered, not by the caller. */
void rd_rpma_event(struct nic_conn *c, enum rd_event_type type, int status, uint64_t wr_id);
static inline uint64_t nic_message_id(uint32_t at, uint32_t size)
{
    return (uint64_t)at << 32 | size; /* size of the message, after the frame's head */
}
static inline bool nic_events_queued(const struct nic_ep *ep)
{
    return ep->event_head != ep->event_tail;
}
/* Whether cas goes by message (and a loopback's by CPU) on this endpoint's device. */
static inline bool nic_by_message(const struct nic_ep *ep)
{
    return ep->fabric->config.message_atomics || !ep->device->has_atomics;
}
/* Give the endpoint its device if it has none: registers its memory, makes its completion queue.
 * Errors: CAIRN_E_CONFIG (it has another), CAIRN_E_MEMLOCK, CAIRN_E_FABRIC. */
CN_MUST_CHECK int rd_rpma_ep_bind(struct nic_ep *ep, struct ibv_context *verbs);
/* Watch or no longer watch a descriptor for rd_ep_sleep(); `c`: whose completions it tells of, or
 * NULL. Errors: -errno. */
CN_MUST_CHECK int rd_rpma_watch(struct nic_ep *ep, int fd, const struct nic_conn *c, bool on);

/* ---- rd_rpma_device.c ---- */
/* "10.0.0.1:7471", "[fe80::1]:7471": numeric; the port and the next one are used.
 * Errors: CAIRN_E_CONFIG. */
CN_MUST_CHECK int rd_rpma_parse_address(
    const char *address, struct sockaddr_storage *ret_addr, socklen_t *ret_size);
void rd_rpma_set_port(struct sockaddr_storage *addr, uint16_t port);
uint16_t rd_rpma_port(const struct sockaddr_storage *addr);
/* The context of the only device, or of the one named; *ret_verbs NULL: there are several and none
 * was named. Errors: CAIRN_E_NO_DEVICE. */
CN_MUST_CHECK int rd_rpma_choose(const char *name, struct ibv_context **ret_verbs);
/* The device of a local address. Errors: CAIRN_E_NO_DEVICE, CAIRN_E_CONFIG. */
CN_MUST_CHECK int rd_rpma_choose_local(const char *address, struct ibv_context **ret_verbs);
CN_MUST_CHECK int rd_rpma_device_get(
    struct nic_fabric *fabric, struct ibv_context *verbs, struct nic_device **ret_device);
void rd_rpma_device_put(struct nic_fabric *fabric, struct nic_device *device);
void rd_rpma_control_lock(void);
void rd_rpma_control_unlock(void);

/* ---- rd_rpma_error.c ---- */
/* Capture librpma's log: once per process, at the first fabric. */
void rd_rpma_log_capture(void);
/* Forget what was captured on this thread; what was captured since, or "". */
void rd_rpma_log_clear(void);
const char *rd_rpma_log_text(void);
/* cn_fail() for a failed librpma call: maps `rc` and errno, adds librpma's own words. */
int rd_rpma_fail(int rc, const char *what);
/* The errno behind a failed librpma call, as positive number; EIO: unknown. */
int rd_rpma_errno(int rc);
/* cn_fail() for a failed verbs or rdma_cm call: `error` is errno. ENOMEM becomes CAIRN_E_MEMLOCK
 * where memory that can be locked is limited, with the limit (of a registration: and what is
 * needed) and the remedy; also of librpma's calls. */
int rd_rpma_fail_errno(int error, const char *what);
int rd_rpma_fail_register(int error, const char *what, uint64_t size);
/* Error of a work completion and its text. */
int rd_rpma_wc_error(enum ibv_wc_status status);
const char *rd_rpma_wc_text(enum ibv_wc_status status);

/* ---- rd_rpma_region.c ---- */
int rd_rpma_region_new(struct rd_ep *ep, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region);
void rd_rpma_region_delete(struct rd_region *region);
int rd_rpma_ring_revoke(struct rd_region *ring, bool *ret_busy); /* deregisters; never busy */
int rd_rpma_ring_rearm(struct rd_region *ring);                  /* registers if it is not */
/* The block: map, align, lock, huge pages where allowed. Errors: -ENOMEM. */
CN_MUST_CHECK int rd_rpma_block_new(struct nic_ep *ep, const struct rd_ep_config *config);
void rd_rpma_block_delete(struct nic_ep *ep);
/* Register the parts of the block on ep->device. Errors: CAIRN_E_MEMLOCK, CAIRN_E_FABRIC. */
CN_MUST_CHECK int rd_rpma_block_register(struct nic_ep *ep);
void rd_rpma_block_deregister(struct nic_ep *ep);

/* ---- rd_rpma_cm.c: object queue pairs ---- */
/* Make or close ep->cm and ep->look_fd; open needs epoll_fd. Errors: -errno, CAIRN_E_NO_DEVICE. */
CN_MUST_CHECK int rd_rpma_cm_open(struct nic_ep *ep);
void rd_rpma_cm_close(struct nic_ep *ep);
/* Have look_fd report `fd` with `tag`: NIC_LOOK_CM, _LISTEN, or that of a connection. */
#define NIC_LOOK_CM UINT64_MAX
#define NIC_LOOK_LISTEN (UINT64_MAX - 1)
#define NIC_LOOK_PARKED (UINT64_MAX - 2)
CN_MUST_CHECK int rd_rpma_look_at(struct nic_ep *ep, int fd, uint64_t tag);
void rd_rpma_look_away(struct nic_ep *ep, int fd);
/* Begin to resolve the address, or the route, of the peer for an active id. */
CN_MUST_CHECK int rd_rpma_id_resolve(struct nic_conn *c, uint32_t index);
CN_MUST_CHECK int rd_rpma_id_route(struct nic_conn *c, uint32_t index);
/* An incoming id becomes that of a queue pair, or ceases to be (its queue pair is destroyed). */
void rd_rpma_id_take(struct nic_conn *c, uint32_t index, struct rdma_cm_id *id);
void rd_rpma_id_release(struct nic_conn *c, uint32_t index);
/* ACK timeout (4.096 us * 2^n per try) and retries of object queue pairs: together the time after
 * which heartbeats have found a dead peer, or up to a quarter more. Returns it in nanoseconds. */
uint64_t rd_rpma_ack_limits(uint32_t heartbeat_ms, uint8_t *ret_timeout, uint8_t *ret_retries);
/* New id on ep->cm; its context is `c`. */
CN_MUST_CHECK int rd_rpma_id_new(struct nic_conn *c, uint32_t index);
CN_MUST_CHECK int rd_rpma_qp_new(struct nic_conn *c, uint32_t index); /* on qp[index].id */
CN_MUST_CHECK int rd_rpma_qp_connect(
    struct nic_conn *c, uint32_t index, const struct rd_rpma_cm_wire *wire);
CN_MUST_CHECK int rd_rpma_qp_accept(
    struct nic_conn *c, uint32_t index, const struct rd_rpma_cm_wire *wire);
/* Destroy queue pair and id: when it returns, nothing of it moves any more. */
void rd_rpma_qp_delete(struct nic_conn *c, uint32_t index);
/* The id has been answered: destroy it if it is parked. `id` NULL: destroy all. */
void rd_rpma_unpark(struct nic_ep *ep, struct rdma_cm_id *id);
CN_MUST_CHECK int rd_rpma_cm_listen(struct nic_ep *ep, const struct sockaddr_storage *addr);
/* Take all events of ep->cm; each goes to rd_rpma_on_cm(). */
void rd_rpma_cm_look(struct nic_ep *ep);

/* ---- rd_rpma_conn.c ---- */
int rd_rpma_listen(struct rd_ep *ep, const char *address);
void rd_rpma_unlisten(struct nic_ep *ep);
int rd_rpma_accept(struct rd_conn *c, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size);
int rd_rpma_reject(struct rd_conn *c, const void *reason, uint32_t size);
int rd_rpma_connect(struct rd_ep *ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn);
void rd_rpma_conn_delete(struct rd_conn *c);
int rd_rpma_fence(struct rd_conn *c);
/* An event of rdma_cm about c (or, for a connect request, about the listening endpoint). */
void rd_rpma_on_cm(struct nic_ep *ep, const struct rdma_cm_event *event);
/* A frame that concerns a connection's life: HELLO, ACCEPT, REJECT, READY; payload is checked. */
void rd_rpma_on_frame(struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size);
/* A heartbeat or self-test operation has completed. */
void rd_rpma_on_probe(struct nic_conn *c, enum nic_op_kind kind, int status);
/* All that is not completions, first thing in a poll: frees what is NIC_DELETED, events of rdma_cm
 * (rd_rpma_cm_look), of log connections and the log listener; timers: deadlines, heartbeats,
 * refusals. Sets ep->next_timer_ns. */
void rd_rpma_conn_look(struct nic_ep *ep);
/*
 * The connection is lost: destroys its queue pairs, queues an error completion for every wanted
 * operation and then the down event (or, before it was up, just that). `status` and `format` say
 * why. Idempotent. One that the user has not heard of vanishes (c->state is NIC_FREE then): whoever
 * has called this, or what may call it, looks at c->log and qp[].has_qp before going on.
 */
void rd_rpma_conn_fail(struct nic_conn *c, int status, const char *format, ...) CN_PRINTF(3, 4);
/* A free connection (in NIC_FREE still, everything of it reset), or NULL; `reuse`: also one in
 * NIC_DELETED. rd_rpma_set_state() counts it from then on. */
struct nic_conn *rd_rpma_conn_claim(struct nic_ep *ep, bool active, bool reuse);
void rd_rpma_set_state(struct nic_conn *c, enum nic_state state); /* counts making, greeting */
/* ---- between rd_rpma_conn.c, rd_rpma_active.c, rd_rpma_passive.c, rd_rpma_timer.c ---- */
/* The peer has closed: fails the connection when what it sent before has been delivered. */
void rd_rpma_conn_close(struct nic_conn *c, int status, const char *format, ...) CN_PRINTF(3, 4);
/* Its objects go, and the slot with them, which becomes `state` (NIC_FREE or NIC_DELETED). */
void rd_rpma_conn_release(struct nic_conn *c, enum nic_state state);
void rd_rpma_conn_forget_region(const struct nic_region *region);
/* A timer is due at that time at the latest. */
void rd_rpma_schedule(struct nic_ep *ep, uint64_t at_ns);
void rd_rpma_run_timers(struct nic_ep *ep, uint64_t now_ns);
#define NIC_ADDRESS_TEXT_MAX 64u
const char *rd_rpma_peer_text(const struct nic_conn *c, char text[NIC_ADDRESS_TEXT_MAX]);
const char *rd_rpma_device_text(const struct nic_conn *c);
/* Configuration of a log connection. Errors: -ENOMEM, CAIRN_E_FABRIC. */
CN_MUST_CHECK int rd_rpma_log_config(
    struct nic_ep *ep, uint32_t timeout_ms, struct rpma_conn_cfg **ret_config);
/* The connection gets its log connection. Owner: the connection, also on failure. */
CN_MUST_CHECK int rd_rpma_log_take(struct nic_conn *c, struct rpma_conn *log);
void rd_rpma_active_on_cm(struct nic_conn *c, uint32_t index, const struct rdma_cm_event *event);
void rd_rpma_active_on_log(struct nic_conn *c, enum rpma_conn_event event);
void rd_rpma_active_on_frame(
    struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size);
void rd_rpma_active_on_test(struct nic_conn *c, int status);
void rd_rpma_passive_on_request(struct nic_ep *ep, const struct rdma_cm_event *event);
void rd_rpma_passive_on_log_request(struct nic_ep *ep);
/* Free what librpma leaked, see rd_rpma_passive.c. */
void rd_rpma_renew_log_listener(struct nic_ep *ep, uint64_t now_ns);
void rd_rpma_passive_on_frame(
    struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size);

/* rd_ep_close(): destroys all connections without events; afterwards everything is NIC_FREE. */
void rd_rpma_conn_close_all(struct nic_ep *ep);

/* ---- rd_rpma_loop.c ----
 * Its connection uses qp[0]; qp[1] is the other end. Where cas goes by message it has no queue pair
 * and an ops table of its own. */
int rd_rpma_loopback(struct rd_ep *ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn);

/* ---- rd_rpma_post.c ---- */
int rd_rpma_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
    unsigned flags);
int rd_rpma_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags);
int rd_rpma_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags);
int rd_rpma_flush(
    struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags);
int rd_rpma_mark(
    struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags);
/* Whether the connection may be used; else the error that posts and sends return. */
int rd_rpma_check_alive(const struct nic_conn *c);
/* 8-byte read of the peer's beat into `seen` of the connection's own beat, and the steps of the
 * self-test, whose old value goes there too: on object queue pair 0. Errors: CAIRN_E_AGAIN, as
 * posts. */
CN_MUST_CHECK int rd_rpma_post_beat(struct nic_conn *c);
CN_MUST_CHECK int rd_rpma_post_test(struct nic_conn *c, uint64_t expected, uint64_t desired);
CN_MUST_CHECK int rd_rpma_post_test_read(struct nic_conn *c);
bool rd_rpma_queue_full(const struct nic_queue *queue);
/* Take the next slot of a queue that is not full. Returns whether the work request is to ask for a
 * completion: if it is `sure` to, wanted, or the last that did is half a queue ago. */
bool rd_rpma_queue_take(
    struct nic_conn *c, struct nic_queue *queue, const struct nic_op *op, bool sure);
/* The position that the wr_id of a completion names by its slot; false: nothing is posted there. */
bool rd_rpma_queue_find(const struct nic_queue *queue, uint64_t slot, uint64_t *ret_at);
/* Position `at` has completed: free what is free by that. Returns how many slots. */
uint32_t rd_rpma_queue_free(struct nic_conn *c, struct nic_queue *queue, uint64_t at);
/* Post what RD_MORE held back. May fail the connection. */
void rd_rpma_ring(struct nic_conn *c);
/* Forget everything posted: its queue pairs are gone or it is new. No events. Whoever claims, fails
 * or deletes a connection calls it (rd_rpma_fail_outstanding() does). */
void rd_rpma_forget_posted(struct nic_conn *c);
/* wr_id of an object queue pair's work request. Index, generation, queue pair, slot. */
static inline uint64_t nic_wr_id(const struct nic_conn *c, uint32_t qp, uint64_t position)
{
    return (uint64_t)c->generation << 48 | (uint64_t)c->index << 32 | (uint64_t)qp << 28 |
           (position & (c->qp[qp].queue.size - 1));
}
/* Of log memory in ep->log_mr; of a message buffer in ep->message_mr. */
static inline uint64_t nic_message_off(const struct nic_ep *ep, const uint8_t *buffer)
{
    return (uint64_t)(buffer - ep->messages);
}
static inline uint64_t nic_log_off(const struct nic_ep *ep, const void *local)
{
    const uint8_t *base = ep->memory + (ep->memory_size - ep->log_memory_size);
    return (uint64_t)((const uint8_t *)local - base);
}
/* Whether the peer ought to hear that it may send more. */
static inline bool nic_owes_credit(const struct nic_conn *c)
{
    return c->returned - c->returned_told >= NIC_RX / 2;
}
static inline void nic_set_busy(struct nic_conn *c)
{
    nic_conn_ep(c)->busy[c->index / 64] |= UINT64_C(1) << (c->index % 64);
}

/* ---- rd_rpma_complete.c ---- */
/* Reap completions of all queues of the endpoint: up to `max` events into `events`. */
uint32_t rd_rpma_reap(struct nic_ep *ep, struct rd_event *events, uint32_t max);
/* Error completions for everything wanted and outstanding, in post order (queue pairs are gone);
 * then rd_rpma_forget_posted(). A completion queued by rd_rpma_event() stays in c->outstanding: the
 * poll that delivers it counts it down, and counts it in `completions`. */
void rd_rpma_fail_outstanding(struct nic_conn *c, int status);
/* Before sleeping: take the pending notices of completion channels and arm them again. */
void rd_rpma_arm(struct nic_ep *ep);

/* ---- rd_rpma_message.c ---- */
int rd_rpma_send(struct rd_conn *c, const void *message, uint32_t size);
void rd_rpma_doorbell(struct rd_conn *c);
/* Post all receives of a log connection's request (before it connects or is accepted).
 * Errors: CAIRN_E_FABRIC. */
CN_MUST_CHECK int rd_rpma_post_receives(struct nic_conn *c, struct rpma_conn_req *request);
/* Post receives again whose messages the user has had. */
void rd_rpma_return_receives(struct nic_conn *c);
/* Send a frame made of up to two parts. Errors: CAIRN_E_AGAIN (no buffer free), as posts. */
CN_MUST_CHECK int rd_rpma_send_frame(struct nic_conn *c, enum rd_rpma_frame_type type,
    uint32_t count, const void *payload, uint32_t size);
/* A receive has completed: `size` bytes in buffer `at`. True: *ret_event is an event for the user;
 * otherwise it was the fabric's own, or hostile (then the connection has failed). */
bool rd_rpma_on_receive(struct nic_conn *c, uint32_t at, uint32_t size, struct rd_event *ret_event);
/* Put waiting operations by message into frames, as far as buffers are free. */
void rd_rpma_send_waiting(struct nic_conn *c);
/* Wait until sent messages have left, at most NIC_DRAIN_NS. */
void rd_rpma_drain_sends(struct nic_conn *c);

/* ---- rd_rpma_wire.c ---- */
/* Checks with texts. Errors: CAIRN_E_PROTOCOL, CAIRN_E_WIRE_VERSION. Everything is copied out. */
CN_MUST_CHECK int rd_rpma_check_cm(
    const void *data, uint32_t size, struct rd_rpma_cm_wire *ret_wire);
CN_MUST_CHECK int rd_rpma_check_frame(
    const void *frame, uint32_t size, struct rd_rpma_frame_wire *ret_head);
/* Regions do not overlap each other nor wrap around; at most RD_REGIONS_MAX. */
CN_MUST_CHECK int rd_rpma_check_accept(const void *payload, uint32_t size,
    struct rd_rpma_accept_wire *ret_accept, struct nic_grant grants[RD_REGIONS_MAX],
    uint32_t *ret_welcome_off);
/* One element of a PERSISTED or CAS_DONE frame that must answer `tag`. */
CN_MUST_CHECK int rd_rpma_check_done(
    const void *element, bool persisted, uint64_t tag, uint64_t *ret_old, int *ret_status);
const char *rd_rpma_frame_name(uint32_t type); /* "hello"; "unknown" */

#endif
