/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_stats.c: counters and the latency histogram. Log-linear: values below 16 ns have a bucket
 * each; above, every power of two is cut into 16 buckets, so that a bucket's width is at most 1/16
 * of its value.
 */
#include "txn/txn_ctx.h"

static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 16)
        return (uint32_t)ns;
    uint32_t power = 63 - (uint32_t)__builtin_clzll(ns);
    uint32_t bucket = (power - 3) * 16 + (uint32_t)(ns >> (power - 4) & 15);
    return bucket < CAIRN_HISTOGRAM_BUCKETS ? bucket : CAIRN_HISTOGRAM_BUCKETS - 1;
}

static uint64_t lower_bound(uint32_t bucket)
{
    if (bucket < 16)
        return bucket;
    return (UINT64_C(16) + bucket % 16) << (bucket / 16 - 1);
}

CN_HOT
void txn_histogram_add(uint64_t histogram[CAIRN_HISTOGRAM_BUCKETS], uint64_t ns)
{
    histogram[bucket_of(ns)]++;
}

uint64_t cairn_histogram_quantile(const uint64_t histogram[CAIRN_HISTOGRAM_BUCKETS], double q)
{
    uint64_t total = 0, seen = 0;

    for (uint32_t i = 0; i < CAIRN_HISTOGRAM_BUCKETS; i++)
        total += histogram[i];
    if (total == 0)
        return 0;
    if (!(q > 0))
        q = 0;
    if (q > 1)
        q = 1;
    uint64_t rank = (uint64_t)(q * (double)(total - 1));
    for (uint32_t i = 0; i < CAIRN_HISTOGRAM_BUCKETS; i++) {
        seen += histogram[i];
        if (seen > rank)
            return lower_bound(i);
    }
    return lower_bound(CAIRN_HISTOGRAM_BUCKETS - 1);
}

void cairn_ctx_stats(const struct cairn_ctx *ctx, struct cairn_stats *ret_stats)
{
    struct rd_counters c;

    rd_ep_counters(ctx->ep, &c);
    *ret_stats = ctx->stats;
    ret_stats->reads = c.reads;
    ret_stats->cas = c.cas;
    ret_stats->writes = c.writes;
    ret_stats->flushes = c.flushes;
    ret_stats->marks = c.marks;
    ret_stats->work_requests = c.reads + c.cas + c.writes + c.flushes + c.marks;
    ret_stats->bytes_read = c.bytes_read;
    ret_stats->bytes_written = c.bytes_written;
    ret_stats->wakeups = c.wakeups;
}
