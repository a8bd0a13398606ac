/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_pmem.h: modelled persistent memory: what is visible (the memory itself) and what a power
 * failure may leave of it. Rules R19..R31 of the crash model:
 * - stores of the CPU to one 64-byte line persist in order (a prefix), lines are independent;
 * - 8-byte words written by the fabric persist independently of everything else;
 * - a word never persists as anything but one of its successive values;
 * - flush + fence of the CPU, or an acknowledged flush of the fabric, make sure of what was before.
 */
#ifndef SIM_PMEM_H
#define SIM_PMEM_H

#include "pmem/pm.h"
#include "tools/sim/sim.h"

struct sim_version { /* one store of one word */
    uint64_t seq, value;
    uint8_t word; /* of its line */
    bool nic;
    uint32_t origin; /* nic: the request that wrote it, sim_wr.number */
};
struct sim_line { /* a line with stores that are not sure to persist, oldest first */
    struct sim_version *version;
    uint16_t count, room;
    uint32_t list_at; /* place in pool->dirty */
};
struct sim_writeback { uint32_t line; uint64_t seq; };

struct sim_pool {
    struct sim *sim; /* NULL: a pool on its own, of no run */
    struct sim_actor *owner; /* whose stores these are: may yield at them */
    void *allocation;
    uint8_t *visible, *persistent; /* `visible` is aligned, in `allocation` */
    uint64_t size;
    struct sim_line *line; /* per 64 bytes */
    uint32_t *dirty;       /* numbers of lines with versions */
    uint32_t dirty_count;
    struct sim_writeback *writeback; /* started by the owner's flushes, not fenced */
    uint32_t writeback_count, writeback_room;
    uint64_t seq;
    uint64_t folds; /* how often versions became durable */
    uint32_t origin; /* of what sim_pool_nic_store() stores */
    struct pm_tracer tracer;
    bool traced;
    bool keeps_all; /* caches are in the power-fail domain, as with SIM_EADR */
    uint64_t words_lost, words_kept; /* by power failures */
    /* Lines written back by the owner, and of them those with nothing to write back; its fences,
     * and those before which nothing was written back: work for nothing. */
    uint64_t flush_lines, flush_lines_clean, fences, fences_idle;
    /* A word of the fabric in this range of which nothing persists becomes rubbish, not what it was
     * before: who uses it without a checksum shows. */
    uint64_t garbage_from, garbage_end, words_spoiled;
    /* Versions are about to become durable for sure; where all is kept, one has just become so.
     * `what` names the fence, or says who does it. Must not change the pool; NULL: nobody looks. */
    void (*before_persist)(void *arg, struct sim_pool *pool, const char *what);
    void *before_persist_arg;
    /* While it is called, which: of what is written back by the owner's fence; of these words, up
     * to `seq`; of all in these lines. */
    struct {
        enum sim_persist {
            SIM_PERSIST_OTHER, SIM_PERSIST_FENCE, SIM_PERSIST_WORDS, SIM_PERSIST_LINES
        } what;
        uint64_t off, size, seq;
    } persisting;
};

struct sim_pool *sim_pool_new(struct sim *sim, uint64_t size);
void sim_pool_delete(struct sim_pool *pool);
/* A struct pm over the visible memory. */
void sim_pool_pm(struct sim_pool *pool, const struct cn_env *env, struct pm *ret);
/* All that is visible is persistent (after formatting). */
void sim_pool_settle(struct sim_pool *pool);
/* Words written by the fabric. */
void sim_pool_nic_store(struct sim_pool *pool, uint64_t off, const void *data, uint64_t size);
/* The word at `off` has just been stored by the CPU on behalf of a peer. */
void sim_pool_cpu_store(struct sim_pool *pool, uint64_t off);
/* The CPU writes the lines of [off, off+size) back and fences. */
void sim_pool_write_back(struct sim_pool *pool, uint64_t off, uint64_t size);
/* Versions up to `seq` of the words in [off, off+size) are persistent for sure. */
void sim_pool_persist(struct sim_pool *pool, uint64_t off, uint64_t size, uint64_t seq);
/* Power failure: one of the admissible images, drawn from the tape, becomes visible and persistent.
 */
void sim_pool_power_fail(struct sim_pool *pool);
/* A power failure keeps all of it. */
bool sim_pool_keeps_all(const struct sim_pool *pool);
/* Nothing is dirty any more, whatever was; neither image changes. */
void sim_pool_forget(struct sim_pool *pool);
/* Lines that are dirty in `from` become so in `to`, which has none: their bytes, visible and
 * persistent, and the versions between. Write-backs under way are not taken along. */
void sim_pool_copy_dirty(struct sim_pool *to, const struct sim_pool *from);

/*
 * What is admissible of one line, the only place that says so. The first `cpu_kept` stores of the
 * CPU persist, and those of the fabric for which `keep` says so; it is asked only where that is
 * still open: a later value of a word cannot persist without an earlier store of the CPU to it.
 * `image`: the line's persistent words; they become those of the line then. Returns how many
 * versions persisted.
 */
typedef bool (*sim_keep_fn)(void *arg, uint16_t version);
uint32_t sim_line_image(const struct sim_line *line, uint16_t cpu_kept, sim_keep_fn keep,
    void *arg, uint8_t *image);
/* Stores of the CPU among the line's versions. */
uint16_t sim_line_cpu_count(const struct sim_line *line);

/* The owner process is gone: write-backs it had not fenced are no promise. Memory moves to another
 * address. */
void sim_pool_reopen(struct sim_pool *pool);

/* For who watches (sim_fabric_tell.c): what the fence is about to make durable of what the fabric
 * wrote, and, before the versions are forgotten, what a power failure has taken. */
void sim_tell_fence(const struct sim_pool *pool);
void sim_tell_loss(const struct sim_pool *pool);

#endif
