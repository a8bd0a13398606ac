/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every error has a name and a text; the last error's text is per thread, can be extended,
 * and never overruns.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/internal/cn_base.h"

static void cairn_strerror__each_code__has_its_own_name_and_text(void **state)
{
    static const int codes[] = {
#define CAIRN_X(name, value, text) CAIRN_E_##name,
        CAIRN_ERRORS(CAIRN_X)
#undef CAIRN_X
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(codes); i++) {
        assert_string_not_equal(cairn_strerror(codes[i]), "unknown error");
        assert_memory_equal(cairn_error_name(codes[i]), "CAIRN_E_", 8);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(codes[i], codes[k]);
            assert_string_not_equal(cairn_strerror(codes[i]), cairn_strerror(codes[k]));
        }
    }
    assert_string_equal(cairn_error_name(CAIRN_E_CONFLICT), "CAIRN_E_CONFLICT");
}

static void cairn_strerror__errno_and_nonsense__never_null(void **state)
{
    (void)state;
    assert_string_equal(cairn_error_name(-ENOMEM), "ENOMEM");
    assert_string_equal(cairn_strerror(-ENOENT), "No such file or directory");
    assert_string_equal(cairn_strerror(0), "success");
    assert_string_equal(cairn_error_name(0), "OK");
    assert_string_equal(cairn_strerror(17), "unknown error");
    assert_string_equal(cairn_strerror(-19999), "unknown error");
    assert_string_equal(cairn_error_name(INT32_MIN), "UNKNOWN_ERROR");
}

static void cn_fail__text__kept_and_code_returned(void **state)
{
    (void)state;
    assert_int_equal(cn_fail(CAIRN_E_CONFIG, "%s: no node %u", "file", 7), CAIRN_E_CONFIG);
    assert_string_equal(cairn_last_error(), "file: no node 7");
    assert_int_equal(cn_fail_context(-EIO, "node %d: ", 2), -EIO);
    assert_string_equal(cairn_last_error(), "node 2: file: no node 7");
    assert_int_equal(cn_fail(-1, "again: %s", cairn_last_error()), -1);
    assert_string_equal(cairn_last_error(), "again: node 2: file: no node 7");
}

static void cn_fail__long_text__is_cut(void **state)
{
    char text[4096];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(cn_fail(-1, "%s", text), -1);
    assert_true(strlen(cairn_last_error()) > 100);
    assert_true(strlen(cairn_last_error()) < 1024);
    assert_int_equal(cn_fail_context(-1, "%s", text), -1);
    assert_true(strlen(cairn_last_error()) < 1024);
}

static void cn_error_copy__any_size__cut_and_ended(void **state)
{
    char text[8];

    (void)state;
    (void)cn_fail(-1, "%s", "longer than that");
    memset(text, '!', sizeof(text));
    cn_error_copy(text, 5);
    assert_memory_equal(text, "long\0!!!", 8);
    (void)cn_fail(-1, "%s", "");
    cn_error_copy(text, sizeof(text));
    assert_string_equal(text, "");
}

static void *other_thread(void *arg)
{
    char *seen = arg;

    (void)snprintf(seen, 32, "%s", cairn_last_error());
    (void)cn_fail(-1, "other");
    return NULL;
}

static void cairn_last_error__other_thread__has_its_own(void **state)
{
    pthread_t thread;
    char seen[32] = "unset";

    (void)state;
    (void)cn_fail(-1, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(seen, "");
    assert_string_equal(cairn_last_error(), "mine");
}

static void cn_panic__false_assertion__aborts_with_its_text(void **state)
{
    int pipe_fd[2], status;
    char text[256] = "";
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(pipe_fd[1], STDERR_FILENO);
        CAIRN_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    (void)close(pipe_fd[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(read(pipe_fd[0], text, sizeof(text) - 1) > 0);
    (void)close(pipe_fd[0]);
    assert_non_null(strstr(text, "1 + 1 == 3"));
    assert_non_null(strstr(text, "test_cn_error.c"));
}

static void cairn_names__outcome_and_version__as_in_the_header(void **state)
{
    (void)state;
    assert_string_equal(cairn_outcome_name(CAIRN_OUTCOME_COMMITTED), "COMMITTED");
    assert_string_equal(cairn_outcome_name(CAIRN_OUTCOME_ABORTED), "ABORTED");
    assert_string_equal(cairn_outcome_name(CAIRN_OUTCOME_UNKNOWN), "UNKNOWN");
    assert_string_equal(cairn_outcome_name(CAIRN_OUTCOME_NONE), "NONE");
    assert_string_equal(cairn_outcome_name((enum cairn_outcome)77), "INVALID");
    assert_string_equal(cairn_version(), "0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cairn_strerror__each_code__has_its_own_name_and_text),
        cmocka_unit_test(cairn_strerror__errno_and_nonsense__never_null),
        cmocka_unit_test(cn_fail__text__kept_and_code_returned),
        cmocka_unit_test(cn_fail__long_text__is_cut),
        cmocka_unit_test(cn_error_copy__any_size__cut_and_ended),
        cmocka_unit_test(cairn_last_error__other_thread__has_its_own),
        cmocka_unit_test(cn_panic__false_assertion__aborts_with_its_text),
        cmocka_unit_test(cairn_names__outcome_and_version__as_in_the_header),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
