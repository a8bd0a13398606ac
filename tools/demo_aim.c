/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_aim.c: choose the moment of a kill. Most of a transaction's time goes into reading, and a
 * process that dies there leaves little to recover. So look into the ledgers, which all can map,
 * for a context that stands in the middle of a commit (it lost its CPU there), and kill then.
 */
#include <time.h>

#include "tools/demo.h"

#define AIM_NS UINT64_C(500000000) /* then kill anyway */
#define LOOK_AGAIN_NS 40000

struct target {
    struct dl ledger;
    uint32_t number; /* seen in commit at the last look */
};

static uint32_t number_in_commit(const struct dl *ledger)
{
    uint32_t count = __atomic_load_n(&ledger->header->entry_count, __ATOMIC_ACQUIRE);

    if (count == 0)
        return 0;
    uint8_t state = __atomic_load_n(&ledger->entry[count - 1].state, __ATOMIC_ACQUIRE);
    return state == DL_INTENDED ? count : 0;
}

static bool stands_in_commit(struct target *target, uint32_t count)
{
    bool stands = false;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = number_in_commit(&target[i].ledger);
        stands = stands || (number != 0 && number == target[i].number);
        target[i].number = number;
    }
    return stands;
}

static uint32_t open_targets(
    const struct demo *d, const struct tl_child *only, struct target *target)
{
    uint32_t count = 0;

    for (uint32_t p = 0; p < d->processes; p++) {
        for (uint32_t c = 0; c < d->contexts; c++) {
            char path[DEMO_PATH_MAX];
            if (only != NULL && only != &d->worker[p])
                continue;
            demo_ledger_path(
                d->folder, demo_writer(d->control, p, d->worker[p].generation, c), path);
            memset(&target[count], 0, sizeof(target[count]));
            if (dl_open(path, &target[count].ledger) == 0)
                count++;
        }
    }
    return count;
}

void demo_aim(const struct demo *d, const struct tl_child *only)
{
    struct target target[DEMO_PROCESSES_MAX * DEMO_CONTEXTS_MAX];
    uint32_t count = open_targets(d, only, target);
    uint64_t deadline = cn_now_ns(cn_env_system()) + AIM_NS;

    while (!stands_in_commit(target, count) && cn_now_ns(cn_env_system()) < deadline)
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
    for (uint32_t i = 0; i < count; i++)
        dl_close(&target[i].ledger);
}
