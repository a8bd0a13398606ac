/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_nic_test.h: what the tests of the `rpma` back end share: sides over the device that owns
 * CAIRN_TEST_ADDRESS, polled together in one thread, each with an inbox of copied events.
 * Header-only. Include after cmocka.h. Without that address there is no device: a program of such
 * tests alone says so with exit code 77, a single case with skip().
 */
#ifndef RD_NIC_TEST_H
#define RD_NIC_TEST_H

#include "tests/support/rd_test.h"

#define N_SIDES 4
#define N_INBOX 512u
#define N_LOG_MEMORY UINT64_C(0x10000)
#define N_MEMORY UINT64_C(0x40000)

struct n_seen {
    struct rd_event event; /* data and text point below */
    uint8_t data[RD_MESSAGE_SIZE_MAX];
    char text[256];
};

struct n_side {
    struct t_side t;
    struct n_seen *inbox;
    uint64_t head, tail;
    uint8_t *memory, *log; /* arena, and its part for rings */
};

static struct n_side *n_open_sides[N_SIDES];

/* Set-up of a case: one that failed left its sides behind. */
static inline int n_reset(void **state)
{
    (void)state;
    memset(n_open_sides, 0, sizeof(n_open_sides));
    return 0;
}

static inline bool n_have_device(void)
{
    const char *address = getenv("CAIRN_TEST_ADDRESS"), *fabric = getenv("CAIRN_TEST_FABRIC");
    return address != NULL && address[0] != 0 && fabric != NULL && strcmp(fabric, "rpma") == 0;
}

/* A fresh address per call: the port and the next. */
static inline const char *n_address(char buf[RD_ADDRESS_SIZE_MAX])
{
    static int count;
    (void)snprintf(buf, RD_ADDRESS_SIZE_MAX, "%s:%d", getenv("CAIRN_TEST_ADDRESS"),
        20000 + 2 * count++);
    return buf;
}

static inline void n_open(struct n_side *side, const struct rd_fabric_config *config,
    const char *address, uint32_t connections, uint32_t outstanding)
{
    memset(side, 0, sizeof(*side));
    cn_env_system_log_level(CN_LOG_ERROR);
    T_CHECK(rd_fabric_open("rpma", config, &side->t.fabric) == 0);
    const struct rd_ep_config ep = {.env = cn_env_system(),
        .connections_max = connections,
        .outstanding_max = outstanding,
        .memory_size = N_MEMORY,
        .log_memory_size = N_LOG_MEMORY,
        .name = address != NULL ? "node" : "peer",
        .address = address};
    T_CHECK(rd_ep_open(side->t.fabric, &ep, &side->t.ep) == 0);
    side->memory = rd_ep_memory(side->t.ep);
    side->log = side->memory + (N_MEMORY - N_LOG_MEMORY);
    side->inbox = calloc(N_INBOX, sizeof(*side->inbox));
    T_CHECK(side->inbox != NULL);
    int i = 0;
    while (n_open_sides[i] != NULL)
        i++;
    T_CHECK(i < N_SIDES);
    n_open_sides[i] = side;
}

static inline void n_close(struct n_side *side)
{
    for (int i = 0; i < N_SIDES; i++) {
        if (n_open_sides[i] == side)
            n_open_sides[i] = NULL;
    }
    t_close(&side->t);
    free(side->inbox);
}

/* The ring and the extent of a pool. */
static inline void n_regions(
    struct n_side *side, const struct t_pool *pool, enum rd_durability durability)
{
    const struct rd_memory extent = {
        pool->base + T_EXTENT_OFF, T_EXTENT_OFF, T_EXTENT_SIZE, pool->fd, 0};
    const struct rd_memory ring = {
        pool->base + T_RING_OFF, T_RING_OFF, T_RING_SIZE, pool->fd, durability};
    T_CHECK(rd_region_new(side->t.ep, &extent, RD_ACCESS_READ | RD_ACCESS_ATOMIC,
                &side->t.extent) == 0);
    T_CHECK(
        rd_region_new(side->t.ep, &ring, RD_ACCESS_READ | RD_ACCESS_WRITE, &side->t.ring) == 0);
}

static inline uint32_t n_poll(struct n_side *side)
{
    struct rd_event events[8];
    uint32_t n = rd_poll(side->t.ep, events, 8);
    for (uint32_t i = 0; i < n; i++) {
        struct n_seen *seen = &side->inbox[side->head++ % N_INBOX];
        T_CHECK(side->head - side->tail <= N_INBOX);
        seen->event = events[i];
        if (events[i].data != NULL)
            memcpy(seen->data, events[i].data, events[i].size);
        (void)snprintf(
            seen->text, sizeof(seen->text), "%s", events[i].text != NULL ? events[i].text : "");
        seen->event.data = events[i].data != NULL ? seen->data : NULL;
        seen->event.text = seen->text;
    }
    return n;
}

static inline void n_pump(void)
{
    for (int i = 0; i < N_SIDES; i++) {
        if (n_open_sides[i] != NULL)
            (void)n_poll(n_open_sides[i]);
    }
}

static inline void n_pump_for(uint64_t ms)
{
    for (uint64_t end = t_now() + ms * T_MS; t_now() < end;)
        n_pump();
}

/* NULL: nothing came within `ms`. Valid until the inbox has gone round. */
static inline const struct n_seen *n_next(struct n_side *side, uint64_t ms)
{
    uint64_t end = t_now() + ms * T_MS;
    while (side->head == side->tail) {
        if (t_now() >= end)
            return NULL;
        n_pump();
    }
    return &side->inbox[side->tail++ % N_INBOX];
}

static inline const char *n_type_name(enum rd_event_type type)
{
    static const char *const names[] = {"completion", "message", "connect", "up", "down"};
    return (unsigned)type < 5 ? names[type] : "?";
}

static inline const struct n_seen *n_expect_at(
    struct n_side *side, enum rd_event_type type, const char *file, int line)
{
    const struct n_seen *seen = n_next(side, 10000);
    if (seen == NULL) {
        (void)fprintf(stderr, "nothing came where %s is due\n", n_type_name(type));
        t_fail(file, line, "n_expect");
        return NULL;
    }
    if (seen->event.type != type) {
        (void)fprintf(stderr, "%s with status %d (%s) where %s is due\n",
            n_type_name(seen->event.type), seen->event.status, seen->text, n_type_name(type));
        t_fail(file, line, "n_expect");
    }
    return seen;
}
#define n_expect(side, type) n_expect_at((side), (type), __FILE__, __LINE__)

/* The completion of that operation: its status. */
static inline int n_status_at(struct n_side *side, uint64_t wr_id, const char *file, int line)
{
    const struct n_seen *seen = n_expect_at(side, RD_EV_COMPLETION, file, line);
    if (seen->event.wr_id != wr_id) {
        (void)fprintf(stderr, "completion %llu where %llu is due\n",
            (unsigned long long)seen->event.wr_id, (unsigned long long)wr_id);
        t_fail(file, line, "n_status");
    }
    return seen->event.status;
}
#define n_status(side, wr_id) n_status_at((side), (wr_id), __FILE__, __LINE__)

static inline struct rd_conn *n_connect(struct n_side *side, const char *address, uint64_t ms)
{
    struct rd_conn *c = NULL;
    T_CHECK(rd_connect(side->t.ep, address, "hello", 5, t_now() + ms * T_MS, &c) == 0);
    return c;
}

/* Connect, accept with everything the node has, both up. */
static inline struct rd_conn *n_pair(
    struct n_side *node, struct n_side *peer, const char *address, struct rd_conn **ret_passive)
{
    struct rd_conn *c = n_connect(peer, address, 8000);
    const struct n_seen *seen = n_expect(node, RD_EV_CONNECT);
    struct rd_conn *passive = seen->event.conn;
    T_CHECK(seen->event.size == 5 && memcmp(seen->data, "hello", 5) == 0);
    T_CHECK(rd_accept(passive, &node->t.extent, node->t.extent != NULL ? 1 : 0, node->t.ring,
                "welcome", 7) == 0);
    seen = n_expect(peer, RD_EV_UP);
    T_CHECK(seen->event.conn == c && seen->event.size == 7);
    T_CHECK(memcmp(seen->data, "welcome", 7) == 0);
    seen = n_expect(node, RD_EV_UP);
    T_CHECK(seen->event.conn == passive && seen->event.size == 0);
    if (ret_passive != NULL)
        *ret_passive = passive;
    return c;
}

/* A node with a pool, listening, and a connected peer. */
struct n_cluster {
    struct t_pool pool;
    struct n_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    struct rd_conn *c, *passive;
};

static inline void n_cluster_open_with(
    struct n_cluster *n, const struct rd_fabric_config *config, enum rd_durability durability)
{
    t_pool_open(&n->pool);
    n_open(&n->node, config, n_address(n->address), 8, 64);
    n_regions(&n->node, &n->pool, durability);
    T_CHECK(rd_listen(n->node.t.ep, n->address) == 0);
    n_open(&n->peer, config, NULL, 4, 64);
    n->c = n_pair(&n->node, &n->peer, n->address, &n->passive);
}

static inline void n_cluster_open(struct n_cluster *n)
{
    n_cluster_open_with(n, NULL, RD_DURABILITY_APM);
}

static inline void n_cluster_close(struct n_cluster *n)
{
    n_close(&n->peer);
    n_close(&n->node);
    t_pool_close(&n->pool);
    t_check_live_zero();
}

#endif
