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
    assert_int_equal(config->table[txn_config_table_at(config, 2)].id, 2);
    assert_int_equal(txn_config_table_at(config, 3), config->table_count);
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

static struct txn_config *make_rpma(const char *first, const char *second)
{
    struct txn_config *config = make_good();

    (void)snprintf(config->fabric, sizeof(config->fabric), "rpma");
    config->node_count = 2;
    (void)snprintf(config->node[0].address, sizeof(config->node[0].address), "%s", first);
    (void)snprintf(config->node[1].address, sizeof(config->node[1].address), "%s", second);
    return config;
}

static void txn_is_ip_address__forms__only_numeric_with_port(void **state)
{
    static const char *const good[] = {"10.0.0.1:7471", "0.0.0.0:1", "127.0.0.1:65534",
        "[::1]:7471", "[fe80::1]:7471", "[fe80::1%rxe0]:7471"};
    static const char *const bad[] = {"", ":", "10.0.0.1", "10.0.0.1:", ":7471", "10.0.0.1:0",
        "10.0.0.1:65535", "10.0.0.1:123456", "10.0.0.1:74x", "10.0.0.1:-1", "10.0.1:7471",
        "300.0.0.1:7471", "host:7471", "/run/n.sock", "::1:7471", "[::1]", "[::1:7471", "[]:7471",
        "[10.0.0.1]:7471", "[::1]x:7471"};

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(good); i++)
        if (!txn_is_ip_address(good[i]))
            fail_msg("refused: \"%s\"", good[i]);
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++)
        if (txn_is_ip_address(bad[i]))
            fail_msg("taken: \"%s\"", bad[i]);
}

static void txn_config_check__rpma_addresses__form_and_distance(void **state)
{
    (void)state;
    assert_int_equal(txn_config_check(make_rpma("10.0.0.1:7471", "10.0.0.2:7471")), 0);
    assert_int_equal(txn_config_check(make_rpma("10.0.0.1:7471", "10.0.0.1:7473")), 0);
    assert_int_equal(txn_config_check(make_rpma("[::1]:7471", "127.0.0.1:7471")), 0);
    assert_int_equal(txn_config_check(make_rpma("[fe80::1%a]:7471", "[fe80::1%b]:7471")), 0);
    struct txn_config *config = make_rpma("10.0.0.1:7471", "10.0.0.2:7471");
    (void)strcpy(config->node[1].pool, config->node[0].pool); /* every host has a /dev/dax0.0 */
    assert_int_equal(txn_config_check(config), 0);
    config = make_rpma("10.0.0.1:7471", "10.0.0.1:7473");
    (void)strcpy(config->node[1].pool, config->node[0].pool);
    expect_error(config, "is used by nodes[0] too");
    expect_error(make_rpma("10.0.0.1:7471", "n2.sock"), "nodes[1].address: \"n2.sock\" is not");
    expect_error(make_rpma("10.0.0.1:7471", "10.0.0.1:7472"), "must be at least 2 apart");
    expect_error(make_rpma("10.0.0.1:7472", "10.0.0.1:7471"), "must be at least 2 apart");
    expect_error(make_rpma("[::1]:7471", "[0:0::1]:7471"), "meets \"[::1]:7471\" of nodes[0]");
    expect_error(make_rpma("10.0.0.1:7471", "10.0.0.1:7471"), "is used by nodes[0] too");
}

static void txn_config_check__persistence__none_but_emulated_on_emu(void **state)
{
    static const enum txn_persistence real[] = {
        TXN_PERSISTENCE_APM, TXN_PERSISTENCE_GPSPM, TXN_PERSISTENCE_EADR};

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(real); i++) {
        struct txn_config *config = make_good();
        config->node[1].persistence = real[i];
        expect_error(config, "nodes[1].persistence");
        config = make_rpma("10.0.0.1:7471", "10.0.0.2:7471");
        config->node[1].persistence = real[i];
        assert_int_equal(txn_config_check(config), 0);
    }
    struct txn_config *config = make_good();
    config->node[0].persistence = TXN_PERSISTENCE_EMULATED;
    assert_int_equal(txn_config_check(config), 0);
}

static void txn_config_check__fabric_options__ranges(void **state)
{
    struct txn_config *config = make_good();

    (void)state;
    config->fabric_config.queue_pairs = 9;
    expect_error(config, "fabric_options.queue_pairs");
    config = make_good();
    config->fabric_config.heartbeat_ms = 1;
    expect_error(config, "fabric_options.heartbeat_ms");
    config = make_good();
    config->fabric_config.model_rtt_ns = 2000;
    assert_int_equal(txn_config_check(config), 0);
    (void)snprintf(config->fabric, sizeof(config->fabric), "rpma");
    for (uint32_t i = 0; i < config->node_count; i++)
        (void)snprintf(config->node[i].address, sizeof(config->node[i].address), "10.0.0.%u:7471",
            i + 1);
    expect_error(config, "fabric_options.model_rtt_us");
    config = make_good();
    config->fabric_config.model_mbps = 2000;
    (void)snprintf(config->fabric, sizeof(config->fabric), "rpma");
    expect_error(config, "model_gbps");
    config = make_good();
    config->pace = (struct cn_pace)CN_PACE_DEFAULT;
    config->pace.threshold = 1001;
    expect_error(config, "completion.threshold");
    config = make_good();
    config->pace = (struct cn_pace)CN_PACE_DEFAULT;
    config->pace.linger_us = 0;
    expect_error(config, "completion.linger_us");
    config = make_good();
    config->pace = (struct cn_pace)CN_PACE_DEFAULT;
    config->pace.spins = 1000001;
    expect_error(config, "completion.spins");
}

static void txn_config_check__pace__decides_when_peers_ring(void **state)
{
    struct txn_config *config = make_good();

    (void)state;
    assert_int_equal(txn_config_check(config), 0);
    assert_int_equal(config->pace.mode, CN_PACE_ADAPTIVE);
    assert_int_equal(config->pace.threshold, 700);
    assert_int_equal(config->fabric_config.linger_us, 1000);
    config = make_good();
    config->pace = (struct cn_pace)CN_PACE_DEFAULT;
    config->pace.linger_us = 77;
    assert_int_equal(txn_config_check(config), 0);
    assert_int_equal(config->fabric_config.linger_us, 77);
    config->pace.mode = CN_PACE_EVENT; /* its node sleeps at once: every record rings */
    assert_int_equal(txn_config_check(config), 0);
    assert_int_equal(config->fabric_config.linger_us, 1);
}

static void txn_config_open_fabric__name__opens_or_says_which_there_are(void **state)
{
    struct txn_config *config = make_good();
    struct rd_fabric *fabric = NULL;

    (void)state;
    assert_int_equal(txn_config_check(config), 0);
    assert_int_equal(txn_config_open_fabric(config, &fabric), 0);
    assert_string_equal(fabric->ops->name, "emu");
    rd_fabric_delete(fabric);
    (void)snprintf(config->fabric, sizeof(config->fabric), "pigeon");
    assert_int_equal(txn_config_open_fabric(config, &fabric), CAIRN_E_CONFIG);
}

static void txn_persistence__names_and_modes__agree(void **state)
{
    (void)state;
    assert_int_equal(txn_persistence_durability(TXN_PERSISTENCE_AUTO), 0);
    assert_string_equal(txn_persistence_name(TXN_PERSISTENCE_AUTO), "auto");
    for (int i = TXN_PERSISTENCE_APM; i <= TXN_PERSISTENCE_EMULATED; i++)
        assert_string_equal(txn_persistence_name((enum txn_persistence)i),
            rd_durability_name(txn_persistence_durability((enum txn_persistence)i)));
    assert_string_equal(txn_persistence_name((enum txn_persistence)99), "?");
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
        cmocka_unit_test(txn_is_ip_address__forms__only_numeric_with_port),
        cmocka_unit_test(txn_config_check__rpma_addresses__form_and_distance),
        cmocka_unit_test(txn_config_check__persistence__none_but_emulated_on_emu),
        cmocka_unit_test(txn_config_check__fabric_options__ranges),
        cmocka_unit_test(txn_config_check__pace__decides_when_peers_ring),
        cmocka_unit_test(txn_config_open_fabric__name__opens_or_says_which_there_are),
        cmocka_unit_test(txn_persistence__names_and_modes__agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
