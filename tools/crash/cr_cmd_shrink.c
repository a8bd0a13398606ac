/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_shrink.c: `cairn crash shrink`: the smallest run that still shows a violation, as a tape
 * and as a timeline.
 */
#include <inttypes.h>
#include <unistd.h>

#include "tools/crash/cr_open.h"
#include "tools/crash/tell/cr_regress.h"
#include "tools/crash/tell/cr_shrink.h"
#include "tools/crash/tell/cr_timeline_tell.h"

struct shrink {
    struct cr_alone alone;
    uint64_t runs_max;
    const char *out;
    double said_at;
    struct cr_note *note;
};

static struct shrink *of(struct cr_alone *alone)
{
    return (struct shrink *)(void *)alone; /* its first member */
}

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
    char name[96];

    cr_open_head(&s->alone.opened, &r->setup, r->failure, &tape);
    if (cr_tape_write(s->out, &tape) != 0)
        cr_report_doubt(report, "%s", cairn_last_error());
    if (s->alone.args.keep == NULL)
        return;
    const char *of_what = s->alone.opened.mutant;
    (void)snprintf(name, sizeof(name), "%.60s-%" PRIu64, of_what != NULL ? of_what : "run",
        s->alone.opened.seed);
    if (cr_regress_write(s->alone.args.keep, name, &tape) != 0)
        cr_report_doubt(report, "--keep: %s", cairn_last_error());
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

static void shrink_it(struct cr_alone *alone, struct cr_note *note, struct cr_report *report)
{
    struct shrink *s = of(alone);
    struct cr_shrink_result r;
    struct cr_shrink_options options = {.setup = &alone->opened.setup, .seed = alone->opened.seed,
        .runs_max = (uint32_t)s->runs_max, .seconds = alone->args.seconds, .progress = on_progress,
        .arg = s};
    char replay[CR_TEXT_MAX];

    s->note = note;
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
    (void)snprintf(replay, sizeof(replay), "cairn crash replay --verbose --tape");
    cr_word_append(replay, sizeof(replay), s->out);
    if (alone->args.workload != NULL) {
        cr_word_append(replay, sizeof(replay), "--workload");
        cr_word_append(replay, sizeof(replay), alone->args.workload);
    }
    cr_report_fail(report, r.seed, r.failure, replay);
    if (!alone->args.json) {
        tell(&r);
        print_size("before", &r.before);
        print_size("after", &r.after);
        printf("%u runs in %.1f s%s; the violation: %s\n", r.runs, r.seconds,
            r.cut_short ? ", cut short" : "", r.failure_class);
    }
    cr_shrink_release(&r);
}

static void on_death(struct cr_report *report, const char *how)
{
    cr_report_doubt(report, "%s: such a run cannot be shrunk", how);
}

/* A small run that fails is what was asked for; the exit code tells the violation all the same. */
static int run(const struct tl_command *self, int argc, char **argv)
{
    struct shrink s = {.alone = {.talk = true, .patient = true, .run = shrink_it,
        .died = on_death}, .out = "small.tape"};
    struct cr_args *a = &s.alone.args;
    const struct tl_option options[] = {
        CR_OPTIONS_OPEN(*a),
        {.name = "out", .arg = "FILE", .help = "the small tape (default small.tape)",
            .text = &s.out},
        {.name = "keep", .arg = "DIR", .help = "keep it there too, as a regression test: see "
                                               "`replay --mended`", .text = &a->keep},
        {.name = "runs", .arg = "N", .help = "at most so many runs (6000)", .number = &s.runs_max,
            .min = 1, .max = 100000000},
        CR_OPTION_TIME(*a),
        CR_OPTION_JSON(*a),
        {.name = NULL},
    };

    return cr_open_run(self, options, argc, argv, &s.alone);
}

const struct tl_command cr_cmd_shrink = {
    .name = "crash shrink",
    .args = "(--tape FILE | --seed N [--setup TEXT]) [--out FILE] [OPTION...]",
    .summary = "Make a failing run as small as can be, and tell it.",
    .example = "  cairn crash shrink --tape tapes/cairn-crash-17.tape --out small.tape\n"
               "  (exit 1: here is the violation; 2: it does not fail)\n",
    .run = run,
};
