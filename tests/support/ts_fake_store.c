/* SPDX-License-Identifier: BSD-3-Clause */
/* ts_fake_store.c: see ts_fake_store.h. */
#include "tests/support/ts_fake_store.h"

static uint32_t seed_of(const struct ts_fs *fs, uint16_t node)
{
    return cn_crc32c(0, fs->fake.node[node - 1].welcome.pool.b, 16);
}

static uint8_t *at(struct ts_fs *fs, uint16_t node, uint64_t off)
{
    return fs->fake.node[node - 1].memory + off;
}

uint64_t *ts_fs_word(struct ts_fs *fs, uint16_t node, uint64_t off)
{
    return (uint64_t *)(void *)at(fs, node, off);
}

static void hash_key(uint16_t node, uint8_t key[16])
{
    memset(key, 0x40 + node, 16);
}

uint64_t ts_fs_hash(const struct ts_fs *fs, uint16_t node, const char *key)
{
    uint8_t k[16];

    (void)fs;
    hash_key(node, k);
    return cn_siphash(k, key, strlen(key));
}

uint16_t ts_fs_node(const struct ts_fs *fs, const char *key)
{
    return (uint16_t)(1 + txn_config_shard(&fs->config, 1, key, strlen(key)));
}

void ts_fs_key(const struct ts_fs *fs, uint16_t node, uint32_t number, char key[16])
{
    for (uint32_t i = 0;; i++) {
        (void)snprintf(key, 16, "x%u.%u", number, i);
        if (ts_fs_node(fs, key) == node)
            return;
    }
}

uint64_t ts_fs_slot(uint64_t off, uint64_t hash)
{
    return pm_slot_ref_pack(off, TS_CLASS, pm_fingerprint(hash, 16));
}

static void write_root(struct ts_fs *fs, uint16_t node, uint32_t bucket_slots)
{
    struct pm_index_pm root = {.magic = le64_make(PM_INDEX_MAGIC),
        .layout_version = le32_make(PM_LAYOUT_VERSION),
        .index = le32_make(1),
        .table = le16_make(1),
        .shard = le16_make((uint16_t)(node - 1)),
        .kind = 1,
        .bucket_slots = (uint8_t)bucket_slots,
        .fingerprint_bits = 16,
        .map_max = le32_make(16)};
    struct le64 place = le64_make(TS_ROOT), entry = le64_make(TS_BUCKETS);

    hash_key(node, root.hash_key);
    root.crc = le32_make(cn_crc32c(cn_crc32c(seed_of(fs, node), &place, 8), &root, 128));
    memcpy(at(fs, node, TS_ROOT), &root, sizeof(root));
    memcpy(at(fs, node, TS_ROOT + PM_INDEX_MAP_OFF), &entry, 8);
}

void ts_fs_bucket(struct ts_fs *fs, uint16_t node, uint32_t place, uint64_t number, uint32_t depth,
    uint64_t version, const uint64_t *slots, uint32_t count)
{
    struct pm_bucket_pm b = {.head = {.word = le64_make(version),
                                 .meta = le64_make(pm_meta_make(version, PM_KIND_BUCKET, depth)),
                                 .index = le32_make(1)},
        .number = le64_make(number),
        .count = le16_make((uint16_t)count)};
    uint64_t off = TS_BUCKETS + place * PM_BUCKET_SIZE;

    for (uint32_t i = 0; i < count; i++)
        b.slot[i] = le64_make(slots[i]);
    b.head.crc = le32_make(pm_object_crc(&b, sizeof(b), off, seed_of(fs, node)));
    memcpy(at(fs, node, off), &b, sizeof(b));
}

void ts_fs_item(struct ts_fs *fs, uint16_t node, uint64_t off, uint64_t version, const char *key,
    const char *value)
{
    (void)pm_item_make(at(fs, node, off), off, seed_of(fs, node), version, TS_CLASS, 1,
        ts_fs_hash(fs, node, key), key, (uint32_t)strlen(key), value, (uint32_t)strlen(value));
    *ts_fs_word(fs, node, off) = htole64(version);
}

uint64_t ts_fs_add(struct ts_fs *fs, const char *key, const char *value)
{
    uint16_t node = ts_fs_node(fs, key);
    uint32_t n = fs->items[node - 1]++;
    uint64_t off = TS_ITEMS + 1024 * n, slots[PM_BUCKET_SLOTS];
    struct pm_bucket_pm b;

    memcpy(&b, at(fs, node, TS_BUCKETS), sizeof(b));
    for (uint32_t i = 0; i < n; i++)
        slots[i] = le64_get(b.slot[i]);
    slots[n] = ts_fs_slot(off, ts_fs_hash(fs, node, key));
    ts_fs_item(fs, node, off, 5, key, value);
    ts_fs_bucket(fs, node, 0, 0, 0, le64_get(b.head.word) + 1, slots, n + 1);
    return off;
}

static void on_message(struct ts_fake *fake, struct ts_fake_conn *c,
    const struct rd_message_wire *head, const void *body)
{
    struct ts_fs *fs = (struct ts_fs *)(void *)fake;
    struct rd_table_reply_wire table = {.root_off = le64_make(TS_ROOT), .index = le32_make(1)};
    struct rd_grant_reply_wire grant = {.count = le32_make(0)};
    struct rd_block_wire block;
    uint8_t bytes[sizeof(grant) + 16 * sizeof(block)];
    struct rd_grant_wire asked;
    struct rd_word_reply_wire word = {.answer = le32_make((uint32_t)fs->word_answer)};
    uint32_t count;

    switch (le16_get(head->type)) {
    case RD_MSG_TABLE:
        ts_fake_reply(fake, c, head, RD_MSG_TABLE_REPLY, 0, &table, sizeof(table));
        break;
    case RD_MSG_GRANT:
        memcpy(&asked, body, sizeof(asked));
        count = fs->grant_status != 0 ? 0 : (uint32_t)cn_min64(le32_get(asked.count), 16);
        grant.count = le32_make(count);
        memcpy(bytes, &grant, sizeof(grant));
        for (uint32_t i = 0; i < count; i++) {
            block = (struct rd_block_wire){
                le64_make(TS_BLOCKS + 1024 * (fs->granted[c->node - 1]++ % 32)), le64_make(9)};
            memcpy(bytes + sizeof(grant) + i * sizeof(block), &block, sizeof(block));
        }
        ts_fake_reply(fake, c, head, RD_MSG_GRANT_REPLY, fs->grant_status, bytes,
            (uint32_t)(sizeof(grant) + count * sizeof(block)));
        break;
    case RD_MSG_ROOM:
        fs->rooms++;
        ts_fake_reply(fake, c, head, RD_MSG_ROOM_REPLY, fs->room_status, NULL, 0);
        break;
    case RD_MSG_WORD:
        fs->words++;
        if (!fs->stopped)
            ts_fake_reply(fake, c, head, RD_MSG_WORD_REPLY, 0, &word, sizeof(word));
        break;
    default: break;
    }
}

void ts_fs_open(struct ts_fs *fs, uint32_t nodes, uint32_t bucket_slots)
{
    ts_fs_open_inflight(fs, nodes, bucket_slots, 1);
}

void ts_fs_open_inflight(
    struct ts_fs *fs, uint32_t nodes, uint32_t bucket_slots, uint32_t inflight)
{
    struct cairn_options options = CAIRN_OPTIONS_DEFAULT;

    options.inflight = inflight;
    memset(fs, 0, sizeof(*fs));
    fs->word_answer = RD_WORD_CHANGED;
    ts_fake_open(&fs->fake, nodes, TS_MEMORY);
    fs->fake.on_message = on_message;
    fs->nodes = nodes;
    memset(fs->config.cluster.b, 0x77, 16);
    (void)snprintf(fs->config.path, sizeof(fs->config.path), "(test)");
    fs->config.view = 1;
    fs->config.node_count = nodes;
    fs->config.table_count = 1;
    fs->config.table[0] = (struct txn_config_table){.id = 1, .name = "t"};
    for (uint16_t n = 1; n <= nodes; n++) {
        fs->config.node[n - 1].id = n;
        (void)snprintf(fs->config.node[n - 1].address, RD_ADDRESS_SIZE_MAX, "fake%u", n);
        write_root(fs, n, bucket_slots);
        ts_fs_bucket(fs, n, 0, 0, 0, 1, NULL, 0);
    }
    CAIRN_ASSERT(
        txn_cluster_open(&fs->config, &fs->fake.rd, &fs->fake.env, &options, &fs->cluster) == 0);
    fs->cluster->pace.spins = 0;
    CAIRN_ASSERT(cairn_ctx_open(fs->cluster, &fs->ctx) == 0);
}

void ts_fs_close(struct ts_fs *fs)
{
    cairn_ctx_close(&fs->ctx);
    cairn_close(&fs->cluster);
    ts_fake_close(&fs->fake);
}
