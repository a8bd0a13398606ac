/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the modelled fabric and memory allow exactly the outcomes of the crash model's litmus
 * tests, no more (a false alarm) and no fewer (a bug that stays hidden). Method: each program runs
 * under many seeds; the set of outcomes over all seeds is compared as a set.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sim_fabric.h"

#define SEEDS 4000u
#define SEEDS_MANY 60000u /* where there are hundreds of outcomes */
#define POOL_SIZE 4096u
#define OUTCOMES_MAX 512u

struct litmus {
    enum sim_mode mode;
    enum sim_crash crash;
    /* Runs in the client; what it posts ends with the node's crash. */
    void (*client)(struct litmus *l);
    void (*node)(struct litmus *l); /* stores of the CPU instead */
    uint32_t seeds;                 /* 0: SEEDS */
    bool client_dies;               /* the client crashes, then the node's memory is looked at */
    uint32_t (*outcome)(const struct sim_pool *pool);
    /* of one run */
    struct sim *sim;
    struct sim_pool *pool;
    struct sim_actor *node_actor, *client_actor;
    struct rd_ep *ep;
    struct rd_conn *conn;
    bool done;
    bool seen[OUTCOMES_MAX];
};

static void run_node(struct sim_actor *actor)
{
    struct litmus *l = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 8, .outstanding_max = 8,
        .memory_size = 64, .name = "node"};
    struct rd_ep *ep;
    struct rd_region *region;

    assert_int_equal(0, rd_ep_open(&actor->sim->fabric->base, &config, &ep));
    struct rd_memory memory = {l->pool->visible, 0, POOL_SIZE, -1};
    assert_int_equal(0, rd_region_new(ep, &memory, RD_ACCESS_READ | RD_ACCESS_WRITE, &region));
    assert_int_equal(0, rd_listen(ep, "n1"));
    if (l->node != NULL) {
        l->node(l);
        l->done = true;
    }
    for (;;) {
        struct rd_event e[4];
        uint32_t n = rd_poll(ep, e, 4);
        for (uint32_t i = 0; i < n; i++)
            if (e[i].type == RD_EV_CONNECT)
                assert_int_equal(0, rd_accept(e[i].conn, &region, 1, NULL, "w", 1));
        rd_ep_arm(ep);
        rd_ep_sleep(ep, actor->sim->now + SIM_MS);
    }
}

static void await(struct litmus *l, enum rd_event_type type)
{
    for (;;) {
        struct rd_event e[1];
        if (rd_poll(l->ep, e, 1) == 1 && e[0].type == type)
            return;
    }
}

static void run_client(struct sim_actor *actor)
{
    struct litmus *l = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 2, .outstanding_max = 16,
        .memory_size = 1024, .name = "client"};

    if (l->client == NULL)
        return;
    assert_int_equal(0, rd_ep_open(&actor->sim->fabric->base, &config, &l->ep));
    assert_int_equal(
        0, rd_connect(l->ep, "n1", "h", 1, actor->sim->now + 50 * SIM_MS, &l->conn));
    await(l, RD_EV_UP);
    uint64_t *value = rd_ep_memory(l->ep);
    for (uint64_t i = 0; i < 128; i++)
        value[i] = i + 1; /* value[0] is 1, value[1] is 2 ... */
    l->client(l);
    l->done = true;
    if (l->client_dies)
        sim_actor_die(actor, SIM_CRASH_PROCESS);
    sim_sleep(actor->sim, SIM_FOREVER);
}

static void run_once(struct litmus *l, uint64_t seed)
{
    struct sim sim;

    sim_init(&sim, seed, false);
    sim.mode = l->mode;
    sim.calm = true;
    l->sim = &sim;
    l->done = false;
    l->pool = sim_pool_new(&sim, POOL_SIZE);
    sim_fabric_add_pool(sim.fabric, l->pool);
    l->node_actor = sim_actor_new(&sim, SIM_NODE, "n1", run_node, NULL, l);
    l->client_actor = sim_actor_new(&sim, SIM_CLIENT, "c1", run_client, NULL, l);
    l->pool->owner = l->node_actor;
    sim_actor_start(l->node_actor, 0);
    sim_actor_start(l->client_actor, 10 * SIM_US);
    while (!l->done)
        sim_run(&sim, sim.now + 100);
    /* The crash comes at any time from now on. */
    uint64_t rest[] = {0, 500, SIM_US, 2 * SIM_US, 5 * SIM_US, 50 * SIM_US};
    sim_run(&sim, sim.now + rest[sim_choose(&sim, "rest", CN_ARRAY_SIZE(rest))]);
    if (l->client_dies)
        sim_run(&sim, sim.now + 20 * SIM_MS);
    else
        sim_actor_crash(l->node_actor, l->crash);
    if (l->crash == SIM_CRASH_POWER)
        sim_pool_power_fail(l->pool);
    uint32_t outcome = l->outcome(l->pool);
    assert_true(outcome < OUTCOMES_MAX);
    l->seen[outcome] = true;
    sim_fini(&sim);
    sim_pool_delete(l->pool);
}

/* `expected`: the outcomes, ended by -1. */
static void check(struct litmus *l, const int *expected)
{
    bool want[OUTCOMES_MAX] = {false};
    bool good = true;

    for (; *expected >= 0; expected++)
        want[*expected] = true;
    for (uint64_t seed = 1; seed <= (l->seeds != 0 ? l->seeds : SEEDS); seed++)
        run_once(l, seed);
    for (uint32_t i = 0; i < OUTCOMES_MAX; i++)
        if (want[i] != l->seen[i]) {
            print_error("outcome 0x%x: %s\n", i, want[i] ? "never seen" : "not allowed");
            good = false;
        }
    assert_true(good);
}

static uint64_t word(const struct sim_pool *pool, uint32_t off)
{
    uint64_t v;

    memcpy(&v, pool->visible + off, 8);
    return v;
}

/* x lies at 0, y at 512. */
static uint32_t outcome_xy(const struct sim_pool *pool)
{
    return (uint32_t)(word(pool, 0) << 4 | word(pool, 512));
}

static void write_word(struct litmus *l, uint64_t remote, uint64_t value, unsigned flags)
{
    uint64_t *from = rd_ep_memory(l->ep);

    assert_int_equal(0, rd_write(l->conn, 1, remote, &from[value - 1], 8, flags));
}

static void two_writes(struct litmus *l)
{
    write_word(l, 0, 1, RD_MORE);
    write_word(l, 512, 1, 0);
}

static void l1__two_writes__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = two_writes,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

static void flush_polled(struct litmus *l)
{
    write_word(l, 0, 1, 0);
    assert_int_equal(0, rd_flush(l->conn, 2, 0, 8, RD_SIGNALED));
    await(l, RD_EV_COMPLETION);
    write_word(l, 512, 1, 0);
}

static void l2__flush_polled__first_is_durable(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = flush_polled,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x10, 0x11, -1});
}

static void flush_not_polled(struct litmus *l)
{
    write_word(l, 0, 1, 0);
    assert_int_equal(0, rd_flush(l->conn, 2, 0, 8, 0));
    write_word(l, 512, 1, 0);
}

static void l3__flush_not_polled_no_fence__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = flush_not_polled,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

static void flush_then_mark(struct litmus *l)
{
    write_word(l, 0, 1, 0);
    assert_int_equal(0, rd_flush(l->conn, 2, 0, 8, 0));
    assert_int_equal(0, rd_mark(l->conn, 3, 512, 1, 0));
}

static void l4__mark_behind_flush__never_alone(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = flush_then_mark,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x10, 0x11, -1});
}

static void same_word_twice(struct litmus *l)
{
    write_word(l, 0, 1, 0);
    write_word(l, 0, 2, 0);
}

static void l6__same_word_twice__any_of_its_values(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = same_word_twice,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x10, 0x20, -1});
}

static void write_line(struct litmus *l)
{
    assert_int_equal(0, rd_write(l->conn, 1, 0, rd_ep_memory(l->ep), 64, 0));
}

static uint32_t outcome_words(const struct sim_pool *pool)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < 8; i++) {
        uint64_t v = word(pool, 8 * i);
        assert_true(v == 0 || v == i + 1);
        set |= (v != 0 ? 1u : 0u) << i;
    }
    return set;
}

static void l7__line_torn__any_subset_of_words(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .client = write_line,
        .outcome = outcome_words, .seeds = SEEDS_MANY};
    int expected[257];

    for (int i = 0; i < 256; i++)
        expected[i] = i;
    expected[256] = -1;
    check(&l, expected);
}

static void l8__flush_polled_with_ddio__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR_DDIO, .crash = SIM_CRASH_POWER, .client = flush_polled,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

static void l9__flush_polled_eadr__first_is_durable(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_EADR, .crash = SIM_CRASH_POWER, .client = flush_polled,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x10, 0x11, -1});
}

static void pool_store(struct litmus *l, uint64_t off, uint64_t value)
{
    struct pm pm;

    sim_pool_pm(l->pool, &l->node_actor->env, &pm);
    pm_store64(&pm, off, value);
}

static void two_lines(struct litmus *l)
{
    struct pm pm;

    sim_pool_pm(l->pool, &l->node_actor->env, &pm);
    pm_store64(&pm, 0, 1);
    pm_flush(&pm, 0, 8);
    pm_store64(&pm, 512, 1);
}

static void l10__write_back_without_fence__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .node = two_lines,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

static void fenced_lines(struct litmus *l)
{
    struct pm pm;

    two_lines(l);
    sim_pool_pm(l->pool, &l->node_actor->env, &pm);
    pm_fence(&pm, CN_STEP_a_body);
}

static void l10__write_back_and_fence__first_is_durable(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .node = fenced_lines,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x10, 0x11, -1});
}

static void one_line(struct litmus *l)
{
    pool_store(l, 0, 1);
    pool_store(l, 8, 1);
}

static uint32_t outcome_line(const struct sim_pool *pool)
{
    return (uint32_t)(word(pool, 0) << 4 | word(pool, 8));
}

static void l11__two_stores_one_line__in_order(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_POWER, .node = one_line,
        .outcome = outcome_line};
    check(&l, (const int[]){0x00, 0x10, 0x11, -1});
}

static void write_polled(struct litmus *l)
{
    write_word(l, 0, 1, RD_SIGNALED);
    await(l, RD_EV_COMPLETION);
}

static void l12__process_crash_after_completion__visible(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_PROCESS, .client = write_polled,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x10, -1});
}

static void three_packets(struct litmus *l)
{
    l->sim->fabric->packet_max = 64;
    assert_int_equal(0, rd_write(l->conn, 1, 0, rd_ep_memory(l->ep), 192, 0));
}

static uint32_t outcome_packets(const struct sim_pool *pool)
{
    uint32_t set = 0;

    for (uint32_t p = 0; p < 3; p++) {
        bool there = word(pool, 64 * p) != 0;
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(there, word(pool, 64 * p + 8 * i) != 0);
        set |= (there ? 1u : 0u) << p;
    }
    return set;
}

static void l13__sender_dies__a_prefix_of_the_packets(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR, .crash = SIM_CRASH_PROCESS, .client = three_packets,
        .client_dies = true, .outcome = outcome_packets};
    check(&l, (const int[]){0, 1, 3, 7, -1});
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l1__two_writes__any_subset),
        cmocka_unit_test(l2__flush_polled__first_is_durable),
        cmocka_unit_test(l3__flush_not_polled_no_fence__any_subset),
        cmocka_unit_test(l4__mark_behind_flush__never_alone),
        cmocka_unit_test(l6__same_word_twice__any_of_its_values),
        cmocka_unit_test(l7__line_torn__any_subset_of_words),
        cmocka_unit_test(l8__flush_polled_with_ddio__any_subset),
        cmocka_unit_test(l9__flush_polled_eadr__first_is_durable),
        cmocka_unit_test(l10__write_back_without_fence__any_subset),
        cmocka_unit_test(l10__write_back_and_fence__first_is_durable),
        cmocka_unit_test(l11__two_stores_one_line__in_order),
        cmocka_unit_test(l12__process_crash_after_completion__visible),
        cmocka_unit_test(l13__sender_dies__a_prefix_of_the_packets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
