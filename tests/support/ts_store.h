/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_store.h: a tiny cluster of one node over a ts_pool: coordinators that build real redo records
 * by local reads and CAS, and the node's apply, growth, scrub, fencing and restart, one small step
 * at a time. Beside it a model of what is committed. Every accepted read is compared with the model
 * at once.
 *
 * Each slot has at most one transaction. It goes through the phases below, interleaved at random
 * with those of the other slots, growth, scrub and crashes. The verdict on a logged transaction is
 * the test's: kept in `verdict`, which a crash does not touch.
 */
#ifndef TS_STORE_H
#define TS_STORE_H

#include "pmem/pm_store.h"
#include "tests/support/ts_pool.h"

#define TS_KEYS_MAX 4096u
#define TS_SLOTS_MAX 8u
#define TS_TX_WRITES_MAX 8u
#define TS_RECORD_MAX 16384u

enum ts_phase { TS_IDLE, TS_LOCKED, TS_LOGGING, TS_LOGGED, TS_BODY, TS_APPLIED, TS_RELEASED };
enum ts_verdict { TS_UNDECIDED, TS_COMMIT, TS_ABORT };

struct ts_value {
    bool present;
    uint64_t number;
    uint32_t size;
};
struct ts_write {
    uint32_t key;
    struct ts_value value; /* not present: delete */
};

struct ts_slot {
    struct pm_slot slot;
    enum ts_phase phase;
    enum ts_verdict verdict;
    bool marked;     /* may be applied (else it is decided later) */
    bool unresolved; /* found undecided after a restart: goes the replay way */
    bool dead;       /* its coordinator is gone: fenced; locks may be left */
    uint64_t dead_passes;
    uint64_t tail, seq;
    struct ts_write write[TS_TX_WRITES_MAX];
    uint32_t write_count;
    uint64_t locked[2 * TS_TX_WRITES_MAX + 1], locked_word[2 * TS_TX_WRITES_MAX + 1];
    uint32_t locked_count;
    uint8_t *buf; /* of the record */
    uint32_t size;
    struct pm_record record;
    uint8_t *snapshot; /* of the ring, at start */
};

struct ts_store {
    struct ts_pool *t;
    struct pm_store *s;
    struct pm_cas cas;
    uint64_t seed;
    uint32_t slots; /* 1 .. slots are used */
    uint32_t keys;  /* 0 .. keys - 1 are used */
    uint32_t value_max;
    uint32_t writes_max;
    uint32_t cas_fails; /* 1 in so many CAS has no answer; 0: none */
    bool random_guess;  /* readers guess any depth */
    struct ts_value model[TS_KEYS_MAX];
    struct ts_slot slot[TS_SLOTS_MAX];
    uint64_t values, hops, lookups, commits, aborts, conflicts, full, replays, splits, surveys;
    uint32_t bucket_reads; /* of the last lookup */
};

/* New pool with one index (table 1, shard 0), started. */
struct ts_store *ts_store_new(const struct pm_geometry *geometry, uint64_t size, uint64_t seed);
void ts_store_delete(struct ts_store **s);

uint32_t ts_key(uint32_t key, uint8_t ret[32]);
void ts_value_fill(uint32_t key, const struct ts_value *value, uint8_t *ret);

enum ts_found { TS_FOUND, TS_ABSENT, TS_BUSY };
struct ts_place {
    uint64_t bucket, bucket_word, item, item_word;
    struct pm_bucket_view view;
    struct pm_item_view item_view;
    uint8_t copy[PM_BUCKET_SIZE];
};
/* Look a key up as a coordinator does, and compare with the model. */
enum ts_found ts_store_lookup(struct ts_store *s, uint32_t key, struct ts_place *ret);

/*
 * Phases of a transaction in a slot. begin: reads, room, blocks, locks, and the record (not yet in
 * the ring). Returns 0, CAIRN_E_CONFLICT, or what room or grant said.
 */
int ts_store_begin(struct ts_store *s, uint32_t slot, const struct ts_write *write, uint32_t count);
/* Decide, and go on to the next phase. */
void ts_store_advance(struct ts_store *s, uint32_t slot);
/* One key, all phases. Returns as begin. */
int ts_store_put(struct ts_store *s, uint32_t slot, uint32_t key, uint32_t value_size);
int ts_store_del(struct ts_store *s, uint32_t slot, uint32_t key);

/* Something at random. */
void ts_store_step(struct ts_store *s);
/* Finish or decide all transactions; revive dead slots. */
void ts_store_drain(struct ts_store *s);
/* fsck finds nothing, and contents equal the model. Assumes: drained. */
void ts_store_check(struct ts_store *s);
/* Restart after ts_pool_crash() or out of the blue: open, replay, relock, hand out slots. May crash
 * itself. */
void ts_store_restart(struct ts_store *s);

#endif
