/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_rules.c: the table of rules, most important first, and those on RDMA devices and ports.
 * dr_rules_host.c has those on the host and the pools.
 *
 * A rule is silent where a fact is not known: absence of a file is not a fault. Findings are sorted
 * by severity, then in the order of the table.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "tools/dr.h"

/* A counter is worth a warning from one in a million packets on. */
#define PACKETS_PER_FAULT 1000000u
#define PATH_MTU_GOOD 4096u
#define PATH_MTU_FAIR 1024u

/* ---- making findings ---- */

static void name_object(const struct dr_subject *s, char *text, size_t size)
{
    if (s->pool != NULL)
        (void)snprintf(text, size, "node %u: %.200s", s->pool->node, s->pool->path);
    else if (s->port != NULL)
        (void)snprintf(text, size, "%s/%u", s->device->name, s->port->number);
    else if (s->device != NULL)
        (void)snprintf(text, size, "%s", s->device->name);
    else
        (void)snprintf(text, size, "host");
}

struct dr_finding *dr_find(
    struct dr_rule_context *c, enum dr_severity severity, const char *format, ...)
{
    struct dr_report *r = c->report;
    struct dr_finding *f = &c->spare;
    va_list args;

    if (r->count < DR_FINDINGS_MAX)
        f = &r->finding[r->count++];
    else
        r->lost++;
    memset(f, 0, sizeof(*f));
    if (c->rule->rdma && severity > DR_NOTE && !dr_needs_rdma(c->subject->facts))
        severity = DR_NOTE;
    f->severity = severity;
    f->id = c->rule->id;
    f->rank = r->count;
    name_object(c->subject, f->object, sizeof(f->object));
    va_start(args, format);
    (void)vsnprintf(f->text, sizeof(f->text), format, args);
    va_end(args);
    return f;
}

void dr_why(struct dr_finding *finding, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(finding->why, sizeof(finding->why), format, args);
    va_end(args);
}

void dr_mend(struct dr_finding *finding, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(finding->remedy, sizeof(finding->remedy), format, args);
    va_end(args);
}

const char *dr_severity_name(enum dr_severity severity)
{
    switch (severity) {
    case DR_OK: return "ok";
    case DR_NOTE: return "note";
    case DR_WARNING: return "warning";
    case DR_ERROR: return "error";
    }
    return "?";
}

const char *dr_transport_name(enum dr_transport transport)
{
    switch (transport) {
    case DR_OTHER: return "other";
    case DR_INFINIBAND: return "InfiniBand";
    case DR_ROCE: return "RoCE";
    case DR_IWARP: return "iWARP";
    }
    return "?";
}

bool dr_needs_rdma(const struct dr_facts *facts)
{
    return facts->config == NULL || strcmp(facts->config->fabric, "emu") != 0;
}

/* ---- devices ---- */

static bool is_active(const struct dr_port *p)
{
    return p->state == DR_STATE_ACTIVE;
}

static bool any_active(const struct dr_facts *f)
{
    for (unsigned i = 0; i < f->device_count; i++) {
        for (unsigned k = 0; k < f->device[i].port_count; k++) {
            if (f->device[i].transport != DR_OTHER && is_active(&f->device[i].port[k]))
                return true;
        }
    }
    return false;
}

static const char *netdev_of(const struct dr_port *p)
{
    return p->netdev_count != 0 ? p->netdev[0].name : "NETDEV";
}

static void rule_device_opens(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_device *d = s->device;

    if (d->opened != DR_NO)
        return;
    struct dr_finding *f = dr_find(c, DR_ERROR, "verbs cannot open the device: %s", d->open_error);
    dr_why(f,
        "The kernel shows the device, but no program can use it: the provider library is "
        "missing, or the user may not open its file in /dev/infiniband.");
    dr_mend(f, "apt-get install ibverbs-providers; ls -l /dev/infiniband/%s",
        d->uverbs[0] != '\0' ? d->uverbs : "");
}

static void rule_transport(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_device *d = s->device;

    if (d->transport != DR_OTHER)
        return;
    struct dr_finding *f = dr_find(c, any_active(s->facts) ? DR_NOTE : DR_ERROR,
        "node type \"%s\"%s%s is neither InfiniBand, RoCE nor iWARP", d->node_type,
        d->driver[0] != '\0' ? " of " : "", d->driver);
    dr_why(f,
        "Reliable connections made by rdma_cm, with one-sided READ and WRITE, are needed; EFA "
        "and usNIC have none.");
    dr_mend(f,
        "use another device; without one: modprobe rdma_rxe && rdma link add rxe0 type rxe "
        "netdev NETDEV");
}

static void rule_atomics(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_device *d = s->device;

    if (d->atomics != DR_NO || d->transport == DR_OTHER)
        return;
    struct dr_finding *f = dr_find(
        c, d->transport == DR_IWARP ? DR_NOTE : DR_WARNING, "no remote atomics");
    dr_why(f,
        "Locks are taken by compare-and-swap. Without it they go by message to the "
        "participant's CPU: right, but slower, and the CPU is on the path.");
    if (d->transport == DR_IWARP)
        dr_mend(f,
            "nothing is wrong: iWARP has none; for one-sided locks use RoCE v2 or "
            "InfiniBand%s",
            strcmp(d->driver, "irdma") == 0 ? " (devlink dev param: enable_roce)" : "");
    else
        dr_mend(f,
            "see the firmware's settings (mlx5: mlxconfig -d %s set PCI_ATOMIC_MODE=...; "
            "others need PCIe atomics in the BIOS); else nothing",
            d->pci[0] != '\0' ? d->pci : "DEVICE");
}

/* What the link carries, in Mb/s: the encoding takes a fifth up to 5 GT/s, then 2 of 130. */
static uint64_t pcie_mbps(unsigned speed, unsigned width)
{
    uint64_t raw = (uint64_t)speed * 100 * width;
    return speed <= 50 ? raw * 8 / 10 : raw * 128 / 130;
}

static void rule_pcie(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_device *d = s->device;
    uint64_t ports = 0;
    bool narrow = d->width != 0 && d->width < d->width_max;
    bool slow = d->speed != 0 && d->speed < d->speed_max;

    if (!narrow && !slow)
        return;
    for (unsigned i = 0; i < d->port_count; i++)
        ports += is_active(&d->port[i]) ? d->port[i].rate_mbps : 0;
    uint64_t can = pcie_mbps(d->speed, d->width);
    bool enough = can != 0 && ports != 0 && can >= ports;
    struct dr_finding *f = dr_find(c, enough ? DR_NOTE : DR_WARNING,
        "PCIe link is x%u at %u.%u GT/s; the device can x%u at %u.%u GT/s", d->width, d->speed / 10,
        d->speed % 10, d->width_max, d->speed_max / 10, d->speed_max % 10);
    if (enough)
        dr_why(f,
            "Still enough for the ports: %" PRIu64 " of %" PRIu64 " Mb/s. Latency is a little "
            "higher.",
            can, ports);
    else
        dr_why(f,
            "It carries %" PRIu64 " Mb/s, the active ports %" PRIu64 " Mb/s: under load the "
            "device stops its peers (pauses or drops), and each operation takes longer.",
            can, ports);
    dr_mend(f,
        "lspci -vv -s %s | grep -i lnksta; reseat the card, or use a slot with x%u wired and "
        "the BIOS's link speed on auto",
        d->pci, d->width_max);
}

/* ---- ports ---- */

static const char *phys_hint(const struct dr_port *p)
{
    switch (p->phys) {
    case DR_PHYS_POLLING: return "no signal: cable, transceiver or the other end";
    case DR_PHYS_DISABLED: return "switched off by the administrator";
    case DR_PHYS_SLEEP: return "asleep";
    case DR_PHYS_UP: return "the link is up, the port is not";
    default: return p->phys_text[0] != '\0' ? p->phys_text : "physical state not shown";
    }
}

static void rule_port_down(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;

    if (p->state == 0 || is_active(p))
        return;
    if (p->link == DR_LINK_INFINIBAND && p->phys == DR_PHYS_UP)
        return; /* no-subnet-manager */
    struct dr_finding *f = dr_find(c, any_active(s->facts) ? DR_NOTE : DR_ERROR, "port is %s (%s)",
        p->state_text, phys_hint(p));
    dr_why(f, "Nobody can connect through it.%s",
        any_active(s->facts) ? " Another port is active; this one may be meant to be idle." : "");
    if (p->link == DR_LINK_INFINIBAND)
        dr_mend(f, "check the cable and the switch port; ibportstate -D 0 %u enable; ibstat %s",
            p->number, s->device->name);
    else
        dr_mend(f, "ip link set dev %s up; ethtool %s", netdev_of(p), netdev_of(p));
}

static void rule_subnet_manager(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;

    if (p->link != DR_LINK_INFINIBAND || p->phys != DR_PHYS_UP)
        return;
    bool waiting = p->state == DR_STATE_INIT || p->state == DR_STATE_ARMED;
    if (!waiting && !(p->sm_known && p->sm_lid == 0 && p->state != DR_STATE_DOWN))
        return;
    struct dr_finding *f = dr_find(c, DR_ERROR,
        "the link is up but no subnet manager has set the port up (state %s, lid %" PRIu64
        ", sm_lid %" PRIu64 ")",
        p->state_text, p->lid, p->sm_lid);
    dr_why(f,
        "On InfiniBand a subnet manager gives the port its address and routes; without one no "
        "connection can be made.");
    dr_mend(f,
        "on one host of the fabric (or in the switch): apt-get install opensm && systemctl "
        "enable --now opensm; then sminfo");
}

static void rule_netdev(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;

    if (p->link != DR_LINK_ETHERNET)
        return;
    if (p->netdev_count == 0 && is_active(p) && s->device->transport == DR_ROCE) {
        struct dr_finding *f = dr_find(c, DR_ERROR, "no network device belongs to the port");
        dr_why(f,
            "rdma_cm finds the port by an IP address, and that is the network device's. It "
            "may be in another network namespace.");
        dr_mend(f, "rdma link show %s/%u; ip netns list", s->device->name, p->number);
    }
    for (unsigned i = 0; i < p->netdev_count; i++) {
        const struct dr_netdev *n = &p->netdev[i];
        if (strcmp(n->operstate, "down") != 0 && strcmp(n->operstate, "lowerlayerdown") != 0)
            continue;
        struct dr_finding *f = dr_find(c, is_active(p) ? DR_WARNING : DR_NOTE,
            "network device %s is %s", n->name, n->operstate);
        dr_why(f, "Its addresses cannot be reached, over RDMA neither.");
        dr_mend(f, "ip link set dev %s up", n->name);
    }
}

static void rule_gid(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;
    struct dr_finding *f;

    if (s->device->transport != DR_ROCE || !is_active(p))
        return;
    if (p->gid_count == 0) {
        f = dr_find(c, DR_ERROR, "the GID table is empty");
        dr_why(
            f, "A RoCE port is addressed by the IP addresses of its network device; it has none.");
        dr_mend(f, "ip link set dev %s up && ip addr add ADDRESS/24 dev %s", netdev_of(p),
            netdev_of(p));
    } else if (p->roce2 == 0 && p->roce1 != 0) {
        f = dr_find(c, DR_WARNING, "only RoCE v1 GIDs");
        dr_why(f,
            "RoCE v1 is not routed and carries no ECN marks; both ends must speak the same "
            "version. RoCE v2 is what Cairn is tested with.");
        dr_mend(f, "cma_roce_mode -d %s -p %u -m 2 (and the firmware must allow v2)",
            s->device->name, p->number);
    } else if (p->routable == 0 && p->roce2 != 0) {
        f = dr_find(c, DR_WARNING, "only link-local GIDs: %s has no IP address", netdev_of(p));
        dr_why(f,
            "rdma_cm connects to IP addresses; a link-local one needs its interface named and "
            "reaches no other subnet.");
        dr_mend(f, "ip addr add ADDRESS/24 dev %s", netdev_of(p));
    }
}

static void rule_roce_mode(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;

    if (s->device->transport != DR_ROCE || strcmp(p->roce_mode, "IB/RoCE v1") != 0 || p->roce2 == 0)
        return;
    struct dr_finding *f = dr_find(c, DR_WARNING, "rdma_cm connects by RoCE v1 here");
    dr_why(f,
        "The port has RoCE v2 GIDs too, but the default is v1: connections to a v2 peer fail, "
        "and nothing is routed.");
    dr_mend(f, "cma_roce_mode -d %s -p %u -m 2", s->device->name, p->number);
}

/* Of the network device that allows least; 0: not known. */
static unsigned least_mtu(const struct dr_port *p, const struct dr_netdev **ret)
{
    unsigned least = 0;

    for (unsigned i = 0; i < p->netdev_count; i++) {
        unsigned mtu = dr_path_mtu(p->netdev[i].mtu);
        if (p->netdev[i].mtu == 0 || (least != 0 && mtu >= least))
            continue;
        least = mtu;
        *ret = &p->netdev[i];
    }
    return least;
}

static void rule_mtu_mismatch(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;
    const struct dr_netdev *least = NULL;

    if (s->device->transport != DR_ROCE)
        return;
    unsigned low = least_mtu(p, &least);
    for (unsigned i = 0; i < p->netdev_count; i++) {
        const struct dr_netdev *n = &p->netdev[i];
        if (n->mtu == 0 || dr_path_mtu(n->mtu) == low)
            continue;
        struct dr_finding *f = dr_find(c, DR_WARNING,
            "%s has MTU %" PRIu64 ", %s has %" PRIu64 ": RoCE path MTU %u and %u on one port",
            least->name, least->mtu, n->name, n->mtu, low, dr_path_mtu(n->mtu));
        dr_why(f,
            "Both ends of a connection must be able to carry its packets; a peer that uses "
            "the larger one loses every full packet, and only retries are seen.");
        dr_mend(f, "ip link set dev %s mtu %" PRIu64 " (and the same on switches and peers)",
            least->name, n->mtu);
        return;
    }
    if (p->mtu_active != 0 && low != 0 && p->mtu_active > low) {
        struct dr_finding *f = dr_find(c, DR_WARNING,
            "the port works with path MTU %u, but %s (MTU %" PRIu64 ") carries %u only",
            p->mtu_active, least->name, least->mtu, low);
        dr_why(f, "Full packets are lost; only retries are seen.");
        dr_mend(f, "ip link set dev %s mtu %u", least->name, p->mtu_active + 104);
    }
}

static void rule_mtu_small(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;
    const struct dr_netdev *least = NULL;
    unsigned low = s->device->transport == DR_ROCE ? least_mtu(p, &least) : 0;

    if (least == NULL || low >= PATH_MTU_GOOD || !is_active(p))
        return;
    struct dr_finding *f = dr_find(c, low < PATH_MTU_FAIR ? DR_WARNING : DR_NOTE,
        "path MTU is %u: %s has MTU %" PRIu64, low, least->name, least->mtu);
    dr_why(f,
        "A record or value above %u bytes takes several packets. 4096 needs a network MTU of "
        "4200 or more on every hop.",
        low);
    dr_mend(f, "ip link set dev %s mtu 4200 (9000 where switches and peers have it)", least->name);
}

/* ---- counters ---- */

static void list_counters(
    const struct dr_port *p, enum dr_counter_class class, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < p->counter_count; i++) {
        char value[32];
        if (p->counter[i].class != class || p->counter[i].value == 0 || used + 1 >= size)
            continue;
        int n = snprintf(text + used, size - used, "%s%s %s", used == 0 ? "" : ", ",
            p->counter[i].name, tl_count(p->counter[i].value, value));
        used += n > 0 ? (size_t)n : 0;
    }
}

/* A finding when a counter of the class is above zero; a warning only on real hardware and where
 * it is more than a few among many packets. NULL: nothing. */
static struct dr_finding *count(struct dr_rule_context *c, const struct dr_subject *s,
    enum dr_counter_class class, const char *what)
{
    char list[256];
    uint64_t value = dr_port_count(s->port, class);
    uint64_t packets = dr_port_count(s->port, DR_COUNT_PACKETS);

    if (value == 0)
        return NULL;
    bool much = packets / PACKETS_PER_FAULT < value;
    list_counters(s->port, class, list, sizeof(list));
    return dr_find(c, much && !s->device->software ? DR_WARNING : DR_NOTE, "%s: %s", what, list);
}

static void rule_given_up(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_GIVEN_UP, "retries were used up");

    if (f == NULL)
        return;
    dr_why(f,
        "Each time a connection broke: the peer died, or packets were lost for good. "
        "Counted since the driver was loaded.");
    dr_mend(f,
        "rdma statistic show link %s/%u (twice: does it still rise?); then MTU, cables, "
        "switch",
        s->device->name, s->port->number);
}

static void rule_loss(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_LOSS, "packets were lost or came out of order");

    if (f == NULL)
        return;
    dr_why(f,
        "Each loss costs a retry or a time-out of milliseconds to hundreds of them, on the "
        "path of a commit. Usual causes: congestion without PFC or ECN, an MTU too large for "
        "a hop, a bad cable. Counted since the driver was loaded.");
    dr_mend(f,
        "rdma statistic show link %s/%u (twice: does it still rise?); ethtool -S %s | grep "
        "-E 'discard|pause|out_of_buffer'",
        s->device->name, s->port->number, netdev_of(s->port));
}

static void rule_discards(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_DISCARD, "the port dropped packets");

    if (f == NULL)
        return;
    dr_why(f,
        "It had no room, no credits or no route for them. RoCE and InfiniBand expect a network "
        "that does not drop.");
    if (s->port->link == DR_LINK_INFINIBAND)
        dr_mend(f, "perfquery -x; ibqueryerrors (look for the congested or dead port)");
    else
        dr_mend(f, "dcb pfc show dev %s; make the RoCE priority lossless there and in the switch",
            netdev_of(s->port));
}

static void rule_rnr(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_RNR, "a receiver was not ready");

    if (f == NULL)
        return;
    if (f->severity == DR_WARNING)
        f->severity = DR_NOTE;
    dr_why(f,
        "A message came where no buffer was posted: some program on this port is slow or "
        "stopped. Cairn posts its receives ahead; it is another program, or a stalled node.");
    dr_mend(f, "rdma resource show qp (who is it?)");
}

static void rule_access(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_ACCESS, "remote accesses were refused");

    if (f == NULL)
        return;
    if (f->severity == DR_WARNING)
        f->severity = DR_NOTE;
    dr_why(f,
        "Somebody used a key that is no longer valid. A fenced coordinator looks like this, "
        "and so does a program at fault.");
    dr_mend(f, "nothing, unless it rises without a fence: cairn inspect --node ADDR");
}

static void rule_link_errors(struct dr_rule_context *c, const struct dr_subject *s)
{
    struct dr_finding *f = count(c, s, DR_COUNT_LINK, "the link has errors");

    if (f == NULL)
        return;
    dr_why(f, "Bits are damaged on the wire: cable, transceiver or connector.");
    dr_mend(f, "mlxlink -d %s -m (or ethtool -m %s); clean or change the cable",
        s->device->pci[0] != '\0' ? s->device->pci : s->device->name, netdev_of(s->port));
}

/* ---- congestion control ---- */

static void rule_ecn(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;
    bool lossy = dr_port_count(p, DR_COUNT_LOSS) != 0 || dr_port_count(p, DR_COUNT_DISCARD) != 0;
    struct dr_finding *f;

    if (s->device->software || s->device->transport != DR_ROCE || !is_active(p))
        return;
    for (unsigned i = 0; i < p->netdev_count; i++) {
        const struct dr_netdev *n = &p->netdev[i];
        if (n->ecn_np < 0 || n->ecn_rp < 0)
            continue;
        if (n->ecn_np == n->ecn_rp && n->ecn_np != 0)
            return;
        f = dr_find(c, n->ecn_np != n->ecn_rp || lossy ? DR_WARNING : DR_NOTE,
            "congestion control (DCQCN) is %s on %s: notification point 0x%02x, reaction point "
            "0x%02x (bit per priority)",
            n->ecn_np == n->ecn_rp ? "off" : "half on", n->name, n->ecn_np, n->ecn_rp);
        dr_why(f,
            "Without both sides senders do not slow down when the switch marks packets: it "
            "drops or pauses instead. Between data centres it is meant to be off.");
        dr_mend(f,
            "for p in 0 1 2 3 4 5 6 7; do echo 1 > /sys/class/net/%s/ecn/roce_np/enable/$p; "
            "echo 1 > /sys/class/net/%s/ecn/roce_rp/enable/$p; done",
            n->name, n->name);
        return;
    }
    if (p->congestion_control == DR_YES || s->device->param_count != 0)
        return;
    if (p->congestion_control == DR_NO) {
        f = dr_find(c, lossy ? DR_WARNING : DR_NOTE, "congestion control is off");
        dr_why(f, "Senders do not slow down when the switch marks packets: it drops or pauses.");
        dr_mend(f, "echo 1 > /sys/kernel/config/irdma/%s/roce_dcqcn_enable", s->device->name);
        return;
    }
    f = dr_find(c, DR_NOTE, "congestion control (ECN, DCQCN) is not shown by this driver");
    dr_why(f,
        "It may be on or off. It matters as soon as several hosts send to one through a "
        "switch.");
    dr_mend(f,
        "see the vendor's tool (mlx5: mount -t debugfs none /sys/kernel/debug, then run this "
        "as root; irdma: mkdir /sys/kernel/config/irdma/%s; bnxt_re: niccli)",
        s->device->name);
}

static void rule_usable(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_port *p = s->port;

    if (s->device->transport != DR_OTHER && is_active(p) && s->device->opened != DR_NO)
        (void)dr_find(c, DR_OK, "%s port is active, %s", dr_transport_name(s->device->transport),
            p->rate[0] != '\0' ? p->rate : "rate not shown");
}

/* ---- the table ---- */

static const struct dr_rule rules[] = {
    {"no-rdma-device", DR_SCOPE_HOST, true, dr_rule_no_device},
    {"no-uverbs", DR_SCOPE_HOST, true, dr_rule_no_uverbs},
    {"no-rdma-cm", DR_SCOPE_HOST, true, dr_rule_no_rdma_cm},
    {"device-not-opened", DR_SCOPE_DEVICE, true, rule_device_opens},
    {"transport-unsupported", DR_SCOPE_DEVICE, true, rule_transport},
    {"nvdimm-failing", DR_SCOPE_HOST, false, dr_rule_nvdimm},
    {"no-subnet-manager", DR_SCOPE_PORT, true, rule_subnet_manager},
    {"port-down", DR_SCOPE_PORT, true, rule_port_down},
    {"netdev", DR_SCOPE_PORT, true, rule_netdev},
    {"gid", DR_SCOPE_PORT, true, rule_gid},
    {"pool-kind", DR_SCOPE_POOL, false, dr_rule_pool_kind},
    {"pool-access", DR_SCOPE_POOL, false, dr_rule_pool_access},
    {"pool-not-registrable", DR_SCOPE_POOL, true, dr_rule_pool_registrable},
    {"memlock-low", DR_SCOPE_HOST, true, dr_rule_memlock},
    {"roce-mode", DR_SCOPE_PORT, true, rule_roce_mode},
    {"mtu-mismatch", DR_SCOPE_PORT, true, rule_mtu_mismatch},
    {"retries-used-up", DR_SCOPE_PORT, true, rule_given_up},
    {"packet-loss", DR_SCOPE_PORT, true, rule_loss},
    {"discards", DR_SCOPE_PORT, true, rule_discards},
    {"link-errors", DR_SCOPE_PORT, true, rule_link_errors},
    {"congestion-control", DR_SCOPE_PORT, true, rule_ecn},
    {"pcie-link", DR_SCOPE_DEVICE, true, rule_pcie},
    {"no-atomics", DR_SCOPE_DEVICE, true, rule_atomics},
    {"leaked-objects", DR_SCOPE_HOST, true, dr_rule_leaked},
    {"pool-persistence", DR_SCOPE_POOL, false, dr_rule_pool_persistence},
    {"pool-volatile", DR_SCOPE_POOL, false, dr_rule_pool_volatile},
    {"pool-missing", DR_SCOPE_POOL, false, dr_rule_pool_missing},
    {"pool-numa", DR_SCOPE_POOL, true, dr_rule_pool_numa},
    {"namespace-mode", DR_SCOPE_HOST, false, dr_rule_namespace},
    {"mtu-small", DR_SCOPE_PORT, true, rule_mtu_small},
    {"huge-pages-off", DR_SCOPE_HOST, true, dr_rule_huge_pages},
    {"receiver-not-ready", DR_SCOPE_PORT, true, rule_rnr},
    {"refused-accesses", DR_SCOPE_PORT, true, rule_access},
    {"malformed", DR_SCOPE_HOST, false, dr_rule_malformed},
    {"port-usable", DR_SCOPE_PORT, true, rule_usable},
};

static void run_on_devices(struct dr_rule_context *c, struct dr_subject *s)
{
    for (unsigned i = 0; i < s->facts->device_count; i++) {
        s->device = &s->facts->device[i];
        if (c->rule->scope == DR_SCOPE_DEVICE) {
            c->rule->check(c, s);
            continue;
        }
        for (unsigned k = 0; k < s->device->port_count; k++) {
            s->port = &s->device->port[k];
            c->rule->check(c, s);
        }
        s->port = NULL;
    }
}

static int compare(const void *a, const void *b)
{
    const struct dr_finding *x = a, *y = b;

    if (x->severity != y->severity)
        return x->severity > y->severity ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

void dr_rules_run(const struct dr_facts *facts, struct dr_report *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < CN_ARRAY_SIZE(rules); i++) {
        struct dr_subject s = {.facts = facts};
        struct dr_rule_context c = {.rule = &rules[i], .subject = &s, .report = ret};
        if (c.rule->scope == DR_SCOPE_HOST)
            c.rule->check(&c, &s);
        else if (c.rule->scope != DR_SCOPE_POOL)
            run_on_devices(&c, &s);
        for (unsigned k = 0; c.rule->scope == DR_SCOPE_POOL && k < facts->pool_count; k++) {
            s.pool = &facts->pool[k];
            c.rule->check(&c, &s);
        }
    }
    qsort(ret->finding, ret->count, sizeof(ret->finding[0]), compare);
}

enum dr_severity dr_report_worst(const struct dr_report *report)
{
    return report->count == 0 ? DR_OK : report->finding[0].severity;
}
