/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_proc.c: the processes of the demo (tl_proc.h) and the control block that they share.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/demo.h"

#define READY_TIMEOUT_MS 30000u
#define TICK_MS 50

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

int demo_start_node(struct demo *d, uint32_t i)
{
    return tl_proc_start_node(&d->node[i], d->folder, d->config, i + 1, false);
}

int demo_start_worker(struct demo *d, uint32_t i)
{
    struct tl_child *child = &d->worker[i];
    char process[16], generation[16];
    char *argv[] = {"cairn", "demo-worker", "--folder", d->folder, "--process", process,
        "--generation", generation, NULL};

    child->id = i + 1;
    (void)snprintf(child->name, sizeof(child->name), "coordinator %u", i + 1);
    (void)snprintf(process, sizeof(process), "%u", i);
    (void)snprintf(generation, sizeof(generation), "%u", child->generation);
    return tl_proc_start(child, d->folder, argv, false);
}

int demo_check_children(struct demo *d)
{
    int rc = 0;

    for (uint32_t i = 0; i < DEMO_NODES && rc == 0; i++)
        rc = tl_proc_check(&d->node[i], d->folder);
    for (uint32_t i = 0; i < d->processes && rc == 0; i++)
        rc = tl_proc_check(&d->worker[i], d->folder);
    if (rc == 0 && tl_interrupted)
        rc = cn_fail(-EINTR, "interrupted");
    return rc;
}

/* Value of "name=" in a node's ready line. */
static uint64_t field(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

static void note_ready(struct demo *d, struct tl_child *child, const char *line, bool recovery)
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
    struct tl_child *child = &d->node[i];
    char line[256];
    int rc = 0, answer = 0;

    for (uint32_t waited = 0; rc == 0 && answer == 0; waited += TICK_MS) {
        if (waited >= READY_TIMEOUT_MS)
            return cn_fail(CAIRN_E_TIMEOUT, "%s does not become ready", child->name);
        answer = tl_proc_ready(child, d->folder, TICK_MS, line, sizeof(line));
        rc = answer < 0 ? answer : demo_check_children(d);
        demo_tick(d);
    }
    if (rc == 0)
        note_ready(d, child, line, recovery);
    return rc;
}

void demo_kill(struct demo *d, struct tl_child *child)
{
    d->totals.kills += tl_proc_kill(child);
}

int demo_await_end(struct demo *d, struct tl_child *child, uint32_t timeout_s)
{
    uint64_t deadline = cn_now_ns(cn_env_system()) + timeout_s * UINT64_C(1000000000);
    int answer;

    while ((answer = tl_proc_ended(child, d->folder)) == 0) {
        if (cn_now_ns(cn_env_system()) > deadline)
            return cn_fail(
                CAIRN_E_TIMEOUT, "%s does not end; see its log in %s", child->name, d->folder);
        (void)usleep(10000);
        demo_tick(d);
    }
    return answer < 0 ? answer : 0;
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
