/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_shrink_tape.c: fewer choices that are not calm: by label, by who, by ranges down to single
 * ones; then smaller values of those that stay. Candidates are subsets of the best list; when one
 * fails, the list is what it really chose, so every pass looks at the list anew.
 */
#include "tools/crash/tell/cr_shrink_internal.h"

#include "tools/sim/sim_calm.h"

/* ---- subsets ---- */

/* Those that `drop` does not name. True: better. */
static bool without(struct shrink *s, bool (*drop)(const struct sim_choice *c, const void *arg),
    const void *arg)
{
    const struct cr_shrink_result *best = s->best;
    struct sim_choice *kept = sim_calloc(best->choice_count + 1, sizeof(*kept));
    size_t n = 0;

    for (size_t i = 0; i < best->choice_count; i++)
        if (!drop(&best->choice[i], arg))
            kept[n++] = best->choice[i];
    bool better = n < best->choice_count &&
        cr_shrink_try(s, &s->best->setup, best->seed, kept, n);
    sim_free(kept);
    return better;
}

static bool has_label(const struct sim_choice *c, const void *arg)
{
    return strcmp(c->label, arg) == 0;
}

static bool is_by(const struct sim_choice *c, const void *arg)
{
    return c->who == *(const uint32_t *)arg;
}

static bool is_both(const struct sim_choice *c, const void *arg)
{
    const struct sim_choice *other = arg;

    return c->who == other->who && strcmp(c->label, other->label) == 0;
}

/* Is it the first of its kind on the list? */
static bool is_first(const struct shrink *s, size_t at,
    bool (*same)(const struct sim_choice *c, const void *arg), const void *arg)
{
    for (size_t i = 0; i < at; i++)
        if (same(&s->best->choice[i], arg))
            return false;
    return true;
}

enum by { BY_LABEL, BY_WHO, BY_BOTH };

/* All of one kind at once. After a success the list is another one: go on at the same place. */
static bool drop_kinds(struct shrink *s, enum by by)
{
    bool better = false;

    for (size_t i = 0; i < s->best->choice_count && !s->stop;) {
        struct sim_choice c = s->best->choice[i];
        bool (*same)(const struct sim_choice *, const void *) =
            by == BY_LABEL ? has_label : by == BY_WHO ? is_by : is_both;
        const void *arg = by == BY_LABEL ? (const void *)c.label
            : by == BY_WHO               ? (const void *)&c.who
                                          : (const void *)&c;
        if (is_first(s, i, same, arg) && without(s, same, arg))
            better = true;
        else
            i++;
    }
    return better;
}

static bool drop_range(struct shrink *s, size_t first, size_t size)
{
    const struct cr_shrink_result *best = s->best;
    size_t n = best->choice_count, end = first + size < n ? first + size : n;
    struct sim_choice *kept = sim_calloc(n + 1, sizeof(*kept));

    memcpy(kept, best->choice, first * sizeof(*kept));
    memcpy(kept + first, best->choice + end, (n - end) * sizeof(*kept));
    bool better = cr_shrink_try(s, &s->best->setup, best->seed, kept, n - (end - first));
    sim_free(kept);
    return better;
}

/* From behind: what comes after the damage is done has no say in it. */
static bool drop_ranges(struct shrink *s, size_t least)
{
    bool better = false;

    for (size_t size = s->best->choice_count; size > 0 && size >= least;
         size = size == 1 ? 0 : (size + 1) / 2) {
        size_t end = s->best->choice_count;
        while (end > 0 && !s->stop) {
            size_t first = end > size ? end - size : 0;
            if (drop_range(s, first, end - first))
                better = true;
            end = first < s->best->choice_count ? first : s->best->choice_count;
        }
        if (size > s->best->choice_count && s->best->choice_count > 0)
            size = s->best->choice_count + 1;
    }
    return better;
}

#define BOTH_MAX 500u /* with more, ranges do better */

bool cr_shrink_tape_coarsely(struct shrink *s)
{
    bool better = drop_kinds(s, BY_LABEL);

    better = drop_kinds(s, BY_WHO) || better;
    return drop_ranges(s, s->best->choice_count / 64 + 1) || better;
}

bool cr_shrink_tape(struct shrink *s)
{
    bool better = drop_kinds(s, BY_LABEL);

    better = drop_kinds(s, BY_WHO) || better;
    if (s->best->choice_count < BOTH_MAX)
        better = drop_kinds(s, BY_BOTH) || better;
    return drop_ranges(s, 1) || better;
}

/* ---- values ---- */

/* With another value of choice number `at`. */
static bool set_value(struct shrink *s, size_t at, uint32_t value)
{
    const struct cr_shrink_result *best = s->best;
    struct sim_choice *changed = sim_calloc(best->choice_count, sizeof(*changed));

    memcpy(changed, best->choice, best->choice_count * sizeof(*changed));
    changed[at].value = value;
    bool better = cr_shrink_try(s, &s->best->setup, best->seed, changed, best->choice_count);
    sim_free(changed);
    return better;
}

/* Delays are short at the upper end of their values, all else is small at the lower one. */
static bool lower(struct shrink *s, size_t at)
{
    struct sim_choice c = s->best->choice[at];
    bool delay = c.bound == SIM_DELAY_BOUND, better = false;
    uint32_t calm = sim_calm_at(sim_calm_find(c.label), c.bound, false);
    uint32_t good = c.value, bad = delay ? calm : 0;

    if (c.bound < 3 || (!delay && calm > good))
        return false;
    /* Bisection between a value that fails and one that may not. */
    for (int i = 0; i < 12 && (good > bad ? good - bad : bad - good) > 1 && !s->stop; i++) {
        uint32_t middle = good > bad ? bad + (good - bad) / 2 : good + (bad - good) / 2;
        if (at < s->best->choice_count && set_value(s, at, middle)) {
            better = true;
            good = middle;
            if (at >= s->best->choice_count || strcmp(s->best->choice[at].label, c.label) != 0 ||
                s->best->choice[at].who != c.who || s->best->choice[at].nth != c.nth)
                break; /* the list is another one now */
        } else {
            bad = middle;
        }
    }
    return better;
}

bool cr_shrink_values(struct shrink *s)
{
    bool better = false;

    for (size_t i = 0; i < s->best->choice_count && !s->stop; i++)
        better = lower(s, i) || better;
    return better;
}

/* ---- images ---- */

#define UNITS_MAX 512u /* of a power failure */

static bool is_image(const struct sim_choice *c)
{
    return (c->who & SIM_WHO_POWER) != 0;
}

/* The last kind of image: each line and word by itself. Everything lost to begin with. */
static bool expand(struct shrink *s, size_t at)
{
    const struct cr_shrink_result *best = s->best;
    struct sim_choice image = best->choice[at];
    struct sim_choice *list =
        sim_calloc(best->choice_count + 2 * UNITS_MAX + 1, sizeof(*list));
    size_t n = 0;

    for (size_t i = 0; i < best->choice_count; i++)
        if (best->choice[i].who != image.who)
            list[n++] = best->choice[i];
    image.value = image.bound - 1;
    list[n++] = image;
    for (uint32_t i = 0; i < UNITS_MAX; i++) {
        list[n++] = (struct sim_choice){
            .label = "image-nic", .value = 7, .bound = 8, .who = image.who, .nth = i};
        list[n++] = (struct sim_choice){
            .label = "image-cpu", .value = 0, .bound = 2, .who = image.who, .nth = i};
    }
    bool better = cr_shrink_try(s, &s->best->setup, best->seed, list, n);
    sim_free(list);
    return better;
}

/* The list gets longer first, so this is no success by itself. */
bool cr_shrink_images(struct shrink *s)
{
    for (size_t i = 0; i < s->best->choice_count && !s->stop; i++) {
        struct sim_choice c = s->best->choice[i];
        if (is_image(&c) && strcmp(c.label, "image") == 0 && c.value != c.bound - 1 &&
            expand(s, i)) {
            (void)drop_ranges(s, 1);
            return true;
        }
    }
    return false;
}
