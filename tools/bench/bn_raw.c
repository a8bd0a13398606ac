/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_raw.c: one-sided operations without transactions: what the fabric itself costs. An endpoint of
 * its own, connected to each node as a coordinator is, that waits as a context does (txn_wait()).
 *
 * It does the nodes no harm: it locks nothing (its compare-and-swaps put back what was there) and
 * logs nothing (zero bytes in its own ring are no record). It takes one slot of each node.
 */
#include "tools/bench/bn.h"

#include <errno.h>

#include "pmem/pm_object.h"
#include "rdma/rd_wire.h"

#define OUTSTANDING_MAX 64u
#define EVENTS_MAX 32u
#define OBJECT_ROOM 4096u      /* per node: bytes read, and in its last line the CAS's old value */
#define LOG_ROOM (64u * 1024u) /* per node */
#define CONNECT_NS UINT64_C(5000000000)
#define WAIT_NS UINT64_C(10000000000)
#define CLOSE_NS UINT64_C(1000000000)

struct target {
    struct bn_raw *raw;
    struct rd_conn *conn;
    uint16_t id, tag;
    bool up, closed;
    uint64_t ring_off, ring_size; /* of the log in it */
    uint64_t at;                  /* next place in it */
    uint8_t *object, *log;        /* arena */
};

struct bn_raw {
    const struct txn_config *config;
    struct rd_fabric *fabric;
    struct rd_ep *ep;
    uint32_t nodes, outstanding;
    int status; /* first failure since the last wait */
    struct target target[TL_NODES_MAX];
};

static uint64_t now_ns(void)
{
    return cn_now_ns(cn_env_system());
}

/* ---- events ---- */

static void note(struct bn_raw *raw, int status)
{
    if (raw->status == 0)
        raw->status = status;
}

static void take_welcome(struct target *t, const struct rd_event *event)
{
    struct rd_welcome_wire w;
    int rc = rd_wire_check_welcome(event->data, event->size, t->id, true);

    if (rc != 0) {
        note(t->raw, rc);
        return;
    }
    memcpy(&w, event->data, sizeof(w));
    t->tag = le16_get(w.tag);
    t->ring_off = le64_get(w.ring_off) + RD_RING_HEADER_SIZE;
    t->ring_size = le64_get(w.ring_size);
    t->up = true;
}

static void take_down(struct target *t, const struct rd_event *event)
{
    int rc = event->status != 0 ? event->status : CAIRN_E_NODE_DOWN;

    t->up = false;
    t->closed = true;
    if (event->size == sizeof(struct rd_refusal_wire))
        rc = rd_wire_refusal(event->data, event->size);
    else
        rc = cn_fail(rc, "node %u: %s", t->id,
            event->text != NULL ? event->text : "the connection is lost");
    note(t->raw, rc);
}

static void take_message(struct target *t, const struct rd_event *event)
{
    struct rd_message_wire m;

    if (rd_wire_check(event->data, event->size) != 0)
        return;
    memcpy(&m, event->data, sizeof(m));
    if (le16_get(m.type) == RD_MSG_CLOSE_REPLY)
        t->closed = true;
    if (le16_get(m.type) != RD_MSG_PING)
        return;
    m.type = le16_make(RD_MSG_PONG);
    (void)!rd_send(t->conn, &m, sizeof(m)); /* a full queue: the node asks again */
}

static bool poll_once(struct bn_raw *raw)
{
    struct rd_event events[EVENTS_MAX];
    uint32_t count = rd_poll(raw->ep, events, EVENTS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        struct target *t = events[i].conn == NULL ? NULL : events[i].conn->user;
        if (t == NULL)
            continue;
        switch (events[i].type) {
        case RD_EV_COMPLETION:
            raw->outstanding--;
            if (events[i].status != 0)
                note(raw, events[i].status);
            break;
        case RD_EV_UP: take_welcome(t, &events[i]); break;
        case RD_EV_DOWN: take_down(t, &events[i]); break;
        case RD_EV_MESSAGE: take_message(t, &events[i]); break;
        case RD_EV_CONNECT: break;
        }
    }
    return count != 0;
}

static void sleep_until(struct bn_raw *raw, uint64_t deadline)
{
    rd_ep_arm(raw->ep);
    if (!poll_once(raw))
        rd_ep_sleep(raw->ep, deadline);
}

/* Until everything is completed: polls and sleeps as the configuration says of contexts. */
static int wait_all(struct bn_raw *raw)
{
    const struct cn_pace *pace = &raw->config->pace;
    uint64_t deadline = now_ns() + WAIT_NS;
    uint32_t idle = 0;

    while (raw->outstanding != 0 && raw->status == 0) {
        if (poll_once(raw)) {
            idle = 0;
        } else if (!cn_pace_may_sleep(
                       pace, raw->outstanding, OUTSTANDING_MAX, ++idle > pace->spins)) {
            __builtin_ia32_pause();
        } else {
            idle = 0;
            sleep_until(raw, deadline);
        }
        if (idle % 64 == 0 && raw->outstanding != 0 && now_ns() >= deadline)
            return cn_fail(CAIRN_E_TIMEOUT, "a raw operation is not completed within %u s",
                (unsigned)(WAIT_NS / 1000000000));
    }
    int rc = raw->status;
    raw->status = 0;
    return rc;
}

/* ---- operations ---- */

static int posted(struct bn_raw *raw, int rc)
{
    if (rc == 0)
        raw->outstanding++;
    return rc;
}

int bn_raw_read(struct bn_raw *raw, uint32_t node, const struct bn_word *word, uint32_t size)
{
    struct target *t = &raw->target[node];
    int rc = posted(raw, rd_read(t->conn, 0, word->off, t->object, size, RD_SIGNALED));

    return rc == 0 ? wait_all(raw) : rc;
}

static uint64_t *old_of(struct target *t)
{
    return (uint64_t *)(void *)(t->object + OBJECT_ROOM - RD_CACHE_LINE);
}

static int post_cas(
    struct bn_raw *raw, struct target *t, const struct bn_word *word, unsigned flags)
{
    return posted(raw,
        rd_cas(t->conn, 0, word->off, word->word, word->word, old_of(t), RD_SIGNALED | flags));
}

static int check_cas(struct target *t, const struct bn_word *word)
{
    if (*old_of(t) == word->word)
        return 0;
    return cn_fail(CAIRN_E_CONFLICT, "node %u: the word at %#llx is no longer %#llx", t->id,
        (unsigned long long)word->off, (unsigned long long)word->word);
}

int bn_raw_cas(struct bn_raw *raw, uint32_t node, const struct bn_word *word)
{
    struct target *t = &raw->target[node];
    int rc = post_cas(raw, t, word, 0);

    if (rc == 0)
        rc = wait_all(raw);
    return rc == 0 ? check_cas(t, word) : rc;
}

int bn_raw_lock_read(struct bn_raw *raw, uint32_t count, const struct bn_word *words)
{
    int rc = 0;

    for (uint32_t i = 0; i < count && rc == 0; i++) {
        struct target *t = &raw->target[i];
        rc = post_cas(raw, t, &words[i], RD_MORE);
        if (rc == 0)
            rc = posted(raw,
                rd_read(t->conn, 0, words[i].off, t->object, words[i].size, RD_SIGNALED));
    }
    if (rc == 0)
        rc = wait_all(raw);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = check_cas(&raw->target[i], &words[i]);
    return rc;
}

int bn_raw_lock_read_read(struct bn_raw *raw, uint32_t node, const struct bn_word *word,
    const struct bn_word *other)
{
    struct target *t = &raw->target[node];
    int rc = post_cas(raw, t, word, RD_MORE);

    if (rc == 0)
        rc = posted(raw,
            rd_read(t->conn, 0, word->off, t->object, word->size, RD_SIGNALED | RD_MORE));
    if (rc == 0)
        rc = posted(raw,
            rd_read(t->conn, 0, other->off, t->object + OBJECT_ROOM / 2, other->size, RD_SIGNALED));
    if (rc == 0)
        rc = wait_all(raw);
    return rc == 0 ? check_cas(t, word) : rc;
}

int bn_raw_flush(struct bn_raw *raw, uint32_t count, uint32_t size)
{
    int rc = 0;

    CAIRN_ASSERT(size <= LOG_ROOM);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        struct target *t = &raw->target[i];
        if (t->at + size > t->ring_size)
            t->at = 0;
        uint64_t remote = t->ring_off + t->at;
        t->at = cn_align_up(t->at + size, RD_CACHE_LINE);
        rc = rd_write(t->conn, 0, remote, t->log, size, RD_MORE);
        if (rc == 0)
            rc = posted(raw, rd_flush(t->conn, 0, remote, size, RD_SIGNALED));
    }
    return rc == 0 ? wait_all(raw) : rc;
}

int bn_raw_await_free(struct bn_raw *raw, uint32_t node, const struct bn_word *word)
{
    struct target *t = &raw->target[node];
    uint64_t deadline = now_ns() + WAIT_NS, seen;

    do {
        int rc = bn_raw_read(raw, node, word, sizeof(seen));
        if (rc != 0)
            return rc;
        memcpy(&seen, t->object, sizeof(seen));
        if (!pm_word_is_locked(le64toh(seen), t->tag))
            return 0;
    } while (now_ns() < deadline);
    return cn_fail(CAIRN_E_TIMEOUT, "node %u: the word at %#llx stays locked: does it not apply?",
        t->id, (unsigned long long)word->off);
}

enum rd_durability bn_raw_durability(const struct bn_raw *raw, uint32_t node)
{
    const struct rd_conn *conn = raw->target[node].conn;
    return conn->durability == 0 ? RD_DURABILITY_EMULATED : conn->durability;
}

/* ---- open, close ---- */

static int connect_target(struct target *t, const char *address)
{
    struct bn_raw *raw = t->raw;
    uint64_t deadline = now_ns() + CONNECT_NS;
    struct rd_hello_wire hello = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make(RD_ROLE_COORDINATOR),
        .cluster = raw->config->cluster,
        .view = le32_make(raw->config->view),
        .node = le16_make(t->id),
    };

    cn_random(cn_env_system(), hello.peer.b, sizeof(hello.peer.b));
    int rc = rd_connect(raw->ep, address, &hello, sizeof(hello), deadline, &t->conn);
    if (rc != 0) {
        t->conn = NULL;
        return rc;
    }
    t->conn->user = t;
    while (!t->up && raw->status == 0 && now_ns() < deadline)
        sleep_until(raw, deadline);
    if (!t->up && raw->status == 0)
        return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): no answer", t->id, address);
    return raw->status;
}

static int open_endpoint(struct bn_raw *raw)
{
    const struct rd_ep_config config = {
        .env = cn_env_system(),
        .connections_max = raw->nodes + 2, /* as a context's */
        .outstanding_max = OUTSTANDING_MAX,
        .memory_size = (uint64_t)raw->nodes * (OBJECT_ROOM + LOG_ROOM),
        .log_memory_size = (uint64_t)raw->nodes * LOG_ROOM,
        .name = "bench",
    };
    int rc = rd_fabric_open(raw->config->fabric, &raw->config->fabric_config, &raw->fabric);

    return rc == 0 ? rd_ep_open(raw->fabric, &config, &raw->ep) : rc;
}

int bn_raw_open(const struct txn_config *config, uint32_t nodes, struct bn_raw **ret_raw)
{
    struct bn_raw *raw = calloc(1, sizeof(*raw));

    if (raw == NULL)
        return cn_fail(-ENOMEM, "no memory for the raw operations");
    raw->config = config;
    raw->nodes = nodes;
    int rc = open_endpoint(raw);
    for (uint32_t i = 0; i < nodes && rc == 0; i++) {
        struct target *t = &raw->target[i];
        uint8_t *memory = rd_ep_memory(raw->ep);
        t->raw = raw;
        t->id = config->node[i].id;
        t->object = memory + (size_t)i * OBJECT_ROOM;
        t->log = memory + (size_t)nodes * OBJECT_ROOM + (size_t)i * LOG_ROOM;
        rc = connect_target(t, config->node[i].address);
    }
    if (rc != 0) {
        bn_raw_close(&raw);
        return cn_fail_context(rc, "raw operations: ");
    }
    *ret_raw = raw;
    return 0;
}

/* Say goodbye, so that the slots are free again at once. */
static void say_goodbye(struct bn_raw *raw)
{
    const struct rd_message_wire bye = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(RD_MSG_CLOSE),
        .id = le32_make(1),
    };
    uint64_t deadline = now_ns() + CLOSE_NS;

    for (uint32_t i = 0; i < raw->nodes; i++) {
        struct target *t = &raw->target[i];
        if (!t->up || rd_send(t->conn, &bye, sizeof(bye)) != 0)
            t->closed = true;
    }
    for (uint32_t i = 0; i < raw->nodes; i++) {
        while (!raw->target[i].closed && now_ns() < deadline)
            sleep_until(raw, deadline);
    }
}

void bn_raw_close(struct bn_raw **raw_ptr)
{
    struct bn_raw *raw = *raw_ptr;

    if (raw == NULL)
        return;
    *raw_ptr = NULL;
    if (raw->ep != NULL) {
        say_goodbye(raw);
        for (uint32_t i = 0; i < raw->nodes; i++) {
            if (raw->target[i].conn != NULL)
                rd_conn_delete(raw->target[i].conn);
        }
        rd_ep_close(raw->ep);
    }
    if (raw->fabric != NULL)
        rd_fabric_delete(raw->fabric);
    free(raw);
}
