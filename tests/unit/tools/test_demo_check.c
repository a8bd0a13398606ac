/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the demo's checker passes what is right and finds every kind of planted damage.
 * Method: run SmallBank over an array in memory with two ledgers, in one thread, leaving some
 * attempts without outcome; then plant one fault into the state or a ledger and expect its counter,
 * and no pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/demo_check.h"

#define ACCOUNTS 20u
#define KEYS (2 * ACCOUNTS)
#define ATTEMPTS 1200u
#define WRITERS 2u

struct world {
    struct sb_value value[KEYS];
    uint8_t present[KEYS];
    struct dl_header *header[WRITERS];
    struct dl_entry *entry[WRITERS];
    struct dl ledger[WRITERS + 1]; /* the last is not used */
    struct dc_input input;
};

enum fate { FATE_COMMIT, FATE_ABORT, FATE_KILLED_BEFORE, FATE_KILLED_AFTER, FATE_COUNT };

static void take_effect(struct world *w, uint32_t writer, const struct dl_entry *e)
{
    for (uint32_t i = 0; i < e->touch_count; i++) {
        if ((e->touch[i].key & SB_WRITTEN) != 0)
            w->value[e->touch[i].key & ~SB_WRITTEN] = (struct sb_value){
                e->touch[i].new_balance, writer, e->number, e->touch[i].prev_count + 1};
    }
}

static void run_one(struct world *w, uint32_t writer, uint64_t *random)
{
    struct dl_entry *e = dl_next(&w->ledger[writer - 1]);
    struct sb_plan plan;

    assert_non_null(e);
    sb_draw(random, ACCOUNTS, &plan);
    e->kind = (uint8_t)plan.kind;
    e->touch_count = (uint8_t)sb_touches(&plan, e->touch);
    for (uint32_t i = 0; i < e->touch_count; i++) {
        const struct sb_value *v = &w->value[e->touch[i].key & ~SB_WRITTEN];
        e->touch[i].prev_writer = v->writer;
        e->touch[i].prev_number = v->number;
        e->touch[i].prev_count = (uint32_t)v->count;
        e->touch[i].old_balance = v->balance;
    }
    if (!sb_apply(&plan, e->touch, e->touch_count, &e->delta)) {
        dl_set(e, DL_ABORTED);
        return;
    }
    uint64_t dice = sb_random(random) % 10;
    enum fate fate = dice < 6 ? FATE_COMMIT : (enum fate)(dice - 6);
    if (fate == FATE_COMMIT || fate == FATE_KILLED_AFTER)
        take_effect(w, writer, e);
    dl_set(e, fate == FATE_COMMIT ? DL_COMMITTED : fate == FATE_ABORT ? DL_ABORTED : DL_INTENDED);
}

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    uint64_t random = 1; /* draws all that the cases look for */

    for (uint32_t key = 0; key < KEYS; key++) {
        w->value[key].balance = SB_INITIAL_BALANCE;
        w->present[key] = 1;
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        w->ledger[i].header = calloc(1, sizeof(struct dl_header));
        w->ledger[i].entry = calloc(ATTEMPTS, sizeof(struct dl_entry));
        w->ledger[i].header->writer = i + 1;
        w->ledger[i].header->entry_max = ATTEMPTS;
    }
    for (uint32_t i = 0; i < ATTEMPTS; i++)
        run_one(w, 1 + i % WRITERS, &random);
    w->input = (struct dc_input){
        w->ledger, WRITERS + 1, w->value, w->present, KEYS, SB_INITIAL_BALANCE, NULL, NULL};
    *state = w;
    return 0;
}

static int free_world(void **state)
{
    struct world *w = *state;

    for (uint32_t i = 0; i < WRITERS; i++) {
        free(w->ledger[i].header);
        free(w->ledger[i].entry);
    }
    free(w);
    return 0;
}

static struct dc_result check(struct world *w)
{
    struct dc_result r;

    assert_int_equal(demo_check(&w->input, &r), 0);
    return r;
}

/* The last entry on some key's chain that fits; its key in *ret_key. */
static struct dl_entry *find(struct world *w, uint8_t state, uint32_t writes, uint32_t *ret_key)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        if (w->value[key].writer == 0)
            continue;
        struct dl_entry *e = &w->ledger[w->value[key].writer - 1].entry[w->value[key].number - 1];
        uint32_t n = 0;
        for (uint32_t i = 0; i < e->touch_count; i++)
            n += (e->touch[i].key & SB_WRITTEN) != 0;
        if (e->state == state && n == writes) {
            *ret_key = key;
            return e;
        }
    }
    fail_msg("no such entry in this history");
    return NULL;
}

/* Put a key back to what was before its last writer. */
static void undo(struct world *w, uint32_t key)
{
    const struct sb_value *v = &w->value[key];
    const struct dl_entry *e = &w->ledger[v->writer - 1].entry[v->number - 1];

    for (uint32_t i = 0; i < e->touch_count; i++) {
        const struct sb_touch *t = &e->touch[i];
        if (t->key == (key | SB_WRITTEN)) {
            w->value[key] = (struct sb_value){
                t->old_balance, t->prev_writer, t->prev_number, t->prev_count};
            return;
        }
    }
}

static void demo_check__right_history__passes(void **state)
{
    struct dc_result r = check(*state);

    assert_true(demo_check_is_good(&r));
    assert_true(r.committed > 200 && r.aborted > 30 && r.unknown > 50);
    assert_int_equal(r.resolved, r.unknown);
    assert_true(r.resolved_committed > 10 && r.resolved_committed < r.unknown);
    assert_int_equal(r.money, r.money_expected);
}

static void demo_check__acknowledged_commit_undone__lost(void **state)
{
    uint32_t key;

    (void)find(*state, DL_COMMITTED, 1, &key);
    undo(*state, key);
    struct dc_result r = check(*state);
    assert_int_equal(r.lost, 1);
    assert_int_not_equal(r.money, r.money_expected);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__half_of_a_commit_undone__lost_and_torn(void **state)
{
    uint32_t key;

    (void)find(*state, DL_COMMITTED, 2, &key);
    undo(*state, key);
    struct dc_result r = check(*state);
    assert_int_equal(r.lost, 1);
    assert_int_equal(r.torn, 1);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__half_of_an_unknown__torn(void **state)
{
    uint32_t key;

    (void)find(*state, DL_INTENDED, 2, &key);
    undo(*state, key);
    struct dc_result r = check(*state);
    assert_int_equal(r.torn, 1);
    assert_int_equal(r.lost, 0);
    assert_int_equal(r.resolved + 1, r.unknown);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__aborted_took_effect__ghost(void **state)
{
    uint32_t key;
    struct dl_entry *e = find(*state, DL_COMMITTED, 1, &key);

    e->state = DL_ABORTED;
    struct dc_result r = check(*state);
    assert_int_equal(r.ghosts, 1);
    assert_false(demo_check_is_good(&r));
}

/* Two transactions that replaced the same value: the first one's write is gone. */
static void demo_check__lost_update__found(void **state)
{
    struct world *w = *state;
    uint32_t key;
    struct dl_entry *e = find(w, DL_COMMITTED, 1, &key);
    struct sb_touch *t = NULL;

    for (uint32_t i = 0; i < e->touch_count; i++) {
        if (e->touch[i].key == (key | SB_WRITTEN))
            t = &e->touch[i];
    }
    assert_non_null(t);
    assert_true(t->prev_writer != 0);
    const struct dl_entry *before = &w->ledger[t->prev_writer - 1].entry[t->prev_number - 1];
    for (uint32_t i = 0; i < before->touch_count; i++) {
        if (before->touch[i].key == (key | SB_WRITTEN)) {
            t->prev_writer = before->touch[i].prev_writer;
            t->prev_number = before->touch[i].prev_number;
        }
    }
    struct dc_result r = check(w);
    assert_true(r.lost + r.torn + r.lost_updates > 0);
    assert_true(r.lost_updates > 0);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__wrong_balance__found(void **state)
{
    struct world *w = *state;

    w->value[3].balance += 1;
    struct dc_result r = check(w);
    assert_int_equal(r.lost_updates, 1);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__value_of_nobody__found(void **state)
{
    struct world *w = *state;

    w->value[3].writer = 77;
    struct dc_result r = check(w);
    assert_int_equal(r.foreign_values, 1);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__key_gone__lost(void **state)
{
    struct world *w = *state;

    w->present[7] = 0;
    struct dc_result r = check(w);
    assert_true(r.lost >= 1);
    assert_false(demo_check_is_good(&r));
}

static void demo_check__token_says_the_opposite__wrong_verdict(void **state)
{
    uint32_t key;
    struct dl_entry *e = find(*state, DL_INTENDED, 1, &key);

    e->told = DL_COMMITTED;
    struct dc_result r = check(*state);
    assert_true(demo_check_is_good(&r));
    e->told = DL_ABORTED;
    r = check(*state);
    assert_int_equal(r.wrong_verdicts, 1);
    assert_false(demo_check_is_good(&r));
}

/* A reader that saw one half of a transfer, and of the other key the value before it. */
static void demo_check__half_seen__fractured(void **state)
{
    struct world *w = *state;
    uint32_t key;
    struct dl_entry *e = find(w, DL_COMMITTED, 2, &key);
    struct dl_entry *reader = &w->ledger[0].entry[0];
    uint32_t writer = w->value[key].writer;

    memset(reader->touch, 0, sizeof(reader->touch));
    reader->kind = SB_BALANCE;
    reader->state = DL_COMMITTED;
    reader->delta = 0;
    reader->touch_count = 0;
    for (uint32_t i = 0; i < e->touch_count; i++) {
        if ((e->touch[i].key & SB_WRITTEN) == 0)
            continue;
        struct sb_touch *t = &reader->touch[reader->touch_count++];
        t->key = e->touch[i].key & ~SB_WRITTEN;
        bool seen = reader->touch_count == 1;
        t->prev_writer = seen ? writer : e->touch[i].prev_writer;
        t->prev_number = seen ? e->number : e->touch[i].prev_number;
        t->prev_count = e->touch[i].prev_count + (seen ? 1 : 0);
    }
    assert_int_equal(reader->touch_count, 2);
    struct dc_result r = check(w);
    assert_int_equal(r.fractured, 1);
    assert_false(demo_check_is_good(&r));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_world, free_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(demo_check__right_history__passes),
        CASE(demo_check__acknowledged_commit_undone__lost),
        CASE(demo_check__half_of_a_commit_undone__lost_and_torn),
        CASE(demo_check__half_of_an_unknown__torn),
        CASE(demo_check__aborted_took_effect__ghost),
        CASE(demo_check__lost_update__found),
        CASE(demo_check__wrong_balance__found),
        CASE(demo_check__value_of_nobody__found),
        CASE(demo_check__key_gone__lost),
        CASE(demo_check__token_says_the_opposite__wrong_verdict),
        CASE(demo_check__half_seen__fractured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
