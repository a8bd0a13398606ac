/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_live.h: accounting of live objects, for back ends. Whoever makes or frees an object of a kind
 * says so here; rd_live_get() shows the sums. The counters are the only global state of rdma/.
 */
#ifndef RD_LIVE_H
#define RD_LIVE_H

enum rd_live_kind {
    RD_LIVE_FABRIC,
    RD_LIVE_ENDPOINT,
    RD_LIVE_CONNECTION,
    RD_LIVE_REGION,
    RD_LIVE_MAPPING,
    RD_LIVE_LISTENER,
    RD_LIVE_DESCRIPTOR,
    RD_LIVE_THREAD,
    RD_LIVE_DEVICE, /* opened for use: librpma's peer and our protection domain */
    RD_LIVE_PROTECTION_DOMAIN,
    RD_LIVE_MEMORY_REGION,
    RD_LIVE_QUEUE_PAIR, /* librpma's too */
    RD_LIVE_COMPLETION_QUEUE,
    RD_LIVE_CM_ID,
    RD_LIVE_KIND_COUNT,
};

/* Context: any thread. */
void rd_live_change(enum rd_live_kind kind, int change);

#endif
