/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_recovery_log.c: a cluster whose nodes are killed while their rings are full of committed
 * records. Nothing is made up: a process of its own, the writer, commits through the public API,
 * which needs nothing of a stopped node's processor; then nodes and writer are killed together.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmem/pm_store.h"
#include "tools/bench/bn_recovery.h"

#define TX_TIMEOUT_MS 30000u
#define READY_TIMEOUT_MS 60000
#define LOAD_BYTES (128u * 1024) /* of values in one transaction that makes keys */
#define LOAD_KEYS 64u
#define SPARE_CHUNKS 24u /* of 2 MiB: index, a chunk per class, what is taken ahead of need */
#define INDEX_BYTES 64u  /* of the index, per item, at most */

uint32_t rv_record_size(const struct rv_shape *s)
{
    uint64_t size = sizeof(struct pm_record_pm) +
        s->participants * sizeof(struct pm_participant_pm) + sizeof(struct pm_lock_pm) +
        pm_record_write_size(sizeof(uint64_t), s->value_size);

    return (uint32_t)cn_align_up(size, PM_RECORD_ALIGN);
}

void rv_value(const struct rv_cluster *c, uint64_t key, uint32_t round, uint8_t *ret)
{
    uint64_t word = cn_mix64(c->shape.seed ^ cn_mix64(key ^ (uint64_t)round << 40));

    for (uint32_t at = 0; at < c->shape.value_size; at += (uint32_t)sizeof(word)) {
        memcpy(ret + at, &word, cn_min64(sizeof(word), c->shape.value_size - at));
        word += UINT64_C(0x9e3779b97f4a7c15);
    }
}

/* ---- the writer: a forked child ---- */

struct writer {
    const struct rv_cluster *c;
    struct cairn *cluster;
    struct cairn_ctx *ctx[RV_SLOTS_MAX];
    uint32_t from, count, step, round; /* of a transaction: keys order[from + i * step] */
    uint8_t *value;
};

static int put_some(struct cairn_tx *tx, void *arg)
{
    const struct writer *w = arg;
    const struct rv_cluster *c = w->c;
    int rc = 0;

    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t number = c->order[w->from + i * w->step];
        for (uint32_t p = 0; p < c->shape.participants && rc == 0; p++) {
            const uint64_t *key = &c->key[p][number];
            rv_value(c, *key, w->round, w->value);
            rc = cairn_put(tx, RV_TABLE, key, sizeof(*key), w->value, c->shape.value_size);
        }
    }
    return rc;
}

static int read_some(struct cairn_tx *tx, void *arg)
{
    const struct writer *w = arg;
    const struct rv_cluster *c = w->c;
    size_t size;
    int rc = 0;

    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t number = c->order[w->from + i * w->step];
        for (uint32_t p = 0; p < c->shape.participants && rc == 0; p++) {
            const uint64_t *key = &c->key[p][number];
            rc = cairn_get(tx, RV_TABLE, key, sizeof(*key), w->value, CAIRN_VALUE_SIZE_MAX, &size);
        }
    }
    return rc;
}

static uint32_t per_transaction(const struct rv_shape *s)
{
    uint32_t count = LOAD_BYTES / s->value_size < LOAD_KEYS ? LOAD_BYTES / s->value_size
                                                            : LOAD_KEYS;

    return count / s->participants == 0 ? 1 : count / s->participants;
}

/* fn over keys order[0 .. count - 1] of the slot's share, several at a time, nodes awake. */
static int run_over(struct writer *w, int (*fn)(struct cairn_tx *, void *), uint32_t slot,
    uint32_t slots, uint32_t count)
{
    uint32_t most = per_transaction(&w->c->shape);
    int rc = 0;

    w->step = slots;
    for (uint32_t i = slot; i < count && rc == 0; i += most * slots) {
        w->from = i;
        w->count = (uint32_t)cn_min64(most, (count - i + slots - 1) / slots);
        rc = cairn_run(w->ctx[slot], fn, w, TX_TIMEOUT_MS, NULL);
    }
    return rc;
}

static int open_writer(struct writer *w, uint32_t slots)
{
    struct cairn_options options = CAIRN_OPTIONS_DEFAULT;

    options.cache_entries = 2 * w->c->shape.keys * w->c->shape.participants;
    int rc = cairn_open(w->c->path, &options, &w->cluster);
    for (uint32_t i = 0; i < slots && rc == 0; i++)
        rc = cairn_ctx_open(w->cluster, &w->ctx[i]);
    return rc;
}

/* Each once, at the first try: its key is known, and free. */
static int commit_records(struct writer *w, uint32_t records)
{
    uint32_t slots = w->c->shape.slots;
    int rc = 0;

    w->count = 1;
    for (uint32_t i = 0; i < records && rc == 0; i++) {
        enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
        struct cairn_tx *tx;
        w->from = i;
        rc = cairn_begin(w->ctx[i % slots], &tx);
        if (rc == 0)
            rc = put_some(tx, w);
        if (rc == 0)
            rc = cairn_commit(tx, &outcome);
        if (rc == 0 && outcome != CAIRN_OUTCOME_COMMITTED)
            rc = cn_fail(CAIRN_E_CONFLICT, "record %u of %u: %s", i, records,
                cairn_outcome_name(outcome));
    }
    return rc;
}

struct orders { /* to a writer: what to do; tokens go both ways */
    uint32_t records;
    bool load;
    int from_parent, to_parent;
};

static bool tell(int fd)
{
    char token = '.';

    return write(fd, &token, 1) == 1;
}

static int work(struct writer *w, const struct orders *o)
{
    const struct rv_shape *s = &w->c->shape;
    char token;
    int rc = open_writer(w, o->load ? 1 : s->slots);

    if (o->load) {
        w->round = 0;
        rc = rc == 0 ? run_over(w, put_some, 0, 1, s->keys) : rc;
        if (w->ctx[0] != NULL)
            cairn_ctx_close(&w->ctx[0]);
        return rc;
    }
    w->round = w->c->rounds;
    for (uint32_t i = 0; i < s->slots && rc == 0; i++)
        rc = run_over(w, read_some, i, s->slots, o->records);
    if (rc != 0 || !tell(o->to_parent) || read(o->from_parent, &token, 1) != 1)
        return rc;
    return commit_records(w, o->records);
}

CN_NORETURN static void be_writer(const struct rv_cluster *c, const struct orders *o, pid_t parent)
{
    struct writer w = {.c = c, .value = malloc(CAIRN_VALUE_SIZE_MAX + 8)};
    int rc = w.value == NULL ? cn_fail(-ENOMEM, "no memory") : 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TL_USAGE);
    if (rc == 0)
        rc = work(&w, o);
    if (rc != 0) {
        (void)fprintf(stderr, "cairn bench recovery: writer: %s: %s\n", cairn_error_name(rc),
            cairn_last_error());
        _exit(TL_BAD);
    }
    (void)tell(o->to_parent);
    if (!o->load)
        (void)pause(); /* holds its rings until it is killed */
    _exit(TL_OK);
}

/* ---- the cluster ---- */

static uint64_t pool_size_of(const struct rv_shape *s, const struct pm_geometry *geometry)
{
    uint64_t block = pm_class_size(pm_class_for(sizeof(uint64_t), s->value_size));
    uint64_t chunk = UINT64_C(2) << 20;
    uint64_t heap = (s->keys / (chunk / block) + 1 + SPARE_CHUNKS) * chunk +
        (uint64_t)s->keys * INDEX_BYTES;

    return s->pool_size != 0 ? s->pool_size : pm_pool_size_min(geometry, heap);
}

static void complete_shape(struct rv_shape *s)
{
    struct pm_geometry geometry = {.slot_count = s->slots + 2, .window = s->window};

    /* A load's transactions need more at a time than the records of a log. */
    if (s->ring_size == 0)
        s->ring_size = cn_max64((uint64_t)(s->window + 8) * rv_record_size(s),
            UINT64_C(8) * LOAD_BYTES);
    s->ring_size = cn_align_up(s->ring_size, 4096);
    geometry.ring_size = s->ring_size;
    s->pool_size = cn_align_up(pool_size_of(s, &geometry), UINT64_C(1) << 20);
}

static int write_config(struct rv_cluster *c)
{
    const struct rv_shape *s = &c->shape;
    char uuid[CN_UUID_TEXT_SIZE];
    struct cn_uuid cluster;
    FILE *f = fopen(c->path, "wxe");

    if (f == NULL)
        return cn_fail(-errno, "%s: cannot write: %s", c->path, strerror(errno));
    memset(&cluster, 0x5c, sizeof(cluster)); /* with the keys it decides their shards */
    memcpy(cluster.b, &s->seed, sizeof(s->seed));
    cn_uuid_format(&cluster, uuid);
    fprintf(f, "cluster = \"%s\";\nfabric = \"emu\";\nnodes = (\n", uuid);
    for (uint32_t i = 1; i <= s->participants; i++)
        fprintf(f,
            "    { id = %u; address = \"n%u.sock\"; pool = \"n%u.pool\"; size = \"%" PRIu64
            "\"; }%s\n",
            i, i, i, s->pool_size, i == s->participants ? "" : ",");
    fprintf(f,
        ");\ntables = ( { id = %u; name = \"bench\"; } );\n"
        "options = { slots = %u; ring_size = \"%" PRIu64
        "\"; window = %u; lease_ms = 60000; resolve_ms = 60000; };\n",
        RV_TABLE, s->slots + 2, s->ring_size, s->window);
    if (fclose(f) != 0)
        return cn_fail(-errno, "%s: cannot write: %s", c->path, strerror(errno));
    return 0;
}

static int choose_keys(struct rv_cluster *c)
{
    const struct rv_shape *s = &c->shape;
    uint64_t random = s->seed;
    uint32_t found[TL_NODES_MAX] = {0}, whole = 0;

    c->round = calloc(s->keys, sizeof(*c->round));
    c->order = calloc(s->keys, sizeof(*c->order));
    for (uint32_t p = 0; p < s->participants; p++) {
        c->key[p] = calloc(s->keys, sizeof(uint64_t));
        if (c->key[p] == NULL || c->round == NULL || c->order == NULL)
            return cn_fail(-ENOMEM, "no memory for %u keys", s->keys);
    }
    for (uint64_t key = 1; whole < s->participants; key++) {
        uint32_t p = txn_config_shard(c->config, RV_TABLE, &key, sizeof(key));
        if (found[p] == s->keys)
            continue;
        c->key[p][found[p]++] = key;
        whole += found[p] == s->keys;
    }
    for (uint32_t i = 0; i < s->keys; i++) {
        uint32_t j = tl_draw(&random, i + 1);
        c->order[i] = c->order[j];
        c->order[j] = i;
    }
    return 0;
}

static int start_nodes(struct rv_cluster *c)
{
    char line[256];
    int rc = 0;

    for (uint32_t i = 0; i < c->shape.participants && rc == 0; i++)
        rc = tl_proc_start_node(&c->node[i], c->folder, c->path, i + 1, true);
    for (uint32_t i = 0; i < c->shape.participants && rc == 0; i++) {
        rc = tl_proc_ready(&c->node[i], c->folder, READY_TIMEOUT_MS, line, sizeof(line));
        if (rc == 0)
            return cn_fail(CAIRN_E_TIMEOUT, "%s does not become ready", c->node[i].name);
        rc = rc < 0 ? rc : 0;
    }
    return rc;
}

static int signal_nodes(const struct rv_cluster *c, int signal_number)
{
    for (uint32_t i = 0; i < c->shape.participants; i++) {
        int status;
        if (kill(c->node[i].pid, signal_number) != 0)
            return cn_fail(-errno, "%s: %s", c->node[i].name, strerror(errno));
        if (signal_number == SIGSTOP && waitpid(c->node[i].pid, &status, WUNTRACED) < 0)
            return cn_fail(-errno, "%s: %s", c->node[i].name, strerror(errno));
    }
    return 0;
}

static int await(int fd, const char *what)
{
    char token;

    return read(fd, &token, 1) == 1 ? 0 : cn_fail(CAIRN_E_STATE, "the writer %s", what);
}

/* With the writer: load; or read, let the nodes be stopped, commit. */
static int direct(struct rv_cluster *c, const struct orders *o, int to_writer, int from_writer)
{
    int rc = 0;

    if (!o->load) {
        rc = await(from_writer, "cannot read the keys");
        if (rc == 0)
            rc = signal_nodes(c, SIGSTOP);
        if (rc == 0 && !tell(to_writer))
            rc = cn_fail(-errno, "cannot tell the writer");
    }
    return rc != 0 ? rc : await(from_writer, o->load ? "cannot load" : "cannot commit");
}

static int run_writer(struct rv_cluster *c, uint32_t records, bool load)
{
    int down[2], up[2];
    pid_t parent = getpid();

    if (pipe(down) != 0 || pipe(up) != 0)
        return cn_fail(-errno, "cannot make a pipe: %s", strerror(errno));
    struct orders o = {records, load, down[0], up[1]};
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(down[1]);
        (void)close(up[0]);
        be_writer(c, &o, parent);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    int rc = pid < 0 ? cn_fail(-errno, "cannot fork: %s", strerror(errno))
                     : direct(c, &o, down[1], up[0]);
    for (uint32_t i = 0; i < c->shape.participants && !load; i++)
        (void)tl_proc_kill(&c->node[i]);
    if (pid > 0 && !load)
        (void)kill(pid, SIGKILL);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    (void)close(down[1]);
    (void)close(up[0]);
    return rc;
}

/* The keys are there, and nothing is left in a ring. */
static int load(struct rv_cluster *c)
{
    int rc = start_nodes(c);

    if (rc == 0)
        rc = run_writer(c, 0, true);
    if (rc == 0)
        rc = signal_nodes(c, SIGTERM);
    for (uint32_t i = 0; i < c->shape.participants && rc == 0; i++) {
        for (uint32_t waited = 0; (rc = tl_proc_ended(&c->node[i], c->folder)) == 0; waited++) {
            if (waited == 1000)
                return cn_fail(CAIRN_E_TIMEOUT, "%s does not end", c->node[i].name);
            (void)usleep(10000);
        }
        rc = rc < 0 ? rc : 0;
    }
    return rc;
}

int rv_cluster_make(const struct rv_shape *shape, struct rv_cluster *c)
{
    memset(c, 0, sizeof(*c));
    c->shape = *shape;
    complete_shape(&c->shape);
    int rc = tl_folder_make("cairn-recovery",
        c->shape.participants * c->shape.pool_size +
            2 * (uint64_t)c->shape.value_size * c->shape.keys + (UINT64_C(16) << 20),
        c->folder);
    if (rc != 0)
        return rc;
    (void)snprintf(c->path, sizeof(c->path), "%s/cairn.conf", c->folder);
    rc = write_config(c);
    if (rc == 0)
        rc = txn_config_load(c->path, &c->config);
    if (rc == 0)
        rc = choose_keys(c);
    return rc == 0 ? load(c) : rc;
}

int rv_cluster_crash(struct rv_cluster *c, uint32_t records)
{
    int rc = start_nodes(c);

    CAIRN_ASSERT(records <= c->shape.keys);
    c->rounds++;
    if (rc == 0)
        rc = run_writer(c, records, false);
    for (uint32_t i = 0; i < records && rc == 0; i++)
        c->round[c->order[i]] = c->rounds;
    return rc;
}

void rv_cluster_end(struct rv_cluster *c)
{
    for (uint32_t i = 0; i < TL_NODES_MAX; i++) {
        (void)tl_proc_kill(&c->node[i]);
        free(c->key[i]);
    }
    free(c->round);
    free(c->order);
    if (c->config != NULL)
        txn_config_free(&c->config);
    if (c->folder[0] != '\0')
        tl_folder_remove(c->folder);
    memset(c, 0, sizeof(*c));
}
