/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_points.c: `cairn crash points`: the named steps and what may happen at each; with --seeds
 * also how often it did.
 */
#include <inttypes.h>

#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/campaign/cr_points.h"

static void print_counts(const struct cr_report *report, enum cn_step step)
{
    for (uint32_t k = 0; k <= CR_CELL_NESTED; k++) {
        char text[32];
        bool possible = report->cell[step][k] != 0 || cr_point_is_defined(step, k);
        printf(" %9s", possible ? tl_count(report->cell[step][k], text) : "-");
    }
    (void)fputc('\n', stdout);
}

static void print_kinds(enum cn_step step)
{
    bool any = false;

    for (uint32_t k = CR_CELL_PROCESS; k <= CR_CELL_PAUSED; k++)
        if (cr_point_is_defined(step, k)) {
            printf("%s%s", any ? "," : "", cr_cell_name(k));
            any = true;
        }
    printf("%*s  %s\n", any ? 0 : 1, any ? "" : "-", cr_point_text(step));
}

static void print_list(const struct cr_report *report, bool counted)
{
    if (counted) {
        printf("%-16s", "step");
        for (uint32_t k = 0; k <= CR_CELL_NESTED; k++)
            printf(" %9s", cr_cell_name(k));
        (void)fputc('\n', stdout);
    }
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++) {
        printf("%-16s ", cn_step_name(s));
        if (counted)
            print_counts(report, s);
        else
            print_kinds(s);
    }
    printf("%" PRIu64 " crash points", report->points_defined);
    if (counted)
        printf(", %" PRIu64 " reached", report->points_reached);
    (void)fputc('\n', stdout);
}

static json_t *list_json(const struct cr_report *report)
{
    json_t *o = cr_report_json(report), *texts = json_object();

    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        (void)json_object_set_new(texts, cn_step_name(s), json_string(cr_point_text(s)));
    (void)json_object_set_new(o, "texts", texts);
    (void)json_object_set_new(o, "build", json_string(cr_build_id()));
    return o;
}

static int list(const struct tl_command *self, const struct cr_args *a)
{
    struct cr_report *report = malloc(sizeof(*report));
    struct cr_campaign c = {.build = cr_build_id(), .seed = a->seed, .seeds = a->seeds,
        .jobs = (uint32_t)a->jobs, .keep_going = true};
    char again[CR_TEXT_MAX];
    int rc = 0;

    if (report == NULL)
        return tl_error(self, "no memory");
    cr_report_init(report);
    (void)cr_args_line(again, sizeof(again));
    if (a->seeds != 0) {
        cr_answer_begin(a, "mixed", again);
        cr_jobs_catch_signals();
        rc = cr_campaign_points(&c, report);
    } else {
        cr_report_close(report);
        report->verdict = CR_PASS; /* nothing was asked for */
    }
    if (rc != 0)
        rc = tl_cairn_error(self, rc, a->json);
    else if (a->json)
        tl_json_print(list_json(report));
    else
        print_list(report, a->seeds != 0);
    if (rc == 0 && a->seeds != 0 && !a->json) {
        cr_report_print(report, stdout);
        cr_answer_end(a, report->verdict, "mixed", again);
    }
    rc = rc != 0 ? rc : (int)report->verdict;
    free(report);
    return rc;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    const struct tl_option options[] = {
        CR_OPTION_SEED(a),
        {.name = "seeds", .arg = "N", .help = "crash at each in so many runs, and count",
            .number = &a.seeds, .min = 1, .max = 100000},
        CR_OPTION_JOBS(a),
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    return rc != -1 ? rc : list(self, &a);
}

const struct tl_command cr_cmd_points = {
    .name = "crash points",
    .args = "[--seeds N [--seed N] [--jobs N]] [--json]",
    .summary = "List the crash points: every named step, and what may happen there.",
    .example = "  cairn crash points\n"
               "  cairn crash points --seeds 20\n"
               "  (20 runs aimed at each; exit 2 when one was never reached)\n",
    .run = run,
};
