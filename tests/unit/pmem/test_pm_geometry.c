/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: defaults, bounds, and that places computed are places accepted, and broken ones are not.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "tests/support/ts_pool.h"

static void pm_geometry_complete__zeros__get_the_defaults(void **state)
{
    struct pm_geometry g = {0};

    (void)state;
    assert_int_equal(pm_geometry_complete(&g), 0);
    assert_int_equal(g.chunk_shift, 21);
    assert_int_equal(g.slot_count, 64);
    assert_int_equal(g.window, 1024);
    assert_int_equal(g.ring_size, 2 * 1024 * 1024 - 4096);
    assert_int_equal(g.retired_max, 16384);
    assert_int_equal(g.root_map_max, 16384);
    assert_int_equal(g.bucket_slots, 56);
    assert_int_equal(g.fingerprint_bits, 16);
    assert_int_equal(g.depth0, 12);
    g = (struct pm_geometry){.chunk_shift = 12};
    assert_int_equal(pm_geometry_complete(&g), 0);
    assert_int_equal(g.depth0, 3);
    assert_int_equal(g.root_map_max, (4096 - 256) / 8);
    g = (struct pm_geometry){.depth0 = PM_GEOMETRY_DEPTH0_ZERO};
    assert_int_equal(pm_geometry_complete(&g), 0);
    assert_int_equal(g.depth0, 0);
}

static void pm_geometry_complete__out_of_bounds__config_names_the_field(void **state)
{
    static const struct { struct pm_geometry g; const char *name; } cases[] = {
        {{.chunk_shift = 11}, "chunk_shift"},
        {{.chunk_shift = 22}, "chunk_shift"},
        {{.chunk_shift = 64}, "chunk_shift"},
        {{.slot_count = 1}, "slot_count"},
        {{.slot_count = 4097}, "slot_count"},
        {{.window = 3}, "window"},
        {{.window = 65537}, "window"},
        {{.ring_size = 4032}, "ring_size"},
        {{.ring_size = 8192 + 32}, "ring_size"},
        {{.ring_size = UINT64_MAX & ~63ull}, "ring_size"},
        {{.retired_max = UINT32_MAX}, "retired_max"},
        {{.chunk_shift = 12, .root_map_max = 481}, "root_map_max"},
        {{.bucket_slots = 1}, "bucket_slots"},
        {{.bucket_slots = 57}, "bucket_slots"},
        {{.fingerprint_bits = 17}, "fingerprint_bits"},
        {{.chunk_shift = 12, .depth0 = 4}, "depth0"},
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        struct pm_geometry g = cases[i].g;

        assert_int_equal(pm_geometry_complete(&g), CAIRN_E_CONFIG);
        assert_non_null(strstr(cairn_last_error(), cases[i].name));
    }
}

static struct pm_super placed(void)
{
    struct pm_super s = {.geometry = ts_geometry_small, .pool_size = 1 << 20, .extent_count = 2};

    assert_int_equal(pm_geometry_complete(&s.geometry), 0);
    s.extent[0].off = 4096;
    s.extent[0].size = 128 * 4096;
    s.extent[1].off = 200 * 4096;
    s.extent[1].size = 56 * 4096;
    pm_geometry_place(&s);
    return s;
}

static void pm_geometry_place__any_geometry__is_accepted_and_fits(void **state)
{
    uint64_t seed = 9;
    struct pm_super s = placed();

    (void)state;
    assert_null(pm_geometry_check_places(&s));
    for (unsigned round = 0; round < 2000; round++) {
        s = (struct pm_super){.extent_count = 1, .geometry = {
            .chunk_shift = 12 + (uint32_t)(ts_random(&seed) % 10),
            .slot_count = 2 + (uint32_t)(ts_random(&seed) % 100),
            .window = 4 + (uint32_t)(ts_random(&seed) % 2000),
            .ring_size = 4096 + ts_random(&seed) % 1000 * 64,
            .retired_max = 1 + (uint32_t)(ts_random(&seed) % 5000)}};
        assert_int_equal(pm_geometry_complete(&s.geometry), 0);
        s.extent[0].off = UINT64_C(1) << s.geometry.chunk_shift;
        s.pool_size = UINT64_C(1) << 36;
        s.extent[0].size = s.pool_size - s.extent[0].off;
        pm_geometry_place(&s);
        assert_null(pm_geometry_check_places(&s));
        s.extent[0].size = pm_geometry_extent_min(&s);
        assert_null(pm_geometry_check_places(&s));
        assert_true(s.heap_off < s.extent[0].off + s.extent[0].size);
        s.extent[0].size = s.heap_off - s.extent[0].off - (UINT64_C(1) << s.geometry.chunk_shift);
        if (s.extent[0].size != 0)
            assert_non_null(pm_geometry_check_places(&s));
    }
}

static void pm_geometry_check_places__broken__says_so(void **state)
{
    (void)state;
#define BROKEN(change)                                                                             \
    do {                                                                                           \
        struct pm_super s = placed();                                                              \
        change;                                                                                    \
        if (pm_geometry_check_places(&s) == NULL)                                                  \
            fail_msg("taken: %s", #change);                                                        \
    } while (0)
    BROKEN(s.extent_count = 0);
    BROKEN(s.extent_count = PM_EXTENTS_MAX + 1);
    BROKEN(s.extent[0].off = 0);
    BROKEN(s.extent[0].off += 64);
    BROKEN(s.extent[1].size = 0);
    BROKEN(s.extent[1].size += 4096);
    BROKEN(s.extent[1].size = UINT64_MAX & ~4095ull);
    BROKEN(s.extent[1].off = UINT64_MAX & ~4095ull);
    BROKEN(s.extent[1].off = 100 * 4096);
    BROKEN(s.tombstone_max = 15);
    BROKEN(s.tombstone_max = UINT32_MAX);
    BROKEN(s.slot_stride -= 64);
    BROKEN(s.slot_stride += 8);
    BROKEN(s.ring_stride -= 4096);
    BROKEN(s.ring_stride += 64);
    BROKEN(s.ring_stride = UINT64_MAX & ~4095ull);
    BROKEN(s.chunk_count++);
    BROKEN(s.chunk_count--);
    BROKEN(s.slots_off -= 64);
    BROKEN(s.slots_off += 64);
    BROKEN(s.slots_off = UINT64_MAX & ~63ull);
    BROKEN(s.retired_off -= 64);
    BROKEN(s.retired_off = s.rings_off);
    BROKEN(s.chunks_off -= 16);
    BROKEN(s.chunks_off = s.heap_off);
    BROKEN(s.rings_off -= 4096);
    BROKEN(s.rings_off += 64);
    BROKEN(s.rings_off = UINT64_MAX & ~4095ull);
    BROKEN(s.heap_off -= 4096);
    BROKEN(s.heap_off += 64);
    BROKEN(s.heap_off = s.extent[1].off);
    BROKEN(s.geometry.slot_count = 4096);
    BROKEN(s.geometry.retired_max = 1u << 24);
    BROKEN(s.pool_size -= 4096);
}

static void pm_pool_size_min__heap__grows_with_it(void **state)
{
    struct pm_geometry g = {0}, bad = {.window = 1};

    (void)state;
    assert_true(pm_pool_size_min(&g, 0) > UINT64_C(128) << 20); /* the rings alone */
    assert_true(pm_pool_size_min(&g, UINT64_C(1) << 30) >=
        pm_pool_size_min(&g, 0) + (UINT64_C(1) << 30) - (UINT64_C(8) << 20));
    assert_int_equal(pm_pool_size_min(&bad, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_geometry_complete__zeros__get_the_defaults),
        cmocka_unit_test(pm_geometry_complete__out_of_bounds__config_names_the_field),
        cmocka_unit_test(pm_geometry_place__any_geometry__is_accepted_and_fits),
        cmocka_unit_test(pm_geometry_check_places__broken__says_so),
        cmocka_unit_test(pm_pool_size_min__heap__grows_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
