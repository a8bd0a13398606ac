/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: step names, log lines (one event, one line), and the system environment.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "include/internal/cn_env.h"

static char logged[2048];
static enum cn_log_level logged_level;

static void keep_log(void *arg, enum cn_log_level level, const char *text)
{
    assert_ptr_equal(arg, logged);
    logged_level = level;
    (void)snprintf(logged, sizeof(logged), "%s", text);
}

static void cn_step_name__all__unique_and_never_null(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CN_STEP_COUNT; i++) {
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(cn_step_name((enum cn_step)i), cn_step_name((enum cn_step)k));
    }
    assert_string_equal(cn_step_name(CN_STEP_c_connect), "c_connect");
    assert_string_equal(cn_step_name(CN_STEP_r_clean), "r_clean");
    assert_string_equal(cn_step_name(CN_STEP_COUNT), "invalid");
}

static void cn_log__newline_from_a_peer__stays_one_line(void **state)
{
    const struct cn_env env = {.arg = logged, .log = keep_log}, silent = {0};

    (void)state;
    cn_log(&env, CN_LOG_INFO, "peer says %s", "a\nb\x1b[2J");
    assert_string_equal(logged, "peer says a b [2J");
    assert_int_equal(logged_level, CN_LOG_INFO);
    cn_log(&silent, CN_LOG_ERROR, "nobody hears");
    assert_string_equal(logged, "peer says a b [2J");
}

/* What `fn` writes to standard error. */
static void capture(void (*fn)(void), char *text, size_t size)
{
    int pipe_fd[2], saved = dup(STDERR_FILENO);
    ssize_t got;

    assert_int_equal(pipe(pipe_fd), 0);
    (void)dup2(pipe_fd[1], STDERR_FILENO);
    (void)close(pipe_fd[1]);
    fn();
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    got = read(pipe_fd[0], text, size - 1);
    text[got > 0 ? got : 0] = '\0';
    (void)close(pipe_fd[0]);
}

static void log_three(void)
{
    cn_env_system_log_level(CN_LOG_WARNING);
    cn_log(cn_env_system(), CN_LOG_WARNING, "first %d", 1);
    cn_log(cn_env_system(), CN_LOG_INFO, "second");
    cn_env_system_log_level(CN_LOG_DEBUG);
    cn_log(cn_env_system(), CN_LOG_DEBUG, "third");
}

static void cn_env_system__log__level_is_respected(void **state)
{
    char text[1024];

    (void)state;
    capture(log_three, text, sizeof(text));
    assert_non_null(strstr(text, "warning: first 1\n"));
    assert_null(strstr(text, "second"));
    assert_non_null(strstr(text, "debug: third\n"));
    assert_int_equal(text[4], '-'); /* begins with a date */
}

static void cn_env_system__clock__moves_forward(void **state)
{
    uint64_t a = cn_now_ns(cn_env_system()), b = cn_now_ns(cn_env_system());

    (void)state;
    assert_true(a > 0 && b >= a);
    assert_true(cn_wall_s(cn_env_system()) > UINT64_C(1600000000));
    cn_step(cn_env_system(), CN_STEP_c_lock); /* no steps: must come back */
}

static void cn_env_system__random__never_repeats(void **state)
{
    static uint64_t seen[4096];
    uint8_t big[2000] = {0};
    unsigned zero = 0;

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(seen); i++)
        seen[i] = cn_random64(cn_env_system());
    for (size_t i = 0; i < CN_ARRAY_SIZE(seen); i++) {
        for (size_t k = 0; k < i; k++)
            assert_true(seen[i] != seen[k]);
    }
    cn_random(cn_env_system(), big, sizeof(big));
    for (size_t i = 0; i < sizeof(big); i++)
        zero += big[i] == 0;
    assert_true(zero < 100);
}

static void cn_env_system__random_after_fork__differs_in_the_child(void **state)
{
    int pipe_fd[2];
    uint64_t here, there;
    pid_t pid;

    (void)state;
    (void)cn_random64(cn_env_system()); /* the buffer is filled before the fork */
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        there = cn_random64(cn_env_system());
        _exit(write(pipe_fd[1], &there, sizeof(there)) == sizeof(there) ? 0 : 1);
    }
    here = cn_random64(cn_env_system());
    assert_int_equal(read(pipe_fd[0], &there, sizeof(there)), sizeof(there));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
    assert_true(here != there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_step_name__all__unique_and_never_null),
        cmocka_unit_test(cn_log__newline_from_a_peer__stays_one_line),
        cmocka_unit_test(cn_env_system__log__level_is_respected),
        cmocka_unit_test(cn_env_system__clock__moves_forward),
        cmocka_unit_test(cn_env_system__random__never_repeats),
        cmocka_unit_test(cn_env_system__random_after_fork__differs_in_the_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
