/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_micro.c: the load `micro`: transactions of so many reads, writes and inserts over one table;
 * the default, two updates, is a transfer. What is read, for update or not, is read in one round
 * trip.
 */
#include "tools/bench/bn_cells.h"

enum { KIND_READ_WRITE, KIND_READ_ONLY };

static uint64_t reads, writes = 2, inserts, keys = 100000, value_size = 16, read_share;
static const char *skew = "0";
static bool blind, spread;

static const struct tl_option options[] = {
    {.name = "reads", .arg = "N", .help = "keys only read, per transaction (default 0)",
        .number = &reads, .max = BN_TOUCHES_MAX},
    {.name = "writes", .arg = "N", .help = "keys read for update and written (default 2)",
        .number = &writes, .max = BN_TOUCHES_MAX},
    {.name = "blind", .help = "write without reading", .flag = &blind},
    {.name = "inserts", .arg = "N", .help = "new keys (default 0)", .number = &inserts,
        .max = BN_TOUCHES_MAX},
    {.name = "read-share", .arg = "PERCENT",
        .help = "of transactions that only read, as many keys (default 0)", .number = &read_share,
        .max = 100},
    {.name = "keys", .arg = "N", .help = "in the table (default 100000)", .number = &keys,
        .min = 1, .max = UINT64_C(1) << 32},
    {.name = "skew", .arg = "THETA", .help = "of the Zipf distribution of keys (default 0: none)",
        .text = &skew},
    {.name = "value-size", .arg = "BYTES", .help = "16 to 65536 (default 16: items of 64 bytes)",
        .number = &value_size, .min = BN_CELL_VALUE_MIN, .max = CAIRN_VALUE_SIZE_MAX},
    {.name = "spread", .help = "keys of a transaction lie on participants in turn",
        .flag = &spread},
};

/* Many in flight hide a network's round trips. */
static const struct bn_target targets[] = {
    {.figure = "sweep_gain", .fabric = "emu", .value = 20, .rtt_us = 2},
};

static int setup(struct bn_load *load)
{
    struct bn_cells *cells = &((struct bn_cells_load *)(void *)load)->cells;
    uint64_t touches = reads + writes + inserts;
    double theta;

    if (!bn_parse_theta(skew, &theta))
        return cn_fail(
            CAIRN_E_CONFIG, "--skew: must be a number from 0 to 10, not \"%.40s\"", skew);
    if (touches == 0 || touches > BN_TOUCHES_MAX)
        return cn_fail(CAIRN_E_CONFIG,
            "--reads, --writes and --inserts: 1 to %u keys per transaction, not %llu",
            BN_TOUCHES_MAX, (unsigned long long)touches);
    if (read_share != 0 && reads + writes == 0)
        return cn_fail(CAIRN_E_CONFIG, "--read-share: nothing to read; give --reads or --writes");
    if (keys < 16 * (reads + writes) * (spread ? load->participants : 1))
        return cn_fail(CAIRN_E_CONFIG, "--keys: too few for distinct keys in each transaction: at "
                                       "least 16 times as many%s",
            spread ? ", times participants" : "");
    *cells = (struct bn_cells){.value_size = (uint32_t)value_size,
        .keys = keys,
        .touches_max = (uint32_t)touches,
        .counted = !blind,
        .placed = spread};
    bn_zipf_init(&cells->zipf, keys, theta);
    return 0;
}

/* Inserts are as many as room is made for; when that is full, the pool says so. */
static uint64_t bytes(const struct bn_load *load)
{
    const uint64_t room = UINT64_C(2000000);

    return bn_cells_bytes(&((const struct bn_cells_load *)(const void *)load)->cells,
        inserts == 0 ? 0 : room * load->threads);
}

static uint32_t draw(struct bn_load *load, void *worker, uint64_t *random, void *slot)
{
    struct bn_touches *t = slot;
    bool read_only = read_share != 0 && bn_below(random, 100) < read_share;
    enum bn_touch_how how = read_only ? BN_TOUCH_READ : blind ? BN_TOUCH_BLIND : BN_TOUCH_UPDATE;
    uint32_t shard = spread ? (uint32_t)bn_below(random, load->participants) : BN_ANY_SHARD;

    bn_cells_begin(load, worker, t);
    for (uint32_t i = 0; i < writes + reads; i++) {
        bn_cells_touch(worker, random, t, i < writes ? how : BN_TOUCH_READ, shard);
        if (spread)
            shard = (shard + 1) % load->participants;
    }
    for (uint32_t i = 0; i < inserts && !read_only; i++)
        bn_cells_touch(worker, random, t, BN_TOUCH_INSERT, BN_ANY_SHARD);
    return read_only || writes + inserts == 0 ? KIND_READ_ONLY : KIND_READ_WRITE;
}

const struct bn_load_ops bn_micro = {
    .name = "micro",
    .summary = "Transactions of so many reads, writes and inserts, with skew and value size.",
    .example = "  cairn bench micro --writes 2 --participants 2 --spread\n"
               "  cairn bench micro --reads 1 --writes 0 --sweep 1,4,16,64 --svg micro.svg\n",
    .tables = {"micro"},
    .kinds = {"read_write", "read_only"},
    .size = sizeof(struct bn_cells_load),
    .options = options,
    .option_count = CN_ARRAY_SIZE(options),
    .setup = setup,
    .bytes = bytes,
    .draw = draw,
    BN_CELLS_OPS,
    .targets = targets,
    .target_count = CN_ARRAY_SIZE(targets),
};
