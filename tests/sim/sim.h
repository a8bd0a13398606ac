/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.h: the simulator's core: one seed, one thread, virtual time. Actors (nodes, clients) are
 * fibers; everything else is an event in one queue ordered by virtual time. Interleavings come from
 * the random delay of each event and each yield. The modelled fabric (sim_fabric.h) and the
 * modelled persistent memory (sim_pmem.h) are built on this; sim_cluster.h puts a Cairn cluster on
 * top.
 */
#ifndef SIM_H
#define SIM_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"
#include "tests/sim/sim_alloc.h"
#include "tests/sim/sim_fiber.h"
#include "tests/sim/sim_tape.h"

#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_ACTORS_MAX 16u
#define SIM_FOREVER UINT64_MAX
#define SIM_PLANS_MAX 3u

struct sim;
struct sim_actor;
struct sim_fabric;

enum sim_crash { SIM_CRASH_NONE, SIM_CRASH_PROCESS, SIM_CRASH_POWER };
enum sim_mode { SIM_ADR, SIM_ADR_DDIO, SIM_EADR };
enum sim_role { SIM_NODE, SIM_CLIENT, SIM_OTHER };

struct sim_event {
    uint64_t time, seq;
    void (*fn)(void *arg, uint64_t tag);
    void *arg;
    uint64_t tag;
};

/* Crash an actor when it passes a named step for the n-th time. */
struct sim_plan {
    enum sim_role role; /* whose step counts */
    bool any_actor; /* occurrences of all actors of the role are counted together; else `actor` */
    uint32_t actor;
    enum cn_step step;
    uint32_t occurrence; /* from 1; 0: no plan */
    enum sim_crash kind; /* NONE: a pause */
    uint32_t pause_us;   /* its longest */
    uint32_t seen;
    bool fired;
};

/* What may happen at any named step, once in so many; 0: never. */
struct sim_hazard {
    uint32_t process, power, pause;
    uint32_t pause_us; /* a pause's longest */
    uint32_t store;    /* power failure behind a store to persistent memory, between two steps */
};

struct sim_actor {
    struct sim *sim;
    uint32_t id;
    enum sim_role role;
    char name[16];
    struct sim_fiber fiber;
    struct sim_heap heap;
    struct cn_env env;
    struct sim_random random; /* of the product's env; not on the tape */
    void (*main)(struct sim_actor *actor);
    void (*abandon)(struct sim_actor *actor); /* free what the product holds; from the scheduler */
    void *arg;
    bool alive, sleeping, wake_pending;
    uint64_t paused_until;
    uint64_t generation; /* of the pending resume event */
    uint32_t life;       /* raised with each start */
    uint32_t clock_reads; /* since the last yield: a loop over the clock must yield */
    enum sim_crash dying;
};

struct sim_stats {
    uint64_t events, switches, yields, steps[CN_STEP_COUNT], crashes[3], units;
};

struct sim {
    struct sim_tape tape;
    uint64_t now, seq;
    struct sim_event *heap;
    size_t heap_count, heap_max;
    struct sim_actor actor[SIM_ACTORS_MAX];
    uint32_t actor_count;
    struct sim_actor *running;
    struct sim_fabric *fabric;
    enum sim_mode mode;
    struct sim_plan plan[SIM_PLANS_MAX];
    struct sim_hazard hazard[3]; /* by role */
    bool calm; /* no injected yields, no torn anything: for litmus of orders and for speed */
    uint32_t jitter;       /* 0..3: how heavy the tail of delays is */
    uint32_t store_yield;  /* a store to pmem yields once in so many; 0: never */
    uint32_t step_yield;   /* a named step yields once in so many; 0: never */
    bool stop;
    bool failed;
    char failure[1024];
    bool verbose;
    struct cn_env env;     /* for what belongs to no actor */
    struct sim_random random;
    /* Called after an actor crashed and its memory is gone. */
    void (*on_crash)(struct sim *sim, struct sim_actor *actor, enum sim_crash kind);
    /* An actor passes a named step; NULL: nobody looks. */
    void (*on_step)(struct sim *sim, struct sim_actor *actor, enum cn_step step);
    void *user;
    struct sim_stats stats;
};

void sim_init(struct sim *sim, uint64_t seed, bool record);
void sim_fini(struct sim *sim);

static inline uint32_t sim_choose(struct sim *sim, const char *label, uint32_t bound)
{
    return sim_tape_choose(&sim->tape, label, bound);
}
/* True `num` times in `den`. */
static inline bool sim_chance(struct sim *sim, const char *label, uint32_t num, uint32_t den)
{
    return sim_choose(sim, label, den) < num;
}
/* A delay in ns: mostly about a microsecond, with a tail. */
uint64_t sim_delay(struct sim *sim, const char *label);
/* The first failure is kept; the run stops. */
void sim_fail(struct sim *sim, const char *format, ...) CN_PRINTF(2, 3);
void sim_trace(struct sim *sim, const char *format, ...) CN_PRINTF(2, 3);

/* fn(arg, tag) at now + delay. */
void sim_after(
    struct sim *sim, uint64_t delay, void (*fn)(void *, uint64_t), void *arg, uint64_t tag);
/* Run events until the time, sim->stop, or none is left. */
void sim_run(struct sim *sim, uint64_t until);

struct sim_actor *sim_actor_new(struct sim *sim, enum sim_role role, const char *name,
    void (*main)(struct sim_actor *), void (*abandon)(struct sim_actor *), void *arg);
/* Start (again) at now + delay. */
void sim_actor_start(struct sim_actor *actor, uint64_t delay);
/* From inside the running actor. */
void sim_yield(struct sim *sim, uint64_t delay);
void sim_sleep(struct sim *sim, uint64_t until);
CN_NORETURN void sim_actor_die(struct sim_actor *actor, enum sim_crash kind);
/* From the scheduler (an event): crash an actor wherever it is. */
void sim_actor_crash(struct sim_actor *actor, enum sim_crash kind);
void sim_actor_wake(struct sim_actor *actor, uint64_t delay);
void sim_actor_pause(struct sim_actor *actor, uint64_t until);

#endif
