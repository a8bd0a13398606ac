/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_history.h: recording of client operations, in memory and in files, for hs_check.h.
 *
 * An operation is two events of one process: an invoke, then ok (it happened), fail (it certainly
 * did not) or info (unknown; so is an invoke that nothing follows). A process that got info never
 * invokes again: its client goes on under a new process id. An UNKNOWN outcome is info, never
 * fail.
 *
 * The order of the events in a history is the real order: B comes after A in real time when A's
 * completion stands before B's invoke. So record the invoke before the first call of the
 * transaction and the completion after the last. hs_history_merge() makes that order of several
 * logs by time.
 *
 * A log is append-only, one event per write(2), so what a killed process had recorded stays.
 * Format, little-endian, per event: u32 size of what follows after the crc, u32 crc32c of it, u64
 * time_ns, u64 process, u8 type, u8 f, u16 zero, u32 micro-operations, and for each: u64 key, u64
 * value, u32 kind, u32 count, and for a read count u32 elements. A torn last event is dropped.
 *
 * Recording calls abort the program when memory or disk is out: this is test code.
 */
#ifndef HS_HISTORY_H
#define HS_HISTORY_H

#include "include/internal/cn_base.h"

enum hs_type { HS_INVOKE, HS_OK, HS_FAIL, HS_INFO };

enum hs_f {
    HS_F_TXN,   /* list-append: HS_APPEND and HS_READ */
    HS_F_FINAL, /* the same, reads only, after everything has healed: the last word on its keys */
    HS_F_TRANSFER,  /* bank: one HS_TRANSFER */
    HS_F_BANK_READ, /* bank: with ok, a HS_BALANCE per account: all of them */
};

enum hs_mop_kind { HS_APPEND, HS_READ, HS_BALANCE, HS_TRANSFER };

#define HS_UNREAD UINT32_MAX /* count of a read whose result is not known (invoke, fail, info) */

struct hs_mop {
    uint64_t key;   /* list key, account, or the account that pays */
    uint64_t value; /* append: the element (32 bits); read: index of its first element in
                       `elements`; balance: an int64_t; transfer: the amount */
    uint32_t kind;
    uint32_t count; /* read: elements or HS_UNREAD; transfer: the account that receives */
};

struct hs_event {
    uint64_t time_ns;
    uint64_t process;
    uint64_t mop_first; /* index into `mops` */
    uint32_t mop_count;
    uint8_t type; /* enum hs_type */
    uint8_t f;    /* enum hs_f */
};

struct hs_history {
    struct hs_event *events;
    struct hs_mop *mops;
    uint32_t *elements;
    uint64_t event_count, mop_count, element_count;
    uint64_t event_room, mop_room, element_room;
    int fd;          /* of the log, -1: none */
    bool keep;       /* keep events in memory also when they are logged */
    bool in_event;
};

/* In memory. Owner: hs_history_delete(). */
struct hs_history *hs_history_new(void);
void hs_history_delete(struct hs_history **history);
/* From now on append each event to this file too (created if need be), and when !keep forget it
 * in memory. Errors: -errno. */
CN_MUST_CHECK int hs_history_log_to(struct hs_history *history, const char *path, bool keep);

/* One event: begin, its micro-operations in order, end. */
void hs_event_begin(struct hs_history *history, enum hs_type type, enum hs_f f, uint64_t process,
    uint64_t time_ns);
void hs_event_append(struct hs_history *history, uint64_t key, uint32_t element);
/* `elements` NULL and count HS_UNREAD: asked for, result not known. A key that does not exist is
 * the empty list: count 0. */
void hs_event_read(
    struct hs_history *history, uint64_t key, const uint32_t *elements, uint32_t count);
void hs_event_balance(struct hs_history *history, uint64_t account, int64_t balance);
void hs_event_transfer(struct hs_history *history, uint64_t from, uint32_t to, uint64_t amount);
void hs_event_end(struct hs_history *history);

/*
 * Read one log behind the events already there. *ret_torn: the last event was cut and is dropped.
 * Errors: -errno, CAIRN_E_PROTOCOL (damage before the end: the text says where).
 */
CN_MUST_CHECK int hs_history_load(struct hs_history *history, const char *path, bool *ret_torn);
/*
 * The events of all `parts` in order of time (CLOCK_MONOTONIC is one clock for all processes of a
 * machine). The order within a part stays; at equal times an invoke goes before a completion, so
 * that a tie counts as concurrent.
 */
struct hs_history *hs_history_merge(const struct hs_history *const *parts, uint32_t count);

/* ---- the files that elle-cli reads ---- */
enum hs_write_what {
    HS_WRITE_LISTS, /* HS_F_TXN, HS_F_FINAL: --model list-append */
    HS_WRITE_BANK,  /* HS_F_TRANSFER, HS_F_BANK_READ: --model bank */
};
/* Errors: -errno. */
CN_MUST_CHECK int hs_history_write_edn(
    const struct hs_history *history, enum hs_write_what what, const char *path);
CN_MUST_CHECK int hs_history_write_json(
    const struct hs_history *history, enum hs_write_what what, const char *path);

#endif
