/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: fabrics are found by name, and every kind of live object counts.
 * Method: the accounting is called as a back end calls it.
 * Invariants: an unknown name tells those there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd.h"
#include "rdma/rd_live.h"

static void fabric_open__unknown_name__config_error_names_the_known(void **state)
{
    (void)state;
    struct rd_fabric *fabric = NULL;
    assert_int_equal(rd_fabric_open("carrier-pigeon", NULL, &fabric), CAIRN_E_CONFIG);
    assert_null(fabric);
    assert_non_null(strstr(cairn_last_error(), "carrier-pigeon"));
    assert_non_null(strstr(cairn_last_error(), "emu"));
}

static void fabric_open__emu__counts_and_goes(void **state)
{
    (void)state;
    struct rd_fabric *fabric = NULL;
    struct rd_live live;
    assert_int_equal(rd_fabric_open("emu", NULL, &fabric), 0);
    assert_string_equal(fabric->ops->name, "emu");
    rd_live_get(&live);
    assert_int_equal(live.fabrics, 1);
    assert_false(rd_live_is_zero(&live));
    rd_fabric_delete(fabric);
    rd_live_get(&live);
    assert_true(rd_live_is_zero(&live));
}

static void live__each_kind_alone__is_not_zero(void **state)
{
    (void)state;
    for (int kind = 0; kind < RD_LIVE_KIND_COUNT; kind++) {
        struct rd_live live;
        rd_live_change((enum rd_live_kind)kind, 1);
        rd_live_get(&live);
        assert_false(rd_live_is_zero(&live));
        const uint64_t counts[RD_LIVE_KIND_COUNT] = {
            [RD_LIVE_FABRIC] = live.fabrics,
            [RD_LIVE_ENDPOINT] = live.endpoints,
            [RD_LIVE_CONNECTION] = live.connections,
            [RD_LIVE_REGION] = live.regions,
            [RD_LIVE_MAPPING] = live.mappings,
            [RD_LIVE_LISTENER] = live.listeners,
            [RD_LIVE_DESCRIPTOR] = live.descriptors,
            [RD_LIVE_THREAD] = live.threads,
            [RD_LIVE_DEVICE] = live.devices,
            [RD_LIVE_PROTECTION_DOMAIN] = live.protection_domains,
            [RD_LIVE_MEMORY_REGION] = live.memory_regions,
            [RD_LIVE_QUEUE_PAIR] = live.queue_pairs,
            [RD_LIVE_COMPLETION_QUEUE] = live.completion_queues,
            [RD_LIVE_CM_ID] = live.cm_ids,
        };
        assert_int_equal(counts[kind], 1);
        rd_live_change((enum rd_live_kind)kind, -1);
        rd_live_get(&live);
        assert_true(rd_live_is_zero(&live));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fabric_open__unknown_name__config_error_names_the_known),
        cmocka_unit_test(fabric_open__emu__counts_and_goes),
        cmocka_unit_test(live__each_kind_alone__is_not_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
