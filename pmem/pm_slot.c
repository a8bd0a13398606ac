/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_slot.c: slot headers, states, tombstones.
 *
 * A header has two copies; generation g lies in copy g & 1, so storing never touches the copy that
 * holds: after a crash the old or the new header is read. A copy of all zeros is one never written.
 *
 * A tombstone is two 8-byte words, of which a crash may keep either: it counts when its check fits
 * its sequence under the epoch's nonce, so entries of earlier epochs need not be cleared. Entries
 * are filled from the front, but a crash may leave a hole; every search therefore looks at the
 * whole area, else filling the hole would bring to light an entry that nobody reckoned with.
 */
#include "pmem/pm_format.h"
#include "pmem/pm_slot.h"

static uint64_t slot_off(const struct pm_pool *pool, uint16_t number)
{
    CAIRN_ASSERT(number < pool->super.geometry.slot_count);
    return pool->super.slots_off + (uint64_t)number * pool->super.slot_stride;
}

static uint64_t tombstone_off(const struct pm_pool *pool, uint16_t number, uint32_t i)
{
    return slot_off(pool, number) + PM_SLOT_HEADER_SIZE +
        i * (uint64_t)sizeof(struct pm_tombstone_pm);
}

static uint64_t state_off(const struct pm_pool *pool, uint16_t number, uint64_t seq)
{
    return tombstone_off(pool, number, pool->super.tombstone_max) +
        seq % pool->super.geometry.window * sizeof(struct le64);
}

/* ---- header ---- */

static uint32_t header_crc(const struct pm_pool *pool, uint16_t number, const struct pm_slot_pm *h)
{
    struct pm_slot_pm copy = *h;
    struct le32 seed = le32_make(number);

    copy.crc = le32_make(0);
    return cn_crc32c(cn_crc32c(pool->crc_seed, &seed, sizeof(seed)), &copy, sizeof(copy));
}

enum copy_state { COPY_ZERO, COPY_BAD, COPY_VALID };

static enum copy_state read_copy(const struct pm_pool *pool, uint16_t number, unsigned i,
    struct pm_slot_pm *h)
{
    static const struct pm_slot_pm zero;
    uint64_t generation;

    pm_read(&pool->pm, slot_off(pool, number) + i * PM_SLOT_COPY_STRIDE, h, sizeof(*h));
    if (memcmp(h, &zero, sizeof(zero)) == 0)
        return COPY_ZERO;
    generation = le64_get(h->generation);
    if (le32_get(h->crc) != header_crc(pool, number, h) || generation == 0 || (generation & 1) != i)
        return COPY_BAD;
    return COPY_VALID;
}

/* Far from where counters wrap, and more than any pool lives to see. */
#define COUNTER_MAX (UINT64_C(1) << 62)

/* NULL: what the header says is possible. */
static const char *check_header(const struct pm_pool *pool, const struct pm_slot_pm *h)
{
    static const uint8_t zero[sizeof(h->reserved)];
    uint16_t state = le16_get(h->state);

    if (le16_get(h->reserved0) != 0 || memcmp(h->reserved, zero, sizeof(zero)) != 0)
        return "reserved bytes are not zero";
    if (state > PM_SLOT_CLOSED)
        return "its state is unknown";
    if (state != PM_SLOT_FREE && le64_get(h->epoch) == 0)
        return "it was handed out without an epoch";
    if (le64_get(h->position_off) % PM_RECORD_ALIGN != 0)
        return "its position is not aligned";
    if (state == PM_SLOT_CLOSED && le64_get(h->closing_seq) < le64_get(h->position_seq))
        return "its position is behind its closing sequence";
    if (state == PM_SLOT_CLOSED &&
        le64_get(h->closing_seq) - le64_get(h->position_seq) > pool->super.geometry.window)
        return "its closing sequence is beyond its window";
    if (le64_get(h->generation) > COUNTER_MAX || le64_get(h->epoch) > COUNTER_MAX ||
        le64_get(h->position_seq) > COUNTER_MAX || le64_get(h->position_off) > COUNTER_MAX)
        return "a counter is at its end";
    return NULL;
}

/* Zero, as fresh memory is, is no check of anything. */
static bool entry_is_valid(const struct pm_slot *slot, uint64_t seq, uint64_t check)
{
    return check != 0 && check == pm_word_value(slot->nonce, seq, PM_WORD_TOMBSTONE);
}

static void read_entry(const struct pm_pool *pool, uint16_t number, uint32_t i, uint64_t ret[2])
{
    uint64_t off = tombstone_off(pool, number, i);

    ret[0] = pm_load64(&pool->pm, off + offsetof(struct pm_tombstone_pm, seq));
    ret[1] = pm_load64(&pool->pm, off + offsetof(struct pm_tombstone_pm, check));
}

/* What is read here may be visible and not durable, after a mere process death (R11). */
static void start_write_back(const struct pm_pool *pool, uint16_t number)
{
    if (!pool->pm.read_only)
        pm_flush(&pool->pm, slot_off(pool, number), pool->super.slot_stride);
}

int pm_slot_load(const struct pm_pool *pool, uint16_t number, struct pm_slot *ret)
{
    struct pm_slot_pm copy[2];
    enum copy_state state[2];
    const struct pm_slot_pm *h = NULL;
    const char *why;

    start_write_back(pool, number);
    for (unsigned i = 0; i < 2; i++) {
        state[i] = read_copy(pool, number, i, &copy[i]);
        if (state[i] == COPY_VALID &&
            (h == NULL || le64_get(copy[i].generation) > le64_get(h->generation)))
            h = &copy[i];
    }
    if (h == NULL && state[0] == COPY_BAD && state[1] == COPY_BAD)
        return cn_fail(
            CAIRN_E_CORRUPT_SLOT, "slot %u: neither copy of its header is valid", number);
    if (h == NULL) { /* never used, or its first header was never finished */
        *ret = (struct pm_slot){.number = number, .state = PM_SLOT_FREE};
        return 0;
    }
    why = check_header(pool, h);
    if (why != NULL)
        return cn_fail(CAIRN_E_CORRUPT_SLOT, "slot %u: %s", number, why);
    *ret = (struct pm_slot){
        .number = number,
        .state = le16_get(h->state),
        .generation = le64_get(h->generation),
        .epoch = le64_get(h->epoch),
        .nonce = le64_get(h->nonce),
        .view = le64_get(h->view),
        .owner = h->owner,
        .position_seq = le64_get(h->position_seq),
        .position_off = le64_get(h->position_off),
        .closing_seq = le64_get(h->closing_seq),
        .incarnation = le64_get(h->incarnation),
        .closed_s = le64_get(h->closed_s),
    };
    ret->tombstone_count = pm_slot_tombstones(pool, ret, NULL, 0);
    return 0;
}

void pm_slot_store(struct pm_pool *pool, struct pm_slot *slot)
{
    struct pm_slot_pm h;
    uint64_t off;

    CAIRN_DASSERT(slot->position_off % PM_RECORD_ALIGN == 0);
    CAIRN_DASSERT(slot->state == PM_SLOT_FREE || slot->epoch != 0);
    slot->generation++;
    h = (struct pm_slot_pm){
        .generation = le64_make(slot->generation),
        .state = le16_make((uint16_t)slot->state),
        .epoch = le64_make(slot->epoch),
        .nonce = le64_make(slot->nonce),
        .owner = slot->owner,
        .view = le64_make(slot->view),
        .position_seq = le64_make(slot->position_seq),
        .position_off = le64_make(slot->position_off),
        .closing_seq = le64_make(slot->closing_seq),
        .incarnation = le64_make(slot->incarnation),
        .closed_s = le64_make(slot->closed_s),
    };
    h.crc = le32_make(header_crc(pool, slot->number, &h));
    off = slot_off(pool, slot->number) + (slot->generation & 1) * PM_SLOT_COPY_STRIDE;
    pm_copy(&pool->pm, off, &h, sizeof(h));
    pm_flush(&pool->pm, off, sizeof(h));
}

/* ---- states ---- */

void pm_slot_set_applied_run(
    struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq, uint32_t count)
{
    const uint32_t window = pool->super.geometry.window;
    const uint64_t base = pm_word_base(slot->nonce, PM_WORD_APPLIED);

    CAIRN_DASSERT(count <= window);
    while (count > 0) {
        uint32_t part = (uint32_t)cn_min64(count, window - seq % window);
        uint64_t off = state_off(pool, slot->number, seq);

        for (uint32_t i = 0; i < part; i++)
            pm_store64(&pool->pm, off + i * sizeof(struct le64), pm_word_of(base, seq + i));
        pm_flush(&pool->pm, off, part * sizeof(struct le64));
        seq += part;
        count -= part;
    }
}

bool pm_slot_is_applied(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq)
{
    return pm_load64(&pool->pm, state_off(pool, slot->number, seq)) ==
        pm_word_value(slot->nonce, seq, PM_WORD_APPLIED);
}

/* ---- tombstones ---- */

/* Index of the valid entry of `seq`, or tombstone_max. */
static uint32_t find_tombstone(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq)
{
    uint32_t max = pool->super.tombstone_max;
    uint64_t entry[2];

    for (uint32_t i = 0; i < max; i++) {
        read_entry(pool, slot->number, i, entry);
        if (entry[0] == seq && entry_is_valid(slot, seq, entry[1]))
            return i;
    }
    return max;
}

int pm_slot_add_tombstone(struct pm_pool *pool, struct pm_slot *slot, uint64_t seq)
{
    uint32_t max = pool->super.tombstone_max, i = find_tombstone(pool, slot, seq);
    uint64_t entry[2], off;

    if (i < max) { /* it may be visible and still not durable: flush it all the same */
        pm_flush(&pool->pm, tombstone_off(pool, slot->number, i), sizeof(struct pm_tombstone_pm));
        return 0;
    }
    for (i = 0; i < max; i++) {
        read_entry(pool, slot->number, i, entry);
        if (!entry_is_valid(slot, entry[0], entry[1]))
            break;
    }
    if (i == max)
        return cn_fail(CAIRN_E_LIMIT, "slot %u: all %u tombstones of epoch %llu are in use",
            slot->number, max, (unsigned long long)slot->epoch);
    off = tombstone_off(pool, slot->number, i);
    pm_store64(&pool->pm, off + offsetof(struct pm_tombstone_pm, seq), seq);
    pm_store64(&pool->pm, off + offsetof(struct pm_tombstone_pm, check),
        pm_word_value(slot->nonce, seq, PM_WORD_TOMBSTONE));
    pm_flush(&pool->pm, off, sizeof(struct pm_tombstone_pm));
    slot->tombstone_count++;
    return 0;
}

bool pm_slot_has_tombstone(const struct pm_pool *pool, const struct pm_slot *slot, uint64_t seq)
{
    /* Asked for every record applied; nearly all epochs have none. */
    return slot->tombstone_count != 0 &&
        find_tombstone(pool, slot, seq) < pool->super.tombstone_max;
}

uint32_t pm_slot_tombstones(
    const struct pm_pool *pool, const struct pm_slot *slot, uint64_t *ret_seq, uint32_t max)
{
    uint32_t count = 0;
    uint64_t entry[2];

    for (uint32_t i = 0; i < pool->super.tombstone_max; i++) {
        read_entry(pool, slot->number, i, entry);
        if (!entry_is_valid(slot, entry[0], entry[1]))
            continue;
        if (count < max)
            ret_seq[count] = entry[0];
        count++;
    }
    return count;
}
