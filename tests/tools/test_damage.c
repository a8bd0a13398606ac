/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: one flipped bit anywhere in a pool that is in use: whoever meets it gets a distinct error
 * that names node and place, everybody else is served, `cairn inspect --check` finds it, and the
 * bit flipped back is all well again.
 * Method: nodes are processes of the program; the test maps their pool file and flips bits under
 * them, or while they are stopped or down.
 * Invariants: damage is never returned as data, never spreads, never ends a node that serves.
 */
#include "tests/tools/lt_cluster.h"

#include "pmem/pm_pool.h"
#include "pmem/pm_slot.h"
#include "pmem/pm_store.h"

#include <stdlib.h>
#include <unistd.h>

#define SMALL "slots = 4; ring_size = \"1M\"; window = 64; lease_ms = 300; resolve_ms = 300"
#define MARKED "a value that occurs only once in all of this pool"

/* A node with keys "a" to "h", applied, and its pool's file. */
struct scene {
    struct lt_cluster *c;
    struct lt_file file;
    char pool[128];
};

static void open_scene(struct scene *s)
{
    s->c = lt_new(1, "64M", SMALL);
    s->c->options.op_timeout_ms = 700;
    (void)lt_path(s->c, s->pool, "n1.pool");
    lt_start(s->c, 1);
    lt_open(s->c);
    for (char key[2] = "a"; key[0] <= 'h'; key[0]++)
        LT_OK(lt_put(s->c, key, key, 1));
    LT_OK(lt_put(s->c, "marked", MARKED, sizeof(MARKED) - 1));
    lt_expect_value(s->c, "marked", MARKED); /* applied: not locked any more */
    s->file = lt_map(s->c, 1);
}

static void close_scene(struct scene *s)
{
    lt_unmap(&s->file);
    lt_delete(&s->c);
}

/* What is at a place of the file of node 1, seen as a pool. */
static struct pm_pool *look(const struct scene *s)
{
    struct pm_pool *pool;

    LT_OK(pm_pool_open(s->pool, PM_OPEN_READ_ONLY, 0, cn_env_system(), &pool));
    return pool;
}

/* The n-th place of `bytes` in the file at or above `from`. */
static uint8_t *find(const struct scene *s, uint64_t from, const void *bytes, size_t size)
{
    return memmem(s->file.at + from, s->file.size - from, bytes, size);
}

/* Pool offset of the live item of a key with a value that occurs nowhere else. */
static uint64_t find_item(const struct scene *s, const char *value)
{
    struct pm_pool *pool = look(s);
    uint64_t heap = pool->super.heap_off;
    uint8_t *at = find(s, heap, value, strlen(value));

    pm_pool_close(&pool);
    assert_non_null(at);
    return (uint64_t)(at - s->file.at);
}

static void expect_served(struct scene *s)
{
    for (char key[2] = "c"; key[0] <= 'h'; key[0]++)
        lt_expect_value(s->c, key, key);
    LT_OK(lt_put(s->c, "h", "h", 1));
}

/* ---- item ---- */

static void item__flipped_bit__reader_told_others_served(void **state)
{
    (void)state;
    struct scene s;
    char buf[128], offset[32];
    size_t size;

    open_scene(&s);
    uint64_t value_at = find_item(&s, MARKED);
    uint64_t item = value_at - PM_ITEM_HEADER_SIZE - 8; /* the key takes 8 bytes */
    (void)snprintf(offset, sizeof(offset), "0x%llx", (unsigned long long)item);
    s.file.at[value_at + 3] ^= 0x10;
    for (int cold = 0; cold < 2; cold++) {
        uint64_t begun = lt_now_ms();
        LT_ERROR(CAIRN_E_CORRUPT_ITEM, "node 1", lt_get(s.c, "marked", buf, sizeof(buf), &size));
        assert_non_null(strstr(cairn_last_error(), offset));
        assert_true(lt_now_ms() - begun < 10000);
        expect_served(&s);
        if (cold == 0)
            lt_open(s.c);
    }
    int rc = lt_try_put(s.c, "marked", "x", 1);
    assert_true(rc != 0); /* nothing is written over what was not understood */
    LT_EXPECT(s.c, 1, offset, "inspect", "--check", s.pool);
    s.file.at[value_at + 3] ^= 0x10;
    lt_expect_value(s.c, "marked", MARKED);
    LT_OK(lt_put(s.c, "marked", "x", 1));
    lt_expect_value(s.c, "marked", "x");
    LT_EXPECT(s.c, 0, "damages", "inspect", "--check", s.pool);
    close_scene(&s);
}

/* ---- bucket ---- */

/* Pool offset of the bucket that holds the item at this offset. */
static uint64_t find_bucket(const struct scene *s, uint64_t item)
{
    struct pm_pool *pool = look(s);
    uint64_t at = pool->super.heap_off, ret = 0;

    for (; at + PM_BUCKET_SIZE <= s->file.size && ret == 0; at += PM_BUCKET_SIZE) {
        const struct pm_bucket_pm *b = (const void *)(s->file.at + at);
        if (((le64_get(b->head.meta) >> 40) & 0xff) != PM_KIND_BUCKET)
            continue;
        for (uint32_t i = 0; i < PM_BUCKET_SLOTS; i++)
            if (le64_get(b->slot[i]) >> 21 == item / 64)
                ret = at;
    }
    pm_pool_close(&pool);
    assert_int_not_equal(ret, 0);
    return ret;
}

static void bucket__flipped_bit__reader_told_others_served(void **state)
{
    (void)state;
    struct scene s;
    char buf[128], offset[32];
    size_t size;

    open_scene(&s);
    uint64_t item = find_item(&s, MARKED) - PM_ITEM_HEADER_SIZE - 8;
    uint64_t bucket = find_bucket(&s, item);
    (void)snprintf(offset, sizeof(offset), "0x%llx", (unsigned long long)bucket);
    const struct pm_bucket_pm *b = (const void *)(s.file.at + bucket);
    uint32_t n = 0;
    while (le64_get(b->slot[n]) >> 21 != item / 64)
        n++;
    uint8_t *slot = s.file.at + bucket + offsetof(struct pm_bucket_pm, slot) + n * 8;
    slot[0] ^= 0x40; /* the fingerprint: the key is not found, and that must not be believed */
    lt_expect_value(s.c, "marked", MARKED); /* warm: the item proves itself */
    lt_open(s.c);
    uint64_t begun = lt_now_ms();
    LT_ERROR(CAIRN_E_CORRUPT_BUCKET, "node 1", lt_get(s.c, "marked", buf, sizeof(buf), &size));
    assert_non_null(strstr(cairn_last_error(), offset));
    assert_true(lt_now_ms() - begun < 10000);
    LT_ERROR(CAIRN_E_CORRUPT_BUCKET, offset, lt_put(s.c, "marked", NULL, 0));
    expect_served(&s);
    LT_EXPECT(s.c, 1, offset, "inspect", "--check", s.pool);
    slot[0] ^= 0x40;
    lt_expect_value(s.c, "marked", MARKED);
    LT_OK(lt_put(s.c, "marked", NULL, 0));
    lt_expect_value(s.c, "marked", NULL);
    LT_EXPECT(s.c, 0, "damages", "inspect", "--check", s.pool);
    close_scene(&s);
}

/* ---- redo record ---- */

/* Commit to "marked" and "b" while the node is stopped, and return where the first record lies. */
static uint64_t log_two(struct scene *s)
{
    static const char first[] = "the first value, in its record only";
    struct pm_pool *pool;

    (void)usleep(100000);
    lt_pause(s->c, 1);
    LT_OK(lt_try_put(s->c, "marked", first, sizeof(first) - 1));
    LT_OK(lt_try_put(s->c, "b", "B", 1));
    pool = look(s);
    uint8_t *at = find(s, pool->super.rings_off, first, sizeof(first) - 1);
    assert_non_null(at);
    assert_true((uint64_t)(at - s->file.at) < pool->super.heap_off);
    pm_pool_close(&pool);
    return (uint64_t)(at - s->file.at);
}

static void expect_old_value(struct scene *s)
{
    uint64_t end = lt_now_ms() + 8000;
    char buf[128];
    size_t size;
    int rc;

    while ((rc = lt_get(s->c, "marked", buf, sizeof(buf), &size)) != 0 && lt_now_ms() < end)
        (void)usleep(50000);
    lt_check_error(rc, 0, NULL, "get", __LINE__);
    assert_int_equal(size, sizeof(MARKED) - 1);
    assert_memory_equal(buf, MARKED, size);
}

static void record__flipped_bit_while_running__not_applied_and_reported(void **state)
{
    (void)state;
    struct scene s;

    open_scene(&s);
    uint64_t at = log_two(&s);
    s.file.at[at] ^= 0x04;
    lt_resume(s.c, 1);
    assert_true(lt_log_says(s.c, 1, "CAIRN_E_CORRUPT_RECORD", 5000));
    /* It was committed and cannot be applied: the old value is not served as if nothing had been.
     */
    lt_expect_value(s.c, "b", "B"); /* the next record is whole */
    char buf[128];
    size_t size;
    lt_check_error(lt_get(s.c, "marked", buf, sizeof(buf), &size), CAIRN_E_TIMEOUT, "stays locked",
        "get", __LINE__);
    expect_served(&s);
    assert_int_not_equal(lt_counter(s.c, 1, "records_rejected"), 0);
    close_scene(&s);
}

static void record__flipped_bit_then_restart__does_not_serve_unless_told_to(void **state)
{
    (void)state;
    struct scene s;

    open_scene(&s);
    uint64_t at = log_two(&s);
    lt_kill(s.c, 1);
    s.file.at[at] ^= 0x04;
    LT_EXPECT(s.c, 1, "CAIRN_E_CORRUPT_RECORD", "inspect", s.pool);
    /* Nobody knows any more which key it wrote: no value may be given out. */
    LT_EXPECT(s.c, 1, "the node does not serve", "node", "--config", s.c->config, "--id", "1");
    LT_EXPECT(s.c, 1, "--serve-damaged", "node", "--config", s.c->config, "--id", "1");
    lt_start_with(s.c, 1, "--serve-damaged");
    lt_open(s.c);
    expect_old_value(&s);
    lt_expect_value(s.c, "b", "B"); /* the next record is whole and marked */
    assert_true(lt_log_says(s.c, 1, "CAIRN_E_CORRUPT_RECORD", 1000));
    close_scene(&s);
}

/* Refusing to serve gives nothing up. */
static void record__mended_after_the_refusal__applied(void **state)
{
    (void)state;
    struct scene s;

    open_scene(&s);
    uint64_t at = log_two(&s);
    lt_kill(s.c, 1);
    s.file.at[at] ^= 0x04;
    LT_EXPECT(s.c, 1, "the node does not serve", "node", "--config", s.c->config, "--id", "1");
    s.file.at[at] ^= 0x04;
    lt_start(s.c, 1);
    lt_open(s.c);
    lt_expect_value(s.c, "marked", "the first value, in its record only");
    lt_expect_value(s.c, "b", "B");
    close_scene(&s);
}

/* ---- slot header ---- */

static void slot_header__flipped_bit__one_copy_heals_two_are_an_error(void **state)
{
    (void)state;
    struct scene s;

    open_scene(&s);
    (void)log_two(&s);
    lt_kill(s.c, 1);
    struct pm_pool *pool = look(&s);
    uint64_t copy[2];
    struct pm_slot slot;
    uint16_t number = 1;
    for (; number < 4; number++) /* the context's */
        if (pm_slot_load(pool, number, &slot) == 0 && slot.state == PM_SLOT_OPEN)
            break;
    assert_true(number < 4);
    copy[0] = pool->super.slots_off + (uint64_t)number * pool->super.slot_stride;
    copy[1] = copy[0] + sizeof(struct pm_slot_pm);
    const uint64_t slot_stride = pool->super.slot_stride;
    pm_pool_close(&pool);
    uint8_t *nonce[2];
    for (uint32_t i = 0; i < 2; i++)
        nonce[i] = s.file.at + copy[i] + offsetof(struct pm_slot_pm, nonce);
    nonce[0][0] ^= 1;
    nonce[1][0] ^= 1;
    LT_EXPECT(s.c, 1, "slot", "inspect", s.pool);
    LT_EXPECT(s.c, 1, "slot", "node", "--config", s.c->config, "--id", "1");
    nonce[1][0] ^= 1; /* one copy is enough, whichever: both are always written */
    lt_start(s.c, 1);
    /* Of a slot that nobody uses, under a node at work: it may be what that one is changing. */
    const ptrdiff_t next = (ptrdiff_t)slot_stride;
    for (uint32_t i = 0; i < 2; i++)
        (nonce[i] + next)[0] ^= 1;
    LT_EXPECT(s.c, 1, "has it open", "inspect", s.pool);
    for (uint32_t i = 0; i < 2; i++)
        (nonce[i] + next)[0] ^= 1;
    lt_open(s.c);
    lt_expect_value(s.c, "marked", "the first value, in its record only");
    lt_expect_value(s.c, "b", "B");
    close_scene(&s);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    cn_env_system_log_level(CN_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(item__flipped_bit__reader_told_others_served),
        cmocka_unit_test(bucket__flipped_bit__reader_told_others_served),
        cmocka_unit_test(record__flipped_bit_while_running__not_applied_and_reported),
        cmocka_unit_test(record__flipped_bit_then_restart__does_not_serve_unless_told_to),
        cmocka_unit_test(record__mended_after_the_refusal__applied),
        cmocka_unit_test(slot_header__flipped_bit__one_copy_heals_two_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
