/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum.c: the campaign: which cases, one after the other, and what becomes of them in the
 * report.
 */
#include "tools/crash/explore/cr_enum_run.h"
#include "tools/crash/explore/cr_watch.h"
#include "tools/crash/tell/cr_setup_text.h"

#include <math.h>
#include <time.h>

/* By what recovery reads: more than any moment has. Image by image the largest moment of the
 * singles has some 2^24; pairs and rings keep what setting up left dirty; and with depth a recovery
 * with moments of its own is below each image. */
#define SETS_LOG2 22u
#define EXHAUSTIVE_LOG2 22u
#define EXHAUSTIVE_LOG2_OTHERS 14u
#define EXHAUSTIVE_LOG2_DEEP 12u
#define NESTED_LOG2 12u
#define SAMPLES 64u
#define VIOLATIONS_MAX 8u

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill_defaults(struct cr_enum_options *o)
{
    o->each_image = o->each_image || !cr_watch_works();
    if (o->sets == 0)
        o->sets = CR_ENUM_ALL;
    if (o->parts == 0)
        o->parts = 1;
    if (o->nested_log2 == 0)
        o->nested_log2 = o->each_image ? NESTED_LOG2 : SETS_LOG2;
    if (o->samples == 0)
        o->samples = SAMPLES;
    if (o->violations_max == 0)
        o->violations_max = VIOLATIONS_MAX;
    if (o->durability == 0)
        o->durability = RD_DURABILITY_APM;
}

/* " --name value" where it is not the default. */
static int add_option(
    char *buf, size_t size, int n, const char *name, uint32_t value, uint32_t plain)
{
    if (value == plain || n < 0 || (size_t)n >= size)
        return n;
    return n + snprintf(buf + n, size - (size_t)n, " --%s %u", name, value);
}

/* The command that shows a case again. */
static void tell_replay(const struct cr_enum_options *o, uint32_t number, char *buf, size_t size)
{
    struct cr_setup setup = {.durability = o->durability, .mode = o->mode};
    int n = snprintf(buf, size, "cairn crash enum --only %u --seed %llu --depth %u", number,
        (unsigned long long)o->seed, o->depth);

    n = add_option(buf, size, n, "exhaustive", o->exhaustive_log2, 0);
    n = add_option(
        buf, size, n, "nested", o->nested_log2, o->each_image ? NESTED_LOG2 : SETS_LOG2);
    n = add_option(buf, size, n, "samples", o->samples, SAMPLES);
    n = add_option(buf, size, n, "prove", o->prove_each, 0);
    if (o->each_image && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, " --each-image%s",
            o->nest_every ? " --nest-every" : "");
    if ((o->mode != SIM_ADR || o->durability != RD_DURABILITY_APM) && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " --mode %s", cr_mode_name(&setup));
}

static double log2_add(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;

    return isinf(low) ? high : high + log2(1 + exp2(low - high));
}

static void add_result(struct cr_report *report, struct cr_enum_stats *stats,
    const struct cr_small_result *r)
{
    const struct cr_explore_stats *e = &r->explored;

    report->images_admissible_log2 = report->images_explored == 0
        ? e->admissible_log2
        : log2_add(report->images_admissible_log2, e->admissible_log2);
    report->cases++;
    report->moments += e->moments;
    report->moments_exhaustive += e->moments_exhaustive;
    report->moments_inside += e->inside;
    report->moments_inside_exhaustive += e->inside_exhaustive;
    report->moments_by_chance += e->by_chance;
    report->images_proven += e->proven;
    report->images_explored += e->images;
    report->images_distinct += e->distinct;
    report->states += e->images;
    report->nested_pairs += e->pairs;
    report->recoveries += e->recoveries;
    report->words_lost += e->units_lost;
    report->explore_seconds += e->seconds;
    report->txns += r->c.tx_count;
    report->ok += r->committed;
    report->fail += r->aborted;
    report->unknown += r->unknown;
    report->unseed = cn_mix64(report->unseed ^ r->hash);
    for (uint32_t i = 0; i < CN_STEP_COUNT; i++) {
        report->cell[i][CR_CELL_PASSED] += r->passed[i];
        report->cell[i][CR_CELL_IMAGES] += r->steps.images[i];
    }
    stats->cases++;
    stats->committed += r->committed;
    stats->aborted += r->aborted;
    stats->unknown += r->unknown;
    stats->moments += e->moments;
    stats->moments_exhaustive += e->moments_exhaustive;
    stats->inside += e->inside;
    stats->inside_exhaustive += e->inside_exhaustive;
    stats->by_chance += e->by_chance;
    stats->proven += e->proven;
    stats->states += e->states;
    stats->states_hash += e->states_hash;
    stats->disciplined += r->disciplined;
}

static void add_failure(struct cr_report *report, const struct cr_enum_options *o,
    uint32_t number, const struct cr_small_result *r)
{
    char what[CR_TEXT_MAX], replay[CR_TEXT_MAX], text[300];

    cr_case_describe(&r->c, text, sizeof(text));
    snprintf(what, sizeof(what), "case %u (%.280s): %.700s", number, text, r->failure);
    tell_replay(o, number, replay, sizeof(replay));
    if (r->unable)
        cr_report_doubt(report, "%s", what);
    else
        cr_report_fail(report, o->seed, what, replay);
}

static bool is_wanted(const struct cr_enum_options *o, uint32_t number, const struct cr_case *c)
{
    return (o->sets & c->set) != 0 && number % o->parts == o->part;
}

static uint32_t count_wanted(const struct cr_enum_options *o, uint32_t all)
{
    struct cr_case c;
    uint32_t n = 0;

    for (uint32_t i = 0; i < all; i++)
        n += cr_case_get(i, &c) && is_wanted(o, i, &c);
    return n;
}

struct campaign {
    const struct cr_enum_options *o;
    struct cr_report *report;
    struct cr_enum_stats *stats;
    struct cr_small_result *result;
    uint32_t total; /* cases of this part */
    double begun;
};

static uint32_t exhaustive_log2(const struct cr_enum_options *o, const struct cr_case *c)
{
    if (o->exhaustive_log2 != 0)
        return o->exhaustive_log2;
    if (!o->each_image)
        return SETS_LOG2;
    if (o->depth > 0)
        return EXHAUSTIVE_LOG2_DEEP;
    return c->set == CR_ENUM_SINGLES ? EXHAUSTIVE_LOG2 : EXHAUSTIVE_LOG2_OTHERS;
}

static void run_one(struct campaign *k, uint32_t number, const struct cr_case *c)
{
    struct cr_enum_options o = *k->o;

    o.exhaustive_log2 = exhaustive_log2(k->o, c);
    cr_small_case(c, &o, k->result);
    add_result(k->report, k->stats, k->result);
    if (k->result->failed)
        add_failure(k->report, k->o, number, k->result);
    if (k->o->progress == NULL)
        return;
    struct cr_enum_progress p = {.number = number, .done = (uint32_t)k->report->cases,
        .total = k->total, .images = k->report->images_explored,
        .distinct = k->report->images_distinct, .violations = k->report->violations,
        .seconds = seconds_now() - k->begun};
    k->o->progress(k->o->arg, &p);
}

static void run_many(struct campaign *k)
{
    const struct cr_enum_options *o = k->o;
    uint32_t all = cr_enum_count(CR_ENUM_ALL);

    k->total = count_wanted(o, all);
    for (uint32_t i = 0; i < all; i++) {
        struct cr_case c;
        if (!cr_case_get(i, &c) || !is_wanted(o, i, &c))
            continue;
        if ((o->seconds > 0 && seconds_now() - k->begun >= o->seconds) ||
            k->report->violations >= o->violations_max) {
            k->report->cut_short = true;
            return;
        }
        run_one(k, i, &c);
    }
}

void cr_enum_run(const struct cr_enum_options *options, struct cr_report *report,
    struct cr_enum_stats *ret_stats)
{
    struct cr_enum_options o = *options;
    struct cr_enum_stats stats = {.cases = 0};
    struct campaign k = {.o = &o, .report = sim_calloc(1, sizeof(*k.report)), .stats = &stats,
        .result = sim_calloc(1, sizeof(*k.result)), .total = 1, .begun = seconds_now()};
    struct cr_case c;

    fill_defaults(&o);
    cr_report_init(k.report);
    k.report->seed = o.seed;
    k.report->cases_total = o.one ? 1 : cr_enum_count(o.sets);
    if (!o.one)
        run_many(&k);
    else if (cr_case_get(o.only, &c))
        run_one(&k, o.only, &c);
    else
        cr_report_doubt(k.report, "there is no case %u in the closed set", o.only);
    k.report->seconds += seconds_now() - k.begun;
    cr_report_add(report, k.report);
    if (ret_stats != NULL)
        *ret_stats = stats;
    sim_free(k.result);
    sim_free(k.report);
}
