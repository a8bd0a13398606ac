/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_hash.c: the keyed hash of a key: SipHash-2-4 by libsodium. On media its 8 bytes count as a
 * little-endian number.
 */
#include <sodium/crypto_shorthash_siphash24.h>

#include "include/internal/cn_base.h"

uint64_t cn_siphash(const uint8_t key[16], const void *data, size_t size)
{
    static const unsigned char nothing;
    struct le64 hash;

    _Static_assert(sizeof(hash) == crypto_shorthash_siphash24_BYTES, "hash size");
    (void)crypto_shorthash_siphash24((unsigned char *)&hash, size > 0 ? data : &nothing, size, key);
    return le64_get(hash);
}
