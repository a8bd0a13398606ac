/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm.c: the persistence seam: copies in 8-byte atomic units, write-back, fences.
 *
 * A tracer is told of every single unit, so that a crash between any two of them can be tried.
 */
#include "pmem/pm.h"

static void check_range(const struct pm *pm, uint64_t off, uint64_t size)
{
    CAIRN_DASSERT(off % 8 == 0 && size % 8 == 0);
    CAIRN_ASSERT(cn_range_inside(off, size, 0, pm->size));
}

static inline void store_raw(const struct pm *pm, uint64_t off, uint64_t raw)
{
    __atomic_store_n((uint64_t *)(void *)(pm->base + off), raw, __ATOMIC_RELAXED);
    if (CN_UNLIKELY(pm->tracer != NULL))
        pm->tracer->store(pm->tracer->arg, off, 8);
}

void pm_copy(const struct pm *pm, uint64_t off, const void *source, uint64_t size)
{
    const uint8_t *from = source;

    check_range(pm, off, size);
    CAIRN_ASSERT(!pm->read_only);
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t raw;

        memcpy(&raw, from + i, sizeof(raw));
        store_raw(pm, off + i, raw);
    }
}

void pm_zero(const struct pm *pm, uint64_t off, uint64_t size)
{
    check_range(pm, off, size);
    CAIRN_ASSERT(!pm->read_only);
    for (uint64_t i = 0; i < size; i += 8)
        store_raw(pm, off + i, 0);
}

void pm_read(const struct pm *pm, uint64_t off, void *target, uint64_t size)
{
    uint8_t *to = target;

    check_range(pm, off, size);
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t raw =
            __atomic_load_n((const uint64_t *)(const void *)(pm->base + off + i), __ATOMIC_RELAXED);

        memcpy(to + i, &raw, sizeof(raw));
    }
}

void pm_flush(const struct pm *pm, uint64_t off, uint64_t size)
{
    if (size == 0)
        return;
    CAIRN_ASSERT(cn_range_inside(off, size, 0, pm->size));
    pm->flush_lines(pm->base + off, size);
    if (CN_UNLIKELY(pm->tracer != NULL))
        pm->tracer->flush(pm->tracer->arg, off, size);
}

void pm_fence(const struct pm *pm, enum cn_step step)
{
    pm->drain();
    if (CN_UNLIKELY(pm->tracer != NULL))
        pm->tracer->fence(pm->tracer->arg, step);
    cn_step(pm->env, step);
}

uint64_t pm_word_value(uint64_t nonce, uint64_t seq, unsigned kind)
{
    /* Never 0: fresh memory must not count as a word. */
    uint64_t value = cn_mix64(cn_mix64(nonce + kind * UINT64_C(0x9e3779b97f4a7c15)) ^ seq);

    return value != 0 ? value : UINT64_C(0x9e3779b97f4a7c15);
}
