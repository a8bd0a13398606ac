/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_store_internal.h: what ts_store.c and ts_store_life.c share.
 */
#ifndef TS_STORE_INTERNAL_H
#define TS_STORE_INTERNAL_H

#include <inttypes.h>

#include "tests/support/ts_store.h"

#define TS_NEED(cond, ...)                                              \
    do {                                                                \
        if (!(cond)) {                                                  \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);             \
            fprintf(stderr, __VA_ARGS__);                               \
            fprintf(stderr, " (last error: %s)\n", cairn_last_error()); \
            abort();                                                    \
        }                                                               \
    } while (0)

uint32_t ts_store_pick(struct ts_store *s, uint32_t n);
bool ts_value_is(uint32_t key, const struct ts_value *v, const struct pm_item_view *item);
int ts_store_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old);
void ts_store_hand_out(struct ts_store *s, struct ts_slot *t);

#endif
