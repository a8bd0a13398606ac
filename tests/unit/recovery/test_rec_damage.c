/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: damaged and forged pools. Whatever the bytes of a pool are, looking at it, checking it,
 * recovering it and starting a node on it end with success or an error that says what is wrong.
 * Method: a filled pool is damaged at seeded random places of every structure, in half of the cases
 * with the crc mended so that only the later checks stand in the way; then everything that opens a
 * pool is run, in this thread, and the file is put back.
 * Invariants: no crash, no assertion, no hang (alarm); a look and a dry run change no byte.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "pmem/pm_format.h"
#include "pmem/pm_store_internal.h"
#include "recovery/rec_offline.h"
#include "tests/support/ts_filled.h"
#include "tests/support/ts_pool.h"

#define HANG_S 120u
#define TURNS 50u
#ifndef ROUNDS /* more find more */
#define ROUNDS 16u
#endif
#ifndef SEED
#define SEED 0x1000u
#endif

static struct ts_filled *filled;
static struct pm_super super; /* of the undamaged pool */
static uint64_t super_off;
static uint32_t crc_seed;

static int setup(void **state)
{
    struct pm_pool *pool;

    (void)state;
    filled = ts_filled_new();
    assert_int_equal(pm_pool_open(filled->config.node[0].pool, PM_OPEN_READ_ONLY, 0,
                         &filled->env, &pool),
        0);
    super = pool->super;
    super_off = pool->super_off;
    crc_seed = pool->crc_seed;
    pm_pool_close(&pool);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_filled_delete(&filled);
    return 0;
}

/* ---- forging ---- */

enum forge { FORGE_SUPER, FORGE_DYNAMIC, FORGE_SLOT, FORGE_RETIRED, FORGE_CHUNK, FORGE_ROOT,
    FORGE_BUCKET, FORGE_ITEM, FORGE_RING, FORGE_COUNT };

struct target {
    uint64_t off;
    uint32_t size;   /* bytes to damage */
    uint32_t number; /* of a slot, entry or chunk */
};

static uint64_t below(uint64_t *seed, uint64_t limit)
{
    return ts_random(seed) % limit;
}

static struct le64 get64(uint64_t off)
{
    struct le64 v;
    memcpy(&v, filled->file + off, sizeof(v));
    return v;
}

/* A chunk of the kind, and in it a place that is in use. */
static void find_object(uint64_t *seed, enum pm_chunk_kind kind, struct target *ret)
{
    for (uint32_t tries = 0; tries < 100000; tries++) {
        uint32_t n = (uint32_t)below(seed, super.chunk_count);
        struct pm_chunk_pm d;
        memcpy(&d, filled->file + super.chunks_off + n * sizeof(d), sizeof(d));
        uint64_t chunk = (uint64_t)n << super.geometry.chunk_shift;
        uint32_t size = kind == PM_CHUNK_SLAB ? pm_class_size(d.class_)
            : kind == PM_CHUNK_BUCKETS        ? PM_BUCKET_SIZE
                                              : 1u << super.geometry.chunk_shift;
        if (d.kind != kind || size == 0 || d.crc.le == 0)
            continue;
        uint64_t off = kind == PM_CHUNK_ROOTS
            ? chunk
            : chunk + below(seed, (1u << super.geometry.chunk_shift) / size) * size;
        if (get64(off + 8).le == 0)
            continue;
        *ret = (struct target){off, kind == PM_CHUNK_ROOTS ? 512 : size, n};
        return;
    }
    fail_msg("the filled pool has no object in a chunk of kind %d", (int)kind);
}

static struct target aim(enum forge what, uint64_t *seed)
{
    struct target t = {super_off, sizeof(struct pm_super_pm), 0};

    switch (what) {
    case FORGE_DYNAMIC:
        t.off += PM_SUPER_DYN_OFF + below(seed, 2) * PM_SUPER_DYN_STRIDE;
        t.size = below(seed, 8) == 0 ? 4096 : sizeof(struct pm_super_dyn_pm);
        break;
    case FORGE_SLOT:
        t.number = (uint32_t)below(seed, super.geometry.slot_count);
        t.off = super.slots_off + t.number * (uint64_t)super.slot_stride +
            below(seed, 2) * PM_SLOT_COPY_STRIDE;
        t.size = below(seed, 4) == 0 ? super.slot_stride - 128 : sizeof(struct pm_slot_pm);
        break;
    case FORGE_RETIRED:
        t.number = (uint32_t)below(seed, 8);
        t.off = super.retired_off + t.number * sizeof(struct pm_retired_pm);
        t.size = sizeof(struct pm_retired_pm);
        break;
    case FORGE_CHUNK:
        do
            t.number = (uint32_t)below(seed, super.chunk_count);
        while (t.number << super.geometry.chunk_shift < super.heap_off && below(seed, 4) != 0);
        t.off = super.chunks_off + t.number * sizeof(struct pm_chunk_pm);
        t.size = sizeof(struct pm_chunk_pm);
        break;
    case FORGE_ROOT: find_object(seed, PM_CHUNK_ROOTS, &t); break;
    case FORGE_BUCKET: find_object(seed, PM_CHUNK_BUCKETS, &t); break;
    case FORGE_ITEM: find_object(seed, PM_CHUNK_SLAB, &t); break;
    case FORGE_RING:
        t.number = (uint32_t)below(seed, super.geometry.slot_count);
        t.off = super.rings_off + t.number * super.ring_stride;
        t.size = (uint32_t)(PM_RING_HEADER_SIZE + super.geometry.ring_size);
        break;
    case FORGE_SUPER:
    case FORGE_COUNT: break;
    }
    return t;
}

/* Values at which counts and offsets go wrong. */
static const uint64_t nasty_values[] = {0, 1, 2, 63, 64, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff,
        UINT64_MAX, UINT64_MAX - 1, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 63,
        UINT64_C(1) << 40, (UINT64_C(1) << 40) - 1, UINT64_MAX - 4096};

static uint64_t nasty(uint64_t *seed)
{
    return nasty_values[below(seed, CN_ARRAY_SIZE(nasty_values))];
}

static void damage(const struct target *t, uint64_t *seed)
{
    uint32_t hits = 1 + (uint32_t)below(seed, 3);

    for (uint32_t i = 0; i < hits; i++) {
        uint64_t at = below(seed, t->size), v = nasty(seed);
        uint8_t *p = filled->file + t->off;
        switch (below(seed, 6)) {
        case 0: p[at] ^= (uint8_t)(1u << below(seed, 8)); break;
        case 1: p[at] = (uint8_t)ts_random(seed); break;
        case 2: memcpy(p + at / 8 * 8, &v, cn_min64(8, t->size - at / 8 * 8)); break;
        case 3: memcpy(p + at / 4 * 4, &v, cn_min64(4, t->size - at / 4 * 4)); break;
        case 4: memcpy(p + at / 2 * 2, &v, cn_min64(2, t->size - at / 2 * 2)); break;
        default: memset(p + at, (int)v, cn_min64(t->size - at, 1 + below(seed, 64))); break;
        }
    }
}

static void mend_plain(uint64_t off, uint32_t size, uint32_t crc_at, uint32_t seed)
{
    static const uint8_t zero[4];
    uint8_t *p = filled->file + off;

    memcpy(p + crc_at, zero, sizeof(zero));
    struct le32 crc = le32_make(cn_crc32c(seed, p, size));
    memcpy(p + crc_at, &crc, sizeof(crc));
}

/* Like someone who knows the format. */
static void mend(enum forge what, const struct target *t)
{
    struct le32 number = le32_make(t->number);
    uint32_t numbered = cn_crc32c(crc_seed, &number, sizeof(number));
    uint8_t *p = filled->file + t->off;
    struct le32 crc;

    switch (what) {
    case FORGE_SUPER: mend_plain(t->off, sizeof(struct pm_super_pm), 12, 0); break;
    case FORGE_DYNAMIC: mend_plain(t->off, sizeof(struct pm_super_dyn_pm), 8, crc_seed); break;
    case FORGE_SLOT: mend_plain(t->off, sizeof(struct pm_slot_pm), 8, numbered); break;
    case FORGE_RETIRED: mend_plain(t->off, sizeof(struct pm_retired_pm), 0, numbered); break;
    case FORGE_CHUNK:
        crc = le32_make(pm_chunk_crc((const void *)p, t->number, crc_seed));
        memcpy(p + offsetof(struct pm_chunk_pm, crc), &crc, sizeof(crc));
        break;
    case FORGE_ROOT:
        crc = le32_make(pm_index_crc((const void *)p, t->off, crc_seed));
        memcpy(p + offsetof(struct pm_index_pm, crc), &crc, sizeof(crc));
        break;
    case FORGE_BUCKET:
        crc = le32_make(pm_object_crc(p, PM_BUCKET_SIZE, t->off, crc_seed));
        memcpy(p + offsetof(struct pm_object_pm, crc), &crc, sizeof(crc));
        break;
    case FORGE_ITEM: {
        struct pm_item_pm item;
        memcpy(&item, p, sizeof(item));
        uint32_t size = pm_item_size(le16_get(item.key_size), le32_get(item.value_size));
        if (size > t->size)
            return;
        crc = le32_make(pm_object_crc(p, size, t->off, crc_seed));
        memcpy(p + offsetof(struct pm_object_pm, crc), &crc, sizeof(crc));
        break;
    }
    case FORGE_RING:
    case FORGE_COUNT: break;
    }
}

/* ---- opening what was damaged ---- */

static void see_slot(void *arg, const struct pm_slot *slot, uint32_t records, uint32_t unmarked)
{
    (void)arg; (void)slot; (void)records; (void)unmarked;
}

static void see_record(void *arg, const struct pm_slot *slot, const struct rec_look_record *record)
{
    (void)arg; (void)slot; (void)record;
}

static void see_retired(void *arg, const struct pm_retired *retired)
{
    (void)arg; (void)retired;
}

static void see_error(void *arg, int error, const char *text)
{
    (void)arg;
    assert_int_not_equal(error, 0);
    assert_int_not_equal(text[0], 0);
}

static void expect_clear(int rc)
{
    if (rc == 0)
        return;
    if (rc < -4095 && cairn_last_error()[0] != 0)
        return;
    if (rc >= -4095 && rc < 0) /* an errno: only those of resources */
        if (rc != -ENOMEM && rc != -EINVAL)
            fail_msg("error %d: %s", rc, cairn_last_error());
}

static void look(void)
{
    const struct rec_look callbacks = {.slot = see_slot, .record = see_record,
        .retired = see_retired, .error = see_error};
    const char *path = filled->config.node[0].pool;
    struct pm_pool *pool;
    struct pm_fsck_report report;
    uint64_t victims;
    int rc = pm_pool_open(path, PM_OPEN_READ_ONLY, 0, &filled->env, &pool);

    expect_clear(rc);
    if (rc == 0) {
        expect_clear(rec_look_at(pool, &callbacks));
        pm_pool_close(&pool);
        expect_clear(ts_filled_fsck(filled, &report, &victims));
    }
    struct rec_report_pool offline = {.path = path};
    const struct rec_offline_options dry = {.env = &filled->env, .dry_run = true};
    (void)!rec_offline(&dry, &path, 1, &offline);
    expect_clear(offline.error);
}

static void recover(void)
{
    const char *path = filled->config.node[0].pool;
    struct rec_report_pool report = {.path = path};
    const struct rec_offline_options options = {.env = &filled->env, .fabric = filled->fabric};

    (void)!rec_offline(&options, &path, 1, &report);
    expect_clear(report.error);
}

static void serve(void)
{
    struct pm_pool *pool;
    struct rec_node *node;
    int rc = ts_filled_open(filled, &pool, &node);

    expect_clear(rc);
    if (rc != 0)
        return;
    for (uint32_t i = 0; i < TURNS; i++)
        (void)rec_node_poll(node);
    rec_node_close(&node);
}

static void open_all(bool offline)
{
    look();
    if (offline)
        recover();
    serve();
    ts_filled_restore(filled);
}

/* Every word of a struct, set to half of the nasty values each, in the copy that holds. */
static void set_each_word(enum forge what, struct target t, uint32_t size)
{
    (void)alarm(HANG_S);
    for (uint32_t at = 0; at < size; at += 8) {
        for (uint32_t i = at / 8 % 2; i < CN_ARRAY_SIZE(nasty_values); i += 2) {
            struct le64 v = le64_make(nasty_values[i]);
            memcpy(filled->file + t.off + at, &v, sizeof(v));
            mend(what, &t);
            if (i % 3 == 0)
                look();
            if (i % 8 == 0)
                recover();
            serve();
            ts_filled_restore(filled);
        }
    }
    (void)alarm(0);
}

/* Of two copies, the one whose generation is higher. */
static uint64_t holding(uint64_t off, uint64_t stride)
{
    return le64_get(get64(off)) > le64_get(get64(off + stride)) ? off : off + stride;
}

static void run(enum forge what, uint32_t rounds, bool check_bytes)
{
    uint64_t seed = SEED + (uint64_t)what;
    uint8_t *before = check_bytes ? malloc(filled->size) : NULL;

    (void)alarm(HANG_S);
    for (uint32_t i = 0; i < rounds; i++) {
        struct target t = aim(what, &seed);
        damage(&t, &seed);
        if (below(&seed, 2) == 0)
            mend(what, &t);
        if (before != NULL)
            memcpy(before, filled->file, filled->size);
        if (before != NULL) {
            look();
            assert_memory_equal(before, filled->file, filled->size);
        }
        open_all(below(&seed, 3) == 0);
    }
    (void)alarm(0);
    free(before);
}

static void superblock__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_SUPER, ROUNDS, false);
}
static void dynamic__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_DYNAMIC, ROUNDS, false);
}
static void slot__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_SLOT, ROUNDS, false);
}
static void slot__each_word__error_or_served(void **state)
{
    struct target t = {.number = 0};
    (void)state;
    for (t.number = 0; t.number <= 1; t.number++) {
        t.off = holding(
            super.slots_off + t.number * (uint64_t)super.slot_stride, PM_SLOT_COPY_STRIDE);
        set_each_word(FORGE_SLOT, t, 96);
    }
}
static void dynamic__each_word__error_or_served(void **state)
{
    struct target t = {.off = holding(super_off + PM_SUPER_DYN_OFF, PM_SUPER_DYN_STRIDE)};
    (void)state;
    set_each_word(FORGE_DYNAMIC, t, 72);
}
static void scrub__each_word__error_or_served(void **state)
{
    struct target t = {.off = super_off + PM_SCRUB_OFF};
    (void)state;
    set_each_word(FORGE_RING, t, 64);
}
static void retired__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_RETIRED, ROUNDS, false);
}
static void chunk__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_CHUNK, ROUNDS, false);
}
static void root__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_ROOT, ROUNDS, false);
}
static void bucket__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_BUCKET, ROUNDS, false);
}
static void item__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_ITEM, ROUNDS, false);
}
static void ring__forged__error_or_served(void **state)
{
    (void)state;
    run(FORGE_RING, ROUNDS, false);
}
static void look__damaged_pool__changes_no_byte(void **state)
{
    (void)state;
    for (uint32_t what = 0; what < FORGE_COUNT; what++)
        run((enum forge)what, 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(superblock__forged__error_or_served),
        cmocka_unit_test(dynamic__forged__error_or_served),
        cmocka_unit_test(slot__forged__error_or_served),
        cmocka_unit_test(slot__each_word__error_or_served),
        cmocka_unit_test(dynamic__each_word__error_or_served),
        cmocka_unit_test(scrub__each_word__error_or_served),
        cmocka_unit_test(retired__forged__error_or_served),
        cmocka_unit_test(chunk__forged__error_or_served),
        cmocka_unit_test(root__forged__error_or_served),
        cmocka_unit_test(bucket__forged__error_or_served),
        cmocka_unit_test(item__forged__error_or_served),
        cmocka_unit_test(ring__forged__error_or_served),
        cmocka_unit_test(look__damaged_pool__changes_no_byte),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
