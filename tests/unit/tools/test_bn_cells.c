/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: cells (bn_cells.c): what is packed is read again, and nothing else passes; transactions are
 * drawn as asked, and the same again from the same seed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "tools/bench/bn_cells.h"

#define SIZE_MAX_HERE 300u
#define KEYS 1000u

static void unpack__packed__same(void **state)
{
    static const uint32_t sizes[] = {16, 17, 100, SIZE_MAX_HERE};
    uint8_t value[SIZE_MAX_HERE];

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(sizes); i++) {
        const struct bn_cells cells = {.value_size = sizes[i]};
        const struct bn_cell cell = {.writer = 3, .number = 4000000000u, .count = 17};
        struct bn_cell got;
        bn_cell_pack(&cells, 99, &cell, value);
        assert_int_equal(bn_cell_unpack(&cells, 99, value, sizes[i], &got), 0);
        assert_memory_equal(&got, &cell, sizeof(cell));
    }
}

static void unpack__any_bit_wrong__refused(void **state)
{
    const struct bn_cells cells = {.value_size = 40};
    const struct bn_cell cell = {.writer = 1, .number = 2, .count = 3};
    uint8_t value[40];
    struct bn_cell got;

    (void)state;
    bn_cell_pack(&cells, 5, &cell, value);
    for (uint32_t bit = 0; bit < 8 * sizeof(value); bit++) {
        value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(bn_cell_unpack(&cells, 5, value, sizeof(value), &got), CAIRN_E_STATE);
        value[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(bn_cell_unpack(&cells, 6, value, sizeof(value), &got), CAIRN_E_STATE);
    assert_int_equal(bn_cell_unpack(&cells, 5, value, sizeof(value) - 1, &got), CAIRN_E_STATE);
    assert_int_equal(bn_cell_unpack(&cells, 5, value, sizeof(value), &got), 0);
}

/* ---- drawing ---- */

struct stand {
    struct bn_cells_load load;
    uint8_t shard[KEYS];
    struct bn_cells_worker worker;
};

static void make_stand(struct stand *s)
{
    memset(s, 0, sizeof(*s));
    s->load.load.inflight = 2;
    s->load.cells = (struct bn_cells){
        .table = 1, .value_size = 16, .keys = KEYS, .touches_max = 8, .counted = true};
    bn_zipf_init(&s->load.cells.zipf, KEYS, 0.9);
    s->load.cells.shard = s->shard;
    for (uint32_t i = 0; i < KEYS; i++)
        s->shard[i] = (uint8_t)(i % 3);
    assert_int_equal(bn_cells_worker_init(&s->load.load, &s->worker, 0), 0);
}

static void draw(struct stand *s, uint64_t *random, struct bn_touches *t, uint32_t shard)
{
    memset(t, 0, sizeof(*t));
    bn_cells_begin(&s->load.load, &s->worker, t);
    for (uint32_t i = 0; i < 6; i++)
        bn_cells_touch(&s->worker, random, t,
            i < 4 ? BN_TOUCH_UPDATE : BN_TOUCH_READ, shard);
    bn_cells_touch(&s->worker, random, t, BN_TOUCH_INSERT, BN_ANY_SHARD);
}

static void touch__many__distinct_and_numbered(void **state)
{
    struct stand *s = malloc(sizeof(*s));
    uint32_t written[KEYS] = {0};
    uint64_t random = 1, inserted = 0;
    struct bn_touches t;

    (void)state;
    assert_non_null(s);
    make_stand(s);
    for (uint32_t n = 0; n < 2000; n++) {
        draw(s, &random, &t, BN_ANY_SHARD);
        bn_cells_number(&t);
        bn_cells_number(&t); /* a body that runs again */
        for (uint32_t i = 0; i < 6; i++) {
            assert_true(t.touch[i].key < KEYS);
            for (uint32_t j = 0; j < i; j++)
                assert_true(t.touch[i].key != t.touch[j].key);
            if (i < 4)
                assert_int_equal(t.touch[i].number, ++written[t.touch[i].key]);
        }
        assert_true(n == 0 || t.touch[6].key == inserted + 1);
        inserted = t.touch[6].key;
        bn_cells_settle(&s->load.load, &s->worker, &t, true);
    }
    assert_int_equal(s->worker.drawn, 2000 * 5);
    assert_int_equal(s->worker.settled, 2000 * 5);
    assert_int_equal(s->worker.free_count, 2);
    bn_cells_worker_end(&s->load.load, &s->worker);
    free(s);
}

/* The floor of a key: writes that were over when the last one began have been overwritten. */
static void touch__writes_overlap__floor_is_the_first_in_flight(void **state)
{
    struct stand *s = malloc(sizeof(*s));
    struct bn_touches t[4];
    uint64_t random = 1;

    (void)state;
    assert_non_null(s);
    make_stand(s);
    s->load.cells.keys = 1; /* each is of key 0 */
    bn_zipf_init(&s->load.cells.zipf, 1, 0);
    const struct bn_cells_key *key = &s->worker.key[0];
    memset(t, 0, sizeof(t));
    for (uint32_t i = 0; i < 2; i++) {
        bn_cells_begin(&s->load.load, &s->worker, &t[i]);
        bn_cells_touch(&s->worker, &random, &t[i], BN_TOUCH_BLIND, BN_ANY_SHARD);
        bn_cells_number(&t[i]);
        assert_int_equal(key->floor, 1);
    }
    bn_cells_settle(&s->load.load, &s->worker, &t[0], true);
    assert_int_equal(key->floor, 1); /* 1 may have been the later of the two */
    bn_cells_begin(&s->load.load, &s->worker, &t[2]);
    bn_cells_touch(&s->worker, &random, &t[2], BN_TOUCH_UPDATE, BN_ANY_SHARD);
    bn_cells_number(&t[2]);
    assert_int_equal(key->floor, 2);
    bn_cells_settle(&s->load.load, &s->worker, &t[2], true);
    bn_cells_settle(&s->load.load, &s->worker, &t[1], true);
    bn_cells_begin(&s->load.load, &s->worker, &t[3]);
    bn_cells_touch(&s->worker, &random, &t[3], BN_TOUCH_BLIND, BN_ANY_SHARD);
    bn_cells_number(&t[3]);
    assert_int_equal(key->floor, 4);
    assert_int_equal(key->written, 4);
    assert_int_equal(key->flying, 1);
    s->load.cells.keys = KEYS;
    bn_cells_worker_end(&s->load.load, &s->worker);
    free(s);
}

static void touch__of_a_shard__lies_there(void **state)
{
    struct stand *s = malloc(sizeof(*s));
    uint64_t random = 1;
    struct bn_touches t;

    (void)state;
    assert_non_null(s);
    make_stand(s);
    for (uint32_t n = 0; n < 100; n++) {
        draw(s, &random, &t, n % 3);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(t.touch[i].key % 3, n % 3);
        bn_cells_settle(&s->load.load, &s->worker, &t, true);
    }
    bn_cells_worker_end(&s->load.load, &s->worker);
    free(s);
}

static void begin__two_in_flight__buffers_differ(void **state)
{
    struct stand *s = malloc(sizeof(*s));
    uint64_t random = 1;
    struct bn_touches a, b;

    (void)state;
    assert_non_null(s);
    make_stand(s);
    draw(s, &random, &a, BN_ANY_SHARD);
    draw(s, &random, &b, BN_ANY_SHARD);
    assert_true(a.buffer + 8 * 16 <= b.buffer || b.buffer + 8 * 16 <= a.buffer);
    bn_cells_worker_end(&s->load.load, &s->worker);
    free(s);
}

static void theta__texts__as_they_are(void **state)
{
    static const char *const wrong[] = {"", "x", "0.9x", "-1", "11", "nan", "1e3", " 1"};
    double theta = -1;

    (void)state;
    assert_true(bn_parse_theta("0.99", &theta) && theta > 0.98 && theta < 1);
    assert_true(bn_parse_theta("0", &theta) && theta < 0.001);
    for (size_t i = 0; i < CN_ARRAY_SIZE(wrong); i++)
        assert_false(bn_parse_theta(wrong[i], &theta));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpack__packed__same),
        cmocka_unit_test(unpack__any_bit_wrong__refused),
        cmocka_unit_test(touch__many__distinct_and_numbered),
        cmocka_unit_test(touch__writes_overlap__floor_is_the_first_in_flight),
        cmocka_unit_test(touch__of_a_shard__lies_there),
        cmocka_unit_test(begin__two_in_flight__buffers_differ),
        cmocka_unit_test(theta__texts__as_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
