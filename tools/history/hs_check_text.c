/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_check_text.c: what the checker found, in words and as a DOT graph.
 */
#include "tools/history/hs_check_state.h"

#include <stdarg.h>

#define LIST_SHOWN 4u  /* elements of a list: the last ones */
#define MOPS_SHOWN 12u /* micro-operations of a transaction: the first ones */

static const char *const edge_names[HS_E_COUNT] = {"ww", "wr", "rw", "process", "realtime"};

const char *hs_anomaly_name(enum hs_anomaly anomaly)
{
    static const char *const names[] = {
#define HS_X(name, text) [HS_A_##name] = text,
        HS_ANOMALIES(HS_X)
#undef HS_X
    };
    return (unsigned)anomaly < CN_ARRAY_SIZE(names) ? names[anomaly] : "?";
}

const char *hs_verdict_name(enum hs_verdict verdict)
{
    return verdict == HS_TRUE ? "true" : verdict == HS_FALSE ? "false" : "unknown";
}

bool hs_found(struct hs_ck *ck, enum hs_anomaly anomaly)
{
    return ck->report->count[anomaly]++ == 0;
}

void hs_say(struct hs_ck *ck, const char *format, ...)
{
    const size_t room = sizeof(ck->report->text) - ck->text_used;
    va_list args;

    va_start(args, format);
    const int n = vsnprintf(ck->report->text + ck->text_used, room, format, args);
    va_end(args);
    if (n > 0)
        ck->text_used += (size_t)n < room ? (size_t)n : room - 1;
}

static void say_read(struct hs_ck *ck, const struct hs_mop *mop)
{
    const uint32_t from =
        mop->count != HS_UNREAD && mop->count > LIST_SHOWN ? mop->count - LIST_SHOWN : 0;

    hs_say(ck, "[r %llu ", (unsigned long long)mop->key);
    if (mop->count == HS_UNREAD) {
        hs_say(ck, "?]");
        return;
    }
    hs_say(ck, from > 0 ? "%u:[..," : "%u:[", mop->count);
    for (uint32_t i = from; i < mop->count; i++)
        hs_say(ck, "%s%u", i > from ? "," : "", ck->h->elements[mop->value + i]);
    hs_say(ck, "]]");
}

/* One line: "T12 (process 3, ok) [r 5 2:[1,2]] [append 5 3]". */
void hs_say_txn(struct hs_ck *ck, uint32_t txn)
{
    static const char *const types[] = {"invoke", "ok", "fail", "info"};
    const struct hs_txn *t = &ck->txn[txn];
    const struct hs_event *e = hs_body(ck, t);

    hs_say(ck, "T%u (process %llu, %s)", t->invoke, (unsigned long long)e->process, types[t->type]);
    for (uint32_t i = 0; i < e->mop_count && i < MOPS_SHOWN; i++) {
        const struct hs_mop *mop = &ck->h->mops[e->mop_first + i];
        if (mop->kind == HS_READ) {
            hs_say(ck, " ");
            say_read(ck, mop);
        } else {
            hs_say(ck, " [append %llu %llu]", (unsigned long long)mop->key,
                (unsigned long long)mop->value);
        }
    }
    hs_say(ck, e->mop_count > MOPS_SHOWN ? " ...\n" : "\n");
}

/* Elements of the first read of a key in a transaction; HS_NONE: it read none. */
static uint32_t seen_by(const struct hs_ck *ck, uint32_t txn, uint64_t key)
{
    const struct hs_event *e = hs_body(ck, &ck->txn[txn]);
    uint32_t own = 0;

    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *mop = &ck->h->mops[e->mop_first + i];
        if (mop->key != key)
            continue;
        if (mop->kind == HS_READ && mop->count != HS_UNREAD)
            return mop->count - own;
        own += mop->kind == HS_APPEND;
    }
    return HS_NONE;
}

/* The first element that a transaction appended to a key. */
static uint64_t appended_by(const struct hs_ck *ck, uint32_t txn, uint64_t key)
{
    const struct hs_event *e = hs_body(ck, &ck->txn[txn]);

    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *mop = &ck->h->mops[e->mop_first + i];
        if (mop->kind == HS_APPEND && mop->key == key)
            return mop->value;
    }
    return 0;
}

static void say_edge(struct hs_ck *ck, const struct hs_edge *e)
{
    const unsigned a = ck->txn[e->from].invoke, b = ck->txn[e->to].invoke;
    const unsigned long long key = e->key != HS_NO_KEY ? ck->key[e->key].key : 0;

    hs_say(ck, "  T%u < T%u, for ", a, b);
    switch (e->kind) {
    case HS_E_WW:
        hs_say(ck, "T%u appended %llu to key %llu after T%u's %llu", b,
            (unsigned long long)appended_by(ck, e->to, key), key, a,
            (unsigned long long)appended_by(ck, e->from, key));
        break;
    case HS_E_WR:
        hs_say(ck, "T%u read key %llu with %u elements, the last one appended by T%u", b, key,
            seen_by(ck, e->to, key), a);
        break;
    case HS_E_RW:
        hs_say(ck, "T%u read key %llu with %u elements, without the %llu that T%u appended", a, key,
            seen_by(ck, e->from, key), (unsigned long long)appended_by(ck, e->to, key), b);
        break;
    case HS_E_PROCESS:
        hs_say(ck, "one process ran T%u and then T%u", a, b);
        break;
    default:
        hs_say(ck, "T%u was complete before T%u began", a, b);
        break;
    }
    hs_say(ck, " (%s)\n", edge_names[e->kind]);
}

void hs_say_cycle(struct hs_ck *ck, const struct hs_cycle *cycle)
{
    hs_say(ck, "%s: a cycle of %u:\n", hs_anomaly_name(cycle->anomaly), cycle->count);
    for (uint32_t i = 0; i < cycle->count; i++) {
        hs_say(ck, "  ");
        hs_say_txn(ck, cycle->edges[i].from);
    }
    for (uint32_t i = 0; i < cycle->count; i++)
        say_edge(ck, &cycle->edges[i]);
}

void hs_write_dot(struct hs_ck *ck, const struct hs_cycle *cycle, const char *path)
{
    FILE *out = fopen(path, "we");

    if (out == NULL)
        return;
    (void)fprintf(out, "digraph \"%s\" {\n", hs_anomaly_name(cycle->anomaly));
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct hs_edge *e = &cycle->edges[i];
        (void)fprintf(out, "  T%u -> T%u [label=\"%s", ck->txn[e->from].invoke,
            ck->txn[e->to].invoke, edge_names[e->kind]);
        if (e->key != HS_NO_KEY)
            (void)fprintf(out, " %llu", (unsigned long long)ck->key[e->key].key);
        (void)fprintf(out, "\"];\n");
    }
    (void)fprintf(out, "}\n");
    (void)fclose(out);
}
