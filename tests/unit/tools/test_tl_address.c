/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the address of the only RDMA device, or an error that says what to do. Method: sysfs trees
 * made in a temporary folder, whose network device is `lo`. Invariants: none is NO_DEVICE; several
 * are not chosen between.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/tl_cluster.h"

static char root[64];

static void make(const char *path, const char *text)
{
    char full[400];

    (void)snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    if (text == NULL) {
        assert_int_equal(mkdir(full, 0700), 0);
        return;
    }
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/cairn-address-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void find__no_class__no_device(void **state)
{
    char address[64];

    (void)state;
    assert_int_equal(tl_find_address(root, address), CAIRN_E_NO_DEVICE);
    make("class/infiniband", NULL);
    assert_int_equal(tl_find_address(root, address), CAIRN_E_NO_DEVICE);
    assert_non_null(strstr(cairn_last_error(), "cairn doctor"));
}

static void find__netdev_of_the_gid__its_address(void **state)
{
    char address[64] = "";

    (void)state;
    make("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "lo\n");
    assert_int_equal(tl_find_address(root, address), 0);
    assert_string_equal(address, "127.0.0.1");
}

static void find__parent_only__its_address(void **state)
{
    char address[64] = "";

    (void)state;
    make("class/infiniband/rxe0/parent", "lo\n");
    assert_int_equal(tl_find_address(root, address), 0);
    assert_string_equal(address, "127.0.0.1");
}

static void find__several__asks_for_one(void **state)
{
    char address[64];

    (void)state;
    make("class/infiniband/rxe0/parent", "lo\n");
    make("class/infiniband/rxe1/parent", "lo\n");
    assert_int_equal(tl_find_address(root, address), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "--address"));
}

static void find__no_address__says_so(void **state)
{
    char address[64];

    (void)state;
    make("class/infiniband/rxe0/parent", "no-such-net0\n");
    assert_int_equal(tl_find_address(root, address), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "no-such-net0"));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(find__no_class__no_device),
        CASE(find__netdev_of_the_gid__its_address),
        CASE(find__parent_only__its_address),
        CASE(find__several__asks_for_one),
        CASE(find__no_address__says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
