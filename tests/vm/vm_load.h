/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vm_load.h: a load that keeps a ledger, and the check of the database against it, for clusters
 * whose hosts lose power at any time, the load's own host included.
 *
 * A run has a seed, used once; each of its threads is a *writer* (seed, thread) and numbers its
 * transactions from 1. A transaction writes its number into all registers of one *group* of its
 * writer (registers lie on one or several nodes, in both tables), may insert or delete one *slot*
 * of the writer, and may move money between accounts, which all writers share. It reads, locked,
 * what it writes, and compares with what it knows: a loss is often seen while the load runs.
 *
 * The ledger: text, one write(2) per line, opened for appending and never positioned (a pipe or
 * virtio port will do). A line is written before the writer's next transaction begins:
 *
 *   run SEED THREADS ;
 *   ok SEED THREAD NUMBER GROUP SLOT OP ;              acknowledged; OP: + inserted, - deleted, .
 *   unknown SEED THREAD NUMBER GROUP SLOT OP TOKEN ;
 *   verdict SEED THREAD NUMBER committed|aborted ;     of an unknown one
 *   bad SEED THREAD NUMBER TEXT ;                      the load itself saw something wrong
 *   end SEED THREAD NUMBER ;                           nothing is in flight; NUMBER was the last
 *
 * A line without its " ;" was cut by a power failure and is not counted. A writer without `end`
 * may have had one transaction in flight, with a number above all of its lines.
 */
#ifndef VM_LOAD_H
#define VM_LOAD_H

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"
#include "txn/txn_config.h"

#define VL_THREADS_MAX 16u
#define VL_GROUPS 12u
#define VL_MEMBERS_MAX 4u
#define VL_SLOTS 8u
#define VL_ACCOUNTS 96u /* half in each table */
#define VL_BALANCE 1000
#define VL_VALUE_MAX 512u
#define VL_LINE_MAX 256u
#define VL_NAME_SIZE 64u

struct vl_options {
    const char *config, *ledger;
    uint64_t seed, seconds, deadline_s;
    uint32_t threads;
    uint32_t doubt; /* one in so many is taken for unknown, committed or aborted; 0: none */
    bool sync;
};

struct vl_writer { /* names one */
    uint64_t seed;
    uint32_t thread;
};

struct vl_key {
    uint32_t table;
    char name[VL_NAME_SIZE];
};

/* What a load and its check know of the cluster. */
struct vl_place {
    struct txn_config *config;
    struct cairn *cluster;
    uint32_t table[2];
};
CN_MUST_CHECK int vl_open(const struct vl_options *options, struct vl_place *place);
void vl_close(struct vl_place *place);

/* Registers of a group: how many, and where each lies. */
uint32_t vl_member_count(const struct vl_place *place, uint32_t group);
void vl_member_key(const struct vl_place *place, const struct vl_writer *writer, uint32_t group,
    uint32_t member, struct vl_key *ret);
void vl_slot_key(const struct vl_place *place, const struct vl_writer *writer, uint32_t slot,
    struct vl_key *ret);
void vl_account_key(const struct vl_place *place, uint32_t account, struct vl_key *ret);

/* A value says its number and is, byte by byte, a function of key and number; its size changes. */
uint32_t vl_value_make(const struct vl_key *key, uint64_t number, uint8_t value[VL_VALUE_MAX]);
/* False: it is not a value of this key. */
bool vl_value_read(
    const struct vl_key *key, const uint8_t *value, size_t size, uint64_t *ret_number);

/* Reads: 0 and number 0 where there is no such key. CAIRN_E_CORRUPT_ITEM: not a value of it. */
CN_MUST_CHECK int vl_get(
    struct cairn_tx *tx, const struct vl_key *key, bool for_update, uint64_t *ret_number);
CN_MUST_CHECK int vl_put(struct cairn_tx *tx, const struct vl_key *key, uint64_t number);
CN_MUST_CHECK int vl_get_balance(
    struct cairn_tx *tx, const struct vl_key *key, bool for_update, int64_t *ret_balance);
CN_MUST_CHECK int vl_put_balance(struct cairn_tx *tx, const struct vl_key *key, int64_t balance);

/* ---- vm_ledger.c ---- */
enum vl_line_kind { VL_RUN, VL_OK, VL_UNKNOWN, VL_VERDICT, VL_BAD, VL_END, VL_CUT };
struct vl_line {
    enum vl_line_kind kind;
    struct vl_writer writer;
    uint64_t number;
    uint32_t group, slot;
    char op; /* + - . */
    bool committed;
    char token[CAIRN_TOKEN_SIZE];
};
/* Append one line. Errors: -errno; a line written in part is one (-EIO). */
CN_MUST_CHECK int vl_ledger_write(int fd, const char *format, ...) CN_PRINTF(2, 3);
/* Errors: CAIRN_E_PROTOCOL for a line that is whole and makes no sense. */
CN_MUST_CHECK int vl_line_parse(const char *text, struct vl_line *ret);

/* ---- vm_run.c, vm_check.c: exit codes: 0 good, 1 a violation, 2 something else ---- */
int vl_run(const struct vl_options *options);
int vl_check(const struct vl_options *options);
extern volatile int vl_stop; /* set by SIGTERM and SIGINT */

#endif
