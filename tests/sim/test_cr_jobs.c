/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: items done by several processes are added in the order of their numbers; a worker that dies
 * is a result, with what it was at and its last words; nothing is lost, and enough is enough.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/crash/campaign/cr_jobs.h"

#define ITEMS 200u

struct sum {
    uint64_t next, deaths, stop_at;
    uint64_t died_seed;
    char how[1024];
    bool out_of_order, wrong;
};
struct result { uint64_t value; uint8_t more[20000]; }; /* more than a pipe takes at once */

static void square(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    struct result *r = result;

    (void)arg;
    note->beats++;
    if (item % 7 == 3)
        usleep(2000); /* so that results overtake each other */
    r->value = item * item;
    memset(r->more, (int)(item & 0xff), sizeof(r->more));
}

/* Some die: of an assertion, of a bad access, or by leaving. */
static void square_or_die(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    note->seed = 1000 + item;
    if (item == 20) {
        fprintf(stderr, "the last words of %d\n", 20);
        abort();
    }
    if (item == 21)
        (void)raise(SIGKILL);
    if (item == 22)
        _exit(5);
    square(arg, item, note, result);
}

static void died(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct sum *s = arg;

    assert_false(stuck);
    s->deaths++;
    if (item == 20) {
        s->died_seed = note->seed;
        snprintf(s->how, sizeof(s->how), "%s", how);
    }
    ((struct result *)result)->value = 7;
}

static bool add(void *arg, uint64_t item, const void *result)
{
    struct sum *s = arg;
    const struct result *r = result;

    s->out_of_order = s->out_of_order || item != s->next;
    s->next++;
    s->wrong = s->wrong || (r->value != item * item && r->value != 7) ||
        (r->value != 7 && r->more[19999] != (uint8_t)item);
    return s->stop_at == 0 || s->next < s->stop_at;
}

static struct cr_jobs jobs_of(struct sum *s, uint32_t jobs)
{
    return (struct cr_jobs){.jobs = jobs, .items = ITEMS, .result_size = sizeof(struct result),
        .run = square, .died = died, .add = add, .arg = s};
}

static void run__many_workers__all_in_order(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n += 2) {
        struct sum s = {0};
        struct cr_jobs jobs = jobs_of(&s, n);
        assert_int_equal(0, cr_jobs_run(&jobs));
        assert_int_equal(ITEMS, jobs.done);
        assert_int_equal(ITEMS, s.next);
        assert_false(s.out_of_order || s.wrong || jobs.out_of_time || jobs.interrupted);
        assert_int_equal(-1, waitpid(-1, NULL, WNOHANG)); /* no child is left */
    }
}

static void run__workers_die__told_and_replaced(void **state)
{
    (void)state;
    struct sum s = {0};
    struct cr_jobs jobs = jobs_of(&s, 3);

    jobs.run = square_or_die;
    assert_int_equal(0, cr_jobs_run(&jobs));
    assert_int_equal(ITEMS, jobs.done);
    assert_int_equal(3, s.deaths);
    assert_false(s.out_of_order || s.wrong);
    assert_int_equal(1020, s.died_seed);
    assert_non_null(strstr(s.how, "signal 6"));
    assert_non_null(strstr(s.how, "last words: the last words of 20"));
}

static void run__enough__no_more_are_added(void **state)
{
    (void)state;
    struct sum s = {.stop_at = 30};
    struct cr_jobs jobs = jobs_of(&s, 4);

    assert_int_equal(0, cr_jobs_run(&jobs));
    assert_int_equal(30, jobs.done);
    assert_int_equal(30, s.next);
    assert_int_equal(-1, waitpid(-1, NULL, WNOHANG));
}

static void run__no_time__told(void **state)
{
    (void)state;
    struct sum s = {0};
    struct cr_jobs jobs = jobs_of(&s, 1);

    jobs.seconds = 1e-9;
    assert_int_equal(0, cr_jobs_run(&jobs));
    assert_true(jobs.out_of_time);
    assert_true(jobs.done < ITEMS);
}

/* Stands still, and would for ever. */
static void stand_still(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    (void)arg;
    (void)note;
    (void)result;
    while (item == 1)
        pause();
}

static void was_stuck(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    struct sum *s = arg;

    (void)note;
    (void)how;
    (void)result;
    s->deaths += stuck && item == 1;
}

static bool count(void *arg, uint64_t item, const void *result)
{
    (void)arg;
    (void)item;
    (void)result;
    return true;
}

static void run__worker_stands_still__killed_and_told(void **state)
{
    (void)state;
    struct sum s = {0};
    struct cr_jobs jobs = jobs_of(&s, 2);

    jobs.items = 3;
    jobs.stuck_s = 1;
    jobs.run = stand_still;
    jobs.died = was_stuck;
    jobs.add = count;
    assert_int_equal(0, cr_jobs_run(&jobs));
    assert_int_equal(3, jobs.done);
    assert_int_equal(1, s.deaths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__many_workers__all_in_order),
        cmocka_unit_test(run__workers_die__told_and_replaced),
        cmocka_unit_test(run__enough__no_more_are_added),
        cmocka_unit_test(run__no_time__told),
        cmocka_unit_test(run__worker_stands_still__killed_and_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
