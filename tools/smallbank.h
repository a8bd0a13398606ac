/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smallbank.h: the SmallBank workload: accounts with a savings and a checking balance under
 * separate keys, and its six transactions. Each value says who wrote it, so that a checker can tell
 * from the final state what became of every single transaction: see demo_check.h.
 */
#ifndef SMALLBANK_H
#define SMALLBANK_H

#include "include/internal/cn_base.h"

#define SB_VALUE_SIZE 24u
#define SB_KEY_SIZE 8u
#define SB_TOUCHES_MAX 3u
#define SB_INITIAL_BALANCE 10000

enum sb_kind {
    SB_BALANCE,
    SB_DEPOSIT_CHECKING,
    SB_TRANSACT_SAVINGS,
    SB_AMALGAMATE,
    SB_WRITE_CHECK,
    SB_SEND_PAYMENT,
    SB_KIND_COUNT,
};

/* Keys are numbered: account * 2 + (1 for checking). */
static inline uint32_t sb_savings(uint32_t account)
{
    return account * 2;
}
static inline uint32_t sb_checking(uint32_t account)
{
    return account * 2 + 1;
}

struct sb_value {
    int64_t balance;
    uint32_t writer; /* 0: the loader */
    uint32_t number; /* of the writer's attempt */
    uint64_t count;  /* how many transactions wrote this key */
};
void sb_value_pack(const struct sb_value *value, uint8_t bytes[SB_VALUE_SIZE]);
bool sb_value_unpack(const void *bytes, size_t size, struct sb_value *ret);
void sb_key_pack(uint32_t key, uint8_t bytes[SB_KEY_SIZE]);

/* What a transaction did to one key. 32 bytes: it lies in ledgers. */
#define SB_WRITTEN (UINT32_C(1) << 31)
struct sb_touch {
    uint32_t key; /* | SB_WRITTEN */
    uint32_t prev_writer, prev_number, prev_count;
    int64_t old_balance, new_balance;
};

struct sb_plan {
    enum sb_kind kind;
    uint32_t account[2];
    int64_t amount;
};
/* Of `hot_of` transactions `hot_in` have accounts from the first `hot` (at least 2), the rest from
 * all `accounts`. */
struct sb_spread {
    uint32_t accounts, hot, hot_in, hot_of;
};
/* Draw a transaction with the usual mix and amounts. */
void sb_draw_spread(uint64_t *random, const struct sb_spread *spread, struct sb_plan *ret);
/* The same; every fourth transaction is between two of a hundred hot accounts, and amounts are
 * drawn, so that what balances come to tells more: 1 to 100, to savings also less than nothing. */
void sb_draw(uint64_t *random, uint32_t accounts, struct sb_plan *ret);
uint64_t sb_random(uint64_t *random);
/* The keys it touches, in ascending order; returns how many. Only key and SB_WRITTEN are set. */
uint32_t sb_touches(const struct sb_plan *plan, struct sb_touch touch[SB_TOUCHES_MAX]);
/*
 * Compute new_balance of each touch from old_balance; *ret_delta is the money that came into the
 * bank. False: the transaction refuses (not enough money).
 */
bool sb_apply(
    const struct sb_plan *plan, struct sb_touch *touch, uint32_t count, int64_t *ret_delta);

#define SB_REFUSED 1 /* the bank says no: abort, and do not run again */
struct sb_tables {
    uint32_t savings, checking;
};
/*
 * Do it in an open transaction, up to but without commit: read, compute, put values of (writer,
 * number). Returns 0, SB_REFUSED, or an error of the API; CAIRN_E_CORRUPT_ITEM when a value is not
 * one of ours.
 */
CN_MUST_CHECK int sb_execute(struct cairn_tx *tx, const struct sb_tables *tables,
    const struct sb_plan *plan, const struct sb_value *stamp, struct sb_touch *touch,
    uint32_t *ret_count, int64_t *ret_delta);

const char *sb_kind_name(enum sb_kind kind);

#endif
