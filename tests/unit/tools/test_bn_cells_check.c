/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the check of `micro` and `ycsb` finds every way in which what lies in the cluster can
 * differ from what was committed.
 * Method: a small cluster in threads of this process (bn_nodes.c, tested along the way); some
 * transactions through the load's own body; then either the ledger or one value is falsified.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bn_cells.h"
#include "tools/bench/bn_nodes.h"
#include "txn/txn_cluster.h"

#define KEYS 200u
#define TRANSACTIONS 300u
#define TIMEOUT_MS 10000u

struct stand {
    struct bn_nodes nodes;
    struct rd_fabric *fabric;
    struct cairn *cairn;
    struct cairn_ctx *ctx;
    struct bn_cells_load load;
    struct bn_cells_worker worker;
    void *workers[1];
    uint64_t checked;
};

static int start(void **state)
{
    static const char *const tables[] = {"cells", NULL};
    const struct bn_nodes_options options = {.cluster = {.fabric = BN_FABRIC_EMU,
                                                 .name = "test",
                                                 .nodes = 3,
                                                 .pool_mb = 40,
                                                 .tables = tables},
        .threads = 2};
    struct stand *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    assert_int_equal(bn_nodes_start(&options, &s->nodes), 0);
    struct txn_config *config = s->nodes.cluster.config;
    assert_int_equal(txn_config_open_fabric(config, &s->fabric), 0);
    assert_int_equal(
        txn_cluster_open(config, s->fabric, cn_env_system(), NULL, &s->cairn), 0);
    assert_int_equal(cairn_ctx_open(s->cairn, &s->ctx), 0);
    struct bn_load *load = &s->load.load;
    static const struct bn_load_ops ops = {.name = "test"};
    *load = (struct bn_load){.ops = &ops,
        .threads = 1,
        .inflight = 1,
        .participants = 3,
        .worker = s->workers,
        .config = config};
    assert_int_equal(cairn_table(s->cairn, "cells", &load->table[0]), 0);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    struct stand *s = *state;
    struct bn_usage usage;

    bn_nodes_usage(&s->nodes, &usage);
    assert_true(usage.cpu_known && usage.counters_known);
    assert_true(usage.cpu_ns > 0 && usage.applied > 0);
    cairn_ctx_close(&s->ctx);
    cairn_close(&s->cairn);
    rd_fabric_delete(s->fabric);
    assert_int_equal(bn_nodes_stop(&s->nodes), 0);
    free(s);
    return 0;
}

/* Load, and run: updates, or blind writes, and inserts. */
static void work(struct stand *s, bool counted)
{
    struct bn_load *load = &s->load.load;
    uint64_t random = 1;

    s->load.cells = (struct bn_cells){
        .value_size = 24, .keys = KEYS, .touches_max = 4, .counted = counted};
    bn_zipf_init(&s->load.cells.zipf, KEYS, 0.5);
    memset(&s->worker, 0, sizeof(s->worker));
    s->workers[0] = &s->worker;
    assert_int_equal(bn_cells_load(load, s->ctx), 0);
    assert_int_equal(bn_cells_worker_init(load, &s->worker, 0), 0);
    for (uint32_t i = 0; i < TRANSACTIONS; i++) {
        struct bn_touches t = {0};
        bn_cells_begin(load, &s->worker, &t);
        bn_cells_touch(&s->worker, &random, &t, BN_TOUCH_READ, BN_ANY_SHARD);
        bn_cells_touch(&s->worker, &random, &t,
            counted ? BN_TOUCH_UPDATE : BN_TOUCH_BLIND, BN_ANY_SHARD);
        bn_cells_touch(&s->worker, &random, &t, BN_TOUCH_INSERT, BN_ANY_SHARD);
        assert_int_equal(cairn_run(s->ctx, bn_cells_body, &t, TIMEOUT_MS, NULL), 0);
        bn_cells_settle(load, &s->worker, &t, true);
    }
}

static int check(struct stand *s)
{
    return bn_cells_check(&s->load.load, s->ctx, &s->checked);
}

/* Some key that was written at least so often. */
static uint64_t written_key(const struct stand *s, uint32_t times)
{
    uint64_t key = 0;

    while (s->worker.key[key].written < times)
        key++;
    assert_true(key < KEYS);
    return key;
}

struct forged {
    struct stand *stand;
    uint64_t key;
    struct bn_cell cell;
    bool delete;
};

static int forge(struct cairn_tx *tx, void *arg)
{
    const struct forged *f = arg;
    const struct bn_cells *cells = &f->stand->load.cells;
    uint8_t key[BN_CELL_KEY_SIZE], value[24];

    bn_cell_key(f->key, key);
    bn_cell_pack(cells, f->key, &f->cell, value);
    if (f->delete)
        return cairn_delete(tx, cells->table, key, sizeof(key));
    return cairn_put(tx, cells->table, key, sizeof(key), value, sizeof(value));
}

static void put_forged(struct stand *s, uint64_t key, struct bn_cell cell, bool delete)
{
    struct forged f = {s, key, cell, delete};

    assert_int_equal(cairn_run(s->ctx, forge, &f, TIMEOUT_MS, NULL), 0);
}

static void check__updates__lost_and_doubled_ones_are_found(void **state)
{
    struct stand *s = *state;

    work(s, true);
    assert_int_equal(check(s), 0);
    assert_int_equal(s->checked, KEYS + 1 + TRANSACTIONS);
    uint64_t key = written_key(s, 2);
    uint32_t n = s->worker.key[key].written;
    s->worker.key[key].written = n + 1; /* one write is lost */
    assert_int_equal(check(s), CAIRN_E_STATE);
    s->worker.key[key].written = n - 1; /* one is there twice */
    assert_int_equal(check(s), CAIRN_E_STATE);
    s->worker.key[key].written = n;
    put_forged(s, key, (struct bn_cell){2, 1, n}, false); /* a worker that there is not */
    assert_int_equal(check(s), CAIRN_E_STATE);
    put_forged(s, key, (struct bn_cell){0, 0, 0}, false); /* as the loader left it */
    assert_int_equal(check(s), CAIRN_E_STATE);
    put_forged(s, key, (struct bn_cell){1, n, n}, false);
    assert_int_equal(check(s), 0);
    s->worker.settled--;
    assert_int_equal(check(s), CAIRN_E_STATE);
    s->worker.settled++;
    bn_cells_worker_end(&s->load.load, &s->worker);
}

static void check__blind_writes__an_older_value_is_found(void **state)
{
    struct stand *s = *state;

    work(s, false);
    assert_int_equal(check(s), 0);
    uint64_t key = written_key(s, 3);
    uint32_t n = s->worker.key[key].written;
    put_forged(s, key, (struct bn_cell){1, n - 1, 0}, false);
    assert_int_equal(check(s), CAIRN_E_STATE);
    s->worker.key[key].floor = n - 1; /* had the last two been in flight together */
    assert_int_equal(check(s), 0);
    put_forged(s, key, (struct bn_cell){1, n - 2, 0}, false);
    assert_int_equal(check(s), CAIRN_E_STATE);
    put_forged(s, key, (struct bn_cell){1, n + 1, 0}, false);
    assert_int_equal(check(s), CAIRN_E_STATE);
    bn_cells_worker_end(&s->load.load, &s->worker);
}

static void check__insert__lost_or_foreign_is_found(void **state)
{
    struct stand *s = *state;
    uint64_t inserted = UINT64_C(1) << 63 | UINT64_C(1) << 40;

    work(s, true);
    put_forged(s, inserted + 7, (struct bn_cell){1, 2, 0}, false);
    assert_int_equal(check(s), CAIRN_E_STATE);
    put_forged(s, inserted + 7, (struct bn_cell){1, 1, 0}, false);
    assert_int_equal(check(s), 0);
    put_forged(s, inserted + 8, (struct bn_cell){0, 0, 0}, true);
    assert_int_equal(check(s), CAIRN_E_STATE);
    bn_cells_worker_end(&s->load.load, &s->worker);
}

static void body__value_of_nobody__refused(void **state)
{
    struct stand *s = *state;
    struct bn_touches t = {0};
    uint64_t random = 1;

    work(s, true);
    bn_cells_begin(&s->load.load, &s->worker, &t);
    bn_cells_touch(&s->worker, &random, &t, BN_TOUCH_READ, BN_ANY_SHARD);
    assert_int_equal(cairn_run(s->ctx, bn_cells_body, &t, TIMEOUT_MS, NULL), 0);
    s->load.cells.value_size = 23; /* its size is not what the reader expects */
    assert_int_equal(
        cairn_run(s->ctx, bn_cells_body, &t, TIMEOUT_MS, NULL), CAIRN_E_STATE);
    s->load.cells.value_size = 24;
    bn_cells_worker_end(&s->load.load, &s->worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__updates__lost_and_doubled_ones_are_found),
        cmocka_unit_test(check__blind_writes__an_older_value_is_found),
        cmocka_unit_test(check__insert__lost_or_foreign_is_found),
        cmocka_unit_test(body__value_of_nobody__refused),
    };

    cn_env_system_log_level(CN_LOG_ERROR);
    return cmocka_run_group_tests(tests, start, stop);
}
