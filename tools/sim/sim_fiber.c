/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fiber.c: stacks of actors: pooled, and one runs at a time. The globals belong to the one
 * thread that runs simulations.
 */
#include "tools/sim/sim_fiber.h"

#define STACK_SIZE (256u * 1024)
#define POOL_MAX 64u

static struct sim_fiber *current;
static void *pool[POOL_MAX];
static uint32_t pool_count;

static void *take_stack(void)
{
    if (pool_count > 0)
        return pool[--pool_count];
    void *stack = cn_stacks_map(1, STACK_SIZE);
    CAIRN_ASSERT(stack != NULL);
    return stack;
}

void sim_fiber_init(struct sim_fiber *fiber, void (*entry)(void *arg), void *arg)
{
    fiber->stack = take_stack();
    fiber->done = false;
    cn_fiber_init(&fiber->fiber, cn_stacks_at(fiber->stack, 0, STACK_SIZE), STACK_SIZE, entry, arg);
}

void sim_fiber_run(struct sim_fiber *fiber)
{
    CAIRN_ASSERT(current == NULL && !fiber->done);
    current = fiber;
    cn_fiber_enter(&fiber->fiber);
    current = NULL;
    fiber->done = fiber->fiber.done;
}

void sim_fiber_yield(void)
{
    CAIRN_ASSERT(current != NULL);
    cn_fiber_leave(&current->fiber);
}

void sim_fiber_exit(void)
{
    CAIRN_ASSERT(current != NULL);
    cn_fiber_exit(&current->fiber);
}

void sim_fiber_fini(struct sim_fiber *fiber)
{
    CAIRN_ASSERT(current == NULL);
    if (fiber->stack == NULL)
        return;
    cn_fiber_fini(&fiber->fiber);
    if (pool_count < POOL_MAX)
        pool[pool_count++] = fiber->stack;
    else
        cn_stacks_unmap(fiber->stack, 1, STACK_SIZE);
    fiber->stack = NULL;
    fiber->done = true;
}

void sim_fiber_trim(void)
{
    while (pool_count > 0)
        cn_stacks_unmap(pool[--pool_count], 1, STACK_SIZE);
}
