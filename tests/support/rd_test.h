/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_test.h: what the tests of rdma/ share: an endpoint with its fabric, a pool file, waiting for
 * events, child processes with a command socket, a node to run in one. Header-only: the unit tests
 * of rdma/ link nothing above it. Include after cmocka.h.
 */
#ifndef RD_TEST_H
#define RD_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rdma/rd.h"

#define T_EXTENT_OFF UINT64_C(0x10000)
#define T_EXTENT_SIZE UINT64_C(0x10000)
#define T_RING_OFF UINT64_C(0x40000)
#define T_RING_SIZE UINT64_C(0x11000)
#define T_LOG_OFF (T_RING_OFF + RD_RING_HEADER_SIZE)
#define T_POOL_SIZE UINT64_C(0x80000)
#define T_MS UINT64_C(1000000)
#define T_ARENA_SIZE (1u << 20) /* the second half is for rings */

struct t_pool {
    int fd;
    uint8_t *base;
};

struct t_side {
    struct rd_fabric *fabric;
    struct rd_ep *ep;
    struct rd_region *extent, *ring;
};

static inline void t_fail(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: failed: %s (%s)\n", file, line, what, cairn_last_error());
    abort(); /* a child has no cmocka around it */
}
#define T_CHECK(cond) ((cond) ? (void)0 : t_fail(__FILE__, __LINE__, #cond))

static inline uint64_t t_now(void)
{
    return cn_now_ns(cn_env_system());
}

static inline void t_pool_open(struct t_pool *pool)
{
    pool->fd = memfd_create("pool", MFD_CLOEXEC);
    T_CHECK(pool->fd >= 0 && ftruncate(pool->fd, (off_t)T_POOL_SIZE) == 0);
    pool->base = mmap(NULL, T_POOL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
    T_CHECK(pool->base != MAP_FAILED);
}

static inline void t_pool_close(struct t_pool *pool)
{
    T_CHECK(munmap(pool->base, T_POOL_SIZE) == 0 && close(pool->fd) == 0);
}

static inline uint64_t t_load(const struct t_pool *pool, uint64_t off)
{
    return __atomic_load_n((const uint64_t *)(const void *)(pool->base + off), __ATOMIC_ACQUIRE);
}

static inline void t_store(const struct t_pool *pool, uint64_t off, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(pool->base + off), value, __ATOMIC_RELEASE);
}

static inline void t_open_with(struct t_side *side, uint32_t connections, uint32_t outstanding,
    const struct rd_fabric_config *fabric, const struct cn_env *env)
{
    memset(side, 0, sizeof(*side));
    cn_env_system_log_level(CN_LOG_ERROR);
    T_CHECK(rd_fabric_open("emu", fabric, &side->fabric) == 0);
    const struct rd_ep_config config = {.env = env,
        .connections_max = connections,
        .outstanding_max = outstanding,
        .memory_size = T_ARENA_SIZE,
        .log_memory_size = T_ARENA_SIZE / 2,
        .name = "test"};
    T_CHECK(rd_ep_open(side->fabric, &config, &side->ep) == 0);
}

static inline void t_open(struct t_side *side, uint32_t connections, uint32_t outstanding)
{
    t_open_with(side, connections, outstanding, NULL, cn_env_system());
}

static inline void *t_log_memory(struct rd_ep *ep)
{
    return (uint8_t *)rd_ep_memory(ep) + T_ARENA_SIZE / 2;
}

static inline struct rd_memory t_memory(
    const struct t_pool *pool, uint64_t off, uint64_t size, int fd)
{
    return (struct rd_memory){
        .base = pool->base + off, .pool_off = off, .size = size, .fd = fd};
}

/* `durability` of the ring. */
static inline void t_regions_durable(
    struct t_side *side, const struct t_pool *pool, enum rd_durability durability)
{
    const struct rd_memory extent = t_memory(pool, T_EXTENT_OFF, T_EXTENT_SIZE, pool->fd);
    struct rd_memory ring = t_memory(pool, T_RING_OFF, T_RING_SIZE, pool->fd);
    ring.durability = durability;
    const unsigned extent_access = RD_ACCESS_READ | RD_ACCESS_ATOMIC;
    const unsigned ring_access = RD_ACCESS_READ | RD_ACCESS_WRITE;
    T_CHECK(rd_region_new(side->ep, &extent, extent_access, &side->extent) == 0);
    T_CHECK(rd_region_new(side->ep, &ring, ring_access, &side->ring) == 0);
}

static inline void t_regions(struct t_side *side, const struct t_pool *pool)
{
    t_regions_durable(side, pool, 0);
}

static inline void t_close(struct t_side *side)
{
    if (side->ring != NULL)
        rd_region_delete(side->ring);
    if (side->extent != NULL)
        rd_region_delete(side->extent);
    rd_ep_close(side->ep);
    rd_fabric_delete(side->fabric);
}

static inline void t_check_live_zero(void)
{
    struct rd_live live;
    rd_live_get(&live);
    T_CHECK(rd_live_is_zero(&live));
}

/* The next event, whatever it is; false after `ms`. */
static inline bool t_next(struct rd_ep *ep, struct rd_event *event, uint64_t ms)
{
    uint64_t deadline = t_now() + ms * T_MS;
    for (;;) {
        if (rd_poll(ep, event, 1) == 1)
            return true;
        if (t_now() >= deadline)
            return false;
        rd_ep_arm(ep);
        if (rd_poll(ep, event, 1) == 1)
            return true;
        rd_ep_sleep(ep, deadline);
    }
}

/* The next event is of that type. */
static inline struct rd_event t_expect(struct rd_ep *ep, enum rd_event_type type)
{
    struct rd_event event = {.type = 99};
    T_CHECK(t_next(ep, &event, 10000));
    if (event.type != type)
        (void)fprintf(stderr, "event %d with status %d where %d is due\n", (int)event.type,
            event.status, (int)type);
    T_CHECK(event.type == type);
    return event;
}

static inline struct rd_conn *t_connect(struct rd_ep *ep, const char *address)
{
    struct rd_conn *c = NULL;
    T_CHECK(rd_connect(ep, address, "hello", 5, t_now() + 5000 * T_MS, &c) == 0);
    return c;
}

static inline struct rd_conn *t_connect_up(struct rd_ep *ep, const char *address)
{
    struct rd_conn *c = t_connect(ep, address);
    struct rd_event event = t_expect(ep, RD_EV_UP);
    T_CHECK(event.conn == c && event.size == 7 && memcmp(event.data, "welcome", 7) == 0);
    return c;
}

/* Both ends in one thread. *ret_passive may be NULL. */
static inline struct rd_conn *t_pair(struct t_side *node, struct t_side *peer, const char *address,
    struct rd_conn **ret_passive)
{
    struct rd_conn *c = t_connect(peer->ep, address);
    struct rd_event event = t_expect(node->ep, RD_EV_CONNECT);
    T_CHECK(event.size == 5 && memcmp(event.data, "hello", 5) == 0);
    T_CHECK(rd_accept(event.conn, &node->extent, 1, node->ring, "welcome", 7) == 0);
    event = t_expect(peer->ep, RD_EV_UP);
    T_CHECK(event.conn == c && event.size == 7 && memcmp(event.data, "welcome", 7) == 0);
    event = t_expect(node->ep, RD_EV_UP);
    if (ret_passive != NULL)
        *ret_passive = event.conn;
    return c;
}

/* ---- processes ---- */

struct t_child {
    pid_t pid;
    int fd; /* command socket */
};

/* Fork before the parent has threads. The child runs `run` with its end of the socket, exits 0. */
static inline struct t_child t_spawn(void (*run)(int fd, void *arg), void *arg)
{
    int fds[2];
    T_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    struct t_child child = {.pid = fork(), .fd = fds[0]};
    T_CHECK(child.pid >= 0);
    if (child.pid == 0) {
        (void)close(fds[0]);
        run(fds[1], arg);
        _exit(0);
    }
    (void)close(fds[1]);
    return child;
}

static inline void t_put(int fd, int value)
{
    T_CHECK(write(fd, &value, sizeof(value)) == (ssize_t)sizeof(value));
}

static inline int t_get(int fd)
{
    int value = 0;
    ssize_t n;
    do {
        n = read(fd, &value, sizeof(value));
    } while (n < 0 && errno == EINTR);
    T_CHECK(n == (ssize_t)sizeof(value));
    return value;
}

static inline int t_ask(const struct t_child *child, int command)
{
    t_put(child->fd, command);
    return t_get(child->fd);
}

static inline void t_reap(struct t_child *child, int signal_expected)
{
    int status = 0;
    if (signal_expected != 0)
        T_CHECK(kill(child->pid, signal_expected) == 0);
    T_CHECK(waitpid(child->pid, &status, 0) == child->pid);
    if (signal_expected != 0)
        T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal_expected);
    else
        T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)close(child->fd);
}

static inline void t_stop(const struct t_child *child)
{
    int status = 0;
    T_CHECK(kill(child->pid, SIGSTOP) == 0);
    T_CHECK(waitpid(child->pid, &status, WUNTRACED) == child->pid && WIFSTOPPED(status));
}

/* ---- a node in a child: accepts everybody with the ring, echoes messages, obeys commands ---- */

enum t_command {
    T_QUIT = 1,
    T_FENCE,   /* the last connection that came up */
    T_REVOKE,  /* replies busy */
    T_REARM,   /* replies the error */
    T_SLEEP,   /* sleep until something comes; replies at once, and again when it woke up */
    T_DELETE,  /* the last connection */
};

struct t_node_arg {
    struct t_pool *pool;
    const char *address;
};

static inline bool t_node_command(struct t_side *side, struct rd_conn **last, int fd)
{
    bool busy = false;
    switch (t_get(fd)) {
    case T_QUIT:
        return false;
    case T_FENCE:
        T_CHECK(*last != NULL);
        t_put(fd, rd_fence(*last));
        break;
    case T_REVOKE:
        T_CHECK(rd_ring_revoke(side->ring, &busy) == 0);
        t_put(fd, busy);
        break;
    case T_REARM:
        t_put(fd, rd_ring_rearm(side->ring));
        break;
    case T_SLEEP:
        rd_ep_arm(side->ep);
        t_put(fd, 0);
        rd_ep_sleep(side->ep, t_now() + 8000 * T_MS);
        t_put(fd, 1);
        break;
    case T_DELETE:
        T_CHECK(*last != NULL);
        rd_conn_delete(*last);
        *last = NULL;
        t_put(fd, 0);
        break;
    default:
        T_CHECK(false);
    }
    return true;
}

static inline void t_node_event(
    struct t_side *side, struct rd_conn **last, const struct rd_event *event)
{
    int err;
    switch (event->type) {
    case RD_EV_CONNECT: /* the peer may be gone already */
        err = rd_accept(event->conn, &side->extent, 1, side->ring, "welcome", 7);
        T_CHECK(err == 0 || err == CAIRN_E_NODE_DOWN);
        break;
    case RD_EV_UP:
        *last = event->conn;
        break;
    case RD_EV_MESSAGE:
        T_CHECK(rd_send(event->conn, event->data, event->size) == 0);
        break;
    case RD_EV_DOWN:
        if (*last == event->conn)
            *last = NULL;
        rd_conn_delete(event->conn);
        break;
    default:
        T_CHECK(false);
    }
}

static inline void t_node_run(int fd, void *arg)
{
    const struct t_node_arg *a = arg;
    struct t_side side;
    struct rd_conn *last = NULL;
    t_open(&side, 8, 8);
    t_regions(&side, a->pool);
    T_CHECK(rd_listen(side.ep, a->address) == 0);
    t_put(fd, 0);
    for (bool running = true; running;) {
        struct rd_event event;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (rd_poll(side.ep, &event, 1) == 1)
            t_node_event(&side, &last, &event);
        else if (poll(&p, 1, 1) == 1)
            running = t_node_command(&side, &last, fd);
    }
    t_close(&side);
    t_check_live_zero();
}

static inline struct t_child t_spawn_node(struct t_pool *pool, const char *address)
{
    struct t_node_arg arg = {pool, address};
    struct t_child child = t_spawn(t_node_run, &arg);
    T_CHECK(t_get(child.fd) == 0);
    return child;
}

static inline void t_quit_node(struct t_child *child)
{
    t_put(child->fd, T_QUIT);
    t_reap(child, 0);
}

/* A fresh address per call, in the working directory's temporary place. */
static inline const char *t_address(char buf[RD_ADDRESS_SIZE_MAX])
{
    static int count;
    (void)snprintf(buf, RD_ADDRESS_SIZE_MAX, "/tmp/cairn-rd-%d-%d", (int)getpid(), count++);
    return buf;
}

/* ---- a node that listens and its peer, in this process ---- */

struct t_net {
    struct t_pool pool;
    struct t_side node, peer;
    struct rd_conn *c, *passive; /* since t_net_pair() */
    uint8_t *arena, *log;        /* the peer's memory for objects, and for the ring */
    struct cn_env env;           /* the peer's */
    char address[RD_ADDRESS_SIZE_MAX];
};

/* `config` of the peer's fabric, or NULL; net->env is to be set before. */
static inline void t_net_open(
    struct t_net *net, uint32_t connections, const struct rd_fabric_config *config)
{
    t_pool_open(&net->pool);
    t_open(&net->node, 4, 8);
    t_regions(&net->node, &net->pool);
    T_CHECK(rd_listen(net->node.ep, t_address(net->address)) == 0);
    t_open_with(&net->peer, connections, 8, config, &net->env);
    net->arena = rd_ep_memory(net->peer.ep);
    net->log = t_log_memory(net->peer.ep);
}

static inline void t_net_pair(struct t_net *net)
{
    net->c = t_pair(&net->node, &net->peer, net->address, &net->passive);
}

static inline int t_net_setup(void **state)
{
    struct t_net *net = calloc(1, sizeof(*net));
    net->env = *cn_env_system();
    t_net_open(net, 2, NULL);
    t_net_pair(net);
    *state = net;
    return 0;
}

static inline int t_net_teardown(void **state)
{
    struct t_net *net = *state;
    t_close(&net->peer);
    t_close(&net->node);
    t_pool_close(&net->pool);
    free(net);
    t_check_live_zero();
    return 0;
}

#endif
