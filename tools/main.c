/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c: the program `cairn`: finds the subcommand.
 */
#include <errno.h>
#include <signal.h>

#include "tools/tl.h"

static const struct tl_command *const commands[] = {&cmd_init, &cmd_node, &cmd_recover,
    &cmd_inspect, &cmd_doctor, &cmd_resolve, &cmd_get, &cmd_put, &cmd_delete, &cmd_demo,
    &cmd_bench, &cmd_crash, &cmd_version, &cmd_demo_worker};

static void print_usage(FILE *to)
{
    fprintf(to,
        "Usage: cairn COMMAND [OPTION...]\n\n"
        "Distributed transactions on remote persistent memory.\n\nCommands:\n");
    for (size_t i = 0; i < CN_ARRAY_SIZE(commands); i++) {
        if (!commands[i]->hidden)
            fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(to, "\nTry `cairn demo`, or `cairn COMMAND --help` for options and an example.\n");
}

/* An answer that could not be written is no answer. */
static int finish(int status)
{
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || errno == EPIPE) /* who reads has enough */
        return status;
    fprintf(stderr, "cairn: cannot write the output: %s\n", strerror(errno));
    return TL_USAGE;
}

int main(int argc, char **argv)
{
    tl_guard_descriptors();
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return TL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return TL_OK;
    }
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (size_t i = 0; i < CN_ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return finish(commands[i]->run(commands[i], argc - 1, argv + 1));
    }
    fprintf(stderr, "cairn: no command \"%s\"\n\n", argv[1]);
    print_usage(stderr);
    return TL_USAGE;
}
