/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_campaign.c: the parts of a campaign as items for workers. One item is one crash point, one
 * case of the closed set, the cases of one fault, or one seed.
 */
#include "tools/crash/campaign/cr_campaign.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "tools/crash/explore/cr_enum.h"
#include "tools/crash/campaign/cr_mutants.h"
#include "tools/crash/campaign/cr_points.h"
#include "tools/crash/faults/cr_faults.h"
#include "tools/crash/tell/cr_tape_file.h"

#define SMALL_SUITE 50u /* seeds that are all run twice; of the others one in ... */
#define AGAIN_EVERY 20u
/* Of the closed set: single transactions with crashes inside recovery too, then cases of all kinds
 * without, which are some hundred times quicker. */
#define SLICE_DEEP 8u
#define SLICE 140u
#define SLICE_LOG2 7u
#define SLICE_SAMPLES 16u
#define CASE_S 4.0 /* one that takes longer is given up where time is bounded */
#define SLICE_SHARE 0.4 /* of the time that is left, at most */
#define TRIES 6u        /* of each crash point, and on until it is reached */
#define SEEDS_MIN_S 3.0 /* for seeds, however long the rest took */

struct part { /* of a campaign, as workers see it */
    struct cr_campaign *campaign;
    struct cr_report *report;
    uint32_t tries, tries_max; /* of a point */
    bool seeds, tapes;         /* items are ... */
};

const char *cr_campaign_replay(const struct cr_campaign *c, const struct cr_setup *setup,
    uint64_t seed, char text[CR_TEXT_MAX])
{
    static const struct cr_setup usual = CR_CAMPAIGN_SETUP;
    char shape[CR_SETUP_TEXT_MAX], usual_shape[CR_SETUP_TEXT_MAX];
    const struct { const char *name, *value; } options[] = {{"--mutant", c->mutant},
        {"--workload", c->workload}, {"--setup", shape}};

    (void)snprintf(text, CR_TEXT_MAX, "cairn crash replay --seed %" PRIu64 " --build %s", seed,
        c->build);
    (void)cr_setup_print(setup, shape);
    bool is_usual = strcmp(shape, cr_setup_print(&usual, usual_shape)) == 0;
    for (size_t i = 0; i < CN_ARRAY_SIZE(options) - is_usual; i++)
        if (options[i].value != NULL) {
            cr_word_append(text, CR_TEXT_MAX, options[i].name);
            cr_word_append(text, CR_TEXT_MAX, options[i].value);
        }
    return text;
}

void cr_campaign_account(const struct cr_result *r, struct cr_report *report)
{
    const struct cr_counts *n = &r->counts;

    report->ok += n->committed;
    report->fail += n->aborted;
    report->unknown += n->unknown;
    report->txns += n->committed + n->aborted + n->unknown;
    report->resolved += n->resolved_committed + n->resolved_aborted;
    report->crashes_node += n->crashes_node;
    report->crashes_client += n->crashes_client;
    report->power_failures += r->stats.crashes[SIM_CRASH_POWER];
    report->restarts += n->restarts;
    report->pauses += n->pauses;
    report->partitions += n->partitions;
    report->breaks += n->breaks;
    report->words_lost += r->words_lost;
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++) {
        report->cell[s][CR_CELL_PASSED] += r->stats.steps[s];
        report->cell[s][CR_CELL_PROCESS] += r->stats.at_step[s][SIM_CRASH_PROCESS];
        report->cell[s][CR_CELL_POWER] += r->stats.at_step[s][SIM_CRASH_POWER];
        report->cell[s][CR_CELL_PAUSED] += r->stats.at_step[s][SIM_CRASH_NONE];
        report->cell[s][CR_CELL_NESTED] += r->stats.nested[s];
        report->pauses += r->stats.at_step[s][SIM_CRASH_NONE];
    }
}

/* ---- one run, in a worker ---- */

/* The run again, recorded. A tape that cannot be written is a doubt: it was asked for. */
static void keep_tape(const struct cr_campaign *c, const struct cr_setup *setup, uint64_t seed,
    const char *path, struct cr_report *report)
{
    struct cr_result *r = sim_calloc(1, sizeof(*r));
    struct cr_tape_file tape = {.seed = seed};
    struct cr_setup s = *setup;

    s.record = true;
    cr_cluster_run(&s, seed, r);
    (void)snprintf(tape.build, sizeof(tape.build), "%s", c->build);
    (void)snprintf(tape.mutant, sizeof(tape.mutant), "%s", c->mutant != NULL ? c->mutant : "none");
    (void)snprintf(
        tape.workload, sizeof(tape.workload), "%s", c->workload != NULL ? c->workload : "mixed");
    (void)cr_setup_print(setup, tape.setup);
    memcpy(tape.failure, r->failure, sizeof(tape.failure));
    tape.choice = r->tape;
    tape.count = r->tape_count;
    if (cr_tape_write(path, &tape) != 0)
        cr_report_doubt(report, "the tape of seed %" PRIu64 " was not kept: %s", seed,
            cairn_last_error());
    sim_free(r->tape);
    sim_free(r);
}

struct outcome { bool fired; uint64_t hash; };

static struct outcome run_one(const struct part *p, const struct cr_setup *setup, uint64_t seed,
    struct cr_note *note, struct cr_report *report)
{
    const struct cr_campaign *c = p->campaign;
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    note->seed = seed;
    (void)cr_campaign_replay(c, setup, seed, note->replay);
    note->beats++;
    cr_cluster_run(setup, seed, r);
    struct outcome outcome = {r->plan_fired, r->hash};
    cr_campaign_account(r, report);
    report->unseed = cn_mix64(report->unseed + 1) ^ r->hash;
    if (r->unable) {
        cr_report_doubt(report, "seed %" PRIu64 ": %s", seed, r->failure);
    } else if (r->failed) {
        cr_report_fail(report, seed, r->failure, note->replay);
        (void)cr_setup_print(setup, report->failure[report->failure_count - 1].setup);
    }
    sim_free(r);
    return outcome;
}

static void run_again(const struct cr_setup *setup, uint64_t seed, uint64_t hash,
    struct cr_note *note, struct cr_report *report)
{
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    note->beats++;
    cr_cluster_run(setup, seed, r);
    report->reruns++;
    if (hash != r->hash) {
        report->mismatches++;
        cr_report_doubt(report, "seed %" PRIu64 " run twice gave two runs: %s", seed,
            cr_work_mismatch_hint(setup->workload));
    }
    sim_free(r);
}

/* ---- items ---- */

static void run_seed(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct part *p = arg;
    struct cr_report *report = result;
    uint64_t seed = p->campaign->seed + item;

    cr_report_init(report);
    report->seeds = 1;
    struct outcome first = run_one(p, &p->campaign->setup, seed, note, report);
    if (report->violations == 0 && (item < SMALL_SUITE || item % AGAIN_EVERY == 0))
        run_again(&p->campaign->setup, seed, first.hash, note, report);
}

static void run_point(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct part *p = arg;
    struct cr_report *report = result;
    enum cn_step step = 0;
    enum cr_cell kind = CR_CELL_PROCESS;
    uint32_t fired = 0;

    cr_report_init(report);
    bool exists = cr_point_at((uint32_t)item, &step, &kind);
    CAIRN_ASSERT(exists);
    for (uint32_t i = 0; i < p->tries || (fired == 0 && i < p->tries_max); i++) {
        struct cr_setup setup;
        uint64_t seed;
        cr_point_setup(step, kind, i, p->campaign->seed, &setup, &seed);
        if (p->campaign->setup.durability != 0) {
            setup.durability = p->campaign->setup.durability;
            setup.mode = p->campaign->setup.mode;
        }
        fired += run_one(p, &setup, seed, note, report).fired;
        if (report->violations != 0)
            break;
    }
}

/* Walks through all cases, far from one to the next: any first part of them is mixed. */
static uint64_t stride(uint32_t total)
{
    uint64_t s = (uint64_t)total * 618 / 1000;

    for (;; s++) {
        uint64_t a = s, b = total;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return s;
    }
}

static void run_case(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct part *p = arg;
    const struct cr_campaign *c = p->campaign;
    struct cr_report *report = result;
    bool deep = item < SLICE_DEEP;
    uint32_t total = cr_enum_count(CR_ENUM_ALL);
    uint32_t among = deep ? cr_enum_count(CR_ENUM_SINGLES) : total;
    struct cr_enum_stats stats = {0};
    struct cr_enum_options options = {.one = true,
        .only = (uint32_t)((c->seed + item * stride(among)) % among),
        .depth = deep ? c->depth : 0,
        .exhaustive_log2 = SLICE_LOG2, .nested_log2 = SLICE_LOG2, .samples = SLICE_SAMPLES,
        .each_image = true,
        .seed = c->seed, .durability = c->setup.durability, .mode = c->setup.mode,
        .violations_max = 1, .seconds = c->seconds > 0 ? CASE_S : 0};

    cr_report_init(report);
    note->seed = c->seed;
    (void)snprintf(note->replay, sizeof(note->replay),
        "cairn crash enum --only %u --seed %" PRIu64 " --depth %u", options.only, c->seed,
        options.depth);
    note->beats++;
    cr_enum_run(&options, report, &stats);
    report->cases = !report->cut_short;
    report->cut_short = false; /* it is a slice anyway: what was done is counted */
    report->cases_total = total;
    report->moments = stats.moments;
    report->moments_exhaustive = stats.moments_exhaustive;
}

static void run_fault(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct part *p = arg;
    struct cr_report *report = result;
    struct cr_faults_options options = {.seed = p->campaign->seed,
        .only = cr_faults_name((uint32_t)item), .mutant = p->campaign->mutant};

    cr_report_init(report);
    note->seed = options.seed;
    (void)cr_faults_replay(&options, options.only, note->replay, sizeof(note->replay));
    note->beats++;
    cr_faults_run(&options, report);
    report->seconds = 0; /* those of the whole are counted */
}

bool cr_campaign_failing(
    const struct cr_campaign *c, const struct cr_failure *failure, struct cr_setup *ret_setup)
{
    if (failure->setup[0] == '\0' || cr_setup_parse(failure->setup, ret_setup) != 0)
        return false;
    memcpy(ret_setup->workload, c->setup.workload, sizeof(ret_setup->workload));
    return true;
}

/* The tape of a failure that is in the report. */
static void run_tape(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct part *p = arg;
    const struct cr_failure *f = &p->report->failure[item];
    struct cr_setup setup;
    char path[4096], more[24] = "";

    cr_report_init(result);
    note->beats++;
    if (!cr_campaign_failing(p->campaign, f, &setup))
        return;
    if (item > 0)
        (void)snprintf(more, sizeof(more), "-%" PRIu64, item);
    (void)snprintf(path, sizeof(path), "%.3900s/cairn-crash-%" PRIu64 "%s.tape",
        p->campaign->keep, f->seed, more);
    keep_tape(p->campaign, &setup, f->seed, path, result);
}

/* ---- the parent's side ---- */

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct cr_report *report = result;
    const struct part *p = arg;

    (void)item;
    (void)stuck;
    cr_report_init(report);
    if (p->tapes)
        return; /* known: it is what it fails of */
    report->seeds = p->seeds;
    cr_report_fail(report, note->seed, how, note->replay);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct part *p = arg;

    (void)item;
    uint64_t unseed = p->report->unseed;

    cr_report_add(p->report, result);
    /* Of seeds only: it does not depend on how much of the closed set there was time for. */
    if (!p->seeds || p->tapes)
        p->report->unseed = unseed;
    return p->report->violations == 0 || p->campaign->keep_going || p->tapes;
}

static int run_part(struct part *p, const char *what, uint64_t items, double seconds,
    void (*run)(void *, uint64_t, struct cr_note *, void *), bool *ret_out_of_time)
{
    struct cr_jobs jobs = {.jobs = p->campaign->jobs, .items = items, .seconds = seconds,
        .what = p->campaign->quiet ? NULL : what, .result_size = sizeof(struct cr_report),
        .run = run, .died = on_death, .add = on_result, .arg = p};
    int rc = cr_jobs_run(&jobs);

    p->campaign->interrupted = p->campaign->interrupted || jobs.interrupted;
    *ret_out_of_time = jobs.out_of_time;
    return rc;
}

static bool goes_on(const struct part *p)
{
    return !p->campaign->interrupted &&
        (p->report->violations == 0 || p->campaign->keep_going);
}

static uint32_t count_points(void)
{
    enum cn_step step;
    enum cr_cell kind;
    uint32_t n = 0;

    while (cr_point_at(n, &step, &kind))
        n++;
    return n;
}

static uint32_t count_faults(void)
{
    uint32_t n = 0;

    while (cr_faults_name(n) != NULL)
        n++;
    return n;
}

static void doubt_points(struct cr_report *report)
{
    uint32_t missed = 0;
    enum cn_step step, first = 0;
    enum cr_cell kind, first_kind = 0;

    for (uint32_t i = 0; cr_point_at(i, &step, &kind); i++)
        if (report->cell[step][kind] == 0 && missed++ == 0) {
            first = step;
            first_kind = kind;
        }
    if (missed != 0)
        cr_report_doubt(report, "%u crash points were not reached, the first is %s:%s", missed,
            cn_step_name(first), cr_cell_name(first_kind));
}

static double left(const struct cr_campaign *c, double begun)
{
    double rest = c->seconds - (cr_seconds() - begun);

    return c->seconds == 0 ? 0 : rest > 0.001 ? rest : 0.001;
}

static int run_parts(struct part *p, double begun)
{
    struct cr_campaign *c = p->campaign;
    bool late = false;
    int rc = 0;

    if (c->points) {
        rc = run_part(p, "crash points", count_points(), left(c, begun), run_point, &late);
        p->report->cut_short = p->report->cut_short || late;
    }
    if (rc == 0 && c->fault_cases && goes_on(p)) {
        rc = run_part(p, "faults", count_faults(), left(c, begun), run_fault, &late);
        p->report->cut_short = p->report->cut_short || late;
    }
    if (rc == 0 && c->closed_set && goes_on(p))
        rc = run_part(
            p, "closed set", SLICE, left(c, begun) * SLICE_SHARE, run_case, &late);
    if (rc == 0 && goes_on(p)) {
        p->seeds = true;
        double seconds = left(c, begun);
        if (seconds > 0 && seconds < SEEDS_MIN_S && c->points)
            seconds = SEEDS_MIN_S;
        rc = run_part(p, "seeds", c->seeds != 0 ? c->seeds : UINT64_MAX, seconds, run_seed, &late);
        p->report->cut_short = p->report->cut_short || late;
    }
    if (c->points && goes_on(p))
        doubt_points(p->report);
    return rc;
}

static int keep_tapes(struct part *p)
{
    bool late, interrupted = p->campaign->interrupted;
    uint64_t violations = p->report->violations;
    int rc = 0;

    if (p->campaign->keep != NULL && p->report->failure_count != 0 && !interrupted) {
        p->tapes = true;
        rc = run_part(p, "tapes", p->report->failure_count, 0, run_tape, &late);
    }
    CAIRN_ASSERT(p->report->violations == violations);
    return rc;
}

static void close_report(const struct cr_campaign *c, struct cr_report *report, double begun)
{
    report->seed = c->seed;
    (void)snprintf(report->mode, sizeof(report->mode), "%s", cr_mode_name(&c->setup));
    if (c->workload != NULL)
        (void)snprintf(report->workload, sizeof(report->workload), "%.63s", c->workload);
    report->seconds = cr_seconds() - begun;
    if (c->interrupted)
        cr_report_doubt(report, "interrupted");
    cr_report_close(report);
}

int cr_campaign_run(struct cr_campaign *c, struct cr_report *report)
{
    struct part p = {c, report, TRIES, CR_POINT_TRIES_MAX, false, false};
    double begun = cr_seconds();

    CAIRN_ASSERT(c->seeds != 0 || c->seconds > 0);
    int rc = run_parts(&p, begun);
    if (rc == 0)
        rc = keep_tapes(&p);
    if (rc == 0 && report->seeds == 0 && report->violations == 0 && !c->interrupted)
        cr_report_doubt(report, "time ran out before one seed was done");
    if (rc == 0 && c->closed_set && report->cases == 0 && report->violations == 0 &&
        !c->interrupted)
        cr_report_doubt(report, "time ran out before one case of the closed set was done");
    if (report->seeds != 0 && report->ok == 0)
        cr_report_doubt(report, "no transaction was committed in %" PRIu64 " runs", report->seeds);
    close_report(c, report, begun);
    return rc;
}

int cr_campaign_points(struct cr_campaign *c, struct cr_report *report)
{
    struct part p = {c, report, (uint32_t)c->seeds, (uint32_t)c->seeds, false, false};
    double begun = cr_seconds();
    bool late;
    int rc = run_part(&p, "crash points", count_points(), c->seconds, run_point, &late);

    report->cut_short = late;
    if (goes_on(&p))
        doubt_points(report);
    close_report(c, report, begun);
    return rc;
}
