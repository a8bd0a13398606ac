/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sw_sweep.c: runs many seeds.
 */
#include "tests/sim/sw_sweep.h"

#include <time.h>

double sw_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

static void add(struct sw_sweep *sweep, const struct cr_result *r)
{
    const uint64_t *from = (const uint64_t *)(const void *)&r->counts;
    uint64_t *to = (uint64_t *)(void *)&sweep->counts;

    for (size_t i = 0; i < sizeof(r->counts) / sizeof(*from); i++)
        to[i] += from[i];
    for (uint32_t i = 0; i < CN_STEP_COUNT; i++)
        sweep->steps[i] += r->steps[i];
    sweep->words_lost += r->words_lost;
}

bool sw_sweep(const char *program, const struct cr_setup *setup, struct sw_sweep *sweep)
{
    uint64_t first = from_environment("CAIRN_SIM_FIRST", sweep->first);
    uint64_t count = from_environment("CAIRN_SIM_SEEDS", sweep->count);
    double limit = (double)from_environment("CAIRN_SIM_SECONDS", (uint64_t)sweep->seconds);
    double begun = sw_seconds();
    struct cr_setup s = *setup;
    bool good = true;

    s.verbose = getenv("CAIRN_SIM_VERBOSE") != NULL;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct cr_result r;
        if (getenv("CAIRN_SIM_EACH") != NULL)
            printf("seed %lu\n", seed), fflush(stdout);
        cr_cluster_run(&s, seed, &r);
        sim_free(r.tape);
        sweep->done++;
        add(sweep, &r);
        if (r.failed) {
            printf("FAILED seed %lu: %s\n  again: CAIRN_SIM_FIRST=%lu CAIRN_SIM_SEEDS=1 "
                   "CAIRN_SIM_VERBOSE=1 %s\n", seed, r.failure, seed, program);
            good = false;
            if (getenv("CAIRN_SIM_KEEP_GOING") == NULL)
                break;
        }
        if (sw_seconds() - begun > limit)
            break;
    }
    sweep->took = sw_seconds() - begun;
    sim_fiber_trim();
    return good;
}

void sw_sweep_print(const struct sw_sweep *sweep)
{
    const struct cr_counts *n = &sweep->counts;

    printf("seeds %lu in %.1f s (%.0f/s): operations %lu committed %lu aborted %lu unknown %lu "
           "errors %lu\n"
           "  crashes: nodes %lu clients %lu nested %lu; pauses %lu partitions %lu breaks %lu; "
           "resolved committed %lu aborted %lu; words lost %lu\n"
           "  by nodes' CPUs: flushes %lu compare-and-swaps %lu\n",
        sweep->done, sweep->took, (double)sweep->done / (sweep->took > 0 ? sweep->took : 1), n->ops,
        n->committed, n->aborted, n->unknown, n->errors, n->crashes_node, n->crashes_client,
        n->nested, n->pauses, n->partitions, n->breaks, n->resolved_committed, n->resolved_aborted,
        sweep->words_lost, n->flushes_served, n->cas_served);
    printf("  steps:");
    for (uint32_t i = 0; i < CN_STEP_COUNT; i++)
        printf(" %s %lu", cn_step_name(i), sweep->steps[i]);
    printf("\n");
}
