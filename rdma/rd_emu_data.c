/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_data.c: the one-sided operations, run by the poster's CPU at post time. No system call, no
 * lock, no allocation.
 *
 * Invariants
 * - Remote memory is touched in relaxed-atomic units of 8 bytes, single bytes at unaligned edges:
 *   other processes work on it at the same time.
 * - An operation looks at the fence word before it executes (fenced: nothing is posted) and after
 *   it, behind a full barrier (fenced: it completes with CAIRN_E_FENCED; it may have taken effect).
 *   Who sets the word and then, behind a full barrier, reads the ring, sees every write whose flush
 *   succeeded.
 * - The header page of a ring belongs to the node: writes and marks into it are refused.
 * - Local memory is checked as on fabrics that register it: for rings in the arena's log memory,
 *   for all else in front of it. A mark behind a flush that has not been polled is refused where
 *   the node says that its CPU makes flushes durable, though here nothing depends on it.
 */
#include "rdma/rd_emu.h"

struct post {
    struct emu_conn *conn;
    uint64_t wr_id;
    unsigned flags;
    bool flush;
};

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

static bool is_fenced(const struct emu_conn *c)
{
    return c->ring_header != NULL && __atomic_load_n(&c->ring_header->fence, __ATOMIC_ACQUIRE) != 0;
}

/* A post met the fence word: the connection is down from now on, and poll says so once. */
static void mark_fenced(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    __atomic_store_n(&c->dead, CAIRN_E_FENCED, __ATOMIC_RELEASE);
    if (c->local_down == 0 && !c->down_delivered) {
        c->local_down = CAIRN_E_FENCED;
        ep->local_downs++;
    }
}

static int check_post(struct emu_conn *c, unsigned flags)
{
    int err = rd_emu_check_alive(c);
    if (CN_UNLIKELY(err != 0))
        return err;
    if (CN_UNLIKELY((flags & RD_SIGNALED) != 0 &&
                    c->outstanding >= emu_conn_ep(c)->outstanding_max))
        return cn_fail(CAIRN_E_AGAIN, "%u operations are outstanding on the connection",
            c->outstanding);
    if (CN_UNLIKELY(is_fenced(c))) {
        mark_fenced(c);
        return cn_fail(CAIRN_E_FENCED, "the node has fenced this connection");
    }
    return 0;
}

/* The map that covers the range and allows the access, or NULL. */
static const struct emu_map *find_map(
    struct emu_conn *c, uint64_t remote, uint64_t size, unsigned access)
{
    const struct emu_map *map = &c->maps[c->map_hint];
    if (c->map_hint >= c->map_count || !cn_range_inside(remote, 1, map->pool_off, map->size)) {
        uint32_t low = 0, high = c->map_count;
        while (low < high) { /* the first that begins behind `remote` */
            uint32_t middle = (low + high) / 2;
            if (c->maps[middle].pool_off <= remote)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0)
            return NULL;
        c->map_hint = low - 1;
        map = &c->maps[c->map_hint];
    }
    if (size == 0 || !cn_range_inside(remote, size, map->pool_off, map->size))
        return NULL;
    if ((map->access & access) != access)
        return NULL;
    bool header = map->ring && remote - map->pool_off < RD_RING_HEADER_SIZE;
    if (header && (access & RD_ACCESS_WRITE) != 0)
        return NULL;
    return map;
}

static int fail_access(const char *what, uint64_t remote, uint64_t size)
{
    return cn_fail(CAIRN_E_FABRIC, "%s of %llu bytes at %#llx is not within what the node granted",
        what, (unsigned long long)size, (unsigned long long)remote);
}

/* Local memory that is not of the arena is our own mistake. But which part of the arena is due
 * depends on what the peer says is a ring: that one is hostile. */
static int check_local(
    const struct emu_conn *c, const struct emu_map *map, const void *local, uint64_t size)
{
    const struct emu_ep *ep = emu_conn_ep(c);
    uint64_t off = (uintptr_t)local - (uintptr_t)ep->memory;
    CAIRN_ASSERT(cn_range_inside(off, size, 0, ep->object_size + ep->log_size));
    if (CN_LIKELY(map->ring ? cn_range_inside(off, size, ep->object_size, ep->log_size)
                            : cn_range_inside(off, size, 0, ep->object_size)))
        return 0;
    return cn_fail(CAIRN_E_FABRIC,
        "the node grants %#llx as part of %s, which is not what is asked for there",
        (unsigned long long)map->pool_off, map->ring ? "a ring" : "an extent");
}

/* The operation has run: look at the fence word, queue the completion. */
static void complete(const struct post *p)
{
    struct emu_conn *c = p->conn;
    struct emu_ep *ep = emu_conn_ep(c);
    int status = 0;
    if (CN_UNLIKELY(is_fenced(c))) {
        status = CAIRN_E_FENCED;
        mark_fenced(c);
    }
    if ((p->flags & RD_MORE) == 0)
        ep->counters.doorbells++;
    if ((p->flags & RD_SIGNALED) == 0)
        return;
    CAIRN_ASSERT(ep->completion_head - ep->completion_tail < ep->completion_size);
    ep->completions[ep->completion_head++ & (ep->completion_size - 1)] =
        (struct emu_completion){
            .wr_id = p->wr_id, .conn = c->index, .status = status, .flush = p->flush};
    c->outstanding++;
    c->flushes += p->flush;
}

/* ---- copies ---- */

static void copy_from_remote(uint8_t *local, const uint8_t *remote, size_t size)
{
    while (size > 0 && (uintptr_t)remote % 8 != 0) {
        *local++ = __atomic_load_n(remote++, __ATOMIC_RELAXED);
        size--;
    }
    for (; size >= 8; size -= 8, local += 8, remote += 8) {
        uint64_t v = __atomic_load_n((const uint64_t *)(const void *)remote, __ATOMIC_RELAXED);
        memcpy(local, &v, 8);
    }
    for (; size > 0; size--)
        *local++ = __atomic_load_n(remote++, __ATOMIC_RELAXED);
}

static void copy_to_remote(uint8_t *remote, const uint8_t *local, size_t size)
{
    while (size > 0 && (uintptr_t)remote % 8 != 0) {
        __atomic_store_n(remote++, *local++, __ATOMIC_RELAXED);
        size--;
    }
    for (; size >= 8; size -= 8, local += 8, remote += 8) {
        uint64_t v;
        memcpy(&v, local, 8);
        __atomic_store_n((uint64_t *)(void *)remote, v, __ATOMIC_RELAXED);
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

static void flush_written(struct emu_conn *c)
{
    for (uint32_t i = 0; i < c->range_count; i++)
        flush_range(c, &c->ranges[i]);
    c->range_count = 0;
    __asm__ volatile("sfence" ::: "memory"); /* all write-backs are done ... */
    emu_full_barrier();                      /* ... before the look at the fence word */
}

/* ---- operations ---- */

int rd_emu_read(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, void *local,
    uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    int err = check_post(c, flags);
    if (err != 0)
        return err;
    const struct emu_map *map = find_map(c, remote, size, RD_ACCESS_READ);
    if (map == NULL)
        return fail_access("read", remote, size);
    err = check_local(c, map, local, size);
    if (err != 0)
        return err;
    copy_from_remote(local, map->base + (remote - map->pool_off), size);
    emu_conn_ep(c)->counters.reads++;
    emu_conn_ep(c)->counters.bytes_read += size;
    complete(&(struct post){c, wr_id, flags, false});
    return 0;
}

int rd_emu_cas(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    int err = check_post(c, flags);
    if (err != 0)
        return err;
    const struct emu_map *map = find_map(c, remote, 8, RD_ACCESS_ATOMIC);
    if (map == NULL || remote % 8 != 0)
        return fail_access("compare-and-swap", remote, 8);
    err = check_local(c, map, local_old, sizeof(*local_old));
    if (err != 0)
        return err;
    uint64_t *word = (uint64_t *)(void *)(map->base + (remote - map->pool_off));
    uint64_t old = htole64(expected);
    (void)__atomic_compare_exchange_n(
        word, &old, htole64(desired), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    *local_old = le64toh(old);
    emu_full_barrier();
    emu_conn_ep(c)->counters.cas++;
    complete(&(struct post){c, wr_id, flags, false});
    return 0;
}

int rd_emu_write(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    int err = check_post(c, flags);
    if (err != 0)
        return err;
    const struct emu_map *map = find_map(c, remote, size, RD_ACCESS_WRITE);
    if (map == NULL)
        return fail_access("write", remote, size);
    err = check_local(c, map, local, size);
    if (err != 0)
        return err;
    copy_to_remote(map->base + (remote - map->pool_off), local, size);
    note_written(c, remote, size);
    emu_full_barrier();
    emu_conn_ep(c)->counters.writes++;
    emu_conn_ep(c)->counters.bytes_written += size;
    complete(&(struct post){c, wr_id, flags, false});
    return 0;
}

int rd_emu_flush(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    int err = check_post(c, flags);
    if (err != 0)
        return err;
    if (find_map(c, remote, size, RD_ACCESS_WRITE) == NULL)
        return fail_access("flush", remote, size);
    flush_written(c);
    emu_conn_ep(c)->counters.flushes++;
    complete(&(struct post){c, wr_id, flags, true});
    return 0;
}

int rd_emu_mark(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    struct emu_conn *c = emu_conn(rd_conn);
    int err = check_post(c, flags);
    if (err != 0)
        return err;
    const struct emu_map *map = find_map(c, remote, 8, RD_ACCESS_WRITE);
    if (map == NULL || remote % 8 != 0)
        return fail_access("mark", remote, 8);
    if (CN_UNLIKELY(c->base.durability == RD_DURABILITY_GPSPM && c->flushes > 0))
        return cn_fail(CAIRN_E_STATE, "%u flushes are outstanding, and nothing fences a mark there",
            c->flushes);
    uint64_t *word = (uint64_t *)(void *)(map->base + (remote - map->pool_off));
    __atomic_store_n(word, htole64(value), __ATOMIC_RELEASE);
    note_written(c, remote, 8);
    emu_full_barrier();
    emu_conn_ep(c)->counters.marks++;
    emu_conn_ep(c)->counters.bytes_written += 8;
    complete(&(struct post){c, wr_id, flags, false});
    return 0;
}
