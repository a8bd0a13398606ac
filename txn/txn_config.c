/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_config.c: what a configuration must be, once it is in memory: ranges, duplicates, geometry,
 * order; and what is computed from it: shards and sizes. txn_config_file.c reads the file.
 *
 * Invariants of a checked configuration: at least one node, nodes sorted by id, ids, addresses,
 * pools and table names unique, geometry complete. So shard s means the same node to every process
 * that has the same file.
 */
#include "txn/txn_config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#include "txn/txn_config_file.h"

#define HEAP_CHUNKS_MIN 8u /* below this a pool has no room for one table */
#define MS_MAX 600000u
#define VERDICT_S_MAX (366u * 86400u)
#define PORTS_OF_NODE 2u /* `rpma`: a node listens at its port and the next one */
#define LINGER_ALWAYS_RING_US 1u

bool txn_parse_size(const char *text, uint64_t *ret_size)
{
    uint64_t value = 0;
    const char *c = text;
    unsigned shift = 0;

    if (!isdigit((unsigned char)*c))
        return false;
    for (; isdigit((unsigned char)*c); c++) {
        unsigned digit = (unsigned)(*c - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    switch (*c) {
    case '\0': break;
    case 'k':
    case 'K': shift = 10; break;
    case 'm':
    case 'M': shift = 20; break;
    case 'g':
    case 'G': shift = 30; break;
    case 't':
    case 'T': shift = 40; break;
    default: return false;
    }
    if (shift != 0 && c[1] != '\0')
        return false;
    if (value > UINT64_MAX >> shift)
        return false;
    *ret_size = value << shift;
    return true;
}

int txn_config_fail(const struct txn_config *config, int line, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (config->path[0] == '\0')
        return cn_fail(CAIRN_E_CONFIG, "configuration: %s", text);
    if (line <= 0)
        return cn_fail(CAIRN_E_CONFIG, "%s: %s", config->path, text);
    return cn_fail(CAIRN_E_CONFIG, "%s:%d: %s", config->path, line, text);
}

static int line_of(const int *lines, uint32_t i)
{
    return lines == NULL ? 0 : lines[i];
}

static int check_pool(const struct txn_config *config, uint32_t i, int line)
{
    const struct txn_config_node *node = &config->node[i];
    uint64_t chunk = UINT64_C(1) << config->geometry.chunk_shift;
    uint64_t min = pm_pool_size_min(&config->geometry, HEAP_CHUNKS_MIN * chunk);

    if (node->pool_size != 0 && node->pool_size < min)
        return txn_config_fail(config, line,
            "nodes[%u].size: %llu bytes are too few for this geometry; at least %lluM", i,
            (unsigned long long)node->pool_size,
            (unsigned long long)((min + (1u << 20) - 1) >> 20));
    return 0;
}

/* ---- addresses of the fabric `rpma` ---- */

struct ip_address {
    int family;
    uint8_t ip[16];
    char scope[32];
    uint32_t port;
};

static bool parse_port(const char *text, uint32_t *ret_port)
{
    uint32_t port = 0;

    for (const char *c = text; *c != '\0'; c++) {
        if (!isdigit((unsigned char)*c) || c - text >= 5)
            return false;
        port = port * 10 + (uint32_t)(*c - '0');
    }
    *ret_port = port;
    return port != 0 && port + PORTS_OF_NODE - 1 <= UINT16_MAX;
}

static bool parse_ip(const char *address, struct ip_address *ret)
{
    char host[RD_ADDRESS_SIZE_MAX];
    const char *colon = strrchr(address, ':');

    memset(ret, 0, sizeof(*ret));
    if (colon == NULL || !parse_port(colon + 1, &ret->port))
        return false;
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    size_t size = strlen(host);
    if (host[0] != '[') {
        ret->family = AF_INET;
        return inet_pton(AF_INET, host, ret->ip) == 1;
    }
    if (host[size - 1] != ']')
        return false;
    host[size - 1] = '\0';
    char *scope = strchr(host, '%'); /* an interface of the host that uses it: not looked up here */
    if (scope != NULL) {
        *scope++ = '\0';
        (void)snprintf(ret->scope, sizeof(ret->scope), "%.31s", scope);
    }
    ret->family = AF_INET6;
    return inet_pton(AF_INET6, host + 1, ret->ip) == 1;
}

bool txn_is_ip_address(const char *address)
{
    struct ip_address parsed;

    return parse_ip(address, &parsed);
}

static bool same_host(const struct ip_address *a, const struct ip_address *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0 &&
        strcmp(a->scope, b->scope) == 0;
}

static bool ports_meet(const struct ip_address *a, const struct ip_address *b)
{
    return same_host(a, b) && a->port < b->port + PORTS_OF_NODE &&
        b->port < a->port + PORTS_OF_NODE;
}

static int check_addresses(const struct txn_config *config, const int *lines)
{
    if (strcmp(config->fabric, "rpma") != 0)
        return 0;
    for (uint32_t i = 0; i < config->node_count; i++) {
        const struct txn_config_node *a = &config->node[i];
        struct ip_address mine, other;
        if (!parse_ip(a->address, &mine))
            return txn_config_fail(config, line_of(lines, i),
                "nodes[%u].address: \"%s\" is not numeric IP:PORT, as \"10.0.0.1:7471\" or "
                "\"[fe80::1]:7471\" with a port from 1 to 65534; fabric \"rpma\" needs that",
                i, a->address);
        for (uint32_t j = 0; j < i; j++) {
            if (parse_ip(config->node[j].address, &other) && ports_meet(&mine, &other))
                return txn_config_fail(config, line_of(lines, i),
                    "nodes[%u].address: \"%s\" meets \"%s\" of nodes[%u]: a node listens at its "
                    "port and the next one, so ports of one host must be at least %u apart",
                    i, a->address, config->node[j].address, j, PORTS_OF_NODE);
        }
    }
    return 0;
}

/* Nodes of different hosts may have the same path: every host has its own /dev/dax0.0. */
static bool may_share_host(const struct txn_config *config, uint32_t i, uint32_t j)
{
    struct ip_address a, b;
    return strcmp(config->fabric, "rpma") != 0 || !parse_ip(config->node[i].address, &a) ||
           !parse_ip(config->node[j].address, &b) || same_host(&a, &b);
}

/* ---- nodes ---- */

const char *txn_persistence_name(enum txn_persistence persistence)
{
    switch (persistence) {
    case TXN_PERSISTENCE_AUTO: return "auto";
    case TXN_PERSISTENCE_APM: return "apm";
    case TXN_PERSISTENCE_GPSPM: return "gpspm";
    case TXN_PERSISTENCE_EADR: return "eadr";
    case TXN_PERSISTENCE_EMULATED: return "emulated";
    }
    return "?";
}

enum rd_durability txn_persistence_durability(enum txn_persistence persistence)
{
    switch (persistence) {
    case TXN_PERSISTENCE_APM: return RD_DURABILITY_APM;
    case TXN_PERSISTENCE_GPSPM: return RD_DURABILITY_GPSPM;
    case TXN_PERSISTENCE_EADR: return RD_DURABILITY_EADR;
    case TXN_PERSISTENCE_EMULATED: return RD_DURABILITY_EMULATED;
    case TXN_PERSISTENCE_AUTO: break;
    }
    return (enum rd_durability)0;
}

/* Emulated RDMA is one machine's memory: to declare more of it would promise what is not there. */
static int check_persistence(const struct txn_config *config, uint32_t i, int line)
{
    enum txn_persistence persistence = config->node[i].persistence;

    if (strcmp(config->fabric, "emu") == 0 && persistence != TXN_PERSISTENCE_AUTO &&
        persistence != TXN_PERSISTENCE_EMULATED)
        return txn_config_fail(config, line,
            "nodes[%u].persistence: \"%s\" needs fabric \"rpma\"; on \"emu\" use \"auto\" or "
            "\"emulated\"",
            i, txn_persistence_name(persistence));
    return 0;
}

static int check_nodes(const struct txn_config *config, const int *lines)
{
    if (config->node_count == 0 || config->node_count > CAIRN_NODES_MAX)
        return txn_config_fail(config, 0, "nodes: a cluster has 1 to %u nodes, not %u",
            CAIRN_NODES_MAX, config->node_count);
    for (uint32_t i = 0; i < config->node_count; i++) {
        const struct txn_config_node *a = &config->node[i];
        int line = line_of(lines, i);
        if (a->id == 0)
            return txn_config_fail(config, line, "nodes[%u].id: must be 1 to 65535", i);
        if (a->address[0] == '\0')
            return txn_config_fail(config, line, "nodes[%u].address: is missing or empty", i);
        for (uint32_t j = 0; j < i; j++) {
            const struct txn_config_node *b = &config->node[j];
            if (a->id == b->id)
                return txn_config_fail(config, line,
                    "nodes[%u].id: %u is used by nodes[%u] too; each node needs its own", i, a->id,
                    j);
            if (strcmp(a->address, b->address) == 0)
                return txn_config_fail(config, line,
                    "nodes[%u].address: \"%s\" is used by nodes[%u] too", i, a->address, j);
            if (a->pool[0] != '\0' && strcmp(a->pool, b->pool) == 0 && may_share_host(config, i, j))
                return txn_config_fail(
                    config, line, "nodes[%u].pool: \"%s\" is used by nodes[%u] too", i, a->pool, j);
        }
        int rc = check_pool(config, i, line);
        if (rc == 0)
            rc = check_persistence(config, i, line);
        if (rc != 0)
            return rc;
    }
    return check_addresses(config, lines);
}

static bool name_is_good(const char *name)
{
    if (name[0] == '\0')
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && strchr("_.-", *name) == NULL)
            return false;
    }
    return true;
}

static int check_tables(const struct txn_config *config, const int *lines)
{
    if (config->table_count == 0 || config->table_count > CAIRN_TABLES_MAX)
        return txn_config_fail(config, 0, "tables: a cluster has 1 to %u tables, not %u",
            CAIRN_TABLES_MAX, config->table_count);
    for (uint32_t i = 0; i < config->table_count; i++) {
        const struct txn_config_table *a = &config->table[i];
        int line = line_of(lines, i);
        if (a->id == 0)
            return txn_config_fail(config, line, "tables[%u].id: must be 1 to 65535", i);
        if (!name_is_good(a->name))
            return txn_config_fail(config, line,
                "tables[%u].name: \"%s\" is not a name; use letters, digits, '_', '.', '-'", i,
                a->name);
        for (uint32_t j = 0; j < i; j++) {
            const struct txn_config_table *b = &config->table[j];
            if (a->id == b->id)
                return txn_config_fail(
                    config, line, "tables[%u].id: %u is used by tables[%u] too", i, a->id, j);
            if (strcmp(a->name, b->name) == 0)
                return txn_config_fail(config, line,
                    "tables[%u].name: \"%s\" is used by tables[%u] too", i, a->name, j);
        }
    }
    return 0;
}

static int check_options(const struct txn_config *config, int line)
{
    if (config->lease_ms == 0 || config->lease_ms > MS_MAX)
        return txn_config_fail(
            config, line, "options.lease_ms: must be 1 to %u, not %u", MS_MAX, config->lease_ms);
    if (config->resolve_ms == 0 || config->resolve_ms > MS_MAX)
        return txn_config_fail(config, line, "options.resolve_ms: must be 1 to %u, not %u", MS_MAX,
            config->resolve_ms);
    if (config->verdict_s > VERDICT_S_MAX)
        return txn_config_fail(config, line, "options.verdict_s: must be at most %u, not %u",
            VERDICT_S_MAX, config->verdict_s);
    return 0;
}

/* Ranges, for configurations made in code; the reader of the file has its own, with lines. */
static int check_fabric_options(const struct txn_config *config)
{
    const struct rd_fabric_config *f = &config->fabric_config;
    const struct cn_pace *pace = &config->pace;

    if (f->queue_pairs > TXN_QUEUE_PAIRS_MAX)
        return txn_config_fail(config, 0, "fabric_options.queue_pairs: must be 1 to %u, not %u",
            TXN_QUEUE_PAIRS_MAX, f->queue_pairs);
    if (f->heartbeat_ms != 0 &&
        (f->heartbeat_ms < TXN_HEARTBEAT_MS_MIN || f->heartbeat_ms > TXN_HEARTBEAT_MS_MAX))
        return txn_config_fail(config, 0, "fabric_options.heartbeat_ms: must be %u to %u, not %u",
            TXN_HEARTBEAT_MS_MIN, TXN_HEARTBEAT_MS_MAX, f->heartbeat_ms);
    if (strcmp(config->fabric, "emu") != 0 && (f->model_rtt_ns != 0 || f->model_mbps != 0))
        return txn_config_fail(config, 0,
            "fabric_options.model_rtt_us, model_gbps: only fabric \"emu\" models a network, not "
            "\"%s\"; remove them",
            config->fabric);
    if (pace->threshold > 1000)
        return txn_config_fail(
            config, 0, "completion.threshold: must be 0 to 1, not %.3f", pace->threshold / 1000.0);
    if (pace->spins > TXN_SPINS_MAX)
        return txn_config_fail(config, 0, "completion.spins: must be at most %u, not %u",
            TXN_SPINS_MAX, pace->spins);
    if (pace->linger_us == 0 || pace->linger_us > TXN_LINGER_US_MAX)
        return txn_config_fail(config, 0, "completion.linger_us: must be 1 to %u, not %u",
            TXN_LINGER_US_MAX, pace->linger_us);
    return 0;
}

/* What a node does when idle decides how its peers wake it. */
static void complete_pace(struct txn_config *config)
{
    static const struct cn_pace none, defaults = CN_PACE_DEFAULT;

    if (memcmp(&config->pace, &none, sizeof(none)) == 0)
        config->pace = defaults;
    config->fabric_config.linger_us = config->pace.mode == CN_PACE_EVENT ? LINGER_ALWAYS_RING_US
                                                                         : config->pace.linger_us;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct txn_config_node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int txn_config_check_at(struct txn_config *config, const struct txn_config_lines *lines)
{
    int rc;

    if (cn_uuid_is_zero(&config->cluster))
        return txn_config_fail(config, lines == NULL ? 0 : lines->cluster,
            "cluster: must be a uuid other than zero; `cairn init` makes one");
    if (config->fabric[0] == '\0')
        return txn_config_fail(config, lines == NULL ? 0 : lines->fabric, "fabric: is empty");
    rc = pm_geometry_complete(&config->geometry);
    if (rc != 0) {
        char text[256];
        cn_error_copy(text, sizeof(text));
        return txn_config_fail(config, lines == NULL ? 0 : lines->options, "options: %s", text);
    }
    complete_pace(config);
    rc = check_options(config, lines == NULL ? 0 : lines->options);
    if (rc == 0)
        rc = check_fabric_options(config);
    if (rc == 0)
        rc = check_nodes(config, lines == NULL ? NULL : lines->node);
    if (rc == 0)
        rc = check_tables(config, lines == NULL ? NULL : lines->table);
    if (rc != 0)
        return rc;
    qsort(config->node, config->node_count, sizeof(config->node[0]), compare_nodes);
    return 0;
}

int txn_config_check(struct txn_config *config)
{
    return txn_config_check_at(config, NULL);
}

int txn_config_open_fabric(const struct txn_config *config, struct rd_fabric **ret_fabric)
{
    int rc = rd_fabric_open(config->fabric, &config->fabric_config, ret_fabric);

    return rc != CAIRN_E_CONFIG ? rc : cn_fail_context(rc, "%s: fabric: ", config->path);
}

void txn_config_free(struct txn_config **config)
{
    free(*config);
    *config = NULL;
}

const struct txn_config_node *txn_config_find_node(const struct txn_config *config, uint16_t id)
{
    for (uint32_t i = 0; i < config->node_count; i++) {
        if (config->node[i].id == id)
            return &config->node[i];
    }
    return NULL;
}

const struct txn_config_table *txn_config_find_table(
    const struct txn_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->table_count; i++) {
        if (strcmp(config->table[i].name, name) == 0)
            return &config->table[i];
    }
    return NULL;
}

uint32_t txn_config_shard(
    const struct txn_config *config, uint32_t table, const void *key, size_t key_size)
{
    const uint8_t *uuid = config->cluster.b;
    struct le64 first, second;

    CAIRN_DASSERT(config->node_count != 0);
    memcpy(&first, uuid, sizeof(first));
    memcpy(&second, uuid + sizeof(first), sizeof(second));
    uint64_t high = le64_get(second) ^ (uint64_t)table << 32;
    return (uint32_t)(cn_siphash_words(le64_get(first), high, key, key_size) % config->node_count);
}
