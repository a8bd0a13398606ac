/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cluster.h: what stands behind the public handles, for the library itself and for the harness,
 * which opens clusters over its own fabric, clock and randomness.
 */
#ifndef TXN_CLUSTER_H
#define TXN_CLUSTER_H

#include "txn/txn_cache.h"
#include "txn/txn_config.h"

struct cairn {
    struct txn_config *config;
    struct rd_fabric *fabric;
    bool owns; /* config and fabric are freed at close */
    const struct cn_env *env;
    struct cairn_options options;
    struct txn_cache *cache;
    uint32_t contexts; /* atomic */
    struct cn_pace pace; /* of contexts; the harness sets its spins to 0 */
};

/* As cairn_open(), over a given configuration, fabric and environment. Owner: the caller keeps
 * them. */
CN_MUST_CHECK int txn_cluster_open(struct txn_config *config, struct rd_fabric *fabric,
    const struct cn_env *env, const struct cairn_options *options, struct cairn **ret_cluster);
/* As cairn_ctx_open(), with an environment of its own (named steps, log) instead of the cluster's.
 */
CN_MUST_CHECK int txn_ctx_open(
    struct cairn *cluster, const struct cn_env *env, struct cairn_ctx **ret_ctx);
/* Free everything a context holds in this process without a word to any node: a crash, for the
 * harness. */
void txn_ctx_abandon(struct cairn_ctx **ctx);

#endif
