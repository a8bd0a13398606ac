/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_litmus.c: `cairn crash litmus`: the programs that pin the modelled fabric and memory.
 */
#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/faults/cr_litmus.h"

struct litmus {
    struct cr_litmus_result *result;
    uint64_t runs_max;
};

static void run_one(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct litmus *p = arg;

    note->beats++;
    cr_litmus_run((uint32_t)item, p->runs_max, result);
}

static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct cr_litmus_result *r = result;

    (void)arg;
    (void)item;
    (void)note;
    (void)stuck;
    r->id = "?";
    r->mode = r->program = r->allowed = "";
    r->failed = true;
    r->verdict = CR_VIOLATION;
    (void)snprintf(r->why, sizeof(r->why), "%.255s", how);
}

/* Its texts are static: the same in this process, which is the worker's parent. */
static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct litmus *p = arg;

    memcpy(&p->result[item], result, sizeof(p->result[item]));
    return true;
}

static json_t *one_json(const struct cr_litmus_result *r)
{
    char allowed[512], seen[512];

    cr_litmus_text(r->allowed_set, allowed, sizeof(allowed));
    cr_litmus_text(r->seen_set, seen, sizeof(seen));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:s, s:s}", "id", r->id, "mode", r->mode,
        "program", r->program, "allowed", allowed, "seen", seen, "runs", (json_int_t)r->runs,
        "exhausted", r->exhausted, "why", r->why, "verdict", cr_verdict_name(r->verdict));
}

static uint32_t worst_of(const struct cr_litmus_result *results, uint64_t done, uint32_t count)
{
    uint32_t worst = done == count ? CR_PASS : CR_INCONCLUSIVE;

    for (uint32_t i = 0; i < done; i++)
        if (results[i].verdict == CR_VIOLATION ||
            (results[i].verdict == CR_INCONCLUSIVE && worst == CR_PASS))
            worst = results[i].verdict;
    return worst;
}

static void tell(const struct cr_args *a, const struct cr_litmus_result *results, uint64_t done,
    uint32_t verdict)
{
    if (!a->json) {
        cr_litmus_print(results, (uint32_t)done, stdout);
        cr_answer_end(a, verdict, "all", "cairn crash litmus");
        return;
    }
    json_t *all = json_array();
    for (uint32_t i = 0; i < done; i++)
        (void)json_array_append_new(all, one_json(&results[i]));
    tl_json_print(json_pack("{s:s, s:s, s:s, s:o}", "verdict", cr_verdict_name(verdict), "build",
        cr_build_id(), "replay", "cairn crash litmus", "litmus", all));
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    struct litmus p = {0};
    const struct tl_option options[] = {
        {.name = "runs", .arg = "N", .help = "at most so many tapes of each (a million)",
            .number = &p.runs_max, .min = 1, .max = 1000000000},
        CR_OPTION_JOBS(a),
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc != -1)
        return rc;
    uint32_t count = cr_litmus_count();
    struct cr_jobs jobs = {.jobs = (uint32_t)a.jobs, .items = count, .what = "litmus",
        .result_size = sizeof(struct cr_litmus_result), .run = run_one, .died = on_death,
        .add = on_result, .arg = &p};
    p.result = calloc(count, sizeof(*p.result));
    if (p.result == NULL)
        return tl_error(self, "no memory");
    cr_answer_begin(&a, "all", "cairn crash litmus");
    cr_jobs_catch_signals();
    rc = cr_jobs_run(&jobs);
    uint32_t verdict = worst_of(p.result, jobs.done, count);
    if (rc == 0)
        tell(&a, p.result, jobs.done, verdict);
    else
        verdict = (uint32_t)tl_cairn_error(self, rc, a.json);
    free(p.result);
    return (int)verdict;
}

const struct tl_command cr_cmd_litmus = {
    .name = "crash litmus",
    .args = "[--runs N] [--jobs N] [--json]",
    .summary = "Check the modelled fabric and memory: exactly the outcomes that are allowed.",
    .example = "  cairn crash litmus\n"
               "  (a line per program; exit 1 when an outcome is not allowed, or never seen)\n",
    .run = run,
};
