/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_layout.h: every struct on persistent memory (layout version 1). docs/media-format.md explains
 * it, pm_layout_check.c asserts every offset.
 *
 * All integers are little-endian; all references are pool offsets (bytes from the start of the pool
 * file), never pointers. Reserved bytes are written zero and checked zero. A field that is ever
 * stored alone is 8 bytes, aligned.
 *
 * The pool is a libpmemobj pool of layout name "cairn" whose root object holds struct pm_root_pm:
 * the list of extents handed out once. The first extent begins, at a chunk boundary, with:
 *
 *      +0                superblock, static part (struct pm_super_pm)
 *      +4096             superblock, dynamic part, two copies 256 B apart (struct pm_super_dyn_pm)
 *      +8192             scrub progress (struct pm_scrub_pm)
 *      slots_off         slot_count x slot_stride: struct pm_slot_pm x 2, tombstones, states
 *      retired_off       retired_max x struct pm_retired_pm
 *      chunks_off        chunk descriptors, indexed by pool offset >> chunk_shift
 *      rings_off         slot_count rings of ring_stride, aligned to 4096
 *      heap_off          (chunk aligned) chunks, to the end of the extent; all of any further
 * extent
 *
 * A ring is a 4096-byte header page (the fabric's, and the published position) and ring_size bytes
 * of log. A *log offset* counts bytes ever appended in a slot epoch, from 0; its place in the ring
 * is the log offset modulo ring_size.
 */
#ifndef PM_LAYOUT_H
#define PM_LAYOUT_H

#include "include/internal/cn_base.h"

#define PM_LAYOUT_NAME "cairn"
#define PM_LAYOUT_VERSION 1u
#define PM_EXTENTS_MAX 64u
#define PM_RING_HEADER_SIZE 4096u
#define PM_RECORD_ALIGN 64u
#define PM_LINE 64u

/* ---- root object of libpmemobj ---- */

#define PM_ROOT_MAGIC UINT64_C(0x31544f4f52524143) /* "CARROOT1" */
struct pm_extent_pm {
    struct le64 off;  /* aligned to the chunk size */
    struct le64 size; /* a multiple of the chunk size */
};
struct pm_root_pm {
    struct le64 magic; /* set last: a pool without it was never finished */
    struct le32 layout_version;
    struct le32 extent_count;
    struct le64 pool_size;
    struct le64 reserved;
    struct pm_extent_pm extent[PM_EXTENTS_MAX];
};

/* ---- superblock ---- */

#define PM_SUPER_MAGIC UINT64_C(0x314253424e524143) /* "CARNBSB1" */
struct pm_super_pm { /* 1280 bytes; written once */
    struct le64 magic;           /* 0 */
    struct le32 layout_version;  /* 8: at this place for all time */
    struct le32 crc;             /* 12: over the struct with this field zero */
    struct cn_uuid pool;         /* 16 */
    struct cn_uuid cluster;      /* 32 */
    struct le32 node;            /* 48 */
    struct le32 chunk_shift;     /* 52 */
    struct le64 compat;          /* 56: feature masks, as in ext4 and XFS */
    struct le64 incompat;        /* 64 */
    struct le64 ro_compat;       /* 72 */
    struct le64 pool_size;       /* 80 */
    struct le64 created_s;       /* 88 */
    struct le32 slot_count;      /* 96: slot 0 is the node's own */
    struct le32 slot_stride;     /* 100 */
    struct le32 window;          /* 104: records outstanding in a ring at most */
    struct le32 tombstone_max;   /* 108: tombstones per slot epoch; at least 2 x window */
    struct le64 ring_size;       /* 112: bytes of log, without the header page */
    struct le64 ring_stride;     /* 120 */
    struct le32 retired_max;     /* 128 */
    struct le32 extent_count;    /* 132 */
    struct le64 slots_off;       /* 136 */
    struct le64 retired_off;     /* 144 */
    struct le64 chunks_off;      /* 152 */
    struct le64 chunk_count;     /* 160: descriptors: pool_size >> chunk_shift, rounded up */
    struct le64 rings_off;       /* 168 */
    struct le64 heap_off;        /* 176 */
    struct le32 root_map_max;    /* 184: map entries of an index root */
    struct le32 bucket_slots;    /* 188: slots used per bucket, 56 but in tests */
    struct le32 fingerprint_bits;/* 192: 16 but in tests */
    struct le32 depth0;          /* 196: of new indexes */
    uint8_t reserved[56];        /* 200 */
    struct pm_extent_pm extent[PM_EXTENTS_MAX]; /* 256 */
};

enum pm_member_state { PM_MEMBER_FULL = 1, PM_MEMBER_JOINING = 2 };

/* Two copies; the valid one of the higher generation holds. */
struct pm_super_dyn_pm { /* 128 bytes */
    struct le64 generation;      /* 0 */
    struct le32 crc;             /* 8: seeded with the pool uuid, this field zero */
    struct le32 member_state;    /* 12 */
    struct le64 incarnation;     /* 16: raised at each open, before anyone connects */
    struct le64 view_max;        /* 24: the highest view seen */
    struct le64 opener_pid;      /* 32: the process that has the pool; 0 after a clean close */
    struct le64 opener_start;    /* 40: its start time (clock ticks since boot) */
    struct cn_uuid opener_boot;  /* 48: boot id */
    struct le64 clean;           /* 64: 1 after a clean close */
    uint8_t reserved[56];        /* 72 */
};

/* One line; each field stored alone. Clears tags of incarnations <= goal. */
struct pm_scrub_pm {
    struct le64 goal;
    struct le64 cursor; /* chunk number */
    struct le64 done;
    struct le64 reserved[5];
};

/* ---- slots ---- */

enum pm_slot_state {
    PM_SLOT_FREE = 0,
    PM_SLOT_OPEN = 1, /* handed out */
    PM_SLOT_CLOSED =
        2, /* fenced or cleanly closed: closing_seq is valid, nothing else is accepted */
};

/* Two copies at the slot's start; the valid one of the higher generation holds. */
struct pm_slot_pm { /* 128 bytes */
    struct le64 generation;   /* 0 */
    struct le32 crc;          /* 8: seeded with pool uuid and slot number, this field zero */
    struct le16 state;        /* 12 */
    struct le16 reserved0;    /* 14 */
    struct le64 epoch;        /* 16: raised each time the slot is handed out */
    struct le64 nonce;        /* 24 */
    struct cn_uuid owner;     /* 32: coordinator session */
    struct le64 view;         /* 48 */
    struct le64 position_seq; /* 56: applied position */
    struct le64 position_off; /* 64: its log offset */
    struct le64 closing_seq;  /* 72 */
    struct le64 incarnation;  /* 80: in which it was handed out */
    struct le64 closed_s;     /* 88: wall clock */
    uint8_t reserved[32];     /* 96 */
};

/* Tombstones: tombstone_max entries at slot + 256. Valid when `check` fits the epoch's nonce;
 * filled from the front. Kept until the epoch is retired. */
struct pm_tombstone_pm {
    struct le64 seq;
    struct le64 check; /* pm_word_value(nonce, seq, PM_WORD_TOMBSTONE) */
};
/* States: `window` words behind the tombstones; of sequence s at s % window:
 * pm_word_value(nonce, s, PM_WORD_APPLIED), anything else counts as none. */

/* Which words: the second argument of the value derived from nonce and sequence. */
enum pm_word_kind { PM_WORD_MARK = 1, PM_WORD_APPLIED = 2, PM_WORD_TOMBSTONE = 3,
    PM_WORD_SEAL = 4 };

enum pm_retired_type { PM_RETIRED_NONE = 0, PM_RETIRED_EPOCH = 1, PM_RETIRED_TOMBSTONES = 2 };
#define PM_RETIRED_SEQS 5u
struct pm_retired_pm { /* 64 bytes */
    struct le32 crc;          /* 0: seeded with pool uuid and entry number, this field zero */
    struct le16 type;         /* 4 */
    struct le16 slot;         /* 6 */
    struct le64 epoch;        /* 8 */
    union {
        struct {              /* PM_RETIRED_EPOCH; its applied position equals closing_seq */
            struct cn_uuid owner;     /* 16 */
            struct le64 closing_seq;  /* 32 */
            struct le64 retired_s;    /* 40: wall clock */
            struct le32 tombstone_count; /* 48: over all its TOMBSTONES entries */
            struct le32 view;         /* 52 */
            struct le64 reserved;     /* 56 */
        } e;
        struct {              /* PM_RETIRED_TOMBSTONES: durable before the EPOCH entry */
            struct le64 seq[PM_RETIRED_SEQS]; /* 16: 0 = unused */
            struct le64 reserved;     /* 56 */
        } t;
    } u;
};

/* ---- redo record ---- */

#define PM_RECORD_MAGIC UINT32_C(0x44455243) /* "CRED" */
enum pm_record_type {
    PM_RECORD_TX = 1,
    PM_RECORD_VOID = 2,   /* takes a sequence that was not logged: counts as a tombstone */
    PM_RECORD_PAD = 3,    /* to the end of the ring; takes no sequence (seq 0) */
    PM_RECORD_GROWTH = 4, /* slot 0 only: committed when durable, carries no mark */
};

struct pm_record_pm { /* 80 bytes, then participants, locks, blocks, writes; zero to a multiple of
                         64 */
    struct le32 magic;        /* 0 */
    struct le32 size;         /* 4: all of it, a multiple of 64; does not cross the ring's end */
    struct le32 crc;          /* 8: pm_record_crc(): seeded with its place; without crc and mark */
    uint8_t type;             /* 12 */
    uint8_t reserved0[3];     /* 13 */
    struct le64 seq;          /* 16: dense from 1 per slot epoch */
    struct le64 mark; /* 24: outside the crc; written by the coordinator alone; 0 at first, but with
                       * one participant pm_record_seal() from the start */
    struct cn_uuid coordinator; /* 32 */
    struct le64 count;        /* 48: with coordinator: the transaction id */
    struct le64 view;         /* 56 */
    struct le16 participant_count; /* 64 */
    struct le16 lock_count;   /* 66 */
    struct le16 block_count;  /* 68 */
    struct le16 write_count;  /* 70 */
    struct le64 done;         /* 72: the coordinator had committed every sequence up to this one
                               * here when it wrote this; below `seq`; TX only */
};
/* What the crc is seeded with, besides the bytes. */
struct pm_record_seed_pm {
    struct cn_uuid pool;
    struct le64 slot;
    struct le64 epoch;
    struct le64 nonce;
    struct le64 log_off;
};

struct pm_participant_pm { /* 24 bytes */
    struct le16 node;
    struct le16 shard;
    struct le16 slot;
    uint8_t role;        /* 0 primary */
    uint8_t reserved;
    struct le64 epoch;
    struct le64 seq;     /* the record's sequence *there* */
};
struct pm_lock_pm { /* 16 bytes: a lock word held, or a free block taken */
    struct le64 off;
    struct le64 base;    /* its version */
};

enum pm_op {
    PM_OP_UPDATE = 1, /* in place: item */
    PM_OP_INSERT = 2, /* bucket, block */
    PM_OP_MOVE = 3,   /* bucket, item, block */
    PM_OP_DELETE = 4, /* bucket, item */
    /* slot 0 only: */
    PM_OP_SPLIT = 5,  /* value: struct pm_split_pm */
    PM_OP_CHUNK = 6,  /* value: struct pm_chunk_op_pm */
    PM_OP_ROOT = 7,   /* value: struct pm_root_op_pm */
};
struct pm_write_pm { /* 56 bytes, then key (zero-padded to 8), value (zero-padded to 8) */
    uint8_t op;
    uint8_t class_;       /* of `block` */
    struct le16 key_size;
    struct le32 value_size;
    struct le32 index;    /* 8 */
    struct le32 reserved; /* 12 */
    struct le64 hash;     /* 16 */
    struct le64 key_base; /* 24: the key's base version, 0 = never existed */
    struct le64 item;     /* 32: old place */
    struct le64 block;    /* 40: new place */
    struct le64 bucket;   /* 48 */
};

/* ---- store: lockable objects ---- */

/* Lock word: locked:1 (bit 63) tag:11 (62..52) slot:12 (51..40) version:40 (39..0). Unlocked: tag
 * and slot zero. */
#define PM_VERSION_BITS 40
#define PM_VERSION_MAX ((UINT64_C(1) << PM_VERSION_BITS) - 1)
#define PM_VERSION_MARGIN 16u /* rule T3 */
#define PM_TAG_COUNT 2047u    /* tag = 1 + incarnation % PM_TAG_COUNT */
#define PM_SLOT_COUNT_MAX 4096u

enum pm_kind {
    PM_KIND_NONE = 0,
    PM_KIND_BUCKET = 1,
    PM_KIND_ITEM = 2,
    PM_KIND_DEAD = 3,
    PM_KIND_MOVED = 4,
};
struct pm_object_pm { /* 24 bytes: common prefix */
    struct le64 word;
    struct le64 meta;  /* version:40 (39..0) kind:8 (47..40) sub:8 (55..48) flags:8 (63..56) */
    struct le32 crc;   /* seeded with pool uuid and own offset; covers meta, index and the rest */
    struct le32 index; /* index id, 0: none */
};

#define PM_BUCKET_SIZE 512u
#define PM_BUCKET_SLOTS 56u
struct pm_bucket_pm { /* sub = depth */
    struct pm_object_pm head;
    struct le64 number;   /* 24: < 2^depth */
    struct le16 count;    /* 32: used slots */
    uint8_t reserved[30]; /* 34 */
    struct le64
        slot[PM_BUCKET_SLOTS]; /* 64: offset/64 : 43 (63..21) | class : 5 (20..16) | fp : 16 */
};

#define PM_ITEM_HEADER_SIZE 40u
struct pm_item_pm { /* sub = class; then key (zero-padded to 8), value */
    struct pm_object_pm head;
    struct le32 value_size; /* 24 */
    struct le16 key_size;   /* 28 */
    struct le16 reserved;   /* 30 */
    struct le64 hash;       /* 32; MOVED: the new place in slot format */
};

#define PM_CLASS_COUNT 22u
#define PM_CLASS_UNITS /* of 64 bytes */                                                           \
    {                                                                                              \
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1088,    \
            0 /* none */                                                                           \
    }

enum pm_chunk_kind {
    PM_CHUNK_FREE = 0,
    PM_CHUNK_SLAB = 1,
    PM_CHUNK_BUCKETS = 2,
    PM_CHUNK_ROOTS = 3
};
struct pm_chunk_pm { /* 16 bytes */
    uint8_t kind;
    uint8_t class_;
    struct le16 free_hint; /* blocks free / 16, saturating; outside the crc */
    struct le32 index;
    struct le32 seq;       /* BUCKETS: its place in the index's map */
    struct le32 crc;       /* all but free_hint, seeded with pool uuid and chunk number */
};

#define PM_INDEX_MAGIC UINT64_C(0x3158444e49524143) /* "CARINDX1" */
#define PM_INDEX_MAP_OFF 256u
#define PM_DEPTH_MAX 40u
struct pm_index_pm { /* root of an index: 256 bytes, then root_map_max map entries (le64) */
    struct le64 magic;       /* 0 */
    struct le32 layout_version; /* 8 */
    struct le32 crc; /* 12: over bytes 0..127, this field zero, seeded with pool uuid and offset */
    struct le32 index;       /* 16: id, from 1 */
    struct le16 table;       /* 20 */
    struct le16 shard;       /* 22 */
    uint8_t kind;            /* 24: 1 = hash */
    uint8_t depth0;          /* 25 */
    uint8_t bucket_slots;    /* 26 */
    uint8_t fingerprint_bits;/* 27 */
    struct le32 map_max;     /* 28 */
    uint8_t hash_key[16];    /* 32 */
    uint8_t reserved[80];    /* 48 */
    struct le64 grow;        /* 128: level:8 (63..56) | sweep position:40 (39..0); a hint */
    struct le64 items;       /* 136: item count; a hint */
    uint8_t reserved2[112];  /* 144 */
    /* 256: le64 map[map_max]: chunk offset of the i-th chunk of buckets, 0 = none; each set once */
};

/* Payloads of growth writes. */
struct pm_split_pm {
    struct le64 parent, child; /* offsets */
    uint8_t image[2][PM_BUCKET_SIZE]; /* bytes 8..511 count; the word is not stored from here */
};
struct pm_chunk_op_pm {
    struct le64 chunk;      /* number */
    struct pm_chunk_pm descriptor;
    struct le64 root;       /* offset of the index root whose map gets it, 0 = none */
    struct le64 map_entry;  /* which */
};
struct pm_root_op_pm {
    struct le64 root;       /* offset */
    struct le64 chunk;      /* number of the first chunk of buckets */
    struct pm_chunk_pm descriptor;
    struct pm_index_pm image;
};

#endif
