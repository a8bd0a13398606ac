/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_store.c: coordinators and a node over a ts_pool (see ts_store.h). Failures print and abort.
 */
#include "tests/support/ts_store_internal.h"

uint32_t ts_store_pick(struct ts_store *s, uint32_t n)
{
    return (uint32_t)(ts_random(&s->seed) % n);
}

/* ---- keys and values ---- */

uint32_t ts_key(uint32_t key, uint8_t ret[32])
{
    int n = snprintf((char *)ret, 32, "key-%u%.*s", key, (int)(key % 7), "xxxxxxx");

    return (uint32_t)n;
}

void ts_value_fill(uint32_t key, const struct ts_value *value, uint8_t *ret)
{
    uint64_t x = cn_mix64(value->number * 4096 + key + 1);

    for (uint32_t i = 0; i < value->size; i++)
        ret[i] = (uint8_t)(x >> 8 * (i % 8)) ^ (uint8_t)i;
}

bool ts_value_is(uint32_t key, const struct ts_value *v, const struct pm_item_view *item)
{
    uint8_t *b = malloc(v->size + 1);
    bool same;

    TS_NEED(b != NULL, "memory");
    ts_value_fill(key, v, b);
    same = item->value_size == v->size && memcmp(item->value, b, v->size) == 0;
    free(b);
    return same;
}

/* ---- fabric ---- */

int ts_store_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct ts_store *s = arg;
    bool fails = s->cas_fails != 0 && ts_store_pick(s, s->cas_fails) == 0;

    if (fails && ts_store_pick(s, 2) == 0)
        return cn_fail(CAIRN_E_FABRIC, "lost request");
    *ret_old = pm_load64(&s->t->pm, off);
    if (*ret_old == expected)
        pm_store64(&s->t->pm, off, desired); /* visible, not durable */
    return fails ? cn_fail(CAIRN_E_FABRIC, "lost answer") : 0;
}

/* ---- lookup ---- */

static uint64_t place_of(struct ts_store *s, const struct pm_index *index, uint64_t number)
{
    uint32_t per = (1u << s->t->pool.super.geometry.chunk_shift) / PM_BUCKET_SIZE;
    uint64_t chunk;

    if (number / per >= index->map_max)
        return 0;
    chunk = pm_load64(&s->t->pm, index->off + PM_INDEX_MAP_OFF + 8 * (number / per));
    return chunk == 0 ? 0 : chunk + number % per * PM_BUCKET_SIZE;
}

/* Steps 2 and 3: the bucket that says it covers the hash. */
static bool find_bucket(
    struct ts_store *s, const struct pm_index *index, uint64_t hash, struct ts_place *p)
{
    uint64_t number = s->random_guess ? pm_hash_number(hash, ts_store_pick(s, 12))
                                      : pm_index_guess(hash, index->level, index->sweep);

    for (uint32_t hop = 0; hop < 64; hop++) {
        p->bucket = place_of(s, index, number);
        if (p->bucket == 0 || (s->random_guess && number != 0 && ts_store_pick(s, 8) == 0)) {
            TS_NEED(number != 0, "no bucket 0");
            number = pm_bucket_parent(number);
            continue;
        }
        pm_read(&s->t->pm, p->bucket, p->copy, PM_BUCKET_SIZE);
        pm_bucket_look(p->copy, p->bucket, s->t->pool.crc_seed, s->t->pool.tag, &p->view);
        s->hops++;
        s->bucket_reads++;
        if (p->view.seen == PM_SEEN_EMPTY) {
            TS_NEED(number != 0, "bucket 0 is not born");
            number = pm_bucket_parent(number);
            continue;
        }
        if (!p->view.body_good)
            return false;
        TS_NEED(p->view.number == number && p->view.index == index->index, "wrong bucket");
        if (pm_hash_number(hash, p->view.depth) == number)
            return true;
        number = pm_hash_number(hash, p->view.depth);
    }
    return false;
}

enum ts_found ts_store_lookup(struct ts_store *s, uint32_t key, struct ts_place *p)
{
    const struct pm_index *index = pm_store_index(s->s, 1, 0);
    uint8_t bytes[32];
    uint32_t size = ts_key(key, bytes);
    uint64_t hash = pm_index_hash(index, bytes, size);

    s->lookups++;
    s->bucket_reads = 0;
    memset(p, 0, sizeof(*p));
    if (!find_bucket(s, index, hash, p))
        return TS_BUSY;
    p->bucket_word = p->view.word;
    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(p->view.slot[k]));

        if (p->view.slot[k].le == 0 ||
            ref.fingerprint != pm_fingerprint(hash, index->fingerprint_bits))
            continue;
        pm_item_look(pm_at(&s->t->pm, ref.off), pm_class_size(ref.class_), ref.off,
            s->t->pool.crc_seed, s->t->pool.tag, &p->item_view);
        if (p->item_view.seen != PM_SEEN_OK)
            return TS_BUSY;
        if (p->item_view.hash != hash || p->item_view.key_size != size ||
            memcmp(p->item_view.key, bytes, size) != 0)
            continue;
        TS_NEED(s->model[key].present, "key %u: found, the model has none", key);
        TS_NEED(ts_value_is(key, &s->model[key], &p->item_view),
            "key %u: value differs from the model", key);
        p->item = ref.off;
        p->item_word = p->item_view.word;
        return TS_FOUND;
    }
    if (p->view.seen != PM_SEEN_OK)
        return TS_BUSY;
    TS_NEED(!s->model[key].present, "key %u: absent, the model has it", key);
    return TS_ABSENT;
}

/* ---- building a record ---- */

struct plan {
    struct ts_place place[TS_TX_WRITES_MAX];
    enum pm_op op[TS_TX_WRITES_MAX]; /* 0: nothing */
    uint8_t class_[TS_TX_WRITES_MAX];
    struct pm_lock_pm block[TS_TX_WRITES_MAX];
};

static int plan_write(struct ts_store *s, const struct ts_write *w, struct plan *p, uint32_t i)
{
    enum ts_found found = ts_store_lookup(s, w->key, &p->place[i]);
    uint8_t bytes[32];
    uint32_t key_size = ts_key(w->key, bytes), class_;

    p->op[i] = 0;
    if (found == TS_BUSY)
        return CAIRN_E_CONFLICT;
    if (!w->value.present) {
        p->op[i] = found == TS_FOUND ? PM_OP_DELETE : 0;
        return p->op[i] != 0 && p->place[i].view.seen != PM_SEEN_OK ? CAIRN_E_CONFLICT : 0;
    }
    class_ = pm_class_for(key_size, w->value.size);
    p->class_[i] = (uint8_t)class_;
    if (found == TS_FOUND && class_ <= p->place[i].item_view.class_ &&
        p->place[i].item_view.version + PM_VERSION_MARGIN < PM_VERSION_MAX) {
        p->op[i] = PM_OP_UPDATE;
        return 0;
    }
    p->op[i] = found == TS_FOUND ? PM_OP_MOVE : PM_OP_INSERT;
    return p->place[i].view.seen != PM_SEEN_OK ? CAIRN_E_CONFLICT : 0;
}

/* Ask for room where it lacks. 1: asked, look again. */
static int plan_room(struct ts_store *s, const struct ts_write *w, struct plan *p, uint32_t count)
{
    const struct pm_index *index = pm_store_index(s->s, 1, 0);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t need = 0;

        for (uint32_t k = 0; k < count; k++) {
            if (p->op[k] == 0 || p->place[k].bucket != p->place[i].bucket)
                continue;
            need += p->op[k] == PM_OP_INSERT;
        }
        if (p->op[i] != PM_OP_INSERT || p->place[i].view.count + need <= index->bucket_slots)
            continue;
        {
            uint8_t bytes[32];
            uint32_t size = ts_key(w[i].key, bytes);
            int rc = pm_growth_room(s->s, index->off, pm_index_hash(index, bytes, size), need);

            return rc != 0 ? rc : 1;
        }
    }
    return 0;
}

static int plan_all(struct ts_store *s, const struct ts_write *w, struct plan *p, uint32_t count)
{
    for (uint32_t tries = 0; tries < 50; tries++) {
        int rc = 0;

        for (uint32_t i = 0; rc == 0 && i < count; i++)
            rc = plan_write(s, &w[i], p, i);
        if (rc == 0)
            rc = plan_room(s, w, p, count);
        if (rc != 1)
            return rc == CAIRN_E_AGAIN ? CAIRN_E_CONFLICT : rc;
    }
    return CAIRN_E_CONFLICT;
}

static int take_blocks(struct ts_store *s, uint32_t slot, struct plan *p, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t got = 0;
        int rc;

        if (p->op[i] != PM_OP_INSERT && p->op[i] != PM_OP_MOVE)
            continue;
        do {
            rc = pm_heap_grant(s->s, (uint16_t)slot, p->class_[i], 1, &p->block[i], &got);
        } while (rc == CAIRN_E_AGAIN);
        if (rc != 0) {
            while (i-- > 0) {
                if (p->op[i] == PM_OP_INSERT || p->op[i] == PM_OP_MOVE)
                    pm_heap_return(s->s, le64_get(p->block[i].off));
            }
            return rc;
        }
    }
    return 0;
}

/* T13: a word believed at two values aborts. */
static int add_lock(struct ts_slot *t, uint64_t off, uint64_t word)
{
    for (uint32_t i = 0; i < t->locked_count; i++) {
        if (t->locked[i] == off)
            return t->locked_word[i] == word ? 0 : CAIRN_E_CONFLICT;
    }
    t->locked[t->locked_count] = off;
    t->locked_word[t->locked_count++] = word;
    return 0;
}

static void unlock(struct ts_store *s, struct ts_slot *t, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t mine = pm_word_make_locked(
                     s->t->pool.tag, t->slot.number, pm_word_version(t->locked_word[i])),
                 old;
        uint32_t fails = s->cas_fails;

        s->cas_fails = 0;
        (void)ts_store_cas(s, t->locked[i], mine, pm_word_version(t->locked_word[i]), &old);
        s->cas_fails = fails;
        TS_NEED(old == mine, "a lock was lost");
    }
}

static int lock_all(struct ts_store *s, struct ts_slot *t, const struct plan *p, uint32_t count)
{
    int rc = 0;

    t->locked_count = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (p->op[i] != 0 && p->op[i] != PM_OP_UPDATE)
            rc = add_lock(t, p->place[i].bucket, p->place[i].bucket_word);
        if (rc == 0 && p->op[i] != 0 && p->op[i] != PM_OP_INSERT)
            rc = add_lock(t, p->place[i].item, p->place[i].item_word);
    }
    for (uint32_t i = 0; rc == 0 && i < t->locked_count; i++) {
        uint64_t old, word = t->locked_word[i];
        uint32_t fails = s->cas_fails;

        s->cas_fails = 0;
        (void)ts_store_cas(s, t->locked[i], word,
            pm_word_make_locked(s->t->pool.tag, t->slot.number, pm_word_version(word)), &old);
        s->cas_fails = fails;
        if (old != word) {
            unlock(s, t, i);
            rc = CAIRN_E_CONFLICT;
        }
    }
    return rc;
}

static void make_record(struct ts_store *s, struct ts_slot *t, const struct plan *p)
{
    const struct pm_index *index = pm_store_index(s->s, 1, 0);
    struct pm_record_writer w;
    struct cn_txid id = {.coordinator = t->slot.owner, .count = t->seq + 1};
    uint64_t ring = s->t->pool.super.geometry.ring_size, to_end;
    struct pm_place place;
    static uint8_t value[CAIRN_VALUE_SIZE_MAX];

    pm_record_begin(&w, t->buf, TS_RECORD_MAX);
    pm_record_add_participant(
        &w, s->t->pool.super.node, 0, 0, t->slot.number, t->slot.epoch, t->seq + 1);
    for (uint32_t i = 0; i < t->locked_count; i++)
        pm_record_add_lock(&w, t->locked[i], pm_word_version(t->locked_word[i]));
    for (uint32_t i = 0; i < t->write_count; i++) {
        if (p->op[i] == PM_OP_INSERT || p->op[i] == PM_OP_MOVE)
            pm_record_add_block(&w, le64_get(p->block[i].off), le64_get(p->block[i].base));
    }
    for (uint32_t i = 0; i < t->write_count; i++) {
        struct pm_write_pm write = {.op = (uint8_t)p->op[i], .index = le32_make(index->index)};
        uint8_t key[32];
        uint32_t key_size = ts_key(t->write[i].key, key);

        write.key_size = le16_make((uint16_t)key_size);
        write.hash = le64_make(pm_index_hash(index, key, key_size));
        if (p->op[i] != PM_OP_INSERT)
            write.item = le64_make(p->place[i].item);
        if (p->op[i] != PM_OP_UPDATE)
            write.bucket = le64_make(p->place[i].bucket);
        if (p->op[i] == PM_OP_INSERT || p->op[i] == PM_OP_MOVE) {
            write.block = p->block[i].off;
            write.class_ = p->class_[i];
        }
        if (p->op[i] != PM_OP_DELETE)
            write.value_size = le32_make(t->write[i].value.size);
        ts_value_fill(t->write[i].key, &t->write[i].value, value);
        (void)pm_record_add_write(&w, &write, key, value);
    }
    t->size = (uint32_t)cn_align_up(w.used, PM_RECORD_ALIGN);
    to_end = ring - t->tail % ring;
    if (t->size > to_end) { /* a pad; it takes no sequence */
        uint8_t line[PM_RECORD_ALIGN] __attribute__((aligned(8)));

        place = pm_slot_place(&s->t->pool, &t->slot, t->tail);
        pm_record_make_pad(line, (uint32_t)to_end, &place);
        pm_copy(
            &s->t->pm, pm_slot_log_at(&s->t->pool, t->slot.number, t->tail), line, sizeof(line));
        pm_slot_flush_log(&s->t->pool, t->slot.number, t->tail, sizeof(line));
        t->tail += to_end;
    }
    place = pm_slot_place(&s->t->pool, &t->slot, t->tail);
    t->size = pm_record_end(&w, PM_RECORD_TX, &id, t->seq + 1, 0, &place);
    TS_NEED(t->size != 0, "record too big");
    TS_NEED(pm_record_check(t->buf, t->size, &place, s->t->pool.super.node, &t->record) == 0,
        "own record");
}

static void pass_position(struct ts_store *s, struct ts_slot *t)
{
    t->slot.position_seq = t->seq;
    t->slot.position_off = t->tail;
    pm_slot_store(&s->t->pool, &t->slot);
    pm_fence(&s->t->pm, CN_STEP_a_position);
}

int ts_store_begin(struct ts_store *s, uint32_t slot, const struct ts_write *write, uint32_t count)
{
    struct ts_slot *t = &s->slot[slot];
    struct plan p;
    int rc;

    TS_NEED(t->phase == TS_IDLE && !t->dead && count <= TS_TX_WRITES_MAX, "slot %u in use", slot);
    /* Ring space before locks (R4). */
    if (t->tail - t->slot.position_off + TS_RECORD_MAX / 4 > s->t->pool.super.geometry.ring_size ||
        t->seq + 1 - t->slot.position_seq > s->t->pool.super.geometry.window)
        pass_position(s, t);
    rc = plan_all(s, write, &p, count);
    if (rc == 0)
        rc = take_blocks(s, slot, &p, count);
    if (rc != 0)
        return rc;
    rc = lock_all(s, t, &p, count);
    if (rc != 0) {
        for (uint32_t i = 0; i < count; i++) {
            if (p.op[i] == PM_OP_INSERT || p.op[i] == PM_OP_MOVE)
                pm_heap_return(s->s, le64_get(p.block[i].off));
        }
        return rc;
    }
    /* Deletes of absent keys are nothing: not validated, so they say nothing at commit. */
    t->write_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (p.op[i] == 0)
            continue;
        p.place[t->write_count] = p.place[i];
        p.op[t->write_count] = p.op[i];
        p.class_[t->write_count] = p.class_[i];
        p.block[t->write_count] = p.block[i];
        t->write[t->write_count++] = write[i];
    }
    t->verdict = TS_UNDECIDED;
    t->unresolved = t->marked = false;
    t->phase = TS_LOCKED;
    make_record(s, t, &p);
    return 0;
}

/* ---- phases ---- */

static void log_record(struct ts_store *s, struct ts_slot *t)
{
    t->phase = TS_LOGGING;
    pm_copy(&s->t->pm, pm_slot_log_at(&s->t->pool, t->slot.number, t->tail), t->buf, t->size);
    pm_slot_flush_log(&s->t->pool, t->slot.number, t->tail, t->size);
    pm_fence(&s->t->pm, CN_STEP_c_flushed);
    t->phase = TS_LOGGED;
    t->seq++;
    t->tail += t->size;
}

static void finish(struct ts_slot *t)
{
    t->phase = TS_IDLE;
    t->unresolved = false;
}

static void commit_model(struct ts_store *s, struct ts_slot *t)
{
    t->verdict = TS_COMMIT;
    s->commits++;
    for (uint32_t i = 0; i < t->write_count; i++)
        s->model[t->write[i].key] = t->write[i].value;
}

static void abort_logged(struct ts_store *s, struct ts_slot *t)
{
    if (t->verdict == TS_UNDECIDED)
        s->aborts++;
    t->verdict = TS_ABORT;
    TS_NEED(pm_slot_add_tombstone(&s->t->pool, &t->slot, t->record.seq) == 0, "tombstone");
    pm_fence(&s->t->pm, CN_STEP_a_tombstone);
    pm_apply_unlock(s->s, &t->record, t->slot.number);
    pm_fence(&s->t->pm, CN_STEP_a_unlock);
    finish(t);
}

void ts_store_advance(struct ts_store *s, uint32_t slot)
{
    struct ts_slot *t = &s->slot[slot];
    int rc;

    switch (t->phase) {
    case TS_IDLE: break;
    case TS_LOCKED: log_record(s, t); break;
    case TS_LOGGING: TS_NEED(false, "a crash was not seen"); break;
    case TS_LOGGED:
        if (t->verdict == TS_ABORT) {
            abort_logged(s, t);
            break;
        }
        if (t->verdict == TS_UNDECIDED)
            commit_model(s, t);
        rc = pm_apply_check(
            s->s, &t->record, t->slot.number, t->unresolved ? PM_APPLY_REPLAY : PM_APPLY_LIVE);
        TS_NEED(rc == 0, "check says %d", rc);
        pm_apply_body(s->s, &t->record);
        pm_fence(&s->t->pm, CN_STEP_a_body);
        t->phase = TS_BODY;
        break;
    case TS_BODY:
        pm_slot_set_applied(&s->t->pool, &t->slot, t->record.seq);
        pm_fence(&s->t->pm, CN_STEP_a_applied);
        t->phase = TS_APPLIED;
        break;
    case TS_APPLIED:
        pm_apply_release(s->s, &t->record);
        t->phase = TS_RELEASED;
        break;
    case TS_RELEASED:
        pm_fence(&s->t->pm, CN_STEP_a_release);
        pm_apply_done(s->s, &t->record, t->slot.number);
        finish(t);
        break;
    }
}

static int run_one(struct ts_store *s, uint32_t slot, const struct ts_write *w)
{
    int rc = ts_store_begin(s, slot, w, 1);

    while (rc == 0 && s->slot[slot].phase != TS_IDLE)
        ts_store_advance(s, slot);
    return rc;
}

int ts_store_put(struct ts_store *s, uint32_t slot, uint32_t key, uint32_t value_size)
{
    struct ts_write w = {.key = key, .value = {true, ++s->values, value_size}};

    return run_one(s, slot, &w);
}

int ts_store_del(struct ts_store *s, uint32_t slot, uint32_t key)
{
    struct ts_write w = {.key = key};

    return run_one(s, slot, &w);
}

/* ---- random steps ---- */

static void begin_random(struct ts_store *s, uint32_t slot)
{
    struct ts_write w[TS_TX_WRITES_MAX];
    uint32_t count = 1 + ts_store_pick(s, s->writes_max), n = 0;
    int rc;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = ts_store_pick(s, s->keys);
        bool again = false;

        for (uint32_t k = 0; k < n; k++)
            again = again || w[k].key == key;
        if (again)
            continue;
        w[n] = (struct ts_write){.key = key};
        if (ts_store_pick(s, 5) < 3)
            w[n].value = (struct ts_value){true, ++s->values, ts_store_pick(s, s->value_max + 1)};
        n++;
    }
    rc = ts_store_begin(s, slot, w, n);
    TS_NEED(rc == 0 || rc == CAIRN_E_CONFLICT || rc == CAIRN_E_POOL_FULL, "begin says %d", rc);
    s->conflicts += rc == CAIRN_E_CONFLICT;
    s->full += rc == CAIRN_E_POOL_FULL;
}

static bool may_free(void *arg, uint16_t slot)
{
    const struct ts_store *s = arg;

    return slot <= s->slots && s->slot[slot].dead && s->slot[slot].phase == TS_IDLE;
}

static void scrub(struct ts_store *s, uint32_t budget)
{
    bool done;

    (void)pm_scrub_step(s->s, budget, may_free, s, &done);
}

void ts_store_hand_out(struct ts_store *s, struct ts_slot *t)
{
    t->slot.epoch++;
    t->slot.nonce = ts_random(&s->seed);
    t->slot.state = PM_SLOT_OPEN;
    t->slot.position_seq = t->slot.position_off = 0;
    t->slot.closing_seq = 0;
    t->slot.tombstone_count = 0;
    t->slot.owner.b[0] = (uint8_t)t->slot.number;
    pm_slot_store(&s->t->pool, &t->slot);
    pm_fence(&s->t->pm, CN_STEP_s_handout);
    t->tail = t->seq = 0;
    t->dead = false;
    t->phase = TS_IDLE;
}

/* The coordinator dies: locks that no record names stay. */
static void kill(struct ts_store *s, struct ts_slot *t)
{
    t->dead = true;
    if (t->phase == TS_LOCKED)
        t->phase = TS_IDLE;
    else if (t->phase == TS_LOGGED && t->verdict == TS_UNDECIDED && ts_store_pick(s, 2) == 0)
        t->verdict = TS_ABORT, s->aborts++;
    t->dead_passes = UINT64_MAX;
}

static void bury(struct ts_store *s, struct ts_slot *t)
{
    if (t->phase != TS_IDLE)
        return;
    if (t->dead_passes ==
        UINT64_MAX) { /* all records are released: T4, and now T10 allows the scrub */
        pm_heap_release_slot(s->s, t->slot.number);
        t->dead_passes = pm_scrub_passes(s->s) +
            2; /* one that was begun by now may have passed a word */
    }
    if (pm_scrub_passes(s->s) >= t->dead_passes)
        ts_store_hand_out(s, t);
}

void ts_store_step(struct ts_store *s)
{
    uint32_t slot = 1 + ts_store_pick(s, s->slots);
    struct ts_slot *t = &s->slot[slot];
    struct ts_place p;

    switch (ts_store_pick(s, 10)) {
    case 0: (void)ts_store_lookup(s, ts_store_pick(s, s->keys), &p); break;
    case 1: (void)pm_growth_step(s->s, 1 + ts_store_pick(s, 3)); break;
    case 2: scrub(s, 1 + ts_store_pick(s, 200)); break;
    case 3:
        if (!t->dead && ts_store_pick(s, 6) == 0)
            kill(s, t);
        break;
    default:
        if (t->dead && t->phase == TS_IDLE)
            bury(s, t);
        else if (t->phase == TS_IDLE)
            begin_random(s, slot);
        else if (t->phase == TS_LOGGED && t->verdict == TS_UNDECIDED && ts_store_pick(s, 6) == 0)
            t->verdict = TS_ABORT, s->aborts++;
        else if (t->phase == TS_LOCKED && ts_store_pick(s, 8) == 0) {
            unlock(s, t, t->locked_count); /* abort before the record: blocks return */
            for (uint32_t i = 0; i < t->record.block_count; i++)
                pm_heap_return(s->s, le64_get(t->record.block[i].off));
            t->phase = TS_IDLE;
        } else
            ts_store_advance(s, slot);
    }
}

void ts_store_drain(struct ts_store *s)
{
    for (uint32_t slot = 1; slot <= s->slots; slot++) {
        struct ts_slot *t = &s->slot[slot];

        if (t->phase == TS_LOCKED && !t->dead)
            kill(s, t);
        while (t->phase != TS_IDLE)
            ts_store_advance(s, slot);
    }
    for (uint32_t slot = 1; slot <= s->slots; slot++) {
        while (s->slot[slot].dead) {
            bury(s, &s->slot[slot]);
            scrub(s, 100000);
        }
    }
}
