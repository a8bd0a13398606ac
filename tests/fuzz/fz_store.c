/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: the node's side of a hostile store: opening it, replay of growth, then grants, growth,
 * scrub and new indexes, as a node does them while it serves.
 * Input: a byte that chooses the order of work, then edits (fz_pool.h).
 * Oracle: every call ends and touches nothing outside; a granted block is one that a block may be;
 * where nothing was edited the store has no damage afterwards.
 */
#include "tests/fuzz/fz_pool.h"

#define ROUNDS 6u

static bool may_free(void *arg CN_UNUSED, uint16_t slot)
{
    return slot % 2 == 1;
}

static void grant(struct pm_store *s, const struct pm_pool *pool, uint32_t class_)
{
    struct pm_lock_pm block[8];
    uint32_t count = 0;
    int rc = pm_heap_grant(s, 1, class_, 8, block, &count);

    if (rc != 0)
        return;
    FZ_NEED(count <= 8, "%u blocks", count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t off = le64_get(block[i].off);

        FZ_NEED(off % 64 == 0 && cn_range_inside(off, pm_class_size(class_), pool->super.heap_off,
                    pool->pm.size - pool->super.heap_off), "block at %llu",
            (unsigned long long)off);
        FZ_NEED(pm_heap_is_granted(s, 1, off) && pm_store_has_word(s, off), "not granted");
        FZ_NEED(le64_get(block[i].base) <= PM_VERSION_MAX - PM_VERSION_MARGIN, "version");
    }
}

static void work(struct pm_store *s, const struct pm_pool *pool, uint8_t choice)
{
    struct pm_store_stats stats;
    bool done;

    for (unsigned i = 0; i < ROUNDS; i++, choice = (uint8_t)(choice * 5 + 1)) {
        switch (choice % 6) {
        case 0: (void)pm_growth_step(s, 8); break;
        case 1: (void)pm_scrub_step(s, 64, may_free, NULL, &done); break;
        case 2: grant(s, pool, choice % PM_CLASS_COUNT); break;
        case 3:
            if (pm_store_create_index(s, (uint16_t)(1 + choice % 3), 0) != 0)
                return; /* a growth record that failed half-way: the node would stop */
            break;
        case 4:
            for (uint32_t id = 1; id <= pm_store_index_count(s); id++) {
                const struct pm_index *index = pm_store_index_by_id(s, id);

                if (index != NULL &&
                    pm_growth_room(s, index->off, fz_interesting(choice) * 77, 2) != 0)
                    continue;
            }
            break;
        default: grant(s, pool, 1); break;
        }
    }
    pm_heap_release_slot(s, 1);
    pm_store_stats(s, &stats);
}

static void try_store(struct fz_pool *p, struct pm_pool *pool, uint8_t choice, bool edited)
{
    const struct pm_cas cas = {.arg = p, .cas = fz_pool_cas};
    struct pm_fsck_options o = {.report = NULL};
    struct pm_fsck_report before, after;
    struct pm_store *s;

    if (pm_pool_raise_incarnation(pool) != 0 || pm_store_open(pool, &cas, &s) != 0)
        return;
    if (pm_growth_start(s) == 0) {
        FZ_NEED(edited || pm_fsck(pool, &o, &before) == 0, "fsck");
        work(s, pool, choice);
        FZ_NEED(edited || (pm_fsck(pool, &o, &after) == 0 && after.damages <= before.damages &&
                    after.canonical_values == before.canonical_values),
            "work on a good store has changed it");
    } else {
        FZ_NEED(edited, "a good store does not start: %s", cairn_last_error());
    }
    pm_store_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    uint8_t choice = fz_u8(&in);
    struct fz_pool *p = fz_pool(choice >> 7 == 0 ? FZ_BUSY : FZ_CALM);
    struct fz_edits edits;
    struct pm_pool pool;

    edits = fz_pool_edit(p, &in);
    if (pm_attach(&pool, &p->pm, p->super_off) == 0)
        try_store(p, &pool, choice, edits.count != 0);
    return 0;
}
