/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rules.c: where it looks. Stores of peers: the fabric's hook, in front of the guard's. Stores
 * and fences of a node: a tracer in front of its pool's. Answers: the fabric's hook of messages.
 *
 * Where caches are in the power-fail domain what is visible counts as durable.
 */
#include "tools/crash/cluster/cr_rules.h"

#include "pmem/pm_format.h"
#include "pmem/pm_object.h"
#include "pmem/pm_slot.h"
#include "rdma/rd_wire.h"
#include "txn/txn_token.h"

#define SLOTS_MAX 64u

struct watched {
    struct cr_rules *rules;
    struct sim_pool *pool;
    struct pm_tracer inner;
    struct pm_pool look; /* read-only; its base is set to the image that is looked at */
};

struct taken { /* a sequence, and who has it */
    const struct watched *w;
    uint16_t slot;
    uint64_t epoch, seq;
    struct cn_txid txid;
};

struct log_end { uint64_t epoch, off, last; }; /* of a slot, as its peer has written it, and where
                                                * its last record begins */

struct cr_rules {
    struct sim *sim;
    struct watched *watched[SIM_ACTORS_MAX];
    uint32_t count;
    struct taken *taken;
    size_t taken_count, taken_room;
    struct log_end end[SIM_ACTORS_MAX][SLOTS_MAX];
    void (*inner_store)(void *arg, const struct sim_link *link, const struct sim_wr *wr,
        uint64_t off, uint32_t size);
    void *inner_arg;
};

/* ---- the two images ---- */

static struct pm_pool *visible(struct watched *w)
{
    w->look.pm.base = w->pool->visible;
    return &w->look;
}

static struct pm_pool *durable(struct watched *w)
{
    w->look.pm.base = sim_pool_keeps_all(w->pool) ? w->pool->visible : w->pool->persistent;
    return &w->look;
}

static unsigned node_of(const struct watched *w)
{
    return w->look.super.node;
}

/* ---- records of an image ---- */

struct search {
    const struct pm_pool *look;
    const struct pm_slot *slot;
    uint64_t seq;       /* this one, or, where it is 0, ... */
    uint64_t off, base; /* ... those that are not applied and name the word at this version */
    uint32_t found;
    bool with_tombstone; /* a durable one */
    uint64_t found_seq;
    struct cn_txid txid;
};

static bool lists(const struct pm_lock_pm *list, uint32_t count, uint64_t off, uint64_t base)
{
    for (uint32_t i = 0; i < count; i++)
        if (le64_get(list[i].off) == off && le64_get(list[i].base) == base)
            return true;
    return false;
}

static int on_found(void *arg, const struct pm_record *r)
{
    struct search *s = arg;

    if (s->seq != 0 ? r->seq != s->seq
                    : (r->type != PM_RECORD_TX || !lists(r->lock, r->lock_count, s->off, s->base)))
        return 0;
    s->found++;
    s->found_seq = r->seq;
    s->txid = r->txid;
    return 0;
}

static void scan(struct search *s)
{
    const uint8_t *ring = s->look->pm.base + pm_slot_log_at(s->look, s->slot->number, 0);

    s->found = 0;
    if (s->slot->state != PM_SLOT_FREE)
        (void)!pm_slot_scan(s->look, s->slot, ring, on_found, s);
}

static bool find_seq(
    const struct pm_pool *look, const struct pm_slot *slot, uint64_t seq, struct cn_txid *ret_txid)
{
    struct search s = {.look = look, .slot = slot, .seq = seq};

    scan(&s);
    *ret_txid = s.txid;
    return s.found != 0;
}

/* ---- a record comes in ---- */

static void take(struct cr_rules *rules, const struct taken *t)
{
    for (size_t i = 0; i < rules->taken_count; i++) {
        const struct taken *o = &rules->taken[i];
        if (o->w != t->w || o->slot != t->slot || o->epoch != t->epoch || o->seq != t->seq)
            continue;
        if (!cn_txid_equal(&o->txid, &t->txid))
            sim_fail(rules->sim, "R15: sequence %lu of slot %u of node %u has two transactions",
                t->seq, t->slot, node_of(t->w));
        return;
    }
    if (rules->taken_count == rules->taken_room) {
        rules->taken_room = rules->taken_room == 0 ? 256 : 2 * rules->taken_room;
        rules->taken = sim_realloc(rules->taken, rules->taken_room * sizeof(*rules->taken));
    }
    rules->taken[rules->taken_count++] = *t;
}

/* Its log offset: the next one behind the last record that this place can stand for. */
static uint64_t place_in_log(
    struct cr_rules *rules, uint32_t pool, const struct pm_slot *slot, uint64_t at, uint64_t ring)
{
    struct log_end *end = &rules->end[pool][slot->number];

    if (end->epoch != slot->epoch)
        *end = (struct log_end){slot->epoch, slot->position_off, slot->position_off};
    return end->off + (at + ring - end->off % ring) % ring;
}

static void check_space(struct cr_rules *rules, uint32_t pool, const struct pm_slot *now,
    uint64_t at, const struct pm_record_pm *head)
{
    struct watched *w = rules->watched[pool];
    uint64_t ring = w->look.super.geometry.ring_size, seq = le64_get(head->seq);
    uint64_t begin = place_in_log(rules, pool, now, at, ring), end = begin + le32_get(head->size);
    struct pm_slot slot;

    rules->end[pool][now->number].off = end;
    rules->end[pool][now->number].last = begin;
    if (pm_slot_load(durable(w), now->number, &slot) != 0 || slot.epoch != now->epoch)
        return;
    if (end > slot.position_off + ring || seq > slot.position_seq + w->look.super.geometry.window)
        sim_fail(rules->sim, "R4: record %lu of slot %u of node %u, up to log offset %lu, is "
                 "written over what is not passed: the position is %lu, %lu", seq, now->number,
            node_of(w), end, slot.position_seq, slot.position_off);
}

/* The place of a pool offset in the log of a slot that is open; false: there is none. */
static bool in_log(struct watched *w, uint64_t off, struct pm_slot *ret_slot, uint64_t *ret_at)
{
    const struct pm_super *s = &w->look.super;
    uint64_t at = (off - s->rings_off) % s->ring_stride;
    uint64_t number = (off - s->rings_off) / s->ring_stride;

    if (off < s->rings_off || number >= s->geometry.slot_count || at < RD_RING_HEADER_SIZE ||
        pm_slot_load(visible(w), (uint16_t)number, ret_slot) != 0)
        return false;
    *ret_at = at - RD_RING_HEADER_SIZE;
    return ret_slot->state == PM_SLOT_OPEN;
}

static void check_record(struct cr_rules *rules, uint32_t pool, uint64_t off,
    const struct pm_record_pm *head, uint32_t size)
{
    struct watched *w = rules->watched[pool];
    struct pm_slot slot;
    uint64_t at;

    if (size < sizeof(*head) || le32_get(head->magic) != PM_RECORD_MAGIC ||
        !in_log(w, off, &slot, &at))
        return;
    check_space(rules, pool, &slot, at, head);
    struct taken t = {.w = w, .slot = slot.number, .epoch = slot.epoch,
        .seq = le64_get(head->seq), .txid = {head->coordinator, le64_get(head->count)}};
    if (head->type != PM_RECORD_PAD)
        take(rules, &t);
}

/* The bytes of a record, as its peer has them while they are on their way. */
static void check_bytes(
    struct cr_rules *rules, uint32_t pool, uint64_t off, const void *bytes, uint32_t size)
{
    struct watched *w = rules->watched[pool];
    struct pm_record record;
    struct pm_slot slot;
    uint64_t at;

    if (!in_log(w, off, &slot, &at))
        return;
    const struct log_end *end = &rules->end[pool][slot.number];
    const struct pm_place place = {.pool = w->look.super.pool, .slot = slot.number,
        .epoch = slot.epoch, .nonce = slot.nonce, .log_off = end->last};
    const char *why = end->epoch != slot.epoch || end->last % w->look.super.geometry.ring_size != at
        ? "no head"
        : pm_record_fault(bytes, size, &place, (uint16_t)node_of(w), &record);
    if (why != NULL)
        sim_fail(rules->sim, "R6: what goes to log place %lu of slot %u of node %u is no record "
                 "while it is on its way: %s", at, slot.number, node_of(w), why);
}

/* ---- a mark comes in ---- */

static void check_mark(struct watched *w, uint64_t off, uint64_t mark)
{
    struct pm_record_pm head;
    struct pm_slot slot;
    uint64_t at;

    if (!in_log(w, off, &slot, &at) || at < offsetof(struct pm_record_pm, mark))
        return;
    memcpy(&head, w->pool->visible + off - offsetof(struct pm_record_pm, mark), sizeof(head));
    if (le32_get(head.magic) != PM_RECORD_MAGIC ||
        mark != pm_word_value(slot.nonce, le64_get(head.seq), PM_WORD_MARK))
        sim_fail(w->rules->sim, "R4: a mark comes to log place %lu of slot %u of node %u, where "
                 "its record does not stand (any more)", at, slot.number, node_of(w));
}

/* ---- stores of peers ---- */

static void on_peer_store(
    void *arg, const struct sim_link *link, const struct sim_wr *wr, uint64_t off, uint32_t size)
{
    struct cr_rules *rules = arg;
    const uint8_t *from = wr->copy != NULL ? wr->copy : wr->local;
    struct pm_record_pm head;

    for (uint32_t i = 0; i < rules->count && !rules->sim->failed; i++) {
        if (rules->watched[i]->pool != wr->grant->pool)
            continue;
        if (wr->op == SIM_MARK)
            check_mark(rules->watched[i], off, wr->desired);
        if (wr->op != SIM_WRITE || wr->size < 64)
            continue;
        memset(&head, 0, sizeof(head));
        memcpy(&head, from, cn_min64(wr->size, sizeof(head)));
        if (wr->done == 0)
            check_record(rules, i, off, &head, wr->size < sizeof(head) ? sizeof(head) : wr->size);
        if (wr->done == 0 || wr->done + size == wr->size)
            check_bytes(rules, i, off - wr->done, from, wr->size);
    }
    if (rules->inner_store != NULL)
        rules->inner_store(rules->inner_arg, link, wr, off, size);
}

void cr_rules_token(
    struct cr_rules *rules, const struct cn_uuid *cluster, const char token[CAIRN_TOKEN_SIZE])
{
    struct txn_token t;

    if (rules == NULL || txn_token_parse(token, cluster, &t) != 0)
        return;
    for (uint32_t i = 0; i < rules->count; i++) {
        struct taken taken = {.w = rules->watched[i], .slot = t.slot, .epoch = t.epoch,
            .seq = t.seq, .txid = t.txid};
        if (node_of(taken.w) == t.node)
            take(rules, &taken);
    }
}

/* ---- a node answers ---- */

static void check_present(struct watched *w, const struct pm_slot *slot, uint64_t seq)
{
    struct cn_txid txid;

    if (slot->position_seq < seq && !find_seq(&w->look, slot, seq, &txid))
        sim_fail(w->rules->sim, "R11: node %u says PRESENT of record %lu of slot %u, which is not "
                 "durable", node_of(w), seq, slot->number);
}

static void check_aborted(struct watched *w, const struct pm_slot *slot, uint64_t seq)
{
    if (slot->state == PM_SLOT_FREE || pm_slot_has_tombstone(&w->look, slot, seq) ||
        (slot->state == PM_SLOT_CLOSED && seq > slot->closing_seq))
        return;
    sim_fail(w->rules->sim, "R14: node %u says ABORTED of record %lu of slot %u, and nothing "
             "durable prevents it", node_of(w), seq, slot->number);
}

/* What it says is said of that transaction only. */
static void check_name(struct watched *w, const struct rd_place_wire *place)
{
    uint64_t seq = le64_get(place->seq);
    struct cn_txid asked = {place->coordinator, le64_get(place->count)}, txid;
    struct pm_slot slot;

    if (pm_slot_load(visible(w), le16_get(place->slot), &slot) == 0 &&
        slot.epoch == le64_get(place->epoch) && slot.position_seq < seq &&
        find_seq(&w->look, &slot, seq, &txid) && !cn_txid_equal(&asked, &txid))
        sim_fail(w->rules->sim, "R15: node %u answers for record %lu of slot %u, which is another "
                 "transaction's", node_of(w), seq, slot.number);
}

static void check_answer(struct watched *w, const struct rd_answer_wire *a, bool to_node)
{
    enum rd_verdict verdict = (enum rd_verdict)le32_get(a->verdict);
    uint16_t number = le16_get(a->place.slot);
    struct pm_slot slot;

    if (number == 0 || number >= w->look.super.geometry.slot_count ||
        le16_get(a->place.node) != node_of(w))
        return;
    if (verdict == RD_VERDICT_PRESENT || verdict == RD_VERDICT_COMMITTED)
        check_name(w, &a->place);
    if (!to_node || pm_slot_load(durable(w), number, &slot) != 0 ||
        slot.epoch != le64_get(a->place.epoch))
        return;
    if (verdict == RD_VERDICT_PRESENT)
        check_present(w, &slot, le64_get(a->place.seq));
    if (verdict == RD_VERDICT_ABORTED)
        check_aborted(w, &slot, le64_get(a->place.seq));
}

static void on_message(void *arg, const struct sim_actor *from, const void *message, uint32_t size)
{
    struct cr_rules *rules = arg;
    struct rd_message_wire head;
    struct rd_answer_wire answer;

    if (rules->sim->failed || size < sizeof(head) + sizeof(answer))
        return;
    memcpy(&head, message, sizeof(head));
    memcpy(&answer, (const uint8_t *)message + sizeof(head), sizeof(answer));
    uint16_t type = le16_get(head.type);
    if ((type != RD_MSG_ANSWER && type != RD_MSG_RESOLVE_REPLY) || le32_get(head.status) != 0)
        return;
    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->watched[i]->pool->owner == from)
            check_answer(rules->watched[i], &answer, type == RD_MSG_ANSWER);
}

/* ---- a slot is closed ---- */

static void check_closed(struct watched *w)
{
    struct cn_txid txid;
    struct pm_slot slot;

    for (uint16_t n = 1; n < w->look.super.geometry.slot_count; n++) {
        if (pm_slot_load(durable(w), n, &slot) != 0 || slot.state != PM_SLOT_CLOSED)
            continue;
        for (uint64_t seq = slot.position_seq + 1; seq <= slot.closing_seq; seq++) {
            if (!pm_slot_has_tombstone(&w->look, &slot, seq) &&
                !find_seq(&w->look, &slot, seq, &txid))
                sim_fail(w->rules->sim, "R14: node %u closes slot %u at %lu, and sequence %lu has "
                         "neither a record nor a tombstone that is durable", node_of(w), n,
                    slot.closing_seq, seq);
        }
    }
}

/* ---- a node stores a lock word ---- */

static bool holds_word(const struct pm_pool *look, uint64_t off)
{
    const struct pm_super *s = &look->super;
    uint64_t number = off >> s->geometry.chunk_shift;
    uint64_t within = off & ((UINT64_C(1) << s->geometry.chunk_shift) - 1);
    struct pm_chunk_pm d;

    if (off < s->heap_off || number >= s->chunk_count)
        return false;
    memcpy(&d, look->pm.base + s->chunks_off + number * sizeof(d), sizeof(d));
    if (d.kind == PM_CHUNK_BUCKETS)
        return within % PM_BUCKET_SIZE == 0;
    uint32_t size = pm_class_size(d.class_);
    return d.kind == PM_CHUNK_SLAB && size != 0 && within % size == 0;
}

/* Records of a slot that name the word at the version, without those that are applied. */
static void look_for(struct watched *w, uint16_t number, uint64_t off, uint64_t base,
    struct search *ret)
{
    struct pm_slot slot, now;

    *ret = (struct search){.off = off, .base = base};
    if (number == 0 || number >= w->look.super.geometry.slot_count ||
        pm_slot_load(visible(w), number, &now) != 0)
        return;
    ret->look = &w->look;
    ret->slot = &now; // cppcheck-suppress autoVariables
    scan(ret);
    if (ret->found == 0 || pm_slot_is_applied(&w->look, &now, ret->found_seq)) {
        ret->found = 0;
        ret->slot = NULL;
        return;
    }
    ret->slot = NULL; /* it was for the scan */
    if (pm_slot_load(durable(w), number, &slot) == 0 && slot.epoch == now.epoch &&
        pm_slot_has_tombstone(&w->look, &slot, ret->found_seq))
        ret->with_tombstone = true;
}

/* Locked for a slot: not for a record with a tombstone, unless it has another one. */
static void check_taken(struct watched *w, uint64_t off, uint64_t word)
{
    struct search s;

    look_for(w, pm_word_slot(word), off, pm_word_version(word), &s);
    if (s.found == 1 && s.with_tombstone)
        sim_fail(w->rules->sim, "R12: node %u locks the word at %#lx for record %lu of slot %u, "
                 "which has a tombstone", node_of(w), off, s.found_seq, pm_word_slot(word));
}

static void check_given_back(struct watched *w, uint64_t off, uint64_t version)
{
    struct search s;

    for (uint16_t n = 1; n < w->look.super.geometry.slot_count; n++) {
        look_for(w, n, off, version, &s);
        if (s.found != 0 && !s.with_tombstone)
            sim_fail(w->rules->sim, "R8: node %u gives the word at %#lx back, and record %lu of "
                     "slot %u, which names it, has no durable tombstone", node_of(w), off,
                s.found_seq, n);
    }
}

static void check_word(struct watched *w, uint64_t off)
{
    uint64_t word = pm_load64(&visible(w)->pm, off), version = pm_word_version(word);
    uint64_t copy = pm_word_version(pm_load64(&w->look.pm, off + 8));

    if (pm_word_locked_bit(word)) {
        check_taken(w, off, word);
        return;
    }
    if (word != version || version == 0)
        return;
    if (version > copy)
        sim_fail(w->rules->sim, "I5: node %u raises the word at %#lx to %lu, above its object's "
                 "version %lu", node_of(w), off, version, copy);
    check_given_back(w, off, version);
}

/* ---- the tracer ---- */

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct watched *w = arg;

    if (!w->rules->sim->failed && size == 8 && holds_word(visible(w), off))
        check_word(w, off);
    w->inner.store(w->inner.arg, off, size);
}

static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    struct watched *w = arg;

    w->inner.flush(w->inner.arg, off, size);
}

static void on_fence(void *arg, enum cn_step step)
{
    struct watched *w = arg;

    w->inner.fence(w->inner.arg, step);
    if (step == CN_STEP_s_fence_closed && !w->rules->sim->failed)
        check_closed(w);
}

/* ---- life ---- */

struct cr_rules *cr_rules_new(struct sim *sim)
{
    struct cr_rules *rules = sim_calloc(1, sizeof(*rules));
    struct sim_fabric *fabric = sim->fabric;

    rules->sim = sim;
    rules->inner_store = fabric->on_store;
    rules->inner_arg = fabric->on_store_arg;
    fabric->on_store = on_peer_store;
    fabric->on_store_arg = rules;
    fabric->on_message = on_message;
    fabric->on_message_arg = rules;
    return rules;
}

static void flush_nothing(const void *addr, size_t size)
{
    (void)addr;
    (void)size;
}

static void drain_nothing(void)
{
}

void cr_rules_watch(struct cr_rules *rules, struct sim_pool *pool, uint64_t super_off)
{
    struct watched *w = sim_calloc(1, sizeof(*w));
    struct pm pm = {.base = pool->visible, .size = pool->size, .flush_lines = flush_nothing,
        .drain = drain_nothing, .env = &rules->sim->env, .read_only = true};

    CAIRN_ASSERT(rules->count < SIM_ACTORS_MAX);
    if (pm_attach(&w->look, &pm, super_off) != 0) {
        sim_unable(rules->sim, "rules: %s", cairn_last_error());
        sim_free(w);
        return;
    }
    CAIRN_ASSERT(w->look.super.geometry.slot_count <= SLOTS_MAX);
    w->rules = rules;
    w->pool = pool;
    w->inner = pool->tracer;
    pool->tracer = (struct pm_tracer){w, on_store, on_flush, on_fence};
    rules->watched[rules->count++] = w;
}

void cr_rules_delete(struct cr_rules **rules)
{
    struct cr_rules *r = *rules;

    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->count; i++) {
        r->watched[i]->pool->tracer = r->watched[i]->inner;
        sim_free(r->watched[i]);
    }
    if (r->sim->fabric != NULL) {
        r->sim->fabric->on_store = r->inner_store;
        r->sim->fabric->on_store_arg = r->inner_arg;
        r->sim->fabric->on_message = NULL;
    }
    sim_free(r->taken);
    sim_free(r);
    *rules = NULL;
}
