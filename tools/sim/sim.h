/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.h: the simulator's core: one seed, one thread, virtual time. Actors (nodes, clients) are
 * fibers; everything else is an event in one queue ordered by virtual time. Interleavings come from
 * the random delay of each event and each yield. The modelled fabric (sim_fabric.h) and the
 * modelled persistent memory (sim_pmem.h) are built on this; cr_cluster.h puts a Cairn cluster on
 * top.
 */
#ifndef SIM_H
#define SIM_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"
#include "tools/sim/sim_alloc.h"
#include "tools/sim/sim_fiber.h"
#include "tools/sim/sim_moment.h"
#include "tools/sim/sim_tape.h"

#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_ACTORS_MAX 16u
#define SIM_FOREVER UINT64_MAX
#define SIM_PLANS_MAX 3u
#define SIM_CLASS_MAX 48u
/*
 * Who makes a choice (sim_tape.who): the operation that a client is at; else the actor (id + 1 in
 * the upper 8 bits) or nobody, and the operation that began last: so the choices of a node in the
 * time of one operation do not shift when an earlier one falls away.
 */
#define SIM_WHO_OPERATION 0x00ffffffu
#define SIM_WHO_NOBODY 0x7f000000u
#define SIM_WHO_POWER 0x80000000u /* the image of a power failure: its number << 8 | actor id */

struct sim;
struct sim_actor;
struct sim_fabric;
struct sim_pool;

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
    int64_t wall_jump_s; /* its wall clock against the others' */
    bool wall_frozen;    /* its wall clock stands still */
    uint64_t clock_ahead; /* its monotonic clock against virtual time, in ns, and ... */
    int32_t clock_ppm;    /* ... how much faster it runs, in millionths */
    uint32_t slow;        /* requests to it and their answers take so many times longer; 0: once */
    bool recovering;     /* started again after a crash, and not through with it */
    uint32_t concern; /* the operation it is at: sim_actor_concern(); 0: none */
};

struct sim_stats {
    uint64_t events, switches, yields, steps[CN_STEP_COUNT], crashes[3], units;
    uint32_t power_failures, hazard_pauses;
    uint64_t at_step[CN_STEP_COUNT][3]; /* stops (NONE) and crashes at a named step, by kind */
    uint64_t nested[CN_STEP_COUNT];     /* of these crashes, those of who was recovering */
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
    bool product; /* power failures leave any image with the same chance: none is preferred */
    bool calm; /* no injected yields, no torn anything: for litmus of orders and for speed */
    uint32_t jitter;       /* 0..3: how heavy the tail of delays is */
    uint32_t store_yield;  /* a store to pmem yields once in so many; 0: never */
    uint32_t step_yield;   /* a named step yields once in so many; 0: never */
    bool stop;
    bool failed;
    bool unable; /* failed, and by the harness: sim_unable() */
    char failure[1024];
    char failure_class[SIM_CLASS_MAX]; /* which invariant: the same for all texts of one kind */
    bool verbose;
    /* Is told every moment; NULL: nobody. See sim_moment.h. */
    void (*watch)(struct sim *sim, const struct sim_moment *moment);
    void *watch_arg;
    /* What is at an offset of a pool, in words, for who watches. */
    void (*place)(
        struct sim *sim, const struct sim_pool *pool, uint64_t off, char *text, size_t size);
    /* A word of a compare-and-swap, in words. */
    void (*word)(struct sim *sim, uint64_t word, char *text, size_t size);
    uint32_t begun;      /* the operation that began last */
    uint64_t events_max; /* the run fails, as class "events", when it takes more; 0: no limit */
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
    return sim_tape_chance(&sim->tape, label, num, den);
}
/* A delay in ns: mostly about a microsecond, with a tail. */
uint64_t sim_delay(struct sim *sim, const char *label);
/* The first failure is kept; the run stops. Its class is made of the format: the words before the
 * first colon. A format that says nothing itself gives it of the text, without numbers. */
void sim_fail(struct sim *sim, const char *format, ...) CN_PRINTF(2, 3);
/* The run is given up because the harness cannot do what it is to do: nothing is said of the code
 * under test. */
void sim_unable(struct sim *sim, const char *format, ...) CN_PRINTF(2, 3);
static inline bool sim_is_watched(const struct sim *sim)
{
    return CN_UNLIKELY(sim->verbose || sim->watch != NULL);
}

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
/* What its monotonic clock shows at a virtual time, and when it shows that. */
uint64_t sim_actor_clock(const struct sim_actor *actor, uint64_t now);
uint64_t sim_actor_time(const struct sim_actor *actor, uint64_t clock);
void sim_actor_wake(struct sim_actor *actor, uint64_t delay);
void sim_actor_pause(struct sim_actor *actor, uint64_t until);
/* What the actor is at from now on: its choices and its requests carry the number. 0: nothing. */
void sim_actor_concern(struct sim_actor *actor, uint32_t concern);
static inline uint32_t sim_who(const struct sim_actor *actor)
{
    return actor->concern != 0 ? actor->concern : (actor->id + 1) << 24 | actor->sim->begun;
}

#endif
