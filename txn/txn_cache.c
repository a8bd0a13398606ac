/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cache.c: the location cache: lines addressed by a key's hash, so that what is known of a key
 * costs one cache miss, which can be fetched ahead. Everything in it is a hint, so whatever cannot
 * be done at once is not done.
 *
 * A key lies in one of two lines, or, where both are taken, in the table (txn_cache_table.h). There
 * are twice as many lines as keys asked for: of a full cache one key in twelve is in the table. A
 * line changes hands inside its sequence count; who was in it and has not been looked up lately
 * makes room, and goes to the table. A key that is in the table moves to a line that is free, or
 * not used; what is left of it in the table is older, and a line is looked at first.
 *
 * A dropped key keeps its line with incarnation 0, which nobody looks for, until another needs it.
 */
#include "txn/txn_cache.h"

#include <errno.h>
#include <sys/mman.h>

#include "txn/txn_cache_table.h"

#define ENTRIES_MIN 16u
#define ENTRIES_MAX (1u << 26)
#define HUGE_PAGE ((size_t)2 << 20)
#define TABLE_SHARE 4u /* the table has room for one in so many of the keys asked for */

enum line_state { LINE_EMPTY, LINE_TAKEN };

struct txn_cache {
    struct txn_cache_cell *line;
    uint64_t mask;
    struct txn_cache_table *table;
    _Alignas(128) _Atomic uint32_t taken; /* lines; on a line that no lookup needs */
};

static inline struct txn_cache_key make_key(uint16_t node, uint32_t table, uint64_t hash)
{
    return (struct txn_cache_key){(uint64_t)node << 32 | table, hash};
}

/* The two lines of a key; the hash is good in all its bits already. */
static inline struct txn_cache_cell *first_line(
    const struct txn_cache *cache, const struct txn_cache_key *key)
{
    return &cache->line[(key->hash ^ key->place * UINT64_C(0x9e3779b97f4a7c15)) & cache->mask];
}

static inline struct txn_cache_cell *second_line(
    const struct txn_cache *cache, const struct txn_cache_key *key)
{
    uint64_t at = (key->hash >> 32 ^ key->place * UINT64_C(0xd1342543de82ef95)) & cache->mask;
    struct txn_cache_cell *line = &cache->line[at];

    return line != first_line(cache, key) ? line : &cache->line[at ^ 1];
}

/* Incarnation, then the hint. An item's size and class are in the bits that pool offsets of items
 * and buckets have not: they are multiples of 64 and below OFF_MAX, or this is not kept. */
#define OFF_MAX (UINT64_C(1) << 48)
#define OFF_MASK (OFF_MAX - 64)

static inline bool pack(
    uint64_t word[TXN_CACHE_WORDS], uint64_t incarnation, const struct txn_hint *hint)
{
    word[0] = incarnation;
    word[1] = hint->item | (uint64_t)hint->item_size << 48;
    word[2] = hint->version;
    word[3] = hint->bucket | (uint64_t)hint->class_ << 48 | (uint64_t)(hint->item_size >> 16) << 56;
    word[4] = hint->bucket_version;
    return ((hint->item | hint->bucket) & ~OFF_MASK) == 0 && hint->item_size < 1u << 24;
}

static inline void unpack(struct txn_hint *ret, const uint64_t word[TXN_CACHE_WORDS])
{
    ret->item = word[1] & OFF_MASK;
    ret->version = word[2];
    ret->bucket = word[3] & OFF_MASK;
    ret->bucket_version = word[4];
    ret->item_size = (uint32_t)(word[1] >> 48 | word[3] >> 56 << 16);
    ret->class_ = (uint8_t)(word[3] >> 48);
}

/* ---- lines ---- */

/* Take a line that is free, or whose key has not been looked up since it was last asked for; that
 * key goes to the table. False: it is needed, or being written. */
static bool take_line(struct txn_cache *cache, struct txn_cache_cell *line,
    const struct txn_cache_key *key, const uint64_t word[TXN_CACHE_WORDS])
{
    uint64_t old[TXN_CACHE_WORDS];
    uint32_t sequence;

    if (atomic_load_explicit(&line->used, memory_order_relaxed) != 0 ||
        !txn_cell_begin(line, &sequence))
        return false;
    bool empty = atomic_load_explicit(&line->state, memory_order_relaxed) == LINE_EMPTY;
    const struct txn_cache_key before = {
        atomic_load_explicit(&line->place, memory_order_relaxed),
        atomic_load_explicit(&line->hash, memory_order_relaxed)};
    txn_cell_get(line, old);
    atomic_store_explicit(&line->place, key->place, memory_order_relaxed);
    atomic_store_explicit(&line->hash, key->hash, memory_order_relaxed);
    atomic_store_explicit(&line->state, LINE_TAKEN, memory_order_relaxed);
    txn_cell_set(line, word);
    txn_cell_end(line, sequence);
    if (empty)
        atomic_fetch_add_explicit(&cache->taken, 1, memory_order_relaxed);
    else if (old[0] != 0)
        txn_cache_table_put(cache->table, &before, old);
    return true;
}

static bool is_free(const struct txn_cache_cell *line)
{
    return atomic_load_explicit(&line->state, memory_order_relaxed) == LINE_EMPTY;
}

/* Into one of its lines. False: both are needed; they are asked whether they still are. */
static bool bring_in(struct txn_cache *cache, const struct txn_cache_key *key,
    const uint64_t word[TXN_CACHE_WORDS])
{
    struct txn_cache_cell *a = first_line(cache, key), *b = second_line(cache, key);

    if (!is_free(a) && is_free(b) && take_line(cache, b, key, word))
        return true;
    if (take_line(cache, a, key, word) || take_line(cache, b, key, word))
        return true;
    atomic_store_explicit(&a->used, 0, memory_order_relaxed);
    atomic_store_explicit(&b->used, 0, memory_order_relaxed);
    return false;
}

__attribute__((noinline)) static bool find_elsewhere(
    struct txn_cache *cache, const struct txn_cache_key *key, uint64_t word[TXN_CACHE_WORDS])
{
    struct txn_cache_cell *second = second_line(cache, key);

    if (txn_cell_read(second, key, LINE_TAKEN, word)) {
        txn_cell_touch(second);
        return true;
    }
    if (!txn_cache_table_find(cache->table, key, word))
        return false;
    if (word[0] != 0)
        (void)bring_in(cache, key, word);
    return true;
}

CN_HOT
bool txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, struct txn_hint *ret_hint)
{
    struct txn_cache_key key = make_key(node, table, hash);
    struct txn_cache_cell *first = first_line(cache, &key);
    uint64_t word[TXN_CACHE_WORDS];

    if (CN_LIKELY(txn_cell_read(first, &key, LINE_TAKEN, word)))
        txn_cell_touch(first);
    else if (!find_elsewhere(cache, &key, word))
        return false;
    if (word[0] == 0 || word[0] != incarnation)
        return false;
    unpack(ret_hint, word);
    return true;
}

CN_HOT
void txn_cache_hint(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    struct txn_cache_key key = make_key(node, table, hash);

    __builtin_prefetch(first_line(cache, &key));
}

__attribute__((noinline)) static void put_elsewhere(struct txn_cache *cache,
    const struct txn_cache_key *key, const uint64_t word[TXN_CACHE_WORDS])
{
    if (txn_cell_write(second_line(cache, key), key, LINE_TAKEN, word))
        return;
    if (!bring_in(cache, key, word))
        txn_cache_table_put(cache->table, key, word);
}

CN_HOT
void txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, const struct txn_hint *hint)
{
    struct txn_cache_key key = make_key(node, table, hash);
    uint64_t word[TXN_CACHE_WORDS];

    if (CN_UNLIKELY(!pack(word, incarnation, hint)))
        return;
    if (CN_UNLIKELY(!txn_cell_write(first_line(cache, &key), &key, LINE_TAKEN, word)))
        put_elsewhere(cache, &key, word);
}

void txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    static const uint64_t nothing[TXN_CACHE_WORDS];
    struct txn_cache_key key = make_key(node, table, hash);
    struct txn_cache_cell *line[] = {first_line(cache, &key), second_line(cache, &key)};

    for (unsigned i = 0; i < CN_ARRAY_SIZE(line); i++) {
        if (txn_cell_write(line[i], &key, LINE_TAKEN, nothing))
            atomic_store_explicit(&line[i]->used, 0, memory_order_relaxed);
    }
    txn_cache_table_drop(cache->table, &key);
}

uint32_t txn_cache_count(const struct txn_cache *cache)
{
    return atomic_load_explicit(&cache->taken, memory_order_relaxed) +
        txn_cache_table_count(cache->table);
}

/* ---- open and close ---- */

static uint32_t round_up(uint32_t entries)
{
    uint32_t n = ENTRIES_MIN;
    while (n < entries && n < ENTRIES_MAX)
        n *= 2;
    return n;
}

static size_t lines_size(const struct txn_cache *cache)
{
    return cn_align_up((cache->mask + 1) * sizeof(*cache->line), HUGE_PAGE);
}

/* Zeros, in huge pages where the system has some: who looks for a random line would miss what
 * translates its address as well. NULL: no memory. */
static void *map_lines(size_t size)
{
    uint8_t *memory =
        mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)memory & (HUGE_PAGE - 1);
    if (before != 0)
        (void)munmap(memory, before);
    (void)munmap(memory + before + size, HUGE_PAGE - before);
    if (size > HUGE_PAGE) /* a small one is not to take a whole one */
        (void)madvise(memory + before, size, MADV_HUGEPAGE);
    return memory + before;
}

int txn_cache_open(uint32_t entries, struct txn_cache **ret_cache)
{
    const uint64_t capacity = round_up(entries), lines = 2 * capacity;
    struct txn_cache *cache = aligned_alloc(_Alignof(struct txn_cache), sizeof(*cache));

    if (cache == NULL)
        goto err;
    memset(cache, 0, sizeof(*cache));
    cache->mask = lines - 1;
    cache->line = map_lines(lines_size(cache));
    if (cache->line == NULL)
        goto err_cache;
    if (txn_cache_table_open((uint32_t)(capacity / TABLE_SHARE), &cache->table) != 0)
        goto err_lines;
    *ret_cache = cache;
    return 0;

err_lines:
    (void)munmap(cache->line, lines_size(cache));
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
    txn_cache_table_close(&c->table);
    (void)munmap(c->line, lines_size(c));
    free(c);
    *cache = NULL;
}
