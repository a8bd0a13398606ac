/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_store.h: the node's side of the store: heap, apply, growth, scrub, fsck. Rules T1..T13:
 * docs/testing.md. A struct pm_store holds the volatile state over one open pool (free sets,
 * grants, chunk index, growth queues); nothing in it must survive. One thread.
 *
 * Functions that change media store and start write-back but fence only where they say so.
 */
#ifndef PM_STORE_H
#define PM_STORE_H

#include "pmem/pm_object.h"
#include "pmem/pm_pool.h"
#include "pmem/pm_record.h"
#include "pmem/pm_slot.h"

struct pm_store;

/* Compare-and-swap through the fabric (loopback): the only way the node changes a word that
 * coordinators may CAS. Returns 0 with the old value, or an error. */
struct pm_cas {
    void *arg;
    int (*cas)(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old);
};

struct pm_store_stats {
    uint64_t chunks_free, chunks_slab, chunks_buckets, chunks_roots, chunks_total;
    uint64_t splits_early, splits_sweep, splits_room, splits_skipped, surveys, chunks_taken;
    uint64_t grants, grants_again, grants_full, scrub_words, scrub_cleared;
    struct { uint64_t chunks, free_known, granted; } class_[PM_CLASS_COUNT];
};

/* Read chunk descriptors and index roots (16 bytes per chunk, no item, no bucket). Free sets are
 * empty until a survey. Errors: CAIRN_E_CORRUPT_INDEX, -ENOMEM. */
CN_MUST_CHECK int pm_store_open(
    struct pm_pool *pool, const struct pm_cas *cas, struct pm_store **ret);
void pm_store_close(struct pm_store **store);
void pm_store_stats(const struct pm_store *store, struct pm_store_stats *ret);

/* ---- indexes ---- */
/* NULL: none. By table and shard, or by id (from 1). */
const struct pm_index *pm_store_index(const struct pm_store *store, uint16_t table, uint16_t shard);
const struct pm_index *pm_store_index_by_id(const struct pm_store *store, uint32_t index);
uint32_t pm_store_index_count(const struct pm_store *store);
/* May a lock word lie at an offset from the wire: the place of a block or bucket. */
bool pm_store_has_word(const struct pm_store *store, uint64_t off);
/* Create (idempotent), through growth records: durable on return. Errors: CAIRN_E_POOL_FULL. */
CN_MUST_CHECK int pm_store_create_index(struct pm_store *store, uint16_t table, uint16_t shard);

/* ---- heap ---- */
/* Set a block aside that an unresolved record names (before any grant: T8, R4). Idempotent. */
void pm_heap_set_aside(struct pm_store *store, uint64_t off);
/*
 * Grant up to `count` free blocks of a class to a slot. *ret_count may be less.
 * Errors: CAIRN_E_AGAIN (surveying, or a chunk is being assigned: ask again), _POOL_FULL, _PROTOCOL
 * (no such class).
 */
CN_MUST_CHECK int pm_heap_grant(struct pm_store *store, uint16_t slot, uint32_t class_,
    uint32_t count, struct pm_lock_pm *ret_blocks, uint32_t *ret_count);
/* Is this block granted to this slot now? */
bool pm_heap_is_granted(const struct pm_store *store, uint16_t slot, uint64_t off);
/* All grants of a slot are free again (T4: only when every record of the slot is released). */
void pm_heap_release_slot(struct pm_store *store, uint16_t slot);
/* A set-aside or granted block of a record that is tombstoned is free again. */
void pm_heap_return(struct pm_store *store, uint64_t off);

/* ---- apply and replay: pmem/STORE.md ---- */
enum pm_apply_mode {
    PM_APPLY_LIVE,   /* words locked by the slot, blocks granted to it; ver(meta) == base */
    PM_APPLY_REPLAY, /* after a restart: ver(meta) base or base + 1; no grants */
};
/*
 * Check a record against the store: every offset in a chunk of the right kind and class at a block
 * boundary, index known, key and hash belong to it, each bucket/item of a write is in the lock list
 * and each block in the block list, versions, not near their end, bucket room. Changes nothing.
 * Slot 0's record may hold growth ops only, others none. Errors: CAIRN_E_CORRUPT_RECORD (hostile or
 * corrupt: text says which check), _CORRUPT_ITEM, _CORRUPT_BUCKET.
 */
CN_MUST_CHECK int pm_apply_check(
    struct pm_store *store, const struct pm_record *record, uint16_t slot, enum pm_apply_mode mode);
/* Fetch the objects that a checked record names into the cache: a hint. */
void pm_apply_prefetch(const struct pm_store *store, const struct pm_record *record);
/* Steps 1 to 3: store all bodies and flush every line touched or already right (T5). No fence
 * (caller: a_body). Repeatable. */
void pm_apply_body(struct pm_store *store, const struct pm_record *record);
/* Step 5: every word := unlocked, base + 1, unless its version is already that or more; flush all.
 * No fence (caller: a_release). Repeatable. */
void pm_apply_release(struct pm_store *store, const struct pm_record *record);
/* Step 6 (after step 5's stores): old blocks become free, named blocks leave the grants, counts,
 * growth queue. Once per record. */
void pm_apply_done(struct pm_store *store, const struct pm_record *record, uint16_t slot);
/* Tombstoned: locked words (of the record's lock list) that are locked by (tag, slot) at base, or
 * by an old tag, := unlocked base; flush. No fence (caller: a_unlock). Blocks are returned.
 * Repeatable. */
void pm_apply_unlock(struct pm_store *store, const struct pm_record *record, uint16_t slot);
/*
 * Lock the words of an unresolved record again at start: word := locked, this incarnation's tag,
 * slot, base; flush. No fence (caller: r_relocked). Named blocks are set aside. Errors:
 * CAIRN_E_CORRUPT_ITEM (a version other than base).
 */
CN_MUST_CHECK int pm_apply_relock(
    struct pm_store *store, const struct pm_record *record, uint16_t slot);

/* ---- growth: owner slot 0, ring 0 ---- */
/* At start, after pm_store_open: replay what ring 0 holds and raise its epoch. Steps a_body ..
 * a_position. */
CN_MUST_CHECK int pm_growth_start(struct pm_store *store);
/* Make `count` slots free for `hash` in the index at root_off. 0: there is room now. Errors:
 * CAIRN_E_AGAIN (bucket busy: ask again), _POOL_FULL, _PROTOCOL (no such root), _LIMIT (depth). */
CN_MUST_CHECK int pm_growth_room(
    struct pm_store *store, uint64_t root_off, uint64_t hash, uint32_t count);
/* Do at most `budget` units of background work (early splits, sweep, chunks ahead of need, surveys,
 * hints). Returns units done: 0 = nothing to do now. */
uint32_t pm_growth_step(struct pm_store *store, uint32_t budget);

/* ---- scrub ---- */
/* May a word locked by `slot` in the current incarnation be freed: fenced, all its records released
 * (T10). */
typedef bool (*pm_scrub_may_free_fn)(void *arg, uint16_t slot);
/* Scrub at most `budget` words; *ret_done: a whole pass ended with this call. Starts a new pass
 * when none is under way. Returns words looked at. */
uint32_t pm_scrub_step(struct pm_store *store, uint32_t budget, pm_scrub_may_free_fn may_free,
    void *arg, bool *ret_done);
/* Number of whole passes begun and ended in this incarnation (slot reuse waits for one begun after
 * the fence). */
uint64_t pm_scrub_passes(const struct pm_store *store);
/* Is a pass needed: old tags may exist (done < incarnation - 1)? */
bool pm_scrub_is_due(const struct pm_store *store);

/* ---- fsck; read-only ---- */
enum pm_fsck_severity { PM_FSCK_NOTE, PM_FSCK_DAMAGE };
struct pm_fsck_report {
    uint64_t items, buckets, blocks_free, chunks, words_locked, words_old_tag;
    uint64_t damages;
    uint64_t canonical; /* order-independent hash over (index, key, value, version) and (bucket,
                           depth) */
    uint64_t canonical_values; /* the same over (table, shard, key, value) only */
};
typedef void (*pm_fsck_fn)(void *arg, enum pm_fsck_severity severity, const char *text);
typedef void (*pm_fsck_item_fn)(
    void *arg, const struct pm_index *index, const struct pm_item_view *item);
struct pm_fsck_options {
    const struct pm_record *const *unresolved; /* checked records that may hold words and blocks */
    const uint16_t *unresolved_slot;
    uint32_t unresolved_count;
    pm_fsck_fn report;   /* may be NULL */
    pm_fsck_item_fn item; /* may be NULL: each live item */
    void *arg;
};
/* Returns 0 when it could look; damage is in the report. Errors: -ENOMEM. */
CN_MUST_CHECK int pm_fsck(const struct pm_pool *pool, const struct pm_fsck_options *options,
    struct pm_fsck_report *ret);

#endif
