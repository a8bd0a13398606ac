/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_svg.h: charts of lines in one self-contained SVG: no script, no font but the reader's, colours
 * that change with the reader's preference for light or dark, series told apart by their markers as
 * well.
 */
#ifndef BN_SVG_H
#define BN_SVG_H

#include "include/internal/cn_base.h"

#define BN_SVG_SERIES_MAX 16u
#define BN_SVG_POINTS_MAX 128u
#define BN_SVG_TICKS_MAX 32u

struct bn_svg_series {
    char name[48];
    uint32_t count;
    struct bn_svg_point {
        double x, y;
        bool marked;
    } point[BN_SVG_POINTS_MAX];
};
struct bn_svg_axis {
    const char *title; /* with its unit */
    bool log;
    double from, to; /* of the ground; logarithmic: above 0 */
    uint32_t tick_count;
    struct bn_svg_tick {
        double at;
        char text[16]; /* "": a line only */
    } tick[BN_SVG_TICKS_MAX];
};
struct bn_svg_chart {
    const char *title;
    struct bn_svg_axis x, y;
    uint32_t series_count;
    struct bn_svg_series series[BN_SVG_SERIES_MAX];
};

void bn_svg_add_tick(struct bn_svg_axis *axis, double at, const char *text);
/* Range and ticks of the y axis as its series need them: logarithmic 1, 2, 5 of each power of ten,
 * else round steps from 0. `format` makes a tick's text. */
void bn_svg_fit(struct bn_svg_chart *chart, void (*format)(double value, char text[16]));
struct bn_svg_text {
    const char *title, *subtitle, *caption; /* what of, where, with which settings */
};
/* Write the charts below each other, under the texts. Errors: -errno. */
CN_MUST_CHECK int bn_svg_write(const char *path, const struct bn_svg_text *text,
    const struct bn_svg_chart *charts, uint32_t count);

#endif
