/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what clients of the second rig leave in the shared memory tells the truth wherever they
 * were killed: no log entry half there, no violation lost, nothing noted that is not said to be
 * complete. Method: the functions of cr_rig_shared.h in one process; a kill is a state of the
 * memory between two of their stores.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/crash/rig/cr_rig_shared.h"
#include "tools/crash/workload/cr_work.h"
#include "tools/history/hs_check.h"

#define CLIENTS 2u
#define SECONDS 20.0

struct fixture {
    struct rig_shared *shared;
    char path[64];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    const struct cairn_workload *part[RIG_PARTS_MAX];
    uint32_t count;

    assert_non_null(f);
    (void)snprintf(f->path, sizeof(f->path), "/dev/shm/cairn-rs-%d", (int)getpid());
    (void)unlink(f->path);
    assert_int_equal(0, rig_parts("list-append,bank", part, &count));
    assert_int_equal(2, count);
    const struct rig_shape shape = {.workload = "list-append,bank", .parts = part,
        .part_count = count, .clients = CLIENTS, .seed = 7, .seconds = SECONDS};
    assert_int_equal(0, rig_shared_make(f->path, &shape, &f->shared));
    assert_int_equal(f->shared->size, rig_shared_size(&shape));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    (void)unlink(f->path);
    rig_shared_unmap(&f->shared);
    free(f);
    return 0;
}

static void map__another_process__sees_the_same(void **state)
{
    struct fixture *f = *state;
    struct rig_shared *other;

    assert_int_equal(0, rig_shared_map(f->path, &other));
    assert_int_equal(7, other->seed);
    f->shared->part[1].op_count = 3;
    rig_op_at(f->shared, 1, 3)->outcome = CAIRN_OUTCOME_COMMITTED;
    assert_int_equal(CAIRN_OUTCOME_COMMITTED, rig_op_at(other, 1, 3)->outcome);
    assert_null(rig_op_at(other, 1, 0));
    assert_null(rig_op_at(other, 1, 4));
    rig_shared_unmap(&other);
}

static void map__not_such_a_file__is_refused(void **state)
{
    struct fixture *f = *state;
    struct rig_shared *other = NULL;

    assert_int_equal(0, truncate(f->path, 4096));
    assert_true(rig_shared_map(f->path, &other) != 0);
    assert_int_equal(0, truncate(f->path, 8));
    assert_true(rig_shared_map(f->path, &other) != 0);
}

/* A ledger that is full after two seconds of ten minutes leaves the faults of the rest unseen. */
static void is_ahead__ledger_against_time__last_equally_long(void **state)
{
    struct fixture *f = *state;
    struct rig_shared *s = f->shared;

    s->work_begin_ns = 1000;
    s->work_ns = 1000000;
    s->part[1].op_count = RIG_OPS_BUILT_IN / 2;
    assert_true(rig_is_ahead(s, 1, true, 1000));
    assert_true(rig_is_ahead(s, 1, true, 1000 + 400000));
    assert_false(rig_is_ahead(s, 1, true, 1000 + 600000));
    assert_false(rig_is_ahead(s, 1, false, 1000 + 400000));
    assert_false(rig_is_ahead(s, 0, true, 1000));
    s->part[1].op_count = 2 * RIG_OPS_BUILT_IN;
    assert_true(rig_is_ahead(s, 1, true, 1000 + 5000000));
}

/* ---- violations ---- */

static void fail__twice__first_is_kept(void **state)
{
    struct fixture *f = *state;

    assert_null(rig_failure(f->shared));
    rig_fail(f->shared, "lost");
    rig_fail(f->shared, "torn");
    assert_string_equal("lost", rig_failure(f->shared));
}

/* Its client is killed between the claim and the text: the run must not pass for that. */
static void fail__killed_before_the_text__is_a_failure_still(void **state)
{
    struct fixture *f = *state;

    f->shared->failed = 1;
    assert_non_null(rig_failure(f->shared));
    assert_true(rig_failure(f->shared)[0] != '\0');
}

/* ---- tokens ---- */

static void set_token__over_another__whole(void **state)
{
    struct fixture *f = *state;
    char token[CAIRN_TOKEN_SIZE];

    f->shared->part[0].op_count = 1;
    for (char c = 'a'; c <= 'b'; c++) {
        memset(token, c, sizeof(token) - 1);
        token[sizeof(token) - 1] = '\0';
        rig_op_set_token(rig_op_at(f->shared, 0, 1), token);
        assert_string_equal(token, rig_op_at(f->shared, 0, 1)->token);
    }
}

/* ---- logs ---- */

/* The element tells generations of a client apart: each is a process of its own. */
static void note(struct rig_shared *s, uint32_t client, uint32_t element, uint64_t at)
{
    assert_true(rig_event_begin(s, client, 0, 100 + element, at, false));
    assert_true(rig_event_mop(s, client, RIG_APPEND, 1, &element, 1));
    rig_event_end(s, client, CAIRN_OUTCOME_COMMITTED, at + 1);
}

static void log__killed_inside_an_event__is_an_invoke_alone(void **state)
{
    struct fixture *f = *state;
    struct rig_shared *s = f->shared;
    static const uint32_t seen[] = {10, 11, 12};
    struct hs_check_report *report = calloc(1, sizeof(*report));

    assert_non_null(report);
    note(s, 0, 10, 1);
    /* Killed behind its append, and in the middle of the next note: `size` moves first. */
    assert_true(rig_event_begin(s, 1, 0, 1, 3, false));
    assert_true(rig_event_mop(s, 1, RIG_APPEND, 1, &seen[1], 1));
    uint64_t used = s->client[1].used;
    s->client[1].used -= 8;
    rig_log_resume(s, 1);
    assert_int_equal(used, s->client[1].used);
    assert_int_equal(0, s->client[1].open);
    note(s, 1, 12, 5);
    assert_true(rig_event_begin(s, CLIENTS, 0, 9, 7, true));
    assert_true(rig_event_mop(s, CLIENTS, RIG_READ, 1, seen, 3));
    rig_event_end(s, CLIENTS, CAIRN_OUTCOME_COMMITTED, 8);

    struct hs_history *h = rig_history(s, 0);
    assert_non_null(h);
    assert_int_equal(HS_TRUE, hs_check_lists(h, NULL, report));
    assert_int_equal(3, report->ok);
    assert_int_equal(1, report->info);
    hs_history_delete(&h);
    assert_null(rig_history(s, 1));
    free(report);
}

/* The same, and what was committed last is not there. */
static void log__committed_append_is_lost__is_found(void **state)
{
    struct fixture *f = *state;
    struct rig_shared *s = f->shared;
    static const uint32_t seen[] = {10};
    struct hs_check_report *report = calloc(1, sizeof(*report));

    assert_non_null(report);
    note(s, 0, 10, 1);
    note(s, 1, 11, 3);
    assert_true(rig_event_begin(s, CLIENTS, 0, 9, 7, true));
    assert_true(rig_event_mop(s, CLIENTS, RIG_READ, 1, seen, 1));
    rig_event_end(s, CLIENTS, CAIRN_OUTCOME_COMMITTED, 8);
    struct hs_history *h = rig_history(s, 0);
    assert_int_equal(HS_FALSE, hs_check_lists(h, NULL, report));
    hs_history_delete(&h);
    free(report);
}

static void log__full__takes_no_part_of_a_note(void **state)
{
    struct fixture *f = *state;
    struct rig_client *c = &f->shared->client[0];
    uint32_t element = 1;

    c->used = c->log_size - sizeof(struct rig_event);
    assert_true(rig_event_begin(f->shared, 0, 0, 0, 1, false));
    assert_false(rig_event_mop(f->shared, 0, RIG_APPEND, 1, &element, 1));
    assert_int_equal(1, c->full);
    assert_int_equal(c->log_size, c->used);
    rig_event_end(f->shared, 0, CAIRN_OUTCOME_ABORTED, 2);
    assert_false(rig_event_begin(f->shared, 0, 0, 0, 3, false));
    assert_int_equal(c->log_size, c->used);
}

/* What a run may fill is known before it begins. */
static void size__longer_run__grows_up_to_its_bound(void **state)
{
    struct fixture *f = *state;
    const struct cairn_workload *part[RIG_PARTS_MAX];
    uint32_t count;
    uint64_t before = 0;

    assert_int_equal(0, rig_parts("mixed", part, &count));
    struct rig_shape shape = {.workload = "mixed", .parts = part, .part_count = count,
        .clients = RIG_CLIENTS_MAX};
    uint64_t rest = (UINT64_C(1) << 20) +
        count * (RIG_OPS_BUILT_IN + RIG_OPS_SPARE) * sizeof(struct rig_op);
    for (uint32_t i = 0; i < count; i++)
        rest += part[i]->state_size;
    for (shape.seconds = 1; shape.seconds < 1e6; shape.seconds *= 10) {
        uint64_t size = rig_shared_size(&shape);
        assert_true(size >= before);
        assert_true(size <= rest + (RIG_CLIENTS_MAX + 1) * RIG_LOG_MAX);
        before = size;
    }
    assert_true(before > (RIG_CLIENTS_MAX + 1) * RIG_LOG_MAX);
    assert_int_equal((uint64_t)(SECONDS * (double)RIG_LOG_PER_SECOND),
        f->shared->client[0].log_size);
    f->shared->part[1].op_count = RIG_OPS_MAX;
    assert_non_null(rig_op_at(f->shared, 1, f->shared->part[1].op_room));
    assert_null(rig_op_at(f->shared, 1, f->shared->part[1].op_room + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(map__another_process__sees_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(map__not_such_a_file__is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            is_ahead__ledger_against_time__last_equally_long, setup, teardown),
        cmocka_unit_test_setup_teardown(fail__twice__first_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(
            fail__killed_before_the_text__is_a_failure_still, setup, teardown),
        cmocka_unit_test_setup_teardown(set_token__over_another__whole, setup, teardown),
        cmocka_unit_test_setup_teardown(
            log__killed_inside_an_event__is_an_invoke_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(log__committed_append_is_lost__is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(log__full__takes_no_part_of_a_note, setup, teardown),
        cmocka_unit_test_setup_teardown(size__longer_run__grows_up_to_its_bound, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
