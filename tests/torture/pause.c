/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pause: a coordinator is stopped (SIGSTOP) in the middle of a commit: before its first and before
 * its second record is written (c_log), with records posted and flushes not awaited (c_logged),
 * and committed but not marked (c_mark). Meanwhile another one meets its locks, gets them freed
 * (R13) and commits other values. Then the first goes on: it must have no effect on data, and what
 * it is told must agree with the data.
 * Exit 0: so it is; 1: not.
 */
#include "tests/torture/tt_cluster.h"

#include "txn/txn_cluster.h"

#include <signal.h>
#include <sys/wait.h>

#define OLD 1u
#define ZOMBIE 1000u
#define HEIR_ADDS 7u
#define KEYS 2u

/* scratch[] of the shared page */
enum { OUTCOME, OUTCOME_ERROR, AFTER, SEEN, HEIR_NS = SEEN + KEYS, FINAL, END_ = FINAL + KEYS };

struct scene {
    const char *name;
    enum cn_step step;
    uint32_t occurrence; /* of the step, from 1 */
    bool must_abort, must_commit;
};
static const struct scene scenes[] = {
    {"before the first record", CN_STEP_c_log, 1, true, false},
    {"before the second record", CN_STEP_c_log, 2, true, false},
    {"at flush", CN_STEP_c_logged, 1, false, false},
    {"before the first mark", CN_STEP_c_mark, 1, false, true},
    {"before the second mark", CN_STEP_c_mark, 2, false, true},
};

struct play {
    struct tt_cluster *cluster;
    const struct scene *scene;
    uint64_t key[KEYS]; /* on different nodes */
};

/* ---- the coordinator that is stopped ---- */

struct stopper {
    const struct scene *scene;
    uint32_t seen;
    bool armed;
};

static void stop_at(void *arg, enum cn_step step)
{
    struct stopper *s = arg;

    if (s->armed && step == s->scene->step && ++s->seen == s->scene->occurrence) {
        s->armed = false;
        (void)raise(SIGSTOP);
    }
}

static struct cn_env stopping_env(struct stopper *s)
{
    struct cn_env env = *cn_env_system();

    CAIRN_ASSERT(env.arg == NULL); /* the system's functions do not look at it */
    env.arg = s;
    env.step = stop_at;
    return env;
}

static int write_zombie(struct cairn_tx *tx, const struct play *p)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t value;
        size_t size;
        int r = cairn_get_for_update(
            tx, TT_TABLE_LISTS, &p->key[i], sizeof(p->key[i]), &value, sizeof(value), &size);
        value = ZOMBIE;
        if (r == 0)
            r = cairn_put(
                tx, TT_TABLE_LISTS, &p->key[i], sizeof(p->key[i]), &value, sizeof(value));
        if (r != 0)
            return r;
    }
    return 0;
}

/* What the commit says, made a verdict where it is UNKNOWN. */
static enum cairn_outcome judge(struct cairn_ctx *ctx, struct cairn_tx *tx, uint64_t *scratch)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    char token[CAIRN_TOKEN_SIZE];
    int r = cairn_commit(tx, &outcome);

    (void)fprintf(stderr, "commit: %d, %s\n", r, cairn_outcome_name(outcome));
    scratch[OUTCOME_ERROR] = (uint64_t)(int64_t)r;
    if (r != 0)
        return CAIRN_OUTCOME_ABORTED;
    if (outcome != CAIRN_OUTCOME_UNKNOWN)
        return outcome;
    r = cairn_ctx_token(ctx, token);
    for (uint32_t i = 0; i < 100 && r == 0; i++) {
        r = cairn_resolve(ctx, token, &outcome);
        (void)fprintf(stderr, "resolve: %d, %s\n", r, cairn_outcome_name(outcome));
        if (r == 0)
            return outcome;
        tt_sleep_us(50000);
        r = 0;
    }
    return CAIRN_OUTCOME_UNKNOWN;
}

static int write_own(struct cairn_tx *tx, void *arg)
{
    const uint64_t key = 777777, value = 1;

    (void)arg;
    return cairn_put(tx, TT_TABLE_LISTS, &key, sizeof(key), &value, sizeof(value));
}

static int run_zombie(void *arg)
{
    const struct play *p = arg;
    struct stopper stopper = {.scene = p->scene};
    const struct cn_env env = stopping_env(&stopper);
    uint64_t *scratch = p->cluster->shared->scratch;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    struct cairn_tx *tx;

    if (cairn_open(p->cluster->config, NULL, &cluster) != 0 ||
        txn_ctx_open(cluster, &env, &ctx) != 0 || cairn_begin(ctx, &tx) != 0 ||
        write_zombie(tx, p) != 0) {
        (void)fprintf(stderr, "the zombie does not begin: %s\n", cairn_last_error());
        return 4;
    }
    stopper.armed = true;
    scratch[OUTCOME] = judge(ctx, tx, scratch);
    /* It is as good as new afterwards. */
    const int r = cairn_run(ctx, write_own, NULL, 10000, NULL);
    scratch[AFTER] = r == 0;
    if (r != 0)
        (void)fprintf(stderr, "afterwards: %s: %s\n", cairn_error_name(r), cairn_last_error());
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return stopper.armed ? 5 : 0;
}

/* ---- the others ---- */

struct sums {
    const struct play *play;
    uint64_t add, seen[KEYS];
};

/* Reads both keys and, if add is not 0, adds to both. */
static int add_to_both(struct cairn_tx *tx, void *arg)
{
    struct sums *s = arg;

    for (uint32_t i = 0; i < KEYS; i++) {
        const uint64_t *key = &s->play->key[i];
        size_t size;
        int r = cairn_get(
            tx, TT_TABLE_LISTS, key, sizeof(*key), &s->seen[i], sizeof(s->seen[i]), &size);
        const uint64_t sum = s->seen[i] + s->add;
        if (r == 0 && s->add != 0)
            r = cairn_put(tx, TT_TABLE_LISTS, key, sizeof(*key), &sum, sizeof(sum));
        if (r != 0)
            return r;
    }
    return 0;
}

static int set_both(struct cairn_tx *tx, void *arg)
{
    const struct play *p = arg;
    const uint64_t value = OLD;
    int r = 0;

    for (uint32_t i = 0; i < KEYS && r == 0; i++)
        r = cairn_put(tx, TT_TABLE_LISTS, &p->key[i], sizeof(p->key[i]), &value, sizeof(value));
    return r;
}

static int run_one(const struct play *p, cairn_tx_fn fn, void *arg)
{
    const uint64_t end = tt_now_ns() + UINT64_C(20000000000);
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    int r;

    if (cairn_open(p->cluster->config, NULL, &cluster) != 0 || cairn_ctx_open(cluster, &ctx) != 0)
        return 4;
    do {
        r = cairn_run(ctx, fn, arg, 10000, NULL);
        if (r != 0)
            (void)fprintf(stderr, "%s: %s\n", cairn_error_name(r), cairn_last_error());
    } while (r != 0 && tt_now_ns() < end);
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return r != 0;
}

static int run_setter(void *arg)
{
    return run_one(arg, set_both, arg);
}

static int run_heir(void *arg)
{
    struct sums s = {.play = arg, .add = HEIR_ADDS};
    uint64_t *scratch = s.play->cluster->shared->scratch;
    const uint64_t start = tt_now_ns();
    const int r = run_one(arg, add_to_both, &s);

    scratch[HEIR_NS] = tt_now_ns() - start;
    memcpy(scratch + SEEN, s.seen, sizeof(s.seen));
    return r;
}

static int run_reader(void *arg)
{
    struct sums s = {.play = arg};
    const int r = run_one(arg, add_to_both, &s);

    memcpy(s.play->cluster->shared->scratch + FINAL, s.seen, sizeof(s.seen));
    return r;
}

/* ---- judgement ---- */

static uint32_t expect(const struct scene *scene, bool good, const char *what)
{
    if (!good)
        (void)fprintf(stderr, "%s: WRONG: %s\n", scene->name, what);
    return good ? 0 : 1;
}

static uint32_t judge_scene(const struct play *p)
{
    const uint64_t *s = p->cluster->shared->scratch;
    const struct scene *scene = p->scene;
    const bool committed = s[OUTCOME] == CAIRN_OUTCOME_COMMITTED;
    const uint64_t value = committed ? ZOMBIE : OLD;
    uint32_t wrong = 0;

    wrong += expect(scene, committed || s[OUTCOME] == CAIRN_OUTCOME_ABORTED, "no verdict");
    wrong += expect(scene, !scene->must_abort || !committed, "must have aborted");
    wrong += expect(scene, !scene->must_commit || committed, "must have committed");
    for (uint32_t i = 0; i < KEYS; i++) {
        wrong += expect(scene, s[SEEN + i] == value, "the heir saw what the verdict denies");
        wrong +=
            expect(scene, s[FINAL + i] == value + HEIR_ADDS, "the final value is not the heir's");
    }
    wrong += expect(scene, s[HEIR_NS] < UINT64_C(10000000000), "the locks were freed too late");
    wrong += expect(scene, s[AFTER] == 1, "the resumed coordinator cannot work any more");
    printf("{\"pause\":\"%s\",\"outcome\":\"%s\",\"seen\":[%llu,%llu],\"final\":[%llu,%llu],"
           "\"heir_ms\":%.1f,\"wrong\":%u}\n",
        scene->name, cairn_outcome_name((enum cairn_outcome)s[OUTCOME]),
        (unsigned long long)s[SEEN], (unsigned long long)s[SEEN + 1], (unsigned long long)s[FINAL],
        (unsigned long long)s[FINAL + 1], (double)s[HEIR_NS] / 1e6, wrong);
    return wrong;
}

static uint32_t play_scene(struct play *p)
{
    struct tt_cluster *c = p->cluster;
    int status;
    pid_t pid;

    memset(c->shared->scratch, 0, sizeof(c->shared->scratch));
    if (tt_wait(tt_fork(c, "setter.log", run_setter, p), 30000) != 0)
        return expect(p->scene, false, "set-up failed (setter.log)");
    pid = tt_fork(c, "zombie.log", run_zombie, p);
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        return expect(p->scene, false, "it did not stop at its step (zombie.log)");
    const int heir = tt_wait(tt_fork(c, "heir.log", run_heir, p), 40000);
    (void)kill(pid, SIGCONT);
    if (heir != 0)
        return expect(p->scene, false, "the heir failed (heir.log)");
    if (tt_wait(pid, 30000) != 0)
        return expect(p->scene, false, "it failed when it went on (zombie.log)");
    if (tt_wait(tt_fork(c, "reader.log", run_reader, p), 30000) != 0)
        return expect(p->scene, false, "the final read failed (reader.log)");
    return judge_scene(p);
}

/* Two keys of different shards. */
static int choose_keys(struct play *p)
{
    struct txn_config *config;
    uint32_t shard;

    if (txn_config_load(p->cluster->config, &config) != 0)
        return -1;
    p->key[0] = 1;
    shard = txn_config_shard(config, TT_TABLE_LISTS, &p->key[0], sizeof(p->key[0]));
    for (p->key[1] = 2;
         txn_config_shard(config, TT_TABLE_LISTS, &p->key[1], sizeof(p->key[1])) == shard;)
        p->key[1]++;
    txn_config_free(&config);
    return 0;
}

int main(void)
{
    static const struct tt_options options = {
        .nodes = 2,
        .pool_size = "128M",
        .geometry =
            "slots = 32; ring_size = \"64k\"; window = 64; lease_ms = 300; resolve_ms = 200;",
    };
    struct tt_cluster cluster;
    struct play play = {.cluster = &cluster};
    uint32_t wrong = 0;

    if (tt_cluster_make(&cluster, &options) != 0)
        return 2;
    if (!tt_cluster_start(&cluster, 20000) || choose_keys(&play) != 0) {
        (void)fprintf(stderr, "the cluster does not start: see %s\n", cluster.dir);
        return 2;
    }
    for (size_t i = 0; i < CN_ARRAY_SIZE(scenes); i++) {
        play.scene = &scenes[i];
        wrong += play_scene(&play);
    }
    if (!tt_cluster_await_quiet(&cluster, 20000) || !tt_cluster_stop(&cluster, 10000)) {
        (void)fprintf(stderr, "the nodes do not become quiet or do not stop\n");
        wrong++;
    } else {
        wrong += tt_cluster_check_pools(&cluster);
    }
    printf("pause: %s\n", wrong == 0 ? "all right" : "WRONG");
    if (wrong == 0)
        tt_cluster_remove(&cluster);
    else
        printf("pause: kept in %s\n", cluster.dir);
    return wrong != 0;
}
