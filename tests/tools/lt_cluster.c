/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lt_cluster.c: see lt_cluster.h.
 */
#include "tests/tools/lt_cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/ts_folder.h"

#define START_MS 30000u
#define STOP_MS 20000u

uint64_t lt_now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

const char *lt_path(struct lt_cluster *c, char path[128], const char *name)
{
    (void)snprintf(path, 128, "%s/%.50s", c->dir, name);
    return path;
}

/* ---- checks ---- */

void lt_check(struct lt_cluster *c, int got, int code, const char *part, int line)
{
    if (got != code || strstr(c->text, part) == NULL)
        fail_msg("line %d: exit %d, wanted %d and \"%s\" in: %s", line, got, code, part, c->text);
}

void lt_check_error(int got, int wanted, const char *part, const char *call, int line)
{
    if (got != wanted)
        fail_msg("line %d: %s: %s (%s), wanted %s", line, call, cairn_error_name(got),
            got == 0 ? "" : cairn_last_error(), cairn_error_name(wanted));
    if (part != NULL && strstr(cairn_last_error(), part) == NULL)
        fail_msg("line %d: %s: wanted \"%s\" in: %s", line, call, part, cairn_last_error());
}

/* ---- processes ---- */

static const char *program(void)
{
    const char *path = getenv("CAIRN");

    if (path == NULL)
        fail_msg("the environment variable CAIRN must name the program");
    return path;
}

/* In the child: `out` (and `log`, or `out`) are its standard output and error. */
static void execute(char *const *argv, int out, int err)
{
    int null = open("/dev/null", O_RDONLY);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(err, STDERR_FILENO);
    (void)execv(argv[0], argv);
    _exit(127);
}

int lt_cairn(struct lt_cluster *c, ...)
{
    char *argv[24] = {NULL};
    size_t used = 0;
    int fds[2], status, argc = 0;
    va_list args;

    argv[argc++] = (char *)(uintptr_t)program();
    va_start(args, c);
    do {
        assert_true(argc < 24);
        argv[argc] = (char *)(uintptr_t)va_arg(args, const char *);
    } while (argv[argc++] != NULL);
    va_end(args);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        execute(argv, fds[1], fds[1]);
    (void)close(fds[1]);
    for (;;) {
        ssize_t n = read(fds[0], c->text + used, LT_TEXT_MAX - 1 - used);
        if (n <= 0)
            break;
        used = cn_min64(used + (size_t)n, LT_TEXT_MAX - 2);
    }
    c->text[used] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void lt_start(struct lt_cluster *c, uint32_t id)
{
    lt_start_with(c, id, NULL);
}

void lt_start_with(struct lt_cluster *c, uint32_t id, const char *option)
{
    char log[128], name[16], number[16], fd[16], line[256];
    int ready[2];
    size_t used = 0;

    assert_int_equal(c->pid[id], 0);
    (void)snprintf(name, sizeof(name), "n%u.log", id);
    (void)snprintf(number, sizeof(number), "%u", id);
    assert_int_equal(pipe(ready), 0);
    (void)snprintf(fd, sizeof(fd), "%d", ready[1]);
    int out = open(lt_path(c, log, name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    char *argv[] = {(char *)(uintptr_t)program(), "node", "--config", c->config, "--id", number,
        "--ready-fd", fd, (char *)(uintptr_t)option, NULL};
    c->pid[id] = fork();
    if (c->pid[id] == 0) {
        (void)close(ready[0]);
        execute(argv, out, out);
    }
    (void)close(out);
    (void)close(ready[1]);
    for (;;) { /* ends with the line, or with the node */
        ssize_t n = read(ready[0], line + used, sizeof(line) - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    line[used] = '\0';
    (void)close(ready[0]);
    if (strncmp(line, "ready", 5) != 0)
        fail_msg("node %u does not start: see %s", id, log);
}

static void signal_node(struct lt_cluster *c, uint32_t id, int sig)
{
    assert_true(c->pid[id] > 0);
    assert_int_equal(kill(c->pid[id], sig), 0);
}

void lt_kill(struct lt_cluster *c, uint32_t id)
{
    signal_node(c, id, SIGKILL);
    (void)waitpid(c->pid[id], NULL, 0);
    c->pid[id] = 0;
}

void lt_stop(struct lt_cluster *c, uint32_t id)
{
    uint64_t end = lt_now_ms() + STOP_MS;
    int status;
    pid_t got;

    signal_node(c, id, SIGTERM);
    while ((got = waitpid(c->pid[id], &status, WNOHANG)) == 0 && lt_now_ms() < end)
        (void)usleep(5000);
    assert_int_equal(got, c->pid[id]);
    c->pid[id] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("node %u ended with status %d", id, status);
}

void lt_pause(struct lt_cluster *c, uint32_t id)
{
    siginfo_t info;

    signal_node(c, id, SIGSTOP);
    assert_int_equal(waitid(P_PID, (id_t)c->pid[id], &info, WSTOPPED), 0);
}

void lt_resume(struct lt_cluster *c, uint32_t id)
{
    signal_node(c, id, SIGCONT);
}

/* ---- the cluster ---- */

/* What `cairn init` made, with the size of every pool and the options replaced. */
static void edit_config(struct lt_cluster *c, const char *size, const char *options)
{
    static const char old[] = "\"256M\"";
    FILE *f = fopen(c->config, "r+e");

    assert_non_null(f);
    c->text[fread(c->text, 1, LT_TEXT_MAX - 1, f)] = '\0';
    char *at = c->text, *end = strstr(c->text, "options = {");
    assert_non_null(end);
    *end = '\0';
    rewind(f);
    for (char *next; (next = strstr(at, old)) != NULL; at = next + strlen(old)) {
        *next = '\0';
        (void)fprintf(f, "%s\"%s\"", at, size);
    }
    (void)fprintf(f, "%soptions = { %s };\n", at, options);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), ftell(f)), 0);
    (void)fclose(f);
}

struct lt_cluster *lt_new(uint32_t nodes, const char *size, const char *options)
{
    struct lt_cluster *c = calloc(1, sizeof(*c));
    char number[16];

    assert_non_null(c);
    c->nodes = nodes;
    c->options = (struct cairn_options)CAIRN_OPTIONS_DEFAULT;
    (void)snprintf(c->dir, sizeof(c->dir), "/dev/shm/cairn-limits-XXXXXX");
    ts_folder_make(c->dir);
    (void)snprintf(number, sizeof(number), "%u", nodes);
    LT_EXPECT(c, 0, "cairn.conf", "init", "--nodes", number, c->dir);
    (void)lt_path(c, c->config, "cairn.conf");
    edit_config(c, size, options);
    return c;
}

void lt_delete(struct lt_cluster **cluster)
{
    struct lt_cluster *c = *cluster;
    char command[128];

    lt_close(c);
    for (uint32_t id = 1; id <= c->nodes; id++)
        if (c->pid[id] != 0)
            lt_kill(c, id);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", c->dir);
    if (getenv("LT_KEEP") == NULL)
        assert_int_equal(system(command), 0);
    free(c);
    *cluster = NULL;
}

void lt_open(struct lt_cluster *c)
{
    lt_close(c);
    LT_OK(cairn_open(c->config, &c->options, &c->cairn));
    LT_OK(cairn_ctx_open(c->cairn, &c->ctx));
}

void lt_close(struct lt_cluster *c)
{
    if (c->ctx != NULL)
        cairn_ctx_close(&c->ctx);
    if (c->cairn != NULL)
        cairn_close(&c->cairn);
}

bool lt_log_says(struct lt_cluster *c, uint32_t id, const char *part, uint32_t timeout_ms)
{
    uint64_t end = lt_now_ms() + timeout_ms;
    char path[128], name[16];

    (void)snprintf(name, sizeof(name), "n%u.log", id);
    for (;;) {
        FILE *f = fopen(lt_path(c, path, name), "re");
        assert_non_null(f);
        (void)fseek(f, 0, SEEK_END);
        (void)fseek(f, -(long)cn_min64((uint64_t)ftell(f), LT_TEXT_MAX - 1), SEEK_END);
        c->text[fread(c->text, 1, LT_TEXT_MAX - 1, f)] = '\0';
        (void)fclose(f);
        if (strstr(c->text, part) != NULL)
            return true;
        if (lt_now_ms() > end)
            return false;
        (void)usleep(10000);
    }
}

uint64_t lt_counter(struct lt_cluster *c, uint32_t id, const char *name)
{
    char number[16], key[64];

    (void)snprintf(number, sizeof(number), "%u", id);
    LT_EXPECT(c, 0, name, "inspect", "--node", number, "--config", c->config, "--json");
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(c->text, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

struct lt_file lt_map(struct lt_cluster *c, uint32_t id)
{
    char path[128], name[16];
    struct lt_file file;
    struct stat st;

    (void)snprintf(name, sizeof(name), "n%u.pool", id);
    int fd = open(lt_path(c, path, name), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    file.size = (size_t)st.st_size;
    file.at = mmap(NULL, file.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(file.at != MAP_FAILED);
    (void)close(fd);
    return file;
}

void lt_unmap(struct lt_file *file)
{
    (void)munmap(file->at, file->size);
    file->at = NULL;
}

/* ---- data ---- */

size_t lt_key(struct lt_cluster *c, uint32_t id, uint32_t number, char key[32])
{
    struct txn_config *config;

    LT_OK(txn_config_load(c->config, &config));
    for (uint32_t i = 0;; i++) {
        int size = snprintf(key, 32, "k%u.%u", number, i);
        uint32_t shard = txn_config_shard(config, LT_TABLE, key, (size_t)size);
        if (txn_config_shard_node(config, shard)->id == id) {
            txn_config_free(&config);
            return (size_t)size;
        }
    }
}

int lt_try_put(struct lt_cluster *c, const char *key, const void *value, size_t size)
{
    enum cairn_outcome outcome;
    struct cairn_tx *tx;
    int rc = cairn_begin(c->ctx, &tx);

    if (rc != 0)
        return rc;
    rc = value == NULL ? cairn_delete(tx, LT_TABLE, key, strlen(key))
                       : cairn_put(tx, LT_TABLE, key, strlen(key), value, size);
    if (rc != 0) {
        cairn_abort(tx);
        return rc;
    }
    rc = cairn_commit(tx, &outcome);
    if (rc != 0)
        assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    return rc != 0 ? rc : outcome == CAIRN_OUTCOME_COMMITTED ? 0 : CAIRN_E_CONFLICT;
}

int lt_put(struct lt_cluster *c, const char *key, const void *value, size_t size)
{
    uint64_t end = lt_now_ms() + 20000;
    int rc;

    while ((rc = lt_try_put(c, key, value, size)) == CAIRN_E_CONFLICT && lt_now_ms() < end)
        (void)usleep(1000);
    return rc;
}

int lt_get(struct lt_cluster *c, const char *key, void *value, size_t size, size_t *ret_size)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    struct cairn_tx *tx;
    int rc = cairn_begin(c->ctx, &tx);

    if (rc != 0)
        return rc;
    rc = cairn_get(tx, LT_TABLE, key, strlen(key), value, size, ret_size);
    if (rc != 0 && rc != CAIRN_E_NOT_FOUND) {
        cairn_abort(tx);
        return rc;
    }
    int rc2 = cairn_commit(tx, &outcome);
    return rc2 != 0 ? rc2 : outcome != CAIRN_OUTCOME_COMMITTED ? CAIRN_E_CONFLICT : rc;
}

void lt_expect_value(struct lt_cluster *c, const char *key, const char *value)
{
    char buf[256];
    size_t size = 0;
    int rc = CAIRN_E_CONFLICT;

    for (uint32_t i = 0; i < 100 && rc == CAIRN_E_CONFLICT; i++)
        rc = lt_get(c, key, buf, sizeof(buf), &size);
    if (value == NULL) {
        lt_check_error(rc, CAIRN_E_NOT_FOUND, NULL, key, __LINE__);
        return;
    }
    lt_check_error(rc, 0, NULL, key, __LINE__);
    assert_int_equal(size, strlen(value));
    assert_memory_equal(buf, value, size);
}
