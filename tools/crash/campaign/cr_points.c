/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_points.c: what may happen at each named step, and how to get there.
 */
#include "tools/crash/campaign/cr_points.h"

#define OCCURRENCES 4u
#define PAUSE_US 20000u /* longer than a lease, and than a record may stay unmarked */

/* What cn_env.h says of each. */
static const char *const texts[CN_STEP_COUNT] = {
    [CN_STEP_c_connect] = "coordinator: about to ask a node for a slot",
    [CN_STEP_c_lock] = "locks are about to be posted",
    [CN_STEP_c_locked] = "all lock replies are in, all acquired",
    [CN_STEP_c_validate] = "validation reads are about to be posted",
    [CN_STEP_c_validated] = "validation has passed",
    [CN_STEP_c_log] = "a record is about to be written (once per participant)",
    [CN_STEP_c_logged] = "writes and flushes posted everywhere, none awaited",
    [CN_STEP_c_flushed] = "every flush completed: the transaction is committed",
    [CN_STEP_c_mark] = "marks are about to be posted (once per participant)",
    [CN_STEP_c_marked] = "marks posted; about to return COMMITTED",
    [CN_STEP_c_release] = "abort: about to release acquired locks",
    [CN_STEP_c_void] = "a taken sequence is about to be filled with a void record",
    [CN_STEP_a_found] = "fence: records found in a ring are durable by this CPU (R11)",
    [CN_STEP_a_body] = "fence: `st_body`, the objects of a batch are durable",
    [CN_STEP_a_applied] = "fence: `st_applied`, states say applied (R8)",
    [CN_STEP_a_release] = "fence: `st_release`, lock words are durable (R9)",
    [CN_STEP_a_position] = "fence: `st_position`, the applied position is durable (R10)",
    [CN_STEP_a_tombstone] = "fence: a tombstone is durable (before unlock, before any answer)",
    [CN_STEP_a_unlock] = "fence: locks of a tombstoned record are released and durable",
    [CN_STEP_g_zero] = "fence: `gr_zero`, a fresh chunk is zero",
    [CN_STEP_g_locked] = "growth holds parent and child",
    [CN_STEP_g_record] = "fence: `gr_record`, a growth record is durable",
    [CN_STEP_h_hint] = "fence: lazily persisted hints",
    [CN_STEP_h_scrub_words] = "fence: words cleared by the scrub are durable",
    [CN_STEP_h_scrub_cursor] = "fence: `sc_cursor`",
    [CN_STEP_h_scrub_done] = "fence: `sc_done`",
    [CN_STEP_s_handout] = "fence: a slot's new epoch, nonce, owner are durable",
    [CN_STEP_s_fence_cut] = "access of a slot's peer is cut and drained",
    [CN_STEP_s_fence_found] = "fence: what was found in a fenced ring is durable",
    [CN_STEP_s_fence_closed] = "fence: closing sequence and gap tombstones are durable (R14)",
    [CN_STEP_s_retired] = "fence: the final state of an epoch is in the retired table",
    [CN_STEP_s_free] = "fence: a slot is free again",
    [CN_STEP_s_purged] = "fence: a retired epoch is forgotten",
    [CN_STEP_r_format] = "fence: a new pool is formatted, not yet valid",
    [CN_STEP_r_formatted] = "fence: a new pool is valid",
    [CN_STEP_r_incarnation] = "fence: the incarnation is raised",
    [CN_STEP_r_scanned] = "all rings are scanned",
    [CN_STEP_r_replayed] = "marked records are replayed, releases redone",
    [CN_STEP_r_relocked] = "fence: keys of unresolved records are locked again",
    [CN_STEP_r_serving] = "about to serve",
    [CN_STEP_r_ask] = "about to ask a participant about a record in doubt",
    [CN_STEP_r_answer] = "about to answer",
    [CN_STEP_r_verdict] = "a verdict is computed, about to be carried out",
    [CN_STEP_r_told] = "about to tell the other participants",
    [CN_STEP_r_clean] = "fence: a clean close of the pool is noted",
};

const char *cr_point_text(enum cn_step step)
{
    return texts[step];
}

static bool is_clients(enum cn_step step)
{
    return step <= CN_STEP_c_void;
}

bool cr_point_is_defined(enum cn_step step, enum cr_cell cell)
{
    /* Pools are made before a run begins: a crash there is a matter of pm_format()'s tests. */
    if (step == CN_STEP_r_format || step == CN_STEP_r_formatted)
        return false;
    switch (cell) {
    case CR_CELL_PASSED:
    case CR_CELL_PROCESS:
    case CR_CELL_PAUSED: return true;
    case CR_CELL_POWER:
    case CR_CELL_IMAGES: return !is_clients(step); /* a client has no persistent memory */
    case CR_CELL_NESTED: return step >= CN_STEP_r_incarnation && step <= CN_STEP_r_serving;
    case CR_CELL_COUNT: break;
    }
    return false;
}

bool cr_point_at(uint32_t at, enum cn_step *ret_step, enum cr_cell *ret_kind)
{
    for (uint32_t s = 0; s < CN_STEP_COUNT; s++)
        for (uint32_t k = CR_CELL_PROCESS; k <= CR_CELL_PAUSED; k++)
            if (cr_point_is_defined(s, k) && at-- == 0) {
                *ret_step = s;
                *ret_kind = k;
                return true;
            }
    return false;
}

/* Make the step likely. `turn` from 1. */
static void aim(struct cr_setup *setup, enum cn_step step, uint32_t turn)
{
    if (step >= CN_STEP_r_ask && step <= CN_STEP_r_told) {
        /* Transactions of two nodes whose coordinator dies between its records. */
        setup->clients = 4;
        setup->ops = 25;
        setup->work = 1u << CR_WORK_BANK;
        setup->faults |= CR_FAULT_HAZARD;
        setup->first = (struct sim_plan){.role = SIM_CLIENT, .any_actor = true,
            .step = CN_STEP_c_logged, .occurrence = 2 * turn, .kind = SIM_CRASH_PROCESS};
    } else if (step >= CN_STEP_r_incarnation && step <= CN_STEP_r_serving) {
        setup->first = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
            .step = CN_STEP_a_body, .occurrence = turn, .kind = SIM_CRASH_POWER};
    } else if (step == CN_STEP_g_locked) {
        setup->clients = 4;
        setup->ops = 40;
        setup->work = 1u << CR_WORK_CHURN | 1u << CR_WORK_SKEW | 1u << CR_WORK_COUNTER;
    } else if (turn == 1 && step != CN_STEP_a_found) {
        setup->faults = 0; /* nothing but the crash */
    }
}

void cr_point_setup(enum cn_step step, enum cr_cell kind, uint32_t attempt, uint64_t seed,
    struct cr_setup *ret_setup, uint64_t *ret_seed)
{
    static const enum sim_crash kinds[CR_CELL_COUNT] = {
        [CR_CELL_PROCESS] = SIM_CRASH_PROCESS, [CR_CELL_POWER] = SIM_CRASH_POWER};
    uint32_t turn = 1 + attempt / OCCURRENCES;

    CAIRN_ASSERT(kind >= CR_CELL_PROCESS && kind <= CR_CELL_PAUSED);
    *ret_setup = (struct cr_setup){.nodes = 2, .clients = 3, .ops = 12, .rules = true,
        .faults =
            CR_FAULT_NODE_PROCESS | CR_FAULT_NODE_POWER | CR_FAULT_CLIENT | CR_FAULT_BREAK,
        .clean_end = step == CN_STEP_r_clean,
        .plan = {.role = is_clients(step) ? SIM_CLIENT : SIM_NODE, .any_actor = true, .step = step,
            .occurrence = 1 + attempt % OCCURRENCES, .kind = kinds[kind],
            .pause_us = kind == CR_CELL_PAUSED ? PAUSE_US : 0}};
    aim(ret_setup, step, turn);
    *ret_seed = seed + turn - 1;
}
