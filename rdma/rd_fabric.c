/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_fabric.c: the list of fabrics by name, and the accounting of live objects over all of them.
 */
#include "rdma/rd.h"
#include "rdma/rd_emu.h"
#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

static uint64_t live_counts[RD_LIVE_KIND_COUNT]; /* atomic */

struct fabric_entry {
    const char *name;
    int (*open)(const struct rd_fabric_config *config, struct rd_fabric **ret_fabric);
};

static const struct fabric_entry fabrics[] = {
    {"emu", rd_emu_fabric_new},
    {"rpma", rd_rpma_fabric_new},
};

const char *rd_durability_name(enum rd_durability durability)
{
    switch (durability) {
    case RD_DURABILITY_EMULATED: return "emulated";
    case RD_DURABILITY_APM: return "apm";
    case RD_DURABILITY_GPSPM: return "gpspm";
    case RD_DURABILITY_EADR: return "eadr";
    }
    return "?";
}

int rd_fabric_open(
    const char *name, const struct rd_fabric_config *config, struct rd_fabric **ret_fabric)
{
    static const struct rd_fabric_config defaults;
    if (config == NULL)
        config = &defaults;
    for (size_t i = 0; i < CN_ARRAY_SIZE(fabrics); i++) {
        if (strcmp(name, fabrics[i].name) == 0)
            return fabrics[i].open(config, ret_fabric);
    }
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < CN_ARRAY_SIZE(fabrics) && used < sizeof(names); i++) {
        int n = snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
            fabrics[i].name);
        used += (size_t)n;
    }
    return cn_fail(CAIRN_E_CONFIG, "no fabric is named \"%s\"; there is: %s", name, names);
}

void rd_live_change(enum rd_live_kind kind, int change)
{
    CAIRN_ASSERT(kind < RD_LIVE_KIND_COUNT);
    int64_t wide = change;
    uint64_t old = __atomic_fetch_add(&live_counts[kind], (uint64_t)wide, __ATOMIC_RELAXED);
    CAIRN_ASSERT(wide > 0 || old >= (uint64_t)-wide);
}

static uint64_t count_live(enum rd_live_kind kind)
{
    return __atomic_load_n(&live_counts[kind], __ATOMIC_RELAXED);
}

void rd_live_get(struct rd_live *ret_live)
{
    *ret_live = (struct rd_live){
        .fabrics = count_live(RD_LIVE_FABRIC),
        .endpoints = count_live(RD_LIVE_ENDPOINT),
        .connections = count_live(RD_LIVE_CONNECTION),
        .regions = count_live(RD_LIVE_REGION),
        .mappings = count_live(RD_LIVE_MAPPING),
        .listeners = count_live(RD_LIVE_LISTENER),
        .descriptors = count_live(RD_LIVE_DESCRIPTOR),
        .threads = count_live(RD_LIVE_THREAD),
        .devices = count_live(RD_LIVE_DEVICE),
        .protection_domains = count_live(RD_LIVE_PROTECTION_DOMAIN),
        .memory_regions = count_live(RD_LIVE_MEMORY_REGION),
        .queue_pairs = count_live(RD_LIVE_QUEUE_PAIR),
        .completion_queues = count_live(RD_LIVE_COMPLETION_QUEUE),
        .cm_ids = count_live(RD_LIVE_CM_ID),
    };
}

bool rd_live_is_zero(const struct rd_live *live)
{
    return live->fabrics == 0 && live->endpoints == 0 && live->connections == 0 &&
           live->regions == 0 && live->mappings == 0 && live->listeners == 0 &&
           live->descriptors == 0 && live->threads == 0 && live->devices == 0 &&
           live->protection_domains == 0 && live->memory_regions == 0 && live->queue_pairs == 0 &&
           live->completion_queues == 0 && live->cm_ids == 0;
}
