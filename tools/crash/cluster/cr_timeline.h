/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline.h: a run told as a timeline: who, step, work request, words lost. A run records into
 * a timeline given with struct cr_setup; how it is told afterwards: tell/cr_timeline_tell.h.
 */
#ifndef CR_TIMELINE_H
#define CR_TIMELINE_H

#include "tools/sim/sim.h"

#define CR_TIMELINE_ACTORS_MAX 16u
#define CR_TIMELINE_MOMENTS_MAX 2000000u /* what comes later is counted, and dropped */

struct cr_moment {
    uint64_t number; /* place in the run */
    uint64_t ns;     /* virtual time */
    enum sim_moment_kind kind;
    uint16_t actor, peer; /* SIM_NOBODY: none */
    uint32_t operation;   /* 0: none */
    uint64_t request;     /* 0: none */
    const char *request_name; /* static text; NULL: none */
    uint32_t words;
    enum cn_step step;    /* kind STEP */
    bool minor;
    const char *text;     /* Owner: the timeline */
};

struct cr_operation {
    uint32_t id; /* (client index + 1) << 16 | number, from 1 */
    uint16_t actor;
    const char *text; /* "transfer of 3 from account 1 to 2". Owner: the timeline */
    const char *outcome; /* static text: "COMMITTED", "ABORTED", "UNKNOWN"; "" while none */
    uint64_t begin_ns, end_ns; /* end 0: its client never heard */
    bool named;  /* the violation is about it */
    bool blamed; /* that, or a fault touched it: words lost, outcome not known to everybody */
};

struct cr_text_chunk;

struct cr_timeline {
    struct cr_moment *moment;
    size_t count, room, dropped;
    struct cr_operation *operation;
    size_t operation_count, operation_room;
    uint32_t actor_count;
    struct { char name[16]; uint32_t role; } actor[CR_TIMELINE_ACTORS_MAX]; /* enum sim_role */
    uint64_t work_ns, heal_ns; /* the clients' work began, everything was healed; 0: not reached */
    char violation[1024];      /* empty: none */
    struct cr_text_chunk *chunk; /* memory of texts */
};

/* Empty. Owner: cr_timeline_delete(). Give it to one run: struct cr_setup.timeline. */
struct cr_timeline *cr_timeline_new(void);
void cr_timeline_delete(struct cr_timeline **timeline);

/* ---- for the cluster and the workloads ---- */

struct cr_client;

/* The run begins: watch it. */
void cr_timeline_attach(struct cr_timeline *timeline, struct sim *sim);
/* The run has ended: what is minor is known only now. */
void cr_timeline_close(struct cr_timeline *timeline, struct sim *sim);

/*
 * An operation of a client begins: it gets the client's next number, under which its choices go on
 * the tape and its requests are told. Also when nobody watches. cr_tell_end() ends it; `outcome`,
 * static text, is "COMMITTED", "ABORTED", "UNKNOWN", or "" (it made none).
 */
void cr_tell_begin(struct cr_client *client, const char *what);
/* In words, as soon as they are known: "transfer 5 from 1 to 2". */
void cr_tell_about(struct cr_client *client, const char *text);
/* Its caller is told. */
void cr_tell_outcome(struct cr_client *client, const char *outcome);
void cr_tell_end(struct cr_client *client);
/* An outcome that was not known is resolved. `concern`: the operation it was. */
void cr_tell_verdict(
    struct cr_client *client, uint32_t concern, const char *text, const char *outcome);
/* The violation is about this operation. */
void cr_timeline_point_at(struct sim *sim, uint32_t concern);
/* A phase of the run begins. */
enum cr_phase { CR_PHASE_SETUP, CR_PHASE_WORK, CR_PHASE_HEAL, CR_PHASE_CHECK };
void cr_tell_phase(struct sim *sim, enum cr_phase phase, const char *text);

/* What is at an offset of a pool: "ring 3", "item b1.0", "slot 2 state". sim->place. */
void cr_place(
    struct sim *sim, const struct sim_pool *pool, uint64_t off, char *text, size_t size);
/* A lock word: "unlocked v5", "slot 3's v5". sim->word. */
void cr_place_word(struct sim *sim, uint64_t word, char *text, size_t size);

#endif
