/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_run.h: a run of workloads (include/cairn/workload.h) over the simulated cluster: the parts of
 * the run, the ledger of their operations, the frames around setup(), step() and check(), the
 * histories.
 *
 * The ledger and the states lie outside of the pools and of all actors: no crash touches them. An
 * operation whose coordinator crashed stays PENDING; it gets a verdict before check() if its token
 * was kept.
 */
#ifndef CR_RUN_H
#define CR_RUN_H

#include "tools/crash/workload/cr_work.h"
#include "tools/history/hs_check.h"

struct cr_client;
struct cr_cluster;
struct cr_history;
struct cr_memory;
struct cr_noted;

enum cr_op_state { CR_OP_PENDING, CR_OP_COMMITTED, CR_OP_ABORTED, CR_OP_UNKNOWN };

struct cr_op {
    enum cr_op_state state;
    uint32_t client;
    uint64_t call;   /* of the client: which step took it */
    uint32_t concern; /* for timelines: the client's operation, sim_actor.concern */
    bool offered;    /* cairn_run_commit() was called */
    bool acked;      /* COMMITTED was returned by commit itself */
    char token[CAIRN_TOKEN_SIZE]; /* empty: none */
};

struct cr_part {
    const struct cairn_workload *workload;
    void *state;
    struct cr_op *op; /* number 1 is the first */
    uint32_t op_count, op_room;
    struct cr_history *history; /* NULL: nothing was noted */
};

enum cr_call { CR_CALL_NONE, CR_CALL_SETUP, CR_CALL_STEP, CR_CALL_CHECK };
const char *cr_call_name(enum cr_call call);

/* One per client: what it is in. */
struct cairn_run {
    struct cr_client *client;
    struct cr_part *part;
    enum cr_call call;
    uint64_t calls;         /* made so far */
    uint32_t first_op;      /* operations of the part when the call began */
    uint32_t commits;       /* in this call */
    struct cr_memory *memory; /* of cairn_run_alloc() */
    struct cr_noted *noted;   /* the transaction begun in the history; NULL: none */
};

/* ---- cr_run.c ---- */
/* Which workloads, from the set-up or the seed; their states. */
void cr_run_open(struct cr_cluster *cluster);
void cr_run_close(struct cr_cluster *cluster);
/* Bodies of clients: one operation; once all set-ups; once all checks, outcomes resolved before. */
void cr_run_step(struct cr_client *client);
void cr_run_setup(struct cr_client *client);
void cr_run_check(struct cr_client *client);
/* The client's coordinator crashed. */
void cr_run_crashed(struct cr_client *client);
/* Histories as files for elle-cli, where the set-up says. Errors: -errno. */
CN_MUST_CHECK int cr_run_write_histories(struct cr_cluster *cluster);
/* All outcomes are known that could be, the histories are right. From the scheduler. */
void cr_run_verify(struct cr_cluster *cluster);

/* ---- cr_run_api.c ---- */
void cr_run_free(struct cairn_run *run);
/* A call of Cairn returned an error: counted; one that no fault explains ends the run. */
void cr_run_error(struct cairn_run *run, const char *what, int rc);
/* Ask for the verdict, twice at most; true: the ledger has it. */
bool cr_run_resolve(struct cairn_run *run, struct cr_op *op);
/* "transfer 5 from 1 to 2", or "". */
void cr_run_describe(struct cairn_run *run, uint64_t op, char *text, size_t size);

/* ---- cr_run_history.c ---- */
void cr_history_delete(struct cr_history **history);
/* The transaction begun is over without a word. */
void cr_history_drop(struct cairn_run *run);
/* As it stands; NULL: nothing was noted. Owner: the caller, hs_history_delete(). */
struct hs_history *cr_history_make(const struct cr_history *history);
/* Strictly serializable? */
void cr_history_check(struct cr_cluster *cluster, const struct cr_part *part);

#endif
