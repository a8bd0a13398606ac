/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_shrink.c: running candidates, keeping the best one, the order of the passes.
 *
 * What is kept of a candidate that fails is what it really chose: the recorded tape without what is
 * calm. So choices that nobody asked for are gone, and the list only ever gets shorter.
 */
#include "tools/crash/tell/cr_shrink_internal.h"

#include <time.h>

#define RUNS_DEFAULT 6000u
#define NEW_SEEDS_DEFAULT 100u
#define ROUNDS_MAX 6u
#define OTHERS_MAX 6u
#define SEED_OTHERS 1000u

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t operations_of(const struct cr_setup *setup, const struct cr_result *r)
{
    return setup->body != NULL ? 1 : r->counts.ops;
}

static void measure(const struct cr_setup *setup, const struct cr_result *r, size_t listed,
    struct cr_shrink_size *ret)
{
    *ret = (struct cr_shrink_size){.nodes = r->node_count, .clients = r->client_count,
        .operations = operations_of(setup, r),
        .faults = r->counts.crashes_node + r->counts.crashes_client + r->counts.pauses +
            r->counts.partitions + r->counts.breaks + r->stats.hazard_pauses,
        .words_lost = r->words_lost, .choices = r->choices, .listed = listed,
        .events = r->stats.events};
}

/* The recorded tape becomes the best one's. */
static void take(struct shrink *s, const struct cr_setup *setup, uint64_t seed,
    struct cr_result *r)
{
    struct cr_shrink_result *best = s->best;
    size_t n = 0;

    for (size_t i = 0; i < r->tape_count; i++)
        if (!r->tape[i].calm)
            r->tape[n++] = r->tape[i];
    sim_free(best->choice);
    best->choice = r->tape;
    best->choice_count = n;
    r->tape = NULL;
    best->setup = *setup;
    best->setup.record = false;
    best->setup.calm_rest = true;
    best->setup.replay = best->choice;
    best->setup.replay_count = n;
    best->seed = seed;
    best->hash = r->hash;
    memcpy(best->failure, r->failure, sizeof(best->failure));
    memcpy(best->failure_class, r->failure_class, sizeof(best->failure_class));
    measure(setup, r, n, &best->after);
}

static bool may_run(struct shrink *s)
{
    struct cr_shrink_result *best = s->best;

    if (s->stop)
        return false;
    best->seconds = now() - s->begun;
    if (best->runs >= s->runs_max ||
        (s->options->seconds > 0 && best->seconds >= s->options->seconds))
        s->stop = best->cut_short = true;
    if (!s->stop && s->options->progress != NULL) {
        struct cr_shrink_progress p = {s->phase, best->runs, s->runs_max, best->seconds,
            best->after};
        if (!s->options->progress(s->options->arg, &p))
            s->stop = best->cut_short = true;
    }
    return !s->stop;
}

static bool run(struct shrink *s, const struct cr_setup *setup, uint64_t seed)
{
    struct cr_setup candidate = *setup;
    struct cr_result r;

    if (!may_run(s))
        return false;
    s->best->runs++;
    candidate.record = true;
    candidate.verbose = false;
    candidate.timeline = NULL;
    /* A candidate that goes round in circles is none. */
    candidate.events_max = 4 * s->best->before.events + 100000;
    cr_cluster_run(&candidate, seed, &r);
    bool same = r.failed && strcmp(r.failure_class, s->best->failure_class) == 0;
    if (same) {
        candidate.events_max = 0;
        take(s, &candidate, seed, &r);
    }
    sim_free(r.tape);
    return same;
}

bool cr_shrink_try(struct shrink *s, const struct cr_setup *setup, uint64_t seed,
    const struct sim_choice *choice, size_t count)
{
    struct cr_setup candidate = *setup;

    candidate.calm_rest = true;
    candidate.replay = choice;
    candidate.replay_count = count;
    return run(s, &candidate, seed);
}

bool cr_shrink_try_seed(struct shrink *s, const struct cr_setup *setup, uint64_t seed)
{
    struct cr_setup candidate = *setup;

    candidate.calm_rest = false;
    candidate.replay = NULL;
    candidate.replay_count = 0;
    return run(s, &candidate, seed);
}

/* The run as it was given: false: it does not fail. */
static bool reproduce(struct shrink *s)
{
    const struct cr_shrink_options *o = s->options;
    struct cr_setup setup = *o->setup;
    struct cr_result r;

    setup.record = true;
    setup.verbose = false;
    setup.timeline = NULL;
    s->best->runs++;
    cr_cluster_run(&setup, o->seed, &r);
    if (r.failed) {
        size_t listed = 0;
        for (size_t i = 0; i < r.tape_count; i++)
            listed += !r.tape[i].calm;
        measure(&setup, &r, listed, &s->best->before);
        take(s, &setup, o->seed, &r);
    }
    sim_free(r.tape);
    return s->best->reproduced = r.failed;
}

/* Twice the same, and as recorded. */
static void verify(struct shrink *s)
{
    struct cr_shrink_result *best = s->best;

    best->verified = true;
    for (int i = 0; i < 2; i++) {
        struct cr_result r;
        cr_cluster_run(&best->setup, best->seed, &r);
        best->runs++;
        best->verified = best->verified && r.failed && r.hash == best->hash &&
            strcmp(r.failure_class, best->failure_class) == 0;
        sim_free(r.tape);
    }
}

/* What a reader has to follow. */
static uint64_t weight(const struct cr_shrink_size *z)
{
    return 40 * z->operations + 20 * z->faults + 10 * (z->nodes + z->clients) + 2 * z->listed;
}

static void reduce(struct shrink *s)
{
    for (uint32_t round = 0; round < ROUNDS_MAX && !s->stop; round++) {
        s->phase = "tape";
        bool better = cr_shrink_tape(s);
        s->phase = "operations";
        better = cr_shrink_operations(s) || better;
        s->phase = "set-up";
        better = cr_shrink_setup(s, 0) || better;
        s->phase = "images";
        better = cr_shrink_images(s) || better;
        if (!better)
            break;
    }
}

/* Where a small set-up fails for other seeds too, one of them may be simpler to follow. */
static void look_around(struct shrink *s, uint32_t new_seeds)
{
    struct cr_shrink_result *best = s->best;
    uint32_t found = 0;

    for (uint32_t i = 1; i <= new_seeds && found < OTHERS_MAX && !s->stop; i++) {
        struct cr_shrink_result saved = *best;
        struct cr_setup setup = saved.setup;
        memset(setup.skip, 0, sizeof(setup.skip));
        best->choice = NULL; /* it is saved's now */
        s->phase = "others";
        if (!cr_shrink_try_seed(s, &setup, SEED_OTHERS + i)) {
            best->choice = saved.choice;
            continue;
        }
        found++;
        reduce(s);
        if (weight(&best->after) < weight(&saved.after)) {
            sim_free(saved.choice);
            continue;
        }
        sim_free(best->choice);
        saved.runs = best->runs;
        saved.cut_short = best->cut_short;
        *best = saved;
    }
}

static void shrink(struct shrink *s)
{
    uint32_t new_seeds = s->options->new_seeds;

    if (new_seeds == 0)
        new_seeds = NEW_SEEDS_DEFAULT;
    s->phase = "set-up";
    (void)cr_shrink_setup(s, new_seeds == UINT32_MAX ? 0 : new_seeds);
    s->phase = "tape";
    (void)cr_shrink_tape_coarsely(s);
    s->phase = "operations";
    (void)cr_shrink_operations(s);
    s->phase = "set-up";
    (void)cr_shrink_setup(s, 0);
    reduce(s);
    if (new_seeds != UINT32_MAX)
        look_around(s, new_seeds);
    s->phase = "values";
    if (cr_shrink_values(s))
        (void)cr_shrink_tape(s); /* what waited for a value that is smaller now */
}

void cr_shrink(const struct cr_shrink_options *options, struct cr_shrink_result *ret)
{
    struct shrink s = {.options = options, .best = ret, .begun = now(), .phase = "reproduce",
        .runs_max = options->runs_max != 0 ? options->runs_max : RUNS_DEFAULT};

    memset(ret, 0, sizeof(*ret));
    if (!reproduce(&s))
        return;
    shrink(&s);
    verify(&s);
    ret->seconds = now() - s.begun;
}

void cr_shrink_release(struct cr_shrink_result *result)
{
    sim_free(result->choice);
    result->choice = NULL;
    result->choice_count = 0;
    result->setup.replay = NULL;
    result->setup.replay_count = 0;
}
