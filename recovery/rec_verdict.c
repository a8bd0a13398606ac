/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_verdict.c: find or prevent (docs/commit-protocol.md). The verdict is a function of durable
 * facts, so that whoever computes it gets the same:
 *
 *   any participant says COMMITTED, or all say PRESENT   -> committed
 *   any says ABORTED (a durable tombstone, or it closed
 *   the epoch below that sequence)                       -> aborted
 *   FORGOTTEN or no answer                               -> stays in doubt
 *
 * A participant that is asked and does not have the record prevents it: it fences the slot, looks
 * once more, and only then says ABORTED; the closing sequence and the tombstones of R14 are what it
 * rests on.
 */
#include "recovery/rec_verdict.h"

#include "include/internal/cn_mutant.h"

bool rec_is_same_tx(const struct txn_entry *entry, const struct rd_place_wire *place)
{
    struct cn_txid txid = {place->coordinator, le64_get(place->count)};
    return cn_txid_equal(&entry->record.txid, &txid);
}

static enum rd_verdict find_retired(
    const struct rec_finder *finder, const struct rd_place_wire *place)
{
    const struct pm_retired *r =
        pm_retired_find(finder->retired, le16_get(place->slot), le64_get(place->epoch));
    if (r == NULL || !cn_uuid_equal(&r->owner, &place->coordinator))
        return RD_VERDICT_FORGOTTEN;
    uint64_t seq = le64_get(place->seq);
    if (seq > r->closing_seq || pm_retired_has_tombstone(finder->retired, r, seq))
        return RD_VERDICT_ABORTED;
    return RD_VERDICT_COMMITTED;
}

/* What an entry of the window says; NONE: nothing is there. */
static enum rd_verdict find_entry(const struct rec_finder *finder, struct txn_part_slot *slot,
    const struct rd_place_wire *place)
{
    struct txn_entry *entry = txn_part_find(finder->part, slot, le64_get(place->seq));
    if (entry == NULL)
        return RD_VERDICT_NONE;
    if (entry->state == TXN_ENTRY_ABORTED || entry->state == TXN_ENTRY_DROPPED)
        return RD_VERDICT_ABORTED;
    if (!entry->has_record) /* damaged: all that is known is whether it was applied before */
        return pm_slot_is_applied(finder->part->pool, &slot->media, entry->seq)
            ? RD_VERDICT_COMMITTED
            : RD_VERDICT_IN_DOUBT;
    if (!rec_is_same_tx(entry, place) && !CN_MUTANT(n_present_without_txid))
        return RD_VERDICT_FORGOTTEN; /* R15: a sequence has one transaction; the question is wrong
                                      */
    if (entry->state == TXN_ENTRY_APPLIED || entry->state == TXN_ENTRY_RELEASED)
        return RD_VERDICT_COMMITTED;
    if (!CN_MUTANT(n_present_volatile) && !finder->part->pool->pm.read_only)
        txn_part_persist(finder->part, slot, entry);
    return RD_VERDICT_PRESENT;
}

static enum rd_verdict find_current(const struct rec_finder *finder, struct txn_part_slot *slot,
    const struct rd_place_wire *place)
{
    struct pm_slot *media = &slot->media;
    uint64_t seq = le64_get(place->seq);

    /* Who does not know the session asks for nothing that was ever there: no fence for that. */
    if (seq == 0 || !cn_uuid_equal(&media->owner, &place->coordinator))
        return RD_VERDICT_FORGOTTEN;
    if (pm_slot_has_tombstone(finder->part->pool, media, seq))
        return RD_VERDICT_ABORTED;
    if (seq <= media->position_seq)
        return RD_VERDICT_COMMITTED;
    enum rd_verdict verdict = find_entry(finder, slot, place);
    if (verdict != RD_VERDICT_NONE)
        return verdict;
    if (CN_MUTANT(n_abort_without_fence))
        return RD_VERDICT_ABORTED;
    if (finder->fence(finder->arg, media->number) != 0)
        return RD_VERDICT_NONE;
    verdict = find_entry(finder, slot, place);
    return verdict != RD_VERDICT_NONE ? verdict : RD_VERDICT_ABORTED;
}

enum rd_verdict rec_find(const struct rec_finder *finder, const struct rd_place_wire *place)
{
    uint16_t number = le16_get(place->slot);
    if (le16_get(place->node) != finder->node || number == 0 ||
        number >= finder->part->slot_count)
        return RD_VERDICT_FORGOTTEN;
    struct txn_part_slot *slot = &finder->part->slot[number];
    if (slot->media.state != PM_SLOT_FREE && slot->media.epoch == le64_get(place->epoch))
        return find_current(finder, slot, place);
    return find_retired(finder, place);
}

void rec_participant_place(const struct pm_record *record, uint32_t i, struct rd_place_wire *ret)
{
    const struct pm_participant_pm *p = &record->participant[i];
    memset(ret, 0, sizeof(*ret));
    ret->coordinator = record->txid.coordinator;
    ret->count = le64_make(record->txid.count);
    ret->epoch = p->epoch;
    ret->seq = p->seq;
    ret->view = le32_make((uint32_t)record->view);
    ret->slot = p->slot;
    ret->node = p->node;
}

enum rd_verdict rec_verdict_of(const uint8_t *answers, uint32_t count, bool *ret_contradiction)
{
    uint32_t present = 0, committed = 0, aborted = 0;
    for (uint32_t i = 0; i < count; i++) {
        present += answers[i] == RD_VERDICT_PRESENT;
        committed += answers[i] == RD_VERDICT_COMMITTED;
        aborted += answers[i] == RD_VERDICT_ABORTED;
    }
    *ret_contradiction = committed != 0 && aborted != 0;
    if (*ret_contradiction)
        return RD_VERDICT_NONE;
    if (aborted != 0)
        return RD_VERDICT_ABORTED;
    if (CN_MUTANT(n_silence_aborts) && committed == 0 && present < count)
        return RD_VERDICT_ABORTED;
    return committed != 0 || present == count ? RD_VERDICT_COMMITTED : RD_VERDICT_NONE;
}
