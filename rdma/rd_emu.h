/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu.h: what the files of the `emu` back end share: its objects, who may touch which part of
 * them, and the frames of its transport (docs/wire-format.md).
 *
 *   rd_emu.c        fabric, endpoint, arena, sleeping
 *   rd_emu_poll.c   poll: completions, connections found down, notices
 *   rd_emu_model.c  the model of a network: when something is due
 *   rd_emu_conn.c   the endpoint thread's side of connections: connect, accept, send, delete
 *   rd_emu_map.c    regions, mapping of granted regions, ring locks, fencing
 *   rd_emu_data.c   one-sided operations
 *   rd_emu_cpu.c    write-back of cache lines
 *   rd_emu_nic.c    the watcher thread: reads all sockets
 *
 * Threads. An endpoint's own thread polls and posts; its *watcher* stands for the NIC. They share
 * - a ring of notices, written by the watcher, read by poll: `head` and `tail`, release and
 *   acquire. What the watcher prepares for the endpoint thread (mappings, descriptor) is published
 *   by the notice;
 * - a mutex around the control plane (states, descriptors, the connection table). Neither polling
 *   nor posting takes it;
 * - single atomic words, marked so below.
 */
#ifndef RD_EMU_H
#define RD_EMU_H

#include <pthread.h>
#include <sys/types.h>

#include "rdma/rd.h"

/* ---- transport: frames over a Unix socket of type SOCK_SEQPACKET, one per packet ---- */

#define RD_EMU_MAGIC UINT32_C(0x31454e43) /* "CNE1" */
enum rd_emu_frame_type {
    RD_EMU_HELLO = 1,   /* active: up to RD_HELLO_SIZE_MAX bytes */
    RD_EMU_ACCEPT = 2,  /* passive: rd_emu_accept_wire and what follows it */
    RD_EMU_REJECT = 3,  /* passive: up to RD_WELCOME_SIZE_MAX bytes; none = no room */
    RD_EMU_READY = 4,   /* active: everything is mapped and the ring is locked; no bytes */
    RD_EMU_MESSAGE = 5, /* either: 1 to RD_MESSAGE_SIZE_MAX bytes */
};
struct rd_emu_frame_wire { /* 16 bytes, then the payload */
    struct le32 magic;
    struct le16 type;
    uint8_t reserved0[2];
    struct le32 size; /* of the payload */
    uint8_t reserved[4];
};
#define RD_EMU_NO_FILE 0xffffu
struct rd_emu_region_wire { /* 32 bytes */
    struct le64 pool_off;
    struct le64 size;
    struct le64 base; /* 16: address in the process `pid`; only where there is no file, else 0 */
    struct le16 access;
    struct le16 durability; /* 26: enum rd_durability, of the ring; else 0 */
    struct le16 file; /* 28: index of the passed descriptor, RD_EMU_NO_FILE */
    struct le16 ring; /* 30: 1 = the ring */
};
struct rd_emu_accept_wire { /* 16 bytes, then the regions, then the welcome */
    struct le32 pid;
    struct le32 region_count;
    struct le32 file_count; /* files passed behind the doorbell page's descriptor */
    struct le32 welcome_size;
};
#define RD_EMU_REGIONS_MAX (RD_REGIONS_MAX + 1u) /* and the ring */
#define RD_EMU_FILES_MAX RD_EMU_REGIONS_MAX
#define RD_EMU_FRAME_SIZE_MAX (sizeof(struct rd_emu_frame_wire) + RD_MESSAGE_SIZE_MAX)

/* The endpoint's doorbell page, mapped by its peers. */
struct emu_bell {
    uint32_t sleeping; /* atomic; also the futex: 1 while the endpoint thread is going to sleep */
};
#define EMU_PAGE_SIZE 4096u

/* First page of a ring region. */
struct emu_ring_header {
    uint64_t fence; /* atomic; non-zero: nobody's operations on the ring succeed */
    uint64_t users; /* atomic; mappings within the process, where no file stands behind the ring */
};

/* ---- bounds ---- */
#define EMU_NOTICES 256u               /* messages and notices that wait for a poll */
#define EMU_CONN_NOTICES 128u          /* of these, messages of one connection */
#define EMU_RANGES 16u                 /* written ranges remembered until a flush */
#define EMU_GREETING_NS UINT64_C(2000000000)  /* a peer must have sent its hello */
#define EMU_READY_NS UINT64_C(10000000000)    /* an accepted peer must have mapped everything */
#define EMU_RETRY_NS UINT64_C(2000000)        /* between tries on a listener whose queue is full */
#define EMU_SLEEP_NS_MAX UINT64_C(10000000000)
#define EMU_EARLY_NS UINT64_C(100000) /* a sleep ends so long before something is due by the model:
                                       * the kernel is not exact, poll is */

enum emu_state {
    EMU_FREE,
    EMU_CLAIMED,
    EMU_QUEUED,   /* active: to be connected by the watcher */
    EMU_ASKING,   /* active: hello sent */
    EMU_GREETING, /* passive: hello due */
    EMU_ASKED,    /* passive: the user knows it and is to accept or reject */
    EMU_ACCEPTED, /* passive: accepted, ready due */
    EMU_UP,
    EMU_DOWN,
    EMU_LOOPBACK,
    EMU_DELETED,  /* free at the next poll: events of this batch may still name it */
};

struct emu_map {
    uint64_t pool_off, size;
    uint8_t *base; /* address of pool_off */
    void *mapped;  /* NULL: not ours (in-process) */
    size_t mapped_size;
    unsigned access;
    bool ring;
};

struct emu_range { uint64_t off, end; };

/* What one kind of access may touch without asking again: a part of one map, and the local memory
 * that goes with it. */
enum emu_access { EMU_READ, EMU_CAS, EMU_WRITE, EMU_ACCESS_COUNT };
struct emu_window {
    uint64_t off, size; /* size 0: ask */
    uint8_t *base;      /* address of off */
    uintptr_t local;
    uint64_t local_size;
};

struct emu_conn {
    struct rd_conn base;
    uint32_t index;
    uint32_t state;      /* atomic enum emu_state; changed under the lock, except to FREE */
    uint64_t generation; /* atomic; notices of an earlier one are dropped */
    int dead;            /* atomic; non-zero: why operations fail from now on */
    uint32_t queued;     /* atomic; messages in the notice ring */

    /* Under the lock. */
    int fd;
    bool active, unread, down_due, watched;
    uint64_t deadline_ns, retry_ns;
    char address[RD_ADDRESS_SIZE_MAX];
    uint8_t hello[RD_HELLO_SIZE_MAX];
    uint32_t hello_size;
    struct rd_region *ring; /* passive */
    pid_t peer_pid;

    /* Written by the watcher before the UP notice, the endpoint thread's afterwards. */
    struct emu_map maps[RD_EMU_REGIONS_MAX]; /* by pool_off */
    uint32_t map_count;
    struct emu_ring_header *ring_header; /* NULL: granted no ring */
    const uint64_t *fence;               /* its word; without a ring a zero */
    bool write_back;                     /* a flush writes cache lines back */
    struct emu_bell *peer_bell;

    /* The endpoint thread's; it leaves them zero when it deletes the connection. */
    bool up, fenced, down_delivered;
    bool plain; /* up, and operations need nothing besides: no model */
    int local_down; /* found down by a post: to be delivered */
    uint32_t outstanding;
    uint32_t flushes; /* of these; counted so that marks can be as strict as on every fabric */
    struct emu_window window[EMU_ACCESS_COUNT];
    struct emu_range ranges[EMU_RANGES];
    uint32_t range_count;
};

struct emu_notice {
    enum rd_event_type type;
    int status;
    uint32_t conn;
    uint32_t size, data_off; /* data in `frame` */
    uint64_t generation;
    uint64_t due_ns; /* the endpoint thread's; with a model only */
    _Alignas(64) uint8_t frame[RD_EMU_FRAME_SIZE_MAX];
};

struct emu_completion {
    uint64_t wr_id;
    struct emu_conn *conn;
    uint64_t due_ns; /* with a model only */
    bool flush;
};

/* The model of a network (rd_fabric_config). */
struct emu_model {
    bool on;
    uint32_t rtt_ns, mbps; /* mbps 0: bytes take no time */
    /* Of an endpoint: its port is busy until port_ns and port_rest / mbps. */
    uint64_t port_ns, port_rest;
    uint64_t last_due_ns; /* of what was posted last: due times never go back */
    uint64_t seen;        /* notices before this one have their due_ns */
};

struct emu_fabric {
    struct rd_fabric base;
    void (*flush_line)(const void *line);
    bool write_back; /* whatever the durability */
    struct emu_model model;
    uint32_t endpoints;
};

struct emu_region {
    struct rd_region base;
    struct emu_ep *ep;
    struct emu_region *next;
    uint8_t *memory;
    enum rd_durability durability;
    int fd; /* of an open file description of our own; -1: no file */
    dev_t device;
    ino_t inode;
};

struct emu_ep {
    struct rd_ep base;
    struct emu_fabric *fabric;
    const struct cn_env *env;
    char name[32];
    uint8_t *memory;
    uint64_t memory_size;          /* of the mapping */
    uint64_t object_size, log_size; /* the arena: for objects, and behind that for rings */
    struct emu_bell *bell;
    int bell_fd;
    struct emu_conn *conns;
    uint32_t connections_max, outstanding_max;
    struct emu_region *regions;
    struct rd_counters counters;

    /* The endpoint thread's: completions, in post order. */
    struct emu_completion *completions;
    uint64_t completion_mask; /* their number, a power of two, minus 1 */
    uint64_t completion_head, completion_tail;
    bool unordered;   /* something was written since the last full barrier */
    bool written_back; /* cache lines were written back since the last store barrier */
    uint32_t local_downs, deleted;
    uint64_t taken; /* notices given to the user; released at the next poll */
    struct emu_model model;

    /* Shared, atomic. A line of their own, as the watcher changes them. */
    _Alignas(RD_CACHE_LINE) struct emu_notice *notices;
    uint64_t head, tail;
    uint32_t stalled; /* the watcher waits for room */
    uint32_t woken;   /* rd_ep_wake() since the last sleep */
    int wake_fd;      /* of rd_ep_fd(); -1: nobody has asked for it */
    uint32_t rung;    /* it has been written since the last arm */
    uint32_t stopping;

    pthread_mutex_t lock;
    pthread_t thread;
    bool threaded;
    int epoll_fd, kick_fd, listen_fd;
    /* Under the lock. */
    uint64_t listen_retry_ns;
    char address[RD_ADDRESS_SIZE_MAX];
    dev_t listen_device;
    ino_t listen_inode;
};

static inline struct emu_ep *emu_ep(struct rd_ep *ep) { return (struct emu_ep *)(void *)ep; }
static inline struct emu_conn *emu_conn(struct rd_conn *c) { return (struct emu_conn *)(void *)c; }
static inline struct emu_region *emu_region(struct rd_region *r)
{
    return (struct emu_region *)(void *)r;
}
static inline struct emu_ep *emu_conn_ep(const struct emu_conn *c) { return emu_ep(c->base.ep); }

/* Orders all earlier loads and stores before all later ones: a locked instruction does, and takes a
 * quarter of an mfence's time. Of write-backs it says nothing: emu_store_barrier() first. */
static inline void emu_full_barrier(void)
{
    __asm__ volatile("lock; orl $0, -4(%%rsp)" ::: "memory", "cc");
}
/* All earlier write-backs are done before any later store. */
static inline void emu_store_barrier(void) { __asm__ volatile("sfence" ::: "memory"); }

static inline bool emu_is_fenced(const struct emu_conn *c)
{
    return __atomic_load_n(c->fence, __ATOMIC_ACQUIRE) != 0;
}

static inline enum emu_state emu_state(const struct emu_conn *c)
{
    return (enum emu_state)__atomic_load_n(&c->state, __ATOMIC_ACQUIRE);
}
static inline void emu_set_state(struct emu_conn *c, enum emu_state state)
{
    __atomic_store_n(&c->state, (uint32_t)state, __ATOMIC_RELEASE);
}

/* rd_emu.c */
CN_MUST_CHECK int rd_emu_fabric_new(
    const struct rd_fabric_config *config, struct rd_fabric **ret_fabric);
/* Take a free connection; NULL if there is none. Under the lock. With `reuse`, one deleted since
 * the last poll will do (endpoint thread only). What belongs to the endpoint thread is clean
 * already. */
struct emu_conn *rd_emu_conn_claim(struct emu_ep *ep, bool reuse);
/* Give up everything of a connection. Under the lock. It becomes `state`: FREE or DELETED. */
void rd_emu_conn_release(struct emu_conn *c, enum emu_state state);
/* Set `sleeping` to 0 and wake who sleeps on it. Returns whether that took a system call. */
bool rd_emu_bell_ring(struct emu_bell *bell);
/* The same for an endpoint of this process, whose user may be asleep on its descriptor instead. */
void rd_emu_ep_ring(struct emu_ep *ep);
void rd_emu_close(int fd);
int rd_emu_own_fd(int fd); /* counts a descriptor just made; passes errors (< 0) on as -errno */
void *rd_emu_map(int fd, uint64_t off, size_t size, int protection); /* NULL and errno */
void rd_emu_unmap(void *address, size_t size);

/* rd_emu_conn.c */
int rd_emu_listen(struct rd_ep *ep, const char *address);
void rd_emu_unlisten(struct emu_ep *ep);
int rd_emu_accept(struct rd_conn *c, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size);
int rd_emu_reject(struct rd_conn *c, const void *reason, uint32_t size);
int rd_emu_connect(struct rd_ep *ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn);
int rd_emu_loopback(struct rd_ep *ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn);
void rd_emu_conn_delete(struct rd_conn *c);
int rd_emu_send(struct rd_conn *c, const void *message, uint32_t size);
void rd_emu_doorbell(struct rd_conn *c);
int rd_emu_fence(struct rd_conn *c);
/* One packet: a frame's header and its payload. Never blocks. Errors: -errno. */
int rd_emu_send_frame(int fd, enum rd_emu_frame_type type, const void *payload, uint32_t size);

/* rd_emu_map.c */
int rd_emu_region_new(struct rd_ep *ep, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region);
void rd_emu_region_delete(struct rd_region *region);
int rd_emu_ring_revoke(struct rd_region *ring, bool *ret_busy);
int rd_emu_ring_rearm(struct rd_region *ring);
void rd_emu_ring_set_fence(struct rd_region *ring);
/* Open what `fd` refers to again: an open file description of our own. Errors: -errno. */
int rd_emu_reopen(int fd);
/*
 * Map what an accept frame (`size` bytes of payload, hostile) grants; `fds` stay the caller's. On
 * failure nothing is mapped. *ret_welcome_off: where the welcome begins in the payload.
 * Errors: CAIRN_E_PROTOCOL, CAIRN_E_FABRIC, CAIRN_E_FENCED, -errno.
 */
int rd_emu_map_grant(struct emu_conn *c, const uint8_t *payload, uint32_t size, const int *fds,
    uint32_t fd_count, uint32_t *ret_welcome_off);
void rd_emu_unmap_all(struct emu_conn *c);
int rd_emu_add_map(struct emu_conn *c, const struct emu_map *map); /* keeps the order */
extern const uint64_t rd_emu_no_fence; /* of connections without a ring: zero */

/* rd_emu_data.c */
void rd_emu_hint(struct rd_conn *c, uint64_t remote, uint32_t size, enum rd_hint hint);
int rd_emu_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
    unsigned flags);
int rd_emu_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags);
int rd_emu_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags);
int rd_emu_flush(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags);
int rd_emu_mark(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags);
/* Whether the connection may be used; else the error that posts and sends return. */
int rd_emu_check_alive(struct emu_conn *c);
/* The fence word was seen set: the connection is down from now on, and poll says so once. */
void rd_emu_mark_fenced(struct emu_conn *c);

/* rd_emu_poll.c */
uint32_t rd_emu_poll(struct rd_ep *ep, struct rd_event *events, uint32_t max);

/* rd_emu_model.c; only where the model is on */
/* `size` bytes of payload are posted: when the operation is due. */
uint64_t rd_emu_model_post(const struct emu_conn *c, uint32_t size);
/* Give the notices that came since the last call their due time. */
void rd_emu_model_see(struct emu_ep *ep, uint64_t now);
/* When the first completion or notice that nobody has polled is due; UINT64_MAX: there is none. */
uint64_t rd_emu_model_due(const struct emu_ep *ep);

/* rd_emu_cpu.c */
void (*rd_emu_choose_flush(void))(const void *line);

/* rd_emu_nic.c */
int rd_emu_nic_start(struct emu_ep *ep); /* does nothing if it runs */
void rd_emu_nic_stop(struct emu_ep *ep);
void rd_emu_nic_kick(struct emu_ep *ep); /* make it look at the connections */
/* Take a connection's socket out of the watcher's sight. Under the lock. */
void rd_emu_nic_forget(struct emu_conn *c);

#endif
