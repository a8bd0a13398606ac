/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tatp_rows.c: see bn_tatp.h: the population of TATP's tables and its random draws, by the
 * specification (version 1.0): each subscriber has one to four kinds of access info and one to four
 * special facilities, of which 85 % are active, each with zero to three call forwardings.
 */
#include "tools/bench/bn_tatp.h"

#define ACTIVE_PERCENT 85u

/* ---- keys ---- */

uint32_t bn_tatp_subscriber_key(uint32_t s_id, uint8_t ret_key[BN_TATP_KEY_MAX])
{
    bn_put_be32(ret_key, s_id);
    return 4;
}

uint32_t bn_tatp_type_key(uint32_t s_id, uint32_t type, uint8_t ret_key[BN_TATP_KEY_MAX])
{
    bn_put_be32(ret_key, s_id);
    ret_key[4] = (uint8_t)type;
    return 5;
}

uint32_t bn_tatp_forwarding_key(
    uint32_t s_id, uint32_t sf_type, uint32_t start_time, uint8_t ret_key[BN_TATP_KEY_MAX])
{
    bn_put_be32(ret_key, s_id);
    ret_key[4] = (uint8_t)sf_type;
    ret_key[5] = (uint8_t)start_time;
    return 6;
}

uint32_t bn_tatp_number_key(uint64_t number, uint8_t ret_key[BN_TATP_DIGITS])
{
    for (uint32_t i = BN_TATP_DIGITS; i > 0; i--) {
        ret_key[i - 1] = (uint8_t)('0' + number % 10);
        number /= 10;
    }
    return BN_TATP_DIGITS;
}

/* ---- draws ---- */

uint32_t bn_tatp_draw_subscriber(uint64_t *random, uint32_t subscribers)
{
    uint32_t a = subscribers <= 1000000 ? 65535 : subscribers <= 10000000 ? 1048575 : 2097151;
    uint64_t x = bn_below(random, (uint64_t)a + 1);

    return (uint32_t)((x | (1 + bn_below(random, subscribers))) % subscribers) + 1;
}

enum bn_tatp_kind bn_tatp_draw_kind(uint64_t *random)
{
    static const uint8_t upto[BN_TATP_KINDS] = {35, 45, 80, 82, 96, 98, 100};
    uint64_t dice = bn_below(random, 100);
    uint32_t kind = 0;

    while (dice >= upto[kind])
        kind++;
    return (enum bn_tatp_kind)kind;
}

/* `count` of four, each as likely as any other. */
static uint8_t draw_types(uint64_t *random)
{
    uint64_t count = 1 + bn_below(random, BN_TATP_TYPES);
    uint8_t set = 0;

    while ((uint64_t)__builtin_popcount(set) < count)
        set = (uint8_t)(set | 1u << bn_below(random, BN_TATP_TYPES));
    return set;
}

static uint16_t draw_starts(uint64_t *random)
{
    uint64_t count = bn_below(random, BN_TATP_STARTS + 1);
    uint16_t set = 0;

    while ((uint64_t)__builtin_popcount(set) < count)
        set = (uint16_t)(set | 1u << bn_below(random, BN_TATP_STARTS));
    return set;
}

void bn_tatp_profile(uint64_t seed, uint32_t s_id, struct bn_tatp_profile *ret)
{
    uint64_t random = cn_mix64(seed ^ (UINT64_C(0x7461747000000000) + s_id));
    struct bn_tatp_profile p = {
        .access_info = draw_types(&random), .facility = draw_types(&random)};

    for (uint32_t type = 0; type < BN_TATP_TYPES; type++) {
        if ((p.facility >> type & 1) == 0)
            continue;
        if (bn_below(&random, 100) < ACTIVE_PERCENT)
            p.is_active = (uint8_t)(p.is_active | 1u << type);
        p.forwarding =
            (uint16_t)(p.forwarding | draw_starts(&random) << (type * BN_TATP_STARTS));
    }
    for (uint32_t i = 0; i < BN_TATP_FORWARDINGS; i++)
        p.end_time[i] = (uint8_t)(i % BN_TATP_STARTS * 8 + 1 + bn_below(&random, 8));
    p.random = random;
    *ret = p;
}

/* ---- rows ---- */

static void draw_letters(uint64_t *random, char *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (char)('A' + bn_below(random, 26));
}

static void draw_numbers(uint64_t *random, uint8_t *to, size_t size, uint64_t below)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)bn_below(random, below);
}

static int put_subscriber_row(
    struct cairn_tx *tx, const struct bn_load *load, uint32_t s_id, uint64_t *random)
{
    struct bn_tatp_subscriber row = {.s_id = s_id};
    uint8_t key[BN_TATP_KEY_MAX], number[BN_TATP_DIGITS];

    (void)bn_tatp_number_key(s_id, number);
    memcpy(row.sub_nbr, number, sizeof(row.sub_nbr));
    draw_numbers(random, row.bit, sizeof(row.bit), 2);
    draw_numbers(random, row.hex, sizeof(row.hex), 16);
    draw_numbers(random, row.byte2, sizeof(row.byte2), 256);
    row.msc_location = (uint32_t)bn_random(random);
    row.vlr_location = (uint32_t)bn_random(random);
    int rc = cairn_put(tx, load->table[BN_TATP_SUBSCRIBER], key,
        bn_tatp_subscriber_key(s_id, key), &row, sizeof(row));
    if (rc == 0)
        rc = cairn_put(tx, load->table[BN_TATP_SUBSCRIBER_NUMBER], number, sizeof(number), &s_id,
            sizeof(s_id));
    return rc;
}

static int put_access_info(struct cairn_tx *tx, const struct bn_load *load, uint32_t s_id,
    uint32_t type, uint64_t *random)
{
    struct bn_tatp_access_info row = {.s_id = s_id, .ai_type = (uint8_t)type};
    uint8_t key[BN_TATP_KEY_MAX];

    row.data1 = (uint8_t)bn_random(random);
    row.data2 = (uint8_t)bn_random(random);
    draw_letters(random, row.data3, sizeof(row.data3));
    draw_letters(random, row.data4, sizeof(row.data4));
    return cairn_put(tx, load->table[BN_TATP_ACCESS_INFO], key, bn_tatp_type_key(s_id, type, key),
        &row, sizeof(row));
}

static int put_facility(struct cairn_tx *tx, const struct bn_load *load, uint32_t s_id,
    uint32_t type, struct bn_tatp_profile *profile)
{
    struct bn_tatp_special_facility row = {.s_id = s_id,
        .sf_type = (uint8_t)type,
        .is_active = profile->is_active >> (type - 1) & 1};
    uint8_t key[BN_TATP_KEY_MAX];

    row.error_cntrl = (uint8_t)bn_random(&profile->random);
    row.data_a = (uint8_t)bn_random(&profile->random);
    draw_letters(&profile->random, row.data_b, sizeof(row.data_b));
    return cairn_put(tx, load->table[BN_TATP_SPECIAL_FACILITY], key,
        bn_tatp_type_key(s_id, type, key), &row, sizeof(row));
}

static int put_forwarding(struct cairn_tx *tx, const struct bn_load *load, uint32_t s_id,
    uint32_t at, struct bn_tatp_profile *profile)
{
    uint32_t type = at / BN_TATP_STARTS + 1, start = at % BN_TATP_STARTS * 8;
    struct bn_tatp_call_forwarding row = {.s_id = s_id,
        .sf_type = (uint8_t)type,
        .start_time = (uint8_t)start,
        .end_time = profile->end_time[at]};
    uint8_t key[BN_TATP_KEY_MAX], number[BN_TATP_DIGITS];

    (void)bn_tatp_number_key(bn_random(&profile->random), number);
    memcpy(row.numberx, number, sizeof(row.numberx));
    return cairn_put(tx, load->table[BN_TATP_CALL_FORWARDING], key,
        bn_tatp_forwarding_key(s_id, type, start, key), &row, sizeof(row));
}

int bn_tatp_put_subscriber(struct cairn_tx *tx, const struct bn_load *load, uint64_t index)
{
    uint32_t s_id = (uint32_t)index + 1;
    struct bn_tatp_profile profile;

    bn_tatp_profile(load->seed, s_id, &profile);
    int rc = put_subscriber_row(tx, load, s_id, &profile.random);
    for (uint32_t type = 1; type <= BN_TATP_TYPES && rc == 0; type++) {
        if ((profile.access_info >> (type - 1) & 1) != 0)
            rc = put_access_info(tx, load, s_id, type, &profile.random);
        if (rc == 0 && (profile.facility >> (type - 1) & 1) != 0)
            rc = put_facility(tx, load, s_id, type, &profile);
    }
    for (uint32_t at = 0; at < BN_TATP_FORWARDINGS && rc == 0; at++) {
        if ((profile.forwarding >> at & 1) != 0)
            rc = put_forwarding(tx, load, s_id, at, &profile);
    }
    return rc;
}

uint64_t bn_tatp_subscriber_bytes(void)
{
    uint64_t twice = 2 * (bn_item_bytes(4, sizeof(struct bn_tatp_subscriber)) +
        bn_item_bytes(BN_TATP_DIGITS, 4));

    /* 2.5 of each kind on average, and 1.5 call forwardings of each special facility. */
    twice += 5 * bn_item_bytes(5, sizeof(struct bn_tatp_access_info));
    twice += 5 * bn_item_bytes(5, sizeof(struct bn_tatp_special_facility));
    twice += 8 * bn_item_bytes(6, sizeof(struct bn_tatp_call_forwarding));
    return twice / 2;
}
