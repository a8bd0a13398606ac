/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_report.c: sums, the verdict, text and JSON. The verdict has three values and errs to one side:
 * a violation outweighs a doubt, a doubt outweighs everything that went well, and nothing done is a
 * doubt.
 */
#include "tools/crash/tell/cr_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "tools/tl.h"

void cr_report_init(struct cr_report *report)
{
    memset(report, 0, sizeof(*report));
    report->verdict = CR_INCONCLUSIVE; /* until it is closed */
    (void)snprintf(report->mode, sizeof(report->mode), "mixed");
    (void)snprintf(report->workload, sizeof(report->workload), "mixed");
}

/* ---- sums ---- */

#define SUM(field) {offsetof(struct cr_report, field)}
static const struct sum { size_t off; } sums[] = {
    SUM(seeds), SUM(images_explored), SUM(images_distinct), SUM(nested_pairs), SUM(recoveries),
    SUM(states), SUM(txns), SUM(ok), SUM(fail), SUM(unknown), SUM(resolved), SUM(crashes_node),
    SUM(crashes_client), SUM(power_failures), SUM(restarts), SUM(pauses), SUM(partitions),
    SUM(breaks), SUM(words_lost), SUM(reruns), SUM(mismatches), SUM(violations), SUM(cases),
    SUM(moments), SUM(moments_exhaustive), SUM(moments_inside), SUM(moments_inside_exhaustive),
    SUM(moments_by_chance), SUM(images_proven), SUM(fault_cases), SUM(doubts), SUM(tape_choices),
    SUM(tape_unused),
};

/* log2(2^a + 2^b) */
static double log2_sum(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;

    return high + log2(1 + exp2(low - high));
}

void cr_report_add(struct cr_report *to, const struct cr_report *from)
{
    if (from->images_explored != 0)
        to->images_admissible_log2 = to->images_explored == 0
            ? from->images_admissible_log2
            : log2_sum(to->images_admissible_log2, from->images_admissible_log2);
    for (size_t i = 0; i < CN_ARRAY_SIZE(sums); i++)
        *(uint64_t *)(void *)((char *)to + sums[i].off) +=
            *(const uint64_t *)(const void *)((const char *)from + sums[i].off);
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        for (uint32_t k = 0; k < CR_CELL_COUNT; k++)
            to->cell[s][k] += from->cell[s][k];
    if (from->unseed != 0)
        to->unseed = cn_mix64(to->unseed + UINT64_C(0x9e3779b97f4a7c15)) ^ from->unseed;
    if (to->doubt[0] == '\0')
        memcpy(to->doubt, from->doubt, sizeof(to->doubt));
    for (uint32_t i = 0; i < from->failure_count && to->failure_count < CR_FAILURES_MAX; i++)
        to->failure[to->failure_count++] = from->failure[i];
    to->cases_total = to->cases_total > from->cases_total ? to->cases_total : from->cases_total;
    to->explore_seconds += from->explore_seconds;
    to->cut_short = to->cut_short || from->cut_short;
    to->tape_diverged = to->tape_diverged || from->tape_diverged;
}

/* Texts of a failure may come from a process that died: one line, plain characters. */
static void take_text(char to[CR_TEXT_MAX], const char *from)
{
    size_t n = 0;

    for (; n < CR_TEXT_MAX - 1 && from[n] != '\0'; n++)
        to[n] = from[n] == '\n' ? ' ' : from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
    to[n] = '\0';
}

void cr_report_fail(struct cr_report *report, uint64_t seed, const char *what, const char *replay)
{
    report->violations++;
    if (report->failure_count == CR_FAILURES_MAX)
        return;
    struct cr_failure *f = &report->failure[report->failure_count++];
    f->seed = seed;
    take_text(f->what, what);
    take_text(f->replay, replay);
    f->setup[0] = '\0';
}

void cr_report_doubt(struct cr_report *report, const char *format, ...)
{
    char text[CR_TEXT_MAX];
    va_list args;

    if (report->doubts++ != 0)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    take_text(report->doubt, text);
}

/* ---- the verdict ---- */

static void count_points(struct cr_report *report)
{
    report->points_defined = report->points_reached = 0;
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        for (uint32_t k = CR_CELL_PROCESS; k <= CR_CELL_PAUSED; k++)
            if (cr_point_is_defined(s, k)) {
                report->points_defined++;
                report->points_reached += report->cell[s][k] != 0;
            }
}

static uint64_t done(const struct cr_report *report)
{
    uint64_t n = report->seeds + report->images_explored + report->fault_cases;

    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        for (uint32_t k = CR_CELL_PROCESS; k <= CR_CELL_PAUSED; k++)
            n += report->cell[s][k];
    return n;
}

void cr_report_close(struct cr_report *report)
{
    count_points(report);
    if (report->mismatches != 0 && report->doubts == 0)
        cr_report_doubt(report, "%" PRIu64 " runs differ when they are done twice: the harness is "
                                "not deterministic", report->mismatches);
    if (report->cut_short && report->doubts == 0)
        cr_report_doubt(report, "time ran out before all that was asked for was done");
    if (done(report) == 0 && report->doubts == 0)
        cr_report_doubt(report, "nothing was run");
    if (report->explore_seconds > 0)
        report->states_per_s = (double)report->states / report->explore_seconds;
    report->verdict = report->violations != 0 || report->failure_count != 0 ? CR_VIOLATION
        : report->doubts != 0                                               ? CR_INCONCLUSIVE
                                                                            : CR_PASS;
}

const char *cr_verdict_name(uint32_t verdict)
{
    return verdict == CR_PASS ? "pass" : verdict == CR_VIOLATION ? "violation" : "inconclusive";
}

const char *cr_cell_name(enum cr_cell cell)
{
    static const char *const names[] = {
        "passed", "process", "power", "paused", "nested", "images"};

    return (uint32_t)cell < CR_CELL_COUNT ? names[cell] : "?";
}

/* ---- text ---- */

static void print_counts(FILE *to, const char *title, const char *const *names,
    const uint64_t *values, size_t count)
{
    char text[32];

    fprintf(to, "%-14s ", title);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "%s%s %s", i == 0 ? "" : ", ", names[i], tl_count(values[i], text));
    (void)fputc('\n', to);
}
#define PRINT(to, title, names, ...)                                                               \
    print_counts(to, title, names, (const uint64_t[]){__VA_ARGS__}, CN_ARRAY_SIZE(names))

static void print_missing(const struct cr_report *r, FILE *to)
{
    uint32_t said = 0;

    if (r->violations != 0 || r->points_reached < r->points_defined / 2) /* it was not long */
        return;
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        for (uint32_t k = CR_CELL_PROCESS; k <= CR_CELL_PAUSED; k++)
            if (cr_point_is_defined(s, k) && r->cell[s][k] == 0 && said++ < 12)
                fprintf(to, "%s%s:%s", said == 1 ? "  not reached: " : ", ", cn_step_name(s),
                    cr_cell_name(k));
    if (said > 12)
        fprintf(to, ", and %u more", said - 12);
    if (said > 0)
        (void)fputc('\n', to);
}

static void print_images(const struct cr_report *r, FILE *to)
{
    static const char *const images[] = {"explored", "distinct"};
    static const char *const nested[] = {"pairs of steps", "recoveries"};
    static const char *const proofs[] = {"other images of one set"};
    static const char *const moments[] = {"explored", "with nothing left out"};
    char text[32];

    if (r->images_explored == 0)
        return;
    if (r->cases_total != 0)
        fprintf(to, "%-14s %" PRIu64 " of %" PRIu64 " cases\n", "closed set", r->cases,
            r->cases_total);
    PRINT(to, "moments", moments, r->moments, r->moments_exhaustive);
    if (r->moments_inside != 0)
        PRINT(to, "in recovery", moments, r->moments_inside, r->moments_inside_exhaustive);
    if (r->images_proven != 0)
        PRINT(to, "proofs", proofs, r->images_proven);
    fprintf(to, "%-14s admissible 2^%.1f\n", "images", r->images_admissible_log2);
    PRINT(to, "", images, r->images_explored, r->images_distinct);
    PRINT(to, "nested crashes", nested, r->nested_pairs, r->recoveries);
    fprintf(to, "%-14s %s states/s of one core\n", "rate",
        tl_count((uint64_t)r->states_per_s, text));
}

void cr_report_print(const struct cr_report *r, FILE *to)
{
    static const char *const txns[] = {"all", "ok", "fail", "unknown", "resolved later"};
    static const char *const points[] = {"defined", "reached"};
    static const char *const faults[] = {"node crashes", "of them by power", "client crashes",
        "restarts", "pauses", "partitions", "breaks", "words lost"};
    static const char *const tape[] = {"choices", "not asked for"};
    static const char *const runs[] = {"seeds", "done twice", "of them different"};

    PRINT(to, "runs", runs, r->seeds, r->reruns, r->mismatches);
    if (r->txns != 0)
        PRINT(to, "transactions", txns, r->txns, r->ok, r->fail, r->unknown, r->resolved);
    if (r->points_reached != 0) {
        PRINT(to, "crash points", points, r->points_defined, r->points_reached);
        print_missing(r, to);
    }
    print_images(r, to);
    if (r->crashes_node + r->crashes_client + r->restarts + r->pauses + r->partitions != 0)
        PRINT(to, "faults", faults, r->crashes_node, r->power_failures, r->crashes_client,
            r->restarts, r->pauses, r->partitions, r->breaks, r->words_lost);
    if (r->fault_cases != 0)
        fprintf(to, "%-14s %" PRIu64 " of media, pools, calls, peers\n", "fault cases",
            r->fault_cases);
    if (r->tape_choices != 0)
        PRINT(to, "tape", tape, r->tape_choices, r->tape_unused);
    if (r->tape_diverged)
        fprintf(to, "%-14s the run went other ways than when the tape was kept\n", "");
    fprintf(to, "%-14s %016" PRIx64 "\n%-14s %.1f s\n", "unseed", r->unseed, "time", r->seconds);
    fprintf(to, "%-14s %" PRIu64 "\n", "violations", r->violations);
    for (uint32_t i = 0; i < r->failure_count; i++) {
        fprintf(to, "  seed %" PRIu64 ": %s\n", r->failure[i].seed, r->failure[i].what);
        if (r->failure[i].replay[0] != '\0')
            fprintf(to, "    again: %s\n", r->failure[i].replay);
    }
    if (r->doubts != 0)
        fprintf(to, "inconclusive   %s\n", r->doubt);
}

/* ---- JSON ---- */

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value); /* NULL where there is no memory: told by the end */
}

static json_t *failures_json(const struct cr_report *r)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < r->failure_count; i++) {
        json_t *one = json_object();
        set(one, "seed", tl_json_u64(r->failure[i].seed));
        set(one, "what", json_string_nocheck(r->failure[i].what));
        set(one, "replay", json_string_nocheck(r->failure[i].replay));
        (void)json_array_append_new(all, one);
    }
    return all;
}

/* {"c_connect": {"passed": 12, "process": 3, ...}, ...}; null where it cannot happen. */
static json_t *points_json(const struct cr_report *r)
{
    json_t *all = json_object();

    for (uint32_t s = 0; s < CN_STEP_COUNT; s++) {
        json_t *one = json_object();
        for (uint32_t k = 0; k < CR_CELL_COUNT; k++)
            if (r->cell[s][k] != 0 || cr_point_is_defined(s, k))
                set(one, cr_cell_name(k), tl_json_u64(r->cell[s][k]));
            else
                set(one, cr_cell_name(k), json_null());
        set(all, cn_step_name(s), one);
    }
    return all;
}

static const struct key { const char *name; size_t off; } keys[] = {
#define KEY(name) {#name, offsetof(struct cr_report, name)}
    KEY(seed), KEY(seeds), KEY(points_defined), KEY(points_reached), KEY(images_explored),
    KEY(images_distinct), KEY(nested_pairs), KEY(recoveries), KEY(states), KEY(txns), KEY(ok),
    KEY(fail), KEY(unknown), KEY(resolved), KEY(crashes_node), KEY(crashes_client),
    KEY(power_failures), KEY(restarts), KEY(pauses), KEY(partitions), KEY(breaks),
    KEY(words_lost), KEY(reruns), KEY(mismatches), KEY(violations), KEY(cases), KEY(cases_total),
    KEY(moments), KEY(moments_exhaustive), KEY(moments_inside), KEY(moments_inside_exhaustive),
    KEY(moments_by_chance), KEY(images_proven), KEY(fault_cases), KEY(tape_choices),
    KEY(tape_unused),
};

json_t *cr_report_json(const struct cr_report *r)
{
    json_t *o = json_object();
    char text[24];

    set(o, "verdict", json_string(cr_verdict_name(r->verdict)));
    set(o, "mode", json_string(r->mode));
    set(o, "workload", json_string(r->workload));
    for (size_t i = 0; i < CN_ARRAY_SIZE(keys); i++)
        set(o, keys[i].name,
            tl_json_u64(*(const uint64_t *)(const void *)((const char *)r + keys[i].off)));
    set(o, "images_admissible_log2", json_real(r->images_admissible_log2));
    set(o, "states_per_s", json_real(r->states_per_s));
    set(o, "seconds", json_real(r->seconds));
    set(o, "cut_short", json_boolean(r->cut_short));
    set(o, "tape_diverged", json_boolean(r->tape_diverged));
    (void)snprintf(text, sizeof(text), "%016" PRIx64, r->unseed);
    set(o, "unseed", json_string(text));
    set(o, "inconclusive", r->doubts != 0 ? json_string_nocheck(r->doubt) : json_null());
    set(o, "failures", failures_json(r));
    set(o, "points", points_json(r));
    return o;
}
