/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_ycsb.c: the load `ycsb`: the core workloads A, B, C and F of the Yahoo! Cloud Serving
 * Benchmark (Cooper et al., SoCC 2010), several operations to a transaction, over scrambled Zipf
 * keys. An update writes the whole record without reading it (the specification's writes one of its
 * fields); a read-modify-write reads it for update. What a transaction reads, it reads in one round
 * trip.
 *
 * Not D (its distribution follows the latest insert) and not E (scans): there is no ordered index.
 */
#include "tools/bench/bn_cells.h"

enum { KIND_READ_ONLY, KIND_UPDATE };

struct mix {
    char name;
    uint32_t read_percent;
    enum bn_touch_how write;
};
static const struct mix mixes[] = {{'A', 50, BN_TOUCH_BLIND}, {'B', 95, BN_TOUCH_BLIND},
    {'C', 100, BN_TOUCH_BLIND}, {'F', 50, BN_TOUCH_UPDATE}};

static uint64_t ops = 4, keys = 100000, value_size = 1000;
static const char *workload = "A", *skew = "0.99";

static const struct tl_option options[] = {
    {.name = "workload", .arg = "NAME",
        .help = "A: half updates; B: 5 % updates; C: reads; F: half read-modify-writes (default A)",
        .text = &workload},
    {.name = "ops", .arg = "N", .help = "operations per transaction (default 4)", .number = &ops,
        .min = 1, .max = BN_TOUCHES_MAX},
    {.name = "keys", .arg = "N", .help = "records (default 100000)", .number = &keys, .min = 1,
        .max = UINT64_C(1) << 32},
    {.name = "skew", .arg = "THETA", .help = "of the Zipf distribution of keys (default 0.99)",
        .text = &skew},
    {.name = "value-size", .arg = "BYTES", .help = "of a record, 16 to 65536 (default 1000)",
        .number = &value_size, .min = BN_CELL_VALUE_MIN, .max = CAIRN_VALUE_SIZE_MAX},
};

struct ycsb {
    struct bn_cells_load base;
    const struct mix *mix;
};

static const struct mix *find_mix(const char *name)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(mixes); i++) {
        if ((name[0] & ~0x20) == mixes[i].name && name[1] == '\0')
            return &mixes[i];
    }
    return NULL;
}

static int setup(struct bn_load *load)
{
    struct ycsb *y = (struct ycsb *)(void *)load;
    double theta;

    y->mix = find_mix(workload);
    if (y->mix == NULL)
        return cn_fail(CAIRN_E_CONFIG,
            "--workload: must be A, B, C or F, not \"%.40s\" (D and E need an ordered index)",
            workload);
    if (!bn_parse_theta(skew, &theta))
        return cn_fail(
            CAIRN_E_CONFIG, "--skew: must be a number from 0 to 10, not \"%.40s\"", skew);
    if (keys < 16 * ops)
        return cn_fail(CAIRN_E_CONFIG,
            "--keys: too few for distinct keys in each transaction: at least 16 times --ops");
    y->base.cells = (struct bn_cells){.value_size = (uint32_t)value_size,
        .keys = keys,
        .touches_max = (uint32_t)ops,
        .counted = y->mix->write == BN_TOUCH_UPDATE};
    bn_zipf_init(&y->base.cells.zipf, keys, theta);
    return 0;
}

static uint64_t bytes(const struct bn_load *load)
{
    return bn_cells_bytes(&((const struct bn_cells_load *)(const void *)load)->cells, 0);
}

static uint32_t draw(struct bn_load *load, void *worker, uint64_t *random, void *slot)
{
    const struct mix *mix = ((const struct ycsb *)(const void *)load)->mix;
    struct bn_touches *t = slot;
    bool read_only = true;

    bn_cells_begin(load, worker, t);
    for (uint32_t i = 0; i < ops; i++) {
        bool read = bn_below(random, 100) < mix->read_percent;
        read_only = read_only && read;
        bn_cells_touch(worker, random, t, read ? BN_TOUCH_READ : mix->write, BN_ANY_SHARD);
    }
    return read_only ? KIND_READ_ONLY : KIND_UPDATE;
}

const struct bn_load_ops bn_ycsb = {
    .name = "ycsb",
    .summary = "The core workloads A, B, C and F of YCSB, several operations to a transaction.",
    .example = "  cairn bench ycsb --workload B --ops 1 --value-size 100\n"
               "  cairn bench ycsb --workload F --inflight 16 --json | jq .throughput\n",
    .tables = {"ycsb"},
    .kinds = {"read_only", "update"},
    .size = sizeof(struct ycsb),
    .options = options,
    .option_count = CN_ARRAY_SIZE(options),
    .setup = setup,
    .bytes = bytes,
    .draw = draw,
    BN_CELLS_OPS,
};
