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
};

/* ---- encoding: a cursor over a caller's buffer; an overflow is sticky and shows at the end ----
 */

struct pm_record_writer {
    uint8_t *buf;
    uint32_t size_max, used;
    uint64_t done; /* 0 at first; to be set before the end */
    uint16_t participants, locks, blocks, writes;
    bool overflow;
};
/* Arrays must be written in this order: participants, locks, blocks, writes. */
void pm_record_begin(struct pm_record_writer *w, void *buf, uint32_t size_max);
void pm_record_add_participant(struct pm_record_writer *w, uint16_t node, uint16_t shard,
    uint8_t role, uint16_t slot, uint64_t epoch, uint64_t seq);
void pm_record_add_lock(struct pm_record_writer *w, uint64_t off, uint64_t base);
void pm_record_add_block(struct pm_record_writer *w, uint64_t off, uint64_t base);
/* `write`'s sizes say how much of key and value is copied. Returns where the value was put (NULL on
 * overflow), so that a caller may pass value NULL and fill it in place. */
void *pm_record_add_write(struct pm_record_writer *w, const struct pm_write_pm *write,
    const void *key, const void *value);
/* Finish: header, padding, crc for `place`. Returns the record's size, 0 on overflow. */
uint32_t pm_record_end(struct pm_record_writer *w, enum pm_record_type type,
    const struct cn_txid *txid, uint64_t seq, uint64_t view, const struct pm_place *place);
/* A pad of `size` bytes (>= 64 and a multiple of 64; only its header line needs to be written). */
void pm_record_make_pad(void *buf, uint32_t size, const struct pm_place *place);
#define PM_RECORD_VOID_SIZE 128u
void pm_record_make_void(void *buf, const struct cn_txid *txid, uint64_t seq, uint64_t view,
    const struct pm_place *place);
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
/* Bytes that a write takes in a record. */
uint32_t pm_record_write_size(uint32_t key_size, uint32_t value_size);

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
/* Iterate: *cursor starts at record->writes_off; false at the end. */
bool pm_record_next_write(
    const struct pm_record *record, uint32_t *cursor, struct pm_record_write *ret);

#endif
