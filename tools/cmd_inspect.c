/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_inspect.c: `cairn inspect`: a look at a pool file, which never changes a byte of it, or at a
 * running node. Of a pool it says how a node would make it durable: with a configuration as that
 * declares, without one as "auto" does over the fabric `rpma`.
 */
#include "recovery/rec_node.h"
#include "tools/tl_live.h"
#include "tools/tl_pool.h"

struct inspect {
    const struct tl_command *self;
    const char *node, *config;
    bool json, check;
};

static void print(const struct inspect *in, json_t *root)
{
    if (in->json) {
        tl_json_print(root);
        return;
    }
    tl_print_tree(root, 0);
    json_decref(root);
}

/* The node of the configuration whose pool this is, by id. */
static int find_pool_node(
    const struct txn_config *config, uint16_t id, const struct txn_config_node **ret_node)
{
    *ret_node = txn_config_find_node(config, id);
    if (*ret_node == NULL)
        return cn_fail(CAIRN_E_CONFIG, "%s: there is no node %u in it", config->path, id);
    return 0;
}

static int add_durability(const struct inspect *in, const char *path, json_t *root)
{
    struct txn_config_node automatic = {.persistence = TXN_PERSISTENCE_AUTO};
    const struct txn_config_node *at = &automatic;
    struct txn_config *config = NULL;
    enum rd_durability mode;
    struct pm_pool *pool;
    int rc = pm_pool_open(path, PM_OPEN_READ_ONLY, 0, cn_env_system(), &pool);

    if (rc != 0)
        return rc;
    if (in->config != NULL) {
        rc = txn_config_load(in->config, &config);
        if (rc == 0)
            rc = find_pool_node(config, pool->super.node, &at);
    }
    if (rc == 0) {
        const char *fabric = config != NULL ? config->fabric : "rpma";
        bool kept = rec_durability_choose(at, fabric, pool, &mode) == 0;
        (void)json_object_set_new(root, "pmem", json_boolean(pool->is_pmem));
        (void)json_object_set_new(
            root, "persistence", json_string(txn_persistence_name(at->persistence)));
        (void)json_object_set_new(
            root, "durability", kept ? json_string(rd_durability_name(mode)) : json_null());
        if (!kept)
            (void)json_object_set_new(root, "durability_error", json_string(cairn_last_error()));
    }
    if (config != NULL)
        txn_config_free(&config);
    pm_pool_close(&pool);
    return rc;
}

static int inspect_pool(const struct inspect *in, const char *path)
{
    struct tl_pool_look look;
    json_t *root = NULL;
    char what[160];

    (void)snprintf(what, sizeof(what), "looking at %.100s", path);
    struct tl_progress *progress = tl_progress_start(what);
    int rc = tl_pool_look(path, in->check, &look, &root);
    tl_progress_end(progress);
    if (rc == 0)
        rc = add_durability(in, path, root);
    if (rc != 0) {
        json_decref(root);
        return tl_cairn_error(in->self, rc, in->json);
    }
    print(in, root);
    if (look.errors != 0) {
        (void)tl_error(in->self, "%s: %llu errors found", path, (unsigned long long)look.errors);
        if (look.in_use != 0)
            (void)tl_error(in->self, "%s: process %llu has it open, and what that is changing "
                "looks like damage: stop the node, or look again", path,
                (unsigned long long)look.in_use);
        return TL_BAD;
    }
    return TL_OK;
}

/* The node meant: by its address or by its id. */
static const struct txn_config_node *find_node(const struct txn_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->node_count; i++) {
        char id[8];
        (void)snprintf(id, sizeof(id), "%u", config->node[i].id);
        if (strcmp(name, id) == 0 || strcmp(name, config->node[i].address) == 0)
            return &config->node[i];
        /* A relative spelling of the socket's path. */
        char *full = realpath(name, NULL);
        bool same = full != NULL && strcmp(full, config->node[i].address) == 0;
        free(full);
        if (same)
            return &config->node[i];
    }
    return NULL;
}

/* The node's address (or id) as the configuration has it; that it is of this cluster is checked
 * too. */
static int stats_by_config(const struct inspect *in, json_t **ret_stats)
{
    struct txn_config *config = NULL;
    int rc = txn_config_load(in->config, &config);
    if (rc != 0)
        return rc;
    const struct txn_config_node *node = find_node(config, in->node);
    if (node == NULL)
        rc = cn_fail(CAIRN_E_CONFIG, "%s: there is no node with id or address %s in it",
            in->config, in->node);
    else {
        const struct tl_live_node target = {
            .fabric = config->fabric,
            .options = &config->fabric_config,
            .address = node->address,
            .cluster = config->cluster,
            .node = node->id,
        };
        rc = tl_live_stats(&target, ret_stats);
    }
    txn_config_free(&config);
    return rc;
}

static int inspect_node(const struct inspect *in)
{
    const struct tl_live_node whoever = {.address = in->node};
    json_t *stats = NULL;
    int rc = in->config != NULL ? stats_by_config(in, &stats) : tl_live_stats(&whoever, &stats);
    if (rc != 0)
        return tl_cairn_error(in->self, rc, in->json);
    print(in, stats);
    return TL_OK;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct inspect in = {.self = self};
    const struct tl_option options[] = {
        {.name = "check",
            .help = "check the whole store too (reads everything; what a node at work is "
                    "changing looks like damage)",
            .flag = &in.check},
        {.name = "node",
            .arg = "ADDR",
            .help = "ask a running node: its address (with --config: or its id)",
            .text = &in.node},
        {.name = "config",
            .arg = "FILE",
            .help = "with --node: find the node in it, and check its cluster; with POOL: how this "
                    "configuration makes it durable",
            .text = &in.config},
        {.name = "json", .help = "print one JSON object with stable keys", .flag = &in.json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 1, &first);

    if (rc != -1)
        return rc;
    if ((in.node == NULL) != (argc - first == 1))
        return tl_error(self, "give either one POOL or --node ADDR; try `cairn inspect --help`");
    if (in.node != NULL && in.check)
        return tl_error(self, "--check is for a POOL");
    cn_env_system_log_level(CN_LOG_ERROR);
    return in.node != NULL ? inspect_node(&in) : inspect_pool(&in, argv[first]);
}

const struct tl_command cmd_inspect = {
    .name = "inspect",
    .args = "[--check] [--json] [--config FILE] POOL | --node ADDR [--config FILE] [--json]",
    .summary = "Look at a pool (changes no byte of it), or at a running node.",
    .example = "  cairn inspect --check /dev/shm/bank/n1.pool\n"
               "  cairn inspect --node /dev/shm/bank/n1.sock --json\n"
               "  (exit 1: errors were found)\n",
    .run = run,
};
