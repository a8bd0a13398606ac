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
#define POOL_SIZE 12288u
#define RING 4096u /* before it: an extent */
/* Behind the ring's header page; offsets of writes and of `word` count from here. */
#define LOG 8192u
#define LOG_MEMORY 512u
#define OUTCOMES_MAX 512u

struct litmus {
    enum sim_mode mode;
    enum sim_crash crash;
    enum rd_durability durability; /* 0: APM */
    uint32_t lanes;                /* 0: as many as there are */
    bool message_atomics;
    bool deaf; /* the node accepts, and then polls no more */
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
    struct rd_region *extent, *ring;

    assert_int_equal(0, rd_ep_open(&actor->sim->fabric->base, &config, &ep));
    struct rd_memory memory = {.base = l->pool->visible, .size = RING, .fd = -1};
    assert_int_equal(0, rd_region_new(ep, &memory, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &extent));
    memory = (struct rd_memory){.base = l->pool->visible + RING, .pool_off = RING,
        .size = POOL_SIZE - RING, .fd = -1, .durability = l->durability};
    assert_int_equal(0, rd_region_new(ep, &memory, RD_ACCESS_READ | RD_ACCESS_WRITE, &ring));
    assert_int_equal(0, rd_listen(ep, "n1"));
    if (l->node != NULL) {
        l->node(l);
        l->done = true;
    }
    for (;;) {
        struct rd_event e[4];
        uint32_t n = rd_poll(ep, e, 4);
        for (uint32_t i = 0; i < n; i++) {
            if (e[i].type != RD_EV_CONNECT)
                continue;
            assert_int_equal(0, rd_accept(e[i].conn, &extent, 1, ring, "w", 1));
            while (l->deaf)
                sim_sleep(actor->sim, SIM_FOREVER);
        }
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

static void *log_memory(struct litmus *l)
{
    return (uint8_t *)rd_ep_memory(l->ep) + 1024 - LOG_MEMORY;
}

static void run_client(struct sim_actor *actor)
{
    struct litmus *l = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 2, .outstanding_max = 16,
        .memory_size = 1024, .log_memory_size = LOG_MEMORY, .name = "client"};

    if (l->client == NULL)
        return;
    assert_int_equal(0, rd_ep_open(&actor->sim->fabric->base, &config, &l->ep));
    assert_int_equal(
        0, rd_connect(l->ep, "n1", "h", 1, actor->sim->now + 50 * SIM_MS, &l->conn));
    await(l, RD_EV_UP);
    uint64_t *value = log_memory(l);
    for (uint64_t i = 0; i < LOG_MEMORY / 8; i++)
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
    sim.fabric->message_atomics = l->message_atomics;
    if (l->lanes != 0)
        sim.fabric->lanes = l->lanes;
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

    memcpy(&v, pool->visible + LOG + off, 8);
    return v;
}

/* x lies at 0, y at 512 of the log. */
static uint32_t outcome_xy(const struct sim_pool *pool)
{
    return (uint32_t)(word(pool, 0) << 4 | word(pool, 512));
}

static void write_word(struct litmus *l, uint64_t remote, uint64_t value, unsigned flags)
{
    uint64_t *from = log_memory(l);

    assert_int_equal(0, rd_write(l->conn, 1, LOG + remote, &from[value - 1], 8, flags));
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
    assert_int_equal(0, rd_flush(l->conn, 2, LOG, 8, RD_SIGNALED));
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
    assert_int_equal(0, rd_flush(l->conn, 2, LOG, 8, 0));
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
    assert_int_equal(0, rd_flush(l->conn, 2, LOG, 8, 0));
    assert_int_equal(0, rd_mark(l->conn, 3, LOG + 512, 1, 0));
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
    assert_int_equal(0, rd_write(l->conn, 1, LOG, log_memory(l), 64, 0));
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
    pm_store64(&pm, LOG + off, value);
}

static void two_lines(struct litmus *l)
{
    struct pm pm;

    sim_pool_pm(l->pool, &l->node_actor->env, &pm);
    pm_store64(&pm, LOG, 1);
    pm_flush(&pm, LOG, 8);
    pm_store64(&pm, LOG + 512, 1);
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
    assert_int_equal(0, rd_write(l->conn, 1, LOG, log_memory(l), 192, 0));
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

/* ---- reads and compare-and-swaps: u lies at 0, v at 512 of the extent ---- */

static uint32_t outcome_uv(const struct sim_pool *pool)
{
    uint64_t u, v;

    memcpy(&u, pool->visible, 8);
    memcpy(&v, pool->visible + 512, 8);
    return (uint32_t)(u << 4 | v);
}

static void cas(struct litmus *l, uint64_t remote, uint64_t expected, unsigned flags)
{
    uint64_t *old = (uint64_t *)rd_ep_memory(l->ep) + expected;

    assert_int_equal(0, rd_cas(l->conn, 1, remote, expected, expected + 1, old, flags));
}

static void two_words(struct litmus *l)
{
    cas(l, 0, 0, 0);
    cas(l, 512, 0, 0);
}

static void l14__two_cas_sender_dies__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.client = two_words, .client_dies = true, .crash = SIM_CRASH_PROCESS,
        .outcome = outcome_uv};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

static void l14__two_cas_one_lane__in_order(void **state)
{
    (void)state;
    struct litmus l = {.client = two_words, .client_dies = true, .crash = SIM_CRASH_PROCESS,
        .lanes = 1, .outcome = outcome_uv};
    check(&l, (const int[]){0x00, 0x10, 0x11, -1});
}

static void one_word_four_times(struct litmus *l)
{
    for (uint64_t i = 0; i < 4; i++)
        cas(l, 0, i, RD_SIGNALED);
    for (uint64_t i = 0; i < 4; i++)
        await(l, RD_EV_COMPLETION);
}

static void l15__cas_at_one_offset__in_order(void **state)
{
    (void)state;
    struct litmus l = {.client = one_word_four_times, .crash = SIM_CRASH_PROCESS,
        .outcome = outcome_uv};
    check(&l, (const int[]){0x40, -1});
    l.message_atomics = true;
    check(&l, (const int[]){0x40, -1});
}

/* What the read sees goes, swapped in, to v. */
static void cas_then_read(struct litmus *l)
{
    uint64_t *to = (uint64_t *)rd_ep_memory(l->ep) + 8;

    cas(l, 0, 0, RD_SIGNALED);
    assert_int_equal(0, rd_read(l->conn, 2, 0, to, 8, RD_SIGNALED));
    await(l, RD_EV_COMPLETION);
    await(l, RD_EV_COMPLETION);
    assert_int_equal(0, rd_cas(l->conn, 3, 512, 0, 2 + *to, to + 1, RD_SIGNALED));
    await(l, RD_EV_COMPLETION);
}

static void l16__read_behind_cas__before_or_after(void **state)
{
    (void)state;
    struct litmus l = {.client = cas_then_read, .crash = SIM_CRASH_PROCESS, .outcome = outcome_uv};
    check(&l, (const int[]){0x12, 0x13, -1});
    memset(l.seen, 0, sizeof(l.seen));
    l.lanes = 1;
    check(&l, (const int[]){0x13, -1});
}

/* ---- what the node's CPU does ---- */

static void l17__cas_by_message_node_dies__done_or_not(void **state)
{
    (void)state;
    struct litmus l = {.client = two_words, .crash = SIM_CRASH_PROCESS, .message_atomics = true,
        .outcome = outcome_uv};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
    memset(l.seen, 0, sizeof(l.seen));
    l.deaf = true;
    check(&l, (const int[]){0x00, -1});
}

static void l18__flush_by_message_polled__first_is_durable(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR_DDIO, .durability = RD_DURABILITY_GPSPM,
        .crash = SIM_CRASH_POWER, .client = flush_polled, .outcome = outcome_xy};
    check(&l, (const int[]){0x10, 0x11, -1});
}

static void l19__flush_by_message_not_polled__any_subset(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR_DDIO, .durability = RD_DURABILITY_GPSPM,
        .crash = SIM_CRASH_POWER, .client = flush_not_polled, .outcome = outcome_xy};
    check(&l, (const int[]){0x00, 0x01, 0x10, 0x11, -1});
}

/* Does the flush complete within a hundred milliseconds? */
static void flush_alone(struct litmus *l)
{
    struct rd_event e;
    uint64_t until = l->sim->now + 100 * SIM_MS;

    write_word(l, 0, 1, 0);
    assert_int_equal(0, rd_flush(l->conn, 2, LOG, 8, RD_SIGNALED));
    while (l->sim->now < until)
        if (rd_poll(l->ep, &e, 1) == 1)
            cas(l, 0, 0, 0);
}

static void l20__flush_node_does_not_poll__by_read_alone(void **state)
{
    (void)state;
    struct litmus l = {.durability = RD_DURABILITY_GPSPM, .crash = SIM_CRASH_PROCESS, .deaf = true,
        .client = flush_alone, .seeds = 200, .outcome = outcome_uv};
    check(&l, (const int[]){0x00, -1});
    l.durability = RD_DURABILITY_APM;
    memset(l.seen, 0, sizeof(l.seen));
    check(&l, (const int[]){0x10, -1});
}

static void mark_too_early(struct litmus *l)
{
    write_word(l, 0, 1, 0);
    assert_int_equal(l->durability, l->conn->durability);
    assert_int_equal(0, rd_flush(l->conn, 2, LOG, 8, RD_SIGNALED));
    assert_int_equal(l->durability == RD_DURABILITY_GPSPM ? CAIRN_E_STATE : 0,
        rd_mark(l->conn, 3, LOG + 512, 1, 0));
    await(l, RD_EV_COMPLETION);
    assert_int_equal(0, rd_mark(l->conn, 3, LOG + 512, 1, RD_SIGNALED));
    await(l, RD_EV_COMPLETION);
}

static void l21__mark_before_the_flush_completed__refused(void **state)
{
    (void)state;
    struct litmus l = {.mode = SIM_ADR_DDIO, .durability = RD_DURABILITY_GPSPM,
        .crash = SIM_CRASH_PROCESS, .client = mark_too_early, .seeds = 200, .outcome = outcome_xy};
    check(&l, (const int[]){0x11, -1});
    l.durability = RD_DURABILITY_APM;
    check(&l, (const int[]){0x11, -1});
}

static void header_page(struct litmus *l)
{
    void *from = log_memory(l);

    assert_int_equal(CAIRN_E_FABRIC, rd_write(l->conn, 1, RING + 8, from, 8, 0));
    assert_int_equal(CAIRN_E_FABRIC, rd_mark(l->conn, 1, RING + 4088, 1, 0));
    assert_int_equal(0, rd_read(l->conn, 1, RING + 8, from, 8, RD_SIGNALED));
    await(l, RD_EV_COMPLETION);
}

static void post__header_page__read_only(void **state)
{
    (void)state;
    struct litmus l = {.client = header_page, .crash = SIM_CRASH_PROCESS, .seeds = 1,
        .outcome = outcome_xy};
    check(&l, (const int[]){0x00, -1});
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
        cmocka_unit_test(l14__two_cas_sender_dies__any_subset),
        cmocka_unit_test(l14__two_cas_one_lane__in_order),
        cmocka_unit_test(l15__cas_at_one_offset__in_order),
        cmocka_unit_test(l16__read_behind_cas__before_or_after),
        cmocka_unit_test(l17__cas_by_message_node_dies__done_or_not),
        cmocka_unit_test(l18__flush_by_message_polled__first_is_durable),
        cmocka_unit_test(l19__flush_by_message_not_polled__any_subset),
        cmocka_unit_test(l20__flush_node_does_not_poll__by_read_alone),
        cmocka_unit_test(l21__mark_before_the_flush_completed__refused),
        cmocka_unit_test(post__header_page__read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
