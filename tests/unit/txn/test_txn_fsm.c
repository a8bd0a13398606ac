/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the commit state machine is the table, and the table keeps the protocol's promises.
 * Method: every state with every event; then walks over all paths.
 * Invariants: nothing leads out of a final state; a transaction that wrote commits only through LOG
 * and FLUSHED; nothing aborts after FLUSHED; no record before VALIDATED.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "txn/txn_fsm.h"

struct row {
    enum txn_state state;
    enum txn_event event;
    enum txn_state next;
    unsigned actions;
};

static const struct row rows[] = {
#define CN_X(s, e, n, a) {TXN_STATE_##s, TXN_EVENT_##e, TXN_STATE_##n, (a)},
    TXN_TRANSITIONS(CN_X)
#undef CN_X
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void step__every_state_and_event__as_the_table(void **state)
{
    unsigned legal = 0;

    (void)state;
    for (unsigned s = 0; s < TXN_STATE_COUNT; s++) {
        for (unsigned e = 0; e < TXN_EVENT_COUNT; e++) {
            const struct row *row = NULL;
            enum txn_state next = TXN_STATE_COUNT;
            unsigned actions = 12345;
            for (unsigned i = 0; i < ROWS; i++) {
                if (rows[i].state == s && rows[i].event == e) {
                    assert_null(row); /* a transition stands once */
                    row = &rows[i];
                }
            }
            bool ok = txn_fsm_step((enum txn_state)s, (enum txn_event)e, &next, &actions);
            assert_int_equal(ok, row != NULL);
            assert_int_equal(next, row == NULL ? TXN_STATE_COUNT : row->next);
            assert_int_equal(actions, row == NULL ? 12345 : row->actions);
            legal += ok;
        }
    }
    assert_int_equal(legal, ROWS);
}

static void step__out_of_range__refused(void **state)
{
    enum txn_state next = TXN_STATE_ACTIVE;
    unsigned actions = 7;

    (void)state;
    assert_false(txn_fsm_step(TXN_STATE_COUNT, TXN_EVENT_ABORT, &next, &actions));
    assert_false(txn_fsm_step(TXN_STATE_ACTIVE, TXN_EVENT_COUNT, &next, &actions));
    assert_int_equal(actions, 7);
    assert_string_equal(txn_state_name(TXN_STATE_COUNT), "?");
    assert_string_equal(txn_state_name(TXN_STATE_LOG), "LOG");
    assert_string_equal(txn_event_name(TXN_EVENT_CUT), "CUT");
    assert_string_equal(txn_event_name(TXN_EVENT_COUNT), "?");
}

static void step__final_states__no_way_out(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROWS; i++) {
        assert_false(txn_state_is_final(rows[i].state));
        /* exactly the way into a final state finishes */
        assert_int_equal(txn_state_is_final(rows[i].next), (rows[i].actions & TXN_ACT_FINISH) != 0);
    }
}

/* Walk every path; `seen` holds what happened on the way. */
enum { LOCKED = 1, VALIDATED = 2, LOGGED = 4, FLUSHED = 8, WRITES = 16, LOG_STARTED = 32 };
static unsigned ends;

static void walk(enum txn_state at, unsigned seen, unsigned depth)
{
    if (txn_state_is_final(at)) {
        ends++;
        if (at == TXN_STATE_COMMITTED && (seen & WRITES))
            assert_int_equal(seen & (LOCKED | VALIDATED | FLUSHED), LOCKED | VALIDATED | FLUSHED);
        if (at == TXN_STATE_ABORTED)
            assert_int_equal(seen & FLUSHED, 0);
        if (at == TXN_STATE_UNKNOWN)
            assert_int_equal(seen & (LOG_STARTED | FLUSHED), LOG_STARTED);
        return;
    }
    assert_true(depth < 16);
    for (unsigned e = 0; e < TXN_EVENT_COUNT; e++) {
        enum txn_state next;
        unsigned actions, now = seen;
        if (!txn_fsm_step(at, (enum txn_event)e, &next, &actions))
            continue;
        if (next == at)
            continue; /* DOOMED rests */
        now |= e == TXN_EVENT_COMMIT_WRITE && at == TXN_STATE_ACTIVE ? WRITES : 0;
        now |= e == TXN_EVENT_LOCKED ? LOCKED : 0;
        now |= e == TXN_EVENT_VALIDATED ? VALIDATED : 0;
        now |= e == TXN_EVENT_FLUSHED ? FLUSHED : 0;
        if (actions & TXN_ACT_LOG) { /* R1 */
            assert_int_equal(now & (LOCKED | VALIDATED), LOCKED | VALIDATED);
            now |= LOG_STARTED;
        }
        if (actions & TXN_ACT_MARK) /* R3 */
            assert_int_equal(now & FLUSHED, FLUSHED);
        if (actions & TXN_ACT_VALIDATE &&
            (now & WRITES)) /* validation comes after all lock replies */
            assert_int_equal(now & LOCKED, LOCKED);
        walk(next, now, depth + 1);
    }
}

static void step__all_paths__keep_the_rules(void **state)
{
    (void)state;
    ends = 0;
    walk(TXN_STATE_ACTIVE, 0, 0);
    assert_true(ends >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__every_state_and_event__as_the_table),
        cmocka_unit_test(step__out_of_range__refused),
        cmocka_unit_test(step__final_states__no_way_out),
        cmocka_unit_test(step__all_paths__keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
