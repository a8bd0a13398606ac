/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_seed.h: the program that writes the seed corpus: the same bytes in every run. Seeds are made
 * by the product's own encoders, with checksums left out where targets mend them.
 */
#ifndef FZ_SEED_H
#define FZ_SEED_H

#include "tests/fuzz/fz_common.h"

/* Write FOLDER/<target>/<name>. */
void fz_seed_put(const char *target, const char *name, const void *data, size_t size);

/* A record in `buf`, with its crc zero (mended in the target). Returns its size. `kind` 0..7. */
uint32_t fz_seed_record(uint8_t *buf, uint32_t size_max, unsigned kind, uint64_t seq,
    const struct pm_place *place);
#define FZ_SEED_RECORDS 8u

void fz_seed_wire(void);
void fz_seed_text(void);
void fz_seed_pool(void);

#endif
