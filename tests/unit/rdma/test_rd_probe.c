/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: asking verbs for the devices works on every host: with devices it names and describes them,
 * without it gives none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>

#include "rdma/rd_probe.h"

#define DEVICES_MAX 16u

static unsigned count_sysfs(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/sys/class/infiniband");

    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        count += e->d_name[0] != '.';
    if (dir != NULL)
        (void)closedir(dir);
    return count;
}

static void probe__any_host__what_sysfs_has(void **state)
{
    struct rd_probe_device devices[DEVICES_MAX];
    uint32_t count = 99;

    (void)state;
    assert_int_equal(rd_probe(devices, DEVICES_MAX, &count), 0);
    assert_true(count <= count_sysfs());
    if (count_sysfs() == 0)
        assert_int_equal(count, 0);
}

static void probe__a_device__described(void **state)
{
    struct rd_probe_device devices[DEVICES_MAX];
    uint32_t count = 0;

    (void)state;
    assert_int_equal(rd_probe(devices, DEVICES_MAX, &count), 0);
    if (count == 0)
        skip();
    for (uint32_t i = 0; i < count; i++) {
        assert_string_not_equal(devices[i].name, "");
        if (devices[i].error != 0)
            continue;
        assert_true(devices[i].max_qp_wr > 0);
        assert_true(devices[i].port_count > 0);
        assert_true(devices[i].port[0].mtu <= devices[i].port[0].mtu_max);
        assert_true(devices[i].port[0].mtu_max >= 256);
        if (strncmp(devices[i].name, "rxe", 3) == 0)
            assert_true(devices[i].atomics);
    }
}

static void probe__no_room__none(void **state)
{
    uint32_t count = 99;

    (void)state;
    assert_int_equal(rd_probe(NULL, 0, &count), 0);
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__any_host__what_sysfs_has),
        cmocka_unit_test(probe__a_device__described),
        cmocka_unit_test(probe__no_room__none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
