/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the scan finds exactly the valid records of the live window.
 * Method: rings filled at random (wraps, pads, lost and torn records, an earlier lap and other
 * epochs below, records twice, marks) and scanned; a slow reference tries every place with no
 * skipping rule but the stated one, over a straight copy of the window instead of a ring.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_slot.h"
#include "tests/support/ts_record.h"
#include "tests/support/ts_pool.h"

#define FOUND_MAX 256u

struct found {
    uint64_t seq[FOUND_MAX], log_off[FOUND_MAX];
    enum pm_record_type type[FOUND_MAX];
    unsigned count;
    int stop_with;
};

static int keep(void *arg, const struct pm_record *record)
{
    struct found *f = arg;

    assert_true(f->count < FOUND_MAX);
    f->seq[f->count] = record->seq;
    f->log_off[f->count] = record->log_off;
    f->type[f->count++] = record->type;
    return f->stop_with;
}

static struct pm_slot make_slot(uint64_t position_seq, uint64_t position_off)
{
    return (struct pm_slot){.number = 2, .state = PM_SLOT_OPEN, .epoch = 5, .nonce = 0x1234,
        .position_seq = position_seq, .position_off = position_off};
}

/* A TX record of at least `size` bytes into `buf`; its size. */
static uint32_t make_tx(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq,
    uint64_t log_off, uint32_t size, uint8_t *buf)
{
    struct pm_record_writer w;
    struct pm_place place = pm_slot_place(pool, slot, log_off);
    struct cn_txid txid = {.coordinator = {{1}}, .count = seq};
    struct pm_write_pm write = {.op = PM_OP_UPDATE, .key_size = le16_make(1),
        .value_size = le32_make(size > 192 ? size - 192 : 0)};

    pm_record_begin(&w, buf, 8192);
    pm_record_add_participant(&w, pool->super.node, 1, 0, slot->number, slot->epoch, seq);
    (void)pm_record_add_write(&w, &write, "k", NULL);
    return pm_record_end(&w, PM_RECORD_TX, &txid, seq, 1, &place);
}

static void put(const struct pm_pool *pool, uint8_t *ring, uint64_t log_off, const void *record,
    uint32_t size)
{
    uint64_t at = log_off % pool->super.geometry.ring_size;

    assert_true(at + size <= pool->super.geometry.ring_size);
    memcpy(ring + at, record, size);
}

/* ---- reference ---- */

static void slow_scan(const struct pm_pool *pool, const struct pm_slot *slot, const uint8_t *ring,
    struct found *f)
{
    uint64_t ring_size = pool->super.geometry.ring_size, covered = 0;
    uint8_t *straight = aligned_alloc(64, ring_size);

    for (uint64_t i = 0; i < ring_size; i++)
        straight[i] = ring[(slot->position_off + i) % ring_size];
    for (uint64_t i = 0; i < ring_size; i += 64) {
        uint64_t log_off = slot->position_off + i;
        uint64_t lap_end = (log_off / ring_size + 1) * ring_size;
        struct pm_place place = pm_slot_place(pool, slot, log_off);
        bool known = false;

        if (i < covered)
            continue;
        for (uint64_t size = 64; size <= ring_size - i && log_off + size <= lap_end; size += 64) {
            struct pm_record r;

            if (pm_record_check(straight + i, (uint32_t)size, &place, pool->super.node, &r) != 0)
                continue;
            if (r.type == PM_RECORD_PAD) {
                if (log_off + r.size == lap_end && i + r.size <= ring_size)
                    covered = i + r.size;
                break;
            }
            covered = i + size;
            for (unsigned k = 0; k < f->count; k++)
                known = known || f->seq[k] == r.seq;
            if (!known && r.seq > slot->position_seq &&
                r.seq <= slot->position_seq + pool->super.geometry.window &&
                (slot->state != PM_SLOT_CLOSED || r.seq <= slot->closing_seq))
                (void)keep(f, &r);
            break;
        }
    }
    free(straight);
}

static void compare(const struct pm_pool *pool, const struct pm_slot *slot, const uint8_t *ring,
    struct found *ret)
{
    struct found fast = {0}, slow = {0};

    assert_int_equal(pm_slot_scan(pool, slot, ring, keep, &fast), 0);
    slow_scan(pool, slot, ring, &slow);
    assert_int_equal(fast.count, slow.count);
    for (unsigned i = 0; i < fast.count; i++) {
        assert_int_equal(fast.seq[i], slow.seq[i]);
        assert_int_equal(fast.log_off[i], slow.log_off[i]);
        assert_int_equal(fast.type[i], slow.type[i]);
    }
    *ret = fast;
}

/* ---- cases ---- */

struct fixture {
    struct ts_pool *t;
    uint8_t *ring, *buf;
    uint64_t ring_size;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->t = ts_pool_new(NULL, 0);
    f->ring_size = f->t->pool.super.geometry.ring_size;
    f->ring = aligned_alloc(64, f->ring_size);
    f->buf = aligned_alloc(64, 8192);
    memset(f->ring, 0, f->ring_size);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ts_pool_delete(&f->t);
    free(f->ring);
    free(f->buf);
    free(f);
    return 0;
}

static void pm_slot_scan__lost_record__successors_are_found(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, 0);
    struct found found;
    uint64_t at = 0;

    for (uint64_t seq = 1; seq <= 4; seq++) {
        uint32_t size = make_tx(&f->t->pool, &slot, seq, at, 256, f->buf);

        if (seq != 2)
            put(&f->t->pool, f->ring, at, f->buf, size);
        at += size;
    }
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 3);
    assert_int_equal(found.seq[0], 1);
    assert_int_equal(found.seq[1], 3);
    assert_int_equal(found.seq[2], 4);
}

static void pm_slot_scan__earlier_lap_and_other_epoch__not_found(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(10, f->ring_size), old = slot;
    struct found found;
    uint32_t size = make_tx(&f->t->pool, &slot, 11, 0, 256, f->buf);

    put(&f->t->pool, f->ring, 0, f->buf, size); /* right epoch and sequence, but one lap ago */
    old.epoch = 4;
    size = make_tx(&f->t->pool, &old, 12, f->ring_size + 512, 256, f->buf);
    put(&f->t->pool, f->ring, f->ring_size + 512, f->buf, size);
    old = slot;
    old.nonce = 1;
    size = make_tx(&f->t->pool, &old, 13, f->ring_size + 1024, 256, f->buf);
    put(&f->t->pool, f->ring, f->ring_size + 1024, f->buf, size);
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 0);
    size = make_tx(&f->t->pool, &slot, 11, f->ring_size, 256, f->buf);
    put(&f->t->pool, f->ring, f->ring_size, f->buf, size);
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
}

static void pm_slot_scan__sequence_out_of_window_or_closed__not_reported(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(20, 0);
    uint32_t window = f->t->pool.super.geometry.window;
    uint64_t seqs[] = {20, 21 + window, 20 + window, 21, UINT64_MAX};
    struct found found;

    for (unsigned i = 0; i < CN_ARRAY_SIZE(seqs); i++) {
        uint32_t size = make_tx(&f->t->pool, &slot, seqs[i], i * 512, 256, f->buf);

        put(&f->t->pool, f->ring, i * 512, f->buf, size);
    }
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.seq[0], 20 + window);
    assert_int_equal(found.seq[1], 21);
    slot.state = PM_SLOT_CLOSED;
    slot.closing_seq = 21;
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.seq[0], 21);
}

static void pm_slot_scan__sequence_twice__the_first_only(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, 4096);
    struct found found;

    put(&f->t->pool, f->ring, 4096 + 512, f->buf,
        make_tx(&f->t->pool, &slot, 3, 4096 + 512, 256, f->buf));
    put(&f->t->pool, f->ring, 4096, f->buf, make_tx(&f->t->pool, &slot, 3, 4096, 256, f->buf));
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.log_off[0], 4096);
}

static void pm_slot_scan__valid_record_inside_a_value__is_covered(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, 0);
    uint8_t inner[512] __attribute__((aligned(64)));
    uint64_t inner_off = 256;
    uint32_t size, inner_size = make_tx(&f->t->pool, &slot, 2, inner_off, 256, inner);
    struct pm_place place = pm_slot_place(&f->t->pool, &slot, 0);
    struct found found;

    size = make_tx(&f->t->pool, &slot, 1, 0, 1024, f->buf);
    memcpy(f->buf + inner_off, inner, inner_size);
    ts_record_mend(f->buf, size, &place);
    put(&f->t->pool, f->ring, 0, f->buf, size);
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.seq[0], 1);
    memset(f->ring, 0, 64); /* the outer one is lost: now the inner one counts */
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.seq[0], 2);
}

static void pm_slot_scan__pad__skips_to_the_ring_end_only(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, f->ring_size - 1024);
    uint64_t pad_off = f->ring_size - 512;
    struct pm_place place = pm_slot_place(&f->t->pool, &slot, pad_off);
    struct found found;

    /* A record hides behind the pad's first line: it is skipped. */
    put(&f->t->pool, f->ring, pad_off + 256, f->buf,
        make_tx(&f->t->pool, &slot, 1, pad_off + 256, 256, f->buf));
    pm_record_make_pad(f->buf, 512, &place);
    put(&f->t->pool, f->ring, pad_off, f->buf, 64);
    put(&f->t->pool, f->ring, f->ring_size, f->buf,
        make_tx(&f->t->pool, &slot, 2, f->ring_size, 256, f->buf));
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.seq[0], 2);
    /* A pad that does not end at the ring's end is none. */
    pm_record_make_pad(f->buf, 448, &place);
    put(&f->t->pool, f->ring, pad_off, f->buf, 64);
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 2);
}

static void pm_slot_scan__record_over_the_windows_end__not_found(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, 1024);
    uint64_t off = 1024 + f->ring_size - 128;
    uint32_t size = make_tx(&f->t->pool, &slot, 1, off, 256, f->buf);
    struct found found;

    assert_true(size > 128);
    put(&f->t->pool, f->ring, off, f->buf, size);
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 0);
    slot.position_off = 1024 + 256; /* the same bytes, with the window's end behind them */
    compare(&f->t->pool, &slot, f->ring, &found);
    assert_int_equal(found.count, 1);
}

static void pm_slot_scan__found_fails__ends_and_returns_it(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = make_slot(0, 0);
    struct found found = {.stop_with = CAIRN_E_LIMIT};

    for (unsigned i = 0; i < 3; i++)
        put(&f->t->pool, f->ring, i * 256, f->buf,
            make_tx(&f->t->pool, &slot, i + 1, i * 256, 256, f->buf));
    assert_int_equal(pm_slot_scan(&f->t->pool, &slot, f->ring, keep, &found), CAIRN_E_LIMIT);
    assert_int_equal(found.count, 1);
    slot.position_off = UINT64_MAX - 63;
    assert_int_equal(pm_slot_scan(&f->t->pool, &slot, f->ring, keep, &found), CAIRN_E_CORRUPT_SLOT);
}

/* One random history of a ring, from some laps ago to the window's end. */
static unsigned random_ring(struct fixture *f, uint64_t *seed)
{
    const struct pm_pool *pool = &f->t->pool;
    uint64_t start = ts_random(seed) % 4 * f->ring_size + ts_random(seed) % 128 * 64;
    struct pm_slot slot = make_slot(ts_random(seed) % 50, start);
    struct pm_slot writer = slot;
    uint64_t at = start < f->ring_size ? 0 : start - f->ring_size, seq = 1;
    struct found found;

    for (uint64_t i = 0; i < f->ring_size; i++)
        f->ring[i] = (uint8_t)(ts_random(seed) % 2 == 0 ? 0 : ts_random(seed));
    while (at < start + f->ring_size) {
        uint32_t want = 128 + (uint32_t)(ts_random(seed) % 12) * 64, size;
        uint64_t to_end = f->ring_size - at % f->ring_size, fate = ts_random(seed) % 16;
        struct pm_place place;

        if (at >= start && seq <= slot.position_seq)
            seq = slot.position_seq + 1;
        writer.epoch = fate == 0 ? 4 : 5;
        place = pm_slot_place(pool, &writer, at);
        size = make_tx(pool, &writer, seq, at, want, f->buf);
        if (size > to_end || (fate == 1 && to_end >= 64)) {
            pm_record_make_pad(f->buf, (uint32_t)(fate == 2 ? 64 : to_end), &place);
            if (fate != 3)
                put(pool, f->ring, at, f->buf, 64);
            at += to_end;
            continue;
        }
        if (at + size > start + f->ring_size)
            break;
        if (fate == 4)
            pm_record_make_void(f->buf, &(struct cn_txid){.count = seq}, seq, 1, &place);
        if (fate == 5)
            f->buf[ts_random(seed) % size] ^= 0x10; /* torn, or its mark */
        if (fate != 6)
            put(pool, f->ring, at, f->buf, fate == 7 ? 64 : size);
        at += fate == 4 ? PM_RECORD_VOID_SIZE : size;
        if (fate == 8)
            at += 64; /* not where the last one ends */
        seq += fate == 9 ? 0 : fate == 10 ? 2 : 1;
    }
    if (ts_random(seed) % 4 == 0) {
        slot.state = PM_SLOT_CLOSED;
        slot.closing_seq = slot.position_seq + ts_random(seed) % 6;
    }
    compare(pool, &slot, f->ring, &found);
    return found.count;
}

static void pm_slot_scan__random_rings__equals_the_slow_scanner(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 3;
    unsigned found = 0;

    for (unsigned round = 0; round < 400; round++)
        found += random_ring(f, &seed);
    assert_true(found > 1000);
}

static void pm_slot_snapshot__in_the_pool__at_the_stated_places(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = &f->t->pool;
    struct pm_slot slot = make_slot(7, 448);
    uint64_t off = f->ring_size + 512;

    assert_true(pm_slot_log_at(pool, 2, off) == pm_ring_off(pool, 2) + 4096 + 512);
    pm_store64(&pool->pm, pm_slot_log_at(pool, 2, off), 99);
    assert_false(ts_pool_is_durable(f->t, pm_slot_log_at(pool, 2, off), 8));
    pm_store64(&pool->pm, pm_slot_log_at(pool, 2, f->ring_size - 8), 98);
    pm_slot_flush_log(pool, 2, 2 * f->ring_size - 64, 1024); /* wraps */
    pm_fence(&pool->pm, CN_STEP_a_found);
    assert_true(ts_pool_is_durable(f->t, pm_ring_off(pool, 2), pool->super.ring_stride));
    pm_slot_snapshot(pool, 2, f->ring);
    assert_int_equal(f->ring[512], 99);
    assert_int_equal(f->ring[f->ring_size - 8], 98);
    pm_slot_publish(pool, &slot);
    assert_int_equal(pm_load64(&pool->pm, pm_ring_off(pool, 2) + 64), 7);
    assert_int_equal(pm_load64(&pool->pm, pm_ring_off(pool, 2) + 72), 448);
}

static void pm_mark_is_set__only_its_own_value__counts(void **state)
{
    struct pm_slot slot = make_slot(0, 0), other = slot;

    (void)state;
    other.nonce++;
    assert_true(pm_mark_is_set(&slot, 5, pm_word_value(slot.nonce, 5, PM_WORD_MARK)));
    assert_false(pm_mark_is_set(&slot, 6, pm_word_value(slot.nonce, 5, PM_WORD_MARK)));
    assert_false(pm_mark_is_set(&other, 5, pm_word_value(slot.nonce, 5, PM_WORD_MARK)));
    assert_false(pm_mark_is_set(&slot, 5, pm_word_value(slot.nonce, 5, PM_WORD_APPLIED)));
    assert_false(pm_mark_is_set(&slot, 5, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__lost_record__successors_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__earlier_lap_and_other_epoch__not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__sequence_out_of_window_or_closed__not_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__sequence_twice__the_first_only, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__valid_record_inside_a_value__is_covered, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__pad__skips_to_the_ring_end_only, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__record_over_the_windows_end__not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__found_fails__ends_and_returns_it, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_scan__random_rings__equals_the_slow_scanner, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_snapshot__in_the_pool__at_the_stated_places, setup, teardown),
        cmocka_unit_test(pm_mark_is_set__only_its_own_value__counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
