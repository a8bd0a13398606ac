/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_live.h: ask a running node for its statistics.
 */
#ifndef TL_LIVE_H
#define TL_LIVE_H

#include "tools/tl.h"
#include "txn/txn_config.h"

/* `cluster` zero and `node` 0: whoever answers at the address. Errors: those of connecting
 * (CAIRN_E_NODE_DOWN, a refusal's), CAIRN_E_TIMEOUT, _PROTOCOL. */
CN_MUST_CHECK int tl_live_stats(const char *fabric, const char *address,
    const struct cn_uuid *cluster, uint16_t node, json_t **ret_stats);

#endif
