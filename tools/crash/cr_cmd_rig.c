/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cmd_rig.c: `cairn crash rig`: the workloads over real processes, killed and stopped.
 */
#include <inttypes.h>
#include <sys/stat.h>

#include "tools/crash/campaign/cr_mutants.h"
#include "tools/crash/cr_answer.h"
#include "tools/crash/rig/cr_rig.h"
#include "tools/crash/rig/cr_rig_shared.h"
#include "tools/tl_cluster.h"

#define DEFAULT_SECONDS 20

struct rig_args {
    struct cr_args common;
    const char *fabric, *address, *persistence, *history;
    uint64_t nodes, clients;
    int mutant;
    bool no_faults, keep;
};

static void say_again(const struct rig_args *p, char text[CR_TEXT_MAX])
{
    const struct cr_args *a = &p->common;

    (void)snprintf(text, CR_TEXT_MAX,
        "cairn crash rig --workload %s --seed %" PRIu64 " --time %g%s%s%s%s", a->workload, a->seed,
        a->seconds, p->fabric != NULL ? " --fabric " : "", p->fabric != NULL ? p->fabric : "",
        a->mutant != NULL ? " --mutant " : "", a->mutant != NULL ? a->mutant : "");
}

static int run_rig(const struct tl_command *self, const struct rig_args *p)
{
    const struct cr_args *a = &p->common;
    struct cr_rig_options options = {.workload = a->workload, .fabric = p->fabric,
        .address = p->address, .persistence = p->persistence, .nodes = (uint32_t)p->nodes,
        .clients = (uint32_t)p->clients, .seed = a->seed, .seconds = a->seconds,
        .mutant = p->mutant, .no_faults = p->no_faults, .history = p->history, .keep = p->keep,
        .verbose = a->verbose};
    struct cr_report *report = malloc(sizeof(*report));
    char again[CR_TEXT_MAX];

    if (report == NULL)
        return tl_error(self, "no memory");
    say_again(p, again);
    cr_answer_begin(a, "processes", again);
    cr_report_init(report);
    report->seed = a->seed;
    tl_catch_signals();
    int rc = cr_rig_run(&options, report);
    if (rc == 0)
        rc = cr_answer_report(self, a, report, NULL, again);
    else
        rc = tl_cairn_error(self, rc, a->json);
    free(report);
    return rc;
}

static int check(const struct tl_command *self, struct rig_args *p)
{
    const struct cairn_workload *part[RIG_PARTS_MAX];
    struct stat st;
    uint32_t count;

    if (p->history != NULL && (stat(p->history, &st) != 0 || !S_ISDIR(st.st_mode)))
        return tl_error(self, "--history: %s is not a folder", p->history);
    if (p->common.mutant != NULL && !cr_mutant_find(p->common.mutant, &p->mutant))
        return tl_error(self,
            "--mutant: no mutant \"%.40s\"; `cairn crash mutants --list` lists them",
            p->common.mutant);
    if (p->mutant != 0 && strncmp(p->common.mutant, "c_", 2) != 0)
        return tl_error(self,
            "--mutant: only rules of coordinators (c_...) can be broken here: nodes are `cairn "
            "node` as it ships");
    return rig_parts(p->common.workload, part, &count) == 0
        ? -1
        : tl_error(self, "--workload: %s", cairn_last_error());
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct rig_args p = {.common = {.workload = "mixed"}, .nodes = 3, .clients = 4};
    const struct tl_option options[] = {
        {.name = "seed", .arg = "N", .help = "of choices and victims (default 1)",
            .text = &p.common.seed_text},
        {.name = "time", .arg = "T", .help = "under faults: 20, 90s, 10m (default 20)",
            .text = &p.common.time_text},
        {.name = "workload", .arg = "NAME|FILE.so", .help = "what coordinators do (default mixed)",
            .text = &p.common.workload},
        {.name = "nodes", .arg = "N", .help = "participants (default 3)", .number = &p.nodes,
            .min = 1, .max = TL_NODES_MAX},
        {.name = "clients", .arg = "N", .help = "coordinators (default 4)", .number = &p.clients,
            .min = 1, .max = RIG_CLIENTS_MAX},
        {.name = "fabric", .arg = "NAME", .help = "emu (default) or rpma", .text = &p.fabric},
        {.name = "address", .arg = "IP", .help = "of rpma: where the nodes listen",
            .text = &p.address},
        {.name = "persistence", .arg = "MODE", .help = "of the nodes, as in the configuration",
            .text = &p.persistence},
        CR_OPTION_MUTANT(p.common),
        {.name = "no-faults", .help = "kill and stop nobody", .flag = &p.no_faults},
        {.name = "history", .arg = "DIR", .help = "write histories there, for elle-cli",
            .text = &p.history},
        {.name = "keep", .help = "keep pools and logs (kept after a violation too)",
            .flag = &p.keep},
        {.name = "verbose", .help = "tell each fault", .flag = &p.common.verbose},
        CR_OPTION_JSON(p.common),
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc == -1)
        rc = cr_args_check(self, &p.common);
    if (rc == -1)
        rc = check(self, &p);
    if (rc != -1)
        return rc;
    if (p.common.seconds == 0)
        p.common.seconds = DEFAULT_SECONDS;
    return run_rig(self, &p);
}

const struct tl_command cr_cmd_rig = {
    .name = "crash rig",
    .args = "[--workload NAME] [--time T] [OPTION...]",
    .summary = "The same workloads and checks over real processes: SIGKILL and SIGSTOP.",
    .example = "  cairn crash rig --workload bank --time 30 --verbose\n"
               "  (exit 0: nothing lost or torn; the moments are the machine's: no replay)\n",
    .run = run,
};
