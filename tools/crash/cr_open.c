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
    if (build == NULL || a->force || strcmp(build, cr_build_id()) == 0)
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
    if (strcmp(o->tape.mutant, "none") != 0)
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

    o->setup = (struct cr_setup){.ops = CR_CAMPAIGN_OPS, .faults = CR_FAULTS_ALL};
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

int cr_open(const struct tl_command *self, const struct cr_args *a, struct cr_opened *ret)
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
        cr_open_release(ret);
    return rc;
}

void cr_open_release(struct cr_opened *opened)
{
    cr_tape_release(&opened->tape);
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
