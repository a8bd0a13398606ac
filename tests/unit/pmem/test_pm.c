/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the seam stores exactly what it is told, in 8-byte units, tells the tracer of each after
 * the fact, and a fence drains, traces and passes its step in that order.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm.h"
#include "pmem/pm_layout.h"

#define SIZE 4096u

static uint8_t memory[SIZE] __attribute__((aligned(64)));
static char order[64];
static uint64_t stores, last_store, flushed_off, flushed_size;
static const void *flushed_addr;

static void note(char c)
{
    size_t n = strlen(order);

    if (n < sizeof(order) - 1)
        order[n] = c;
}

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    assert_ptr_equal(arg, memory);
    assert_int_equal(size, 8);
    last_store = off;
    stores++;
}

static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    (void)arg;
    flushed_off = off;
    flushed_size = size;
    note('F');
}

static void on_fence(void *arg, enum cn_step step)
{
    (void)arg;
    assert_int_equal(step, CN_STEP_a_body);
    note('t');
}

static void on_step(void *arg, enum cn_step step)
{
    (void)arg;
    assert_int_equal(step, CN_STEP_a_body);
    note('s');
}

static void flush_lines(const void *addr, size_t size)
{
    flushed_addr = addr;
    assert_int_equal(size, 24);
    note('f');
}

static void drain(void)
{
    note('d');
}

static const struct pm_tracer tracer = {memory, on_store, on_flush, on_fence};
static const struct cn_env env = {.step = on_step};
static const struct pm pm = {
    .base = memory, .size = SIZE, .flush_lines = flush_lines, .drain = drain, .env = &env,
    .tracer = &tracer};

static int reset(void **state)
{
    (void)state;
    memset(memory, 0xee, sizeof(memory));
    memset(order, 0, sizeof(order));
    stores = 0;
    return 0;
}

static void pm_copy__unaligned_source__copies_just_the_range(void **state)
{
    uint8_t source[33];

    (void)state;
    for (unsigned i = 0; i < sizeof(source); i++)
        source[i] = (uint8_t)(i + 1);
    pm_copy(&pm, 64, source + 1, 32);
    assert_memory_equal(memory + 64, source + 1, 32);
    assert_int_equal(memory[63], 0xee);
    assert_int_equal(memory[96], 0xee);
    assert_int_equal(stores, 4);
    assert_int_equal(last_store, 88);
    pm_copy(&pm, 0, NULL, 0);
    assert_int_equal(stores, 4);
}

/* What was written back, and how: bytes of a big range. */
#define BIG (64u * 1024)
static uint8_t big[BIG + 64] __attribute__((aligned(64)));
static uint64_t written_back;

static void count_lines(const void *addr, size_t size)
{
    assert_true((const uint8_t *)addr >= big && (const uint8_t *)addr + size <= big + sizeof(big));
    written_back += size;
}

static void drain_nothing(void)
{
}

/* Long enough, it goes past the caches: only what does not fill a line is written back. */
static void pm_copy_flush__any_range__copied_and_nothing_beside_it(void **state)
{
    static const uint64_t sizes[] = {0, 8, 64, 4096 - 8, 4096, 4096 + 72, BIG - 128};
    static uint8_t source[BIG + 8];
    const struct pm plain = {.base = big, .size = sizeof(big), .flush_lines = count_lines,
        .drain = drain_nothing, .env = &env};

    (void)state;
    for (unsigned i = 0; i < sizeof(source); i++)
        source[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t s = 0; s < CN_ARRAY_SIZE(sizes); s++) {
        for (uint64_t off = 64; off <= 128; off += 24) {
            memset(big, 0xee, sizeof(big));
            written_back = 0;
            pm_copy_flush(&plain, off, source + 3, sizes[s]);
            assert_memory_equal(big + off, source + 3, sizes[s]);
            assert_int_equal(big[off - 1], 0xee);
            assert_int_equal(big[off + sizes[s]], 0xee);
            if (sizes[s] < 4096)
                assert_int_equal(written_back, sizes[s]);
            else if (sizes[s] > 4200)
                assert_true(written_back < 2 * 64);
        }
    }
}

static void pm_zero__range__is_zero(void **state)
{
    static const uint8_t zero[16];

    (void)state;
    pm_zero(&pm, 8, 16);
    assert_memory_equal(memory + 8, zero, 16);
    assert_int_equal(memory[7], 0xee);
    assert_int_equal(memory[24], 0xee);
    assert_int_equal(stores, 2);
}

static void pm_read__unaligned_target__reads_just_the_range(void **state)
{
    uint8_t target[26];

    (void)state;
    memset(target, 1, sizeof(target));
    pm_read(&pm, SIZE - 24, target + 1, 24);
    assert_memory_equal(target + 1, memory + SIZE - 24, 24);
    assert_int_equal(target[0], 1);
    assert_int_equal(target[25], 1);
}

static void pm_store64__number__is_little_endian_on_media(void **state)
{
    static const uint8_t bytes[8] = {8, 7, 6, 5, 4, 3, 2, 1};

    (void)state;
    pm_store64(&pm, 16, UINT64_C(0x0102030405060708));
    assert_memory_equal(memory + 16, bytes, 8);
    assert_true(pm_load64(&pm, 16) == UINT64_C(0x0102030405060708));
    assert_int_equal(stores, 1);
}

static void pm_fence__after_flush__order_is_action_trace_step(void **state)
{
    (void)state;
    pm_flush(&pm, 128, 24);
    assert_ptr_equal(flushed_addr, memory + 128);
    assert_int_equal(flushed_off, 128);
    assert_int_equal(flushed_size, 24);
    pm_flush(&pm, SIZE, 0); /* nothing */
    pm_fence(&pm, CN_STEP_a_body);
    assert_string_equal(order, "fFdts");
}

static void pm_word_value__inputs__all_matter_and_never_zero(void **state)
{
    uint64_t a = pm_word_value(1, 2, PM_WORD_MARK);

    (void)state;
    assert_true(a != 0);
    assert_true(a == pm_word_value(1, 2, PM_WORD_MARK));
    assert_true(a != pm_word_value(2, 2, PM_WORD_MARK));
    assert_true(a != pm_word_value(1, 3, PM_WORD_MARK));
    assert_true(a != pm_word_value(1, 2, PM_WORD_MARK + 1));
    assert_true(a != pm_word_value(1, 2 + (UINT64_C(1) << 63), PM_WORD_MARK));
    for (uint64_t i = 0; i < 10000; i++)
        assert_true(pm_word_value(i, i, 1) != 0 && pm_word_value(0, 0, (unsigned)i) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pm_copy__unaligned_source__copies_just_the_range, reset),
        cmocka_unit_test_setup(pm_zero__range__is_zero, reset),
        cmocka_unit_test_setup(pm_read__unaligned_target__reads_just_the_range, reset),
        cmocka_unit_test_setup(pm_store64__number__is_little_endian_on_media, reset),
        cmocka_unit_test_setup(pm_fence__after_flush__order_is_action_trace_step, reset),
        cmocka_unit_test(pm_copy_flush__any_range__copied_and_nothing_beside_it),
        cmocka_unit_test(pm_word_value__inputs__all_matter_and_never_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
