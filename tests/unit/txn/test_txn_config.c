/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a configuration made in code is checked like one from a file; shards and sizes are right.
 * Method: break one thing at a time in a good configuration and expect its text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "txn/txn_config.h"

static struct txn_config *make_good(void)
{
    static struct txn_config config;

    memset(&config, 0, sizeof(config));
    memset(config.cluster.b, 7, sizeof(config.cluster.b));
    (void)snprintf(config.fabric, sizeof(config.fabric), "emu");
    config.view = 1;
    config.node_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        config.node[i].id = (uint16_t)(30 - 10 * i); /* 30, 20, 10: not sorted */
        (void)snprintf(config.node[i].address, sizeof(config.node[i].address), "/n%u", i);
        (void)snprintf(config.node[i].pool, sizeof(config.node[i].pool), "/p%u", i);
        config.node[i].pool_size = UINT64_C(1) << 30;
    }
    config.table_count = 2;
    config.table[0].id = 1;
    (void)snprintf(config.table[0].name, sizeof(config.table[0].name), "a");
    config.table[1].id = 2;
    (void)snprintf(config.table[1].name, sizeof(config.table[1].name), "b");
    config.lease_ms = 1000;
    config.resolve_ms = 500;
    config.verdict_s = 60;
    return &config;
}

static void expect_error(struct txn_config *config, const char *text)
{
    assert_int_equal(txn_config_check(config), CAIRN_E_CONFIG);
    if (strstr(cairn_last_error(), text) == NULL)
        fail_msg("\"%s\" not in \"%s\"", text, cairn_last_error());
}

static void txn_config_check__good__sorted_and_complete(void **state)
{
    struct txn_config *config = make_good();

    (void)state;
    assert_int_equal(txn_config_check(config), 0);
    assert_int_equal(config->node[0].id, 10);
    assert_int_equal(config->node[2].id, 30);
    assert_string_equal(config->node[0].pool, "/p2");
    assert_true(config->geometry.slot_count >= 2);
    assert_int_equal(txn_config_find_node(config, 20)->id, 20);
    assert_null(txn_config_find_node(config, 1));
    assert_int_equal(txn_config_find_table(config, "b")->id, 2);
    assert_null(txn_config_find_table(config, "c"));
    assert_true(txn_config_has_table(config, 2));
    assert_false(txn_config_has_table(config, 3));
}

static void txn_config_check__duplicates__named(void **state)
{
    struct txn_config *config = make_good();

    (void)state;
    config->node[2].id = 30;
    expect_error(config, "nodes[2].id: 30 is used by nodes[0]");
    config = make_good();
    (void)snprintf(config->node[1].address, sizeof(config->node[1].address), "/n0");
    expect_error(config, "nodes[1].address");
    config = make_good();
    (void)snprintf(config->node[1].pool, sizeof(config->node[1].pool), "/p0");
    expect_error(config, "nodes[1].pool");
    config = make_good();
    config->table[1].id = 1;
    expect_error(config, "tables[1].id");
    config = make_good();
    config->table[1].name[0] = 'a';
    expect_error(config, "tables[1].name");
}

static void txn_config_check__out_of_range__named(void **state)
{
    struct txn_config *config = make_good();

    (void)state;
    config->node[0].id = 0;
    expect_error(config, "nodes[0].id");
    config = make_good();
    config->node_count = 0;
    expect_error(config, "1 to 64 nodes");
    config = make_good();
    config->node_count = CAIRN_NODES_MAX + 1;
    expect_error(config, "1 to 64 nodes");
    config = make_good();
    config->table_count = 0;
    expect_error(config, "1 to 64 tables");
    config = make_good();
    config->node[1].pool_size = 4096;
    expect_error(config, "nodes[1].size: 4096 bytes are too few");
    config = make_good();
    memset(config->cluster.b, 0, sizeof(config->cluster.b));
    expect_error(config, "cluster");
    config = make_good();
    config->fabric[0] = '\0';
    expect_error(config, "fabric");
    config = make_good();
    config->node[1].address[0] = '\0';
    expect_error(config, "nodes[1].address");
    config = make_good();
    config->table[0].name[0] = ' ';
    expect_error(config, "not a name");
    config = make_good();
    config->lease_ms = 0;
    expect_error(config, "lease_ms");
    config = make_good();
    config->resolve_ms = 600001;
    expect_error(config, "resolve_ms");
    config = make_good();
    config->verdict_s = UINT32_MAX;
    expect_error(config, "verdict_s");
    config = make_good();
    config->geometry.slot_count = 1;
    expect_error(config, "options: ");
}

/* The shard is part of what all processes agree on: it depends on cluster, table and key alone. */
static void txn_config_shard__keys__spread_and_stable(void **state)
{
    struct txn_config *config = make_good();
    uint32_t count[3] = {0}, moved_table = 0, moved_cluster = 0;
    struct txn_config other;

    (void)state;
    assert_int_equal(txn_config_check(config), 0);
    other = *config;
    other.cluster.b[15] ^= 1;
    for (uint64_t key = 0; key < 30000; key++) {
        uint32_t shard = txn_config_shard(config, 1, &key, sizeof(key));
        assert_true(shard < 3);
        assert_int_equal(shard, txn_config_shard(config, 1, &key, sizeof(key)));
        count[shard]++;
        moved_table += shard != txn_config_shard(config, 2, &key, sizeof(key));
        moved_cluster += shard != txn_config_shard(&other, 1, &key, sizeof(key));
    }
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(count[i], 9500, 10500);
    assert_in_range(moved_table, 19000, 21000);
    assert_in_range(moved_cluster, 19000, 21000);
    assert_int_equal(txn_config_shard_node(config, 1)->id, 20);
}

static void txn_parse_size__good__value(void **state)
{
    static const struct {
        const char *text;
        uint64_t size;
    } good[] = {{"0", 0}, {"4096", 4096}, {"64k", 65536}, {"512M", UINT64_C(512) << 20},
        {"2G", UINT64_C(2) << 30}, {"1T", UINT64_C(1) << 40}, {"18446744073709551615", UINT64_MAX},
        {"16777215T", UINT64_C(16777215) << 40}};
    uint64_t size;

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(good); i++) {
        assert_true(txn_parse_size(good[i].text, &size));
        assert_int_equal(size, good[i].size);
    }
}

static void txn_parse_size__bad__refused_and_untouched(void **state)
{
    static const char *const bad[] = {"", "M", "-1", "+1", " 1", "1 ", "1MB", "1.5G", "0x10", "1X",
        "18446744073709551616", "99999999999999999999", "16777216T"};
    uint64_t size = 42;

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        if (txn_parse_size(bad[i], &size))
            fail_msg("\"%s\" was taken for a size", bad[i]);
        assert_int_equal(size, 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(txn_config_check__good__sorted_and_complete),
        cmocka_unit_test(txn_config_check__duplicates__named),
        cmocka_unit_test(txn_config_check__out_of_range__named),
        cmocka_unit_test(txn_config_shard__keys__spread_and_stable),
        cmocka_unit_test(txn_parse_size__good__value),
        cmocka_unit_test(txn_parse_size__bad__refused_and_untouched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
