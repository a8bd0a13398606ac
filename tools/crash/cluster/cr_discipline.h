/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_discipline.h: the flush discipline (invariant I16), asserted in a run without any crash: what
 * somebody relies on must be in the guaranteed image at the moment when he does. That image is the
 * persistent shadow of a pool; what may also have persisted does not count.
 *
 * - COMMITTED is returned: each participant's shadow holds the whole record, or has passed it (R3).
 * - A record is called applied: what it wrote, but for the lock words, is in the shadow (R8).
 * - A lock word is raised to the version of a record: the shadow holds the record (R11), the
 *   object behind the word, and says that the record is applied (R8).
 * - A slot's position passes a record: the words that it wrote are released in the shadow (R9), and
 *   it is applied or has a tombstone (R10).
 * - A position is published: it is not beyond the one in the shadow (R4).
 *
 * It reads the pools with the shipped codec alone and knows no volatile state of the product.
 */
#ifndef CR_DISCIPLINE_H
#define CR_DISCIPLINE_H

#include "include/cairn/cairn.h"
#include "tools/sim/sim_pmem.h"

#define CR_DISCIPLINE_POOLS_MAX 16u

struct cr_discipline;

struct cr_discipline_stats {
    uint64_t acked;     /* acknowledgements looked at */
    uint64_t applied;   /* records that were called so */
    uint64_t released;  /* words that were raised by a record */
    uint64_t passed;    /* records that a position passed */
    uint64_t published; /* positions */
};

/* What is broken is a failure of the simulation. Owner: the caller keeps `sim` and the pools. */
struct cr_discipline *cr_discipline_new(struct sim *sim);
void cr_discipline_delete(struct cr_discipline **discipline);
/* Watch the stores to a node's pool, formatted, its superblock at super_off: before the node is
 * started. At most CR_DISCIPLINE_POOLS_MAX. */
void cr_discipline_watch(
    struct cr_discipline *discipline, struct sim_pool *pool, uint64_t super_off);
/*
 * Around a commit. `before`: the token of the context's last transaction, so that one that logs
 * nothing is told from it. After cairn_commit() has returned COMMITTED, and before anything else
 * happens; false: something is broken. `cluster`: as configured.
 */
void cr_discipline_before(struct cairn_ctx *ctx, char before[CAIRN_TOKEN_SIZE]);
bool cr_discipline_acked(struct cr_discipline *discipline, struct cairn_ctx *ctx,
    const struct cn_uuid *cluster, const char before[CAIRN_TOKEN_SIZE]);
const struct cr_discipline_stats *cr_discipline_stats(const struct cr_discipline *discipline);

#endif
