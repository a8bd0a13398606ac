/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tsc_khz.c: how fast the time stamp counter of this machine runs. Prints kHz.
 *
 * Under plain emulation a guest reads this very counter. On a busy machine the guest's own
 * calibration is wrong by up to a half at times, and then its clock and all its deadlines are;
 * tests/vm/run tells it this number instead.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

#define TRIES 100
#define WAIT_NS 60000000L

struct moment {
    uint64_t tsc, ns;
};

static uint64_t read_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Both clocks at one moment: of many pairs the one that was read fastest. */
static struct moment read_both(void)
{
    struct moment best = {0};
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t before = __rdtsc(), ns = read_ns(), after = __rdtsc();
        if (after - before < least) {
            least = after - before;
            best = (struct moment){.tsc = before + least / 2, .ns = ns};
        }
    }
    return best;
}

int main(void)
{
    const struct timespec wait = {.tv_nsec = WAIT_NS};
    struct moment a = read_both();

    (void)nanosleep(&wait, NULL);
    struct moment b = read_both();
    printf("%" PRIu64 "\n", (b.tsc - a.tsc) * UINT64_C(1000000) / (b.ns - a.ns));
    return 0;
}
