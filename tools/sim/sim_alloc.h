/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_alloc.h: memory of actors. A crashed actor's stack is gone and with it the pointers to what
 * it was building (a node in the middle of its start has no handle yet). So allocations of product
 * code made while an actor runs are noted with the actor (the linker wraps malloc and its kin) and
 * freed when it crashes. The simulator's own memory goes through sim_calloc() and is not noted.
 */
#ifndef SIM_ALLOC_H
#define SIM_ALLOC_H

#include "include/internal/cn_base.h"

struct sim_heap { /* a set of pointers: open addressing, NULL = empty */
    void **slot;
    size_t size, used; /* size is a power of two */
    uint64_t allocations; /* asked for so far */
    uint64_t fail_at;     /* this one fails, from 1; 0: none */
    bool failed;          /* it has */
};

/* Once before anything else. */
void sim_heap_setup(void);
/* NULL: note nothing. The scheduler sets it around each run of a fiber. */
void sim_heap_use(struct sim_heap *heap);
/* The same; returns the one that was used. */
struct sim_heap *sim_heap_swap(struct sim_heap *heap);
/* Free all that is noted. Returns how much it was. */
size_t sim_heap_drop(struct sim_heap *heap);

void *sim_calloc(size_t count, size_t size); /* never NULL */
void *sim_realloc(void *p, size_t size);     /* never NULL */
void sim_free(void *p);

#endif
