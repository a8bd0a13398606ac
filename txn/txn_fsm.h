/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_fsm.h: the commit state machine of the coordinator, pure: no I/O, no clock, no memory. The
 * driver (txn_commit.c) carries the actions out and turns their results into the next event.
 *
 * One table holds every legal transition: state, event, next state, action. Anything else is a
 * programming error, which txn_fsm_step() answers with false. docs/commit-protocol.md is written
 * from the table.
 */
#ifndef TXN_FSM_H
#define TXN_FSM_H

#include <stdbool.h>
#include <stdint.h>

#define TXN_STATES(X)                                                                              \
    X(ACTIVE)    /* reads, locks of get_for_update, buffered writes */                             \
    X(DOOMED)    /* a call failed: locks are gone, only abort and commit (= aborted) are left */   \
    X(PREPARE)   /* places, blocks, ring space */                                                  \
    X(LOCK)      /* step 1 */                                                                      \
    X(VALIDATE)  /* step 2 */                                                                      \
    X(LOG)       /* step 3; from the first record posted only FLUSHED or CUT can follow */         \
    X(MARK)      /* step 4: committed; marks are being posted */                                   \
    X(CHECK)     /* read-only: validation */                                                       \
    X(UNLOCK)    /* read-only: committed; words locked and not written are being given back */     \
    X(RELEASE)   /* aborted: acquired locks are being released */                                  \
    X(COMMITTED) X(ABORTED) X(UNKNOWN)

#define TXN_EVENTS(X)                                                                              \
    X(COMMIT_PROVEN) /* commit asked; nothing written, what was read proves itself */              \
    X(COMMIT_READ)   /* commit asked; nothing written, reads to validate */                        \
    X(COMMIT_WRITE)  /* commit asked; something written */                                         \
    X(ABORT)         /* abort asked */                                                             \
    X(PREPARED)                                                                                    \
    X(LOCKED)        /* all lock replies in, all acquired */                                       \
    X(VALIDATED)                                                                                   \
    X(FLUSHED)       /* all flushes completed */                                                   \
    X(MARKED)                                                                                      \
    X(RELEASED)                                                                                    \
    X(FAILED)        /* conflict or error, and no record was posted anywhere */                    \
    X(CUT)           /* a record was posted and not every flush is known to have completed */

enum txn_state {
#define CN_X(name) TXN_STATE_##name,
    TXN_STATES(CN_X)
#undef CN_X
    TXN_STATE_COUNT,
};
enum txn_event {
#define CN_X(name) TXN_EVENT_##name,
    TXN_EVENTS(CN_X)
#undef CN_X
    TXN_EVENT_COUNT,
};

enum txn_action {
    TXN_ACT_NONE = 0,
    TXN_ACT_PREPARE = 1,
    TXN_ACT_LOCK = 2,
    TXN_ACT_VALIDATE = 4,
    TXN_ACT_LOG = 8,
    TXN_ACT_MARK = 16,
    TXN_ACT_RELEASE = 32, /* release what is known acquired and not logged */
    TXN_ACT_FINISH = 64,  /* the outcome is final */
};

/* The table: X(state, event, next, actions). */
#define TXN_TRANSITIONS(X)                                                                         \
    X(ACTIVE, COMMIT_PROVEN, UNLOCK, TXN_ACT_RELEASE)                                              \
    X(ACTIVE, COMMIT_READ, CHECK, TXN_ACT_VALIDATE)                                                \
    X(ACTIVE, COMMIT_WRITE, PREPARE, TXN_ACT_PREPARE)                                              \
    X(ACTIVE, ABORT, RELEASE, TXN_ACT_RELEASE)                                                     \
    X(ACTIVE, FAILED, DOOMED, TXN_ACT_RELEASE)                                                     \
    X(DOOMED, RELEASED, DOOMED, TXN_ACT_NONE)                                                      \
    X(DOOMED, COMMIT_PROVEN, ABORTED, TXN_ACT_FINISH)                                              \
    X(DOOMED, COMMIT_READ, ABORTED, TXN_ACT_FINISH)                                                \
    X(DOOMED, COMMIT_WRITE, ABORTED, TXN_ACT_FINISH)                                               \
    X(DOOMED, ABORT, ABORTED, TXN_ACT_FINISH)                                                      \
    X(PREPARE, PREPARED, LOCK, TXN_ACT_LOCK)                                                       \
    X(PREPARE, FAILED, RELEASE, TXN_ACT_RELEASE)                                                   \
    X(LOCK, LOCKED, VALIDATE, TXN_ACT_VALIDATE)                                                    \
    X(LOCK, FAILED, RELEASE, TXN_ACT_RELEASE)                                                      \
    X(VALIDATE, VALIDATED, LOG, TXN_ACT_LOG)                                                       \
    X(VALIDATE, FAILED, RELEASE, TXN_ACT_RELEASE)                                                  \
    X(LOG, FLUSHED, MARK, TXN_ACT_MARK)                                                            \
    X(LOG, FAILED, RELEASE, TXN_ACT_RELEASE)                                                       \
    X(LOG, CUT, UNKNOWN, TXN_ACT_FINISH)                                                           \
    X(MARK, MARKED, COMMITTED, TXN_ACT_FINISH)                                                     \
    X(CHECK, VALIDATED, UNLOCK, TXN_ACT_RELEASE)                                                   \
    X(CHECK, FAILED, RELEASE, TXN_ACT_RELEASE)                                                     \
    X(UNLOCK, RELEASED, COMMITTED, TXN_ACT_FINISH)                                                 \
    X(RELEASE, RELEASED, ABORTED, TXN_ACT_FINISH)

static inline bool txn_state_is_final(enum txn_state s)
{
    return s == TXN_STATE_COMMITTED || s == TXN_STATE_ABORTED || s == TXN_STATE_UNKNOWN;
}

struct txn_transition {
    uint8_t next; /* 1 + state; 0: none */
    uint8_t actions;
};
extern const struct txn_transition txn_transitions[TXN_STATE_COUNT][TXN_EVENT_COUNT];

/* False: no such transition; the outputs are untouched. */
static inline bool txn_fsm_step(
    enum txn_state state, enum txn_event event, enum txn_state *ret_state, unsigned *ret_actions)
{
    if ((unsigned)state >= TXN_STATE_COUNT || (unsigned)event >= TXN_EVENT_COUNT)
        return false;
    const struct txn_transition *t = &txn_transitions[state][event];
    if (t->next == 0)
        return false;
    *ret_state = (enum txn_state)(t->next - 1);
    *ret_actions = t->actions;
    return true;
}
const char *txn_state_name(enum txn_state state);
const char *txn_event_name(enum txn_event event);

#endif
