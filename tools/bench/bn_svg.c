/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_svg.c: see bn_svg.h.
 */
#include "tools/bench/bn_svg.h"

#include <errno.h>
#include <math.h>

#define WIDTH 840.0
#define HEAD 92.0          /* above the first chart */
#define LEFT 92.0
#define RIGHT 38.0
#define NAME 30.0          /* a chart's title */
#define LEGEND_ROW 22.0
#define LEGEND_BOTTOM 12.0
#define GROUND 300.0       /* its height */
#define CHART_BOTTOM 70.0  /* texts of the x axis */
#define LEGEND_LEFT 24.0   /* line and marker */
#define LEGEND_RIGHT 16.0
#define CHARACTER 6.6      /* of a legend's text, about */
#define TICKS_DENSE 13u    /* of a logarithmic axis: so many have texts, else powers of ten only */
#define STEPS_MAX 6.0      /* of a linear axis */

static const char style[] =
    "<style>\n"
    "svg{--ground:#ffffff;--ink:#1c1f23;--soft:#5b636d;--grid:#e3e6ea;--axis:#9aa3ad;\n"
    "--s0:#0b62b0;--s1:#c8500a;--s2:#0a8463;--s3:#9b3f86;--s4:#8a6a00;--s5:#2b95c9;--s6:#b3263a;"
    "--s7:#5b5fc7}\n"
    "@media(prefers-color-scheme:dark){svg{--ground:#14171a;--ink:#e8eaed;--soft:#a6adb6;"
    "--grid:#2b3036;--axis:#69727d;\n"
    "--s0:#62aef0;--s1:#f0924f;--s2:#3fc79f;--s3:#d88ac6;--s4:#d4b13c;--s5:#86d0f5;--s6:#f0808f;"
    "--s7:#a5a8f5}}\n"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,"
    "sans-serif;fill:var(--ink);font-size:13px}\n"
    ".title{font-size:19px;font-weight:600}.sub{fill:var(--soft)}.name{font-size:15px;"
    "font-weight:600}\n"
    ".tick{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}"
    ".axis{fill:var(--soft)}\n"
    ".grid{stroke:var(--grid)}.frame{stroke:var(--axis);fill:none}\n"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n"
    ".mark{stroke:var(--ground);stroke-width:1.2}\n";
#define COLOURS 8u

/* ---- axes ---- */

void bn_svg_add_tick(struct bn_svg_axis *axis, double at, const char *text)
{
    struct bn_svg_tick *tick = &axis->tick[axis->tick_count];

    if (axis->tick_count == BN_SVG_TICKS_MAX)
        return;
    axis->tick_count++;
    tick->at = at;
    (void)snprintf(tick->text, sizeof(tick->text), "%s", text);
}

static void fit_linear(
    struct bn_svg_axis *axis, double max, void (*format)(double value, char text[16]))
{
    double step = pow(10, floor(log10(max > 0 ? max : 1)) - 1);
    static const double larger[] = {2, 2.5, 2};
    char text[16];

    for (uint32_t i = 0; max / step > STEPS_MAX; i++)
        step *= larger[i % CN_ARRAY_SIZE(larger)];
    axis->from = 0;
    axis->to = step * fmax(1, ceil(max / step));
    for (double n = 0; n * step <= axis->to * 1.0001; n++) {
        format(n * step, text);
        bn_svg_add_tick(axis, n * step, text);
    }
}

static void fit_log(struct bn_svg_axis *axis, double min, double max,
    void (*format)(double value, char text[16]))
{
    static const double parts[] = {1, 2, 5};
    double low = floor(log10(min)), high = fmax(low + 1, ceil(log10(max)));
    double steps[BN_SVG_TICKS_MAX], decade = low;
    uint32_t count = 0;
    char text[16];

    do {
        for (uint32_t i = 0; i < CN_ARRAY_SIZE(parts) && (i == 0 || decade < high); i++)
            steps[count++] = parts[i] * pow(10, decade);
    } while (++decade <= high && count + CN_ARRAY_SIZE(parts) <= BN_SVG_TICKS_MAX);
    uint32_t first = 0, last = count - 1;
    while (first + 1 < count && steps[first + 1] <= min)
        first++;
    while (last > first + 1 && steps[last - 1] >= max)
        last--;
    axis->from = steps[first];
    axis->to = steps[last];
    bool dense = last - first < TICKS_DENSE;
    for (uint32_t i = first; i <= last; i++) {
        format(steps[i], text);
        bn_svg_add_tick(axis, steps[i], dense || i % CN_ARRAY_SIZE(parts) == 0 ? text : "");
    }
}

void bn_svg_fit(struct bn_svg_chart *chart, void (*format)(double value, char text[16]))
{
    double min = INFINITY, max = 0;

    for (uint32_t s = 0; s < chart->series_count; s++) {
        for (uint32_t i = 0; i < chart->series[s].count; i++) {
            min = fmin(min, chart->series[s].point[i].y);
            max = fmax(max, chart->series[s].point[i].y);
        }
    }
    chart->y.tick_count = 0;
    if (chart->y.log && max > 0)
        fit_log(&chart->y, fmax(min, max * 1e-9), max, format);
    else
        fit_linear(&chart->y, max, format);
}

/* Where a value lies on its axis, 0 to 1. */
static double place(const struct bn_svg_axis *axis, double value)
{
    double part = axis->log ? (log(value) - log(axis->from)) / (log(axis->to) - log(axis->from))
                            : (value - axis->from) / (axis->to - axis->from);

    return fmin(1, fmax(0, part));
}

static double x_of(const struct bn_svg_chart *chart, double value)
{
    return LEFT + place(&chart->x, value) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct bn_svg_chart *chart, double top, double value)
{
    return top + (1 - place(&chart->y, value)) * GROUND;
}

/* ---- the legend, as wide as the ground ---- */

static double entry_width(const struct bn_svg_series *series)
{
    return LEGEND_LEFT + LEGEND_RIGHT + CHARACTER * (double)strlen(series->name);
}

/* Where an entry stands: its row, and x from the left. */
static uint32_t legend_at(const struct bn_svg_chart *c, uint32_t series, double *ret_x)
{
    uint32_t row = 0;
    double x = 0;

    for (uint32_t s = 0; s <= series; s++) {
        if (x + entry_width(&c->series[s]) > WIDTH - LEFT - RIGHT + LEGEND_RIGHT && x > 0) {
            row++;
            x = 0;
        }
        *ret_x = x;
        x += entry_width(&c->series[s]);
    }
    return row;
}

static double legend_height(const struct bn_svg_chart *c)
{
    double x;

    return c->series_count == 0
        ? 0
        : LEGEND_BOTTOM + LEGEND_ROW * (legend_at(c, c->series_count - 1, &x) + 1);
}

static double chart_height(const struct bn_svg_chart *c)
{
    return NAME + legend_height(c) + GROUND + CHART_BOTTOM;
}

/* ---- drawing ---- */

static void put_text(FILE *f, double x, double y, const char *attributes, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '<' || *p == '>' || *p == '&')
            (void)fputs(*p == '<' ? "&lt;" : *p == '>' ? "&gt;" : "&amp;", f);
        else
            (void)fputc(*p, f);
    }
    (void)fputs("</text>\n", f);
}

static void put_marker(FILE *f, uint32_t series, double x, double y)
{
    static const char *const paths[] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        "m-3.6 -3.6h7.2v7.2h-7.2z", "m0 -4.8l4.6 8h-9.2z", "m0 -5l5 5l-5 5l-5 -5z",
        "m0 4.8l4.6 -8h-9.2z"};

    fprintf(f, "<path class=\"mark\" fill=\"var(--s%u)\" d=\"M%.1f %.1f%s\"/>\n", series % COLOURS,
        x, y, paths[series % CN_ARRAY_SIZE(paths)]);
}

static void put_axes(FILE *f, const struct bn_svg_chart *c, double top)
{
    double bottom = top + GROUND, right = WIDTH - RIGHT;
    char turn[96];

    for (uint32_t i = 0; i < c->y.tick_count; i++) {
        double y = y_of(c, top, c->y.tick[i].at);
        fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", LEFT, y, right);
        put_text(f, LEFT - 9, y + 4, "class=\"tick\" text-anchor=\"end\"", c->y.tick[i].text);
    }
    for (uint32_t i = 0; i < c->x.tick_count; i++) {
        double x = x_of(c, c->x.tick[i].at);
        fprintf(f, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, top, bottom);
        put_text(f, x, bottom + 20, "class=\"tick\" text-anchor=\"middle\"", c->x.tick[i].text);
    }
    fprintf(f, "<path class=\"frame\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", LEFT, top, bottom,
        right);
    put_text(f, (LEFT + right) / 2, bottom + 44, "class=\"axis\" text-anchor=\"middle\"",
        c->x.title);
    (void)snprintf(turn, sizeof(turn),
        "class=\"axis\" text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\"",
        bottom - GROUND / 2);
    put_text(f, 20, bottom - GROUND / 2, turn, c->y.title);
}

static void put_legend(FILE *f, const struct bn_svg_chart *c, double top)
{
    for (uint32_t s = 0; s < c->series_count; s++) {
        double x, y = top + LEGEND_ROW * legend_at(c, s, &x) + LEGEND_ROW / 2;
        x += LEFT;
        fprintf(f, "<path class=\"line\" stroke=\"var(--s%u)\" d=\"M%.1f %.1fh18\"/>\n",
            s % COLOURS, x, y);
        put_marker(f, s, x + 9, y);
        put_text(f, x + LEGEND_LEFT, y + 4, "", c->series[s].name);
    }
}

static void put_series(FILE *f, const struct bn_svg_chart *c, uint32_t s, double top)
{
    const struct bn_svg_series *series = &c->series[s];

    fprintf(f, "<path class=\"line\" stroke=\"var(--s%u)\" d=\"", s % COLOURS);
    for (uint32_t i = 0; i < series->count; i++)
        fprintf(f, "%s%.1f %.1f", i == 0 ? "M" : "L", x_of(c, series->point[i].x),
            y_of(c, top, series->point[i].y));
    (void)fputs("\"/>\n", f);
    for (uint32_t i = 0; i < series->count; i++) {
        if (series->point[i].marked)
            put_marker(
                f, s, x_of(c, series->point[i].x), y_of(c, top, series->point[i].y));
    }
}

static void put_chart(FILE *f, const struct bn_svg_chart *c, double top)
{
    (void)fputs("<g>\n", f);
    put_text(f, LEFT, top + 18, "class=\"name\"", c->title);
    put_legend(f, c, top + NAME);
    top += NAME + legend_height(c);
    put_axes(f, c, top);
    for (uint32_t s = 0; s < c->series_count; s++)
        put_series(f, c, s, top);
    (void)fputs("</g>\n", f);
}

int bn_svg_write(const char *path, const struct bn_svg_text *text,
    const struct bn_svg_chart *charts, uint32_t count)
{
    FILE *f = fopen(path, "we");
    double height = HEAD, top = HEAD;

    for (uint32_t i = 0; i < count; i++)
        height += chart_height(&charts[i]);
    if (f == NULL)
        return cn_fail(-errno, "%s: cannot write: %s", path, strerror(errno));
    fprintf(f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" role=\"img\">\n",
        WIDTH, height, WIDTH, height);
    fprintf(f, "%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"var(--ground)\"/>\n",
        style);
    put_text(f, 20, 34, "class=\"title\"", text->title);
    put_text(f, 20, 56, "class=\"sub\"", text->subtitle);
    put_text(f, 20, 75, "class=\"tick\"", text->caption);
    for (uint32_t i = 0; i < count; top += chart_height(&charts[i]), i++)
        put_chart(f, &charts[i], top);
    (void)fputs("</svg>\n", f);
    bool good = ferror(f) == 0;
    if (fclose(f) != 0 || !good)
        return cn_fail(-EIO, "%s: cannot write", path);
    return 0;
}
