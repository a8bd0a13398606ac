/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_nodes.c: see bn_nodes.h.
 */
#include "tools/bench/bn_nodes.h"

#include <errno.h>
#include <time.h>

int bn_nodes_start(const struct bn_nodes_options *options, struct bn_nodes *nodes)
{
    struct tl_cluster_options o = options->cluster;

    memset(nodes, 0, sizeof(*nodes));
    bool here = o.config == NULL && strcmp(o.fabric, BN_FABRIC_EMU) == 0;
    if (o.config == NULL && strcmp(o.fabric, BN_FABRIC_RPMA) != 0)
        o.fabric = "emu";
    if (!here)
        return tl_cluster_start(&o, &nodes->cluster);
    struct tl_progress *progress = tl_progress_start("starting the nodes");
    int rc = tl_cluster_make(&o, &nodes->cluster);
    if (rc == 0)
        rc = bn_host_start(nodes->cluster.config, options->threads, &nodes->host);
    tl_progress_end(progress);
    return rc;
}

int bn_nodes_stop(struct bn_nodes *nodes)
{
    if (nodes->host != NULL)
        bn_host_stop(&nodes->host);
    return tl_cluster_stop(&nodes->cluster, false);
}

int bn_nodes_check(struct bn_nodes *nodes)
{
    return tl_cluster_check(&nodes->cluster);
}

/* Processor time of the processes that we started. */
static bool take_children(const struct tl_cluster *cluster, uint64_t *ret_ns)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < cluster->config->node_count; i++) {
        struct timespec t;
        clockid_t clock;
        if (cluster->node[i].pid == 0 || clock_getcpuclockid(cluster->node[i].pid, &clock) != 0 ||
            clock_gettime(clock, &t) != 0)
            return false;
        sum += (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
    }
    *ret_ns = sum;
    return true;
}

void bn_nodes_usage(const struct bn_nodes *nodes, struct bn_usage *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (nodes->host != NULL)
        bn_host_usage(nodes->host, ret);
    else if (nodes->cluster.own)
        ret->cpu_known = take_children(&nodes->cluster, &ret->cpu_ns);
}
