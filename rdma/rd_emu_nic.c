/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_nic.c: the watcher, one thread per endpoint that has sockets. It stands for the NIC: it
 * makes every system call that receives, connects, maps what a node grants, minds deadlines,
 * notices dead peers, and puts what happened into the endpoint's ring of notices.
 *
 * Invariants
 * - Bytes from a socket are hostile: a frame that is not exactly as described closes its
 *   connection.
 * - Nothing is read from a socket without room for the notice. Without room the connection stays
 *   `unread` (its messages wait in the kernel, and the peer's sends turn into CAIRN_E_AGAIN), and
 *   `stalled` asks the next poll that gives buffers back for a kick. `stalled` is set before the
 *   last look at the room, poll moves `tail` before it looks at `stalled`, a full barrier in both:
 *   one sees the other.
 * - A RD_EV_DOWN that finds no room stays due; it is the last notice of its connection.
 * - A connection that the user has not heard of yet vanishes without a notice.
 */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rdma/rd_emu.h"
#include "rdma/rd_live.h"

#define EVENTS_MAX 64
#define ACCEPTS_MAX 32        /* per round */
#define LISTENER UINT64_MAX   /* epoll data that are not a connection */
#define KICK (UINT64_MAX - 1)
#define WAIT_MS_MAX 60000
#define LISTEN_RETRY_NS UINT64_C(50000000) /* after the process ran out of descriptors */

/* ---- notices ---- */

static bool has_room(struct emu_ep *ep, const struct emu_conn *c, bool message)
{
    uint64_t head = __atomic_load_n(&ep->head, __ATOMIC_RELAXED);
    if (head - __atomic_load_n(&ep->tail, __ATOMIC_ACQUIRE) >= EMU_NOTICES)
        return false;
    return !message || __atomic_load_n(&c->queued, __ATOMIC_RELAXED) < EMU_CONN_NOTICES;
}

/* As has_room(), and arranges for a kick when there will be. */
static bool want_room(struct emu_ep *ep, const struct emu_conn *c, bool message)
{
    if (has_room(ep, c, message))
        return true;
    __atomic_store_n(&ep->stalled, 1, __ATOMIC_RELAXED);
    emu_full_barrier();
    return has_room(ep, c, message);
}

static struct emu_notice *next_notice(struct emu_ep *ep)
{
    return &ep->notices[__atomic_load_n(&ep->head, __ATOMIC_RELAXED) % EMU_NOTICES];
}

/* Publish next_notice(), whose data, if any, lies in its frame. */
static void push(
    struct emu_conn *c, enum rd_event_type type, int status, uint32_t off, uint32_t size)
{
    struct emu_ep *ep = emu_conn_ep(c);
    struct emu_notice *n = next_notice(ep);
    n->type = type;
    n->status = status;
    n->conn = c->index;
    n->generation = __atomic_load_n(&c->generation, __ATOMIC_RELAXED);
    n->data_off = off;
    n->size = size;
    if (type == RD_EV_MESSAGE)
        __atomic_fetch_add(&c->queued, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&ep->head, 1, __ATOMIC_RELEASE);
}

/* ---- ends of connections ---- */

void rd_emu_nic_forget(struct emu_conn *c)
{
    if (!c->watched)
        return;
    (void)epoll_ctl(emu_conn_ep(c)->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->watched = false;
}

static void push_down(struct emu_conn *c)
{
    if (!want_room(emu_conn_ep(c), c, false))
        return;
    c->down_due = false;
    push(c, RD_EV_DOWN, __atomic_load_n(&c->dead, __ATOMIC_RELAXED), 0, 0);
}

/* Note why operations are to fail from now on, unless there is an earlier cause. A node that fences
 * sets the word first and shuts the socket then. */
static void set_dead(struct emu_conn *c, int status)
{
    int expected = 0;
    if (status == CAIRN_E_NODE_DOWN && c->ring_header != NULL &&
        __atomic_load_n(&c->ring_header->fence, __ATOMIC_ACQUIRE) != 0)
        status = CAIRN_E_FENCED;
    (void)__atomic_compare_exchange_n(
        &c->dead, &expected, status, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* The connection has ended for the cause `status`, unless there is an earlier one. */
static void drop(struct emu_conn *c, int status)
{
    if (emu_state(c) == EMU_GREETING) {
        rd_emu_conn_release(c, EMU_FREE);
        return;
    }
    set_dead(c, status);
    rd_emu_nic_forget(c);
    if (c->fd >= 0)
        (void)shutdown(c->fd, SHUT_RDWR); /* the user's thread closes it */
    c->unread = false;
    c->deadline_ns = UINT64_MAX;
    c->down_due = true;
    emu_set_state(c, EMU_DOWN);
    push_down(c);
}

static void drop_malformed(struct emu_conn *c, const char *what)
{
    cn_log(emu_conn_ep(c)->env, CN_LOG_WARNING, "endpoint %s: connection closed: %s",
        emu_conn_ep(c)->name, what);
    drop(c, CAIRN_E_PROTOCOL);
}

/* ---- frames in ---- */

#define FDS_MAX (1 + RD_EMU_FILES_MAX)

struct incoming {
    uint32_t type;
    uint32_t size; /* of the payload */
    int fds[FDS_MAX];
    uint32_t fd_count;
};

static void close_fds(struct incoming *in)
{
    for (uint32_t i = 0; i < in->fd_count; i++)
        rd_emu_close(in->fds[i]);
    in->fd_count = 0;
}

static void take_fds(struct msghdr *message, struct incoming *in)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h != NULL; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            rd_live_change(RD_LIVE_DESCRIPTOR, 1);
            if (in->fd_count < FDS_MAX)
                in->fds[in->fd_count++] = fd;
            else
                rd_emu_close(fd);
        }
    }
}

/* One packet into `frame`; its length as sent, 0 at the end, -errno. Descriptors are taken only
 * from a node that answers: those of anybody else are dropped by the kernel. */
static ssize_t receive(struct emu_conn *c, uint8_t *frame, struct incoming *in)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = frame, .iov_len = RD_EMU_FRAME_SIZE_MAX};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (emu_state(c) == EMU_ASKING) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    in->fd_count = 0;
    ssize_t n;
    do {
        n = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (message.msg_controllen > 0)
        take_fds(&message, in);
    return n;
}

static bool parse(const uint8_t *frame, size_t size, struct incoming *in)
{
    struct rd_emu_frame_wire h;
    static const uint8_t zero[4];
    if (size < sizeof(h) || size > RD_EMU_FRAME_SIZE_MAX)
        return false;
    memcpy(&h, frame, sizeof(h));
    in->type = le16_get(h.type);
    in->size = le32_get(h.size);
    return le32_get(h.magic) == RD_EMU_MAGIC && in->size == size - sizeof(h) &&
           memcmp(h.reserved0, zero, sizeof(h.reserved0)) == 0 &&
           memcmp(h.reserved, zero, sizeof(h.reserved)) == 0;
}

/* Active: the node has accepted. Map, lock, say ready: only when that got through we are up. */
static void handle_accept(struct emu_conn *c, const uint8_t *payload, const struct incoming *in)
{
    struct emu_ep *ep = emu_conn_ep(c);
    uint32_t welcome_off = 0;
    int err = rd_emu_map_grant(c, payload, in->size, in->fds, in->fd_count, &welcome_off);
    if (err == 0) {
        err = rd_emu_send_frame(c->fd, RD_EMU_READY, NULL, 0);
        if (err != 0)
            err = cn_fail(CAIRN_E_NODE_DOWN, "the node has gone: %s", strerror(-err));
    }
    if (err != 0) {
        cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: no connection to %s: %s", ep->name,
            c->address, cairn_last_error());
        rd_emu_unmap_all(c);
        drop(c, err);
        return;
    }
    c->deadline_ns = UINT64_MAX;
    emu_set_state(c, EMU_UP);
    push(c, RD_EV_UP, 0, (uint32_t)sizeof(struct rd_emu_frame_wire) + welcome_off,
        in->size - welcome_off);
}

static void handle_reject(struct emu_conn *c, const struct incoming *in)
{
    int status = in->size > 0 ? CAIRN_E_FABRIC : CAIRN_E_LIMIT;
    __atomic_store_n(&c->dead, status, __ATOMIC_RELEASE);
    rd_emu_nic_forget(c);
    c->unread = false;
    c->deadline_ns = UINT64_MAX;
    emu_set_state(c, EMU_DOWN);
    push(c, RD_EV_DOWN, status, (uint32_t)sizeof(struct rd_emu_frame_wire), in->size);
}

/* A well-formed frame, in the buffer of the next notice. */
static void handle_frame(struct emu_conn *c, const uint8_t *payload, const struct incoming *in)
{
    const uint32_t off = (uint32_t)sizeof(struct rd_emu_frame_wire);
    enum emu_state state = emu_state(c);
    if (state == EMU_GREETING && in->type == RD_EMU_HELLO && in->size <= RD_HELLO_SIZE_MAX) {
        c->deadline_ns = UINT64_MAX;
        emu_set_state(c, EMU_ASKED);
        push(c, RD_EV_CONNECT, 0, off, in->size);
    } else if (state == EMU_ACCEPTED && in->type == RD_EMU_READY && in->size == 0) {
        c->deadline_ns = UINT64_MAX;
        emu_set_state(c, EMU_UP);
        push(c, RD_EV_UP, 0, 0, 0);
    } else if (state == EMU_UP && in->type == RD_EMU_MESSAGE && in->size > 0) {
        push(c, RD_EV_MESSAGE, 0, off, in->size);
    } else if (state == EMU_ASKING && in->type == RD_EMU_ACCEPT) {
        handle_accept(c, payload, in);
    } else if (state == EMU_ASKING && in->type == RD_EMU_REJECT &&
               in->size <= RD_WELCOME_SIZE_MAX) {
        handle_reject(c, in);
    } else {
        drop_malformed(c, "a frame out of place");
    }
}

static bool is_readable(const struct emu_conn *c)
{
    enum emu_state state = emu_state(c);
    return state == EMU_ASKING || state == EMU_GREETING || state == EMU_ASKED ||
           state == EMU_ACCEPTED || state == EMU_UP;
}

/* Read all there is, or all there is room for. */
static void read_socket(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    bool reset = false;
    c->unread = false;
    while (is_readable(c)) {
        if (!want_room(ep, c, emu_state(c) == EMU_UP)) {
            c->unread = true;
            return;
        }
        uint8_t *frame = next_notice(ep)->frame;
        struct incoming in;
        ssize_t n = receive(c, frame, &in);
        if (n == -EAGAIN)
            return;
        if (n == -ECONNRESET && !reset) {
            reset = true; /* comes before what the peer sent before it closed */
            continue;
        }
        if (n <= 0) {
            drop(c, CAIRN_E_NODE_DOWN);
            return;
        }
        if (parse(frame, (size_t)n, &in))
            handle_frame(c, frame + sizeof(struct rd_emu_frame_wire), &in);
        else
            drop_malformed(c, "a malformed frame");
        close_fds(&in);
    }
}

/* ---- connecting and listening ---- */

static int watch(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    uint64_t generation = __atomic_load_n(&c->generation, __ATOMIC_RELAXED);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
        .data.u64 = (generation & UINT32_MAX) << 32 | c->index};
    if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0)
        return -errno;
    c->watched = true;
    return 0;
}

static int connect_socket(struct emu_conn *c)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", c->address);
    if (c->fd < 0) {
        int fd = rd_emu_own_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd < 0)
            return fd;
        c->fd = fd;
    }
    if (connect(c->fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return -errno;
    int err = rd_emu_send_frame(c->fd, RD_EMU_HELLO, c->hello, c->hello_size);
    if (err == -EPIPE || err == -ECONNRESET)
        err = 0; /* turned away already: reading tells why */
    return err != 0 ? err : watch(c);
}

static void start_connect(struct emu_conn *c, uint64_t now)
{
    struct emu_ep *ep = emu_conn_ep(c);
    int err = connect_socket(c);
    if (err == -EAGAIN || err == -EINTR) { /* the listener's queue is full */
        c->retry_ns = now + EMU_RETRY_NS;
        return;
    }
    if (err == 0) {
        emu_set_state(c, EMU_ASKING);
        return;
    }
    cn_log(ep->env, CN_LOG_INFO, "endpoint %s: cannot connect to %s: %s", ep->name, c->address,
        strerror(-err));
    bool down = err == -ECONNREFUSED || err == -ENOENT;
    bool told = err == -EACCES || err == -EPERM; /* as it is: the caller can say what to do */
    drop(c, down ? CAIRN_E_NODE_DOWN : told ? err : CAIRN_E_FABRIC);
}

/* Half of the table at most is for peers that have not said hello. */
static bool may_greet(const struct emu_ep *ep)
{
    uint32_t greeting = 0;
    for (uint32_t i = 0; i < ep->connections_max; i++)
        greeting += emu_state(&ep->conns[i]) == EMU_GREETING;
    return greeting < (ep->connections_max + 1) / 2;
}

static void greet(struct emu_ep *ep, int fd, uint64_t now)
{
    struct emu_conn *c = may_greet(ep) ? rd_emu_conn_claim(ep, false) : NULL;
    if (c == NULL) {
        cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: no room for one more connection", ep->name);
        (void)rd_emu_send_frame(fd, RD_EMU_REJECT, NULL, 0);
        rd_emu_close(fd);
        return;
    }
    struct ucred cred;
    socklen_t size = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0)
        c->peer_pid = cred.pid;
    c->fd = fd;
    c->deadline_ns = now + EMU_GREETING_NS;
    emu_set_state(c, EMU_GREETING);
    if (watch(c) != 0)
        drop(c, CAIRN_E_FABRIC);
    else
        read_socket(c);
}

static void accept_connections(struct emu_ep *ep, uint64_t now)
{
    for (int i = 0; i < ACCEPTS_MAX && ep->listen_fd >= 0; i++) {
        int fd = rd_emu_own_fd(accept4(ep->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd == -EAGAIN)
            return;
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
            cn_log(ep->env, CN_LOG_ERROR, "endpoint %s: cannot accept: %s; raise its limit",
                ep->name, strerror(-fd));
            (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, ep->listen_fd, NULL);
            ep->listen_retry_ns = now + LISTEN_RETRY_NS;
            return;
        }
        if (fd >= 0)
            greet(ep, fd, now);
    }
}

/* ---- the thread ---- */

static void handle_event(struct emu_ep *ep, const struct epoll_event *event, uint64_t now)
{
    if (event->data.u64 == LISTENER) {
        accept_connections(ep, now);
        return;
    }
    if (event->data.u64 == KICK) {
        uint64_t count;
        (void)!read(ep->kick_fd, &count, sizeof(count));
        return;
    }
    struct emu_conn *c = &ep->conns[event->data.u64 & UINT32_MAX];
    uint64_t generation = __atomic_load_n(&c->generation, __ATOMIC_RELAXED);
    if ((generation & UINT32_MAX) != event->data.u64 >> 32 || !is_readable(c))
        return; /* of an earlier connection */
    /* Posts are to fail at once; what the peer has sent is delivered all the same. */
    if ((event->events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) != 0 && emu_state(c) == EMU_UP)
        set_dead(c, CAIRN_E_NODE_DOWN);
    read_socket(c);
}

/* What a connection is due without an event of its socket. Returns when it is due again. */
static uint64_t attend(struct emu_conn *c, uint64_t now)
{
    if (emu_state(c) == EMU_QUEUED && now >= c->retry_ns && now < c->deadline_ns)
        start_connect(c, now);
    if (c->unread)
        read_socket(c);
    if (c->down_due)
        push_down(c);
    enum emu_state state = emu_state(c);
    bool waiting = state == EMU_QUEUED || state == EMU_ASKING || state == EMU_GREETING ||
                   state == EMU_ACCEPTED;
    if (!waiting)
        return UINT64_MAX;
    if (now >= c->deadline_ns) {
        drop(c, CAIRN_E_TIMEOUT);
        return UINT64_MAX;
    }
    return state == EMU_QUEUED ? cn_min64(c->retry_ns, c->deadline_ns) : c->deadline_ns;
}

static uint64_t attend_all(struct emu_ep *ep, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    if (ep->listen_retry_ns != 0 && now >= ep->listen_retry_ns && ep->listen_fd >= 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = LISTENER};
        (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, ep->listen_fd, &event);
        ep->listen_retry_ns = 0;
    }
    if (ep->listen_retry_ns != 0)
        due = ep->listen_retry_ns;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        enum emu_state state = emu_state(&ep->conns[i]);
        if (state >= EMU_QUEUED && state <= EMU_DOWN)
            due = cn_min64(due, attend(&ep->conns[i], now));
    }
    return due;
}

static int wait_ms(uint64_t now, uint64_t due)
{
    if (due <= now)
        return 0;
    uint64_t ms = (due - now) / 1000000 + 1;
    return (int)cn_min64(ms, WAIT_MS_MAX);
}

static void *run(void *arg)
{
    struct emu_ep *ep = arg;
    uint64_t due = 0;
    while (__atomic_load_n(&ep->stopping, __ATOMIC_ACQUIRE) == 0) {
        struct epoll_event events[EVENTS_MAX];
        int n = epoll_wait(ep->epoll_fd, events, EVENTS_MAX, wait_ms(cn_now_ns(ep->env), due));
        uint64_t now = cn_now_ns(ep->env);
        uint64_t head = __atomic_load_n(&ep->head, __ATOMIC_RELAXED);
        (void)pthread_mutex_lock(&ep->lock);
        for (int i = 0; i < n; i++)
            handle_event(ep, &events[i], now);
        due = attend_all(ep, now);
        (void)pthread_mutex_unlock(&ep->lock);
        if (head != __atomic_load_n(&ep->head, __ATOMIC_RELAXED))
            rd_emu_ep_ring(ep);
    }
    return NULL;
}

static int open_epoll(struct emu_ep *ep)
{
    if (ep->epoll_fd < 0) {
        int fd = rd_emu_own_fd(epoll_create1(EPOLL_CLOEXEC));
        if (fd < 0)
            return fd;
        ep->epoll_fd = fd;
    }
    if (ep->kick_fd < 0) {
        int fd = rd_emu_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (fd < 0)
            return fd;
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = KICK};
        if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
            int err = -errno;
            rd_emu_close(fd);
            return err;
        }
        ep->kick_fd = fd;
    }
    return 0;
}

int rd_emu_nic_start(struct emu_ep *ep)
{
    if (ep->threaded)
        return 0;
    int err = open_epoll(ep);
    if (err == 0) { /* signals are for the application's threads */
        sigset_t all, old;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        err = -pthread_create(&ep->thread, NULL, run, ep);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (err != 0)
        return cn_fail(err, "endpoint %s: cannot start its watcher: %s", ep->name, strerror(-err));
    ep->threaded = true;
    rd_live_change(RD_LIVE_THREAD, 1);
    return 0;
}

void rd_emu_nic_stop(struct emu_ep *ep)
{
    if (!ep->threaded)
        return;
    __atomic_store_n(&ep->stopping, 1, __ATOMIC_RELEASE);
    rd_emu_nic_kick(ep);
    (void)pthread_join(ep->thread, NULL);
    ep->threaded = false;
    rd_live_change(RD_LIVE_THREAD, -1);
}

void rd_emu_nic_kick(struct emu_ep *ep)
{
    const uint64_t one = 1;
    if (ep->kick_fd >= 0)
        (void)!write(ep->kick_fd, &one, sizeof(one));
}
