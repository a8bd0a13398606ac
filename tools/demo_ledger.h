/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_ledger.h: what a coordinator context says it did, in a file mapped into memory: it survives
 * the SIGKILL of its process at any instruction (not a power failure; the demo kills processes).
 *
 * One file per writer: a header, then entries by number from 1. An attempt's entry is filled and
 * then becomes INTENDED, before commit is called; its outcome is stored after commit returned and
 * before it is counted anywhere. So an acknowledged commit is in the ledger or was never told to
 * anybody.
 */
#ifndef DEMO_LEDGER_H
#define DEMO_LEDGER_H

#include "tools/smallbank.h"

#define DL_TOKENS_MAX 1024u

enum dl_state {
    DL_NONE = 0,
    DL_INTENDED = 1, /* commit was called, or was about to be: anything may have happened */
    DL_COMMITTED = 2,
    DL_ABORTED = 3,
    DL_UNKNOWN = 4,
};

struct dl_entry { /* 128 bytes */
    uint32_t number;
    uint8_t kind, touch_count;
    uint8_t state; /* enum dl_state; stored last, by a release store */
    uint8_t told;  /* enum dl_state of a verdict by cairn_resolve(): COMMITTED, ABORTED; or NONE */
    int32_t error;
    uint32_t token; /* 1 + its place in the header's tokens; 0: none */
    int64_t delta;
    uint64_t reserved;
    struct sb_touch touch[SB_TOUCHES_MAX];
};
_Static_assert(sizeof(struct dl_entry) == 128, "an entry is two lines");

struct dl_header {
    uint64_t magic;
    uint32_t writer;
    uint32_t entry_max;
    uint32_t entry_count; /* numbers up to it may be used */
    uint32_t token_count;
    char token[DL_TOKENS_MAX][CAIRN_TOKEN_SIZE];
};
#define DL_MAGIC UINT64_C(0x31524744454c4e43)
#define DL_ENTRIES_OFF ((sizeof(struct dl_header) + 4095) / 4096 * 4096)

struct dl {
    struct dl_header *header;
    struct dl_entry *entry; /* entry[number - 1] */
    size_t size;
};
/* Errors: -errno, the text names the file. */
CN_MUST_CHECK int dl_create(const char *path, uint32_t writer, uint32_t entry_max, struct dl *ret);
CN_MUST_CHECK int dl_open(const char *path, struct dl *ret);
void dl_close(struct dl *ledger);
/* The next entry, zeroed, with its number; NULL: full. */
struct dl_entry *dl_next(struct dl *ledger);
void dl_set(struct dl_entry *entry, enum dl_state state);
/* Keep the token of an entry; quietly not when there are too many. */
void dl_keep_token(struct dl *ledger, struct dl_entry *entry, const char *token);
/* NULL: none. */
const char *dl_token(const struct dl *ledger, const struct dl_entry *entry);

#endif
