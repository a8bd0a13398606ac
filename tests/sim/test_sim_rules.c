/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each rule is needed, and the tests notice when it is broken: every mutant of cn_mutant.h
 * dies. Method: the product's sources built with CAIRN_MUTANTS; one mutant at a time is switched on
 * as the table of aims (tools/crash/campaign/cr_mutants.c) says, until a check fails. Before that
 * the first seeds of each shape run unmutated and must pass. Where a unit test notices too, the
 * table names it. CAIRN_SIM_MUTANT runs one by number; CAIRN_SIM_RATE=n runs n seeds of it to the
 * end, mutated and not, and says how many fail.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_sweep.h"
#include "tools/crash/campaign/cr_mutants.h"

#define CLEAN 4u /* seeds of each shape that run unmutated */

static void print_rate(const struct cr_aim *aim, uint64_t seeds)
{
    char failure[256];
    double begun = sw_seconds();
    uint64_t failed = 0, clean = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        if (!cr_aim_run(aim, aim->mutant, seed, failure, sizeof(failure))) {
            printf("  seed %lu: %.120s\n", seed, failure);
            failed++;
        }
        if (!cr_aim_run(aim, CN_MUTANT_none, seed, failure, sizeof(failure))) {
            printf("  UNMUTATED seed %lu: %.120s\n", seed, failure);
            clean++;
        }
    }
    printf("%2d %-28s %lu of %lu seeds fail, unmutated %lu; %.1f s\n", aim->mutant,
        cr_mutant_name(aim->mutant), failed, seeds, clean, sw_seconds() - begun);
}

/* False: it survives. */
static bool judge(const struct cr_aim *a)
{
    const char *name = cr_mutant_name(a->mutant), *unit = a->unit != NULL ? a->unit : "";
    struct cr_kill kill;

    cr_aim_kill(a, CR_AIM_STATES, NULL, &kill);
    if (kill.unsound)
        fail_msg("%s: seed %lu fails with the rule in force too", name, kill.seed);
    if (kill.killed)
        printf("%2d %-28s states %3lu%s%s: %.100s\n", a->mutant, name, kill.states,
            unit[0] != '\0' ? ", " : "", unit, kill.how);
    else
        printf("%2d %-28s SURVIVES %lu states\n", a->mutant, name, kill.states);
    fflush(stdout);
    return kill.killed;
}

static void mutant__switched_on__is_caught(void **state)
{
    const char *one = getenv("CAIRN_SIM_MUTANT"), *rate = getenv("CAIRN_SIM_RATE");
    bool seen[CN_MUTANT_COUNT] = {true};
    const struct cr_aim *a;
    uint32_t survivors = 0;

    (void)state;
    assert_true(cr_mutants_built());
    for (uint32_t i = 0; (a = cr_aim_at(i)) != NULL; i++) {
        seen[a->mutant] = true;
        if (one != NULL && atoi(one) != a->mutant)
            continue;
        if (rate != NULL && a->setup != NULL)
            print_rate(a, strtoull(rate, NULL, 0));
        else
            survivors += !judge(a);
    }
    sim_fiber_trim();
    for (int m = 0; m < CN_MUTANT_COUNT; m++)
        if (!seen[m])
            fail_msg("nothing is aimed at %s", cr_mutant_name(m));
    assert_int_equal(0, survivors);
}

static void mutant__none__survives(void **state)
{
    const struct cr_setup *last = NULL;
    const struct cr_aim *a;
    char failure[256];

    (void)state;
    for (uint32_t i = 0; (a = cr_aim_at(i)) != NULL; i++) {
        if (a->setup == NULL || a->setup == last)
            continue;
        last = a->setup;
        for (uint64_t seed = 1; seed <= CLEAN; seed++)
            if (!cr_aim_run(a, CN_MUTANT_none, seed, failure, sizeof(failure)))
                fail_msg("aimed at %s, seed %lu, unmutated: %s", cr_mutant_name(a->mutant), seed,
                    failure);
    }
}

/* Only what the product says of itself is a kill. */
static void death__of_a_worker__kills_by_an_assertion_of_the_product_alone(void **state)
{
    static const struct { const char *how; bool killed; } deaths[] = {
        {"the process died of signal 6 (Aborted); last words: cairn: txn/txn_ctx.c:7: assertion "
         "failed: tx->open", true},
        {"the process died of signal 6 (Aborted); last words: cairn: pmem/pm_heap.c:70: assertion "
         "failed: n < 4", true},
        {"the process died of signal 6 (Aborted); last words: cairn: tools/sim/sim_core.c:7: "
         "assertion failed: n < 4", false},
        {"the process died of signal 11 (Segmentation fault)", false},
        {"the process died of signal 9 (Killed); last words: cairn: txn/txn_ctx.c", false},
        {"the run does not end", false}};

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(deaths); i++) {
        struct cr_kill kill;
        memset(&kill, 0xff, sizeof(kill));
        cr_kill_by_death(deaths[i].how, &kill);
        assert_int_equal(deaths[i].killed, kill.killed);
        assert_int_equal(!deaths[i].killed, kill.lost);
        assert_string_equal(deaths[i].how, kill.how);
    }
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutant__none__survives),
        cmocka_unit_test(mutant__switched_on__is_caught),
        cmocka_unit_test(death__of_a_worker__kills_by_an_assertion_of_the_product_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
