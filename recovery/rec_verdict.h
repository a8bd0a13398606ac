/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_verdict.h: find or prevent at one participant, and the verdict over all: the same code for a
 * node that serves and for recovery offline. Pure but for what it persists through txn_part and the
 * fence it asks for.
 */
#ifndef REC_VERDICT_H
#define REC_VERDICT_H

#include "rdma/rd_wire.h"
#include "txn/txn_part.h"

struct rec_finder { /* one participant */
    uint16_t node;
    struct txn_part *part;
    const struct pm_retired_table *retired;
    void *arg;
    /* End the slot's epoch (R14) and read its ring. Nothing is said about a slot that cannot be
     * sealed. */
    int (*fence)(void *arg, uint16_t slot);
};

/*
 * What this participant says about a place. COMMITTED, ABORTED, PRESENT rest on durable facts only;
 * FORGOTTEN: the place is not known (any more), never a verdict; IN_DOUBT: its record is there and
 * damaged; NONE: it cannot be said now.
 */
enum rd_verdict rec_find(const struct rec_finder *finder, const struct rd_place_wire *place);

/* The place of participant i of a record. */
void rec_participant_place(const struct pm_record *record, uint32_t i, struct rd_place_wire *ret);
bool rec_is_same_tx(const struct txn_entry *entry, const struct rd_place_wire *place);

/* The verdict over `count` answers (enum rd_verdict): COMMITTED, ABORTED, or NONE while it is open.
 * *ret_contradiction: one says committed and another aborted, which only corruption can make. */
enum rd_verdict rec_verdict_of(const uint8_t *answers, uint32_t count, bool *ret_contradiction);

#endif
