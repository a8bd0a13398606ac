/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_object.h: what a lock word, item, bucket and index root say. Pure functions over bytes that
 * were read (by RDMA or locally); used by coordinators, apply, growth, scrub and fsck alike. Bytes
 * are hostile: nothing is used before it is checked, and the answer is an enum, never an assertion.
 */
#ifndef PM_OBJECT_H
#define PM_OBJECT_H

#include "pmem/pm_layout.h"

/* ---- lock words ---- */

static inline bool pm_word_locked_bit(uint64_t word) { return word >> 63 != 0; }
static inline uint16_t pm_word_tag(uint64_t word) { return (uint16_t)(word >> 52 & 0x7ff); }
static inline uint16_t pm_word_slot(uint64_t word) { return (uint16_t)(word >> 40 & 0xfff); }
static inline uint64_t pm_word_version(uint64_t word) { return word & PM_VERSION_MAX; }
static inline uint64_t pm_word_make_locked(uint16_t tag, uint16_t slot, uint64_t version)
{
    return UINT64_C(1) << 63 | (uint64_t)(tag & 0x7ff) << 52 | (uint64_t)(slot & 0xfff) << 40 |
        (version & PM_VERSION_MAX);
}
/* Locked in the incarnation of `tag`; an older tag counts as unlocked. */
static inline bool pm_word_is_locked(uint64_t word, uint16_t tag)
{
    return pm_word_locked_bit(word) && pm_word_tag(word) == tag;
}
static inline uint16_t pm_tag_of(uint64_t incarnation)
{
    return (uint16_t)(1 + incarnation % PM_TAG_COUNT);
}

/* ---- meta ---- */
static inline uint64_t pm_meta_make(uint64_t version, unsigned kind, unsigned sub)
{
    return (version & PM_VERSION_MAX) | (uint64_t)(kind & 0xff) << 40 |
        (uint64_t)(sub & 0xff) << 48;
}
static inline unsigned pm_meta_kind(uint64_t meta) { return (unsigned)(meta >> 40 & 0xff); }
static inline unsigned pm_meta_sub(uint64_t meta) { return (unsigned)(meta >> 48 & 0xff); }

/* ---- classes ---- */
extern const uint16_t pm_class_units[PM_CLASS_COUNT]; /* of 64 bytes */
static inline uint32_t pm_class_size(uint32_t class_) /* bytes; 0 for an invalid class */
{
    return class_ < PM_CLASS_COUNT ? pm_class_units[class_] * 64u : 0;
}
/* Smallest class for an item; PM_CLASS_COUNT when none fits. */
uint32_t pm_class_for(uint32_t key_size, uint32_t value_size);
static inline uint32_t pm_item_size(uint32_t key_size, uint32_t value_size)
{ /* header + padded key + value */
    uint64_t size = PM_ITEM_HEADER_SIZE + cn_align_up(key_size, 8) + value_size;

    return size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
}

/* ---- bucket slots ---- */
struct pm_slot_ref { uint64_t off; uint8_t class_; uint16_t fingerprint; };
uint64_t pm_slot_ref_pack(uint64_t off, uint8_t class_, uint16_t fingerprint);
struct pm_slot_ref pm_slot_ref_unpack(uint64_t packed);
static inline uint16_t pm_fingerprint(uint64_t hash, uint32_t bits)
{
    return (uint16_t)(hash >> 48 & ((1u << bits) - 1));
}
static inline uint64_t pm_hash_number(uint64_t hash, uint32_t depth)
{
    return depth >= 64 ? hash : hash & ((UINT64_C(1) << depth) - 1);
}

/* ---- checked views ---- */

enum pm_seen {
    PM_SEEN_OK,     /* unlocked (or an old tag), word and copy agree, crc good: accepted */
    PM_SEEN_LOCKED, /* locked in this incarnation; the rest may be anything */
    PM_SEEN_TORN,   /* word and copy differ, or the crc does not fit: in motion, or corrupt if it
                       stays */
    PM_SEEN_EMPTY,  /* all zero but for the word: never used, not born */
    PM_SEEN_SHORT,  /* item: more bytes are needed than were read: `size_needed` */
    PM_SEEN_OTHER,  /* accepted, but of another kind than asked for: see `kind` */
};

struct pm_item_view {
    enum pm_seen seen;
    unsigned kind;        /* with OK or OTHER: PM_KIND_ITEM, _DEAD, _MOVED, ... */
    uint64_t word, version;
    uint32_t index;
    uint32_t class_;
    uint64_t hash;        /* MOVED: 0 */
    struct pm_slot_ref moved_to; /* MOVED */
    uint32_t key_size, value_size;
    const uint8_t *key, *value;
    uint32_t size_needed; /* SHORT */
};
/* Look at `size` bytes read from pool offset `off`. crc_seed: crc32c of the pool uuid. */
void pm_item_look(const void *bytes, uint32_t size, uint64_t off, uint32_t crc_seed, uint16_t tag,
    struct pm_item_view *ret);

struct pm_bucket_view {
    enum pm_seen seen;
    uint64_t word, version;
    uint32_t index, depth;
    uint64_t number;
    uint32_t count;
    const struct le64 *slot; /* PM_BUCKET_SLOTS; also set when LOCKED or TORN: then hints only */
    bool body_good;          /* crc fits the body, also when locked */
};
/* Look at PM_BUCKET_SIZE bytes. */
void pm_bucket_look(const void *bytes, uint64_t off, uint32_t crc_seed, uint16_t tag,
    struct pm_bucket_view *ret);

/* crc field of an object whose other bytes are final. `size`: of the item as its lengths say
 * (ITEM), the header (DEAD, MOVED), or 512. */
uint32_t pm_object_crc(const void *object, uint32_t size, uint64_t off, uint32_t crc_seed);

/* Images; `ret` is zeroed up to the size. Return the size. The word is left zero. */
uint32_t pm_item_make(void *ret, uint64_t off, uint32_t crc_seed, uint64_t version, uint32_t class_,
    uint32_t index, uint64_t hash, const void *key, uint32_t key_size, const void *value,
    uint32_t value_size);

struct pm_index { /* an index root in host order */
    uint64_t off;
    uint32_t index;
    uint16_t table, shard;
    uint8_t kind, depth0, bucket_slots, fingerprint_bits;
    uint32_t map_max;
    uint8_t hash_key[16];
    uint32_t level;     /* from grow: hints */
    uint64_t sweep;
    uint64_t items;
};
/* Check the first PM_INDEX_MAP_OFF bytes of a root. Errors: CAIRN_E_CORRUPT_INDEX, _LAYOUT_VERSION.
 */
CN_MUST_CHECK int pm_index_look(
    const void *bytes, uint64_t off, uint32_t crc_seed, struct pm_index *ret);
/* crc field of a root whose first 128 bytes are final. */
uint32_t pm_index_crc(const struct pm_index_pm *root, uint64_t off, uint32_t crc_seed);
static inline uint64_t pm_grow_make(uint32_t level, uint64_t sweep)
{
    return (uint64_t)level << 56 | (sweep & PM_VERSION_MAX);
}
static inline uint64_t pm_index_hash(const struct pm_index *index, const void *key, size_t size)
{
    return cn_siphash(index->hash_key, key, size);
}
/* Bucket number by a guess (level, sweep). */
static inline uint64_t pm_index_guess(uint64_t hash, uint32_t level, uint64_t sweep)
{
    uint64_t b = pm_hash_number(hash, level);
    return b < sweep ? pm_hash_number(hash, level + 1) : b;
}
/* Parent of a bucket: its highest set bit cleared. */
static inline uint64_t pm_bucket_parent(uint64_t number)
{
    return number == 0 ? 0 : number & ~(UINT64_C(1) << (63 - __builtin_clzll(number)));
}

#endif
