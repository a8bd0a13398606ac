/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_print.c: the report for people (findings first, then what was seen) and for programs.
 */
#include <inttypes.h>

#include "tools/dr.h"

#define WIDTH 96

/* ---- for people ---- */

/* Words of `text`, the first line behind `label`, all others under it. */
static void print_wrapped(const char *label, const char *text)
{
    int indent = (int)strlen(label), column = indent;

    printf("%s", label);
    while (*text != '\0') {
        int size = (int)strcspn(text, " ");
        if (column > indent && column + 1 + size > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        if (column > indent)
            column += printf(" ");
        column += printf("%.*s", size, text);
        text += size;
        text += strspn(text, " ");
    }
    printf("\n");
}

/* "1 error", "2 errors" */
static void print_counts(const struct dr_report *report)
{
    unsigned count[DR_ERROR + 1] = {0};
    const char *comma = "";

    for (unsigned i = 0; i < report->count; i++)
        count[report->finding[i].severity]++;
    printf("cairn doctor: ");
    if (dr_report_worst(report) <= DR_OK)
        printf("nothing is wrong");
    for (int s = DR_ERROR; s > DR_OK; s--) {
        if (count[s] == 0)
            continue;
        printf("%s%u %s%s", comma, count[s], dr_severity_name((enum dr_severity)s),
            count[s] == 1 ? "" : "s");
        comma = ", ";
    }
    printf("\n");
}

static void print_finding(const struct dr_finding *f)
{
    static const char *const labels[] = {"ok", "Note", "WARNING", "ERROR"};

    printf("\n%s: %s (%s)\n", labels[f->severity], f->object, f->id);
    print_wrapped("    ", f->text);
    if (f->why[0] != '\0')
        print_wrapped("    why:  ", f->why);
    if (f->remedy[0] != '\0')
        print_wrapped("    mend: ", f->remedy);
}

static const char *or_dash(const char *text)
{
    return text[0] == '\0' ? "-" : text;
}

static void print_port(const struct dr_port *p)
{
    printf("    port %u: %s, %s, %s", p->number, or_dash(p->state_text), or_dash(p->phys_text),
        or_dash(p->rate));
    if (p->link == DR_LINK_INFINIBAND)
        printf(", lid %" PRIu64 ", sm_lid %" PRIu64, p->lid, p->sm_lid);
    if (p->gid_count != 0)
        printf(", %u GIDs (%u RoCE v2)", p->gid_count, p->roce2);
    if (p->tos >= 0)
        printf(", tos %d", p->tos);
    printf("\n");
    for (unsigned i = 0; i < p->netdev_count; i++) {
        const struct dr_netdev *n = &p->netdev[i];
        printf("        %s: %s, MTU %" PRIu64, n->name, or_dash(n->operstate), n->mtu);
        if (dr_path_mtu(n->mtu) != 0)
            printf(" (path MTU %u)", dr_path_mtu(n->mtu));
        printf("\n");
    }
}

static const char *answer_name(enum dr_answer answer)
{
    return answer == DR_YES ? "yes" : answer == DR_NO ? "no" : "unknown";
}

static void print_device(const struct dr_device *d)
{
    printf("  %s: %s, driver %s", d->name, dr_transport_name(d->transport), or_dash(d->driver));
    if (d->firmware[0] != '\0')
        printf(", firmware %s", d->firmware);
    if (d->pci[0] != '\0')
        printf(", PCI %s", d->pci);
    if (d->width != 0)
        printf(" x%u at %u.%u GT/s", d->width, d->speed / 10, d->speed % 10);
    printf(", atomics %s, on-demand paging %s\n", answer_name(d->atomics), answer_name(d->odp));
    for (unsigned i = 0; i < d->port_count; i++)
        print_port(&d->port[i]);
}

static void print_limit(const struct dr_host *h)
{
    char text[32];

    if (h->memlock_known != DR_YES)
        return;
    printf("  locked memory: %s%s\n",
        h->memlock == UINT64_MAX ? "unlimited" : tl_bytes(h->memlock, text),
        h->ipc_lock == DR_YES ? " (not enforced: CAP_IPC_LOCK)" : "");
}

static void print_host(const struct dr_host *h)
{
    char size[32];

    printf("\nHost: kernel %s\n", or_dash(h->release));
    print_limit(h);
    if (h->huge_known)
        printf("  huge pages: %" PRIu64 " of %s, %" PRIu64 " free; transparent: %s\n",
            h->huge_total, tl_bytes(h->huge_size, size), h->huge_free, or_dash(h->thp));
    for (unsigned i = 0; i < h->namespace_count; i++) {
        if (h->namespace[i].size != 0)
            printf("  %s: %s, mode %s\n", h->namespace[i].name,
                tl_bytes(h->namespace[i].size, size), or_dash(h->namespace[i].mode));
    }
    for (unsigned i = 0; i < h->region_count; i++)
        printf("  %s: persistence domain %s\n", h->region[i].name, or_dash(h->region[i].domain));
}

static void print_owners(const struct dr_facts *facts)
{
    char size[32];

    if (facts->owner_count != 0)
        printf("\nRDMA objects by process:\n");
    for (unsigned i = 0; i < facts->owner_count; i++) {
        const struct dr_owner *o = &facts->owner[i];
        printf("  %" PRIu64 " %s: %" PRIu64 " qp, %" PRIu64 " cq, %" PRIu64 " mr (%s), %" PRIu64
               " pd, %" PRIu64 " cm_id\n",
            o->pid, o->name, o->count[DR_OBJECT_QP], o->count[DR_OBJECT_CQ], o->count[DR_OBJECT_MR],
            tl_bytes(o->bytes, size), o->count[DR_OBJECT_PD], o->count[DR_OBJECT_CM_ID]);
    }
}

void dr_print(const struct dr_facts *facts, const struct dr_report *report, bool all)
{
    char size[32], pinned[32];

    print_counts(report);
    for (unsigned i = 0; i < report->count; i++) {
        if (report->finding[i].severity > DR_OK || all)
            print_finding(&report->finding[i]);
    }
    if (report->lost != 0)
        printf("\n(and %u findings more)\n", report->lost);
    printf("\nDevices:%s\n", facts->device_count == 0 ? " none" : "");
    for (unsigned i = 0; i < facts->device_count; i++)
        print_device(&facts->device[i]);
    print_host(&facts->host);
    if (facts->pool_count != 0)
        printf("\nPools:\n");
    for (unsigned i = 0; i < facts->pool_count; i++) {
        const struct dr_pool *p = &facts->pool[i];
        printf("  node %u: %s: %s%s%s, %s, locks up to %s, persistence %s\n", p->node, p->path,
            dr_pool_kind_name(p->kind), p->fs[0] != '\0' ? " on " : "", p->fs,
            tl_bytes(p->size, size), tl_bytes(p->pinned, pinned),
            txn_persistence_name(p->persistence));
    }
    print_owners(facts);
}

/* ---- for programs ---- */

/* Everything was read as printable ASCII, but a path of the configuration: json_string() of it
 * cannot fail then. */
static void set(json_t *object, const char *key, const char *text)
{
    (void)json_object_set_new(object, key, text[0] == '\0' ? json_null() : json_string(text));
}

static void set_u64(json_t *object, const char *key, uint64_t value)
{
    (void)json_object_set_new(object, key, tl_json_u64(value));
}

static void set_answer(json_t *object, const char *key, enum dr_answer answer)
{
    (void)json_object_set_new(
        object, key, answer == DR_UNKNOWN ? json_null() : json_boolean(answer == DR_YES));
}

static json_t *json_gids(const struct dr_port *p)
{
    json_t *array = json_array();

    for (unsigned i = 0; i < p->gid_kept; i++) {
        json_t *gid = json_object();
        set_u64(gid, "index", p->gid[i].index);
        set(gid, "gid", p->gid[i].gid);
        set(gid, "type", p->gid[i].type);
        set(gid, "netdev", p->gid[i].netdev);
        (void)json_array_append_new(array, gid);
    }
    return array;
}

static json_t *json_netdevs(const struct dr_port *p)
{
    json_t *array = json_array();

    for (unsigned i = 0; i < p->netdev_count; i++) {
        const struct dr_netdev *n = &p->netdev[i];
        json_t *netdev = json_object();
        set(netdev, "name", n->name);
        set(netdev, "operstate", n->operstate);
        set_u64(netdev, "mtu", n->mtu);
        set_u64(netdev, "path_mtu", dr_path_mtu(n->mtu));
        (void)json_object_set_new(
            netdev, "ecn_np", n->ecn_np < 0 ? json_null() : json_integer(n->ecn_np));
        (void)json_object_set_new(
            netdev, "ecn_rp", n->ecn_rp < 0 ? json_null() : json_integer(n->ecn_rp));
        (void)json_array_append_new(array, netdev);
    }
    return array;
}

static json_t *json_port(const struct dr_port *p)
{
    static const char *const links[] = {"", "InfiniBand", "Ethernet"};
    json_t *port = json_object(), *counters = json_object();

    set_u64(port, "port", p->number);
    set(port, "state", p->state_text);
    set(port, "phys_state", p->phys_text);
    set(port, "link_layer", links[p->link]);
    set(port, "rate", p->rate);
    set_u64(port, "lid", p->lid);
    set_u64(port, "sm_lid", p->sm_lid);
    set_u64(port, "mtu_active", p->mtu_active);
    set_u64(port, "gid_count", p->gid_count);
    (void)json_object_set_new(port, "gids", json_gids(p));
    (void)json_object_set_new(port, "netdevs", json_netdevs(p));
    set(port, "rdma_cm_roce_mode", p->roce_mode);
    (void)json_object_set_new(port, "rdma_cm_tos", p->tos < 0 ? json_null() : json_integer(p->tos));
    for (unsigned i = 0; i < p->counter_count; i++)
        set_u64(counters, p->counter[i].name, p->counter[i].value);
    (void)json_object_set_new(port, "counters", counters);
    return port;
}

static json_t *json_device(const struct dr_device *d)
{
    json_t *device = json_object(), *ports = json_array(), *params = json_object();

    set(device, "name", d->name);
    set(device, "transport", dr_transport_name(d->transport));
    set(device, "driver", d->driver);
    (void)json_object_set_new(device, "software", json_boolean(d->software));
    set(device, "node_type", d->node_type);
    set(device, "hca_type", d->hca_type);
    set(device, "firmware", d->firmware);
    set(device, "pci", d->pci);
    (void)json_object_set_new(device, "pcie_gts", json_real((double)d->speed / 10));
    (void)json_object_set_new(device, "pcie_gts_max", json_real((double)d->speed_max / 10));
    set_u64(device, "pcie_width", d->width);
    set_u64(device, "pcie_width_max", d->width_max);
    (void)json_object_set_new(device, "numa", d->numa < 0 ? json_null() : json_integer(d->numa));
    set_answer(device, "opened", d->opened);
    set_answer(device, "atomics", d->atomics);
    set_answer(device, "on_demand_paging", d->odp);
    set_u64(device, "max_qp_wr", d->max_qp_wr);
    set_u64(device, "max_rd_atomic", d->max_rd_atomic);
    set_u64(device, "max_mr_size", d->max_mr_size);
    for (unsigned i = 0; i < d->param_count; i++)
        set(params, d->param[i].name, d->param[i].value);
    (void)json_object_set_new(device, "congestion_control", params);
    for (unsigned i = 0; i < d->port_count; i++)
        (void)json_array_append_new(ports, json_port(&d->port[i]));
    (void)json_object_set_new(device, "ports", ports);
    return device;
}

static json_t *json_host(const struct dr_host *h)
{
    json_t *host = json_object(), *regions = json_object(), *namespaces = json_object();

    set(host, "kernel", h->release);
    (void)json_object_set_new(host, "memlock",
        h->memlock_known != DR_YES     ? json_null()
            : h->memlock == UINT64_MAX ? json_string("unlimited")
                                       : tl_json_u64(h->memlock));
    set_answer(host, "cap_ipc_lock", h->ipc_lock);
    set_u64(host, "memory", h->memory);
    set_u64(host, "huge_pages", h->huge_total);
    set_u64(host, "huge_pages_free", h->huge_free);
    set_u64(host, "huge_page_size", h->huge_size);
    set(host, "transparent_huge_pages", h->thp);
    (void)json_object_set_new(host, "uverbs", json_boolean(h->uverbs));
    set_answer(host, "rdma_cm", h->rdma_cm);
    for (unsigned i = 0; i < h->region_count; i++)
        set(regions, h->region[i].name, h->region[i].domain);
    for (unsigned i = 0; i < h->namespace_count; i++)
        set(namespaces, h->namespace[i].name, h->namespace[i].mode);
    (void)json_object_set_new(host, "persistence_domains", regions);
    (void)json_object_set_new(host, "namespace_modes", namespaces);
    return host;
}

static json_t *json_pool(const struct dr_pool *p)
{
    json_t *pool = json_object();

    set_u64(pool, "node", p->node);
    set(pool, "path", p->path);
    set(pool, "kind", dr_pool_kind_name(p->kind));
    (void)json_object_set_new(pool, "exists", json_boolean(p->exists));
    set(pool, "file_system", p->fs);
    set_u64(pool, "size", p->size);
    set_u64(pool, "locks", p->pinned);
    set(pool, "region", p->region);
    set(pool, "persistence_domain", p->domain);
    set(pool, "persistence", txn_persistence_name(p->persistence));
    return pool;
}

static json_t *json_owner(const struct dr_owner *o)
{
    static const char *const keys[DR_OBJECT_KINDS] = {"ctx", "pd", "mr", "cq", "qp", "cm_id"};
    json_t *owner = json_object();

    set_u64(owner, "pid", o->pid);
    set(owner, "name", o->name);
    (void)json_object_set_new(owner, "gone", json_boolean(o->gone));
    for (int i = 0; i < DR_OBJECT_KINDS; i++)
        set_u64(owner, keys[i], o->count[i]);
    set_u64(owner, "mr_bytes", o->bytes);
    return owner;
}

static json_t *json_findings(const struct dr_report *report)
{
    json_t *array = json_array();

    for (unsigned i = 0; i < report->count; i++) {
        const struct dr_finding *f = &report->finding[i];
        json_t *finding = json_object();
        set(finding, "severity", dr_severity_name(f->severity));
        set(finding, "id", f->id);
        set(finding, "object", f->object);
        set(finding, "text", f->text);
        set(finding, "why", f->why);
        set(finding, "remedy", f->remedy);
        (void)json_array_append_new(array, finding);
    }
    return array;
}

json_t *dr_json(const struct dr_facts *facts, const struct dr_report *report)
{
    json_t *root = json_object(), *devices = json_array(), *pools = json_array();
    json_t *owners = json_array(), *malformed = json_array();

    set(root, "worst", dr_severity_name(dr_report_worst(report)));
    (void)json_object_set_new(root, "live", json_boolean(facts->live));
    (void)json_object_set_new(root, "findings", json_findings(report));
    for (unsigned i = 0; i < facts->device_count; i++)
        (void)json_array_append_new(devices, json_device(&facts->device[i]));
    (void)json_object_set_new(root, "devices", devices);
    (void)json_object_set_new(root, "host", json_host(&facts->host));
    for (unsigned i = 0; i < facts->pool_count; i++)
        (void)json_array_append_new(pools, json_pool(&facts->pool[i]));
    (void)json_object_set_new(root, "pools", pools);
    for (unsigned i = 0; i < facts->owner_count; i++)
        (void)json_array_append_new(owners, json_owner(&facts->owner[i]));
    (void)json_object_set_new(root, "processes", owners);
    for (unsigned i = 0; i < facts->malformed_count && i < DR_MALFORMED_MAX; i++)
        (void)json_array_append_new(malformed, json_string(facts->malformed[i]));
    (void)json_object_set_new(root, "malformed", malformed);
    return root;
}
