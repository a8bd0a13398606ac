/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_rtt_report.c: the output of `cairn bench rtt`, as text or JSON.
 */
#include "tools/bench/bn_rtt.h"

#include <math.h>

/* ---- what was counted, per commit ---- */

struct column {
    const char *name;
    uint64_t value; /* sum */
};
#define COLUMNS 14u

static void list_columns(const struct rtt_counted *c, struct column ret[COLUMNS])
{
    const struct column columns[COLUMNS] = {{"round_trips", c->round_trips}, {"reads", c->c.reads},
        {"cas", c->c.cas}, {"writes", c->c.writes}, {"flushes", c->c.flushes},
        {"marks", c->c.marks},
        {"work_requests",
            c->c.reads + c->c.cas + c->c.writes + c->c.flushes + c->c.marks},
        {"doorbells", c->c.doorbells}, {"completions", c->c.completions},
        {"messages", c->c.messages_sent + c->c.messages_received}, {"wakeups", c->c.wakeups},
        {"syscalls", c->c.syscalls}, {"bytes_read", c->c.bytes_read},
        {"bytes_written", c->c.bytes_written}};

    memcpy(ret, columns, sizeof(columns));
}

static double per_commit(const struct rtt_counted *c, uint64_t sum)
{
    return c->commits == 0 ? 0 : (double)sum / (double)c->commits;
}

/* To three digits behind the point; without libm. */
static double rounded(double value)
{
    return (double)(uint64_t)(value * 1000 + 0.5) / 1000;
}

static json_t *json_rounded(double value)
{
    return json_real(rounded(value));
}

/* ---- JSON ---- */

static json_t *json_latency(const struct bn_histogram *h)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I}",
        "p10", (json_int_t)bn_histogram_quantile(h, 0.1),
        "p25", (json_int_t)bn_histogram_quantile(h, 0.25),
        "p50", (json_int_t)bn_histogram_quantile(h, 0.5),
        "p99", (json_int_t)bn_histogram_quantile(h, 0.99),
        "p999", (json_int_t)bn_histogram_quantile(h, 0.999),
        "mean", json_rounded(bn_histogram_mean(h)),
        "min", (json_int_t)h->min,
        "count", (json_int_t)h->count);
}

static json_t *json_counted(const struct rtt_counted *c)
{
    json_t *o = json_object();
    struct column columns[COLUMNS];

    list_columns(c, columns);
    for (uint32_t i = 0; i < COLUMNS; i++)
        (void)json_object_set_new(
            o, columns[i].name, json_rounded(per_commit(c, columns[i].value)));
    (void)json_object_set_new(o, "conflicts", json_integer((json_int_t)c->conflicts));
    return o;
}

static json_t *json_ratios(const struct rtt *r)
{
    json_t *o = json_object();
    const struct rtt_ratio *ratio;

    for (uint32_t i = 0; (ratio = rtt_ratio_at(i)) != NULL; i++) {
        double value = rtt_ratio_value(ratio, r->op);
        if (isnan(value))
            continue;
        json_t *one = json_pack("{s:o}", "value", json_rounded(value));
        if (ratio->target > 0) {
            (void)json_object_set_new(one, "target", json_real(ratio->target));
            (void)json_object_set_new(one, "met", json_boolean(rtt_ratio_is_met(ratio, value)));
        }
        (void)json_object_set_new(o, ratio->name, one);
    }
    return o;
}

static void report_json(const struct rtt *r)
{
    json_t *latency = json_object(), *counted = json_object();

    for (uint32_t i = 0; i < RTT_OP_COUNT; i++) {
        if (r->op[i].count == 0)
            continue;
        (void)json_object_set_new(latency, rtt_ops[i].name, json_latency(&r->op[i]));
        if (rtt_ops[i].commit)
            (void)json_object_set_new(counted, rtt_ops[i].name, json_counted(&r->counted[i]));
    }
    tl_json_print(json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:b}", "benchmark", "rtt",
        "fabric", r->cluster.config->fabric, "durability",
        rd_durability_name(bn_raw_durability(r->raw, 0)), "participants", (json_int_t)r->nodes,
        "rounds", (json_int_t)r->rounds, "seconds", json_rounded((double)r->took_ns / 1e9),
        "clock_ns", (json_int_t)r->clock_ns, "item_bytes",
        (json_int_t)r->keys.still[0][0].at.size, "record_bytes", (json_int_t)r->record_size,
        "latency_ns", latency, "per_commit", counted, "ratios", json_ratios(r), "met",
        rtt_is_good(r->op)));
}

/* ---- text ---- */

static void print_latencies(const struct rtt *r, bool commit)
{
    for (uint32_t i = 0; i < RTT_OP_COUNT; i++) {
        const struct bn_histogram *h = &r->op[i];
        char p50[32], p99[32], mean[32];
        if (rtt_ops[i].commit != commit || h->count == 0)
            continue;
        printf("  %-28s %12s %12s %12s\n", rtt_ops[i].label,
            tl_count(bn_histogram_quantile(h, 0.5), p50),
            tl_count(bn_histogram_quantile(h, 0.99), p99),
            tl_count((uint64_t)(bn_histogram_mean(h) + 0.5), mean));
    }
}

static void print_counted(const struct rtt *r)
{
    struct column columns[COLUMNS];

    for (uint32_t i = 0; i < RTT_OP_COUNT; i++) {
        const char *comma = "";
        if (r->counted[i].commits == 0)
            continue;
        printf("  %s: ", rtt_ops[i].label);
        list_columns(&r->counted[i], columns);
        for (uint32_t j = 0; j < COLUMNS; j++) {
            if (columns[j].value == 0)
                continue;
            printf("%s%s %.4g", comma, columns[j].name,
                rounded(per_commit(&r->counted[i], columns[j].value)));
            comma = ", ";
        }
        if (r->counted[i].conflicts != 0)
            printf("; %llu conflicts", (unsigned long long)r->counted[i].conflicts);
        printf("\n");
    }
}

void rtt_report(const struct rtt *r)
{
    const struct rtt_ratio *ratio;
    char rounds[32];

    if (r->json) {
        report_json(r);
        return;
    }
    printf("fabric %s, durability %s, %u node%s; %s samples of each in %.1f s; item %u bytes, "
           "record %u bytes\n\n",
        r->cluster.config->fabric, rd_durability_name(bn_raw_durability(r->raw, 0)),
        (unsigned)r->nodes, r->nodes == 1 ? "" : "s", tl_count(r->rounds, rounds),
        (double)r->took_ns / 1e9, r->keys.still[0][0].at.size, r->record_size);
    printf("  %-28s %12s %12s %12s\n", "raw operation", "p50 ns", "p99 ns", "mean ns");
    print_latencies(r, false);
    printf("\n  %-28s %12s %12s %12s\n", "transaction", "p50 ns", "p99 ns", "mean ns");
    print_latencies(r, true);
    printf("\nper commit, counted by the fabric:\n");
    print_counted(r);
    printf("\nratios of medians:\n");
    for (uint32_t i = 0; (ratio = rtt_ratio_at(i)) != NULL; i++) {
        double value = rtt_ratio_value(ratio, r->op);
        if (isnan(value))
            continue;
        printf("  %-30s %7.3f", ratio->name, value);
        if (ratio->target > 0)
            printf("  target %.2f: %s", ratio->target,
                rtt_ratio_is_met(ratio, value) ? "met" : "exceeded");
        printf("\n");
    }
}
