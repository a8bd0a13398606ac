/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_replay.c: `cairn crash replay`: one run again, from its seed or its tape, in the program
 * that made it; with --verbose told as a timeline. Or, with --mended, a tape that was kept as a
 * regression test: the service has changed since, and what the tape shows must be gone.
 */
#include <inttypes.h>

#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/cr_open.h"
#include "tools/crash/tell/cr_diff.h"
#include "tools/crash/tell/cr_timeline_tell.h"

/* Some of it is decided by something else than the seed: where do two runs part? */
static void compare(struct cr_alone *alone, struct cr_report *report)
{
    const struct cr_opened *o = &alone->opened;

    report->reruns = 1;
    if (cr_diff_unseed(&o->setup, o->seed, alone->args.json ? stderr : stdout))
        return;
    report->mismatches = 1;
    cr_report_doubt(report, "seed %" PRIu64 " run twice gave two runs: %s", o->seed,
        cr_work_mismatch_hint(o->setup.workload));
}

static void write_timeline(
    const char *path, const struct cr_timeline *timeline, struct cr_report *report)
{
    json_t *o = cr_timeline_json(timeline, true);

    if (json_dump_file(o, path, JSON_INDENT(1)) != 0)
        cr_report_doubt(report, "--timeline: %.200s cannot be written", path);
    json_decref(o);
}

static void run_it(struct cr_alone *alone, struct cr_note *note, struct cr_report *report)
{
    const struct cr_opened *o = &alone->opened;
    const struct cr_campaign campaign = {
        .workload = o->workload, .mutant = o->mutant, .build = cr_build_id()};
    struct cr_result *r = sim_calloc(1, sizeof(*r));
    struct cr_setup setup = o->setup;
    const char *path = alone->args.timeline;
    struct cr_timeline *timeline =
        alone->args.verbose || path != NULL ? cr_timeline_new() : NULL;

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
    report->tape_choices = o->tape.count;
    report->tape_unused = r->replay_unused;
    report->tape_diverged = r->diverged;
    if (r->unable) {
        cr_report_doubt(report, "%s", r->failure);
    } else if (r->failed) {
        cr_report_fail(report, o->seed, r->failure, note->replay);
        (void)cr_setup_print(&o->setup, report->failure[0].setup);
    }
    if (path != NULL)
        write_timeline(path, timeline, report);
    if (alone->args.verbose)
        cr_timeline_print(timeline, &(struct cr_timeline_options){0}, stdout);
    cr_timeline_delete(&timeline);
    sim_free(r);
    if (alone->args.diff)
        compare(alone, report);
}

/* A kept tape of a program that has changed: it still is a test as long as the run asks for what
 * the tape chose, and does something. */
static void judge_mended(struct cr_alone *alone)
{
    struct cr_report *r = alone->report;

    if (r->violations == 0 && r->tape_choices != 0 && r->tape_unused == r->tape_choices)
        cr_report_doubt(r, "none of the tape's choices was asked for: it tests nothing any more; "
                           "shrink another run of this violation");
    if (r->violations == 0 && r->ok == 0)
        cr_report_doubt(r, "no transaction was committed");
}

/* Is it the violation that the tape was kept for? */
static void judge(struct cr_alone *alone)
{
    struct cr_report *r = alone->report;
    const char *was = alone->opened.tape.failure;

    if (!alone->opened.has_tape || was[0] == '\0')
        return;
    if (alone->args.mended)
        judge_mended(alone);
    else if (r->violations == 0)
        cr_report_doubt(r, "the tape was kept for a violation that this run does not show: %.800s "
                           "(--mended: that is as it should be)", was);
    if (r->failure_count != 0 && !alone->args.json)
        printf("%s\n", strcmp(r->failure[0].what, was) == 0
                ? "the same violation as on the tape"
                : "another violation than on the tape");
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_alone alone = {.run = run_it, .judge = judge, .page = true};
    struct cr_args *a = &alone.args;
    const struct tl_option options[] = {
        CR_OPTIONS_OPEN(*a),
        {.name = "mended", .help = "a kept tape of a program that has changed: its violation must "
                                   "be gone", .flag = &a->mended},
        {.name = "diff-unseed", .help = "do it twice more, and tell where the two runs part",
            .flag = &a->diff},
        {.name = "verbose", .help = "tell the run as a timeline", .flag = &a->verbose},
        {.name = "timeline", .arg = "FILE", .help = "write it there as JSON",
            .text = &a->timeline},
        {.name = "html", .arg = "FILE", .help = "write a web page too", .text = &a->html},
        CR_OPTION_JSON(*a),
        {.name = NULL},
    };

    return cr_open_run(self, options, argc, argv, &alone);
}

const struct tl_command cr_cmd_replay = {
    .name = "crash replay",
    .args = "(--tape FILE | --seed N [--setup TEXT]) [OPTION...]",
    .summary = "Do one run again, as it was, and say what was violated.",
    .example = "  cairn crash replay --tape tapes/cairn-crash-17.tape --verbose\n"
               "  cairn crash replay --mended --tape tests/oversold.tape --workload ./shop.so\n"
               "  (a report of `cairn crash` prints the whole command)\n",
    .run = run,
};
