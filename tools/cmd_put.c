/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_put.c: `cairn put`: write one key in a transaction of its own.
 */
#include "tools/tl_kv.h"

static int write_key(struct cairn_tx *tx, void *arg)
{
    struct tl_kv *kv = arg;

    return cairn_put(tx, kv->table, kv->key, kv->key_size, kv->value, kv->value_size);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    return tl_kv_write(self, argc, argv, 3, write_key);
}

const struct tl_command cmd_put = {
    .name = "put",
    .args = "--config FILE [--hex] [--json] TABLE KEY VALUE",
    .summary = "Write a key (VALUE - reads it from the standard input).",
    .example = "  cairn put --config /dev/shm/bank/cairn.conf accounts alice 100\n"
               "  (--json tells the token too, for `cairn resolve`)\n",
    .run = run,
};
