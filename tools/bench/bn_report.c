/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_report.c: the output of a load, as text or JSON (docs/benchmarks.md describes it; keys come in
 * a fixed order). What there is nothing known about, as the processor time of nodes that somebody
 * else runs, is null in JSON and left out in the text.
 */
#include "tools/bench/bn_drive.h"

#include <math.h>
#include <unistd.h>

#define PROJECTION "PROJECTION: a modelled network, time partly virtual"
#define MODELLED "PROJECTION: a modelled network"

double bn_rounded(double value)
{
    return value < 9e12 ? (double)(int64_t)(value * 1000 + 0.5) / 1000 : value;
}

static json_t *json_number_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(bn_rounded(value));
}

/* ---- per transaction ---- */

struct per {
    const char *name;
    double value; /* per committed transaction; NAN: not known */
    bool fine;    /* not rounded */
};
#define PER_MAX 24u

/* All that is counted per committed transaction: work of those that aborted included. */
static uint32_t list_per(const struct bn_point *p, struct per ret[PER_MAX])
{
    const uint64_t *c = p->count;
    uint64_t n = bn_committed(p);
    double one = n == 0 ? NAN : 1 / (double)n;
    const struct {
        const char *name;
        uint64_t sum;
    } counted[] = {{"round_trips", c[BN_COUNT_round_trips]},
        {"work_requests",
            c[BN_COUNT_reads] + c[BN_COUNT_cas] + c[BN_COUNT_writes] + c[BN_COUNT_flushes] +
                c[BN_COUNT_marks]},
        {"reads", c[BN_COUNT_reads]}, {"cas", c[BN_COUNT_cas]}, {"writes", c[BN_COUNT_writes]},
        {"flushes", c[BN_COUNT_flushes]}, {"marks", c[BN_COUNT_marks]},
        {"doorbells", c[BN_COUNT_doorbells]}, {"completions", c[BN_COUNT_completions]},
        {"messages", c[BN_COUNT_messages]}, {"bytes_read", c[BN_COUNT_bytes_read]},
        {"bytes_written", c[BN_COUNT_bytes_written]}, {"wakeups", c[BN_COUNT_wakeups]},
        {"syscalls", c[BN_COUNT_syscalls]}, {"cache_hits", c[BN_COUNT_cache_hits]},
        {"cache_misses", c[BN_COUNT_cache_misses]}};
    uint32_t count = 0;

    _Static_assert(CN_ARRAY_SIZE(counted) + 5 <= PER_MAX, "room for all");
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(counted); i++)
        ret[count++] = (struct per){counted[i].name, (double)counted[i].sum * one, false};
    double here = p->nodes.counters_known ? one : NAN;
    ret[count++] = (struct per){"node_records_applied", (double)p->nodes.applied * here, false};
    ret[count++] = (struct per){"node_fences", (double)p->nodes.fences * here, false};
    ret[count++] = (struct per){"node_sleeps", (double)p->nodes.sleeps * here, false};
    ret[count++] = (struct per){
        "cpu_seconds_coordinator", (double)c[BN_COUNT_cpu_ns] / 1e9 * one, true};
    ret[count++] = (struct per){"cpu_seconds_nodes",
        p->nodes.cpu_known ? (double)p->nodes.cpu_ns / 1e9 * one : NAN, true};
    return count;
}

/* ---- JSON ---- */

static json_t *json_latency(const struct bn_histogram *h)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "p50",
        (json_int_t)bn_histogram_quantile(h, 0.5), "p90",
        (json_int_t)bn_histogram_quantile(h, 0.9), "p99",
        (json_int_t)bn_histogram_quantile(h, 0.99), "p99.9",
        (json_int_t)bn_histogram_quantile(h, 0.999), "max", (json_int_t)h->max, "mean",
        json_real(bn_rounded(bn_histogram_mean(h))), "count", (json_int_t)h->count);
}

static void set(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static json_t *json_kinds(const struct bn_run *run, const struct bn_point *p, json_t *latency)
{
    const char *const *names = run->load->ops->kinds;
    json_t *kinds = json_object();

    for (uint32_t k = 0; k < BN_KINDS_MAX && names[k] != NULL; k++) {
        const struct bn_kind *kind = &p->kind[k];
        set(kinds, names[k],
            json_pack("{s:I, s:I, s:I}", "committed", (json_int_t)kind->committed, "refused",
                (json_int_t)kind->refused, "tries", (json_int_t)kind->tries));
        if (kind->latency.count != 0)
            set(latency, names[k], json_latency(&kind->latency));
    }
    return kinds;
}

static json_t *json_aborts(const struct bn_point *p)
{
    const uint64_t *c = p->count;

    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "lock", (json_int_t)c[BN_COUNT_aborts_lock],
        "validate", (json_int_t)c[BN_COUNT_aborts_validate], "read",
        (json_int_t)c[BN_COUNT_aborts_read], "user", (json_int_t)c[BN_COUNT_aborts_user], "error",
        (json_int_t)c[BN_COUNT_aborts_error]);
}

/* The figures of one point, into `o`. */
static void set_point(const struct bn_run *run, uint32_t at, json_t *o)
{
    const struct bn_point *p = &run->point[at];
    json_t *latency = json_object(), *per = json_object();
    struct per list[PER_MAX];
    struct bn_histogram *all = calloc(1, sizeof(*all));

    set(o, "inflight", json_integer(run->options.point[at]));
    set(o, "throughput", json_real(bn_rounded(p->rate)));
    set(o, "throughput_per_core",
        json_number_or_null(bn_figure(run, p, "throughput_per_core")));
    set(o, "committed", json_integer((json_int_t)bn_committed(p)));
    set(o, "thread_seconds", json_real(bn_rounded((double)p->count[BN_COUNT_took_ns] / 1e9)));
    for (uint32_t k = 0; k < BN_KINDS_MAX && all != NULL; k++)
        bn_histogram_merge(all, &p->kind[k].latency);
    if (all != NULL)
        set(latency, "all", json_latency(all));
    free(all);
    set(o, "kinds", json_kinds(run, p, latency));
    set(o, "latency_ns", latency);
    set(o, "aborts", json_aborts(p));
    uint32_t count = list_per(p, list);
    for (uint32_t i = 0; i < count; i++)
        set(per, list[i].name,
            list[i].fine && !isnan(list[i].value) ? json_real(list[i].value)
                                                  : json_number_or_null(list[i].value));
    set(o, "per_transaction", per);
}

static json_t *json_options(const struct bn_run *run)
{
    const struct bn_options *o = &run->options;
    json_t *all = json_pack(
        "{s:s, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:I, s:I}",
        "fabric", o->config == NULL ? o->fabric : run->config.fabric, "threads",
        (json_int_t)o->threads, "participants", (json_int_t)run->load->participants,
        "inflight_max", (json_int_t)o->inflight_max, "blocking", o->blocking, "duration_s",
        (json_int_t)o->duration_s, "warmup_s", (json_int_t)o->warmup_s, "transactions",
        (json_int_t)o->transactions, "rtt_us", (json_int_t)o->rtt_us, "gbps",
        (json_int_t)o->gbps, "virtual", o->virtual_time, "write_back",
        run->config.fabric_config.write_back, "completion",
        o->completion == NULL ? "adaptive" : o->completion, "node_threads",
        (json_int_t)o->node_threads, "cache", (json_int_t)o->cache);
    const struct bn_load_ops *ops = run->load->ops;

    for (uint32_t i = 0; i < ops->option_count && ops->options[i].name != NULL; i++) {
        const struct tl_option *option = &ops->options[i];
        if (option->number != NULL)
            set(all, option->name, tl_json_u64(*option->number));
        else if (option->flag != NULL)
            set(all, option->name, json_boolean(*option->flag));
        else
            set(all, option->name,
                *option->text == NULL ? json_null() : json_string(*option->text));
    }
    return all;
}

/* "model name" of the first processor; "" where there is none. */
static void read_cpu(char text[128])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    text[0] = '\0';
    while (f != NULL && text[0] == '\0' && fgets(line, sizeof(line), f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL)
            (void)snprintf(text, 128, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f != NULL)
        (void)fclose(f);
}

static json_t *json_targets(const struct bn_run *run)
{
    const struct bn_load_ops *ops = run->load->ops;
    json_t *all = json_array();

    for (uint32_t i = 0; i < ops->target_count; i++) {
        const struct bn_target *t = &ops->targets[i];
        double value;
        bool met = bn_target_is_met(run, t, &value);
        (void)json_array_append_new(all,
            json_pack("{s:s, s:s, s:f, s:s, s:I, s:o, s:o}", "figure", t->figure, "is",
                t->at_most ? "at_most" : "at_least", "target", t->value, "fabric", t->fabric,
                "rtt_us", (json_int_t)t->rtt_us, "value", json_number_or_null(value), "met",
                isnan(value) ? json_null() : json_boolean(met)));
    }
    return all;
}

static void report_json(const struct bn_run *run)
{
    char cpu[128];
    json_t *o = json_object(), *points = json_array();

    read_cpu(cpu);
    set(o, "benchmark", json_string(run->load->ops->name));
    set(o, "projection", json_boolean(run->options.projection));
    set(o, "note", run->load->note == NULL ? json_null() : json_string(run->load->note));
    set(o, "seed", tl_json_u64(run->options.seed));
    set(o, "options", json_options(run));
    set(o, "cpu",
        json_pack("{s:s, s:I}", "model", cpu, "cores",
            (json_int_t)sysconf(_SC_NPROCESSORS_ONLN)));
    set(o, "verified",
        json_pack("{s:b, s:I, s:o, s:o}", "good", 1, "conditions", (json_int_t)run->conditions,
            "load_seconds", json_real(bn_rounded((double)run->loaded_ns / 1e9)),
            "check_seconds", json_real(bn_rounded((double)run->checked_ns / 1e9))));
    set_point(run, bn_best_point(run), o);
    for (uint32_t i = 0; i < run->options.point_count && run->options.point_count > 1; i++) {
        json_t *point = json_object();
        set_point(run, i, point);
        (void)json_array_append_new(points, point);
    }
    set(o, "sweep", points);
    set(o, "sweep_gain",
        json_number_or_null(bn_figure(run, &run->point[0], "sweep_gain")));
    set(o, "targets", json_targets(run));
    tl_json_print(o);
}

/* ---- text ---- */

static const char *figure(double value, char text[32])
{
    return isnan(value) ? "-" : tl_count((uint64_t)(value + 0.5), text);
}

static void print_latency(const char *name, const struct bn_kind *kind)
{
    static const double q[] = {0.5, 0.9, 0.99, 0.999};
    const struct bn_histogram *h = &kind->latency;
    char text[32];

    printf("  %-18s %12s", name, tl_count(kind->committed, text));
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(q); i++)
        printf(" %10s", tl_count(bn_histogram_quantile(h, q[i]), text));
    printf(" %12s", tl_count(h->max, text));
    if (kind->refused != 0)
        printf("  (%s refused)", tl_count(kind->refused, text));
    printf("\n");
}

static void print_kinds(const struct bn_run *run, const struct bn_point *p)
{
    const char *const *names = run->load->ops->kinds;

    printf("  %-18s %12s %10s %10s %10s %10s %12s\n", "latency in ns", "committed", "p50", "p90",
        "p99", "p99.9", "max");
    for (uint32_t k = 0; k < BN_KINDS_MAX && names[k] != NULL; k++) {
        if (p->kind[k].committed + p->kind[k].refused != 0)
            print_latency(names[k], &p->kind[k]);
    }
}

static void print_aborts(const struct bn_point *p)
{
    const uint64_t *c = p->count;
    uint64_t tries = 0;
    char text[5][32], all[32];

    for (uint32_t k = 0; k < BN_KINDS_MAX; k++)
        tries += p->kind[k].tries;
    printf("  tries %s; aborts: lock %s, validate %s, read %s, user %s, error %s\n",
        tl_count(tries, all), tl_count(c[BN_COUNT_aborts_lock], text[0]),
        tl_count(c[BN_COUNT_aborts_validate], text[1]),
        tl_count(c[BN_COUNT_aborts_read], text[2]), tl_count(c[BN_COUNT_aborts_user], text[3]),
        tl_count(c[BN_COUNT_aborts_error], text[4]));
}

static void print_point(const struct bn_run *run, uint32_t at)
{
    const struct bn_point *p = &run->point[at];
    struct per list[PER_MAX];
    char rate[32], core[32];
    uint32_t count = list_per(p, list);
    int width = 0;

    printf("\n%s transactions per second, %s per core of coordinator; %u in flight%s%s\n",
        figure(p->rate, rate), figure(bn_figure(run, p, "throughput_per_core"), core),
        run->options.point[at], run->options.threads > 1 ? " per thread" : "",
        run->options.blocking ? ", blocking" : "");
    print_kinds(run, p);
    print_aborts(p);
    printf("  per transaction:");
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(list[i].value) || list[i].value == 0)
            continue;
        if (width > 70)
            width = printf("\n   ") - 1;
        width += printf(" %s %.4g;", list[i].name, list[i].value);
    }
    printf("\n");
}

static void print_sweep(const struct bn_run *run)
{
    char rate[32], core[32], p50[32], p99[32];

    printf("\n  %9s %14s %14s %12s %12s\n", "in flight", "per second", "per core", "p50 ns",
        "p99 ns");
    for (uint32_t i = 0; i < run->options.point_count; i++) {
        const struct bn_point *p = &run->point[i];
        printf("  %9u %14s %14s %12s %12s\n", run->options.point[i], figure(p->rate, rate),
            figure(bn_figure(run, p, "throughput_per_core"), core),
            figure(bn_figure(run, p, "latency_p50_ns"), p50),
            figure(bn_figure(run, p, "latency_p99_ns"), p99));
    }
}

static void print_targets(const struct bn_run *run)
{
    const struct bn_load_ops *ops = run->load->ops;

    for (uint32_t i = 0; i < ops->target_count; i++) {
        const struct bn_target *t = &ops->targets[i];
        double value;
        bool met = bn_target_is_met(run, t, &value);
        if (!isnan(value))
            printf("target: %s %.6g, %s %.6g: %s\n", t->figure, bn_rounded(value),
                t->at_most ? "at most" : "at least", t->value, met ? "met" : "missed");
    }
}

void bn_report(const struct bn_run *run)
{
    const struct bn_options *o = &run->options;
    char conditions[32];

    if (o->json) {
        report_json(run);
        return;
    }
    if (o->projection)
        printf("%s\n", o->virtual_time ? PROJECTION : MODELLED);
    printf("%s: fabric %s, %u participant%s, %u thread%s, seed %llu; verified: %s conditions\n",
        run->load->ops->name, o->config == NULL ? o->fabric : run->config.fabric,
        run->load->participants, run->load->participants == 1 ? "" : "s",
        (unsigned)o->threads, o->threads == 1 ? "" : "s", (unsigned long long)o->seed,
        tl_count(run->conditions, conditions));
    if (run->load->note != NULL)
        printf("%s\n", run->load->note);
    print_point(run, bn_best_point(run));
    if (o->point_count > 1)
        print_sweep(run);
    print_targets(run);
}
