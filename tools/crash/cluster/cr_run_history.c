/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_run_history.c: what workloads note of their list transactions, and the check of it.
 *
 * A transaction's invoke has its place in the order of events when it begins, but what it does is
 * known only later, and never completely when its coordinator crashes. So events are kept here, and
 * made into a history (hs_history.h) when it is asked for: an invoke gets the micro-operations that
 * were noted until the end or the crash.
 */
#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/cluster/cr_run.h"

struct mop {
    uint64_t key;
    uint32_t kind;  /* HS_APPEND, HS_READ */
    uint32_t value; /* the element; read: index of the first one in `element` */
    uint32_t count; /* read */
};

struct cr_noted { /* a transaction */
    uint64_t process;
    bool check; /* of check(): the last word, if it was committed and only reads */
    bool appends;
    enum cairn_outcome outcome;
    struct mop *mop;
    uint32_t mop_count, mop_room;
    uint32_t *element;
    uint32_t element_count, element_room;
};

struct event {
    struct cr_noted *noted;
    uint64_t time;
    bool end;
};

struct cr_history {
    struct event *event;
    uint32_t count, room;
};

static void *grow(void *array, uint32_t count, uint32_t more, uint32_t *room, size_t size)
{
    if (count + more <= *room)
        return array;
    while (*room < count + more)
        *room = *room == 0 ? 8 : 2 * *room;
    return sim_realloc(array, *room * size);
}

static void add_event(struct cairn_run *run, bool end)
{
    struct cr_history *h = run->part->history;

    h->event = grow(h->event, h->count, 1, &h->room, sizeof(*h->event));
    h->event[h->count++] = (struct event){run->noted, run->client->cluster->sim.now, end};
}

void cr_history_delete(struct cr_history **history)
{
    struct cr_history *h = *history;

    for (uint32_t i = 0; h != NULL && i < h->count; i++) {
        if (h->event[i].end)
            continue; /* it has a beginning, which frees it */
        sim_free(h->event[i].noted->mop);
        sim_free(h->event[i].noted->element);
        sim_free(h->event[i].noted);
    }
    if (h != NULL)
        sim_free(h->event);
    sim_free(h);
    *history = NULL;
}

/* ---- the calls of workload.h ---- */

static bool is_open(struct cairn_run *run, const char *call)
{
    if (run->noted == NULL)
        cairn_run_fail(run, "%s() without cairn_run_history_begin()", call);
    return run->noted != NULL;
}

void cairn_run_history_begin(struct cairn_run *run)
{
    if (run->noted != NULL) {
        cairn_run_fail(run, "cairn_run_history_begin() twice, no cairn_run_history_end() between");
        return;
    }
    if (run->part->history == NULL)
        run->part->history = sim_calloc(1, sizeof(*run->part->history));
    run->noted = sim_calloc(1, sizeof(*run->noted));
    run->noted->process = run->client->process;
    run->noted->check = run->call == CR_CALL_CHECK;
    add_event(run, false);
}

static struct mop *add_mop(struct cr_noted *t, uint64_t key, uint32_t kind)
{
    t->mop = grow(t->mop, t->mop_count, 1, &t->mop_room, sizeof(*t->mop));
    t->mop[t->mop_count] = (struct mop){.key = key, .kind = kind};
    return &t->mop[t->mop_count++];
}

void cairn_run_history_append(struct cairn_run *run, uint64_t key, uint32_t element)
{
    if (!is_open(run, "cairn_run_history_append"))
        return;
    add_mop(run->noted, key, HS_APPEND)->value = element;
    run->noted->appends = true;
}

void cairn_run_history_read(
    struct cairn_run *run, uint64_t key, const uint32_t *elements, uint32_t count)
{
    struct cr_noted *t = run->noted;

    if (!is_open(run, "cairn_run_history_read"))
        return;
    if (count > CAIRN_VALUE_SIZE_MAX) {
        cairn_run_fail(run, "cairn_run_history_read() of %u elements", count);
        return;
    }
    struct mop *m = add_mop(t, key, HS_READ);
    t->element = grow(t->element, t->element_count, count, &t->element_room, sizeof(uint32_t));
    if (count != 0)
        memcpy(t->element + t->element_count, elements, count * sizeof(uint32_t));
    m->value = t->element_count;
    m->count = count;
    t->element_count += count;
}

void cairn_run_history_end(struct cairn_run *run, enum cairn_outcome outcome)
{
    struct cr_noted *t = run->noted;

    if (!is_open(run, "cairn_run_history_end"))
        return;
    t->outcome = outcome == CAIRN_OUTCOME_NONE ? CAIRN_OUTCOME_ABORTED : outcome;
    add_event(run, true);
    run->noted = NULL;
    if (t->outcome == CAIRN_OUTCOME_UNKNOWN) /* its process invokes no more */
        run->client->process = ++run->client->cluster->next_process;
}

void cr_history_drop(struct cairn_run *run)
{
    if (run->noted != NULL)
        cairn_run_history_end(run, CAIRN_OUTCOME_UNKNOWN);
}

/* ---- the history ---- */

static void put_mops(struct hs_history *h, const struct cr_noted *t, bool read)
{
    for (uint32_t i = 0; i < t->mop_count; i++) {
        const struct mop *m = &t->mop[i];
        if (m->kind == HS_APPEND)
            hs_event_append(h, m->key, m->value);
        else
            hs_event_read(
                h, m->key, read ? t->element + m->value : NULL, read ? m->count : HS_UNREAD);
    }
}

struct hs_history *cr_history_make(const struct cr_history *history)
{
    static const enum hs_type types[] = {HS_INFO, HS_OK, HS_FAIL, HS_INFO}; /* by outcome */
    struct hs_history *h;

    if (history == NULL)
        return NULL;
    h = hs_history_new();
    for (uint32_t i = 0; i < history->count; i++) {
        const struct event *e = &history->event[i];
        const struct cr_noted *t = e->noted;
        enum hs_type type = e->end ? types[t->outcome] : HS_INVOKE;
        bool final = t->check && !t->appends;
        if (final && t->outcome != CAIRN_OUTCOME_COMMITTED)
            continue; /* done again */
        hs_event_begin(h, type, final ? HS_F_FINAL : HS_F_TXN, t->process, e->time);
        put_mops(h, t, type == HS_OK);
        hs_event_end(h);
    }
    return h;
}

void cr_history_check(struct cr_cluster *c, const struct cr_part *part)
{
    struct hs_check_report *report = sim_calloc(1, sizeof(*report));
    struct hs_history *h = cr_history_make(part->history);

    if (hs_check_lists(h, NULL, report) != HS_TRUE)
        sim_fail(&c->sim, "%.40s: history: %s: %.900s", part->workload->name,
            hs_verdict_name(report->verdict), report->text);
    hs_history_delete(&h);
    sim_free(report);
}
