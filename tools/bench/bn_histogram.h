/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_histogram.h: a log-linear histogram of latencies (the shape of HDR histograms): constant size,
 * constant time per value, and a relative error bound that holds at every magnitude.
 *
 * Values below 2^BN_SUB_BITS have a bucket each. Above, every power of two is cut into
 * 2^BN_SUB_BITS buckets of equal width, and a bucket stands for its middle: what is reported is
 * less than 1/2^(BN_SUB_BITS + 1) away from a value that was recorded (0.4 %). Values above
 * BN_VALUE_MAX count as BN_VALUE_MAX; mean, minimum and maximum are exact.
 */
#ifndef BN_HISTOGRAM_H
#define BN_HISTOGRAM_H

#include "include/internal/cn_base.h"

#define BN_SUB_BITS 7u
#define BN_VALUE_BITS 40u
#define BN_VALUE_MAX ((UINT64_C(1) << BN_VALUE_BITS) - 1) /* of ns: 18 minutes */
#define BN_BUCKETS ((BN_VALUE_BITS - BN_SUB_BITS + 1u) << BN_SUB_BITS)

struct bn_histogram {
    uint64_t count, sum, min, max; /* min and max: 0 when empty */
    uint64_t bucket[BN_BUCKETS];
};

void bn_histogram_add(struct bn_histogram *histogram, uint64_t value);
/* Add all values of `from`. */
void bn_histogram_merge(struct bn_histogram *to, const struct bn_histogram *from);
/* The value at the quantile q in [0, 1]: that of rank ceil(q * count), at least 1. 0 when empty. */
uint64_t bn_histogram_quantile(const struct bn_histogram *histogram, double q);
double bn_histogram_mean(const struct bn_histogram *histogram); /* 0 when empty */

#endif
