/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cache.c: the location cache: a liburcu hash table (cds_lfht, urcu-bp flavour) over a fixed
 * pool of entries. Everything in it is a hint, so whatever cannot be done at once is not done: a
 * lookup that meets a writer is a miss, an update that meets another is dropped.
 *
 * Entry states, changed by CAS alone: FREE (on the free list, or waiting for its grace period) ->
 * NEW (taken by put) -> LIVE (in the table) -> DYING (taken out by the one who won the CAS) -> a
 * grace period -> FREE. Identity (node, table, hash) is set while NEW and does not change while
 * LIVE; the hint is guarded by a sequence count (odd: being written) and updated in place, so that
 * a steady working set recycles nothing.
 *
 * `near` finds nearly all entries without a grace-period lock and a walk: buckets of entry numbers,
 * each with a tag of 32 bits of the key's hash. Entries are never unmapped while the cache is open,
 * and who comes this way
 * looks at the identity inside the sequence count, as it is set inside one too. So what is there
 * under another identity, or being replaced, is a miss here and is looked up the long way.
 *
 * Fields are relaxed atomics: a reader may look at an entry that is being written and finds that
 * out by the sequence count.
 *
 * A dropped entry keeps its place with incarnation 0, which nobody looks for, and is among the
 * first to be evicted: a burst of drops costs no grace periods.
 *
 * The grace-period worker polls (URCU_CALL_RCU_RT), so call_rcu never wakes it by a system call. A
 * spare of entries beyond the capacity covers what waits for its grace period.
 */
#include "txn/txn_cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <urcu/urcu-bp.h>
/* The hash table comes after the flavour. */
#include <urcu/rculfhash.h>

#define ENTRIES_MIN 16u
#define ENTRIES_MAX (1u << 26)
#define SPARE_MIN 64u
#define CLOCK_STEPS_MAX 16u /* entries looked at to find one to evict */
#define HINT_WORDS 5u
#define NO_ENTRY UINT32_MAX

enum entry_state { ENTRY_FREE, ENTRY_NEW, ENTRY_LIVE, ENTRY_DYING };

/* Two lines, so that what one thread updates does not take a neighbour's entry from another. All
 * that the short way needs is on the first. */
struct entry {
    _Alignas(128) _Atomic uint32_t sequence;
    _Atomic uint16_t state;
    _Atomic uint16_t used;  /* looked up since the clock hand passed */
    _Atomic uint64_t place; /* node << 32 | table */
    _Atomic uint64_t hash;
    _Atomic uint64_t word[HINT_WORDS]; /* pack() */
    struct cds_lfht_node node;
    struct rcu_head rcu;
    struct txn_cache *cache;
    _Atomic uint32_t next_free;
};
_Static_assert(offsetof(struct entry, node) == 64, "one line");

#define NEAR_WAYS 4u
struct near { /* half as many as entries: in a full cache one entry in thirty finds no room */
    _Alignas(32) _Atomic uint64_t way[NEAR_WAYS]; /* tag << 32 | entry */
};

struct txn_cache {
    struct cds_lfht *table;
    struct call_rcu_data *worker;
    struct entry *entry;
    struct near *near;
    void *entry_memory, *near_memory; /* as allocated */
    uint32_t near_mask;
    uint32_t capacity, entry_count;
    /* Written by who inserts: on a line that no lookup needs. */
    _Alignas(128) _Atomic uint64_t free_head; /* tag << 32 | index: a stale one matches no more */
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

static void push_free(struct txn_cache *cache, struct entry *entry)
{
    uint32_t index = (uint32_t)(entry - cache->entry);
    uint64_t head = load(&cache->free_head), next;

    do {
        atomic_store_explicit(&entry->next_free, (uint32_t)head, memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | index;
    } while (!atomic_compare_exchange_weak_explicit(
        &cache->free_head, &head, next, memory_order_release, memory_order_relaxed));
}

static struct entry *pop_free(struct txn_cache *cache)
{
    uint64_t head = atomic_load_explicit(&cache->free_head, memory_order_acquire), next;
    struct entry *entry;

    do {
        if ((uint32_t)head == NO_ENTRY)
            return NULL;
        entry = &cache->entry[(uint32_t)head];
        next = ((head >> 32) + 1) << 32 |
            atomic_load_explicit(&entry->next_free, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(
        &cache->free_head, &head, next, memory_order_acquire, memory_order_acquire));
    atomic_store_explicit(&entry->state, ENTRY_NEW, memory_order_relaxed);
    return entry;
}

/* Grace period over: nobody can be looking at the entry any more. */
static void recycle(struct rcu_head *head)
{
    struct entry *entry = caa_container_of(head, struct entry, rcu);

    (void)atomic_exchange_explicit(&entry->state, ENTRY_FREE, memory_order_acq_rel);
    struct txn_cache *cache = entry->cache;
    push_free(cache, entry);
    atomic_fetch_sub_explicit(&cache->pending, 1, memory_order_release);
}

/* Take out of the table; by one caller only. Read lock held. */
static void retire(struct txn_cache *cache, struct entry *entry)
{
    uint16_t state = ENTRY_LIVE;

    if (!atomic_compare_exchange_strong(&entry->state, &state, ENTRY_DYING))
        return;
    int rc = cds_lfht_del(cache->table, &entry->node);
    CAIRN_ASSERT(rc == 0);
    atomic_fetch_sub_explicit(&cache->live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cache->pending, 1, memory_order_relaxed);
    struct call_rcu_data *own = urcu_bp_get_thread_call_rcu_data();
    urcu_bp_set_thread_call_rcu_data(cache->worker);
    urcu_bp_call_rcu(&entry->rcu, recycle);
    urcu_bp_set_thread_call_rcu_data(own);
}

/* Second chance: pass over entries that were used since the last round, up to a bound. */
static void evict_one(struct txn_cache *cache)
{
    struct entry *victim = NULL;

    for (uint32_t i = 0; i < CLOCK_STEPS_MAX; i++) {
        uint32_t at = atomic_fetch_add_explicit(&cache->hand, 1, memory_order_relaxed);
        struct entry *entry = &cache->entry[at % cache->entry_count];
        if (atomic_load_explicit(&entry->state, memory_order_relaxed) != ENTRY_LIVE)
            continue;
        victim = entry;
        if (atomic_exchange_explicit(&entry->used, 0, memory_order_relaxed) == 0)
            break;
    }
    if (victim != NULL)
        retire(cache, victim);
}

/* ---- hints ---- */

/* Incarnation, then the hint. An item's size and class are in the bits that pool offsets of items
 * and buckets have not: they are multiples of 64 and below OFF_MAX, or this is not kept. */
#define OFF_MAX (UINT64_C(1) << 48)
#define OFF_MASK (OFF_MAX - 64)

static inline bool pack(
    uint64_t word[HINT_WORDS], uint64_t incarnation, const struct txn_hint *hint)
{
    word[0] = incarnation;
    word[1] = hint->item | (uint64_t)hint->item_size << 48;
    word[2] = hint->version;
    word[3] = hint->bucket | (uint64_t)hint->class_ << 48 | (uint64_t)(hint->item_size >> 16) << 56;
    word[4] = hint->bucket_version;
    return ((hint->item | hint->bucket) & ~OFF_MASK) == 0 && hint->item_size < 1u << 24;
}

static inline void unpack(struct txn_hint *ret, const uint64_t word[HINT_WORDS])
{
    ret->item = word[1] & OFF_MASK;
    ret->version = word[2];
    ret->bucket = word[3] & OFF_MASK;
    ret->bucket_version = word[4];
    ret->item_size = (uint32_t)(word[1] >> 48 | word[3] >> 56 << 16);
    ret->class_ = (uint8_t)(word[3] >> 48);
}

/* The words, in a row without a loop. */
static inline void put_words(struct entry *entry, const uint64_t word[HINT_WORDS])
{
    _Static_assert(HINT_WORDS == 5, "one line each");
    atomic_store_explicit(&entry->word[0], word[0], memory_order_release);
    atomic_store_explicit(&entry->word[1], word[1], memory_order_release);
    atomic_store_explicit(&entry->word[2], word[2], memory_order_release);
    atomic_store_explicit(&entry->word[3], word[3], memory_order_release);
    atomic_store_explicit(&entry->word[4], word[4], memory_order_release);
}

static inline void get_words(const struct entry *entry, uint64_t word[HINT_WORDS])
{
    _Static_assert(HINT_WORDS == 5, "one line each");
    word[0] = atomic_load_explicit(&entry->word[0], memory_order_acquire);
    word[1] = atomic_load_explicit(&entry->word[1], memory_order_acquire);
    word[2] = atomic_load_explicit(&entry->word[2], memory_order_acquire);
    word[3] = atomic_load_explicit(&entry->word[3], memory_order_acquire);
    word[4] = atomic_load_explicit(&entry->word[4], memory_order_acquire);
}

/* False: somebody writes it now. */
static inline bool begin_write(struct entry *entry, uint32_t *ret_sequence)
{
    *ret_sequence = atomic_load_explicit(&entry->sequence, memory_order_relaxed);
    return *ret_sequence % 2 == 0 &&
        atomic_compare_exchange_strong_explicit(&entry->sequence, ret_sequence, *ret_sequence + 1,
            memory_order_acquire, memory_order_relaxed);
}

static inline void end_write(
    struct entry *entry, uint32_t sequence, const uint64_t word[HINT_WORDS])
{
    put_words(entry, word);
    atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
}

/* False: somebody writes it now, and what they write is as good. */
static bool write_hint(struct entry *entry, const uint64_t word[HINT_WORDS])
{
    uint32_t sequence;

    if (!begin_write(entry, &sequence))
        return false;
    end_write(entry, sequence, word);
    return true;
}

/* False: it was written meanwhile. */
static bool read_hint(struct entry *entry, uint64_t word[HINT_WORDS])
{
    uint32_t before = atomic_load_explicit(&entry->sequence, memory_order_acquire);

    get_words(entry, word);
    return before % 2 == 0 &&
        before == atomic_load_explicit(&entry->sequence, memory_order_relaxed);
}

/* ---- the short way ---- */

struct key {
    uint64_t place, hash;
};

struct spot { /* of a key in `near` */
    struct near *near;
    uint32_t tag;
};

static inline struct spot spot_of(struct txn_cache *cache, const struct key *key)
{
    uint64_t h = (key->hash ^ key->place) * UINT64_C(0x9e3779b97f4a7c15);

    return (struct spot){&cache->near[h >> 32 & cache->near_mask], (uint32_t)(h ^ h >> 32)};
}

/* Of the way with the tag; of some other, which is not the key's, if there is none. Without
 * branches, which could not be foreseen. */
static inline struct entry *near_entry(struct txn_cache *cache, struct spot spot)
{
    uint64_t found = 0;

    for (unsigned i = 0; i < NEAR_WAYS; i++) {
        uint64_t way = load(&spot.near->way[i]);
        found = way >> 32 == spot.tag ? way : found;
    }
    return &cache->entry[(uint32_t)found];
}

/* In the place of what it was under, of one that is empty, or of the one that the tag picks. */
static void bring_near(struct txn_cache *cache, struct spot spot, const struct entry *entry)
{
    uint64_t way = (uint64_t)spot.tag << 32 | (uint32_t)(entry - cache->entry);
    unsigned at = spot.tag % NEAR_WAYS;

    for (unsigned i = NEAR_WAYS; i-- > 0;) {
        if (load(&spot.near->way[i]) == 0)
            at = i;
    }
    for (unsigned i = 0; i < NEAR_WAYS; i++) {
        if (load(&spot.near->way[i]) >> 32 == spot.tag)
            at = i;
    }
    store(&spot.near->way[at], way);
}

static inline bool is_live_as(const struct entry *entry, const struct key *key)
{
    return atomic_load_explicit(&entry->place, memory_order_acquire) == key->place &&
        atomic_load_explicit(&entry->hash, memory_order_acquire) == key->hash &&
        atomic_load_explicit(&entry->state, memory_order_acquire) == ENTRY_LIVE;
}

static inline bool read_near(struct entry *entry, const struct key *key, uint64_t word[HINT_WORDS])
{
    uint32_t before = atomic_load_explicit(&entry->sequence, memory_order_acquire);

    if (!is_live_as(entry, key) || before % 2 != 0)
        return false;
    get_words(entry, word);
    return before == atomic_load_explicit(&entry->sequence, memory_order_relaxed);
}

/* False: it is not there; or somebody writes it, and the long way finds that out. */
static inline bool write_near(
    struct entry *entry, const struct key *key, const uint64_t word[HINT_WORDS])
{
    uint32_t sequence;

    if (!is_live_as(entry, key) || !begin_write(entry, &sequence))
        return false;
    bool mine = is_live_as(entry, key);
    if (CN_LIKELY(mine))
        put_words(entry, word);
    atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
    return mine;
}

static struct key make_key(uint16_t node, uint32_t table, uint64_t hash)
{
    return (struct key){(uint64_t)node << 32 | table, hash};
}

static unsigned long table_hash(const struct key *key)
{
    return (unsigned long)cn_mix64(key->hash ^ cn_mix64(key->place));
}

static int match(struct cds_lfht_node *node, const void *arg)
{
    const struct key *key = arg;
    const struct entry *entry = caa_container_of(node, struct entry, node);
    return load(&entry->place) == key->place && load(&entry->hash) == key->hash;
}

/* NULL: none. Read lock held. */
static struct entry *look_up(struct txn_cache *cache, const struct key *key)
{
    struct cds_lfht_iter iter;

    cds_lfht_lookup(cache->table, table_hash(key), match, key, &iter);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&iter);
    return node == NULL ? NULL : caa_container_of(node, struct entry, node);
}

/* The long way. NULL: not there, or being written. */
__attribute__((noinline)) static struct entry *find_far(
    struct txn_cache *cache, const struct key *key, uint64_t word[HINT_WORDS])
{
    urcu_bp_read_lock();
    struct entry *entry = look_up(cache, key);
    if (entry != NULL)
        bring_near(cache, spot_of(cache, key), entry);
    if (entry != NULL && !read_hint(entry, word))
        entry = NULL;
    urcu_bp_read_unlock();
    return entry;
}

CN_HOT
bool txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, struct txn_hint *ret_hint)
{
    struct key key = make_key(node, table, hash);
    uint64_t word[HINT_WORDS];
    struct entry *entry = near_entry(cache, spot_of(cache, &key));

    if (CN_UNLIKELY(!read_near(entry, &key, word)))
        entry = find_far(cache, &key, word);
    if (entry == NULL || word[0] == 0 || word[0] != incarnation)
        return false;
    if (CN_UNLIKELY(atomic_load_explicit(&entry->used, memory_order_relaxed) == 0))
        atomic_store_explicit(&entry->used, 1, memory_order_relaxed);
    unpack(ret_hint, word);
    return true;
}

CN_HOT
void txn_cache_hint(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    struct key key = make_key(node, table, hash);

    __builtin_prefetch(near_entry(cache, spot_of(cache, &key)));
}

/* Take an entry within the capacity. NULL: none now (all that are spare wait for their grace
 * period, or nothing could be evicted in the bounded search). Read lock held. */
static struct entry *take_entry(struct txn_cache *cache)
{
    if (atomic_load_explicit(&cache->live, memory_order_relaxed) >= cache->capacity)
        evict_one(cache);
    if (atomic_fetch_add_explicit(&cache->live, 1, memory_order_relaxed) < cache->capacity) {
        struct entry *entry = pop_free(cache);
        if (entry != NULL)
            return entry;
    }
    atomic_fetch_sub_explicit(&cache->live, 1, memory_order_relaxed);
    return NULL;
}

/* Taken and never in the table: no grace period. */
static void give_back(struct txn_cache *cache, struct entry *entry)
{
    atomic_store_explicit(&entry->state, ENTRY_FREE, memory_order_relaxed);
    push_free(cache, entry);
    atomic_fetch_sub_explicit(&cache->live, 1, memory_order_relaxed);
}

/* A key that is not there yet. Read lock held. */
static void insert(struct txn_cache *cache, const struct key *key, const uint64_t *word)
{
    struct entry *entry = take_entry(cache);
    uint32_t sequence;
    if (entry == NULL)
        return;
    if (!begin_write(entry, &sequence)) { /* who came the short way, for what it was before */
        give_back(cache, entry);
        return;
    }
    store(&entry->place, key->place);
    store(&entry->hash, key->hash);
    atomic_store_explicit(&entry->used, 1, memory_order_relaxed);
    end_write(entry, sequence, word);
    cds_lfht_node_init(&entry->node);
    struct cds_lfht_node *there = cds_lfht_add_unique(
        cache->table, table_hash(key), match, key, &entry->node);
    if (there != &entry->node) {
        (void)write_hint(caa_container_of(there, struct entry, node), word);
        give_back(cache, entry);
        return;
    }
    atomic_store(&entry->state, ENTRY_LIVE);
    bring_near(cache, spot_of(cache, key), entry);
}

__attribute__((noinline)) static void put_far(
    struct txn_cache *cache, const struct key *key, const uint64_t word[HINT_WORDS])
{
    urcu_bp_read_lock();
    struct entry *entry = look_up(cache, key);
    if (entry != NULL) {
        (void)write_hint(entry, word);
        bring_near(cache, spot_of(cache, key), entry);
    } else
        insert(cache, key, word);
    urcu_bp_read_unlock();
}

CN_HOT
void txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, const struct txn_hint *hint)
{
    struct key key = make_key(node, table, hash);
    uint64_t word[HINT_WORDS];

    if (CN_UNLIKELY(!pack(word, incarnation, hint)))
        return;
    if (CN_UNLIKELY(!write_near(near_entry(cache, spot_of(cache, &key)), &key, word)))
        put_far(cache, &key, word);
}

void txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    static const uint64_t nothing[HINT_WORDS];
    struct key key = make_key(node, table, hash);

    urcu_bp_read_lock();
    struct entry *entry = look_up(cache, &key);
    if (entry != NULL && write_hint(entry, nothing))
        atomic_store_explicit(&entry->used, 0, memory_order_relaxed);
    urcu_bp_read_unlock();
}

uint32_t txn_cache_count(const struct txn_cache *cache)
{
    return atomic_load_explicit(&cache->live, memory_order_relaxed);
}

/* ---- open and close ---- */

/*
 * liburcu's destructor unmaps its readers' memory while workers still run: a process that exits
 * with a cluster open would crash in the worker. This destructor runs before liburcu's and stops
 * them.
 */
static _Atomic uint32_t open_caches;

__attribute__((destructor)) static void pause_workers(void)
{
    if (atomic_load(&open_caches) != 0)
        urcu_bp_call_rcu_before_fork();
}

static uint32_t round_up(uint32_t entries)
{
    uint32_t n = ENTRIES_MIN;
    while (n < entries && n < ENTRIES_MAX)
        n *= 2;
    return n;
}

/* Zeros that the system has not handed out yet cost nothing; so no aligned_alloc(). */
static void *align(void *memory, uintptr_t alignment)
{
    return (uint8_t *)memory + (-(uintptr_t)memory & (alignment - 1));
}

int txn_cache_open(uint32_t entries, struct txn_cache **ret_cache)
{
    struct txn_cache *cache = aligned_alloc(_Alignof(struct txn_cache), sizeof(*cache));

    if (cache == NULL)
        goto err;
    memset(cache, 0, sizeof(*cache));
    cache->capacity = round_up(entries);
    cache->entry_count = cache->capacity + cache->capacity / 8 + SPARE_MIN;
    cache->entry_memory = calloc(cache->entry_count + 1u, sizeof(struct entry));
    if (cache->entry_memory == NULL)
        goto err_cache;
    cache->entry = align(cache->entry_memory, _Alignof(struct entry));
    cache->near_mask = cache->capacity / 2 - 1;
    cache->near_memory = calloc(cache->near_mask + 2u, sizeof(struct near));
    if (cache->near_memory == NULL)
        goto err_entry;
    cache->near = align(cache->near_memory, _Alignof(struct near));
    cache->table = cds_lfht_new_flavor(
        cache->capacity, cache->capacity, cache->capacity, 0, &urcu_bp_flavor, NULL);
    if (cache->table == NULL)
        goto err_near;
    cache->worker = urcu_bp_create_call_rcu_data(URCU_CALL_RCU_RT, -1);
    if (cache->worker == NULL)
        goto err_table;
    /* liburcu does not join its thread. */
    (void)pthread_detach(urcu_bp_get_call_rcu_thread(cache->worker));
    store(&cache->free_head, NO_ENTRY);
    for (uint32_t i = cache->entry_count; i-- > 0;) {
        cache->entry[i].cache = cache;
        push_free(cache, &cache->entry[i]);
    }
    /* Register this thread now: the first read lock of a thread makes system calls. */
    urcu_bp_read_lock();
    urcu_bp_read_unlock();
    atomic_fetch_add(&open_caches, 1);
    *ret_cache = cache;
    return 0;

err_table:
    (void)cds_lfht_destroy(cache->table, NULL);
err_near:
    free(cache->near_memory);
err_entry:
    free(cache->entry_memory);
err_cache:
    free(cache);
err:
    return cn_fail(-ENOMEM, "no memory for a location cache of %u entries", entries);
}

void txn_cache_close(struct txn_cache **cache)
{
    struct txn_cache *c = *cache;

    if (c == NULL)
        return;
    urcu_bp_read_lock();
    for (uint32_t i = 0; i < c->entry_count; i++)
        retire(c, &c->entry[i]);
    urcu_bp_read_unlock();
    /* Every recycle() has run: not urcu_bp_barrier(), which waits for everybody's callbacks. */
    while (atomic_load_explicit(&c->pending, memory_order_acquire) != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub(&open_caches, 1);
    int rc = cds_lfht_destroy(c->table, NULL);
    CAIRN_ASSERT(rc == 0);
    urcu_bp_call_rcu_data_free(c->worker);
    free(c->near_memory);
    free(c->entry_memory);
    free(c);
    *cache = NULL;
}
