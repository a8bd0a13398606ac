/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_cluster.c: see tt_cluster.h. A node is a child that opens its pool and runs the node in its
 * own loop, so that it can publish whether it is quiet.
 */
#include "tests/torture/tt_cluster.h"

#include "pmem/pm_pool.h"
#include "tests/support/ts_fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPENER_WAIT_MS 5000u
#define PUBLISH_NS 5000000u

uint64_t tt_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void tt_sleep_us(uint64_t us)
{
    const struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    (void)nanosleep(&ts, NULL);
}

uint64_t tt_random64(struct tt_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(random->state);
}

uint32_t tt_random_below(struct tt_random *random, uint32_t n)
{
    return (uint32_t)(tt_random64(random) % n);
}

/* ---- making ---- */

static void write_node(FILE *out, const struct txn_config_node *n, const char *size, bool last)
{
    (void)fprintf(out, "  { id = %u; address = \"%s\"; pool = \"%s\"; persistence = \"%s\"; ",
        n->id, n->address, n->pool, txn_persistence_name(n->persistence));
    if (n->pool_size != 0)
        (void)fprintf(out, "size = \"%s\"; ", size);
    (void)fprintf(out, "}%s\n", last ? "" : ",");
}

static int write_config(const struct tt_cluster *c, const struct tt_options *options)
{
    struct txn_config *fabric = calloc(1, sizeof(*fabric));
    FILE *out = fopen(c->config, "we");

    CAIRN_ASSERT(fabric != NULL);
    if (out == NULL) {
        free(fabric);
        return -1;
    }
    ts_fabric_options(fabric);
    (void)fprintf(out,
        "cluster = \"0b0e5c1e-5a17-4e0b-9c1d-3f6c5b2a7d10\";\nfabric = \"%s\";\nnodes = (\n",
        fabric->fabric);
    for (uint32_t i = 0; i < c->nodes; i++) {
        struct txn_config_node node = {.id = (uint16_t)(i + 1)};
        ts_fabric_node(c->dir, i, 1, &node);
        write_node(out, &node, options->pool_size, i + 1 == c->nodes);
    }
    (void)fprintf(out,
        ");\ntables = ( { id = %u; name = \"lists\"; }, { id = %u; name = \"bank\"; } );\n",
        TT_TABLE_LISTS, TT_TABLE_BANK);
    (void)fprintf(out, "fabric_options = { atomics = \"%s\"; ",
        fabric->fabric_config.message_atomics ? "message" : "nic");
    if (fabric->fabric_config.queue_pairs != 0)
        (void)fprintf(out, "queue_pairs = %u; ", fabric->fabric_config.queue_pairs);
    (void)fprintf(out, "};\noptions = { %s };\n", options->geometry);
    free(fabric);
    return fclose(out);
}

static int make_pools(const struct tt_cluster *c)
{
    struct txn_config *config;
    int r = txn_config_load(c->config, &config);

    if (r != 0)
        return r;
    for (uint32_t i = 0; i < config->node_count && r == 0; i++)
        r = ts_fabric_make_pool(config, &config->node[i], cn_env_system());
    txn_config_free(&config);
    return r;
}

int tt_cluster_make(struct tt_cluster *c, const struct tt_options *options)
{
    memset(c, 0, sizeof(*c));
    c->nodes = options->nodes;
    CAIRN_ASSERT(c->nodes <= TT_NODES_MAX);
    (void)snprintf(c->dir, sizeof(c->dir), "/dev/shm/cairn-torture-XXXXXX");
    if (mkdtemp(c->dir) == NULL) {
        (void)fprintf(stderr, "%s: cannot make the folder: %s\n", c->dir, strerror(errno));
        return -1;
    }
    (void)snprintf(c->config, sizeof(c->config), "%s/cairn.conf", c->dir);
    c->shared =
        mmap(NULL, sizeof(*c->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->shared == MAP_FAILED || write_config(c, options) != 0) {
        (void)fprintf(stderr, "%s: cannot set up: %s\n", c->dir, strerror(errno));
        return -1;
    }
    if (make_pools(c) != 0) {
        (void)fprintf(stderr, "cannot make the pools: %s\n", cairn_last_error());
        return -1;
    }
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void tt_cluster_remove(struct tt_cluster *c)
{
    (void)nftw(c->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    (void)munmap(c->shared, sizeof(*c->shared));
    c->shared = NULL;
}

/* ---- children ---- */

pid_t tt_fork(struct tt_cluster *c, const char *log, int (*fn)(void *arg), void *arg)
{
    const pid_t parent = getpid();
    char path[400];

    (void)fflush(NULL);
    const pid_t pid = fork();
    CAIRN_ASSERT(pid >= 0);
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(3);
    (void)snprintf(path, sizeof(path), "%s/%s", c->dir, log);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0)
        (void)dup2(fd, STDERR_FILENO);
    const int r = fn(arg);
    (void)fflush(NULL);
    _exit(r);
}

int tt_wait(pid_t pid, uint32_t timeout_ms)
{
    const uint64_t end = tt_now_ns() + timeout_ms * UINT64_C(1000000);
    bool late = false;
    int status;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (tt_now_ns() > end) {
            late = true;
            (void)kill(pid, SIGKILL);
            if (waitpid(pid, &status, 0) != pid)
                return -1;
            break;
        }
        tt_sleep_us(2000);
    }
    if (late)
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- faults at steps ---- */

static bool strikes(struct tt_stepper *s, uint32_t odds)
{
    return odds != 0 && tt_random_below(&s->random, odds) == 0;
}

static void pass_step(void *arg, enum cn_step step)
{
    struct tt_stepper *s = arg;
    const bool rare = step >= CN_STEP_s_handout;
    /* Between the first record and the last mark it is that the outcome hangs in the air. */
    const uint32_t often = step >= CN_STEP_c_log && step <= CN_STEP_c_mark ? 10 : 1;

    /* Before the look at the faults: who clears them waits for those that may have seen them. */
    __atomic_fetch_add(s->striking, 1, __ATOMIC_SEQ_CST);
    if (strikes(s, rare ? s->faults->rare_kill : s->faults->kill / often)) {
        __atomic_fetch_add(&s->shared->step_kills, 1, __ATOMIC_RELAXED);
        (void)raise(SIGKILL);
    }
    if (!rare && strikes(s, s->faults->stop / often)) {
        __atomic_fetch_add(&s->shared->step_stops, 1, __ATOMIC_RELAXED);
        (void)raise(SIGSTOP);
    }
    __atomic_fetch_sub(s->striking, 1, __ATOMIC_SEQ_CST);
}

void tt_stepper_init(
    struct tt_stepper *s, struct tt_shared *shared, uint32_t actor, uint64_t seed)
{
    CAIRN_ASSERT(actor < 2 * TT_NODES_MAX);
    *s = (struct tt_stepper){
        .shared = shared,
        .faults = actor < TT_NODES_MAX ? &shared->node_faults : &shared->client_faults,
        .striking = &shared->striking[actor],
        .random = {cn_mix64(seed)},
        .env = *cn_env_system(),
    };
    CAIRN_ASSERT(s->env.arg == NULL); /* the system's functions do not look at it */
    s->env.arg = s;
    s->env.step = pass_step;
}

/* ---- a node's process ---- */

static volatile int node_stop; /* set by the signal handler */
static struct rec_node *running;

static void on_term(int signal_)
{
    (void)signal_;
    node_stop = 1;
    if (running != NULL)
        rec_node_wake(running);
}

static void serve(struct rec_node *node, struct tt_node_state *state)
{
    uint64_t next = 0;

    while (!node_stop) {
        const uint32_t done = rec_node_poll(node);
        const uint64_t now = tt_now_ns();
        if (now >= next) {
            next = now + PUBLISH_NS;
            __atomic_store_n(&state->quiet, rec_node_is_quiet(node), __ATOMIC_RELEASE);
            __atomic_fetch_add(&state->turn, 1, __ATOMIC_RELAXED);
            rec_node_stats(node, &state->stats);
        }
        rec_node_rest(node, done, now + 4 * PUBLISH_NS);
    }
}

static int open_node(const struct txn_config *config, uint16_t id, struct rd_fabric *fabric,
    const struct cn_env *env, struct rec_node **ret_node)
{
    const struct txn_config_node *at = txn_config_find_node(config, id);
    struct pm_pool *pool;
    int r = pm_pool_open(at->pool, PM_OPEN_OWNER, OPENER_WAIT_MS, env, &pool);

    if (r != 0)
        return r;
    const struct rec_node_options options = {.config = config, .node = id, .fabric = fabric,
        .env = env, .pool = pool};
    r = rec_node_open(&options, ret_node);
    if (r != 0)
        pm_pool_close(&pool);
    return r;
}

struct node_arg {
    struct tt_cluster *cluster;
    uint32_t at;
};

static int run_node(void *arg)
{
    const struct node_arg *a = arg;
    struct tt_node_state *state = &a->cluster->shared->node[a->at];
    struct sigaction action = {.sa_handler = on_term};
    struct tt_stepper stepper;
    struct txn_config *config;
    struct rd_fabric *fabric;
    struct rec_node *node;

    (void)sigaction(SIGTERM, &action, NULL);
    tt_stepper_init(&stepper, a->cluster->shared, a->at, tt_now_ns() + a->at);
    if (txn_config_load(a->cluster->config, &config) != 0 ||
        txn_config_open_fabric(config, &fabric) != 0 ||
        open_node(config, (uint16_t)(a->at + 1), fabric, &stepper.env, &node) != 0) {
        (void)fprintf(stderr, "node %u does not start: %s\n", a->at + 1, cairn_last_error());
        return 4;
    }
    running = node;
    rec_node_stats(node, &state->stats);
    state->open_ns_max = cn_max64(state->open_ns_max, state->stats.open_ns);
    state->starts++;
    __atomic_store_n(&state->serving, 1, __ATOMIC_RELEASE);
    serve(node, state);
    rec_node_stats(node, &state->stats);
    running = NULL;
    rec_node_close(&node);
    rd_fabric_delete(fabric);
    txn_config_free(&config);
    return 0;
}

void tt_node_start(struct tt_cluster *c, uint32_t at)
{
    struct node_arg arg = {c, at};
    char log[32];

    CAIRN_ASSERT(c->node_pid[at] == 0);
    __atomic_store_n(&c->shared->node[at].serving, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&c->shared->node[at].quiet, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&c->shared->striking[at], 0, __ATOMIC_RELEASE);
    (void)snprintf(log, sizeof(log), "node%u.log", at + 1);
    c->node_pid[at] = tt_fork(c, log, run_node, &arg);
}

bool tt_node_await(struct tt_cluster *c, uint32_t at, uint32_t timeout_ms)
{
    const uint64_t end = tt_now_ns() + timeout_ms * UINT64_C(1000000);
    siginfo_t info = {0};

    while (__atomic_load_n(&c->shared->node[at].serving, __ATOMIC_ACQUIRE) == 0) {
        if (tt_now_ns() > end)
            return false;
        if (waitid(P_PID, (id_t)c->node_pid[at], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0)
            return false;
        tt_sleep_us(1000);
    }
    return true;
}

void tt_node_kill(struct tt_cluster *c, uint32_t at)
{
    if (c->node_pid[at] == 0)
        return;
    (void)kill(c->node_pid[at], SIGKILL);
    (void)waitpid(c->node_pid[at], NULL, 0);
    c->node_pid[at] = 0;
}

bool tt_node_stop(struct tt_cluster *c, uint32_t at, uint32_t timeout_ms)
{
    int r;

    if (c->node_pid[at] == 0)
        return false;
    (void)kill(c->node_pid[at], SIGTERM);
    r = tt_wait(c->node_pid[at], timeout_ms);
    c->node_pid[at] = 0;
    if (r != 0)
        (void)fprintf(stderr, "node %u did not end cleanly: status %d\n", at + 1, r);
    return r == 0;
}

bool tt_cluster_start(struct tt_cluster *c, uint32_t timeout_ms)
{
    bool good = true;

    for (uint32_t i = 0; i < c->nodes; i++)
        tt_node_start(c, i);
    for (uint32_t i = 0; i < c->nodes; i++)
        good = tt_node_await(c, i, timeout_ms) && good;
    return good;
}

/* Quiet, and said again after this call began. */
bool tt_cluster_await_quiet(struct tt_cluster *c, uint32_t timeout_ms)
{
    const uint64_t end = tt_now_ns() + timeout_ms * UINT64_C(1000000);
    uint64_t turn[TT_NODES_MAX];

    for (uint32_t i = 0; i < c->nodes; i++)
        turn[i] = __atomic_load_n(&c->shared->node[i].turn, __ATOMIC_RELAXED) + 1;
    for (;;) {
        bool quiet = true;
        for (uint32_t i = 0; i < c->nodes; i++)
            quiet = quiet && __atomic_load_n(&c->shared->node[i].quiet, __ATOMIC_ACQUIRE) != 0 &&
                    __atomic_load_n(&c->shared->node[i].turn, __ATOMIC_RELAXED) > turn[i];
        if (quiet || tt_now_ns() > end)
            return quiet;
        tt_sleep_us(5000);
    }
}

bool tt_cluster_stop(struct tt_cluster *c, uint32_t timeout_ms)
{
    bool good = true;

    for (uint32_t i = 0; i < c->nodes; i++)
        good = tt_node_stop(c, i, timeout_ms) && good;
    return good;
}
