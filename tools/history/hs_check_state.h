/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_check_state.h: what the parts of the list-append checker share: hs_check.c (pairing, graph,
 * verdict), hs_check_lists.c (version orders and what single lists tell), hs_check_text.c (words).
 */
#ifndef HS_CHECK_STATE_H
#define HS_CHECK_STATE_H

#include "tools/history/hs_graph.h"

#define HS_NONE UINT32_MAX

struct hs_txn { /* also a node of the graph */
    uint32_t invoke, complete; /* events; complete HS_NONE: none */
    uint8_t type;              /* HS_OK, HS_FAIL, HS_INFO */
    bool final;
    bool observed; /* info, and an append of it was read */
};

struct hs_key {
    uint64_t key;
    uint64_t longest_at; /* in history->elements */
    uint32_t longest;    /* elements of the longest read */
    uint32_t reader;     /* who read it, HS_NONE: nobody read the key */
    uint64_t order_at;   /* in ck->order: element numbers, HS_NONE where garbage */
    uint32_t final;      /* elements of the shortest final read, HS_UNREAD: none */
    uint32_t unread;     /* first of the appended and never read elements, HS_NONE */
    uint32_t claim;      /* who appended to the empty list that it had read */
    /* the transaction that last came by, and what it did here */
    uint32_t txn, base, own;
    bool has_read;
    uint32_t last; /* its last element */
};

struct hs_elem {
    uint32_t key, value, writer;
    uint32_t pos;    /* from 1 in the version order, 0: never read */
    uint32_t claim;  /* who appended right behind it after having read up to it */
    uint32_t unread; /* next of the key's never read ones */
    bool superseded; /* its writer appended more to the key */
};

struct hs_ck {
    const struct hs_history *h;
    struct hs_check_report *report;
    struct hs_txn *txn;
    struct hs_key *key;
    struct hs_elem *elem;
    uint32_t *order;
    uint32_t txn_count, key_count, elem_count;
    uint64_t txn_room, key_room, elem_room;
    uint64_t order_count;
    uint32_t *key_table, *elem_table; /* open addressing; number + 1, 0 empty */
    uint64_t key_mask, elem_mask;
    struct hs_graph graph;
    size_t text_used;
};

/* HS_NONE: unknown. */
uint32_t hs_find_key(const struct hs_ck *ck, uint64_t key);
uint32_t hs_find_elem(const struct hs_ck *ck, uint32_t key, uint32_t value);
/* The event that tells what a transaction did: the completion of an ok one, else the invoke. */
const struct hs_event *hs_body(const struct hs_ck *ck, const struct hs_txn *txn);
bool hs_is_node(const struct hs_txn *txn);

/* Intern keys and appends. False: not checkable, the report's text says why. */
bool hs_lists_intern(struct hs_ck *ck);
/* Version orders; anomalies that single lists show; wr, rw and ww edges. */
void hs_lists_check(struct hs_ck *ck);

/* Count an anomaly; true when it is the first of its kind, so that words are wanted. */
bool hs_found(struct hs_ck *ck, enum hs_anomaly anomaly);
void hs_say(struct hs_ck *ck, const char *format, ...) CN_PRINTF(2, 3);
void hs_say_txn(struct hs_ck *ck, uint32_t txn);
void hs_say_cycle(struct hs_ck *ck, const struct hs_cycle *cycle);
void hs_write_dot(struct hs_ck *ck, const struct hs_cycle *cycle, const char *path);
void *hs_take(uint64_t count, size_t size);
void *hs_grow(void *array, uint64_t need, uint64_t *room, size_t size);

#endif
