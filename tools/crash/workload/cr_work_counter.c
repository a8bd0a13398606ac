/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_counter.c: one or two keys that everybody increments: each acknowledged increment counts
 * once, and who wrote which number is known (chains, cr_kit.h).
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define COUNTERS_MAX 2u

struct counter {
    uint32_t counters;
    struct cr_chain chain;
};

static struct cr_key counter(uint32_t i)
{
    return cr_key('c', i, 0);
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct counter *s = cairn_run_state(run);

    (void)ctx;
    s->counters = 1 + cairn_run_choose(run, "counters", COUNTERS_MAX);
    return 0;
}

static int increment(struct cr_kit *kit, struct cr_chain_op *o, uint64_t op)
{
    struct cr_touch *t = &o->touch[0];
    struct cr_key k = counter(t->key);
    int rc = cr_chain_read(kit, &k, cr_chance(kit->run, "lock", 1, 2), &t->old);

    t->value = t->old.value + 1;
    o->count = 1;
    return rc != 0 ? rc : cr_chain_write(kit, &k, op, t);
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct counter *s = cairn_run_state(run);
    uint64_t op = cr_chain_begin(&s->chain, run);
    struct cr_chain_op *o = &s->chain.op[op];
    enum cairn_outcome outcome;
    struct cr_kit kit;

    if (op == 0)
        return 0;
    o->touch[0].key = cairn_run_choose(run, "counter", s->counters);
    o->touch[0].written = true;
    int rc = cr_kit_begin(&kit, run, ctx);
    return rc != 0 ? rc : cr_kit_end(&kit, op, increment(&kit, o, op), &outcome);
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct counter *s = cairn_run_state(run);
    static const int64_t first[COUNTERS_MAX];
    struct cr_link links[COUNTERS_MAX];
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->counters && rc == 0; i++) {
        struct cr_key k = counter(i);
        rc = cr_chain_read(&kit, &k, false, &links[i]);
    }
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    for (uint32_t i = 0; i < s->counters; i++)
        if (links[i].value != (int64_t)links[i].count)
            cairn_run_fail(run, "counter %u is %ld after %lu increments", i, (long)links[i].value,
                (unsigned long)links[i].count);
    cr_chain_check(&s->chain, run, links, first, s->counters);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct counter *s = cairn_run_state(run);
    const struct cr_touch *t = s->chain.op[op < CR_CHAIN_OPS ? op : 0].touch;

    (void)snprintf(text, size, "increment counter %u to %ld", t->key, (long)t->value);
}

const struct cairn_workload cr_work_counter = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "counter",
    .summary = "hot keys are incremented: each acknowledged increment counts once",
    .state_size = sizeof(struct counter),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
