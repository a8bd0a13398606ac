/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_live.h: ask a running node for its statistics.
 */
#ifndef TL_LIVE_H
#define TL_LIVE_H

#include "tools/tl.h"
#include "txn/txn_config.h"

/* Whom to ask. */
struct tl_live_node {
    const char *fabric;                     /* NULL: the one that the address has the form of */
    const struct rd_fabric_config *options; /* of the fabric; NULL: defaults */
    const char *address;
    struct cn_uuid cluster; /* zero, with node 0: whoever answers at the address */
    uint16_t node;
};
/* Errors: those of opening the fabric (CAIRN_E_NO_DEVICE, ...), of connecting (CAIRN_E_NODE_DOWN,
 * _UNREACHABLE, _REJECTED, ..., a refusal's), CAIRN_E_TIMEOUT, _PROTOCOL. */
CN_MUST_CHECK int tl_live_stats(const struct tl_live_node *target, json_t **ret_stats);

#endif
