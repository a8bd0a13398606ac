/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: programs that only look: fsck (pm_fsck.c) and `cairn inspect` (rec_look.c) over a hostile
 * pool.
 * Input: which image (1), then edits (fz_pool.h). The memory can only be read, and lies between
 * guard pages.
 * Oracle: they end, touch nothing outside, and what fsck hands out as items is inside the limits;
 * an unedited pool has no damage that its unfinished records do not explain.
 */
#include "tests/fuzz/fz_pool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    bool calm = (fz_u8(&in) & 1) != 0;
    struct fz_pool *p = fz_pool(calm ? FZ_CALM : FZ_BUSY);
    struct fz_edits edits = fz_pool_edit(p, &in);
    struct pm_fsck_report report;
    struct pm_pool pool;

    fz_pool_protect(p, true);
    if (pm_attach(&pool, &p->pm, p->super_off) == 0 &&
        fz_pool_look(p, &pool, edits.count == 0, &report) == 0 && edits.count == 0)
        FZ_NEED(report.items > 5 && (!calm || report.damages == 0), "%llu items, %llu damages",
            (unsigned long long)report.items, (unsigned long long)report.damages);
    fz_pool_protect(p, false);
    return 0;
}
