/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * restart_log: what opening a pool depends on: the log that is not applied. A node is stopped
 * (SIGSTOP) while coordinators go on committing into its rings, which needs nothing of its CPU;
 * it is killed and started again. Once with almost nothing in the rings, once with full ones, in
 * turn, several times. Asserted: exactly what was acknowledged (and at most what was not told) is
 * replayed; every item has its new value; the shortest scan + replay of the full rings takes longer
 * than that of the empty ones. No absolute time, and no ratio either: a full ring differs by
 * a factor, noise on a busy machine does not.
 * Prints one JSON object; exit 0, 1 (not so), 2 (does not run).
 */
#include "tests/torture/tt_items.h"

#include <signal.h>
#include <sys/wait.h>

#define ROUNDS 4u
#define WRITERS 4u
#define WINDOW 8192u
#define EMPTY 2u /* commits of each writer of an "empty" ring */
#define VALUE_SIZE 200u

struct writer {
    struct tt_cluster *cluster;
    uint32_t number;
    uint32_t *commits; /* how many to make, of keys that are its own; shared page */
};

/* scratch[] of the shared page, by writer */
enum { READY = 0, GO = 1, DONE = 4, ACKNOWLEDGED = 8 };

static uint64_t key_of(uint32_t writer, uint32_t i)
{
    return (uint64_t)(writer + 1) << 32 | i;
}

static void fill(uint8_t value[VALUE_SIZE], uint64_t key, uint64_t round)
{
    memset(value, (int)(round & 0xff), VALUE_SIZE);
    memcpy(value, &key, sizeof(key));
    memcpy(value + sizeof(key), &round, sizeof(round));
}

struct put {
    uint64_t key, round;
};

static int put_one(struct cairn_tx *tx, void *arg)
{
    const struct put *p = arg;
    uint8_t value[VALUE_SIZE];

    fill(value, p->key, p->round);
    return cairn_put(tx, TT_TABLE_LISTS, &p->key, sizeof(p->key), value, sizeof(value));
}

/* A child: keys are warm (written by this context in the round before), then the node is stopped
 * and each is committed once more, by no more than one try. */
static int run_writer(void *arg)
{
    const struct writer *w = arg;
    uint64_t *scratch = w->cluster->shared->scratch;
    const uint32_t count = *w->commits;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    enum cairn_outcome outcome = CAIRN_OUTCOME_COMMITTED;

    if (cairn_open(w->cluster->config, NULL, &cluster) != 0 || cairn_ctx_open(cluster, &ctx) != 0)
        return 4;
    for (uint32_t i = 0; i < count; i++) {
        struct put p = {key_of(w->number, i), 0};
        if (cairn_run(ctx, put_one, &p, 20000, NULL) != 0)
            return 5;
    }
    __atomic_fetch_add(&scratch[READY], 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&scratch[GO], __ATOMIC_SEQ_CST) == 0)
        tt_sleep_us(500);
    for (uint32_t i = 0; i < count && outcome == CAIRN_OUTCOME_COMMITTED; i++) {
        struct put p = {key_of(w->number, i), 1};
        struct cairn_tx *tx;
        int r = cairn_begin(ctx, &tx);
        if (r == 0)
            r = put_one(tx, &p);
        if (r == 0)
            r = cairn_commit(tx, &outcome);
        if (r != 0 || outcome != CAIRN_OUTCOME_COMMITTED) {
            (void)fprintf(stderr, "commit %u of %u: %s, %s: %s\n", i, count, cairn_error_name(r),
                cairn_outcome_name(outcome), cairn_last_error());
            break;
        }
        scratch[ACKNOWLEDGED + w->number]++;
    }
    __atomic_fetch_add(&scratch[DONE], 1, __ATOMIC_SEQ_CST);
    for (;;) /* holds its rings until it is killed, as a coordinator that lives does */
        tt_sleep_us(100000);
}

static bool await(uint64_t *counter, uint64_t value)
{
    const uint64_t end = tt_now_ns() + UINT64_C(60000000000);

    while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < value && tt_now_ns() < end)
        tt_sleep_us(1000);
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST) >= value;
}

struct load {
    struct tt_cluster *cluster;
    uint32_t count;
};

/* A child: every acknowledged value is there after the restart. */
static int run_check(void *arg)
{
    const struct load *load = arg;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    uint32_t wrong = 0;

    if (cairn_open(load->cluster->config, NULL, &cluster) != 0 ||
        cairn_ctx_open(cluster, &ctx) != 0)
        return 4;
    for (uint32_t w = 0; w < WRITERS; w++) {
        for (uint32_t i = 0; i < load->cluster->shared->scratch[ACKNOWLEDGED + w]; i++) {
            uint8_t value[VALUE_SIZE], want[VALUE_SIZE];
            const uint64_t key = key_of(w, i);
            struct cairn_tx *tx;
            size_t size = 0;
            if (cairn_begin(ctx, &tx) != 0)
                return 5;
            fill(want, key, 1);
            int r = cairn_get(tx, TT_TABLE_LISTS, &key, sizeof(key), value, sizeof(value), &size);
            wrong += r != 0 || size != VALUE_SIZE || memcmp(value, want, VALUE_SIZE) != 0;
            cairn_abort(tx);
        }
    }
    if (wrong != 0)
        (void)fprintf(stderr, "%u acknowledged values are not there\n", wrong);
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return wrong != 0;
}

struct result {
    uint64_t acknowledged, replayed, open_ns, work_ns; /* of the shortest start */
    bool exact;
};

static bool start_writers(struct tt_cluster *c, uint32_t *commits, pid_t pid[WRITERS])
{
    memset(c->shared->scratch, 0, sizeof(c->shared->scratch));
    for (uint32_t i = 0; i < WRITERS; i++) {
        struct writer w = {c, i, commits};
        pid[i] = tt_fork(c, "writer.log", run_writer, &w);
    }
    return await(&c->shared->scratch[READY], WRITERS);
}

static void end_writers(pid_t pid[WRITERS])
{
    for (uint32_t i = 0; i < WRITERS; i++) {
        (void)kill(pid[i], SIGKILL);
        (void)waitpid(pid[i], NULL, 0);
    }
}

/* One start with `commits` records of each writer in the rings. False: it does not run. */
static bool run_round(struct tt_cluster *c, uint32_t commits, struct result *ret)
{
    uint64_t *scratch = c->shared->scratch, acknowledged = 0;
    const struct rec_node_stats *stats = &c->shared->node[0].stats;
    struct load load = {c, commits};
    pid_t pid[WRITERS];
    bool good = start_writers(c, &commits, pid) && tt_cluster_await_quiet(c, 20000) &&
        kill(c->node_pid[0], SIGSTOP) == 0;

    if (good) {
        __atomic_store_n(&scratch[GO], 1, __ATOMIC_SEQ_CST);
        good = await(&scratch[DONE], WRITERS);
    }
    tt_node_kill(c, 0);
    end_writers(pid);
    for (uint32_t i = 0; i < WRITERS; i++)
        acknowledged += scratch[ACKNOWLEDGED + i];
    tt_node_start(c, 0);
    if (!good || !tt_node_await(c, 0, 60000))
        return false;
    /* Before anything moves: what the start itself said. */
    const uint64_t replayed = stats->records_replayed, open_ns = stats->open_ns;
    const uint64_t work_ns = stats->scan_ns + stats->replay_ns;
    ret->exact = ret->exact && replayed == acknowledged &&
        acknowledged == (uint64_t)commits * WRITERS;
    if (ret->work_ns == 0 || work_ns < ret->work_ns)
        *ret = (struct result){acknowledged, replayed, open_ns, work_ns, ret->exact};
    return tt_wait(tt_fork(c, "check.log", run_check, &load), 60000) == 0 &&
        tt_cluster_await_quiet(c, 20000);
}

static void print_result(const char *name, const struct result *r)
{
    printf("\"%s\":{\"acknowledged\":%llu,\"replayed\":%llu,\"open_ms\":%.3f,"
           "\"scan_and_replay_ms\":%.3f},",
        name, (unsigned long long)r->acknowledged, (unsigned long long)r->replayed,
        (double)r->open_ns / 1e6, (double)r->work_ns / 1e6);
}

int main(void)
{
    const struct tt_options options = {.nodes = 1,
        .pool_size = "256M",
        .geometry = "slots = 6; window = 8192; ring_size = \"4M\";"};
    struct result empty = {.exact = true}, full = {.exact = true};
    struct tt_cluster c;
    bool good;

    if (tt_cluster_make(&c, &options) != 0)
        return 2;
    good = tt_cluster_start(&c, 20000);
    for (uint32_t i = 0; i < ROUNDS && good; i++)
        good = run_round(&c, EMPTY, &empty) && run_round(&c, WINDOW, &full);
    good = good && tt_cluster_stop(&c, 10000) && tt_cluster_check_pools(&c) == 0;
    if (!good) {
        (void)fprintf(stderr, "restart_log: does not run: see %s\n", c.dir);
        tt_node_kill(&c, 0);
        return 2;
    }
    tt_cluster_remove(&c);
    const bool right = empty.exact && full.exact && empty.work_ns < full.work_ns;
    printf("{");
    print_result("empty", &empty);
    print_result("full", &full);
    printf("\"us_per_record\":%.3f,\"replayed_is_acknowledged\":%s,\"verdict\":%s}\n",
        (double)(full.work_ns - empty.work_ns) / 1e3 / (double)full.replayed,
        empty.exact && full.exact ? "true" : "false", right ? "true" : "false");
    return right ? 0 : 1;
}
