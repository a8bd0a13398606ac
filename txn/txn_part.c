/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_part.c: what the rings of a participant hold: finding records and marks while they come in,
 * tombstones. The scan of a whole ring is in txn_part_scan.c, the apply loop in txn_apply.c.
 *
 * Invariants: an entry in use has position < seq <= position + window, so seq % window is its own;
 * the persisted position is always the one in slot->media; nothing is answered or stored into an
 * object for an entry that is not `persisted`.
 */
#include "txn/txn_part.h"

#include <errno.h>
#include <sys/mman.h>

#include "include/internal/cn_mutant.h"
#include "txn/txn_part_internal.h"

#define RETRY_NS_MIN UINT64_C(20000)
#define RETRY_NS_MAX UINT64_C(5000000)
#define MARK_OFF 24u
#define COPY_MIN 256u
#define LARGE_SIZE ((size_t)2 << 20)
#define PASSED_RETRIES 4u /* a record that does not check so often may be damaged */

/* Zeroed; those of a large window on large pages, for a start touches them all. */
static struct txn_entry *new_entries(uint32_t window)
{
    size_t size = window * sizeof(struct txn_entry);
    if (size < LARGE_SIZE)
        return calloc(window, sizeof(struct txn_entry));
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    (void)madvise(at, size, MADV_HUGEPAGE); /* a hint */
    return at;
}

static void free_entries(struct txn_entry *entry, uint32_t window)
{
    size_t size = window * sizeof(*entry);
    if (size < LARGE_SIZE)
        free(entry);
    else
        (void)munmap(entry, size);
}

int txn_part_open(struct txn_part *part, struct pm_pool *pool, const struct cn_env *env)
{
    memset(part, 0, sizeof(*part));
    part->pool = pool;
    part->env = env;
    part->slot_count = pool->super.geometry.slot_count;
    part->window = pool->super.geometry.window;
    part->slot = calloc(part->slot_count, sizeof(*part->slot));
    part->snapshot = malloc(pool->super.geometry.ring_size);
    part->covered = calloc(pool->super.geometry.ring_size / PM_RECORD_ALIGN / 64 + 1, 8);
    part->turn = 1;
    if (part->slot == NULL || part->snapshot == NULL || part->covered == NULL) {
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
        part->slot[i].next_found = part->slot[i].next_apply = UINT64_MAX;
    }
    return 0;
}

void txn_part_close(struct txn_part *part)
{
    for (uint32_t i = 0; part->slot != NULL && i < part->slot_count; i++) {
        struct txn_entry *entry = part->slot[i].entry;
        for (uint32_t k = 0; entry != NULL && k < part->window; k++)
            free(entry[k].copy);
        if (entry != NULL)
            free_entries(entry, part->window);
    }
    free(part->slot);
    free(part->snapshot);
    free(part->covered);
    part->slot = NULL;
    part->snapshot = NULL;
    part->covered = NULL;
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
        slot->entry = new_entries(part->window);
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

#define BIT(state) (1u << TXN_ENTRY_##state)
#define UNRESOLVED (BIT(FOUND) | BIT(COMMITTED) | BIT(APPLIED) | BIT(ABORTED) | BIT(REJECTED))

void txn_part_set_state(
    struct txn_part_slot *slot, struct txn_entry *entry, enum txn_entry_state state)
{
    uint32_t was = UNRESOLVED >> entry->state & 1, is = UNRESOLVED >> state & 1;
    CAIRN_ASSERT(was || !is || entry->state == TXN_ENTRY_NONE);
    slot->unresolved += is - was;
    slot->count[entry->state] -= entry->state != TXN_ENTRY_NONE;
    slot->count[state] += state != TXN_ENTRY_NONE;
    if (state == TXN_ENTRY_FOUND)
        slot->next_found = cn_min64(slot->next_found, entry->seq);
    else if (state == TXN_ENTRY_COMMITTED || state == TXN_ENTRY_APPLIED)
        slot->next_apply = cn_min64(slot->next_apply, entry->seq);
    entry->state = state;
}

/* Kept with the entry: after a window of records none is allocated any more. */
bool txn_part_grow_copy(struct txn_entry *entry, uint32_t size)
{
    if (entry->copy_capacity >= size)
        return true;
    uint32_t capacity = COPY_MIN;
    while (capacity < size)
        capacity *= 2;
    uint8_t *copy = realloc(entry->copy, capacity);
    if (copy == NULL)
        return false;
    entry->copy = copy;
    entry->copy_capacity = capacity;
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

void txn_part_take(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry,
    uint64_t now_ns)
{
    entry->seq = entry->record.seq;
    entry->has_record = true;
    entry->persisted = false;
    entry->doubt = NULL;
    entry->found_ns = now_ns;
    entry->end_off = entry->record.log_off + entry->record.size;
    slot->seq_max = cn_max64(slot->seq_max, entry->seq);
    part->stats.found++;
    txn_part_set_state(slot, entry, TXN_ENTRY_FOUND);
}

struct poll { /* of one slot; place and time are asked for when the first record is there */
    struct txn_part *part;
    struct txn_part_slot *slot;
    bool ready;
    struct pm_place place;
    uint64_t now_ns;
};

static void make_ready(struct poll *poll)
{
    if (!poll->ready) {
        poll->place = pm_slot_place(poll->part->pool, &poll->slot->media, 0);
        poll->place.crc = pm_place_crc(&poll->place);
        poll->now_ns = cn_now_ns(poll->part->env);
        poll->ready = true;
    }
    poll->place.log_off = poll->slot->next_off;
}

/* A pad whose header line lies in `line`, up to the ring's end. Returns 1 when it was passed. */
static uint32_t pass_pad(struct poll *poll, const uint8_t *line, uint32_t size, uint64_t room)
{
    struct txn_part_slot *slot = poll->slot;
    struct pm_record ignored;
    if (pm_record_fault(line, PM_RECORD_ALIGN, &poll->place, poll->part->pool->super.node,
            &ignored) != NULL) {
        retry_later(poll->part, slot);
        return 0;
    }
    if (size != room) { /* a scan would look into it, and see another log than was seen here */
        break_slot(poll->part, slot, "a pad that does not end at the ring's end");
        return 0;
    }
    slot->next_off += size;
    slot->retry_count = 0;
    return 1;
}

/* The record of `size` bytes at next_off, copied once and checked. NULL: it is not whole (yet). */
static struct txn_entry *copy_record(struct poll *poll, uint64_t at, uint32_t size, uint64_t seq)
{
    struct txn_part *part = poll->part;
    struct txn_entry *entry;
    /* Beyond the window only a whole record is a breach; else it may be an old lap's bytes. */
    if (seq - poll->slot->media.position_seq > part->window)
        return NULL;
    entry = txn_part_entry_at(part, poll->slot, seq);
    if (entry == NULL || !txn_part_grow_copy(entry, size))
        return NULL;
    CAIRN_ASSERT(entry->state == TXN_ENTRY_NONE);
    pm_read(&part->pool->pm, at, entry->copy, size);
    if (pm_record_fault(
            entry->copy, size, &poll->place, part->pool->super.node, &entry->record) != NULL)
        return NULL;
    return entry;
}

/* Take the record at next_off, if there is a whole one. Returns 1 when it advanced. Where nothing
 * came, one line of the ring is looked at. */
static uint32_t poll_one(struct poll *poll)
{
    struct txn_part *part = poll->part;
    struct txn_part_slot *slot = poll->slot;
    const struct pm_pool *pool = part->pool;
    uint64_t ring_size = pool->super.geometry.ring_size;
    uint64_t at = pm_slot_log_at(pool, slot->media.number, slot->next_off);
    uint64_t room = ring_size - slot->next_off % ring_size;
    uint64_t expected = slot->seq_max + 1;
    uint8_t line[PM_RECORD_ALIGN] __attribute__((aligned(8)));

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
    make_ready(poll);
    if (pad)
        return pass_pad(poll, line, size, room);
    struct txn_entry *entry = copy_record(poll, at, size, expected);
    if (entry == NULL) {
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
    txn_part_take(part, slot, entry, poll->now_ns);
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
bool txn_part_is_alone(const struct txn_entry *entry)
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
    if (!txn_part_is_alone(entry) && !mark_is_set(part, slot, entry))
        return 0;
    txn_part_commit(part, slot, entry);
    return 1;
}

uint32_t txn_part_poll(struct txn_part *part, struct txn_part_slot *slot)
{
    struct poll poll = {.part = part, .slot = slot};
    uint32_t changed = 0;
    if (slot->media.state != PM_SLOT_OPEN || slot->broken)
        return 0;
    for (uint32_t i = 0; i < TXN_BATCH_MAX && !slot->broken; i++) {
        if (poll_one(&poll) == 0) {
            if (!slot->broken)
                break_if_damaged(part, slot);
            break;
        }
        changed++;
    }
    uint32_t left = slot->count[TXN_ENTRY_FOUND];
    uint64_t seq = cn_max64(slot->next_found, slot->media.position_seq + 1);
    slot->next_found = UINT64_MAX;
    for (; left > 0 && seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL || entry->state != TXN_ENTRY_FOUND)
            continue;
        left--;
        changed += poll_entry(part, slot, entry);
        if (entry->state == TXN_ENTRY_FOUND)
            slot->next_found = cn_min64(slot->next_found, seq);
    }
    return changed;
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
            uint32_t left = slot->count[TXN_ENTRY_ABORTED];
            for (uint32_t k = 0; left > 0 && k < part->window; k++) {
                struct txn_entry *entry = &slot->entry[k];
                if (entry->state != TXN_ENTRY_ABORTED)
                    continue;
                any = true;
                left--;
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
        uint32_t left = slot->count[TXN_ENTRY_FOUND];
        for (uint32_t k = 0; left > 0 && k < part->window; k++) {
            struct txn_entry *entry = &slot->entry[k];
            if (entry->state != TXN_ENTRY_FOUND)
                continue;
            left--;
            if (entry->record.type != PM_RECORD_TX)
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
