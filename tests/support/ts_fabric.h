/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_fabric.h: over which fabric, at which addresses and on which pools tests make their clusters.
 * The environment says so; without it all is `emu` in /dev/shm.
 *
 *   CAIRN_TEST_FABRIC       emu (default) or rpma
 *   CAIRN_TEST_ADDRESS      rpma: IP of the RDMA device; node i listens at port 7471 + 10 i
 *   CAIRN_TEST_QPS          rpma: queue pairs for reads and compare-and-swaps, per connection
 *   CAIRN_TEST_ATOMICS      rpma: nic (default) or message
 *   CAIRN_TEST_PERSISTENCE  of every node: auto (default), apm, gpspm, eadr, emulated
 *   CAIRN_TEST_POOLS        pools of the first nodes, with commas between: /dev/dax0.0,/dev/dax1.0
 *   CAIRN_TEST_LOG          what is logged: error (default), warning, info, debug
 *
 * A setting that makes no sense ends the program with a message.
 */
#ifndef TS_FABRIC_H
#define TS_FABRIC_H

#include "txn/txn_config.h"

#define TS_FABRIC_PORT 7471u
#define TS_FABRIC_PORT_STEP 10u

enum cn_log_level ts_fabric_log_level(void);
/* The fabric's name, and its options into a configuration. */
const char *ts_fabric_name(void);
/* What only emulation promises (no system call on the path, wake-ups by futex) is asserted there.
 */
bool ts_fabric_is_emu(void);
void ts_fabric_options(struct txn_config *config);
/* Address, pool and persistence of node `at`: what the environment does not give lies in `dir`.
 * `size` is taken for pools that are files. */
void ts_fabric_node(
    const char *dir, uint32_t at, uint64_t size, struct txn_config_node *ret_node);
/* Make a pool for a test: what is there already (of an earlier test on the device) is wiped. */
CN_MUST_CHECK int ts_fabric_make_pool(
    const struct txn_config *config, const struct txn_config_node *at, const struct cn_env *env);
/* Remove a pool that is a file, and the socket. */
void ts_fabric_remove(const struct txn_config_node *at);

#endif
