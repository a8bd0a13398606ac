/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_enum.c: `cairn crash enum`: the closed set, a case per item, by what recovery reads or
 * image by image. Work can be divided over machines with --part and --parts.
 */
#include <inttypes.h>

#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/explore/cr_enum.h"
#include "tools/crash/explore/cr_watch.h"
#include "tools/crash/tell/cr_setup_text.h"

#define NO_CASE UINT64_MAX

struct closed {
    const struct cr_args *args;
    struct cr_enum_options options;
    uint32_t first, count; /* cases of the sets that were named */
    uint64_t only, part, parts, log2_max, nested, samples;
    uint64_t prove_each;
    bool nest_every, each_image;
    struct cr_report *report;
};

static uint32_t case_of(const struct closed *p, uint64_t item)
{
    return p->only != NO_CASE ? (uint32_t)p->only
                              : p->first + (uint32_t)(p->part + item * p->parts);
}

static void run_case(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct closed *p = arg;
    struct cr_report *report = result;
    struct cr_enum_options options = p->options;
    struct cr_enum_stats stats = {0};

    options.one = true;
    options.only = case_of(p, item);
    options.verbose = p->args->verbose && p->only != NO_CASE;
    cr_report_init(report);
    note->seed = p->args->seed;
    note->beats++;
    (void)snprintf(note->replay, sizeof(note->replay),
        "cairn crash enum --only %u --seed %" PRIu64 " --depth %u", options.only, p->args->seed,
        options.depth);
    cr_enum_run(&options, report, &stats);
    report->cases = 1;
    report->cases_total = p->count;
    report->moments = stats.moments;
    report->moments_exhaustive = stats.moments_exhaustive;
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct cr_report *report = result;

    (void)arg;
    (void)item;
    (void)stuck;
    cr_report_init(report);
    cr_report_fail(report, note->seed, how, note->replay);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct closed *p = arg;

    (void)item;
    cr_report_add(p->report, result);
    return p->report->violations == 0 || p->args->keep_going;
}

/* Sets are numbered through, singles first. -1: go on. */
static int take_set(const struct tl_command *self, struct closed *p, const char *set)
{
    uint32_t singles = cr_enum_count(CR_ENUM_SINGLES), pairs = cr_enum_count(CR_ENUM_PAIRS);
    const struct { const char *name; uint32_t first; unsigned sets; } sets[] = {
        {"all", 0, CR_ENUM_ALL}, {"singles", 0, CR_ENUM_SINGLES},
        {"pairs", singles, CR_ENUM_PAIRS}, {"rings", singles + pairs, CR_ENUM_RINGS}};

    for (size_t i = 0; i < CN_ARRAY_SIZE(sets); i++)
        if (strcmp(set, sets[i].name) == 0) {
            p->first = sets[i].first;
            p->count = cr_enum_count(sets[i].sets);
            return -1;
        }
    return tl_error(self, "--set: must be all, singles, pairs or rings, not \"%.40s\"", set);
}

static int explore(const struct tl_command *self, struct closed *p, const char *again)
{
    const struct cr_args *a = p->args;
    uint64_t items = p->only != NO_CASE ? 1
        : p->part >= p->count           ? 0
                                        : (p->count - p->part - 1) / p->parts + 1;
    struct cr_jobs jobs = {.jobs = (uint32_t)a->jobs, .items = items, .seconds = a->seconds,
        .stuck_s = 3600, .what = "closed set", .result_size = sizeof(struct cr_report),
        .talk = a->verbose && p->only != NO_CASE, .run = run_case, .died = on_death,
        .add = on_result, .arg = p};
    struct cr_setup setup = {.durability = p->options.durability, .mode = p->options.mode};
    double begun = cr_seconds();

    cr_report_init(p->report);
    cr_answer_begin(a, a->mode != NULL ? a->mode : "adr", again);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    if (jobs.interrupted)
        cr_report_doubt(p->report, "interrupted");
    p->report->cut_short = p->report->cut_short || jobs.out_of_time;
    p->report->seed = a->seed;
    (void)snprintf(p->report->mode, sizeof(p->report->mode), "%s",
        setup.durability != 0 ? cr_mode_name(&setup) : "adr");
    (void)snprintf(p->report->workload, sizeof(p->report->workload), "closed set");
    p->report->seconds = cr_seconds() - begun;
    cr_report_close(p->report);
    return cr_answer_report(self, a, p->report, NULL, again);
}

static int check(const struct tl_command *self, struct closed *p, const char *set)
{
    struct cr_setup setup = {0};
    uint32_t total = cr_enum_count(CR_ENUM_ALL);
    int rc = take_set(self, p, set);

    if (rc == -1 && p->only != NO_CASE && p->only >= total)
        rc = tl_error(self, "--only: there are cases 0 to %u", total - 1);
    if (rc == -1 && p->part >= p->parts)
        rc = tl_error(self, "--part: must be below --parts, %" PRIu64, p->parts);
    if (rc == -1)
        rc = cr_args_setup(self, p->args, &setup);
    p->options = (struct cr_enum_options){.depth = (uint32_t)p->args->depth,
        .exhaustive_log2 = (uint32_t)p->log2_max, .nested_log2 = (uint32_t)p->nested,
        .samples = (uint32_t)p->samples, .nest_every = p->nest_every,
        .each_image = p->each_image, .prove_each = (uint32_t)p->prove_each, .seed = p->args->seed,
        .durability = setup.durability,
        .mode = setup.mode};
    return rc;
}

static int list(const struct closed *p)
{
    char text[300];

    for (uint32_t i = p->first; i < p->first + p->count; i++)
        if (cr_enum_describe(i, text, sizeof(text)))
            printf("%6u %s\n", i, text);
    return TL_OK;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {.depth = 2};
    struct closed p = {.args = &a, .only = NO_CASE, .parts = 1};
    const char *set = "all";
    bool only_list = false;
    char again[CR_TEXT_MAX];
    const struct tl_option options[] = {
        {.name = "set", .arg = "NAME", .help = "all (default), singles, pairs or rings",
            .text = &set},
        {.name = "list", .help = "only list them, with what each does", .flag = &only_list},
        {.name = "only", .arg = "N", .help = "only this case", .number = &p.only, .min = 0,
            .max = UINT32_MAX - 1},
        {.name = "part", .arg = "N", .help = "with --parts: every parts-th case, from N on",
            .number = &p.part, .min = 0, .max = UINT32_MAX},
        {.name = "parts", .arg = "N", .help = "see --part", .number = &p.parts, .min = 1,
            .max = UINT32_MAX},
        {.name = "depth", .arg = "N", .help = "crashes inside recovery, one in the other (2)",
            .number = &a.depth, .min = 0, .max = 8},
        {.name = "exhaustive", .arg = "N", .help = "up to 2^N runs per moment (22: all it takes)",
            .number = &p.log2_max, .min = 1, .max = 24},
        {.name = "nested", .arg = "N", .help = "the same for moments inside recovery (22)",
            .number = &p.nested, .min = 1, .max = 24},
        {.name = "prove", .arg = "N", .help = "of each N-th run try others that it stands for",
            .number = &p.prove_each, .min = 1, .max = UINT32_MAX},
        {.name = "each-image",
            .help = "image by image, not by what recovery reads: all where there are 2^N (12)",
            .flag = &p.each_image},
        {.name = "nest-every",
            .help = "then: crash inside the recovery of each, also where others' did the same",
            .flag = &p.nest_every},
        {.name = "samples", .arg = "N", .help = "then: else so many drawn ones (64)",
            .number = &p.samples, .min = 1, .max = 1000000},
        CR_OPTION_SEED(a),
        CR_OPTION_TIME(a),
        CR_OPTION_JOBS(a),
        CR_OPTION_MODE(a),
        CR_OPTION_MUTANT(a),
        {.name = "keep-going", .help = "after a violation too", .flag = &a.keep_going},
        {.name = "verbose", .help = "with --only: trace the run", .flag = &a.verbose},
        {.name = "html", .arg = "FILE", .help = "write the report as a web page too",
            .text = &a.html},
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1)
        rc = cr_answer_check(self, &a);
    if (rc == -1)
        rc = check(self, &p, set);
    if (rc == -1 && only_list)
        return list(&p);
    if (rc == -1)
        rc = cr_args_mutant(self, a.mutant, false);
    if (rc == -1 && !p.each_image && !cr_watch_works()) {
        rc = a.mutant == NULL ? cr_args_closed(self) : -1;
        if (rc == -1 && a.mutant == NULL)
            fprintf(stderr, "cairn crash enum: image by image, for what recovery reads is not seen "
                "in this build (gcc, no sanitizer)\n");
    }
    if (rc != -1)
        return rc;
    p.report = malloc(sizeof(*p.report));
    if (p.report == NULL)
        return tl_error(self, "no memory");
    rc = explore(self, &p, cr_args_line(again, sizeof(again)));
    free(p.report);
    return rc;
}

const struct tl_command cr_cmd_enum = {
    .name = "crash enum",
    .args = "[--set NAME] [--only N] [--part N --parts N] [--depth N] [OPTION...]",
    .summary = "Explore the closed set: small cases, every crash, every image it may leave.",
    .example = "  cairn crash enum --set pairs --depth 1 --time 10m\n"
               "  (exit 2 when the time did not suffice)\n",
    .run = run,
};
