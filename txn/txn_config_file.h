/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_config_file.h: between the reader of the configuration file and the checks: where things
 * stood in the file, so that every complaint names its line.
 */
#ifndef TXN_CONFIG_FILE_H
#define TXN_CONFIG_FILE_H

#include "txn/txn_config.h"

#define TXN_QUEUE_PAIRS_MAX 8u
#define TXN_HEARTBEAT_MS_MIN 10u
#define TXN_HEARTBEAT_MS_MAX 60000u
#define TXN_MODEL_RTT_US_MAX 1000000u
#define TXN_MODEL_GBPS_MAX 1600u
#define TXN_SPINS_MAX 1000000u
#define TXN_LINGER_US_MAX 1000000u

struct txn_config_lines {
    int cluster, fabric, options;
    int node[CAIRN_NODES_MAX];
    int table[CAIRN_TABLES_MAX];
};
/* As txn_config_check(), with lines; NULL: none are known. The lines are those before sorting. */
CN_MUST_CHECK int txn_config_check_at(
    struct txn_config *config, const struct txn_config_lines *lines);
/* Fail with CAIRN_E_CONFIG and a text that begins with the file and the line (0: no line). */
int txn_config_fail(const struct txn_config *config, int line, const char *format, ...)
    CN_PRINTF(3, 4);

#endif
