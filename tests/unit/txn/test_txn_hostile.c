/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a coordinator whose node lies: welcomes, replies, roots, maps, buckets, items and positions
 * made by somebody who knows the formats. Method: real context over the fake fabric; at seeded
 * random moments, also between two reads of one lookup, fields of the node's memory are overwritten
 * and their crcs mended, and replies are forged.
 * Invariants: no crash, no access outside of the context's buffers (sanitizers), every call comes
 * back (virtual time; a lookup's rounds are bounded) with success, an outcome or an error that has
 * a text.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "tests/support/ts_fake_store.h"
#include "tests/support/ts_pool.h"

#define HANG_S 100u
#ifndef ROUNDS /* more find more */
#define ROUNDS 250u
#endif
#ifndef SEED
#define SEED 0u
#endif

static struct ts_fs fs;
static uint64_t seed;
static uint32_t hostility; /* a post in so many is preceded by damage; 0: none */
static void (*honest)(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *head, const void *body);

static uint64_t below(uint64_t limit)
{
    return ts_random(&seed) % limit;
}

static uint64_t nasty(void)
{
    static const uint64_t values[] = {0, 1, 2, 7, 8, 40, 41, 63, 64, 255, 511, 512, 4096, 65536,
        131072, 147456, 262144 - 64, 262144, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 48,
        INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 63, UINT64_MAX, (UINT64_C(1) << 40) - 1};
    return below(4) == 0 ? ts_random(&seed) : values[below(CN_ARRAY_SIZE(values))];
}

static void overwrite(void *bytes, uint64_t size)
{
    static const uint32_t widths[] = {1, 2, 4, 8};
    uint32_t width = widths[below(4)];
    uint64_t v = nasty();

    if (size >= width)
        memcpy((uint8_t *)bytes + below(size / width) * width, &v, width);
}

/* ---- the node's memory ---- */

static void forge_object(uint8_t *memory, uint64_t off, uint32_t size, uint32_t crc_seed)
{
    struct pm_item_pm item;

    overwrite(memory + off, below(2) == 0 ? 64 : size);
    if (below(4) == 0)
        return;
    memcpy(&item, memory + off, sizeof(item));
    if (below(2) == 0) { /* unlocked, at the version that it says */
        item.head.word = le64_make(pm_word_version(le64_get(item.head.meta)));
        memcpy(memory + off, &item.head.word, 8);
    }
    if (size != PM_BUCKET_SIZE)
        size = (uint32_t)cn_min64(
            size, pm_item_size(le16_get(item.key_size), le32_get(item.value_size)));
    struct le32 crc = le32_make(
        pm_object_crc(memory + off, (uint32_t)cn_max64(size, PM_ITEM_HEADER_SIZE), off, crc_seed));
    memcpy(memory + off + offsetof(struct pm_object_pm, crc), &crc, sizeof(crc));
}

/* A bucket that covers what it likes and points where it likes. */
static void forge_bucket(uint8_t *memory, uint64_t off, uint32_t crc_seed)
{
    struct pm_bucket_pm b;
    uint32_t depth = (uint32_t)below(PM_DEPTH_MAX + 3);

    memcpy(&b, memory + off, sizeof(b));
    b.head.meta = le64_make(
        pm_meta_make(pm_word_version(le64_get(b.head.word)), PM_KIND_BUCKET, depth));
    b.number = le64_make(depth > 40 ? nasty() : ts_random(&seed) & ((UINT64_C(1) << depth) - 1));
    b.count = le16_make((uint16_t)(below(3) == 0 ? nasty() : below(57)));
    for (uint32_t i = 0; i < PM_BUCKET_SLOTS; i++) {
        uint64_t slot = le64_get(b.slot[below(8)]); /* the fingerprint of a key that is there */
        uint64_t to = below(2) == 0 ? below(TS_MEMORY / 64 + 64) : nasty() >> 21;
        b.slot[i] = le64_make(to << 21 | below(32) << 16 | (slot & 0xffff));
    }
    b.head.crc = le32_make(pm_object_crc(&b, sizeof(b), off, crc_seed));
    memcpy(memory + off, &b, sizeof(b));
}

static void forge_memory(uint16_t node)
{
    uint8_t *memory = fs.fake.node[node - 1].memory;
    uint32_t crc_seed = cn_crc32c(0, fs.fake.node[node - 1].welcome.pool.b, 16);
    struct le64 v;

    switch (below(7)) {
    case 0: {
        overwrite(memory + TS_ROOT, below(2) == 0 ? 64 : PM_INDEX_MAP_OFF);
        struct le32 crc = le32_make(pm_index_crc((void *)(memory + TS_ROOT), TS_ROOT, crc_seed));
        memcpy(memory + TS_ROOT + offsetof(struct pm_index_pm, crc), &crc, sizeof(crc));
        break;
    }
    case 1: overwrite(memory + TS_ROOT + PM_INDEX_MAP_OFF, 64); break;
    case 2: forge_bucket(memory, TS_BUCKETS + below(8) * PM_BUCKET_SIZE, crc_seed); break;
    case 3:
        forge_object(memory, TS_BUCKETS + below(8) * PM_BUCKET_SIZE, PM_BUCKET_SIZE, crc_seed);
        break;
    case 4:
    case 5: forge_object(memory, TS_ITEMS + below(10) * 1024, 1024, crc_seed); break;
    default: /* the published position */
        v = le64_make(below(2) == 0 ? nasty() : below(40) * 64);
        memcpy(memory + 4096 + 64 + below(2) * 8, &v, 8);
    }
}

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post)
{
    fake->post_count = 0; /* the log of posts is not looked at */
    if (hostility != 0 && below(hostility) == 0)
        forge_memory(post->node);
    if (hostility != 0 && below(200) == 0)
        fake->now_ns += UINT64_C(10000000000);
    return 0;
}

/* ---- messages ---- */

static void on_message(struct ts_fake *fake, struct ts_fake_conn *c,
    const struct rd_message_wire *head, const void *body)
{
    uint8_t bytes[400];
    uint16_t type = le16_get(head->type);
    uint32_t size = 0;
    struct rd_message_wire request = *head;

    if (hostility == 0 || below(3) != 0) {
        honest(fake, c, head, body);
        return;
    }
    memset(bytes, 0, sizeof(bytes));
    type = (uint16_t)(below(4) != 0 ? type + 1u : below(RD_MSG_TYPE_COUNT + 1));
    size = rd_wire_body_size(type) == UINT32_MAX ? 0 : rd_wire_body_size(type);
    if (type == RD_MSG_GRANT_REPLY) {
        uint32_t count = (uint32_t)below(20);
        struct le32 wire = le32_make(count);
        memcpy(bytes, &wire, sizeof(wire));
        size += count * (uint32_t)sizeof(struct rd_block_wire);
        for (uint32_t i = 0; i < 2 * count; i++) {
            struct le64 v = le64_make(below(2) == 0 ? nasty() : below(TS_MEMORY / 64) * 64);
            memcpy(bytes + 8 + 8 * i, &v, 8);
        }
    } else if (type == RD_MSG_TABLE_REPLY) {
        struct rd_table_reply_wire t = {.root_off = le64_make(nasty()), .index = le32_make(1)};
        memcpy(bytes, &t, sizeof(t));
    } else if (size != 0)
        overwrite(bytes, size);
    if (below(6) == 0)
        size = (uint32_t)below(sizeof(bytes));
    if (below(6) == 0)
        request.id = le32_make((uint32_t)nasty());
    ts_fake_reply(fake, c, &request, type, below(3) == 0 ? -(int)below(31000) : 0, bytes, size);
    if (below(8) == 0)
        honest(fake, c, head, body); /* a second answer */
}

/* ---- what the application does ---- */

/* The text of an error is there whatever it was caused by. */
static bool went_well(int rc)
{
    if (rc != 0)
        assert_true(cairn_last_error()[0] != 0);
    return rc == 0;
}

static void transact(void)
{
    static uint8_t value[600], buf[600];
    struct cairn_tx *tx = NULL;
    enum cairn_outcome outcome;
    size_t size;
    char key[16];

    if (!went_well(cairn_begin(fs.ctx, &tx)))
        return;
    for (uint64_t i = 1 + below(4); i > 0; i--) {
        int rc = 0;
        (void)snprintf(key, sizeof(key), "k%u", (unsigned)below(12));
        switch (below(5)) {
        case 0: rc = cairn_get(tx, 1, key, strlen(key), buf, sizeof(buf), &size); break;
        case 1: rc = cairn_get_for_update(tx, 1, key, strlen(key), buf, below(600), &size); break;
        case 2: rc = cairn_delete(tx, 1, key, strlen(key)); break;
        default: rc = cairn_put(tx, 1, key, strlen(key), value, below(600)); break;
        }
        (void)!went_well(rc);
    }
    if (below(6) == 0) {
        char token[CAIRN_TOKEN_SIZE];
        if (went_well(cairn_tx_token(tx, token)) && below(2) == 0)
            (void)!cairn_resolve(fs.ctx, token, &outcome);
    }
    if (below(8) == 0) {
        cairn_abort(tx);
        return;
    }
    (void)!went_well(cairn_commit(tx, &outcome));
}

static uint8_t *image[2]; /* of the nodes' memory, as filled */
static struct rd_welcome_wire welcome[2];

static int setup(void **state)
{
    char key[16];

    (void)state;
    (void)alarm(HANG_S);
    hostility = 0;
    ts_fs_open(&fs, 2, 8);
    honest = fs.fake.on_message;
    fs.fake.on_message = on_message;
    fs.fake.on_post = on_post;
    for (unsigned i = 0; i < 6; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        (void)ts_fs_add(&fs, key, "value");
    }
    for (uint32_t i = 0; i < 2; i++) {
        image[i] = malloc(TS_MEMORY);
        assert_non_null(image[i]);
        memcpy(image[i], fs.fake.node[i].memory, TS_MEMORY);
        welcome[i] = fs.fake.node[i].welcome;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hostility = 0;
    ts_fs_close(&fs);
    for (uint32_t i = 0; i < 2; i++)
        free(image[i]);
    (void)alarm(0);
    return 0;
}

/* Other nodes, as it were: a new incarnation with everything as filled. */
static void begin_round(void)
{
    hostility = 0;
    for (uint16_t i = 0; i < 2; i++) {
        struct ts_fake_node *n = &fs.fake.node[i];
        uint64_t incarnation = le64_get(welcome[i].incarnation) + 1;
        uint64_t epoch = le64_get(welcome[i].slot_epoch) + 100;
        welcome[i].incarnation = le64_make(incarnation);
        welcome[i].slot_epoch = le64_make(epoch);
        memcpy(n->memory, image[i], TS_MEMORY);
        n->welcome = welcome[i];
        if (ts_fake_conn(&fs.fake, (uint16_t)(i + 1)) != NULL)
            ts_fake_down(&fs.fake, (uint16_t)(i + 1), CAIRN_E_NODE_DOWN);
    }
}

static void node__lies_in_memory_and_messages__every_call_comes_back(void **state)
{
    (void)state;
    seed = 1 + SEED;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        begin_round();
        transact();
        hostility = 2 + (uint32_t)below(30);
        for (uint32_t i = 0; i < 12; i++)
            transact();
    }
}

static void node__lies_in_its_welcome__every_call_comes_back(void **state)
{
    (void)state;
    seed = 2 + SEED;
    for (uint32_t round = 0; round < 2 * ROUNDS; round++) {
        begin_round();
        for (uint64_t i = 1 + below(3); i > 0; i--)
            overwrite((uint8_t *)&fs.fake.node[below(2)].welcome + 8, 112);
        for (uint32_t i = 0; i < 4; i++)
            transact();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            node__lies_in_memory_and_messages__every_call_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(
            node__lies_in_its_welcome__every_call_comes_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
