/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_recover.c: `cairn recover`: recovery of the pools of a cluster while no node runs.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "recovery/rec_offline.h"
#include "tools/tl.h"

struct recover {
    const struct tl_command *self;
    bool dry_run, json;
    json_t *transactions;
};

static const char *verdict_name(enum rd_verdict verdict)
{
    switch (verdict) {
    case RD_VERDICT_COMMITTED: return "COMMITTED";
    case RD_VERDICT_ABORTED: return "ABORTED";
    default: return "IN_DOUBT";
    }
}

static void on_progress(void *arg, const char *text)
{
    (void)arg;
    if (isatty(STDERR_FILENO) == 1)
        fprintf(stderr, "\r%s\033[K", text);
    else
        fprintf(stderr, "%s\n", text);
}

static void on_transaction(void *arg, const struct rec_report_tx *tx)
{
    struct recover *r = arg;
    char text[CN_TXID_TEXT_SIZE];

    (void)json_array_append_new(r->transactions,
        json_pack("{s:s, s:i, s:i, s:o, s:o, s:i, s:i, s:i, s:s}", "txid",
            cn_txid_format(&tx->txid, text), "node", (int)tx->node, "slot", (int)tx->slot, "epoch",
            tl_json_u64(tx->epoch), "seq", tl_json_u64(tx->seq), "participants",
            (int)tx->participants, "present", (int)tx->present, "missing", (int)tx->missing,
            "verdict", verdict_name(tx->verdict)));
}

static json_t *pool_json(const struct rec_report_pool *p)
{
    json_t *o = json_pack("{s:s}", "path", p->path);

    if (p->error != 0) {
        (void)json_object_set_new(o, "error", json_string(cairn_error_name(p->error)));
        (void)json_object_set_new(o, "text", json_string(p->text));
        return o;
    }
    (void)json_object_update_new(o,
        json_pack("{s:i, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "node", (int)p->node, "pool",
            tl_json_uuid(&p->pool), "cluster", tl_json_uuid(&p->cluster), "incarnation",
            tl_json_u64(p->incarnation), "was_clean", (int)p->was_clean, "records_found",
            tl_json_u64(p->records_found), "marked", tl_json_u64(p->marked), "replayed",
            tl_json_u64(p->replayed)));
    (void)json_object_update_new(o,
        json_pack("{s:o, s:o, s:o}", "releases_redone", tl_json_u64(p->releases_redone),
            "tombstoned", tl_json_u64(p->tombstoned), "in_doubt", tl_json_u64(p->in_doubt)));
    return o;
}

static int report(struct recover *r, const struct rec_report_pool *pools, int count, int rc)
{
    json_t *list = json_array(), *root;

    for (int i = 0; i < count; i++)
        (void)json_array_append_new(list, pool_json(&pools[i]));
    root = json_pack("{s:b, s:o, s:o, s:s}", "dry_run", (int)r->dry_run, "pools", list,
        "transactions", r->transactions, "result", rc == 0 ? "OK" : cairn_error_name(rc));
    if (r->json) {
        tl_json_print(root);
    } else {
        tl_print_tree(root, 0);
        json_decref(root);
    }
    if (rc != 0)
        (void)tl_error(r->self, "%s", cairn_last_error());
    return tl_exit(rc);
}

/* One file twice would look like somebody else's. */
static int check_once(const struct tl_command *self, char *const *path, int count)
{
    struct stat a, b;

    for (int i = 1; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (stat(path[i], &a) == 0 && stat(path[j], &b) == 0 && a.st_dev == b.st_dev &&
                a.st_ino == b.st_ino)
                return tl_error(self, "%s: is given twice", path[i]);
        }
    }
    return -1;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct recover r = {.self = self};
    const struct tl_option options[] = {
        {.name = "dry-run", .help = "change no byte; say what would be done", .flag = &r.dry_run},
        {.name = "json", .help = "print one JSON object", .flag = &r.json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 1, (int)CAIRN_NODES_MAX, &first);

    if (rc != -1)
        return rc;
    int count = argc - first;
    rc = check_once(self, argv + first, count);
    if (rc != -1)
        return rc;
    struct rec_report_pool *pools = calloc((size_t)count, sizeof(*pools));
    if (pools == NULL)
        return tl_error(self, "out of memory");
    r.transactions = json_array();
    const struct rec_offline_options o = {
        .env = cn_env_system(),
        .dry_run = r.dry_run,
        .progress = on_progress,
        .transaction = on_transaction,
        .arg = &r,
    };
    cn_env_system_log_level(CN_LOG_WARNING);
    rc = rec_offline(&o, (const char *const *)(argv + first), (uint32_t)count, pools);
    if (isatty(STDERR_FILENO) == 1)
        fprintf(stderr, "\r\033[K");
    rc = report(&r, pools, count, rc);
    free(pools);
    return rc;
}

const struct tl_command cmd_recover = {
    .name = "recover",
    .args = "[--dry-run] [--json] POOL...",
    .summary = "Recover all pools of a cluster together while no node runs.",
    .example = "  cairn recover --dry-run /var/lib/cairn/n1.pool /var/lib/cairn/n2.pool\n"
               "  cairn recover /var/lib/cairn/*.pool\n"
               "  (give all pools: what a missing one would decide stays in doubt, exit 1)\n",
    .run = run,
};
