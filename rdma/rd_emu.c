/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu.c: fabric and endpoint of the `emu` back end: the arena, the table of connections,
 * sleeping.
 *
 * Sleeping is the usual pair of stores and loads: the sleeper stores `sleeping`, full barrier,
 * looks for work; who makes work stores it, full barrier, looks at `sleeping`. One of both sees the
 * other.
 */
#include "rdma/rd_emu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rdma/rd_live.h"

static const struct rd_ops emu_ops;

/* ---- descriptors and mappings, counted ---- */

int rd_emu_own_fd(int fd)
{
    if (fd < 0)
        return -errno;
    rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    return fd;
}

void rd_emu_close(int fd)
{
    if (fd < 0)
        return;
    (void)close(fd);
    rd_live_change(RD_LIVE_DESCRIPTOR, -1);
}

void *rd_emu_map(int fd, uint64_t off, size_t size, int protection)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *address = mmap(NULL, size, protection, flags, fd, (off_t)off);
    if (address == MAP_FAILED)
        return NULL;
    rd_live_change(RD_LIVE_MAPPING, 1);
    return address;
}

void rd_emu_unmap(void *address, size_t size)
{
    if (address == NULL)
        return;
    (void)munmap(address, size);
    rd_live_change(RD_LIVE_MAPPING, -1);
}

/* ---- the connection table ---- */

struct emu_conn *rd_emu_conn_claim(struct emu_ep *ep, bool reuse)
{
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct emu_conn *c = &ep->conns[i];
        uint32_t expected = EMU_FREE;
        if (!__atomic_compare_exchange_n(&c->state, &expected, EMU_CLAIMED, false, __ATOMIC_ACQ_REL,
                __ATOMIC_RELAXED)) {
            if (!reuse || expected != EMU_DELETED)
                continue;
            emu_set_state(c, EMU_CLAIMED);
            ep->deleted--;
        }
        __atomic_store_n(&c->dead, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&c->queued, 0, __ATOMIC_RELAXED);
        c->fd = -1;
        c->active = c->unread = c->down_due = c->watched = false;
        c->deadline_ns = UINT64_MAX;
        c->retry_ns = 0;
        c->hello_size = 0;
        c->ring = NULL;
        c->peer_pid = 0;
        c->base.durability = 0;
        c->base.cas_orders_reads = false;
        rd_live_change(RD_LIVE_CONNECTION, 1);
        return c;
    }
    return NULL;
}

void rd_emu_conn_release(struct emu_conn *c, enum emu_state state)
{
    CAIRN_ASSERT(state == EMU_FREE || state == EMU_DELETED);
    rd_emu_nic_forget(c);
    rd_emu_close(c->fd);
    c->fd = -1;
    rd_emu_unmap_all(c);
    rd_emu_unmap(c->peer_bell, EMU_PAGE_SIZE);
    c->peer_bell = NULL;
    __atomic_fetch_add(&c->generation, 1, __ATOMIC_RELEASE);
    rd_live_change(RD_LIVE_CONNECTION, -1);
    emu_set_state(c, state);
}

/* ---- sleeping ---- */

bool rd_emu_bell_ring(struct emu_bell *bell)
{
    emu_full_barrier();
    if (__atomic_load_n(&bell->sleeping, __ATOMIC_RELAXED) == 0)
        return false;
    if (__atomic_exchange_n(&bell->sleeping, 0, __ATOMIC_SEQ_CST) == 0)
        return false;
    (void)syscall(SYS_futex, &bell->sleeping, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    return true;
}

static void write_fd(struct emu_ep *ep)
{
    const uint64_t one = 1;
    int fd = __atomic_load_n(&ep->wake_fd, __ATOMIC_ACQUIRE);
    if (fd < 0)
        return;
    __atomic_store_n(&ep->rung, 1, __ATOMIC_SEQ_CST); /* before: at worst it is read too early */
    (void)!write(fd, &one, sizeof(one));
}

void rd_emu_ep_ring(struct emu_ep *ep)
{
    if (rd_emu_bell_ring(ep->bell))
        write_fd(ep);
}

static void ep_arm(struct rd_ep *rd_ep)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    if (CN_UNLIKELY(__atomic_exchange_n(&ep->rung, 0, __ATOMIC_SEQ_CST) != 0)) {
        uint64_t count;
        (void)!read(ep->wake_fd, &count, sizeof(count));
        ep->counters.syscalls++;
    }
    __atomic_store_n(&ep->bell->sleeping, 1, __ATOMIC_SEQ_CST);
    emu_full_barrier();
    if (CN_LIKELY(ep->wake_fd < 0))
        return;
    bool woken = __atomic_exchange_n(&ep->woken, 0, __ATOMIC_SEQ_CST) != 0;
    if (woken || (ep->model.on && rd_emu_model_due(ep) != UINT64_MAX))
        write_fd(ep); /* nobody rang then, nor rings when something is due by the model */
}

/* Nobody but the watcher and rd_ep_wake() rings in this process; peers ring for one that listens,
 * and have no descriptor of it. */
static int ep_fd(struct rd_ep *rd_ep)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    if (ep->listen_fd >= 0)
        return cn_fail(
            CAIRN_E_FABRIC, "endpoint %s: one that listens has no descriptor", ep->name);
    if (ep->wake_fd < 0) {
        int fd = rd_emu_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (fd < 0)
            return cn_fail(fd, "endpoint %s: no descriptor: %s", ep->name, strerror(-fd));
        __atomic_store_n(&ep->wake_fd, fd, __ATOMIC_RELEASE);
    }
    return ep->wake_fd;
}

/* When poll will have something to deliver, as far as is known: 0 now, UINT64_MAX never. */
static uint64_t find_due(const struct emu_ep *ep)
{
    if (ep->local_downs > 0 || __atomic_load_n(&ep->woken, __ATOMIC_ACQUIRE) != 0 ||
        __atomic_load_n(&ep->rung, __ATOMIC_ACQUIRE) != 0)
        return 0;
    if (ep->model.on)
        return rd_emu_model_due(ep);
    bool waiting = ep->completion_tail != ep->completion_head ||
                   __atomic_load_n(&ep->head, __ATOMIC_ACQUIRE) != ep->taken;
    return waiting ? 0 : UINT64_MAX;
}

static void ep_sleep(struct rd_ep *rd_ep, uint64_t deadline_ns)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    uint64_t now = cn_now_ns(ep->env), due_ns = find_due(ep);
    /* Buffers of the last batch may be what the watcher waits for: the user is through with them
     * only at the next poll, so do not sleep on them. */
    bool stalled = ep->taken != __atomic_load_n(&ep->tail, __ATOMIC_RELAXED) &&
                   __atomic_load_n(&ep->stalled, __ATOMIC_RELAXED) != 0;
    if (due_ns != UINT64_MAX)
        due_ns -= cn_min64(due_ns, EMU_EARLY_NS);
    uint64_t until_ns = cn_min64(deadline_ns, due_ns);
    if (!stalled && until_ns > now) {
        uint64_t ns = cn_min64(until_ns - now, EMU_SLEEP_NS_MAX);
        struct timespec timeout = {
            .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
        long err = syscall(SYS_futex, &ep->bell->sleeping, FUTEX_WAIT, 1, &timeout, NULL, 0);
        if (err != 0 && errno == ETIMEDOUT && ep->env->skip != NULL)
            ep->env->skip(ep->env->arg, ns); /* such a clock stands still in a sleep */
    }
    __atomic_store_n(&ep->bell->sleeping, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ep->woken, 0, __ATOMIC_SEQ_CST);
}

static void ep_wake(struct rd_ep *rd_ep)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    __atomic_store_n(&ep->woken, 1, __ATOMIC_SEQ_CST);
    rd_emu_ep_ring(ep);
}

/* ---- endpoint ---- */

/* Sealed, so that no peer can cut the page off under us. */
static int make_bell(struct emu_ep *ep)
{
    int fd = rd_emu_own_fd(memfd_create("cairn-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return cn_fail(fd, "cannot make a doorbell page: %s", strerror(-fd));
    ep->bell_fd = fd;
    if (ftruncate(fd, EMU_PAGE_SIZE) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return cn_fail(-errno, "cannot size a doorbell page: %s", strerror(errno));
    ep->bell = rd_emu_map(fd, 0, EMU_PAGE_SIZE, PROT_READ | PROT_WRITE);
    if (ep->bell == NULL)
        return cn_fail(-errno, "cannot map a doorbell page: %s", strerror(errno));
    return 0;
}

static void ep_free(struct emu_ep *ep)
{
    rd_emu_unmap(ep->bell, EMU_PAGE_SIZE);
    rd_emu_close(ep->bell_fd);
    rd_emu_unmap(ep->memory, ep->memory_size);
    (void)pthread_mutex_destroy(&ep->lock);
    free(ep->notices);
    free(ep->completions);
    free(ep->conns);
    free(ep);
}

static int ep_allocate(struct emu_ep *ep)
{
    uint64_t completions = (uint64_t)ep->connections_max * ep->outstanding_max;
    while (ep->completion_mask + 1 < completions)
        ep->completion_mask = ep->completion_mask * 2 + 1;
    ep->conns = calloc(ep->connections_max, sizeof(*ep->conns));
    ep->completions = calloc(ep->completion_mask + 1, sizeof(*ep->completions));
    ep->notices = aligned_alloc(64, EMU_NOTICES * sizeof(*ep->notices));
    if (ep->conns == NULL || ep->completions == NULL || ep->notices == NULL)
        return cn_fail(-ENOMEM, "endpoint %s: no memory for its tables", ep->name);
    ep->memory = rd_emu_map(-1, 0, ep->memory_size, PROT_READ | PROT_WRITE);
    if (ep->memory == NULL)
        return cn_fail(-ENOMEM, "endpoint %s: no memory for an arena of %llu bytes", ep->name,
            (unsigned long long)ep->memory_size);
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        ep->conns[i].index = i;
        ep->conns[i].fd = -1;
        ep->conns[i].base = (struct rd_conn){.ops = &emu_ops, .ep = &ep->base};
        ep->conns[i].fence = &rd_emu_no_fence;
    }
    return make_bell(ep);
}

static int ep_open(
    struct rd_fabric *fabric, const struct rd_ep_config *config, struct rd_ep **ret_ep)
{
    if (config->connections_max == 0 || config->connections_max > 65536 ||
        config->outstanding_max == 0 || config->outstanding_max > 16384)
        return cn_fail(CAIRN_E_FABRIC,
            "endpoint: %u connections of %u operations; 1 to 65536 of 1 to 16384 are allowed",
            config->connections_max, config->outstanding_max);
    if (config->memory_size % 64 != 0 || config->log_memory_size % 64 != 0 ||
        config->log_memory_size > config->memory_size)
        return cn_fail(CAIRN_E_FABRIC,
            "endpoint: an arena of %llu bytes, %llu of them for rings; multiples of 64 are due",
            (unsigned long long)config->memory_size, (unsigned long long)config->log_memory_size);
    struct emu_ep *ep = aligned_alloc(RD_CACHE_LINE, sizeof(*ep));
    if (ep == NULL)
        return cn_fail(-ENOMEM, "no memory for an endpoint");
    memset(ep, 0, sizeof(*ep));
    ep->base.ops = &emu_ops;
    ep->fabric = (struct emu_fabric *)(void *)fabric;
    ep->model = ep->fabric->model;
    ep->env = config->env;
    ep->connections_max = config->connections_max;
    ep->outstanding_max = config->outstanding_max;
    ep->memory_size = cn_align_up(cn_max64(config->memory_size, 1), EMU_PAGE_SIZE);
    ep->object_size = config->memory_size - config->log_memory_size;
    ep->log_size = config->log_memory_size;
    ep->bell_fd = ep->epoll_fd = ep->kick_fd = ep->listen_fd = ep->wake_fd = -1;
    (void)snprintf(ep->name, sizeof(ep->name), "%s", config->name != NULL ? config->name : "?");
    int err = pthread_mutex_init(&ep->lock, NULL);
    CAIRN_ASSERT(err == 0);
    err = ep_allocate(ep);
    if (err != 0) {
        ep_free(ep);
        return err;
    }
    __atomic_fetch_add(&ep->fabric->endpoints, 1, __ATOMIC_RELAXED);
    rd_live_change(RD_LIVE_ENDPOINT, 1);
    *ret_ep = &ep->base;
    return 0;
}

static void ep_close(struct rd_ep *rd_ep)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    rd_emu_nic_stop(ep);
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        enum emu_state state = emu_state(&ep->conns[i]);
        if (state != EMU_FREE && state != EMU_DELETED)
            rd_emu_conn_release(&ep->conns[i], EMU_FREE);
    }
    rd_emu_unlisten(ep);
    while (ep->regions != NULL)
        rd_emu_region_delete(&ep->regions->base);
    rd_emu_close(ep->wake_fd);
    rd_emu_close(ep->kick_fd);
    rd_emu_close(ep->epoll_fd);
    uint32_t endpoints = __atomic_fetch_sub(&ep->fabric->endpoints, 1, __ATOMIC_RELAXED);
    CAIRN_ASSERT(endpoints > 0);
    ep_free(ep);
    rd_live_change(RD_LIVE_ENDPOINT, -1);
}

static void *ep_memory(struct rd_ep *ep)
{
    return emu_ep(ep)->memory;
}

static void ep_counters(const struct rd_ep *ep, struct rd_counters *ret)
{
    *ret = ((const struct emu_ep *)(const void *)ep)->counters;
}

/* ---- fabric ---- */

static void fabric_delete(struct rd_fabric *rd_fabric)
{
    struct emu_fabric *fabric = (struct emu_fabric *)(void *)rd_fabric;
    CAIRN_ASSERT(fabric->endpoints == 0);
    free(fabric);
    rd_live_change(RD_LIVE_FABRIC, -1);
}

static const struct rd_ops emu_ops = {
    .name = "emu",
    .fabric_delete = fabric_delete,
    .ep_open = ep_open,
    .ep_close = ep_close,
    .ep_memory = ep_memory,
    .ep_counters = ep_counters,
    .poll = rd_emu_poll,
    .ep_arm = ep_arm,
    .ep_sleep = ep_sleep,
    .ep_wake = ep_wake,
    .ep_fd = ep_fd,
    .listen = rd_emu_listen,
    .region_new = rd_emu_region_new,
    .region_delete = rd_emu_region_delete,
    .accept = rd_emu_accept,
    .reject = rd_emu_reject,
    .fence = rd_emu_fence,
    .ring_revoke = rd_emu_ring_revoke,
    .ring_rearm = rd_emu_ring_rearm,
    .connect = rd_emu_connect,
    .loopback = rd_emu_loopback,
    .conn_delete = rd_emu_conn_delete,
    .hint = rd_emu_hint,
    .read = rd_emu_read,
    .cas = rd_emu_cas,
    .write = rd_emu_write,
    .flush = rd_emu_flush,
    .mark = rd_emu_mark,
    .send = rd_emu_send,
    .doorbell = rd_emu_doorbell,
};

int rd_emu_fabric_new(
    const struct rd_fabric_config *config, struct rd_fabric **ret_fabric)
{
    struct emu_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return cn_fail(-ENOMEM, "no memory for a fabric");
    fabric->base.ops = &emu_ops;
    fabric->flush_line = rd_emu_choose_flush();
    fabric->write_back = config->write_back;
    fabric->model = (struct emu_model){.on = config->model_rtt_ns != 0 || config->model_mbps != 0,
        .rtt_ns = config->model_rtt_ns,
        .mbps = config->model_mbps};
    rd_live_change(RD_LIVE_FABRIC, 1);
    *ret_fabric = &fabric->base;
    return 0;
}
