/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_zipf.h: numbers below n with a Zipf distribution: the one of rank r (from 0) comes with a
 * probability proportional to 1 / (r + 1)^theta. By rejection-inversion (W. Hoermann,
 * G. Derflinger: Rejection-inversion to generate variates from monotone discrete distributions, ACM
 * TOMACS 6(3), 1996): exact for every theta >= 0 and n, constant time, no table, hardly ever a
 * second draw. (The usual method, Gray et al., SIGMOD 1994, is an approximation, for theta < 1.)
 */
#ifndef BN_ZIPF_H
#define BN_ZIPF_H

#include "include/internal/cn_base.h"

struct bn_zipf {
    uint64_t n;
    double theta, h_first, h_last, shift;
};

/* theta 0: uniform. */
void bn_zipf_init(struct bn_zipf *zipf, uint64_t n, double theta);
uint64_t bn_zipf_draw(const struct bn_zipf *zipf, uint64_t *random);
/* A permutation of the numbers below n, fixed for each n: so that the popular ones do not lie side
 * by side ("scrambled"). */
uint64_t bn_scramble(uint64_t value, uint64_t n);

#endif
