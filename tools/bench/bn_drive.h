/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_drive.h: the driver of loads, between its files:
 *
 *   bn_options.c   options that every load has
 *   bn_drive.c     a run: cluster, load, warm-up, measuring, check, report
 *   bn_worker.c    a coordinator thread with its transactions in flight
 *   bn_gate.c      where the threads meet
 *   bn_figures.c   what was counted becomes figures; targets
 *   bn_report.c    text and JSON
 *   bn_chart.c     what the SVG shows; bn_svg.c draws it
 *   bn_nodes.c, bn_host.c   participants
 *
 * A *point* is a number of transactions in flight: there is one, or those of --sweep, measured in
 * turn, a round of short *segments* after the other, so that whatever else goes on in the machine
 * hits all alike. Segments are what main thread and workers meet at.
 */
#ifndef BN_DRIVE_H
#define BN_DRIVE_H

#include <pthread.h>

#include "rdma/rd.h"
#include "tools/bench/bn_histogram.h"
#include "tools/bench/bn_load.h"
#include "tools/bench/bn_nodes.h"

#define BN_THREADS_MAX 64u
#define BN_POINTS_MAX 16u

/* ---- bn_options.c ---- */
struct bn_options {
    const char *fabric, *address, *config, *completion, *sweep, *svg;
    uint64_t threads, inflight, participants, node_threads, cache;
    uint64_t duration_s, warmup_s, transactions; /* transactions 0: by time */
    uint64_t seed, rtt_us, gbps;
    bool blocking, virtual_time, write_back, json, check, verbose;
    uint32_t point[BN_POINTS_MAX], point_count, inflight_max;
    bool projection; /* figures of a modelled network, in time that is partly virtual */
};
/* Returns -1: go on; else the exit code. */
int bn_options_parse(const struct tl_command *self, const struct bn_load_ops *ops, int argc,
    char **argv, struct bn_options *options);

/* ---- what is counted ---- */
/* Per worker and point: what the context and its endpoint count, and what the worker does. */
#define BN_COUNTS(X)                                                                               \
    X(round_trips)                                                                                 \
    X(reads)                                                                                       \
    X(cas)                                                                                         \
    X(writes)                                                                                      \
    X(flushes)                                                                                     \
    X(marks)                                                                                       \
    X(doorbells)                                                                                   \
    X(completions)                                                                                 \
    X(messages)                                                                                    \
    X(bytes_read)                                                                                  \
    X(bytes_written)                                                                               \
    X(wakeups)                                                                                     \
    X(syscalls)                                                                                    \
    X(aborts_lock)                                                                                 \
    X(aborts_validate)                                                                             \
    X(aborts_read)                                                                                 \
    X(aborts_user)                                                                                 \
    X(aborts_error)                                                                                \
    X(cache_hits)                                                                                  \
    X(cache_misses)                                                                                \
    X(cpu_ns)                                                                                      \
    X(took_ns)
enum bn_count {
#define BN_X(name) BN_COUNT_##name,
    BN_COUNTS(BN_X)
#undef BN_X
    BN_COUNT_COUNT,
};

struct bn_kind {
    uint64_t committed, refused, tries;
    struct bn_histogram latency; /* of those committed, ns */
};
struct bn_point {
    uint64_t count[BN_COUNT_COUNT];
    double rate; /* committed per second of each worker's own time, summed */
    struct bn_usage nodes; /* differences, while the point was measured */
    struct bn_kind kind[BN_KINDS_MAX];
};

/* ---- a run ---- */
struct bn_segment {
    uint32_t point, inflight;
    bool counted;
    uint64_t duration_ns, transactions; /* per worker; transactions 0: by time */
    bool last;                          /* nothing to do: end */
};

/* Where the main thread and the workers meet: it lets all of them through into a segment, and waits
 * until all have come back. */
struct bn_gate {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    uint32_t number, inside; /* of the segment; how many are in it */
};

struct bn_worker;
struct bn_run {
    const struct tl_command *self;
    struct bn_options options;
    struct bn_load *load;
    struct bn_nodes nodes;
    struct rd_fabric *fabric;
    struct txn_config config; /* of the coordinators */
    struct cairn *cairn;
    struct bn_worker *worker[BN_THREADS_MAX];
    void *ledger[BN_THREADS_MAX]; /* load->worker */
    struct bn_gate gate;
    struct bn_segment segment;
    volatile int failed; /* a worker has: the others stop */
    /* results */
    struct bn_point *point; /* of all workers; options.point_count of them */
    uint64_t conditions;    /* that the load's check found to hold */
    uint64_t loaded_ns, checked_ns;
};

/* ---- bn_gate.c ---- */
void bn_gate_init(struct bn_gate *gate);
void bn_gate_fini(struct bn_gate *gate);
void bn_gate_open(struct bn_gate *gate, uint32_t count); /* main thread */
void bn_gate_await(struct bn_gate *gate);
void bn_gate_enter(struct bn_gate *gate, uint32_t *number); /* a worker; *number 0 at first */
void bn_gate_leave(struct bn_gate *gate);

/* ---- bn_worker.c ---- */
/* Start its thread, which opens a context and waits for segments; that it cannot open one
 * bn_worker_error() tells. Errors: -ENOMEM, -EAGAIN. */
CN_MUST_CHECK int bn_worker_start(
    struct bn_run *run, uint32_t number, struct bn_worker **ret_worker);
/* Its first error, or 0. */
CN_MUST_CHECK int bn_worker_error(const struct bn_worker *worker);
const struct bn_point *bn_worker_point(const struct bn_worker *worker, uint32_t point);
/* Join it: the last segment must have been given. *worker becomes NULL. */
void bn_worker_end(struct bn_worker **worker);

/* ---- bn_figures.c ---- */
/* Add up what the workers counted. */
void bn_figures_collect(struct bn_run *run);
/* One figure of a point by its name (those that a target may name); NAN: not known. */
double bn_figure(const struct bn_run *run, const struct bn_point *point, const char *name);
/* The point with the most throughput. */
uint32_t bn_best_point(const struct bn_run *run);
uint64_t bn_committed(const struct bn_point *point);
/* Whether it is met, in this run; *ret_value NAN: it is of another fabric or network, or could not
 * be measured. */
bool bn_target_is_met(
    const struct bn_run *run, const struct bn_target *target, double *ret_value);
bool bn_targets_are_met(const struct bn_run *run);

/* ---- bn_report.c ---- */
void bn_report(const struct bn_run *run);
/* Three digits behind the point. */
double bn_rounded(double value);

/* ---- bn_chart.c ---- */
/* Errors: -errno of writing the file. */
CN_MUST_CHECK int bn_chart(const struct bn_run *run, const char *path);

/* ---- bn_drive.c ---- */
int bn_drive(const struct bn_load_ops *ops, int argc, char **argv);

#endif
