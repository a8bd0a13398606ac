/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_guard.c: invariants I14 and I15, at each store of the fabric. It reads the pools with the
 * shipped codec and knows no volatile state of the product.
 */
#include "tools/crash/cluster/cr_guard.h"

#include "pmem/pm_object.h"
#include "pmem/pm_slot.h"
#include "rdma/rd_wire.h"

#define MARK_OFF offsetof(struct pm_record_pm, mark)
#define UNIT 64u

struct watched {
    const struct sim_pool *pool;
    struct pm_pool look; /* its base is set anew each time: memory moves with each restart */
    uint8_t *began;      /* a bit per unit of a ring: a write began there */
};

struct cr_guard {
    struct sim *sim;
    struct watched watched[SIM_ACTORS_MAX];
    uint32_t count;
    uint64_t stores;
};

static void flush_nothing(const void *addr, size_t size)
{
    (void)addr;
    (void)size;
}

static void drain_nothing(void)
{
}

static struct watched *find(struct cr_guard *guard, const struct sim_pool *pool)
{
    for (uint32_t i = 0; i < guard->count; i++)
        if (guard->watched[i].pool == pool)
            return &guard->watched[i];
    return NULL;
}

/* NULL: the slot is open and belongs to the session that the link was made for. */
static const char *check_owner(
    const struct watched *w, uint16_t number, const struct sim_link *link)
{
    struct rd_hello_wire hello;
    struct pm_slot slot;

    memcpy(&hello, link->hello, sizeof(hello));
    if (pm_slot_load(&w->look, number, &slot) != 0)
        return "whose header is damaged";
    if (slot.state != PM_SLOT_OPEN)
        return "which is not open any more";
    return cn_uuid_equal(&slot.owner, &hello.peer) ? NULL : "which belongs to another session";
}

static void check_log(struct cr_guard *guard, struct watched *w, const struct sim_link *link,
    const struct sim_wr *wr, uint64_t off, uint32_t size)
{
    const struct pm_super *s = &w->look.super;
    const char *name = link->actor[0]->name;

    if (off < s->rings_off || off >= s->rings_off + s->geometry.slot_count * s->ring_stride) {
        sim_fail(guard->sim, "grant: %s writes at %lu, which is in no ring", name, off);
        return;
    }
    uint16_t number = (uint16_t)((off - s->rings_off) / s->ring_stride);
    uint64_t at = (off - s->rings_off) % s->ring_stride;
    if (number == 0 ||
        !cn_range_inside(at, size, RD_RING_HEADER_SIZE, s->geometry.ring_size)) {
        sim_fail(guard->sim, "grant: %s writes %u bytes at %lu of ring %u", name, size, at,
            number);
        return;
    }
    if (wr->op == SIM_MARK && at % UNIT != MARK_OFF)
        sim_fail(guard->sim, "grant: %s marks at %lu of ring %u, which is no mark", name, at,
            number);
    const char *wrong = check_owner(w, number, link);
    if (wrong != NULL)
        sim_fail(guard->sim, "zombie: %s writes into the ring of slot %u, %s", name, number, wrong);
    uint64_t unit = (at - RD_RING_HEADER_SIZE) / UNIT;
    if (wr->op == SIM_WRITE && wr->done == 0)
        w->began[unit / 8] |= (uint8_t)(1u << unit % 8);
}

static bool holds_word(const struct watched *w, uint64_t off)
{
    const struct pm_super *s = &w->look.super;
    uint64_t number = off >> s->geometry.chunk_shift;
    uint64_t within = off & ((UINT64_C(1) << s->geometry.chunk_shift) - 1);
    struct pm_chunk_pm d;

    if (off < s->heap_off || number >= s->chunk_count)
        return false;
    memcpy(&d, w->look.pm.base + s->chunks_off + number * sizeof(d), sizeof(d));
    if (d.kind == PM_CHUNK_BUCKETS)
        return within % PM_BUCKET_SIZE == 0;
    uint32_t size = pm_class_size(d.class_);
    return d.kind == PM_CHUNK_SLAB && size != 0 && within % size == 0;
}

static void check_word(struct cr_guard *guard, struct watched *w, const struct sim_link *link,
    const struct sim_wr *wr, uint64_t off)
{
    const char *name = link->actor[0]->name;

    if (!holds_word(w, off)) {
        sim_fail(guard->sim, "grant: %s swaps at %lu, which is no lock word", name, off);
        return;
    }
    if (link->loop || !pm_word_locked_bit(wr->desired))
        return;
    const char *wrong = check_owner(w, pm_word_slot(wr->desired), link);
    if (wrong != NULL)
        sim_fail(guard->sim, "zombie: %s locks the word at %lu for slot %u, %s", name, off,
            pm_word_slot(wr->desired), wrong);
}

static void on_store(
    void *arg, const struct sim_link *link, const struct sim_wr *wr, uint64_t off, uint32_t size)
{
    struct cr_guard *guard = arg;
    struct watched *w = find(guard, wr->grant->pool);

    if (w == NULL || guard->sim->failed)
        return;
    guard->stores++;
    w->look.pm.base = w->pool->visible;
    if (wr->op == SIM_CAS)
        check_word(guard, w, link, wr, off);
    else
        check_log(guard, w, link, wr, off, size);
}

struct cr_guard *cr_guard_new(struct sim *sim)
{
    struct cr_guard *guard = sim_calloc(1, sizeof(*guard));

    guard->sim = sim;
    sim->fabric->on_store = on_store;
    sim->fabric->on_store_arg = guard;
    return guard;
}

void cr_guard_delete(struct cr_guard **guard)
{
    for (uint32_t i = 0; i < (*guard)->count; i++)
        sim_free((*guard)->watched[i].began);
    if ((*guard)->sim->fabric != NULL)
        (*guard)->sim->fabric->on_store = NULL;
    sim_free(*guard);
    *guard = NULL;
}

void cr_guard_watch(struct cr_guard *guard, struct sim_pool *pool, uint64_t super_off)
{
    struct watched *w = &guard->watched[guard->count];
    struct pm pm = {.base = pool->visible, .size = pool->size, .flush_lines = flush_nothing,
        .drain = drain_nothing, .env = &guard->sim->env, .read_only = true};

    CAIRN_ASSERT(guard->count < SIM_ACTORS_MAX);
    if (pm_attach(&w->look, &pm, super_off) != 0) {
        sim_unable(guard->sim, "guard: %s", cairn_last_error());
        return;
    }
    w->pool = pool;
    w->began = sim_calloc(1, w->look.super.geometry.ring_size / UNIT / 8 + 1);
    guard->count++;
}

void cr_guard_stats(const struct cr_guard *guard, struct cr_guard_stats *ret)
{
    *ret = (struct cr_guard_stats){.stores = guard->stores};
    for (uint32_t i = 0; i < guard->count; i++) {
        const struct watched *w = &guard->watched[i];
        uint64_t units = w->look.super.geometry.ring_size / UNIT;
        ret->places += units;
        for (uint64_t u = 0; u < units; u++)
            ret->places_logged += w->began[u / 8] >> u % 8 & 1;
    }
}
