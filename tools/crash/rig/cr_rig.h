/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig.h: the second rig: the workloads and checks of the harness over real processes. Nodes are
 * processes of `cairn`, coordinators processes of `cairn-crash-client`, which is linked with the
 * library as it ships; they are killed (SIGKILL) and stopped (SIGSTOP) at drawn moments and started
 * again. It finds what the modelled fabric and memory cannot show, and cannot be replayed: the seed
 * gives the workload's choices, the victims and the kinds of faults, the machine the moments.
 *
 *   cr_rig.c          starts, kills, heals, checks
 *   cr_rig_shared.c   the memory that all clients map: states, ledger, logs
 *   cr_rig_history.c  from the logs to histories, and their verdicts
 *   cr_rig_client.c   the program of a coordinator
 */
#ifndef CR_RIG_H
#define CR_RIG_H

#include "tools/crash/tell/cr_report.h"

struct cr_rig_options {
    const char *workload; /* as for --workload */
    const char *fabric, *address, *persistence; /* NULL: emu and its defaults */
    uint32_t nodes, clients; /* 0: 3 and 4 */
    uint64_t seed;
    double seconds;    /* under faults */
    int mutant;        /* of the coordinators (cn_mutant.h); 0: none */
    bool no_faults;
    const char *history; /* folder for history.edn and history.json of each part; NULL: none */
    bool keep;         /* leave the folder with pools and logs; also after a violation */
    bool verbose;      /* tell each fault on stderr */
};
/*
 * Run, and add to what cr_report_init() has made of `report`. Errors (nothing can be said of the
 * product): those of making the cluster, -ENOENT (a program is missing), CAIRN_E_CONFIG, -ENOSPC,
 * -EINTR. What is wrong with the product is a violation of the report, and no error.
 */
CN_MUST_CHECK int cr_rig_run(const struct cr_rig_options *options, struct cr_report *report);

#endif
