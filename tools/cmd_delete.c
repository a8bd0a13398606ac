/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_delete.c: `cairn delete`: delete one key in a transaction of its own.
 */
#include "tools/tl_kv.h"

static int delete_key(struct cairn_tx *tx, void *arg)
{
    struct tl_kv *kv = arg;

    return cairn_delete(tx, kv->table, kv->key, kv->key_size);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    return tl_kv_write(self, argc, argv, 2, delete_key);
}

const struct tl_command cmd_delete = {
    .name = "delete",
    .args = "--config FILE [--hex] [--json] TABLE KEY",
    .summary = "Delete a key; one that does not exist is not an error.",
    .example = "  cairn delete --config /dev/shm/bank/cairn.conf accounts alice\n",
    .run = run,
};
