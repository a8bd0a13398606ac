/* SPDX-License-Identifier: BSD-3-Clause */
/* ts_fake_fabric.c: see ts_fake_fabric.h. */
#include "tests/support/ts_fake_fabric.h"

static struct ts_fake *of_ep(const struct rd_ep *ep)
{
    return (struct ts_fake *)(void *)((uint8_t *)(uintptr_t)ep - offsetof(struct ts_fake, ep));
}

static struct ts_fake_conn *of_conn(struct rd_conn *conn)
{
    return (struct ts_fake_conn *)(void *)conn;
}

static void push(struct ts_fake *f, struct rd_event event)
{
    CAIRN_ASSERT(f->tail - f->head < TS_FAKE_EVENTS);
    f->event[f->tail++ % TS_FAKE_EVENTS] = event;
}

static void *keep(struct ts_fake *f, const void *data, uint32_t size)
{
    void *to = f->data[f->data_next++ % 64];

    CAIRN_ASSERT(size <= sizeof(f->data[0]));
    memcpy(to, data, size);
    return to;
}

/* ---- time and randomness ---- */

static uint64_t now_ns(void *arg)
{
    struct ts_fake *f = arg;

    return f->now_ns += 100;
}
static uint64_t wall_s(void *arg)
{
    (void)arg;
    return 1000000;
}
static void random_bytes(void *arg, void *buf, size_t size)
{
    struct ts_fake *f = arg;

    for (size_t i = 0; i < size; i++)
        ((uint8_t *)buf)[i] = (uint8_t)cn_mix64(++f->seed);
}
static void count_step(void *arg, enum cn_step step)
{
    struct ts_fake *f = arg;

    f->step_count[step]++;
}

/* ---- operations ---- */

/* 0: go on. */
static int note(
    struct ts_fake_conn *c, enum ts_fake_op op, uint64_t remote, uint64_t value, uint32_t size)
{
    struct ts_fake *f = c->fake;
    struct ts_fake_post post = {op, c->node, remote, value, size};

    if (c->down != 0)
        return c->down;
    if (op != TS_FAKE_SEND && !cn_range_inside(remote, size, 0, f->node[c->node - 1].size))
        return cn_fail(CAIRN_E_FABRIC, "remote offset %llu is outside", (unsigned long long)remote);
    int rc = f->on_post == NULL ? 0 : f->on_post(f, &post);
    if (rc != 0)
        return rc;
    CAIRN_ASSERT(f->post_count < TS_FAKE_LOG);
    f->post[f->post_count++] = post;
    return c->down;
}

/* For the ring (its records and its header page) local memory is at the arena's end, for all else
 * before it. No assertion: where a ring is, a node that lies decides. */
static int check_local(
    const struct ts_fake_conn *c, uint64_t remote, const void *local, uint64_t size)
{
    const struct ts_fake *f = c->fake;
    const struct rd_welcome_wire *w = &f->node[c->node - 1].welcome;
    uint64_t ring_off = le64_get(w->ring_off), ring_size = le64_get(w->ring_size);
    bool ring = remote >= ring_off && remote - ring_off < RD_RING_HEADER_SIZE + ring_size;
    uint64_t object_size = f->arena_size - f->log_size;

    CAIRN_ASSERT(cn_range_inside((uintptr_t)local, size, (uintptr_t)f->arena, f->arena_size));
    if (cn_range_inside((uintptr_t)local, size, (uintptr_t)f->arena + (ring ? object_size : 0),
            ring ? f->log_size : object_size))
        return 0;
    return cn_fail(CAIRN_E_FABRIC, "offset %llu: %s memory for %s", (unsigned long long)remote,
        ring ? "object" : "ring", ring ? "a ring" : "an object");
}

static void complete(struct ts_fake_conn *c, uint64_t wr_id, unsigned flags)
{
    if ((flags & RD_SIGNALED) && !c->fake->node[c->node - 1].silent)
        push(c->fake, (struct rd_event){.type = RD_EV_COMPLETION, .conn = &c->rd, .wr_id = wr_id});
}

static int do_read(struct rd_conn *conn, uint64_t wr_id, uint64_t remote, void *local,
    uint32_t size, unsigned flags)
{
    struct ts_fake_conn *c = of_conn(conn);
    int rc = note(c, TS_FAKE_READ, remote, 0, size);

    if (rc == 0)
        rc = check_local(c, remote, local, size);
    if (rc != 0)
        return rc;
    memcpy(local, c->fake->node[c->node - 1].memory + remote, size);
    c->fake->counters.reads++;
    complete(c, wr_id, flags);
    return 0;
}

static int do_cas(struct rd_conn *conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct ts_fake_conn *c = of_conn(conn);
    int rc = note(c, TS_FAKE_CAS, remote, desired, 8);
    uint64_t *word = (uint64_t *)(void *)(c->fake->node[c->node - 1].memory + remote);

    if (rc == 0)
        rc = check_local(c, remote, local_old, 8);
    if (rc != 0)
        return rc;
    *local_old = le64toh(*word);
    if (*local_old == expected)
        *word = htole64(desired);
    c->fake->counters.cas++;
    complete(c, wr_id, flags);
    return 0;
}

static int do_write(struct rd_conn *conn, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags)
{
    struct ts_fake_conn *c = of_conn(conn);
    int rc = note(c, TS_FAKE_WRITE, remote, 0, size);

    if (rc == 0)
        rc = check_local(c, remote, local, size);
    if (rc != 0)
        return rc;
    memcpy(c->fake->node[c->node - 1].memory + remote, local, size);
    c->fake->counters.writes++;
    complete(c, wr_id, flags);
    return 0;
}

static int do_flush(
    struct rd_conn *conn, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    struct ts_fake_conn *c = of_conn(conn);
    int rc = note(c, TS_FAKE_FLUSH, remote, 0, size);

    if (rc != 0)
        return rc;
    c->fake->counters.flushes++;
    complete(c, wr_id, flags);
    return 0;
}

static int do_mark(
    struct rd_conn *conn, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    struct ts_fake_conn *c = of_conn(conn);
    int rc = note(c, TS_FAKE_MARK, remote, value, 8);
    struct le64 v = le64_make(value);

    if (rc != 0)
        return rc;
    memcpy(c->fake->node[c->node - 1].memory + remote, &v, 8);
    c->fake->counters.marks++;
    complete(c, wr_id, flags);
    return 0;
}

static int do_send(struct rd_conn *conn, const void *message, uint32_t size)
{
    struct ts_fake_conn *c = of_conn(conn);
    struct rd_message_wire head;
    int rc = note(c, TS_FAKE_SEND, 0, 0, size);

    if (rc != 0)
        return rc;
    memcpy(&head, message, sizeof(head));
    CAIRN_ASSERT(rd_wire_check(message, size) == 0);
    if (le16_get(head.type) == RD_MSG_CLOSE)
        ts_fake_reply(c->fake, c, &head, RD_MSG_CLOSE_REPLY, 0, NULL, 0);
    else if (c->fake->on_message != NULL && !c->fake->node[c->node - 1].silent)
        c->fake->on_message(c->fake, c, &head, (const uint8_t *)message + sizeof(head));
    return 0;
}

static void do_doorbell(struct rd_conn *conn)
{
    (void)conn;
}

/* ---- connections ---- */

static int do_connect(struct rd_ep *ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn)
{
    struct ts_fake *f = of_ep(ep);
    struct rd_hello_wire h;

    (void)address;
    (void)deadline_ns;
    CAIRN_ASSERT(size == sizeof(h));
    memcpy(&h, hello, sizeof(h));
    uint32_t at = 0;
    while (at < f->conn_count && f->conn[at].open)
        at++;
    CAIRN_ASSERT(at < CN_ARRAY_SIZE(f->conn));
    if (at == f->conn_count)
        f->conn_count++;
    struct ts_fake_conn *c = &f->conn[at];
    *c = (struct ts_fake_conn){
        .rd = {.ops = f->rd.ops, .ep = ep}, .fake = f, .node = le16_get(h.node), .open = true};
    struct ts_fake_node *n = &f->node[c->node - 1];
    n->connects++;
    *ret_conn = &c->rd;
    if (n->silent)
        return 0;
    if (n->refuse != 0) {
        struct rd_refusal_wire r;
        rd_wire_make_refusal(&r, n->refuse, "refused by the test");
        push(f,
            (struct rd_event){.type = RD_EV_DOWN,
                .conn = &c->rd,
                .status = CAIRN_E_FABRIC,
                .data = keep(f, &r, sizeof(r)),
                .size = sizeof(r)});
        return 0;
    }
    if (n->fail != 0) {
        push(f,
            (struct rd_event){
                .type = RD_EV_DOWN, .conn = &c->rd, .status = n->fail, .text = n->fail_text});
        return 0;
    }
    c->rd.durability = n->ring_durability != 0 ? n->ring_durability
                                               : (enum rd_durability)n->welcome.durability;
    c->rd.cas_orders_reads = f->cas_orders_reads;
    n->welcome.slot_epoch = le64_make(le64_get(n->welcome.slot_epoch) + 1);
    push(f,
        (struct rd_event){.type = RD_EV_UP,
            .conn = &c->rd,
            .data = keep(f, &n->welcome, sizeof(n->welcome)),
            .size = sizeof(n->welcome)});
    return 0;
}

static void do_conn_delete(struct rd_conn *conn)
{
    struct ts_fake_conn *c = of_conn(conn);
    struct ts_fake *f = c->fake;
    uint32_t to = f->head;

    c->open = false;
    for (uint32_t i = f->head; i != f->tail; i++) { /* no event of it afterwards */
        if (f->event[i % TS_FAKE_EVENTS].conn != conn)
            f->event[to++ % TS_FAKE_EVENTS] = f->event[i % TS_FAKE_EVENTS];
    }
    f->tail = to;
}

/* ---- endpoint ---- */

static int do_ep_open(
    struct rd_fabric *fabric, const struct rd_ep_config *config, struct rd_ep **ret)
{
    struct ts_fake *f = (struct ts_fake *)(void *)fabric;

    CAIRN_ASSERT(config->memory_size % 64 == 0 && config->log_memory_size % 64 == 0);
    CAIRN_ASSERT(config->log_memory_size <= config->memory_size);
    f->arena_size = config->memory_size;
    f->log_size = config->log_memory_size;
    f->arena = aligned_alloc(64, config->memory_size);
    CAIRN_ASSERT(f->arena != NULL);
    memset(f->arena, 0, config->memory_size);
    f->ep.ops = fabric->ops;
    *ret = &f->ep;
    return 0;
}
static void do_ep_close(struct rd_ep *ep)
{
    free(of_ep(ep)->arena);
    of_ep(ep)->arena = NULL;
}
static void *do_ep_memory(struct rd_ep *ep)
{
    return of_ep(ep)->arena;
}
static void do_ep_counters(const struct rd_ep *ep, struct rd_counters *ret)
{
    *ret = of_ep(ep)->counters;
}
static uint32_t do_poll(struct rd_ep *ep, struct rd_event *events, uint32_t max)
{
    struct ts_fake *f = of_ep(ep);
    uint32_t n = 0;

    f->polls++;
    while (n < max && f->head != f->tail)
        events[n++] = f->event[f->head++ % TS_FAKE_EVENTS];
    return n;
}
static void do_arm(struct rd_ep *ep)
{
    (void)ep;
}
static void do_sleep(struct rd_ep *ep, uint64_t deadline_ns)
{
    struct ts_fake *f = of_ep(ep);

    f->sleeps++;
    if (f->head == f->tail && deadline_ns > f->now_ns)
        f->now_ns = deadline_ns;
}
static void do_wake(struct rd_ep *ep)
{
    (void)ep;
}
static int do_fd(struct rd_ep *ep)
{
    (void)ep;
    return cn_fail(CAIRN_E_FABRIC, "no descriptor");
}
static void do_fabric_delete(struct rd_fabric *fabric)
{
    (void)fabric;
}

static const struct rd_ops ops = {
    .name = "fake",
    .fabric_delete = do_fabric_delete,
    .ep_open = do_ep_open,
    .ep_close = do_ep_close,
    .ep_memory = do_ep_memory,
    .ep_counters = do_ep_counters,
    .poll = do_poll,
    .ep_arm = do_arm,
    .ep_sleep = do_sleep,
    .ep_wake = do_wake,
    .ep_fd = do_fd,
    .connect = do_connect,
    .conn_delete = do_conn_delete,
    .read = do_read,
    .cas = do_cas,
    .write = do_write,
    .flush = do_flush,
    .mark = do_mark,
    .send = do_send,
    .doorbell = do_doorbell,
};

/* ---- the test's side ---- */

void ts_fake_open(struct ts_fake *f, uint32_t nodes, uint64_t size)
{
    memset(f, 0, sizeof(*f));
    f->rd.ops = &ops;
    f->now_ns = 1000000000;
    f->env = (struct cn_env){.arg = f,
        .now_ns = now_ns,
        .wall_s = wall_s,
        .random = random_bytes,
        .step = count_step};
    for (uint32_t i = 0; i < nodes; i++) {
        struct ts_fake_node *n = &f->node[i];
        n->size = size;
        n->memory = calloc(1, size);
        CAIRN_ASSERT(n->memory != NULL);
        n->welcome = (struct rd_welcome_wire){.magic = le32_make(RD_WIRE_MAGIC),
            .version = le16_make(RD_WIRE_VERSION),
            .node = le16_make((uint16_t)(i + 1)),
            .incarnation = le64_make(7),
            .slot_epoch = le64_make(1),
            .nonce = le64_make(0x1234567 + i),
            .ring_off = le64_make(4096),
            .ring_size = le64_make(16384),
            .position_off = le64_make(4096 + 64),
            .pool_size = le64_make(size),
            .extent_off = le64_make(65536),
            .extent_end = le64_make(size),
            .window = le32_make(8),
            .slot = le16_make(3),
            .tag = le16_make(8),
            .view = le32_make(1),
            .lease_ms = le32_make(1000),
            .chunk_shift = 14,
            .durability = RD_DURABILITY_EMULATED,
            .bytes_max = le32_make(8192)};
        memset(n->welcome.pool.b, (int)i + 1, sizeof(n->welcome.pool.b));
    }
}

void ts_fake_close(struct ts_fake *f)
{
    for (uint32_t i = 0; i < f->conn_count; i++)
        CAIRN_ASSERT(!f->conn[i].open); /* every connection was deleted */
    for (uint32_t i = 0; i < TS_FAKE_NODES; i++)
        free(f->node[i].memory);
}

void ts_fake_reply(struct ts_fake *f, struct ts_fake_conn *c, const struct rd_message_wire *request,
    uint16_t type, int status, const void *body, uint32_t size)
{
    uint8_t bytes[512];
    struct rd_message_wire head = {.magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(type),
        .size = le16_make((uint16_t)size),
        .id = request->id,
        .status = le32_make((uint32_t)-status)};

    memcpy(bytes, &head, sizeof(head));
    if (size != 0)
        memcpy(bytes + sizeof(head), body, size);
    push(f,
        (struct rd_event){.type = RD_EV_MESSAGE,
            .conn = &c->rd,
            .data = keep(f, bytes, (uint32_t)sizeof(head) + size),
            .size = (uint32_t)sizeof(head) + size});
}

void ts_fake_send(struct ts_fake *f, struct ts_fake_conn *c, uint16_t type, uint32_t id)
{
    struct rd_message_wire request = {.id = le32_make(id)};

    ts_fake_reply(f, c, &request, type, 0, NULL, 0);
}

struct ts_fake_conn *ts_fake_conn(struct ts_fake *f, uint16_t node)
{
    for (uint32_t i = 0; i < f->conn_count; i++) {
        if (f->conn[i].open && f->conn[i].node == node)
            return &f->conn[i];
    }
    return NULL;
}

void ts_fake_down(struct ts_fake *f, uint16_t node, int status)
{
    ts_fake_down_text(f, node, status, NULL);
}

void ts_fake_down_text(struct ts_fake *f, uint16_t node, int status, const char *text)
{
    struct ts_fake_conn *c = ts_fake_conn(f, node);

    CAIRN_ASSERT(c != NULL);
    c->down = status;
    for (uint32_t i = f->head; i != f->tail; i++) {
        struct rd_event *e = &f->event[i % TS_FAKE_EVENTS];
        if (e->conn == &c->rd && e->type == RD_EV_COMPLETION)
            e->status = status;
    }
    push(f,
        (struct rd_event){.type = RD_EV_DOWN, .conn = &c->rd, .status = status, .text = text});
}

uint32_t ts_fake_count(const struct ts_fake *f, enum ts_fake_op op)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->post_count; i++)
        n += f->post[i].op == op;
    return n;
}
