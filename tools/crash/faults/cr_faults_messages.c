/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_messages.c: F24 and F25, peers that shake hands as they should not, send messages that
 * are out of place, take no answers, or take every log slot: each gets its error, or loses its
 * connection; the others are served all the time.
 */
#include "tools/crash/faults/cr_faults.h"

#include <jansson.h>

#include "pmem/pm_record.h"
#include "pmem/pm_slot.h"
#include "tools/crash/faults/cr_peer.h"

#define FLOOD 4096u

/* Records in the first node's rings, by their places. */
struct asked {
    uint32_t count;
    struct rd_place_wire place[32];
    uint64_t word[32]; /* a lock that each names */
};

/* ---- scripts ---- */

static void refused(struct cr_peer *p, const struct rd_hello_wire *hello, uint32_t size, int error)
{
    cr_peer_meet(p, hello, size);
    if (!p->down || p->refusal != error)
        cr_peer_wrong(p, cairn_error_name(error),
            p->refusal == 0 ? "0" : cairn_error_name(p->refusal));
    cr_peer_end(p);
}

static void wrong_hellos(struct cr_peer *p)
{
    struct rd_hello_wire hello = cr_peer_hello(p, RD_ROLE_COORDINATOR);

    hello.peer.b[0] = 1;
    refused(p, &hello, sizeof(hello) - 8, CAIRN_E_PROTOCOL);
    hello.node = le16_make(2);
    refused(p, &hello, sizeof(hello), CAIRN_E_WRONG_NODE);
    hello.node = le16_make(1);
    hello.cluster.b[0] ^= 1;
    refused(p, &hello, sizeof(hello), CAIRN_E_WRONG_CLUSTER);
    hello = cr_peer_hello(p, RD_ROLE_COORDINATOR);
    hello.version = le16_make(RD_WIRE_VERSION + 1);
    refused(p, &hello, sizeof(hello), CAIRN_E_WIRE_VERSION);
    hello = cr_peer_hello(p, RD_ROLE_NODE);
    hello.from_node = le16_make(77);
    refused(p, &hello, sizeof(hello), CAIRN_E_WRONG_NODE);
    hello.from_node = le16_make(1);
    refused(p, &hello, sizeof(hello), CAIRN_E_WRONG_NODE);
}

static void ask_statistics(struct cr_peer *p)
{
    json_error_t error;

    cr_peer_expect(p, RD_MSG_STATS, NULL, RD_MSG_STATS_REPLY, 0);
    json_t *o = json_loadb((const char *)p->body, p->body_size, 0, &error);
    if (json_integer_value(json_object_get(o, "node")) != 1 ||
        !json_is_object(json_object_get(o, "slots")) ||
        !json_is_object(json_object_get(o, "space")))
        cr_peer_wrong(p, "statistics", "not as they should be");
    json_decref(o);
}

static void tools(struct cr_peer *p)
{
    static const uint32_t others[] = {RD_MSG_ASK, RD_MSG_PURGE, RD_MSG_PING, RD_MSG_CLOSE_REPLY};
    struct rd_hello_wire stranger = cr_peer_hello(p, RD_ROLE_TOOL);
    const struct rd_table_wire table = {.table = le16_make(99)};
    const struct rd_grant_wire grant = {.count = le32_make(1)};

    memset(&stranger.cluster, 0, sizeof(stranger.cluster));
    stranger.node = le16_make(0);
    cr_peer_meet(p, &stranger, sizeof(stranger));
    ask_statistics(p);
    cr_peer_expect_loss(p, RD_MSG_TABLE, &table, sizeof(table));
    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    ask_statistics(p);
    cr_peer_expect(p, RD_MSG_TABLE, &table, RD_MSG_TABLE_REPLY, CAIRN_E_NO_TABLE);
    cr_peer_expect(p, RD_MSG_GRANT, &grant, RD_MSG_GRANT_REPLY, CAIRN_E_PROTOCOL);
    cr_peer_expect(p, RD_MSG_ROOM, NULL, RD_MSG_ROOM_REPLY, CAIRN_E_PROTOCOL);
    cr_peer_expect(p, RD_MSG_WORD, NULL, RD_MSG_WORD_REPLY, CAIRN_E_PROTOCOL);
    cr_peer_expect(p, RD_MSG_CLOSE, NULL, RD_MSG_CLOSE_REPLY, CAIRN_E_PROTOCOL);
    cr_peer_expect(p, RD_MSG_RESOLVE, NULL, RD_MSG_RESOLVE_REPLY, 0);
    cr_peer_end(p);
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(others); i++) {
        cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
        cr_peer_expect_loss(p, others[i], NULL, rd_wire_body_size(others[i]));
    }
    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    cr_peer_expect_loss(p, RD_MSG_TYPE_COUNT + 7, NULL, 8); /* no such message */
}

/* As node 2, with questions about what never was. */
static void nodes(struct cr_peer *p)
{
    struct rd_ask_wire ask = {.place = {.coordinator = {{9}}, .count = le64_make(1),
        .epoch = le64_make(1), .seq = le64_make(1), .slot = le16_make(1), .node = le16_make(1)}};
    struct rd_answer_wire told = {.place = ask.place, .verdict = le32_make(RD_VERDICT_ABORTED)};
    struct rd_purge_wire purge = {.coordinator = {{9}}, .epoch = le64_make(1),
        .node = le16_make(2)};

    cr_peer_must_meet(p, RD_ROLE_NODE, 0, "a node");
    cr_peer_expect(p, RD_MSG_ASK, &ask, RD_MSG_ANSWER, 0);
    if (le32_get(((const struct rd_answer_wire *)(const void *)p->body)->verdict) !=
        RD_VERDICT_FORGOTTEN)
        cr_peer_wrong(p, "a session that never was", "has a verdict");
    cr_peer_expect(p, RD_MSG_PURGE, &purge, RD_MSG_PURGE_REPLY, 0);
    ask.place.seq = le64_make(0);
    cr_peer_expect(p, RD_MSG_ASK, &ask, RD_MSG_ANSWER, 0);
    for (uint16_t slot = 0; slot < 10; slot++) {
        told.place.slot = le16_make(slot);
        cr_peer_expect_silence(p, RD_MSG_TOLD, &told);
    }
    told.place.node = le16_make(2);
    cr_peer_expect_silence(p, RD_MSG_TOLD, &told);
    cr_peer_end(p);
}

/* Words that nobody holds, or that name who is not there. */
static void coordinators(struct cr_peer *p)
{
    const struct pm_super *super = &p->stand->super[0];
    struct rd_conn *first;
    uint64_t words = 0;

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, 1, "a coordinator");
    for (uint64_t off = super->heap_off; off < p->stand->pool_size && !p->down; off += 64) {
        struct rd_word_wire ask = {.off = le64_make(off)};
        (void)!cr_peer_post(p, RD_MSG_WORD, &ask, sizeof(ask));
        for (uint32_t i = 0; i < 2000 && p->type == 0 && !p->down; i++)
            cr_peer_rest(p, 2);
        words += p->status == 0;
    }
    if (words == 0 || p->down)
        cr_peer_wrong(p, "questions for words", "none was answered");
    /* The same session again: the first connection is cut off. */
    first = p->conn;
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, 1, "the same coordinator");
    cr_peer_rest(p, 500);
    if (rd_write(first, 1, p->stand->pool_size, rd_ep_memory(p->ep), 8, 0) == 0)
        cr_peer_wrong(p, "the first connection of a session", "may still write");
    rd_conn_delete(first);
    cr_peer_expect_loss(p, RD_MSG_CLOSE, NULL, 0);
}

/* Asks and takes no answer, until its connection is gone. */
static void flood(struct cr_peer *p)
{
    uint32_t sent = 0;

    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    for (; sent < FLOOD && !p->down; sent++) {
        if (cr_peer_post(p, RD_MSG_STATS, NULL, 0) != 0)
            cr_peer_rest(p, 1);
        if (sent % 64 == 63)
            sim_sleep(p->actor->sim, p->actor->sim->now + 20 * SIM_US);
    }
    cr_peer_rest(p, 500);
    cr_peer_end(p);
}

/* All slots are taken; the next one is told so. Then they end, and others get them again. */
static void all_slots(struct cr_peer *p)
{
    struct rd_conn *conn[64];
    uint32_t n = 0, slots = p->stand->super[0].geometry.slot_count;
    bool full = false;

    for (uint32_t tries = 0; tries < 200 && n < slots && !full; tries++) {
        struct rd_hello_wire hello = cr_peer_hello(p, RD_ROLE_COORDINATOR);
        hello.peer.b[0] = (uint8_t)(20 + tries);
        cr_peer_meet(p, &hello, sizeof(hello));
        full = p->down && p->refusal == CAIRN_E_SLOTS;
        if (p->up && !p->down) {
            conn[n++] = p->conn;
            p->conn = NULL;
            continue;
        }
        if (p->refusal != CAIRN_E_SLOTS && p->refusal != CAIRN_E_AGAIN)
            cr_peer_wrong(
                p, "a slot", p->refusal == 0 ? "no answer" : cairn_error_name(p->refusal));
        cr_peer_end(p);
        cr_peer_rest(p, 1000);
    }
    if (!full || n == 0 || n >= slots)
        cr_peer_wrong(p, "all slots", "are never in use");
    for (uint32_t i = 0; i < n; i++)
        rd_conn_delete(conn[i]);
    cr_peer_rest(p, 200000);
}

/* The first node holds records in doubt, for the second one is not there. */
static void questions(struct cr_peer *p)
{
    const struct asked *asked = p->arg;
    uint32_t seen[RD_VERDICT_IN_DOUBT + 1] = {0};
    struct rd_purge_wire purge = {.coordinator = asked->place[0].coordinator,
        .epoch = asked->place[0].epoch, .node = le16_make(2)};
    json_error_t error;

    cr_peer_must_meet(p, RD_ROLE_NODE, 0, "a node");
    for (uint32_t i = 0; i < asked->count; i++) {
        struct rd_ask_wire ask = {asked->place[i]};
        (void)!cr_peer_post(p, RD_MSG_ASK, &ask, sizeof(ask));
        cr_peer_rest(p, 200);
        uint32_t verdict = p->type != RD_MSG_ANSWER
            ? RD_VERDICT_IN_DOUBT
            : le32_get(((const struct rd_answer_wire *)(const void *)p->body)->verdict);
        seen[verdict <= RD_VERDICT_IN_DOUBT ? verdict : 0]++;
        ask.place.count = le64_make(le64_get(ask.place.count) + 1000);
        (void)!cr_peer_post(p, RD_MSG_ASK, &ask, sizeof(ask)); /* another transaction there */
        cr_peer_rest(p, 200);
        if (p->type == RD_MSG_ANSWER && verdict == RD_VERDICT_PRESENT &&
            le32_get(((const struct rd_answer_wire *)(const void *)p->body)->verdict) !=
                RD_VERDICT_FORGOTTEN)
            cr_peer_wrong(p, "a transaction that is not there", "has a verdict");
    }
    if (seen[RD_VERDICT_PRESENT] == 0 || seen[RD_VERDICT_COMMITTED] == 0 ||
        seen[RD_VERDICT_ABORTED] != 0 || seen[RD_VERDICT_NONE] != 0)
        cr_peer_wrong(p, "verdicts", "not as they should be");
    cr_peer_expect(p, RD_MSG_PURGE, &purge, RD_MSG_PURGE_REPLY, CAIRN_E_AGAIN);
    cr_peer_end(p);
    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    for (uint32_t i = 0; i < asked->count; i++) {
        struct rd_ask_wire ask = {asked->place[i]};
        for (uint32_t k = 0; k < 2; k++) { /* the second one waits behind the first */
            (void)!cr_peer_post(p, RD_MSG_RESOLVE, &ask, sizeof(ask));
            cr_peer_rest(p, 200);
        }
    }
    cr_peer_expect(p, RD_MSG_STATS, NULL, RD_MSG_STATS_REPLY, 0);
    json_t *o = json_loadb((const char *)p->body, p->body_size, 0, &error);
    if (json_integer_value(json_object_get(o, "in_doubt")) == 0 ||
        json_is_true(json_object_get(o, "quiet")))
        cr_peer_wrong(p, "statistics", "nothing is in doubt");
    json_decref(o);
    cr_peer_rest(p, 1500000); /* who waits for a verdict is told that there is none yet */
    cr_peer_end(p);
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, 1, "a coordinator");
    for (uint32_t i = 0; i < asked->count && !p->down; i++) {
        struct rd_word_wire ask = {.off = le64_make(asked->word[i])};
        (void)!cr_peer_post(p, RD_MSG_WORD, &ask, sizeof(ask));
        cr_peer_rest(p, 200);
    }
    cr_peer_end(p);
}

/* It answers as the second node, and does it badly: each time it is dropped, and asked again. */
static void impostor(struct cr_peer *p)
{
    struct rd_welcome_wire welcome = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .node = le16_make(2),
        .pool = p->stand->super[1].pool, .incarnation = le64_make(1), .view = le32_make(1),
        .durability = RD_DURABILITY_APM};
    uint32_t asked = 0, dropped = 0;

    if (rd_listen(p->ep, p->stand->config.node[1].address) != 0)
        cr_peer_wrong(p, "listen", cairn_last_error());
    for (uint64_t until = p->actor->sim->now + 3000 * SIM_MS;
         asked < 8 && p->actor->sim->now < until;) {
        struct rd_event e;
        if (rd_poll(p->ep, &e, 1) != 1)
            continue;
        dropped += e.type == RD_EV_DOWN;
        if (e.type == RD_EV_CONNECT) {
            welcome.node = le16_make(asked % 2 == 0 ? 9 : 2);
            p->conn = e.conn;
            asked++;
            if (rd_accept(e.conn, NULL, 0, NULL, &welcome, sizeof(welcome)) != 0)
                cr_peer_wrong(p, "accept", cairn_last_error());
        } else if (e.type == RD_EV_MESSAGE && e.conn == p->conn) {
            struct rd_answer_wire answer = {.verdict = le32_make(RD_VERDICT_NONE)};
            (void)!cr_peer_post(p, RD_MSG_PURGE_REPLY, NULL, 0); /* of nothing: no matter */
            if (asked % 4 == 2)
                (void)!cr_peer_post(p, RD_MSG_ANSWER, &answer, sizeof(answer));
            else
                (void)!cr_peer_post(p, RD_MSG_TYPE_COUNT + 3, NULL, 8);
        }
    }
    if (asked < 8 || dropped < 4)
        cr_peer_wrong(p, "a node that answers badly", "is not dropped and asked again");
    p->conn = NULL;
}

static const struct script {
    const char *what;
    void (*run)(struct cr_peer *peer);
    enum { AS_IT_IS, ALONE, NO_VERDICTS } how; /* ALONE: the second node comes late */
} scripts[] = {{"handshakes", wrong_hellos, AS_IT_IS}, {"a tool", tools, AS_IT_IS},
    {"a node", nodes, AS_IT_IS}, {"a coordinator", coordinators, AS_IT_IS},
    {"answers not taken", flood, AS_IT_IS}, {"all slots", all_slots, AS_IT_IS},
    {"questions of what is in doubt", questions, ALONE},
    {"a node that answers badly", impostor, ALONE},
    {"all slots, and no room for verdicts", all_slots, NO_VERDICTS}};

/* ---- the pools ---- */

struct undo { struct asked *asked; const struct pm_pool *pool; uint8_t *bytes; };

/* Marks of shared records go. */
static int undo_record(void *arg, const struct pm_record *record)
{
    struct undo *u = arg;
    struct asked *a = u->asked;
    const struct pm_participant_pm *here = NULL;

    for (uint16_t i = 0; i < record->participant_count; i++)
        if (le16_get(record->participant[i].node) == 1)
            here = &record->participant[i];
    if (here == NULL || record->type != PM_RECORD_TX || a->count == CN_ARRAY_SIZE(a->place))
        return 0;
    uint64_t off = pm_slot_log_at(u->pool, le16_get(here->slot), record->log_off);
    a->word[a->count] = le64_get(
        record->block_count != 0 ? record->block[0].off : record->lock[0].off);
    a->place[a->count++] = (struct rd_place_wire){.coordinator = record->txid.coordinator,
        .count = le64_make(record->txid.count), .epoch = here->epoch, .seq = here->seq,
        .view = le32_make((uint32_t)record->view), .slot = here->slot, .node = here->node};
    if (record->participant_count > 1)
        memset(u->bytes + off + offsetof(struct pm_record_pm, mark), 0, 8);
    return 0;
}

static void leave_doubts(const struct cr_stand *stand, uint8_t *bytes, struct asked *a)
{
    struct undo u = {.asked = a, .bytes = bytes};
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) != 0)
        return;
    u.pool = &pool;
    uint8_t *ring = sim_calloc(1, pool.super.geometry.ring_size);
    for (uint16_t i = 1; i < pool.super.geometry.slot_count; i++) {
        struct pm_slot slot;
        if (pm_slot_load(&pool, i, &slot) != 0 || slot.state == PM_SLOT_FREE)
            continue;
        pm_slot_snapshot(&pool, i, ring);
        (void)!pm_slot_scan(&pool, &slot, ring, undo_record, &u);
    }
    sim_free(ring);
}

/* Too many sessions have ended lately. */
static void fill_retired(const struct cr_stand *stand, uint8_t *bytes)
{
    struct pm_retired_table *table = NULL;
    struct pm_slot slot = {.number = 1, .state = PM_SLOT_CLOSED, .epoch = 1000};
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) != 0 || pm_retired_open(&pool, &table) != 0)
        return;
    slot.owner.b[0] = 77;
    while (pm_retired_free(table) > 0 && pm_retired_add(table, &slot, UINT64_C(1) << 40) == 0)
        slot.epoch++;
    pm_retired_close(&table);
}

/* Served again: but not where verdicts have no room. */
static void judge(const struct script *script, struct cr_stand_outcome *o)
{
    if (o->what[0] != '\0' || script->how == ALONE)
        return;
    bool served = o->right == CR_STAND_KEYS && o->write == 0;
    if (served != (script->how == AS_IT_IS) ||
        (script->how == NO_VERDICTS && o->error != CAIRN_E_SLOTS)) {
        o->hung = true;
        (void)snprintf(o->what, sizeof(o->what), "others: %u right, %s, %s", o->right,
            cairn_error_name(o->error), cairn_error_name(o->write));
    }
}

void cr_faults_messages(struct cr_faults *f)
{
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(scripts) && !cr_faults_time_is_up(f); i++) {
        struct cr_faults_tally *t = cr_faults_tally(
            f, i == 0 ? "F24" : "F25", i == 0 ? "handshakes" : "messages out of place");
        struct asked asked = {0};
        struct cr_peer_play play = {.script = scripts[i].run, .arg = &asked};
        struct cr_stand_variant v = {
            .seed = f->options.seed + i, .attack = cr_peer_run, .attack_arg = &play};
        struct cr_stand_outcome o;
        if (t == NULL)
            continue;
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            v.bytes[n] = cr_stand_copy(f->stand, n, false);
        for (uint32_t n = 0; n < CR_STAND_NODES && scripts[i].how == NO_VERDICTS; n++)
            fill_retired(f->stand, v.bytes[n]);
        if (scripts[i].how == ALONE) {
            leave_doubts(f->stand, v.bytes[0], &asked);
            v.late_ns[1] = UINT64_C(3600000) * SIM_MS;
            v.quick = true;
        }
        cr_stand_try(f->stand, &v, &o);
        if (play.why[0] != '\0' && o.what[0] == '\0') {
            o.hung = true;
            memcpy(o.what, play.why, sizeof(o.what));
        }
        judge(&scripts[i], &o);
        cr_faults_count(f, t, &o, false, scripts[i].what);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            sim_free(v.bytes[n]);
    }
}
