/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_record.h: making changed bytes of a record pass its checksums again, as a peer that knows the
 * nonce could: the crc and, where there is one participant, the seal.
 */
#ifndef TS_RECORD_H
#define TS_RECORD_H

#include "pmem/pm_record.h"

static inline void ts_record_mend(void *bytes, uint32_t size, const struct pm_place *place)
{
    uint8_t *b = bytes;
    struct le32 crc = le32_make(pm_record_crc(b, size, place));
    struct le16 participants;

    memcpy(b + offsetof(struct pm_record_pm, crc), &crc, sizeof(crc));
    if (size < sizeof(struct pm_record_pm) ||
        b[offsetof(struct pm_record_pm, type)] != PM_RECORD_TX)
        return;
    memcpy(&participants, b + offsetof(struct pm_record_pm, participant_count), 2);
    if (le16_get(participants) == 1) {
        struct le64 seal = le64_make(pm_record_seal(b, size, place));
        memcpy(b + offsetof(struct pm_record_pm, mark), &seal, sizeof(seal));
    }
}

#endif
