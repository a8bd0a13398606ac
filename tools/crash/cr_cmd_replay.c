/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_replay.c: `cairn crash replay`: one run again, from its seed or its tape, in the program
 * that made it; with --verbose told as a timeline. The run has a process of its own: it may be one
 * that ends in an assertion.
 */
#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/cr_open.h"
#include "tools/crash/tell/cr_timeline_tell.h"

struct replay {
    const struct cr_args *args;
    struct cr_opened opened;
    struct cr_report *report;
};

/* ---- in the worker ---- */

static void run_it(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct replay *p = arg;
    const struct cr_opened *o = &p->opened;
    struct cr_campaign campaign = {
        .workload = o->workload, .mutant = o->mutant, .build = cr_build_id()};
    struct cr_report *report = result;
    struct cr_result *r = sim_calloc(1, sizeof(*r));
    struct cr_setup setup = o->setup;
    struct cr_timeline *timeline = p->args->verbose ? cr_timeline_new() : NULL;

    (void)item;
    cr_report_init(report);
    note->seed = o->seed;
    if (o->has_tape)
        (void)cr_args_line(note->replay, sizeof(note->replay));
    else
        (void)cr_campaign_replay(&campaign, &setup, note->seed, note->replay);
    setup.timeline = timeline;
    cr_cluster_run(&setup, o->seed, r);
    cr_campaign_account(r, report);
    report->seeds = 1;
    report->unseed = r->hash;
    if (r->failed) {
        cr_report_fail(report, o->seed, r->failure, note->replay);
        (void)cr_setup_print(&o->setup, report->failure[0].setup);
    }
    if (timeline != NULL)
        cr_timeline_print(timeline, &(struct cr_timeline_options){0}, stdout);
    cr_timeline_delete(&timeline);
    sim_free(r);
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct cr_report *report = result;

    (void)arg;
    (void)item;
    (void)stuck;
    cr_report_init(report);
    report->seeds = 1;
    cr_report_fail(report, note->seed, how, note->replay);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct replay *p = arg;

    (void)item;
    cr_report_add(p->report, result);
    return true;
}

/* ---- the command ---- */

/* Is it the violation that the tape was kept for? */
static void compare(const struct replay *p)
{
    const struct cr_report *r = p->report;
    const char *was = p->opened.tape.failure;

    if (!p->opened.has_tape || was[0] == '\0')
        return;
    if (r->failure_count == 0)
        cr_report_doubt(p->report, "the tape was kept for a violation that this run does not "
                                   "show: %.900s", was);
    else if (!p->args->json)
        printf("%s\n", strcmp(r->failure[0].what, was) == 0
                ? "the same violation as on the tape"
                : "another violation than on the tape");
}

static int replay(const struct tl_command *self, struct replay *p)
{
    const struct cr_args *a = p->args;
    const char *mode = cr_mode_name(&p->opened.setup);
    struct cr_jobs jobs = {.jobs = 1, .items = 1, .result_size = sizeof(struct cr_report),
        .talk = a->verbose && !a->json, .run = run_it, .died = on_death, .add = on_result,
        .arg = p};
    char again[CR_TEXT_MAX];
    double begun = cr_seconds();

    (void)cr_args_line(again, sizeof(again));
    cr_report_init(p->report);
    cr_answer_begin(a, mode, again);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    if (jobs.interrupted)
        cr_report_doubt(p->report, "interrupted");
    compare(p);
    p->report->seed = p->opened.seed;
    (void)snprintf(p->report->mode, sizeof(p->report->mode), "%s", mode);
    if (p->opened.workload != NULL)
        (void)snprintf(p->report->workload, sizeof(p->report->workload), "%s", p->opened.workload);
    p->report->seconds = cr_seconds() - begun;
    cr_report_close(p->report);
    return cr_answer_report(self, a, p->report, &p->opened.setup, again);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    struct replay p = {.args = &a};
    const struct tl_option options[] = {
        CR_OPTIONS_OPEN(a),
        {.name = "verbose", .help = "tell the run as a timeline", .flag = &a.verbose},
        {.name = "html", .arg = "FILE", .help = "write a web page too", .text = &a.html},
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1)
        rc = cr_answer_check(self, &a);
    if (rc == -1)
        rc = cr_open(self, &a, &p.opened);
    if (rc != -1)
        return rc;
    a.seed = p.opened.seed;
    p.report = malloc(sizeof(*p.report));
    rc = p.report != NULL ? replay(self, &p) : tl_error(self, "no memory");
    free(p.report);
    cr_open_release(&p.opened);
    return rc;
}

const struct tl_command cr_cmd_replay = {
    .name = "crash replay",
    .args = "(--tape FILE | --seed N [--setup TEXT]) [OPTION...]",
    .summary = "Do one run again, as it was, and say what was violated.",
    .example = "  cairn crash replay --tape tapes/cairn-crash-17.tape --verbose\n"
               "  (a report of `cairn crash` prints the whole command)\n",
    .run = run,
};
