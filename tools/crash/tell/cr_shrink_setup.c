/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_shrink_setup.c: smaller set-ups: fewer clients, operations, nodes; one kind of work; kinds of
 * faults off; nothing drawn of the geometry and the platform.
 */
#include "tools/crash/tell/cr_shrink_internal.h"

#define SHIFT_CHOICES_MAX 12u
#define SHIFT_MAX 8u

/* What fell away may have been counted in the number of a choice that matters: with each of them
 * made somewhat earlier or later. Only where few are left: then a run is short, too. */
static bool shift(struct shrink *s, const struct cr_setup *setup)
{
    struct cr_shrink_result *best = s->best;
    struct sim_choice list[SHIFT_CHOICES_MAX];
    size_t count = best->choice_count;

    if (count > SHIFT_CHOICES_MAX)
        return false;
    memcpy(list, best->choice, count * sizeof(*list));
    for (size_t i = 0; i < count; i++)
        for (uint32_t by = 1; by <= 2 * SHIFT_MAX && !s->stop; by++) {
            uint32_t nth = list[i].nth, step = (by + 1) / 2;
            if (by % 2 == 1 && step > nth)
                continue;
            list[i].nth = by % 2 == 1 ? nth - step : nth + step;
            bool better = cr_shrink_try(s, setup, best->seed, list, count);
            list[i].nth = nth;
            if (better)
                return true;
        }
    return false;
}

/* With the tape at hand, then with new seeds. */
static bool attempt(struct shrink *s, const struct cr_setup *setup, uint32_t new_seeds)
{
    struct cr_setup candidate = *setup;

    /* The tape is the best one's, and goes away when a better one is found. */
    if (cr_shrink_try(s, &candidate, s->best->seed, s->best->choice, s->best->choice_count))
        return true;
    if (new_seeds == 0 && shift(s, &candidate))
        return true;
    for (uint32_t i = 1; i <= new_seeds && s->best->runs < s->runs_max / 2 && !s->stop; i++)
        if (cr_shrink_try_seed(s, &candidate, i))
            return true;
    return false;
}

static bool set_size(struct shrink *s, uint32_t clients, uint32_t ops, uint32_t new_seeds)
{
    struct cr_setup setup = s->best->setup;

    if (clients == 0 || ops == 0)
        return false;
    setup.clients = clients;
    setup.ops = ops;
    return attempt(s, &setup, new_seeds);
}

/* Half of the operations as long as that fails, then fewer by a quarter, then by one; and one
 * client less. */
static bool fewer_operations(struct shrink *s, uint32_t new_seeds)
{
    bool better = false, again = true;

    while (again && !s->stop) {
        const struct cr_setup *best = &s->best->setup;
        uint32_t clients = s->best->after.clients, ops = best->ops;
        again = (ops > 1 && set_size(s, clients, ops / 2, new_seeds)) ||
            (clients > 1 && set_size(s, clients - 1, ops, new_seeds)) ||
            (ops > 7 && set_size(s, clients, ops - ops / 4, new_seeds)) ||
            (ops > 2 && set_size(s, clients, ops - 1, new_seeds));
        better = better || again;
    }
    return better;
}

static bool fewer_nodes(struct shrink *s, uint32_t new_seeds)
{
    struct cr_setup setup = s->best->setup;

    for (uint32_t n = 1; n < s->best->after.nodes && !s->stop; n++) {
        setup.nodes = n;
        if (attempt(s, &setup, new_seeds))
            return true;
    }
    return false;
}

/* What was drawn becomes a part of the set-up, so that a reader sees it. */
static bool fix(struct shrink *s)
{
    struct cr_setup setup = s->best->setup;

    setup.nodes = s->best->after.nodes;
    setup.clients = s->best->after.clients;
    if (setup.nodes == s->best->setup.nodes && setup.clients == s->best->setup.clients)
        return false;
    return attempt(s, &setup, 0);
}

static bool one_work(struct shrink *s, uint32_t new_seeds)
{
    struct cr_setup setup = s->best->setup;
    unsigned work = setup.work != 0 ? setup.work : (1u << CR_WORK_COUNT) - 1;

    if (setup.workload[0] != NULL)
        return false; /* the user named them */
    for (uint32_t i = 0; i < CR_WORK_COUNT && !s->stop; i++) {
        setup.work = 1u << i;
        if ((work & setup.work) != 0 && work != setup.work && attempt(s, &setup, new_seeds))
            return true;
    }
    return false;
}

static bool fewer_faults(struct shrink *s, uint32_t new_seeds)
{
    bool better = false;

    for (uint32_t bit = 0; bit < 32 && !s->stop; bit++) {
        struct cr_setup setup = s->best->setup;
        if ((setup.faults >> bit & 1) == 0)
            continue;
        setup.faults &= ~(1u << bit);
        better = attempt(s, &setup, new_seeds / 4) || better;
    }
    return better;
}

static bool drop_hazard(struct shrink *s, uint32_t role, uint32_t which, uint32_t new_seeds)
{
    struct cr_setup setup = s->best->setup;
    uint32_t *const fields[] = {&setup.hazard[role].process, &setup.hazard[role].power,
        &setup.hazard[role].pause, &setup.hazard[role].store};

    if (*fields[which] == 0)
        return false;
    *fields[which] = 0;
    return attempt(s, &setup, new_seeds / 4);
}

static bool fewer_hazards(struct shrink *s, uint32_t new_seeds)
{
    bool better = false;

    for (uint32_t role = 0; role < 3; role++)
        for (uint32_t which = 0; which < 4; which++)
            better = drop_hazard(s, role, which, new_seeds) || better;
    for (int i = 0; i < 2; i++) {
        struct cr_setup setup = s->best->setup;
        struct sim_plan *plan = i == 0 ? &setup.first : &setup.plan;
        if (plan->occurrence == 0)
            continue;
        plan->occurrence = 0;
        better = attempt(s, &setup, 0) || better;
    }
    return better;
}

static bool drop_flag(struct shrink *s, size_t off, bool value, uint32_t new_seeds)
{
    struct cr_setup setup = s->best->setup;
    bool *flag = (bool *)((char *)&setup + off);

    if (*flag == value)
        return false;
    *flag = value;
    return attempt(s, &setup, new_seeds);
}

static bool plainer(struct shrink *s, uint32_t new_seeds)
{
    bool better = drop_flag(s, offsetof(struct cr_setup, plain), true, new_seeds);

    better = drop_flag(s, offsetof(struct cr_setup, power_at_end), false, 0) || better;
    better = drop_flag(s, offsetof(struct cr_setup, clean_end), false, 0) || better;
    better = drop_flag(s, offsetof(struct cr_setup, garbage), false, 0) || better;
    better = drop_flag(s, offsetof(struct cr_setup, prompt), true, 0) || better;
    struct cr_setup setup = s->best->setup;
    if (setup.lanes == 0) {
        setup.lanes = 1;
        better = attempt(s, &setup, new_seeds) || better;
    }
    setup = s->best->setup;
    if (setup.durability == 0) {
        setup.durability = RD_DURABILITY_APM;
        setup.mode = SIM_ADR;
        better = attempt(s, &setup, new_seeds) || better;
    }
    return better;
}

bool cr_shrink_setup(struct shrink *s, uint32_t new_seeds)
{
    if (s->options->setup->body != NULL)
        return plainer(s, 0);
    bool better = plainer(s, new_seeds);

    better = fewer_operations(s, new_seeds) || better;
    better = one_work(s, new_seeds) || better;
    better = fewer_nodes(s, new_seeds) || better;
    better = fewer_faults(s, new_seeds) || better;
    better = fewer_hazards(s, new_seeds) || better;
    if (better && new_seeds > 0)
        (void)fewer_operations(s, new_seeds);
    (void)fix(s);
    return better;
}

/* ---- operations ---- */

/* Bits first..last of what a client does, if they are not left out yet. */
static bool leave_out(struct shrink *s, uint32_t client, uint32_t first, uint32_t last)
{
    struct cr_setup setup = s->best->setup;
    uint64_t mask = (last - first == 63 ? UINT64_MAX : (UINT64_C(1) << (last - first + 1)) - 1)
        << first;

    if ((setup.skip[client] & mask) == mask)
        return false;
    setup.skip[client] |= mask;
    return attempt(s, &setup, 0);
}

bool cr_shrink_operations(struct shrink *s)
{
    bool better = false;
    uint32_t ops = s->best->setup.ops < 64 ? s->best->setup.ops : 64;

    if (s->options->setup->body != NULL || ops == 0)
        return false;
    for (uint32_t size = ops; size > 0; size /= 2)
        for (uint32_t client = 0; client < s->best->after.clients; client++)
            for (uint32_t first = 0; first < ops && !s->stop; first += size)
                better = leave_out(s, client, first,
                             first + size <= ops ? first + size - 1 : ops - 1) || better;
    return better;
}
