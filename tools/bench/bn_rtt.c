/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_rtt.c: `cairn bench rtt`: what a transaction adds to the round trips that it is made of. One
 * thread measures raw operations and commits in turn, in random order inside each round, so that
 * whatever else goes on in the machine hits all alike; a few samples of one in a row, the first of
 * which is not counted, so that each finds its code and data in the caches, as in a service at
 * work. A sample is one operation, begin to result; the time of reading the clock is taken off.
 * Outside the samples it is waited until the keys to be written are released again: no sample meets
 * a conflict with the one before.
 */
#include "tools/bench/bn_rtt.h"

#define CLOCK_TRIES 1001u
#define BURST 4u        /* samples of one operation in a row; the first is not counted */
#define WARM_ROUNDS (BN_KEYS / BURST)
#define CHECK_EVERY 16u /* rounds between looks at the nodes */

const struct rtt_op_text rtt_ops[RTT_OP_COUNT] = {
    [RTT_RAW_READ] = {"raw_read", "READ of an item", false, false},
    [RTT_RAW_CAS] = {"raw_cas", "CAS", false, false},
    [RTT_RAW_LOCK_READ] = {"raw_lock_read", "CAS || READ", false, false},
    [RTT_RAW_LOCK_READ_READ] = {"raw_lock_read_read", "CAS || READ || READ", false, false},
    [RTT_RAW_LOCK_READ_ALL] = {"raw_lock_read_all", "CAS || READ, all nodes", false, true},
    [RTT_RAW_FLUSH] = {"raw_write_flush", "WRITE + flush", false, false},
    [RTT_RAW_FLUSH_ALL] = {"raw_write_flush_all", "WRITE + flush, all nodes", false, true},
    [RTT_RAW_VALIDATE] = {"raw_validate", "READ of a lock word", false, false},
    [RTT_READ_ONLY] = {"commit_read_only", "read one key", true, false},
    [RTT_WRITE] = {"commit_write", "write a known key", true, false},
    [RTT_WRITE_ALL] = {"commit_write_all", "write a key on all nodes", true, true},
    [RTT_READ_WRITE] = {"commit_read_write", "read one, write another", true, false},
};

static uint64_t now_ns(void)
{
    return cn_now_ns(cn_env_system());
}

/* ---- commits ---- */

static int get(struct rtt *r, struct cairn_tx *tx, const struct bn_key *const *keys,
    const bool *for_update, uint32_t count)
{
    struct cairn_read read[TL_NODES_MAX];
    char value[TL_NODES_MAX][BN_VALUE_SIZE];

    for (uint32_t i = 0; i < count; i++)
        read[i] = (struct cairn_read){.table = r->keys.table,
            .key = keys[i]->key,
            .key_size = BN_KEY_SIZE,
            .buf = value[i],
            .buf_size = BN_VALUE_SIZE,
            .for_update = for_update[i]};
    int rc = count == 1 && !for_update[0]
        ? cairn_get(tx, r->keys.table, keys[0]->key, BN_KEY_SIZE, value[0], BN_VALUE_SIZE,
              &read[0].value_size)
        : cairn_get_many(tx, read, count);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = read[i].status;
    return rc;
}

/* Read (and lock) all keys in one go, write those locked, commit. 0 with ABORTED: a conflict. */
static int transact(struct rtt *r, const struct bn_key *const *keys, const bool *for_update,
    uint32_t count, enum cairn_outcome *ret_outcome)
{
    struct cairn_tx *tx;
    int rc = cairn_begin(r->ctx, &tx);

    if (rc != 0)
        return rc;
    rc = get(r, tx, keys, for_update, count);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (for_update[i])
            rc = cairn_put(
                tx, r->keys.table, keys[i]->key, BN_KEY_SIZE, bn_value, BN_VALUE_SIZE);
    }
    if (rc == 0)
        return cairn_commit(tx, ret_outcome);
    cairn_abort(tx);
    *ret_outcome = CAIRN_OUTCOME_ABORTED;
    return rc == CAIRN_E_CONFLICT ? 0 : rc;
}

/* The keys of a commit in round k. Operations of one round take different ones. */
static uint32_t choose_keys(const struct rtt *r, enum rtt_op op, uint32_t k,
    const struct bn_key *keys[TL_NODES_MAX], bool for_update[TL_NODES_MAX])
{
    uint32_t second = (k + BN_KEYS / 3) % BN_KEYS, third = (k + 2 * BN_KEYS / 3) % BN_KEYS;

    for_update[0] = for_update[1] = op != RTT_READ_ONLY;
    switch (op) {
    case RTT_READ_ONLY: keys[0] = &r->keys.still[0][k]; return 1;
    case RTT_WRITE: keys[0] = &r->keys.written[0][k]; return 1;
    case RTT_READ_WRITE:
        for_update[0] = false;
        keys[0] = &r->keys.still[0][second];
        keys[1] = &r->keys.written[0][second];
        return 2;
    default:
        for (uint32_t i = 0; i < r->nodes; i++) {
            for_update[i] = true;
            keys[i] = &r->keys.written[i][third];
        }
        return (uint32_t)r->nodes;
    }
}

static void add_counted(struct rtt_counted *to, const struct rd_counters *before,
    const struct rd_counters *after, uint64_t round_trips)
{
#define ADD(field) to->c.field += after->field - before->field
    ADD(reads);
    ADD(cas);
    ADD(writes);
    ADD(flushes);
    ADD(marks);
    ADD(doorbells);
    ADD(completions);
    ADD(messages_sent);
    ADD(messages_received);
    ADD(bytes_read);
    ADD(bytes_written);
    ADD(wakeups);
    ADD(syscalls);
    ADD(registrations);
    ADD(flush_messages);
    ADD(cas_messages);
#undef ADD
    to->round_trips += round_trips;
    to->commits++;
}

static int commit_sample(struct rtt *r, enum rtt_op op, uint32_t k, bool record)
{
    const struct bn_key *keys[TL_NODES_MAX];
    bool for_update[TL_NODES_MAX];
    uint32_t count = choose_keys(r, op, k, keys, for_update);
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    struct rd_counters before, after;

    for (uint32_t i = 0; i < count; i++) {
        int rc = for_update[i]
            ? bn_raw_await_free(r->raw, op == RTT_WRITE_ALL ? i : 0, &keys[i]->at)
            : 0;
        if (rc != 0)
            return rc;
    }
    uint64_t trips = bn_ctx_counters(r->ctx, &before);
    uint64_t begin = now_ns();
    int rc = transact(r, keys, for_update, count, &outcome);
    uint64_t ns = now_ns() - begin;
    if (rc != 0)
        return rc;
    if (outcome != CAIRN_OUTCOME_COMMITTED) {
        r->counted[op].conflicts++;
        return outcome == CAIRN_OUTCOME_UNKNOWN
            ? cn_fail(CAIRN_E_NODE_DOWN,
                  "a node was lost in the middle of a commit; --verbose tells which and why")
            : 0;
    }
    trips = bn_ctx_counters(r->ctx, &after) - trips;
    if (op == RTT_WRITE && r->record_size == 0)
        r->record_size = bn_ctx_record_size(r->ctx, 0);
    if (op == RTT_WRITE_ALL && r->record_size_all == 0)
        r->record_size_all = bn_ctx_record_size(r->ctx, 0);
    if (record) {
        bn_histogram_add(&r->op[op], ns > r->clock_ns ? ns - r->clock_ns : 0);
        add_counted(&r->counted[op], &before, &after, trips);
    }
    return 0;
}

/* ---- raw operations ---- */

static int raw_sample(struct rtt *r, enum rtt_op op, uint32_t k, bool record)
{
    struct bn_word words[TL_NODES_MAX];
    const struct bn_word *word = &words[0];
    const struct bn_word *other = &r->keys.still[0][(k + 1) % BN_KEYS].at;
    int rc;

    for (uint32_t i = 0; i < r->nodes; i++)
        words[i] = r->keys.still[i][k].at;
    uint64_t begin = now_ns();
    switch (op) {
    case RTT_RAW_READ: rc = bn_raw_read(r->raw, 0, word, word->size); break;
    case RTT_RAW_CAS: rc = bn_raw_cas(r->raw, 0, word); break;
    case RTT_RAW_LOCK_READ: rc = bn_raw_lock_read(r->raw, 1, words); break;
    case RTT_RAW_LOCK_READ_READ: rc = bn_raw_lock_read_read(r->raw, 0, word, other); break;
    case RTT_RAW_LOCK_READ_ALL: rc = bn_raw_lock_read(r->raw, (uint32_t)r->nodes, words); break;
    case RTT_RAW_FLUSH: rc = bn_raw_flush(r->raw, 1, r->record_size); break;
    case RTT_RAW_FLUSH_ALL:
        rc = bn_raw_flush(r->raw, (uint32_t)r->nodes, r->record_size_all);
        break;
    default: rc = bn_raw_read(r->raw, 0, word, sizeof(uint64_t)); break;
    }
    uint64_t ns = now_ns() - begin;
    if (rc == 0 && record)
        bn_histogram_add(&r->op[op], ns > r->clock_ns ? ns - r->clock_ns : 0);
    return rc;
}

/* ---- rounds ---- */

static uint32_t list_ops(const struct rtt *r, enum rtt_op order[RTT_OP_COUNT])
{
    uint32_t count = 0;

    for (uint32_t op = 0; op < RTT_OP_COUNT; op++) {
        if ((!rtt_ops[op].all || r->nodes > 1) &&
            (r->only == NULL || strcmp(r->only, rtt_ops[op].name) == 0))
            order[count++] = (enum rtt_op)op;
    }
    return count;
}

static int run_round(struct rtt *r, enum rtt_op *order, uint32_t count, bool record)
{
    uint32_t k = (uint32_t)(r->rounds * BURST % BN_KEYS);
    int rc = 0;

    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)(cn_random64(cn_env_system()) % i);
        enum rtt_op swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    for (uint32_t i = 0; i < count * BURST && rc == 0; i++) {
        enum rtt_op op = order[i / BURST];
        bool counts = record && i % BURST != 0 &&
            (r->samples == 0 || r->op[op].count < r->samples);
        rc = (rtt_ops[op].commit ? commit_sample : raw_sample)(r, op, k + i % BURST, counts);
    }
    r->rounds++;
    return rc;
}

/* What two readings of the clock cost: the median of many. */
static uint64_t measure_clock(void)
{
    struct bn_histogram *h = calloc(1, sizeof(*h));
    uint64_t ns = 0;

    for (uint32_t i = 0; i < CLOCK_TRIES && h != NULL; i++) {
        uint64_t begin = now_ns();
        bn_histogram_add(h, now_ns() - begin);
    }
    if (h != NULL)
        ns = bn_histogram_quantile(h, 0.5);
    free(h);
    return ns;
}

static int measure(struct rtt *r)
{
    enum rtt_op order[RTT_OP_COUNT];
    uint32_t count = list_ops(r, order);
    int rc = commit_sample(r, RTT_WRITE, 0, false);

    if (rc == 0 && r->nodes > 1)
        rc = commit_sample(r, RTT_WRITE_ALL, 0, false);
    if (rc == 0 && (r->record_size == 0 || (r->nodes > 1 && r->record_size_all == 0)))
        rc = cn_fail(CAIRN_E_CONFLICT, "other work meets the benchmark's keys");
    for (uint32_t i = 0; i < WARM_ROUNDS && rc == 0; i++)
        rc = run_round(r, order, count, false);
    for (uint32_t i = 0; i < RTT_OP_COUNT; i++)
        r->counted[i].conflicts = 0;
    r->rounds = 0;
    uint64_t begin = now_ns(), end = begin + r->seconds * UINT64_C(1000000000);
    while (rc == 0 && (r->samples != 0 ? r->rounds * (BURST - 1) < r->samples : now_ns() < end)) {
        rc = run_round(r, order, count, true);
        if (rc == 0 && r->rounds % CHECK_EVERY == 0)
            rc = tl_cluster_check(&r->cluster);
    }
    r->took_ns = now_ns() - begin;
    return rc;
}

/* ---- the run ---- */

static int open_all(struct rtt *r)
{
    const struct txn_config_table *table;
    int rc = tl_cluster_start(&r->options, &r->cluster);

    if (rc != 0)
        return rc;
    const struct txn_config *config = r->cluster.config;
    r->nodes = cn_min64(r->nodes, config->node_count);
    table = r->table_name == NULL ? &config->table[0]
                                  : txn_config_find_table(config, r->table_name);
    if (table == NULL)
        return cn_fail(CAIRN_E_NO_TABLE, "no table \"%s\" in %s", r->table_name, config->path);
    rc = cairn_open(r->cluster.path, NULL, &r->cairn);
    if (rc == 0)
        rc = cairn_ctx_open(r->cairn, &r->ctx);
    if (rc == 0)
        rc = bn_keys_make(r->ctx, config, table->id, (uint32_t)r->nodes, &r->keys);
    if (rc == 0)
        rc = bn_raw_open(config, (uint32_t)r->nodes, &r->raw);
    return rc;
}

static int run_all(struct rtt *r)
{
    char what[128];
    int rc = open_all(r);

    r->clock_ns = measure_clock();
    if (rc == 0) {
        if (r->samples != 0)
            (void)snprintf(what, sizeof(what), "measuring %llu samples of each operation",
                (unsigned long long)r->samples);
        else
            (void)snprintf(what, sizeof(what), "measuring for %llu s",
                (unsigned long long)r->seconds);
        struct tl_progress *progress = tl_progress_start(what);
        rc = measure(r);
        tl_progress_end(progress);
    }
    if (rc == 0 && !r->cluster.own)
        rc = bn_keys_delete(r->ctx, &r->keys);
    return rc;
}

static void close_all(struct rtt *r)
{
    if (r->raw != NULL)
        bn_raw_close(&r->raw);
    if (r->ctx != NULL)
        cairn_ctx_close(&r->ctx);
    if (r->cairn != NULL)
        cairn_close(&r->cairn);
}

static bool is_persistence(const char *text)
{
    static const char *const names[] = {"auto", "apm", "gpspm", "eadr", "emulated"};

    for (size_t i = 0; i < CN_ARRAY_SIZE(names); i++) {
        if (strcmp(text, names[i]) == 0)
            return true;
    }
    return false;
}

static int parse(struct rtt *r, int argc, char **argv)
{
    const struct tl_option options[] = {
        {.name = "fabric", .arg = "NAME", .help = "emu or rpma (default emu)",
            .text = &r->options.fabric},
        {.name = "address", .arg = "IP",
            .help = "rpma: where its nodes listen (default: the only RDMA device's IPv4 address)",
            .text = &r->options.address},
        {.name = "participants", .arg = "N", .help = "nodes that take part (default 2)",
            .number = &r->nodes, .min = 1, .max = TL_NODES_MAX},
        {.name = "samples", .arg = "N", .help = "of each operation (default: by time)",
            .number = &r->samples, .min = 10, .max = 100000000},
        {.name = "seconds", .arg = "S", .help = "how long to measure (default 5)",
            .number = &r->seconds, .min = 1, .max = 3600},
        {.name = "persistence", .arg = "MODE",
            .help = "of its nodes: auto, apm, gpspm, eadr or emulated (default auto)",
            .text = &r->options.persistence},
        {.name = "linger", .arg = "US",
            .help = "its nodes poll so long after work came (default 10000)",
            .number = &r->options.linger_us, .min = 1, .max = 1000000},
        {.name = "config", .arg = "FILE", .help = "measure on this running cluster instead",
            .text = &r->options.config},
        {.name = "table", .arg = "NAME", .help = "with --config: a table (default: the first)",
            .text = &r->table_name},
        {.name = "check", .help = "exit 1 if a ratio exceeds its target", .flag = &r->check},
        {.name = "verbose", .help = "log everything", .flag = &r->verbose},
        {.name = "only",
            .arg = "NAME",
            .help = "one operation, for a profiler: a name out of the JSON",
            .text = &r->only},
        {.name = "json", .help = "print one JSON object", .flag = &r->json},
        {.name = NULL},
    };
    int first, rc = tl_parse(r->self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (r->options.config != NULL &&
        (r->options.address != NULL || r->options.persistence != NULL || r->options.linger_us != 0))
        return tl_error(r->self, "--address, --persistence and --linger are of a cluster of its "
                                 "own: not with --config");
    if (r->options.persistence != NULL && !is_persistence(r->options.persistence))
        return tl_error(r->self,
            "--persistence: must be auto, apm, gpspm, eadr or emulated, not \"%.40s\"",
            r->options.persistence);
    bool known = r->only == NULL;
    for (uint32_t op = 0; op < RTT_OP_COUNT; op++)
        known = known || strcmp(r->only, rtt_ops[op].name) == 0;
    if (!known)
        return tl_error(r->self,
            "--only: no operation \"%.40s\"; latency_ns of the JSON names them", r->only);
    if (r->only != NULL && r->check)
        return tl_error(r->self, "--check needs all operations: not with --only");
    r->options.nodes = (uint32_t)r->nodes;
    return -1;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct rtt *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return tl_error(self, "no memory");
    r->self = self;
    r->options.fabric = "emu";
    r->options.name = "bench";
    r->nodes = 2;
    r->seconds = 5;
    int rc = parse(r, argc, argv);
    if (rc == -1) {
        tl_catch_signals();
        cn_env_system_log_level(r->verbose ? CN_LOG_DEBUG : CN_LOG_ERROR);
        int error = run_all(r);
        rc = TL_OK;
        if (error != 0)
            rc = tl_cairn_error(self, error, r->json);
        else
            rtt_report(r);
        if (rc == TL_OK && r->check && !rtt_is_good(r->op))
            rc = TL_BAD;
        close_all(r);
        (void)tl_cluster_stop(&r->cluster, false);
    }
    free(r);
    return rc;
}

const struct tl_command bn_rtt = {
    .name = "bench rtt",
    .args = "[OPTION...]",
    .summary = "Latency of commits beside that of the raw one-sided operations they are made of.",
    .example = "  cairn bench rtt --seconds 3\n"
               "  cairn bench rtt --fabric rpma --json | jq .ratios\n"
               "  (one run, interleaved; exit 1 with --check if a commit costs too much more)\n",
    .run = run,
};
