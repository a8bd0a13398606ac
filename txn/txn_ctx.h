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
 * - tx->held counts locks known acquired; nothing waits for a lock while it is not zero (R13).
 */
#ifndef TXN_CTX_H
#define TXN_CTX_H

#include "include/internal/cn_env.h"
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
#define TXN_SCRATCH_SIZE (1u << 20)      /* arena for reads of one round */
#define TXN_RECORD_OVERHEAD (64u * 1024) /* of a record beside keys and values, at the limits */
#define TXN_STAGING_SIZE (CAIRN_TX_BYTES_MAX + TXN_RECORD_OVERHEAD)
#define TXN_MAP_SETS 4096u  /* cached map entries of indexes, direct mapped */
#define TXN_NAMES 4096u     /* keys whose hashes are remembered; a power of two */
#define TXN_NAME_KEY_MAX 40u /* longer ones are not */
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

/* Status of an operation that is posted and not completed. */
#define TXN_PENDING 1

struct txn_batch {
    uint32_t left; /* posted and not completed */
    int status;    /* first failure */
};

struct txn_op {
    struct txn_batch *batch;
    int *status;  /* TXN_PENDING until completion, then 0 or the error */
    uint32_t gen; /* in the wr_id: a stray completion is not taken for a newer one */
    uint16_t peer;
    bool busy;
    uint32_t next_free;
};

/* The last operation posted on a connection: it goes out with the next one (RD_MORE), or when
 * txn_ring() says that there is none. So what is posted together rings one doorbell. */
struct txn_held_post {
    enum { TXN_HOLDS_NONE, TXN_HOLDS_READ, TXN_HOLDS_CAS, TXN_HOLDS_FLUSH } kind;
    uint32_t size;
    uint64_t wr_id, remote, expected, desired;
    void *local;
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
    bool close_replied;
    uint32_t word_replied; /* id of the last WORD that was answered, and ... */
    uint32_t word_answer;  /* ... what it said (enum rd_word_answer) */
    char refusal[TXN_REASON_SIZE]; /* why it could not be reached, in words; "" : see down_status */

    /* welcome */
    struct cn_uuid pool;
    uint32_t crc_seed;
    uint64_t incarnation, epoch, nonce, ring_off, ring_size, position_off, extent_off, extent_end;
    uint32_t window, bytes_max;
    uint16_t slot, tag;
    uint8_t chunk_shift;

    /* ring: the log's end as this context has written it; position as last read */
    uint64_t done; /* highest sequence here that is committed; all below are, or void */
    uint64_t seq, log_off, position_seq, position_off_log;
    struct rd_position_wire *position; /* arena */
    int position_status;               /* of the last read of it */
    struct {                           /* this transaction's record here */
        bool in;                       /* the node is a participant */
        bool posted;
        uint64_t off, seq;
        uint32_t size;
        int status; /* of the flush */
        struct txn_peer *next; /* in tx->participant, by place in the configuration */
    } rec;
    uint8_t *line;     /* arena: void record (128) and pad (64) */
    uint64_t void_seq; /* a sequence taken and not logged; 0: none */
    struct cn_txid void_txid;

    /* granted blocks */
    struct txn_block block[TXN_STOCK_MAX];
    uint32_t block_free;            /* list */
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
struct txn_request { /* the one message that a call waits for */
    uint32_t id;     /* 0: none */
    uint16_t peer;
    bool done;
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

enum txn_belief { TXN_BELIEF_NONE, TXN_BELIEF_PRESENT, TXN_BELIEF_ABSENT };
enum txn_write { TXN_WRITE_NONE, TXN_WRITE_PUT, TXN_WRITE_DELETE };

struct txn_key { /* one key of the read or write set */
    uint32_t table;
    uint16_t peer;
    uint8_t key_size;
    struct txn_index *index;
    uint64_t hash;
    uint32_t edition; /* of index: that hash is its */

    enum txn_belief belief;
    bool read;                /* in the read set: belief is validated unless its guard is held */
    bool recheck;             /* absence after reading candidates (T1) */
    bool hinted;              /* belief is from the cache, not read by this transaction */
    bool looking;             /* a lookup of this key is under way */
    uint64_t item, item_word; /* PRESENT: accepted at this place with this word */
    uint32_t item_size;
    uint8_t class_;
    bool bucket_known;
    bool bucket_hinted; /* version from the cache: content not seen */
    uint64_t bucket, bucket_word;
    uint16_t bucket_free; /* slots, where not hinted */

    enum txn_write write;
    uint32_t value_off, value_size, value_room; /* in tx->values */

    /* commit */
    unsigned effect; /* enum pm_op; 0: none */
    uint32_t block;  /* stock index, TXN_NONE */
    uint64_t block_off, block_version;
    uint8_t block_class;

    _Alignas(8) uint8_t key[CAIRN_KEY_SIZE_MAX]; /* the last member: see clear_key() */
};

/* What was computed for a key lately: both of its hashes. Direct mapped; a name that is not here
 * costs no more than computing them. */
struct txn_name {
    uint32_t table;
    uint16_t peer;
    uint8_t key_size; /* 0: none */
    uint8_t key[TXN_NAME_KEY_MAX];
    struct txn_index *index;
    uint64_t hash;
    uint32_t edition; /* 0: no hash yet */
};

enum txn_lock_state {
    TXN_LOCK_WANTED,
    TXN_LOCK_HELD,
    TXN_LOCK_FAILED,
    TXN_LOCK_UNCERTAIN,
    TXN_LOCK_LOGGED
};

struct txn_lock {
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

struct cairn_tx {
    struct cairn_ctx *ctx;
    enum txn_state state;
    int error; /* why it was doomed or failed; 0 or CONFLICT: a conflict */
    char error_text[256];
    struct cn_txid txid;
    struct txn_key *key; /* CAIRN_TX_KEYS_MAX */
    uint32_t key_count;
    struct txn_lock *lock; /* TXN_LOCKS_MAX */
    uint32_t lock_count, held;
    uint8_t *values;
    uint64_t values_used, values_size;
    uint32_t writes; /* keys with a buffered write */
    struct txn_peer *participant; /* since PREPARE: those that get a record */
    uint32_t participants;
    uint64_t begin_ns;
    /* token taken: place */
    bool has_token;
    struct txn_token token;
    /* what a failed commit should ask for once its locks are gone */
    bool room_wanted;
    uint16_t room_peer;
    uint64_t room_root, room_hash;
    uint32_t room_count;
};

enum txn_look_mode { TXN_LOOK_READ, TXN_LOOK_UPDATE, TXN_LOOK_LOCATE };
enum txn_look_state {
    TXN_AT_ITEM,
    TXN_AT_LOCK_ITEM,
    TXN_AT_BUCKET,
    TXN_AT_MAP,
    TXN_AT_CANDIDATES,
    TXN_AT_LOCK_BUCKET,
    TXN_AT_UNLOCK,
    TXN_AT_DONE,
};

struct txn_look { /* one lookup: store-design section 4 */
    struct cairn_tx *tx;
    struct txn_key *key;
    struct txn_peer *peer;
    enum txn_look_mode mode;
    enum txn_look_state state;
    bool need_bucket; /* also an accepted bucket */
    bool
        pinned; /* the key is in the read set: a change is a CONFLICT, not a reason to look again */
    bool chained; /* the lock is taken from a remembered version, with a READ behind it */
    bool taking;  /* this look has posted the CAS; else the lock is another look's as well */
    bool posted;
    bool found;  /* the item was accepted */
    bool hinted; /* looking at a place out of the cache, with this version: */
    uint64_t hint_item, hint_version;
    bool saw_lock, saw_stale, read_candidate;
    uint64_t lock_off, lock_word; /* with saw_lock: the last candidate met locked */
    bool reset_done;
    int result; /* with DONE: 0, NOT_FOUND, BUFFER_SIZE, or an error */
    void *buf;
    size_t buf_size, value_size;
    /* place being looked at */
    uint64_t item;
    uint32_t item_size;
    uint64_t number, bucket, map_at;
    uint64_t hops, moves;
    uint32_t cand_count, cand_next, cand_posted;
    bool bucket_accepted;
    uint64_t bucket_word;
    uint16_t bucket_free;
    uint32_t lock; /* index in tx->lock */
    int cas_status;
    /* back-off */
    uint64_t not_before_ns, blocked_since_ns;
    uint32_t tries, cas_tries;
    uint64_t torn_off; /* a torn candidate of this pass; 0: none */
    uint32_t torn_pass_crc;
    uint32_t torn_crc, torn_count;
    uint32_t torn_asked; /* WORD that shows that the node has gone on since; 0: none */
    bool torn_answered;
    /* Written before they are read, and so not cleared: posted, and candidates. */
    _Alignas(8) uint8_t *bytes[TXN_CANDIDATES_POSTED];
    int status[TXN_CANDIDATES_POSTED];
    struct pm_slot_ref cand[PM_BUCKET_SLOTS];
};

struct txn_blocker {
    uint64_t off, word, since_ns, seen_ns, asked_ns;
    uint16_t peer;
};

struct cairn_ctx {
    struct cairn *cluster;
    const struct cn_env *env;
    struct rd_ep *ep;
    bool inside; /* a public call is under way (debug check of the one-thread rule) */
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
    struct txn_name *name;     /* TXN_NAMES */
    uint32_t editions;
    struct txn_request request;
    uint32_t request_counter;
    struct txn_op *op;
    uint32_t op_free;
    uint32_t op_count; /* in flight */
    struct txn_peer *held; /* peers with a post held back, or that had one */
    bool any_dead; /* a peer has a connection to delete */
    struct txn_batch background; /* releases behind a commit: waited for by the next transaction */
    uint8_t *scratch;
    uint32_t scratch_used;
    uint8_t *staging;      /* peer_count x TXN_STAGING_SIZE */
    uint64_t *words;       /* arena: TXN_LOCKS_MAX for CAS, CAIRN_TX_KEYS_MAX for validation */
    struct txn_look *look; /* TXN_LOOKS_MAX */
    struct cairn_tx tx;
    bool tx_open;
    bool last_token_valid;
    struct txn_token last_token;
    struct txn_blocker blocker;
    struct cairn_stats stats;
};

/* ---- txn_ctx.c: memory, events, waiting ---- */
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
/* The same for what takes long: sleeps at once, unless the pace is to poll always. */
void txn_rest(struct cairn_ctx *ctx, uint64_t deadline_ns);
/* Wait until the batch is empty. Connections that owe a completion at the deadline are dropped
 * (their operations get CAIRN_E_TIMEOUT), so the batch is always empty on return. Returns
 * batch->status. */
int txn_wait(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns);
/* As txn_wait(), and counts a round trip on the critical path if there is anything to wait for. */
int txn_wait_trip(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns);
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
int txn_post_flush(
    struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote, uint32_t size);
/* The same without being held back, where it is awaited alone. */
int txn_post_read_now(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size);
/* Send out what the posts have held back. To be called where nothing is awaited. */
void txn_ring(struct cairn_ctx *ctx);
/* From the scratch arena: 64-byte aligned; NULL when it is used up. Reset by setting scratch_used =
 * 0, with nothing outstanding that reads into it. */
static inline void *txn_scratch(struct cairn_ctx *ctx, uint32_t size)
{
    uint32_t take = (uint32_t)cn_align_up(size, 64);

    if (take > TXN_SCRATCH_SIZE - ctx->scratch_used)
        return NULL;
    ctx->scratch_used += take;
    return ctx->scratch + ctx->scratch_used - take;
}
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
/* Send a request and wait for its reply (ctx->request). Returns the reply's status. */
CN_MUST_CHECK int txn_ask(struct txn_peer *peer, enum rd_message_type type, const void *body,
    uint32_t size, uint64_t deadline_ns);
/* R13: ask the node about a word that stays locked; not awaited. */
/* Returns the request's id, 0 if it could not be sent. */
uint32_t txn_ask_word(struct txn_peer *peer, uint64_t off, uint64_t word);

/* ---- txn_grant.c: blocks and room ---- */
void txn_stock_reset(struct txn_peer *peer);
/* Take a block of a class, asking the node when the stock is out. *ret_block: index in peer->block.
 */
CN_MUST_CHECK int txn_block_take(struct txn_peer *peer, uint32_t class_, uint32_t still_wanted,
    uint64_t deadline_ns, uint32_t *ret_block);
void txn_block_return(struct txn_peer *peer, uint32_t class_, uint32_t block);
void txn_block_spend(struct txn_peer *peer, uint32_t block);
void txn_grant_reply(
    struct txn_peer *peer, uint32_t class_, int status, const void *body, uint32_t size);
/* Ask for what is low in stock; not awaited. */
void txn_stock_refill(struct txn_peer *peer, uint32_t class_);
CN_MUST_CHECK int txn_room(
    struct txn_peer *peer, uint64_t root, uint64_t hash, uint32_t count, uint64_t deadline_ns);

/* ---- txn_table.c: index roots and their maps ---- */
CN_MUST_CHECK int txn_table_need(
    struct txn_peer *peer, uint32_t table, struct txn_index **ret_index);
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
/* Want a lock; one entry per word. NULL: believed at another version than before (T13). */
struct txn_lock *txn_lock_want(
    struct cairn_tx *tx, uint16_t peer, uint64_t off, uint64_t word, bool bucket);
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

/* ---- txn_index.c, txn_read.c: lookups ---- */
/* Does what was read show this key's item? */
static inline bool txn_is_item_of(const struct txn_key *k, const struct pm_item_view *view)
{
    return view->seen == PM_SEEN_OK && view->index == k->index->root.index &&
        view->key_size == k->key_size && cn_bytes_equal(view->key, k->key, k->key_size);
}
/* Bytes of a place that a hint or a peer names: inside the node's extents? */
static inline bool txn_in_extents(const struct txn_peer *peer, uint64_t off, uint64_t size)
{
    return off % 64 == 0 &&
        cn_range_inside(off, size, peer->extent_off, peer->extent_end - peer->extent_off);
}
void txn_look_init(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    enum txn_look_mode mode, bool need_bucket);
/* Post the next operations. False: nothing could be posted now (scratch is full). */
bool txn_look_post(struct txn_look *look, struct txn_batch *batch);
/* Its operations have completed. */
void txn_look_take(struct txn_look *look);
/* Run lookups in parallel until all are DONE. Returns 0, or the first error other than NOT_FOUND
 * and BUFFER_SIZE. */
CN_MUST_CHECK int txn_look_run(struct cairn_tx *tx, uint32_t count, uint64_t deadline_ns);
/* One read; as txn_get_many(), and `r` is set to be done. */
CN_MUST_CHECK int txn_get(struct cairn_tx *tx, struct cairn_read *r);
CN_MUST_CHECK int txn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count);

/* txn_look.c: results and back-off of a lookup, used by txn_index.c */
void txn_look_found(struct txn_look *look, const struct pm_item_view *view);
void txn_look_absent(struct txn_look *look);
/* The key is believed to be what was accepted at this place. */
static inline void txn_key_accept(
    struct txn_key *k, uint64_t item, const struct pm_item_view *view)
{
    k->belief = TXN_BELIEF_PRESENT;
    k->recheck = false;
    k->hinted = false;
    k->item = item;
    k->item_word = view->word;
    k->item_size = pm_item_size(view->key_size, view->value_size);
    k->class_ = (uint8_t)view->class_;
}
/* 0 or CAIRN_E_BUFFER_SIZE. */
static inline int txn_copy_value(const struct pm_item_view *view, void *buf, size_t buf_size)
{
    if (view->value_size > buf_size)
        return CAIRN_E_BUFFER_SIZE;
    if (view->value_size != 0)
        memcpy(buf, view->value, view->value_size);
    return 0;
}
void txn_look_blocked(struct txn_look *look, uint64_t off, uint64_t word);
/* crc: of the bytes seen, never 0 for "nothing seen". */
void txn_look_torn(struct txn_look *look, uint64_t off, uint32_t crc, bool bucket);
void txn_look_conflict(struct txn_look *look);
/* The key's bucket has no slot for it: ask for room once nothing is held. */
void txn_look_want_room(struct txn_look *look);
/* txn_index.c: go to the bucket that the hints name. */
void txn_look_aim(struct txn_look *look);
void txn_look_done(struct txn_look *look, int result);
void txn_look_bucket_seen(struct txn_look *look);
void txn_hint_put(const struct txn_key *key, const struct txn_peer *peer);

/* ---- txn_log.c ---- */
/* Who takes part, and how big each record will be: tx->participant, rec.size. */
void txn_log_plan(struct cairn_tx *tx);
/* Nobody does. */
void txn_log_forget(struct cairn_tx *tx);
/* R4: ring space for a record of `size`. Errors: CAIRN_E_RING_FULL, _TX_SIZE. */
CN_MUST_CHECK int txn_ring_reserve(struct txn_peer *peer, uint32_t size, uint64_t deadline_ns);
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
/* ---- txn_plan.c: the PREPARE step ---- */
CN_MUST_CHECK int txn_plan(struct cairn_tx *tx, uint64_t deadline_ns);
/* After COMMITTED: the cache learns the new places and versions. */
void txn_plan_learn(struct cairn_tx *tx);

/* ---- txn_run.c ---- */
CN_MUST_CHECK int txn_resolve(struct cairn_ctx *ctx, const struct txn_token *token,
    uint64_t deadline_ns, enum cairn_outcome *ret_outcome);

/* ---- txn_stats.c ---- */
void txn_histogram_add(uint64_t histogram[CAIRN_HISTOGRAM_BUCKETS], uint64_t ns);

#endif
