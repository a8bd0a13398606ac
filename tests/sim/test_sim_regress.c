/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what once went wrong stays right. Method: every tape of tests/sim/regress (CAIRN_REGRESS
 * names the folder) is replayed with all rules in force and must pass. Each was written by the
 * shrinker from a run that failed: of a bug that is fixed, or with one rule broken on purpose (its
 * `mutant`). The latter are run with the rule broken too, to see whether they still show it: one
 * that does not is named, for the code has moved on and the tape should be made anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/sw_regress.h"
#include "tools/crash/campaign/cr_mutants.h"

static bool passes(const char *path, struct sw_regress_outcome *o)
{
    int rc = sw_regress_run(path, o);

    if (rc != 0) {
        print_error("%s: %s\n", path, cairn_last_error());
        return false;
    }
    if (o->failed)
        print_error("%s: %s\n  (it was kept for: %s)\n", path, o->failure, o->was);
    return !o->failed;
}

static void with_the_rule_broken(const char *path, const struct sw_regress_outcome *in_force)
{
    struct sw_regress_outcome *o = calloc(1, sizeof(*o));
    int mutant;

    assert_non_null(o);
    if (cr_mutant_find(in_force->mutant, &mutant) && mutant != CN_MUTANT_none &&
        cr_mutant_use(mutant)) {
        int rc = sw_regress_run(path, o);
        (void)cr_mutant_use(CN_MUTANT_none);
        assert_int_equal(0, rc);
        printf("%s, %s broken: %s\n", path, in_force->mutant,
            o->failed ? o->failure : "no longer fails; shrink a new one");
    }
    free(o);
}

static void tapes__rules_in_force__all_pass(void **state)
{
    (void)state;
    const char *folder = getenv("CAIRN_REGRESS");
    struct sw_regress_outcome *o = calloc(1, sizeof(*o));
    char **paths = NULL;
    size_t count = 0, failures = 0;

    if (folder == NULL)
        skip();
    assert_non_null(o);
    assert_int_equal(0, sw_regress_list(folder, &paths, &count));
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        failures += !passes(paths[i], o);
        printf("%s: %zu of %zu choices asked for\n", paths[i], o->used, o->listed);
        if (strcmp(o->mutant, "none") != 0)
            with_the_rule_broken(paths[i], o);
        sim_free(paths[i]);
    }
    sim_free(paths);
    free(o);
    sim_fiber_trim();
    assert_int_equal(0, failures);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tapes__rules_in_force__all_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
