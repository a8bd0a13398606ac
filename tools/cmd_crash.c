/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_crash.c: `cairn crash`: goes on as the program `cairn-crash`, which has the simulated cluster
 * in it: beside this program in a build tree, in libexec/cairn of an installation.
 */
#include <errno.h>
#include <unistd.h>

#include "tools/tl_proc.h"

static int run(const struct tl_command *self, int argc, char **argv)
{
    char path[TL_PATH_MAX];

    (void)argc;
    if (tl_program_find("cairn-crash", path) != 0)
        return tl_error(self, "%s", cairn_last_error());
    (void)execv(path, argv);
    return tl_error(self, "cannot run %s: %s", path, strerror(errno));
}

const struct tl_command cmd_crash = {
    .name = "crash",
    .args = "[COMMAND] [OPTION...]",
    .summary = "Crash a whole simulated cluster everywhere; check what must hold.",
    .example = "  cairn crash\n",
    .run = run,
};
