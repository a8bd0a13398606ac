/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_large.c: large values, of up to 60 KiB, or as much as the cluster's rings take: each is
 * written as a whole, every byte of it is a function of the operation and the place, and the keys'
 * chains (cr_kit.h) are right. Torn values, and pieces of old ones, are seen at every read.
 */
#include "tools/crash/workload/cr_kit.h"
#include "tools/crash/workload/cr_work_list.h"

#include <stdio.h>

#define KEYS 3u
#define SIZE_MIN 1024u
#define SIZE_LIMIT (60u * 1024)
#define HEAD sizeof(struct cr_link)

struct large {
    uint32_t size_max; /* falls when a record would be too big for a ring */
    struct cr_chain chain;
};

static struct cr_key key(uint32_t i)
{
    return cr_key('v', i, 0);
}

static uint8_t byte_at(uint64_t op, size_t at)
{
    uint64_t x = (op << 20 ^ at / 8) * UINT64_C(0x9e3779b97f4a7c15);

    return (uint8_t)(x >> (56 - at % 8 * 4));
}

static int setup(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct large *s = cairn_run_state(run);

    (void)ctx;
    s->size_max = SIZE_LIMIT;
    return 0;
}

/* The link of a value, and is the rest as it was written? `value` of the link is the size. */
static int read_value(
    struct cr_kit *kit, uint32_t i, bool lock, uint8_t *buf, struct cr_link *ret_link)
{
    struct cr_key k = key(i);
    size_t size;
    int rc = cr_kit_get(kit, &k, lock, buf, SIZE_LIMIT, &size);

    memset(ret_link, 0, sizeof(*ret_link));
    if (rc != 0 || size == CR_KIT_ABSENT)
        return rc;
    if (size < HEAD) {
        cairn_run_fail(kit->run, "the value of %s has %zu bytes", k.text, size);
        return 0;
    }
    memcpy(ret_link, buf, HEAD);
    if ((size_t)ret_link->value != size) {
        cairn_run_fail(kit->run, "the value of %s has %zu bytes, and was written with %ld", k.text,
            size, (long)ret_link->value);
        return 0;
    }
    for (size_t at = HEAD; at < size; at++)
        if (buf[at] != byte_at(ret_link->op, at)) {
            cairn_run_fail(kit->run, "the value of %s is mixed: byte %zu of %zu is not what "
                "operation %lu wrote", k.text, at, size, (unsigned long)ret_link->op);
            break;
        }
    return 0;
}

static int replace(struct cr_kit *kit, struct cr_chain_op *o, uint64_t op, uint8_t *buf)
{
    const struct large *s = cairn_run_state(kit->run);
    uint32_t each = s->size_max / o->count; /* another client may have lowered it meanwhile */
    uint32_t room = each > SIZE_MIN ? each - SIZE_MIN + 1 : 1;
    int rc = 0;

    for (uint32_t i = 0; i < o->count && rc == 0; i++)
        rc = read_value(
            kit, o->touch[i].key, cr_chance(kit->run, "lock", 1, 2), buf, &o->touch[i].old);
    for (uint32_t i = 0; i < o->count && rc == 0; i++) {
        struct cr_touch *t = &o->touch[i];
        struct cr_key k = key(t->key);
        uint32_t size = SIZE_MIN + cairn_run_choose(kit->run, "large-size", room);
        struct cr_link link = {size, op, t->old.count + 1};
        t->value = size;
        memcpy(buf, &link, HEAD);
        for (size_t at = HEAD; at < size; at++)
            buf[at] = byte_at(op, at);
        rc = cr_kit_put(kit, &k, buf, size);
    }
    return rc;
}

static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    struct large *s = cairn_run_state(run);
    uint64_t op = cr_chain_begin(&s->chain, run);
    struct cr_chain_op *o = &s->chain.op[op];
    enum cairn_outcome outcome;
    struct cr_kit kit;

    if (op == 0)
        return 0;
    o->touch[0] = (struct cr_touch){
        .key = cairn_run_choose(run, "large-key", KEYS), .written = true};
    o->touch[1] = (struct cr_touch){.key = (o->touch[0].key + 1) % KEYS, .written = true};
    o->count = cr_chance(run, "large-two", 1, 4) && s->size_max >= 2 * SIZE_MIN ? 2 : 1;
    uint8_t *buf = cairn_run_alloc(run, SIZE_LIMIT);
    int rc = cr_kit_begin(&kit, run, ctx);
    if (rc != 0)
        return rc;
    rc = cr_kit_end(&kit, op, replace(&kit, o, op, buf), &outcome);
    if (rc != CAIRN_E_TX_SIZE)
        return rc;
    /* The rings, or the pools' chunks, of this cluster are smaller. */
    int64_t total = o->touch[0].value + (o->count == 2 ? o->touch[1].value : 0);
    if (total <= SIZE_MIN)
        cairn_run_fail(run, "not even %u bytes can be written: %s", SIZE_MIN, cairn_last_error());
    total = total / 2 > SIZE_MIN ? total / 2 : SIZE_MIN;
    s->size_max = total < s->size_max ? (uint32_t)total : s->size_max;
    return 0;
}

static int check(struct cairn_run *run, struct cairn_ctx *ctx)
{
    const struct large *s = cairn_run_state(run);
    uint8_t *buf = cairn_run_alloc(run, SIZE_LIMIT);
    static const int64_t first[KEYS];
    struct cr_link links[KEYS];
    enum cairn_outcome outcome;
    struct cr_kit kit;
    int rc = cr_kit_begin(&kit, run, ctx);

    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < KEYS && rc == 0; i++)
        rc = read_value(&kit, i, false, buf, &links[i]);
    rc = cr_kit_end(&kit, 0, rc, &outcome);
    if (rc != 0 || outcome != CAIRN_OUTCOME_COMMITTED)
        return rc != 0 ? rc : CAIRN_E_CONFLICT;
    cr_chain_check(&s->chain, run, links, first, KEYS);
    return 0;
}

static void describe(struct cairn_run *run, uint64_t op, char *text, size_t size)
{
    const struct large *s = cairn_run_state(run);
    const struct cr_chain_op *o = &s->chain.op[op < CR_CHAIN_OPS ? op : 0];
    int used = 0;

    for (uint32_t i = 0; i < o->count && used >= 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%swrite %ld bytes to key %u",
            i == 0 ? "" : ", ", (long)o->touch[i].value, o->touch[i].key);
}

const struct cairn_workload cr_work_large = {
    .abi = CAIRN_WORKLOAD_ABI,
    .name = "large",
    .summary = "values of up to 60 KiB are replaced: each is there as a whole, byte by byte",
    .state_size = sizeof(struct large),
    .tx_bytes = SIZE_LIMIT + 256,
    .setup = setup,
    .step = step,
    .check = check,
    .describe = describe,
};
