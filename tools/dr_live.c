/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_live.c: what only the running system tells: what verbs say of each device, and which process
 * holds which RDMA objects (the kernel's list, through iproute2's `rdma`).
 *
 * The program `rdma` gets no shell, no input, a bounded time and a bounded output.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rdma/rd_probe.h"
#include "tools/dr.h"

#define TOOL_MS_MAX 3000
#define OUTPUT_SIZE_MAX (1u << 20)

extern char **environ;

static const char *const object_kinds[DR_OBJECT_KINDS] = {
    [DR_OBJECT_CTX] = "ctx",
    [DR_OBJECT_PD] = "pd",
    [DR_OBJECT_MR] = "mr",
    [DR_OBJECT_CQ] = "cq",
    [DR_OBJECT_QP] = "qp",
    [DR_OBJECT_CM_ID] = "cm_id",
};

/* ---- verbs ---- */

static void take_probe(struct dr_device *d, const struct rd_probe_device *probe)
{
    if (probe->error != 0) {
        d->opened = DR_NO;
        (void)snprintf(d->open_error, sizeof(d->open_error), "%s", strerror(-probe->error));
        return;
    }
    d->opened = DR_YES;
    d->atomics = probe->atomics ? DR_YES : DR_NO;
    d->odp = probe->odp ? DR_YES : DR_NO;
    d->max_qp_wr = probe->max_qp_wr;
    d->max_rd_atomic = probe->max_rd_atomic;
    d->max_mr_size = probe->max_mr_size;
    for (unsigned i = 0; i < d->port_count; i++) {
        unsigned number = d->port[i].number;
        if (number >= 1 && number <= RD_PROBE_PORTS_MAX)
            d->port[i].mtu_active = probe->port[number - 1].mtu;
    }
}

static void ask_verbs(struct dr_facts *f)
{
    struct rd_probe_device *probe = calloc(DR_DEVICES_MAX, sizeof(*probe));
    uint32_t count = 0;
    int rc = probe == NULL ? -ENOMEM : rd_probe(probe, DR_DEVICES_MAX, &count);

    for (unsigned i = 0; i < f->device_count; i++) {
        struct dr_device *d = &f->device[i];
        d->opened = DR_NO;
        (void)snprintf(d->open_error, sizeof(d->open_error), "%s",
            rc != 0 ? strerror(-rc) : "libibverbs does not know it");
        for (uint32_t k = 0; k < count; k++) {
            if (strcmp(probe[k].name, d->name) == 0)
                take_probe(d, &probe[k]);
        }
    }
    free(probe);
}

/* ---- objects by process ---- */

static struct dr_owner *find_owner(struct dr_facts *f, uint64_t pid, const char *name)
{
    for (unsigned i = 0; i < f->owner_count; i++) {
        if (f->owner[i].pid == pid && strcmp(f->owner[i].name, name) == 0)
            return &f->owner[i];
    }
    if (f->owner_count == DR_OWNERS_MAX)
        return NULL;
    struct dr_owner *owner = &f->owner[f->owner_count++];
    owner->pid = pid;
    (void)snprintf(owner->name, sizeof(owner->name), "%s", name);
    return owner;
}

/* Objects of the kernel itself have a name in brackets and no pid. */
static void take_object(struct dr_facts *f, enum dr_object kind, const json_t *object)
{
    const char *comm = json_string_value(json_object_get(object, "comm"));
    json_int_t pid = json_integer_value(json_object_get(object, "pid"));
    json_int_t size = json_integer_value(json_object_get(object, "mrlen"));
    char name[32];

    dr_copy_printable(name, sizeof(name), comm == NULL ? "" : comm);
    if (name[0] == '[' || pid <= 0)
        return;
    struct dr_owner *owner = find_owner(f, (uint64_t)pid, name);
    if (owner == NULL)
        return;
    owner->count[kind]++;
    if (kind == DR_OBJECT_MR && size > 0)
        owner->bytes += (uint64_t)size;
}

bool dr_live_parse(struct dr_facts *f, enum dr_object kind, const char *json)
{
    json_error_t error;
    json_t *root, *object;
    size_t i;

    if (json[strspn(json, " \t\r\n")] == '\0') /* some versions print nothing for an empty list */
        return true;
    root = json_loads(json, 0, &error);
    if (!json_is_array(root)) {
        json_decref(root);
        return false;
    }
    json_array_foreach(root, i, object)
    {
        if (json_is_object(object))
            take_object(f, kind, object);
    }
    json_decref(root);
    return true;
}

static int64_t now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Everything up to the end of the stream, in time. */
static bool drain(int fd, char *text, size_t size)
{
    int64_t end = now_ms() + TOOL_MS_MAX;
    size_t used = 0;

    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = end - now_ms();
        if (left <= 0 || used + 1 == size || poll(&wait, 1, (int)left) < 0)
            return false;
        if (wait.revents == 0)
            continue;
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n < 0)
            return false;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    text[used] = '\0';
    return true;
}

static int spawn(char *const argv[], int out, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0)
        return -rc;
    rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(ret_pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Run it and take its output. Errors: -ENOENT (not installed), -EIO (it failed), -errno. */
static int ask_tool(const char *kind, char *text, size_t size)
{
    char *const argv[] = {"rdma", "-j", "resource", "show", (char *)(uintptr_t)kind, NULL};
    int fds[2], status = 0;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return -errno;
    int rc = spawn(argv, fds[1], &pid);
    (void)close(fds[1]);
    if (rc != 0) {
        (void)close(fds[0]);
        return rc;
    }
    bool whole = drain(fds[0], text, size);
    (void)close(fds[0]);
    if (!whole)
        (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid || !whole || !WIFEXITED(status))
        return -EIO;
    /* glibc's spawn reports a missing program itself; a shell-like 127 is the same */
    return WEXITSTATUS(status) == 0 ? 0 : WEXITSTATUS(status) == 127 ? -ENOENT : -EIO;
}

static void ask_objects(struct dr_facts *f)
{
    char *text = malloc(OUTPUT_SIZE_MAX);

    f->owners_known = DR_NO;
    for (int kind = 0; text != NULL && kind < DR_OBJECT_KINDS; kind++) {
        int rc = ask_tool(object_kinds[kind], text, OUTPUT_SIZE_MAX);
        if (rc == -ENOENT) {
            (void)snprintf(f->owners_error, sizeof(f->owners_error),
                "the program `rdma` (package iproute2) is not here");
            break;
        }
        if (rc == 0 && dr_live_parse(f, (enum dr_object)kind, text))
            f->owners_known = DR_YES;
        else if (kind != DR_OBJECT_CTX) /* older ones know no contexts */
            (void)snprintf(f->owners_error, sizeof(f->owners_error),
                "`rdma -j resource show %s` gave no list", object_kinds[kind]);
    }
    free(text);
    for (unsigned i = 0; i < f->owner_count; i++)
        f->owner[i].gone = kill((pid_t)f->owner[i].pid, 0) != 0 && errno == ESRCH;
}

void dr_live_read(struct dr_facts *f)
{
    ask_verbs(f);
    if (f->device_all != 0)
        ask_objects(f);
}
