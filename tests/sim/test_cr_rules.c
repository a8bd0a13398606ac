/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each assertion of cr_rules.h is needed and works: with a rule broken (cn_mutant.h) it is
 * the one that speaks, and with all rules in force none does. Method: the shape that is aimed at
 * the mutant, with the rules asserted and nothing else that would speak before; and seeds as
 * `cairn crash run` does them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_mutant.h"
#include "tests/sim/sw_sweep.h"
#include "tools/crash/campaign/cr_campaign.h"
#include "tools/crash/campaign/cr_mutants.h"

#define SEEDS 120u
#define CLEAN 12u

static const struct broken { int mutant; const char *rule, *says; } table[] = {
    {CN_MUTANT_c_ring_past_position, "R4: ", "is written over what is not passed"},
    {CN_MUTANT_c_mark_late, "R4: ", "where its record does not stand"},
    {CN_MUTANT_c_reuse_send_buffer, "R6: ", "is no record while it is on its way"},
    {CN_MUTANT_n_tombstone_volatile, "R8: ", "has no durable tombstone"},
    {CN_MUTANT_n_present_volatile, "R11: ", "which is not durable"},
    {CN_MUTANT_n_records_before_tombstones, "R12: ", "which has a tombstone"},
    {CN_MUTANT_n_no_gap_tombstones, "R14: ", "has neither a record nor a tombstone"},
    {CN_MUTANT_n_abort_without_fence, "R14: ", "nothing durable prevents it"},
    {CN_MUTANT_c_reuse_sequence, "R15: ", "has two transactions"},
    {CN_MUTANT_n_present_without_txid, "R15: ", "which is another transaction's"},
    {CN_MUTANT_p_release_ahead, "I5: ", "above its object's version"},
};

static struct cr_setup setup_of(int mutant)
{
    const struct cr_aim *aim = NULL;

    for (uint32_t i = 0; aim == NULL; i++) {
        assert_non_null(cr_aim_at(i));
        aim = cr_aim_at(i)->mutant == mutant ? cr_aim_at(i) : NULL;
    }
    assert_non_null(aim->setup);
    struct cr_setup setup = *aim->setup;
    setup.rules = true;
    setup.discipline = false;
    return setup;
}

static bool run(const struct cr_setup *setup, int mutant, uint64_t seed, struct cr_result *r)
{
    assert_true(cr_mutant_use(mutant));
    cr_cluster_run(setup, seed, r);
    assert_true(cr_mutant_use(CN_MUTANT_none));
    return !r->failed;
}

static void rules__one_broken__its_assertion_speaks(void **state)
{
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        const struct broken *b = &table[i];
        const struct cr_setup setup = setup_of(b->mutant);
        uint64_t seed = 1;
        bool spoke = false;
        for (; seed <= SEEDS && !spoke; seed++)
            spoke = !run(&setup, b->mutant, seed, r) &&
                strncmp(r->failure, b->rule, strlen(b->rule)) == 0 &&
                strstr(r->failure, b->says) != NULL;
        if (!spoke)
            fail_msg("%s: nobody says \"%s... %s\" in %u seeds", cr_mutant_name(b->mutant),
                b->rule, b->says, SEEDS);
        if (!run(&setup, CN_MUTANT_none, seed - 1, r))
            fail_msg("%s, seed %lu, not broken: %s", cr_mutant_name(b->mutant), seed - 1,
                r->failure);
    }
    sim_free(r);
    sim_fiber_trim();
}

/* What `cairn crash run` does with a seed asserts them. */
static void rules__usual_seeds__on_and_kept(void **state)
{
    const struct cr_setup usual = CR_CAMPAIGN_SETUP;
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    (void)state;
    assert_true(usual.rules);
    for (uint64_t seed = 1; seed <= CLEAN; seed++)
        if (!run(&usual, CN_MUTANT_none, seed, r))
            fail_msg("seed %lu: %s", seed, r->failure);
    sim_free(r);
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules__one_broken__its_assertion_speaks),
        cmocka_unit_test(rules__usual_seeds__on_and_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
