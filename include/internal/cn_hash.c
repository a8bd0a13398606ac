/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_hash.c: the keyed hash of a key: SipHash-2-4. On media its 8 bytes count as a little-endian
 * number. By libsodium, but for what is short: every transaction hashes each of its keys twice, and
 * that in place takes half the time.
 */
#include <sodium/crypto_shorthash_siphash24.h>

#include "include/internal/cn_base.h"

#define SHORT_MAX 64u

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void mix(struct state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 = rotate(s->v2, 32);
}

static inline void take(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    mix(s);
    mix(s);
    s->v0 ^= word;
}

static inline uint64_t hash_short(
    uint64_t key0, uint64_t key1, const uint8_t *data, size_t size)
{
    struct state s = {
        .v0 = key0 ^ UINT64_C(0x736f6d6570736575),
        .v1 = key1 ^ UINT64_C(0x646f72616e646f6d),
        .v2 = key0 ^ UINT64_C(0x6c7967656e657261),
        .v3 = key1 ^ UINT64_C(0x7465646279746573),
    };
    struct le64 word;

    for (size_t i = 0; i + sizeof(word) <= size; i += sizeof(word)) {
        memcpy(&word, data + i, sizeof(word));
        take(&s, le64_get(word));
    }
    take(&s, cn_rest64(data, size) | (uint64_t)size << 56);
    s.v2 ^= 0xff;
    mix(&s);
    mix(&s);
    mix(&s);
    mix(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static uint64_t hash_long(const uint8_t key[16], const void *data, size_t size)
{
    struct le64 hash;

    _Static_assert(sizeof(hash) == crypto_shorthash_siphash24_BYTES, "hash size");
    (void)crypto_shorthash_siphash24((unsigned char *)&hash, data, size, key);
    return le64_get(hash);
}

CN_HOT
uint64_t cn_siphash_words(uint64_t key0, uint64_t key1, const void *data, size_t size)
{
    const struct le64 key[2] = {le64_make(key0), le64_make(key1)};

    if (CN_LIKELY(size <= SHORT_MAX))
        return hash_short(key0, key1, data, size);
    return hash_long((const uint8_t *)key, data, size);
}

CN_HOT
uint64_t cn_siphash(const uint8_t key[16], const void *data, size_t size)
{
    struct le64 word[2];

    memcpy(word, key, sizeof(word));
    return cn_siphash_words(le64_get(word[0]), le64_get(word[1]), data, size);
}
