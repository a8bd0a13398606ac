/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_scripts_hostile.c: scripts of a coordinator that knows the formats and does not keep to the
 * protocol: it logs records of its own making into its own ring, which is all that a peer can do.
 * Nodes must keep to theirs.
 */
#include "tools/crash/campaign/cr_scripts_internal.h"

#include "pmem/pm_object.h"
#include "pmem/pm_slot.h"
#include "txn/txn_ctx.h"

#include <stdio.h>

#define ROOM 128u
#define KEYS 8u
#define RECORD_ROOM 1024u

static void rest(struct cr_client *client, uint64_t us)
{
    sim_sleep(&client->cluster->sim, client->cluster->sim.now + us * SIM_US);
}

/* All nodes know the session, and everything is applied. */
static bool begin(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    char key[16];

    for (uint32_t i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof(key), "h%u", i);
        if (!cr_script_put(client, key, &i, sizeof(i)))
            return false;
    }
    rest(client, 2000);
    for (uint32_t i = 0; i < c->node_count; i++)
        if (client->ctx->peer[i].state != TXN_PEER_UP)
            return false;
    return !c->sim.stop;
}

/* The same, and nodes that ask whether it lives get an answer. */
static void stay(struct cr_client *client, uint64_t us)
{
    struct cairn_tx *tx;

    for (uint64_t i = 0; i < us; i += 500) {
        rest(client, 500);
        if (cairn_begin(client->ctx, &tx) != 0)
            continue;
        (void)cr_script_get(tx, "h0", false);
        cairn_abort(tx);
    }
}

static struct pm_place place_of(const struct txn_peer *peer, uint64_t log_off)
{
    return (struct pm_place){.pool = peer->pool, .slot = peer->slot, .epoch = peer->epoch,
        .nonce = peer->nonce, .log_off = log_off};
}

static uint64_t ring_at(const struct txn_peer *peer, uint64_t log_off)
{
    return peer->ring_off + RD_RING_HEADER_SIZE + log_off % peer->ring_size;
}

/* The next record at a peer: without writes, of two participants, unmarked. */
static void log_unmarked(struct cr_client *client, struct txn_peer *peer,
    const struct cn_txid *txid, const struct pm_participant_pm participant[2])
{
    struct pm_place place = place_of(peer, peer->log_off);
    uint8_t *record = peer->staging + TXN_STAGING_SIZE - ROOM; /* commits begin at its other end */
    struct pm_record_writer w;

    pm_record_begin(&w, record, ROOM);
    for (uint16_t i = 0; i < 2; i++)
        pm_record_add_participant(&w, le16_get(participant[i].node), i, 0,
            le16_get(participant[i].slot), le64_get(participant[i].epoch),
            le64_get(participant[i].seq));
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, txid, peer->seq + 1,
        client->cluster->config.view, &place);
    uint64_t at = ring_at(peer, peer->log_off);
    if (size == 0 || rd_write(peer->conn, 0, at, record, size, 0) != 0)
        return;
    (void)!rd_flush(peer->conn, 0, at, size, 0);
    rd_doorbell(peer->conn);
    peer->seq++;
    peer->log_off += size;
    rest(client, 100);
}

/* A void record, `gap` sequences behind the last one. */
static void log_void(struct cr_client *client, struct txn_peer *peer, uint64_t gap)
{
    struct sim *sim = &client->cluster->sim;

    peer->seq += 1 + gap;
    peer->void_seq = peer->seq;
    peer->void_txid = (struct cn_txid){client->ctx->session, ++client->ctx->tx_counter};
    txn_void_fill(peer, sim_actor_clock(client->actor, sim->now) + 20 * SIM_MS);
}

static struct pm_participant_pm next_at(const struct txn_peer *peer)
{
    return (struct pm_participant_pm){.node = le16_make(peer->node),
        .slot = le16_make(peer->slot), .epoch = le64_make(peer->epoch),
        .seq = le64_make(peer->seq + 1)};
}

void cr_script_unmarked(struct cr_client *client)
{
    struct txn_peer *peer = client->ctx->peer;

    if (!begin(client))
        return;
    struct pm_participant_pm both[2] = {next_at(&peer[0]), next_at(&peer[1])};
    struct cn_txid txid = {client->ctx->session, ++client->ctx->tx_counter};
    log_unmarked(client, &peer[0], &txid, both);
    log_void(client, &peer[0], 0);
    rest(client, 3000);
}

/* Its verdict, as the node of this place tells it. */
static enum cairn_outcome ask(struct cr_client *client, const struct cn_txid *txid,
    const struct pm_participant_pm *place)
{
    struct cr_cluster *c = client->cluster;
    struct txn_token token = {*txid, le16_get(place->node), le16_get(place->slot),
        le64_get(place->epoch), le64_get(place->seq)};
    enum cairn_outcome outcome;
    char text[CAIRN_TOKEN_SIZE];

    txn_token_format(&token, &c->config.cluster, text);
    for (uint32_t tries = 0; tries < 50 && !c->sim.stop; tries++) {
        if (cairn_resolve(client->ctx, text, &outcome) == 0)
            return outcome;
        rest(client, 500);
    }
    return CAIRN_OUTCOME_NONE;
}

void cr_script_mismarked(struct cr_client *client)
{
    struct txn_peer *peer = client->ctx->peer;

    if (!begin(client))
        return;
    struct pm_participant_pm both[2] = {next_at(&peer[0]), next_at(&peer[1])};
    struct cn_txid txid = {client->ctx->session, ++client->ctx->tx_counter};
    uint64_t at = ring_at(&peer[0], peer[0].log_off) + offsetof(struct pm_record_pm, mark);
    log_unmarked(client, &peer[0], &txid, both);
    if (peer[0].state == TXN_PEER_UP)
        (void)!rd_mark(peer[0].conn, 0, at,
            pm_word_value(peer[0].nonce + 1, le64_get(both[0].seq), PM_WORD_MARK), 0);
    rest(client, 1000);
    enum cairn_outcome there = ask(client, &txid, &both[1]), here = ask(client, &txid, &both[0]);
    if (here != CAIRN_OUTCOME_NONE && there != CAIRN_OUTCOME_NONE && here != there)
        sim_fail(&client->cluster->sim, "verdict: one node says COMMITTED of a transaction, and "
                 "the other ABORTED");
}

void cr_script_gap(struct cr_client *client)
{
    if (begin(client))
        log_void(client, &client->ctx->peer[0], 1);
}

void cr_script_hole(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    static const char key[] = "h0";
    uint64_t value = 77, found = 0;
    struct cairn_tx *tx;
    size_t size = 0;

    if (!begin(client))
        return;
    client->ctx->peer[0].log_off += 64;
    if (!cr_script_put(client, key, &value, sizeof(value)))
        return;
    cairn_ctx_close(&client->ctx);
    if (txn_ctx_open(c->cairn, &client->actor->env, &client->ctx) != 0)
        return;
    for (uint32_t tries = 0; tries < 100 && size == 0 && !c->sim.stop; tries++) {
        rest(client, 500);
        if (cairn_begin(client->ctx, &tx) != 0)
            continue;
        if (cairn_get(tx, CR_SCRIPT_TABLE, key, strlen(key), &found, sizeof(found), &size) != 0)
            size = 0;
        cairn_abort(tx);
    }
    if (size != 0 && (size != sizeof(value) || found != value))
        sim_fail(&c->sim, "lost: a record behind a hole was acknowledged and is not there");
}

void cr_script_stranger(struct cr_client *client)
{
    struct txn_peer *peer = client->ctx->peer;

    if (!begin(client))
        return;
    struct pm_participant_pm both[2] = {next_at(&peer[0]), next_at(&peer[1])};
    struct cn_txid one = {client->ctx->session, ++client->ctx->tx_counter};
    struct cn_txid other = {client->ctx->session, ++client->ctx->tx_counter};
    uint64_t at = ring_at(&peer[0], peer[0].log_off) + offsetof(struct pm_record_pm, mark);
    log_unmarked(client, &peer[0], &one, both);
    log_unmarked(client, &peer[1], &other, both);
    stay(client, 20000);
    /* So that it comes to an end: the first is called committed. */
    if (peer[0].state == TXN_PEER_UP)
        (void)!rd_mark(peer[0].conn, 0, at,
            pm_word_value(peer[0].nonce, le64_get(both[0].seq), PM_WORD_MARK), 0);
    rest(client, 1000);
}

/* ---- forger ---- */

struct forgery {
    struct cr_node *node;
    struct pm_place place; /* of the record that is replaced */
    uint64_t at;           /* its pool offset */
    uint64_t room;         /* to the ring's end */
    uint64_t seq;
    struct pm_lock_pm more;
    uint32_t looks;        /* left */
    bool over;
};

/* A record as it stands in the ring. 0: there is none. */
static uint32_t read_record(const struct cr_node *node, uint64_t at, uint64_t room, uint8_t *copy)
{
    struct pm_record_pm head;

    memcpy(&head, node->pool->visible + at, sizeof(head));
    uint32_t size = le32_get(head.size);
    if (le32_get(head.magic) != PM_RECORD_MAGIC || head.type != PM_RECORD_TX ||
        size > RECORD_ROOM / 2 || size + 64 > room)
        return 0;
    memcpy(copy, node->pool->visible + at, size);
    return size;
}

static struct pm_lock_pm *first_lock(uint8_t *record)
{
    const struct pm_record_pm *head = (const struct pm_record_pm *)(const void *)record;

    return (struct pm_lock_pm *)(void *)(record + sizeof(*head) +
        le16_get(head->participant_count) * sizeof(struct pm_participant_pm));
}

/* The same record, which says that it has locked one word more. */
static uint32_t add_lock(const struct forgery *f, uint8_t *record, uint32_t size)
{
    struct pm_record_pm *head = (struct pm_record_pm *)(void *)record;
    struct pm_lock_pm *lock = first_lock(record) + le16_get(head->lock_count);

    memmove(lock + 1, lock, size - (size_t)((uint8_t *)lock - record));
    *lock = f->more;
    size += 64;
    head->lock_count = le16_make((uint16_t)(le16_get(head->lock_count) + 1));
    head->size = le32_make(size);
    head->mark = le64_make(0);
    head->crc = le32_make(pm_record_crc(record, size, &f->place));
    head->mark = le64_make(pm_record_seal(record, size, &f->place));
    return size;
}

static bool is_applied(const struct forgery *f)
{
    struct pm_pool look = f->node->pm_pool;
    struct pm_slot slot;

    look.pm.base = f->node->pool->visible;
    look.pm.tracer = NULL;
    look.pm.read_only = true;
    return pm_slot_load(&look, f->place.slot, &slot) == 0 && slot.epoch == f->place.epoch &&
        slot.position_seq < f->seq && pm_slot_is_applied(&look, &slot, f->seq);
}

/* As soon as the node is down: a peer that maps its memory can still write into its ring. Not when
 * the power fails too: half of the forgery would damage the record that it replaces. */
static void on_look(void *arg, uint64_t tag)
{
    struct forgery *f = arg;
    uint8_t record[RECORD_ROOM] = {0};

    (void)tag;
    f->over = f->looks == 0 || !f->node->actor->alive;
    if (!f->over) {
        f->looks--;
        sim_after(f->node->actor->sim, 200, on_look, f, 0);
        return;
    }
    uint32_t size = f->looks == 0 || f->node->power_too || !is_applied(f)
        ? 0
        : read_record(f->node, f->at, f->room, record);
    if (size != 0)
        sim_pool_nic_store(f->node->pool, f->at, record, add_lock(f, record, size));
}

static void aim_at(struct forgery *f, const struct txn_peer *peer)
{
    f->place = place_of(peer, peer->log_off);
    f->at = ring_at(peer, peer->log_off);
    f->room = peer->ring_size - peer->log_off % peer->ring_size;
    f->seq = peer->seq + 1;
}

void cr_script_forger(struct cr_client *client)
{
    struct cr_cluster *c = client->cluster;
    struct forgery f = {.node = &c->node[0], .looks = 50000};
    uint8_t victim[RECORD_ROOM] = {0};
    uint64_t value = 7;

    if (!begin(client))
        return;
    aim_at(&f, client->ctx->peer);
    bool put = cr_script_put(client, "h1", &value, sizeof(value));
    rest(client, 2000);
    if (!put || read_record(f.node, f.at, f.room, victim) == 0)
        return;
    f.more = *first_lock(victim);
    f.more.base = le64_make(le64_get(f.more.base) + 1);
    aim_at(&f, client->ctx->peer);
    c->sim.plan[1] = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
        .step = CN_STEP_a_applied, .occurrence = 1, .kind = SIM_CRASH_PROCESS};
    sim_after(&c->sim, 0, on_look, &f, 0);
    (void)cr_script_put(client, "h2", &value, sizeof(value));
    while (!f.over && !c->sim.stop)
        rest(client, 10);
    rest(client, 5000);
}
