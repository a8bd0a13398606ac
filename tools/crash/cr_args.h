/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_args.h: what the subcommands of `cairn crash` share: options, and what of them is common.
 */
#ifndef CR_ARGS_H
#define CR_ARGS_H

#include "tools/crash/campaign/cr_campaign.h"
#include "tools/tl.h"

/* As given; NULL and 0: not given. */
struct cr_args {
    const char *seed_text, *time_text, *mode, *workload, *faults, *html, *keep, *mutant, *setup;
    const char *tape, *build, *out, *timeline;
    uint64_t seeds, jobs, depth;
    bool json, keep_going, force, mended, diff, verbose;
    /* from the texts */
    uint64_t seed;  /* 1 when not given */
    double seconds; /* 0 when not given */
};

/* Rows of tl_option. */
#define CR_OPTION_SEED(a)                                                                          \
    {.name = "seed", .arg = "N", .help = "the first seed (default 1)", .text = &(a).seed_text}
#define CR_OPTION_TIME(a)                                                                          \
    {.name = "time", .arg = "T", .help = "stop after 90, 90s, 10m or 8h", .text = &(a).time_text}
#define CR_OPTION_JOBS(a)                                                                          \
    {.name = "jobs", .arg = "N", .help = "worker processes (default: processors)",                 \
        .number = &(a).jobs, .min = 1, .max = CR_JOBS_MAX}
#define CR_OPTION_JSON(a)                                                                          \
    {.name = "json", .help = "print one JSON object with stable keys", .flag = &(a).json}
#define CR_OPTION_MODE(a)                                                                          \
    {.name = "mode", .arg = "MODE",                                                                \
        .help = "platform: mixed (default), adr, adr_gpspm, adr_ddio, eadr, adr_ddio_apm",         \
        .text = &(a).mode}
#define CR_OPTION_MUTANT(a)                                                                        \
    {.name = "mutant", .arg = "NAME", .help = "break this rule of Cairn on purpose",               \
        .text = &(a).mutant}

/* After tl_parse(): the texts of seed and time. -1: go on; else the exit code. */
int cr_args_check(const struct tl_command *self, struct cr_args *args);
/* mode, faults, workload, over what is in *setup. -1: go on; else the exit code. */
int cr_args_setup(
    const struct tl_command *self, const struct cr_args *args, struct cr_setup *setup);
/*
 * A mutant was named: switch it on, or go on in the program that has mutants, beside this one, with
 * the same arguments. `all`: a mutant is needed, whichever. -1: go on; else the exit code.
 */
int cr_args_mutant(const struct tl_command *self, const char *mutant, bool all);

/* Go on in the program that sees what recovery reads, if it is beside this one. -1: it is not, or
 * is this one; else the exit code. */
int cr_args_closed(const struct tl_command *self);

/* --keep DIR, before anything runs: make the folder for tapes. -1: it is there, or none is named;
 * else the exit code, and that was said. */
int cr_args_folder(const struct tl_command *self, const char *folder);

/* Of the program, first of all. Owner: the caller. */
void cr_args_keep(int argc, char **argv);
/* "cairn crash replay --seed 1 ...": this command, quoted for a shell. Returns `text`. */
const char *cr_args_line(char *text, size_t size);

extern const struct tl_command cr_cmd_run, cr_cmd_enum, cr_cmd_faults, cr_cmd_litmus, cr_cmd_replay,
    cr_cmd_shrink, cr_cmd_points, cr_cmd_mutants, cr_cmd_rig;

#endif
