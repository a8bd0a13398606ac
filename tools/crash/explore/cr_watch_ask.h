/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch_ask.h: questions to functions of the product; cr_watch_ask.c says what for.
 */
#ifndef CR_WATCH_ASK_H
#define CR_WATCH_ASK_H

#include "tools/crash/explore/cr_explore_internal.h"

#define CR_ASK_UNITS 48u
#define CR_ASK_OBJECTS 24u
#define CR_ASK_COMBINATIONS 4096u

struct cr_question {
    struct cr_level *level; /* whose run it is: cr_reads_level() */
    uint32_t pool;
    struct { uint64_t off, size; } object[CR_ASK_OBJECTS];
    uint32_t objects;
    struct { uint32_t number, object; } unit[CR_ASK_UNITS]; /* of what is open there */
    uint32_t units;
    uint64_t salt; /* of the function and its arguments */
    uint64_t (*answer)(void *arg);
    void *arg;
    uint32_t limit; /* of combinations; 0: CR_ASK_COMBINATIONS */
    bool finds;     /* where it reads is not known before */
    bool by_object; /* it looks at them one by one */
    bool strange;   /* read something open that is in none of the objects */
};

/* False: too many, or no place for it. */
bool cr_ask_object(struct cr_question *q, uint64_t off, uint64_t size);
/* True: the answer is the same for all images of the run's set, which may have become smaller; none
 * of the words has been read. False: call the function, and all that it reads is read. */
bool cr_ask(struct cr_question *q);
uint64_t cr_ask_hash(uint64_t hash, const void *at, size_t size);

#endif
