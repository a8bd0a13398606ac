/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_version.c: `cairn version`: of the program, and of the formats it reads and speaks.
 */
#include "pmem/pm_layout.h"
#include "rdma/rd_wire.h"
#include "tools/tl.h"

static int run(const struct tl_command *self, int argc, char **argv)
{
    bool json = false;
    const struct tl_option options[] = {
        {.name = "json", .help = "print one JSON object", .flag = &json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (json)
        tl_json_print(json_pack("{s:s, s:i, s:i}", "version", cairn_version(), "layout_version",
            (int)PM_LAYOUT_VERSION, "wire_version", (int)RD_WIRE_VERSION));
    else
        printf("cairn %s (pool layout %u, wire format %u)\n", cairn_version(), PM_LAYOUT_VERSION,
            RD_WIRE_VERSION);
    return TL_OK;
}

const struct tl_command cmd_version = {
    .name = "version",
    .args = "[--json]",
    .summary = "Print the version of the program and of its formats.",
    .example = "  cairn version\n",
    .run = run,
};
