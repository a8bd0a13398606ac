/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_rtt.h: `cairn bench rtt`: what is measured, and the results.
 */
#ifndef BN_RTT_H
#define BN_RTT_H

#include "tools/bench/bn.h"

enum rtt_op {
    RTT_RAW_READ,
    RTT_RAW_CAS,
    RTT_RAW_LOCK_READ,
    RTT_RAW_LOCK_READ_READ,
    RTT_RAW_LOCK_READ_ALL,
    RTT_RAW_FLUSH,
    RTT_RAW_FLUSH_ALL,
    RTT_RAW_VALIDATE,
    RTT_READ_ONLY,
    RTT_WRITE,
    RTT_WRITE_ALL,
    RTT_READ_WRITE,
    RTT_OP_COUNT,
};

/* Of commits of one kind, summed. */
struct rtt_counted {
    uint64_t commits, conflicts, round_trips;
    struct rd_counters c;
};

struct rtt {
    const struct tl_command *self;
    /* options */
    struct tl_cluster_options options;
    const char *table_name, *only;
    uint64_t nodes, samples, seconds; /* samples 0: by time */
    bool json, check, verbose;
    /* what it runs on */
    struct tl_cluster cluster;
    struct cairn *cairn;
    struct cairn_ctx *ctx;
    struct bn_raw *raw;
    struct bn_keys keys;
    uint32_t record_size, record_size_all; /* bytes that a commit writes per node */
    /* results */
    uint64_t clock_ns, took_ns, rounds;
    struct bn_histogram op[RTT_OP_COUNT];
    struct rtt_counted counted[RTT_OP_COUNT];
};

struct rtt_op_text {
    const char *name, *label;
    bool commit; /* else raw */
    bool all;    /* on all participants: only with two or more */
};
extern const struct rtt_op_text rtt_ops[RTT_OP_COUNT];

/* ---- bn_rtt_ratio.c ---- */
/* commit / sum of its parts, by medians; a target of 0: none. */
struct rtt_ratio {
    const char *name;
    enum rtt_op commit, parts[3];
    uint32_t part_count;
    double target;
};
/* NULL: no more. */
const struct rtt_ratio *rtt_ratio_at(uint32_t i);
/* NAN where a part was not measured. */
double rtt_ratio_value(const struct rtt_ratio *ratio, const struct bn_histogram *op);
bool rtt_ratio_is_met(const struct rtt_ratio *ratio, double value);
/* Every target that there is a value for is met. */
bool rtt_is_good(const struct bn_histogram *op);

/* ---- bn_rtt_report.c ---- */
void rtt_report(const struct rtt *r);

#endif
