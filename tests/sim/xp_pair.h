/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xp_pair.h: two participants with the smallest pools there can be, in modelled memory, without a
 * simulated run: the test is coordinator and fabric. One key each, which a transaction over both
 * writes; whoever looks is told before anything becomes durable.
 */
#ifndef XP_PAIR_H
#define XP_PAIR_H

#include "tools/crash/explore/cr_explore.h"
#include "txn/txn_part.h"

#define XP_POOLS 2u
#define XP_SLOT 1u
#define XP_TABLE 1u

struct xp_node {
    struct xp_pair *pair;
    struct sim_pool *pool;
    struct pm_pool pm_pool;
    struct txn_part part;
    struct pm_store *store;
    uint64_t log_off, seq;
    uint64_t bucket, item, base; /* places of the key; its version */
    uint32_t record_size;        /* of the transaction under way */
    uint64_t record_at;          /* pool offset */
};

struct xp_pair {
    struct cn_env env;
    uint64_t random;
    struct xp_node node[XP_POOLS];
    struct sim_pool *pool[XP_POOLS]; /* the same pools */
    uint64_t value;      /* of both keys, before the transaction under way, or after it */
    uint64_t next;       /* what it writes */
    bool acknowledged;   /* COMMITTED was returned */
    bool decided;        /* ABORTED was returned */
    struct cr_explorer *explorer;
    bool failed;         /* of any exploration */
    bool watching;       /* explore before anything becomes durable */
};

extern const struct pm_geometry xp_geometry;

/* Pools with the key at value 1. */
void xp_begin(struct xp_pair *p);
void xp_end(struct xp_pair *p);
/* Look from here on, with these options; env, check and expectation are the pair's. */
void xp_watch(struct xp_pair *p, struct cr_explore_options options);
/* Power fails now. */
bool xp_explore(struct xp_pair *p, const char *step);

/* One step of a transaction each. */
void xp_lock(struct xp_pair *p);
void xp_log(struct xp_pair *p, uint32_t node);
void xp_flush(struct xp_pair *p, uint32_t node);
void xp_acknowledge(struct xp_pair *p);
void xp_mark(struct xp_pair *p, uint32_t node);
/* The node polls and applies until nothing is left. */
void xp_apply(struct xp_pair *p, uint32_t node);
/* Find that the other one has no record: the node cuts the ring off and prevents. */
void xp_prevent(struct xp_pair *p, uint32_t node);
/* All of them; power may fail at each. */
void xp_transaction(struct xp_pair *p);

#endif
