/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_check.c: `cairn bench check`: how fast the checker of histories (tools/history) is. A history
 * of list-append transactions is made up by a number of clients whose transactions overlap in time
 * and take effect in one serial order; with --stale one of them reads an old version, so that the
 * verdict must be false. Only the check is timed. The shape is Elle's usual one: one to four
 * micro-operations, keys retired after so many appends.
 */
#include "tools/bench/bn.h"
#include "tools/history/hs_check.h"

#define CLIENTS_MAX 256u
#define LIVE_KEYS 24u /* keys that are appended to at one time */
#define MOPS_MAX 4u
#define LIST_MAX 1024u

struct list {
    uint64_t key;
    uint32_t count, element[LIST_MAX];
};
struct txn { /* of a client, begun and not ended */
    bool open, done;
    uint32_t mop_count;
    struct { bool append; uint32_t list; uint64_t key; uint32_t element; } mop[MOPS_MAX];
};
struct maker {
    struct hs_history *history;
    struct list list[LIVE_KEYS];
    struct txn txn[CLIENTS_MAX];
    uint64_t clients, per_key, next_key, random, time;
    uint32_t next_element;
    bool stale; /* still to be done */
};

static uint32_t draw(struct maker *m, uint32_t bound)
{
    return tl_draw(&m->random, bound);
}

/* One element short, once. */
static uint32_t seen(struct maker *m, const struct list *l)
{
    if (!m->stale || l->count < 2)
        return l->count;
    m->stale = false;
    return l->count - 1;
}

static void write_event(struct maker *m, uint64_t client, enum hs_type type)
{
    struct txn *t = &m->txn[client];

    hs_event_begin(m->history, type, HS_F_TXN, client, ++m->time);
    for (uint32_t i = 0; i < t->mop_count; i++) {
        const struct list *l = &m->list[t->mop[i].list];
        if (t->mop[i].append)
            hs_event_append(m->history, t->mop[i].key, t->mop[i].element);
        else if (type == HS_OK)
            hs_event_read(m->history, t->mop[i].key, l->element, seen(m, l));
        else
            hs_event_read(m->history, t->mop[i].key, NULL, HS_UNREAD);
    }
    hs_event_end(m->history);
}

/* Distinct keys, so that what a transaction reads is what others appended. */
static void begin(struct maker *m, uint64_t client)
{
    struct txn *t = &m->txn[client];
    uint32_t first = draw(m, LIVE_KEYS);

    t->mop_count = 1 + draw(m, MOPS_MAX);
    for (uint32_t i = 0; i < t->mop_count; i++) {
        t->mop[i].list = (first + i * 5) % LIVE_KEYS;
        t->mop[i].append = draw(m, 2) == 0;
        t->mop[i].key = m->list[t->mop[i].list].key;
        t->mop[i].element = ++m->next_element;
    }
    t->open = true;
    write_event(m, client, HS_INVOKE);
}

/* It takes effect here, and is told at once: between its invoke and this, others came and went. A
 * key that was retired meanwhile makes it fail. */
static void end(struct maker *m, uint64_t client)
{
    struct txn *t = &m->txn[client];
    bool good = true;

    for (uint32_t i = 0; i < t->mop_count; i++)
        good = good && m->list[t->mop[i].list].key == t->mop[i].key;
    t->open = false;
    write_event(m, client, good ? HS_OK : HS_FAIL);
    for (uint32_t i = 0; good && i < t->mop_count; i++) {
        struct list *l = &m->list[t->mop[i].list];
        if (!t->mop[i].append)
            continue;
        l->element[l->count++] = t->mop[i].element;
        if (l->count == m->per_key)
            *l = (struct list){.key = m->next_key++};
    }
}

static void make_history(struct maker *m, uint64_t txns)
{
    uint64_t begun = 0;

    for (uint32_t i = 0; i < LIVE_KEYS; i++)
        m->list[i].key = m->next_key++;
    while (begun < txns) {
        uint64_t client = draw(m, (uint32_t)m->clients);
        if (m->txn[client].open) {
            end(m, client);
        } else {
            begin(m, client);
            begun++;
        }
    }
    for (uint64_t i = 0; i < m->clients; i++)
        if (m->txn[i].open)
            end(m, i);
}

static uint64_t history_bytes(const struct hs_history *h)
{
    return h->event_count * sizeof(*h->events) + h->mop_count * sizeof(*h->mops) +
        h->element_count * sizeof(*h->elements);
}

static json_t *measure(struct maker *m, uint64_t txns, uint64_t rounds)
{
    struct hs_check_report *report = calloc(1, sizeof(*report));
    uint64_t best = UINT64_MAX;

    if (report == NULL)
        return NULL;
    make_history(m, txns);
    for (uint64_t i = 0; i < rounds; i++) {
        (void)hs_check_lists(m->history, NULL, report);
        best = cn_min64(best, report->ns);
    }
    uint64_t checked = report->ok + report->fail + report->info;
    json_t *o = json_object();
    json_object_set_new(o, "benchmark", json_string("check"));
    json_object_set_new(o, "verdict", json_string(hs_verdict_name(report->verdict)));
    json_object_set_new(o, "transactions", tl_json_u64(checked));
    json_object_set_new(o, "ok", tl_json_u64(report->ok));
    json_object_set_new(o, "clients", tl_json_u64(m->clients));
    json_object_set_new(o, "keys", tl_json_u64(report->keys));
    json_object_set_new(o, "reads", tl_json_u64(report->reads));
    json_object_set_new(o, "elements_read", tl_json_u64(m->history->element_count));
    json_object_set_new(o, "edges", tl_json_u64(report->edges));
    json_object_set_new(o, "best_ns", tl_json_u64(best));
    json_object_set_new(
        o, "transactions_per_s", json_real((double)checked * 1e9 / (double)best));
    json_object_set_new(o, "history_bytes_per_transaction",
        json_real((double)history_bytes(m->history) / (double)checked));
    json_object_set_new(o, "checker_bytes_per_transaction",
        json_real((double)report->bytes / (double)checked));
    free(report);
    return o;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    uint64_t txns = 1000000, clients = 16, per_key = 32, rounds = 3, seed = 1;
    bool json = false, stale = false;
    int first;
    const struct tl_option options[] = {
        {"transactions", "N", "transactions of the history; 1000000", .number = &txns, .min = 1,
            .max = 100000000},
        {"clients", "N", "that run at one time; 16", .number = &clients, .min = 1,
            .max = CLIENTS_MAX},
        {"per-key", "N", "appends until a key is retired; 32", .number = &per_key, .min = 1,
            .max = LIST_MAX},
        {"rounds", "N", "checks, of which the fastest counts; 3", .number = &rounds, .min = 1,
            .max = 1000},
        {"seed", "N", "of the history; 1", .number = &seed, .min = 0, .max = UINT64_MAX},
        {"stale", NULL, "let one transaction read an old version: exit 1", .flag = &stale},
        {"json", NULL, "the result as JSON", .flag = &json},
        {0},
    };
    int status = tl_parse(self, options, argc, argv, 0, 0, &first);
    if (status != -1)
        return status;
    struct maker *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return tl_error(self, "no memory for %zu bytes", sizeof(*m));
    m->history = hs_history_new();
    m->clients = clients;
    m->per_key = per_key;
    m->random = seed;
    m->stale = stale;
    struct tl_progress *progress = tl_progress_start("making a history and checking it");
    json_t *o = measure(m, txns, rounds);
    tl_progress_end(progress);
    hs_history_delete(&m->history);
    free(m);
    if (o == NULL)
        return tl_error(self, "no memory for a report");
    bool good = strcmp(json_string_value(json_object_get(o, "verdict")), "true") == 0;
    if (json) {
        tl_json_print(o);
    } else {
        tl_print_tree(o, 0);
        json_decref(o);
    }
    return good ? TL_OK : TL_BAD;
}

const struct tl_command bn_check = {
    .name = "bench check",
    .args = "[OPTION...]",
    .summary = "How fast histories are checked for strict serializability.",
    .example = "  cairn bench check --transactions 1000000 --json\n",
    .run = run,
};
