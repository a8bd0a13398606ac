/* SPDX-License-Identifier: BSD-3-Clause */
/* ts_filled.c: see ts_filled.h. */
#include "tests/support/ts_filled.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/ts_folder.h"

#define PIECE 65536u

struct server { /* the node's thread while the pool is filled */
    struct ts_filled *f;
    pthread_t thread;
    struct rd_fabric *fabric;
    struct pm_pool *pool;
    struct rec_node *node;
    volatile int stop;
    int opened;
};

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "filled pool: %s: %s\n", what, cairn_last_error());
    abort();
}

int ts_filled_open(struct ts_filled *f, struct pm_pool **ret_pool, struct rec_node **ret_node)
{
    struct rec_node_options options = {
        .config = &f->config,
        .node = 1,
        .fabric = f->fabric,
        .env = &f->env,
        .serve_damaged = f->serve_damaged,
    };
    int rc = pm_pool_open(f->config.node[0].pool, PM_OPEN_OWNER, 1000, options.env, ret_pool);

    if (rc != 0)
        return rc;
    options.pool = *ret_pool;
    rc = rec_node_open(&options, ret_node);
    if (rc != 0)
        pm_pool_close(ret_pool);
    return rc;
}

/* The node crashes at the end, so that its rings keep what is in them. */
static void *serve(void *arg)
{
    struct server *s = arg;

    check(ts_filled_open(s->f, &s->pool, &s->node) == 0, "node");
    __atomic_store_n(&s->opened, 1, __ATOMIC_RELEASE);
    rec_node_run(s->node, &s->stop);
    return NULL;
}

struct put {
    char key[32];
    uint8_t value[2048];
    size_t size; /* SIZE_MAX: delete */
};

static int put_one(struct cairn_tx *tx, void *arg)
{
    const struct put *p = arg;

    return p->size == SIZE_MAX ? cairn_delete(tx, 1, p->key, strlen(p->key))
                               : cairn_put(tx, 1, p->key, strlen(p->key), p->value, p->size);
}

static void put(struct cairn_ctx *ctx, char kind, uint32_t number, size_t size)
{
    struct put p = {.size = size};

    (void)snprintf(p.key, sizeof(p.key), "%c%u", kind, number);
    memset(p.value, (int)(number + size), sizeof(p.value));
    check(cairn_run(ctx, put_one, &p, 10000, NULL) == 0, "put");
}

/* Victims first and in a session of their own; then enough others to lap over their records. */
static void fill(struct cairn *cairn)
{
    struct cairn_ctx *ctx;

    check(cairn_ctx_open(cairn, &ctx) == 0, "context");
    for (uint32_t i = 0; i < TS_FILLED_VICTIMS; i++)
        put(ctx, 'v', i, i * 7 % 700);
    for (uint32_t i = 0; i < 40; i++)
        put(ctx, 'h', i, 400);
    cairn_ctx_close(&ctx);
    check(cairn_ctx_open(cairn, &ctx) == 0, "context");
    for (uint32_t i = 0; i < 40; i++)
        put(ctx, 'h', i, 390 + i);             /* update */
    for (uint32_t i = 0; i < 40; i += 5)
        put(ctx, 'h', i, SIZE_MAX);            /* delete */
    for (uint32_t i = 1; i < 40; i += 5)
        put(ctx, 'h', i, 1200);                /* move */
    for (uint32_t i = 40; i < 60; i++)
        put(ctx, 'h', i, i);                   /* insert */
    txn_ctx_abandon(&ctx);
}

static void take_samples(struct ts_filled *f, const struct pm_pool *pool)
{
    uint64_t ring_size = pool->super.geometry.ring_size;

    for (uint32_t slot = 1; slot < pool->super.geometry.slot_count; slot++) {
        const uint8_t *ring = f->image + pm_ring_off(pool, slot) + PM_RING_HEADER_SIZE;
        for (uint64_t at = 0; at < ring_size && f->sample_count < TS_FILLED_SAMPLES_MAX;) {
            uint32_t size = pm_record_peek(ring + at, ring_size - at);
            const uint8_t *name = ring + at;
            if (size == 0 || name[offsetof(struct pm_record_pm, type)] != PM_RECORD_TX ||
                memmem(name, size, "h", 1) == NULL) {
                at += PM_RECORD_ALIGN;
                continue;
            }
            f->sample[f->sample_count] = malloc(size);
            check(f->sample[f->sample_count] != NULL, "memory");
            memcpy(f->sample[f->sample_count], ring + at, size);
            f->sample_size[f->sample_count++] = size;
            at += size;
        }
    }
    check(f->sample_count > 8, "samples");
}

static void keep_image(struct ts_filled *f)
{
    int fd = open(f->config.node[0].pool, O_RDWR | O_CLOEXEC);
    struct stat st;

    check(fd >= 0 && fstat(fd, &st) == 0, "open file");
    f->size = (uint64_t)st.st_size;
    f->file = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    f->image = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(f->file != MAP_FAILED && f->image != MAP_FAILED, "map file");
    (void)close(fd);
    memcpy(f->image, f->file, f->size);
}

static void say_nothing(void *arg, enum cn_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static void configure(struct ts_filled *f)
{
    struct txn_config *c = &f->config;

    (void)snprintf(f->dir, sizeof(f->dir), "/dev/shm/cairn-test-XXXXXX");
    ts_folder_make(f->dir);
    (void)snprintf(c->path, sizeof(c->path), "(test)");
    memset(c->cluster.b, 0x42, sizeof(c->cluster.b));
    (void)snprintf(c->fabric, sizeof(c->fabric), "emu");
    c->view = 1;
    c->node_count = 1;
    c->table_count = 1;
    c->table[0].id = 1;
    (void)snprintf(c->table[0].name, sizeof(c->table[0].name), "t");
    c->geometry = (struct pm_geometry){.chunk_shift = 16, .slot_count = 6, .window = 16,
        .ring_size = 16384, .retired_max = 256, .depth0 = 2, .root_map_max = 64,
        .bucket_slots = 12};
    c->lease_ms = 200;
    c->resolve_ms = 50;
    c->verdict_s = 86400;
    check(pm_geometry_complete(&c->geometry) == 0, "geometry");
    c->node[0].id = 1;
    (void)snprintf(c->node[0].address, sizeof(c->node[0].address), "%s/n.sock", f->dir);
    (void)snprintf(c->node[0].pool, sizeof(c->node[0].pool), "%s/n.pool", f->dir);
    check(pm_pool_create(c->node[0].pool, UINT64_C(16) << 20, &c->geometry, &c->cluster, 1,
              &f->env) == 0,
        "create");
}

static void fill_with_node(struct ts_filled *f)
{
    struct server s = {.f = f};
    struct cairn *cairn;

    check(pthread_create(&s.thread, NULL, serve, &s) == 0, "thread");
    for (uint32_t i = 0; i < 5000 && __atomic_load_n(&s.opened, __ATOMIC_ACQUIRE) == 0; i++)
        (void)usleep(1000);
    check(txn_cluster_open(&f->config, f->fabric, &f->env, NULL, &cairn) == 0, "cluster");
    fill(cairn);
    cairn_close(&cairn);
    s.stop = 1;
    rec_node_wake(s.node);
    check(pthread_join(s.thread, NULL) == 0, "join");
    rec_node_abandon(&s.node); /* not before: it has to be there to be woken */
    pm_pool_close(&s.pool);
}

struct ts_filled *ts_filled_new(void)
{
    struct ts_filled *f = calloc(1, sizeof(*f));
    struct pm_pool *pool;
    struct pm_fsck_report report;

    check(f != NULL, "memory");
    f->env = *cn_env_system();
    f->env.log = say_nothing;
    configure(f);
    check(txn_config_open_fabric(&f->config, &f->fabric) == 0, "fabric");
    fill_with_node(f);
    keep_image(f);
    check(pm_pool_open(f->config.node[0].pool, PM_OPEN_READ_ONLY, 0, &f->env, &pool) == 0,
        "look");
    take_samples(f, pool);
    pm_pool_close(&pool);
    check(ts_filled_fsck(f, &report, &f->victims) == 0 && report.damages == 0, "fsck");
    return f;
}

void ts_filled_delete(struct ts_filled **filled)
{
    struct ts_filled *f = *filled;

    *filled = NULL;
    rd_fabric_delete(f->fabric);
    (void)munmap(f->file, f->size);
    (void)munmap(f->image, f->size);
    for (uint32_t i = 0; i < f->sample_count; i++)
        free(f->sample[i]);
    (void)unlink(f->config.node[0].pool);
    (void)unlink(f->config.node[0].address);
    (void)rmdir(f->dir);
    free(f);
}

void ts_filled_restore(struct ts_filled *f)
{
    for (uint64_t at = 0; at < f->size; at += PIECE) {
        uint64_t size = cn_min64(PIECE, f->size - at);
        if (memcmp(f->file + at, f->image + at, size) != 0)
            memcpy(f->file + at, f->image + at, size);
    }
}

struct fsck {
    struct ts_filled *f;
    uint64_t sum;
};

static void keep_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    struct ts_filled *f = ((struct fsck *)arg)->f;

    if (severity == PM_FSCK_DAMAGE && f->damage[0] == 0)
        (void)snprintf(f->damage, sizeof(f->damage), "%s", text);
}

static void add_victim(void *arg, const struct pm_index *index, const struct pm_item_view *item)
{
    static const uint8_t key1[16] = {1}, key2[16] = {2};
    uint64_t *sum = &((struct fsck *)arg)->sum;

    (void)index;
    if (item->key_size != 0 && item->key[0] == 'v')
        *sum += cn_mix64(cn_siphash(key1, item->key, item->key_size) +
            cn_mix64(cn_siphash(key2, item->value, item->value_size)));
}

int ts_filled_fsck(struct ts_filled *f, struct pm_fsck_report *ret, uint64_t *ret_victims)
{
    struct pm_pool *pool;
    struct fsck fsck = {.f = f};
    const struct pm_fsck_options options = {
        .report = keep_damage, .item = add_victim, .arg = &fsck};
    int rc = pm_pool_open(f->config.node[0].pool, PM_OPEN_READ_ONLY, 0, &f->env, &pool);

    f->damage[0] = 0;
    if (rc != 0)
        return rc;
    rc = pm_fsck(pool, &options, ret);
    pm_pool_close(&pool);
    *ret_victims = fsck.sum;
    return rc;
}
