/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_stand_internal.h: a stand's cluster in one simulation, between cr_stand.c, which makes the
 * pools, and cr_stand_try.c, which tries variants of them.
 */
#ifndef CR_STAND_INTERNAL_H
#define CR_STAND_INTERNAL_H

#include "include/cairn/cairn.h"
#include "tools/crash/faults/cr_stand.h"

struct cr_guard;
struct rec_node;

struct cr_stand_cluster { /* one simulation */
    struct sim sim;
    struct cr_stand *stand; /* being made; else NULL */
    const struct cr_stand *truth;
    const struct cr_stand_variant *variant;
    struct cr_stand_outcome *outcome;
    struct txn_config config;
    struct cairn *cairn;
    struct cr_guard *guard; /* while an attacker is about */
    struct cr_stand_node {
        struct cr_stand_cluster *cluster;
        struct sim_actor *actor;
        struct sim_pool *pool;
        struct pm_pool pm_pool;
        struct rec_node *node;
        uint32_t at;
    } node[CR_STAND_NODES];
    struct cr_stand_client {
        struct cr_stand_cluster *cluster;
        struct sim_actor *actor;
        struct cairn_ctx *ctx;
        bool finished;
    } client, other, dier;
    uint32_t next_value;
    bool closing;
    struct cr_stand_start start;
    uint8_t buf[CR_STAND_VALUE_MAX], expected[CR_STAND_VALUE_MAX];
};

struct cr_stand_change { uint32_t count, key[4], value[4]; }; /* value 0: deleted */

/* What an actor asked for, before its heap is gone. */
void cr_stand_note_heap(struct cr_stand_cluster *c, const struct sim_actor *actor);
/* An empty pool, formatted, or one of given bytes. */
void cr_stand_node_new(struct cr_stand_cluster *c, uint32_t i, const uint8_t *bytes);
CN_MUST_CHECK int cr_stand_open_ctx(struct cr_stand_client *client);
void cr_stand_client_new(struct cr_stand_cluster *c, struct cr_stand_client *client,
    const char *name, void (*main)(struct sim_actor *));
/* One transaction, once or until it is committed. 0: it is. */
CN_MUST_CHECK int cr_stand_change_once(
    struct cr_stand_client *client, const struct cr_stand_change *change);
int cr_stand_change_keys(
    struct cr_stand_client *client, const struct cr_stand_change *change);
/* Two keys of each node, to be changed by somebody who dies between the two records. */
struct cr_stand_change cr_stand_pick_both(const struct cr_stand *stand, uint32_t value);
void cr_stand_plan_death(struct cr_stand_cluster *c, const struct sim_actor *actor);
struct cr_stand_cluster *cr_stand_cluster_new(uint64_t seed);
void cr_stand_open_cluster(struct cr_stand_cluster *c);
void cr_stand_cluster_delete(struct cr_stand_cluster *c);

#endif
