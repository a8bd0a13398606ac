/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_litmus_internal.h: a litmus program and its run: between the engine (cr_litmus.c) and the
 * programs (cr_litmus_programs.c).
 */
#ifndef CR_LITMUS_INTERNAL_H
#define CR_LITMUS_INTERNAL_H

#include "tools/crash/faults/cr_litmus.h"
#include "tools/sim/sim_fabric.h"

#define CR_LITMUS_POOL 12288u
#define CR_LITMUS_RING 4096u /* before it: an extent */
/* Behind the ring's header page; offsets of writes and of outcomes count from here. */
#define CR_LITMUS_LOG 8192u
#define CR_LITMUS_LOG_MEMORY 512u
#define CR_LITMUS_FAR 512u /* another line, another page of the medium: where y lies */

struct cr_litmus_run {
    const struct cr_litmus_program *program;
    struct sim *sim;
    struct sim_odometer *odometer;
    struct sim_pool *pool;
    struct sim_actor *node_actor, *client_actor;
    struct rd_ep *ep;
    struct rd_conn *conn, *second; /* second: with `connections` 2 */
    uint64_t seen;                 /* what a program wants to tell its outcome */
    bool done;
};

struct cr_litmus_program {
    const char *id, *text;
    const char *allowed[SIM_EADR + 1]; /* by platform mode; NULL: not run there */
    enum sim_crash crash;              /* of the node */
    enum rd_durability durability;     /* 0: APM */
    uint32_t lanes;                    /* 0: two, which is as good as more for two requests */
    uint32_t connections;              /* 0: one */
    bool message_atomics;
    bool deaf;        /* the node accepts, and then polls no more */
    bool client_dies; /* the client crashes, then the node's memory is looked at */
    void (*client)(struct cr_litmus_run *run);
    void (*node)(struct cr_litmus_run *run); /* stores of the CPU instead */
    uint32_t (*outcome)(const struct cr_litmus_run *run);
};

extern const struct cr_litmus_program cr_litmus_programs[];
extern const uint32_t cr_litmus_program_count;

/* For programs: the return code is what it should be, or the run fails. */
void cr_litmus_expect(struct cr_litmus_run *run, int expected, int rc);
void cr_litmus_await(struct cr_litmus_run *run, enum rd_event_type type);
/* The part of the arena that goes to rings: word i holds i + 1. */
uint64_t *cr_litmus_log_memory(struct cr_litmus_run *run);

#endif
