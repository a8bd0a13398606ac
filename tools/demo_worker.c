/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_worker.c: `cairn demo-worker`, a coordinator process of the demo: some contexts, one thread
 * each. The first generation loads its part of the accounts. Then each context runs SmallBank and
 * keeps a ledger, until it is told to stop or its process is killed.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/demo.h"

#define LOAD_BATCH 60u /* accounts per transaction: two keys each */
#define LOAD_TIMEOUT_MS 30000u
#define TOKEN_ONE_IN 16u /* transactions that take their token before commit */
#define RESOLVE_PAUSE_MS 20u
#define ERROR_PAUSE_MS 2u

struct worker {
    struct demo_control *control;
    struct cairn *cluster;
    const char *folder;
    struct sb_tables tables;
    uint32_t process, generation, context, writer;
    struct cairn_ctx *ctx;
    struct dl ledger;
    uint64_t random;
    struct demo_counters *counters;
    int error;
    char text[512];
};

static uint32_t phase_of(const struct worker *w)
{
    return __atomic_load_n(&w->control->phase, __ATOMIC_ACQUIRE);
}

static void add(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static void pause_ms(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* ---- load ---- */

struct batch {
    const struct worker *w;
    uint32_t from, to;
};

static int put_batch(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    const struct sb_value value = {.balance = SB_INITIAL_BALANCE};
    uint8_t name[SB_KEY_SIZE], bytes[SB_VALUE_SIZE];

    sb_value_pack(&value, bytes);
    for (uint32_t account = b->from; account < b->to; account++) {
        sb_key_pack(sb_savings(account), name);
        int rc = cairn_put(tx, b->w->tables.savings, name, sizeof(name), bytes, sizeof(bytes));
        if (rc == 0)
            rc = cairn_put(tx, b->w->tables.checking, name, sizeof(name), bytes, sizeof(bytes));
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int load(struct worker *w)
{
    struct demo_control *c = w->control;
    uint32_t parts = c->processes * c->contexts, part = w->process * c->contexts + w->context;
    uint32_t from = (uint32_t)((uint64_t)c->accounts * part / parts);
    uint32_t end = (uint32_t)((uint64_t)c->accounts * (part + 1) / parts);

    while (from < end) {
        struct batch b = {w, from, from + LOAD_BATCH < end ? from + LOAD_BATCH : end};
        int rc = cairn_run(w->ctx, put_batch, &b, LOAD_TIMEOUT_MS, NULL);
        if (rc != 0)
            return rc;
        add(&c->loaded, b.to - b.from);
        from = b.to;
    }
    __atomic_fetch_sub(&c->loading, 1, __ATOMIC_ACQ_REL);
    return 0;
}

/* ---- SmallBank ---- */

/* Ask until there is a verdict, or the demo ends. */
static void resolve(struct worker *w, struct dl_entry *entry)
{
    const char *token = dl_token(&w->ledger, entry);
    enum cairn_outcome outcome;

    while (token != NULL && phase_of(w) == DEMO_RUN) {
        int rc = cairn_resolve(w->ctx, token, &outcome);
        if (rc == 0) {
            entry->told = outcome == CAIRN_OUTCOME_COMMITTED ? DL_COMMITTED : DL_ABORTED;
            add(&w->counters->resolved, 1);
            return;
        }
        if (rc == CAIRN_E_EXPIRED || rc == CAIRN_E_TOKEN)
            return;
        pause_ms(RESOLVE_PAUSE_MS);
    }
}

static void note_outcome(
    struct worker *w, struct dl_entry *entry, int rc, enum cairn_outcome outcome)
{
    char token[CAIRN_TOKEN_SIZE];

    entry->error = rc;
    if (rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED) {
        dl_set(entry, DL_COMMITTED);
        add(&w->counters->committed, 1);
    } else if (rc == 0 && outcome == CAIRN_OUTCOME_UNKNOWN) {
        if (cairn_ctx_token(w->ctx, token) == 0)
            dl_keep_token(&w->ledger, entry, token);
        dl_set(entry, DL_UNKNOWN);
        add(&w->counters->unknown, 1);
        resolve(w, entry);
    } else {
        dl_set(entry, DL_ABORTED);
        add(&w->counters->aborted, 1);
        if (rc != 0 && rc != CAIRN_E_CONFLICT)
            pause_ms(ERROR_PAUSE_MS);
    }
}

/* Now and then take the token first, so that the killed ones can be asked for by it too. */
static int maybe_take_token(struct worker *w, struct cairn_tx *tx, struct dl_entry *entry)
{
    char token[CAIRN_TOKEN_SIZE];

    if (entry->kind == SB_BALANCE || sb_random(&w->random) % TOKEN_ONE_IN != 0 ||
        w->ledger.header->token_count > DL_TOKENS_MAX / 2)
        return 0;
    int rc = cairn_tx_token(tx, token);
    if (rc == 0)
        dl_keep_token(&w->ledger, entry, token);
    return rc;
}

static int commit(struct worker *w, struct cairn_tx *tx, struct dl_entry *entry)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;

    dl_set(entry, DL_INTENDED);
    int rc = cairn_commit(tx, &outcome);
    note_outcome(w, entry, rc, outcome);
    return rc;
}

/* One attempt of one transaction. False: the ledger is full. */
static bool attempt(struct worker *w)
{
    struct dl_entry *entry = dl_next(&w->ledger);
    struct cairn_tx *tx;
    struct sb_plan plan;
    uint32_t count = 0;

    if (entry == NULL)
        return false;
    sb_draw(&w->random, w->control->accounts, &plan);
    entry->kind = (uint8_t)plan.kind;
    int rc = cairn_begin(w->ctx, &tx);
    if (rc != 0) {
        note_outcome(w, entry, rc, CAIRN_OUTCOME_ABORTED);
        return true;
    }
    struct sb_value stamp = {.writer = w->writer, .number = entry->number};
    rc = sb_execute(tx, &w->tables, &plan, &stamp, entry->touch, &count, &entry->delta);
    entry->touch_count = (uint8_t)count;
    if (rc == 0)
        rc = maybe_take_token(w, tx, entry);
    if (rc != 0) {
        cairn_abort(tx);
        note_outcome(w, entry, rc == SB_REFUSED ? 0 : rc, CAIRN_OUTCOME_ABORTED);
    } else {
        rc = commit(w, tx, entry);
    }
    if (rc < 0 && rc <= CAIRN_E_CORRUPT_SUPER && rc >= CAIRN_E_VERSION_END) {
        fprintf(stderr, "writer %u: %s\n", w->writer, cairn_last_error());
        w->error = rc;
    }
    return true;
}

static void *run_context(void *arg)
{
    struct worker *w = arg;
    char path[DEMO_PATH_MAX];

    demo_ledger_path(w->folder, w->writer, path);
    w->random = w->control->seed * UINT64_C(0x9e3779b97f4a7c15) + w->writer;
    w->error = dl_create(path, w->writer, w->control->entry_max, &w->ledger);
    if (w->error == 0)
        w->error = cairn_ctx_open(w->cluster, &w->ctx);
    if (w->error == 0 && w->generation == 0)
        w->error = load(w);
    while (w->error == 0 && phase_of(w) == DEMO_LOAD)
        pause_ms(1);
    while (w->error == 0 && phase_of(w) == DEMO_RUN) {
        if (!attempt(w))
            pause_ms(10);
    }
    if (w->error != 0)
        cn_error_copy(w->text, sizeof(w->text));
    if (w->ctx != NULL)
        cairn_ctx_close(&w->ctx);
    dl_close(&w->ledger);
    return NULL;
}

static int run_contexts(struct worker *w, uint32_t count)
{
    pthread_t thread[DEMO_CONTEXTS_MAX];
    int rc = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (pthread_create(&thread[i], NULL, run_context, &w[i]) != 0) {
            fprintf(stderr, "demo-worker: cannot start a thread\n");
            _exit(TL_USAGE);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)pthread_join(thread[i], NULL);
        if (w[i].error != 0) {
            fprintf(stderr, "writer %u: %s: %s\n", w[i].writer, cairn_error_name(w[i].error),
                w[i].text);
            rc = w[i].error;
        }
    }
    return rc;
}

static int open_cluster(const char *folder, struct worker *ret)
{
    char path[DEMO_PATH_MAX];
    int rc;

    (void)snprintf(path, sizeof(path), "%s/cairn.conf", folder);
    rc = demo_control_map(folder, false, &ret->control);
    if (rc == 0)
        rc = cairn_open(path, NULL, &ret->cluster);
    if (rc == 0)
        rc = cairn_table(ret->cluster, "savings", &ret->tables.savings);
    if (rc == 0)
        rc = cairn_table(ret->cluster, "checking", &ret->tables.checking);
    return rc;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    const char *folder = NULL;
    uint64_t process = 0, generation = 0;
    const struct tl_option options[] = {
        {.name = "folder", .arg = "DIR", .help = "of the demo", .text = &folder},
        {.name = "process",
            .arg = "N",
            .help = "number of this process",
            .number = &process,
            .max = DEMO_PROCESSES_MAX - 1},
        {.name = "generation",
            .arg = "N",
            .help = "how often it was started before",
            .number = &generation,
            .max = DEMO_GENERATIONS_MAX - 1},
        {.name = NULL},
    };
    struct worker w[DEMO_CONTEXTS_MAX] = {{0}};
    int first, rc = tl_parse(self, options, argc, argv, 0, 0, &first);

    if (rc != -1)
        return rc;
    if (folder == NULL)
        return tl_error(self, "--folder is needed");
    rc = open_cluster(folder, &w[0]);
    if (rc != 0)
        return tl_cairn_error(self, rc, false);
    uint32_t count = w[0].control->contexts;
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0)
            w[i] = w[0];
        w[i].folder = folder;
        w[i].process = (uint32_t)process;
        w[i].generation = (uint32_t)generation;
        w[i].context = i;
        w[i].writer = demo_writer(w[0].control, w[i].process, w[i].generation, i);
        w[i].counters = &w[0].control->writer[w[i].writer - 1];
    }
    rc = run_contexts(w, count);
    cairn_close(&w[0].cluster);
    return rc == 0 ? TL_OK : TL_USAGE;
}

const struct tl_command cmd_demo_worker = {
    .name = "demo-worker",
    .args = "--folder DIR --process N --generation N",
    .summary = "A coordinator process of the demo.",
    .example = "  (started by `cairn demo`)\n",
    .run = run,
    .hidden = true,
};
