/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_check.c: are the pools clean? What their content means is checked by the workloads.
 */
#include "tools/crash/cluster/cr_cluster.h"

#include "pmem/pm_store.h"

static void on_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        sim_fail(arg, "fsck: %s", text);
}

void cr_check_pools(struct cr_cluster *c)
{
    uint64_t canonical = 0;

    for (uint32_t i = 0; i < c->node_count; i++) {
        struct cr_node *n = &c->node[i];
        struct pm_fsck_options options = {.report = on_damage, .arg = &c->sim};
        struct pm_fsck_report report;
        struct pm_pool look;
        struct pm pm;
        sim_pool_pm(n->pool, &c->sim.env, &pm);
        pm.tracer = NULL;
        pm.read_only = true;
        int rc = pm_attach(&look, &pm, n->super_off);
        if (rc == 0)
            rc = pm_fsck(&look, &options, &report);
        if (rc != 0)
            sim_fail(&c->sim, "fsck of %s: %s", n->actor->name, cairn_last_error());
        else if (report.damages != 0)
            sim_fail(&c->sim, "fsck of %s: %lu damages", n->actor->name, report.damages);
        else
            canonical = cn_mix64(canonical + report.canonical_values);
    }
    /* Nothing but reads happens between two checks, whatever is restarted. */
    if (!c->sim.failed && c->canonical_known && c->canonical != canonical)
        sim_fail(&c->sim, "another state after the restart of all nodes");
    c->canonical = canonical;
    c->canonical_known = true;
}

/* Places of lock words in a chunk are that far apart; 0: it has none. */
static uint64_t word_distance(const struct pm_pool *look, uint64_t chunk)
{
    struct pm_chunk_pm d;

    pm_read(&look->pm, look->super.chunks_off + chunk * sizeof(d), &d, sizeof(d));
    return d.kind == PM_CHUNK_SLAB ? pm_class_size(d.class_)
        : d.kind == PM_CHUNK_BUCKETS ? PM_BUCKET_SIZE
                                     : 0;
}

static void check_words(struct cr_node *n, const struct pm_pool *look, uint16_t slot)
{
    uint64_t size = UINT64_C(1) << look->super.geometry.chunk_shift;

    for (uint64_t off = look->super.heap_off; off + size <= look->pm.size; off += size) {
        uint64_t distance = word_distance(look, off / size);
        for (uint64_t at = 0; distance != 0 && at + distance <= size; at += distance) {
            uint64_t word = pm_load64(&look->pm, off + at);
            if (pm_word_is_locked(word, look->tag) && pm_word_slot(word) == slot)
                sim_fail(&n->cluster->sim, "%s hands out slot %u, which the word at %lu still "
                    "names", n->actor->name, slot, off + at);
        }
    }
}

/* (tag, slot) names one owner for as long as a word may say it. */
void cr_check_handout(struct cr_node *n)
{
    struct pm_pool look = n->pm_pool;

    look.pm.tracer = NULL;
    look.pm.read_only = true;
    for (uint16_t s = 1; s < look.super.geometry.slot_count; s++) {
        struct pm_slot slot;
        if (pm_slot_load(&look, s, &slot) != 0 || slot.epoch == n->epoch[s])
            continue;
        n->epoch[s] = slot.epoch;
        check_words(n, &look, s);
    }
}
