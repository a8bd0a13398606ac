/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bt_cairn.h: the public calls that a benchmark load uses, over a table in memory, so that loads
 * are tested without a cluster: one transaction at a time, limits as in cairn.h. A test can lose a
 * committed write. And a load that runs on it. Failing to set it up aborts the test program.
 */
#ifndef BT_CAIRN_H
#define BT_CAIRN_H

#include "tools/bench/bn_load.h"

struct bt_load {
    struct bn_load *load;
    struct cairn_ctx *ctx;
    void *worker[2], *slot;
    uint64_t random, progress; /* calls of bn_progress() */
    int rc;                    /* of the last body */
    bool committed;            /* the last transaction */
};

/* Set an option as the command line would. */
void bt_option(const struct bn_load_ops *ops, const char *name, uint64_t value);
/* What setup() says; nothing stays. */
int bt_setup(const struct bn_load_ops *ops);
/* Set up and loaded, with two workers. */
struct bt_load *bt_load_new(const struct bn_load_ops *ops);
void bt_load_delete(struct bt_load **load);
/* Draw, run and settle one transaction of a worker; returns its kind. */
uint32_t bt_load_step(struct bt_load *load, uint32_t worker);
/* Steps until one of `kind` has committed, which was of worker 0: ->slot is its. */
void bt_load_until(struct bt_load *load, uint32_t kind);
/* What check() says, and how many conditions it checked; 0 if it failed. */
int bt_load_check(struct bt_load *load, uint64_t *ret_checked);

/* The next committed write to the table with this index is lost. */
void bt_lose(struct bt_load *load, uint32_t table);
/* All of it: how many keys a table has; the value of one (NULL: no such key), which may be
 * changed. */
uint64_t bt_count(const struct bt_load *load, uint32_t table);
void *bt_value(
    struct bt_load *load, uint32_t table, const void *key, size_t key_size, size_t *ret_size);
/* Take a key away. */
void bt_delete(struct bt_load *load, uint32_t table, const void *key, size_t key_size);
/* The most keys that a transaction has had. */
uint32_t bt_keys_max(const struct bt_load *load);

#endif
