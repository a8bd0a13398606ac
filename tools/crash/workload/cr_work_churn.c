/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_churn.c: every client has keys of its own, which it inserts, overwrites with values of
 * another size, and deletes; with many of them the index grows. Nobody else writes them, and one
 * operation comes after the other: so the final value of a key is that of the last committed
 * operation on it, or of one without a verdict behind that.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define KEYS_MAX 24u
#define TOUCHES 2u
#define VALUE_MAX 1024u
#define OPS_MAX 131072u

struct entry {
    uint32_t client, count;
    uint32_t key[TOUCHES], size[TOUCHES];
    bool put[TOUCHES]; /* else: deleted */
};
struct churn {
    uint32_t keys; /* of each client */
    uint64_t ops;
    struct entry entry[OPS_MAX];
};

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    static const uint32_t keys[] = {3, 3, 8, KEYS_MAX};
    struct churn *s = cairn_run_state(run);

    (void)ctx;
    s->keys = keys[cairn_run_choose(run, "private-keys", CR_ARRAY_SIZE(keys))];
    return 0;
}

/* The operation's number, then its last byte over and over. */
static void fill(uint8_t *value, uint32_t size, uint32_t op)
{
    memset(value, (int)(op & 0xff), size);
    memcpy(value, &op, sizeof(op));
}

/* The number that a value carries; 0: there is none. */
static uint32_t number_of(struct cairn_run *run, const struct cr_key *k, const uint8_t *value,
    size_t size)
{
    uint32_t op;

    if (size == CR_KIT_ABSENT)
        return 0;
    if (size < sizeof(op)) {
        cairn_run_fail(run, "the value of %s has %zu bytes", k->text, size);
        return 0;
    }
    memcpy(&op, value, sizeof(op));
    for (size_t i = sizeof(op); i < size; i++)
        if (value[i] != (op & 0xff)) {
            cairn_run_fail(run, "a value is mixed: %s, byte %zu", k->text, i);
            break;
        }
    return op;
}

static int change(struct cr_kit *kit, const struct entry *e, uint32_t op, uint8_t *buf)
{
    for (uint32_t i = 0; i < e->count; i++) {
        struct cr_key k = cr_key('p', e->client, e->key[i]);
        size_t size;
        int rc = 0;
        if (cr_chance(kit->run, "churn-read", 1, 2)) {
            rc = cr_kit_get(kit, &k, cr_chance(kit->run, "lock", 1, 2), buf, VALUE_MAX, &size);
            if (rc == 0)
                (void)number_of(kit->run, &k, buf, size);
        }
        if (rc != 0)
            return rc;
        fill(buf, e->size[i], op);
        rc = e->put[i] ? cr_kit_put(kit, &k, buf, e->size[i]) : cr_kit_delete(kit, &k);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void draw(struct cairn_run *run, const struct churn *s, struct entry *e)
{
    static const uint32_t sizes[] = {4, 24, 60, 200, 500, 900}; /* 900: alone, or it is too much */

    e->client = cairn_run_client(run);
    e->key[0] = cairn_run_choose(run, "private", s->keys);
    e->key[1] = (e->key[0] + 1 + cairn_run_choose(run, "private-2", s->keys - 1)) % s->keys;
    e->count = cr_chance(run, "private-two", 1, 4) ? 2 : 1;
    for (uint32_t i = 0; i < e->count; i++) {
        e->put[i] = !cr_chance(run, "private-delete", 1, 3);
        e->size[i] = sizes[cairn_run_choose(run, "size", 7 - e->count)];
    }
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct churn *s = cairn_run_state(run);
    enum cairn_outcome outcome;
    struct cr_kit kit;

    if (s->ops + CR_KIT_SPARE > OPS_MAX)
        return 0;
    uint64_t op = cairn_run_op(run);
    cr_kit_raise(&s->ops, op);
    struct entry *e = &s->entry[op];
    draw(run, s, e);
    uint8_t *buf = cairn_run_alloc(run, VALUE_MAX);
    int rc = cr_kit_begin(&kit, run, ctx);
    return rc != 0 ? rc
                   : cr_kit_end(&kit, op, change(&kit, e, (uint32_t)op, buf), &outcome);
}

/* ---- check ---- */

/* What may be there: goes through the operations in order. */
static void judge(struct cairn_run *run, const struct churn *s, uint32_t client, uint32_t key,
    uint32_t seen)
{
    uint64_t sure = 0;
    bool allowed = seen == 0;

    for (uint64_t op = 1; op <= s->ops; op++) {
        const struct entry *e = &s->entry[op];
        enum cairn_outcome outcome = cairn_run_outcome(run, op);
        for (uint32_t i = 0; i < e->count; i++) {
            uint64_t value = e->put[i] ? op : 0;
            if (e->client != client || e->key[i] != key || outcome == CAIRN_OUTCOME_ABORTED)
                continue;
            if (outcome == CAIRN_OUTCOME_COMMITTED) {
                sure = value;
                allowed = seen == value;
            } else {
                allowed = allowed || seen == value;
            }
        }
    }
    if (!allowed)
        cairn_run_fail(run, "lost: key %u of client %u has the value of operation %u, the ledger "
            "says %lu (0: deleted)", key, client, seen, (unsigned long)sure);
}

/* The keys of one client in one transaction. */
static int look(struct cairn_run *run, struct cairn_ctx *ctx, uint32_t client, uint32_t *seen)
{
    const struct churn *s = cairn_run_state(run);
    uint8_t *buf = cairn_run_alloc(run, VALUE_MAX);
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < s->keys && rc == 0; i++) {
        struct cr_key k = cr_key('p', client, i);
        size_t size;
        rc = cr_kit_get(&kit, &k, false, buf, VALUE_MAX, &size);
        if (rc == 0)
            seen[i] = number_of(run, &k, buf, size);
    }
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    return rc == 0 && outcome != CAIRN_OUTCOME_COMMITTED ? CAIRN_E_CONFLICT : rc;
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct churn *s = cairn_run_state(run);
    uint32_t seen[KEYS_MAX];

    for (uint32_t client = 0; client < cairn_run_clients(run); client++) {
        int rc = look(run, ctx, client, seen);
        if (rc != 0)
            return rc;
        for (uint32_t i = 0; i < s->keys; i++)
            judge(run, s, client, i, seen[i]);
    }
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct churn *s = cairn_run_state(run);
    const struct entry *e = &s->entry[op < OPS_MAX ? op : 0];
    int used = 0;

    for (uint32_t i = 0; i < e->count && used >= 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%s key %u.%u of %u bytes",
            i == 0 ? "" : ", ", e->put[i] ? "put" : "delete", e->client, e->key[i], e->size[i]);
}

const struct cairn_workload cr_work_churn = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "churn",
    .summary = "keys come, grow, shrink and go, the index grows: the last committed value is there",
    .state_size = sizeof(struct churn),
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
