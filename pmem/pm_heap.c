/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_heap.c: which blocks are free, and whose they are.
 *
 * The header of a block is the truth: ITEM lives; zero, DEAD and MOVED are free unless an
 * unresolved record names the block or a slot holds it as a grant. Those two are noted in one table
 * (offset -> slot or "aside"). Free sets are bitmaps per SLAB chunk, made by a survey of its
 * headers, once per start; nothing of them is on media but a hint.
 *
 * Invariants:
 * - A block that is set in a bitmap is free by its header and not in the table.
 * - T7: a free in a part of a chunk not surveyed yet only raises the hint; the survey finds it.
 * - T8: set-asides come before the first survey; a survey skips nothing but what is in the table or
 *   half released (word and meta differ), which pm_heap_free() brings later.
 * - A bitmap is a set: freeing twice is freeing once.
 */
#include "pmem/pm_store_internal.h"

#include <errno.h>

#define GRANT_CAP_MIN 64u
#define AHEAD_BLOCKS 256u /* fewer known free blocks: survey, or take a chunk, ahead of need */
#define HINT_UNIT 16u

/* ---- the table of grants and set-asides: open addressing, no tombstones ---- */

static uint32_t grant_slot(const struct pm_store *s, uint64_t off)
{
    uint32_t i = (uint32_t)cn_mix64(off) & (s->grant_cap - 1);

    while (s->grant[i].off != 0 && s->grant[i].off != off)
        i = (i + 1) & (s->grant_cap - 1);
    return i;
}

static struct pm_grant *find_grant(const struct pm_store *s, uint64_t off)
{
    struct pm_grant *g;

    if (s->grant_count == 0)
        return NULL;
    g = &s->grant[grant_slot(s, off)];
    return g->off == off && off != 0 ? g : NULL;
}

static int grow_grants(struct pm_store *s)
{
    uint32_t old_cap = s->grant_cap;
    uint32_t cap = old_cap == 0 ? GRANT_CAP_MIN : 2 * old_cap;
    struct pm_grant *old = s->grant, *table = calloc(cap, sizeof(*table));

    if (table == NULL)
        return cn_fail(-ENOMEM, "no memory for %u grants", cap);
    s->grant = table;
    s->grant_cap = cap;
    for (uint32_t i = 0; i < old_cap; i++) {
        if (old[i].off != 0)
            table[grant_slot(s, old[i].off)] = old[i];
    }
    free(old);
    return 0;
}

/* Reserve before noting, so that noting cannot fail. */
static int reserve_grant(struct pm_store *s)
{
    return 2 * (s->grant_count + 1) > s->grant_cap ? grow_grants(s) : 0;
}

static void put_grant(struct pm_store *s, uint64_t off, uint16_t slot, bool aside)
{
    uint32_t i = grant_slot(s, off);

    CAIRN_ASSERT(s->grant[i].off == 0);
    s->grant[i] = (struct pm_grant){.off = off, .slot = slot, .aside = aside};
    s->grant_count++;
    if (!aside)
        s->class_[pm_chunk_at(&s->c, off)->class_].granted++;
}

static void remove_grant(struct pm_store *s, struct pm_grant *g)
{
    uint32_t mask = s->grant_cap - 1, hole = (uint32_t)(g - s->grant);

    if (!g->aside)
        s->class_[pm_chunk_at(&s->c, g->off)->class_].granted--;
    for (uint32_t i = (hole + 1) & mask; s->grant[i].off != 0; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)cn_mix64(s->grant[i].off) & mask;

        /* It may move to the hole unless its home lies behind the hole. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            s->grant[hole] = s->grant[i];
            hole = i;
        }
    }
    s->grant[hole].off = 0;
    s->grant_count--;
}

/* ---- free sets ---- */

bool pm_heap_block_is_free(const struct pm_store *s, uint64_t off)
{
    uint8_t header[PM_ITEM_HEADER_SIZE];
    struct pm_item_view view;

    pm_read(s->pm, off, header, sizeof(header));
    pm_item_look(header, sizeof(header), off, s->pool->crc_seed, s->pool->tag, &view);
    if (pm_word_locked_bit(view.word) || view.version + PM_VERSION_MARGIN >= PM_VERSION_MAX)
        return false;
    if (view.seen == PM_SEEN_EMPTY)
        return view.version == 0;
    return view.seen == PM_SEEN_OTHER && view.class_ == pm_chunk_at(&s->c, off)->class_;
}

static void list_add(struct pm_store *s, uint32_t n)
{
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint32_t *first = &s->class_[chunk->class_].first;

    chunk->prev = PM_NONE;
    chunk->next = *first;
    if (*first != PM_NONE)
        s->c.chunk[*first].prev = n;
    *first = n;
}

static void list_remove(struct pm_store *s, uint32_t n)
{
    struct pm_chunk *chunk = &s->c.chunk[n];

    if (chunk->prev == PM_NONE)
        s->class_[chunk->class_].first = chunk->next;
    else
        s->c.chunk[chunk->prev].next = chunk->next;
    if (chunk->next != PM_NONE)
        s->c.chunk[chunk->next].prev = chunk->prev;
    chunk->next = chunk->prev = PM_NONE;
}

static void note_hint(struct pm_store *s, uint32_t n)
{
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint32_t now = chunk->free / HINT_UNIT;
    uint32_t apart = now > chunk->hint ? now - chunk->hint : chunk->hint - now;

    if (chunk->hint_queued || s->hint_count == PM_HINTS_MAX || apart == 0)
        return;
    if (apart * HINT_UNIT * 8 < pm_chunk_blocks(&s->c, chunk->class_) && now != 0)
        return;
    chunk->hint_queued = true;
    s->hint[s->hint_count++] = n;
}

/* Set the bit of a block of a chunk that is surveyed, or up to its survey's cursor. */
static void set_free(struct pm_store *s, uint32_t n, uint32_t block)
{
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint64_t bit = UINT64_C(1) << block % 64;

    if ((chunk->bits[block / 64] & bit) != 0)
        return;
    chunk->bits[block / 64] |= bit;
    if (chunk->surveyed) {
        s->class_[chunk->class_].free++;
        if (chunk->free == 0)
            list_add(s, n);
    }
    chunk->free++;
    if (chunk->surveyed)
        note_hint(s, n);
}

static uint64_t take_free(struct pm_store *s, uint32_t class_)
{
    uint32_t n = s->class_[class_].first;
    struct pm_chunk *chunk;
    uint32_t word = 0, block;

    if (n == PM_NONE)
        return 0;
    chunk = &s->c.chunk[n];
    while (chunk->bits[word] == 0)
        word++;
    block = word * 64 + (uint32_t)__builtin_ctzll(chunk->bits[word]);
    chunk->bits[word] &= chunk->bits[word] - 1;
    chunk->free--;
    s->class_[class_].free--;
    if (chunk->free == 0)
        list_remove(s, n);
    note_hint(s, n);
    return pm_chunk_off(&s->c, n) + (uint64_t)block * pm_class_size(class_);
}

void pm_heap_free(struct pm_store *s, uint64_t off)
{
    uint32_t n = (uint32_t)(off >> s->c.shift);
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint32_t block;

    if (pm_place_kind(&s->c, off) != PM_KIND_ITEM || find_grant(s, off) != NULL)
        return;
    block = pm_block_number(&s->c, off);
    if (chunk->bits == NULL || (!chunk->surveyed && block >= chunk->cursor)) {
        if (!chunk->surveyed && chunk->bits == NULL &&
            chunk->free < pm_chunk_blocks(&s->c, chunk->class_))
            chunk->free++; /* an estimate: T7 */
        return;
    }
    if (pm_heap_block_is_free(s, off))
        set_free(s, n, block);
}

void pm_heap_guess(struct pm_store *s, uint32_t n, uint32_t free_blocks)
{
    struct pm_chunk *chunk = &s->c.chunk[n];

    if (chunk->bits != NULL)
        return;
    chunk->free = free_blocks;
    note_hint(s, n);
}

void pm_heap_reset(struct pm_store *s)
{
    for (uint32_t i = 0; i < PM_CLASS_COUNT; i++) {
        memset(&s->class_[i], 0, sizeof(s->class_[i]));
        s->class_[i].first = PM_NONE;
    }
    s->survey = PM_NONE;
    s->hint_count = 0;
    s->free_chunks = s->roots_chunks = s->heap_chunks = 0;
    for (uint32_t n = 0; n < s->c.count; n++) {
        const struct pm_chunk *chunk = &s->c.chunk[n];

        s->heap_chunks += chunk->kind != PM_CHUNK_OUTSIDE;
        s->roots_chunks += chunk->kind == PM_CHUNK_ROOTS;
        if (chunk->kind == PM_CHUNK_FREE)
            s->free_chunks++;
        if (chunk->kind == PM_CHUNK_SLAB) {
            s->class_[chunk->class_].chunks++;
            s->class_[chunk->class_].unsurveyed++;
        }
    }
}

/* ---- surveys ---- */

static uint64_t *new_bits(const struct pm_store *s, uint32_t class_)
{
    return calloc((pm_chunk_blocks(&s->c, class_) + 63) / 64, sizeof(uint64_t));
}

static void end_survey(struct pm_store *s, uint32_t n)
{
    struct pm_chunk *chunk = &s->c.chunk[n];

    chunk->surveyed = true;
    s->class_[chunk->class_].unsurveyed--;
    s->class_[chunk->class_].free += chunk->free;
    if (chunk->free != 0)
        list_add(s, n);
    s->survey = PM_NONE;
    s->stats.surveys++;
    note_hint(s, n);
}

/* Start with the chunk of the class that promises most; false: none is left, or no memory. */
static bool begin_survey(struct pm_store *s, uint32_t class_)
{
    uint32_t best = PM_NONE;

    CAIRN_ASSERT(s->survey == PM_NONE);
    for (uint32_t n = 0; n < s->c.count; n++) {
        const struct pm_chunk *chunk = &s->c.chunk[n];

        if (chunk->kind == PM_CHUNK_SLAB && chunk->class_ == class_ && !chunk->surveyed &&
            !chunk->blocked && (best == PM_NONE || chunk->free > s->c.chunk[best].free))
            best = n;
    }
    if (best == PM_NONE)
        return false;
    s->c.chunk[best].bits = new_bits(s, class_);
    if (s->c.chunk[best].bits == NULL)
        return false;
    s->c.chunk[best].free = 0;
    s->c.chunk[best].cursor = 0;
    s->survey = best;
    return true;
}

static uint32_t go_on_surveying(struct pm_store *s, uint32_t budget)
{
    uint32_t n = s->survey, looked = 0;
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint32_t blocks = pm_chunk_blocks(&s->c, chunk->class_), size = pm_class_size(chunk->class_);

    while (chunk->cursor < blocks && looked < budget) {
        uint32_t block = chunk->cursor++;
        uint64_t off = pm_chunk_off(&s->c, n) + (uint64_t)block * size;

        looked++;
        if (!chunk->blocked && find_grant(s, off) == NULL && pm_heap_block_is_free(s, off))
            set_free(s, n, block);
    }
    if (chunk->cursor == blocks)
        end_survey(s, n);
    return looked;
}

uint32_t pm_heap_survey_step(struct pm_store *s, uint32_t budget)
{
    for (uint32_t i = 0; s->survey == PM_NONE && i < PM_CLASS_COUNT; i++) {
        if (s->class_[i].wanted && s->class_[i].unsurveyed != 0 && s->class_[i].free < AHEAD_BLOCKS)
            (void)begin_survey(s, i);
    }
    return s->survey == PM_NONE ? 0 : go_on_surveying(s, budget);
}

uint32_t pm_heap_class_in_need(const struct pm_store *s)
{
    /* Only while space is plenty: a chunk keeps its class for ever. */
    if (s->free_chunks <= pm_growth_reserve(s) + s->heap_chunks / 8 + 4)
        return PM_CLASS_COUNT;
    for (uint32_t i = 0; i < PM_CLASS_COUNT; i++) {
        if (s->class_[i].wanted && s->class_[i].unsurveyed == 0 &&
            s->class_[i].free < cn_min64(AHEAD_BLOCKS, pm_chunk_blocks(&s->c, i) / 4))
            return i;
    }
    return PM_CLASS_COUNT;
}

int pm_heap_add_fresh(struct pm_store *s, uint32_t n)
{
    struct pm_chunk *chunk = &s->c.chunk[n];
    uint32_t blocks = pm_chunk_blocks(&s->c, chunk->class_);

    s->class_[chunk->class_].chunks++;
    s->class_[chunk->class_].unsurveyed++;
    chunk->free = blocks;
    chunk->bits = new_bits(s, chunk->class_);
    if (chunk->bits == NULL)
        return cn_fail(-ENOMEM, "no memory for a free set"); /* a survey will do */
    for (uint32_t i = 0; i < blocks; i++)
        chunk->bits[i / 64] |= UINT64_C(1) << i % 64;
    chunk->surveyed = true;
    s->class_[chunk->class_].unsurveyed--;
    s->class_[chunk->class_].free += blocks;
    list_add(s, n);
    return 0;
}

uint32_t pm_heap_store_hints(struct pm_store *s)
{
    uint32_t count = s->hint_count;

    for (uint32_t i = 0; i < count; i++) {
        struct pm_chunk *chunk = &s->c.chunk[s->hint[i]];
        uint64_t off = pm_chunk_desc_off(&s->c, s->hint[i]);
        uint32_t now = chunk->free / HINT_UNIT;

        chunk->hint = (uint16_t)(now > UINT16_MAX ? UINT16_MAX : now);
        chunk->hint_queued = false;
        /* Bytes 2..3 of the first word; kind, class and index in it never change. */
        pm_store64(s->pm, off,
            (pm_load64(s->pm, off) & ~UINT64_C(0xffff0000)) | (uint64_t)chunk->hint << 16);
        pm_flush(s->pm, off, 8);
    }
    s->hint_count = 0;
    return count;
}

/* ---- grants ---- */

/* Make at least one free block of the class known. */
static int find_more(struct pm_store *s, uint32_t class_, bool *surveyed)
{
    int rc;

    s->class_[class_].wanted = true;
    while (s->class_[class_].first == PM_NONE && !*surveyed) {
        if (s->survey != PM_NONE && s->c.chunk[s->survey].class_ != class_)
            (void)go_on_surveying(s, UINT32_MAX); /* one at a time: finish it first */
        if (s->survey == PM_NONE && !begin_survey(s, class_))
            break;
        (void)go_on_surveying(s, UINT32_MAX);
        *surveyed = true;
    }
    if (s->class_[class_].first != PM_NONE)
        return 0;
    for (uint32_t n = 0; n < s->c.count; n++) {
        const struct pm_chunk *chunk = &s->c.chunk[n];

        if (s->class_[class_].unsurveyed != 0 && chunk->kind == PM_CHUNK_SLAB &&
            chunk->class_ == class_ && !chunk->surveyed && !chunk->blocked)
            return cn_fail(CAIRN_E_AGAIN, "class %u: looking for free blocks", class_);
    }
    if (s->free_chunks <= pm_growth_reserve(s))
        return cn_fail(CAIRN_E_POOL_FULL,
            "no free block of %u bytes, and no free chunk beyond the "
            "reserve of the index",
            pm_class_size(class_));
    rc = pm_growth_add_slab(s, class_);
    return rc != 0 ? rc
        : s->class_[class_].first != PM_NONE
        ? 0
        : cn_fail(CAIRN_E_AGAIN, "class %u: looking for free blocks", class_);
}

int pm_heap_grant(struct pm_store *store, uint16_t slot, uint32_t class_, uint32_t count,
    struct pm_lock_pm *ret_blocks, uint32_t *ret_count)
{
    uint32_t got = 0;
    bool surveyed = false;
    int rc = 0;

    CAIRN_ASSERT(store->growth_started);
    if (pm_chunk_blocks(&store->c, class_) == 0)
        return cn_fail(
            CAIRN_E_PROTOCOL, "slot %u asks for blocks of class %u: no such class", slot, class_);
    if (slot == 0 || slot >= store->pool->super.geometry.slot_count)
        return cn_fail(CAIRN_E_PROTOCOL, "slot %u cannot be granted blocks", slot);
    while (got < count) {
        uint64_t off;

        rc = reserve_grant(store);
        if (rc != 0)
            break;
        off = take_free(store, class_);
        if (off == 0) {
            rc = find_more(store, class_, &surveyed);
            if (rc != 0)
                break;
            continue;
        }
        /* Checked again where it is given away: media may have gone bad since the survey. */
        if (!pm_heap_block_is_free(store, off)) {
            cn_log(store->pm->env, CN_LOG_ERROR,
                "block %#" PRIx64 " is not free as noted: left out", off);
            continue;
        }
        put_grant(store, off, slot, false);
        ret_blocks[got++] = (struct pm_lock_pm){
            .off = le64_make(off), .base = le64_make(pm_word_version(pm_load64(store->pm, off)))};
    }
    store->stats.grants += got;
    store->stats.grants_again += rc == CAIRN_E_AGAIN;
    store->stats.grants_full += rc == CAIRN_E_POOL_FULL;
    if (got == 0 && rc != 0)
        return rc;
    *ret_count = got;
    return 0;
}

bool pm_heap_is_granted(const struct pm_store *store, uint16_t slot, uint64_t off)
{
    const struct pm_grant *g = find_grant(store, off);

    return g != NULL && !g->aside && g->slot == slot;
}

void pm_heap_set_aside(struct pm_store *store, uint64_t off)
{
    struct pm_chunk *chunk;
    struct pm_grant *g;

    if (pm_place_kind(&store->c, off) != PM_KIND_ITEM)
        return;
    chunk = pm_chunk_at(&store->c, off);
    g = find_grant(store, off);
    if (g != NULL) {
        if (!g->aside)
            store->class_[chunk->class_].granted--;
        g->aside = true;
        return;
    }
    if (chunk->bits != NULL) {
        uint32_t block = pm_block_number(&store->c, off);
        uint64_t bit = UINT64_C(1) << block % 64;

        if ((chunk->bits[block / 64] & bit) != 0) {
            chunk->bits[block / 64] &= ~bit;
            chunk->free--;
            if (chunk->surveyed)
                store->class_[chunk->class_].free--;
            if (chunk->surveyed && chunk->free == 0)
                list_remove(store, (uint32_t)(off >> store->c.shift));
        }
    }
    if (reserve_grant(store) == 0) {
        put_grant(store, off, 0, true);
        return;
    }
    /* Without memory to note it, nothing of the chunk may be given out. */
    chunk->blocked = true;
}

void pm_heap_consume(struct pm_store *s, uint64_t off)
{
    struct pm_grant *g = find_grant(s, off);

    if (g != NULL)
        remove_grant(s, g);
}

void pm_heap_return_of(struct pm_store *s, uint16_t slot, uint64_t off)
{
    struct pm_grant *g = find_grant(s, off);

    if (g == NULL || (!g->aside && g->slot != slot))
        return;
    remove_grant(s, g);
    pm_heap_free(s, off);
}

void pm_heap_return(struct pm_store *store, uint64_t off)
{
    struct pm_grant *g = find_grant(store, off);

    if (g == NULL)
        return;
    remove_grant(store, g);
    pm_heap_free(store, off);
}

void pm_heap_release_slot(struct pm_store *store, uint16_t slot)
{
    for (uint32_t i = 0; i < store->grant_cap; i++) {
        /* A removal may move a later entry here. */
        while (store->grant[i].off != 0 && !store->grant[i].aside && store->grant[i].slot == slot) {
            uint64_t off = store->grant[i].off;

            remove_grant(store, &store->grant[i]);
            pm_heap_free(store, off);
        }
    }
}
