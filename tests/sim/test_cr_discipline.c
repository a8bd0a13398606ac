/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a store or an answer that relies on what is not durable is noticed where it happens, in one
 * run, without any crash (invariant I16); and the shipped code never is. Method: cases of the
 * closed set and runs of the whole cluster under cr_discipline.h, as shipped, also with crashes;
 * and with one rule broken at a time (cn_mutant.h), no crash, no image. CAIRN_SIM_SEEDS: so many
 * clusters of each kind. And rules whose breaking the closed set finds in an image.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "include/internal/cn_mutant.h"
#include "tools/crash/campaign/cr_scripts_internal.h"
#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/explore/cr_enum_run.h"
#include "txn/txn_ctx.h"

static uint64_t looked; /* at acknowledgements */

/* One case: what was said of it; "" if nothing. */
static const char *run_case(uint32_t number, enum rd_durability durability, enum sim_mode mode)
{
    static struct cr_small_result result;
    struct cr_enum_options options = {
        .no_images = true, .durability = durability, .mode = mode, .seed = 0};
    struct cr_case c;

    assert_true(cr_case_get(number, &c));
    cr_small_case(&c, &options, &result);
    looked += result.disciplined;
    return result.failed ? result.failure : "";
}

/* "put a, put b" at two nodes; every put, update and delete there is. */
#define TWO_NODES 76u

static void discipline__singles_as_shipped__kept(void **state)
{
    (void)state;
    static const struct { enum rd_durability durability; enum sim_mode mode; } ways[] = {
        {RD_DURABILITY_APM, SIM_ADR}, {RD_DURABILITY_GPSPM, SIM_ADR_DDIO},
        {RD_DURABILITY_GPSPM, SIM_ADR}, {RD_DURABILITY_EADR, SIM_EADR}};

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(ways); i++)
        for (uint32_t n = 2; n < cr_enum_count(CR_ENUM_SINGLES); n += 53)
            assert_string_equal("", run_case(n, ways[i].durability, ways[i].mode));
    assert_true(looked > 50);
}

/* Positive control: where the NIC's writes stay in the cache, a flush by reading makes nothing
 * durable. */
static void discipline__apm_with_ddio__broken(void **state)
{
    (void)state;
    assert_non_null(strstr(run_case(TWO_NODES, RD_DURABILITY_APM, SIM_ADR_DDIO), "I16"));
}

static bool run_cluster(const struct cr_setup *setup, uint64_t seed, char *failure, size_t size)
{
    struct cr_result r;

    cr_cluster_run(setup, seed, &r);
    snprintf(failure, size, "%.300s", r.failed ? r.failure : "");
    return !r.failed;
}

static void discipline__clusters_as_shipped__kept(void **state)
{
    (void)state;
    const struct cr_setup setup[] = {{.ops = 15, .discipline = true},
        {.ops = 15, .discipline = true, .faults = CR_FAULTS_ALL}};
    const char *text = getenv("CAIRN_SIM_SEEDS");
    uint64_t seeds = text != NULL ? strtoull(text, NULL, 0) : 12;
    char failure[400];

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(setup); i++)
        for (uint64_t seed = 1; seed <= seeds; seed++)
            if (!run_cluster(&setup[i], seed, failure, sizeof(failure)))
                fail_msg("seed %lu: %s", seed, failure);
}

static void discipline__rule_broken__seen_in_one_run(void **state)
{
    (void)state;
    static const struct { enum cn_mutant mutant; const char *text; } broken[] = {
        {CN_MUTANT_c_ack_before_flush, "COMMITTED is returned"},
        {CN_MUTANT_c_flush_skipped, "COMMITTED is returned"},
        {CN_MUTANT_n_apply_unpersisted, "which is not durable"},
        {CN_MUTANT_n_no_body_fence, "calls applied record"},
        {CN_MUTANT_n_no_applied_fence, "that it is applied is not durable"},
        {CN_MUTANT_n_release_before_applied, "that it is applied is not durable"},
        {CN_MUTANT_n_no_release_fence, "the release of"},
        {CN_MUTANT_n_publish_before_position, "publishes the position"},
    };

    for (size_t i = 0; i < CN_ARRAY_SIZE(broken); i++) {
        cn_mutant_active = (int)broken[i].mutant;
        /* An update at one node: its record is applied while its flush is under way. */
        const char *one = run_case(3, RD_DURABILITY_APM, SIM_ADR);
        char text[400];
        snprintf(text, sizeof(text), "%.399s", one);
        if (text[0] == '\0')
            snprintf(text, sizeof(text), "%.399s", run_case(TWO_NODES, RD_DURABILITY_APM, SIM_ADR));
        cn_mutant_active = CN_MUTANT_none;
        if (strstr(text, "I16") == NULL || strstr(text, broken[i].text) == NULL)
            fail_msg("mutant %d: \"%s\" instead of \"%s\"", broken[i].mutant, text,
                broken[i].text);
        printf("%2d %s\n", broken[i].mutant, text);
    }
}

static void discipline__flush_answered_unpersisted__seen(void **state)
{
    (void)state;
    cn_mutant_active = CN_MUTANT_f_answer_unpersisted;
    const char *text = run_case(TWO_NODES, RD_DURABILITY_GPSPM, SIM_ADR_DDIO);
    cn_mutant_active = CN_MUTANT_none;
    assert_non_null(strstr(text, "COMMITTED is returned"));
}

/* ---- a word that two records of one slot name ---- */

static char keys[4][8];  /* two of the first node, one of the second, one of the third */
static uint32_t retried; /* runs in which both records are of one session */

enum reach { WHOLE, NO_ANSWERS, NO_REQUESTS }; /* of the other node, once it is locked there */

struct writer {
    struct cr_client *client;
    const char *key, *other; /* other: NULL, or of another node */
    uint32_t node;           /* its index */
    enum reach reach;
    enum cairn_outcome outcome;
};

static int put_letter(struct cairn_tx *tx, const char *key)
{
    int rc = cr_script_get(tx, key, true);

    return rc != 0 ? rc : cairn_put(tx, CR_SCRIPT_TABLE, key, strlen(key), "w", 1);
}

static void write_keys(void *arg)
{
    struct writer *w = arg;
    struct cr_cluster *c = w->client->cluster;
    uint32_t me = w->client->actor->id, other = c->node[w->node].actor->id;
    struct cairn_tx *tx;

    w->outcome = CAIRN_OUTCOME_NONE;
    if (cairn_begin(w->client->ctx, &tx) != 0)
        return;
    int rc = put_letter(tx, w->key);
    if (rc == 0 && w->other != NULL)
        rc = put_letter(tx, w->other);
    if (rc != 0) {
        cairn_abort(tx);
        return;
    }
    if (w->reach == NO_ANSWERS)
        sim_fabric_block(&c->sim, other, me, 100 * SIM_MS);
    if (w->reach == NO_REQUESTS)
        sim_fabric_block(&c->sim, me, other, 100 * SIM_MS);
    (void)!cairn_commit(tx, &w->outcome);
}

static bool find_keys(struct cr_client *client)
{
    static const uint16_t node[] = {1, 1, 2, 3};
    uint32_t found = 0;
    char name[8];

    for (uint32_t i = 0; i < 64 && found < CN_ARRAY_SIZE(node); i++) {
        struct cairn_tx *tx;
        snprintf(name, sizeof(name), "d%u", i);
        if (!cr_script_put(client, name, "v", 1) || cairn_begin(client->ctx, &tx) != 0)
            return false;
        if (cr_script_get(tx, name, false) == 0 &&
            client->ctx->peer[tx->key[0].peer].node == node[found])
            memcpy(keys[found++], name, sizeof(name));
        cairn_abort(tx);
    }
    return found == CN_ARRAY_SIZE(node);
}

static void let_pass(struct cr_client *client, uint64_t us)
{
    struct sim *sim = &client->cluster->sim;

    for (uint64_t until = sim->now + us * SIM_US; sim->now < until && !sim->stop;) {
        (void)cairn_poll(client->ctx);
        sim_sleep(sim, sim->now + SIM_US);
    }
}

/* The first in flight stays in doubt for long: so the position stays, too. The second does not get
 * to its other node, and is prevented. Before the session hears of that, its key is written again,
 * of the same version, and applied. */
static void abort_and_retry(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    struct writer w[3] = {
        {.client = client, .key = keys[0], .other = keys[3], .node = 2, .reach = NO_ANSWERS},
        {.client = client, .key = keys[1], .other = keys[2], .node = 1, .reach = NO_REQUESTS},
        {.client = client, .key = keys[1]}};

    if (!find_keys(client))
        return;
    for (uint32_t i = 0; i < 2; i++) {
        if (txn_spawn(client->ctx, write_keys, &w[i]) != 0) {
            sim_fail(&c->sim, "spawn: %s", cairn_last_error());
            return;
        }
        let_pass(client, 200);
        if (i == 0)
            sim_actor_pause(c->node[2].actor, c->sim.now + 30 * SIM_MS);
    }
    struct cn_uuid session = client->ctx->session;
    write_keys(&w[2]);
    retried += w[2].outcome == CAIRN_OUTCOME_COMMITTED &&
        cn_uuid_equal(&session, &client->ctx->session);
    let_pass(client, 200);
    sim_fabric_heal(&c->sim);
    (void)txn_await_lanes(client->ctx);
}

static void discipline__aborted_and_written_again_in_one_slot__kept(void **state)
{
    (void)state;
    struct cr_setup setup = {.nodes = 3, .clients = 3, .group = 3, .work = 1u << CR_WORK_COUNTER,
        .body = abort_and_retry, .discipline = true, .rules = true};
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    retried = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        cr_cluster_run(&setup, seed, r);
        if (r->failed)
            fail_msg("seed %lu: %s", seed, r->failure);
    }
    sim_free(r);
    printf("%u of 60 in one session\n", retried);
    assert_true(retried > 0);
}

/* What no flush is missing for: the images show it. */
static void images__rule_broken__found(void **state)
{
    (void)state;
    /* An insert; two inserts at two nodes; a reader of two and a writer of both. */
    static const struct { enum cn_mutant mutant; uint32_t number; const char *text; } broken[] = {
        {CN_MUTANT_c_mark_before_flush, TWO_NODES, "power failure"},
        {CN_MUTANT_n_commit_unmarked, TWO_NODES, "no serial order"},
        {CN_MUTANT_n_no_redo_release, 2, "power failure"},
        {CN_MUTANT_c_skip_validate, 1959, "no serial order"},
        {CN_MUTANT_c_validate_ignores_lock, 1974, "no serial order"},
    };
    static struct cr_report report;

    for (size_t i = 0; i < CN_ARRAY_SIZE(broken); i++) {
        struct cr_enum_options options = {.one = true, .only = broken[i].number};
        cr_report_init(&report);
        cr_enum_run(&options, &report, NULL);
        assert_int_equal(0, report.violations);
        cr_report_init(&report);
        cn_mutant_active = (int)broken[i].mutant;
        cr_enum_run(&options, &report, NULL);
        cn_mutant_active = CN_MUTANT_none;
        if (report.violations == 0 || strstr(report.failure[0].what, broken[i].text) == NULL)
            fail_msg("mutant %d: \"%s\"", broken[i].mutant, report.failure[0].what);
        printf("%2d %.160s\n", broken[i].mutant, report.failure[0].what);
    }
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(discipline__singles_as_shipped__kept),
        cmocka_unit_test(discipline__apm_with_ddio__broken),
        cmocka_unit_test(discipline__clusters_as_shipped__kept),
        cmocka_unit_test(discipline__rule_broken__seen_in_one_run),
        cmocka_unit_test(discipline__flush_answered_unpersisted__seen),
        cmocka_unit_test(discipline__aborted_and_written_again_in_one_slot__kept),
        cmocka_unit_test(images__rule_broken__found),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    sim_fiber_trim();
    return failed;
}
