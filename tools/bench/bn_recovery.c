/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_recovery.c: `cairn bench recovery`: how fast a node replays its log after a crash, for small
 * and for large values, and how long its start takes against the length of the log and the size of
 * the pool. Scan and replay are what depends on the log; their sum is what is judged.
 */
#include <errno.h>
#include <inttypes.h>

#include "tools/bench/bn_recovery.h"

#define ROUNDS_MAX 16u
#define RECORDS_SMALL 262144u
#define RECORDS_LARGE 2048u
#define VALUE_SMALL 16u
#define VALUE_LARGE CAIRN_VALUE_SIZE_MAX
#define LARGE_MIN 4096u /* values from here on are judged by bytes */
#define TARGET_RECORDS 2e6
#define TARGET_COPY 0.6
#define POOL_FACTOR 4u

struct series { /* starts with one shape and log length */
    const char *what;
    struct rv_shape shape;
    struct rv_start start[ROUNDS_MAX * TL_NODES_MAX];
    uint32_t count;
};

struct recovery {
    const struct tl_command *self;
    uint64_t records, value_size, participants, slots, log_size, pool_size, rounds, seed;
    bool json, check, verbose;
    struct series series[10];
    uint32_t series_count;
};

/* ---- what the figures are ---- */

static double work_ns(const struct rv_start *s)
{
    return (double)(s->scan_ns + s->replay_ns);
}

static int by_work(const void *a, const void *b)
{
    double x = work_ns(a), y = work_ns(b);

    return (x > y) - (x < y);
}

static const struct rv_start *median(const struct series *s)
{
    return &s->start[s->count / 2];
}

static double records_per_s(const struct series *s)
{
    const struct rv_start *m = median(s);

    return m->records == 0 ? 0 : (double)m->records * 1e9 / work_ns(m);
}

static double bytes_per_s(const struct series *s)
{
    return records_per_s(s) * s->shape.value_size;
}

/* Against the copy rate of the same moments. */
static double copy_ratio(const struct series *s)
{
    double rate = median(s)->copy_rate;

    return rate == 0 ? 0 : bytes_per_s(s) / rate;
}

static bool is_judged(const struct series *s)
{
    return strcmp(s->what, "replay") == 0;
}

static bool is_large(const struct series *s)
{
    return s->shape.value_size >= LARGE_MIN;
}

static bool is_met(const struct series *s)
{
    return is_large(s) ? copy_ratio(s) >= TARGET_COPY : records_per_s(s) >= TARGET_RECORDS;
}

static bool all_met(const struct recovery *r)
{
    for (uint32_t i = 0; i < r->series_count; i++) {
        if (is_judged(&r->series[i]) && !is_met(&r->series[i]))
            return false;
    }
    return true;
}

/* ---- report ---- */

static json_t *rounded(double value)
{
    return json_real((double)(uint64_t)(value * 1000 + 0.5) / 1000);
}

static json_t *json_series(const struct series *s)
{
    const struct rv_start *m = median(s);
    json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "what",
        s->what, "value_bytes", (json_int_t)s->shape.value_size, "record_bytes",
        (json_int_t)rv_record_size(&s->shape), "records", (json_int_t)m->records, "log_bytes",
        (json_int_t)(m->records * rv_record_size(&s->shape)), "pool_bytes",
        (json_int_t)m->pool_size, "keys", (json_int_t)s->shape.keys, "participants",
        (json_int_t)s->shape.participants, "starts", (json_int_t)s->count, "open_ms",
        rounded((double)m->open_ns / 1e6), "scan_ms", rounded((double)m->scan_ns / 1e6),
        "replay_ms", rounded((double)m->replay_ns / 1e6));

    (void)json_object_set_new(o, "wall_ms", rounded((double)m->wall_ns / 1e6));
    if (m->records == 0)
        return o;
    (void)json_object_set_new(o, "records_per_s", rounded(records_per_s(s)));
    (void)json_object_set_new(o, "records_per_s_best",
        rounded((double)m->records * 1e9 / work_ns(&s->start[0])));
    (void)json_object_set_new(o, "value_bytes_per_s", rounded(bytes_per_s(s)));
    (void)json_object_set_new(o, "copy_bytes_per_s", rounded(m->copy_rate));
    (void)json_object_set_new(o, "ratio_to_copy", rounded(copy_ratio(s)));
    if (is_judged(s)) {
        (void)json_object_set_new(
            o, "target", rounded(is_large(s) ? TARGET_COPY : TARGET_RECORDS));
        (void)json_object_set_new(o, "met", json_boolean(is_met(s)));
    }
    return o;
}

static void report_json(const struct recovery *r)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < r->series_count; i++)
        (void)json_array_append_new(all, json_series(&r->series[i]));
    tl_json_print(json_pack("{s:s, s:s, s:I, s:I, s:b, s:o, s:b}", "benchmark", "recovery",
        "fabric", "emu", "seed", (json_int_t)r->seed, "rounds", (json_int_t)r->rounds, "verified",
        1, "series", all, "met", all_met(r)));
}

static void report_text(const struct recovery *r)
{
    printf("  %-8s %9s %10s %9s %9s %8s %8s %9s %12s %7s\n", "", "value", "records", "log", "pool",
        "open ms", "scan ms", "replay ms", "records/s", "of copy");
    for (uint32_t i = 0; i < r->series_count; i++) {
        const struct series *s = &r->series[i];
        const struct rv_start *m = median(s);
        char value[32], records[32], log[32], pool[32], rate[32];
        printf("  %-8s %9s %10s %9s %9s %8.1f %8.1f %9.1f %12s %7.2f\n", s->what,
            tl_bytes(s->shape.value_size, value), tl_count(m->records, records),
            tl_bytes(m->records * rv_record_size(&s->shape), log), tl_bytes(m->pool_size, pool),
            (double)m->open_ns / 1e6, (double)m->scan_ns / 1e6, (double)m->replay_ns / 1e6,
            tl_count((uint64_t)records_per_s(s), rate), copy_ratio(s));
    }
    printf("\nmedians of %u starts or more, times of one core; every value was looked up afterwards"
           "\n",
        (unsigned)r->rounds);
    for (uint32_t i = 0; i < r->series_count; i++) {
        const struct series *s = &r->series[i];
        if (!is_judged(s))
            continue;
        if (is_large(s))
            printf("large values: %.2f of the copy rate, target %.2f: %s\n", copy_ratio(s),
                TARGET_COPY, is_met(s) ? "met" : "missed");
        else
            printf("small records: %.2f million per second, target %.2f: %s\n",
                records_per_s(s) / 1e6, TARGET_RECORDS / 1e6, is_met(s) ? "met" : "missed");
    }
}

/* ---- the run ---- */

static struct series *add_series(struct recovery *r, const char *what)
{
    struct series *s = &r->series[r->series_count++];

    CAIRN_ASSERT(r->series_count <= CN_ARRAY_SIZE(r->series));
    s->what = what;
    return s;
}

static int run_series(struct recovery *r, struct rv_cluster *c, const char *what, uint32_t records)
{
    struct series *s = add_series(r, what);
    bool mapped = strcmp(what, "mapped") == 0;
    int rc = 0;

    s->shape = c->shape;
    for (uint32_t i = 0; i < r->rounds && rc == 0; i++) {
        rc = rv_cluster_crash(c, records);
        for (uint32_t p = 0; p < c->shape.participants && rc == 0; p++)
            rc = rv_start_node(c, p, records, mapped, &s->start[s->count++]);
        if (rc == 0 && tl_interrupted)
            rc = cn_fail(-EINTR, "interrupted");
    }
    qsort(s->start, s->count, sizeof(s->start[0]), by_work);
    return rc;
}

static void make_shape(const struct recovery *r, uint32_t value_size, uint32_t records,
    uint32_t keys, struct rv_shape *ret)
{
    uint32_t window = 256;

    while ((uint64_t)window * r->slots < records)
        window *= 2;
    *ret = (struct rv_shape){.participants = (uint32_t)r->participants,
        .slots = (uint32_t)r->slots,
        .keys = keys,
        .window = window,
        .value_size = value_size,
        .ring_size = r->log_size,
        .pool_size = r->pool_size,
        .seed = r->seed};
}

/* A cluster, and a full log replayed in it; the caller ends it. */
static int run_full(
    struct recovery *r, uint32_t value_size, uint32_t records, struct rv_cluster *ret_cluster)
{
    struct rv_shape shape;

    make_shape(r, value_size, records, records, &shape);
    int rc = rv_cluster_make(&shape, ret_cluster);
    if (rc == 0)
        rc = run_series(r, ret_cluster, "replay", records);
    if (rc == 0)
        rc = run_series(r, ret_cluster, "mapped", records);
    return rc;
}

/* Large values; the log is as long as it fits beside them. */
static int run_large(struct recovery *r, uint32_t value_size, uint32_t records)
{
    struct rv_cluster c;
    int rc = run_full(r, value_size, records, &c);

    rv_cluster_end(&c);
    return rc;
}

/* Small values: also with less of a log, and a short log again in a pool with more data. */
static int run_small(struct recovery *r, uint32_t value_size, uint32_t records)
{
    struct rv_cluster c;
    struct rv_shape shape;
    int rc = run_full(r, value_size, records, &c);

    for (uint32_t part = 4; part <= 64 && rc == 0; part *= 4)
        rc = run_series(r, &c, "log", records / part);
    if (rc == 0)
        rc = run_series(r, &c, "log", 0);
    rv_cluster_end(&c);
    if (rc != 0 || r->pool_size != 0)
        return rc;
    make_shape(r, value_size, records, POOL_FACTOR * records, &shape);
    rc = rv_cluster_make(&shape, &c);
    if (rc == 0)
        rc = run_series(r, &c, "pool", records / 64);
    rv_cluster_end(&c);
    return rc;
}

static int run_all(struct recovery *r)
{
    uint32_t records = (uint32_t)r->records;
    bool all = r->value_size == 0;
    int rc = 0;

    struct tl_progress *progress = tl_progress_start("filling rings, killing, starting again");
    if (all || r->value_size < LARGE_MIN)
        rc = run_small(r, all ? VALUE_SMALL : (uint32_t)r->value_size,
            records != 0 ? records : RECORDS_SMALL);
    if (rc == 0 && (all || r->value_size >= LARGE_MIN)) {
        uint32_t size = all ? VALUE_LARGE : (uint32_t)r->value_size;
        rc = run_large(r, size,
            records != 0 && !all ? records : RECORDS_LARGE * (VALUE_LARGE / size));
    }
    tl_progress_end(progress);
    return rc;
}

static int parse(struct recovery *r, int argc, char **argv)
{
    const char *log_size = NULL, *pool_size = NULL;
    const struct tl_option options[] = {
        {.name = "records", .arg = "N",
            .help = "in the log of each node when it is killed (default 262144, of large values as "
                    "many as are 128 MiB)",
            .number = &r->records, .min = 64, .max = 4000000},
        {.name = "value-size", .arg = "B",
            .help = "bytes of a value (default: 16, and then 65536 as well)",
            .number = &r->value_size, .min = 1, .max = CAIRN_VALUE_SIZE_MAX},
        {.name = "participants", .arg = "N",
            .help = "nodes, all written by each transaction (default 1)",
            .number = &r->participants, .min = 1, .max = TL_NODES_MAX},
        {.name = "slots", .arg = "N", .help = "coordinator contexts, each with a ring (default 8)",
            .number = &r->slots, .min = 1, .max = RV_SLOTS_MAX},
        {.name = "log-size", .arg = "SIZE", .help = "of each ring (default: as needed)",
            .text = &log_size},
        {.name = "pool-size", .arg = "SIZE", .help = "of each pool (default: as needed)",
            .text = &pool_size},
        {.name = "rounds", .arg = "N", .help = "crashes per figure (default 3)",
            .number = &r->rounds, .min = 1, .max = ROUNDS_MAX},
        {.name = "seed", .arg = "N", .help = "of values and of the order of keys (default 1)",
            .number = &r->seed, .max = UINT32_MAX},
        {.name = "check", .help = "exit 1 if a target is missed", .flag = &r->check},
        {.name = "verbose", .help = "log everything", .flag = &r->verbose},
        {.name = "json", .help = "print one JSON object", .flag = &r->json},
        {.name = NULL},
    };
    int first, rc = tl_parse(r->self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (log_size != NULL && !txn_parse_size(log_size, &r->log_size))
        return tl_error(r->self, "--log-size: \"%.40s\" is no size; try 4M", log_size);
    if (pool_size != NULL && !txn_parse_size(pool_size, &r->pool_size))
        return tl_error(r->self, "--pool-size: \"%.40s\" is no size; try 256M", pool_size);
    if (r->records > r->slots * 65536)
        return tl_error(r->self, "--records: at most 65536 for each of the %u --slots",
            (unsigned)r->slots);
    return -1;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct recovery *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return tl_error(self, "no memory");
    r->self = self;
    r->participants = 1;
    r->slots = 8;
    r->rounds = 3;
    r->seed = 1;
    int rc = parse(r, argc, argv);
    if (rc == -1) {
        tl_catch_signals();
        cn_env_system_log_level(r->verbose ? CN_LOG_DEBUG : CN_LOG_ERROR);
        int error = run_all(r);
        if (error != 0 && tl_interrupted) /* whatever it was that the signal ended */
            error = cn_fail(-EINTR, "interrupted");
        rc = TL_OK;
        if (error != 0)
            rc = tl_cairn_error(self, error, r->json);
        else if (r->json)
            report_json(r);
        else
            report_text(r);
        if (error == CAIRN_E_STATE || (rc == TL_OK && r->check && !all_met(r)))
            rc = TL_BAD;
    }
    free(r);
    return rc;
}

const struct tl_command bn_recovery = {
    .name = "bench recovery",
    .args = "[OPTION...]",
    .summary = "Starts after a crash: replay of the log against a copy of memory.",
    .example = "  cairn bench recovery\n"
               "  cairn bench recovery --value-size 100 --participants 2 --json\n"
               "  (every value is looked up after each start; exit 1 if one is wrong)\n",
    .run = run,
};
