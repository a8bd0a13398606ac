/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm.c: the persistence seam: copies in 8-byte atomic units, write-back, fences.
 *
 * A tracer is told of every single unit, so that a crash between any two of them can be tried.
 */
#include "pmem/pm.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define PM_PAGE 4096u
#define PM_STREAM_LINE 64u
#define PM_STREAM_MIN 4096u /* less is read again soon, by whoever asked for it */

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

#if defined(__x86_64__)
/* A page that is written to first is mapped alone; one that is read first comes with those around
 * it. */
static void touch_pages(const uint8_t *at, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += PM_PAGE)
        (void)*(const volatile uint8_t *)(at + i);
}

/* Whole lines past the caches, in aligned units of 16 bytes, which are not seen by halves of a
 * word. The next fence waits for them as for a flush. */
static void stream_lines(uint8_t *to, const uint8_t *from, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += sizeof(__m128i)) {
        __m128i part = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm_stream_si128((__m128i *)(void *)(to + i), part);
    }
}
#endif

void pm_copy_flush(const struct pm *pm, uint64_t off, const void *source, uint64_t size)
{
    const uint8_t *from = source;
    uint64_t head, lines;

    head = cn_min64(-(uint64_t)(uintptr_t)(pm->base + off) % PM_STREAM_LINE, size);
    lines = (size - head) / PM_STREAM_LINE * PM_STREAM_LINE;
#if defined(__x86_64__)
    if (lines >= PM_STREAM_MIN && pm->tracer == NULL) {
        check_range(pm, off, size);
        CAIRN_ASSERT(!pm->read_only);
        touch_pages(pm->base + off, size);
        pm_copy(pm, off, from, head);
        stream_lines(pm->base + off + head, from + head, lines);
        pm_copy(pm, off + head + lines, from + head + lines, size - head - lines);
        pm_flush(pm, off, head);
        pm_flush(pm, off + head + lines, size - head - lines);
        return;
    }
#endif
    pm_copy(pm, off, from, size);
    pm_flush(pm, off, size);
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
