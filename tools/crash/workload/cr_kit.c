/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_kit.c: transactions of the workloads that are built in, and the check of chains.
 */
#include "tools/crash/workload/cr_kit.h"

#include <errno.h>
#include <stdio.h>

struct cr_key cr_key(char kind, uint32_t a, uint32_t b)
{
    struct cr_key k;

    k.size = (size_t)snprintf(k.text, sizeof(k.text), "%c%u.%u", kind, a, b);
    return k;
}

bool cr_error_is_explained(int error)
{
    switch (error) {
    case CAIRN_E_AGAIN:
    case CAIRN_E_CONFLICT:
    case CAIRN_E_TIMEOUT:
    case CAIRN_E_NODE_DOWN:
    case CAIRN_E_REJECTED: /* over a network: nobody listens where a node has died */
    case CAIRN_E_UNREACHABLE:
    case CAIRN_E_FENCED:
    case CAIRN_E_SLOTS:
    case CAIRN_E_RING_FULL:
    case CAIRN_E_POOL_FULL:
    case CAIRN_E_IN_DOUBT:
    case -ENOMEM: /* of a node whose allocations are made to fail */
        return true;
    default:
        return false;
    }
}

/* Here its text is still the last one. */
static int judge(struct cr_kit *kit, const char *what, int rc)
{
    if (rc != 0 && !cr_error_is_explained(rc) && rc != CAIRN_E_TX_SIZE) /* who knows sizes judges */
        cairn_run_fail(
            kit->run, "%s: %s (%s)", what, cairn_error_name(rc), cairn_last_error());
    return rc;
}

int cr_kit_begin(struct cr_kit *kit, struct cairn_run *run, struct cairn_ctx *ctx)
{
    *kit = (struct cr_kit){.run = run, .table = cairn_run_table(run)};
    return judge(kit, "begin", cairn_begin(ctx, &kit->tx));
}

int cr_kit_get(struct cr_kit *kit, const struct cr_key *key, bool lock, void *buf, size_t room,
    size_t *ret_size)
{
    int rc = lock
        ? cairn_get_for_update(kit->tx, kit->table, key->text, key->size, buf, room, ret_size)
        : cairn_get(kit->tx, kit->table, key->text, key->size, buf, room, ret_size);

    if (rc == CAIRN_E_NOT_FOUND) {
        *ret_size = CR_KIT_ABSENT;
        return 0;
    }
    return judge(kit, lock ? "get_for_update" : "get", rc);
}

int cr_kit_put(struct cr_kit *kit, const struct cr_key *key, const void *value, size_t size)
{
    return judge(
        kit, "put", cairn_put(kit->tx, kit->table, key->text, key->size, value, size));
}

int cr_kit_delete(struct cr_kit *kit, const struct cr_key *key)
{
    return judge(kit, "delete", cairn_delete(kit->tx, kit->table, key->text, key->size));
}

int cr_kit_end(struct cr_kit *kit, uint64_t op, int rc, enum cairn_outcome *ret_outcome)
{
    *ret_outcome = CAIRN_OUTCOME_ABORTED;
    if (rc == 0)
        return judge(kit, "commit", cairn_run_commit(kit->run, op, kit->tx, ret_outcome));
    cairn_abort(kit->tx);
    if (op != 0)
        cairn_run_aborted(kit->run, op);
    return rc;
}

void cr_kit_raise(uint64_t *max, uint64_t value)
{
    uint64_t seen = __atomic_load_n(max, __ATOMIC_RELAXED);

    while (seen < value && !__atomic_compare_exchange_n(max, &seen, value, false,
                               __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* ---- chains ---- */

uint64_t cr_chain_begin(struct cr_chain *chain, struct cairn_run *run)
{
    if (chain->ops + CR_KIT_SPARE > CR_CHAIN_OPS)
        return 0;
    uint64_t op = cairn_run_op(run);
    cr_kit_raise(&chain->ops, op);
    return op;
}

int cr_chain_read(
    struct cr_kit *kit, const struct cr_key *key, bool lock, struct cr_link *ret_link)
{
    size_t size;
    int rc = cr_kit_get(kit, key, lock, ret_link, sizeof(*ret_link), &size);

    if (rc != 0)
        return rc;
    if (size == CR_KIT_ABSENT)
        memset(ret_link, 0, sizeof(*ret_link));
    else if (size != sizeof(*ret_link))
        cairn_run_fail(kit->run, "the value of %s has %zu bytes, not %zu", key->text, size,
            sizeof(*ret_link));
    return 0;
}

int cr_chain_write(struct cr_kit *kit, const struct cr_key *key, uint64_t op,
    const struct cr_touch *touch)
{
    struct cr_link link = {touch->value, op, touch->old.count + 1};

    return cr_kit_put(kit, key, &link, sizeof(link));
}

static const struct cr_touch *find_touch(
    const struct cr_chain *chain, struct cairn_run *run, uint64_t op, uint32_t key)
{
    const struct cr_chain_op *o = op <= chain->ops ? &chain->op[op] : NULL;

    for (uint32_t i = 0; o != NULL && i < o->count; i++)
        if (o->touch[i].key == key && o->touch[i].written)
            return &o->touch[i];
    cairn_run_fail(run, "key %u has a value of operation %lu, which never wrote it", key,
        (unsigned long)op);
    return NULL;
}

/* From the final value back to the first; counts in `seen` how many keys show an operation. */
static void walk(const struct cr_chain *chain, struct cairn_run *run, uint32_t key,
    struct cr_link at, int64_t first, uint8_t *seen)
{
    while (at.op != 0) {
        const struct cr_touch *t = find_touch(chain, run, at.op, key);
        if (t == NULL)
            return;
        if (t->value != at.value || t->old.count + 1 != at.count)
            cairn_run_fail(run, "key %u: operation %lu wrote %ld as the %lu. value, and %ld is "
                "there as the %lu.", key, (unsigned long)at.op, (long)t->value,
                (unsigned long)t->old.count + 1, (long)at.value, (unsigned long)at.count);
        if (cairn_run_outcome(run, at.op) == CAIRN_OUTCOME_ABORTED)
            cairn_run_fail(run, "key %u: operation %lu was ABORTED, and its value %ld is there",
                key, (unsigned long)at.op, (long)at.value);
        if (t->old.count + 1 != at.count)
            return; /* counts fall with each step, so this ends */
        seen[at.op]++;
        at = t->old;
    }
    if (at.count != 0 || at.value != first)
        cairn_run_fail(run, "key %u: its first value is %ld, not %ld", key, (long)at.value,
            (long)first);
}

static void judge_op(
    const struct cr_chain *chain, struct cairn_run *run, uint64_t op, uint32_t seen)
{
    enum cairn_outcome outcome = cairn_run_outcome(run, op);
    uint32_t written = 0;

    for (uint32_t i = 0; i < chain->op[op].count; i++)
        written += chain->op[op].touch[i].written;
    if (outcome == CAIRN_OUTCOME_COMMITTED && seen == 0 && written != 0)
        cairn_run_fail(run, "lost: operation %lu was COMMITTED, and none of its %u writes is there",
            (unsigned long)op, written);
    else if (outcome != CAIRN_OUTCOME_ABORTED && seen != 0 && seen != written)
        cairn_run_fail(run, "not atomic: of operation %lu (%s) %u of %u writes are there",
            (unsigned long)op, cairn_outcome_name(outcome), seen, written);
}

void cr_chain_check(const struct cr_chain *chain, struct cairn_run *run,
    const struct cr_link *final, const int64_t *first, uint32_t count)
{
    uint8_t *seen = cairn_run_alloc(run, (size_t)chain->ops + 1);

    for (uint32_t k = 0; k < count; k++)
        walk(chain, run, k, final[k], first[k], seen);
    for (uint64_t op = 1; op <= chain->ops; op++)
        judge_op(chain, run, op, seen[op]);
}
