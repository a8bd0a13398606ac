/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each rule on the host and on pools speaks when its fact is spoiled, and is silent else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/tools/dr_facts.h"

static struct dr_sample s;
static struct dr_host *host;
static struct dr_pool *pool;

static int setup(void **state)
{
    (void)state;
    dr_sample_make(&s);
    host = &s.facts.host;
    pool = &s.pool[0];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return 0;
}

static void rules__healthy_pool__silent(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    dr_rules_run(&s.facts, &s.report);
    assert_int_equal(s.report.count, 1);
    assert_string_equal(s.report.finding[0].id, "port-usable");
}

static void no_device__none__error_with_the_way_to_one(void **state)
{
    (void)state;
    s.facts.device_count = s.facts.device_all = 0;
    assert_int_equal(dr_sample_severity(&s, "no-rdma-device"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "no-rdma-device")->remedy, "modprobe rdma_rxe"));
    assert_int_equal(s.report.count, 1); /* no complaints about its modules then */
}

static void no_device__not_the_one_meant__names_it(void **state)
{
    (void)state;
    (void)snprintf(s.facts.only, sizeof(s.facts.only), "mlx5_7");
    s.facts.device_count = 0;
    s.facts.device_all = 2;
    assert_int_equal(dr_sample_severity(&s, "no-rdma-device"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "no-rdma-device")->text, "mlx5_7"));
}

static void interfaces__missing__error(void **state)
{
    (void)state;
    host->uverbs = false;
    host->rdma_cm = DR_NO;
    assert_int_equal(dr_sample_severity(&s, "no-uverbs"), DR_ERROR);
    assert_int_equal(dr_sample_severity(&s, "no-rdma-cm"), DR_ERROR);
    host->rdma_cm = DR_UNKNOWN;
    assert_int_equal(dr_sample_count(&s, "no-rdma-cm"), 0);
    host->rdma_cm = DR_YES;
    (void)snprintf(host->cm_error, sizeof(host->cm_error), "/dev/x: Permission denied");
    assert_int_equal(dr_sample_severity(&s, "no-rdma-cm"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "no-rdma-cm")->text, "Permission denied"));
}

static void memlock__no_configuration__warning_where_small(void **state)
{
    (void)state;
    host->memlock = 8 << 20;
    assert_int_equal(dr_sample_severity(&s, "memlock-low"), DR_WARNING);
    host->memlock = 64 << 20;
    assert_int_equal(dr_sample_count(&s, "memlock-low"), 0);
    host->memlock = 8 << 20;
    host->ipc_lock = DR_YES;
    assert_int_equal(dr_sample_count(&s, "memlock-low"), 0);
    host->ipc_lock = DR_NO;
    host->memlock_known = DR_UNKNOWN;
    assert_int_equal(dr_sample_count(&s, "memlock-low"), 0);
}

static void memlock__configuration__error_below_the_largest_node(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    s.facts.pool_count = 2;
    s.pool[1] = s.pool[0];
    s.pool[1].node = 2;
    s.pool[1].pinned = s.pool[0].pinned * 2;
    host->memlock = s.pool[0].pinned;
    assert_int_equal(dr_sample_severity(&s, "memlock-low"), DR_ERROR);
    assert_non_null(strstr(dr_sample_find(&s, "memlock-low")->text, "node 2 needs"));
    host->memlock = s.pool[1].pinned;
    assert_int_equal(dr_sample_count(&s, "memlock-low"), 0);
}

static void huge_pages__none_reserved__note(void **state)
{
    (void)state;
    host->huge_total = 0;
    assert_int_equal(dr_sample_severity(&s, "huge-pages-off"), DR_NOTE);
    host->huge_total = 1;
    assert_int_equal(dr_sample_count(&s, "huge-pages-off"), 0);
    host->huge_total = 0;
    host->huge_known = false;
    assert_int_equal(dr_sample_count(&s, "huge-pages-off"), 0);
}

static void leaked__owner_gone__warning_naming_it(void **state)
{
    (void)state;
    s.facts.owner_count = 2;
    s.facts.owner[0] = (struct dr_owner){.pid = 7, .name = "alive"};
    s.facts.owner[1] = (struct dr_owner){.pid = 8, .name = "cairn", .count = {[DR_OBJECT_QP] = 3}};
    assert_int_equal(dr_sample_count(&s, "leaked-objects"), 0);
    s.facts.owner[1].gone = true;
    assert_int_equal(dr_sample_severity(&s, "leaked-objects"), DR_WARNING);
    assert_string_equal(dr_sample_find(&s, "leaked-objects")->object, "pid 8");
    assert_non_null(strstr(dr_sample_find(&s, "leaked-objects")->text, "3 queue pairs"));
}

static void leaked__not_known__note(void **state)
{
    (void)state;
    s.facts.owners_known = DR_NO;
    (void)snprintf(s.facts.owners_error, sizeof(s.facts.owners_error), "no rdma");
    assert_int_equal(dr_sample_severity(&s, "leaked-objects"), DR_NOTE);
    s.facts.owners_known = DR_UNKNOWN; /* a captured tree */
    assert_int_equal(dr_sample_count(&s, "leaked-objects"), 0);
}

static void malformed__files__note_with_the_first(void **state)
{
    (void)state;
    s.facts.malformed_count = 3;
    (void)snprintf(s.facts.malformed[0], DR_PATH_SIZE, "/sys/x");
    assert_int_equal(dr_sample_severity(&s, "malformed"), DR_NOTE);
    assert_non_null(strstr(dr_sample_find(&s, "malformed")->text, "/sys/x"));
}

static void nvdimm__failing__error(void **state)
{
    (void)state;
    host->nvdimm_count = 2;
    (void)snprintf(host->nvdimm[0].name, DR_NAME_SIZE, "nmem0");
    (void)snprintf(host->nvdimm[0].flags, sizeof(host->nvdimm[0].flags), "smart_notify");
    (void)snprintf(host->nvdimm[1].name, DR_NAME_SIZE, "nmem1");
    assert_int_equal(dr_sample_count(&s, "nvdimm-failing"), 0);
    (void)snprintf(host->nvdimm[1].flags, sizeof(host->nvdimm[1].flags), "save_fail not_armed");
    assert_int_equal(dr_sample_count(&s, "nvdimm-failing"), 1);
    assert_string_equal(dr_sample_find(&s, "nvdimm-failing")->object, "nmem1");
}

static void namespace__raw_or_sector__note(void **state)
{
    static const char *const modes[] = {"raw", "safe", "dax", "memory", ""};

    (void)state;
    host->namespace_count = 1;
    host->namespace[0].size = 4096;
    for (size_t i = 0; i < CN_ARRAY_SIZE(modes); i++) {
        (void)snprintf(host->namespace[0].mode, sizeof(host->namespace[0].mode), "%s", modes[i]);
        assert_int_equal(dr_sample_count(&s, "namespace-mode"), i < 2);
    }
    (void)snprintf(host->namespace[0].mode, sizeof(host->namespace[0].mode), "raw");
    host->namespace[0].size = 0; /* an empty seed */
    assert_int_equal(dr_sample_count(&s, "namespace-mode"), 0);
}

static void pool_kind__neither_file_nor_dax__error(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->kind = DR_POOL_OTHER;
    assert_int_equal(dr_sample_severity(&s, "pool-kind"), DR_ERROR);
    assert_string_equal(dr_sample_find(&s, "pool-kind")->object, "node 1: /dev/dax0.0");
}

static void pool_access__denied__error(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    (void)snprintf(pool->denied, sizeof(pool->denied), "Permission denied");
    assert_int_equal(dr_sample_severity(&s, "pool-access"), DR_ERROR);
}

static void pool_registrable__fsdax__by_on_demand_paging(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->kind = DR_POOL_FSDAX;
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_NOTE);
    s.device[0].odp = DR_UNKNOWN;
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_WARNING);
    s.device[0].odp = DR_NO;
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_ERROR);
    s.facts.device_count = 2; /* the other one pages */
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_NOTE);
    (void)snprintf(s.config.fabric, sizeof(s.config.fabric), "emu");
    s.device[1].odp = DR_NO;
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_NOTE);
}

static void pool_registrable__file__by_kernel(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->kind = DR_POOL_FILE;
    host->kernel = 6004;
    assert_int_equal(dr_sample_count(&s, "pool-not-registrable"), 0);
    host->kernel = 6005;
    assert_int_equal(dr_sample_severity(&s, "pool-not-registrable"), DR_ERROR);
    pool->kind = DR_POOL_TMPFS;
    assert_int_equal(dr_sample_count(&s, "pool-not-registrable"), 0);
}

static void pool_missing__file_or_device__note_or_error(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->exists = false;
    assert_int_equal(dr_sample_severity(&s, "pool-missing"), DR_NOTE);
    s.facts.one_node = true; /* it is meant to be here, and no node makes a device */
    assert_int_equal(dr_sample_severity(&s, "pool-missing"), DR_ERROR);
    (void)snprintf(pool->path, sizeof(pool->path), "/dev/shm/n1.pool");
    assert_int_equal(dr_sample_severity(&s, "pool-missing"), DR_NOTE);
}

static void pool_volatile__tmpfs_and_file__note(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->kind = DR_POOL_TMPFS;
    assert_int_equal(dr_sample_severity(&s, "pool-volatile"), DR_NOTE);
    pool->kind = DR_POOL_FILE;
    assert_int_equal(dr_sample_severity(&s, "pool-volatile"), DR_NOTE);
    pool->kind = DR_POOL_FSDAX;
    assert_int_equal(dr_sample_count(&s, "pool-volatile"), 0);
}

static void pool_persistence__auto__says_what_to_declare(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    (void)snprintf(pool->domain, sizeof(pool->domain), "memory_controller");
    assert_int_equal(dr_sample_severity(&s, "pool-persistence"), DR_NOTE);
    assert_non_null(
        strstr(dr_sample_find(&s, "pool-persistence")->remedy, "persistence = \"apm\""));
    pool->persistence = TXN_PERSISTENCE_GPSPM;
    assert_int_equal(dr_sample_count(&s, "pool-persistence"), 0);
}

static void pool_persistence__more_than_the_medium_has__error(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->persistence = TXN_PERSISTENCE_APM;
    assert_int_equal(dr_sample_severity(&s, "pool-persistence"), DR_NOTE); /* on their word */
    pool->kind = DR_POOL_TMPFS;
    assert_int_equal(dr_sample_severity(&s, "pool-persistence"), DR_ERROR);
    pool->kind = DR_POOL_DEVDAX;
    pool->persistence = TXN_PERSISTENCE_EADR;
    assert_int_equal(dr_sample_count(&s, "pool-persistence"), 0);
    (void)snprintf(pool->domain, sizeof(pool->domain), "memory_controller");
    assert_int_equal(dr_sample_severity(&s, "pool-persistence"), DR_ERROR);
    pool->kind = DR_POOL_UNKNOWN;
    assert_int_equal(dr_sample_count(&s, "pool-persistence"), 0);
    pool->kind = DR_POOL_TMPFS;
    pool->persistence = TXN_PERSISTENCE_EMULATED;
    assert_int_equal(dr_sample_count(&s, "pool-persistence"), 0);
}

static void pool_numa__far_from_all_devices__note(void **state)
{
    (void)state;
    dr_sample_add_pool(&s);
    pool->numa = 1;
    assert_int_equal(dr_sample_severity(&s, "pool-numa"), DR_NOTE);
    s.facts.device_count = 2;
    s.device[1].numa = 1;
    assert_int_equal(dr_sample_count(&s, "pool-numa"), 0);
    s.facts.device_count = 1;
    s.device[0].numa = -1; /* not told */
    assert_int_equal(dr_sample_count(&s, "pool-numa"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rules__healthy_pool__silent, setup, teardown),
        cmocka_unit_test_setup_teardown(
            no_device__none__error_with_the_way_to_one, setup, teardown),
        cmocka_unit_test_setup_teardown(no_device__not_the_one_meant__names_it, setup, teardown),
        cmocka_unit_test_setup_teardown(interfaces__missing__error, setup, teardown),
        cmocka_unit_test_setup_teardown(
            memlock__no_configuration__warning_where_small, setup, teardown),
        cmocka_unit_test_setup_teardown(
            memlock__configuration__error_below_the_largest_node, setup, teardown),
        cmocka_unit_test_setup_teardown(huge_pages__none_reserved__note, setup, teardown),
        cmocka_unit_test_setup_teardown(leaked__owner_gone__warning_naming_it, setup, teardown),
        cmocka_unit_test_setup_teardown(leaked__not_known__note, setup, teardown),
        cmocka_unit_test_setup_teardown(malformed__files__note_with_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(nvdimm__failing__error, setup, teardown),
        cmocka_unit_test_setup_teardown(namespace__raw_or_sector__note, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_kind__neither_file_nor_dax__error, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_access__denied__error, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_registrable__fsdax__by_on_demand_paging, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_registrable__file__by_kernel, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_missing__file_or_device__note_or_error, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_volatile__tmpfs_and_file__note, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_persistence__auto__says_what_to_declare, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pool_persistence__more_than_the_medium_has__error, setup, teardown),
        cmocka_unit_test_setup_teardown(pool_numa__far_from_all_devices__note, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
