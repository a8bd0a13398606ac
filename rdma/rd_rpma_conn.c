/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_conn.c: a connection's life, whatever side: slots, states, its log connection's objects,
 * loss, fence, deletion, and who handles which event. The steps of making one are in
 * rd_rpma_active.c and rd_rpma_passive.c, its timers in rd_rpma_timer.c.
 *
 * Invariants
 * - A connection that failed, was fenced or deleted has no queue pair any more: nothing of it moves
 *   memory of either side, and its completions that are still in a queue are dropped.
 * - The first cause of a loss is the one that is told. RD_EV_DOWN is queued once, after an error
 *   completion for every wanted operation.
 * - What the user has not heard of (NIC_GREETING) or has deleted (NIC_REFUSING) ends without an
 *   event.
 * - When a peer closes, what it sent before is delivered first: the log queue pair is put into the
 *   error state, which completes its receives after all good ones; that completion, or a timer,
 *   fails the connection.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

#define LOOK_EVENTS 32
#define LOOK_ROUNDS 4u

/* ---- slots and states ---- */

/* Whether each poll is to look at the event descriptors. Not for a stranger (NIC_GREETING): he
 * would have us make a system call in each. */
static bool is_making(enum nic_state state)
{
    switch (state) {
    case NIC_ADDRESS:
    case NIC_ROUTE:
    case NIC_FIRST:
    case NIC_FURTHER:
    case NIC_LOG:
    case NIC_ASKING:
    case NIC_TESTING:
    case NIC_ACCEPTED:
    case NIC_REFUSING:
    case NIC_DELETED:
        return true;
    default:
        return false;
    }
}

void rd_rpma_set_state(struct nic_conn *c, enum nic_state state)
{
    struct nic_ep *ep = nic_conn_ep(c);
    if (is_making(c->state)) {
        CAIRN_ASSERT(ep->making > 0);
        ep->making--;
    }
    if (is_making(state))
        ep->making++;
    ep->greeting -= c->state == NIC_GREETING;
    ep->greeting += state == NIC_GREETING;
    c->state = state;
}

static void reset(struct nic_conn *c, bool active)
{
    struct nic_ep *ep = nic_conn_ep(c);
    c->active = active;
    c->fenced = c->down_due = c->down_delivered = c->up_due = false;
    c->refused = c->suspect = c->closed = false;
    c->down_status = 0;
    c->text[0] = 0;
    c->deadline_ns = UINT64_MAX;
    c->cookie = 0;
    c->qp_count = 0;
    c->hello_size = c->welcome_size = 0;
    c->grant_count = c->grant_hint = 0;
    c->message_atomics = false;
    c->linger_ns = c->bell_ns = c->bell_writes = c->writes = 0;
    c->ring_off = c->ring_size = 0;
    c->ring = NULL;
    c->region_count = 0;
    c->peer_beat_addr = 0;
    c->peer_beat_rkey = 0;
    c->beat_ns = c->beat_late_ns = 0;
    c->beats_missed = 0;
    c->beat_out = false;
    c->test_step = 0;
    c->base = (struct rd_conn){.ops = ep->base.ops, .ep = &ep->base};
    memset(&c->peer_addr, 0, sizeof(c->peer_addr));
    memset(&ep->beats[c->index], 0, sizeof(ep->beats[c->index]));
    rd_rpma_forget_posted(c);
}

struct nic_conn *rd_rpma_conn_claim(struct nic_ep *ep, bool active, bool reuse)
{
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        if (c->state == NIC_DELETED && reuse) {
            rd_rpma_set_state(c, NIC_FREE);
            ep->deleted--;
        }
        if (c->state != NIC_FREE)
            continue;
        reset(c, active);
        rd_live_change(RD_LIVE_CONNECTION, 1);
        return c;
    }
    return NULL;
}

static void free_deleted(struct nic_ep *ep)
{
    for (uint32_t i = 0; i < ep->connections_max && ep->deleted > 0; i++) {
        if (ep->conns[i].state == NIC_DELETED) {
            rd_rpma_set_state(&ep->conns[i], NIC_FREE);
            ep->deleted--;
        }
    }
}

void rd_rpma_schedule(struct nic_ep *ep, uint64_t at_ns)
{
    ep->next_timer_ns = cn_min64(ep->next_timer_ns, at_ns);
}

/* ---- texts ---- */

const char *rd_rpma_peer_text(const struct nic_conn *c, char text[NIC_ADDRESS_TEXT_MAX])
{
    char host[NIC_ADDRESS_TEXT_MAX - 8];
    const struct sockaddr *addr = (const struct sockaddr *)(const void *)&c->peer_addr;
    socklen_t size = addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in);
    if (getnameinfo(addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        (void)snprintf(host, sizeof(host), "?");
    (void)snprintf(text, NIC_ADDRESS_TEXT_MAX, addr->sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u",
        host, rd_rpma_port(&c->peer_addr));
    return text;
}

const char *rd_rpma_device_text(const struct nic_conn *c)
{
    const struct nic_device *device = nic_conn_ep(c)->device;
    return device != NULL ? device->name : "any RDMA device";
}

/* ---- the log connection ---- */

int rd_rpma_log_config(struct nic_ep *ep, uint32_t timeout_ms, struct rpma_conn_cfg **ret_config)
{
    uint32_t sends = ep->conns[0].log_queue.size;
    struct rpma_conn_cfg *config = NULL;
    rd_rpma_log_clear();
    int rc = rpma_conn_cfg_new(&config);
    if (rc == 0)
        rc = rpma_conn_cfg_set_timeout(config, (int)timeout_ms);
    if (rc == 0)
        rc = rpma_conn_cfg_set_sq_size(config, sends);
    if (rc == 0)
        rc = rpma_conn_cfg_set_rq_size(config, NIC_RX);
    if (rc == 0)
        rc = rpma_conn_cfg_set_cq_size(config, sends + NIC_RX);
    if (rc != 0) {
        if (config != NULL)
            (void)rpma_conn_cfg_delete(&config);
        return rd_rpma_fail(rc, "cannot configure a log connection");
    }
    *ret_config = config;
    return 0;
}

static uint64_t look_tag(const struct nic_conn *c)
{
    return (uint64_t)c->generation << 32 | c->index;
}

int rd_rpma_log_take(struct nic_conn *c, struct rpma_conn *log)
{
    struct nic_ep *ep = nic_conn_ep(c);
    int event_fd = -1, cq_fd = -1;
    CAIRN_ASSERT(c->log == NULL);
    c->log = log;
    c->log_up = false;
    rd_live_change(RD_LIVE_QUEUE_PAIR, 1);
    rd_live_change(RD_LIVE_COMPLETION_QUEUE, 1);
    rd_live_change(RD_LIVE_CM_ID, 1);
    rd_rpma_log_clear();
    int rc = rpma_conn_get_cq(log, &c->log_cq);
    if (rc == 0)
        rc = rpma_cq_get_fd(c->log_cq, &cq_fd);
    if (rc == 0)
        rc = rpma_conn_get_event_fd(log, &event_fd);
    if (rc != 0)
        return rd_rpma_fail(rc, "cannot use a log connection");
    int err = rd_rpma_look_at(ep, event_fd, look_tag(c));
    if (err == 0)
        err = rd_rpma_watch(ep, cq_fd, c, true);
    nic_set_busy(c);
    return err;
}

static void delete_log(struct nic_ep *ep, struct rpma_conn *log)
{
    int fd;
    if (rpma_conn_get_event_fd(log, &fd) == 0)
        rd_rpma_look_away(ep, fd);
    (void)rpma_conn_delete(&log); /* frees in any case */
    rd_live_change(RD_LIVE_QUEUE_PAIR, -1);
    rd_live_change(RD_LIVE_COMPLETION_QUEUE, -1);
    rd_live_change(RD_LIVE_CM_ID, -1);
}

/* As with object queue pairs, see rd_rpma_cm.c. Its receives stay posted; nobody sends before it is
 * greeted. */
static bool park_log(struct nic_conn *c)
{
    struct nic_ep *ep = nic_conn_ep(c);
    int fd;
    if (!c->active || c->log_up || !ep->device->iwarp || ep->parked_log_count == NIC_PARKED_MAX ||
        rpma_conn_get_event_fd(c->log, &fd) != 0)
        return false;
    rd_rpma_look_away(ep, fd);
    if (rd_rpma_look_at(ep, fd, NIC_LOOK_PARKED) != 0)
        return false;
    ep->parked_log[ep->parked_log_count++] = c->log;
    return true;
}

/* Delete those that have been answered, or all. */
static void unpark_logs(struct nic_ep *ep, bool all)
{
    for (uint32_t i = 0; i < ep->parked_log_count;) {
        struct pollfd pending = {.fd = -1, .events = POLLIN};
        if (!all && rpma_conn_get_event_fd(ep->parked_log[i], &pending.fd) == 0 &&
            poll(&pending, 1, 0) == 0) {
            i++;
            continue;
        }
        delete_log(ep, ep->parked_log[i]);
        ep->parked_log[i] = ep->parked_log[--ep->parked_log_count];
    }
}

static void drop_log(struct nic_conn *c)
{
    struct nic_ep *ep = nic_conn_ep(c);
    int fd, ignored = 0;
    if (c->log == NULL)
        return;
    if (c->log_cq != NULL && rpma_cq_get_fd(c->log_cq, &fd) == 0)
        ignored = rd_rpma_watch(ep, fd, c, false);
    (void)ignored; /* the descriptor is about to be closed */
    if (!park_log(c))
        delete_log(ep, c->log);
    c->log = NULL;
    c->log_cq = NULL;
    c->log_up = false;
}

/* ---- ends ---- */

/* When it returns, nothing posted on the connection, here or there, has any effect any more. */
static void destroy(struct nic_conn *c)
{
    for (uint32_t i = 0; i < NIC_QPS_MAX; i++)
        rd_rpma_qp_delete(c, i);
    drop_log(c);
    if (c->ring_mr != NULL)
        (void)rpma_mr_remote_delete(&c->ring_mr);
    c->ring_mr = NULL;
}

void rd_rpma_conn_release(struct nic_conn *c, enum nic_state state)
{
    CAIRN_ASSERT(c->state != NIC_DELETED && (state == NIC_FREE || state == NIC_DELETED));
    destroy(c);
    rd_rpma_forget_posted(c);
    c->generation++;
    c->base.user = NULL;
    c->ring = NULL;
    c->region_count = 0;
    if (state == NIC_DELETED)
        nic_conn_ep(c)->deleted++;
    rd_live_change(RD_LIVE_CONNECTION, -1);
    rd_rpma_set_state(c, state);
}

static void CN_PRINTF(3, 0)
set_cause(struct nic_conn *c, int status, const char *format, va_list args)
{
    if (c->down_due) /* there is an earlier one */
        return;
    c->down_due = true;
    c->down_status = status;
    (void)vsnprintf(c->text, sizeof(c->text), format, args);
}

/* What the API tells a caller is no more than a note here; what breaks a connection that worked is
 * a warning, unless this node or the peer meant it. */
static void say_down(const struct nic_conn *c)
{
    const struct nic_ep *ep = nic_conn_ep(c);
    char text[NIC_ADDRESS_TEXT_MAX];
    enum cn_log_level level =
        c->state == NIC_UP && !c->closed && !c->fenced ? CN_LOG_WARNING : CN_LOG_INFO;
    cn_log(ep->env, level, "endpoint %s: the connection %s %s is down (%s): %s", ep->name,
        c->active ? "to" : "from", rd_rpma_peer_text(c, text), cairn_error_name(c->down_status),
        c->text);
}

/* Queue pairs first, then error completions, then down (rule R6). */
static void go_down(struct nic_conn *c)
{
    say_down(c);
    destroy(c);
    rd_rpma_fail_outstanding(c, c->down_status);
    c->deadline_ns = UINT64_MAX;
    rd_rpma_set_state(c, NIC_DOWN);
    rd_rpma_event(c, RD_EV_DOWN, c->down_status, 0);
}

void rd_rpma_conn_fail(struct nic_conn *c, int status, const char *format, ...)
{
    struct nic_ep *ep = nic_conn_ep(c);
    va_list args;
    CAIRN_ASSERT(status != 0);
    if (c->state == NIC_FREE || c->state == NIC_DOWN || c->state == NIC_DELETED)
        return;
    va_start(args, format);
    set_cause(c, status, format, args);
    va_end(args);
    if (c->state == NIC_GREETING || c->state == NIC_REFUSING) {
        if (c->state == NIC_GREETING)
            cn_log(ep->env, CN_LOG_INFO, "endpoint %s: a peer's connection ended before it was "
                "complete: %s", ep->name, c->text);
        rd_rpma_conn_release(c, NIC_FREE);
        return;
    }
    go_down(c);
}

void rd_rpma_conn_close(struct nic_conn *c, int status, const char *format, ...)
{
    struct nic_ep *ep = nic_conn_ep(c);
    va_list args;
    if (c->state == NIC_FREE || c->state == NIC_DOWN || c->state == NIC_DELETED || c->down_due)
        return;
    va_start(args, format);
    set_cause(c, status, format, args);
    va_end(args);
    c->closed = true;
    if (c->log == NULL || c->state == NIC_LOG || c->state == NIC_GREETING ||
        c->state == NIC_REFUSING) {
        rd_rpma_conn_fail(c, status, "%s", "");
        return;
    }
    (void)rpma_conn_disconnect(c->log); /* fails where the peer was faster: no matter */
    nic_set_busy(c);
    c->deadline_ns = cn_now_ns(ep->env) + NIC_CLOSE_NS;
    rd_rpma_schedule(ep, c->deadline_ns);
}

static bool is_talking(const struct nic_conn *c)
{
    return c->log != NULL && !c->down_due &&
           (c->state == NIC_UP || c->state == NIC_ACCEPTED || c->state == NIC_REFUSING);
}

void rd_rpma_conn_delete(struct rd_conn *rd_conn)
{
    struct nic_conn *c = nic_conn(rd_conn);
    CAIRN_ASSERT(c->state != NIC_FREE && c->state != NIC_DELETED && c->state != NIC_REFUSING);
    if (is_talking(c))
        rd_rpma_drain_sends(c);
    rd_rpma_conn_release(c, NIC_DELETED);
}

void rd_rpma_conn_close_all(struct nic_ep *ep)
{
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        if (c->state != NIC_FREE && c->state != NIC_DELETED) {
            if (is_talking(c))
                rd_rpma_drain_sends(c);
            if (c->state != NIC_FREE)
                rd_rpma_conn_release(c, NIC_FREE);
        }
    }
    free_deleted(ep);
    rd_rpma_unpark(ep, NULL);
    unpark_logs(ep, true);
}

int rd_rpma_fence(struct rd_conn *rd_conn)
{
    struct nic_conn *c = nic_conn(rd_conn);
    CAIRN_ASSERT(!c->active);
    CAIRN_ASSERT(c->state == NIC_ASKED || c->state == NIC_ACCEPTED || c->state == NIC_UP ||
                 c->state == NIC_DOWN);
    if (is_talking(c))
        rd_rpma_drain_sends(c);
    c->fenced = true;
    rd_rpma_conn_fail(c, CAIRN_E_FENCED, "this node has fenced the peer");
    if (c->ring == NULL)
        return 0;
    bool busy = false; /* its keys are worth nothing now */
    int err = rd_rpma_ring_revoke(&c->ring->base, &busy);
    CAIRN_ASSERT(err != 0 || !busy);
    return err;
}

/* Requests by message find it no more. */
void rd_rpma_conn_forget_region(const struct nic_region *region)
{
    struct nic_ep *ep = region->ep;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        uint32_t left = 0;
        if (c->ring == region)
            c->ring = NULL;
        for (uint32_t k = 0; k < c->region_count; k++) {
            if (c->region[k] != region)
                c->region[left++] = c->region[k];
        }
        c->region_count = left;
    }
}

/* ---- events ---- */

void rd_rpma_on_cm(struct nic_ep *ep, const struct rdma_cm_event *event)
{
    struct nic_conn *c = event->id->context;
    char text[NIC_ADDRESS_TEXT_MAX];
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        rd_rpma_passive_on_request(ep, event);
        return;
    }
    if (c == NULL && event->id != ep->listen_id) {
        rd_rpma_unpark(ep, event->id);
        return;
    }
    if (c == NULL) {
        cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: event %s of the listener", ep->name,
            rdma_event_str(event->event));
        return;
    }
    uint32_t index = 0;
    while (index < NIC_QPS_MAX && c->qp[index].id != event->id)
        index++;
    CAIRN_ASSERT(index < NIC_QPS_MAX);
    if (event->event != RDMA_CM_EVENT_ADDR_RESOLVED &&
        event->event != RDMA_CM_EVENT_ROUTE_RESOLVED)
        c->qp[index].connecting = false;
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_CHANGE:
        return; /* told to bonded interfaces; the connection goes on */
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        rd_rpma_conn_fail(c, CAIRN_E_FABRIC, "the RDMA device %s has been removed",
            rd_rpma_device_text(c));
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        rd_rpma_conn_close(c, CAIRN_E_NODE_DOWN, "the peer %s has closed the connection",
            rd_rpma_peer_text(c, text));
        return;
    default:
        break;
    }
    if (c->active)
        rd_rpma_active_on_cm(c, index, event);
    else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
        c->qp[index].up = true;
    else
        rd_rpma_conn_close(c, CAIRN_E_NODE_DOWN, "the peer %s has gone (%s)",
            rd_rpma_peer_text(c, text), rdma_event_str(event->event));
}

/* Called only when the descriptor is readable: without an event librpma fails and logs. */
static void take_log_event(struct nic_conn *c)
{
    enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
    char text[NIC_ADDRESS_TEXT_MAX];
    rd_rpma_log_clear();
    if (rpma_conn_next_event(c->log, &event) != 0)
        return; /* one that librpma does not know */
    if (c->active) {
        rd_rpma_active_on_log(c, event);
    } else if (event == RPMA_CONN_ESTABLISHED) {
        c->log_up = true;
        nic_set_busy(c);
    } else {
        rd_rpma_conn_close(c, CAIRN_E_NODE_DOWN, "the peer %s has closed the connection",
            rd_rpma_peer_text(c, text));
    }
}

static void take_event(struct nic_ep *ep, uint64_t tag)
{
    if (tag == NIC_LOOK_CM) {
        rd_rpma_cm_look(ep);
        return;
    }
    ep->counters.syscalls++;
    if (tag == NIC_LOOK_LISTEN) {
        rd_rpma_passive_on_log_request(ep);
        return;
    }
    if (tag == NIC_LOOK_PARKED) {
        unpark_logs(ep, false);
        return;
    }
    struct nic_conn *c = &ep->conns[(uint32_t)tag];
    if (c->log != NULL && look_tag(c) == tag)
        take_log_event(c);
}

void rd_rpma_conn_look(struct nic_ep *ep)
{
    if (ep->deleted > 0)
        free_deleted(ep);
    for (uint32_t round = 0; round < LOOK_ROUNDS; round++) {
        struct epoll_event events[LOOK_EVENTS];
        ep->counters.syscalls++;
        int n = epoll_wait(ep->look_fd, events, LOOK_EVENTS, 0);
        for (int i = 0; i < n; i++)
            take_event(ep, events[i].data.u64);
        if (n < LOOK_EVENTS)
            break;
    }
    uint64_t now = cn_now_ns(ep->env);
    if (now >= ep->next_timer_ns)
        rd_rpma_run_timers(ep, now);
}

void rd_rpma_on_frame(struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size)
{
    if (c->state == NIC_REFUSING || c->state == NIC_DOWN)
        return; /* the peer does not know yet */
    if (c->active)
        rd_rpma_active_on_frame(c, type, payload, size);
    else
        rd_rpma_passive_on_frame(c, type, payload, size);
}
