/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_pool.c: see fz_pool.h. */
#include "tests/fuzz/fz_pool.h"

#include <sys/mman.h>

#include "pmem/pm_format.h"
#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

#define OBJECTS_MAX 512u
#define EDITS_MAX 64u
#define STEPS 900u
#define SEED 11u

struct object {
    uint64_t off;
    uint32_t size;
    uint64_t log_off; /* records */
    uint16_t slot;
};
struct objects {
    struct object list[OBJECTS_MAX];
    uint32_t count;
};

struct image {
    uint8_t *bytes;
    struct pm_pool good;
    struct objects objects[FZ_REGION_COUNT];
    struct pm_slot slots[8]; /* their headers */
};

static struct fz_pool the_pool;
static struct image images[FZ_IMAGE_COUNT];
static struct image *image; /* in use */
static uint64_t the_time;
static struct cn_env env;

/* ---- environment: time stands still ---- */

static uint64_t now_ns(void *arg CN_UNUSED)
{
    return the_time += 1000;
}

static uint64_t wall_s(void *arg CN_UNUSED)
{
    return 2000000;
}

static void fill_random(void *arg CN_UNUSED, void *buf, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(i * 37 + 11);
}

static void flush_nothing(const void *addr CN_UNUSED, size_t size CN_UNUSED)
{
}

static void drain_nothing(void)
{
}

int fz_pool_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct fz_pool *p = arg;

    FZ_NEED(off % 8 == 0 && off < p->size, "compare-and-swap at %llu", (unsigned long long)off);
    *ret_old = pm_load64(&p->pm, off);
    if (*ret_old == expected)
        pm_store64(&p->pm, off, desired);
    return 0;
}

/* ---- what lies where ---- */

static void note(enum fz_region region, uint64_t off, uint64_t size)
{
    struct objects *o = &image->objects[region];

    if (o->count < OBJECTS_MAX)
        o->list[o->count++] = (struct object){.off = off, .size = (uint32_t)size};
}

static void note_many(enum fz_region region, uint64_t off, uint64_t size, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        note(region, off + i * size, size);
}

static int note_record(void *arg, const struct pm_record *record)
{
    const struct pm_slot *slot = arg;
    struct objects *all = &image->objects[FZ_RECORD];

    note(FZ_RECORD, pm_slot_log_at(&image->good, slot->number, record->log_off), record->size);
    all->list[all->count - 1].log_off = record->log_off;
    all->list[all->count - 1].slot = slot->number;
    return 0;
}

static void note_rings(void)
{
    const struct pm_pool *pool = &image->good;
    uint64_t size = pool->super.geometry.ring_size;
    void *ring = aligned_alloc(64, size);

    CAIRN_ASSERT(ring != NULL && pool->super.geometry.slot_count <= CN_ARRAY_SIZE(image->slots));
    for (uint16_t i = 0; i < pool->super.geometry.slot_count; i++) {
        note(FZ_RING, pm_slot_log_at(pool, i, 0), size);
        if (pm_slot_load(pool, i, &image->slots[i]) != 0)
            CAIRN_ASSERT(false);
        pm_slot_snapshot(pool, i, ring);
        if (pm_slot_scan(pool, &image->slots[i], ring, note_record, &image->slots[i]) != 0)
            CAIRN_ASSERT(false);
    }
    free(ring);
}

static void note_chunk(const struct pm_chunks *c, uint32_t n)
{
    uint64_t off = pm_chunk_off(c, n);
    const struct pm_chunk *chunk = &c->chunk[n];

    if (chunk->kind == PM_CHUNK_BUCKETS)
        note_many(FZ_BUCKET, off, PM_BUCKET_SIZE, 4); /* most of the others are not born */
    if (chunk->kind != PM_CHUNK_SLAB)
        return;
    for (uint32_t i = 0; i < pm_chunk_blocks(c, chunk->class_); i++) {
        uint64_t at = off + (uint64_t)i * pm_class_size(chunk->class_);

        if (pm_load64(&the_pool.pm, at + offsetof(struct pm_object_pm, meta)) != 0)
            note(FZ_ITEM, at, pm_class_size(chunk->class_));
    }
}

static void note_all(void)
{
    const struct pm_super *s = &image->good.super;
    struct pm_chunks c;

    note(FZ_SUPER, the_pool.super_off, sizeof(struct pm_super_pm));
    for (unsigned i = 0; i < 2; i++)
        note(FZ_DYNAMIC, the_pool.super_off + PM_SUPER_DYN_OFF + i * PM_SUPER_DYN_STRIDE,
            sizeof(struct pm_super_dyn_pm));
    note(FZ_SCRUB, the_pool.super_off + PM_SCRUB_OFF, sizeof(struct pm_scrub_pm));
    for (uint32_t i = 0; i < s->geometry.slot_count; i++) {
        uint64_t off = s->slots_off + (uint64_t)i * s->slot_stride;

        note_many(FZ_SLOT_HEADER, off, PM_SLOT_COPY_STRIDE, 2);
        note(FZ_SLOT_WORDS, off + PM_SLOT_HEADER_SIZE, s->slot_stride - PM_SLOT_HEADER_SIZE);
    }
    note_many(FZ_RETIRED, s->retired_off, sizeof(struct pm_retired_pm), s->geometry.retired_max);
    note_many(FZ_CHUNK, s->chunks_off, sizeof(struct pm_chunk_pm), s->chunk_count);
    note(FZ_ANYWHERE, 0, the_pool.size);
    if (pm_chunks_load(&c, &image->good, true) != 0)
        CAIRN_ASSERT(false);
    for (uint32_t i = 0; i < c.root_count; i++)
        note(FZ_ROOT, c.root[i]->index.off, PM_INDEX_MAP_OFF + 64);
    for (uint32_t n = 0; n < c.count; n++)
        note_chunk(&c, n);
    pm_chunks_unload(&c);
    note_rings();
}

/* ---- making ---- */

/* Two epochs that have ended, one of them with tombstones. */
static void retire_some(struct ts_pool *t)
{
    struct pm_retired_table *table;
    struct pm_slot slot = {.number = 1, .state = PM_SLOT_CLOSED, .epoch = 1000, .nonce = 5,
        .owner = fz_session_uuid, .position_seq = 9, .closing_seq = 9};
    struct pm_slot other;

    if (pm_retired_open(&t->pool, &table) != 0 || pm_retired_add(table, &slot, 1999999) != 0 ||
        pm_slot_load(&t->pool, 2, &other) != 0)
        CAIRN_ASSERT(false);
    slot = other;
    slot.state = PM_SLOT_CLOSED;
    slot.epoch = 1001;
    slot.position_seq = slot.closing_seq = 12;
    for (uint64_t seq = 2; seq < 9; seq++) {
        if (pm_slot_add_tombstone(&t->pool, &slot, seq * 1000) != 0)
            CAIRN_ASSERT(false);
    }
    if (pm_retired_add(table, &slot, 1999999) != 0)
        CAIRN_ASSERT(false);
    pm_retired_close(&table);
}

/* Everything decided and passed by; then one transaction per slot that is logged, no more. Keys are
 * tried until there are two whose buckets and items nobody holds. */
static void calm_down(struct ts_store *s)
{
    ts_store_drain(s);
    for (uint32_t i = 1; i <= s->slots; i++) {
        struct pm_slot *slot = &s->slot[i].slot;
        int rc = -1;

        slot->position_seq = s->slot[i].seq;
        slot->position_off = s->slot[i].tail;
        pm_slot_store(&s->t->pool, slot);
        for (uint32_t tries = 0; rc != 0; tries++) {
            struct ts_write w[2] = {
                {.key = tries % s->keys, .value = {true, ++s->values, 40 * i}},
                {.key = (tries + 1 + tries / s->keys) % s->keys,
                    .value = {i != 2, ++s->values, 7}}};

            CAIRN_ASSERT(tries < s->keys * s->keys);
            rc = w[0].key == w[1].key ? -1 : ts_store_begin(s, i, w, 2);
            (void)pm_growth_step(s->s, 8);
        }
        ts_store_advance(s, i);
        CAIRN_ASSERT(s->slot[i].phase == TS_LOGGED);
    }
}

static void make(enum fz_image which)
{
    struct ts_store *s = ts_store_new(NULL, 0, SEED);
    struct ts_pool *t = s->t;

    image = &images[which];
    s->keys = 24;
    for (uint32_t i = 0; i < STEPS; i++)
        ts_store_step(s);
    if (which == FZ_CALM)
        calm_down(s);
    retire_some(t);
    if (the_pool.pm.base == NULL) {
        the_pool.size = t->size;
        the_pool.super_off = t->extent_off;
        env = (struct cn_env){.now_ns = now_ns, .wall_s = wall_s, .random = fill_random};
        the_pool.pm = (struct pm){.base = fz_guard_new(t->size), .size = t->size,
            .flush_lines = flush_nothing, .drain = drain_nothing, .env = &env};
    }
    image->bytes = malloc(t->size);
    CAIRN_ASSERT(image->bytes != NULL && the_pool.size == t->size);
    memcpy(image->bytes, t->visible, t->size);
    ts_store_delete(&s);
    memcpy(the_pool.pm.base, image->bytes, the_pool.size);
    if (pm_attach(&image->good, &the_pool.pm, the_pool.super_off) != 0)
        CAIRN_ASSERT(false);
    note_all();
}

struct fz_pool *fz_pool(enum fz_image which)
{
    if (images[which].bytes == NULL)
        make(which);
    image = &images[which];
    the_pool.good = &image->good;
    the_time = 0;
    memcpy(the_pool.pm.base, image->bytes, the_pool.size);
    return &the_pool;
}

void fz_pool_protect(struct fz_pool *p, bool read_only)
{
    p->pm.read_only = read_only;
    if (mprotect(p->pm.base, p->size, read_only ? PROT_READ : PROT_READ | PROT_WRITE) != 0)
        CAIRN_ASSERT(false);
}

void fz_pool_advance(uint64_t ns)
{
    the_time += ns;
}

const struct pm_record_pm *fz_pool_record(uint32_t index, uint32_t *ret_size)
{
    const struct objects *all = &image->objects[FZ_RECORD];
    const struct object *o = &all->list[index % all->count];

    *ret_size = o->size;
    return (const void *)(image->bytes + o->off);
}

uint32_t fz_pool_count(struct fz_pool *p CN_UNUSED, enum fz_region region)
{
    return image->objects[region].count;
}

uint64_t fz_pool_place(
    struct fz_pool *p CN_UNUSED, enum fz_region region, uint32_t index, uint32_t *ret_size)
{
    const struct object *o = &image->objects[region].list[index % image->objects[region].count];

    *ret_size = o->size;
    return o->off;
}

/* ---- mending ---- */

static void put_crc(uint8_t *at, size_t field, uint32_t crc)
{
    struct le32 v = le32_make(crc);

    memcpy(at + field, &v, sizeof(v));
}

/* crc of a struct with its crc field zero, seeded with a number. */
static void mend_numbered(uint8_t *at, size_t size, size_t field, uint32_t number)
{
    struct le32 n = le32_make(number);

    put_crc(at, field, 0);
    put_crc(at, field,
        cn_crc32c(cn_crc32c(image->good.crc_seed, &n, sizeof(n)), at, size));
}

static void mend_object(uint8_t *at, uint64_t off, bool item)
{
    struct pm_item_pm head;
    uint64_t size = PM_BUCKET_SIZE;

    memcpy(&head, at, sizeof(head));
    if (item) {
        size = PM_ITEM_HEADER_SIZE;
        if (pm_meta_kind(le64_get(head.head.meta)) == PM_KIND_ITEM)
            size = pm_item_size(le16_get(head.key_size), le32_get(head.value_size));
    }
    if (size > the_pool.size - off)
        return;
    put_crc(at, offsetof(struct pm_object_pm, crc),
        pm_object_crc(at, (uint32_t)size, off, image->good.crc_seed));
}

static void mend_record(uint8_t *at, const struct object *o)
{
    struct pm_place place = pm_slot_place(&image->good, &image->slots[o->slot], o->log_off);
    uint64_t ring = image->good.super.geometry.ring_size;
    uint32_t size = pm_record_peek(at, ring - o->log_off % ring);

    if (size == 0)
        return;
    put_crc(at, offsetof(struct pm_record_pm, crc), FZ_MEND_RIGHT);
    fz_mend_record(at, size, &place, ring);
}

/* A tombstone's check, and the state of its sequence, at any 16 bytes. */
static void mend_words(uint8_t *at, uint32_t in_object, uint32_t slot)
{
    struct le64 seq, check;

    at += in_object / 16 * 16;
    memcpy(&seq, at, 8);
    check = le64_make(pm_word_value(image->slots[slot].nonce, le64_get(seq), PM_WORD_TOMBSTONE));
    memcpy(at + 8, &check, 8);
}

static void mend(enum fz_region region, uint32_t index, uint32_t at_byte)
{
    const struct object *o = &image->objects[region].list[index];
    uint8_t *at = the_pool.pm.base + o->off;
    struct pm_chunk_pm d;

    switch (region) {
    case FZ_SUPER:
        put_crc(at, offsetof(struct pm_super_pm, crc), 0);
        put_crc(at, offsetof(struct pm_super_pm, crc), cn_crc32c(0, at, o->size));
        break;
    case FZ_DYNAMIC:
        put_crc(at, offsetof(struct pm_super_dyn_pm, crc),
            pm_super_dyn_crc(image->good.crc_seed, (const void *)at));
        break;
    case FZ_SLOT_HEADER:
        mend_numbered(at, o->size, offsetof(struct pm_slot_pm, crc), index / 2);
        break;
    case FZ_SLOT_WORDS: mend_words(at, at_byte, index); break;
    case FZ_RETIRED: mend_numbered(at, o->size, offsetof(struct pm_retired_pm, crc), index); break;
    case FZ_CHUNK:
        memcpy(&d, at, sizeof(d));
        put_crc(at, offsetof(struct pm_chunk_pm, crc),
            pm_chunk_crc(&d, index, image->good.crc_seed));
        break;
    case FZ_ROOT:
        put_crc(at, offsetof(struct pm_index_pm, crc),
            pm_index_crc((const void *)at, o->off, image->good.crc_seed));
        break;
    case FZ_BUCKET:
    case FZ_ITEM: mend_object(at, o->off, region == FZ_ITEM); break;
    case FZ_RECORD: mend_record(at, o); break;
    default: break;
    }
}

/* ---- edits ---- */

static uint64_t new_value(uint64_t old, unsigned mode, uint64_t value)
{
    enum fz_region region;

    switch (mode) {
    case FZ_SET: return value;
    case FZ_ADD: return old + value;
    case FZ_XOR: return old ^ value;
    case FZ_INTERESTING: return fz_interesting((uint8_t)value);
    default:
        region = (value & 0xff) % FZ_REGION_COUNT;
        if (image->objects[region].count == 0)
            return old;
        return image->objects[region]
                   .list[(value >> 8 & 0xffff) % image->objects[region].count].off +
            (value >> 24 & 0xffff);
    }
}

static void edit(struct fz_input *in, struct fz_edits *done)
{
    uint8_t what = fz_u8(in), index8 = fz_u8(in);
    uint32_t off = fz_u16(in), width = 1u << (what >> 5 & 3);
    unsigned mode = fz_u8(in) % FZ_MODE_COUNT;
    uint64_t value = fz_u32(in) | (uint64_t)fz_u16(in) << 32 | (uint64_t)fz_u8(in) << 48, word = 0;
    enum fz_region region = (what & 15) % FZ_REGION_COUNT;
    const struct objects *all = &image->objects[region];
    uint32_t index;
    uint8_t *at;

    if (all->count == 0)
        return;
    index = index8 % all->count;
    at = the_pool.pm.base + all->list[index].off;
    if (region == FZ_ANYWHERE)
        off = (uint32_t)(((uint64_t)index8 << 16 | off) % (the_pool.size - 8));
    off %= all->list[index].size - (width - 1);
    if ((what & 0x80) != 0)
        off = off / width * width;
    if (mode == FZ_COPY) {
        const struct object *from = &all->list[value % all->count];
        memmove(at, the_pool.pm.base + from->off, cn_min64(from->size, all->list[index].size));
    } else {
        memcpy(&word, at + off, width);
        word = htole64(new_value(le64toh(word), mode, value));
        memcpy(at + off, &word, width);
    }
    if ((what & 0x10) != 0)
        mend(region, index, off);
    done->count++;
    done->only_by_peers = done->only_by_peers &&
        ((region == FZ_RECORD && all->list[index].slot != 0) || (region == FZ_RING && index != 0));
}

struct fz_edits fz_pool_edit(struct fz_pool *p CN_UNUSED, struct fz_input *in)
{
    struct fz_edits done = {.count = 0, .only_by_peers = true};

    while (in->left >= FZ_EDIT_SIZE && done.count < EDITS_MAX)
        edit(in, &done);
    return done;
}
