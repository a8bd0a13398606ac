/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_open.h: the run that `replay` and `shrink` are about: from a tape or from a seed and a shape,
 * in the program that made it; and the frame of these commands, which do it in a process of its
 * own: it may be one that ends in an assertion.
 */
#ifndef CR_OPEN_H
#define CR_OPEN_H

#include "tools/crash/cr_answer.h"
#include "tools/crash/tell/cr_setup_text.h"
#include "tools/crash/tell/cr_tape_file.h"

struct cr_opened {
    struct cr_setup setup; /* with the tape to play, if there is one */
    uint64_t seed;
    const char *mutant, *workload; /* NULL: none, mixed */
    bool has_tape;
    struct cr_tape_file tape;
};

#define CR_OPTIONS_OPEN(a)                                                                         \
    {.name = "tape", .arg = "FILE", .help = "the run on this tape", .text = &(a).tape},            \
        {.name = "seed", .arg = "N", .help = "or the run of this seed", .text = &(a).seed_text},   \
        {.name = "setup", .arg = "TEXT", .help = "its shape, as a report says it",                 \
            .text = &(a).setup},                                                                   \
        CR_OPTION_MODE(a),                                                                         \
        {.name = "workload", .arg = "NAME|FILE.so", .help = "what clients do",                     \
            .text = &(a).workload},                                                                \
        {.name = "faults", .arg = "LIST", .help = "as of `cairn crash run`",                       \
            .text = &(a).faults},                                                                  \
        CR_OPTION_MUTANT(a),                                                                       \
        {.name = "build", .arg = "ID", .help = "refuse if this is another build",                  \
            .text = &(a).build},                                                                   \
        {.name = "force", .help = "although it was made by another build", .flag = &(a).force}

struct cr_alone {
    struct cr_args args;
    struct cr_opened opened;
    struct cr_report *report; /* NULL until cr_open_run() */
    bool talk, patient;       /* of struct cr_jobs; it talks with --verbose in any case */
    bool page;                /* with a picture of the run, where --html asks for it */
    /* In the worker; *report is initialised. */
    void (*run)(struct cr_alone *alone, struct cr_note *note, struct cr_report *report);
    /* In the parent: it died in it. NULL: that is a violation. */
    void (*died)(struct cr_report *report, const char *how);
    /* In the parent, before the report is closed. NULL: nothing. */
    void (*judge)(struct cr_alone *alone);
};
/* Parse, open, run, answer. Returns the exit code. */
int cr_open_run(const struct tl_command *self, const struct tl_option *options, int argc,
    char **argv, struct cr_alone *alone);
/* All of a tape but its seed and its choices. */
void cr_open_head(const struct cr_opened *opened, const struct cr_setup *setup,
    const char *failure, struct cr_tape_file *tape);

#endif
