/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_faults.c: `cairn crash faults`: damage of the medium, wrong pools, failing calls, hostile
 * peers, one fault after the other in worker processes, and what came of each as a table.
 */
#include <inttypes.h>

#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/cr_answer.h"
#include "tools/crash/faults/cr_faults.h"

struct campaign {
    struct cr_faults_options options; /* of all items */
    uint32_t first, count;            /* faults, by cr_faults_name() */
    double begun;
    struct cr_report *report;
    struct cr_faults *all; /* every tally, in order */
};

struct outcome { struct cr_report report; struct cr_faults faults; };

static struct cr_faults_options options_of(const struct campaign *c, uint64_t item)
{
    struct cr_faults_options options = c->options;

    options.only = cr_faults_name(c->first + (uint32_t)item);
    return options;
}

static void run_fault(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct campaign *c = arg;
    struct cr_faults_options options = options_of(c, item);
    struct outcome *o = result;
    double rest = options.seconds - (cr_seconds() - c->begun);

    if (options.seconds > 0)
        options.seconds = rest > 0.001 ? rest : 0.001;
    cr_report_init(&o->report);
    note->seed = options.seed;
    (void)cr_faults_replay(&options, options.only, note->replay, sizeof(note->replay));
    note->beats++;
    cr_faults_run_all(&o->faults, &options, &o->report);
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct outcome *o = result;

    (void)arg;
    (void)item;
    (void)stuck;
    cr_report_init(&o->report);
    cr_report_fail(&o->report, note->seed, how, note->replay);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct campaign *c = arg;
    const struct outcome *o = result;

    (void)item;
    cr_report_add(c->report, &o->report);
    for (uint32_t i = 0; i < o->faults.tally_count; i++) {
        if (o->faults.tally[i].cases == 0)
            continue;
        CAIRN_ASSERT(c->all->tally_count < CR_FAULTS_TALLIES_MAX);
        c->all->tally[c->all->tally_count++] = o->faults.tally[i];
    }
    return true;
}

static json_t *tallies_json(const struct cr_faults *all)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < all->tally_count; i++) {
        const struct cr_faults_tally *t = &all->tally[i];
        if (t->cases != 0)
            (void)json_array_append_new(rows,
                json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "fault",
                    t->fault, "what", t->what, "cases", (json_int_t)t->cases, "right",
                    (json_int_t)t->right, "refused", (json_int_t)t->refused, "detected",
                    (json_int_t)t->detected, "reported", (json_int_t)t->reported, "unseen",
                    (json_int_t)t->unseen, "silent", (json_int_t)t->silent, "errors", t->errors,
                    "first", t->first));
    }
    return rows;
}

static void tell(const struct cr_args *a, const struct campaign *c, const char *again)
{
    if (a->json) {
        json_t *o = cr_report_json(c->report);
        (void)json_object_set_new(o, "build", json_string(cr_build_id()));
        (void)json_object_set_new(o, "replay", json_string_nocheck(again));
        (void)json_object_set_new(o, "faults", tallies_json(c->all));
        tl_json_print(o);
        return;
    }
    cr_faults_print(c->all, stdout);
    printf("\n");
    cr_report_print(c->report, stdout);
    cr_answer_end(a, c->report->verdict, "all", again);
}

static int run_all(const struct tl_command *self, const struct cr_args *a, struct campaign *c)
{
    char again[CR_TEXT_MAX];
    struct cr_jobs jobs = {.jobs = (uint32_t)a->jobs, .items = c->count, .seconds = a->seconds,
        .what = a->json ? NULL : "faults", .result_size = sizeof(struct outcome),
        .run = run_fault, .died = on_death, .add = on_result, .arg = c};

    (void)cr_args_line(again, sizeof(again));
    cr_answer_begin(a, "all", again);
    cr_report_init(c->report);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    c->report->seed = a->seed;
    c->report->seconds = cr_seconds() - c->begun;
    c->report->cut_short = c->report->cut_short || jobs.out_of_time;
    (void)snprintf(c->report->mode, sizeof(c->report->mode), "all");
    if (jobs.interrupted)
        cr_report_doubt(c->report, "interrupted");
    cr_report_close(c->report);
    tell(a, c, again);
    return (int)c->report->verdict;
}

/* -1: go on; else the exit code. */
static int choose(const struct tl_command *self, const char *only, struct campaign *c)
{
    char names[256] = "";
    uint32_t n = 0;

    for (; cr_faults_name(n) != NULL; n++) {
        if (only != NULL && strcmp(only, cr_faults_name(n)) == 0) {
            c->first = n;
            c->count = 1;
            return -1;
        }
        (void)snprintf(
            names + strlen(names), sizeof(names) - strlen(names), " %s", cr_faults_name(n));
    }
    c->count = n;
    return only == NULL ? -1
                        : tl_error(self, "--only: no fault \"%.40s\"; there are:%s", only, names);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    struct campaign c = {0};
    const char *only = NULL;
    const struct tl_option options[] = {
        {.name = "only", .arg = "FAULT", .help = "one of them, as the table names it: F15",
            .text = &only},
        CR_OPTION_SEED(a),
        {.name = "exhaustive", .help = "every bit and line of what is small: minutes",
            .flag = &c.options.exhaustive},
        CR_OPTION_TIME(a),
        CR_OPTION_JOBS(a),
        CR_OPTION_MUTANT(a),
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1)
        rc = choose(self, only, &c);
    if (rc == -1)
        rc = cr_args_mutant(self, a.mutant, false);
    if (rc != -1)
        return rc;
    c.options.seed = a.seed;
    c.options.seconds = a.seconds;
    c.options.mutant = a.mutant;
    c.begun = cr_seconds();
    c.report = calloc(1, sizeof(*c.report));
    c.all = calloc(1, sizeof(*c.all));
    rc = c.report != NULL && c.all != NULL ? run_all(self, &a, &c) : tl_error(self, "no memory");
    free(c.report);
    free(c.all);
    return rc;
}

const struct tl_command cr_cmd_faults = {
    .name = "crash faults",
    .args = "[--only FAULT] [--seed N] [--exhaustive] [OPTION...]",
    .summary = "Damage pools, fail calls, attack nodes: an error or the right value, nothing else.",
    .example = "  cairn crash faults --only F15\n"
               "  (a line per kind of bytes that bits flip in, and what came of it;\n"
               "   exit 1: a wrong value, with the command that shows it again)\n",
    .run = run,
};
