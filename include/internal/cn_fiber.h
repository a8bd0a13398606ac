/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_fiber.h: stacks that can be left in the middle of a function and entered again. A fiber runs
 * from whoever enters it until it leaves; whoever enters may itself be on a fiber's stack, and a
 * fiber may leave from the stack of another that was entered on top of it (the crash harness runs
 * contexts in fibers, and a context runs transactions in fibers of its own).
 *
 * A switch saves what the ABI says a call keeps: registers, and the modes of floating point, since
 * a user's body may have set them. No system call, no lock, no memory. A fiber that is under way
 * stays with its thread: compilers keep addresses of thread-local variables across calls.
 *
 * Sanitizers and valgrind are told of every stack and switch.
 */
#ifndef CN_FIBER_H
#define CN_FIBER_H

#include "include/internal/cn_base.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CN_FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CN_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CN_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define CN_FIBER_TSAN 1
#endif
#if defined(CN_FIBER_ASAN) || defined(CN_FIBER_TSAN)
#define CN_FIBER_WATCHED 1
#endif

struct cn_fiber_place { /* a stack, for the sanitizers */
    const void *bottom;
    size_t size;
    void *thread; /* ThreadSanitizer's */
};

struct cn_fiber {
    void *sp;      /* where it was left */
    void *from_sp; /* who entered it */
    void (*entry)(void *arg);
    void *arg;
    bool inside; /* entered and not left */
    bool done;
    unsigned valgrind;
    struct cn_fiber_place own;
    struct cn_fiber_place at, from; /* the stack it was left on, and entered from */
};

/*
 * Prepare a fiber that runs entry(arg) on this stack. Owner: the caller keeps the stack until
 * cn_fiber_fini(). `entry` may return: the fiber is done then.
 */
void cn_fiber_init(
    struct cn_fiber *fiber, void *stack, size_t size, void (*entry)(void *arg), void *arg);
/* Save the registers and modes that a call keeps on this stack, its pointer in *save_sp, and go on
 * where `to_sp` was saved. */
void cn_fiber_switch_in(void **save_sp, void *to_sp);
void cn_fiber_switch_out(void **save_sp, void *to_sp);
/* cn_fiber_enter(): run it until it leaves, or is done. cn_fiber_leave(), from inside: back to who
 * entered. */
#ifdef CN_FIBER_WATCHED
void cn_fiber_enter(struct cn_fiber *fiber);
void cn_fiber_leave(struct cn_fiber *fiber);
#else

/* Inside their callers: each return after a switch is mispredicted. */
static inline void cn_fiber_enter(struct cn_fiber *fiber)
{
    CAIRN_ASSERT(!fiber->inside && !fiber->done);
    fiber->inside = true;
    cn_fiber_switch_in(&fiber->from_sp, fiber->sp);
}

static inline void cn_fiber_leave(struct cn_fiber *fiber)
{
    CAIRN_ASSERT(fiber->inside);
    fiber->inside = false;
    cn_fiber_switch_out(&fiber->sp, fiber->from_sp);
}
#endif
/* From inside, for good. */
CN_NORETURN void cn_fiber_exit(struct cn_fiber *fiber);
/* Forget it, whatever is on its stack (it may have been entered and never left: a crash). From
 * outside. Does nothing to one that is all zero. */
void cn_fiber_fini(struct cn_fiber *fiber);

/*
 * Memory for `count` stacks of `size` bytes (a multiple of CN_FIBER_PAGE), each with a guard below
 * it, in one mapping; untouched pages cost nothing. The guard is large, as a frame of a user's body
 * may step over a small one, into another stack. NULL: errno says why.
 */
#define CN_FIBER_PAGE 4096u
#define CN_FIBER_GUARD (64u * 1024)
void *cn_stacks_map(uint32_t count, size_t size);
void cn_stacks_unmap(void *stacks, uint32_t count, size_t size);
static inline void *cn_stacks_at(void *stacks, uint32_t index, size_t size)
{
    return (uint8_t *)stacks + (CN_FIBER_GUARD + size) * index + CN_FIBER_GUARD;
}

#endif
