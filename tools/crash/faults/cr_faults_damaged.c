/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_damaged.c: F15 where a node serves although a committed record of it is damaged
 * (--serve-damaged): it says so, what it knows of the record's transaction it tells, and what it
 * does not know it calls in doubt, never ABORTED. Values of the keys may be those from before.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_record.h"
#include "pmem/pm_slot.h"
#include "tools/crash/faults/cr_peer.h"

struct victim { /* a shared record that is committed and not applied */
    const struct pm_pool *pool;
    struct rd_place_wire place;
    uint64_t off; /* in the pool */
    uint32_t verdict; /* what is to be said of it */
};

static int on_record(void *arg, const struct pm_record *record)
{
    struct victim *v = arg;

    for (uint16_t i = 0; i < record->participant_count && v->off == 0; i++) {
        const struct pm_participant_pm *p = &record->participant[i];
        if (record->participant_count == 1 || le16_get(p->node) != 1)
            continue;
        v->off = pm_slot_log_at(v->pool, le16_get(p->slot), record->log_off);
        v->place = (struct rd_place_wire){.coordinator = record->txid.coordinator,
            .count = le64_make(record->txid.count), .epoch = p->epoch, .seq = p->seq,
            .view = le32_make((uint32_t)record->view), .slot = p->slot, .node = p->node};
    }
    return 0;
}

/* One byte of its count of writes, and with `applied` it was applied before. */
static bool damage(
    const struct cr_stand *stand, uint8_t *bytes, bool applied, struct victim *ret)
{
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) != 0)
        return false;
    uint8_t *ring = sim_calloc(1, pool.super.geometry.ring_size);
    *ret = (struct victim){.pool = &pool,
        .verdict = applied ? RD_VERDICT_COMMITTED : RD_VERDICT_IN_DOUBT};
    for (uint16_t i = 1; i < pool.super.geometry.slot_count && ret->off == 0; i++) {
        struct pm_slot slot;
        if (pm_slot_load(&pool, i, &slot) != 0 || slot.state == PM_SLOT_FREE)
            continue;
        pm_slot_snapshot(&pool, i, ring);
        (void)!pm_slot_scan(&pool, &slot, ring, on_record, ret);
        if (ret->off != 0 && applied)
            pm_slot_set_applied(&pool, &slot, le64_get(ret->place.seq));
    }
    sim_free(ring);
    ret->pool = NULL;
    if (ret->off != 0)
        bytes[ret->off + offsetof(struct pm_record_pm, write_count)] ^= 1;
    return ret->off != 0;
}

static void ask(struct cr_peer *p)
{
    const struct victim *v = p->arg;
    const struct rd_ask_wire question = {v->place};

    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    cr_peer_expect(p, RD_MSG_RESOLVE, &question, RD_MSG_RESOLVE_REPLY, 0);
    uint32_t verdict =
        le32_get(((const struct rd_answer_wire *)(const void *)p->body)->verdict);
    if (verdict != v->verdict)
        cr_peer_wrong(p, "the verdict on a damaged record",
            verdict == RD_VERDICT_COMMITTED     ? "committed"
                : verdict == RD_VERDICT_ABORTED ? "aborted"
                                                : "in doubt");
}

void cr_faults_damaged(struct cr_faults *f)
{
    static const char *const how[] = {"not applied", "applied before"};
    struct cr_faults_tally *t = cr_faults_tally(f, "F15", "a damaged record, served all the same");

    for (uint32_t i = 0; t != NULL && i < CN_ARRAY_SIZE(how) && !cr_faults_time_is_up(f); i++) {
        struct victim victim = {0};
        struct cr_peer_play play = {.script = ask, .arg = &victim};
        struct cr_stand_variant v = {.seed = f->options.seed + i, .attack = cr_peer_run,
            .attack_arg = &play, .serve_damaged = true, .quick = true};
        struct cr_stand_outcome o;
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            v.bytes[n] = cr_stand_copy(f->stand, n, false);
        bool found = damage(f->stand, v.bytes[0], i == 1, &victim);
        cr_stand_try(f->stand, &v, &o);
        if (o.what[0] == '\0' || play.why[0] != '\0')
            memcpy(o.what, play.why, sizeof(o.what));
        if (!found || play.why[0] != '\0' || o.rejected == 0 || cr_stand_refused(&o)) {
            o.hung = true;
            if (o.what[0] == '\0')
                (void)snprintf(o.what, sizeof(o.what), "the damage is not reported");
        }
        cr_faults_count(f, t, &o, false, how[i]);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            sim_free(v.bytes[n]);
    }
}
