/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_alloc.c: wrapped allocation functions (ld --wrap) and the set of pointers of each actor.
 * Deletion from the set shifts back what follows, so it needs no tombstones.
 */
#include "tools/sim/sim_alloc.h"

#include <errno.h>
#include <malloc.h>

static struct sim_heap *used_heap;
static __thread bool simulating; /* threads of libraries note nothing */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **ret, size_t alignment, size_t size);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **ret, size_t alignment, size_t size);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static size_t home(const struct sim_heap *heap, const void *p)
{
    return (size_t)cn_mix64((uintptr_t)p) & (heap->size - 1);
}

static void insert(struct sim_heap *heap, void *p);

static void grow(struct sim_heap *heap)
{
    struct sim_heap old = *heap;

    heap->size = old.size == 0 ? 64 : 2 * old.size;
    heap->used = 0;
    heap->slot = __real_calloc(heap->size, sizeof(*heap->slot));
    CAIRN_ASSERT(heap->slot != NULL);
    for (size_t i = 0; i < old.size; i++)
        if (old.slot[i] != NULL)
            insert(heap, old.slot[i]);
    __real_free(old.slot);
}

static void insert(struct sim_heap *heap, void *p)
{
    if (2 * (heap->used + 1) > heap->size)
        grow(heap);
    size_t i = home(heap, p);
    while (heap->slot[i] != NULL)
        i = (i + 1) & (heap->size - 1);
    heap->slot[i] = p;
    heap->used++;
}

static void take(struct sim_heap *heap, const void *p)
{
    if (heap->size == 0)
        return;
    size_t mask = heap->size - 1, i = home(heap, p);
    while (heap->slot[i] != NULL && heap->slot[i] != p)
        i = (i + 1) & mask;
    if (heap->slot[i] == NULL)
        return;
    heap->used--;
    for (size_t j = i;;) {
        heap->slot[i] = NULL;
        do {
            j = (j + 1) & mask;
            if (heap->slot[j] == NULL)
                return;
        } while (((j - home(heap, heap->slot[j])) & mask) < ((j - i) & mask));
        heap->slot[i] = heap->slot[j];
        i = j;
    }
}

void sim_heap_setup(void)
{
    /* Arenas are big and mostly never touched: fresh pages are zero, recycled memory must be
     * cleared. A store is less, and opened for each image that is explored: recycled. */
    (void)mallopt(M_MMAP_THRESHOLD, 192 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024);
}

void sim_heap_use(struct sim_heap *heap)
{
    used_heap = heap;
    simulating = heap != NULL;
}

struct sim_heap *sim_heap_swap(struct sim_heap *heap)
{
    struct sim_heap *old = used_heap;

    sim_heap_use(heap);
    return old;
}

size_t sim_heap_drop(struct sim_heap *heap)
{
    size_t count = heap->used;

    for (size_t i = 0; i < heap->size; i++)
        __real_free(heap->slot[i]);
    __real_free(heap->slot);
    memset(heap, 0, sizeof(*heap));
    return count;
}

static void *note(void *p)
{
    if (simulating && used_heap != NULL && p != NULL)
        insert(used_heap, p);
    return p;
}

static void forget(void *p)
{
    if (simulating && used_heap != NULL && p != NULL)
        take(used_heap, p);
}

/* Is this the allocation that is to fail? */
static bool fails(void)
{
    if (!simulating || used_heap == NULL || ++used_heap->allocations != used_heap->fail_at)
        return false;
    used_heap->failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    if (fails())
        return NULL;
    return note(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    if (fails())
        return NULL;
    return note(__real_calloc(count, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (fails())
        return NULL;
    forget(p);
    void *q = __real_realloc(p, size);
    if (q == NULL && size != 0)
        note(p);
    return note(q);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    if (fails())
        return NULL;
    return note(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **ret, size_t alignment, size_t size)
{
    if (fails())
        return ENOMEM;
    int r = __real_posix_memalign(ret, alignment, size);

    if (r == 0)
        note(*ret);
    return r;
}

char *__wrap_strdup(const char *s)
{
    if (fails())
        return NULL;
    return note(__real_strdup(s));
}

void __wrap_free(void *p)
{
    forget(p);
    __real_free(p);
}

void *sim_calloc(size_t count, size_t size)
{
    void *p = __real_calloc(count, size);

    CAIRN_ASSERT(p != NULL);
    return p;
}

void *sim_realloc(void *p, size_t size)
{
    void *q = __real_realloc(p, size);

    CAIRN_ASSERT(q != NULL);
    return q;
}

void sim_free(void *p)
{
    __real_free(p);
}
