/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_fsm.c: lookup in the transition table of txn_fsm.h. Invariants that the table holds, and its
 * test checks: RELEASE (an abort) cannot be reached from MARK or UNLOCK; COMMITTED of a transaction
 * that wrote is reached only through LOG and FLUSHED; final states have no way out.
 */
#include "txn/txn_fsm.h"

struct transition {
    uint8_t next; /* 1 + state; 0: none */
    uint8_t actions;
};

static const struct transition table[TXN_STATE_COUNT][TXN_EVENT_COUNT] = {
#define CN_X(s, e, n, a) \
    [TXN_STATE_##s][TXN_EVENT_##e] = {(uint8_t)(TXN_STATE_##n + 1), (uint8_t)(a)},
    TXN_TRANSITIONS(CN_X)
#undef CN_X
};

bool txn_fsm_step(
    enum txn_state state, enum txn_event event, enum txn_state *ret_state, unsigned *ret_actions)
{
    if ((unsigned)state >= TXN_STATE_COUNT || (unsigned)event >= TXN_EVENT_COUNT)
        return false;
    const struct transition *t = &table[state][event];
    if (t->next == 0)
        return false;
    *ret_state = (enum txn_state)(t->next - 1);
    *ret_actions = t->actions;
    return true;
}

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
