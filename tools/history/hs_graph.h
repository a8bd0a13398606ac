/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_graph.h: the dependency graph of hs_check.c: edges with a kind and a key, strongly connected
 * components (Tarjan without recursion), and the shortest cycle of the lowest anomaly class inside
 * a component.
 */
#ifndef HS_GRAPH_H
#define HS_GRAPH_H

#include "tools/history/hs_check.h"

enum hs_edge_kind { HS_E_WW, HS_E_WR, HS_E_RW, HS_E_PROCESS, HS_E_REALTIME, HS_E_COUNT };
#define HS_NO_KEY ((UINT32_C(1) << 29) - 1)

struct hs_edge {
    uint32_t from, to;
    uint32_t key : 29; /* dense number of the key, or HS_NO_KEY */
    uint32_t kind : 3;
};

struct hs_graph {
    uint32_t nodes;
    struct hs_edge *edges; /* after hs_graph_build(): sorted by `from` */
    uint64_t edge_count, edge_room;
    uint64_t *first; /* edges of node n: first[n] .. first[n + 1] - 1 */
};

void hs_graph_init(struct hs_graph *graph, uint32_t nodes);
void hs_graph_fini(struct hs_graph *graph);
void hs_graph_add(
    struct hs_graph *graph, uint32_t from, uint32_t to, enum hs_edge_kind kind, uint32_t key);
void hs_graph_build(struct hs_graph *graph);
/* Memory that it and its two algorithms above need at most. */
uint64_t hs_graph_bytes(const struct hs_graph *graph);

/* component[n] := number of n's component over edges whose kind is in `kinds` (1 << kind);
 * returns how many components there are. */
uint32_t hs_graph_components(const struct hs_graph *graph, unsigned kinds, uint32_t *component);

struct hs_cycle {
    enum hs_anomaly anomaly;
    uint32_t count; /* edges[i].to == edges[i + 1].from, the last one leads back */
    struct hs_edge *edges; /* Owner: free() */
};
/* The graph must hold a cycle through the nodes of component `which`. */
void hs_graph_cycle(const struct hs_graph *graph, const uint32_t *component, uint32_t which,
    struct hs_cycle *ret_cycle);

#endif
