/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_object.c: what a lock word, item, bucket and index root say.
 *
 * An object is accepted when its word is unlocked (or carries an old tag), the version of the word
 * equals the copy in `meta`, and the crc fits. The crc is seeded with the pool and the object's own
 * offset, so a good image in the wrong place never passes, and zeros never do. It covers meta,
 * index and all that follows up to the stated size, and not the word. Nothing of a body is used for
 * an address or a length before the crc has been checked.
 */
#include "pmem/pm_object.h"

#include <inttypes.h>

/* ---- classes ---- */

const uint16_t pm_class_units[PM_CLASS_COUNT] = PM_CLASS_UNITS;

uint32_t pm_class_for(uint32_t key_size, uint32_t value_size)
{
    uint32_t size = pm_item_size(key_size, value_size);

    for (uint32_t c = 0; c < PM_CLASS_COUNT; c++) {
        if (pm_class_units[c] * 64u >= size)
            return c;
    }
    return PM_CLASS_COUNT;
}

/* ---- bucket slots ---- */

uint64_t pm_slot_ref_pack(uint64_t off, uint8_t class_, uint16_t fingerprint)
{
    CAIRN_DASSERT(off % 64 == 0 && off >> 49 == 0 && class_ < 32);
    return off / 64 << 21 | (uint64_t)class_ << 16 | fingerprint;
}

struct pm_slot_ref pm_slot_ref_unpack(uint64_t packed)
{
    return (struct pm_slot_ref){
        .off = (packed >> 21) * 64,
        .class_ = (uint8_t)(packed >> 16 & 0x1f),
        .fingerprint = (uint16_t)packed,
    };
}

/* ---- crc ---- */

static uint64_t get64(const void *bytes, size_t at)
{
    struct le64 v;

    memcpy(&v, (const uint8_t *)bytes + at, sizeof(v));
    return le64_get(v);
}

/* Of the place, meta, and index and what follows. */
CN_HOT
uint32_t pm_object_crc(const void *object, uint32_t size, uint64_t off, uint32_t crc_seed)
{
    const size_t index = offsetof(struct pm_object_pm, index);

    CAIRN_DASSERT(size >= PM_ITEM_HEADER_SIZE);
    return cn_crc32c_behind(crc_seed, off, get64(object, offsetof(struct pm_object_pm, meta)),
        (const uint8_t *)object + index, size - index);
}

static bool is_zero(const void *bytes, size_t size)
{
    const uint8_t *b = bytes;

    for (size_t i = 0; i < size; i++) {
        if (b[i] != 0)
            return false;
    }
    return true;
}

/* ---- items ---- */

/* Fields of an item's header, each read by itself: it has often been written just now, in words,
 * and a copy of all of it would wait until they are in the cache. */
static uint32_t get32(const void *bytes, size_t at)
{
    struct le32 v;

    memcpy(&v, (const uint8_t *)bytes + at, sizeof(v));
    return le32_get(v);
}

static inline uint32_t item_key_size(const void *item)
{
    struct le16 v;

    memcpy(&v, (const uint8_t *)item + offsetof(struct pm_item_pm, key_size), sizeof(v));
    return le16_get(v);
}

static inline uint32_t item_value_size(const void *item)
{
    return get32(item, offsetof(struct pm_item_pm, value_size));
}

/* Kinds, class and sizes of a header make sense; *ret_size: bytes under the crc. */
static inline bool item_shape(const void *item, uint64_t meta, uint32_t *ret_size)
{
    unsigned kind = pm_meta_kind(meta);
    uint32_t class_size = pm_class_size(pm_meta_sub(meta));

    if (class_size == 0)
        return false;
    if (kind == PM_KIND_DEAD || kind == PM_KIND_MOVED) {
        *ret_size = PM_ITEM_HEADER_SIZE;
        return true;
    }
    *ret_size = pm_item_size(item_key_size(item), item_value_size(item));
    return kind == PM_KIND_ITEM && *ret_size <= class_size;
}

/* An accepted item or what is left of one: its crc has been checked. */
static inline void view_accepted(
    const uint8_t *item, unsigned kind, unsigned class_, struct pm_item_view *ret)
{
    uint64_t hash = get64(item, offsetof(struct pm_item_pm, hash));

    ret->kind = kind;
    ret->index = get32(item, offsetof(struct pm_object_pm, index));
    ret->class_ = class_;
    if (CN_LIKELY(kind == PM_KIND_ITEM)) {
        ret->seen = PM_SEEN_OK;
        ret->hash = hash;
        ret->key_size = item_key_size(item);
        ret->value_size = item_value_size(item);
        ret->key = item + PM_ITEM_HEADER_SIZE;
        ret->value = ret->key + cn_align_up(ret->key_size, 8);
        return;
    }
    ret->seen = PM_SEEN_OTHER;
    if (kind == PM_KIND_MOVED)
        ret->moved_to = pm_slot_ref_unpack(hash);
    else
        ret->hash = hash;
}

CN_HOT
void pm_item_look(const void *bytes, uint32_t size, uint64_t off, uint32_t crc_seed, uint16_t tag,
    struct pm_item_view *ret)
{
    const uint8_t *item = bytes;
    uint32_t needed;

    cn_zero(ret, sizeof(*ret));
    if (CN_UNLIKELY(size < PM_ITEM_HEADER_SIZE)) {
        ret->seen = PM_SEEN_SHORT;
        ret->size_needed = PM_ITEM_HEADER_SIZE;
        return;
    }
    uint64_t meta = get64(item, offsetof(struct pm_object_pm, meta));
    uint64_t word = get64(item, offsetof(struct pm_object_pm, word));
    ret->word = word;
    ret->version = pm_word_version(word);
    ret->seen = PM_SEEN_TORN;
    if (CN_UNLIKELY(meta == 0) && is_zero(item + 8, PM_ITEM_HEADER_SIZE - 8))
        ret->seen = PM_SEEN_EMPTY;
    else if (CN_UNLIKELY(pm_word_is_locked(word, tag)))
        ret->seen = PM_SEEN_LOCKED;
    else if (pm_word_version(meta) != pm_word_version(word) || !item_shape(item, meta, &needed))
        return;
    else if (CN_UNLIKELY(needed > size)) {
        ret->seen = PM_SEEN_SHORT;
        ret->size_needed = needed;
    } else if (pm_object_crc(item, needed, off, crc_seed) ==
        get32(item, offsetof(struct pm_object_pm, crc)))
        view_accepted(item, pm_meta_kind(meta), pm_meta_sub(meta), ret);
}

uint32_t pm_item_make(void *ret, uint64_t off, uint32_t crc_seed, uint64_t version, uint32_t class_,
    uint32_t index, uint64_t hash, const void *key, uint32_t key_size, const void *value,
    uint32_t value_size)
{
    struct pm_item_pm item;
    uint32_t size = pm_item_size(key_size, value_size);
    uint8_t *b = ret;

    CAIRN_ASSERT(size <= pm_class_size(class_) && key_size <= UINT16_MAX);
    memset(&item, 0, sizeof(item));
    item.head.meta = le64_make(pm_meta_make(version, PM_KIND_ITEM, class_));
    item.head.index = le32_make(index);
    item.value_size = le32_make(value_size);
    item.key_size = le16_make((uint16_t)key_size);
    item.hash = le64_make(hash);
    memset(b, 0, size);
    memcpy(b + PM_ITEM_HEADER_SIZE, key, key_size);
    if (value_size != 0)
        memcpy(b + PM_ITEM_HEADER_SIZE + cn_align_up(key_size, 8), value, value_size);
    memcpy(b, &item, sizeof(item));
    item.head.crc = le32_make(pm_object_crc(b, size, off, crc_seed));
    memcpy(b, &item, sizeof(item));
    return size;
}

/* ---- buckets ---- */

void pm_bucket_look(
    const void *bytes, uint64_t off, uint32_t crc_seed, uint16_t tag, struct pm_bucket_view *ret)
{
    const uint8_t *b = bytes;
    uint64_t word = get64(b, 0);
    uint64_t meta = get64(b, 8);
    struct le32 crc, index;
    struct le16 count;

    memcpy(&crc, b + offsetof(struct pm_object_pm, crc), sizeof(crc));
    memcpy(&index, b + offsetof(struct pm_object_pm, index), sizeof(index));
    memcpy(&count, b + offsetof(struct pm_bucket_pm, count), sizeof(count));
    *ret = (struct pm_bucket_view){
        .seen = PM_SEEN_TORN,
        .word = word,
        .version = pm_word_version(word),
        .slot = (const struct le64 *)(const void *)(b + offsetof(struct pm_bucket_pm, slot)),
    };
    if (meta == 0 && is_zero(b + 8, PM_BUCKET_SIZE - 8)) {
        ret->seen = PM_SEEN_EMPTY;
        return;
    }
    ret->index = le32_get(index);
    ret->depth = pm_meta_sub(meta);
    ret->number = get64(b, offsetof(struct pm_bucket_pm, number));
    ret->count = le16_get(count);
    ret->body_good = pm_meta_kind(meta) == PM_KIND_BUCKET && ret->depth <= PM_DEPTH_MAX &&
        ret->number >> ret->depth == 0 && ret->count <= PM_BUCKET_SLOTS &&
        pm_object_crc(b, PM_BUCKET_SIZE, off, crc_seed) == le32_get(crc);
    if (pm_word_is_locked(word, tag))
        ret->seen = PM_SEEN_LOCKED;
    else if (ret->body_good && pm_word_version(meta) == ret->version)
        ret->seen = PM_SEEN_OK;
}

/* ---- index roots ---- */

#define ROOT_STATIC_SIZE 128u

uint32_t pm_index_crc(const struct pm_index_pm *root, uint64_t off, uint32_t crc_seed)
{
    struct pm_index_pm copy;
    struct le64 place = le64_make(off);

    memcpy(&copy, root, ROOT_STATIC_SIZE);
    copy.crc = le32_make(0);
    return cn_crc32c(cn_crc32c(crc_seed, &place, sizeof(place)), &copy, ROOT_STATIC_SIZE);
}

int pm_index_look(const void *bytes, uint64_t off, uint32_t crc_seed, struct pm_index *ret)
{
    struct pm_index_pm root;
    struct pm_index index;
    uint64_t grow;

    memcpy(&root, bytes, sizeof(root));
    if (le64_get(root.magic) != PM_INDEX_MAGIC)
        return cn_fail(CAIRN_E_CORRUPT_INDEX, "index root at %#" PRIx64 ": bad magic", off);
    if (le32_get(root.layout_version) != PM_LAYOUT_VERSION)
        return cn_fail(CAIRN_E_LAYOUT_VERSION,
            "index root at %#" PRIx64 ": layout version %u, not %u", off,
            le32_get(root.layout_version), PM_LAYOUT_VERSION);
    if (pm_index_crc(&root, off, crc_seed) != le32_get(root.crc))
        return cn_fail(CAIRN_E_CORRUPT_INDEX, "index root at %#" PRIx64 ": crc does not fit", off);
    index = (struct pm_index){
        .off = off,
        .index = le32_get(root.index),
        .table = le16_get(root.table),
        .shard = le16_get(root.shard),
        .kind = root.kind,
        .depth0 = root.depth0,
        .bucket_slots = root.bucket_slots,
        .fingerprint_bits = root.fingerprint_bits,
        .map_max = le32_get(root.map_max),
        .items = le64_get(root.items),
    };
    memcpy(index.hash_key, root.hash_key, sizeof(index.hash_key));
    if (index.index == 0 || index.kind != 1 || index.depth0 > PM_DEPTH_MAX ||
        index.bucket_slots == 0 || index.bucket_slots > PM_BUCKET_SLOTS ||
        index.fingerprint_bits == 0 || index.fingerprint_bits > 16 || index.map_max == 0 ||
        !is_zero(root.reserved, sizeof(root.reserved)))
        return cn_fail(CAIRN_E_CORRUPT_INDEX, "index root at %#" PRIx64 ": impossible field", off);
    /* The hints are outside the crc: taken if possible, else the start. */
    grow = le64_get(root.grow);
    index.level = (uint32_t)(grow >> 56);
    index.sweep = grow & PM_VERSION_MAX;
    if (index.level < index.depth0 || index.level > PM_DEPTH_MAX ||
        index.sweep >> index.level != 0) {
        index.level = index.depth0;
        index.sweep = 0;
    }
    *ret = index;
    return 0;
}
