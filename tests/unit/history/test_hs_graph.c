/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the checker and its graph are right on histories that nobody thought of.
 * Method: random serial executions, whose events are spread at random around the point at which
 * each transaction takes effect: right by construction, and false once one list is changed.
 * Invariants: no right history is called false, no changed one true.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/history/hs_check.h"

static struct hs_check_report report;

/* Takes the history. */
static void expect(struct hs_history *h, enum hs_verdict verdict)
{
    const enum hs_verdict got = hs_check_lists(h, NULL, &report);

    if (got != verdict)
        print_error("expected %s, got %s:\n%s", hs_verdict_name(verdict), hs_verdict_name(got),
            report.text);
    assert_int_equal(got, verdict);
    hs_history_delete(&h);
}

#define KEYS 8u
#define PROCESSES 6u
#define LIST_MAX 4096u
#define MOPS_MAX 5u

static uint64_t random_state;

static uint32_t pick(uint32_t n)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(cn_mix64(random_state) % n);
}

struct client { /* invoked -> took effect -> completed */
    enum { IDLE, INVOKED, DONE } phase;
    uint64_t process;
    uint32_t count;
    struct {
        bool append;
        uint32_t key, element;
        uint32_t *list, list_count;
    } mop[MOPS_MAX];
    enum hs_type type;
};

struct world {
    struct hs_history *h;
    uint32_t list[KEYS][LIST_MAX], count[KEYS];
    uint32_t element;
    uint64_t next_process;
    struct client client[PROCESSES];
};

static void record(struct world *w, const struct client *c, enum hs_type type)
{
    hs_event_begin(w->h, type, HS_F_TXN, c->process, w->h->event_count);
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->mop[i].append)
            hs_event_append(w->h, c->mop[i].key, c->mop[i].element);
        else if (type == HS_OK)
            hs_event_read(w->h, c->mop[i].key, c->mop[i].list, c->mop[i].list_count);
        else
            hs_event_read(w->h, c->mop[i].key, NULL, HS_UNREAD);
    }
    hs_event_end(w->h);
}

static void start_client(struct world *w, struct client *c)
{
    c->count = 1 + pick(MOPS_MAX);
    for (uint32_t i = 0; i < c->count; i++) {
        c->mop[i].append = pick(2) == 0;
        c->mop[i].key = pick(KEYS);
        c->mop[i].element = c->mop[i].append ? ++w->element : 0;
        c->mop[i].list = NULL;
    }
    c->type = pick(10) < 8 ? HS_OK : pick(2) == 0 ? HS_FAIL : HS_INFO;
    record(w, c, HS_INVOKE);
    c->phase = INVOKED;
}

/* The point at which the transaction takes effect: here all are serial. */
static void run_client(struct world *w, struct client *c)
{
    const bool effect = c->type == HS_OK || (c->type == HS_INFO && pick(2) == 0);

    for (uint32_t i = 0; i < c->count && effect; i++) {
        const uint32_t key = c->mop[i].key, n = w->count[key];
        if (c->mop[i].append) {
            assert_true(n < LIST_MAX);
            w->list[key][w->count[key]++] = c->mop[i].element;
            continue;
        }
        c->mop[i].list_count = n;
        c->mop[i].list = malloc((n + 1) * sizeof(uint32_t));
        memcpy(c->mop[i].list, w->list[key], n * sizeof(uint32_t));
    }
    c->phase = DONE;
}

static void end_client(struct world *w, struct client *c)
{
    if (c->type != HS_INFO || pick(2) == 0)
        record(w, c, c->type);
    for (uint32_t i = 0; i < c->count; i++)
        free(c->mop[i].list);
    if (c->type == HS_INFO)
        c->process = w->next_process++;
    c->phase = IDLE;
}

static struct hs_history *random_history(uint64_t seed, uint32_t steps)
{
    struct world *w = calloc(1, sizeof(*w));
    struct hs_history *h = hs_history_new();

    assert_non_null(w);
    random_state = cn_mix64(seed + 1);
    w->h = h;
    for (uint32_t i = 0; i < PROCESSES; i++)
        w->client[i].process = w->next_process++;
    for (uint32_t i = 0; i < steps; i++) {
        struct client *c = &w->client[pick(PROCESSES)];
        if (c->phase == IDLE)
            start_client(w, c);
        else if (c->phase == INVOKED)
            run_client(w, c);
        else
            end_client(w, c);
    }
    for (uint32_t i = 0; i < PROCESSES; i++)
        for (uint32_t j = 0; j < w->client[i].count; j++)
            if (w->client[i].phase == DONE)
                free(w->client[i].mop[j].list);
    for (unsigned type = HS_INVOKE; type <= HS_OK; type++) {
        hs_event_begin(h, (enum hs_type)type, HS_F_FINAL, 100000, h->event_count);
        for (uint32_t k = 0; k < KEYS; k++)
            hs_event_read(h, k, w->list[k], type == HS_OK ? w->count[k] : HS_UNREAD);
        hs_event_end(h);
    }
    free(w);
    return h;
}

static void hs_check__random_serial_executions__true(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++)
        expect(random_history(seed, 30 + (uint32_t)seed * 3), HS_TRUE);
}

/* A read that is ok, of a transaction, with at least `least` elements; NULL: none. */
static struct hs_mop *pick_read(struct hs_history *h, uint32_t least, bool final)
{
    struct hs_mop *found = NULL;
    uint32_t seen = 0;

    for (uint64_t i = 0; i < h->event_count; i++) {
        const struct hs_event *e = &h->events[i];
        if (e->type != HS_OK || (e->f == HS_F_FINAL) != final)
            continue;
        for (uint32_t j = 0; j < e->mop_count; j++) {
            struct hs_mop *mop = &h->mops[e->mop_first + j];
            if (mop->kind == HS_READ && mop->count >= least && pick(++seen) == 0)
                found = mop;
        }
    }
    return found;
}

/* Change one list; false: this history has no fitting one. */
static bool mutate(struct hs_history *h, unsigned how)
{
    struct hs_mop *mop = pick_read(h, how == 2 ? 3 : 1, how == 0);
    uint32_t *list;

    if (mop == NULL)
        return false;
    list = h->elements + mop->value;
    switch (how) {
    case 0: /* the final read loses an element in the middle or at the end */
        memmove(list, list + 1, (mop->count - 1) * sizeof(*list));
        mop->count--;
        return true;
    case 1: /* a read shows what nobody wrote */
        list[pick(mop->count)] = UINT32_MAX;
        return true;
    case 2: /* two elements change places */
        list[0] ^= list[1];
        list[1] ^= list[0];
        list[0] ^= list[1];
        return true;
    default: /* an element twice */
        list[mop->count - 1] = list[0];
        return mop->count > 1;
    }
}

static void hs_check__random_execution_with_one_list_changed__false(void **state)
{
    uint32_t tried[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        const unsigned how = (unsigned)(seed % 4);
        struct hs_history *h = random_history(seed, 400);
        if (mutate(h, how)) {
            const enum hs_verdict verdict = hs_check_lists(h, NULL, &report);
            tried[how]++;
            if (verdict != HS_FALSE)
                print_error("seed %llu how %u: %s\n", (unsigned long long)seed, how, report.text);
            assert_int_equal(verdict, HS_FALSE);
        }
        hs_history_delete(&h);
    }
    for (unsigned how = 0; how < 4; how++)
        assert_true(tried[how] > 50);
}

/* Read one element less than the newest that completed before the invoke: stale, if nothing else.
 */
static bool make_stale(struct hs_history *h)
{
    for (uint64_t i = h->event_count; i-- > 0;) {
        struct hs_event *e = &h->events[i];
        if (e->type != HS_OK || e->f != HS_F_TXN || e->mop_count != 1 ||
            h->mops[e->mop_first].kind != HS_READ || h->mops[e->mop_first].count == 0)
            continue;
        struct hs_mop *mop = &h->mops[e->mop_first];
        const uint32_t last = h->elements[mop->value + mop->count - 1];
        uint64_t invoked = i, completed = UINT64_MAX;
        while (h->events[--invoked].process != e->process)
            continue;
        for (uint64_t j = 0; j < invoked; j++)
            for (uint32_t m = 0; m < h->events[j].mop_count && h->events[j].type == HS_OK; m++)
                if (h->mops[h->events[j].mop_first + m].kind == HS_APPEND &&
                    h->mops[h->events[j].mop_first + m].value == last)
                    completed = j;
        if (completed == UINT64_MAX)
            continue;
        mop->count--;
        return true;
    }
    return false;
}

static void hs_check__random_execution_with_a_stale_read__false(void **state)
{
    uint32_t tried = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct hs_history *h = random_history(seed, 300);
        if (make_stale(h)) {
            tried++;
            assert_int_equal(hs_check_lists(h, NULL, &report), HS_FALSE);
        }
        hs_history_delete(&h);
    }
    assert_true(tried > 50);
}

/* An acknowledged append turned into an aborted one that was read. */
static void hs_check__random_execution_with_an_aborted_read__false(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct hs_history *h = random_history(seed, 300);
        bool done = false;
        for (uint64_t i = 0; i < h->event_count && !done; i++) {
            struct hs_event *e = &h->events[i];
            done = e->type == HS_OK && e->mop_count > 0 && h->mops[e->mop_first].kind == HS_APPEND;
            if (done)
                e->type = HS_FAIL;
        }
        assert_true(done);
        expect(h, HS_FALSE);
        assert_true(report.count[HS_A_G1A] > 0);
    }
}

static void hs_check__two_hundred_thousand_transactions__fast(void **state)
{
    const uint32_t count = 200000;
    struct hs_history *h = hs_history_new();
    uint32_t list[100];

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        list[i] = i;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t key = i / 400, process = i % 8;
        const uint32_t n = i % 400 / 4;
        for (unsigned type = HS_INVOKE; type <= HS_OK; type++) {
            hs_event_begin(h, (enum hs_type)type, HS_F_TXN, process, h->event_count);
            hs_event_read(h, key, list, type == HS_OK ? n : HS_UNREAD);
            if (i % 4 == 3)
                hs_event_append(h, key, n);
            hs_event_end(h);
        }
    }
    assert_int_equal(hs_check_lists(h, NULL, &report), HS_TRUE);
    print_message("%u transactions in %.3f s\n", count, (double)report.ns / 1e9);
    assert_true(report.ns < UINT64_C(20000000000));
    hs_history_delete(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hs_check__random_serial_executions__true),
        cmocka_unit_test(hs_check__random_execution_with_one_list_changed__false),
        cmocka_unit_test(hs_check__random_execution_with_a_stale_read__false),
        cmocka_unit_test(hs_check__random_execution_with_an_aborted_read__false),
        cmocka_unit_test(hs_check__two_hundred_thousand_transactions__fast),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
