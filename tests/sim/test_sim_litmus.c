/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the modelled fabric and memory allow exactly the outcomes of the crash model's litmus
 * tests, no more (a false alarm) and no fewer (a bug that stays hidden). Method: each program of
 * cr_litmus_programs.c is run over all tapes; outcomes are compared as sets.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/crash/faults/cr_litmus.h"
#include "tools/sim/sim_alloc.h"

static void run_all__every_program_and_mode__exact(void **state)
{
    (void)state;
    uint32_t count = cr_litmus_count();
    struct cr_litmus_result *results = sim_calloc(count, sizeof(*results));
    enum cr_verdict verdict = cr_litmus_run_all(results);

    cr_litmus_print(results, count, stdout);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(results[i].exhausted);
        assert_memory_equal(
            results[i].allowed_set, results[i].seen_set, sizeof(results[i].seen_set));
    }
    assert_int_equal(CR_PASS, verdict);
    sim_free(results);
}

/* L1 to L14 are there in every platform mode in which the crash model says something of them. */
static void count__programs_of_the_model__all_there(void **state)
{
    (void)state;
    uint32_t count = cr_litmus_count(), seen[3][15] = {{0}};
    static const char *const modes[] = {"adr", "adr_ddio", "eadr"};

    for (uint32_t i = 0; i < count; i++) {
        struct cr_litmus_result r;
        cr_litmus_run(i, 1, &r);
        unsigned long id = strtoul(r.id + 1, NULL, 10);
        for (uint32_t m = 0; m < 3; m++)
            if (id < 15 && strcmp(r.mode, modes[m]) == 0)
                seen[m][id]++;
    }
    for (uint32_t id = 1; id < 15; id++)
        assert_true(seen[0][id] + seen[1][id] + seen[2][id] > 0);
    for (uint32_t m = 0; m < 3; m++)
        for (uint32_t id = 1; id < 14; id++)
            assert_true(seen[m][id] > 0 || id == 2 || id == 8 || id == 9);
}

/* An outcome that has not been seen yet is no reason for "wrong", and none for "exact". */
static void run__not_all_tapes__undecided(void **state)
{
    (void)state;
    struct cr_litmus_result r;

    cr_litmus_run(0, 1, &r);
    assert_string_equal("L1", r.id);
    assert_false(r.exhausted);
    assert_int_equal(1, r.seen_count);
    assert_int_equal(CR_INCONCLUSIVE, r.verdict);
}

static void text__set__as_ranges(void **state)
{
    (void)state;
    uint64_t set[CR_LITMUS_OUTCOMES / 64] = {0x30007, 1};
    char text[64];

    cr_litmus_text(set, text, sizeof(text));
    assert_string_equal("00-02 10 11 40", text);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_all__every_program_and_mode__exact),
        cmocka_unit_test(count__programs_of_the_model__all_there),
        cmocka_unit_test(run__not_all_tapes__undecided),
        cmocka_unit_test(text__set__as_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
