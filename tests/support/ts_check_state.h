/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_check_state.h: what the parts of the list-append checker share: ts_check.c (pairing, graph,
 * verdict), ts_check_lists.c (version orders and what single lists tell), ts_check_text.c (words).
 */
#ifndef TS_CHECK_STATE_H
#define TS_CHECK_STATE_H

#include "tests/support/ts_graph.h"

#define TS_NONE UINT32_MAX

struct ts_txn { /* also a node of the graph */
    uint32_t invoke, complete; /* events; complete TS_NONE: none */
    uint8_t type;              /* TS_OK, TS_FAIL, TS_INFO */
    bool final;
    bool observed; /* info, and an append of it was read */
};

struct ts_key {
    uint64_t key;
    uint64_t longest_at; /* in history->elements */
    uint32_t longest;    /* elements of the longest read */
    uint32_t reader;     /* who read it, TS_NONE: nobody read the key */
    uint64_t order_at;   /* in ck->order: element numbers, TS_NONE where garbage */
    uint32_t final;      /* elements of the shortest final read, TS_UNREAD: none */
    uint32_t unread;     /* first of the appended and never read elements, TS_NONE */
    uint32_t claim;      /* who appended to the empty list that it had read */
    /* the transaction that last came by, and what it did here */
    uint32_t txn, base, own;
    bool has_read;
    uint32_t last; /* its last element */
};

struct ts_elem {
    uint32_t key, value, writer;
    uint32_t pos;    /* from 1 in the version order, 0: never read */
    uint32_t claim;  /* who appended right behind it after having read up to it */
    uint32_t unread; /* next of the key's never read ones */
    bool superseded; /* its writer appended more to the key */
};

struct ts_ck {
    const struct ts_history *h;
    struct ts_check_report *report;
    struct ts_txn *txn;
    struct ts_key *key;
    struct ts_elem *elem;
    uint32_t *order;
    uint32_t txn_count, key_count, elem_count;
    uint64_t txn_room, key_room, elem_room;
    uint64_t order_count;
    uint32_t *key_table, *elem_table; /* open addressing; number + 1, 0 empty */
    uint64_t key_mask, elem_mask;
    struct ts_graph graph;
    size_t text_used;
};

/* TS_NONE: unknown. */
uint32_t ts_find_key(const struct ts_ck *ck, uint64_t key);
uint32_t ts_find_elem(const struct ts_ck *ck, uint32_t key, uint32_t value);
/* The event that tells what a transaction did: the completion of an ok one, else the invoke. */
const struct ts_event *ts_body(const struct ts_ck *ck, const struct ts_txn *txn);
bool ts_is_node(const struct ts_txn *txn);

/* Intern keys and appends. False: not checkable, the report's text says why. */
bool ts_lists_intern(struct ts_ck *ck);
/* Version orders; anomalies that single lists show; wr, rw and ww edges. */
void ts_lists_check(struct ts_ck *ck);

/* Count an anomaly; true when it is the first of its kind, so that words are wanted. */
bool ts_found(struct ts_ck *ck, enum ts_anomaly anomaly);
void ts_say(struct ts_ck *ck, const char *format, ...) CN_PRINTF(2, 3);
void ts_say_txn(struct ts_ck *ck, uint32_t txn);
void ts_say_cycle(struct ts_ck *ck, const struct ts_cycle *cycle);
void ts_write_dot(struct ts_ck *ck, const struct ts_cycle *cycle, const char *path);
void *ts_take(uint64_t count, size_t size);
void *ts_grow(void *array, uint64_t need, uint64_t *room, size_t size);

#endif
