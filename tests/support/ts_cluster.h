/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_cluster.h: a cluster for tests of the public API: nodes in threads of this process, over
 * emulated RDMA with pools in a fresh folder of /dev/shm, or over what the environment says
 * (ts_fabric.h). Failing to set it up aborts the test program.
 */
#ifndef TS_CLUSTER_H
#define TS_CLUSTER_H

#include <pthread.h>

#include "recovery/rec_node.h"
#include "tests/support/ts_fabric.h"
#include "txn/txn_cluster.h"

#define TS_CLUSTER_NODES_MAX 4u

struct ts_node {
    struct ts_cluster *cluster;
    uint32_t at;
    pthread_t thread;
    bool running;
    volatile int stop;
    struct pm_pool *pool;
    int open_rc;
    volatile int opened;
    struct rd_fabric *fabric;
    struct rec_node *node;
};

struct ts_cluster {
    char dir[64];
    struct txn_config *config;
    struct rd_fabric *fabric; /* of the coordinators */
    struct cairn *cairn;
    struct ts_node node[TS_CLUSTER_NODES_MAX];
};

/* `geometry` NULL: small defaults with full-size buckets. Tables "t" (1) and "u" (2). `options` may
 * be NULL. */
struct ts_cluster *ts_cluster_new(
    uint32_t nodes, const struct pm_geometry *geometry, const struct cairn_options *options);
/* The same with another pace of contexts and nodes than the default. */
struct ts_cluster *ts_cluster_new_paced(uint32_t nodes, const struct cn_pace *pace);
/* All contexts must be closed. Stops the nodes, checks that no fabric object is left, removes the
 * folder. */
void ts_cluster_delete(struct ts_cluster **cluster);
void ts_cluster_stop(struct ts_cluster *cluster, uint32_t at, bool crash);
void ts_cluster_start(struct ts_cluster *cluster, uint32_t at);
/* A key whose shard is `at`: text "k<number>" into key; returns its size. */
size_t ts_cluster_key(
    const struct ts_cluster *cluster, uint32_t table, uint32_t at, uint32_t number, char key[32]);

#endif
