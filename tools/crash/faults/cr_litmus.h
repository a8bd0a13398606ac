/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_litmus.h: the litmus programs that pin the modelled fabric and memory: a few requests or
 * stores, a crash, and the exact set of outcomes that the crash model allows. A program is run over
 * all tapes (sim_odometer), not over many seeds: what is seen is compared as a set. An outcome that
 * is not allowed would be a false alarm of the harness, one that is never seen a bug that it cannot
 * find.
 */
#ifndef CR_LITMUS_H
#define CR_LITMUS_H

#include <stdio.h>

#include "tools/crash/tell/cr_report.h"

#define CR_LITMUS_OUTCOMES 512u

struct cr_litmus_result {
    const char *id;      /* "L1" ... ; static text, as all text here */
    const char *mode;    /* "adr", "adr_ddio", "eadr" */
    const char *program; /* in words */
    const char *allowed; /* outcomes in hexadecimal digits, e.g. "00 01 10-1f" */
    uint64_t allowed_set[CR_LITMUS_OUTCOMES / 64], seen_set[CR_LITMUS_OUTCOMES / 64];
    uint32_t allowed_count, seen_count;
    uint64_t runs;  /* tapes */
    bool exhausted; /* every tape was run */
    bool failed;    /* the program itself went wrong: `why` */
    char why[256];  /* first difference, or failure; empty: pass */
    enum cr_verdict verdict; /* CR_INCONCLUSIVE: right so far, but not all tapes were run */
};

/* How many there are. */
uint32_t cr_litmus_count(void);
/* Run number `at`: over all tapes, at most `runs_max` (0: a million). */
void cr_litmus_run(uint32_t at, uint64_t runs_max, struct cr_litmus_result *ret);
/* All of them; results[i] is that of number i (cr_litmus_count() of them). Returns the worst. */
enum cr_verdict cr_litmus_run_all(struct cr_litmus_result *results);
/* A table, a line each, with what differs; the verdict below it. */
void cr_litmus_print(const struct cr_litmus_result *results, uint32_t count, FILE *to);
/* Outcomes of a set as text. */
void cr_litmus_text(const uint64_t *set, char *text, size_t size);

#endif
