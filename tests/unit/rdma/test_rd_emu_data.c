/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: one-sided operations do what they say, only where and as they are granted, without system
 * calls.
 * Method: both ends in one thread, over a pool file that the active end maps a second time.
 * Invariants: no live object is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

static void expect_completion(struct t_net *f, uint64_t wr_id, int status)
{
    struct rd_event event = t_expect(f->peer.ep, RD_EV_COMPLETION);
    assert_ptr_equal(event.conn, f->c);
    assert_int_equal(event.wr_id, wr_id);
    assert_int_equal(event.status, status);
}

static void read__every_alignment__same_bytes(void **state)
{
    struct t_net *f = *state;
    for (uint32_t i = 0; i < 256; i++)
        f->pool.base[T_EXTENT_OFF + i] = (uint8_t)(i * 7 + 1);
    for (uint32_t off = 0; off < 9; off++) {
        for (uint32_t size = 1; size < 40; size++) {
            memset(f->arena, 0xee, 64);
            uint8_t *local = f->arena + off % 3;
            assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF + off, local, size, 0), 0);
            assert_memory_equal(local, f->pool.base + T_EXTENT_OFF + off, size);
            assert_int_equal(local[size], 0xee);
        }
    }
}

static void write__every_alignment__same_bytes_and_no_others(void **state)
{
    struct t_net *f = *state;
    for (uint32_t i = 0; i < 64; i++)
        f->log[i] = (uint8_t)(i * 5 + 1);
    for (uint32_t off = 8; off < 17; off++) {
        for (uint32_t size = 1; size < 40; size++) {
            uint8_t *remote = f->pool.base + T_LOG_OFF;
            memset(remote, 0xee, 64);
            assert_int_equal(rd_write(f->c, 1, T_LOG_OFF + off, f->log + off % 3, size, 0), 0);
            assert_memory_equal(remote + off, f->log + off % 3, size);
            assert_int_equal(remote[off - 1], 0xee);
            assert_int_equal(remote[off + size], 0xee);
        }
    }
}

static void cas__match_and_mismatch__old_value_returned(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    t_store(&f->pool, T_EXTENT_OFF + 64, 5);
    assert_int_equal(rd_cas(f->c, 1, T_EXTENT_OFF + 64, 4, 9, old, RD_SIGNALED), 0);
    expect_completion(f, 1, 0);
    assert_int_equal(*old, 5);
    assert_int_equal(t_load(&f->pool, T_EXTENT_OFF + 64), 5);
    assert_int_equal(rd_cas(f->c, 2, T_EXTENT_OFF + 64, 5, 9, old, RD_SIGNALED), 0);
    expect_completion(f, 2, 0);
    assert_int_equal(*old, 5);
    assert_int_equal(t_load(&f->pool, T_EXTENT_OFF + 64), 9);
}

static void write_flush_mark__chain__completions_in_order(void **state)
{
    struct t_net *f = *state;
    memcpy(f->log, "redo record", 12);
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 12, RD_MORE), 0);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 12, RD_SIGNALED), 0);
    assert_int_equal(rd_mark(f->c, 3, T_LOG_OFF + 64, 0x1122, RD_SIGNALED), 0);
    expect_completion(f, 2, 0);
    expect_completion(f, 3, 0);
    assert_memory_equal(f->pool.base + T_LOG_OFF, "redo record", 12);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF + 64), 0x1122);
    struct rd_counters counters;
    rd_ep_counters(f->peer.ep, &counters);
    assert_int_equal(counters.writes, 1);
    assert_int_equal(counters.flushes, 1);
    assert_int_equal(counters.marks, 1);
    assert_int_equal(counters.doorbells, 2);
    assert_int_equal(counters.completions, 2);
    assert_int_equal(counters.bytes_written, 20);
}

static void flush__more_ranges_than_remembered__succeeds(void **state)
{
    struct t_net *f = *state;
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(rd_write(f->c, i, T_LOG_OFF + i * 512, f->log, 64, 0), 0);
    assert_int_equal(rd_flush(f->c, 99, T_LOG_OFF, 64, RD_SIGNALED), 0);
    expect_completion(f, 99, 0);
}

static void post__outside_what_is_granted__fabric_error(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    const uint64_t extent_end = T_EXTENT_OFF + T_EXTENT_SIZE;
    const uint64_t ring_end = T_RING_OFF + T_RING_SIZE;
    const struct { uint64_t off; uint32_t size; } reads[] = {
        {0, 8}, {T_EXTENT_OFF - 1, 8}, {extent_end - 7, 8}, {extent_end, 1}, {ring_end - 4, 8},
        {UINT64_MAX, 8}, {UINT64_MAX - 7, 8}, {T_EXTENT_OFF, 0}, {T_EXTENT_OFF, 0x10001},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(reads); i++)
        assert_int_equal(
            rd_read(f->c, 1, reads[i].off, f->arena, reads[i].size, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_write(f->c, 1, ring_end - 4, f->log, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_flush(f->c, 1, ring_end, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_mark(f->c, 1, ring_end, 1, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_mark(f->c, 1, T_LOG_OFF + 4, 1, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(f->c, 1, T_EXTENT_OFF + 4, 0, 1, old, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(f->c, 1, extent_end, 0, 1, old, RD_SIGNALED), CAIRN_E_FABRIC);
    struct rd_event event;
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), 0); /* still up */
}

static void post__wrong_rights__fabric_error_and_no_effect(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    memset(f->log, 0xff, 64);
    assert_int_equal(rd_write(f->c, 1, T_EXTENT_OFF, f->log, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_mark(f->c, 1, T_EXTENT_OFF, 1, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_flush(f->c, 1, T_EXTENT_OFF, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(f->c, 1, T_LOG_OFF, 0, 1, old, 0), CAIRN_E_FABRIC);
    /* The ring's header page is the node's. */
    assert_int_equal(rd_write(f->c, 1, T_RING_OFF, f->log, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF - 8, f->log, 16, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_mark(f->c, 1, T_RING_OFF + 64, 1, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_read(f->c, 1, T_RING_OFF + 64, f->log, 16, 0), 0);
    assert_int_equal(t_load(&f->pool, T_EXTENT_OFF), 0);
    assert_int_equal(t_load(&f->pool, T_RING_OFF), 0);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF), 0);
}

static void post__outstanding_max__again_until_polled(void **state)
{
    struct t_net *f = *state;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(rd_read(f->c, i, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), 0);
    assert_int_equal(rd_read(f->c, 8, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), CAIRN_E_AGAIN);
    expect_completion(f, 0, 0);
    assert_int_equal(rd_read(f->c, 8, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), 0);
    for (uint64_t i = 1; i <= 8; i++)
        expect_completion(f, i, 0);
}

static void post__ten_thousand_and_polls__no_system_call(void **state)
{
    struct t_net *f = *state;
    struct rd_counters before, after;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    rd_ep_counters(f->peer.ep, &before);
    for (uint64_t i = 0; i < 2000; i++) {
        struct rd_event events[8];
        T_CHECK(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED | RD_MORE) == 0);
        T_CHECK(rd_cas(f->c, 2, T_EXTENT_OFF, i, i + 1, old, RD_SIGNALED | RD_MORE) == 0);
        T_CHECK(rd_write(f->c, 3, T_LOG_OFF + i % 100 * 64, f->log, 64, RD_SIGNALED) == 0);
        T_CHECK(rd_flush(f->c, 4, T_LOG_OFF, 64, RD_SIGNALED) == 0);
        T_CHECK(rd_mark(f->c, 5, T_LOG_OFF, i, RD_SIGNALED) == 0);
        T_CHECK(rd_poll(f->peer.ep, events, 8) == 5);
        T_CHECK(rd_poll(f->peer.ep, events, 8) == 0);
        rd_doorbell(f->c); /* the node is awake */
    }
    rd_ep_counters(f->peer.ep, &after);
    assert_int_equal(after.syscalls, before.syscalls);
    assert_int_equal(after.wakeups, before.wakeups);
    assert_int_equal(after.completions - before.completions, 10000);
    assert_int_equal(t_load(&f->pool, T_EXTENT_OFF), 2000);
}

static void post__fence_word_set__fenced_once_then_down(void **state)
{
    struct t_net *f = *state;
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 8, RD_SIGNALED), 0);
    t_store(&f->pool, T_RING_OFF, 1);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 8, RD_SIGNALED), CAIRN_E_FENCED);
    assert_int_equal(rd_read(f->c, 3, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), CAIRN_E_FENCED);
    t_store(&f->pool, T_RING_OFF, 0); /* down stays down */
    assert_int_equal(rd_mark(f->c, 4, T_LOG_OFF, 1, RD_SIGNALED), CAIRN_E_FENCED);
    assert_int_equal(rd_send(f->c, "x", 1), CAIRN_E_FENCED);
    expect_completion(f, 1, 0); /* before the news of the end */
    struct rd_event event = t_expect(f->peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, f->c);
    assert_int_equal(event.status, CAIRN_E_FENCED);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF), 0);
    rd_conn_delete(f->c);
}

/* As where the durability asks for it. */
static void write_back(struct t_net *f)
{
    struct emu_conn *c = (struct emu_conn *)(void *)f->c;
    c->write_back = true;
}

static uint64_t *word_to_fence;

static void fence_while_flushing(const void *line)
{
    (void)line;
    __atomic_store_n(word_to_fence, 1, __ATOMIC_SEQ_CST);
}

static void flush__fenced_while_it_runs__completes_fenced(void **state)
{
    struct t_net *f = *state;
    word_to_fence = (uint64_t *)(void *)(f->pool.base + T_RING_OFF);
    write_back(f);
    ((struct emu_fabric *)(void *)f->peer.fabric)->flush_line = fence_while_flushing;
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 8, RD_SIGNALED), 0);
    expect_completion(f, 1, 0);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 8, RD_SIGNALED), 0);
    assert_int_equal(rd_mark(f->c, 3, T_LOG_OFF, 1, RD_SIGNALED), CAIRN_E_FENCED);
    expect_completion(f, 2, CAIRN_E_FENCED);
    assert_int_equal(t_expect(f->peer.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);

    rd_conn_delete(f->passive); /* the watcher finds the end too: it is told once */
    struct rd_event event;
    assert_false(t_next(f->peer.ep, &event, 50));
    rd_conn_delete(f->c);
}

static uint64_t lines_flushed;

static void count_line(const void *line)
{
    T_CHECK((uintptr_t)line % 64 == 0);
    lines_flushed++;
}

static void flush__written_lines__each_written_back(void **state)
{
    struct t_net *f = *state;
    write_back(f);
    ((struct emu_fabric *)(void *)f->peer.fabric)->flush_line = count_line;
    const struct { uint64_t off; uint32_t size; uint64_t lines; } writes[] = {
        {0, 64, 1}, {63, 1, 1}, {63, 2, 2}, {8, 64, 2}, {0, 4096, 64},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(writes); i++) {
        lines_flushed = 0;
        uint64_t off = T_LOG_OFF + writes[i].off;
        assert_int_equal(rd_write(f->c, 1, off, f->log, writes[i].size, 0), 0);
        assert_int_equal(rd_flush(f->c, 2, off, writes[i].size, 0), 0);
        assert_int_equal(lines_flushed, writes[i].lines);
        assert_int_equal(rd_flush(f->c, 2, off, writes[i].size, 0), 0);
        assert_int_equal(lines_flushed, writes[i].lines); /* once */
    }
    lines_flushed = 0;
    for (uint64_t i = 0; i < 40; i++) /* more ranges than are remembered: one that covers all */
        assert_int_equal(rd_write(f->c, i, T_LOG_OFF + i * 512, f->log, 64, 0), 0);
    assert_int_equal(rd_mark(f->c, 1, T_LOG_OFF + 40 * 512, 1, 0), 0);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 64, 0), 0);
    assert_true(lines_flushed >= 41);
    assert_true(lines_flushed <= 40 * 8 + 1);
}

static void flush__by_durability__written_back_where_it_needs_that(void **state)
{
    struct t_net *f = *state;
    const struct rd_fabric_config always = {.write_back = true};
    rd_conn_delete(f->c); /* the ring has one peer */
    (void)t_expect(f->node.ep, RD_EV_DOWN);
    rd_conn_delete(f->passive);
    for (int forced = 0; forced < 2; forced++) {
        struct t_side peer;
        t_open_with(&peer, 2, 8, forced ? &always : NULL, cn_env_system());
        ((struct emu_fabric *)(void *)peer.fabric)->flush_line = count_line;
        for (enum rd_durability d = RD_DURABILITY_EMULATED; d <= RD_DURABILITY_EADR; d++) {
            struct t_side node;
            struct rd_conn *passive;
            char address[RD_ADDRESS_SIZE_MAX];
            t_open(&node, 4, 8);
            t_regions_durable(&node, &f->pool, d);
            T_CHECK(rd_listen(node.ep, t_address(address)) == 0);
            struct rd_conn *c = t_pair(&node, &peer, address, &passive);
            lines_flushed = 0;
            assert_int_equal(rd_write(c, 1, T_LOG_OFF, t_log_memory(peer.ep), 65, 0), 0);
            assert_int_equal(rd_flush(c, 2, T_LOG_OFF, 65, RD_SIGNALED), 0);
            assert_int_equal(t_expect(peer.ep, RD_EV_COMPLETION).status, 0);
            bool needed = d == RD_DURABILITY_APM || d == RD_DURABILITY_GPSPM;
            assert_int_equal(lines_flushed, needed || forced ? 2 : 0);
            rd_conn_delete(c);
            (void)t_expect(node.ep, RD_EV_DOWN);
            rd_conn_delete(passive);
            t_close(&node);
        }
        t_close(&peer);
    }
    f->c = t_pair(&f->node, &f->peer, f->address, &f->passive);
}

/* What is allowed is remembered per kind of access: that must not leak from one region, kind or
 * connection to another. */
static void post__regions_and_kinds_in_turn__each_checked_by_itself(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rd_read(f->c, 1, T_RING_OFF, f->log, 64, 0), 0); /* its header too */
        assert_int_equal(rd_read(f->c, 1, T_RING_OFF, f->arena, 64, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_cas(f->c, 1, T_RING_OFF, 0, 1, old, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_write(f->c, 1, T_RING_OFF, f->log, 64, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 64, 0), 0);
        assert_int_equal(rd_mark(f->c, 1, T_RING_OFF + 8, 1, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, 0), 0);
        assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->log, 64, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_cas(f->c, 1, T_EXTENT_OFF, 7, 8, old, 0), 0);
        assert_int_equal(rd_write(f->c, 1, T_EXTENT_OFF, f->log, 64, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_flush(f->c, 1, T_EXTENT_OFF, 64, 0), CAIRN_E_FABRIC);
        assert_int_equal(rd_flush(f->c, 1, T_LOG_OFF, 0, 0), CAIRN_E_FABRIC);
    }
    struct emu_conn *c = (struct emu_conn *)(void *)f->c;
    rd_conn_delete(f->c);
    for (int kind = 0; kind < EMU_ACCESS_COUNT; kind++)
        assert_int_equal(c->window[kind].size, 0);
    (void)t_expect(f->node.ep, RD_EV_DOWN);
    rd_conn_delete(f->passive);
    f->c = t_pair(&f->node, &f->peer, f->address, &f->passive);
}

static void each_operation__fence_word_set__refused(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    for (int op = 0; op < 5; op++) {
        int err = 0;
        t_store(&f->pool, T_RING_OFF, 1);
        t_store(&f->pool, T_EXTENT_OFF, 3);
        switch (op) {
        case 0: err = rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 8, 0); break;
        case 1: err = rd_cas(f->c, 1, T_EXTENT_OFF, 3, 4, old, 0); break;
        case 2: err = rd_write(f->c, 1, T_LOG_OFF, f->log, 8, 0); break;
        case 3: err = rd_flush(f->c, 1, T_LOG_OFF, 8, 0); break;
        case 4: err = rd_mark(f->c, 1, T_LOG_OFF, 4, 0); break;
        }
        assert_int_equal(err, CAIRN_E_FENCED);
        assert_int_equal(t_load(&f->pool, T_EXTENT_OFF), 3);
        assert_int_equal(t_load(&f->pool, T_LOG_OFF), 0);
        assert_int_equal(t_expect(f->peer.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
        rd_conn_delete(f->c);
        assert_int_equal(t_expect(f->node.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
        rd_conn_delete(f->passive);
        t_store(&f->pool, T_RING_OFF, 0);
        f->c = t_pair(&f->node, &f->peer, f->address, &f->passive);
    }
}

static void loopback__read_and_cas__nothing_else(void **state)
{
    struct t_net *f = *state;
    struct rd_conn *loop = NULL;
    struct rd_region *regions[] = {f->node.ring, f->node.extent};
    uint8_t *arena = rd_ep_memory(f->node.ep);
    uint64_t *old = (uint64_t *)(void *)arena;
    assert_int_equal(rd_loopback(f->node.ep, regions, 2, &loop), 0);
    t_store(&f->pool, T_EXTENT_OFF, 3);
    assert_int_equal(rd_cas(loop, 7, T_EXTENT_OFF, 3, 4, old, RD_SIGNALED), 0);
    assert_int_equal(*old, 3);
    assert_int_equal(rd_read(loop, 8, T_EXTENT_OFF, arena, 8, RD_SIGNALED), 0);
    assert_int_equal(*old, 4);
    assert_int_equal(t_expect(f->node.ep, RD_EV_COMPLETION).wr_id, 7);
    assert_int_equal(t_expect(f->node.ep, RD_EV_COMPLETION).wr_id, 8);
    assert_int_equal(rd_write(loop, 1, T_LOG_OFF, arena, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_mark(loop, 1, T_LOG_OFF, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_send(loop, "x", 1), CAIRN_E_FABRIC);
    rd_doorbell(loop);
    rd_conn_delete(loop);
}

static void conn_delete__completions_pending__not_delivered(void **state)
{
    struct t_net *f = *state;
    struct rd_conn *loop = NULL;
    struct rd_event event;
    assert_int_equal(rd_loopback(f->node.ep, &f->node.extent, 1, &loop), 0);
    uint8_t *arena = rd_ep_memory(f->node.ep);
    assert_int_equal(rd_read(loop, 8, T_EXTENT_OFF, arena, 8, RD_SIGNALED), 0);
    rd_conn_delete(loop);
    assert_int_equal(rd_poll(f->node.ep, &event, 1), 0);
}

/* ---- as strict as every fabric ---- */

static void conn__up__durability_of_the_ring(void **state)
{
    struct t_net *f = *state;
    struct t_side node;
    struct rd_conn *c, *passive;
    char address[RD_ADDRESS_SIZE_MAX];
    assert_int_equal(f->c->durability, RD_DURABILITY_EMULATED);
    assert_true(f->c->cas_orders_reads);
    assert_false(f->passive->cas_orders_reads);
    for (enum rd_durability d = RD_DURABILITY_EMULATED; d <= RD_DURABILITY_EADR; d++) {
        t_open(&node, 4, 8);
        t_regions_durable(&node, &f->pool, d);
        T_CHECK(rd_listen(node.ep, t_address(address)) == 0);
        rd_conn_delete(f->c); /* the ring has one peer */
        (void)t_expect(f->node.ep, RD_EV_DOWN);
        rd_conn_delete(f->passive);
        c = t_pair(&node, &f->peer, address, &passive);
        assert_int_equal(c->durability, d);
        rd_conn_delete(c);
        assert_null(t_expect(node.ep, RD_EV_DOWN).text);
        rd_conn_delete(passive);
        t_close(&node);
        f->c = t_pair(&f->node, &f->peer, f->address, &f->passive);
    }
}

static void mark__flush_outstanding_where_cpu_persists__refused(void **state)
{
    struct t_net *f = *state;
    ((struct emu_conn *)(void *)f->c)->base.durability = RD_DURABILITY_GPSPM;
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 8, 0), 0);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 8, RD_SIGNALED), 0);
    assert_int_equal(rd_flush(f->c, 3, T_LOG_OFF, 8, RD_SIGNALED), 0);
    for (uint64_t i = 2; i <= 3; i++) {
        assert_int_equal(rd_mark(f->c, 4, T_LOG_OFF + 8, 7, RD_SIGNALED), CAIRN_E_STATE);
        assert_int_equal(t_load(&f->pool, T_LOG_OFF + 8), 0);
        expect_completion(f, i, 0);
    }
    assert_int_equal(rd_mark(f->c, 4, T_LOG_OFF + 8, 7, RD_SIGNALED), 0);
    expect_completion(f, 4, 0);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF + 8), 7);
    /* A deleted connection leaves nothing behind. */
    assert_int_equal(rd_flush(f->c, 5, T_LOG_OFF, 8, RD_SIGNALED), 0);
    rd_conn_delete(f->c);
    (void)t_expect(f->node.ep, RD_EV_DOWN);
    rd_conn_delete(f->passive);
    f->c = t_pair(&f->node, &f->peer, f->address, &f->passive);
    f->c->durability = RD_DURABILITY_GPSPM;
    assert_int_equal(rd_mark(f->c, 6, T_LOG_OFF + 8, 9, 0), 0);
}

enum wrong_part { READ_OBJECT, CAS_OBJECT, READ_RING, WRITE_RING, WRITE_ACROSS, OUTSIDE };

static int post_wrong(struct t_net *f, enum wrong_part how)
{
    uint64_t *old = (uint64_t *)(void *)f->log;
    switch (how) {
    case READ_OBJECT: return rd_read(f->c, 1, T_EXTENT_OFF, f->log, 8, RD_SIGNALED);
    case CAS_OBJECT: return rd_cas(f->c, 1, T_EXTENT_OFF, 0, 1, old, RD_SIGNALED);
    case READ_RING: return rd_read(f->c, 1, T_RING_OFF + 64, f->arena, 8, RD_SIGNALED);
    case WRITE_RING: return rd_write(f->c, 1, T_LOG_OFF, f->arena, 8, RD_SIGNALED);
    case WRITE_ACROSS: return rd_write(f->c, 1, T_LOG_OFF, f->log - 8, 16, RD_SIGNALED);
    case OUTSIDE: return rd_read(f->c, 1, T_EXTENT_OFF, f->arena - 8, 8, RD_SIGNALED);
    }
    return 0;
}

static void post__memory_of_the_other_part__fabric_error_and_no_effect(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    memset(f->arena, 0xff, 64);
    memset(f->log - 64, 0xff, 128);
    t_store(&f->pool, T_EXTENT_OFF, 0);
    for (enum wrong_part how = READ_OBJECT; how <= WRITE_ACROSS; how++) {
        assert_int_equal(post_wrong(f, how), CAIRN_E_FABRIC);
        assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
        assert_int_equal(f->arena[0], 0xff);
        assert_int_equal(f->log[0], 0xff);
        assert_int_equal(t_load(&f->pool, T_EXTENT_OFF), 0);
        assert_int_equal(t_load(&f->pool, T_LOG_OFF), 0);
    }
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 8, RD_SIGNALED), 0); /* still up */
    expect_completion(f, 1, 0);
}

/* A node that lies about which of its memory is a ring. */
static void post__peer_swaps_ring_and_extent__fabric_error_and_no_effect(void **state)
{
    struct t_net *f = *state;
    struct t_side node;
    const struct rd_memory ring = t_memory(&f->pool, T_EXTENT_OFF, T_EXTENT_SIZE, f->pool.fd);
    const struct rd_memory extent = t_memory(&f->pool, T_RING_OFF, T_RING_SIZE, f->pool.fd);
    const unsigned all = RD_ACCESS_READ | RD_ACCESS_WRITE | RD_ACCESS_ATOMIC;
    const uint64_t at = T_EXTENT_OFF + RD_RING_HEADER_SIZE;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    char address[RD_ADDRESS_SIZE_MAX];
    rd_conn_delete(f->c);
    t_open(&node, 4, 8);
    T_CHECK(rd_region_new(node.ep, &extent, all, &node.extent) == 0);
    T_CHECK(rd_region_new(node.ep, &ring, all, &node.ring) == 0);
    T_CHECK(rd_listen(node.ep, t_address(address)) == 0);
    f->c = t_pair(&node, &f->peer, address, NULL);
    memset(f->log, 0xff, 64);
    assert_int_equal(rd_read(f->c, 1, at, f->arena, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "a ring"));
    assert_int_equal(rd_cas(f->c, 1, at, 0, 1, old, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_int_equal(rd_read(f->c, 1, T_RING_OFF + 64, f->log, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "an extent"));
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    struct rd_event event;
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
    assert_int_equal(t_load(&f->pool, at), 0);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF), 0);
    t_close(&node);
}

static void post__memory_outside_the_arena__asserts(void **state)
{
    struct t_net *f = *state;
    struct t_side node;
    struct t_pool no_file = {.fd = -1, .base = f->pool.base};
    char address[RD_ADDRESS_SIZE_MAX];
    int status = 0;
    rd_conn_delete(f->c); /* memory without a file is inherited by a child */
    t_open(&node, 4, 8);
    t_regions(&node, &no_file);
    T_CHECK(rd_listen(node.ep, t_address(address)) == 0);
    f->c = t_pair(&node, &f->peer, address, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        (void)signal(SIGABRT, SIG_DFL);
        _exit(post_wrong(f, OUTSIDE) == 0 ? 1 : 2);
    }
    T_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    t_close(&node);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, t_net_setup, t_net_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(read__every_alignment__same_bytes),
        CASE(write__every_alignment__same_bytes_and_no_others),
        CASE(cas__match_and_mismatch__old_value_returned),
        CASE(write_flush_mark__chain__completions_in_order),
        CASE(flush__more_ranges_than_remembered__succeeds),
        CASE(post__outside_what_is_granted__fabric_error),
        CASE(post__wrong_rights__fabric_error_and_no_effect),
        CASE(post__outstanding_max__again_until_polled),
        CASE(post__ten_thousand_and_polls__no_system_call),
        CASE(post__fence_word_set__fenced_once_then_down),
        CASE(flush__fenced_while_it_runs__completes_fenced),
        CASE(flush__written_lines__each_written_back),
        CASE(flush__by_durability__written_back_where_it_needs_that),
        CASE(post__regions_and_kinds_in_turn__each_checked_by_itself),
        CASE(each_operation__fence_word_set__refused),
        CASE(loopback__read_and_cas__nothing_else),
        CASE(conn_delete__completions_pending__not_delivered),
        CASE(conn__up__durability_of_the_ring),
        CASE(mark__flush_outstanding_where_cpu_persists__refused),
        CASE(post__memory_of_the_other_part__fabric_error_and_no_effect),
        CASE(post__peer_swaps_ring_and_extent__fabric_error_and_no_effect),
        CASE(post__memory_outside_the_arena__asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
