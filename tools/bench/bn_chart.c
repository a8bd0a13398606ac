/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_chart.c: what the SVG of a load shows: how latencies are distributed (for each kind of
 * transaction; of a sweep, for each number in flight), and, of a sweep, throughput against
 * transactions in flight.
 */
#include "tools/bench/bn_drive.h"

#include <errno.h>
#include <math.h>

#include "tools/bench/bn_svg.h"

#define STEPS_PER_DECADE 20u
#define DECADES_MAX 5u /* up to 99.999 % */

static void format_ns(double ns, char text[16])
{
    if (ns < 1e3)
        (void)snprintf(text, 16, "%.4g ns", ns);
    else if (ns < 1e6)
        (void)snprintf(text, 16, "%.4g µs", ns / 1e3);
    else if (ns < 1e9)
        (void)snprintf(text, 16, "%.4g ms", ns / 1e6);
    else
        (void)snprintf(text, 16, "%.4g s", ns / 1e9);
}

static void format_rate(double rate, char text[16])
{
    if (rate < 1e4)
        (void)snprintf(text, 16, "%.5g", rate);
    else if (rate < 1e6)
        (void)snprintf(text, 16, "%.4g k", rate / 1e3);
    else
        (void)snprintf(text, 16, "%.4g M", rate / 1e6);
}

/* ---- latencies: the x axis is -log10 of the part that took longer ---- */

static const struct {
    double q;
    const char *text;
} marks[] = {{0, "0 %"}, {0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"},
    {0.9999, "99.99 %"}, {0.99999, "99.999 %"}};

static double x_of(double q)
{
    return -log10(1 - q);
}

static void add_point(struct bn_svg_series *s, const struct bn_histogram *h, double q, bool marked)
{
    if (s->count < BN_SVG_POINTS_MAX)
        s->point[s->count++] = (struct bn_svg_point){
            x_of(q), (double)cn_max64(1, bn_histogram_quantile(h, q)), marked};
}

/* As far out as there are at least ten that took longer. */
static void add_latency(struct bn_svg_chart *c, const char *name, const struct bn_histogram *h)
{
    if (h->count == 0 || c->series_count == BN_SVG_SERIES_MAX)
        return;

    double last = fmin(DECADES_MAX, fmax(1, floor(log10((double)h->count / 10))));
    struct bn_svg_series *s = &c->series[c->series_count++];
    uint32_t m = 0;

    (void)snprintf(s->name, sizeof(s->name), "%s", name);
    for (uint32_t step = 0; step <= (uint32_t)last * STEPS_PER_DECADE; step++) {
        double x = (double)step / STEPS_PER_DECADE;
        for (; m < CN_ARRAY_SIZE(marks) && x_of(marks[m].q) <= x + 1e-9; m++)
            add_point(s, h, marks[m].q, true);
        add_point(s, h, 1 - pow(10, -x), false);
    }
    c->x.to = fmax(c->x.to, last);
}

static void chart_latency(const struct bn_run *run, struct bn_svg_chart *c)
{
    struct bn_histogram *all = malloc(sizeof(*all));
    char name[48];

    c->title = "Latency of committed transactions";
    c->x.title = "percentile";
    c->y = (struct bn_svg_axis){.title = "latency", .log = true};
    for (uint32_t p = 0; p < run->options.point_count && run->options.point_count > 1; p++) {
        if (all == NULL)
            break;
        memset(all, 0, sizeof(*all));
        for (uint32_t k = 0; k < BN_KINDS_MAX; k++)
            bn_histogram_merge(all, &run->point[p].kind[k].latency);
        (void)snprintf(name, sizeof(name), "%u in flight", run->options.point[p]);
        add_latency(c, name, all);
    }
    free(all);
    const char *const *names = run->load->ops->kinds;
    for (uint32_t k = 0; k < BN_KINDS_MAX && names[k] != NULL && run->options.point_count == 1; k++)
        add_latency(c, names[k], &run->point[0].kind[k].latency);
    for (uint32_t m = 0; m < CN_ARRAY_SIZE(marks) && x_of(marks[m].q) <= c->x.to + 1e-9; m++)
        bn_svg_add_tick(&c->x, x_of(marks[m].q), marks[m].text);
    bn_svg_fit(c, format_ns);
}

/* ---- throughput ---- */

static void add_rate(struct bn_svg_series *s, uint32_t inflight, double rate)
{
    if (!isnan(rate))
        s->point[s->count++] = (struct bn_svg_point){inflight, rate, true};
}

static void sort_points(struct bn_svg_series *s)
{
    for (uint32_t i = 1; i < s->count; i++) {
        for (uint32_t j = i; j > 0 && s->point[j].x < s->point[j - 1].x; j--) {
            struct bn_svg_point swap = s->point[j];
            s->point[j] = s->point[j - 1];
            s->point[j - 1] = swap;
        }
    }
}

static void chart_throughput(const struct bn_run *run, struct bn_svg_chart *c)
{
    const struct bn_options *o = &run->options;
    char text[16];

    c->title = "Throughput against transactions in flight";
    c->x = (struct bn_svg_axis){.title = o->threads > 1
            ? "transactions in flight per coordinator thread"
            : "transactions in flight",
        .log = true, .from = o->point[0], .to = o->point[0]};
    c->y.title = "transactions per second";
    c->series_count = 2;
    (void)snprintf(c->series[0].name, sizeof(c->series[0].name), "per second");
    (void)snprintf(
        c->series[1].name, sizeof(c->series[1].name), "per second and core of coordinator");
    for (uint32_t p = 0; p < o->point_count; p++) {
        (void)snprintf(text, sizeof(text), "%u", o->point[p]);
        bn_svg_add_tick(&c->x, o->point[p], text);
        c->x.from = fmin(c->x.from, o->point[p]);
        c->x.to = fmax(c->x.to, o->point[p]);
        add_rate(&c->series[0], o->point[p], run->point[p].rate);
        add_rate(&c->series[1], o->point[p],
            bn_figure(run, &run->point[p], "throughput_per_core"));
    }
    sort_points(&c->series[0]);
    sort_points(&c->series[1]);
    if (c->x.to == c->x.from)
        c->x.to = c->x.from + 1;
    bn_svg_fit(c, format_rate);
}

static void describe_network(const struct bn_options *o, char *text, size_t size)
{
    char rtt[48] = "", rate[48] = "";

    if (o->rtt_us != 0)
        (void)snprintf(rtt, sizeof(rtt), " round trip %llu µs", (unsigned long long)o->rtt_us);
    if (o->gbps != 0)
        (void)snprintf(rate, sizeof(rate), " %llu Gbit/s", (unsigned long long)o->gbps);
    (void)snprintf(text, size, "; modelled network:%s%s%s%s", rtt,
        rtt[0] != '\0' && rate[0] != '\0' ? "," : "", rate,
        o->virtual_time ? "; time partly virtual" : "");
}

/* What the load says of the run, the seed, the load's own options. */
static void describe_options(const struct bn_run *run, char *text, size_t size)
{
    const struct bn_load_ops *ops = run->load->ops;
    const char *note = run->load->note;
    int at = snprintf(text, size, "%s%sseed %llu", note == NULL ? "" : note,
        note == NULL ? "" : "; ", (unsigned long long)run->options.seed);

    for (uint32_t i = 0; i < ops->option_count && ops->options[i].name != NULL; i++) {
        const struct tl_option *option = &ops->options[i];
        char value[32] = "";
        if (option->number != NULL)
            (void)snprintf(value, sizeof(value), " %llu", (unsigned long long)*option->number);
        else if (option->text != NULL)
            (void)snprintf(
                value, sizeof(value), " %.30s", *option->text == NULL ? "" : *option->text);
        if ((option->flag == NULL || *option->flag) && (size_t)at < size)
            at += snprintf(text + at, size - (size_t)at, ", %s%s", option->name, value);
    }
}

int bn_chart(const struct bn_run *run, const char *path)
{
    const struct bn_options *o = &run->options;
    struct bn_svg_chart *charts = calloc(2, sizeof(*charts));
    char title[96], subtitle[192], caption[256];
    const struct bn_svg_text text = {title, subtitle, caption};

    if (charts == NULL)
        return cn_fail(-ENOMEM, "no memory for charts");
    (void)snprintf(title, sizeof(title), "cairn bench %s%s", run->load->ops->name,
        o->projection ? ": projection" : "");
    int at = snprintf(subtitle, sizeof(subtitle), "%s, %u participant%s, %u coordinator thread%s",
        o->config == NULL ? o->fabric : run->config.fabric, run->load->participants,
        run->load->participants == 1 ? "" : "s", (unsigned)o->threads, o->threads == 1 ? "" : "s");
    if (o->projection)
        describe_network(o, subtitle + at, sizeof(subtitle) - (size_t)at);
    chart_latency(run, &charts[0]);
    if (o->point_count > 1)
        chart_throughput(run, &charts[1]);
    describe_options(run, caption, sizeof(caption));
    int rc = bn_svg_write(path, &text, charts, o->point_count > 1 ? 2 : 1);
    free(charts);
    return rc;
}
