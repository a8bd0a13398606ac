/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_html.c: the page of cr_html.h: head, numbers, grid, images, failures. The picture of a run is
 * cr_html_picture.c. All text of others goes through cr_html_text(): a workload's name or a key is
 * never markup.
 */
#include "tools/crash/tell/cr_html.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/crash/tell/cr_html_picture.h"

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1c2430;--bg:#fff;--soft:#667;--line:#d5dae2;"
    "--good:#1a7f4b;--bad:#c0392b;--mid:#b7791f;--cell:46,125,187}"
    "@media(prefers-color-scheme:dark){:root{--fg:#e3e8ef;--bg:#12161c;--soft:#9aa6b5;"
    "--line:#2c3541;--good:#4cc38a;--bad:#ff7b6b;--mid:#e0b04c;--cell:90,170,230}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;"
    "max-width:75rem;padding:1.5rem}"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}"
    "code,pre,td,th{font-variant-numeric:tabular-nums}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.85rem}"
    "pre{white-space:pre-wrap;border-left:3px solid var(--line);padding:.3rem .8rem;margin:.4rem 0}"
    ".pass{color:var(--good)}.violation{color:var(--bad)}.inconclusive{color:var(--mid)}"
    ".soft{color:var(--soft)}"
    ".numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.7rem}"
    ".numbers div{border:1px solid var(--line);border-radius:6px;padding:.5rem .7rem}"
    ".numbers b{display:block;font-size:1.2rem}"
    ".wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.85rem}"
    "th{text-align:left;font-weight:600;padding:.15rem .6rem}"
    "td{padding:.15rem .6rem;text-align:right;border:1px solid var(--line);min-width:4.5rem}"
    "td.never{background:repeating-linear-gradient(45deg,transparent,transparent 4px,"
    "var(--line) 4px,var(--line) 5px);color:var(--soft)}"
    "td.missed{background:var(--bad);color:#fff;font-weight:600}"
    "tr.group th{padding-top:.8rem;color:var(--soft);font-weight:400}"
    "svg text{font:11px ui-monospace,monospace;fill:var(--fg)}"
    "svg .soft{fill:var(--soft)}svg .lane{stroke:var(--line)}";

void cr_html_text(FILE *to, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<')
            fputs("&lt;", to);
        else if (c == '>')
            fputs("&gt;", to);
        else if (c == '&')
            fputs("&amp;", to);
        else if (c == '"')
            fputs("&quot;", to);
        else if (c == '\n' || c >= 0x20)
            fputc(c, to);
        else
            fputs("&#xfffd;", to);
    }
}

static const char *verdict_name(uint32_t verdict)
{
    return verdict == CR_PASS ? "pass" : verdict == CR_VIOLATION ? "violation" : "inconclusive";
}

/* 12,345,678. */
static void print_count(FILE *to, uint64_t value)
{
    char digits[24];
    int size = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);

    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            fputc(',', to);
        fputc(digits[i], to);
    }
}

static void print_head(FILE *to, const struct cr_html *h)
{
    const struct cr_report *r = h->report;
    const char *verdict = verdict_name(r->verdict);

    fprintf(to,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
        "<title>cairn crash: %s, seed %llu</title><style>%s</style></head>\n"
        "<body data-verdict=\"%s\">\n<h1>cairn crash: <span id=\"verdict\" class=\"%s\">%s</span>"
        "</h1>\n<p class=\"soft\">seed %llu, %llu seeds, platform ",
        verdict, (unsigned long long)r->seed, style, verdict, verdict, verdict,
        (unsigned long long)r->seed, (unsigned long long)r->seeds);
    cr_html_text(to, r->mode);
    fputs(", workload ", to);
    cr_html_text(to, r->workload);
    fputs(", build ", to);
    cr_html_text(to, h->build);
    fputs("</p>\n<pre id=\"command\">", to);
    cr_html_text(to, h->command);
    fputs("</pre>\n", to);
    if (r->cut_short)
        fputs("<p class=\"inconclusive\">Time ran out before all that was asked for was done."
              "</p>\n", to);
}

static void print_number(FILE *to, const char *what, uint64_t value)
{
    fputs("<div><b>", to);
    print_count(to, value);
    fprintf(to, "</b><span class=\"soft\">%s</span></div>\n", what);
}

static void print_numbers(FILE *to, const struct cr_report *r)
{
    fputs("<section id=\"numbers\"><h2>What ran</h2><div class=\"numbers\">\n", to);
    print_number(to, "violations", r->violations);
    print_number(to, "transactions", r->txns);
    print_number(to, "committed", r->ok);
    print_number(to, "aborted", r->fail);
    print_number(to, "without an answer", r->unknown);
    print_number(to, "resolved later", r->resolved);
    print_number(to, "crashes of nodes", r->crashes_node);
    print_number(to, "power failures among them", r->power_failures);
    print_number(to, "crashes of coordinators", r->crashes_client);
    print_number(to, "restarts", r->restarts);
    print_number(to, "pauses", r->pauses);
    print_number(to, "partitions", r->partitions);
    print_number(to, "connections broken", r->breaks);
    print_number(to, "recoveries", r->recoveries);
    print_number(to, "words lost", r->words_lost);
    print_number(to, "runs done twice", r->reruns);
    print_number(to, "of them differing", r->mismatches);
    fprintf(to,
        "</div>\n<p class=\"soft\">%.1f s; %.0f states per second and core; unseed %016llx</p>"
        "</section>\n",
        r->seconds, r->states_per_s, (unsigned long long)r->unseed);
}

/* ---- the grid ---- */

static const char *const cell_names[CR_CELL_COUNT] = {
    [CR_CELL_PASSED] = "passed",
    [CR_CELL_PROCESS] = "process crash",
    [CR_CELL_POWER] = "power failure",
    [CR_CELL_PAUSED] = "pause",
    [CR_CELL_NESTED] = "crash in recovery",
    [CR_CELL_IMAGES] = "images",
};

static const char *group_name(char prefix)
{
    switch (prefix) {
    case 'c':
        return "coordinator";
    case 'a':
        return "apply";
    case 'g':
        return "growth of the index";
    case 'h':
        return "heap and scrub";
    case 's':
        return "slots";
    default:
        return "recovery";
    }
}

/* The more, the darker: by powers of ten. */
static void print_cell(FILE *to, uint32_t step, enum cr_cell cell, uint64_t count)
{
    bool counted = cell == CR_CELL_PROCESS || cell == CR_CELL_POWER || cell == CR_CELL_PAUSED;

    if (count == 0) {
        fputs(!cr_point_is_defined(step, cell) ? "<td class=\"never\">&middot;</td>"
                : counted                      ? "<td class=\"missed\">0</td>"
                                               : "<td class=\"soft\">0</td>",
            to);
        return;
    }
    double shade = 0.08 + 0.09 * log10((double)count);
    fprintf(to, "<td style=\"background:rgba(var(--cell),%.2f)\">", shade < 0.7 ? shade : 0.7);
    print_count(to, count);
    fputs("</td>", to);
}

static void print_grid(FILE *to, const struct cr_report *r)
{
    char group = '\0';

    fprintf(to,
        "<section id=\"grid\"><h2>Crash points</h2>\n<p>Reached %llu of %llu. A row per named "
        "step, a column for what happened there; hatched: cannot happen; red: a crash point that "
        "was not reached.</p>\n"
        "<div class=\"wide\"><table><thead><tr><th>step</th>",
        (unsigned long long)r->points_reached, (unsigned long long)r->points_defined);
    for (unsigned c = 0; c < CR_CELL_COUNT; c++)
        fprintf(to, "<th>%s</th>", cell_names[c]);
    fputs("</tr></thead><tbody>\n", to);
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++) {
        const char *name = cn_step_name(s);
        if (name[0] != group) {
            group = name[0];
            fprintf(to, "<tr class=\"group\"><th colspan=\"%u\">%s</th></tr>\n",
                CR_CELL_COUNT + 1u, group_name(group));
        }
        fprintf(to, "<tr data-step=\"%s\"><th><code>%s</code></th>", name, name);
        for (unsigned c = 0; c < CR_CELL_COUNT; c++)
            print_cell(to, s, (enum cr_cell)c, r->cell[s][c]);
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div></section>\n", to);
}

/* ---- images ---- */

static void print_bar(FILE *to, unsigned row, const char *what, double log2_value, double log2_max)
{
    double width = log2_max > 0 ? 640 * log2_value / log2_max : 0;

    fprintf(to,
        "<text x=\"0\" y=\"%u\">%s</text><rect x=\"150\" y=\"%u\" width=\"%.1f\" height=\"14\" "
        "rx=\"2\" fill=\"rgb(var(--cell))\"/><text x=\"%.1f\" y=\"%u\">2^%.1f</text>\n",
        24 * row + 18, what, 24 * row + 7, width > 1 ? width : 1, 156 + width, 24 * row + 18,
        log2_value);
}

static double log2_of(uint64_t count)
{
    return count == 0 ? 0 : log2((double)count);
}

static void print_images(FILE *to, const struct cr_report *r)
{
    double most = r->images_admissible_log2;

    if (r->images_explored == 0)
        return;
    if (log2_of(r->images_explored) > most)
        most = log2_of(r->images_explored);
    fputs("<section id=\"images\"><h2>Images after a power failure</h2>\n<p>What the memory may "
          "hold after each moment at which power may fail, and what of it was recovered and "
          "checked. The scale is logarithmic: a step is a doubling.</p>\n"
          "<svg role=\"img\" aria-label=\"images explored against admissible\" width=\"880\" "
          "height=\"78\" viewBox=\"0 0 880 78\">\n", to);
    print_bar(to, 0, "admissible", r->images_admissible_log2, most);
    print_bar(to, 1, "explored", log2_of(r->images_explored), most);
    print_bar(to, 2, "distinct", log2_of(r->images_distinct), most);
    fputs("</svg>\n<p class=\"soft\">", to);
    print_count(to, r->images_explored);
    fputs(" explored, ", to);
    print_count(to, r->images_distinct);
    fputs(" distinct, ", to);
    print_count(to, r->nested_pairs);
    fputs(" pairs of a crash and a crash inside the recovery from it.</p></section>\n", to);
}

/* ---- failures ---- */

static void print_failures(FILE *to, const struct cr_html *h)
{
    const struct cr_report *r = h->report;

    if (r->failure_count == 0)
        return;
    fprintf(to, "<section id=\"failures\"><h2>Violations</h2>\n<p>%llu in all.</p><ol>\n",
        (unsigned long long)r->violations);
    for (uint32_t i = 0; i < r->failure_count; i++) {
        fprintf(to, "<li>seed %llu<pre class=\"violation\">",
            (unsigned long long)r->failure[i].seed);
        cr_html_text(to, r->failure[i].what);
        fputs("</pre><pre>", to);
        cr_html_text(to, r->failure[i].replay);
        fputs("</pre></li>\n", to);
    }
    fputs("</ol></section>\n", to);
}

static void print_page(FILE *to, const struct cr_html *h)
{
    print_head(to, h);
    print_failures(to, h);
    if (h->timeline != NULL)
        cr_html_picture(to, h->timeline);
    print_numbers(to, h->report);
    if (h->report->points_reached != 0 || h->report->seeds != 1) /* one run may reach none */
        print_grid(to, h->report);
    print_images(to, h->report);
    fputs("</body></html>\n", to);
}

int cr_html_write(const struct cr_html *h, const char *path)
{
    char beside[4096];
    struct stat st;
    /* A device, a pipe or a link (/dev/stdout) is written to, and never replaced: root could. */
    bool special = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    int n = special ? snprintf(beside, sizeof(beside), "%s", path)
                    : snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof(beside))
        return cn_fail(-ENAMETOOLONG, "%s: the name is too long", path);
    FILE *to = fopen(beside, "we");
    if (to == NULL)
        return cn_fail(-errno, "%s: cannot write the page: %s", path, strerror(errno));
    print_page(to, h);
    bool bad = ferror(to) != 0;
    bad = fclose(to) != 0 || bad;
    if (!bad && (special || rename(beside, path) == 0))
        return 0;
    int error = errno != 0 ? errno : EIO;
    if (!special)
        (void)unlink(beside);
    return cn_fail(-error, "%s: cannot write the page: %s", path, strerror(error));
}
