/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: the scan of a ring (pm_ring.c).
 * Input: 12 bytes of a slot header, then the ring. Records in it are mended as their crc field
 * says, the inner ones first, so that a value may imitate a record.
 * Oracle: the reference reports the same records in the same order, and a scan that is stopped by
 * its callback reports the same up to there.
 */
#include "pmem/pm_slot.h"

#include "tests/fuzz/fz_common.h"
#include "tests/fuzz/fz_ref.h"

#define RING_MAX 16384u
#define FOUND_MAX (RING_MAX / 128 + 1)

struct found {
    struct ref_record list[FOUND_MAX];
    uint32_t count, stop_at;
    const uint8_t *ring;
    uint64_t ring_size;
};

static int add(void *arg, const struct pm_record *r)
{
    struct found *f = arg;

    FZ_NEED(f->count < FOUND_MAX, "more records than fit");
    FZ_NEED((const uint8_t *)r->head == f->ring + r->log_off % f->ring_size, "another place");
    f->list[f->count++] = (struct ref_record){
        .log_off = r->log_off, .seq = r->seq, .size = r->size, .type = (uint8_t)r->type};
    return f->count == f->stop_at ? CAIRN_E_LIMIT : 0;
}

static void read_slot(struct fz_input *in, struct pm_slot *slot, struct pm_pool *pool)
{
    uint8_t flags = fz_u8(in);

    pool->super.geometry.window = 4u + fz_u8(in);
    slot->number = fz_u8(in);
    slot->state = (flags & 1) != 0 ? PM_SLOT_CLOSED : PM_SLOT_OPEN;
    slot->epoch = FZ_EPOCH;
    slot->nonce = FZ_NONCE;
    slot->position_seq = (flags & 2) != 0 ? fz_interesting(fz_u8(in)) : fz_u8(in);
    slot->position_off = (uint64_t)fz_u16(in) * PM_RECORD_ALIGN;
    if ((flags & 4) != 0) /* near the end of all log offsets */
        slot->position_off = UINT64_MAX - 63 - slot->position_off;
    slot->closing_seq = slot->position_seq + fz_u8(in);
    in->left = in->left > 5 ? in->left - 5 : 0; /* kept for later */
    in->at += in->left > 0 ? 5 : 0;
}

static void mend(uint8_t *ring, const struct pm_pool *pool, const struct pm_slot *slot)
{
    uint64_t ring_size = pool->super.geometry.ring_size;

    for (uint64_t from = ring_size; from > 0;) {
        uint64_t log_off, to_end;
        uint32_t size;
        struct pm_place place;

        from -= PM_RECORD_ALIGN;
        log_off = slot->position_off + from;
        to_end = ring_size - log_off % ring_size;
        size = pm_record_peek(ring + log_off % ring_size, cn_min64(to_end, ring_size - from));
        if (size == 0)
            continue;
        place = pm_slot_place(pool, slot, log_off);
        fz_mend_record(ring + log_off % ring_size, size, &place, ring_size);
    }
}

static void compare(const struct found *f, const struct ref_record *ref, uint32_t count)
{
    FZ_NEED(f->count == count, "the scan reports %u records, the reference %u", f->count, count);
    for (uint32_t i = 0; i < count; i++)
        FZ_NEED(f->list[i].log_off == ref[i].log_off && f->list[i].seq == ref[i].seq &&
                f->list[i].size == ref[i].size && f->list[i].type == ref[i].type,
            "record %u: sequence %llu at %llu, the reference has %llu at %llu", i,
            (unsigned long long)f->list[i].seq, (unsigned long long)f->list[i].log_off,
            (unsigned long long)ref[i].seq, (unsigned long long)ref[i].log_off);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pm_pool pool;
    static struct found f, part;
    static struct ref_record ref[FOUND_MAX];
    struct fz_input in = {data, size};
    struct ref_slot as = {.window = 0};
    struct pm_slot slot = {.number = 0};
    uint8_t *ring;
    uint32_t count;

    pool.super.pool = fz_pool_uuid;
    pool.super.node = FZ_NODE;
    read_slot(&in, &slot, &pool);
    size = cn_min64(in.left, RING_MAX) / PM_RECORD_ALIGN * PM_RECORD_ALIGN;
    if (size == 0)
        return 0;
    pool.super.geometry.ring_size = size;
    ring = fz_guard_end(0, in.at, size);
    if (slot.position_off <= UINT64_MAX - size)
        mend(ring, &pool, &slot);
    f = (struct found){.ring = ring, .ring_size = size};
    if (pm_slot_scan(&pool, &slot, ring, add, &f) != 0) {
        FZ_NEED(slot.position_off > UINT64_MAX - size, "the scan ends with an error");
        return 0;
    }
    as = (struct ref_slot){.place = {.slot = slot.number, .epoch = FZ_EPOCH, .nonce = FZ_NONCE,
                               .node = FZ_NODE},
        .position_seq = slot.position_seq, .position_off = slot.position_off,
        .closing_seq = slot.closing_seq, .window = pool.super.geometry.window, .ring_size = size,
        .closed = slot.state == PM_SLOT_CLOSED};
    memcpy(as.place.pool, fz_pool_uuid.b, 16);
    count = ref_scan(&as, ring, ref, FOUND_MAX);
    compare(&f, ref, count);
    if (count > 1) {
        part = (struct found){.ring = ring, .ring_size = size, .stop_at = 1 + data[0] % count};
        FZ_NEED(pm_slot_scan(&pool, &slot, ring, add, &part) == CAIRN_E_LIMIT, "not stopped");
        compare(&part, ref, part.stop_at);
    }
    return 0;
}
