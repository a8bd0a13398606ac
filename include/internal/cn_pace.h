/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_pace.h: when a thread that waits for the fabric polls and when it sleeps; one rule for
 * contexts and nodes.
 *
 *   poll      never sleeps (a context still ends at its deadline)
 *   event     sleeps whenever there is nothing to do
 *   adaptive  polls on while more than `threshold` of the queue is outstanding; otherwise for a
 *             while after the last work (a context: `spins` polls, a node: `linger_us`), then
 *             sleeps
 */
#ifndef CN_PACE_H
#define CN_PACE_H

#include "include/internal/cn_base.h"

enum cn_pace_mode { CN_PACE_ADAPTIVE, CN_PACE_POLL, CN_PACE_EVENT };

struct cn_pace {
    enum cn_pace_mode mode;
    uint32_t threshold; /* thousandths of the queue; default 700 */
    uint32_t spins;     /* idle polls of a context; default 2000 */
    uint32_t linger_us; /* of a node; default 1000 */
};

#define CN_PACE_DEFAULT                                                                            \
    {                                                                                              \
        CN_PACE_ADAPTIVE, 700, 2000, 1000                                                          \
    }

/* May a thread sleep now? `lingered`: it has been idle for the mode's while. */
static inline bool cn_pace_may_sleep(
    const struct cn_pace *pace, uint32_t outstanding, uint32_t capacity, bool lingered)
{
    if (pace->mode == CN_PACE_ADAPTIVE)
        return lingered && (uint64_t)outstanding * 1000 <= (uint64_t)capacity * pace->threshold;
    return pace->mode == CN_PACE_EVENT;
}

#endif
