/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_format.c: making a pool in memory. The superblock's magic is stored and made durable last, on
 * its own: whatever a crash leaves of a half-made pool has no magic.
 */
#include "pmem/pm_format.h"

uint32_t pm_super_dyn_crc(uint32_t crc_seed, const struct pm_super_dyn_pm *dyn)
{
    struct pm_super_dyn_pm copy = *dyn;

    copy.crc = le32_make(0);
    return cn_crc32c(crc_seed, &copy, sizeof(copy));
}

void pm_super_encode(const struct pm_super *s, struct pm_super_pm *ret)
{
    const struct pm_geometry *g = &s->geometry;

    *ret = (struct pm_super_pm){
        .magic = le64_make(PM_SUPER_MAGIC),
        .layout_version = le32_make(PM_LAYOUT_VERSION),
        .pool = s->pool,
        .cluster = s->cluster,
        .node = le32_make(s->node),
        .chunk_shift = le32_make(g->chunk_shift),
        .pool_size = le64_make(s->pool_size),
        .created_s = le64_make(s->created_s),
        .slot_count = le32_make(g->slot_count),
        .slot_stride = le32_make(s->slot_stride),
        .window = le32_make(g->window),
        .tombstone_max = le32_make(s->tombstone_max),
        .ring_size = le64_make(g->ring_size),
        .ring_stride = le64_make(s->ring_stride),
        .retired_max = le32_make(g->retired_max),
        .extent_count = le32_make(s->extent_count),
        .slots_off = le64_make(s->slots_off),
        .retired_off = le64_make(s->retired_off),
        .chunks_off = le64_make(s->chunks_off),
        .chunk_count = le64_make(s->chunk_count),
        .rings_off = le64_make(s->rings_off),
        .heap_off = le64_make(s->heap_off),
        .root_map_max = le32_make(g->root_map_max),
        .bucket_slots = le32_make(g->bucket_slots),
        .fingerprint_bits = le32_make(g->fingerprint_bits),
        .depth0 = le32_make(g->depth0),
    };
    for (uint32_t i = 0; i < s->extent_count; i++) {
        ret->extent[i].off = le64_make(s->extent[i].off);
        ret->extent[i].size = le64_make(s->extent[i].size);
    }
    ret->crc = le32_make(cn_crc32c(0, ret, sizeof(*ret)));
}

static int plan(const struct pm *pm, const struct pm_extent_pm *extents, uint32_t extent_count,
    const struct pm_geometry *geometry, struct pm_super *s)
{
    const char *why;
    int rc;

    if (extent_count == 0 || extent_count > PM_EXTENTS_MAX)
        return cn_fail(CAIRN_E_CONFIG, "a pool has 1 to %u extents, not %u", PM_EXTENTS_MAX,
            extent_count);
    s->geometry = *geometry;
    rc = pm_geometry_complete(&s->geometry);
    if (rc != 0)
        return rc;
    s->pool_size = pm->size;
    s->extent_count = extent_count;
    for (uint32_t i = 0; i < extent_count; i++) {
        s->extent[i].off = le64_get(extents[i].off);
        s->extent[i].size = le64_get(extents[i].size);
    }
    pm_geometry_place(s);
    if (s->extent[0].size < pm_geometry_extent_min(s))
        return cn_fail(CAIRN_E_CONFIG,
            "the pool's first extent has %llu bytes, this geometry needs at least %llu: make the "
            "pool "
            "bigger, or ring_size, slot_count or retired_max smaller",
            (unsigned long long)s->extent[0].size, (unsigned long long)pm_geometry_extent_min(s));
    why = pm_geometry_check_places(s);
    if (why != NULL)
        return cn_fail(CAIRN_E_CONFIG, "pool geometry: %s", why);
    return 0;
}

static void store_dynamic(const struct pm *pm, const struct pm_super *s)
{
    uint32_t seed = cn_crc32c(0, &s->pool, sizeof(s->pool));

    for (uint64_t generation = 1; generation <= 2; generation++) {
        uint64_t off = s->extent[0].off + PM_SUPER_DYN_OFF + (generation & 1) * PM_SUPER_DYN_STRIDE;
        struct pm_super_dyn_pm dyn = {
            .generation = le64_make(generation),
            .member_state = le32_make(PM_MEMBER_FULL),
            .clean = le64_make(1),
        };

        dyn.crc = le32_make(pm_super_dyn_crc(seed, &dyn));
        pm_copy(pm, off, &dyn, sizeof(dyn));
        pm_flush(pm, off, sizeof(dyn));
    }
}

int pm_format(struct pm *pm, const struct pm_extent_pm *extents, uint32_t extent_count,
    const struct pm_geometry *geometry, const struct cn_uuid *cluster, uint16_t node)
{
    struct pm_super s = {.cluster = *cluster, .node = node};
    struct pm_super_pm media;
    uint64_t off;
    int rc;

    if (node == 0)
        return cn_fail(CAIRN_E_CONFIG, "0 is not a node id: use 1 to 65535");
    rc = plan(pm, extents, extent_count, geometry, &s);
    if (rc != 0)
        return rc;
    cn_random(pm->env, &s.pool, sizeof(s.pool));
    s.pool.b[6] = (uint8_t)((s.pool.b[6] & 0x0f) | 0x40); /* a random uuid, RFC 4122 */
    s.pool.b[8] = (uint8_t)((s.pool.b[8] & 0x3f) | 0x80);
    s.created_s = cn_wall_s(pm->env);
    pm_super_encode(&s, &media);

    off = s.extent[0].off;
    pm_copy(pm, off + 8, (const uint8_t *)&media + 8, sizeof(media) - 8);
    pm_flush(pm, off, sizeof(media));
    store_dynamic(pm, &s);
    /* Persist point: all of the pool but its magic. Stopped here: not a pool. */
    pm_fence(pm, CN_STEP_r_format);
    pm_store64(pm, off, PM_SUPER_MAGIC);
    pm_flush(pm, off, 8);
    /* Persist point: the pool is there. */
    pm_fence(pm, CN_STEP_r_formatted);
    return 0;
}
