/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_format.h: what pm_geometry.c, pm_format.c, pm_attach.c, pm_pool.c share among themselves.
 */
#ifndef PM_FORMAT_H
#define PM_FORMAT_H

#include "pmem/pm_pool.h"

/* From the superblock on. */
#define PM_SUPER_DYN_OFF 4096u
#define PM_SUPER_DYN_STRIDE 256u
#define PM_SCRUB_OFF 8192u
#define PM_SUPER_AREA_SIZE 12288u
/* From a slot's start on. */
#define PM_SLOT_COPY_STRIDE 128u
#define PM_SLOT_HEADER_SIZE 256u

/* Feature bits that this version knows. */
#define PM_INCOMPAT_KNOWN UINT64_C(0)
#define PM_RO_COMPAT_KNOWN UINT64_C(0)

/* Errors: CAIRN_E_CONFIG. */
CN_MUST_CHECK int pm_geometry_check(const struct pm_geometry *geometry);
/* Set the places and strides. Assumes: geometry, pool_size and the extents are set. */
void pm_geometry_place(struct pm_super *super);
/* Least size of the first extent. Assumes: placed. */
uint64_t pm_geometry_extent_min(const struct pm_super *super);
/* NULL: extents and places are sound. Else what is wrong. */
const char *pm_geometry_check_places(const struct pm_super *super);

/* Static part of a superblock for `super`, with its crc. */
void pm_super_encode(const struct pm_super *super, struct pm_super_pm *ret);
/* Check a copied static part; `super_off`: where it was found, `size`: of the pool. Errors as
 * pm_attach(). */
CN_MUST_CHECK int pm_super_decode(const struct pm_super_pm *media, uint64_t super_off,
    uint64_t size, bool read_only, struct pm_super *ret);
/* A copy of the dynamic part with its crc. */
uint32_t pm_super_dyn_crc(uint32_t crc_seed, const struct pm_super_dyn_pm *dyn);

/* ---- opener (pm_opener.c) ---- */
struct pm_opener { uint64_t pid, start; struct cn_uuid boot; };
/* This process. All zero where /proc tells nothing. */
void pm_opener_self(struct pm_opener *ret);
/* Does that process still exist (and is not this one)? */
bool pm_opener_is_alive(const struct pm_opener *opener);

/* ---- the file (pm_file.c) ---- */
struct pm_file { /* a read-only mapping of a pool file, looked at from outside libpmemobj */
    int fd;
    const uint8_t *base;
    uint64_t size;
};
/* Errors: -errno, CAIRN_E_NOT_A_POOL. */
CN_MUST_CHECK int pm_file_map(const char *path, struct pm_file *ret);
void pm_file_unmap(struct pm_file *file);
/* Find the superblock: libpmemobj's header, our root object, or where that fails a search.
 * Errors: CAIRN_E_NOT_A_POOL, _LAYOUT_VERSION, _CORRUPT_SUPER, _POOL_SIZE. */
CN_MUST_CHECK int pm_file_find_super(const struct pm_file *file, uint64_t *ret_super_off);

#endif
