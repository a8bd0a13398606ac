/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults.h: faults beyond crashes: of the medium (poisoned lines, flipped bits, misdirected and
 * stale writes), of files (older copies, swapped and cut pools), of memory (an allocation fails),
 * of clocks, and peers that attack. docs/crash-testing.md has the list F1 to F30 and says what
 * covers each. All is done to the pools of a stand (cr_stand.h).
 *
 * A case passes when the nodes refuse the pool with an error of its own, or every read gives an
 * error or the right value. A medium that loses a committed record before it was applied loses what
 * it wrote: then the node has to report it. Where even that cannot be known it is counted and
 * listed, not hidden: see `unseen`.
 */
#ifndef CR_FAULTS_H
#define CR_FAULTS_H

#include <stdio.h>

#include "tools/crash/tell/cr_report.h"
#include "tools/crash/faults/cr_stand.h"

struct cr_faults_options {
    uint64_t seed;
    double seconds;   /* 0: no limit. When they are over the report is cut short */
    bool exhaustive;  /* every bit and line of what is small; else a bounded slice, seconds long */
    const char *only; /* one fault's tallies, "F15"; NULL: all */
    FILE *table;      /* a line per tally, at the end; NULL: none */
    const char *mutant; /* for the command that shows a case again; NULL: none */
    bool verbose;
};

/* One kind of damage to one kind of bytes. */
struct cr_faults_tally {
    char fault[8];
    char what[56];
    uint64_t cases;
    uint64_t right;    /* nothing was to be seen of it */
    uint64_t refused;  /* a node did not start, with an error of its own */
    uint64_t detected; /* reads gave errors, and no value was wrong */
    uint64_t reported; /* an older value was read, and the node reports a committed record lost */
    uint64_t unseen;   /* an older value: a slot's last record was taken for an unfinished one */
    uint64_t silent;   /* a wrong value, or nobody came to an end: violations */
    char first[192];   /* of these, or of `unseen` */
    char errors[96];   /* names of errors seen, without CAIRN_E_ */
};

#define CR_FAULTS_TALLIES_MAX 128u
struct cr_faults {
    struct cr_faults_options options;
    struct cr_report *report;
    struct cr_stand *stand;
    double begun;
    bool late;
    struct cr_faults_tally tally[CR_FAULTS_TALLIES_MAX];
    uint32_t tally_count;
    struct sim_random random;
};

/* Adds cases, also as recoveries, and what went wrong as violations, to the report. */
void cr_faults_run(const struct cr_faults_options *options, struct cr_report *report);
/* The same, and what is in *ret is for cr_faults_print(). */
void cr_faults_run_all(struct cr_faults *ret, const struct cr_faults_options *options,
    struct cr_report *report);
/* The command that runs one fault's cases again. Returns `text`. */
const char *cr_faults_replay(
    const struct cr_faults_options *options, const char *fault, char *text, size_t size);

/* Names for `only`, to do them one by one, or several at once; NULL: there are no more. */
const char *cr_faults_name(uint32_t at);

/* ---- between the files, and for tests ---- */
/* false: the stand could not be made (a doubt in the report). */
bool cr_faults_begin(
    struct cr_faults *f, const struct cr_faults_options *options, struct cr_report *report);
void cr_faults_end(struct cr_faults *f);
/* All of what follows, between the two. */
void cr_faults_each(struct cr_faults *f);
void cr_faults_print(const struct cr_faults *f, FILE *to);
/* NULL: not asked for. */
struct cr_faults_tally *cr_faults_tally(struct cr_faults *f, const char *fault, const char *what);
bool cr_faults_time_is_up(struct cr_faults *f);
uint32_t cr_faults_below(struct cr_faults *f, uint64_t bound);
/* Run a variant and put it into the tally. `unseen_allowed`: the record itself is hit. */
void cr_faults_case(struct cr_faults *f, struct cr_faults_tally *t,
    const struct cr_stand_variant *variant, bool unseen_allowed, const char *how);
/* Put an outcome into a tally. */
void cr_faults_count(struct cr_faults *f, struct cr_faults_tally *t,
    const struct cr_stand_outcome *o, bool unseen_allowed, const char *how);
void cr_faults_note_error(struct cr_faults_tally *t, int error);

void cr_faults_media(struct cr_faults *f);     /* F14 to F17 */
void cr_faults_pools(struct cr_faults *f);     /* F19, F21, F22 */
void cr_faults_resources(struct cr_faults *f); /* F13, F20, F26 */
void cr_faults_attack(struct cr_faults *f);    /* F25 */
void cr_faults_messages(struct cr_faults *f);  /* F24, F25: handshakes, messages */
void cr_faults_lies(struct cr_faults *f);      /* F13, F25: locks, records, who takes no answers */
void cr_faults_damaged(struct cr_faults *f);   /* F15, and the node serves */
void cr_faults_forged(struct cr_faults *f);    /* F25: records, rule by rule */
void cr_faults_offline(struct cr_faults *f);   /* I5, F22, F26: no node runs */

#endif
