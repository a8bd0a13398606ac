/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cache_table.c: a liburcu hash table (cds_lfht, urcu-bp flavour) over a fixed pool of entries.
 * Whatever cannot be done at once is not done: a lookup that meets a writer is a miss, an update
 * that meets another is dropped.
 *
 * Entry states, changed by CAS alone: FREE (on the free list, or waiting for its grace period) ->
 * NEW (taken by put) -> LIVE (in the table) -> DYING (taken out by the one who won the CAS) -> a
 * grace period -> FREE. A key is set while NEW and does not change while LIVE; the rest is updated
 * in place, so that a steady working set recycles nothing.
 *
 * A dropped entry keeps its place with incarnation 0, which nobody looks for, and is among the
 * first to be evicted: a burst of drops costs no grace periods.
 *
 * The grace-period worker polls (URCU_CALL_RCU_RT), so call_rcu never wakes it by a system call. A
 * spare of entries beyond the capacity covers what waits for its grace period.
 */
#include "txn/txn_cache_table.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <urcu/urcu-bp.h>
/* The hash table comes after the flavour. */
#include <urcu/rculfhash.h>

#define SPARE_MIN 64u
#define CLOCK_STEPS_MAX 16u /* entries looked at to find one to evict */
#define NO_ENTRY UINT32_MAX

enum entry_state { ENTRY_FREE, ENTRY_NEW, ENTRY_LIVE, ENTRY_DYING };

struct entry {
    struct txn_cache_cell cell;
    struct cds_lfht_node node;
    struct rcu_head rcu;
    struct txn_cache_table *table;
    _Atomic uint32_t next_free;
};

struct txn_cache_table {
    struct cds_lfht *table;
    struct call_rcu_data *worker;
    struct entry *entry;
    uint32_t capacity, entry_count;
    _Atomic uint64_t free_head; /* tag << 32 | index: a stale one matches no more */
    _Atomic uint32_t live;
    _Atomic uint32_t pending; /* wait for their grace period */
    _Atomic uint32_t hand;
};

static uint64_t load(const _Atomic uint64_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static void store(_Atomic uint64_t *p, uint64_t value)
{
    atomic_store_explicit(p, value, memory_order_relaxed);
}

/* ---- free list ---- */

static void push_free(struct txn_cache_table *t, struct entry *entry)
{
    uint32_t index = (uint32_t)(entry - t->entry);
    uint64_t head = load(&t->free_head), next;

    do {
        atomic_store_explicit(&entry->next_free, (uint32_t)head, memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | index;
    } while (!atomic_compare_exchange_weak_explicit(
        &t->free_head, &head, next, memory_order_release, memory_order_relaxed));
}

static struct entry *pop_free(struct txn_cache_table *t)
{
    uint64_t head = atomic_load_explicit(&t->free_head, memory_order_acquire), next;
    struct entry *entry;

    do {
        if ((uint32_t)head == NO_ENTRY)
            return NULL;
        entry = &t->entry[(uint32_t)head];
        next = ((head >> 32) + 1) << 32 |
            atomic_load_explicit(&entry->next_free, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(
        &t->free_head, &head, next, memory_order_acquire, memory_order_acquire));
    atomic_store_explicit(&entry->cell.state, ENTRY_NEW, memory_order_relaxed);
    return entry;
}

/* Grace period over: nobody can be looking at the entry any more. */
static void recycle(struct rcu_head *head)
{
    struct entry *entry = caa_container_of(head, struct entry, rcu);

    (void)atomic_exchange_explicit(&entry->cell.state, ENTRY_FREE, memory_order_acq_rel);
    struct txn_cache_table *t = entry->table;
    push_free(t, entry);
    atomic_fetch_sub_explicit(&t->pending, 1, memory_order_release);
}

/* Take out of the table; by one caller only. Read lock held. */
static void retire(struct txn_cache_table *t, struct entry *entry)
{
    uint16_t state = ENTRY_LIVE;

    if (!atomic_compare_exchange_strong(&entry->cell.state, &state, ENTRY_DYING))
        return;
    int rc = cds_lfht_del(t->table, &entry->node);
    CAIRN_ASSERT(rc == 0);
    atomic_fetch_sub_explicit(&t->live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->pending, 1, memory_order_relaxed);
    struct call_rcu_data *own = urcu_bp_get_thread_call_rcu_data();
    urcu_bp_set_thread_call_rcu_data(t->worker);
    urcu_bp_call_rcu(&entry->rcu, recycle);
    urcu_bp_set_thread_call_rcu_data(own);
}

/* Second chance: pass over entries that were used since the last round, up to a bound. */
static void evict_one(struct txn_cache_table *t)
{
    struct entry *victim = NULL;

    for (uint32_t i = 0; i < CLOCK_STEPS_MAX; i++) {
        uint32_t at = atomic_fetch_add_explicit(&t->hand, 1, memory_order_relaxed);
        struct entry *entry = &t->entry[at % t->entry_count];
        if (atomic_load_explicit(&entry->cell.state, memory_order_relaxed) != ENTRY_LIVE)
            continue;
        victim = entry;
        if (atomic_exchange_explicit(&entry->cell.used, 0, memory_order_relaxed) == 0)
            break;
    }
    if (victim != NULL)
        retire(t, victim);
}

/* ---- by key ---- */

static unsigned long table_hash(const struct txn_cache_key *key)
{
    return (unsigned long)cn_mix64(key->hash ^ cn_mix64(key->place));
}

static int match(struct cds_lfht_node *node, const void *arg)
{
    const struct txn_cache_key *key = arg;
    const struct entry *entry = caa_container_of(node, struct entry, node);
    return load(&entry->cell.place) == key->place && load(&entry->cell.hash) == key->hash;
}

/* NULL: none. Read lock held. */
static struct entry *look_up(struct txn_cache_table *t, const struct txn_cache_key *key)
{
    struct cds_lfht_iter iter;

    cds_lfht_lookup(t->table, table_hash(key), match, key, &iter);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&iter);
    return node == NULL ? NULL : caa_container_of(node, struct entry, node);
}

bool txn_cache_table_find(struct txn_cache_table *t, const struct txn_cache_key *key,
    uint64_t ret_word[TXN_CACHE_WORDS])
{
    urcu_bp_read_lock();
    struct entry *entry = look_up(t, key);
    bool found = entry != NULL && txn_cell_read(&entry->cell, key, ENTRY_LIVE, ret_word);
    if (found)
        txn_cell_touch(&entry->cell);
    urcu_bp_read_unlock();
    return found;
}

/* Take an entry within the capacity. NULL: none now (all that are spare wait for their grace
 * period, or nothing could be evicted in the bounded search). Read lock held. */
static struct entry *take_entry(struct txn_cache_table *t)
{
    if (atomic_load_explicit(&t->live, memory_order_relaxed) >= t->capacity)
        evict_one(t);
    if (atomic_fetch_add_explicit(&t->live, 1, memory_order_relaxed) < t->capacity) {
        struct entry *entry = pop_free(t);
        if (entry != NULL)
            return entry;
    }
    atomic_fetch_sub_explicit(&t->live, 1, memory_order_relaxed);
    return NULL;
}

/* Taken and never in the table: no grace period. */
static void give_back(struct txn_cache_table *t, struct entry *entry)
{
    atomic_store_explicit(&entry->cell.state, ENTRY_FREE, memory_order_relaxed);
    push_free(t, entry);
    atomic_fetch_sub_explicit(&t->live, 1, memory_order_relaxed);
}

/* A key that is not there yet. Read lock held. */
static void insert(struct txn_cache_table *t, const struct txn_cache_key *key,
    const uint64_t word[TXN_CACHE_WORDS])
{
    struct entry *entry = take_entry(t);

    if (entry == NULL)
        return;
    store(&entry->cell.place, key->place);
    store(&entry->cell.hash, key->hash);
    atomic_store_explicit(&entry->cell.used, 1, memory_order_relaxed);
    txn_cell_set(&entry->cell, word);
    cds_lfht_node_init(&entry->node);
    struct cds_lfht_node *there =
        cds_lfht_add_unique(t->table, table_hash(key), match, key, &entry->node);
    if (there != &entry->node) {
        struct entry *other = caa_container_of(there, struct entry, node);
        (void)txn_cell_write(&other->cell, key, ENTRY_LIVE, word);
        give_back(t, entry);
        return;
    }
    atomic_store(&entry->cell.state, ENTRY_LIVE);
}

void txn_cache_table_put(struct txn_cache_table *t, const struct txn_cache_key *key,
    const uint64_t word[TXN_CACHE_WORDS])
{
    urcu_bp_read_lock();
    struct entry *entry = look_up(t, key);
    if (entry != NULL)
        (void)txn_cell_write(&entry->cell, key, ENTRY_LIVE, word);
    else
        insert(t, key, word);
    urcu_bp_read_unlock();
}

void txn_cache_table_drop(struct txn_cache_table *t, const struct txn_cache_key *key)
{
    static const uint64_t nothing[TXN_CACHE_WORDS];

    if (txn_cache_table_count(t) == 0)
        return;
    urcu_bp_read_lock();
    struct entry *entry = look_up(t, key);
    if (entry != NULL && txn_cell_write(&entry->cell, key, ENTRY_LIVE, nothing))
        atomic_store_explicit(&entry->cell.used, 0, memory_order_relaxed);
    urcu_bp_read_unlock();
}

uint32_t txn_cache_table_count(const struct txn_cache_table *t)
{
    return atomic_load_explicit(&t->live, memory_order_relaxed);
}

/* ---- open and close ---- */

/*
 * liburcu's destructor unmaps its readers' memory while workers still run: a process that exits
 * with a cluster open would crash in the worker. This destructor runs before liburcu's and stops
 * them.
 */
static _Atomic uint32_t open_tables;

__attribute__((destructor)) static void pause_workers(void)
{
    if (atomic_load(&open_tables) != 0)
        urcu_bp_call_rcu_before_fork();
}

int txn_cache_table_open(uint32_t entries, struct txn_cache_table **ret_table)
{
    struct txn_cache_table *t = calloc(1, sizeof(*t));

    if (t == NULL)
        goto err;
    t->capacity = entries;
    t->entry_count = entries + entries / 8 + SPARE_MIN;
    t->entry = calloc(t->entry_count, sizeof(struct entry));
    if (t->entry == NULL)
        goto err_table;
    unsigned long buckets = 1;
    while (buckets < entries)
        buckets *= 2;
    t->table = cds_lfht_new_flavor(buckets, buckets, buckets, 0, &urcu_bp_flavor, NULL);
    if (t->table == NULL)
        goto err_entry;
    t->worker = urcu_bp_create_call_rcu_data(URCU_CALL_RCU_RT, -1);
    if (t->worker == NULL)
        goto err_hash;
    /* liburcu does not join its thread. */
    (void)pthread_detach(urcu_bp_get_call_rcu_thread(t->worker));
    store(&t->free_head, NO_ENTRY);
    for (uint32_t i = t->entry_count; i-- > 0;) {
        t->entry[i].table = t;
        push_free(t, &t->entry[i]);
    }
    /* Register this thread now: the first read lock of a thread makes system calls. */
    urcu_bp_read_lock();
    urcu_bp_read_unlock();
    atomic_fetch_add(&open_tables, 1);
    *ret_table = t;
    return 0;

err_hash:
    (void)cds_lfht_destroy(t->table, NULL);
err_entry:
    free(t->entry);
err_table:
    free(t);
err:
    return cn_fail(-ENOMEM, "no memory for a table of %u places of keys", entries);
}

void txn_cache_table_close(struct txn_cache_table **table)
{
    struct txn_cache_table *t = *table;

    urcu_bp_read_lock();
    for (uint32_t i = 0; i < t->entry_count; i++)
        retire(t, &t->entry[i]);
    urcu_bp_read_unlock();
    /* Every recycle() has run: not urcu_bp_barrier(), which waits for everybody's callbacks. */
    while (atomic_load_explicit(&t->pending, memory_order_acquire) != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub_explicit(&open_tables, 1, memory_order_seq_cst);
    int rc = cds_lfht_destroy(t->table, NULL);
    CAIRN_ASSERT(rc == 0);
    urcu_bp_call_rcu_data_free(t->worker);
    free(t->entry);
    free(t);
    *table = NULL;
}
