/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_node.c: `cairn node`: a participant. Makes its pool when there is none, opens it (which is
 * recovery), serves until SIGTERM or SIGINT, closes cleanly.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recovery/rec_node.h"
#include "tools/tl.h"

#define OPENER_WAIT_PIECE_MS 200u
#define OPENER_WAIT_S 10u

struct node {
    const struct tl_command *self;
    struct txn_config *config;
    const struct txn_config_node *place;
    struct rd_fabric *fabric;
    struct pm_pool *pool; /* until the node takes it */
    struct rec_node *node;
    uint64_t wait_s; /* for the process that had the pool last */
    bool serve_damaged;
};

/* A signal handler reaches nothing else. */
static volatile int stop;
static struct rec_node *volatile running;

static void handle_stop(int signal_number)
{
    int saved = errno;

    (void)signal_number;
    stop = 1;
    if (running != NULL)
        rec_node_wake(running);
    errno = saved;
}

static int catch_signals(void)
{
    struct sigaction action = {.sa_handler = handle_stop};

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0)
        return cn_fail(-errno, "cannot catch signals: %s", strerror(errno));
    return 0;
}

static int create_pool(struct node *n)
{
    const struct txn_config_node *p = n->place;
    char what[256], size[32];

    (void)snprintf(what, sizeof(what), "node %u: creating pool %.150s (%s)", p->id, p->pool,
        tl_bytes(p->pool_size, size));
    cn_log(cn_env_system(), CN_LOG_INFO, "%s", what);
    struct tl_progress *progress = tl_progress_start(what);
    int rc = pm_pool_create(
        p->pool, p->pool_size, &n->config->geometry, &n->config->cluster, p->id, cn_env_system());
    tl_progress_end(progress);
    return rc;
}

static int make_pool_if_missing(struct node *n)
{
    return pm_pool_is_missing(n->place->pool) ? create_pool(n) : 0;
}

static int open_pool(struct node *n)
{
    uint64_t waited_ms = 0;
    int rc;

    do { /* in short pieces: a signal ends the wait */
        rc = pm_pool_open(
            n->place->pool, PM_OPEN_OWNER, OPENER_WAIT_PIECE_MS, cn_env_system(), &n->pool);
        waited_ms += OPENER_WAIT_PIECE_MS;
    } while (rc == CAIRN_E_POOL_BUSY && waited_ms < n->wait_s * 1000 && !stop);
    if (rc == CAIRN_E_NOT_A_POOL) {
        char text[512];
        cn_error_copy(text, sizeof(text));
        return cn_fail(rc, "node %u: %s; is `pool` right in %s? If the making of this pool was "
            "interrupted, remove it (zero the first 8 KiB of a devdax device) and start again",
            n->place->id, text, n->config->path);
    }
    return rc;
}

static int open_node(struct node *n, uint64_t id)
{
    int rc;

    n->place = id > UINT16_MAX ? NULL : txn_config_find_node(n->config, (uint16_t)id);
    if (n->place == NULL)
        return cn_fail(CAIRN_E_CONFIG, "%s: there is no node %llu in it", n->config->path,
            (unsigned long long)id);
    rc = txn_config_open_fabric(n->config, &n->fabric);
    if (rc != 0)
        return rc;
    rc = make_pool_if_missing(n);
    if (rc != 0)
        return rc;
    char what[128];
    (void)snprintf(what, sizeof(what), "node %u: opening and recovering the pool", n->place->id);
    struct tl_progress *progress = tl_progress_start(what);
    rc = open_pool(n);
    if (rc == 0) {
        struct rec_node_options options = {
            .config = n->config,
            .node = n->place->id,
            .fabric = n->fabric,
            .env = cn_env_system(),
            .pool = n->pool,
            .serve_damaged = n->serve_damaged,
        };
        rc = rec_node_open(&options, &n->node);
        if (rc == 0)
            n->pool = NULL;
    }
    tl_progress_end(progress);
    return rc;
}

static void close_all(struct node *n)
{
    if (n->node != NULL)
        rec_node_close(&n->node);
    if (n->pool != NULL)
        pm_pool_close(&n->pool);
    if (n->fabric != NULL)
        rd_fabric_delete(n->fabric);
    txn_config_free(&n->config);
}

/* Say that the node serves: in the log, and to a supervisor that gave a descriptor. */
static void announce(const struct node *n, uint64_t ready_fd)
{
    struct rec_node_stats s;
    char line[256];

    rec_node_stats(n->node, &s);
    cn_log(cn_env_system(), CN_LOG_INFO, "node %u: serving at %s", n->place->id, n->place->address);
    if (ready_fd == UINT64_MAX)
        return;
    int size = snprintf(line, sizeof(line),
        "ready incarnation=%" PRIu64 " open_ns=%" PRIu64 " found=%" PRIu64 " replayed=%" PRIu64
        " in_doubt=%" PRIu64 "\n",
        s.incarnation, s.open_ns, s.records_found, s.records_replayed, s.records_in_doubt_at_start);
    if (write((int)ready_fd, line, (size_t)size) != size)
        cn_log(
            cn_env_system(), CN_LOG_WARNING, "node %u: cannot write to --ready-fd", n->place->id);
    (void)close((int)ready_fd);
}

/* Before anything is opened: a number that nobody opened would soon be the pool's. */
static bool may_announce(uint64_t ready_fd)
{
    int flags = fcntl((int)ready_fd, F_GETFL);

    return flags != -1 && (flags & O_ACCMODE) != O_RDONLY;
}

static int serve(struct node *n, uint64_t id, uint64_t ready_fd)
{
    int rc = catch_signals();

    if (rc == 0)
        rc = open_node(n, id);
    if (rc != 0)
        return tl_cairn_error(n->self, rc, false);
    running = n->node;
    announce(n, ready_fd);
    rec_node_run(n->node, &stop);
    running = NULL;
    cn_log(cn_env_system(), CN_LOG_INFO, "node %u: closing", n->place->id);
    return TL_OK;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    const char *path = NULL;
    uint64_t id = 0, ready_fd = UINT64_MAX;
    bool quiet = false, verbose = false;
    struct node n = {.self = self, .wait_s = OPENER_WAIT_S};
    const struct tl_option options[] = {
        {.name = "config", .arg = "FILE", .help = "the cluster's configuration", .text = &path},
        {.name = "id",
            .arg = "N",
            .help = "which of its nodes to be",
            .number = &id,
            .min = 1,
            .max = UINT16_MAX},
        {.name = "wait",
            .arg = "S",
            .help = "seconds to wait for a process that still has the pool (default 10)",
            .number = &n.wait_s,
            .max = 3600},
        {.name = "ready-fd",
            .arg = "FD",
            .help = "write one line to this descriptor when serving, then close it",
            .number = &ready_fd,
            .min = 3, /* 1 and 2 are written to for longer, and must not be closed */
            .max = 65535},
        {.name = "serve-damaged",
            .help = "serve although a committed record is damaged; its keys keep older values",
            .flag = &n.serve_damaged},
        {.name = "quiet", .help = "log warnings and errors only", .flag = &quiet},
        {.name = "verbose", .help = "log everything", .flag = &verbose},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (path == NULL || id == 0)
        return tl_error(self, "--config and --id are needed; try `cairn node --help`");
    if (ready_fd != UINT64_MAX && !may_announce(ready_fd))
        return tl_error(self, "--ready-fd: descriptor %" PRIu64 " is not open for writing; "
            "open it, as in `--ready-fd 3 3> ready`", ready_fd);
    cn_env_system_log_level(verbose ? CN_LOG_DEBUG : quiet ? CN_LOG_WARNING : CN_LOG_INFO);
    rc = txn_config_load(path, &n.config);
    if (rc != 0)
        return tl_cairn_error(self, rc, false);
    rc = serve(&n, id, ready_fd);
    close_all(&n);
    return rc;
}

const struct tl_command cmd_node = {
    .name = "node",
    .args = "--config FILE --id N [--wait S] [--ready-fd FD] [--quiet | --verbose]",
    .summary = "Run a participant node: recover its pool, then serve until SIGTERM.",
    .example = "  cairn node --config /dev/shm/bank/cairn.conf --id 1\n"
               "  (makes the pool when there is none; Ctrl-C closes it cleanly)\n",
    .run = run,
};
