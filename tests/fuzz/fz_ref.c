/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_ref.c: see fz_ref.h. */
#include "tests/fuzz/fz_ref.h"

#define TX 1u
#define VOID 2u
#define PAD 3u
#define GROWTH 4u

static uint64_t le(const uint8_t *p, unsigned size)
{
    uint64_t v = 0;

    for (unsigned i = size; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Castagnoli, reflected; a table of the bytes' remainders, made by the definition. */
uint32_t ref_crc32c(uint32_t crc, const uint8_t *data, size_t size)
{
    static uint32_t table[256];

    for (uint32_t n = 0; table[255] == 0 && n < 256; n++) {
        uint32_t v = n;

        for (unsigned bit = 0; bit < 8; bit++)
            v = (v & 1) != 0 ? v >> 1 ^ UINT32_C(0x82f63b78) : v >> 1;
        table[n] = v;
    }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ data[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

/* ECMA-182, reflected. */
uint64_t ref_crc64(uint64_t crc, const uint8_t *data, size_t size)
{
    static uint64_t table[256];

    for (uint32_t n = 0; table[255] == 0 && n < 256; n++) {
        uint64_t v = n;

        for (unsigned bit = 0; bit < 8; bit++)
            v = (v & 1) != 0 ? v >> 1 ^ UINT64_C(0xc96c5795d7870f42) : v >> 1;
        table[n] = v;
    }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ data[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t ref_word(uint64_t nonce, uint64_t seq, uint64_t kind)
{
    uint64_t word = mix(mix(nonce + kind * UINT64_C(0x9e3779b97f4a7c15)) ^ seq);

    return word != 0 ? word : UINT64_C(0x9e3779b97f4a7c15);
}

static bool zero(const uint8_t *p, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if (p[i] != 0)
            return false;
    }
    return true;
}

static uint64_t up8(uint64_t v) { return (v + 7) / 8 * 8; }
static uint64_t up64(uint64_t v) { return (v + 63) / 64 * 64; }

/* Seeded with its place; the whole record but for the crc (8..11) and the mark (24..31). */
static bool crc_fits(const uint8_t *r, uint64_t size, const struct ref_place *place)
{
    uint8_t seed[48];
    uint32_t crc;

    for (unsigned i = 0; i < 16; i++)
        seed[i] = place->pool[i];
    put64(seed + 16, place->slot);
    put64(seed + 24, place->epoch);
    put64(seed + 32, place->nonce);
    put64(seed + 40, place->log_off);
    crc = ref_crc32c(0, seed, sizeof(seed));
    for (uint64_t i = 0; i < size; i++) {
        bool left_out = (i >= 8 && i < 12) || (i >= 24 && i < 32);

        if (!left_out)
            crc = ref_crc32c(crc, r + i, 1);
    }
    return crc == le(r + 8, 4);
}

static bool seal_fits(const uint8_t *r, uint64_t size, const struct ref_place *place)
{
    uint64_t seal = ref_word(place->nonce, le(r + 16, 8), 4);

    for (uint64_t i = 0; i < size; i++) {
        if (i < 24 || i >= 32)
            seal = ref_crc64(seal, r + i, 1);
    }
    return (seal != 0 ? seal : 1) == le(r + 24, 8);
}

/* 24 bytes each: node, shard, slot, role, reserved, epoch, seq. */
static bool participants_fit(const uint8_t *p, uint64_t count, const struct ref_place *place,
    uint64_t seq, bool must_be_there)
{
    bool here = false;

    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *a = p + 24 * i;

        if (a[7] != 0)
            return false;
        if (le(a, 2) == place->node) {
            here = true;
            if (le(a + 4, 2) != place->slot || le(a + 8, 8) != place->epoch ||
                le(a + 16, 8) != seq)
                return false;
        }
        for (uint64_t k = i + 1; k < count; k++) {
            const uint8_t *b = p + 24 * k;
            bool same_place = le(a + 4, 2) == le(b + 4, 2) && le(a + 8, 8) == le(b + 8, 8) &&
                le(a + 16, 8) == le(b + 16, 8);

            if (le(a, 2) == le(b, 2) && (le(a + 2, 2) == le(b + 2, 2) || !same_place))
                return false;
        }
    }
    return here || !must_be_there;
}

/* 16 bytes each, locks and blocks one behind the other. */
static bool all_differ(const uint8_t *lists, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t k = i + 1; k < count; k++) {
            if (le(lists + 16 * i, 8) == le(lists + 16 * k, 8))
                return false;
        }
    }
    return true;
}

/* 56 bytes, then key and value, each zero-padded to 8. */
static bool write_fits(const uint8_t *r, uint64_t *at, uint64_t size, uint8_t type)
{
    const uint8_t *w = r + *at;
    uint64_t key, value;

    if (size - *at < 56)
        return false;
    key = le(w + 2, 2);
    value = le(w + 4, 4);
    if (type == TX ? w[0] < 1 || w[0] > 4 : type != GROWTH || w[0] < 5 || w[0] > 7)
        return false;
    if (le(w + 12, 4) != 0 || key > 255 || value > 65536 || (type == TX && key == 0))
        return false;
    if (56 + up8(key) + up8(value) > size - *at)
        return false;
    if (!zero(w, 56 + key, 56 + up8(key)) ||
        !zero(w, 56 + up8(key) + value, 56 + up8(key) + up8(value)))
        return false;
    *at += 56 + up8(key) + up8(value);
    return true;
}

static bool contents_fit(const uint8_t *r, uint64_t size, const struct ref_place *place)
{
    uint8_t type = r[12];
    uint64_t seq = le(r + 16, 8), done = le(r + 72, 8), at;
    uint64_t participants = le(r + 64, 2), locks = le(r + 66, 2), blocks = le(r + 68, 2),
             writes = le(r + 70, 2);

    if (seq == 0 || (type == GROWTH) != (place->slot == 0))
        return false;
    if (type == TX ? done >= seq : done != 0)
        return false;
    if (type == VOID && (participants + locks + blocks + writes != 0 || size != 128))
        return false;
    if (participants > 256 || locks > 1024 || blocks > 512 || writes > 512)
        return false;
    at = 80 + 24 * participants + 16 * (locks + blocks);
    if (at > size)
        return false;
    for (uint64_t i = 0; i < writes; i++) {
        if (!write_fits(r, &at, size, type))
            return false;
    }
    if (up64(at) != size || !zero(r, at, size))
        return false;
    return participants_fit(r + 80, participants, place, seq, type == TX) &&
        all_differ(r + 80 + 24 * participants, locks + blocks);
}

bool ref_record_at(
    const uint8_t *bytes, uint64_t room, const struct ref_place *place, struct ref_record *ret)
{
    uint64_t size;
    uint8_t type;

    if (room < 64)
        return false;
    size = le(bytes + 4, 4);
    type = bytes[12];
    if (le(bytes, 4) != UINT32_C(0x44455243) || type < TX || type > GROWTH)
        return false;
    if (size == 0 || size % 64 != 0 || size > room || size > UINT32_C(1) << 20)
        return false;
    if (type != PAD && size < 128)
        return false;
    if (!zero(bytes, 13, 16) || !crc_fits(bytes, type == PAD ? 64 : size, place))
        return false;
    if (type == PAD) {
        if (!zero(bytes, 16, 24) || !zero(bytes, 32, 64))
            return false;
    } else if (!contents_fit(bytes, size, place) ||
        (type == TX && le(bytes + 64, 2) == 1 && !seal_fits(bytes, size, place))) {
        return false;
    }
    *ret = (struct ref_record){.log_off = place->log_off,
        .seq = type == PAD ? 0 : le(bytes + 16, 8), .size = (uint32_t)size, .type = type};
    return true;
}

static bool reported(const struct ref_record *list, uint32_t count, uint64_t seq)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].seq == seq)
            return true;
    }
    return false;
}

uint32_t ref_scan(
    const struct ref_slot *slot, const uint8_t *ring, struct ref_record *ret, uint32_t max)
{
    uint32_t count = 0;
    uint64_t covered = 0; /* bytes from the position on */

    for (uint64_t from = 0; from < slot->ring_size; from += 64) {
        struct ref_place place = slot->place;
        struct ref_record r;
        uint64_t in_ring, to_ring_end, to_window_end = slot->ring_size - from;

        if (from < covered)
            continue;
        place.log_off = slot->position_off + from;
        in_ring = place.log_off % slot->ring_size;
        to_ring_end = slot->ring_size - in_ring;
        if (to_window_end > to_ring_end)
            to_window_end = to_ring_end;
        if (!ref_record_at(ring + in_ring, to_window_end, &place, &r))
            continue;
        if (r.type == PAD && r.size != to_ring_end)
            continue;
        covered = from + r.size;
        if (r.type == PAD || r.seq <= slot->position_seq ||
            r.seq - slot->position_seq > slot->window ||
            (slot->closed && r.seq > slot->closing_seq) ||
            reported(ret, count < max ? count : max, r.seq))
            continue;
        if (count < max)
            ret[count] = r;
        count++;
    }
    return count;
}
