/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_wire.c: names, sizes and checkers of the wire structs.
 *
 * Invariants: a checker copies what it reads once, and looks at nothing behind the given size;
 * bytes that pass are safe to use as far as their form goes. Whether an offset or a table exists is
 * for the receiver to check.
 */
#include "rdma/rd_wire.h"

#include "rdma/rd.h"

#define REPLY 1u    /* may carry a status; with one, the body may be left out */
#define VARIABLE 2u /* `size` is the minimum */

struct message_kind {
    const char *name;
    uint16_t size;
    uint8_t flags;
};

static const struct message_kind kinds[RD_MSG_TYPE_COUNT] = {
    [RD_MSG_GRANT] = {"grant", sizeof(struct rd_grant_wire), 0},
    [RD_MSG_GRANT_REPLY] = {"grant_reply", sizeof(struct rd_grant_reply_wire), REPLY | VARIABLE},
    [RD_MSG_ROOM] = {"room", sizeof(struct rd_room_wire), 0},
    [RD_MSG_ROOM_REPLY] = {"room_reply", 0, REPLY},
    [RD_MSG_TABLE] = {"table", sizeof(struct rd_table_wire), 0},
    [RD_MSG_TABLE_REPLY] = {"table_reply", sizeof(struct rd_table_reply_wire), REPLY},
    [RD_MSG_WORD] = {"word", sizeof(struct rd_word_wire), 0},
    [RD_MSG_WORD_REPLY] = {"word_reply", sizeof(struct rd_word_reply_wire), REPLY},
    [RD_MSG_PING] = {"ping", 0, 0},
    [RD_MSG_PONG] = {"pong", 0, REPLY},
    [RD_MSG_CLOSE] = {"close", 0, 0},
    [RD_MSG_CLOSE_REPLY] = {"close_reply", 0, REPLY},
    [RD_MSG_RESOLVE] = {"resolve", sizeof(struct rd_ask_wire), 0},
    [RD_MSG_RESOLVE_REPLY] = {"resolve_reply", sizeof(struct rd_answer_wire), REPLY},
    [RD_MSG_ASK] = {"ask", sizeof(struct rd_ask_wire), 0},
    [RD_MSG_ANSWER] = {"answer", sizeof(struct rd_answer_wire), REPLY},
    [RD_MSG_TOLD] = {"told", sizeof(struct rd_answer_wire), 0},
    [RD_MSG_PURGE] = {"purge", sizeof(struct rd_purge_wire), 0},
    [RD_MSG_PURGE_REPLY] = {"purge_reply", 0, REPLY},
    [RD_MSG_STATS] = {"stats", 0, 0},
    [RD_MSG_STATS_REPLY] = {"stats_reply", 0, REPLY | VARIABLE},
};

uint32_t rd_wire_body_size(uint32_t type)
{
    if (type >= RD_MSG_TYPE_COUNT || kinds[type].name == NULL)
        return UINT32_MAX;
    return kinds[type].size;
}

const char *rd_wire_type_name(uint32_t type)
{
    if (type >= RD_MSG_TYPE_COUNT || kinds[type].name == NULL)
        return "unknown";
    return kinds[type].name;
}

static bool is_zero(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++)
        any |= p[i];
    return any == 0;
}

static int fail_reserved(const char *what)
{
    return cn_fail(CAIRN_E_PROTOCOL, "%s: reserved bytes are not zero", what);
}

static int check_grant(const void *body)
{
    struct rd_grant_wire g;
    memcpy(&g, body, sizeof(g));
    if (!is_zero(g.reserved, sizeof(g.reserved)))
        return fail_reserved("grant");
    uint32_t count = le32_get(g.count);
    if (count == 0 || count > RD_GRANT_BLOCKS_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "grant: %u blocks asked for, 1 to %u are allowed", count,
            RD_GRANT_BLOCKS_MAX);
    return 0;
}

static int check_grant_reply(const void *body, uint32_t size)
{
    struct rd_grant_reply_wire g;
    memcpy(&g, body, sizeof(g));
    if (!is_zero(g.reserved, sizeof(g.reserved)))
        return fail_reserved("grant_reply");
    uint32_t count = le32_get(g.count);
    if (count > RD_GRANT_BLOCKS_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "grant_reply: %u blocks, at most %u are allowed", count,
            RD_GRANT_BLOCKS_MAX);
    if (size != sizeof(g) + count * sizeof(struct rd_block_wire))
        return cn_fail(
            CAIRN_E_PROTOCOL, "grant_reply: %u bytes do not hold %u blocks", size, count);
    return 0;
}

static int check_word_reply(const void *body, bool answered)
{
    struct rd_word_reply_wire w;
    memcpy(&w, body, sizeof(w));
    if (!is_zero(w.reserved, sizeof(w.reserved)))
        return fail_reserved("word_reply");
    uint32_t answer = le32_get(w.answer);
    if (answer > RD_WORD_CHECKING || (answered && answer == 0))
        return cn_fail(CAIRN_E_PROTOCOL, "word_reply: unknown answer %u", answer);
    return 0;
}

/* Verdicts that a message of the type may carry, as a bit set. */
static unsigned allowed_verdicts(uint32_t type, bool answered)
{
    unsigned set = 1u << RD_VERDICT_COMMITTED | 1u << RD_VERDICT_ABORTED;
    if (type != RD_MSG_TOLD)
        set |= 1u << RD_VERDICT_FORGOTTEN;
    if (type == RD_MSG_ANSWER)
        set |= 1u << RD_VERDICT_PRESENT;
    if (type == RD_MSG_RESOLVE_REPLY)
        set |= 1u << RD_VERDICT_IN_DOUBT;
    if (!answered)
        set |= 1u << RD_VERDICT_NONE;
    return set;
}

static int check_answer(uint32_t type, const void *body, bool answered)
{
    struct rd_answer_wire a;
    memcpy(&a, body, sizeof(a));
    if (!is_zero(a.reserved, sizeof(a.reserved)))
        return fail_reserved(rd_wire_type_name(type));
    uint32_t verdict = le32_get(a.verdict);
    if (verdict > RD_VERDICT_IN_DOUBT || (allowed_verdicts(type, answered) >> verdict & 1u) == 0)
        return cn_fail(CAIRN_E_PROTOCOL, "%s: verdict %u is not one it may carry",
            rd_wire_type_name(type), verdict);
    return 0;
}

static int check_body(uint32_t type, const void *body, uint32_t size, bool answered)
{
    switch (type) {
    case RD_MSG_GRANT:
        return check_grant(body);
    case RD_MSG_GRANT_REPLY:
        return check_grant_reply(body, size);
    case RD_MSG_ROOM: {
        struct rd_room_wire r;
        memcpy(&r, body, sizeof(r));
        return is_zero(r.reserved, sizeof(r.reserved)) ? 0 : fail_reserved("room");
    }
    case RD_MSG_TABLE: {
        struct rd_table_wire t;
        memcpy(&t, body, sizeof(t));
        return is_zero(t.reserved, sizeof(t.reserved)) ? 0 : fail_reserved("table");
    }
    case RD_MSG_TABLE_REPLY: {
        struct rd_table_reply_wire t;
        memcpy(&t, body, sizeof(t));
        return is_zero(t.reserved, sizeof(t.reserved)) ? 0 : fail_reserved("table_reply");
    }
    case RD_MSG_WORD_REPLY:
        return check_word_reply(body, answered);
    case RD_MSG_RESOLVE_REPLY:
    case RD_MSG_ANSWER:
    case RD_MSG_TOLD:
        return check_answer(type, body, answered);
    case RD_MSG_PURGE: {
        struct rd_purge_wire p;
        memcpy(&p, body, sizeof(p));
        return is_zero(p.reserved, sizeof(p.reserved)) ? 0 : fail_reserved("purge");
    }
    default: /* no body, or one without reserved bytes and ranges */
        return 0;
    }
}

int rd_wire_check(const void *message, uint32_t size)
{
    struct rd_message_wire h;
    if (size < sizeof(h) || size > RD_MESSAGE_SIZE_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "message of %u bytes: %zu to %u are allowed", size,
            sizeof(h), RD_MESSAGE_SIZE_MAX);
    memcpy(&h, message, sizeof(h));
    if (le32_get(h.magic) != RD_WIRE_MAGIC)
        return cn_fail(CAIRN_E_WIRE_VERSION, "message with magic %#x, this version speaks %#x",
            le32_get(h.magic), RD_WIRE_MAGIC);
    uint32_t type = le16_get(h.type);
    if (rd_wire_body_size(type) == UINT32_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "message of unknown type %u", type);

    const struct message_kind *kind = &kinds[type];
    uint32_t body_size = le16_get(h.size);
    uint32_t status = le32_get(h.status);
    if (body_size != size - sizeof(h))
        return cn_fail(CAIRN_E_PROTOCOL, "%s: header says %u bytes of body, there are %zu",
            kind->name, body_size, size - sizeof(h));
    if (status != 0 && ((kind->flags & REPLY) == 0 || status > INT32_MAX))
        return cn_fail(CAIRN_E_PROTOCOL, "%s: status %u is not allowed", kind->name, status);
    if (status != 0 && body_size == 0)
        return 0;
    if ((kind->flags & VARIABLE) != 0 ? body_size < kind->size : body_size != kind->size)
        return cn_fail(CAIRN_E_PROTOCOL, "%s: body of %u bytes where %u are due", kind->name,
            body_size, kind->size);
    return check_body(type, (const uint8_t *)message + sizeof(h), body_size, status == 0);
}

static int check_version(const char *what, uint32_t magic, uint32_t version)
{
    if (magic != RD_WIRE_MAGIC)
        return cn_fail(CAIRN_E_WIRE_VERSION, "%s with magic %#x, this version speaks %#x", what,
            magic, RD_WIRE_MAGIC);
    if (version != RD_WIRE_VERSION)
        return cn_fail(CAIRN_E_WIRE_VERSION,
            "%s of wire version %u, this one speaks %u; run the same release on both", what,
            version, RD_WIRE_VERSION);
    return 0;
}

int rd_wire_check_hello(
    const void *hello, uint32_t size, const struct cn_uuid *cluster, uint16_t node)
{
    struct rd_hello_wire h;
    if (size != sizeof(h))
        return cn_fail(CAIRN_E_PROTOCOL, "hello of %u bytes where %zu are due", size, sizeof(h));
    memcpy(&h, hello, sizeof(h));
    int err = check_version("hello", le32_get(h.magic), le16_get(h.version));
    if (err != 0)
        return err;
    uint32_t role = le16_get(h.role);
    if (role != RD_ROLE_COORDINATOR && role != RD_ROLE_NODE && role != RD_ROLE_TOOL)
        return cn_fail(CAIRN_E_PROTOCOL, "hello with unknown role %u", role);
    if ((role == RD_ROLE_COORDINATOR) == cn_uuid_is_zero(&h.peer))
        return cn_fail(
            CAIRN_E_PROTOCOL, "hello: a session is what coordinators have, and only they");
    if ((role == RD_ROLE_NODE) == (le16_get(h.from_node) == 0))
        return cn_fail(CAIRN_E_PROTOCOL, "hello: from_node %u does not go with role %u",
            le16_get(h.from_node), role);
    bool any = role == RD_ROLE_TOOL && cn_uuid_is_zero(&h.cluster) && le16_get(h.node) == 0;
    if (any) /* a tool that was given an address only: it asks, and changes nothing */
        return 0;
    if (!cn_uuid_equal(&h.cluster, cluster)) {
        char asks[CN_UUID_TEXT_SIZE], is[CN_UUID_TEXT_SIZE];
        cn_uuid_format(&h.cluster, asks);
        cn_uuid_format(cluster, is);
        return cn_fail(CAIRN_E_WRONG_CLUSTER,
            "node %u is of cluster %s, asked for was %s; check both configurations", node, is,
            asks);
    }
    if (le16_get(h.node) != node)
        return cn_fail(CAIRN_E_WRONG_NODE,
            "the peer asks for node %u, this is node %u; check the addresses in its configuration",
            le16_get(h.node), node);
    return 0;
}

static int fail_welcome(const char *field)
{
    return cn_fail(CAIRN_E_PROTOCOL, "welcome: %s is out of range", field);
}

/* The part of a welcome that only a peer with a slot gets. */
static int check_welcome_slot(const struct rd_welcome_wire *w)
{
    uint64_t pool_size = le64_get(w->pool_size);
    uint64_t ring_off = le64_get(w->ring_off);
    uint64_t ring_size = le64_get(w->ring_size);
    uint64_t extent_off = le64_get(w->extent_off);
    uint64_t extent_end = le64_get(w->extent_end);

    if (pool_size == 0 || pool_size > INT64_MAX)
        return fail_welcome("pool_size");
    if (le64_get(w->slot_epoch) == 0)
        return fail_welcome("slot_epoch");
    if (ring_size == 0 || ring_size % 64 != 0 || ring_size > pool_size)
        return fail_welcome("ring_size");
    if (ring_off == 0 || ring_off % 64 != 0 ||
        !cn_range_inside(ring_off, RD_RING_HEADER_SIZE + ring_size, 0, pool_size))
        return fail_welcome("ring_off");
    if (le64_get(w->position_off) % 8 != 0 ||
        !cn_range_inside(le64_get(w->position_off), sizeof(struct rd_position_wire), ring_off + 64,
            RD_RING_HEADER_SIZE - 64))
        return fail_welcome("position_off");
    if (extent_off > extent_end || extent_end > pool_size)
        return fail_welcome("extent_off or extent_end");
    if (le32_get(w->window) == 0)
        return fail_welcome("window");
    if (le32_get(w->bytes_max) == 0 || le32_get(w->bytes_max) > ring_size)
        return fail_welcome("bytes_max");
    if (le16_get(w->slot) == 0 || le16_get(w->slot) > 4095) /* 12 bits of a lock word */
        return fail_welcome("slot");
    if (le16_get(w->tag) == 0 || le16_get(w->tag) > 2047) /* 11 bits of a lock word */
        return fail_welcome("tag");
    if (w->chunk_shift < 12 || w->chunk_shift > 40)
        return fail_welcome("chunk_shift");
    if (le32_get(w->lease_ms) == 0)
        return fail_welcome("lease_ms");
    if (w->durability == 0)
        return fail_welcome("durability");
    return 0;
}

int rd_wire_check_welcome(const void *welcome, uint32_t size, uint16_t node, bool slot)
{
    struct rd_welcome_wire w;
    if (size != sizeof(w))
        return cn_fail(CAIRN_E_PROTOCOL, "welcome of %u bytes where %zu are due", size, sizeof(w));
    memcpy(&w, welcome, sizeof(w));
    int err = check_version("welcome", le32_get(w.magic), le16_get(w.version));
    if (err != 0)
        return err;
    if (le16_get(w.node) != node)
        return cn_fail(CAIRN_E_PROTOCOL, "welcome of node %u where node %u is due",
            le16_get(w.node), node);
    if (!is_zero(w.reserved0, sizeof(w.reserved0)) || !is_zero(w.reserved, sizeof(w.reserved)))
        return fail_reserved("welcome");
    if (cn_uuid_is_zero(&w.pool))
        return fail_welcome("pool");
    if (le64_get(w.incarnation) == 0)
        return fail_welcome("incarnation");
    if (w.durability > RD_DURABILITY_EADR)
        return fail_welcome("durability");
    if (slot)
        return check_welcome_slot(&w);
    if (le64_get(w.slot_epoch) != 0 || le64_get(w.nonce) != 0 || le64_get(w.ring_off) != 0 ||
        le64_get(w.ring_size) != 0 || le64_get(w.position_off) != 0 || le32_get(w.window) != 0 ||
        le16_get(w.slot) != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "welcome: names a slot where none was asked for");
    return 0;
}

/* A code that another process may hand us as an error: one of ours, or an errno. */
static bool is_error(int code)
{
    static const int errors[] = {
#define RD_X(name, value, text) value,
        CAIRN_ERRORS(RD_X)
#undef RD_X
    };
    if (code < 0 && code >= -4095)
        return true;
    for (size_t i = 0; i < CN_ARRAY_SIZE(errors); i++) {
        if (errors[i] == code)
            return true;
    }
    return false;
}

int rd_wire_refusal(const void *refusal, uint32_t size)
{
    struct rd_refusal_wire r;
    if (size != sizeof(r))
        return cn_fail(CAIRN_E_PROTOCOL, "refusal of %u bytes where %zu are due", size, sizeof(r));
    memcpy(&r, refusal, sizeof(r));
    if (le32_get(r.magic) != RD_WIRE_MAGIC)
        return cn_fail(CAIRN_E_WIRE_VERSION, "refusal with magic %#x, this version speaks %#x",
            le32_get(r.magic), RD_WIRE_MAGIC);
    uint32_t error = le32_get(r.error);
    if (error > INT32_MAX || !is_error(-(int)error))
        return cn_fail(CAIRN_E_PROTOCOL, "refusal with unknown error %u", error);
    if (memchr(r.text, 0, sizeof(r.text)) == NULL)
        return cn_fail(CAIRN_E_PROTOCOL, "refusal whose text does not end");
    for (char *p = r.text; *p != 0; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?'; /* it goes to logs and terminals */
    }
    return cn_fail(-(int)error, "%s", r.text);
}

void rd_wire_make_refusal(struct rd_refusal_wire *refusal, int error, const char *text)
{
    CAIRN_ASSERT(error < 0);
    memset(refusal, 0, sizeof(*refusal));
    refusal->magic = le32_make(RD_WIRE_MAGIC);
    refusal->error = le32_make((uint32_t)-error);
    (void)snprintf(refusal->text, sizeof(refusal->text), "%s", text);
}
