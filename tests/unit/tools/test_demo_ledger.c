/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a ledger keeps what its writer said, also when the writer is killed, and refuses other
 * files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/demo_ledger.h"

static char path[] = "/tmp/test-ledger-XXXXXX";

static int make_name(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    (void)close(fd);
    return unlink(path);
}

static int remove_file(void **state)
{
    (void)state;
    (void)unlink(path);
    return 0;
}

static void write_until_killed(void)
{
    struct dl ledger;

    if (dl_create(path, 5, 10, &ledger) != 0)
        _exit(1);
    struct dl_entry *e = dl_next(&ledger);
    e->delta = -3;
    dl_keep_token(&ledger, e, "c1-abc");
    dl_set(e, DL_INTENDED);
    e = dl_next(&ledger);
    dl_set(e, DL_COMMITTED);
    (void)raise(SIGKILL);
}

static void dl_open__writer_was_killed__all_there(void **state)
{
    struct dl ledger;
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0)
        write_until_killed();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(dl_open(path, &ledger), 0);
    assert_int_equal(ledger.header->writer, 5);
    assert_int_equal(ledger.header->entry_count, 2);
    assert_int_equal(ledger.entry[0].state, DL_INTENDED);
    assert_int_equal(ledger.entry[0].delta, -3);
    assert_string_equal(dl_token(&ledger, &ledger.entry[0]), "c1-abc");
    assert_int_equal(ledger.entry[1].state, DL_COMMITTED);
    assert_null(dl_token(&ledger, &ledger.entry[1]));
    dl_close(&ledger);
}

static void dl_next__full__null(void **state)
{
    struct dl ledger;

    (void)state;
    assert_int_equal(dl_create(path, 1, 2, &ledger), 0);
    assert_int_equal(dl_next(&ledger)->number, 1);
    assert_int_equal(dl_next(&ledger)->number, 2);
    assert_null(dl_next(&ledger));
    dl_close(&ledger);
    assert_int_equal(dl_create(path, 1, 2, &ledger), -EEXIST);
}

static void dl_open__not_a_ledger__refused(void **state)
{
    struct dl ledger;
    FILE *f = fopen(path, "w");

    (void)state;
    assert_non_null(f);
    assert_true(fputs("short", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(dl_open(path, &ledger), -EINVAL);
    assert_int_equal(truncate(path, 1 << 20), 0);
    assert_int_equal(dl_open(path, &ledger), -EINVAL);
    assert_int_equal(dl_open("/nonexistent", &ledger), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(dl_open__writer_was_killed__all_there, remove_file),
        cmocka_unit_test_teardown(dl_next__full__null, remove_file),
        cmocka_unit_test_teardown(dl_open__not_a_ledger__refused, remove_file),
    };
    return cmocka_run_group_tests(tests, make_name, NULL);
}
