/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults.c: the frame of fault campaigns: tallies, the judgement of a case, the table.
 */
#include "tools/crash/faults/cr_faults.h"

#include <inttypes.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

bool cr_faults_begin(
    struct cr_faults *f, const struct cr_faults_options *options, struct cr_report *report)
{
    char why[256];

    memset(f, 0, sizeof(*f));
    f->options = *options;
    f->report = report;
    f->begun = seconds();
    sim_random_seed(&f->random, options->seed ^ UINT64_C(0xfa17));
    f->stand = cr_stand_new(options->seed, NULL, why, sizeof(why));
    if (f->stand == NULL)
        cr_report_doubt(report, "faults: %s", why);
    return f->stand != NULL;
}

void cr_faults_end(struct cr_faults *f)
{
    f->report->seconds += seconds() - f->begun;
    cr_stand_delete(&f->stand);
}

/* The only use of a clock: it ends the campaign, and the report says so. */
bool cr_faults_time_is_up(struct cr_faults *f)
{
    if (!f->late && f->options.seconds > 0 && seconds() - f->begun > f->options.seconds) {
        f->late = true;
        f->report->cut_short = true;
    }
    return f->late;
}

uint32_t cr_faults_below(struct cr_faults *f, uint64_t bound)
{
    CAIRN_ASSERT(bound > 0 && bound <= UINT32_MAX);
    return (uint32_t)(sim_random_next(&f->random) % bound);
}

struct cr_faults_tally *cr_faults_tally(struct cr_faults *f, const char *fault, const char *what)
{
    if (f->options.only != NULL && strcmp(f->options.only, fault) != 0)
        return NULL;
    for (uint32_t i = 0; i < f->tally_count; i++)
        if (strcmp(f->tally[i].fault, fault) == 0 && strcmp(f->tally[i].what, what) == 0)
            return &f->tally[i];
    CAIRN_ASSERT(f->tally_count < CR_FAULTS_TALLIES_MAX);
    struct cr_faults_tally *t = &f->tally[f->tally_count++];
    snprintf(t->fault, sizeof(t->fault), "%s", fault);
    snprintf(t->what, sizeof(t->what), "%s", what);
    return t;
}

void cr_faults_note_error(struct cr_faults_tally *t, int error)
{
    const char *name = cairn_error_name(error);
    size_t used = strlen(t->errors);

    if (error == 0)
        return;
    if (strncmp(name, "CAIRN_E_", 8) == 0)
        name += 8;
    const char *at = strstr(t->errors, name);
    if (at != NULL && (at[strlen(name)] == ' ' || at[strlen(name)] == '\0'))
        return;
    if (used + strlen(name) + 2 < sizeof(t->errors))
        snprintf(t->errors + used, sizeof(t->errors) - used, "%s%s", used > 0 ? " " : "", name);
}

const char *cr_faults_replay(
    const struct cr_faults_options *options, const char *fault, char *text, size_t size)
{
    (void)snprintf(text, size, "cairn crash faults --only %s --seed %" PRIu64 "%s%s%s", fault,
        options->seed, options->exhaustive ? " --exhaustive" : "",
        options->mutant != NULL ? " --mutant " : "",
        options->mutant != NULL ? options->mutant : "");
    return text;
}

void cr_faults_count(struct cr_faults *f, struct cr_faults_tally *t,
    const struct cr_stand_outcome *o, bool unseen_allowed, const char *how)
{
    bool unseen = o->stale > 0 && o->rejected == 0;
    bool wrong = o->wrong > 0 || o->hung || (unseen && !unseen_allowed);

    t->cases++;
    f->report->recoveries++;
    f->report->fault_cases++;
    f->report->unseed = cn_mix64(f->report->unseed ^ o->hash);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        cr_faults_note_error(t, o->open[i]);
    cr_faults_note_error(t, o->error);
    if (wrong)
        t->silent++;
    else if (o->stale > 0)
        *(unseen ? &t->unseen : &t->reported) += 1;
    else if (cr_stand_refused(o))
        t->refused++;
    else if (o->failed > 0)
        t->detected++;
    else
        t->right++;
    if ((wrong || unseen) && t->first[0] == '\0')
        snprintf(t->first, sizeof(t->first), "%.60s: %.120s", how,
            o->what[0] != '\0' ? o->what : "did not come to an end");
    if (wrong) {
        char what[CR_TEXT_MAX], again[160];
        snprintf(what, sizeof(what), "%s %s, %s: %s", t->fault, t->what, how,
            o->what[0] != '\0' ? o->what : "did not come to an end");
        cr_report_fail(f->report, f->options.seed, what,
            cr_faults_replay(&f->options, t->fault, again, sizeof(again)));
    }
}

void cr_faults_case(struct cr_faults *f, struct cr_faults_tally *t,
    const struct cr_stand_variant *variant, bool unseen_allowed, const char *how)
{
    struct cr_stand_outcome o;

    cr_stand_try(f->stand, variant, &o);
    cr_faults_count(f, t, &o, unseen_allowed, how);
}

void cr_faults_print(const struct cr_faults *f, FILE *to)
{
    fprintf(to, "%-5s %-38s %6s %6s %7s %8s %8s %6s %6s  %s\n", "fault", "what", "cases", "right",
        "refused", "detected", "reported", "unseen", "silent", "errors");
    for (uint32_t i = 0; i < f->tally_count; i++) {
        const struct cr_faults_tally *t = &f->tally[i];
        if (t->cases == 0)
            continue;
        fprintf(to, "%-5s %-38s %6lu %6lu %7lu %8lu %8lu %6lu %6lu  %s\n", t->fault, t->what,
            t->cases, t->right, t->refused, t->detected, t->reported, t->unseen, t->silent,
            t->errors);
        if (t->first[0] != '\0')
            fprintf(to, "      %s: %s\n", t->silent > 0 ? "SILENT" : "unseen", t->first);
    }
}

const char *cr_faults_name(uint32_t at)
{
    static const char *const names[] = {"F13", "F14", "F15", "F16", "F17", "F18", "F19", "F20",
        "F21", "F22", "F24", "F25", "F26", "I2", "I5", "I6", "I13"};

    return at < CN_ARRAY_SIZE(names) ? names[at] : NULL;
}

void cr_faults_each(struct cr_faults *f)
{
    cr_faults_media(f);
    cr_faults_pools(f);
    cr_faults_resources(f);
    cr_faults_attack(f);
    cr_faults_messages(f);
    cr_faults_lies(f);
    cr_faults_damaged(f);
    cr_faults_forged(f);
    cr_faults_offline(f);
}

void cr_faults_run_all(
    struct cr_faults *f, const struct cr_faults_options *options, struct cr_report *report)
{
    if (!cr_faults_begin(f, options, report))
        return;
    cr_faults_each(f);
    cr_faults_end(f);
}

void cr_faults_run(const struct cr_faults_options *options, struct cr_report *report)
{
    struct cr_faults *f = sim_calloc(1, sizeof(*f));

    cr_faults_run_all(f, options, report);
    if (options->table != NULL)
        cr_faults_print(f, options->table);
    sim_free(f);
}
