/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: a coordinator over a hostile store: lookups, reads, writes and commits while the node's
 * memory (index root, map, buckets, items, published position) changes under it and its checksums
 * are mended (txn_read.c, txn_index.c, txn_set.c, txn_lock.c, txn_log.c).
 * Input: damages of 10 bytes: how many posts it waits, what, index, offset (2), mode, value (4).
 * `mode`: bits 0..1 width, bit 2 mend the crc, bit 3 a number of interest, bit 4 unlock the word at
 * the version that its copy says.
 * Oracle: every call comes back with success, an outcome or an error that has a text; without any
 * damage the first transaction commits.
 */
#include "tests/fuzz/fz_common.h"
#include "tests/support/ts_fake_store.h"

#define DAMAGE_SIZE 10u
#define BUCKETS 8u
#define ITEMS 8u
#define POST_NS UINT64_C(20000000)

static struct ts_fs fs;
static struct fz_input damages;
static uint32_t wait; /* posts until the next damage */

static uint32_t crc_seed(void)
{
    return cn_crc32c(0, fs.fake.node[0].welcome.pool.b, 16);
}

static void mend(uint8_t what, uint8_t *at, uint64_t off, bool unlock)
{
    struct pm_item_pm head;
    struct le32 crc;
    uint32_t size = PM_BUCKET_SIZE;

    if (what == 0) {
        crc = le32_make(pm_index_crc((void *)at, off, crc_seed()));
        memcpy(at + offsetof(struct pm_index_pm, crc), &crc, 4);
        return;
    }
    memcpy(&head, at, sizeof(head));
    if (unlock) {
        head.head.word = le64_make(pm_word_version(le64_get(head.head.meta)));
        memcpy(at, &head.head.word, 8);
    }
    if (what == 3)
        size = (uint32_t)cn_min64(
            1024, pm_item_size(le16_get(head.key_size), le32_get(head.value_size)));
    crc = le32_make(pm_object_crc(at, size, off, crc_seed()));
    memcpy(at + offsetof(struct pm_object_pm, crc), &crc, 4);
}

static void damage(struct fz_input *in)
{
    static const struct { uint64_t off; uint32_t size, count; } place[] = {
        {TS_ROOT, PM_INDEX_MAP_OFF, 1}, {TS_ROOT + PM_INDEX_MAP_OFF, 64, 1},
        {TS_BUCKETS, PM_BUCKET_SIZE, BUCKETS}, {TS_ITEMS, 1024, ITEMS}, {4096 + 64, 16, 1}};
    uint8_t what = fz_u8(in) % 5;
    uint8_t index = fz_u8(in);
    uint16_t at = fz_u16(in);
    uint8_t mode = fz_u8(in);
    uint64_t value = fz_u32(in), off = place[what].off + index % place[what].count *
        (uint64_t)place[what].size;
    uint32_t width = 1u << (mode & 3);
    uint8_t *memory = fs.fake.node[0].memory + off;

    value = (mode & 8) != 0 ? fz_interesting((uint8_t)value) : value;
    at = (uint16_t)(at % (place[what].size / width) * width);
    value = htole64(value);
    memcpy(memory + at, &value, width);
    if ((mode & 4) != 0 && what != 1 && what != 4)
        mend(what, memory, off, (mode & 16) != 0);
}

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post CN_UNUSED)
{
    fake->post_count = 0; /* nobody reads the log of posts */
    fake->now_ns += POST_NS; /* what never gets better is given up after some hundred posts */
    while (damages.left >= DAMAGE_SIZE && wait == 0) {
        damage(&damages);
        wait = damages.left > 0 ? fz_u8(&damages) % 8u : 0;
    }
    if (wait > 0)
        wait--;
    return 0;
}

static void spoken(int rc)
{
    FZ_NEED(rc <= 0, "returns %d", rc);
    FZ_NEED(rc == 0 || cairn_last_error()[0] != '\0', "error %d without a text", rc);
}

static int put_and_get(struct cairn_tx *tx, const char *key, bool lock)
{
    uint8_t *buf = fz_guard_end(0, NULL, 64);
    size_t size = 0, n = strlen(key);
    int rc = lock ? cairn_get_for_update(tx, FZ_TABLE, key, n, buf, 64, &size)
                  : cairn_get(tx, FZ_TABLE, key, n, buf, 64, &size);

    spoken(rc);
    FZ_NEED(rc != 0 || size <= 64, "%zu bytes", size);
    FZ_NEED(size <= CAIRN_VALUE_SIZE_MAX, "%zu bytes", size);
    if (rc == 0 && lock) {
        rc = cairn_put(tx, FZ_TABLE, key, n, "new", 3);
        spoken(rc);
    }
    return rc;
}

/* One transaction: reads, a write, an insert, a delete. */
static enum cairn_outcome transaction(unsigned n)
{
    static const char *const keys[] = {"alice", "bob", "carol", "dave", "nobody"};
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    struct cairn_tx *tx;
    int rc = cairn_begin(fs.ctx, &tx);

    FZ_NEED(rc == 0, "begin: %s", cairn_last_error());
    (void)put_and_get(tx, keys[n % 5], false);
    (void)put_and_get(tx, keys[(n + 1) % 5], true);
    rc = n % 2 == 0 ? cairn_put(tx, FZ_TABLE, keys[(n + 2) % 5], strlen(keys[(n + 2) % 5]), "x", 1)
                    : cairn_delete(tx, FZ_TABLE, keys[(n + 2) % 5], strlen(keys[(n + 2) % 5]));
    spoken(rc);
    rc = cairn_commit(tx, &outcome);
    spoken(rc);
    FZ_NEED(outcome >= CAIRN_OUTCOME_COMMITTED && outcome <= CAIRN_OUTCOME_UNKNOWN, "outcome");
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool calm = size < 1 + DAMAGE_SIZE;

    damages = (struct fz_input){data, size};
    wait = fz_u8(&damages) % 8u;
    ts_fs_open(&fs, 1, 4);
    (void)ts_fs_add(&fs, "alice", "value of alice");
    (void)ts_fs_add(&fs, "bob", "b");
    (void)ts_fs_add(&fs, "carol", "value of carol");
    fs.fake.on_post = on_post;
    for (unsigned n = 0; n < 3; n++) {
        enum cairn_outcome outcome = transaction(n);

        /* Nobody applies its record here, so the others find its locks. */
        FZ_NEED(!calm || n > 0 || outcome == CAIRN_OUTCOME_COMMITTED, "a good store: %s",
            cairn_outcome_name(outcome));
    }
    ts_fs_close(&fs);
    return 0;
}
