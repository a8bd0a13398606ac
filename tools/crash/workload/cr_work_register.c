/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_register.c: a few registers, written blindly with unique values (the operation's number)
 * and read, one to three in a transaction. What a transaction read and when it began and ended lies
 * in the state, so in the end each register is checked for linearizability, by the zones of Gibbons
 * and Korach: all that wrote or read one value is a cluster, which needs the register from the
 * first end to the last beginning in it. Two clusters may not need it at the same moment, and none
 * may lie within the need of another. And who has seen one write of a transaction has seen all.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>
#include <stdlib.h>

#define REGISTERS_MAX 4u
#define TOUCHES 3u
#define OPS_MAX 131072u
#define NEVER UINT64_MAX

struct touch {
    uint32_t reg;
    bool wrote;
    uint32_t value; /* read; written values are the operation's number */
};
struct entry {
    uint64_t begin, end; /* NEVER, or 0 while it runs: not ended */
    uint32_t count;
    bool committed; /* as the step saw it, with what it read */
    struct touch touch[TOUCHES];
};
struct registers {
    uint32_t registers;
    uint64_t clock; /* beginnings and ends in their order */
    uint64_t ops;
    struct entry entry[OPS_MAX];
};

static uint64_t tick(struct registers *s)
{
    return __atomic_add_fetch(&s->clock, 1, __ATOMIC_SEQ_CST);
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct registers *s = cairn_run_state(run);

    (void)ctx;
    s->registers = 2 + cairn_run_choose(run, "registers", REGISTERS_MAX - 1);
    return 0;
}

static int read_register(struct cr_kit *kit, uint32_t reg, bool lock, uint32_t *ret_value)
{
    struct cr_key k = cr_key('g', reg, 0);
    size_t size;
    int rc = cr_kit_get(kit, &k, lock, ret_value, sizeof(*ret_value), &size);

    if (rc == 0 && size == CR_KIT_ABSENT)
        *ret_value = 0;
    else if (rc == 0 && size != sizeof(*ret_value))
        cairn_run_fail(kit->run, "register %u has %zu bytes", reg, size);
    return rc;
}

static int touch_all(struct cr_kit *kit, struct entry *e, uint64_t op)
{
    uint32_t value = (uint32_t)op;
    int rc = 0;

    for (uint32_t i = 0; i < e->count && rc == 0; i++) {
        struct cr_key k = cr_key('g', e->touch[i].reg, 0);
        rc = e->touch[i].wrote ? cr_kit_put(kit, &k, &value, sizeof(value))
                               : read_register(kit, e->touch[i].reg,
                                     cr_chance(kit->run, "lock", 1, 4), &e->touch[i].value);
    }
    return rc;
}

static void draw(struct cairn_run *run, const struct registers *s, struct entry *e)
{
    uint32_t count = 1 + cairn_run_choose(run, "register-count", TOUCHES);
    uint32_t first = cairn_run_choose(run, "register", s->registers);

    count = count < s->registers ? count : s->registers;
    for (uint32_t i = 0; i < count; i++) {
        e->touch[i].reg = (first + i) % s->registers;
        e->touch[i].wrote = cr_chance(run, "register-write", 1, 2);
    }
    e->count = count;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct registers *s = cairn_run_state(run);
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    struct cr_kit kit;

    if (s->ops + CR_KIT_SPARE > OPS_MAX)
        return 0;
    uint64_t op = cairn_run_op(run);
    cr_kit_raise(&s->ops, op);
    struct entry *e = &s->entry[op];
    draw(run, s, e);
    e->begin = tick(s);
    int rc = cr_kit_begin(&kit, run, ctx);
    if (rc == 0)
        rc = cr_kit_end(&kit, op, touch_all(&kit, e, op), &outcome);
    e->committed = outcome == CAIRN_OUTCOME_COMMITTED;
    e->end = outcome == CAIRN_OUTCOME_UNKNOWN ? NEVER : tick(s);
    return rc;
}

/* ---- check ---- */

struct cluster { /* all that wrote or read one value of a register */
    uint64_t write_begin, first_end, last_begin;
    uint32_t value;
    bool written, read;
};

static void join(struct cluster *c, uint64_t begin, uint64_t end)
{
    c->first_end = end < c->first_end ? end : c->first_end;
    c->last_begin = begin > c->last_begin ? begin : c->last_begin;
}

static void add_read(struct cairn_run *run, const struct registers *s, struct cluster *cluster,
    uint32_t reg, uint32_t value, uint64_t begin, uint64_t end)
{
    if (value > s->ops || !cluster[value].written) {
        cairn_run_fail(run, "register %u was read as %u, which %s", reg, value,
            value <= s->ops && cairn_run_outcome(run, value) == CAIRN_OUTCOME_ABORTED
                ? "was ABORTED" : "nobody wrote");
        return;
    }
    if (end < cluster[value].write_begin)
        cairn_run_fail(run, "register %u was read as %u before the write began", reg, value);
    cluster[value].read = true;
    join(&cluster[value], begin, end);
}

/* Value 0 is what was there before all. */
static void gather(struct cairn_run *run, const struct registers *s, uint32_t reg, uint32_t final,
    struct cluster *cluster)
{
    memset(cluster, 0, (s->ops + 1) * sizeof(*cluster));
    cluster[0].written = true;
    for (uint64_t op = 1; op <= s->ops; op++) {
        const struct entry *e = &s->entry[op];
        for (uint32_t i = 0; i < e->count; i++)
            if (e->touch[i].reg == reg && e->touch[i].wrote &&
                cairn_run_outcome(run, op) != CAIRN_OUTCOME_ABORTED)
                cluster[op] = (struct cluster){.write_begin = e->begin, .value = (uint32_t)op,
                    .first_end = e->end != 0 ? e->end : NEVER, .last_begin = e->begin,
                    .written = true};
    }
    for (uint64_t op = 1; op <= s->ops; op++) {
        const struct entry *e = &s->entry[op];
        for (uint32_t i = 0; e->committed && i < e->count; i++)
            if (e->touch[i].reg == reg && !e->touch[i].wrote)
                add_read(run, s, cluster, reg, e->touch[i].value, e->begin, e->end);
    }
    add_read(run, s, cluster, reg, final, s->clock + 1, s->clock + 2);
}

static int by_need(const void *a, const void *b)
{
    const struct cluster *x = a, *y = b;

    return x->first_end < y->first_end ? -1 : x->first_end > y->first_end;
}

/* Needs of others are [first_end, last_begin]; they are disjoint and sorted. */
static const struct cluster *need_around(
    const struct cluster *need, uint32_t count, const struct cluster *c)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (need[mid].first_end < c->last_begin)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && c->first_end < need[low - 1].last_begin ? &need[low - 1] : NULL;
}

/* A sorted list. Clusters with first_end < last_begin need the register between the two; the others
 * can have it for a moment, anywhere from last_begin to first_end. */
static void check_zones(struct cairn_run *run, uint32_t reg, const struct cluster *c,
    uint32_t count, struct cluster *need)
{
    uint32_t needs = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (c[i].first_end >= c[i].last_begin)
            continue;
        if (needs > 0 && c[i].first_end < need[needs - 1].last_begin)
            cairn_run_fail(run, "register %u is not linearizable: values %u and %u were each seen "
                "while the other was there", reg, need[needs - 1].value, c[i].value);
        need[needs++] = c[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct cluster *n = c[i].first_end < c[i].last_begin
            ? NULL : need_around(need, needs, &c[i]);
        if (n != NULL)
            cairn_run_fail(run, "register %u is not linearizable: value %u was written and gone "
                "while %u was there all the time", reg, c[i].value, n->value);
    }
}

static void check_register(
    struct cairn_run *run, const struct registers *s, uint32_t reg, uint32_t final)
{
    struct cluster *cluster = cairn_run_alloc(run, (s->ops + 1) * sizeof(*cluster));
    struct cluster *need = cairn_run_alloc(run, (s->ops + 1) * sizeof(*need));
    uint32_t count = 0;

    gather(run, s, reg, final, cluster);
    for (uint64_t op = 0; op <= s->ops; op++) {
        const struct cluster *c = &cluster[op];
        bool known = op == 0 || cairn_run_outcome(run, op) == CAIRN_OUTCOME_COMMITTED;
        if (c->written && (known || c->read))
            cluster[count++] = *c; /* one of unknown outcome that nobody saw says nothing */
    }
    qsort(cluster, count, sizeof(*cluster), by_need);
    check_zones(run, reg, cluster, count, need);
}

static bool wrote(const struct registers *s, uint32_t op, uint32_t reg)
{
    const struct entry *e = &s->entry[op];

    for (uint32_t i = 0; i < e->count; i++)
        if (e->touch[i].reg == reg && e->touch[i].wrote)
            return true;
    return false;
}

/* Did the write of value a end before that of b began? */
static bool precedes(const struct registers *s, uint32_t a, uint32_t b)
{
    return a == 0 || (s->entry[a].end != 0 && s->entry[a].end < s->entry[b].begin);
}

static void check_whole(struct cairn_run *run, const struct registers *s, uint64_t op)
{
    const struct entry *e = &s->entry[op];

    for (uint32_t i = 0; i < e->count * e->count; i++) {
        const struct touch *seen = &e->touch[i / e->count], *other = &e->touch[i % e->count];
        if (seen->wrote || other->wrote || seen->value == 0 || seen->value > s->ops ||
            other->value > s->ops || !wrote(s, seen->value, other->reg))
            continue;
        if (other->value != seen->value && precedes(s, other->value, seen->value))
            cairn_run_fail(run, "fractured read: operation %lu saw register %u as operation %u "
                "wrote it, and register %u, which that wrote too, as it was before (%u)",
                (unsigned long)op, seen->reg, seen->value, other->reg, other->value);
    }
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct registers *s = cairn_run_state(run);
    uint32_t final[REGISTERS_MAX];
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->registers && rc == 0; i++)
        rc = read_register(&kit, i, false, &final[i]);
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    for (uint32_t i = 0; i < s->registers; i++)
        check_register(run, s, i, final[i]);
    for (uint64_t op = 1; op <= s->ops; op++)
        if (s->entry[op].committed)
            check_whole(run, s, op);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct registers *s = cairn_run_state(run);
    const struct entry *e = &s->entry[op < OPS_MAX ? op : 0];
    int used = 0;

    for (uint32_t i = 0; i < e->count && used >= 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%s register %u", i == 0 ? "" : ", ",
            e->touch[i].wrote ? "write" : "read", e->touch[i].reg);
}

const struct cairn_workload cr_work_register = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "register",
    .summary = "registers are read and written with unique values: each is linearizable",
    .state_size = sizeof(struct registers),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
