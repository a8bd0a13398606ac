/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_message.c: frames over librpma's send and receive: the user's messages, doorbells, and
 * what goes by message where the device or the platform cannot do it alone: flushes under GPSPM
 * (PERSIST) and compare-and-swap without remote atomics (CAS).
 *
 * Invariants
 * - Bytes from a peer are hostile: a frame that is malformed, or out of place in the connection's
 *   state, ends the connection with CAIRN_E_PROTOCOL. An element that asks for what was not granted
 *   is answered with an error.
 * - A receive buffer is posted again at once, but for two kinds: a message given to the user, until
 *   the next poll; and a request that finds no buffer to answer with, until there is one (`held`).
 *   So a peer that does not take its answers is not served, and costs nothing more.
 * - A frame is sent only where the peer has a receive posted for it: iWARP breaks a connection over
 *   one that has not, elsewhere it would block the log writes behind it. Every frame says how many
 *   receives its sender has posted again; if none is due for long, a CREDIT frame does.
 * - The user's messages leave some buffers, here and at the peer, to the fabric's own frames, and
 *   these leave one to CREDIT: so both sides can always say that they go on.
 * - Requests are answered in order, each frame by one frame with as many elements; the tag of an
 *   element is its position in the queue of its kind.
 * - A PERSIST frame goes over the queue pair of the writes before it, and behind them: when its
 *   receive completes they are in memory.
 */
#include "rdma/rd_rpma.h"

#include <sched.h>

#define PERSIST_BATCH ((uint32_t)(RD_RPMA_PAYLOAD_MAX / sizeof(struct rd_rpma_persist_wire)))
#define CAS_BATCH ((uint32_t)(RD_RPMA_PAYLOAD_MAX / sizeof(struct rd_rpma_cas_wire)))

_Static_assert(RD_RPMA_PAYLOAD_MAX / sizeof(struct rd_rpma_persist_wire) *
                       sizeof(struct rd_rpma_done_wire) <= RD_RPMA_PAYLOAD_MAX,
    "an answer is no longer than its request");

/* Fails the connection with the thread's last error as its text. */
static void fail(struct nic_conn *c, int err)
{
    char text[NIC_TEXT_MAX];
    cn_error_copy(text, sizeof(text));
    rd_rpma_conn_fail(c, err, "%s", text);
}

/* ---- receives ---- */

static uint8_t *rx_buffer(const struct nic_conn *c, uint32_t at)
{
    return c->rx + (size_t)at * NIC_FRAME_STRIDE;
}

static const void *rx_context(uint32_t at)
{
    return (const void *)(uintptr_t)(NIC_RECEIVE_ID | at);
}

int rd_rpma_post_receives(struct nic_conn *c, struct rpma_conn_req *request)
{
    struct nic_ep *ep = nic_conn_ep(c);
    rd_rpma_log_clear();
    for (uint32_t i = 0; i < NIC_RX; i++) {
        int rc = rpma_conn_req_recv(request, ep->message_mr, nic_message_off(ep, rx_buffer(c, i)),
            NIC_FRAME_STRIDE, rx_context(i));
        if (rc != 0)
            return rd_rpma_fail(rc, "rpma_conn_req_recv");
    }
    return 0;
}

static void post_receive(struct nic_conn *c, uint32_t at)
{
    struct nic_ep *ep = nic_conn_ep(c);
    if (c->log == NULL)
        return;
    rd_rpma_log_clear();
    int rc = rpma_recv(c->log, ep->message_mr, nic_message_off(ep, rx_buffer(c, at)),
        NIC_FRAME_STRIDE, rx_context(at));
    if (rc != 0) {
        fail(c, rd_rpma_fail(rc, "rpma_recv"));
        return;
    }
    c->returned++;
    if (nic_owes_credit(c))
        nic_set_busy(c);
}

void rd_rpma_return_receives(struct nic_conn *c)
{
    uint32_t taken = c->rx_taken;
    c->rx_taken = 0;
    for (; taken != 0; taken &= taken - 1)
        post_receive(c, (uint32_t)__builtin_ctz(taken));
}

/* ---- sends ---- */

/* A free send buffer's payload, or NULL; nothing is taken before end_frame(). */
static uint8_t *begin_frame(const struct nic_conn *c, enum rd_rpma_frame_type type)
{
    uint32_t here = (uint32_t)__builtin_popcount(c->tx_free);
    uint32_t there = NIC_RX - (c->frames_sent - c->frames_returned);
    uint32_t spare = type == RD_RPMA_MESSAGE  ? NIC_SPARE_USER
                     : type == RD_RPMA_CREDIT ? 0
                                              : NIC_SPARE_FRAMES;
    if (here <= spare || there <= spare || rd_rpma_queue_full(&c->log_queue))
        return NULL;
    uint32_t at = (uint32_t)__builtin_ctz(c->tx_free);
    return c->tx + (size_t)at * NIC_FRAME_STRIDE + sizeof(struct rd_rpma_frame_wire);
}

/* Send what begin_frame() has given room for. Errors: those of the provider. */
static int end_frame(
    struct nic_conn *c, enum rd_rpma_frame_type type, uint32_t count, uint32_t size)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct nic_queue *queue = &c->log_queue;
    uint32_t at = (uint32_t)__builtin_ctz(c->tx_free);
    uint8_t *frame = c->tx + (size_t)at * NIC_FRAME_STRIDE;
    const struct rd_rpma_frame_wire head = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .type = le16_make((uint16_t)type),
        .count = le16_make((uint16_t)count),
        .size = le32_make(size),
        .returned = le32_make(c->returned),
    };
    memcpy(frame, &head, sizeof(head));
    c->returned_told = c->returned;
    c->frames_sent++;
    const struct nic_op op = {.kind = NIC_OP_SEND, .buffer = (uint8_t)at};
    const void *context = (const void *)(uintptr_t)(queue->head & (queue->size - 1));
    (void)rd_rpma_queue_take(c, queue, &op, true);
    c->tx_free &= ~(UINT32_C(1) << at);
    c->tx_out++;
    nic_set_busy(c);
    rd_rpma_log_clear();
    int rc = rpma_send(c->log, ep->message_mr, nic_message_off(ep, frame), sizeof(head) + size,
        RPMA_F_COMPLETION_ALWAYS, context);
    if (CN_LIKELY(rc == 0))
        return 0;
    int err = rd_rpma_fail(rc, "rpma_send");
    fail(c, err);
    return err;
}

int rd_rpma_send_frame(struct nic_conn *c, enum rd_rpma_frame_type type, uint32_t count,
    const void *payload, uint32_t size)
{
    CAIRN_ASSERT(size <= RD_RPMA_PAYLOAD_MAX);
    if (c->log == NULL)
        return cn_fail(CAIRN_E_NODE_DOWN, "the connection is down");
    uint8_t *to = begin_frame(c, type);
    if (to == NULL)
        return cn_fail(CAIRN_E_AGAIN, "%u messages are on their way already",
            c->frames_sent - c->frames_returned);
    if (size > 0)
        memcpy(to, payload, size);
    return end_frame(c, type, count, size);
}

int rd_rpma_send(struct rd_conn *rd_conn, const void *message, uint32_t size)
{
    struct nic_conn *c = nic_conn(rd_conn);
    CAIRN_ASSERT(size > 0 && size <= RD_MESSAGE_SIZE_MAX);
    int err = rd_rpma_check_alive(c);
    if (err != 0)
        return err;
    if (c->state == NIC_LOOPBACK)
        return cn_fail(CAIRN_E_FABRIC, "a loopback connection carries no messages");
    err = rd_rpma_send_frame(c, RD_RPMA_MESSAGE, 0, message, size);
    if (err == 0)
        nic_conn_ep(c)->counters.messages_sent++;
    return err;
}

/* Bells that find no buffer go with a later poll: none is lost. */
static void send_bell(struct nic_conn *c)
{
    struct nic_ep *ep = nic_conn_ep(c);
    c->bell_due = begin_frame(c, RD_RPMA_BELL) == NULL;
    if (c->bell_due) {
        nic_set_busy(c);
        return;
    }
    c->bell_ns = cn_now_ns(ep->env);
    c->bell_writes = c->writes;
    if (end_frame(c, RD_RPMA_BELL, 0, 0) == 0)
        ep->counters.wakeups++;
}

void rd_rpma_doorbell(struct rd_conn *rd_conn)
{
    struct nic_conn *c = nic_conn(rd_conn);
    if (!c->active || c->state != NIC_UP || c->bell_due)
        return;
    /* What it finds in its ring keeps the node looking for `linger_ns` more, so each write that
     * comes in time stands for a bell; the last quarter is for delays that differ. */
    uint64_t now = cn_now_ns(nic_conn_ep(c)->env);
    if (c->linger_ns == 0 || c->bell_ns == 0 || now - c->bell_ns > c->linger_ns / 4 * 3)
        send_bell(c);
    else if (c->writes != c->bell_writes) {
        c->bell_ns = now;
        c->bell_writes = c->writes;
    }
}

void rd_rpma_drain_sends(struct nic_conn *c)
{
    struct nic_ep *ep = nic_conn_ep(c);
    uint64_t end = cn_now_ns(ep->env) + NIC_DRAIN_NS;
    while (c->log != NULL && c->tx_out > 0 && cn_now_ns(ep->env) < end) {
        struct ibv_wc wc;
        uint64_t at;
        int rc = rpma_cq_get_wc(c->log_cq, 1, &wc, NULL);
        if (rc == RPMA_E_NO_COMPLETION) {
            (void)sched_yield();
            continue;
        }
        if (rc != 0 || wc.status != IBV_WC_SUCCESS)
            return; /* nobody takes them */
        if (rd_rpma_queue_find(&c->log_queue, wc.wr_id, &at))
            (void)rd_rpma_queue_free(c, &c->log_queue, at);
    }
}

/* ---- active: operations by message ---- */

/* Put what waits of a queue into frames while there are buffers. Returns false when the connection
 * has failed. */
static bool send_asked(struct nic_conn *c, bool persist)
{
    const enum rd_rpma_frame_type type = persist ? RD_RPMA_PERSIST : RD_RPMA_CAS;
    struct nic_queue *queue = persist ? &c->persist : &c->cas;
    uint64_t *sent = persist ? &c->persist_sent : &c->cas_sent;
    const struct nic_asked *asked = c->asked + (persist ? 0 : c->persist.size);
    uint8_t *to;
    while (*sent != queue->head && (to = begin_frame(c, type)) != NULL) {
        uint32_t n = 0, size = 0;
        for (; *sent != queue->head && n < (persist ? PERSIST_BATCH : CAS_BATCH); n++, (*sent)++) {
            const struct nic_asked *a = &asked[*sent & (queue->size - 1)];
            struct rd_rpma_persist_wire p = {le64_make(*sent), le64_make(a->off), le64_make(a->a)};
            struct rd_rpma_cas_wire w = {
                le64_make(*sent), le64_make(a->off), le64_make(a->a), le64_make(a->b)};
            uint32_t element = persist ? sizeof(p) : sizeof(w);
            memcpy(to + size, persist ? (const void *)&p : (const void *)&w, element);
            size += element;
        }
        if (end_frame(c, type, n, size) != 0)
            return false;
    }
    return true;
}

/* Results, in the order of what was asked. Errors: CAIRN_E_PROTOCOL; those of an operation that
 * nobody waits for. */
static int take_done(struct nic_conn *c, bool persist, const uint8_t *payload, uint32_t count)
{
    struct nic_queue *queue = persist ? &c->persist : &c->cas;
    uint64_t sent = persist ? c->persist_sent : c->cas_sent;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t old = 0;
        int status = 0;
        if (queue->tail == sent)
            return cn_fail(CAIRN_E_PROTOCOL, "frame %s: answers what was not asked",
                persist ? "persisted" : "cas_done");
        int err = rd_rpma_check_done(
            payload + i * sizeof(struct rd_rpma_done_wire), persist, queue->tail, &old, &status);
        if (err != 0)
            return err;
        const struct nic_op *op = &queue->op[queue->tail & (queue->size - 1)];
        if (status != 0 && !op->wanted)
            return cn_fail(status, "the node refuses a %s by message: %s",
                persist ? "flush" : "compare-and-swap", cairn_strerror(status));
        if (!persist && status == 0)
            *op->old = old;
        queue->tail++;
        if (op->wanted)
            rd_rpma_event(c, RD_EV_COMPLETION, status, op->wr_id);
    }
    return 0;
}

/* ---- passive: requests ---- */

static uint32_t persist_one(const struct nic_conn *c, const struct rd_rpma_persist_wire *asked)
{
    const struct nic_region *ring = c->ring;
    uint64_t off = le64_get(asked->off), size = le64_get(asked->size);
    uint64_t first = ring->base.pool_off + RD_RING_HEADER_SIZE;
    if (size == 0 ||
        !cn_range_inside(off, size, first, ring->base.size - RD_RING_HEADER_SIZE))
        return (uint32_t)-CAIRN_E_FABRIC;
    uintptr_t line = (uintptr_t)ring->memory + (off - ring->base.pool_off);
    uintptr_t end = line + size;
    for (line -= line % RD_CACHE_LINE; line < end; line += RD_CACHE_LINE)
        nic_conn_ep(c)->fabric->flush_line((const void *)line);
    return 0;
}

static uint32_t cas_one(
    const struct nic_conn *c, const struct rd_rpma_cas_wire *asked, uint64_t *ret_old)
{
    uint64_t off = le64_get(asked->off), old = le64_get(asked->expected);
    for (uint32_t i = 0; i < c->region_count; i++) {
        const struct nic_region *region = c->region[i];
        if (!cn_range_inside(off, 8, region->base.pool_off, region->base.size))
            continue;
        uint8_t *word = region->memory + (off - region->base.pool_off);
        if ((region->base.access & RD_ACCESS_ATOMIC) == 0 || off % 8 != 0 ||
            (uintptr_t)word % 8 != 0)
            break;
        (void)__atomic_compare_exchange_n((uint64_t *)(void *)word, &old, le64_get(asked->desired),
            false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        *ret_old = old;
        return 0;
    }
    return (uint32_t)-CAIRN_E_FABRIC;
}

/* Carry out a request in receive buffer `at`, and answer. False: there is no buffer to answer with;
 * nothing was done. */
static bool answer(struct nic_conn *c, uint32_t at, uint32_t type, uint32_t count)
{
    const bool persist = type == RD_RPMA_PERSIST;
    const enum rd_rpma_frame_type done_type = persist ? RD_RPMA_PERSISTED : RD_RPMA_CAS_DONE;
    const uint8_t *from = rx_buffer(c, at) + sizeof(struct rd_rpma_frame_wire);
    uint8_t *to = begin_frame(c, done_type);
    if (to == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct rd_rpma_done_wire done = {0};
        uint64_t old = 0;
        uint32_t status;
        if (persist) {
            struct rd_rpma_persist_wire asked;
            memcpy(&asked, from + i * sizeof(asked), sizeof(asked));
            done.tag = asked.tag;
            status = persist_one(c, &asked);
        } else {
            struct rd_rpma_cas_wire asked;
            memcpy(&asked, from + i * sizeof(asked), sizeof(asked));
            done.tag = asked.tag;
            status = cas_one(c, &asked, &old);
        }
        done.old = le64_make(old);
        done.status = le32_make(status);
        memcpy(to + i * sizeof(done), &done, sizeof(done));
    }
    if (persist)
        __asm__ volatile("sfence" ::: "memory"); /* the write-backs are done: now say so */
    (void)end_frame(
        c, done_type, count, count * (uint32_t)sizeof(struct rd_rpma_done_wire));
    return true;
}

static void answer_held(struct nic_conn *c)
{
    uint32_t n = 0;
    while (n < c->held_count && c->log != NULL) {
        uint32_t at = c->held[n].at;
        if (!answer(c, at, c->held[n].type, c->held[n].count))
            break;
        n++;
        post_receive(c, at);
    }
    if (c->log == NULL) /* failed: forgotten with all else */
        return;
    c->held_count -= n;
    memmove(c->held, c->held + n, c->held_count * sizeof(c->held[0]));
}

/* A request comes behind those that are held. Returns whether the buffer may be posted again. */
static bool take_request(struct nic_conn *c, uint32_t at, uint32_t type, uint32_t count)
{
    if (c->held_count == 0 && answer(c, at, type, count))
        return true;
    CAIRN_ASSERT(c->held_count < NIC_RX);
    c->held[c->held_count].at = (uint8_t)at;
    c->held[c->held_count].type = (uint16_t)type;
    c->held[c->held_count++].count = (uint16_t)count;
    nic_set_busy(c);
    return false;
}

void rd_rpma_send_waiting(struct nic_conn *c)
{
    if (c->log == NULL || c->state != NIC_UP || c->down_due)
        return;
    if (c->held_count > 0)
        answer_held(c);
    if (c->log != NULL && c->persist_sent != c->persist.head && !send_asked(c, true))
        return;
    if (c->log != NULL && c->cas_sent != c->cas.head && !send_asked(c, false))
        return;
    if (c->log != NULL && c->bell_due)
        send_bell(c);
    if (c->log != NULL && nic_owes_credit(c) && begin_frame(c, RD_RPMA_CREDIT) != NULL)
        (void)end_frame(c, RD_RPMA_CREDIT, 0, 0);
}

/* ---- what comes ---- */

/* Which side a frame goes to, and in which state. */
static int check_place(const struct nic_conn *c, uint32_t type)
{
    enum nic_state state = NIC_UP;
    bool fits = true;
    switch (type) {
    case RD_RPMA_HELLO:
        fits = !c->active;
        state = NIC_GREETING;
        break;
    case RD_RPMA_READY:
        fits = !c->active;
        state = NIC_ACCEPTED;
        break;
    case RD_RPMA_ACCEPT:
    case RD_RPMA_REJECT:
        fits = c->active;
        state = NIC_ASKING;
        break;
    case RD_RPMA_BELL:
        fits = !c->active;
        break;
    case RD_RPMA_PERSIST:
        fits = !c->active && c->ring != NULL && c->ring->durability == RD_DURABILITY_GPSPM;
        break;
    case RD_RPMA_CAS: /* elsewhere the device's atomics would not see the CPU's */
        fits = !c->active && nic_by_message(nic_conn_ep(c));
        break;
    case RD_RPMA_PERSISTED:
    case RD_RPMA_CAS_DONE:
        fits = c->active;
        break;
    default:
        break;
    }
    if (fits && c->state == state)
        return 0;
    return cn_fail(CAIRN_E_PROTOCOL, "the peer sent a frame out of place (%s)",
        rd_rpma_frame_name(type));
}

/* The peer has posted receives again, of what was sent to it. */
static int take_credit(struct nic_conn *c, uint32_t returned)
{
    if (c->frames_sent - returned > c->frames_sent - c->frames_returned)
        return cn_fail(CAIRN_E_PROTOCOL, "the peer says it has taken %u frames, of %u sent",
            returned, c->frames_sent);
    c->frames_returned = returned;
    return 0;
}

/* One that comes behind an event still queued (the connection's being up) is queued too. Returns
 * whether it is in *ret_event. */
static bool take_message(struct nic_conn *c, uint32_t at, uint32_t size, struct rd_event *ret_event)
{
    struct nic_ep *ep = nic_conn_ep(c);
    if (nic_events_queued(ep)) {
        rd_rpma_event(c, RD_EV_MESSAGE, 0, nic_message_id(at, size));
        return false;
    }
    ep->counters.messages_received++;
    c->rx_taken |= UINT32_C(1) << at;
    ep->receives_due = true;
    *ret_event = (struct rd_event){
        .type = RD_EV_MESSAGE,
        .conn = &c->base,
        .data = rx_buffer(c, at) + sizeof(struct rd_rpma_frame_wire),
        .size = size,
    };
    return true;
}

bool rd_rpma_on_receive(struct nic_conn *c, uint32_t at, uint32_t size, struct rd_event *ret_event)
{
    struct rd_rpma_frame_wire head;
    if (c->fenced || c->state == NIC_REFUSING) { /* nothing of it has an effect any more */
        post_receive(c, at);
        return false;
    }
    int err = rd_rpma_check_frame(rx_buffer(c, at), size, &head);
    if (err == 0)
        err = check_place(c, le16_get(head.type));
    if (err == 0)
        err = take_credit(c, le32_get(head.returned));
    if (err != 0) {
        fail(c, err);
        return false;
    }
    const uint8_t *payload = rx_buffer(c, at) + sizeof(head);
    uint32_t type = le16_get(head.type), count = le16_get(head.count);
    switch (type) {
    case RD_RPMA_MESSAGE:
        return take_message(c, at, le32_get(head.size), ret_event);
    case RD_RPMA_BELL:
        break;
    case RD_RPMA_CREDIT:
        break;
    case RD_RPMA_PERSIST:
    case RD_RPMA_CAS:
        if (!take_request(c, at, type, count))
            return false;
        break;
    case RD_RPMA_PERSISTED:
    case RD_RPMA_CAS_DONE:
        err = take_done(c, type == RD_RPMA_PERSISTED, payload, count);
        if (err != 0)
            fail(c, err);
        break;
    default:
        rd_rpma_on_frame(c, type, payload, le32_get(head.size));
        break;
    }
    post_receive(c, at);
    return false;
}
