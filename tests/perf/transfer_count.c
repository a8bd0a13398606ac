/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transfer_count.c: a program to be counted by callgrind (transfer_count.sh): warm transfers
 * between two keys at two nodes, by the blocking API, and warm reads. What is counted is the
 * coordinator's side of the fabric seam: collection is on inside measure_pass(), and off inside
 * seam_*(), which stand between the coordinator and the back end. The nodes are threads of this
 * process; they are never inside either.
 *
 * No key is used twice in one pass, so nothing depends on how fast the nodes apply; between passes
 * they are waited for.
 *
 *   transfer_count get|many|commit|read|time-get|time-many|time-read COUNT
 *       get     get_for_update, get_for_update, put, put, commit
 *       many    one get_many of two keys for update, put, put, commit
 *       commit  as get; only the commit is counted, in measure_commit()
 *       read    get of one key, commit
 *       time-*  no counting: nanoseconds of each, the best pass of COUNT
 */
#include <time.h>
#include <unistd.h>

#include "tests/support/ts_cluster.h"

#define TABLE 1u
#define PAIRS 200u
#define WARM_PASSES 3u

/* ---- the seam ---- */

static struct rd_ops seam;       /* the back end's operations, through seam_*() */
static const struct rd_ops *real;
static bool commits; /* what is measured: only commits */
uint32_t seam_poll(struct rd_ep *ep, struct rd_event *events, uint32_t max);
int seam_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
    unsigned flags);
int seam_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags);
int seam_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote, const void *local, uint32_t size,
    unsigned flags);
int seam_flush(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags);
int seam_mark(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags);
void seam_doorbell(struct rd_conn *c);

uint32_t seam_poll(struct rd_ep *ep, struct rd_event *events, uint32_t max)
{
    return real->poll(ep, events, max);
}

int seam_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
    unsigned flags)
{
    return real->read(c, wr_id, remote, local, size, flags);
}

int seam_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    return real->cas(c, wr_id, remote, expected, desired, local_old, flags);
}

int seam_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote, const void *local, uint32_t size,
    unsigned flags)
{
    return real->write(c, wr_id, remote, local, size, flags);
}

int seam_flush(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    return real->flush(c, wr_id, remote, size, flags);
}

int seam_mark(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    return real->mark(c, wr_id, remote, value, flags);
}

void seam_doorbell(struct rd_conn *c)
{
    real->doorbell(c);
}

static int open_ep(struct rd_fabric *fabric, const struct rd_ep_config *config, struct rd_ep **ret)
{
    int rc = real->ep_open(fabric, config, ret);
    if (rc == 0)
        (*ret)->ops = &seam;
    return rc;
}

static int connect_conn(struct rd_ep *ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret)
{
    int rc = real->connect(ep, address, hello, size, deadline_ns, ret);
    if (rc == 0)
        (*ret)->ops = &seam;
    return rc;
}

static void put_seam(struct rd_fabric *fabric)
{
    real = fabric->ops;
    seam = *real;
    seam.ep_open = open_ep;
    seam.connect = connect_conn;
    fabric->ops = &seam;
}

/* Each call of these turns the collection over, so they are there only where it is on. */
static void count_seam(bool on)
{
    seam.poll = on ? seam_poll : real->poll;
    seam.read = on ? seam_read : real->read;
    seam.cas = on ? seam_cas : real->cas;
    seam.write = on ? seam_write : real->write;
    seam.flush = on ? seam_flush : real->flush;
    seam.mark = on ? seam_mark : real->mark;
    seam.doorbell = on ? seam_doorbell : real->doorbell;
}

/* ---- the load ---- */

struct load {
    struct ts_cluster *cluster;
    struct cairn_ctx *ctx;
    char key[PAIRS][2][32];
    size_t key_size[PAIRS][2];
    uint64_t checksum;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "transfer_count: %s: %s\n", what, cairn_last_error());
    exit(1);
}

int measure_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome);

__attribute__((noinline)) int measure_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome)
{
    return cairn_commit(tx, ret_outcome);
}

static void commit(struct cairn_tx *tx)
{
    enum cairn_outcome outcome;
    int rc;

    if (commits)
        count_seam(true);
    rc = commits ? measure_commit(tx, &outcome) : cairn_commit(tx, &outcome);
    if (commits)
        count_seam(false);
    check(rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED, "commit");
}

static void put_both(struct load *l, struct cairn_tx *tx, uint32_t pair, uint64_t balance[2])
{
    balance[0]--;
    balance[1]++;
    for (uint32_t i = 0; i < 2; i++)
        check(cairn_put(tx, TABLE, l->key[pair][i], l->key_size[pair][i], &balance[i],
                  sizeof(balance[i])) == 0,
            "put");
}

static void transfer_get(struct load *l, uint32_t pair)
{
    struct cairn_tx *tx;
    uint64_t balance[2];
    size_t size;

    check(cairn_begin(l->ctx, &tx) == 0, "begin");
    for (uint32_t i = 0; i < 2; i++)
        check(cairn_get_for_update(tx, TABLE, l->key[pair][i], l->key_size[pair][i], &balance[i],
                  sizeof(balance[i]), &size) == 0,
            "get_for_update");
    put_both(l, tx, pair, balance);
    commit(tx);
}

static void transfer_many(struct load *l, uint32_t pair)
{
    struct cairn_read read[2];
    struct cairn_tx *tx;
    uint64_t balance[2];

    check(cairn_begin(l->ctx, &tx) == 0, "begin");
    for (uint32_t i = 0; i < 2; i++)
        read[i] = (struct cairn_read){.table = TABLE,
            .key = l->key[pair][i],
            .key_size = l->key_size[pair][i],
            .buf = &balance[i],
            .buf_size = sizeof(balance[i]),
            .for_update = 1};
    check(cairn_get_many(tx, read, 2) == 0 && read[0].status == 0 && read[1].status == 0,
        "get_many");
    put_both(l, tx, pair, balance);
    commit(tx);
}

static void read_one(struct load *l, uint32_t pair)
{
    struct cairn_tx *tx;
    uint64_t balance;
    size_t size;

    check(cairn_begin(l->ctx, &tx) == 0, "begin");
    check(cairn_get(tx, TABLE, l->key[pair][0], l->key_size[pair][0], &balance, sizeof(balance),
              &size) == 0,
        "get");
    commit(tx);
}

/* Read every key until the nodes have released it. */
static void settle(struct load *l)
{
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < 2; i++) {
            struct cairn_tx *tx;
            uint64_t balance;
            size_t size;
            check(cairn_begin(l->ctx, &tx) == 0, "begin");
            check(cairn_get(tx, TABLE, l->key[pair][i], l->key_size[pair][i], &balance,
                      sizeof(balance), &size) == 0,
                "get");
            commit(tx);
            sum += balance;
        }
        check(sum == 2000, "the sum of a pair has changed");
    }
}

static void fill(struct load *l)
{
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        struct cairn_tx *tx;
        uint64_t balance = 1000;
        check(cairn_begin(l->ctx, &tx) == 0, "begin");
        for (uint32_t i = 0; i < 2; i++) {
            l->key_size[pair][i] = ts_cluster_key(l->cluster, TABLE, i, pair, l->key[pair][i]);
            check(cairn_put(tx, TABLE, l->key[pair][i], l->key_size[pair][i], &balance,
                      sizeof(balance)) == 0,
                "put");
        }
        commit(tx);
    }
    settle(l);
}

/* ---- what is counted ---- */

typedef void (*action)(struct load *l, uint32_t pair);
void measure_pass(struct load *l, action act, uint32_t count);

__attribute__((noinline)) void measure_pass(struct load *l, action act, uint32_t count)
{
    for (uint32_t pair = 0; pair < count; pair++)
        act(l, pair);
}

static void pass(struct load *l, action act, uint32_t count)
{
    for (uint32_t pair = 0; pair < count; pair++)
        act(l, pair);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds of one action, the best pass of `passes`. */
static void time_it(struct load *l, action act, uint32_t passes)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < passes; i++) {
        uint64_t begin = now_ns();
        pass(l, act, PAIRS);
        best = cn_min64(best, now_ns() - begin);
        settle(l);
    }
    (void)printf("%.1f ns\n", (double)best / PAIRS);
}

int main(int argc, char **argv)
{
    static struct load load;
    struct load *l = &load;
    struct pm_geometry geometry = {
        .chunk_shift = 20, .slot_count = 4, .window = 4096, .ring_size = 4u << 20, .depth0 = 5};

    if (argc != 3) {
        (void)fprintf(stderr, "usage: transfer_count get|many|commit|read|time-get|time-many|"
                              "time-read COUNT\n");
        return 2;
    }
    bool timed = strncmp(argv[1], "time-", 5) == 0;
    const char *what = timed ? argv[1] + 5 : argv[1];
    action act = strcmp(what, "many") == 0 ? transfer_many
        : strcmp(what, "read") == 0        ? read_one
                                           : transfer_get;
    uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
    l->cluster = ts_cluster_new(2, &geometry, NULL);
    if (!timed)
        put_seam(l->cluster->fabric);
    check(cairn_ctx_open(l->cluster->cairn, &l->ctx) == 0, "context");
    fill(l);
    for (uint32_t i = 0; i < WARM_PASSES; i++) {
        pass(l, act, PAIRS);
        settle(l);
    }
    if (timed)
        time_it(l, act, count);
    else {
        commits = strcmp(what, "commit") == 0;
        count_seam(!commits);
        measure_pass(l, act, count < PAIRS ? count : PAIRS);
        commits = false;
        count_seam(false);
    }
    settle(l);
    cairn_ctx_close(&l->ctx);
    ts_cluster_delete(&l->cluster);
    return 0;
}
