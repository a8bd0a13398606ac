/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_nodes.h: the participants that a load runs on: nodes in threads of this process over emulated
 * RDMA (bn_host.c), nodes in processes of their own over `emu` or `rpma`, or a cluster that runs
 * already; and what they take.
 */
#ifndef BN_NODES_H
#define BN_NODES_H

#include "tools/tl_cluster.h"

#define BN_FABRIC_EMU "emu"         /* nodes are threads of this process */
#define BN_FABRIC_EMU_IPC "emu-ipc" /* processes */
#define BN_FABRIC_RPMA "rpma"       /* processes */

/* Of all nodes together, since they were started. */
struct bn_usage {
    bool cpu_known, counters_known;
    uint64_t cpu_ns;
    /* of nodes in this process */
    uint64_t applied, fences, sleeps, wakeups, syscalls, messages;
};

struct bn_host;
struct bn_nodes {
    struct tl_cluster cluster;
    struct bn_host *host; /* NULL: nodes are processes, or another's */
};

struct bn_nodes_options {
    struct tl_cluster_options cluster; /* its fabric: one of those above */
    uint32_t threads;                  /* for nodes in this process; 0: one for each */
};
/* Errors: those of tl_cluster_start() and of rec_node_open(). What was begun is to be ended with
 * bn_nodes_stop() in any case. */
CN_MUST_CHECK int bn_nodes_start(const struct bn_nodes_options *options, struct bn_nodes *nodes);
int bn_nodes_stop(struct bn_nodes *nodes);
/* Each node still runs. Errors: CAIRN_E_STATE, -EINTR. */
CN_MUST_CHECK int bn_nodes_check(struct bn_nodes *nodes);
void bn_nodes_usage(const struct bn_nodes *nodes, struct bn_usage *ret);

/* ---- bn_host.c ---- */
/* Make the pools of all nodes of the configuration, open them, and serve in `threads` threads.
 * Owner: the caller keeps `config`. What was begun is to be ended with bn_host_stop(). */
CN_MUST_CHECK int bn_host_start(
    const struct txn_config *config, uint32_t threads, struct bn_host **ret_host);
void bn_host_stop(struct bn_host **host);
void bn_host_usage(struct bn_host *host, struct bn_usage *ret);

#endif
