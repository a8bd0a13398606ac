/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_fiber.c: the switch, and what sanitizers and valgrind have to know of it. (swapcontext() would
 * do two system calls each time.)
 *
 * AddressSanitizer wants the bounds of the stack that is entered next. They are not those that a
 * fiber was made with when it was left from inside of another one: so each arrival notes the bounds
 * of the stack just left, as the sanitizer knows them, for the way back there.
 */
#include "include/internal/cn_fiber.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef __x86_64__
#error "cn_fiber.c knows x86-64 only"
#endif

#ifdef CN_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CN_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else /* memcheck guesses then: wrongly where two stacks lie near each other */
#define VALGRIND_STACK_REGISTER(bottom, end) 0u
#define VALGRIND_STACK_DEREGISTER(id) (void)(id)
#endif

void cn_fiber_start(void);
CN_NORETURN __attribute__((used)) void cn_fiber_main(struct cn_fiber *fiber);

/*
 * The switch, see cn_fiber.h. A new fiber's frame goes on in cn_fiber_start, its fiber in rbx.
 *
 * To load the modes of floating point takes longer than all the rest, and they are hardly ever
 * others: of mxcsr the flags do not count, which no call has to keep. The end is no `ret`: a
 * processor foretells that one by the calls of the stack just left, always wrongly; and there are
 * two switches, as each then goes on in one and the same place.
 */
#define SWITCH(name)                                                                               \
    ".globl " name "\n"                                                                            \
    ".hidden " name "\n"                                                                           \
    ".type " name ",@function\n" name ":\n"                                                        \
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"                                             \
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"                                             \
    "    subq $8, %rsp\n"                                                                          \
    "    stmxcsr (%rsp)\n    fnstcw 4(%rsp)\n"                                                     \
    "    movl (%rsp), %eax\n    movzwl 4(%rsp), %ecx\n"                                            \
    "    movq %rsp, (%rdi)\n"                                                                      \
    "    movq %rsi, %rsp\n"                                                                        \
    "    xorl (%rsp), %eax\n    testl $0xffffffc0, %eax\n    jne 1f\n"                             \
    "    cmpw 4(%rsp), %cx\n    jne 1f\n"                                                          \
    "0:  addq $8, %rsp\n"                                                                          \
    "    popq %r15\n    popq %r14\n    popq %r13\n"                                                \
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"                                                \
    "    popq %rdx\n    jmpq *%rdx\n"                                                              \
    "1:  ldmxcsr (%rsp)\n    fldcw 4(%rsp)\n    jmp 0b\n"                                          \
    ".size " name ",.-" name "\n"

__asm__(".text\n" SWITCH("cn_fiber_switch_in") SWITCH("cn_fiber_switch_out")
        ".globl cn_fiber_start\n"
        ".hidden cn_fiber_start\n"
        ".type cn_fiber_start,@function\n"
        "cn_fiber_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined %rip\n" /* the outermost frame */
        "    movq %rbx, %rdi\n"
        "    call cn_fiber_main\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size cn_fiber_start,.-cn_fiber_start\n");

struct frame { /* as a switch leaves it */
    uint32_t mxcsr;
    uint16_t x87;
    uint16_t unused;
    uint64_t r15, r14, r13, r12;
    struct cn_fiber *rbx;
    uint64_t rbp;
    void (*ret)(void);
    uint64_t end[2]; /* the stack is 16-aligned before the call */
};

static void arrive(void *fake_stack, struct cn_fiber_place *ret_left)
{
#ifdef CN_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &ret_left->bottom, &ret_left->size);
#else
    (void)fake_stack;
    (void)ret_left;
#endif
}

/* Begin a switch to the stack `to`. `fake_stack` NULL: this one is left for good. *ret_here: what
 * ThreadSanitizer knows this stack as. */
static inline void depart(
    void **fake_stack, const struct cn_fiber_place *to, struct cn_fiber_place *ret_here)
{
#ifdef CN_FIBER_ASAN
    __sanitizer_start_switch_fiber(fake_stack, to->bottom, to->size);
#endif
#ifdef CN_FIBER_TSAN
    ret_here->thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->thread, 0);
#endif
    (void)fake_stack;
    (void)to;
    (void)ret_here;
}

void cn_fiber_main(struct cn_fiber *fiber)
{
    arrive(NULL, &fiber->from);
    fiber->entry(fiber->arg);
    cn_fiber_exit(fiber);
}

void cn_fiber_init(
    struct cn_fiber *fiber, void *stack, size_t size, void (*entry)(void *arg), void *arg)
{
    uint8_t *end = (uint8_t *)stack + size;
    struct frame frame = {.rbx = fiber, .ret = cn_fiber_start};

    CAIRN_ASSERT(size >= CN_FIBER_PAGE && (uintptr_t)end % 16 == 0);
    __asm__("stmxcsr %0\n    fnstcw %1" : "=m"(frame.mxcsr), "=m"(frame.x87));
    memcpy(end - sizeof(frame), &frame, sizeof(frame));
    *fiber = (struct cn_fiber){.sp = end - sizeof(frame),
        .entry = entry,
        .arg = arg,
        .own = {.bottom = stack, .size = size}};
    fiber->valgrind = VALGRIND_STACK_REGISTER(stack, end);
#ifdef CN_FIBER_TSAN
    fiber->own.thread = __tsan_create_fiber(0);
#endif
    fiber->at = fiber->own;
}

#ifdef CN_FIBER_WATCHED
void cn_fiber_enter(struct cn_fiber *fiber)
{
    void *fake_stack = NULL;

    CAIRN_ASSERT(!fiber->inside && !fiber->done);
    fiber->inside = true;
    depart(&fake_stack, &fiber->at, &fiber->from);
    cn_fiber_switch_in(&fiber->from_sp, fiber->sp);
    arrive(fake_stack, &fiber->at);
}

void cn_fiber_leave(struct cn_fiber *fiber)
{
    void *fake_stack = NULL;

    CAIRN_ASSERT(fiber->inside);
    fiber->inside = false;
    depart(&fake_stack, &fiber->from, &fiber->at);
    cn_fiber_switch_out(&fiber->sp, fiber->from_sp);
    arrive(fake_stack, &fiber->from);
}
#endif

void cn_fiber_exit(struct cn_fiber *fiber)
{
    CAIRN_ASSERT(fiber->inside);
    fiber->inside = false;
    fiber->done = true;
    depart(NULL, &fiber->from, &fiber->at);
    cn_fiber_switch_out(&fiber->sp, fiber->from_sp);
    cn_panic(__FILE__, __LINE__, "a fiber that is done was entered");
}

void cn_fiber_fini(struct cn_fiber *fiber)
{
    if (fiber->sp == NULL)
        return;
    VALGRIND_STACK_DEREGISTER(fiber->valgrind);
#ifdef CN_FIBER_ASAN /* frames that were never left */
    __asan_unpoison_memory_region(fiber->own.bottom, fiber->own.size);
#endif
#ifdef CN_FIBER_TSAN
    __tsan_destroy_fiber(fiber->own.thread);
#endif
    *fiber = (struct cn_fiber){.done = true};
}

/* ---- stacks ---- */

void *cn_stacks_map(uint32_t count, size_t size)
{
    size_t each = CN_FIBER_GUARD + size;
    uint8_t *base = mmap(NULL, each * count, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    CAIRN_ASSERT(count > 0 && size % CN_FIBER_PAGE == 0);
    if (base == MAP_FAILED)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (mprotect(base + each * i, CN_FIBER_GUARD, PROT_NONE) != 0) {
            int error = errno;
            (void)munmap(base, each * count);
            errno = error;
            return NULL;
        }
    }
    return base;
}

void cn_stacks_unmap(void *stacks, uint32_t count, size_t size)
{
    if (stacks != NULL)
        CAIRN_ASSERT(munmap(stacks, (CN_FIBER_GUARD + size) * count) == 0);
}
