/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_bench.c: `cairn bench`: finds the sub-benchmark.
 */
#include "tools/bench/bn.h"
#include "tools/bench/bn_drive.h"

struct bench {
    const char *name;
    const struct tl_command *command;
};

static const struct bench benches[] = {
    {"rtt", &bn_rtt},
    {"recovery", &bn_recovery},
    {"check", &bn_check},
};

static const struct bn_load_ops *const loads[] = {
    &bn_micro, &bn_ycsb, &bn_smallbank, &bn_tatp, &bn_tpcc, &bn_counter};

static void print_usage(FILE *to)
{
    fprintf(to, "Usage: cairn bench BENCHMARK [OPTION...]\n\n%s\n\nBenchmarks:\n",
        cmd_bench.summary);
    for (size_t i = 0; i < CN_ARRAY_SIZE(benches); i++)
        fprintf(to, "  %-9s %s\n", benches[i].name, benches[i].command->summary);
    for (size_t i = 0; i < CN_ARRAY_SIZE(loads); i++)
        fprintf(to, "  %-9s %s\n", loads[i]->name, loads[i]->summary);
    fprintf(to,
        "\nExample:\n%s\nTry `cairn bench BENCHMARK --help` for its options.\n"
        "Exit: 0 good, 1 the answer is bad, 2 wrong usage or environment.\n",
        cmd_bench.example);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return TL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return TL_OK;
    }
    for (size_t i = 0; i < CN_ARRAY_SIZE(benches); i++) {
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].command->run(benches[i].command, argc - 1, argv + 1);
    }
    for (size_t i = 0; i < CN_ARRAY_SIZE(loads); i++) {
        if (strcmp(argv[1], loads[i]->name) == 0)
            return bn_drive(loads[i], argc - 1, argv + 1);
    }
    print_usage(stderr);
    return argv[1][0] == '-' ? tl_error(self, "%.40s: no such option", argv[1])
                             : tl_error(self, "no benchmark \"%.40s\"", argv[1]);
}

const struct tl_command cmd_bench = {
    .name = "bench",
    .args = "BENCHMARK [OPTION...]",
    .summary = "Measure: round trips, loads, throughput against transactions in flight.",
    .example = "  cairn bench rtt --seconds 3\n"
               "  cairn bench micro --threads 2 --inflight 16 --json\n",
    .run = run,
};
