/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 03-async.c: 32 transfers in flight from one thread, inside an epoll loop of the program's own,
 * and the total checked at the end. Usage: 03-async CONFIG [TRANSFERS] (see README.md)
 */
#include <cairn/cairn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define IN_FLIGHT 32
#define ACCOUNTS 1000
#define COINS 100 /* of each account at first */

static uint32_t table;
static struct cairn_ctx *ctx;
static uint64_t begun, ended, failed, wanted = 20000;

struct transfer {
    struct cairn_op op; /* stays where it is until it is done */
    unsigned from, to;
};

static int get_coins(struct cairn_tx *tx, unsigned account, int lock, int *coins)
{
    char key[32], text[24];
    size_t key_size = (size_t)snprintf(key, sizeof(key), "account %u", account), size;
    int rc = (lock ? cairn_get_for_update : cairn_get)(
        tx, table, key, key_size, text, sizeof(text) - 1, &size);
    *coins = COINS; /* of who is not there yet */
    if (rc == CAIRN_E_NOT_FOUND)
        return 0;
    if (rc == 0) {
        text[size] = '\0'; /* bytes behind a value are anything */
        *coins = (int)strtol(text, NULL, 10);
    }
    return rc; /* a conflict runs it again; anything else ends it, without effect */
}

static int put_coins(struct cairn_tx *tx, unsigned account, int coins)
{
    char key[32], text[24];
    size_t key_size = (size_t)snprintf(key, sizeof(key), "account %u", account);
    return cairn_put(
        tx, table, key, key_size, text, (size_t)snprintf(text, sizeof(text), "%d", coins));
}

/* As for cairn_run(): these calls wait for this body only, and the others go on meanwhile. */
static int transfer(struct cairn_tx *tx, void *arg)
{
    const struct transfer *t = arg;
    int from, to, rc = get_coins(tx, t->from, 1, &from);
    if (rc == 0)
        rc = get_coins(tx, t->to, 1, &to);
    if (rc == 0)
        rc = put_coins(tx, t->from, from - 1);
    if (rc == 0)
        rc = put_coins(tx, t->to, to + 1);
    return rc;
}

static void begin(struct transfer *t);

static void transferred(struct cairn_op *op)
{
    ended++;
    if (op->result != 0 && failed++ == 0)
        fprintf(stderr, "%s\n", cairn_last_error());
    if (begun < wanted && failed == 0)
        begin((struct transfer *)op->user); /* the next one, in its place */
}

static void begin(struct transfer *t)
{
    static uint64_t random = 1;
    random = random * 6364136223846793005u + 1442695040888963407u;
    t->from = (unsigned)(random >> 33) % ACCOUNTS;
    t->to = (t->from + 1 + (unsigned)(random >> 45) % (ACCOUNTS - 1)) % ACCOUNTS;
    t->op = (struct cairn_op){.done = transferred, .user = t};
    begun++;
    if (cairn_run_async(ctx, transfer, t, 10000, &t->op) != 0)
        transferred(&t->op); /* never: there is one transaction for each */
}

/* The loop: other descriptors could be in it, and their handlers begin and end transactions. */
static int loop(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC), fd = cairn_fd(ctx);

    if (epoll < 0 || fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return -1;
    for (;;) {
        while (cairn_poll(ctx) != 0)
            ;
        if (ended == begun)
            break;
        int timeout_ms = cairn_arm(ctx); /* 0: there is something to do already */
        if (timeout_ms != 0)
            (void)epoll_wait(epoll, &event, 1, timeout_ms);
    }
    return close(epoll);
}

/* A part of the accounts: as many as a transaction may read. */
struct part {
    unsigned first;
    int coins;
};

static int sum_part(struct cairn_tx *tx, void *arg)
{
    struct part *part = arg;
    int coins, rc = 0;
    part->coins = 0;
    for (unsigned i = part->first; i < part->first + 200 && rc == 0; i++) {
        rc = get_coins(tx, i, 0, &coins);
        part->coins += coins;
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct transfer transfers[IN_FLIGHT];
    struct cairn_options options = CAIRN_OPTIONS_DEFAULT;
    struct cairn *cluster = NULL;
    int rc, total = 0;

    options.inflight = IN_FLIGHT;
    if (argc > 2)
        wanted = strtoull(argv[2], NULL, 10);
    rc = cairn_open(argc > 1 ? argv[1] : "cairn.conf", &options, &cluster);
    if (rc == 0 && (rc = cairn_table(cluster, "accounts", &table)) == 0 &&
        (rc = cairn_ctx_open(cluster, &ctx)) == 0) {
        for (int i = 0; i < IN_FLIGHT && begun < wanted; i++)
            begin(&transfers[i]);
        rc = loop();
        for (unsigned i = 0; i < ACCOUNTS && rc == 0; i += 200) {
            struct part part = {.first = i};
            rc = cairn_run(ctx, sum_part, &part, 10000, NULL);
            total += part.coins;
        }
    }
    if (rc != 0)
        fprintf(stderr, "%s\n", cairn_last_error());
    else
        printf("%" PRIu64 " transfers, %d in flight; %d coins in all, as there must be %d\n", ended,
            IN_FLIGHT, total, ACCOUNTS * COINS);
    cairn_ctx_close(&ctx);
    cairn_close(&cluster);
    return rc != 0 || failed != 0 || total != ACCOUNTS * COINS;
}
