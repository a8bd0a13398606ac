/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_store_life.c: making, checking and restarting the store of ts_store.h.
 */
#include "tests/support/ts_store_internal.h"

/* ---- check ---- */

static void report(void *arg, enum pm_fsck_severity severity, const char *text)
{
    (void)arg;
    if (severity == PM_FSCK_DAMAGE)
        fprintf(stderr, "fsck: %s\n", text);
}

static void see_item(void *arg, const struct pm_index *index, const struct pm_item_view *item)
{
    struct ts_store *s = arg;
    uint32_t key = 0;
    uint8_t bytes[32];
    char text[33] = {0};

    (void)index;
    memcpy(text, item->key, item->key_size < 32 ? item->key_size : 32);
    TS_NEED(sscanf(text, "key-%u", &key) == 1 && key < s->keys, "strange key");
    TS_NEED(ts_key(key, bytes) == item->key_size && memcmp(bytes, item->key, item->key_size) == 0,
        "strange key");
    TS_NEED(s->model[key].present, "key %u is there, the model has none", key);
    TS_NEED(ts_value_is(key, &s->model[key], item), "key %u: another value than the model's", key);
}

void ts_store_check(struct ts_store *s)
{
    struct pm_fsck_options o = {.report = report, .item = see_item, .arg = s};
    struct pm_fsck_report r;
    uint64_t present = 0;

    for (uint32_t i = 0; i < s->keys; i++)
        present += s->model[i].present;
    TS_NEED(pm_fsck(&s->t->pool, &o, &r) == 0, "fsck");
    TS_NEED(r.damages == 0, "%" PRIu64 " damages", r.damages);
    TS_NEED(r.items == present, "%" PRIu64 " items, the model has %" PRIu64, r.items, present);
    TS_NEED(r.words_locked == 0, "%" PRIu64 " words are locked", r.words_locked);
}

/* ---- restart ---- */

struct at_start {
    struct ts_store *s;
    struct ts_slot *t;
    bool pending_seen;
};

/* Redo what is applied, undo what has a tombstone, remember the one pending record. */
static int found(void *arg, const struct pm_record *r)
{
    struct at_start *a = arg;
    struct ts_slot *t = a->t;
    struct ts_store *s = a->s;

    pm_slot_flush_log(&s->t->pool, t->slot.number, r->log_off, r->size);
    pm_fence(&s->t->pm, CN_STEP_a_found);
    if (pm_slot_has_tombstone(&s->t->pool, &t->slot, r->seq)) {
        pm_apply_unlock(s->s, r, t->slot.number);
        return 0;
    }
    if (pm_slot_is_applied(&s->t->pool, &t->slot, r->seq)) {
        TS_NEED(r->seq != t->record.seq || t->phase == TS_IDLE || t->verdict == TS_COMMIT,
            "applied undecided");
        pm_apply_release(s->s, r);
        return 0;
    }
    TS_NEED(t->phase >= TS_LOGGING && r->seq == t->record.seq,
        "record %" PRIu64 " of slot %u is not pending", r->seq, t->slot.number);
    a->pending_seen = true;
    t->record = *r;
    return 0;
}

static void replay_pending(struct ts_store *s, struct ts_slot *t)
{
    int rc = pm_apply_check(s->s, &t->record, t->slot.number, PM_APPLY_REPLAY);

    TS_NEED(rc == 0, "replay check says %d", rc);
    pm_apply_body(s->s, &t->record);
    pm_fence(&s->t->pm, CN_STEP_a_body);
    pm_slot_set_applied(&s->t->pool, &t->slot, t->record.seq);
    pm_fence(&s->t->pm, CN_STEP_a_applied);
    pm_apply_release(s->s, &t->record);
    s->replays++;
}

static void scan_slot(struct ts_store *s, struct ts_slot *t, bool *pending)
{
    struct at_start a = {.s = s, .t = t};
    struct pm_slot loaded;
    uint64_t seq = t->record.seq;

    TS_NEED(pm_slot_load(&s->t->pool, t->slot.number, &loaded) == 0, "slot");
    /* A crash within a position or a handout: then nothing was pending. */
    TS_NEED((loaded.epoch == t->slot.epoch && loaded.nonce == t->slot.nonce) || t->phase == TS_IDLE,
        "epoch");
    t->slot = loaded;
    pm_fence(&s->t->pm, CN_STEP_a_found);
    if (loaded.state == PM_SLOT_FREE)
        return;
    pm_slot_snapshot(&s->t->pool, t->slot.number, t->snapshot);
    TS_NEED(pm_slot_scan(&s->t->pool, &t->slot, t->snapshot, found, &a) == 0, "scan");
    TS_NEED(a.pending_seen || t->phase < TS_LOGGED || t->verdict == TS_COMMIT ||
            t->verdict == TS_ABORT || loaded.position_seq >= seq,
        "an undecided durable record is lost");
    *pending = a.pending_seen;
}

void ts_store_restart(struct ts_store *s)
{
    bool pending[TS_SLOTS_MAX] = {false};

    if (s->s != NULL) {
        struct pm_store_stats st;

        pm_store_stats(s->s, &st);
        s->splits += st.splits_early + st.splits_sweep + st.splits_room;
        s->surveys += st.surveys;
    }
    pm_store_close(&s->s);
    TS_NEED(pm_pool_raise_incarnation(&s->t->pool) == 0, "incarnation");
    TS_NEED(pm_store_open(&s->t->pool, &s->cas, &s->s) == 0, "open");
    TS_NEED(pm_growth_start(s->s) == 0, "growth start");
    for (uint32_t i = 1; i <= s->slots; i++)
        scan_slot(s, &s->slot[i], &pending[i]);
    for (uint32_t i = 1; i <= s->slots; i++) {
        if (pending[i] && s->slot[i].verdict == TS_COMMIT) {
            replay_pending(s, &s->slot[i]);
            pending[i] = false;
        }
    }
    pm_fence(&s->t->pm, CN_STEP_a_release);
    for (uint32_t i = 1; i <= s->slots; i++) {
        struct ts_slot *t = &s->slot[i];

        if (!pending[i])
            continue;
        TS_NEED(pm_apply_relock(s->s, &t->record, t->slot.number) == 0, "relock");
    }
    pm_fence(&s->t->pm, CN_STEP_r_relocked);
    for (uint32_t i = 1; i <= s->slots; i++) {
        struct ts_slot *t = &s->slot[i];

        if (pending[i]) {
            t->phase = TS_LOGGED;
            t->unresolved = true;
            t->dead = true; /* to be handed out again when it is resolved */
            t->dead_passes = UINT64_MAX;
            t->seq = t->record.seq;
            t->tail = t->record.log_off + t->record.size;
        } else {
            t->dead = false;
            t->phase = TS_IDLE;
            ts_store_hand_out(s, t);
        }
    }
}

/* ---- life ---- */

struct ts_store *ts_store_new(const struct pm_geometry *geometry, uint64_t size, uint64_t seed)
{
    struct ts_store *s = calloc(1, sizeof(*s));

    TS_NEED(s != NULL, "memory");
    s->t = ts_pool_new(geometry, size);
    /* FREE chunks may hold anything. */
    memset(s->t->visible + s->t->pool.super.heap_off, 0xa5, s->t->size - s->t->pool.super.heap_off);
    ts_pool_settle(s->t);
    s->t->seed = seed * 77 + 5;
    s->cas = (struct pm_cas){.arg = s, .cas = ts_store_cas};
    s->seed = seed;
    s->slots = s->t->pool.super.geometry.slot_count - 1;
    TS_NEED(s->slots < TS_SLOTS_MAX, "too many slots");
    s->keys = 40;
    s->value_max = 150;
    s->writes_max = 4;
    for (uint32_t i = 1; i <= s->slots; i++) {
        s->slot[i].slot.number = (uint16_t)i;
        s->slot[i].buf = aligned_alloc(64, TS_RECORD_MAX);
        s->slot[i].snapshot = aligned_alloc(64, s->t->pool.super.geometry.ring_size);
        TS_NEED(s->slot[i].buf != NULL && s->slot[i].snapshot != NULL, "memory");
    }
    ts_store_restart(s);
    TS_NEED(pm_store_create_index(s->s, 1, 0) == 0, "index");
    return s;
}

void ts_store_delete(struct ts_store **sp)
{
    struct ts_store *s = *sp;

    pm_store_close(&s->s);
    for (uint32_t i = 1; i <= s->slots; i++) {
        free(s->slot[i].buf);
        free(s->slot[i].snapshot);
    }
    ts_pool_delete(&s->t);
    free(s);
    *sp = NULL;
}
