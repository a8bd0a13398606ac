/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_random.c: the random numbers of loads: splitmix64, one state per worker, so that a seed gives
 * the same transactions again.
 */
#include "tools/bench/bn_load.h"

uint64_t bn_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(*state);
}

/* The high half of a product: a bias below n / 2^64, no division. */
uint64_t bn_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)bn_random(state) * n) >> 64);
}
