/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_offline.c: pools that no node serves: a read-only look at them, recovery of all of them
 * together, of some, of wrong sets and of damaged ones, dry and real, and with failing allocations.
 * What was recovered so is started afterwards, and every value has to be right.
 */
#include "tools/crash/faults/cr_faults.h"

#include <stdarg.h>

#include "pmem/pm_format.h"
#include "pmem/pm_record.h"
#include "recovery/rec_offline.h"

#define BOTH 3u

struct set {
    struct cr_faults *f;
    struct cr_stand_variant v; /* the pools' bytes */
    struct pm_pool pool[CR_STAND_NODES + 1];
    struct rec_report_pool report[CR_STAND_NODES + 1];
    uint64_t last_seq, last_off, last_size; /* of a node's records */
    uint32_t said, committed, aborted, in_doubt, missing;
    int refused;   /* an error that was to be */
    char why[160]; /* what is wrong; "": nothing */
};

static uint64_t fixed_time(void *arg)
{
    (void)arg;
    return SIM_MS;
}

static void fixed_random(void *arg, void *buf, size_t size)
{
    (void)arg;
    memset(buf, 0x5a, size);
}

static const struct cn_env quiet_env = {
    .now_ns = fixed_time, .wall_s = fixed_time, .random = fixed_random};

static void take(struct set *s, struct cr_faults *f)
{
    memset(s, 0, sizeof(*s));
    s->f = f;
    s->v.seed = f->options.seed;
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        s->v.bytes[i] = cr_stand_copy(f->stand, i, false);
}

static void drop(struct set *s)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_free(s->v.bytes[i]);
}

static void wrong(struct set *s, const char *format, ...) CN_PRINTF(2, 3);
static void wrong(struct set *s, const char *format, ...)
{
    va_list args;

    if (s->why[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(s->why, sizeof(s->why), format, args);
    va_end(args);
}

static void expect(struct set *s, const char *what, int have, int want)
{
    if (have != want)
        wrong(s, "%s gave %s, should be %s (%.80s)", what, have == 0 ? "0" : cairn_error_name(have),
            want == 0 ? "0" : cairn_error_name(want), have == 0 ? "" : cairn_last_error());
}

/* The case is over. */
static void count(struct set *s, struct cr_faults_tally *t, const char *how)
{
    struct cr_stand_outcome o = {
        .right = CR_STAND_KEYS, .open[0] = s->refused, .hung = s->why[0] != '\0'};

    (void)snprintf(o.what, sizeof(o.what), "%s", s->why);
    cr_faults_count(s->f, t, &o, false, how);
    drop(s);
}

/* Started, all is there; `older`: some values may be those before the last transactions. */
static void must_serve(struct set *s, bool older)
{
    struct cr_stand_outcome o;

    cr_stand_try(s->f->stand, &s->v, &o);
    if (o.wrong != 0 || o.hung || o.write != 0 || o.damages != 0 ||
        o.right + o.stale != CR_STAND_KEYS || (o.stale != 0) != older)
        wrong(s, "started afterwards: %u right, %u older, write %s, %lu damages: %.80s", o.right,
            o.stale, o.write == 0 ? "0" : cairn_error_name(o.write), o.damages, o.what);
}

/* ---- recovery ---- */

static void on_progress(void *arg, const char *text)
{
    struct set *s = arg;

    s->said += text[0] != '\0';
}

static void on_transaction(void *arg, const struct rec_report_tx *tx)
{
    struct set *s = arg;

    s->committed += tx->verdict == RD_VERDICT_COMMITTED;
    s->aborted += tx->verdict == RD_VERDICT_ABORTED;
    s->in_doubt += tx->verdict == RD_VERDICT_IN_DOUBT;
    s->missing += tx->missing;
}

static int recover_bytes(struct set *s, uint8_t *const *bytes, uint32_t n, bool dry)
{
    const struct rec_offline_options options = {.env = &quiet_env, .dry_run = dry,
        .progress = on_progress, .transaction = on_transaction, .arg = s};
    struct pm_pool *pools[CR_STAND_NODES + 1];

    s->said = s->committed = s->aborted = s->in_doubt = s->missing = 0;
    for (uint32_t i = 0; i < n; i++) {
        int error = cr_stand_look(s->f->stand, bytes[i], &s->pool[i]);
        if (error != 0)
            return error;
        s->pool[i].pm.env = &quiet_env;
        s->pool[i].pm.read_only = dry;
        pools[i] = &s->pool[i];
    }
    return rec_offline_pools(&options, pools, n, s->report, NULL, NULL);
}

static uint64_t hash_of(const struct set *s)
{
    uint64_t h = 0;

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        h = cn_crc64(h, s->v.bytes[i], s->f->stand->pool_size);
    return h;
}

/* Of the pools in `mask`. A dry run changes nothing. */
static int recover(struct set *s, uint32_t mask, bool dry)
{
    uint8_t *bytes[CR_STAND_NODES];
    uint64_t before = hash_of(s);
    uint32_t n = 0;

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        if ((mask >> i & 1) != 0)
            bytes[n++] = s->v.bytes[i];
    int rc = recover_bytes(s, bytes, n, dry);
    if (dry && hash_of(s) != before)
        wrong(s, "a dry run changed the pools");
    return rc;
}

/* ---- records in a pool's rings ---- */

struct visit {
    struct set *s;
    const struct pm_pool *pool;
    uint16_t slot;
    uint32_t node, done;
    void (*change)(struct visit *visit, uint64_t off, const struct pm_record *record);
};

static int on_record(void *arg, const struct pm_record *record)
{
    struct visit *v = arg;

    if (record->type == PM_RECORD_TX)
        v->change(v, pm_slot_log_at(v->pool, v->slot, record->log_off), record);
    return 0;
}

static uint32_t each_record(struct set *s, uint32_t node,
    void (*change)(struct visit *visit, uint64_t off, const struct pm_record *record))
{
    struct visit v = {.s = s, .node = node, .change = change};
    struct pm_pool pool;

    if (cr_stand_look(s->f->stand, s->v.bytes[node], &pool) != 0)
        return 0;
    v.pool = &pool;
    uint8_t *ring = sim_calloc(1, pool.super.geometry.ring_size);
    for (v.slot = 1; v.slot < pool.super.geometry.slot_count; v.slot++) {
        struct pm_slot slot;
        if (pm_slot_load(&pool, v.slot, &slot) != 0 || slot.state == PM_SLOT_FREE)
            continue;
        pm_slot_snapshot(&pool, v.slot, ring);
        (void)!pm_slot_scan(&pool, &slot, ring, on_record, &v);
    }
    sim_free(ring);
    return v.done;
}

static void clear_mark(struct visit *v, uint64_t off, const struct pm_record *record)
{
    if (record->participant_count < 2)
        return;
    memset(v->s->v.bytes[v->node] + off + offsetof(struct pm_record_pm, mark), 0, 8);
    v->done++;
}

static void find_last(struct visit *v, uint64_t off, const struct pm_record *record)
{
    if (record->seq < v->s->last_seq)
        return;
    v->s->last_seq = record->seq;
    v->s->last_off = off;
    v->s->last_size = record->size;
}

/* As if it had never come; no later record says that it was committed. */
static void wipe_last(struct set *s, uint32_t node)
{
    s->last_seq = s->last_size = 0;
    (void)each_record(s, node, find_last);
    memset(s->v.bytes[node] + s->last_off, 0, s->last_size);
}

static void damage_marked(struct visit *v, uint64_t off, const struct pm_record *record)
{
    if (record->participant_count < 2 || v->done != 0)
        return;
    v->s->v.bytes[v->node][off + record->size / 2] ^= 0x10;
    v->done++;
}

/* ---- the cases ---- */

static void recover_good(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;

    take(&s, f);
    expect(&s, "a dry run", recover(&s, BOTH, true), 0);
    uint64_t marked = s.report[0].marked + s.report[1].marked;
    if (marked != f->stand->records || s.said != 2)
        wrong(&s, "a dry run tells of %lu records, there are %u", marked, f->stand->records);
    expect(&s, "recovery", recover(&s, BOTH, false), 0);
    expect(&s, "recovery once more", recover(&s, BOTH, false), 0);
    if (s.report[0].records_found + s.report[1].records_found != 0 || !s.report[0].was_clean)
        wrong(&s, "something is left behind recovery");
    must_serve(&s, false);
    count(&s, t, "all pools");
}

static void recover_doubts(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;

    take(&s, f);
    uint32_t n = each_record(&s, 0, clear_mark) + each_record(&s, 1, clear_mark);
    for (uint32_t node = 0; node < CR_STAND_NODES; node++) {
        expect(&s, "a dry run of one pool", recover(&s, 1u << node, true), CAIRN_E_IN_DOUBT);
        if (n == 0 || s.in_doubt != n / 2 || s.missing != n / 2)
            wrong(&s, "%u of %u records in doubt without the other pool", s.in_doubt, n / 2);
    }
    expect(&s, "a dry run", recover(&s, BOTH, true), 0);
    if (s.committed != n || s.aborted != 0)
        wrong(&s, "%u of %u records would be committed", s.committed, n);
    expect(&s, "recovery of one pool", recover(&s, 1, false), CAIRN_E_IN_DOUBT);
    expect(&s, "recovery of the other", recover(&s, 2, false), CAIRN_E_IN_DOUBT);
    expect(&s, "recovery of both", recover(&s, BOTH, false), 0);
    must_serve(&s, false);
    count(&s, t, "no marks, first one pool, then the other, then both");
}

/* One participant never got the last record that both have: aborted at the other too. */
static void recover_aborts(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;

    take(&s, f);
    uint32_t n = each_record(&s, 0, clear_mark);
    wipe_last(&s, 0); /* of node 1 alone, and it would tell of the one before */
    wipe_last(&s, 1);
    expect(&s, "a dry run", recover(&s, BOTH, true), 0);
    expect(&s, "recovery", recover(&s, BOTH, false), 0);
    if (n == 0 || s.aborted != 1)
        wrong(&s, "%u of %u records aborted", s.aborted, n);
    must_serve(&s, true);
    count(&s, t, "a record at one participant only");
}

static void recover_damaged(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;
    struct pm_pool pool;

    take(&s, f);
    if (each_record(&s, 0, damage_marked) != 1)
        wrong(&s, "no marked record");
    expect(&s, "a dry run over a damaged record", recover(&s, BOTH, true), CAIRN_E_CORRUPT_RECORD);
    expect(&s, "recovery over a damaged record", recover(&s, BOTH, false), CAIRN_E_CORRUPT_RECORD);
    if (s.report[0].text[0] == '\0' || s.report[1].error != 0)
        wrong(&s, "the report does not name the damaged pool alone");
    count(&s, t, "a damaged record");
    take(&s, f);
    if (cr_stand_look(f->stand, s.v.bytes[0], &pool) == 0)
        for (uint16_t i = 1; i < pool.super.geometry.slot_count; i++) {
            struct pm_slot slot;
            if (pm_slot_load(&pool, i, &slot) != 0 || slot.state == PM_SLOT_FREE)
                continue;
            slot.position_off = UINT64_MAX - 63; /* and the checksum fits */
            pm_slot_store(&pool, &slot);
            pm_slot_store(&pool, &slot);
        }
    expect(&s, "recovery with an impossible slot", recover(&s, BOTH, false), CAIRN_E_CORRUPT_SLOT);
    if (s.report[0].error != CAIRN_E_CORRUPT_SLOT || s.report[1].error != 0)
        wrong(&s, "the report does not name the pool with the slot alone");
    count(&s, t, "an impossible slot");
}

static void recover_wrong_sets(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;
    char why[256];

    take(&s, f);
    uint64_t before = hash_of(&s);
    uint8_t *twice[] = {s.v.bytes[0], s.v.bytes[1], s.v.bytes[0]};
    expect(&s, "one pool twice", recover_bytes(&s, twice, 3, false), CAIRN_E_WRONG_NODE);
    struct cr_stand *other = cr_stand_new(f->options.seed + 1, NULL, why, sizeof(why));
    if (other != NULL) {
        uint8_t *mixed[] = {s.v.bytes[0], cr_stand_copy(other, 1, false)};
        expect(&s, "pools of two clusters", recover_bytes(&s, mixed, 2, false),
            CAIRN_E_WRONG_CLUSTER);
        sim_free(mixed[1]);
        cr_stand_delete(&other);
    }
    if (hash_of(&s) != before)
        wrong(&s, "a refused set was changed");
    s.refused = CAIRN_E_WRONG_CLUSTER;
    count(&s, t, "one pool twice, and pools of two clusters");
}

/* ---- a read-only look ---- */

struct look { uint64_t slots, records, marked, retired, errors; int error; };

static void on_slot(void *arg, const struct pm_slot *slot, uint32_t records, uint32_t unmarked)
{
    struct look *l = arg;

    (void)slot;
    (void)unmarked;
    l->slots++;
    l->records += records;
}

static void on_look(void *arg, const struct pm_slot *slot, const struct rec_look_record *record)
{
    struct look *l = arg;

    (void)slot;
    l->marked += record->marked;
}

static void on_retired(void *arg, const struct pm_retired *retired)
{
    struct look *l = arg;

    l->retired += retired->epoch != 0;
}

static void on_error(void *arg, int error, const char *text)
{
    struct look *l = arg;

    l->errors += text[0] != '\0';
    l->error = error;
}

static int look(struct set *s, uint32_t node, struct look *l)
{
    const struct rec_look how = {l, on_slot, on_look, on_retired, on_error};
    uint64_t before = hash_of(s);

    int error = cr_stand_look(s->f->stand, s->v.bytes[node], &s->pool[node]);
    if (error != 0)
        return error;
    s->pool[node].pm.read_only = true;
    error = rec_look_at(&s->pool[node], &how);
    if (hash_of(s) != before)
        wrong(s, "a look changed the pool");
    return error;
}

static void look_at_all(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct set s;
    struct look l = {0}, damaged = {0}, torn = {0};

    take(&s, f);
    expect(&s, "a look", look(&s, 0, &l), 0);
    expect(&s, "a look", look(&s, 1, &l), 0);
    if (l.marked != f->stand->records || l.errors != 0 || l.retired == 0)
        wrong(&s, "%lu records (%u), %lu errors, %lu retired epochs seen", l.marked,
            f->stand->records, l.errors, l.retired);
    (void)each_record(&s, 0, damage_marked);
    expect(&s, "a look at damage", look(&s, 0, &damaged), 0);
    if (damaged.errors != 1 || damaged.error != CAIRN_E_CORRUPT_RECORD)
        wrong(&s, "a damaged record is not told");
    if (cr_stand_look(f->stand, s.v.bytes[1], &s.pool[1]) == 0)
        for (uint16_t i = 1; i < s.pool[1].super.geometry.slot_count; i++) {
            struct pm_slot slot;
            if (pm_slot_load(&s.pool[1], i, &slot) != 0 || slot.state == PM_SLOT_FREE)
                continue;
            slot.position_off = UINT64_MAX - 63;
            pm_slot_store(&s.pool[1], &slot);
            pm_slot_store(&s.pool[1], &slot);
        }
    expect(&s, "a look at an impossible slot", look(&s, 1, &torn), CAIRN_E_CORRUPT_SLOT);
    count(&s, t, "good and damaged pools");
}

/* ---- F26: an allocation of recovery fails ---- */

struct failing { struct set *s; uint64_t number; bool reached, look; int rc; };

/* In a fiber of its own, whose allocations are counted; the pools are not the ones served. */
static void recover_failing(struct sim_actor *actor, const struct cr_stand *stand, void *arg)
{
    struct failing *a = arg;

    (void)stand;
    actor->heap.fail_at = actor->heap.allocations + a->number;
    struct look l = {0};
    a->rc = a->look ? look(a->s, 0, &l) : recover(a->s, BOTH, false);
    a->rc = a->rc == 0 ? l.error : a->rc;
    a->reached = actor->heap.failed;
    actor->heap.fail_at = 0;
}

static void fail_allocations(struct cr_faults *f, struct cr_faults_tally *t, bool only_look)
{
    bool reached = true;

    for (uint64_t n = 1; reached && !cr_faults_time_is_up(f); n++) {
        struct set s, served;
        struct failing a = {.s = &s, .number = n, .look = only_look};
        struct cr_stand_outcome o;
        char how[64];
        take(&s, f);
        take(&served, f);
        (void)each_record(&s, 0, clear_mark);
        served.v.attack = recover_failing;
        served.v.attack_arg = &a;
        cr_stand_try(f->stand, &served.v, &o);
        drop(&served);
        reached = a.reached;
        (void)snprintf(how, sizeof(how), "allocation %lu", n);
        if (reached && a.rc == 0)
            wrong(&s, "0 although there was no memory");
        expect(&s, "recovery with memory again", recover(&s, BOTH, false), 0);
        must_serve(&s, false);
        count(&s, t, how);
    }
}

void cr_faults_offline(struct cr_faults *f)
{
    static void (*const cases[])(struct cr_faults *f, struct cr_faults_tally *t) = {
        recover_good, recover_doubts, recover_aborts, recover_damaged};
    struct cr_faults_tally *t = cr_faults_tally(f, "I5", "pools recovered without nodes");

    for (uint32_t i = 0; t != NULL && i < CN_ARRAY_SIZE(cases) && !cr_faults_time_is_up(f); i++)
        cases[i](f, t);
    t = cr_faults_tally(f, "I5", "a read-only look at pools");
    if (t != NULL && !cr_faults_time_is_up(f))
        look_at_all(f, t);
    t = cr_faults_tally(f, "F22", "wrong sets of pools to recover");
    if (t != NULL && !cr_faults_time_is_up(f))
        recover_wrong_sets(f, t);
    t = cr_faults_tally(f, "F26", "of recovery without nodes");
    if (t != NULL)
        fail_allocations(f, t, false);
    t = cr_faults_tally(f, "F26", "of a look at a pool");
    if (t != NULL)
        fail_allocations(f, t, true);
}
