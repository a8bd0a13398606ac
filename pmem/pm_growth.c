/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_growth.c: splits, and the policy of when. Safety does not depend on the policy: buckets may
 * split in any order, and at any moment somebody may lock one.
 *
 * A split locks parent and child by CAS through the fabric, like anybody else; it never waits: a
 * lock that is taken makes the bucket come later. The child's place cannot be contended: nobody
 * CASes a place that is not born. Both images are made under the locks; the items' hashes are read
 * without theirs, for hash and key of a live item are never rewritten. An item that a slot points
 * to under the bucket's lock lives.
 *
 * Policy: ROOM requests at once; a bucket nearly full as soon as its lock
 * is free; a sweep in order of number from fill 0.65 on, one split per 4 inserts.
 */
#include "pmem/pm_store_internal.h"

#define HOPS_MAX 64u
#define SWEEP_INSERTS 4u /* per split */
#define SWEEP_CREDIT_MAX 1024u
#define SURVEY_SLICE 256u /* headers per unit of work */
#define ITEMS_STALE 256u  /* how far the item count on media may lag */

/* ---- words ---- */

/* Take a word that was read as unlocked. AGAIN: somebody else has it. */
static int lock_word(struct pm_store *s, uint64_t off, uint64_t word)
{
    uint64_t desired = pm_word_make_locked(s->pool->tag, 0, pm_word_version(word)), old = 0;
    int rc;

    CAIRN_ASSERT(s->cas.cas != NULL);
    rc = s->cas.cas(s->cas.arg, off, word, desired, &old);
    if (rc == 0 && old == word)
        return 0;
    /* Unanswered, and it can no longer take effect: then the word itself says whether it did. */
    if (rc != 0 && pm_load64(s->pm, off) == desired)
        pm_store64(s->pm, off, pm_word_version(word));
    return cn_fail(CAIRN_E_AGAIN, "the bucket at %#" PRIx64 " is in use", off);
}

static void unlock_word(struct pm_store *s, uint64_t off, uint64_t version)
{
    pm_store64(s->pm, off, version); /* locked by slot 0: nobody else changes it */
}

/* ---- splits ---- */

struct split {
    struct pm_root *root;
    uint64_t parent, child; /* offsets */
    uint64_t parent_word, child_word;
    uint32_t depth; /* before */
    uint64_t number;
    struct pm_split_pm op;
};

static int look(
    const struct pm_store *s, uint64_t off, struct pm_bucket_pm *copy, struct pm_bucket_view *view)
{
    pm_read(s->pm, off, copy, sizeof(*copy));
    pm_bucket_look(copy, off, s->pool->crc_seed, s->pool->tag, view);
    if (view->seen == PM_SEEN_OK || view->seen == PM_SEEN_EMPTY)
        return 0;
    if (view->seen == PM_SEEN_LOCKED)
        return cn_fail(CAIRN_E_AGAIN, "the bucket at %#" PRIx64 " is locked", off);
    /* Unlocked and torn can be a record between its body and its words only if that is locked. */
    return cn_fail(CAIRN_E_CORRUPT_BUCKET, "the bucket at %#" PRIx64 " is corrupt", off);
}

/* Distribute the slots of `from` over both images. */
static int make_images(struct pm_store *s, struct split *p, const struct pm_bucket_pm *from)
{
    struct pm_bucket_pm image[2];
    uint64_t number[2] = {p->number, p->number + (UINT64_C(1) << p->depth)};
    uint64_t version[2] = {pm_word_version(p->parent_word) + 1, pm_word_version(p->child_word) + 1};
    uint64_t off[2] = {p->parent, p->child};
    uint32_t used[2] = {0, 0};

    memset(image, 0, sizeof(image));
    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(from->slot[k]));
        uint64_t hash;
        uint32_t side;

        if (from->slot[k].le == 0)
            continue;
        if (!pm_place_is_block(&s->c, ref.off, ref.class_))
            return cn_fail(CAIRN_E_CORRUPT_BUCKET, "the bucket at %#" PRIx64 ": slot %u is corrupt",
                p->parent, k);
        hash = pm_load64(s->pm, ref.off + offsetof(struct pm_item_pm, hash));
        if (pm_meta_kind(pm_load64(s->pm, ref.off + 8)) != PM_KIND_ITEM ||
            pm_hash_number(hash, p->depth) != p->number)
            return cn_fail(CAIRN_E_CORRUPT_ITEM,
                "the item at %#" PRIx64 " does not belong to the bucket "
                "at %#" PRIx64 " that points to it",
                ref.off, p->parent);
        side = (uint32_t)(hash >> p->depth & 1);
        image[side].slot[used[side]++] = from->slot[k];
    }
    p->op.parent = le64_make(p->parent);
    p->op.child = le64_make(p->child);
    for (uint32_t i = 0; i < 2; i++) {
        image[i].head.meta = le64_make(pm_meta_make(0, PM_KIND_BUCKET, p->depth + 1));
        image[i].head.index = le32_make(p->root->index.index);
        image[i].number = le64_make(number[i]);
        pm_bucket_finish(&image[i], off[i], version[i], s->pool->crc_seed);
        memcpy(p->op.image[i], &image[i], PM_BUCKET_SIZE);
    }
    return 0;
}

/* Both words are ours: log, apply, release. */
static int log_split(struct pm_store *s, struct split *p, const struct pm_bucket_pm *from)
{
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = PM_OP_SPLIT,
        .value_size = le32_make(sizeof(p->op)),
        .index = le32_make(p->root->index.index)};
    int rc = make_images(s, p, from);

    if (rc != 0)
        return rc;
    cn_step(s->pm->env, CN_STEP_g_locked);
    pm_growth_begin(s, &w);
    pm_record_add_lock(&w, p->parent, pm_word_version(p->parent_word));
    pm_record_add_lock(&w, p->child, pm_word_version(p->child_word));
    (void)pm_record_add_write(&w, &write, NULL, &p->op);
    return pm_growth_commit(s, &w);
}

/* The place of the child; takes a chunk for it if need be. */
static int find_child(struct pm_store *s, struct split *p)
{
    uint64_t number = p->number + (UINT64_C(1) << p->depth);
    uint64_t seq = number / s->c.buckets_per_chunk;
    int rc;

    p->child = pm_bucket_place(&s->c, p->root, number);
    if (p->child != 0)
        return 0;
    if (seq >= p->root->index.map_max)
        return cn_fail(CAIRN_E_POOL_FULL, "index %u has its largest size", p->root->index.index);
    rc = pm_growth_add_buckets(s, p->root, (uint32_t)seq);
    p->child = pm_bucket_place(&s->c, p->root, number);
    return rc;
}

/*
 * Split the bucket at `off`. Errors: CAIRN_E_AGAIN (in use), _LIMIT (depth), _VERSION_END,
 * _POOL_FULL, _CORRUPT_*.
 */
static int split_bucket(struct pm_store *s, struct pm_root *root, uint64_t off)
{
    struct pm_bucket_pm from, child;
    struct pm_bucket_view view, child_view;
    struct split p = {.root = root, .parent = off};
    int rc = look(s, off, &from, &view);

    if (rc == 0 && view.seen == PM_SEEN_EMPTY)
        rc = cn_fail(CAIRN_E_CORRUPT_BUCKET, "no bucket at %#" PRIx64 " to split", off);
    if (rc == 0 && view.depth >= PM_DEPTH_MAX)
        rc = cn_fail(CAIRN_E_LIMIT, "the bucket at %#" PRIx64 " has the greatest depth", off);
    if (rc == 0 && view.version >= PM_VERSION_MAX)
        rc = cn_fail(CAIRN_E_VERSION_END, "the bucket at %#" PRIx64 " is at its last version", off);
    if (rc != 0)
        return rc;
    p.parent_word = view.word;
    p.number = view.number;
    p.depth = view.depth;
    rc = find_child(s, &p);
    if (rc == 0)
        rc = lock_word(s, p.parent, p.parent_word); /* from the version of `from`: it is current */
    if (rc != 0)
        return rc;
    rc = look(s, p.child, &child, &child_view);
    if (rc == 0 && child_view.seen != PM_SEEN_EMPTY)
        rc = cn_fail(CAIRN_E_CORRUPT_BUCKET, "the child's place at %#" PRIx64 " is taken", p.child);
    p.child_word = child_view.word;
    if (rc == 0)
        rc = lock_word(s, p.child, p.child_word);
    if (rc == 0) {
        rc = log_split(s, &p, &from);
        if (rc != 0)
            unlock_word(s, p.child, pm_word_version(p.child_word));
    }
    if (rc != 0)
        unlock_word(s, p.parent, pm_word_version(p.parent_word));
    return rc;
}

/* ---- finding buckets ---- */

/* Born: its meta says anything. Only this store makes buckets, so no lock is needed to look. */
static bool is_born(const struct pm_store *s, uint64_t off)
{
    return off != 0 && pm_load64(s->pm, off + 8) != 0;
}

/* The bucket that covers a hash. Errors: CAIRN_E_AGAIN (locked), _CORRUPT_BUCKET. */
static int cover(struct pm_store *s, const struct pm_root *root, uint64_t hash, uint64_t *ret_off,
    struct pm_bucket_view *view)
{
    uint64_t number = pm_hash_number(hash, root->index.level + 1);

    for (uint32_t i = 0; i < HOPS_MAX; i++) {
        uint64_t off = pm_bucket_place(&s->c, root, number);
        int rc;

        if (!is_born(s, off)) {
            if (number == 0)
                break;
            number = pm_bucket_parent(number);
            continue;
        }
        rc = look(s, off, &s->scratch.bucket, view);
        if (rc != 0)
            return rc;
        if (pm_hash_number(hash, view->depth) == number) {
            *ret_off = off;
            return 0;
        }
        number = pm_hash_number(hash, view->depth);
    }
    return cn_fail(CAIRN_E_CORRUPT_BUCKET, "index %u: no bucket covers hash %#" PRIx64,
        root->index.index, hash);
}

/* ---- room ---- */

int pm_growth_room(struct pm_store *store, uint64_t root_off, uint64_t hash, uint32_t count)
{
    struct pm_root *root = NULL;

    CAIRN_ASSERT(store->growth_started);
    for (uint32_t id = 1; root == NULL && id <= store->c.root_count; id++) {
        root = pm_root_by_id(&store->c, id);
        if (root != NULL && root->index.off != root_off)
            root = NULL;
    }
    if (root == NULL)
        return cn_fail(CAIRN_E_PROTOCOL, "no index root at %#" PRIx64, root_off);
    for (uint32_t i = 0; i <= PM_DEPTH_MAX; i++) {
        struct pm_bucket_view view;
        uint64_t off;
        uint32_t room;
        int rc = cover(store, root, hash, &off, &view);

        if (rc != 0)
            return rc;
        room = view.count < root->index.bucket_slots ? root->index.bucket_slots - view.count : 0;
        if (room >= count)
            return 0;
        rc = split_bucket(store, root, off);
        if (rc != 0)
            return rc;
        store->stats.splits_room++;
        /* More than a bucket holds cannot be had for one hash: whoever asks looks again. */
        if (count > root->index.bucket_slots)
            return 0;
    }
    return cn_fail(
        CAIRN_E_LIMIT, "index %u cannot make room for hash %#" PRIx64, root->index.index, hash);
}

/* ---- early splits ---- */

static void push_early(struct pm_store *s, uint32_t root, uint64_t off)
{
    uint32_t at = (s->early_head + s->early_count) % PM_EARLY_MAX;

    if (s->early_count == PM_EARLY_MAX)
        return; /* who finds the bucket full asks for room */
    if (s->early_count != 0 && s->early[(at + PM_EARLY_MAX - 1) % PM_EARLY_MAX].off == off)
        return;
    s->early[at].root = root;
    s->early[at].off = off;
    s->early_count++;
}

void pm_growth_note(struct pm_store *s, struct pm_root *root, uint64_t bucket, uint32_t used)
{
    if (root->sweep_credit < SWEEP_CREDIT_MAX)
        root->sweep_credit++;
    if (used >= pm_growth_early(&root->index))
        push_early(s, root->index.index, bucket);
}

/* Handle the queue's first; true: a bucket was split. */
static bool do_early(struct pm_store *s)
{
    struct pm_root *root = pm_root_by_id(&s->c, s->early[s->early_head].root);
    uint64_t off = s->early[s->early_head].off;
    struct pm_bucket_view view;
    int rc;

    s->early_head = (s->early_head + 1) % PM_EARLY_MAX;
    s->early_count--;
    rc = look(s, off, &s->scratch.bucket, &view);
    if (rc == 0 && view.count < pm_growth_early(&root->index))
        return false; /* split by then */
    if (rc == 0)
        rc = split_bucket(s, root, off);
    if (rc == CAIRN_E_AGAIN) {
        s->stats.splits_skipped++;
        push_early(s, root->index.index, off);
    } else if (rc != 0 && rc != CAIRN_E_POOL_FULL && rc != CAIRN_E_LIMIT) {
        cn_log(s->pm->env, CN_LOG_ERROR, "%s", cairn_last_error());
    }
    s->stats.splits_early += rc == 0;
    return rc == 0;
}

static uint32_t step_early(struct pm_store *s)
{
    for (uint32_t n = s->early_count; n > 0 && s->early_count > 0; n--) {
        if (do_early(s))
            return 1;
    }
    return 0;
}

/* ---- sweep ---- */

static bool sweep_is_due(const struct pm_store *s, const struct pm_root *root)
{
    const struct pm_index *index = &root->index;
    uint64_t last = index->sweep + (UINT64_C(1) << index->level);

    if (index->level >= PM_DEPTH_MAX || last / s->c.buckets_per_chunk >= index->map_max)
        return false;
    return index->sweep != 0 ||
        index->items * 100 >= UINT64_C(65) * index->bucket_slots << index->level;
}

static void advance_sweep(struct pm_store *s, struct pm_root *root)
{
    struct pm_index *index = &root->index;
    uint64_t off = index->off + offsetof(struct pm_index_pm, grow);

    if (++index->sweep == UINT64_C(1) << index->level) {
        index->level++;
        index->sweep = 0;
    }
    pm_store64(s->pm, off, pm_grow_make(index->level, index->sweep));
    pm_flush(s->pm, off, 8);
    s->hints_flushed = true;
}

/* One bucket of the sweep: split, passed or skipped. True: it was split. */
static bool sweep_one(struct pm_store *s, struct pm_root *root)
{
    uint64_t p = root->index.sweep, off;
    struct pm_bucket_view view;
    int rc = cover(s, root, p, &off, &view);

    if (rc == 0 && view.depth > root->index.level) {
        advance_sweep(s, root);
        return false;
    }
    if (rc == 0)
        rc = split_bucket(s, root, off);
    if (rc == 0) {
        s->stats.splits_sweep++;
        if (view.number == p)
            advance_sweep(s, root); /* else its ancestor was split, for p is not born yet */
        return true;
    }
    if (rc == CAIRN_E_POOL_FULL)
        return false; /* here again when there is space */
    if (rc != CAIRN_E_AGAIN)
        cn_log(s->pm->env, CN_LOG_ERROR, "%s", cairn_last_error());
    s->stats.splits_skipped++;
    advance_sweep(s, root);
    return false;
}

static uint32_t step_sweep(struct pm_store *s)
{
    for (uint32_t id = 1; id <= s->c.root_count; id++) {
        struct pm_root *root = pm_root_by_id(&s->c, id);

        for (uint32_t i = 0; root != NULL && i < HOPS_MAX; i++) {
            if (root->sweep_credit < SWEEP_INSERTS || !sweep_is_due(s, root))
                break;
            if (sweep_one(s, root)) {
                root->sweep_credit -= SWEEP_INSERTS;
                return 1;
            }
        }
    }
    return 0;
}

/* ---- the rest of the background work ---- */

/* A chunk ahead of need; then surveys ahead of need. */
static uint32_t step_ahead(struct pm_store *s)
{
    uint32_t class_ = pm_heap_class_in_need(s);

    if (class_ != PM_CLASS_COUNT && pm_growth_add_slab(s, class_) == 0)
        return 1;
    return pm_heap_survey_step(s, SURVEY_SLICE) != 0;
}

static uint32_t step_hints(struct pm_store *s)
{
    bool flushed = s->hints_flushed;

    for (uint32_t id = 1; id <= s->c.root_count; id++) {
        struct pm_root *root = pm_root_by_id(&s->c, id);
        uint64_t apart, off;

        if (root == NULL)
            continue;
        apart = root->index.items > root->items_stored ? root->index.items - root->items_stored
                                                       : root->items_stored - root->index.items;
        if (apart < ITEMS_STALE)
            continue;
        off = root->index.off + offsetof(struct pm_index_pm, items);
        pm_store64(s->pm, off, root->index.items);
        pm_flush(s->pm, off, 8);
        root->items_stored = root->index.items;
        flushed = true;
    }
    flushed |= pm_heap_store_hints(s) != 0;
    s->hints_flushed = false;
    if (!flushed)
        return 0;
    /* Orders nothing: a lost hint costs time only. */
    pm_fence(s->pm, CN_STEP_h_hint);
    return 1;
}

uint32_t pm_growth_step(struct pm_store *store, uint32_t budget)
{
    uint32_t done = 0;

    CAIRN_ASSERT(store->growth_started);
    while (done < budget) {
        uint32_t n = step_early(store);

        if (n == 0)
            n = step_sweep(store);
        if (n == 0)
            n = step_ahead(store);
        if (n == 0)
            n = step_hints(store);
        if (n == 0)
            break;
        done += n;
    }
    return done;
}
