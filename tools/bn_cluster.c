/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_cluster.c: a cluster to measure on: nodes in processes of their own, pools in memory
 * (/dev/shm), all of it removed at the end; or one that runs already, which is left as it was.
 */
#include "tools/bn.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#define POOL_SIZE_MB 64u
#define READY_TIMEOUT_MS 60000u
#define STOP_TIMEOUT_MS 10000u
#define TICK_MS 50
#define PORT_FIRST 20000u
#define PORT_SPAN 20000u

volatile int bn_interrupted;

static void handle_interrupt(int signal_number)
{
    (void)signal_number;
    bn_interrupted = 1;
}

void bn_catch_signals(void)
{
    struct sigaction action = {.sa_handler = handle_interrupt};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- a cluster of its own ---- */

static bool is_emu(const struct bn_cluster_options *o)
{
    return strcmp(o->fabric, "emu") == 0;
}

static void write_node(
    FILE *f, const struct bn_cluster_options *o, const char *address, uint32_t i, uint32_t port)
{
    fprintf(f, "    { id = %u; ", i + 1);
    if (is_emu(o))
        fprintf(f, "address = \"n%u.sock\"; ", i + 1);
    else
        fprintf(f, "address = \"%s%s%s:%u\"; ", strchr(address, ':') == NULL ? "" : "[", address,
            strchr(address, ':') == NULL ? "" : "]", port + 2 * i);
    if (o->persistence != NULL)
        fprintf(f, "persistence = \"%s\"; ", o->persistence);
    fprintf(f, "pool = \"n%u.pool\"; size = \"%uM\"; }%s\n", i + 1, POOL_SIZE_MB,
        i + 1 == o->nodes ? "" : ",");
}

static int write_config(
    const struct bn_cluster *c, const struct bn_cluster_options *o, const char *address)
{
    /* Two ports per node; unlike those of another run at the same time. */
    uint32_t port = PORT_FIRST + (uint32_t)getpid() * 2 * BN_NODES_MAX % PORT_SPAN;
    char uuid[CN_UUID_TEXT_SIZE];
    struct cn_uuid cluster;
    FILE *f = fopen(c->path, "wxe");

    if (f == NULL)
        return cn_fail(-errno, "%s: cannot write: %s", c->path, strerror(errno));
    cn_random(cn_env_system(), cluster.b, sizeof(cluster.b));
    cn_uuid_format(&cluster, uuid);
    fprintf(f, "cluster = \"%s\";\nfabric = \"%s\";\nnodes = (\n", uuid, o->fabric);
    for (uint32_t i = 0; i < o->nodes; i++)
        write_node(f, o, address, i, port);
    fprintf(f,
        ");\ntables = ( { id = 1; name = \"bench\"; } );\n"
        "options = { slots = 8; ring_size = \"512k\"; window = 256; };\n");
    fprintf(f, "completion = { linger_us = %" PRIu64 "; };\n",
        o->linger_us != 0 ? o->linger_us : BN_LINGER_US);
    if (fclose(f) != 0)
        return cn_fail(-errno, "%s: cannot write: %s", c->path, strerror(errno));
    return 0;
}

static int await_nodes(struct bn_cluster *c, uint32_t nodes)
{
    char line[256];

    for (uint32_t i = 0; i < nodes; i++) {
        int answer = 0;
        for (uint32_t waited = 0; answer == 0; waited += TICK_MS) {
            if (waited >= READY_TIMEOUT_MS)
                return cn_fail(CAIRN_E_TIMEOUT, "%s does not become ready", c->node[i].name);
            answer = tl_proc_ready(&c->node[i], c->folder, TICK_MS, line, sizeof(line));
            if (answer == 0)
                answer = bn_cluster_check(c);
        }
        if (answer < 0)
            return answer;
    }
    return 0;
}

static int make_cluster(const struct bn_cluster_options *o, struct bn_cluster *c)
{
    char address[64] = "";
    int rc = 0;

    if (!is_emu(o) && o->address == NULL)
        rc = bn_find_address("/sys", address);
    else if (o->address != NULL)
        (void)snprintf(address, sizeof(address), "%s", o->address);
    if (rc == 0)
        rc = tl_folder_make(
            "cairn-bench", ((uint64_t)o->nodes * POOL_SIZE_MB + 16) << 20, c->folder);
    if (rc != 0)
        return rc;
    c->own = true;
    (void)snprintf(c->path, sizeof(c->path), "%s/cairn.conf", c->folder);
    rc = write_config(c, o, address);
    if (rc == 0)
        rc = txn_config_load(c->path, &c->config);
    for (uint32_t i = 0; i < o->nodes && rc == 0; i++)
        rc = tl_proc_start_node(&c->node[i], c->folder, c->path, i + 1, true);
    return rc == 0 ? await_nodes(c, o->nodes) : rc;
}

int bn_cluster_start(const struct bn_cluster_options *o, struct bn_cluster *c)
{
    struct rd_fabric *fabric;

    memset(c, 0, sizeof(*c));
    if (o->config != NULL) {
        (void)snprintf(c->path, sizeof(c->path), "%s", o->config);
        return txn_config_load(c->path, &c->config);
    }
    /* Say at once, and in the fabric's own words, that it cannot be had here. */
    int rc = rd_fabric_open(o->fabric, NULL, &fabric);
    if (rc != 0)
        return rc;
    rd_fabric_delete(fabric);
    struct tl_progress *progress = tl_progress_start("starting the nodes");
    rc = make_cluster(o, c);
    tl_progress_end(progress);
    return rc;
}

int bn_cluster_check(struct bn_cluster *c)
{
    int rc = 0;

    for (uint32_t i = 0; i < BN_NODES_MAX && rc == 0; i++)
        rc = tl_proc_check(&c->node[i], c->folder);
    if (rc == 0 && bn_interrupted)
        rc = cn_fail(-EINTR, "interrupted");
    return rc;
}

void bn_cluster_stop(struct bn_cluster *c)
{
    for (uint32_t i = 0; i < BN_NODES_MAX; i++) {
        if (c->node[i].pid != 0)
            (void)kill(c->node[i].pid, SIGTERM);
    }
    for (uint32_t i = 0; i < BN_NODES_MAX; i++) {
        for (uint32_t waited = 0; waited < STOP_TIMEOUT_MS; waited += TICK_MS) {
            if (tl_proc_ended(&c->node[i], c->folder) != 0)
                break;
            (void)usleep(TICK_MS * 1000);
        }
        (void)tl_proc_kill(&c->node[i]);
    }
    if (c->own)
        tl_folder_remove(c->folder);
    if (c->config != NULL)
        txn_config_free(&c->config);
}
