/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the durability mode of a node: what is declared is in force or refused, never weaker; what
 * is in force is told to everybody. Method: the whole table of declarations, fabrics and platforms;
 * then a real node over `emu`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recovery/rec_internal.h"
#include "tests/support/ts_filled.h"

#define REFUSED 0

struct row {
    enum txn_persistence declared;
    const char *fabric;
    bool is_pmem, auto_flush;
    int mode; /* enum rd_durability, or REFUSED */
};

static const struct row table[] = {
    {TXN_PERSISTENCE_AUTO, "emu", false, false, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_AUTO, "emu", true, true, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_EMULATED, "emu", true, false, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_APM, "emu", true, true, REFUSED},
    {TXN_PERSISTENCE_GPSPM, "emu", true, true, REFUSED},
    {TXN_PERSISTENCE_EADR, "emu", true, true, REFUSED},
    {TXN_PERSISTENCE_AUTO, "rpma", false, false, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_AUTO, "rpma", false, true, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_AUTO, "rpma", true, false, RD_DURABILITY_GPSPM},
    {TXN_PERSISTENCE_AUTO, "rpma", true, true, RD_DURABILITY_EADR},
    {TXN_PERSISTENCE_EMULATED, "rpma", false, false, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_EMULATED, "rpma", true, true, RD_DURABILITY_EMULATED},
    {TXN_PERSISTENCE_APM, "rpma", false, false, REFUSED},
    {TXN_PERSISTENCE_APM, "rpma", true, false, RD_DURABILITY_APM},
    {TXN_PERSISTENCE_APM, "rpma", true, true, RD_DURABILITY_APM},
    {TXN_PERSISTENCE_GPSPM, "rpma", false, true, REFUSED},
    {TXN_PERSISTENCE_GPSPM, "rpma", true, false, RD_DURABILITY_GPSPM},
    {TXN_PERSISTENCE_EADR, "rpma", false, true, REFUSED},
    {TXN_PERSISTENCE_EADR, "rpma", true, false, REFUSED},
    {TXN_PERSISTENCE_EADR, "rpma", true, true, RD_DURABILITY_EADR},
};

static void rec_durability_choose__table__mode_or_refusal(void **state)
{
    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        const struct row *r = &table[i];
        const struct txn_config_node at = {
            .id = 7, .pool = "/dev/dax7.0", .persistence = r->declared};
        const struct pm_pool pool = {.is_pmem = r->is_pmem, .auto_flush = r->auto_flush};
        enum rd_durability mode = (enum rd_durability)99;
        int rc = rec_durability_choose(&at, r->fabric, &pool, &mode);
        if (rc != (r->mode == REFUSED ? CAIRN_E_DURABILITY : 0) ||
            (int)mode != (r->mode == REFUSED ? 99 : r->mode))
            fail_msg("row %zu: %s, mode %d", i, cairn_error_name(rc), (int)mode);
        if (rc == 0)
            continue;
        assert_non_null(strstr(cairn_last_error(), "node 7"));
        assert_non_null(strstr(cairn_last_error(), "/dev/dax7.0"));
        assert_non_null(strstr(cairn_last_error(), "persistence = "));
        assert_non_null(strstr(cairn_last_error(), txn_persistence_name(r->declared)));
    }
}

static void rec_node_open__mode_cannot_be_kept__pool_untouched(void **state)
{
    struct ts_filled *filled = *state;
    struct rec_node *node = NULL;
    struct pm_pool *pool = NULL;

    ts_filled_restore(filled);
    filled->config.node[0].persistence = TXN_PERSISTENCE_APM;
    assert_int_equal(ts_filled_open(filled, &pool, &node), CAIRN_E_DURABILITY);
    assert_non_null(strstr(cairn_last_error(), "step durability"));
    assert_non_null(strstr(cairn_last_error(), filled->config.node[0].pool));
    /* but for what libpmemobj does when it opens */
    assert_int_equal(
        pm_pool_open(filled->config.node[0].pool, PM_OPEN_READ_ONLY, 0, &filled->env, &pool), 0);
    uint64_t incarnation = pool->incarnation;
    pm_pool_close(&pool);
    filled->config.node[0].persistence = TXN_PERSISTENCE_AUTO;
    assert_int_equal(ts_filled_open(filled, &pool, &node), 0);
    assert_int_equal(pool->incarnation, incarnation + 1);
    rec_node_close(&node);
}

static void node__mode_in_force__in_welcome_and_statistics(void **state)
{
    struct ts_filled *filled = *state;
    struct rec_node_stats stats;
    struct rd_welcome_wire welcome;
    struct rec_node *node;
    struct pm_pool *pool;

    ts_filled_restore(filled);
    assert_int_equal(ts_filled_open(filled, &pool, &node), 0);
    static const enum rd_durability modes[] = {RD_DURABILITY_EMULATED, RD_DURABILITY_GPSPM};
    for (size_t i = 0; i < CN_ARRAY_SIZE(modes); i++) {
        char wanted[64];
        assert_int_equal(node->durability, RD_DURABILITY_EMULATED);
        node->durability = modes[i];
        rec_node_stats(node, &stats);
        assert_int_equal(stats.durability, modes[i]);
        rec_make_welcome(node, NULL, &welcome);
        assert_int_equal(welcome.durability, modes[i]);
        rec_make_welcome(node, &node->slot[1], &welcome);
        assert_int_equal(welcome.durability, modes[i]);
        char *json = rec_stats_json(node);
        (void)snprintf(
            wanted, sizeof(wanted), "\"durability\":\"%s\"", rd_durability_name(modes[i]));
        assert_non_null(json);
        assert_non_null(strstr(json, wanted));
        free(json);
        node->durability = RD_DURABILITY_EMULATED;
    }
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
        cmocka_unit_test(rec_durability_choose__table__mode_or_refusal),
        cmocka_unit_test(rec_node_open__mode_cannot_be_kept__pool_untouched),
        cmocka_unit_test(node__mode_in_force__in_welcome_and_statistics),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
