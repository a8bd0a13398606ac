/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_recovery.h: `cairn bench recovery`: its cluster, and one start of a node with a log to replay.
 *
 *   bn_recovery.c         options, which starts are measured, report
 *   bn_recovery_log.c     the cluster: pools, keys, rings that are full when the nodes are killed
 *   bn_recovery_start.c   a node's start, timed; what must be there afterwards; the copy rate
 */
#ifndef BN_RECOVERY_H
#define BN_RECOVERY_H

#include "tools/bench/bn.h"

#define RV_TABLE 1u
#define RV_SLOTS_MAX 64u

struct rv_shape {
    uint32_t participants, slots; /* slots: coordinator contexts, each with a ring on each node */
    uint32_t keys;                /* on each node, at least the records of a log */
    uint32_t window;              /* records of a ring, at most */
    uint32_t value_size;
    uint64_t ring_size, pool_size; /* 0: as needed */
    uint64_t seed;
};

/* Keys are numbers, found once such that node p has keys[p][0 .. keys - 1]. */
struct rv_cluster {
    struct rv_shape shape;
    char folder[256], path[TL_PATH_MAX];
    struct txn_config *config;
    struct tl_child node[TL_NODES_MAX], writer;
    uint64_t *key[TL_NODES_MAX];
    uint32_t *round; /* by number of the key: the last round that wrote it, the same on all nodes */
    uint32_t *order; /* a permutation of them: in which a log names them */
    uint32_t rounds;
};

/* Make it, and put every key with its first value. Errors: -ENOSPC, those of nodes and
 * transactions; what was begun is to be ended with rv_cluster_end() in any case. */
CN_MUST_CHECK int rv_cluster_make(const struct rv_shape *shape, struct rv_cluster *c);
void rv_cluster_end(struct rv_cluster *c);
/* Start the nodes; coordinators read all keys; the nodes are stopped (SIGSTOP); each coordinator
 * commits until there are `records` on each node, of a key each; all are killed. */
CN_MUST_CHECK int rv_cluster_crash(struct rv_cluster *c, uint32_t records);
void rv_value(const struct rv_cluster *c, uint64_t key, uint32_t round, uint8_t *ret);
uint32_t rv_record_size(const struct rv_shape *shape);

struct rv_start { /* of one node */
    uint64_t records, pool_size;
    uint64_t open_ns, scan_ns, replay_ns; /* processor time of the node's thread */
    uint64_t wall_ns; /* from before the pool is opened until the node serves */
    double copy_rate; /* bytes per second, of values copied one by one; 0: none were */
};
/* Open node `at` here and close it again; everything must be as committed. With `mapped` the pages
 * of the pool are mapped beforehand, and those of the copies: else both are met for the first time.
 * Errors: CAIRN_E_STATE (something is not). */
CN_MUST_CHECK int rv_start_node(
    struct rv_cluster *c, uint32_t at, uint32_t records, bool mapped, struct rv_start *ret);

#endif
