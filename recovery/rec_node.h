/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_node.h: a participant node: opening its pool *is* recovery, then it serves. One thread: an
 * event loop that takes fabric events, polls its rings, applies, resolves, grows and scrubs, a
 * bounded piece at a time.
 */
#ifndef REC_NODE_H
#define REC_NODE_H

#include "pmem/pm_store.h"
#include "txn/txn_config.h"

struct rec_node;

/*
 * The durability mode of a node's rings over a fabric (by name) on its open pool: what it states to
 * everybody. Errors: CAIRN_E_DURABILITY (the mode that the configuration declares cannot be kept).
 */
CN_MUST_CHECK int rec_durability_choose(const struct txn_config_node *at, const char *fabric,
    const struct pm_pool *pool, enum rd_durability *ret_durability);

struct rec_node_options {
    const struct txn_config *config;
    uint16_t node;
    struct rd_fabric *fabric;
    const struct cn_env *env;
    struct pm_pool
        *pool; /* open as owner (pm_pool_open) or a memory image (pm_attach). Owner: the node
                  takes it when rec_node_open() succeeds; a memory image stays the caller's. */
    /* Serve although a committed record is damaged: its keys, whichever they are, keep the values
     * from before it. False: the node does not start then. */
    bool serve_damaged;
    uint32_t background_budget; /* units of growth per turn; 0 = default */
    uint32_t scrub_budget;      /* words scrubbed per turn; 0 = default */
};

/*
 * Recover and start to serve: check cluster and node id, raise the incarnation, cut off what
 * earlier incarnations' peers could still write, scan, replay, redo releases, lock again what is
 * unresolved, listen. Returns while in-doubt records may remain: they are resolved in the
 * background. Errors: CAIRN_E_WRONG_CLUSTER, _WRONG_NODE, _CORRUPT_* (_RECORD: a committed
 * record is damaged; see serve_damaged), _DURABILITY, -EADDRINUSE (two
 * nodes with one id), those of rd_ep_open() and rd_region_new(), -ENOMEM.
 */
CN_MUST_CHECK int rec_node_open(const struct rec_node_options *options, struct rec_node **ret_node);
/* One turn: a bounded amount of everything. Returns how much was done; 0 = idle. */
uint32_t rec_node_poll(struct rec_node *node);
/* Sleep until something comes or the next timer of the node, at most until deadline_ns. */
void rec_node_sleep(struct rec_node *node, uint64_t deadline_ns);
/* What a loop of its own does after each rec_node_poll() that returned `done`: sleep, if the
 * configured pace allows that now. */
void rec_node_rest(struct rec_node *node, uint32_t done, uint64_t deadline_ns);
/* Poll and sleep until *stop (another thread or a signal handler may set it; rec_node_wake). */
void rec_node_run(struct rec_node *node, const volatile int *stop);
void rec_node_wake(struct rec_node *node);
/* Clean close: peers are cut, the pool is noted clean. *node becomes NULL. */
void rec_node_close(struct rec_node **node);
/* Free all memory of this process without touching the pool: a crash, for the harness. */
void rec_node_abandon(struct rec_node **node);

/* How the start went, and what the node does now. */
struct rec_node_stats {
    uint64_t incarnation;
    uint64_t open_ns, scan_ns, replay_ns;     /* of the start */
    uint64_t records_found, records_replayed, releases_redone, records_in_doubt_at_start;
    uint64_t slots_open, slots_closed, slots_quarantined, slots_free;
    uint64_t in_doubt;                        /* unresolved now */
    uint64_t applied, tombstones, fences, resolved_committed, resolved_aborted, asks, answers, told;
    uint64_t records_rejected;                /* hostile or corrupt */
    uint64_t locks_freed;                     /* of dead owners, on meeting (R13) */
    uint64_t turns, sleeps;
    enum rd_durability durability;
    struct pm_store_stats store;
    struct rd_counters fabric;
};
void rec_node_stats(const struct rec_node *node, struct rec_node_stats *ret);
/* Nothing unresolved, every ring empty, no slot closing. */
bool rec_node_is_quiet(const struct rec_node *node);

#endif
