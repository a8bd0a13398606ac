/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_ctx.h: inside a coordinator context. Used by txn/'s coordinator files and their tests only.
 *
 * A context is driven by completions: every posted operation is a struct txn_op found by its wr_id,
 * which counts down its batch. The blocking calls post a batch, then poll, arm and sleep until the
 * batch is empty or a deadline has passed (txn_wait). All memory is taken at open: one block, and
 * the endpoint's arena for whatever the fabric touches.
 *
 * Invariants
 * - A *session* (uuid) is a set of connections, at most one per node, each with one slot epoch.
 * When one is lost `ctx->lost` is set; the transaction in flight ends, then the session does (R2,
 * R15).
 * - A buffer in the arena belongs to the fabric while its operation is in a batch (R6).
 * - tx->held counts locks known acquired and in no record yet; nothing waits for a lock while it is
 * not zero (R13).
 */
#ifndef TXN_CTX_H
#define TXN_CTX_H

#include <pthread.h>

#include "include/internal/cn_env.h"
#include "include/internal/cn_fiber.h"
#include "include/internal/cn_mutant.h"
#include "pmem/pm_object.h"
#include "pmem/pm_record.h"
#include "rdma/rd.h"
#include "rdma/rd_wire.h"
#include "txn/txn_cluster.h"
#include "txn/txn_fsm.h"
#include "txn/txn_token.h"

#define TXN_OPS_MAX 1024u        /* operations in flight of one context */
#define TXN_LOOKS_MAX 64u        /* lookups in parallel */
#define TXN_CANDIDATES_POSTED 4u /* item reads of one lookup in parallel */
#define TXN_HOPS_MAX 64u /* buckets visited by one lookup, then hints are reset, then an error */
#define TXN_CAS_TRIES_MAX 3u  /* of one get_for_update that finds the item changed each time */
#define TXN_ROOM_TRIES_MAX 8u /* ROOM asked and the bucket full again */
#define TXN_TORN_MAX 100u     /* same torn bytes read so often: ask the node, then corrupt */
#define TXN_LOCKS_MAX (2u * CAIRN_TX_KEYS_MAX)
#define TXN_EVENTS_BATCH 32u
#define TXN_SCRATCH_SIZE (256u * 1024)   /* arena for reads of one round of one transaction */
#define TXN_RECORD_OVERHEAD (64u * 1024) /* of a record beside keys and values, at the limits */
#define TXN_RECORD_MAX (CAIRN_TX_BYTES_MAX + TXN_RECORD_OVERHEAD)
#define TXN_STAGING_SIZE (TXN_RECORD_MAX + 4096u) /* records on their way, per node */
#define TXN_UNDONE_MAX 512u /* sequences of one log behind the first that is not committed */
#define TXN_MAP_SETS 4096u  /* cached map entries of indexes, direct mapped */
#define TXN_STOCK_MAX 1024u /* granted blocks of one node, in stock or taken */
#define TXN_STOCK_CLASS 16u /* wanted in stock per class */
#define TXN_STOCK_BYTES (64u * 1024)
#define TXN_BACKOFF_MIN_NS 2000u
#define TXN_BACKOFF_MAX_NS 500000u
#define TXN_BLOCKER_NS 10000000u   /* a blocker not met for so long gives its place to another */
#define TXN_WORD_NS 2000000u       /* a lock met longer: ask its node (R13) */
#define TXN_LOCK_WAIT_NS 20000000u /* get_for_update, holding nothing, gives up with CONFLICT */
#define TXN_CLOSE_WAIT_NS 200000000u
#define TXN_UNSEEN_NS 1000000u /* after so long a new transaction looks for events first */
#define TXN_IDLE_NS 10000000u  /* ... and at what costs a system call */
#define TXN_REASON_SIZE 384u /* cause and remedy of a lost connection */
#define TXN_NONE UINT32_MAX

/* An enum of one byte, for what is packed into few lines. */
#define CN_BYTE __attribute__((packed))

/* Status of an operation that is posted and not completed. */
#define TXN_PENDING 1

struct txn_batch {
    uint32_t left; /* posted and not completed */
    struct cairn_tx *waiter; /* whose stack goes on when it is empty; or NULL */
    int status; /* first failure; not beside `left`, or both would be read as one word while that is
                 * being stored */
};

/* Who waits for a flush: one serves all that was written on the connection before it. */
struct txn_flush {
    struct txn_flush *next;
    struct txn_batch *batch;
    int *status;
};

/* A mark that cannot be posted yet: see RD_DURABILITY_GPSPM. */
struct txn_mark {
    struct txn_mark *next;
    struct txn_batch *batch;
    uint64_t remote, value;
};

struct txn_op {
    struct txn_batch *batch; /* NULL: a flush of these */
    struct txn_flush *flush;
    int *status;  /* TXN_PENDING until completion, then 0 or the error */
    uint32_t gen; /* in the wr_id; odd while it is posted: a stray completion is taken for none */
    uint16_t peer;
    bool busy;
    uint32_t next_free;
};

/* The last operation posted on a connection: it goes out with the next one (RD_MORE), or when
 * txn_ring() says that there is none. So what is posted together rings one doorbell. */
struct txn_held_post {
    enum {
        TXN_HOLDS_NONE,
        TXN_HOLDS_READ,
        TXN_HOLDS_CAS,
        TXN_HOLDS_CAS_READ, /* two in a row; only the second has a completion */
        TXN_HOLDS_FLUSH
    } kind;
    uint32_t size;
    uint64_t wr_id, remote, expected, desired;
    void *local;
    uint64_t *local_old; /* of a CAS */
};

/* ---- session ---- */

enum txn_peer_state { TXN_PEER_NONE, TXN_PEER_CONNECTING, TXN_PEER_UP, TXN_PEER_DOWN };

struct txn_block { /* a granted block; index in txn_peer.block */
    uint64_t off, version;
    uint32_t next; /* in a class's list or the free list */
};

struct txn_peer {
    struct cairn_ctx *ctx;
    uint16_t at;   /* index in ctx->peer and config->node: also the shard */
    uint16_t node; /* node id */
    const char *address;
    enum txn_peer_state state;
    int down_status;
    struct rd_conn *conn;
    struct rd_conn *dead; /* dropped while a batch of events was being taken: deleted behind it */
    struct txn_held_post held;
    struct txn_peer *next_held; /* in ctx->held, if ... */
    bool is_held;
    /* what goes out with txn_ring(), too */
    bool due;                    /* some of this: */
    bool bell;                   /* a doorbell */
    uint32_t flushes;            /* outstanding, where their number matters */
    struct txn_flush *flush_due; /* one flush for all of them ... */
    uint64_t flush_remote;       /* ... named by what was written last */
    uint32_t flush_size;
    int flush_status;
    struct txn_mark *mark_due;
    bool close_replied;
    uint32_t word_replied; /* id of the last WORD that was answered, and ... */
    uint32_t word_answer;  /* ... what it said (enum rd_word_answer) */
    char refusal[TXN_REASON_SIZE]; /* why it could not be reached, in words; "" : see down_status */

    /* welcome */
    struct cn_uuid pool;
    uint32_t crc_seed;
    struct pm_place place; /* of records in the ring; its log offset is that of the last one made */
    uint64_t incarnation, epoch, nonce, ring_off, ring_size, position_off, extent_off, extent_end;
    uint64_t record_max; /* bytes of one record */
    uint32_t window;
    uint16_t slot, tag;
    uint64_t locked_bits; /* of a word that this context has locked: all but the version */
    uint8_t chunk_shift;

    /* ring: the log's end as this context has written it; position as last read */
    uint64_t done; /* highest sequence here that is committed; all below are, or void */
    uint64_t seq, log_off, position_seq, position_off_log;
    uint64_t lap_off; /* where in the log the ring began anew, at or before log_off */
    uint64_t committed[TXN_UNDONE_MAX / 64]; /* by sequence: above `done`, and committed */
    uint64_t promised_bytes, promised_records; /* of the ring, to transactions before LOG */
    struct rd_position_wire *position;         /* arena */
    int position_status;                       /* of the last read of it */
    /* Records (and pads) on their way lie in a ring of TXN_STAGING_SIZE bytes of the arena, in
     * the order of the log; both ends count on for ever. */
    uint8_t *staging;
    uint64_t staging_head, staging_tail;
    uint32_t staging_off; /* where in it the head is */
    uint8_t *line;     /* arena: void record */
    uint64_t void_seq; /* a sequence taken and not logged; 0: none */
    struct cn_txid void_txid;

    /* granted blocks */
    struct txn_block block[TXN_STOCK_MAX];
    uint32_t block_free;            /* list ... */
    uint32_t block_free_count;      /* ... of so many */
    uint32_t stock[PM_CLASS_COUNT]; /* list heads */
    uint16_t stock_count[PM_CLASS_COUNT];
    uint32_t grant_id[PM_CLASS_COUNT]; /* request in flight; 0: none */
    uint16_t grant_asked[PM_CLASS_COUNT];
    int grant_status[PM_CLASS_COUNT]; /* of the last reply */
    bool grant_scarce[PM_CLASS_COUNT];
};

struct txn_index { /* a table's index at a peer */
    bool known;
    uint32_t edition; /* another one for each root read: a hash belongs to one */
    uint64_t incarnation;
    struct pm_index root;
    uint32_t ahead; /* buckets met in a row that were split further than guessed */
};
struct txn_map_entry { /* chunk of buckets; set once for ever, so never stale inside an incarnation
                        */
    uint64_t chunk;    /* 0: nothing cached */
    uint64_t incarnation;
    uint32_t index, entry;
    uint16_t peer;
};
struct txn_request { /* a message that a call waits for, on its stack */
    struct txn_request *next; /* in ctx->request */
    uint32_t id;
    uint16_t peer;
    bool done;
    bool cut; /* the session has ended: there will be no reply */
    int status;
    uint32_t type; /* of the reply */
    uint32_t size;
    union { /* the reply's body */
        struct rd_table_reply_wire table;
        struct rd_answer_wire answer;
        uint8_t bytes[64];
    } body;
};

/* ---- transaction ---- */

enum CN_BYTE txn_belief { TXN_BELIEF_NONE, TXN_BELIEF_PRESENT, TXN_BELIEF_ABSENT };
enum CN_BYTE txn_write { TXN_WRITE_NONE, TXN_WRITE_PUT, TXN_WRITE_DELETE };

/* One key of the read or write set. What an update in place uses lies in two lines, and in front of
 * a short key: transactions in flight touch one of these each. */
struct txn_key {
    uint64_t name; /* mixes table and key; not secret, two keys may have the same */
    struct txn_index *index;
    uint64_t hash;
    uint64_t item, item_word; /* PRESENT: accepted at this place with this word */
    uint64_t bucket, bucket_word;
    struct txn_key *next_in_rec;
    uint32_t table;
    uint32_t edition; /* of index: that hash is its */
    uint32_t lock;    /* where in tx->lock its item's word may be */
    uint32_t item_size;
    uint32_t value_off, value_size, value_room; /* in tx->values */
    uint32_t block;                             /* commit: stock index, TXN_NONE */
    uint16_t peer;
    uint16_t bucket_free; /* slots, where not hinted */
    uint8_t key_size;
    enum txn_belief belief;
    enum txn_write write;
    uint8_t effect; /* commit: enum pm_op; 0: none */
    uint8_t class_, block_class;
    bool read;    /* in the read set: belief is validated unless its guard is held */
    bool recheck; /* absence after reading candidates (T1) */
    bool hinted;  /* belief is from the cache, not read by this transaction */
    bool looking; /* a lookup of this key is under way */
    bool bucket_known;
    bool bucket_hinted; /* version from the cache: content not seen */

    /* The rest is not cleared, see clear_key(). With a block: */
    uint64_t block_off, block_version;
    /* Zeros up to a multiple of 8. */
    _Alignas(8) uint8_t key[CAIRN_KEY_SIZE_MAX + 1];
};

enum CN_BYTE txn_lock_state {
    TXN_LOCK_WANTED,
    TXN_LOCK_HELD,
    TXN_LOCK_FAILED,
    TXN_LOCK_UNCERTAIN,
    TXN_LOCK_LOGGED
};

struct txn_lock { /* one line */
    uint64_t off, word; /* word: as believed (raw) */
    uint64_t *old;      /* arena */
    uint8_t *proof;     /* scratch: bytes read behind the CAS where the belief is from the cache */
    int status, proof_status;
    uint32_t key;       /* whose proof */
    int32_t free_slots; /* of a bucket, -1: its content was not seen */
    int32_t inserts;    /* slots this transaction adds to the bucket: inserts - deletes */
    uint16_t peer;
    enum txn_lock_state state;
    bool bucket, written;
};

struct txn_rec { /* a transaction's record at a node */
    struct txn_peer *peer;
    struct txn_rec *next; /* in tx->participant, by place in the configuration */
    struct txn_key *key, **key_end; /* those with an effect there */
    uint64_t off, seq;
    uint64_t remote; /* where `off` is in the pool */
    uint8_t *bytes;  /* in the staging, up to ... */
    uint64_t staging_end;
    uint32_t keys; /* how many */
    uint32_t size;
    int status; /* of the flush */
    bool in;    /* the node is a participant */
    bool posted;
    bool promised; /* space in the ring and in the window is kept for it */
    struct txn_flush flush;
    struct txn_mark mark;
};

struct txn_call { /* what an operation that was begun is to do */
    struct cairn_read *reads, one;
    size_t count;
    cairn_tx_fn fn;
    void *arg;
    uint32_t timeout_ms;
};

/* What every transaction uses lies in front, in as few lines as it needs. */
struct cairn_tx {
    struct cairn_ctx *ctx;
    struct txn_key *key; /* CAIRN_TX_KEYS_MAX, and one that txn_set_key() looks up with */
    struct txn_lock *lock; /* TXN_LOCKS_MAX */
    uint8_t *values;
    uint32_t key_count;
    uint32_t key_next; /* the key behind the one found last */
    uint32_t lock_count, held;
    uint32_t writes; /* keys with a buffered write */
    uint32_t blocks; /* keys with a named block */
    bool open;
    bool busy; /* something is under way on its stack, or done and not told yet */
    bool holds_all;  /* since PREPARE: it holds the word of every belief, see plan_held() */
    bool has_token;  /* `token` is taken */
    bool was_logged; /* not everywhere, as far as is known: `logged` is a place of it */
    bool room_wanted; /* see below */
    uint16_t at;     /* in ctx->tx */
    enum txn_state state;
    int error; /* why it was doomed or failed; 0 or CONFLICT: a conflict */
    uint64_t values_used, values_size;
    uint64_t bytes_written; /* in keys and values of the writes, over all nodes */
    struct txn_rec *rec;         /* per peer */
    struct txn_rec *participant; /* since PREPARE: those that get a record */
    uint32_t participants;
    uint32_t scratch_used;
    uint8_t *scratch; /* arena: TXN_SCRATCH_SIZE for the reads of one round */
    struct cn_txid txid;
    uint64_t begin_ns; /* 0: on a lane, and not one whose latency is measured */
    struct cairn_tx *next_free;  /* in ctx->tx_free */
    struct txn_batch background; /* releases behind a commit: waited for before it begins again */
    uint64_t *words;             /* arena: TXN_LOCKS_MAX for CAS, CAIRN_TX_KEYS_MAX to validate */
    struct txn_look *look;       /* TXN_LOOKS_MAX */

    /* its stack: txn_fiber.c */
    void (*main)(void *arg); /* what runs there; NULL: it has returned */
    void *main_arg;
    struct cairn_tx *next_ready; /* in ctx->ready or ctx->done */
    int (*errand)(void *arg);    /* to be run by who has entered */
    struct cn_fiber fiber;
    void *errand_arg;
    int errand_result;
    /* the operation under way: txn_async.c */
    int result;
    struct cairn_op *op;
    struct txn_call call;

    struct txn_token token, logged;
    /* what a failed commit should ask for once its locks are gone */
    uint16_t room_peer;
    uint64_t room_root, room_hash;
    uint32_t room_count;
    char error_text[256];
    char result_text[256];
};

/* Where a lane's stack has been left. Together, as they are looked through. */
enum txn_parking { TXN_RUNS, TXN_PARKED_BATCH, TXN_PARKED_EVENT, TXN_PARKED_TIME };
struct txn_parked {
    enum txn_parking kind;
    uint32_t seen;           /* ctx->progress then */
    uint64_t wake_ns;        /* deadline, or the time; TXN_LATER: not asked for yet */
    struct txn_batch *batch; /* of PARKED_BATCH */
};

struct txn_blocker {
    uint64_t off, word, since_ns, seen_ns, asked_ns;
    uint16_t peer;
};

struct txn_awaited { /* an operation, and the text of what came of it; on the caller's stack */
    struct txn_awaited *outer;
    const struct cairn_op *op;
    char text[256];
};

struct cairn_ctx {
    struct cairn *cluster;
    const struct cn_env *env;
    struct rd_ep *ep;
    bool inside;      /* a public call is under way, and ... (debug check of the one-thread rule) */
    pthread_t thread; /* ... whose */
    struct cn_uuid session;
    uint64_t tx_counter;
    bool closing; /* saying goodbye: a node that cuts us off is no loss */
    bool polling; /* a batch of events is being taken */
    bool polled;  /* events were looked for since the transaction began */
    uint64_t seen_ns; /* when they were last known to be taken */
    int lost;     /* a connection of the session is down: why; 0: none */
    uint16_t lost_peer;
    char lost_text[TXN_REASON_SIZE]; /* what the fabric said about it; "" : nothing */
    uint32_t peer_count;
    struct txn_peer *peer;
    struct txn_index *index;   /* peer_count x table_count */
    struct txn_map_entry *map; /* TXN_MAP_SETS */
    uint32_t editions;
    struct txn_request *request; /* those under way */
    uint32_t request_counter;
    struct txn_op *op;
    uint32_t op_free;
    uint32_t op_count; /* in flight */
    struct txn_peer *held; /* peers with a post held back, or that had one */
    bool any_dead; /* a peer has a connection to delete */
    struct txn_batch background; /* reads of positions: waited for at the end of the session */
    struct cairn_tx *tx;         /* tx_count of them, as options.inflight says */
    struct cairn_tx *tx_free;
    uint32_t tx_count, tx_open;
    bool renewing; /* the session is being ended, and begun anew */
    bool alone;    /* the transaction that is open has taken its token */
    /* stacks: txn_fiber.c */
    void *stacks;
    struct cairn_tx *running;            /* on whose stack we are; NULL: the caller's */
    struct cairn_tx *ready, **ready_end; /* may go on */
    struct cairn_tx *done, **done_end;   /* operations to be told by cairn_poll() */
    uint32_t done_count;
    struct txn_awaited *awaited; /* by cairn_wait() */
    bool shut;                   /* being closed: nothing begins */
    struct txn_parked *parked; /* by tx->at */
    uint32_t lanes;            /* stacks on which something is under way */
    uint32_t sleepers;         /* of these, parked for an event or a time */
    uint32_t progress;         /* counts what parked ones may have waited for */
    uint32_t woken;            /* progress when they looked last */
    uint32_t turns;
    bool last_token_valid;
    struct txn_token last_token;
    struct txn_blocker blocker;
    struct cairn_stats stats;
};

/* ---- txn_ctx.c: memory, waiting; txn_post.c: posts and events ---- */
static inline uint64_t txn_now(const struct cairn_ctx *ctx)
{
    return cn_now_ns(ctx->env);
}
static inline uint64_t txn_op_deadline(const struct cairn_ctx *ctx)
{
    return txn_now(ctx) + (uint64_t)ctx->cluster->options.op_timeout_ms * 1000000u;
}
/* As a deadline: the operation's time limit, from when it is first asked for. What goes well at
 * once never asks: the clock is not read for it. */
#define TXN_LATER 0u
static inline uint64_t txn_due(const struct cairn_ctx *ctx, uint64_t deadline_ns)
{
    return deadline_ns != TXN_LATER ? deadline_ns : txn_op_deadline(ctx);
}
/* Take what is pending, at most a batch. True: there was something. */
bool txn_poll(struct cairn_ctx *ctx);
/* One step of waiting for something: poll; sleep when the pace allows it. *idle: polls in a row
 * that brought nothing. */
void txn_wait_some(struct cairn_ctx *ctx, uint32_t *idle, uint64_t deadline_ns);
/* Sleep if the pace allows it: a poll has brought nothing. */
void txn_idle(struct cairn_ctx *ctx, uint32_t *idle, uint64_t deadline_ns);
/* The same for what takes long: sleeps at once, unless the pace is to poll always. */
void txn_rest(struct cairn_ctx *ctx, uint64_t deadline_ns);
/* txn_wait(), txn_wait_trip(): txn_lane.h. */
/* Take events until *flag, a lost connection or the deadline. Returns whether *flag. */
bool txn_wait_flag(struct cairn_ctx *ctx, const bool *flag, uint64_t deadline_ns);
/* Take events and sleep until a time; ends early when the session is lost. */
void txn_pause(struct cairn_ctx *ctx, uint64_t until_ns);
/* Time to wait at the n-th try: exponential, bounded, with jitter. */
uint64_t txn_backoff_ns(struct cairn_ctx *ctx, uint32_t tries);
/* Post; it goes out at the latest with txn_ring(), which every wait begins with. On failure *status
 * and the batch's status say so and nothing is outstanding; what fails here at once is returned. */
int txn_post_read(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size);
int txn_post_cas(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    uint64_t expected, uint64_t desired, uint64_t *local_old);
/* On a lane's stack, or where there is no operation left, all flushes of a turn are one. Owner:
 * `wait` stays until it has completed. Never waits. */
int txn_post_flush(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    uint32_t size, struct txn_flush *wait);
/* Post a mark and ring; now, or as soon as it may. Owner: `mark`, which is its record's (struct
 * txn_rec), stays until the batch is empty. */
void txn_post_mark(struct txn_peer *peer, struct txn_batch *batch, uint64_t remote, uint64_t value,
    struct txn_mark *mark);
/* Ring the peer's doorbell; on a lane's stack, once for all of the turn. */
void txn_bell(struct txn_peer *peer);
/* The same as txn_post_cas() and txn_post_read() of one object in a row. `alone`: nothing else is
 * posted before the wait, so nothing is held back. */
struct txn_cas_read {
    uint64_t remote, expected, desired;
    uint64_t *local_old;
    void *local;
    uint32_t size;
    bool alone;
};
/* True: where the fabric lets one completion speak for both, only *read_status gets one. */
bool txn_post_cas_read(struct txn_peer *peer, struct txn_batch *batch, int *cas_status,
    int *read_status, const struct txn_cas_read *post);
/* The same without being held back, where it is awaited alone. */
int txn_post_read_now(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size);
/* Send out what the posts have held back. To be called where nothing is awaited. */
void txn_ring(struct cairn_ctx *ctx);
/* From the transaction's scratch: 64-byte aligned; NULL when it is used up. Reset by setting
 * scratch_used = 0, with nothing outstanding that reads into it. */
static inline void *txn_scratch(struct cairn_tx *tx, uint32_t size)
{
    uint32_t take = (uint32_t)cn_align_up(size, 64);

    if (take > TXN_SCRATCH_SIZE - tx->scratch_used)
        return NULL;
    tx->scratch_used += take;
    return tx->scratch + tx->scratch_used - take;
}
/* Drop the connections that owe a completion to this batch: it is empty then. */
void txn_drop_debtors(struct cairn_ctx *ctx, const struct txn_batch *batch);
/* Complete every operation of a peer with `status` (its connection is gone). */
void txn_ops_fail(struct cairn_ctx *ctx, uint16_t peer, int status);

/* ---- txn_session.c ---- */
/* Make sure that the peer is connected. Errors: those of txn_is_unreachable(), CAIRN_E_DURABILITY
 * (it makes writes durable in another way than the configuration says), _SLOTS, _WRONG_CLUSTER,
 * _WRONG_NODE, _PROTOCOL. */
CN_MUST_CHECK int txn_peer_need(struct txn_peer *peer);
/* Codes of a node that cannot be reached now, or not from this host: NODE_DOWN and the ones that
 * say more: TIMEOUT, FENCED, UNREACHABLE, REJECTED, NO_DEVICE, MEMLOCK, NO_ATOMICS, WIRE_VERSION,
 * FABRIC. They come through to the caller as they are; what else a connection died of is NODE_DOWN.
 */
bool txn_is_unreachable(int code);
/* Of these, the ones that time may mend. */
bool txn_may_come_back(int code);
/* The error for a call after the session was lost (ctx->lost), with its text. */
int txn_lost_error(struct cairn_ctx *ctx);
/* This connection is not usable any more: note it, fail its operations, delete it. */
void txn_peer_drop(struct txn_peer *peer, int status);
void txn_event(struct cairn_ctx *ctx, const struct rd_event *event);
/* Close all connections (cleanly where they stand and `clean`), forget everything of the session.
 */
void txn_session_end(struct cairn_ctx *ctx, bool clean);
void txn_session_begin(struct cairn_ctx *ctx);
/* A connection was lost, and no transaction is open any more: the next one begins anew. */
void txn_session_renew(struct cairn_ctx *ctx);
/* Wait until a transaction may begin, and renew the session if it was lost. On the caller's stack
 * what only the caller may mend is not waited for, unless `patient`. Errors: CAIRN_E_STATE (one has
 * taken its token), _TIMEOUT, that of the lost session. */
CN_MUST_CHECK int txn_session_need(struct cairn_ctx *ctx, uint64_t deadline_ns, bool patient);
/* "node 2 (/run/x.sock): " before the last error's text. */
int txn_peer_fail(const struct txn_peer *peer, int code);

/* ---- txn_message.c ---- */
void txn_message(struct txn_peer *peer, const void *data, uint32_t size);
/* Send a request without waiting. *ret_id: its id. */
CN_MUST_CHECK int txn_send(struct txn_peer *peer, enum rd_message_type type, const void *body,
    uint32_t size, uint32_t *ret_id);
/* The same, and wait where the connection's queue is full. */
CN_MUST_CHECK int txn_send_by(struct txn_peer *peer, enum rd_message_type type, const void *body,
    uint32_t size, uint64_t deadline_ns, uint32_t *ret_id);
/* Send a request and wait for its reply. Returns the reply's status. */
CN_MUST_CHECK int txn_ask(struct txn_peer *peer, enum rd_message_type type, const void *body,
    uint32_t size, uint64_t deadline_ns, struct txn_request *ret_reply);
/* R13: ask the node about a word that stays locked; not awaited. */
/* Returns the request's id, 0 if it could not be sent. */
uint32_t txn_ask_word(struct txn_peer *peer, uint64_t off, uint64_t word);

/* ---- txn_grant.c: blocks and room ---- */
void txn_stock_reset(struct txn_peer *peer);
/* Have so many blocks of a class in stock: granted by the node, and not taken by others. */
CN_MUST_CHECK int txn_stock_need(
    struct txn_peer *peer, uint32_t class_, uint32_t wanted, uint64_t deadline_ns);
/* Take one that is in stock. Returns its index in peer->block. */
uint32_t txn_block_take(struct txn_peer *peer, uint32_t class_);
void txn_block_return(struct txn_peer *peer, uint32_t class_, uint32_t block);
void txn_block_spend(struct txn_peer *peer, uint32_t block);
void txn_grant_reply(
    struct txn_peer *peer, uint32_t class_, int status, const void *body, uint32_t size);
/* Ask for what is low in stock; not awaited. */
void txn_stock_refill(struct txn_peer *peer, uint32_t class_);
CN_MUST_CHECK int txn_room(
    struct txn_peer *peer, uint64_t root, uint64_t hash, uint32_t count, uint64_t deadline_ns);

/* ---- txn_table.c: index roots and their maps ---- */
CN_MUST_CHECK int txn_table_need(struct cairn_tx *tx, struct txn_peer *peer, uint32_t table,
    struct txn_index **ret_index);
/* 0: not cached. */
uint64_t txn_map_get(struct txn_peer *peer, const struct txn_index *index, uint64_t entry);
void txn_map_set(
    struct txn_peer *peer, const struct txn_index *index, uint64_t entry, uint64_t chunk);
static inline uint32_t txn_bucket_shift(const struct txn_peer *peer)
{
    return peer->chunk_shift - 9u;
}
/* Learn from a bucket of `depth`: the guess (level, sweep) moves on. */
void txn_index_learn(struct txn_index *index, uint64_t number, uint32_t depth);

/* ---- txn_set.c: read and write set ---- */
void txn_set_reset(struct cairn_tx *tx);
/* Find or add a key: no I/O. Errors: CAIRN_E_KEY_SIZE, _NO_TABLE, _TX_SIZE. */
CN_MUST_CHECK int txn_set_key(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    struct txn_key **ret_key);
/* Make its node connected and its table's index and hash known. Errors: those of reaching the node.
 */
CN_MUST_CHECK int txn_set_locate(struct cairn_tx *tx, struct txn_key *key);
/* It is so already. */
static inline bool txn_set_is_located(const struct txn_peer *peer, const struct txn_key *key)
{
    return peer->state == TXN_PEER_UP && key->edition != 0 &&
        key->index->edition == key->edition && key->index->known &&
        key->index->incarnation == peer->incarnation;
}
/* Buffer a write. Errors: CAIRN_E_TX_SIZE. */
CN_MUST_CHECK int txn_set_write(struct cairn_tx *tx, struct txn_key *key, enum txn_write write,
    const void *value, size_t value_size);
static inline const uint8_t *txn_set_value(const struct cairn_tx *tx, const struct txn_key *key)
{
    return tx->values + key->value_off;
}
/* What validates the key's belief: word's place and believed word. False: no belief. */
bool txn_key_guard(const struct txn_key *key, uint64_t *ret_off, uint64_t *ret_word);
/* T13 over reads and locks: false if one word is believed at two versions. */
bool txn_set_agrees(const struct cairn_tx *tx);

/* ---- txn_lock.c ---- */
struct txn_lock *txn_lock_find(struct cairn_tx *tx, uint16_t peer, uint64_t off);
/* The lock of the key's item, if there is one; most often without a search. */
static inline struct txn_lock *txn_lock_of_item(struct cairn_tx *tx, const struct txn_key *k)
{
    struct txn_lock *lock = &tx->lock[k->lock];

    if (CN_LIKELY(k->lock < tx->lock_count && lock->off == k->item && lock->peer == k->peer))
        return lock;
    return txn_lock_find(tx, k->peer, k->item);
}
/* Want a lock; one entry per word. NULL: believed at another version than before (T13). */
struct txn_lock *txn_lock_want(
    struct cairn_tx *tx, uint16_t peer, uint64_t off, uint64_t word, bool bucket);
/* What the word reads as while this lock of it is held. */
static inline uint64_t txn_lock_word(const struct txn_peer *peer, const struct txn_lock *lock)
{
    return peer->locked_bits | pm_word_version(lock->word);
}
/* Is this word locked by this transaction? Then `*ret_word` is what it was taken from, unlocked. */
bool txn_lock_is_own(struct cairn_tx *tx, const struct txn_peer *peer, uint64_t off, uint64_t word,
    uint64_t *ret_word);
/* Post the CAS that takes it. */
void txn_lock_post(struct cairn_tx *tx, struct txn_lock *lock, struct txn_batch *batch);
/* Its CAS has completed: set the state. True: acquired. */
bool txn_lock_take(struct cairn_tx *tx, struct txn_lock *lock);
/* Steps of the commit. */
CN_MUST_CHECK int txn_lock_all(struct cairn_tx *tx, uint64_t deadline_ns);
CN_MUST_CHECK int txn_validate(struct cairn_tx *tx, uint64_t deadline_ns);
/* Release what is HELD. `background`: not awaited. */
void txn_release(struct cairn_tx *tx, bool background);
void txn_note_blocker(struct cairn_ctx *ctx, struct txn_peer *peer, uint64_t off, uint64_t word);

/* ---- txn_log.c ---- */
/* Who takes part, and how big each record will be: tx->participant, rec->size. */
void txn_log_plan(struct cairn_tx *tx);
/* A node takes part from now on. */
struct txn_rec *txn_log_enter(struct cairn_tx *tx, uint16_t at);
static inline uint32_t txn_log_value_size(const struct txn_key *k)
{
    return k->effect == PM_OP_DELETE ? 0 : k->value_size;
}
/* The key's effect goes into its node's record, with so many locks and blocks of its own. */
static inline void txn_log_join(struct cairn_tx *tx, struct txn_key *k, uint32_t pairs)
{
    struct txn_rec *rec = &tx->rec[k->peer];

    if (!rec->in)
        rec = txn_log_enter(tx, k->peer);
    rec->size += pm_record_write_size(k->key_size, txn_log_value_size(k)) +
        pairs * (uint32_t)sizeof(struct pm_lock_pm);
    rec->keys++;
    k->next_in_rec = NULL;
    *rec->key_end = k;
    rec->key_end = &k->next_in_rec;
}
/* Nobody does; what was kept for the records is given back. */
void txn_log_forget(struct cairn_tx *tx);
/* R4: keep space in the rings of all participants, for all records or for none.
 * Errors: CAIRN_E_RING_FULL, _TX_SIZE. */
CN_MUST_CHECK int txn_log_reserve(struct cairn_tx *tx, uint64_t deadline_ns);
/* Build, write, flush and await all records. *ret_posted: some record was posted. */
CN_MUST_CHECK int txn_log_all(struct cairn_tx *tx, uint64_t deadline_ns, bool *ret_posted);
void txn_mark_all(struct cairn_tx *tx);
/* Fill a sequence taken and not logged (R15). */
void txn_void_fill(struct txn_peer *peer, uint64_t deadline_ns);
/* Take a sequence at the peer for the transaction's token. */
CN_MUST_CHECK int txn_token_take(struct cairn_tx *tx);

/* ---- txn_commit.c ---- */
/* Feed an event to the machine and carry out what it says until it rests. */
void txn_drive(struct cairn_tx *tx, enum txn_event event);
/* A call failed: the transaction is doomed if the error is of that kind. Returns `error`. */
int txn_doom(struct cairn_tx *tx, int error);
CN_MUST_CHECK int txn_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome);
void txn_abort(struct cairn_tx *tx);
CN_MUST_CHECK int txn_begin(struct cairn_ctx *ctx, struct cairn_tx **ret_tx);
/* Take a lane for what is to run on its stack; NULL: none is free. */
struct cairn_tx *txn_lane_take(struct cairn_ctx *ctx);
void txn_lane_free(struct cairn_tx *tx);
/* The error of that. */
int txn_none_free(const struct cairn_ctx *ctx);
/* Take the events of a while in which nobody did. */
void txn_catch_up(struct cairn_ctx *ctx, uint64_t now_ns);
/* ---- txn_plan.c: the PREPARE step ---- */
CN_MUST_CHECK int txn_plan(struct cairn_tx *tx, uint64_t deadline_ns);
/* After COMMITTED: the cache learns the new places and versions. */
void txn_plan_learn(struct cairn_tx *tx);

/* ---- txn_run.c ---- */
/* cairn_run(). *ret_token: with an outcome UNKNOWN. */
CN_MUST_CHECK int txn_run(struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms,
    struct cairn_run_result *ret, struct txn_token *ret_token);
CN_MUST_CHECK int txn_resolve(struct cairn_ctx *ctx, const struct txn_token *token,
    uint64_t deadline_ns, enum cairn_outcome *ret_outcome);

/* ---- txn_stats.c ---- */
void txn_histogram_add(uint64_t histogram[CAIRN_HISTOGRAM_BUCKETS], uint64_t ns);

#include "txn/txn_lane.h"
#include "txn/txn_look.h"

#endif
