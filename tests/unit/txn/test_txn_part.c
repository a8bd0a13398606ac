/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a participant does with its rings: finding, marks, the order of persist points,
 * tombstones, sealing (rules R8 to R12, R14). Method: a small pool in memory; the test plays the
 * coordinator by storing records into the ring as RDMA would, and crashes the participant at every
 * store, flush and fence. Invariants: a sequence that was answered or acted on never changes its
 * fate afterwards.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_pool.h"
#include "txn/txn_part.h"

#define SLOT 1
#define MARK_OFF 24u

struct fixture {
    struct ts_pool *t;
    struct txn_part part;
    struct pm_store *store;
    uint64_t log_off; /* of the next record */
    bool alone;       /* records name this node only */
    bool calls_done;  /* records call the one before done */
};

static int no_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    (void)arg, (void)off, (void)expected, (void)desired, (void)ret_old;
    return CAIRN_E_FABRIC;
}

static void open_part(struct fixture *f)
{
    struct pm_cas cas = {f, no_cas};
    assert_int_equal(txn_part_open(&f->part, &f->t->pool, &f->t->env), 0);
    assert_int_equal(pm_store_open(&f->t->pool, &cas, &f->store), 0);
    f->part.store = f->store;
}

static void close_part(struct fixture *f)
{
    pm_store_close(&f->store);
    txn_part_close(&f->part);
}

static struct txn_part_slot *slot_of(struct fixture *f) { return &f->part.slot[SLOT]; }

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->t = ts_pool_new(&ts_geometry_small, 0);
    open_part(f);
    struct pm_slot *media = &slot_of(f)->media;
    media->state = PM_SLOT_OPEN;
    media->epoch = 7;
    media->nonce = 0x1234567;
    memset(media->owner.b, 0xaa, sizeof(media->owner.b));
    pm_slot_store(&f->t->pool, media);
    pm_fence(&f->t->pool.pm, CN_STEP_s_handout);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close_part(f);
    ts_pool_delete(&f->t);
    free(f);
    return 0;
}

/* A record without locks or writes: a vote. Returns its log offset. */
static uint64_t put_record(struct fixture *f, uint64_t seq, enum pm_record_type type, bool durable)
{
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_pool *pool = &f->t->pool;
    struct pm_place place = pm_slot_place(pool, &slot_of(f)->media, f->log_off);
    struct cn_txid txid = {.count = 100 + seq};
    uint32_t size = PM_RECORD_VOID_SIZE;
    uint64_t at = f->log_off;

    memset(txid.coordinator.b, 0xaa, 16);
    if (type == PM_RECORD_VOID) {
        pm_record_make_void(buf, &txid, seq, 1, &place);
    } else {
        struct pm_record_writer w;
        pm_record_begin(&w, buf, sizeof(buf));
        w.done = f->calls_done ? seq - 1 : 0;
        pm_record_add_participant(
            &w, pool->super.node, 0, 0, SLOT, slot_of(f)->media.epoch, seq);
        if (!f->alone)
            pm_record_add_participant(&w, (uint16_t)(pool->super.node + 1), 1, 0, SLOT, 1, seq);
        size = pm_record_end(&w, type, &txid, seq, 1, &place);
        assert_int_not_equal(size, 0);
    }
    pm_copy(&pool->pm, pm_slot_log_at(pool, SLOT, at), buf, size);
    if (durable) {
        pm_slot_flush_log(pool, SLOT, at, size);
        pm_fence(&pool->pm, CN_STEP_c_flushed);
    }
    f->log_off += size;
    return at;
}

static void put_mark(struct fixture *f, uint64_t at, uint64_t seq)
{
    pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, at) + MARK_OFF,
        pm_word_value(slot_of(f)->media.nonce, seq, PM_WORD_MARK));
}

static enum txn_entry_state state_of(struct fixture *f, uint64_t seq)
{
    struct txn_entry *entry = txn_part_find(&f->part, slot_of(f), seq);
    return entry == NULL ? TXN_ENTRY_NONE : entry->state;
}

static void poll__unmarked_record__stays_found(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_TX, true);
    assert_int_equal(txn_part_poll(&f->part, slot_of(f)), 1);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_FOUND);
    assert_int_equal(txn_part_apply(&f->part), 0);
    assert_int_equal(slot_of(f)->media.position_seq, 0);
}

static void poll__marked_record__is_applied_and_passed(void **state)
{
    struct fixture *f = *state;
    uint64_t at = put_record(f, 1, PM_RECORD_TX, true);
    put_mark(f, at, 1);
    assert_true(txn_part_poll(&f->part, slot_of(f)) > 0);
    assert_true(txn_part_apply(&f->part) > 0);
    assert_int_equal(slot_of(f)->media.position_seq, 1);
    assert_int_equal(slot_of(f)->media.position_off, f->log_off);
    assert_int_equal(slot_of(f)->unresolved, 0);
}

/* Nobody else can lack theirs: it is committed without a mark, once it is durable here. */
static void poll__record_of_this_node_alone__applied_without_a_mark(void **state)
{
    struct fixture *f = *state;
    f->alone = true;
    put_record(f, 1, PM_RECORD_TX, false);
    assert_true(txn_part_poll(&f->part, slot_of(f)) > 0);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_COMMITTED);
    struct txn_entry *entry = txn_part_find(&f->part, slot_of(f), 1);
    assert_false(entry->persisted);
    assert_true(txn_part_apply(&f->part) > 0);
    assert_true(entry->persisted); /* R11 */
    assert_int_equal(slot_of(f)->media.position_seq, 1);
    assert_int_equal(slot_of(f)->unresolved, 0);
}

static void scan__record_of_this_node_alone__committed_unless_it_has_a_tombstone(void **state)
{
    struct fixture *f = *state;
    f->alone = true;
    put_record(f, 1, PM_RECORD_TX, false);
    put_record(f, 2, PM_RECORD_TX, false);
    assert_int_equal(pm_slot_add_tombstone(&f->t->pool, &slot_of(f)->media, 2), 0);
    assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_COMMITTED);
    assert_true(txn_part_find(&f->part, slot_of(f), 1)->persisted);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_ABORTED); /* R12 */
}

static void poll__mark_of_another_sequence__counts_as_none(void **state)
{
    struct fixture *f = *state;
    uint64_t at = put_record(f, 1, PM_RECORD_TX, true);
    put_mark(f, at, 2);
    txn_part_poll(&f->part, slot_of(f));
    assert_int_equal(state_of(f, 1), TXN_ENTRY_FOUND);
}

/* R10: applied out of order, but the position waits for the first. */
static void apply__second_marked_first__position_waits(void **state)
{
    struct fixture *f = *state;
    uint64_t first = put_record(f, 1, PM_RECORD_TX, true);
    uint64_t second = put_record(f, 2, PM_RECORD_TX, true);
    put_mark(f, second, 2);
    txn_part_poll(&f->part, slot_of(f));
    txn_part_apply(&f->part);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_RELEASED);
    assert_int_equal(slot_of(f)->media.position_seq, 0);
    put_mark(f, first, 1);
    txn_part_poll(&f->part, slot_of(f));
    txn_part_apply(&f->part);
    assert_int_equal(slot_of(f)->media.position_seq, 2);
}

static void abort__found_record__tombstone_then_passed(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_TX, true);
    txn_part_poll(&f->part, slot_of(f));
    assert_int_equal(
        txn_part_abort(&f->part, slot_of(f), txn_part_find(&f->part, slot_of(f), 1)), 0);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
    txn_part_apply(&f->part);
    assert_int_equal(slot_of(f)->media.position_seq, 1);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
}

static void poll__void_record__counts_as_tombstone(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_VOID, true);
    uint64_t at = put_record(f, 2, PM_RECORD_TX, true);
    put_mark(f, at, 2);
    txn_part_poll(&f->part, slot_of(f));
    txn_part_apply(&f->part);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
    assert_int_equal(slot_of(f)->media.position_seq, 2);
}

/* However many sequences are wasted, each gap of the window still has room for its tombstone. */
static void seal__tombstones_near_their_end__every_gap_gets_one(void **state)
{
    struct fixture *f = *state;
    uint32_t window = f->part.window;
    assert_int_equal(f->t->pool.super.tombstone_max, 2 * window);
    for (uint64_t seq = 1; seq <= 2 * window; seq++) {
        put_record(f, seq, PM_RECORD_VOID, true);
        if (seq % window != 0)
            continue;
        txn_part_poll(&f->part, slot_of(f));
        txn_part_apply(&f->part);
    }
    put_record(f, 3 * window, PM_RECORD_VOID, true);
    assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
    assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
    txn_part_apply(&f->part);
    assert_true(txn_part_is_drained(slot_of(f)));
    close_part(f); /* and so at the next start */
    open_part(f);
    assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
    assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
}

static void poll__growth_record_of_a_coordinator__breaks_the_slot(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_GROWTH, true);
    txn_part_poll(&f->part, slot_of(f));
    assert_true(slot_of(f)->broken || state_of(f, 1) == TXN_ENTRY_NONE);
    assert_int_equal(slot_of(f)->media.position_seq, 0);
}

/* A lost record has a valid successor: the scan finds it, the gap gets a tombstone (R14). */
static void seal__lost_record__gap_gets_tombstone(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_TX, true);
    uint64_t lost = put_record(f, 2, PM_RECORD_TX, true);
    put_record(f, 3, PM_RECORD_TX, true);
    pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, lost), 0);
    assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
    assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
    assert_int_equal(slot_of(f)->media.state, PM_SLOT_CLOSED);
    assert_int_equal(slot_of(f)->media.closing_seq, 3);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_FOUND);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_DROPPED);
    assert_int_equal(state_of(f, 3), TXN_ENTRY_FOUND);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 2));
}

static void restart(struct fixture *f, uint64_t seed, enum ts_crash mode)
{
    close_part(f);
    assert_int_equal(ts_pool_crash(f->t, seed, mode), 0);
    open_part(f);
    struct txn_part_slot *slot = slot_of(f);
    if (slot->media.state != PM_SLOT_FREE) { /* from a snapshot, or where they lie */
        assert_int_equal(
            (seed % 2 == 0 ? txn_part_scan : txn_part_scan_still)(&f->part, slot), 0);
        assert_int_equal(txn_part_seal(&f->part, slot), 0);
    }
    txn_part_finish_aborted(&f->part);
    while (txn_part_apply(&f->part) != 0)
        continue;
}

/* A batch shares its fences, and eight states a line: counted over a window of eight records. */
static void apply__window_of_records__one_fence_of_each_kind(void **state)
{
    static const enum cn_step step[] = {CN_STEP_a_found, CN_STEP_a_body, CN_STEP_a_applied,
        CN_STEP_a_release, CN_STEP_a_position};
    struct fixture *f = *state;
    uint64_t before[CN_STEP_COUNT];
    f->alone = true;
    for (uint64_t seq = 1; seq <= f->part.window; seq++)
        put_record(f, seq, PM_RECORD_TX, true);
    assert_int_equal( /* found, committed */
        txn_part_poll(&f->part, slot_of(f)), 2 * f->part.window);
    memcpy(before, f->t->step_count, sizeof(before));
    assert_int_equal(txn_part_apply(&f->part), f->part.window + 1);
    for (size_t i = 0; i < CN_ARRAY_SIZE(step); i++)
        assert_int_equal(f->t->step_count[step[i]] - before[step[i]], 1);
    assert_int_equal(slot_of(f)->media.position_seq, f->part.window);
    assert_int_equal(f->part.stats.batches, 1);
}

/* Found where they lie: no byte is copied, and they fare as those of a snapshot. */
static void scan_still__marked_lost_and_void__as_in_a_snapshot(void **state)
{
    struct fixture *f = *state;
    const uint8_t *ring = pm_at(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, 0));
    put_mark(f, put_record(f, 1, PM_RECORD_TX, true), 1);
    put_record(f, 2, PM_RECORD_VOID, true);
    uint64_t lost = put_record(f, 3, PM_RECORD_TX, true);
    uint64_t at = put_record(f, 4, PM_RECORD_TX, true);
    pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, lost), 0);
    assert_int_equal(txn_part_scan_still(&f->part, slot_of(f)), 0);
    const struct txn_entry *entry = txn_part_find(&f->part, slot_of(f), 4);
    assert_ptr_equal(entry->record.head, ring + at);
    assert_null(entry->copy);
    assert_true(entry->persisted);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_COMMITTED);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_DROPPED);
    assert_int_equal(state_of(f, 3), TXN_ENTRY_NONE);
    assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
    assert_int_equal(state_of(f, 3), TXN_ENTRY_DROPPED);
    assert_int_equal(state_of(f, 4), TXN_ENTRY_FOUND);
    while (txn_part_apply(&f->part) != 0)
        continue;
    assert_int_equal(slot_of(f)->media.position_seq, 3);
    assert_int_equal(slot_of(f)->unresolved, 1);
    assert_int_equal(slot_of(f)->count[TXN_ENTRY_FOUND], 1);
}

/* The mark of a lost record is looked for where no record was found, and found there. */
static void scan_still__marked_record_damaged__is_kept_as_rejected(void **state)
{
    struct fixture *f = *state;
    put_mark(f, put_record(f, 1, PM_RECORD_TX, true), 1);
    uint64_t at = put_record(f, 2, PM_RECORD_TX, true);
    put_mark(f, at, 2);
    pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, at) + 64, 1);
    put_mark(f, put_record(f, 3, PM_RECORD_TX, true), 3);
    assert_int_equal(txn_part_scan_still(&f->part, slot_of(f)), 0);
    assert_true(slot_of(f)->damaged);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_COMMITTED);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_REJECTED);
    assert_int_equal(state_of(f, 3), TXN_ENTRY_COMMITTED);
}

/* A record written after the epoch was closed is never accepted, not even by a later scan. */
static void seal__late_writes__change_nothing(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1, PM_RECORD_TX, true);
    assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
    assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
    put_record(f, 2, PM_RECORD_TX, true);
    restart(f, 1, TS_CRASH_ALL_KEPT);
    assert_int_equal(slot_of(f)->media.closing_seq, 1);
    assert_int_equal(state_of(f, 1), TXN_ENTRY_FOUND);
    assert_int_equal(state_of(f, 2), TXN_ENTRY_NONE);
}

/* R12: the tombstone wins over a record that is valid and even marked. */
static void scan__tombstone_and_mark__aborted(void **state)
{
    struct fixture *f = *state;
    uint64_t at = put_record(f, 1, PM_RECORD_TX, true);
    assert_int_equal(pm_slot_add_tombstone(&f->t->pool, &slot_of(f)->media, 1), 0);
    put_mark(f, at, 1);
    restart(f, 1, TS_CRASH_ALL_KEPT);
    assert_int_equal(slot_of(f)->media.position_seq, 1);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
    assert_int_equal(f->part.stats.applied, 0);
}

struct run {
    struct fixture *f;
    bool aborted; /* what the participant had promised when it crashed */
};

static void abort_body(struct ts_pool *t, void *arg)
{
    struct run *run = arg;
    struct fixture *f = run->f;
    (void)t;
    if (txn_part_abort(&f->part, slot_of(f), txn_part_find(&f->part, slot_of(f), 1)) == 0)
        run->aborted = true;
}

/* A tombstone that was answered is final, whatever a crash leaves. */
static void abort__crash_anywhere__old_or_new_never_undone(void **state)
{
    (void)state;
    for (uint64_t crash_at = 1; crash_at < 60; crash_at++) {
        void *one = NULL;
        setup(&one);
        struct fixture *f = one;
        put_record(f, 1, PM_RECORD_TX, true);
        txn_part_poll(&f->part, slot_of(f));
        struct run run = {f, false};
        bool crashed = ts_pool_run(f->t, crash_at, abort_body, &run);
        assert_true(crashed || run.aborted);
        restart(f, crash_at, TS_CRASH_RANDOM);
        bool tombstone = pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1);
        if (run.aborted)
            assert_true(tombstone);
        assert_int_equal(state_of(f, 1), tombstone ? TXN_ENTRY_NONE : TXN_ENTRY_FOUND);
        assert_int_equal(slot_of(f)->media.position_seq, tombstone ? 1 : 0);
        teardown(&one);
        if (!crashed)
            return;
    }
    fail_msg("the abort never ran to its end");
}

static void apply_body(struct ts_pool *t, void *arg)
{
    struct run *run = arg;
    (void)t;
    txn_part_poll(&run->f->part, slot_of(run->f));
    while (txn_part_apply(&run->f->part) != 0)
        continue;
}

/* A committed record is applied and passed after any crash, at once or at the next start. */
static void apply__crash_anywhere__applied_in_the_end(void **state)
{
    (void)state;
    for (uint64_t crash_at = 1; crash_at < 200; crash_at++) {
        void *one = NULL;
        setup(&one);
        struct fixture *f = one;
        for (uint64_t seq = 1; seq <= 3; seq++) {
            uint64_t at = put_record(f, seq, PM_RECORD_TX, true);
            put_mark(f, at, seq);
        }
        ts_pool_settle(f->t);
        struct run run = {f, false};
        bool crashed = ts_pool_run(f->t, crash_at, apply_body, &run);
        restart(f, crash_at * 7, TS_CRASH_RANDOM);
        assert_int_equal(slot_of(f)->media.position_seq, 3);
        assert_int_equal(slot_of(f)->unresolved, 0);
        assert_int_equal(pm_slot_tombstones(&f->t->pool, &slot_of(f)->media, NULL, 0), 0);
        teardown(&one);
        if (!crashed)
            return;
    }
    fail_msg("the apply never ran to its end");
}

static void scan_body(struct ts_pool *t, void *arg)
{
    struct run *run = arg;
    (void)t;
    assert_int_equal(txn_part_scan(&run->f->part, slot_of(run->f)), 0);
    if (txn_part_seal(&run->f->part, slot_of(run->f)) == 0)
        run->aborted = true;
}

/* R11, R14: once sealed, what was found stays found and what was not stays impossible, by power
 * failure too. */
static void seal__crash_anywhere__fates_are_kept(void **state)
{
    (void)state;
    for (uint64_t crash_at = 1; crash_at < 400; crash_at++) {
        void *one = NULL;
        setup(&one);
        struct fixture *f = one;
        put_record(f, 1, PM_RECORD_TX, false); /* visible, not durable: its flush never came */
        uint64_t lost = put_record(f, 2, PM_RECORD_TX, false);
        put_record(f, 3, PM_RECORD_TX, false);
        uint64_t magic = pm_load64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, lost));
        pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, lost), 0);
        struct run run = {f, false};
        bool crashed = ts_pool_run(f->t, crash_at, scan_body, &run);
        if (run.aborted) /* the lost record arrives late */
            pm_store64(&f->t->pool.pm, pm_slot_log_at(&f->t->pool, SLOT, lost), magic);
        restart(f, crash_at * 3, TS_CRASH_RANDOM);
        if (run.aborted) {
            assert_int_equal(slot_of(f)->media.closing_seq, 3);
            assert_int_equal(state_of(f, 1), TXN_ENTRY_FOUND);
            assert_int_equal(state_of(f, 2), TXN_ENTRY_DROPPED);
            assert_int_equal(state_of(f, 3), TXN_ENTRY_FOUND);
        }
        teardown(&one);
        if (!crashed)
            return;
    }
    fail_msg("the seal never ran to its end");
}

/* A marked record that does not check was committed: no tombstone calls it aborted, now or after a
 * restart, and the position never passes it. One without a mark is a gap like any other. */
static void scan__marked_record_damaged__kept_without_a_tombstone(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = &f->t->pool;
    uint64_t at[4];
    for (uint64_t seq = 1; seq <= 3; seq++) {
        at[seq] = put_record(f, seq, PM_RECORD_TX, true);
        if (seq != 2)
            put_mark(f, at[seq], seq);
    }
    for (uint64_t seq = 2; seq <= 3; seq++) { /* a bit of the participant's place */
        uint64_t word = pm_slot_log_at(pool, SLOT, at[seq]) + 88;
        pm_store64(&pool->pm, word, pm_load64(&pool->pm, word) ^ 4);
    }
    ts_pool_settle(f->t);
    for (int restarts = 0; restarts < 3; restarts++) {
        restart(f, 1, TS_CRASH_ALL_LOST);
        assert_true(slot_of(f)->damaged);
        assert_int_equal(slot_of(f)->media.state, PM_SLOT_CLOSED);
        assert_int_equal(slot_of(f)->media.closing_seq, 3);
        assert_int_equal(slot_of(f)->media.position_seq, 2); /* 1 applied, 2 a gap */
        assert_int_equal(state_of(f, 3), TXN_ENTRY_REJECTED);
        assert_true(pm_slot_has_tombstone(pool, &slot_of(f)->media, 2));
        assert_false(pm_slot_has_tombstone(pool, &slot_of(f)->media, 3));
        assert_false(txn_part_is_drained(slot_of(f)));
    }
}

/* A record of this node alone has no mark. Its successor says that it was committed. */
static void put_two_alone_and_damage_the_first(struct fixture *f, bool calls_done)
{
    struct pm_pool *pool = &f->t->pool;
    f->alone = true;
    f->calls_done = calls_done;
    uint64_t first = put_record(f, 1, PM_RECORD_TX, true);
    put_record(f, 2, PM_RECORD_TX, true);
    uint64_t word = pm_slot_log_at(pool, SLOT, first) + 88;
    pm_store64(&pool->pm, word, pm_load64(&pool->pm, word) ^ 4);
    ts_pool_settle(f->t);
}

static void poll__damaged_record_with_a_successor__breaks_the_slot(void **state)
{
    struct fixture *f = *state;
    put_two_alone_and_damage_the_first(f, true);
    for (uint32_t i = 0; i < 10000 && !slot_of(f)->broken; i++)
        (void)txn_part_poll(&f->part, slot_of(f));
    assert_true(slot_of(f)->broken);
    assert_non_null(strstr(slot_of(f)->broken_text, "CAIRN_E_CORRUPT_RECORD"));
    assert_int_equal(slot_of(f)->seq_max, 0);
}

/* A record seen half, and not looked at again before it and the next one were whole. */
static void poll__record_slow_to_come__is_not_taken_for_damaged(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = &f->t->pool;
    f->alone = f->calls_done = true;
    uint64_t word = pm_slot_log_at(pool, SLOT, put_record(f, 1, PM_RECORD_TX, true)) + 88;
    pm_store64(&pool->pm, word, pm_load64(&pool->pm, word) ^ 4);
    for (uint32_t i = 0; i < 100000 && slot_of(f)->retry_count < 8; i++)
        (void)txn_part_poll(&f->part, slot_of(f));
    assert_true(slot_of(f)->retry_count >= 8 && !slot_of(f)->broken);
    pm_store64(&pool->pm, word, pm_load64(&pool->pm, word) ^ 4);
    put_record(f, 2, PM_RECORD_TX, true);
    for (uint32_t i = 0; i < 1000000 && slot_of(f)->seq_max < 2 && !slot_of(f)->broken; i++)
        (void)txn_part_poll(&f->part, slot_of(f));
    assert_false(slot_of(f)->broken);
    assert_int_equal(slot_of(f)->seq_max, 2);
}

static void scan__damaged_record_with_a_successor__kept_without_a_tombstone(void **state)
{
    struct fixture *f = *state;
    put_two_alone_and_damage_the_first(f, true);
    for (int restarts = 0; restarts < 3; restarts++) {
        restart(f, 1, TS_CRASH_ALL_LOST);
        assert_true(slot_of(f)->damaged);
        assert_int_equal(slot_of(f)->media.closing_seq, 2);
        assert_int_equal(slot_of(f)->media.position_seq, 0);
        assert_int_equal(state_of(f, 1), TXN_ENTRY_REJECTED);
        assert_false(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
        assert_int_equal(state_of(f, 2), TXN_ENTRY_RELEASED);
    }
}

/* The coordinator had not seen its flush complete: it may never have been whole. */
static void scan__lost_record_not_called_done__is_a_gap(void **state)
{
    struct fixture *f = *state;
    put_two_alone_and_damage_the_first(f, false);
    restart(f, 1, TS_CRASH_ALL_LOST);
    assert_false(slot_of(f)->damaged);
    assert_true(pm_slot_has_tombstone(&f->t->pool, &slot_of(f)->media, 1));
}

/* One damaged copy of a header never takes the slot back: neither the position nor the closing. */
static void store__either_copy_damaged__same_state_is_read(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = &f->t->pool;
    uint64_t header = pool->super.slots_off + SLOT * (uint64_t)pool->super.slot_stride;
    for (uint64_t seq = 1; seq <= 3; seq++) {
        uint64_t at = put_record(f, seq, PM_RECORD_TX, true);
        put_mark(f, at, seq);
        txn_part_poll(&f->part, slot_of(f));
        txn_part_apply(&f->part);
    }
    for (int closed = 0; closed < 2; closed++) {
        for (uint64_t copy = 0; copy < 2; copy++) {
            struct pm_slot slot;
            uint64_t at = header + copy * 128 + 56; /* the position's sequence */
            uint64_t old = pm_load64(&pool->pm, at);
            pm_store64(&pool->pm, at, old ^ 4);
            assert_int_equal(pm_slot_load(pool, SLOT, &slot), 0);
            assert_int_equal(slot.position_seq, 3);
            assert_int_equal(slot.state, closed ? PM_SLOT_CLOSED : PM_SLOT_OPEN);
            pm_store64(&pool->pm, at, old);
        }
        if (!closed) {
            assert_int_equal(txn_part_scan(&f->part, slot_of(f)), 0);
            assert_int_equal(txn_part_seal(&f->part, slot_of(f)), 0);
        }
    }
}

/* Records wrap around the ring behind a pad, as long as the position makes room. */
static void poll__many_laps__all_applied(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = &f->t->pool;
    uint64_t ring = pool->super.geometry.ring_size;
    for (uint64_t seq = 1; seq <= 500; seq++) {
        uint64_t left = ring - f->log_off % ring;
        if (left < PM_RECORD_VOID_SIZE) {
            uint8_t line[64] __attribute__((aligned(64)));
            struct pm_place place = pm_slot_place(pool, &slot_of(f)->media, f->log_off);
            pm_record_make_pad(line, (uint32_t)left, &place);
            pm_copy(&pool->pm, pm_slot_log_at(pool, SLOT, f->log_off), line, sizeof(line));
            f->log_off += left;
        }
        uint64_t at = put_record(f, seq, PM_RECORD_TX, true);
        put_mark(f, at, seq);
        for (int i = 0; i < 3; i++) {
            f->t->now_ns += 20000000;
            txn_part_poll(&f->part, slot_of(f));
            txn_part_apply(&f->part);
        }
        assert_int_equal(slot_of(f)->media.position_seq, seq);
        assert_int_equal(slot_of(f)->media.position_off, f->log_off);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(poll__unmarked_record__stays_found),
        CASE(apply__window_of_records__one_fence_of_each_kind),
        CASE(scan_still__marked_lost_and_void__as_in_a_snapshot),
        CASE(scan_still__marked_record_damaged__is_kept_as_rejected),
        CASE(poll__marked_record__is_applied_and_passed),
        CASE(poll__record_of_this_node_alone__applied_without_a_mark),
        CASE(scan__record_of_this_node_alone__committed_unless_it_has_a_tombstone),
        CASE(poll__mark_of_another_sequence__counts_as_none),
        CASE(apply__second_marked_first__position_waits),
        CASE(abort__found_record__tombstone_then_passed),
        CASE(poll__void_record__counts_as_tombstone),
        CASE(poll__growth_record_of_a_coordinator__breaks_the_slot),
        CASE(seal__tombstones_near_their_end__every_gap_gets_one),
        CASE(seal__lost_record__gap_gets_tombstone),
        CASE(seal__late_writes__change_nothing),
        CASE(scan__tombstone_and_mark__aborted),
        cmocka_unit_test(abort__crash_anywhere__old_or_new_never_undone),
        cmocka_unit_test(apply__crash_anywhere__applied_in_the_end),
        cmocka_unit_test(seal__crash_anywhere__fates_are_kept),
        CASE(scan__marked_record_damaged__kept_without_a_tombstone),
        CASE(poll__damaged_record_with_a_successor__breaks_the_slot),
        CASE(poll__record_slow_to_come__is_not_taken_for_damaged),
        CASE(scan__damaged_record_with_a_successor__kept_without_a_tombstone),
        CASE(scan__lost_record_not_called_done__is_a_gap),
        CASE(store__either_copy_damaged__same_state_is_read),
        CASE(poll__many_laps__all_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
