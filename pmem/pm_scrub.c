/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_scrub.c: clears lock words whose owner died with its incarnation, so that tags may repeat; and
 * in the current incarnation those of fenced slots whose records are all released (T10).
 *
 * A word is cleared by CAS through the fabric, from exactly what was read, to (unlocked, same
 * version), and only if the copy has that version. Coordinators may take the word meanwhile: then
 * it needs no clearing.
 *
 * Progress on media is one line: goal, cursor, done. A pass clears all tags of incarnations <=
 * goal; it goes on after a restart with the same goal, for words behind the cursor can only carry
 * newer tags. The cursor is durable after the words behind it, and reset before a new goal is set.
 */
#include "pmem/pm_format.h"
#include "pmem/pm_store_internal.h"

#define CURSOR_CHUNKS 64u /* how often the cursor is persisted */

static uint64_t field_off(const struct pm_store *s, size_t field)
{
    return s->pool->super_off + PM_SCRUB_OFF + field;
}
#define GOAL offsetof(struct pm_scrub_pm, goal)
#define CURSOR offsetof(struct pm_scrub_pm, cursor)
#define DONE offsetof(struct pm_scrub_pm, done)

static void store_field(struct pm_store *s, size_t field, uint64_t value, enum cn_step step)
{
    pm_store64(s->pm, field_off(s, field), value);
    pm_flush(s->pm, field_off(s, field), 8);
    pm_fence(s->pm, step);
}

static void begin_pass(struct pm_store *s)
{
    uint64_t goal = pm_load64(s->pm, field_off(s, GOAL));
    uint64_t done = pm_load64(s->pm, field_off(s, DONE));
    uint64_t cursor = pm_load64(s->pm, field_off(s, CURSOR));

    if (goal > done && goal < s->pool->incarnation) {
        /* Go on with what was begun; a cursor that cannot be means all again. */
        s->scrub.chunk = cursor <= s->c.count ? (uint32_t)cursor : 0;
        s->scrub.counts = false;
    } else {
        goal = s->pool->incarnation == 0 ? 0 : s->pool->incarnation - 1;
        /* The cursor of the last pass must be gone before a goal makes it count. */
        store_field(s, CURSOR, 0, CN_STEP_h_scrub_cursor);
        store_field(s, GOAL, goal, CN_STEP_h_scrub_cursor);
        s->scrub.chunk = 0;
        s->scrub.counts = true;
    }
    s->scrub.goal = goal;
    s->scrub.block = s->scrub.free = 0;
    s->scrub.active = true;
}

static void end_pass(struct pm_store *s)
{
    /* The cleared words before `done`: it allows their tag to be used again. */
    pm_fence(s->pm, CN_STEP_h_scrub_words);
    store_field(s, DONE, s->scrub.goal, CN_STEP_h_scrub_done);
    s->scrub.active = false;
    s->scrub_passes += s->scrub.counts;
}

/* Returns false when the fabric does not answer: the word must be looked at again. */
static bool scrub_word(struct pm_store *s, uint64_t off, pm_scrub_may_free_fn may_free, void *arg)
{
    uint64_t word = pm_load64(s->pm, off), version = pm_word_version(word), meta, old;

    if (!pm_word_locked_bit(word))
        return true;
    if (pm_word_tag(word) == s->pool->tag &&
        (pm_word_slot(word) == 0 || may_free == NULL || !may_free(arg, pm_word_slot(word))))
        return true;
    meta = pm_load64(s->pm, off + 8);
    if (pm_word_version(meta) != version) {
        cn_log(s->pm->env, CN_LOG_ERROR,
            "scrub: the word at %#" PRIx64 " (%#" PRIx64
            ") does not have the version of its object, %" PRIu64 ": corrupt",
            off, word, pm_word_version(meta));
        return true;
    }
    CAIRN_ASSERT(s->cas.cas != NULL);
    if (s->cas.cas(s->cas.arg, off, word, version, &old) != 0)
        return false;
    if (old == word)
        s->stats.scrub_cleared++;
    pm_flush(s->pm, off, 8);
    return true;
}

/* Objects of a chunk; 0: no lock words in it. */
static uint32_t object_count(
    const struct pm_store *s, const struct pm_chunk *chunk, uint32_t *ret_size)
{
    if (chunk->kind == PM_CHUNK_BUCKETS) {
        *ret_size = PM_BUCKET_SIZE;
        return s->c.buckets_per_chunk;
    }
    if (chunk->kind != PM_CHUNK_SLAB)
        return 0;
    *ret_size = pm_class_size(chunk->class_);
    return pm_chunk_blocks(&s->c, chunk->class_);
}

static void leave_chunk(struct pm_store *s)
{
    const struct pm_chunk *chunk = &s->c.chunk[s->scrub.chunk];

    if (chunk->kind == PM_CHUNK_SLAB)
        pm_heap_guess(s, s->scrub.chunk, s->scrub.free);
    s->scrub.chunk++;
    s->scrub.block = s->scrub.free = 0;
    if (s->scrub.chunk % CURSOR_CHUNKS != 0)
        return;
    /* Words behind the cursor before the cursor. */
    pm_fence(s->pm, CN_STEP_h_scrub_words);
    store_field(s, CURSOR, s->scrub.chunk, CN_STEP_h_scrub_cursor);
}

uint32_t pm_scrub_step(struct pm_store *store, uint32_t budget, pm_scrub_may_free_fn may_free,
    void *arg, bool *ret_done)
{
    uint32_t looked = 0, work = 0; /* an empty chunk is work too */

    *ret_done = false;
    if (!store->scrub.active)
        begin_pass(store);
    while (store->scrub.chunk < store->c.count && work < budget) {
        const struct pm_chunk *chunk = &store->c.chunk[store->scrub.chunk];
        uint32_t size = 0, count = object_count(store, chunk, &size);

        while (store->scrub.block < count && work < budget) {
            uint64_t off = pm_chunk_off(&store->c, store->scrub.chunk) +
                (uint64_t)store->scrub.block * size;

            if (!scrub_word(store, off, may_free, arg))
                return looked;
            store->scrub.free += pm_meta_kind(pm_load64(store->pm, off + 8)) != PM_KIND_ITEM;
            store->scrub.block++;
            looked++;
            work++;
        }
        if (store->scrub.block >= count) {
            leave_chunk(store);
            work++;
        }
    }
    store->stats.scrub_words += looked;
    if (store->scrub.chunk >= store->c.count) {
        end_pass(store);
        *ret_done = true;
    }
    return looked;
}

uint64_t pm_scrub_passes(const struct pm_store *store)
{
    return store->scrub_passes;
}

bool pm_scrub_is_due(const struct pm_store *store)
{
    return pm_load64(store->pm, field_off(store, DONE)) + 1 < store->pool->incarnation;
}
