/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_stand.h: a test stand for faults of the medium and of single calls: the pools of a small
 * cluster are made once (values, deleted keys, an ended slot with tombstones, a grown index, and
 * records that are committed but not applied yet), then any number of variants of them are started
 * and read. What is right is known outside of the pools.
 *
 * A variant ends in one of few ways (struct cr_stand_outcome): a node refused its pool with an
 * error; a read failed with an error; or a value was returned, and then it must be the right one.
 */
#ifndef CR_STAND_H
#define CR_STAND_H

#include "pmem/pm_pool.h"
#include "tools/sim/sim_fabric.h"
#include "txn/txn_config.h"

#define CR_STAND_NODES 2u
#define CR_STAND_KEYS 24u
#define CR_STAND_TABLE 1u
#define CR_STAND_VALUE_MAX 1024u

struct cr_stand_key {
    char name[12];
    uint8_t node;             /* where it lives, from 0 */
    uint32_t value;           /* its value's number; 0: deleted */
    uint32_t before;          /* what a reader would see were its last record lost */
    uint32_t size;            /* of values */
    bool logged;              /* its last record is in a ring, not applied */
    bool alone;               /* and names this node alone: without a mark */
};

struct cr_stand_pool { /* one node's, as bytes */
    uint8_t *bytes;
    uint8_t *earlier; /* the same pool before the last records: an older copy */
};

struct cr_stand {
    struct txn_config config;
    uint64_t pool_size, super_off;
    struct cr_stand_pool pool[CR_STAND_NODES];
    struct pm_super super[CR_STAND_NODES];
    uint32_t crc_seed[CR_STAND_NODES];
    struct cr_stand_key key[CR_STAND_KEYS];
    uint32_t records; /* committed, not applied */
    struct sim_pool **spare; /* of an ended try, for the next one: their memory is not taken anew */
};

struct cr_stand_outcome {
    int open[CR_STAND_NODES]; /* of each node's start: 0, or why it refused its pool */
    char text[CR_STAND_NODES][160];
    uint32_t right;   /* keys with the right value, or absent and so it should be */
    uint32_t failed;  /* reads that ended with an error */
    int error;        /* the first of these */
    uint32_t stale;   /* keys with the value that they had before the last record */
    uint32_t stale_alone; /* of them: that record named one node alone */
    uint32_t wrong;   /* any other value, or none where one should be, or one where none should */
    char what[160];   /* the first stale or wrong one, in words */
    uint64_t rejected; /* records that nodes report as committed and damaged */
    int write;        /* of the transactions behind the reads; 0: COMMITTED */
    bool hung;        /* the client did not come to an end in time */
    uint64_t allocations[CR_STAND_NODES + 1]; /* by nodes and the client */
    bool alloc_failed; /* the allocation that was to fail was reached */
    bool call_failed;  /* the call of the fabric was */
    uint64_t damages;   /* that fsck finds at the end, and ... */
    uint64_t canonical; /* ... its hash over what is stored, of all pools; without `quick` */
    uint64_t choices, hash;
};

/* What is done in a variant besides the pools' bytes. */
struct cr_stand_variant {
    uint64_t seed;
    uint8_t *bytes[CR_STAND_NODES]; /* the pools. Owner: the caller; written back at the end */
    bool write_back;              /* leave what became of the pools in `bytes` */
    bool quick;  /* one try per key, no more reads of a node that is down, no write */
    uint32_t grow; /* so many new keys besides; and another client dies between its records */
    uint64_t late_ns[CR_STAND_NODES]; /* start of a node, after the first moment */
    uint64_t rest_ns; /* so long nothing happens at the end; not with `quick` */
    const struct cn_pace *pace; /* nodes rest and sleep as they do in production; NULL: by turns */
    uint64_t power_ns; /* all nodes lose power so long after the first start, and start again; 0 */
    uint32_t fail_actor; /* allocation `fail_at` of actor (nodes, then the client) fails; 0: none */
    uint64_t fail_at;
    struct { uint32_t actor; enum sim_call call, then; uint64_t at; } fail; /* of the fabric */
    enum txn_persistence persistence; /* of nodes, instead of apm; AUTO (0): apm */
    uint16_t first_id;                /* the first node is started as this one; 0: 1 */
    bool close;   /* nodes are closed cleanly at the end; not with `quick` */
    bool trusted; /* the attacker may take any lock, as coordinators can: nobody watches it */
    bool serve_damaged; /* nodes serve although a committed record is lost */
    struct cr_stand_clock { /* of nodes and the client, against the time of making */
        int64_t wall_jump_s;
        bool wall_frozen;
        uint64_t ahead; /* the monotonic one, in ns */
        int32_t ppm;
    } clock[CR_STAND_NODES + 1];
    bool verbose;
    /* Runs in another client's fiber beside the reader; NULL: nobody. */
    void (*attack)(struct sim_actor *actor, const struct cr_stand *stand, void *arg);
    void *attack_arg;
};

/* Where the last records' sequences and log offsets begin, instead of a few and a few hundred. */
struct cr_stand_start {
    uint64_t seq;     /* 0: as it comes */
    uint64_t log_off; /* a multiple of 64, beyond what has been written; 0: as it comes */
};
/* NULL: could not be made; `why` (of `size`) says why. `start` may be NULL. Owner: the caller. */
struct cr_stand *cr_stand_new(
    uint64_t seed, const struct cr_stand_start *start, char *why, size_t size);
void cr_stand_delete(struct cr_stand **stand);
/* A copy of a pool, as it is or as it was. Owner: the caller, sim_free(). */
uint8_t *cr_stand_copy(const struct cr_stand *stand, uint32_t node, bool earlier);
void cr_stand_try(const struct cr_stand *stand, const struct cr_stand_variant *variant,
    struct cr_stand_outcome *ret);
/* A look at bytes of a pool, writable. Errors: those of pm_attach(). */
CN_MUST_CHECK int cr_stand_look(
    const struct cr_stand *stand, uint8_t *bytes, struct pm_pool *ret);
/* Bytes of a value; returns the size. */
uint32_t cr_stand_value(const struct cr_stand_key *key, uint32_t value, uint8_t *ret);

static inline bool cr_stand_refused(const struct cr_stand_outcome *o)
{
    return o->open[0] != 0 || o->open[1] != 0;
}


/* ---- between the files ---- */
struct rec_node;
struct cairn_ctx;
/* Nothing is under way: the context and the node number `at` of it go on from there. */
void cr_stand_shift(struct cairn_ctx *ctx, uint32_t at, struct rec_node *node,
    const struct cr_stand_start *start);

#endif
