/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_open.h: the run that `replay` and `shrink` are about: from a tape or from a seed and a shape,
 * in the program that made it.
 */
#ifndef CR_OPEN_H
#define CR_OPEN_H

#include "tools/crash/cr_args.h"
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

/* After cr_args_check(). -1: go on, then cr_open_release(); else the exit code. */
int cr_open(const struct tl_command *self, const struct cr_args *args, struct cr_opened *ret);
void cr_open_release(struct cr_opened *opened);
/* All of a tape but its seed and its choices. */
void cr_open_head(const struct cr_opened *opened, const struct cr_setup *setup,
    const char *failure, struct cr_tape_file *tape);

#endif
