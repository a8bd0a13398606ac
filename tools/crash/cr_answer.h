/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_answer.h: how a subcommand of `cairn crash` tells its result. Text: the first and the last
 * line say how to run it again. JSON: one object, nothing else on stdout.
 */
#ifndef CR_ANSWER_H
#define CR_ANSWER_H

#include "tools/crash/cr_args.h"

/* --html FILE, before anything runs: can it be written? -1: yes, or there is none; else the exit
 * code, and that was said. */
int cr_answer_check(const struct tl_command *self, const struct cr_args *args);
/* The first line; nothing with --json. `again`: the command. */
void cr_answer_begin(const struct cr_args *args, const char *mode, const char *again);
/* The last one. */
void cr_answer_end(
    const struct cr_args *args, uint32_t verdict, const char *mode, const char *again);
/*
 * All but the first line: the report as text or JSON, the web page when it was asked for, the last
 * line. `failing`: the run of the first failure, for its picture on the page; NULL: none. A page
 * that cannot be written makes a pass inconclusive. Returns the exit code.
 */
int cr_answer_report(const struct tl_command *self, const struct cr_args *args,
    struct cr_report *report, const struct cr_setup *failing, const char *again);

#endif
