/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_geometry.c: from a geometry to the places of all fixed areas, and the check that a
 * superblock's places are sound. Pure arithmetic.
 *
 * Areas follow each other without overlap, in the order of pm_layout.h, inside the first extent.
 * Readers check the order, alignments and sizes, not that the places are those this version would
 * choose.
 */
#include "pmem/pm_format.h"

/* Slab chunks a node needs at least: bucket chunk, roots, and something to put items into. */
#define HEAP_CHUNKS_MIN 4u
#define MIB (UINT64_C(1) << 20)
/* libpmemobj: header, lanes, and its zone header; the rest is ours. */
#define POOL_OVERHEAD (8 * MIB)
#define POOL_OVERHEAD_SHIFT 7 /* and its chunk headers, generously */
#define OBJECT_SIZE_MAX UINT64_C(0x3FFDFFFC0)

static int check_field(const char *name, uint64_t value, uint64_t min, uint64_t max)
{
    if (value >= min && value <= max)
        return 0;
    return cn_fail(CAIRN_E_CONFIG, "pool geometry: %s is %llu, allowed is %llu to %llu", name,
        (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

static void fill_defaults(struct pm_geometry *g)
{
    uint32_t map_max, depth_max;

    if (g->chunk_shift == 0)
        g->chunk_shift = 21;
    if (g->slot_count == 0)
        g->slot_count = 64;
    if (g->window == 0)
        g->window = 1024;
    if (g->ring_size == 0)
        g->ring_size = 2 * MIB - PM_RING_HEADER_SIZE;
    if (g->retired_max == 0)
        g->retired_max = 16384;
    if (g->bucket_slots == 0)
        g->bucket_slots = PM_BUCKET_SLOTS;
    if (g->fingerprint_bits == 0)
        g->fingerprint_bits = 16;
    if (g->chunk_shift < 12 || g->chunk_shift > 21)
        return; /* refused next */
    map_max = (uint32_t)(((1u << g->chunk_shift) - PM_INDEX_MAP_OFF) / sizeof(struct le64));
    depth_max = g->chunk_shift - 9; /* 512-byte buckets in a chunk */
    if (g->root_map_max == 0)
        g->root_map_max = map_max < 16384 ? map_max : 16384;
    if (g->depth0 == 0)
        g->depth0 = depth_max < 12 ? depth_max : 12;
    else if (g->depth0 == PM_GEOMETRY_DEPTH0_ZERO)
        g->depth0 = 0;
}

int pm_geometry_check(const struct pm_geometry *g)
{
    int rc = check_field("chunk_shift", g->chunk_shift, 12, 21);

    if (rc == 0)
        rc = check_field("slot_count", g->slot_count, 2, PM_SLOT_COUNT_MAX);
    if (rc == 0)
        rc = check_field("window", g->window, 4, 65536);
    if (rc == 0)
        rc = check_field("ring_size", g->ring_size, 4096, UINT64_C(1) << 32);
    if (rc == 0 && g->ring_size % PM_RECORD_ALIGN != 0)
        rc = cn_fail(CAIRN_E_CONFIG, "pool geometry: ring_size is %llu, not a multiple of 64",
            (unsigned long long)g->ring_size);
    if (rc == 0)
        rc = check_field("retired_max", g->retired_max, 1, 1u << 24);
    if (rc == 0)
        rc = check_field("root_map_max", g->root_map_max, 1,
            ((UINT64_C(1) << g->chunk_shift) - PM_INDEX_MAP_OFF) / sizeof(struct le64));
    if (rc == 0)
        rc = check_field("bucket_slots", g->bucket_slots, 2, PM_BUCKET_SLOTS);
    if (rc == 0)
        rc = check_field("fingerprint_bits", g->fingerprint_bits, 1, 16);
    if (rc == 0)
        rc = check_field("depth0", g->depth0, 0, g->chunk_shift - 9);
    return rc;
}

int pm_geometry_complete(struct pm_geometry *geometry)
{
    fill_defaults(geometry);
    return pm_geometry_check(geometry);
}

void pm_geometry_place(struct pm_super *s)
{
    const struct pm_geometry *g = &s->geometry;
    uint64_t chunk = UINT64_C(1) << g->chunk_shift;

    s->tombstone_max = 2 * g->window;
    s->slot_stride = (uint32_t)cn_align_up(
        PM_SLOT_HEADER_SIZE + s->tombstone_max * (uint64_t)sizeof(struct pm_tombstone_pm) +
            g->window * (uint64_t)sizeof(struct le64),
        PM_LINE);
    s->ring_stride = cn_align_up(PM_RING_HEADER_SIZE + g->ring_size, 4096);
    s->chunk_count = (s->pool_size + chunk - 1) >> g->chunk_shift;
    s->slots_off = s->extent[0].off + PM_SUPER_AREA_SIZE;
    s->retired_off = s->slots_off + (uint64_t)g->slot_count * s->slot_stride;
    s->chunks_off = s->retired_off + (uint64_t)g->retired_max * sizeof(struct pm_retired_pm);
    s->rings_off = cn_align_up(s->chunks_off + s->chunk_count * sizeof(struct pm_chunk_pm), 4096);
    s->heap_off = cn_align_up(s->rings_off + (uint64_t)g->slot_count * s->ring_stride, chunk);
}

uint64_t pm_geometry_extent_min(const struct pm_super *s)
{
    return s->heap_off - s->extent[0].off +
        ((uint64_t)HEAP_CHUNKS_MIN << s->geometry.chunk_shift);
}

static const char *check_extents(const struct pm_super *s)
{
    uint64_t chunk = UINT64_C(1) << s->geometry.chunk_shift;

    if (s->extent_count == 0 || s->extent_count > PM_EXTENTS_MAX)
        return "the number of extents is impossible";
    for (uint32_t i = 0; i < s->extent_count; i++) {
        uint64_t off = s->extent[i].off, size = s->extent[i].size;

        if (off == 0 || size == 0 || off % chunk != 0 || size % chunk != 0)
            return "an extent is not made of chunks";
        if (!cn_range_inside(off, size, 0, s->pool_size))
            return "an extent lies outside of the pool";
        for (uint32_t k = 0; k < i; k++) {
            if (off < s->extent[k].off + s->extent[k].size && s->extent[k].off < off + size)
                return "extents overlap";
        }
    }
    return NULL;
}

/* An area of count x stride from *at on, ending at or before `limit`. Moves *at behind it. */
static bool pass_area(uint64_t *at, uint64_t off, uint64_t count, uint64_t stride, uint64_t limit)
{
    uint64_t size;

    if (__builtin_mul_overflow(count, stride, &size))
        return false;
    if (off < *at || !cn_range_inside(off, size, *at, limit - *at))
        return false;
    *at = off + size;
    return true;
}

const char *pm_geometry_check_places(const struct pm_super *s)
{
    const struct pm_geometry *g = &s->geometry;
    uint64_t chunk = UINT64_C(1) << g->chunk_shift, at, end;
    const char *why = check_extents(s);

    if (why != NULL)
        return why;
    if (s->tombstone_max < 2 * g->window || s->tombstone_max > (1u << 24) ||
        s->slot_stride % PM_LINE != 0 ||
        s->slot_stride < PM_SLOT_HEADER_SIZE +
                s->tombstone_max * (uint64_t)sizeof(struct pm_tombstone_pm) +
                g->window * (uint64_t)sizeof(struct le64))
        return "the slots are too small for their contents";
    if (s->ring_stride % 4096 != 0 || s->ring_stride < PM_RING_HEADER_SIZE + g->ring_size)
        return "the rings are too small for their contents";
    if (s->chunk_count != (s->pool_size >> g->chunk_shift) + (s->pool_size % chunk != 0))
        return "the number of chunks does not fit the size";
    if (s->slots_off % PM_LINE != 0 || s->retired_off % PM_LINE != 0 || s->chunks_off % 16 != 0 ||
        s->rings_off % 4096 != 0 || s->heap_off % chunk != 0)
        return "an area is not aligned";
    at = s->extent[0].off + PM_SUPER_AREA_SIZE;
    end = s->extent[0].off + s->extent[0].size;
    if (at > end || !pass_area(&at, s->slots_off, g->slot_count, s->slot_stride, end) ||
        !pass_area(&at, s->retired_off, g->retired_max, sizeof(struct pm_retired_pm), end) ||
        !pass_area(&at, s->chunks_off, s->chunk_count, sizeof(struct pm_chunk_pm), end) ||
        !pass_area(&at, s->rings_off, g->slot_count, s->ring_stride, end) ||
        !pass_area(&at, s->heap_off, 0, 0, end))
        return "areas overlap or do not fit";
    return NULL;
}

uint64_t pm_pool_size_min(const struct pm_geometry *geometry, uint64_t heap)
{
    struct pm_super s = {.geometry = *geometry, .extent_count = 1};
    uint64_t chunk, need, size;

    if (pm_geometry_complete(&s.geometry) != 0)
        return 0;
    chunk = UINT64_C(1) << s.geometry.chunk_shift;
    heap = cn_max64(cn_align_up(heap, chunk), (uint64_t)HEAP_CHUNKS_MIN << s.geometry.chunk_shift);
    s.extent[0].off = chunk;
    size = heap;
    for (int round = 0; round < 3; round++) { /* the descriptors' area depends on the size */
        s.pool_size = size;
        pm_geometry_place(&s);
        need = s.heap_off - chunk + heap;
        /* Each object loses up to a chunk to alignment, and to libpmemobj's own granularity. */
        size = need + (need / OBJECT_SIZE_MAX + 1) * (chunk + MIB) + POOL_OVERHEAD +
            (need >> POOL_OVERHEAD_SHIFT);
    }
    return cn_align_up(size, MIB);
}
