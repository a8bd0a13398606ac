/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_folder.c: see ts_folder.h. Who removes it is a shell that is nobody's child: it reads from a
 * pipe whose other end this process holds, and so outlives a test runner that kills all of ours. It
 * holds nothing else open, or who reads our output would wait for it.
 */
#include "tests/support/ts_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void clean_up_behind(const char *dir, int pipe_end)
{
    int null = open("/dev/null", O_RDWR);

    if (null < 0 || dup2(pipe_end, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(null, STDERR_FILENO) < 0)
        _exit(1);
    (void)close_range(STDERR_FILENO + 1, ~0u, 0);
    (void)setsid();
    if (fork() == 0)
        (void)execl("/bin/sh", "sh", "-c", "read line; rm -rf -- \"$0\"", dir, (char *)NULL);
    _exit(0);
}

void ts_folder_make(char *dir)
{
    int ends[2];

    if (mkdtemp(dir) == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        perror(dir);
        abort();
    }
    pid_t pid = fork();
    if (pid == 0)
        clean_up_behind(dir, ends[0]);
    (void)close(ends[0]); /* and the other one stays open as long as we live */
    if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
        perror("fork");
        abort();
    }
}
