/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_check.c: the frame of the checkers of hs_check.h: pairing of events, realtime and process
 * edges, search for cycles, verdict; and the bank.
 */
#include "tools/history/hs_check_state.h"

#include <time.h>

#define CYCLES_EXPLAINED_MAX 16u /* components in which a cycle is sought and named */

void *hs_take(uint64_t count, size_t size)
{
    void *p = calloc(count == 0 ? 1 : count, size);

    if (p == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a check");
    return p;
}

void *hs_grow(void *array, uint64_t need, uint64_t *room, size_t size)
{
    if (need <= *room)
        return array;
    *room = *room == 0 ? 64 : *room * 2;
    if (*room < need)
        *room = need;
    array = realloc(array, *room * size);
    if (array == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a check");
    return array;
}

static uint64_t clock_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

const struct hs_event *hs_body(const struct hs_ck *ck, const struct hs_txn *txn)
{
    return &ck->h->events[txn->type == HS_OK ? txn->complete : txn->invoke];
}

bool hs_is_node(const struct hs_txn *txn)
{
    return txn->type == HS_OK || txn->observed;
}

/* ---- processes: a map from their ids ---- */

struct process {
    uint64_t id;
    uint32_t open; /* transaction under way, HS_NONE */
    uint32_t last; /* last ok transaction, HS_NONE */
    bool used, retired;
};
struct processes {
    struct process *table;
    uint64_t mask, count;
};

static struct process *probe(struct process *table, uint64_t mask, uint64_t id)
{
    uint64_t i = cn_mix64(id + 1) & mask;

    while (table[i].used && table[i].id != id)
        i = (i + 1) & mask;
    return &table[i];
}

static struct process *find_process(struct processes *p, uint64_t id)
{
    struct process *at;

    if (p->count * 2 >= p->mask) {
        const uint64_t mask = p->mask == 0 ? 63 : p->mask * 2 + 1;
        struct process *table = hs_take(mask + 1, sizeof(*table));
        for (uint64_t i = 0; p->table != NULL && i <= p->mask; i++)
            if (p->table[i].used)
                *probe(table, mask, p->table[i].id) = p->table[i];
        free(p->table);
        p->table = table;
        p->mask = mask;
    }
    at = probe(p->table, p->mask, id);
    if (!at->used) {
        *at = (struct process){.id = id, .open = HS_NONE, .last = HS_NONE, .used = true};
        p->count++;
    }
    return at;
}

/* ---- pairing ---- */

static bool begin_txn(struct hs_ck *ck, struct process *p, uint32_t event)
{
    if (p->open != HS_NONE || p->retired) {
        hs_say(ck, "cannot check: process %llu invokes at event %u %s\n",
            (unsigned long long)p->id, event,
            p->retired ? "after an operation of unknown outcome" : "inside another operation");
        return false;
    }
    ck->txn = hs_grow(ck->txn, (uint64_t)ck->txn_count + 1, &ck->txn_room, sizeof(*ck->txn));
    ck->txn[ck->txn_count] = (struct hs_txn){.invoke = event, .complete = HS_NONE,
        .type = HS_INFO, .final = ck->h->events[event].f == HS_F_FINAL};
    p->open = ck->txn_count++;
    return true;
}

static bool end_txn(struct hs_ck *ck, struct process *p, uint32_t event)
{
    const struct hs_event *e = &ck->h->events[event];

    if (p->open == HS_NONE) {
        hs_say(ck, "cannot check: process %llu completes at event %u what it did not invoke\n",
            (unsigned long long)p->id, event);
        return false;
    }
    ck->txn[p->open].complete = event;
    ck->txn[p->open].type = e->type;
    p->open = HS_NONE;
    p->retired = e->type == HS_INFO;
    return true;
}

static bool is_list_event(const struct hs_event *e)
{
    return e->f == HS_F_TXN || e->f == HS_F_FINAL;
}

static bool pair_events(struct hs_ck *ck)
{
    struct processes p = {0};
    bool good = true;

    if (ck->h->event_count >= HS_NONE) {
        hs_say(ck, "cannot check: too many events\n");
        return false;
    }
    for (uint32_t i = 0; i < ck->h->event_count && good; i++) {
        const struct hs_event *e = &ck->h->events[i];
        if (!is_list_event(e))
            continue;
        struct process *at = find_process(&p, e->process);
        good = e->type == HS_INVOKE ? begin_txn(ck, at, i) : end_txn(ck, at, i);
    }
    free(p.table);
    for (uint32_t t = 0; t < ck->txn_count; t++) {
        ck->report->ok += ck->txn[t].type == HS_OK;
        ck->report->fail += ck->txn[t].type == HS_FAIL;
        ck->report->info += ck->txn[t].type == HS_INFO;
    }
    return good;
}

/* ---- time ---- */

struct frontier { /* completed, and not known to precede another completed one */
    uint32_t *txn;
    uint32_t count;
    uint64_t room;
};

static void complete_in_time(struct hs_ck *ck, struct frontier *f, uint32_t txn)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < f->count; i++)
        if (ck->txn[f->txn[i]].complete > ck->txn[txn].invoke)
            f->txn[kept++] = f->txn[i];
    f->txn = hs_grow(f->txn, (uint64_t)kept + 1, &f->room, sizeof(*f->txn));
    f->txn[kept++] = txn;
    f->count = kept;
}

/* Sweep the events: what completed before an invoke precedes it; what that follows from is left
 * out. */
static void link_time(struct hs_ck *ck)
{
    struct processes p = {0};
    struct frontier f = {0};
    uint32_t next = 0; /* transactions are numbered in the order of their invokes */

    for (uint32_t i = 0; i < ck->h->event_count; i++) {
        const struct hs_event *e = &ck->h->events[i];
        if (!is_list_event(e))
            continue;
        struct process *at = find_process(&p, e->process);
        if (e->type == HS_INVOKE) {
            const uint32_t txn = next++;
            at->open = txn;
            if (!hs_is_node(&ck->txn[txn]))
                continue;
            for (uint32_t j = 0; j < f.count; j++)
                hs_graph_add(&ck->graph, f.txn[j], txn, HS_E_REALTIME, HS_NO_KEY);
            if (at->last != HS_NONE)
                hs_graph_add(&ck->graph, at->last, txn, HS_E_PROCESS, HS_NO_KEY);
        } else if (e->type == HS_OK) {
            complete_in_time(ck, &f, at->open);
            at->last = at->open;
        }
    }
    free(p.table);
    free(f.txn);
}

/* ---- cycles ---- */

static void explain_cycle(struct hs_ck *ck, const uint32_t *component, uint32_t which,
    const struct hs_check_options *options)
{
    struct hs_cycle cycle;

    hs_graph_cycle(&ck->graph, component, which, &cycle);
    if (hs_found(ck, cycle.anomaly))
        hs_say_cycle(ck, &cycle);
    if (ck->report->cycles == 1 && options->dot_path != NULL)
        hs_write_dot(ck, &cycle, options->dot_path);
    free(cycle.edges);
}

static void find_cycles(struct hs_ck *ck, const struct hs_check_options *options)
{
    uint32_t *component = hs_take(ck->graph.nodes, sizeof(*component));
    const uint32_t count = hs_graph_components(&ck->graph, ~0u, component);
    uint32_t *size = hs_take(count, sizeof(*size));

    for (uint32_t t = 0; t < ck->graph.nodes; t++)
        size[component[t]]++;
    for (uint32_t t = 0; t < ck->graph.nodes; t++) {
        const uint32_t which = component[t];
        if (size[which] < 2)
            continue;
        size[which] = 0;
        if (ck->report->cycles++ < CYCLES_EXPLAINED_MAX)
            explain_cycle(ck, component, which, options);
    }
    free(size);
    free(component);
}

/* ---- the verdict ---- */

static enum hs_verdict conclude(struct hs_ck *ck, const struct hs_check_options *options)
{
    struct hs_check_report *report = ck->report;

    for (uint32_t t = 0; t < ck->txn_count; t++)
        report->info_observed += ck->txn[t].observed;
    for (uint32_t k = 0; k < ck->key_count; k++)
        report->keys_without_final += ck->key[k].final == HS_UNREAD;
    if (report->cycles > 0)
        return HS_FALSE;
    for (unsigned a = 0; a < HS_ANOMALY_COUNT; a++)
        if (report->count[a] > 0)
            return HS_FALSE;
    if (report->ok == 0) {
        hs_say(ck, "nothing to check: no transaction is ok\n");
        return HS_UNKNOWN;
    }
    if (options->need_final && report->keys_without_final > 0) {
        hs_say(ck, "%llu keys have no final read\n",
            (unsigned long long)report->keys_without_final);
        return HS_UNKNOWN;
    }
    return HS_TRUE;
}

/* All that it has taken, and the graph's scratch. */
static uint64_t ck_bytes(const struct hs_ck *ck)
{
    return ck->txn_room * sizeof(*ck->txn) + ck->key_room * sizeof(*ck->key) +
        ck->elem_count * sizeof(*ck->elem) + ck->order_count * sizeof(*ck->order) +
        (ck->key_mask + ck->elem_mask + 2) * sizeof(*ck->key_table) +
        hs_graph_bytes(&ck->graph);
}

static void ck_fini(struct hs_ck *ck)
{
    free(ck->txn);
    free(ck->key);
    free(ck->elem);
    free(ck->order);
    free(ck->key_table);
    free(ck->elem_table);
    hs_graph_fini(&ck->graph);
}

enum hs_verdict hs_check_lists(const struct hs_history *history,
    const struct hs_check_options *options, struct hs_check_report *ret)
{
    static const struct hs_check_options defaults;
    struct hs_ck ck = {.h = history, .report = ret};
    const uint64_t start = clock_ns();

    memset(ret, 0, sizeof(*ret));
    ret->verdict = HS_UNKNOWN;
    options = options != NULL ? options : &defaults;
    if (pair_events(&ck) && hs_lists_intern(&ck)) {
        hs_graph_init(&ck.graph, ck.txn_count);
        hs_lists_check(&ck);
        if (!options->serializable_only)
            link_time(&ck);
        hs_graph_build(&ck.graph);
        find_cycles(&ck, options);
        ret->verdict = conclude(&ck, options);
    }
    ret->keys = ck.key_count;
    ret->elements = ck.elem_count;
    ret->edges = ck.graph.edge_count;
    ret->bytes = ck_bytes(&ck);
    ck_fini(&ck);
    ret->ns = clock_ns() - start;
    return ret->verdict;
}

/* ---- bank ---- */

static void check_snapshot(struct hs_ck *ck, const struct hs_event *e, uint64_t index,
    const struct hs_bank_options *options, uint64_t *stamp)
{
    const struct hs_mop *mops = ck->h->mops + e->mop_first;
    bool good = e->mop_count == options->accounts;
    uint64_t total = 0; /* wraps as the signed sum would */

    for (uint32_t i = 0; i < e->mop_count; i++) {
        if (mops[i].key >= options->accounts || stamp[mops[i].key] == index + 1) {
            good = false;
            continue;
        }
        stamp[mops[i].key] = index + 1;
        total += mops[i].value;
        if ((int64_t)mops[i].value < 0 && !options->negative_allowed &&
            hs_found(ck, HS_A_BANK_NEGATIVE))
            hs_say(ck, "bank-negative: event %llu: account %llu has %lld\n",
                (unsigned long long)index, (unsigned long long)mops[i].key,
                (long long)mops[i].value);
    }
    if (!good && hs_found(ck, HS_A_BANK_ACCOUNTS))
        hs_say(ck, "bank-accounts: event %llu does not show each of the %llu accounts once\n",
            (unsigned long long)index, (unsigned long long)options->accounts);
    if (good && (int64_t)total != options->total && hs_found(ck, HS_A_BANK_TOTAL))
        hs_say(ck, "bank-total: event %llu of process %llu shows %lld in all, not %lld\n",
            (unsigned long long)index, (unsigned long long)e->process, (long long)total,
            (long long)options->total);
}

enum hs_verdict hs_check_bank(const struct hs_history *history,
    const struct hs_bank_options *options, struct hs_check_report *ret)
{
    struct hs_ck ck = {.h = history, .report = ret};
    uint64_t *stamp = hs_take(options->accounts, sizeof(*stamp));
    const uint64_t start = clock_ns();

    memset(ret, 0, sizeof(*ret));
    for (uint64_t i = 0; i < history->event_count; i++) {
        const struct hs_event *e = &history->events[i];
        if (e->f != HS_F_BANK_READ && e->f != HS_F_TRANSFER)
            continue;
        ret->ok += e->type == HS_OK;
        ret->fail += e->type == HS_FAIL;
        ret->info += e->type == HS_INFO;
        if (e->f != HS_F_BANK_READ || e->type != HS_OK)
            continue;
        ret->reads++;
        check_snapshot(&ck, e, i, options, stamp);
    }
    free(stamp);
    ret->keys = options->accounts;
    ret->verdict = HS_TRUE;
    if (ret->reads == 0) {
        ret->verdict = HS_UNKNOWN;
        hs_say(&ck, "nothing to check: no snapshot was read\n");
    }
    if (ret->count[HS_A_BANK_TOTAL] + ret->count[HS_A_BANK_ACCOUNTS] +
            ret->count[HS_A_BANK_NEGATIVE] > 0)
        ret->verdict = HS_FALSE;
    ret->ns = clock_ns() - start;
    return ret->verdict;
}
