/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each mutant of the apply loop, of tombstones and of sealing is noticed at once (rules R8 to
 * R12, R14). Method: built with CAIRN_MUTANTS (tests/CMakeLists.txt). A small pool in memory with a
 * bucket that records lock. An observer looks at every store, flush and fence. What is visible may
 * be durable by the next instant (a line may be written back at any time), so each rule "A is
 * durable before B" is: at no event is B visible while A is not in the durable shadow. Every case
 * runs with the rule in force, where nothing may be noticed, and then broken.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_mutant.h"
#include "rdma/rd.h"
#include "tests/support/ts_pool.h"
#include "txn/txn_part.h"

#ifndef CAIRN_MUTANTS
static int cn_mutant_active; /* never set: the program says "skipped" */
#endif

#define SLOT 1
#define MARK_OFF 24u
#define RECORDS_MAX 4u

enum rule {
    RECORD_BEFORE_BODY,      /* R11 */
    BODY_BEFORE_APPLIED,
    APPLIED_BEFORE_RELEASE,  /* R8 */
    RELEASE_BEFORE_POSITION, /* R9 */
    DONE_BEFORE_POSITION,    /* R10: applied or tombstone */
    POSITION_BEFORE_PUBLISH, /* R4 */
    TOMBSTONE_BEFORE_UNLOCK, /* R8 */
    RULES,
};

struct logged { /* a record in the ring; `off` is 0 for one without a lock */
    uint64_t seq, at, off, base;
    uint32_t size;
    uint8_t image[512];
    bool aborting;
};

struct fixture {
    struct ts_pool *t;
    struct pm_tracer own; /* the pool's, behind the observer */
    struct txn_part part;
    struct pm_store *store;
    uint64_t log_off, bucket;
    struct logged logged[RECORDS_MAX];
    uint32_t count;
    uint32_t broken[RULES];
    bool watching;
    bool alone; /* records name this node only */
};

static struct txn_part_slot *slot_of(struct fixture *f) { return &f->part.slot[SLOT]; }

/* ---- the observer ---- */

/* The pool as it is seen, or as a power failure would leave it at the least. */
static struct pm_pool look_at(const struct fixture *f, const uint8_t *base)
{
    struct pm_pool pool = f->t->pool;
    memcpy(&pool.pm.base, &base, sizeof(base));
    pool.pm.tracer = NULL;
    return pool;
}

static uint64_t position_in(struct pm_pool *pool)
{
    struct pm_slot slot;
    return pm_slot_load(pool, SLOT, &slot) == 0 ? slot.position_seq : 0;
}

static uint64_t published_in(const struct pm_pool *pool)
{
    return pm_load64(&pool->pm, pm_ring_off(pool, SLOT) + RD_CACHE_LINE);
}

static bool record_is_in(const struct pm_pool *pool, const struct logged *l)
{
    const uint8_t *at = pm_at(&pool->pm, pm_slot_log_at(pool, SLOT, l->at));
    return memcmp(at, l->image, MARK_OFF) == 0 &&
        memcmp(at + MARK_OFF + 8, l->image + MARK_OFF + 8, l->size - MARK_OFF - 8) == 0;
}

static void need(struct fixture *f, bool holds, enum rule rule)
{
    f->broken[rule] += !holds;
}

static void look(struct fixture *f, const struct logged *l)
{
    struct pm_pool seen = look_at(f, f->t->visible), sure = look_at(f, f->t->shadow);
    const struct pm_slot *media = &slot_of(f)->media;
    bool applied = pm_slot_is_applied(&sure, media, l->seq);
    bool tombstone = pm_slot_has_tombstone(&sure, media, l->seq);
    bool passed = position_in(&seen) >= l->seq;

    need(f, !passed || applied || tombstone, DONE_BEFORE_POSITION);
    need(f, published_in(&seen) < l->seq || position_in(&sure) >= l->seq, POSITION_BEFORE_PUBLISH);
    if (l->off == 0)
        return;
    uint64_t word = pm_load64(&seen.pm, l->off), sure_word = pm_load64(&sure.pm, l->off);
    bool stored = pm_word_version(pm_load64(&seen.pm, l->off + 8)) > l->base;
    bool released = pm_word_version(word) > l->base;
    need(f, !stored || record_is_in(&sure, l), RECORD_BEFORE_BODY);
    need(f, !pm_slot_is_applied(&seen, media, l->seq) ||
            pm_word_version(pm_load64(&sure.pm, l->off + 8)) > l->base,
        BODY_BEFORE_APPLIED);
    need(f, !released || applied, APPLIED_BEFORE_RELEASE);
    need(f, !passed || l->aborting || pm_word_version(sure_word) > l->base,
        RELEASE_BEFORE_POSITION);
    need(f, !l->aborting || pm_word_locked_bit(word) || tombstone, TOMBSTONE_BEFORE_UNLOCK);
}

static void look_at_all(struct fixture *f)
{
    for (uint32_t i = 0; f->watching && i < f->count; i++)
        look(f, &f->logged[i]);
}

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct fixture *f = arg;
    f->own.store(f->own.arg, off, size);
    look_at_all(f);
}
static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    struct fixture *f = arg;
    f->own.flush(f->own.arg, off, size);
    look_at_all(f);
}
static void on_fence(void *arg, enum cn_step step)
{
    struct fixture *f = arg;
    f->own.fence(f->own.arg, step);
    look_at_all(f);
}

/* ---- the participant and a coordinator ---- */

static int local_cas(
    void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct fixture *f = arg;
    *ret_old = pm_load64(&f->t->pool.pm, off);
    if (*ret_old == expected)
        pm_store64(&f->t->pool.pm, off, desired);
    return 0;
}

/* The order of a node's start (recovery/rec_start.c). */
static void open_part(struct fixture *f)
{
    struct pm_cas cas = {f, local_cas};
    assert_int_equal(pm_pool_raise_incarnation(&f->t->pool), 0);
    assert_int_equal(txn_part_open(&f->part, &f->t->pool, &f->t->env), 0);
    if (slot_of(f)->media.state != PM_SLOT_FREE) {
        assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
        assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
    }
    assert_int_equal(pm_store_open(&f->t->pool, &cas, &f->store), 0);
    f->part.store = f->store;
    assert_int_equal(pm_growth_start(f->store), 0);
    txn_part_finish_aborted(&f->part);
    while (txn_part_apply(&f->part) != 0)
        continue;
    txn_part_relock(&f->part);
}

static void close_part(struct fixture *f)
{
    pm_store_close(&f->store);
    txn_part_close(&f->part);
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->t = ts_pool_new(&ts_geometry_small, 0);
    f->own = f->t->tracer;
    f->t->tracer = (struct pm_tracer){f, on_store, on_flush, on_fence};
    open_part(f);
    assert_int_equal(pm_store_create_index(f->store, 1, 0), 0);
    const struct pm_index *index = pm_store_index(f->store, 1, 0);
    f->bucket = pm_load64(&f->t->pool.pm, index->off + PM_INDEX_MAP_OFF);
    struct pm_slot *media = &slot_of(f)->media;
    media->state = PM_SLOT_OPEN;
    media->epoch = 7;
    media->nonce = 0x1234567;
    memset(media->owner.b, 0xaa, sizeof(media->owner.b));
    txn_part_store(&f->part, slot_of(f), CN_STEP_s_handout);
    ts_pool_settle(f->t);
    f->watching = true;
}

static void end(struct fixture *f)
{
    close_part(f);
    ts_pool_delete(&f->t);
}

static void restart(struct fixture *f, enum ts_crash mode)
{
    close_part(f);
    f->watching = false; /* `part` is not whole while it opens */
    assert_int_equal(ts_pool_crash(f->t, 1, mode), 0);
    open_part(f);
}

/* A record as RDMA would leave it. `off` 0: a vote without a lock; else a bucket that the
 * transaction locked and does not write. */
static struct logged *put_record(struct fixture *f, uint64_t seq, uint64_t off, bool durable)
{
    struct logged *l = &f->logged[f->count];
    struct pm_pool *pool = &f->t->pool;
    struct pm_place place = pm_slot_place(pool, &slot_of(f)->media, f->log_off);
    struct cn_txid txid = {.count = 100 + seq};
    struct pm_record_writer w;
    uint8_t buf[512] __attribute__((aligned(64)));

    *l = (struct logged){.seq = seq, .at = f->log_off, .off = off};
    memset(txid.coordinator.b, 0xaa, 16);
    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, pool->super.node, 0, 0, SLOT, slot_of(f)->media.epoch, seq);
    if (!f->alone)
        pm_record_add_participant(&w, (uint16_t)(pool->super.node + 1), 1, 0, SLOT, 1, seq);
    if (off != 0) {
        l->base = pm_word_version(pm_load64(&pool->pm, off));
        pm_record_add_lock(&w, off, l->base);
        pm_store64(&pool->pm, off, pm_word_make_locked(pool->tag, SLOT, l->base));
    }
    l->size = pm_record_end(&w, PM_RECORD_TX, &txid, seq, 1, &place);
    assert_int_not_equal(l->size, 0);
    memcpy(l->image, buf, l->size);
    pm_copy(&pool->pm, pm_slot_log_at(pool, SLOT, l->at), buf, l->size);
    if (durable) {
        pm_slot_flush_log(pool, SLOT, l->at, l->size);
        pm_fence(&pool->pm, CN_STEP_c_flushed);
    }
    f->log_off += l->size;
    f->count++;
    return l;
}

static void put_mark(struct fixture *f, const struct logged *l)
{
    pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, l->at) + MARK_OFF,
        pm_word_value(slot_of(f)->media.nonce, l->seq, PM_WORD_MARK));
}

static void poll_and_apply(struct fixture *f)
{
    txn_part_poll(&f->part, slot_of(f));
    while (txn_part_apply(&f->part) != 0)
        continue;
}

static enum txn_entry_state state_of(struct fixture *f, uint64_t seq)
{
    struct txn_entry *entry = txn_part_find(&f->part, slot_of(f), seq);
    return entry == NULL ? TXN_ENTRY_NONE : entry->state;
}

/* ---- situations: what each says, and with which mutant it says something else ---- */

/* A marked record that this CPU has not made durable, with a lock; then another one over it. */
static void apply_two(struct fixture *f)
{
    put_mark(f, put_record(f, 1, f->bucket, false));
    poll_and_apply(f);
    assert_int_equal(slot_of(f)->media.position_seq, 1);
    put_mark(f, put_record(f, 2, f->bucket, true));
    poll_and_apply(f);
    assert_int_equal(slot_of(f)->media.position_seq, 2);
}

static void abort_one(struct fixture *f)
{
    put_record(f, 1, f->bucket, true)->aborting = true;
    txn_part_poll(&f->part, slot_of(f));
    assert_int_equal(
        txn_part_abort(&f->part, slot_of(f), txn_part_find(&f->part, slot_of(f), 1)), 0);
    assert_false(pm_word_locked_bit(pm_load64(&f->t->pool.pm, f->bucket)));
    poll_and_apply(f);
}

/* The second is marked, the first is not. */
static void apply_second_only(struct fixture *f)
{
    put_record(f, 1, 0, true);
    put_mark(f, put_record(f, 2, 0, true));
    poll_and_apply(f);
}

static void expect_order(int mutant, void (*situation)(struct fixture *), enum rule rule)
{
    for (int on = 0; on < 2; on++) {
        struct fixture f;
        begin(&f);
        cn_mutant_active = on != 0 ? mutant : CN_MUTANT_none;
        situation(&f);
        cn_mutant_active = CN_MUTANT_none;
        for (uint32_t i = 0; i < RULES; i++) {
            if (on == 0 && f.broken[i] != 0)
                fail_msg("rule %u is broken without a mutant", i);
            if (on != 0 && i == rule && f.broken[i] == 0)
                fail_msg("mutant %d is not noticed", mutant);
        }
        f.watching = false;
        end(&f);
    }
}

/* Its flush is under way, and it needs no mark. */
static void apply_alone(struct fixture *f)
{
    f->alone = true;
    put_record(f, 1, f->bucket, false);
    poll_and_apply(f);
    assert_int_equal(f->part.stats.applied, 1);
}

static void apply_unpersisted__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_apply_unpersisted, apply_two, RECORD_BEFORE_BODY);
    expect_order(CN_MUTANT_n_apply_unpersisted, apply_alone, RECORD_BEFORE_BODY);
}

/* R3: no mark, and another participant may never get its record. Returns how often it was applied,
 * while the node runs or at its start. */
static uint64_t unmarked(int mutant, bool starts)
{
    struct fixture f;
    begin(&f);
    cn_mutant_active = mutant;
    put_record(&f, 1, f.bucket, true);
    if (starts)
        restart(&f, TS_CRASH_ALL_KEPT);
    else
        poll_and_apply(&f);
    cn_mutant_active = CN_MUTANT_none;
    uint64_t applied = f.part.stats.applied;
    f.watching = false;
    end(&f);
    return applied;
}

static void commit_unmarked__noticed(void **state)
{
    (void)state;
    for (int starts = 0; starts < 2; starts++) {
        assert_int_equal(unmarked(CN_MUTANT_none, starts != 0), 0);
        assert_int_equal(unmarked(CN_MUTANT_n_commit_unmarked, starts != 0), 1);
    }
}

static void no_body_fence__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_no_body_fence, apply_two, BODY_BEFORE_APPLIED);
}

static void no_applied_fence__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_no_applied_fence, apply_two, APPLIED_BEFORE_RELEASE);
}

static void release_before_applied__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_release_before_applied, apply_two, APPLIED_BEFORE_RELEASE);
}

static void no_release_fence__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_no_release_fence, apply_two, RELEASE_BEFORE_POSITION);
}

static void publish_before_position__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_publish_before_position, apply_two, POSITION_BEFORE_PUBLISH);
}

static void tombstone_volatile__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_tombstone_volatile, abort_one, TOMBSTONE_BEFORE_UNLOCK);
}

static void position_skips__noticed(void **state)
{
    (void)state;
    expect_order(CN_MUTANT_n_position_skips, apply_second_only, DONE_BEFORE_POSITION);
}

/* R12: a tombstone, and a mark that came with the record after all. Returns how often it was
 * applied. */
static uint64_t tombstone_and_mark(int mutant)
{
    struct fixture f;
    begin(&f);
    cn_mutant_active = mutant;
    struct logged *l = put_record(&f, 1, f.bucket, true);
    l->aborting = true;
    assert_int_equal(pm_slot_add_tombstone(&f.t->pool, &slot_of(&f)->media, 1), 0);
    put_mark(&f, l);
    restart(&f, TS_CRASH_ALL_KEPT);
    cn_mutant_active = CN_MUTANT_none;
    uint64_t applied = f.part.stats.applied;
    end(&f);
    return applied;
}

static void records_before_tombstones__noticed(void **state)
{
    (void)state;
    assert_int_equal(tombstone_and_mark(CN_MUTANT_none), 0);
    assert_int_equal(tombstone_and_mark(CN_MUTANT_n_records_before_tombstones), 1);
}

/* R14: sequence 2 was lost when the ring was sealed, and is there at the next look (its line was
 * read from an old copy, say). Returns its fate then. */
static enum txn_entry_state lost_record(int mutant)
{
    struct fixture f;
    begin(&f);
    cn_mutant_active = mutant;
    put_record(&f, 1, 0, true);
    uint64_t lost = put_record(&f, 2, 0, true)->at;
    put_record(&f, 3, 0, true);
    uint64_t at = pm_slot_log_at(&f.t->pool, SLOT, lost), magic = pm_load64(&f.t->pool.pm, at);
    pm_store64(&f.t->pool.pm, at, 0);
    assert_int_equal(txn_part_scan(&f.part, slot_of(&f)), 0);
    assert_int_equal(txn_part_seal(&f.part, slot_of(&f)), 0);
    pm_store64(&f.t->pool.pm, at, magic);
    restart(&f, TS_CRASH_ALL_KEPT);
    cn_mutant_active = CN_MUTANT_none;
    assert_int_equal(slot_of(&f)->media.closing_seq, 3);
    enum txn_entry_state fate = state_of(&f, 2);
    end(&f);
    return fate;
}

static void no_gap_tombstones__noticed(void **state)
{
    (void)state;
    assert_int_equal(lost_record(CN_MUTANT_none), TXN_ENTRY_DROPPED);
    assert_int_equal(lost_record(CN_MUTANT_n_no_gap_tombstones), TXN_ENTRY_FOUND);
}

/* R9: applied is durable, the release was in the cache only. Returns whether the word is behind its
 * object after the next start. */
static bool word_is_behind(int mutant)
{
    struct fixture f;
    begin(&f);
    struct logged *l = put_record(&f, 1, f.bucket, true);
    ts_pool_settle(f.t); /* the lock too is in memory by now */
    uint64_t locked = pm_load64(&f.t->pool.pm, f.bucket);
    put_mark(&f, l);
    txn_part_poll(&f.part, slot_of(&f));
    cn_mutant_active = CN_MUTANT_n_no_release_fence; /* shows what a power failure may leave */
    (void)txn_part_apply(&f.part);
    pm_store64(&f.t->pool.pm, f.bucket, locked);
    struct pm_slot *media = &slot_of(&f)->media;
    media->position_seq = media->position_off = 0;
    cn_mutant_active = CN_MUTANT_none;
    txn_part_store(&f.part, slot_of(&f), CN_STEP_a_position);
    cn_mutant_active = mutant;
    restart(&f, TS_CRASH_ALL_KEPT);
    cn_mutant_active = CN_MUTANT_none;
    bool behind = pm_word_version(pm_load64(&f.t->pool.pm, f.bucket)) !=
        pm_word_version(pm_load64(&f.t->pool.pm, f.bucket + 8));
    end(&f);
    return behind;
}

static void no_redo_release__noticed(void **state)
{
    (void)state;
    assert_false(word_is_behind(CN_MUTANT_none));
    assert_true(word_is_behind(CN_MUTANT_n_no_redo_release));
}

int main(void)
{
#ifndef CAIRN_MUTANTS
    if (cn_mutant_active == 0)
        return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apply_unpersisted__noticed),
        cmocka_unit_test(commit_unmarked__noticed),
        cmocka_unit_test(no_body_fence__noticed),
        cmocka_unit_test(no_applied_fence__noticed),
        cmocka_unit_test(release_before_applied__noticed),
        cmocka_unit_test(no_release_fence__noticed),
        cmocka_unit_test(publish_before_position__noticed),
        cmocka_unit_test(tombstone_volatile__noticed),
        cmocka_unit_test(position_skips__noticed),
        cmocka_unit_test(records_before_tombstones__noticed),
        cmocka_unit_test(no_gap_tombstones__noticed),
        cmocka_unit_test(no_redo_release__noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
