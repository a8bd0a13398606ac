/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_message.c: what coordinators, tools and other nodes ask this node for. A message that does
 * not check costs its sender the connection; a request that is out of place gets PROTOCOL back and
 * does nothing.
 */
#include "recovery/rec_internal.h"

#include <errno.h>

static uint32_t status_to_wire(int status)
{
    return status == 0 ? 0 : (uint32_t)-status;
}

void rec_guest_drop(struct rec_node *node, struct rec_guest *guest)
{
    guest->doomed = true;
    if (guest->slot == 0)
        return;
    if (rec_slot_fence(node, guest->slot, false) != 0)
        cn_log(node->env, CN_LOG_ERROR, "%s", cairn_last_error());
    guest->slot = 0;
}

/* ---- replies ---- */

/* Who does not take the answers is cut off; nothing is lost silently. */
static void cut_off(struct rec_node *node, struct rec_guest *guest)
{
    cn_log(node->env, CN_LOG_WARNING, "slot %u: peer dropped, it takes no answer: %s", guest->slot,
        cairn_last_error());
    rec_guest_drop(node, guest);
}

static int keep_reply(struct rec_guest *guest, const void *message, uint32_t size)
{
    struct rec_reply **last = &guest->replies;
    struct rec_reply *reply;

    if (guest->reply_count == REC_REPLIES_MAX)
        return cn_fail(CAIRN_E_LIMIT, "%u answers wait for it already", guest->reply_count);
    reply = malloc(sizeof(*reply) + size);
    if (reply == NULL)
        return cn_fail(-ENOMEM, "no memory for an answer of %u bytes", size);
    reply->next = NULL;
    reply->size = size;
    memcpy(reply->message, message, size);
    while (*last != NULL)
        last = &(*last)->next;
    *last = reply;
    guest->reply_count++;
    return 0;
}

void rec_reply(struct rec_node *node, struct rec_guest *guest, uint32_t type, uint32_t id,
    int status, const void *body, uint32_t size)
{
    struct rd_message_wire *head = (struct rd_message_wire *)(void *)node->message;
    uint32_t whole = (uint32_t)sizeof(*head) + size;
    int error = CAIRN_E_AGAIN;

    if (guest->link.conn == NULL || guest->doomed)
        return;
    CAIRN_ASSERT(whole <= sizeof(node->message));
    head->magic = le32_make(RD_WIRE_MAGIC);
    head->type = le16_make((uint16_t)type);
    head->size = le16_make((uint16_t)size);
    head->id = le32_make(id);
    head->status = le32_make(status_to_wire(status));
    if (size != 0)
        memcpy(head + 1, body, size);
    if (guest->replies == NULL)
        error = rd_send(guest->link.conn, head, whole);
    if (error == CAIRN_E_AGAIN)
        error = keep_reply(guest, head, whole);
    if (error != 0)
        cut_off(node, guest);
}

uint32_t rec_reply_turn(struct rec_node *node)
{
    uint32_t sent = 0;

    for (struct rec_guest *guest = node->guests; guest != NULL; guest = guest->next) {
        while (guest->replies != NULL && !guest->doomed) {
            struct rec_reply *reply = guest->replies;
            int error = rd_send(guest->link.conn, reply->message, reply->size);
            if (error == CAIRN_E_AGAIN)
                break;
            if (error != 0) {
                cut_off(node, guest);
                break;
            }
            guest->replies = reply->next;
            guest->reply_count--;
            free(reply);
            sent++;
        }
    }
    return sent;
}

void rec_reply_forget(struct rec_guest *guest)
{
    while (guest->replies != NULL) {
        struct rec_reply *reply = guest->replies;
        guest->replies = reply->next;
        free(reply);
    }
    guest->reply_count = 0;
}

/* ---- requests ---- */

static int grant(struct rec_node *node, const struct rec_guest *guest,
    const struct rd_grant_wire *ask, struct pm_lock_pm *blocks, uint32_t *ret_count)
{
    return pm_heap_grant(
        node->store, guest->slot, ask->class_, le32_get(ask->count), blocks, ret_count);
}

static void on_grant(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_grant_wire *ask)
{
    uint8_t body[sizeof(struct rd_grant_reply_wire) +
        RD_GRANT_BLOCKS_MAX * sizeof(struct rd_block_wire)] __attribute__((aligned(8)));
    struct rd_grant_reply_wire *reply = (struct rd_grant_reply_wire *)(void *)body;
    struct pm_lock_pm blocks[RD_GRANT_BLOCKS_MAX];
    uint32_t count = 0;

    int error = guest->slot == 0 ? CAIRN_E_PROTOCOL : grant(node, guest, ask, blocks, &count);
    if (error == CAIRN_E_POOL_FULL && rec_catch_up(node))
        error = grant(node, guest, ask, blocks, &count);
    if (error != 0)
        count = 0;
    memset(reply, 0, sizeof(*reply));
    reply->count = le32_make(count);
    for (uint32_t i = 0; i < count; i++)
        reply->block[i] = (struct rd_block_wire){blocks[i].off, blocks[i].base};
    rec_reply(node, guest, RD_MSG_GRANT_REPLY, id, error, reply,
        (uint32_t)(sizeof(*reply) + count * sizeof(reply->block[0])));
}

static int make_room(struct rec_node *node, const struct rd_room_wire *ask)
{
    return pm_growth_room(
        node->store, le64_get(ask->root_off), le64_get(ask->hash), le32_get(ask->count));
}

static void on_room(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_room_wire *ask)
{
    int error = guest->slot == 0 ? CAIRN_E_PROTOCOL : make_room(node, ask);
    if (error == CAIRN_E_POOL_FULL && rec_catch_up(node))
        error = make_room(node, ask);
    rec_reply(node, guest, RD_MSG_ROOM_REPLY, id, error, NULL, 0);
}

static void on_table(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_table_wire *ask)
{
    struct rd_table_reply_wire reply = {.root_off = le64_make(0)};
    const struct pm_index *index =
        pm_store_index(node->store, le16_get(ask->table), le16_get(ask->shard));
    if (index != NULL) {
        reply.root_off = le64_make(index->off);
        reply.index = le32_make(index->index);
    }
    rec_reply(node, guest, RD_MSG_TABLE_REPLY, id, index == NULL ? CAIRN_E_NO_TABLE : 0, &reply,
        sizeof(reply));
}

static void ping(struct rec_node *node, struct rec_guest *guest)
{
    guest->ping_ns = rec_now(node);
    rec_reply(node, guest, RD_MSG_PING, 0, 0, NULL, 0);
}

/* A word of a dead owner, all of whose records are released (T10): free it, by CAS like anybody
 * else. */
static enum rd_word_answer free_word(struct rec_node *node, uint64_t off, uint64_t word)
{
    uint64_t old;
    uint64_t meta = pm_load64(&node->pool->pm, off + offsetof(struct pm_object_pm, meta));
    if (pm_word_version(meta) != pm_word_version(word)) {
        cn_log(node->env, CN_LOG_ERROR,
            "offset %llu: word %016llx of an ended owner does not fit version %llu of its object",
            (unsigned long long)off, (unsigned long long)word,
            (unsigned long long)pm_word_version(meta));
        return RD_WORD_IN_DOUBT;
    }
    if (rec_loop_cas(node, off, word, pm_word_version(word), &old) != 0)
        return RD_WORD_CHECKING;
    if (old != word)
        return RD_WORD_CHANGED;
    node->stats.locks_freed++;
    return RD_WORD_FREED;
}

/* The owner's slot is open: does it still live? */
static enum rd_word_answer check_owner(struct rec_node *node, struct rec_slot *slot)
{
    struct rec_guest *owner = slot->guest;
    uint64_t now = rec_now(node);
    uint64_t lease = node->config->lease_ms * REC_MS;
    if (owner == NULL)
        return RD_WORD_CHECKING;
    if (owner->ping_ns == 0 && now - owner->heard_ns < lease / 4)
        return RD_WORD_ALIVE;
    if (owner->ping_ns == 0)
        ping(node, owner);
    return RD_WORD_CHECKING;
}

/* Nobody holds the word, and the asker sees a body that does not fit it: an undecided record may be
 * half applied there since before a restart. */
static enum rd_word_answer unlocked_answer(struct rec_node *node, uint64_t off)
{
    for (uint32_t i = 1; i < node->part.slot_count; i++)
        if (rec_word_is_named(node, (uint16_t)i, off))
            return RD_WORD_IN_DOUBT;
    return RD_WORD_CHANGED;
}

static enum rd_word_answer word_answer(struct rec_node *node, uint64_t off, uint64_t word)
{
    uint64_t now_word = pm_load64(&node->pool->pm, off);
    if (!pm_word_is_locked(word, node->pool->tag))
        return unlocked_answer(node, off);
    if (now_word != word)
        return RD_WORD_CHANGED;
    uint16_t number = pm_word_slot(word);
    if (number == 0)
        return RD_WORD_CHECKING;
    if (number >= node->part.slot_count)
        return RD_WORD_IN_DOUBT;
    struct rec_slot *slot = &node->slot[number];
    if (slot->part->media.state == PM_SLOT_OPEN && !rec_word_is_named(node, number, off))
        return check_owner(node, slot);
    if (slot->part->media.state == PM_SLOT_OPEN)
        return RD_WORD_CHECKING; /* its record will be applied, or resolved in time */
    if (rec_slot_may_free(node, number))
        return free_word(node, off, word);
    return rec_word_is_named(node, number, off) ? RD_WORD_IN_DOUBT : RD_WORD_CHECKING;
}

static void on_word(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_word_wire *ask)
{
    struct rd_word_reply_wire reply = {.answer = le32_make(RD_WORD_CHANGED)};
    uint64_t off = le64_get(ask->off);
    int status = 0;

    /* Whether a word can be there at all: bytes of a value may look like one. */
    if (guest->slot == 0 || !pm_store_has_word(node->store, off))
        status = CAIRN_E_PROTOCOL;
    else
        reply.answer = le32_make(word_answer(node, off, le64_get(ask->word)));
    rec_reply(node, guest, RD_MSG_WORD_REPLY, id, status, &reply, sizeof(reply));
}

/* The owner holds no lock and will post nothing: as a fence, but its number can be used again at
 * once. */
static void on_close(struct rec_node *node, struct rec_guest *guest, uint32_t id)
{
    uint16_t slot = guest->slot;
    rec_reply(node, guest, RD_MSG_CLOSE_REPLY, id, slot == 0 ? CAIRN_E_PROTOCOL : 0, NULL, 0);
    if (slot != 0 && rec_slot_fence(node, slot, true) != 0)
        cn_log(node->env, CN_LOG_ERROR, "%s", cairn_last_error());
}

static void on_ask(
    struct rec_node *node, struct rec_guest *guest, uint32_t id, const struct rd_ask_wire *ask)
{
    struct rd_answer_wire reply = {.place = ask->place};
    if (guest->role != RD_ROLE_NODE)
        return;
    enum rd_verdict verdict = rec_answer(node, &ask->place);
    if (verdict == RD_VERDICT_NONE || verdict == RD_VERDICT_IN_DOUBT)
        return; /* the asker asks again */
    cn_step(node->env, CN_STEP_r_answer);
    reply.verdict = le32_make(verdict);
    node->stats.answers++;
    rec_reply(node, guest, RD_MSG_ANSWER, id, 0, &reply, sizeof(reply));
}

static void on_stats(struct rec_node *node, struct rec_guest *guest, uint32_t id)
{
    char *text = rec_stats_json(node);
    size_t size = text == NULL ? 0 : strlen(text);
    bool fits = size != 0 && size <= RD_MESSAGE_SIZE_MAX - sizeof(struct rd_message_wire);
    rec_reply(node, guest, RD_MSG_STATS_REPLY, id, fits ? 0 : CAIRN_E_LIMIT, text,
        fits ? (uint32_t)size : 0);
    free(text);
}

/* A record that is unmarked and old enough is resolved even while its owner lives; an owner that
 * does not answer is dead. */
void rec_ping_turn(struct rec_node *node)
{
    uint64_t now = rec_now(node);
    for (struct rec_guest *guest = node->guests; guest != NULL; guest = guest->next) {
        if (guest->doomed || guest->ping_ns == 0 ||
            now - guest->ping_ns < node->config->lease_ms * REC_MS)
            continue;
        cn_log(node->env, CN_LOG_WARNING,
            "slot %u: its owner did not answer for %u ms and is fenced", guest->slot,
            node->config->lease_ms);
        rec_guest_drop(node, guest);
    }
}

static void on_node_message(
    struct rec_node *node, struct rec_guest *guest, uint32_t type, uint32_t id, const void *body)
{
    if (guest->role != RD_ROLE_NODE) {
        rec_guest_drop(node, guest);
        return;
    }
    if (type == RD_MSG_ASK)
        on_ask(node, guest, id, body);
    else if (type == RD_MSG_TOLD)
        rec_on_told(node, body);
    else
        rec_on_purge(node, guest, id, body);
}

void rec_message(struct rec_node *node, struct rec_guest *guest, const void *message, uint32_t size)
{
    const struct rd_message_wire *head = message;
    if (rd_wire_check(message, size) != 0) {
        cn_log(
            node->env, CN_LOG_ERROR, "slot %u: peer dropped: %s", guest->slot, cairn_last_error());
        rec_guest_drop(node, guest);
        return;
    }
    const void *body = head + 1;
    uint32_t id = le32_get(head->id);
    guest->heard_ns = rec_now(node);
    guest->ping_ns = 0;
    if (guest->stranger && le16_get(head->type) != RD_MSG_STATS) {
        cn_log(node->env, CN_LOG_ERROR, "a tool that did not name the cluster sends %s: dropped",
            rd_wire_type_name(le16_get(head->type)));
        rec_guest_drop(node, guest);
        return;
    }
    switch (le16_get(head->type)) {
    case RD_MSG_GRANT: on_grant(node, guest, id, body); break;
    case RD_MSG_ROOM: on_room(node, guest, id, body); break;
    case RD_MSG_TABLE: on_table(node, guest, id, body); break;
    case RD_MSG_WORD: on_word(node, guest, id, body); break;
    case RD_MSG_PONG: break;
    case RD_MSG_CLOSE: on_close(node, guest, id); break;
    case RD_MSG_RESOLVE:
        rec_on_resolve(node, guest, id, &((const struct rd_ask_wire *)body)->place);
        break;
    case RD_MSG_STATS: on_stats(node, guest, id); break;
    case RD_MSG_ASK:
    case RD_MSG_TOLD:
    case RD_MSG_PURGE: on_node_message(node, guest, le16_get(head->type), id, body); break;
    default:
        cn_log(node->env, CN_LOG_ERROR, "slot %u: %s out of place: peer dropped", guest->slot,
            rd_wire_type_name(le16_get(head->type)));
        rec_guest_drop(node, guest);
    }
}
