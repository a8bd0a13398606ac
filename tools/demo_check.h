/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_check.h: decide the fate of every transaction from the ledgers and the final state, exactly.
 *
 * A value names the attempt that wrote it; the attempt's entry names what it replaced. So each key
 * has one chain, from its final value back to the loader's, and what is on the chain took effect:
 * - every acknowledged commit must be on the chains of all keys it wrote (else lost), no aborted
 * attempt on any (else a ghost), one without outcome on all or none (else torn; and as its token's
 * verdict says);
 * - each link must fit: count one less, the balance read equal to the balance written (else a lost
 * update). Transactions that only read must have seen all or nothing of each transaction (else
 * fractured).
 */
#ifndef DEMO_CHECK_H
#define DEMO_CHECK_H

#include "tools/demo_ledger.h"

struct dc_input {
    const struct dl *ledger; /* ledger[i] is of writer i + 1; header NULL: not used */
    uint32_t ledger_count;
    const struct sb_value *final; /* by key */
    const uint8_t *present;       /* by key */
    uint32_t key_count;
    int64_t initial_balance;                        /* of each key */
    void (*violation)(void *arg, const char *text); /* may be NULL; each one */
    void *arg;
};

struct dc_result {
    uint64_t committed, aborted,
        unknown;       /* as the coordinators saw it; unknown: without outcome too */
    uint64_t resolved; /* of the unknown: fate decided */
    uint64_t resolved_committed;
    uint64_t lost, torn, ghosts, lost_updates, fractured, wrong_verdicts, foreign_values;
    int64_t money, money_expected;
};

/* Errors: -ENOMEM. Violations are in the result. */
CN_MUST_CHECK int demo_check(const struct dc_input *input, struct dc_result *ret);
bool demo_check_is_good(const struct dc_result *result);

#endif
