/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_resources.c: F20 clocks that jump, stand still, run at other rates or show other times
 * than those of other hosts; F26 an allocation fails, each one of a small run in turn, F13 a call
 * of the fabric. And I6: recovery comes to the same state in whatever order.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_slot.h"

#define GROW 60u /* new keys: several splits and a chunk or two */

static void take(struct cr_faults *f, struct cr_stand_variant *v)
{
    memset(v, 0, sizeof(*v));
    v->seed = f->options.seed;
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        v->bytes[i] = cr_stand_copy(f->stand, i, false);
}

static void drop(struct cr_stand_variant *v)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_free(v->bytes[i]);
}

/* Nothing at all may be seen of a clock: every value is right, and a write goes through. */
static void must_be_right(struct cr_stand_outcome *o)
{
    if ((o->right == CR_STAND_KEYS && o->write == 0 && o->damages == 0) || o->what[0] != '\0')
        return;
    o->hung = true;
    snprintf(o->what, sizeof(o->what),
        "%u of %u reads are right (%s), a write gave %s, %lu damages", o->right, CR_STAND_KEYS,
        o->error == 0 ? "0" : cairn_error_name(o->error),
        o->write == 0 ? "0" : cairn_error_name(o->write), o->damages);
}

static void clock_case(struct cr_faults *f, const char *what, const struct cr_stand_clock *clock)
{
    struct cr_faults_tally *t = cr_faults_tally(f, "F20", what);
    struct cr_stand_variant v;
    struct cr_stand_outcome o;

    if (t == NULL || cr_faults_time_is_up(f))
        return;
    take(f, &v);
    memcpy(v.clock, clock, sizeof(v.clock));
    cr_stand_try(f->stand, &v, &o);
    must_be_right(&o);
    cr_faults_count(f, t, &o, false, what);
    drop(&v);
}

static void change_clocks(struct cr_faults *f)
{
    static const int64_t jumps[] = {3600, 10 * 365 * 86400, -86400, -1700000000};
    static const uint64_t ahead[] = {SIM_MS, 1000 * SIM_MS, UINT64_C(1) << 53};
    static const int32_t ppm[] = {200, 20000, 500000, -200, -20000, -500000};
    const uint32_t all = CR_STAND_NODES + 1;

    for (uint32_t at = 0; at <= all; at++) {
        /* One after the other, then all at once. */
        struct cr_stand_clock clock[CR_STAND_NODES + 1];
        for (uint32_t k = 0; k < CN_ARRAY_SIZE(jumps); k++) {
            memset(clock, 0, sizeof(clock));
            for (uint32_t i = 0; i < all; i++)
                clock[i].wall_jump_s = at == i || at == all ? jumps[k] : 0;
            clock_case(f, "a wall clock jumps", clock);
        }
        memset(clock, 0, sizeof(clock));
        for (uint32_t i = 0; i < all; i++)
            clock[i].wall_frozen = at == i || at == all;
        clock_case(f, "a wall clock stands still", clock);
        for (uint32_t k = 0; k < CN_ARRAY_SIZE(ahead); k++) {
            memset(clock, 0, sizeof(clock));
            for (uint32_t i = 0; i < all; i++)
                clock[i].ahead = at == i || at == all ? ahead[k] : 0;
            clock_case(f, "a monotonic clock is ahead", clock);
        }
        for (uint32_t k = 0; k < CN_ARRAY_SIZE(ppm); k++) {
            memset(clock, 0, sizeof(clock));
            for (uint32_t i = 0; i < all; i++)
                clock[i].ppm = at == i || at == all ? ppm[k] : 0;
            clock_case(f, "a monotonic clock drifts", clock);
        }
    }
}

/* ---- I6 ---- */

/* Whoever starts first, however the steps of all interleave: the same state comes of it. */
static void start_in_any_order(struct cr_faults *f)
{
    static const uint64_t late[][CR_STAND_NODES] = {
        {0, 0}, {0, 30 * SIM_US}, {30 * SIM_US, 0}, {0, 3 * SIM_MS}, {3 * SIM_MS, 0}};
    struct cr_faults_tally *t = cr_faults_tally(f, "I6", "nodes start in any order");
    uint64_t canonical = 0;

    for (uint32_t i = 0; t != NULL && i < (f->options.exhaustive ? 1000u : 20u); i++) {
        struct cr_stand_variant v;
        struct cr_stand_outcome o;
        char how[32];
        if (cr_faults_time_is_up(f))
            return;
        take(f, &v);
        v.seed = f->options.seed + i;
        memcpy(v.late_ns, late[i % CN_ARRAY_SIZE(late)], sizeof(v.late_ns));
        cr_stand_try(f->stand, &v, &o);
        must_be_right(&o);
        canonical = i == 0 ? o.canonical : canonical;
        if (o.canonical != canonical && o.what[0] == '\0') {
            o.hung = true;
            snprintf(o.what, sizeof(o.what), "another state than in the first order");
        }
        snprintf(how, sizeof(how), "order %u", i);
        cr_faults_count(f, t, &o, false, how);
        drop(&v);
    }
}

/* However a node paces itself, nothing is seen of it but how soon it answers. */
static void pace_nodes(struct cr_faults *f)
{
    static const struct cn_pace paces[] = {
        {CN_PACE_POLL, 700, 2000, 1000}, CN_PACE_DEFAULT, {CN_PACE_ADAPTIVE, 700, 10, 20},
        {CN_PACE_EVENT, 700, 10, 20}};
    struct cr_faults_tally *t = cr_faults_tally(f, "I13", "nodes that poll, linger and sleep");

    for (uint32_t i = 0; t != NULL && i < CN_ARRAY_SIZE(paces) && !cr_faults_time_is_up(f); i++) {
        struct cr_stand_variant v;
        struct cr_stand_outcome o;
        char how[32];
        take(f, &v);
        v.pace = &paces[i];
        v.grow = GROW;
        cr_stand_try(f->stand, &v, &o);
        must_be_right(&o);
        (void)snprintf(how, sizeof(how), "pace %u", i);
        cr_faults_count(f, t, &o, false, how);
        drop(&v);
    }
}

/* Epochs that were retired up to a time; *ret_last: when the last one was. */
static uint32_t count_retired(
    struct cr_faults *f, struct cr_stand_variant *v, uint64_t until_s, uint64_t *ret_last)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        struct pm_retired_table *table = NULL;
        struct pm_pool pool;
        if (cr_stand_look(f->stand, v->bytes[i], &pool) != 0 || pm_retired_open(&pool, &table) != 0)
            continue;
        for (const struct pm_retired *r = pm_retired_next(table, NULL); r != NULL;
             r = pm_retired_next(table, r)) {
            n += r->retired_s <= until_s;
            *ret_last = cn_max64(*ret_last, r->retired_s);
        }
        pm_retired_close(&table);
    }
    return n;
}

/* Verdicts are kept for their time, and forgotten behind it, when all nodes have let them go. */
static void forget_verdicts(struct cr_faults *f)
{
    static const struct { const char *how; int64_t jump_s; bool down, kept; } cases[] = {
        {"not yet", 3600, false, true}, {"in time", 2 * 86400, false, false},
        {"one node is down", 2 * 86400, true, true}};
    struct cr_faults_tally *t = cr_faults_tally(f, "F20", "how long verdicts are kept");

    for (uint32_t i = 0; t != NULL && i < CN_ARRAY_SIZE(cases) && !cr_faults_time_is_up(f); i++) {
        struct cr_stand_variant v;
        struct cr_stand_outcome o;
        uint64_t last = 0, now = 0;
        take(f, &v);
        uint32_t before = count_retired(f, &v, UINT64_MAX, &last);
        for (uint32_t k = 0; k <= CR_STAND_NODES; k++)
            v.clock[k].wall_jump_s = cases[i].jump_s;
        v.write_back = true;
        v.rest_ns = 4000 * SIM_MS;
        v.late_ns[1] = cases[i].down ? UINT64_C(3600000) * SIM_MS : 0;
        cr_stand_try(f->stand, &v, &o);
        if (!cases[i].down)
            must_be_right(&o);
        uint32_t after = count_retired(f, &v, last, &now);
        if (before == 0 || after != (cases[i].kept ? before : 0)) {
            o.hung = true;
            (void)snprintf(o.what, sizeof(o.what), "of %u verdicts %u are kept", before, after);
        }
        cr_faults_count(f, t, &o, false, cases[i].how);
        drop(&v);
    }
}

/* ---- F26 ---- */

/* Something fails once, as the variant says; then what is left of the pools is started again, and
 * has to be all right: no lock, no half done record. Returns whether it came to that. `goes_on`:
 * who goes on after it must come to an end with everything. */
static bool fail_once(struct cr_faults *f, struct cr_faults_tally *t, struct cr_stand_variant *v,
    bool goes_on, const char *how)
{
    struct cr_stand_outcome o, after;

    v->grow = GROW;
    v->write_back = true;
    cr_stand_try(f->stand, v, &o);
    bool reached = o.alloc_failed || o.call_failed;
    if (reached) {
        if (goes_on && !cr_stand_refused(&o) && o.write != 0 && o.failed < CR_STAND_KEYS &&
            o.what[0] == '\0') {
            o.hung = true;
            snprintf(o.what, sizeof(o.what), "a write behind it gave %s",
                cairn_error_name(o.write));
        }
        cr_faults_count(f, t, &o, false, how);
        v->fail_at = v->grow = 0;
        v->fail.call = SIM_CALL_NONE;
        v->seed += 1; /* other nonces */
        cr_stand_try(f->stand, v, &after);
        must_be_right(&after);
        cr_faults_count(f, t, &after, false, how);
    }
    return reached;
}

static bool fail_allocation(
    struct cr_faults *f, struct cr_faults_tally *t, uint32_t actor, uint64_t number)
{
    struct cr_stand_variant v;
    char how[64];

    take(f, &v);
    v.fail_actor = actor;
    v.fail_at = number;
    snprintf(how, sizeof(how), "allocation %lu", number);
    bool reached = fail_once(f, t, &v, true, how);
    drop(&v);
    return reached;
}

static void fail_allocations(struct cr_faults *f)
{
    static const char *const names[] = {"of node 1", "of node 2", "of the client"};

    for (uint32_t actor = 0; actor <= CR_STAND_NODES; actor++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F26", names[actor]);
        for (uint64_t n = 1; t != NULL && !cr_faults_time_is_up(f); n++)
            if (!fail_allocation(f, t, actor, n))
                break;
    }
}

/* ---- F13 ---- */

/* What a node cannot cut off it must not decide about: keys may stay locked until it is started
 * again. */
static bool fail_call(struct cr_faults *f, struct cr_faults_tally *t, uint32_t actor,
    enum sim_call call, uint64_t number)
{
    struct cr_stand_variant v;
    char how[64];

    take(f, &v);
    v.fail.actor = actor;
    v.fail.call = call;
    v.fail.at = number;
    v.close = call == SIM_CALL_FENCE || call == SIM_CALL_REVOKE;
    v.rest_ns = call == SIM_CALL_REVOKE ? 200 * SIM_MS : 0; /* it is tried again now and then */
    snprintf(how, sizeof(how), "%s %lu", sim_call_name(call), number);
    bool reached = fail_once(f, t, &v, !v.close, how);
    drop(&v);
    return reached;
}

static void fail_calls(struct cr_faults *f)
{
    static const char *const names[] = {
        "calls of node 1's fabric", "calls of node 2's fabric", "calls of the client's fabric"};

    for (uint32_t actor = 0; actor <= CR_STAND_NODES; actor++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F13", names[actor]);
        for (uint32_t call = 1; t != NULL && call < SIM_CALL_COUNT; call++)
            for (uint64_t n = 1; !cr_faults_time_is_up(f); n++)
                if (!fail_call(f, t, actor, (enum sim_call)call, n))
                    break;
    }
}

void cr_faults_resources(struct cr_faults *f)
{
    change_clocks(f);
    forget_verdicts(f);
    start_in_any_order(f);
    pace_nodes(f);
    fail_allocations(f);
    fail_calls(f);
}
