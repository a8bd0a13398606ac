/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_campaign.h: what `cairn crash run` does, in worker processes: every crash point, a slice of
 * the closed set and of the faults beyond crashes, then seeds of whole clusters. The sum is the
 * same for any number of workers.
 */
#ifndef CR_CAMPAIGN_H
#define CR_CAMPAIGN_H

#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/campaign/cr_jobs.h"
#include "tools/crash/tell/cr_report.h"

struct cr_campaign {
    struct cr_setup setup; /* of the seeds */
    const char *workload;  /* as the user named it; NULL: mixed */
    const char *mutant;    /* NULL: none */
    const char *build;
    uint64_t seed, seeds;  /* seeds 0: as many as the time allows */
    double seconds;        /* 0: no limit */
    uint32_t jobs;
    uint32_t depth;        /* of the closed set's nested crashes */
    bool points;           /* every crash point, and it is a doubt when one is not reached */
    bool closed_set;       /* a slice of it */
    bool fault_cases;      /* a slice of faults beyond crashes: cr_faults.h */
    bool keep_going;       /* after a violation */
    bool quiet;            /* no progress */
    const char *keep;      /* folder for tapes of failing runs; NULL: none */
    bool interrupted;      /* out */
};

/* The shape of a run, unless something says otherwise: operations of each client, all faults, and
 * the rules of the protocol asserted as they are kept or broken. */
#define CR_CAMPAIGN_SETUP {.ops = 20, .faults = CR_FAULTS_ALL, .rules = true}

/* Adds to *report, which is initialised, and closes it. Errors: those of cr_jobs_run(). */
CN_MUST_CHECK int cr_campaign_run(struct cr_campaign *campaign, struct cr_report *report);
/* Only the points; `seeds` tries of each: for their list. */
CN_MUST_CHECK int cr_campaign_points(struct cr_campaign *campaign, struct cr_report *report);
/* The shape of a run that failed, with the campaign's workload. False: that was no run of a
 * cluster. */
bool cr_campaign_failing(const struct cr_campaign *campaign, const struct cr_failure *failure,
    struct cr_setup *ret_setup);
/* What a run adds to a report, without what is said of failures. */
void cr_campaign_account(const struct cr_result *result, struct cr_report *report);
/* The command that shows a run again. Returns `text`. */
const char *cr_campaign_replay(const struct cr_campaign *campaign, const struct cr_setup *setup,
    uint64_t seed, char text[CR_TEXT_MAX]);

#endif
