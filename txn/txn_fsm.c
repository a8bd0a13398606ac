/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_fsm.c: the transition table of txn_fsm.h, and names. Invariants that the table holds, and its
 * test checks: RELEASE (an abort) cannot be reached from MARK or UNLOCK; COMMITTED of a transaction
 * that wrote is reached only through LOG and FLUSHED; final states have no way out.
 */
#include "txn/txn_fsm.h"

const struct txn_transition txn_transitions[TXN_STATE_COUNT][TXN_EVENT_COUNT] = {
#define CN_X(s, e, n, a) \
    [TXN_STATE_##s][TXN_EVENT_##e] = {(uint8_t)(TXN_STATE_##n + 1), (uint8_t)(a)},
    TXN_TRANSITIONS(CN_X)
#undef CN_X
};

const char *txn_state_name(enum txn_state state)
{
    static const char *const names[] = {
#define CN_X(name) #name,
        TXN_STATES(CN_X)
#undef CN_X
    };
    return (unsigned)state < TXN_STATE_COUNT ? names[state] : "?";
}

const char *txn_event_name(enum txn_event event)
{
    static const char *const names[] = {
#define CN_X(name) #name,
        TXN_EVENTS(CN_X)
#undef CN_X
    };
    return (unsigned)event < TXN_EVENT_COUNT ? names[event] : "?";
}
