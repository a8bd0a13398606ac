/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_port.c: one port of an RDMA device: state, link, GIDs, the netdevs behind them, counters by
 * what they mean, congestion control where it is shown.
 *
 * Counters count since the driver was loaded; drivers name the same thing differently, so a table
 * gives each known name its class.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>

#include "tools/dr.h"

#define PORT "/sys/class/infiniband/%s/ports/%u"
#define GID_SCAN_MAX 512u
/* What RoCE v2 puts between the netdev's MTU and the payload: GRH, UDP, BTH, the largest extension
 * headers, ICRC (as the kernel counts). */
#define ROCE_OVERHEAD 96u

static const struct {
    const char *name;
    enum dr_counter_class class;
} known[] = {
    {"port_rcv_packets", DR_COUNT_PACKETS},
    {"port_xmit_packets", DR_COUNT_PACKETS},
    {"rcvd_pkts", DR_COUNT_PACKETS}, /* rxe */
    {"sent_pkts", DR_COUNT_PACKETS},
    {"rx_pkts", DR_COUNT_PACKETS}, /* bnxt_re, efa */
    {"tx_pkts", DR_COUNT_PACKETS},
    {"ip4InPkts", DR_COUNT_PACKETS}, /* irdma */
    {"ip4OutPkts", DR_COUNT_PACKETS},
    {"ip6InPkts", DR_COUNT_PACKETS},
    {"ip6OutPkts", DR_COUNT_PACKETS},
    {"retry_exceeded_err", DR_COUNT_GIVEN_UP}, /* rxe */
    {"retry_rnr_exceeded_err", DR_COUNT_GIVEN_UP},
    {"max_retry_exceeded", DR_COUNT_GIVEN_UP}, /* bnxt_re */
    {"out_of_sequence", DR_COUNT_LOSS},        /* mlx5, newer bnxt_re */
    {"packet_seq_err", DR_COUNT_LOSS},
    {"local_ack_timeout_err", DR_COUNT_LOSS},
    {"implied_nak_seq_err", DR_COUNT_LOSS},
    {"duplicate_request", DR_COUNT_LOSS},
    {"roce_adp_retrans", DR_COUNT_LOSS},
    {"roce_adp_retrans_to", DR_COUNT_LOSS},
    {"out_of_seq_request", DR_COUNT_LOSS}, /* rxe */
    {"rcvd_seq_err", DR_COUNT_LOSS},
    {"completer_retry_err", DR_COUNT_LOSS},
    {"to_retransmits", DR_COUNT_LOSS}, /* bnxt_re */
    {"seq_err_naks_rcvd", DR_COUNT_LOSS},
    {"missing_resp", DR_COUNT_LOSS},
    {"dup_req", DR_COUNT_LOSS},
    {"sq_num_oos", DR_COUNT_LOSS}, /* mlx4 */
    {"rq_num_oos", DR_COUNT_LOSS},
    {"sq_num_to", DR_COUNT_LOSS},
    {"tcpRetransSegs", DR_COUNT_LOSS}, /* irdma, iWARP */
    {"retrans_pkts", DR_COUNT_LOSS},   /* efa */
    {"port_xmit_discards", DR_COUNT_DISCARD},
    {"rx_roce_discards", DR_COUNT_DISCARD}, /* bnxt_re */
    {"tx_roce_discards", DR_COUNT_DISCARD},
    {"ip4InDiscards", DR_COUNT_DISCARD}, /* irdma */
    {"ip6InDiscards", DR_COUNT_DISCARD},
    {"ip4OutNoRoutes", DR_COUNT_DISCARD},
    {"ip6OutNoRoutes", DR_COUNT_DISCARD},
    {"rx_drops", DR_COUNT_DISCARD},      /* efa */
    {"rnr_nak_retry_err", DR_COUNT_RNR}, /* mlx5 */
    {"out_of_buffer", DR_COUNT_RNR},
    {"rcvd_rnr_err", DR_COUNT_RNR}, /* rxe */
    {"send_rnr_err", DR_COUNT_RNR},
    {"rnr_naks_rcvd", DR_COUNT_RNR}, /* bnxt_re */
    {"sq_num_rnr", DR_COUNT_RNR},    /* mlx4 */
    {"rq_num_rnr", DR_COUNT_RNR},
    {"req_remote_access_errors", DR_COUNT_ACCESS}, /* mlx5 */
    {"resp_remote_access_errors", DR_COUNT_ACCESS},
    {"req_remote_invalid_request", DR_COUNT_ACCESS},
    {"remote_access_err", DR_COUNT_ACCESS}, /* bnxt_re */
    {"remote_invalid_req_err", DR_COUNT_ACCESS},
    {"sq_num_rae", DR_COUNT_ACCESS}, /* mlx4 */
    {"rq_num_rae", DR_COUNT_ACCESS},
    {"symbol_error", DR_COUNT_LINK},
    {"port_rcv_errors", DR_COUNT_LINK},
    {"port_rcv_remote_physical_errors", DR_COUNT_LINK},
    {"local_link_integrity_errors", DR_COUNT_LINK},
    {"excessive_buffer_overrun_errors", DR_COUNT_LINK},
    {"link_error_recovery", DR_COUNT_LINK},
    {"rx_icrc_encapsulated", DR_COUNT_LINK},
    {"link_downed", DR_COUNT_DOWNED},
    {"np_ecn_marked_roce_packets", DR_COUNT_ECN}, /* mlx5 */
    {"rp_cnp_handled", DR_COUNT_ECN},
    {"cnpHandled", DR_COUNT_ECN}, /* irdma */
    {"RxECNMrkd", DR_COUNT_ECN},
};

unsigned dr_path_mtu(uint64_t netdev_mtu)
{
    for (unsigned mtu = 4096; mtu >= 256; mtu /= 2) {
        if (netdev_mtu >= mtu + ROCE_OVERHEAD)
            return mtu;
    }
    return 0;
}

uint64_t dr_port_count(const struct dr_port *port, enum dr_counter_class class)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < port->counter_count; i++) {
        if (port->counter[i].class == class &&
            __builtin_add_overflow(sum, port->counter[i].value, &sum))
            return UINT64_MAX;
    }
    return sum;
}

static void read_counters(struct dr_root *root, const struct dr_device *d, struct dr_port *p)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(known) && p->counter_count < DR_COUNTERS_MAX; i++) {
        struct dr_counter *c = &p->counter[p->counter_count];
        const char *name = known[i].name;
        if (!dr_read_u64(root, &c->value, PORT "/hw_counters/%s", d->name, p->number, name) &&
            !dr_read_u64(root, &c->value, PORT "/counters/%s", d->name, p->number, name) &&
            /* before 5.14 some drivers showed those of their only port here */
            !dr_read_u64(root, &c->value, "/sys/class/infiniband/%s/hw_counters/%s", d->name, name))
            continue;
        c->name = name;
        c->class = known[i].class;
        p->counter_count++;
    }
}

/* "4: ACTIVE" */
static unsigned parse_numbered(const char *text, char *word, size_t size)
{
    unsigned number = 0;
    char rest[24] = "";

    if (!isdigit((unsigned char)text[0]) || sscanf(text, "%2u: %23s", &number, rest) != 2)
        return 0;
    (void)snprintf(word, size, "%s", rest);
    return number;
}

static void read_state(struct dr_root *root, const struct dr_device *d, struct dr_port *p)
{
    char text[DR_TEXT_SIZE];
    unsigned whole = 0, tenth = 0;

    (void)dr_read(root, text, sizeof(text), PORT "/state", d->name, p->number);
    p->state = parse_numbered(text, p->state_text, sizeof(p->state_text));
    (void)dr_read(root, text, sizeof(text), PORT "/phys_state", d->name, p->number);
    p->phys = parse_numbered(text, p->phys_text, sizeof(p->phys_text));
    (void)dr_read(root, p->rate, sizeof(p->rate), PORT "/rate", d->name, p->number);
    if (isdigit((unsigned char)p->rate[0]) &&
        (sscanf(p->rate, "%6u.%1u Gb/sec", &whole, &tenth) == 2 ||
            sscanf(p->rate, "%6u Gb/sec", &whole) == 1))
        p->rate_mbps = (uint64_t)whole * 1000 + (uint64_t)tenth * 100;
    (void)dr_read(root, text, sizeof(text), PORT "/link_layer", d->name, p->number);
    if (strcmp(text, "InfiniBand") == 0)
        p->link = DR_LINK_INFINIBAND;
    else if (strcmp(text, "Ethernet") == 0)
        p->link = DR_LINK_ETHERNET;
    (void)dr_read_u64(root, &p->lid, PORT "/lid", d->name, p->number);
    p->sm_known = dr_read_u64(root, &p->sm_lid, PORT "/sm_lid", d->name, p->number);
}

static int read_ecn(struct dr_root *root, const char *netdev, const char *side)
{
    int mask = -1;

    for (unsigned priority = 0; priority < 8; priority++) {
        uint64_t on;
        if (!dr_read_u64(root, &on, "/sys/class/net/%s/ecn/%s/enable/%u", netdev, side, priority))
            continue;
        mask = (mask < 0 ? 0 : mask) | (on != 0 ? 1 << priority : 0);
    }
    return mask;
}

static void add_netdev(struct dr_root *root, const char *name, struct dr_port *p)
{
    if (!dr_name_is_plain(name) || strlen(name) >= sizeof(p->netdev[0].name))
        return;
    for (unsigned i = 0; i < p->netdev_count; i++) {
        if (strcmp(p->netdev[i].name, name) == 0)
            return;
    }
    if (p->netdev_count == DR_NETDEVS_MAX)
        return;
    struct dr_netdev *n = &p->netdev[p->netdev_count++];
    memcpy(n->name, name, strlen(name) + 1);
    (void)dr_read(root, n->operstate, sizeof(n->operstate), "/sys/class/net/%s/operstate", name);
    (void)dr_read_u64(root, &n->mtu, "/sys/class/net/%s/mtu", name);
    n->ecn_np = read_ecn(root, name, "roce_np");
    n->ecn_rp = read_ecn(root, name, "roce_rp");
}

/* False: not a GID, or an empty place. */
static bool parse_gid(const char *text, struct in6_addr *ret)
{
    static const struct in6_addr zero;
    struct in6_addr prefix_only = {.s6_addr = {0xfe, 0x80}};

    return inet_pton(AF_INET6, text, ret) == 1 && memcmp(ret, &zero, sizeof(zero)) != 0 &&
        memcmp(ret, &prefix_only, sizeof(prefix_only)) != 0;
}

static void add_gid(struct dr_port *p, const struct dr_gid *gid)
{
    bool v2 = strcmp(gid->type, "RoCE v2") == 0;

    p->gid_count++;
    p->roce2 += v2;
    p->roce1 += strcmp(gid->type, "IB/RoCE v1") == 0;
    p->routable += v2 && !gid->link_local;
    if (p->gid_kept < DR_GIDS_MAX)
        p->gid[p->gid_kept++] = *gid;
}

static void read_gids(struct dr_root *root, const struct dr_device *d, struct dr_port *p)
{
    for (unsigned i = 0; i < GID_SCAN_MAX; i++) {
        struct dr_gid gid = {.index = i};
        char text[DR_TEXT_SIZE];
        struct in6_addr address;
        if (dr_read(root, text, sizeof(text), PORT "/gids/%u", d->name, p->number, i) == -ENOENT)
            return;
        if (!parse_gid(text, &address))
            continue;
        (void)snprintf(gid.gid, sizeof(gid.gid), "%.39s", text);
        gid.link_local = IN6_IS_ADDR_LINKLOCAL(&address);
        if (dr_read(root, text, sizeof(text), PORT "/gid_attrs/types/%u", d->name, p->number, i) >
            0)
            (void)snprintf(gid.type, sizeof(gid.type), "%.15s", text);
        if (dr_read(root, text, sizeof(text), PORT "/gid_attrs/ndevs/%u", d->name, p->number, i) >
                0 &&
            dr_name_is_plain(text) && strlen(text) < sizeof(gid.netdev)) {
            memcpy(gid.netdev, text, strlen(text) + 1);
            add_netdev(root, text, p);
        }
        add_gid(p, &gid);
    }
}

/* Where no GID names the netdev: rxe's parent, else the netdevs of the same PCI function. */
static void find_netdevs(struct dr_root *root, const struct dr_device *d, struct dr_port *p)
{
    char text[DR_NAME_SIZE], names[DR_NETDEVS_MAX][DR_NAME_SIZE];

    if (dr_read(root, text, sizeof(text), "/sys/class/infiniband/%s/parent", d->name) > 0)
        add_netdev(root, text, p);
    if (p->netdev_count != 0 || d->pci[0] == '\0')
        return;
    unsigned count = dr_list(
        root, names, DR_NETDEVS_MAX, "/sys/class/infiniband/%s/device/net", d->name);
    for (unsigned i = 0; i < count; i++)
        add_netdev(root, names[i], p);
}

static void read_congestion(struct dr_root *root, const struct dr_device *d, struct dr_port *p)
{
    static const char *const switches[] = {"roce_dcqcn_enable", "roce_dctcp_enable",
        "roce_timely_enable", "iw_dctcp_enable", "iw_timely_enable", "iw_ecn_enable"};
    uint64_t value;
    char text[DR_TEXT_SIZE];

    for (size_t i = 0; i < CN_ARRAY_SIZE(switches); i++) {
        if (dr_read_u64(root, &value, "/sys/kernel/config/irdma/%s/%s", d->name, switches[i]) &&
            p->congestion_control != DR_YES)
            p->congestion_control = value != 0 ? DR_YES : DR_NO;
    }
    p->tos = -1;
    if (dr_read_u64(root, &value, "/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_tos",
            d->name, p->number) &&
        value < 256)
        p->tos = (int)value;
    if (dr_read(root, text, sizeof(text),
            "/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode", d->name, p->number) > 0)
        (void)snprintf(p->roce_mode, sizeof(p->roce_mode), "%.23s", text);
}

void dr_port_read(
    struct dr_root *root, const struct dr_device *device, unsigned number, struct dr_port *p)
{
    memset(p, 0, sizeof(*p));
    p->number = number;
    read_state(root, device, p);
    read_gids(root, device, p);
    if (p->link == DR_LINK_ETHERNET)
        find_netdevs(root, device, p);
    read_counters(root, device, p);
    read_congestion(root, device, p);
}
