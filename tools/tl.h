/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl.h: what the subcommands of `cairn` share: options, errors, JSON, progress, small things of the
 * system.
 *
 * Exit codes, the same everywhere: 0 the answer is good, 1 the answer is bad (a key that is not
 * there, a transaction in doubt, damage, a violation), 2 wrong usage or something of the
 * environment (a file that cannot be opened, a node that cannot be reached).
 */
#ifndef TL_H
#define TL_H

#include <jansson.h>

#include "include/internal/cn_base.h"
#include "include/internal/cn_env.h"

enum tl_exit { TL_OK = 0, TL_BAD = 1, TL_USAGE = 2 };

struct tl_command {
    const char *name;
    const char *args;    /* "--config FILE --id N" */
    const char *summary; /* one line */
    const char *example; /* whole lines, with what to expect */
    int (*run)(const struct tl_command *self, int argc, char **argv);
    bool hidden;
};

/* ---- options ---- */

struct tl_option {
    const char *name; /* without the dashes; NULL ends the list */
    const char *arg;  /* placeholder in the help; NULL: a flag */
    const char *help; /* NULL: not shown */
    bool *flag;       /* one of these three */
    const char **text;
    uint64_t *number;
    uint64_t min, max; /* of number */
};
/*
 * Parse; *ret_first is the index of the first plain argument, and there must be min..max of them.
 * Returns -1: go on; else the exit code (--help was answered, or the usage was wrong and that was
 * said).
 */
int tl_parse(const struct tl_command *self, const struct tl_option *options, int argc, char **argv,
    int args_min, int args_max, int *ret_first);

/* ---- errors and results ---- */

/* Say it on stderr as "cairn COMMAND: text"; returns TL_USAGE. */
int tl_error(const struct tl_command *self, const char *format, ...) CN_PRINTF(2, 3);
/* The exit code of a result: damage and doubt are answers, and bad ones. */
int tl_exit(int error);
/* As tl_error() with the text of the last Cairn error; `json`: also {"error", "text"} on stdout.
 * Returns tl_exit(error). */
int tl_cairn_error(const struct tl_command *self, int error, bool json);
/* First of all in main(): a standard descriptor that is closed would be given to the next file
 * that is opened, a pool, and what is printed or logged would be written over its beginning. */
void tl_guard_descriptors(void);
/* Print and release an object: one line-wrapped JSON text on stdout. */
void tl_json_print(json_t *object);
json_t *tl_json_uuid(const struct cn_uuid *uuid);
/* Number of any size up to INT64_MAX; above, a string. */
json_t *tl_json_u64(uint64_t value);
/* Print a JSON value as indented "key: value" lines. */
void tl_print_tree(const json_t *value, int indent);
/* "1,234,567" and "12.3 MiB". `text` is returned. */
const char *tl_count(uint64_t value, char text[32]);
const char *tl_bytes(uint64_t value, char text[32]);
/* Printable as it is, else hex. */
void tl_print_bytes(const void *data, size_t size);
/* Hex digits to bytes. False: malformed or too long. */
bool tl_parse_hex(const char *text, uint8_t *ret, size_t size_max, size_t *ret_size);

/* A number below `bound` from a seeded sequence; the next state stays in *state. */
static inline uint32_t tl_draw(uint64_t *state, uint32_t bound)
{
    *state = cn_mix64(*state + UINT64_C(0x9e3779b97f4a7c15));
    return (uint32_t)(((*state >> 32) * bound) >> 32);
}

/* ---- progress of something that may take long ---- */

/* Speaks on stderr when `what` takes longer than 2 s. */
struct tl_progress;
struct tl_progress *tl_progress_start(const char *what);
void tl_progress_end(struct tl_progress *progress); /* NULL is allowed */

/* Set by SIGINT and SIGTERM once tl_catch_signals() was called. */
extern volatile int tl_interrupted;
void tl_catch_signals(void);

/* ---- commands ---- */
extern const struct tl_command cmd_init, cmd_node, cmd_recover, cmd_inspect, cmd_doctor,
    cmd_resolve, cmd_get, cmd_put, cmd_delete, cmd_demo, cmd_bench, cmd_crash, cmd_version,
    cmd_demo_worker;

#endif
