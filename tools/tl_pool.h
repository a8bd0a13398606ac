/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_pool.h: a read-only look into a pool, as JSON; used by `cairn inspect` and by the demo's last
 * check.
 */
#ifndef TL_POOL_H
#define TL_POOL_H

#include "recovery/rec_offline.h"
#include "tools/tl.h"

#define TL_POOL_TEXTS_MAX 100u /* errors and damages listed; more are only counted */

struct tl_pool_look {
    uint64_t records; /* in rings, above the applied position */
    uint64_t in_doubt;
    uint64_t errors; /* corrupt slots, records, ... */
    uint64_t in_use; /* the process that has the pool open: what it changes may look like damage */
    bool checked;
    struct pm_fsck_report fsck;
};

/*
 * Look at a pool; with `check` also fsck. *ret_json may be NULL (wanted: pass a place). Changes no
 * byte. Errors: those of pm_pool_open(READ_ONLY), of reading the index roots, -ENOMEM.
 */
CN_MUST_CHECK int tl_pool_look(
    const char *path, bool check, struct tl_pool_look *ret, json_t **ret_json);

#endif
