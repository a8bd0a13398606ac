/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_scripts.h: bodies of clients (cr_setup.body) that bring about one situation which drawn
 * operations meet too seldom, or never: two clients at the same keys in lockstep, a process that
 * dies while it applies, a coordinator that does not keep to the protocol. With all rules in force
 * a script passes, whatever the seed.
 */
#ifndef CR_SCRIPTS_H
#define CR_SCRIPTS_H

#include "tools/crash/cluster/cr_cluster.h"

/* T13: two clients; each looks for the other's key and for its own, and inserts its own when it saw
 * neither. Never are both there. One node. */
void cr_script_twins(struct cr_client *client);
/* T1: client 1 moves a key that always exists to other blocks, whose old ones other keys take,
 * while client 0 stands still between two reads. One node. */
void cr_script_mover(struct cr_client *client);
/* R13: client 1 holds a lock, and client 0, which holds another, must not wait for it. */
void cr_script_holder(struct cr_client *client);
/* R4: more records than a ring and its window hold, while the node stands still. One node and
 * client, flushes by the NIC. */
void cr_script_burst(struct cr_client *client);
/* R6: a transaction of two nodes waits for one of them, while others, of the same context, log at
 * the other one. Two nodes, four clients in one group, which only gives it four in flight. */
void cr_script_relay(struct cr_client *client);
/* T5: writes, and the node's process dies while it applies them. One node and client. */
void cr_script_killer(struct cr_client *client);
/* Client 0 knows the formats and logs ... One client. */
void cr_script_unmarked(struct cr_client *client); /* R10: a record behind one that is undecided */
void cr_script_mismarked(struct cr_client *client); /* R5: one with the mark of another epoch */
void cr_script_gap(struct cr_client *client);      /* R14: a record behind a sequence of none */
void cr_script_hole(struct cr_client *client);     /* a record behind bytes that are none */
void cr_script_stranger(struct cr_client *client); /* R15: a record that names another's sequence */
void cr_script_forger(struct cr_client *client);   /* another record over one that was applied */

#endif
