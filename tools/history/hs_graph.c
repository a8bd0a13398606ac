/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_graph.c: see hs_graph.h. Components cost nodes plus edges; the search for a short cycle runs
 * only inside a component that has one, and is bounded: beyond the bounds the cycle is still
 * right, only perhaps not the shortest or of the lowest class.
 */
#include "tools/history/hs_graph.h"

#define STARTS_MAX 64u             /* nodes from which a shortest cycle is sought */
#define RW_TRIES_MAX 4096u         /* rw edges tried as the one of a G-single */
#define BUCKETS 512u                /* of nodes, while edges are sorted */
#define NONE UINT32_MAX

static void *take(size_t count, size_t size)
{
    void *p = calloc(count == 0 ? 1 : count, size);

    if (p == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a graph");
    return p;
}

void hs_graph_init(struct hs_graph *g, uint32_t nodes)
{
    memset(g, 0, sizeof(*g));
    g->nodes = nodes;
}

void hs_graph_fini(struct hs_graph *g)
{
    free(g->edges);
    free(g->first);
    memset(g, 0, sizeof(*g));
}

void hs_graph_add(
    struct hs_graph *g, uint32_t from, uint32_t to, enum hs_edge_kind kind, uint32_t key)
{
    CAIRN_ASSERT(from < g->nodes && to < g->nodes);
    if (from == to)
        return;
    if (g->edge_count == g->edge_room) {
        g->edge_room = g->edge_room == 0 ? 256 : g->edge_room * 2;
        g->edges = realloc(g->edges, g->edge_room * sizeof(*g->edges));
        if (g->edges == NULL)
            cn_panic(__FILE__, __LINE__, "out of memory for a graph");
    }
    g->edges[g->edge_count++] =
        (struct hs_edge){.from = from, .to = to, .key = key & HS_NO_KEY, .kind = kind & 7u};
}

/* The edges, with room to grow; places; scratch of the components. */
uint64_t hs_graph_bytes(const struct hs_graph *g)
{
    return g->edge_room * sizeof(*g->edges) +
        (uint64_t)g->nodes * (2 * sizeof(uint64_t) + 6 * sizeof(uint32_t));
}

/* Bring every edge into its bucket of nodes by swaps: few places to write to at one time, which is
 * what makes it fast. at[b]: next place in bucket b; end[b]: behind it. */
static void swap_into_buckets(struct hs_graph *g, unsigned shift, uint64_t *at, const uint64_t *end)
{
    for (uint32_t b = 0; b < BUCKETS; b++) {
        while (at[b] < end[b]) {
            struct hs_edge *here = &g->edges[at[b]];
            struct hs_edge *home = &g->edges[at[here->from >> shift]++];
            struct hs_edge other = *home;
            *home = *here;
            *here = other;
        }
    }
}

/* Sort by `from` with little memory besides the edges: into buckets in place, then each bucket by
 * counting, through a copy of it. */
void hs_graph_build(struct hs_graph *g)
{
    uint64_t at[BUCKETS], end[BUCKETS], most = 0, begin = 0;
    unsigned shift = 0;

    while (g->nodes >> shift >= BUCKETS)
        shift++;
    g->first = take((size_t)g->nodes + 1, sizeof(*g->first));
    for (uint64_t i = 0; i < g->edge_count; i++)
        g->first[g->edges[i].from + 1]++;
    for (uint32_t n = 0; n < g->nodes; n++)
        g->first[n + 1] += g->first[n];
    for (uint32_t b = 0; b < BUCKETS; b++) {
        uint64_t last = ((uint64_t)b + 1) << shift;
        at[b] = begin;
        begin = end[b] = g->first[last < g->nodes ? last : g->nodes];
        most = end[b] - at[b] > most ? end[b] - at[b] : most;
    }
    swap_into_buckets(g, shift, at, end);
    struct hs_edge *copy = take(most, sizeof(*copy));
    uint64_t *place = take((size_t)g->nodes + 1, sizeof(*place));
    memcpy(place, g->first, ((size_t)g->nodes + 1) * sizeof(*place));
    for (uint32_t b = 0; b < BUCKETS; b++) {
        begin = b == 0 ? 0 : end[b - 1];
        if (begin == end[b])
            continue;
        memcpy(copy, g->edges + begin, (end[b] - begin) * sizeof(*copy));
        for (uint64_t i = 0; i < end[b] - begin; i++)
            g->edges[place[copy[i].from]++] = copy[i];
    }
    free(copy);
    free(place);
}

/* ---- components ---- */

struct tarjan {
    uint32_t *index, *low; /* index 0: not visited */
    uint64_t *edge;        /* next edge of a node on the path */
    uint32_t *stack, *path;
    uint32_t stack_count, path_count, visited, components;
};

static void enter(struct tarjan *t, const struct hs_graph *g, uint32_t node)
{
    t->index[node] = t->low[node] = ++t->visited;
    t->edge[node] = g->first[node];
    t->stack[t->stack_count++] = node;
    t->path[t->path_count++] = node;
}

static void leave(struct tarjan *t, uint32_t node, uint32_t *component)
{
    uint32_t member;

    t->path_count--;
    if (t->path_count > 0) {
        const uint32_t parent = t->path[t->path_count - 1];
        if (t->low[node] < t->low[parent])
            t->low[parent] = t->low[node];
    }
    if (t->low[node] != t->index[node])
        return;
    do {
        member = t->stack[--t->stack_count];
        component[member] = t->components;
    } while (member != node);
    t->components++;
}

uint32_t hs_graph_components(const struct hs_graph *g, unsigned kinds, uint32_t *component)
{
    struct tarjan t = {
        .index = take(g->nodes, sizeof(uint32_t)),
        .low = take(g->nodes, sizeof(uint32_t)),
        .edge = take(g->nodes, sizeof(uint64_t)),
        .stack = take(g->nodes, sizeof(uint32_t)),
        .path = take(g->nodes, sizeof(uint32_t)),
    };

    for (uint32_t n = 0; n < g->nodes; n++)
        component[n] = NONE;
    for (uint32_t n = 0; n < g->nodes; n++) {
        if (t.index[n] == 0)
            enter(&t, g, n);
        while (t.path_count > 0) {
            const uint32_t node = t.path[t.path_count - 1];
            if (t.edge[node] == g->first[node + 1]) {
                leave(&t, node, component);
                continue;
            }
            const struct hs_edge *e = &g->edges[t.edge[node]++];
            if ((kinds >> e->kind & 1u) == 0)
                continue;
            if (t.index[e->to] == 0)
                enter(&t, g, e->to);
            else if (component[e->to] == NONE && t.index[e->to] < t.low[node])
                t.low[node] = t.index[e->to];
        }
    }
    free(t.index);
    free(t.low);
    free(t.edge);
    free(t.stack);
    free(t.path);
    return t.components;
}

/* ---- cycles ---- */

/* A component by itself: nodes renumbered, edges inside only. */
struct part {
    struct hs_graph graph;
    uint32_t *name;      /* node in the whole graph */
    uint32_t *component; /* scratch: components under some kinds */
    uint64_t *via;       /* scratch of the search: edge by which a node was reached */
    uint32_t *queue, *seen;
    uint32_t round;
};

static void part_init(struct part *p, const struct hs_graph *g, const uint32_t *component,
    uint32_t which)
{
    uint32_t *local = take(g->nodes, sizeof(*local)), count = 0;

    memset(p, 0, sizeof(*p));
    for (uint32_t n = 0; n < g->nodes; n++)
        if (component[n] == which)
            local[n] = count++;
    p->name = take(count, sizeof(*p->name));
    p->component = take(count, sizeof(*p->component));
    p->via = take(count, sizeof(*p->via));
    p->queue = take(count, sizeof(*p->queue));
    p->seen = take(count, sizeof(*p->seen));
    hs_graph_init(&p->graph, count);
    for (uint32_t n = 0; n < g->nodes; n++) {
        if (component[n] != which)
            continue;
        p->name[local[n]] = n;
        for (uint64_t i = g->first[n]; i < g->first[n + 1]; i++) {
            const struct hs_edge *e = &g->edges[i];
            if (component[e->to] == which)
                hs_graph_add(&p->graph, local[n], local[e->to], (enum hs_edge_kind)e->kind, e->key);
        }
    }
    hs_graph_build(&p->graph);
    free(local);
}

static void part_fini(struct part *p)
{
    hs_graph_fini(&p->graph);
    free(p->name);
    free(p->component);
    free(p->via);
    free(p->queue);
    free(p->seen);
}

/* Breadth first from `from` to `to` over `kinds`, inside the component of p->component that both
 * are in. Returns the length of the shortest way, at least 1, 0: there is none below `limit`. */
static uint32_t search(struct part *p, uint32_t from, uint32_t to, unsigned kinds, uint32_t limit)
{
    const struct hs_graph *g = &p->graph;
    uint32_t head = 0, tail = 0, depth = 0;

    p->round++;
    p->queue[tail++] = from;
    if (from != to)
        p->seen[from] = p->round;
    while (head < tail && ++depth < limit) {
        const uint32_t level_end = tail;
        for (; head < level_end; head++) {
            const uint32_t node = p->queue[head];
            for (uint64_t i = g->first[node]; i < g->first[node + 1]; i++) {
                const struct hs_edge *e = &g->edges[i];
                if ((kinds >> e->kind & 1u) == 0 || p->seen[e->to] == p->round ||
                    p->component[e->to] != p->component[from])
                    continue;
                p->seen[e->to] = p->round;
                p->via[e->to] = i;
                if (e->to == to)
                    return depth;
                p->queue[tail++] = e->to;
            }
        }
    }
    return 0;
}

/* Take the way that search() found, behind `lead` edges already known. */
static void keep(struct part *p, uint32_t from, uint32_t to, uint32_t length,
    const struct hs_edge *lead, struct hs_cycle *cycle)
{
    const uint32_t extra = lead != NULL ? 1 : 0;
    uint32_t node = to;

    free(cycle->edges);
    cycle->count = length + extra;
    cycle->edges = take(cycle->count, sizeof(*cycle->edges));
    if (lead != NULL)
        cycle->edges[0] = *lead;
    for (uint32_t i = cycle->count; i-- > extra;) {
        cycle->edges[i] = p->graph.edges[p->via[node]];
        node = cycle->edges[i].from;
    }
    CAIRN_ASSERT(node == from);
}

/* The shortest cycle over `kinds`. False: there is none. */
static bool find_any(struct part *p, unsigned kinds, struct hs_cycle *cycle)
{
    const uint32_t nodes = p->graph.nodes;
    const uint32_t count = hs_graph_components(&p->graph, kinds, p->component);
    uint32_t *size = take(count, sizeof(*size)), tried = 0, best = NONE;

    for (uint32_t n = 0; n < nodes; n++)
        size[p->component[n]]++;
    for (uint32_t n = 0; n < nodes && tried < STARTS_MAX && best > 2; n++) {
        if (size[p->component[n]] < 2)
            continue;
        tried++;
        const uint32_t length = search(p, n, n, kinds, best);
        if (length == 0)
            continue;
        best = length;
        keep(p, n, n, length, NULL, cycle);
    }
    free(size);
    return best != NONE;
}

/* The shortest cycle with exactly one rw edge. False: none found. */
static bool find_single(struct part *p, unsigned kinds, struct hs_cycle *cycle)
{
    const unsigned others = kinds & ~(1u << HS_E_RW);
    uint32_t tried = 0, best = NONE;

    (void)hs_graph_components(&p->graph, kinds, p->component);
    for (uint64_t i = 0; i < p->graph.edge_count && tried < RW_TRIES_MAX && best > 1; i++) {
        const struct hs_edge *e = &p->graph.edges[i];
        if (e->kind != HS_E_RW || p->component[e->from] != p->component[e->to])
            continue;
        tried++;
        const uint32_t length = search(p, e->to, e->from, others, best);
        if (length == 0)
            continue;
        best = length;
        keep(p, e->to, e->from, length, e, cycle);
    }
    return best != NONE;
}

void hs_graph_cycle(const struct hs_graph *g, const uint32_t *component, uint32_t which,
    struct hs_cycle *ret)
{
    static const enum hs_anomaly base[3] = {HS_A_G0, HS_A_G0_PROCESS, HS_A_G0_REALTIME};
    const unsigned ww = 1u << HS_E_WW, wr = 1u << HS_E_WR, rw = 1u << HS_E_RW;
    unsigned order = 0;
    bool found = false;
    struct part p;

    part_init(&p, g, component, which);
    ret->edges = NULL;
    for (unsigned set = 0; set < 3 && !found; set++) {
        unsigned class_ = 0;
        if (set >= 1)
            order |= 1u << HS_E_PROCESS;
        if (set == 2)
            order |= 1u << HS_E_REALTIME;
        found = find_any(&p, ww | order, ret);
        if (!found && ++class_)
            found = find_any(&p, ww | wr | order, ret);
        if (!found && ++class_)
            found = find_single(&p, ww | wr | rw | order, ret);
        if (!found && ++class_)
            found = find_any(&p, ww | wr | rw | order, ret);
        ret->anomaly = (enum hs_anomaly)(base[set] + class_);
    }
    CAIRN_ASSERT(found);
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->edges[i].from = p.name[ret->edges[i].from];
        ret->edges[i].to = p.name[ret->edges[i].to];
    }
    part_fini(&p);
}
