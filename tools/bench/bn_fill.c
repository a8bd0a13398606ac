/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_fill.c: see bn_fill.h. Places in a row, each with one transaction; they are begun and awaited
 * round and round, so that results are taken in the order of their indexes. After the first error
 * nothing is begun any more, and what is under way is awaited.
 */
#include "tools/bench/bn_fill.h"

#include <errno.h>

#include "pmem/pm_object.h"

#define TOLD_EVERY 1024u /* units or keys between two words of progress */
#define INDEX_SHARE 16u  /* bytes: a bucket of 512 has 56 slots, some of them free */

struct place {
    struct run *run;
    struct cairn_op op;
    bool busy;
    uint64_t from;
    uint32_t count;
    struct cairn_read *read; /* of a scan */
};

struct run {
    const struct bn_load *load;
    struct cairn_ctx *ctx;
    const struct bn_fill *fill; /* one of these two */
    const struct bn_scan *scan;
    cairn_tx_fn body;
    uint64_t count;
    uint32_t per_tx;
    struct place place[BN_FILL_INFLIGHT_MAX];
    int rc; /* the first error */
    char text[512];
};

static void remember(struct run *run, int rc)
{
    if (run->rc != 0 || rc == 0)
        return;
    run->rc = rc;
    cn_error_copy(run->text, sizeof(run->text));
}

static void done(struct cairn_op *op)
{
    struct place *place = op->user;

    remember(place->run, op->result);
}

/* ---- bodies ---- */

static int put_units(struct cairn_tx *tx, void *arg)
{
    const struct place *place = arg;
    const struct run *run = place->run;
    int rc = 0;

    for (uint32_t i = 0; i < place->count && rc == 0; i++)
        rc = run->fill->put(tx, run->load, place->from + i);
    return rc;
}

static int read_keys(struct cairn_tx *tx, void *arg)
{
    const struct place *place = arg;

    return cairn_get_many(tx, place->read, place->count);
}

/* ---- places ---- */

static int take(struct run *run, struct place *place)
{
    const struct bn_scan *scan = run->scan;
    int rc = 0;

    for (uint32_t i = 0; scan != NULL && i < place->count && rc == 0; i++) {
        const struct cairn_read *r = &place->read[i];
        if (r->status == CAIRN_E_BUFFER_SIZE)
            rc = cn_fail(CAIRN_E_STATE, "%s: a value of %zu bytes is not ours", scan->what,
                r->value_size);
        else
            rc = scan->take(
                scan->arg, place->from + i, r->status == 0 ? r->buf : NULL, r->value_size);
    }
    return rc;
}

static void await(struct run *run, struct place *place)
{
    if (!place->busy)
        return;
    place->busy = false;
    if (cairn_wait(run->ctx, &place->op) == 0 && run->rc == 0)
        remember(run, take(run, place));
}

static void begin(struct run *run, struct place *place, uint64_t from)
{
    place->from = from;
    place->count = (uint32_t)cn_min64(run->per_tx, run->count - from);
    for (uint32_t i = 0; run->scan != NULL && i < place->count; i++)
        run->scan->key(run->scan->arg, from + i, (uint8_t *)(uintptr_t)place->read[i].key);
    place->op = (struct cairn_op){.done = done, .user = place};
    int rc = cairn_run_async(run->ctx, run->body, place, BN_FILL_TX_MS, &place->op);
    place->busy = rc == 0;
    remember(run, rc);
}

static int go(struct run *run, const char *what)
{
    uint32_t width = (uint32_t)cn_min64(cn_max64(run->load->inflight, 1), BN_FILL_INFLIGHT_MAX);
    uint64_t told = 0, n = 0;

    for (uint64_t from = 0; from < run->count && run->rc == 0; from += run->per_tx, n++) {
        struct place *place = &run->place[n % width];
        await(run, place);
        if (run->rc != 0)
            break;
        begin(run, place, from);
        if (from - told >= TOLD_EVERY) {
            bn_progress(run->load, what, from, run->count);
            told = from;
        }
    }
    for (uint64_t i = 0; i < width; i++)
        await(run, &run->place[(n + i) % width]);
    if (run->rc != 0)
        return cn_fail(run->rc, "%s: %s", what, run->text);
    bn_progress(run->load, what, run->count, run->count);
    return 0;
}

static struct run *make_run(
    const struct bn_load *load, struct cairn_ctx *ctx, uint64_t count, uint32_t per_tx)
{
    struct run *run = calloc(1, sizeof(*run));

    if (run == NULL)
        return NULL;
    run->load = load;
    run->ctx = ctx;
    run->count = count;
    run->per_tx = per_tx;
    for (uint32_t i = 0; i < BN_FILL_INFLIGHT_MAX; i++)
        run->place[i].run = run;
    return run;
}

int bn_fill(const struct bn_load *load, struct cairn_ctx *ctx, const struct bn_fill *fill)
{
    struct run *run = make_run(load, ctx, fill->count, fill->per_tx);

    if (run == NULL)
        return cn_fail(-ENOMEM, "%s: no memory", fill->what);
    run->fill = fill;
    run->body = put_units;
    int rc = go(run, fill->what);
    free(run);
    return rc;
}

/* ---- scans ---- */

/* One block: for each place its reads, keys and values. */
static void *lay_out_reads(struct run *run)
{
    const struct bn_scan *scan = run->scan;
    uint64_t keys = BN_SCAN_PER_TX * sizeof(struct cairn_read);
    uint64_t values = keys + (uint64_t)BN_SCAN_PER_TX * BN_SCAN_KEY_MAX;
    uint64_t stride = scan->value_size_max + 8u - scan->value_size_max % 8u;
    uint64_t size = values + BN_SCAN_PER_TX * stride;
    uint8_t *block = calloc(BN_FILL_INFLIGHT_MAX, size);

    for (uint32_t p = 0; block != NULL && p < BN_FILL_INFLIGHT_MAX; p++) {
        uint8_t *at = block + p * size;
        run->place[p].read = (struct cairn_read *)(void *)at;
        for (uint32_t i = 0; i < BN_SCAN_PER_TX; i++) {
            run->place[p].read[i] = (struct cairn_read){.key = at + keys + i * BN_SCAN_KEY_MAX,
                .key_size = scan->key_size,
                .buf = at + values + i * stride,
                .buf_size = scan->value_size_max,
                .table = scan->table};
        }
    }
    return block;
}

int bn_scan(const struct bn_load *load, struct cairn_ctx *ctx, const struct bn_scan *scan)
{
    struct run *run = make_run(load, ctx, scan->count, BN_SCAN_PER_TX);
    void *block = NULL;
    int rc;

    CAIRN_ASSERT(scan->key_size <= BN_SCAN_KEY_MAX);
    if (run != NULL) {
        run->scan = scan;
        run->body = read_keys;
        block = lay_out_reads(run);
    }
    rc = block == NULL ? cn_fail(-ENOMEM, "%s: no memory", scan->what) : go(run, scan->what);
    free(block);
    free(run);
    return rc;
}

uint64_t bn_item_bytes(uint32_t key_size, uint32_t value_size)
{
    return pm_class_size(pm_class_for(key_size, value_size)) + INDEX_SHARE;
}
