/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: what coordinators read of items, buckets and index roots (pm_object.c).
 * Input: kind (1), flags (1), then the bytes. Flag 1: the crc is mended; flag 2: at the beginning
 * of a page; flag 4: less is read than the object has.
 * Oracle: what is accepted is unlocked, agrees with its copy, has the crc that docs/media-format.md
 * says, and lies inside the bytes; an item made again from its view has the same bytes.
 */
#include "pmem/pm_object.h"

#include "tests/fuzz/fz_common.h"
#include "tests/fuzz/fz_ref.h"

#define OFF UINT64_C(0x40000)
#define TAG 5u
#define BYTES_MAX (80u * 1024)

static uint32_t seed(void)
{
    return ref_crc32c(0, fz_pool_uuid.b, 16);
}

/* Over offset, meta, index and what follows them up to `size`. */
static uint32_t ref_crc(const uint8_t *b, size_t size)
{
    const uint64_t off = htole64(OFF);
    uint32_t crc = ref_crc32c(seed(), (const uint8_t *)&off, 8);

    crc = ref_crc32c(crc, b + 8, 8);
    return ref_crc32c(crc, b + 20, size - 20);
}

static uint64_t word_at(const uint8_t *b, size_t at)
{
    struct le64 v;

    memcpy(&v, b + at, 8);
    return le64_get(v);
}

static uint32_t half_at(const uint8_t *b, size_t at)
{
    struct le32 v;

    memcpy(&v, b + at, 4);
    return le32_get(v);
}

static void accepted(const uint8_t *b, size_t size, uint64_t version)
{
    FZ_NEED(!pm_word_is_locked(word_at(b, 0), TAG), "accepted, and locked");
    FZ_NEED(version == (word_at(b, 0) & PM_VERSION_MAX) &&
            version == (word_at(b, 8) & PM_VERSION_MAX), "accepted, and the copy differs");
    FZ_NEED(half_at(b, 16) == ref_crc(b, size), "accepted, and the crc does not fit");
}

static void try_item(const uint8_t *b, uint32_t size)
{
    static uint8_t again[BYTES_MAX];
    struct pm_item_view v;
    uint32_t n;

    pm_item_look(b, size, OFF, seed(), TAG, &v);
    FZ_NEED(v.seen != PM_SEEN_SHORT || v.size_needed > size, "short, and it is all there");
    if (v.seen == PM_SEEN_OTHER && (v.kind == PM_KIND_DEAD || v.kind == PM_KIND_MOVED))
        accepted(b, PM_ITEM_HEADER_SIZE, v.version);
    if (v.seen != PM_SEEN_OK)
        return;
    n = pm_item_size(v.key_size, v.value_size);
    FZ_NEED(n <= size && n <= pm_class_size(v.class_), "%u bytes of %u", n, size);
    accepted(b, n, v.version);
    FZ_NEED(v.key >= b && v.key + v.key_size <= b + size && v.value >= b &&
            v.value + v.value_size <= b + size, "key or value outside");
    memset(again, 0, n);
    FZ_NEED(pm_item_make(again, OFF, seed(), v.version, v.class_, v.index, v.hash, v.key,
                v.key_size, v.value, v.value_size) == n, "size");
    FZ_NEED(pm_meta_kind(word_at(b, 8)) == PM_KIND_ITEM, "kind");
    /* Flags of meta and the key's padding are free. */
    FZ_NEED(memcmp(again + PM_ITEM_HEADER_SIZE, b + PM_ITEM_HEADER_SIZE, v.key_size) == 0, "key");
}

static void try_bucket(const uint8_t *b)
{
    struct pm_bucket_view v;

    pm_bucket_look(b, OFF, seed(), TAG, &v);
    FZ_NEED(v.seen <= PM_SEEN_OTHER, "answer %d", (int)v.seen);
    if (v.body_good)
        FZ_NEED(half_at(b, 16) == ref_crc(b, PM_BUCKET_SIZE), "good, and the crc does not fit");
    if (v.seen != PM_SEEN_OK)
        return;
    accepted(b, PM_BUCKET_SIZE, v.version);
    FZ_NEED(v.depth <= PM_DEPTH_MAX && v.number >> v.depth == 0, "number %llu of depth %u",
        (unsigned long long)v.number, v.depth);
    FZ_NEED(v.count <= PM_BUCKET_SLOTS, "%u slots", v.count);
    FZ_NEED((const uint8_t *)v.slot == b + 64, "slots elsewhere");
    for (uint32_t i = 0; i < PM_BUCKET_SLOTS; i++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(v.slot[i]));

        if (ref.class_ < 32 && ref.off >> 49 == 0)
            FZ_NEED(pm_slot_ref_pack(ref.off, ref.class_, ref.fingerprint) == le64_get(v.slot[i]),
                "another slot");
    }
}

static void try_root(const uint8_t *b)
{
    struct pm_index v;

    if (pm_index_look(b, OFF, seed(), &v) != 0)
        return;
    FZ_NEED(v.index != 0 && v.bucket_slots >= 1 && v.bucket_slots <= PM_BUCKET_SLOTS, "root");
    FZ_NEED(v.fingerprint_bits >= 1 && v.fingerprint_bits <= 16 && v.map_max >= 1, "root");
    FZ_NEED(v.level <= 64 && v.sweep <= PM_VERSION_MAX, "hints: level %u", v.level);
    (void)pm_index_guess(UINT64_MAX, v.level, v.sweep);
    (void)pm_index_hash(&v, "key", 3);
}

static void mend(uint8_t kind, uint8_t *b, uint32_t size)
{
    struct le32 crc;
    struct pm_item_pm head;
    uint32_t n = size;

    memcpy(&head, b, sizeof(head));
    if (kind == 0) {
        n = pm_item_size(le16_get(head.key_size), le32_get(head.value_size));
        if (pm_meta_kind(le64_get(head.head.meta)) != PM_KIND_ITEM || n > size)
            n = PM_ITEM_HEADER_SIZE;
    }
    if (kind == 2)
        crc = le32_make(pm_index_crc((const void *)b, OFF, seed()));
    else
        crc = le32_make(ref_crc(b, n));
    memcpy(b + (kind == 2 ? 12 : 16), &crc, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    uint8_t kind = fz_u8(&in) % 3, flags = fz_u8(&in);
    uint32_t n = kind == 1 ? PM_BUCKET_SIZE : kind == 2 ? PM_INDEX_MAP_OFF
                                            : (uint32_t)cn_min64(in.left, BYTES_MAX);
    uint8_t *b = fz_guard_begin(1, NULL, n);

    memcpy(b, in.at, cn_min64(in.left, n));
    if ((flags & 1) != 0 && n >= PM_ITEM_HEADER_SIZE)
        mend(kind, b, n);
    if (kind == 0 && (flags & 4) != 0)
        n /= 2;
    if ((flags & 2) == 0)
        b = fz_guard_end(0, b, kind == 0 ? n / 8 * 8 : n);
    if (kind == 0)
        try_item(b, (flags & 2) == 0 ? n / 8 * 8 : n);
    else if (kind == 1)
        try_bucket(b);
    else
        try_root(b);
    return 0;
}
