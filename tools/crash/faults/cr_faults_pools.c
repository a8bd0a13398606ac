/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_pools.c: whole pools that are not what they should be: F18 a log that begins anywhere
 * in its ring, F19 counters that are large or about to wrap, F21 an older copy, F22 the wrong one,
 * or the right one under the wrong configuration.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_format.h"
#include "pmem/pm_store.h"

static struct cr_stand_variant take(struct cr_faults *f, const struct cr_stand *stand)
{
    struct cr_stand_variant v = {.seed = f->options.seed};

    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        v.bytes[i] = cr_stand_copy(stand, i, false);
    return v;
}

static void drop(struct cr_stand_variant *v)
{
    for (uint32_t i = 0; i < CR_STAND_NODES; i++)
        sim_free(v->bytes[i]);
}

/* Something must be refused, with this error. */
static void expect_refused(struct cr_faults *f, const char *what, struct cr_stand_variant *v,
    uint32_t node, int error)
{
    struct cr_faults_tally *t = cr_faults_tally(f, "F22", what);
    struct cr_stand_outcome o;

    if (t == NULL || cr_faults_time_is_up(f))
        return;
    cr_stand_try(f->stand, v, &o);
    if (o.open[node] != error && o.what[0] == '\0') {
        o.hung = true;
        snprintf(o.what, sizeof(o.what), "the start gave %s, should be %s",
            o.open[node] == 0 ? "0" : cairn_error_name(o.open[node]), cairn_error_name(error));
    }
    cr_faults_count(f, t, &o, false, what);
}

/* ---- F22 ---- */

static void mend_super(const struct cr_stand *stand, uint8_t *bytes)
{
    struct pm_super_pm *s = (void *)(bytes + stand->super_off);

    s->crc = le32_make(0);
    s->crc = le32_make(cn_crc32c(0, s, sizeof(*s)));
}

static void change_super(struct cr_faults *f, const char *what, uint64_t off, uint8_t value,
    bool mended, int error)
{
    struct cr_stand_variant v = take(f, f->stand);

    v.bytes[1][f->stand->super_off + off] = value;
    if (mended)
        mend_super(f->stand, v.bytes[1]);
    expect_refused(f, what, &v, 1, error);
    drop(&v);
}

static void wrong_pools(struct cr_faults *f)
{
    struct cr_stand_variant v = take(f, f->stand);
    uint8_t *first = v.bytes[0];
    char why[256];

    v.bytes[0] = v.bytes[1];
    v.bytes[1] = first;
    expect_refused(f, "pools of two nodes swapped", &v, 0, CAIRN_E_WRONG_NODE);
    expect_refused(f, "pools of two nodes swapped", &v, 1, CAIRN_E_WRONG_NODE);
    memcpy(v.bytes[0], v.bytes[1], f->stand->pool_size);
    expect_refused(f, "one pool given to both nodes", &v, 1, CAIRN_E_WRONG_NODE);
    drop(&v);
    struct cr_stand *other = cr_stand_new(f->options.seed + 1, NULL, why, sizeof(why));
    if (other != NULL) {
        v = take(f, f->stand);
        memcpy(v.bytes[1], other->pool[1].bytes, f->stand->pool_size);
        expect_refused(f, "a pool of another cluster", &v, 1, CAIRN_E_WRONG_CLUSTER);
        drop(&v);
        cr_stand_delete(&other);
    }
    v = take(f, f->stand);
    v.first_id = 7;
    expect_refused(f, "a node that is not configured", &v, 0, CAIRN_E_CONFIG);
    v.first_id = 0;
    v.persistence = TXN_PERSISTENCE_EADR; /* and the platform's caches are lost */
    expect_refused(f, "a platform that cannot keep what is asked", &v, 1, CAIRN_E_DURABILITY);
    drop(&v);
    v = take(f, f->stand);
    memset(v.bytes[1], 0, f->stand->pool_size);
    expect_refused(f, "a file of zeros", &v, 1, CAIRN_E_NOT_A_POOL);
    drop(&v);
    change_super(f, "bad magic", 0, 'x', true, CAIRN_E_NOT_A_POOL);
    change_super(f, "another layout version", 8, 2, true, CAIRN_E_LAYOUT_VERSION);
    change_super(f, "damaged layout version", 8, 2, false, CAIRN_E_CORRUPT_SUPER);
    change_super(f, "an unknown incompatible feature", 64, 1, true, CAIRN_E_LAYOUT_VERSION);
    change_super(f, "another size than the file's", 82, 0x33, true, CAIRN_E_POOL_SIZE);
}

/* ---- F21 ---- */

static void older_copies(struct cr_faults *f)
{
    static const char *const names[] = {"older copy of n1", "older copy of n2",
        "older copies of both"};

    for (uint32_t set = 1; set < 4; set++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F21", names[set - 1]);
        struct cr_stand_variant v = take(f, f->stand);
        for (uint32_t i = 0; i < CR_STAND_NODES; i++)
            if ((set >> i & 1) != 0)
                memcpy(v.bytes[i], f->stand->pool[i].earlier, f->stand->pool_size);
        if (t != NULL && !cr_faults_time_is_up(f))
            cr_faults_case(f, t, &v, true, names[set - 1]);
        drop(&v);
    }
}

/* ---- F19 ---- */

/* The whole life of a cluster twice over: start, read, write, and a start of what that left. */
static void start_twice(
    struct cr_faults *f, struct cr_faults_tally *t, struct cr_stand_variant *v, const char *how)
{
    v->write_back = true;
    for (uint32_t i = 0; i < 2; i++) {
        struct cr_stand_outcome o;
        cr_stand_try(f->stand, v, &o);
        if (o.write != 0 && o.what[0] == '\0') {
            o.hung = true;
            snprintf(o.what, sizeof(o.what), "start %u: a write gave %s", i + 1,
                cairn_error_name(o.write));
        }
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            if (o.open[n] != 0 && o.what[0] == '\0') {
                o.hung = true;
                snprintf(o.what, sizeof(o.what), "start %u: %.130s", i + 1, o.text[n]);
            }
        cr_faults_count(f, t, &o, false, how);
    }
}

static void raise_epochs(struct cr_stand *stand, uint8_t *bytes, uint64_t epoch)
{
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) != 0)
        return;
    for (uint16_t i = 1; i < pool.super.geometry.slot_count; i++) {
        struct pm_slot slot;
        if (pm_slot_load(&pool, i, &slot) != 0 || slot.state != PM_SLOT_FREE)
            continue;
        slot.epoch = epoch;
        slot.generation = epoch;
        pm_slot_store(&pool, &slot);
        pm_slot_store(&pool, &slot);
    }
}

static void raise_incarnation(struct cr_stand *stand, uint8_t *bytes, uint64_t incarnation)
{
    struct pm_pool pool;
    struct pm_scrub_pm scrub = {.goal = le64_make(incarnation), .done = le64_make(incarnation)};

    if (cr_stand_look(stand, bytes, &pool) != 0)
        return;
    pool.incarnation = incarnation;
    pool.generation = incarnation;
    pm_pool_store_dynamic(&pool, CN_STEP_r_incarnation, false);
    memcpy(bytes + stand->super_off + PM_SCRUB_OFF, &scrub, sizeof(scrub));
}

static void large_counters(struct cr_faults *f)
{
    static const uint64_t values[] = {(UINT64_C(1) << 31) - 3, (UINT64_C(1) << 32) - 3,
        (UINT64_C(1) << 40) - 3, UINT64_C(1) << 61};
    char how[64];

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(values); i++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F19", "slot epochs");
        struct cr_stand_variant v = take(f, f->stand);
        snprintf(how, sizeof(how), "from %lu", values[i]);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            raise_epochs(f->stand, v.bytes[n], values[i]);
        if (t != NULL && !cr_faults_time_is_up(f))
            start_twice(f, t, &v, how);
        drop(&v);
        t = cr_faults_tally(f, "F19", "incarnations");
        v = take(f, f->stand);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            raise_incarnation(f->stand, v.bytes[n], values[i]);
        if (t != NULL && !cr_faults_time_is_up(f))
            start_twice(f, t, &v, how);
        drop(&v);
    }
}

/* Pools whose last records begin elsewhere: started as they are, or with a power failure after the
 * given time of the first start. */
static void begin_at(struct cr_faults *f, struct cr_faults_tally *t,
    const struct cr_stand_start *start, const uint64_t *power_ns, uint32_t count)
{
    struct cr_stand *usual = f->stand;
    char how[300];

    f->stand = cr_stand_new(f->options.seed, start, how, sizeof(how));
    if (f->stand == NULL) {
        struct cr_stand_outcome o = {.hung = true};
        snprintf(o.what, sizeof(o.what), "%.150s", how);
        cr_faults_count(f, t, &o, false, "making the pools");
    }
    for (uint32_t i = 0; f->stand != NULL && i < count; i++) {
        struct cr_stand_variant v = take(f, f->stand);
        v.power_ns = power_ns[i];
        snprintf(how, sizeof(how), "sequence %lu, log offset %lu, power fails after %lu ns",
            start->seq, start->log_off, v.power_ns);
        start_twice(f, t, &v, how);
        drop(&v);
    }
    if (f->stand != NULL)
        cr_stand_delete(&f->stand);
    f->stand = usual;
}

static void large_sequences(struct cr_faults *f)
{
    static const uint64_t starts[] = {(UINT64_C(1) << 26) - 3, (UINT64_C(1) << 32) - 3,
        (UINT64_C(1) << 40) - 3, (UINT64_C(1) << 55) - 3};
    static const uint64_t never[] = {0};

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(starts); i++) {
        struct cr_faults_tally *t = cr_faults_tally(f, "F19", "sequences and log offsets");
        struct cr_stand_start start = {starts[i], starts[i] * 64};
        if (t != NULL && !cr_faults_time_is_up(f))
            begin_at(f, t, &start, never, 1);
    }
}

/* ---- F18 ---- */

/* The log begins at each place of a ring in turn, so that the ring's end comes at each place of the
 * records; the power fails while they are applied and the position moves over the end. */
static void wrap_everywhere(struct cr_faults *f)
{
    static const uint64_t power[] = {0, 20 * SIM_US, 60 * SIM_US, 200 * SIM_US};
    struct cr_faults_tally *t = cr_faults_tally(f, "F18", "the log begins at each place of a ring");
    uint64_t size = f->stand->super[0].geometry.ring_size;

    for (uint64_t at = 0; t != NULL && at < size && !cr_faults_time_is_up(f); at += 64) {
        struct cr_stand_start start = {0, 4 * size + at};
        uint32_t slice = 1 + (uint32_t)(at / 64 % 2);
        begin_at(f, t, &start, power, f->options.exhaustive ? CN_ARRAY_SIZE(power) : slice);
    }
}

void cr_faults_pools(struct cr_faults *f)
{
    wrap_everywhere(f);
    large_counters(f);
    large_sequences(f);
    older_copies(f);
    wrong_pools(f);
}
