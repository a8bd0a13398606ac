/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_mutants.h: how each mutant (cn_mutant.h) is to be killed. An aim is a mutant, a way to run and
 * a shape of the runs; a mutant may have several. In a program without CAIRN_MUTANTS the table can
 * be read, and nothing can be switched on.
 */
#ifndef CR_MUTANTS_H
#define CR_MUTANTS_H

#include "include/internal/cn_mutant.h"
#include "tools/crash/cluster/cr_cluster.h"

enum cr_way {
    CR_WAY_SEEDS,      /* runs of a whole cluster; states are seeds */
    CR_WAY_ENUM,       /* the closed set with its images; states are images */
    CR_WAY_DISCIPLINE, /* the closed set, no crash needed; states are cases */
    CR_WAY_SCRIPT,     /* as SEEDS, with a script of the clients (cr_scripts.h) */
};

struct cr_aim {
    int mutant;
    enum cr_way way;
    const struct cr_setup *setup; /* SEEDS, SCRIPT */
    /* ENUM, DISCIPLINE: cases first .. first + count - 1 */
    uint32_t first, count, depth;
    const char *unit; /* a unit test that notices too; NULL: none */
};

#define CR_AIM_STATES 150u         /* seeds: a mutant that needs more is not shown well enough */
#define CR_CONTROL_STATES 2000u

struct cr_kill {
    bool killed;
    bool unsound;    /* the same run fails with the rule in force: that is no kill */
    bool lost;       /* the harness failed, `how`: nobody knows whether it would be noticed */
    uint64_t states; /* it took, or were run in vain */
    uint64_t seed;   /* of the killing run */
    char how[256];
};

/* NULL: there are no more. */
const struct cr_aim *cr_aim_at(uint32_t at);
/* The positive control: the one-sided method where caches hide what it writes must lose data. */
const struct cr_aim *cr_aim_control(void);
/* One run of way SEEDS with the mutant on, or CN_MUTANT_none. True: it passes. */
bool cr_aim_run(const struct cr_aim *aim, int mutant, uint64_t seed, char *failure, size_t size);
/* Up to `seeds` runs; `beat` (may be NULL) is raised with each. */
void cr_aim_kill(
    const struct cr_aim *aim, uint64_t seeds, uint64_t *beat, struct cr_kill *ret_kill);

/* A process that ran it has died, `how` as of cr_jobs.died. An assertion of the product that speaks
 * is a bug that was noticed; anything else is a failure of the harness, or of the machine. */
void cr_kill_by_death(const char *how, struct cr_kill *ret_kill);

const char *cr_mutant_name(int mutant);
const char *cr_mutant_rule(int mutant);
/* False: no such. */
bool cr_mutant_find(const char *name, int *ret_mutant);
/* Break this rule (or none) from now on. False: not in this program. */
bool cr_mutant_use(int mutant);
bool cr_mutants_built(void);

#endif
