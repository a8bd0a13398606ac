/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_config.h: the cluster's configuration: nodes, tables, options, read from a libconfig file
 * that all coordinators and nodes share. It is also the embedded configuration store: view number
 * 1, one shard per node, no replicas. docs/configuration.md is the reference.
 *
 *     cluster = "0b0e5c1e-...";          # uuid, made by `cairn init` or by hand
 *     fabric = "emu";
 *     nodes = ( { id = 1; address = "/run/cairn/n1.sock"; pool = "/var/lib/cairn/n1.pool";
 *                 size = "1G"; persistence = "auto"; },
 *               ... );
 *     tables = ( { id = 1; name = "accounts"; } );
 *     fabric_options = { device = "mlx5_0"; queue_pairs = 2; atomics = "nic";
 *                        heartbeat_ms = 500; model_rtt_us = 2; model_gbps = 100;
 *                        write_back = "needed"; };
 *     completion = { mode = "adaptive"; threshold = 0.7; spins = 2000; linger_us = 1000; };
 *     options = { slots = 64; ring_size = "2M"; window = 1024; lease_ms = 1000; resolve_ms = 500;
 *                 verdict_s = 86400; };
 *
 * Relative paths are relative to the file's folder. An unknown name anywhere is an error.
 */
#ifndef TXN_CONFIG_H
#define TXN_CONFIG_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_pace.h"
#include "pmem/pm_pool.h"
#include "rdma/rd.h"

#define TXN_NAME_SIZE_MAX 64u

/* How a node's pool is made durable: stated by the operator, never detected
 * (docs/configuration.md, "Durability"). */
enum txn_persistence {
    TXN_PERSISTENCE_AUTO,     /* not pmem: emulated; eADR where libpmem says so; else gpspm */
    TXN_PERSISTENCE_APM,      /* the NIC writes directly to pmem (DDIO off for it) */
    TXN_PERSISTENCE_GPSPM,    /* its CPU persists and answers */
    TXN_PERSISTENCE_EADR,     /* caches are in the power-fail domain */
    TXN_PERSISTENCE_EMULATED, /* whatever it is: nothing survives the host */
};

struct txn_config_node {
    uint16_t id;
    char address[RD_ADDRESS_SIZE_MAX];
    char pool[4096];
    uint64_t pool_size; /* bytes; used when the pool is made */
    enum txn_persistence persistence;
};
struct txn_config_table {
    uint16_t id;
    char name[TXN_NAME_SIZE_MAX];
};
struct txn_config {
    char path[4096]; /* for messages */
    struct cn_uuid cluster;
    char fabric[16];
    struct rd_fabric_config fabric_config; /* linger_us comes from `pace` */
    struct cn_pace pace;
    uint32_t view; /* 1 */
    uint32_t node_count, table_count;
    struct txn_config_node node[CAIRN_NODES_MAX];
    struct txn_config_table table[CAIRN_TABLES_MAX];
    struct pm_geometry geometry; /* of new pools */
    uint32_t lease_ms;   /* an owner that does not answer for so long is fenced when somebody waits
                            for it */
    uint32_t resolve_ms; /* a record unmarked for so long is resolved by its node */
    uint32_t verdict_s;  /* how long verdicts are kept at least */
};

/* Errors: -errno of reading the file, CAIRN_E_CONFIG: the text names file, line and setting. */
CN_MUST_CHECK int txn_config_load(const char *path, struct txn_config **ret_config);
void txn_config_free(struct txn_config **config);
/* Check what load() checks beyond syntax (duplicates, ranges, geometry); for configs made in code:
 * a `pace` that is all zero becomes the default, and fabric_config gets its linger_us. */
CN_MUST_CHECK int txn_config_check(struct txn_config *config);
/* Open the fabric that a checked configuration names, with its options. Errors: those of
 * rd_fabric_open(). Owner: the caller deletes it. */
CN_MUST_CHECK int txn_config_open_fabric(
    const struct txn_config *config, struct rd_fabric **ret_fabric);
/* "auto", "apm" ...; "?" for unknown. */
const char *txn_persistence_name(enum txn_persistence persistence);
/* The mode that a persistence declares; 0 for AUTO, which declares none. */
enum rd_durability txn_persistence_durability(enum txn_persistence persistence);
/* Is it of the form that fabric `rpma` wants: "10.0.0.1:7471" or "[fe80::1]:7471", numeric, with a
 * port from 1 to 65534? */
bool txn_is_ip_address(const char *address);
/* NULL: none. */
const struct txn_config_node *txn_config_find_node(const struct txn_config *config, uint16_t id);
const struct txn_config_table *txn_config_find_table(
    const struct txn_config *config, const char *name);
/* Its place in config->table; table_count: there is none. */
static inline uint32_t txn_config_table_at(const struct txn_config *config, uint32_t table)
{
    uint32_t at = 0;

    while (at < config->table_count && config->table[at].id != table)
        at++;
    return at;
}

/* The shard of a key: a keyed hash (of cluster uuid and table) modulo the number of nodes; shard s
 * lives on config->node[s] (nodes sorted by id). */
uint32_t txn_config_shard(
    const struct txn_config *config, uint32_t table, const void *key, size_t key_size);
static inline const struct txn_config_node *txn_config_shard_node(
    const struct txn_config *config, uint32_t shard)
{
    return &config->node[shard];
}
/* "512M", "2G", "4096", "64k" (powers of 1024). False: malformed or overflow. */
bool txn_parse_size(const char *text, uint64_t *ret_size);

#endif
