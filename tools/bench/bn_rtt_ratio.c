/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_rtt_ratio.c: the targets of `cairn bench rtt`: how much longer a commit may take than the raw
 * operations that it is made of. Ratios are of medians.
 */
#include "tools/bench/bn_rtt.h"

#include <math.h>

static const struct rtt_ratio ratios[] = {
    {"read_only_over_raw_read", RTT_READ_ONLY, {RTT_RAW_READ}, 1, 1.15},
    {"write_commit_over_parts", RTT_WRITE, {RTT_RAW_LOCK_READ, RTT_RAW_FLUSH}, 2, 1.3},
    {"read_write_commit_over_parts", RTT_READ_WRITE,
        {RTT_RAW_LOCK_READ_READ, RTT_RAW_VALIDATE, RTT_RAW_FLUSH}, 3, 1.3},
    {"write_all_commit_over_parts", RTT_WRITE_ALL, {RTT_RAW_LOCK_READ_ALL, RTT_RAW_FLUSH_ALL}, 2,
        0},
};

const struct rtt_ratio *rtt_ratio_at(uint32_t i)
{
    return i < CN_ARRAY_SIZE(ratios) ? &ratios[i] : NULL;
}

double rtt_ratio_value(const struct rtt_ratio *ratio, const struct bn_histogram *op)
{
    uint64_t parts = 0;

    for (uint32_t i = 0; i < ratio->part_count; i++) {
        if (op[ratio->parts[i]].count == 0)
            return NAN;
        parts += bn_histogram_quantile(&op[ratio->parts[i]], 0.5);
    }
    if (op[ratio->commit].count == 0 || parts == 0)
        return NAN;
    return (double)bn_histogram_quantile(&op[ratio->commit], 0.5) / (double)parts;
}

bool rtt_ratio_is_met(const struct rtt_ratio *ratio, double value)
{
    return isnan(value) || ratio->target <= 0 || value <= ratio->target;
}

bool rtt_is_good(const struct bn_histogram *op)
{
    bool good = true;

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(ratios); i++)
        good = good && rtt_ratio_is_met(&ratios[i], rtt_ratio_value(&ratios[i], op));
    return good;
}
