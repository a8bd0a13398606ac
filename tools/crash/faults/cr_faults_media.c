/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_media.c: what a medium may do to bytes at rest: F14 a line is gone (what is read of it
 * is a pattern; a load that faults does not get that far), F15 bits flip, F16 a valid thing lies
 * where another one should, F17 something valid of an earlier time lies there.
 *
 * The bytes of a pool are divided into zones by what they are. Small ones are damaged bit by bit
 * and line by line, large ones at drawn places.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_format.h"
#include "pmem/pm_store.h"

#define LINE 64u
#define ZONES_MAX 1024u
#define POISON 0xE5

enum kind { SUPER, DYNAMIC, SCRUB, HEADER, WORDS, RETIRED, DESCRIPTOR, RING_PAGE, RECORD, MARK,
    RING_FREE, ROOT, ROOT_HINTS, BUCKET, ITEM, FREE_BLOCK, KINDS };
static const char *const kind_names[] = {"superblock", "dynamic part, one copy", "scrub progress",
    "slot header, one copy", "slot words and tombstones", "retired epochs", "chunk descriptors",
    "ring header pages", "records not applied", "marks of these", "rest of rings", "index roots",
    "index root hints", "buckets", "items", "dead and free blocks"};

struct zone { enum kind kind; uint64_t off, size; uint32_t node; };
struct map {
    struct zone zone[ZONES_MAX];
    uint32_t count;
};

static void add(struct map *map, enum kind kind, uint32_t node, uint64_t off, uint64_t size)
{
    if (size == 0)
        return;
    CAIRN_ASSERT(map->count < ZONES_MAX);
    map->zone[map->count++] = (struct zone){kind, off, size, node};
}

/* ---- the map of a pool ---- */

struct finder { struct map *map; const struct pm_pool *pool; uint16_t slot; uint32_t node; };

static int on_record(void *arg, const struct pm_record *record)
{
    struct finder *f = arg;
    uint64_t at = pm_slot_log_at(f->pool, f->slot, record->log_off);

    add(f->map, RECORD, f->node, at, 24);
    add(f->map, MARK, f->node, at + 24, 8);
    add(f->map, RECORD, f->node, at + 32, record->size - 32);
    return 0;
}

static void map_slots(struct map *map, struct pm_pool *pool, uint32_t node)
{
    const struct pm_super *s = &pool->super;
    uint8_t *ring = sim_calloc(1, s->geometry.ring_size);

    for (uint16_t i = 0; i < s->geometry.slot_count; i++) {
        uint64_t slot = s->slots_off + i * (uint64_t)s->slot_stride, page = pm_ring_off(pool, i);
        uint32_t first = map->count;
        struct finder finder = {map, pool, i, node};
        struct pm_slot header;
        add(map, HEADER, node, slot, 128);
        add(map, HEADER, node, slot + 128, 128);
        add(map, WORDS, node, slot + 256,
            16 * (uint64_t)s->tombstone_max + 8 * (uint64_t)s->geometry.window);
        add(map, RING_PAGE, node, page, 128);
        pm_slot_snapshot(pool, i, ring);
        if (pm_slot_load(pool, i, &header) == 0 && header.state != PM_SLOT_FREE &&
            pm_slot_scan(pool, &header, ring, on_record, &finder) != 0)
            CAIRN_ASSERT(false);
        uint64_t end = page + RD_RING_HEADER_SIZE;
        for (uint32_t z = first; z < map->count; z++)
            if (map->zone[z].kind == RECORD)
                end = cn_max64(end, map->zone[z].off + map->zone[z].size);
        add(map, RING_FREE, node, end, page + RD_RING_HEADER_SIZE + s->geometry.ring_size - end);
    }
    sim_free(ring);
}

static uint64_t load64(const struct pm_pool *pool, uint64_t off)
{
    uint64_t v;

    memcpy(&v, pool->pm.base + off, 8);
    return le64toh(v);
}

static void map_chunk(struct map *map, const struct pm_pool *pool, uint32_t node, uint64_t chunk,
    const struct pm_chunk_pm *d)
{
    uint64_t size = pm_chunk_size(pool);
    uint32_t step = d->kind == PM_CHUNK_SLAB ? pm_class_size(d->class_) : PM_BUCKET_SIZE;

    if (d->kind == PM_CHUNK_ROOTS) {
        add(map, ROOT, node, chunk, 128);
        add(map, ROOT_HINTS, node, chunk + 128, 16);
        add(map, ROOT, node, chunk + 256, 64);
        return;
    }
    for (uint64_t at = chunk; at + step <= chunk + size; at += step) {
        unsigned kind = pm_meta_kind(load64(pool, at + 8));
        if (d->kind == PM_CHUNK_BUCKETS && kind == PM_KIND_BUCKET)
            add(map, BUCKET, node, at, step);
        else if (d->kind == PM_CHUNK_SLAB)
            add(map, kind == PM_KIND_ITEM ? ITEM : FREE_BLOCK, node, at, step);
    }
}

static void map_pool(struct map *map, const struct cr_stand *stand, uint32_t node)
{
    uint8_t *bytes = cr_stand_copy(stand, node, false);
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) != 0)
        CAIRN_ASSERT(false);
    const struct pm_super *s = &pool.super;
    add(map, SUPER, node, stand->super_off, sizeof(struct pm_super_pm));
    for (uint32_t i = 0; i < 2; i++)
        add(map, DYNAMIC, node, stand->super_off + PM_SUPER_DYN_OFF + i * PM_SUPER_DYN_STRIDE,
            sizeof(struct pm_super_dyn_pm));
    add(map, SCRUB, node, stand->super_off + 8192, sizeof(struct pm_scrub_pm));
    map_slots(map, &pool, node);
    add(map, RETIRED, node, s->retired_off, s->geometry.retired_max * 64u);
    add(map, DESCRIPTOR, node, s->chunks_off, s->chunk_count * sizeof(struct pm_chunk_pm));
    for (uint64_t n = 0; n < s->chunk_count; n++) {
        struct pm_chunk_pm d;
        memcpy(&d, bytes + s->chunks_off + n * sizeof(d), sizeof(d));
        if (d.kind != PM_CHUNK_FREE)
            map_chunk(map, &pool, node, n << s->geometry.chunk_shift, &d);
    }
    sim_free(bytes);
}

/* ---- F14, F15 ---- */

struct pools { uint8_t *bytes[CR_STAND_NODES]; };

static void restore(const struct cr_stand *stand, struct pools *p)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++) {
        if (p->bytes[i] == NULL)
            p->bytes[i] = sim_calloc(1, stand->pool_size);
        memcpy(p->bytes[i], stand->pool[i].bytes, stand->pool_size);
    }
}

static void try_bytes(struct cr_faults *f, struct cr_faults_tally *t, struct pools *p,
    enum kind kind, const char *how)
{
    struct cr_stand_variant v = {.seed = f->options.seed, .quick = true};

    memcpy(v.bytes, p->bytes, sizeof(v.bytes));
    cr_faults_case(f, t, &v, kind == RECORD || kind == MARK, how);
}

/* `number` of the zones' bits or lines. */
static const struct zone *find(
    const struct map *map, enum kind kind, uint64_t number, uint64_t unit, uint64_t *ret_at)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct zone *z = &map->zone[i];
        uint64_t units = (z->size + unit - 1) / unit;
        if (z->kind != kind)
            continue;
        if (number < units) {
            *ret_at = z->off + number * unit;
            return z;
        }
        number -= units;
    }
    return NULL;
}

static uint64_t total(const struct map *map, enum kind kind, uint64_t unit)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < map->count; i++)
        if (map->zone[i].kind == kind)
            sum += (map->zone[i].size + unit - 1) / unit;
    return sum;
}

static void poison_lines(struct cr_faults *f, const struct map *map, struct pools *p)
{
    for (enum kind k = 0; k < KINDS; k++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F14", kind_names[k]);
        uint64_t lines = total(map, k, LINE), most = f->options.exhaustive ? 1200 : 12;
        bool all = lines <= most;
        for (uint64_t i = 0; t != NULL && i < (all ? lines : most); i++) {
            uint64_t at = 0;
            const struct zone *z =
                find(map, k, all ? i : cr_faults_below(f, lines), LINE, &at);
            char how[64];
            if (cr_faults_time_is_up(f))
                return;
            restore(f->stand, p);
            snprintf(how, sizeof(how), "the line at %lu of n%u", at, z->node + 1);
            memset(p->bytes[z->node] + at / LINE * LINE, POISON, LINE);
            try_bytes(f, t, p, k, how);
        }
    }
}

static void flip_bits(struct cr_faults *f, const struct map *map, struct pools *p)
{
    for (enum kind k = 0; k < KINDS; k++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F15", kind_names[k]);
        uint64_t bits = 8 * total(map, k, 1), most = f->options.exhaustive ? 24000 : 24;
        bool all = bits <= most && f->options.exhaustive;
        for (uint64_t i = 0; t != NULL && i < (all ? bits : most); i++) {
            /* All single bits, or one to three at drawn places near each other. */
            uint32_t count = all ? 1 : 1 + cr_faults_below(f, 3);
            uint64_t bit = all ? i : cr_faults_below(f, bits), at = 0;
            const struct zone *z = find(map, k, bit / 8, 1, &at);
            char how[64];
            if (cr_faults_time_is_up(f))
                return;
            restore(f->stand, p);
            snprintf(how, sizeof(how), "%u bits at %lu.%lu of n%u", count, at, bit % 8,
                z->node + 1);
            p->bytes[z->node][at] ^= (uint8_t)(1u << bit % 8);
            for (uint32_t more = 1; more < count; more++) {
                uint64_t other = z->off + cr_faults_below(f, z->size);
                p->bytes[z->node][other] ^= (uint8_t)(1u << cr_faults_below(f, 8));
            }
            try_bytes(f, t, p, k, how);
        }
    }
}

/* Damage that nobody noticed at the start, or ever: the cluster writes and grows over it, and is
 * started again. */
static void flip_and_go_on(struct cr_faults *f, const struct map *map, struct pools *p)
{
    struct cr_faults_tally *t = cr_faults_tally(f, "F15", "any zone, and life goes on");
    uint64_t most = f->options.exhaustive ? 4000 : 32;

    for (uint64_t i = 0; t != NULL && i < most && !cr_faults_time_is_up(f); i++) {
        enum kind k = cr_faults_below(f, KINDS);
        struct cr_stand_variant v = {.seed = f->options.seed + i, .write_back = true, .grow = 24};
        bool record = k == RECORD || k == MARK;
        uint64_t at = 0;
        const struct zone *z = find(map, k, cr_faults_below(f, total(map, k, 1)), 1, &at);
        uint32_t bit = cr_faults_below(f, 8);
        char how[64];
        restore(f->stand, p);
        p->bytes[z->node][at] ^= (uint8_t)(1u << bit);
        memcpy(v.bytes, p->bytes, sizeof(v.bytes));
        snprintf(how, sizeof(how), "%s, bit %lu.%u of n%u", kind_names[k], at, bit, z->node + 1);
        cr_faults_case(f, t, &v, record, how);
        v.grow = 0;
        cr_faults_case(f, t, &v, record, how);
    }
}

/* ---- F16, F17 ---- */

/* The whole of one thing over another one of its kind. */
static void misdirect(struct cr_faults *f, const struct map *map, struct pools *p)
{
    static const enum kind kinds[] = {SUPER, DYNAMIC, HEADER, RECORD, ROOT, BUCKET, ITEM,
        RETIRED, DESCRIPTOR};

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(kinds); i++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F16", kind_names[kinds[i]]);
        uint64_t lines = total(map, kinds[i], 1), most = f->options.exhaustive ? 400 : 12;
        for (uint64_t n = 0; t != NULL && n < most; n++) {
            uint64_t at = 0;
            const struct zone *from = find(map, kinds[i], cr_faults_below(f, lines), 1, &at);
            const struct zone *to = find(map, kinds[i], cr_faults_below(f, lines), 1, &at);
            uint64_t unit = kinds[i] == RETIRED ? 64 : kinds[i] == DESCRIPTOR ? 16 : 0;
            uint64_t a = 0, b = 0, size = cn_min64(from->size, to->size);
            char how[64];
            if (cr_faults_time_is_up(f))
                return;
            if (unit != 0) {
                a = unit * cr_faults_below(f, from->size / unit);
                b = unit * cr_faults_below(f, to->size / unit);
                size = unit;
            }
            restore(f->stand, p);
            snprintf(how, sizeof(how), "%lu bytes from %lu of n%u to %lu of n%u", size,
                from->off + a, from->node + 1, to->off + b, to->node + 1);
            memcpy(p->bytes[to->node] + to->off + b,
                f->stand->pool[from->node].bytes + from->off + a, size);
            try_bytes(f, t, p, kinds[i], how);
        }
    }
}

/* A lost write: what was there before the last records came. */
static void lose_writes(struct cr_faults *f, const struct map *map, struct pools *p)
{
    for (enum kind k = 0; k < KINDS; k++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F17", kind_names[k]);
        uint64_t lines = total(map, k, LINE), most = f->options.exhaustive ? 400 : 12;
        bool all = lines <= most;
        for (uint64_t i = 0; t != NULL && i < (all ? lines : most); i++) {
            uint64_t at = 0;
            const struct zone *z =
                find(map, k, all ? i : cr_faults_below(f, lines), LINE, &at);
            uint64_t size = cn_min64(LINE, z->off + z->size - at);
            const struct cr_stand_pool *pool = &f->stand->pool[z->node];
            char how[64];
            if (cr_faults_time_is_up(f))
                return;
            if (memcmp(pool->bytes + at, pool->earlier + at, size) == 0)
                continue;
            restore(f->stand, p);
            snprintf(how, sizeof(how), "the line at %lu of n%u", at, z->node + 1);
            memcpy(p->bytes[z->node] + at, pool->earlier + at, size);
            try_bytes(f, t, p, k, how);
        }
    }
}

/* What is kept twice is damaged twice: then it must be missed. */
static void damage_both(struct cr_faults *f, const struct map *map, struct pools *p)
{
    static const struct { enum kind kind; const char *what; } twice[] = {
        {DYNAMIC, "dynamic part, both copies"}, {HEADER, "slot header, both copies"}};

    for (uint32_t k = 0; k < CN_ARRAY_SIZE(twice); k++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F15", twice[k].what);
        for (uint32_t i = 0; t != NULL && i + 1 < map->count; i++) {
            const struct zone *one = &map->zone[i], *two = one + 1;
            char how[64];
            if (one->kind != twice[k].kind || two->kind != one->kind || one->node != two->node ||
                one->off + 256 < two->off)
                continue;
            if (cr_faults_time_is_up(f))
                return;
            i++;
            restore(f->stand, p);
            snprintf(how, sizeof(how), "at %lu and %lu of n%u", one->off, two->off, one->node + 1);
            p->bytes[one->node][one->off + cr_faults_below(f, one->size)] ^= 0x10;
            p->bytes[two->node][two->off + cr_faults_below(f, two->size)] ^= 0x10;
            try_bytes(f, t, p, one->kind, how);
        }
    }
}

/* A flush that lied: nothing at all of a record came to the medium, with its mark or without. */
static void lose_records(struct cr_faults *f, const struct map *map, struct pools *p)
{
    for (uint32_t marked = 0; marked < 2; marked++) {
        struct cr_faults_tally *t = cr_faults_tally(
            f, "F17", marked ? "whole records but for their marks" : "whole records");
        for (uint32_t i = 0; t != NULL && i + 2 < map->count; i++) {
            const struct zone *z = &map->zone[i];
            const struct cr_stand_pool *pool = &f->stand->pool[z->node];
            char how[64];
            if (z[0].kind != RECORD || z[1].kind != MARK || z[2].kind != RECORD)
                continue;
            if (cr_faults_time_is_up(f))
                return;
            restore(f->stand, p);
            snprintf(how, sizeof(how), "the record at %lu of n%u", z->off, z->node + 1);
            for (uint32_t part = 0; part < 3; part++)
                if (part != 1 || !marked)
                    memcpy(p->bytes[z->node] + z[part].off, pool->earlier + z[part].off,
                        z[part].size);
            try_bytes(f, t, p, RECORD, how);
        }
    }
}

void cr_faults_media(struct cr_faults *f)
{
    struct map *map = sim_calloc(1, sizeof(*map));
    struct pools p = {{NULL}};

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        map_pool(map, f->stand, i);
    poison_lines(f, map, &p);
    flip_bits(f, map, &p);
    misdirect(f, map, &p);
    damage_both(f, map, &p);
    flip_and_go_on(f, map, &p);
    lose_writes(f, map, &p);
    lose_records(f, map, &p);
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_free(p.bytes[i]);
    sim_free(map);
}
