/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_skew.c: pairs of keys of which at most one may exist. An operation reads both; it inserts
 * one if there is none, else it deletes what is there: two that do not see each other's insert make
 * a write skew, on absence.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define PAIRS 2u

struct skew {
    uint64_t both; /* times that a transaction which aborted had seen both: allowed */
};

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    (void)run;
    (void)ctx;
    return 0;
}

static int read_pair(struct cr_kit *kit, uint32_t pair, bool *ret_there)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct cr_key k = cr_key('s', pair, i);
        uint64_t value;
        size_t size;
        int rc = cr_kit_get(kit, &k, false, &value, sizeof(value), &size);
        if (rc != 0)
            return rc;
        ret_there[i] = size != CR_KIT_ABSENT;
    }
    return 0;
}

static int flip(struct cr_kit *kit, uint32_t pair, uint64_t op, bool *there)
{
    uint32_t side = cairn_run_choose(kit->run, "pair-side", 2);
    int rc = read_pair(kit, pair, there);

    if (rc != 0)
        return rc;
    if (there[0] || there[1])
        side = there[0] ? 0 : 1;
    struct cr_key k = cr_key('s', pair, side);
    return there[0] || there[1] ? cr_kit_delete(kit, &k) : cr_kit_put(kit, &k, &op, sizeof(op));
}

static void judge(struct cairn_run *run, uint32_t pair, const bool *there)
{
    if (there[0] && there[1])
        cairn_run_fail(run, "write skew: both keys of pair %u exist", pair);
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct skew *s = cairn_run_state(run);
    uint32_t pair = cairn_run_choose(run, "pair", PAIRS);
    uint64_t op = cairn_run_op(run);
    bool there[2] = {false, false};
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    rc = cr_kit_end(&kit, op, flip(&kit, pair, op, there), &outcome);
    if (rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
        judge(run, pair, there);
    else
        s->both += there[0] && there[1];
    return rc;
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    for (uint32_t i = 0; i < PAIRS; i++) {
        enum cairn_outcome outcome;
        bool there[2] = {false, false};
        struct cr_kit kit;
        int rc = cr_kit_begin(&kit, run, ctx);
        if (rc != 0)
            return rc;
        rc = cr_kit_end(&kit, 0, read_pair(&kit, i, there), &outcome);
        if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
            return rc != 0 ? rc : CAIRN_E_CONFLICT;
        judge(run, i, there);
    }
    return 0;
}

const struct cairn_workload cr_work_skew = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "skew",
    .summary = "pairs of keys, inserted where there is none: at most one of a pair exists",
    .state_size = sizeof(struct skew),
    .setup = setup,
    .step = step,
    .check = check,
};
