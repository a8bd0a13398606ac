/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_cycle.c: keys point at keys and form one ring; an operation walks three steps from a key
 * and swaps the two nodes it met: r -> a -> b -> c becomes r -> b -> a -> c. Any two operations
 * that do not see each other break the ring into two. (FoundationDB's Cycle.)
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define RING_MAX 12u

struct cycle {
    uint32_t size;
    struct cr_chain chain;
};

static struct cr_key node(uint32_t i)
{
    return cr_key('r', i, 0);
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct cycle *s = cairn_run_state(run);
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    s->size = 4 + cairn_run_choose(run, "ring-size", RING_MAX - 3);
    for (uint32_t i = 0; i < s->size && rc == 0; i++) {
        struct cr_link first = {.value = (i + 1) % s->size};
        struct cr_key k = node(i);
        rc = cr_kit_put(&kit, &k, &first, sizeof(first));
    }
    uint64_t op = cairn_run_op(run);
    rc = cr_kit_end(&kit, op, rc, &outcome);
    return rc == 0 && outcome != CAIRN_OUTCOME_COMMITTED ? CAIRN_E_CONFLICT : rc;
}

static int swap(struct cr_kit *kit, struct cycle *s, uint64_t op)
{
    struct cr_chain_op *o = &s->chain.op[op];
    int64_t at = cairn_run_choose(kit->run, "ring-start", s->size);
    bool lock = cr_chance(kit->run, "lock", 1, 2);

    for (uint32_t i = 0; i < 3; i++) {
        struct cr_touch *t = &o->touch[i];
        if (at < 0 || at >= s->size) {
            cairn_run_fail(kit->run, "a node points at %ld", (long)at);
            return CAIRN_E_CONFLICT;
        }
        *t = (struct cr_touch){.key = (uint32_t)at, .written = true};
        struct cr_key k = node(t->key);
        int rc = cr_chain_read(kit, &k, lock, &t->old);
        if (rc != 0)
            return rc;
        at = t->old.value;
    }
    /* The three read at different moments may not be a path: validation finds it. */
    o->touch[0].value = o->touch[1].old.value;
    o->touch[1].value = o->touch[2].old.value;
    o->touch[2].value = o->touch[0].old.value;
    o->count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        struct cr_key k = node(o->touch[i].key);
        int rc = cr_chain_write(kit, &k, op, &o->touch[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* All nodes in one transaction, which must be one ring. */
static int look(struct cairn_run *run, struct cairn_ctx *ctx, struct cr_link *links)
{
    const struct cycle *s = cairn_run_state(run);
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->size && rc == 0; i++) {
        struct cr_key k = node(i);
        rc = cr_chain_read(&kit, &k, false, &links[i]);
    }
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    uint32_t at = 0, steps = 0;
    do {
        int64_t next = links[at].value;
        steps++;
        if (next < 0 || next >= s->size) {
            cairn_run_fail(run, "node %u points at %ld", at, (long)next);
            return 0;
        }
        at = (uint32_t)next;
    } while (at != 0 && steps <= s->size);
    if (steps != s->size)
        cairn_run_fail(run, "the ring of %u nodes has come apart: %u steps from node 0%s", s->size,
            steps, at == 0 ? " lead back to it" : " do not");
    return 0;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct cycle *s = cairn_run_state(run);
    struct cr_link links[RING_MAX];
    enum cairn_outcome outcome;
    struct cr_kit kit;

    if (cr_chance(run, "ring-look", 1, 8))
        return look(run, ctx, links);
    uint64_t op = cr_chain_begin(&s->chain, run);
    if (op == 0)
        return 0;
    int rc = cr_kit_begin(&kit, run, ctx);
    return rc != 0 ? rc : cr_kit_end(&kit, op, swap(&kit, s, op), &outcome);
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct cycle *s = cairn_run_state(run);
    struct cr_link links[RING_MAX];
    int64_t first[RING_MAX];
    int rc = look(run, ctx, links);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->size; i++)
        first[i] = (i + 1) % s->size;
    cr_chain_check(&s->chain, run, links, first, s->size);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct cycle *s = cairn_run_state(run);
    const struct cr_touch *t = s->chain.op[op < CR_CHAIN_OPS ? op : 0].touch;

    (void)snprintf(text, size, "swap nodes %u and %u behind %u", t[1].key, t[2].key, t[0].key);
}

const struct cairn_workload cr_work_cycle = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "cycle",
    .summary = "keys that point at keys are swapped: they stay one ring",
    .state_size = sizeof(struct cycle),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
