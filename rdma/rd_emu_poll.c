/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_poll.c: poll. Events come from three places: completions, in post order; connections that
 * a post or a poll found fenced; and notices of the watcher.
 *
 * Invariants
 * - The promise of a completion is made here: behind a full barrier (and behind all write-backs)
 *   poll looks at the fence word, once for all operations that it delivers. Fenced: they complete
 *   with CAIRN_E_FENCED, they may have taken effect. Who sets the word and then, behind a full
 *   barrier, reads the ring, sees every write whose flush succeeded. The word stays set while the
 *   connection has the ring mapped (rd_emu_map.c), so a late look does not miss it. That nothing is
 *   posted to a slot that has another owner by now is not this look's, but that of each post.
 * - A RD_EV_DOWN waits until the completions of its connection are delivered, and what the watcher
 *   says after it waits behind it.
 * - A notice's buffer is the user's until the next poll, which gives it back by moving `tail`.
 * - With a model (rd_emu_model.c) nothing is delivered before it is due. Where the clock can be
 *   skipped, a poll that would deliver nothing skips it to the next due time.
 */
#include "rdma/rd_emu.h"

static void free_deleted(struct emu_ep *ep)
{
    for (uint32_t i = 0; i < ep->connections_max && ep->deleted > 0; i++) {
        if (emu_state(&ep->conns[i]) == EMU_DELETED) {
            ep->deleted--;
            emu_set_state(&ep->conns[i], EMU_FREE);
        }
    }
}

/* Give the buffers of the last batch back to the watcher. */
static void release_taken(struct emu_ep *ep)
{
    uint64_t tail = __atomic_load_n(&ep->tail, __ATOMIC_RELAXED);
    if (tail == ep->taken)
        return;
    for (uint64_t i = tail; i != ep->taken; i++) {
        const struct emu_notice *n = &ep->notices[i % EMU_NOTICES];
        struct emu_conn *c = &ep->conns[n->conn];
        if (n->type == RD_EV_MESSAGE &&
            n->generation == __atomic_load_n(&c->generation, __ATOMIC_ACQUIRE))
            __atomic_fetch_sub(&c->queued, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&ep->tail, ep->taken, __ATOMIC_RELEASE);
    emu_full_barrier(); /* the room above, before the look at `stalled`: see rd_emu_nic.c */
    if (__atomic_load_n(&ep->stalled, __ATOMIC_RELAXED) != 0) {
        __atomic_store_n(&ep->stalled, 0, __ATOMIC_RELAXED);
        rd_emu_nic_kick(ep);
        ep->counters.syscalls++;
    }
}

/* Everything posted so far comes before the looks at fence words that follow. Reads and
 * compare-and-swaps do so by themselves on this CPU. */
static inline void order_posts(struct emu_ep *ep)
{
    if (!ep->unordered)
        return;
    if (CN_UNLIKELY(ep->written_back))
        emu_store_barrier();
    emu_full_barrier();
    ep->unordered = ep->written_back = false;
}

/* Some of what was delivered met a fence. */
static __attribute__((noinline, cold)) void tell_fenced(struct rd_event *events, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct emu_conn *c = emu_conn(events[i].conn);
        if (!emu_is_fenced(c))
            continue;
        events[i].status = CAIRN_E_FENCED;
        rd_emu_mark_fenced(c);
    }
}

/* Deliver the first `n`. */
static inline void deliver(struct emu_ep *ep, struct rd_event *events, uint32_t n)
{
    const struct emu_completion *completions = ep->completions;
    uint64_t tail = ep->completion_tail, mask = ep->completion_mask, fenced = 0;
    ep->completion_tail = tail + n;
    ep->counters.completions += n;
    order_posts(ep);
    for (uint32_t i = 0; i < n; i++) {
        const struct emu_completion *done = &completions[tail++ & mask];
        struct emu_conn *c = done->conn;
        struct rd_event *event = &events[i];
        event->type = RD_EV_COMPLETION;
        event->status = 0;
        event->conn = &c->base;
        event->wr_id = done->wr_id;
        c->outstanding--;
        c->flushes -= done->flush;
        fenced |= __atomic_load_n(c->fence, __ATOMIC_ACQUIRE);
    }
    if (CN_UNLIKELY(fenced != 0))
        tell_fenced(events, n);
}

/* Those that are due. */
static uint32_t poll_completions(
    struct emu_ep *ep, uint64_t now, struct rd_event *events, uint32_t max)
{
    uint32_t n = 0;
    for (uint64_t i = ep->completion_tail; n < max && i != ep->completion_head; i++, n++) {
        if (ep->completions[i & ep->completion_mask].due_ns > now)
            break;
    }
    if (n > 0)
        deliver(ep, events, n);
    return n;
}

static uint32_t poll_local_downs(struct emu_ep *ep, struct rd_event *events, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ep->connections_max && n < max && ep->local_downs > 0; i++) {
        struct emu_conn *c = &ep->conns[i];
        if (c->local_down == 0 || c->outstanding > 0)
            continue;
        events[n++] = (struct rd_event){
            .type = RD_EV_DOWN, .status = c->local_down, .conn = &c->base};
        c->down_delivered = true;
        c->local_down = 0;
        ep->local_downs--;
    }
    return n;
}

/* Whether the user is to see the notice; notes what it means for the connection. */
static bool take_notice(struct emu_ep *ep, struct emu_conn *c, const struct emu_notice *notice)
{
    if (notice->generation != __atomic_load_n(&c->generation, __ATOMIC_ACQUIRE))
        return false; /* deleted meanwhile */
    if (c->down_delivered)
        return false;
    if (notice->type == RD_EV_DOWN) {
        c->down_delivered = true;
        return true;
    }
    if (c->fenced)
        return false; /* nothing of a fenced peer has an effect any more */
    if (notice->type == RD_EV_UP) {
        c->up = true;
        c->plain = !ep->model.on;
        c->base.cas_orders_reads = c->active;
    } else if (notice->type == RD_EV_MESSAGE) {
        ep->counters.messages_received++;
    }
    return true;
}

static uint32_t poll_notices(
    struct emu_ep *ep, uint64_t now, struct rd_event *events, uint32_t max)
{
    uint64_t head = __atomic_load_n(&ep->head, __ATOMIC_ACQUIRE);
    uint32_t n = 0;
    if (CN_UNLIKELY(ep->model.on))
        head = ep->model.seen;
    while (n < max && ep->taken != head) {
        const struct emu_notice *notice = &ep->notices[ep->taken % EMU_NOTICES];
        struct emu_conn *c = &ep->conns[notice->conn];
        if (ep->model.on && notice->due_ns > now)
            break;
        ep->taken++;
        if (!take_notice(ep, c, notice))
            continue;
        events[n++] = (struct rd_event){
            .type = notice->type,
            .status = notice->status,
            .conn = &c->base,
            .data = notice->size > 0 ? notice->frame + notice->data_off : NULL,
            .size = notice->size,
        };
    }
    return n;
}

static uint32_t poll_all(struct emu_ep *ep, uint64_t now, struct rd_event *events, uint32_t max)
{
    uint32_t n = poll_completions(ep, now, events, max);
    if (ep->local_downs > 0)
        n += poll_local_downs(ep, events + n, max - n);
    return n + poll_notices(ep, now, events + n, max - n);
}

/* As poll_all() where there is a model, and a clock to ask. */
static uint32_t poll_model(struct emu_ep *ep, struct rd_event *events, uint32_t max)
{
    uint64_t now = cn_now_ns(ep->env);
    rd_emu_model_see(ep, now);
    uint32_t n = poll_all(ep, now, events, max);
    uint64_t due = rd_emu_model_due(ep);
    if (n > 0 || max == 0 || ep->env->skip == NULL || due == UINT64_MAX || due <= now)
        return n;
    ep->env->skip(ep->env->arg, due - now);
    return poll_all(ep, due, events, max);
}

static __attribute__((noinline)) uint32_t poll_slowly(
    struct emu_ep *ep, struct rd_event *events, uint32_t max)
{
    release_taken(ep);
    if (ep->deleted > 0)
        free_deleted(ep);
    return ep->model.on ? poll_model(ep, events, max) : poll_all(ep, UINT64_MAX, events, max);
}

/* Mostly there is nothing, or some completions. */
CN_HOT
uint32_t rd_emu_poll(struct rd_ep *rd_ep, struct rd_event *events, uint32_t max)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    uint64_t waiting = ep->completion_head - ep->completion_tail;
    if (CN_UNLIKELY(ep->model.on || (ep->deleted | ep->local_downs) != 0 ||
                    __atomic_load_n(&ep->tail, __ATOMIC_RELAXED) != ep->taken ||
                    __atomic_load_n(&ep->head, __ATOMIC_ACQUIRE) != ep->taken))
        return poll_slowly(ep, events, max);
    if (waiting == 0)
        return 0;
    uint32_t n = waiting < max ? (uint32_t)waiting : max;
    deliver(ep, events, n);
    return n;
}
