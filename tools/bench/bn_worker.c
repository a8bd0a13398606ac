/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_worker.c: a coordinator thread: one context, and as many slots as transactions may be in
 * flight. A slot draws a transaction, runs it until it commits or refuses, settles it, and draws
 * the next, until its segment is over; then what is in flight is waited for, but not counted.
 *
 * Latency is from before the first try to the moment the caller is told; drawing and settling are
 * not in it. With --virtual the clock is the thread's own: its processor time, and the waits for
 * the modelled network, which it jumps over (cn_env.h).
 */
#include "tools/bench/bn_drive.h"

#include <errno.h>
#include <time.h>

#include "tools/bench/bn.h"
#include "txn/txn_cluster.h"

#define TX_TIMEOUT_MS 20000u
#define WORKER_STREAM UINT64_C(0x632be59bd9b4e019) /* seeds of workers lie so far apart */

struct worker_slot {
    struct cairn_op op;
    struct bn_worker *worker;
    uint64_t begin_ns;
    uint32_t kind;
    _Alignas(16) uint8_t data[]; /* the load's */
};

struct bn_worker {
    struct bn_run *run;
    const struct bn_load_ops *ops;
    void *ledger;
    pthread_t thread;
    struct cairn_ctx *ctx;
    const struct cn_env *env;
    struct cn_env_virtual virtual_clock; /* with --virtual: `env` is its */
    uint64_t random;
    uint8_t *slots;
    size_t slot_stride;
    int rc;
    char text[512];
    /* of the segment */
    struct bn_segment segment;
    struct bn_point *at; /* NULL: not counted */
    bool over;           /* nothing more is begun, nothing more is counted */
    uint64_t begin_ns, end_ns, left;
    uint64_t ended_ns; /* the last one, if the next has not begun yet */
    uint64_t before[BN_COUNT_COUNT];
    struct bn_point point[]; /* options.point_count of them */
};

/* ---- the clock ---- */

/* In the worker's thread, whose clock it is. */
static void init_clock(struct bn_worker *w)
{
    if (w->run->options.virtual_time)
        cn_env_virtual_init(&w->virtual_clock);
    w->env = w->run->options.virtual_time ? &w->virtual_clock.env : cn_env_system();
}

static uint64_t now_ns(const struct bn_worker *w)
{
    return cn_now_ns(w->env);
}

/* ---- counting ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void look(struct bn_worker *w, uint64_t count[BN_COUNT_COUNT])
{
    struct cairn_stats s;
    struct rd_counters c;

    cairn_ctx_stats(w->ctx, &s);
    count[BN_COUNT_round_trips] = bn_ctx_counters(w->ctx, &c);
    count[BN_COUNT_reads] = c.reads;
    count[BN_COUNT_cas] = c.cas;
    count[BN_COUNT_writes] = c.writes;
    count[BN_COUNT_flushes] = c.flushes;
    count[BN_COUNT_marks] = c.marks;
    count[BN_COUNT_doorbells] = c.doorbells;
    count[BN_COUNT_completions] = c.completions;
    count[BN_COUNT_messages] = c.messages_sent + c.messages_received;
    count[BN_COUNT_bytes_read] = c.bytes_read;
    count[BN_COUNT_bytes_written] = c.bytes_written;
    count[BN_COUNT_wakeups] = c.wakeups;
    count[BN_COUNT_syscalls] = c.syscalls;
    count[BN_COUNT_aborts_lock] = s.aborts_lock;
    count[BN_COUNT_aborts_validate] = s.aborts_validate;
    count[BN_COUNT_aborts_read] = s.aborts_read;
    count[BN_COUNT_aborts_user] = s.aborts_user;
    count[BN_COUNT_aborts_error] = s.aborts_error;
    count[BN_COUNT_cache_hits] = s.cache_hits;
    count[BN_COUNT_cache_misses] = s.cache_misses;
    count[BN_COUNT_cpu_ns] = cpu_ns();
    count[BN_COUNT_took_ns] = 0;
}

static void stop_counting(struct bn_worker *w, uint64_t now)
{
    uint64_t after[BN_COUNT_COUNT];

    w->over = true;
    if (w->at == NULL)
        return;
    look(w, after);
    for (uint32_t i = 0; i < BN_COUNT_COUNT; i++)
        w->at->count[i] += after[i] - w->before[i];
    w->at->count[BN_COUNT_took_ns] += now - w->begin_ns;
}

/* ---- transactions ---- */

static void fail(struct bn_worker *w, int rc)
{
    if (w->rc == 0) {
        w->rc = rc;
        cn_error_copy(w->text, sizeof(w->text));
    }
    __atomic_store_n(&w->run->failed, 1, __ATOMIC_RELAXED);
}

static struct worker_slot *slot_at(const struct bn_worker *w, uint32_t i)
{
    return (struct worker_slot *)(void *)(w->slots + i * w->slot_stride);
}

/* Is there another to draw? */
static bool take_turn(struct bn_worker *w)
{
    if (w->over || w->rc != 0 || __atomic_load_n(&w->run->failed, __ATOMIC_RELAXED) ||
        tl_interrupted)
        return false;
    if (w->segment.transactions == 0)
        return true;
    if (w->left == 0)
        return false;
    w->left--;
    return true;
}

static void draw(struct bn_worker *w, struct worker_slot *s)
{
    s->kind = w->ops->draw(w->run->load, w->ledger, &w->random, s->data);
    CAIRN_DASSERT(s->kind < BN_KINDS_MAX);
    /* What follows upon another begins when that ended: one look at the clock less. */
    s->begin_ns = w->ended_ns != 0 ? w->ended_ns : now_ns(w);
    w->ended_ns = 0;
}

/* It is over: settle it, and count it if the segment is not. */
static void finish(struct bn_worker *w, struct worker_slot *s, int result, uint32_t tries)
{
    uint64_t now = now_ns(w);
    bool committed = result == 0;

    w->ended_ns = now;

    if (result != 0 && result != BN_REFUSED) {
        fail(w, result);
        return;
    }
    w->ops->settle(w->run->load, w->ledger, s->data, committed);
    if (w->at != NULL && !w->over) {
        struct bn_kind *kind = &w->at->kind[s->kind];
        kind->committed += committed;
        kind->refused += !committed;
        kind->tries += tries;
        if (committed)
            bn_histogram_add(&kind->latency, now - s->begin_ns);
    }
    if (w->segment.transactions == 0 && now >= w->end_ns && !w->over)
        stop_counting(w, now);
}

static void run_blocking(struct bn_worker *w)
{
    struct worker_slot *s = slot_at(w, 0);

    while (take_turn(w)) {
        struct cairn_run_result result;
        draw(w, s);
        int rc = cairn_run(w->ctx, w->ops->body, s->data, TX_TIMEOUT_MS, &result);
        finish(w, s, rc, result.tries);
    }
}

/* ---- many in flight ---- */

static void begin_one(struct bn_worker *w, struct worker_slot *s);

/* In cairn_poll(): the slot's transaction is over. The next one begins in its place. */
static void on_done(struct cairn_op *op)
{
    struct worker_slot *s = op->user;

    finish(s->worker, s, op->result, op->tries);
    begin_one(s->worker, s);
}

static void begin_one(struct bn_worker *w, struct worker_slot *s)
{
    if (!take_turn(w))
        return;
    draw(w, s);
    s->op = (struct cairn_op){.done = on_done, .user = s};
    int rc = cairn_run_async(w->ctx, w->ops->body, s->data, TX_TIMEOUT_MS, &s->op);
    if (rc != 0)
        fail(w, rc);
}

/* An operation is done again and again in its slot; to wait for it is to wait until the slot begins
 * no other. */
static void run_async(struct bn_worker *w)
{
    for (uint32_t i = 0; i < w->segment.inflight; i++) {
        slot_at(w, i)->op.result = 0;
        begin_one(w, slot_at(w, i));
    }
    for (uint32_t i = 0; i < w->segment.inflight; i++)
        (void)cairn_wait(w->ctx, &slot_at(w, i)->op);
}

/* ---- segments ---- */

static void run_segment(struct bn_worker *w)
{
    w->segment = w->run->segment;
    w->at = w->segment.counted ? &w->point[w->segment.point] : NULL;
    w->over = false;
    w->left = w->segment.transactions;
    w->ended_ns = 0;
    if (w->at != NULL)
        look(w, w->before);
    w->begin_ns = now_ns(w);
    w->end_ns = w->begin_ns + w->segment.duration_ns;
    if (w->run->options.blocking)
        run_blocking(w);
    else
        run_async(w);
    if (!w->over)
        stop_counting(w, now_ns(w));
}

/* An endpoint is its thread's (rd.h): so is the context. */
static void *run_worker(void *arg)
{
    struct bn_worker *w = arg;
    uint32_t number = 0;

    init_clock(w);
    int rc = txn_ctx_open(w->run->cairn, w->env, &w->ctx);
    if (rc != 0)
        fail(w, rc);
    for (;;) {
        bn_gate_enter(&w->run->gate, &number);
        if (w->run->segment.last)
            break;
        if (w->rc == 0)
            run_segment(w);
        bn_gate_leave(&w->run->gate);
    }
    cairn_ctx_close(&w->ctx);
    return NULL;
}

/* ---- life ---- */

static int start(struct bn_worker *w, uint32_t number)
{
    const struct bn_run *run = w->run;

    w->slot_stride = cn_align_up(sizeof(struct worker_slot) + w->ops->slot_size, 64);
    w->slots = aligned_alloc(64, run->options.inflight_max * w->slot_stride);
    if (w->slots == NULL)
        return cn_fail(-ENOMEM, "no memory for worker %u", number);
    memset(w->slots, 0, run->options.inflight_max * w->slot_stride);
    for (uint32_t i = 0; i < run->options.inflight_max; i++)
        slot_at(w, i)->worker = w;
    int rc = pthread_create(&w->thread, NULL, run_worker, w);
    return rc == 0 ? 0 : cn_fail(-rc, "cannot start a coordinator thread: %s", strerror(rc));
}

int bn_worker_start(struct bn_run *run, uint32_t number, struct bn_worker **ret_worker)
{
    struct bn_worker *w =
        calloc(1, sizeof(*w) + run->options.point_count * sizeof(struct bn_point));

    if (w == NULL)
        return cn_fail(-ENOMEM, "no memory for worker %u", number);
    w->run = run;
    w->ops = run->load->ops;
    w->ledger = run->ledger[number];
    w->random = cn_mix64(run->options.seed + (number + 1) * WORKER_STREAM);
    int rc = start(w, number);
    if (rc != 0) {
        free(w->slots);
        free(w);
        return rc;
    }
    *ret_worker = w;
    return 0;
}

int bn_worker_error(const struct bn_worker *w)
{
    return w->rc == 0 ? 0 : cn_fail(w->rc, "%s", w->text);
}

const struct bn_point *bn_worker_point(const struct bn_worker *w, uint32_t point)
{
    return &w->point[point];
}

void bn_worker_end(struct bn_worker **worker)
{
    struct bn_worker *w = *worker;

    (void)pthread_join(w->thread, NULL);
    free(w->slots);
    free(w);
    *worker = NULL;
}
