/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_store_internal.h: what the files of the store share. Not for anyone else.
 *
 *   pm_store.c         open, close, chunk table, index table, where an offset lies
 *   pm_heap.c          free sets, surveys, grants
 *   pm_apply.c         the gate: a transaction's record against the store
 *   pm_apply_growth.c  the same, and the bodies, for growth records
 *   pm_apply_body.c    bodies, release, done; unlock, relock
 *   pm_growth_log.c    ring 0: growth records, chunks, indexes, replay at start
 *   pm_growth.c        splits, room, policy
 *   pm_scrub.c, pm_fsck.c
 */
#ifndef PM_STORE_INTERNAL_H
#define PM_STORE_INTERNAL_H

#include <inttypes.h>

#include "pmem/pm_store.h"

#define PM_NONE UINT32_MAX

/* ---- the chunk table: DRAM copy of the descriptors ---- */

/* Beyond enum pm_chunk_kind, in DRAM only. */
#define PM_CHUNK_OUTSIDE 0xffu /* not of the heap */
#define PM_CHUNK_BAD 0xfeu     /* its descriptor does not fit: torn by a crash, until replayed */

struct pm_chunk {
    uint8_t kind; /* enum pm_chunk_kind, OUTSIDE or BAD */
    uint8_t class_;
    bool surveyed; /* `bits` says all */
    bool blocked;  /* never surveyed: what must be set aside in it could not be noted */
    bool hint_queued;
    uint16_t hint; /* as on media */
    uint32_t index, seq;
    uint32_t free;       /* surveyed: bits set; else an estimate */
    uint32_t cursor;     /* survey under way: blocks looked at */
    uint64_t *bits;      /* a bit per block: free, and nobody's; NULL before the survey */
    uint32_t next, prev; /* in the class's list of surveyed chunks with free blocks */
};

struct pm_root { /* an index */
    struct pm_index index;
    uint32_t *map;         /* chunk number of the i-th chunk of buckets, PM_NONE */
    uint32_t chunks;       /* entries set */
    uint64_t items_stored; /* as on media */
    uint32_t sweep_credit; /* inserts since the last sweep step */
};

struct pm_chunks {
    const struct pm_pool *pool;
    struct pm_chunk *chunk;
    uint32_t count;
    uint32_t shift;
    uint32_t buckets_per_chunk; /* chunk size / 512 */
    uint32_t root_size, roots_per_chunk;
    struct pm_root **root; /* by index id - 1 */
    uint32_t root_count;
};

/*
 * Read descriptors and roots. `strict`: what does not fit is an error; else it is left out (as
 * BAD), for a crash may have torn what ring 0 will repair. Errors: CAIRN_E_CORRUPT_INDEX, -ENOMEM.
 */
CN_MUST_CHECK int pm_chunks_load(struct pm_chunks *c, const struct pm_pool *pool, bool strict);
void pm_chunks_unload(struct pm_chunks *c);
/* Enter a descriptor that is durable now; an index whose root is. */
void pm_chunks_note(struct pm_chunks *c, uint32_t number, const struct pm_chunk_pm *descriptor);
CN_MUST_CHECK int pm_chunks_note_root(struct pm_chunks *c, const struct pm_index *index);

/* Does a descriptor as read make sense? (FREE: all zero but the hint.) */
bool pm_chunk_is_good(const struct pm_chunks *c, const struct pm_chunk_pm *d, uint32_t number);
/* Is this the offset of an index root's place? */
bool pm_place_is_root(const struct pm_chunks *c, uint64_t off);
uint32_t pm_chunk_crc(const struct pm_chunk_pm *d, uint32_t number, uint32_t crc_seed);
static inline uint64_t pm_chunk_desc_off(const struct pm_chunks *c, uint32_t number)
{
    return c->pool->super.chunks_off + (uint64_t)number * sizeof(struct pm_chunk_pm);
}
static inline uint64_t pm_chunk_off(const struct pm_chunks *c, uint32_t number)
{
    return (uint64_t)number << c->shift;
}
/* Blocks in a SLAB chunk of a class; 0: no such class here. */
static inline uint32_t pm_chunk_blocks(const struct pm_chunks *c, uint32_t class_)
{
    uint32_t size = pm_class_size(class_);

    return size == 0 ? 0 : (uint32_t)((UINT64_C(1) << c->shift) / size);
}

/* What lies at an offset: PM_KIND_ITEM (a block), PM_KIND_BUCKET (a place of one), or PM_KIND_NONE:
 * no lock word may be there. `off` may be anything. */
enum pm_kind pm_place_kind(const struct pm_chunks *c, uint64_t off);
static inline struct pm_chunk *pm_chunk_at(const struct pm_chunks *c, uint64_t off)
{
    return &c->chunk[off >> c->shift];
}
static inline uint32_t pm_block_number(const struct pm_chunks *c, uint64_t off)
{
    uint64_t inside = off & ((UINT64_C(1) << c->shift) - 1);

    return (uint32_t)inside / pm_class_size(pm_chunk_at(c, off)->class_);
}
/* Is it a block of exactly this class? */
static inline bool pm_place_is_block(const struct pm_chunks *c, uint64_t off, uint32_t class_)
{
    return pm_place_kind(c, off) == PM_KIND_ITEM && pm_chunk_at(c, off)->class_ == class_;
}
/* Number of the bucket whose place this is (pm_place_kind says BUCKET). */
static inline uint64_t pm_bucket_number_at(const struct pm_chunks *c, uint64_t off)
{
    uint64_t inside = off & ((UINT64_C(1) << c->shift) - 1);

    return (uint64_t)pm_chunk_at(c, off)->seq * c->buckets_per_chunk + inside / PM_BUCKET_SIZE;
}
/* Place of a bucket; 0: its chunk does not exist. */
uint64_t pm_bucket_place(const struct pm_chunks *c, const struct pm_root *root, uint64_t number);
/* Index by id from media or wire; NULL: none. */
static inline struct pm_root *pm_root_by_id(const struct pm_chunks *c, uint32_t id)
{
    return id == 0 || id > c->root_count ? NULL : c->root[id - 1];
}

/* ---- the store ---- */

struct pm_grant { /* of the table of blocks that are not free though their header says so */
    uint64_t off; /* 0: empty */
    uint16_t slot;
    bool aside; /* named by an unresolved record */
};

#define PM_EARLY_MAX 256u
#define PM_HINTS_MAX 64u
#define PM_SCRATCH_HASH 4096u
#define PM_GROWTH_RECORD_MAX 4096u

struct pm_apply_scratch {
    struct pm_record_write write[PM_RECORD_WRITES_MAX];
    uint16_t write_bucket[PM_RECORD_WRITES_MAX]; /* number of its lock, PM_NO_LOCK */
    uint16_t write_item[PM_RECORD_WRITES_MAX];
    uint16_t write_block[PM_RECORD_WRITES_MAX];
    uint16_t next[PM_RECORD_WRITES_MAX]; /* of the same bucket, in order of the record */
    uint16_t head[PM_RECORD_LOCKS_MAX];  /* first write of a bucket */
    uint16_t tail[PM_RECORD_LOCKS_MAX];
    uint8_t kind[PM_RECORD_LOCKS_MAX]; /* enum pm_kind of the place */
    bool used[PM_RECORD_LOCKS_MAX];    /* by a write */
    bool block_used[PM_RECORD_BLOCKS_MAX];
    uint16_t hash[PM_SCRATCH_HASH]; /* offset -> 1 + lock, or 1 + LOCKS_MAX + block */
    struct pm_bucket_pm bucket;
    uint64_t payload[8704]; /* an item of the largest class */
};
#define PM_NO_LOCK UINT16_MAX

struct pm_found { /* growth records found at start; they point into ring 0 */
    struct pm_record *record;
    uint32_t count, max;
};

struct pm_store {
    struct pm_pool *pool;
    struct pm *pm;
    struct pm_cas cas;
    struct pm_chunks c;
    uint32_t free_chunks, roots_chunks, heap_chunks;

    /* heap */
    struct {
        uint32_t first;
        uint64_t free, granted;
        uint32_t unsurveyed, chunks;
        bool wanted;
    } class_[PM_CLASS_COUNT];
    uint32_t survey; /* chunk under survey, PM_NONE */
    struct pm_grant *grant;
    uint32_t grant_count, grant_cap; /* cap: 0 or a power of two */
    uint32_t hint[PM_HINTS_MAX];     /* chunks whose hint on media is stale */
    uint32_t hint_count;

    /* growth */
    bool growth_started;
    struct pm_slot slot0;
    uint64_t log_tail, log_seq; /* next log offset; last sequence used */
    struct {
        uint32_t root;
        uint64_t off;
    } early[PM_EARLY_MAX];
    uint32_t early_head, early_count;
    bool hints_flushed;    /* hints are stored and flushed, not fenced */
    uint32_t chunk_cursor; /* where to look for a FREE chunk next */
    uint8_t *record_buf;   /* of a growth record */
    struct pm_found found;

    /* scrub */
    struct {
        bool active, counts;
        uint64_t goal;
        uint32_t chunk, block, free;
    } scrub;
    uint64_t scrub_passes;

    struct pm_store_stats stats;
    const struct pm_record *prepared; /* the scratch is this one's: checked, and not stored yet */
    struct pm_apply_scratch scratch;  /* last: not zeroed */
};

/* A word that no coordinator holds in this incarnation. */
static inline bool pm_is_unlocked(const struct pm_store *s, uint64_t word)
{
    return !pm_word_is_locked(word, s->pool->tag);
}

/* ---- heap ---- */
/* The block may be given out: never used, DEAD or MOVED, accepted, far from its last version (T3).
 */
bool pm_heap_block_is_free(const struct pm_store *s, uint64_t off);
/* A block died; its word is released (T6). A set: again is harmless. */
void pm_heap_free(struct pm_store *s, uint64_t off);
/* A granted or set-aside block now lives. */
void pm_heap_consume(struct pm_store *s, uint64_t off);
/* Forget the note on a block, if it is this slot's or set aside, and free it. */
void pm_heap_return_of(struct pm_store *s, uint16_t slot, uint64_t off);
/* A fresh, zero SLAB chunk was entered: all free. */
CN_MUST_CHECK int pm_heap_add_fresh(struct pm_store *s, uint32_t chunk);
/* Rebuild counts and lists from the chunk table; forgets surveys. */
void pm_heap_reset(struct pm_store *s);
/* Look at up to `budget` more headers in the background; returns how many. */
uint32_t pm_heap_survey_step(struct pm_store *s, uint32_t budget);
/* A class in use that should get a chunk ahead of need; PM_CLASS_COUNT: none. */
uint32_t pm_heap_class_in_need(const struct pm_store *s);
/* Store stale hints (flushed, not fenced); returns how many. */
uint32_t pm_heap_store_hints(struct pm_store *s);
/* A better guess of a chunk's free blocks than the one at hand. */
void pm_heap_guess(struct pm_store *s, uint32_t chunk, uint32_t free);

/* ---- apply ---- */
/* Decode a TX record into the scratch: writes, their locks and blocks. Errors:
 * CAIRN_E_CORRUPT_RECORD. */
CN_MUST_CHECK int pm_apply_prepare(struct pm_store *s, const struct pm_record *record);
/* Growth records: one write each. */
CN_MUST_CHECK int pm_growth_check(struct pm_store *s, const struct pm_record *record);
void pm_growth_body(struct pm_store *s, const struct pm_record *record);
void pm_growth_release(struct pm_store *s, const struct pm_record *record);
/* crc of a bucket image with another meta. */
void pm_bucket_finish(
    struct pm_bucket_pm *bucket, uint64_t off, uint64_t version, uint32_t crc_seed);
/* Set a word := unlocked `version` unless it is that or more; flush it in any case (T5). */
void pm_release_word(struct pm_store *s, uint64_t off, uint64_t version);
/* Refuse a record. */
CN_MUST_CHECK int pm_refuse(const struct pm_record *record, const char *format, ...)
    CN_PRINTF(2, 3);

/* ---- growth ---- */
/* Start a growth record in record_buf; the caller adds locks and writes, then commits: durable,
 * applied and released on return. */
void pm_growth_forget(struct pm_store *s);
void pm_growth_begin(struct pm_store *s, struct pm_record_writer *w);
CN_MUST_CHECK int pm_growth_commit(struct pm_store *s, struct pm_record_writer *w);
/* Give a FREE chunk, zeroed, to a class; to an index. Errors: CAIRN_E_POOL_FULL, -ENOMEM. */
CN_MUST_CHECK int pm_growth_add_slab(struct pm_store *s, uint32_t class_);
CN_MUST_CHECK int pm_growth_add_buckets(struct pm_store *s, struct pm_root *root, uint32_t seq);
/* Free chunks that SLAB assignment must leave. */
uint32_t pm_growth_reserve(const struct pm_store *s);
/* A bucket was seen this full after an apply; inserts were applied. */
void pm_growth_note(struct pm_store *s, struct pm_root *root, uint64_t bucket, uint32_t used);
static inline uint32_t pm_growth_early(const struct pm_index *index)
{
    return index->bucket_slots - index->bucket_slots / 28u;
}

#endif
