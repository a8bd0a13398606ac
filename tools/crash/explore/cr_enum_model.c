/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_model.c: which states may a recovery leave? With up to three transactions all serial
 * orders are tried. A transaction that has not called commit, or was aborted, is in none of them;
 * one that was acknowledged is in each; one in between may be.
 */
#include "tools/crash/explore/cr_enum_case.h"

#include <inttypes.h>

static void take_first(const struct cr_case *c, uint32_t state[CR_CASE_KEYS])
{
    for (uint32_t i = 0; i < CR_CASE_KEYS; i++)
        state[i] = i < c->key_count && c->present[i] ? CR_VALUE_FIRST : 0;
}

/* What all operations of a transaction make of a state. False: a read saw something else. */
static bool apply(const struct cr_case *c, uint32_t tx, const struct cr_progress *progress,
    uint32_t state[CR_CASE_KEYS])
{
    for (uint32_t i = 0; i < c->tx[tx].count; i++) {
        const struct cr_case_op *op = &c->tx[tx].op[i];
        if (op->kind == CR_OP_PUT)
            state[op->key] = cr_value_of(tx, i);
        else if (op->kind == CR_OP_DELETE)
            state[op->key] = 0;
        else if (progress->seen[i] != CR_VALUE_UNREAD && progress->seen[i] != state[op->key])
            return false;
    }
    return true;
}

struct search {
    const struct cr_case *c;
    const struct cr_progress *progress;
    const uint32_t *goal;
};

/* May `tx` be the next, when those in `placed` are placed? Whoever ended before it began is. */
static bool may_follow(const struct search *s, unsigned placed, uint32_t tx)
{
    for (uint32_t i = 0; i < s->c->tx_count; i++)
        if ((placed >> i & 1) == 0 && s->progress[i].phase == CR_TX_COMMITTED &&
            s->progress[i].ended < s->progress[tx].begun)
            return false;
    return true;
}

static bool is_complete(const struct search *s, unsigned placed)
{
    for (uint32_t i = 0; i < s->c->tx_count; i++)
        if (s->progress[i].phase == CR_TX_COMMITTED && (placed >> i & 1) == 0)
            return false;
    return true;
}

static bool find_order(const struct search *s, unsigned placed, const uint32_t *state)
{
    if (is_complete(s, placed) &&
        memcmp(state, s->goal, s->c->key_count * sizeof(*state)) == 0)
        return true;
    for (uint32_t i = 0; i < s->c->tx_count; i++) {
        uint32_t next[CR_CASE_KEYS];
        enum cr_tx_phase phase = s->progress[i].phase;
        if ((placed >> i & 1) != 0 ||
            (phase != CR_TX_COMMITTING && phase != CR_TX_COMMITTED) ||
            !may_follow(s, placed, i))
            continue;
        memcpy(next, state, sizeof(next));
        if (apply(s->c, i, &s->progress[i], next) &&
            find_order(s, placed | 1u << i, next))
            return true;
    }
    return false;
}

bool cr_case_allows(const struct cr_case *c, const struct cr_progress *progress,
    const uint32_t state[CR_CASE_KEYS])
{
    struct search s = {c, progress, state};
    uint32_t first[CR_CASE_KEYS];

    take_first(c, first);
    return find_order(&s, 0, first);
}

static void tell_value(uint32_t id, char *buf, size_t size)
{
    if (id == 0)
        snprintf(buf, size, "absent");
    else if (id == CR_VALUE_FIRST)
        snprintf(buf, size, "first value");
    else
        snprintf(buf, size, "of operation %u of transaction %u",
            1 + (id - 2) % CR_CASE_OPS, 1 + (id - 2) / CR_CASE_OPS);
}

void cr_case_tell(const struct cr_case *c, const struct cr_progress *progress,
    const uint32_t state[CR_CASE_KEYS], char *buf, size_t size)
{
    static const char *const phases[] = {
        "not begun", "before commit", "in commit", "acknowledged", "aborted"};
    size_t used = 0;
    char value[64];

    buf[0] = '\0';
    for (uint32_t i = 0; i < c->key_count && used < size; i++) {
        tell_value(state[i], value, sizeof(value));
        used += (size_t)snprintf(buf + used, size - used, "%s%c@%u %s", i == 0 ? "" : ", ",
            'a' + (int)i, c->at[i] + 1u, value);
    }
    for (uint32_t i = 0; i < c->tx_count && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "; transaction %u %s", i + 1,
            phases[progress[i].phase]);
}
