/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmemobj_transfer.c: the yardstick for Cairn's transfer: the same on one machine with libpmemobj,
 * written as its manual says. Two objects of 64 bytes out of many, each transfer one transaction:
 * both objects snapshotted, both written, all of it durable at TX_END.
 *
 * What is in its favour: objects are found by their index, without a key or a hash; nobody else is
 * there, so nothing is locked (--locks takes a PMEMmutex of each object inside the transaction,
 * which is how libpmemobj isolates); objects are aligned to cache lines, next to each other.
 *
 * The pool lies in a file of tmpfs. PMEM_IS_PMEM_FORCE=1 is set (the program starts itself again
 * with it): libpmem then flushes with CLWB and SFENCE as it does on persistent memory, where it
 * would call msync() otherwise. Cairn's nodes flush by the same pmem_flush() and pmem_drain().
 *
 * At the end the pool is closed and opened again: the sum of all balances must be what it was, and
 * the counts of moves must sum up to two per transfer. Otherwise: no figure, exit code 1.
 */
#include <errno.h>
#include <getopt.h>
#include <libpmemobj.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/pmemobj_count.h"

#define OBJECT_SIZE 64u
#define BALANCE 1000u
#define OBJECTS_MAX (1u << 24)
#define BATCH 16u       /* transfers between two looks at the clock */
#define TICK_NS 5u      /* of the histogram of times per transfer */
#define TICKS (1u << 14) /* up to 80 us */

struct object {
    uint64_t balance, moves;
    uint8_t rest[OBJECT_SIZE - 16];
};
struct root {
    PMEMoid objects, mutexes;
    uint64_t count;
};
struct run {
    const char *path;
    uint64_t count, seed;
    double seconds, warm_up;
    bool locks;
    PMEMobjpool *pool;
    struct object *object;
    PMEMmutex *mutex;
    uint64_t ticks[TICKS]; /* batches by the time of each of their transfers */
};

/* Exit codes. */
enum { GOOD, WRONG, TROUBLE };

static int fail(const char *what)
{
    (void)fprintf(stderr, "pmemobj_transfer: %s: %s\n", what, pmemobj_errormsg());
    return TROUBLE;
}

static double now(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The array of `size` bytes, from a cache line on: an allocation begins 16 bytes after one. */
static void *align(PMEMoid oid)
{
    uintptr_t at = (uintptr_t)pmemobj_direct(oid);
    return (void *)((at + OBJECT_SIZE - 1) & ~(uintptr_t)(OBJECT_SIZE - 1));
}

static void find(struct run *r)
{
    const struct root *root = pmemobj_direct(pmemobj_root(r->pool, sizeof(struct root)));
    r->object = align(root->objects);
    r->mutex = align(root->mutexes);
}

static int make(struct run *r)
{
    const size_t size = (size_t)(r->count * (OBJECT_SIZE + sizeof(PMEMmutex)));

    r->pool = pmemobj_create(r->path, "transfer", size + size / 4 + (32u << 20), 0600);
    if (r->pool == NULL)
        return fail(r->path);
    struct root *root = pmemobj_direct(pmemobj_root(r->pool, sizeof(struct root)));
    if (pmemobj_zalloc(r->pool, &root->objects, (size_t)(r->count + 1) * OBJECT_SIZE, 1) != 0 ||
        pmemobj_zalloc(r->pool, &root->mutexes, (size_t)(r->count + 1) * sizeof(PMEMmutex), 2) != 0)
        return fail("allocate");
    root->count = r->count;
    find(r);
    for (uint64_t i = 0; i < r->count; i++)
        r->object[i].balance = BALANCE;
    pmemobj_persist(r->pool, r->object, (size_t)r->count * OBJECT_SIZE);
    pmemobj_persist(r->pool, root, sizeof(*root));
    return 0;
}

/* Both objects are read, then written as a whole. */
static int transfer(struct run *r, uint64_t from, uint64_t to, uint64_t wanted)
{
    volatile int rc = -1;

    TX_BEGIN(r->pool)
    {
        if (r->locks) {
            pmemobj_tx_lock(TX_PARAM_MUTEX, &r->mutex[from < to ? from : to]);
            pmemobj_tx_lock(TX_PARAM_MUTEX, &r->mutex[from < to ? to : from]);
        }
        struct object a = r->object[from], b = r->object[to];
        const uint64_t amount = wanted < a.balance ? wanted : a.balance;
        a.balance -= amount;
        b.balance += amount;
        a.moves++;
        b.moves++;
        pmemobj_tx_add_range_direct(&r->object[from], OBJECT_SIZE);
        pmemobj_tx_add_range_direct(&r->object[to], OBJECT_SIZE);
        memcpy(&r->object[from], &a, OBJECT_SIZE);
        memcpy(&r->object[to], &b, OBJECT_SIZE);
    }
    TX_ONCOMMIT
    {
        rc = 0;
    }
    TX_END
    return rc;
}

static int transfer_for(struct run *r, double seconds, uint64_t *state, uint64_t *count)
{
    double begin = now(CLOCK_MONOTONIC);
    const double end = begin + seconds;

    memset(r->ticks, 0, sizeof(r->ticks));
    while (begin < end) {
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint64_t from = draw(state) % r->count;
            const uint64_t to = (from + 1 + draw(state) % (r->count - 1)) % r->count;
            if (transfer(r, from, to, 1 + draw(state) % 9) != GOOD)
                return fail("transfer");
            *count += 1;
        }
        const double until = now(CLOCK_MONOTONIC);
        const uint64_t tick = (uint64_t)((until - begin) * 1e9 / BATCH / TICK_NS);
        r->ticks[tick < TICKS ? tick : TICKS - 1]++;
        begin = until;
    }
    return GOOD;
}

/* Of the time of a transfer, as batches had it: what is left of it on a machine that others use. */
static uint64_t median_ns(const struct run *r)
{
    uint64_t all = 0, below = 0;

    for (uint32_t i = 0; i < TICKS; i++)
        all += r->ticks[i];
    for (uint32_t i = 0; i < TICKS; i++) {
        below += r->ticks[i];
        if (2 * below >= all)
            return (uint64_t)i * TICK_NS;
    }
    return 0;
}

/* Close, open, count. */
static int verify(struct run *r, uint64_t transfers)
{
    uint64_t balance = 0, moves = 0;

    pmemobj_close(r->pool);
    r->pool = pmemobj_open(r->path, "transfer");
    if (r->pool == NULL)
        return fail(r->path);
    find(r);
    for (uint64_t i = 0; i < r->count; i++) {
        balance += r->object[i].balance;
        moves += r->object[i].moves;
    }
    if (balance == r->count * BALANCE && moves == 2 * transfers)
        return 0;
    (void)fprintf(stderr,
        "pmemobj_transfer: WRONG: balances sum up to %lu instead of %lu, moves to %lu instead of "
        "%lu\n",
        (unsigned long)balance, (unsigned long)(r->count * BALANCE), (unsigned long)moves,
        (unsigned long)(2 * transfers));
    return WRONG;
}

static int measure(struct run *r)
{
    uint64_t state = r->seed, transfers = 0;

    int rc = make(r);
    if (rc == GOOD)
        rc = transfer_for(r, r->warm_up, &state, &transfers);
    if (rc != GOOD)
        return rc;
    const uint64_t before = transfers;
    struct pmemobj_counts counts = {0};
    const bool counted = pmemobj_counts_take != NULL && pmemobj_counts_take(&counts);
    const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    rc = transfer_for(r, r->seconds, &state, &transfers);
    if (rc != GOOD)
        return rc;
    const double wall_s = now(CLOCK_MONOTONIC) - wall;
    const double cpu_s = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    const double n = (double)(transfers - before);
    if (counted)
        (void)pmemobj_counts_take(&counts);
    rc = verify(r, transfers);
    if (rc != GOOD)
        return rc;
    (void)printf("{\"program\": \"pmemobj_transfer\", \"verified\": true, \"objects\": %lu, "
                 "\"object_size\": %u, \"locks\": %s, \"transfers\": %.0f, \"seconds\": %.3f, "
                 "\"throughput\": %.0f, \"median_ns\": %lu, \"cpu_us_per_transfer\": %.4f",
        (unsigned long)r->count, OBJECT_SIZE, r->locks ? "true" : "false", n, wall_s, n / wall_s,
        (unsigned long)median_ns(r), cpu_s * 1e6 / n);
    if (counted)
        (void)printf(", \"fences_per_transfer\": %.2f, \"lines_flushed_per_transfer\": %.2f",
            (double)counts.fences / n, (double)counts.lines / n);
    (void)printf("}\n");
    return 0;
}

static void print_usage(FILE *to)
{
    (void)fprintf(to,
        "Usage: pmemobj_transfer [OPTION...]\n\n"
        "Transfers between two objects of 64 bytes with libpmemobj, in one thread; one JSON "
        "object.\n\n"
        "  --pool FILE       of the pool, removed at the end (/dev/shm/cairn-pmemobj-PID)\n"
        "  --objects N       how many there are (10000)\n"
        "  --seconds S       measured (3)\n"
        "  --warm-up S       before that (0.5)\n"
        "  --locks           take a PMEMmutex of each object\n"
        "  --seed N          of the choice of objects (1)\n"
        "\nExample:\n  pmemobj_transfer --objects 100000 --seconds 5\n"
        "Exit: 0 good, 1 the totals are wrong, 2 wrong usage or environment.\n");
}

static int wrong(const char *option, const char *want)
{
    (void)fprintf(stderr, "pmemobj_transfer: --%s: wants %s\n", option, want);
    return TROUBLE;
}

/* GOOD, TROUBLE, or -1: it was --help. */
static int parse(struct run *r, int argc, char **argv)
{
    static const struct option options[] = {{"pool", 1, NULL, 'p'}, {"objects", 1, NULL, 'n'},
        {"seconds", 1, NULL, 's'}, {"warm-up", 1, NULL, 'w'}, {"locks", 0, NULL, 'l'},
        {"seed", 1, NULL, 'r'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int c, at;

    while ((c = getopt_long(argc, argv, "h", options, &at)) != -1) {
        char *end = "";
        if (c == 'p')
            r->path = optarg;
        else if (c == 'n')
            r->count = strtoull(optarg, &end, 10);
        else if (c == 'r')
            r->seed = strtoull(optarg, &end, 10);
        else if (c == 's')
            r->seconds = strtod(optarg, &end);
        else if (c == 'w')
            r->warm_up = strtod(optarg, &end);
        else if (c == 'l')
            r->locks = true;
        else {
            print_usage(c == 'h' ? stdout : stderr);
            return c == 'h' ? -1 : TROUBLE;
        }
        if (*end != '\0')
            return wrong(options[at].name, "a number");
    }
    if (optind < argc) {
        (void)fprintf(stderr, "pmemobj_transfer: %s: no such argument\n", argv[optind]);
        return TROUBLE;
    }
    if (r->count < 2 || r->count > OBJECTS_MAX)
        return wrong("objects", "2 to 16777216");
    if (!(r->seconds > 0 && r->seconds <= 3600) || !(r->warm_up >= 0 && r->warm_up <= 3600))
        return wrong("seconds and --warm-up", "0 to 3600");
    return 0;
}

int main(int argc, char **argv)
{
    char path[64];
    static struct run r = {.count = 10000, .seed = 1, .seconds = 3, .warm_up = 0.5};

    /* libpmem reads it as it is loaded. */
    if (getenv("PMEM_IS_PMEM_FORCE") == NULL) {
        (void)setenv("PMEM_IS_PMEM_FORCE", "1", 1);
        (void)execv("/proc/self/exe", argv);
        (void)fprintf(stderr, "pmemobj_transfer: cannot start again: %s\n", strerror(errno));
        return TROUBLE;
    }
    (void)snprintf(path, sizeof(path), "/dev/shm/cairn-pmemobj-%ld", (long)getpid());
    r.path = path;
    const int rc = parse(&r, argc, argv);
    if (rc != GOOD)
        return rc < 0 ? GOOD : rc;
    const int result = measure(&r);
    if (r.pool != NULL) {
        pmemobj_close(r.pool);
        (void)unlink(r.path);
    }
    return result;
}
