/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fiber.c: stack switching. A switch saves the callee-saved registers and changes the stack
 * pointer: swapcontext() would do two system calls each time, and a run has tens of thousands of
 * switches. AddressSanitizer is told about each switch. Stacks are pooled, each with a guard page
 * below. The globals belong to the one thread that runs simulations.
 */
#include "tools/sim/sim_fiber.h"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "sim_fiber.c knows x86-64 only"
#endif

#define STACK_SIZE (256u * 1024)
#define GUARD_SIZE 4096u
#define POOL_MAX 64u

static struct sim_fiber *current;
static void *scheduler_sp;
static uint8_t *pool[POOL_MAX];
static uint32_t pool_count;
#ifdef SIM_ASAN
static const void *scheduler_bottom;
static size_t scheduler_size;
#endif

void sim_fiber_switch(void **save_sp, void *to_sp);
__asm__(".text\n"
        ".globl sim_fiber_switch\n"
        ".hidden sim_fiber_switch\n"
        ".type sim_fiber_switch,@function\n"
        "sim_fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size sim_fiber_switch,.-sim_fiber_switch\n");

static void leave(void **fake_stack)
{
    struct sim_fiber *fiber = current;

    current = NULL;
#ifdef SIM_ASAN
    __sanitizer_start_switch_fiber(fake_stack, scheduler_bottom, scheduler_size);
#else
    (void)fake_stack;
#endif
    sim_fiber_switch(&fiber->sp, scheduler_sp);
#ifdef SIM_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_bottom, &scheduler_size);
#endif
}

static void trampoline(void)
{
    struct sim_fiber *fiber = current;

#ifdef SIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, &scheduler_bottom, &scheduler_size);
#endif
    fiber->entry(fiber->arg);
    sim_fiber_exit();
}

static uint8_t *take_stack(void)
{
    if (pool_count > 0)
        return pool[--pool_count];
    uint8_t *base = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CAIRN_ASSERT(base != MAP_FAILED);
    CAIRN_ASSERT(mprotect(base, GUARD_SIZE, PROT_NONE) == 0);
    return base + GUARD_SIZE;
}

static void drop_stack(uint8_t *stack)
{
    CAIRN_ASSERT(munmap(stack - GUARD_SIZE, GUARD_SIZE + STACK_SIZE) == 0);
}

void sim_fiber_init(struct sim_fiber *fiber, void (*entry)(void *arg), void *arg)
{
    memset(fiber, 0, sizeof(*fiber));
    fiber->entry = entry;
    fiber->arg = arg;
    fiber->stack = take_stack();
#ifdef SIM_ASAN
    __asan_unpoison_memory_region(fiber->stack, STACK_SIZE);
#endif
    /* Six registers, then the return address; at the entry of a function the stack is 8 off 16. */
    void **top = (void **)(void *)(fiber->stack + STACK_SIZE - 16);
    void (*start)(void) = trampoline;
    memcpy(top, &start, sizeof(start));
    memset(top - 6, 0, 6 * sizeof(*top));
    fiber->sp = top - 6;
}

void sim_fiber_run(struct sim_fiber *fiber)
{
    CAIRN_ASSERT(current == NULL && !fiber->done);
    current = fiber;
#ifdef SIM_ASAN
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, fiber->stack, STACK_SIZE);
#endif
    sim_fiber_switch(&scheduler_sp, fiber->sp);
#ifdef SIM_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    CAIRN_ASSERT(current == NULL);
}

void sim_fiber_yield(void)
{
    CAIRN_ASSERT(current != NULL);
    leave(&current->fake_stack);
}

void sim_fiber_exit(void)
{
    CAIRN_ASSERT(current != NULL);
    current->done = true;
    leave(NULL);
    cn_panic(__FILE__, __LINE__, "a dropped fiber was run again");
}

void sim_fiber_fini(struct sim_fiber *fiber)
{
    CAIRN_ASSERT(current == NULL);
    if (fiber->stack == NULL)
        return;
    if (pool_count < POOL_MAX)
        pool[pool_count++] = fiber->stack;
    else
        drop_stack(fiber->stack);
    fiber->stack = NULL;
    fiber->done = true;
}

void sim_fiber_trim(void)
{
    while (pool_count > 0)
        drop_stack(pool[--pool_count]);
}
