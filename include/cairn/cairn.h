/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cairn.h: distributed transactions on remote persistent memory.
 *
 * A process that opens a cluster is a coordinator. Transactions read and write byte-string keys in
 * named tables that are spread over participant nodes, and commit by writing one redo record into
 * the persistent memory of every participant they write to.
 *
 * Threads. `struct cairn` may be shared by threads. A `struct cairn_ctx` and every transaction
 * begun on it belong to one thread at a time: nothing inside is locked. Calls assert this in debug
 * builds. One context has up to cairn_options.inflight transactions open at once.
 *
 * Errors. Functions return 0 or a negative number: -errno where the system refused, or one of
 * CAIRN_E_* (from -20000 down). cairn_last_error() gives the text for the calling thread; it names
 * the file, node or option concerned and what to do.
 * *Those of reaching a node*: CAIRN_E_NODE_DOWN (also: connection lost), _TIMEOUT, _FENCED, _SLOTS,
 * _UNREACHABLE, _REJECTED, _NO_DEVICE, _MEMLOCK, _NO_ATOMICS, _FABRIC, _WIRE_VERSION,
 * _WRONG_CLUSTER, _WRONG_NODE, _DURABILITY, _PROTOCOL.
 *
 * Outcomes are not errors. cairn_commit() returns 0 when it could tell what became of the
 * transaction and reports it in an enum cairn_outcome; a transaction that met a conflict is
 * ABORTED, which is a normal outcome: run it again, or let cairn_run() do so.
 */
#ifndef CAIRN_H
#define CAIRN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CAIRN_API __attribute__((visibility("default")))
#define CAIRN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define CAIRN_API
#define CAIRN_MUST_CHECK
#endif

#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1
#define CAIRN_VERSION_PATCH 0

/* Limits. Each is enforced with an error of its own. */
#define CAIRN_KEY_SIZE_MAX 255u          /* bytes of a key; at least 1 */
#define CAIRN_VALUE_SIZE_MAX 65536u      /* bytes of a value; 0 is allowed */
#define CAIRN_TX_KEYS_MAX 256u           /* keys read or written by one transaction */
#define CAIRN_TX_BYTES_MAX (512u * 1024) /* keys and values written by one transaction, per node */
#define CAIRN_NODES_MAX 64u              /* nodes of a cluster; node ids are 1..65535 */
#define CAIRN_TABLES_MAX 64u             /* tables of a cluster; table ids are 1..65535 */
#define CAIRN_INFLIGHT_MAX 256u          /* transactions open at once in one context */
#define CAIRN_TOKEN_SIZE 96u             /* bytes of a token's text with its terminating zero */

/* One list makes the enum, the names, the texts and the table in docs/errors.md. */
#define CAIRN_ERRORS(X)                                                                            \
    X(CONFLICT, -20000, "the transaction met a conflict and has been aborted; run it again")       \
    X(NOT_FOUND, -20001, "no such key")                                                            \
    X(KEY_SIZE, -20002, "the key is empty or longer than CAIRN_KEY_SIZE_MAX")                      \
    X(VALUE_SIZE, -20003, "the value is longer than CAIRN_VALUE_SIZE_MAX")                         \
    X(TX_SIZE, -20004, "the transaction has too many keys or bytes")                               \
    X(NO_TABLE, -20005, "no such table in this cluster")                                           \
    X(BUFFER_SIZE, -20006, "the buffer is too small for the value")                                \
    X(STATE, -20007, "the call is not allowed in this state")                                      \
    X(TIMEOUT, -20008, "the deadline passed")                                                      \
    X(NODE_DOWN, -20009, "a node cannot be reached")                                               \
    X(FENCED, -20010, "a node has fenced this context; it reconnects with the next transaction")   \
    X(POOL_FULL, -20011, "a participant has no space left")                                        \
    X(RING_FULL, -20012, "a log ring stays full: its node does not keep up or is blocked")         \
    X(SLOTS, -20013, "a node has no free slot for one more coordinator context")                   \
    X(TOKEN, -20014, "the token is malformed or of another cluster")                               \
    X(EXPIRED, -20015, "the verdict is no longer kept")                                            \
    X(IN_DOUBT, -20016, "the verdict needs a participant that cannot be reached now")              \
    X(CONFIG, -20017, "the configuration is wrong")                                                \
    X(WRONG_CLUSTER, -20018, "the peer or pool belongs to another cluster")                        \
    X(WRONG_NODE, -20019, "the peer or pool belongs to another node, or one id is used twice")     \
    X(WIRE_VERSION, -20020, "the peer speaks another version of the wire format")                  \
    X(PROTOCOL, -20021, "the peer sent something malformed or out of place")                       \
    X(LAYOUT_VERSION, -20022, "the pool has another layout version")                               \
    X(NOT_A_POOL, -20023, "the file is not a Cairn pool")                                          \
    X(POOL_SIZE, -20024, "the pool is truncated, or its size has changed")                         \
    X(POOL_BUSY, -20025, "the pool is open in another process")                                    \
    X(CORRUPT_SUPER, -20026, "the superblock of the pool is corrupt")                              \
    X(CORRUPT_SLOT, -20027, "a slot header of the pool is corrupt")                                \
    X(CORRUPT_RECORD, -20028, "a redo record is corrupt or hostile")                               \
    X(CORRUPT_ITEM, -20029, "an item is corrupt")                                                  \
    X(CORRUPT_BUCKET, -20030, "an index bucket is corrupt")                                        \
    X(CORRUPT_INDEX, -20031, "an index root or chunk descriptor is corrupt")                       \
    X(VERSION_END, -20032, "a lock word's version is at its end")                                  \
    X(FABRIC, -20033, "the fabric failed an operation")                                            \
    X(AGAIN, -20034, "not possible right now; try again")                                          \
    X(DURABILITY, -20035, "the platform cannot make one-sided writes durable in this mode")        \
    X(LIMIT, -20036, "a configured limit is reached")                                              \
    X(NO_DEVICE, -20037, "this host has no usable RDMA device; see `cairn doctor`")                \
    X(UNREACHABLE, -20038, "no route to the address over an RDMA device")                          \
    X(REJECTED, -20039, "nobody listens at the address, or the peer refused the connection")       \
    X(MEMLOCK, -20040, "the limit of locked memory (memlock) is too low")                          \
    X(NO_ATOMICS, -20041, "the RDMA device has no working remote atomics")

enum cairn_error {
#define CAIRN_X(name, value, text) CAIRN_E_##name = (value),
    CAIRN_ERRORS(CAIRN_X)
#undef CAIRN_X
};

enum cairn_outcome {
    CAIRN_OUTCOME_NONE = 0,      /* not decided yet, or the call failed before it began */
    CAIRN_OUTCOME_COMMITTED = 1, /* durable on all participants */
    CAIRN_OUTCOME_ABORTED = 2,   /* certainly had no effect, and never will */
    CAIRN_OUTCOME_UNKNOWN = 3,   /* a connection was lost at the wrong moment: cairn_resolve() */
};

struct cairn;     /* an opened cluster */
struct cairn_ctx; /* a coordinator context: one thread, one log slot per participant */
struct cairn_tx;  /* a transaction; valid from cairn_begin() to cairn_commit() or cairn_abort() */

/* Static text of an error (CAIRN_E_* or -errno). Never NULL. Any thread. */
CAIRN_API const char *cairn_strerror(int error);
/* The symbolic name, "CAIRN_E_CONFLICT" or "ENOMEM". Never NULL. Any thread. */
CAIRN_API const char *cairn_error_name(int error);
/* Text of the last error of the calling thread: valid until its next Cairn call. Never NULL. */
CAIRN_API const char *cairn_last_error(void);
CAIRN_API const char *cairn_outcome_name(enum cairn_outcome outcome);
CAIRN_API const char *cairn_version(void);

struct cairn_options {
    size_t size;                  /* sizeof(struct cairn_options), for later versions */
    uint32_t connect_timeout_ms;  /* reaching a node; default 2000 */
    uint32_t op_timeout_ms;       /* any wait for a node inside a transaction; default 5000 */
    uint32_t cache_entries;       /* location cache, shared by all contexts; default 1 << 16 */
    uint32_t inflight; /* transactions open at once in one context; default (and 0) 1, at most
                        * CAIRN_INFLIGHT_MAX. Each takes memory at cairn_ctx_open() */
};

#define CAIRN_OPTIONS_DEFAULT                                                                      \
    {                                                                                              \
        sizeof(struct cairn_options), 2000, 5000, 1u << 16, 1                                      \
    }

/*
 * Open the cluster that the configuration file describes (docs/configuration.md). Connects to
 * nothing yet. `options` may be NULL.
 * Errors: CAIRN_E_CONFIG, CAIRN_E_NO_DEVICE, -ENOENT and other -errno of reading the file, -ENOMEM.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_open(const char *config_path,
    const struct cairn_options *options, struct cairn **ret_cluster);
/* Close. All contexts must be closed before. *cluster becomes NULL. */
CAIRN_API void cairn_close(struct cairn **cluster);

/* The table's id for a name of the configuration. Errors: CAIRN_E_NO_TABLE. Any thread. */
CAIRN_API CAIRN_MUST_CHECK int cairn_table(
    struct cairn *cluster, const char *name, uint32_t *ret_table);

/*
 * Open a context. It takes all its memory here; it connects to a node when a transaction first
 * needs it. Owner: the caller keeps `cluster` open longer than the context.
 * Errors: -ENOMEM, CAIRN_E_FABRIC, _NO_DEVICE, _MEMLOCK.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_ctx_open(struct cairn *cluster, struct cairn_ctx **ret_ctx);
/*
 * Close: gives the slots back. Operations under way are carried to their end first, and `done` is
 * called: a commit gets its outcome; what bodies of cairn_run_async() call from then on returns
 * CAIRN_E_STATE, and they do not run again. A transaction still open then is aborted. *ctx becomes
 * NULL. `done` may call it, a body of cairn_run_async() must not.
 */
CAIRN_API void cairn_ctx_close(struct cairn_ctx **ctx);

/*
 * Begin. Errors: CAIRN_E_STATE (as many transactions are open as cairn_options.inflight says, or
 * one has taken its token: see cairn_tx_token()); a node was lost and other transactions of this
 * context are not ended yet: NODE_DOWN, TIMEOUT, FENCED and the like: end them first.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_begin(struct cairn_ctx *ctx, struct cairn_tx **ret_tx);

/*
 * Read a key into buf[0..buf_size). *ret_size gets the value's size, also with BUFFER_SIZE. A key
 * written earlier in the transaction reads as written.
 * Errors: CAIRN_E_NOT_FOUND (a read like any other: the absence is validated at commit),
 * CAIRN_E_BUFFER_SIZE, _KEY_SIZE, _NO_TABLE, _TX_SIZE, _CONFLICT, _CORRUPT_*, _STATE, and those of
 * reaching the node. After CONFLICT, and when a node was lost or could not be reached (NODE_DOWN,
 * TIMEOUT, FENCED, UNREACHABLE, REJECTED, NO_DEVICE, MEMLOCK, NO_ATOMICS, FABRIC, WIRE_VERSION),
 * the transaction can only be aborted.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_get(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, size_t *ret_size);
/*
 * As cairn_get(), and lock the key (or its absence) in the same round trip. A lock that another
 * transaction holds is a CONFLICT: at once if this transaction holds a lock itself, after a short
 * back-off otherwise. Locks are held until the end of the transaction; a context that
 * makes no Cairn call for the cluster's lease time while it holds one may be fenced.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_get_for_update(struct cairn_tx *tx, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t buf_size, size_t *ret_size);
/*
 * Several reads in one round trip. Each element gets its own status: 0, CAIRN_E_NOT_FOUND or
 * CAIRN_E_BUFFER_SIZE; `value_size` is set as by cairn_get(). With `for_update` an element is
 * locked as by cairn_get_for_update(). Returns 0 when every element was answered, else the first
 * other error, those of cairn_get(); the elements' contents are undefined then.
 */
struct cairn_read {
    const void *key;
    size_t key_size;
    void *buf;
    size_t buf_size;
    size_t value_size; /* out */
    uint32_t table;
    int status;        /* out */
    int for_update;
};
CAIRN_API CAIRN_MUST_CHECK int cairn_get_many(
    struct cairn_tx *tx, struct cairn_read *reads, size_t count);
/* Insert or overwrite. Buffered (copied) until commit. Errors: _KEY_SIZE, _VALUE_SIZE, _NO_TABLE,
 * _TX_SIZE, _STATE. */
CAIRN_API CAIRN_MUST_CHECK int cairn_put(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, const void *value, size_t value_size);
/* Delete; a key that does not exist is not an error. Buffered until commit. Errors as cairn_put. */
CAIRN_API CAIRN_MUST_CHECK int cairn_delete(
    struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size);

/*
 * Commit; the transaction is gone afterwards whatever is returned. Returns 0 with the outcome, or
 * an error that says why nothing was done (outcome ABORTED): CAIRN_E_POOL_FULL, _RING_FULL,
 * _TX_SIZE, _VERSION_END, _CORRUPT_*, and those of reaching the nodes. A conflict is 0 with
 * ABORTED. UNKNOWN comes with 0.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome);
/* Abort: releases all locks. The transaction is gone afterwards. An operation of it that is under
 * way is waited for first. */
CAIRN_API void cairn_abort(struct cairn_tx *tx);

/*
 * The token of a transaction that has written something: a printable string by which any process
 * can ask for its verdict later. Naming it takes the transaction's place in a log, so ask only when
 * it will be used; after an UNKNOWN outcome cairn_ctx_token() gives it without that cost. A place
 * taken holds up the log, so the transaction has to be the only one open in its context, until it
 * ends.
 * Errors: CAIRN_E_STATE (nothing written yet, or others are open), and those of reaching the node.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_tx_token(struct cairn_tx *tx, char token[CAIRN_TOKEN_SIZE]);
/* The token of the context's last committed or UNKNOWN transaction that wrote. CAIRN_E_STATE: none.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_ctx_token(
    struct cairn_ctx *ctx, char token[CAIRN_TOKEN_SIZE]);
/*
 * Turn a token into a verdict, COMMITTED or ABORTED: never a guess. A transaction that was not
 * logged everywhere is prevented by asking, and stays ABORTED.
 * Errors: CAIRN_E_TOKEN, _EXPIRED, _IN_DOUBT, and those of reaching the node: those that time may
 * mend only after the deadline.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_resolve(
    struct cairn_ctx *ctx, const char *token, enum cairn_outcome *ret_outcome);

/*
 * The body of a transaction for cairn_run(): 0 to commit, or an error: CAIRN_E_CONFLICT and _FENCED
 * run it again, any other aborts and is returned. It may run several times and must not keep state
 * of an earlier try.
 */
typedef int (*cairn_tx_fn)(struct cairn_tx *tx, void *arg);

struct cairn_run_result {
    enum cairn_outcome outcome;
    uint32_t tries;
};

/*
 * Run `fn` in a transaction until it commits, fails or `timeout_ms` has passed; conflicts back off
 * at random. An UNKNOWN outcome is resolved within the deadline; if that is not possible the result
 * is UNKNOWN with error CAIRN_E_IN_DOUBT and the token is in cairn_ctx_token(). `ret` may be NULL.
 * Errors: those of `fn` and cairn_commit(); CAIRN_E_TIMEOUT (not committed, no effect).
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_run(struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg,
    uint32_t timeout_ms, struct cairn_run_result *ret);

/*
 * ---- many transactions in flight ----
 *
 * The calls above wait. Each that may has a form that does not: it takes a struct cairn_op, which
 * is the caller's and stays where it is until it is done, begins, and returns; cairn_poll() carries
 * on all that is under way in the context and completes operations. One thread can so drive up to
 * cairn_options.inflight transactions. A transaction has at most one operation under way; what is
 * passed by pointer (reads, keys, buffers) stays untouched until it is done.
 *
 * While anything is under way the context stays with its thread.
 * Begun and awaited forms may be mixed. A call that waits carries on the others meanwhile, but
 * completes none of their operations: that is cairn_poll()'s alone. No form waits inside the body
 * of cairn_run_async(): what it calls waits for this body only, and others go on.
 *
 *     struct cairn_op op = {.done = reply, .user = request};
 *     rc = cairn_run_async(ctx, transfer, request, 1000, &op);
 *     ...
 *     for (;;) {
 *         while (cairn_poll(ctx) != 0)
 *             ;
 *         int timeout_ms = cairn_arm(ctx);
 *         n = epoll_wait(epoll, events, 16, timeout_ms); // of cairn_fd(ctx) and others
 *         ...
 *     }
 */
#define CAIRN_PENDING 1

struct cairn_op {
    void (*done)(struct cairn_op *op); /* called by cairn_poll(), where `result` is set; or NULL.
                                        * It may call anything, begin the next one too */
    void *user;                        /* the caller's */
    /* Out. While the operation is under way: CAIRN_PENDING, and then what the awaited form returns;
     * inside `done` cairn_last_error() is its text. */
    int result;
    enum cairn_outcome outcome; /* of commit, run and resolve */
    uint32_t tries;             /* of run */
    size_t value_size;          /* of get */
    char token[CAIRN_TOKEN_SIZE]; /* with outcome UNKNOWN; else "" */
    void *reserved[2];
};

/*
 * Begin an operation. Returns 0: `op` will be done by a cairn_poll() to come, never earlier. Errors
 * (then `op` will not be done): CAIRN_E_STATE (the transaction has ended, has failed, or has an
 * operation under way).
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_get_async(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, struct cairn_op *op);
CAIRN_API CAIRN_MUST_CHECK int cairn_get_for_update_async(struct cairn_tx *tx, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t buf_size, struct cairn_op *op);
CAIRN_API CAIRN_MUST_CHECK int cairn_get_many_async(
    struct cairn_tx *tx, struct cairn_read *reads, size_t count, struct cairn_op *op);
/* The transaction is gone when the operation is done. */
CAIRN_API CAIRN_MUST_CHECK int cairn_commit_async(struct cairn_tx *tx, struct cairn_op *op);
CAIRN_API CAIRN_MUST_CHECK int cairn_abort_async(struct cairn_tx *tx, struct cairn_op *op);
/*
 * As cairn_run(), body included: `fn` uses the calls that wait. It runs inside this call and inside
 * cairn_poll(), on a stack of its own of CAIRN_STACK_SIZE bytes; it must not block otherwise, nor
 * end other transactions of the context. `timeout_ms` may count from the end of the first try.
 * Errors: CAIRN_E_STATE (as many transactions are open as cairn_options.inflight says).
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_run_async(
    struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms, struct cairn_op *op);
#define CAIRN_STACK_SIZE (64u * 1024)

/* Carry on what is under way; complete what is done. Never sleeps. Returns how many operations it
 * has completed; 0 with nothing to do but wait. */
CAIRN_API uint32_t cairn_poll(struct cairn_ctx *ctx);
/* Poll, and sleep between as configured (`completion`), until `op` is done; completes others too.
 * Returns op->result, with its text. (One that its `done` begins anew is waited for anew.)
 * CAIRN_E_STATE: `op` is not under way here, or this is called from a body of cairn_run_async().
 */
CAIRN_API int cairn_wait(struct cairn_ctx *ctx, struct cairn_op *op);
/*
 * A descriptor for the caller's poll(2) or epoll(7): readable when cairn_poll() has something to
 * do, if cairn_arm() was called after the last cairn_poll(). The context's: not to be read, closed
 * or set.
 * Errors: -errno, CAIRN_E_FABRIC.
 */
CAIRN_API CAIRN_MUST_CHECK int cairn_fd(struct cairn_ctx *ctx);
/* About to sleep on the descriptor: for how many milliseconds at most; 0: not at all, poll again;
 * -1: for ever. */
CAIRN_API CAIRN_MUST_CHECK int cairn_arm(struct cairn_ctx *ctx);

#define CAIRN_HISTOGRAM_BUCKETS 512u

struct cairn_stats {
    uint64_t commits, commits_read_only, unknown;
    uint64_t aborts_lock, aborts_validate, aborts_read, aborts_user, aborts_error;
    uint64_t round_trips;   /* waits on the critical path, begin to acknowledgement */
    uint64_t work_requests; /* reads, compare-and-swaps, writes, flushes, marks */
    uint64_t reads, cas, writes, flushes, marks, messages;
    uint64_t bytes_read, bytes_written;
    uint64_t cache_hits, cache_misses, bucket_hops, absence_rechecks;
    uint64_t grants, rooms, agains, fulls, wakeups, reconnects;
    /* From begin to the end of commit, of one transaction in eight. Log-linear: bucket i < 16
     * counts i ns; above, 16 buckets per power of two. */
    uint64_t commit_latency[CAIRN_HISTOGRAM_BUCKETS];
};

/* Copy the context's counters. */
CAIRN_API void cairn_ctx_stats(const struct cairn_ctx *ctx, struct cairn_stats *ret_stats);
/* Lower bound in ns of the histogram bucket at the quantile q in [0, 1]; 0 when empty. */
CAIRN_API uint64_t cairn_histogram_quantile(
    const uint64_t histogram[CAIRN_HISTOGRAM_BUCKETS], double q);

#ifdef __cplusplus
}
#endif

#endif
