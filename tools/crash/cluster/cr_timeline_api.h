/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline_api.h: tell what clients read and write.
 */
#ifndef CR_TIMELINE_API_H
#define CR_TIMELINE_API_H

#include "tools/sim/sim.h"

/* The run that is watched, until the next call; NULL: none. */
void cr_timeline_api_use(struct sim *sim);

#endif
