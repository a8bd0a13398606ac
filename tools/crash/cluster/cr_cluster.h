/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cluster.h: a whole Cairn cluster in a simulation: nodes and clients run the shipped code over
 * the modelled fabric and memory. One run: set up, work under faults, heal, wait for quiet, resolve
 * every unknown outcome, read everything, check.
 */
#ifndef CR_CLUSTER_H
#define CR_CLUSTER_H

#include "recovery/rec_node.h"
#include "tools/crash/cluster/cr_discipline.h"
#include "tools/crash/cluster/cr_rules.h"
#include "tools/crash/cluster/cr_run.h"
#include "tools/crash/workload/cr_work_list.h"
#include "tools/sim/sim_fabric.h"
#include "txn/txn_cluster.h"

struct cr_timeline;

#define CR_NODES_MAX 4u
#define CR_CLIENTS_MAX 6u
#define CR_SLOTS_MAX 16u

enum cr_fault {
    CR_FAULT_NODE_PROCESS = 1,
    CR_FAULT_NODE_POWER = 2,
    CR_FAULT_CLIENT = 4,
    CR_FAULT_PAUSE = 8,
    CR_FAULT_PARTITION = 16,
    CR_FAULT_BREAK = 32,
    CR_FAULT_ALL_POWER = 64,
    CR_FAULT_NESTED = 128, /* crash again during recovery */
    CR_FAULT_STEP = 256,   /* crash at a drawn named step */
    CR_FAULT_HAZARD = 512, /* crashes and pauses at any named step, at drawn rates */
    CR_FAULTS_ALL = 1023,
    /* Of a whole run, and only where asked for by name. */
    CR_FAULT_CLOCK = 1024, /* clocks of all actors drift, differ, stand still; wall clocks jump */
    CR_FAULT_SLOW = 2048,  /* one node answers a hundred times slower */
    CR_FAULT_MEMORY = 4096, /* allocations of nodes fail now and then */
    CR_FAULT_STALL = 8192, /* who has just logged hears late of one node, or gets there late */
    CR_FAULTS_KNOWN = 16383,
};

struct cr_client;

struct cr_setup {
    uint32_t nodes, clients, ops; /* operations per client */
    uint32_t group; /* clients that share a context (its transactions in flight); 0: drawn */
    unsigned faults;              /* allowed; the seed picks some of them */
    unsigned work;                /* workloads built in, 1 << enum cr_work; 0: the seed picks */
    const struct cairn_workload *workload[CR_PARTS_MAX + 1]; /* these, if any (cr_work_open()) */
    enum rd_durability durability; /* how flushes become durable, and ... */
    enum sim_mode mode;            /* ... the platform; with durability 0 the seed picks both */
    uint32_t lanes;                /* of the fabric; 0: the seed picks, and message atomics too */
    bool message_atomics;          /* with lanes */
    bool prompt;                   /* posts do not wait for others */
    struct sim_plan plan, first;  /* occurrence 0: none; `first` is to make `plan` reachable */
    struct sim_hazard hazard[3];  /* by role: instead of drawn ones, where not all zero */
    bool quick;                   /* crashed nodes start again at once, and rings linger */
    uint32_t chunks; /* of each pool's heap; 0: plenty. Few: pools run full */
    bool garbage; /* power failures leave rubbish where nothing of a peer's words persisted (I18) */
    bool plain;                   /* one fixed geometry, no drawn delays beyond the fabric's */
    bool record, verbose;
    bool power_at_end;            /* always end with a power failure of all nodes and check again */
    bool clean_end;               /* always end with a clean close of all nodes and check again */
    const struct sim_choice *replay; /* play this tape; the rest is drawn, or ... */
    size_t replay_count;
    bool calm_rest;               /* ... is calm (sim_calm.h) */
    uint64_t skip[CR_CLIENTS_MAX]; /* operations left out, by bit; of a client's first 64 */
    uint64_t events_max;          /* the run is given up (class "events") when it takes more */
    const char *history;    /* folder for WORKLOAD.edn and .json of each part with a history */
    uint32_t watch_seconds; /* real ones in which a call must let time pass (cr_watch.h); 0: 10 */
    struct cr_timeline *timeline; /* record into it; NULL: not. Owner: the caller */
    void (*body)(struct cr_client *client); /* instead of drawn operations; once */
    bool discipline; /* assert that what is relied on is durable, without any crash */
    bool rules;      /* assert rules of the protocol at once: cr_rules.h */
};

struct cr_node {
    struct cr_cluster *cluster;
    struct sim_actor *actor;
    struct sim_pool *pool;
    struct pm_pool pm_pool;
    struct rec_node *node;
    uint16_t id;
    uint64_t super_off;
    uint32_t opens; /* starts that came to serve */
    uint64_t epoch[CR_SLOTS_MAX]; /* of its slots, as last seen */
    bool restart_planned;
    bool power_too; /* its process died, and the power fails before it starts again */
    uint64_t steps; /* passed in this life until it serves: bounded (I13) */
};

struct cr_client {
    struct cr_cluster *cluster;
    struct sim_actor *actor;
    struct cairn_ctx *ctx;
    uint32_t index, ops_left;
    uint64_t process; /* for the history */
    bool finished, busy;
    bool trouble; /* the last operation met a node that is down */
    uint64_t busy_since;
    uint32_t operation; /* begun so far: cr_tell_begin() */
    struct cairn_run run; /* the workload's call under way */
};

struct cr_counts {
    uint64_t ops, committed, aborted, unknown, errors, crashes_node, crashes_client, restarts;
    uint64_t nested, pauses, partitions, breaks, resolved_committed, resolved_aborted, forgotten;
    uint64_t flushes_served, cas_served; /* by nodes' CPUs */
    uint64_t fulls;   /* requests for space that nodes refused, in their last lives */
    uint64_t allocations_failed;
    uint64_t words_spoiled; /* with `garbage` */
    uint64_t guarded; /* stores of peers that were looked at: cr_guard.h */
    uint64_t flush_lines, flush_lines_clean; /* by nodes; with nothing to write back (I17) */
    uint64_t fences, fences_idle;            /* and with nothing to wait for */
};

struct cr_cluster {
    struct sim sim;
    struct cr_setup setup;
    struct txn_config config;
    struct cairn *cairn;
    uint32_t node_count, client_count, group;
    struct cr_node node[CR_NODES_MAX];
    struct cr_client client[CR_CLIENTS_MAX];
    struct cr_client extra; /* sets up, and reads everything at the end */
    unsigned faults;
    bool keep_alive; /* crashed actors restart soon; set at the end too */
    bool closing;    /* nodes close cleanly */
    const struct cr_node *stalls; /* with CR_FAULT_STALL: this node does. NULL: none */
    uint32_t scrub_budget; /* of all nodes */
    struct cr_part part[CR_PARTS_MAX];
    uint32_t part_count;
    uint64_t next_process; /* for the histories */
    struct cr_counts counts;
    uint64_t canonical; /* of all pools at the last check */
    bool canonical_known;
    struct cr_discipline *discipline; /* NULL: nobody asserts it */
    struct cr_guard *guard;
    struct cr_rules *rules; /* NULL: nobody asserts them */
    uint64_t recovery_steps_max;
    uint64_t shared[8]; /* of the set-up's bodies; zero at first */
};

struct cr_result {
    bool failed;
    bool unable; /* failed by the harness: nothing is said of the product */
    int history_error; /* the histories could not be written: -errno */
    char failure[1024];
    char failure_class[SIM_CLASS_MAX]; /* which invariant; see sim_fail() */
    bool diverged;       /* the replayed tape did not fit: see sim_tape.h */
    size_t replay_unused; /* choices of it that nobody asked for */
    uint32_t node_count, client_count;
    uint64_t hash, choices, virtual_ns;
    uint64_t steps[CN_STEP_COUNT];
    bool plan_fired;
    struct cr_counts counts;
    struct sim_stats stats;
    uint64_t words_lost;
    uint64_t recovery_steps_max; /* named steps of the longest start of a node */
    struct sim_choice *tape; /* with `record`. Owner: the caller (sim_free) */
    size_t tape_count;
};

/* One whole run. */
void cr_cluster_run(const struct cr_setup *setup, uint64_t seed, struct cr_result *ret);

/* ---- between the files ---- */
void cr_node_restart(struct cr_node *node, uint64_t delay);
/* ---- cr_client.c ---- */
void cr_clients_new(struct cr_cluster *cluster);
void cr_clients_start(struct cr_cluster *cluster);
/* A leader of a group (cr_setup.group). */
void cr_client_restart(struct cr_client *client, uint64_t delay);
/* Before the first actor starts, and when the clients do. */
void cr_nemesis_prepare(struct cr_cluster *cluster);
void cr_nemesis_start(struct cr_cluster *cluster);
/* A client's actor passes a step. */
void cr_nemesis_step(struct cr_cluster *cluster, struct sim_actor *actor, enum cn_step step);
void cr_check_pools(struct cr_cluster *cluster);
/* A slot was handed out: no lock word names it yet. */
void cr_check_handout(struct cr_node *node);

#endif
