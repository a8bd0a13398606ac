/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_cluster.h: a cluster of real processes for the torture tests: a folder in /dev/shm with
 * configuration, pools and logs; one child process per node; coordinators as further children.
 * Whoever controls it (the parent) never opens a cluster itself, so that it may fork at any time.
 *
 * All processes share one page: what the nodes say of themselves, and counters.
 */
#ifndef TT_CLUSTER_H
#define TT_CLUSTER_H

#include "recovery/rec_node.h"

#include <sys/types.h>

#define TT_NODES_MAX 8u
#define TT_ACTIVE_KEYS 16u
#define TT_TABLE_LISTS 1u
#define TT_TABLE_BANK 2u

struct tt_node_state {
    uint32_t serving;      /* atomic: set when open, cleared by the parent before each start */
    uint32_t quiet;        /* atomic */
    uint64_t turn;         /* atomic: grows while the node runs */
    uint64_t starts;
    uint64_t open_ns_max;
    struct rec_node_stats stats; /* torn while it runs; whole after its clean end */
};

/* Faults at named steps: the process that passes one kills or stops itself. Odds are one in so
 * many; 0: never. `rare_kill` is for the steps of recovery and of slots, which are passed seldom;
 * from the first record to the last mark of a commit it is ten times as likely. */
struct tt_faults {
    uint32_t kill, stop, rare_kill;
};

struct tt_shared {
    uint32_t stop;     /* atomic: coordinators end */
    uint32_t element;  /* atomic: last element given out; unique over all keys */
    uint64_t next_key; /* atomic */
    struct {
        uint64_t key;     /* atomic */
        uint32_t appends; /* atomic */
    } active[TT_ACTIVE_KEYS];
    /* atomic: what coordinators did */
    uint64_t ok, fail, info, unknown, resolved, bank_reads, transfers, errors;
    uint64_t scratch[16]; /* of the single tests */
    struct tt_faults node_faults, client_faults; /* cleared by the parent when it heals */
    uint64_t step_kills, step_stops;             /* atomic */
    /* atomic, by actor (nodes from 0, coordinators from TT_NODES_MAX): threads that may be about to
     * strike at a step; a process that died there leaves it so */
    uint32_t striking[2 * TT_NODES_MAX];
    struct tt_node_state node[TT_NODES_MAX];
};

struct tt_options {
    uint32_t nodes;
    const char *pool_size;
    const char *geometry; /* settings inside `options = { }`, "" for defaults */
};

struct tt_cluster {
    char dir[256], config[300];
    uint32_t nodes;
    struct tt_shared *shared;
    pid_t node_pid[TT_NODES_MAX]; /* 0: none */
};

/* Make folder, configuration and pools. 0, or -1 with a message on stderr. */
int tt_cluster_make(struct tt_cluster *cluster, const struct tt_options *options);
/* Remove the folder and all in it. */
void tt_cluster_remove(struct tt_cluster *cluster);

/* Start node `at` (id at + 1). */
void tt_node_start(struct tt_cluster *cluster, uint32_t at);
/* Wait until it serves. False: not within the time, or it has ended. */
bool tt_node_await(struct tt_cluster *cluster, uint32_t at, uint32_t timeout_ms);
void tt_node_kill(struct tt_cluster *cluster, uint32_t at);
/* Clean end. False: it did not end by itself within the time with status 0. */
bool tt_node_stop(struct tt_cluster *cluster, uint32_t at, uint32_t timeout_ms);
bool tt_cluster_start(struct tt_cluster *cluster, uint32_t timeout_ms);
bool tt_cluster_await_quiet(struct tt_cluster *cluster, uint32_t timeout_ms);
bool tt_cluster_stop(struct tt_cluster *cluster, uint32_t timeout_ms);

/* All nodes stopped: fsck each pool, look for locks of the current tag and for records above the
 * position. Returns how many things were wrong, each named on stderr. */
uint32_t tt_cluster_check_pools(struct tt_cluster *cluster);

/* Run fn in a child process whose stderr goes to `log` in the cluster's folder; its result is the
 * exit status. */
pid_t tt_fork(struct tt_cluster *cluster, const char *log, int (*fn)(void *arg), void *arg);
/* Wait for a child: its exit status; 128 + n when signal n ended it; -1: not within the time (it
 * is killed then). */
int tt_wait(pid_t pid, uint32_t timeout_ms);

uint64_t tt_now_ns(void);
void tt_sleep_us(uint64_t us);

struct tt_random {
    uint64_t state;
};
uint64_t tt_random64(struct tt_random *random);
uint32_t tt_random_below(struct tt_random *random, uint32_t n);

/* An environment whose named steps may kill or stop the process. Owner: it must outlive its use.
 * One thread. */
struct tt_stepper {
    struct tt_shared *shared;
    const struct tt_faults *faults;
    uint32_t *striking;
    struct tt_random random;
    struct cn_env env;
};
/* `actor` as in tt_shared.striking. */
void tt_stepper_init(
    struct tt_stepper *stepper, struct tt_shared *shared, uint32_t actor, uint64_t seed);

#endif
