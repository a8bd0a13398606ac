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

/* Room for `size` more bytes, a multiple of 8; NULL on overflow. */
static inline void *pm_record_room(
    struct pm_record_writer *w, uint16_t *count, uint32_t count_max, uint32_t size)
{
    void *at = w->buf + w->used;

    if (CN_UNLIKELY(*count >= count_max || size > w->size_max - w->used)) {
        w->overflow = true;
        w->size_max = w->used; /* nothing fits any more */
        return NULL;
    }
    w->used += size;
    (*count)++;
    return at;
}

static inline void pm_record_add_participant(struct pm_record_writer *w, uint16_t node,
    uint16_t shard, uint8_t role, uint16_t slot, uint64_t epoch, uint64_t seq)
{
    struct pm_participant_pm *p;

    PM_RECORD_ORDER(w, w->locks + w->blocks + w->writes);
    p = pm_record_room(w, &w->participants, PM_RECORD_PARTICIPANTS_MAX, sizeof(*p));
    if (p == NULL)
        return;
    *p = (struct pm_participant_pm){
        .node = le16_make(node),
        .shard = le16_make(shard),
        .slot = le16_make(slot),
        .role = role,
        .epoch = le64_make(epoch),
        .seq = le64_make(seq),
    };
}

/* The same participants as another record has. */
static inline void pm_record_copy_participants(
    struct pm_record_writer *w, const void *record, uint16_t count)
{
    uint32_t size = count * (uint32_t)sizeof(struct pm_participant_pm);

    PM_RECORD_ORDER(w, w->participants + w->locks + w->blocks + w->writes);
    if (CN_UNLIKELY(size > w->size_max - w->used)) {
        w->overflow = true;
        w->size_max = w->used;
        return;
    }
    cn_copy_words(w->buf + w->used, (const uint8_t *)record + w->used, size);
    w->used += size;
    w->participants = count;
}

static inline void pm_record_add_lock(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    struct pm_lock_pm *l;

    PM_RECORD_ORDER(w, w->blocks + w->writes);
    l = pm_record_room(w, &w->locks, PM_RECORD_LOCKS_MAX, sizeof(*l));
    if (l != NULL)
        *l = (struct pm_lock_pm){.off = le64_make(off), .base = le64_make(base)};
}

static inline void pm_record_add_block(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    struct pm_lock_pm *l;

    PM_RECORD_ORDER(w, w->writes);
    l = pm_record_room(w, &w->blocks, PM_RECORD_BLOCKS_MAX, sizeof(*l));
    if (l != NULL)
        *l = (struct pm_lock_pm){.off = le64_make(off), .base = le64_make(base)};
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

    return pm_record_room(w, &w->writes, PM_RECORD_WRITES_MAX, size);
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
/* Finish: header, padding, crc for `place`. Returns the record's size, 0 on overflow. */
static inline uint32_t pm_record_end(struct pm_record_writer *w, enum pm_record_type type,
    const struct cn_txid *txid, uint64_t seq, uint64_t view, const struct pm_place *place)
{
    struct pm_record_pm *head = (void *)w->buf;
    uint32_t size = (uint32_t)cn_align_up(w->used, PM_RECORD_ALIGN);

    CAIRN_ASSERT(type != PM_RECORD_PAD && seq != 0);
    w->overflow |= size > w->size_max;
    if (CN_UNLIKELY(w->overflow))
        return 0;
    cn_zero(w->buf + w->used, size - w->used);
    head->magic = le32_make(PM_RECORD_MAGIC);
    head->size = le32_make(size);
    head->type = (uint8_t)type;
    memset(head->reserved0, 0, sizeof(head->reserved0));
    head->seq = le64_make(seq);
    head->mark = le64_make(0);
    head->coordinator = txid->coordinator;
    head->count = le64_make(txid->count);
    head->view = le64_make(view);
    head->participant_count = le16_make(w->participants);
    head->lock_count = le16_make(w->locks);
    head->block_count = le16_make(w->blocks);
    head->write_count = le16_make(w->writes);
    head->done = le64_make(w->done);
    head->crc = le32_make(pm_record_crc(head, size, place));
    if (type == PM_RECORD_TX && w->participants == 1)
        head->mark = le64_make(pm_record_seal(head, size, place));
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
