/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the gate: all workers are in a segment, and all are back, before the next begins.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bn_drive.h"

#define THREADS 4u
#define SEGMENTS 2000u

struct stand {
    struct bn_gate gate;
    uint32_t segment; /* written between segments only */
    uint32_t been[THREADS];
};
struct thread {
    struct stand *stand;
    uint32_t number, wrong;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct thread *t = arg;
    struct stand *s = t->stand;
    uint32_t number = 0;

    for (;;) {
        bn_gate_enter(&s->gate, &number);
        if (s->segment == UINT32_MAX)
            return NULL;
        t->wrong += s->been[t->number] != s->segment;
        s->been[t->number]++;
        bn_gate_leave(&s->gate);
    }
}

static void gate__many_segments__in_step(void **state)
{
    struct stand s = {.segment = 0};
    struct thread thread[THREADS] = {{0}};

    (void)state;
    bn_gate_init(&s.gate);
    for (uint32_t i = 0; i < THREADS; i++) {
        thread[i] = (struct thread){.stand = &s, .number = i};
        assert_int_equal(pthread_create(&thread[i].thread, NULL, work, &thread[i]), 0);
    }
    for (uint32_t n = 0; n < SEGMENTS; n++) {
        s.segment = n;
        bn_gate_open(&s.gate, THREADS);
        bn_gate_await(&s.gate);
        for (uint32_t i = 0; i < THREADS; i++)
            assert_int_equal(s.been[i], n + 1);
    }
    s.segment = UINT32_MAX;
    bn_gate_open(&s.gate, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i].thread, NULL), 0);
        assert_int_equal(thread[i].wrong, 0);
    }
    bn_gate_fini(&s.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gate__many_segments__in_step)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
