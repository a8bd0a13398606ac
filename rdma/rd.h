/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd.h: the fabric seam. Everything above this header speaks of endpoints, connections, remote
 * offsets and events; only rdma/ knows what carries them. Back ends implement struct rd_ops: `emu`
 * (rd_emu*.c, several processes on one machine), `rpma` (rd_rpma*.c, librpma and verbs), and the
 * modelled fabric of tests/sim.
 *
 * Model
 * - An *endpoint* belongs to one thread: it owns connections, an arena of memory that the fabric
 * may access locally, and one queue of events. All calls on it and its connections come from that
 *   thread, except rd_ep_wake().
 * - A *connection* has an active side (coordinator, or a node that asks another) and a passive side
 *   (a node). One-sided operations go from active to passive only. Both sides send messages.
 *   On `rpma` it is one librpma connection (everything that concerns a ring, and messages) and
 *   one or several RC queue pairs (read and cas of all other regions).
 * - Remote memory is named by *pool offset*: the passive side registers regions (pool offset,
 * length, access) and grants a set of them when it accepts; the back end finds which one covers an
 * access. An access outside the granted regions or rights fails at once with CAIRN_E_FABRIC.
 * - Local buffers of posts must lie in the endpoint's arena (rd_ep_memory): what is written to or
 *   read from a *ring* in its last log_memory_size bytes, everything else before them (no memory is
 *   registered twice). A buffer belongs to the fabric from post to completion (rule R6).
 *
 * Ordering, the weakest of all back ends; code above may rely on nothing more:
 * - Writes, flushes and marks of one connection are ordered among themselves: a completed flush
 *   covers every write posted before it on that connection; a mark is fenced: it takes effect after
 *   every flush posted before it.
 *   Where the peer's CPU makes flushes durable (RD_DURABILITY_GPSPM) nothing fences: a mark posted
 *   while a flush is outstanding is refused with CAIRN_E_STATE.
 * - Compare-and-swaps of one connection at the same remote offset execute in post order. Other
 *   reads and compare-and-swaps have no order among themselves (several queue pairs; atomics by
 *   message), nor against writes, flushes and marks. But where rd_conn.cas_orders_reads says so, a
 *   read posted behind a compare-and-swap at the same remote offset runs and completes behind it.
 * - No order between connections. No order inside one read.
 *
 * Completion. Every posted operation with RD_SIGNALED yields one RD_EV_COMPLETION carrying its
 * wr_id. An unsignaled one yields none when it succeeds. When a connection fails, the event
 * RD_EV_DOWN comes once, after a completion with an error status for every signaled operation still
 * outstanding: each of these may or may not have taken effect. Posting on a connection that is down
 * returns CAIRN_E_NODE_DOWN (or CAIRN_E_FENCED) and posts nothing.
 *
 * Nothing blocks except rd_ep_sleep() (bounded by its deadline), rd_ep_open/close, rd_listen. On
 * `rpma` some calls take longer than a post, within bounds: rd_loopback() connects, up to 2 s;
 * rd_fence(), rd_reject() and rd_conn_delete() let messages leave, up to 5 ms; so does the poll
 * after rd_ep_look() with what came before a peer closed, up to 100 ms; a poll that is connecting
 * resolves the address a second time (librpma), up to 1 s, mostly some microseconds. While it
 * does, and where it does not get away quickly, rd_fence(), rd_ring_rearm() and connects of other
 * endpoints of the process wait for it. A close waits, on iWARP, for the answers to what is being
 * connected.
 */
#ifndef RD_H
#define RD_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"

struct rd_fabric;
struct rd_ep;
struct rd_conn;
struct rd_region;

#define RD_HELLO_SIZE_MAX 48u /* what the active side sends with a connect (rdma_cm allows 56) */
#define RD_WELCOME_SIZE_MAX 176u  /* what the passive side answers (rdma_cm allows 196) */
#define RD_MESSAGE_SIZE_MAX 4096u
#define RD_ADDRESS_SIZE_MAX 108u
#define RD_REGIONS_MAX 80u        /* granted per connection */
#define RD_CACHE_LINE 64u
/* The first page of a ring region is the fabric's: `emu` keeps the fence word in its first 8 bytes;
 * bytes from 64 on are the participant's (published position). */
#define RD_RING_HEADER_SIZE 4096u

enum rd_access { RD_ACCESS_READ = 1, RD_ACCESS_WRITE = 2, RD_ACCESS_ATOMIC = 4 };

enum rd_flags {
    RD_SIGNALED = 1, /* wants a completion */
    RD_MORE = 2,     /* another post on this connection follows at once: the doorbell may wait */
};

/* How what a peer writes becomes durable, as the owner of the memory states it: see
 * docs/configuration.md. The numbers travel in the welcome. */
enum rd_durability {
    RD_DURABILITY_EMULATED = 1, /* survives the death of processes, not of the host */
    RD_DURABILITY_APM = 2,      /* direct write to pmem: read-after-write is durable */
    RD_DURABILITY_GPSPM = 3,    /* a message; the participant's CPU persists and answers */
    RD_DURABILITY_EADR = 4,     /* caches are in the power-fail domain: visible is durable */
};
const char *rd_durability_name(enum rd_durability durability); /* "apm"; "?" for unknown */

/* Memory to expose: `base` in this process is pool offset `pool_off`; `fd` maps it at `pool_off`
 * (a pool file's offset is the pool offset). fd is -1 where no file stands behind it. */
struct rd_memory {
    void *base;
    uint64_t pool_off;
    uint64_t size;
    int fd;
    enum rd_durability durability; /* of a ring: decides what a flush does; 0 means EMULATED */
};

enum rd_event_type {
    RD_EV_COMPLETION, /* conn, wr_id, status */
    RD_EV_MESSAGE,    /* conn, data, size (valid until the next rd_poll) */
    RD_EV_CONNECT,    /* passive: conn asks to be accepted; data, size = hello */
    RD_EV_UP,         /* active: accepted; data, size = welcome. passive: established; no data */
    RD_EV_DOWN, /* conn is lost or refused; status says why; data = reason of a refusal (with a
                 * status of CAIRN_E_FABRIC; without data and CAIRN_E_LIMIT: no room there) */
};

struct rd_event {
    enum rd_event_type type;
    int status; /* 0, CAIRN_E_FENCED, _NODE_DOWN, _FABRIC, _TIMEOUT, -EACCES ... */
    struct rd_conn *conn;
    uint64_t wr_id;
    const void *data;
    uint32_t size;
    const char *text; /* RD_EV_DOWN: cause and remedy, or NULL; valid until the next rd_poll */
};

struct rd_ep_config {
    const struct cn_env *env;
    uint32_t connections_max;
    uint32_t outstanding_max; /* posted and not completed operations per connection */
    uint64_t memory_size;     /* bytes of the arena, multiple of 64 */
    uint64_t log_memory_size; /* of these, at its end, for rings; multiple of 64 */
    const char *name;         /* for logs */
    const char *address;      /* the endpoint will listen here (it chooses the device); or NULL */
};

/* Counters of one endpoint, all since its opening. */
struct rd_counters {
    uint64_t reads, cas, writes, flushes, marks; /* work requests */
    uint64_t doorbells;                          /* posts that rang (no RD_MORE) */
    uint64_t completions, messages_sent, messages_received;
    uint64_t bytes_read, bytes_written;
    uint64_t wakeups; /* system calls made to wake a sleeping peer */
    uint64_t syscalls; /* all other system calls made on behalf of posts and polls */
    uint64_t registrations; /* of memory of ours: regions and arena; librpma's 8 bytes for each
                             * connection's flushes are not seen here, nor in rd_live */
    uint64_t rekeys; /* rings registered anew for a new owner: an old key is worth nothing */
    uint64_t flush_messages, cas_messages; /* flushes and cas that went by message */
    uint64_t heartbeats;
};

/* Objects alive in this process, over all fabrics; all zero when everything is closed. */
struct rd_live {
    uint64_t fabrics, endpoints, connections, regions, mappings, listeners, descriptors, threads;
    uint64_t devices, protection_domains, memory_regions, queue_pairs, completion_queues, cm_ids;
};
void rd_live_get(struct rd_live *ret_live);
bool rd_live_is_zero(const struct rd_live *live);

enum rd_hint {
    RD_HINT_READ,
    RD_HINT_CAS_READ, /* the first word is compared and swapped, then all is read */
    RD_HINT_WRITE,
};

struct rd_ops {
    const char *name;
    void (*fabric_delete)(struct rd_fabric *fabric);

    int (*ep_open)(struct rd_fabric *, const struct rd_ep_config *, struct rd_ep **ret_ep);
    void (*ep_close)(struct rd_ep *);
    void *(*ep_memory)(struct rd_ep *);
    void (*ep_counters)(const struct rd_ep *, struct rd_counters *ret);
    uint32_t (*poll)(struct rd_ep *, struct rd_event *events, uint32_t max);
    void (*ep_arm)(struct rd_ep *);
    void (*ep_sleep)(struct rd_ep *, uint64_t deadline_ns);
    void (*ep_wake)(struct rd_ep *);
    int (*ep_fd)(struct rd_ep *);
    void (*ep_look)(struct rd_ep *); /* NULL: each poll looks at everything */

    int (*listen)(struct rd_ep *, const char *address);
    int (*region_new)(struct rd_ep *, const struct rd_memory *, unsigned access,
        struct rd_region **ret_region);
    void (*region_delete)(struct rd_region *);
    int (*accept)(struct rd_conn *, struct rd_region *const *regions, uint32_t region_count,
        struct rd_region *ring, const void *welcome, uint32_t size);
    int (*reject)(struct rd_conn *, const void *reason, uint32_t size);
    int (*fence)(struct rd_conn *);
    int (*ring_revoke)(struct rd_region *ring, bool *ret_busy);
    int (*ring_rearm)(struct rd_region *ring);

    int (*connect)(struct rd_ep *, const char *address, const void *hello, uint32_t size,
        uint64_t deadline_ns, struct rd_conn **ret_conn);
    int (*loopback)(struct rd_ep *, struct rd_region *const *regions, uint32_t region_count,
        struct rd_conn **ret_conn);
    void (*conn_delete)(struct rd_conn *);

    /* NULL: nothing that would help. */
    void (*hint)(struct rd_conn *, uint64_t remote, uint32_t size, enum rd_hint hint);
    int (*read)(struct rd_conn *, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
        unsigned flags);
    int (*cas)(struct rd_conn *, uint64_t wr_id, uint64_t remote, uint64_t expected,
        uint64_t desired, uint64_t *local_old, unsigned flags);
    int (*write)(struct rd_conn *, uint64_t wr_id, uint64_t remote, const void *local,
        uint32_t size, unsigned flags);
    int (*flush)(struct rd_conn *, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags);
    int (*mark)(struct rd_conn *, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags);
    int (*send)(struct rd_conn *, const void *message, uint32_t size);
    void (*doorbell)(struct rd_conn *);
};

/* First member of every back end's objects. */
struct rd_fabric { const struct rd_ops *ops; };
struct rd_ep { const struct rd_ops *ops; void *user; };
struct rd_conn {
    const struct rd_ops *ops;
    struct rd_ep *ep;
    void *user;
    enum rd_durability durability; /* active side, from RD_EV_UP on: of the ring granted */
    bool cas_orders_reads; /* the same: see above; such a cas need not be signaled, as the read's
                            * completion tells of both */
};
struct rd_region { const struct rd_ops *ops; uint64_t pool_off, size; unsigned access; };

/* Options of a fabric; zero means the default. */
struct rd_fabric_config {
    char device[64];        /* RDMA device by name; "": the only one, or the one routed over */
    uint32_t queue_pairs;   /* for reads and cas, per connection; default cores / 2, 1 to 8 */
    bool message_atomics;   /* cas by message also where the device has atomics */
    uint32_t heartbeat_ms;  /* a silent peer is probed so often; a dead one is found in 4 of it;
                             * default 500 */
    /* emu: a model of a network, 0: none. An active endpoint's operations complete no earlier than
     * one round trip, plus bytes at this rate over its one port (with 82 of headers for each packet
     * of 4 KiB), after they were posted (queued behind those before them). Where the endpoint's env
     * can skip time (cn_env.h), waiting for them skips it: figures are projections then. */
    uint32_t model_rtt_ns;
    uint32_t model_mbps;
    bool write_back; /* emu: a flush writes cache lines back also where the durability needs no such
                      * thing (EMULATED, EADR): it costs then what it does on persistent memory */
    uint32_t linger_us; /* a passive endpoint's user goes on polling so long after work came; its
                         * peers ring a doorbell only when they have posted nothing for three
                         * quarters of it (default 1000) */
};

/*
 * Open a fabric by name ("emu", "rpma"). `config` NULL: defaults. Owner: caller deletes it after
 * all its endpoints.
 * Errors: CAIRN_E_CONFIG (no such fabric; names those there are), CAIRN_E_NO_DEVICE, -ENOMEM.
 */
CN_MUST_CHECK int rd_fabric_open(
    const char *name, const struct rd_fabric_config *config, struct rd_fabric **ret_fabric);
static inline void rd_fabric_delete(struct rd_fabric *f) { f->ops->fabric_delete(f); }

/* Endpoint: opened by the thread that will use it.
 * Errors: -errno, CAIRN_E_FABRIC, _NO_DEVICE, _MEMLOCK, _CONFIG (malformed address). */
CN_MUST_CHECK static inline int rd_ep_open(
    struct rd_fabric *f, const struct rd_ep_config *config, struct rd_ep **ret_ep)
{
    return f->ops->ep_open(f, config, ret_ep);
}
/* Deletes connections still there without notice to their peers beyond what closing does, and
 * regions still there. */
static inline void rd_ep_close(struct rd_ep *ep) { ep->ops->ep_close(ep); }
/* The arena: memory_size bytes, 64-byte aligned, zeroed at open. */
static inline void *rd_ep_memory(struct rd_ep *ep) { return ep->ops->ep_memory(ep); }
static inline void rd_ep_counters(const struct rd_ep *ep, struct rd_counters *ret)
{
    ep->ops->ep_counters(ep, ret);
}
/* Take up to `max` events; 0 when there is none. Never blocks, no system call on `emu`. With a
 * model of a network and a clock that can be skipped, a poll that would find nothing skips to when
 * something is due: so such a user polls when it has nothing else to do. */
static inline uint32_t rd_poll(struct rd_ep *ep, struct rd_event *events, uint32_t max)
{
    return ep->ops->poll(ep, events, max);
}
/*
 * Sleeping: rd_ep_arm(), then look once more at everything that can be pending (rd_poll, and for a
 * participant its rings), then rd_ep_sleep(). What arrives after the arm (an event, a doorbell, a
 * wake) ends the sleep, or makes it return at once. Spurious returns are allowed.
 */
static inline void rd_ep_arm(struct rd_ep *ep) { ep->ops->ep_arm(ep); }
static inline void rd_ep_sleep(struct rd_ep *ep, uint64_t deadline_ns)
{
    ep->ops->ep_sleep(ep, deadline_ns);
}
/* A descriptor that poll(2) finds readable when, after rd_ep_arm(), something came; the endpoint's
 * own: not to be read or closed. From the first call on each arm and wake costs a system call more.
 * Errors: -errno, CAIRN_E_FABRIC. */
CN_MUST_CHECK static inline int rd_ep_fd(struct rd_ep *ep) { return ep->ops->ep_fd(ep); }
/* The next poll looks for lost connections and new ones too, which it may otherwise do once in some
 * hundred polls only, as that costs a system call: for somebody who has not polled for long. If a
 * peer has closed, that poll may take some milliseconds. */
static inline void rd_ep_look(struct rd_ep *ep)
{
    if (ep->ops->ep_look != NULL)
        ep->ops->ep_look(ep);
}
/* From any thread. */
static inline void rd_ep_wake(struct rd_ep *ep) { ep->ops->ep_wake(ep); }

/* Listen for connections (passive). Errors: -EADDRINUSE (a live process listens there), -errno. */
CN_MUST_CHECK static inline int rd_listen(struct rd_ep *ep, const char *address)
{
    return ep->ops->listen(ep, address);
}
/* Register memory for remote access. Slow: at start only. Extents: READ|ATOMIC; rings: READ|WRITE.
 */
CN_MUST_CHECK static inline int rd_region_new(struct rd_ep *ep, const struct rd_memory *memory,
    unsigned access, struct rd_region **ret_region)
{
    return ep->ops->region_new(ep, memory, access, ret_region);
}
static inline void rd_region_delete(struct rd_region *r) { r->ops->region_delete(r); }
/*
 * Answer an RD_EV_CONNECT: grant `regions` and, for a coordinator, its `ring` (NULL for a peer that
 * only sends messages). RD_EV_UP follows on the passive side when established.
 */
CN_MUST_CHECK static inline int rd_accept(struct rd_conn *c, struct rd_region *const *regions,
    uint32_t region_count, struct rd_region *ring, const void *welcome, uint32_t size)
{
    return c->ops->accept(c, regions, region_count, ring, welcome, size);
}
/* Refuse; the peer gets RD_EV_DOWN with the reason's bytes. The connection is deleted. */
CN_MUST_CHECK static inline int rd_reject(struct rd_conn *c, const void *reason, uint32_t size)
{
    return c->ops->reject(c, reason, size);
}
/*
 * Cut the peer's access to this node's memory and drain it: when it returns 0 nothing the peer
 * posted or will post on this connection has any *successful* effect any more. Messages sent before
 * are delivered first, within a few milliseconds. On `rpma` the queue pairs are destroyed and the
 * ring is deregistered. On `emu` its process
 * may still scribble into the ring: the caller takes a snapshot of it after this call, decides from
 * the snapshot, and keeps the ring out of use while rd_ring_revoke() says busy. The connection
 * stays to be deleted. On `emu` a compare-and-swap already under way can still change a lock word
 * to that peer's own owner value; rule R13 frees it.
 */
CN_MUST_CHECK static inline int rd_fence(struct rd_conn *c) { return c->ops->fence(c); }
/*
 * As rd_fence() for a ring whose peer has no connection here (it belonged to an earlier
 * incarnation, or its connection is deleted). *ret_busy: a peer process may still write into the
 * ring's memory.
 */
CN_MUST_CHECK static inline int rd_ring_revoke(struct rd_region *ring, bool *ret_busy)
{
    return ring->ops->ring_revoke(ring, ret_busy);
}
/* Make a revoked ring usable by a new peer; only when not busy.
 * Errors: those of rd_region_new(). */
CN_MUST_CHECK static inline int rd_ring_rearm(struct rd_region *ring)
{
    return ring->ops->ring_rearm(ring);
}
/*
 * Begin a connection (active); RD_EV_UP or RD_EV_DOWN follows by the deadline. Does not block.
 * Errors: -ENOMEM, CAIRN_E_LIMIT (connections_max), CAIRN_E_CONFIG (malformed address).
 */
CN_MUST_CHECK static inline int rd_connect(struct rd_ep *ep, const char *address,
    const void *hello, uint32_t size, uint64_t deadline_ns, struct rd_conn **ret_conn)
{
    return ep->ops->connect(ep, address, hello, size, deadline_ns, ret_conn);
}
/* A connection to this node's own memory, for locks that the node itself needs (growth, scrub): up
 * at once; read and cas only. */
CN_MUST_CHECK static inline int rd_loopback(struct rd_ep *ep, struct rd_region *const *regions,
    uint32_t region_count, struct rd_conn **ret_conn)
{
    return ep->ops->loopback(ep, regions, region_count, ret_conn);
}
/* Close and free; the peer gets RD_EV_DOWN. No event of it is delivered afterwards; events of the
 * batch at hand may still name it: until the next rd_poll() or rd_connect() its `user` is NULL
 * then. */
static inline void rd_conn_delete(struct rd_conn *c) { c->ops->conn_delete(c); }

/*
 * One-sided operations. Remote offsets are pool offsets. cas and mark: 8-aligned; cas delivers the
 * old value in *local_old, success is old == expected.
 * Errors: CAIRN_E_NODE_DOWN, CAIRN_E_FENCED (nothing posted), CAIRN_E_FABRIC (outside what was
 * granted, and a ring's header page for writes), CAIRN_E_AGAIN (outstanding_max reached),
 * CAIRN_E_STATE (no RD_EV_UP yet). An operation that meets a fence while it runs completes with
 * CAIRN_E_FENCED and may have taken effect.
 */
/* What is going to be done to these bytes within microseconds: where an operation is executed by
 * the poster's processor they may be fetched meanwhile. No operation; anything may be named. */
static inline void rd_hint(struct rd_conn *c, uint64_t remote, uint32_t size, enum rd_hint hint)
{
    if (c->ops->hint != NULL)
        c->ops->hint(c, remote, size, hint);
}
CN_MUST_CHECK static inline int rd_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote,
    void *local, uint32_t size, unsigned flags)
{
    return c->ops->read(c, wr_id, remote, local, size, flags);
}
CN_MUST_CHECK static inline int rd_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote,
    uint64_t expected, uint64_t desired, uint64_t *local_old, unsigned flags)
{
    return c->ops->cas(c, wr_id, remote, expected, desired, local_old, flags);
}
CN_MUST_CHECK static inline int rd_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote,
    const void *local, uint32_t size, unsigned flags)
{
    return c->ops->write(c, wr_id, remote, local, size, flags);
}
/* Make everything written before on this connection durable; [remote, remote+size) is what was last
 * written. */
CN_MUST_CHECK static inline int rd_flush(
    struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    return c->ops->flush(c, wr_id, remote, size, flags);
}
/* Fenced 8-byte atomic write. */
CN_MUST_CHECK static inline int rd_mark(
    struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    return c->ops->mark(c, wr_id, remote, value, flags);
}
/* Send a message (either side). Copied. Errors: as above, CAIRN_E_AGAIN (queue full). */
CN_MUST_CHECK static inline int rd_send(struct rd_conn *c, const void *message, uint32_t size)
{
    return c->ops->send(c, message, size);
}
/* Tell a sleeping passive side that its ring has something new. Cheap when it is awake. */
static inline void rd_doorbell(struct rd_conn *c) { c->ops->doorbell(c); }

#endif
