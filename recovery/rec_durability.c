/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_durability.c: how the node's rings are made durable (docs/configuration.md). The operator
 * states it; what can be seen of the platform only refuses what cannot be true. Never silently
 * weaker: a mode that was asked for is in force, or the node does not start.
 *
 *   fabric emu   emulated: all is one machine's memory
 *   auto         pool is no pmem: emulated; caches power-fail safe (libpmem): eadr; else gpspm
 *   apm, gpspm   need a pool on pmem; that the NIC bypasses the cache cannot be seen, so apm is
 *                never chosen by itself
 *   eadr         needs pmem, and libpmem to agree
 */
#include "recovery/rec_internal.h"

#include "include/internal/cn_mutant.h"

static int refuse(const struct txn_config_node *at, const char *why)
{
    return cn_fail(CAIRN_E_DURABILITY,
        "node %u: pool %s: %s, so persistence = \"%s\" of this node cannot be kept; use \"auto\", "
        "\"emulated\" (nothing survives the host), or a pool that can",
        at->id, at->pool, why, txn_persistence_name(at->persistence));
}

int rec_durability_choose(const struct txn_config_node *at, const char *fabric,
    const struct pm_pool *pool, enum rd_durability *ret_durability)
{
    enum rd_durability declared = txn_persistence_durability(at->persistence);

    if (declared != 0 && declared != RD_DURABILITY_EMULATED) {
        if (strcmp(fabric, "emu") == 0)
            return refuse(at, "fabric \"emu\" is the memory of one machine");
        if (!pool->is_pmem)
            return refuse(at, "is not persistent memory (devdax or fsdax)");
        if (declared == RD_DURABILITY_EADR && !pool->auto_flush)
            return refuse(at, "the platform does not report caches that survive a power failure");
        *ret_durability = declared;
        return 0;
    }
    if (declared == RD_DURABILITY_EMULATED || strcmp(fabric, "emu") == 0 || !pool->is_pmem)
        *ret_durability = RD_DURABILITY_EMULATED;
    else
        *ret_durability = pool->auto_flush ? RD_DURABILITY_EADR
            : CN_MUTANT(n_auto_apm)        ? RD_DURABILITY_APM
                                           : RD_DURABILITY_GPSPM;
    return 0;
}

int rec_durability_decide(struct rec_node *node)
{
    const struct txn_config_node *at = &node->config->node[node->shard];
    const char *fabric = node->fabric->ops->name;
    int error = rec_durability_choose(at, fabric, node->pool, &node->durability);

    if (error != 0)
        return error;
    bool weak = node->durability == RD_DURABILITY_EMULATED && strcmp(fabric, "rpma") == 0;
    cn_log(node->env, weak ? CN_LOG_WARNING : CN_LOG_INFO,
        "node %u: durability \"%s\" (persistence = \"%s\", pool %s)%s", node->id,
        rd_durability_name(node->durability), txn_persistence_name(at->persistence),
        node->pool->path == NULL ? "in memory" : node->pool->path,
        weak ? ": what is committed does not survive the host" : "");
    return 0;
}
