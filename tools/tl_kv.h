/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_kv.h: what `cairn get`, `put` and `delete` share: open the cluster, take table, key and value
 * from the arguments, run one transaction.
 */
#ifndef TL_KV_H
#define TL_KV_H

#include "tools/tl.h"

struct tl_kv {
    const struct tl_command *self;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    uint32_t table;
    uint8_t key[CAIRN_KEY_SIZE_MAX + 1];
    size_t key_size;
    uint8_t *value; /* CAIRN_VALUE_SIZE_MAX bytes */
    size_t value_size;
};

/*
 * Options --config, --hex, --json and `args` plain arguments (TABLE KEY [VALUE]); then run `fn`
 * with the struct tl_kv as its argument. Returns -1 when the transaction ran (*ret_error is its
 * result), else an exit code.
 */
int tl_kv_run(const struct tl_command *self, int argc, char **argv, int args, cairn_tx_fn fn,
    struct tl_kv *kv, bool *ret_json, int *ret_error);
void tl_kv_end(struct tl_kv *kv);
/* A command that writes: run `fn` so, and say what came of it. Returns the exit code. */
int tl_kv_write(
    const struct tl_command *self, int argc, char **argv, int args, cairn_tx_fn fn);
/* The error that the transaction ended with, and of one in doubt its token too; the exit code. */
int tl_kv_error(const struct tl_kv *kv, int error, bool json);

#endif
