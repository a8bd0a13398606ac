/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_node.c: the event loop of a participant node. One thread does everything in bounded pieces:
 * fabric events, rings, the apply loop, doubts, slots, growth and scrub. Nothing in a turn waits
 * for another process, except a compare-and-swap on the node's own memory (bounded).
 */
#include "recovery/rec_internal.h"

#include <errno.h>
#include <sched.h>

#define BACKGROUND_BUDGET 16u
#define SCRUB_BUDGET 2048u
#define SCRUB_NS REC_MS
#define BUSY_TIMER_NS (2 * REC_MS)
#define IDLE_TIMER_NS (200 * REC_MS)
/* Where peers ring only now and then (rd_fabric_config.linger_us), a record may wait for us without
 * a doorbell: nobody waits longer than this. One that comes when all has been quiet for long rings,
 * unless it was under way all the time. */
#define LATE_TIMER_NS (20 * REC_MS)
#define LATE_NS (2000 * REC_MS)
#define EARLY_NS REC_MS /* a timer's own error: what ends a sleep sooner is a doorbell */
/* However much is outstanding: polled for no longer than this after the last work. */
#define CROWDED_NS (100 * REC_MS)
/* To catch up with rings ends after so many rounds, however much comes in meanwhile. */
#define CATCH_UP_ROUNDS 64u

static struct rec_guest *guest_new(struct rec_node *node, struct rd_conn *conn)
{
    struct rec_guest *guest = calloc(1, sizeof(*guest));
    if (guest == NULL)
        return NULL;
    guest->link.kind = REC_LINK_GUEST;
    guest->link.conn = conn;
    guest->heard_ns = rec_now(node);
    guest->next = node->guests;
    node->guests = guest;
    conn->user = &guest->link;
    return guest;
}

static void on_connect(struct rec_node *node, const struct rd_event *event)
{
    const struct rd_hello_wire *hello = event->data;
    struct rd_refusal_wire refusal;
    int error = rd_wire_check_hello(
        event->data, event->size, &node->pool->super.cluster, node->id);
    if (error == 0 && le16_get(hello->role) == RD_ROLE_NODE &&
        rec_peer_find(node, le16_get(hello->from_node)) == NULL)
        error = cn_fail(CAIRN_E_WRONG_NODE,
            "node %u has no other node %u in its configuration; check the configuration of both",
            node->id, le16_get(hello->from_node));
    struct rec_guest *guest = error == 0 ? guest_new(node, event->conn) : NULL;
    if (error == 0 && guest == NULL)
        error = cn_fail(-ENOMEM, "node %u: no memory for a connection", node->id);
    if (error != 0) {
        cn_log(node->env, CN_LOG_WARNING, "connection refused: %s", cairn_last_error());
        rd_wire_make_refusal(&refusal, error, cairn_last_error());
        if (rd_reject(event->conn, &refusal, sizeof(refusal)) != 0)
            cn_log(node->env, CN_LOG_WARNING, "refusal not sent: %s",
                cairn_last_error());
        return;
    }
    guest->role = le16_get(hello->role);
    guest->from_node = le16_get(hello->from_node);
    guest->stranger = cn_uuid_is_zero(&hello->cluster);
    if (guest->role == RD_ROLE_COORDINATOR) {
        rec_slot_hand_out(node, guest, hello);
        return;
    }
    struct rd_welcome_wire welcome;
    rec_make_welcome(node, NULL, &welcome);
    if (rd_accept(guest->link.conn, NULL, 0, NULL, &welcome, sizeof(welcome)) != 0)
        guest->doomed = true;
}

static void on_guest_event(
    struct rec_node *node, struct rec_guest *guest, const struct rd_event *event)
{
    if (guest->doomed)
        return;
    if (event->type == RD_EV_MESSAGE)
        rec_message(node, guest, event->data, event->size);
    else if (event->type == RD_EV_DOWN) {
        if (event->text != NULL)
            cn_log(
                node->env, CN_LOG_INFO, "slot %u: connection lost: %s", guest->slot, event->text);
        rec_guest_drop(node, guest);
    }
}

static void dispatch(struct rec_node *node, const struct rd_event *event)
{
    if (event->type == RD_EV_CONNECT) {
        on_connect(node, event);
        return;
    }
    struct rec_link *link = event->conn->user;
    if (link == NULL)
        return;
    if (link->kind == REC_LINK_PEER)
        rec_peer_event(node, (struct rec_peer *)(void *)link, event);
    else
        on_guest_event(node, (struct rec_guest *)(void *)link, event);
}

/* One at a time: handling an event may delete the connection of the next. */
static uint32_t take_events(struct rec_node *node)
{
    struct rd_event event;
    uint32_t count = 0;
    while (count < REC_EVENTS_MAX && rd_poll(node->ep, &event, 1) == 1) {
        dispatch(node, &event);
        count++;
    }
    return count;
}

static void reap_guests(struct rec_node *node)
{
    struct rec_guest **link = &node->guests;
    while (*link != NULL) {
        struct rec_guest *guest = *link;
        if (!guest->doomed) {
            link = &guest->next;
            continue;
        }
        CAIRN_ASSERT(guest->slot == 0 || node->slot[guest->slot].guest != guest);
        *link = guest->next;
        rec_resolve_forget_guest(node, guest);
        rec_reply_forget(guest);
        if (guest->link.conn != NULL)
            rd_conn_delete(guest->link.conn);
        free(guest);
    }
}

static uint32_t poll_rings(struct rec_node *node)
{
    uint32_t changed = 0;
    for (uint32_t i = 1; i < node->part.slot_count; i++)
        changed += txn_part_poll(&node->part, node->slot[i].part);
    return changed;
}

bool rec_catch_up(struct rec_node *node)
{
    uint32_t rounds = 0;

    while (rounds < CATCH_UP_ROUNDS && poll_rings(node) + txn_part_apply(&node->part) != 0)
        rounds++;
    return rounds != 0;
}

/* Growth, surveys, hints and the scrub: what nobody waits for. */
static uint32_t background(struct rec_node *node)
{
    uint32_t done = pm_growth_step(node->store, node->background_budget);
    uint64_t now = rec_now(node);
    if ((node->scrub_wanted || pm_scrub_is_due(node->store)) && now >= node->next_scrub_ns) {
        bool pass = false;
        uint32_t words =
            pm_scrub_step(node->store, node->scrub_budget, rec_slot_may_free, node, &pass);
        if (!node->scrub_wanted)
            node->next_scrub_ns = now + SCRUB_NS;
        done += node->scrub_wanted && words != 0;
    }
    return done;
}

uint32_t rec_node_poll(struct rec_node *node)
{
    uint32_t done = take_events(node);
    node->stats.turns++;
    done += poll_rings(node);
    done += txn_part_apply(&node->part);
    done += rec_resolve_turn(node);
    done += rec_slot_turn(node);
    done += rec_reply_turn(node);
    rec_ping_turn(node);
    rec_purge_turn(node);
    done += background(node);
    reap_guests(node);
    return done;
}

/* Does anything run against a clock? */
static bool has_timers(const struct rec_node *node)
{
    if (node->doubts != NULL || node->scrub_wanted || pm_scrub_is_due(node->store))
        return true;
    for (const struct rec_guest *guest = node->guests; guest != NULL; guest = guest->next)
        if (guest->ping_ns != 0 || guest->replies != NULL)
            return true;
    for (uint32_t i = 1; i < node->part.slot_count; i++)
        if (node->slot[i].part->unresolved != 0 || node->slot[i].part->retry_count != 0 ||
            node->slot[i].quarantined || node->slot[i].seal_again)
            return true;
    return false;
}

static bool has_coordinators(const struct rec_node *node)
{
    for (const struct rec_guest *guest = node->guests; guest != NULL; guest = guest->next)
        if (guest->slot != 0)
            return true;
    return false;
}

/* The fullest ring, in records that can be worked on. */
static uint32_t outstanding(const struct rec_node *node)
{
    uint64_t most = 0;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        const struct txn_part_slot *slot = node->slot[i].part;
        if (slot->media.state == PM_SLOT_OPEN && slot->seq_max > slot->media.position_seq)
            most = cn_max64(most, slot->seq_max - slot->media.position_seq);
    }
    return (uint32_t)most;
}

bool rec_may_sleep(const struct rec_node *node, uint64_t now)
{
    const struct cn_pace *pace = &node->config->pace;
    uint64_t idle = now - node->worked_ns;
    bool lingered = idle >= (uint64_t)pace->linger_us * 1000;
    if (!cn_pace_may_sleep(pace, 0, node->part.window, lingered))
        return false;
    return idle >= CROWDED_NS ||
        cn_pace_may_sleep(pace, outstanding(node), node->part.window, lingered);
}

void rec_node_rest(struct rec_node *node, uint32_t done, uint64_t deadline_ns)
{
    uint64_t now = rec_now(node);
    if (done != 0)
        node->worked_ns = now;
    else if (rec_may_sleep(node, now))
        rec_node_sleep(node, deadline_ns);
    else if (node->config->pace.mode == CN_PACE_ADAPTIVE)
        (void)sched_yield(); /* where cores are few, whom we linger for may want this one */
}

void rec_node_sleep(struct rec_node *node, uint64_t deadline_ns)
{
    uint64_t begin = rec_now(node), wait = IDLE_TIMER_NS;
    if (has_timers(node))
        wait = BUSY_TIMER_NS;
    else if (node->hears_late && begin - node->worked_ns < LATE_NS && has_coordinators(node))
        wait = LATE_TIMER_NS;
    uint64_t timer = begin + wait;
    rd_ep_arm(node->ep);
    if (rec_node_poll(node) != 0) { /* it came between the last look and the arm */
        node->worked_ns = rec_now(node);
        return;
    }
    node->stats.sleeps++;
    uint64_t until = cn_min64(timer, deadline_ns);
    rd_ep_sleep(node->ep, until);
    uint64_t now = rec_now(node);
    if (now + EARLY_NS < until)
        node->worked_ns = now; /* somebody rang, and may go on without ringing while we linger */
}

void rec_node_run(struct rec_node *node, const volatile int *stop)
{
    while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE))
        rec_node_rest(node, rec_node_poll(node), UINT64_MAX);
}

void rec_node_wake(struct rec_node *node)
{
    rd_ep_wake(node->ep);
}

bool rec_node_is_quiet(const struct rec_node *node)
{
    if (node->doubts != NULL)
        return false;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        const struct txn_part_slot *slot = node->slot[i].part;
        if (slot->unresolved != 0 || slot->media.state == PM_SLOT_CLOSED ||
            (slot->media.state == PM_SLOT_OPEN && slot->seq_max != slot->media.position_seq))
            return false;
    }
    return true;
}

int rec_node_open(const struct rec_node_options *options, struct rec_node **ret_node)
{
    struct rec_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return cn_fail(-ENOMEM, "no memory for node %u", options->node);
    node->config = options->config;
    node->id = options->node;
    node->fabric = options->fabric;
    node->env = options->env;
    node->pool = options->pool;
    /* In event mode every record rings. */
    node->hears_late = strcmp(options->fabric->ops->name, "rpma") == 0 &&
        options->config->pace.mode != CN_PACE_EVENT;
    node->background_budget =
        options->background_budget == 0 ? BACKGROUND_BUDGET : options->background_budget;
    node->serve_damaged = options->serve_damaged;
    node->scrub_budget = options->scrub_budget == 0 ? SCRUB_BUDGET : options->scrub_budget;
    int error = rec_start(node);
    if (error != 0) {
        rec_stop(node);
        free(node);
        return error;
    }
    *ret_node = node;
    return 0;
}

static void free_links(struct rec_node *node)
{
    for (struct rec_guest *guest = node->guests; guest != NULL; guest = guest->next)
        guest->doomed = true;
    for (uint32_t i = 1; node->slot != NULL && i < node->part.slot_count; i++)
        node->slot[i].guest = NULL;
    reap_guests(node);
    for (uint32_t i = 0; i < node->config->node_count; i++)
        if (node->peer[i].link.conn != NULL)
            rd_conn_delete(node->peer[i].link.conn);
    rec_resolve_free(node);
}

void rec_node_close(struct rec_node **node_ptr)
{
    struct rec_node *node = *node_ptr;
    *node_ptr = NULL;
    for (uint32_t i = 1; i < node->part.slot_count; i++)
        if (rec_slot_fence(node, (uint16_t)i, false) != 0)
            cn_log(node->env, CN_LOG_ERROR, "%s", cairn_last_error());
    (void)txn_part_apply(&node->part); /* what was marked; the rest stays for the next start */
    (void)rec_slot_turn(node);
    free_links(node);
    rec_stop(node);
    pm_pool_note_clean(node->pool);
    if (node->pool->pmemobj != NULL)
        pm_pool_close(&node->pool);
    free(node);
}

void rec_node_abandon(struct rec_node **node_ptr)
{
    struct rec_node *node = *node_ptr;
    *node_ptr = NULL;
    free_links(node);
    rec_stop(node);
    free(node);
}
