/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_attach.c: reading the superblock, and its dynamic part: incarnation, opener, view, clean
 * close.
 *
 * The dynamic part has two copies; generation g lies in copy g & 1, so storing never touches the
 * copy that holds. Every change is stored twice, one copy after the other, each durable before the
 * next: a copy that is damaged later never takes the incarnation back.
 */
#include "pmem/pm_format.h"
#include "pmem/pm_object.h"

/* Far from where counters wrap, and more than any pool lives to see. */
#define COUNTER_MAX (UINT64_C(1) << 62)

static bool is_zero(const void *data, size_t size)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

static bool crc_fits(const struct pm_super_pm *media, uint32_t version)
{
    struct pm_super_pm copy = *media;

    copy.crc = le32_make(0);
    copy.layout_version = le32_make(version);
    return cn_crc32c(0, &copy, sizeof(copy)) == le32_get(media->crc);
}

static int check_version(const struct pm_super_pm *media, bool read_only)
{
    uint32_t version = le32_get(media->layout_version);

    if (le64_get(media->magic) != PM_SUPER_MAGIC)
        return cn_fail(CAIRN_E_NOT_A_POOL,
            "there is no superblock: the pool was never finished, or is none; create it again");
    /* A pool of this version whose version field has changed is corrupt, not of another version. */
    if (version != PM_LAYOUT_VERSION && !crc_fits(media, PM_LAYOUT_VERSION))
        return cn_fail(CAIRN_E_LAYOUT_VERSION,
            "the pool has layout version %u, this program knows version %u", version,
            PM_LAYOUT_VERSION);
    if (version != PM_LAYOUT_VERSION || !crc_fits(media, version))
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "the superblock's crc does not fit");
    if ((le64_get(media->incompat) & ~PM_INCOMPAT_KNOWN) != 0)
        return cn_fail(CAIRN_E_LAYOUT_VERSION, "the pool uses unknown features (incompat %#llx)",
            (unsigned long long)le64_get(media->incompat));
    if (!read_only && (le64_get(media->ro_compat) & ~PM_RO_COMPAT_KNOWN) != 0)
        return cn_fail(CAIRN_E_LAYOUT_VERSION,
            "the pool uses features (ro_compat %#llx) with which this program can only read it",
            (unsigned long long)le64_get(media->ro_compat));
    return 0;
}

static void read_fields(const struct pm_super_pm *m, struct pm_super *s)
{
    *s = (struct pm_super){
        .pool = m->pool,
        .cluster = m->cluster,
        .node = (uint16_t)le32_get(m->node),
        .geometry = {
            .chunk_shift = le32_get(m->chunk_shift),
            .slot_count = le32_get(m->slot_count),
            .window = le32_get(m->window),
            .ring_size = le64_get(m->ring_size),
            .retired_max = le32_get(m->retired_max),
            .root_map_max = le32_get(m->root_map_max),
            .bucket_slots = le32_get(m->bucket_slots),
            .fingerprint_bits = le32_get(m->fingerprint_bits),
            .depth0 = le32_get(m->depth0),
        },
        .slot_stride = le32_get(m->slot_stride),
        .tombstone_max = le32_get(m->tombstone_max),
        .pool_size = le64_get(m->pool_size),
        .ring_stride = le64_get(m->ring_stride),
        .slots_off = le64_get(m->slots_off),
        .retired_off = le64_get(m->retired_off),
        .chunks_off = le64_get(m->chunks_off),
        .chunk_count = le64_get(m->chunk_count),
        .rings_off = le64_get(m->rings_off),
        .heap_off = le64_get(m->heap_off),
        .extent_count = le32_get(m->extent_count),
        .created_s = le64_get(m->created_s),
    };
    for (uint32_t i = 0; i < PM_EXTENTS_MAX; i++) {
        s->extent[i].off = le64_get(m->extent[i].off);
        s->extent[i].size = le64_get(m->extent[i].size);
    }
}

int pm_super_decode(const struct pm_super_pm *media, uint64_t super_off, uint64_t size,
    bool read_only, struct pm_super *ret)
{
    struct pm_super s;
    const char *why;
    int rc = check_version(media, read_only);

    if (rc != 0)
        return rc;
    read_fields(media, &s);
    if (s.pool_size != size)
        return cn_fail(CAIRN_E_POOL_SIZE, "the pool was made with %llu bytes and has %llu now",
            (unsigned long long)s.pool_size, (unsigned long long)size);
    if (le32_get(media->node) == 0 || le32_get(media->node) > UINT16_MAX)
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "superblock: no node has the id %u",
            le32_get(media->node));
    if (!is_zero(media->reserved, sizeof(media->reserved)))
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "superblock: reserved bytes are not zero");
    if (pm_geometry_check(&s.geometry) != 0)
        return cn_fail_context(CAIRN_E_CORRUPT_SUPER, "superblock: ");
    why = pm_geometry_check_places(&s);
    if (why != NULL)
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "superblock: %s", why);
    if (s.extent[0].off != super_off)
        return cn_fail(CAIRN_E_CORRUPT_SUPER,
            "superblock: it says that it is at %llu, it was found at %llu",
            (unsigned long long)s.extent[0].off, (unsigned long long)super_off);
    for (uint32_t i = s.extent_count; i < PM_EXTENTS_MAX; i++) {
        if (s.extent[i].off != 0 || s.extent[i].size != 0)
            return cn_fail(CAIRN_E_CORRUPT_SUPER, "superblock: unused extents are not zero");
    }
    *ret = s;
    return 0;
}

/* Read copy `i`; false if it is not valid. */
static bool read_copy(const struct pm_pool *pool, unsigned i, struct pm_super_dyn_pm *dyn)
{
    pm_read(
        &pool->pm, pool->super_off + PM_SUPER_DYN_OFF + i * PM_SUPER_DYN_STRIDE, dyn, sizeof(*dyn));
    return le32_get(dyn->crc) == pm_super_dyn_crc(pool->crc_seed, dyn) &&
        le64_get(dyn->generation) != 0 && (le64_get(dyn->generation) & 1) == i &&
        (le32_get(dyn->member_state) == PM_MEMBER_FULL ||
            le32_get(dyn->member_state) == PM_MEMBER_JOINING) &&
        le64_get(dyn->clean) <= 1 && is_zero(dyn->reserved, sizeof(dyn->reserved));
}

static int load_dynamic(struct pm_pool *pool)
{
    struct pm_super_dyn_pm copy[2];
    const struct pm_super_dyn_pm *dyn = NULL;

    for (unsigned i = 0; i < 2; i++) {
        if (!read_copy(pool, i, &copy[i]))
            continue;
        if (dyn == NULL || le64_get(copy[i].generation) > le64_get(dyn->generation))
            dyn = &copy[i];
    }
    if (dyn == NULL)
        return cn_fail(
            CAIRN_E_CORRUPT_SUPER, "neither copy of the superblock's dynamic part is valid");
    pool->generation = le64_get(dyn->generation);
    pool->incarnation = le64_get(dyn->incarnation);
    if (pool->generation > COUNTER_MAX || pool->incarnation > COUNTER_MAX)
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "superblock: a counter is at its end");
    pool->view_max = le64_get(dyn->view_max);
    pool->member_state = le32_get(dyn->member_state);
    pool->opened_clean = le64_get(dyn->clean) == 1;
    pool->last_opener.pid = le64_get(dyn->opener_pid);
    pool->last_opener.start = le64_get(dyn->opener_start);
    pool->last_opener.boot = dyn->opener_boot;
    pool->tag = pm_tag_of(pool->incarnation);
    return 0;
}

int pm_attach(struct pm_pool *pool, const struct pm *pm, uint64_t super_off)
{
    struct pm_pool p = {.pm = *pm, .super_off = super_off, .fd = -1};
    struct pm_super_pm media;
    int rc;

    if (super_off % 4096 != 0 || !cn_range_inside(super_off, PM_SUPER_AREA_SIZE, 0, pm->size))
        return cn_fail(CAIRN_E_NOT_A_POOL, "there is no room for a superblock at %llu",
            (unsigned long long)super_off);
    pm_read(pm, super_off, &media, sizeof(media));
    rc = pm_super_decode(&media, super_off, pm->size, pm->read_only, &p.super);
    if (rc != 0)
        return rc;
    p.crc_seed = cn_crc32c(0, &p.super.pool, sizeof(p.super.pool));
    rc = load_dynamic(&p);
    if (rc != 0)
        return rc;
    *pool = p;
    return 0;
}

static void store_copy(struct pm_pool *pool, enum cn_step step, bool clean)
{
    struct pm_super_dyn_pm dyn = {
        .generation = le64_make(pool->generation + 1),
        .member_state = le32_make(pool->member_state),
        .incarnation = le64_make(pool->incarnation),
        .view_max = le64_make(pool->view_max),
        .opener_pid = le64_make(pool->last_opener.pid),
        .opener_start = le64_make(pool->last_opener.start),
        .opener_boot = pool->last_opener.boot,
        .clean = le64_make(clean ? 1 : 0),
    };
    uint64_t off = pool->super_off + PM_SUPER_DYN_OFF +
        ((pool->generation + 1) & 1) * PM_SUPER_DYN_STRIDE;

    dyn.crc = le32_make(pm_super_dyn_crc(pool->crc_seed, &dyn));
    pm_copy(&pool->pm, off, &dyn, sizeof(dyn));
    pm_flush(&pool->pm, off, sizeof(dyn));
    /* Persist point: the copy holds from here on; before, the other one does, whatever was kept. */
    pm_fence(&pool->pm, step);
    pool->generation++;
}

void pm_pool_store_dynamic(struct pm_pool *pool, enum cn_step step, bool clean)
{
    CAIRN_ASSERT(pool->generation < UINT64_MAX - 2);
    if (clean)
        memset(&pool->last_opener, 0, sizeof(pool->last_opener));
    store_copy(pool, step, clean);
    store_copy(pool, step, clean);
}

int pm_pool_raise_incarnation(struct pm_pool *pool)
{
    uint64_t done =
        pm_load64(&pool->pm, pool->super_off + PM_SCRUB_OFF + offsetof(struct pm_scrub_pm, done));
    struct pm_opener self = {0};

    if (done > pool->incarnation)
        return cn_fail(CAIRN_E_CORRUPT_SUPER,
            "the scrub says that it is done with incarnation %llu, the pool is at %llu",
            (unsigned long long)done, (unsigned long long)pool->incarnation);
    /* The next tag was last used PM_TAG_COUNT incarnations ago: a lock of then must not come alive.
     */
    if (pool->incarnation + 1 - done > PM_TAG_COUNT - 1)
        return cn_fail(CAIRN_E_AGAIN,
            "lock tags would repeat: let a scrub pass finish (incarnation %llu, scrubbed up to "
            "%llu)",
            (unsigned long long)pool->incarnation, (unsigned long long)done);
    pm_flush(&pool->pm, pool->super_off + PM_SUPER_DYN_OFF, 2 * PM_SUPER_DYN_STRIDE);
    /* Persist point: the copy that was read is durable. After a mere process death it need not be,
     * and then the other one, which is stored next, would be the only one. */
    pm_fence(&pool->pm, CN_STEP_a_found);
    /* A memory image has no opener, so that it is the same in every run. */
    if (pool->pmemobj != NULL)
        pm_opener_self(&self);
    pool->last_opener.pid = self.pid;
    pool->last_opener.start = self.start;
    pool->last_opener.boot = self.boot;
    pool->incarnation++;
    pool->tag = pm_tag_of(pool->incarnation);
    pm_pool_store_dynamic(pool, CN_STEP_r_incarnation, false);
    return 0;
}

void pm_pool_note_clean(struct pm_pool *pool)
{
    pm_pool_store_dynamic(pool, CN_STEP_r_clean, true);
}
