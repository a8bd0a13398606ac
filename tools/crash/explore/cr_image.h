/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_image.h: images of pools, built and taken back line by line. A *base* is what was durable in
 * the run when power failed. An *arena* is memory of its own, a modelled pool, that equals the base
 * except in the lines noted as touched; so an image costs as much as it differs, and its recovery
 * as much as it stores.
 *
 * Contents are told apart by a sum over all words of a 64-bit hash of (pool, offset, value): the
 * hash of an image is that of the base plus the differences.
 */
#ifndef CR_IMAGE_H
#define CR_IMAGE_H

#include "pmem/pm_pool.h"
#include "tools/sim/sim_pmem.h"

#define CR_LINE 64u

struct cr_base {
    uint32_t number; /* of the pool */
    uint8_t *memory;
    uint64_t size;
    uint64_t hash;
    /* Without the rings of coordinators: nothing in them matters once no slot is in use. */
    uint64_t hash_settled;
    uint64_t rings_from, rings_to; /* where those are; 0, 0: not known */
    uint64_t super_off;
};

struct cr_arena {
    const struct cr_base *base;
    struct sim_pool *pool;
    uint32_t *touched;
    uint32_t touched_count;
    uint8_t *is_touched;
};

static inline uint64_t cr_word_hash(uint32_t number, uint64_t off, uint64_t value)
{
    return value == 0 ? 0
                      : cn_mix64(value + UINT64_C(0x9e3779b97f4a7c15) *
                                (off + ((uint64_t)number << 40) + 1));
}
static inline uint64_t cr_load(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return v;
}

void cr_base_init(struct cr_base *base, uint32_t number, uint64_t size);
void cr_base_fini(struct cr_base *base);
/* The places of a pool's rings, once they are known. */
void cr_base_set_rings(struct cr_base *base, const struct pm_pool *pool);
/* The base gets this line. */
void cr_base_put_line(struct cr_base *base, uint32_t line, const uint8_t *bytes);

void cr_arena_init(struct cr_arena *arena, const struct cr_base *base, bool keeps_all);
void cr_arena_fini(struct cr_arena *arena);
static inline void cr_arena_touch(struct cr_arena *arena, uint32_t line)
{
    if (arena->is_touched[line] != 0)
        return;
    arena->is_touched[line] = 1;
    arena->touched[arena->touched_count++] = line;
}
/* The line is so, and durable. */
void cr_arena_put_line(struct cr_arena *arena, uint32_t line, const uint8_t *bytes);
void cr_arena_put_word(struct cr_arena *arena, uint64_t off, uint64_t value);
/* All lines are the base's again, nothing is dirty. */
void cr_arena_restore(struct cr_arena *arena);
/* The base has changed at this line. Assumes: restored. */
void cr_arena_follow(struct cr_arena *arena, uint32_t line);
/* Hash of what is visible, without the rings of coordinators. */
uint64_t cr_arena_hash_settled(const struct cr_arena *arena);
/* Of the durable bytes of a line: what they add to the base's hash. 0: they are the base's. */
uint64_t cr_arena_line_delta(const struct cr_arena *arena, uint32_t line);

#endif
