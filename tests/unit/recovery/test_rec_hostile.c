/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a node under attack by its peers: hellos, messages and redo records made by somebody who
 * knows the formats. Method: a filled pool's node is turned by hand in this thread; the test is the
 * attacker, over the emulated fabric, with seeded random bytes and bounded rounds.
 * Invariants: the node lives and goes on serving others; what was not attacked by name keeps its
 * value; fsck finds no damage; a question without a transaction's id fences nobody.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "rdma/rd.h"
#include "rdma/rd_wire.h"
#include "tests/support/ts_record.h"
#include "tests/support/ts_filled.h"
#include "tests/support/ts_pool.h"

#define LIMIT_NS UINT64_C(30000000000)
#define MARK_OFF 24u
#define HANG_S 120u
#ifndef SEED /* more of both find more */
#define SEED 0u
#endif
#ifndef ROUNDS
#define ROUNDS 24u
#endif

static struct ts_filled *filled;

struct fixture {
    struct pm_pool *pool;
    struct rec_node *node;
    struct rd_ep *ep; /* the attackers' */
    uint8_t *memory;
};

struct client {
    struct rd_conn *conn;
    struct rd_welcome_wire welcome;
    bool up, down;
    int status;
    uint32_t reply_type, reply_status, replies;
    uint8_t reply[RD_MESSAGE_SIZE_MAX];
    uint64_t log_off, seq;
};

static int setup_all(void **state)
{
    (void)state;
    filled = ts_filled_new();
    return 0;
}

static int teardown_all(void **state)
{
    (void)state;
    ts_filled_delete(&filled);
    return 0;
}

static uint64_t now(void) { return cn_now_ns(&filled->env); }

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct rd_ep_config ep = {.env = &filled->env, .connections_max = 64, .outstanding_max = 64,
        .memory_size = 65536 + 64, .log_memory_size = 65536, .name = "attack"};

    (void)alarm(HANG_S);
    ts_filled_restore(filled);
    assert_int_equal(ts_filled_open(filled, &f->pool, &f->node), 0);
    assert_int_equal(rd_ep_open(filled->fabric, &ep, &f->ep), 0);
    f->memory = (uint8_t *)rd_ep_memory(f->ep) + 64; /* that for rings */
    *state = f;
    return 0;
}

/* The pool is whole after everything that was done to its node. */
static int teardown(void **state)
{
    struct fixture *f = *state;
    struct pm_fsck_report report;
    uint64_t victims;

    rd_ep_close(f->ep);
    if (f->node != NULL)
        rec_node_close(&f->node);
    assert_int_equal(ts_filled_fsck(filled, &report, &victims), 0);
    (void)alarm(0);
    free(f);
    if (report.damages != 0)
        fail_msg("fsck: %s", filled->damage);
    assert_true(victims == filled->victims);
    return 0;
}

static void on_event(struct client *c, const struct rd_event *event)
{
    const struct rd_message_wire *head = event->data;

    switch (event->type) {
    case RD_EV_UP:
        memcpy(&c->welcome, event->data, sizeof(c->welcome));
        c->up = true;
        break;
    case RD_EV_DOWN:
        c->down = true;
        c->status = event->status;
        if (event->size != 0)
            c->status = rd_wire_refusal(event->data, event->size);
        break;
    case RD_EV_MESSAGE:
        assert_int_equal(rd_wire_check(event->data, event->size), 0); /* it is well-formed */
        c->reply_type = le16_get(head->type);
        c->reply_status = le32_get(head->status);
        memcpy(c->reply, head + 1, event->size - sizeof(*head));
        c->replies++;
        break;
    default: break;
    }
}

static void turn(struct fixture *f)
{
    struct rd_event event;

    (void)rec_node_poll(f->node);
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

static struct rd_hello_wire hello_of(enum rd_wire_role role, uint8_t session)
{
    struct rd_hello_wire hello = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make((uint16_t)role),
        .cluster = filled->config.cluster,
        .view = le32_make(1),
        .node = le16_make(1),
    };
    if (role == RD_ROLE_COORDINATOR)
        memset(hello.peer.b, session, sizeof(hello.peer.b));
    return hello;
}

static void connect_as(struct fixture *f, struct client *c, const struct rd_hello_wire *hello)
{
    memset(c, 0, sizeof(*c));
    assert_int_equal(rd_connect(f->ep, filled->config.node[0].address, hello, sizeof(*hello),
                         now() + LIMIT_NS / 4, &c->conn),
        0);
    c->conn->user = c;
    UNTIL(f, c->up || c->down);
}

static void drop(struct fixture *f, struct client *c)
{
    rd_conn_delete(c->conn);
    c->conn = NULL;
    for (int i = 0; i < 3; i++)
        turn(f);
}

/* A slot, when one is free again. False: none is, for records of others are set aside in them. */
static bool take_slot(struct fixture *f, struct client *c, uint8_t session)
{
    struct rd_hello_wire hello = hello_of(RD_ROLE_COORDINATOR, session);

    for (int tries = 0; tries < 20; tries++) {
        connect_as(f, c, &hello);
        if (c->up)
            return true;
        assert_true(c->status == CAIRN_E_AGAIN || c->status == CAIRN_E_SLOTS);
        drop(f, c);
        for (uint64_t until = now() + 2000000; now() < until;)
            turn(f);
    }
    return false;
}

static void must_take_slot(struct fixture *f, struct client *c, uint8_t session)
{
    uint64_t until = now() + LIMIT_NS;

    while (!take_slot(f, c, session))
        if (now() > until)
            fail_msg("no slot: %s", cairn_last_error());
}

/* An error of the connection is the attacker's own business. */
static void send_raw(struct client *c, const void *bytes, uint32_t size)
{
    c->reply_type = 0;
    (void)!rd_send(c->conn, bytes, size);
}

static void send_message(
    struct client *c, enum rd_message_type type, const void *body, uint32_t size)
{
    uint8_t buf[256];
    struct rd_message_wire head = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make((uint16_t)type),
        .size = le16_make((uint16_t)size),
        .id = le32_make(7),
    };
    memcpy(buf, &head, sizeof(head));
    if (size != 0)
        memcpy(buf + sizeof(head), body, size);
    send_raw(c, buf, (uint32_t)sizeof(head) + size);
}

static struct rec_node_stats stats_of(struct fixture *f)
{
    struct rec_node_stats stats;
    rec_node_stats(f->node, &stats);
    return stats;
}

/* Somebody else is still served: a table is found and a block is granted. */
static void check_served(struct fixture *f, struct client *c)
{
    const struct rd_grant_wire grant = {.class_ = 1, .count = le32_make(1)};
    uint64_t until = now() + LIMIT_NS;

    assert_false(c->down);
    do {
        send_message(c, RD_MSG_GRANT, &grant, sizeof(grant));
        UNTIL(f, c->reply_type == RD_MSG_GRANT_REPLY || c->down);
        assert_false(c->down);
    } while (c->reply_status != 0 && now() < until);
    assert_int_equal(c->reply_status, 0);
}

static uint64_t below(uint64_t *seed, uint64_t limit)
{
    return ts_random(seed) % limit;
}

static uint64_t nasty(uint64_t *seed)
{
    static const uint64_t values[] = {0, 1, 2, 5, 7, 8, 63, 64, 65, 4095, 4096, 65535, 65536,
        UINT32_MAX, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 63, UINT64_C(1) << 63,
        (UINT64_C(1) << 40) - 1};
    if (below(seed, 4) == 0)
        return ts_random(seed);
    if (below(seed, 4) == 0)
        return below(seed, 4096) * 4096;
    return values[below(seed, CN_ARRAY_SIZE(values))];
}

static void overwrite(uint8_t *bytes, uint32_t size, uint64_t *seed)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    uint32_t width = widths[below(seed, 4)];

    if (size < width)
        return;
    uint64_t v = nasty(seed), at = below(seed, size / width) * width;
    memcpy(bytes + at, &v, width);
}

/* ---- hello ---- */

static void hello__random_fields__refused_or_served(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    uint64_t seed = 1 + SEED;

    must_take_slot(f, &other, 200);
    for (uint32_t i = 0; i < 150; i++) {
        struct rd_hello_wire hello =
            hello_of((enum rd_wire_role)(1 + below(&seed, 3)), (uint8_t)(1 + below(&seed, 100)));
        if (le16_get(hello.role) == RD_ROLE_NODE)
            hello.from_node = le16_make((uint16_t)nasty(&seed));
        for (uint64_t k = below(&seed, 3); k > 0; k--)
            overwrite((uint8_t *)&hello, sizeof(hello), &seed);
        connect_as(f, &c, &hello);
        drop(f, &c);
    }
    check_served(f, &other);
}

/* Only the cluster's other nodes are nodes: their verdicts are believed. */
static void hello__node_not_in_the_configuration__refused(void **state)
{
    struct fixture *f = *state;
    static const uint16_t from[] = {1, 2, 77, UINT16_MAX};
    struct client c;

    for (size_t i = 0; i < CN_ARRAY_SIZE(from); i++) {
        struct rd_hello_wire hello = hello_of(RD_ROLE_NODE, 0);
        hello.from_node = le16_make(from[i]);
        connect_as(f, &c, &hello);
        assert_true(c.down);
        assert_int_equal(c.status, CAIRN_E_WRONG_NODE);
        drop(f, &c);
    }
}

static void connect__storm_of_half_open__others_are_served(void **state)
{
    struct fixture *f = *state;
    struct rd_hello_wire hello = hello_of(RD_ROLE_TOOL, 0);
    struct client other, c[40];

    must_take_slot(f, &other, 200);
    for (uint32_t round = 0; round < 5; round++) {
        memset(c, 0, sizeof(c));
        for (uint32_t i = 0; i < CN_ARRAY_SIZE(c); i++) {
            assert_int_equal(rd_connect(f->ep, filled->config.node[0].address, &hello,
                                 sizeof(hello), now() + LIMIT_NS / 4, &c[i].conn),
                0);
            c[i].conn->user = &c[i];
        }
        for (uint32_t i = 0; i < round * 3; i++)
            turn(f);
        for (uint32_t i = 0; i < CN_ARRAY_SIZE(c); i++)
            rd_conn_delete(c[i].conn);
    }
    check_served(f, &other);
}

/* ---- messages ---- */

static uint32_t make_message(uint8_t *buf, const struct client *victim, uint64_t *seed)
{
    uint32_t type = (uint32_t)below(seed, RD_MSG_TYPE_COUNT + 1);
    uint32_t size = rd_wire_body_size(type);
    struct rd_message_wire head = {.magic = le32_make(RD_WIRE_MAGIC), .id = le32_make(1)};

    if (size == UINT32_MAX)
        size = (uint32_t)below(seed, 64);
    if (type == RD_MSG_GRANT_REPLY)
        size += (uint32_t)below(seed, 64) * (uint32_t)sizeof(struct rd_block_wire);
    memset(buf, 0, RD_MESSAGE_SIZE_MAX);
    head.type = le16_make((uint16_t)type);
    head.size = le16_make((uint16_t)size);
    memcpy(buf, &head, sizeof(head));
    if (type == RD_MSG_RESOLVE || type == RD_MSG_ASK || type == RD_MSG_TOLD) {
        struct rd_answer_wire a = {.verdict = le32_make(1 + (uint32_t)below(seed, 2))};
        a.place = (struct rd_place_wire){.count = le64_make(1), .epoch = victim->welcome.slot_epoch,
            .seq = le64_make(nasty(seed)), .slot = victim->welcome.slot, .node = le16_make(1)};
        memcpy(buf + sizeof(head), &a, size);
    } else if (type == RD_MSG_GRANT) {
        struct rd_grant_wire g = {.class_ = (uint8_t)nasty(seed), .count = le32_make(1)};
        memcpy(buf + sizeof(head), &g, sizeof(g));
    }
    for (uint64_t k = below(seed, 4); k > 0 && size != 0; k--)
        overwrite(buf + sizeof(head), size, seed);
    if (below(seed, 8) == 0)
        overwrite(buf, sizeof(head), seed);
    return size + (uint32_t)sizeof(head) - (below(seed, 16) == 0 ? (uint32_t)below(seed, 8) : 0);
}

static void message__random_fields_of_every_type__others_are_served(void **state)
{
    struct fixture *f = *state;
    struct client c = {.down = true}, other;
    uint8_t buf[RD_MESSAGE_SIZE_MAX];
    uint64_t seed = 2 + SEED;

    must_take_slot(f, &other, 200);
    for (uint32_t i = 0; i < 3000; i++) {
        if (c.down) {
            struct rd_hello_wire hello = hello_of(RD_ROLE_TOOL, 0);
            if (c.conn != NULL)
                drop(f, &c);
            if (below(&seed, 2) == 0 || !take_slot(f, &c, 1))
                connect_as(f, &c, &hello);
            assert_true(c.up);
        }
        send_raw(&c, buf, make_message(buf, &other, &seed));
        if (below(&seed, 4) == 0)
            turn(f);
    }
    check_served(f, &other);
}

/* Slot and epoch can be guessed; the session cannot. */
static void resolve__of_a_live_slot_by_a_stranger__nobody_is_fenced(void **state)
{
    struct fixture *f = *state;
    struct rd_hello_wire hello = hello_of(RD_ROLE_TOOL, 0);
    struct client tool, other;
    struct rd_ask_wire ask;
    struct rd_answer_wire answer;

    must_take_slot(f, &other, 200);
    connect_as(f, &tool, &hello);
    uint64_t fences = stats_of(f).fences;
    ask.place = (struct rd_place_wire){.count = le64_make(1), .epoch = other.welcome.slot_epoch,
        .seq = le64_make(1), .slot = other.welcome.slot, .node = le16_make(1)};
    memset(ask.place.coordinator.b, 0x11, sizeof(ask.place.coordinator.b));
    send_message(&tool, RD_MSG_RESOLVE, &ask, sizeof(ask));
    UNTIL(f, tool.reply_type == RD_MSG_RESOLVE_REPLY);
    memcpy(&answer, tool.reply, sizeof(answer));
    assert_int_equal(le32_get(answer.verdict), RD_VERDICT_FORGOTTEN);
    assert_int_equal(stats_of(f).fences, fences);
    check_served(f, &other);
}

/* "It asks, and changes nothing": a tool that was given an address only. */
static void tool__without_a_cluster__may_ask_for_statistics_only(void **state)
{
    struct fixture *f = *state;
    struct rd_hello_wire hello = hello_of(RD_ROLE_TOOL, 0);
    struct client tool, other;
    struct rd_ask_wire ask = {.place = {.count = le64_make(1), .seq = le64_make(9)}};

    must_take_slot(f, &other, 200);
    memset(&hello.cluster, 0, sizeof(hello.cluster));
    hello.node = le16_make(0);
    connect_as(f, &tool, &hello);
    assert_true(tool.up);
    send_message(&tool, RD_MSG_STATS, NULL, 0);
    UNTIL(f, tool.reply_type == RD_MSG_STATS_REPLY);
    assert_int_equal(tool.reply_status, 0);
    ask.place.epoch = other.welcome.slot_epoch;
    ask.place.slot = other.welcome.slot;
    ask.place.node = le16_make(1);
    memset(ask.place.coordinator.b, 200, sizeof(ask.place.coordinator.b));
    send_message(&tool, RD_MSG_RESOLVE, &ask, sizeof(ask));
    UNTIL(f, tool.down || tool.reply_type == RD_MSG_RESOLVE_REPLY);
    assert_true(tool.down);
    check_served(f, &other);
}

static uint64_t find_victims_value(const struct fixture *f, uint64_t word);

/* Bytes of a value that look like a dead owner's lock are no lock. */
static void word__inside_a_value__not_touched(void **state)
{
    struct fixture *f = *state;
    struct client dead, c;

    must_take_slot(f, &dead, 1);
    uint16_t slot = le16_get(dead.welcome.slot);
    drop(f, &dead);
    UNTIL(f, stats_of(f).slots_open == 0);
    must_take_slot(f, &c, 2);
    uint64_t word = pm_word_make_locked(f->pool->tag, slot, 3);
    struct rd_word_wire ask = {.word = le64_make(word)};
    ask.off = le64_make(find_victims_value(f, word));
    assert_true(le64_get(ask.off) != 0);
    send_message(&c, RD_MSG_WORD, &ask, sizeof(ask));
    UNTIL(f, c.down || c.reply_type == RD_MSG_WORD_REPLY);
    assert_true(pm_load64(&f->pool->pm, le64_get(ask.off)) == word);
    /* Put the value back: the teardown compares. */
    uint64_t off = le64_get(ask.off);
    memcpy((uint8_t *)pm_at(&f->pool->pm, off), filled->image + off, 16);
}

/* The second line of a victim's block gets such bytes; its offset. */
static uint64_t find_victims_value(const struct fixture *f, uint64_t word)
{
    for (uint64_t off = 4096; off + 4096 < filled->size; off += 64) {
        struct pm_item_pm item;
        const uint8_t *at = filled->image + off;
        memcpy(&item, at, sizeof(item));
        if (pm_meta_kind(le64_get(item.head.meta)) != PM_KIND_ITEM || at[40] != 'v' ||
            le32_get(item.value_size) < 200 || le16_get(item.key_size) > 4)
            continue;
        struct le64 bytes[2] = {le64_make(word), le64_make(3)};
        memcpy((uint8_t *)pm_at(&f->pool->pm, off + 64), bytes, sizeof(bytes));
        return off + 64;
    }
    return 0;
}

static void close__twice_and_with_requests_behind__one_slot_is_closed(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    const struct rd_grant_wire grant = {.class_ = 1, .count = le32_make(64)};

    must_take_slot(f, &other, 200);
    for (uint8_t i = 0; i < 10; i++) {
        must_take_slot(f, &c, (uint8_t)(i + 1));
        uint64_t fences = stats_of(f).fences;
        send_message(&c, RD_MSG_CLOSE, NULL, 0);
        send_message(&c, RD_MSG_CLOSE, NULL, 0);
        send_message(&c, RD_MSG_GRANT, &grant, sizeof(grant));
        UNTIL(f, c.down || c.reply_type == RD_MSG_CLOSE_REPLY);
        drop(f, &c);
        assert_int_equal(stats_of(f).fences, fences + 1);
    }
    check_served(f, &other);
}

/* Everything that one peer hoards is there again when it has gone. */
static void grant__all_of_the_pool__free_again_after_the_end(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    struct rd_grant_wire grant = {.class_ = 15, .count = le32_make(64)};

    must_take_slot(f, &c, 1);
    for (uint32_t i = 0; i < 2000; i++) {
        send_message(&c, RD_MSG_GRANT, &grant, sizeof(grant));
        UNTIL(f, c.reply_type == RD_MSG_GRANT_REPLY);
        if (c.reply_status == (uint32_t)-CAIRN_E_POOL_FULL)
            break;
    }
    drop(f, &c);
    UNTIL(f, stats_of(f).slots_open == 0 && rec_node_is_quiet(f->node));
    must_take_slot(f, &other, 2);
    check_served(f, &other);
    grant.count = le32_make(1);
    send_message(&other, RD_MSG_GRANT, &grant, sizeof(grant));
    UNTIL(f, other.reply_type == RD_MSG_GRANT_REPLY);
    assert_int_equal(other.reply_status, 0);
}

static void room__random_hashes_and_counts__bounded(void **state)
{
    struct fixture *f = *state;
    struct client c;
    struct rd_table_wire table = {.table = le16_make(1)};
    struct rd_table_reply_wire root;
    uint64_t seed = 3 + SEED;

    must_take_slot(f, &c, 1);
    send_message(&c, RD_MSG_TABLE, &table, sizeof(table));
    UNTIL(f, c.reply_type == RD_MSG_TABLE_REPLY);
    memcpy(&root, c.reply, sizeof(root));
    for (uint32_t i = 0; i < 400; i++) {
        struct rd_room_wire room = {.root_off = root.root_off, .hash = le64_make(nasty(&seed)),
            .count = le32_make((uint32_t)nasty(&seed))};
        send_message(&c, RD_MSG_ROOM, &room, sizeof(room));
        UNTIL(f, c.reply_type == RD_MSG_ROOM_REPLY || c.down);
        assert_false(c.down);
    }
}

/* ---- records ---- */

static uint64_t ring_at(const struct client *c)
{
    return le64_get(c->welcome.ring_off) + RD_RING_HEADER_SIZE +
        c->log_off % le64_get(c->welcome.ring_size);
}

static struct pm_place place_of(const struct client *c)
{
    return (struct pm_place){
        .pool = c->welcome.pool,
        .slot = le16_get(c->welcome.slot),
        .epoch = le64_get(c->welcome.slot_epoch),
        .nonce = le64_get(c->welcome.nonce),
        .log_off = c->log_off,
    };
}

/* A sample, as if it were the attacker's next record: its own place, versions as they are now. */
static uint32_t adapt(struct fixture *f, struct client *c, uint64_t *seed, uint8_t *buf)
{
    uint32_t n = (uint32_t)below(seed, filled->sample_count), size = filled->sample_size[n];
    struct pm_record_pm head;
    uint32_t at = sizeof(head);

    memcpy(buf, filled->sample[n], size);
    memcpy(&head, buf, sizeof(head));
    head.seq = le64_make(c->seq + 1);
    head.mark = le64_make(0);
    memset(head.coordinator.b, 1, sizeof(head.coordinator.b));
    memcpy(buf, &head, sizeof(head));
    for (uint32_t i = 0; i < le16_get(head.participant_count); i++, at += 24) {
        struct pm_participant_pm p;
        memcpy(&p, buf + at, sizeof(p));
        p.slot = c->welcome.slot;
        p.epoch = c->welcome.slot_epoch;
        p.seq = head.seq;
        memcpy(buf + at, &p, sizeof(p));
    }
    uint32_t words = (uint32_t)le16_get(head.lock_count) + le16_get(head.block_count);
    bool take = below(seed, 2) == 0;
    for (uint32_t i = 0; i < words; i++, at += (uint32_t)sizeof(struct pm_lock_pm)) {
        struct pm_lock_pm lock;
        memcpy(&lock, buf + at, sizeof(lock));
        uint64_t off = le64_get(lock.off), word = pm_load64(&f->pool->pm, off);
        lock.base = le64_make(pm_word_version(word));
        memcpy(buf + at, &lock, sizeof(lock));
        if (take && i < le16_get(head.lock_count) && !pm_word_is_locked(word, f->pool->tag))
            (void)!rd_cas(c->conn, 9, off, word,
                pm_word_make_locked(f->pool->tag, le16_get(c->welcome.slot), pm_word_version(word)),
                rd_ep_memory(f->ep), 0);
    }
    return size;
}

static void mend(struct client *c, uint8_t *buf, uint32_t size)
{
    struct pm_place place = place_of(c);
    ts_record_mend(buf, size, &place);
}

/* Change some fields. The size field decides how much of it is under the crc. */
static uint32_t mutate(struct client *c, uint64_t *seed, uint8_t *buf, uint32_t size)
{
    struct pm_record_pm head;

    for (uint64_t k = below(seed, 4); k > 0; k--) {
        switch (below(seed, 5)) {
        case 0: overwrite(buf + 12, 68, seed); break;               /* header */
        case 1: overwrite(buf + 64, 8, seed); break;                /* counts */
        case 2: overwrite(buf + 80, (uint32_t)cn_min64(size - 80, 160), seed); break; /* lists */
        case 3: overwrite(buf + 80, size - 80, seed); break;
        default: { /* one part over another: offsets that are good elsewhere, duplicates */
            uint64_t from = below(seed, size / 8) * 8, to = 64 + below(seed, (size - 64) / 8) * 8;
            uint64_t most = size - cn_max64(from, to);
            memmove(buf + to, buf + from, cn_min64(8 + below(seed, 4) * 8, most));
        }
        }
    }
    if (below(seed, 12) == 0)
        buf[12] = (uint8_t)(1 + below(seed, 4));
    memcpy(&head, buf, sizeof(head));
    uint32_t stated = le32_get(head.size);
    if (below(seed, 10) == 0) {
        stated = (uint32_t)(64 + below(seed, 32) * 64);
        head.size = le32_make(stated);
        memcpy(buf, &head, sizeof(head));
    }
    if (stated >= 64 && stated <= 8192)
        mend(c, buf, stated);
    return stated >= 64 && stated <= 8192 ? stated : size;
}

/* Put a record into the ring where it is due (or anywhere else), mark it or not. */
static void log_it(struct client *c, struct fixture *f, uint64_t *seed, uint32_t size)
{
    uint64_t ring = le64_get(c->welcome.ring_off) + RD_RING_HEADER_SIZE, at = ring_at(c);

    if (below(seed, 20) == 0)
        at = ring + below(seed, le64_get(c->welcome.ring_size) / 64) * 64;
    (void)!rd_write(c->conn, 1, at, f->memory, size, 0);
    (void)!rd_flush(c->conn, 2, at, size, 0);
    if (below(seed, 3) != 0)
        (void)!rd_mark(c->conn, 3, at + MARK_OFF,
            pm_word_value(le64_get(c->welcome.nonce), c->seq + 1, PM_WORD_MARK), 0);
    rd_doorbell(c->conn);
}

static void attack_ring(struct fixture *f, struct client *c, uint64_t *seed)
{
    for (uint32_t i = 0; i < 12 && !c->down; i++) {
        uint64_t found = stats_of(f).fences;
        uint32_t size = adapt(f, c, seed, f->memory);
        if (c->log_off % le64_get(c->welcome.ring_size) + 8192 > le64_get(c->welcome.ring_size))
            return;
        size = mutate(c, seed, f->memory, size);
        log_it(c, f, seed, size);
        if (below(seed, 3) == 0)
            return; /* dies before the node has looked */
        for (int k = 0; k < 3; k++)
            turn(f);
        if (stats_of(f).fences != found)
            return;
        c->log_off += size;
        c->seq++;
    }
}

/* Rounds of sessions, between which the node restarts now and then; fsck after each start. */
static void record__mutated__node_lives_and_others_keep_their_values(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 4 + SEED;
    int refused = 0;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct client c;
        for (uint8_t i = 0; i < 4; i++) {
            if (!take_slot(f, &c, 1))
                break;
            attack_ring(f, &c, &seed);
            drop(f, &c);
        }
        rec_node_close(&f->node);
        struct pm_fsck_report report;
        uint64_t victims;
        assert_int_equal(ts_filled_fsck(filled, &report, &victims), 0);
        if (report.damages != 0)
            fail_msg("round %u: %s", round, filled->damage);
        assert_true(victims == filled->victims);
        if (round % 3 == 2)
            ts_filled_restore(filled);
        /* A mark on a record that does not check is what a damaged committed record looks like, so
         * the node does not start by itself; told to serve all the same, it does. */
        int rc = ts_filled_open(filled, &f->pool, &f->node);
        if (rc == CAIRN_E_CORRUPT_RECORD) {
            refused++;
            filled->serve_damaged = true;
            rc = ts_filled_open(filled, &f->pool, &f->node);
            filled->serve_damaged = false;
        }
        assert_int_equal(rc, 0);
        for (int k = 0; k < 20; k++)
            turn(f);
    }
    assert_true(refused > 0);
}

/* Pads of every size, good and bad, at the end of a lap and elsewhere. */
static void record__pads_of_any_size__bounded(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    uint64_t seed = 5 + SEED;

    must_take_slot(f, &other, 200);
    for (uint32_t round = 0; round < 20; round++) {
        if (!take_slot(f, &c, 1))
            break;
        for (uint32_t i = 0; i < 40 && !c.down; i++) {
            struct pm_place place = place_of(&c);
            uint64_t ring_size = le64_get(c.welcome.ring_size);
            uint64_t room = ring_size - c.log_off % ring_size;
            uint32_t size = (uint32_t)room;
            if (below(&seed, 3) != 0)
                size = 64 + (uint32_t)below(&seed, room / 64) * 64;
            pm_record_make_pad(f->memory, size, &place);
            (void)!rd_write(c.conn, 1, ring_at(&c), f->memory, 64, 0);
            (void)!rd_flush(c.conn, 2, ring_at(&c), 64, 0);
            rd_doorbell(c.conn);
            c.log_off += size;
            turn(f);
        }
        drop(f, &c);
    }
    check_served(f, &other);
}

/* Void records without end: each takes a tombstone, of which there are so many per epoch. */
static void record__voids_without_end__fenced_in_time(void **state)
{
    struct fixture *f = *state;
    struct client c, other;
    struct cn_txid txid = {.count = 1};

    must_take_slot(f, &other, 200);
    must_take_slot(f, &c, 1);
    for (uint32_t i = 0; i < 2000 && !c.down; i++) {
        struct pm_place place = place_of(&c);
        pm_record_make_void(f->memory, &txid, ++c.seq, 1, &place);
        (void)!rd_write(c.conn, 1, ring_at(&c), f->memory, PM_RECORD_VOID_SIZE, 0);
        (void)!rd_flush(c.conn, 2, ring_at(&c), PM_RECORD_VOID_SIZE, 0);
        rd_doorbell(c.conn);
        c.log_off += PM_RECORD_VOID_SIZE;
        for (int k = 0; k < 3; k++)
            turn(f);
    }
    UNTIL(f, c.down);
    check_served(f, &other);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(hello__random_fields__refused_or_served),
        CASE(hello__node_not_in_the_configuration__refused),
        CASE(connect__storm_of_half_open__others_are_served),
        CASE(message__random_fields_of_every_type__others_are_served),
        CASE(resolve__of_a_live_slot_by_a_stranger__nobody_is_fenced),
        CASE(tool__without_a_cluster__may_ask_for_statistics_only),
        CASE(word__inside_a_value__not_touched),
        CASE(close__twice_and_with_requests_behind__one_slot_is_closed),
        CASE(grant__all_of_the_pool__free_again_after_the_end),
        CASE(room__random_hashes_and_counts__bounded),
        CASE(record__mutated__node_lives_and_others_keep_their_values),
        CASE(record__pads_of_any_size__bounded),
        CASE(record__voids_without_end__fenced_in_time),
    };
    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
