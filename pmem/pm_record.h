/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_record.h: the redo record codec. Encoding is used by coordinators (into a send buffer) and by
 * the node's growth; decoding by whoever reads a ring. Decoding never trusts a byte: it works on a
 * private copy, and every count, size and offset is checked before it is used.
 */
#ifndef PM_RECORD_H
#define PM_RECORD_H

#include "pmem/pm_layout.h"

#define PM_RECORD_SIZE_MAX (1024u * 1024u)
#define PM_RECORD_PARTICIPANTS_MAX 256u
#define PM_RECORD_WRITES_MAX 512u
#define PM_RECORD_LOCKS_MAX 1024u
#define PM_RECORD_BLOCKS_MAX 512u

/* Where a record is, or will be: all of it goes into the crc. */
struct pm_place {
    struct cn_uuid pool;
    uint16_t slot;
    uint64_t epoch, nonce;
    uint64_t log_off;
    uint32_t crc; /* pm_place_crc() of the rest, for who has it at hand; 0: not computed */
};
/* crc of all but the log offset: the same for every record of a slot epoch. */
uint32_t pm_place_crc(const struct pm_place *place);

/* ---- encoding: a cursor over a caller's buffer ----
 *
 * Inline, as every commit fills a record for each participant. An overflow (of the buffer or of a
 * count) is sticky: later additions do nothing, pm_record_end() says 0.
 */

struct pm_record_writer {
    uint8_t *buf;
    uint32_t size_max, used;
    uint64_t done; /* 0 at first; to be set before the end */
    uint16_t participants, locks, blocks, writes;
    bool overflow;
};
/* Arrays must be written in this order: participants, locks, blocks, writes. */
#define PM_RECORD_ORDER(w, later) CAIRN_DASSERT((w)->overflow || (later) == 0)

static inline void pm_record_begin(struct pm_record_writer *w, void *buf, uint32_t size_max)
{
    CAIRN_DASSERT((uintptr_t)buf % 8 == 0);
    *w = (struct pm_record_writer){
        .buf = buf,
        .size_max = size_max < PM_RECORD_SIZE_MAX ? size_max : PM_RECORD_SIZE_MAX,
        .used = sizeof(struct pm_record_pm),
    };
    if (CN_UNLIKELY(w->used > w->size_max)) {
        w->overflow = true;
        w->size_max = w->used;
    }
}

/* Room for `n` more of something, `size` bytes in all, a multiple of 8; NULL on overflow. */
static inline void *pm_record_room(
    struct pm_record_writer *w, uint16_t *count, uint32_t n, uint32_t count_max, uint32_t size)
{
    void *at = w->buf + w->used;

    if (CN_UNLIKELY(n > count_max - *count || size > w->size_max - w->used)) {
        w->overflow = true;
        w->size_max = w->used; /* nothing fits any more */
        return NULL;
    }
    w->used += size;
    *count = (uint16_t)(*count + n);
    return at;
}

/*
 * What follows is stored in words of 8 bytes: a checksum and a copy read it as such at once, and
 * would wait until narrower stores are in the cache.
 */
static inline void pm_record_put(void *at, uint64_t word)
{
    struct le64 le = le64_make(word);

    memcpy(at, &le, sizeof(le));
}

static inline void pm_participant_set(struct pm_participant_pm *p, uint16_t node, uint16_t shard,
    uint8_t role, uint16_t slot, uint64_t epoch, uint64_t seq)
{
    _Static_assert(offsetof(struct pm_participant_pm, shard) == 2 &&
            offsetof(struct pm_participant_pm, slot) == 4 &&
            offsetof(struct pm_participant_pm, role) == 6,
        "one word");
    pm_record_put(p, node | (uint64_t)shard << 16 | (uint64_t)slot << 32 | (uint64_t)role << 48);
    p->epoch = le64_make(epoch);
    p->seq = le64_make(seq);
}

/* The first two words of a write. */
static inline void pm_write_set(struct pm_write_pm *write, enum pm_op op, uint8_t class_,
    uint16_t key_size, uint32_t value_size, uint32_t index)
{
    _Static_assert(offsetof(struct pm_write_pm, class_) == 1 &&
            offsetof(struct pm_write_pm, key_size) == 2 &&
            offsetof(struct pm_write_pm, value_size) == 4 &&
            offsetof(struct pm_write_pm, index) == 8 &&
            offsetof(struct pm_write_pm, reserved) == 12,
        "two words");
    pm_record_put(write, (uint8_t)op | (uint64_t)class_ << 8 | (uint64_t)key_size << 16 |
            (uint64_t)value_size << 32);
    pm_record_put(&write->index, index);
}

/* Room for all participants at once, to be filled in; `n` is at most _PARTICIPANTS_MAX. NULL on
 * overflow. */
static inline struct pm_participant_pm *pm_record_open_participants(
    struct pm_record_writer *w, uint32_t n)
{
    PM_RECORD_ORDER(w, w->locks + w->blocks + w->writes);
    return pm_record_room(w, &w->participants, n, PM_RECORD_PARTICIPANTS_MAX,
        n * (uint32_t)sizeof(struct pm_participant_pm));
}

static inline void pm_record_add_participant(struct pm_record_writer *w, uint16_t node,
    uint16_t shard, uint8_t role, uint16_t slot, uint64_t epoch, uint64_t seq)
{
    struct pm_participant_pm *p = pm_record_open_participants(w, 1);

    if (p != NULL)
        pm_participant_set(p, node, shard, role, slot, epoch, seq);
}

static inline struct pm_lock_pm pm_lock_make(uint64_t off, uint64_t base)
{
    return (struct pm_lock_pm){.off = le64_make(off), .base = le64_make(base)};
}

/* Room for `n` locks, to be filled in; at most _LOCKS_MAX. NULL on overflow. */
static inline struct pm_lock_pm *pm_record_open_locks(struct pm_record_writer *w, uint32_t n)
{
    PM_RECORD_ORDER(w, w->blocks + w->writes);
    return pm_record_room(
        w, &w->locks, n, PM_RECORD_LOCKS_MAX, n * (uint32_t)sizeof(struct pm_lock_pm));
}

static inline void pm_record_add_lock(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    struct pm_lock_pm *l = pm_record_open_locks(w, 1);

    if (l != NULL)
        *l = pm_lock_make(off, base);
}

static inline void pm_record_add_block(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    struct pm_lock_pm *l;

    PM_RECORD_ORDER(w, w->writes);
    l = pm_record_room(w, &w->blocks, 1, PM_RECORD_BLOCKS_MAX, sizeof(*l));
    if (l != NULL)
        *l = pm_lock_make(off, base);
}

/* Bytes that a write takes in a record. */
static inline uint32_t pm_record_write_size(uint32_t key_size, uint32_t value_size)
{
    return (uint32_t)(sizeof(struct pm_write_pm) + cn_align_up(key_size, 8) +
        cn_align_up(value_size, 8));
}

/* Room for a write, whose struct is to be filled in whole, then key and value behind it. NULL on
 * overflow. */
static inline struct pm_write_pm *pm_record_open_write(
    struct pm_record_writer *w, uint32_t key_size, uint32_t value_size)
{
    uint32_t size = value_size <= PM_RECORD_SIZE_MAX /* else the sum can wrap */
        ? pm_record_write_size(key_size, value_size)
        : UINT32_MAX;

    return pm_record_room(w, &w->writes, 1, PM_RECORD_WRITES_MAX, size);
}

/* Key and value that have zeros up to a multiple of 8 already. */
static inline void pm_record_put_padded(struct pm_write_pm *head, const void *key,
    uint32_t key_size, const void *value, uint32_t value_size)
{
    uint32_t key_room = (uint32_t)cn_align_up(key_size, 8);
    uint32_t value_room = (uint32_t)cn_align_up(value_size, 8);
    uint8_t *at = (uint8_t *)(head + 1);

    cn_copy_words(at, key, key_room);
    if (value_room <= 64)
        cn_copy_words(at + key_room, value, value_room);
    else
        memcpy(at + key_room, value, value_room);
}

/* `write`'s sizes say how much of key and value is copied; its reserved bytes are written zero.
 * Returns where the value was put (NULL on overflow), so that a caller may pass value NULL and fill
 * it in place. */
void *pm_record_add_write(struct pm_record_writer *w, const struct pm_write_pm *write,
    const void *key, const void *value);

/* crc of a record of `size` bytes, skipping its crc and mark fields; a PAD's covers its first 64
 * bytes only. */
uint32_t pm_record_crc(const void *record, uint32_t size, const struct pm_place *place);
/*
 * Seal of a finished record with one participant, which stands in its mark word from the start: a
 * crc64 of all but that word, with nonce and sequence. Such a record is committed without a mark;
 * while it comes in, a part of it must not pass for the whole, and a crc of 32 bits alone would let
 * one in 2^32 do so. Never 0.
 */
uint64_t pm_record_seal(const void *record, uint32_t size, const struct pm_place *place);
/* The crc of a record that is closed, and its seal if it has one. */
void pm_record_sign(void *record, const struct pm_place *place);
/* The same of two that each name both, so neither has a seal. */
void pm_record_sign_two(void *const record[2], const struct pm_place *const place[2]);
/* Finish all but that: header and padding. Returns the record's size, 0 on overflow. */
static inline uint32_t pm_record_close(struct pm_record_writer *w, enum pm_record_type type,
    const struct cn_txid *txid, uint64_t seq, uint64_t view)
{
    struct pm_record_pm *head = (void *)w->buf;
    uint32_t size = (uint32_t)cn_align_up(w->used, PM_RECORD_ALIGN);

    CAIRN_ASSERT(type != PM_RECORD_PAD && seq != 0);
    w->overflow |= size > w->size_max;
    if (CN_UNLIKELY(w->overflow))
        return 0;
    cn_zero(w->buf + w->used, size - w->used);
    _Static_assert(offsetof(struct pm_record_pm, size) == 4 &&
            offsetof(struct pm_record_pm, lock_count) == 66 &&
            offsetof(struct pm_record_pm, block_count) == 68 &&
            offsetof(struct pm_record_pm, write_count) == 70,
        "words");
    pm_record_put(&head->magic, PM_RECORD_MAGIC | (uint64_t)size << 32);
    pm_record_put(&head->crc, (uint64_t)(uint8_t)type << 32); /* and type; the crc comes last */
    head->seq = le64_make(seq);
    head->mark = le64_make(0);
    head->coordinator = txid->coordinator;
    head->count = le64_make(txid->count);
    head->view = le64_make(view);
    pm_record_put(&head->participant_count, w->participants | (uint64_t)w->locks << 16 |
            (uint64_t)w->blocks << 32 | (uint64_t)w->writes << 48);
    head->done = le64_make(w->done);
    return size;
}

/* Finish: header, padding, crc for `place`. Returns the record's size, 0 on overflow. */
static inline uint32_t pm_record_end(struct pm_record_writer *w, enum pm_record_type type,
    const struct cn_txid *txid, uint64_t seq, uint64_t view, const struct pm_place *place)
{
    uint32_t size = pm_record_close(w, type, txid, seq, view);

    if (size != 0)
        pm_record_sign(w->buf, place);
    return size;
}

/* A pad of `size` bytes (>= 64 and a multiple of 64; only its header line needs to be written). */
void pm_record_make_pad(void *buf, uint32_t size, const struct pm_place *place);
#define PM_RECORD_VOID_SIZE 128u
void pm_record_make_void(void *buf, const struct cn_txid *txid, uint64_t seq, uint64_t view,
    const struct pm_place *place);

/* ---- decoding ---- */

struct pm_record { /* a checked record in private memory; pointers into it */
    const struct pm_record_pm *head;
    uint32_t size;
    enum pm_record_type type;
    uint64_t seq;
    struct cn_txid txid;
    uint64_t view;
    uint64_t done;
    uint64_t log_off;
    const struct pm_participant_pm *participant;
    const struct pm_lock_pm *lock;
    const struct pm_lock_pm *block;
    uint16_t participant_count, lock_count, block_count, write_count;
    uint32_t writes_off; /* of the first write */
};
struct pm_record_write { /* one write, host order */
    enum pm_op op;
    uint8_t class_;
    uint16_t key_size;
    uint32_t value_size, index;
    uint64_t hash, key_base, item, block, bucket;
    const uint8_t *key, *value;
};

/*
 * Is there plausibly a record header in these 64 bytes, and how big is it? 0: no. Else the size: a
 * multiple of 64 that does not cross the ring's end (`room` bytes left to it).
 */
uint32_t pm_record_peek(const void *line, uint64_t room);
/*
 * Check a private copy completely: magic, size, crc for the place, type, counts, every array and
 * write inside it, zero padding and reserved bytes, one participant that is (node, place) with this
 * sequence (TX), no participant twice, no lock or block twice, op codes allowed for the type.
 * `size` is the size of the copy. Fills *ret.
 * Errors: CAIRN_E_CORRUPT_RECORD. A wrong crc is *also* that; a torn record is no event worth a log
 * line, so the text is set but callers decide whether to speak.
 */
CN_MUST_CHECK int pm_record_check(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret);
/* The same, for who meets many that are not (yet) there: NULL, or what is wrong. */
const char *pm_record_fault(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret);
/* Does the record at hand, of `size` bytes as pm_record_peek() said, state itself that it is not of
 * this place? Cheaper than its crc, for an earlier lap's. False: it may be. */
bool pm_record_is_elsewhere(
    const void *record, uint32_t size, const struct pm_place *place, uint16_t node);
/* A checked record whose bytes were copied to `copy`. */
void pm_record_move(struct pm_record *record, const void *copy);
/* Iterate: *cursor starts at record->writes_off; false at the end. */
bool pm_record_next_write(
    const struct pm_record *record, uint32_t *cursor, struct pm_record_write *ret);

#endif
