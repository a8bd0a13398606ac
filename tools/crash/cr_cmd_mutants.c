/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_mutants.c: `cairn crash mutants`: breaks one rule of Cairn after the other and says how
 * long each took to be noticed. A survivor is a hole in the harness. A process that dies of
 * anything but an assertion of the product is no kill: the verdict is inconclusive then. The
 * control comes last: where the platform loses what the one-sided method writes, the harness must
 * see lost data.
 */
#include <inttypes.h>

#include "tools/crash/cr_answer.h"
#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/campaign/cr_mutants.h"
#include "tools/crash/tell/cr_setup_text.h"

#define AIMS_MAX 256u

static const char *const way_names[] = {"seeds", "enum", "discipline", "script"};

struct tally {
    uint32_t count; /* of aims; the control is behind them */
    uint32_t done;
    struct cr_kill kill[AIMS_MAX];
    const struct cr_args *args;
    /* by mutant */
    uint32_t mutants, killed, survivors;
    uint32_t lost; /* aims, of whatever */
    uint64_t median, states; /* of those that were killed; of all */
    bool control;            /* it lost data */
};

static const struct cr_aim *aim_at(const struct tally *t, uint32_t at)
{
    return at < t->count ? cr_aim_at(at) : cr_aim_control();
}

static const char *aim_name(const struct tally *t, uint32_t at)
{
    return at < t->count ? cr_mutant_name(cr_aim_at(at)->mutant) : "(control: APM, adr_ddio)";
}

/* ---- workers ---- */

static void run_aim(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct tally *t = arg;
    uint64_t seeds = item < t->count ? CR_AIM_STATES : CR_CONTROL_STATES;

    cr_aim_kill(aim_at(t, (uint32_t)item), seeds, &note->beats, result);
}

/* Of the control only lost data counts. */
static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    const struct tally *t = arg;
    struct cr_kill *kill = result;

    (void)stuck;
    cr_kill_by_death(how, kill);
    if (item == t->count) {
        kill->killed = false;
        kill->lost = true;
    }
    kill->states = note->beats;
    kill->seed = note->beats;
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct tally *t = arg;

    memcpy(&t->kill[item], result, sizeof(t->kill[item]));
    t->done++;
    return true;
}

/* ---- sums ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* One mutant over all aims at it: the fewest states, 0 when none killed it. */
static uint64_t fewest(const struct tally *t, int mutant)
{
    uint64_t states = 0;

    for (uint32_t i = 0; i < t->count && i < t->done; i++) {
        const struct cr_aim *aim = cr_aim_at(i);
        const struct cr_kill *k = &t->kill[i];
        if (aim->mutant != mutant)
            continue;
        if (k->killed && !k->unsound && (states == 0 || k->states < states))
            states = cn_max64(k->states, 1); /* noticed before the first image is noticed too */
    }
    return states;
}

static void add_up(struct tally *t)
{
    uint64_t states[CN_MUTANT_COUNT] = {0};

    for (uint32_t i = 0; i < t->done; i++) {
        t->states += t->kill[i].states;
        t->lost += t->kill[i].lost;
    }
    for (int m = 1; m < CN_MUTANT_COUNT; m++) {
        uint64_t n = fewest(t, m);
        t->mutants++;
        if (n != 0)
            states[t->killed++] = n;
        else
            t->survivors++;
    }
    qsort(states, t->killed, sizeof(*states), by_value);
    t->median = t->killed != 0 ? states[t->killed / 2] : 0;
    t->control = t->done > t->count && t->kill[t->count].killed;
}

static uint32_t verdict_of(const struct tally *t, bool interrupted)
{
    if (interrupted || t->lost != 0)
        return CR_INCONCLUSIVE;
    if (t->survivors != 0 || !t->control)
        return CR_VIOLATION;
    return CR_PASS;
}

/* ---- the table ---- */

static const char *replay_of(
    const struct cr_aim *aim, const struct cr_kill *kill, char text[CR_TEXT_MAX])
{
    const char *name = cr_mutant_name(aim->mutant); /* also "none": in this program */

    text[0] = '\0';
    if (!kill->killed || aim->way == CR_WAY_SCRIPT) /* a body has no text */
        return text;
    if (aim->way == CR_WAY_SEEDS) {
        struct cr_campaign c = {.mutant = name, .build = cr_build_id()};
        return cr_campaign_replay(&c, aim->setup, kill->seed, text);
    }
    (void)snprintf(text, CR_TEXT_MAX, "cairn crash enum --mutant %s --only %" PRIu64 " --depth %u",
        name, kill->seed, aim->depth);
    return text;
}

static void print_row(const struct tally *t, uint32_t at)
{
    const struct cr_aim *aim = aim_at(t, at);
    const struct cr_kill *k = &t->kill[at];
    char replay[CR_TEXT_MAX];

    printf("%-28s %-10s ", aim_name(t, at), way_names[aim->way]);
    printf("%8" PRIu64 "  %s\n", k->states,
        k->unsound  ? "UNSOUND: the same run fails with the rule in force"
        : k->lost   ? "NOT KNOWN: the harness failed"
        : k->killed ? k->how
                    : "SURVIVES");
    if (k->lost)
        printf("    %s\n", k->how);
    if (t->args->verbose && replay_of(aim, k, replay)[0] != '\0')
        printf("    again: %s\n", replay);
}

static void print_table(const struct tally *t)
{
    printf("%-28s %-10s %8s  %s\n", "mutant", "way", "states", "noticed by");
    for (uint32_t i = 0; i < t->done; i++)
        print_row(t, i);
    printf("%u mutants: %u killed (median %" PRIu64 " states), %u survive; the control %s\n",
        t->mutants, t->killed, t->median, t->survivors,
        t->control ? "loses data, as it must" : "LOSES NOTHING: the harness is blind");
}

static json_t *row_json(const struct tally *t, uint32_t at)
{
    const struct cr_aim *aim = aim_at(t, at);
    const struct cr_kill *k = &t->kill[at];
    char replay[CR_TEXT_MAX];
    json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:I, s:s, s:s}", "mutant", aim_name(t, at), "rule",
        at < t->count ? cr_mutant_rule(aim->mutant) : "the one-sided method under adr_ddio", "way",
        way_names[aim->way], "killed", k->killed && !k->unsound, "states", (json_int_t)k->states,
        "how", "", "replay", replay_of(aim, k, replay));

    (void)json_object_set_new(o, "how", json_string_nocheck(k->how));
    (void)json_object_set_new(o, "lost", json_boolean(k->lost));
    (void)json_object_set_new(o, "unit", aim->unit != NULL ? json_string(aim->unit) : json_null());
    return o;
}

static json_t *table_json(const struct tally *t, uint32_t verdict, const char *again)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < t->done; i++)
        (void)json_array_append_new(rows, row_json(t, i));
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:b, s:s, s:s, s:o}", "verdict",
        cr_verdict_name(verdict), "mutants", t->mutants, "killed", t->killed,
        "survivors", t->survivors, "lost", t->lost, "median_states", (json_int_t)t->median,
        "states", (json_int_t)t->states, "control", t->control, "build", cr_build_id(), "replay",
        again, "table", rows);
}

static int list(void)
{
    for (int m = 1; m < CN_MUTANT_COUNT; m++)
        printf("%-28s %s\n", cr_mutant_name(m), cr_mutant_rule(m));
    return TL_OK;
}

static int kill_all(const struct tl_command *self, struct tally *t, const char *again)
{
    const struct cr_args *a = t->args;

    while (cr_aim_at(t->count) != NULL)
        t->count++;
    CAIRN_ASSERT(t->count < AIMS_MAX);
    struct cr_jobs jobs = {.jobs = (uint32_t)a->jobs, .items = t->count + 1, .what = "mutants",
        .result_size = sizeof(struct cr_kill), .run = run_aim, .died = on_death, .add = on_result,
        .arg = t};
    cr_answer_begin(a, "by shape", again);
    cr_jobs_catch_signals();
    int rc = cr_jobs_run(&jobs);
    if (rc != 0)
        return tl_cairn_error(self, rc, a->json);
    add_up(t);
    uint32_t verdict = verdict_of(t, jobs.interrupted);
    if (a->json)
        tl_json_print(table_json(t, verdict, again));
    else
        print_table(t);
    cr_answer_end(a, verdict, "by shape", again);
    return (int)verdict;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct cr_args a = {0};
    bool only_list = false;
    const struct tl_option options[] = {
        {.name = "list", .help = "only list them, with the rule that each breaks",
            .flag = &only_list},
        CR_OPTION_JOBS(a),
        {.name = "verbose", .help = "with the command that shows each again", .flag = &a.verbose},
        CR_OPTION_JSON(a),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &a);
    if (rc == -1 && only_list)
        return list();
    if (rc == -1)
        rc = cr_args_mutant(self, NULL, true);
    if (rc != -1)
        return rc;
    struct tally *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return tl_error(self, "no memory");
    t->args = &a;
    rc = kill_all(self, t, "cairn crash mutants");
    free(t);
    return rc;
}

const struct tl_command cr_cmd_mutants = {
    .name = "crash mutants",
    .args = "[--list] [--jobs N] [--verbose] [--json]",
    .summary = "Break one rule of Cairn after the other: each must be noticed.",
    .example = "  cairn crash mutants\n"
               "  (a line per mutant, the states it took; exit 1: one survives)\n",
    .run = run,
};
