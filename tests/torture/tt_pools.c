/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_pools.c: what the pools of a cluster at rest must look like: fsck finds no damage and no lock
 * of the current tag, the last close was clean, and no ring holds a record above its applied
 * position.
 */
#include "tests/torture/tt_cluster.h"

#include "txn/txn_config.h"

static void say_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        (void)fprintf(stderr, "node %u: fsck: %s\n", *(const uint16_t *)arg, text);
}

static int count_record(void *arg, const struct pm_record *record)
{
    (void)record;
    ++*(uint32_t *)arg;
    return 0;
}

static uint32_t check_rings(const struct pm_pool *pool, uint16_t node)
{
    const uint32_t slots = pool->super.geometry.slot_count;
    void *ring = malloc(pool->super.geometry.ring_size);
    uint32_t wrong = 0;

    CAIRN_ASSERT(ring != NULL);
    for (uint32_t i = 1; i < slots; i++) {
        struct pm_slot slot;
        uint32_t records = 0;
        if (pm_slot_load(pool, (uint16_t)i, &slot) != 0) {
            (void)fprintf(stderr, "node %u: %s\n", node, cairn_last_error());
            wrong++;
            continue;
        }
        if (slot.state == PM_SLOT_FREE)
            continue;
        pm_slot_snapshot(pool, (uint16_t)i, ring);
        if (pm_slot_scan(pool, &slot, ring, count_record, &records) != 0 || records != 0) {
            (void)fprintf(stderr, "node %u: slot %u, state %d: %u records above position %llu\n",
                node, i, (int)slot.state, records, (unsigned long long)slot.position_seq);
            wrong++;
        }
    }
    free(ring);
    return wrong;
}

static uint32_t check_pool(const struct txn_config_node *at)
{
    struct pm_fsck_report report;
    uint16_t id = at->id;
    const struct pm_fsck_options options = {.report = say_damage, .arg = &id};
    struct pm_pool *pool;
    uint32_t wrong = 0;

    if (pm_pool_open(at->pool, PM_OPEN_READ_ONLY, 0, cn_env_system(), &pool) != 0 ||
        pm_fsck(pool, &options, &report) != 0) {
        (void)fprintf(stderr, "node %u: cannot look: %s\n", id, cairn_last_error());
        return 1;
    }
    if (report.damages != 0 || report.words_locked != 0 || !pool->opened_clean) {
        (void)fprintf(stderr, "node %u: %llu damages, %llu words locked, closed %s\n", id,
            (unsigned long long)report.damages, (unsigned long long)report.words_locked,
            pool->opened_clean ? "clean" : "NOT clean");
        wrong++;
    }
    wrong += check_rings(pool, id);
    pm_pool_close(&pool);
    return wrong;
}

uint32_t tt_cluster_check_pools(struct tt_cluster *c)
{
    struct txn_config *config;
    uint32_t wrong = 0;

    if (txn_config_load(c->config, &config) != 0)
        return 1;
    for (uint32_t i = 0; i < config->node_count; i++)
        wrong += check_pool(&config->node[i]);
    txn_config_free(&config);
    return wrong;
}
