/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a node's service seen from outside: hand-out of slots, refusals, applying, closing, and
 * find-or-prevent between nodes, over the emulated fabric. Method: two nodes over pools in a
 * temporary folder are turned by hand in this thread; the test is the coordinator and writes
 * records itself (votes without writes: the store has tests of its own). Invariants: a transaction
 * whose records are at all participants commits, one that misses any aborts, on all nodes alike,
 * whichever computes the verdict; nothing is lost when nodes stop at any moment.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rdma/rd.h"
#include "rdma/rd_wire.h"
#include "recovery/rec_node.h"
#include "recovery/rec_offline.h"

#define NODES 2u
#define LIMIT_NS UINT64_C(30000000000)
#define MARK_OFF 24u
#define OBJECT_MEMORY 4096u
#define RING_MEMORY 65536u

struct fixture {
    char dir[64];
    struct txn_config config;
    struct rd_fabric *fabric;
    struct rec_node *node[NODES];
    struct rd_ep *ep; /* the coordinator's */
    uint8_t *objects, *memory; /* of the client: for objects, and for rings */
};

/* A coordinator's connection to one node. */
struct client {
    struct rd_conn *conn;
    struct rd_welcome_wire welcome;
    bool up, down;
    int status;
    uint32_t reply_type, reply_status;
    uint8_t reply[RD_MESSAGE_SIZE_MAX];
    uint64_t log_off, seq;
};

static uint64_t now(void) { return cn_now_ns(cn_env_system()); }

static uint64_t wall_skew_s; /* the nodes' wall clocks run ahead by this */

static uint64_t skewed_wall_s(void *arg)
{
    (void)arg;
    return cn_wall_s(cn_env_system()) + wall_skew_s;
}

static const struct cn_env *node_env(void)
{
    static struct cn_env env;
    env = *cn_env_system();
    env.wall_s = skewed_wall_s;
    return &env;
}

static void start_node(struct fixture *f, uint32_t i)
{
    struct rec_node_options options = {
        .config = &f->config,
        .node = f->config.node[i].id,
        .fabric = f->fabric,
        .env = node_env(),
    };
    assert_int_equal(pm_pool_open(f->config.node[i].pool, PM_OPEN_OWNER, 1000, options.env,
                         &options.pool),
        0);
    int error = rec_node_open(&options, &f->node[i]);
    if (error != 0)
        fail_msg("node %u: %s", i, cairn_last_error());
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct txn_config *c = &f->config;
    cn_env_system_log_level(CN_LOG_ERROR);
    wall_skew_s = 0;
    (void)snprintf(f->dir, sizeof(f->dir), "/dev/shm/cairn-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(rd_fabric_open("emu", NULL, &f->fabric), 0);
    (void)snprintf(c->path, sizeof(c->path), "%s/cluster.conf", f->dir);
    memset(c->cluster.b, 0x42, sizeof(c->cluster.b));
    (void)snprintf(c->fabric, sizeof(c->fabric), "emu");
    c->view = 1;
    c->node_count = NODES;
    c->table_count = 1;
    c->table[0].id = 1;
    (void)snprintf(c->table[0].name, sizeof(c->table[0].name), "t");
    c->geometry = (struct pm_geometry){
        .chunk_shift = 16, .slot_count = 6, .window = 16, .ring_size = 16384, .retired_max = 64,
        .depth0 = 2, .root_map_max = 64,
    };
    c->lease_ms = 200;
    c->resolve_ms = 50;
    c->verdict_s = 86400;
    assert_int_equal(pm_geometry_complete(&c->geometry), 0);
    for (uint32_t i = 0; i < NODES; i++) {
        c->node[i].id = (uint16_t)(i + 1);
        (void)snprintf(
            c->node[i].address, sizeof(c->node[i].address), "%s/n%u.sock", f->dir, i + 1);
        (void)snprintf(c->node[i].pool, sizeof(c->node[i].pool), "%s/n%u.pool", f->dir, i + 1);
        int error = pm_pool_create(c->node[i].pool, UINT64_C(16) << 20, &c->geometry, &c->cluster,
            c->node[i].id, cn_env_system());
        if (error != 0)
            fail_msg("%s", cairn_last_error());
        start_node(f, i);
    }
    struct rd_ep_config ep = {
        .env = cn_env_system(), .connections_max = 16, .outstanding_max = 64,
        .memory_size = OBJECT_MEMORY + RING_MEMORY, .log_memory_size = RING_MEMORY, .name = "test",
    };
    assert_int_equal(rd_ep_open(f->fabric, &ep, &f->ep), 0);
    f->objects = rd_ep_memory(f->ep);
    f->memory = f->objects + OBJECT_MEMORY;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    struct rd_live live;
    rd_ep_close(f->ep);
    for (uint32_t i = 0; i < NODES; i++)
        if (f->node[i] != NULL)
            rec_node_close(&f->node[i]);
    rd_fabric_delete(f->fabric);
    rd_live_get(&live);
    assert_true(rd_live_is_zero(&live));
    for (uint32_t i = 0; i < NODES; i++) {
        (void)unlink(f->config.node[i].pool);
        (void)unlink(f->config.node[i].address);
    }
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static void on_event(struct client *c, const struct rd_event *event)
{
    switch (event->type) {
    case RD_EV_UP:
        assert_int_equal(event->size, sizeof(c->welcome));
        memcpy(&c->welcome, event->data, event->size);
        c->up = true;
        break;
    case RD_EV_DOWN:
        c->down = true;
        c->status = event->status;
        if (event->size != 0)
            c->status = rd_wire_refusal(event->data, event->size);
        break;
    case RD_EV_MESSAGE: {
        const struct rd_message_wire *head = event->data;
        c->reply_type = le16_get(head->type);
        c->reply_status = le32_get(head->status);
        memcpy(c->reply, head + 1, event->size - sizeof(*head));
        break;
    }
    default: c->status = event->status; break;
    }
}

/* One turn of everything. */
static void turn(struct fixture *f)
{
    struct rd_event event;
    for (uint32_t i = 0; i < NODES; i++)
        if (f->node[i] != NULL)
            (void)rec_node_poll(f->node[i]);
    while (rd_poll(f->ep, &event, 1) == 1)
        if (event.conn->user != NULL)
            on_event(event.conn->user, &event);
}

#define UNTIL(f, condition)                                                                        \
    do {                                                                                           \
        uint64_t until_ = now() + LIMIT_NS;                                                        \
        while (!(condition)) {                                                                     \
            turn(f);                                                                               \
            if (now() > until_)                                                                    \
                fail_msg("not within the limit: %s", #condition);                                  \
        }                                                                                          \
    } while (0)

static void connect_as(struct fixture *f, struct client *c, uint32_t i, uint8_t session,
    struct rd_hello_wire hello)
{
    memset(c, 0, sizeof(*c));
    hello.magic.le = hello.magic.le == 0 ? le32_make(RD_WIRE_MAGIC).le : hello.magic.le;
    if (cn_uuid_is_zero(&hello.cluster))
        hello.cluster = f->config.cluster;
    hello.version = le16_make(RD_WIRE_VERSION);
    if (le16_get(hello.role) == 0)
        hello.role = le16_make(RD_ROLE_COORDINATOR);
    if (le16_get(hello.node) == 0)
        hello.node = le16_make(f->config.node[i].id);
    hello.view = le32_make(1);
    if (le16_get(hello.role) == RD_ROLE_COORDINATOR)
        memset(hello.peer.b, session, sizeof(hello.peer.b));
    assert_int_equal(rd_connect(f->ep, f->config.node[i].address, &hello, sizeof(hello),
                         now() + LIMIT_NS / 4, &c->conn),
        0);
    c->conn->user = c;
    UNTIL(f, c->up || c->down);
}

static void connect_to(struct fixture *f, struct client *c, uint32_t i, uint8_t session)
{
    connect_as(f, c, i, session, (struct rd_hello_wire){.magic = le32_make(0)});
    if (!c->up)
        fail_msg("node %u refused: %s", i + 1, cairn_last_error());
}

/* Slots of ended sessions are handed out again after a while. */
static void connect_in_time(struct fixture *f, struct client *c, uint32_t i, uint8_t session)
{
    uint64_t until = now() + LIMIT_NS;
    for (;;) {
        connect_as(f, c, i, session, (struct rd_hello_wire){.magic = le32_make(0)});
        if (c->up)
            return;
        assert_int_equal(c->status, CAIRN_E_AGAIN);
        rd_conn_delete(c->conn);
        assert_true(now() < until);
    }
}

static void send_message(
    struct client *c, enum rd_message_type type, const void *body, uint32_t size)
{
    uint8_t buf[256];
    struct rd_message_wire head = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make((uint16_t)type),
        .size = le16_make((uint16_t)size),
        .id = le32_make(1),
    };
    memcpy(buf, &head, sizeof(head));
    if (size != 0)
        memcpy(buf + sizeof(head), body, size);
    c->reply_type = 0;
    assert_int_equal(rd_send(c->conn, buf, (uint32_t)sizeof(head) + size), 0);
}

/* Log a vote of transaction `count` with participants c[0..n) into c[at]'s ring, at their next
 * sequences. */
static uint64_t log_record(
    struct fixture *f, struct client *c, uint32_t n, uint32_t at, uint8_t session, uint64_t count)
{
    struct pm_record_writer w;
    struct client *to = &c[at];
    struct pm_place place = {
        .pool = to->welcome.pool,
        .slot = le16_get(to->welcome.slot),
        .epoch = le64_get(to->welcome.slot_epoch),
        .nonce = le64_get(to->welcome.nonce),
        .log_off = to->log_off,
    };
    struct cn_txid txid = {.count = count};
    memset(txid.coordinator.b, session, sizeof(txid.coordinator.b));
    pm_record_begin(&w, f->memory, 4096);
    for (uint32_t i = 0; i < n; i++)
        pm_record_add_participant(&w, le16_get(c[i].welcome.node), 0, 0,
            le16_get(c[i].welcome.slot), le64_get(c[i].welcome.slot_epoch), c[i].seq + 1);
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, to->seq + 1, 1, &place);
    uint64_t remote = le64_get(to->welcome.ring_off) + RD_RING_HEADER_SIZE + to->log_off;
    assert_int_equal(rd_write(to->conn, 1, remote, f->memory, size, 0), 0);
    assert_int_equal(rd_flush(to->conn, 2, remote, size, RD_SIGNALED), 0);
    to->log_off += size;
    return remote;
}

static void mark_record(struct client *c, uint64_t remote, uint64_t seq)
{
    assert_int_equal(rd_mark(c->conn, 3, remote + MARK_OFF,
                         pm_word_value(le64_get(c->welcome.nonce), seq, PM_WORD_MARK), 0),
        0);
    rd_doorbell(c->conn);
}

static enum rd_verdict resolve(struct fixture *f, struct client *via, struct client *place_of,
    uint8_t session, uint64_t count, uint64_t seq)
{
    struct rd_ask_wire ask = {.place = {
        .count = le64_make(count),
        .epoch = place_of->welcome.slot_epoch,
        .seq = le64_make(seq),
        .view = le32_make(1),
        .slot = place_of->welcome.slot,
        .node = place_of->welcome.node,
    }};
    memset(ask.place.coordinator.b, session, sizeof(ask.place.coordinator.b));
    for (int i = 0; i < 50; i++) {
        send_message(via, RD_MSG_RESOLVE, &ask, sizeof(ask));
        UNTIL(f, via->reply_type == RD_MSG_RESOLVE_REPLY);
        struct rd_answer_wire answer;
        memcpy(&answer, via->reply, sizeof(answer));
        if (le32_get(answer.verdict) != RD_VERDICT_IN_DOUBT)
            return le32_get(answer.verdict);
    }
    return RD_VERDICT_IN_DOUBT;
}

static struct rec_node_stats stats_of(struct fixture *f, uint32_t i)
{
    struct rec_node_stats stats;
    rec_node_stats(f->node[i], &stats);
    return stats;
}

static bool all_quiet(struct fixture *f)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (f->node[i] != NULL && !rec_node_is_quiet(f->node[i]))
            return false;
    return true;
}

static void record__of_one_participant__applied_without_a_mark(void **state)
{
    struct fixture *f = *state;
    struct client c;
    connect_to(f, &c, 0, 1);
    (void)log_record(f, &c, 1, 0, 1, 1);
    UNTIL(f, stats_of(f, 0).applied == 1);
    turn(f);
    struct rd_position_wire *position = (void *)(f->memory + 8192);
    assert_int_equal(rd_read(c.conn, 9, le64_get(c.welcome.position_off), position,
                         sizeof(*position), RD_SIGNALED),
        0);
    turn(f);
    assert_int_equal(le64_get(position->seq), 1);
    assert_int_equal(le64_get(position->off), c.log_off);
}

static void record__of_all_participants__applied_when_marked(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    uint64_t at[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        at[i] = log_record(f, c, NODES, i, 1, 1);
    for (uint32_t i = 0; i < NODES; i++)
        mark_record(&c[i], at[i], 1);
    UNTIL(f, stats_of(f, 0).applied == 1 && stats_of(f, 1).applied == 1);
    assert_int_equal(stats_of(f, 0).resolved_committed + stats_of(f, 1).resolved_committed, 0);
}

static void hello__wrong_cluster_node_or_version__distinct_refusals(void **state)
{
    struct fixture *f = *state;
    struct client c;
    struct rd_hello_wire hello = {.magic = le32_make(0)};
    memset(hello.cluster.b, 0x77, sizeof(hello.cluster.b));
    connect_as(f, &c, 0, 1, hello);
    assert_int_equal(c.status, CAIRN_E_WRONG_CLUSTER);
    rd_conn_delete(c.conn);
    hello = (struct rd_hello_wire){.node = le16_make(9)};
    connect_as(f, &c, 0, 1, hello);
    assert_int_equal(c.status, CAIRN_E_WRONG_NODE);
    rd_conn_delete(c.conn);
    hello = (struct rd_hello_wire){.magic = le32_make(0x31313131)};
    connect_as(f, &c, 0, 1, hello);
    assert_int_equal(c.status, CAIRN_E_WIRE_VERSION);
    rd_conn_delete(c.conn);
}

static void hello__all_slots_taken__refused_until_one_is_closed(void **state)
{
    struct fixture *f = *state;
    struct client c[6];
    for (uint8_t i = 0; i < 5; i++)
        connect_to(f, &c[i], 0, (uint8_t)(i + 1));
    connect_as(f, &c[5], 0, 99, (struct rd_hello_wire){.magic = le32_make(0)});
    assert_int_equal(c[5].status, CAIRN_E_SLOTS);
    rd_conn_delete(c[5].conn);
    send_message(&c[0], RD_MSG_CLOSE, NULL, 0);
    UNTIL(f, c[0].reply_type == RD_MSG_CLOSE_REPLY || c[0].down);
    rd_conn_delete(c[0].conn);
    connect_in_time(f, &c[5], 0, 99);
}

/* An unclean end: the slot comes back after scrub passes only, and it does come back. */
static void slots__owners_die__all_come_back(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 12; i++) {
        struct client c;
        connect_in_time(f, &c, 0, (uint8_t)(i + 1));
        rd_conn_delete(c.conn);
    }
    UNTIL(f, stats_of(f, 0).slots_open == 0 && all_quiet(f));
}

/* Place of the first bucket of the node's table. */
static uint64_t first_bucket(struct fixture *f, struct client *c, uint16_t shard)
{
    struct rd_table_wire ask = {.table = le16_make(1), .shard = le16_make(shard)};
    struct rd_table_reply_wire reply;
    struct le64 *chunk = (void *)f->objects;
    send_message(c, RD_MSG_TABLE, &ask, sizeof(ask));
    UNTIL(f, c->reply_type == RD_MSG_TABLE_REPLY);
    memcpy(&reply, c->reply, sizeof(reply));
    assert_int_equal(rd_read(c->conn, 9, le64_get(reply.root_off) + PM_INDEX_MAP_OFF, chunk,
                         sizeof(*chunk), RD_SIGNALED),
        0);
    turn(f);
    return le64_get(*chunk);
}

static uint64_t read_word(struct fixture *f, struct client *c, uint64_t off)
{
    struct le64 *word = (void *)f->objects;
    assert_int_equal(rd_read(c->conn, 9, off, word, sizeof(*word), RD_SIGNALED), 0);
    turn(f);
    return le64_get(*word);
}

static uint64_t word_of(const struct client *c, uint64_t version)
{
    return pm_word_make_locked(le16_get(c->welcome.tag), le16_get(c->welcome.slot), version);
}

/* Scrub passes over while a dead owner's record is in doubt leave its words alone (T10), so they do
 * not count for the reuse of its slot: (tag, slot) must not name two owners of a word. */
static void slots__in_doubt_for_long__its_words_are_freed_before_reuse(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES], other[5], next;
    uint64_t *old = (void *)f->objects;
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    uint64_t off = first_bucket(f, &c[0], 0), version = pm_word_version(read_word(f, &c[0], off));
    assert_int_equal(
        rd_cas(c[0].conn, 9, off, version, word_of(&c[0], version), old, RD_SIGNALED), 0);
    turn(f);
    assert_int_equal(read_word(f, &c[0], off), word_of(&c[0], version));
    log_record(f, c, NODES, 0, 1, 1);
    rec_node_close(&f->node[1]);
    rd_conn_delete(c[0].conn);
    rd_conn_delete(c[1].conn);
    UNTIL(f, stats_of(f, 0).slots_closed == 1 && stats_of(f, 0).in_doubt == 1);
    connect_in_time(f, &other[4], 0, 2); /* dies too: its slot comes back after whole passes */
    rd_conn_delete(other[4].conn);
    for (uint8_t i = 0; i < 4; i++)
        connect_in_time(f, &other[i], 0, (uint8_t)(3 + i));
    assert_int_equal(read_word(f, &other[0], off), word_of(&c[0], version));
    start_node(f, 1);
    UNTIL(f, stats_of(f, 0).resolved_aborted == 1 && all_quiet(f));
    connect_in_time(f, &next, 0, 9);
    assert_int_equal(le16_get(next.welcome.slot), le16_get(c[0].welcome.slot));
    assert_int_equal(read_word(f, &next, off), version);
}

/* A fence takes nothing from what a record is held to: one that locks a word it does not hold is
 * refused, whether its owner stays or goes. */
static void record__lock_not_held_and_owner_gone__refused(void **state)
{
    struct fixture *f = *state;
    struct client c, tool;
    struct pm_record_writer w;
    struct cn_txid txid = {.count = 1};
    connect_to(f, &c, 0, 1);
    uint64_t off = first_bucket(f, &c, 0), version = pm_word_version(read_word(f, &c, off));
    struct pm_place place = {c.welcome.pool, le16_get(c.welcome.slot),
        le64_get(c.welcome.slot_epoch), le64_get(c.welcome.nonce), 0, 0};
    memset(txid.coordinator.b, 1, sizeof(txid.coordinator.b));
    pm_record_begin(&w, f->memory, 4096);
    pm_record_add_participant(&w, 1, 0, 0, place.slot, place.epoch, 1);
    pm_record_add_lock(&w, off, version);
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, 1, 1, &place);
    uint64_t remote = le64_get(c.welcome.ring_off) + RD_RING_HEADER_SIZE;
    assert_int_equal(rd_write(c.conn, 1, remote, f->memory, size, 0), 0);
    assert_int_equal(rd_flush(c.conn, 2, remote, size, RD_SIGNALED), 0);
    rd_conn_delete(c.conn);
    UNTIL(f, stats_of(f, 0).records_rejected == 1); /* committed: no other node is asked */
    connect_to(f, &tool, 0, 2);
    assert_int_equal(read_word(f, &tool, off), version);
}

/* The final states of ended sessions are kept for the verdict time; when there is no room for more,
 * a new session is told why. */
static void slots__verdict_table_full__refused_with_the_reason(void **state)
{
    struct fixture *f = *state;
    uint64_t until = now() + LIMIT_NS;
    for (uint32_t i = 0; now() < until; i++) {
        struct client c;
        connect_as(f, &c, 0, (uint8_t)(i % 250 + 1), (struct rd_hello_wire){.magic = le32_make(0)});
        if (c.up) {
            send_message(&c, RD_MSG_CLOSE, NULL, 0);
            UNTIL(f, c.reply_type == RD_MSG_CLOSE_REPLY || c.down);
        } else if (c.status == CAIRN_E_SLOTS) {
            assert_non_null(strstr(cairn_last_error(), "verdicts"));
            rd_conn_delete(c.conn);
            return;
        } else
            assert_int_equal(c.status, CAIRN_E_AGAIN);
        rd_conn_delete(c.conn);
        for (int k = 0; k < 3; k++)
            turn(f);
    }
    fail_msg("the table of verdicts never filled");
}

static void doubt__record_at_all__committed_on_all(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1);
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn); /* the coordinator dies before any mark */
    UNTIL(f, stats_of(f, 0).applied == 1 && stats_of(f, 1).applied == 1 && all_quiet(f));
}

static void doubt__record_at_one__aborted_on_all(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES], tool;
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    log_record(f, c, NODES, 0, 1, 1);
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn);
    UNTIL(f, stats_of(f, 0).resolved_aborted == 1 && all_quiet(f));
    assert_int_equal(stats_of(f, 0).applied, 0);
    assert_int_equal(stats_of(f, 1).applied, 0);
    connect_as(f, &tool, 1, 0, (struct rd_hello_wire){.role = le16_make(RD_ROLE_TOOL)});
    assert_int_equal(resolve(f, &tool, &c[1], 1, 1, 1), RD_VERDICT_ABORTED);
}

/* R13: the owner lives but is slow: its node resolves the record, preventing it where it is
 * missing. The owner's late record there changes nothing: its flush fails. */
static void doubt__owner_slow__resolved_and_fenced(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    log_record(f, c, NODES, 0, 1, 1);
    UNTIL(f, stats_of(f, 0).resolved_aborted == 1);
    UNTIL(f, c[1].down);
    uint64_t remote = le64_get(c[1].welcome.ring_off) + RD_RING_HEADER_SIZE;
    assert_int_not_equal(rd_write(c[1].conn, 1, remote, f->memory, 128, 0), 0);
    UNTIL(f, all_quiet(f));
}

static void doubt__participant_down__waits_for_it(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1);
    rec_node_close(&f->node[1]);
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn);
    uint64_t until = now() + UINT64_C(300000000);
    while (now() < until)
        turn(f);
    assert_int_equal(stats_of(f, 0).in_doubt, 1);
    assert_int_equal(stats_of(f, 0).applied, 0);
    start_node(f, 1);
    UNTIL(f, stats_of(f, 0).applied == 1 && stats_of(f, 1).applied == 1 && all_quiet(f));
}

static void resolve__live_unmarked_record__committed(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES], tool;
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1);
    connect_as(f, &tool, 0, 0, (struct rd_hello_wire){.role = le16_make(RD_ROLE_TOOL)});
    assert_int_equal(resolve(f, &tool, &c[0], 1, 1, 1), RD_VERDICT_COMMITTED);
}

/* Somebody waits for the verdict on a record in doubt when another node tells that it is aborted.
 */
static void told__aborted_while_somebody_waits__aborted_is_answered(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES], tool, teller;
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    log_record(f, c, NODES, 0, 1, 1);
    rec_node_close(&f->node[1]); /* nobody there to ask */
    rd_conn_delete(c[1].conn);
    connect_as(f, &tool, 0, 0, (struct rd_hello_wire){.role = le16_make(RD_ROLE_TOOL)});
    connect_as(f, &teller, 0, 0,
        (struct rd_hello_wire){.role = le16_make(RD_ROLE_NODE), .from_node = le16_make(2)});
    assert_true(tool.up && teller.up);
    struct rd_answer_wire told = {.verdict = le32_make(RD_VERDICT_ABORTED)};
    told.place = (struct rd_place_wire){
        .count = le64_make(1),
        .epoch = c[0].welcome.slot_epoch,
        .seq = le64_make(1),
        .view = le32_make(1),
        .slot = c[0].welcome.slot,
        .node = le16_make(1),
    };
    memset(told.place.coordinator.b, 1, sizeof(told.place.coordinator.b));
    send_message(&tool, RD_MSG_RESOLVE, &told.place, sizeof(told.place));
    UNTIL(f, stats_of(f, 0).in_doubt == 1);
    send_message(&teller, RD_MSG_TOLD, &told, sizeof(told));
    UNTIL(f, tool.reply_type == RD_MSG_RESOLVE_REPLY);
    struct rd_answer_wire answer;
    memcpy(&answer, tool.reply, sizeof(answer));
    assert_int_equal(le32_get(answer.verdict), RD_VERDICT_ABORTED);
    UNTIL(f, stats_of(f, 0).resolved_aborted == 1 && stats_of(f, 0).in_doubt == 0);
    start_node(f, 1);
}

static void restart__unmarked_records__resolved_after_the_start(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1);
    for (uint32_t i = 0; i < NODES; i++)
        rec_node_close(&f->node[i]); /* with the records in doubt */
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn);
    for (uint32_t i = 0; i < NODES; i++)
        start_node(f, i);
    assert_int_equal(stats_of(f, 0).records_in_doubt_at_start, 1);
    UNTIL(f, stats_of(f, 0).applied == 1 && stats_of(f, 1).applied == 1 && all_quiet(f));
}

/* Verdicts are kept for their time, and after it until every node has said that it needs them no
 * more. */
static void purge__verdict_time_over__forgotten_with_every_nodes_consent(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES], tool;
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1);
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn);
    UNTIL(f, stats_of(f, 0).applied == 1 && stats_of(f, 1).applied == 1 && all_quiet(f));
    connect_as(f, &tool, 0, 0, (struct rd_hello_wire){.role = le16_make(RD_ROLE_TOOL)});
    assert_int_equal(resolve(f, &tool, &c[0], 1, 1, 1), RD_VERDICT_COMMITTED);
    rec_node_close(&f->node[1]);
    wall_skew_s = 2 * 86400;
    for (uint64_t until = now() + UINT64_C(1500000000); now() < until;)
        turn(f);
    assert_int_equal(resolve(f, &tool, &c[0], 1, 1, 1), RD_VERDICT_COMMITTED);
    start_node(f, 1);
    for (uint64_t until = now() + LIMIT_NS; now() < until;)
        if (resolve(f, &tool, &c[0], 1, 1, 1) == RD_VERDICT_FORGOTTEN)
            return;
    fail_msg("the epoch was never forgotten");
}

static void message__garbage__peer_is_dropped_node_lives(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    uint8_t garbage[64];
    connect_to(f, &c, 0, 1);
    memset(garbage, 0xee, sizeof(garbage));
    assert_int_equal(rd_send(c.conn, garbage, sizeof(garbage)), 0);
    UNTIL(f, c.down);
    rd_conn_delete(c.conn);
    connect_to(f, &other, 0, 2);
    struct rd_table_wire table = {.table = le16_make(1), .shard = le16_make(0)};
    send_message(&other, RD_MSG_TABLE, &table, sizeof(table));
    UNTIL(f, other.reply_type == RD_MSG_TABLE_REPLY);
    assert_int_equal(other.reply_status, 0);
    table.table = le16_make(7);
    send_message(&other, RD_MSG_TABLE, &table, sizeof(table));
    UNTIL(f, other.reply_type == RD_MSG_TABLE_REPLY);
    assert_int_equal(-(int)other.reply_status, CAIRN_E_NO_TABLE);
}

static void start__second_node_with_one_id__pool_busy(void **state)
{
    struct fixture *f = *state;
    struct pm_pool *pool = NULL;
    assert_int_equal(
        pm_pool_open(f->config.node[0].pool, PM_OPEN_OWNER, 100, cn_env_system(), &pool),
        CAIRN_E_POOL_BUSY);
}

static void start__pool_of_another_node_or_cluster__refused(void **state)
{
    struct fixture *f = *state;
    struct rec_node_options options = {
        .config = &f->config, .node = 2, .fabric = f->fabric, .env = cn_env_system(),
    };
    struct rec_node *node = NULL;
    rec_node_close(&f->node[0]);
    assert_int_equal(
        pm_pool_open(f->config.node[0].pool, PM_OPEN_OWNER, 1000, options.env, &options.pool), 0);
    uint64_t incarnation = options.pool->incarnation;
    assert_int_equal(rec_node_open(&options, &node), CAIRN_E_WRONG_NODE);
    options.node = 1;
    f->config.cluster.b[0] ^= 1;
    assert_int_equal(rec_node_open(&options, &node), CAIRN_E_WRONG_CLUSTER);
    f->config.cluster.b[0] ^= 1;
    assert_int_equal(options.pool->incarnation, incarnation); /* nothing was touched */
    pm_pool_close(&options.pool);
}

static void offline__records_in_doubt__resolved_and_clean(void **state)
{
    struct fixture *f = *state;
    struct client c[NODES];
    struct rec_report_pool report[NODES];
    const char *path[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        connect_to(f, &c[i], i, 1);
    for (uint32_t i = 0; i < NODES; i++)
        log_record(f, c, NODES, i, 1, 1); /* transaction 1: everywhere */
    for (uint32_t i = 0; i < NODES; i++)
        c[i].seq++;
    log_record(f, c, NODES, 0, 1, 2); /* transaction 2: at node 1 only */
    for (uint32_t i = 0; i < NODES; i++) {
        path[i] = f->config.node[i].pool;
        rec_node_close(&f->node[i]);
    }
    struct rec_offline_options options = {
        .env = cn_env_system(), .fabric = f->fabric, .dry_run = true};
    assert_int_equal(rec_offline(&options, path, NODES, report), 0);
    assert_int_equal(report[0].in_doubt, 2);
    assert_int_equal(report[1].in_doubt, 1);
    /* One pool alone cannot decide. */
    options.dry_run = false;
    assert_int_equal(rec_offline(&options, path, 1, report), CAIRN_E_IN_DOUBT);
    assert_int_equal(rec_offline(&options, path, NODES, report), 0);
    assert_int_equal(report[0].in_doubt, 2);
    /* Again: nothing is left. */
    assert_int_equal(rec_offline(&options, path, NODES, report), 0);
    assert_int_equal(report[0].in_doubt + report[1].in_doubt, 0);
    for (uint32_t i = 0; i < NODES; i++)
        start_node(f, i);
    struct client tool;
    connect_as(f, &tool, 1, 0, (struct rd_hello_wire){.role = le16_make(RD_ROLE_TOOL)});
    assert_int_equal(resolve(f, &tool, &c[1], 1, 1, 1), RD_VERDICT_COMMITTED);
    assert_int_equal(resolve(f, &tool, &c[1], 1, 2, 2), RD_VERDICT_ABORTED);
    for (uint32_t i = 0; i < NODES; i++)
        rd_conn_delete(c[i].conn);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(record__of_one_participant__applied_without_a_mark),
        CASE(record__of_all_participants__applied_when_marked),
        CASE(hello__wrong_cluster_node_or_version__distinct_refusals),
        CASE(hello__all_slots_taken__refused_until_one_is_closed),
        CASE(slots__owners_die__all_come_back),
        CASE(slots__in_doubt_for_long__its_words_are_freed_before_reuse),
        CASE(record__lock_not_held_and_owner_gone__refused),
        CASE(slots__verdict_table_full__refused_with_the_reason),
        CASE(doubt__record_at_all__committed_on_all),
        CASE(doubt__record_at_one__aborted_on_all),
        CASE(doubt__participant_down__waits_for_it),
        CASE(doubt__owner_slow__resolved_and_fenced),
        CASE(resolve__live_unmarked_record__committed),
        CASE(told__aborted_while_somebody_waits__aborted_is_answered),
        CASE(restart__unmarked_records__resolved_after_the_start),
        CASE(purge__verdict_time_over__forgotten_with_every_nodes_consent),
        CASE(message__garbage__peer_is_dropped_node_lives),
        CASE(start__second_node_with_one_id__pool_busy),
        CASE(start__pool_of_another_node_or_cluster__refused),
        CASE(offline__records_in_doubt__resolved_and_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
