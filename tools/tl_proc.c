/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_proc.c: processes of this same program: start, wait until ready, kill, reap; and the folder
 * that they share.
 */
#include "tools/tl_proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_FD 3
#define LAST_MAX 400 /* bytes of a log's last line that are repeated */
#define BASE_SIZE_MAX 62u /* leaves room for socket names */
#ifndef CAIRN_LIBEXEC_FROM_BIN /* how they are installed */
#define CAIRN_LIBEXEC_FROM_BIN "../libexec/cairn"
#define CAIRN_BIN_FROM_LIBEXEC "../../bin"
#endif

/* ---- the folder ---- */

static bool has_space(const char *base, uint64_t needed)
{
    struct statvfs fs;

    return access(base, W_OK) == 0 && statvfs(base, &fs) == 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize >= needed;
}

int tl_folder_make(const char *name, uint64_t needed, char ret_folder[256])
{
    const char *base = "/dev/shm";
    char folder[256];

    if (!has_space(base, needed)) {
        base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
        if (access(base, W_OK) == 0 && !has_space(base, needed))
            return cn_fail(-ENOSPC,
                "neither /dev/shm nor %s has the %llu MiB that are needed; set TMPDIR", base,
                (unsigned long long)(needed >> 20));
    }
    if (strlen(base) > BASE_SIZE_MAX)
        return cn_fail(-ENAMETOOLONG, "%s: is too long for sockets in it; set TMPDIR", base);
    (void)snprintf(folder, sizeof(folder), "%s/%s-%d-XXXXXX", base, name, (int)getpid());
    if (mkdtemp(folder) == NULL) {
        int rc = -errno;
        return cn_fail(rc, "%s: cannot make a folder in it: %s", base, strerror(-rc));
    }
    memcpy(ret_folder, folder, sizeof(folder));
    return 0;
}

void tl_folder_remove(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL)
        (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir != NULL)
        (void)closedir(dir);
    (void)rmdir(folder);
}

/* ---- start ---- */

static void log_path_of(const struct tl_child *child, const char *folder, char path[TL_PATH_MAX])
{
    (void)snprintf(path, TL_PATH_MAX, "%s/%s.log", folder, child->name);
    for (char *c = path + cn_min64(strlen(folder), TL_PATH_MAX - 1); *c != '\0'; c++)
        *c = *c == ' ' ? '-' : *c;
}

/* In the child, between fork and exec. */
CN_NORETURN static void become(
    const char *program, char *const argv[], const char *log_path, int ready_fd, pid_t parent)
{
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || log < 0)
        _exit(TL_USAGE);
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    if (ready_fd == READY_FD)
        (void)fcntl(ready_fd, F_SETFD, 0);
    else if (ready_fd >= 0)
        (void)dup2(ready_fd, READY_FD);
    /* Ctrl-C goes to the starter, which ends its children itself. */
    (void)setpgid(0, 0);
    (void)execv(program, argv);
    _exit(TL_USAGE);
}

/* Errors: -errno. */
static int find_self(char path[PATH_MAX])
{
    ssize_t size = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (size <= 0)
        return cn_fail(-errno, "cannot find this program: %s", strerror(errno));
    path[size] = '\0';
    return 0;
}

int tl_program_find(const char *name, char ret_path[TL_PATH_MAX])
{
    static const char *const places[] = {
        "", CAIRN_LIBEXEC_FROM_BIN "/", CAIRN_BIN_FROM_LIBEXEC "/"};
    char self[PATH_MAX];
    int rc = find_self(self);

    if (rc != 0)
        return rc;
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < CN_ARRAY_SIZE(places); i++) {
        int n = snprintf(ret_path, TL_PATH_MAX, "%s/%s%s", self, places[i], name);
        if (n > 0 && n < TL_PATH_MAX && access(ret_path, X_OK) == 0)
            return 0;
    }
    return cn_fail(-ENOENT,
        "the program %s is neither in %s nor in %s/%s: build its target, or install it", name, self,
        self, CAIRN_LIBEXEC_FROM_BIN);
}

int tl_proc_start(struct tl_child *child, const char *folder, char *const argv[], bool ready)
{
    char log_path[TL_PATH_MAX], program[PATH_MAX];
    int fds[2] = {-1, -1};
    pid_t parent = getpid();
    int rc = 0;

    if (child->program != NULL)
        (void)snprintf(program, sizeof(program), "%s", child->program);
    else
        rc = find_self(program);
    if (rc != 0)
        return rc;
    log_path_of(child, folder, log_path);
    if (ready && pipe2(fds, O_CLOEXEC) != 0)
        return cn_fail(-errno, "cannot make a pipe: %s", strerror(errno));
    child->started_ns = cn_now_ns(cn_env_system());
    child->pid = fork();
    if (child->pid == 0)
        become(program, argv, log_path, fds[1], parent);
    int error = errno;
    if (ready)
        (void)close(fds[1]);
    child->ready_fd = fds[0];
    if (child->pid < 0) {
        child->pid = 0;
        return cn_fail(-error, "cannot start a process: %s", strerror(error));
    }
    return 0;
}

int tl_proc_start_node(
    struct tl_child *child, const char *folder, const char *config, uint32_t id, bool quiet)
{
    char id_text[16], path[TL_PATH_MAX], name[] = "cairn", node[] = "node", id_name[] = "--id";
    char config_name[] = "--config", fd_name[] = "--ready-fd", fd[] = "3", quiet_name[] = "--quiet";
    char *argv[] = {name, node, config_name, path, id_name, id_text, fd_name, fd,
        quiet ? quiet_name : NULL, NULL};

    child->id = id;
    (void)snprintf(child->name, sizeof(child->name), "node %u", id);
    (void)snprintf(id_text, sizeof(id_text), "%u", id);
    (void)snprintf(path, sizeof(path), "%s", config);
    return tl_proc_start(child, folder, argv, true);
}

/* ---- wait ---- */

/* What the child said last in its log, or where that is. */
static void read_last_line(const struct tl_child *child, const char *folder, char ret[LAST_MAX])
{
    char path[TL_PATH_MAX], tail[LAST_MAX];

    log_path_of(child, folder, path);
    (void)snprintf(ret, LAST_MAX, "; see %.*s", (int)(LAST_MAX - 8), path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END), from = end >= LAST_MAX ? end - LAST_MAX + 1 : 0;
    ssize_t size = pread(fd, tail, sizeof(tail) - 1, from);
    (void)close(fd);
    while (size > 0 && tail[size - 1] == '\n')
        size--;
    if (size <= 0)
        return;
    tail[size] = '\0';
    const char *line = strrchr(tail, '\n');
    (void)snprintf(ret, LAST_MAX, ": %.*s", (int)(LAST_MAX - 3), line == NULL ? tail : line + 1);
}

static int fail_ended(struct tl_child *child, const char *folder, int status)
{
    char what[64], last[LAST_MAX];

    read_last_line(child, folder, last);
    if (WIFSIGNALED(status))
        (void)snprintf(what, sizeof(what), "by signal %d", WTERMSIG(status));
    else
        (void)snprintf(what, sizeof(what), "with exit code %d", WEXITSTATUS(status));
    child->pid = 0;
    return cn_fail(CAIRN_E_STATE, "%s ended by itself %s%s", child->name, what, last);
}

int tl_proc_check(struct tl_child *child, const char *folder)
{
    int status;

    if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
        return 0;
    return fail_ended(child, folder, status);
}

int tl_proc_ready(
    struct tl_child *child, const char *folder, int wait_ms, char *line, size_t line_size)
{
    struct pollfd p = {.fd = child->ready_fd, .events = POLLIN};

    if (poll(&p, 1, wait_ms) <= 0)
        return tl_proc_check(child, folder);
    ssize_t size = read(child->ready_fd, line, line_size - 1);
    if (size <= 0) {
        (void)usleep(100000); /* it has ended, or is about to */
        return tl_proc_check(child, folder);
    }
    line[size] = '\0';
    (void)close(child->ready_fd);
    child->ready_fd = -1;
    return 1;
}

bool tl_proc_kill(struct tl_child *child)
{
    if (child->ready_fd > STDERR_FILENO)
        (void)close(child->ready_fd);
    child->ready_fd = -1;
    if (child->pid == 0)
        return false;
    bool alive = kill(child->pid, SIGKILL) == 0;
    (void)waitpid(child->pid, NULL, 0);
    child->pid = 0;
    return alive;
}

int tl_proc_ended(struct tl_child *child, const char *folder)
{
    int status;

    if (child->pid == 0)
        return 1;
    if (waitpid(child->pid, &status, WNOHANG) != child->pid)
        return 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail_ended(child, folder, status);
    child->pid = 0;
    return 1;
}
