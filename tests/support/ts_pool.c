/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_pool.c: a pool in memory with a durable shadow (see ts_pool.h).
 *
 * Invariant: a line that is on neither list is the same in `visible` and `shadow`.
 */
#include "tests/support/ts_pool.h"

#define LINE_DIRTY 1u
#define LINE_FLUSHED 2u

const struct pm_geometry ts_geometry_small = {
    .chunk_shift = 12,
    .slot_count = 4,
    .window = 8,
    .ring_size = 8192,
    .retired_max = 32,
    .root_map_max = 256,
    .bucket_slots = 4,
    .fingerprint_bits = 16,
    .depth0 = PM_GEOMETRY_DEPTH0_ZERO,
};

/* ---- tracer ---- */

static void count_event(struct ts_pool *t)
{
    t->events++;
    if (t->may_crash && t->events == t->crash_at)
        longjmp(t->crash_point, 1);
}

static void note_dirty(struct ts_pool *t, uint64_t line)
{
    if ((t->line_flags[line] & LINE_DIRTY) != 0)
        return;
    t->line_flags[line] |= LINE_DIRTY;
    t->dirty[t->dirty_count++] = (uint32_t)line;
}

static void trace_store(void *arg, uint64_t off, uint64_t size)
{
    struct ts_pool *t = arg;

    for (uint64_t line = off / PM_LINE; line <= (off + size - 1) / PM_LINE; line++)
        note_dirty(t, line);
    count_event(t);
}

static void trace_flush(void *arg, uint64_t off, uint64_t size)
{
    struct ts_pool *t = arg;

    for (uint64_t line = off / PM_LINE; line <= (off + size - 1) / PM_LINE; line++) {
        if ((t->line_flags[line] & LINE_DIRTY) == 0)
            continue;
        memcpy(t->writing + line * PM_LINE, t->visible + line * PM_LINE, PM_LINE);
        if ((t->line_flags[line] & LINE_FLUSHED) != 0)
            continue;
        t->line_flags[line] |= LINE_FLUSHED;
        t->flushed[t->flushed_count++] = (uint32_t)line;
    }
    count_event(t);
}

static void drop_clean_lines(struct ts_pool *t)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < t->dirty_count; i++) {
        uint64_t at = (uint64_t)t->dirty[i] * PM_LINE;

        if (memcmp(t->visible + at, t->shadow + at, PM_LINE) != 0)
            t->dirty[kept++] = t->dirty[i];
        else
            t->line_flags[t->dirty[i]] = 0;
    }
    t->dirty_count = kept;
}

static void trace_fence(void *arg, enum cn_step step)
{
    struct ts_pool *t = arg;

    CAIRN_ASSERT((unsigned)step < CN_STEP_COUNT);
    for (uint32_t i = 0; i < t->flushed_count; i++) {
        uint64_t at = (uint64_t)t->flushed[i] * PM_LINE;

        memcpy(t->shadow + at, t->writing + at, PM_LINE);
        t->line_flags[t->flushed[i]] &= (uint8_t)~LINE_FLUSHED;
    }
    t->flushed_count = 0;
    drop_clean_lines(t);
    t->step_count[step]++;
    count_event(t);
}

static void flush_nothing(const void *addr CN_UNUSED, size_t size CN_UNUSED)
{
}

static void drain_nothing(void)
{
}

/* ---- environment ---- */

static uint64_t env_now_ns(void *arg)
{
    return ((struct ts_pool *)arg)->now_ns += 1000;
}

static uint64_t env_wall_s(void *arg)
{
    return ((struct ts_pool *)arg)->wall_s;
}

static void env_random(void *arg, void *buf, size_t size)
{
    uint8_t *at = buf;

    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)ts_random(&((struct ts_pool *)arg)->seed);
}

/* ---- life ---- */

static void *need(void *memory)
{
    CAIRN_ASSERT(memory != NULL);
    return memory;
}

static uint64_t default_size(const struct pm_geometry *geometry)
{
    struct pm_geometry g = *geometry;
    uint64_t per_slot, chunk;

    CAIRN_ASSERT(pm_geometry_complete(&g) == 0);
    chunk = UINT64_C(1) << g.chunk_shift;
    per_slot = g.ring_size + 8192 + g.window * 40ull + 512; /* more than enough */
    return g.slot_count * per_slot + g.retired_max * 64ull + 5 * 4096 + 68 * chunk;
}

struct ts_pool *ts_pool_new_blank(const struct pm_geometry *geometry, uint64_t size)
{
    struct ts_pool *t = need(calloc(1, sizeof(*t)));
    struct pm_geometry g = geometry != NULL ? *geometry : ts_geometry_small;
    uint64_t lines;

    if (size == 0)
        size = default_size(&g);
    CAIRN_ASSERT(pm_geometry_complete(&g) == 0);
    t->extent_off = UINT64_C(1) << g.chunk_shift;
    t->size = cn_align_up(size, t->extent_off);
    lines = t->size / PM_LINE;
    t->visible = need(aligned_alloc(4096, t->size));
    memset(t->visible, 0, t->size);
    t->shadow = need(calloc(1, t->size));
    t->writing = need(calloc(1, t->size));
    t->line_flags = need(calloc(1, lines));
    t->dirty = need(calloc(lines, sizeof(*t->dirty)));
    t->flushed = need(calloc(lines, sizeof(*t->flushed)));
    t->seed = 1;
    t->wall_s = 1000000;
    t->env = (struct cn_env){
        .arg = t, .now_ns = env_now_ns, .wall_s = env_wall_s, .random = env_random};
    t->tracer = (struct pm_tracer){
        .arg = t, .store = trace_store, .flush = trace_flush, .fence = trace_fence};
    t->pm = (struct pm){
        .base = t->visible,
        .size = t->size,
        .flush_lines = flush_nothing,
        .drain = drain_nothing,
        .env = &t->env,
        .tracer = &t->tracer,
    };
    return t;
}

int ts_pool_format(struct ts_pool *t, const struct pm_geometry *geometry)
{
    const struct pm_extent_pm extent = {
        .off = le64_make(t->extent_off), .size = le64_make(t->size - t->extent_off)};
    struct cn_uuid cluster = {{0xc1, 0x05, 0x7e}};

    return pm_format(
        &t->pm, &extent, 1, geometry != NULL ? geometry : &ts_geometry_small, &cluster, 1);
}

struct ts_pool *ts_pool_new(const struct pm_geometry *geometry, uint64_t size)
{
    struct ts_pool *t = ts_pool_new_blank(geometry, size);
    int rc = ts_pool_format(t, geometry);

    if (rc == 0)
        rc = pm_attach(&t->pool, &t->pm, t->extent_off);
    if (rc != 0)
        fprintf(stderr, "ts_pool_new: %s\n", cairn_last_error());
    CAIRN_ASSERT(rc == 0);
    return t;
}

void ts_pool_delete(struct ts_pool **tp)
{
    struct ts_pool *t = *tp;

    *tp = NULL;
    if (t == NULL)
        return;
    free(t->visible);
    free(t->shadow);
    free(t->writing);
    free(t->line_flags);
    free(t->dirty);
    free(t->flushed);
    free(t);
}

/* ---- crashes ---- */

bool ts_pool_run(
    struct ts_pool *t, uint64_t crash_at, void (*fn)(struct ts_pool *t, void *arg), void *arg)
{
    t->events = 0;
    t->crash_at = crash_at;
    t->may_crash = crash_at != 0;
    if (setjmp(t->crash_point) != 0) {
        t->may_crash = false;
        return true;
    }
    fn(t, arg);
    t->may_crash = false;
    return false;
}

static void forget_lists(struct ts_pool *t)
{
    for (uint32_t i = 0; i < t->dirty_count; i++)
        t->line_flags[t->dirty[i]] = 0;
    for (uint32_t i = 0; i < t->flushed_count; i++)
        t->line_flags[t->flushed[i]] = 0;
    t->dirty_count = 0;
    t->flushed_count = 0;
}

/* A dirty line as a whole, or each word of it: durable, as flushed, or newest. */
static void lose_at_random(struct ts_pool *t, uint32_t line, uint64_t *seed)
{
    bool by_word = ts_random(seed) % 2 == 0;
    uint64_t choice = ts_random(seed) % 4;

    for (uint64_t at = line * (uint64_t)PM_LINE; at < (line + 1ull) * PM_LINE; at += 8) {
        const uint8_t *from = t->visible;

        if (by_word)
            choice = ts_random(seed) % 4;
        if (choice < 2)
            from = t->shadow;
        else if (choice == 2 && (t->line_flags[line] & LINE_FLUSHED) != 0)
            from = t->writing;
        memmove(t->visible + at, from + at, 8);
    }
}

int ts_pool_crash(struct ts_pool *t, uint64_t seed, enum ts_crash mode)
{
    for (uint32_t i = 0; i < t->dirty_count; i++) {
        uint64_t at = (uint64_t)t->dirty[i] * PM_LINE;

        if (mode == TS_CRASH_ALL_LOST)
            memcpy(t->visible + at, t->shadow + at, PM_LINE);
        else if (mode == TS_CRASH_RANDOM)
            lose_at_random(t, t->dirty[i], &seed);
        if (mode != TS_CRASH_PROCESS)
            memcpy(t->shadow + at, t->visible + at, PM_LINE);
    }
    if (mode == TS_CRASH_PROCESS) {
        for (uint32_t i = 0; i < t->flushed_count; i++) /* the fence never came */
            t->line_flags[t->flushed[i]] &= (uint8_t)~LINE_FLUSHED;
        t->flushed_count = 0;
    } else {
        forget_lists(t);
    }
    return pm_attach(&t->pool, &t->pm, t->extent_off);
}

bool ts_pool_is_durable(const struct ts_pool *t, uint64_t off, uint64_t size)
{
    CAIRN_ASSERT(cn_range_inside(off, size, 0, t->size));
    return memcmp(t->visible + off, t->shadow + off, size) == 0;
}

void ts_pool_settle(struct ts_pool *t)
{
    memcpy(t->shadow, t->visible, t->size);
    forget_lists(t);
}

/* ---- images ---- */

struct ts_image {
    struct ts_pool state; /* its pointers are not used */
    uint8_t *memory;      /* visible, shadow, writing, line_flags, dirty, flushed */
};

static void copy_parts(const struct ts_pool *t, uint8_t *memory, bool save)
{
    uint64_t lines = t->size / PM_LINE;
    struct { void *part; uint64_t size; } parts[] = {
        {t->visible, t->size}, {t->shadow, t->size}, {t->writing, t->size}, {t->line_flags, lines},
        {t->dirty, lines * sizeof(*t->dirty)}, {t->flushed, lines * sizeof(*t->flushed)}};

    for (size_t i = 0; i < CN_ARRAY_SIZE(parts); i++) {
        if (save)
            memcpy(memory, parts[i].part, parts[i].size);
        else
            memcpy(parts[i].part, memory, parts[i].size);
        memory += parts[i].size;
    }
}

struct ts_image *ts_pool_save(const struct ts_pool *t)
{
    struct ts_image *image = need(calloc(1, sizeof(*image)));

    image->state = *t;
    image->memory = need(malloc(3 * t->size + 9 * (t->size / PM_LINE)));
    copy_parts(t, image->memory, true);
    return image;
}

void ts_pool_restore(struct ts_pool *t, const struct ts_image *image)
{
    CAIRN_ASSERT(image->state.size == t->size && image->state.visible == t->visible);
    *t = image->state;
    copy_parts(t, image->memory, false);
}

void ts_image_delete(struct ts_image **image)
{
    if (*image != NULL)
        free((*image)->memory);
    free(*image);
    *image = NULL;
}
