/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: fibers keep what a function call keeps, and may be nested, left from each other's stacks,
 * and dropped.
 * Method: bodies that note what they see in a trace. Run under the sanitizers and valgrind as well:
 * a switch that they were not told of is an error there.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fenv.h>
#include <fpu_control.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "include/internal/cn_fiber.h"

#define SIZE (64u * 1024)
#define COUNT 4u

struct bed {
    void *stacks;
    struct cn_fiber fiber[COUNT];
    char trace[64];
    uint32_t traced;
    uint64_t sum[COUNT];
};

static void note(struct bed *bed, char c)
{
    assert_true(bed->traced + 1 < sizeof(bed->trace));
    bed->trace[bed->traced++] = c;
}

static int open_bed(void **state)
{
    static struct bed bed;

    memset(&bed, 0, sizeof(bed));
    bed.stacks = cn_stacks_map(COUNT, SIZE);
    *state = &bed;
    return bed.stacks == NULL ? -1 : 0;
}

static int close_bed(void **state)
{
    struct bed *bed = *state;

    for (uint32_t i = 0; i < COUNT; i++)
        cn_fiber_fini(&bed->fiber[i]);
    cn_stacks_unmap(bed->stacks, COUNT, SIZE);
    return 0;
}

static void init(struct bed *bed, uint32_t i, void (*entry)(void *arg))
{
    cn_fiber_init(&bed->fiber[i], cn_stacks_at(bed->stacks, i, SIZE), SIZE, entry, bed);
}

/* ---- in and out ---- */

static void three_steps(void *arg)
{
    struct bed *bed = arg;

    note(bed, 'a');
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, 'b');
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, 'c');
}

static void enter__left_twice__goes_on_each_time(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, three_steps);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(bed->fiber[0].done);
        note(bed, '-');
        cn_fiber_enter(&bed->fiber[0]);
    }
    assert_true(bed->fiber[0].done);
    assert_string_equal(bed->trace, "-a-b-c");
}

/* ---- what a call keeps ---- */

/* Sums in enough variables that some live in each kept register across the switches. */
#define SUM_BODY(i)                                                                                \
    static void sum_##i(void *arg)                                                                 \
    {                                                                                              \
        struct bed *bed = arg;                                                                     \
        uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7;                                  \
        uint8_t frame[512];                                                                        \
        memset(frame, i + 1, sizeof(frame));                                                       \
        for (uint32_t n = 0; n < 100; n++) {                                                       \
            a += n, b += a, c += b, d += c, e += d, f += e, g += f;                                \
            cn_fiber_leave(&bed->fiber[i]);                                                        \
            a ^= g, b ^= a, c ^= b, d ^= c, e ^= d, f ^= e, g ^= f ^ frame[n];                     \
        }                                                                                          \
        bed->sum[i] = a + b + c + d + e + f + g;                                                   \
    }
SUM_BODY(0)
SUM_BODY(1)
SUM_BODY(2)

static uint64_t expected_sum(uint32_t i)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7;

    for (uint32_t n = 0; n < 100; n++) {
        a += n, b += a, c += b, d += c, e += d, f += e, g += f;
        a ^= g, b ^= a, c ^= b, d ^= c, e ^= d, f ^= e, g ^= f ^ (i + 1);
    }
    return a + b + c + d + e + f + g;
}

static void enter__three_in_turn__registers_and_frames_are_kept(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, sum_0);
    init(bed, 1, sum_1);
    init(bed, 2, sum_2);
    while (!bed->fiber[0].done || !bed->fiber[1].done || !bed->fiber[2].done) {
        for (uint32_t i = 0; i < 3; i++) {
            if (!bed->fiber[i].done)
                cn_fiber_enter(&bed->fiber[i]);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(bed->sum[i], expected_sum(i));
}

static void round_up(void *arg)
{
    struct bed *bed = arg;

    assert_int_equal(fegetround(), FE_TONEAREST); /* that of its init */
    assert_int_equal(fesetround(FE_UPWARD), 0);
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, fegetround() == FE_UPWARD ? 'u' : '?');
    volatile double tenth = 0.1;
    note(bed, lrint(tenth) == 1 ? 'u' : '?'); /* SSE */
    volatile long double long_tenth = 0.1L;
    note(bed, lrintl(long_tenth) == 1 ? 'u' : '?'); /* x87 */
}

static void enter__rounding_set_inside__is_the_fibers_alone(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, round_up);
    assert_int_equal(fesetround(FE_DOWNWARD), 0);
    cn_fiber_enter(&bed->fiber[0]);
    int mode = fegetround();
    volatile double nine = 0.9;
    long floor = lrint(nine);
    cn_fiber_enter(&bed->fiber[0]);
    (void)fesetround(FE_TONEAREST);
    assert_int_equal(mode, FE_DOWNWARD);
    assert_int_equal(floor, 0);
    assert_string_equal(bed->trace, "uuu");
}

/* The rounding of one unit only (fesetround() sets both), so that each is looked at by itself. */
#define SSE_ROUND_UP 0x4000u
#define X87_ROUND_UP 0x0800u

static uint16_t get_x87(void)
{
    fpu_control_t mode;
    _FPU_GETCW(mode);
    return mode;
}

static void set_one_mode(void *arg)
{
    struct bed *bed = arg;

    _mm_setcsr(_mm_getcsr() | SSE_ROUND_UP);
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, (_mm_getcsr() & SSE_ROUND_UP) != 0 ? 's' : '?');
    _mm_setcsr(_mm_getcsr() & ~SSE_ROUND_UP);
    fpu_control_t mode = get_x87() | X87_ROUND_UP;
    _FPU_SETCW(mode);
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, (get_x87() & X87_ROUND_UP) != 0 ? 'x' : '?');
}

static void enter__one_mode_set_inside__is_the_fibers_alone(void **state)
{
    struct bed *bed = *state;
    uint32_t sse = _mm_getcsr() & SSE_ROUND_UP;
    uint16_t x87 = get_x87() & X87_ROUND_UP;

    init(bed, 0, set_one_mode);
    for (uint32_t i = 0; i < 3; i++) {
        cn_fiber_enter(&bed->fiber[0]);
        assert_int_equal(_mm_getcsr() & SSE_ROUND_UP, sse);
        assert_int_equal(get_x87() & X87_ROUND_UP, x87);
    }
    assert_string_equal(bed->trace, "sx");
}

static void use_vectors(void *arg)
{
    struct bed *bed = arg;
    _Alignas(16) uint8_t aligned[64];
    char text[64];

    assert_int_equal((uintptr_t)aligned % 16, 0);
    (void)snprintf(text, sizeof(text), "%.3f", 1.5); /* uses aligned stores of its caller's stack */
    note(bed, text[0]);
}

static void init__first_frame__stack_is_aligned_as_for_a_call(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, use_vectors);
    cn_fiber_enter(&bed->fiber[0]);
    assert_string_equal(bed->trace, "1");
}

/* ---- nested ---- */

static void inner(void *arg)
{
    struct bed *bed = arg;
    uint8_t frame[256];

    memset(frame, 7, sizeof(frame));
    note(bed, '1');
    cn_fiber_leave(&bed->fiber[0]); /* the outer one, from this stack */
    note(bed, '2');
    cn_fiber_leave(&bed->fiber[1]);
    note(bed, '3');
    cn_fiber_leave(&bed->fiber[0]);
    for (uint32_t i = 0; i < sizeof(frame); i++)
        assert_int_equal(frame[i], 7);
    note(bed, '4');
}

static void outer(void *arg)
{
    struct bed *bed = arg;

    note(bed, 'a');
    cn_fiber_enter(&bed->fiber[1]);
    note(bed, 'b');
    cn_fiber_leave(&bed->fiber[0]);
    note(bed, 'c');
    cn_fiber_enter(&bed->fiber[1]);
    note(bed, 'd');
}

static void leave__outer_from_the_inner_stack__both_go_on(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, outer);
    init(bed, 1, inner);
    while (!bed->fiber[0].done) {
        note(bed, '-');
        cn_fiber_enter(&bed->fiber[0]);
    }
    assert_true(bed->fiber[1].done);
    assert_string_equal(bed->trace, "-a1-2b-c3-4d");
}

static void die(void *arg)
{
    struct bed *bed = arg;

    cn_fiber_exit(&bed->fiber[0]); /* the outer one, from the inner stack: a crash */
}

static void exit__outer_from_the_inner_stack__both_are_dropped_and_made_again(void **state)
{
    struct bed *bed = *state;

    for (uint32_t i = 0; i < 3; i++) {
        init(bed, 0, outer);
        init(bed, 1, die);
        cn_fiber_enter(&bed->fiber[0]);
        assert_true(bed->fiber[0].done);
        cn_fiber_fini(&bed->fiber[0]);
        cn_fiber_fini(&bed->fiber[1]);
    }
    assert_string_equal(bed->trace, "aaa");
    init(bed, 0, three_steps);
    cn_fiber_enter(&bed->fiber[0]);
    assert_string_equal(bed->trace, "aaaa");
}

/* ---- dropped, too deep ---- */

static void fini__left_in_the_middle__stack_serves_again(void **state)
{
    struct bed *bed = *state;

    init(bed, 0, three_steps);
    cn_fiber_enter(&bed->fiber[0]);
    cn_fiber_fini(&bed->fiber[0]);
    assert_true(bed->fiber[0].done);
    cn_fiber_fini(&bed->fiber[0]); /* once more: nothing */
    memset(cn_stacks_at(bed->stacks, 0, SIZE), 0xa5, SIZE);
    init(bed, 0, use_vectors);
    cn_fiber_enter(&bed->fiber[0]);
    assert_string_equal(bed->trace, "a1");
}

static void dig(void *arg)
{
    volatile uint8_t *at = __builtin_frame_address(0);

    (void)arg;
    for (size_t depth = 0; depth < 2 * SIZE; depth += 1024)
        at[0 - depth] = 1;
}

/* As a large frame of which the lowest bytes are used. */
static void step_over(void *arg)
{
    volatile uint8_t *at = __builtin_frame_address(0);

    (void)arg;
    at[0 - (size_t)SIZE - CN_FIBER_GUARD / 2] = 1;
}

static void expect_guard(struct bed *bed, void (*entry)(void *arg))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        (void)close(STDERR_FILENO); /* a sanitizer's report */
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka's would run on this stack */
        init(bed, 1, entry); /* below it another stack, and a guard between */
        cn_fiber_enter(&bed->fiber[1]);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void stacks__overflow__meets_the_guard(void **state)
{
    expect_guard(*state, dig);
}

static void stacks__frame_larger_than_a_page__meets_the_guard(void **state)
{
    expect_guard(*state, step_over);
}

static void stacks_map__too_many__says_why(void **state)
{
    (void)state;
    errno = 0;
    assert_null(cn_stacks_map(UINT32_MAX, UINT32_MAX / 4 / CN_FIBER_PAGE * CN_FIBER_PAGE));
    assert_int_not_equal(errno, 0);
}

int main(void)
{
#define BED_TEST(f) cmocka_unit_test_setup_teardown(f, open_bed, close_bed)
    const struct CMUnitTest tests[] = {
        BED_TEST(enter__left_twice__goes_on_each_time),
        BED_TEST(enter__three_in_turn__registers_and_frames_are_kept),
        BED_TEST(enter__rounding_set_inside__is_the_fibers_alone),
        BED_TEST(enter__one_mode_set_inside__is_the_fibers_alone),
        BED_TEST(init__first_frame__stack_is_aligned_as_for_a_call),
        BED_TEST(leave__outer_from_the_inner_stack__both_go_on),
        BED_TEST(exit__outer_from_the_inner_stack__both_are_dropped_and_made_again),
        BED_TEST(fini__left_in_the_middle__stack_serves_again),
        BED_TEST(stacks__overflow__meets_the_guard),
        BED_TEST(stacks__frame_larger_than_a_page__meets_the_guard),
        BED_TEST(stacks_map__too_many__says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
