/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_append.c: transactions that read and append to up to three lists, noted in the history,
 * which is checked for strict serializability; and in the end each operation's elements are there
 * as its outcome says, once, all or none. Elements are operations' numbers, so they are unique. A
 * list that is full is left, and its successor taken: a generation.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define LISTS_MAX 5u
#define TOUCHES 3u
#define FULL 120u  /* elements; concurrent appends may add some */
#define ROOM 256u
#define OPS_MAX 131072u

struct entry {
    uint32_t count, list[TOUCHES], generation[TOUCHES];
};
struct lists {
    uint32_t lists;
    uint64_t generation[LISTS_MAX];
    uint64_t ops;
    struct entry entry[OPS_MAX];
};

struct read { /* a list as read */
    uint32_t count, element[ROOM];
};

static uint64_t history_key(uint32_t list, uint32_t generation)
{
    return (uint64_t)generation * LISTS_MAX + list;
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct lists *s = cairn_run_state(run);

    (void)ctx;
    s->lists = 2 + cairn_run_choose(run, "lists", 4);
    return 0;
}

static int read_list(
    struct cr_kit *kit, uint32_t list, uint32_t generation, bool lock, struct read *ret)
{
    struct cr_key k = cr_key('l', list, generation);
    size_t size;
    int rc = cr_kit_get(kit, &k, lock, ret->element, sizeof(ret->element), &size);

    if (rc != 0)
        return rc;
    if (size != CR_KIT_ABSENT && size % 4 != 0)
        cairn_run_fail(kit->run, "list %s has %zu bytes", k.text, size);
    ret->count = size == CR_KIT_ABSENT ? 0 : (uint32_t)(size / 4);
    cairn_run_history_read(
        kit->run, history_key(list, generation), ret->element, ret->count);
    return 0;
}

static int append_to(struct cr_kit *kit, struct lists *s, uint64_t op, uint32_t list,
    uint32_t generation)
{
    struct cr_key k = cr_key('l', list, generation);
    struct read *r = cairn_run_alloc(kit->run, sizeof(*r));
    int rc = read_list(kit, list, generation, cr_chance(kit->run, "lock", 1, 2), r);

    if (rc != 0)
        return rc;
    if (r->count >= FULL)
        cr_kit_raise(&s->generation[list], generation + 1);
    if (r->count + 1 >= ROOM)
        return CAIRN_E_CONFLICT;
    r->element[r->count] = (uint32_t)op;
    cairn_run_history_append(kit->run, history_key(list, generation), (uint32_t)op);
    return cr_kit_put(kit, &k, r->element, 4 * ((size_t)r->count + 1));
}

static void draw(struct cairn_run *run, const struct lists *s, struct entry *e)
{
    uint32_t count = 1 + cairn_run_choose(run, "list-count", TOUCHES);
    uint32_t first = cairn_run_choose(run, "list", s->lists);
    uint32_t stride = s->lists > 2 ? 1 + cairn_run_choose(run, "list-step", s->lists - 2) : 1;

    if (count * stride > s->lists)
        stride = 1;
    e->count = count < s->lists ? count : s->lists;
    for (uint32_t i = 0; i < e->count; i++) {
        e->list[i] = (first + i * stride) % s->lists;
        e->generation[i] = (uint32_t)s->generation[e->list[i]];
    }
}

static int do_entry(struct cairn_run *run, struct cairn_ctx *ctx, struct entry *e, uint64_t op)
{
    struct lists *s = cairn_run_state(run);
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    struct cr_kit kit;

    cairn_run_history_begin(run);
    int rc = cr_kit_begin(&kit, run, ctx);
    if (rc == 0) {
        for (uint32_t i = 0; i < e->count && rc == 0; i++)
            rc = op != 0 ? append_to(&kit, s, op, e->list[i], e->generation[i])
                         : read_list(&kit, e->list[i], e->generation[i], false,
                               cairn_run_alloc(run, sizeof(struct read)));
        rc = cr_kit_end(&kit, op, rc, &outcome);
    }
    cairn_run_history_end(run, outcome);
    return rc;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct lists *s = cairn_run_state(run);
    struct entry look;

    if (cr_chance(run, "read-lists", 1, 4) || s->ops + CR_KIT_SPARE > OPS_MAX) {
        draw(run, s, &look);
        return do_entry(run, ctx, &look, 0);
    }
    uint64_t op = cairn_run_op(run);
    cr_kit_raise(&s->ops, op);
    draw(run, s, &s->entry[op]);
    return do_entry(run, ctx, &s->entry[op], op);
}

/* ---- check ---- */

/* Counts in present[op] the lists that show an operation. */
static void count_elements(struct cairn_run *run, const struct lists *s, uint32_t list,
    uint32_t generation, const struct read *r, uint8_t *present, uint64_t *last)
{
    uint64_t stamp = history_key(list, generation) + 1;

    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t op = r->element[i];
        if (op == 0 || op > s->ops) {
            cairn_run_fail(run, "list %u has element %u, which nobody appended", list, op);
            continue;
        }
        if (last[op] == stamp)
            cairn_run_fail(run, "element %u of list %u was applied twice", op, list);
        last[op] = stamp;
        present[op]++;
    }
}

static void judge(struct cairn_run *run, const struct lists *s, uint32_t op, uint32_t present)
{
    const struct entry *e = &s->entry[op];
    enum cairn_outcome outcome = cairn_run_outcome(run, op);

    if (present != 0 && present != e->count)
        cairn_run_fail(run, "not atomic: %u of %u appends of element %u are there", present,
            e->count, op);
    if (outcome == CAIRN_OUTCOME_COMMITTED && present == 0)
        cairn_run_fail(run, "lost: element %u of list %u was COMMITTED and is not there", op,
            e->list[0]);
    if (outcome == CAIRN_OUTCOME_ABORTED && present != 0)
        cairn_run_fail(run, "element %u of list %u was ABORTED and is there", op, e->list[0]);
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct lists *s = cairn_run_state(run);
    uint8_t *present = cairn_run_alloc(run, s->ops + 1);
    uint64_t *last = cairn_run_alloc(run, (s->ops + 1) * sizeof(*last));
    struct read *r = cairn_run_alloc(run, sizeof(*r));

    for (uint32_t i = 0; i < s->lists; i++) {
        for (uint32_t g = 0; g <= s->generation[i]; g++) {
            enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
            struct cr_kit kit;
            cairn_run_history_begin(run);
            int rc = cr_kit_begin(&kit, run, ctx);
            if (rc == 0)
                rc = cr_kit_end(&kit, 0, read_list(&kit, i, g, false, r), &outcome);
            cairn_run_history_end(run, outcome);
            if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
                return rc != 0 ? rc : CAIRN_E_CONFLICT;
            count_elements(run, s, i, g, r, present, last);
        }
    }
    for (uint32_t op = 1; op <= s->ops; op++)
        judge(run, s, op, present[op]);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct lists *s = cairn_run_state(run);
    const struct entry *e = &s->entry[op < OPS_MAX ? op : 0];
    int used = snprintf(text, size, "append %lu to", (unsigned long)op);

    for (uint32_t i = 0; i < e->count && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, " list %u", e->list[i]);
}

const struct cairn_workload cr_work_append = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "list-append",
    .summary = "reads and appends of several lists: the history is strictly serializable (Elle)",
    .state_size = sizeof(struct lists),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
