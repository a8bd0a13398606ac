/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_check.h: is a history of list-append transactions strictly serializable? Elle's method: the
 * longest list read of a key is its version order, every other read must be a prefix of it; from
 * the order follow ww, wr and rw dependencies, from the events realtime and process ones; a cycle
 * is an anomaly. Time and memory are linear in the history (times the number of concurrent clients
 * for the realtime edges, which are reduced transitively).
 *
 * Nodes of the graph are transactions that are ok, and those of unknown outcome (info) of which an
 * append was read. An ok append that no list shows comes after all that were read of its key.
 *
 * Elements must be unique per key over the whole history.
 */
#ifndef HS_CHECK_H
#define HS_CHECK_H

#include "tools/history/hs_history.h"

enum hs_verdict { HS_TRUE, HS_FALSE, HS_UNKNOWN };
const char *hs_verdict_name(enum hs_verdict verdict);

/* One list makes enum and names. The cycle kinds stand in the order in which they are looked for.
 */
#define HS_ANOMALIES(X)                                                                            \
    X(GARBAGE_READ, "garbage-read")             /* an element that nobody appended */              \
    X(DUPLICATE, "duplicate-elements")          /* an element twice in a list: applied twice */    \
    X(INCOMPATIBLE_ORDER, "incompatible-order") /* two reads of a key, none a prefix */            \
    X(INTERNAL, "internal")                     /* a transaction does not see its own past */      \
    X(G1A, "G1a")                               /* aborted read */                                 \
    X(G1B, "G1b")                               /* intermediate read */                            \
    X(LOST_APPEND, "lost-append")               /* acknowledged, and not in the final read */      \
    X(TORN, "torn-transaction")                 /* a part was read, a part is not in the end */    \
    X(LOST_UPDATE, "lost-update")               /* two appended to the very version they read */   \
    X(G0, "G0")                                                                                    \
    X(G1C, "G1c")                                                                                  \
    X(G_SINGLE, "G-single")                                                                        \
    X(G2_ITEM, "G2-item")                                                                          \
    X(G0_PROCESS, "G0-process")                                                                    \
    X(G1C_PROCESS, "G1c-process")                                                                  \
    X(G_SINGLE_PROCESS, "G-single-process")                                                        \
    X(G2_ITEM_PROCESS, "G2-item-process")                                                          \
    X(G0_REALTIME, "G0-realtime")                                                                  \
    X(G1C_REALTIME, "G1c-realtime")                                                                \
    X(G_SINGLE_REALTIME, "G-single-realtime")                                                      \
    X(G2_ITEM_REALTIME, "G2-item-realtime")                                                        \
    X(BANK_TOTAL, "bank-total")       /* a snapshot whose sum is wrong */                          \
    X(BANK_ACCOUNTS, "bank-accounts") /* a snapshot with an account missing, extra or twice */     \
    X(BANK_NEGATIVE, "bank-negative") /* a balance below zero where that is not allowed */

enum hs_anomaly {
#define HS_X(name, text) HS_A_##name,
    HS_ANOMALIES(HS_X)
#undef HS_X
    HS_ANOMALY_COUNT,
};
const char *hs_anomaly_name(enum hs_anomaly anomaly);

struct hs_check_options {
    bool serializable_only; /* leave out realtime and process edges */
    bool need_final;        /* unknown unless every key has a final read */
    const char *dot_path;   /* NULL, or write the first cycle there in DOT */
};

#define HS_REPORT_TEXT 16384u

struct hs_check_report {
    enum hs_verdict verdict;
    uint64_t
        count[HS_ANOMALY_COUNT]; /* found of each kind; of cycles: strongly connected components */
    uint64_t ok, fail, info, info_observed; /* transactions */
    uint64_t keys, keys_without_final, elements, reads, edges, cycles;
    uint64_t ns;    /* time the check took */
    uint64_t bytes; /* memory it held at most, besides the history */
    char text[HS_REPORT_TEXT]; /* the first of each kind in words, or why it is unknown */
};

/* `options` may be NULL. *ret is always filled. Returns the verdict. */
enum hs_verdict hs_check_lists(const struct hs_history *history,
    const struct hs_check_options *options, struct hs_check_report *ret);

struct hs_bank_options {
    uint64_t accounts; /* 0 .. accounts - 1 */
    int64_t total;
    bool negative_allowed;
};
/* Every ok read of all accounts shows each once and the right total. */
enum hs_verdict hs_check_bank(const struct hs_history *history,
    const struct hs_bank_options *options, struct hs_check_report *ret);

#endif
