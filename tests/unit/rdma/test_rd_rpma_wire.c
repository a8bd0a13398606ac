/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: nothing hostile in private data or in a frame passes the checkers, and everything right
 * does.
 * Method: a good specimen of each struct; a table of mutations, each of one field, with the error
 * it must give; every size from 0 up, the bytes behind it unreadable; random bytes.
 * Invariants: outputs are untouched on failure; nothing is read behind the given size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/mman.h>

#include "rdma/rd_rpma.h"

#define PAGE 4096u

/* ---- data that ends where the readable memory ends ---- */

static uint8_t *guard; /* of two pages before an unreadable one */

static int map_guard(void **state)
{
    (void)state;
    guard = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return guard == MAP_FAILED ? -1 : mprotect(guard + 2 * PAGE, PAGE, PROT_NONE);
}

static const uint8_t *at_end(const void *data, uint32_t size)
{
    assert_true(size <= 2 * PAGE);
    uint8_t *to = guard + 2 * PAGE - size;
    memcpy(to, data, size);
    return to;
}

struct mutation {
    uint32_t off, size; /* little-endian field ... */
    uint64_t value;     /* ... set to this */
    int error;          /* 0: still fine */
};

static void mutate(uint8_t *data, const struct mutation *m)
{
    struct le64 value = le64_make(m->value);
    memcpy(data + m->off, &value, m->size);
}

#define FIELD(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
#define BYTE(type, field, n) offsetof(struct type, field) + (n), 1
#define BAD CAIRN_E_PROTOCOL

/* ---- private data ---- */

static struct rd_rpma_cm_wire good_cm(uint8_t channel)
{
    bool first = channel == RD_RPMA_CHANNEL_FIRST;
    return (struct rd_rpma_cm_wire){
        .magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION),
        .channel = channel,
        .index = channel == RD_RPMA_CHANNEL_FURTHER ? 3 : 0,
        .cookie = le64_make(first ? 0 : 77),
        .beat_addr = le64_make(first ? 0x7f0000001000 : 0),
        .beat_rkey = le32_make(first ? 5 : 0),
    };
}

static void check_cm(const void *data, uint32_t size, int error)
{
    struct rd_rpma_cm_wire out, before;
    memset(&out, 0xee, sizeof(out));
    before = out;
    int err = rd_rpma_check_cm(at_end(data, size), size, &out);
    if (err != error)
        print_error("%s\n", err != 0 ? cairn_last_error() : "passed");
    assert_int_equal(err, error);
    if (err == 0)
        assert_memory_equal(&out, data, sizeof(out));
    else
        assert_memory_equal(&out, &before, sizeof(out));
}

static void check_cm__good__copied_out(void **state)
{
    (void)state;
    for (uint8_t channel = RD_RPMA_CHANNEL_FIRST; channel <= RD_RPMA_CHANNEL_LOG; channel++) {
        uint8_t padded[196] = {0};
        struct rd_rpma_cm_wire wire = good_cm(channel);
        check_cm(&wire, sizeof(wire), 0);
        memcpy(padded, &wire, sizeof(wire)); /* as rdma_cm shows it */
        check_cm(padded, 56, 0);
        check_cm(padded, sizeof(padded), 0);
    }
}

static void check_cm__mutations__refused(void **state)
{
    (void)state;
#define CM(field) FIELD(rd_rpma_cm_wire, field)
    static const struct { uint8_t channel; struct mutation m; } table[] = {
        {1, {CM(magic), 0x31574e43, CAIRN_E_WIRE_VERSION}},
        {1, {CM(magic), 0, CAIRN_E_WIRE_VERSION}},
        {1, {CM(version), 0, CAIRN_E_WIRE_VERSION}},
        {1, {CM(version), 2, CAIRN_E_WIRE_VERSION}},
        {1, {CM(version), 0x100, CAIRN_E_WIRE_VERSION}},
        {1, {CM(channel), 0, BAD}},
        {1, {CM(channel), 4, BAD}},
        {1, {CM(channel), 255, BAD}},
        {1, {CM(channel), RD_RPMA_CHANNEL_LOG, BAD}}, /* a beat does not belong there */
        {1, {CM(index), 1, BAD}},
        {1, {CM(cookie), UINT64_MAX, 0}}, /* the answer to FIRST */
        {1, {CM(beat_addr), 0, BAD}},
        {1, {CM(beat_addr), 0x1001, BAD}},
        {1, {CM(beat_addr), 0x1004, BAD}},
        {1, {CM(beat_addr), UINT64_MAX - 7, BAD}},
        {1, {CM(beat_rkey), 0, 0}},
        {1, {CM(error), 1, BAD}},
        {1, {CM(error), 19999, BAD}},
        {1, {CM(error), 21000, BAD}},
        {1, {CM(error), UINT32_MAX, BAD}},
        {1, {CM(error), 20036, 0}},
        {1, {BYTE(rd_rpma_cm_wire, reserved, 0), 1, BAD}},
        {1, {BYTE(rd_rpma_cm_wire, reserved, 15), 128, BAD}},
        {2, {CM(index), 0, BAD}},
        {2, {CM(index), 1, 0}},
        {2, {CM(index), 7, 0}},
        {2, {CM(index), 8, BAD}},
        {2, {CM(index), 255, BAD}},
        {2, {CM(cookie), 0, BAD}},
        {2, {CM(beat_addr), 0x1000, BAD}},
        {2, {CM(beat_rkey), 1, BAD}},
        {3, {CM(index), 1, BAD}},
        {3, {CM(cookie), 0, BAD}},
        {3, {CM(beat_addr), 8, BAD}},
        {3, {CM(beat_rkey), 1, BAD}},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        struct rd_rpma_cm_wire wire = good_cm(table[i].channel);
        mutate((uint8_t *)&wire, &table[i].m);
        check_cm(&wire, sizeof(wire), table[i].m.error);
    }
}

static void check_cm__reject__needs_only_its_reason(void **state)
{
    (void)state;
    struct rd_rpma_cm_wire wire = good_cm(RD_RPMA_CHANNEL_LOG);
    wire.cookie = le64_make(0);
    check_cm(&wire, sizeof(wire), BAD);
    wire.error = le32_make(20020);
    check_cm(&wire, sizeof(wire), 0);
}

static void check_cm__sizes_and_padding__checked(void **state)
{
    (void)state;
    uint8_t padded[56] = {0};
    struct rd_rpma_cm_wire wire = good_cm(RD_RPMA_CHANNEL_FIRST), out;
    for (uint32_t size = 0; size < sizeof(wire); size++)
        check_cm(&wire, size, BAD);
    assert_int_equal(rd_rpma_check_cm(NULL, 0, &out), BAD);
    assert_int_equal(rd_rpma_check_cm(NULL, 56, &out), BAD);
    for (uint32_t at = sizeof(wire); at < sizeof(padded); at++) {
        memset(padded, 0, sizeof(padded));
        memcpy(padded, &wire, sizeof(wire));
        padded[at] = 1;
        check_cm(padded, sizeof(padded), BAD);
    }
}

/* ---- frames ---- */

static uint32_t make_frame(uint8_t *frame, uint32_t type, uint32_t count, uint32_t size)
{
    const struct rd_rpma_frame_wire head = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .type = le16_make((uint16_t)type),
        .count = le16_make((uint16_t)count),
        .size = le32_make(size),
    };
    memset(frame, 0x5a, sizeof(head) + size);
    memcpy(frame, &head, sizeof(head));
    return (uint32_t)sizeof(head) + size;
}

static void check_frame(const uint8_t *frame, uint32_t size, int error)
{
    struct rd_rpma_frame_wire out, before;
    memset(&out, 0xee, sizeof(out));
    before = out;
    int err = rd_rpma_check_frame(at_end(frame, size), size, &out);
    if (err != error)
        print_error("%s\n", err != 0 ? cairn_last_error() : "passed");
    assert_int_equal(err, error);
    assert_memory_equal(&out, err == 0 ? (const void *)frame : (const void *)&before, sizeof(out));
}

static void check_frame__sizes_of_every_type__exact(void **state)
{
    (void)state;
    static const struct { uint32_t type, count, size; int error; } table[] = {
        {RD_RPMA_HELLO, 0, 0, 0},
        {RD_RPMA_HELLO, 0, RD_HELLO_SIZE_MAX, 0},
        {RD_RPMA_HELLO, 0, RD_HELLO_SIZE_MAX + 1, BAD},
        {RD_RPMA_HELLO, 1, 24, BAD},
        {RD_RPMA_ACCEPT, 0, 79, BAD},
        {RD_RPMA_ACCEPT, 0, 80, 0},
        {RD_RPMA_ACCEPT, 0, RD_RPMA_PAYLOAD_MAX, 0},
        {RD_RPMA_REJECT, 0, 0, 0},
        {RD_RPMA_REJECT, 0, RD_WELCOME_SIZE_MAX, 0},
        {RD_RPMA_REJECT, 0, RD_WELCOME_SIZE_MAX + 1, BAD},
        {RD_RPMA_READY, 0, 0, 0},
        {RD_RPMA_READY, 0, 1, BAD},
        {RD_RPMA_MESSAGE, 0, 0, BAD},
        {RD_RPMA_MESSAGE, 0, 1, 0},
        {RD_RPMA_MESSAGE, 0, RD_MESSAGE_SIZE_MAX, 0},
        {RD_RPMA_MESSAGE, 0, RD_MESSAGE_SIZE_MAX + 1, BAD},
        {RD_RPMA_MESSAGE, 1, 1, BAD},
        {RD_RPMA_BELL, 0, 0, 0},
        {RD_RPMA_BELL, 0, 8, BAD},
        {RD_RPMA_PERSIST, 0, 0, BAD},
        {RD_RPMA_PERSIST, 1, 24, 0},
        {RD_RPMA_PERSIST, 2, 24, BAD},
        {RD_RPMA_PERSIST, 1, 48, BAD},
        {RD_RPMA_PERSIST, 1, 25, BAD},
        {RD_RPMA_PERSIST, 170, 4080, 0},
        {RD_RPMA_PERSIST, 65535, 4080, BAD},
        {RD_RPMA_PERSISTED, 170, 4080, 0},
        {RD_RPMA_PERSISTED, 0, 24, BAD},
        {RD_RPMA_CAS, 128, 4096, 0},
        {RD_RPMA_CAS, 129, 4096, BAD},
        {RD_RPMA_CAS, 1, 24, BAD},
        {RD_RPMA_CAS_DONE, 128, 3072, 0},
        {RD_RPMA_CAS_DONE, 1, 32, BAD},
        {RD_RPMA_CREDIT, 0, 0, 0},
        {RD_RPMA_CREDIT, 1, 0, BAD},
        {RD_RPMA_CREDIT, 0, 4, BAD},
        {0, 0, 0, BAD},
        {RD_RPMA_FRAME_TYPE_COUNT, 0, 0, BAD},
        {0xffff, 0, 0, BAD},
    };
    static uint8_t frame[2 * PAGE];
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        uint32_t size = make_frame(frame, table[i].type, table[i].count, table[i].size);
        check_frame(frame, size, table[i].error);
    }
}

static void check_frame__mutations__refused(void **state)
{
    (void)state;
#define HEAD(field) FIELD(rd_rpma_frame_wire, field)
    static const struct mutation table[] = {
        {HEAD(magic), 0, BAD},
        {HEAD(magic), 0x31524e44, BAD},
        {HEAD(type), 0, BAD},
        {HEAD(type), 0x0105, BAD},
        {HEAD(count), 1, BAD},
        {HEAD(size), 0, BAD},
        {HEAD(size), 99, BAD},
        {HEAD(size), 101, BAD},
        {HEAD(size), UINT32_MAX, BAD},
        {HEAD(size), UINT32_MAX - 15, BAD},
        {HEAD(returned), 1, 0}, /* what was sent is for the receiver to know */
        {HEAD(returned), UINT32_MAX, 0},
    };
    uint8_t frame[256];
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        uint32_t size = make_frame(frame, RD_RPMA_MESSAGE, 0, 100);
        check_frame(frame, size, 0);
        mutate(frame, &table[i]);
        check_frame(frame, size, table[i].error);
    }
}

static void check_frame__truncated_or_longer__refused(void **state)
{
    (void)state;
    static uint8_t frame[2 * PAGE];
    uint32_t size = make_frame(frame, RD_RPMA_MESSAGE, 0, 100);
    for (uint32_t n = 0; n < 2 * size; n++)
        check_frame(frame, n, n == size ? 0 : BAD);
    check_frame(frame, RD_RPMA_FRAME_SIZE_MAX + 1, BAD);
}

static void frame_name__every_type__named(void **state)
{
    (void)state;
    for (uint32_t type = 1; type < RD_RPMA_FRAME_TYPE_COUNT; type++)
        assert_string_not_equal(rd_rpma_frame_name(type), "unknown");
    assert_string_equal(rd_rpma_frame_name(RD_RPMA_PERSIST), "persist");
    assert_string_equal(rd_rpma_frame_name(0), "unknown");
    assert_string_equal(rd_rpma_frame_name(UINT32_MAX), "unknown");
}

/* ---- accept ---- */

#define RING_OFF 0x40000u
#define RING_SIZE 0x10000u

struct grant { /* an accept payload of two extents and a welcome of 8 bytes */
    struct rd_rpma_accept_wire accept;
    struct rd_rpma_region_wire region[2];
    uint8_t welcome[8];
};

static struct grant good_grant(void)
{
    struct grant g = {
        .accept = {.region_count = le32_make(2),
            .welcome_size = le32_make(8),
            .linger_us = le32_make(200),
            .durability = RD_DURABILITY_GPSPM,
            .descriptor_size = 21,
            .ring_off = le64_make(RING_OFF),
            .ring_size = le64_make(RING_SIZE)},
        .region = {{.pool_off = le64_make(0x200000), /* not in the order of offsets */
                       .size = le64_make(0x1000),
                       .addr = le64_make(0x7f0000200000),
                       .rkey = le32_make(9),
                       .access = le32_make(RD_ACCESS_READ | RD_ACCESS_ATOMIC)},
            {.pool_off = le64_make(0x100000),
                .size = le64_make(0x100000),
                .addr = le64_make(0x7f0000100000),
                .rkey = le32_make(8),
                .access = le32_make(RD_ACCESS_READ)}},
        .welcome = "welcome",
    };
    memset(g.accept.descriptor, 7, 21);
    return g;
}

static void check_accept(const void *data, uint32_t size, int error)
{
    struct rd_rpma_accept_wire out;
    struct nic_grant grants[RD_REGIONS_MAX], before[RD_REGIONS_MAX];
    uint32_t welcome_off = 12345;
    memset(grants, 0xee, sizeof(grants));
    memcpy(before, grants, sizeof(before));
    int err = rd_rpma_check_accept(at_end(data, size), size, &out, grants, &welcome_off);
    if (err != error)
        print_error("%s\n", err != 0 ? cairn_last_error() : "passed");
    assert_int_equal(err, error);
    if (err != 0) {
        assert_memory_equal(grants, before, sizeof(grants));
        assert_int_equal(welcome_off, 12345);
    }
}

static void check_accept__good__grants_sorted(void **state)
{
    (void)state;
    const struct grant g = good_grant();
    struct rd_rpma_accept_wire out;
    struct nic_grant grants[RD_REGIONS_MAX];
    uint32_t welcome_off = 0;
    assert_int_equal(rd_rpma_check_accept(&g, sizeof(g), &out, grants, &welcome_off), 0);
    assert_memory_equal(&out, &g.accept, sizeof(out));
    assert_int_equal(welcome_off, offsetof(struct grant, welcome));
    assert_int_equal(grants[0].pool_off, 0x100000);
    assert_int_equal(grants[0].size, 0x100000);
    assert_int_equal(grants[0].rkey, 8);
    assert_int_equal(grants[0].access, RD_ACCESS_READ);
    assert_int_equal(grants[1].pool_off, 0x200000);
    assert_int_equal(grants[1].addr, 0x7f0000200000);
    assert_int_equal(grants[1].rkey, 9);
}

static void check_mutations(const struct mutation *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct grant g = good_grant();
        mutate((uint8_t *)&g, &table[i]);
        check_accept(&g, sizeof(g), table[i].error);
    }
}

static void check_accept__mutations__refused(void **state)
{
    (void)state;
#define ACC(field) FIELD(rd_rpma_accept_wire, field)
    static const struct mutation table[] = {
        {ACC(region_count), 0, BAD},
        {ACC(region_count), 1, BAD},
        {ACC(region_count), 3, BAD},
        {ACC(region_count), RD_REGIONS_MAX + 1, BAD},
        {ACC(region_count), UINT32_MAX, BAD},
        {ACC(region_count), 0x08000002, BAD}, /* times 32 wraps to the right size */
        {ACC(welcome_size), 0, BAD},
        {ACC(welcome_size), 9, BAD},
        {ACC(welcome_size), RD_WELCOME_SIZE_MAX + 1, BAD},
        {ACC(welcome_size), UINT32_MAX, BAD},
        {ACC(linger_us), 0, 0},
        {ACC(linger_us), UINT32_MAX, 0},
        {ACC(durability), 0, BAD}, /* with a ring */
        {ACC(durability), RD_DURABILITY_EMULATED, 0},
        {ACC(durability), RD_DURABILITY_EADR, 0},
        {ACC(durability), 5, BAD},
        {ACC(durability), 255, BAD},
        {ACC(message_atomics), 1, 0},
        {ACC(message_atomics), 2, BAD},
        {ACC(descriptor_size), 0, BAD},
        {ACC(descriptor_size), 20, BAD}, /* there are 21 that are not zero */
        {ACC(descriptor_size), 32, 0},
        {ACC(descriptor_size), 33, BAD},
        {ACC(descriptor_size), 255, BAD},
        {ACC(reserved0), 1, BAD},
        {ACC(ring_off), 0x40001, BAD},
        {ACC(ring_off), 0x40008, BAD},
        {ACC(ring_off), UINT64_MAX - 63, BAD},
        {ACC(ring_off), 0x1f0040, BAD}, /* overlaps an extent */
        {ACC(ring_off), 0, 0},
        {ACC(ring_size), 0, BAD},
        {ACC(ring_size), RD_RING_HEADER_SIZE, BAD},
        {ACC(ring_size), RD_RING_HEADER_SIZE + 1, BAD},
        {ACC(ring_size), RD_RING_HEADER_SIZE + 64, 0},
        {ACC(ring_size), UINT64_MAX - 63, BAD},
        {ACC(ring_size), 0x100000 - RING_OFF, 0},
        {ACC(ring_size), 0x100040 - RING_OFF, BAD},
        {BYTE(rd_rpma_accept_wire, descriptor, 21), 1, BAD},
        {BYTE(rd_rpma_accept_wire, descriptor, 31), 1, BAD},
        {BYTE(rd_rpma_accept_wire, reserved, 0), 1, BAD},
        {BYTE(rd_rpma_accept_wire, reserved, 15), 1, BAD},
    };
    check_mutations(table, CN_ARRAY_SIZE(table));
}

static void check_accept__mutated_extents__refused(void **state)
{
    (void)state;
#define REG(n, field)                                                                              \
    (uint32_t)(offsetof(struct grant, region) + (n) * sizeof(struct rd_rpma_region_wire) +         \
               offsetof(struct rd_rpma_region_wire, field)),                                       \
        sizeof(((struct rd_rpma_region_wire *)0)->field)
    static const struct mutation table[] = {
        {REG(0, size), 0, BAD},
        {REG(0, size), UINT64_MAX, BAD},
        {REG(0, pool_off), 0x1ffff8, BAD}, /* overlaps the other one by a word */
        {REG(0, pool_off), 0x100000, BAD},
        {REG(0, pool_off), UINT64_MAX - 7, BAD},
        {REG(0, pool_off), 0x0ff000, 0},   /* just before it */
        {REG(0, pool_off), 0x0ff008, BAD},
        {REG(0, addr), UINT64_MAX - 0xff7, BAD},
        {REG(0, addr), 0x7f0000200004, BAD}, /* its words are not words */
        {REG(1, addr), 0x7f0000100004, 0},   /* none there */
        {REG(0, rkey), UINT32_MAX, 0},
        {REG(0, access), 0, BAD},
        {REG(0, access), RD_ACCESS_WRITE, BAD},
        {REG(0, access), RD_ACCESS_READ | RD_ACCESS_WRITE, BAD},
        {REG(0, access), 8, BAD},
        {REG(0, access), 0x80000001, BAD},
        {REG(0, access), RD_ACCESS_ATOMIC, 0},
        {REG(1, size), 0x100008, BAD},
        {REG(1, pool_off), RING_OFF, BAD},
        {REG(1, pool_off), RING_OFF + RING_SIZE - 8, BAD},
        {REG(1, pool_off), RING_OFF + RING_SIZE, 0},
    };
    check_mutations(table, CN_ARRAY_SIZE(table));
}

static void check_accept__without_ring__all_of_it_zero(void **state)
{
    (void)state;
    struct grant g = good_grant();
    g.accept.durability = 0;
    g.accept.descriptor_size = 0;
    g.accept.ring_off = g.accept.ring_size = le64_make(0);
    check_accept(&g, sizeof(g), BAD);
    memset(g.accept.descriptor, 0, sizeof(g.accept.descriptor));
    check_accept(&g, sizeof(g), 0);
    g.accept.ring_off = le64_make(64);
    check_accept(&g, sizeof(g), BAD);
    g.accept.ring_off = le64_make(0);
    g.accept.ring_size = le64_make(8192);
    check_accept(&g, sizeof(g), BAD);
    g.accept.ring_size = le64_make(0);
    g.accept.descriptor_size = 21;
    check_accept(&g, sizeof(g), BAD);
}

static void check_accept__every_size__only_one_passes(void **state)
{
    (void)state;
    uint8_t data[2 * sizeof(struct grant)] = {0};
    struct grant g = good_grant();
    memcpy(data, &g, sizeof(g));
    for (uint32_t size = 0; size < sizeof(data); size++)
        check_accept(data, size, size == sizeof(g) ? 0 : BAD);
}

static void check_accept__most_regions__fit(void **state)
{
    (void)state;
    static uint8_t data[RD_RPMA_PAYLOAD_MAX];
    struct rd_rpma_accept_wire accept = {.region_count = le32_make(RD_REGIONS_MAX)};
    memcpy(data, &accept, sizeof(accept));
    for (uint32_t i = 0; i < RD_REGIONS_MAX; i++) { /* backwards: the sort has to move them all */
        struct rd_rpma_region_wire region = {
            .pool_off = le64_make((uint64_t)(RD_REGIONS_MAX - i) << 20),
            .size = le64_make(UINT64_C(1) << 20),
            .addr = le64_make(0x1000),
            .access = le32_make(RD_ACCESS_READ),
        };
        memcpy(data + sizeof(accept) + i * sizeof(region), &region, sizeof(region));
    }
    uint32_t size = sizeof(accept) + RD_REGIONS_MAX * sizeof(struct rd_rpma_region_wire);
    struct nic_grant grants[RD_REGIONS_MAX];
    uint32_t welcome_off = 0;
    assert_int_equal(rd_rpma_check_accept(data, size, &accept, grants, &welcome_off), 0);
    for (uint32_t i = 0; i < RD_REGIONS_MAX; i++)
        assert_int_equal(grants[i].pool_off, (uint64_t)(i + 1) << 20);
    assert_int_equal(welcome_off, size);
}

/* ---- results ---- */

static void check_done__mutations__refused(void **state)
{
    (void)state;
#define DONE(field) FIELD(rd_rpma_done_wire, field)
    static const struct { bool persisted; struct mutation m; } table[] = {
        {true, {DONE(tag), 41, BAD}},
        {true, {DONE(tag), UINT64_C(1) << 32 | 42, BAD}},
        {true, {DONE(old), 1, BAD}},
        {false, {DONE(old), UINT64_MAX, 0}},
        {true, {DONE(status), 20033, 0}},
        {true, {DONE(status), 1, BAD}},
        {true, {DONE(status), 19999, BAD}},
        {true, {DONE(status), 21000, BAD}},
        {false, {DONE(status), UINT32_MAX, BAD}},
        {false, {DONE(status), 0x80000000, BAD}},
        {false, {BYTE(rd_rpma_done_wire, reserved, 0), 1, BAD}},
        {true, {BYTE(rd_rpma_done_wire, reserved, 3), 1, BAD}},
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        struct rd_rpma_done_wire done = {.tag = le64_make(42)};
        uint64_t old = 5;
        int status = 6;
        assert_int_equal(rd_rpma_check_done(&done, table[i].persisted, 42, &old, &status), 0);
        assert_int_equal(old, 0);
        assert_int_equal(status, 0);
        mutate((uint8_t *)&done, &table[i].m);
        const uint8_t *data = at_end(&done, sizeof(done));
        old = 5;
        status = 6;
        int err = rd_rpma_check_done(data, table[i].persisted, 42, &old, &status);
        assert_int_equal(err, table[i].m.error);
        if (err != 0) {
            assert_int_equal(old, 5);
            assert_int_equal(status, 6);
        } else {
            assert_true(old == le64_get(done.old));
            assert_int_equal(status, -(int)le32_get(done.status));
        }
    }
    struct rd_rpma_done_wire done = {
        .tag = le64_make(42), .old = le64_make(1), .status = le32_make(20033)};
    uint64_t old = 0;
    int status = 0;
    assert_int_equal(rd_rpma_check_done(&done, false, 42, &old, &status), BAD);
}

/* ---- random bytes ---- */

static void checkers__random_damage__never_crash(void **state)
{
    (void)state;
    uint64_t seed = 12345, passed = 0;
    for (int round = 0; round < 200000; round++) {
        struct grant g = good_grant();
        uint8_t *bytes = (uint8_t *)&g;
        for (int k = 0; k < 2; k++) {
            seed = cn_mix64(seed + 0x9e3779b97f4a7c15);
            bytes[(seed >> 8) % sizeof(g)] = (uint8_t)seed;
        }
        struct rd_rpma_accept_wire accept;
        struct nic_grant grants[RD_REGIONS_MAX];
        uint32_t welcome_off = 0;
        if (rd_rpma_check_accept(&g, sizeof(g), &accept, grants, &welcome_off) != 0)
            continue;
        passed++;
        for (uint32_t i = 0; i < le32_get(accept.region_count); i++) {
            uint64_t end = grants[i].pool_off + grants[i].size;
            assert_true(end > grants[i].pool_off);
            assert_true(i == 0 ||
                        grants[i - 1].pool_off + grants[i - 1].size <= grants[i].pool_off);
        }
    }
    assert_true(passed > 1000 && passed < 190000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_cm__good__copied_out),
        cmocka_unit_test(check_cm__mutations__refused),
        cmocka_unit_test(check_cm__reject__needs_only_its_reason),
        cmocka_unit_test(check_cm__sizes_and_padding__checked),
        cmocka_unit_test(check_frame__sizes_of_every_type__exact),
        cmocka_unit_test(check_frame__mutations__refused),
        cmocka_unit_test(check_frame__truncated_or_longer__refused),
        cmocka_unit_test(frame_name__every_type__named),
        cmocka_unit_test(check_accept__good__grants_sorted),
        cmocka_unit_test(check_accept__mutations__refused),
        cmocka_unit_test(check_accept__mutated_extents__refused),
        cmocka_unit_test(check_accept__without_ring__all_of_it_zero),
        cmocka_unit_test(check_accept__every_size__only_one_passes),
        cmocka_unit_test(check_accept__most_regions__fit),
        cmocka_unit_test(check_done__mutations__refused),
        cmocka_unit_test(checkers__random_damage__never_crash),
    };
    return cmocka_run_group_tests(tests, map_guard, NULL);
}
