/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_run.c: `cairn crash run`, the default: crash points, a slice of the closed set and of
 * faults beyond crashes, seeds.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/tell/cr_setup_text.h"
#include "tools/crash/cr_answer.h"

#define DEFAULT_SECONDS 40 /* a verdict in less than a minute */

/* The command that does the same: seeds, or the time. */
static void say_again(const struct cr_args *a, uint64_t seeds, char text[CR_TEXT_MAX])
{
    const struct { const char *name, *value; } options[] = {{"--mode", a->mode},
        {"--workload", a->workload}, {"--faults", a->faults}, {"--mutant", a->mutant}};
    char more[64];

    (void)snprintf(text, CR_TEXT_MAX, "cairn crash run --seed %" PRIu64, a->seed);
    if (seeds != 0)
        (void)snprintf(more, sizeof(more), " --seeds %" PRIu64, seeds);
    else
        (void)snprintf(more, sizeof(more), " --time %g", a->seconds);
    (void)strncat(text, more, CR_TEXT_MAX - strlen(text) - 1);
    for (size_t i = 0; i < CN_ARRAY_SIZE(options); i++)
        if (options[i].value != NULL) {
            cr_word_append(text, CR_TEXT_MAX, options[i].name);
            cr_word_append(text, CR_TEXT_MAX, options[i].value);
        }
    if (a->depth != 1) {
        (void)snprintf(more, sizeof(more), " --depth %" PRIu64, a->depth);
        (void)strncat(text, more, CR_TEXT_MAX - strlen(text) - 1);
    }
}

static int campaign(const struct tl_command *self, struct cr_args *a, const struct cr_setup *setup)
{
    bool own = a->workload != NULL && strcmp(a->workload, "mixed") != 0;
    struct cr_campaign c = {.setup = *setup, .workload = a->workload, .mutant = a->mutant,
        .build = cr_build_id(), .seed = a->seed, .seeds = a->seeds, .seconds = a->seconds,
        .jobs = (uint32_t)a->jobs, .depth = (uint32_t)a->depth, .keep_going = a->keep_going,
        .keep = a->keep, .points = !own && (setup->faults & CR_FAULT_STEP) != 0,
        .closed_set = !own && setup->faults != 0, .fault_cases = !own && setup->faults != 0};
    struct cr_report *report = malloc(sizeof(*report));
    char again[CR_TEXT_MAX];

    if (report == NULL)
        return tl_error(self, "no memory");
    say_again(a, a->seeds, again);
    cr_answer_begin(a, cr_mode_name(setup), again);
    cr_report_init(report);
    cr_jobs_catch_signals();
    int rc = cr_campaign_run(&c, report);
    if (rc != 0) {
        free(report);
        return tl_cairn_error(self, rc, a->json);
    }
    say_again(a, report->seeds != 0 ? report->seeds : a->seeds, again);
    struct cr_setup failing;
    bool known =
        report->failure_count != 0 && cr_campaign_failing(&c, &report->failure[0], &failing);
    rc = cr_answer_report(self, a, report, known ? &failing : NULL, again);
    free(report);
    return rc;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {.depth = 1};
    struct cr_setup setup = CR_CAMPAIGN_SETUP;
    const struct tl_option options[] = {
        CR_OPTION_SEED(a),
        {.name = "seeds", .arg = "N", .help = "so many seeds (default: what the time allows)",
            .number = &a.seeds, .min = 1, .max = 1000000000},
        CR_OPTION_TIME(a),
        CR_OPTION_JOBS(a),
        CR_OPTION_MODE(a),
        {.name = "workload", .arg = "NAME|FILE.so",
            .help = "what clients do, and only seeds are run; \"list\" lists those built in",
            .text = &a.workload},
        {.name = "faults", .arg = "LIST",
            .help = "of process power client pause partition break all-power nested step hazard "
                    "clock slow memory stall: these, or +this,-that of all, or none",
            .text = &a.faults},
        {.name = "depth", .arg = "N", .help = "crashes inside recovery, of the closed set (1)",
            .number = &a.depth, .min = 0, .max = 8},
        CR_OPTION_MUTANT(a),
        {.name = "keep", .arg = "DIR", .help = "keep the tapes of failing runs there",
            .text = &a.keep},
        {.name = "keep-going", .help = "after a violation too", .flag = &a.keep_going},
        {.name = "html", .arg = "FILE", .help = "write the report as a web page too",
            .text = &a.html},
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1 && a.workload != NULL && strcmp(a.workload, "list") == 0) {
        cr_work_list(stdout);
        return TL_OK;
    }
    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1)
        rc = cr_args_setup(self, &a, &setup);
    if (rc == -1)
        rc = cr_args_mutant(self, a.mutant, false);
    if (rc == -1)
        rc = cr_answer_check(self, &a);
    if (rc == -1)
        rc = cr_args_folder(self, a.keep);
    if (rc != -1)
        return rc;
    if (a.seeds == 0 && a.seconds == 0)
        a.seconds = DEFAULT_SECONDS;
    return campaign(self, &a, &setup);
}

const struct tl_command cr_cmd_run = {
    .name = "crash run",
    .args = "[--seed N] [--seeds N] [--time T] [OPTION...]",
    .summary = "Crash a whole cluster everywhere, recover, check: pass, violation or inconclusive.",
    .example = "  cairn crash run --seed 7 --seeds 500 --mode adr_ddio\n"
               "  (exit 1: a violation, with the command that shows it again; 2: nothing can be "
               "said)\n",
    .run = run,
};
