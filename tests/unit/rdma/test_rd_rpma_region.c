/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the block is laid out as the header says for every size; registrations are counted, made
 * and undone; a renewed ring has another key.
 * Method: blocks without a device; with one (the VM), regions and the descriptors that a peer gets.
 * Invariants: the two parts of the arena share no page; a failed registration leaves nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_test.h"

#define PAGE 4096u
#define HUGE (UINT64_C(2) << 20)

static unsigned logged;

static void count_log(void *arg, enum cn_log_level level, const char *text)
{
    (void)arg;
    (void)text;
    logged += level <= CN_LOG_INFO;
}

static void check_block(
    struct nic_fabric *fabric, uint32_t connections, uint64_t memory, uint64_t log)
{
    struct cn_env env = *cn_env_system();
    env.log = count_log;
    struct nic_conn *conns = calloc(connections, sizeof(*conns));
    struct nic_ep ep = {.fabric = fabric,
        .env = &env,
        .name = "test",
        .connections_max = connections,
        .conns = conns};
    const struct rd_ep_config config = {.memory_size = memory, .log_memory_size = log};
    assert_non_null(conns);
    assert_int_equal(rd_rpma_block_new(&ep, &config), 0);
    assert_int_equal((uintptr_t)ep.block % HUGE, 0);
    assert_int_equal((uintptr_t)ep.memory % 64, 0);
    const uint8_t *log_memory = ep.memory + (memory - log);
    assert_int_equal((uintptr_t)log_memory % PAGE, 0); /* shares no page with what is before */
    assert_int_equal((uintptr_t)ep.messages % PAGE, 0);
    assert_int_equal((uintptr_t)ep.beats % PAGE, 0);
    assert_true(ep.memory >= ep.block && ep.messages >= ep.memory + memory);
    assert_true(log_memory >= ep.block + PAGE); /* never an empty registration */
    for (uint32_t i = 0; i < connections; i++) {
        const struct nic_conn *c = &conns[i];
        const uint8_t *before = i > 0 ? conns[i - 1].tx + NIC_TX * NIC_FRAME_STRIDE : ep.messages;
        assert_ptr_equal(c->rx, before);
        assert_ptr_equal(c->tx, c->rx + NIC_RX * NIC_FRAME_STRIDE);
        assert_int_equal((uintptr_t)c->rx % 64, 0);
        assert_true(c->tx + NIC_TX * NIC_FRAME_STRIDE <= (uint8_t *)ep.beats);
    }
    assert_true((uint8_t *)(ep.beats + connections) <= ep.block + ep.block_size);
    for (uint64_t i = 0; i < memory; i++)
        assert_int_equal(ep.memory[i], 0);
    memset(ep.block, 0x5a, ep.block_size); /* all of it is there */
    struct rd_live live;
    rd_live_get(&live);
    assert_int_equal(live.mappings, 1);
    rd_rpma_block_delete(&ep);
    assert_null(ep.block);
    rd_rpma_block_delete(&ep);
    t_check_live_zero();
    free(conns);
}

static void block_new__sizes__aligned_parts_apart(void **state)
{
    (void)state;
    static const struct { uint32_t connections; uint64_t memory, log; } cases[] = {{1, 0, 0},
        {1, 64, 0}, {1, 64, 64}, {1, PAGE, 64}, {1, PAGE + 64, PAGE}, {3, 12352, 4160},
        {4, UINT64_C(1) << 20, 0}, {4, UINT64_C(1) << 20, UINT64_C(1) << 20},
        {64, (UINT64_C(4) << 20) + 64, UINT64_C(1) << 20}, {300, 65536, 4096}};
    struct nic_fabric fabric = {.endpoints = 0};
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++)
        check_block(&fabric, cases[i].connections, cases[i].memory, cases[i].log);
}

static void block_new__no_huge_pages_or_no_lock__said_once(void **state)
{
    (void)state;
    struct nic_fabric fabric = {.endpoints = 0};
    logged = 0;
    check_block(&fabric, 64, HUGE, 0);
    unsigned first = logged;
    assert_true(first <= 2);
    assert_int_equal(first, (unsigned)__builtin_popcount(fabric.warned));
    check_block(&fabric, 64, HUGE, 0);
    assert_int_equal(logged, first);
}

/* Memory of a region that is gone is not touched for a peer it was granted to. */
static void region_delete__granted__forgotten(void **state)
{
    (void)state;
    struct nic_conn conns[2] = {0};
    struct nic_ep ep = {.conns = conns, .connections_max = 2};
    struct nic_region *r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = calloc(1, sizeof(*r[i]));
        assert_non_null(r[i]);
        r[i]->ep = &ep;
        r[i]->next = ep.regions;
        ep.regions = r[i];
        rd_live_change(RD_LIVE_REGION, 1);
    }
    conns[1].ring = r[0];
    conns[1].region[0] = r[1];
    conns[1].region[1] = r[2];
    conns[1].region_count = 2;
    rd_rpma_region_delete(&r[1]->base);
    assert_ptr_equal(conns[1].ring, r[0]);
    assert_int_equal(conns[1].region_count, 1);
    assert_ptr_equal(conns[1].region[0], r[2]);
    rd_rpma_region_delete(&r[0]->base);
    assert_null(conns[1].ring);
    rd_rpma_region_delete(&r[2]->base);
    assert_int_equal(conns[1].region_count, 0);
    assert_null(ep.regions);
    t_check_live_zero();
}

/* ---- with a device ---- */

static void region_new__registered__counted_and_live(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct t_pool pool;
    struct n_side side;
    struct rd_live before, after;
    struct rd_counters counters;
    t_pool_open(&pool);
    n_open(&side, NULL, NULL, 1, 1);
    rd_live_get(&before);
    assert_int_equal(before.memory_regions, 4); /* the block */
    n_regions(&side, &pool, RD_DURABILITY_APM);
    rd_live_get(&after);
    assert_int_equal(after.memory_regions, 6);
    assert_int_equal(after.regions, 2);
    rd_ep_counters(side.t.ep, &counters);
    assert_int_equal(counters.registrations, 6);
    assert_null(nic_region(side.t.ring)->mr); /* each byte in one domain only */
    assert_null(nic_region(side.t.extent)->log_mr);
    rd_region_delete(side.t.extent);
    side.t.extent = NULL;
    n_close(&side); /* the ring goes with the endpoint */
    t_pool_close(&pool);
    t_check_live_zero();
}

static void ring_rearm__after_revoke__another_key(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct t_pool pool;
    struct n_side side;
    struct rd_counters counters;
    uint8_t descriptors[3][32] = {{0}};
    bool busy = true;
    t_pool_open(&pool);
    n_open(&side, NULL, NULL, 1, 1);
    n_regions(&side, &pool, RD_DURABILITY_APM);
    struct nic_region *ring = nic_region(side.t.ring);
    assert_int_equal(rd_ring_rearm(&ring->base), 0); /* is armed: nothing happens */
    assert_false(ring->rekeyed);
    for (int i = 0; i < 3; i++) {
        size_t size = 0;
        assert_int_equal(rpma_mr_get_descriptor_size(ring->log_mr, &size), 0);
        assert_true(size <= 32);
        assert_int_equal(rpma_mr_get_descriptor(ring->log_mr, descriptors[i]), 0);
        busy = true;
        assert_int_equal(rd_ring_revoke(&ring->base, &busy), 0);
        assert_false(busy);
        assert_null(ring->log_mr);
        assert_int_equal(rd_ring_revoke(&ring->base, &busy), 0); /* again */
        assert_int_equal(rd_ring_rearm(&ring->base), 0);
        assert_non_null(ring->log_mr);
        assert_true(ring->rekeyed);
    }
    assert_memory_not_equal(descriptors[0] + 16, descriptors[1] + 16, 4); /* the rkey */
    assert_memory_not_equal(descriptors[1] + 16, descriptors[2] + 16, 4);
    rd_ep_counters(side.t.ep, &counters);
    assert_int_equal(counters.registrations, 6);
    assert_int_equal(counters.rekeys, 3);
    n_close(&side);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void region_new__memory_not_there__error_nothing_left(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_side side;
    struct rd_live before, after;
    struct rd_region *region = NULL;
    void *hole = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hole != MAP_FAILED);
    const struct rd_memory memory = {hole, 4096, 65536, -1, 0};
    n_open(&side, NULL, NULL, 1, 1);
    if (nic_ep(side.t.ep)->device->iwarp) { /* siw registers a hole */
        n_close(&side);
        skip();
    }
    rd_live_get(&before);
    int rc = rd_region_new(side.t.ep, &memory, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &region);
    assert_int_equal(rc, -EFAULT);
    assert_non_null(strstr(cairn_last_error(), "0x1000"));
    assert_true(rd_region_new(side.t.ep, &memory, RD_ACCESS_READ | RD_ACCESS_WRITE, &region) < 0);
    assert_null(region);
    rd_live_get(&after);
    assert_memory_equal(&before, &after, sizeof(before));
    n_close(&side);
    (void)munmap(hole, 65536);
    t_check_live_zero();
}

/* With this capability there is no limit. */
static bool set_ipc_lock(bool on)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) != 0)
        return false;
    uint32_t bit = 1u << CAP_IPC_LOCK;
    data[0].effective = on ? data[0].effective | bit : data[0].effective & ~bit;
    return syscall(SYS_capset, &head, data) == 0;
}

static void ep_open__memlock_too_low__memlock_error(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct rd_fabric *fabric = NULL;
    struct rd_ep *ep = NULL;
    struct rlimit old, low;
    assert_int_equal(rd_fabric_open("rpma", NULL, &fabric), 0);
    struct cn_env env = *cn_env_system();
    env.log = NULL;
    const struct rd_ep_config config = {.env = &env, .connections_max = 1, .outstanding_max = 1,
        .memory_size = HUGE, .name = "small"};
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
    low = (struct rlimit){.rlim_cur = 65536, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    assert_true(set_ipc_lock(false));
    int rc = rd_ep_open(fabric, &config, &ep);
    assert_true(set_ipc_lock(true));
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
    assert_int_equal(rc, CAIRN_E_MEMLOCK);
    assert_non_null(strstr(cairn_last_error(), "65536"));
    assert_null(ep);
    rd_fabric_delete(fabric);
    t_check_live_zero();
}

#define CASE(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(block_new__sizes__aligned_parts_apart),
        CASE(block_new__no_huge_pages_or_no_lock__said_once),
        CASE(region_delete__granted__forgotten),
        CASE(region_new__registered__counted_and_live),
        CASE(ring_rearm__after_revoke__another_key),
        CASE(region_new__memory_not_there__error_nothing_left),
        CASE(ep_open__memlock_too_low__memlock_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
