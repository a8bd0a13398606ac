/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_part.c: what the rings of a participant hold: finding records and marks, sealing a fenced
 * ring, tombstones. The apply loop is in txn_apply.c.
 *
 * Invariants: an entry in use has position < seq <= position + window, so seq % window is its own;
 * the persisted position is always the one in slot->media; nothing is answered or stored into an
 * object for an entry that is not `persisted`.
 */
#include "txn/txn_part.h"

#include <errno.h>

#include "include/internal/cn_mutant.h"
#include "txn/txn_part_internal.h"

#define RETRY_NS_MIN UINT64_C(20000)
#define RETRY_NS_MAX UINT64_C(5000000)
#define MARK_OFF 24u
#define PASSED_RETRIES 4u /* a record that does not check so often may be damaged */

int txn_part_open(struct txn_part *part, struct pm_pool *pool, const struct cn_env *env)
{
    memset(part, 0, sizeof(*part));
    part->pool = pool;
    part->env = env;
    part->slot_count = pool->super.geometry.slot_count;
    part->window = pool->super.geometry.window;
    part->slot = calloc(part->slot_count, sizeof(*part->slot));
    part->snapshot = malloc(pool->super.geometry.ring_size);
    if (part->slot == NULL || part->snapshot == NULL) {
        txn_part_close(part);
        return cn_fail(-ENOMEM, "no memory for %u log slots", part->slot_count);
    }
    if (!pool->pm.read_only) {
        pm_flush(&pool->pm, pool->super_off, pool->super.rings_off - pool->super_off);
        pm_fence(&pool->pm, CN_STEP_a_found);
    }
    for (uint32_t i = 0; i < part->slot_count; i++) {
        int error = pm_slot_load(pool, (uint16_t)i, &part->slot[i].media);
        if (error != 0) {
            txn_part_close(part);
            return error;
        }
        part->slot[i].next_off = part->slot[i].media.position_off;
        part->slot[i].seq_max = part->slot[i].media.position_seq;
    }
    return 0;
}

void txn_part_close(struct txn_part *part)
{
    for (uint32_t i = 0; part->slot != NULL && i < part->slot_count; i++) {
        struct txn_entry *entry = part->slot[i].entry;
        for (uint32_t k = 0; entry != NULL && k < part->window; k++)
            free(entry[k].copy);
        free(entry);
    }
    free(part->slot);
    free(part->snapshot);
    part->slot = NULL;
    part->snapshot = NULL;
}

void txn_part_store(struct txn_part *part, struct txn_part_slot *slot, enum cn_step step)
{
    for (int copy = 0; copy < 2; copy++) {
        pm_slot_store(part->pool, &slot->media);
        pm_fence(&part->pool->pm, step);
    }
    part->copies_pending = false;
}

struct txn_entry *txn_part_entry_at(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq)
{
    if (slot->entry == NULL)
        slot->entry = calloc(part->window, sizeof(*slot->entry));
    return slot->entry == NULL ? NULL : &slot->entry[seq % part->window];
}

struct txn_entry *txn_part_find(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq)
{
    if (slot->entry == NULL || seq <= slot->media.position_seq ||
        seq - slot->media.position_seq > part->window)
        return NULL;
    struct txn_entry *entry = &slot->entry[seq % part->window];
    return entry->state != TXN_ENTRY_NONE && entry->seq == seq ? entry : NULL;
}

static bool is_unresolved(enum txn_entry_state state)
{
    return state == TXN_ENTRY_FOUND || state == TXN_ENTRY_COMMITTED ||
        state == TXN_ENTRY_APPLIED || state == TXN_ENTRY_ABORTED || state == TXN_ENTRY_REJECTED;
}

void txn_part_set_state(
    struct txn_part_slot *slot, struct txn_entry *entry, enum txn_entry_state state)
{
    bool was = is_unresolved(entry->state), is = is_unresolved(state);
    CAIRN_ASSERT(was || !is || entry->state == TXN_ENTRY_NONE);
    if (is && !was)
        slot->unresolved++;
    if (was && !is)
        slot->unresolved--;
    entry->state = state;
}

static bool grow_copy(struct txn_entry *entry, uint32_t size)
{
    if (entry->copy_capacity >= size)
        return true;
    uint8_t *copy = realloc(entry->copy, size);
    if (copy == NULL)
        return false;
    entry->copy = copy;
    entry->copy_capacity = size;
    return true;
}

static bool mark_is_set(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    uint64_t at = pm_slot_log_at(part->pool, slot->media.number, entry->record.log_off);
    uint64_t mark = pm_load64(&part->pool->pm, at + MARK_OFF);
    return pm_mark_is_set(&slot->media, entry->seq, mark) ||
        (CN_MUTANT(n_mark_unbound) && mark != 0);
}

static void break_slot(struct txn_part *part, struct txn_part_slot *slot, const char *what)
{
    slot->broken = true;
    (void)snprintf(slot->broken_text, sizeof(slot->broken_text), "slot %u, log offset %llu: %.110s",
        slot->media.number, (unsigned long long)slot->next_off, what);
    part->stats.rejected++;
}

/* Back off from a record that does not check: it may be under way, or be an old lap's. */
static void retry_later(struct txn_part *part, struct txn_part_slot *slot)
{
    uint64_t wait = RETRY_NS_MIN << cn_min64(slot->retry_count, 10);
    slot->retry_ns = cn_now_ns(part->env) + cn_min64(wait, RETRY_NS_MAX);
    slot->retry_count++;
}

/* A record was copied to entry->copy and checked: the entry is in use from here. */
static void take_entry(
    struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry, uint64_t seq)
{
    entry->seq = seq;
    entry->has_record = true;
    entry->persisted = false;
    entry->doubt = NULL;
    entry->found_ns = cn_now_ns(part->env);
    entry->end_off = entry->record.log_off + entry->record.size;
    slot->seq_max = cn_max64(slot->seq_max, seq);
    part->stats.found++;
    txn_part_set_state(slot, entry, TXN_ENTRY_FOUND);
}

/* Take the record at next_off, if there is a whole one. Returns 1 when it advanced. */
static uint32_t poll_one(struct txn_part *part, struct txn_part_slot *slot)
{
    const struct pm_pool *pool = part->pool;
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint64_t at = pm_slot_log_at(pool, slot->media.number, slot->next_off);
    uint64_t room = ring_size - slot->next_off % ring_size;
    uint64_t expected = slot->seq_max + 1;
    uint8_t line[PM_RECORD_ALIGN];

    pm_read(&pool->pm, at, line, sizeof(line));
    uint32_t size = pm_record_peek(line, room);
    if (size == 0)
        return 0;
    struct pm_record_pm head = {.type = 0}; /* all but its last 16 bytes lie in the line */
    memcpy(&head, line, sizeof(line));
    bool pad = head.type == PM_RECORD_PAD;
    if (!pad && le64_get(head.seq) != expected)
        return 0; /* an earlier lap's */
    if (slot->retry_count != 0 && cn_now_ns(part->env) < slot->retry_ns)
        return 0;

    struct pm_place place = pm_slot_place(pool, &slot->media, slot->next_off);
    if (pad) {
        struct pm_record ignored;
        if (pm_record_check(line, sizeof(line), &place, pool->super.node, &ignored) != 0) {
            retry_later(part, slot);
            return 0;
        }
        if (size != room) { /* a scan would look into it, and see another log than was seen here */
            break_slot(part, slot, "a pad that does not end at the ring's end");
            return 0;
        }
        slot->next_off += size;
        slot->retry_count = 0;
        return 1;
    }
    if (expected - slot->media.position_seq > part->window) {
        /* Only a whole record is a breach; anything else may be an old lap's bytes. */
        retry_later(part, slot);
        return 0;
    }
    struct txn_entry *entry = txn_part_entry_at(part, slot, expected);
    if (entry == NULL || !grow_copy(entry, size)) {
        retry_later(part, slot);
        return 0;
    }
    CAIRN_ASSERT(entry->state == TXN_ENTRY_NONE);
    pm_read(&pool->pm, at, entry->copy, size);
    if (pm_record_check(entry->copy, size, &place, pool->super.node, &entry->record) != 0) {
        retry_later(part, slot);
        return 0;
    }
    slot->retry_count = 0;
    if (entry->record.type == PM_RECORD_GROWTH) {
        break_slot(part, slot, "a growth record from a coordinator");
        return 0;
    }
    if (entry->record.log_off + size - slot->media.position_off > ring_size) {
        break_slot(part, slot, "a record written over what is not applied yet"); /* R4 */
        return 0;
    }
    take_entry(part, slot, entry, expected);
    slot->next_off = entry->end_off;
    return 1;
}

/* Is there a whole record of sequence `seq` at `off`, or behind a pad there, that calls the one
 * before it done? */
static bool is_there(
    struct txn_part *part, struct txn_part_slot *slot, uint64_t off, uint64_t seq)
{
    const struct pm_pool *pool = part->pool;
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint8_t *copy = part->snapshot;
    struct pm_record record;

    for (uint32_t i = 0; i < 2; i++) {
        uint64_t room = ring_size - off % ring_size;
        uint64_t at = pm_slot_log_at(pool, slot->media.number, off);
        pm_read(&pool->pm, at, copy, PM_RECORD_ALIGN);
        uint32_t size = pm_record_peek(copy, room);
        if (size == 0)
            return false;
        struct pm_place place = pm_slot_place(pool, &slot->media, off);
        pm_read(&pool->pm, at, copy, size);
        if (pm_record_check(copy, size, &place, pool->super.node, &record) != 0)
            return false;
        if (record.type != PM_RECORD_PAD)
            return record.seq == seq && record.done >= seq - 1;
        off += room;
    }
    return false;
}

static bool is_whole(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq)
{
    uint64_t room = part->pool->super.geometry.ring_size -
        slot->next_off % part->pool->super.geometry.ring_size;
    struct pm_place place = pm_slot_place(part->pool, &slot->media, slot->next_off);
    uint64_t at = pm_slot_log_at(part->pool, slot->media.number, slot->next_off);
    struct pm_record record;

    pm_read(&part->pool->pm, at, part->snapshot, PM_RECORD_ALIGN);
    uint32_t size = pm_record_peek(part->snapshot, room);
    if (size == 0)
        return false;
    pm_read(&part->pool->pm, at, part->snapshot, size);
    return pm_record_check(part->snapshot, size, &place, part->pool->super.node, &record) == 0 &&
        record.seq == seq;
}

/* A record of this node alone has no mark that would say that it was durable; the next one says it.
 * So one that still does not check is damaged. */
static void break_if_passed(struct txn_part *part, struct txn_part_slot *slot)
{
    const struct pm_pool *pool = part->pool;
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint64_t at = pm_slot_log_at(pool, slot->media.number, slot->next_off);
    uint64_t expected = slot->seq_max + 1;
    uint8_t line[PM_RECORD_ALIGN];
    char text[160];

    if (slot->retry_count < PASSED_RETRIES)
        return;
    pm_read(&pool->pm, at, line, sizeof(line));
    uint32_t size = pm_record_peek(line, ring_size - slot->next_off % ring_size);
    if (size == 0 || !is_there(part, slot, slot->next_off + size, expected + 1))
        return;
    /* The next one came behind the flush of this one: seen in this order, this one is whole by now,
     * if ever. What was seen of it before does not count. */
    if (is_whole(part, slot, expected))
        return;
    (void)snprintf(text, sizeof(text),
        "CAIRN_E_CORRUPT_RECORD: record %llu does not check, and the next one calls it done",
        (unsigned long long)expected);
    break_slot(part, slot, text);
}

/* A mark is stored only when its record is durable: over a record that does not check it means
 * damage (or a peer that lies). Nothing else would end the wait for that record. */
static void break_if_damaged(struct txn_part *part, struct txn_part_slot *slot)
{
    const struct pm_pool *pool = part->pool;
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint64_t at = pm_slot_log_at(pool, slot->media.number, slot->next_off);
    uint64_t expected = slot->seq_max + 1, mark = pm_load64(&pool->pm, at + MARK_OFF);
    struct pm_record record;
    char why[100] = "no header";

    if (mark == 0 || !pm_mark_is_set(&slot->media, expected, mark)) {
        break_if_passed(part, slot);
        return;
    }
    /* Read after the mark: all of it is there. */
    uint8_t *copy = part->snapshot;
    pm_read(&pool->pm, at, copy, PM_RECORD_ALIGN);
    uint32_t size = pm_record_peek(copy, ring_size - slot->next_off % ring_size);
    if (size != 0) {
        struct pm_place place = pm_slot_place(pool, &slot->media, slot->next_off);
        pm_read(&pool->pm, at, copy, size);
        if (pm_record_check(copy, size, &place, pool->super.node, &record) == 0)
            return; /* it came in just now, or its window is not free yet */
        (void)snprintf(why, sizeof(why), "%.90s", cairn_last_error());
    }
    char text[160];
    (void)snprintf(text, sizeof(text), "CAIRN_E_CORRUPT_RECORD: record %llu is marked: %s",
        (unsigned long long)expected, why);
    break_slot(part, slot, text);
}

/*
 * Committed without a mark: a record whose only participant is this node. The verdict is that of
 * all participants, and this one has it. It is not acted on or spoken of before this CPU has made
 * it durable, as any other (R11): its flush may be under way still.
 */
static bool is_alone(const struct txn_entry *entry)
{
    return entry->record.type == PM_RECORD_TX &&
        (entry->record.participant_count == 1 || CN_MUTANT(n_commit_unmarked));
}

/* Void records become tombstones; marked ones, and those of this node alone, are committed. */
static uint32_t poll_entry(
    struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    if (entry->state != TXN_ENTRY_FOUND)
        return 0;
    if (entry->record.type == PM_RECORD_VOID) {
        if (txn_part_abort(part, slot, entry) != 0)
            break_slot(part, slot, "more void records than a slot epoch has room for");
        return 1;
    }
    if (!is_alone(entry) && !mark_is_set(part, slot, entry))
        return 0;
    txn_part_commit(part, slot, entry);
    return 1;
}

uint32_t txn_part_poll(struct txn_part *part, struct txn_part_slot *slot)
{
    uint32_t changed = 0;
    if (slot->media.state != PM_SLOT_OPEN || slot->broken)
        return 0;
    for (uint32_t i = 0; i < TXN_BATCH_MAX && !slot->broken; i++) {
        if (poll_one(part, slot) == 0) {
            if (!slot->broken)
                break_if_damaged(part, slot);
            break;
        }
        changed++;
    }
    if (slot->unresolved == 0)
        return changed;
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry != NULL)
            changed += poll_entry(part, slot, entry);
    }
    return changed;
}

struct scan {
    struct txn_part *part;
    struct txn_part_slot *slot;
};

static int scan_found(void *arg, const struct pm_record *record)
{
    struct scan *scan = arg;
    struct txn_part *part = scan->part;
    struct txn_part_slot *slot = scan->slot;
    struct txn_entry *entry = txn_part_entry_at(part, slot, record->seq);

    if (entry == NULL)
        return -ENOMEM;
    if (entry->state != TXN_ENTRY_NONE)
        return 0; /* known since it was polled */
    if (!grow_copy(entry, record->size))
        return -ENOMEM;
    memcpy(entry->copy, record->head, record->size);
    struct pm_place place = pm_slot_place(part->pool, &slot->media, record->log_off);
    int error = pm_record_check(
        entry->copy, record->size, &place, part->pool->super.node, &entry->record);
    CAIRN_ASSERT(error == 0); /* the same bytes were just checked, in private memory */
    take_entry(part, slot, entry, record->seq);
    return 0;
}

/* What the epoch's durable words say of a found record (R12: tombstones first). */
static void classify(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    const struct pm_record_pm *head = (const struct pm_record_pm *)(const void *)entry->copy;
    if (entry->state != TXN_ENTRY_FOUND)
        return;
    if (pm_slot_has_tombstone(part->pool, &slot->media, entry->seq) &&
        !CN_MUTANT(n_records_before_tombstones))
        txn_part_set_state(slot, entry, TXN_ENTRY_ABORTED);
    else if (pm_slot_is_applied(part->pool, &slot->media, entry->seq))
        txn_part_set_state(slot, entry, TXN_ENTRY_APPLIED);
    else if (is_alone(entry) ||
        (pm_mark_is_set(&slot->media, entry->seq, le64_get(head->mark)) &&
            entry->record.type == PM_RECORD_TX))
        txn_part_set_state(slot, entry, TXN_ENTRY_COMMITTED);
}

int txn_part_scan(struct txn_part *part, struct txn_part_slot *slot)
{
    struct scan scan = {part, slot};
    pm_slot_snapshot(part->pool, slot->media.number, part->snapshot);
    int error = pm_slot_scan(part->pool, &slot->media, part->snapshot, scan_found, &scan);
    if (error == 0)
        error = txn_part_find_damaged(part, slot);
    if (error != 0)
        return cn_fail(error, "slot %u: scan of the log ring failed", slot->media.number);
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL || !entry->has_record)
            continue;
        /* A mark that came in since the record was polled. */
        uint64_t ring_size = part->pool->super.geometry.ring_size;
        const uint8_t *in_ring =
            (const uint8_t *)part->snapshot + entry->record.log_off % ring_size;
        memcpy(entry->copy + MARK_OFF, in_ring + MARK_OFF, sizeof(uint64_t));
        classify(part, slot, entry);
        if (!part->pool->pm.read_only)
            pm_slot_flush_log(
                part->pool, slot->media.number, entry->record.log_off, entry->record.size);
    }
    if (!part->pool->pm.read_only)
        pm_fence(&part->pool->pm, CN_STEP_s_fence_found);
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL)
            continue;
        entry->persisted = true;
        if (entry->state == TXN_ENTRY_FOUND && entry->record.type == PM_RECORD_VOID &&
            !part->pool->pm.read_only) {
            error = txn_part_abort(part, slot, entry);
            if (error != 0)
                return error;
        }
    }
    return 0;
}

/* A sequence that was taken and is not in the ring: nobody can log it any more. */
static int add_gap(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq)
{
    struct txn_entry *entry = txn_part_entry_at(part, slot, seq);
    if (entry == NULL)
        return cn_fail(-ENOMEM, "slot %u: no memory for its entries", slot->media.number);
    int error = pm_slot_add_tombstone(part->pool, &slot->media, seq);
    if (error != 0)
        return error;
    CAIRN_ASSERT(entry->state == TXN_ENTRY_NONE);
    entry->seq = seq;
    entry->has_record = false;
    entry->persisted = true;
    entry->doubt = NULL;
    txn_part_set_state(slot, entry, TXN_ENTRY_DROPPED);
    part->stats.tombstones++;
    return 0;
}

int txn_part_seal(struct txn_part *part, struct txn_part_slot *slot)
{
    if (slot->media.state == PM_SLOT_OPEN) {
        slot->media.state = PM_SLOT_CLOSED;
        slot->media.closing_seq = slot->seq_max;
        slot->media.closed_s = cn_wall_s(part->env);
    }
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->media.closing_seq; seq++) {
        if (txn_part_find(part, slot, seq) != NULL || CN_MUTANT(n_no_gap_tombstones))
            continue;
        int error = add_gap(part, slot, seq);
        if (error != 0)
            return error;
    }
    slot->seq_max = slot->media.closing_seq;
    txn_part_store(part, slot, CN_STEP_s_fence_closed);
    return 0;
}

void txn_part_persist(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    if (entry->persisted)
        return;
    pm_slot_flush_log(part->pool, slot->media.number, entry->record.log_off, entry->record.size);
    pm_fence(&part->pool->pm, CN_STEP_a_found);
    entry->persisted = true;
}

void txn_part_commit(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    (void)part;
    if (entry->state == TXN_ENTRY_FOUND)
        txn_part_set_state(slot, entry, TXN_ENTRY_COMMITTED);
}

/* Locks of a tombstoned record go back to what they were. */
static void unlock_aborted(
    struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    CAIRN_ASSERT(entry->state == TXN_ENTRY_ABORTED);
    if (entry->has_record && entry->record.type == PM_RECORD_TX)
        pm_apply_unlock(part->store, &entry->record, slot->media.number);
}

int txn_part_abort(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    CAIRN_ASSERT(entry->state == TXN_ENTRY_FOUND || entry->state == TXN_ENTRY_REJECTED);
    int error = pm_slot_add_tombstone(part->pool, &slot->media, entry->seq);
    if (error != 0)
        return error;
    if (!CN_MUTANT(n_tombstone_volatile))
        pm_fence(&part->pool->pm, CN_STEP_a_tombstone);
    part->stats.tombstones++;
    txn_part_set_state(slot, entry, TXN_ENTRY_ABORTED);
    unlock_aborted(part, slot, entry);
    pm_fence(&part->pool->pm, CN_STEP_a_unlock);
    txn_part_set_state(slot, entry, TXN_ENTRY_DROPPED);
    return 0;
}

void txn_part_finish_aborted(struct txn_part *part)
{
    bool any = false;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 1; i < part->slot_count; i++) {
            struct txn_part_slot *slot = &part->slot[i];
            for (uint32_t k = 0; slot->entry != NULL && k < part->window; k++) {
                struct txn_entry *entry = &slot->entry[k];
                if (entry->state != TXN_ENTRY_ABORTED)
                    continue;
                any = true;
                if (pass == 0)
                    unlock_aborted(part, slot, entry);
                else
                    txn_part_set_state(slot, entry, TXN_ENTRY_DROPPED);
            }
        }
        if (!any)
            return;
        if (pass == 0)
            pm_fence(&part->pool->pm, CN_STEP_a_unlock);
    }
}

void txn_part_relock(struct txn_part *part)
{
    for (uint32_t i = 1; i < part->slot_count; i++) {
        struct txn_part_slot *slot = &part->slot[i];
        for (uint32_t k = 0; slot->entry != NULL && k < part->window; k++) {
            struct txn_entry *entry = &slot->entry[k];
            if (entry->state != TXN_ENTRY_FOUND || entry->record.type != PM_RECORD_TX)
                continue;
            int error = pm_apply_relock(part->store, &entry->record, slot->media.number);
            if (error == 0)
                continue;
            cn_log(part->env, CN_LOG_ERROR, "slot %u sequence %llu: %s", slot->media.number,
                (unsigned long long)entry->seq, cairn_last_error());
            part->stats.rejected++;
            txn_part_set_state(slot, entry, TXN_ENTRY_REJECTED);
        }
    }
    pm_fence(&part->pool->pm, CN_STEP_r_relocked);
}

bool txn_part_tombstones_near_end(const struct txn_part *part, const struct txn_part_slot *slot)
{
    return slot->media.tombstone_count + part->window > part->pool->super.tombstone_max;
}

bool txn_part_is_drained(const struct txn_part_slot *slot)
{
    return slot->media.state == PM_SLOT_CLOSED &&
        slot->media.position_seq >= slot->media.closing_seq;
}
