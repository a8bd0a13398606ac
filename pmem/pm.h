/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm.h: the persistence seam. All stores to a pool go through these functions; a store is durable
 * when a pm_flush() of its lines has been followed by a pm_fence() of the same thread. Every fence
 * has a name: a persist point, and the crash point of the harness.
 *
 * In production these are plain 8-byte stores, CLWB and SFENCE, chosen by libpmem. A tracer (the
 * harness) sees each store, flush and fence; pm_fence() and the hooks may not return (a crash).
 * Stores are relaxed 8-byte atomics, for other processes read the same memory meanwhile.
 */
#ifndef PM_H
#define PM_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"

struct pm_tracer {
    void *arg;
    void (*store)(void *arg, uint64_t off, uint64_t size); /* after the store */
    void (*flush)(void *arg, uint64_t off, uint64_t size);
    void (*fence)(void *arg, enum cn_step step);
};

struct pm {
    uint8_t *base; /* address of pool offset 0 */
    uint64_t size;
    void (*flush_lines)(const void *addr, size_t size);
    void (*drain)(void);
    const struct cn_env *env;
    const struct pm_tracer *tracer; /* NULL in production */
    bool read_only;                 /* stores are a programming error */
};

static inline void *pm_at(const struct pm *pm, uint64_t off)
{
    CAIRN_DASSERT(off < pm->size);
    return pm->base + off;
}
static inline uint64_t pm_load64(const struct pm *pm, uint64_t off)
{
    CAIRN_DASSERT(off % 8 == 0 && off + 8 <= pm->size);
    return le64toh(
        __atomic_load_n((const uint64_t *)(const void *)(pm->base + off), __ATOMIC_RELAXED));
}
static inline void pm_store64(const struct pm *pm, uint64_t off, uint64_t value)
{
    CAIRN_DASSERT(off % 8 == 0 && off + 8 <= pm->size && !pm->read_only);
    __atomic_store_n((uint64_t *)(void *)(pm->base + off), htole64(value), __ATOMIC_RELAXED);
    if (CN_UNLIKELY(pm->tracer != NULL))
        pm->tracer->store(pm->tracer->arg, off, 8);
}
/* off and size multiples of 8; source of any alignment. 8-byte units, in ascending order. */
void pm_copy(const struct pm *pm, uint64_t off, const void *source, uint64_t size);
/* pm_copy() and pm_flush() of the same range; much at once may go past the caches. */
void pm_copy_flush(const struct pm *pm, uint64_t off, const void *source, uint64_t size);
void pm_zero(const struct pm *pm, uint64_t off, uint64_t size);
/* Copy out, in 8-byte atomic units; off and size multiples of 8. */
void pm_read(const struct pm *pm, uint64_t off, void *target, uint64_t size);
/* Start write-back of all lines that overlap [off, off+size). */
void pm_flush(const struct pm *pm, uint64_t off, uint64_t size);
/* Wait for this thread's write-backs: the persist point `step`. */
void pm_fence(const struct pm *pm, enum cn_step step);

/* Value of a mark, state or tombstone check (enum pm_word_kind) for an epoch's nonce and a
 * sequence. Never 0: fresh memory must not count as a word. In two steps, for many of one kind. */
static inline uint64_t pm_word_base(uint64_t nonce, unsigned kind)
{
    return cn_mix64(nonce + kind * UINT64_C(0x9e3779b97f4a7c15));
}
static inline uint64_t pm_word_of(uint64_t base, uint64_t seq)
{
    uint64_t value = cn_mix64(base ^ seq);

    return value != 0 ? value : UINT64_C(0x9e3779b97f4a7c15);
}
static inline uint64_t pm_word_value(uint64_t nonce, uint64_t seq, unsigned kind)
{
    return pm_word_of(pm_word_base(nonce, kind), seq);
}

#endif
