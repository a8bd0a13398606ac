/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * workload.h: how to run a service's own transactions under the crash harness:
 *
 *   cc -shared -fPIC -o shop.so shop.c && cairn crash run --workload ./shop.so
 *
 * A workload is a shared object that defines cairn_workload(). It uses the public API of cairn.h
 * and the calls below, and nothing else of Cairn. The harness runs several clients of it against a
 * cluster, crashes coordinators and participants anywhere, heals, and asks for a check.
 *
 * Threads. All calls come from one thread, but of many clients in turn: step() of one client runs
 * while that of another is inside a call of the API. So what is shared between clients lies in the
 * run's state (cairn_run_state()) and is changed without a call of the API in between; there are no
 * static variables. Under `cairn crash rig` each client is a process, the state is shared memory.
 *
 * Crashes. setup(), step() and check() run on a coordinator. When it crashes, the call ends there
 * and never returns: no destructor runs. What it had allocated with cairn_run_alloc() is freed. The
 * run's state survives everything: it is the ledger that no crash can touch.
 *
 * Determinism. Take every decision from cairn_run_choose(), never from the clock, addresses or
 * rand(): then one seed replays the run, and a failure can be made small.
 */
#ifndef CAIRN_WORKLOAD_H
#define CAIRN_WORKLOAD_H

#include "cairn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_WORKLOAD_ABI 1u

struct cairn_run; /* one run, as one client sees it. Valid during the call that it was passed to */

struct cairn_workload {
    uint32_t abi;        /* CAIRN_WORKLOAD_ABI */
    const char *name;    /* letters, digits, '-' */
    const char *summary; /* one line: what it does and what must hold */
    size_t state_size;   /* bytes of the run's state, zeroed before setup(); 0: none */
    uint32_t tx_bytes;   /* of keys and values that one transaction writes, at most; 0: 1024. Logs
                            are made to hold it and not much more: so they wrap often */
    /*
     * By one client, before any fault. 0, or an error of Cairn: one that time may mend (see step())
     * runs it again with a state zeroed anew, any other ends the run as a failure.
     */
    int (*setup)(struct cairn_run *run, struct cairn_ctx *ctx);
    /*
     * One operation: usually one transaction. 0, or the error of Cairn that ended it. Errors that
     * faults explain (CONFLICT, AGAIN, TIMEOUT, NODE_DOWN, REJECTED, UNREACHABLE, FENCED, SLOTS,
     * RING_FULL, POOL_FULL, IN_DOUBT) are part of the game; any other ends the run as a failure.
     */
    int (*step)(struct cairn_run *run, struct cairn_ctx *ctx);
    /*
     * After the faults: all nodes are up, every outcome that could be known is known. Reads the
     * final state and says with cairn_run_fail() what is wrong. May be called more than once: again
     * after an error, and after all nodes lost power or were closed.
     */
    int (*check)(struct cairn_run *run, struct cairn_ctx *ctx);
    /*
     * May be NULL. One operation in words for the timeline of a failure ("transfer 5 from a to
     * b"), from the state, as snprintf() would; `op` is a number that cairn_run_op() gave.
     */
    void (*describe)(struct cairn_run *run, uint64_t op, char *text, size_t size);
};

/* The shared object defines this one. */
CAIRN_API const struct cairn_workload *cairn_workload(void);

/* ---- what the harness offers; `run` is the one passed to the call ---- */

CAIRN_API void *cairn_run_state(struct cairn_run *run);
/* 0 .. clients - 1; in setup() and check() `clients`. */
CAIRN_API uint32_t cairn_run_client(const struct cairn_run *run);
CAIRN_API uint32_t cairn_run_clients(const struct cairn_run *run);
/* The table to use. Keys of a workload may be any. */
CAIRN_API uint32_t cairn_run_table(const struct cairn_run *run);
/* A number below `bound` (1 or more). `label`, static text, names the decision in reports. */
CAIRN_API uint32_t cairn_run_choose(struct cairn_run *run, const char *label, uint32_t bound);
/* Nanoseconds; virtual where time is. Only for what is told to people. */
CAIRN_API uint64_t cairn_run_now(const struct cairn_run *run);
/* Zeroed; lives until the call ends or its coordinator crashes. Never NULL. */
CAIRN_API void *cairn_run_alloc(struct cairn_run *run, size_t size);
/* A violation: the invariant does not hold. The first is kept; the run ends. */
CAIRN_API void cairn_run_fail(struct cairn_run *run, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/*
 * Outcomes. An operation that writes takes a number before its first write, puts what it is about
 * to do into the state, and commits with cairn_run_commit(). In check(), cairn_run_outcome() then
 * tells what became of it: COMMITTED and ABORTED are certain (a violation if the data says
 * otherwise); UNKNOWN: its coordinator crashed before anybody held its token, so it must be there
 * as a whole or not at all.
 */
/* Numbers start at 1 and are dense over all clients of the run. */
CAIRN_API uint64_t cairn_run_op(struct cairn_run *run);
/* cairn_commit(), whose outcome is kept under `op`; an outcome that stays UNKNOWN is resolved by
 * its token before check(). Returns as cairn_commit(). Now and then the harness aborts instead, as
 * after a conflict. `op` 0: the transaction has only read. */
CAIRN_API CAIRN_MUST_CHECK int cairn_run_commit(
    struct cairn_run *run, uint64_t op, struct cairn_tx *tx, enum cairn_outcome *ret_outcome);
/* The operation ended without a commit (an error, or cairn_abort()): ABORTED. */
CAIRN_API void cairn_run_aborted(struct cairn_run *run, uint64_t op);
/* NONE: no such number. */
CAIRN_API enum cairn_outcome cairn_run_outcome(const struct cairn_run *run, uint64_t op);

/*
 * History. Operations noted so are checked for strict serializability (Elle's method) after the
 * run and can be written for elle-cli. A transaction of list appends and reads: begin, then each
 * micro-operation in order, then one end. Elements are unique per key over the run. Reads in
 * check() go between begin and end too: the harness takes them for the last word on their keys.
 */
CAIRN_API void cairn_run_history_begin(struct cairn_run *run);
CAIRN_API void cairn_run_history_append(struct cairn_run *run, uint64_t key, uint32_t element);
/* The list as read; a key that does not exist is the empty list. Call it behind the read. */
CAIRN_API void cairn_run_history_read(
    struct cairn_run *run, uint64_t key, const uint32_t *elements, uint32_t count);
/* UNKNOWN: as long as it is not resolved; also when the coordinator crashes before this call. */
CAIRN_API void cairn_run_history_end(struct cairn_run *run, enum cairn_outcome outcome);

#ifdef __cplusplus
}
#endif

#endif
