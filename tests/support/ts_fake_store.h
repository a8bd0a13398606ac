/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_fake_store.h: a cluster over the fake fabric with a small store in each node's memory: one
 * table, one index of depth 0 (one bucket) that tests fill and damage at will. GRANT, TABLE and
 * ROOM are answered.
 *
 *     65536   index root     131072  chunk of buckets     147456  items, 1 KiB apart     229376
 * blocks to grant
 */
#ifndef TS_FAKE_STORE_H
#define TS_FAKE_STORE_H

#include "tests/support/ts_fake_fabric.h"
#include "txn/txn_ctx.h"

#define TS_ROOT UINT64_C(65536)
#define TS_BUCKETS UINT64_C(131072)
#define TS_ITEMS UINT64_C(147456)
#define TS_BLOCKS UINT64_C(229376)
#define TS_MEMORY UINT64_C(262144)
#define TS_CLASS 7u /* 1024 bytes */

struct ts_fs {
    struct ts_fake fake; /* first: the callbacks get it */
    struct txn_config config;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    uint32_t nodes;
    uint32_t items[TS_FAKE_NODES]; /* placed so far */
    uint32_t granted[TS_FAKE_NODES];
    uint32_t words, rooms; /* WORD and ROOM asked */
    int grant_status, room_status;
    bool stopped; /* WORD gets no answer */
    enum rd_word_answer word_answer;
};

void ts_fs_open(struct ts_fs *fs, uint32_t nodes, uint32_t bucket_slots);
void ts_fs_open_inflight(
    struct ts_fs *fs, uint32_t nodes, uint32_t bucket_slots, uint32_t inflight);
void ts_fs_close(struct ts_fs *fs);
uint64_t *ts_fs_word(struct ts_fs *fs, uint16_t node, uint64_t off);
/* Write a bucket image (its word becomes unlocked `version`) at bucket place `place`. */
void ts_fs_bucket(struct ts_fs *fs, uint16_t node, uint32_t place, uint64_t number, uint32_t depth,
    uint64_t version, const uint64_t *slots, uint32_t count);
/* Write an item image at `off`. */
void ts_fs_item(struct ts_fs *fs, uint16_t node, uint64_t off, uint64_t version, const char *key,
    const char *value);
/* Add an item and its slot to bucket 0; returns its place. `node` must be the key's. */
uint64_t ts_fs_add(struct ts_fs *fs, const char *key, const char *value);
uint16_t ts_fs_node(const struct ts_fs *fs, const char *key);
uint64_t ts_fs_hash(const struct ts_fs *fs, uint16_t node, const char *key);
/* A key of a node: "x<n>". */
void ts_fs_key(const struct ts_fs *fs, uint16_t node, uint32_t number, char key[16]);
uint64_t ts_fs_slot(uint64_t off, uint64_t hash);

#endif
