/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_jobs.h: items of work, numbered from 0, done by worker processes and added up in the order of
 * their numbers, so that the sum does not depend on how many workers there are.
 *
 * A worker may die of what it runs (an assertion, a bad access): that is a result like any other,
 * never silence. While it works it keeps a note, in memory shared with its parent, of what it is
 * at; the parent finds there, and in the last words on its stderr, what to tell. Workers leave
 * nothing behind: no core files, and they die with their parent.
 */
#ifndef CR_JOBS_H
#define CR_JOBS_H

#include "include/internal/cn_base.h"

#define CR_JOBS_MAX 64u
#define CR_NOTE_TEXT_MAX 1024u

/* What a worker is at. */
struct cr_note {
    uint64_t seed;
    uint64_t beats; /* raised with each run: a worker that stands still is stuck */
    char replay[CR_NOTE_TEXT_MAX];
};

struct cr_jobs {
    uint32_t jobs;
    uint64_t items;   /* UINT64_MAX: until the time is up */
    double seconds;   /* begin no item later than this; 0: no limit */
    uint32_t stuck_s; /* without a beat for so long: killed; 0: 300 */
    const char *what; /* for the line on stderr when it takes longer than 2 s; NULL: say nothing */
    size_t result_size;
    bool talk;        /* workers may print */
    bool patient;     /* a signal does not end workers: they look for cr_jobs_interrupted() */
    /* In a worker. `result`: zeroed. */
    void (*run)(void *arg, uint64_t item, struct cr_note *note, void *result);
    /* In the parent: the worker died in this item. `how`: "signal 11 (...); last words: ...".
     * `stuck`: it was killed because it stood still. Makes up its result. */
    void (*died)(void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck,
        void *result);
    /* In the parent, in the order of items. False: that is enough. */
    bool (*add)(void *arg, uint64_t item, const void *result);
    void *arg;
    /* out */
    uint64_t done;      /* items added */
    bool out_of_time;   /* some of `items` were not begun for that reason */
    bool interrupted;   /* SIGINT or SIGTERM */
};

/* Errors: -errno (no process, no memory, no pipe). The process must have one thread. */
CN_MUST_CHECK int cr_jobs_run(struct cr_jobs *jobs);
/* SIGINT and SIGTERM from now on end cr_jobs_run() early, and set this. */
void cr_jobs_catch_signals(void);
bool cr_jobs_interrupted(void);
/* Processors this process may use, at most CR_JOBS_MAX. */
uint32_t cr_jobs_default(void);
double cr_seconds(void); /* of a monotonic clock */

#endif
