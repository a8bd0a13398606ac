/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn.h: what the sub-benchmarks of `cairn bench` share: a cluster to measure on, the raw operations
 * of the fabric beside it, and a look inside a context.
 *
 *   cmd_bench.c      the table of sub-benchmarks
 *   bn_rtt.c         `bench rtt`: options, the loop of samples
 *   bn_rtt_ratio.c   its targets
 *   bn_rtt_report.c  its output
 *   bn_keys.c        the keys that it reads and writes, and where they lie
 *   bn_raw.c         one-sided operations without transactions
 *   bn_histogram.c   latencies
 *   bn_recovery.c    `bench recovery`: starts after a crash (its files: bn_recovery.h)
 *   bn_check.c       `bench check`: the checker of histories
 */
#ifndef BN_H
#define BN_H

#include "rdma/rd.h"
#include "tools/bench/bn_histogram.h"
#include "tools/tl_cluster.h"

extern const struct tl_command bn_rtt, bn_recovery, bn_check;

/* ---- bn_raw.c ---- */
struct bn_raw;
struct bn_word {
    uint64_t off, word; /* where a lock word lies, and its value while it is unlocked */
    uint32_t size;      /* of the object that begins with it */
};
/* Connect as a coordinator to the first `nodes` nodes of the configuration. It takes a slot of each
 * and waits like a context. */
CN_MUST_CHECK int bn_raw_open(
    const struct txn_config *config, uint32_t nodes, struct bn_raw **ret_raw);
void bn_raw_close(struct bn_raw **raw);
enum rd_durability bn_raw_durability(const struct bn_raw *raw, uint32_t node);
/* Each posts, and returns when all is completed. Errors: those of the fabric, CAIRN_E_TIMEOUT. */
CN_MUST_CHECK int bn_raw_read(
    struct bn_raw *raw, uint32_t node, const struct bn_word *word, uint32_t size);
/* Compare-and-swaps that change nothing: from the word to itself. CAIRN_E_CONFLICT: it is another.
 */
CN_MUST_CHECK int bn_raw_cas(struct bn_raw *raw, uint32_t node, const struct bn_word *word);
/* On nodes 0 to count - 1: the same and a read of the object in one go, as get_for_update does. */
CN_MUST_CHECK int bn_raw_lock_read(struct bn_raw *raw, uint32_t count, const struct bn_word *words);
/* CAS and read of one object, and a read of another, in one go: as a transaction begins that reads
 * one key and locks another. */
CN_MUST_CHECK int bn_raw_lock_read_read(struct bn_raw *raw, uint32_t node,
    const struct bn_word *word, const struct bn_word *other);
/* On nodes 0 to count - 1: write `size` zero bytes into the ring, where they are no record, and
 * flush them. */
CN_MUST_CHECK int bn_raw_flush(struct bn_raw *raw, uint32_t count, uint32_t size);
/* Wait until the word is unlocked. Errors: also CAIRN_E_TIMEOUT. */
CN_MUST_CHECK int bn_raw_await_free(struct bn_raw *raw, uint32_t node, const struct bn_word *word);

/* ---- bn_keys.c ---- */
#define BN_KEYS 64u /* of each kind on each node */
#define BN_KEY_SIZE 8u
#define BN_VALUE_SIZE 16u /* with key and header: an item of 64 bytes */

struct bn_key {
    char key[BN_KEY_SIZE];
    struct bn_word at;
};
struct bn_keys {
    uint32_t table, nodes;
    struct bn_key still[TL_NODES_MAX][BN_KEYS];   /* only read */
    struct bn_key written[TL_NODES_MAX][BN_KEYS]; /* at.word is the first one */
};
extern const char bn_value[BN_VALUE_SIZE];
/* Make them, and read each: they are warm then. Keys that are there already and not a benchmark's
 * are an error. Errors: CAIRN_E_CONFIG, those of transactions. */
CN_MUST_CHECK int bn_keys_make(struct cairn_ctx *ctx, const struct txn_config *config,
    uint32_t table, uint32_t nodes, struct bn_keys *keys);
CN_MUST_CHECK int bn_keys_delete(struct cairn_ctx *ctx, const struct bn_keys *keys);
/* What the context's endpoint has counted; returns its round trips. */
uint64_t bn_ctx_counters(const struct cairn_ctx *ctx, struct rd_counters *ret);
/* Bytes of the record that its last commit wrote to a node (index in the configuration). */
uint32_t bn_ctx_record_size(const struct cairn_ctx *ctx, uint32_t node);

#endif
