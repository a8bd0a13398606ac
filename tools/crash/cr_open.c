/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_open.c: tape or seed, the program, the set-up.
 */
#include "tools/crash/cr_open.h"

#include <errno.h>

#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/campaign/cr_mutants.h"
#include "tools/crash/tell/cr_setup_text.h"

static int check_build(const struct tl_command *self, const struct cr_args *a, const char *build)
{
    if (build == NULL || a->force || a->mended || strcmp(build, cr_build_id()) == 0)
        return -1;
    return tl_error(self,
        "it was made by build %.40s, and this is build %s: the same seed is another run here.\n"
        "Replay it with that program, or with --force to see what this one does.", build,
        cr_build_id());
}

/* -1: go on. */
static int take_tape(const struct tl_command *self, const struct cr_args *a, struct cr_opened *o)
{
    if (a->tape == NULL)
        return -1;
    if (cr_tape_read(a->tape, &o->tape) != 0)
        return tl_error(self, "%s", cairn_last_error());
    o->has_tape = true;
    o->seed = o->tape.seed;
    if (strcmp(o->tape.mutant, "none") != 0 && !a->mended) /* all rules are in force again */
        o->mutant = o->tape.mutant;
    if (strchr(o->tape.workload, '/') != NULL || strstr(o->tape.workload, ".so") != NULL) {
        /* It is a program, and a tape may come from anywhere. */
        if (o->workload == NULL)
            return tl_error(self,
                "%s is of the workload %.200s, which is a program: to run it, say --workload FILE",
                a->tape, o->tape.workload);
    } else if (strcmp(o->tape.workload, "mixed") != 0 && o->workload == NULL) {
        o->workload = o->tape.workload;
    }
    int rc = cr_args_mutant(self, o->mutant, false);
    return rc != -1 ? rc : check_build(self, a, o->tape.build);
}

/* The set-up of a tape or of the command line; -1: go on. */
static int take_setup(const struct tl_command *self, const struct cr_args *a, struct cr_opened *o)
{
    const char *text = o->has_tape ? o->tape.setup : a->setup;
    int rc = 0;

    o->setup = (struct cr_setup)CR_CAMPAIGN_SETUP;
    if (text != NULL)
        rc = cr_setup_parse(text, &o->setup);
    if (rc == 0 && o->workload != NULL)
        rc = cr_work_open(o->workload, o->setup.workload);
    if (rc != 0)
        return tl_error(self, "%s%s%s", o->has_tape ? a->tape : "", o->has_tape ? ": " : "",
            cairn_last_error());
    o->setup.replay = o->tape.choice;
    o->setup.replay_count = o->tape.count;
    o->setup.calm_rest = o->tape.calm_rest;
    return cr_args_setup(self, a, &o->setup);
}

/* -1: go on, and then release it. */
static int open_it(const struct tl_command *self, const struct cr_args *a, struct cr_opened *ret)
{
    if ((a->tape == NULL) == (a->seed_text == NULL))
        return tl_error(
            self, "give --tape FILE or --seed N; try `cairn %s --help`", self->name);
    memset(ret, 0, sizeof(*ret));
    ret->seed = a->seed;
    ret->mutant = a->mutant;
    ret->workload = a->workload;
    int rc = cr_args_mutant(self, a->mutant, false);
    if (rc == -1)
        rc = take_tape(self, a, ret);
    if (rc == -1)
        rc = check_build(self, a, a->build);
    if (rc == -1)
        rc = take_setup(self, a, ret);
    if (rc != -1)
        cr_tape_release(&ret->tape);
    return rc;
}

/* ---- the frame ---- */

static void run_it(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    struct cr_alone *alone = arg;

    (void)item;
    cr_report_init(result);
    alone->run(alone, note, result);
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    const struct cr_alone *alone = arg;
    struct cr_report *report = result;

    (void)item;
    (void)stuck;
    cr_report_init(report);
    if (alone->died != NULL) {
        alone->died(report, how);
        return;
    }
    report->seeds = 1;
    cr_report_fail(report, note->seed, how, note->replay);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    const struct cr_alone *alone = arg;

    (void)item;
    cr_report_add(alone->report, result);
    return true;
}

static int work(const struct tl_command *self, struct cr_alone *alone)
{
    const struct cr_args *a = &alone->args;
    const struct cr_opened *o = &alone->opened;
    const char *mode = cr_mode_name(&o->setup);
    struct cr_report *report = alone->report;
    struct cr_jobs jobs = {.jobs = 1, .items = 1, .result_size = sizeof(*report),
        .talk = alone->talk || a->diff || (a->verbose && !a->json),
        .patient = alone->patient, .run = run_it, .died = on_death, .add = on_result, .arg = alone};
    char again[CR_TEXT_MAX];
    double begun = cr_seconds();

    (void)cr_args_line(again, sizeof(again));
    cr_report_init(report);
    cr_answer_begin(a, mode, again);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    if (jobs.interrupted && report->violations == 0)
        cr_report_doubt(report, "interrupted");
    if (alone->judge != NULL)
        alone->judge(alone);
    report->seed = o->seed;
    (void)snprintf(report->mode, sizeof(report->mode), "%s", mode);
    if (o->workload != NULL)
        (void)snprintf(report->workload, sizeof(report->workload), "%s", o->workload);
    report->seconds = cr_seconds() - begun;
    cr_report_close(report);
    return cr_answer_report(self, a, report, alone->page ? &o->setup : NULL, again);
}

int cr_open_run(const struct tl_command *self, const struct tl_option *options, int argc,
    char **argv, struct cr_alone *alone)
{
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &alone->args);
    if (rc == -1)
        rc = cr_answer_check(self, &alone->args);
    if (rc == -1)
        rc = cr_args_folder(self, alone->args.keep);
    if (rc == -1)
        rc = open_it(self, &alone->args, &alone->opened);
    if (rc != -1)
        return rc;
    alone->args.seed = alone->opened.seed;
    alone->report = malloc(sizeof(*alone->report));
    rc = alone->report != NULL ? work(self, alone) : tl_error(self, "no memory");
    free(alone->report);
    cr_tape_release(&alone->opened.tape);
    return rc;
}

void cr_open_head(const struct cr_opened *o, const struct cr_setup *setup, const char *failure,
    struct cr_tape_file *tape)
{
    (void)snprintf(tape->build, sizeof(tape->build), "%s", cr_build_id());
    (void)snprintf(tape->mutant, sizeof(tape->mutant), "%.63s",
        o->mutant != NULL ? o->mutant : "none");
    (void)snprintf(tape->workload, sizeof(tape->workload), "%.511s",
        o->workload != NULL ? o->workload : "mixed");
    (void)cr_setup_print(setup, tape->setup);
    (void)snprintf(tape->failure, sizeof(tape->failure), "%.1023s", failure);
}
