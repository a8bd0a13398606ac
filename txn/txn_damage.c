/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_damage.c: committed records that do not check. A mark is stored only when its record is
 * durable at all participants, so the transaction was committed and the medium has lost what it
 * wrote here. A record of one participant has no mark; the next record of its slot calls it done.
 *
 * Such a sequence gets no tombstone, for ABORTED would be a lie: its place stays REJECTED, the
 * position never passes it, its slot is not handed out again, and its keys stay locked while this
 * incarnation lasts. After a restart nobody knows them any more: a node does not serve then unless
 * it is told to (rec_start.c). The log, `cairn inspect` and `cairn recover` say which record.
 */
#include <errno.h>

#include "txn/txn_part_internal.h"

#define MARK_OFF offsetof(struct pm_record_pm, mark)

/* Marks that are looked for: open addressing by their own bits, which are as good as random. */
struct wanted {
    uint64_t *mark, *seq;
    uint32_t capacity; /* a power of two, at least twice what is in it */
};

static uint64_t *find_slot(const struct wanted *wanted, uint64_t mark, uint64_t **ret_seq)
{
    uint32_t i = (uint32_t)mark & (wanted->capacity - 1);
    while (wanted->mark[i] != 0 && wanted->mark[i] != mark)
        i = (i + 1) & (wanted->capacity - 1);
    *ret_seq = &wanted->seq[i];
    return &wanted->mark[i];
}

/* Errors: -ENOMEM. */
static int want_missing(
    struct txn_part *part, struct txn_part_slot *slot, struct wanted *wanted)
{
    const struct pm_slot *media = &slot->media;
    uint64_t last = media->position_seq + part->window;
    const uint64_t base = pm_word_base(media->nonce, PM_WORD_MARK);

    wanted->capacity = 2;
    while (wanted->capacity < 2 * (part->window - txn_part_in_use(slot)))
        wanted->capacity *= 2;
    wanted->mark = calloc(wanted->capacity, 2 * sizeof(*wanted->mark));
    if (wanted->mark == NULL)
        return -ENOMEM;
    wanted->seq = wanted->mark + wanted->capacity;
    if (media->state == PM_SLOT_CLOSED)
        last = cn_min64(last, media->closing_seq);
    for (uint64_t seq = media->position_seq + 1; seq <= last; seq++) {
        uint64_t *at_seq, mark = pm_word_of(base, seq);
        if (txn_part_find(part, slot, seq) != NULL ||
            pm_slot_has_tombstone(part->pool, media, seq))
            continue;
        *find_slot(wanted, mark, &at_seq) = mark;
        *at_seq = seq;
    }
    return 0;
}

static int keep(
    struct txn_part *part, struct txn_part_slot *slot, uint64_t seq, const char *why)
{
    struct txn_entry *entry = txn_part_entry_at(part, slot, seq);
    if (entry == NULL)
        return -ENOMEM;
    if (entry->state != TXN_ENTRY_NONE)
        return 0; /* its mark stands twice in the ring */
    entry->seq = seq;
    entry->has_record = false;
    entry->doubt = NULL;
    txn_part_set_state(slot, entry, TXN_ENTRY_REJECTED);
    slot->seq_max = cn_max64(slot->seq_max, seq);
    slot->damaged = true;
    part->stats.rejected++;
    (void)snprintf(slot->broken_text, sizeof(slot->broken_text),
        "CAIRN_E_CORRUPT_RECORD: slot %u: record %llu %s, and is damaged", slot->media.number,
        (unsigned long long)seq, why);
    cn_log(part->env, CN_LOG_ERROR, "node %u: %s", part->pool->super.node, slot->broken_text);
    return 0;
}

/* Places that are lost, of sequences that a record found here calls done. */
static int find_done(struct txn_part *part, struct txn_part_slot *slot)
{
    uint64_t done = 0;
    int error = 0;

    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        const struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry != NULL && entry->has_record && entry->record.type == PM_RECORD_TX)
            done = cn_max64(done, entry->record.done);
    }
    for (uint64_t seq = slot->media.position_seq + 1; error == 0 && seq <= done; seq++) {
        if (txn_part_find(part, slot, seq) == NULL &&
            !pm_slot_has_tombstone(part->pool, &slot->media, seq))
            error = keep(part, slot, seq, "was committed, as a later one says");
    }
    return error;
}

/* Look at every line that no record covers. What is looked for is listed when something is there
 * that could be a mark. */
static int search_marks(struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring,
    struct wanted *wanted)
{
    uint64_t lines = part->pool->super.geometry.ring_size / PM_RECORD_ALIGN;

    for (uint64_t word = 0; word * 64 < lines; word++) {
        for (uint64_t bare = ~part->covered[word]; bare != 0; bare &= bare - 1) {
            uint64_t line = word * 64 + (uint64_t)__builtin_ctzll(bare), *at_seq;
            struct le64 field;
            int error = 0;
            if (line >= lines)
                break;
            memcpy(&field, ring + line * PM_RECORD_ALIGN + MARK_OFF, sizeof(field));
            if (le64_get(field) == 0)
                continue;
            if (wanted->mark == NULL)
                error = want_missing(part, slot, wanted);
            if (error == 0 && *find_slot(wanted, le64_get(field), &at_seq) != 0)
                error = keep(part, slot, *at_seq, "is marked committed");
            if (error != 0)
                return error;
        }
    }
    return 0;
}

int txn_part_find_damaged(struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring)
{
    struct wanted wanted = {.capacity = 0};
    int error;

    slot->damaged = false;
    if (txn_part_in_use(slot) == part->window)
        return 0; /* none is missing */
    error = search_marks(part, slot, ring, &wanted);
    free(wanted.mark);
    return error != 0 ? error : find_done(part, slot);
}
