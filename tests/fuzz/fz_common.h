/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_common.h: what all fuzz targets share: reading decisions from the input, memory with guard
 * pages, the fixed identities of seeds and targets.
 *
 * A target is a function LLVMFuzzerTestOneInput() over bytes. libFuzzer, AFL++ (both bring a main)
 * and fz_main.c (runs files: the corpus as a test of every build) call it.
 *
 * Checksums are mended in the targets, not by a mutator of one of the fuzzers, so that every fuzzer
 * and every replay sees the same bytes: a field that must hold a checksum says in the input how it
 * is to be filled in (enum fz_mend). A target keeps no state from one input to the next.
 */
#ifndef FZ_COMMON_H
#define FZ_COMMON_H

#include "pmem/pm_record.h"

#if defined(__SANITIZE_ADDRESS__)
#define FZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FZ_ASAN 1
#endif
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Optional in a target. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The code under test contradicts its documentation or the reference: stop here. */
#define FZ_NEED(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fz_die(__FILE__, __LINE__, #cond, __VA_ARGS__);                                        \
    } while (0)
CN_NORETURN void fz_die(const char *file, int line, const char *cond, const char *format, ...)
    CN_PRINTF(4, 5);

/* ---- decisions ---- */

struct fz_input {
    const uint8_t *at;
    size_t left;
};
/* What the input has no bytes for is zero. */
uint8_t fz_u8(struct fz_input *in);
uint16_t fz_u16(struct fz_input *in);
uint32_t fz_u32(struct fz_input *in);
uint64_t fz_u64(struct fz_input *in);
/* At most `max` bytes; *ret_size says how many. */
const uint8_t *fz_bytes(struct fz_input *in, size_t max, size_t *ret_size);
/* A number that is of interest somewhere: a limit, a size, an offset; `choice` picks it. */
uint64_t fz_interesting(uint8_t choice);

/* ---- guard pages ---- */

/*
 * A copy of `size` bytes that ends right before a page that cannot be touched (so it is aligned as
 * its size is), or begins right after one (aligned to a page). Valid until the next call with the
 * same `lane` (0 .. 3). `size` at most FZ_GUARD_MAX; `data` NULL: zeros.
 */
#define FZ_GUARD_MAX (2u * 1024 * 1024)
#define FZ_GUARD_LANES 4u
void *fz_guard_end(unsigned lane, const void *data, size_t size);
void *fz_guard_begin(unsigned lane, const void *data, size_t size);
/* Memory between two such pages; `size` a multiple of 4096. Stays for ever. */
void *fz_guard_new(size_t size);

/* ---- checksums ---- */

enum fz_mend { /* in the place of a record's crc */
    FZ_MEND_RIGHT = 0,
    FZ_MEND_EARLIER_LAP = 1, /* right for a log offset one ring earlier */
    FZ_MEND_CRC_ONLY = 2,    /* the seal stays as it is */
    FZ_MEND_OTHER_NONCE = 3,
    FZ_MEND_OTHER_EPOCH = 4,
    FZ_MEND_COUNT, /* from here on: the bytes are the crc */
};
/* Mend a record header's crc, and seal, as the input wishes. Assumes: `size` bytes are there. */
void fz_mend_record(uint8_t *record, uint32_t size, const struct pm_place *place, uint64_t lap);

/* ---- fixed identities ---- */

#define FZ_NODE 1u
#define FZ_SLOT 1u
#define FZ_EPOCH 7u
#define FZ_NONCE UINT64_C(0x1122334455667788)
#define FZ_TABLE 1u
extern const struct cn_uuid fz_pool_uuid, fz_cluster_uuid, fz_session_uuid;

/* A file whose contents are these bytes, for code that reads files; the same path at each call. */
const char *fz_file(const void *data, size_t size);

#endif
