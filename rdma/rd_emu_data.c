/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_data.c: the one-sided operations, run by the poster's CPU at post time. No system call, no
 * lock, no allocation.
 *
 * Invariants
 * - Remote memory is touched in relaxed-atomic units of 8 bytes, single bytes at unaligned edges:
 *   other processes work on it at the same time.
 * - An operation looks at the fence word before it executes (fenced: nothing is posted); the poll
 *   that delivers its completion looks again, behind a full barrier and behind all write-backs
 *   (rd_emu_poll.c). An unsignaled operation promises nothing by itself: a flush that covers it
 *   does, or the next post finds the fence.
 * - The header page of a ring belongs to the node: writes and marks into it are refused.
 * - Local memory is checked as on fabrics that register it: for rings in the arena's log memory,
 *   for all else in front of it. A mark behind a flush that has not been polled is refused where
 *   the node says that its CPU makes flushes durable, though here nothing depends on it.
 * - A window (struct emu_window) is a part of one map in which the access at hand is allowed, and
 *   the local memory due there: inside of it nothing else need be asked. Outside, the slow way
 *   finds out, and moves the window. Maps do not change while a connection is up.
 * - Each operation has a fast way, without a call, and a slow one for everything rare: errors, a
 *   window to be moved, the model of a network. What both do is written once (run_*).
 */
#include "rdma/rd_emu.h"

/* ---- checks ---- */

int rd_emu_check_alive(struct emu_conn *c)
{
    int dead = __atomic_load_n(&c->dead, __ATOMIC_ACQUIRE);
    if (CN_UNLIKELY(dead != 0)) /* a fence is told as such; all else is a lost connection */
        return dead == CAIRN_E_FENCED
                   ? cn_fail(CAIRN_E_FENCED, "the node has fenced this connection")
                   : cn_fail(CAIRN_E_NODE_DOWN, "the connection is down");
    if (CN_UNLIKELY(!c->up))
        return cn_fail(CAIRN_E_STATE, "the connection is not up yet");
    return 0;
}

void rd_emu_mark_fenced(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    __atomic_store_n(&c->dead, CAIRN_E_FENCED, __ATOMIC_RELEASE);
    if (c->local_down == 0 && !c->down_delivered) {
        c->local_down = CAIRN_E_FENCED;
        ep->local_downs++;
    }
}

/* Why it may not be posted. */
static __attribute__((noinline, cold)) int fail_post(struct emu_conn *c)
{
    int err = rd_emu_check_alive(c);
    if (err != 0)
        return err;
    if (emu_is_fenced(c)) {
        rd_emu_mark_fenced(c);
        return cn_fail(CAIRN_E_FENCED, "the node has fenced this connection");
    }
    return cn_fail(
        CAIRN_E_AGAIN, "%u operations are outstanding on the connection", c->outstanding);
}

static inline bool has_room(const struct emu_conn *c, unsigned flags)
{
    return (flags & RD_SIGNALED) == 0 || c->outstanding < emu_conn_ep(c)->outstanding_max;
}

/* The map that covers the range, or NULL. */
static const struct emu_map *find_map(const struct emu_conn *c, uint64_t remote, uint64_t size)
{
    uint32_t low = 0, high = c->map_count;
    while (low < high) { /* the first that begins behind `remote` */
        uint32_t middle = (low + high) / 2;
        if (c->maps[middle].pool_off <= remote)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || size == 0)
        return NULL;
    const struct emu_map *map = &c->maps[low - 1];
    return cn_range_inside(remote, size, map->pool_off, map->size) ? map : NULL;
}

/* The part of a map in which an access is allowed: all or nothing, but the header of a ring is
 * never written. And the part of the arena that goes with it. */
static struct emu_window make_window(
    const struct emu_conn *c, const struct emu_map *map, enum emu_access access)
{
    static const unsigned rights[EMU_ACCESS_COUNT] = {
        [EMU_READ] = RD_ACCESS_READ, [EMU_CAS] = RD_ACCESS_ATOMIC, [EMU_WRITE] = RD_ACCESS_WRITE};
    const struct emu_ep *ep = emu_conn_ep(c);
    uint64_t skip = map->ring && access == EMU_WRITE ? RD_RING_HEADER_SIZE : 0;
    if ((map->access & rights[access]) == 0 || skip >= map->size)
        return (struct emu_window){0};
    return (struct emu_window){
        .off = map->pool_off + skip,
        .size = map->size - skip,
        .base = map->base + skip,
        .local = (uintptr_t)ep->memory + (map->ring ? ep->object_size : 0),
        .local_size = map->ring ? ep->log_size : ep->object_size,
    };
}

static inline bool is_inside(const struct emu_window *w, uint64_t remote, uint64_t size)
{
    uint64_t at = remote - w->off;
    return at < w->size && size - 1 < w->size - at; /* not of size 0 */
}

static inline bool is_local_inside(const struct emu_window *w, const void *local, uint64_t size)
{
    uint64_t at = (uintptr_t)local - w->local;
    return at <= w->local_size && size <= w->local_size - at;
}

/* May the fast way be taken? */
static inline bool is_plain(const struct emu_conn *c, const struct emu_window *w, uint64_t remote,
    uint64_t size, unsigned flags)
{
    return __atomic_load_n(&c->dead, __ATOMIC_ACQUIRE) == 0 && c->plain && !emu_is_fenced(c) &&
           is_inside(w, remote, size) && has_room(c, flags);
}

/* Local memory that is not of the arena is our own mistake. But which part of the arena is due
 * depends on what the peer says is a ring: that one is hostile. */
static __attribute__((noinline, cold)) int fail_local(
    const struct emu_conn *c, const struct emu_map *map, const void *local, uint64_t size)
{
    const struct emu_ep *ep = emu_conn_ep(c);
    uint64_t off = (uintptr_t)local - (uintptr_t)ep->memory;
    CAIRN_ASSERT(cn_range_inside(off, size, 0, ep->object_size + ep->log_size));
    return cn_fail(CAIRN_E_FABRIC,
        "the node grants %#llx as part of %s, which is not what is asked for there",
        (unsigned long long)map->pool_off, map->ring ? "a ring" : "an extent");
}

/* Move the window to where the access is, if it is allowed there. `local` NULL: none
 * is involved. */
static int move_window(struct emu_conn *c, enum emu_access access,
    uint64_t remote, const void *local, uint64_t size)
{
    static const char *const names[EMU_ACCESS_COUNT] = {
        [EMU_READ] = "read", [EMU_CAS] = "compare-and-swap", [EMU_WRITE] = "write"};
    const struct emu_map *map = find_map(c, remote, size);
    struct emu_window w = {0};
    if (map != NULL)
        w = make_window(c, map, access);
    if (!is_inside(&w, remote, size))
        return cn_fail(CAIRN_E_FABRIC,
            "%s of %llu bytes at %#llx is not within what the node granted", names[access],
            (unsigned long long)size, (unsigned long long)remote);
    if (local != NULL && !is_local_inside(&w, local, size))
        return fail_local(c, map, local, size);
    c->window[access] = w;
    return 0;
}

/* The same for the slow way, which moves the window. `local` NULL: none is involved. */
static int check_post(struct emu_conn *c, enum emu_access access, uint64_t remote,
    const void *local, uint64_t size, unsigned flags)
{
    const struct emu_window *w = &c->window[access];
    if (__atomic_load_n(&c->dead, __ATOMIC_ACQUIRE) != 0 || !c->up || emu_is_fenced(c) ||
        !has_room(c, flags))
        return fail_post(c);
    if (is_inside(w, remote, size) && (local == NULL || is_local_inside(w, local, size)))
        return 0;
    return move_window(c, access, remote, local, size);
}

static __attribute__((noinline, cold)) int fail_aligned(const char *what, uint64_t remote)
{
    return cn_fail(
        CAIRN_E_FABRIC, "%s at %#llx is not aligned", what, (unsigned long long)remote);
}

/* The operation has run; its completion waits for a poll. */
static inline void complete(struct emu_conn *c, uint64_t wr_id, unsigned flags, bool flush)
{
    struct emu_ep *ep = emu_conn_ep(c);
    if ((flags & RD_MORE) == 0)
        ep->counters.doorbells++;
    if ((flags & RD_SIGNALED) == 0)
        return;
    uint64_t head = ep->completion_head;
    CAIRN_DASSERT(head - ep->completion_tail <= ep->completion_mask);
    struct emu_completion *done = &ep->completions[head & ep->completion_mask];
    ep->completion_head = head + 1;
    done->wr_id = wr_id;
    done->conn = c;
    done->flush = flush;
    c->outstanding++;
    if (flush)
        c->flushes++;
}

/* The same, of `size` bytes of payload, in the slow way: when it is due comes from the model. */
static void complete_slowly(
    struct emu_conn *c, uint64_t wr_id, uint32_t size, unsigned flags, bool flush)
{
    struct emu_ep *ep = emu_conn_ep(c);
    uint64_t due_ns = ep->model.on ? rd_emu_model_post(c, size) : 0;
    if ((flags & RD_SIGNALED) != 0)
        ep->completions[ep->completion_head & ep->completion_mask].due_ns = due_ns;
    complete(c, wr_id, flags, flush);
}

/* ---- copies ---- */

/* One word, atomically at the remote end; the local end may be unaligned. */
static inline void load_word(uint8_t *to, const uint8_t *remote)
{
    uint64_t v = __atomic_load_n((const uint64_t *)(const void *)remote, __ATOMIC_RELAXED);
    memcpy(to, &v, 8);
}

static inline void store_word(uint8_t *remote, const uint8_t *from)
{
    uint64_t v;
    memcpy(&v, from, 8);
    __atomic_store_n((uint64_t *)(void *)remote, v, __ATOMIC_RELAXED);
}

static inline void load_half(uint8_t *to, const uint8_t *remote) /* of a cache line */
{
    load_word(to, remote);
    load_word(to + 8, remote + 8);
    load_word(to + 16, remote + 16);
    load_word(to + 24, remote + 24);
}

static inline void store_half(uint8_t *remote, const uint8_t *from)
{
    store_word(remote, from);
    store_word(remote + 8, from + 8);
    store_word(remote + 16, from + 16);
    store_word(remote + 24, from + 24);
}

static inline void copy_from_remote(uint8_t *local, const uint8_t *remote, size_t size)
{
    while (CN_UNLIKELY((uintptr_t)remote % 8 != 0) && size > 0) {
        *local++ = __atomic_load_n(remote++, __ATOMIC_RELAXED);
        size--;
    }
    for (; size >= 64; size -= 64, local += 64, remote += 64) {
        load_half(local, remote);
        load_half(local + 32, remote + 32);
        __asm__("" : "+r"(size)); /* or where it ends is computed first, at more than it saves */
    }
    for (; size >= 8; size -= 8, local += 8, remote += 8) {
        load_word(local, remote);
        __asm__("" : "+r"(size));
    }
    for (; size > 0; size--)
        *local++ = __atomic_load_n(remote++, __ATOMIC_RELAXED);
}

static inline void copy_to_remote(uint8_t *remote, const uint8_t *local, size_t size)
{
    while (CN_UNLIKELY((uintptr_t)remote % 8 != 0) && size > 0) {
        __atomic_store_n(remote++, *local++, __ATOMIC_RELAXED);
        size--;
    }
    for (; size >= 64; size -= 64, local += 64, remote += 64) {
        store_half(remote, local);
        store_half(remote + 32, local + 32);
        __asm__("" : "+r"(size)); /* as above */
    }
    for (; size >= 8; size -= 8, local += 8, remote += 8) {
        store_word(remote, local);
        __asm__("" : "+r"(size));
    }
    for (; size > 0; size--)
        __atomic_store_n(remote++, *local++, __ATOMIC_RELAXED);
}

/* ---- what was written since the last flush ---- */

/* Grow the last range where the new one touches it, which is what a log does; else append; when the
 * list is full, fall back to one range that covers all. */
static void note_written(struct emu_conn *c, uint64_t off, uint64_t size)
{
    struct emu_range *last = c->range_count > 0 ? &c->ranges[c->range_count - 1] : NULL;
    if (last != NULL && off <= last->end && off + size >= last->off) {
        last->off = cn_min64(last->off, off);
        last->end = cn_max64(last->end, off + size);
        return;
    }
    if (c->range_count < EMU_RANGES) {
        c->ranges[c->range_count++] = (struct emu_range){off, off + size};
        return;
    }
    struct emu_range all = {off, off + size};
    for (uint32_t i = 0; i < c->range_count; i++) {
        all.off = cn_min64(all.off, c->ranges[i].off);
        all.end = cn_max64(all.end, c->ranges[i].end);
    }
    c->ranges[0] = all;
    c->range_count = 1;
}

/* Write back a range's lines, as far as they lie in memory that can have been written. */
static void flush_range(const struct emu_conn *c, const struct emu_range *range)
{
    void (*flush_line)(const void *) = emu_conn_ep(c)->fabric->flush_line;
    for (uint32_t i = 0; i < c->map_count; i++) {
        const struct emu_map *map = &c->maps[i];
        uint64_t off = cn_max64(range->off, map->pool_off);
        uint64_t end = cn_min64(range->end, map->pool_off + map->size);
        if ((map->access & RD_ACCESS_WRITE) == 0 || off >= end)
            continue;
        uintptr_t line = (uintptr_t)(map->base + (off - map->pool_off));
        uintptr_t stop = (uintptr_t)(map->base + (end - map->pool_off));
        for (line -= line % RD_CACHE_LINE; line < stop; line += RD_CACHE_LINE)
            flush_line((const void *)line);
    }
}

/* The barriers behind it are the poll's that delivers the completion: once for all flushes. */
static void flush_written(struct emu_conn *c)
{
    for (uint32_t i = 0; i < c->range_count; i++)
        flush_range(c, &c->ranges[i]);
    c->range_count = 0;
    emu_conn_ep(c)->written_back = true;
}

/* ---- operations ---- */

/* To be written: a no-op where the processor does not know it. */
static inline void fetch_to_write(const uint8_t *line)
{
    __asm__ volatile("prefetchw %0" : : "m"(*line));
}

CN_HOT
void rd_emu_hint(struct rd_conn *rd_conn, uint64_t remote, uint32_t size, enum rd_hint hint)
{
    const struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[hint == RD_HINT_WRITE ? EMU_WRITE : EMU_READ];
    if (CN_UNLIKELY(!is_inside(w, remote, size)))
        return;
    const uint8_t *line = w->base + (remote - w->off), *end = line + size;
    if (hint != RD_HINT_READ) {
        fetch_to_write(line);
        line += RD_CACHE_LINE;
    }
    for (; line < end; line += RD_CACHE_LINE) {
        if (hint == RD_HINT_WRITE)
            fetch_to_write(line);
        else
            __builtin_prefetch(line);
    }
}

static inline void run_read(struct emu_conn *c, uint64_t remote, void *local, uint32_t size)
{
    const struct emu_window *w = &c->window[EMU_READ];
    struct rd_counters *counters = &emu_conn_ep(c)->counters;
    copy_from_remote(local, w->base + (remote - w->off), size);
    counters->reads++;
    counters->bytes_read += size;
}

static __attribute__((noinline)) int read_slowly(struct emu_conn *c, uint64_t wr_id,
    uint64_t remote, void *local, uint32_t size, unsigned flags)
{
    int err = check_post(c, EMU_READ, remote, local, size, flags);
    if (err != 0)
        return err;
    run_read(c, remote, local, size);
    complete_slowly(c, wr_id, size, flags, false);
    return 0;
}

CN_HOT
int rd_emu_read(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, void *local,
    uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[EMU_READ];
    if (CN_UNLIKELY(!is_plain(c, w, remote, size, flags) || !is_local_inside(w, local, size)))
        return read_slowly(c, wr_id, remote, local, size, flags);
    run_read(c, remote, local, size);
    complete(c, wr_id, flags, false);
    return 0;
}

static inline void run_cas(
    struct emu_conn *c, uint64_t remote, uint64_t expected, uint64_t desired, uint64_t *local_old)
{
    const struct emu_window *w = &c->window[EMU_CAS];
    uint64_t *word = (uint64_t *)(void *)(w->base + (remote - w->off));
    uint64_t old = htole64(expected);
    (void)__atomic_compare_exchange_n(word, &old, htole64(desired), false, __ATOMIC_SEQ_CST,
        __ATOMIC_SEQ_CST); /* a full barrier by itself */
    *local_old = le64toh(old);
    emu_conn_ep(c)->counters.cas++;
}

static __attribute__((noinline)) int cas_slowly(struct emu_conn *c, uint64_t wr_id,
    uint64_t remote, uint64_t expected, uint64_t desired, uint64_t *local_old, unsigned flags)
{
    int err = check_post(c, EMU_CAS, remote, local_old, sizeof(*local_old), flags);
    if (err != 0)
        return err;
    if (remote % 8 != 0)
        return fail_aligned("compare-and-swap", remote);
    run_cas(c, remote, expected, desired, local_old);
    complete_slowly(c, wr_id, sizeof(expected), flags, false);
    return 0;
}

CN_HOT
int rd_emu_cas(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[EMU_CAS];
    if (CN_UNLIKELY(remote % 8 != 0 || !is_plain(c, w, remote, sizeof(expected), flags) ||
                    !is_local_inside(w, local_old, sizeof(*local_old))))
        return cas_slowly(c, wr_id, remote, expected, desired, local_old, flags);
    run_cas(c, remote, expected, desired, local_old);
    complete(c, wr_id, flags, false);
    return 0;
}

static inline void run_write(
    struct emu_conn *c, uint64_t remote, const void *local, uint32_t size)
{
    const struct emu_window *w = &c->window[EMU_WRITE];
    struct emu_ep *ep = emu_conn_ep(c);
    copy_to_remote(w->base + (remote - w->off), local, size);
    ep->unordered = true;
    ep->counters.writes++;
    ep->counters.bytes_written += size;
    if (c->write_back)
        note_written(c, remote, size);
}

static __attribute__((noinline)) int write_slowly(struct emu_conn *c, uint64_t wr_id,
    uint64_t remote, const void *local, uint32_t size, unsigned flags)
{
    int err = check_post(c, EMU_WRITE, remote, local, size, flags);
    if (err != 0)
        return err;
    run_write(c, remote, local, size);
    complete_slowly(c, wr_id, size, flags, false);
    return 0;
}

CN_HOT
int rd_emu_write(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[EMU_WRITE];
    if (CN_UNLIKELY(!is_plain(c, w, remote, size, flags) || !is_local_inside(w, local, size)))
        return write_slowly(c, wr_id, remote, local, size, flags);
    run_write(c, remote, local, size);
    complete(c, wr_id, flags, false);
    return 0;
}

static inline void run_flush(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    ep->unordered = true;
    ep->counters.flushes++;
    if (c->write_back)
        flush_written(c);
}

static __attribute__((noinline)) int flush_slowly(
    struct emu_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    int err = check_post(c, EMU_WRITE, remote, NULL, size, flags);
    if (err != 0)
        return err;
    run_flush(c);
    complete_slowly(c, wr_id, 8, flags, true);
    return 0;
}

CN_HOT
int rd_emu_flush(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[EMU_WRITE];
    if (CN_UNLIKELY(!is_plain(c, w, remote, size, flags)))
        return flush_slowly(c, wr_id, remote, size, flags);
    run_flush(c);
    complete(c, wr_id, flags, true);
    return 0;
}

static inline void run_mark(struct emu_conn *c, uint64_t remote, uint64_t value)
{
    const struct emu_window *w = &c->window[EMU_WRITE];
    struct emu_ep *ep = emu_conn_ep(c);
    if (CN_UNLIKELY(ep->written_back))
        emu_store_barrier(); /* it comes behind what was flushed */
    __atomic_store_n((uint64_t *)(void *)(w->base + (remote - w->off)), htole64(value),
        __ATOMIC_RELEASE);
    ep->unordered = true;
    ep->counters.marks++;
    ep->counters.bytes_written += sizeof(value);
    if (c->write_back)
        note_written(c, remote, sizeof(value));
}

static __attribute__((noinline)) int mark_slowly(
    struct emu_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    int err = check_post(c, EMU_WRITE, remote, NULL, sizeof(value), flags);
    if (err != 0)
        return err;
    if (remote % 8 != 0)
        return fail_aligned("mark", remote);
    if (c->flushes > 0 && c->base.durability == RD_DURABILITY_GPSPM)
        return cn_fail(CAIRN_E_STATE, "%u flushes are outstanding, and nothing fences a mark there",
            c->flushes);
    run_mark(c, remote, value);
    complete_slowly(c, wr_id, sizeof(value), flags, false);
    return 0;
}

CN_HOT
int rd_emu_mark(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    const struct emu_window *w = &c->window[EMU_WRITE];
    if (CN_UNLIKELY(remote % 8 != 0 || !is_plain(c, w, remote, sizeof(value), flags) ||
                    c->base.durability == RD_DURABILITY_GPSPM))
        return mark_slowly(c, wr_id, remote, value, flags);
    run_mark(c, remote, value);
    complete(c, wr_id, flags, false);
    return 0;
}
