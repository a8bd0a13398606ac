/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lt_cluster.h: a cluster as a user has it, for the tests of limits: a folder in /dev/shm, nodes
 * that are processes of the program `cairn`, and the public API over its configuration file.
 * The program is named by the environment variable CAIRN. Failing to set it up fails the test.
 */
#ifndef LT_CLUSTER_H
#define LT_CLUSTER_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/types.h>

#include "include/internal/cn_base.h"
#include "txn/txn_config.h"

#define LT_NODES_MAX 3u
#define LT_TABLE 1u
#define LT_TEXT_MAX 8192u

struct lt_cluster {
    char dir[64], config[128];
    uint32_t nodes;
    pid_t pid[LT_NODES_MAX + 1]; /* by id; 0: does not run */
    struct cairn *cairn;         /* NULL until lt_open() */
    struct cairn_ctx *ctx;
    struct cairn_options options;
    char text[LT_TEXT_MAX]; /* what lt_cairn() said last */
};

/* `size` of each pool; `options` inside `options = { }`. Starts nothing. */
struct lt_cluster *lt_new(uint32_t nodes, const char *size, const char *options);
/* Ends every node (SIGKILL) and removes the folder. */
void lt_delete(struct lt_cluster **cluster);
/* Start node `id` and wait until it serves. */
void lt_start(struct lt_cluster *cluster, uint32_t id);
void lt_start_with(struct lt_cluster *cluster, uint32_t id, const char *option);
void lt_kill(struct lt_cluster *cluster, uint32_t id);
/* SIGTERM; the node must end by itself with status 0. */
void lt_stop(struct lt_cluster *cluster, uint32_t id);
void lt_pause(struct lt_cluster *cluster, uint32_t id);
void lt_resume(struct lt_cluster *cluster, uint32_t id);
/* (Re)open cluster handle and context: a cold cache. */
void lt_open(struct lt_cluster *cluster);
void lt_close(struct lt_cluster *cluster);
/* Run `cairn` with a NULL-terminated list of arguments; its exit status; what it says in ->text. */
int lt_cairn(struct lt_cluster *cluster, ...);
/* Fails the test unless the status is `code` and `text` is in what it says. */
#define LT_EXPECT(c, code, part, ...) \
    lt_check((c), lt_cairn((c), __VA_ARGS__, NULL), (code), (part), __LINE__)
void lt_check(struct lt_cluster *cluster, int got, int code, const char *part, int line);

/* The path of a node's pool or of another file of the folder. */
const char *lt_path(struct lt_cluster *cluster, char path[128], const char *name);
/* The tail of node `id`'s log holds `part`, at the latest after `timeout_ms`. */
bool lt_log_says(struct lt_cluster *cluster, uint32_t id, const char *part, uint32_t timeout_ms);
/* The value of a counter of `cairn inspect --node ID --json`. */
uint64_t lt_counter(struct lt_cluster *cluster, uint32_t id, const char *name);
/* A pool's file, mapped shared and writable, whether or not a node has it open. */
struct lt_file {
    uint8_t *at;
    size_t size;
};
struct lt_file lt_map(struct lt_cluster *cluster, uint32_t id);
void lt_unmap(struct lt_file *file);

/* A key whose node is `id`, other for each number; returns its size. */
size_t lt_key(struct lt_cluster *cluster, uint32_t id, uint32_t number, char key[32]);
/* Put, delete (value NULL) and get in transactions of their own. `lt_put` runs until it commits. */
int lt_put(struct lt_cluster *cluster, const char *key, const void *value, size_t size);
int lt_get(struct lt_cluster *cluster, const char *key, void *value, size_t size, size_t *ret_size);
void lt_expect_value(struct lt_cluster *cluster, const char *key, const char *value);
/* One try: 0 committed, CAIRN_E_CONFLICT aborted, or the error. */
int lt_try_put(struct lt_cluster *cluster, const char *key, const void *value, size_t size);
uint64_t lt_now_ms(void);
/* Fails the test unless `got` is `wanted` and the last error's text holds `part`. */
#define LT_ERROR(wanted, part, call) lt_check_error((call), (wanted), (part), #call, __LINE__)
void lt_check_error(int got, int wanted, const char *part, const char *call, int line);
#define LT_OK(call) LT_ERROR(0, NULL, call)

#endif
