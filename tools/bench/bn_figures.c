/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_figures.c: what the workers counted becomes figures, and those that have a target are judged.
 */
#include "tools/bench/bn_drive.h"

#include <math.h>

static void add_point(struct bn_point *to, const struct bn_point *from)
{
    uint64_t committed = bn_committed(from), took = from->count[BN_COUNT_took_ns];

    for (uint32_t i = 0; i < BN_COUNT_COUNT; i++)
        to->count[i] += from->count[i];
    for (uint32_t k = 0; k < BN_KINDS_MAX; k++) {
        to->kind[k].committed += from->kind[k].committed;
        to->kind[k].refused += from->kind[k].refused;
        to->kind[k].tries += from->kind[k].tries;
        bn_histogram_merge(&to->kind[k].latency, &from->kind[k].latency);
    }
    if (took != 0)
        to->rate += (double)committed * 1e9 / (double)took;
}

void bn_figures_collect(struct bn_run *run)
{
    for (uint32_t p = 0; p < run->options.point_count; p++) {
        for (uint32_t i = 0; i < run->options.threads; i++)
            add_point(&run->point[p], bn_worker_point(run->worker[i], p));
    }
}

uint64_t bn_committed(const struct bn_point *p)
{
    uint64_t sum = 0;

    for (uint32_t k = 0; k < BN_KINDS_MAX; k++)
        sum += p->kind[k].committed;
    return sum;
}

uint32_t bn_best_point(const struct bn_run *run)
{
    uint32_t best = 0;

    for (uint32_t p = 1; p < run->options.point_count; p++) {
        if (run->point[p].rate > run->point[best].rate)
            best = p;
    }
    return best;
}

/* Throughput of the best point over that of one transaction in flight. */
static double sweep_gain(const struct bn_run *run)
{
    for (uint32_t p = 0; p < run->options.point_count; p++) {
        if (run->options.point[p] == 1 && run->options.point_count > 1)
            return run->point[p].rate == 0
                ? NAN
                : run->point[bn_best_point(run)].rate / run->point[p].rate;
    }
    return NAN;
}

/* The latency at a quantile, over all kinds that there were. */
static double latency(const struct bn_point *p, double q)
{
    struct bn_histogram *all = calloc(1, sizeof(*all));
    double value = NAN;

    if (all == NULL)
        return NAN;
    for (uint32_t k = 0; k < BN_KINDS_MAX; k++)
        bn_histogram_merge(all, &p->kind[k].latency);
    if (all->count != 0)
        value = (double)bn_histogram_quantile(all, q);
    free(all);
    return value;
}

static double cpu_rate(const struct bn_point *p)
{
    uint64_t cpu = p->count[BN_COUNT_cpu_ns];

    return cpu == 0 ? NAN : (double)bn_committed(p) * 1e9 / (double)cpu;
}

double bn_figure(const struct bn_run *run, const struct bn_point *p, const char *name)
{
    const uint64_t *c = p->count;
    double committed = (double)bn_committed(p);

    if (strcmp(name, "throughput") == 0)
        return p->rate;
    if (strcmp(name, "throughput_per_core") == 0)
        return cpu_rate(p);
    if (strcmp(name, "sweep_gain") == 0)
        return sweep_gain(run);
    if (strcmp(name, "latency_p50_ns") == 0)
        return latency(p, 0.5);
    if (strcmp(name, "latency_p99_ns") == 0)
        return latency(p, 0.99);
    if (committed == 0)
        return NAN;
    if (strcmp(name, "work_requests") == 0)
        return (double)(c[BN_COUNT_reads] + c[BN_COUNT_cas] + c[BN_COUNT_writes] +
                   c[BN_COUNT_flushes] + c[BN_COUNT_marks]) /
            committed;
    if (strcmp(name, "round_trips") == 0)
        return (double)c[BN_COUNT_round_trips] / committed;
    if (strcmp(name, "syscalls") == 0)
        return (double)(c[BN_COUNT_syscalls] + c[BN_COUNT_wakeups]) / committed;
    return NAN;
}

bool bn_target_is_met(const struct bn_run *run, const struct bn_target *t, double *ret_value)
{
    const struct bn_options *o = &run->options;
    const char *fabric = o->config == NULL ? o->fabric : run->config.fabric;
    bool network = t->rtt_us == o->rtt_us && (t->rtt_us != 0 || !o->projection);

    *ret_value = network && strcmp(fabric, t->fabric) == 0
        ? bn_figure(run, &run->point[bn_best_point(run)], t->figure)
        : NAN;
    if (isnan(*ret_value))
        return true;
    return t->at_most ? *ret_value <= t->value : *ret_value >= t->value;
}

bool bn_targets_are_met(const struct bn_run *run)
{
    const struct bn_load_ops *ops = run->load->ops;
    bool met = true;

    for (uint32_t i = 0; i < ops->target_count; i++) {
        double value;
        if (!bn_target_is_met(run, &ops->targets[i], &value))
            met = false;
    }
    return met;
}
