/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_report.h: what a campaign did: one struct that every part of `cairn crash` adds to, that
 * worker processes send to their parent as it is (plain data, fixed size), and that is told as
 * text, JSON and HTML.
 */
#ifndef CR_REPORT_H
#define CR_REPORT_H

#include <stdio.h>

#include <jansson.h>

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"

enum cr_verdict { CR_PASS = 0, CR_VIOLATION = 1, CR_INCONCLUSIVE = 2 }; /* and exit codes */

/* What happened at a named step, for the coverage grid: columns. */
enum cr_cell {
    CR_CELL_PASSED,  /* somebody went by */
    CR_CELL_PROCESS, /* a process crashed there */
    CR_CELL_POWER,   /* power failed there */
    CR_CELL_PAUSED,  /* somebody stopped there for a while */
    CR_CELL_NESTED,  /* a crash there, inside recovery from another */
    CR_CELL_IMAGES,  /* images of this moment explored */
    CR_CELL_COUNT,
};

#define CR_TEXT_MAX 1024u
#define CR_FAILURES_MAX 8u

struct cr_failure {
    uint64_t seed;
    char what[CR_TEXT_MAX];   /* the violated invariant, in words */
    char replay[CR_TEXT_MAX]; /* the command that shows it again */
    char setup[640];          /* of the run, as cr_setup_text.h; empty: not a run of a cluster */
};

struct cr_report {
    uint64_t seed, seeds, unseed; /* unseed: of all seeds, in order */
    char mode[64];                /* "adr", "adr_ddio", "eadr", "mixed" */
    char workload[64];
    uint64_t cell[CN_STEP_COUNT][CR_CELL_COUNT];
    uint64_t points_defined, points_reached; /* (step, kind) that can happen, that did */
    double images_admissible_log2;
    uint64_t images_explored, images_distinct, nested_pairs, recoveries, states;
    uint64_t txns, ok, fail, unknown, resolved;
    uint64_t crashes_node, crashes_client, power_failures, restarts, pauses, partitions, breaks;
    uint64_t words_lost, reruns, mismatches; /* of the unseed, over runs done twice */
    uint64_t violations;
    uint32_t failure_count;
    struct cr_failure failure[CR_FAILURES_MAX];
    /* states_per_s: of one core, of the image explorer: states / explore_seconds, which adds up */
    double seconds, explore_seconds, states_per_s;
    uint64_t cases, cases_total, moments, moments_exhaustive; /* of the closed set; cr_enum.h */
    uint64_t moments_inside, moments_inside_exhaustive; /* the same inside recovery */
    uint64_t moments_by_chance, images_proven; /* cr_explore.h: by_chance, proven */
    uint64_t fault_cases; /* of the medium, of pools, of single calls, of peers; cr_faults.h */
    uint64_t tape_choices, tape_unused; /* of the tape that was played; that nobody asked for */
    bool tape_diverged; /* it asked for something else than the tape has */
    bool cut_short; /* time ran out before what was asked for was done */
    uint64_t doubts; /* reasons why nothing can be said: never a pass */
    char doubt[CR_TEXT_MAX]; /* the first */
    uint32_t verdict;
};

void cr_report_init(struct cr_report *report);
/* Sums; keeps the first failures; unseed: order matters, so add in the order of seeds. */
void cr_report_add(struct cr_report *to, const struct cr_report *from);
void cr_report_fail(struct cr_report *report, uint64_t seed, const char *what, const char *replay);
/* Something that makes the verdict inconclusive, unless there is a violation. */
void cr_report_doubt(struct cr_report *report, const char *format, ...) CN_PRINTF(2, 3);
/* Verdict and rates, once all is added. Nothing explored, or time cut short before one seed: never
 * a pass. */
void cr_report_close(struct cr_report *report);
void cr_report_print(const struct cr_report *report, FILE *to);
const char *cr_verdict_name(uint32_t verdict); /* "pass", "violation", "inconclusive" */
const char *cr_cell_name(enum cr_cell cell);
/* What is said of a step in its list: cn_env.h. */
const char *cr_point_text(enum cn_step step);
/* Owner: the caller. Keys are stable: docs/crash-testing.md. */
json_t *cr_report_json(const struct cr_report *report);
/* A step that a cluster under this harness can pass, crash at so. */
bool cr_point_is_defined(enum cn_step step, enum cr_cell cell);

#endif
