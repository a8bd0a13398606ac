/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xp_pair.c: see xp_pair.h. What the fabric does is stored word by word with sim_pool_nic_store();
 * what the nodes do is the shipped code.
 */
#include "tests/sim/xp_pair.h"

#include <inttypes.h>

#include "pmem/pm_format.h"

#define EPOCH 7u
#define MARK_OFF 24u
#define HEAP_CHUNKS 5u
#define NEED(condition) CAIRN_ASSERT(condition)

const struct pm_geometry xp_geometry = {.chunk_shift = 12, .slot_count = 3, .window = 4,
    .ring_size = 4096, .retired_max = 16, .root_map_max = 1, .bucket_slots = 4,
    .fingerprint_bits = 2, .depth0 = PM_GEOMETRY_DEPTH0_ZERO};

static const char key[] = "key";

/* ---- environment ---- */

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return 1000000000;
}

static uint64_t wall_s(void *arg)
{
    (void)arg;
    return 1700000000;
}

static void random_bytes(void *arg, void *buf, size_t size)
{
    struct xp_pair *p = arg;
    uint8_t *to = buf;

    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)(p->random = cn_mix64(p->random + 1));
}

static int cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct xp_node *n = arg;

    *ret_old = pm_load64(&n->pm_pool.pm, off);
    if (*ret_old == expected)
        pm_store64(&n->pm_pool.pm, off, desired);
    return 0;
}

/* ---- pools ---- */

static void format(struct xp_node *n, uint16_t id)
{
    struct xp_pair *p = n->pair;
    struct pm_geometry g = xp_geometry;
    struct pm_super s = {.extent_count = 1};
    struct cn_uuid cluster = {{0x42}};
    struct pm pm;

    NEED(pm_geometry_complete(&g) == 0);
    s.geometry = g;
    s.extent[0].off = UINT64_C(1) << g.chunk_shift;
    s.pool_size = 1u << 16;
    pm_geometry_place(&s);
    uint64_t size = s.heap_off + ((uint64_t)HEAP_CHUNKS << g.chunk_shift);
    n->pool = sim_pool_new(NULL, size);
    sim_pool_pm(n->pool, &p->env, &pm);
    struct pm_extent_pm extent = {
        le64_make(s.extent[0].off), le64_make(size - s.extent[0].off)};
    NEED(pm_format(&pm, &extent, 1, &xp_geometry, &cluster, id) == 0);
    NEED(pm_attach(&n->pm_pool, &pm, s.extent[0].off) == 0);
}

static void start(struct xp_node *n)
{
    const struct pm_cas by = {n, cas};
    struct pm_slot *media;

    NEED(pm_pool_raise_incarnation(&n->pm_pool) == 0);
    NEED(txn_part_open(&n->part, &n->pm_pool, &n->pair->env) == 0);
    NEED(pm_store_open(&n->pm_pool, &by, &n->store) == 0);
    n->part.store = n->store;
    NEED(pm_growth_start(n->store) == 0);
    NEED(pm_store_create_index(n->store, XP_TABLE, 0) == 0);
    media = &n->part.slot[XP_SLOT].media;
    media->state = PM_SLOT_OPEN;
    media->epoch = EPOCH;
    media->nonce = cn_random64(&n->pair->env);
    media->incarnation = n->pm_pool.incarnation;
    memset(media->owner.b, 0xaa, sizeof(media->owner.b));
    txn_part_store(&n->part, &n->part.slot[XP_SLOT], CN_STEP_s_handout);
    const struct pm_index *index = pm_store_index(n->store, XP_TABLE, 0);
    n->bucket = pm_load64(&n->pm_pool.pm, index->off + PM_INDEX_MAP_OFF);
}

/* ---- a coordinator's records ---- */

static void nic_word(struct xp_node *n, uint64_t off, uint64_t value)
{
    struct le64 word = le64_make(value);

    sim_pool_nic_store(n->pool, off, &word, sizeof(word));
}

/* The record of the transaction at one node, into its ring. `block`: of an insert, or NULL. */
static void put_record(struct xp_node *n, uint64_t value, const struct pm_lock_pm *block)
{
    struct xp_pair *p = n->pair;
    const struct pm_slot *media = &n->part.slot[XP_SLOT].media;
    const struct pm_index *index = pm_store_index(n->store, XP_TABLE, 0);
    struct pm_place place = pm_slot_place(&n->pm_pool, media, n->log_off);
    struct cn_txid txid = {.count = 100 + n->seq};
    uint8_t buf[512] __attribute__((aligned(64)));
    struct le64 bytes = le64_make(value);
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = block != NULL ? PM_OP_INSERT : PM_OP_UPDATE,
        .key_size = le16_make(sizeof(key)), .value_size = le32_make(sizeof(bytes)),
        .index = le32_make(index->index),
        .hash = le64_make(pm_index_hash(index, key, sizeof(key))), .key_base = le64_make(0)};

    memset(txid.coordinator.b, 0xaa, sizeof(txid.coordinator.b));
    pm_record_begin(&w, buf, sizeof(buf));
    for (uint32_t i = 0; i < XP_POOLS; i++)
        if (block == NULL || &p->node[i] == n)
            pm_record_add_participant(&w, p->node[i].pm_pool.super.node, 0, 0, XP_SLOT, EPOCH,
                p->node[i].seq);
    pm_record_add_lock(&w, block != NULL ? n->bucket : n->item, n->base);
    if (block != NULL) {
        pm_record_add_block(&w, le64_get(block->off), le64_get(block->base));
        write.block = block->off;
        write.bucket = le64_make(n->bucket);
        write.class_ = (uint8_t)pm_class_for(sizeof(key), sizeof(bytes));
    } else {
        write.item = le64_make(n->item);
    }
    (void)pm_record_add_write(&w, &write, key, &bytes);
    n->record_size = pm_record_end(&w, PM_RECORD_TX, &txid, n->seq, 1, &place);
    NEED(n->record_size != 0);
    n->record_at = pm_slot_log_at(&n->pm_pool, XP_SLOT, n->log_off);
    sim_pool_nic_store(n->pool, n->record_at, buf, n->record_size);
    n->log_off += n->record_size;
}

static void lock_word(struct xp_node *n, uint64_t off)
{
    uint64_t word = pm_load64(&n->pm_pool.pm, off);

    NEED(!pm_word_is_locked(word, n->pm_pool.tag));
    n->base = pm_word_version(word);
    nic_word(n, off, pm_word_make_locked(n->pm_pool.tag, XP_SLOT, n->base));
}

static void apply(struct xp_node *n)
{
    (void)txn_part_poll(&n->part, &n->part.slot[XP_SLOT]);
    while (txn_part_apply(&n->part) != 0)
        continue;
}

static void insert_key(struct xp_node *n)
{
    struct pm_lock_pm block;
    uint32_t count = 0;
    int rc;

    do {
        rc = pm_heap_grant(n->store, XP_SLOT, pm_class_for(sizeof(key), 8), 1, &block, &count);
        if (rc == CAIRN_E_AGAIN)
            (void)pm_growth_step(n->store, 16);
    } while (rc == CAIRN_E_AGAIN);
    NEED(rc == 0 && count == 1);
    n->item = le64_get(block.off);
    n->seq = 1;
    lock_word(n, n->bucket);
    put_record(n, n->pair->value, &block);
    sim_pool_persist(n->pool, n->record_at, n->record_size, n->pool->seq);
    apply(n);
    NEED(n->part.slot[XP_SLOT].media.position_seq == 1);
}

void xp_begin(struct xp_pair *p)
{
    memset(p, 0, sizeof(*p));
    p->env = (struct cn_env){
        .arg = p, .now_ns = now_ns, .wall_s = wall_s, .random = random_bytes};
    p->value = p->next = 1;
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        struct xp_node *n = &p->node[i];
        n->pair = p;
        format(n, (uint16_t)(i + 1));
        start(n);
        insert_key(n);
        sim_pool_settle(n->pool);
        p->pool[i] = n->pool;
    }
}

void xp_end(struct xp_pair *p)
{
    cr_explorer_delete(&p->explorer);
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        pm_store_close(&p->node[i].store);
        txn_part_close(&p->node[i].part);
        sim_pool_delete(p->node[i].pool);
    }
}

/* ---- looking ---- */

static bool check(void *arg, struct cr_recovered *state, char *why, size_t size)
{
    const struct xp_pair *p = arg;
    uint64_t value[XP_POOLS] = {0};

    for (uint32_t i = 0; i < state->count; i++) {
        struct le64 bytes = {0};
        size_t n = 0;
        int rc =
            cr_recovered_get(state, i, XP_TABLE, key, sizeof(key), &bytes, sizeof(bytes), &n);
        if (rc != 0 || n != sizeof(bytes)) {
            snprintf(why, size, "pool %u: the key is gone: %s", i, cairn_last_error());
            return false;
        }
        value[i] = le64_get(bytes);
    }
    if (value[0] != value[1]) {
        snprintf(why, size, "torn transaction: %" PRIu64 " and %" PRIu64, value[0], value[1]);
        return false;
    }
    if (value[0] != p->next && value[0] != p->value) {
        snprintf(why, size, "value %" PRIu64 " out of nowhere", value[0]);
        return false;
    }
    if (p->acknowledged && value[0] != p->next) {
        snprintf(why, size, "an acknowledged transaction is lost");
        return false;
    }
    if (p->decided && value[0] != p->value) {
        snprintf(why, size, "an aborted transaction took effect");
        return false;
    }
    return true;
}

static uint64_t expectation(void *arg)
{
    const struct xp_pair *p = arg;

    return cn_mix64(p->value * 1024 + p->next) + 2u * p->acknowledged + p->decided;
}

bool xp_explore(struct xp_pair *p, const char *step)
{
    if (p->failed || p->explorer == NULL)
        return false;
    p->failed = !cr_explore(p->explorer, p->pool, XP_POOLS, step);
    return !p->failed;
}

static void before_persist(void *arg, struct sim_pool *pool, const char *what)
{
    struct xp_pair *p = arg;

    (void)pool;
    if (p->watching)
        (void)xp_explore(p, what);
}

void xp_watch(struct xp_pair *p, struct cr_explore_options options)
{
    options.env = &p->env;
    options.check = check;
    options.expectation = expectation;
    options.arg = p;
    NEED(cr_explorer_new(&options, &p->explorer) == 0);
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        p->pool[i]->before_persist = before_persist;
        p->pool[i]->before_persist_arg = p;
    }
    p->watching = true;
}

/* ---- steps of a transaction ---- */

void xp_lock(struct xp_pair *p)
{
    p->value = p->next;
    p->next = p->value + 1;
    p->acknowledged = p->decided = false;
    for (uint32_t i = 0; i < XP_POOLS; i++) {
        p->node[i].seq++;
        lock_word(&p->node[i], p->node[i].item);
    }
}

void xp_log(struct xp_pair *p, uint32_t node)
{
    put_record(&p->node[node], p->next, NULL);
}

void xp_flush(struct xp_pair *p, uint32_t node)
{
    struct xp_node *n = &p->node[node];

    sim_pool_persist(n->pool, n->record_at, n->record_size, n->pool->seq);
}

void xp_acknowledge(struct xp_pair *p)
{
    p->acknowledged = true;
}

void xp_mark(struct xp_pair *p, uint32_t node)
{
    struct xp_node *n = &p->node[node];

    nic_word(n, n->record_at + MARK_OFF,
        pm_word_value(n->part.slot[XP_SLOT].media.nonce, n->seq, PM_WORD_MARK));
}

void xp_apply(struct xp_pair *p, uint32_t node)
{
    apply(&p->node[node]);
}

void xp_prevent(struct xp_pair *p, uint32_t node)
{
    struct xp_node *n = &p->node[node];
    struct txn_part_slot *slot = &n->part.slot[XP_SLOT];

    NEED(txn_part_scan(&n->part, slot) == 0);
    NEED(txn_part_seal(&n->part, slot) == 0);
    struct txn_entry *entry = txn_part_find(&n->part, slot, n->seq);
    NEED(entry != NULL && txn_part_abort(&n->part, slot, entry) == 0);
    while (txn_part_apply(&n->part) != 0)
        continue;
}

void xp_transaction(struct xp_pair *p)
{
    xp_lock(p);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_log(p, i);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_flush(p, i);
    xp_acknowledge(p);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_mark(p, i);
    for (uint32_t i = 0; i < XP_POOLS; i++)
        xp_apply(p, i);
    (void)xp_explore(p, "quiet");
}
