/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_cluster.c: a cluster to measure on or to crash: configuration, nodes, the folder.
 */
#include "tools/tl_cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#define POOL_SIZE_MB 64u
#define SLOTS 8u
#define WINDOW 256u
#define READY_TIMEOUT_MS 60000u
#define STOP_TIMEOUT_MS 10000u
#define TICK_MS 50
#define PORT_FIRST 20000u
#define PORT_SPAN 20000u

/* ---- a cluster of its own ---- */

static uint64_t pool_mb(const struct tl_cluster_options *o)
{
    return o->pool_mb != 0 ? o->pool_mb : POOL_SIZE_MB;
}

static bool is_emu(const struct tl_cluster_options *o)
{
    return strcmp(o->fabric, "emu") == 0;
}

static void write_node(
    FILE *f, const struct tl_cluster_options *o, const char *address, uint32_t i, uint32_t port)
{
    fprintf(f, "    { id = %u; ", i + 1);
    if (is_emu(o))
        fprintf(f, "address = \"n%u.sock\"; ", i + 1);
    else
        fprintf(f, "address = \"%s%s%s:%u\"; ", strchr(address, ':') == NULL ? "" : "[", address,
            strchr(address, ':') == NULL ? "" : "]", port + 2 * i);
    if (o->persistence != NULL)
        fprintf(f, "persistence = \"%s\"; ", o->persistence);
    fprintf(f, "pool = \"n%u.pool\"; size = \"%" PRIu64 "M\"; }%s\n", i + 1, pool_mb(o),
        i + 1 == o->nodes ? "" : ",");
}

static void write_rest(FILE *f, const struct tl_cluster_options *o)
{
    static const char *const one[] = {"bench", NULL};
    const char *const *tables = o->tables != NULL ? o->tables : one;

    fprintf(f, ");\ntables = (");
    for (uint32_t i = 0; tables[i] != NULL; i++)
        fprintf(f, "%s { id = %u; name = \"%s\"; }", i == 0 ? "" : ",", i + 1, tables[i]);
    fprintf(f, " );\noptions = { slots = %u; ring_size = \"%s\"; window = %u; };\n",
        o->slots != 0 ? o->slots : SLOTS, o->ring_size != NULL ? o->ring_size : "512k",
        o->window != 0 ? o->window : WINDOW);
    fprintf(f, "completion = { mode = \"%s\"; linger_us = %" PRIu64 "; };\n",
        o->completion != NULL ? o->completion : "adaptive",
        o->linger_us != 0 ? o->linger_us : TL_LINGER_US);
}

static int write_config(
    const struct tl_cluster *c, const struct tl_cluster_options *o, const char *address)
{
    /* Two ports per node; unlike those of another run at the same time. */
    uint32_t port = PORT_FIRST + (uint32_t)getpid() * 2 * TL_NODES_MAX % PORT_SPAN;
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
    write_rest(f, o);
    if (fclose(f) != 0)
        return cn_fail(-errno, "%s: cannot write: %s", c->path, strerror(errno));
    return 0;
}

int tl_cluster_await(struct tl_cluster *c, uint32_t at)
{
    char line[256];
    int answer = 0;

    for (uint32_t waited = 0; answer == 0; waited += TICK_MS) {
        if (waited >= READY_TIMEOUT_MS)
            return cn_fail(CAIRN_E_TIMEOUT, "%s does not become ready", c->node[at].name);
        answer = tl_proc_ready(&c->node[at], c->folder, TICK_MS, line, sizeof(line));
        if (answer == 0)
            answer = tl_cluster_check(c);
    }
    return answer < 0 ? answer : 0;
}

int tl_cluster_restart(struct tl_cluster *c, uint32_t at)
{
    c->node[at].program = c->program;
    return tl_proc_start_node(&c->node[at], c->folder, c->path, at + 1, true);
}

static int make_folder(const struct tl_cluster_options *o, struct tl_cluster *c)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "cairn-%s", o->name);
    return tl_folder_make(
        name, ((o->nodes * pool_mb(o) + 16) << 20) + o->space, c->folder);
}

int tl_cluster_make(const struct tl_cluster_options *o, struct tl_cluster *c)
{
    char address[64] = "";
    int rc = 0;

    memset(c, 0, sizeof(*c));
    c->program = o->program;
    if (!is_emu(o) && o->address == NULL)
        rc = tl_find_address("/sys", address);
    else if (o->address != NULL)
        (void)snprintf(address, sizeof(address), "%s", o->address);
    if (rc == 0)
        rc = make_folder(o, c);
    if (rc != 0)
        return rc;
    c->own = true;
    (void)snprintf(c->path, sizeof(c->path), "%s/cairn.conf", c->folder);
    rc = write_config(c, o, address);
    return rc != 0 ? rc : txn_config_load(c->path, &c->config);
}

static int make_cluster(const struct tl_cluster_options *o, struct tl_cluster *c)
{
    int rc = tl_cluster_make(o, c);

    for (uint32_t i = 0; i < o->nodes && rc == 0; i++)
        rc = tl_cluster_restart(c, i);
    for (uint32_t i = 0; i < o->nodes && rc == 0; i++)
        rc = tl_cluster_await(c, i);
    return rc;
}

int tl_cluster_start(const struct tl_cluster_options *o, struct tl_cluster *c)
{
    struct rd_fabric *fabric;

    memset(c, 0, sizeof(*c));
    c->program = o->program;
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

int tl_cluster_check(struct tl_cluster *c)
{
    int rc = 0;

    for (uint32_t i = 0; i < TL_NODES_MAX && rc == 0; i++)
        rc = tl_proc_check(&c->node[i], c->folder);
    if (rc == 0 && tl_interrupted)
        rc = cn_fail(-EINTR, "interrupted");
    return rc;
}

static int stop_node(const struct tl_cluster *c, struct tl_child *node)
{
    int rc = tl_proc_ended(node, c->folder);

    for (uint32_t waited = 0; rc == 0 && waited < STOP_TIMEOUT_MS; waited += TICK_MS) {
        (void)usleep(TICK_MS * 1000);
        rc = tl_proc_ended(node, c->folder);
    }
    (void)tl_proc_kill(node);
    if (rc == 0)
        return cn_fail(CAIRN_E_TIMEOUT, "%s does not end within %u ms of SIGTERM", node->name,
            STOP_TIMEOUT_MS);
    return rc == 1 ? 0 : rc;
}

int tl_cluster_stop(struct tl_cluster *c, bool keep)
{
    char text[512] = "";
    int first = 0;

    for (uint32_t i = 0; i < TL_NODES_MAX; i++) {
        if (c->node[i].pid != 0)
            (void)kill(c->node[i].pid, SIGTERM);
    }
    for (uint32_t i = 0; i < TL_NODES_MAX; i++) {
        int rc = stop_node(c, &c->node[i]);
        if (rc == 0 || first != 0)
            continue;
        first = rc;
        cn_error_copy(text, sizeof(text));
    }
    if (c->own && !keep)
        tl_folder_remove(c->folder);
    if (c->config != NULL)
        txn_config_free(&c->config);
    return first == 0 ? 0 : cn_fail(first, "%s", text);
}
