/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch_hooks.c: what instrumented code calls, and wrapped functions that read (ld --wrap).
 *
 * Invariant: every byte that the product reads is told before it is read, unless it is of a local
 * variable whose address nobody has. Atomics are done here, for the compiler leaves them to the
 * sanitizer; all as strong as can be.
 */
#include "tools/crash/explore/cr_watch.h"

/* The first byte of one is in the other. */
static inline bool meets(const void *at, size_t size, uintptr_t from, uintptr_t range)
{
    return (uintptr_t)at - from < range || (range != 0 && from - (uintptr_t)at < size);
}

/* Of what begins in the range; nothing reaches into it from before. */
static inline bool is_looked_for(uintptr_t off, size_t size)
{
    uintptr_t last = off + size - 1 < cr_watching.size ? off + size - 1 : cr_watching.size - 1;

    for (uintptr_t line = off / 64; line <= last / 64; line++)
        if (cr_watching.lines[line] != 0)
            return true;
    return false;
}

static inline void note(const void *at, size_t size)
{
    /* The copy may lie between two pools. */
    if (CN_UNLIKELY(((uintptr_t)at - cr_watching.from < cr_watching.size &&
                        is_looked_for((uintptr_t)at - cr_watching.from, size)) ||
            meets(at, size, cr_watching.copy, cr_watching.copy_size)))
        cr_watching.read(cr_watching.arg, at, size);
}

static inline void note_write(const void *at, size_t size)
{
    if (CN_UNLIKELY(meets(at, size, cr_watching.copy, cr_watching.copy_size)))
        cr_watching.write(cr_watching.arg, at, size);
}

/* ---- accesses of compiled code ---- */

#define NAME(name) __tsan_##name
#define READ(name, size)                                                                           \
    void NAME(name)(const void *at);                                                               \
    void NAME(name)(const void *at)                                                                \
    {                                                                                              \
        note(at, size);                                                                            \
    }
#define WRITE(name, size)                                                                          \
    void NAME(name)(const void *at);                                                               \
    void NAME(name)(const void *at)                                                                \
    {                                                                                              \
        note_write(at, size);                                                                      \
    }
#define ACCESS(size)                                                                               \
    READ(read##size, size)                                                                         \
    READ(unaligned_read##size, size)                                                               \
    READ(volatile_read##size, size)                                                                \
    READ(unaligned_volatile_read##size, size)                                                      \
    WRITE(write##size, size)                                                                       \
    WRITE(unaligned_write##size, size)                                                             \
    WRITE(volatile_write##size, size)                                                              \
    WRITE(unaligned_volatile_write##size, size)

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void NAME(init)(void);
void NAME(init)(void)
{
}
void NAME(func_entry)(const void *from);
void NAME(func_entry)(const void *from)
{
    (void)from;
}
void NAME(func_exit)(const void *from);
void NAME(func_exit)(const void *from)
{
    (void)from;
}
void NAME(read_range)(const void *at, unsigned long size);
void NAME(read_range)(const void *at, unsigned long size)
{
    note(at, size);
}
void NAME(write_range)(const void *at, unsigned long size);
void NAME(write_range)(const void *at, unsigned long size)
{
    note_write(at, size);
}

/* ---- atomics ---- */

#define MODIFY(bits, type, name, builtin)                                                          \
    type NAME(atomic##bits##_##name)(type * at, type value, int order);                            \
    type NAME(atomic##bits##_##name)(type * at, type value, int order)                             \
    {                                                                                              \
        (void)order;                                                                               \
        note(at, sizeof(*at));                                                                     \
        note_write(at, sizeof(*at));                                                               \
        return builtin(at, value, __ATOMIC_SEQ_CST);                                               \
    }
#define COMPARE(bits, type, name)                                                                  \
    int NAME(atomic##bits##_##name)(type * at, type * expected, type value, int order, int other); \
    int NAME(atomic##bits##_##name)(type * at, type * expected, type value, int order, int other)  \
    {                                                                                              \
        (void)order;                                                                               \
        (void)other;                                                                               \
        note(at, sizeof(*at));                                                                     \
        note_write(at, sizeof(*at));                                                               \
        return __atomic_compare_exchange_n(                                                        \
            at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
    }
#define ATOMIC(bits, type)                                                                         \
    type NAME(atomic##bits##_load)(const type *at, int order);                                     \
    type NAME(atomic##bits##_load)(const type *at, int order)                                      \
    {                                                                                              \
        (void)order;                                                                               \
        note(at, sizeof(*at));                                                                     \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    void NAME(atomic##bits##_store)(type * at, type value, int order);                             \
    void NAME(atomic##bits##_store)(type * at, type value, int order)                              \
    {                                                                                              \
        (void)order;                                                                               \
        note_write(at, sizeof(*at));                                                               \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    MODIFY(bits, type, exchange, __atomic_exchange_n)                                              \
    MODIFY(bits, type, fetch_add, __atomic_fetch_add)                                              \
    MODIFY(bits, type, fetch_sub, __atomic_fetch_sub)                                              \
    MODIFY(bits, type, fetch_and, __atomic_fetch_and)                                              \
    MODIFY(bits, type, fetch_or, __atomic_fetch_or)                                                \
    MODIFY(bits, type, fetch_xor, __atomic_fetch_xor)                                              \
    COMPARE(bits, type, compare_exchange_strong)                                                   \
    COMPARE(bits, type, compare_exchange_weak)

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void NAME(atomic_thread_fence)(int order);
void NAME(atomic_thread_fence)(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void NAME(atomic_signal_fence)(int order);
void NAME(atomic_signal_fence)(int order)
{
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* ---- functions that read ---- */

void *__real_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size)
{
    note(from, size);
    note_write(to, size);
    return __real_memcpy(to, from, size);
}

void cr_watch_copy(void *to, const void *from, size_t size)
{
    (void)__wrap_memcpy(to, from, size);
}

void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size)
{
    note(from, size);
    note_write(to, size);
    return __real_memmove(to, from, size);
}

void *__real_memset(void *to, int byte, size_t size);
void *__wrap_memset(void *to, int byte, size_t size);
void *__wrap_memset(void *to, int byte, size_t size)
{
    note_write(to, size);
    return __real_memset(to, byte, size);
}

int __real_memcmp(const void *a, const void *b, size_t size);
int __wrap_memcmp(const void *a, const void *b, size_t size);
int __wrap_memcmp(const void *a, const void *b, size_t size)
{
    note(a, size);
    note(b, size);
    return __real_memcmp(a, b, size);
}

uint32_t __real_cn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t __wrap_cn_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t __wrap_cn_crc32c(uint32_t crc, const void *data, size_t size)
{
    note(data, size);
    return __real_cn_crc32c(crc, data, size);
}

uint32_t __real_cn_crc32c_behind(
    uint32_t crc, uint64_t first, uint64_t second, const void *data, size_t size);
uint32_t __wrap_cn_crc32c_behind(
    uint32_t crc, uint64_t first, uint64_t second, const void *data, size_t size);
uint32_t __wrap_cn_crc32c_behind(
    uint32_t crc, uint64_t first, uint64_t second, const void *data, size_t size)
{
    note(data, size);
    return __real_cn_crc32c_behind(crc, first, second, data, size);
}

uint64_t __real_cn_crc64(uint64_t crc, const void *data, size_t size);
uint64_t __wrap_cn_crc64(uint64_t crc, const void *data, size_t size);
uint64_t __wrap_cn_crc64(uint64_t crc, const void *data, size_t size)
{
    note(data, size);
    return __real_cn_crc64(crc, data, size);
}

uint64_t __real_cn_siphash(const uint8_t key[16], const void *data, size_t size);
uint64_t __wrap_cn_siphash(const uint8_t key[16], const void *data, size_t size);
uint64_t __wrap_cn_siphash(const uint8_t key[16], const void *data, size_t size)
{
    note(data, size);
    return __real_cn_siphash(key, data, size);
}
