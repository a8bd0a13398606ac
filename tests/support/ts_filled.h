/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_filled.h: one node's pool file, filled through the public API, for tests that damage it or
 * attack its node: with indexes, items of several sizes, dead blocks, retired epochs, and records
 * in its rings. Its image is kept, so that the file can be put back as it was. Keys that begin with
 * "v" (victims) are named by no record of the image. Failing to set it up aborts the test program.
 */
#ifndef TS_FILLED_H
#define TS_FILLED_H

#include "pmem/pm_store.h"
#include "recovery/rec_node.h"
#include "txn/txn_cluster.h"

#define TS_FILLED_VICTIMS 60u
#define TS_FILLED_SAMPLES_MAX 64u

struct ts_filled {
    char dir[64];
    struct cn_env env; /* the system's, without a log: much is said of damaged bytes */
    struct txn_config config;
    struct rd_fabric *fabric;
    uint8_t *image, *file; /* as filled; the file, mapped shared */
    uint64_t size;
    uint8_t *sample[TS_FILLED_SAMPLES_MAX]; /* records as they lie in the image's rings */
    uint32_t sample_size[TS_FILLED_SAMPLES_MAX], sample_count;
    bool serve_damaged; /* of the nodes that are opened */
    char damage[256]; /* the first that the last fsck found */
    uint64_t victims; /* order-independent hash over the victims' keys and values */
};

struct ts_filled *ts_filled_new(void);
void ts_filled_delete(struct ts_filled **filled);
/* The file as it was filled. No node may have it open. */
void ts_filled_restore(struct ts_filled *f);
/* Open the pool and its node, which is then turned by hand. */
CN_MUST_CHECK int ts_filled_open(
    struct ts_filled *f, struct pm_pool **ret_pool, struct rec_node **ret_node);
/* fsck of the file: its report, and the victims' hash. Returns what pm_pool_open() or pm_fsck()
 * say. */
CN_MUST_CHECK int ts_filled_fsck(
    struct ts_filled *f, struct pm_fsck_report *ret, uint64_t *ret_victims);

#endif
