/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_moment.h: what happens in a run, as it is told to whoever watches: a person (sim->verbose
 * prints every moment as a line) or a recording (sim->watch). One mechanism for both. When nobody
 * watches, a moment costs one comparison: callers ask sim_is_watched() before they compute what a
 * moment would say.
 *
 * Telling a moment chooses nothing and changes nothing, so a watched run is the same run.
 */
#ifndef SIM_MOMENT_H
#define SIM_MOMENT_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"

struct sim;
struct sim_actor;
struct sim_pool;

/* Kind and its name in the JSON of a timeline. */
#define SIM_MOMENTS(X)                                                                             \
    X(NOTE, "note")           /* anything else; mostly for somebody who debugs the harness */      \
    X(LOG, "log")             /* the product's log */                                              \
    X(STEP, "step")           /* an actor passes a named step */                                   \
    X(BEGIN, "begin")         /* an operation of a client begins */                                \
    X(SAY, "say")             /* what it reads, writes, decides */                                 \
    X(END, "end")             /* it has ended, with an outcome that its caller was told */         \
    X(VERDICT, "verdict")     /* an UNKNOWN outcome is resolved */                                 \
    X(POST, "post")           /* a work request is handed to the NIC */                            \
    X(EXECUTE, "execute")     /* a packet of it, or all, takes effect at the peer */               \
    X(COMPLETE, "complete")   /* its completion gets back to the poster */                         \
    X(DURABLE, "durable")     /* words that the fabric wrote are sure to survive from here on */   \
    X(CRASH, "crash")         /* a process dies */                                                 \
    X(POWER, "power")         /* its machine loses power */                                        \
    X(LOST, "lost")           /* words of one writer that the power failure took */                \
    X(START, "start")         /* a process starts, or starts again */                              \
    X(PAUSE, "pause")                                                                              \
    X(PARTITION, "partition")                                                                      \
    X(HEAL, "heal")                                                                                \
    X(BREAK, "break")         /* a connection breaks */                                            \
    X(FENCE, "fence")         /* a node cuts a peer's access */                                    \
    X(PHASE, "phase")         /* of the run: setting up, work, healing, final reads */             \
    X(VIOLATION, "violation") /* what the run fails with */

enum sim_moment_kind {
#define SIM_X(name, text) SIM_MOMENT_##name,
    SIM_MOMENTS(SIM_X)
#undef SIM_X
    SIM_MOMENT_COUNT,
};
const char *sim_moment_name(enum sim_moment_kind kind);

#define SIM_NOBODY UINT16_MAX

struct sim_moment {
    enum sim_moment_kind kind;
    uint64_t time;         /* virtual ns; filled in by sim_tell() */
    const struct sim_actor *actor; /* whose doing it is; filled in by sim_tell() */
    const struct sim_actor *peer;  /* the other one concerned, or NULL */
    uint32_t concern;      /* the operation it belongs to; 0: what the actor is at, if anything */
    uint64_t request;      /* number of the work request; 0: none */
    const char *request_name; /* "read", "cas", "write", "flush", "mark", "doorbell"; NULL: none */
    uint32_t words;        /* DURABLE, LOST: how many */
    enum cn_step step;     /* STEP */
    bool minor;            /* somebody who looks for the cause can do without it */
    const char *text;      /* filled in by sim_tell(); valid during the call */
};

/*
 * Tell a moment; the text says what happened, without time and actor. `by`: whose doing it is;
 * NULL: the running actor's, or nobody's. `moment` gives kind and whatever else is known.
 */
void sim_tell(struct sim *sim, const struct sim_actor *by, struct sim_moment moment,
    const char *format, ...) CN_PRINTF(4, 5);
/* A moment of kind NOTE. */
void sim_trace(struct sim *sim, const char *format, ...) CN_PRINTF(2, 3);

/* A pool offset in words: "n1 ring 2 +64"; with sim->place what is there: "n1 item b1.0". */
void sim_place(struct sim *sim, const struct sim_pool *pool, uint64_t off, char *text, size_t size);

#endif
