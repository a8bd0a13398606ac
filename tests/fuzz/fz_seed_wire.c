/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_seed_wire.c: seeds of everything that travels. */
#include "rdma/rd_rpma.h"
#include "rdma/rd_wire.h"
#include "tests/fuzz/fz_seed.h"

/* Target `wire`: which, flags, bytes. */
static void put(uint8_t which, const char *name, const void *data, size_t size)
{
    static uint8_t input[RD_MESSAGE_SIZE_MAX + 256];

    input[0] = which;
    input[1] = 0;
    memcpy(input + 2, data, size);
    fz_seed_put("wire", name, input, size + 2);
}

static void messages(void)
{
    uint8_t bytes[256] __attribute__((aligned(8)));
    char name[64];

    for (uint32_t type = 1; type < RD_MSG_TYPE_COUNT; type++) {
        struct rd_message_wire head = {.magic = le32_make(RD_WIRE_MAGIC),
            .type = le16_make((uint16_t)type), .id = le32_make(77)};
        uint32_t size = rd_wire_body_size(type);
        struct le32 one = le32_make(1);

        if (type == RD_MSG_GRANT_REPLY)
            size += 2 * sizeof(struct rd_block_wire);
        head.size = le16_make((uint16_t)size);
        memset(bytes, 0, sizeof(bytes));
        memcpy(bytes, &head, sizeof(head));
        if (type == RD_MSG_GRANT)
            memcpy(bytes + sizeof(head) + 4, &one, 4);
        if (type == RD_MSG_GRANT_REPLY)
            bytes[sizeof(head)] = 2;
        if (type == RD_MSG_WORD_REPLY)
            memcpy(bytes + sizeof(head), &one, 4);
        if (size == sizeof(struct rd_answer_wire))
            memcpy(bytes + sizeof(head) + offsetof(struct rd_answer_wire, verdict), &one, 4);
        (void)snprintf(name, sizeof(name), "message-%s", rd_wire_type_name(type));
        put(0, name, bytes, sizeof(head) + size);
    }
}

static void handshake(void)
{
    struct rd_hello_wire hello = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .role = le16_make(RD_ROLE_COORDINATOR),
        .cluster = fz_cluster_uuid, .peer = fz_session_uuid, .view = le32_make(1),
        .node = le16_make(FZ_NODE)};
    struct rd_welcome_wire welcome = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .node = le16_make(FZ_NODE), .pool = fz_pool_uuid,
        .incarnation = le64_make(3), .slot_epoch = le64_make(FZ_EPOCH),
        .nonce = le64_make(FZ_NONCE), .ring_off = le64_make(65536), .ring_size = le64_make(8192),
        .position_off = le64_make(65536 + 64), .pool_size = le64_make(1 << 20),
        .extent_off = le64_make(4096), .extent_end = le64_make(1 << 20), .window = le32_make(8),
        .slot = le16_make(FZ_SLOT), .tag = le16_make(4), .view = le32_make(1),
        .lease_ms = le32_make(1000), .chunk_shift = 12, .durability = RD_DURABILITY_EMULATED,
        .bytes_max = le32_make(4096)};
    struct rd_refusal_wire refusal;

    put(1, "hello-coordinator", &hello, sizeof(hello));
    hello.role = le16_make(RD_ROLE_NODE);
    hello.from_node = le16_make(2);
    memset(&hello.peer, 0, sizeof(hello.peer));
    put(1, "hello-node", &hello, sizeof(hello));
    hello.role = le16_make(RD_ROLE_TOOL);
    hello.from_node = le16_make(0);
    put(1, "hello-tool", &hello, sizeof(hello));
    memset(&hello.cluster, 0, sizeof(hello.cluster));
    put(1, "hello-wrong-cluster", &hello, sizeof(hello));
    hello.node = le16_make(0);
    put(1, "hello-any", &hello, sizeof(hello));
    put(2, "welcome-slot", &welcome, sizeof(welcome));
    welcome.slot_epoch = welcome.nonce = welcome.ring_off = welcome.ring_size = le64_make(0);
    welcome.position_off = le64_make(0);
    welcome.window = le32_make(0);
    welcome.slot = le16_make(0);
    put(3, "welcome", &welcome, sizeof(welcome));
    rd_wire_make_refusal(&refusal, CAIRN_E_WRONG_NODE, "this is \x1b[31m another node");
    put(4, "refusal", &refusal, sizeof(refusal));
}

static void frame(const char *name, uint16_t type, uint16_t count, uint32_t size)
{
    uint8_t bytes[256] = {0};
    struct rd_rpma_frame_wire head = {.magic = le32_make(RD_RPMA_MAGIC), .type = le16_make(type),
        .count = le16_make(count), .size = le32_make(size)};

    memcpy(bytes, &head, sizeof(head));
    put(6, name, bytes, sizeof(head) + size);
}

static void accepts(void)
{
    struct {
        struct rd_rpma_accept_wire accept;
        struct rd_rpma_region_wire region[3];
        uint8_t welcome[16];
    } a = {.accept = {.region_count = le32_make(3), .welcome_size = le32_make(16),
               .linger_us = le32_make(1000), .durability = RD_DURABILITY_GPSPM,
               .descriptor_size = 24, .ring_off = le64_make(1 << 20),
               .ring_size = le64_make(8192 + 4096), .descriptor = {1, 2, 3}}};

    for (unsigned i = 0; i < 3; i++)
        a.region[i] = (struct rd_rpma_region_wire){.pool_off = le64_make(65536u * (3 - i)),
            .size = le64_make(65536), .addr = le64_make(0x10000000u + 65536u * i),
            .rkey = le32_make(i), .access = le32_make(RD_ACCESS_READ | RD_ACCESS_ATOMIC)};
    put(7, "accept", &a, sizeof(a));
    a.accept.region_count = le32_make(0);
    a.accept.welcome_size = le32_make(0);
    a.accept.durability = a.accept.descriptor_size = 0;
    a.accept.ring_off = a.accept.ring_size = le64_make(0);
    memset(a.accept.descriptor, 0, sizeof(a.accept.descriptor));
    put(7, "accept-no-ring", &a.accept, sizeof(a.accept));
}

static void rpma(void)
{
    struct rd_rpma_cm_wire cm = {.magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION), .channel = RD_RPMA_CHANNEL_FIRST,
        .beat_addr = le64_make(0x7000), .beat_rkey = le32_make(9)};
    struct rd_rpma_done_wire done = {.tag = le64_make(5), .old = le64_make(0)};

    put(5, "cm-first", &cm, sizeof(cm));
    cm.beat_addr = le64_make(0);
    cm.beat_rkey = le32_make(0);
    cm.cookie = le64_make(8);
    cm.channel = RD_RPMA_CHANNEL_LOG;
    put(5, "cm-log", &cm, sizeof(cm));
    cm.channel = RD_RPMA_CHANNEL_FURTHER;
    cm.index = 2;
    put(5, "cm-further", &cm, sizeof(cm));
    cm.error = le32_make((uint32_t)-CAIRN_E_LIMIT);
    put(5, "cm-reject", &cm, sizeof(cm));
    frame("frame-hello", RD_RPMA_HELLO, 0, 48);
    frame("frame-ready", RD_RPMA_READY, 0, 0);
    frame("frame-message", RD_RPMA_MESSAGE, 0, 20);
    frame("frame-persist", RD_RPMA_PERSIST, 2, 48);
    frame("frame-persisted", RD_RPMA_PERSISTED, 1, 24);
    frame("frame-cas", RD_RPMA_CAS, 1, 32);
    accepts();
    put(8, "persisted", &done, sizeof(done));
    done.old = le64_make(3);
    put(9, "cas-done", &done, sizeof(done));
}

void fz_seed_wire(void)
{
    messages();
    handshake();
    rpma();
}
