/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tatp.h: the load `tatp`: rows, keys, and what every subscriber is at the beginning. All of
 * that is a function of the seed and the subscriber, so that the check at the end can compute it
 * again.
 *
 * Keys: s_id, 4 bytes big endian; then a byte with the type (1 to 4) of an access info or special
 * facility; then, of a call forwarding, a byte with its start time (0, 8, 16). The table of
 * subscriber numbers is the secondary index that three transactions need: its key are the 15
 * digits.
 */
#ifndef BN_TATP_H
#define BN_TATP_H

#include "tools/bench/bn_fill.h"

enum bn_tatp_table {
    BN_TATP_SUBSCRIBER,
    BN_TATP_ACCESS_INFO,
    BN_TATP_SPECIAL_FACILITY,
    BN_TATP_CALL_FORWARDING,
    BN_TATP_SUBSCRIBER_NUMBER,
};
enum bn_tatp_kind {
    BN_TATP_GET_SUBSCRIBER_DATA,
    BN_TATP_GET_NEW_DESTINATION,
    BN_TATP_GET_ACCESS_DATA,
    BN_TATP_UPDATE_SUBSCRIBER_DATA,
    BN_TATP_UPDATE_LOCATION,
    BN_TATP_INSERT_CALL_FORWARDING,
    BN_TATP_DELETE_CALL_FORWARDING,
    BN_TATP_KINDS,
};

#define BN_TATP_TYPES 4u  /* of access info, of special facilities */
#define BN_TATP_STARTS 3u /* of call forwardings: 0, 8, 16 */
#define BN_TATP_FORWARDINGS (BN_TATP_TYPES * BN_TATP_STARTS)
#define BN_TATP_DIGITS 15u
#define BN_TATP_KEY_MAX BN_TATP_DIGITS

/* `updates` is ours: how many transactions wrote the row. */
struct bn_tatp_subscriber {
    uint32_t s_id;
    char sub_nbr[BN_TATP_DIGITS];
    uint8_t bit[10], hex[10], byte2[10];
    uint8_t reserved[3];
    uint32_t msc_location, vlr_location;
    uint32_t updates;
};
struct bn_tatp_access_info {
    uint32_t s_id;
    uint8_t ai_type, data1, data2;
    char data3[3], data4[5];
    uint8_t reserved;
};
struct bn_tatp_special_facility {
    uint32_t s_id;
    uint8_t sf_type, is_active, error_cntrl, data_a;
    char data_b[5];
    uint8_t reserved[3];
    uint32_t updates;
};
struct bn_tatp_call_forwarding {
    uint32_t s_id;
    uint8_t sf_type, start_time, end_time;
    char numberx[BN_TATP_DIGITS];
    uint8_t reserved[2];
};
_Static_assert(sizeof(struct bn_tatp_subscriber) == 64, "no hidden padding");
_Static_assert(sizeof(struct bn_tatp_access_info) == 16, "no hidden padding");
_Static_assert(sizeof(struct bn_tatp_special_facility) == 20, "no hidden padding");
_Static_assert(sizeof(struct bn_tatp_call_forwarding) == 24, "no hidden padding");

/* What a subscriber has at the beginning. */
struct bn_tatp_profile {
    uint8_t access_info;         /* bit type - 1 */
    uint8_t facility, is_active; /* bit type - 1 */
    uint16_t forwarding;         /* bit bn_tatp_forwarding() */
    uint8_t end_time[BN_TATP_FORWARDINGS];
    uint64_t random; /* for what else is in the rows */
};
void bn_tatp_profile(uint64_t seed, uint32_t s_id, struct bn_tatp_profile *ret);

static inline uint32_t bn_tatp_forwarding(uint32_t sf_type, uint32_t start_time)
{
    return (sf_type - 1) * BN_TATP_STARTS + start_time / 8;
}

/* Each returns the size of the key. */
uint32_t bn_tatp_subscriber_key(uint32_t s_id, uint8_t ret_key[BN_TATP_KEY_MAX]);
uint32_t bn_tatp_type_key(uint32_t s_id, uint32_t type, uint8_t ret_key[BN_TATP_KEY_MAX]);
uint32_t bn_tatp_forwarding_key(
    uint32_t s_id, uint32_t sf_type, uint32_t start_time, uint8_t ret_key[BN_TATP_KEY_MAX]);
/* The 15 digits of a subscriber's number, which are the key of its table too. */
uint32_t bn_tatp_number_key(uint64_t number, uint8_t ret_key[BN_TATP_DIGITS]);

/* A subscriber as the specification draws one: not uniform, in [1, subscribers]. */
uint32_t bn_tatp_draw_subscriber(uint64_t *random, uint32_t subscribers);
enum bn_tatp_kind bn_tatp_draw_kind(uint64_t *random);

/* Bytes that one subscriber takes on average. */
uint64_t bn_tatp_subscriber_bytes(void);
/* Put all rows of subscriber `index` + 1. */
int bn_tatp_put_subscriber(struct cairn_tx *tx, const struct bn_load *load, uint64_t index);

/* ---- the ledger ---- */
struct bn_tatp {
    struct bn_load base;
    uint32_t subscribers;
};
struct bn_tatp_worker {
    uint32_t *subscriber; /* committed updates, by s_id - 1 */
    uint32_t *facility;   /* by (s_id - 1) * 4 + sf_type - 1 */
    int32_t *forwarding;  /* inserted - deleted, by (s_id - 1) * 12 + bn_tatp_forwarding() */
    uint64_t inserted, deleted;
};
/* As bn_load_ops.check. */
int bn_tatp_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked);

#endif
