/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_calm.c: the table of labels. What is not in it: delays (recognised by their bound) are
 * short, chances say no, all else is 0.
 */
#include "tools/sim/sim_calm.h"

#include "tools/sim/sim_tape.h"

#define LAST UINT32_MAX

static const struct { const char *label; uint32_t value; } table[] = {
    /* the fabric: one lane, whole packets, no halves, doorbells at once, all in order */
    {"lanes", 1}, {"lane", 0}, {"message-atomics", LAST}, {"packet-max", LAST}, {"packet", LAST},
    {"torn", LAST}, {"pieces", 0}, {"cut", 0}, {"order", LAST}, {"cas-halves", LAST},
    {"more", LAST}, {"post", LAST}, {"send-again", LAST}, {"rearm-fails", LAST},
    {"serve-later", LAST}, {"poll", LAST},
    /* ends of connections: what was posted executes and is acknowledged, everybody learns soon */
    {"linger", LAST}, {"ring-lingers", LAST}, {"tail", 1}, {"units", LAST}, {"acks-lost", LAST},
    {"cut-units", 1}, {"cut-serve", 0}, {"cut-ack", 0}, {"fence-told", 0}, {"notice-late", LAST},
    {"notice-ms", 0}, {"break", 0},
    /* memory: a power failure keeps everything */
    {"image", 1}, {"image-cpu", LAST}, {"image-nic", 0}, {"few-lost", LAST}, {"few-kept", 0},
    {"line", 0}, {"store", LAST}, {"store-power", LAST}, {"step", LAST},
    /* the platform and the geometry */
    {"durability", 0}, {"persistence-auto", LAST}, {"slots", 0}, {"window", 0}, {"ring", 0},
    {"bucket-slots", 0}, {"fingerprint", 0}, {"scrub-budget", 0}, {"jitter", 0},
    {"store-yield", 0}, {"step-yield", 0}, {"nodes", 0}, {"clients", 0}, {"lists", 0},
    {"accounts", 0}, {"counters", 0}, {"cache", LAST},
    /* faults: none */
    {"faults", 0}, {"fault-count", 0}, {"fault", 0}, {"fault-time", 0}, {"horizon", 0},
    {"step-crash", LAST}, {"crash-step", 0}, {"crash-occurrence", 0}, {"crash-kind", LAST},
    {"hazard-1", 0}, {"hazard-2", 0}, {"hazard-3", 0}, {"hazard-4", 0}, {"hazard-5", 0},
    {"hazard-6", 0}, {"hazard-7", 0}, {"hazard-8", 0}, {"hazard-process", LAST},
    {"hazard-power", LAST}, {"hazard-pause", LAST}, {"hazard-us", 0}, {"plan-us", 0},
    {"nested", LAST}, {"nested-step", 0}, {"nested-occurrence", 0}, {"nested-kind", LAST},
    {"power-too", LAST}, {"restart-late", LAST}, {"restart-ms", 0}, {"power-at-end", LAST},
    {"clean-end", LAST}, {"actor", 0}, {"node", 0}, {"client", 0}, {"partition", 0},
    {"patience", LAST}, {"partition-us", 0}, {"pause-kind", 0}, {"pause-us", 0}, {"pause-ms", 0},
    {"clock-ahead", 0}, {"clock-ppm", 0}, {"wall-frozen", LAST}, {"wall-jump", 0},
    {"wall-jump-us", 0}, {"slow", 0}, {"rest", 0},
    /* clients: no rest between operations, each does the plainest thing and ends with its commit.
     * What workloads choose is a number to the tape, also where it stands for yes and no. */
    {"think", LAST}, {"wait", LAST}, {"wait-us", 0}, {"work", 0}, {"which", 0}, {"transfer", 0},
    {"large-two", LAST}, {"private-two", LAST}, {"read-lists", LAST}, {"ring-look", LAST},
    {"register-write", 0},
    {"abort", LAST}, {"token", LAST}, {"resolve-now", 0}, {"lock", 0}, {"churn-read", LAST},
    {"from", 0}, {"to", 0}, {"amount", 0}, {"list", 0}, {"list-step", 0}, {"list-count", 0},
    {"private", 0}, {"private-delete", LAST}, {"size", 0}, {"counter", 0}, {"pair", 0},
    {"pair-side", 0},
};

/* The shortest of all: its class without a tail, and no fine part. */
static uint32_t short_delay(void)
{
    return 1023u << 10;
}

static bool is_delay(uint32_t bound)
{
    return bound == SIM_DELAY_BOUND;
}

uint32_t sim_calm_find(const char *label)
{
    uint32_t i = 0;

    while (i < CN_ARRAY_SIZE(table) && strcmp(table[i].label, label) != 0)
        i++;
    return i;
}

bool sim_calm_knows(const char *label, uint32_t bound)
{
    return is_delay(bound) || sim_calm_find(label) < CN_ARRAY_SIZE(table);
}

uint32_t sim_calm_at(uint32_t place, uint32_t bound, bool chance)
{
    if (is_delay(bound))
        return short_delay();
    if (place >= CN_ARRAY_SIZE(table))
        return chance ? bound - 1 : 0;
    return table[place].value < bound ? table[place].value : bound - 1;
}
