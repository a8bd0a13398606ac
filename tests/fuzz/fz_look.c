/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_look.c: looking at a hostile pool with what only looks (fz_pool.h). */
#include "recovery/rec_offline.h"

#include "tests/fuzz/fz_pool.h"

#define UNRESOLVED_MAX 64u

struct seen {
    struct fz_pool *p;
    uint64_t items, sum;
    bool speak;
    struct pm_record record[UNRESOLVED_MAX];
    uint8_t *copy[UNRESOLVED_MAX];
    uint16_t slot[UNRESOLVED_MAX];
    uint32_t count;
};

static void see_item(void *arg, const struct pm_index *index, const struct pm_item_view *item)
{
    struct seen *s = arg;

    FZ_NEED(item->key_size <= CAIRN_KEY_SIZE_MAX && item->value_size <= CAIRN_VALUE_SIZE_MAX,
        "key of %u, value of %u", item->key_size, item->value_size);
    for (uint32_t i = 0; i < item->key_size; i++)
        s->sum += item->key[i];
    for (uint32_t i = 0; i < item->value_size; i++)
        s->sum += item->value[i];
    s->sum += index->index;
    s->items++;
}

static void see_text(void *arg, enum pm_fsck_severity severity, const char *text)
{
    struct seen *s = arg;

    s->sum += strlen(text);
    if (s->speak && severity == PM_FSCK_DAMAGE)
        fprintf(stderr, "fsck: %s\n", text);
}

static void see_slot(void *arg, const struct pm_slot *slot, uint32_t records, uint32_t unmarked)
{
    ((struct seen *)arg)->sum += slot->epoch + records + unmarked;
    FZ_NEED(unmarked <= records, "%u of %u", unmarked, records);
}

/* Keep it: fsck is told of the records that are not finished. */
static void see_record(void *arg, const struct pm_slot *slot, const struct rec_look_record *record)
{
    struct seen *s = arg;
    const struct pm_record *r = &record->record;
    struct pm_place place = {.pool = s->p->good->super.pool, .slot = slot->number,
        .epoch = slot->epoch, .nonce = slot->nonce, .log_off = r->log_off};

    s->sum += r->seq + (record->marked ? 1 : 0);
    if (s->count == UNRESOLVED_MAX || record->tombstone || record->applied)
        return;
    s->copy[s->count] = malloc(r->size);
    CAIRN_ASSERT(s->copy[s->count] != NULL);
    memcpy(s->copy[s->count], r->head, r->size);
    if (pm_record_check(s->copy[s->count], r->size, &place, FZ_NODE, &s->record[s->count]) != 0) {
        free(s->copy[s->count]); /* another node's pool, by an edit */
        return;
    }
    s->slot[s->count++] = slot->number;
}

static void see_retired(void *arg, const struct pm_retired *retired)
{
    ((struct seen *)arg)->sum += retired->epoch;
}

static void see_error(void *arg, int error, const char *text)
{
    FZ_NEED(error < 0 && text[0] != '\0', "error %d", error);
    ((struct seen *)arg)->sum++;
}

int fz_pool_look(
    struct fz_pool *p, struct pm_pool *pool, bool speak, struct pm_fsck_report *ret)
{
    static struct seen s;
    struct pm_pool only = *pool;
    const struct pm_record *list[UNRESOLVED_MAX];
    struct rec_look look = {.arg = &s, .slot = see_slot, .record = see_record,
        .retired = see_retired, .error = see_error};
    struct pm_fsck_options o = {.unresolved = list, .unresolved_slot = s.slot,
        .report = see_text, .item = see_item, .arg = &s};
    int rc;

    only.pm.read_only = true;
    s = (struct seen){.p = p, .speak = speak};
    if (rec_look_at(&only, &look) != 0)
        s.sum++;
    for (uint32_t i = 0; i < s.count; i++)
        list[i] = &s.record[i];
    o.unresolved_count = s.count;
    rc = pm_fsck(&only, &o, ret);
    for (uint32_t i = 0; i < s.count; i++)
        free(s.copy[i]);
    FZ_NEED(rc != 0 || ret->items == s.items, "%llu items reported, %llu seen",
        (unsigned long long)ret->items, (unsigned long long)s.items);
    return rc;
}
