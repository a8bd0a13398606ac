/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_device.c: RDMA devices as /sys/class/infiniband shows them, and all facts together.
 *
 * The driver is known by the PCI device's; software devices by what they call themselves (rxe has a
 * `parent`, siw says so in its description). PCIe speed and width are those of the function's link.
 */
#include <ctype.h>
#include <errno.h>

#include "tools/dr.h"

#define IB "/sys/class/infiniband"

/* PCI driver, the RDMA module on top of it, and whether that pages on demand. */
static const struct {
    const char *pci, *rdma;
    enum dr_answer odp;
} drivers[] = {
    {"mlx5_core", "mlx5_ib", DR_YES},
    {"mlx5_core.sf", "mlx5_ib", DR_YES},
    {"mlx4_core", "mlx4_ib", DR_NO},
    {"ice", "irdma", DR_NO},
    {"idpf", "irdma", DR_NO},
    {"i40e", "irdma", DR_NO},
    {"bnxt_en", "bnxt_re", DR_NO},
    {"hfi1", "hfi1", DR_NO},
    {"ib_qib", "ib_qib", DR_NO},
    {"qede", "qedr", DR_NO},
    {"cxgb4", "iw_cxgb4", DR_NO},
    {"hns3", "hns_roce", DR_NO},
    {"mana", "mana_ib", DR_NO},
    {"efa", "efa", DR_NO},
    {"erdma", "erdma", DR_NO},
    {"ionic", "ionic_rdma", DR_NO},
    {"vmw_pvrdma", "vmw_pvrdma", DR_NO},
};

static bool is_pci_address(const char *name)
{
    static const char form[] = "hhhh:hh:hh.h";
    size_t i;

    for (i = 0; form[i] != '\0'; i++) {
        if (form[i] == 'h' ? !isxdigit((unsigned char)name[i]) : name[i] != form[i])
            return false;
    }
    return name[i] == '\0';
}

static void find_driver(struct dr_root *root, struct dr_device *d)
{
    char link[DR_PATH_SIZE];

    if (dr_exists(root, IB "/%s/parent", d->name) || strcmp(d->node_desc, "rxe") == 0) {
        (void)snprintf(d->driver, sizeof(d->driver), "rdma_rxe");
        d->software = true;
        return; /* newer kernels page on demand in rxe: only verbs know */
    }
    if (strncmp(d->node_desc, "Software iWARP", 14) == 0) {
        (void)snprintf(d->driver, sizeof(d->driver), "siw");
        d->software = true;
        d->odp = DR_NO;
        return;
    }
    if (!dr_link(root, link, sizeof(link), IB "/%s/device/driver", d->name))
        return;
    const char *pci = dr_base_name(link);
    if (!dr_name_is_plain(pci))
        return;
    (void)snprintf(d->driver, sizeof(d->driver), "%.31s", pci);
    for (size_t i = 0; i < CN_ARRAY_SIZE(drivers); i++) {
        if (strcmp(drivers[i].pci, pci) != 0)
            continue;
        (void)snprintf(d->driver, sizeof(d->driver), "%s", drivers[i].rdma);
        d->odp = drivers[i].odp;
    }
}

/* "16.0 GT/s PCIe" to 160; "Unknown" and all else to 0. */
static unsigned parse_speed(const char *text)
{
    unsigned whole = 0, tenth = 0;
    char unit[8] = "";

    if (!isdigit((unsigned char)text[0]) ||
        (sscanf(text, "%4u.%1u %7s", &whole, &tenth, unit) != 3 &&
            sscanf(text, "%4u %7s", &whole, unit) != 2))
        return 0;
    return strcmp(unit, "GT/s") == 0 ? whole * 10 + tenth : 0;
}

/* Lanes; the kernel says 0, 63 or 255 where it does not know. */
static unsigned read_width(struct dr_root *root, const struct dr_device *d, const char *name)
{
    uint64_t width = 0;

    (void)dr_read_u64(root, &width, IB "/%s/device/%s", d->name, name);
    return width <= 32 ? (unsigned)width : 0;
}

static void read_pci(struct dr_root *root, struct dr_device *d)
{
    char text[DR_TEXT_SIZE], link[DR_PATH_SIZE];

    d->numa = -1;
    if (d->software || !dr_link(root, link, sizeof(link), IB "/%s/device", d->name))
        return;
    if (is_pci_address(dr_base_name(link)))
        (void)snprintf(d->pci, sizeof(d->pci), "%.15s", dr_base_name(link));
    if (dr_read(root, text, sizeof(text), IB "/%s/device/current_link_speed", d->name) > 0)
        d->speed = parse_speed(text);
    if (dr_read(root, text, sizeof(text), IB "/%s/device/max_link_speed", d->name) > 0)
        d->speed_max = parse_speed(text);
    d->width = read_width(root, d, "current_link_width");
    d->width_max = read_width(root, d, "max_link_width");
    uint64_t numa;
    if (dr_read(root, text, sizeof(text), IB "/%s/device/numa_node", d->name) > 0 &&
        text[0] != '-' && dr_read_u64(root, &numa, IB "/%s/device/numa_node", d->name) &&
        numa < 4096)
        d->numa = (int64_t)numa;
}

/* The character device of a device: the entry of infiniband_verbs that names it. */
static void find_uverbs(struct dr_root *root, struct dr_device *d)
{
    char(*names)[DR_NAME_SIZE] = calloc(DR_DEVICES_MAX * 2, sizeof(*names));
    char text[DR_NAME_SIZE];

    if (names == NULL)
        return;
    unsigned count = dr_list(root, names, DR_DEVICES_MAX * 2, "/sys/class/infiniband_verbs");
    for (unsigned i = 0; i < count; i++) {
        if (strncmp(names[i], "uverbs", 6) == 0 &&
            dr_read(root, text, sizeof(text), "/sys/class/infiniband_verbs/%s/ibdev", names[i]) >
                0 &&
            strcmp(text, d->name) == 0)
            memcpy(d->uverbs, names[i], sizeof(d->uverbs));
    }
    free(names);
}

/* What mlx5 shows to root; as it stands there. */
static void read_params(struct dr_root *root, struct dr_device *d)
{
    char names[DR_PARAMS_MAX][DR_NAME_SIZE];

    if (strcmp(d->driver, "mlx5_ib") != 0 || d->pci[0] == '\0')
        return;
    unsigned count = dr_list(
        root, names, DR_PARAMS_MAX, "/sys/kernel/debug/mlx5/%s/cc_params", d->pci);
    for (unsigned i = 0; i < count; i++) {
        struct dr_param *p = &d->param[d->param_count];
        if (strlen(names[i]) < sizeof(p->name) &&
            dr_read(root, p->value, sizeof(p->value), "/sys/kernel/debug/mlx5/%s/cc_params/%s",
                d->pci, names[i]) > 0) {
            memcpy(p->name, names[i], strlen(names[i]) + 1);
            d->param_count++;
        }
    }
}

static enum dr_transport find_transport(const struct dr_device *d)
{
    unsigned type = 0;

    if (isdigit((unsigned char)d->node_type[0]))
        (void)sscanf(d->node_type, "%2u", &type);
    if (type == 4)
        return DR_IWARP;
    if (type < 1 || type > 3 || d->port_count == 0)
        return DR_OTHER;
    if (d->port[0].link == DR_LINK_ETHERNET)
        return DR_ROCE;
    return d->port[0].link == DR_LINK_INFINIBAND ? DR_INFINIBAND : DR_OTHER;
}

void dr_device_read(struct dr_root *root, const char *name, struct dr_device *d)
{
    char names[DR_PORTS_MAX][DR_NAME_SIZE];

    memset(d, 0, sizeof(*d));
    (void)snprintf(d->name, sizeof(d->name), "%s", name);
    (void)dr_read(root, d->node_type, sizeof(d->node_type), IB "/%s/node_type", name);
    (void)dr_read(root, d->node_desc, sizeof(d->node_desc), IB "/%s/node_desc", name);
    (void)dr_read(root, d->hca_type, sizeof(d->hca_type), IB "/%s/hca_type", name);
    (void)dr_read(root, d->firmware, sizeof(d->firmware), IB "/%s/fw_ver", name);
    find_driver(root, d);
    read_pci(root, d);
    find_uverbs(root, d);
    read_params(root, d);
    unsigned count = dr_list(root, names, DR_PORTS_MAX, IB "/%s/ports", name);
    for (unsigned i = 0; i < count; i++) {
        unsigned number;
        char rest;
        if (isdigit((unsigned char)names[i][0]) && sscanf(names[i], "%3u%c", &number, &rest) == 1)
            dr_port_read(root, d, number, &d->port[d->port_count++]);
    }
    d->transport = find_transport(d);
    if (d->transport == DR_IWARP)
        d->atomics = DR_NO;
}

static int read_devices(struct dr_root *root, const char *only, struct dr_facts *f)
{
    char(*names)[DR_NAME_SIZE] = calloc(DR_DEVICES_MAX, sizeof(*names));

    f->device = calloc(DR_DEVICES_MAX, sizeof(*f->device));
    if (names == NULL || f->device == NULL) {
        free(names);
        return cn_fail(-ENOMEM, "no memory for %u devices", DR_DEVICES_MAX);
    }
    f->device_all = dr_list(root, names, DR_DEVICES_MAX, IB);
    for (unsigned i = 0; i < f->device_all; i++) {
        if (only == NULL || strcmp(only, names[i]) == 0)
            dr_device_read(root, names[i], &f->device[f->device_count++]);
    }
    free(names);
    return 0;
}

static int read_pools(struct dr_root *root, uint64_t node, struct dr_facts *f)
{
    const struct txn_config *config = f->config;

    f->pool = calloc(CAIRN_NODES_MAX, sizeof(*f->pool));
    if (f->pool == NULL)
        return cn_fail(-ENOMEM, "no memory for the pools");
    for (uint32_t i = 0; i < config->node_count; i++) {
        if (node == 0 || config->node[i].id == node)
            dr_pool_read(root, &f->host, config, &config->node[i], &f->pool[f->pool_count++]);
    }
    if (f->pool_count == 0)
        return cn_fail(CAIRN_E_CONFIG, "%s: there is no node %llu in it", config->path,
            (unsigned long long)node);
    return 0;
}

static int read_all(const struct dr_options *o, struct dr_root *root, struct dr_facts *f)
{
    const char *only = o->device;

    f->live = root->live;
    f->one_node = o->node != 0;
    if (o->config != NULL) {
        struct txn_config *config = NULL;
        int rc = txn_config_load(o->config, &config);
        if (rc != 0)
            return rc;
        f->config = config;
        if (only == NULL && config->fabric_config.device[0] != '\0')
            only = config->fabric_config.device;
    }
    dr_host_read(root, o->pid, &f->host);
    if (only != NULL)
        dr_copy_printable(f->only, sizeof(f->only), only);
    int rc = read_devices(root, only, f);
    if (rc == 0 && f->config != NULL)
        rc = read_pools(root, o->node, f);
    if (rc == 0 && root->live)
        dr_live_read(f);
    f->malformed_count = root->malformed_count;
    memcpy(f->malformed, root->malformed, sizeof(f->malformed));
    return rc;
}

int dr_facts_read(const struct dr_options *options, struct dr_facts **ret_facts)
{
    struct dr_root root;
    int rc = dr_root_open(options->root, &root);

    if (rc != 0)
        return rc;
    struct dr_facts *facts = calloc(1, sizeof(*facts));
    rc = facts == NULL ? cn_fail(-ENOMEM, "no memory for the facts")
                       : read_all(options, &root, facts);
    dr_root_close(&root);
    if (rc != 0) {
        dr_facts_free(&facts);
        return rc;
    }
    *ret_facts = facts;
    return 0;
}

void dr_facts_free(struct dr_facts **facts)
{
    if (*facts == NULL)
        return;
    struct txn_config *config = (struct txn_config *)(uintptr_t)(*facts)->config;
    if (config != NULL)
        txn_config_free(&config);
    free((*facts)->device);
    free((*facts)->pool);
    free(*facts);
    *facts = NULL;
}
