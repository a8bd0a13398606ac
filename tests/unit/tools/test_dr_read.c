/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: reading under a root gives text and numbers, and nothing else gives anything: not what is
 * too long, binary, no file, or outside the root.
 * Method: small trees in a temporary folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "tests/tools/dr_tree.h"

static int setup(void **state)
{
    struct dr_tree *tree = calloc(1, sizeof(*tree));
    assert_non_null(tree);
    dr_tree_make(tree);
    *state = tree;
    return 0;
}

static int teardown(void **state)
{
    dr_tree_remove(*state);
    free(*state);
    return 0;
}

static void read__blanks_and_newlines__trimmed(void **state)
{
    struct dr_tree *t = *state;
    char text[32];

    dr_tree_bytes(t, "a/b", " 4: ACTIVE \n", 12);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/a/%s", "b"), 9);
    assert_string_equal(text, "4: ACTIVE");
    dr_tree_bytes(t, "a/none", "", 0);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/a/none"), 0);
    assert_string_equal(text, "");
    dr_tree_bytes(t, "a/lines", "one\ntwo", 7);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/a/lines"), 7);
    assert_string_equal(text, "one two");
    assert_int_equal(t->root.malformed_count, 0);
}

static void read__fits_exactly__read(void **state)
{
    struct dr_tree *t = *state;
    char text[8];

    dr_tree_bytes(t, "f", "1234567", 7);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/f"), 7);
    dr_tree_bytes(t, "f", "12345678", 8);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/f"), -EFBIG);
    assert_string_equal(text, "");
    assert_int_equal(t->root.malformed_count, 1);
    assert_string_equal(t->root.malformed[0], "/f");
}

static void read__binary__malformed(void **state)
{
    static const char *const bad[] = {"a\x1b[31m", "\xff\xfe", "\xc3\xa4", "\x7f", "a\rb"};
    struct dr_tree *t = *state;
    char text[32];

    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        dr_tree_bytes(t, "f", bad[i], strlen(bad[i]));
        assert_int_equal(dr_read(&t->root, text, sizeof(text), "/f"), -EILSEQ);
        assert_string_equal(text, "");
    }
    dr_tree_bytes(t, "f", "a\0b", 3);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/f"), -EILSEQ);
    assert_int_equal(t->root.malformed_count, CN_ARRAY_SIZE(bad) + 1);
}

static void read__many_malformed__counted_and_the_first_kept(void **state)
{
    struct dr_tree *t = *state;
    char text[8];

    dr_tree_bytes(t, "f", "\xff", 1);
    for (unsigned i = 0; i < DR_MALFORMED_MAX + 5; i++)
        (void)dr_read(&t->root, text, sizeof(text), "/f");
    assert_int_equal(t->root.malformed_count, DR_MALFORMED_MAX + 5);
}

static void read__not_a_file__no_text_and_no_wait(void **state)
{
    struct dr_tree *t = *state;
    char text[32];

    dr_tree_fifo(t, "fifo");
    dr_tree_file(t, "folder/x", "1");
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/fifo"), -EINVAL);
    assert_true(dr_read(&t->root, text, sizeof(text), "/folder") < 0);
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/nothing"), -ENOENT);
    assert_int_equal(t->root.malformed_count, 0);
}

static void read__path_too_long__refused(void **state)
{
    struct dr_tree *t = *state;
    char text[32], name[DR_PATH_SIZE + 1];

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/%s", name), -ENAMETOOLONG);
    assert_false(dr_exists(&t->root, "/%s", name));
    assert_false(dr_link(&t->root, text, sizeof(text), "/%s", name));
}

static void read__link_out_of_the_root__stays_inside(void **state)
{
    struct dr_tree *t = *state;
    char text[64];

    dr_tree_link(t, "up", "../../../../../../etc/hostname");
    dr_tree_link(t, "abs", "/etc/hostname");
    dr_tree_link(t, "loop", "loop");
    assert_true(dr_read(&t->root, text, sizeof(text), "/up") < 0);
    assert_true(dr_read(&t->root, text, sizeof(text), "/abs") < 0);
    assert_true(dr_read(&t->root, text, sizeof(text), "/loop") < 0);
    dr_tree_file(t, "etc/hostname", "inside");
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/abs"), 6);
    assert_string_equal(text, "inside");
    assert_int_equal(dr_read(&t->root, text, sizeof(text), "/../../etc/hostname"), 6);
}

static void read_u64__numbers__decimal_and_hex(void **state)
{
    struct dr_tree *t = *state;
    uint64_t value = 7;

    dr_tree_file(t, "d", "1500");
    dr_tree_file(t, "x", "0xfFff");
    dr_tree_file(t, "max", "18446744073709551615");
    assert_true(dr_read_u64(&t->root, &value, "/d"));
    assert_int_equal(value, 1500);
    assert_true(dr_read_u64(&t->root, &value, "/x"));
    assert_int_equal(value, 0xffff);
    assert_true(dr_read_u64(&t->root, &value, "/max"));
    assert_true(value == UINT64_MAX);
}

static void read_u64__no_number__untouched_and_noted(void **state)
{
    static const char *const bad[] = {
        "x", "-1", "0x", "12a", "18446744073709551616", "1 2", "+5", "0x-1", "0xg"};
    struct dr_tree *t = *state;
    uint64_t value = 7;

    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        dr_tree_file(t, "f", bad[i]);
        assert_false(dr_read_u64(&t->root, &value, "/f"));
    }
    assert_int_equal(value, 7);
    assert_int_equal(t->root.malformed_count, CN_ARRAY_SIZE(bad));
    assert_false(dr_read_u64(&t->root, &value, "/nothing")); /* absence is no fault */
    dr_tree_bytes(t, "f", "\n", 1);
    assert_false(dr_read_u64(&t->root, &value, "/f"));
    assert_int_equal(t->root.malformed_count, CN_ARRAY_SIZE(bad));
}

static void read_file__bytes__printable_and_bounded(void **state)
{
    struct dr_tree *t = *state;
    size_t size = (1u << 20) + 100;
    char *big = malloc(size);

    assert_non_null(big);
    memset(big, 'a', size);
    dr_tree_bytes(t, "small", "a\x1b\xff\nb", 5);
    char *text = dr_read_file(&t->root, "/small");
    assert_string_equal(text, "a??\nb");
    free(text);
    dr_tree_bytes(t, "big", big, size);
    text = dr_read_file(&t->root, "/big");
    assert_int_equal(strlen(text), 1u << 20);
    assert_int_equal(t->root.malformed_count, 1);
    free(text);
    free(big);
    assert_null(dr_read_file(&t->root, "/nothing"));
}

static void list__names__sorted_plain_and_bounded(void **state)
{
    struct dr_tree *t = *state;
    char names[8][DR_NAME_SIZE], two[2][DR_NAME_SIZE], longest[DR_NAME_SIZE + 8];

    dr_tree_file(t, "l/mlx5_10", "");
    dr_tree_file(t, "l/mlx5_2", "");
    dr_tree_file(t, "l/.hidden", "");
    dr_tree_file(t, "l/a;b", "");
    dr_tree_file(t, "l/-rf", "");
    (void)snprintf(longest, sizeof(longest), "l/%064d", 1);
    dr_tree_file(t, longest, "");
    assert_int_equal(dr_list(&t->root, names, 8, "/l"), 2);
    assert_string_equal(names[0], "mlx5_2");
    assert_string_equal(names[1], "mlx5_10");
    assert_int_equal(t->root.malformed_count, 3);
    assert_int_equal(dr_list(&t->root, names, 8, "/nothing"), 0);
    assert_int_equal(dr_list(&t->root, names, 8, "/l/mlx5_2"), 0);
    assert_int_equal(dr_list(&t->root, two, 1, "/l"), 1);
}

static void link__target__as_written(void **state)
{
    struct dr_tree *t = *state;
    char text[32], small[4];

    dr_tree_link(t, "driver", "../../bus/pci/drivers/mlx5_core");
    assert_true(dr_link(&t->root, text, sizeof(text), "/driver"));
    assert_string_equal(dr_base_name(text), "mlx5_core");
    assert_false(dr_link(&t->root, small, sizeof(small), "/driver"));
    dr_tree_file(t, "file", "x");
    assert_false(dr_link(&t->root, text, sizeof(text), "/file"));
    assert_false(dr_link(&t->root, text, sizeof(text), "/nothing"));
    dr_tree_link(t, "bad", "x\x1b");
    assert_false(dr_link(&t->root, text, sizeof(text), "/bad"));
    assert_string_equal(dr_base_name("plain"), "plain");
}

static void root_open__no_folder__error_names_it(void **state)
{
    struct dr_root root;

    (void)state;
    assert_int_equal(dr_root_open("/nowhere/at/all", &root), -ENOENT);
    assert_non_null(strstr(cairn_last_error(), "/nowhere/at/all"));
    assert_int_equal(dr_root_open("/etc/passwd", &root), -ENOTDIR);
}

static void root_open__live__is_the_machine(void **state)
{
    struct dr_root root;
    char text[64];

    (void)state;
    assert_int_equal(dr_root_open(NULL, &root), 0);
    assert_true(root.live);
    assert_true(dr_read(&root, text, sizeof(text), "/proc/sys/kernel/osrelease") > 0);
    char *limits = dr_read_file(&root, "/proc/self/limits");
    assert_non_null(limits);
    free(limits);
    dr_root_close(&root);
}

static void name_is_plain__what_a_shell_would_take__refused(void **state)
{
    (void)state;
    assert_true(dr_name_is_plain("ens1f0np0.100"));
    assert_true(dr_name_is_plain("0000:5e:00.0"));
    assert_true(dr_name_is_plain("mlx5_core-x"));
    static const char *const bad[] = {
        "", ".", "..", "-a", "a b", "a;b", "$(x)", "a/b", "`a`", "a'b", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++)
        assert_false(dr_name_is_plain(bad[i]));
}

static void copy_printable__bytes__masked_and_bounded(void **state)
{
    char text[6];

    (void)state;
    dr_copy_printable(text, sizeof(text),
        "a\x1b\xff"
        "bcdef");
    assert_string_equal(text, "a??bc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(read__blanks_and_newlines__trimmed),
        CASE(read__fits_exactly__read),
        CASE(read__binary__malformed),
        CASE(read__many_malformed__counted_and_the_first_kept),
        CASE(read__not_a_file__no_text_and_no_wait),
        CASE(read__path_too_long__refused),
        CASE(read__link_out_of_the_root__stays_inside),
        CASE(read_u64__numbers__decimal_and_hex),
        CASE(read_u64__no_number__untouched_and_noted),
        CASE(read_file__bytes__printable_and_bounded),
        CASE(list__names__sorted_plain_and_bounded),
        CASE(link__target__as_written),
        cmocka_unit_test(root_open__no_folder__error_names_it),
        cmocka_unit_test(root_open__live__is_the_machine),
        cmocka_unit_test(name_is_plain__what_a_shell_would_take__refused),
        cmocka_unit_test(copy_printable__bytes__masked_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
