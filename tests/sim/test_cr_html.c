/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the page of a campaign is whole, says what the report says, and takes no text of others for
 * markup. Method: made-up reports and timelines; the page as text. What a browser makes of it:
 * tests/tools/test_crash_html.sh.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/crash/tell/cr_html.h"

static char folder[] = "/tmp/cr-html-XXXXXX";

static char *page_of(const struct cr_html *h)
{
    char path[64];
    static char text[1 << 20];

    snprintf(path, sizeof(path), "%s/page.html", folder);
    assert_int_equal(0, cr_html_write(h, path));
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_int_equal(0, unlink(path));
    return text;
}

static struct cr_report *make_report(void)
{
    static struct cr_report r;

    cr_report_init(&r);
    r.seed = 77;
    r.seeds = 5;
    r.txns = 1234567;
    r.images_explored = 1024;
    r.images_admissible_log2 = 31.4;
    snprintf(r.mode, sizeof(r.mode), "adr");
    snprintf(r.workload, sizeof(r.workload), "mixed");
    return &r;
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t n = 0;

    for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what))
        n++;
    return n;
}

static void write__pass__all_sections_and_steps(void **state)
{
    (void)state;
    struct cr_report *r = make_report();
    struct cr_html h = {.report = r, .build = "b1", .command = "cairn crash run --seed 77"};
    r->cell[CN_STEP_c_log][CR_CELL_PROCESS] = 4321;
    cr_report_close(r);
    const char *page = page_of(&h);

    assert_non_null(strstr(page, "data-verdict=\"pass\""));
    assert_non_null(strstr(page, "1,234,567"));
    assert_non_null(strstr(page, "4,321"));
    assert_non_null(strstr(page, "2^31.4"));
    assert_non_null(strstr(page, "2^10.0"));
    assert_non_null(strstr(page, "cairn crash run --seed 77"));
    assert_int_equal(CN_STEP_COUNT, count_of(page, "<tr data-step="));
    assert_null(strstr(page, "id=\"failures\""));
    assert_null(strstr(page, "id=\"timeline\""));
    assert_non_null(strstr(page, "</html>"));
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "<script"));
}

static void write__hostile_texts__no_markup(void **state)
{
    (void)state;
    struct cr_report *r = make_report();
    struct cr_html h = {
        .report = r, .build = "<b>&\"", .command = "x <script>alert(1)</script>\x01"};
    snprintf(r->workload, sizeof(r->workload), "<img src=x onerror=alert(1)>");
    cr_report_fail(r, 9, "lost <script>", "replay \"<i>\"");
    cr_report_close(r);
    const char *page = page_of(&h);

    assert_non_null(strstr(page, "data-verdict=\"violation\""));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "<i>"));
    assert_null(strchr(page, '\x01'));
    assert_non_null(strstr(page, "lost &lt;script&gt;"));
    assert_non_null(strstr(page, "&lt;/script&gt;&#xfffd;"));
    assert_non_null(strstr(page, "&lt;b&gt;&amp;&quot;"));
}

static void write__timeline__lanes_arrows_and_words(void **state)
{
    (void)state;
    struct cr_moment moments[] = {
        {.number = 1, .ns = 1000, .kind = SIM_MOMENT_POST, .actor = 1, .peer = 0, .request = 5,
            .operation = 65537, .text = "posts a write"},
        {.number = 2, .ns = 1500, .kind = SIM_MOMENT_NOTE, .actor = 0, .peer = SIM_NOBODY,
            .minor = true, .text = "not of interest"},
        {.number = 3, .ns = 2000, .kind = SIM_MOMENT_EXECUTE, .actor = 1, .peer = 0, .request = 5,
            .operation = 65537, .text = "write takes effect"},
        {.number = 4, .ns = 3000, .kind = SIM_MOMENT_POWER, .actor = 0, .peer = SIM_NOBODY,
            .text = "power of <n1>"},
    };
    struct cr_operation operation = {.id = 65537, .actor = 1, .text = "transfer <3>",
        .outcome = "COMMITTED", .blamed = true};
    struct cr_timeline t = {.moment = moments, .count = CN_ARRAY_SIZE(moments),
        .operation = &operation, .operation_count = 1, .actor_count = 3,
        .actor = {{"n1", 0}, {"c1", 1}, {"idle", 1}}, .violation = "lost: account 3"};
    struct cr_html h = {.report = make_report(), .timeline = &t, .build = "b", .command = "c"};
    const char *page = page_of(&h);

    assert_non_null(strstr(page, "id=\"timeline\""));
    assert_non_null(strstr(page, "lost: account 3"));
    assert_int_equal(1, count_of(page, "marker-end="));
    assert_int_equal(2, count_of(page, "<circle"));
    assert_int_equal(2, count_of(page, "class=\"lane\""));
    assert_null(strstr(page, "not of interest"));
    assert_non_null(strstr(page, "transfer &lt;3&gt; COMMITTED"));
    assert_non_null(strstr(page, "power of &lt;n1&gt;"));
}

static void write__no_such_folder__error_names_the_file(void **state)
{
    (void)state;
    struct cr_html h = {.report = make_report(), .build = "b", .command = "c"};

    assert_int_equal(-ENOENT, cr_html_write(&h, "/nowhere/at/all.html"));
    assert_non_null(strstr(cairn_last_error(), "/nowhere/at/all.html"));
    /* A folder in the way: nothing is left beside it. */
    assert_true(cr_html_write(&h, folder) < 0);
    assert_int_equal(0, rmdir(folder));
    assert_non_null(mkdtemp(strcpy(folder, "/tmp/cr-html-XXXXXX")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write__pass__all_sections_and_steps),
        cmocka_unit_test(write__hostile_texts__no_markup),
        cmocka_unit_test(write__timeline__lanes_arrows_and_words),
        cmocka_unit_test(write__no_such_folder__error_names_the_file),
    };

    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
