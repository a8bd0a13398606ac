/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_region.c: registered memory: what a passive side exposes, and the block of an endpoint.
 *
 * Each byte is registered in one protection domain only: rings in librpma's, extents in ours. A
 * ring's key ends with its registration, so a ring handed to a new peer is registered anew: what
 * an earlier one still knows is worth nothing. No access asks for relaxed ordering (rule R5).
 *
 * The block is one locked mapping, so that nothing is allocated, pinned or faulted in later:
 *
 *     | pad | object memory || log memory | pad || messages || beats |        || = page boundary
 *           |<----- the arena ------>|
 *
 * The arena is contiguous; its two parts are registered in different domains and so do not share a
 * page. Messages are apart from log memory: what is checked in place is not where reads go to. The
 * block begins at a multiple of 2 MiB and has huge pages where there are any.
 */
#include <errno.h>
#include <sys/mman.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

#define BLOCK_PAGE 4096u
#define HUGE_PAGE (UINT64_C(2) << 20)
#define HUGE_PAGE_2M (21 << 26) /* MAP_HUGE_2MB: log2 of the size */

enum { WARNED_HUGE = 1, WARNED_LOCK = 2 };

/* ---- verbs registrations, counted ---- */

static int register_verbs(
    struct nic_ep *ep, void *memory, uint64_t size, unsigned access, struct ibv_mr **ret_mr)
{
    errno = 0;
    rd_rpma_control_lock();
    struct ibv_mr *mr = ibv_reg_mr(ep->device->pd, memory, size, access);
    int error = errno;
    if (mr == NULL && error == EOPNOTSUPP) /* a dax file system: if the device can, by faults */
        mr = ibv_reg_mr(ep->device->pd, memory, size, access | IBV_ACCESS_ON_DEMAND);
    rd_rpma_control_unlock();
    if (mr == NULL)
        return -(error != 0 ? error : EIO);
    rd_live_change(RD_LIVE_MEMORY_REGION, 1);
    *ret_mr = mr;
    return 0;
}

static void deregister_verbs(struct ibv_mr **mr)
{
    if (*mr == NULL)
        return;
    rd_rpma_control_lock();
    int err = ibv_dereg_mr(*mr);
    rd_rpma_control_unlock();
    CAIRN_ASSERT(err != EINVAL && err != EBUSY);
    *mr = NULL;
    rd_live_change(RD_LIVE_MEMORY_REGION, -1);
}

static int register_rpma(
    struct nic_ep *ep, void *memory, uint64_t size, int usage, struct rpma_mr_local **ret_mr)
{
    rd_rpma_control_lock();
    rd_rpma_log_clear();
    int rc = rpma_mr_reg(ep->device->peer, memory, size, usage, ret_mr);
    int error = rc != 0 ? rd_rpma_errno(rc) : 0;
    rd_rpma_control_unlock();
    if (rc == 0)
        rd_live_change(RD_LIVE_MEMORY_REGION, 1);
    return -error;
}

static void deregister_rpma(struct rpma_mr_local **mr)
{
    if (*mr == NULL)
        return;
    rd_rpma_control_lock();
    (void)rpma_mr_dereg(mr);
    rd_rpma_control_unlock();
    *mr = NULL;
    rd_live_change(RD_LIVE_MEMORY_REGION, -1);
}

/* ---- regions ---- */

static int register_region(struct nic_region *r)
{
    struct nic_ep *ep = r->ep;
    bool is_ring = (r->base.access & RD_ACCESS_WRITE) != 0;
    int err;
    if (is_ring) {
        err = register_rpma(ep, r->memory, r->base.size,
            RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY |
                RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
            &r->log_mr);
    } else {
        unsigned access = IBV_ACCESS_REMOTE_READ;
        if ((r->base.access & RD_ACCESS_ATOMIC) != 0 && !nic_by_message(ep))
            access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        err = register_verbs(ep, r->memory, r->base.size, access, &r->mr);
    }
    if (err != 0) {
        char what[160];
        (void)snprintf(what, sizeof(what), "%s: device %s: %s of %llu bytes at pool offset 0x%llx",
            ep->name, ep->device->name, is_ring ? "ring" : "extent",
            (unsigned long long)r->base.size, (unsigned long long)r->base.pool_off);
        return rd_rpma_fail_register(err, what, r->base.size);
    }
    ep->counters.registrations++;
    return 0;
}

static int need_device(struct nic_ep *ep)
{
    struct ibv_context *verbs = NULL;
    if (ep->device != NULL)
        return 0;
    int rc = rd_rpma_choose(ep->fabric->config.device, &verbs);
    if (rc != 0)
        return rc;
    if (verbs == NULL)
        return cn_fail(CAIRN_E_CONFIG,
            "%s: this host has several RDMA devices: name one, or the address to listen at",
            ep->name);
    return rd_rpma_ep_bind(ep, verbs);
}

int rd_rpma_region_new(struct rd_ep *rd_ep, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    CAIRN_ASSERT(memory->base != NULL && memory->size > 0 && memory->pool_off % 8 == 0);
    CAIRN_ASSERT((access & RD_ACCESS_WRITE) == 0 || (access & RD_ACCESS_ATOMIC) == 0);
    int rc = need_device(ep);
    if (rc != 0)
        return rc;
    if (memory->size > ep->device->attr.max_mr_size)
        return cn_fail(CAIRN_E_FABRIC,
            "%s: device %s registers at most %llu bytes at once, not %llu", ep->name,
            ep->device->name, (unsigned long long)ep->device->attr.max_mr_size,
            (unsigned long long)memory->size);
    struct nic_region *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return cn_fail(-ENOMEM, "%s: no memory for a region", ep->name);
    r->base = (struct rd_region){rd_ep->ops, memory->pool_off, memory->size, access};
    r->ep = ep;
    r->memory = memory->base;
    r->durability = memory->durability != 0 ? memory->durability : RD_DURABILITY_EMULATED;
    rc = register_region(r);
    if (rc != 0) {
        free(r);
        return rc;
    }
    r->next = ep->regions;
    ep->regions = r;
    rd_live_change(RD_LIVE_REGION, 1);
    *ret_region = &r->base;
    return 0;
}

void rd_rpma_region_delete(struct rd_region *region)
{
    struct nic_region *r = nic_region(region);
    struct nic_region **at = &r->ep->regions;
    while (*at != r) {
        CAIRN_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = r->next;
    rd_rpma_conn_forget_region(r);
    deregister_verbs(&r->mr);
    deregister_rpma(&r->log_mr);
    rd_live_change(RD_LIVE_REGION, -1);
    free(r);
}

int rd_rpma_ring_revoke(struct rd_region *ring, bool *ret_busy)
{
    struct nic_region *r = nic_region(ring);
    CAIRN_ASSERT((r->base.access & RD_ACCESS_WRITE) != 0);
    deregister_rpma(&r->log_mr);
    *ret_busy = false;
    return 0;
}

int rd_rpma_ring_rearm(struct rd_region *ring)
{
    struct nic_region *r = nic_region(ring);
    CAIRN_ASSERT((r->base.access & RD_ACCESS_WRITE) != 0);
    if (r->log_mr != NULL)
        return 0;
    int rc = register_region(r);
    if (rc != 0)
        return rc;
    r->ep->counters.registrations--; /* no registration of something new */
    r->ep->counters.rekeys++;
    r->rekeyed = true;
    return 0;
}

/* ---- the block ---- */

/* Once per fabric. Without huge pages it is only slower; memory that is not locked may be swapped
 * out until it is registered, and the registration may fail for the same limit. */
static void warn(struct nic_ep *ep, uint32_t what, const char *text, int error)
{
    enum cn_log_level level = what == WARNED_HUGE ? CN_LOG_INFO : CN_LOG_WARNING;
    if ((__atomic_fetch_or(&ep->fabric->warned, what, __ATOMIC_RELAXED) & what) == 0)
        cn_log(ep->env, level, "%s: %s (%s)", ep->name, text, strerrordesc_np(error));
}

/* `size` is a multiple of HUGE_PAGE. */
static uint8_t *map_huge(struct nic_ep *ep, uint64_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | HUGE_PAGE_2M, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    warn(ep, WARNED_HUGE,
        "no huge pages reserved for its buffers, ordinary ones are used; reserve some with "
        "vm.nr_hugepages",
        errno);
    return NULL;
}

/* Maps more and cuts off what is before and behind the aligned part. */
static uint8_t *map_aligned(uint64_t size)
{
    uint8_t *memory = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(-(uintptr_t)memory % HUGE_PAGE);
    if (before > 0)
        (void)munmap(memory, before);
    if (before < HUGE_PAGE)
        (void)munmap(memory + before + size, HUGE_PAGE - before);
    if (size >= HUGE_PAGE)
        (void)madvise(memory + before, size, MADV_HUGEPAGE); /* a wish */
    return memory + before;
}

int rd_rpma_block_new(struct nic_ep *ep, const struct rd_ep_config *config)
{
    CAIRN_ASSERT(config->memory_size % 64 == 0 && config->log_memory_size % 64 == 0);
    CAIRN_ASSERT(config->log_memory_size <= config->memory_size);
    uint64_t object = config->memory_size - config->log_memory_size;
    uint64_t object_pages = cn_align_up(cn_max64(object, 1), BLOCK_PAGE);
    uint64_t log_pages = cn_align_up(config->log_memory_size, BLOCK_PAGE);
    uint64_t frames = (uint64_t)ep->connections_max * (NIC_RX + NIC_TX);
    uint64_t message_pages = cn_align_up(frames * NIC_FRAME_STRIDE, BLOCK_PAGE);
    uint64_t beat_pages =
        cn_align_up(ep->connections_max * sizeof(struct rd_rpma_beat), BLOCK_PAGE);
    uint64_t size = object_pages + log_pages + message_pages + beat_pages;
    if (size >= HUGE_PAGE) {
        uint64_t huge_size = cn_align_up(size, HUGE_PAGE);
        ep->block = map_huge(ep, huge_size);
        ep->huge = ep->block != NULL;
        ep->block_size = ep->huge ? huge_size : size;
    }
    if (ep->block == NULL) {
        ep->block = map_aligned(size);
        ep->block_size = size;
    }
    if (ep->block == NULL)
        return cn_fail(-ENOMEM, "%s: no memory for buffers of %llu bytes", ep->name,
            (unsigned long long)size);
    rd_live_change(RD_LIVE_MAPPING, 1);
    if (mlock(ep->block, ep->block_size) != 0)
        warn(ep, WARNED_LOCK,
            "cannot lock its buffers in memory; raise memlock (`ulimit -l`, LimitMEMLOCK=)", errno);
    ep->memory = ep->block + (object_pages - object);
    ep->memory_size = config->memory_size;
    ep->log_memory_size = config->log_memory_size;
    ep->messages = ep->block + object_pages + log_pages;
    ep->beats = (struct rd_rpma_beat *)(void *)(ep->messages + message_pages);
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        c->rx = ep->messages + (uint64_t)i * (NIC_RX + NIC_TX) * NIC_FRAME_STRIDE;
        c->tx = c->rx + NIC_RX * NIC_FRAME_STRIDE;
    }
    return 0;
}

void rd_rpma_block_delete(struct nic_ep *ep)
{
    CAIRN_ASSERT(ep->object_mr == NULL && ep->log_mr == NULL && ep->message_mr == NULL &&
                 ep->beat_mr == NULL);
    if (ep->block == NULL)
        return;
    (void)munmap(ep->block, ep->block_size); /* unlocks it too */
    ep->block = NULL;
    rd_live_change(RD_LIVE_MAPPING, -1);
}

int rd_rpma_block_register(struct nic_ep *ep)
{
    char what[160];
    uint8_t *log = ep->memory + (ep->memory_size - ep->log_memory_size);
    uint8_t *beats = (uint8_t *)ep->beats;
    uint64_t object_size = (uint64_t)(log - ep->block);
    uint64_t log_size = (uint64_t)(ep->messages - log);
    uint64_t beat_size =
        cn_align_up(ep->connections_max * sizeof(struct rd_rpma_beat), BLOCK_PAGE);
    unsigned access = IBV_ACCESS_LOCAL_WRITE;
    unsigned beat_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    CAIRN_ASSERT((uintptr_t)log % BLOCK_PAGE == 0);
    if (ep->device->iwarp) { /* there a read is answered by a write into its sink */
        access |= IBV_ACCESS_REMOTE_WRITE;
        beat_access |= IBV_ACCESS_REMOTE_WRITE;
    }
    if (ep->device->has_atomics)
        beat_access |= IBV_ACCESS_REMOTE_ATOMIC;
    /* Pinned pages of a private mapping: where the kernel does not copy them for a child at its
     * fork, our next store would part us from the device. So no child gets them. */
    (void)madvise(ep->block, ep->block_size, MADV_DONTFORK);
    int err = register_verbs(ep, ep->block, object_size, access, &ep->object_mr);
    if (err == 0)
        err = register_verbs(ep, beats, beat_size, beat_access, &ep->beat_mr);
    if (err == 0 && log_size > 0)
        err = register_rpma(
            ep, log, log_size, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC, &ep->log_mr);
    if (err == 0)
        err = register_rpma(ep, ep->messages, (uint64_t)(beats - ep->messages),
            RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &ep->message_mr);
    if (err != 0) {
        rd_rpma_block_deregister(ep);
        (void)snprintf(what, sizeof(what), "%s: device %s: buffers", ep->name, ep->device->name);
        return rd_rpma_fail_register(err, what, ep->block_size);
    }
    ep->counters.registrations += log_size > 0 ? 4 : 3;
    return 0;
}

void rd_rpma_block_deregister(struct nic_ep *ep)
{
    deregister_verbs(&ep->object_mr);
    deregister_verbs(&ep->beat_mr);
    deregister_rpma(&ep->log_mr);
    deregister_rpma(&ep->message_mr);
    (void)madvise(ep->block, ep->block_size, MADV_DOFORK);
}
