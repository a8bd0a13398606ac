/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: recovery of a hostile pool as `cairn recover` does it: slots, scan and seal of all rings,
 * growth's own ring, replay, in-doubt records; first as a dry run over memory that cannot be
 * written.
 * Input: which image (1), then edits (fz_pool.h).
 * Oracles: where nothing but rings was edited, which is all that a peer can write, and no record
 * was half applied before, the store has no damage afterwards, whatever the records say; recovery
 * of what was recovered changes no value.
 */
#include "recovery/rec_offline.h"

#include "tests/fuzz/fz_pool.h"

struct look {
    struct pm_pool *pool;
    bool only_rings, looked;
    uint64_t values;
};

static void say_damage(void *arg CN_UNUSED, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        fprintf(stderr, "fsck: %s\n", text);
}

static void look_at(void *arg, struct pm_store *const *stores CN_UNUSED)
{
    struct look *l = arg;
    struct pm_fsck_options o = {.report = l->only_rings ? say_damage : NULL};
    struct pm_fsck_report report;

    FZ_NEED(pm_fsck(l->pool, &o, &report) == 0, "fsck: %s", cairn_last_error());
    FZ_NEED(!l->only_rings || report.damages == 0, "records of a peer have damaged the store");
    l->values = report.canonical_values;
    l->looked = true;
}

/* Attach and recover; what rec_offline_pools() says, 0 also when it cannot be attached to. */
static int recover(struct fz_pool *p, bool dry_run, struct look *look, bool *ret_attached)
{
    struct rec_offline_options options = {.env = p->pm.env, .dry_run = dry_run};
    struct rec_report_pool report = {.path = "fuzz"};
    struct pm_pool pool, *pools = &pool;

    *ret_attached = pm_attach(&pool, &p->pm, p->super_off) == 0;
    if (!*ret_attached)
        return 0;
    look->pool = &pool;
    return rec_offline_pools(&options, &pools, 1, &report, look_at, look);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    bool calm = (fz_u8(&in) & 1) != 0;
    struct fz_pool *p = fz_pool(calm ? FZ_CALM : FZ_BUSY);
    struct look first = {.looked = false}, second = {.looked = false};
    struct fz_edits edits;
    bool attached;
    int rc;

    edits = fz_pool_edit(p, &in);
    first.only_rings = second.only_rings = edits.count == 0 || (calm && edits.only_by_peers);
    fz_pool_protect(p, true);
    (void)recover(p, true, &first, &attached);
    fz_pool_protect(p, false);
    rc = recover(p, false, &first, &attached);
    if (edits.count == 0)
        FZ_NEED(attached && rc == 0 && first.looked, "a good pool is not recovered: %s",
            cairn_last_error());
    if (rc != 0 || !first.looked)
        return 0;
    rc = recover(p, false, &second, &attached);
    FZ_NEED(attached && rc == 0, "not recovered again: %s", cairn_last_error());
    FZ_NEED(first.values == second.values, "a second recovery has changed values");
    return 0;
}
