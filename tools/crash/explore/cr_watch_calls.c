/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch_calls.c: functions of the product that read more than they say (wrapped, ld --wrap).
 *
 * - Which copy of a header holds (slots, superblock), which retired epochs there are, what a key's
 *   value is: functions of what they read, asked for all of it (cr_watch_ask.c).
 * - Whether a record may be replayed: its objects are checked one by one (pm_apply.c).
 * - fsck: where it reads many lock words that may or may not have been lost, word by word.
 * - A release of a lock word looks only at the word's version: the word is not read where that is
 *   one.
 * - A bucket that is changed is copied as a whole, and not all of the copy is used: it counts as
 *   read where the copy is.
 */
#include "pmem/pm_format.h"
#include "pmem/pm_slot.h"
#include "pmem/pm_store_internal.h"
#include "tools/crash/explore/cr_watch_ask.h"

#define FSCK_COMBINATIONS 64u /* it takes longer than the others */

/* Is an open word of the images in this range of the question's pool? */
static bool any_open(const struct cr_question *q, uint64_t off, uint64_t size)
{
    for (uint64_t i = off / 8; i < (off + size + 7) / 8; i++) {
        uint32_t unit = q->level->reads.open[q->pool][i];
        if (unit != 0 && cr_reads_differs(q->level, unit - 1, (unsigned)(i % 8)))
            return true;
    }
    return false;
}

/* About a pool; false: nobody watches, or it is none of the level's. */
static bool about(struct cr_question *q, const struct pm *pm)
{
    uint64_t off;

    q->level = cr_reads_level();
    if (q->level == NULL)
        return false;
    q->pool = cr_reads_pool(q->level, pm->base, &off);
    return q->pool != UINT32_MAX;
}

/* ---- which copy of a slot's header holds ---- */

int __real_pm_slot_load(const struct pm_pool *pool, uint16_t number, struct pm_slot *ret);
int __wrap_pm_slot_load(const struct pm_pool *pool, uint16_t number, struct pm_slot *ret);

struct load { struct pm_pool pool; uint16_t number; };

static uint64_t load_again(void *arg)
{
    const struct load *l = arg;
    struct pm_slot s = {.number = 0};
    int rc = __real_pm_slot_load(&l->pool, l->number, &s);
    uint64_t fields[] = {(uint32_t)rc, s.state, s.generation, s.epoch, s.nonce, s.view,
        s.position_seq, s.position_off, s.closing_seq, s.incarnation, s.closed_s,
        s.tombstone_count};

    return cr_ask_hash(cr_ask_hash(1, fields, sizeof(fields)), &s.owner, sizeof(s.owner));
}

int __wrap_pm_slot_load(const struct pm_pool *pool, uint16_t number, struct pm_slot *ret)
{
    struct load l = {*pool, number};
    struct cr_question q = {.answer = load_again, .arg = &l, .salt = cn_mix64(number)};
    const struct pm_super *s = &pool->super;

    l.pool.pm.tracer = NULL;
    l.pool.pm.read_only = true;
    if (!about(&q, &pool->pm) || number >= s->geometry.slot_count ||
        !cr_ask_object(&q, s->slots_off + (uint64_t)number * s->slot_stride,
            PM_SLOT_HEADER_SIZE + s->tombstone_max * sizeof(struct pm_tombstone_pm)) ||
        !cr_ask(&q))
        return __real_pm_slot_load(pool, number, ret);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_pm_slot_load(pool, number, ret);
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- which copy of the superblock's dynamic part holds ---- */

int __real_pm_attach(struct pm_pool *pool, const struct pm *pm, uint64_t super_off);
int __wrap_pm_attach(struct pm_pool *pool, const struct pm *pm, uint64_t super_off);

struct attach { struct pm pm; uint64_t super_off; };

static uint64_t attach_again(void *arg)
{
    const struct attach *a = arg;
    struct pm_pool p = {.fd = 0};
    int rc = __real_pm_attach(&p, &a->pm, a->super_off);
    uint64_t fields[] = {(uint32_t)rc, p.incarnation, p.view_max, p.generation, p.member_state,
        p.tag, p.opened_clean, p.last_opener.pid, p.last_opener.start};

    return cr_ask_hash(
        cr_ask_hash(2, fields, sizeof(fields)), &p.last_opener.boot, sizeof(p.last_opener.boot));
}

int __wrap_pm_attach(struct pm_pool *pool, const struct pm *pm, uint64_t super_off)
{
    struct attach a = {*pm, super_off};
    struct cr_question q = {.answer = attach_again, .arg = &a, .salt = 2};

    a.pm.tracer = NULL;
    a.pm.read_only = true;
    if (!about(&q, pm) || !cn_range_inside(super_off, PM_SUPER_AREA_SIZE, 0, pm->size) ||
        any_open(&q, super_off, PM_SUPER_DYN_OFF) ||
        !cr_ask_object(&q, super_off + PM_SUPER_DYN_OFF, 2 * PM_SUPER_DYN_STRIDE) || !cr_ask(&q))
        return __real_pm_attach(pool, pm, super_off);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_pm_attach(pool, pm, super_off);
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- which epochs are retired ---- */

int __real_pm_retired_open(struct pm_pool *pool, struct pm_retired_table **ret);
int __wrap_pm_retired_open(struct pm_pool *pool, struct pm_retired_table **ret);

/* Tombstones that no epoch has are cleared, which is not asked for: so those tell by themselves. */
static uint64_t hash_tombstones(const struct pm_pool *pool, uint64_t hash)
{
    const uint32_t size = sizeof(struct pm_retired_pm);

    for (uint32_t i = 0; i < pool->super.geometry.retired_max; i++) {
        const struct pm_retired_pm *m =
            pm_at(&pool->pm, pool->super.retired_off + (uint64_t)i * size);
        if (le16_get(m->type) == PM_RETIRED_TOMBSTONES)
            hash = cr_ask_hash(hash + i, m, size);
    }
    return hash;
}

static uint64_t open_again(void *arg)
{
    struct pm_pool *pool = arg;
    struct pm_retired_table *t = NULL;
    int rc = __real_pm_retired_open(pool, &t);
    uint64_t hash = hash_tombstones(pool, 3 + (uint64_t)(uint32_t)rc);

    if (rc != 0)
        return hash;
    for (const struct pm_retired *r = pm_retired_next(t, NULL); r != NULL;
         r = pm_retired_next(t, r)) {
        uint64_t fields[] = {r->entry, r->slot, r->epoch, r->closing_seq, r->retired_s, r->view,
            r->tombstone_count};
        hash = cr_ask_hash(
            cr_ask_hash(hash, fields, sizeof(fields)), &r->owner, sizeof(r->owner));
    }
    hash = cn_mix64(hash + pm_retired_free(t));
    pm_retired_close(&t);
    return hash;
}

int __wrap_pm_retired_open(struct pm_pool *pool, struct pm_retired_table **ret)
{
    struct pm_pool look = *pool;
    struct cr_question q = {.answer = open_again, .arg = &look, .salt = 3};

    look.pm.tracer = NULL;
    look.pm.read_only = true;
    if (!about(&q, &pool->pm) ||
        !cr_ask_object(&q, pool->super.retired_off,
            pool->super.geometry.retired_max * sizeof(struct pm_retired_pm)) ||
        !cr_ask(&q))
        return __real_pm_retired_open(pool, ret);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_pm_retired_open(pool, ret);
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- the value of a key, for a check ---- */

int __real_cr_recovered_get(struct cr_recovered *state, uint32_t at, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t room, size_t *ret_size);
int __wrap_cr_recovered_get(struct cr_recovered *state, uint32_t at, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t room, size_t *ret_size);

struct get {
    struct cr_recovered *state;
    uint32_t at, table;
    const void *key;
    size_t key_size;
};

static uint64_t get_again(void *arg)
{
    static uint8_t buf[65536];
    const struct get *g = arg;
    size_t size = 0;
    int rc = __real_cr_recovered_get(
        g->state, g->at, g->table, g->key, g->key_size, buf, sizeof(buf), &size);
    uint64_t hash = cn_mix64(size + (uint64_t)(uint32_t)rc);

    return rc == 0 ? cr_ask_hash(hash, buf, cn_min64(size, sizeof(buf))) : hash;
}

int __wrap_cr_recovered_get(struct cr_recovered *state, uint32_t at, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t room, size_t *ret_size)
{
    struct get g = {state, at, table, key, key_size};
    struct cr_question q = {.answer = get_again, .arg = &g, .finds = true,
        .limit = CR_ASK_COMBINATIONS};

    if (!about(&q, &state->pool[at]->pm) || !cr_ask(&q))
        return __real_cr_recovered_get(state, at, table, key, key_size, buf, room, ret_size);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_cr_recovered_get(state, at, table, key, key_size, buf, room, ret_size);
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- fsck ---- */

int __real_pm_fsck(
    const struct pm_pool *pool, const struct pm_fsck_options *options, struct pm_fsck_report *ret);
int __wrap_pm_fsck(
    const struct pm_pool *pool, const struct pm_fsck_options *options, struct pm_fsck_report *ret);

struct fsck { const struct pm_pool *pool; struct pm_fsck_options options; };

static uint64_t fsck_again(void *arg)
{
    const struct fsck *f = arg;
    struct pm_fsck_report r = {0};
    int rc = __real_pm_fsck(f->pool, &f->options, &r);
    uint64_t fields[] = {
        (uint32_t)rc, r.damages, r.words_locked, r.canonical, r.canonical_values, r.items};

    return cr_ask_hash(5, fields, sizeof(fields));
}

int __wrap_pm_fsck(
    const struct pm_pool *pool, const struct pm_fsck_options *options, struct pm_fsck_report *ret)
{
    struct fsck f = {.pool = pool};
    struct cr_question q = {.answer = fsck_again, .arg = &f, .finds = true, .by_object = true,
        .limit = FSCK_COMBINATIONS};

    if (options == NULL || options->unresolved_count != 0 || options->item != NULL ||
        !about(&q, &pool->pm) || !cr_ask(&q))
        return __real_pm_fsck(pool, options, ret);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_pm_fsck(pool, options, ret);
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- whether a record may be replayed ---- */

int __real_pm_apply_check(struct pm_store *store, const struct pm_record *record, uint16_t slot,
    enum pm_apply_mode mode);
int __wrap_pm_apply_check(struct pm_store *store, const struct pm_record *record, uint16_t slot,
    enum pm_apply_mode mode);

struct check { struct pm_store *store; const struct pm_record *record; uint16_t slot; };

static uint64_t check_again(void *arg)
{
    const struct check *c = arg;

    return (uint64_t)(uint32_t)__real_pm_apply_check(
        c->store, c->record, c->slot, PM_APPLY_REPLAY);
}

static bool add_objects(struct cr_question *q, const struct pm_store *s, const struct pm_record *r)
{
    const struct pm_lock_pm *list[2] = {r->lock, r->block};
    const uint32_t count[2] = {r->lock_count, r->block_count};
    bool fit = true;

    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; fit && i < count[k]; i++) {
            uint64_t off = le64_get(list[k][i].off);
            enum pm_kind kind = pm_place_kind(&s->c, off);
            fit = (kind == PM_KIND_BUCKET || kind == PM_KIND_ITEM) &&
                cr_ask_object(q, off,
                    kind == PM_KIND_BUCKET ? PM_BUCKET_SIZE
                                           : pm_class_size(pm_chunk_at(&s->c, off)->class_));
        }
    return fit;
}

/* What the check knows besides the record and its objects. */
static uint64_t hash_store(const struct pm_store *s, uint64_t hash)
{
    for (uint32_t i = 0; i < s->c.count; i++) {
        const struct pm_chunk *c = &s->c.chunk[i];
        hash = cn_mix64(hash + ((uint64_t)c->kind << 56 ^ (uint64_t)c->class_ << 48 ^
            (uint64_t)c->index << 24 ^ c->seq));
    }
    for (uint32_t i = 0; i < s->c.root_count; i++)
        if (s->c.root[i] != NULL)
            hash = cr_ask_hash(hash, &s->c.root[i]->index, sizeof(s->c.root[i]->index));
    return cn_mix64(hash + s->pool->tag);
}

int __wrap_pm_apply_check(struct pm_store *store, const struct pm_record *record, uint16_t slot,
    enum pm_apply_mode mode)
{
    struct check c = {store, record, slot};
    struct cr_question q = {.answer = check_again, .arg = &c, .by_object = true};

    if (mode != PM_APPLY_REPLAY || record->type != PM_RECORD_TX || !about(&q, store->pm) ||
        !add_objects(&q, store, record))
        return __real_pm_apply_check(store, record, slot, mode);
    struct cr_watch watch = cr_watch_stop();
    q.salt = hash_store(store, cr_ask_hash(slot, record->head, record->size));
    (void)cr_watch_set(watch);
    if (!cr_ask(&q))
        return __real_pm_apply_check(store, record, slot, mode);
    watch = cr_watch_stop();
    int rc = __real_pm_apply_check(store, record, slot, mode);
    /* What it leaves in there is not used: the body reads it again. */
    memset(&store->scratch.bucket, 0xdb, sizeof(store->scratch.bucket));
    (void)cr_watch_set(watch);
    return rc;
}

/* ---- a bucket that is changed ---- */

void __real_pm_read(const struct pm *pm, uint64_t off, void *target, uint64_t size);
void __wrap_pm_read(const struct pm *pm, uint64_t off, void *target, uint64_t size);
static void copy_bucket(const struct pm *pm, uint64_t off, void *target, uint64_t size)
{
    struct cr_question q = {.level = NULL};

    if (off % CR_LINE != 0 || !cn_range_inside(off, size, 0, pm->size) || !about(&q, pm) ||
        !any_open(&q, off, size)) {
        __real_pm_read(pm, off, target, size);
        return;
    }
    struct cr_watch watch = cr_watch_stop();
    __real_pm_read(pm, off, target, size);
    (void)cr_watch_set(watch);
    cr_reads_copied(q.level, q.pool, off, target);
}

void __wrap_pm_read(const struct pm *pm, uint64_t off, void *target, uint64_t size)
{
    if (cr_watch_now()->size == 0 || !cn_range_inside(off, size, 0, pm->size))
        __real_pm_read(pm, off, target, size);
    else if (size == CR_COPY_SIZE)
        copy_bucket(pm, off, target, size);
    else /* it is told at once, not word by word */
        cr_watch_copy(target, pm->base + off, size);
}

/* ---- lock words ---- */

/*
 * What is done to the lock words of a record makes one value of any that they may have: so they are
 * not read, as far as these functions have the same to say of each. Where one of the values is what
 * it would become already, and is not stored again, the run goes on with another one: a crash after
 * it leaves the images of both.
 */
void __real_pm_apply_release(struct pm_store *store, const struct pm_record *record);
void __wrap_pm_apply_release(struct pm_store *store, const struct pm_record *record);
void __real_pm_apply_unlock(struct pm_store *store, const struct pm_record *record, uint16_t slot);
void __wrap_pm_apply_unlock(struct pm_store *store, const struct pm_record *record, uint16_t slot);
int __real_pm_apply_relock(struct pm_store *store, const struct pm_record *record, uint16_t slot);
int __wrap_pm_apply_relock(struct pm_store *store, const struct pm_record *record, uint16_t slot);

/* What becomes of a word: stored as `ret`, or left alone. */
typedef bool (*becomes_fn)(
    const struct pm_store *store, uint64_t off, uint64_t base, uint64_t word, uint64_t *ret);

static bool released(
    const struct pm_store *store, uint64_t off, uint64_t base, uint64_t word, uint64_t *ret)
{
    *ret = base + 1;
    return pm_word_version(word) < base + 1 &&
        pm_word_version(pm_load64(store->pm, off + 8)) >= base + 1;
}

static bool unlocked(
    const struct pm_store *store, uint64_t off, uint64_t base, uint64_t word, uint64_t *ret)
{
    (void)off;
    *ret = base;
    return pm_word_locked_bit(word) && pm_word_tag(word) != store->pool->tag &&
        pm_word_version(word) == base;
}

/* The image of the run gets this alternative of a word that nobody has read. */
static void change_to(const struct cr_question *q, uint32_t unit, uint32_t k, uint64_t off)
{
    struct cr_moment *m = &q->level->moment;
    struct sim_pool *pool = q->level->place[q->pool].arena.pool;
    uint64_t value = m->units.alternative[m->units.unit[unit].first + k].value[off / 8 % 8];

    m->digit[unit] = k;
    cr_arena_touch(&q->level->place[q->pool].arena, (uint32_t)(off / CR_LINE));
    memcpy(pool->visible + off, &value, sizeof(value));
    memcpy(pool->persistent + off, &value, sizeof(value));
}

/* All values of an open lock word become one. */
static bool becomes_one(const struct cr_question *q, const struct pm_store *store, uint64_t off,
    uint64_t base, becomes_fn becomes)
{
    const struct cr_level *level = q->level;
    const struct cr_moment *m = &level->moment;
    uint32_t unit, stored = UINT32_MAX;
    uint64_t goal = 0;
    bool all_one = true;

    if (off % CR_LINE != 0 || !cn_range_inside(off, 16, 0, level->x->base[q->pool].size) ||
        any_open(q, off + 8, 8))
        return false;
    if (!any_open(q, off, 8))
        return true;
    unit = level->reads.open[q->pool][off / 8] - 1u;
    if (m->units.unit[unit].words != 1)
        return false;
    const struct sim_alternative *a = &m->units.alternative[m->units.unit[unit].first];
    for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
        if (cr_reads_has(level, unit, k) &&
            becomes(store, off, base, a[k].value[0], &goal))
            stored = stored == UINT32_MAX || k == m->digit[unit] ? k : stored;
    if (stored == UINT32_MAX)
        return false;
    for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
        all_one = all_one &&
            (!cr_reads_has(level, unit, k) || a[k].value[0] == goal ||
                becomes(store, off, base, a[k].value[0], &goal));
    if (all_one && stored != m->digit[unit])
        change_to(q, unit, stored, off);
    if (all_one)
        cr_reads_guard(q->level, unit, CR_GUARD_STORE);
    return all_one;
}

static bool become_one(struct cr_question *q, const struct pm_store *store,
    const struct pm_record *record, bool blocks, becomes_fn becomes)
{
    bool one = record->type == PM_RECORD_TX && about(q, store->pm);
    struct cr_watch watch;

    if (!one)
        return false;
    watch = cr_watch_stop();
    for (uint32_t i = 0; one && i < record->lock_count; i++)
        one = becomes_one(q, store, le64_get(record->lock[i].off),
            le64_get(record->lock[i].base), becomes);
    for (uint32_t i = 0; one && blocks && i < record->block_count; i++)
        one = becomes_one(q, store, le64_get(record->block[i].off),
            le64_get(record->block[i].base), becomes);
    (void)cr_watch_set(watch);
    return one;
}

void __wrap_pm_apply_release(struct pm_store *store, const struct pm_record *record)
{
    struct cr_question q = {.level = NULL};

    if (!become_one(&q, store, record, true, released)) {
        __real_pm_apply_release(store, record);
        return;
    }
    struct cr_watch watch = cr_watch_stop();
    __real_pm_apply_release(store, record);
    (void)cr_watch_set(watch);
}

void __wrap_pm_apply_unlock(struct pm_store *store, const struct pm_record *record, uint16_t slot)
{
    struct cr_question q = {.level = NULL};

    if (store->cas.cas == NULL || !become_one(&q, store, record, false, unlocked)) {
        __real_pm_apply_unlock(store, record, slot);
        return;
    }
    struct cr_watch watch = cr_watch_stop();
    __real_pm_apply_unlock(store, record, slot);
    (void)cr_watch_set(watch);
}

/* It refuses a word of another version, or one that is locked now; the others it overwrites. */
static bool relocked(
    const struct pm_store *store, uint64_t off, uint64_t base, uint64_t word, uint64_t *ret)
{
    (void)off;
    *ret = UINT64_MAX;
    return pm_word_version(word) == base && !pm_word_is_locked(word, store->pool->tag);
}

int __wrap_pm_apply_relock(struct pm_store *store, const struct pm_record *record, uint16_t slot)
{
    struct cr_question q = {.level = NULL};

    if (!become_one(&q, store, record, false, relocked))
        return __real_pm_apply_relock(store, record, slot);
    struct cr_watch watch = cr_watch_stop();
    int rc = __real_pm_apply_relock(store, record, slot);
    (void)cr_watch_set(watch);
    return rc;
}
