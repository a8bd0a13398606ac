/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a grant that is too wide, and a peer that writes after its time, are noticed (I14, I15).
 * Method: a node made for this test grants its whole pool for writing; a client posts one request
 * somewhere. What the pool says of slots and chunks is formatted by the shipped code.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "pmem/pm_object.h"
#include "pmem/pm_slot.h"
#include "rdma/rd_wire.h"
#include "tools/crash/cluster/cr_guard.h"

#define SUPER_OFF 8192u
#define SLOT 2u
#define LOG RD_RING_HEADER_SIZE

struct scene {
    struct sim sim;
    struct sim_pool *pool;
    struct pm_pool pm_pool;
    struct sim_actor *node, *client;
    struct cr_guard *guard;
    enum sim_op op;
    uint64_t off;
    uint32_t size;
    uint64_t desired;
    int posted;
};

static struct rd_hello_wire hello(void)
{
    return (struct rd_hello_wire){.peer = {{7, 7, 7}}};
}

static void node_main(struct sim_actor *actor)
{
    struct scene *s = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 2, .outstanding_max = 8,
        .memory_size = 64, .name = "node"};
    struct rd_memory whole = {.base = s->pool->visible, .size = s->pool->size, .fd = -1,
        .durability = RD_DURABILITY_APM};
    struct rd_region *region;
    struct rd_ep *ep;
    struct rd_event e;

    assert_int_equal(0, rd_ep_open(&s->sim.fabric->base, &config, &ep));
    assert_int_equal(0, rd_region_new(ep, &whole,
                            RD_ACCESS_READ | RD_ACCESS_WRITE | RD_ACCESS_ATOMIC, &region));
    assert_int_equal(0, rd_listen(ep, "n1"));
    for (;;) {
        if (rd_poll(ep, &e, 1) == 1 && e.type == RD_EV_CONNECT)
            assert_int_equal(0, rd_accept(e.conn, &region, 1, NULL, "w", 1));
        rd_ep_arm(ep);
        rd_ep_sleep(ep, s->sim.now + SIM_MS);
    }
}

static void client_main(struct sim_actor *actor)
{
    struct scene *s = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 2, .outstanding_max = 8,
        .memory_size = 8192, .name = "client"};
    struct rd_hello_wire h = hello();
    struct rd_conn *conn;
    struct rd_ep *ep;
    struct rd_event e = {0};

    assert_int_equal(0, rd_ep_open(&s->sim.fabric->base, &config, &ep));
    assert_int_equal(0, rd_connect(ep, "n1", &h, sizeof(h), s->sim.now + 50 * SIM_MS, &conn));
    while (e.type != RD_EV_UP)
        (void)!rd_poll(ep, &e, 1);
    if (s->op == SIM_WRITE)
        s->posted = rd_write(conn, 1, s->off, rd_ep_memory(ep), s->size, 0);
    else if (s->op == SIM_MARK)
        s->posted = rd_mark(conn, 1, s->off, 1, 0);
    else
        s->posted = rd_cas(conn, 1, s->off, 0, s->desired, rd_ep_memory(ep), 0);
    sim_sleep(&s->sim, SIM_FOREVER);
}

static void open_slot(struct scene *s, enum pm_slot_state state, uint8_t owner)
{
    struct pm_slot slot;

    assert_int_equal(0, pm_slot_load(&s->pm_pool, SLOT, &slot));
    slot.state = state;
    slot.epoch++;
    slot.nonce = 1;
    memset(&slot.owner, 0, sizeof(slot.owner));
    slot.owner.b[0] = slot.owner.b[1] = slot.owner.b[2] = owner;
    pm_slot_store(&s->pm_pool, &slot);
    pm_slot_store(&s->pm_pool, &slot);
}

static int setup(void **state)
{
    struct scene *s = sim_calloc(1, sizeof(*s));
    struct pm_geometry g = {.chunk_shift = 13, .slot_count = 4, .window = 4, .ring_size = 4096,
        .retired_max = 8, .root_map_max = 8, .depth0 = PM_GEOMETRY_DEPTH0_ZERO};
    struct cn_uuid cluster = {{1}};
    uint64_t size = 40 * 8192;
    struct pm_extent_pm extent = {le64_make(SUPER_OFF), le64_make(size - SUPER_OFF)};
    struct pm pm;

    sim_init(&s->sim, 1, false);
    s->sim.calm = true;
    s->pool = sim_pool_new(&s->sim, size);
    sim_fabric_add_pool(s->sim.fabric, s->pool);
    sim_pool_pm(s->pool, &s->sim.env, &pm);
    assert_int_equal(0, pm_format(&pm, &extent, 1, &g, &cluster, 1));
    assert_int_equal(0, pm_attach(&s->pm_pool, &pm, SUPER_OFF));
    open_slot(s, PM_SLOT_OPEN, 7);
    s->guard = cr_guard_new(&s->sim);
    cr_guard_watch(s->guard, s->pool, SUPER_OFF);
    s->node = sim_actor_new(&s->sim, SIM_NODE, "n1", node_main, NULL, s);
    s->client = sim_actor_new(&s->sim, SIM_CLIENT, "c1", client_main, NULL, s);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    cr_guard_delete(&s->guard);
    sim_fini(&s->sim);
    sim_pool_delete(s->pool);
    sim_free(s);
    return 0;
}

/* NULL: nothing is wrong with it. */
static void expect(struct scene *s, const char *failure)
{
    struct cr_guard_stats stats;

    sim_actor_start(s->node, 0);
    sim_actor_start(s->client, SIM_US);
    sim_run(&s->sim, s->sim.now + 10 * SIM_MS);
    assert_int_equal(0, s->posted);
    cr_guard_stats(s->guard, &stats);
    assert_true(stats.stores > 0);
    if (failure == NULL)
        assert_string_equal("", s->sim.failure);
    else if (strstr(s->sim.failure, failure) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", failure, s->sim.failure);
}

static void at(struct scene *s, enum sim_op op, uint64_t off, uint32_t size)
{
    s->op = op;
    s->off = off;
    s->size = size;
}

static void store__own_ring__allowed(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG, 256);
    expect(s, NULL);
}

static void store__first_and_last_bytes_of_the_log__allowed(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG, 4096);
    expect(s, NULL);
}

static void store__mark_of_a_record__allowed(void **state)
{
    struct scene *s = *state;

    at(s, SIM_MARK, pm_ring_off(&s->pm_pool, SLOT) + LOG + 64 + 24, 8);
    expect(s, NULL);
}

static void store__header_page__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG - 64, 64);
    expect(s, "grant: c1 writes 64 bytes at 4032 of ring 2");
}

static void store__beyond_the_ring__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG + 4096, 64);
    expect(s, "grant: c1 writes 64 bytes at 0 of ring 3");
}

static void store__ring_of_the_node_itself__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, 0) + LOG, 64);
    expect(s, "of ring 0");
}

static void store__slot_headers__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, s->pm_pool.super.slots_off, 8);
    expect(s, "which is in no ring");
}

static void store__heap__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, s->pm_pool.super.heap_off, 8);
    expect(s, "which is in no ring");
}

static void store__mark_elsewhere_in_a_record__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_MARK, pm_ring_off(&s->pm_pool, SLOT) + LOG + 32, 8);
    expect(s, "which is no mark");
}

static void store__ring_of_a_slot_that_nobody_has__zombie(void **state)
{
    struct scene *s = *state;

    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, 1) + LOG, 64);
    expect(s, "zombie: c1 writes into the ring of slot 1, which is not open any more");
}

static void store__slot_closed_meanwhile__zombie(void **state)
{
    struct scene *s = *state;

    open_slot(s, PM_SLOT_CLOSED, 7);
    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG, 64);
    expect(s, "zombie: c1 writes into the ring of slot 2, which is not open any more");
}

static void store__slot_of_another_by_now__zombie(void **state)
{
    struct scene *s = *state;

    open_slot(s, PM_SLOT_OPEN, 9);
    at(s, SIM_WRITE, pm_ring_off(&s->pm_pool, SLOT) + LOG, 64);
    expect(s, "zombie: c1 writes into the ring of slot 2, which belongs to another session");
}

static void swap__no_chunk_with_words__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_CAS, s->pm_pool.super.heap_off, 8);
    s->desired = 1;
    expect(s, "which is no lock word");
}

/* A chunk of buckets: words lie every 512 bytes. */
static uint64_t make_buckets(struct scene *s)
{
    uint64_t chunk = s->pm_pool.super.heap_off >> 13;
    struct pm_chunk_pm d = {.kind = PM_CHUNK_BUCKETS};

    memcpy(s->pool->visible + s->pm_pool.super.chunks_off + chunk * sizeof(d), &d, sizeof(d));
    return chunk << 13;
}

static void swap__word_of_a_bucket__allowed(void **state)
{
    struct scene *s = *state;

    at(s, SIM_CAS, make_buckets(s) + 1024, 8);
    s->desired = pm_word_make_locked(1, SLOT, 0);
    expect(s, NULL);
}

static void swap__within_a_bucket__grant(void **state)
{
    struct scene *s = *state;

    at(s, SIM_CAS, make_buckets(s) + 1024 + 8, 8);
    s->desired = 1;
    expect(s, "which is no lock word");
}

static void swap__lock_in_the_name_of_another_slot__zombie(void **state)
{
    struct scene *s = *state;

    at(s, SIM_CAS, make_buckets(s) + 1024, 8);
    s->desired = pm_word_make_locked(1, 3, 0);
    expect(s, "zombie: c1 locks the word at");
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(store__own_ring__allowed),
        TEST(store__first_and_last_bytes_of_the_log__allowed),
        TEST(store__mark_of_a_record__allowed),
        TEST(store__header_page__grant),
        TEST(store__beyond_the_ring__grant),
        TEST(store__ring_of_the_node_itself__grant),
        TEST(store__slot_headers__grant),
        TEST(store__heap__grant),
        TEST(store__mark_elsewhere_in_a_record__grant),
        TEST(store__ring_of_a_slot_that_nobody_has__zombie),
        TEST(store__slot_closed_meanwhile__zombie),
        TEST(store__slot_of_another_by_now__zombie),
        TEST(swap__no_chunk_with_words__grant),
        TEST(swap__word_of_a_bucket__allowed),
        TEST(swap__within_a_bucket__grant),
        TEST(swap__lock_in_the_name_of_another_slot__zombie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
