/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rules.h: rules of the protocol, asserted at the moment when somebody keeps or breaks them, in
 * any run, whether something crashes later or not. Where cr_discipline.h asks whether what is
 * relied on is durable when a node applies, this asks of what peers write, nodes say and locks
 * become:
 *
 * - A record, as it comes in: its sequence and its end are inside of the window and the ring that
 *   the slot's position leaves free (R4); a sequence has one transaction, also one that was named
 *   by a token and never logged (R15); its bytes are its peer's own while they are on their way
 *   (R6).
 * - A mark, as it comes in: its record stands there (R4).
 * - An answer: PRESENT of a record that is durable here (R11) and is that transaction's (R15);
 *   ABORTED when a tombstone or the closing sequence says so durably (R8, R14).
 * - A slot is closed: every sequence up to the closing one has a record or a tombstone (R14).
 * - A lock word is stored by a node: it is given back at its version only when no record without a
 *   durable tombstone wants to raise it (R8), not taken or raised for a record with one (R12), and
 *   not raised above the version of its object.
 *
 * It reads the pools with the shipped codec alone and knows no volatile state of the product.
 */
#ifndef CR_RULES_H
#define CR_RULES_H

#include "include/cairn/cairn.h"
#include "tools/sim/sim_fabric.h"

struct cr_rules;

/* What is broken is a failure of the simulation. Behind cr_guard_new(), and deleted before it.
 * Owner: the caller keeps `sim`, its fabric and the pools. */
struct cr_rules *cr_rules_new(struct sim *sim);
void cr_rules_delete(struct cr_rules **rules);
/* A node's pool, formatted: before the node is started. */
void cr_rules_watch(struct cr_rules *rules, struct sim_pool *pool, uint64_t super_off);
/* cairn_tx_token() gave this. `rules` may be NULL. */
void cr_rules_token(struct cr_rules *rules, const struct cn_uuid *cluster,
    const char token[CAIRN_TOKEN_SIZE]);

#endif
