/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_counter.c: the load `counter`: a few keys, each transaction adds one to one of them, or to
 * two. Nothing is hotter, and a single lost update shows: at the end each key must be as high as
 * the number of transactions that were told it had committed.
 *
 * Key: number, 8 bytes big endian. Value: count, 8 bytes.
 */
#include "tools/bench/bn_fill.h"

#include <errno.h>
#include <inttypes.h>

#define KEYS_MAX 1000000u
#define PER_TX 128u

static uint64_t option_keys = 4;
static bool option_two;
static const struct tl_option options[] = {
    {.name = "keys",
        .arg = "N",
        .help = "counters; default 4",
        .number = &option_keys,
        .min = 1,
        .max = KEYS_MAX},
    {.name = "two", .help = "each transaction increments two of them", .flag = &option_two},
    {.name = NULL},
};

struct counter {
    struct bn_load base;
    uint32_t keys, per_draw;
};
struct worker {
    uint64_t *count; /* increments that are committed, per key */
};
struct slot {
    uint32_t table, count;
    uint32_t number[2];
    uint8_t key[2][8];
};

static int setup(struct bn_load *load)
{
    struct counter *c = (struct counter *)load;

    c->keys = (uint32_t)option_keys;
    c->per_draw = option_two ? 2 : 1;
    if (c->keys < c->per_draw)
        return cn_fail(CAIRN_E_CONFIG, "--two: needs --keys 2 or more");
    return 0;
}

static uint64_t bytes(const struct bn_load *load)
{
    return ((const struct counter *)load)->keys * bn_item_bytes(8, 8);
}

static int put_key(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    const uint64_t zero = 0;
    uint8_t key[8];

    bn_put_be64(key, index);
    return cairn_put(tx, load->table[0], key, sizeof(key), &zero, sizeof(zero));
}

static int load_keys(struct bn_load *load, struct cairn_ctx *ctx)
{
    const struct bn_fill fill = {.what = "counters",
        .count = ((struct counter *)load)->keys,
        .per_tx = PER_TX,
        .put = put_key};

    return bn_fill(load, ctx, &fill);
}

static int worker_init(struct bn_load *load, void *worker, uint32_t number)
{
    struct worker *w = worker;

    (void)number;
    w->count = calloc(((struct counter *)load)->keys, sizeof(*w->count));
    return w->count == NULL ? cn_fail(-ENOMEM, "counter: no memory for the ledger") : 0;
}

static void worker_end(struct bn_load *load, void *worker)
{
    struct worker *w = worker;

    (void)load;
    free(w->count);
    w->count = NULL;
}

static uint32_t draw(struct bn_load *load, void *worker, uint64_t *random, void *slot)
{
    const struct counter *c = (struct counter *)load;
    struct slot *s = slot;

    (void)worker;
    s->table = load->table[0];
    s->count = c->per_draw;
    s->number[0] = (uint32_t)bn_below(random, c->keys);
    if (s->count == 2) {
        s->number[1] = (uint32_t)bn_below(random, c->keys - 1);
        s->number[1] += s->number[1] >= s->number[0];
    }
    for (uint32_t i = 0; i < s->count; i++)
        bn_put_be64(s->key[i], s->number[i]);
    return 0;
}

static int body(struct cairn_tx *tx, void *slot)
{
    struct slot *s = slot;
    uint64_t value[2];
    struct cairn_read read[2];

    for (uint32_t i = 0; i < s->count; i++)
        read[i] = (struct cairn_read){.key = s->key[i],
            .key_size = sizeof(s->key[i]),
            .buf = &value[i],
            .buf_size = sizeof(value[i]),
            .table = s->table,
            .for_update = 1};
    int rc = cairn_get_many(tx, read, s->count);
    for (uint32_t i = 0; i < s->count && rc == 0; i++) {
        if (read[i].status != 0 || read[i].value_size != sizeof(value[i]))
            return cn_fail(CAIRN_E_STATE, "counter %u is gone, or is none of ours", s->number[i]);
        value[i]++;
        rc = cairn_put(tx, s->table, s->key[i], sizeof(s->key[i]), &value[i], sizeof(value[i]));
    }
    return rc;
}

static void settle(struct bn_load *load, void *worker, const void *slot, bool committed)
{
    struct worker *w = worker;
    const struct slot *s = slot;

    (void)load;
    for (uint32_t i = 0; i < s->count && committed; i++)
        w->count[s->number[i]]++;
}

/* ---- the end ---- */

struct look {
    const struct counter *counter;
    uint64_t sum, sum_due;
    uint64_t wrong, wrong_count, wrong_due; /* how many are wrong, and the first of them */
    uint64_t wrong_index;
};

static void key_of(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    bn_put_be64(ret_key, index);
}

static int take_key(void *arg, uint64_t index, const void *value, size_t value_size)
{
    struct look *look = arg;
    const struct bn_load *load = &look->counter->base;
    uint64_t count, due = 0;

    for (uint32_t i = 0; i < load->threads; i++)
        due += ((const struct worker *)load->worker[i])->count[index];
    if (value == NULL || value_size != sizeof(count))
        return cn_fail(
            CAIRN_E_STATE, "counter %" PRIu64 " is gone, or is none of ours", index);
    memcpy(&count, value, sizeof(count));
    look->sum += count;
    look->sum_due += due;
    if (count != due && look->wrong++ == 0) {
        look->wrong_index = index;
        look->wrong_count = count;
        look->wrong_due = due;
    }
    return 0;
}

static int check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked)
{
    struct look look = {.counter = (struct counter *)load};
    const struct bn_scan scan = {.what = "counters",
        .count = look.counter->keys,
        .table = load->table[0],
        .key_size = 8,
        .value_size_max = 8,
        .key = key_of,
        .take = take_key,
        .arg = &look};
    int rc = bn_scan(load, ctx, &scan);

    if (rc != 0)
        return rc;
    if (look.wrong != 0 || look.sum != look.sum_due)
        return cn_fail(CAIRN_E_STATE,
            "the counters add up to %" PRIu64 ", but %" PRIu64
            " increments have committed; %" PRIu64 " are wrong, counter %" PRIu64 " is %" PRIu64
            " and should be %" PRIu64,
            look.sum, look.sum_due, look.wrong, look.wrong_index, look.wrong_count, look.wrong_due);
    *ret_checked = look.counter->keys + 1;
    return 0;
}

const struct bn_load_ops bn_counter = {
    .name = "counter",
    .summary = "A few counters that all transactions increment; no increment may be lost.",
    .example = "  cairn bench counter --inflight 8\n"
               "  cairn bench counter --keys 4 --two --threads 2 --inflight 8\n",
    .tables = {"counter"},
    .kinds = {"increment"},
    .size = sizeof(struct counter),
    .worker_size = sizeof(struct worker),
    .slot_size = sizeof(struct slot),
    .options = options,
    .option_count = CN_ARRAY_SIZE(options) - 1,
    .setup = setup,
    .bytes = bytes,
    .load = load_keys,
    .worker_init = worker_init,
    .worker_end = worker_end,
    .draw = draw,
    .body = body,
    .settle = settle,
    .check = check,
};
