/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_load.h: the clients of the torture test: coordinators that run list-append and bank
 * transactions through the public API and record what they did; the set-up and the end (tokens,
 * final reads).
 *
 * A list is an array of u32 in host order under an 8-byte key; an append reads it and writes it
 * with one more. About LIST_SIZE appends to a key, then another key takes its place.
 *
 * Beside histories (hist-*.log) the folder gets tokens-*.txt, one line per transaction that may
 * have to be asked about: "TOKEN KEY:ELEMENT ...", written before the commit call or after an
 * UNKNOWN.
 */
#ifndef TT_LOAD_H
#define TT_LOAD_H

#include "tools/history/hs_history.h"
#include "tests/torture/tt_cluster.h"

#define TT_ACCOUNTS 20u
#define TT_BALANCE 100

enum tt_plant {
    TT_PLANT_NONE,
    TT_PLANT_SKEW,        /* reads of a transaction are done in another one before */
    TT_PLANT_LOST_UPDATE, /* the list is read in one transaction and written back in another */
};

struct tt_load {
    struct tt_cluster *cluster;
    uint32_t coordinator; /* 0.. */
    uint32_t generation;  /* how often it was started */
    uint32_t threads;
    uint32_t pause_us_max; /* between transactions, at random */
    uint32_t keys;         /* active at once, at most TT_ACTIVE_KEYS */
    uint64_t seed;
    enum tt_plant plant;
};

/* Bodies of child processes (tt_fork): the result is the exit status, 0 is good. */
int tt_run_setup(void *cluster); /* accounts */
int tt_run_load(void *load);     /* until shared->stop */

struct tt_end {
    struct tt_cluster *cluster;
    uint32_t timeout_ms;
    /* results, in memory shared with the parent */
    uint64_t tokens, committed, aborted, expired, wrong;
};
/* Asks for all tokens, reads every key and the bank for the last time (hist-final.log), and
 * checks that a token's transaction is there when COMMITTED and not there when ABORTED. `end`
 * must be shared memory. */
int tt_run_end(void *end);

#endif
