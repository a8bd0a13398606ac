/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an idle node takes less than 2 % of a core in the adaptive and the event mode, and really
 * polls in the poll mode; commits work in each. Method: the CPU time of the node's thread, and on
 * `emu`, where the fabric has threads, of the whole process, over a span in which nobody asks for
 * anything; without a coordinator and with one that is connected and idle. The fabric is that of
 * ts_fabric.h.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_cluster.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SPAN_US 2000000u
#define SETTLE_US 300000u
#define IDLE_MAX 0.02
#define BUSY_MIN 0.05 /* of a core: far from idle, and reached on a busy machine too */
#define TRIES 4u      /* what the machine does else should not decide */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;

    assert_int_equal(clock_gettime(clock, &ts), 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct load { /* parts of a core */
    double node, process;
};

static struct load measure(struct ts_cluster *cluster)
{
    clockid_t thread;

    assert_int_equal(pthread_getcpuclockid(cluster->node[0].thread, &thread), 0);
    uint64_t node = clock_ns(thread), process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t wall = clock_ns(CLOCK_MONOTONIC);
    (void)usleep(SPAN_US);
    node = clock_ns(thread) - node;
    process = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process;
    wall = clock_ns(CLOCK_MONOTONIC) - wall;
    return (struct load){(double)node / (double)wall, (double)process / (double)wall};
}

static bool is_idle(struct load load)
{
    return load.node < IDLE_MAX && (load.process < IDLE_MAX || !ts_fabric_is_emu());
}

/* The least of some spans: growth and scrub have their ends. */
static struct load least(struct ts_cluster *cluster, const char *what)
{
    struct load best = {1e9, 1e9};

    (void)usleep(SETTLE_US);
    for (uint32_t i = 0; i < TRIES && !is_idle(best); i++) {
        struct load load = measure(cluster);
        best.node = load.node < best.node ? load.node : best.node;
        best.process = load.process < best.process ? load.process : best.process;
    }
    print_message("%s: node's thread %.2f %%, process %.2f %% of a core\n", what,
        100 * best.node, 100 * best.process);
    return best;
}

static void commit_some(struct cairn_ctx *ctx)
{
    for (uint32_t i = 0; i < 50; i++) {
        enum cairn_outcome outcome;
        struct cairn_tx *tx;
        assert_int_equal(cairn_begin(ctx, &tx), 0);
        assert_int_equal(cairn_put(tx, 1, &i, sizeof(i), "value", 5), 0);
        assert_int_equal(cairn_commit(tx, &outcome), 0);
    }
}

static void check_idle(const struct cn_pace *pace, const char *what)
{
    struct ts_cluster *cluster = ts_cluster_new_paced(1, pace);
    struct cairn_ctx *ctx;
    char text[64];

    (void)snprintf(text, sizeof(text), "%s, alone", what);
    struct load alone = least(cluster, text);
    assert_int_equal(cairn_ctx_open(cluster->cairn, &ctx), 0);
    commit_some(ctx);
    (void)snprintf(text, sizeof(text), "%s, a coordinator connected", what);
    struct load connected = least(cluster, text);
    commit_some(ctx); /* it wakes up again */
    cairn_ctx_close(&ctx);
    ts_cluster_delete(&cluster);
    assert_true(is_idle(alone));
    assert_true(is_idle(connected));
}

static void idle__adaptive__below_two_percent(void **state)
{
    const struct cn_pace pace = CN_PACE_DEFAULT;

    (void)state;
    check_idle(&pace, "adaptive");
}

static void idle__event__below_two_percent(void **state)
{
    struct cn_pace pace = CN_PACE_DEFAULT;

    (void)state;
    pace.mode = CN_PACE_EVENT;
    check_idle(&pace, "event");
}

static void idle__poll__really_polls(void **state)
{
    struct cn_pace pace = CN_PACE_DEFAULT;
    struct load load = {0, 0};
    struct cairn_ctx *ctx;

    (void)state;
    pace.mode = CN_PACE_POLL;
    struct ts_cluster *cluster = ts_cluster_new_paced(1, &pace);
    assert_int_equal(cairn_ctx_open(cluster->cairn, &ctx), 0);
    commit_some(ctx);
    for (uint32_t i = 0; i < TRIES && load.node < BUSY_MIN; i++)
        load = measure(cluster);
    print_message("poll: node's thread %.0f %% of a core\n", 100 * load.node);
    commit_some(ctx);
    cairn_ctx_close(&ctx);
    ts_cluster_delete(&cluster);
    assert_true(load.node >= BUSY_MIN);
}

/* The longest that a node lingers, so that it can be told from both: it polls on after work, and
 * then sleeps. Over real RDMA timers of the fabric wake it as well, more often than that. */
static void adaptive__long_linger__polls_then_sleeps(void **state)
{
    struct cn_pace pace = CN_PACE_DEFAULT;
    struct load busy = {0, 0}, idle = {1e9, 1e9};
    struct cairn_ctx *ctx;

    (void)state;
    if (!ts_fabric_is_emu())
        skip();
    pace.linger_us = 1000000;
    struct ts_cluster *cluster = ts_cluster_new_paced(1, &pace);
    assert_int_equal(cairn_ctx_open(cluster->cairn, &ctx), 0);
    for (uint32_t i = 0; i < TRIES && busy.node < BUSY_MIN; i++) {
        commit_some(ctx);
        busy = measure(cluster); /* about half of it lingering */
    }
    idle = least(cluster, "lingered");
    cairn_ctx_close(&ctx);
    ts_cluster_delete(&cluster);
    assert_true(busy.node >= BUSY_MIN);
    assert_true(idle.node < IDLE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle__adaptive__below_two_percent),
        cmocka_unit_test(idle__event__below_two_percent),
        cmocka_unit_test(idle__poll__really_polls),
        cmocka_unit_test(adaptive__long_linger__polls_then_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
