/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch.h: cuts a workload's call that never comes back and never lets time pass: an endless
 * loop, or a call that blocks. Real time decides when, so this is the one thing that no seed
 * controls; but what it cuts would hang every time.
 */
#ifndef CR_WATCH_H
#define CR_WATCH_H

#include "include/internal/cn_base.h"

struct cr_cluster;

#define CR_WATCH_SECONDS 10u

/* The calling thread runs the cluster's simulation from now on. */
void cr_watch_start(struct cr_cluster *cluster, uint32_t seconds);
void cr_watch_stop(void);
/* Whatever takes long now is the harness itself: it must come back with false. */
void cr_watch_excuse(bool busy);

#endif
