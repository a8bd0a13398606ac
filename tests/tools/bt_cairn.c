/* SPDX-License-Identifier: BSD-3-Clause */
/* bt_cairn.c: see bt_cairn.h. */
#include "tests/tools/bt_cairn.h"

#define BUCKETS (1u << 17)
#define NEVER UINT32_MAX

struct entry {
    struct entry *next;
    uint32_t table;
    uint16_t key_size;
    uint8_t key[CAIRN_KEY_SIZE_MAX];
    size_t value_size;
    uint8_t *value; /* NULL: deleted, or not there */
};
struct change {
    uint32_t table;
    uint16_t key_size;
    bool written;
    uint8_t key[CAIRN_KEY_SIZE_MAX];
    size_t value_size;
    uint8_t *value; /* NULL: delete */
};
struct cairn_tx {
    struct cairn_ctx *ctx;
    uint32_t count;
    struct change change[CAIRN_TX_KEYS_MAX];
};
struct cairn_ctx {
    struct entry *bucket[BUCKETS];
    struct cairn_tx tx;
    uint32_t lose, keys_max;
};

static uint64_t progress_calls;

void bn_progress(const struct bn_load *load, const char *what, uint64_t done, uint64_t all)
{
    (void)load;
    CAIRN_ASSERT(what[0] != '\0' && done <= all);
    progress_calls++;
}

static struct entry *find(struct cairn_ctx *ctx, uint32_t table, const void *key, size_t size)
{
    struct entry **at = &ctx->bucket[cn_crc32c(table, key, size) % BUCKETS];

    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->table == table && (*at)->key_size == size && memcmp((*at)->key, key, size) == 0)
            return *at;
    }
    *at = calloc(1, sizeof(**at));
    CAIRN_ASSERT(*at != NULL);
    (*at)->table = table;
    (*at)->key_size = (uint16_t)size;
    memcpy((*at)->key, key, size);
    return *at;
}

static int touch(struct cairn_tx *tx, uint32_t table, const void *key, size_t size,
    struct change **ret_change)
{
    CAIRN_ASSERT(size >= 1 && size <= CAIRN_KEY_SIZE_MAX && table != 0);
    for (uint32_t i = 0; i < tx->count; i++) {
        struct change *c = &tx->change[i];
        if (c->table == table && c->key_size == size && memcmp(c->key, key, size) == 0) {
            *ret_change = c;
            return 0;
        }
    }
    if (tx->count == CAIRN_TX_KEYS_MAX)
        return cn_fail(CAIRN_E_TX_SIZE, "too many keys");
    struct change *c = &tx->change[tx->count++];
    memset(c, 0, sizeof(*c));
    c->table = table;
    c->key_size = (uint16_t)size;
    memcpy(c->key, key, size);
    *ret_change = c;
    return 0;
}

int cairn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct cairn_read *r = &reads[i];
        struct change *change;
        int rc = touch(tx, r->table, r->key, r->key_size, &change);
        if (rc != 0)
            return rc;
        const struct entry *e = find(tx->ctx, r->table, r->key, r->key_size);
        const uint8_t *value = change->written ? change->value : e->value;
        r->value_size = change->written ? change->value_size : e->value_size;
        r->status = value == NULL ? CAIRN_E_NOT_FOUND
            : r->value_size > r->buf_size ? CAIRN_E_BUFFER_SIZE
                                          : 0;
        if (r->status == 0)
            memcpy(r->buf, value, r->value_size);
    }
    return 0;
}

int cairn_get(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size, void *buf,
    size_t buf_size, size_t *ret_size)
{
    struct cairn_read read = {
        .table = table, .key = key, .key_size = key_size, .buf = buf, .buf_size = buf_size};
    int rc = cairn_get_many(tx, &read, 1);

    *ret_size = read.value_size;
    return rc != 0 ? rc : read.status;
}

int cairn_get_for_update(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size)
{
    return cairn_get(tx, table, key, key_size, buf, buf_size, ret_size);
}

static int write_key(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size)
{
    struct change *change;
    int rc = touch(tx, table, key, key_size, &change);

    if (rc != 0)
        return rc;
    free(change->value);
    change->written = true;
    change->value = NULL;
    change->value_size = value_size;
    if (value != NULL) {
        change->value = malloc(value_size + 1);
        CAIRN_ASSERT(change->value != NULL);
        memcpy(change->value, value, value_size);
    }
    return 0;
}

int cairn_put(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size)
{
    return write_key(tx, table, key, key_size, value, value_size);
}

int cairn_delete(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size)
{
    return write_key(tx, table, key, key_size, NULL, 0);
}

static void end_tx(struct cairn_tx *tx, bool commit)
{
    struct cairn_ctx *ctx = tx->ctx;

    ctx->keys_max = tx->count > ctx->keys_max ? tx->count : ctx->keys_max;
    for (uint32_t i = 0; i < tx->count; i++) {
        struct change *c = &tx->change[i];
        if (!c->written || !commit || c->table == ctx->lose) {
            if (c->written && commit)
                ctx->lose = NEVER;
            free(c->value);
            continue;
        }
        struct entry *e = find(ctx, c->table, c->key, c->key_size);
        free(e->value);
        e->value = c->value;
        e->value_size = c->value_size;
    }
    tx->count = 0;
}

int cairn_run_async(
    struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms, struct cairn_op *op)
{
    (void)timeout_ms;
    ctx->tx.ctx = ctx;
    op->result = fn(&ctx->tx, arg);
    end_tx(&ctx->tx, op->result == 0);
    return 0;
}

int cairn_wait(struct cairn_ctx *ctx, struct cairn_op *op)
{
    (void)ctx;
    if (op->done != NULL)
        op->done(op);
    return op->result;
}

/* ---- a load ---- */

void bt_option(const struct bn_load_ops *ops, const char *name, uint64_t value)
{
    for (uint32_t i = 0; i < ops->option_count; i++) {
        const struct tl_option *o = &ops->options[i];
        if (strcmp(o->name, name) != 0)
            continue;
        if (o->flag != NULL)
            *o->flag = value != 0;
        else
            *o->number = value;
        return;
    }
    cn_panic(__FILE__, __LINE__, name);
}

static struct bn_load *make(const struct bn_load_ops *ops)
{
    struct bn_load *load = calloc(1, ops->size);

    CAIRN_ASSERT(load != NULL && ops->options[ops->option_count].name == NULL);
    load->ops = ops;
    for (uint32_t i = 0; i < BN_TABLES_MAX && ops->tables[i] != NULL; i++)
        load->table[i] = i + 1;
    load->threads = 2;
    load->inflight = 3;
    load->participants = 3;
    load->seed = 7;
    return load;
}

int bt_setup(const struct bn_load_ops *ops)
{
    struct bn_load *load = make(ops);
    int rc = ops->setup(load);

    if (rc == 0 && ops->end != NULL)
        ops->end(load);
    free(load);
    return rc;
}

struct bt_load *bt_load_new(const struct bn_load_ops *ops)
{
    struct bt_load *b = calloc(1, sizeof(*b));

    CAIRN_ASSERT(b != NULL);
    b->load = make(ops);
    b->ctx = calloc(1, sizeof(*b->ctx));
    b->slot = calloc(1, ops->slot_size);
    CAIRN_ASSERT(b->ctx != NULL && b->slot != NULL);
    b->ctx->lose = NEVER;
    b->random = 1;
    CAIRN_ASSERT(ops->setup(b->load) == 0);
    progress_calls = 0;
    CAIRN_ASSERT(ops->load(b->load, b->ctx) == 0);
    b->progress = progress_calls;
    for (uint32_t i = 0; i < 2; i++) {
        b->worker[i] = calloc(1, ops->worker_size);
        CAIRN_ASSERT(b->worker[i] != NULL && ops->worker_init(b->load, b->worker[i], i) == 0);
    }
    b->load->worker = b->worker;
    return b;
}

void bt_load_delete(struct bt_load **load)
{
    struct bt_load *b = *load;

    for (uint32_t i = 0; i < 2; i++) {
        b->load->ops->worker_end(b->load, b->worker[i]);
        free(b->worker[i]);
    }
    if (b->load->ops->end != NULL)
        b->load->ops->end(b->load);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct entry *e = b->ctx->bucket[i], *next; e != NULL; e = next) {
            next = e->next;
            free(e->value);
            free(e);
        }
    }
    free(b->ctx);
    free(b->slot);
    free(b->load);
    free(b);
    *load = NULL;
}

uint32_t bt_load_step(struct bt_load *b, uint32_t worker)
{
    const struct bn_load_ops *ops = b->load->ops;
    struct cairn_tx *tx = &b->ctx->tx;
    memset(b->slot, 0xa5, ops->slot_size); /* it may not count on anything there */
    uint32_t kind = ops->draw(b->load, b->worker[worker], &b->random, b->slot);

    CAIRN_ASSERT(kind < BN_KINDS_MAX && ops->kinds[kind] != NULL);
    tx->ctx = b->ctx;
    /* Tried before, and lost to a conflict: the second time it must do the same. */
    (void)ops->body(tx, b->slot);
    end_tx(tx, false);
    b->rc = ops->body(tx, b->slot);
    b->committed = b->rc == 0;
    end_tx(tx, b->committed);
    CAIRN_ASSERT(b->rc == 0 || b->rc == BN_REFUSED);
    ops->settle(b->load, b->worker[worker], b->slot, b->committed);
    return kind;
}

void bt_load_until(struct bt_load *b, uint32_t kind)
{
    for (uint32_t i = 0; i < 10000; i++) {
        if (bt_load_step(b, 0) == kind && b->committed)
            return;
    }
    cn_panic(__FILE__, __LINE__, "none of the kind commits");
}

int bt_load_check(struct bt_load *b, uint64_t *ret_checked)
{
    *ret_checked = 0;
    return b->load->ops->check(b->load, b->ctx, ret_checked);
}

/* ---- looks at the table ---- */

void bt_lose(struct bt_load *b, uint32_t table)
{
    b->ctx->lose = b->load->table[table];
}

uint64_t bt_count(const struct bt_load *b, uint32_t table)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (const struct entry *e = b->ctx->bucket[i]; e != NULL; e = e->next)
            count += e->value != NULL && e->table == b->load->table[table];
    }
    return count;
}

void *bt_value(
    struct bt_load *b, uint32_t table, const void *key, size_t key_size, size_t *ret_size)
{
    struct entry *e = find(b->ctx, b->load->table[table], key, key_size);

    *ret_size = e->value_size;
    return e->value;
}

void bt_delete(struct bt_load *b, uint32_t table, const void *key, size_t key_size)
{
    struct entry *e = find(b->ctx, b->load->table[table], key, key_size);

    CAIRN_ASSERT(e->value != NULL);
    free(e->value);
    e->value = NULL;
}

uint32_t bt_keys_max(const struct bt_load *b)
{
    return b->ctx->keys_max;
}
