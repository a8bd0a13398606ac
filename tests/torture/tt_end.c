/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_end.c: the end of a torture run, by a fresh coordinator: every token gets its verdict, every
 * key and the bank are read once more, and each token's transaction must be there or not as its
 * verdict says.
 */
#include "tests/torture/tt_load.h"

#include <dirent.h>

#define FINAL_PROCESS (UINT64_C(1) << 60)
#define CHUNK 32u
#define LIST_ROOM 1100u

struct ending {
    struct tt_end *end;
    struct cairn_ctx *ctx;
    struct hs_history *history;
    uint64_t deadline_ns;
    uint64_t keys;    /* 1 .. keys - 1 */
    uint32_t *list;   /* LIST_ROOM of each key */
    uint32_t *count;
};

struct chunk {
    struct ending *e;
    uint64_t first, count;
    int64_t balance[TT_ACCOUNTS];
};

static int read_chunk(struct cairn_tx *tx, void *arg)
{
    const struct chunk *c = arg;

    for (uint64_t key = c->first; key < c->first + c->count; key++) {
        size_t size = 0;
        const int r = cairn_get(tx, TT_TABLE_LISTS, &key, sizeof(key), c->e->list + key * LIST_ROOM,
            LIST_ROOM * sizeof(uint32_t), &size);
        if (r != 0 && r != CAIRN_E_NOT_FOUND)
            return r;
        c->e->count[key] = r == 0 ? (uint32_t)(size / sizeof(uint32_t)) : 0;
    }
    return 0;
}

static int read_accounts(struct cairn_tx *tx, void *arg)
{
    struct chunk *c = arg;

    for (uint64_t i = 0; i < TT_ACCOUNTS; i++) {
        size_t size;
        const int r = cairn_get(
            tx, TT_TABLE_BANK, &i, sizeof(i), &c->balance[i], sizeof(c->balance[i]), &size);
        if (r != 0)
            return r;
    }
    return 0;
}

/* Until it works or the time is over; the cluster is healed, so it has to work. */
static int insist(struct ending *e, cairn_tx_fn fn, struct chunk *c)
{
    int r;

    do {
        r = cairn_run(e->ctx, fn, c, 5000, NULL);
    } while (r != 0 && tt_now_ns() < e->deadline_ns);
    if (r != 0)
        (void)fprintf(
            stderr, "a final read fails: %s: %s\n", cairn_error_name(r), cairn_last_error());
    return r;
}

static void record_chunk(struct ending *e, const struct chunk *c, enum hs_type type)
{
    hs_event_begin(e->history, type, HS_F_FINAL, FINAL_PROCESS, tt_now_ns());
    for (uint64_t key = c->first; key < c->first + c->count; key++)
        hs_event_read(e->history, key, type == HS_OK ? e->list + key * LIST_ROOM : NULL,
            type == HS_OK ? e->count[key] : HS_UNREAD);
    hs_event_end(e->history);
}

static int final_reads(struct ending *e)
{
    struct chunk c = {.e = e};

    for (c.first = 1; c.first < e->keys; c.first += CHUNK) {
        c.count = cn_min64(CHUNK, e->keys - c.first);
        record_chunk(e, &c, HS_INVOKE);
        if (insist(e, read_chunk, &c) != 0)
            return 1;
        record_chunk(e, &c, HS_OK);
    }
    hs_event_begin(e->history, HS_INVOKE, HS_F_BANK_READ, FINAL_PROCESS + 1, tt_now_ns());
    hs_event_end(e->history);
    if (insist(e, read_accounts, &c) != 0)
        return 1;
    hs_event_begin(e->history, HS_OK, HS_F_BANK_READ, FINAL_PROCESS + 1, tt_now_ns());
    for (uint64_t i = 0; i < TT_ACCOUNTS; i++)
        hs_event_balance(e->history, i, c.balance[i]);
    hs_event_end(e->history);
    return 0;
}

/* ---- tokens ---- */

static bool is_there(const struct ending *e, uint64_t key, uint32_t element)
{
    if (key >= e->keys)
        return false;
    for (uint32_t i = 0; i < e->count[key]; i++)
        if (e->list[key * LIST_ROOM + i] == element)
            return true;
    return false;
}

static void check_token(struct ending *e, char *line, enum cairn_outcome outcome)
{
    char *save = NULL;
    const char *token = strtok_r(line, " \n", &save);

    for (const char *word = strtok_r(NULL, " \n", &save); word != NULL;
         word = strtok_r(NULL, " \n", &save)) {
        char *rest;
        const uint64_t key = strtoull(word, &rest, 10);
        const uint32_t element = (uint32_t)strtoul(rest + 1, NULL, 10);
        if (is_there(e, key, element) == (outcome == CAIRN_OUTCOME_COMMITTED))
            continue;
        e->end->wrong++;
        (void)fprintf(stderr, "%s is %s, but element %u of key %llu is %s\n", token,
            cairn_outcome_name(outcome), element, (unsigned long long)key,
            outcome == CAIRN_OUTCOME_COMMITTED ? "not there" : "there");
    }
}

static int ask(struct ending *e, const char *line, enum cairn_outcome *ret_outcome)
{
    char token[CAIRN_TOKEN_SIZE];
    int r;

    (void)snprintf(token, sizeof(token), "%.*s", (int)strcspn(line, " \n"), line);
    do {
        r = cairn_resolve(e->ctx, token, ret_outcome);
        if (r == 0 || r == CAIRN_E_EXPIRED || r == CAIRN_E_TOKEN)
            break;
        tt_sleep_us(20000);
    } while (tt_now_ns() < e->deadline_ns);
    if (r != 0)
        (void)fprintf(
            stderr, "%s: no verdict: %s: %s\n", token, cairn_error_name(r), cairn_last_error());
    return r;
}

/* With `check` false: ask (which may prevent); with true, after the final reads: compare. */
static void walk_file(struct ending *e, const char *path, bool check)
{
    FILE *in = fopen(path, "re");
    char line[600];

    if (in == NULL)
        return;
    while (fgets(line, sizeof(line), in) != NULL) {
        enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
        if (strchr(line, '\n') == NULL)
            break; /* cut by a kill */
        const int r = ask(e, line, &outcome);
        if (check) {
            if (r == 0)
                check_token(e, line, outcome);
            continue;
        }
        e->end->tokens++;
        e->end->committed += r == 0 && outcome == CAIRN_OUTCOME_COMMITTED;
        e->end->aborted += r == 0 && outcome == CAIRN_OUTCOME_ABORTED;
        e->end->expired += r == CAIRN_E_EXPIRED;
        e->end->wrong += r != 0;
    }
    (void)fclose(in);
}

static void walk_tokens(struct ending *e, bool check)
{
    const char *dir = e->end->cluster->dir;
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    char path[600];

    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "tokens-", 7) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        walk_file(e, path, check);
    }
    (void)closedir(folder);
}

int tt_run_end(void *arg)
{
    struct tt_end *end = arg;
    struct ending e = {.end = end};
    struct cairn *cluster;
    char path[400];
    int r;

    e.deadline_ns = tt_now_ns() + end->timeout_ms * UINT64_C(1000000);
    e.keys = __atomic_load_n(&end->cluster->shared->next_key, __ATOMIC_RELAXED);
    e.list = calloc(e.keys * LIST_ROOM, sizeof(uint32_t));
    e.count = calloc(e.keys, sizeof(uint32_t));
    e.history = hs_history_new();
    (void)snprintf(path, sizeof(path), "%s/hist-final.log", end->cluster->dir);
    if (e.list == NULL || e.count == NULL || hs_history_log_to(e.history, path, false) != 0 ||
        cairn_open(end->cluster->config, NULL, &cluster) != 0 ||
        cairn_ctx_open(cluster, &e.ctx) != 0) {
        (void)fprintf(stderr, "cannot begin the end: %s\n", cairn_last_error());
        return 4;
    }
    walk_tokens(&e, false);
    r = final_reads(&e);
    if (r == 0)
        walk_tokens(&e, true);
    cairn_ctx_close(&e.ctx);
    cairn_close(&cluster);
    hs_history_delete(&e.history);
    free(e.list);
    free(e.count);
    return r;
}
