/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_base.h: what every module uses: little-endian integers, assertions, alignment, hashing of
 * words. Header-only except for cn_error.c; depends on nothing of Cairn but the public error list.
 */
#ifndef CN_BASE_H
#define CN_BASE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/cairn/cairn.h"

/* Integers on media and wire: a raw assignment does not compile. */
struct le16 { uint16_t le; };
struct le32 { uint32_t le; };
struct le64 { uint64_t le; };

static inline uint16_t le16_get(struct le16 v) { return le16toh(v.le); }
static inline uint32_t le32_get(struct le32 v) { return le32toh(v.le); }
static inline uint64_t le64_get(struct le64 v) { return le64toh(v.le); }
static inline struct le16 le16_make(uint16_t v) { return (struct le16){htole16(v)}; }
static inline struct le32 le32_make(uint32_t v) { return (struct le32){htole32(v)}; }
static inline struct le64 le64_make(uint64_t v) { return (struct le64){htole64(v)}; }

#define CN_UNUSED __attribute__((unused))
#define CN_NORETURN __attribute__((noreturn))
#define CN_PRINTF(a, b) __attribute__((format(printf, a, b)))
/* On the path of every transaction: such functions lie together. */
#define CN_HOT __attribute__((hot))
/* The opposite: code that calls such a function is laid aside, too. */
#define CN_COLD __attribute__((cold))
#define CN_LIKELY(x) __builtin_expect(!!(x), 1)
#define CN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CN_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define CN_MUST_CHECK CAIRN_MUST_CHECK

CN_NORETURN CN_COLD void cn_panic(const char *file, int line, const char *what);

/* Programming errors only: bytes from media or wire are never asserted. Stays in release. */
#define CAIRN_ASSERT(cond) (CN_LIKELY(cond) ? (void)0 : cn_panic(__FILE__, __LINE__, #cond))
#ifdef NDEBUG
#define CAIRN_DASSERT(cond) ((void)sizeof(!(cond)))
#else
#define CAIRN_DASSERT(cond) CAIRN_ASSERT(cond)
#endif

/*
 * Record the text of an error for the calling thread (cairn_last_error) and return `code`, so that
 * `return cn_fail(CAIRN_E_CONFIG, "%s: no node %u", path, id);` is the way to fail.
 */
int cn_fail(int code, const char *format, ...) CN_PRINTF(2, 3) CN_COLD;
/* The same without a format, for where it happens often: `text` may be the last one. */
int cn_fail_plain(int code, const char *text);
/* The last error's text, cut to `size` bytes with its end. No formats: for outcomes that are no
 * failures, and need to be fast. */
void cn_error_copy(char *ret_text, size_t size);
/* Put text before the last error's text: "node 2: ...". Returns `code`. */
int cn_fail_context(int code, const char *format, ...) CN_PRINTF(2, 3) CN_COLD;

static inline uint64_t cn_align_up(uint64_t v, uint64_t a) { return (v + a - 1) / a * a; }
static inline uint64_t cn_min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t cn_max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* [off, off+len) inside [base, base+size), without overflow. */
static inline bool cn_range_inside(uint64_t off, uint64_t len, uint64_t base, uint64_t size)
{
    return off >= base && len <= size && off - base <= size - len;
}

/* Finaliser of splitmix64: mixes 64 bits; not secret. */
static inline uint64_t cn_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

struct cn_uuid { uint8_t b[16]; };

static inline bool cn_uuid_equal(const struct cn_uuid *a, const struct cn_uuid *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}
static inline bool cn_uuid_is_zero(const struct cn_uuid *a)
{
    static const struct cn_uuid zero;
    return cn_uuid_equal(a, &zero);
}
#define CN_UUID_TEXT_SIZE 37u
void cn_uuid_format(const struct cn_uuid *uuid, char text[CN_UUID_TEXT_SIZE]);
/* 8-4-4-4-12 hex. False if malformed. */
bool cn_uuid_parse(const char *text, struct cn_uuid *ret_uuid);

/* A transaction's identity: the coordinator session and its count. Printed everywhere in one form:
 * 8 hex digits of the session, a dot, the count (cn_txid_format). */
struct cn_txid {
    struct cn_uuid coordinator;
    uint64_t count;
};
static inline bool cn_txid_equal(const struct cn_txid *a, const struct cn_txid *b)
{
    return a->count == b->count && cn_uuid_equal(&a->coordinator, &b->coordinator);
}
#define CN_TXID_TEXT_SIZE 40u
const char *cn_txid_format(const struct cn_txid *txid, char text[CN_TXID_TEXT_SIZE]);

/* crc32c (Castagnoli) as in iSCSI, chained: cn_crc32c(cn_crc32c(0, a), b) == cn_crc32c(0, a ++ b).
 */
uint32_t cn_crc32c(uint32_t crc, const void *data, size_t size);
/* Of two words (as le64), then `data`, in one call: what a place puts in front of what is there. */
uint32_t cn_crc32c_behind(
    uint32_t crc, uint64_t first, uint64_t second, const void *data, size_t size);
/* Of two at once, in the time of one: each step of a crc waits for the one before. */
void cn_crc32c_two(uint32_t crc[2], const void *const data[2], const size_t size[2]);
/* crc64 of ECMA-182 (as in xz), chained as above: independent of crc32c. */
uint64_t cn_crc64(uint64_t crc, const void *data, size_t size);

/* Zero some hundred bytes, a multiple of 8, by plain stores: of a known size the compiler would
 * make a string instruction, whose start costs more than the work, or a call. Up to 256 bytes of a
 * known size without a loop. */
typedef uint64_t cn_pair __attribute__((vector_size(16), aligned(8), may_alias));
static inline void cn_zero(void *at, size_t size)
{
    uint8_t *p = at;
    const cn_pair zero = {0, 0};

    if (__builtin_constant_p(size) && size <= 256) {
#define CN_ZERO_PAIR(n)                                                                            \
    if (size >= 16 * (n) + 16)                                                                     \
        *(cn_pair *)(void *)(p + 16 * (n)) = zero;
#define CN_ZERO_FOUR(n)                                                                            \
    CN_ZERO_PAIR(n) CN_ZERO_PAIR((n) + 1) CN_ZERO_PAIR((n) + 2) CN_ZERO_PAIR((n) + 3)
        CN_ZERO_FOUR(0) CN_ZERO_FOUR(4) CN_ZERO_FOUR(8) CN_ZERO_FOUR(12)
#undef CN_ZERO_FOUR
#undef CN_ZERO_PAIR
        if (size % 16 != 0)
            memset(p + size - sizeof(uint64_t), 0, sizeof(uint64_t));
        return;
    }
    for (; size >= sizeof(zero); size -= sizeof(zero), p += sizeof(zero)) {
        *(cn_pair *)(void *)p = zero;
        __asm__("" : "+r"(p)); /* or the loop would be seen to be a memset */
    }
    if (size > 0)
        memset(p, 0, sizeof(uint64_t));
}

/* memcpy() of a few words: `size` is a multiple of 8. */
static inline void cn_copy_words(void *to, const void *from, size_t size)
{
    uint8_t *p = to;
    const uint8_t *q = from, *end = q + size;
    uint64_t word;

    for (; q != end; p += sizeof(word), q += sizeof(word)) {
        memcpy(&word, q, sizeof(word));
        memcpy(p, &word, sizeof(word));
        __asm__("" : "+r"(p)); /* or the loop would be seen to be a memcpy */
    }
}

/* memcpy() of what is mostly a few words. */
static inline void cn_copy_small(void *to, const void *from, size_t size)
{
    uint8_t *p = to;
    const uint8_t *q = from;
    uint64_t word;

    for (; size >= sizeof(word); size -= sizeof(word), p += sizeof(word), q += sizeof(word)) {
        memcpy(&word, q, sizeof(word));
        memcpy(p, &word, sizeof(word));
        __asm__("" : "+r"(p));
    }
    if ((size & 4) != 0) {
        memcpy(p, q, 4);
        p += 4;
        q += 4;
    }
    if ((size & 2) != 0) {
        memcpy(p, q, 2);
        p += 2;
        q += 2;
    }
    if ((size & 1) != 0)
        *p = *q;
}

/* The last `size % 8` bytes of so many, as a word with zeros above; by loads that overlap. */
static inline uint64_t cn_rest64(const void *at, size_t size)
{
    const uint8_t *first = at, *end = first + size;
    unsigned bits = (unsigned)size % 8 * 8;
    struct le64 word;
    struct le32 low, high;

    if (bits == 0)
        return 0;
    if (size > sizeof(word)) {
        memcpy(&word, end - sizeof(word), sizeof(word));
        return le64_get(word) >> (64 - bits);
    }
    if (size < sizeof(low)) /* one, two or three: the middle is the first or the last, or not */
        return first[0] | (uint64_t)first[size / 2] << (size / 2 * 8) |
            (uint64_t)end[-1] << (bits - 8);
    memcpy(&low, first, sizeof(low));
    memcpy(&high, end - sizeof(high), sizeof(high));
    return le32_get(low) | (uint64_t)le32_get(high) << (bits - 32);
}

/* memcmp() == 0 of what is mostly a few words. */
static inline bool cn_bytes_equal(const void *a, const void *b, size_t size)
{
    const uint8_t *p = a, *q = b;
    uint64_t x, y;

    for (; size >= sizeof(x); size -= sizeof(x), p += sizeof(x), q += sizeof(x)) {
        memcpy(&x, p, sizeof(x));
        memcpy(&y, q, sizeof(y));
        if (x != y)
            return false;
    }
    return cn_rest64(p, size) == cn_rest64(q, size);
}

/* Keyed 64-bit hash of a key (SipHash-2-4). */
uint64_t cn_siphash(const uint8_t key[16], const void *data, size_t size);
/* With the key as two little-endian numbers. */
uint64_t cn_siphash_words(uint64_t key0, uint64_t key1, const void *data, size_t size);

#endif
