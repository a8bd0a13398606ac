/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_check.c: the checker of the demo. First pass: walk each key's chain and mark which touch of
 * which attempt is on it. Second pass: judge each attempt by what is marked.
 */
#include "tools/demo_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

struct check {
    const struct dc_input *in;
    struct dc_result *ret;
    uint8_t **seen; /* per ledger, per entry: a bit per touch that is on its key's chain */
};

static void violate(struct check *c, uint64_t *counter, const char *format, ...) CN_PRINTF(3, 4);
static void violate(struct check *c, uint64_t *counter, const char *format, ...)
{
    char text[256];
    va_list args;

    (*counter)++;
    if (c->in->violation == NULL)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    c->in->violation(c->in->arg, text);
}

/* NULL: there is no such attempt. */
static const struct dl_entry *find_entry(const struct check *c, uint32_t writer, uint32_t number)
{
    if (writer == 0 || writer > c->in->ledger_count)
        return NULL;
    const struct dl *ledger = &c->in->ledger[writer - 1];
    if (ledger->header == NULL || number == 0 || number > ledger->header->entry_count)
        return NULL;
    return &ledger->entry[number - 1];
}

/* SB_TOUCHES_MAX: it does not write the key. */
static uint32_t find_touch(const struct dl_entry *entry, uint32_t key)
{
    for (uint32_t i = 0; i < entry->touch_count && i < SB_TOUCHES_MAX; i++) {
        if (entry->touch[i].key == (key | SB_WRITTEN))
            return i;
    }
    return SB_TOUCHES_MAX;
}

static void check_loaded(struct check *c, uint32_t key, const struct sb_value *v)
{
    if (v->number != 0 || v->count != 0 || v->balance != c->in->initial_balance)
        violate(c, &c->ret->lost_updates,
            "key %u: its chain ends in balance %" PRId64 ", count %" PRIu64
            " where the loader wrote %" PRId64 ", 0",
            key, v->balance, v->count, c->in->initial_balance);
}

static void walk_chain(struct check *c, uint32_t key)
{
    struct sb_value v = c->in->final[key];

    while (v.writer != 0) {
        const struct dl_entry *e = find_entry(c, v.writer, v.number);
        uint32_t i = e == NULL ? SB_TOUCHES_MAX : find_touch(e, key);
        if (i == SB_TOUCHES_MAX || e->state == DL_NONE) {
            violate(c, &c->ret->foreign_values, "key %u: written by %u.%u, which never did", key,
                v.writer, v.number);
            return;
        }
        const struct sb_touch *t = &e->touch[i];
        if (t->new_balance != v.balance || (uint64_t)t->prev_count + 1 != v.count)
            violate(c, &c->ret->lost_updates,
                "key %u: %u.%u wrote balance %" PRId64 ", count %u; found or read after it %" PRId64
                ", %" PRIu64,
                key, v.writer, v.number, t->new_balance, t->prev_count + 1, v.balance, v.count);
        uint8_t *seen = &c->seen[v.writer - 1][v.number - 1];
        if ((*seen & 1u << i) != 0)
            return; /* a cycle: was reported as a count that does not fit */
        *seen |= (uint8_t)(1u << i);
        v = (struct sb_value){t->old_balance, t->prev_writer, t->prev_number, t->prev_count};
    }
    check_loaded(c, key, &v);
}

static uint8_t writes_mask(const struct dl_entry *e)
{
    uint8_t mask = 0;

    for (uint32_t i = 0; i < e->touch_count && i < SB_TOUCHES_MAX; i++) {
        if ((e->touch[i].key & SB_WRITTEN) != 0)
            mask |= (uint8_t)(1u << i);
    }
    return mask;
}

/* An attempt without outcome: its content decides, and its token's verdict must agree. */
static void judge_unknown(
    struct check *c, uint32_t writer, const struct dl_entry *e, uint8_t seen, uint8_t writes)
{
    c->ret->unknown++;
    if (seen != 0 && seen != writes) {
        violate(c, &c->ret->torn, "%u.%u (%s): only a part of it took effect", writer, e->number,
            sb_kind_name((enum sb_kind)e->kind));
        return;
    }
    if (writes == 0) {
        c->ret->resolved++; /* it had nothing to decide */
        return;
    }
    bool committed = seen == writes;
    if ((e->told == DL_COMMITTED && !committed) || (e->told == DL_ABORTED && committed))
        violate(c, &c->ret->wrong_verdicts, "%u.%u: its token says %s, its keys say the opposite",
            writer, e->number, e->told == DL_COMMITTED ? "COMMITTED" : "ABORTED");
    c->ret->resolved++;
    if (committed) {
        c->ret->resolved_committed++;
        c->ret->money_expected += e->delta;
    }
}

static void judge(struct check *c, uint32_t writer, const struct dl_entry *e, uint8_t seen)
{
    uint8_t writes = writes_mask(e);

    switch ((enum dl_state)e->state) {
    case DL_NONE: return; /* its commit was never called */
    case DL_COMMITTED:
        c->ret->committed++;
        c->ret->money_expected += e->delta;
        if (seen == writes)
            return;
        violate(c, &c->ret->lost, "%u.%u (%s): was acknowledged, and %s of it is there", writer,
            e->number, sb_kind_name((enum sb_kind)e->kind), seen == 0 ? "nothing" : "only a part");
        if (seen != 0)
            c->ret->torn++;
        return;
    case DL_ABORTED:
        c->ret->aborted++;
        if (seen != 0)
            violate(c, &c->ret->ghosts, "%u.%u (%s): was aborted, and took effect", writer,
                e->number, sb_kind_name((enum sb_kind)e->kind));
        return;
    case DL_INTENDED:
    case DL_UNKNOWN: judge_unknown(c, writer, e, seen, writes); return;
    }
}

/* Having seen what `a` read of its writer, `b` must not be older than what that writer wrote there.
 */
static bool is_fractured(const struct check *c, const struct sb_touch *a, const struct sb_touch *b)
{
    const struct dl_entry *e = find_entry(c, a->prev_writer, a->prev_number);
    uint32_t i = e == NULL ? SB_TOUCHES_MAX : find_touch(e, b->key & ~SB_WRITTEN);

    return i != SB_TOUCHES_MAX && b->prev_count < e->touch[i].prev_count + 1;
}

static void check_reads(struct check *c, uint32_t writer, const struct dl_entry *e)
{
    if (e->state != DL_COMMITTED)
        return;
    for (uint32_t i = 0; i < e->touch_count && i < SB_TOUCHES_MAX; i++) {
        for (uint32_t j = 0; j < e->touch_count && j < SB_TOUCHES_MAX; j++) {
            if (i != j && is_fractured(c, &e->touch[i], &e->touch[j]))
                violate(c, &c->ret->fractured, "%u.%u (%s): saw a part of %u.%u only", writer,
                    e->number, sb_kind_name((enum sb_kind)e->kind), e->touch[i].prev_writer,
                    e->touch[i].prev_number);
        }
    }
}

static void free_seen(struct check *c)
{
    for (uint32_t i = 0; i < c->in->ledger_count && c->seen != NULL; i++)
        free(c->seen[i]);
    free((void *)c->seen);
}

static int make_seen(struct check *c)
{
    c->seen = calloc(c->in->ledger_count + 1, sizeof(*c->seen));
    if (c->seen == NULL)
        return cn_fail(-ENOMEM, "out of memory for the check");
    for (uint32_t i = 0; i < c->in->ledger_count; i++) {
        if (c->in->ledger[i].header == NULL)
            continue;
        c->seen[i] = calloc((size_t)c->in->ledger[i].header->entry_count + 1, 1);
        if (c->seen[i] == NULL)
            return cn_fail(-ENOMEM, "out of memory for the check");
    }
    return 0;
}

int demo_check(const struct dc_input *input, struct dc_result *ret)
{
    struct check c = {.in = input, .ret = ret};
    int rc = make_seen(&c);

    memset(ret, 0, sizeof(*ret));
    if (rc != 0) {
        free_seen(&c);
        return rc;
    }
    ret->money_expected = input->initial_balance * (int64_t)input->key_count;
    for (uint32_t key = 0; key < input->key_count; key++) {
        if (!input->present[key]) {
            violate(&c, &ret->lost, "key %u: is not there any more", key);
            continue;
        }
        ret->money += input->final[key].balance;
        walk_chain(&c, key);
    }
    for (uint32_t w = 0; w < input->ledger_count; w++) {
        const struct dl *ledger = &input->ledger[w];
        for (uint32_t n = 0; ledger->header != NULL && n < ledger->header->entry_count; n++) {
            judge(&c, w + 1, &ledger->entry[n], c.seen[w][n]);
            check_reads(&c, w + 1, &ledger->entry[n]);
        }
    }
    if (ret->money != ret->money_expected && input->violation != NULL)
        input->violation(input->arg, "the total of all balances is not what the commits say");
    free_seen(&c);
    return 0;
}

bool demo_check_is_good(const struct dc_result *r)
{
    return r->lost == 0 && r->torn == 0 && r->ghosts == 0 && r->lost_updates == 0 &&
        r->fractured == 0 && r->wrong_verdicts == 0 && r->foreign_values == 0 &&
        r->resolved == r->unknown && r->money == r->money_expected;
}
