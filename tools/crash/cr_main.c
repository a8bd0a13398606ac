/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_main.c: the program `cairn-crash`, which `cairn crash` starts; finds the subcommand. Built a
 * second time as `cairn-crash-mutants`, with mutants compiled in, and a third time as
 * `cairn-crash-closed`, which sees what recovery reads (cr_watch.h).
 */
#include <errno.h>
#include <signal.h>

#include "tools/crash/cr_args.h"

static const struct tl_command *const commands[] = {&cr_cmd_run, &cr_cmd_enum, &cr_cmd_faults,
    &cr_cmd_litmus, &cr_cmd_replay, &cr_cmd_shrink, &cr_cmd_points, &cr_cmd_mutants, &cr_cmd_rig};

static const struct tl_command crash = {.name = "crash", .args = "[COMMAND] [OPTION...]"};

static void print_usage(FILE *to)
{
    fprintf(to,
        "Usage: cairn crash [COMMAND] [OPTION...]\n\n"
        "Crash a whole cluster in one process, anywhere, recover it, and check what must hold.\n"
        "No hardware, no root. Without a command: run, with a verdict in less than a minute.\n\n"
        "Commands:\n");
    for (size_t i = 0; i < CN_ARRAY_SIZE(commands); i++) {
        const char *name = strchr(commands[i]->name, ' ') + 1;
        fprintf(to, "  %-9s %s\n", name, commands[i]->summary);
    }
    fprintf(to,
        "\nExample:\n  cairn crash\n"
        "  cairn crash run --workload ./shop.so --time 10m --keep tapes\n"
        "\nTry `cairn crash COMMAND --help` for options and an example.\n"
        "Exit: 0 pass, 1 violation, 2 inconclusive, wrong usage or environment.\n");
}

static int finish(int status)
{
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || errno == EPIPE) /* who reads has enough */
        return status;
    fprintf(stderr, "cairn crash: cannot write the output: %s\n", strerror(errno));
    return TL_USAGE;
}

int main(int argc, char **argv)
{
    tl_guard_descriptors();
    (void)signal(SIGPIPE, SIG_IGN);
    cr_args_keep(argc, argv);
    cn_env_system_log_level(CN_LOG_ERROR);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                        strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return finish(TL_OK);
    }
    if (argc < 2 || argv[1][0] == '-')
        return finish(cr_cmd_run.run(&cr_cmd_run, argc, argv));
    for (size_t i = 0; i < CN_ARRAY_SIZE(commands); i++)
        if (strcmp(strchr(commands[i]->name, ' ') + 1, argv[1]) == 0)
            return finish(commands[i]->run(commands[i], argc - 1, argv + 1));
    print_usage(stderr);
    return tl_error(&crash, "no command \"%.40s\"", argv[1]);
}
