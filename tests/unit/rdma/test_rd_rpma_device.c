/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: addresses are taken or refused as the header says; devices are found, shared, given back.
 * Method: tables of addresses; the device of this host where there is one (the VM).
 * Invariants: nothing is written for a refused address; names are never looked up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_test.h"

static void parse_address__good__taken(void **state)
{
    (void)state;
    struct sockaddr_storage addr;
    socklen_t size = 0;
    char text[INET6_ADDRSTRLEN];
    assert_int_equal(rd_rpma_parse_address("10.0.0.1:7471", &addr, &size), 0);
    assert_int_equal(addr.ss_family, AF_INET);
    assert_int_equal(size, sizeof(struct sockaddr_in));
    assert_int_equal(rd_rpma_port(&addr), 7471);
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&addr;
    assert_string_equal(inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)), "10.0.0.1");
    assert_int_equal(rd_rpma_parse_address("[fe80::1]:65534", &addr, &size), 0);
    assert_int_equal(addr.ss_family, AF_INET6);
    assert_int_equal(size, sizeof(struct sockaddr_in6));
    assert_int_equal(rd_rpma_port(&addr), 65534);
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&addr;
    assert_string_equal(inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text)), "fe80::1");
    rd_rpma_set_port(&addr, 1);
    assert_int_equal(rd_rpma_port(&addr), 1);
    assert_int_equal(rd_rpma_parse_address("[fe80::1%lo]:5", &addr, &size), 0);
    assert_int_equal(rd_rpma_parse_address("0.0.0.0:1", &addr, &size), 0);
}

static void parse_address__malformed__config_error_nothing_written(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ":", "10.0.0.1", "10.0.0.1:", ":7471", "10.0.0.1:0",
        "10.0.0.1:65535", "10.0.0.1:65536", "10.0.0.1:99999999999", "10.0.0.1:-1", "10.0.0.1:+1",
        "10.0.0.1: 1", "10.0.0.1:7x", "10.0.0.256:1", "localhost:7471", "node1.example:7471",
        "fe80::1:7471", "[fe80::1]", "[fe80::1:7471", "[]:1", "fe80::1]:1", "[:1", "/tmp/socket",
        "[10.0.0.1:1", "10.0.0.1:7471 ", "[::g]:1"};
    struct sockaddr_storage addr, before;
    socklen_t size = 99;
    memset(&addr, 0x5a, sizeof(addr));
    before = addr;
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        if (rd_rpma_parse_address(bad[i], &addr, &size) != CAIRN_E_CONFIG)
            fail_msg("\"%s\" was taken", bad[i]);
        if (bad[i][0] != 0)
            assert_non_null(strstr(cairn_last_error(), bad[i]));
    }
    char longer[300];
    memset(longer, '1', sizeof(longer));
    memcpy(longer + 290, ":7471", 6);
    assert_int_equal(rd_rpma_parse_address(longer, &addr, &size), CAIRN_E_CONFIG);
    assert_int_equal(rd_rpma_parse_address(NULL, &addr, &size), CAIRN_E_CONFIG);
    assert_memory_equal(&addr, &before, sizeof(addr));
    assert_int_equal(size, 99);
}

static void choose__no_device_or_wrong_name__no_device(void **state)
{
    (void)state;
    struct ibv_context *verbs = NULL;
    assert_int_equal(rd_rpma_choose("mlx5_99", &verbs), CAIRN_E_NO_DEVICE);
    if (n_have_device()) {
        assert_non_null(strstr(cairn_last_error(), "mlx5_99"));
    } else {
        assert_non_null(strstr(cairn_last_error(), "cairn doctor"));
        assert_int_equal(rd_rpma_choose("", &verbs), CAIRN_E_NO_DEVICE);
    }
    assert_null(verbs);
}

static void choose_local__address_of_no_device__no_device(void **state)
{
    (void)state;
    struct ibv_context *verbs = NULL;
    assert_int_equal(rd_rpma_choose_local("nothing", &verbs), CAIRN_E_CONFIG);
    assert_int_equal(rd_rpma_choose_local("127.0.0.1:7471", &verbs), CAIRN_E_NO_DEVICE);
    assert_non_null(strstr(cairn_last_error(), "127.0.0.1:7471"));
    assert_null(verbs);
    if (!n_have_device())
        return;
    assert_int_equal(rd_rpma_choose_local("10.99.98.97:7471", &verbs), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "10.99.98.97"));
    assert_int_equal(rd_rpma_choose_local("0.0.0.0:7471", &verbs), CAIRN_E_NO_DEVICE);
    assert_null(verbs);
}

static void device_get__twice__shared_until_put_twice(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct ibv_context *verbs = NULL, *local = NULL;
    char address[RD_ADDRESS_SIZE_MAX];
    struct nic_fabric fabric = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct nic_device *one = NULL, *two = NULL;
    struct rd_live live;
    assert_int_equal(rd_rpma_choose("", &verbs), 0);
    assert_non_null(verbs);
    assert_int_equal(rd_rpma_choose_local(n_address(address), &local), 0);
    assert_ptr_equal(verbs, local); /* librdmacm opens a device once */
    assert_int_equal(rd_rpma_device_get(&fabric, verbs, &one), 0);
    assert_int_equal(rd_rpma_device_get(&fabric, verbs, &two), 0);
    assert_ptr_equal(one, two);
    assert_true(one->has_atomics != one->iwarp); /* rxe has them, siw has not */
    assert_true(one->message_max == 0 || one->message_max >= 1 << 20); /* siw: no limit */
    assert_int_equal(rd_rpma_choose(one->name, &local), 0);
    assert_ptr_equal(verbs, local);
    rd_live_get(&live);
    assert_int_equal(live.devices, 1);
    assert_int_equal(live.protection_domains, 2);
    rd_rpma_device_put(&fabric, one);
    rd_live_get(&live);
    assert_int_equal(live.devices, 1);
    rd_rpma_device_put(&fabric, two);
    assert_null(fabric.devices);
    t_check_live_zero();
}

#define CASE(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(parse_address__good__taken),
        CASE(parse_address__malformed__config_error_nothing_written),
        CASE(choose__no_device_or_wrong_name__no_device),
        CASE(choose_local__address_of_no_device__no_device),
        CASE(device_get__twice__shared_until_put_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
