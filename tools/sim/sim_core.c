/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_core.c: the event queue, virtual time, actors and their environment.
 *
 * An actor that is suspended has exactly one valid resume event: its generation names it. A crash
 * raises the generation, so resumes that are still queued mean nothing.
 */
#include "tools/sim/sim.h"
#include "tools/sim/sim_fabric.h"

#include <stdarg.h>

#define CLOCK_READS_MAX 64u

/* ---- events: a binary heap by (time, seq) ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time != b->time ? a->time < b->time : a->seq < b->seq;
}

void sim_after(
    struct sim *sim, uint64_t delay, void (*fn)(void *, uint64_t), void *arg, uint64_t tag)
{
    if (sim->heap_count == sim->heap_max) {
        sim->heap_max = sim->heap_max == 0 ? 256 : 2 * sim->heap_max;
        sim->heap = sim_realloc(sim->heap, sim->heap_max * sizeof(*sim->heap));
    }
    struct sim_event e = {sim->now + delay, sim->seq++, fn, arg, tag};
    size_t i = sim->heap_count++;
    while (i > 0 && before(&e, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = e;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event top = sim->heap[0], last = sim->heap[--sim->heap_count];
    size_t i = 0, n = sim->heap_count;

    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= n)
            break;
        if (c + 1 < n && before(&sim->heap[c + 1], &sim->heap[c]))
            c++;
        if (!before(&sim->heap[c], &last))
            break;
        sim->heap[i] = sim->heap[c];
        i = c;
    }
    if (n > 0)
        sim->heap[i] = last;
    return top;
}

uint64_t sim_delay(struct sim *sim, const char *label)
{
    static const uint32_t tail[4][3] = {{0, 0, 0}, {50, 10, 0}, {150, 40, 8}, {250, 100, 30}};
    uint32_t r = sim_choose(sim, label, SIM_DELAY_BOUND);
    uint32_t class_ = r >> 10, fine = r & 1023;
    const uint32_t *t = tail[sim->jitter & 3];

    if (class_ < t[2])
        return 100 * SIM_US + fine * 2 * SIM_US;
    if (class_ < t[2] + t[1])
        return 10 * SIM_US + fine * 100;
    if (class_ < t[2] + t[1] + t[0])
        return 2 * SIM_US + fine * 10;
    return 200 + 2 * fine;
}

/* "fsck of %s: %lu damages" gives "fsck-of": letters and what joins them, up to a colon. */
static void make_class(char class_[SIM_CLASS_MAX], const char *text, bool format)
{
    size_t n = 0;

    for (const char *p = text; *p != '\0' && n + 2 < SIM_CLASS_MAX; p++) {
        if (*p == '%' && format) {
            p += 1 + strspn(p + 1, "0123456789.-+#lhz*");
            if (*p == '\0')
                break;
        } else if (*p == ':' && n > 0 && format)
            break;
        else if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'))
            class_[n++] = *p;
        else if (n > 0 && class_[n - 1] != '-')
            class_[n++] = '-';
    }
    while (n > 0 && class_[n - 1] == '-')
        n--;
    class_[n] = '\0';
}

CN_PRINTF(2, 0)
static void end_failed(struct sim *sim, const char *format, va_list args)
{
    sim->failed = true;
    vsnprintf(sim->failure, sizeof(sim->failure), format, args);
    make_class(sim->failure_class, format, true);
    if (sim->failure_class[0] == '\0')
        make_class(sim->failure_class, sim->failure, false);
    sim_tell(sim, NULL, (struct sim_moment){.kind = SIM_MOMENT_VIOLATION}, "%s: %s",
        sim->unable ? "GIVEN UP" : "VIOLATION", sim->failure);
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;

    sim->stop = true;
    if (sim->failed)
        return;
    va_start(args, format);
    end_failed(sim, format, args);
    va_end(args);
}

void sim_unable(struct sim *sim, const char *format, ...)
{
    va_list args;

    sim->stop = true;
    if (sim->failed)
        return;
    sim->unable = true;
    va_start(args, format);
    end_failed(sim, format, args);
    va_end(args);
}

/* ---- actors ---- */

static void tell_end(const struct sim_actor *actor, enum sim_crash kind)
{
    static const enum sim_moment_kind kinds[] = {
        SIM_MOMENT_NOTE, SIM_MOMENT_CRASH, SIM_MOMENT_POWER};
    static const char *const words[] = {"ends", "is killed", "loses power"};
    struct sim_moment m = {.kind = kinds[kind], .minor = kind == SIM_CRASH_NONE};

    sim_tell(actor->sim, actor, m, "%s", words[kind]);
}

static void reap(struct sim_actor *actor)
{
    struct sim *sim = actor->sim;
    enum sim_crash kind = actor->dying;

    actor->alive = false;
    actor->dying = SIM_CRASH_NONE;
    actor->generation++;
    sim->stats.crashes[kind]++;
    sim_tape_note(&sim->tape, 0xdead, actor->id);
    tell_end(actor, kind);
    if (kind != SIM_CRASH_NONE)
        sim_fabric_actor_crashed(actor, kind);
    sim_heap_use(&actor->heap);
    if (actor->abandon != NULL)
        actor->abandon(actor);
    sim_heap_use(NULL);
    sim_fabric_actor_reap(actor);
    sim_heap_drop(&actor->heap);
    sim_fiber_fini(&actor->fiber);
    if (sim->on_crash != NULL)
        sim->on_crash(sim, actor, kind);
}

static void resume(void *arg, uint64_t generation)
{
    struct sim_actor *actor = arg;
    struct sim *sim = actor->sim;

    if (!actor->alive || generation != actor->generation)
        return;
    if (actor->paused_until > sim->now) {
        sim_after(sim, actor->paused_until - sim->now, resume, actor, generation);
        return;
    }
    actor->sleeping = false;
    actor->clock_reads = 0;
    sim->running = actor;
    sim->tape.who = sim_who(actor);
    sim->stats.switches++;
    sim_heap_use(&actor->heap);
    sim_fiber_run(&actor->fiber);
    sim_heap_use(NULL);
    sim->running = NULL;
    sim->tape.who = SIM_WHO_NOBODY | sim->begun;
    if (actor->fiber.done)
        reap(actor);
}

static void schedule(struct sim_actor *actor, uint64_t delay)
{
    sim_after(actor->sim, delay, resume, actor, ++actor->generation);
}

void sim_yield(struct sim *sim, uint64_t delay)
{
    struct sim_actor *actor = sim->running;

    if (actor == NULL)
        return; /* setting up, outside of all actors */
    sim->stats.yields++;
    schedule(actor, delay);
    sim_fiber_yield();
}

void sim_sleep(struct sim *sim, uint64_t until)
{
    struct sim_actor *actor = sim->running;

    CAIRN_ASSERT(actor != NULL);
    actor->sleeping = true;
    schedule(actor, until > sim->now ? until - sim->now : 0);
    sim_fiber_yield();
}

void sim_actor_wake(struct sim_actor *actor, uint64_t delay)
{
    if (actor->alive && actor->sleeping) {
        actor->sleeping = false;
        schedule(actor, delay);
    }
}

void sim_actor_pause(struct sim_actor *actor, uint64_t until)
{
    actor->paused_until = until;
    sim_tell(actor->sim, actor, (struct sim_moment){.kind = SIM_MOMENT_PAUSE},
        "is stopped until %.3f us", (double)until / 1e3);
}

void sim_actor_die(struct sim_actor *actor, enum sim_crash kind)
{
    CAIRN_ASSERT(actor->sim->running == actor);
    actor->dying = kind;
    sim_fiber_exit();
}

void sim_actor_crash(struct sim_actor *actor, enum sim_crash kind)
{
    if (!actor->alive)
        return;
    CAIRN_ASSERT(actor->sim->running == NULL);
    actor->dying = kind;
    reap(actor);
}

void sim_actor_concern(struct sim_actor *actor, uint32_t concern)
{
    actor->concern = concern;
    if (concern != 0)
        actor->sim->begun = concern & SIM_WHO_OPERATION;
    if (actor->sim->running == actor)
        actor->sim->tape.who = sim_who(actor);
}

/* ---- the environment of an actor ---- */

uint64_t sim_actor_clock(const struct sim_actor *actor, uint64_t now)
{
    int64_t gained = (int64_t)(now / 1000) * actor->clock_ppm / 1000;

    return (uint64_t)((int64_t)(now + actor->clock_ahead) + gained);
}

uint64_t sim_actor_time(const struct sim_actor *actor, uint64_t clock)
{
    if (clock == SIM_FOREVER || clock <= actor->clock_ahead)
        return clock == SIM_FOREVER ? clock : 0;
    clock -= actor->clock_ahead;
    if (actor->clock_ppm == 0)
        return clock;
    /* In two parts, for the product would be too large; and not too early. */
    uint64_t rate = (uint64_t)(1000000 + actor->clock_ppm);
    return clock / rate * 1000000 + clock % rate * 1000000 / rate + 2000;
}

static uint64_t env_now(void *arg)
{
    struct sim_actor *actor = arg;

    if (actor->sim->running == actor && ++actor->clock_reads > CLOCK_READS_MAX) {
        actor->clock_reads = 0;
        sim_yield(actor->sim, sim_delay(actor->sim, "clock"));
    }
    return sim_actor_clock(actor, actor->sim->now);
}

static uint64_t env_wall(void *arg)
{
    struct sim_actor *actor = arg;
    uint64_t passed = actor->wall_frozen ? 0 : actor->sim->now / 1000000000u;

    return (uint64_t)(1700000000 + actor->wall_jump_s) + passed;
}

static void fill_random(struct sim_random *random, void *buf, size_t size)
{
    uint8_t *p = buf;

    while (size > 0) {
        uint64_t v = sim_random_next(random);
        size_t n = size < 8 ? size : 8;
        memcpy(p, &v, n);
        p += n;
        size -= n;
    }
}

static void env_random(void *arg, void *buf, size_t size)
{
    struct sim_actor *actor = arg;

    fill_random(&actor->random, buf, size);
}

static bool plan_fires(struct sim_plan *p, const struct sim_actor *actor, enum cn_step step)
{
    if (p->occurrence == 0 || p->fired || p->step != step || p->role != actor->role ||
        (!p->any_actor && p->actor != actor->id))
        return false;
    if (++p->seen < p->occurrence)
        return false;
    p->fired = true;
    return true;
}

static bool happens(struct sim *sim, const char *label, uint32_t once_in)
{
    return once_in != 0 && sim_chance(sim, label, 1, once_in);
}

static void pause_here(struct sim *sim, enum cn_step step, uint32_t us)
{
    sim->stats.at_step[step][SIM_CRASH_NONE]++;
    sim->stats.hazard_pauses++;
    sim_tell(sim, NULL, (struct sim_moment){.kind = SIM_MOMENT_PAUSE}, "stops for %u us", us);
    sim_yield(sim, us * SIM_US);
}

static void die_here(struct sim_actor *actor, enum cn_step step, enum sim_crash kind)
{
    actor->sim->stats.at_step[step][kind]++;
    actor->sim->stats.nested[step] += actor->recovering;
    sim_actor_die(actor, kind);
}

static void meet_hazards(struct sim_actor *actor, enum cn_step step)
{
    struct sim *sim = actor->sim;
    const struct sim_hazard *h = &sim->hazard[actor->role];

    if (happens(sim, "hazard-process", h->process))
        die_here(actor, step, SIM_CRASH_PROCESS);
    if (happens(sim, "hazard-power", h->power))
        die_here(actor, step, SIM_CRASH_POWER);
    if (happens(sim, "hazard-pause", h->pause)) {
        pause_here(sim, step, sim_choose(sim, "hazard-us", h->pause_us));
    }
}

static void env_step(void *arg, enum cn_step step)
{
    struct sim_actor *actor = arg;
    struct sim *sim = actor->sim;

    sim->stats.steps[step]++;
    if (sim->running != actor)
        return; /* setting up, or closing from the scheduler */
    sim_tape_note(&sim->tape, step, actor->id);
    sim_tell(sim, actor, (struct sim_moment){.kind = SIM_MOMENT_STEP, .step = step}, "%s",
        cn_step_name(step));
    if (sim->on_step != NULL)
        sim->on_step(sim, actor, step);
    for (uint32_t i = 0; i < SIM_PLANS_MAX; i++)
        if (plan_fires(&sim->plan[i], actor, step)) {
            if (sim->plan[i].kind != SIM_CRASH_NONE)
                die_here(actor, step, sim->plan[i].kind);
            pause_here(sim, step, sim_choose(sim, "plan-us", sim->plan[i].pause_us + 1));
        }
    meet_hazards(actor, step);
    if (sim->step_yield != 0 && sim_chance(sim, "step", 1, sim->step_yield))
        sim_yield(sim, sim_delay(sim, "step-delay"));
}

static void env_log(void *arg, enum cn_log_level level, const char *text)
{
    struct sim_actor *actor = arg;

    (void)level;
    sim_tell(actor->sim, actor, (struct sim_moment){.kind = SIM_MOMENT_LOG}, "log: %s", text);
}

static uint64_t sim_env_now(void *arg)
{
    return ((struct sim *)arg)->now;
}

static uint64_t sim_env_wall(void *arg)
{
    return 1700000000u + ((struct sim *)arg)->now / 1000000000u;
}

static void sim_env_random(void *arg, void *buf, size_t size)
{
    fill_random(&((struct sim *)arg)->random, buf, size);
}

static void enter(void *arg)
{
    struct sim_actor *actor = arg;

    actor->main(actor);
}

struct sim_actor *sim_actor_new(struct sim *sim, enum sim_role role, const char *name,
    void (*main)(struct sim_actor *), void (*abandon)(struct sim_actor *), void *arg)
{
    CAIRN_ASSERT(sim->actor_count < SIM_ACTORS_MAX);
    struct sim_actor *actor = &sim->actor[sim->actor_count];

    actor->sim = sim;
    actor->id = sim->actor_count++;
    actor->role = role;
    snprintf(actor->name, sizeof(actor->name), "%s", name);
    actor->main = main;
    actor->abandon = abandon;
    actor->arg = arg;
    actor->env = (struct cn_env){.arg = actor, .now_ns = env_now, .wall_s = env_wall,
        .random = env_random, .step = env_step, .log = env_log};
    sim_random_seed(&actor->random, sim->tape.seed ^ cn_mix64(actor->id + 1));
    return actor;
}

void sim_actor_start(struct sim_actor *actor, uint64_t delay)
{
    CAIRN_ASSERT(!actor->alive);
    actor->alive = true;
    actor->sleeping = false;
    actor->paused_until = 0;
    actor->concern = 0;
    actor->life++;
    sim_tell(actor->sim, actor,
        (struct sim_moment){.kind = SIM_MOMENT_START, .minor = actor->life == 1}, "%s",
        actor->life == 1 ? "starts" : "starts again");
    sim_fiber_init(&actor->fiber, enter, actor);
    schedule(actor, delay);
}

void sim_run(struct sim *sim, uint64_t until)
{
    while (!sim->stop && sim->heap_count > 0 && sim->heap[0].time <= until) {
        struct sim_event e = pop(sim);
        sim->now = e.time;
        if (++sim->stats.events == sim->events_max)
            sim_fail(sim, "events: more than %lu", sim->events_max);
        sim_tape_note(&sim->tape, e.time, e.tag);
        e.fn(e.arg, e.tag);
    }
    if (!sim->stop && sim->now < until && until != SIM_FOREVER)
        sim->now = until;
}

void sim_init(struct sim *sim, uint64_t seed, bool record)
{
    memset(sim, 0, sizeof(*sim));
    sim_heap_setup();
    sim_tape_init(&sim->tape, seed, record);
    sim->tape.who = SIM_WHO_NOBODY;
    sim->env = (struct cn_env){.arg = sim, .now_ns = sim_env_now, .wall_s = sim_env_wall,
        .random = sim_env_random};
    sim_random_seed(&sim->random, seed ^ UINT64_C(0x5eed));
    sim->now = SIM_MS; /* time 0 is suspicious */
    sim->jitter = 1;
    sim_fabric_new(sim);
}

void sim_fini(struct sim *sim)
{
    sim->on_crash = NULL;
    for (uint32_t i = 0; i < sim->actor_count; i++)
        sim_actor_crash(&sim->actor[i], SIM_CRASH_PROCESS);
    sim_fabric_delete(sim);
    sim_free(sim->heap);
    sim_tape_fini(&sim->tape);
}
