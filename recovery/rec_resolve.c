/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_resolve.c: records in doubt at a node that serves: who is asked, how often, what is done with
 * the verdict (rec_verdict.c says what it is). Everything here can be run again after a crash at
 * any step.
 */
#include "recovery/rec_internal.h"

#include "recovery/rec_verdict.h"

#define ASK_NS_MIN (5 * REC_MS)
#define ASK_NS_MAX (500 * REC_MS)
#define WAITER_NS (300 * REC_MS)
#define COMPLAIN_NS (5000 * REC_MS)

static int finder_fence(void *arg, uint16_t number)
{
    return rec_slot_fence(arg, number, false);
}

enum rd_verdict rec_answer(struct rec_node *node, const struct rd_place_wire *place)
{
    const struct rec_finder finder = {
        .node = node->id,
        .part = &node->part,
        .retired = node->retired,
        .arg = node,
        .fence = finder_fence,
    };
    uint16_t number = le16_get(place->slot);
    if (number < node->part.slot_count && node->slot[number].stuck)
        return RD_VERDICT_NONE;
    /* What is in the ring and not polled yet is no reason to fence a session that lives. */
    if (number != 0 && number < node->part.slot_count) {
        struct txn_part_slot *slot = node->slot[number].part;
        if (slot->media.epoch == le64_get(place->epoch) &&
            txn_part_find(&node->part, slot, le64_get(place->seq)) == NULL)
            (void)txn_part_poll(&node->part, slot);
    }
    return rec_find(&finder, place);
}

/* ---- doubts ---- */

static struct rec_doubt *doubt_new(struct rec_node *node, uint16_t number, struct txn_entry *entry)
{
    struct rec_doubt *doubt = calloc(1, sizeof(*doubt));
    if (doubt == NULL)
        return NULL; /* tried again next turn */
    doubt->id = ++node->doubt_id;
    doubt->slot = number;
    doubt->seq = entry->seq;
    doubt->epoch = node->slot[number].part->media.epoch;
    doubt->txid = entry->record.txid;
    doubt->entry = entry;
    doubt->since_ns = rec_now(node);
    doubt->next = node->doubts;
    node->doubts = doubt;
    entry->doubt = doubt;
    return doubt;
}

static void waiter_reply(struct rec_node *node, struct rec_doubt *doubt, struct rec_waiter *waiter,
    enum rd_verdict verdict)
{
    struct rd_answer_wire reply = {.verdict = le32_make(verdict)};
    if (waiter->guest == NULL)
        return;
    reply.place.coordinator = doubt->txid.coordinator;
    reply.place.count = le64_make(doubt->txid.count);
    reply.place.epoch = le64_make(doubt->epoch);
    reply.place.seq = le64_make(doubt->seq);
    reply.place.slot = le16_make(doubt->slot);
    reply.place.node = le16_make(node->id);
    rec_reply(node, waiter->guest, RD_MSG_RESOLVE_REPLY, waiter->id, 0, &reply, sizeof(reply));
    waiter->guest = NULL;
}

static void doubt_end(struct rec_node *node, struct rec_doubt *doubt, enum rd_verdict verdict)
{
    struct rec_doubt **link = &node->doubts;
    while (*link != doubt)
        link = &(*link)->next;
    *link = doubt->next;
    for (uint32_t i = 0; i < REC_WAITERS_MAX; i++)
        waiter_reply(node, doubt, &doubt->waiter[i], verdict);
    if (doubt->entry->doubt == doubt)
        doubt->entry->doubt = NULL;
    free(doubt);
}

void rec_resolve_free(struct rec_node *node)
{
    while (node->doubts != NULL) {
        struct rec_doubt *doubt = node->doubts;
        node->doubts = doubt->next;
        free(doubt);
    }
}

void rec_resolve_forget_guest(struct rec_node *node, const struct rec_guest *guest)
{
    for (struct rec_doubt *doubt = node->doubts; doubt != NULL; doubt = doubt->next)
        for (uint32_t i = 0; i < REC_WAITERS_MAX; i++)
            if (doubt->waiter[i].guest == guest)
                doubt->waiter[i].guest = NULL;
}

/* Ask everybody who has not answered. */
static void ask_round(struct rec_node *node, struct rec_doubt *doubt)
{
    const struct pm_record *record = &doubt->entry->record;
    for (uint32_t i = 0; i < record->participant_count; i++) {
        struct rd_ask_wire ask;
        uint16_t id = le16_get(record->participant[i].node);
        if (doubt->answer[i] == RD_VERDICT_COMMITTED || doubt->answer[i] == RD_VERDICT_ABORTED ||
            doubt->answer[i] == RD_VERDICT_PRESENT)
            continue;
        rec_participant_place(record, i, &ask.place);
        cn_step(node->env, CN_STEP_r_ask);
        if (id == node->id) {
            doubt->answer[i] = (uint8_t)rec_answer(node, &ask.place);
            continue;
        }
        struct rec_peer *peer = rec_peer_find(node, id);
        if (peer != NULL && rec_peer_send(node, peer, RD_MSG_ASK, doubt->id, &ask, sizeof(ask)))
            node->stats.asks++;
    }
    uint64_t wait = ASK_NS_MIN << cn_min64(doubt->asked, 10);
    doubt->next_ask_ns = rec_now(node) + cn_min64(wait, ASK_NS_MAX);
    doubt->asked++;
}

static enum rd_verdict verdict_of(struct rec_node *node, struct rec_doubt *doubt)
{
    char text[CN_TXID_TEXT_SIZE];
    bool contradiction;
    enum rd_verdict verdict = rec_verdict_of(
        doubt->answer, doubt->entry->record.participant_count, &contradiction);
    if (contradiction && !doubt->complained) {
        doubt->complained = true;
        cn_log(node->env, CN_LOG_ERROR,
            "transaction %s: one participant says committed, another aborted; left alone",
            cn_txid_format(&doubt->entry->record.txid, text));
    }
    return verdict;
}

/* Whoever computes a verdict tells the others, so that they need not ask. */
static void tell(struct rec_node *node, const struct rec_doubt *doubt, enum rd_verdict verdict)
{
    const struct pm_record *record = &doubt->entry->record;
    cn_step(node->env, CN_STEP_r_told);
    for (uint32_t i = 0; i < record->participant_count; i++) {
        struct rd_answer_wire told = {.verdict = le32_make(verdict)};
        uint16_t id = le16_get(record->participant[i].node);
        struct rec_peer *peer = id == node->id ? NULL : rec_peer_find(node, id);
        if (peer == NULL || peer->state != REC_PEER_UP)
            continue;
        rec_participant_place(record, i, &told.place);
        if (rec_peer_send(node, peer, RD_MSG_TOLD, doubt->id, &told, sizeof(told)))
            node->stats.told++;
    }
}

/* Carry a verdict out here. False: not possible now. */
static bool carry_out(struct rec_node *node, uint16_t number, struct txn_entry *entry,
    enum rd_verdict verdict)
{
    struct txn_part_slot *slot = node->slot[number].part;
    cn_step(node->env, CN_STEP_r_verdict);
    if (verdict == RD_VERDICT_COMMITTED) {
        txn_part_persist(&node->part, slot, entry);
        txn_part_commit(&node->part, slot, entry);
        node->stats.resolved_committed++;
        return true;
    }
    if (txn_part_abort(&node->part, slot, entry) != 0) {
        cn_log(node->env, CN_LOG_ERROR, "slot %u: %s", number, cairn_last_error());
        return false;
    }
    node->stats.resolved_aborted++;
    return true;
}

static bool try_decide(struct rec_node *node, struct rec_doubt *doubt)
{
    enum rd_verdict verdict = verdict_of(node, doubt);
    if (verdict == RD_VERDICT_NONE)
        return false;
    if (!carry_out(node, doubt->slot, doubt->entry, verdict))
        return false;
    tell(node, doubt, verdict);
    doubt_end(node, doubt, verdict);
    return true;
}

static void complain(struct rec_node *node, struct rec_doubt *doubt)
{
    char text[CN_TXID_TEXT_SIZE];
    if (doubt->complained || rec_now(node) - doubt->since_ns < COMPLAIN_NS)
        return;
    doubt->complained = true;
    cn_log(node->env, CN_LOG_WARNING,
        "transaction %s stays in doubt: not every participant answers; its keys stay locked",
        cn_txid_format(&doubt->entry->record.txid, text));
}

/* The mark came. (A verdict that another node told ends the doubt by itself.) The position may have
 * passed the entry since, and another sequence may use its place: then it was committed, for an
 * abort never goes unnoticed here. */
static bool end_if_settled(struct rec_node *node, struct rec_doubt *doubt)
{
    const struct txn_entry *entry = doubt->entry;
    bool same = entry->doubt == doubt && entry->seq == doubt->seq;
    if (same && entry->state == TXN_ENTRY_FOUND)
        return false;
    bool aborted =
        same && (entry->state == TXN_ENTRY_ABORTED || entry->state == TXN_ENTRY_DROPPED);
    doubt_end(node, doubt, aborted ? RD_VERDICT_ABORTED : RD_VERDICT_COMMITTED);
    return true;
}

static uint32_t doubt_turn(struct rec_node *node, struct rec_doubt *doubt)
{
    uint64_t now = rec_now(node);
    if (end_if_settled(node, doubt))
        return 1;
    if (now >= doubt->next_ask_ns) {
        ask_round(node, doubt);
        if (try_decide(node, doubt))
            return 1;
    }
    for (uint32_t i = 0; i < REC_WAITERS_MAX; i++)
        if (doubt->waiter[i].guest != NULL && now >= doubt->waiter[i].deadline_ns)
            waiter_reply(node, doubt, &doubt->waiter[i], RD_VERDICT_IN_DOUBT);
    complain(node, doubt);
    return 0;
}

/* Records that are in doubt now: of closed slots all, of open ones those unmarked for too long
 * (R13). */
static void find_doubts(struct rec_node *node)
{
    uint64_t now = rec_now(node);
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        struct txn_part_slot *slot = node->slot[i].part;
        if (slot->count[TXN_ENTRY_FOUND] == 0 || node->slot[i].stuck)
            continue;
        for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
            struct txn_entry *entry = txn_part_find(&node->part, slot, seq);
            if (entry == NULL || entry->state != TXN_ENTRY_FOUND || entry->doubt != NULL)
                continue;
            if (slot->media.state == PM_SLOT_CLOSED ||
                now - entry->found_ns >= node->config->resolve_ms * REC_MS)
                (void)doubt_new(node, (uint16_t)i, entry);
        }
    }
}

uint32_t rec_resolve_turn(struct rec_node *node)
{
    uint32_t done = 0;
    find_doubts(node);
    for (struct rec_doubt *doubt = node->doubts, *next; doubt != NULL; doubt = next) {
        next = doubt->next; /* a fence on the way may make doubts, at the head: never behind it */
        done += doubt_turn(node, doubt);
    }
    return done;
}

void rec_on_answer(struct rec_node *node, const struct rd_answer_wire *answer)
{
    uint32_t verdict = le32_get(answer->verdict);
    if (verdict == RD_VERDICT_NONE || verdict > RD_VERDICT_FORGOTTEN)
        return;
    for (struct rec_doubt *doubt = node->doubts; doubt != NULL; doubt = doubt->next) {
        const struct pm_record *record = &doubt->entry->record;
        if (doubt->entry->state != TXN_ENTRY_FOUND || !rec_is_same_tx(doubt->entry, &answer->place))
            continue;
        for (uint32_t i = 0; i < record->participant_count; i++) {
            struct rd_place_wire place;
            rec_participant_place(record, i, &place);
            if (memcmp(&place, &answer->place, sizeof(place)) == 0)
                doubt->answer[i] = (uint8_t)verdict;
        }
        (void)try_decide(node, doubt);
        return;
    }
}

void rec_on_told(struct rec_node *node, const struct rd_answer_wire *told)
{
    const struct rd_place_wire *place = &told->place;
    uint16_t number = le16_get(place->slot);
    uint32_t verdict = le32_get(told->verdict);
    if (le16_get(place->node) != node->id || number == 0 || number >= node->part.slot_count ||
        (verdict != RD_VERDICT_COMMITTED && verdict != RD_VERDICT_ABORTED))
        return;
    struct rec_slot *slot = &node->slot[number];
    if (slot->stuck || slot->part->media.epoch != le64_get(place->epoch))
        return;
    struct txn_entry *entry = txn_part_find(&node->part, slot->part, le64_get(place->seq));
    if (entry == NULL || entry->state != TXN_ENTRY_FOUND || !rec_is_same_tx(entry, place))
        return; /* not here yet, or decided already; it will be asked about if need be */
    /* The doubt ends here: once the position has passed the entry, its state tells nothing any
     * more. */
    if (carry_out(node, number, entry, (enum rd_verdict)verdict) && entry->doubt != NULL)
        doubt_end(node, entry->doubt, (enum rd_verdict)verdict);
}

void rec_on_resolve(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_place_wire *place)
{
    struct rd_answer_wire reply = {.place = *place};
    enum rd_verdict verdict = rec_answer(node, place);
    struct rec_slot *slot = &node->slot[le16_get(place->slot) % node->part.slot_count];
    struct txn_entry *entry = verdict == RD_VERDICT_PRESENT
        ? txn_part_find(&node->part, slot->part, le64_get(place->seq))
        : NULL;

    if (entry != NULL && entry->state == TXN_ENTRY_COMMITTED)
        verdict = RD_VERDICT_COMMITTED;
    else if (entry != NULL && entry->state == TXN_ENTRY_FOUND) {
        struct rec_doubt *doubt = entry->doubt != NULL
            ? entry->doubt
            : doubt_new(node, slot->part->media.number, entry);
        for (uint32_t i = 0; doubt != NULL && i < REC_WAITERS_MAX; i++) {
            if (doubt->waiter[i].guest != NULL)
                continue;
            doubt->waiter[i] = (struct rec_waiter){guest, id, rec_now(node) + WAITER_NS};
            return; /* answered when it is decided, or as in doubt */
        }
    }
    if (verdict == RD_VERDICT_PRESENT || verdict == RD_VERDICT_NONE)
        verdict = RD_VERDICT_IN_DOUBT;
    reply.verdict = le32_make(verdict);
    rec_reply(node, guest, RD_MSG_RESOLVE_REPLY, id, 0, &reply, sizeof(reply));
}

static bool names(const struct pm_record *record, uint64_t off)
{
    for (uint32_t i = 0; i < record->lock_count; i++)
        if (le64_get(record->lock[i].off) == off)
            return true;
    for (uint32_t i = 0; i < record->block_count; i++)
        if (le64_get(record->block[i].off) == off)
            return true;
    return false;
}

bool rec_word_is_named(struct rec_node *node, uint16_t number, uint64_t off)
{
    struct txn_part_slot *slot = node->slot[number].part;
    if (slot->unresolved == 0)
        return false;
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        const struct txn_entry *entry = txn_part_find(&node->part, slot, seq);
        if (entry != NULL && entry->has_record && entry->state != TXN_ENTRY_DROPPED &&
            names(&entry->record, off))
            return true;
    }
    return false;
}
