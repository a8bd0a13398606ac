/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_rules_host.c: rules on the host (interfaces of the RDMA stack, locked memory, huge pages,
 * persistent memory, objects left behind) and on the pools of a configuration.
 */
#include <inttypes.h>

#include "tools/dr.h"

#define MEMLOCK_SMALL (UINT64_C(64) << 20)
/* From this kernel on (6.5) the pages of an ordinary file are no longer pinned for writing: the
 * file system could not track who dirties them. */
#define KERNEL_NO_FILE_PINS 6005u

const char *dr_pool_kind_name(enum dr_pool_kind kind)
{
    switch (kind) {
    case DR_POOL_UNKNOWN: return "unknown";
    case DR_POOL_DEVDAX: return "devdax";
    case DR_POOL_FSDAX: return "fsdax";
    case DR_POOL_TMPFS: return "tmpfs";
    case DR_POOL_FILE: return "file";
    case DR_POOL_OTHER: return "other";
    }
    return "?";
}

/* ---- the RDMA stack ---- */

void dr_rule_no_device(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_facts *facts = s->facts;
    struct dr_finding *f;

    if (facts->device_count != 0)
        return;
    if (facts->only[0] != '\0' && facts->device_all != 0) {
        f = dr_find(
            c, DR_ERROR, "no RDMA device %s (of %u there are)", facts->only, facts->device_all);
        dr_why(f,
            "The name comes from --device, or from fabric_options.device of the "
            "configuration.");
        dr_mend(f, "rdma link show (names those there are)");
        return;
    }
    f = dr_find(c, DR_ERROR, "no RDMA device");
    dr_why(f,
        "%s The fabric `rpma` needs one; `emu` works between processes of one machine "
        "without.",
        dr_needs_rdma(facts) ? "/sys/class/infiniband is empty or not there."
                             : "The configuration does not use one.");
    dr_mend(f,
        "in software: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV; for a "
        "card: apt-get install rdma-core ibverbs-providers, then modprobe its driver "
        "(mlx5_ib, irdma, bnxt_re...)");
}

void dr_rule_no_uverbs(struct dr_rule_context *c, const struct dr_subject *s)
{
    if (s->facts->device_count == 0 || s->facts->host.uverbs)
        return;
    struct dr_finding *f = dr_find(c, DR_ERROR, "the module ib_uverbs is not loaded");
    dr_why(f, "Programs reach the device through it.");
    dr_mend(f, "modprobe ib_uverbs (and apt-get install rdma-core, which loads it at boot)");
}

void dr_rule_no_rdma_cm(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_host *h = &s->facts->host;
    struct dr_finding *f;

    if (s->facts->device_count == 0 || h->rdma_cm == DR_UNKNOWN)
        return;
    if (h->rdma_cm == DR_NO) {
        f = dr_find(c, DR_ERROR, "the module rdma_ucm is not loaded");
        dr_why(f, "Connections are made by rdma_cm, which programs reach through it.");
        dr_mend(f, "modprobe rdma_ucm (and apt-get install rdma-core, which loads it at boot)");
    } else if (h->cm_error[0] != '\0') {
        f = dr_find(c, DR_ERROR, "rdma_cm cannot be opened: %s", h->cm_error);
        dr_why(f, "Connections are made through it.");
        dr_mend(f,
            "ls -l /dev/infiniband; apt-get install rdma-core (its udev rules open it to "
            "everybody)");
    }
}

/* The largest that one process locks: every node is a process. */
static const struct dr_pool *largest_pool(const struct dr_facts *facts)
{
    const struct dr_pool *largest = NULL;

    for (unsigned i = 0; i < facts->pool_count; i++) {
        if (largest == NULL || facts->pool[i].pinned > largest->pinned)
            largest = &facts->pool[i];
    }
    return largest;
}

void dr_rule_memlock(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_host *h = &s->facts->host;
    const struct dr_pool *pool = largest_pool(s->facts);
    char have[32], need[32];

    if (h->memlock_known != DR_YES || h->ipc_lock == DR_YES || h->memlock == UINT64_MAX)
        return;
    uint64_t want = pool != NULL ? pool->pinned : MEMLOCK_SMALL;
    if (h->memlock >= want)
        return;
    (void)tl_bytes(h->memlock, have);
    (void)tl_bytes(want, need);
    struct dr_finding *f;
    if (pool != NULL)
        f = dr_find(c, DR_ERROR, "locked memory is limited to %s; node %u needs up to %s", have,
            pool->node, need);
    else
        f = dr_find(c, DR_WARNING, "locked memory is limited to %s", have);
    dr_why(f,
        "All memory that peers access is pinned when it is registered, and counts against the "
        "limit (RLIMIT_MEMLOCK) of the process: a whole pool, its rings, the buffers of its "
        "connections. Registration fails with \"cannot allocate memory\".");
    dr_mend(f,
        "systemd: LimitMEMLOCK=infinity in the unit; logins: echo '* - memlock unlimited' > "
        "/etc/security/limits.d/cairn.conf; now: prlimit --pid $$ --memlock=unlimited");
}

void dr_rule_huge_pages(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_host *h = &s->facts->host;

    if (!h->huge_known || h->huge_total != 0)
        return;
    struct dr_finding *f = dr_find(c, DR_NOTE, "no huge pages are reserved (transparent ones: %s)",
        h->thp[0] != '\0' ? h->thp : "not shown");
    dr_why(f,
        "Buffers then lie in 4 KiB pages: the device needs up to 512 times the translations, "
        "and registration takes longer.");
    dr_mend(f, "sysctl -w vm.nr_hugepages=64 (and in /etc/sysctl.d)");
}

void dr_rule_leaked(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_facts *facts = s->facts;
    struct dr_finding *f;

    if (facts->owners_known == DR_NO) {
        f = dr_find(c, DR_NOTE, "RDMA objects by process are not known: %s", facts->owners_error);
        dr_why(f, "Queue pairs and memory that a program left behind would be seen there.");
        dr_mend(f, "apt-get install iproute2");
    }
    for (unsigned i = 0; i < facts->owner_count; i++) {
        const struct dr_owner *o = &facts->owner[i];
        if (!o->gone)
            continue;
        f = dr_find(c, DR_WARNING,
            "process %" PRIu64 " (%s) has ended, but %" PRIu64 " memory regions, %" PRIu64
            " queue pairs and %" PRIu64 " completion queues of it are there",
            o->pid, o->name, o->count[DR_OBJECT_MR], o->count[DR_OBJECT_QP],
            o->count[DR_OBJECT_CQ]);
        (void)snprintf(f->object, sizeof(f->object), "pid %" PRIu64, o->pid);
        dr_why(f,
            "They hold pinned memory and slots of the device. Some process that inherited the "
            "device's file still keeps them; the kernel frees them with the last one.");
        dr_mend(f, "fuser -v /dev/infiniband/uverbs*; end the process that is left");
    }
}

void dr_rule_malformed(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_facts *facts = s->facts;

    if (facts->malformed_count == 0)
        return;
    struct dr_finding *f = dr_find(c, DR_NOTE, "%u files could not be understood, among them %s",
        facts->malformed_count, facts->malformed[0]);
    dr_why(f,
        "They are too long, no plain text or no number; they count as not there. In a captured "
        "tree they may be damaged; else a driver says something new.");
    dr_mend(f, "cat -v the file; `cairn doctor --json` lists the first %u", DR_MALFORMED_MAX);
}

/* ---- persistent memory ---- */

void dr_rule_nvdimm(struct dr_rule_context *c, const struct dr_subject *s)
{
    static const char *const bad[] = {
        "save_fail", "restore_fail", "flush_fail", "not_armed", "map_fail"};

    for (unsigned i = 0; i < s->facts->host.nvdimm_count; i++) {
        const struct dr_nvdimm *n = &s->facts->host.nvdimm[i];
        for (size_t k = 0; k < CN_ARRAY_SIZE(bad); k++) {
            if (strstr(n->flags, bad[k]) == NULL)
                continue;
            struct dr_finding *f = dr_find(c, DR_ERROR, "%s says: %s", n->name, n->flags);
            (void)snprintf(f->object, sizeof(f->object), "%s", n->name);
            dr_why(f,
                "It did not, or will not, save its content at a power failure: what was "
                "acknowledged may be lost.");
            dr_mend(f, "ndctl list -DH -d %s; replace it", n->name);
            break;
        }
    }
}

void dr_rule_namespace(struct dr_rule_context *c, const struct dr_subject *s)
{
    for (unsigned i = 0; i < s->facts->host.namespace_count; i++) {
        const struct dr_namespace *n = &s->facts->host.namespace[i];
        char size[32];
        if (n->size == 0 ||
            (strcmp(n->mode, "raw") != 0 && strcmp(n->mode, "safe") != 0 &&
                strcmp(n->mode, "sector") != 0))
            continue;
        struct dr_finding *f = dr_find(
            c, DR_NOTE, "%s (%s) is in mode %s", n->name, tl_bytes(n->size, size), n->mode);
        (void)snprintf(f->object, sizeof(f->object), "%s", n->name);
        dr_why(f, "A pool needs devdax: only that can be registered with every RDMA device.");
        dr_mend(f, "ndctl create-namespace -f -e %s -m devdax (its content is lost)", n->name);
    }
}

/* ---- pools ---- */

void dr_rule_pool_kind(struct dr_rule_context *c, const struct dr_subject *s)
{
    if (s->pool->kind != DR_POOL_OTHER)
        return;
    struct dr_finding *f = dr_find(c, DR_ERROR, "neither a file nor a dax device");
    dr_why(f, "A pool is a devdax device, or a file on tmpfs, fsdax or another file system.");
    dr_mend(f, "ndctl list -NX (shows the dax devices); then nodes[].pool in the configuration");
}

void dr_rule_pool_access(struct dr_rule_context *c, const struct dr_subject *s)
{
    if (s->pool->denied[0] == '\0')
        return;
    struct dr_finding *f = dr_find(c, DR_ERROR, "this user cannot use it: %s", s->pool->denied);
    dr_why(f, "The node opens it for reading and writing.");
    dr_mend(f, "ls -lL on it; chown to the user of the node (for devdax by an udev rule)");
}

static enum dr_answer any_odp(const struct dr_facts *facts)
{
    enum dr_answer answer = facts->device_count == 0 ? DR_UNKNOWN : DR_NO;

    for (unsigned i = 0; i < facts->device_count; i++) {
        if (facts->device[i].odp == DR_YES)
            return DR_YES;
        if (facts->device[i].odp == DR_UNKNOWN)
            answer = DR_UNKNOWN;
    }
    return answer;
}

void dr_rule_pool_registrable(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_pool *p = s->pool;
    struct dr_finding *f;

    if (p->kind == DR_POOL_FSDAX) {
        enum dr_answer odp = any_odp(s->facts);
        f = dr_find(c,
            odp == DR_NO        ? DR_ERROR
                : odp == DR_YES ? DR_NOTE
                                : DR_WARNING,
            "fsdax can be registered only by a device with on-demand paging (ODP): %s",
            odp == DR_NO        ? "there is none"
                : odp == DR_YES ? "there is one"
                                : "not known here");
        dr_why(f,
            "The file system may move its blocks, so they cannot be pinned: registration "
            "fails with \"operation not supported\". Locks need ODP for atomics besides.");
        dr_mend(f,
            "use devdax: ndctl create-namespace -f -e NAMESPACE -m devdax (its content is "
            "lost), and pool = \"/dev/daxX.Y\"");
    } else if (p->kind == DR_POOL_FILE && s->facts->host.kernel >= KERNEL_NO_FILE_PINS) {
        f = dr_find(c, DR_ERROR, "a file on %s cannot be registered with kernel %s", p->fs,
            s->facts->host.release);
        dr_why(f,
            "Since 6.5 the kernel does not pin pages of ordinary files for writing: "
            "registration fails with \"bad address\".");
        dr_mend(f, "put the pool on devdax, or for tests on tmpfs (/dev/shm)");
    }
}

void dr_rule_pool_missing(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_pool *p = s->pool;
    struct dr_finding *f;

    if (p->exists)
        return;
    if (strncmp(p->path, "/dev/dax", 8) == 0) {
        f = dr_find(c, s->facts->one_node ? DR_ERROR : DR_NOTE, "there is no such device here");
        dr_why(f,
            "A device is not made by a node: it must be there, unless that node runs on "
            "another host.");
        dr_mend(f, "ndctl create-namespace -m devdax; ndctl list -NX");
    } else {
        f = dr_find(c, DR_NOTE, "not here%s%s%s", p->fs[0] != '\0' ? "; on " : "", p->fs,
            p->fs[0] != '\0' ? " when it is made" : "");
        dr_why(f, "The node makes it at its first start. Or that node runs on another host.");
        dr_mend(f, "cairn node --config FILE --id %u", p->node);
    }
}

void dr_rule_pool_volatile(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_pool *p = s->pool;

    if (p->kind != DR_POOL_TMPFS && p->kind != DR_POOL_FILE)
        return;
    struct dr_finding *f = dr_find(c, DR_NOTE, "%s on %s: no persistent memory",
        p->kind == DR_POOL_TMPFS ? "memory" : "a file", p->fs);
    dr_why(f,
        p->kind == DR_POOL_TMPFS
            ? "It survives the death of all processes, not a power failure or a reboot."
            : "What a peer wrote is in the page cache until the node has it written out: it "
              "survives the death of processes, not surely a power failure.");
    dr_mend(f, "for real use: devdax on persistent memory");
}

/* A declaration that the medium does not bear out. */
static void check_declared(struct dr_rule_context *c, const struct dr_pool *p)
{
    bool pmem = p->kind == DR_POOL_DEVDAX || p->kind == DR_POOL_FSDAX;
    bool declared = p->persistence == TXN_PERSISTENCE_APM || p->persistence == TXN_PERSISTENCE_EADR;
    struct dr_finding *f;

    if (!declared || p->kind == DR_POOL_UNKNOWN)
        return;
    if (!pmem) {
        f = dr_find(c, DR_ERROR, "persistence = \"%s\" is declared for a pool on %s",
            txn_persistence_name(p->persistence), dr_pool_kind_name(p->kind));
        dr_why(f, "Commits would be acknowledged as durable that a power failure takes away.");
        dr_mend(f, "persistence = \"auto\" (or \"emulated\") for node %u", p->node);
    } else if (p->persistence == TXN_PERSISTENCE_EADR &&
        strcmp(p->domain, "memory_controller") == 0) {
        f = dr_find(c, DR_ERROR,
            "persistence = \"eadr\" is declared, but %s says memory_controller", p->region);
        dr_why(f,
            "The caches of this platform are not saved at a power failure: what is only "
            "visible is lost.");
        dr_mend(f, "persistence = \"gpspm\" for node %u", p->node);
    } else if (p->persistence == TXN_PERSISTENCE_APM) {
        f = dr_find(c, DR_NOTE,
            "persistence = \"apm\": that the device writes past the cache "
            "(DDIO off) is taken on your word");
        dr_why(f,
            "Whether DDIO is off for its root port is in the BIOS and in a register of the "
            "port; the system does not show it.");
        dr_mend(f,
            "setpci or the BIOS: \"Data Direct I/O\" or \"NoSnoopOpWrEn / Use_Allocating_Flow_"
            "Wr\" off for the card's root port");
    }
}

void dr_rule_pool_persistence(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_pool *p = s->pool;

    check_declared(c, p);
    if (p->persistence != TXN_PERSISTENCE_AUTO ||
        (p->kind != DR_POOL_DEVDAX && p->kind != DR_POOL_FSDAX) ||
        strcmp(p->domain, "cpu_cache") == 0)
        return;
    struct dr_finding *f = dr_find(c, DR_NOTE,
        "persistence domain %s%s%s; direct write to pmem: "
        "not known",
        p->domain[0] != '\0' ? p->domain : "not shown", p->region[0] != '\0' ? " of " : "",
        p->region);
    dr_why(f,
        "With \"auto\" the node's CPU makes every record durable (gpspm): safe, and a message "
        "more per commit.");
    dr_mend(f,
        "if DDIO is off for the card's root port: persistence = \"apm\" for node %u in the "
        "configuration; else leave it",
        p->node);
}

void dr_rule_pool_numa(struct dr_rule_context *c, const struct dr_subject *s)
{
    const struct dr_facts *facts = s->facts;
    bool any = false;

    if (s->pool->numa < 0)
        return;
    for (unsigned i = 0; i < facts->device_count; i++) {
        if (facts->device[i].numa == s->pool->numa)
            return;
        any = any || facts->device[i].numa >= 0;
    }
    if (!any)
        return;
    struct dr_finding *f = dr_find(
        c, DR_NOTE, "on NUMA node %" PRId64 ", no RDMA device is", s->pool->numa);
    dr_why(f, "Every access of a peer crosses the sockets' link: less bandwidth, more latency.");
    dr_mend(f, "use a card in a slot of that socket, or memory of the card's");
}
