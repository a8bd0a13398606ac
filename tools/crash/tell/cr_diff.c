/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_diff.c: comparing two recordings of one seed.
 */
#include "tools/crash/tell/cr_diff.h"

#include "tools/crash/cluster/cr_timeline.h"

#define CONTEXT 8u

struct recording {
    struct cr_result result;
    struct cr_timeline *timeline;
};

static void record(const struct cr_setup *setup, uint64_t seed, struct recording *ret)
{
    struct cr_setup s = *setup;

    ret->timeline = cr_timeline_new();
    s.record = true;
    s.timeline = ret->timeline;
    s.verbose = false;
    cr_cluster_run(&s, seed, &ret->result);
}

static void release(struct recording *r)
{
    sim_free(r->result.tape);
    cr_timeline_delete(&r->timeline);
}

/* ---- choices ---- */

static bool same_choice(const struct sim_choice *a, const struct sim_choice *b)
{
    return strcmp(a->label, b->label) == 0 && a->value == b->value && a->bound == b->bound &&
        a->who == b->who;
}

static void print_choice(const char *title, const struct cr_result *r, size_t at, FILE *to)
{
    const struct sim_choice *c = &r->tape[at];

    if (at < r->tape_count)
        fprintf(to, "%s choice %zu: %s = %u of %u, by %x\n", title, at, c->label, c->value,
            c->bound, c->who);
    else
        fprintf(to, "%s choice %zu: none, the run has ended\n", title, at);
}

static void diff_choices(const struct cr_result *a, const struct cr_result *b, FILE *to)
{
    size_t n = a->tape_count < b->tape_count ? a->tape_count : b->tape_count, at = 0;

    while (at < n && same_choice(&a->tape[at], &b->tape[at]))
        at++;
    if (at == a->tape_count && at == b->tape_count) {
        fprintf(to, "All %zu choices are the same.\n", at);
        return;
    }
    fprintf(to, "The first choice that differs:\n");
    for (size_t i = at > CONTEXT ? at - CONTEXT : 0; i < at; i++)
        print_choice("   both  ", a, i, to);
    print_choice("-> first ", a, at, to);
    print_choice("-> second", b, at, to);
}

/* ---- moments ---- */

static bool same_moment(const struct cr_moment *a, const struct cr_moment *b)
{
    return a->ns == b->ns && a->kind == b->kind && a->actor == b->actor && a->peer == b->peer &&
        strcmp(a->text, b->text) == 0;
}

static void print_moment(const char *title, const struct cr_timeline *t, size_t at, FILE *to)
{
    const struct cr_moment *m = &t->moment[at];

    if (at < t->count)
        fprintf(to, "%s %12.3f us %-6s %s: %s\n", title, (double)m->ns / 1e3,
            m->actor < t->actor_count ? t->actor[m->actor].name : "-", sim_moment_name(m->kind),
            m->text);
    else
        fprintf(to, "%s nothing, the run has ended\n", title);
}

static void diff_moments(const struct cr_timeline *a, const struct cr_timeline *b, FILE *to)
{
    size_t n = a->count < b->count ? a->count : b->count, at = 0;

    while (at < n && same_moment(&a->moment[at], &b->moment[at]))
        at++;
    if (at == a->count && at == b->count) {
        fprintf(to, "All %zu moments are the same.\n", at);
        return;
    }
    fprintf(to, "The first moment that differs:\n");
    for (size_t i = at > CONTEXT ? at - CONTEXT : 0; i < at; i++)
        print_moment("   both  ", a, i, to);
    print_moment("-> first ", a, at, to);
    print_moment("-> second", b, at, to);
}

bool cr_diff_unseed(const struct cr_setup *setup, uint64_t seed, FILE *to)
{
    struct recording *r = sim_calloc(2, sizeof(*r));

    record(setup, seed, &r[0]);
    record(setup, seed, &r[1]);
    bool same = r[0].result.hash == r[1].result.hash;
    if (!same) {
        fprintf(to, "Seed %lu ran twice and was not the same: unseed %016lx and %016lx.\n", seed,
            r[0].result.hash, r[1].result.hash);
        diff_choices(&r[0].result, &r[1].result, to);
        diff_moments(r[0].timeline, r[1].timeline, to);
    }
    release(&r[0]);
    release(&r[1]);
    sim_free(r);
    return same;
}
