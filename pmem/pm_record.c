/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_record.c: checking and reading redo records (layout: struct pm_record_pm; making them:
 * pm_record_write.c).
 *
 * The bytes were written by a remote peer, and a crash may have kept any of them. They are hostile
 * also where the crc is good: the peer knows the nonce. So the checks are complete: after
 * pm_record_check() every count, size and offset *within the record* is safe to use. What the
 * record says about the store (offsets, versions, keys) is the store's to check.
 *
 * A record has exactly one encoding: it ends where its last write ends, rounded up to 64, and
 * everything between is zero.
 */
#include "pmem/pm_record.h"

#define LIST_SORT_MIN 48u

uint32_t pm_record_peek(const void *line, uint64_t room)
{
    const uint8_t *bytes = line;
    struct le32 magic, size_field;
    uint32_t size;
    uint8_t type = bytes[offsetof(struct pm_record_pm, type)];

    memcpy(&magic, bytes + offsetof(struct pm_record_pm, magic), sizeof(magic));
    memcpy(&size_field, bytes + offsetof(struct pm_record_pm, size), sizeof(size_field));
    size = le32_get(size_field);
    if (le32_get(magic) != PM_RECORD_MAGIC || type < PM_RECORD_TX || type > PM_RECORD_GROWTH)
        return 0;
    if (size % PM_RECORD_ALIGN != 0 || size > room || size > PM_RECORD_SIZE_MAX)
        return 0;
    if (size < (type == PM_RECORD_PAD ? PM_RECORD_ALIGN : PM_RECORD_VOID_SIZE))
        return 0;
    return size;
}

static bool is_zero(const void *data, size_t size)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

static int refuse(const struct pm_place *place, const char *why)
{
    return cn_fail(CAIRN_E_CORRUPT_RECORD, "record in slot %u epoch %llu at log offset %llu: %s",
        place->slot, (unsigned long long)place->epoch, (unsigned long long)place->log_off, why);
}

/* NULL: the participants are good. Else what is wrong. */
static const char *check_participants(const struct pm_record *r, const struct pm_place *place,
    uint16_t node)
{
    bool here = false;

    for (uint32_t i = 0; i < r->participant_count; i++) {
        const struct pm_participant_pm *p = &r->participant[i];

        if (p->reserved != 0)
            return "a participant's reserved byte is not zero";
        if (le16_get(p->node) == node) {
            if (le16_get(p->slot) != place->slot || le64_get(p->epoch) != place->epoch ||
                le64_get(p->seq) != r->seq)
                return "it was meant for another place";
            here = true;
        }
        for (uint32_t k = 0; k < i; k++) {
            const struct pm_participant_pm *q = &r->participant[k];

            if (p->node.le != q->node.le)
                continue;
            if (p->shard.le == q->shard.le)
                return "a participant is listed twice";
            /* Shards of one node share the one record there. */
            if (p->slot.le != q->slot.le || p->epoch.le != q->epoch.le || p->seq.le != q->seq.le)
                return "a node is listed with two places";
        }
    }
    if (r->type == PM_RECORD_TX && !here)
        return "this node is not among its participants";
    return NULL;
}

static void sift_down(uint64_t *v, uint32_t i, uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * i + 1;
        uint64_t swap;

        if (child >= count)
            return;
        if (child + 1 < count && v[child + 1] > v[child])
            child++;
        if (v[i] >= v[child])
            return;
        swap = v[i];
        v[i] = v[child];
        v[child] = swap;
        i = child;
    }
}

/* Heap sort: no memory, and no worst case that a peer could aim at. */
static void sort(uint64_t *v, uint32_t count)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(v, i, count);
    for (uint32_t n = count; n-- > 1;) {
        uint64_t swap = v[0];

        v[0] = v[n];
        v[n] = swap;
        sift_down(v, 0, n);
    }
}

/* Is an offset named twice among locks and blocks? */
static bool has_twice(const struct pm_record *r)
{
    uint64_t off[PM_RECORD_LOCKS_MAX + PM_RECORD_BLOCKS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->lock_count; i++)
        off[count++] = le64_get(r->lock[i].off);
    for (uint32_t i = 0; i < r->block_count; i++)
        off[count++] = le64_get(r->block[i].off);
    if (count >= LIST_SORT_MIN) {
        sort(off, count);
        for (uint32_t i = 1; i < count; i++) {
            if (off[i] == off[i - 1])
                return true;
        }
        return false;
    }
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (off[i] == off[k])
                return true;
        }
    }
    return false;
}

static bool op_is_allowed(enum pm_record_type type, uint8_t op)
{
    if (type == PM_RECORD_TX)
        return op >= PM_OP_UPDATE && op <= PM_OP_DELETE;
    return type == PM_RECORD_GROWTH && op >= PM_OP_SPLIT && op <= PM_OP_ROOT;
}

/* Check the write at `at`; *ret_size gets the bytes it takes. */
static const char *check_write(const struct pm_record *r, uint32_t at, uint32_t *ret_size)
{
    const uint8_t *bytes = (const uint8_t *)r->head;
    const struct pm_write_pm *w = (const void *)(bytes + at);
    uint32_t key_size, value_size, key_room, value_room;

    if (r->size - at < sizeof(*w))
        return "a write runs over its end";
    if (!op_is_allowed(r->type, w->op))
        return "an operation is not allowed in this type of record";
    if (le32_get(w->reserved) != 0)
        return "a write's reserved bytes are not zero";
    key_size = le16_get(w->key_size);
    value_size = le32_get(w->value_size);
    if (key_size > CAIRN_KEY_SIZE_MAX || (r->type == PM_RECORD_TX && key_size == 0))
        return "a key's size is not allowed";
    if (value_size > CAIRN_VALUE_SIZE_MAX)
        return "a value is too long";
    key_room = (uint32_t)cn_align_up(key_size, 8);
    value_room = (uint32_t)cn_align_up(value_size, 8);
    at += (uint32_t)sizeof(*w);
    if (key_room + value_room > r->size - at)
        return "a key or value runs over its end";
    if (!is_zero(bytes + at + key_size, key_room - key_size) ||
        !is_zero(bytes + at + key_room + value_size, value_room - value_size))
        return "a padding is not zero";
    *ret_size = (uint32_t)sizeof(*w) + key_room + value_room;
    return NULL;
}

/* Counts, arrays, writes and the end. */
static const char *check_body(struct pm_record *r)
{
    const uint8_t *bytes = (const uint8_t *)r->head;
    uint32_t at = sizeof(*r->head), size = 0;

    if (r->participant_count > PM_RECORD_PARTICIPANTS_MAX || r->lock_count > PM_RECORD_LOCKS_MAX ||
        r->block_count > PM_RECORD_BLOCKS_MAX || r->write_count > PM_RECORD_WRITES_MAX)
        return "a count is too big";
    if (r->type == PM_RECORD_VOID &&
        (r->participant_count | r->lock_count | r->block_count | r->write_count) != 0)
        return "a void record has contents";
    /* The counts are bounded, so this cannot wrap. */
    r->participant = (const void *)(bytes + at);
    at += r->participant_count * (uint32_t)sizeof(*r->participant);
    r->lock = (const void *)(bytes + at);
    at += r->lock_count * (uint32_t)sizeof(*r->lock);
    r->block = (const void *)(bytes + at);
    at += r->block_count * (uint32_t)sizeof(*r->block);
    r->writes_off = at;
    if (at > r->size)
        return "its lists run over its end";
    for (uint32_t i = 0; i < r->write_count; i++) {
        const char *why = check_write(r, at, &size);

        if (why != NULL)
            return why;
        at += size;
    }
    if (cn_align_up(at, PM_RECORD_ALIGN) != r->size)
        return "its size does not fit its contents";
    if (!is_zero(bytes + at, r->size - at))
        return "its padding is not zero";
    return NULL;
}

static const char *check_pad(const uint8_t *line)
{
    /* A pad is its size and type, and nothing else (what is behind byte 64 is not read). */
    if (!is_zero(line + offsetof(struct pm_record_pm, seq), 8) ||
        !is_zero(line + offsetof(struct pm_record_pm, coordinator), 32))
        return "a pad has contents";
    return NULL;
}

/* Magic, size, crc, type: what makes bytes a record of this place. */
static const char *check_frame(const uint8_t *bytes, uint32_t size, const struct pm_place *place)
{
    uint32_t stated;
    struct le32 crc;

    if (size < PM_RECORD_ALIGN)
        return "too short";
    stated = pm_record_peek(bytes, PM_RECORD_SIZE_MAX);
    if (stated == 0)
        return "no record header";
    /* Of a pad the first line is enough. */
    if (bytes[offsetof(struct pm_record_pm, type)] == PM_RECORD_PAD ? size > stated
                                                                    : size != stated)
        return "its size is not what was read";
    memcpy(&crc, bytes + offsetof(struct pm_record_pm, crc), sizeof(crc));
    if (le32_get(crc) != pm_record_crc(bytes, size, place))
        return "the crc does not fit (torn, stale, or of another place)";
    if (!is_zero(bytes + offsetof(struct pm_record_pm, reserved0), 3))
        return "reserved bytes are not zero";
    return NULL;
}

static void read_head(struct pm_record *r, const struct pm_place *place)
{
    const struct pm_record_pm *h = r->head;

    r->seq = le64_get(h->seq);
    r->txid = (struct cn_txid){.coordinator = h->coordinator, .count = le64_get(h->count)};
    r->view = le64_get(h->view);
    r->done = le64_get(h->done);
    r->participant_count = le16_get(h->participant_count);
    r->lock_count = le16_get(h->lock_count);
    r->block_count = le16_get(h->block_count);
    r->write_count = le16_get(h->write_count);
    r->log_off = place->log_off;
}

bool pm_record_is_elsewhere(
    const void *record, uint32_t size, const struct pm_place *place, uint16_t node)
{
    const struct pm_record_pm *head = record;
    const struct pm_participant_pm *p = (const void *)(head + 1);
    uint32_t room;

    if (head->type != PM_RECORD_TX || size < sizeof(*head))
        return false;
    room = (size - (uint32_t)sizeof(*head)) / (uint32_t)sizeof(*p);
    for (uint32_t i = 0; i < le16_get(head->participant_count) && i < room; i++) {
        if (le16_get(p[i].node) == node)
            return le64_get(p[i].epoch) != place->epoch || le16_get(p[i].slot) != place->slot ||
                p[i].seq.le != head->seq.le;
    }
    return false;
}

/* What is wrong with the body of a record whose frame and head are good; NULL: nothing. */
static const char *check_rest(struct pm_record *r, const struct pm_place *place, uint16_t node)
{
    const char *why;

    if (r->seq == 0)
        return "it has no sequence";
    if ((r->type == PM_RECORD_GROWTH) != (place->slot == 0))
        return "this type of record does not belong into this slot";
    if (r->type == PM_RECORD_TX ? r->done >= r->seq : r->done != 0)
        return "it says of itself or of later ones that they are done";
    why = check_body(r);
    if (why == NULL)
        why = check_participants(r, place, node);
    if (why == NULL && has_twice(r))
        why = "a lock or block is listed twice";
    if (why == NULL && r->type == PM_RECORD_TX && r->participant_count == 1 &&
        le64_get(r->head->mark) != pm_record_seal(r->head, r->size, place))
        why = "its seal does not fit (still coming in, or torn)";
    return why;
}

const char *pm_record_fault(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret)
{
    const uint8_t *bytes = copy;
    struct pm_record r = {.head = copy};
    const char *why;

    CAIRN_DASSERT((uintptr_t)copy % 8 == 0);
    why = check_frame(bytes, size, place);
    if (why != NULL)
        return why;
    r.type = bytes[offsetof(struct pm_record_pm, type)];
    if (r.type == PM_RECORD_PAD) {
        why = check_pad(bytes);
        r.size = pm_record_peek(bytes, PM_RECORD_SIZE_MAX);
        r.log_off = place->log_off;
    } else {
        r.size = size;
        read_head(&r, place);
        why = check_rest(&r, place, node);
    }
    if (why == NULL)
        *ret = r;
    return why;
}

int pm_record_check(const void *copy, uint32_t size, const struct pm_place *place, uint16_t node,
    struct pm_record *ret)
{
    const char *why = pm_record_fault(copy, size, place, node, ret);

    return why == NULL ? 0 : refuse(place, why);
}

void pm_record_move(struct pm_record *r, const void *copy)
{
    const uint8_t *from = (const uint8_t *)r->head, *to = copy;

    if (r->type != PM_RECORD_PAD) {
        r->participant = (const void *)(to + ((const uint8_t *)r->participant - from));
        r->lock = (const void *)(to + ((const uint8_t *)r->lock - from));
        r->block = (const void *)(to + ((const uint8_t *)r->block - from));
    }
    r->head = copy;
}

bool pm_record_next_write(
    const struct pm_record *record, uint32_t *cursor, struct pm_record_write *ret)
{
    const uint8_t *bytes = (const uint8_t *)record->head;
    const struct pm_write_pm *w = (const void *)(bytes + *cursor);

    /* What follows the last write is zero and shorter than a record line: no operation. */
    if (record->write_count == 0 || *cursor > record->size ||
        record->size - *cursor < sizeof(*w) || w->op == 0)
        return false;
    *ret = (struct pm_record_write){
        .op = w->op,
        .class_ = w->class_,
        .key_size = le16_get(w->key_size),
        .value_size = le32_get(w->value_size),
        .index = le32_get(w->index),
        .hash = le64_get(w->hash),
        .key_base = le64_get(w->key_base),
        .item = le64_get(w->item),
        .block = le64_get(w->block),
        .bucket = le64_get(w->bucket),
    };
    ret->key = bytes + *cursor + sizeof(*w);
    ret->value = ret->key + cn_align_up(ret->key_size, 8);
    *cursor += pm_record_write_size(ret->key_size, ret->value_size);
    CAIRN_DASSERT(*cursor <= record->size);
    return true;
}
