/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_load.h: a load: a set of transactions with an initial state, what each did, and conditions
 * that hold at the end. `cairn bench NAME` runs one (bn_drive.c): it makes or finds a cluster,
 * loads, warms up, measures, checks, and reports. No figure is reported for work that its check did
 * not find in the cluster.
 *
 * Life: setup, load, then per thread worker_new; from its thread draw, body (may run several times
 * per draw), settle, again and again; worker_delete; check; end. Only draw, body and settle of
 * different workers run at once.
 *
 * A transaction in flight has a slot of `slot_size` bytes, with what was left in it, which is the
 * load's: draw() writes into it what is to be done, body() what was read, settle() takes it into
 * the worker's ledger. A body must not change the ledger: it may be run again.
 */
#ifndef BN_LOAD_H
#define BN_LOAD_H

#include "include/cairn/cairn.h"
#include "include/internal/cn_base.h"
#include "tools/tl.h"

#define BN_TABLES_MAX 16u
#define BN_KINDS_MAX 8u

struct txn_config;
struct bn_load; /* one load that is being run; a load's own struct begins with it */

struct bn_load_ops {
    const char *name, *summary, *example;
    const char *tables[BN_TABLES_MAX]; /* up to the first NULL; made in a cluster of one's own */
    const char *kinds[BN_KINDS_MAX];   /* of transactions, up to the first NULL */
    size_t size, worker_size, slot_size; /* of the load's own structs */
    const struct tl_option *options;     /* its own; what they set is static, with its default */
    uint32_t option_count;

    /* After the options: defaults, limits, sizes. Errors: CAIRN_E_CONFIG. */
    int (*setup)(struct bn_load *load);
    /* Bytes of the items that load() and the transactions will make, over all nodes: for the size
     * of the pools. */
    uint64_t (*bytes)(const struct bn_load *load);
    /* Put the initial state through `ctx` (as many transactions in flight as it allows). Tells its
     * progress with bn_progress(). */
    int (*load)(struct bn_load *load, struct cairn_ctx *ctx);
    int (*worker_init)(struct bn_load *load, void *worker, uint32_t number);
    void (*worker_end)(struct bn_load *load, void *worker);
    /* Draw the next transaction: its kind. `random`: bn_random(). */
    uint32_t (*draw)(struct bn_load *load, void *worker, uint64_t *random, void *slot);
    /* As for cairn_run(). BN_REFUSED: an outcome of the load (not enough money, a rollback that the
     * specification asks for): counted as such, done. */
    int (*body)(struct cairn_tx *tx, void *slot);
    /* It is over: committed, or refused. */
    void (*settle)(struct bn_load *load, void *worker, const void *slot, bool committed);
    /* What must hold now, read through `ctx`: sums, counts, consistency conditions, against the
     * ledgers of all workers. Counts how many conditions it checked. Errors: CAIRN_E_STATE with the
     * condition that does not hold, in words and figures. */
    int (*check)(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked);
    void (*end)(struct bn_load *load);
    const struct bn_target *targets; /* for --check; may be NULL */
    uint32_t target_count;
};
/* Of a call that there is nothing to do for (setup, worker_init, worker_end, end) NULL stands. */

#define BN_REFUSED 1

/* What --check judges: a figure (bn_figure() lists those that may have a target), in runs over this
 * fabric. */
struct bn_target {
    const char *figure, *fabric;
    double value;
    bool at_most; /* else: at least */
    uint32_t rtt_us; /* of the modelled network that it is for; 0: for none */
};

struct bn_load {
    const struct bn_load_ops *ops;
    uint32_t table[BN_TABLES_MAX]; /* ids, as in ops->tables */
    uint32_t threads, inflight, participants;
    uint64_t seed;
    const char *note; /* set by setup(): what every report must say of the run; NULL: nothing */
    void *const *worker; /* `threads` of them, during draw to check */
    const struct txn_config *config; /* from load() on: where keys lie (txn_config_shard) */
};

uint64_t bn_random(uint64_t *state);
/* In [0, n). */
uint64_t bn_below(uint64_t *state, uint64_t n);
void bn_progress(const struct bn_load *load, const char *what, uint64_t done, uint64_t all);

extern const struct bn_load_ops bn_micro, bn_ycsb, bn_smallbank, bn_tatp, bn_tpcc, bn_counter;

#endif
