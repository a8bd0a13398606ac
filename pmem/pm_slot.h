/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_slot.h: slots on media: headers, applied position, states, tombstones, the scan of a ring, and
 * the table of retired epochs. No policy here: who fences what, and when, is recovery/'s.
 *
 * Functions that change media store and start write-back (pm_flush), but do not fence unless they
 * say so: the caller batches, and names the persist point.
 */
#ifndef PM_SLOT_H
#define PM_SLOT_H

#include "pmem/pm_pool.h"
#include "pmem/pm_record.h"

struct pm_slot { /* the header in host order, with what was read along with it */
    uint16_t number;
    enum pm_slot_state state;
    uint64_t generation, epoch, nonce, view;
    struct cn_uuid owner;
    uint64_t position_seq, position_off;
    uint64_t closing_seq;
    uint64_t incarnation, closed_s;
    uint32_t tombstone_count; /* valid entries of this epoch */
};

/* Also starts write-back of the slot's memory (R11): fence (a_found) before the slot is stored
 * again or anything is said of it. Errors: CAIRN_E_CORRUPT_SLOT (no copy is valid, or what it says
 * is impossible). A slot never used reads as FREE with epoch 0. */
CN_MUST_CHECK int pm_slot_load(const struct pm_pool *pool, uint16_t number, struct pm_slot *ret);
/* Write the other copy with the next generation. No fence; but one must lie between two stores of
 * the same slot, else a crash may tear both copies. */
void pm_slot_store(struct pm_pool *pool, struct pm_slot *slot);

/* State words. A run: of `count` sequences from `seq` on, at most a window; each line is written
 * back once. */
void pm_slot_set_applied_run(
    struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq, uint32_t count);
static inline void pm_slot_set_applied(
    struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq)
{
    pm_slot_set_applied_run(pool, slot, seq, 1);
}
bool pm_slot_is_applied(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq);

/* Tombstones. Add is idempotent. Errors: CAIRN_E_LIMIT (area full). */
CN_MUST_CHECK int pm_slot_add_tombstone(struct pm_pool *pool, struct pm_slot *slot, uint64_t seq);
bool pm_slot_has_tombstone(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq);
/* Copy up to max tombstoned sequences out; returns how many there are. */
uint32_t pm_slot_tombstones(
    const struct pm_pool *pool, const struct pm_slot *slot, uint64_t *ret_seq, uint32_t max);

/* The place for pm_record_check() and _end(). */
struct pm_place pm_slot_place(
    const struct pm_pool *pool, const struct pm_slot *slot, uint64_t log_off);
/* Pool offset of a log offset. */
uint64_t pm_slot_log_at(const struct pm_pool *pool, uint16_t number, uint64_t log_off);
/* Start write-back of [log_off, log_off+size) (R11). */
void pm_slot_flush_log(struct pm_pool *pool, uint16_t number, uint64_t log_off, uint64_t size);
/* Copy the ring's log area (ring_size bytes) into `snapshot`. */
void pm_slot_snapshot(const struct pm_pool *pool, uint16_t number, void *snapshot);

/*
 * Scan the live window: every 64-byte boundary from position_off on that no valid record covers, up
 * to one ring size. Works on `ring` (ring_size bytes: a snapshot), not on the pool. Calls `found`
 * for each valid TX, VOID or GROWTH record whose sequence is in (position_seq, position_seq +
 * window] (with state CLOSED: at most closing_seq), in order of log offset; `record` points into
 * the snapshot. A sequence met twice is reported once, the first. A negative return of `found` ends
 * the scan and is returned. Errors: those of `found`.
 */
typedef int (*pm_slot_found_fn)(void *arg, const struct pm_record *record);
CN_MUST_CHECK int pm_slot_scan(const struct pm_pool *pool, const struct pm_slot *slot,
    const void *ring, pm_slot_found_fn found, void *arg);
/* Is the record at this place marked committed? `mark` is the raw field as read. */
bool pm_mark_is_set(const struct pm_slot *slot, uint64_t seq, uint64_t mark);

/* Publish the applied position in the ring's header page (struct rd_position_wire: seq, off). */
void pm_slot_publish(struct pm_pool *pool, const struct pm_slot *slot);

/* ---- retired epochs ---- */

struct pm_retired { /* in host order */
    uint32_t entry;
    uint16_t slot;
    uint64_t epoch, closing_seq, retired_s;
    uint32_t view, tombstone_count;
    struct cn_uuid owner;
};
struct pm_retired_table; /* volatile index over the table on media */
CN_MUST_CHECK int pm_retired_open(struct pm_pool *pool, struct pm_retired_table **ret);
void pm_retired_close(struct pm_retired_table **table);
/* Enter the final state of a slot whose position has reached closing_seq: durable (s_retired) on
 * return. Idempotent. Errors: CAIRN_E_LIMIT (the table is full). */
CN_MUST_CHECK int pm_retired_add(struct pm_retired_table *table, const struct pm_slot *slot,
    uint64_t now_s);
/* NULL: not known. */
const struct pm_retired *pm_retired_find(
    const struct pm_retired_table *table, uint16_t slot, uint64_t epoch);
bool pm_retired_has_tombstone(
    const struct pm_retired_table *table, const struct pm_retired *r, uint64_t seq);
/* Forget: durable (s_purged) on return. */
void pm_retired_remove(struct pm_retired_table *table, const struct pm_retired *r);
/* How many entries are free, counted as media entries. */
uint32_t pm_retired_free(const struct pm_retired_table *table);
/* Iterate in no particular order: pass NULL first; NULL at the end. Removal of the returned one is
 * allowed. */
const struct pm_retired *pm_retired_next(
    const struct pm_retired_table *table, const struct pm_retired *r);

#endif
