/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: faults beyond crashes do no harm that nobody notices. Method: the fault campaign's bounded
 * slice over a test stand (cr_faults.h), each kind with what it must come to; whole clusters under
 * clocks that disagree, a node that is slow, pools that run full, rubbish where words were lost.
 * The stand is tried on damage whose outcome is known before: it must be able to see each.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store.h"
#include "tests/sim/sw_sweep.h"
#include "tools/crash/faults/cr_faults.h"

/* ---- the stand ---- */

static struct cr_stand *stand;

static int setup(void **state)
{
    char why[256];

    (void)state;
    stand = cr_stand_new(1, NULL, why, sizeof(why));
    if (stand == NULL)
        print_error("%s\n", why);
    return stand == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    cr_stand_delete(&stand);
    return 0;
}

static struct cr_stand_variant take(void)
{
    struct cr_stand_variant v = {.seed = 5};

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        v.bytes[i] = cr_stand_copy(stand, i, false);
    return v;
}

static struct cr_stand_outcome try_and_drop(struct cr_stand_variant *v)
{
    struct cr_stand_outcome o;

    cr_stand_try(stand, v, &o);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_free(v->bytes[i]);
    return o;
}

static void stand__untouched__all_right(void **state)
{
    (void)state;
    struct cr_stand_variant v = take();
    struct cr_stand_outcome o = try_and_drop(&v);

    assert_int_equal(CR_STAND_KEYS, o.right);
    assert_int_equal(0, o.failed + o.stale + o.wrong + o.hung + o.damages + o.rejected);
    assert_int_equal(0, o.write);
    assert_true(stand->records > 4);
}

static void stand__same_variant_twice__same_run(void **state)
{
    (void)state;
    struct cr_stand_variant v = take(), w = take();
    struct cr_stand_outcome a = try_and_drop(&v), b = try_and_drop(&w);

    assert_int_equal(a.hash, b.hash);
    assert_int_equal(a.canonical, b.canonical);
    w = take();
    w.seed++;
    b = try_and_drop(&w);
    assert_int_not_equal(a.hash, b.hash);
    assert_int_equal(a.canonical, b.canonical);
}

/* The bytes of a value in a pool's heap; NULL: not there. */
static uint8_t *find_value(uint8_t *bytes, const struct cr_stand_key *k, uint32_t value)
{
    uint8_t expected[CR_STAND_VALUE_MAX];
    uint32_t size = cr_stand_value(k, value, expected);
    uint64_t heap = stand->super[k->node].heap_off;

    return memmem(bytes + heap, stand->pool_size - heap, expected, size);
}

static const struct cr_stand_key *find_key(bool logged, bool alone)
{
    for (uint32_t i = 0; i < CR_STAND_KEYS; i++)
        if (stand->key[i].value != 0 && stand->key[i].logged == logged &&
            (!logged || stand->key[i].alone == alone))
            return &stand->key[i];
    fail_msg("no such key");
    return NULL;
}

/* A change that no checksum sees, for it is mended: the stand must see it. */
static void stand__value_changed_and_mended__wrong(void **state)
{
    (void)state;
    const struct cr_stand_key *k = find_key(false, false);
    struct cr_stand_variant v = take();
    uint8_t *value = find_value(v.bytes[k->node], k, k->value);
    uint64_t off = (uint64_t)(value - v.bytes[k->node]) - PM_ITEM_HEADER_SIZE - 8;
    struct pm_item_pm item;

    assert_non_null(value);
    value[k->size - 1] ^= 1;
    memcpy(&item, v.bytes[k->node] + off, sizeof(item));
    item.head.crc = le32_make(pm_object_crc(v.bytes[k->node] + off,
        pm_item_size(8, k->size), off, stand->crc_seed[k->node]));
    memcpy(v.bytes[k->node] + off, &item, sizeof(item));
    struct cr_stand_outcome o = try_and_drop(&v);
    assert_int_equal(1, o.wrong);
    assert_int_equal(CR_STAND_KEYS - 1, o.right);
    assert_non_null(strstr(o.what, "a value that nobody stored"));
}

/* Looking again and asking the node take about as long as a reader waits here: the time may be over
 * before it is sure. */
static void stand__value_changed__read_fails(void **state)
{
    (void)state;
    const struct cr_stand_key *k = find_key(false, false);
    uint32_t corrupt = 0;

    for (uint32_t i = 0; i < 8; i++) {
        struct cr_stand_variant v = take();
        uint8_t *value = find_value(v.bytes[k->node], k, k->value);
        v.seed += i;
        assert_non_null(value);
        value[k->size - 1] ^= 1;
        struct cr_stand_outcome o = try_and_drop(&v);
        assert_int_equal(0, o.wrong);
        assert_int_equal(1, o.failed);
        corrupt += o.error == CAIRN_E_CORRUPT_ITEM;
        assert_true(o.error == CAIRN_E_CORRUPT_ITEM || o.error == CAIRN_E_TIMEOUT);
    }
    assert_true(corrupt > 0);
}

/* ---- the campaign ---- */

struct campaign {
    struct cr_faults faults;
    struct cr_report report;
};

static struct campaign *run(const char *only, uint64_t seed)
{
    struct campaign *c = sim_calloc(1, sizeof(*c));
    struct cr_faults_options options = {.seed = seed, .only = only};

    cr_report_init(&c->report);
    assert_true(cr_faults_begin(&c->faults, &options, &c->report));
    cr_faults_each(&c->faults);
    cr_faults_print(&c->faults, stdout);
    cr_faults_end(&c->faults);
    assert_int_equal(0, c->report.violations);
    assert_true(c->faults.tally_count > 0);
    for (uint32_t i = 0; i < c->faults.tally_count; i++)
        assert_int_equal(0, c->faults.tally[i].silent);
    return c;
}

static const struct cr_faults_tally *tally(const struct campaign *c, const char *what)
{
    for (uint32_t i = 0; i < c->faults.tally_count; i++)
        if (strcmp(c->faults.tally[i].what, what) == 0)
            return &c->faults.tally[i];
    fail_msg("no tally \"%s\"", what);
    return NULL;
}

/* Of what has a checksum: nothing passes, whatever the place of the damage. */
static void check_guarded_zones(const struct campaign *c)
{
    static const char *const zones[] = {"superblock", "index roots"};

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(zones); i++) {
        const struct cr_faults_tally *t = tally(c, zones[i]);
        assert_true(t->cases > 0);
        assert_int_equal(t->cases, t->refused);
    }
    assert_int_equal(tally(c, "slot header, one copy")->cases,
        tally(c, "slot header, one copy")->right);
    assert_int_equal(tally(c, "dynamic part, one copy")->cases,
        tally(c, "dynamic part, one copy")->right);
    assert_true(tally(c, "items")->detected > 0);
    assert_true(tally(c, "buckets")->detected > 0 || tally(c, "buckets")->right > 0);
}

static void faults__poisoned_lines__detected(void **state)
{
    (void)state;
    struct campaign *c = run("F14", 1);

    check_guarded_zones(c);
    assert_true(tally(c, "records not applied")->refused > 0);
    assert_int_equal(0, tally(c, "records not applied")->reported);
    sim_free(c);
}

static void faults__flipped_bits__detected(void **state)
{
    (void)state;
    struct campaign *c = run("F15", 1);

    check_guarded_zones(c);
    assert_true(tally(c, "records not applied")->refused > 0);
    assert_int_equal(0, tally(c, "records not applied")->reported);
    assert_int_equal(2, tally(c, "a damaged record, served all the same")->reported);
    sim_free(c);
}

static void faults__misdirected_writes__detected(void **state)
{
    (void)state;
    struct campaign *c = run("F16", 1);

    assert_true(tally(c, "items")->detected > 0);
    assert_true(tally(c, "superblock")->refused > 0);
    sim_free(c);
}

static void faults__lost_writes__resolved_or_reported(void **state)
{
    (void)state;
    struct campaign *c = run("F17", 1);

    assert_true(tally(c, "records not applied")->cases > 0);
    sim_free(c);
}

static void check_all_right(const char *fault, uint64_t cases)
{
    struct campaign *c = run(fault, 1);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < c->faults.tally_count; i++) {
        const struct cr_faults_tally *t = &c->faults.tally[i];
        /* In some of these a node is away: then reads fail. */
        bool away = strstr(t->what, "verdicts are kept") != NULL ||
            strstr(t->what, "out of place") != NULL || strstr(t->what, "that lie") != NULL;
        assert_int_equal(t->cases, t->right + (away ? t->detected : 0));
        sum += t->cases;
    }
    assert_true(sum >= cases);
    sim_free(c);
}

static void faults__log_begins_anywhere__nothing_lost_or_twice(void **state)
{
    (void)state;
    check_all_right("F18", 2 * 128);
}

static void faults__large_counters__work(void **state)
{
    (void)state;
    check_all_right("F19", 24);
}

static void faults__clocks__not_seen(void **state)
{
    (void)state;
    check_all_right("F20", 56);
}

static void faults__any_order_of_starts__same_state(void **state)
{
    (void)state;
    check_all_right("I6", 20);
}

static void faults__attacker__no_effect(void **state)
{
    (void)state;
    check_all_right("F25", 6);
}

/* It is not detected: docs/crash-faults.md says why, and what to do. */
static void faults__older_copy__served(void **state)
{
    (void)state;
    struct campaign *c = run("F21", 1);

    assert_int_equal(1, tally(c, "older copy of n1")->unseen);
    assert_int_equal(1, tally(c, "older copies of both")->unseen);
    sim_free(c);
}

static void faults__wrong_pools__refused(void **state)
{
    (void)state;
    struct campaign *c = run("F22", 1);

    assert_true(c->faults.tally_count >= 11);
    for (uint32_t i = 0; i < c->faults.tally_count; i++)
        assert_int_equal(c->faults.tally[i].cases, c->faults.tally[i].refused);
    sim_free(c);
}

static void faults__each_allocation_fails__clean_error_and_no_residue(void **state)
{
    (void)state;
    struct campaign *c = run("F26", 1);

    assert_true(tally(c, "of node 1")->refused > 10);
    assert_true(tally(c, "of node 1")->right > 10);
    assert_true(tally(c, "of the client")->cases > 0);
    sim_free(c);
}

/* Of the node, of its peers, of its own memory; and while somebody lies to it. */
static void faults__each_fabric_call_fails__clean_error_and_no_residue(void **state)
{
    (void)state;
    struct campaign *c = run("F13", 1);
    const struct cr_faults_tally *node = tally(c, "calls of node 1's fabric");

    assert_true(node->refused > 10);
    assert_true(node->right > 50);
    assert_int_equal(node->cases, node->right + node->refused);
    assert_true(tally(c, "calls of the client's fabric")->cases > 10);
    assert_true(tally(c, "calls while a peer lies")->right >= 6);
    sim_free(c);
}

/* A call that is to fail and is not made is told: such a case would test nothing. */
static void call__that_fails__is_made_as_often_as_it_is_counted(void **state)
{
    (void)state;
    char why[256];
    struct cr_stand *s = cr_stand_new(1, NULL, why, sizeof(why));

    assert_non_null(s);
    for (uint32_t call = 1; call < SIM_CALL_COUNT; call++) {
        struct cr_stand_variant v = {.seed = 1, .quick = true};
        struct cr_stand_outcome o;
        v.fail.call = (enum sim_call)call;
        v.fail.at = 100000;
        for (uint32_t i = 0; i < CR_STAND_NODES; i++)
            v.bytes[i] = cr_stand_copy(s, i, false);
        cr_stand_try(s, &v, &o);
        assert_false(o.call_failed);
        assert_int_equal(CR_STAND_KEYS, o.right);
        for (uint32_t i = 0; i < CR_STAND_NODES; i++)
            sim_free(v.bytes[i]);
    }
    cr_stand_delete(&s);
}

static void faults__same_seed_twice__same_runs(void **state)
{
    (void)state;
    struct campaign *a = run("F15", 2), *b = run("F15", 2), *c = run("F15", 3);

    assert_int_equal(a->report.unseed, b->report.unseed);
    assert_int_not_equal(a->report.unseed, c->report.unseed);
    sim_free(a);
    sim_free(b);
    sim_free(c);
}

/* One by one they are what they are together. */
static void name__each_of_them__all_cases(void **state)
{
    (void)state;
    struct cr_report all, each;
    struct cr_faults_options options = {.seed = 4};
    uint32_t count = 0;

    cr_report_init(&all);
    cr_report_init(&each);
    cr_faults_run(&options, &all);
    for (; cr_faults_name(count) != NULL; count++) {
        uint64_t before = each.recoveries;
        options.only = cr_faults_name(count);
        cr_faults_run(&options, &each);
        assert_true(each.recoveries > before);
    }
    assert_true(count >= 12);
    assert_int_equal(0, all.violations + each.violations);
    assert_true(all.recoveries > 1000);
    assert_true(each.recoveries > 1000);
}

/* ---- whole clusters ---- */

static void check_cluster(struct cr_setup *setup, struct sw_sweep *sweep)
{
    setup->ops = 20;
    setup->faults |= CR_FAULTS_ALL;
    sweep->first = 1;
    sweep->seconds = 60;
    bool good = sw_sweep("sim-cr_faults", setup, sweep);
    sw_sweep_print(sweep);
    assert_true(good);
    assert_true(sweep->counts.guarded > 0);
}

static void cluster__clocks_disagree__promises_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.faults = CR_FAULT_CLOCK};
    struct sw_sweep sweep = {.count = 100};

    check_cluster(&setup, &sweep);
}

static void cluster__one_node_is_slow__promises_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.faults = CR_FAULT_SLOW};
    struct sw_sweep sweep = {.count = 60};

    check_cluster(&setup, &sweep);
}

/* A slot that could not be sealed for want of memory stayed shut, and its keys locked. */
static void cluster__allocations_fail__promises_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.faults = CR_FAULT_MEMORY};
    struct sw_sweep sweep = {.count = 150};

    check_cluster(&setup, &sweep);
    assert_true(sweep.counts.allocations_failed > 200);
}

static void cluster__pools_run_full__promises_hold(void **state)
{
    (void)state;
    struct cr_setup setup = {.chunks = 7, .clients = 4};
    struct sw_sweep sweep = {.count = 100};

    check_cluster(&setup, &sweep);
    assert_true(sweep.counts.fulls > 0);
}

static void cluster__rubbish_where_words_were_lost__promises_hold(void **state)
{
    (void)state;
    /* Power fails while coordinators wait for their flushes. */
    struct cr_setup setup = {.garbage = true, .quick = true,
        .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}}};
    struct sw_sweep sweep = {.count = 100};

    check_cluster(&setup, &sweep);
    assert_true(sweep.counts.words_spoiled > 100);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stand__untouched__all_right),
        cmocka_unit_test(stand__same_variant_twice__same_run),
        cmocka_unit_test(stand__value_changed_and_mended__wrong),
        cmocka_unit_test(stand__value_changed__read_fails),
        cmocka_unit_test(faults__poisoned_lines__detected),
        cmocka_unit_test(faults__flipped_bits__detected),
        cmocka_unit_test(faults__misdirected_writes__detected),
        cmocka_unit_test(faults__lost_writes__resolved_or_reported),
        cmocka_unit_test(faults__log_begins_anywhere__nothing_lost_or_twice),
        cmocka_unit_test(faults__large_counters__work),
        cmocka_unit_test(faults__clocks__not_seen),
        cmocka_unit_test(faults__any_order_of_starts__same_state),
        cmocka_unit_test(faults__attacker__no_effect),
        cmocka_unit_test(faults__older_copy__served),
        cmocka_unit_test(faults__wrong_pools__refused),
        cmocka_unit_test(faults__each_allocation_fails__clean_error_and_no_residue),
        cmocka_unit_test(faults__each_fabric_call_fails__clean_error_and_no_residue),
        cmocka_unit_test(call__that_fails__is_made_as_often_as_it_is_counted),
        cmocka_unit_test(faults__same_seed_twice__same_runs),
        cmocka_unit_test(name__each_of_them__all_cases),
        cmocka_unit_test(cluster__clocks_disagree__promises_hold),
        cmocka_unit_test(cluster__one_node_is_slow__promises_hold),
        cmocka_unit_test(cluster__allocations_fail__promises_hold),
        cmocka_unit_test(cluster__pools_run_full__promises_hold),
        cmocka_unit_test(cluster__rubbish_where_words_were_lost__promises_hold),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
