/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_mutants.c: the shapes of run that make the situation of a mutant likely, and the table of
 * aims.
 */
#include "tools/crash/campaign/cr_mutants.h"

#include "tools/crash/campaign/cr_scripts.h"
#include "tools/crash/explore/cr_enum.h"

static const char *const names[] = {
    "none",
#define CN_X(name, rule) #name,
    CN_MUTANTS(CN_X)
#undef CN_X
};
static const char *const rules[] = {
    "nothing is broken",
#define CN_X(name, rule) rule,
    CN_MUTANTS(CN_X)
#undef CN_X
};

#define WORK(name) (1u << CR_WORK_##name)
#define PM "unit-pmem-pm_mutants"
#define TXN "unit-txn-txn_mutants"
#define PART "unit-txn-txn_part_mutants"
#define REC "unit-recovery-rec_mutants"

/* ---- the shapes ---- */

static const struct cr_setup mixed = {.ops = 20, .faults = CR_FAULTS_ALL};
/* No faults: conflicts only. */
static const struct cr_setup busy = {.nodes = 2, .clients = 4, .ops = 40,
    .work = (1u << CR_WORK_COUNT) - 1};
/* One in flight waits for a node's answers, and the others go on, until the rings of the other node
 * have come round: large values fill them. */
static const struct cr_setup stalls = {.nodes = 2, .clients = 6, .group = 6, .ops = 40,
    .work = WORK(BANK) | WORK(LARGE), .faults = CR_FAULT_STALL, .discipline = true, .rules = true};
/* Nodes die and are back at once, so sessions end and begin. */
static const struct cr_setup sessions = {.nodes = 2, .clients = 4, .ops = 40, .work = WORK(BANK),
    .hazard = {[SIM_NODE] = {.process = 80}}, .faults = CR_FAULT_NODE_PROCESS, .quick = true};
/* A coordinator stops between its records for about as long as a record may stay unmarked. */
static const struct cr_setup pauses = {.nodes = 2, .clients = 3, .ops = 15, .work = WORK(BANK),
    .hazard = {[SIM_CLIENT] = {.pause = 25, .pause_us = 20000}}, .faults = CR_FAULT_PAUSE};
/* Nodes are back before their peers know that they were gone. */
static const struct cr_setup zombies = {.nodes = 2, .clients = 4, .ops = 30,
    .hazard = {[SIM_NODE] = {.process = 60}, [SIM_CLIENT] = {.pause = 4, .pause_us = 60}},
    .faults = CR_FAULT_NODE_PROCESS, .quick = true};
/* Power fails often. */
static const struct cr_setup power = {.nodes = 2, .clients = 4, .ops = 25,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER), .hazard = {[SIM_NODE] = {.power = 100}},
    .faults = CR_FAULT_NODE_POWER, .quick = true};
/* Power fails while coordinators wait for their flushes. */
static const struct cr_setup flushes = {.nodes = 2, .clients = 4, .ops = 30, .work = WORK(BANK),
    .durability = RD_DURABILITY_APM, .mode = SIM_ADR, .prompt = true,
    .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}},
    .faults = CR_FAULT_NODE_POWER, .quick = true};
/* The same, and it is the node's CPU that makes flushes durable. */
static const struct cr_setup by_message = {.nodes = 2, .clients = 4, .ops = 30,
    .durability = RD_DURABILITY_GPSPM, .mode = SIM_ADR_DDIO, .work = WORK(BANK),
    .hazard = {[SIM_NODE] = {.power = 60}, [SIM_CLIENT] = {.pause = 6, .pause_us = 30}},
    .faults = CR_FAULT_NODE_POWER, .quick = true};
/* Nodes and coordinators die: records in doubt at a node that has just started. */
static const struct cr_setup doubts = {.nodes = 2, .clients = 4, .ops = 40,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER),
    .hazard = {[SIM_CLIENT] = {.process = 60}, [SIM_NODE] = {.process = 100}},
    .faults = CR_FAULT_NODE_PROCESS};
/* Coordinators die all the time, nodes are slow. */
static const struct cr_setup slow = {.nodes = 2, .clients = 4, .ops = 40,
    .work = WORK(BANK) | WORK(COUNTER) | WORK(CHURN),
    .hazard = {[SIM_CLIENT] = {.process = 20}, [SIM_NODE] = {.pause = 100, .pause_us = 300}},
    .faults = CR_FAULT_NODE_PROCESS | CR_FAULT_PARTITION};
/* Coordinators die all the time. */
static const struct cr_setup deaths = {.nodes = 1, .clients = 5, .ops = 30, .work = WORK(BANK),
    .hazard = {[SIM_CLIENT] = {.process = 20}}, .faults = CR_FAULT_CLIENT};
/* Values that grow move to other blocks, by coordinators that die with records in flight. */
static const struct cr_setup grants = {.nodes = 2, .clients = 4, .ops = 40, .work = WORK(APPEND),
    .hazard = {[SIM_CLIENT] = {.process = 30}, [SIM_NODE] = {.process = 60}},
    .faults = CR_FAULT_NODE_PROCESS | CR_FAULT_CLIENT};

/* As mixed, and pauses, with the rules asserted as they are kept or broken. */
static const struct cr_setup watched = {.ops = 20, .faults = CR_FAULTS_ALL, .rules = true,
    .discipline = true};
static const struct cr_setup doubtful = {.nodes = 2, .clients = 3, .ops = 15, .work = WORK(BANK),
    .hazard = {[SIM_CLIENT] = {.pause = 25, .pause_us = 20000}}, .faults = CR_FAULT_PAUSE,
    .rules = true, .discipline = true};
/* A node dies when it has just made a tombstone. */
static const struct cr_setup tombs = {.nodes = 2, .clients = 4, .ops = 25,
    .work = WORK(BANK) | WORK(APPEND) | WORK(COUNTER),
    .hazard = {[SIM_CLIENT] = {.pause = 25, .pause_us = 20000}}, .faults = CR_FAULT_NODE_PROCESS,
    .plan = {.role = SIM_NODE, .any_actor = true, .step = CN_STEP_a_tombstone, .occurrence = 1,
        .kind = SIM_CRASH_PROCESS}, .quick = true, .rules = true, .discipline = true};

/* ---- the scripts: a body, and what it needs ---- */

#define SCRIPT_OF(name, n, c)                                                                      \
    static const struct cr_setup name = {.nodes = n, .clients = c, .work = WORK(COUNTER),          \
        .body = cr_script_##name, .rules = true, .discipline = true}
SCRIPT_OF(twins, 1, 2);
SCRIPT_OF(mover, 1, 2);
SCRIPT_OF(holder, 1, 2);
SCRIPT_OF(unmarked, 2, 1);
SCRIPT_OF(gap, 1, 1);
SCRIPT_OF(hole, 1, 1);
SCRIPT_OF(stranger, 2, 1);
static const struct cr_setup killer = {.nodes = 1, .clients = 1, .work = WORK(COUNTER),
    .body = cr_script_killer, .quick = true, .rules = true, .discipline = true};
/* Its mark is no mark of a record: the rule of marks does not hold, and verdicts must. */
static const struct cr_setup mismarked = {.nodes = 2, .clients = 1, .work = WORK(COUNTER),
    .body = cr_script_mismarked, .durability = RD_DURABILITY_APM, .mode = SIM_ADR,
    .discipline = true};
static const struct cr_setup burst = {.nodes = 1, .clients = 1, .work = WORK(COUNTER),
    .body = cr_script_burst, .durability = RD_DURABILITY_APM, .mode = SIM_ADR,
    .lanes = SIM_LANES_MAX, .rules = true, .discipline = true};
static const struct cr_setup relay = {.nodes = 2, .clients = 4, .group = 4, .work = WORK(COUNTER),
    .body = cr_script_relay, .rules = true, .discipline = true};
/* What is forged can never be released: I16 does not hold, and the rest must. */
static const struct cr_setup forger = {.nodes = 1, .clients = 1, .work = WORK(COUNTER),
    .body = cr_script_forger, .rules = true};

/* ---- the aims ---- */

#define SEEDS(name, shape, test)                                                                   \
    {.mutant = CN_MUTANT_##name, .way = CR_WAY_SEEDS, .setup = &shape, .unit = test}
/* Cases `at` to `at` + `n` - 1 of the closed set, at depth `d`. */
#define ENUM(name, at, n, d, test)                                                                 \
    {.mutant = CN_MUTANT_##name, .way = CR_WAY_ENUM, .first = at, .count = n, .depth = d,          \
        .unit = test}
#define DISCIPLINE(name, at, n, test)                                                              \
    {.mutant = CN_MUTANT_##name, .way = CR_WAY_DISCIPLINE, .first = at, .count = n, .unit = test}
#define SCRIPT(name, shape, test)                                                                  \
    {.mutant = CN_MUTANT_##name, .way = CR_WAY_SCRIPT, .setup = &shape, .unit = test}
static const struct cr_aim aims[] = {
    SEEDS(c_log_before_validate, mixed, NULL),
    SEEDS(c_skip_validate, mixed, NULL),
    SEEDS(c_validate_ignores_lock, busy, NULL),
    SEEDS(c_mark_before_flush, flushes, NULL),
    SEEDS(c_ack_before_flush, flushes, NULL),
    SEEDS(c_flush_skipped, flushes, NULL),
    SEEDS(c_flush_first_only, watched, NULL),
    SEEDS(c_unknown_is_aborted, mixed, NULL),
    SEEDS(c_release_unacquired, mixed, NULL),
    SEEDS(c_reuse_send_buffer, mixed, NULL),
    SCRIPT(c_merge_beliefs, twins, TXN),
    SCRIPT(c_skip_absence_recheck, mover, TXN),
    SEEDS(c_reuse_sequence, watched, TXN),
    SCRIPT(c_wait_holding_lock, holder, TXN),
    SCRIPT(c_ring_past_position, burst, TXN),
    SEEDS(c_session_continues, sessions, NULL),
    SCRIPT(c_staging_restarts, relay, NULL),
    SEEDS(c_mark_late, stalls, TXN),
    ENUM(n_apply_unpersisted, 70, 20, 0, PART),
    SEEDS(n_commit_unmarked, doubts, PART),
    DISCIPLINE(n_no_body_fence, 0, 20, PART),
    DISCIPLINE(n_no_applied_fence, 0, 20, PART),
    DISCIPLINE(n_release_before_applied, 0, 20, PART),
    DISCIPLINE(n_no_release_fence, 0, 20, PART),
    SEEDS(n_no_redo_release, power, PART),
    DISCIPLINE(n_publish_before_position, 0, 20, PART),
    SCRIPT(n_mark_unbound, mismarked, NULL),
    SCRIPT(n_position_skips, unmarked, PART),
    SEEDS(n_tombstone_volatile, doubtful, PART),
    SEEDS(n_records_before_tombstones, tombs, PART),
    SEEDS(n_present_volatile, doubtful, REC),
    SCRIPT(n_present_without_txid, stranger, REC),
    SEEDS(n_abort_without_fence, pauses, REC),
    SEEDS(n_silence_aborts, doubts, NULL),
    SEEDS(n_no_fence, pauses, NULL),
    SCRIPT(n_no_gap_tombstones, gap, PART),
    SEEDS(n_no_start_revoke, zombies, NULL),
    SEEDS(n_no_relock, doubts, NULL),
    SEEDS(n_free_words_at_applied, slow, NULL),
    SEEDS(n_reuse_without_scrub, deaths, NULL),
    SEEDS(n_grants_at_fence, grants, NULL),
    SCRIPT(p_flush_changed_only, killer, PM),
    SCRIPT(p_hole_ends_scan, hole, NULL),
    DISCIPLINE(p_version_restarts, 230, 20, PM),
    SCRIPT(p_release_ahead, forger, PM),
    SEEDS(n_auto_apm, by_message, NULL),
    SEEDS(f_answer_unpersisted, by_message, NULL),
};

/* Power failures, and nobody who writes caches back. */
static const struct cr_setup hidden = {.ops = 20, .faults = CR_FAULTS_ALL, .mode = SIM_ADR_DDIO,
    .durability = RD_DURABILITY_APM, .power_at_end = true};
static const struct cr_aim control = {.mutant = CN_MUTANT_none, .way = CR_WAY_SEEDS,
    .setup = &hidden};

const struct cr_aim *cr_aim_at(uint32_t at)
{
    return at < CN_ARRAY_SIZE(aims) ? &aims[at] : NULL;
}

const struct cr_aim *cr_aim_control(void)
{
    return &control;
}

/* ---- names ---- */

const char *cr_mutant_name(int mutant)
{
    return names[mutant];
}

const char *cr_mutant_rule(int mutant)
{
    return rules[mutant];
}

bool cr_mutant_find(const char *name, int *ret_mutant)
{
    for (int m = 0; m < CN_MUTANT_COUNT; m++)
        if (strcmp(names[m], name) == 0) {
            *ret_mutant = m;
            return true;
        }
    return false;
}

bool cr_mutants_built(void)
{
#ifdef CAIRN_MUTANTS
    return true;
#else
    return false;
#endif
}

bool cr_mutant_use(int mutant)
{
#ifdef CAIRN_MUTANTS
    cn_mutant_active = mutant;
    return true;
#else
    (void)mutant;
    return false;
#endif
}

/* ---- kills ---- */

void cr_kill_by_death(const char *how, struct cr_kill *kill)
{
    static const char *const modules[] = {"include/", "pmem/", "rdma/", "txn/", "recovery/"};
    const char *words = strstr(how, "cairn: ");

    memset(kill, 0, sizeof(*kill));
    for (size_t i = 0; words != NULL && i < CN_ARRAY_SIZE(modules); i++)
        kill->killed = kill->killed ||
            (strncmp(words + 7, modules[i], strlen(modules[i])) == 0 &&
                strstr(words, ": assertion failed: ") != NULL);
    kill->lost = !kill->killed;
    (void)snprintf(kill->how, sizeof(kill->how), "%.255s", how);
}

static bool run_setup(const struct cr_aim *aim, int mutant, uint64_t seed, char *failure,
    size_t size, bool *ret_unable)
{
    struct cr_result *r = sim_calloc(1, sizeof(*r));

    (void)cr_mutant_use(mutant);
    cr_cluster_run(aim->setup, seed, r);
    (void)cr_mutant_use(CN_MUTANT_none);
    bool failed = r->failed;
    *ret_unable = r->unable;
    if (failed)
        (void)snprintf(failure, size, "%.*s", (int)size - 1, r->failure);
    sim_free(r);
    return !failed;
}

bool cr_aim_run(const struct cr_aim *aim, int mutant, uint64_t seed, char *failure, size_t size)
{
    bool unable;

    return run_setup(aim, mutant, seed, failure, size, &unable);
}

static void kill_by_seeds(
    const struct cr_aim *aim, uint64_t seeds, uint64_t *beat, struct cr_kill *ret)
{
    char failure[256];

    for (uint64_t seed = 1; seed <= seeds && !ret->killed && !ret->lost; seed++) {
        ret->states++;
        *beat += 1;
        if (run_setup(aim, aim->mutant, seed, failure, sizeof(failure), &ret->lost))
            continue;
        memcpy(ret->how, failure, sizeof(ret->how));
        if (ret->lost)
            break;
        /* Of the control only lost data counts. */
        if (aim == &control && strstr(failure, "lost:") == NULL &&
            strstr(failure, "ledger") == NULL)
            continue;
        ret->killed = true;
        ret->seed = seed;
        ret->unsound = aim != &control &&
            !cr_aim_run(aim, CN_MUTANT_none, seed, failure, sizeof(failure));
    }
}

/* One case; true: it passes. */
static bool run_case(const struct cr_aim *aim, int mutant, uint32_t number, struct cr_kill *ret)
{
    struct cr_enum_options options = {
        .one = true, .only = number, .depth = aim->depth, .seed = 1, .violations_max = 1};
    struct cr_report *report = sim_calloc(1, sizeof(*report));

    cr_report_init(report);
    (void)cr_mutant_use(mutant);
    cr_enum_run(&options, report, NULL);
    (void)cr_mutant_use(CN_MUTANT_none);
    bool passes = report->violations == 0;
    if (passes && report->doubts != 0) {
        ret->lost = true;
        (void)snprintf(ret->how, sizeof(ret->how), "%.255s", report->doubt);
    }
    if (mutant != CN_MUTANT_none) {
        ret->states += aim->way == CR_WAY_ENUM ? report->images_explored : 1;
        if (!passes)
            (void)snprintf(ret->how, sizeof(ret->how), "%.255s", report->failure[0].what);
    }
    sim_free(report);
    return passes;
}

static void kill_by_cases(const struct cr_aim *aim, uint64_t *beat, struct cr_kill *ret)
{
    uint32_t end = aim->first + aim->count;

    for (uint32_t i = aim->first; i < end && !ret->killed && !ret->lost; i++) {
        *beat += 1;
        if (run_case(aim, aim->mutant, i, ret))
            continue;
        ret->killed = true;
        ret->seed = i;
        ret->unsound = !run_case(aim, CN_MUTANT_none, i, ret);
    }
}

void cr_aim_kill(
    const struct cr_aim *aim, uint64_t seeds, uint64_t *beat, struct cr_kill *ret_kill)
{
    uint64_t nobody = 0;

    memset(ret_kill, 0, sizeof(*ret_kill));
    if (beat == NULL)
        beat = &nobody;
    switch (aim->way) {
    case CR_WAY_SEEDS:
    case CR_WAY_SCRIPT: kill_by_seeds(aim, seeds, beat, ret_kill); break;
    case CR_WAY_ENUM:
    case CR_WAY_DISCIPLINE: kill_by_cases(aim, beat, ret_kill); break;
    }
}
