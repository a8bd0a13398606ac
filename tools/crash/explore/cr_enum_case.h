/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_case.h: one case of the closed set: who does what, on which keys, where they are; and the
 * model that says which states a recovery may leave. No I/O, no cluster.
 *
 * A value is known by its id: 0 is absence, 1 what the key held at first, then one per operation.
 */
#ifndef CR_ENUM_CASE_H
#define CR_ENUM_CASE_H

#include "tools/crash/explore/cr_enum.h"

#define CR_CASE_KEYS 3u
#define CR_CASE_OPS 3u
#define CR_CASE_TXS 3u
#define CR_CASE_NODES 3u
#define CR_CASE_CLIENTS 2u

enum cr_op_kind { CR_OP_READ, CR_OP_PUT, CR_OP_DELETE, CR_OP_KINDS };
struct cr_case_op { uint8_t kind, key; };
struct cr_case_tx {
    uint8_t client, count;
    struct cr_case_op op[CR_CASE_OPS];
};
struct cr_case {
    enum cr_enum_set set;
    uint8_t node_count, key_count, client_count, tx_count;
    uint8_t at[CR_CASE_KEYS];       /* participant of a key */
    bool present[CR_CASE_KEYS];     /* at first */
    struct cr_case_tx tx[CR_CASE_TXS]; /* those of one client in this order */
    uint32_t interleaving;          /* pairs: a number for the seed */
    bool turned;                    /* rings: the log's end is moved first: `before_end` units of
                                       64 bytes before the ring's */
    uint8_t before_end;
    bool cold;                      /* rings: explored from the start of the nodes on */
    bool dies;                      /* rings: client 0 dies in its first transaction, when it */
    enum cn_step death;             /* passes this step for the n-th time */
    uint8_t death_nth;
};

/* ---- the list (cr_enum_list.c, cr_enum_table.c) ---- */
/* False: the set has no such case. `number` counts in the set. */
bool cr_case_single(uint32_t number, struct cr_case *ret);
bool cr_case_pair(uint32_t number, struct cr_case *ret);
bool cr_case_ring(uint32_t number, struct cr_case *ret);
/* By the number over all sets. */
bool cr_case_get(uint32_t number, struct cr_case *ret);
void cr_case_describe(const struct cr_case *c, char *buf, size_t size);
/* A transaction as it is up to renaming: keys and participants numbered by first use. For
 * comparisons: equal codes, equal cases. Of a single. */
uint64_t cr_case_code(const struct cr_case *c);

/* ---- the model (cr_enum_model.c) ---- */
#define CR_VALUE_FIRST 1u
#define CR_VALUE_UNREAD UINT32_MAX
static inline uint32_t cr_value_of(uint32_t tx, uint32_t op)
{
    return 2 + tx * CR_CASE_OPS + op;
}

enum cr_tx_phase {
    CR_TX_IDLE,
    CR_TX_ACTIVE,     /* begun, commit not called: no effect yet */
    CR_TX_COMMITTING, /* may or may not have an effect; for good when its client is dead */
    CR_TX_COMMITTED,
    CR_TX_ABORTED,
};
struct cr_progress { /* of a transaction, as its client knows it */
    enum cr_tx_phase phase;
    uint64_t begun, ended; /* order of events; `ended` when committed */
    uint32_t seen[CR_CASE_OPS]; /* value ids that its reads gave; CR_VALUE_UNREAD */
};
/*
 * Is this the state after some serial order of all committed transactions and any of those being
 * committed, in which each read what it saw, and whatever had ended before another began comes
 * before it?
 */
bool cr_case_allows(const struct cr_case *c, const struct cr_progress *progress,
    const uint32_t state[CR_CASE_KEYS]);
/* "a = absent, b = value of put 2 of transaction 1; ..." */
void cr_case_tell(const struct cr_case *c, const struct cr_progress *progress,
    const uint32_t state[CR_CASE_KEYS], char *buf, size_t size);

#endif
