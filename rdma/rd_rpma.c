/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma.c: fabric and endpoint of the `rpma` back end: its device, tables, queue of events, poll,
 * sleeping.
 *
 * Events come from three places, delivered in this order: the queue (what could not be delivered
 * when it happened: up, down, completions of lost connections, messages behind one of these), the
 * completion queues, and then what a look at the event descriptors has put into the queue. So a
 * connection's messages and completions come before the RD_EV_DOWN that its disconnection causes.
 *
 * A poll makes system calls only when it looks: while connections are being made or refused, after
 * a sleep, and once in NIC_LOOK_POLLS polls.
 *
 * Sleeping: what can wake us are descriptors in one epoll set, all level-triggered, so that nothing
 * that came before the wait is lost; ep_arm() takes old notices of completions and asks for new
 * ones. rd_ep_wake() from other threads: it stores `woken`, then loads `sleeping`; the sleeper
 * stores `sleeping`, then loads `woken`. One of both sees the other. Who sleeps on the set himself
 * (rd_ep_fd) has a timer in it, for deadlines and for what must not be slept on.
 */
#include "rdma/rd_rpma.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rdma/rd_emu.h"
#include "rdma/rd_live.h"

#define QUEUE_SIZE_MIN 16u
#define QUEUE_SIZE_MAX 4096u /* of an object queue pair */
#define CQ_SIZE_MAX 32768u
#define SLEEP_NS_MAX UINT64_C(60000000000)
#define WAKERS_MAX 32 /* looked at after a sleep; the others are found by rotation */
#define WATCH_NO_CONNECTION UINT32_MAX
#define LINGER_US 1000
#define HEARTBEAT_MS 500u

static const struct rd_ops rpma_ops;

/* ---- events ---- */

void rd_rpma_event(struct nic_conn *c, enum rd_event_type type, int status, uint64_t wr_id)
{
    struct nic_ep *ep = nic_conn_ep(c);
    CAIRN_ASSERT(ep->event_head - ep->event_tail < ep->event_size);
    ep->events[ep->event_head++ & (ep->event_size - 1)] = (struct nic_event){
        .type = type, .status = status, .conn = c, .generation = c->generation, .wr_id = wr_id};
}

static struct rd_event make_event(struct nic_ep *ep, const struct nic_event *from)
{
    struct nic_conn *c = from->conn;
    struct rd_event event = {.type = from->type, .status = from->status, .conn = &c->base};
    switch (from->type) {
    case RD_EV_COMPLETION:
        event.wr_id = from->wr_id;
        c->outstanding--;
        ep->counters.completions++;
        break;
    case RD_EV_MESSAGE: {
        uint32_t at = (uint32_t)(from->wr_id >> 32);
        event.data = c->rx + (size_t)at * NIC_FRAME_STRIDE + sizeof(struct rd_rpma_frame_wire);
        event.size = (uint32_t)from->wr_id;
        c->rx_taken |= 1u << at;
        ep->counters.messages_received++;
        break;
    }
    case RD_EV_CONNECT:
        event.size = c->hello_size;
        event.data = c->hello_size > 0 ? c->hello : NULL;
        break;
    case RD_EV_DOWN:
        c->down_delivered = true;
        event.text = c->text[0] != 0 ? c->text : NULL;
        if (!c->refused)
            break;
        event.size = c->welcome_size;
        event.data = c->welcome_size > 0 ? c->welcome : NULL;
        break;
    case RD_EV_UP:
        if (!c->active)
            break;
        event.size = c->welcome_size;
        event.data = c->welcome_size > 0 ? c->welcome : NULL;
        break;
    }
    return event;
}

static uint32_t take_queued(struct nic_ep *ep, struct rd_event *events, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && nic_events_queued(ep)) {
        const struct nic_event *from = &ep->events[ep->event_tail++ & (ep->event_size - 1)];
        if (from->generation == from->conn->generation)
            events[n++] = make_event(ep, from);
    }
    return n;
}

/* ---- descriptors, counted ---- */

static int own_fd(int fd, int *ret_fd)
{
    if (fd < 0)
        return cn_fail(-errno, "cannot make a descriptor: %s", strerror(errno));
    rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    *ret_fd = fd;
    return 0;
}

static void close_fd(int fd)
{
    if (fd < 0)
        return;
    (void)close(fd);
    rd_live_change(RD_LIVE_DESCRIPTOR, -1);
}

/* ---- who has woken us ---- */

/* Let the timer wake who sleeps on the descriptor: at a time, 1: at once. */
static void set_timer(const struct nic_ep *ep, uint64_t ns)
{
    struct itimerspec at = {.it_value = {
        .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}};
    (void)timerfd_settime(ep->timer_fd, 0, &at, NULL);
}

/* Who has woken us is looked at in the next poll. */
static int note_wakers(struct nic_ep *ep)
{
    struct epoll_event events[WAKERS_MAX];
    int n = epoll_wait(ep->epoll_fd, events, WAKERS_MAX, 0);
    ep->counters.syscalls++;
    for (int i = 0; i < n; i++) {
        if (events[i].data.u32 != WATCH_NO_CONNECTION)
            nic_set_busy(&ep->conns[events[i].data.u32]);
    }
    return n;
}

static void take_wake(struct nic_ep *ep)
{
    uint64_t count;
    ssize_t size = read(ep->wake_fd, &count, sizeof(count));
    (void)size;
    ep->counters.syscalls++;
}

/* A poll since the arm: before its user sleeps on the descriptor, or after. */
static void take_wakers(struct nic_ep *ep)
{
    if (note_wakers(ep) <= 0)
        return;
    ep->armed = false;
    ep->look_due = true;
    set_timer(ep, 0);
    ep->counters.syscalls++;
    __atomic_store_n(&ep->sleeping, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&ep->woken, 0, __ATOMIC_SEQ_CST);
    take_wake(ep);
}

/* ---- poll ---- */

static void return_receives(struct nic_ep *ep)
{
    ep->receives_due = false;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        if (ep->conns[i].rx_taken != 0)
            rd_rpma_return_receives(&ep->conns[i]);
    }
}

static bool is_look_due(const struct nic_ep *ep, bool full)
{
    uint32_t polls = full ? 4 * NIC_LOOK_POLLS /* else we might be called again */
                          : ep->greeting > 0 ? NIC_GREET_POLLS
                                             : NIC_LOOK_POLLS;
    return ep->polls >= polls || (!full && (ep->making > 0 || ep->deleted > 0 || ep->look_due));
}

static bool has_closing(const struct nic_ep *ep)
{
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        const struct nic_conn *c = &ep->conns[i];
        if (c->closed && c->state != NIC_DOWN && c->state != NIC_FREE && c->state != NIC_DELETED)
            return true;
    }
    return false;
}

/* What peers sent before they closed comes, and then that they have: wait for that, for who has
 * looked after a long time is about to use these connections. */
static uint32_t reap_closing(struct nic_ep *ep, struct rd_event *events, uint32_t max)
{
    uint64_t end = cn_now_ns(ep->env) + NIC_CLOSE_NS;
    uint32_t n = 0;
    while (n < max && has_closing(ep) && cn_now_ns(ep->env) < end) {
        n += rd_rpma_reap(ep, events + n, max - n);
        (void)sched_yield();
    }
    return n;
}

static uint32_t poll_events(struct rd_ep *rd_ep, struct rd_event *events, uint32_t max)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    if (ep->receives_due)
        return_receives(ep);
    if (CN_UNLIKELY(ep->armed))
        take_wakers(ep);
    uint32_t n = 0;
    if (CN_UNLIKELY(nic_events_queued(ep)))
        n = take_queued(ep, events, max);
    if (n < max && ep->device != NULL)
        n += rd_rpma_reap(ep, events + n, max - n);
    ep->polls++;
    if (CN_UNLIKELY(is_look_due(ep, n == max))) {
        ep->polls = 0;
        ep->look_due = false;
        rd_rpma_conn_look(ep);
        if (ep->idle) {
            ep->idle = false;
            n += reap_closing(ep, events + n, max - n);
        }
    }
    if (CN_UNLIKELY(nic_events_queued(ep)))
        n += take_queued(ep, events + n, max - n);
    for (uint32_t i = 0; i < n && !ep->receives_due; i++)
        ep->receives_due = events[i].type == RD_EV_MESSAGE;
    if (CN_UNLIKELY(ep->armed) && (nic_events_queued(ep) || ep->unfinished || ep->deleted != 0))
        set_timer(ep, 1); /* no time to sleep */
    return n;
}

/* ---- sleeping ---- */

int rd_rpma_watch(struct nic_ep *ep, int fd, const struct nic_conn *c, bool on)
{
    struct epoll_event event = {
        .events = EPOLLIN, .data.u32 = c != NULL ? c->index : WATCH_NO_CONNECTION};
    ep->counters.syscalls++;
    if (epoll_ctl(ep->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) != 0)
        return cn_fail(-errno, "%s: cannot watch a descriptor: %s", ep->name, strerror(errno));
    return 0;
}

static void ep_arm(struct rd_ep *rd_ep)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    __atomic_store_n(&ep->sleeping, 1, __ATOMIC_SEQ_CST);
    if (ep->device != NULL)
        rd_rpma_arm(ep);
    if (CN_LIKELY(ep->timer_fd < 0))
        return;
    uint64_t now = cn_now_ns(ep->env);
    bool due = __atomic_load_n(&ep->woken, __ATOMIC_SEQ_CST) != 0 || ep->next_timer_ns <= now;
    set_timer(ep, due ? 1 : cn_min64(ep->next_timer_ns - now, SLEEP_NS_MAX));
    ep->counters.syscalls++;
    ep->armed = true;
}

static int ep_fd(struct rd_ep *rd_ep)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    if (ep->timer_fd < 0) {
        int rc = own_fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), &ep->timer_fd);
        if (rc == 0)
            rc = rd_rpma_watch(ep, ep->timer_fd, NULL, true);
        if (rc != 0) {
            close_fd(ep->timer_fd);
            ep->timer_fd = -1;
            return rc;
        }
    }
    return ep->epoll_fd;
}

static void ep_sleep(struct rd_ep *rd_ep, uint64_t deadline_ns)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    uint64_t now = cn_now_ns(ep->env), until = cn_min64(deadline_ns, ep->next_timer_ns);
    bool ready = false;
    if (!nic_events_queued(ep) && !ep->unfinished && ep->deleted == 0 && until > now &&
        __atomic_load_n(&ep->woken, __ATOMIC_SEQ_CST) == 0) {
        uint64_t ns = cn_min64(until - now, SLEEP_NS_MAX);
        struct timespec timeout = {
            .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
        struct pollfd pending = {.fd = ep->epoll_fd, .events = POLLIN};
        ready = ppoll(&pending, 1, &timeout, NULL) > 0;
        ep->counters.syscalls++;
    }
    if (ready)
        (void)note_wakers(ep);
    ep->look_due = true;
    ep->armed = false;
    __atomic_store_n(&ep->sleeping, 0, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&ep->woken, 0, __ATOMIC_SEQ_CST) != 0 || ready)
        take_wake(ep);
}

static void ep_wake(struct rd_ep *rd_ep)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    __atomic_store_n(&ep->woken, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ep->sleeping, __ATOMIC_SEQ_CST) == 0)
        return;
    uint64_t one = 1;
    ssize_t size = write(ep->wake_fd, &one, sizeof(one));
    (void)size; /* it can only be full, which wakes as well */
}

static void ep_look(struct rd_ep *ep)
{
    nic_ep(ep)->look_due = nic_ep(ep)->idle = true;
}

/* ---- device of an endpoint ---- */

static uint32_t power_of_two(uint64_t at_least, uint32_t max)
{
    uint32_t size = QUEUE_SIZE_MIN;
    while (size < at_least && size < max)
        size *= 2;
    return size;
}

/* What a queue may have on the device. */
static void limit_queue(struct nic_queue *queue, const struct nic_device *device)
{
    while ((int)queue->size > device->attr.max_qp_wr && queue->size > 1)
        queue->size /= 2;
}

static int make_cq(struct nic_ep *ep)
{
    struct nic_device *device = ep->device;
    uint64_t size = 0;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        limit_queue(&c->log_queue, device);
        for (uint32_t q = 0; q < NIC_QPS_MAX; q++) {
            limit_queue(&c->qp[q].queue, device);
            size += q < ep->fabric->config.queue_pairs ? c->qp[q].queue.size : 0;
        }
    }
    size = cn_min64(cn_min64(size, CQ_SIZE_MAX), (uint64_t)device->attr.max_cqe);
    errno = 0;
    ep->channel = ibv_create_comp_channel(device->verbs);
    if (ep->channel == NULL)
        return rd_rpma_fail_errno(errno, "cannot make a completion channel");
    rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    int flags = fcntl(ep->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(ep->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return rd_rpma_fail_errno(errno, "completion channel");
    ep->cq = ibv_create_cq(device->verbs, (int)size, NULL, ep->channel, 0);
    if (ep->cq == NULL)
        return rd_rpma_fail_errno(errno, "cannot make a completion queue");
    ep->cq_size = (uint32_t)size;
    rd_live_change(RD_LIVE_COMPLETION_QUEUE, 1);
    return rd_rpma_watch(ep, ep->channel->fd, NULL, true);
}

static void unbind(struct nic_ep *ep)
{
    if (ep->device == NULL)
        return;
    rd_rpma_control_lock();
    if (ep->cq != NULL) {
        if (ep->cq_unacked > 0)
            ibv_ack_cq_events(ep->cq, ep->cq_unacked);
        int err = ibv_destroy_cq(ep->cq);
        CAIRN_ASSERT(err != EBUSY);
        ep->cq = NULL;
        rd_live_change(RD_LIVE_COMPLETION_QUEUE, -1);
    }
    if (ep->channel != NULL) {
        (void)ibv_destroy_comp_channel(ep->channel); /* leaves the epoll set by that */
        ep->channel = NULL;
        rd_live_change(RD_LIVE_DESCRIPTOR, -1);
    }
    rd_rpma_control_unlock();
    rd_rpma_block_deregister(ep);
    rd_rpma_device_put(ep->fabric, ep->device);
    ep->device = NULL;
}

int rd_rpma_ep_bind(struct nic_ep *ep, struct ibv_context *verbs)
{
    const char *device = ep->fabric->config.device, *name = ibv_get_device_name(verbs->device);
    if (ep->device != NULL) {
        if (ep->device->verbs == verbs)
            return 0;
        return cn_fail(CAIRN_E_CONFIG,
            "%s: device %s is used, but this address is reached over %s; one endpoint uses one "
            "device",
            ep->name, ep->device->name, name);
    }
    if (device[0] != 0 && strcmp(device, name) != 0)
        return cn_fail(CAIRN_E_CONFIG, "%s: device %s is configured, but the address is one of %s",
            ep->name, device, name);
    int rc = rd_rpma_device_get(ep->fabric, verbs, &ep->device);
    if (rc != 0)
        return rc;
    rc = rd_rpma_block_register(ep);
    if (rc == 0)
        rc = make_cq(ep);
    if (rc != 0)
        unbind(ep);
    return rc;
}

/* ---- endpoint ---- */

static struct nic_op *cut(struct nic_queue *queue, uint32_t size, struct nic_op *from)
{
    queue->op = from;
    queue->size = size;
    return from + size;
}

/* All transactions of a context may log in one turn, each a pad, a record and, of the one before, a
 * mark; flushes, positions and messages are shared. A log that is refused ends the session. */
_Static_assert(NIC_LOG_SQ_MAX >= 3 * CAIRN_INFLIGHT_MAX + 64, "a log queue of all in flight");

static int allocate(struct nic_ep *ep)
{
    uint32_t qps = ep->fabric->config.queue_pairs, count = ep->connections_max;
    uint32_t outstanding = ep->outstanding_max;
    /* Somewhat more than the user's: heartbeats, messages. */
    uint32_t object = power_of_two(outstanding + (outstanding <= 1024 ? 2 : 0), QUEUE_SIZE_MAX);
    uint32_t log = power_of_two(outstanding + NIC_TX, NIC_LOG_SQ_MAX);
    uint32_t cas = power_of_two(outstanding, QUEUE_SIZE_MAX);
    size_t ops = (size_t)qps * object + (size_t)(NIC_QPS_MAX - qps) * QUEUE_SIZE_MIN +
                 2 * (size_t)log + cas;
    ep->event_size =
        power_of_two((uint64_t)count * (outstanding + 4 + NIC_RX), UINT32_C(1) << 31);
    ep->conns = calloc(count, sizeof(*ep->conns));
    ep->ops = calloc(count * ops, sizeof(*ep->ops));
    ep->events = calloc(ep->event_size, sizeof(*ep->events));
    struct nic_asked *asked = calloc((size_t)count * (log + cas), sizeof(*asked));
    if (ep->conns == NULL || ep->ops == NULL || ep->events == NULL || asked == NULL) {
        free(asked);
        return cn_fail(-ENOMEM, "endpoint %s: no memory for its tables", ep->name);
    }
    struct nic_op *op = ep->ops;
    for (uint32_t i = 0; i < count; i++) {
        struct nic_conn *c = &ep->conns[i];
        c->index = i;
        c->base = (struct rd_conn){.ops = &rpma_ops, .ep = &ep->base};
        for (uint32_t q = 0; q < NIC_QPS_MAX; q++) /* a peer may have more of them than we */
            op = cut(&c->qp[q].queue, q < qps ? object : QUEUE_SIZE_MIN, op);
        op = cut(&c->log_queue, log, op);
        op = cut(&c->persist, log, op);
        op = cut(&c->cas, cas, op);
        c->asked = asked + (size_t)i * (log + cas);
    }
    return 0;
}

static void ep_free(struct nic_ep *ep)
{
    unbind(ep);
    rd_rpma_cm_close(ep);
    rd_rpma_block_delete(ep);
    close_fd(ep->timer_fd);
    close_fd(ep->wake_fd);
    close_fd(ep->epoll_fd);
    if (ep->conns != NULL)
        free(ep->conns[0].asked);
    free(ep->events);
    free(ep->ops);
    free(ep->conns);
    free(ep);
}

static int choose_device(struct nic_ep *ep)
{
    struct ibv_context *verbs = NULL;
    int rc = ep->address[0] != 0 ? rd_rpma_choose_local(ep->address, &verbs)
                                 : rd_rpma_choose(ep->fabric->config.device, &verbs);
    if (rc != 0 || verbs == NULL) /* NULL: the first connection decides */
        return rc;
    return rd_rpma_ep_bind(ep, verbs);
}

static int set_up(struct nic_ep *ep, const struct rd_ep_config *config)
{
    int rc = allocate(ep);
    if (rc == 0)
        rc = own_fd(epoll_create1(EPOLL_CLOEXEC), &ep->epoll_fd);
    if (rc == 0)
        rc = own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), &ep->wake_fd);
    if (rc == 0)
        rc = rd_rpma_watch(ep, ep->wake_fd, NULL, true);
    if (rc == 0)
        rc = rd_rpma_block_new(ep, config);
    if (rc == 0)
        rc = rd_rpma_cm_open(ep);
    if (rc == 0)
        rc = choose_device(ep);
    return rc;
}

static int check_config(const struct rd_ep_config *config)
{
    struct sockaddr_storage addr;
    socklen_t size;
    if (config->connections_max == 0 || config->connections_max > NIC_CONNECTIONS_MAX ||
        config->outstanding_max == 0 || config->outstanding_max > 16384)
        return cn_fail(CAIRN_E_FABRIC,
            "endpoint: %u connections of %u operations; 1 to %u of 1 to 16384 are allowed",
            config->connections_max, config->outstanding_max, NIC_CONNECTIONS_MAX);
    if (config->address != NULL)
        return rd_rpma_parse_address(config->address, &addr, &size);
    return 0;
}

static int ep_open(
    struct rd_fabric *rd_fabric, const struct rd_ep_config *config, struct rd_ep **ret_ep)
{
    int rc = check_config(config);
    if (rc != 0)
        return rc;
    struct nic_ep *ep = calloc(1, sizeof(*ep));
    if (ep == NULL)
        return cn_fail(-ENOMEM, "no memory for an endpoint");
    ep->base.ops = &rpma_ops;
    ep->fabric = (struct nic_fabric *)(void *)rd_fabric;
    ep->env = config->env;
    ep->connections_max = config->connections_max;
    ep->outstanding_max = config->outstanding_max;
    ep->log_listen_fd = ep->epoll_fd = ep->wake_fd = ep->look_fd = ep->timer_fd = -1;
    ep->next_timer_ns = UINT64_MAX;
    (void)snprintf(ep->name, sizeof(ep->name), "%s", config->name != NULL ? config->name : "?");
    if (config->address != NULL)
        (void)snprintf(ep->address, sizeof(ep->address), "%s", config->address);
    rc = set_up(ep, config);
    if (rc != 0) {
        ep_free(ep);
        return rc;
    }
    __atomic_fetch_add(&ep->fabric->endpoints, 1, __ATOMIC_RELAXED);
    rd_live_change(RD_LIVE_ENDPOINT, 1);
    *ret_ep = &ep->base;
    return 0;
}

static void ep_close(struct rd_ep *rd_ep)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    struct nic_fabric *fabric = ep->fabric;
    rd_rpma_conn_close_all(ep);
    rd_rpma_unlisten(ep);
    while (ep->regions != NULL)
        rd_rpma_region_delete(&ep->regions->base);
    ep_free(ep);
    uint32_t endpoints = __atomic_fetch_sub(&fabric->endpoints, 1, __ATOMIC_RELAXED);
    CAIRN_ASSERT(endpoints > 0);
    rd_live_change(RD_LIVE_ENDPOINT, -1);
}

static void *ep_memory(struct rd_ep *ep)
{
    return nic_ep(ep)->memory;
}

static void ep_counters(const struct rd_ep *ep, struct rd_counters *ret)
{
    *ret = ((const struct nic_ep *)(const void *)ep)->counters;
}

/* ---- fabric ---- */

static void fabric_delete(struct rd_fabric *rd_fabric)
{
    struct nic_fabric *fabric = (struct nic_fabric *)(void *)rd_fabric;
    CAIRN_ASSERT(fabric->endpoints == 0 && fabric->devices == NULL);
    (void)pthread_mutex_destroy(&fabric->lock);
    free(fabric);
    rd_live_change(RD_LIVE_FABRIC, -1);
}

static const struct rd_ops rpma_ops = {
    .name = "rpma",
    .fabric_delete = fabric_delete,
    .ep_open = ep_open,
    .ep_close = ep_close,
    .ep_memory = ep_memory,
    .ep_counters = ep_counters,
    .poll = poll_events,
    .ep_arm = ep_arm,
    .ep_sleep = ep_sleep,
    .ep_wake = ep_wake,
    .ep_fd = ep_fd,
    .ep_look = ep_look,
    .listen = rd_rpma_listen,
    .region_new = rd_rpma_region_new,
    .region_delete = rd_rpma_region_delete,
    .accept = rd_rpma_accept,
    .reject = rd_rpma_reject,
    .fence = rd_rpma_fence,
    .ring_revoke = rd_rpma_ring_revoke,
    .ring_rearm = rd_rpma_ring_rearm,
    .connect = rd_rpma_connect,
    .loopback = rd_rpma_loopback,
    .conn_delete = rd_rpma_conn_delete,
    .read = rd_rpma_read,
    .cas = rd_rpma_cas,
    .write = rd_rpma_write,
    .flush = rd_rpma_flush,
    .mark = rd_rpma_mark,
    .send = rd_rpma_send,
    .doorbell = rd_rpma_doorbell,
};

/* Half of the cores; NIC_QPS_MAX at most. */
static uint32_t default_queue_pairs(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)cn_min64(cn_max64((uint64_t)(cores > 0 ? cores : 1) / 2, 1), NIC_QPS_MAX);
}

int rd_rpma_fabric_new(const struct rd_fabric_config *config, struct rd_fabric **ret_fabric)
{
    struct ibv_context *verbs = NULL;
    if (config->queue_pairs > NIC_QPS_MAX)
        return cn_fail(CAIRN_E_CONFIG, "%u queue pairs per connection; 1 to %u are allowed",
            config->queue_pairs, NIC_QPS_MAX);
    rd_rpma_log_capture();
    int rc = rd_rpma_choose(config->device, &verbs);
    if (rc != 0)
        return rc;
    struct nic_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return cn_fail(-ENOMEM, "no memory for a fabric");
    fabric->base.ops = &rpma_ops;
    fabric->config = *config;
    if (fabric->config.queue_pairs == 0)
        fabric->config.queue_pairs = default_queue_pairs();
    if (fabric->config.heartbeat_ms == 0)
        fabric->config.heartbeat_ms = HEARTBEAT_MS;
    if (fabric->config.linger_us == 0)
        fabric->config.linger_us = LINGER_US;
    fabric->flush_line = rd_emu_choose_flush();
    rc = pthread_mutex_init(&fabric->lock, NULL);
    CAIRN_ASSERT(rc == 0);
    rd_live_change(RD_LIVE_FABRIC, 1);
    *ret_fabric = &fabric->base;
    return 0;
}
