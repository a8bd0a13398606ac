/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_run.h: one case of the closed set in a cluster of its own: the shipped nodes and
 * coordinators over the modelled fabric and the smallest pools there are.
 *
 * One client sets up, then all is left to settle; from there on every moment before bytes become
 * durable is looked at. Everything is determined by the case and the seed.
 */
#ifndef CR_ENUM_RUN_H
#define CR_ENUM_RUN_H

#include "recovery/rec_node.h"
#include "tools/crash/cluster/cr_discipline.h"
#include "tools/crash/explore/cr_enum_case.h"
#include "tools/crash/explore/cr_explore.h"
#include "txn/txn_cluster.h"

#define CR_SMALL_GROUPS_MAX 64u
#define CR_SMALL_VALUE_SIZE 16u
#define CR_SMALL_VALUE_LARGE 72u /* in a block of another class */
#define CR_SMALL_STILL_MAX 1024u

struct cr_small;

struct cr_small_node {
    struct cr_small *run;
    struct sim_actor *actor;
    struct sim_pool *pool;
    struct pm_pool pm_pool;
    struct rec_node *node;
    uint64_t super_off;
    /* A key that the case does not touch, and what it holds; it also moves the log's end. */
    char still[16];
    uint32_t still_size, still_round;
};

struct cr_small_client {
    struct cr_small *run;
    struct sim_actor *actor;
    struct cairn_ctx *ctx;
    uint32_t index;
    bool finished, dead;
};

struct cr_small_group { /* a record in a ring: words that count as a whole */
    uint32_t pool;
    uint64_t off, size, mark_off;
};

struct cr_small_steps { uint64_t images[CN_STEP_COUNT]; };

struct cr_small {
    struct sim sim;
    const struct cr_enum_options *options;
    const struct cr_case *c;
    struct txn_config config;
    struct cairn *cairn;
    struct cr_small_node node[CR_CASE_NODES];
    struct cr_small_client client[CR_CASE_CLIENTS];
    struct sim_pool *pool[CR_CASE_NODES];
    uint8_t turn[CR_CASE_NODES]; /* node of a participant */
    char key[CR_CASE_KEYS][16];
    struct cr_progress progress[CR_CASE_TXS];
    uint64_t clock;      /* of `progress` */
    uint32_t ready;      /* clients that are warm */
    bool exploring;
    uint64_t begin_ns;   /* when the transactions begin */
    uint64_t stamp;      /* of the pools at the last look */
    uint64_t salt;
    struct cr_explorer *explorer;
    struct cr_discipline *discipline;
    struct cr_small_group group[CR_SMALL_GROUPS_MAX];
    uint32_t group_count;
    struct cr_small_steps steps;
};

struct cr_small_result {
    bool failed, unable; /* unable: by the harness */
    char failure[CR_TEXT_MAX];
    struct cr_explore_stats explored;
    struct cr_small_steps steps;
    uint64_t passed[CN_STEP_COUNT]; /* named steps, by everybody, set-up included */
    uint64_t hash;                  /* of the run's choices and events */
    uint64_t committed, aborted, unknown, disciplined;
    struct cr_case c;
};

void cr_small_case(
    const struct cr_case *c, const struct cr_enum_options *options, struct cr_small_result *ret);

/* ---- between the files ---- */
/* Actors' functions (cr_enum_body.c). */
void cr_small_client_main(struct sim_actor *actor);
void cr_small_client_abandon(struct sim_actor *actor);
/* Bytes of a value; returns its size. */
uint32_t cr_small_value(const struct cr_small *run, uint32_t key, uint32_t id, uint8_t *ret);
uint32_t cr_small_still(const struct cr_small_node *node, uint8_t *ret);
/* All nodes have nothing to do. */
bool cr_small_is_quiet(const struct cr_small *run);
/* Looking (cr_enum_look.c): now, if anything has changed since the last time. */
void cr_small_look(struct cr_small *run, const char *what);
void cr_small_watch(struct cr_small *run);
bool cr_small_look_open(struct cr_small *run);
void cr_small_look_close(struct cr_small *run);

#endif
