/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_graph.h: the dependency graph of ts_check.c: edges with a kind and a key, strongly connected
 * components (Tarjan without recursion), and the shortest cycle of the lowest anomaly class inside
 * a component.
 */
#ifndef TS_GRAPH_H
#define TS_GRAPH_H

#include "tests/support/ts_check.h"

enum ts_edge_kind { TS_E_WW, TS_E_WR, TS_E_RW, TS_E_PROCESS, TS_E_REALTIME, TS_E_COUNT };
#define TS_NO_KEY ((UINT32_C(1) << 29) - 1)

struct ts_edge {
    uint32_t from, to;
    uint32_t key : 29; /* dense number of the key, or TS_NO_KEY */
    uint32_t kind : 3;
};

struct ts_graph {
    uint32_t nodes;
    struct ts_edge *edges; /* after ts_graph_build(): sorted by `from` */
    uint64_t edge_count, edge_room;
    uint64_t *first; /* edges of node n: first[n] .. first[n + 1] - 1 */
};

void ts_graph_init(struct ts_graph *graph, uint32_t nodes);
void ts_graph_fini(struct ts_graph *graph);
void ts_graph_add(
    struct ts_graph *graph, uint32_t from, uint32_t to, enum ts_edge_kind kind, uint32_t key);
void ts_graph_build(struct ts_graph *graph);

/* component[n] := number of n's component over edges whose kind is in `kinds` (1 << kind);
 * returns how many components there are. */
uint32_t ts_graph_components(const struct ts_graph *graph, unsigned kinds, uint32_t *component);

struct ts_cycle {
    enum ts_anomaly anomaly;
    uint32_t count; /* edges[i].to == edges[i + 1].from, the last one leads back */
    struct ts_edge *edges; /* Owner: free() */
};
/* The graph must hold a cycle through the nodes of component `which`. */
void ts_graph_cycle(const struct ts_graph *graph, const uint32_t *component, uint32_t which,
    struct ts_cycle *ret_cycle);

#endif
