/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pg_transfer.c: the yardstick for Cairn's transfer across nodes: the same between two PostgreSQL
 * instances with two-phase commit, one client. Built and driven by compare_postgres.sh.
 *
 * An account is a row of 64 bytes of value (balance, moves, filler) behind a primary key. Each
 * transfer takes one account of each instance. Statements are prepared once. Three styles:
 *
 *   statements  BEGIN | SELECT ... FOR UPDATE | UPDATE | PREPARE TRANSACTION | COMMIT PREPARED,
 *               each sent to one instance and waited for, then to the other: what drivers and
 *               transaction managers do
 *   pipelined   BEGIN, SELECT ... FOR UPDATE | UPDATE, PREPARE TRANSACTION | COMMIT PREPARED, each
 *               step as one pipeline, sent to both before either is waited for: as well as we can
 *   one-shot    the same, BEGIN, UPDATE balance + N, PREPARE TRANSACTION | COMMIT PREPARED
 *
 * The first two do what Cairn's transfer does: the client sees both balances before it writes them.
 *
 * At the end balances must sum up to what they were over both instances, and moves to two per
 * transfer, and nothing may be left prepared. Otherwise: no figure, exit code 1.
 */
#include <getopt.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIDES 2
#define BALANCE 1000
#define FILLER 48 /* bytes beside balance and moves */
#define ACCOUNTS_MAX 10000000u
#define TICK_US 2u       /* of the histogram of times per transfer */
#define TICKS (1u << 15) /* up to 65 ms */

/* Exit codes. */
enum { GOOD, WRONG, TROUBLE };

enum style { STATEMENTS, PIPELINED, ONE_SHOT };
static const char *const style_name[] = {"statements", "pipelined", "one-shot"};

struct account {
    char id[24], balance[24], moves[24];
};
struct run {
    const char *info[SIDES];
    PGconn *side[SIDES];
    uint64_t accounts, seed, transfers; /* accounts: of each side */
    double seconds, warm_up;
    enum style style;
    uint64_t ticks[TICKS];
};

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "pg_transfer: %s: %s\n", what, why);
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

/* Processor seconds of the process that serves this connection. */
static double server_cpu(PGconn *side)
{
    char path[64], line[1024];
    unsigned long user = 0, system = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", PQbackendPID(side));
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return 0;
    const char *end = fgets(line, sizeof(line), f) == NULL ? NULL : strrchr(line, ')');
    (void)fclose(f);
    if (end == NULL ||
        sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* One statement, waited for; `ret` may be NULL. */
static int run_now(PGconn *side, const char *sql, char ret[64])
{
    PGresult *result = PQexec(side, sql);
    const ExecStatusType status = PQresultStatus(result);
    int rc = GOOD;

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        rc = fail(sql, PQerrorMessage(side));
    else if (ret != NULL)
        (void)snprintf(ret, 64, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return rc;
}

/* A row at FILLFACTOR 50 is updated within its page, without a new index entry. */
static int make(struct run *r, int at)
{
    char sql[512];

    (void)snprintf(sql, sizeof(sql),
        "DROP TABLE IF EXISTS account; CREATE TABLE account (id bigint PRIMARY KEY, "
        "balance bigint NOT NULL, moves bigint NOT NULL, filler bytea NOT NULL) "
        "WITH (fillfactor = 50); INSERT INTO account SELECT i, %d, 0, "
        "decode(repeat('5a', %d), 'hex') FROM generate_series(0, %lu) i;",
        BALANCE, FILLER, (unsigned long)(r->accounts - 1));
    int rc = run_now(r->side[at], sql, NULL);
    if (rc == GOOD)
        rc = run_now(r->side[at], "VACUUM ANALYZE account", NULL);
    return rc == GOOD ? run_now(r->side[at], "CHECKPOINT", NULL) : rc;
}

static int prepare(PGconn *side, const char *name, const char *sql)
{
    PGresult *result = PQprepare(side, name, sql, 0, NULL);
    const int rc =
        PQresultStatus(result) == PGRES_COMMAND_OK ? GOOD : fail(sql, PQerrorMessage(side));
    PQclear(result);
    return rc;
}

static int open_side(struct run *r, int at)
{
    r->side[at] = PQconnectdb(r->info[at]);
    PGconn *side = r->side[at];
    if (PQstatus(side) != CONNECTION_OK)
        return fail(r->info[at], PQerrorMessage(side));
    int rc = run_now(side, "SET client_min_messages = warning", NULL);
    if (rc == GOOD)
        rc = make(r, at);
    if (rc == GOOD)
        rc = prepare(side, "begin", "BEGIN");
    if (rc == GOOD)
        rc = prepare(side, "get", "SELECT balance, moves FROM account WHERE id = $1 FOR UPDATE");
    if (rc == GOOD)
        rc = prepare(side, "put",
            "UPDATE account SET balance = $2::bigint, moves = $3::bigint, filler = filler WHERE id "
            "= $1");
    if (rc == GOOD)
        rc = prepare(side, "add",
            "UPDATE account SET balance = balance + $2::bigint, moves = moves + $3::bigint, filler "
            "= filler WHERE id = $1");
    if (rc == GOOD && r->style != STATEMENTS && PQenterPipelineMode(side) != 1)
        rc = fail("pipeline mode", PQerrorMessage(side));
    return rc;
}

/* The row of a SELECT into `account`; an UPDATE must have found its row. */
static int take(const PGresult *result, struct account *account)
{
    const ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_TUPLES_OK && PQntuples(result) != 1)
        return fail("SELECT", "there is no such account");
    if (status == PGRES_TUPLES_OK) {
        (void)snprintf(
            account->balance, sizeof(account->balance), "%.20s", PQgetvalue(result, 0, 0));
        (void)snprintf(account->moves, sizeof(account->moves), "%.20s", PQgetvalue(result, 0, 1));
        return GOOD;
    }
    if (status != PGRES_COMMAND_OK)
        return fail("transfer", PQresultErrorMessage(result));
    if (strncmp(PQcmdStatus((PGresult *)(uintptr_t)result), "UPDATE", 6) == 0 &&
        strcmp(PQcmdTuples((PGresult *)(uintptr_t)result), "1") != 0)
        return fail("UPDATE", "there is no such account");
    return GOOD;
}

/* One prepared statement, waited for. */
static int execute(PGconn *side, const char *name, int count, const char *const *values,
    struct account *account)
{
    PGresult *result = PQexecPrepared(side, name, count, values, NULL, NULL, 0);
    const int rc = take(result, account);
    PQclear(result);
    return rc;
}

static int execute_text(PGconn *side, const char *verb, uint64_t number)
{
    char sql[96];
    (void)snprintf(sql, sizeof(sql), "%s 'transfer-%lu'", verb, (unsigned long)number);
    return run_now(side, sql, NULL);
}

static bool send(PGconn *side, const char *name, int count, const char *const *values)
{
    return PQsendQueryPrepared(side, name, count, values, NULL, NULL, 0) == 1;
}

static bool send_text(PGconn *side, const char *verb, uint64_t number)
{
    char sql[96];
    (void)snprintf(sql, sizeof(sql), "%s 'transfer-%lu'", verb, (unsigned long)number);
    return PQsendQueryParams(side, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

/* Everything up to the end of the pipeline. */
static int await(PGconn *side, struct account *account)
{
    int rc = GOOD;

    for (bool synced = false; !synced;) {
        PGresult *result = PQgetResult(side);
        if (result == NULL) { /* the end of one statement's results */
            if (PQstatus(side) != CONNECTION_OK)
                return fail("connection", PQerrorMessage(side));
            continue;
        }
        const ExecStatusType status = PQresultStatus(result);
        synced = status == PGRES_PIPELINE_SYNC;
        if (!synced && rc == GOOD)
            rc = take(result, account);
        PQclear(result);
    }
    return rc;
}

static int await_all(struct run *r, bool sent, struct account account[SIDES])
{
    if (!sent)
        return fail("send", PQerrorMessage(r->side[0]));
    for (int at = 0; at < SIDES; at++) {
        const int rc = await(r->side[at], &account[at]);
        if (rc != GOOD)
            return rc;
    }
    return GOOD;
}

static bool send_begin(struct run *r, struct account account[SIDES], const long change[SIDES])
{
    bool sent = true;

    for (int at = 0; at < SIDES; at++) {
        PGconn *side = r->side[at];
        char text[24];
        (void)snprintf(text, sizeof(text), "%ld", change[at]);
        const char *values[] = {account[at].id, text, "1"};
        sent = sent && send(side, "begin", 0, NULL);
        if (r->style == ONE_SHOT)
            sent = sent && send(side, "add", 3, values) &&
                   send_text(side, "PREPARE TRANSACTION", r->transfers);
        else
            sent = sent && send(side, "get", 1, values);
        sent = sent && PQpipelineSync(side) == 1;
    }
    return sent;
}

/* What the account shall be; `values` are those of the statement "put". */
struct put {
    char balance[24], moves[24];
    const char *values[3];
};

static void compute(const struct account *account, long change, struct put *ret)
{
    (void)snprintf(ret->balance, sizeof(ret->balance), "%lld",
        strtoll(account->balance, NULL, 10) + change);
    (void)snprintf(
        ret->moves, sizeof(ret->moves), "%lld", strtoll(account->moves, NULL, 10) + 1);
    ret->values[0] = account->id;
    ret->values[1] = ret->balance;
    ret->values[2] = ret->moves;
}

static bool send_put(struct run *r, struct account account[SIDES], const long change[SIDES])
{
    bool sent = true;

    for (int at = 0; at < SIDES; at++) {
        struct put put;
        compute(&account[at], change[at], &put);
        sent = sent && send(r->side[at], "put", 3, put.values) &&
               send_text(r->side[at], "PREPARE TRANSACTION", r->transfers) &&
               PQpipelineSync(r->side[at]) == 1;
    }
    return sent;
}

static int transfer_pipelined(
    struct run *r, struct account account[SIDES], const long change[SIDES])
{
    int rc = await_all(r, send_begin(r, account, change), account);
    if (rc == GOOD && r->style != ONE_SHOT)
        rc = await_all(r, send_put(r, account, change), account);
    if (rc != GOOD)
        return rc;
    bool sent = true;
    for (int at = 0; at < SIDES; at++)
        sent = sent && send_text(r->side[at], "COMMIT PREPARED", r->transfers) &&
               PQpipelineSync(r->side[at]) == 1;
    return await_all(r, sent, account);
}

static int transfer_by_statements(
    struct run *r, struct account account[SIDES], const long change[SIDES])
{
    int rc = GOOD;

    for (int at = 0; at < SIDES && rc == GOOD; at++) {
        const char *id[] = {account[at].id};
        rc = execute(r->side[at], "begin", 0, NULL, NULL);
        if (rc == GOOD)
            rc = execute(r->side[at], "get", 1, id, &account[at]);
    }
    for (int at = 0; at < SIDES && rc == GOOD; at++) {
        struct put put;
        compute(&account[at], change[at], &put);
        rc = execute(r->side[at], "put", 3, put.values, NULL);
    }
    for (int at = 0; at < SIDES && rc == GOOD; at++)
        rc = execute_text(r->side[at], "PREPARE TRANSACTION", r->transfers);
    for (int at = 0; at < SIDES && rc == GOOD; at++)
        rc = execute_text(r->side[at], "COMMIT PREPARED", r->transfers);
    return rc;
}

static int transfer(struct run *r, uint64_t *state)
{
    struct account account[SIDES];
    const long amount = (long)(draw(state) % 9) + 1;
    const bool back = (draw(state) & 1) != 0;
    const long change[SIDES] = {back ? amount : -amount, back ? -amount : amount};

    for (int at = 0; at < SIDES; at++)
        (void)snprintf(account[at].id, sizeof(account[at].id), "%lu",
            (unsigned long)(draw(state) % r->accounts));
    const int rc = r->style == STATEMENTS ? transfer_by_statements(r, account, change)
                                          : transfer_pipelined(r, account, change);
    r->transfers++;
    return rc;
}

static int transfer_for(struct run *r, double seconds, uint64_t *state)
{
    double begin = now(CLOCK_MONOTONIC);
    const double end = begin + seconds;
    int rc = GOOD;

    memset(r->ticks, 0, sizeof(r->ticks));
    while (rc == GOOD && begin < end) {
        rc = transfer(r, state);
        const double until = now(CLOCK_MONOTONIC);
        const uint64_t tick = (uint64_t)((until - begin) * 1e6 / TICK_US);
        r->ticks[tick < TICKS ? tick : TICKS - 1]++;
        begin = until;
    }
    return rc;
}

static uint64_t median_ns(const struct run *r)
{
    uint64_t all = 0, below = 0;

    for (uint32_t i = 0; i < TICKS; i++)
        all += r->ticks[i];
    for (uint32_t i = 0; i < TICKS; i++) {
        below += r->ticks[i];
        if (2 * below >= all)
            return (uint64_t)i * TICK_US * 1000;
    }
    return 0;
}

static int verify(struct run *r)
{
    long long sum[3] = {0};
    static const char *const sql[] = {"SELECT sum(balance) FROM account",
        "SELECT sum(moves) FROM account", "SELECT count(*) FROM pg_prepared_xacts"};

    for (int at = 0; at < SIDES; at++) {
        if (r->style != STATEMENTS && PQexitPipelineMode(r->side[at]) != 1)
            return fail("pipeline mode", PQerrorMessage(r->side[at]));
        for (int i = 0; i < 3; i++) {
            char text[64];
            const int rc = run_now(r->side[at], sql[i], text);
            if (rc != GOOD)
                return rc;
            sum[i] += strtoll(text, NULL, 10);
        }
    }
    if (sum[0] == (long long)(SIDES * BALANCE * r->accounts) &&
        sum[1] == (long long)(2 * r->transfers) && sum[2] == 0)
        return GOOD;
    (void)fprintf(stderr,
        "pg_transfer: WRONG: balances sum up to %lld instead of %lld, moves to %lld instead of "
        "%lld; %lld transactions are still prepared\n",
        sum[0], (long long)(SIDES * BALANCE * r->accounts), sum[1], (long long)(2 * r->transfers),
        sum[2]);
    return WRONG;
}

static int measure(struct run *r)
{
    uint64_t state = r->seed;
    int rc = GOOD;

    for (int at = 0; at < SIDES && rc == GOOD; at++)
        rc = open_side(r, at);
    if (rc == GOOD)
        rc = transfer_for(r, r->warm_up, &state);
    if (rc != GOOD)
        return rc;
    const uint64_t before = r->transfers;
    const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    const double served = server_cpu(r->side[0]) + server_cpu(r->side[1]);
    rc = transfer_for(r, r->seconds, &state);
    const double wall_s = now(CLOCK_MONOTONIC) - wall;
    const double cpu_s = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    const double served_s = server_cpu(r->side[0]) + server_cpu(r->side[1]) - served;
    const double n = (double)(r->transfers - before);
    if (rc == GOOD)
        rc = verify(r);
    if (rc != GOOD)
        return rc;
    (void)printf("{\"program\": \"pg_transfer\", \"verified\": true, \"style\": \"%s\", "
                 "\"accounts\": %lu, \"transfers\": %.0f, \"seconds\": %.3f, \"throughput\": %.1f, "
                 "\"median_ns\": %lu, \"client_cpu_us_per_transfer\": %.1f, "
                 "\"server_cpu_us_per_transfer\": %.1f}\n",
        style_name[r->style], (unsigned long)(SIDES * r->accounts), n, wall_s,
        n / wall_s, (unsigned long)median_ns(r), cpu_s * 1e6 / n, served_s * 1e6 / n);
    return GOOD;
}

static void print_usage(FILE *to)
{
    (void)fprintf(to,
        "Usage: pg_transfer [OPTION...] LEFT RIGHT\n\n"
        "Transfers between two PostgreSQL instances by two-phase commit, one client; one JSON "
        "object.\nLEFT, RIGHT: connection strings. The table \"account\" of both is made anew.\n\n"
        "  --accounts N      on each side (5000)\n"
        "  --style STYLE     statements: one at a time, as drivers do; pipelined: few and long "
        "messages,\n                    both sides at once; one-shot: the same, and no read before "
        "the write\n                    (statements)\n"
        "  --seconds S       measured (3)\n"
        "  --warm-up S       before that (0.5)\n"
        "  --seed N          of the choice of accounts (1)\n"
        "\nExample:\n  pg_transfer 'host=/tmp/a dbname=postgres' 'host=/tmp/b dbname=postgres'\n"
        "Exit: 0 good, 1 the totals are wrong, 2 wrong usage or environment.\n");
}

static int wrong(const char *option, const char *want)
{
    (void)fprintf(stderr, "pg_transfer: --%s: wants %s\n", option, want);
    return TROUBLE;
}

static bool find_style(const char *name, enum style *ret)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(style_name[i], name) == 0) {
            *ret = (enum style)i;
            return true;
        }
    }
    return false;
}

/* GOOD, TROUBLE, or -1: it was --help. */
static int parse(struct run *r, int argc, char **argv)
{
    static const struct option options[] = {{"accounts", 1, NULL, 'n'}, {"seconds", 1, NULL, 's'},
        {"warm-up", 1, NULL, 'w'}, {"style", 1, NULL, 'y'}, {"seed", 1, NULL, 'r'},
        {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int c, at = 0;

    while ((c = getopt_long(argc, argv, "h", options, &at)) != -1) {
        char *end = "";
        if (c == 'n')
            r->accounts = strtoull(optarg, &end, 10);
        else if (c == 'r')
            r->seed = strtoull(optarg, &end, 10);
        else if (c == 's')
            r->seconds = strtod(optarg, &end);
        else if (c == 'w')
            r->warm_up = strtod(optarg, &end);
        else if (c == 'y') {
            if (!find_style(optarg, &r->style))
                return wrong("style", "statements, pipelined or one-shot");
        } else {
            print_usage(c == 'h' ? stdout : stderr);
            return c == 'h' ? -1 : TROUBLE;
        }
        if (*end != '\0')
            return wrong(options[at].name, "a number");
    }
    if (argc - optind != SIDES) {
        print_usage(stderr);
        return TROUBLE;
    }
    r->info[0] = argv[optind];
    r->info[1] = argv[optind + 1];
    if (r->accounts < 1 || r->accounts > ACCOUNTS_MAX)
        return wrong("accounts", "1 to 10000000");
    if (!(r->seconds > 0 && r->seconds <= 3600) || !(r->warm_up >= 0 && r->warm_up <= 3600))
        return wrong("seconds and --warm-up", "0 to 3600");
    return GOOD;
}

int main(int argc, char **argv)
{
    static struct run r = {.accounts = 5000, .seed = 1, .seconds = 3, .warm_up = 0.5};

    int rc = parse(&r, argc, argv);
    if (rc != GOOD)
        return rc < 0 ? GOOD : rc;
    rc = measure(&r);
    for (int at = 0; at < SIDES; at++)
        PQfinish(r.side[at]);
    return rc;
}
