/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_part.h: the participant's side of the commit protocol: what its rings hold, and the apply
 * loop. The same code runs while the node serves, at its start, and in `cairn recover`. No fabric
 * and no policy here: who is fenced, who is asked and what the verdict is, is recovery/'s.
 *
 * A slot's live window holds one entry per sequence above the applied position:
 *
 *   NONE ──► FOUND ──► COMMITTED ──► RELEASED ──► (position passes)
 *              │            ▲ mark, no other participant, or verdict
 *              ├─► REJECTED │  the record's contents do not fit the store: set aside, never passed
 *              └─► ABORTED ──► DROPPED ──► (position passes)
 *   at start only: APPLIED ──► RELEASED (its state word said so: the release is done again, R9)
 *
 * One thread. Everything stored is fenced under the step that each function names.
 */
#ifndef TXN_PART_H
#define TXN_PART_H

#include "pmem/pm_store.h"

enum txn_entry_state {
    TXN_ENTRY_NONE = 0,
    TXN_ENTRY_FOUND,     /* valid, no mark, no verdict */
    TXN_ENTRY_COMMITTED, /* marked, of this node alone, or the verdict says so; not applied, and not
                            necessarily `persisted` */
    TXN_ENTRY_APPLIED,   /* found applied at start: release to be done again */
    TXN_ENTRY_RELEASED,  /* done; the position may pass */
    TXN_ENTRY_ABORTED,   /* has a durable tombstone; locks not released yet */
    TXN_ENTRY_DROPPED,   /* tombstone and nothing left to do; the position may pass */
    TXN_ENTRY_REJECTED,  /* committed or not, it cannot be applied here */
    TXN_ENTRY_STATES,
};

struct txn_entry {
    uint64_t seq;
    enum txn_entry_state state;
    bool has_record;
    bool persisted; /* by this CPU: may be acted on and spoken of (R11) */
    struct pm_record record; /* points into copy, or into the ring: txn_part_scan_still() */
    uint8_t *copy;
    uint32_t copy_capacity;
    uint64_t end_off; /* log offset behind the record */
    uint64_t found_ns;
    void *doubt; /* recovery/'s */
};

struct txn_part_slot {
    struct pm_slot media;
    struct txn_entry *entry; /* window of them, by seq % window; NULL until first used */
    uint64_t next_off;       /* where the next record is looked for while the slot is open */
    uint64_t seq_max;        /* highest sequence found */
    uint64_t next_found;     /* no entry below is FOUND ... */
    uint64_t next_apply;     /* ... COMMITTED or APPLIED */
    uint64_t retry_ns;       /* a record that did not check is not looked at again before */
    uint32_t retry_count;
    uint32_t unresolved;     /* entries FOUND, COMMITTED, APPLIED, ABORTED, REJECTED */
    uint32_t count[TXN_ENTRY_STATES]; /* entries in each state but NONE */
    bool moved;              /* scratch of the apply loop: the position moved in this turn */
    bool broken;             /* the peer broke the log's rules: the caller fences it */
    bool damaged;            /* a marked record does not check; found by the scan */
    char broken_text[160];   /* of either */
};

struct txn_part_stats {
    uint64_t found, applied, released_again, tombstones, rejected, batches;
};

#define TXN_BATCH_MAX 64u

struct txn_part {
    struct pm_pool *pool;
    struct pm_store *store; /* set after open, before anything is applied */
    const struct cn_env *env;
    struct txn_part_slot *slot; /* geometry.slot_count of them; 0 is growth's and unused here */
    uint32_t slot_count, window;
    void *snapshot; /* ring_size bytes */
    uint64_t *covered; /* of a scan: a bit per line of the ring that a record was found in */
    uint32_t turn;     /* the slot whose records are gathered first */
    struct txn_part_stats stats;
    struct { struct txn_part_slot *slot; struct txn_entry *entry; } batch[TXN_BATCH_MAX];
    uint32_t batch_count;
    bool copies_pending; /* second copies of headers are stored, not fenced yet */
};

/* Load all slot headers, after making the control areas durable (what a dead process left may be in
 * the cache only). Errors: CAIRN_E_CORRUPT_SLOT, -ENOMEM. */
CN_MUST_CHECK int txn_part_open(
    struct txn_part *part, struct pm_pool *pool, const struct cn_env *env);
void txn_part_close(struct txn_part *part);

/*
 * Store a slot's header durably, in both copies one after the other, so that one of them damaged
 * later never takes the slot back to an earlier state. Fences twice under `step`.
 */
void txn_part_store(struct txn_part *part, struct txn_part_slot *slot, enum cn_step step);

/* Entry of a sequence in the window that is in use, or NULL. */
struct txn_entry *txn_part_find(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq);

/* Look for new records and marks of an open slot. Returns how many entries changed. A record that
 * breaks the rules sets slot->broken. */
uint32_t txn_part_poll(struct txn_part *part, struct txn_part_slot *slot);

/*
 * Read the whole live window from a snapshot of the ring: for a fence, and at start. Access must
 * have been cut. Keeps entries already known; makes what is found durable (fence s_fence_found).
 * Errors: -ENOMEM.
 */
CN_MUST_CHECK int txn_part_scan(struct txn_part *part, struct txn_part_slot *slot);
/* The same without a snapshot, for a ring that nobody else can write into any more, not even the
 * process of a peer that is cut off: its records are used where they lie, until the ring is handed
 * out again, and that is not before all of them are passed. */
CN_MUST_CHECK int txn_part_scan_still(struct txn_part *part, struct txn_part_slot *slot);
/* After txn_part_scan(): closing sequence and a tombstone for every gap, durable (s_fence_closed):
 * rule R14. For a slot already closed: mends gaps whose tombstones a crash took. Errors:
 * CAIRN_E_LIMIT. */
CN_MUST_CHECK int txn_part_seal(struct txn_part *part, struct txn_part_slot *slot);

/* Make a found entry durable before it is spoken of (a_found). */
void txn_part_persist(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry);
/* A verdict. Commit only changes the entry; txn_part_apply() does the rest. */
void txn_part_commit(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry);
/* Tombstone, durable (a_tombstone), then unlock, durable (a_unlock): rule R8. Errors:
 * CAIRN_E_LIMIT. */
CN_MUST_CHECK int txn_part_abort(
    struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry);

/*
 * Apply a batch of committed entries of all slots and advance positions: steps a_found, a_body,
 * a_applied, a_release, a_position. A record of a slot of this incarnation is held to what it
 * locked and was granted; one of an earlier may be half applied. Returns the number of entries that
 * moved on; 0 = nothing to do.
 */
uint32_t txn_part_apply(struct txn_part *part);
/* At start: lock the words of every unresolved record again (r_relocked). Errors: none; an entry
 * that does not fit becomes REJECTED. */
void txn_part_relock(struct txn_part *part);
/* At start: finish tombstoned records (unlock). */
void txn_part_finish_aborted(struct txn_part *part);

/* Tombstones for a whole window might not fit any more: the caller fences the slot, and its
 * position does not move before that. */
bool txn_part_tombstones_near_end(const struct txn_part *part, const struct txn_part_slot *slot);
/* All entries up to the closing sequence are passed: the slot can be retired. */
bool txn_part_is_drained(const struct txn_part_slot *slot);

#endif
