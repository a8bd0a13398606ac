/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_options.c: the options that every load has, before its own.
 */
#include "tools/bench/bn_drive.h"

#define OPTIONS_MAX 40u

static bool is_one_of(const char *text, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(text, *names) == 0)
            return true;
    }
    return false;
}

/* "1,2,4,8". False: malformed, or more than there is room for. */
static bool take_sweep(struct bn_options *o, const char *text)
{
    const char *p = text;

    for (o->point_count = 0; o->point_count < BN_POINTS_MAX;) {
        char *end;
        if (*p < '0' || *p > '9')
            return false;
        unsigned long value = strtoul(p, &end, 10);
        if (value == 0 || value > CAIRN_INFLIGHT_MAX)
            return false;
        o->point[o->point_count++] = (uint32_t)value;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        p = end + 1;
    }
    return false;
}

static int check(const struct tl_command *self, struct bn_options *o)
{
    static const char *const fabrics[] = {
        BN_FABRIC_EMU, BN_FABRIC_EMU_IPC, BN_FABRIC_RPMA, NULL};
    static const char *const modes[] = {"adaptive", "poll", "event", NULL};

    if (!is_one_of(o->fabric, fabrics))
        return tl_error(self, "--fabric: must be emu, emu-ipc or rpma, not \"%.40s\"", o->fabric);
    if (o->completion != NULL && !is_one_of(o->completion, modes))
        return tl_error(self, "--completion: must be adaptive, poll or event, not \"%.40s\"",
            o->completion);
    if (o->config != NULL && (o->address != NULL || o->completion != NULL))
        return tl_error(self,
            "--address and --completion are of a cluster of its own: not with --config");
    if (o->sweep != NULL && !take_sweep(o, o->sweep))
        return tl_error(self,
            "--sweep: must be up to %u numbers from 1 to %u with commas between, as 1,2,4,8, not "
            "\"%.60s\"",
            BN_POINTS_MAX, CAIRN_INFLIGHT_MAX, o->sweep);
    if (o->sweep != NULL && o->inflight != 1)
        return tl_error(self, "--sweep says how many are in flight: not with --inflight");
    if (o->blocking && (o->sweep != NULL || o->inflight != 1))
        return tl_error(self, "--blocking is one transaction at a time: not with --inflight or "
                              "--sweep");
    if (o->virtual_time && o->rtt_us == 0 && o->gbps == 0)
        return tl_error(self, "--virtual skips the time of a modelled network: give --rtt or "
                              "--gbps");
    if ((o->rtt_us != 0 || o->gbps != 0) && strcmp(o->fabric, BN_FABRIC_RPMA) == 0)
        return tl_error(self, "--rtt and --gbps model a network over emulated RDMA: not with "
                              "--fabric rpma");
    if (o->write_back && strcmp(o->fabric, BN_FABRIC_RPMA) == 0)
        return tl_error(self, "--write-back is for emulated RDMA: not with --fabric rpma");
    return -1;
}

static void complete(struct bn_options *o)
{
    if (o->sweep == NULL) {
        o->point[0] = (uint32_t)o->inflight;
        o->point_count = 1;
    }
    for (uint32_t i = 0; i < o->point_count; i++)
        o->inflight_max = o->point[i] > o->inflight_max ? o->point[i] : o->inflight_max;
    o->projection = o->rtt_us != 0 || o->gbps != 0;
}

static const struct bn_options defaults = {.fabric = BN_FABRIC_EMU,
    .threads = 1,
    .inflight = 1,
    .participants = 3,
    .node_threads = 1,
    .cache = 1u << 18,
    .duration_s = 5,
    .warmup_s = 1,
    .seed = 1};

/* The load's own, and those of all. */
static void list(
    const struct bn_load_ops *ops, struct bn_options *o, struct tl_option ret[OPTIONS_MAX])
{
    const struct tl_option common[] = {
        {.name = "threads", .arg = "N", .help = "coordinator threads (default 1)",
            .number = &o->threads, .min = 1, .max = BN_THREADS_MAX},
        {.name = "inflight", .arg = "N",
            .help = "transactions in flight per thread (default 1)", .number = &o->inflight,
            .min = 1, .max = CAIRN_INFLIGHT_MAX},
        {.name = "sweep", .arg = "N,N,...",
            .help = "measure with each of these in flight, in turn", .text = &o->sweep},
        {.name = "blocking", .help = "by cairn_run(), which waits, instead of cairn_run_async()",
            .flag = &o->blocking},
        {.name = "participants", .arg = "N", .help = "nodes (default 3)",
            .number = &o->participants, .min = 1, .max = CAIRN_NODES_MAX},
        {.name = "fabric", .arg = "NAME",
            .help = "emu: nodes are threads of this process; emu-ipc: processes; rpma: processes, "
                    "over RDMA (default emu)",
            .text = &o->fabric},
        {.name = "address", .arg = "IP",
            .help = "rpma: where its nodes listen (default: the only RDMA device's IPv4 address)",
            .text = &o->address},
        {.name = "config", .arg = "FILE",
            .help = "measure on this running cluster, which has the load's tables",
            .text = &o->config},
        {.name = "duration", .arg = "S", .help = "how long to measure (default 5)",
            .number = &o->duration_s, .min = 1, .max = 86400},
        {.name = "warmup", .arg = "S", .help = "how long before that, not counted (default 1)",
            .number = &o->warmup_s, .max = 3600},
        {.name = "transactions", .arg = "N",
            .help = "so many per thread instead of by time, after a tenth to warm up",
            .number = &o->transactions, .min = 1, .max = UINT64_C(1000000000000)},
        {.name = "seed", .arg = "N", .help = "of the transactions drawn (default 1)",
            .number = &o->seed, .max = UINT64_MAX},
        {.name = "rtt", .arg = "US",
            .help = "emu: model a network with this round trip: figures are projections",
            .number = &o->rtt_us, .min = 1, .max = 1000000},
        {.name = "gbps", .arg = "N", .help = "emu: and with this rate, in Gbit/s",
            .number = &o->gbps, .min = 1, .max = 10000},
        {.name = "virtual", .help = "skip the time of the modelled network instead of waiting",
            .flag = &o->virtual_time},
        {.name = "write-back",
            .help = "emu: flushes write cache lines back, as persistent memory needs",
            .flag = &o->write_back},
        {.name = "node-threads", .arg = "N",
            .help = "emu: threads for all nodes together; 0: one each (default 1)",
            .number = &o->node_threads, .max = CAIRN_NODES_MAX},
        {.name = "completion", .arg = "MODE",
            .help = "adaptive, poll or event: how contexts and nodes wait (default adaptive)",
            .text = &o->completion},
        {.name = "cache", .arg = "N", .help = "entries of the location cache (default 262144)",
            .number = &o->cache, .min = 1024, .max = UINT64_C(1) << 28},
        {.name = "svg", .arg = "FILE",
            .help = "draw latencies, and throughput against transactions in flight",
            .text = &o->svg},
        {.name = "check", .help = "exit 1 if a target of the load is missed", .flag = &o->check},
        {.name = "verbose", .help = "log everything", .flag = &o->verbose},
        {.name = "json", .help = "print one JSON object", .flag = &o->json},
    };
    uint32_t count = 0;

    CAIRN_ASSERT(CN_ARRAY_SIZE(common) + ops->option_count < OPTIONS_MAX);
    for (uint32_t i = 0; i < ops->option_count && ops->options[i].name != NULL; i++)
        ret[count++] = ops->options[i];
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(common); i++)
        ret[count++] = common[i];
}

int bn_options_parse(const struct tl_command *self, const struct bn_load_ops *ops, int argc,
    char **argv, struct bn_options *o)
{
    struct tl_option all[OPTIONS_MAX] = {{0}};
    int first;

    *o = defaults;
    list(ops, o, all);
    int rc = tl_parse(self, all, argc, argv, 0, 0, &first);
    if (rc == -1)
        rc = check(self, o);
    if (rc == -1)
        complete(o);
    return rc;
}
