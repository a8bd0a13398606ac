/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wp_unused.c: the calls that workloads link and test_cr_work_checks.c never makes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/cairn/workload.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NOT_CALLED(type, name, ...)                                                                \
    type name(__VA_ARGS__)                                                                         \
    {                                                                                              \
        fail_msg("%s is called", #name);                                                           \
        return (type)0;                                                                            \
    }
NOT_CALLED(void *, cairn_run_state, struct cairn_run *run)
NOT_CALLED(uint32_t, cairn_run_table, const struct cairn_run *run)
NOT_CALLED(uint32_t, cairn_run_choose, struct cairn_run *run, const char *label, uint32_t bound)
NOT_CALLED(uint64_t, cairn_run_op, struct cairn_run *run)
NOT_CALLED(int, cairn_run_commit, struct cairn_run *run, uint64_t op, struct cairn_tx *tx,
    enum cairn_outcome *ret_outcome)
NOT_CALLED(int, cairn_begin, struct cairn_ctx *ctx, struct cairn_tx **ret_tx)
NOT_CALLED(int, cairn_get, struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size)
NOT_CALLED(int, cairn_get_for_update, struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, size_t *ret_size)
NOT_CALLED(int, cairn_put, struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size)
NOT_CALLED(int, cairn_delete, struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size)
NOT_CALLED(const char *, cairn_error_name, int error)
NOT_CALLED(const char *, cairn_last_error, void)

void cairn_abort(struct cairn_tx *tx)
{
    fail_msg("cairn_abort is called");
}

void cairn_run_aborted(struct cairn_run *run, uint64_t op)
{
    fail_msg("cairn_run_aborted is called");
}
