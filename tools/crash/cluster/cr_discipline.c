/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_discipline.c: the flush discipline. A tracer stands in front of each pool's own and looks at a
 * store before the model takes note of it: so what is seen in the shadow was durable before it.
 *
 * Stores are told apart by where they go: the header of a slot (a position), the header page of a
 * ring (a published position), a multiple of 64 bytes in the heap (a lock word, if a record in a
 * ring names it). Records are read out of the shadow by the shipped codec.
 */
#include "tools/crash/cluster/cr_discipline.h"

#include "pmem/pm_format.h"
#include "pmem/pm_object.h"
#include "pmem/pm_slot.h"
#include "txn/txn_token.h"

#define POSITION_OFF 64u /* in a ring's header page */

struct watched {
    struct cr_discipline *discipline;
    struct sim_pool *pool;
    struct pm_tracer inner;
    struct pm_pool look; /* read-only; `base` is set to the image that is looked at */
};

struct cr_discipline {
    struct sim *sim;
    struct watched *watched[CR_DISCIPLINE_POOLS_MAX];
    uint32_t count;
    struct cr_discipline_stats stats;
};

/* ---- the two images ---- */

static struct pm_pool *durable(struct watched *w)
{
    w->look.pm.base = w->pool->persistent;
    return &w->look;
}

static struct pm_pool *visible(struct watched *w)
{
    w->look.pm.base = w->pool->visible;
    return &w->look;
}

/* ---- records ---- */

struct wanted {
    uint64_t seq;       /* 0: the first behind `after` that names the word */
    uint64_t after;
    uint64_t off, base; /* ... and its version before */
    bool found;
    struct pm_record record; /* points into the image */
};

static bool names(const struct pm_record *r, uint64_t off, uint64_t base)
{
    for (uint32_t i = 0; i < r->lock_count; i++)
        if (le64_get(r->lock[i].off) == off && le64_get(r->lock[i].base) == base)
            return true;
    for (uint32_t i = 0; i < r->block_count; i++)
        if (le64_get(r->block[i].off) == off && le64_get(r->block[i].base) == base)
            return true;
    return false;
}

static int on_found(void *arg, const struct pm_record *record)
{
    struct wanted *w = arg;

    if (w->found || (w->seq != 0 ? record->seq != w->seq
                                 : record->seq <= w->after || !names(record, w->off, w->base)))
        return 0;
    w->found = true;
    w->record = *record;
    return 0;
}

static bool scan(const struct pm_pool *look, const struct pm_slot *slot, struct wanted *w)
{
    const uint8_t *ring = look->pm.base + pm_slot_log_at(look, slot->number, 0);

    w->found = false;
    return pm_slot_scan(look, slot, ring, on_found, w) == 0 && w->found;
}

/* The record of a sequence, also one that the position has passed: its bytes lie there until the
 * ring comes round. */
static bool find_seq(
    const struct pm_pool *look, const struct pm_slot *slot, uint64_t seq, struct wanted *w)
{
    struct pm_slot from = *slot;

    *w = (struct wanted){.seq = seq};
    if (seq > slot->position_seq)
        return scan(look, slot, w);
    from.state = PM_SLOT_OPEN;
    from.position_seq = seq - 1;
    from.position_off -= cn_min64(from.position_off, look->super.geometry.ring_size);
    return scan(look, &from, w);
}

/* ---- a word is released ---- */

static uint64_t object_size(const struct pm_pool *look, uint64_t off)
{
    struct pm_item_pm item;
    uint64_t size = PM_ITEM_HEADER_SIZE;

    if (off + sizeof(item) > look->pm.size)
        return 0;
    pm_read(&look->pm, off, &item, sizeof(item));
    unsigned kind = pm_meta_kind(le64_get(item.head.meta));
    if (kind == PM_KIND_BUCKET)
        size = PM_BUCKET_SIZE;
    else if (kind == PM_KIND_ITEM)
        size = cn_align_up(pm_item_size(le16_get(item.key_size), le32_get(item.value_size)), 8);
    return cn_min64(size, look->pm.size - off);
}

/* What lies behind a word is durable, before the record is told to be applied, or the word is
 * released. */
static void check_object(
    struct watched *w, const struct pm_record *r, uint64_t off, const char *what)
{
    const struct sim_pool *pool = w->pool;
    uint64_t size = object_size(visible(w), off);

    for (uint64_t i = 8; i < size; i += 8)
        if (memcmp(pool->visible + off + i, pool->persistent + off + i, 8) != 0) {
            sim_fail(w->discipline->sim, "I16: node %u %s record %lu, and byte %lu of what is "
                     "behind the word at %#lx is not durable", w->look.super.node, what, r->seq, i,
                off);
            return;
        }
}

/* A record that names the word, in the shadow, or in what is only visible, behind record `after` of
 * slot `from`. One that was aborted may name it, too, of the same slot also. */
static bool find_releaser(struct watched *w, bool in_shadow, uint16_t from, uint64_t after,
    uint64_t off, uint64_t base, struct pm_slot *ret_slot, struct wanted *ret)
{
    struct pm_pool *look = in_shadow ? durable(w) : visible(w);

    for (uint16_t s = from; s < look->super.geometry.slot_count; s++) {
        *ret = (struct wanted){.off = off, .base = base, .after = s == from ? after : 0};
        if (pm_slot_load(look, s, ret_slot) == 0 && ret_slot->state != PM_SLOT_FREE &&
            scan(look, ret_slot, ret))
            return true;
    }
    return false;
}

static void check_release(struct watched *w, uint64_t off)
{
    struct sim *sim = w->discipline->sim;
    uint64_t word = pm_load64(&visible(w)->pm, off), version = pm_word_version(word);
    struct wanted found, first;
    struct pm_slot slot, first_slot;

    if (pm_word_locked_bit(word) || word != version || version == 0 ||
        pm_word_version(pm_load64(&durable(w)->pm, off)) >= version)
        return;
    if (!find_releaser(w, true, 1, 0, off, version - 1, &first_slot, &first)) {
        if (find_releaser(w, false, 1, 0, off, version - 1, &slot, &found))
            sim_fail(sim, "I16: node %u releases the word at %#lx for record %lu of slot %u, which "
                     "is not durable", w->look.super.node, off, found.record.seq, slot.number);
        return;
    }
    w->discipline->stats.released++;
    slot = first_slot;
    found = first;
    while (!pm_slot_is_applied(durable(w), &slot, found.record.seq)) {
        if (find_releaser(w, true, slot.number, found.record.seq, off, version - 1, &slot,
                &found))
            continue;
        sim_fail(sim, "I16: node %u releases the word at %#lx for record %lu of slot %u, and that "
                 "it is applied is not durable", w->look.super.node, off, first.record.seq,
            first_slot.number);
        return;
    }
    check_object(w, &found.record, off, "releases a word for");
}

/* ---- a record is told to be applied ---- */

static void check_bodies(struct watched *w, const struct pm_record *r)
{
    for (uint32_t i = 0; i < r->lock_count; i++)
        check_object(w, r, le64_get(r->lock[i].off), "calls applied");
    for (uint32_t i = 0; i < r->block_count; i++)
        check_object(w, r, le64_get(r->block[i].off), "calls applied");
}

static void check_applied(struct watched *w, uint16_t number)
{
    struct wanted found;
    struct pm_slot slot;

    if (number == 0 || pm_slot_load(durable(w), number, &slot) != 0)
        return;
    for (uint64_t i = 1; i <= w->look.super.geometry.window; i++) {
        uint64_t seq = slot.position_seq + i;
        if (pm_slot_is_applied(durable(w), &slot, seq) ||
            !pm_slot_is_applied(visible(w), &slot, seq) ||
            !find_seq(durable(w), &slot, seq, &found))
            continue;
        w->discipline->stats.applied++;
        check_bodies(w, &found.record);
    }
}

/* ---- a position moves ---- */

static void check_words(
    struct watched *w, const struct pm_slot *slot, const struct pm_record *r, bool blocks)
{
    const struct pm_lock_pm *list = blocks ? r->block : r->lock;
    uint32_t count = blocks ? r->block_count : r->lock_count;
    struct pm_pool *look = durable(w);

    for (uint32_t i = 0; i < count; i++) {
        uint64_t off = le64_get(list[i].off);
        if (off % 8 == 0 && off + 8 <= look->pm.size &&
            pm_word_version(pm_load64(&look->pm, off)) <= le64_get(list[i].base))
            sim_fail(w->discipline->sim, "I16: the position of slot %u of node %u passes record "
                     "%lu, and the release of %#lx is not durable", slot->number,
                look->super.node, r->seq, off);
    }
}

static void check_passed(struct watched *w, const struct pm_slot *slot, uint64_t seq)
{
    struct pm_pool *look = durable(w);
    struct wanted found;

    w->discipline->stats.passed++;
    if (pm_slot_has_tombstone(look, slot, seq))
        return;
    if (!find_seq(look, slot, seq, &found)) {
        sim_fail(w->discipline->sim, "I16: the position of slot %u of node %u passes sequence %lu, "
                 "of which nothing durable is known", slot->number, look->super.node, seq);
        return;
    }
    if (found.record.type != PM_RECORD_TX || !pm_slot_is_applied(look, slot, seq)) {
        sim_fail(w->discipline->sim, "I16: the position of slot %u of node %u passes record %lu, "
                 "and that it is applied, or has a tombstone, is not durable", slot->number,
            look->super.node, seq);
        return;
    }
    check_words(w, slot, &found.record, false);
    check_words(w, slot, &found.record, true);
}

static void check_position(struct watched *w, uint16_t number)
{
    struct pm_slot now, before;

    if (number == 0 || pm_slot_load(visible(w), number, &now) != 0 ||
        pm_slot_load(durable(w), number, &before) != 0 || now.epoch != before.epoch)
        return;
    for (uint64_t seq = before.position_seq + 1; seq <= now.position_seq; seq++)
        check_passed(w, &before, seq);
}

/* One of the two words, sequence and log offset: each is used for itself. */
static void check_published(struct watched *w, uint16_t number, uint64_t at, bool is_seq)
{
    struct pm_slot now, before;

    if (pm_slot_load(visible(w), number, &now) != 0)
        return;
    uint64_t value = pm_load64(&w->look.pm, at);
    if (pm_slot_load(durable(w), number, &before) != 0 || now.epoch != before.epoch ||
        before.state != PM_SLOT_OPEN)
        return;
    w->discipline->stats.published++;
    uint64_t limit = is_seq ? before.position_seq : before.position_off;
    if (value > limit)
        sim_fail(w->discipline->sim, "I16: slot %u of node %u publishes the position's %s %lu, "
                 "durable is %lu", number, w->look.super.node, is_seq ? "sequence" : "log offset",
            value, limit);
}

/* ---- the tracer ---- */

static bool overlaps(uint64_t off, uint64_t size, uint64_t at, uint64_t length)
{
    return off < at + length && at < off + size;
}

static void look_at(struct watched *w, uint64_t off, uint64_t size)
{
    const struct pm_super *s = &w->look.super;

    if (off >= s->heap_off) {
        if (size == 8 && off % PM_LINE == 0)
            check_release(w, off);
    } else if (off >= s->rings_off) {
        uint64_t number = (off - s->rings_off) / s->ring_stride;
        uint64_t at = s->rings_off + number * s->ring_stride + POSITION_OFF;
        for (uint32_t i = 0; i < 16 && number < s->geometry.slot_count; i += 8)
            if (overlaps(off, size, at + i, 8))
                check_published(w, (uint16_t)number, at + i, i == 0);
    } else if (off >= s->slots_off && off < s->retired_off) {
        uint64_t number = (off - s->slots_off) / s->slot_stride;
        uint64_t rest = (off - s->slots_off) % s->slot_stride;
        if (rest < PM_SLOT_HEADER_SIZE)
            check_position(w, (uint16_t)number);
        else if (rest >= PM_SLOT_HEADER_SIZE +
                s->tombstone_max * (uint64_t)sizeof(struct pm_tombstone_pm))
            check_applied(w, (uint16_t)number);
    }
}

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct watched *w = arg;

    if (!w->discipline->sim->failed && !sim_pool_keeps_all(w->pool))
        look_at(w, off, size);
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
}

/* ---- acknowledgements ---- */

static struct watched *by_node(struct cr_discipline *d, uint16_t node)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->watched[i]->look.super.node == node)
            return d->watched[i];
    return NULL;
}

static bool holds(struct watched *w, uint16_t number, uint64_t epoch, uint64_t seq)
{
    struct pm_pool *look = durable(w);
    struct wanted found;
    struct pm_slot slot;

    if (number >= look->super.geometry.slot_count || pm_slot_load(look, number, &slot) != 0)
        return false;
    return slot.epoch > epoch ||
        (slot.epoch == epoch && (slot.position_seq >= seq || find_seq(look, &slot, seq, &found)));
}

enum trace { TRACE_FOUND, TRACE_GONE, TRACE_NONE };

/* What is visible of a record: itself, or that the node has passed it and its bytes are no more, or
 * nothing. */
static enum trace trace_record(struct watched *w, const struct txn_token *t, struct wanted *ret)
{
    struct pm_slot slot;

    if (t->slot >= w->look.super.geometry.slot_count ||
        pm_slot_load(visible(w), t->slot, &slot) != 0 || slot.epoch > t->epoch)
        return TRACE_GONE;
    if (slot.epoch == t->epoch && find_seq(&w->look, &slot, t->seq, ret))
        return TRACE_FOUND;
    return slot.epoch == t->epoch && slot.position_seq >= t->seq ? TRACE_GONE : TRACE_NONE;
}

static bool lacks(struct cr_discipline *d, uint64_t seq, uint16_t slot, uint16_t node)
{
    sim_fail(d->sim, "I16: COMMITTED is returned, and record %lu of slot %u of node %u is not "
             "durable", seq, slot, node);
    return false;
}

void cr_discipline_before(struct cairn_ctx *ctx, char before[CAIRN_TOKEN_SIZE])
{
    if (cairn_ctx_token(ctx, before) != 0)
        before[0] = '\0';
}

bool cr_discipline_acked(struct cr_discipline *d, struct cairn_ctx *ctx,
    const struct cn_uuid *cluster, const char before[CAIRN_TOKEN_SIZE])
{
    char text[CAIRN_TOKEN_SIZE];
    struct txn_token token;
    struct wanted record;

    if (d->sim->failed || d->sim->mode == SIM_EADR || cairn_ctx_token(ctx, text) != 0 ||
        strcmp(text, before) == 0 || txn_token_parse(text, cluster, &token) != 0)
        return true;
    struct watched *first = by_node(d, token.node);
    enum trace trace = first == NULL ? TRACE_GONE : trace_record(first, &token, &record);
    if (trace == TRACE_GONE)
        return true;
    d->stats.acked++;
    if (trace == TRACE_NONE)
        return lacks(d, token.seq, token.slot, token.node);
    for (uint32_t i = 0; i < record.record.participant_count; i++) {
        const struct pm_participant_pm *p = &record.record.participant[i];
        struct watched *w = by_node(d, le16_get(p->node));
        if (w != NULL && !holds(w, le16_get(p->slot), le64_get(p->epoch), le64_get(p->seq)))
            return lacks(d, le64_get(p->seq), le16_get(p->slot), le16_get(p->node));
    }
    return true;
}

/* ---- life ---- */

struct cr_discipline *cr_discipline_new(struct sim *sim)
{
    struct cr_discipline *d = sim_calloc(1, sizeof(*d));

    d->sim = sim;
    return d;
}

void cr_discipline_watch(struct cr_discipline *d, struct sim_pool *pool, uint64_t super_off)
{
    struct watched *w = sim_calloc(1, sizeof(*w));
    struct pm pm;

    CAIRN_ASSERT(d->count < CR_DISCIPLINE_POOLS_MAX);
    sim_pool_pm(pool, &d->sim->env, &pm);
    pm.tracer = NULL;
    pm.read_only = true;
    if (pm_attach(&w->look, &pm, super_off) != 0) {
        sim_unable(d->sim, "flush discipline: %s", cairn_last_error());
        sim_free(w);
        return;
    }
    w->discipline = d;
    w->pool = pool;
    w->inner = pool->tracer;
    pool->tracer = (struct pm_tracer){w, on_store, on_flush, on_fence};
    d->watched[d->count++] = w;
}

void cr_discipline_delete(struct cr_discipline **discipline)
{
    struct cr_discipline *d = *discipline;

    for (uint32_t i = 0; d != NULL && i < d->count; i++) {
        d->watched[i]->pool->tracer = d->watched[i]->inner;
        sim_free(d->watched[i]);
    }
    sim_free(d);
    *discipline = NULL;
}

const struct cr_discipline_stats *cr_discipline_stats(const struct cr_discipline *d)
{
    return &d->stats;
}
