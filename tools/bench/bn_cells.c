/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_cells.c: see bn_cells.h: values, and transactions over them.
 */
#include "tools/bench/bn_cells.h"

#include <errno.h>

#define INSERT_BIT (UINT64_C(1) << 63)
#define INSERT_SHIFT 40u
#define THETA_MAX 10.0

bool bn_parse_theta(const char *text, double *ret)
{
    char *end;
    double value = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(value >= 0 && value <= THETA_MAX))
        return false;
    *ret = value;
    return true;
}

/* ---- values ---- */

void bn_cell_key(uint64_t number, uint8_t key[BN_CELL_KEY_SIZE])
{
    struct le64 le = le64_make(number);

    memcpy(key, &le, sizeof(le));
}

static uint32_t checksum(uint64_t key, const uint8_t *value, size_t size)
{
    uint8_t number[BN_CELL_KEY_SIZE];

    bn_cell_key(key, number);
    return cn_crc32c(cn_crc32c(0, number, sizeof(number)), value + 4, size - 4);
}

static void put32(uint8_t *at, uint32_t value)
{
    struct le32 le = le32_make(value);

    memcpy(at, &le, sizeof(le));
}

static uint32_t get32(const uint8_t *at)
{
    struct le32 le;

    memcpy(&le, at, sizeof(le));
    return le32_get(le);
}

void bn_cell_pack(
    const struct bn_cells *cells, uint64_t key, const struct bn_cell *cell, uint8_t *value)
{
    put32(value + 4, cell->writer);
    put32(value + 8, cell->number);
    put32(value + 12, cell->count);
    if (cells->value_size > BN_CELL_VALUE_MIN)
        memset(value + BN_CELL_VALUE_MIN, (int)((cell->writer + cell->number + cell->count) & 255),
            cells->value_size - BN_CELL_VALUE_MIN);
    put32(value, checksum(key, value, cells->value_size));
}

int bn_cell_unpack(const struct bn_cells *cells, uint64_t key, const uint8_t *value, size_t size,
    struct bn_cell *ret)
{
    if (size != cells->value_size || get32(value) != checksum(key, value, size))
        return cn_fail(CAIRN_E_STATE, "key %llu has a value of %zu bytes that nobody wrote there",
            (unsigned long long)key, size);
    *ret = (struct bn_cell){get32(value + 4), get32(value + 8), get32(value + 12)};
    return 0;
}

/* ---- workers ---- */

uint64_t bn_cells_bytes(const struct bn_cells *cells, uint64_t inserts)
{
    return (cells->keys + inserts) * cn_align_up(40u + BN_CELL_KEY_SIZE + cells->value_size, 64);
}

int bn_cells_worker_init(struct bn_load *load, void *worker, uint32_t number)
{
    const struct bn_cells *cells = &((const struct bn_cells_load *)(const void *)load)->cells;
    struct bn_cells_worker *w = worker;

    w->writer = number + 1;
    w->key = calloc(cells->keys, sizeof(*w->key));
    w->buffers = calloc((size_t)load->inflight * cells->touches_max, cells->value_size);
    w->free = calloc(load->inflight, sizeof(*w->free));
    w->flight = calloc(load->inflight, sizeof(*w->flight));
    w->inflight = load->inflight;
    if (w->key == NULL || w->buffers == NULL || w->free == NULL || w->flight == NULL)
        return cn_fail(-ENOMEM, "no memory for the ledger of worker %u", number);
    for (; w->free_count < load->inflight; w->free_count++)
        w->free[w->free_count] = w->free_count;
    return 0;
}

void bn_cells_worker_end(struct bn_load *load, void *worker)
{
    struct bn_cells_worker *w = worker;

    (void)load;
    free(w->key);
    free(w->flight);
    free(w->buffers);
    free(w->free);
}

void bn_cells_begin(struct bn_load *load, struct bn_cells_worker *w, struct bn_touches *t)
{
    const struct bn_cells *cells = &((const struct bn_cells_load *)(const void *)load)->cells;

    CAIRN_ASSERT(w->free_count > 0);
    t->cells = cells;
    t->worker = w;
    t->count = 0;
    t->begun = false;
    t->buffer_index = w->free[--w->free_count];
    t->buffer = w->buffers + (size_t)t->buffer_index * cells->touches_max * cells->value_size;
    w->flight[t->buffer_index] = t;
}

static bool has_key(const struct bn_touches *t, uint64_t key)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->touch[i].key == key)
            return true;
    }
    return false;
}

static uint64_t draw_key(
    const struct bn_cells *cells, const struct bn_touches *t, uint64_t *random, uint32_t shard)
{
    uint64_t key;

    do {
        key = bn_zipf_draw(&cells->zipf, random);
        if (cells->zipf.theta > 0)
            key = bn_scramble(key, cells->keys);
    } while ((shard != BN_ANY_SHARD && cells->shard[key] != shard) || has_key(t, key));
    return key;
}

/* The first of the writes to a key that are not over. */
static uint32_t first_flying(const struct bn_cells_worker *w, uint64_t key)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t f = 0; f < w->inflight; f++) {
        const struct bn_touches *t = w->flight[f];
        for (uint32_t i = 0; t != NULL && t->begun && i < t->count; i++) {
            if (t->touch[i].key == key && t->touch[i].how != BN_TOUCH_READ)
                first = t->touch[i].number < first ? t->touch[i].number : first;
        }
    }
    return first;
}

static uint32_t begin_write(struct bn_cells_worker *w, uint64_t key)
{
    struct bn_cells_key *k = &w->key[key];

    k->written++;
    k->floor = k->flying == 0 ? k->written : first_flying(w, key);
    k->flying++;
    return k->written;
}

void bn_cells_touch(struct bn_cells_worker *w, uint64_t *random, struct bn_touches *t,
    enum bn_touch_how how, uint32_t shard)
{
    struct bn_touch *touch = &t->touch[t->count];

    CAIRN_ASSERT(t->count < t->cells->touches_max);
    *touch = (struct bn_touch){.how = how};
    if (how == BN_TOUCH_INSERT) {
        touch->key = INSERT_BIT | (uint64_t)w->writer << INSERT_SHIFT | w->inserts++;
        touch->number = 1;
    } else {
        touch->key = draw_key(t->cells, t, random, shard);
        __builtin_prefetch(&w->key[touch->key]); /* see bn_cells_number() */
    }
    w->drawn += how != BN_TOUCH_READ;
    t->count++;
}

void bn_cells_settle(struct bn_load *load, void *worker, const void *slot, bool committed)
{
    const struct bn_touches *t = slot;
    struct bn_cells_worker *w = worker;

    (void)load;
    w->free[w->free_count++] = t->buffer_index;
    w->flight[t->buffer_index] = NULL;
    for (uint32_t i = 0; i < t->count && committed; i++) {
        enum bn_touch_how how = t->touch[i].how;
        w->settled += how != BN_TOUCH_READ;
        if (how == BN_TOUCH_UPDATE || how == BN_TOUCH_BLIND)
            w->key[t->touch[i].key].flying--;
    }
}

/* ---- transactions ---- */

static uint8_t *value_at(const struct bn_touches *t, uint32_t i)
{
    return t->buffer + (size_t)i * t->cells->value_size;
}

/* All that is to be read, in one go; check it. ret_cell[i] of what is not read is zero. */
static int read_cells(
    struct cairn_tx *tx, const struct bn_touches *t, struct bn_cell ret_cell[BN_TOUCHES_MAX])
{
    struct cairn_read read[BN_TOUCHES_MAX];
    uint8_t key[BN_TOUCHES_MAX][BN_CELL_KEY_SIZE];
    uint32_t count = 0, place[BN_TOUCHES_MAX];
    int rc;

    for (uint32_t i = 0; i < t->count; i++) {
        if (t->touch[i].how != BN_TOUCH_READ && t->touch[i].how != BN_TOUCH_UPDATE)
            continue;
        bn_cell_key(t->touch[i].key, key[count]);
        read[count] = (struct cairn_read){.key = key[count],
            .key_size = BN_CELL_KEY_SIZE,
            .buf = value_at(t, i),
            .buf_size = t->cells->value_size,
            .table = t->cells->table,
            .for_update = t->touch[i].how == BN_TOUCH_UPDATE};
        place[count++] = i;
    }
    if (count == 0)
        return 0;
    rc = cairn_get_many(tx, read, count);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (read[i].status != 0)
            return cn_fail(CAIRN_E_STATE, "key %llu: %s",
                (unsigned long long)t->touch[place[i]].key, cairn_strerror(read[i].status));
        rc = bn_cell_unpack(t->cells, t->touch[place[i]].key, read[i].buf, read[i].value_size,
            &ret_cell[place[i]]);
    }
    return rc;
}

void bn_cells_number(struct bn_touches *t)
{
    for (uint32_t i = 0; i < t->count && !t->begun; i++) {
        struct bn_touch *touch = &t->touch[i];
        if (touch->how == BN_TOUCH_UPDATE || touch->how == BN_TOUCH_BLIND)
            touch->number = begin_write(t->worker, touch->key);
    }
    t->begun = true;
}

int bn_cells_body(struct cairn_tx *tx, void *slot)
{
    struct bn_touches *t = slot;
    struct bn_cell cell[BN_TOUCHES_MAX];
    int rc = read_cells(tx, t, cell);

    if (rc == 0)
        bn_cells_number(t);

    for (uint32_t i = 0; i < t->count && rc == 0; i++) {
        const struct bn_touch *touch = &t->touch[i];
        uint8_t key[BN_CELL_KEY_SIZE];
        if (touch->how == BN_TOUCH_READ)
            continue;
        const struct bn_cell next = {.writer = t->worker->writer,
            .number = touch->number,
            .count = touch->how == BN_TOUCH_UPDATE ? cell[i].count + 1 : 0};
        bn_cell_pack(t->cells, touch->key, &next, value_at(t, i));
        bn_cell_key(touch->key, key);
        rc = cairn_put(
            tx, t->cells->table, key, sizeof(key), value_at(t, i), t->cells->value_size);
    }
    return rc;
}
