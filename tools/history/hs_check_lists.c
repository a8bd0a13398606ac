/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_check_lists.c: the longest read of each key is its version order. What a single list shows to
 * be wrong is said here (garbage, aborted, duplicate, intermediate, internal, lost, torn); all
 * else follows from the edges that the order gives.
 */
#include "tools/history/hs_check_state.h"

/* Readers of the newest version times never read elements, up to which each pair gets its rw
 * edge. */
#define UNREAD_EDGES_MAX 4096u

static uint64_t elem_hash(uint32_t key, uint32_t value)
{
    return cn_mix64((uint64_t)key << 32 | value);
}

uint32_t hs_find_key(const struct hs_ck *ck, uint64_t key)
{
    for (uint64_t i = cn_mix64(key) & ck->key_mask;; i = (i + 1) & ck->key_mask) {
        const uint32_t n = ck->key_table[i];
        if (n == 0)
            return HS_NONE;
        if (ck->key[n - 1].key == key)
            return n - 1;
    }
}

uint32_t hs_find_elem(const struct hs_ck *ck, uint32_t key, uint32_t value)
{
    for (uint64_t i = elem_hash(key, value) & ck->elem_mask;; i = (i + 1) & ck->elem_mask) {
        const uint32_t n = ck->elem_table[i];
        if (n == 0)
            return HS_NONE;
        if (ck->elem[n - 1].key == key && ck->elem[n - 1].value == value)
            return n - 1;
    }
}

static void rehash_keys(struct hs_ck *ck)
{
    free(ck->key_table);
    ck->key_mask = ck->key_mask * 2 + 1;
    ck->key_table = hs_take(ck->key_mask + 1, sizeof(*ck->key_table));
    for (uint32_t n = 0; n < ck->key_count; n++) {
        uint64_t i = cn_mix64(ck->key[n].key) & ck->key_mask;
        while (ck->key_table[i] != 0)
            i = (i + 1) & ck->key_mask;
        ck->key_table[i] = n + 1;
    }
}

static uint32_t intern_key(struct hs_ck *ck, uint64_t key)
{
    const uint32_t old = hs_find_key(ck, key);
    uint64_t i;

    if (old != HS_NONE)
        return old;
    if ((uint64_t)ck->key_count * 2 >= ck->key_mask)
        rehash_keys(ck);
    for (i = cn_mix64(key) & ck->key_mask; ck->key_table[i] != 0; i = (i + 1) & ck->key_mask)
        continue;
    ck->key = hs_grow(ck->key, (uint64_t)ck->key_count + 1, &ck->key_room, sizeof(*ck->key));
    ck->key[ck->key_count] = (struct hs_key){.key = key, .reader = HS_NONE, .final = HS_UNREAD,
        .unread = HS_NONE, .claim = HS_NONE, .txn = HS_NONE, .last = HS_NONE};
    ck->key_table[i] = ++ck->key_count;
    return ck->key_count - 1;
}

/* False: the element is not unique. */
static bool intern_elem(struct hs_ck *ck, uint32_t key, uint32_t value, uint32_t writer)
{
    struct hs_key *k = &ck->key[key];
    uint64_t i = elem_hash(key, value) & ck->elem_mask;

    for (; ck->elem_table[i] != 0; i = (i + 1) & ck->elem_mask) {
        const struct hs_elem *e = &ck->elem[ck->elem_table[i] - 1];
        if (e->key == key && e->value == value)
            return false;
    }
    ck->elem[ck->elem_count] = (struct hs_elem){
        .key = key, .value = value, .writer = writer, .claim = HS_NONE, .unread = HS_NONE};
    ck->elem_table[i] = ck->elem_count + 1;
    if (k->txn == writer && k->last != HS_NONE)
        ck->elem[k->last].superseded = true;
    k->txn = writer;
    k->last = ck->elem_count++;
    return true;
}

static void note_longest(struct hs_ck *ck, const struct hs_mop *mop, uint32_t key, uint32_t txn)
{
    struct hs_key *k = &ck->key[key];

    if (mop->count == HS_UNREAD)
        return;
    if (k->reader == HS_NONE || mop->count > k->longest) {
        k->longest_at = mop->value;
        k->longest = mop->count;
        k->reader = txn;
    }
    if (ck->txn[txn].final && (k->final == HS_UNREAD || mop->count < k->final))
        k->final = mop->count;
}

bool hs_lists_intern(struct hs_ck *ck)
{
    uint64_t appends = 0, room = 15;

    for (uint64_t i = 0; i < ck->h->mop_count; i++)
        appends += ck->h->mops[i].kind == HS_APPEND;
    while (room < 2 * appends)
        room = room * 2 + 1;
    ck->elem_mask = room;
    ck->elem_table = hs_take(room + 1, sizeof(*ck->elem_table));
    ck->elem = hs_take(appends, sizeof(*ck->elem));
    ck->key_mask = 1023;
    ck->key_table = hs_take(ck->key_mask + 1, sizeof(*ck->key_table));
    for (uint32_t t = 0; t < ck->txn_count; t++) {
        const struct hs_event *e = hs_body(ck, &ck->txn[t]);
        for (uint32_t i = 0; i < e->mop_count; i++) {
            const struct hs_mop *mop = &ck->h->mops[e->mop_first + i];
            if (mop->kind != HS_APPEND && mop->kind != HS_READ)
                continue;
            const uint32_t key = intern_key(ck, mop->key);
            if (mop->kind == HS_READ && ck->txn[t].type == HS_OK) {
                note_longest(ck, mop, key, t);
                ck->report->reads++;
            }
            if (mop->kind == HS_APPEND && !intern_elem(ck, key, (uint32_t)mop->value, t)) {
                hs_say(ck, "cannot check: element %llu is appended to key %llu twice\n",
                    (unsigned long long)mop->value, (unsigned long long)mop->key);
                return false;
            }
        }
    }
    for (uint32_t n = 0; n < ck->key_count; n++)
        ck->key[n].txn = HS_NONE;
    return true;
}

/* ---- version orders ---- */

/* What the mere presence of an element in a list that txn read shows. */
static uint32_t look_at_element(struct hs_ck *ck, uint32_t key, uint32_t value, uint32_t txn)
{
    const uint32_t n = hs_find_elem(ck, key, value);

    if (n == HS_NONE) {
        if (hs_found(ck, HS_A_GARBAGE_READ)) {
            hs_say(ck, "garbage-read: element %u of key %llu was never appended; read by ", value,
                (unsigned long long)ck->key[key].key);
            hs_say_txn(ck, txn);
        }
        return HS_NONE;
    }
    struct hs_txn *writer = &ck->txn[ck->elem[n].writer];
    if (writer->type == HS_INFO)
        writer->observed = true;
    if (writer->type == HS_FAIL && hs_found(ck, HS_A_G1A)) {
        hs_say(ck, "G1a: element %u of key %llu was appended by an aborted transaction, ", value,
            (unsigned long long)ck->key[key].key);
        hs_say_txn(ck, ck->elem[n].writer);
        hs_say(ck, "  and read by ");
        hs_say_txn(ck, txn);
    }
    return n;
}

static void order_key(struct hs_ck *ck, uint32_t key)
{
    struct hs_key *k = &ck->key[key];

    k->order_at = ck->order_count;
    for (uint32_t i = 0; i < k->longest; i++) {
        const uint32_t value = ck->h->elements[k->longest_at + i];
        const uint32_t n = look_at_element(ck, key, value, k->reader);
        ck->order[ck->order_count++] = n;
        if (n == HS_NONE)
            continue;
        if (ck->elem[n].pos == 0) {
            ck->elem[n].pos = i + 1;
        } else if (hs_found(ck, HS_A_DUPLICATE)) {
            hs_say(ck, "duplicate-elements: element %u stands at %u and at %u of key %llu in ",
                value, ck->elem[n].pos - 1, i, (unsigned long long)k->key);
            hs_say_txn(ck, k->reader);
        }
    }
}

static bool is_prefix(const struct hs_ck *ck, const struct hs_key *k, const struct hs_mop *mop)
{
    return mop->count == 0 || memcmp(ck->h->elements + mop->value,
        ck->h->elements + k->longest_at, (size_t)mop->count * sizeof(uint32_t)) == 0;
}

static void say_incompatible(
    struct hs_ck *ck, uint32_t key, const struct hs_mop *mop, uint32_t txn)
{
    const struct hs_key *k = &ck->key[key];

    for (uint32_t i = 0; i < mop->count; i++)
        (void)look_at_element(ck, key, ck->h->elements[mop->value + i], txn);
    if (!hs_found(ck, HS_A_INCOMPATIBLE_ORDER))
        return;
    hs_say(ck,
        "incompatible-order: key %llu was read in two ways of which none is the start of the "
        "other: ",
        (unsigned long long)k->key);
    hs_say_txn(ck, txn);
    hs_say(ck, "  and ");
    hs_say_txn(ck, k->reader);
}

/* ---- reads and appends of one transaction in order ---- */

struct walk {
    uint32_t txn;
    const struct hs_mop *mops; /* of the transaction */
    uint32_t at;
};

static void say_internal(struct hs_ck *ck, const struct walk *w)
{
    if (!hs_found(ck, HS_A_INTERNAL))
        return;
    hs_say(ck, "internal: a read of key %llu does not show what the transaction itself read or "
               "appended before: ", (unsigned long long)w->mops[w->at].key);
    hs_say_txn(ck, w->txn);
}

/* Does the list end with what the transaction itself has appended so far? */
static bool ends_with_own(const struct hs_ck *ck, const struct walk *w, uint32_t own)
{
    const struct hs_mop *mop = &w->mops[w->at];
    uint32_t left = mop->count;

    if (mop->count < own)
        return false;
    for (uint32_t i = w->at; i-- > 0 && own > 0;) {
        if (w->mops[i].kind != HS_APPEND || w->mops[i].key != mop->key)
            continue;
        if (ck->h->elements[mop->value + --left] != w->mops[i].value)
            return false;
        own--;
    }
    return true;
}

/* The state of a key that a transaction saw at its first read: edges from and to it. */
static void link_read(struct hs_ck *ck, const struct walk *w, uint32_t key, uint32_t seen)
{
    struct hs_key *k = &ck->key[key];

    if (seen > 0 && ck->order[k->order_at + seen - 1] != HS_NONE) {
        const struct hs_elem *e = &ck->elem[ck->order[k->order_at + seen - 1]];
        hs_graph_add(&ck->graph, e->writer, w->txn, HS_E_WR, key);
        if (e->writer == w->txn)
            say_internal(ck, w);
        else if (e->superseded && hs_found(ck, HS_A_G1B)) {
            hs_say(ck, "G1b: key %llu was read as it was in the middle of ",
                (unsigned long long)k->key);
            hs_say_txn(ck, e->writer);
            hs_say(ck, "  by ");
            hs_say_txn(ck, w->txn);
        }
    }
    if (seen < k->longest && ck->order[k->order_at + seen] != HS_NONE)
        hs_graph_add(
            &ck->graph, w->txn, ck->elem[ck->order[k->order_at + seen]].writer, HS_E_RW, key);
}

static void check_read(struct hs_ck *ck, const struct walk *w, uint32_t key)
{
    const struct hs_mop *mop = &w->mops[w->at];
    struct hs_key *k = &ck->key[key];

    if (!is_prefix(ck, k, mop)) {
        say_incompatible(ck, key, mop, w->txn);
        k->base = HS_NONE;
        return;
    }
    if (k->txn == w->txn && k->base == HS_NONE)
        return;
    if ((k->own > 0 && !ends_with_own(ck, w, k->own)) ||
        (k->has_read && mop->count != k->base + k->own)) {
        say_internal(ck, w);
        return;
    }
    if (k->has_read)
        return;
    k->has_read = true;
    k->base = mop->count - k->own;
    link_read(ck, w, key, k->base);
}

/* The first append behind a read of the key: nobody else may have built on that version. */
static void claim_version(struct hs_ck *ck, const struct walk *w, uint32_t key)
{
    struct hs_key *k = &ck->key[key];
    uint32_t *claim = &k->claim;

    if (k->base > 0) {
        const uint32_t n = ck->order[k->order_at + k->base - 1];
        if (n == HS_NONE)
            return;
        claim = &ck->elem[n].claim;
    }
    if (*claim == HS_NONE) {
        *claim = w->txn;
    } else if (hs_found(ck, HS_A_LOST_UPDATE)) {
        hs_say(ck, "lost-update: two transactions appended to the same version (%u elements) of "
                   "key %llu that they had read: ", k->base, (unsigned long long)k->key);
        hs_say_txn(ck, *claim);
        hs_say(ck, "  and ");
        hs_say_txn(ck, w->txn);
    }
}

static void check_txn(struct hs_ck *ck, uint32_t txn)
{
    const struct hs_event *e = hs_body(ck, &ck->txn[txn]);
    struct walk w = {.txn = txn, .mops = ck->h->mops + e->mop_first};

    for (; w.at < e->mop_count; w.at++) {
        const struct hs_mop *mop = &w.mops[w.at];
        const uint32_t key = hs_find_key(ck, mop->key);
        struct hs_key *k = &ck->key[key];
        if (k->txn != txn) {
            k->txn = txn;
            k->base = k->own = 0;
            k->has_read = false;
        }
        if (mop->kind == HS_READ && mop->count != HS_UNREAD) {
            check_read(ck, &w, key);
        } else if (mop->kind == HS_APPEND) {
            if (k->has_read && k->own == 0 && k->base != HS_NONE)
                claim_version(ck, &w, key);
            k->own++;
        }
    }
}

/* ---- the ends of the lists ---- */

/* Against the final read: what is missing there. */
static void check_final(struct hs_ck *ck, uint32_t n)
{
    const struct hs_elem *e = &ck->elem[n];
    const struct hs_key *k = &ck->key[e->key];
    const struct hs_txn *writer = &ck->txn[e->writer];
    const bool torn = writer->type == HS_INFO;

    if (!hs_is_node(writer) || (e->pos != 0 && e->pos <= k->final))
        return;
    if (!hs_found(ck, torn ? HS_A_TORN : HS_A_LOST_APPEND))
        return;
    if (torn)
        hs_say(ck,
            "torn-transaction: part of it was read, but element %u of key %llu is not in the "
            "final read: ",
            e->value, (unsigned long long)k->key);
    else
        hs_say(ck, "lost-append: element %u of key %llu was acknowledged and is not in the final "
                   "read: ", e->value, (unsigned long long)k->key);
    hs_say_txn(ck, e->writer);
}

/* The list of a key's elements that nobody read and that count: they come after all others. */
static void collect_unread(struct hs_ck *ck)
{
    for (uint32_t n = ck->elem_count; n-- > 0;) {
        struct hs_elem *e = &ck->elem[n];
        struct hs_key *k = &ck->key[e->key];
        if (k->final != HS_UNREAD) {
            check_final(ck, n);
            continue;
        }
        if (e->pos != 0 || !hs_is_node(&ck->txn[e->writer]))
            continue;
        e->unread = k->unread;
        k->unread = n;
    }
}

static void link_order(struct hs_ck *ck, uint32_t key)
{
    const struct hs_key *k = &ck->key[key];
    uint32_t last = HS_NONE;

    for (uint32_t i = 0; i < k->longest; i++) {
        const uint32_t n = ck->order[k->order_at + i];
        if (n == HS_NONE)
            continue;
        if (last != HS_NONE)
            hs_graph_add(&ck->graph, ck->elem[last].writer, ck->elem[n].writer, HS_E_WW, key);
        last = n;
    }
    if (last == HS_NONE)
        return;
    for (uint32_t n = k->unread; n != HS_NONE; n = ck->elem[n].unread)
        hs_graph_add(&ck->graph, ck->elem[last].writer, ck->elem[n].writer, HS_E_WW, key);
}

/* rw edges from who read all that was ever read of a key to who appended more. */
static void link_newest_read(struct hs_ck *ck, uint32_t txn, uint32_t key, uint32_t *ret_edges)
{
    const struct hs_key *k = &ck->key[key];

    for (uint32_t n = k->unread; n != HS_NONE && *ret_edges < UNREAD_EDGES_MAX;
         n = ck->elem[n].unread) {
        hs_graph_add(&ck->graph, txn, ck->elem[n].writer, HS_E_RW, key);
        (*ret_edges)++;
    }
}

static void link_newest_reads(struct hs_ck *ck)
{
    uint32_t *edges = hs_take(ck->key_count, sizeof(*edges));

    for (uint32_t t = 0; t < ck->txn_count; t++) {
        if (ck->txn[t].type != HS_OK)
            continue;
        const struct hs_event *e = hs_body(ck, &ck->txn[t]);
        for (uint32_t i = 0; i < e->mop_count; i++) {
            const struct hs_mop *mop = &ck->h->mops[e->mop_first + i];
            if (mop->kind != HS_READ || mop->count == HS_UNREAD)
                continue;
            const uint32_t key = hs_find_key(ck, mop->key);
            if (ck->key[key].unread != HS_NONE && mop->count == ck->key[key].longest)
                link_newest_read(ck, t, key, &edges[key]);
        }
    }
    free(edges);
}

void hs_lists_check(struct hs_ck *ck)
{
    uint64_t total = 0;

    for (uint32_t key = 0; key < ck->key_count; key++)
        total += ck->key[key].longest;
    ck->order = hs_take(total, sizeof(*ck->order));
    for (uint32_t key = 0; key < ck->key_count; key++)
        order_key(ck, key);
    for (uint32_t t = 0; t < ck->txn_count; t++)
        if (ck->txn[t].type == HS_OK)
            check_txn(ck, t);
    collect_unread(ck);
    for (uint32_t key = 0; key < ck->key_count; key++)
        link_order(ck, key);
    link_newest_reads(ck);
}
