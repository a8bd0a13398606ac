/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: when a node sleeps, and for how long at most. Method: the decision alone on a node made by
 * hand, in all modes and loads; then a real node over `emu` whose sleeps are counted and timed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recovery/rec_internal.h"
#include "tests/support/ts_filled.h"

#define WINDOW 100u
#define LATE_MS 20u  /* the bound where doorbells may stay away */
#define SLEEP_MS 100u

static struct txn_config config;

static void rec_may_sleep__modes_and_loads__table(void **state)
{
    struct txn_part_slot part[2] = {0};
    struct rec_slot slot[2] = {{.part = &part[0]}, {.part = &part[1]}};
    struct rec_node node = {.config = &config, .slot = slot, .worked_ns = 1000 * REC_MS};
    const uint64_t worked = node.worked_ns, linger = 1000 * 1000;

    (void)state;
    node.part.slot_count = 2;
    node.part.window = WINDOW;
    config.pace = (struct cn_pace)CN_PACE_DEFAULT;
    part[1].media.state = PM_SLOT_OPEN;
    /* adaptive: lingers by the clock */
    assert_false(rec_may_sleep(&node, worked));
    assert_false(rec_may_sleep(&node, worked + linger - 1));
    assert_true(rec_may_sleep(&node, worked + linger));
    /* and longer with much outstanding, but not for ever */
    part[1].media.position_seq = 1000;
    part[1].seq_max = 1000 + 70;
    assert_true(rec_may_sleep(&node, worked + linger));
    part[1].seq_max = 1000 + 71;
    assert_false(rec_may_sleep(&node, worked + linger));
    assert_false(rec_may_sleep(&node, worked + 99 * REC_MS));
    assert_true(rec_may_sleep(&node, worked + 100 * REC_MS));
    part[1].media.state = PM_SLOT_CLOSED; /* nothing more comes into it */
    assert_true(rec_may_sleep(&node, worked + linger));
    part[1].media.state = PM_SLOT_OPEN;
    config.pace.mode = CN_PACE_EVENT;
    assert_true(rec_may_sleep(&node, worked));
    config.pace.mode = CN_PACE_POLL;
    assert_false(rec_may_sleep(&node, worked + 100000 * REC_MS));
}

static uint64_t slept(const struct rec_node *node)
{
    struct rec_node_stats stats;

    rec_node_stats(node, &stats);
    return stats.sleeps;
}

/* Until there is nothing left to do. */
static void settle(struct rec_node *node)
{
    for (uint32_t i = 0; i < 20; i++)
        while (rec_node_poll(node) != 0)
            ;
}

static void rec_node_rest__modes__sleeps_or_not(void **state)
{
    struct ts_filled *filled = *state;
    struct cn_pace *pace = &filled->config.pace;
    struct rec_node *node;
    struct pm_pool *pool;

    ts_filled_restore(filled);
    assert_int_equal(ts_filled_open(filled, &pool, &node), 0);
    settle(node);
    *pace = (struct cn_pace)CN_PACE_DEFAULT;
    pace->linger_us = 1000000;
    uint64_t before = slept(node), soon = rec_now(node) + REC_MS;
    rec_node_rest(node, 1, soon); /* it worked */
    rec_node_rest(node, 0, soon); /* and lingers */
    assert_int_equal(slept(node), before);
    pace->linger_us = 1;
    settle(node);
    rec_node_rest(node, 0, rec_now(node) + REC_MS);
    assert_int_equal(slept(node), before + 1);
    pace->mode = CN_PACE_POLL;
    rec_node_rest(node, 0, rec_now(node) + REC_MS);
    assert_int_equal(slept(node), before + 1);
    pace->mode = CN_PACE_EVENT;
    rec_node_rest(node, 1, rec_now(node) + REC_MS); /* there may be more */
    assert_int_equal(slept(node), before + 1);
    settle(node);
    rec_node_rest(node, 0, rec_now(node) + REC_MS);
    assert_int_equal(slept(node), before + 2);
    memset(pace, 0, sizeof(*pace));
    rec_node_close(&node);
}

/* The shortest of some sleeps that nothing but a timer or the deadline ends. */
static uint64_t sleep_ms(struct rec_node *node)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < 5; i++) {
        settle(node);
        uint64_t before = slept(node), begin = rec_now(node);
        rec_node_sleep(node, begin + SLEEP_MS * REC_MS);
        if (slept(node) != before)
            best = cn_min64(best, (rec_now(node) - begin) / REC_MS);
    }
    return best;
}

static void rec_node_sleep__doorbells_may_stay_away__looks_often(void **state)
{
    struct ts_filled *filled = *state;
    struct rec_guest guest = {.slot = 0};
    struct rec_node *node;
    struct pm_pool *pool;

    ts_filled_restore(filled);
    assert_int_equal(ts_filled_open(filled, &pool, &node), 0);
    /* what the crash left is resolved and scrubbed first: until then there are shorter timers */
    for (uint32_t i = 0; i < 500 && sleep_ms(node) < SLEEP_MS; i++)
        ;
    assert_true(sleep_ms(node) >= SLEEP_MS);
    node->hears_late = true; /* nobody is connected: as before */
    assert_true(sleep_ms(node) >= SLEEP_MS);
    node->guests = &guest;
    assert_true(sleep_ms(node) >= SLEEP_MS); /* one that has no ring */
    guest.slot = 1;
    node->worked_ns = rec_now(node);
    assert_in_range(sleep_ms(node), LATE_MS / 2, SLEEP_MS / 2);
    node->worked_ns = 0; /* quiet for long: who comes now rings */
    assert_true(sleep_ms(node) >= SLEEP_MS);
    node->worked_ns = rec_now(node);
    node->hears_late = false;
    assert_true(sleep_ms(node) >= SLEEP_MS);
    node->guests = NULL;
    rec_node_close(&node);
}

static int setup(void **state)
{
    *state = ts_filled_new();
    return 0;
}

static int teardown(void **state)
{
    struct ts_filled *filled = *state;

    ts_filled_delete(&filled);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rec_may_sleep__modes_and_loads__table),
        cmocka_unit_test(rec_node_rest__modes__sleeps_or_not),
        cmocka_unit_test(rec_node_sleep__doorbells_may_stay_away__looks_often),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
