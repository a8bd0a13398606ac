/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_opener.c: who has a pool. A process is named by pid, start time and boot id together, since
 * pids come again. A file lock is not enough: it can go before the process's queue pairs do.
 */
#include <fcntl.h>
#include <unistd.h>

#include "pmem/pm_format.h"

static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return false;
    got = read(fd, text, size - 1);
    (void)close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

static bool read_boot(struct cn_uuid *ret_boot)
{
    char text[64];

    if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)))
        return false;
    text[strcspn(text, "\n")] = '\0';
    return cn_uuid_parse(text, ret_boot);
}

struct process {
    char state;
    unsigned long long threads, start;
};

static bool read_process(uint64_t pid, struct process *ret)
{
    char path[64], text[1024];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
    if (!read_text(path, text, sizeof(text)))
        return false;
    at = strrchr(text, ')'); /* the name before it may hold anything */
    /* Fields from the third on: state is the 3rd, number of threads the 20th, start time the 22nd.
     */
    return at != NULL &&
        sscanf(at + 1,
            " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %*s %llu",
            &ret->state, &ret->threads, &ret->start) == 3;
}

void pm_opener_self(struct pm_opener *ret)
{
    struct process self;
    struct pm_opener opener = {.pid = (uint64_t)getpid()};

    memset(ret, 0, sizeof(*ret));
    if (!read_process(opener.pid, &self) || !read_boot(&opener.boot))
        return;
    opener.start = self.start;
    *ret = opener;
}

bool pm_opener_is_alive(const struct pm_opener *opener)
{
    struct cn_uuid boot;
    struct process other;

    if (opener->pid == 0 || opener->pid == (uint64_t)getpid())
        return false;
    if (!read_boot(&boot) || !cn_uuid_equal(&boot, &opener->boot))
        return false;
    if (!read_process(opener->pid, &other) || other.start != opener->start)
        return false;
    /* A zombie without threads has let go of its memory, files and queue pairs. */
    return other.state != 'X' && !(other.state == 'Z' && other.threads <= 1);
}
