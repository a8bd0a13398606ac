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
#include "tests/sim/sim.h"

struct sim_version { /* one store of one word */
    uint64_t seq, value;
    uint8_t word; /* of its line */
    bool nic;
};
struct sim_line { /* a line with stores that are not sure to persist, oldest first */
    struct sim_version *version;
    uint16_t count, room;
    uint32_t list_at; /* place in pool->dirty */
};
struct sim_writeback { uint32_t line; uint64_t seq; };

struct sim_pool {
    struct sim *sim;
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
    struct pm_tracer tracer;
    bool traced;
    uint64_t words_lost, words_kept; /* by power failures */
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
/* The owner process is gone: write-backs it had not fenced are no promise. Memory moves to another
 * address. */
void sim_pool_reopen(struct sim_pool *pool);

#endif
