/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_drive.c: `cairn bench LOAD`: makes or finds a cluster, loads, warms up, measures, checks, and
 * reports. Nothing is reported when the load's check finds that something does not hold.
 */
#include "tools/bench/bn_drive.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "txn/txn_cluster.h"

#define ROUNDS 5u           /* of a sweep: so often each point has its turn */
#define WARM_SHARE 10u      /* --transactions: one tenth more, not counted */
#define SPARE_SLOTS 6u      /* of each node: its own, loader, checker, and those being retired */
#define WINDOW 1024u
#define RING_SIZE "1M"
#define HEAP_PERCENT 220u   /* of the load's bytes: shards differ, blocks have sizes, buckets */
#define HEAP_SPARE_MB 48u
#define TABLE_MB 8u         /* the first buckets, and a chunk of some sizes of blocks */
#define RING_MB 2u          /* with its header and tombstones, rounded up */
#define NS_PER_S UINT64_C(1000000000)
#define PROGRESS_QUIET_NS (2 * NS_PER_S)

/* ---- progress of load and check: they run in the main thread alone ---- */

static uint64_t progress_next_ns; /* nothing is said before */

static void start_progress(void)
{
    progress_next_ns = cn_now_ns(cn_env_system()) + PROGRESS_QUIET_NS;
}

void bn_progress(const struct bn_load *load, const char *what, uint64_t done, uint64_t all)
{
    uint64_t now = cn_now_ns(cn_env_system());
    bool terminal = isatty(STDERR_FILENO) == 1;
    char some[32], total[32];

    if (progress_next_ns == 0)
        start_progress();
    if (now < progress_next_ns)
        return;
    progress_next_ns = now + (terminal ? NS_PER_S : 10 * NS_PER_S);
    fprintf(stderr, "%s%s: %s: %s of %s%s", terminal ? "\r" : "", load->ops->name, what,
        tl_count(done, some), tl_count(all, total), done >= all || !terminal ? "\n" : " ");
}

/* ---- the cluster ---- */

static int start_nodes(struct bn_run *run)
{
    const struct bn_options *o = &run->options;
    const struct bn_load_ops *ops = run->load->ops;
    uint64_t slots = o->threads + SPARE_SLOTS;
    uint64_t fixed_mb = HEAP_SPARE_MB + slots * RING_MB;
    uint64_t heap_mb = ((ops->bytes(run->load) / o->participants) >> 20) * HEAP_PERCENT / 100;

    for (uint32_t i = 0; i < BN_TABLES_MAX && ops->tables[i] != NULL; i++)
        fixed_mb += TABLE_MB;
    struct bn_nodes_options options = {
        .cluster = {.fabric = o->fabric,
            .address = o->address,
            .config = o->config,
            .completion = o->completion,
            .name = "bench",
            .nodes = (uint32_t)o->participants,
            .slots = (uint32_t)slots,
            .pool_mb = heap_mb + fixed_mb,
            .ring_size = RING_SIZE,
            .window = WINDOW,
            .tables = ops->tables},
        .threads = (uint32_t)o->node_threads,
    };

    return bn_nodes_start(&options, &run->nodes);
}

/* The coordinators' side: the model of a network is theirs alone. */
static int open_cluster(struct bn_run *run)
{
    struct bn_options *o = &run->options;
    struct cairn_options options = CAIRN_OPTIONS_DEFAULT;
    struct bn_load *load = run->load;
    struct rd_fabric_config *fabric = &run->config.fabric_config;

    run->config = *run->nodes.cluster.config;
    if (o->projection && strcmp(run->config.fabric, "emu") != 0)
        return cn_fail(CAIRN_E_CONFIG, "%s: --rtt and --gbps model a network over fabric emu only",
            run->config.path);
    if (o->projection) {
        fabric->model_rtt_ns = (uint32_t)(o->rtt_us * 1000);
        fabric->model_mbps = (uint32_t)(o->gbps * 1000);
    }
    fabric->write_back |= o->write_back;
    o->projection = fabric->model_rtt_ns != 0 || fabric->model_mbps != 0;
    options.inflight = o->inflight_max;
    options.cache_entries = (uint32_t)o->cache;
    int rc = txn_config_open_fabric(&run->config, &run->fabric);
    if (rc == 0)
        rc = txn_cluster_open(
            &run->config, run->fabric, cn_env_system(), &options, &run->cairn);
    load->participants = run->config.node_count;
    load->config = &run->config;
    for (uint32_t i = 0; i < BN_TABLES_MAX && load->ops->tables[i] != NULL && rc == 0; i++)
        rc = cairn_table(run->cairn, load->ops->tables[i], &load->table[i]);
    return rc;
}

/* ---- load and check: a context each ---- */

typedef int (*context_fn)(struct bn_run *run, struct cairn_ctx *ctx);

static int with_context(struct bn_run *run, context_fn fn, uint64_t *ret_ns)
{
    struct cairn_ctx *ctx;
    uint64_t begin = cn_now_ns(cn_env_system());

    int rc = cairn_ctx_open(run->cairn, &ctx);
    if (rc != 0)
        return rc;
    start_progress();
    rc = fn(run, ctx);
    cairn_ctx_close(&ctx);
    *ret_ns = cn_now_ns(cn_env_system()) - begin;
    return rc;
}

static int put_initial(struct bn_run *run, struct cairn_ctx *ctx)
{
    return run->load->ops->load(run->load, ctx);
}

static int check_final(struct bn_run *run, struct cairn_ctx *ctx)
{
    return run->load->ops->check(run->load, ctx, &run->conditions);
}

/* ---- workers ---- */

static int init_ledger(struct bn_run *run, uint32_t i)
{
    const struct bn_load_ops *ops = run->load->ops;

    run->ledger[i] = aligned_alloc(64, cn_align_up(cn_max64(ops->worker_size, 1), 64));
    if (run->ledger[i] == NULL)
        return cn_fail(-ENOMEM, "no memory for a ledger");
    memset(run->ledger[i], 0, ops->worker_size);
    return ops->worker_init == NULL ? 0 : ops->worker_init(run->load, run->ledger[i], i);
}

static void end_ledgers(struct bn_run *run)
{
    const struct bn_load_ops *ops = run->load->ops;

    for (uint32_t i = 0; i < run->options.threads; i++) {
        if (run->ledger[i] != NULL && ops->worker_end != NULL)
            ops->worker_end(run->load, run->ledger[i]);
        free(run->ledger[i]);
        run->ledger[i] = NULL;
    }
}

static void add_usage(struct bn_point *point, const struct bn_usage *before,
    const struct bn_usage *after)
{
    struct bn_usage *sum = &point->nodes;

    sum->cpu_known = after->cpu_known;
    sum->counters_known = after->counters_known;
    sum->cpu_ns += after->cpu_ns - before->cpu_ns;
    sum->applied += after->applied - before->applied;
    sum->fences += after->fences - before->fences;
    sum->sleeps += after->sleeps - before->sleeps;
    sum->wakeups += after->wakeups - before->wakeups;
    sum->syscalls += after->syscalls - before->syscalls;
    sum->messages += after->messages - before->messages;
}

static int run_segment(struct bn_run *run, const struct bn_segment *segment)
{
    struct bn_usage before, after;
    int rc = 0;

    run->segment = *segment;
    bn_nodes_usage(&run->nodes, &before);
    bn_gate_open(&run->gate, (uint32_t)run->options.threads);
    bn_gate_await(&run->gate);
    bn_nodes_usage(&run->nodes, &after);
    if (segment->counted)
        add_usage(&run->point[segment->point], &before, &after);
    for (uint32_t i = 0; i < run->options.threads && rc == 0; i++)
        rc = bn_worker_error(run->worker[i]);
    return rc == 0 ? bn_nodes_check(&run->nodes) : rc;
}

static int warm_up(struct bn_run *run)
{
    const struct bn_options *o = &run->options;
    struct bn_segment segment = {.inflight = o->inflight_max,
        .duration_ns = o->warmup_s * NS_PER_S,
        .transactions = o->transactions == 0 ? 0 : o->transactions / WARM_SHARE + 1};

    return o->warmup_s == 0 && o->transactions == 0 ? 0 : run_segment(run, &segment);
}

/* Rounds in which every point has its turn, each round beginning with another one. */
static int measure(struct bn_run *run)
{
    const struct bn_options *o = &run->options;
    uint32_t rounds = o->point_count == 1 ? 1 : ROUNDS;
    int rc = 0;

    for (uint32_t i = 0; i < rounds * o->point_count && rc == 0; i++) {
        uint32_t round = i / o->point_count, at = (i + round) % o->point_count;
        uint64_t before = o->transactions * round / rounds;
        struct bn_segment segment = {.point = at,
            .inflight = o->point[at],
            .counted = true,
            .duration_ns = o->duration_s * NS_PER_S / rounds,
            .transactions = o->transactions * (round + 1) / rounds - before};
        if (o->transactions != 0 && segment.transactions == 0)
            continue;
        rc = run_segment(run, &segment);
    }
    return rc;
}

static int start_workers(struct bn_run *run, uint32_t *ret_started)
{
    for (uint32_t i = 0; i < run->options.threads; i++) {
        int rc = bn_worker_start(run, i, &run->worker[i]);
        if (rc != 0)
            return rc;
        *ret_started = i + 1;
    }
    return 0;
}

static int run_workers(struct bn_run *run)
{
    uint32_t started = 0;

    bn_gate_init(&run->gate);
    int rc = start_workers(run, &started);
    if (rc == 0)
        rc = warm_up(run);
    if (rc == 0)
        rc = measure(run);
    if (rc == 0)
        bn_figures_collect(run);
    run->segment = (struct bn_segment){.last = true};
    bn_gate_open(&run->gate, started);
    for (uint32_t i = 0; i < started; i++)
        bn_worker_end(&run->worker[i]);
    bn_gate_fini(&run->gate);
    return rc;
}

/* ---- the run ---- */

static int prepare(struct bn_run *run)
{
    struct bn_load *load = run->load;
    const struct bn_options *o = &run->options;

    load->threads = (uint32_t)o->threads;
    load->inflight = o->inflight_max;
    load->participants = (uint32_t)o->participants;
    load->seed = o->seed;
    load->worker = run->ledger;
    run->point = calloc(o->point_count, sizeof(*run->point));
    if (run->point == NULL)
        return cn_fail(-ENOMEM, "no memory for results");
    int rc = load->ops->setup == NULL ? 0 : load->ops->setup(load);
    if (rc == 0)
        rc = start_nodes(run);
    return rc == 0 ? open_cluster(run) : rc;
}

static int run_all(struct bn_run *run)
{
    int rc = prepare(run);

    if (rc == 0)
        rc = with_context(run, put_initial, &run->loaded_ns);
    for (uint32_t i = 0; i < run->options.threads && rc == 0; i++)
        rc = init_ledger(run, i);
    if (rc == 0)
        rc = run_workers(run);
    if (rc == 0)
        rc = with_context(run, check_final, &run->checked_ns);
    if (rc == 0 && tl_interrupted)
        rc = cn_fail(-EINTR, "interrupted");
    return rc;
}

static void close_all(struct bn_run *run)
{
    end_ledgers(run);
    if (run->load->ops->end != NULL)
        run->load->ops->end(run->load);
    if (run->cairn != NULL)
        cairn_close(&run->cairn);
    if (run->fabric != NULL)
        rd_fabric_delete(run->fabric);
    (void)bn_nodes_stop(&run->nodes);
    free(run->point);
}

static int report(struct bn_run *run)
{
    const struct bn_options *o = &run->options;

    bn_report(run);
    if (o->svg != NULL) {
        int rc = bn_chart(run, o->svg);
        if (rc != 0)
            return tl_cairn_error(run->self, rc, false);
    }
    return o->check && !bn_targets_are_met(run) ? TL_BAD : TL_OK;
}

static int run_load(struct bn_run *run)
{
    tl_catch_signals();
    cn_env_system_log_level(run->options.verbose ? CN_LOG_DEBUG : CN_LOG_ERROR);
    int error = run_all(run);
    int rc = TL_OK;
    if (error == 0)
        rc = report(run);
    else
        rc = tl_cairn_error(run->self, error, run->options.json);
    close_all(run);
    return error == CAIRN_E_STATE ? TL_BAD : rc;
}

int bn_drive(const struct bn_load_ops *ops, int argc, char **argv)
{
    char name[64];
    struct tl_command self = {
        .args = "[OPTION...]", .name = name, .summary = ops->summary, .example = ops->example};
    struct bn_run *run = calloc(1, sizeof(*run));
    struct bn_load *load = calloc(1, cn_max64(ops->size, sizeof(*load)));

    (void)snprintf(name, sizeof(name), "bench %s", ops->name);
    int rc = run == NULL || load == NULL ? tl_error(&self, "no memory")
                                         : bn_options_parse(&self, ops, argc, argv, &run->options);
    if (rc == -1) {
        run->self = &self;
        run->load = load;
        load->ops = ops;
        rc = run_load(run);
    }
    free(load);
    free(run);
    return rc;
}
