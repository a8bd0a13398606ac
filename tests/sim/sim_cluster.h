/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_cluster.h: a whole Cairn cluster in a simulation: nodes and clients run the shipped code over
 * the modelled fabric and memory. One run: set up, work under faults, heal, wait for quiet, resolve
 * every unknown outcome, read everything, check.
 */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "recovery/rec_node.h"
#include "tests/sim/sim_fabric.h"
#include "tests/support/ts_check.h"
#include "txn/txn_cluster.h"

#define SIM_NODES_MAX 4u
#define SIM_CLIENTS_MAX 6u
#define SIM_LISTS_MAX 8u
#define SIM_LIST_SIZE_MAX 1024u
#define SIM_ACCOUNTS_MAX 8u
#define SIM_COUNTERS_MAX 4u
#define SIM_PRIVATE_MAX 6u
#define SIM_PAIRS_MAX 3u
#define SIM_SLOTS_MAX 16u
#define SIM_BALANCE0 100
#define SIM_VALUE_MAX 4096u

enum sim_fault {
    SIM_FAULT_NODE_PROCESS = 1,
    SIM_FAULT_NODE_POWER = 2,
    SIM_FAULT_CLIENT = 4,
    SIM_FAULT_PAUSE = 8,
    SIM_FAULT_PARTITION = 16,
    SIM_FAULT_BREAK = 32,
    SIM_FAULT_ALL_POWER = 64,
    SIM_FAULT_NESTED = 128, /* crash again during recovery */
    SIM_FAULT_STEP = 256,   /* crash at a drawn named step */
    SIM_FAULT_HAZARD = 512, /* crashes and pauses at any named step, at drawn rates */
    SIM_FAULTS_ALL = 1023,
};

enum sim_work {
    SIM_WORK_BANK,
    SIM_WORK_APPEND,
    SIM_WORK_READ,
    SIM_WORK_COUNTER,
    SIM_WORK_CHURN,
    SIM_WORK_SKEW,
    SIM_WORK_COUNT,
};

struct sim_client;

struct sim_setup {
    uint32_t nodes, clients, ops; /* operations per client */
    unsigned faults;              /* allowed; the seed picks some of them */
    unsigned work;                /* bits 1 << enum sim_work; 0: the seed picks */
    enum rd_durability durability; /* how flushes become durable, and ... */
    enum sim_mode mode;            /* ... the platform; with durability 0 the seed picks both */
    uint32_t lanes;                /* of the fabric; 0: the seed picks, and message atomics too */
    bool message_atomics;          /* with lanes */
    bool prompt;                   /* posts do not wait for others */
    struct sim_plan plan, first;  /* occurrence 0: none; `first` is to make `plan` reachable */
    struct sim_hazard hazard[3];  /* by role: instead of drawn ones, where not all zero */
    bool quick;                   /* crashed nodes start again at once, and rings linger */
    bool plain;                   /* one fixed geometry, no drawn delays beyond the fabric's */
    bool record, verbose;
    bool power_at_end;            /* always end with a power failure of all nodes and check again */
    bool clean_end;               /* always end with a clean close of all nodes and check again */
    const struct sim_choice *replay; /* play this tape */
    size_t replay_count;
    void (*body)(struct sim_client *client); /* instead of drawn operations; once */
};

enum sim_entry_state { SIM_PENDING, SIM_COMMITTED, SIM_ABORTED, SIM_UNKNOWN };
struct sim_entry { /* the ledger: what a transaction did, and what is known of it */
    enum sim_entry_state state;
    enum sim_work work;
    bool acked;               /* COMMITTED was returned by commit itself */
    char token[CAIRN_TOKEN_SIZE]; /* empty: none */
    uint32_t list[3], element[3], lists; /* appends */
    uint32_t from, to, amount;           /* transfer; counter in `from` */
    uint32_t client, key, unique, size;  /* churn; unique 0: deleted */
};

struct sim_node {
    struct sim_cluster *cluster;
    struct sim_actor *actor;
    struct sim_pool *pool;
    struct pm_pool pm_pool;
    struct rec_node *node;
    uint16_t id;
    uint64_t super_off;
    uint32_t opens; /* starts that came to serve */
    uint64_t epoch[SIM_SLOTS_MAX]; /* of its slots, as last seen */
    bool restart_planned;
    bool power_too; /* its process died, and the power fails before it starts again */
};

struct sim_client {
    struct sim_cluster *cluster;
    struct sim_actor *actor;
    struct cairn_ctx *ctx;
    uint32_t index, ops_left;
    uint64_t process; /* for the history */
    bool finished, busy;
    bool trouble; /* the last operation met a node that is down */
    uint64_t busy_since;
    struct sim_entry *entry; /* of the operation in flight */
    void *op;                /* its memory */
};

struct sim_counts {
    uint64_t ops, committed, aborted, unknown, errors, crashes_node, crashes_client, restarts;
    uint64_t nested, pauses, partitions, breaks, resolved_committed, resolved_aborted, forgotten;
    uint64_t flushes_served, cas_served; /* by nodes' CPUs */
};

struct sim_cluster {
    struct sim sim;
    struct sim_setup setup;
    struct txn_config config;
    struct cairn *cairn;
    uint32_t node_count, client_count;
    struct sim_node node[SIM_NODES_MAX];
    struct sim_client client[SIM_CLIENTS_MAX];
    struct sim_client extra; /* sets up, and reads everything at the end */
    uint32_t lists, accounts, counters, privates, pairs;
    unsigned work, faults;
    bool keep_alive; /* crashed actors restart soon; set at the end too */
    bool closing;    /* nodes close cleanly */
    uint32_t scrub_budget; /* of all nodes */
    struct sim_entry **entry;
    uint32_t entry_count, entry_room;
    uint32_t next_element;
    uint64_t next_process;
    struct ts_history *history;
    struct sim_counts counts;
    /* final state */
    struct { bool known; uint32_t count; uint32_t element[SIM_LIST_SIZE_MAX]; } list[SIM_LISTS_MAX];
    int64_t balance[SIM_ACCOUNTS_MAX];
    uint64_t counter[SIM_COUNTERS_MAX];
    uint32_t private_unique[SIM_CLIENTS_MAX][SIM_PRIVATE_MAX];
    bool pair_present[SIM_PAIRS_MAX][2];
    uint64_t canonical; /* of all pools at the last check */
    bool canonical_known;
};

struct sim_result {
    bool failed;
    char failure[1024];
    uint64_t hash, choices, virtual_ns;
    uint64_t steps[CN_STEP_COUNT];
    bool plan_fired;
    struct sim_counts counts;
    struct sim_stats stats;
    uint64_t words_lost;
    struct sim_choice *tape; /* with `record`. Owner: the caller (sim_free) */
    size_t tape_count;
};

/* One whole run. */
void sim_cluster_run(const struct sim_setup *setup, uint64_t seed, struct sim_result *ret);

/* ---- between the files ---- */
void sim_node_restart(struct sim_node *node, uint64_t delay);
struct sim_entry *sim_entry_new(struct sim_cluster *cluster, enum sim_work work);
/* One operation of a client; which one is drawn. */
void sim_work_once(struct sim_client *client);
/* Bodies of the extra client. */
void sim_work_setup(struct sim_client *client);
void sim_work_final(struct sim_client *client);
void sim_nemesis_start(struct sim_cluster *cluster);
/* After the final reads. */
void sim_check(struct sim_cluster *cluster);
void sim_check_pools(struct sim_cluster *cluster);
/* A slot was handed out: no lock word names it yet. */
void sim_check_handout(struct sim_node *node);

#endif
