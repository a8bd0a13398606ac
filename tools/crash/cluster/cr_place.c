/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_place.c: what lies at an offset of a pool, in words, for timelines. Looks at the memory as it
 * is, in motion or damaged: a guess that names the wrong thing misleads, so where it is not sure it
 * says less.
 */
#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/cluster/cr_timeline.h"

#include "pmem/pm_format.h"
#include "pmem/pm_object.h"
#include "pmem/pm_pool.h"

static const struct pm_pool *pool_of(const struct sim *sim, const struct sim_pool *pool)
{
    const struct cr_cluster *c = sim->user;

    for (uint32_t i = 0; c != NULL && i < c->node_count; i++)
        if (c->node[i].pool == pool && c->node[i].pm_pool.super.pool_size != 0)
            return &c->node[i].pm_pool;
    return NULL;
}

static void slot_text(const struct pm_super *s, uint64_t off, char *text, size_t size)
{
    uint64_t number = (off - s->slots_off) / s->slot_stride;
    uint64_t at = (off - s->slots_off) % s->slot_stride, tombstones = PM_SLOT_HEADER_SIZE;
    uint64_t states = tombstones + s->tombstone_max * sizeof(struct pm_tombstone_pm);

    snprintf(text, size, "slot %lu's %s", number,
        at < tombstones   ? "header"
            : at < states ? "tombstones"
                          : "applied states");
}

static void ring_text(const struct pm_super *s, uint64_t off, char *text, size_t size)
{
    uint64_t number = (off - s->rings_off) / s->ring_stride;
    uint64_t at = (off - s->rings_off) % s->ring_stride;

    if (at < RD_RING_HEADER_SIZE)
        snprintf(text, size, "ring %lu's position", number);
    else
        snprintf(text, size, "ring %lu", number);
}

/* Of printable keys; nothing else is tried. */
static bool key_text(const uint8_t *item, uint64_t room, char *text, size_t size)
{
    struct pm_item_pm head;

    memcpy(&head, item, sizeof(head));
    uint64_t meta = le64_get(head.head.meta), key_size = le16_get(head.key_size);
    if ((meta >> 40 & 0xff) != PM_KIND_ITEM || key_size == 0 || key_size > 24 ||
        key_size + PM_ITEM_HEADER_SIZE > room)
        return false;
    for (uint64_t i = 0; i < key_size; i++)
        if (item[PM_ITEM_HEADER_SIZE + i] < ' ' || item[PM_ITEM_HEADER_SIZE + i] > '~')
            return false;
    snprintf(text, size, "item \"%.*s\"", (int)key_size, item + PM_ITEM_HEADER_SIZE);
    return true;
}

static void heap_text(const struct pm_pool *p, const struct sim_pool *pool, uint64_t off,
    char *text, size_t size)
{
    const struct pm_super *s = &p->super;
    uint64_t chunk = off >> s->geometry.chunk_shift, start = chunk << s->geometry.chunk_shift;
    struct pm_chunk_pm d;

    memcpy(&d, pool->visible + s->chunks_off + chunk * sizeof(d), sizeof(d));
    uint32_t block = d.kind == PM_CHUNK_BUCKETS ? PM_BUCKET_SIZE : pm_class_size(d.class_);
    if (d.kind == PM_CHUNK_ROOTS)
        snprintf(text, size, "index root");
    else if ((d.kind != PM_CHUNK_BUCKETS && d.kind != PM_CHUNK_SLAB) || block == 0)
        snprintf(text, size, "chunk %lu", chunk);
    else {
        uint64_t at = start + (off - start) / block * block;
        if (d.kind == PM_CHUNK_BUCKETS)
            snprintf(text, size, "bucket +%#lx", at);
        else if (!key_text(pool->visible + at, block, text, size))
            snprintf(text, size, "block +%#lx", at);
    }
}

void cr_place(
    struct sim *sim, const struct sim_pool *pool, uint64_t off, char *text, size_t size)
{
    const struct pm_pool *p = pool_of(sim, pool);

    if (p == NULL || off >= pool->size) {
        snprintf(text, size, "+%#lx", off);
        return;
    }
    const struct pm_super *s = &p->super;
    if (off < s->slots_off)
        snprintf(text, size, "superblock");
    else if (off < s->retired_off)
        slot_text(s, off, text, size);
    else if (off < s->chunks_off)
        snprintf(text, size, "retired table");
    else if (off < s->rings_off)
        snprintf(text, size, "chunk table");
    else if (off < s->heap_off)
        ring_text(s, off, text, size);
    else
        heap_text(p, pool, off, text, size);
}

void cr_place_word(struct sim *sim, uint64_t word, char *text, size_t size)
{
    (void)sim;
    if (pm_word_locked_bit(word))
        snprintf(text, size, "locked by slot %u (v%lu)", pm_word_slot(word), pm_word_version(word));
    else
        snprintf(text, size, "free (v%lu)", pm_word_version(word));
}
