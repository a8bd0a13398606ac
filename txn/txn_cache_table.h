/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cache_table.h: inside the location cache: a cell, which is all that is kept of a key, and the
 * table for what the lines of txn_cache.c have no room for.
 *
 * A cell is guarded by a sequence count (odd: being written). Its fields are relaxed atomics: a
 * reader may look at one that is being written, and finds that out by the count.
 */
#ifndef TXN_CACHE_TABLE_H
#define TXN_CACHE_TABLE_H

#include <stdatomic.h>

#include "include/internal/cn_base.h"

#define TXN_CACHE_WORDS 5u

struct txn_cache_key {
    uint64_t place, hash; /* place: node << 32 | table */
};

struct txn_cache_cell {
    _Atomic uint32_t sequence;
    _Atomic uint16_t state; /* of who owns the cell */
    _Atomic uint16_t used;  /* looked up since it was last asked whether it is needed */
    _Atomic uint64_t place, hash;
    _Atomic uint64_t word[TXN_CACHE_WORDS]; /* incarnation (0: dropped), then the hint */
};
_Static_assert(sizeof(struct txn_cache_cell) == 64, "one line");

static inline void txn_cell_get(
    const struct txn_cache_cell *cell, uint64_t word[TXN_CACHE_WORDS])
{
    _Static_assert(TXN_CACHE_WORDS == 5, "one line each");
    word[0] = atomic_load_explicit(&cell->word[0], memory_order_acquire);
    word[1] = atomic_load_explicit(&cell->word[1], memory_order_acquire);
    word[2] = atomic_load_explicit(&cell->word[2], memory_order_acquire);
    word[3] = atomic_load_explicit(&cell->word[3], memory_order_acquire);
    word[4] = atomic_load_explicit(&cell->word[4], memory_order_acquire);
}

static inline void txn_cell_set(
    struct txn_cache_cell *cell, const uint64_t word[TXN_CACHE_WORDS])
{
    _Static_assert(TXN_CACHE_WORDS == 5, "one line each");
    atomic_store_explicit(&cell->word[0], word[0], memory_order_release);
    atomic_store_explicit(&cell->word[1], word[1], memory_order_release);
    atomic_store_explicit(&cell->word[2], word[2], memory_order_release);
    atomic_store_explicit(&cell->word[3], word[3], memory_order_release);
    atomic_store_explicit(&cell->word[4], word[4], memory_order_release);
}

/* False: somebody writes it now. */
static inline bool txn_cell_begin(struct txn_cache_cell *cell, uint32_t *ret_sequence)
{
    *ret_sequence = atomic_load_explicit(&cell->sequence, memory_order_relaxed);
    return *ret_sequence % 2 == 0 &&
        atomic_compare_exchange_strong_explicit(&cell->sequence, ret_sequence, *ret_sequence + 1,
            memory_order_acquire, memory_order_relaxed);
}

static inline void txn_cell_end(struct txn_cache_cell *cell, uint32_t sequence)
{
    atomic_store_explicit(&cell->sequence, sequence + 2, memory_order_release);
}

static inline bool txn_cell_is_of(
    const struct txn_cache_cell *cell, const struct txn_cache_key *key, uint16_t state)
{
    return atomic_load_explicit(&cell->place, memory_order_acquire) == key->place &&
        atomic_load_explicit(&cell->hash, memory_order_acquire) == key->hash &&
        atomic_load_explicit(&cell->state, memory_order_acquire) == state;
}

/* False: another key's, not in this state, or written meanwhile. */
static inline bool txn_cell_read(const struct txn_cache_cell *cell,
    const struct txn_cache_key *key, uint16_t state, uint64_t word[TXN_CACHE_WORDS])
{
    uint32_t before = atomic_load_explicit(&cell->sequence, memory_order_acquire);

    if (!txn_cell_is_of(cell, key, state) || before % 2 != 0)
        return false;
    txn_cell_get(cell, word);
    return before == atomic_load_explicit(&cell->sequence, memory_order_relaxed);
}

/* False: another key's, or not in this state. What is written by another meanwhile is as good. */
static inline bool txn_cell_write(struct txn_cache_cell *cell, const struct txn_cache_key *key,
    uint16_t state, const uint64_t word[TXN_CACHE_WORDS])
{
    uint32_t sequence;

    if (!txn_cell_is_of(cell, key, state))
        return false;
    if (CN_UNLIKELY(!txn_cell_begin(cell, &sequence)))
        return true;
    bool mine = txn_cell_is_of(cell, key, state);
    if (CN_LIKELY(mine))
        txn_cell_set(cell, word);
    txn_cell_end(cell, sequence);
    return mine;
}

static inline void txn_cell_touch(struct txn_cache_cell *cell)
{
    if (CN_UNLIKELY(atomic_load_explicit(&cell->used, memory_order_relaxed) == 0))
        atomic_store_explicit(&cell->used, 1, memory_order_relaxed);
}

/* ---- txn_cache_table.c ---- */
struct txn_cache_table;

/* Room for so many keys, at least. */
CN_MUST_CHECK int txn_cache_table_open(uint32_t entries, struct txn_cache_table **ret_table);
void txn_cache_table_close(struct txn_cache_table **table);
bool txn_cache_table_find(struct txn_cache_table *table, const struct txn_cache_key *key,
    uint64_t ret_word[TXN_CACHE_WORDS]);
void txn_cache_table_put(struct txn_cache_table *table, const struct txn_cache_key *key,
    const uint64_t word[TXN_CACHE_WORDS]);
void txn_cache_table_drop(struct txn_cache_table *table, const struct txn_cache_key *key);
uint32_t txn_cache_table_count(const struct txn_cache_table *table);

#endif
