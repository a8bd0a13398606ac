/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: the configuration file (txn_config_file.c, over libconfig).
 * Input: the text of the file.
 * Oracle: what is accepted obeys the table of docs/configuration.md and is accepted again as it is;
 * what is refused has an error that names the file.
 */
#include "txn/txn_config.h"

#include "tests/fuzz/fz_common.h"

#ifdef FZ_ASAN
#include <sanitizer/lsan_interface.h>

/* libconfig 1.5 forgets the string that it was reading when a text ends in an error. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig.so";
}
#endif

#define TEXT_MAX 65536u

static bool within(uint64_t value, uint64_t min, uint64_t max)
{
    return value >= min && value <= max;
}

static void check_nodes(const struct txn_config *c)
{
    FZ_NEED(within(c->node_count, 1, CAIRN_NODES_MAX), "%u nodes", c->node_count);
    for (uint32_t i = 0; i < c->node_count; i++) {
        const struct txn_config_node *n = &c->node[i];

        FZ_NEED(n->id != 0 && (i == 0 || c->node[i - 1].id < n->id), "ids: not sorted, or twice");
        FZ_NEED(n->address[0] != '\0' && memchr(n->address, 0, sizeof(n->address)) != NULL,
            "address");
        FZ_NEED(n->pool[0] != '\0' && memchr(n->pool, 0, sizeof(n->pool)) != NULL, "pool");
        FZ_NEED(txn_config_find_node(c, n->id) == n, "not found");
        for (uint32_t k = 0; k < i; k++)
            FZ_NEED(strcmp(c->node[k].address, n->address) != 0, "an address twice");
    }
}

static void check_tables(const struct txn_config *c)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

    FZ_NEED(within(c->table_count, 1, CAIRN_TABLES_MAX), "%u tables", c->table_count);
    for (uint32_t i = 0; i < c->table_count; i++) {
        const struct txn_config_table *t = &c->table[i];

        FZ_NEED(t->id != 0 && within(strnlen(t->name, sizeof(t->name)), 1, 63), "table %u", i);
        FZ_NEED(t->name[strspn(t->name, allowed)] == '\0', "name of table %u", i);
        FZ_NEED(txn_config_find_table(c, t->name) == t, "two of one name");
        for (uint32_t k = 0; k < i; k++)
            FZ_NEED(c->table[k].id != t->id, "an id twice");
        FZ_NEED(txn_config_shard(c, t->id, "k", 1) < c->node_count, "shard");
    }
}

static void check_options(const struct txn_config *c)
{
    struct pm_geometry g = c->geometry;

    FZ_NEED(!cn_uuid_is_zero(&c->cluster), "cluster");
    /* Whether there is such a fabric is said by whoever opens it. */
    FZ_NEED(memchr(c->fabric, 0, sizeof(c->fabric)) != NULL, "fabric");
    FZ_NEED(pm_geometry_complete(&g) == 0, "geometry: %s", cairn_last_error());
    FZ_NEED(within(g.slot_count, 2, 4096) && within(g.window, 4, 65536), "slots, window");
    FZ_NEED(g.ring_size >= 4096 && g.ring_size % 64 == 0, "ring_size");
    FZ_NEED(within(c->lease_ms, 1, 600000) && within(c->resolve_ms, 1, 600000), "times");
    FZ_NEED(c->verdict_s <= 31622400, "verdict_s");
    FZ_NEED(c->fabric_config.queue_pairs <= 8, "queue_pairs");
    FZ_NEED(c->fabric_config.heartbeat_ms == 0 || within(c->fabric_config.heartbeat_ms, 10, 60000),
        "heartbeat_ms");
    FZ_NEED(c->pace.threshold <= 1000, "threshold");
    FZ_NEED(c->pace.spins <= 1000000 && within(c->pace.linger_us, 1, 1000000), "pace");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct txn_config again;
    struct txn_config *config = NULL;
    const char *path;
    int rc;

    /* An include opens other files: of this machine, some of them without end. */
    if (size > TEXT_MAX || memmem(data, size, "@include", 8) != NULL)
        return 0;
    path = fz_file(data, size);
    rc = txn_config_load(path, &config);
    if (rc != 0) {
        FZ_NEED(rc == CAIRN_E_CONFIG, "error %d: %s", rc, cairn_last_error());
        FZ_NEED(strncmp(cairn_last_error(), path, strlen(path)) == 0, "it names no file: %s",
            cairn_last_error());
        FZ_NEED(config == NULL, "an output with an error");
        return 0;
    }
    check_nodes(config);
    check_tables(config);
    check_options(config);
    again = *config;
    FZ_NEED(txn_config_check(&again) == 0, "not accepted again: %s", cairn_last_error());
    txn_config_free(&config);
    return 0;
}
