/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: superblock and attach, the control areas that a pool has before its store: slot headers,
 * tombstones, retired epochs.
 * Input: flags (1), then edits (fz_pool.h). Flag 1: the memory can only be read.
 * Oracle: what is attached to has its areas in order and inside, none over another; a dynamic part
 * that was raised is found again; a table of retired epochs says the same when opened again.
 */
#include "pmem/pm_slot.h"

#include "tests/fuzz/fz_pool.h"

/* Counters this high are refused after the next step: no pool comes there by itself. */
#define COUNTER_END ((UINT64_C(1) << 62) - 2)

static void check_places(const struct pm_pool *pool)
{
    const struct pm_super *s = &pool->super;
    const struct pm_geometry *g = &s->geometry;
    uint64_t end = s->extent[0].off + s->extent[0].size;
    const struct { uint64_t off, size; } area[] = {{pool->super_off, 12288},
        {s->slots_off, (uint64_t)g->slot_count * s->slot_stride},
        {s->retired_off, (uint64_t)g->retired_max * 64}, {s->chunks_off, s->chunk_count * 16},
        {s->rings_off, g->slot_count * s->ring_stride}, {s->heap_off, 0}};

    FZ_NEED(s->pool_size == pool->pm.size && s->extent_count >= 1, "sizes");
    for (uint32_t i = 0; i < s->extent_count; i++)
        FZ_NEED(cn_range_inside(s->extent[i].off, s->extent[i].size, 0, s->pool_size), "extent");
    for (unsigned i = 0; i < CN_ARRAY_SIZE(area); i++) {
        FZ_NEED(cn_range_inside(area[i].off, area[i].size, pool->super_off, end - pool->super_off),
            "area %u at %llu", i, (unsigned long long)area[i].off);
        FZ_NEED(i == 0 || area[i - 1].off + area[i - 1].size <= area[i].off, "areas overlap");
    }
    FZ_NEED(s->slot_stride >= 256 + s->tombstone_max * 16ull + g->window * 8ull, "slot stride");
    FZ_NEED(s->ring_stride >= g->ring_size + 4096, "ring stride");
    FZ_NEED(s->chunk_count << g->chunk_shift >= s->pool_size, "descriptors");
    FZ_NEED(s->tombstone_max >= 2 * g->window && g->window >= 4, "window");
    FZ_NEED(g->ring_size % 64 == 0, "ring size");
}

static void look_at_slots(struct pm_pool *pool)
{
    for (uint32_t i = 0; i < pool->super.geometry.slot_count && i < 64; i++) {
        struct pm_slot slot;
        uint64_t seqs[4];

        if (pm_slot_load(pool, (uint16_t)i, &slot) != 0)
            continue;
        FZ_NEED(slot.state <= PM_SLOT_CLOSED && slot.position_off % 64 == 0, "header");
        FZ_NEED(slot.state != PM_SLOT_CLOSED || (slot.closing_seq >= slot.position_seq &&
                    slot.closing_seq - slot.position_seq <= pool->super.geometry.window),
            "closing sequence");
        FZ_NEED(slot.tombstone_count <= pool->super.tombstone_max, "tombstones");
        if (pm_slot_tombstones(pool, &slot, seqs, 4) > 0)
            FZ_NEED(pm_slot_has_tombstone(pool, &slot, seqs[0]), "a tombstone is not found");
        (void)pm_slot_is_applied(pool, &slot, slot.position_seq + 1);
        if (pool->pm.read_only || slot.generation >= COUNTER_END)
            continue;
        pm_slot_store(pool, &slot);
        pm_slot_publish(pool, &slot);
        FZ_NEED(pm_slot_load(pool, (uint16_t)i, &slot) == 0, "not read again: %s",
            cairn_last_error());
    }
}

/* Order-independent. */
static uint64_t sum(const struct pm_retired_table *table)
{
    const struct pm_retired *r = NULL;
    uint64_t all = pm_retired_free(table);

    while ((r = pm_retired_next(table, r)) != NULL) {
        uint64_t tombstones = 0;

        FZ_NEED(pm_retired_find(table, r->slot, r->epoch) == r, "an epoch twice");
        for (uint64_t seq = 1; seq < 40; seq++)
            tombstones += pm_retired_has_tombstone(table, r, seq * (seq < 20 ? 1 : 1000));
        all += cn_mix64(r->epoch ^ cn_mix64(r->slot ^ cn_mix64(r->closing_seq + tombstones)));
    }
    return all;
}

static void look_at_retired(struct pm_pool *pool)
{
    struct pm_retired_table *table;
    const struct pm_retired *r;
    struct pm_slot slot = {.number = 3, .state = PM_SLOT_CLOSED, .epoch = 77, .nonce = 1};
    uint64_t before;
    bool added = false;

    if (pm_retired_open(pool, &table) != 0)
        return;
    before = sum(table);
    if (!pool->pm.read_only) {
        int rc = pm_retired_find(table, 3, 77) == NULL && slot.number <
                pool->super.geometry.slot_count ? pm_retired_add(table, &slot, 5) : CAIRN_E_LIMIT;

        FZ_NEED(rc == 0 || rc == CAIRN_E_LIMIT, "error %d", rc);
        added = rc == 0;
        if (added)
            pm_retired_remove(table, pm_retired_find(table, 3, 77));
        FZ_NEED(sum(table) == before, "an epoch that came and went has changed the table");
    }
    pm_retired_close(&table);
    if (pm_retired_open(pool, &table) != 0)
        FZ_NEED(false, "not opened again: %s", cairn_last_error());
    FZ_NEED(sum(table) == before, "the table says something else when it is opened again");
    for (r = pm_retired_next(table, NULL); r != NULL && !pool->pm.read_only;
         r = pm_retired_next(table, r))
        pm_retired_remove(table, r);
    pm_retired_close(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    struct fz_pool *p = fz_pool(FZ_BUSY);
    uint8_t flags = fz_u8(&in);
    struct pm_pool pool;
    int rc;

    (void)fz_pool_edit(p, &in);
    fz_pool_protect(p, (flags & 1) != 0);
    rc = pm_attach(&pool, &p->pm, p->super_off);
    FZ_NEED(rc == 0 || rc == CAIRN_E_NOT_A_POOL || rc == CAIRN_E_LAYOUT_VERSION ||
            rc == CAIRN_E_CORRUPT_SUPER || rc == CAIRN_E_POOL_SIZE, "error %d", rc);
    if (rc == 0) {
        check_places(&pool);
        look_at_slots(&pool);
        look_at_retired(&pool);
    }
    if (rc == 0 && !p->pm.read_only && pool.generation < COUNTER_END &&
        pool.incarnation < COUNTER_END && pm_pool_raise_incarnation(&pool) == 0) {
        uint64_t incarnation = pool.incarnation;

        FZ_NEED(pm_attach(&pool, &p->pm, p->super_off) == 0, "lost: %s", cairn_last_error());
        FZ_NEED(pool.incarnation == incarnation && !pool.opened_clean, "the old incarnation");
    }
    fz_pool_protect(p, false);
    return 0;
}
