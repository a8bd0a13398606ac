/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every slip in a configuration file is refused with file, line, setting and what is allowed.
 * Method: write files into a temporary folder, load them, compare the texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "txn/txn_config_file.h"

#define UUID "0b0e5c1e-1111-4222-8333-444455556666"
#define HEAD "cluster = \"" UUID "\";\nfabric = \"emu\";\n"
#define NODE_1 "{ id = 1; address = \"n1.sock\"; pool = \"n1.pool\"; size = \"1G\"; }"
#define NODE_2 "{ id = 2; address = \"/run/n2.sock\"; pool = \"/var/n2.pool\"; size = 1073741824; }"
#define NODES "nodes = (\n" NODE_2 ",\n" NODE_1 " );\n"
#define TABLES "tables = ( { id = 1; name = \"accounts\"; } );\n"

static char folder[] = "/tmp/test-config-XXXXXX";
static char path[PATH_MAX];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/c.conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static int load(const char *text, struct txn_config **ret)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return txn_config_load(path, ret);
}

/* `text` fails with a message that holds "c.conf:LINE:" (line 0: none) and `expected`. */
static void refuse(const char *text, int line, const char *expected)
{
    struct txn_config *config = NULL;
    char where[PATH_MAX + 16];

    if (load(text, &config) != CAIRN_E_CONFIG)
        fail_msg("taken: %s", text);
    assert_null(config);
    (void)snprintf(where, sizeof(where), line == 0 ? "%s: " : "%s:%d: ", path, line);
    if (strncmp(cairn_last_error(), where, strlen(where)) != 0 ||
        strstr(cairn_last_error(), expected) == NULL)
        fail_msg("wanted \"%s...%s\", got \"%s\"", where, expected, cairn_last_error());
}

static void txn_config_load__good__all_fields(void **state)
{
    struct txn_config *config;
    char expected[PATH_MAX];

    (void)state;
    assert_int_equal(
        load(HEAD NODES TABLES "options = { slots = 32; ring_size = \"1M\"; window = 512;\n"
                               "lease_ms = 700; resolve_ms = 300; verdict_s = 60; };\n",
            &config),
        0);
    assert_int_equal(config->node_count, 2);
    assert_int_equal(config->node[0].id, 1);
    (void)snprintf(expected, sizeof(expected), "%s/n1.pool", folder);
    assert_string_equal(config->node[0].pool, expected);
    (void)snprintf(expected, sizeof(expected), "%s/n1.sock", folder);
    assert_string_equal(config->node[0].address, expected);
    assert_string_equal(config->node[1].pool, "/var/n2.pool");
    assert_int_equal(config->node[1].pool_size, 1073741824);
    assert_string_equal(config->table[0].name, "accounts");
    assert_int_equal(config->geometry.slot_count, 32);
    assert_int_equal(config->geometry.ring_size, 1 << 20);
    assert_int_equal(config->geometry.window, 512);
    assert_int_equal(config->lease_ms, 700);
    assert_int_equal(config->resolve_ms, 300);
    assert_int_equal(config->verdict_s, 60);
    assert_int_equal(config->view, 1);
    txn_config_free(&config);
    assert_null(config);
}

static void txn_config_load__no_options__defaults(void **state)
{
    struct txn_config *config;

    (void)state;
    assert_int_equal(load(HEAD NODES TABLES, &config), 0);
    assert_int_equal(config->lease_ms, 1000);
    assert_int_equal(config->resolve_ms, 500);
    assert_int_equal(config->verdict_s, 86400);
    assert_int_equal(config->geometry.slot_count, 64);
    txn_config_free(&config);
}

static void txn_config_load__fabric_settings__all_fields(void **state)
{
    struct txn_config *config;

    (void)state;
    assert_int_equal(load("cluster = \"" UUID "\";\nfabric = \"rpma\";\n"
                          "nodes = ( { id = 1; address = \"10.0.0.1:7471\";\n"
                          "pool = \"/dev/dax0.0\"; persistence = \"apm\"; },\n"
                          "{ id = 2; address = \"[fe80::2]:7471\"; pool = \"p\";\n"
                          "size = \"1G\"; } );\n"
                          TABLES "fabric_options = { device = \"rxe0\"; queue_pairs = 3;\n"
                          "atomics = \"message\"; heartbeat_ms = 250; };\n"
                          "completion = { mode = \"poll\"; threshold = 0.25; spins = 10;\n"
                          "linger_us = 55; };\n",
                         &config),
        0);
    assert_int_equal(config->node[0].persistence, TXN_PERSISTENCE_APM);
    assert_int_equal(config->node[1].persistence, TXN_PERSISTENCE_AUTO);
    assert_string_equal(config->node[0].address, "10.0.0.1:7471"); /* no path: left alone */
    assert_string_equal(config->fabric_config.device, "rxe0");
    assert_int_equal(config->fabric_config.queue_pairs, 3);
    assert_true(config->fabric_config.message_atomics);
    assert_int_equal(config->fabric_config.heartbeat_ms, 250);
    assert_int_equal(config->fabric_config.model_rtt_ns, 0);
    assert_int_equal(config->fabric_config.model_mbps, 0);
    assert_false(config->fabric_config.write_back);
    assert_int_equal(config->fabric_config.linger_us, 55);
    assert_int_equal(config->pace.mode, CN_PACE_POLL);
    assert_int_equal(config->pace.threshold, 250);
    assert_int_equal(config->pace.spins, 10);
    assert_int_equal(config->pace.linger_us, 55);
    txn_config_free(&config);
    assert_int_equal(load(HEAD NODES TABLES "fabric_options = { atomics = \"nic\";\n"
                                            "model_rtt_us = 2; model_gbps = 100;\n"
                                            "write_back = \"always\"; };\n"
                                            "completion = { threshold = 1; spins = 0; };\n",
                         &config),
        0);
    assert_false(config->fabric_config.message_atomics);
    assert_int_equal(config->fabric_config.queue_pairs, 0); /* the fabric's own default */
    assert_int_equal(config->fabric_config.heartbeat_ms, 0);
    assert_int_equal(config->fabric_config.model_rtt_ns, 2000);
    assert_int_equal(config->fabric_config.model_mbps, 100000);
    assert_true(config->fabric_config.write_back);
    assert_string_equal(config->fabric_config.device, "");
    assert_int_equal(config->pace.mode, CN_PACE_ADAPTIVE);
    assert_int_equal(config->pace.threshold, 1000);
    assert_int_equal(config->pace.spins, 0);
    assert_int_equal(config->pace.linger_us, 1000);
    txn_config_free(&config);
}

static void txn_config_load__fabric_settings_wrong__named(void **state)
{
#define OPTIONS(text) HEAD NODES TABLES "fabric_options = {\n" text " };\n"
#define COMPLETION(text) HEAD NODES TABLES "completion = {\n" text " };\n"
    (void)state;
    refuse(HEAD NODES TABLES "fabric_options = 1;", 7, "fabric_options: must be a group");
    refuse(OPTIONS("devise = \"a\";"), 8, "fabric_options.devise: no such setting; did you mean");
    refuse(OPTIONS("device = \"\";"), 8, "fabric_options.device: is empty");
    refuse(OPTIONS("device = 1;"), 8, "fabric_options.device: must be an RDMA device's name");
    refuse(OPTIONS("queue_pairs = 9;"), 8,
        "fabric_options.queue_pairs: must be a number from 1 to 8");
    refuse(OPTIONS("queue_pairs = 0;"), 8, "fabric_options.queue_pairs");
    refuse(OPTIONS("atomics = \"cpu\";"), 8,
        "fabric_options.atomics: must be one of \"nic\", \"message\"");
    refuse(OPTIONS("atomics = 1;"), 8, "fabric_options.atomics: must be one of");
    refuse(OPTIONS("heartbeat_ms = 9;"), 8,
        "fabric_options.heartbeat_ms: must be a number from 10");
    refuse(OPTIONS("model_rtt_us = 1000001;"), 8,
        "fabric_options.model_rtt_us: must be a number from 0 to 1000000");
    refuse(OPTIONS("model_gbps = 1601;"), 8, "fabric_options.model_gbps: must be a number from 0");
    refuse(OPTIONS("write_back = \"never\";"), 8,
        "fabric_options.write_back: must be one of \"needed\", \"always\"");
    refuse(HEAD NODES TABLES "completion = ();", 7, "completion: must be a group");
    refuse(COMPLETION("modus = \"poll\";"), 8, "completion.modus: no such setting");
    refuse(COMPLETION("mode = \"busy\";"), 8,
        "completion.mode: must be one of \"adaptive\", \"poll\", \"event\"");
    refuse(COMPLETION("threshold = 1.01;"), 8,
        "completion.threshold: must be a number from 0 to 1");
    refuse(COMPLETION("threshold = -0.1;"), 8, "completion.threshold");
    refuse(COMPLETION("threshold = \"x\";"), 8, "completion.threshold");
    refuse(COMPLETION("spins = -1;"), 8, "completion.spins: must be a number from 0 to 1000000");
    refuse(COMPLETION("linger_us = 0;"), 8, "completion.linger_us: must be a number from 1");
    refuse(HEAD "nodes = ( { id = 1; address = \"a\"; pool = \"p\"; size = \"1G\";\n"
                "persistence = \"adr\"; } );\n" TABLES,
        4, "nodes[0].persistence: must be one of \"auto\", \"apm\", \"gpspm\"");
    refuse(HEAD "nodes = (\n{ id = 1; address = \"a\"; pool = \"p\"; size = \"1G\"; "
                "persistence = \"apm\"; } );\n" TABLES,
        4, "nodes[0].persistence: \"apm\" needs fabric \"rpma\"");
    refuse("cluster = \"" UUID "\";\nfabric = \"rpma\";\n"
           "nodes = ( { id = 1; address = \"10.0.0.1:7471\"; pool = \"p\"; size = \"1G\"; },\n"
           "{ id = 2; address = \"10.0.0.1:7472\"; pool = \"q\"; size = \"1G\"; } );\n" TABLES,
        4, "nodes[1].address: \"10.0.0.1:7472\" meets");
#undef OPTIONS
#undef COMPLETION
}

static void txn_config_load__unknown_names__did_you_mean(void **state)
{
    (void)state;
    refuse(HEAD NODES TABLES "nods = 1;\n", 7, "nods: no such setting; did you mean \"nodes\"?");
    refuse(HEAD NODES TABLES "zzzzzzz = 1;\n", 7, "allowed here: cluster, fabric, nodes");
    refuse(HEAD "nodes = ( { id = 1;\n adress = \"a\"; } );\n" TABLES, 4,
        "nodes[0].adress: no such setting; did you mean \"address\"?");
    refuse(HEAD NODES "tables = ( { id = 1; nam = \"a\"; } );", 6, "did you mean \"name\"?");
    refuse(HEAD NODES TABLES "options = { slot = 3; };", 7,
        "options.slot: no such setting; did you mean \"slots\"?");
}

static void txn_config_load__wrong_types__say_what_is_allowed(void **state)
{
    (void)state;
    refuse("cluster = 5;\n", 1, "cluster: must be the cluster's uuid, in quotes");
    refuse("\ncluster = \"5\";\n", 2, "is not a uuid");
    refuse(HEAD "nodes = 5;\n" TABLES, 3, "nodes: must be a list");
    refuse(HEAD "nodes = ( 5 );\n" TABLES, 3, "nodes[0]: must be a group");
    refuse(HEAD "nodes = ();\n" TABLES, 3, "nodes: has 0 entries; allowed are 1 to 64");
    refuse(HEAD NODES "tables = ( 1 );\n", 6, "tables[0]: must be a group");
    refuse(HEAD NODES TABLES "options = 5;\n", 7, "options: must be a group");
    refuse(HEAD "nodes = ( { id = \"1\"; address = \"a\"; pool = \"p\"; size = 1; } );\n" TABLES, 3,
        "nodes[0].id: must be a number from 1 to 65535");
    refuse(HEAD "nodes = ( { id = 1; address = 7; pool = \"p\"; size = 1; } );\n" TABLES, 3,
        "nodes[0].address: must be where the node listens, in quotes");
}

static void txn_config_load__out_of_range__say_the_range(void **state)
{
    (void)state;
    refuse(HEAD "nodes = ( { id = 70000; address = \"a\"; pool = \"p\"; size = 1; } );\n" TABLES, 3,
        "nodes[0].id: must be a number from 1 to 65535");
    refuse(HEAD NODES TABLES "options = {\n slots = 1; };", 8, "options.slots: must be a number");
    refuse(HEAD NODES TABLES "options = {\n lease_ms = -5; };", 8, "from 1 to 600000");
    refuse(HEAD NODES TABLES "options = {\n window = 5000000000L; };", 8, "from 4 to 65536");
    refuse(HEAD NODES TABLES "options = {\n ring_size = \"2X\"; };", 8, "must be a size");
    refuse(HEAD "nodes = ( { id = 1; address = \"a\"; pool = \"p\"; size = \"0\"; } );\n" TABLES, 3,
        "nodes[0].size: must be a size");
    refuse(HEAD "nodes = ( { id = 1; address = \"a\"; pool = \"p\"; size = \"1k\"; } );\n" TABLES,
        3, "1024 bytes are too few");
}

static void txn_config_load__missing__named(void **state)
{
    (void)state;
    refuse("", 0, "cluster: is missing");
    refuse(HEAD TABLES, 0, "nodes: is missing");
    refuse(HEAD NODES, 0, "tables: is missing");
    refuse(HEAD "nodes = ( { id = 1; } );\n" TABLES, 3, "nodes[0].address: is missing");
    refuse(HEAD "nodes = ( { address = \"a\"; } );\n" TABLES, 3, "nodes[0].id: is missing");
    refuse(HEAD "nodes = ( { id = 1; address = \"a\"; pool = \"p\"; } );\n" TABLES, 3,
        "nodes[0].size: is missing");
    refuse(HEAD "nodes = ( { id = 1; address = \"\"; pool = \"p\"; } );\n" TABLES, 3,
        "nodes[0].address: is empty");
}

static void txn_config_load__duplicates__line_of_the_second(void **state)
{
    (void)state;
    refuse(HEAD "nodes = (\n" NODE_1 ",\n" NODE_1 " );\n" TABLES, 5, "nodes[1].id: 1 is used by");
    /* The same place spelled in two ways. */
    refuse(HEAD "nodes = (\n" NODE_1 ",\n{ id = 2; address = \"./n1.sock\"; pool = \"q\"; "
                "size = \"1G\"; } );\n" TABLES,
        5, "nodes[1].address");
    refuse(HEAD NODES "tables = ( { id = 1; name = \"a\"; },\n{ id = 2; name = \"a\"; } );\n", 7,
        "tables[1].name: \"a\" is used by tables[0]");
    refuse("cluster = \"" UUID "\";\ncluster = \"" UUID "\";\n", 2, "duplicate setting name");
}

static void txn_config_load__syntax__line(void **state)
{
    (void)state;
    refuse(HEAD "nodes = (;\n", 3, "syntax error");
    refuse("cluster = \"" UUID "\n", 2, "syntax error");
}

static void txn_config_load__too_long__named(void **state)
{
    char text[2048], longer[200];

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    (void)snprintf(text, sizeof(text),
        HEAD "nodes = ( { id = 1; address = \"%s\"; pool = \"p\"; size = \"1G\"; } );\n" TABLES,
        longer);
    refuse(text, 3, "nodes[0].address: is longer than 107 bytes");
    longer[100] = '\0'; /* fits alone, not behind the folder */
    (void)snprintf(text, sizeof(text),
        HEAD "nodes = ( { id = 1; address = \"%s\"; pool = \"p\"; size = \"1G\"; } );\n" TABLES,
        longer);
    refuse(text, 3, "use a shorter path");
    (void)snprintf(
        text, sizeof(text), HEAD NODES "tables = ( { id = 1; name = \"%s\"; } );\n", longer);
    refuse(text, 6, "tables[0].name: is longer than 63 bytes");
}

static void txn_config_load__unreadable__errno(void **state)
{
    struct txn_config *config = NULL;

    (void)state;
    assert_int_equal(txn_config_load("/nonexistent/c.conf", &config), -ENOENT);
    assert_non_null(strstr(cairn_last_error(), "/nonexistent/c.conf"));
    assert_int_equal(txn_config_load(folder, &config), -EISDIR);
    assert_null(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(txn_config_load__good__all_fields),
        cmocka_unit_test(txn_config_load__no_options__defaults),
        cmocka_unit_test(txn_config_load__fabric_settings__all_fields),
        cmocka_unit_test(txn_config_load__fabric_settings_wrong__named),
        cmocka_unit_test(txn_config_load__unknown_names__did_you_mean),
        cmocka_unit_test(txn_config_load__wrong_types__say_what_is_allowed),
        cmocka_unit_test(txn_config_load__out_of_range__say_the_range),
        cmocka_unit_test(txn_config_load__missing__named),
        cmocka_unit_test(txn_config_load__duplicates__line_of_the_second),
        cmocka_unit_test(txn_config_load__syntax__line),
        cmocka_unit_test(txn_config_load__too_long__named),
        cmocka_unit_test(txn_config_load__unreadable__errno),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
