/* SPDX-License-Identifier: BSD-3-Clause */
/* 01-transfer.c: move 10 coins from alice to bob. Usage: 01-transfer CONFIG (see README.md) */
#include <cairn/cairn.h>
#include <stdio.h>
#include <string.h>

static int transfer(struct cairn_tx *tx, void *table) /* run again on a conflict: keeps no state */
{
    const char *const who[] = {"alice", "bob"};
    for (int i = 0; i < 2; i++) {
        char text[24];
        int coins = 100; /* of who is not there yet */
        size_t size;
        int rc = cairn_get_for_update(
            tx, *(uint32_t *)table, who[i], strlen(who[i]), text, sizeof(text) - 1, &size);
        if (rc != 0 && rc != CAIRN_E_NOT_FOUND)
            return rc; /* a conflict runs it again; anything else ends it, without effect */
        text[rc == 0 ? size : 0] = '\0'; /* bytes behind a value are anything */
        (void)sscanf(text, "%d", &coins);
        size = (size_t)snprintf(text, sizeof(text), "%d", i == 0 ? coins - 10 : coins + 10);
        rc = cairn_put(tx, *(uint32_t *)table, who[i], strlen(who[i]), text, size);
        if (rc != 0)
            return rc;
    }
    return 0; /* commit: on all nodes or on none */
}

int main(int argc, char **argv)
{
    struct cairn *cluster = NULL;
    struct cairn_ctx *ctx = NULL; /* one per thread */
    uint32_t accounts;
    int rc = cairn_open(argc > 1 ? argv[1] : "cairn.conf", NULL, &cluster);
    if (rc == 0 && (rc = cairn_table(cluster, "accounts", &accounts)) == 0 &&
        (rc = cairn_ctx_open(cluster, &ctx)) == 0)
        rc = cairn_run(ctx, transfer, &accounts, 5000, NULL);
    puts(rc == 0 ? "committed" : cairn_last_error());
    if (ctx != NULL)
        cairn_ctx_close(&ctx);
    if (cluster != NULL)
        cairn_close(&cluster);
    return rc != 0;
}
