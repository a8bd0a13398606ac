/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: operations do what rd.h says and nothing else; queues neither overrun nor get stuck; what
 * RD_MORE holds back goes as one list.
 * Method: queue accounting on structs alone, and posts to a queue pair whose provider is here in
 * the test, need no device. The rest runs over one (skipped without): a node and a peer in one
 * thread, the provider's post_send counted on its way.
 * Invariants: counters are exact; what is refused posts nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_fake.h"
#include "tests/support/rd_nic_test.h"

/* ---- a connection without a device ---- */

static int fake_read(struct fake *f, uint64_t remote, uint32_t size, unsigned flags)
{
    return rd_rpma_read(&f->c.base, 5, remote, f->memory, size, flags);
}

/* ---- queues ---- */

static void queue_take__until_full__slots_in_order(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct nic_queue *queue = &f->c.qp[0].queue;
    for (uint64_t round = 0; round < 20; round++) { /* goes round, begins anywhere */
        uint64_t n = round % F_SIZE + 1, head = queue->head;
        for (uint64_t i = 0; i < n; i++) {
            assert_false(rd_rpma_queue_full(queue));
            queue->unsignaled = 0; /* none is to ask */
            assert_false(
                rd_rpma_queue_take(&f->c, queue, &(struct nic_op){.wr_id = head + i}, false));
            assert_int_equal(queue->op[(head + i) & (F_SIZE - 1)].wr_id, head + i);
        }
        assert_int_equal(rd_rpma_queue_full(queue), n == F_SIZE);
        /* A later one frees all before it. */
        assert_int_equal(rd_rpma_queue_free(&f->c, queue, head + n - 1), n);
        assert_int_equal(queue->tail, queue->head);
    }
    free(f);
}

static void queue_take__unsignaled__every_half_queue_asks(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct nic_queue *queue = &f->c.qp[0].queue;
    const struct nic_op op = {.kind = NIC_OP_READ}, wanted = {.wanted = true};
    for (uint32_t i = 0; i < 40; i++) {
        bool asks = rd_rpma_queue_take(&f->c, queue, &op, false);
        assert_int_equal(asks, i % (F_SIZE / 2) == F_SIZE / 2 - 1);
        assert_int_equal(queue->due, asks ? queue->head : queue->head - queue->unsignaled);
        if (asks)
            rd_rpma_queue_free(&f->c, queue, queue->head - 1);
    }
    assert_int_equal(f->c.outstanding, 0);
    assert_false(rd_rpma_queue_take(&f->c, queue, &op, false));
    assert_true(rd_rpma_queue_take(&f->c, queue, &op, true));
    assert_true(rd_rpma_queue_take(&f->c, queue, &wanted, false));
    assert_int_equal(f->c.outstanding, 1);
    assert_int_equal(queue->unsignaled, 0);
    free(f);
}

static void queue_free__part_of_it__send_buffers_come_back(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct nic_queue *queue = &f->c.log_queue;
    f->c.tx_free = 0xc0;
    f->c.tx_out = 2;
    const struct nic_op ops[] = {{.kind = NIC_OP_SEND, .buffer = 3}, {.kind = NIC_OP_WRITE},
        {.kind = NIC_OP_SEND, .buffer = 1}};
    for (size_t i = 0; i < CN_ARRAY_SIZE(ops); i++)
        (void)rd_rpma_queue_take(&f->c, queue, &ops[i], i != 1);
    rd_rpma_queue_free(&f->c, queue, 0);
    assert_int_equal(f->c.tx_free, 0xc8);
    assert_int_equal(f->c.tx_out, 1);
    assert_int_equal(rd_rpma_queue_free(&f->c, queue, 2), 2);
    assert_int_equal(f->c.tx_free, 0xca);
    assert_int_equal(f->c.tx_out, 0);
    free(f);
}

/* A completion that overtakes another one frees nothing that the other is still to name. */
static void queue_free__out_of_order__waits_for_the_earlier(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct nic_queue *queue = &f->c.log_queue;
    uint64_t at = 99;
    for (int i = 0; i < 6; i++) /* 1, 3 and 5 ask */
        (void)rd_rpma_queue_take(&f->c, queue, &(struct nic_op){.wr_id = 1}, i % 2 != 0);
    assert_int_equal(rd_rpma_queue_free(&f->c, queue, 3), 1);
    assert_int_equal(queue->tail, 1);
    assert_int_equal(rd_rpma_queue_free(&f->c, queue, 5), 0);
    assert_true(queue->due > queue->tail);
    assert_true(rd_rpma_queue_find(queue, 1, &at));
    assert_int_equal(at, 1);
    assert_int_equal(rd_rpma_queue_free(&f->c, queue, 1), 5);
    assert_int_equal(queue->tail, 6);
    assert_false(rd_rpma_queue_find(queue, 1, &at));
    assert_false(rd_rpma_queue_find(queue, F_SIZE, &at));
    free(f);
}

static void forget_posted__everything__as_new_but_the_stale(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    for (int i = 0; i < 3; i++)
        assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED | RD_MORE), 0);
    assert_int_equal(f->ep.cq_used, 3);
    assert_int_equal(f->c.qp[0].chain.count, 3);
    rd_rpma_forget_posted(&f->c);
    assert_int_equal(f->ep.cq_used, 3);
    assert_int_equal(f->ep.cq_stale, 3);
    assert_int_equal(f->c.qp[0].chain.count, 0);
    assert_int_equal(f->c.qp[0].queue.head, 0);
    assert_int_equal(f->c.outstanding, 0);
    assert_int_equal(f->c.tx_free, (1u << NIC_TX) - 1);
    assert_int_equal(provider.calls, 0);
    free(f);
}

/* ---- posts without a device ---- */

static void post__one_without_more__one_request(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    assert_int_equal(fake_read(f, 0x1ff0, 16, RD_SIGNALED), 0);
    assert_int_equal(provider.calls, 1);
    assert_int_equal(provider.last, 1);
    assert_int_equal(provider.first.opcode, IBV_WR_RDMA_READ);
    assert_int_equal(provider.first.wr.rdma.remote_addr, 0x7ff0);
    assert_int_equal(provider.first.wr.rdma.rkey, 70);
    assert_int_equal(provider.first.send_flags, IBV_SEND_SIGNALED);
    assert_int_equal(provider.first_sge.length, 16);
    assert_int_equal(provider.first_sge.lkey, 71);
    assert_int_equal(provider.first_sge.addr, (uintptr_t)f->memory);
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 11, 22, &f->memory[7], 0), 0);
    assert_int_equal(provider.first.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
    assert_int_equal(provider.first.wr.atomic.remote_addr, 0x7008);
    assert_int_equal(provider.first.wr.atomic.rkey, 70);
    assert_int_equal(provider.first.wr.atomic.compare_add, 11);
    assert_int_equal(provider.first.wr.atomic.swap, 22);
    assert_int_equal(provider.first.send_flags, 0);
    assert_int_equal(provider.first_sge.addr, (uintptr_t)&f->memory[7]);
    assert_int_equal(f->ep.counters.reads, 1);
    assert_int_equal(f->ep.counters.cas, 1);
    assert_int_equal(f->ep.counters.bytes_read, 16);
    assert_int_equal(f->ep.counters.doorbells, 2);
    free(f);
}

static void post__more__one_list_one_doorbell(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    for (int i = 0; i < 5; i++)
        assert_int_equal(fake_read(f, 0x1000 + 64u * (uint32_t)i, 8, RD_MORE), 0);
    assert_int_equal(provider.calls, 0);
    assert_int_equal(f->ep.counters.doorbells, 0);
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_SIGNALED), 0);
    assert_int_equal(provider.calls, 1);
    assert_int_equal(provider.last, 6);
    assert_int_equal(provider.signaled, 2); /* the 4th, being half a queue, and the wanted one */
    assert_int_equal(f->ep.counters.doorbells, 1);
    assert_int_equal(f->ep.busy[0], 1); /* a poll would have seen to it */
    free(f);
}

static void post__refused_behind_more__chain_waits_for_ring(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    assert_int_equal(fake_read(f, 0x1000, 8, RD_MORE), 0);
    assert_int_equal(fake_read(f, 0x9000, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(provider.calls, 0);
    assert_int_equal(f->ep.busy[0], 1);
    rd_rpma_ring(&f->c);
    assert_int_equal(provider.last, 1);
    rd_rpma_ring(&f->c);
    assert_int_equal(provider.calls, 1);
    free(f);
}

static void post__full__again_and_nothing_taken(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    for (uint32_t i = 0; i < F_SIZE; i++)
        assert_int_equal(fake_read(f, 0x1000, 8, 0), 0);
    const struct rd_counters before = f->ep.counters;
    assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED), CAIRN_E_AGAIN);
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, 0), CAIRN_E_AGAIN);
    assert_int_equal(rd_rpma_post_beat(&f->c), CAIRN_E_AGAIN);
    assert_memory_equal(&before, &f->ep.counters, sizeof(before));
    assert_int_equal(f->c.outstanding, 0);
    rd_rpma_queue_free(&f->c, &f->c.qp[0].queue, 3);
    f->ep.cq_used = f->ep.cq_size; /* the common completion queue has no room either */
    assert_int_equal(fake_read(f, 0x1000, 8, 0), CAIRN_E_AGAIN);
    f->ep.cq_used--;
    assert_int_equal(fake_read(f, 0x1000, 8, 0), 0);
    assert_int_equal(f->ep.cq_used, f->ep.cq_size);
    free(f);
}

/* The read behind it tells of both: refused then, nobody would know of the lock. */
static void cas__unsignaled_and_no_room_for_a_read__again_and_nothing_taken(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    for (uint32_t i = 0; i < F_SIZE - 1; i++)
        assert_int_equal(fake_read(f, 0x1000, 8, 0), 0);
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_MORE), CAIRN_E_AGAIN);
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_SIGNALED), 0);
    rd_rpma_queue_free(&f->c, &f->c.qp[0].queue, 3);
    f->ep.cq_used = f->ep.cq_size - 1;
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_MORE), CAIRN_E_AGAIN);
    f->ep.cq_used--;
    f->ep.outstanding_max = f->c.outstanding;
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_MORE), CAIRN_E_AGAIN);
    f->ep.outstanding_max++;
    assert_int_equal(rd_rpma_cas(&f->c.base, 6, 0x1008, 0, 1, f->memory, RD_MORE), 0);
    assert_int_equal(fake_read(f, 0x1008, 8, RD_SIGNALED), 0);
    free(f);
}

static void post__outstanding_max__again(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    f->ep.outstanding_max = 2;
    assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED), 0);
    assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED), 0);
    assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED), CAIRN_E_AGAIN);
    assert_int_equal(fake_read(f, 0x1000, 8, 0), 0); /* that one yields no event */
    f->c.outstanding--;
    assert_int_equal(fake_read(f, 0x1000, 8, RD_SIGNALED), 0);
    free(f);
}

static void post__out_of_range__table(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    static const struct { uint64_t off; uint32_t size; int err; } reads[] = {
        {0x1000, 1, 0}, {0x1fff, 1, 0}, {0x1000, 0x200, 0}, {0x4000, 0x100, 0},
        {0x40ff, 1, 0}, {0xfff, 1, CAIRN_E_FABRIC}, {0xfff, 2, CAIRN_E_FABRIC},
        {0x2000, 1, CAIRN_E_FABRIC}, {0x1ff9, 8, CAIRN_E_FABRIC}, {0, 8, CAIRN_E_FABRIC},
        {0x1000, 0, CAIRN_E_FABRIC}, {0x3ff8, 16, CAIRN_E_FABRIC}, {0x4100, 8, CAIRN_E_FABRIC},
        {UINT64_MAX, 1, CAIRN_E_FABRIC}, {UINT64_MAX - 3, 8, CAIRN_E_FABRIC},
    };
    uint32_t posted = 0;
    for (size_t i = 0; i < CN_ARRAY_SIZE(reads); i++) {
        int err = fake_read(f, reads[i].off, reads[i].size, 0);
        assert_int_equal(err, reads[i].err);
        posted += err == 0;
        assert_int_equal(provider.requests, posted);
    }
    static const uint64_t bad_cas[] = {0x4000, 0x1001, 0x1004, 0x1ffc, 0x2000, 0, UINT64_MAX - 7};
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad_cas); i++)
        assert_int_equal(
            rd_rpma_cas(&f->c.base, 6, bad_cas[i], 0, 1, f->memory, 0), CAIRN_E_FABRIC);
    assert_int_equal(f->ep.counters.cas, 0);
    /* A loopback has no ring. */
    f->ep.log_memory_size = 64;
    uint8_t *log = (uint8_t *)f->memory + sizeof(f->memory) - 64;
    assert_int_equal(rd_rpma_write(&f->c.base, 1, 0x5000, log, 64, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_rpma_flush(&f->c.base, 1, 0x5000, 64, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_rpma_mark(&f->c.base, 1, 0x5000, 64, 0), CAIRN_E_FABRIC);
    free(f);
}

/* A node that lies about which of its memory is a ring. */
static void read__peer_calls_an_extent_a_ring__fabric_error(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    uint8_t *log = (uint8_t *)f->memory + sizeof(f->memory) - 64;
    f->ep.log_memory_size = 64;
    f->c.ring_mr = (struct rpma_mr_remote *)(void *)f; /* only asked for whether it is there */
    f->c.ring_off = 0x8000;
    f->c.ring_size = 2 * RD_RING_HEADER_SIZE;
    assert_int_equal(
        rd_rpma_read(&f->c.base, 1, 0x8040, f->memory, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "a ring"));
    assert_int_equal(rd_rpma_read(&f->c.base, 1, 0x1000, log, 8, RD_SIGNALED), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "an extent"));
    assert_int_equal(provider.requests, 0);
    assert_int_equal(f->c.outstanding, 0);
    assert_int_equal(rd_rpma_read(&f->c.base, 1, 0x1000, f->memory, 8, RD_SIGNALED), 0);
    free(f);
}

static void post__larger_than_port_allows__told(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    f->device.message_max = 64;
    assert_int_equal(fake_read(f, 0x1000, 64, 0), 0);
    assert_int_equal(fake_read(f, 0x1000, 65, 0), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "max_msg_sz"));
    free(f);
}

static void check_alive__by_state__errors(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    for (int s = NIC_FREE; s <= NIC_DELETED; s++) {
        int err = s == NIC_UP || s == NIC_LOOPBACK ? 0
                  : s == NIC_DOWN || s == NIC_REFUSING || s == NIC_DELETED ? CAIRN_E_NODE_DOWN
                                                                            : CAIRN_E_STATE;
        f->c.state = (enum nic_state)s;
        f->c.fenced = false;
        assert_int_equal(rd_rpma_check_alive(&f->c), err);
        f->c.fenced = s != NIC_LOOPBACK;
        assert_int_equal(rd_rpma_check_alive(&f->c), s != NIC_LOOPBACK ? CAIRN_E_FENCED : 0);
    }
    free(f);
}

static void post_beat_and_test__own_requests__not_the_users(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    assert_int_equal(rd_rpma_post_beat(&f->c), 0);
    assert_int_equal(provider.first.opcode, IBV_WR_RDMA_READ);
    assert_int_equal(provider.first.wr.rdma.remote_addr, 0x9008);
    assert_int_equal(provider.first.wr.rdma.rkey, 73);
    assert_int_equal(provider.first.send_flags, IBV_SEND_SIGNALED);
    assert_int_equal(provider.first_sge.addr, (uintptr_t)&f->beat.seen);
    assert_int_equal(provider.first_sge.lkey, 72);
    assert_int_equal(rd_rpma_post_test(&f->c, 1, 2), 0);
    assert_int_equal(provider.first.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
    assert_int_equal(provider.first.wr.atomic.remote_addr, 0x9000);
    assert_int_equal(provider.first.wr.atomic.compare_add, 1);
    assert_int_equal(provider.first.wr.atomic.swap, 2);
    const struct rd_counters none = {0};
    assert_int_equal(rd_rpma_post_test_read(&f->c), 0);
    assert_int_equal(provider.first.opcode, IBV_WR_RDMA_READ);
    assert_int_equal(provider.first.wr.rdma.remote_addr, 0x9000);
    assert_int_equal(provider.first_sge.addr, (uintptr_t)&f->beat.seen);
    assert_memory_equal(&f->ep.counters, &none, sizeof(none));
    assert_int_equal(f->c.outstanding, 0);
    free(f);
}

static void post__several_queue_pairs__a_word_has_one(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    uint32_t used[NIC_QPS_MAX] = {0};
    f->c.qp_count = 4;
    for (uint64_t word = 0; word < 64; word++) {
        uint32_t before[4], changed = UINT32_MAX;
        for (int twice = 0; twice < 2; twice++) {
            for (uint32_t i = 0; i < 4; i++)
                before[i] = f->c.qp[i].chain.count;
            assert_int_equal(
                rd_rpma_cas(&f->c.base, 1, 0x1000 + word * 8, 0, 1, f->memory, RD_MORE), 0);
            for (uint32_t i = 0; i < 4; i++) {
                if (f->c.qp[i].chain.count == before[i])
                    continue;
                assert_true(twice == 0 || i == changed);
                changed = i;
            }
        }
        used[changed]++;
        rd_rpma_forget_posted(&f->c);
        f->ep.cq_used = f->ep.cq_stale = 0;
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_true(used[i] > 4);
    free(f);
}

/* ---- over a device ---- */

static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);

static int count_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    provider.calls++;
    provider.last = 0;
    for (const struct ibv_send_wr *at = wr; at != NULL; at = at->next)
        provider.last++;
    provider.requests += provider.last;
    return real_post(qp, wr, bad);
}

static void count_posts(struct n_cluster *n, bool on)
{
    struct ibv_context *verbs = nic_ep(n->peer.t.ep)->device->verbs;
    if (on) {
        memset(&provider, 0, sizeof(provider));
        real_post = verbs->ops.post_send;
    }
    verbs->ops.post_send = on ? count_post : real_post;
}

static struct rd_counters counters(struct n_cluster *n)
{
    struct rd_counters counters;
    rd_ep_counters(n->peer.t.ep, &counters);
    return counters;
}

static void read__extent_and_ring__bytes(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    for (uint32_t i = 0; i < T_POOL_SIZE; i++)
        n.pool.base[i] = (uint8_t)(i * 7 + i / 251);
    const struct rd_counters before = counters(&n);
    static const uint32_t sizes[] = {1, 7, 8, 64, 100, 4096, 0x4000, 0x8000};
    uint64_t bytes = 0;
    for (size_t i = 0; i < CN_ARRAY_SIZE(sizes); i++) {
        uint64_t extent = T_EXTENT_OFF + 3 * i, ring = T_RING_OFF + 5 * i;
        T_CHECK(rd_read(n.c, 1, extent, n.peer.memory, sizes[i], RD_SIGNALED) == 0);
        assert_int_equal(n_status(&n.peer, 1), 0);
        assert_memory_equal(n.peer.memory, n.pool.base + extent, sizes[i]);
        T_CHECK(rd_read(n.c, 2, ring, n.peer.log, sizes[i], RD_SIGNALED) == 0);
        assert_int_equal(n_status(&n.peer, 2), 0);
        assert_memory_equal(n.peer.log, n.pool.base + ring, sizes[i]);
        bytes += 2 * sizes[i];
    }
    const struct rd_counters after = counters(&n);
    assert_int_equal(after.reads - before.reads, 2 * CN_ARRAY_SIZE(sizes));
    assert_int_equal(after.bytes_read - before.bytes_read, bytes);
    assert_int_equal(after.doorbells - before.doorbells, 2 * CN_ARRAY_SIZE(sizes));
    assert_int_equal(after.completions - before.completions, 2 * CN_ARRAY_SIZE(sizes));
    n_cluster_close(&n);
}

static void cas__old_value_tells(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    t_store(&n.pool, T_EXTENT_OFF + 8, 5);
    T_CHECK(rd_cas(n.c, 1, T_EXTENT_OFF + 8, 5, 9, old, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 1), 0);
    assert_int_equal(*old, 5);
    assert_int_equal(t_load(&n.pool, T_EXTENT_OFF + 8), 9);
    T_CHECK(rd_cas(n.c, 2, T_EXTENT_OFF + 8, 5, 11, old, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 2), 0);
    assert_int_equal(*old, 9);
    assert_int_equal(t_load(&n.pool, T_EXTENT_OFF + 8), 9);
    assert_int_equal(rd_cas(n.c, 3, T_EXTENT_OFF + 4, 0, 1, old, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(n.c, 3, T_RING_OFF + 4096, 0, 1, old, 0), CAIRN_E_FABRIC);
    n_cluster_close(&n);
}

static void cas__pipelined_on_a_word__post_order(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    const struct rd_fabric_config config = {.queue_pairs = 3};
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    uint64_t *old = (uint64_t *)(void *)n.peer.memory;
    for (uint64_t round = 0; round < 4; round++) {
        for (uint64_t word = 0; word < 4; word++) {
            for (uint64_t i = 0; i < 16; i++)
                T_CHECK(rd_cas(n.c, word * 16 + i, T_EXTENT_OFF + 8 * word, round * 16 + i,
                            round * 16 + i + 1, &old[word * 16 + i],
                            RD_SIGNALED | (i % 5 != 4 ? RD_MORE : 0)) == 0);
        }
        for (int i = 0; i < 64; i++)
            assert_int_equal(n_expect(&n.peer, RD_EV_COMPLETION)->event.status, 0);
        for (uint64_t i = 0; i < 64; i++)
            assert_int_equal(old[i], round * 16 + i % 16); /* each found its predecessor's */
    }
    for (uint64_t word = 0; word < 4; word++)
        assert_int_equal(t_load(&n.pool, T_EXTENT_OFF + 8 * word), 64);
    n_cluster_close(&n);
}

static void commit_with(enum rd_durability durability)
{
    struct n_cluster n;
    n_cluster_open_with(&n, NULL, durability);
    const struct rd_counters before = counters(&n);
    for (uint32_t i = 0; i < 512; i++)
        n.peer.log[i] = (uint8_t)(i + 1);
    T_CHECK(rd_write(n.c, 1, T_LOG_OFF + 128, n.peer.log, 256, RD_MORE) == 0);
    T_CHECK(rd_write(n.c, 2, T_LOG_OFF + 384, n.peer.log + 256, 256, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 3, T_LOG_OFF + 384, 256, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 3), 0);
    assert_memory_equal(n.pool.base + T_LOG_OFF + 128, n.peer.log, 512);
    T_CHECK(rd_mark(n.c, 4, T_LOG_OFF + 136, UINT64_C(0x1122334455667788), RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 4), 0);
    assert_int_equal(t_load(&n.pool, T_LOG_OFF + 136), UINT64_C(0x1122334455667788));
    /* The end of the ring: librpma's flush must not read behind it. */
    uint64_t end = T_RING_OFF + T_RING_SIZE;
    T_CHECK(rd_write(n.c, 5, end - 1, n.peer.log, 1, RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 6, end - 1, 1, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 6), 0);
    assert_int_equal(n.pool.base[end - 1], 1);
    const struct rd_counters after = counters(&n);
    assert_int_equal(after.writes - before.writes, 3);
    assert_int_equal(after.flushes - before.flushes, 2);
    assert_int_equal(after.marks - before.marks, 1);
    assert_int_equal(after.bytes_written - before.bytes_written, 512 + 8 + 1);
    assert_int_equal(after.doorbells - before.doorbells, 3);
    assert_int_equal(after.completions - before.completions, 3);
    assert_int_equal(after.flush_messages - before.flush_messages,
        durability == RD_DURABILITY_GPSPM ? 2 : 0);
    n_cluster_close(&n);
}

static void write_flush_mark__every_durability__there(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    commit_with(RD_DURABILITY_EMULATED);
    commit_with(RD_DURABILITY_APM);
    commit_with(RD_DURABILITY_EADR);
    commit_with(RD_DURABILITY_GPSPM);
}

static void write_flush_mark__outside_or_header__nothing_posted(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    const struct rd_counters before = counters(&n);
    static const struct { uint64_t off; uint32_t size; } bad[] = {
        {T_RING_OFF, 64}, {T_RING_OFF + 64, 16}, {T_LOG_OFF - 8, 16}, {T_LOG_OFF - 64, 64},
        {T_RING_OFF + T_RING_SIZE, 8}, {T_RING_OFF + T_RING_SIZE - 8, 16}, {T_EXTENT_OFF, 64},
        {0, 8}, {T_LOG_OFF, 0}, {UINT64_MAX - 7, 8},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        int err = rd_write(n.c, 1, bad[i].off, n.peer.log, bad[i].size, 0);
        assert_int_equal(err, CAIRN_E_FABRIC);
        assert_int_equal(rd_flush(n.c, 1, bad[i].off, bad[i].size, 0), CAIRN_E_FABRIC);
        if (bad[i].size > 0)
            assert_int_equal(rd_mark(n.c, 1, bad[i].off, 1, 0),
                bad[i].off == T_LOG_OFF - 8 ? CAIRN_E_FABRIC
                : bad[i].off == T_RING_OFF + T_RING_SIZE - 8 ? 0 : CAIRN_E_FABRIC);
    }
    assert_int_equal(rd_mark(n.c, 1, T_LOG_OFF + 4, 1, 0), CAIRN_E_FABRIC);
    const struct rd_counters after = counters(&n);
    assert_int_equal(after.writes, before.writes);
    assert_int_equal(after.flushes, before.flushes);
    assert_int_equal(after.marks, before.marks + 1);
    n_cluster_close(&n);
}

static void mark__flush_by_message_outstanding__state(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open_with(&n, NULL, RD_DURABILITY_GPSPM);
    T_CHECK(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 64, RD_MORE) == 0);
    T_CHECK(rd_mark(n.c, 2, T_LOG_OFF + 64, 1, RD_MORE) == 0); /* none is outstanding yet */
    T_CHECK(rd_flush(n.c, 3, T_LOG_OFF, 64, RD_SIGNALED) == 0);
    assert_int_equal(rd_mark(n.c, 4, T_LOG_OFF + 8, 1, 0), CAIRN_E_STATE);
    assert_int_equal(n_status(&n.peer, 3), 0);
    assert_int_equal(rd_mark(n.c, 4, T_LOG_OFF + 8, 1, RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 4), 0);
    n_cluster_close(&n);
}

static void post__more_over_device__one_list(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    const struct rd_fabric_config config = {.queue_pairs = 1, .heartbeat_ms = 60000};
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    const struct rd_counters before = counters(&n);
    count_posts(&n, true);
    for (uint32_t i = 0; i < 9; i++)
        T_CHECK(rd_read(n.c, i, T_EXTENT_OFF + 64 * i, n.peer.memory + 64 * i, 64,
                    RD_SIGNALED | RD_MORE) == 0);
    assert_int_equal(provider.calls, 0);
    T_CHECK(rd_read(n.c, 9, T_EXTENT_OFF, n.peer.memory + 1024, 64, RD_SIGNALED) == 0);
    assert_int_equal(provider.calls, 1);
    assert_int_equal(provider.last, 10);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(n_status(&n.peer, i), 0);
    /* Nothing follows: the next poll sees to it. */
    T_CHECK(rd_read(n.c, 20, T_EXTENT_OFF, n.peer.memory, 64, RD_SIGNALED | RD_MORE) == 0);
    T_CHECK(rd_read(n.c, 21, T_EXTENT_OFF, n.peer.memory, 64, RD_SIGNALED | RD_MORE) == 0);
    assert_int_equal(provider.calls, 1);
    assert_int_equal(n_status(&n.peer, 20), 0);
    assert_int_equal(n_status(&n.peer, 21), 0);
    assert_int_equal(provider.calls, 2);
    assert_int_equal(provider.last, 2);
    /* A post on the log connection takes the chain along. */
    T_CHECK(rd_read(n.c, 30, T_EXTENT_OFF, n.peer.memory, 64, RD_SIGNALED | RD_MORE) == 0);
    T_CHECK(rd_mark(n.c, 31, T_LOG_OFF, 1, 0) == 0);
    assert_int_equal(provider.calls, 4);
    assert_int_equal(n_status(&n.peer, 30), 0);
    /* Longer than a chain may be. */
    uint32_t calls = provider.calls;
    for (uint32_t i = 0; i < 50; i++)
        T_CHECK(rd_read(n.c, i, T_EXTENT_OFF, n.peer.memory, 64,
                    RD_SIGNALED | (i < 49 ? RD_MORE : 0)) == 0);
    assert_int_equal(provider.calls - calls, 2);
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(n_status(&n.peer, i), 0);
    count_posts(&n, false);
    const struct rd_counters after = counters(&n);
    assert_int_equal(after.reads - before.reads, 10 + 2 + 1 + 50);
    assert_int_equal(after.doorbells - before.doorbells, 3);
    n_cluster_close(&n);
}

static void post__outstanding_max_over_device__again_until_polled(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    uint32_t posted = 0;
    int err = 0;
    while ((err = rd_read(n.c, posted, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED)) == 0)
        posted++;
    assert_int_equal(err, CAIRN_E_AGAIN);
    assert_int_equal(posted, 64);
    assert_int_equal(n_status(&n.peer, 0), 0);
    for (uint32_t i = 1; i < posted; i++)
        assert_int_equal(n_status(&n.peer, i), 0);
    T_CHECK(rd_read(n.c, 99, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED) == 0);
    assert_int_equal(n_status(&n.peer, 99), 0);
    n_cluster_close(&n);
}

/* All kinds of operations, many more than queues are long, most without completions. */
static void post__ten_thousand__through_small_queues(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    t_pool_open(&n.pool);
    n_open(&n.node, NULL, n_address(n.address), 2, 4);
    n_regions(&n.node, &n.pool, RD_DURABILITY_APM);
    T_CHECK(rd_listen(n.node.t.ep, n.address) == 0);
    n_open(&n.peer, NULL, NULL, 1, 4);
    n.c = n_pair(&n.node, &n.peer, n.address, &n.passive);
    uint64_t wanted = 0, seen = 0, agains = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        unsigned flags = (i % 7 == 0 ? RD_SIGNALED : 0u) | (i % 3 == 0 ? RD_MORE : 0u);
        int err;
        for (;;) {
            uint64_t *old = (uint64_t *)(void *)n.peer.memory;
            err = i % 5 == 0   ? rd_write(n.c, i, T_LOG_OFF + i % 64 * 64, n.peer.log, 64, flags)
                  : i % 5 == 1 ? rd_flush(n.c, i, T_LOG_OFF, 64, flags)
                  : i % 5 == 2 ? rd_cas(n.c, i, T_EXTENT_OFF, i, i, old, flags)
                  : i % 5 == 3 ? rd_read(n.c, i, T_EXTENT_OFF + i % 64, n.peer.memory, 64, flags)
                               : rd_mark(n.c, i, T_LOG_OFF + 8 * (i % 64), i, flags);
            if (err != CAIRN_E_AGAIN)
                break;
            agains++;
            n_pump();
        }
        assert_int_equal(err, 0);
        wanted += (flags & RD_SIGNALED) != 0;
        while (n.peer.head != n.peer.tail) {
            assert_int_equal(n_expect(&n.peer, RD_EV_COMPLETION)->event.status, 0);
            seen++;
        }
    }
    while (seen < wanted) {
        assert_int_equal(n_expect(&n.peer, RD_EV_COMPLETION)->event.status, 0);
        seen++;
    }
    assert_null(n_next(&n.peer, 20));
    assert_true(agains > 0);
    const struct rd_counters after = counters(&n);
    assert_int_equal(after.reads, 2000);
    assert_int_equal(after.cas, 2000);
    assert_int_equal(after.writes, 2000);
    assert_int_equal(after.flushes, 2000);
    assert_int_equal(after.marks, 2000);
    assert_int_equal(after.completions, wanted);
    n_cluster_close(&n);
}

static void post__before_up_and_after_down__told(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    struct rd_conn *other = n_connect(&n.peer, n.address, 5000);
    assert_int_equal(
        rd_read(other, 1, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED), CAIRN_E_STATE);
    assert_int_equal(rd_send(other, "x", 1), CAIRN_E_STATE);
    rd_conn_delete(other);
    T_CHECK(rd_fence(n.passive) == 0);
    const struct n_seen *down = n_expect(&n.peer, RD_EV_DOWN);
    assert_ptr_equal(down->event.conn, n.c);
    assert_int_equal(
        rd_read(n.c, 1, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_mark(n.c, 1, T_LOG_OFF, 8, RD_SIGNALED), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_send(n.c, "x", 1), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_send(n.passive, "x", 1), CAIRN_E_FENCED);
    n_cluster_close(&n);
}

static void device__message_max__known(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    struct nic_device *device = nic_ep(n.peer.t.ep)->device;
    assert_true(device->message_max >= 1u << 20 || device->iwarp); /* which need not say it */
    n_cluster_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_take__until_full__slots_in_order),
        cmocka_unit_test(queue_take__unsignaled__every_half_queue_asks),
        cmocka_unit_test(queue_free__part_of_it__send_buffers_come_back),
        cmocka_unit_test(queue_free__out_of_order__waits_for_the_earlier),
        cmocka_unit_test(forget_posted__everything__as_new_but_the_stale),
        cmocka_unit_test(post__one_without_more__one_request),
        cmocka_unit_test(post__more__one_list_one_doorbell),
        cmocka_unit_test(post__refused_behind_more__chain_waits_for_ring),
        cmocka_unit_test(post__full__again_and_nothing_taken),
        cmocka_unit_test(cas__unsignaled_and_no_room_for_a_read__again_and_nothing_taken),
        cmocka_unit_test(post__outstanding_max__again),
        cmocka_unit_test(post__out_of_range__table),
        cmocka_unit_test(read__peer_calls_an_extent_a_ring__fabric_error),
        cmocka_unit_test(post__larger_than_port_allows__told),
        cmocka_unit_test(check_alive__by_state__errors),
        cmocka_unit_test(post_beat_and_test__own_requests__not_the_users),
        cmocka_unit_test(post__several_queue_pairs__a_word_has_one),
        cmocka_unit_test(read__extent_and_ring__bytes),
        cmocka_unit_test(cas__old_value_tells),
        cmocka_unit_test(cas__pipelined_on_a_word__post_order),
        cmocka_unit_test(write_flush_mark__every_durability__there),
        cmocka_unit_test(write_flush_mark__outside_or_header__nothing_posted),
        cmocka_unit_test(mark__flush_by_message_outstanding__state),
        cmocka_unit_test(post__more_over_device__one_list),
        cmocka_unit_test(post__outstanding_max_over_device__again_until_polled),
        cmocka_unit_test(post__ten_thousand__through_small_queues),
        cmocka_unit_test(post__before_up_and_after_down__told),
        cmocka_unit_test(device__message_max__known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
