/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_history_text.c: a history as EDN or JSON, one operation per line, in the form that elle-cli
 * reads:
 *   {:index 4, :type :ok, :process 0, :time 12, :f :txn, :value [[:append 253 1] [:r 256 [1 2 4]]]}
 *   {"index":4,"type":"ok","process":0,"time":12,"f":"txn","value":[["append",253,1],["r",5,[1]]]}
 * The index is dense over what is written. A final read is an ordinary txn there.
 */
#include "tools/history/hs_history.h"

#include <errno.h>
#include <inttypes.h>

/* The two forms differ in words and commas only. */
struct form {
    const char *head, *txn, *transfer, *bank_read;
    const char *append, *read, *nil, *comma, *type[4];
    const char *transfer_value;
    const char *account;
    const char *tail;
};

static const struct form edn = {
    .head =
        "{:index %" PRIu64 ", :type %s, :process %" PRIu64 ", :time %" PRIu64 ", :f %s, :value ",
    .txn = ":txn",
    .transfer = ":transfer",
    .bank_read = ":read",
    .append = ":append",
    .read = ":r",
    .nil = "nil",
    .comma = " ",
    .type = {":invoke", ":ok", ":fail", ":info"},
    .transfer_value = "{:from %" PRIu64 ", :to %" PRIu32 ", :amount %" PRIu64 "}",
    .account = "%" PRIu64 " %" PRId64,
    .tail = "}\n",
};
static const struct form json = {
    .head = "{\"index\":%" PRIu64 ",\"type\":%s,\"process\":%" PRIu64 ",\"time\":%" PRIu64
            ",\"f\":%s,\"value\":",
    .txn = "\"txn\"",
    .transfer = "\"transfer\"",
    .bank_read = "\"read\"",
    .append = "\"append\"",
    .read = "\"r\"",
    .nil = "null",
    .comma = ",",
    .type = {"\"invoke\"", "\"ok\"", "\"fail\"", "\"info\""},
    .transfer_value = "{\"from\":%" PRIu64 ",\"to\":%" PRIu32 ",\"amount\":%" PRIu64 "}",
    .account = "\"%" PRIu64 "\":%" PRId64,
    .tail = "}\n",
};

/* The formats above are constants of this file. */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static void write_lists(FILE *out, const struct form *form, const struct hs_history *h,
    const struct hs_event *e)
{
    (void)fputc('[', out);
    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *mop = &h->mops[e->mop_first + i];
        if (i > 0)
            (void)fputs(form->comma, out);
        if (mop->kind == HS_APPEND) {
            (void)fprintf(out, "[%s%s%" PRIu64 "%s%" PRIu64 "]", form->append, form->comma,
                mop->key, form->comma, mop->value);
            continue;
        }
        (void)fprintf(out, "[%s%s%" PRIu64 "%s", form->read, form->comma, mop->key, form->comma);
        if (mop->count == HS_UNREAD) {
            (void)fprintf(out, "%s]", form->nil);
            continue;
        }
        (void)fputc('[', out);
        for (uint32_t j = 0; j < mop->count; j++)
            (void)fprintf(out, "%s%" PRIu32, j > 0 ? form->comma : "", h->elements[mop->value + j]);
        (void)fputs("]]", out);
    }
    (void)fputc(']', out);
}

static void write_bank(FILE *out, const struct form *form, const struct hs_history *h,
    const struct hs_event *e)
{
    const struct hs_mop *mop = h->mops + e->mop_first;

    if (e->mop_count == 0) {
        (void)fputs(form->nil, out);
        return;
    }
    if (mop->kind == HS_TRANSFER) {
        (void)fprintf(out, form->transfer_value, mop->key, mop->count, mop->value);
        return;
    }
    (void)fputc('{', out);
    for (uint32_t i = 0; i < e->mop_count; i++) {
        if (i > 0)
            (void)fputs(form->comma, out);
        (void)fprintf(out, form->account, mop[i].key, (int64_t)mop[i].value);
    }
    (void)fputc('}', out);
}

static bool is_wanted(const struct hs_event *e, enum hs_write_what what)
{
    const bool bank = e->f == HS_F_TRANSFER || e->f == HS_F_BANK_READ;

    return bank == (what == HS_WRITE_BANK);
}

static int write_history(const struct hs_history *h, enum hs_write_what what, const char *path,
    const struct form *form)
{
    FILE *out = fopen(path, "we");
    uint64_t index = 0;
    bool failed;

    if (out == NULL)
        return cn_fail(-errno, "%s: cannot write: %s", path, strerror(errno));
    for (uint64_t i = 0; i < h->event_count; i++) {
        const struct hs_event *e = &h->events[i];
        if (!is_wanted(e, what))
            continue;
        (void)fprintf(out, form->head, index++, form->type[e->type], e->process, e->time_ns,
            e->f == HS_F_TRANSFER      ? form->transfer
                : e->f == HS_F_BANK_READ ? form->bank_read
                                         : form->txn);
        if (what == HS_WRITE_BANK)
            write_bank(out, form, h, e);
        else
            write_lists(out, form, h, e);
        (void)fputs(form->tail, out);
    }
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        return cn_fail(-EIO, "%s: cannot write", path);
    return 0;
}

int hs_history_write_edn(const struct hs_history *h, enum hs_write_what what, const char *path)
{
    return write_history(h, what, path, &edn);
}

int hs_history_write_json(const struct hs_history *h, enum hs_write_what what, const char *path)
{
    return write_history(h, what, path, &json);
}
