/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_offline.h: `cairn recover`: recovery of all pools of a cluster while no node runs: resolves
 * what is in doubt across them by the same find-or-prevent code, replays, reports. Also a read-only
 * look at one pool.
 */
#ifndef REC_OFFLINE_H
#define REC_OFFLINE_H

#include "pmem/pm_store.h"
#include "rdma/rd.h"
#include "rdma/rd_wire.h"

struct rec_report_pool {
    const char *path;
    uint16_t node;
    struct cn_uuid pool, cluster;
    uint64_t incarnation;
    bool was_clean;
    uint64_t records_found, marked, replayed, releases_redone, tombstoned, in_doubt;
    int error; /* 0, or why this pool could not be recovered; `text` */
    char text[256];
};
struct rec_report_tx { /* a transaction that was in doubt */
    struct cn_txid txid;
    uint16_t node, slot; /* where it was found first */
    uint64_t epoch, seq;
    uint32_t participants, present, missing; /* missing: participants whose pool was not given */
    enum rd_verdict verdict; /* COMMITTED, ABORTED, IN_DOUBT */
};
struct rec_offline_options {
    const struct cn_env *env;
    struct rd_fabric *fabric; /* cuts off what a stopped coordinator may still write (emu); NULL:
                               * one that is made for it, where pools are opened here; else none */
    bool dry_run;          /* change no byte: say what would be done */
    void (*progress)(void *arg, const char *text); /* may be NULL; at most about once per second */
    void (*transaction)(void *arg, const struct rec_report_tx *tx); /* may be NULL */
    void *arg;
};
/*
 * Recover `count` pools together. reports[i] belongs to paths[i]. Pools that cannot be opened are
 * reported and the rest is recovered as far as it can be without them; their transactions stay in
 * doubt. Returns 0 when nothing stayed in doubt and every pool could be opened, else the first
 * error (CAIRN_E_IN_DOUBT, ...). Errors besides: CAIRN_E_WRONG_CLUSTER (pools of two clusters),
 * _WRONG_NODE (one node twice).
 */
CN_MUST_CHECK int rec_offline(const struct rec_offline_options *options, const char *const *paths,
    uint32_t count, struct rec_report_pool *reports);
/*
 * The same over pools that are open already as owner (dry run: read-only), or memory images
 * (pm_attach()): they are neither closed nor noted clean elsewhere than in themselves. For the
 * harness, which recovers many images: `look`, unless NULL, is called at the end while the stores
 * are still open, and only when all is well (0 is returned) and it was no dry run. Then `count` is
 * at most REC_OFFLINE_LOOK_MAX.
 */
#define REC_OFFLINE_LOOK_MAX 64u
CN_MUST_CHECK int rec_offline_pools(const struct rec_offline_options *options,
    struct pm_pool *const *pools, uint32_t count, struct rec_report_pool *reports,
    void (*look)(void *arg, struct pm_store *const *stores), void *arg);

/* ---- a read-only look (cairn inspect): changes no byte ---- */
struct rec_look_record {
    struct pm_record record; /* valid during the callback */
    bool marked, applied, tombstone;
};
struct rec_look {
    void *arg;
    void (*slot)(void *arg, const struct pm_slot *slot, uint32_t records, uint32_t unmarked);
    void (*record)(void *arg, const struct pm_slot *slot, const struct rec_look_record *record);
    void (*retired)(void *arg, const struct pm_retired *retired);
    void (*error)(void *arg, int error, const char *text); /* corrupt slot header, record, ... */
};
CN_MUST_CHECK int rec_look_at(struct pm_pool *pool, const struct rec_look *look);

#endif
