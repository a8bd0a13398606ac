/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_record_write.c: making redo records, in the order header, participants, locks, blocks, writes,
 * zeros to a multiple of 64. The header comes last, when all counts are known.
 *
 * An overflow (of the buffer or of a count) is sticky: later additions do nothing, pm_record_end()
 * says 0. Whoever fills a record need check only there.
 */
#include "pmem/pm.h"
#include "pmem/pm_record.h"

#define SEQUENCE_ORDER(w, later) CAIRN_DASSERT((w)->overflow || (later) == 0)

CN_HOT
void pm_record_begin(struct pm_record_writer *w, void *buf, uint32_t size_max)
{
    CAIRN_DASSERT((uintptr_t)buf % 8 == 0);
    *w = (struct pm_record_writer){
        .buf = buf,
        .size_max = size_max < PM_RECORD_SIZE_MAX ? size_max : PM_RECORD_SIZE_MAX,
        .used = sizeof(struct pm_record_pm),
    };
    w->overflow = w->used > w->size_max;
}

/* Room for `size` more bytes, a multiple of 8; NULL on overflow. */
CN_HOT
static void *take(struct pm_record_writer *w, uint16_t *count, uint32_t count_max, uint32_t size)
{
    void *at;

    if (w->overflow || *count >= count_max || size > w->size_max - w->used) {
        w->overflow = true;
        return NULL;
    }
    at = w->buf + w->used;
    w->used += size;
    (*count)++;
    return at;
}

CN_HOT
void pm_record_add_participant(struct pm_record_writer *w, uint16_t node, uint16_t shard,
    uint8_t role, uint16_t slot, uint64_t epoch, uint64_t seq)
{
    struct pm_participant_pm *p;

    SEQUENCE_ORDER(w, w->locks + w->blocks + w->writes);
    p = take(w, &w->participants, PM_RECORD_PARTICIPANTS_MAX, sizeof(*p));
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

CN_HOT
static void add_pair(
    struct pm_record_writer *w, uint16_t *count, uint32_t max, const uint64_t pair[2])
{
    struct pm_lock_pm *l = take(w, count, max, sizeof(*l));

    if (l != NULL)
        *l = (struct pm_lock_pm){.off = le64_make(pair[0]), .base = le64_make(pair[1])};
}

CN_HOT
void pm_record_add_lock(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    SEQUENCE_ORDER(w, w->blocks + w->writes);
    add_pair(w, &w->locks, PM_RECORD_LOCKS_MAX, (uint64_t[2]){off, base});
}

void pm_record_add_block(struct pm_record_writer *w, uint64_t off, uint64_t base)
{
    SEQUENCE_ORDER(w, w->writes);
    add_pair(w, &w->blocks, PM_RECORD_BLOCKS_MAX, (uint64_t[2]){off, base});
}

CN_HOT
uint32_t pm_record_write_size(uint32_t key_size, uint32_t value_size)
{
    return (uint32_t)(sizeof(struct pm_write_pm) + cn_align_up(key_size, 8) +
        cn_align_up(value_size, 8));
}

CN_HOT
void *pm_record_add_write(
    struct pm_record_writer *w, const struct pm_write_pm *write, const void *key, const void *value)
{
    uint32_t key_size = le16_get(write->key_size), value_size = le32_get(write->value_size);
    uint32_t key_room = (uint32_t)cn_align_up(key_size, 8), size;
    uint8_t *at;

    if (value_size > PM_RECORD_SIZE_MAX) { /* before the sum can wrap */
        w->overflow = true;
        return NULL;
    }
    size = pm_record_write_size(key_size, value_size);
    at = take(w, &w->writes, PM_RECORD_WRITES_MAX, size);
    if (at == NULL)
        return NULL;
    memcpy(at, write, sizeof(*write));
    ((struct pm_write_pm *)(void *)at)->reserved = le32_make(0);
    at += sizeof(*write);
    memset(at, 0, size - sizeof(*write)); /* paddings, and a value that the caller fills in */
    if (key_size > 0)
        memcpy(at, key, key_size);
    at += key_room;
    if (value != NULL && value_size > 0)
        memcpy(at, value, value_size);
    return at;
}

CN_HOT
uint32_t pm_record_crc(const void *record, uint32_t size, const struct pm_place *place)
{
    const struct pm_record_seed_pm seed = {
        .pool = place->pool,
        .slot = le64_make(place->slot),
        .epoch = le64_make(place->epoch),
        .nonce = le64_make(place->nonce),
        .log_off = le64_make(place->log_off),
    };
    const uint8_t *bytes = record;
    uint32_t crc = cn_crc32c(0, &seed, sizeof(seed));

    if (bytes[offsetof(struct pm_record_pm, type)] == PM_RECORD_PAD)
        size = PM_RECORD_ALIGN;
    CAIRN_ASSERT(size >= PM_RECORD_ALIGN);
    crc = cn_crc32c(crc, bytes, 8); /* up to the crc; then up to the mark; then the rest */
    crc = cn_crc32c(crc, bytes + 12, 12);
    return cn_crc32c(crc, bytes + 32, size - 32);
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

CN_HOT
uint32_t pm_record_end(struct pm_record_writer *w, enum pm_record_type type,
    const struct cn_txid *txid, uint64_t seq, uint64_t view, const struct pm_place *place)
{
    struct pm_record_pm *head = (void *)w->buf;
    uint32_t size = (uint32_t)cn_align_up(w->used, PM_RECORD_ALIGN);

    CAIRN_ASSERT(type != PM_RECORD_PAD && seq != 0);
    if (w->overflow || size > w->size_max) {
        w->overflow = true;
        return 0;
    }
    memset(w->buf + w->used, 0, size - w->used);
    *head = (struct pm_record_pm){
        .magic = le32_make(PM_RECORD_MAGIC),
        .size = le32_make(size),
        .type = (uint8_t)type,
        .seq = le64_make(seq),
        .coordinator = txid->coordinator,
        .count = le64_make(txid->count),
        .view = le64_make(view),
        .participant_count = le16_make(w->participants),
        .lock_count = le16_make(w->locks),
        .block_count = le16_make(w->blocks),
        .write_count = le16_make(w->writes),
        .done = le64_make(w->done),
    };
    head->crc = le32_make(pm_record_crc(head, size, place));
    if (type == PM_RECORD_TX && w->participants == 1)
        head->mark = le64_make(pm_record_seal(head, size, place));
    return size;
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
