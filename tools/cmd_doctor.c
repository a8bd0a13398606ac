/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_doctor.c: `cairn doctor`: what this host (or a captured tree of another) shows of RDMA and
 * persistent memory, what is wrong with it, why that matters, and the command that mends it.
 */
#include <errno.h>
#include <inttypes.h>

#include "tools/dr.h"

/* Only warnings: everything works, but not as it should. Told apart from errors (TL_BAD) and from
 * wrong usage (TL_USAGE). */
#define EXIT_WARNINGS 3

static int exit_of(const struct dr_report *report)
{
    switch (dr_report_worst(report)) {
    case DR_OK:
    case DR_NOTE: return TL_OK;
    case DR_WARNING: return EXIT_WARNINGS;
    case DR_ERROR: return TL_BAD;
    }
    return TL_BAD;
}

static int examine(
    const struct tl_command *self, const struct dr_options *options, bool json, bool all)
{
    struct dr_facts *facts = NULL;
    int rc = dr_facts_read(options, &facts);

    if (rc != 0)
        return tl_cairn_error(self, rc, json);
    if (options->pid != 0 && facts->host.memlock_known != DR_YES) {
        dr_facts_free(&facts);
        return tl_cairn_error(self, cn_fail(-ESRCH, "--pid: the limits of process %" PRIu64
            " cannot be read; does it run?", options->pid), json);
    }
    struct dr_report *report = calloc(1, sizeof(*report));
    if (report == NULL) {
        dr_facts_free(&facts);
        return tl_cairn_error(self, cn_fail(-ENOMEM, "no memory for the report"), json);
    }
    dr_rules_run(facts, report);
    if (json)
        tl_json_print(dr_json(facts, report));
    else
        dr_print(facts, report, all);
    rc = exit_of(report);
    free(report);
    dr_facts_free(&facts);
    return rc;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct dr_options o = {.root = NULL};
    bool json = false, all = false;
    const struct tl_option options[] = {
        {.name = "config",
            .arg = "FILE",
            .help = "look at the pools of this configuration too, and at what its nodes need",
            .text = &o.config},
        {.name = "id",
            .arg = "N",
            .help = "with --config: only this node",
            .number = &o.node,
            .min = 1,
            .max = UINT16_MAX},
        {.name = "device", .arg = "NAME", .help = "only this RDMA device", .text = &o.device},
        {.name = "pid",
            .arg = "PID",
            .help = "the limits of this process, not of this program",
            .number = &o.pid,
            .min = 1,
            .max = INT32_MAX},
        {.name = "root",
            .arg = "DIR",
            .help = "examine a captured tree (files only: no verbs, no system calls)",
            .text = &o.root},
        {.name = "all", .help = "say too what is right", .flag = &all},
        {.name = "json", .help = "print one JSON object with stable keys", .flag = &json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (o.node != 0 && o.config == NULL)
        return tl_error(self, "--id is for --config; try `cairn doctor --help`");
    cn_env_system_log_level(CN_LOG_ERROR);
    return examine(self, &o, json, all);
}

const struct tl_command cmd_doctor = {
    .name = "doctor",
    .args = "[--config FILE [--id N]] [--device NAME] [--pid PID] [--root DIR] [--all] [--json]",
    .summary = "Say what is wrong with RDMA and persistent memory here, and what mends it.",
    .example = "  cairn doctor --config /etc/bank/cairn.conf --id 1\n"
               "  (worst first; exit 1: an error was found, 3: only warnings, 0: notes at most)\n",
    .run = run,
};
