/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the layout on media does not change by accident, and pools made by it stay readable.
 * Method: a small pool is filled in a fixed way and compared, line by line, with the image kept in
 *   tests/media/layout-1.txt ("offset: 64 bytes in hex" for each line in use); and that
 *   image is opened and checked. A change on purpose raises PM_LAYOUT_VERSION and adds an image:
 *   CAIRN_GOLDEN_WRITE=1 makes this program write it.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "tests/support/ts_store.h"

#define LINE 64u
#define KEYS 12u

static const char *image_path(void)
{
    static char path[4096];
    const char *folder = getenv("CAIRN_MEDIA");
    (void)snprintf(path, sizeof(path), "%s/layout-%u.txt", folder == NULL ? "tests/media" : folder,
        PM_LAYOUT_VERSION);
    return path;
}

/* Items of several classes, deletes, moves, splits, and a record that is not applied yet. */
static struct ts_store *filled(void)
{
    struct ts_store *s = ts_store_new(&ts_geometry_small, 0, 1);
    struct ts_write open_write = {.key = KEYS, .value = {.present = true, .number = 7, .size = 9}};
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(ts_store_put(s, 1, key, 8 * key), 0);
    for (uint32_t key = 0; key < KEYS; key += 3)
        assert_int_equal(ts_store_del(s, 1, key), 0);
    for (uint32_t key = 1; key < KEYS; key += 3)
        assert_int_equal(ts_store_put(s, 1, key, 200), 0);
    assert_int_equal(ts_store_begin(s, 1, &open_write, 1), 0);
    while (s->slot[1].phase != TS_LOGGED)
        ts_store_advance(s, 1);
    return s;
}

/* Zero, or what the test pool fills unused memory with. */
static bool is_blank(const uint8_t *line)
{
    for (uint32_t i = 0; i < LINE; i++)
        if (line[i] != line[0])
            return false;
    return line[0] == 0 || line[0] == 0xa5;
}

static void format_line(uint64_t off, const uint8_t *line, char *text)
{
    int at = snprintf(text, 24, "%08llx: ", (unsigned long long)off);
    for (uint32_t i = 0; i < LINE; i++)
        at += snprintf(text + at, 3, "%02x", line[i]);
}

static void write_image(const struct ts_store *s)
{
    char text[2 * LINE + 32];
    FILE *f = fopen(image_path(), "w");
    assert_non_null(f);
    for (uint64_t off = 0; off < s->t->size; off += LINE) {
        if (is_blank(s->t->visible + off))
            continue;
        format_line(off, s->t->visible + off, text);
        assert_true(fprintf(f, "%s\n", text) > 0);
    }
    assert_int_equal(fclose(f), 0);
}

static void image__of_today__is_the_kept_one(void **state)
{
    (void)state;
    char have[2 * LINE + 32], want[2 * LINE + 64];
    struct ts_store *s = filled();
    if (getenv("CAIRN_GOLDEN_WRITE") != NULL)
        write_image(s);
    FILE *f = fopen(image_path(), "r");
    if (f == NULL)
        fail_msg("%s: cannot be read", image_path());
    for (uint64_t off = 0; off < s->t->size; off += LINE) {
        if (is_blank(s->t->visible + off))
            continue;
        format_line(off, s->t->visible + off, have);
        if (fgets(want, sizeof(want), f) == NULL)
            fail_msg("%s ends before %s", image_path(), have);
        want[strcspn(want, "\n")] = '\0';
        assert_string_equal(have, want);
    }
    assert_null(fgets(want, sizeof(want), f));
    (void)fclose(f);
    ts_store_delete(&s);
}

static void load_image(uint8_t *memory, uint64_t size)
{
    char text[2 * LINE + 64];
    FILE *f = fopen(image_path(), "r");
    if (f == NULL)
        fail_msg("%s: cannot be read", image_path());
    while (fgets(text, sizeof(text), f) != NULL) {
        char *hex;
        uint64_t off = strtoull(text, &hex, 16);
        assert_true(hex[0] == ':' && hex[1] == ' ' && off % LINE == 0 && off + LINE <= size);
        for (uint32_t i = 0; i < LINE; i++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 + 2 * i, "%2x", &byte), 1);
            memory[off + i] = (uint8_t)byte;
        }
    }
    (void)fclose(f);
}

struct found {
    uint32_t items;
};

static void count_item(
    void *arg, const struct pm_index *index, const struct pm_item_view *item)
{
    struct found *found = arg;
    assert_int_equal(index->table, 1);
    assert_true(item->key_size > 0);
    found->items++;
}

static int take_record(void *arg, const struct pm_record *record)
{
    uint32_t *records = arg;
    assert_int_equal(record->write_count, 1);
    assert_int_equal(record->type, PM_RECORD_TX);
    (*records)++;
    return 0;
}

static void image__kept__opens_and_is_whole(void **state)
{
    (void)state;
    struct ts_store *s = ts_store_new(
        &ts_geometry_small, 0, 2); /* for its memory and environment */
    struct pm pm = s->t->pool.pm;
    uint64_t ring_size = s->t->pool.super.geometry.ring_size;
    struct pm_fsck_report report;
    struct pm_pool pool;
    struct pm_slot slot;
    struct found found = {0};
    uint32_t records = 0;
    uint8_t *ring = malloc(ring_size);
    const struct pm_fsck_options options = {.item = count_item, .arg = &found};

    pm.base = calloc(1, s->t->size);
    pm.tracer = NULL;
    pm.read_only = true;
    assert_true(pm.base != NULL && ring != NULL);
    load_image(pm.base, s->t->size);
    assert_int_equal(pm_attach(&pool, &pm, s->t->pool.super_off), 0);
    assert_int_equal(pm_fsck(&pool, &options, &report), 0);
    assert_int_equal(report.damages, 0);
    assert_int_equal(found.items, KEYS - KEYS / 3);
    assert_int_equal(pm_slot_load(&pool, 1, &slot), 0);
    pm_slot_snapshot(&pool, 1, ring);
    assert_int_equal(pm_slot_scan(&pool, &slot, ring, take_record, &records), 0);
    assert_true(records > 0);
    free(ring);
    free(pm.base);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(image__of_today__is_the_kept_one),
        cmocka_unit_test(image__kept__opens_and_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
