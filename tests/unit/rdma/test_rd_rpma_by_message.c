/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: flushes and compare-and-swaps by message do what the device's would, and never more than
 * was granted.
 * Method: a node and a peer in one thread, over a device (skipped without). The node's flush of a
 * cache line is replaced by one that takes notes; requests are damaged before they are sent.
 * Invariants: results come in post order; a refused request leaves the connection up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_test.h"

/* ---- flushes by message ---- */

static struct { /* lines written back by the node */
    const uint8_t *line[4096];
    uint32_t count;
    const uint8_t *watch; /* a byte ... */
    uint8_t seen;         /* ... as it was when the first line was written back */
} notes;

static void note_line(const void *line)
{
    assert_int_equal((uintptr_t)line % 64, 0);
    assert_true(notes.count < CN_ARRAY_SIZE(notes.line));
    if (notes.count == 0 && notes.watch != NULL)
        notes.seen = __atomic_load_n(notes.watch, __ATOMIC_ACQUIRE);
    notes.line[notes.count++] = line;
}

static void ignore_line(const void *line)
{
    assert_int_equal((uintptr_t)line % 64, 0);
}

static bool is_noted(const struct n_cluster *n, uint64_t off)
{
    for (uint32_t i = 0; i < notes.count; i++) {
        if (notes.line[i] == n->pool.base + off / 64 * 64)
            return true;
    }
    return false;
}

static void open_noted(struct n_cluster *n, enum rd_durability durability)
{
    memset(&notes, 0, sizeof(notes));
    n_cluster_open_with(n, NULL, durability);
    ((struct nic_fabric *)(void *)n->node.t.fabric)->flush_line = note_line;
}

static void flush__gpspm__lines_of_all_writes_before(void **state)
{
    (void)state;
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_GPSPM);
    uint64_t end = T_RING_OFF + T_RING_SIZE;
    notes.watch = n.pool.base + T_LOG_OFF + 200;
    memset(n.peer.log, 0x77, 512);
    /* Round the end of the ring, as a log goes: two places, one flush. */
    T_CHECK(rd_write(n.c, 1, end - 128, n.peer.log, 128, RD_MORE) == 0);
    T_CHECK(rd_write(n.c, 2, T_LOG_OFF, n.peer.log, 256, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 3, T_LOG_OFF, 256, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 3), 0);
    assert_int_equal(notes.seen, 0x77); /* the write was there before */
    assert_int_equal(notes.count, 2 + 4);
    for (uint64_t off = 0; off < 256; off += 64)
        assert_true(is_noted(&n, T_LOG_OFF + off));
    assert_true(is_noted(&n, end - 128) && is_noted(&n, end - 64));
    /* The next flush is of what comes after. */
    notes.count = 0;
    T_CHECK(rd_write(n.c, 4, T_LOG_OFF + 1001, n.peer.log, 30, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 5, T_LOG_OFF + 1001, 30, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 5), 0);
    assert_int_equal(notes.count, 2); /* it lies across two lines */
    assert_true(is_noted(&n, T_LOG_OFF + 960) && is_noted(&n, T_LOG_OFF + 1024));
    /* More places than are kept apart: all of them all the same. */
    notes.count = 0;
    for (uint64_t i = 0; i < 2 * NIC_RANGES; i++)
        T_CHECK(rd_write(n.c, 6, T_LOG_OFF + 4096 + 640 * i, n.peer.log, 64, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 7, T_LOG_OFF + 4096, 64, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 7), 0);
    for (uint64_t i = 0; i < 2 * NIC_RANGES; i++)
        assert_true(is_noted(&n, T_LOG_OFF + 4096 + 640 * i));
    n_cluster_close(&n);
}

static void flush__apm__no_message(void **state)
{
    (void)state;
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_APM);
    T_CHECK(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 256, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 2, T_LOG_OFF, 256, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 2), 0);
    assert_int_equal(notes.count, 0);
    n_cluster_close(&n);
}

static void flush__several__one_frame(void **state)
{
    (void)state;
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_GPSPM);
    struct nic_conn *c = nic_conn(n.c);
    uint64_t before = c->log_queue.head;
    for (uint64_t i = 0; i < 20; i++)
        T_CHECK(rd_flush(n.c, i, T_LOG_OFF + 64 * i, 64,
                    RD_SIGNALED | (i < 19 ? RD_MORE : 0u)) == 0);
    assert_int_equal(c->log_queue.head, before + 1);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(n_status(&n.peer, i), 0);
    assert_int_equal(notes.count, 20);
    /* Held back and nothing follows: the next poll sends it. */
    T_CHECK(rd_flush(n.c, 30, T_LOG_OFF, 64, RD_SIGNALED | RD_MORE) == 0);
    assert_int_equal(n_status(&n.peer, 30), 0);
    struct rd_counters counters;
    rd_ep_counters(n.peer.t.ep, &counters);
    assert_int_equal(counters.flushes, 21);
    assert_int_equal(counters.flush_messages, 21);
    assert_int_equal(counters.doorbells, 1);
    n_cluster_close(&n);
}

static void flush__range_not_granted__error_and_nothing_touched(void **state)
{
    (void)state;
    static const struct { uint64_t off, size; } bad[] = {
        {T_RING_OFF, 64}, {T_LOG_OFF - 1, 8}, {T_RING_OFF + T_RING_SIZE, 8},
        {T_RING_OFF + T_RING_SIZE - 8, 9}, {T_EXTENT_OFF, 64}, {0, 8}, {T_LOG_OFF, 0},
        {T_LOG_OFF, UINT64_MAX}, {UINT64_MAX, 1}, {UINT64_MAX - 63, 64}};
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_GPSPM);
    struct nic_conn *c = nic_conn(n.c);
    for (uint64_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        uint64_t slot = c->persist.head & (c->persist.size - 1);
        T_CHECK(rd_flush(n.c, i, T_LOG_OFF, 64, RD_SIGNALED | RD_MORE) == 0);
        c->asked[slot] = (struct nic_asked){.off = bad[i].off, .a = bad[i].size};
        assert_int_equal(n_status(&n.peer, i), CAIRN_E_FABRIC);
    }
    assert_int_equal(notes.count, 0);
    T_CHECK(rd_flush(n.c, 99, T_LOG_OFF, 64, RD_SIGNALED) == 0); /* it serves on */
    assert_int_equal(n_status(&n.peer, 99), 0);
    n_cluster_close(&n);
}

static void request__no_buffer_to_answer__held(void **state)
{
    (void)state;
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_GPSPM);
    struct nic_conn *passive = nic_conn(n.passive);
    n_pump_for(20);
    uint32_t tx_free = passive->tx_free;
    passive->tx_free = 0;
    for (uint64_t i = 0; i < 3; i++) {
        T_CHECK(rd_flush(n.c, i, T_LOG_OFF + 64 * i, 64, RD_SIGNALED) == 0);
        n_pump_for(5);
    }
    assert_int_equal(passive->held_count, 3);
    assert_int_equal(notes.count, 0);
    passive->tx_free = tx_free;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(n_status(&n.peer, i), 0);
    assert_int_equal(passive->held_count, 0);
    assert_int_equal(notes.count, 3);
    n_cluster_close(&n);
}

static void flush__many__through_few_buffers(void **state)
{
    (void)state;
    struct n_cluster n;
    open_noted(&n, RD_DURABILITY_GPSPM);
    ((struct nic_fabric *)(void *)n.node.t.fabric)->flush_line = ignore_line;
    uint64_t next = 0, done = 0;
    while (done < 2000) {
        while (next < 2000) {
            uint64_t off = T_LOG_OFF + next % 512 * 64;
            if (rd_write(n.c, 1, off, n.peer.log, 64, RD_MORE) != 0)
                break;
            int err = rd_flush(n.c, next, off, 64, RD_SIGNALED);
            assert_true(err == 0 || err == CAIRN_E_AGAIN);
            if (err != 0)
                break;
            next++;
        }
        assert_int_equal(n_status(&n.peer, done), 0); /* tags in order */
        done++;
    }
    n_cluster_close(&n);
}

/* ---- compare-and-swap by message ---- */

static void open_by_message(struct n_cluster *n)
{
    const struct rd_fabric_config config = {.message_atomics = true};
    n_cluster_open_with(n, &config, RD_DURABILITY_APM);
}

static void cas__by_message__as_the_devices(void **state)
{
    (void)state;
    struct n_cluster n;
    open_by_message(&n);
    struct nic_conn *c = nic_conn(n.c);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    uint64_t before = c->log_queue.head;
    for (uint64_t i = 0; i < 60; i++) /* 20 words, three times each: the third one fails */
        T_CHECK(rd_cas(n.c, i, T_EXTENT_OFF + 8 * (i % 20), i < 20 ? 0 : 1, i / 20 + 1, &old[i],
                    RD_SIGNALED | (i < 59 ? RD_MORE : 0u)) == 0);
    assert_int_equal(c->log_queue.head, before + 1);
    for (uint64_t i = 0; i < 60; i++) {
        assert_int_equal(n_status(&n.peer, i), 0);
        assert_int_equal(old[i], i / 20);
    }
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(t_load(&n.pool, T_EXTENT_OFF + 8 * i), 2);
    T_CHECK(rd_read(n.c, 70, T_EXTENT_OFF, n.peer.memory, 64, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 70), 0); /* reads are the device's all the same */
    assert_memory_equal(n.peer.memory, n.pool.base + T_EXTENT_OFF, 64);
    struct rd_counters counters;
    rd_ep_counters(n.peer.t.ep, &counters);
    assert_int_equal(counters.cas, 60);
    assert_int_equal(counters.cas_messages, 60);
    assert_int_equal(counters.completions, 61);
    assert_int_equal(counters.doorbells, 2);
    n_cluster_close(&n);
}

static void cas__by_message_not_granted__error_and_nothing_touched(void **state)
{
    (void)state;
    static const uint64_t bad[] = {T_EXTENT_OFF - 8, T_EXTENT_OFF + T_EXTENT_SIZE, T_EXTENT_OFF + 4,
        T_EXTENT_OFF + T_EXTENT_SIZE - 4, T_RING_OFF, T_LOG_OFF, 0, UINT64_MAX, UINT64_MAX - 7};
    struct n_cluster n;
    open_by_message(&n);
    struct nic_conn *c = nic_conn(n.c);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    for (uint64_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        uint64_t slot = c->persist.size + (c->cas.head & (c->cas.size - 1));
        old[0] = 42;
        T_CHECK(rd_cas(n.c, i, T_EXTENT_OFF, 0, 1, old, RD_SIGNALED | RD_MORE) == 0);
        c->asked[slot].off = bad[i];
        assert_int_equal(n_status(&n.peer, i), CAIRN_E_FABRIC);
        assert_int_equal(old[0], 42);
    }
    for (uint64_t off = 0; off < T_POOL_SIZE; off += 8)
        assert_int_equal(t_load(&n.pool, off), 0);
    nic_region(n.node.t.extent)->base.access = RD_ACCESS_READ; /* as if it had been granted so */
    T_CHECK(rd_cas(n.c, 50, T_EXTENT_OFF, 0, 1, old, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 50), CAIRN_E_FABRIC);
    T_CHECK(rd_cas(n.c, 51, T_EXTENT_OFF, 0, 1, old, 0) == 0); /* and nobody waits for it */
    assert_int_equal(n_expect(&n.peer, RD_EV_DOWN)->event.status, CAIRN_E_FABRIC);
    assert_int_equal(t_load(&n.pool, T_EXTENT_OFF), 0);
    n_cluster_close(&n);
}

static void cas__by_message_many__all_done(void **state)
{
    (void)state;
    struct n_cluster n;
    open_by_message(&n);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    uint64_t next = 0, done = 0;
    while (done < 3000) {
        while (next < 3000 && rd_cas(n.c, next, T_EXTENT_OFF, next, next + 1, &old[next % 64],
                                  RD_SIGNALED | (next % 3 != 0 ? RD_MORE : 0u)) == 0)
            next++;
        assert_int_equal(n_status(&n.peer, done), 0);
        assert_int_equal(old[done % 64], done);
        done++;
    }
    assert_int_equal(t_load(&n.pool, T_EXTENT_OFF), 3000);
    n_cluster_close(&n);
}

/* The node dies with operations by message on their way: in error, then down. */
static void down__operations_by_message__in_error_first(void **state)
{
    (void)state;
    struct n_cluster n;
    open_by_message(&n);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    for (uint64_t i = 0; i < 5; i++)
        T_CHECK(rd_cas(n.c, i, T_EXTENT_OFF, 0, 0, old, RD_SIGNALED) == 0);
    T_CHECK(rd_fence(n.passive) == 0); /* it has not polled since */
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(n_status(&n.peer, i), CAIRN_E_NODE_DOWN);
    (void)n_expect(&n.peer, RD_EV_DOWN);
    n_cluster_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush__gpspm__lines_of_all_writes_before),
        cmocka_unit_test(flush__apm__no_message),
        cmocka_unit_test(flush__several__one_frame),
        cmocka_unit_test(flush__range_not_granted__error_and_nothing_touched),
        cmocka_unit_test(request__no_buffer_to_answer__held),
        cmocka_unit_test(flush__many__through_few_buffers),
        cmocka_unit_test(cas__by_message__as_the_devices),
        cmocka_unit_test(cas__by_message_not_granted__error_and_nothing_touched),
        cmocka_unit_test(cas__by_message_many__all_done),
        cmocka_unit_test(down__operations_by_message__in_error_first),
    };
    return n_have_device() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
