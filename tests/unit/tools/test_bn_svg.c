/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the SVG writer: axes fit what is drawn, every series and text is there, and nothing in a
 * text can break the document. (test_bench.sh lets an XML parser read what `bench` draws.)
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <unistd.h>

#include "tools/bench/bn_svg.h"

static void format(double value, char text[16])
{
    (void)snprintf(text, 16, "%.6g", value);
}

static struct bn_svg_chart *make_chart(bool log, double first, double last)
{
    struct bn_svg_chart *c = calloc(1, sizeof(*c));

    assert_non_null(c);
    c->title = "A <chart> & more";
    c->x = (struct bn_svg_axis){.title = "across", .from = 0, .to = 1};
    c->y = (struct bn_svg_axis){.title = "up", .log = log};
    c->series_count = 1;
    (void)snprintf(c->series[0].name, sizeof(c->series[0].name), "one");
    c->series[0].count = 2;
    c->series[0].point[0] = (struct bn_svg_point){0, first, true};
    c->series[0].point[1] = (struct bn_svg_point){1, last, false};
    bn_svg_fit(c, format);
    return c;
}

static void assert_near(double a, double b)
{
    assert_true(a > b * 0.999999 && a < b * 1.000001);
}

static void fit__linear__round_steps_from_zero(void **state)
{
    static const double top[][2] = {
        {1, 1}, {9.3, 10}, {101, 120}, {260605, 300000}, {0.013, 0.014}, {4999, 5000}};

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(top); i++) {
        struct bn_svg_chart *c = make_chart(false, 0, top[i][0]);
        assert_true(c->y.to >= top[i][0] && c->y.to <= 1.5 * top[i][0]);
        assert_in_range(c->y.tick_count, 3, 8);
        assert_true(c->y.from < 1e-12 && c->y.tick[0].at < 1e-12);
        assert_near(c->y.tick[c->y.tick_count - 1].at, c->y.to);
        free(c);
    }
}

static void fit__logarithmic__one_two_five(void **state)
{
    struct bn_svg_chart *c = make_chart(true, 830, 41000);

    (void)state;
    assert_near(c->y.from, 500);
    assert_near(c->y.to, 50000);
    assert_int_equal(c->y.tick_count, 7);
    assert_string_equal(c->y.tick[1].text, "1000");
    assert_string_equal(c->y.tick[2].text, "2000");
    free(c);
    c = make_chart(true, 100, 1e9); /* so wide that only the powers of ten have texts */
    assert_near(c->y.from, 100);
    assert_string_equal(c->y.tick[0].text, "100");
    assert_string_equal(c->y.tick[1].text, "");
    free(c);
}

static void fit__all_the_same__has_a_range(void **state)
{
    struct bn_svg_chart *c = make_chart(true, 1000, 1000);

    (void)state;
    assert_true(c->y.from < c->y.to);
    free(c);
    c = make_chart(false, 0, 0);
    assert_true(c->y.from < c->y.to);
    free(c);
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t count = 0;

    for (const char *p = text; (p = strstr(p, what)) != NULL; p += strlen(what))
        count++;
    return count;
}

static void write__charts__all_is_there_and_escaped(void **state)
{
    struct bn_svg_chart *c = make_chart(false, 3, 7), *two = calloc(2, sizeof(*two));
    const struct bn_svg_text texts = {"T & T", "<sub>", "caption"};
    char path[] = "/tmp/cairn-svg-XXXXXX", text[16384];

    (void)state;
    assert_non_null(two);
    c->series_count = 3;
    for (uint32_t i = 1; i < 3; i++) {
        c->series[i] = c->series[0];
        (void)snprintf(c->series[i].name, sizeof(c->series[i].name), "series <%u>", i);
    }
    two[0] = two[1] = *c;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(bn_svg_write(path, &texts, two, 2), 0);
    ssize_t size = read(fd, text, sizeof(text) - 1);
    assert_true(size > 0 && size < (ssize_t)sizeof(text) - 1);
    text[size] = '\0';
    assert_int_equal(count_of(text, "<text"), count_of(text, "</text>"));
    assert_int_equal(count_of(text, "<g>"), 2);
    assert_int_equal(count_of(text, ">series &lt;2&gt;</text>"), 2);
    assert_int_equal(count_of(text, ">A &lt;chart&gt; &amp; more</text>"), 2);
    assert_int_equal(count_of(text, ">T &amp; T</text>"), 1);
    assert_int_equal(count_of(text, "<sub>"), 0);
    /* of each series a line in the legend and one in the chart */
    assert_int_equal(count_of(text, "class=\"line\""), 2 * 3 * 2);
    /* and a marker in the legend and at the first point */
    assert_int_equal(count_of(text, "class=\"mark\""), 2 * 3 * 2);
    assert_int_equal(count_of(text, "nan") + count_of(text, "inf"), 0);
    (void)close(fd);
    (void)unlink(path);
    free(two);
    free(c);
}

static void write__no_folder__says_so(void **state)
{
    struct bn_svg_chart *c = make_chart(false, 3, 7);
    const struct bn_svg_text texts = {"", "", ""};

    (void)state;
    assert_int_equal(bn_svg_write("/nowhere/at/all.svg", &texts, c, 1), -ENOENT);
    assert_int_equal(bn_svg_write("/dev/full", &texts, c, 1), -EIO);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit__linear__round_steps_from_zero),
        cmocka_unit_test(fit__logarithmic__one_two_five),
        cmocka_unit_test(fit__all_the_same__has_a_range),
        cmocka_unit_test(write__charts__all_is_there_and_escaped),
        cmocka_unit_test(write__no_folder__says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
