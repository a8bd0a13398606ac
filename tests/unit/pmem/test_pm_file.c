/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the superblock is found in any file, or a clear error; never a read out of bounds.
 * Method: files made by hand (no libpmemobj), then damaged at random; the mapping ends with the
 * file.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "pmem/pm_format.h"
#include "tests/support/ts_pool.h"

/* An image as libpmemobj would have it: header, root object at 8192, superblock at 16384. */
static struct ts_pool *make_image(void)
{
    struct ts_pool *t = ts_pool_new_blank(NULL, 0);
    struct pm_extent_pm extent = {le64_make(16384), le64_make(t->size - 16384)};
    struct cn_uuid cluster = {{1}};
    struct pm_root_pm root = {
        .magic = le64_make(PM_ROOT_MAGIC),
        .layout_version = le32_make(PM_LAYOUT_VERSION),
        .extent_count = le32_make(1),
        .pool_size = le64_make(t->size),
        .extent = {extent},
    };
    struct le64 root_off = le64_make(8192);

    assert_int_equal(pm_format(&t->pm, &extent, 1, &ts_geometry_small, &cluster, 1), 0);
    memcpy(t->visible, "PMEMOBJ", 8);
    memcpy(t->visible + 4096, "cairn", 6);
    memcpy(t->visible + 6144, &root_off, 8);
    memcpy(t->visible + 8192, &root, sizeof(root));
    return t;
}

static int find(const struct ts_pool *t, uint64_t *off)
{
    struct pm_file file = {.fd = -1, .base = t->visible, .size = t->size};

    return pm_file_find_super(&file, off);
}

static void pm_file_find_super__good_image__found(void **state)
{
    struct ts_pool *t = make_image();
    uint64_t off = 0;

    (void)state;
    assert_int_equal(find(t, &off), 0);
    assert_int_equal(off, 16384);
    memset(t->visible + 6144, 0, 8); /* no root object known: searched for */
    off = 0;
    assert_int_equal(find(t, &off), 0);
    assert_int_equal(off, 16384);
    memset(t->visible + 6144, 0xff, 8);
    assert_int_equal(find(t, &off), 0);
    ts_pool_delete(&t);
}

static void pm_file_find_super__copy_of_a_superblock_elsewhere__not_believed(void **state)
{
    struct ts_pool *t = make_image();
    uint64_t off = 0;

    (void)state;
    memcpy(t->visible + 12288, t->visible + 16384, sizeof(struct pm_super_pm));
    memset(t->visible + 6144, 0, 8);
    assert_int_equal(find(t, &off), 0);
    assert_int_equal(off, 16384);
    t->visible[16384] ^= 1;
    assert_int_equal(find(t, &off), CAIRN_E_NOT_A_POOL);
    ts_pool_delete(&t);
}

static void pm_file_find_super__other_version__layout_version(void **state)
{
    struct ts_pool *t = make_image();
    struct pm_super_pm media;
    uint64_t off;

    (void)state;
    memcpy(&media, t->visible + 16384, sizeof(media));
    media.layout_version = le32_make(2);
    media.crc = le32_make(0);
    media.crc = le32_make(cn_crc32c(0, &media, sizeof(media)));
    memcpy(t->visible + 16384, &media, sizeof(media));
    t->visible[8192 + 8] = 2;
    assert_int_equal(find(t, &off), CAIRN_E_LAYOUT_VERSION);
    assert_non_null(strstr(cairn_last_error(), "version 2"));
    ts_pool_delete(&t);
}

static void pm_file_find_super__random_damage__an_error_or_the_place(void **state)
{
    struct ts_pool *t = make_image();
    uint8_t *good = malloc(24576);
    uint64_t seed = 2, off;
    unsigned errors = 0;

    (void)state;
    memcpy(good, t->visible, 24576);
    for (unsigned round = 0; round < 3000; round++) {
        for (unsigned n = 0; n < 1 + round % 3; n++) {
            static const uint32_t areas[][2] = {
                {0, 8}, {4096, 6}, {6144, 8}, {8192, 64}, {16384, 512}, {16384, 16}};
            const uint32_t *area = areas[ts_random(&seed) % CN_ARRAY_SIZE(areas)];

            t->visible[area[0] + ts_random(&seed) % area[1]] = (uint8_t)ts_random(&seed);
        }
        off = 0;
        if (find(t, &off) != 0)
            errors++;
        else
            assert_int_equal(off, 16384);
        memcpy(t->visible, good, 24576);
    }
    assert_true(errors > 1000 && errors < 3000);
    free(good);
    ts_pool_delete(&t);
}

static void pm_file_map__not_mappable__error_names_it(void **state)
{
    struct pm_file file;

    (void)state;
    assert_int_equal(pm_file_map("/nonexistent", &file), -ENOENT);
    assert_non_null(strstr(cairn_last_error(), "/nonexistent"));
    assert_int_equal(pm_file_map("/tmp", &file), CAIRN_E_NOT_A_POOL);
    assert_int_equal(pm_file_map("/dev/null", &file), CAIRN_E_NOT_A_POOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_file_find_super__good_image__found),
        cmocka_unit_test(pm_file_find_super__copy_of_a_superblock_elsewhere__not_believed),
        cmocka_unit_test(pm_file_find_super__other_version__layout_version),
        cmocka_unit_test(pm_file_find_super__random_damage__an_error_or_the_place),
        cmocka_unit_test(pm_file_map__not_mappable__error_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
