/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_tatp_check.c: what must hold when TATP has run: each subscriber and special facility has been
 * updated as often as transactions committed that update it, and just those call forwardings are
 * there that the population or a committed insertion made and no committed deletion took away.
 */
#include <inttypes.h>

#include "tools/bench/bn_tatp.h"

struct look {
    const struct bn_tatp *tatp;
    uint64_t forwardings;        /* rows found */
    uint64_t loaded;             /* by the population */
    struct bn_tatp_profile last; /* of ... */
    uint32_t last_s_id;
};

static const struct bn_tatp_worker *worker_of(const struct look *look, uint32_t at)
{
    return look->tatp->base.worker[at];
}

/* Scans ascend, so that a subscriber's profile is computed once. */
static const struct bn_tatp_profile *profile_of(struct look *look, uint32_t s_id)
{
    if (look->last_s_id != s_id) {
        bn_tatp_profile(look->tatp->base.seed, s_id, &look->last);
        look->last_s_id = s_id;
    }
    return &look->last;
}

static void subscriber_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    (void)bn_tatp_subscriber_key((uint32_t)index + 1, ret_key);
}

static int take_subscriber(void *arg, uint64_t index, const void *value, size_t size)
{
    struct look *look = arg;
    struct bn_tatp_subscriber row;
    uint64_t due = 0;

    if (value == NULL || size != sizeof(row))
        return cn_fail(CAIRN_E_STATE, "subscriber %" PRIu64 " is gone, or is none of ours",
            index + 1);
    memcpy(&row, value, sizeof(row));
    for (uint32_t i = 0; i < look->tatp->base.threads; i++)
        due += worker_of(look, i)->subscriber[index];
    if (row.s_id != index + 1 || row.updates != due)
        return cn_fail(CAIRN_E_STATE,
            "subscriber %" PRIu64 " (s_id %u) has %u updates, but %" PRIu64 " have committed",
            index + 1, row.s_id, row.updates, due);
    return 0;
}

static void facility_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    (void)arg;
    (void)bn_tatp_type_key(
        (uint32_t)(index / BN_TATP_TYPES) + 1, (uint32_t)(index % BN_TATP_TYPES) + 1, ret_key);
}

static int take_facility(void *arg, uint64_t index, const void *value, size_t size)
{
    struct look *look = arg;
    uint32_t s_id = (uint32_t)(index / BN_TATP_TYPES) + 1, type = index % BN_TATP_TYPES;
    bool there = (profile_of(look, s_id)->facility >> type & 1) != 0;
    struct bn_tatp_special_facility row = {.updates = 0};
    uint64_t due = 0;

    if ((value != NULL) != there || (there && size != sizeof(row)))
        return cn_fail(CAIRN_E_STATE, "special facility %u of subscriber %u is%s there", type + 1,
            s_id, value != NULL ? ", or is none of ours," : " not");
    if (there)
        memcpy(&row, value, sizeof(row));
    for (uint32_t i = 0; i < look->tatp->base.threads; i++)
        due += worker_of(look, i)->facility[index];
    if (row.updates != due)
        return cn_fail(CAIRN_E_STATE,
            "special facility %u of subscriber %u has %u updates, but %" PRIu64 " have committed",
            type + 1, s_id, row.updates, due);
    return 0;
}

static void forwarding_key(const void *arg, uint64_t index, uint8_t *ret_key)
{
    uint32_t at = (uint32_t)(index % BN_TATP_FORWARDINGS);

    (void)arg;
    (void)bn_tatp_forwarding_key((uint32_t)(index / BN_TATP_FORWARDINGS) + 1,
        at / BN_TATP_STARTS + 1, at % BN_TATP_STARTS * 8, ret_key);
}

static int take_forwarding(void *arg, uint64_t index, const void *value, size_t size)
{
    struct look *look = arg;
    uint32_t s_id = (uint32_t)(index / BN_TATP_FORWARDINGS) + 1;
    uint32_t at = (uint32_t)(index % BN_TATP_FORWARDINGS);
    int64_t due = profile_of(look, s_id)->forwarding >> at & 1;

    look->loaded += (uint64_t)due;
    for (uint32_t i = 0; i < look->tatp->base.threads; i++)
        due += worker_of(look, i)->forwarding[index];
    look->forwardings += value != NULL;
    if (due == (value != NULL) && (due == 0 || size == sizeof(struct bn_tatp_call_forwarding)))
        return 0;
    return cn_fail(CAIRN_E_STATE,
        "call forwarding %u.%u of subscriber %u is%s there, but loaded + inserted - deleted is "
        "%" PRId64,
        at / BN_TATP_STARTS + 1, at % BN_TATP_STARTS * 8, s_id, value != NULL ? "" : " not", due);
}

static int check_count(const struct look *look)
{
    uint64_t inserted = 0, deleted = 0;

    for (uint32_t i = 0; i < look->tatp->base.threads; i++) {
        inserted += worker_of(look, i)->inserted;
        deleted += worker_of(look, i)->deleted;
    }
    if (look->forwardings == look->loaded + inserted - deleted)
        return 0;
    return cn_fail(CAIRN_E_STATE,
        "there are %" PRIu64 " call forwardings, but %" PRIu64 " were loaded, %" PRIu64
        " inserted, %" PRIu64 " deleted",
        look->forwardings, look->loaded, inserted, deleted);
}

int bn_tatp_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked)
{
    struct look look = {.tatp = (struct bn_tatp *)load};
    uint64_t count = look.tatp->subscribers;
    const struct bn_scan scans[] = {
        {"subscribers", count, load->table[BN_TATP_SUBSCRIBER], 4,
            sizeof(struct bn_tatp_subscriber), subscriber_key, take_subscriber, &look},
        {"special facilities", count * BN_TATP_TYPES, load->table[BN_TATP_SPECIAL_FACILITY], 5,
            sizeof(struct bn_tatp_special_facility), facility_key, take_facility, &look},
        {"call forwardings", count * BN_TATP_FORWARDINGS, load->table[BN_TATP_CALL_FORWARDING], 6,
            sizeof(struct bn_tatp_call_forwarding), forwarding_key, take_forwarding, &look},
    };
    uint64_t checked = 1;
    int rc = 0;

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(scans) && rc == 0; i++) {
        rc = bn_scan(load, ctx, &scans[i]);
        checked += scans[i].count;
    }
    if (rc == 0)
        rc = check_count(&look);
    if (rc == 0)
        *ret_checked = checked;
    return rc;
}
