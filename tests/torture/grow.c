/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow: a table grows online from empty to N items of 8-byte keys and 64-byte values while other
 * transactions read and write what is already there; then a fresh coordinator, with nothing
 * cached, looks up keys at random: the number of dependent READs of each (waits for replies
 * between begin and the end of a single-key read) is 2 on average. Prints one JSON object; exit 0,
 * 1 (mean, or a lookup is wrong), 2.
 */
#include "tests/torture/tt_items.h"

#include <getopt.h>
#include <sys/mman.h>

#define PER_TX 64u
#define LOADERS 2u
#define HOPS_MAX 16u
#define MEAN_MAX 2.05
#define WARM_UP 2000u /* lookups that fill the cache of the index's map, not counted */

struct results { /* shared memory */
    uint64_t progress[LOADERS];
    uint64_t during, during_failed, during_ns_max; /* transactions while it grows */
    uint64_t lookups, hops[HOPS_MAX], waits[HOPS_MAX], waits_sum, reads_sum, hops_sum, wrong;
    uint32_t grown;
};

struct job {
    struct tt_cluster *cluster;
    struct results *results;
    uint64_t items, lookups;
    uint32_t loader;
};

static int open_ctx(const struct job *job, struct cairn **ret_cluster, struct cairn_ctx **ret_ctx)
{
    static const struct cairn_options options = {
        .size = sizeof(options),
        .connect_timeout_ms = 2000,
        .op_timeout_ms = 10000,
        .cache_entries = 16,
    };

    if (cairn_open(job->cluster->config, &options, ret_cluster) == 0 &&
        cairn_ctx_open(*ret_cluster, ret_ctx) == 0)
        return 0;
    (void)fprintf(stderr, "cannot open the cluster: %s\n", cairn_last_error());
    return -1;
}

/* Loader n inserts its share of the items. */
static int run_loader(void *arg)
{
    const struct job *job = arg;
    const uint64_t share = job->items / LOADERS, first = share * job->loader;
    const uint64_t count = job->loader == LOADERS - 1 ? job->items - first : share;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    int r;

    if (open_ctx(job, &cluster, &ctx) != 0)
        return 4;
    r = tt_items_insert(ctx, first, count, PER_TX, &job->results->progress[job->loader]);
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return r != 0;
}

struct pair {
    uint64_t item;
    uint64_t counter;
};

/* Read an item that is there, and count in a key of the bank's table. */
static int read_and_count(struct cairn_tx *tx, void *arg)
{
    const struct pair *p = arg;
    uint64_t value = 0;
    size_t size;
    int r = tt_item_check(tx, p->item);

    if (r == 0)
        r = cairn_get_for_update(tx, TT_TABLE_BANK, &p->counter, sizeof(p->counter), &value,
            sizeof(value), &size);
    if (r == CAIRN_E_NOT_FOUND)
        r = 0;
    value++;
    if (r == 0)
        r = cairn_put(tx, TT_TABLE_BANK, &p->counter, sizeof(p->counter), &value, sizeof(value));
    return r;
}

static int run_others(void *arg)
{
    const struct job *job = arg;
    struct results *results = job->results;
    struct tt_random random = {42};
    struct cairn *cluster;
    struct cairn_ctx *ctx;

    if (open_ctx(job, &cluster, &ctx) != 0)
        return 4;
    while (__atomic_load_n(&results->grown, __ATOMIC_ACQUIRE) == 0) {
        const uint64_t there = __atomic_load_n(&results->progress[0], __ATOMIC_ACQUIRE);
        if (there == 0)
            continue;
        struct pair p = {tt_random64(&random) % there, tt_random_below(&random, 100)};
        const uint64_t start = tt_now_ns();
        const int r = cairn_run(ctx, read_and_count, &p, 10000, NULL);
        results->during_ns_max = cn_max64(results->during_ns_max, tt_now_ns() - start);
        results->during++;
        if (r != 0) {
            results->during_failed++;
            (void)fprintf(stderr, "item %llu: %s: %s\n", (unsigned long long)p.item,
                cairn_error_name(r), cairn_last_error());
        }
        tt_sleep_us(500);
    }
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return 0;
}

/* ---- cold lookups ---- */

struct lookup {
    uint64_t item;
};

static int look_up(struct cairn_tx *tx, void *arg)
{
    return tt_item_check(tx, ((const struct lookup *)arg)->item);
}

static void count_lookup(
    struct results *results, const struct cairn_stats *a, const struct cairn_stats *b)
{
    const uint64_t waits = b->round_trips - a->round_trips;
    const uint64_t hops = b->bucket_hops - a->bucket_hops;

    results->lookups++;
    results->waits[cn_min64(waits, HOPS_MAX - 1)]++;
    results->hops[cn_min64(hops, HOPS_MAX - 1)]++;
    results->waits_sum += waits;
    results->hops_sum += hops;
    results->reads_sum += b->reads - a->reads;
}

static int run_lookups(void *arg)
{
    const struct job *job = arg;
    struct tt_random random = {4711};
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    struct cairn_stats a, b;

    if (open_ctx(job, &cluster, &ctx) != 0)
        return 4;
    for (uint64_t i = 0; i < job->lookups + WARM_UP; i++) {
        struct lookup l = {tt_random64(&random) % job->items};
        cairn_ctx_stats(ctx, &a);
        const int r = cairn_run(ctx, look_up, &l, 10000, NULL);
        cairn_ctx_stats(ctx, &b);
        if (r != 0) {
            job->results->wrong++;
            (void)fprintf(stderr, "item %llu: %s: %s\n", (unsigned long long)l.item,
                cairn_error_name(r), cairn_last_error());
        }
        if (i >= WARM_UP)
            count_lookup(job->results, &a, &b);
    }
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return 0;
}

/* ---- the parent ---- */

static bool grow(struct job *job, uint64_t *ret_ns)
{
    const uint64_t start = tt_now_ns();
    struct tt_cluster *c = job->cluster;
    pid_t loader[LOADERS], others;
    bool good = true;

    for (uint32_t i = 0; i < LOADERS; i++) {
        job->loader = i;
        loader[i] = tt_fork(c, "loader.log", run_loader, job);
    }
    others = tt_fork(c, "others.log", run_others, job);
    for (uint32_t i = 0; i < LOADERS; i++)
        good = tt_wait(loader[i], 3000000) == 0 && good;
    *ret_ns = tt_now_ns() - start;
    __atomic_store_n(&job->results->grown, 1, __ATOMIC_RELEASE);
    return tt_wait(others, 30000) == 0 && good;
}

static void print_counts(const char *name, const uint64_t counts[HOPS_MAX])
{
    printf("\"%s\":{", name);
    for (uint32_t i = 0, n = 0; i < HOPS_MAX; i++)
        if (counts[i] > 0)
            printf("%s\"%u%s\":%llu", n++ > 0 ? "," : "", i, i == HOPS_MAX - 1 ? "+" : "",
                (unsigned long long)counts[i]);
    printf("},");
}

static bool report(const struct job *job, uint64_t ns)
{
    const struct results *r = job->results;
    const struct pm_store_stats *store = &job->cluster->shared->node[0].stats.store;
    const double lookups = r->lookups > 0 ? (double)r->lookups : 1;
    const double mean = (double)r->waits_sum / lookups;
    const bool good = r->lookups > 0 && mean <= MEAN_MAX && r->wrong == 0 &&
                      r->during_failed == 0 && r->during > 0;

    printf("{\"items\":%llu,\"grow_s\":%.2f,\"items_per_s\":%.0f,\"during\":%llu,"
           "\"during_failed\":%llu,\"during_ms_max\":%.1f,\"lookups\":%llu,\"wrong\":%llu,",
        (unsigned long long)job->items, (double)ns / 1e9, (double)job->items / ((double)ns / 1e9),
        (unsigned long long)r->during, (unsigned long long)r->during_failed,
        (double)r->during_ns_max / 1e6, (unsigned long long)r->lookups,
        (unsigned long long)r->wrong);
    print_counts("dependent_reads", r->waits);
    print_counts("bucket_hops", r->hops);
    printf("\"mean\":%.4f,\"mean_max\":%.2f,\"hops_mean\":%.4f,\"reads_mean\":%.4f,"
           "\"splits_early\":%llu,\"splits_sweep\":%llu,\"splits_room\":%llu,\"verdict\":%s}\n",
        mean, MEAN_MAX, (double)r->hops_sum / lookups, (double)r->reads_sum / lookups,
        (unsigned long long)store->splits_early, (unsigned long long)store->splits_sweep,
        (unsigned long long)store->splits_room, good ? "true" : "false");
    return good;
}

static bool parse(int argc, char **argv, struct job *job)
{
    static const struct option options[] = {{"items", required_argument, NULL, 'i'},
        {"lookups", required_argument, NULL, 'l'}, {0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == '?')
            return false;
        *(c == 'i' ? &job->items : &job->lookups) = strtoull(optarg, NULL, 10);
    }
    return job->items >= 1000 && optind == argc;
}

int main(int argc, char **argv)
{
    char size[32];
    const struct tt_options options = {.nodes = 1, .pool_size = size, .geometry = ""};
    struct tt_cluster c;
    struct job job = {.cluster = &c, .items = 5000000, .lookups = 20000};
    uint64_t ns;
    bool good;

    if (!parse(argc, argv, &job)) {
        (void)fprintf(stderr, "usage: grow [--items N (1000 or more)] [--lookups N]\n");
        return 2;
    }
    tt_items_pool_size(job.items, size);
    job.results =
        mmap(NULL, sizeof(*job.results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.results == MAP_FAILED || tt_cluster_make(&c, &options) != 0)
        return 2;
    good = tt_cluster_start(&c, 20000) && grow(&job, &ns) &&
           tt_wait(tt_fork(&c, "lookups.log", run_lookups, &job), 600000) == 0 &&
           tt_cluster_await_quiet(&c, 20000) && tt_cluster_stop(&c, 10000);
    if (!good) {
        (void)fprintf(stderr, "grow: does not run: see %s\n", c.dir);
        tt_node_kill(&c, 0);
        return 2;
    }
    good = report(&job, ns);
    if (tt_cluster_check_pools(&c) != 0)
        good = false;
    tt_cluster_remove(&c);
    return good ? 0 : 1;
}
