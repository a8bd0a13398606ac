/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_pool.h: a participant's pool: creation, opening, geometry, superblock.
 *
 * Two layers. pm_format() / pm_attach() work on any mapped memory and are what the harness uses on
 * its images. pm_pool_create() / pm_pool_open() wrap them with libpmemobj (file, tmpfs, fsdax,
 * devdax). One struct pm_pool per open pool, used by one thread at a time.
 */
#ifndef PM_POOL_H
#define PM_POOL_H

#include "pmem/pm.h"
#include "pmem/pm_layout.h"

/* What a new pool is made of; zero fields get the default. */
struct pm_geometry {
    uint32_t chunk_shift;      /* default 21 (2 MiB); 12..21 */
    uint32_t slot_count;       /* default 64; 2..4096; slot 0 included */
    uint32_t window;           /* default 1024; 4..65536 */
    uint64_t ring_size;        /* default 2 MiB - 4 KiB; multiple of 64, at least 4096 */
    uint32_t retired_max;      /* default 16384 */
    uint32_t root_map_max;     /* default 16384 */
    uint32_t bucket_slots;     /* default 56; 2..56 */
    uint32_t fingerprint_bits; /* default 16; 1..16 */
    uint32_t depth0;           /* default 12, or as deep as one chunk of buckets allows */
};
#define PM_GEOMETRY_DEPTH0_ZERO \
    UINT32_MAX /* asks for depth0 0, which as a zero field is the default */

/* The superblock, checked and in host order: what the rest of the code uses. */
struct pm_super {
    struct cn_uuid pool, cluster;
    uint16_t node;
    struct pm_geometry geometry;
    uint32_t slot_stride, tombstone_max;
    uint64_t pool_size, ring_stride;
    uint64_t slots_off, retired_off, chunks_off, chunk_count, rings_off, heap_off;
    uint32_t extent_count;
    struct { uint64_t off, size; } extent[PM_EXTENTS_MAX];
    uint64_t created_s;
};

struct pm_pool {
    struct pm pm;
    struct pm_super super;
    uint64_t super_off;        /* pool offset of the superblock */
    uint32_t crc_seed;         /* crc32c of the pool uuid: the start of every object's crc */
    /* dynamic part as last read or written */
    uint64_t incarnation, view_max, generation;
    uint32_t member_state;
    uint16_t tag;              /* of this incarnation */
    bool opened_clean;         /* the last close was a clean one */
    struct { uint64_t pid, start; struct cn_uuid boot; } last_opener;
    int fd;                    /* of the pool file, -1 for a memory image */
    void *pmemobj;             /* PMEMobjpool, NULL for a memory image */
    char *path;
    bool is_pmem; /* false: stores survive this process, not a power failure (emulated) */
    bool auto_flush; /* caches are in the power-fail domain (eADR), as far as libpmem sees */
};

/* Fill in defaults and check. Errors: CAIRN_E_CONFIG (text names the field). */
CN_MUST_CHECK int pm_geometry_complete(struct pm_geometry *geometry);

/*
 * Make a pool in memory: extents[0] gets the superblock and all fixed areas. Persist points
 * r_format, r_formatted; the superblock's magic is durable last, so a half-made pool is recognised.
 * Assumes: memory of the extents reads as zero (fresh file, or zeroed by the caller).
 * Errors: CAIRN_E_CONFIG (geometry does not fit the size: says what is the minimum).
 */
CN_MUST_CHECK int pm_format(struct pm *pm, const struct pm_extent_pm *extents,
    uint32_t extent_count, const struct pm_geometry *geometry, const struct cn_uuid *cluster,
    uint16_t node);

/*
 * Attach to a formatted pool: check the superblock (static and dynamic) and every range in it.
 * Errors: CAIRN_E_NOT_A_POOL, _LAYOUT_VERSION, _CORRUPT_SUPER, _POOL_SIZE.
 */
CN_MUST_CHECK int pm_attach(struct pm_pool *pool, const struct pm *pm, uint64_t super_off);

/*
 * Create a pool file through libpmemobj. `size` 0 on devdax. A creation that is interrupted leaves
 * a file that opens with CAIRN_E_NOT_A_POOL. Errors: -EEXIST, -ENOSPC and other -errno, those of
 * pm_format().
 */
CN_MUST_CHECK int pm_pool_create(const char *path, uint64_t size,
    const struct pm_geometry *geometry, const struct cn_uuid *cluster, uint16_t node,
    const struct cn_env *env);
/* Whether there is nothing to open yet: no file, or a devdax device whose beginning is zero (it is
 * always there). */
bool pm_pool_is_missing(const char *path);
/* Minimum size of a pool file for a geometry with `heap` bytes of chunks. */
uint64_t pm_pool_size_min(const struct pm_geometry *geometry, uint64_t heap);

enum pm_open_mode {
    PM_OPEN_OWNER,     /* exclusive, read-write (libpmemobj) */
    PM_OPEN_READ_ONLY, /* private read-only mapping of the file; never changes a byte; works while a
                          node has the pool open (then what is read may be in motion) */
};
/*
 * Open an existing pool. OWNER also waits, at most `wait_ms`, until the process that last had it
 * has ended. Errors: -ENOENT and other -errno, CAIRN_E_POOL_BUSY, and those of pm_attach(). The
 * text names the file.
 */
CN_MUST_CHECK int pm_pool_open(const char *path, enum pm_open_mode mode, uint32_t wait_ms,
    const struct cn_env *env, struct pm_pool **ret_pool);
void pm_pool_close(struct pm_pool **pool);

/* Raise the incarnation and note this process as the opener: durable (r_incarnation) on return.
 * Errors: CAIRN_E_AGAIN when tags would repeat before a scrub pass is done. */
CN_MUST_CHECK int pm_pool_raise_incarnation(struct pm_pool *pool);
/* Note a clean close (r_clean). */
void pm_pool_note_clean(struct pm_pool *pool);
/* Persist view_max / member_state as set in *pool. */
void pm_pool_store_dynamic(struct pm_pool *pool, enum cn_step step, bool clean);

static inline uint64_t pm_chunk_size(const struct pm_pool *pool)
{
    return UINT64_C(1) << pool->super.geometry.chunk_shift;
}
/* Ring region (header page included) of a slot. */
static inline uint64_t pm_ring_off(const struct pm_pool *pool, uint32_t slot)
{
    return pool->super.rings_off + (uint64_t)slot * pool->super.ring_stride;
}

#endif
