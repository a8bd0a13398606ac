/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: workloads are found by name and in shared objects, what is wrong with an object is told,
 * and each of those built in runs, finds nothing where nothing is wrong, and does not do nothing.
 * Method: the objects are built from wp_plugin.c and examples/02-workload.c; the example's broken
 * variant must be caught.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "tests/sim/sw_sweep.h"
#include "tools/crash/tell/cr_timeline_tell.h"

#define SEEDS 40u

static const struct cairn_workload *open_one(const char *text)
{
    const struct cairn_workload *set[CR_PARTS_MAX + 1];
    int rc = cr_work_open(text, set);

    if (rc != 0)
        fail_msg("%s", cairn_last_error());
    assert_non_null(set[0]);
    assert_null(set[1]);
    return set[0];
}

/* Seeds until one fails; 0: none did. */
static uint64_t sweep(const struct cr_setup *setup, uint64_t seeds, struct cr_result *ret)
{
    uint64_t committed = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        cr_cluster_run(setup, seed, ret);
        committed += ret->counts.committed;
        if (ret->failed)
            return seed;
    }
    ret->counts.committed = committed;
    return 0;
}

/* ---- names ---- */

static void cr_work_open__names__parts(void **state)
{
    (void)state;
    const struct cairn_workload *set[CR_PARTS_MAX + 1];

    assert_int_equal(0, cr_work_open("mixed", set));
    assert_null(set[0]);
    assert_int_equal(0, cr_work_open("bank,list-append", set));
    assert_ptr_equal(cr_work_at(CR_WORK_BANK), set[0]);
    assert_ptr_equal(cr_work_at(CR_WORK_APPEND), set[1]);
    assert_null(set[2]);
}

static void refuse(const char *text, const char *words)
{
    const struct cairn_workload *set[CR_PARTS_MAX + 1];

    assert_int_equal(CAIRN_E_CONFIG, cr_work_open(text, set));
    assert_null(set[0]);
    if (strstr(cairn_last_error(), words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, cairn_last_error(), words);
}

static void cr_work_open__wrong_text__says_what_there_is(void **state)
{
    (void)state;
    refuse("bonk", "built in are: mixed, bank, list-append");
    refuse("bank,mixed", "name it alone");
    refuse("bank,,skew", "empty");
    refuse("", "empty");
    refuse("skew,bank,skew", "named twice");
    refuse("bank,bank,bank,bank,bank,bank,bank,bank,bank,bank,bank,bank,bank", "more than 12");
}

static void cr_work_at__all__are_complete(void **state)
{
    (void)state;
    uint32_t count = 0;

    for (; cr_work_at(count) != NULL; count++) {
        const struct cairn_workload *w = cr_work_at(count);
        assert_int_equal(0, cr_work_verify("built in", w));
        assert_ptr_equal(w, cr_work_find(w->name));
    }
    assert_int_equal(CR_WORK_COUNT, count);
    assert_null(cr_work_find("mixed"));
}

/* ---- shared objects ---- */

static void cr_work_load__wrong_objects__told_what_to_do(void **state)
{
    (void)state;
    refuse("./nowhere.so", "cannot be read");
    refuse(PLUGINS "/abi.so", "version 2 of cairn/workload.h");
    refuse(PLUGINS "/no_symbol.so", "does not define cairn_workload()");
    refuse(PLUGINS "/no_step.so", "has no .step");
    refuse(PLUGINS "/null.so", "returned NULL");
    refuse(PLUGINS "/name.so", "letters, digits");
    refuse(PLUGINS "/undefined.so", "nobody_defines_this");
    refuse("bank," PLUGINS "/../CTestTestfile.cmake", "invalid ELF header");
}

static void run_object(const char *path, const char *name)
{
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL, .workload = {open_one(path)}};
    struct cr_result r;

    assert_string_equal(name, setup.workload[0]->name);
    assert_int_equal(0, sweep(&setup, SEEDS, &r));
    assert_true(r.counts.committed > 200);
    sim_fiber_trim();
}

/* The simulation's API calls take virtual time: those of libcairn would find no cluster at all. */
static void cr_work_load__built_in_as_object__runs(void **state)
{
    (void)state;
    assert_ptr_not_equal(cr_work_find("bank"), open_one(PLUGINS "/bank.so"));
    run_object(PLUGINS "/bank.so", "bank");
}

static void cr_work_load__linked_with_libcairn__finds_this_programs_functions(void **state)
{
    (void)state;
    run_object(PLUGINS "/bank_linked.so", "bank");
}

static void cr_work_load__object_and_built_in__are_the_same_run(void **state)
{
    (void)state;
    struct cr_setup object = {.ops = 10, .faults = CR_FAULTS_ALL,
        .workload = {open_one(PLUGINS "/bank.so")}};
    struct cr_setup built_in = {.ops = 10, .faults = CR_FAULTS_ALL,
        .workload = {cr_work_find("bank")}};
    struct cr_result a, b;

    for (uint64_t seed = 1; seed <= 5; seed++) {
        cr_cluster_run(&object, seed, &a);
        cr_cluster_run(&built_in, seed, &b);
        assert_int_equal(a.hash, b.hash);
    }
    sim_fiber_trim();
}

static void example__shop__passes(void **state)
{
    (void)state;
    run_object(PLUGINS "/shop.so", "shop");
}

static void example__broken_shop__is_caught(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL,
        .workload = {open_one(PLUGINS "/shop_broken.so")}};
    struct cr_result r;
    uint64_t seed = sweep(&setup, SEEDS, &r);

    assert_int_not_equal(0, seed);
    print_message("caught at seed %lu: %s\n", seed, r.failure);
    assert_non_null(strstr(r.failure, "pieces"));
    sim_fiber_trim();
}

/* What an object reads and writes is in the story of its run, as for those built in. */
/* The story of one run, in words. Owner: the caller. */
static char *tell(const char *path, struct cr_result *r)
{
    struct cr_timeline *timeline = cr_timeline_new();
    struct cr_setup setup = {.ops = 5, .timeline = timeline, .workload = {open_one(path)}};
    struct cr_timeline_options options = {.all = true, .lines = 100000};
    char *text = NULL;
    size_t size;

    cr_cluster_run(&setup, 1, r);
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    cr_timeline_print(timeline, &options, to);
    (void)fclose(to);
    cr_timeline_delete(&timeline);
    sim_fiber_trim();
    return text;
}

static void timeline__shop__tells_its_calls_and_operations(void **state)
{
    (void)state;
    struct cr_result r;
    char *text = tell(PLUGINS "/shop.so", &r);

    assert_false(r.failed);
    assert_non_null(strstr(text, "reads \"stock/"));
    assert_non_null(strstr(text, "will write \"order/1\""));
    assert_non_null(strstr(text, " to customer "));
    free(text);
}

static void timeline__broken_shop__tells_that_it_aborts_what_it_read(void **state)
{
    (void)state;
    struct cr_result r;
    char *text = tell(PLUGINS "/shop_broken.so", &r);
    const char *reads = strstr(text, "reads \"stock/");

    assert_non_null(reads);
    assert_non_null(strstr(reads, "aborts\n"));
    free(text);
}

static void shop_and_built_in__in_one_run__pass(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 30, .faults = CR_FAULTS_ALL};
    struct cr_result r;

    assert_int_equal(0, cr_work_open(PLUGINS "/shop.so,cycle,skew", setup.workload));
    assert_int_equal(0, sweep(&setup, SEEDS / 2, &r));
    sim_fiber_trim();
}

/* ---- histories ---- */

static void cluster_run__history_wanted__files_for_elle(void **state)
{
    (void)state;
    char folder[] = "/tmp/cairn-history-XXXXXX", path[64], line[256] = "";

    assert_non_null(mkdtemp(folder));
    struct cr_setup setup = {.ops = 20, .faults = CR_FAULTS_ALL, .history = folder,
        .workload = {cr_work_find("list-append"), cr_work_find("bank")}};
    struct cr_result r;
    cr_cluster_run(&setup, 1, &r);
    assert_int_equal(0, r.history_error);
    (void)snprintf(path, sizeof(path), "%s/list-append.edn", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    assert_non_null(strstr(line, ":type :invoke"));
    (void)fclose(f);
    assert_int_equal(0, unlink(path));
    (void)snprintf(path, sizeof(path), "%s/list-append.json", folder);
    assert_int_equal(0, unlink(path));
    assert_int_equal(0, rmdir(folder)); /* none of the bank, which notes nothing */
    setup.history = "/nowhere";
    cr_cluster_run(&setup, 1, &r);
    assert_int_equal(-ENOENT, r.history_error);
    sim_fiber_trim();
}

/* ---- those built in ---- */

static void built_in__each_alone__passes_and_commits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CR_WORK_COUNT; i++) {
        const struct cairn_workload *w = cr_work_at(i);
        struct cr_setup setup = {.ops = 25, .faults = CR_FAULTS_ALL, .workload = {w}};
        struct cr_result r;
        uint64_t seed = sweep(&setup, i == CR_WORK_LARGE ? SEEDS / 4 : SEEDS, &r);
        if (seed != 0)
            fail_msg("%s, seed %lu: %s", w->name, seed, r.failure);
        print_message("%-12s committed %lu\n", w->name, r.counts.committed);
        assert_true(r.counts.committed > 200);
    }
    sim_fiber_trim();
}

/* In a cluster of small rings and chunks it takes what there is. */
static void large__small_rings__writes_smaller_values(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 25, .work = 1u << CR_WORK_LARGE};
    struct cr_result r;

    assert_int_equal(0, sweep(&setup, SEEDS / 2, &r));
    assert_true(r.counts.committed > 200);
    sim_fiber_trim();
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cr_work_open__names__parts),
        cmocka_unit_test(cr_work_open__wrong_text__says_what_there_is),
        cmocka_unit_test(cr_work_at__all__are_complete),
        cmocka_unit_test(cr_work_load__wrong_objects__told_what_to_do),
        cmocka_unit_test(cr_work_load__built_in_as_object__runs),
        cmocka_unit_test(cr_work_load__linked_with_libcairn__finds_this_programs_functions),
        cmocka_unit_test(cr_work_load__object_and_built_in__are_the_same_run),
        cmocka_unit_test(example__shop__passes),
        cmocka_unit_test(example__broken_shop__is_caught),
        cmocka_unit_test(timeline__shop__tells_its_calls_and_operations),
        cmocka_unit_test(timeline__broken_shop__tells_that_it_aborts_what_it_read),
        cmocka_unit_test(shop_and_built_in__in_one_run__pass),
        cmocka_unit_test(cluster_run__history_wanted__files_for_elle),
        cmocka_unit_test(built_in__each_alone__passes_and_commits),
        cmocka_unit_test(large__small_rings__writes_smaller_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
