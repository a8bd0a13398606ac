/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_kit.h: what the workloads that are built in share: a transaction with its calls, and chains.
 * They use cairn.h and workload.h only, so each of them also works as a shared object.
 *
 * A chain: every value names the operation that wrote it and how many wrote the key before. What
 * an operation found at its keys and what it puts there lies in the run's state before it commits.
 * So at the end each key has one chain, from its final value back to the first one, and all that
 * took effect is on it: what was lost, applied twice, torn, or came back from an abort is seen,
 * operation by operation.
 */
#ifndef CR_KIT_H
#define CR_KIT_H

#include <stdbool.h>
#include <string.h>

#include "include/cairn/workload.h"

#define CR_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ---- a transaction ---- */

#define CR_KIT_ABSENT SIZE_MAX

struct cr_kit {
    struct cairn_run *run;
    struct cairn_tx *tx;
    uint32_t table;
};

/* Keys of a workload begin with a letter of its own: the parts of a run share the table. */
struct cr_key { char text[32]; size_t size; };
struct cr_key cr_key(char kind, uint32_t a, uint32_t b);

/* Errors are those of cairn.h; one that no fault explains ends the run, with its text. */
CAIRN_MUST_CHECK int cr_kit_begin(
    struct cr_kit *kit, struct cairn_run *run, struct cairn_ctx *ctx);
/* *ret_size CR_KIT_ABSENT: there is no such key. */
CAIRN_MUST_CHECK int cr_kit_get(struct cr_kit *kit, const struct cr_key *key, bool lock, void *buf,
    size_t room, size_t *ret_size);
CAIRN_MUST_CHECK int cr_kit_put(
    struct cr_kit *kit, const struct cr_key *key, const void *value, size_t size);
CAIRN_MUST_CHECK int cr_kit_delete(struct cr_kit *kit, const struct cr_key *key);
/* Commit if rc is 0, else abort. op 0: it has only read. Returns rc, or what commit returned. */
CAIRN_MUST_CHECK int cr_kit_end(
    struct cr_kit *kit, uint64_t op, int rc, enum cairn_outcome *ret_outcome);

static inline bool cr_chance(struct cairn_run *run, const char *label, uint32_t num, uint32_t den)
{
    return cairn_run_choose(run, label, den) < num;
}

/* Numbers that others may take between a look at the highest and cairn_run_op(). */
#define CR_KIT_SPARE 64u
/* *max becomes `value` if that is more. Clients may be processes. */
void cr_kit_raise(uint64_t *max, uint64_t value);
/* An error that faults explain: part of the game, see workload.h. */
bool cr_error_is_explained(int error);

/* ---- chains ---- */

#define CR_CHAIN_TOUCHES 3u
#define CR_CHAIN_OPS 131072u /* no more operations in a run */

struct cr_link { /* a value; a key that does not exist is all zero */
    int64_t value;
    uint64_t op, count;
};
struct cr_touch {
    uint32_t key;
    bool written;
    struct cr_link old;
    int64_t value; /* the new one */
};
struct cr_chain_op {
    uint32_t count;
    struct cr_touch touch[CR_CHAIN_TOUCHES];
};
struct cr_chain { /* in the state */
    uint64_t ops; /* the highest number */
    struct cr_chain_op op[CR_CHAIN_OPS];
};

/* The next number; 0: there is no room for more, do nothing. */
uint64_t cr_chain_begin(struct cr_chain *chain, struct cairn_run *run);
/* Read a key into touch->old. */
CAIRN_MUST_CHECK int cr_chain_read(
    struct cr_kit *kit, const struct cr_key *key, bool lock, struct cr_link *ret_link);
CAIRN_MUST_CHECK int cr_chain_write(struct cr_kit *kit, const struct cr_key *key, uint64_t op,
    const struct cr_touch *touch);
/* The final values of keys 0 .. count - 1, and what their first values were. */
void cr_chain_check(const struct cr_chain *chain, struct cairn_run *run,
    const struct cr_link *final, const int64_t *first, uint32_t count);

#endif
