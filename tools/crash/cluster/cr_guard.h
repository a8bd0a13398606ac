/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_guard.h: who may change which byte of a pool through the fabric (invariant I14), and until
 * when (I15), asserted at every store of every request, from the pools alone:
 *
 * - A write or a mark goes to the log of one ring, never to its header page or to ring 0, and a
 *   mark to the mark of a record.
 * - That ring's slot is open, and its owner is the session that the connection was made for. So a
 *   peer that was fenced, or whose slot has another owner by now, has no effect (a zombie).
 * - A compare-and-swap meets the place of a lock word in a chunk that has such; and a lock that a
 *   coordinator takes says its own slot, which is open.
 *
 * The fabric checks what was granted to a connection; this checks that what was granted is right.
 */
#ifndef CR_GUARD_H
#define CR_GUARD_H

#include "tools/sim/sim_fabric.h"

struct cr_guard;

struct cr_guard_stats {
    uint64_t stores; /* looked at */
    uint64_t places_logged; /* different places of a ring, in units of 64, at which a write began */
    uint64_t places;        /* that there are */
};

/* What is broken is a failure of the simulation. */
struct cr_guard *cr_guard_new(struct sim *sim);
void cr_guard_delete(struct cr_guard **guard);
/* Watch a node's pool, formatted: before anybody connects. */
void cr_guard_watch(struct cr_guard *guard, struct sim_pool *pool, uint64_t super_off);
void cr_guard_stats(const struct cr_guard *guard, struct cr_guard_stats *ret);

#endif
