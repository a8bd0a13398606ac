/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_init.c: `cairn init`: write a configuration with a fresh cluster uuid into a folder.
 */
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tl.h"
#include "txn/txn_config.h"

struct init {
    uint64_t nodes;
    const char *size, *tables, *folder;
};

static void write_nodes(FILE *f, const struct init *in)
{
    fprintf(f, "nodes = (\n");
    for (uint64_t i = 1; i <= in->nodes; i++)
        fprintf(f,
            "    { id = %llu; address = \"n%llu.sock\"; pool = \"n%llu.pool\"; size = \"%s\"; "
            "}%s\n",
            (unsigned long long)i, (unsigned long long)i, (unsigned long long)i, in->size,
            i == in->nodes ? "" : ",");
    fprintf(f, ");\n\n");
}

/* "accounts,orders" becomes the list of tables. */
static void write_tables(FILE *f, const struct init *in)
{
    const char *name = in->tables;
    unsigned id = 1;

    fprintf(f, "tables = (\n");
    for (;;) {
        size_t size = strcspn(name, ",");
        bool last = name[size] == '\0';
        fprintf(f, "    { id = %u; name = \"%.*s\"; }%s\n", id++, (int)size, name, last ? "" : ",");
        if (last)
            break;
        name += size + 1;
    }
    fprintf(f, ");\n\n");
}

static void write_config(FILE *f, const struct init *in)
{
    char uuid[CN_UUID_TEXT_SIZE];
    struct cn_uuid cluster;

    cn_random(cn_env_system(), cluster.b, sizeof(cluster.b));
    cluster.b[6] = (uint8_t)((cluster.b[6] & 0x0f) | 0x40);
    cluster.b[8] = (uint8_t)((cluster.b[8] & 0x3f) | 0x80);
    cn_uuid_format(&cluster, uuid);
    fprintf(f,
        "# A Cairn cluster. All nodes and coordinators share this file; it must be the same for "
        "all.\n"
        "# Relative paths are relative to its folder. docs/configuration.md explains it.\n\n"
        "cluster = \"%s\"; # made by `cairn init`; pools carry it\n"
        "fabric = \"emu\"; # emulated RDMA: all processes on one machine;\n"
        "                # or \"rpma\": an address is \"IP:PORT\" of an RDMA device\n\n",
        uuid);
    write_nodes(f, in);
    write_tables(f, in);
    fprintf(f,
        "options = {\n"
        "    # slots = 64;          # coordinator contexts a node serves, and 1; new pools only\n"
        "    # ring_size = \"2044k\"; # log per slot; new pools only\n"
        "    # window = 1024;       # records outstanding per slot; new pools only\n"
        "    # lease_ms = 1000;     # a silent lock owner is fenced after this\n"
        "    # resolve_ms = 500;    # an unmarked record is resolved after this\n"
        "    # verdict_s = 86400;   # verdicts are kept for this long\n"
        "};\n"
        "# nodes[].persistence = \"auto\" (or \"apm\", \"gpspm\", \"eadr\", \"emulated\"): how a\n"
        "# pool is made durable; \"apm\" only where the NIC writes to pmem directly (DDIO off).\n"
        "# completion = { mode = \"adaptive\"; threshold = 0.7; spins = 2000; linger_us = 1000;\n"
        "#     };\n"
        "# fabric_options = { device = \"mlx5_0\"; queue_pairs = 2; atomics = \"nic\"; };\n");
}

static int make_file(const struct tl_command *self, const struct init *in, char path[PATH_MAX])
{
    if (mkdir(in->folder, 0777) != 0 && errno != EEXIST)
        return tl_error(self, "%s: cannot make the folder: %s", in->folder, strerror(errno));
    if (snprintf(path, PATH_MAX, "%s/cairn.conf", in->folder) >= PATH_MAX)
        return tl_error(self, "%s: the path is too long", in->folder);
    FILE *f = fopen(path, "wxe");
    if (f == NULL && errno == EEXIST)
        return tl_error(self, "%s: is there already; remove it first if it is not needed", path);
    if (f == NULL)
        return tl_error(self, "%s: cannot write: %s", path, strerror(errno));
    write_config(f, in);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        (void)unlink(path);
        return tl_error(self, "%s: cannot write: %s", path, strerror(errno));
    }
    return TL_OK;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct init in = {.nodes = 3, .size = "256M", .tables = "accounts"};
    const struct tl_option options[] = {
        {.name = "nodes",
            .arg = "N",
            .help = "how many nodes (default 3)",
            .number = &in.nodes,
            .min = 1,
            .max = CAIRN_NODES_MAX},
        {.name = "size", .arg = "SIZE", .help = "of each pool (default 256M)", .text = &in.size},
        {.name = "tables",
            .arg = "A,B",
            .help = "names of tables (default accounts)",
            .text = &in.tables},
        {.name = NULL},
    };
    struct txn_config *config;
    char path[PATH_MAX];
    int first, rc = tl_parse(self, options, argc, argv, 1, 1, &first);

    if (rc != -1)
        return rc;
    in.folder = argv[first];
    bool made = mkdir(in.folder, 0777) == 0;
    rc = make_file(self, &in, path);
    if (rc == TL_OK) {
        rc = txn_config_load(path, &config); /* what was asked for may be wrong: say so now */
        if (rc != 0) {
            (void)unlink(path);
            rc = tl_cairn_error(
                self, cn_fail_context(rc, "nothing is made, for it would be wrong: "), false);
        }
    }
    if (rc != TL_OK) {
        if (made)
            (void)rmdir(in.folder);
        return rc;
    }
    txn_config_free(&config);
    printf("%s\n", path);
    fprintf(stderr, "Next, one process per node:  cairn node --config %s --id 1\n", path);
    return TL_OK;
}

const struct tl_command cmd_init = {
    .name = "init",
    .args = "[--nodes N] [--size SIZE] [--tables A,B] FOLDER",
    .summary = "Write the configuration of a new cluster into a folder.",
    .example = "  cairn init --nodes 3 --size 1G --tables accounts,orders /dev/shm/bank\n"
               "  cairn node --config /dev/shm/bank/cairn.conf --id 1 &\n",
    .run = run,
};
