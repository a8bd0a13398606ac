/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_host.c: participant nodes in threads of this process. A thread has one node or several, each
 * of which it polls in turn: where processors are fewer than nodes that costs less than threads
 * that displace each other. A thread of one node sleeps as a node's process does. One of several
 * lingers likewise after the last work of any of them, and then naps a little at a time: it never
 * arms, so nobody wakes it.
 */
#include "tools/bench/bn_nodes.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "recovery/rec_node.h"

#define POOL_WAIT_MS 2000u
#define NAP_US 100u
#define TICK_US 200u
#define OPEN_TIMEOUT_US 60000000u

struct host_thread {
    struct bn_host *host;
    pthread_t thread;
    bool running;
    uint32_t first, count; /* its nodes */
    int rc;                /* of opening them */
    char text[512];
    volatile int opened, stop;
    volatile int woken; /* to see `stop`; until then its nodes stay open */
    /* Who wants figures raises `asked`; the thread answers into `usage` and sets `answered`. */
    volatile uint32_t asked, answered;
    struct bn_usage usage;
    struct cn_env env; /* the system's, and it counts fences */
    uint64_t fences;
    struct rd_fabric *fabric;
    struct rec_node *node[CAIRN_NODES_MAX];
};

struct bn_host {
    const struct txn_config *config;
    uint32_t thread_count;
    struct host_thread thread[CAIRN_NODES_MAX];
};

static uint64_t now_ns(void)
{
    return cn_now_ns(cn_env_system());
}

/* ---- a thread ---- */

/* Every fence passes its step (pm_fence()); of what else a node passes, only one comes often. */
static void count_step(void *arg, enum cn_step step)
{
    struct host_thread *t = arg;

    t->fences += step != CN_STEP_g_locked;
}

static int open_node(struct host_thread *t, uint32_t i)
{
    const struct txn_config *config = t->host->config;
    const struct txn_config_node *at = &config->node[t->first + i];
    struct pm_pool *pool = NULL;

    int rc = pm_pool_create(
        at->pool, at->pool_size, &config->geometry, &config->cluster, at->id, &t->env);
    if (rc == 0)
        rc = pm_pool_open(at->pool, PM_OPEN_OWNER, POOL_WAIT_MS, &t->env, &pool);
    if (rc != 0)
        return rc;
    const struct rec_node_options options = {
        .config = config,
        .node = at->id,
        .fabric = t->fabric,
        .env = &t->env,
        .pool = pool,
    };
    rc = rec_node_open(&options, &t->node[i]);
    if (rc != 0)
        pm_pool_close(&pool);
    return rc;
}

static int open_nodes(struct host_thread *t)
{
    int rc = txn_config_open_fabric(t->host->config, &t->fabric);

    for (uint32_t i = 0; i < t->count && rc == 0; i++)
        rc = open_node(t, i);
    return rc;
}

static void answer(struct host_thread *t)
{
    struct bn_usage sum = {.counters_known = true, .fences = t->fences};

    for (uint32_t i = 0; i < t->count; i++) {
        struct rec_node_stats s;
        rec_node_stats(t->node[i], &s);
        sum.applied += s.applied;
        sum.sleeps += s.sleeps;
        sum.wakeups += s.fabric.wakeups;
        sum.syscalls += s.fabric.syscalls;
        sum.messages += s.fabric.messages_sent + s.fabric.messages_received;
    }
    t->usage = sum;
    __atomic_store_n(&t->answered, __atomic_load_n(&t->asked, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static void serve_one(struct host_thread *t)
{
    while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
        rec_node_rest(t->node[0], rec_node_poll(t->node[0]), UINT64_MAX);
        if (CN_UNLIKELY(t->answered != __atomic_load_n(&t->asked, __ATOMIC_RELAXED)))
            answer(t);
    }
}

static void serve_several(struct host_thread *t)
{
    const struct cn_pace *pace = &t->host->config->pace;
    uint64_t worked_ns = now_ns();

    while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
        uint32_t done = 0;
        for (uint32_t i = 0; i < t->count; i++)
            done += rec_node_poll(t->node[i]);
        if (CN_UNLIKELY(t->answered != __atomic_load_n(&t->asked, __ATOMIC_RELAXED)))
            answer(t);
        if (done != 0)
            worked_ns = now_ns();
        else if (cn_pace_may_sleep(
                     pace, 0, 1, now_ns() - worked_ns >= (uint64_t)pace->linger_us * 1000))
            (void)usleep(NAP_US);
        else if (pace->mode == CN_PACE_ADAPTIVE)
            (void)sched_yield();
    }
}

static void *run_thread(void *arg)
{
    struct host_thread *t = arg;

    t->rc = open_nodes(t);
    if (t->rc != 0)
        cn_error_copy(t->text, sizeof(t->text));
    __atomic_store_n(&t->opened, 1, __ATOMIC_RELEASE);
    if (t->rc == 0 && t->count == 1)
        serve_one(t);
    else if (t->rc == 0)
        serve_several(t);
    while (!__atomic_load_n(&t->woken, __ATOMIC_ACQUIRE))
        (void)usleep(TICK_US);
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->node[i] != NULL)
            rec_node_close(&t->node[i]);
    }
    if (t->fabric != NULL)
        rd_fabric_delete(t->fabric);
    return NULL;
}

/* ---- all ---- */

static int start_thread(struct host_thread *t)
{
    int rc = pthread_create(&t->thread, NULL, run_thread, t);

    if (rc != 0)
        return cn_fail(-rc, "cannot start a thread for nodes: %s", strerror(rc));
    t->running = true;
    return 0;
}

static int await_open(const struct host_thread *t)
{
    for (uint64_t waited = 0; !__atomic_load_n(&t->opened, __ATOMIC_ACQUIRE); waited += TICK_US) {
        if (waited >= OPEN_TIMEOUT_US)
            return cn_fail(CAIRN_E_TIMEOUT, "the nodes do not become ready");
        if (tl_interrupted)
            return cn_fail(-EINTR, "interrupted");
        (void)usleep(TICK_US);
    }
    return t->rc == 0 ? 0 : cn_fail(t->rc, "%s", t->text);
}

int bn_host_start(const struct txn_config *config, uint32_t threads, struct bn_host **ret_host)
{
    struct bn_host *host = calloc(1, sizeof(*host));
    uint32_t nodes = config->node_count, at = 0;
    int rc = 0;

    if (host == NULL)
        return cn_fail(-ENOMEM, "no memory for nodes");
    *ret_host = host;
    host->config = config;
    host->thread_count = threads == 0 || threads > nodes ? nodes : threads;
    for (uint32_t i = 0; i < host->thread_count && rc == 0; i++) {
        struct host_thread *t = &host->thread[i];
        t->host = host;
        t->env = *cn_env_system();
        t->env.arg = t;
        t->env.step = count_step;
        t->first = at;
        t->count = (nodes - at) / (host->thread_count - i);
        at += t->count;
        rc = start_thread(t);
    }
    for (uint32_t i = 0; i < host->thread_count && rc == 0; i++)
        rc = await_open(&host->thread[i]);
    return rc;
}

void bn_host_stop(struct bn_host **host_ptr)
{
    struct bn_host *host = *host_ptr;

    for (uint32_t i = 0; i < host->thread_count; i++) {
        struct host_thread *t = &host->thread[i];
        __atomic_store_n(&t->stop, 1, __ATOMIC_RELEASE);
        if (t->running && __atomic_load_n(&t->opened, __ATOMIC_ACQUIRE) && t->rc == 0)
            rec_node_wake(t->node[0]);
        __atomic_store_n(&t->woken, 1, __ATOMIC_RELEASE);
    }
    for (uint32_t i = 0; i < host->thread_count; i++) {
        if (host->thread[i].running)
            (void)pthread_join(host->thread[i].thread, NULL);
    }
    free(host);
    *host_ptr = NULL;
}

static void ask(struct host_thread *t)
{
    uint32_t number = t->asked + 1;

    __atomic_store_n(&t->asked, number, __ATOMIC_RELEASE);
    rec_node_wake(t->node[0]);
    while (__atomic_load_n(&t->answered, __ATOMIC_ACQUIRE) != number)
        (void)usleep(TICK_US);
}

static uint64_t thread_cpu_ns(pthread_t thread)
{
    struct timespec t = {0, 0};
    clockid_t clock;

    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void bn_host_usage(struct bn_host *host, struct bn_usage *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->cpu_known = ret->counters_known = true;
    for (uint32_t i = 0; i < host->thread_count; i++) {
        struct host_thread *t = &host->thread[i];
        ask(t);
        ret->cpu_ns += thread_cpu_ns(t->thread);
        ret->applied += t->usage.applied;
        ret->fences += t->usage.fences;
        ret->sleeps += t->usage.sleeps;
        ret->wakeups += t->usage.wakeups;
        ret->syscalls += t->usage.syscalls;
        ret->messages += t->usage.messages;
    }
}
