/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_probe.h: what verbs tell of the RDMA devices of this machine, without using them. For
 * `cairn doctor`, which may not know verbs itself.
 */
#ifndef RD_PROBE_H
#define RD_PROBE_H

#include "include/internal/cn_base.h"

#define RD_PROBE_PORTS_MAX 8u

struct rd_probe_device {
    char name[64];
    int error;        /* 0, or -errno of opening or asking it; then the rest is zero */
    bool atomics;     /* compare-and-swap is claimed */
    bool odp;         /* RC reads and writes page on demand */
    bool odp_atomics; /* and atomics */
    uint32_t max_qp_wr, max_rd_atomic;
    uint64_t max_mr_size;
    uint32_t port_count;
    struct { uint32_t mtu, mtu_max; } port[RD_PROBE_PORTS_MAX]; /* bytes; [i] is port i + 1 */
};
/* All devices that verbs see, at most `max`. Errors: -errno. */
CN_MUST_CHECK int rd_probe(struct rd_probe_device *devices, uint32_t max, uint32_t *ret_count);

#endif
