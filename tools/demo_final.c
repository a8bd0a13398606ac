/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_final.c: the end of the demo: verdicts by token, the final state, the replay of the ledgers,
 * a look into the pools.
 */
#include <errno.h>
#include <unistd.h>

#include "tools/demo.h"
#include "tools/tl_pool.h"

#define READ_BATCH 50u /* accounts per transaction: two keys each */
#define READ_TIMEOUT_MS 20000u
#define RESOLVE_TIMEOUT_NS UINT64_C(20000000000)
#define VIOLATIONS_SAID_MAX 20u

struct final {
    struct demo *d;
    struct cairn *cluster;
    struct cairn_ctx *ctx;
    struct sb_tables tables;
    struct dl ledger[DEMO_WRITERS_MAX];
    uint32_t ledger_count;
    struct sb_value *value;
    uint8_t *present;
};

static void say_violation(void *arg, const char *text)
{
    struct demo *d = arg;

    if (d->violations_said++ < VIOLATIONS_SAID_MAX)
        demo_say(d, "VIOLATION: %s", text);
}

/* Any writer may be missing: a process killed before it made its ledger. */
static int open_ledgers(struct final *f)
{
    for (uint32_t w = 1; w <= DEMO_WRITERS_MAX; w++) {
        char path[DEMO_PATH_MAX];
        demo_ledger_path(f->d->folder, w, path);
        if (access(path, F_OK) != 0)
            continue;
        int rc = dl_open(path, &f->ledger[w - 1]);
        if (rc != 0)
            return rc;
        f->ledger_count = w;
    }
    return 0;
}

static int resolve_entry(
    struct final *f, const struct dl *ledger, struct dl_entry *e, uint64_t deadline_ns)
{
    const char *token = dl_token(ledger, e);
    enum cairn_outcome outcome;
    int rc;

    if ((e->state != DL_INTENDED && e->state != DL_UNKNOWN) || e->told != DL_NONE || token == NULL)
        return 0;
    for (;;) {
        rc = cairn_resolve(f->ctx, token, &outcome);
        if (rc == 0)
            e->told = outcome == CAIRN_OUTCOME_COMMITTED ? DL_COMMITTED : DL_ABORTED;
        if (rc == 0 || rc == CAIRN_E_EXPIRED)
            return 0; /* expired: the keys will tell */
        if (rc == CAIRN_E_TOKEN || cn_now_ns(cn_env_system()) > deadline_ns)
            return cn_fail_context(rc, "writer %u, number %u: ", ledger->header->writer, e->number);
        (void)usleep(20000);
        demo_tick(f->d);
    }
}

static int resolve_all(struct final *f)
{
    uint64_t deadline = cn_now_ns(cn_env_system()) + RESOLVE_TIMEOUT_NS;

    for (uint32_t w = 0; w < f->ledger_count; w++) {
        struct dl *ledger = &f->ledger[w];
        for (uint32_t n = 0; ledger->header != NULL && n < ledger->header->entry_count; n++) {
            int rc = resolve_entry(f, ledger, &ledger->entry[n], deadline);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

struct batch {
    struct final *f;
    uint32_t from, to; /* keys */
};

static int read_batch(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    struct final *f = b->f;

    for (uint32_t key = b->from; key < b->to; key++) {
        uint8_t name[SB_KEY_SIZE], bytes[SB_VALUE_SIZE + 1];
        size_t size = 0;
        sb_key_pack(key, name);
        int rc = cairn_get(tx, key % 2 == 0 ? f->tables.savings : f->tables.checking, name,
            sizeof(name), bytes, sizeof(bytes), &size);
        f->present[key] = rc == 0 && sb_value_unpack(bytes, size, &f->value[key]);
        if (rc != 0 && rc != CAIRN_E_NOT_FOUND)
            return rc;
    }
    return 0;
}

static int read_state(struct final *f)
{
    uint32_t keys = (uint32_t)f->d->accounts * 2;

    f->value = calloc(keys, sizeof(*f->value));
    f->present = calloc(keys, 1);
    if (f->value == NULL || f->present == NULL)
        return cn_fail(-ENOMEM, "out of memory for the final state");
    for (uint32_t key = 0; key < keys; key += 2 * READ_BATCH) {
        struct batch b = {f, key, key + 2 * READ_BATCH < keys ? key + 2 * READ_BATCH : keys};
        int rc = cairn_run(f->ctx, read_batch, &b, READ_TIMEOUT_MS, NULL);
        if (rc != 0)
            return cn_fail_context(rc, "final read of account %u: ", key / 2);
        demo_tick(f->d);
    }
    return 0;
}

static int open_cluster(struct final *f)
{
    int rc = cairn_open(f->d->config, NULL, &f->cluster);

    if (rc == 0)
        rc = cairn_table(f->cluster, "savings", &f->tables.savings);
    if (rc == 0)
        rc = cairn_table(f->cluster, "checking", &f->tables.checking);
    if (rc == 0)
        rc = cairn_ctx_open(f->cluster, &f->ctx);
    return rc;
}

static void close_final(struct final *f)
{
    if (f->ctx != NULL)
        cairn_ctx_close(&f->ctx);
    if (f->cluster != NULL)
        cairn_close(&f->cluster);
    for (uint32_t w = 0; w < f->ledger_count; w++)
        dl_close(&f->ledger[w]);
    free(f->value);
    free(f->present);
    free(f);
}

int demo_verify(struct demo *d)
{
    struct final *f = calloc(1, sizeof(*f));
    int rc;

    if (f == NULL)
        return cn_fail(-ENOMEM, "out of memory for the final check");
    f->d = d;
    rc = open_ledgers(f);
    if (rc == 0)
        rc = open_cluster(f);
    if (rc == 0) {
        (void)snprintf(d->state, sizeof(d->state), "asking for verdicts");
        rc = resolve_all(f);
    }
    if (rc == 0) {
        (void)snprintf(d->state, sizeof(d->state), "reading all accounts");
        rc = read_state(f);
    }
    if (rc == 0) {
        const struct dc_input input = {
            .ledger = f->ledger,
            .ledger_count = f->ledger_count,
            .final = f->value,
            .present = f->present,
            .key_count = (uint32_t)d->accounts * 2,
            .initial_balance = SB_INITIAL_BALANCE,
            .violation = say_violation,
            .arg = d,
        };
        (void)snprintf(d->state, sizeof(d->state), "replaying the ledgers");
        rc = demo_check(&input, &d->result);
    }
    close_final(f);
    return rc;
}

int demo_verify_pools(struct demo *d)
{
    for (uint32_t i = 0; i < DEMO_NODES; i++) {
        struct tl_pool_look look;
        char path[DEMO_PATH_MAX];
        json_t *root = NULL;
        (void)snprintf(path, sizeof(path), "%s/n%u.pool", d->folder, i + 1);
        int rc = tl_pool_look(path, true, &look, &root);
        if (rc != 0)
            return rc;
        const json_t *errors = json_object_get(root, "errors");
        for (size_t e = 0; e < json_array_size(errors); e++)
            say_violation(d, json_string_value(json_array_get(errors, e)));
        if (!json_is_true(json_object_get(root, "clean"))) {
            d->totals.unclean_pools++;
            say_violation(d, "a pool is not clean after a clean stop");
        }
        json_decref(root);
        d->totals.ring_records += look.records;
        d->totals.damages += look.errors;
        d->totals.leaked_locks += look.fsck.words_locked;
    }
    return 0;
}
