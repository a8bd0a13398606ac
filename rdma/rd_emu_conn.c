/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_conn.c: connections as the endpoint's thread handles them: listen, connect, accept,
 * reject, fence, delete, messages out, the doorbell. What comes in is the watcher's (rd_emu_nic.c).
 *
 * Invariant: the descriptor of a connection that the user knows is closed by the user's thread
 * alone, so sending needs no lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rdma/rd_emu.h"
#include "rdma/rd_live.h"

#define LISTEN_BACKLOG 128
#define DIRECTORY_TRIES 100 /* 10 ms apart: another listener is being set up next to ours */

/* ---- frames out ---- */

static void fill_header(
    struct rd_emu_frame_wire *header, enum rd_emu_frame_type type, uint32_t payload_size)
{
    memset(header, 0, sizeof(*header));
    header->magic = le32_make(RD_EMU_MAGIC);
    header->type = le16_make((uint16_t)type);
    header->size = le32_make(payload_size);
}

int rd_emu_send_frame(int fd, enum rd_emu_frame_type type, const void *payload, uint32_t size)
{
    struct rd_emu_frame_wire header;
    fill_header(&header, type, size);
    struct iovec iov[2] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = (void *)(uintptr_t)payload, .iov_len = size},
    };
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = size > 0 ? 2 : 1};
    ssize_t n;
    do {
        n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* ---- listen ---- */

static int make_address(const char *address, struct sockaddr_un *ret)
{
    size_t size = strlen(address);
    if (size == 0 || size >= sizeof(ret->sun_path))
        return cn_fail(CAIRN_E_CONFIG,
            "address \"%s\": an `emu` address is the path of a socket, 1 to %zu bytes long",
            address, sizeof(ret->sun_path) - 1);
    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    memcpy(ret->sun_path, address, size + 1);
    return 0;
}

/* Nobody else replaces a stale socket in the directory at the same time. -1: goes without. */
static int lock_directory(const char *address)
{
    char directory[RD_ADDRESS_SIZE_MAX];
    (void)snprintf(directory, sizeof(directory), "%s", address);
    char *slash = strrchr(directory, '/');
    if (slash == NULL)
        (void)snprintf(directory, sizeof(directory), ".");
    else
        slash[slash == directory ? 1 : 0] = 0;
    int fd = rd_emu_own_fd(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return -1;
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < DIRECTORY_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        (void)nanosleep(&pause, NULL);
    return fd;
}

/* Whether the path is a socket that nobody listens on any more. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = rd_emu_own_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return false;
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                   errno == ECONNREFUSED;
    rd_emu_close(fd);
    return refused;
}

static int bind_address(int fd, const struct sockaddr_un *address)
{
    (void)fchmod(fd, 0600); /* the socket's mode: it hands out the pool */
    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
        return 0;
    if (errno == EADDRINUSE && is_stale(address)) {
        (void)unlink(address->sun_path);
        if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
            return 0;
    }
    int err = -errno;
    struct stat st;
    if (err == -EADDRINUSE && lstat(address->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return cn_fail(err, "address \"%s\" is a file, and no socket; give this node another "
            "address", address->sun_path);
    if (err == -EADDRINUSE)
        return cn_fail(err, "address \"%s\" is in use; end the process that listens there, or give "
            "this node another address", address->sun_path);
    return cn_fail(err, "cannot bind to \"%s\": %s", address->sun_path, strerror(-err));
}

static int open_listener(const struct sockaddr_un *address)
{
    int fd = rd_emu_own_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return cn_fail(fd, "cannot make a socket: %s", strerror(-fd));
    int directory = lock_directory(address->sun_path);
    int err = bind_address(fd, address);
    if (err == 0 && listen(fd, LISTEN_BACKLOG) != 0)
        err = cn_fail(-errno, "cannot listen on \"%s\": %s", address->sun_path, strerror(errno));
    rd_emu_close(directory);
    if (err != 0) {
        rd_emu_close(fd);
        return err;
    }
    return fd;
}

int rd_emu_listen(struct rd_ep *rd_ep, const char *text)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    struct sockaddr_un address;
    int err = make_address(text, &address);
    if (err != 0)
        return err;
    if (ep->listen_fd >= 0)
        return cn_fail(
            CAIRN_E_STATE, "endpoint %s listens on \"%s\" already", ep->name, ep->address);
    err = rd_emu_nic_start(ep);
    if (err != 0)
        return err;
    int fd = open_listener(&address);
    if (fd < 0)
        return fd;

    struct stat st = {0};
    (void)stat(address.sun_path, &st);
    (void)pthread_mutex_lock(&ep->lock);
    (void)snprintf(ep->address, sizeof(ep->address), "%s", text);
    ep->listen_device = st.st_dev;
    ep->listen_inode = st.st_ino;
    ep->listen_fd = fd;
    rd_live_change(RD_LIVE_LISTENER, 1);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        err = cn_fail(-errno, "cannot watch a listener: %s", strerror(errno));
    (void)pthread_mutex_unlock(&ep->lock);
    if (err != 0)
        rd_emu_unlisten(ep);
    return err;
}

/* Leaves the path alone where another process has replaced the socket. */
void rd_emu_unlisten(struct emu_ep *ep)
{
    struct stat st;
    (void)pthread_mutex_lock(&ep->lock);
    if (ep->listen_fd >= 0) {
        if (lstat(ep->address, &st) == 0 && st.st_dev == ep->listen_device &&
            st.st_ino == ep->listen_inode)
            (void)unlink(ep->address);
        rd_emu_close(ep->listen_fd);
        ep->listen_fd = -1;
        rd_live_change(RD_LIVE_LISTENER, -1);
    }
    (void)pthread_mutex_unlock(&ep->lock);
}

/* ---- accept and reject ---- */

struct answer {
    uint8_t payload[sizeof(struct rd_emu_accept_wire) +
                    RD_EMU_REGIONS_MAX * sizeof(struct rd_emu_region_wire) + RD_WELCOME_SIZE_MAX];
    uint32_t size;
    int fds[1 + RD_EMU_FILES_MAX];
    const struct emu_region *files[RD_EMU_FILES_MAX]; /* the first region of each file */
    uint32_t file_count;
};

/* Index of the region's file among those passed, each once. */
static uint32_t pass_file(struct answer *a, const struct emu_region *region)
{
    for (uint32_t i = 0; i < a->file_count; i++) {
        if (a->files[i]->device == region->device && a->files[i]->inode == region->inode)
            return i;
    }
    a->files[a->file_count] = region;
    a->fds[1 + a->file_count] = region->fd;
    return a->file_count++;
}

static int add_region(
    struct answer *a, const struct emu_conn *c, const struct emu_region *region, bool ring)
{
    bool in_file = region->fd >= 0;
    if (!in_file && c->peer_pid != getpid())
        return cn_fail(CAIRN_E_FABRIC,
            "the region at %#llx has no file behind it: it cannot be granted to another process",
            (unsigned long long)region->base.pool_off);
    struct rd_emu_region_wire wire = {
        .pool_off = le64_make(region->base.pool_off),
        .size = le64_make(region->base.size),
        .base = le64_make(in_file ? 0 : (uintptr_t)region->memory),
        .access = le16_make((uint16_t)region->base.access),
        .durability = le16_make((uint16_t)(ring ? region->durability : 0)),
        .file = le16_make((uint16_t)(in_file ? pass_file(a, region) : RD_EMU_NO_FILE)),
        .ring = le16_make(ring),
    };
    memcpy(a->payload + a->size, &wire, sizeof(wire));
    a->size += (uint32_t)sizeof(wire);
    return 0;
}

/* The accept frame's header is 16 bytes as well; it goes in front by itself. */
static int send_answer(int fd, struct answer *a)
{
    struct rd_emu_frame_wire header;
    fill_header(&header, RD_EMU_ACCEPT, a->size);
    struct iovec iov[2] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = a->payload, .iov_len = a->size},
    };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (1 + RD_EMU_FILES_MAX))];
    } control;
    memset(&control, 0, sizeof(control));
    size_t fds_size = sizeof(int) * (1 + a->file_count);
    struct msghdr message = {.msg_iov = iov,
        .msg_iovlen = 2,
        .msg_control = control.bytes,
        .msg_controllen = CMSG_SPACE(fds_size)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(fds_size);
    memcpy(CMSG_DATA(cmsg), a->fds, fds_size);
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int fill_answer(struct answer *a, const struct emu_conn *c, struct rd_region *const *regions,
    uint32_t region_count, struct rd_region *ring)
{
    a->size = sizeof(struct rd_emu_accept_wire);
    a->file_count = 0;
    a->fds[0] = emu_conn_ep(c)->bell_fd;
    int err = 0;
    for (uint32_t i = 0; i < region_count && err == 0; i++)
        err = add_region(a, c, emu_region(regions[i]), false);
    if (err == 0 && ring != NULL)
        err = add_region(a, c, emu_region(ring), true);
    return err;
}

int rd_emu_accept(struct rd_conn *rd_conn, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size)
{
    struct emu_conn *c = emu_conn(rd_conn);
    struct emu_ep *ep = emu_conn_ep(c);
    CAIRN_ASSERT(!c->active && size <= RD_WELCOME_SIZE_MAX && region_count <= RD_REGIONS_MAX);
    CAIRN_ASSERT(ring == NULL || ((ring->access & RD_ACCESS_WRITE) != 0 &&
                                     ring->size > RD_RING_HEADER_SIZE));
    struct answer a;
    int err = fill_answer(&a, c, regions, region_count, ring);
    if (err != 0)
        return err;
    struct rd_emu_accept_wire accept = {
        .pid = le32_make((uint32_t)getpid()),
        .region_count = le32_make(region_count + (ring != NULL)),
        .file_count = le32_make(a.file_count),
        .welcome_size = le32_make(size),
    };
    memcpy(a.payload, &accept, sizeof(accept));
    if (size > 0)
        memcpy(a.payload + a.size, welcome, size);
    a.size += size;

    (void)pthread_mutex_lock(&ep->lock);
    if (emu_state(c) != EMU_ASKED || c->fenced) {
        err = cn_fail(CAIRN_E_NODE_DOWN, "the peer has gone before it was accepted");
    } else {
        err = send_answer(c->fd, &a);
        if (err != 0)
            err = cn_fail(CAIRN_E_NODE_DOWN, "cannot answer the peer: %s", strerror(-err));
    }
    if (err == 0) {
        c->ring = ring;
        c->deadline_ns = cn_now_ns(ep->env) + EMU_READY_NS;
        emu_set_state(c, EMU_ACCEPTED);
    }
    (void)pthread_mutex_unlock(&ep->lock);
    if (err == 0)
        rd_emu_nic_kick(ep); /* there is a new deadline */
    return err;
}

int rd_emu_reject(struct rd_conn *rd_conn, const void *reason, uint32_t size)
{
    struct emu_conn *c = emu_conn(rd_conn);
    struct emu_ep *ep = emu_conn_ep(c);
    CAIRN_ASSERT(!c->active && size <= RD_WELCOME_SIZE_MAX);
    (void)pthread_mutex_lock(&ep->lock);
    if (emu_state(c) == EMU_ASKED) /* a peer that is gone meanwhile: no matter */
        (void)rd_emu_send_frame(c->fd, RD_EMU_REJECT, reason, size);
    (void)pthread_mutex_unlock(&ep->lock);
    rd_emu_conn_delete(rd_conn);
    return 0;
}

/* ---- fence and delete ---- */

int rd_emu_fence(struct rd_conn *rd_conn)
{
    struct emu_conn *c = emu_conn(rd_conn);
    struct emu_ep *ep = emu_conn_ep(c);
    CAIRN_ASSERT(!c->active && emu_state(c) != EMU_LOOPBACK);
    if (c->ring != NULL)
        rd_emu_ring_set_fence(c->ring);
    c->fenced = true;
    __atomic_store_n(&c->dead, CAIRN_E_FENCED, __ATOMIC_RELEASE);
    (void)pthread_mutex_lock(&ep->lock);
    if (c->fd >= 0)
        (void)shutdown(c->fd, SHUT_RDWR); /* the watcher sees it and says RD_EV_DOWN */
    (void)pthread_mutex_unlock(&ep->lock);
    return 0;
}

/* Operations run at post: what is left is to forget the completions nobody has polled. */
static void drop_completions(struct emu_conn *c)
{
    struct emu_ep *ep = emu_conn_ep(c);
    uint64_t mask = ep->completion_mask;
    uint64_t to = ep->completion_tail;
    for (uint64_t i = ep->completion_tail; i != ep->completion_head; i++) {
        if (ep->completions[i & mask].conn != c)
            ep->completions[to++ & mask] = ep->completions[i & mask];
    }
    ep->completion_head = to;
    c->outstanding = c->flushes = 0;
}

void rd_emu_conn_delete(struct rd_conn *rd_conn)
{
    struct emu_conn *c = emu_conn(rd_conn);
    struct emu_ep *ep = emu_conn_ep(c);
    enum emu_state state = emu_state(c);
    CAIRN_ASSERT(state != EMU_FREE && state != EMU_CLAIMED && state != EMU_DELETED);
    drop_completions(c);
    if (c->local_down != 0) {
        c->local_down = 0;
        ep->local_downs--;
    }
    c->up = c->plain = c->fenced = c->down_delivered = false;
    memset(c->window, 0, sizeof(c->window));
    c->range_count = 0;
    c->base.user = NULL;
    (void)pthread_mutex_lock(&ep->lock);
    rd_emu_conn_release(c, EMU_DELETED);
    (void)pthread_mutex_unlock(&ep->lock);
    ep->deleted++;
}

/* ---- active side ---- */

static int fail_full(const struct emu_ep *ep)
{
    return cn_fail(CAIRN_E_LIMIT, "endpoint %s: all %u connections are in use", ep->name,
        ep->connections_max);
}

int rd_emu_connect(struct rd_ep *rd_ep, const char *text, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    struct sockaddr_un address;
    CAIRN_ASSERT(size <= RD_HELLO_SIZE_MAX);
    int err = make_address(text, &address);
    if (err == 0)
        err = rd_emu_nic_start(ep);
    if (err != 0)
        return err;
    (void)pthread_mutex_lock(&ep->lock);
    struct emu_conn *c = rd_emu_conn_claim(ep, true);
    if (c != NULL) {
        c->active = true;
        (void)snprintf(c->address, sizeof(c->address), "%s", text);
        if (size > 0)
            memcpy(c->hello, hello, size);
        c->hello_size = size;
        c->deadline_ns = deadline_ns;
        emu_set_state(c, EMU_QUEUED);
    }
    (void)pthread_mutex_unlock(&ep->lock);
    if (c == NULL)
        return fail_full(ep);
    rd_emu_nic_kick(ep);
    *ret_conn = &c->base;
    return 0;
}

int rd_emu_loopback(struct rd_ep *rd_ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    (void)pthread_mutex_lock(&ep->lock);
    struct emu_conn *c = rd_emu_conn_claim(ep, true);
    (void)pthread_mutex_unlock(&ep->lock);
    if (c == NULL)
        return fail_full(ep);
    int err = 0;
    for (uint32_t i = 0; i < region_count && err == 0; i++) {
        const struct emu_region *region = emu_region(regions[i]);
        struct emu_map map = {
            .pool_off = region->base.pool_off,
            .size = region->base.size,
            .base = region->memory,
            .access = region->base.access & ~(unsigned)RD_ACCESS_WRITE, /* read and cas only */
        };
        err = rd_emu_add_map(c, &map);
    }
    if (err != 0) {
        (void)pthread_mutex_lock(&ep->lock);
        rd_emu_conn_release(c, EMU_FREE);
        (void)pthread_mutex_unlock(&ep->lock);
        return err;
    }
    c->up = true;
    c->plain = !ep->model.on;
    emu_set_state(c, EMU_LOOPBACK);
    *ret_conn = &c->base;
    return 0;
}

/* ---- messages and doorbell ---- */

int rd_emu_send(struct rd_conn *rd_conn, const void *message, uint32_t size)
{
    struct emu_conn *c = emu_conn(rd_conn);
    struct emu_ep *ep = emu_conn_ep(c);
    CAIRN_ASSERT(size > 0 && size <= RD_MESSAGE_SIZE_MAX);
    int err = rd_emu_check_alive(c);
    if (err != 0)
        return err;
    if (c->fd < 0)
        return cn_fail(CAIRN_E_FABRIC, "a loopback connection carries no messages");
    ep->counters.syscalls++;
    err = rd_emu_send_frame(c->fd, RD_EMU_MESSAGE, message, size);
    if (err == -EAGAIN || err == -ENOBUFS || err == -ENOMEM)
        return cn_fail(CAIRN_E_AGAIN, "the peer does not keep up with our messages");
    if (err != 0) /* the watcher sees it too, and says RD_EV_DOWN */
        return cn_fail(CAIRN_E_NODE_DOWN, "cannot send to the peer: %s", strerror(-err));
    ep->counters.messages_sent++;
    return 0;
}

void rd_emu_doorbell(struct rd_conn *rd_conn)
{
    struct emu_conn *c = emu_conn(rd_conn);
    if (!c->up || c->peer_bell == NULL)
        return;
    if (rd_emu_bell_ring(c->peer_bell))
        emu_conn_ep(c)->counters.wakeups++;
}
