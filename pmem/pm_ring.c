/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_ring.c: a slot's log ring: places, the snapshot, and the scan of the live window.
 *
 * The scan does not follow a chain: writes of different age become durable in any order, so a lost
 * record may have valid successors. It looks for a record at every 64-byte boundary that no valid
 * record covers. The log offset is part of the crc, so what an earlier lap left behind is never
 * valid; and the nonce is, so a value that imitates a record is not either.
 */
#include "pmem/pm_slot.h"

#include "include/internal/cn_mutant.h"

/* Of struct rd_position_wire in a ring's header page: part of the wire format as well. */
#define POSITION_OFF 64u

struct pm_place pm_slot_place(
    const struct pm_pool *pool, const struct pm_slot *slot, uint64_t log_off)
{
    return (struct pm_place){
        .pool = pool->super.pool,
        .slot = slot->number,
        .epoch = slot->epoch,
        .nonce = slot->nonce,
        .log_off = log_off,
    };
}

uint64_t pm_slot_log_at(const struct pm_pool *pool, uint16_t number, uint64_t log_off)
{
    CAIRN_ASSERT(number < pool->super.geometry.slot_count);
    return pm_ring_off(pool, number) + PM_RING_HEADER_SIZE +
        log_off % pool->super.geometry.ring_size;
}

void pm_slot_flush_log(struct pm_pool *pool, uint16_t number, uint64_t log_off, uint64_t size)
{
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint64_t first;

    size = cn_min64(size, ring_size);
    first = cn_min64(size, ring_size - log_off % ring_size);
    pm_flush(&pool->pm, pm_slot_log_at(pool, number, log_off), first);
    pm_flush(&pool->pm, pm_slot_log_at(pool, number, 0), size - first);
}

void pm_slot_snapshot(const struct pm_pool *pool, uint16_t number, void *snapshot)
{
    pm_read(&pool->pm, pm_slot_log_at(pool, number, 0), snapshot, pool->super.geometry.ring_size);
}

void pm_slot_publish(struct pm_pool *pool, const struct pm_slot *slot)
{
    uint64_t off = pm_ring_off(pool, slot->number) + POSITION_OFF;

    pm_store64(&pool->pm, off, slot->position_seq);
    pm_store64(&pool->pm, off + 8, slot->position_off);
    pm_flush(&pool->pm, off, 16);
}

bool pm_mark_is_set(const struct pm_slot *slot, uint64_t seq, uint64_t mark)
{
    return mark == pm_word_value(slot->nonce, seq, PM_WORD_MARK);
}

/* ---- scan ---- */

struct scan {
    const struct pm_pool *pool;
    const struct pm_slot *slot;
    const uint8_t *ring;
    struct pm_place place; /* but for its log offset */
    uint64_t end;       /* of the window, a log offset */
    uint64_t *seen;     /* a bit per sequence of the window */
};

/* The valid record at a log offset: true, with *ret. */
static bool record_at(struct scan *s, uint64_t log_off, struct pm_record *ret)
{
    uint64_t ring_size = s->pool->super.geometry.ring_size;
    uint64_t to_ring_end = ring_size - log_off % ring_size;
    const uint8_t *at = s->ring + log_off % ring_size;
    uint16_t node = s->pool->super.node;
    uint32_t size = pm_record_peek(at, cn_min64(to_ring_end, s->end - log_off));

    if (size == 0 || pm_record_is_elsewhere(at, size, &s->place, node))
        return false;
    s->place.log_off = log_off;
    if (pm_record_fault(at, size, &s->place, node, ret) != NULL)
        return false;
    /* A pad that ends elsewhere than at the ring's end would hide what lies in it. */
    return ret->type != PM_RECORD_PAD || ret->size == to_ring_end;
}

static bool is_wanted(const struct scan *s, const struct pm_record *record)
{
    uint64_t index;

    if (record->type == PM_RECORD_PAD || record->seq <= s->slot->position_seq)
        return false;
    index = record->seq - s->slot->position_seq - 1;
    if (index >= s->pool->super.geometry.window)
        return false;
    if (s->slot->state == PM_SLOT_CLOSED && record->seq > s->slot->closing_seq)
        return false;
    if ((s->seen[index / 64] >> index % 64 & 1) != 0)
        return false;
    s->seen[index / 64] |= UINT64_C(1) << index % 64;
    return true;
}

int pm_slot_scan(const struct pm_pool *pool, const struct pm_slot *slot, const void *ring,
    pm_slot_found_fn found, void *arg)
{
    uint64_t seen[65536 / 64];
    struct scan s = {
        .pool = pool,
        .slot = slot,
        .ring = ring,
        .place = pm_slot_place(pool, slot, 0),
        .seen = seen,
    };
    struct pm_record record;
    uint64_t at = slot->position_off;

    s.place.crc = pm_place_crc(&s.place);
    CAIRN_ASSERT(pool->super.geometry.window <= 65536);
    memset(seen, 0, cn_align_up(pool->super.geometry.window, 64) / 8);
    if (__builtin_add_overflow(at, pool->super.geometry.ring_size, &s.end))
        return cn_fail(CAIRN_E_CORRUPT_SLOT, "slot %u: its position is impossible", slot->number);
    while (at < s.end) {
        if (!record_at(&s, at, &record)) {
            if (CN_MUTANT(p_hole_ends_scan))
                break;
            at += PM_RECORD_ALIGN;
            continue;
        }
        if (is_wanted(&s, &record)) {
            int rc = found(arg, &record);

            if (rc < 0)
                return rc;
        }
        at += record.size;
    }
    return 0;
}
