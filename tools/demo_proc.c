/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_proc.c: the processes of the demo: start, wait until ready, kill, reap. All of them are this
 * same program, and die with the demo (PR_SET_PDEATHSIG), however it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/demo.h"

#define READY_TIMEOUT_MS 30000u
#define TICK_MS 50
#define READY_FD 3

int demo_control_map(const char *folder, bool make, struct demo_control **ret)
{
    char path[DEMO_PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/control", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
    if (fd < 0)
        return cn_fail(-errno, "%s: cannot open: %s", path, strerror(errno));
    if (make && ftruncate(fd, sizeof(struct demo_control)) != 0) {
        (void)close(fd);
        return cn_fail(-errno, "%s: cannot make: %s", path, strerror(errno));
    }
    struct stat st;
    bool whole = fstat(fd, &st) == 0 && (size_t)st.st_size == sizeof(struct demo_control);
    void *p = mmap(NULL, sizeof(struct demo_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (p == MAP_FAILED)
        return cn_fail(-errno, "%s: cannot map: %s", path, strerror(errno));
    struct demo_control *control = p;
    if (!whole || (!make && control->magic != DEMO_MAGIC)) {
        (void)munmap(p, sizeof(struct demo_control));
        return cn_fail(-EINVAL, "%s: is not of a demo of this version", path);
    }
    *ret = control;
    return 0;
}

void demo_ledger_path(const char *folder, uint32_t writer, char path[DEMO_PATH_MAX])
{
    (void)snprintf(path, DEMO_PATH_MAX, "%s/ledger-%u", folder, writer);
}

/* In the child, between fork and exec. */
CN_NORETURN static void become(
    const struct demo *d, char *const argv[], const char *log_path, int ready_fd, pid_t parent)
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
    /* Ctrl-C goes to the demo, which ends its children itself. */
    (void)setpgid(0, 0);
    (void)execv(d->program, argv);
    _exit(TL_USAGE);
}

static int spawn(struct demo *d, struct demo_child *child, char *const argv[], bool ready)
{
    char log_path[DEMO_PATH_MAX];
    int fds[2] = {-1, -1};
    pid_t parent = getpid();

    (void)snprintf(log_path, sizeof(log_path), "%s/%s.log", d->folder, child->name);
    for (char *c = log_path; *c != '\0'; c++)
        *c = *c == ' ' ? '-' : *c;
    if (ready && pipe2(fds, O_CLOEXEC) != 0)
        return cn_fail(-errno, "cannot make a pipe: %s", strerror(errno));
    child->started_ns = cn_now_ns(cn_env_system());
    child->pid = fork();
    if (child->pid == 0)
        become(d, argv, log_path, fds[1], parent);
    if (ready)
        (void)close(fds[1]);
    child->ready_fd = fds[0];
    if (child->pid < 0) {
        child->pid = 0;
        return cn_fail(-errno, "cannot start a process: %s", strerror(errno));
    }
    return 0;
}

int demo_start_node(struct demo *d, uint32_t i)
{
    struct demo_child *child = &d->node[i];
    char id[16];
    char *argv[] = {"cairn", "node", "--config", d->config, "--id", id, "--ready-fd", "3", NULL};

    child->id = i + 1;
    (void)snprintf(child->name, sizeof(child->name), "node %u", i + 1);
    (void)snprintf(id, sizeof(id), "%u", i + 1);
    return spawn(d, child, argv, true);
}

int demo_start_worker(struct demo *d, uint32_t i)
{
    struct demo_child *child = &d->worker[i];
    char process[16], generation[16];
    char *argv[] = {"cairn", "demo-worker", "--folder", d->folder, "--process", process,
        "--generation", generation, NULL};

    child->id = i + 1;
    (void)snprintf(child->name, sizeof(child->name), "coordinator %u", i + 1);
    (void)snprintf(process, sizeof(process), "%u", i);
    (void)snprintf(generation, sizeof(generation), "%u", child->generation);
    child->ready_fd = -1;
    return spawn(d, child, argv, false);
}

static int fail_ended(const struct demo *d, struct demo_child *child, int status)
{
    char what[64];

    if (WIFSIGNALED(status))
        (void)snprintf(what, sizeof(what), "by signal %d", WTERMSIG(status));
    else
        (void)snprintf(what, sizeof(what), "with exit code %d", WEXITSTATUS(status));
    child->pid = 0;
    return cn_fail(
        CAIRN_E_STATE, "%s ended by itself %s; see its log in %s", child->name, what, d->folder);
}

static int check_child(const struct demo *d, struct demo_child *child)
{
    int status;

    if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
        return 0;
    return fail_ended(d, child, status);
}

int demo_check_children(struct demo *d)
{
    int rc = 0;

    for (uint32_t i = 0; i < DEMO_NODES && rc == 0; i++)
        rc = check_child(d, &d->node[i]);
    for (uint32_t i = 0; i < d->processes && rc == 0; i++)
        rc = check_child(d, &d->worker[i]);
    if (rc == 0 && demo_interrupted)
        rc = cn_fail(-EINTR, "interrupted");
    return rc;
}

/* Value of "name=" in a node's ready line. */
static uint64_t field(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static void note_ready(struct demo *d, struct demo_child *child, const char *line, bool recovery)
{
    uint64_t ns = cn_now_ns(cn_env_system()) - child->started_ns;

    if (!recovery)
        return;
    d->totals.recoveries++;
    d->totals.recovery_ns_max = cn_max64(d->totals.recovery_ns_max, ns);
    demo_say(d,
        "%s is back after %llu ms: incarnation %llu, %llu records found, %llu replayed, "
        "%llu in doubt",
        child->name, (unsigned long long)(ns / 1000000),
        (unsigned long long)field(line, "incarnation="), (unsigned long long)field(line, "found="),
        (unsigned long long)field(line, "replayed="), (unsigned long long)field(line, "in_doubt="));
}

int demo_await_node(struct demo *d, uint32_t i, bool recovery)
{
    struct demo_child *child = &d->node[i];
    struct pollfd p = {.fd = child->ready_fd, .events = POLLIN};
    char line[256];
    int rc = 0;

    for (uint32_t waited = 0; rc == 0; waited += TICK_MS) {
        if (waited >= READY_TIMEOUT_MS)
            rc = cn_fail(CAIRN_E_TIMEOUT, "%s does not become ready", child->name);
        if (rc == 0 && poll(&p, 1, TICK_MS) > 0) {
            ssize_t size = read(child->ready_fd, line, sizeof(line) - 1);
            if (size > 0) {
                line[size] = '\0';
                note_ready(d, child, line, recovery);
                break;
            }
            (void)usleep(100000); /* it has ended, or is about to */
        }
        if (rc == 0)
            rc = demo_check_children(d);
        demo_tick(d);
    }
    (void)close(child->ready_fd);
    child->ready_fd = -1;
    return rc;
}

void demo_kill(struct demo *d, struct demo_child *child)
{
    if (child->pid == 0)
        return;
    if (kill(child->pid, SIGKILL) == 0)
        d->totals.kills++;
    (void)waitpid(child->pid, NULL, 0);
    child->pid = 0;
}

int demo_await_end(struct demo *d, struct demo_child *child, uint32_t timeout_s)
{
    uint64_t deadline = cn_now_ns(cn_env_system()) + timeout_s * UINT64_C(1000000000);
    int status;

    while (child->pid != 0) {
        if (waitpid(child->pid, &status, WNOHANG) == child->pid) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return fail_ended(d, child, status);
            child->pid = 0;
            break;
        }
        if (cn_now_ns(cn_env_system()) > deadline)
            return cn_fail(
                CAIRN_E_TIMEOUT, "%s does not end; see its log in %s", child->name, d->folder);
        (void)usleep(10000);
        demo_tick(d);
    }
    return 0;
}

void demo_kill_all(struct demo *d)
{
    uint64_t kills = d->totals.kills;

    for (uint32_t i = 0; i < d->processes; i++)
        demo_kill(d, &d->worker[i]);
    for (uint32_t i = 0; i < DEMO_NODES; i++)
        demo_kill(d, &d->node[i]);
    d->totals.kills = kills;
}
