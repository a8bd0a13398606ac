/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_cells.h: a table of numbered keys whose values say who wrote them, how often, and for which
 * key; what `micro` and `ycsb` share: transactions that read, update, overwrite and insert cells,
 * and the check that what lies there at the end is what was committed.
 *
 * A value is 16 bytes and a filler: le32 crc32c of all that follows and of the key's number; le32
 * writer (0: the loader, else worker + 1); le32 the writer's own count of its writes to this key;
 * le32 count of all writes to this key, by those that read before they wrote; the filler, which
 * depends on the three. So
 * - what is read is checked at every read: a value that nobody wrote there is an error;
 * - where every write reads first, each key's count is the sum of the workers' counts for it: a
 *   lost or doubled update of any key is found;
 * - in any case the last value is one that its writer had in flight when it began its last write to
 *   that key: those that were over by then have been overwritten.
 */
#ifndef BN_CELLS_H
#define BN_CELLS_H

#include "tools/bench/bn_load.h"
#include "tools/bench/bn_zipf.h"

#define BN_CELL_KEY_SIZE 8u
#define BN_CELL_VALUE_MIN 16u
#define BN_TOUCHES_MAX 64u /* keys of one transaction */

struct bn_cell {
    uint32_t writer, number, count;
};

struct bn_cells {
    uint32_t table;
    uint32_t value_size;
    uint64_t keys;
    uint32_t touches_max; /* of one transaction, at most BN_TOUCHES_MAX */
    bool counted;         /* every write reads first */
    struct bn_zipf zipf;  /* of ranks; ranks are scrambled to keys */
    bool placed;          /* keys are asked for by shard: note where each lies */
    uint8_t *shard;       /* then: of each key; from load() to end() */
};

/* The loads' own structs begin with these. */
struct bn_cells_load {
    struct bn_load load;
    struct bn_cells cells;
};
struct bn_cells_key {
    uint32_t written; /* writes begun */
    uint32_t flying;  /* of these, not over */
    uint32_t floor;   /* the first that was not over when the last one began, or itself */
};
struct bn_touches;
struct bn_cells_worker {
    uint32_t writer;
    struct bn_cells_key *key;         /* of all but inserted ones */
    uint64_t drawn, settled, inserts; /* writes, both ways; inserts drawn */
    uint8_t *buffers;                 /* `inflight` of them */
    const struct bn_touches **flight; /* the transaction that each is of */
    uint32_t *free, free_count;       /* those of none */
    uint32_t inflight;
};

enum bn_touch_how { BN_TOUCH_READ, BN_TOUCH_UPDATE, BN_TOUCH_BLIND, BN_TOUCH_INSERT };
struct bn_touch {
    uint64_t key;
    uint32_t number; /* of the writer's writes to this key, from 1 */
    enum bn_touch_how how;
};
struct bn_touches { /* a slot */
    const struct bn_cells *cells;
    struct bn_cells_worker *worker;
    bool begun; /* its writes have their numbers */
    uint32_t buffer_index;
    uint8_t *buffer; /* touches_max values */
    uint32_t count;
    struct bn_touch touch[BN_TOUCHES_MAX];
};

void bn_cell_key(uint64_t number, uint8_t key[BN_CELL_KEY_SIZE]);
void bn_cell_pack(
    const struct bn_cells *cells, uint64_t key, const struct bn_cell *cell, uint8_t *value);
/* Errors: CAIRN_E_STATE: nobody wrote this for this key. */
CN_MUST_CHECK int bn_cell_unpack(const struct bn_cells *cells, uint64_t key, const uint8_t *value,
    size_t size, struct bn_cell *ret);

/* For a load's ops. */
uint64_t bn_cells_bytes(const struct bn_cells *cells, uint64_t inserts);
int bn_cells_load(struct bn_load *load, struct cairn_ctx *ctx);
void bn_cells_end(struct bn_load *load);
int bn_cells_worker_init(struct bn_load *load, void *worker, uint32_t number);
void bn_cells_worker_end(struct bn_load *load, void *worker);
/* Begin to draw a transaction, and add a key to it: a distinct one of the distribution, which
 * `shard` (or BN_ANY_SHARD) has: `placed` is set then. */
#define BN_ANY_SHARD UINT32_MAX
void bn_cells_begin(struct bn_load *load, struct bn_cells_worker *worker, struct bn_touches *t);
void bn_cells_touch(struct bn_cells_worker *worker, uint64_t *random, struct bn_touches *t,
    enum bn_touch_how how, uint32_t shard);
/* Its writes begin, once: part of the body, as late as may be, for what a random place of the
 * ledger costs is not the transaction's. */
void bn_cells_number(struct bn_touches *t);
int bn_cells_body(struct cairn_tx *tx, void *slot);
void bn_cells_settle(struct bn_load *load, void *worker, const void *slot, bool committed);
int bn_cells_check(struct bn_load *load, struct cairn_ctx *ctx, uint64_t *ret_checked);
/* Of the ops of a load over cells: all but what says what it draws. */
#define BN_CELLS_OPS \
    .worker_size = sizeof(struct bn_cells_worker), .slot_size = sizeof(struct bn_touches), \
    .load = bn_cells_load, .worker_init = bn_cells_worker_init, \
    .worker_end = bn_cells_worker_end, .body = bn_cells_body, .settle = bn_cells_settle, \
    .check = bn_cells_check, .end = bn_cells_end
/* What the check says of one key and of the totals, for its unit test. */
CN_MUST_CHECK int bn_cells_judge(
    const struct bn_load *load, uint64_t key, const struct bn_cell *cell);
CN_MUST_CHECK int bn_cells_judge_totals(const struct bn_load *load);
/* "0.99". False: not a number from 0 to 10. */
bool bn_parse_theta(const char *text, double *ret);

#endif
