/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the previous opener counts as alive exactly while that very process, and not this one,
 * runs.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmem/pm_format.h"

static void pm_opener_is_alive__self_or_none__no(void **state)
{
    struct pm_opener self, none = {0};

    (void)state;
    pm_opener_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_true(self.start > 0);
    assert_false(cn_uuid_is_zero(&self.boot));
    assert_false(pm_opener_is_alive(&self));
    assert_false(pm_opener_is_alive(&none));
}

static void pm_opener_is_alive__child__until_it_ends(void **state)
{
    struct pm_opener child, other;
    int pipe_fd[2];
    siginfo_t info;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pm_opener_self(&child);
        (void)!write(pipe_fd[1], &child, sizeof(child));
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(pipe_fd[0], &child, sizeof(child)), sizeof(child));
    assert_int_equal(child.pid, pid);
    assert_true(pm_opener_is_alive(&child));
    other = child;
    other.start++; /* the pid has come again */
    assert_false(pm_opener_is_alive(&other));
    other = child;
    other.boot.b[3] ^= 1; /* of before a reboot */
    assert_false(pm_opener_is_alive(&other));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(pm_opener_is_alive(&child)); /* a zombie has let go */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(pm_opener_is_alive(&child));
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_opener_is_alive__self_or_none__no),
        cmocka_unit_test(pm_opener_is_alive__child__until_it_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
