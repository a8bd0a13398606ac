/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every checker refuses every broken field and accepts what is right.
 * Method: a good struct, broken in one field at a time; all sizes; random bytes.
 * Invariants: the error is the one the header names; nothing behind the given size is read (the
 * bytes lie at the end of an exact allocation, so a sanitizer sees it).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "include/internal/cn_base.h"
#include "rdma/rd.h"
#include "rdma/rd_wire.h"

static const struct cn_uuid cluster = {{1, 2, 3}};

/* ---- hello ---- */

static struct rd_hello_wire good_hello(void)
{
    return (struct rd_hello_wire){
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make(RD_ROLE_COORDINATOR),
        .cluster = cluster,
        .peer = {{9}},
        .view = le32_make(1),
        .node = le16_make(7),
    };
}

static int check_hello(const struct rd_hello_wire *h)
{
    return rd_wire_check_hello(h, sizeof(*h), &cluster, 7);
}

static void check_hello__each_role__accepted(void **state)
{
    (void)state;
    struct rd_hello_wire h = good_hello();
    assert_int_equal(check_hello(&h), 0);
    memset(&h.peer, 0, sizeof(h.peer));
    h.role = le16_make(RD_ROLE_TOOL);
    assert_int_equal(check_hello(&h), 0);
    h.role = le16_make(RD_ROLE_NODE);
    h.from_node = le16_make(3);
    assert_int_equal(check_hello(&h), 0);
}

/* Who only has an address asks whoever answers; nobody with a part in transactions may. */
static void check_hello__no_cluster_and_node__tools_only(void **state)
{
    (void)state;
    struct rd_hello_wire h = good_hello();
    memset(&h.cluster, 0, sizeof(h.cluster));
    h.node = le16_make(0);
    assert_int_equal(check_hello(&h), CAIRN_E_WRONG_CLUSTER);
    memset(&h.peer, 0, sizeof(h.peer));
    h.role = le16_make(RD_ROLE_TOOL);
    assert_int_equal(check_hello(&h), 0);
    h.node = le16_make(8);
    assert_int_equal(check_hello(&h), CAIRN_E_WRONG_CLUSTER);
    h.role = le16_make(RD_ROLE_NODE);
    h.node = le16_make(0);
    h.from_node = le16_make(3);
    assert_int_equal(check_hello(&h), CAIRN_E_WRONG_CLUSTER);
}

static void check_hello__each_field_broken__its_error(void **state)
{
    (void)state;
    for (int i = 0; i < 11; i++) {
        struct rd_hello_wire h = good_hello();
        int expected = CAIRN_E_PROTOCOL;
        switch (i) {
        case 0: h.magic = le32_make(RD_WIRE_MAGIC + 1); expected = CAIRN_E_WIRE_VERSION; break;
        case 1: h.version = le16_make(RD_WIRE_VERSION + 1); expected = CAIRN_E_WIRE_VERSION; break;
        case 2: h.role = le16_make(0); break;
        case 3: h.role = le16_make(4); break;
        case 4: h.cluster.b[15] ^= 1; expected = CAIRN_E_WRONG_CLUSTER; break;
        case 5: h.node = le16_make(8); expected = CAIRN_E_WRONG_NODE; break;
        case 6: memset(&h.peer, 0, sizeof(h.peer)); break;
        case 7: h.role = le16_make(RD_ROLE_TOOL); break; /* with a session */
        case 8: h.from_node = le16_make(1); break;
        case 9: /* a node without a number */
            h.role = le16_make(RD_ROLE_NODE);
            memset(&h.peer, 0, sizeof(h.peer));
            break;
        case 10: h.version = le16_make(0); expected = CAIRN_E_WIRE_VERSION; break;
        }
        assert_int_equal(check_hello(&h), expected);
    }
}

static void check_hello__other_sizes__protocol(void **state)
{
    (void)state;
    uint8_t buf[64] = {0};
    struct rd_hello_wire h = good_hello();
    memcpy(buf, &h, sizeof(h));
    for (uint32_t size = 0; size <= sizeof(buf); size++) {
        if (size != sizeof(h))
            assert_int_equal(rd_wire_check_hello(buf, size, &cluster, 7), CAIRN_E_PROTOCOL);
    }
}

/* ---- welcome ---- */

static struct rd_welcome_wire good_welcome(void)
{
    return (struct rd_welcome_wire){
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .node = le16_make(7),
        .pool = {{5}},
        .incarnation = le64_make(3),
        .slot_epoch = le64_make(4),
        .nonce = le64_make(99),
        .ring_off = le64_make(0x100000),
        .ring_size = le64_make(0x1ff000),
        .position_off = le64_make(0x100040),
        .pool_size = le64_make(0x4000000),
        .extent_off = le64_make(0x400000),
        .extent_end = le64_make(0x4000000),
        .window = le32_make(1024),
        .slot = le16_make(1),
        .tag = le16_make(4),
        .view = le32_make(1),
        .lease_ms = le32_make(5000),
        .chunk_shift = 21,
        .durability = RD_DURABILITY_EMULATED,
        .bytes_max = le32_make(0x10000),
    };
}

static void break_welcome(struct rd_welcome_wire *w, int how)
{
    switch (how) {
    case 0: w->node = le16_make(8); break;
    case 1: memset(&w->pool, 0, sizeof(w->pool)); break;
    case 2: w->incarnation = le64_make(0); break;
    case 3: w->slot_epoch = le64_make(0); break;
    case 4: w->ring_off = le64_make(0x100008); break;
    case 5: w->ring_off = le64_make(0x4000000); break;
    case 6: w->ring_off = le64_make(UINT64_MAX - 63); break;
    case 7: w->ring_off = le64_make(0); break;
    case 8: w->ring_size = le64_make(0); break;
    case 9: w->ring_size = le64_make(0x1ff001); break;
    case 10: w->ring_size = le64_make(0x4000000); break;
    case 11: w->ring_size = le64_make(UINT64_MAX - 63); break;
    case 12: w->position_off = le64_make(0x100044); break;
    case 13: w->position_off = le64_make(0x100000); break; /* the fabric's part */
    case 14: w->position_off = le64_make(0x101000 - 8); break;
    case 15: w->position_off = le64_make(UINT64_MAX - 7); break;
    case 16: w->pool_size = le64_make(0); break;
    case 17: w->pool_size = le64_make(UINT64_MAX); break;
    case 18: w->extent_off = le64_make(0x4000001); break;
    case 19: w->extent_end = le64_make(0x4000001); break;
    case 20: w->extent_end = le64_make(0x3fffff); break;
    case 21: w->window = le32_make(0); break;
    case 22: w->slot = le16_make(0); break;
    case 23: w->slot = le16_make(4096); break;
    case 24: w->tag = le16_make(0); break;
    case 25: w->tag = le16_make(2048); break;
    case 26: w->lease_ms = le32_make(0); break;
    case 27: w->chunk_shift = 11; break;
    case 28: w->chunk_shift = 64; break;
    case 29: w->durability = 0; break;
    case 30: w->durability = 5; break;
    case 31: w->reserved0[1] = 1; break;
    case 32: w->reserved[0] = 1; break;
    case 33: w->reserved[47] = 1; break;
    case 34: w->bytes_max = le32_make(0); break;
    case 35: w->bytes_max = le32_make(0x1ff001); break;
    }
}
#define WELCOME_BREAKS 36

static void check_welcome__each_field_broken__protocol(void **state)
{
    (void)state;
    struct rd_welcome_wire w = good_welcome();
    assert_int_equal(rd_wire_check_welcome(&w, sizeof(w), 7, true), 0);
    for (int how = 0; how < WELCOME_BREAKS; how++) {
        w = good_welcome();
        break_welcome(&w, how);
        assert_int_equal(rd_wire_check_welcome(&w, sizeof(w), 7, true), CAIRN_E_PROTOCOL);
    }
    w = good_welcome();
    w.magic = le32_make(0);
    assert_int_equal(rd_wire_check_welcome(&w, sizeof(w), 7, true), CAIRN_E_WIRE_VERSION);
    w = good_welcome();
    w.version = le16_make(2);
    assert_int_equal(rd_wire_check_welcome(&w, sizeof(w), 7, true), CAIRN_E_WIRE_VERSION);
    for (uint32_t size = 0; size < sizeof(w); size++)
        assert_int_equal(rd_wire_check_welcome(&w, size, 7, true), CAIRN_E_PROTOCOL);
}

static void check_welcome__without_slot__slot_fields_must_be_zero(void **state)
{
    (void)state;
    struct rd_welcome_wire good = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .node = le16_make(7),
        .pool = {{5}},
        .incarnation = le64_make(3),
    };
    assert_int_equal(rd_wire_check_welcome(&good, sizeof(good), 7, false), 0);
    assert_int_equal(rd_wire_check_welcome(&good, sizeof(good), 7, true), CAIRN_E_PROTOCOL);
    for (int i = 0; i < 7; i++) {
        struct rd_welcome_wire w = good;
        switch (i) {
        case 0: w.slot_epoch = le64_make(1); break;
        case 1: w.nonce = le64_make(1); break;
        case 2: w.ring_off = le64_make(1); break;
        case 3: w.ring_size = le64_make(1); break;
        case 4: w.position_off = le64_make(1); break;
        case 5: w.window = le32_make(1); break;
        case 6: w.slot = le16_make(1); break;
        }
        assert_int_equal(rd_wire_check_welcome(&w, sizeof(w), 7, false), CAIRN_E_PROTOCOL);
    }
}

/* ---- refusal ---- */

static void refusal__made_and_read__same_error_and_text(void **state)
{
    (void)state;
    struct rd_refusal_wire r;
    char text[200];
    rd_wire_make_refusal(&r, CAIRN_E_SLOTS, "all 63 slots are taken");
    assert_int_equal(rd_wire_refusal(&r, sizeof(r)), CAIRN_E_SLOTS);
    assert_non_null(strstr(cairn_last_error(), "all 63 slots are taken"));
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    rd_wire_make_refusal(&r, -5, text); /* cut */
    assert_int_equal(rd_wire_refusal(&r, sizeof(r)), -5);
}

static void refusal__hostile__protocol(void **state)
{
    (void)state;
    struct rd_refusal_wire r;
    const uint32_t bad_errors[] = {0, 4096, 19999, 20099, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad_errors); i++) {
        rd_wire_make_refusal(&r, CAIRN_E_SLOTS, "x");
        r.error = le32_make(bad_errors[i]);
        assert_int_equal(rd_wire_refusal(&r, sizeof(r)), CAIRN_E_PROTOCOL);
    }
    rd_wire_make_refusal(&r, CAIRN_E_SLOTS, "x");
    r.magic = le32_make(1);
    assert_int_equal(rd_wire_refusal(&r, sizeof(r)), CAIRN_E_WIRE_VERSION);
    rd_wire_make_refusal(&r, CAIRN_E_SLOTS, "x");
    memset(r.text, 'y', sizeof(r.text));
    assert_int_equal(rd_wire_refusal(&r, sizeof(r)), CAIRN_E_PROTOCOL);
    for (uint32_t size = 0; size < sizeof(r); size++)
        assert_int_equal(rd_wire_refusal(&r, size), CAIRN_E_PROTOCOL);
    rd_wire_make_refusal(&r, CAIRN_E_SLOTS, "a\x1b[31m%s%n");
    assert_int_equal(rd_wire_refusal(&r, sizeof(r)), CAIRN_E_SLOTS);
    assert_non_null(strstr(cairn_last_error(), "a?[31m%s%n"));
}

/* ---- messages ---- */

struct message {
    struct rd_message_wire header;
    uint8_t body[RD_MESSAGE_SIZE_MAX];
};

static uint32_t make(struct message *m, uint32_t type, uint32_t body_size)
{
    memset(m, 0, sizeof(*m));
    m->header.magic = le32_make(RD_WIRE_MAGIC);
    m->header.type = le16_make((uint16_t)type);
    m->header.size = le16_make((uint16_t)body_size);
    m->header.id = le32_make(1234);
    return (uint32_t)sizeof(m->header) + body_size;
}

/* Check in an allocation of just that size. */
static int check(const struct message *m, uint32_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    assert_non_null(exact);
    memcpy(exact, m, size);
    int err = rd_wire_check(exact, size);
    free(exact);
    return err;
}

static bool is_reply(uint32_t type)
{
    return strstr(rd_wire_type_name(type), "_reply") != NULL || type == RD_MSG_PONG ||
           type == RD_MSG_ANSWER;
}

/* A message of the type that passes. */
static uint32_t make_good(struct message *m, uint32_t type)
{
    uint32_t size = make(m, type, rd_wire_body_size(type));
    if (type == RD_MSG_GRANT)
        ((struct rd_grant_wire *)(void *)m->body)->count = le32_make(1);
    if (type == RD_MSG_WORD_REPLY)
        m->body[0] = RD_WORD_ALIVE;
    if (type == RD_MSG_RESOLVE_REPLY || type == RD_MSG_ANSWER || type == RD_MSG_TOLD)
        ((struct rd_answer_wire *)(void *)m->body)->verdict = le32_make(RD_VERDICT_ABORTED);
    return size;
}

static void check__every_type__good_passes_broken_header_fails(void **state)
{
    (void)state;
    static struct message m;
    for (uint32_t type = 1; type < RD_MSG_TYPE_COUNT; type++) {
        uint32_t size = make_good(&m, type);
        assert_int_equal(check(&m, size), 0);
        assert_string_not_equal(rd_wire_type_name(type), "unknown");
        m.header.magic = le32_make(RD_WIRE_MAGIC ^ 0x100);
        assert_int_equal(check(&m, size), CAIRN_E_WIRE_VERSION);
        size = make_good(&m, type);
        m.header.size = le16_make((uint16_t)(le16_get(m.header.size) + 1));
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
        size = make_good(&m, type);
        if (size > sizeof(m.header))
            assert_int_equal(check(&m, size - 1), CAIRN_E_PROTOCOL);
        m.header.size = le16_make((uint16_t)(le16_get(m.header.size) + 1));
        assert_int_equal(check(&m, size + 1), type == RD_MSG_STATS_REPLY ? 0 : CAIRN_E_PROTOCOL);
        size = make_good(&m, type);
        m.header.status = le32_make(20000);
        assert_int_equal(check(&m, size), is_reply(type) ? 0 : CAIRN_E_PROTOCOL);
        m.header.status = le32_make(0x80000000);
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
        size = make(&m, type, 0); /* an error needs no body */
        m.header.status = le32_make(20000);
        assert_int_equal(check(&m, size), is_reply(type) ? 0 : CAIRN_E_PROTOCOL);
    }
}

static void check__unknown_types_and_sizes__protocol(void **state)
{
    (void)state;
    static struct message m;
    const uint32_t types[] = {0, RD_MSG_TYPE_COUNT, 0xffff};
    for (size_t i = 0; i < CN_ARRAY_SIZE(types); i++) {
        uint32_t size = make(&m, types[i], 0);
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
        assert_int_equal(rd_wire_body_size(types[i]), UINT32_MAX);
        assert_string_equal(rd_wire_type_name(types[i]), "unknown");
    }
    uint32_t size = make(&m, RD_MSG_PING, 0);
    for (uint32_t s = 0; s < size; s++)
        assert_int_equal(check(&m, s), CAIRN_E_PROTOCOL);
    size = make(&m, RD_MSG_STATS_REPLY, RD_MESSAGE_SIZE_MAX - 16);
    assert_int_equal(check(&m, size), 0);
    size = make(&m, RD_MSG_STATS_REPLY, RD_MESSAGE_SIZE_MAX - 15);
    assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
}

static void check__reserved_bytes__protocol(void **state)
{
    (void)state;
    static struct message m;
    const struct { uint32_t type, off, size; } reserved[] = {
        {RD_MSG_GRANT, offsetof(struct rd_grant_wire, reserved), 3},
        {RD_MSG_GRANT_REPLY, offsetof(struct rd_grant_reply_wire, reserved), 4},
        {RD_MSG_ROOM, offsetof(struct rd_room_wire, reserved), 4},
        {RD_MSG_TABLE, offsetof(struct rd_table_wire, reserved), 4},
        {RD_MSG_TABLE_REPLY, offsetof(struct rd_table_reply_wire, reserved), 4},
        {RD_MSG_WORD_REPLY, offsetof(struct rd_word_reply_wire, reserved), 4},
        {RD_MSG_RESOLVE_REPLY, offsetof(struct rd_answer_wire, reserved), 4},
        {RD_MSG_ANSWER, offsetof(struct rd_answer_wire, reserved), 4},
        {RD_MSG_TOLD, offsetof(struct rd_answer_wire, reserved), 4},
        {RD_MSG_PURGE, offsetof(struct rd_purge_wire, reserved), 6},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(reserved); i++) {
        for (uint32_t b = 0; b < reserved[i].size; b++) {
            uint32_t size = make_good(&m, reserved[i].type);
            m.body[reserved[i].off + b] = 1;
            assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
        }
    }
}

static void check__grant_counts__bounded(void **state)
{
    (void)state;
    static struct message m;
    const uint32_t bad[] = {0, RD_GRANT_BLOCKS_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        uint32_t size = make(&m, RD_MSG_GRANT, sizeof(struct rd_grant_wire));
        ((struct rd_grant_wire *)(void *)m.body)->count = le32_make(bad[i]);
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
    }
    for (uint32_t count = 0; count <= RD_GRANT_BLOCKS_MAX + 1; count++) {
        uint32_t size = make(&m, RD_MSG_GRANT_REPLY, 8 + count * 16);
        struct rd_grant_reply_wire *reply = (void *)m.body;
        reply->count = le32_make(count);
        assert_int_equal(check(&m, size), count <= RD_GRANT_BLOCKS_MAX ? 0 : CAIRN_E_PROTOCOL);
        reply->count = le32_make(count + 1);
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
    }
    uint32_t size = make(&m, RD_MSG_GRANT_REPLY, 8 + 16);
    ((struct rd_grant_reply_wire *)(void *)m.body)->count = le32_make(0x10000001); /* wraps * 16 */
    assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
}

static void check__answers_and_verdicts__only_those_of_the_type(void **state)
{
    (void)state;
    static struct message m;
    for (uint32_t answer = 0; answer < 8; answer++) {
        uint32_t size = make_good(&m, RD_MSG_WORD_REPLY);
        m.body[0] = (uint8_t)answer;
        assert_int_equal(check(&m, size), answer >= 1 && answer <= 5 ? 0 : CAIRN_E_PROTOCOL);
    }
    const struct { uint32_t type; const char *allowed; } verdicts[] = {
        {RD_MSG_ANSWER, "0111100000"}, /* NONE, COMMITTED, ABORTED, PRESENT, FORGOTTEN, IN_DOUBT */
        {RD_MSG_RESOLVE_REPLY, "0110110000"},
        {RD_MSG_TOLD, "0110000000"},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(verdicts); i++) {
        for (uint32_t verdict = 0; verdict < 10; verdict++) {
            uint32_t size = make_good(&m, verdicts[i].type);
            ((struct rd_answer_wire *)(void *)m.body)->verdict = le32_make(verdict);
            assert_int_equal(check(&m, size),
                verdicts[i].allowed[verdict] == '1' ? 0 : CAIRN_E_PROTOCOL);
        }
        uint32_t size = make_good(&m, verdicts[i].type);
        ((struct rd_answer_wire *)(void *)m.body)->verdict = le32_make(UINT32_MAX);
        assert_int_equal(check(&m, size), CAIRN_E_PROTOCOL);
    }
}

static void check__random_bytes__never_more_than_an_error(void **state)
{
    (void)state;
    static struct message m;
    uint64_t x = 12345;
    for (int i = 0; i < 20000; i++) {
        x += UINT64_C(0x9e3779b97f4a7c15);
        uint32_t type = (uint32_t)(cn_mix64(x) % (RD_MSG_TYPE_COUNT + 2));
        uint32_t size = make(&m, type, (uint32_t)(cn_mix64(x + 1) % 80));
        for (uint32_t b = 0; b < 8; b++)
            ((uint8_t *)&m)[cn_mix64(x + 2 + b) % size] = (uint8_t)cn_mix64(x + 20 + b);
        int err = check(&m, size);
        assert_true(err == 0 || err == CAIRN_E_PROTOCOL || err == CAIRN_E_WIRE_VERSION);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_hello__each_role__accepted),
        cmocka_unit_test(check_hello__no_cluster_and_node__tools_only),
        cmocka_unit_test(check_hello__each_field_broken__its_error),
        cmocka_unit_test(check_hello__other_sizes__protocol),
        cmocka_unit_test(check_welcome__each_field_broken__protocol),
        cmocka_unit_test(check_welcome__without_slot__slot_fields_must_be_zero),
        cmocka_unit_test(refusal__made_and_read__same_error_and_text),
        cmocka_unit_test(refusal__hostile__protocol),
        cmocka_unit_test(check__every_type__good_passes_broken_header_fails),
        cmocka_unit_test(check__unknown_types_and_sizes__protocol),
        cmocka_unit_test(check__reserved_bytes__protocol),
        cmocka_unit_test(check__grant_counts__bounded),
        cmocka_unit_test(check__answers_and_verdicts__only_those_of_the_type),
        cmocka_unit_test(check__random_bytes__never_more_than_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
