/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vm_run.c: `vm_load run`; see vm_load.h. Nodes may be away for any time: every error that a call
 * may return is counted, and the load goes on.
 */
#include "tests/vm/vm_load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define PENDING_MAX 64u
#define RESOLVE_EVERY_NS UINT64_C(100000000)
#define RESOLVE_END_NS UINT64_C(10000000000)
#define ERROR_PAUSE_MS 20u
#define SETUP_TRY_MS 5000u
#define SAY_EVERY_NS UINT64_C(2000000000)
#define TRANSFER_MAX 50u
#define WRONG 1 /* of a body: what it read is wrong */

struct counters { /* atomic */
    uint64_t committed, aborted, errors, unknown, resolved, bad, last_ack_ns, gap_ns_max;
};

struct thread {
    const struct vl_options *options;
    const struct vl_place *place;
    struct counters *counters;
    int ledger;
    pthread_t id;
    struct vl_writer writer;
    struct cairn_ctx *ctx;
    uint64_t random, number, resolve_ns;
    uint64_t group[VL_GROUPS]; /* last number known to be committed */
    struct {
        uint64_t number;
        bool there;
    } slot[VL_SLOTS];
    struct vl_line pending[PENDING_MAX]; /* unknown ones without a verdict, oldest first */
    uint32_t pending_count;
    int error; /* why it ended, but for being told */
    char text[512];
};

static uint64_t now_ns(void)
{
    return cn_now_ns(cn_env_system());
}

static void pause_ms(uint32_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static uint32_t draw(struct thread *t, uint32_t n)
{
    t->random += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(cn_mix64(t->random) % n);
}

static void add(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- what is known ---- */

static void learn(struct thread *t, const struct vl_line *line)
{
    if (line->number > t->group[line->group])
        t->group[line->group] = line->number;
    if (line->op != '.' && line->number > t->slot[line->slot].number) {
        t->slot[line->slot].number = line->number;
        t->slot[line->slot].there = line->op == '+';
    }
}

static bool group_fits(const struct thread *t, uint32_t group, uint64_t number)
{
    if (number == t->group[group])
        return true;
    for (uint32_t i = 0; i < t->pending_count; i++) {
        const struct vl_line *l = &t->pending[i];
        if (l->group == group && l->number == number && number > t->group[group])
            return true;
    }
    return false;
}

static bool slot_fits(const struct thread *t, uint32_t slot, uint64_t number)
{
    uint64_t known = t->slot[slot].there ? t->slot[slot].number : 0;

    if (number == known)
        return true;
    for (uint32_t i = 0; i < t->pending_count; i++) {
        const struct vl_line *l = &t->pending[i];
        if (l->op == '.' || l->slot != slot || l->number < t->slot[slot].number)
            continue;
        if (number == (l->op == '+' ? l->number : 0))
            return true;
    }
    return false;
}

/* ---- one transaction ---- */

static int write_group(struct thread *t, struct cairn_tx *tx, const struct vl_line *plan)
{
    uint32_t count = vl_member_count(t->place, plan->group);
    uint64_t number[VL_MEMBERS_MAX];
    struct vl_key key[VL_MEMBERS_MAX];
    int rc = 0;

    for (uint32_t i = 0; i < count && rc == 0; i++) {
        vl_member_key(t->place, &t->writer, plan->group, i, &key[i]);
        rc = vl_get(tx, &key[i], true, &number[i]);
    }
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (number[i] != number[0] || !group_fits(t, plan->group, number[i])) {
            (void)snprintf(t->text, sizeof(t->text),
                "register %s is %" PRIu64 ", the first of its group %" PRIu64 ", known %" PRIu64,
                key[i].name, number[i], number[0], t->group[plan->group]);
            return WRONG;
        }
    }
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = vl_put(tx, &key[i], plan->number);
    return rc;
}

static int write_slot(struct thread *t, struct cairn_tx *tx, struct vl_line *plan)
{
    struct vl_key key;
    uint64_t number;

    plan->op = '.';
    plan->slot = draw(t, VL_SLOTS);
    if (draw(t, 2) == 0)
        return 0;
    vl_slot_key(t->place, &t->writer, plan->slot, &key);
    int rc = vl_get(tx, &key, true, &number);
    if (rc != 0)
        return rc;
    if (!slot_fits(t, plan->slot, number)) {
        (void)snprintf(t->text, sizeof(t->text),
            "slot %s is %" PRIu64 ", known %s%" PRIu64, key.name, number,
            t->slot[plan->slot].there ? "" : "deleted by ", t->slot[plan->slot].number);
        return WRONG;
    }
    plan->op = number == 0 ? '+' : '-';
    return number == 0 ? vl_put(tx, &key, plan->number)
                       : cairn_delete(tx, key.table, key.name, strlen(key.name));
}

static int transfer(struct thread *t, struct cairn_tx *tx)
{
    uint32_t from = draw(t, VL_ACCOUNTS), to = (from + 1 + draw(t, VL_ACCOUNTS - 1)) % VL_ACCOUNTS;
    int64_t amount = 1 + draw(t, TRANSFER_MAX), a, b;
    struct vl_key key[2];

    if (draw(t, 2) == 0)
        return 0;
    vl_account_key(t->place, from, &key[0]);
    vl_account_key(t->place, to, &key[1]);
    int rc = vl_get_balance(tx, &key[0], true, &a);
    if (rc == 0)
        rc = vl_get_balance(tx, &key[1], true, &b);
    if (rc == CAIRN_E_NOT_FOUND) {
        (void)snprintf(t->text, sizeof(t->text), "an account is gone");
        return WRONG;
    }
    if (rc != 0 || a < amount)
        return rc;
    rc = vl_put_balance(tx, &key[0], a - amount);
    return rc == 0 ? vl_put_balance(tx, &key[1], b + amount) : rc;
}

static const char *name_of(const struct thread *t, char text[48])
{
    (void)snprintf(text, 48, "%" PRIu64 " %u", t->writer.seed, t->writer.thread);
    return text;
}

static int note_wrong(struct thread *t, uint64_t number)
{
    char name[48];

    add(&t->counters->bad);
    (void)fprintf(stderr, "vm_load: WRONG: %s\n", t->text);
    return vl_ledger_write(
        t->ledger, "bad %s %" PRIu64 " %.150s", name_of(t, name), number, t->text);
}

static int note_committed(struct thread *t, const struct vl_line *plan)
{
    char name[48];
    int rc = vl_ledger_write(t->ledger, "ok %s %" PRIu64 " %u %u %c", name_of(t, name),
        plan->number, plan->group, plan->slot, plan->op);

    learn(t, plan);
    add(&t->counters->committed);
    uint64_t now = now_ns();
    uint64_t before = __atomic_exchange_n(&t->counters->last_ack_ns, now, __ATOMIC_RELAXED);
    if (now > before && now - before > t->counters->gap_ns_max)
        t->counters->gap_ns_max = now - before;
    return rc;
}

static int note_unknown(struct thread *t, const struct vl_line *plan)
{
    char name[48];

    add(&t->counters->unknown);
    t->pending[t->pending_count++] = *plan;
    return vl_ledger_write(t->ledger, "unknown %s %" PRIu64 " %u %u %c %s", name_of(t, name),
        plan->number, plan->group, plan->slot, plan->op, plan->token);
}

/* A call failed: wrong content ends in the ledger, all else is the weather. */
static int note_error(struct thread *t, uint64_t number, int rc)
{
    if (rc == WRONG)
        return note_wrong(t, number);
    if (rc <= CAIRN_E_CORRUPT_SUPER && rc >= CAIRN_E_VERSION_END) {
        (void)snprintf(t->text, sizeof(t->text), "%s", cairn_last_error());
        return note_wrong(t, number);
    }
    if (rc == 0 || rc == CAIRN_E_CONFLICT) {
        add(&t->counters->aborted);
        return 0;
    }
    add(&t->counters->errors);
    pause_ms(ERROR_PAUSE_MS);
    return 0;
}

static int commit_in_doubt(struct thread *t, struct vl_line *plan)
{
    int rc = cairn_ctx_token(t->ctx, plan->token);

    /* Without it nobody could ever find out. */
    return rc == 0 ? note_unknown(t, plan) : cn_fail_context(rc, "no token after UNKNOWN: ");
}

/* --doubt: an aborted transaction is called unknown; what becomes of it is for cairn_resolve(). */
static int abort_in_doubt(struct thread *t, struct cairn_tx *tx, struct vl_line *plan)
{
    int rc = cairn_tx_token(tx, plan->token);

    cairn_abort(tx);
    return rc == 0 ? note_unknown(t, plan) : note_error(t, plan->number, rc);
}

static int attempt(struct thread *t)
{
    bool doubt = t->options->doubt != 0 && draw(t, t->options->doubt) == 0;
    struct vl_line plan = {.writer = t->writer, .number = ++t->number};
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    struct cairn_tx *tx;
    int rc = cairn_begin(t->ctx, &tx);

    if (rc != 0)
        return note_error(t, plan.number, rc);
    plan.group = draw(t, VL_GROUPS);
    rc = write_group(t, tx, &plan);
    if (rc == 0)
        rc = write_slot(t, tx, &plan);
    if (rc == 0)
        rc = transfer(t, tx);
    if (rc != 0) {
        cairn_abort(tx);
        return note_error(t, plan.number, rc);
    }
    if (doubt && draw(t, 2) == 0)
        return abort_in_doubt(t, tx, &plan);
    rc = cairn_commit(tx, &outcome);
    if (rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED && !doubt)
        return note_committed(t, &plan);
    if (rc == 0 && (outcome == CAIRN_OUTCOME_UNKNOWN || outcome == CAIRN_OUTCOME_COMMITTED))
        return commit_in_doubt(t, &plan);
    return note_error(t, plan.number, rc);
}

/* ---- unknown ones ---- */

/* Ask for the oldest. */
static int resolve_one(struct thread *t)
{
    struct vl_line line = t->pending[0];
    enum cairn_outcome outcome;
    char name[48];
    int rc = cairn_resolve(t->ctx, line.token, &outcome);

    t->resolve_ns = now_ns() + RESOLVE_EVERY_NS;
    memmove(&t->pending[0], &t->pending[1], --t->pending_count * sizeof(t->pending[0]));
    if (rc == CAIRN_E_EXPIRED || rc == CAIRN_E_TOKEN) {
        (void)snprintf(t->text, sizeof(t->text), "token %s: %s", line.token, cairn_last_error());
        return note_wrong(t, line.number);
    }
    if (rc != 0) {
        t->pending[t->pending_count++] = line;
        return 0;
    }
    add(&t->counters->resolved);
    bool committed = outcome == CAIRN_OUTCOME_COMMITTED;
    if (committed)
        learn(t, &line);
    return vl_ledger_write(t->ledger, "verdict %s %" PRIu64 " %s", name_of(t, name), line.number,
        committed ? "committed" : "aborted");
}

static int finish(struct thread *t)
{
    uint64_t end = now_ns() + RESOLVE_END_NS;
    char name[48];
    int rc = 0;

    while (rc == 0 && t->pending_count != 0 && now_ns() < end) {
        rc = resolve_one(t);
        pause_ms(ERROR_PAUSE_MS);
    }
    return rc == 0
        ? vl_ledger_write(t->ledger, "end %s %" PRIu64, name_of(t, name), t->number)
        : rc;
}

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    int rc = cairn_ctx_open(t->place->cluster, &t->ctx);

    while (rc == 0 && !vl_stop) {
        if (t->pending_count != 0 && now_ns() >= t->resolve_ns)
            rc = resolve_one(t);
        if (rc == 0 && t->pending_count < PENDING_MAX)
            rc = attempt(t);
        else if (rc == 0)
            pause_ms(ERROR_PAUSE_MS);
    }
    if (rc == 0)
        rc = finish(t);
    if (rc != 0)
        (void)snprintf(
            t->text, sizeof(t->text), "%s: %s", cairn_error_name(rc), cairn_last_error());
    t->error = rc;
    if (rc != 0)
        vl_stop = 1;
    if (t->ctx != NULL)
        cairn_ctx_close(&t->ctx);
    return NULL;
}

/* ---- set-up ---- */

static int make_accounts(struct cairn_tx *tx, void *arg)
{
    const struct vl_place *place = arg;
    struct vl_key key;
    int64_t balance;
    int rc = 0;

    vl_account_key(place, 0, &key);
    rc = vl_get_balance(tx, &key, false, &balance);
    if (rc != CAIRN_E_NOT_FOUND)
        return rc;
    rc = 0;
    for (uint32_t i = 0; i < VL_ACCOUNTS && rc == 0; i++) {
        vl_account_key(place, i, &key);
        rc = vl_put_balance(tx, &key, VL_BALANCE);
    }
    return rc;
}

/* A seed that was used before has registers that this run knows nothing of. */
static int check_seed(struct cairn_tx *tx, void *arg)
{
    const struct thread *t = arg;
    struct vl_key key;
    uint64_t number;
    int rc = 0;

    for (uint32_t i = 0; i < VL_GROUPS && rc == 0; i++) {
        vl_member_key(t->place, &t->writer, i, 0, &key);
        rc = vl_get(tx, &key, false, &number);
        if (rc == 0 && number != 0)
            return cn_fail(CAIRN_E_STATE, "seed %" PRIu64 " was used before: take another",
                t->writer.seed);
    }
    return rc;
}

/* Until it works: the nodes may still be away. */
static int set_up(struct thread *t, struct vl_place *place)
{
    struct cairn_ctx *ctx;
    int rc = cairn_ctx_open(place->cluster, &ctx);
    bool made = false, checked = false;

    if (rc != 0)
        return rc;
    while (!vl_stop && !checked) {
        rc = made ? cairn_run(ctx, check_seed, t, SETUP_TRY_MS, NULL)
                  : cairn_run(ctx, make_accounts, place, SETUP_TRY_MS, NULL);
        if (rc == CAIRN_E_STATE && made)
            break;
        checked = made && rc == 0;
        made = made || rc == 0;
        if (rc != 0)
            pause_ms(ERROR_PAUSE_MS);
    }
    cairn_ctx_close(&ctx);
    return rc == CAIRN_E_STATE ? rc : 0;
}

static int start_threads(const struct vl_options *o, struct vl_place *place,
    struct counters *counters, int ledger, struct thread *thread)
{
    for (uint32_t i = 0; i < o->threads; i++)
        thread[i] = (struct thread){.options = o,
            .place = place,
            .counters = counters,
            .ledger = ledger,
            .writer = {o->seed, i},
            .random = cn_mix64(o->seed * VL_THREADS_MAX + i)};
    int rc = set_up(&thread[0], place);
    if (rc == 0) /* a line of its own, whatever a power failure left of the last one */
        rc = vl_ledger_write(ledger, "\nrun %" PRIu64 " %u", o->seed, o->threads);
    counters->last_ack_ns = now_ns();
    for (uint32_t i = 0; i < o->threads && rc == 0; i++) {
        if (pthread_create(&thread[i].id, NULL, run_thread, &thread[i]) != 0)
            cn_panic(__FILE__, __LINE__, "cannot start a thread");
    }
    return rc;
}

/* ---- the run ---- */

static void say(const struct counters *c)
{
    (void)fprintf(stderr,
        "vm_load: %" PRIu64 " committed, %" PRIu64 " aborted, %" PRIu64 " errors, %" PRIu64
        " unknown, %" PRIu64 " resolved, %" PRIu64 " wrong, longest gap %" PRIu64 " ms\n",
        c->committed, c->aborted, c->errors, c->unknown, c->resolved, c->bad,
        c->gap_ns_max / 1000000);
}

static void print_json(const struct counters *c)
{
    printf("{\"committed\":%" PRIu64 ",\"aborted\":%" PRIu64 ",\"errors\":%" PRIu64
           ",\"unknown\":%" PRIu64 ",\"resolved\":%" PRIu64 ",\"bad\":%" PRIu64
           ",\"gap_ms_max\":%" PRIu64 "}\n",
        c->committed, c->aborted, c->errors, c->unknown, c->resolved, c->bad,
        c->gap_ns_max / 1000000);
}

static void watch(const struct vl_options *o, const struct counters *c)
{
    uint64_t end = o->seconds == 0 ? UINT64_MAX : now_ns() + o->seconds * UINT64_C(1000000000);
    uint64_t next = now_ns() + SAY_EVERY_NS;

    while (!vl_stop && now_ns() < end) {
        pause_ms(ERROR_PAUSE_MS);
        if (now_ns() < next)
            continue;
        say(c);
        next += SAY_EVERY_NS;
    }
    vl_stop = 1;
}

int vl_run(const struct vl_options *o)
{
    static struct counters counters;
    static struct thread thread[VL_THREADS_MAX];
    struct vl_place place = {0};
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (o->sync ? O_SYNC : 0);
    int ledger = open(o->ledger, flags, 0600);
    int rc = ledger < 0 ? cn_fail(-errno, "%s: %s", o->ledger, strerror(errno)) : 0;

    if (rc == 0)
        rc = vl_open(o, &place);
    if (rc == 0)
        rc = start_threads(o, &place, &counters, ledger, thread);
    if (rc == 0) {
        watch(o, &counters);
        for (uint32_t i = 0; i < o->threads; i++) {
            (void)pthread_join(thread[i].id, NULL);
            if (thread[i].error != 0)
                (void)fprintf(stderr, "vm_load: thread %u: %s\n", i, thread[i].text);
            rc = rc != 0 ? rc : thread[i].error;
        }
        print_json(&counters);
    } else
        (void)fprintf(stderr, "vm_load: %s\n", cairn_last_error());
    vl_close(&place);
    return rc != 0 ? 2 : counters.bad != 0;
}
