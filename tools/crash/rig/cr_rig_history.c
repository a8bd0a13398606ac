/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig_history.c: the clients' logs of one part, merged into one history in the order of time:
 * CLOCK_MONOTONIC is one clock for all processes of a machine.
 */
#include "tools/crash/rig/cr_rig_shared.h"
#include "tools/history/hs_history.h"

struct point { /* an event of the history: where an event of a log begins or ends */
    uint64_t ns;
    const struct rig_event *event;
    bool end;
};
struct points {
    struct point *at;
    size_t count, room;
};

static void add(struct points *p, uint64_t ns, const struct rig_event *e, bool end)
{
    if (p->count == p->room) {
        p->room = p->room == 0 ? 1024 : 2 * p->room;
        p->at = realloc(p->at, p->room * sizeof(*p->at));
        if (p->at == NULL)
            cn_panic(__FILE__, __LINE__, "out of memory for a history");
    }
    p->at[p->count++] = (struct point){ns, e, end};
}

static void collect(struct rig_shared *s, uint32_t client, uint32_t part, struct points *p)
{
    const struct rig_client *c = &s->client[client];

    for (uint64_t off = 0; off + sizeof(struct rig_event) <= c->used;) {
        const struct rig_event *e = rig_at(s, c->log_off + off);
        if (e->part == part) {
            add(p, e->begin_ns, e, false);
            if (e->outcome != CAIRN_OUTCOME_NONE)
                add(p, e->end_ns, e, true);
        }
        off += e->size;
    }
}

/* Ties: an invoke before a completion, so that they count as concurrent. */
static int compare(const void *a, const void *b)
{
    const struct point *x = a, *y = b;

    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->end != y->end)
        return x->end ? 1 : -1;
    return x->event < y->event ? -1 : x->event > y->event;
}

static enum hs_type type_of(const struct point *p)
{
    if (!p->end)
        return HS_INVOKE;
    return p->event->outcome == CAIRN_OUTCOME_COMMITTED ? HS_OK
        : p->event->outcome == CAIRN_OUTCOME_ABORTED    ? HS_FAIL
                                                        : HS_INFO;
}

/* Only a transaction of a check that read and wrote nothing is the last word. */
static bool is_final(const struct rig_event *e)
{
    const uint8_t *at = (const uint8_t *)(e + 1), *end = (const uint8_t *)e + e->size;

    while (at < end) {
        const struct rig_mop *m = (const void *)at;
        if (m->kind == RIG_APPEND)
            return false;
        at += sizeof(*m) + cn_align_up((uint64_t)m->count * 4, 8);
    }
    return e->final && e->outcome == CAIRN_OUTCOME_COMMITTED;
}

static void write_event(struct hs_history *h, const struct point *p)
{
    const struct rig_event *e = p->event;
    const uint8_t *at = (const uint8_t *)(e + 1), *end = (const uint8_t *)e + e->size;
    enum hs_type type = type_of(p);

    hs_event_begin(h, type, is_final(e) ? HS_F_FINAL : HS_F_TXN, e->process, p->ns);
    while (at < end) {
        const struct rig_mop *m = (const void *)at;
        const uint32_t *elements = (const void *)(m + 1);
        if (m->kind == RIG_APPEND)
            hs_event_append(h, m->key, elements[0]);
        else if (type == HS_OK)
            hs_event_read(h, m->key, elements, m->count);
        else
            hs_event_read(h, m->key, NULL, HS_UNREAD);
        at += sizeof(*m) + cn_align_up((uint64_t)m->count * 4, 8);
    }
    hs_event_end(h);
}

struct hs_history *rig_history(struct rig_shared *s, uint32_t part)
{
    struct points p = {0};
    struct hs_history *h = NULL;

    for (uint32_t i = 0; i <= s->clients; i++) {
        rig_log_resume(s, i);
        collect(s, i, part, &p);
    }
    if (p.count > 0) {
        qsort(p.at, p.count, sizeof(*p.at), compare);
        h = hs_history_new();
        for (size_t i = 0; i < p.count; i++)
            write_event(h, &p.at[i]);
    }
    free(p.at);
    return h;
}
