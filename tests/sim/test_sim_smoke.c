/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: without faults everything commits or conflicts, the checks hold, and the round trips on the
 * critical path are what docs/commit-protocol.md promises.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"

static void cluster_run__no_faults__checks_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 25};
    struct sw_sweep sweep = {.first = 1, .count = 60, .seconds = 20};

    assert_true(sw_sweep("sim-sim_smoke", &setup, &sweep));
    sw_sweep_print(&sweep);
    assert_true(sweep.counts.committed > 100);
    /* A node's CPU may be later with a flush than a record may stay unmarked. */
    assert_true(sweep.counts.unknown <= 2);
    /* The ways that nodes' CPUs take part in are among the seeds. */
    assert_true(sweep.counts.flushes_served > 0);
    assert_true(sweep.counts.cas_served > 0);
}

/* ---- round trips ---- */

static uint64_t trips(struct cr_client *client)
{
    struct cairn_stats stats;

    cairn_ctx_stats(client->ctx, &stats);
    return stats.round_trips;
}

enum shape { READ_ONE, READ_TWO, UPDATE, READ_AND_WRITE };

static int try_shape(struct cr_client *client, enum shape shape)
{
    char buf[64];
    size_t size;
    struct cairn_tx *tx;
    enum cairn_outcome outcome;
    int rc = cairn_begin(client->ctx, &tx);

    if (rc != 0)
        return rc;
    rc = shape == UPDATE || shape == READ_AND_WRITE
        ? cairn_get_for_update(tx, 1, "k1", 2, buf, sizeof(buf), &size)
        : cairn_get(tx, 1, "k1", 2, buf, sizeof(buf), &size);
    if (rc == 0 && (shape == READ_TWO || shape == READ_AND_WRITE))
        rc = cairn_get(tx, 1, "k2", 2, buf, sizeof(buf), &size);
    if (rc == 0 && (shape == UPDATE || shape == READ_AND_WRITE))
        rc = cairn_put(tx, 1, "k1", 2, "new", 3);
    if (rc != 0) {
        cairn_abort(tx);
        return rc;
    }
    rc = cairn_commit(tx, &outcome);
    return rc != 0 ? rc : outcome == CAIRN_OUTCOME_COMMITTED ? 0 : CAIRN_E_CONFLICT;
}

static void insist(struct cr_client *client, enum shape shape)
{
    for (int i = 0; i < 50 && try_shape(client, shape) != 0; i++)
        sim_sleep(&client->cluster->sim, client->cluster->sim.now + SIM_MS);
}

static uint64_t measured[4];

static void measure(struct cr_client *client)
{
    struct sim *sim = &client->cluster->sim;
    struct cairn_tx *tx;
    enum cairn_outcome outcome;

    if (cairn_begin(client->ctx, &tx) != 0 || cairn_put(tx, 1, "k1", 2, "old", 3) != 0 ||
        cairn_put(tx, 1, "k2", 2, "old", 3) != 0 || cairn_commit(tx, &outcome) != 0)
        sim_fail(sim, "the first writes failed: %s", cairn_last_error());
    for (enum shape s = READ_ONE; s <= READ_AND_WRITE; s++) {
        sim_sleep(sim, sim->now + 5 * SIM_MS);
        insist(client, s); /* warms up */
        sim_sleep(sim, sim->now + 5 * SIM_MS);
        uint64_t before = trips(client);
        int rc = try_shape(client, s);
        measured[s] = trips(client) - before;
        if (rc != 0)
            sim_fail(sim, "shape %u: %s (%s)", s, cairn_error_name(rc), cairn_last_error());
    }
}

static void transactions__warm_no_conflict__round_trips_as_promised(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 2, .clients = 1, .plain = true, .body = measure};
    struct cr_result r;

    cr_cluster_run(&setup, 7, &r);
    if (r.failed)
        print_error("%s\n", r.failure);
    assert_false(r.failed);
    printf("round trips: read one %lu, read two %lu, update %lu, read and write %lu\n",
        measured[READ_ONE], measured[READ_TWO], measured[UPDATE], measured[READ_AND_WRITE]);
    assert_int_equal(1, measured[READ_ONE]);
    assert_int_equal(2, measured[UPDATE]);
    /* The blocking calls read their two keys one after the other: one more than in parallel. */
    assert_int_equal(2 + 1, measured[READ_TWO]);
    assert_int_equal(3 + 1, measured[READ_AND_WRITE]);
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_run__no_faults__checks_hold),
        cmocka_unit_test(transactions__warm_no_conflict__round_trips_as_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
