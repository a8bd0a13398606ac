/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_seed_text.c: seeds of configurations, tokens and histories. */
#include <unistd.h>

#include "tests/fuzz/fz_seed.h"
#include "tools/history/hs_history.h"
#include "txn/txn_token.h"

#define ID "cluster = \"0b0e5c1e-2c39-4d25-9c5e-5f2b1b9a7e11\";\n"
#define NODE1 "{ id = 1; address = \"n1.sock\"; pool = \"n1.pool\"; size = \"1G\"; }"
#define TABLE "tables = ( { id = 1; name = \"accounts\"; } );\n"

static const char *const configs[] = {
    ID "nodes = ( " NODE1 " );\n" TABLE,
    ID "fabric = \"emu\";\nnodes = ( " NODE1 ",\n"
       "{ id = 3; address = \"/run/n3\"; pool = \"/p/n3\"; size = 1073741824L;"
       " persistence = \"emulated\"; } );\n"
       "tables = ( { id = 1; name = \"a\"; }, { id = 9; name = \"b.c-d_e\"; } );\n"
       "options = { slots = 16; ring_size = \"64k\"; window = 64; lease_ms = 50;"
       " resolve_ms = 20; verdict_s = 0; };\n",
    ID "fabric = \"rpma\";\n"
       "nodes = ( { id = 1; address = \"10.0.0.1:7471\"; pool = \"/dev/dax0.0\";"
       " persistence = \"apm\"; },\n{ id = 2; address = \"[fe80::1%eth0]:7471\"; pool = \"p\";"
       " size = \"2G\"; persistence = \"gpspm\"; } );\n" TABLE
       "fabric_options = { device = \"mlx5_0\"; queue_pairs = 2; atomics = \"message\";"
       " heartbeat_ms = 100; };\n"
       "completion = { mode = \"poll\"; threshold = 0.5; spins = 10; linger_us = 200; };\n",
    ID "nodes = ( " NODE1 ", " NODE1 " );\n" TABLE,
    ID "nodes = ( { id = 1; adress = \"x\"; } );\n",
    ID "nodes = 5;\n" TABLE,
    "cluster = \"no uuid\";\n",
    ID "nodes = ( " NODE1 " );\ntables = ( { id = 70000; name = \"a b\"; } );\n",
    ID "nodes = ( " NODE1 " );\n" TABLE "options = { slots = \"many\"; ring_size = 100; };\n",
    ID "nodes = ( " NODE1 " );\n" TABLE "completion = { mode = \"sometimes\"; };\n",
    ID "nodes = ( " NODE1 " );\n" TABLE "completion = { threshold = 1; mode = \"event\"; };\n",
    "# nothing\n", "a = ;\n",
};

/* Just below and just above what docs/configuration.md allows, one at a time. */
static void limits(void)
{
    static const char *const bad[] = {"options = { slots = 1", "options = { slots = 4097",
        "options = { ring_size = 4032", "options = { ring_size = 4097", "options = { window = 3",
        "options = { window = 65537", "options = { lease_ms = 0", "options = { lease_ms = 600001",
        "options = { resolve_ms = 0", "options = { resolve_ms = 600001",
        "options = { verdict_s = -1", "options = { verdict_s = 31622401",
        "fabric_options = { queue_pairs = 9", "fabric_options = { heartbeat_ms = 9",
        "fabric_options = { heartbeat_ms = 60001", "completion = { threshold = 1.01",
        "completion = { spins = 1000001", "completion = { linger_us = 0",
        "completion = { linger_us = 1000001"};
    char name[32], text[512];

    for (unsigned i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        (void)snprintf(name, sizeof(name), "limit-%02u", i);
        (void)snprintf(text, sizeof(text), ID "nodes = ( " NODE1 " );\n" TABLE "%s; };\n", bad[i]);
        fz_seed_put("config", name, text, strlen(text));
    }
}

static void put_event(struct hs_history *h, unsigned i)
{
    static const uint32_t list[3] = {1, 2, 0xffffffff};

    switch (i) {
    case 0:
        hs_event_begin(h, HS_INVOKE, HS_F_TXN, 1, 100);
        hs_event_append(h, 7, 1);
        hs_event_read(h, 8, NULL, HS_UNREAD);
        break;
    case 1:
        hs_event_begin(h, HS_OK, HS_F_TXN, 1, 200);
        hs_event_append(h, 7, 1);
        hs_event_read(h, 8, list, 3);
        hs_event_read(h, 9, NULL, 0);
        break;
    case 2:
        hs_event_begin(h, HS_INFO, HS_F_TRANSFER, 2, 201);
        hs_event_transfer(h, 1, 2, 30);
        break;
    case 3:
        hs_event_begin(h, HS_OK, HS_F_BANK_READ, 3, 205);
        hs_event_balance(h, 1, -5);
        hs_event_balance(h, 2, 105);
        break;
    default:
        hs_event_begin(h, HS_FAIL, HS_F_FINAL, 4, 300);
        break;
    }
    hs_event_end(h);
}

/* The flags, then the text (fz_tape.c). */
static void put_flagged(const char *name, uint8_t flags, const char *text)
{
    char input[2048] = {(char)flags};

    (void)snprintf(input + 1, sizeof(input) - 1, "%s", text);
    fz_seed_put("tape", name, input, 1 + strlen(text));
}

#define TAPE_HEAD                                                                                  \
    "cairn-tape 1\nbuild 5f1c\nseed 17\nmutant none\nworkload mixed\n"                             \
    "setup nodes=2 clients=3 ops=12 faults=process+client work=bank plan=node:a_body:2:power\n"    \
    "failure the bank's total is 297\n"

static void tapes(void)
{
    put_flagged("tape", 1, TAPE_HEAD "rest drawn\nchoices 3\n3 8 2 0 node\n0 2 0 1 crash here\n"
        "1048575 1048576 4294967295 9 node\nend 00000000\n");
    put_flagged("tape-calm", 9, TAPE_HEAD "rest calm\nchoices 0\nend 00000000\n");
    put_flagged("tape-more", 1, TAPE_HEAD "rest calm\nchoices 9\n0 1 0 0 x\nend 00000000\n");
    put_flagged("tape-bad-crc", 0, TAPE_HEAD "rest calm\nchoices 0\nend 00000000\n");
    put_flagged("setup", 2, "nodes=2 clients=3 ops=12 faults=process+client work=bank "
        "plan=node:a_body:2:power");
    put_flagged("setup-more", 2, "nodes=3 lanes=2 quick=1 plain=1 mode=adr_ddio prompt=1 "
        "power_at_end=1 clean_end=1 first=client:c_log:1:process");
    put_flagged("faults", 4, "+pause,-partition");
    put_flagged("faults-all", 4, "process,power,all");
}

static void history(void)
{
    static uint8_t bytes[4096];
    char path[] = "/tmp/fz-seed-XXXXXX";
    struct hs_history *h = hs_history_new();
    int fd = mkstemp(path);
    ssize_t size;

    CAIRN_ASSERT(fd >= 0);
    if (hs_history_log_to(h, path, true) != 0)
        CAIRN_ASSERT(false);
    for (unsigned i = 0; i < 5; i++)
        put_event(h, i);
    hs_history_delete(&h);
    size = read(fd, bytes, sizeof(bytes));
    CAIRN_ASSERT(size > 0);
    for (ssize_t at = 0; at + 8 < size;) { /* to be mended */
        struct le32 n;

        memcpy(&n, bytes + at, 4);
        memset(bytes + at + 4, 0, 4);
        at += 8 + (ssize_t)le32_get(n);
    }
    (void)close(fd);
    (void)unlink(path);
    fz_seed_put("history", "events", bytes, (size_t)size);
    fz_seed_put("history", "torn", bytes, (size_t)size - 3);
    fz_seed_put("history", "one", bytes, 8 + bytes[0]);
}

void fz_seed_text(void)
{
    struct txn_token token = {.txid = {.coordinator = fz_session_uuid, .count = 9}, .node = 1,
        .slot = 1, .epoch = FZ_EPOCH, .seq = 3};
    uint8_t edit[40] = {1, 9, [9] = 1, [11] = 1, [13] = FZ_EPOCH, [21] = 3};
    char text[1 + CAIRN_TOKEN_SIZE] = {0}, name[32];

    for (unsigned i = 0; i < CN_ARRAY_SIZE(configs); i++) {
        (void)snprintf(name, sizeof(name), "config-%02u", i);
        fz_seed_put("config", name, configs[i], strlen(configs[i]));
    }
    txn_token_format(&token, &fz_cluster_uuid, text + 1);
    fz_seed_put("token", "good", text, CAIRN_TOKEN_SIZE);
    fz_seed_put("token", "cut", text, 50);
    fz_seed_put("token", "fields", edit, 29);
    fz_seed_put("token", "edited", edit, 31);
    cn_uuid_format(&fz_session_uuid, text + 1);
    fz_seed_put("token", "uuid", text, CN_UUID_TEXT_SIZE);
    limits();
    history();
    tapes();
}
