/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_moment.c: telling what happens, as lines or to a recording.
 */
#include "tools/sim/sim_moment.h"

#include <stdarg.h>

#include "tools/sim/sim_pmem.h"

#define TEXT_MAX 1200u

const char *sim_moment_name(enum sim_moment_kind kind)
{
    static const char *const names[] = {
#define SIM_X(name, text) text,
        SIM_MOMENTS(SIM_X)
#undef SIM_X
    };

    return kind < SIM_MOMENT_COUNT ? names[kind] : "?";
}

static void tell(struct sim *sim, const struct sim_actor *by, struct sim_moment moment,
    const char *format, va_list args) CN_PRINTF(4, 0);
static void tell(struct sim *sim, const struct sim_actor *by, struct sim_moment moment,
    const char *format, va_list args)
{
    char text[TEXT_MAX];

    vsnprintf(text, sizeof(text), format, args);
    moment.time = sim->now;
    moment.actor = by != NULL ? by : sim->running;
    if (moment.concern == 0 && moment.actor != NULL)
        moment.concern = moment.actor->concern;
    moment.text = text;
    if (sim->verbose)
        printf("%12.3f us %-8s %s\n", (double)sim->now / 1e3,
            moment.actor != NULL ? moment.actor->name : "-", text);
    if (sim->watch != NULL)
        sim->watch(sim, &moment);
}

void sim_tell(struct sim *sim, const struct sim_actor *by, struct sim_moment moment,
    const char *format, ...)
{
    va_list args;

    if (!sim_is_watched(sim))
        return;
    va_start(args, format);
    tell(sim, by, moment, format, args);
    va_end(args);
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    struct sim_moment moment = {.kind = SIM_MOMENT_NOTE, .minor = true};
    va_list args;

    if (!sim_is_watched(sim))
        return;
    va_start(args, format);
    tell(sim, NULL, moment, format, args);
    va_end(args);
}

void sim_place(struct sim *sim, const struct sim_pool *pool, uint64_t off, char *text, size_t size)
{
    const char *name = pool != NULL && pool->owner != NULL ? pool->owner->name : "memory";
    int n = snprintf(text, size, "%s ", name);

    if (n < 0 || (size_t)n >= size)
        return;
    if (pool != NULL && sim->place != NULL)
        sim->place(sim, pool, off, text + n, size - (size_t)n);
    else
        snprintf(text + n, size - (size_t)n, "+%#lx", off);
}
