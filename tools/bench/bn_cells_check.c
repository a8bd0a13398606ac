/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_cells_check.c: the cells at the beginning and at the end: loading them, and comparing what
 * lies there with what the workers wrote (bn_cells.h).
 */
#include "tools/bench/bn_cells.h"

#include <errno.h>

#include "txn/txn_config.h"

#define TX_TIMEOUT_MS 20000u
#define BATCH_KEYS 64u
#define BATCH_BYTES (256u * 1024)
#define INSERT_BIT (UINT64_C(1) << 63)
#define INSERT_SHIFT 40u

/* A run of consecutive keys, in one transaction. */
struct batch {
    const struct bn_load *load;
    const struct bn_cells *cells;
    uint64_t first;
    uint32_t count;
    uint8_t *buffer;
};

static const struct bn_cells *cells_of(const struct bn_load *load)
{
    return &((const struct bn_cells_load *)(const void *)load)->cells;
}

static const struct bn_cells_worker *worker_of(const struct bn_load *load, uint32_t i)
{
    return load->worker[i];
}

/* Do `fn` for `count` keys from `first` on, a batch at a time. */
static int for_batches(const struct bn_load *load, struct cairn_ctx *ctx, cairn_tx_fn fn,
    uint64_t first, uint64_t count, const char *what)
{
    const struct bn_cells *cells = cells_of(load);
    uint64_t most = cn_max64(1, cn_min64(BATCH_KEYS, BATCH_BYTES / cells->value_size));
    struct batch b = {.load = load, .cells = cells};
    int rc = 0;

    b.buffer = malloc(most * cells->value_size);
    if (b.buffer == NULL)
        return cn_fail(-ENOMEM, "no memory to load and check");
    for (uint64_t done = 0; done < count && rc == 0; done += b.count) {
        b.first = first + done;
        b.count = (uint32_t)cn_min64(most, count - done);
        rc = cairn_run(ctx, fn, &b, TX_TIMEOUT_MS, NULL);
        bn_progress(load, what, done + b.count, count);
        if (rc == 0 && tl_interrupted)
            rc = cn_fail(-EINTR, "interrupted");
    }
    free(b.buffer);
    return rc;
}

static int put_batch(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    const struct bn_cell fresh = {0, 0, 0};
    int rc = 0;

    for (uint32_t i = 0; i < b->count && rc == 0; i++) {
        uint8_t key[BN_CELL_KEY_SIZE];
        bn_cell_key(b->first + i, key);
        bn_cell_pack(b->cells, b->first + i, &fresh, b->buffer);
        rc = cairn_put(
            tx, b->cells->table, key, sizeof(key), b->buffer, b->cells->value_size);
    }
    return rc;
}

int bn_cells_load(struct bn_load *load, struct cairn_ctx *ctx)
{
    struct bn_cells *cells = &((struct bn_cells_load *)(void *)load)->cells;

    cells->table = load->table[0];
    if (cells->placed)
        cells->shard = malloc(cells->keys);
    if (cells->placed && cells->shard == NULL)
        return cn_fail(-ENOMEM, "no memory for the shards of keys");
    for (uint64_t i = 0; i < cells->keys && cells->placed; i++) {
        uint8_t key[BN_CELL_KEY_SIZE];
        bn_cell_key(i, key);
        cells->shard[i] = (uint8_t)txn_config_shard(load->config, cells->table, key, sizeof(key));
    }
    return for_batches(load, ctx, put_batch, 0, cells->keys, "loading keys");
}

void bn_cells_end(struct bn_load *load)
{
    free(((struct bn_cells_load *)(void *)load)->cells.shard);
}

/* ---- the check ---- */

int bn_cells_judge(const struct bn_load *load, uint64_t key, const struct bn_cell *cell)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < load->threads; i++)
        sum += worker_of(load, i)->key[key].written;
    if (cells_of(load)->counted && cell->count != (uint32_t)sum)
        return cn_fail(CAIRN_E_STATE,
            "key %llu: %u writes are in it, but %llu were committed (last by worker %u)",
            (unsigned long long)key, cell->count, (unsigned long long)sum, cell->writer);
    if (cell->writer > load->threads || (cell->writer == 0) != (sum == 0))
        return cn_fail(CAIRN_E_STATE,
            "key %llu: written last by %u, of %u workers; %llu writes to it were committed",
            (unsigned long long)key, cell->writer, load->threads, (unsigned long long)sum);
    if (cell->writer == 0)
        return 0;
    const struct bn_cells_key *k = &worker_of(load, cell->writer - 1)->key[key];
    if (cell->number < k->floor || cell->number > k->written)
        return cn_fail(CAIRN_E_STATE,
            "key %llu: has write %u of worker %u, which committed %u; all before %u were over when "
            "the last one began: a later one is lost",
            (unsigned long long)key, cell->number, cell->writer, k->written, k->floor);
    return 0;
}

int bn_cells_judge_totals(const struct bn_load *load)
{
    for (uint32_t i = 0; i < load->threads; i++) {
        const struct bn_cells_worker *w = worker_of(load, i);
        if (w->drawn != w->settled)
            return cn_fail(CAIRN_E_STATE, "worker %u: %llu writes begun, %llu committed", i + 1,
                (unsigned long long)w->drawn, (unsigned long long)w->settled);
    }
    return 0;
}

static int judge(const struct batch *b, uint64_t key, const struct bn_cell *cell)
{
    uint32_t writer = (uint32_t)((key & ~INSERT_BIT) >> INSERT_SHIFT);

    if ((key & INSERT_BIT) == 0)
        return bn_cells_judge(b->load, key, cell);
    if (cell->writer == writer && cell->number == 1)
        return 0;
    return cn_fail(CAIRN_E_STATE, "key %llx: inserted by worker %u, and has write %u of %u",
        (unsigned long long)key, writer, cell->number, cell->writer);
}

static int check_batch(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    struct cairn_read read[BATCH_KEYS];
    uint8_t key[BATCH_KEYS][BN_CELL_KEY_SIZE];

    for (uint32_t i = 0; i < b->count; i++) {
        bn_cell_key(b->first + i, key[i]);
        read[i] = (struct cairn_read){.key = key[i],
            .key_size = BN_CELL_KEY_SIZE,
            .buf = b->buffer + (size_t)i * b->cells->value_size,
            .buf_size = b->cells->value_size,
            .table = b->cells->table};
    }
    int rc = cairn_get_many(tx, read, b->count);
    for (uint32_t i = 0; i < b->count && rc == 0; i++) {
        struct bn_cell cell;
        if (read[i].status != 0)
            return cn_fail(CAIRN_E_STATE, "key %llx, which was written: %s",
                (unsigned long long)(b->first + i), cairn_strerror(read[i].status));
        rc = bn_cell_unpack(b->cells, b->first + i, read[i].buf, read[i].value_size, &cell);
        if (rc == 0)
            rc = judge(b, b->first + i, &cell);
    }
    return rc;
}

int bn_cells_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked)
{
    const struct bn_cells *cells = cells_of(load);
    int rc = bn_cells_judge_totals(load);

    if (rc == 0)
        rc = for_batches(load, ctx, check_batch, 0, cells->keys, "checking keys");
    *ret_checked = cells->keys + load->threads;
    for (uint32_t i = 0; i < load->threads && rc == 0; i++) {
        const struct bn_cells_worker *w = worker_of(load, i);
        uint64_t first = INSERT_BIT | (uint64_t)w->writer << INSERT_SHIFT;
        rc = for_batches(load, ctx, check_batch, first, w->inserts, "checking inserted keys");
        *ret_checked += w->inserts;
    }
    return rc;
}
