/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_image.c: bases and arenas (cr_image.h).
 *
 * Invariant: a line of an arena that is not noted as touched is the base's, visible and durable.
 */
#include "tools/crash/explore/cr_image.h"

static uint64_t line_off(uint32_t line)
{
    return (uint64_t)line * CR_LINE;
}

/* Sum of the differences of two lines. */
static uint64_t delta(const struct cr_base *base, uint64_t off, const uint8_t *bytes)
{
    const uint8_t *old = base->memory + off;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < CR_LINE; i += 8) {
        uint64_t a = cr_load(old + i), b = cr_load(bytes + i);
        if (a != b)
            sum += cr_word_hash(base->number, off + i, b) - cr_word_hash(base->number, off + i, a);
    }
    return sum;
}

static bool in_rings(const struct cr_base *base, uint64_t off)
{
    return off >= base->rings_from && off < base->rings_to;
}

void cr_base_init(struct cr_base *base, uint32_t number, uint64_t size)
{
    *base = (struct cr_base){.number = number, .size = size, .memory = sim_calloc(1, size)};
}

void cr_base_fini(struct cr_base *base)
{
    sim_free(base->memory);
    *base = (struct cr_base){0};
}

void cr_base_set_rings(struct cr_base *base, const struct pm_pool *pool)
{
    static const uint8_t zero[CR_LINE];
    uint64_t from = pm_ring_off(pool, 1);
    uint64_t to = pm_ring_off(pool, pool->super.geometry.slot_count);

    if (base->rings_from == from && base->rings_to == to)
        return;
    base->rings_from = from;
    base->rings_to = to;
    base->hash_settled = base->hash;
    for (uint64_t off = from; off < to; off += CR_LINE)
        base->hash_settled += delta(base, off, zero);
}

void cr_base_put_line(struct cr_base *base, uint32_t line, const uint8_t *bytes)
{
    uint64_t off = line_off(line), change = delta(base, off, bytes);

    base->hash += change;
    if (!in_rings(base, off))
        base->hash_settled += change;
    memcpy(base->memory + off, bytes, CR_LINE);
}

void cr_arena_init(struct cr_arena *arena, const struct cr_base *base, bool keeps_all)
{
    uint64_t lines = base->size / CR_LINE;

    *arena = (struct cr_arena){.base = base, .pool = sim_pool_new(NULL, base->size)};
    arena->pool->keeps_all = keeps_all;
    arena->touched = sim_calloc(lines, sizeof(*arena->touched));
    arena->is_touched = sim_calloc(lines, 1);
    memcpy(arena->pool->visible, base->memory, base->size);
    memcpy(arena->pool->persistent, base->memory, base->size);
}

void cr_arena_fini(struct cr_arena *arena)
{
    if (arena->pool != NULL)
        sim_pool_delete(arena->pool);
    sim_free(arena->touched);
    sim_free(arena->is_touched);
    *arena = (struct cr_arena){0};
}

void cr_arena_put_line(struct cr_arena *arena, uint32_t line, const uint8_t *bytes)
{
    cr_arena_touch(arena, line);
    memcpy(arena->pool->visible + line_off(line), bytes, CR_LINE);
    memcpy(arena->pool->persistent + line_off(line), bytes, CR_LINE);
}

void cr_arena_put_word(struct cr_arena *arena, uint64_t off, uint64_t value)
{
    cr_arena_touch(arena, (uint32_t)(off / CR_LINE));
    memcpy(arena->pool->visible + off, &value, sizeof(value));
    memcpy(arena->pool->persistent + off, &value, sizeof(value));
}

void cr_arena_follow(struct cr_arena *arena, uint32_t line)
{
    memcpy(arena->pool->visible + line_off(line), arena->base->memory + line_off(line), CR_LINE);
    memcpy(
        arena->pool->persistent + line_off(line), arena->base->memory + line_off(line), CR_LINE);
}

void cr_arena_restore(struct cr_arena *arena)
{
    sim_pool_forget(arena->pool);
    for (uint32_t i = 0; i < arena->touched_count; i++) {
        cr_arena_follow(arena, arena->touched[i]);
        arena->is_touched[arena->touched[i]] = 0;
    }
    arena->touched_count = 0;
}

uint64_t cr_arena_hash_settled(const struct cr_arena *arena)
{
    uint64_t hash = arena->base->hash_settled;

    for (uint32_t i = 0; i < arena->touched_count; i++) {
        uint64_t off = line_off(arena->touched[i]);
        if (!in_rings(arena->base, off))
            hash += delta(arena->base, off, arena->pool->visible + off);
    }
    return hash;
}

uint64_t cr_arena_line_delta(const struct cr_arena *arena, uint32_t line)
{
    return delta(arena->base, line_off(line), arena->pool->persistent + line_off(line));
}
