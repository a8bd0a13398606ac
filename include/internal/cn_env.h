/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_env.h: the seam to time, randomness, named steps and the log. Whoever runs a context or a node
 * passes one; the harness passes its own, so that one seed replays a run.
 */
#ifndef CN_ENV_H
#define CN_ENV_H

#include "include/internal/cn_base.h"

/*
 * Named steps (rule R7): every coordinator step, fence and persist point. The name is also the
 * crash point of the harness. `c_` coordinator, `a_` apply, `g_` growth, `h_` heap and scrub,
 * `s_` slots, `r_` recovery. cn_env.c makes the name table out of this list.
 */
#define CN_STEPS(X)                                                                                \
    X(c_connect)        /* coordinator: about to ask a node for a slot */                          \
    X(c_lock)           /* locks are about to be posted */                                         \
    X(c_locked)         /* all lock replies are in, all acquired */                                \
    X(c_validate)       /* validation reads are about to be posted */                              \
    X(c_validated)      /* validation has passed */                                                \
    X(c_log)            /* a record is about to be written (once per participant) */               \
    X(c_logged)         /* writes and flushes posted everywhere, none awaited */                   \
    X(c_flushed)        /* every flush completed: the transaction is committed */                  \
    X(c_mark)           /* marks are about to be posted (once per participant) */                  \
    X(c_marked)         /* marks posted; about to return COMMITTED */                              \
    X(c_release)        /* abort: about to release acquired locks */                               \
    X(c_void)           /* a taken sequence is about to be filled with a void record */            \
    X(a_found)          /* fence: records found in a ring are durable by this CPU (R11) */         \
    X(a_body)           /* fence: `st_body`, the objects of a batch are durable */                 \
    X(a_applied)        /* fence: `st_applied`, states say applied (R8) */                         \
    X(a_release)        /* fence: `st_release`, lock words are durable (R9) */                     \
    X(a_position)       /* fence: `st_position`, the applied position is durable (R10) */          \
    X(a_tombstone)      /* fence: a tombstone is durable (before unlock, before any answer) */     \
    X(a_unlock)         /* fence: locks of a tombstoned record are released and durable */         \
    X(g_zero)           /* fence: `gr_zero`, a fresh chunk is zero */                              \
    X(g_locked)         /* growth holds parent and child */                                        \
    X(g_record)         /* fence: `gr_record`, a growth record is durable */                       \
    X(h_hint)           /* fence: lazily persisted hints */                                        \
    X(h_scrub_words)    /* fence: words cleared by the scrub are durable */                        \
    X(h_scrub_cursor)   /* fence: `sc_cursor` */                                                   \
    X(h_scrub_done)     /* fence: `sc_done` */                                                     \
    X(s_handout)        /* fence: a slot's new epoch, nonce, owner are durable */                  \
    X(s_fence_cut)      /* access of a slot's peer is cut and drained */                           \
    X(s_fence_found)    /* fence: what was found in a fenced ring is durable */                    \
    X(s_fence_closed)   /* fence: closing sequence and gap tombstones are durable (R14) */         \
    X(s_retired)        /* fence: the final state of an epoch is in the retired table */           \
    X(s_free)           /* fence: a slot is free again */                                          \
    X(s_purged)         /* fence: a retired epoch is forgotten */                                  \
    X(r_format)         /* fence: a new pool is formatted, not yet valid */                        \
    X(r_formatted)      /* fence: a new pool is valid */                                           \
    X(r_incarnation)    /* fence: the incarnation is raised */                                     \
    X(r_scanned)        /* all rings are scanned */                                                \
    X(r_replayed)       /* marked records are replayed, releases redone */                         \
    X(r_relocked)       /* fence: keys of unresolved records are locked again */                   \
    X(r_serving)        /* about to serve */                                                       \
    X(r_ask)            /* about to ask a participant about a record in doubt */                   \
    X(r_answer)         /* about to answer */                                                      \
    X(r_verdict)        /* a verdict is computed, about to be carried out */                       \
    X(r_told)           /* about to tell the other participants */                                 \
    X(r_clean)          /* fence: a clean close of the pool is noted */

enum cn_step {
#define CN_X(name) CN_STEP_##name,
    CN_STEPS(CN_X)
#undef CN_X
    CN_STEP_COUNT,
};

const char *cn_step_name(enum cn_step step);

enum cn_log_level { CN_LOG_ERROR, CN_LOG_WARNING, CN_LOG_INFO, CN_LOG_DEBUG };

struct cn_env {
    void *arg;
    /* Monotonic nanoseconds. */
    uint64_t (*now_ns)(void *arg);
    /* Let this much time pass at once for everybody who asks this env: a clock that is partly
     * virtual. NULL: time passes by itself, wait for it. */
    void (*skip)(void *arg, uint64_t ns);
    /* Wall clock in seconds since the epoch; only for how long verdicts are kept. */
    uint64_t (*wall_s)(void *arg);
    /* Random bytes; unpredictable in production (nonces, uuids, hash keys). */
    void (*random)(void *arg, void *buf, size_t size);
    /* Passing a named step: may not return (the harness crashes the caller here). NULL: nothing. */
    void (*step)(void *arg, enum cn_step step);
    /* NULL: silent. `text` has no newline. */
    void (*log)(void *arg, enum cn_log_level level, const char *text);
};

static inline uint64_t cn_now_ns(const struct cn_env *env) { return env->now_ns(env->arg); }
static inline uint64_t cn_wall_s(const struct cn_env *env) { return env->wall_s(env->arg); }
static inline void cn_random(const struct cn_env *env, void *buf, size_t size)
{
    env->random(env->arg, buf, size);
}
static inline uint64_t cn_random64(const struct cn_env *env)
{
    uint64_t v;
    env->random(env->arg, &v, sizeof(v));
    return v;
}
static inline void cn_step(const struct cn_env *env, enum cn_step step)
{
    if (CN_UNLIKELY(env->step != NULL))
        env->step(env->arg, step);
}
void cn_log(const struct cn_env *env, enum cn_log_level level, const char *format, ...)
    CN_PRINTF(3, 4);

/* The environment of a real process: clock_gettime, getrandom (buffered), no steps, log to stderr
 * at or above `level`. */
const struct cn_env *cn_env_system(void);
void cn_env_system_log_level(enum cn_log_level level);

/*
 * The same with a clock that is partly virtual, for projections: the processor time of the thread
 * that made it, plus what was skipped. Time in which that thread is ready but does not run does not
 * count (other threads on its core are not part of the picture), nor does looking at the clock, nor
 * real waiting, unless it is skipped too. Never goes back. Other threads may ask it too: they see
 * what the owner saw last.
 * Assumes: the owner uses one at a time for its waiting; each clock is its own, and two of them
 * cannot be compared.
 */
struct cn_env_clocks {
    uint64_t (*wall_ns)(void); /* cheap */
    uint64_t (*used_ns)(void); /* processor time of the calling thread; a system call */
};
struct cn_env_virtual {
    struct cn_env env; /* to pass on; arg is this struct: it must not move */
    struct cn_env_clocks clocks;
    const void *owner;
    uint64_t look_ns;                       /* what one look costs */
    uint64_t wall_ns;                       /* at the last look */
    uint64_t sync_wall_ns, sync_own_ns;     /* when both clocks were last compared */
    uint64_t base_used_ns, looks, sync_looks;
    uint64_t start_ns, skipped_ns;
    uint64_t shown_ns; /* atomic */
};
/* Context: the thread that will use it. Measures for some microseconds what a look costs. */
void cn_env_virtual_init(struct cn_env_virtual *v);
/* With clocks of the caller's, and looks that cost so much. */
void cn_env_virtual_init_with(
    struct cn_env_virtual *v, const struct cn_env_clocks *clocks, uint64_t look_ns);

#endif
