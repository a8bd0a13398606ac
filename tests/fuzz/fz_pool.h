/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_pool.h: a hostile pool: a good one, made once by the real code (items of several sizes, dead
 * blocks, splits, records in the rings, retired epochs), changed by edits that the input lists. An
 * edit names a kind of object and which of them, so that mutations of an input stay meaningful, and
 * mends its checksum where it says so. The pool lies between guard pages.
 *
 * An edit is 12 bytes: what, index, offset (2), mode, value (7). `what`: bits 0..3 region, bit 4
 * mend, bits 5..6 width (1, 2, 4, 8 bytes), bit 7 align the offset to the width.
 */
#ifndef FZ_POOL_H
#define FZ_POOL_H

#include "pmem/pm_store.h"
#include "tests/fuzz/fz_common.h"

enum fz_image {
    FZ_BUSY, /* stopped in the middle of everything: records logged, half applied, not released */
    FZ_CALM, /* in each coordinator's ring one record, and nothing of it is applied */
    FZ_IMAGE_COUNT,
};

enum fz_region {
    FZ_SUPER,
    FZ_DYNAMIC,
    FZ_SCRUB,
    FZ_SLOT_HEADER,
    FZ_SLOT_WORDS, /* tombstones and states */
    FZ_RETIRED,
    FZ_CHUNK,
    FZ_ROOT,
    FZ_BUCKET,
    FZ_ITEM,
    FZ_RECORD,
    FZ_RING,
    FZ_ANYWHERE,
    FZ_REGION_COUNT,
};

enum fz_mode {
    FZ_SET,
    FZ_ADD,
    FZ_XOR,
    FZ_INTERESTING, /* fz_interesting(value) */
    FZ_PLACE,       /* the pool offset of an object: region, index */
    FZ_COPY,        /* the bytes of another object of the region: index */
    FZ_MODE_COUNT,
};
#define FZ_EDIT_SIZE 12u

struct fz_edits { /* what was done */
    uint32_t count;
    bool only_by_peers; /* nothing but rings was edited, and not that of the node itself */
};

struct fz_pool {
    struct pm pm;
    uint64_t size, super_off;
    const struct pm_pool *good; /* attached to the image in use before any edit */
};

/* The one pool, holding one of the images, as it was made. */
struct fz_pool *fz_pool(enum fz_image image);
/* At most 64 edits. */
struct fz_edits fz_pool_edit(struct fz_pool *p, struct fz_input *in);
/* Let nobody write (true), or the code again. */
void fz_pool_protect(struct fz_pool *p, bool read_only);
/* Time stands still but for what is added here, and a little for each look at it. */
void fz_pool_advance(uint64_t ns);
/* Compare-and-swap in it. */
int fz_pool_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old);
/* How many objects a region has; where one lies and its size. */
uint32_t fz_pool_count(struct fz_pool *p, enum fz_region region);
uint64_t fz_pool_place(
    struct fz_pool *p, enum fz_region region, uint32_t index, uint32_t *ret_size);
/* The record that begins at an object of FZ_RECORD, as it is in the image. */
const struct pm_record_pm *fz_pool_record(uint32_t index, uint32_t *ret_size);

/*
 * `cairn inspect` and fsck over an attached pool; fsck is told of the records that the rings hold.
 * Counts items and looks at all their bytes. Returns what pm_fsck() says.
 */
CN_MUST_CHECK int fz_pool_look(
    struct fz_pool *p, struct pm_pool *pool, bool speak, struct pm_fsck_report *ret);

#endif
