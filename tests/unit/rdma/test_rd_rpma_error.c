/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every cause of a failure becomes the right error, with a text that says what to do.
 * Method: the mapping functions; librpma made to fail by an address that is none, which needs no
 * device.
 * Invariants: no failure maps to 0; what librpma said about one call is not told of another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/resource.h>

#include "rdma/rd_rpma.h"

static void fail_errno__causes__mapped_with_text(void **state)
{
    (void)state;
    static const struct { int error, expected; } cases[] = {
        {ENODEV, CAIRN_E_NO_DEVICE}, {ENETUNREACH, CAIRN_E_UNREACHABLE},
        {EHOSTUNREACH, CAIRN_E_UNREACHABLE}, {ETIMEDOUT, CAIRN_E_TIMEOUT},
        {ECONNREFUSED, CAIRN_E_REJECTED}, {ECONNRESET, CAIRN_E_NODE_DOWN},
        {EADDRINUSE, -EADDRINUSE}, {EMFILE, -EMFILE}, {EACCES, -EACCES},
        {EINVAL, CAIRN_E_FABRIC}, {EIO, CAIRN_E_FABRIC}, {0, CAIRN_E_FABRIC}};
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        assert_int_equal(rd_rpma_fail_errno(cases[i].error, "the thing"), cases[i].expected);
        assert_non_null(strstr(cairn_last_error(), "the thing: "));
        assert_int_equal(rd_rpma_fail_errno(-cases[i].error, "x"), cases[i].expected);
    }
    assert_int_equal(rd_rpma_fail_errno(ENODEV, "x"), CAIRN_E_NO_DEVICE);
    assert_non_null(strstr(cairn_last_error(), "cairn doctor"));
    assert_int_equal(rd_rpma_fail_errno(123456, "x"), CAIRN_E_FABRIC);
}

static void fail_register__no_memory__limit_and_remedy(void **state)
{
    (void)state;
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
    low = old;
    low.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    assert_int_equal(rd_rpma_fail_register(ENOMEM, "ring", 123456), CAIRN_E_MEMLOCK);
    assert_non_null(strstr(cairn_last_error(), "123456"));
    assert_non_null(strstr(cairn_last_error(), "65536"));
    assert_non_null(strstr(cairn_last_error(), "ulimit -l"));
    assert_int_equal(rd_rpma_fail_register(-ENOMEM, "ring", 1), CAIRN_E_MEMLOCK);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
    if (old.rlim_cur == RLIM_INFINITY) /* then the limit is not what is in the way */
        assert_int_equal(rd_rpma_fail_register(ENOMEM, "ring", 1), -ENOMEM);
    assert_int_equal(rd_rpma_fail_register(EOPNOTSUPP, "extent", 1), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "devdax"));
    assert_int_equal(rd_rpma_fail_register(EFAULT, "extent", 1), -EFAULT);
    assert_int_equal(rd_rpma_fail_register(EIO, "extent", 1), CAIRN_E_FABRIC);
}

static void fail__no_memory_for_a_queue__limit_and_remedy(void **state)
{
    (void)state;
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
    low = old;
    low.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    rd_rpma_log_clear();
    for (int i = 0; i < 2; i++) {
        errno = ENOMEM;
        int rc = i == 0 ? rd_rpma_fail_errno(ENOMEM, "a queue pair")
                        : rd_rpma_fail(RPMA_E_PROVIDER, "a log connection");
        assert_int_equal(rc, CAIRN_E_MEMLOCK);
        assert_non_null(strstr(cairn_last_error(), i == 0 ? "a queue pair: " : "connection: "));
        assert_non_null(strstr(cairn_last_error(), "65536"));
        assert_non_null(strstr(cairn_last_error(), "ulimit -l"));
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
    if (old.rlim_cur == RLIM_INFINITY)
        assert_int_equal(rd_rpma_fail_errno(ENOMEM, "a queue pair"), -ENOMEM);
}

static void log_capture__librpma_fails__its_words_in_our_text(void **state)
{
    (void)state;
    struct ibv_context *verbs = NULL;
    rd_rpma_log_capture();
    rd_rpma_log_clear();
    assert_string_equal(rd_rpma_log_text(), "");
    int rc = rpma_utils_get_ibv_context("no address", RPMA_UTIL_IBV_CONTEXT_LOCAL, &verbs);
    assert_int_not_equal(rc, 0);
    char said[400];
    (void)snprintf(said, sizeof(said), "%s", rd_rpma_log_text());
    assert_true(strlen(said) > 5);
    assert_null(strchr(said, '\n'));
    assert_true(rd_rpma_fail(rc, "node 7") < 0);
    assert_non_null(strstr(cairn_last_error(), "node 7: "));
    assert_non_null(strstr(cairn_last_error(), said));
    rd_rpma_log_clear();
    assert_string_equal(rd_rpma_log_text(), "");
    assert_true(rd_rpma_fail(RPMA_E_INVAL, "other") == CAIRN_E_FABRIC);
    assert_null(strstr(cairn_last_error(), said));
    assert_non_null(strstr(cairn_last_error(), "other: "));
}

static void log_capture__many_words__bounded(void **state)
{
    (void)state;
    struct ibv_context *verbs = NULL;
    rd_rpma_log_capture();
    rd_rpma_log_clear();
    for (int i = 0; i < 100; i++)
        (void)rpma_utils_get_ibv_context("no address", RPMA_UTIL_IBV_CONTEXT_LOCAL, &verbs);
    assert_true(strlen(rd_rpma_log_text()) < 1024);
    assert_non_null(strstr(rd_rpma_log_text(), "; "));
    rd_rpma_log_clear();
}

static void fail__codes_of_librpma__mapped(void **state)
{
    (void)state;
    rd_rpma_log_clear();
    assert_int_equal(rd_rpma_fail(RPMA_E_NOMEM, "x"), -ENOMEM);
    assert_int_equal(rd_rpma_fail(RPMA_E_AGAIN, "x"), CAIRN_E_AGAIN);
    assert_int_equal(rd_rpma_fail(RPMA_E_NOSUPP, "x"), CAIRN_E_FABRIC);
    assert_int_equal(rd_rpma_fail(RPMA_E_UNKNOWN, "x"), CAIRN_E_FABRIC);
    errno = EADDRINUSE;
    assert_int_equal(rd_rpma_fail(RPMA_E_PROVIDER, "x"), -EADDRINUSE);
    errno = ENOMEM;
    assert_int_equal(rd_rpma_errno(RPMA_E_PROVIDER), ENOMEM);
    errno = 0;
    assert_int_equal(rd_rpma_fail(RPMA_E_PROVIDER, "x"), CAIRN_E_FABRIC);
    assert_int_equal(rd_rpma_errno(RPMA_E_PROVIDER), EIO);
    assert_int_equal(rd_rpma_errno(RPMA_E_NOMEM), ENOMEM);
}

static void wc_error__every_status__an_error_and_a_text(void **state)
{
    (void)state;
    assert_int_equal(rd_rpma_wc_error(IBV_WC_SUCCESS), 0);
    for (int i = IBV_WC_LOC_LEN_ERR; i <= IBV_WC_GENERAL_ERR; i++) {
        int error = rd_rpma_wc_error((enum ibv_wc_status)i);
        assert_true(error == CAIRN_E_NODE_DOWN || error == CAIRN_E_FENCED ||
                    error == CAIRN_E_FABRIC);
        assert_non_null(rd_rpma_wc_text((enum ibv_wc_status)i));
        assert_true(strlen(rd_rpma_wc_text((enum ibv_wc_status)i)) > 3);
    }
    assert_int_equal(rd_rpma_wc_error(IBV_WC_RETRY_EXC_ERR), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_rpma_wc_error(IBV_WC_WR_FLUSH_ERR), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_rpma_wc_error(IBV_WC_REM_ACCESS_ERR), CAIRN_E_FENCED);
    assert_int_equal(rd_rpma_wc_error(IBV_WC_REM_INV_REQ_ERR), CAIRN_E_FABRIC);
}

#define CASE(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fail_errno__causes__mapped_with_text),
        CASE(fail_register__no_memory__limit_and_remedy),
        CASE(fail__no_memory_for_a_queue__limit_and_remedy),
        CASE(log_capture__librpma_fails__its_words_in_our_text),
        CASE(log_capture__many_words__bounded),
        CASE(fail__codes_of_librpma__mapped),
        CASE(wc_error__every_status__an_error_and_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
