/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig_shared.h: the file that all processes of a rig map: it outlives every SIGKILL, so it is
 * the ledger and the record of what happened. One program of one build makes and maps it, so its
 * bytes are trusted; only its size and first word are checked.
 *
 *   header | per part: state, ledger of operations | per client: log of history events
 *
 * A client's log is written by that client alone, by one generation after the other. What an event
 * holds is what its `size` says; one whose `outcome` was never set had its coordinator killed.
 */
#ifndef CR_RIG_SHARED_H
#define CR_RIG_SHARED_H

#include "include/cairn/workload.h"
#include "include/internal/cn_base.h"

#define RIG_MAGIC UINT64_C(0x3147495248535243)
#define RIG_CLIENTS_MAX 16u
#define RIG_PARTS_MAX 12u
#define RIG_OPS_MAX (1u << 20)      /* of a part */
#define RIG_OPS_BUILT_IN 120000u    /* what those that are built in have room for, and some less */
#define RIG_OPS_SPARE 16384u        /* behind that: taken by those who did not look before */
#define RIG_LOG_MIN (UINT64_C(1) << 25) /* bytes, of a client: by the length of the run */
#define RIG_LOG_MAX (UINT64_C(1) << 28)
#define RIG_LOG_PER_SECOND (UINT64_C(1) << 22)
#define RIG_TEXT_MAX 1024u

enum rig_call { RIG_SETUP, RIG_STEP, RIG_CHECK };

struct rig_op {
    uint32_t outcome; /* enum cairn_outcome; NONE: not ended; atomic */
    uint32_t client;
    char token[CAIRN_TOKEN_SIZE]; /* empty: none */
};

struct rig_part {
    char name[64];
    uint64_t state_off, state_size, ops_off;
    uint64_t op_count; /* taken; atomic */
    uint64_t op_room;  /* of the ledger */
};

enum rig_mop_kind { RIG_APPEND, RIG_READ };
struct rig_mop { /* followed by `count` elements of 4 bytes, padded to 8 */
    uint64_t key;
    uint32_t kind, count;
};
struct rig_event { /* followed by mops */
    uint64_t begin_ns, end_ns;
    uint64_t process;
    uint32_t part, outcome; /* enum cairn_outcome; NONE: never ended */
    uint64_t final;         /* of check() */
    uint64_t size;          /* with its mops; all that counts of it */
};
struct rig_client {
    uint64_t log_off, log_size;
    uint64_t used;          /* written by the client */
    uint64_t open;          /* offset + 1 of the event begun and not ended; 0: none */
    uint64_t process;       /* the last id given */
    uint64_t committed, aborted, unknown;
    uint32_t full; /* log or ledger: what is not in them is not committed, and no step follows */
};

struct rig_shared {
    uint64_t magic, size, seed;
    uint32_t clients, parts, table, stop; /* stop: end after this step; atomic */
    uint64_t work_begin_ns, work_ns; /* ledgers are to last that long */
    uint64_t resolved;
    uint32_t ready;  /* clients that are about to begin their first step; atomic */
    uint32_t failed; /* 1: `failure` is being written, 2: written; atomic */
    char failure[RIG_TEXT_MAX];
    char workload[256];
    struct rig_part part[RIG_PARTS_MAX];
    struct rig_client client[RIG_CLIENTS_MAX + 1]; /* the last one sets up and checks */
};

/* Parts from the workload's text (cr_work_open()). Errors: CAIRN_E_CONFIG. */
CN_MUST_CHECK int rig_parts(const char *text,
    const struct cairn_workload *ret_part[RIG_PARTS_MAX], uint32_t *ret_count);
/* For so many seconds of work: the file takes no more memory than this, whatever happens. */
struct rig_shape {
    const char *workload;
    const struct cairn_workload *const *parts;
    uint32_t part_count, clients;
    uint64_t seed;
    double seconds;
};
uint64_t rig_shared_size(const struct rig_shape *shape);
/* Make the file and map it. Errors: -errno. */
CN_MUST_CHECK int rig_shared_make(
    const char *path, const struct rig_shape *shape, struct rig_shared **ret_shared);
/* Map one that is there. Errors: -errno, -EINVAL (not one of this build). */
CN_MUST_CHECK int rig_shared_map(const char *path, struct rig_shared **ret_shared);
void rig_shared_unmap(struct rig_shared **shared);

static inline void *rig_at(struct rig_shared *s, uint64_t off) { return (uint8_t *)s + off; }
struct rig_op *rig_op_at(struct rig_shared *shared, uint32_t part, uint64_t op); /* or NULL */
/* The part has used up more of its ledger than of the time: others first. `built_in`: it is. */
bool rig_is_ahead(const struct rig_shared *shared, uint32_t part, bool built_in, uint64_t now);
/* Whoever finds a token there finds all of it, wherever its writer was killed. */
void rig_op_set_token(struct rig_op *op, const char token[CAIRN_TOKEN_SIZE]);
/* The first one is kept. */
void rig_fail(struct rig_shared *shared, const char *text);
/* NULL: none. Also of a client that was killed while it wrote why. */
const char *rig_failure(const struct rig_shared *shared);

/* ---- a client's log ---- */
/* Whoever wrote it is gone: end the log behind what counts. */
void rig_log_resume(struct rig_shared *shared, uint32_t client);
/* False: it is full. */
bool rig_event_begin(struct rig_shared *shared, uint32_t client, uint32_t part, uint64_t process,
    uint64_t now, bool final);
bool rig_event_mop(struct rig_shared *shared, uint32_t client, enum rig_mop_kind kind, uint64_t key,
    const uint32_t *elements, uint32_t count);
void rig_event_end(
    struct rig_shared *shared, uint32_t client, enum cairn_outcome outcome, uint64_t now);

struct hs_history;
/* Of one part, in the order of time; NULL: nothing was noted. Owner: hs_history_delete(). */
struct hs_history *rig_history(struct rig_shared *shared, uint32_t part);

#endif
