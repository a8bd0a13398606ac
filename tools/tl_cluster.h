/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_cluster.h: a cluster for a subcommand that needs one: nodes in processes of their own, pools
 * in memory (/dev/shm), all of it removed at the end; or one that runs already, which is left as it
 * was.
 */
#ifndef TL_CLUSTER_H
#define TL_CLUSTER_H

#include "tools/tl_proc.h"
#include "txn/txn_config.h"

#define TL_NODES_MAX CAIRN_NODES_MAX
/* Nodes of its own poll on for so long after work came: rather longer than a round of samples takes
 * on a slow machine, so that what is measured is the path between peers that are awake. */
#define TL_LINGER_US 10000u

struct tl_cluster_options {
    const char *fabric, *address, *persistence; /* of a cluster of its own; NULL: defaults */
    const char *config;                         /* of a running one; NULL: make one */
    const char *name;                           /* of its folder: "cairn-NAME-XXXXXX" */
    const char *program;                        /* `cairn`; NULL: this program is it */
    uint32_t nodes;                             /* to make */
    uint32_t slots;                             /* per node; 0: 8 */
    uint64_t pool_mb;                           /* per node; 0: 64 */
    const char *ring_size;                      /* NULL: "512k" */
    uint32_t window;                            /* 0: 256 */
    const char *completion;                     /* mode; NULL: adaptive */
    const char *const *tables;                  /* up to a NULL; NULL: one, "bench" */
    uint64_t linger_us;                         /* of its nodes; 0: TL_LINGER_US */
    uint64_t space;                             /* bytes that its folder needs besides the pools */
};
struct tl_cluster {
    bool own; /* made and to be removed */
    char folder[256], path[TL_PATH_MAX];
    const char *program;
    struct txn_config *config;
    struct tl_child node[TL_NODES_MAX];
};
/* Errors: those of the fabric (CAIRN_E_NO_DEVICE), of making and starting, CAIRN_E_CONFIG. What was
 * begun is to be ended with tl_cluster_stop() in any case. */
CN_MUST_CHECK int tl_cluster_start(
    const struct tl_cluster_options *options, struct tl_cluster *cluster);
/* Its folder and configuration alone, for nodes that somebody else runs. Errors, end: as above. */
CN_MUST_CHECK int tl_cluster_make(
    const struct tl_cluster_options *options, struct tl_cluster *cluster);
/* A node that ended by itself. Errors: CAIRN_E_STATE, -EINTR. */
CN_MUST_CHECK int tl_cluster_check(struct tl_cluster *cluster);
/* A node of its own that was killed starts again, by index. Errors: -errno. */
CN_MUST_CHECK int tl_cluster_restart(struct tl_cluster *cluster, uint32_t at);
/* It serves. Errors: CAIRN_E_TIMEOUT, those of tl_cluster_check(). */
CN_MUST_CHECK int tl_cluster_await(struct tl_cluster *cluster, uint32_t at);
/* End the nodes, by SIGTERM if they listen to it; `keep`: leave the folder. All of it is done, and
 * then the first that is wrong is told. Errors: CAIRN_E_STATE (a node had ended by itself, or ended
 * badly), CAIRN_E_TIMEOUT (it had to be killed). */
int tl_cluster_stop(struct tl_cluster *cluster, bool keep);

/* ---- tl_address.c ---- */
/* The IPv4 address of the only RDMA device's network device. Errors: CAIRN_E_NO_DEVICE,
 * CAIRN_E_CONFIG (several, or none with an address). `sysfs`: "/sys". */
CN_MUST_CHECK int tl_find_address(const char *sysfs, char ret_address[64]);

#endif
