/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fiber.h: one actor's stack. A fiber runs from the scheduler until it yields; it may be
 * dropped at any yield (a crash) and never returns then.
 */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include "include/internal/cn_fiber.h"

struct sim_fiber {
    struct cn_fiber fiber;
    void *stack; /* a mapping for one */
    bool done;
};

void sim_fiber_init(struct sim_fiber *fiber, void (*entry)(void *arg), void *arg);
/* From the scheduler: run until the fiber yields or its entry returns (done). */
void sim_fiber_run(struct sim_fiber *fiber);
/* From inside: back to the scheduler. */
void sim_fiber_yield(void);
/* From inside, for good: the scheduler drops the fiber. */
CN_NORETURN void sim_fiber_exit(void);
/* Drop the stack, whatever is on it. From the scheduler. */
void sim_fiber_fini(struct sim_fiber *fiber);
/* Give the pooled stacks back to the system. */
void sim_fiber_trim(void);

#endif
