/* SPDX-License-Identifier: BSD-3-Clause */
/* ts_cluster.c: see ts_cluster.h. */
#include "tests/support/ts_cluster.h"

#include <errno.h>
#include <unistd.h>

#include "tests/support/ts_folder.h"

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "test cluster: %s: %s\n", what, cairn_last_error());
    abort();
}

static void *run_node(void *arg)
{
    struct ts_node *n = arg;
    const struct txn_config *config = n->cluster->config;

    n->open_rc = txn_config_open_fabric(config, &n->fabric);
    check(n->open_rc == 0, "fabric");
    n->open_rc = pm_pool_open(
        config->node[n->at].pool, PM_OPEN_OWNER, 2000, cn_env_system(), &n->pool);
    check(n->open_rc == 0, "open pool");
    const struct rec_node_options options = {
        .config = config,
        .node = config->node[n->at].id,
        .fabric = n->fabric,
        .env = cn_env_system(),
        .pool = n->pool,
    };
    n->open_rc = rec_node_open(&options, &n->node);
    check(n->open_rc == 0, "open node");
    __atomic_store_n(&n->opened, 1, __ATOMIC_RELEASE);
    rec_node_run(n->node, &n->stop);
    return NULL;
}

void ts_cluster_start(struct ts_cluster *cluster, uint32_t at)
{
    struct ts_node *n = &cluster->node[at];

    n->cluster = cluster;
    n->at = at;
    n->stop = 0;
    n->opened = 0;
    check(pthread_create(&n->thread, NULL, run_node, n) == 0, "thread");
    n->running = true;
    for (uint32_t i = 0; i < 5000 && !__atomic_load_n(&n->opened, __ATOMIC_ACQUIRE); i++)
        (void)usleep(1000);
    check(__atomic_load_n(&n->opened, __ATOMIC_ACQUIRE) != 0, "node does not open in time");
}

void ts_cluster_stop(struct ts_cluster *cluster, uint32_t at, bool crash)
{
    struct ts_node *n = &cluster->node[at];

    if (!n->running)
        return;
    __atomic_store_n(&n->stop, 1, __ATOMIC_RELEASE);
    rec_node_wake(n->node);
    check(pthread_join(n->thread, NULL) == 0, "join");
    if (crash) {
        rec_node_abandon(&n->node);
        pm_pool_close(&n->pool);
    } else
        rec_node_close(&n->node);
    rd_fabric_delete(n->fabric);
    n->running = false;
}

static void configure(
    struct ts_cluster *c, uint32_t nodes, const struct pm_geometry *geometry)
{
    struct txn_config *config = c->config;

    cn_random(cn_env_system(), config->cluster.b, sizeof(config->cluster.b));
    (void)snprintf(config->path, sizeof(config->path), "(test)");
    ts_fabric_options(config);
    config->view = 1;
    config->node_count = nodes;
    config->table_count = 2;
    config->table[0] = (struct txn_config_table){.id = 1, .name = "t"};
    config->table[1] = (struct txn_config_table){.id = 2, .name = "u"};
    /* Nodes, and a machine, that do nothing else answer sooner than those of a small VM. */
    config->lease_ms = ts_fabric_is_emu() ? 200 : 2000;
    config->resolve_ms = ts_fabric_is_emu() ? 200 : 1000;
    config->verdict_s = 3600;
    if (geometry != NULL)
        config->geometry = *geometry;
    else
        config->geometry = (struct pm_geometry){
            .chunk_shift = 20, .slot_count = 8, .window = 64, .ring_size = 512 * 1024, .depth0 = 2};
    check(pm_geometry_complete(&config->geometry) == 0, "geometry");
    for (uint32_t i = 0; i < nodes; i++) {
        config->node[i].id = (uint16_t)(i + 1);
        ts_fabric_node(
            c->dir, i, pm_pool_size_min(&config->geometry, 16u << 20), &config->node[i]);
    }
}

static struct ts_cluster *make(uint32_t nodes, const struct pm_geometry *geometry,
    const struct cairn_options *options, const struct cn_pace *pace)
{
    struct ts_cluster *c = calloc(1, sizeof(*c));
    struct txn_config *config = calloc(1, sizeof(*config));

    check(c != NULL && config != NULL && nodes <= TS_CLUSTER_NODES_MAX, "memory");
    cn_env_system_log_level(ts_fabric_log_level());
    (void)snprintf(c->dir, sizeof(c->dir), "/dev/shm/cairn-test-XXXXXX");
    ts_folder_make(c->dir);
    c->config = config;
    configure(c, nodes, geometry);
    if (pace != NULL)
        config->pace = *pace;
    check(txn_config_check(config) == 0, "config");
    for (uint32_t i = 0; i < nodes; i++) {
        check(ts_fabric_make_pool(config, &config->node[i], cn_env_system()) == 0, "create pool");
        ts_cluster_start(c, i);
    }
    check(txn_config_open_fabric(config, &c->fabric) == 0, "fabric");
    /* In an emulated machine a connection can take seconds; what takes long is no test here. */
    struct cairn_options patient = CAIRN_OPTIONS_DEFAULT;
    patient.connect_timeout_ms = patient.op_timeout_ms = 10000;
    if (options == NULL && !ts_fabric_is_emu())
        options = &patient;
    check(txn_cluster_open(config, c->fabric, cn_env_system(), options, &c->cairn) == 0, "cluster");
    return c;
}

struct ts_cluster *ts_cluster_new(
    uint32_t nodes, const struct pm_geometry *geometry, const struct cairn_options *options)
{
    return make(nodes, geometry, options, NULL);
}

struct ts_cluster *ts_cluster_new_paced(uint32_t nodes, const struct cn_pace *pace)
{
    return make(nodes, NULL, NULL, pace);
}

void ts_cluster_delete(struct ts_cluster **cluster)
{
    struct ts_cluster *c = *cluster;
    struct rd_live live;
    char command[128];

    cairn_close(&c->cairn);
    rd_fabric_delete(c->fabric);
    for (uint32_t i = 0; i < c->config->node_count; i++) {
        ts_cluster_stop(c, i, false);
        ts_fabric_remove(&c->config->node[i]);
    }
    rd_live_get(&live);
    check(rd_live_is_zero(&live), "fabric objects are left");
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", c->dir);
    check(rmdir(c->dir) == 0 || system(command) == 0, "remove folder");
    free(c->config);
    free(c);
    *cluster = NULL;
}

size_t ts_cluster_key(
    const struct ts_cluster *cluster, uint32_t table, uint32_t at, uint32_t number, char key[32])
{
    for (uint32_t i = 0;; i++) {
        int size = snprintf(key, 32, "k%u.%u", number, i);
        if (txn_config_shard(cluster->config, table, key, (size_t)size) == at)
            return (size_t)size;
    }
}
