/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the write-back chosen for this CPU exists and changes no byte.
 * Method: write back lines of a buffer and compare.
 * Invariants: one choice per CPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_emu.h"

static void choose_flush__any_cpu__keeps_the_bytes(void **state)
{
    (void)state;
    _Alignas(64) uint8_t lines[256], copy[256];
    void (*flush_line)(const void *) = rd_emu_choose_flush();
    assert_non_null(flush_line);
    assert_ptr_equal(flush_line, rd_emu_choose_flush());
    for (size_t i = 0; i < sizeof(lines); i++)
        lines[i] = copy[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(lines); i += 64)
        flush_line(lines + i);
    emu_full_barrier();
    assert_memory_equal(lines, copy, sizeof(lines));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choose_flush__any_cpu__keeps_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
