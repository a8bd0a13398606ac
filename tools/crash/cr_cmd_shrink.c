/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_shrink.c: `cairn crash shrink`: the smallest run that still shows a violation, as a tape
 * and as a timeline.
 */
#include <inttypes.h>
#include <unistd.h>

#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/cr_open.h"
#include "tools/crash/tell/cr_shrink.h"
#include "tools/crash/tell/cr_timeline_tell.h"

struct shrink {
    const struct cr_args *args;
    struct cr_opened opened;
    uint64_t runs_max;
    const char *out;
    double said_at;
    struct cr_note *note;
    struct cr_report *report;
};

/* ---- in the worker ---- */

static bool on_progress(void *arg, const struct cr_shrink_progress *p)
{
    struct shrink *s = arg;

    s->note->beats++;
    if (p->seconds > 2 && p->seconds - s->said_at > (isatty(STDERR_FILENO) == 1 ? 1 : 10)) {
        s->said_at = p->seconds;
        fprintf(stderr, "shrink: %s, %u runs, %" PRIu64 " operations, %" PRIu64
                        " choices that matter, %.0f s\n",
            p->phase, p->runs, p->best.operations, p->best.listed, p->seconds);
    }
    return !cr_jobs_interrupted();
}

static void print_size(const char *title, const struct cr_shrink_size *s)
{
    printf("%-8s nodes %u, clients %u, operations %" PRIu64 ", faults %" PRIu64
           ", words lost %" PRIu64 ", choices %" PRIu64 " of %" PRIu64 ", events %" PRIu64 "\n",
        title, s->nodes, s->clients, s->operations, s->faults, s->words_lost, s->listed,
        s->choices, s->events);
}

static void write_tape(
    const struct shrink *s, const struct cr_shrink_result *r, struct cr_report *report)
{
    struct cr_tape_file tape = {.seed = r->seed, .calm_rest = true, .choice = r->choice,
        .count = r->choice_count};

    cr_open_head(&s->opened, &r->setup, r->failure, &tape);
    if (cr_tape_write(s->out, &tape) != 0)
        cr_report_doubt(report, "%s", cairn_last_error());
}

/* The result once more, told. */
static void tell(const struct cr_shrink_result *r)
{
    struct cr_result *again = sim_calloc(1, sizeof(*again));
    struct cr_timeline *timeline = cr_timeline_new();
    struct cr_setup setup = r->setup;

    setup.timeline = timeline;
    cr_cluster_run(&setup, r->seed, again);
    cr_timeline_print(timeline, &(struct cr_timeline_options){0}, stdout);
    cr_timeline_delete(&timeline);
    sim_free(again);
}

static void shrink_it(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    struct shrink *s = arg;
    struct cr_report *report = result;
    struct cr_shrink_result r;
    struct cr_shrink_options options = {.setup = &s->opened.setup, .seed = s->opened.seed,
        .runs_max = (uint32_t)s->runs_max, .seconds = s->args->seconds, .progress = on_progress,
        .arg = s};
    char replay[CR_TEXT_MAX];

    (void)item;
    s->note = note;
    cr_report_init(report);
    cr_shrink(&options, &r);
    if (!r.reproduced) {
        cr_report_doubt(report, "the run does not fail: there is nothing to shrink");
        return;
    }
    report->seeds = 1;
    report->unseed = r.hash;
    report->states = r.runs;
    if (!r.verified)
        cr_report_doubt(report, "the result did not run the same way twice");
    write_tape(s, &r, report);
    (void)snprintf(replay, sizeof(replay), "cairn crash replay --tape %.900s --verbose", s->out);
    cr_report_fail(report, r.seed, r.failure, replay);
    if (!s->args->json) {
        tell(&r);
        print_size("before", &r.before);
        print_size("after", &r.after);
        printf("%u runs in %.1f s%s; the violation: %s\n", r.runs, r.seconds,
            r.cut_short ? ", cut short" : "", r.failure_class);
    }
    cr_shrink_release(&r);
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    (void)arg;
    (void)item;
    (void)note;
    (void)stuck;
    cr_report_init(result);
    cr_report_doubt(result, "%s: such a run cannot be shrunk", how);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct shrink *s = arg;

    (void)item;
    cr_report_add(s->report, result);
    return true;
}

/* ---- the command ---- */

static int shrink(const struct tl_command *self, struct shrink *s)
{
    const struct cr_args *a = s->args;
    struct cr_jobs jobs = {.jobs = 1, .items = 1, .result_size = sizeof(struct cr_report),
        .talk = true, .patient = true, .run = shrink_it, .died = on_death, .add = on_result,
        .arg = s};
    char again[CR_TEXT_MAX];
    double begun = cr_seconds();

    (void)cr_args_line(again, sizeof(again));
    cr_report_init(s->report);
    cr_answer_begin(a, cr_mode_name(&s->opened.setup), again);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    s->report->seed = a->seed;
    (void)snprintf(
        s->report->mode, sizeof(s->report->mode), "%s", cr_mode_name(&s->opened.setup));
    s->report->seconds = cr_seconds() - begun;
    cr_report_close(s->report);
    /* A small run that fails is what was asked for; the exit code tells the violation all the
     * same. */
    return cr_answer_report(self, a, s->report, NULL, again);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    struct shrink s = {.args = &a, .out = "small.tape"};
    const struct tl_option options[] = {
        CR_OPTIONS_OPEN(a),
        {.name = "out", .arg = "FILE", .help = "the small tape (default small.tape)",
            .text = &s.out},
        {.name = "runs", .arg = "N", .help = "at most so many runs (6000)", .number = &s.runs_max,
            .min = 1, .max = 100000000},
        CR_OPTION_TIME(a),
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1)
        rc = cr_open(self, &a, &s.opened);
    if (rc != -1)
        return rc;
    a.seed = s.opened.seed;
    s.report = malloc(sizeof(*s.report));
    rc = s.report != NULL ? shrink(self, &s) : tl_error(self, "no memory");
    free(s.report);
    cr_open_release(&s.opened);
    return rc;
}

const struct tl_command cr_cmd_shrink = {
    .name = "crash shrink",
    .args = "(--tape FILE | --seed N [--setup TEXT]) [--out FILE] [OPTION...]",
    .summary = "Make a failing run as small as can be, and tell it.",
    .example = "  cairn crash shrink --tape tapes/cairn-crash-17.tape --out small.tape\n"
               "  (exit 1: here is the violation; 2: it does not fail)\n",
    .run = run,
};
