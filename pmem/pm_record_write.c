/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_record_write.c: crc and seal of redo records, and records that are made in one go (pads,
 * voids). The cursor that fills the others is inline in pm_record.h.
 */
#include "pmem/pm.h"
#include "pmem/pm_record.h"

/* `size` bytes and zeros up to a multiple of 8; all zeros where `from` is NULL. Returns what is
 * behind. */
static uint8_t *pad_copy(uint8_t *to, const void *from, uint32_t size)
{
    uint32_t room = (uint32_t)cn_align_up(size, 8);

    if (from == NULL) {
        memset(to, 0, room);
    } else {
        if (size != 0)
            memcpy(to, from, size);
        memset(to + size, 0, room - size);
    }
    return to + room;
}

void *pm_record_add_write(
    struct pm_record_writer *w, const struct pm_write_pm *write, const void *key, const void *value)
{
    uint32_t key_size = le16_get(write->key_size), value_size = le32_get(write->value_size);
    struct pm_write_pm *head = pm_record_open_write(w, key_size, value_size);

    if (head == NULL)
        return NULL;
    *head = *write;
    head->reserved = le32_make(0);
    uint8_t *at = pad_copy((uint8_t *)(head + 1), key, key_size);
    (void)pad_copy(at, value, value_size);
    return at;
}

uint32_t pm_place_crc(const struct pm_place *place)
{
    const struct pm_record_seed_pm seed = {
        .pool = place->pool,
        .slot = le64_make(place->slot),
        .epoch = le64_make(place->epoch),
        .nonce = le64_make(place->nonce),
    };

    return cn_crc32c(0, &seed, offsetof(struct pm_record_seed_pm, log_off));
}

/* Up to the crc; then up to the mark; the rest is behind REST. */
#define REST 32u
static inline uint32_t crc_of_head(const uint8_t *bytes, const struct pm_place *place)
{
    uint32_t crc = place->crc != 0 ? place->crc : pm_place_crc(place);
    struct le64 first;

    memcpy(&first, bytes, sizeof(first));
    return cn_crc32c_behind(crc, place->log_off, le64_get(first), bytes + 12, 12);
}

CN_HOT
uint32_t pm_record_crc(const void *record, uint32_t size, const struct pm_place *place)
{
    const uint8_t *bytes = record;

    if (bytes[offsetof(struct pm_record_pm, type)] == PM_RECORD_PAD)
        size = PM_RECORD_ALIGN;
    CAIRN_ASSERT(size >= PM_RECORD_ALIGN);
    return cn_crc32c(crc_of_head(bytes, place), bytes + REST, size - REST);
}

static inline void put_crc(struct pm_record_pm *head, uint32_t crc)
{
    pm_record_put(&head->crc, crc | (uint64_t)head->type << 32); /* as a word: pm_record_put() */
}

CN_HOT
void pm_record_sign(void *record, const struct pm_place *place)
{
    struct pm_record_pm *head = record;
    uint32_t size = le32_get(head->size);

    put_crc(head, pm_record_crc(head, size, place));
    if (head->type == PM_RECORD_TX && le16_get(head->participant_count) == 1)
        head->mark = le64_make(pm_record_seal(head, size, place));
}

CN_HOT
void pm_record_sign_two(void *const record[2], const struct pm_place *const place[2])
{
    struct pm_record_pm *head[2] = {record[0], record[1]};
    const void *const rest[2] = {(uint8_t *)record[0] + REST, (uint8_t *)record[1] + REST};
    const size_t size[2] = {le32_get(head[0]->size) - REST, le32_get(head[1]->size) - REST};
    uint32_t crc[2] = {crc_of_head(record[0], place[0]), crc_of_head(record[1], place[1])};

    CAIRN_DASSERT(le16_get(head[0]->participant_count) > 1);
    CAIRN_DASSERT(le16_get(head[1]->participant_count) > 1);
    cn_crc32c_two(crc, rest, size);
    put_crc(head[0], crc[0]);
    put_crc(head[1], crc[1]);
}

CN_HOT
uint64_t pm_record_seal(const void *record, uint32_t size, const struct pm_place *place)
{
    const struct pm_record_pm *head = record;
    const uint8_t *bytes = record;
    const size_t mark = offsetof(struct pm_record_pm, mark);
    uint64_t seal = pm_word_value(place->nonce, le64_get(head->seq), PM_WORD_SEAL);

    seal = cn_crc64(seal, bytes, mark);
    seal = cn_crc64(seal, bytes + mark + sizeof(head->mark), size - mark - sizeof(head->mark));
    return seal != 0 ? seal : 1;
}

void pm_record_make_pad(void *buf, uint32_t size, const struct pm_place *place)
{
    uint8_t line[PM_RECORD_ALIGN] __attribute__((aligned(8))) = {0};
    struct le32 word = le32_make(PM_RECORD_MAGIC);

    CAIRN_ASSERT(size >= PM_RECORD_ALIGN && size % PM_RECORD_ALIGN == 0);
    /* Field by field: the line is shorter than the struct. */
    memcpy(line + offsetof(struct pm_record_pm, magic), &word, sizeof(word));
    word = le32_make(size);
    memcpy(line + offsetof(struct pm_record_pm, size), &word, sizeof(word));
    line[offsetof(struct pm_record_pm, type)] = PM_RECORD_PAD;
    word = le32_make(pm_record_crc(line, PM_RECORD_ALIGN, place));
    memcpy(line + offsetof(struct pm_record_pm, crc), &word, sizeof(word));
    memcpy(buf, line, sizeof(line));
}

void pm_record_make_void(void *buf, const struct cn_txid *txid, uint64_t seq, uint64_t view,
    const struct pm_place *place)
{
    struct pm_record_writer w;
    uint32_t size;

    pm_record_begin(&w, buf, PM_RECORD_VOID_SIZE);
    size = pm_record_end(&w, PM_RECORD_VOID, txid, seq, view, place);
    CAIRN_ASSERT(size == PM_RECORD_VOID_SIZE);
}
