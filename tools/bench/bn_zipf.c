/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_zipf.c: see bn_zipf.h. With h(x) = x^-theta and H an integral of it: a point u is drawn evenly
 * between H(1.5) - h(1) and H(n + 0.5); k, the integer nearest to H^-1(u), is taken if u lies in
 * the last h(k) before H(k + 0.5), which is so mostly; else another is drawn.
 */
#include "tools/bench/bn_zipf.h"

#include <math.h>

#include "tools/bench/bn_load.h"

#define SMALL 1e-8
#define ROUNDS 4u
#define UNIT 0x1p-53

/* log(1 + x) / x, also at 0. */
static double log1p_over(double x)
{
    return fabs(x) > SMALL ? log1p(x) / x : 1 - x * (0.5 - x / 3);
}

/* (exp(x) - 1) / x, also at 0. */
static double expm1_over(double x)
{
    return fabs(x) > SMALL ? expm1(x) / x : 1 + x * (0.5 + x / 6);
}

/* The integral: (x^(1 - theta) - 1) / (1 - theta), log(x) where theta is 1. */
static double integral(double theta, double x)
{
    double l = log(x);

    return expm1_over((1 - theta) * l) * l;
}

static double inverse(double theta, double y)
{
    double t = y * (1 - theta);

    if (t < -1)
        t = -1; /* rounding */
    return exp(log1p_over(t) * y);
}

static double height(double theta, double x)
{
    return exp(-theta * log(x));
}

void bn_zipf_init(struct bn_zipf *z, uint64_t n, double theta)
{
    CAIRN_ASSERT(n > 0 && theta >= 0);
    z->n = n;
    z->theta = theta;
    z->h_first = integral(theta, 1.5) - 1;
    z->h_last = integral(theta, (double)n + 0.5);
    z->shift = 2 - inverse(theta, integral(theta, 2.5) - height(theta, 2));
}

uint64_t bn_zipf_draw(const struct bn_zipf *z, uint64_t *random)
{
    if (z->theta == 0)
        return bn_below(random, z->n);
    for (;;) {
        double part = (double)(bn_random(random) >> 11) * UNIT;
        double u = z->h_last + part * (z->h_first - z->h_last);
        double x = inverse(z->theta, u);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > (double)z->n ? (double)z->n : k;
        if (k - x <= z->shift || u >= integral(z->theta, k + 0.5) - height(z->theta, k))
            return (uint64_t)k - 1;
    }
}

/* A Feistel network over the next even number of bits, walked until it falls below n. */
uint64_t bn_scramble(uint64_t value, uint64_t n)
{
    uint32_t bits = n < 3 ? 1 : (64u - (uint32_t)__builtin_clzll(n - 1) + 1) / 2;
    uint64_t mask = (UINT64_C(1) << bits) - 1;

    CAIRN_DASSERT(value < n);
    do {
        uint64_t left = value >> bits, right = value & mask;
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            uint64_t next = left ^ (cn_mix64(right + (round << 40)) & mask);
            left = right;
            right = next;
        }
        value = left << bits | right;
    } while (value >= n);
    return value;
}
