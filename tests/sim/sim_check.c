/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_check.c: is the final state what the ledger says, is the history strictly serializable, are
 * the pools clean? The ledger lies outside the pools: what was acknowledged must be there, what was
 * aborted must not, what stayed without a verdict must be there as a whole or not at all.
 */
#include "tests/sim/sim_cluster.h"

#include "pmem/pm_store.h"

static uint32_t count_of(const struct sim_cluster *c, uint32_t list, uint32_t element)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->list[list].count; i++)
        n += c->list[list].element[i] == element;
    return n;
}

static const char *state_name(const struct sim_entry *e)
{
    static const char *const names[] = {"PENDING", "COMMITTED", "ABORTED", "UNKNOWN"};

    return names[e->state];
}

static void check_appends(struct sim_cluster *c, const struct sim_entry *e)
{
    uint32_t present = 0;

    for (uint32_t i = 0; i < e->lists; i++) {
        uint32_t n = count_of(c, e->list[i], e->element[i]);
        if (n > 1)
            sim_fail(&c->sim, "element %u of list %u was applied %u times", e->element[i],
                e->list[i], n);
        present += n;
    }
    if (present != 0 && present != e->lists)
        sim_fail(&c->sim, "not atomic: %u of %u appends of element %u.. are there", present,
            e->lists, e->element[0]);
    if (e->state == SIM_COMMITTED && present == 0)
        sim_fail(&c->sim, "lost: element %u of list %u was COMMITTED (%s) and is not there",
            e->element[0], e->list[0], e->acked ? "acknowledged" : "resolved");
    if (e->state == SIM_ABORTED && present != 0)
        sim_fail(&c->sim, "element %u of list %u was ABORTED and is there", e->element[0],
            e->list[0]);
}

static void check_counters(struct sim_cluster *c)
{
    for (uint32_t i = 0; i < c->counters; i++) {
        uint64_t sure = 0, maybe = 0;
        for (uint32_t j = 0; j < c->entry_count; j++) {
            const struct sim_entry *e = c->entry[j];
            if (e->work != SIM_WORK_COUNTER || e->from != i)
                continue;
            sure += e->state == SIM_COMMITTED;
            maybe += e->state == SIM_PENDING || e->state == SIM_UNKNOWN;
        }
        if (c->counter[i] < sure || c->counter[i] > sure + maybe)
            sim_fail(&c->sim, "counter %u is %lu, committed %lu, without a verdict %lu", i,
                c->counter[i], sure, maybe);
    }
}

static void check_bank(struct sim_cluster *c)
{
    int64_t total = 0, expected[SIM_ACCOUNTS_MAX];
    bool open = false;

    for (uint32_t i = 0; i < c->accounts; i++) {
        total += c->balance[i];
        expected[i] = SIM_BALANCE0;
    }
    if (total != SIM_BALANCE0 * (int64_t)c->accounts)
        sim_fail(&c->sim, "the bank's total is %ld, should be %ld", total,
            SIM_BALANCE0 * (int64_t)c->accounts);
    for (uint32_t j = 0; j < c->entry_count; j++) {
        const struct sim_entry *e = c->entry[j];
        if (e->work != SIM_WORK_BANK || e->state == SIM_ABORTED)
            continue;
        open = open || e->state != SIM_COMMITTED;
        expected[e->from] -= e->amount;
        expected[e->to] += e->amount;
    }
    for (uint32_t i = 0; i < c->accounts && !open; i++)
        if (c->balance[i] != expected[i])
            sim_fail(&c->sim, "account %u has %ld, the ledger says %ld", i, c->balance[i],
                expected[i]);
}

/* Only its client writes a private key, one operation after the other: the final value is that of
 * the last committed one, or of an operation without a verdict behind it. */
static void check_private(struct sim_cluster *c, uint32_t client, uint32_t key)
{
    uint32_t seen = c->private_unique[client][key], sure = 0;
    bool allowed = seen == 0;

    for (uint32_t j = 0; j < c->entry_count; j++) {
        const struct sim_entry *e = c->entry[j];
        if (e->work != SIM_WORK_CHURN || e->client != client || e->key != key ||
            e->state == SIM_ABORTED)
            continue;
        if (e->state == SIM_COMMITTED) {
            sure = e->unique;
            allowed = seen == e->unique;
        } else {
            allowed = allowed || seen == e->unique;
        }
    }
    if (!allowed)
        sim_fail(&c->sim, "private key %u.%u has value %u, last committed is %u", client, key,
            seen, sure);
}

static void check_history(struct sim_cluster *c)
{
    struct ts_check_report *report = sim_calloc(1, sizeof(*report));
    struct ts_bank_options bank = {.accounts = c->accounts,
        .total = SIM_BALANCE0 * (int64_t)c->accounts, .negative_allowed = true};

    if (ts_check_lists(c->history, NULL, report) != TS_TRUE)
        sim_fail(&c->sim, "history: %s: %.900s", ts_verdict_name(report->verdict), report->text);
    if (ts_check_bank(c->history, &bank, report) != TS_TRUE)
        sim_fail(&c->sim, "bank: %s: %.900s", ts_verdict_name(report->verdict), report->text);
    sim_free(report);
}

void sim_check(struct sim_cluster *c)
{
    for (uint32_t j = 0; j < c->entry_count; j++) {
        const struct sim_entry *e = c->entry[j];
        if (e->state == SIM_UNKNOWN)
            sim_fail(&c->sim, "an outcome stayed %s", state_name(e));
        if (e->lists > 0)
            check_appends(c, e);
    }
    check_counters(c);
    check_bank(c);
    for (uint32_t i = 0; i < c->client_count; i++)
        for (uint32_t j = 0; j < c->privates; j++)
            check_private(c, i, j);
    for (uint32_t i = 0; i < c->pairs; i++)
        if (c->pair_present[i][0] && c->pair_present[i][1])
            sim_fail(&c->sim, "write skew: both keys of pair %u exist", i);
    check_history(c);
}

static void on_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        sim_fail(arg, "fsck: %s", text);
}

void sim_check_pools(struct sim_cluster *c)
{
    uint64_t canonical = 0;

    for (uint32_t i = 0; i < c->node_count; i++) {
        struct sim_node *n = &c->node[i];
        struct pm_fsck_options options = {.report = on_damage, .arg = &c->sim};
        struct pm_fsck_report report;
        struct pm_pool look;
        struct pm pm;
        sim_pool_pm(n->pool, &c->sim.env, &pm);
        pm.tracer = NULL;
        pm.read_only = true;
        int rc = pm_attach(&look, &pm, n->super_off);
        if (rc == 0)
            rc = pm_fsck(&look, &options, &report);
        if (rc != 0)
            sim_fail(&c->sim, "fsck of %s: %s", n->actor->name, cairn_last_error());
        else if (report.damages != 0)
            sim_fail(&c->sim, "fsck of %s: %lu damages", n->actor->name, report.damages);
        else
            canonical = cn_mix64(canonical + report.canonical_values);
    }
    /* Nothing but reads happens between two checks, whatever is restarted. */
    if (!c->sim.failed && c->canonical_known && c->canonical != canonical)
        sim_fail(&c->sim, "another state after the restart of all nodes");
    c->canonical = canonical;
    c->canonical_known = true;
}

/* (tag, slot) names one owner for as long as a word may say it. Lines that are no lock word do not
 * look like one: no workload stores such values. */
void sim_check_handout(struct sim_node *n)
{
    struct sim *sim = &n->cluster->sim;
    struct pm_pool look = n->pm_pool;

    look.pm.tracer = NULL;
    look.pm.read_only = true;
    for (uint16_t s = 1; s < look.super.geometry.slot_count; s++) {
        struct pm_slot slot;
        if (pm_slot_load(&look, s, &slot) != 0 || slot.epoch == n->epoch[s])
            continue;
        n->epoch[s] = slot.epoch;
        for (uint64_t off = look.super.heap_off; off < look.pm.size; off += PM_LINE) {
            uint64_t word = pm_load64(&look.pm, off);
            if (pm_word_is_locked(word, look.tag) && pm_word_slot(word) == s)
                sim_fail(sim, "%s hands out slot %u, which the word at %lu still names",
                    n->actor->name, s, off);
        }
    }
}
