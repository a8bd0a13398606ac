/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: logs of histories (hs_history.c): what the harness reads from files of killed processes.
 * Input: the file. An event whose crc field is zero is mended.
 * Oracle: a log that loads is written again to the same bytes (but for a torn end); merging a
 * history with nothing keeps its events.
 */
#include <unistd.h>

#include "tools/history/hs_history.h"

#include "tests/fuzz/fz_common.h"

#define LOG_MAX 65536u
#define EVENT_HEAD 8u

static void mend(uint8_t *log, size_t size)
{
    for (size_t at = 0; size - at >= EVENT_HEAD;) {
        struct le32 length, crc;
        uint32_t n;

        memcpy(&length, log + at, 4);
        memcpy(&crc, log + at + 4, 4);
        n = le32_get(length);
        if (n > size - at - EVENT_HEAD)
            return;
        if (le32_get(crc) == 0) {
            crc = le32_make(cn_crc32c(0, log + at + EVENT_HEAD, n));
            memcpy(log + at + 4, &crc, 4);
        }
        at += EVENT_HEAD + n;
    }
}

static void log_event(struct hs_history *to, const struct hs_history *from, uint64_t index)
{
    const struct hs_event *e = &from->events[index];

    hs_event_begin(to, (enum hs_type)e->type, (enum hs_f)e->f, e->process, e->time_ns);
    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *m = &from->mops[e->mop_first + i];

        switch (m->kind) {
        case HS_APPEND: hs_event_append(to, m->key, (uint32_t)m->value); break;
        case HS_READ:
            hs_event_read(to, m->key, m->count == HS_UNREAD || m->count == 0
                    ? NULL : from->elements + m->value, m->count);
            break;
        case HS_BALANCE: hs_event_balance(to, m->key, (int64_t)m->value); break;
        default: hs_event_transfer(to, m->key, m->count, m->value); break;
        }
    }
    hs_event_end(to);
}

/* A copy of the events has the same text. */
static void compare(const struct hs_history *a, const struct hs_history *b)
{
    FZ_NEED(a->event_count == b->event_count && a->mop_count == b->mop_count, "other counts");
    for (uint64_t i = 0; i < a->event_count; i++) {
        const struct hs_event *x = &a->events[i], *y = &b->events[i];

        FZ_NEED(x->process == y->process && x->time_ns == y->time_ns && x->type == y->type &&
                x->f == y->f && x->mop_count == y->mop_count, "event %llu",
            (unsigned long long)i);
        for (uint32_t k = 0; k < x->mop_count; k++) {
            const struct hs_mop *m = &a->mops[x->mop_first + k], *n = &b->mops[y->mop_first + k];

            FZ_NEED(m->kind == n->kind && m->key == n->key, "micro-operation");
            if (m->kind != HS_READ || m->count == HS_UNREAD || m->count == 0)
                continue;
            FZ_NEED(m->count == n->count &&
                    memcmp(a->elements + m->value, b->elements + n->value, 4ull * m->count) == 0,
                "elements");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t log[LOG_MAX];
    struct hs_history *h = hs_history_new(), *copy = hs_history_new(), *merged;
    bool torn = false;
    int rc;

    size = cn_min64(size, sizeof(log));
    if (size > 0)
        memcpy(log, data, size);
    mend(log, size);
    rc = hs_history_load(h, fz_file(log, size), &torn);
    FZ_NEED(rc == 0 || rc == CAIRN_E_PROTOCOL, "error %d: %s", rc, cairn_last_error());
    if (rc == 0) {
        for (uint64_t i = 0; i < h->event_count; i++)
            log_event(copy, h, i);
        compare(h, copy);
        FZ_NEED(hs_history_write_edn(h, HS_WRITE_LISTS, "/dev/null") == 0, "edn");
        FZ_NEED(hs_history_write_json(h, HS_WRITE_BANK, "/dev/null") == 0, "json");
        merged = hs_history_merge((const struct hs_history *const *)&h, 1);
        FZ_NEED(merged->event_count == h->event_count, "events lost");
        hs_history_delete(&merged);
    }
    hs_history_delete(&h);
    hs_history_delete(&copy);
    return 0;
}
