/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo.h: what the parts of `cairn demo` share: the control block that all its processes map, the
 * running demo, and the steps of it.
 *
 * Files in the demo's folder: cairn.conf, control, n<id>.pool, n<id>.sock, n<id>.log,
 * w<process>.log, ledger-<writer>.
 */
#ifndef DEMO_H
#define DEMO_H

#include "tools/demo_check.h"
#include "tools/tl_proc.h"

#define DEMO_NODES 3u
#define DEMO_PROCESSES_MAX 8u
#define DEMO_CONTEXTS_MAX 8u
#define DEMO_GENERATIONS_MAX 4u
#define DEMO_WRITERS_MAX (DEMO_PROCESSES_MAX * DEMO_CONTEXTS_MAX * DEMO_GENERATIONS_MAX)
#define DEMO_MAGIC UINT64_C(0x314f4d45444e4343)
#define DEMO_PATH_MAX TL_PATH_MAX

enum demo_phase { DEMO_LOAD = 0, DEMO_RUN = 1, DEMO_STOP = 2 };

struct demo_counters {
    uint64_t committed, aborted, unknown, resolved;
};

struct demo_control {
    uint64_t magic, seed;
    uint32_t accounts, processes, contexts, entry_max;
    uint32_t phase;   /* enum demo_phase; atomic */
    uint32_t loading; /* contexts that have not loaded their part yet; atomic */
    uint64_t loaded;  /* accounts; atomic */
    struct demo_counters writer[DEMO_WRITERS_MAX]; /* of writer i + 1; each written by one thread */
};

static inline uint32_t demo_writer(
    const struct demo_control *c, uint32_t process, uint32_t generation, uint32_t context)
{
    return 1 + (generation * c->processes + process) * c->contexts + context;
}
/* Map DIR/control; `make`: create it. Errors: -errno. */
CN_MUST_CHECK int demo_control_map(const char *folder, bool make, struct demo_control **ret);
void demo_ledger_path(const char *folder, uint32_t writer, char path[DEMO_PATH_MAX]);

struct demo_event_totals {
    uint64_t kills, recoveries, recovery_ns_max;
    uint64_t ring_records, leaked_locks, damages, unclean_pools;
};

struct demo {
    const struct tl_command *self;
    uint64_t seed, seconds, accounts, processes, contexts;
    bool json, keep, no_kills, terminal;
    char folder[256], config[DEMO_PATH_MAX];
    struct demo_control *control;
    struct tl_child node[DEMO_NODES], worker[DEMO_PROCESSES_MAX];
    uint64_t begin_ns, run_ns, spoke_ns, run_end_ns;
    struct demo_event_totals totals;
    struct dc_result result;
    uint32_t violations_said;
    char state[96]; /* what the live line says */
};

/* ---- demo_proc.c: processes ---- */
CN_MUST_CHECK int demo_start_node(struct demo *d, uint32_t i);
CN_MUST_CHECK int demo_start_worker(struct demo *d, uint32_t i);
/* Wait for the node's line; `recovery`: count it as one. */
CN_MUST_CHECK int demo_await_node(struct demo *d, uint32_t i, bool recovery);
void demo_kill(struct demo *d, struct tl_child *child); /* SIGKILL, and reap */
/* Any child that ended by itself is an error. */
CN_MUST_CHECK int demo_check_children(struct demo *d);
/* Wait for a clean end. Errors: CAIRN_E_TIMEOUT, CAIRN_E_STATE (it failed). */
CN_MUST_CHECK int demo_await_end(struct demo *d, struct tl_child *child, uint32_t timeout_s);
void demo_kill_all(struct demo *d); /* whoever is left; not counted */

/* ---- demo_aim.c ---- */
/* Wait, not long, until a context (of `only`, or of any process) stands in the middle of a commit.
 */
void demo_aim(const struct demo *d, const struct tl_child *only);

/* ---- demo_say.c ---- */
void demo_say(struct demo *d, const char *format, ...) CN_PRINTF(2, 3); /* a line of its own */
void demo_tick(struct demo *d);                                         /* the live line */
void demo_report(struct demo *d, int error);                            /* the last line or JSON */
bool demo_is_good(const struct demo *d);

/* ---- demo_final.c: the end ---- */
/* Resolve what has a token and no verdict, read every account, replay the ledgers. */
CN_MUST_CHECK int demo_verify(struct demo *d);
/* After the clean stop of the nodes: rings, locks, fsck. */
CN_MUST_CHECK int demo_verify_pools(struct demo *d);

#endif
