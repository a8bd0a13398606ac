/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_histogram.c: see bn_histogram.h. Bucket numbers grow with the value: the low BN_SUB_BITS bits
 * of a number are the place inside a power of two, the rest is that power (0 and 1: width one).
 */
#include "tools/bench/bn_histogram.h"

#define SUB_COUNT (1u << BN_SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (uint32_t)value;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - BN_SUB_BITS;
    return (shift << BN_SUB_BITS) + (uint32_t)(value >> shift);
}

/* The middle of a bucket. */
static uint64_t value_of(uint32_t bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;
    uint32_t shift = (bucket >> BN_SUB_BITS) - 1u;
    uint64_t low = (uint64_t)(bucket - (shift << BN_SUB_BITS)) << shift;
    return low + ((UINT64_C(1) << shift) >> 1);
}

void bn_histogram_add(struct bn_histogram *h, uint64_t value)
{
    uint32_t bucket = bucket_of(cn_min64(value, BN_VALUE_MAX));

    CAIRN_DASSERT(bucket < BN_BUCKETS);
    h->bucket[bucket]++;
    h->min = h->count == 0 ? value : cn_min64(h->min, value);
    h->max = cn_max64(h->max, value);
    h->sum += value;
    h->count++;
}

void bn_histogram_merge(struct bn_histogram *to, const struct bn_histogram *from)
{
    if (from->count == 0)
        return;
    for (uint32_t i = 0; i < BN_BUCKETS; i++)
        to->bucket[i] += from->bucket[i];
    to->min = to->count == 0 ? from->min : cn_min64(to->min, from->min);
    to->max = cn_max64(to->max, from->max);
    to->sum += from->sum;
    to->count += from->count;
}

uint64_t bn_histogram_quantile(const struct bn_histogram *h, double q)
{
    uint64_t seen = 0;

    if (h->count == 0)
        return 0;
    double exact = q * (double)h->count;
    uint64_t rank = exact >= 1 ? (uint64_t)exact : 1;
    if ((double)rank < exact)
        rank++;
    rank = cn_min64(rank, h->count);
    for (uint32_t i = 0; i < BN_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank)
            return cn_max64(h->min, cn_min64(h->max, value_of(i)));
    }
    return h->max;
}

double bn_histogram_mean(const struct bn_histogram *h)
{
    return h->count == 0 ? 0 : (double)h->sum / (double)h->count;
}
