/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_ref.h: the slow reference of redo records and rings, written from docs/media-format.md and
 * from nothing else: offsets and limits stand here as numbers, the checksums are its own, the scan
 * tries every boundary. It shares no code with pmem/, on purpose: do not make it.
 */
#ifndef FZ_REF_H
#define FZ_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ref_place {
    uint8_t pool[16];
    uint64_t slot, epoch, nonce, log_off;
    uint16_t node;
};

struct ref_record {
    uint64_t log_off, seq;
    uint32_t size;
    uint8_t type;
};

uint32_t ref_crc32c(uint32_t crc, const uint8_t *data, size_t size);
uint64_t ref_crc64(uint64_t crc, const uint8_t *data, size_t size);
uint64_t ref_word(uint64_t nonce, uint64_t seq, uint64_t kind);

/*
 * Is there a valid record at the start of these `room` bytes (up to the end of the ring or of the
 * window)? A PAD's size is what it states; of any other all bytes are there.
 */
bool ref_record_at(const uint8_t *bytes, uint64_t room, const struct ref_place *place,
    struct ref_record *ret);

struct ref_slot {
    struct ref_place place; /* but for the log offset */
    uint64_t position_seq, position_off, closing_seq, window, ring_size;
    bool closed;
};
/* The records that a scan of the ring must report, in its order; at most `max` are stored. Returns
 * how many there are. */
uint32_t ref_scan(
    const struct ref_slot *slot, const uint8_t *ring, struct ref_record *ret, uint32_t max);

#endif
