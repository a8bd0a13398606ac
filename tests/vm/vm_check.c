/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vm_check.c: `vm_load check`: the whole database against the ledger, after everything was healed;
 * see vm_load.h.
 *
 *   lost     a register or slot is older than what was acknowledged or resolved as committed
 *   phantom  it shows what was not committed, or a number that nobody wrote
 *   torn     registers that a transaction wrote together differ
 *   money    by how much the accounts' total is off
 *   stuck    keys that cannot be read or written within the deadline
 *   verdicts tokens whose verdict is not to be had, or is not that of the ledger
 */
#include "tests/vm/vm_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <time.h>

#define TRY_MS 5000u
#define SAY_MAX 20u

struct slot_state {
    uint64_t number; /* of the last committed change */
    char op;
};
struct writer {
    struct vl_writer name;
    bool ended, in_flight; /* a transaction that was in flight has been seen */
    uint64_t last;
    uint64_t group[VL_GROUPS];
    struct slot_state slot[VL_SLOTS];
};
enum fate { FATE_OPEN, FATE_COMMITTED, FATE_ABORTED };
struct unknown {
    uint32_t writer;
    struct vl_line line;
    enum fate told; /* by the ledger */
    enum fate fate;
};

struct check {
    const struct vl_options *options;
    struct vl_place place;
    struct cairn_ctx *ctx;
    uint64_t deadline_ns;
    struct writer *writer;
    uint32_t writers;
    struct unknown *unknown;
    uint32_t unknowns;
    uint64_t lines, cut, acknowledged, in_flight, keys;
    uint64_t lost, phantom, torn, stuck, verdicts, bad, said;
    int64_t money;
};

static void say(struct check *c, uint64_t *counter, const char *format, ...) CN_PRINTF(3, 4);
static void say(struct check *c, uint64_t *counter, const char *format, ...)
{
    va_list args;

    (*counter)++;
    if (c->said++ >= SAY_MAX)
        return;
    (void)fprintf(stderr, "vm_load: ");
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

/* ---- the ledger ---- */

static uint32_t find_writer(struct check *c, const struct vl_writer *name)
{
    for (uint32_t i = 0; i < c->writers; i++) {
        if (c->writer[i].name.seed == name->seed && c->writer[i].name.thread == name->thread)
            return i;
    }
    struct writer *more = realloc(c->writer, (c->writers + 1) * sizeof(*more));
    CAIRN_ASSERT(more != NULL);
    c->writer = more;
    c->writer[c->writers] = (struct writer){.name = *name};
    return c->writers++;
}

static void commit_line(struct writer *w, const struct vl_line *l)
{
    w->group[l->group] = cn_max64(w->group[l->group], l->number);
    if (l->op != '.' && l->number > w->slot[l->slot].number)
        w->slot[l->slot] = (struct slot_state){l->number, l->op};
}

static void add_unknown(struct check *c, uint32_t writer, const struct vl_line *l)
{
    struct unknown *more = realloc(c->unknown, (c->unknowns + 1) * sizeof(*more));

    CAIRN_ASSERT(more != NULL);
    c->unknown = more;
    c->unknown[c->unknowns++] = (struct unknown){.writer = writer, .line = *l};
}

static int tell_unknown(struct check *c, uint32_t writer, const struct vl_line *l)
{
    for (uint32_t i = 0; i < c->unknowns; i++) {
        struct unknown *u = &c->unknown[i];
        if (u->writer == writer && u->line.number == l->number) {
            u->told = l->committed ? FATE_COMMITTED : FATE_ABORTED;
            return 0;
        }
    }
    return cn_fail(CAIRN_E_PROTOCOL, "a verdict on number %" PRIu64 ", which was not unknown",
        l->number);
}

static int take_line(struct check *c, const struct vl_line *l)
{
    struct vl_writer name = l->writer;

    c->lines++;
    if (l->kind == VL_RUN) { /* its thread is the number of threads */
        for (name.thread = 0; name.thread < l->writer.thread; name.thread++)
            (void)find_writer(c, &name);
        return 0;
    }
    uint32_t at = find_writer(c, &name);
    struct writer *w = &c->writer[at];
    if (l->kind == VL_VERDICT)
        return tell_unknown(c, at, l);
    if ((l->kind == VL_OK || l->kind == VL_UNKNOWN) && l->number <= w->last)
        return cn_fail(CAIRN_E_PROTOCOL, "writer %" PRIu64 " %u: number %" PRIu64 " after %" PRIu64,
            name.seed, name.thread, l->number, w->last);
    w->last = cn_max64(w->last, l->number);
    if (l->kind == VL_OK) {
        c->acknowledged++;
        commit_line(w, l);
    } else if (l->kind == VL_UNKNOWN) {
        add_unknown(c, at, l);
    } else if (l->kind == VL_BAD) {
        c->bad++;
    } else if (l->kind == VL_END) {
        w->ended = true;
    }
    return 0;
}

static int read_ledger(struct check *c)
{
    char text[2 * VL_LINE_MAX];
    FILE *in = fopen(c->options->ledger, "re");
    int rc = 0;

    if (in == NULL)
        return cn_fail(-errno, "%s: %s", c->options->ledger, strerror(errno));
    while (rc == 0 && fgets(text, sizeof(text), in) != NULL) {
        struct vl_line line;
        if (text[0] == '\n')
            continue;
        rc = vl_line_parse(text, &line);
        if (rc == 0 && line.kind == VL_CUT)
            c->cut++;
        else if (rc == 0)
            rc = take_line(c, &line);
    }
    (void)fclose(in);
    return rc;
}

/* ---- verdicts ---- */

static bool is_late(const struct check *c)
{
    return cn_now_ns(cn_env_system()) >= c->deadline_ns;
}

static void resolve(struct check *c, struct unknown *u)
{
    enum cairn_outcome outcome;
    int rc;

    do {
        rc = cairn_resolve(c->ctx, u->line.token, &outcome);
        if (rc == 0 || rc == CAIRN_E_EXPIRED || rc == CAIRN_E_TOKEN)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    } while (!is_late(c));
    if (rc == 0)
        u->fate = outcome == CAIRN_OUTCOME_COMMITTED ? FATE_COMMITTED : FATE_ABORTED;
    else if (u->told == FATE_OPEN || rc != CAIRN_E_EXPIRED)
        say(c, &c->verdicts, "%s: no verdict: %s", u->line.token, cairn_last_error());
    else
        u->fate = u->told;
    if (u->told != FATE_OPEN && u->fate != FATE_OPEN && u->told != u->fate)
        say(c, &c->verdicts, "%s: the ledger says %s, and now it is the opposite", u->line.token,
            u->told == FATE_COMMITTED ? "committed" : "aborted");
    if (u->fate == FATE_COMMITTED)
        commit_line(&c->writer[u->writer], &u->line);
}

/* An open one that explains a register (slot false) or slot. */
static bool may_be_open(
    const struct check *c, uint32_t writer, bool slot, uint32_t at, uint64_t number)
{
    for (uint32_t i = 0; i < c->unknowns; i++) {
        const struct unknown *u = &c->unknown[i];
        if (u->writer != writer || u->fate != FATE_OPEN)
            continue;
        if (!slot && u->line.group == at && u->line.number == number)
            return true;
        if (slot && u->line.slot == at && u->line.op != '.' &&
            number == (u->line.op == '+' ? u->line.number : 0))
            return true;
    }
    return false;
}

/* ---- registers and slots ---- */

struct reading {
    struct vl_key key[VL_MEMBERS_MAX];
    uint64_t number[VL_MEMBERS_MAX];
    uint32_t count;
};

static int read_keys(struct cairn_tx *tx, void *arg)
{
    struct reading *r = arg;
    int rc = 0;

    for (uint32_t i = 0; i < r->count && rc == 0; i++)
        rc = vl_get(tx, &r->key[i], false, &r->number[i]);
    return rc;
}

/* Until it works or the time is over. False: it has been said. */
static bool insist(struct check *c, cairn_tx_fn fn, void *arg, const char *what)
{
    int rc;

    do {
        rc = cairn_run(c->ctx, fn, arg, TRY_MS, NULL);
    } while (rc != 0 && rc != CAIRN_E_CORRUPT_ITEM && !is_late(c));
    if (rc == CAIRN_E_CORRUPT_ITEM)
        say(c, &c->torn, "%s: %s", what, cairn_last_error());
    else if (rc != 0)
        say(c, &c->stuck, "%s: %s: %s", what, cairn_error_name(rc), cairn_last_error());
    return rc == 0;
}

static void check_group(struct check *c, uint32_t at, uint32_t group)
{
    struct writer *w = &c->writer[at];
    struct reading r = {.count = vl_member_count(&c->place, group)};
    uint64_t known = w->group[group];

    for (uint32_t i = 0; i < r.count; i++)
        vl_member_key(&c->place, &w->name, group, i, &r.key[i]);
    c->keys += r.count;
    if (!insist(c, read_keys, &r, r.key[0].name))
        return;
    for (uint32_t i = 1; i < r.count; i++) {
        if (r.number[i] == r.number[0])
            continue;
        say(c, &c->torn, "torn: %s is %" PRIu64 ", %s is %" PRIu64, r.key[0].name, r.number[0],
            r.key[i].name, r.number[i]);
        return;
    }
    uint64_t number = r.number[0];
    if (number == known || may_be_open(c, at, false, group, number))
        return;
    if (number < known) {
        say(c, &c->lost, "lost: %s is %" PRIu64 ", %" PRIu64 " was acknowledged", r.key[0].name,
            number, known);
    } else if (!w->ended && !w->in_flight && number > w->last) {
        w->in_flight = true;
        c->in_flight++;
    } else
        say(c, &c->phantom, "phantom: %s is %" PRIu64 ", the last committed was %" PRIu64,
            r.key[0].name, number, known);
}

static void check_slot(struct check *c, uint32_t at, uint32_t slot)
{
    struct writer *w = &c->writer[at];
    struct reading r = {.count = 1};
    uint64_t known = w->slot[slot].op == '+' ? w->slot[slot].number : 0;

    vl_slot_key(&c->place, &w->name, slot, &r.key[0]);
    c->keys++;
    if (!insist(c, read_keys, &r, r.key[0].name))
        return;
    uint64_t number = r.number[0];
    if (number == known || may_be_open(c, at, true, slot, number))
        return;
    /* The transaction in flight has written a register too, so it has been seen. */
    if (w->in_flight && (number == 0 || number > w->last))
        return;
    if (number < known)
        say(c, &c->lost, "lost: %s is %" PRIu64 ", %" PRIu64 " was acknowledged", r.key[0].name,
            number, known);
    else
        say(c, &c->phantom, "phantom: %s is %" PRIu64 ", known is %" PRIu64, r.key[0].name, number,
            known);
}

/* ---- accounts ---- */

struct bank {
    const struct check *c;
    int64_t total;
    uint32_t missing;
};

static int sum_accounts(struct cairn_tx *tx, void *arg)
{
    struct bank *b = arg;
    struct vl_key key;
    int64_t balance;

    b->total = 0;
    b->missing = 0;
    for (uint32_t i = 0; i < VL_ACCOUNTS; i++) {
        vl_account_key(&b->c->place, i, &key);
        int rc = vl_get_balance(tx, &key, false, &balance);
        if (rc == CAIRN_E_NOT_FOUND)
            b->missing++;
        else if (rc != 0)
            return rc;
        else
            b->total += balance;
    }
    return 0;
}

static void check_bank(struct check *c)
{
    struct bank b = {.c = c};

    if (!insist(c, sum_accounts, &b, "the accounts"))
        return;
    if (b.missing == VL_ACCOUNTS && c->acknowledged == 0)
        return;
    c->money = b.total - (int64_t)VL_ACCOUNTS * VL_BALANCE;
    if (c->money != 0 || b.missing != 0)
        (void)fprintf(stderr,
            "vm_load: the total is %" PRId64 " instead of %u, %u accounts are gone\n", b.total,
            VL_ACCOUNTS * VL_BALANCE, b.missing);
}

/* ---- every key can be written ---- */

static int rewrite_key(struct cairn_tx *tx, void *arg)
{
    const struct vl_key *key = arg;
    uint8_t value[VL_VALUE_MAX];
    size_t size = 0;
    int rc = cairn_get_for_update(
        tx, key->table, key->name, strlen(key->name), value, sizeof(value), &size);

    if (rc == CAIRN_E_NOT_FOUND) /* and leave it so */
        return cairn_delete(tx, key->table, key->name, strlen(key->name));
    return rc == 0 ? cairn_put(tx, key->table, key->name, strlen(key->name), value, size) : rc;
}

static void rewrite_all(struct check *c)
{
    struct vl_key key;

    for (uint32_t at = 0; at < c->writers; at++) {
        const struct vl_writer *name = &c->writer[at].name;
        for (uint32_t g = 0; g < VL_GROUPS; g++) {
            for (uint32_t m = 0; m < vl_member_count(&c->place, g); m++) {
                vl_member_key(&c->place, name, g, m, &key);
                (void)insist(c, rewrite_key, &key, key.name);
            }
        }
        for (uint32_t s = 0; s < VL_SLOTS; s++) {
            vl_slot_key(&c->place, name, s, &key);
            (void)insist(c, rewrite_key, &key, key.name);
        }
    }
    for (uint32_t i = 0; i < VL_ACCOUNTS; i++) {
        vl_account_key(&c->place, i, &key);
        (void)insist(c, rewrite_key, &key, key.name);
    }
}

/* ---- all of it ---- */

static void check_all(struct check *c)
{
    for (uint32_t i = 0; i < c->unknowns; i++)
        resolve(c, &c->unknown[i]);
    for (uint32_t at = 0; at < c->writers; at++) {
        for (uint32_t i = 0; i < VL_GROUPS; i++)
            check_group(c, at, i);
        for (uint32_t i = 0; i < VL_SLOTS; i++)
            check_slot(c, at, i);
    }
    check_bank(c);
    rewrite_all(c);
}

static int report(const struct check *c)
{
    bool good = c->lost + c->phantom + c->torn + c->stuck + c->verdicts + c->bad == 0 &&
        c->money == 0;

    printf("{\"lost\":%" PRIu64 ",\"torn\":%" PRIu64 ",\"phantom\":%" PRIu64 ",\"money\":%" PRId64
           ",\"stuck\":%" PRIu64 ",\"verdicts\":%" PRIu64 ",\"bad\":%" PRIu64 ",",
        c->lost, c->torn, c->phantom, c->money, c->stuck, c->verdicts, c->bad);
    printf("\"acknowledged\":%" PRIu64 ",\"unknown\":%u,\"writers\":%u,\"keys\":%" PRIu64
           ",\"in_flight\":%" PRIu64 ",\"cut_lines\":%" PRIu64 ",\"good\":%s}\n",
        c->acknowledged, c->unknowns, c->writers, c->keys, c->in_flight, c->cut,
        good ? "true" : "false");
    return good ? 0 : 1;
}

int vl_check(const struct vl_options *o)
{
    struct check c = {.options = o,
        .deadline_ns = cn_now_ns(cn_env_system()) + o->deadline_s * UINT64_C(1000000000)};
    int rc = read_ledger(&c), result = 2;

    if (rc == 0 && c.lines == 0)
        rc = cn_fail(CAIRN_E_STATE, "%s: has no whole line", o->ledger);
    if (rc == 0)
        rc = vl_open(o, &c.place);
    if (rc == 0)
        rc = cairn_ctx_open(c.place.cluster, &c.ctx);
    if (rc == 0) {
        check_all(&c);
        result = report(&c);
        cairn_ctx_close(&c.ctx);
    } else
        (void)fprintf(stderr, "vm_load: %s\n", cairn_last_error());
    vl_close(&c.place);
    free(c.writer);
    free(c.unknown);
    return result;
}
