/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_session.c: the session of a context: connections, handshake, loss, clean close.
 *
 * Invariant (R2, R15): one session never has two epochs of one node in use. A connection that is
 * lost ends the session: every other one is closed too and the next transaction starts under a new
 * uuid. What a welcome says is checked (rd_wire_check_welcome) before anything of it is used.
 */
#include "txn/txn_ctx.h"

#include <errno.h>

int txn_peer_fail(const struct txn_peer *peer, int code)
{
    return cn_fail_context(code, "node %u (%s): ", peer->node, peer->address);
}

bool txn_is_unreachable(int code)
{
    switch (code) {
    case CAIRN_E_NO_DEVICE:
    case CAIRN_E_MEMLOCK:
    case CAIRN_E_NO_ATOMICS:
    case CAIRN_E_WIRE_VERSION: return true;
    default: return txn_may_come_back(code);
    }
}

bool txn_may_come_back(int code)
{
    switch (code) {
    case CAIRN_E_NODE_DOWN:
    case CAIRN_E_FENCED:
    case CAIRN_E_TIMEOUT:
    case CAIRN_E_UNREACHABLE:
    case CAIRN_E_REJECTED:
    case CAIRN_E_FABRIC: return true;
    default: return false;
    }
}

/* What a call returns for a connection that died of `status`. */
static int code_of(int status)
{
    return txn_is_unreachable(status) ? status : CAIRN_E_NODE_DOWN;
}

int txn_lost_error(struct cairn_ctx *ctx)
{
    const struct txn_peer *peer = &ctx->peer[ctx->lost_peer];

    if (ctx->lost_text[0] != '\0')
        return cn_fail(code_of(ctx->lost), "node %u (%s): connection lost: %s", peer->node,
            peer->address, ctx->lost_text);
    switch (ctx->lost) {
    case CAIRN_E_FENCED:
        return cn_fail(CAIRN_E_FENCED,
            "node %u (%s): has fenced this context; the next transaction reconnects", peer->node,
            peer->address);
    case CAIRN_E_TIMEOUT:
        return cn_fail(CAIRN_E_TIMEOUT,
            "node %u (%s): no answer within %u ms; is it overloaded or stopped?", peer->node,
            peer->address, ctx->cluster->options.op_timeout_ms);
    default:
        return cn_fail(code_of(ctx->lost),
            "node %u (%s): connection lost (%s); is the node running?", peer->node, peer->address,
            cairn_error_name(ctx->lost));
    }
}

/* `text`: what the fabric says, or NULL. */
static void note_lost(struct txn_peer *peer, int status, const char *text)
{
    struct cairn_ctx *ctx = peer->ctx;

    if (CN_MUTANT(c_session_continues)) {
        peer->state = TXN_PEER_NONE; /* reconnects in the middle of the transaction */
        return;
    }
    if (ctx->closing)
        return;
    /* A post may have met it first, which has no words for it. */
    bool told = ctx->lost != 0 && ctx->lost_peer == peer->at && ctx->lost_text[0] == '\0';
    if (ctx->lost != 0 && (!told || text == NULL))
        return;
    if (ctx->lost == 0 || ctx->lost == CAIRN_E_NODE_DOWN)
        ctx->lost = status;
    ctx->lost_peer = peer->at;
    (void)snprintf(ctx->lost_text, sizeof(ctx->lost_text), "%s", text != NULL ? text : "");
    cn_log(ctx->env, CN_LOG_WARNING, "session %02x%02x%02x%02x: node %u (%s) lost: %s%s%s",
        ctx->session.b[0], ctx->session.b[1], ctx->session.b[2], ctx->session.b[3], peer->node,
        peer->address, cairn_error_name(status), text != NULL ? ": " : "",
        text != NULL ? text : "");
}

static void delete_later(struct txn_peer *peer)
{
    peer->dead = peer->conn;
    peer->ctx->any_dead = true;
}

static void drop(struct txn_peer *peer, int status, const char *text)
{
    bool was_up = peer->state == TXN_PEER_UP;

    if (peer->conn != NULL && peer->ctx->polling)
        delete_later(peer); /* events of the batch may still name it */
    else if (peer->conn != NULL)
        rd_conn_delete(peer->conn);
    peer->conn = NULL;
    peer->state = TXN_PEER_DOWN;
    peer->down_status = status;
    txn_ops_fail(peer->ctx, peer->at, status);
    if (was_up)
        note_lost(peer, status, text);
}

void txn_peer_drop(struct txn_peer *peer, int status)
{
    drop(peer, status, NULL);
}

static void read_welcome(struct txn_peer *peer, const struct rd_welcome_wire *w)
{
    peer->pool = w->pool;
    peer->crc_seed = cn_crc32c(0, w->pool.b, sizeof(w->pool.b));
    peer->incarnation = le64_get(w->incarnation);
    peer->epoch = le64_get(w->slot_epoch);
    peer->nonce = le64_get(w->nonce);
    peer->ring_off = le64_get(w->ring_off);
    peer->ring_size = le64_get(w->ring_size);
    peer->position_off = le64_get(w->position_off);
    peer->extent_off = le64_get(w->extent_off);
    peer->extent_end = le64_get(w->extent_end);
    peer->window = le32_get(w->window);
    peer->record_max = cn_min64(peer->ring_size / 2, TXN_RECORD_MAX);
    if (le32_get(w->bytes_max) != 0)
        peer->record_max = cn_min64(peer->record_max, le32_get(w->bytes_max));
    peer->slot = le16_get(w->slot);
    peer->tag = le16_get(w->tag);
    peer->locked_bits = pm_word_make_locked(peer->tag, peer->slot, 0);
    peer->place = (struct pm_place){
        .pool = peer->pool, .slot = peer->slot, .epoch = peer->epoch, .nonce = peer->nonce};
    peer->place.crc = pm_place_crc(&peer->place);
    peer->chunk_shift = w->chunk_shift;
    peer->seq = peer->done = peer->log_off = peer->position_seq = peer->position_off_log = 0;
    peer->lap_off = 0;
    memset(peer->committed, 0, sizeof(peer->committed));
    peer->promised_bytes = peer->promised_records = 0;
    peer->staging_head = peer->staging_tail = peer->staging_off = 0;
    memset(peer->position, 0, sizeof(*peer->position));
    peer->position_status = 0;
    peer->void_seq = 0;
    peer->word_replied = 0;
    txn_stock_reset(peer);
}

/* Never silently weaker: what the node states is what the configuration declares for it (if it
 * declares anything), and what its ring's flushes do. Nothing has been written there yet. */
static int check_durability(const struct txn_peer *peer, enum rd_durability stated)
{
    const struct txn_config_node *at = &peer->ctx->cluster->config->node[peer->at];
    enum rd_durability declared = txn_persistence_durability(at->persistence);
    enum rd_durability ring = peer->conn->durability;

    if (declared != 0 && declared != stated)
        return cn_fail(CAIRN_E_DURABILITY,
            "it makes writes durable by \"%s\", but persistence = \"%s\" is configured for it "
            "here; give all processes the same configuration and restart the node",
            rd_durability_name(stated), txn_persistence_name(at->persistence));
    if (ring != 0 && ring != stated)
        return cn_fail(CAIRN_E_DURABILITY,
            "it says that it makes writes durable by \"%s\", but grants a ring of \"%s\"",
            rd_durability_name(stated), rd_durability_name(ring));
    return 0;
}

static void peer_up(struct txn_peer *peer, const struct rd_event *event)
{
    struct rd_welcome_wire w;
    int rc = rd_wire_check_welcome(event->data, event->size, peer->node, true);

    if (rc == 0) {
        memcpy(&w, event->data, sizeof(w));
        if (w.chunk_shift < 12 || w.chunk_shift > 30 || le32_get(w.window) == 0 ||
            le64_get(w.ring_size) < 4096)
            rc = cn_fail(CAIRN_E_PROTOCOL, "welcome: impossible chunk, window or ring size");
        else
            rc = check_durability(peer, (enum rd_durability)w.durability);
    }
    if (rc != 0) {
        cn_error_copy(peer->refusal, sizeof(peer->refusal));
        txn_peer_drop(peer, rc);
        return;
    }
    read_welcome(peer, &w);
    peer->state = TXN_PEER_UP;
}

/* Refused or not reached: the connection's own reason. */
static void connect_failed(struct txn_peer *peer, const struct rd_event *event)
{
    int status = event->status != 0 ? event->status : CAIRN_E_NODE_DOWN;

    peer->refusal[0] = '\0';
    if (event->size != 0) {
        status = rd_wire_refusal(event->data, event->size);
        cn_error_copy(peer->refusal, sizeof(peer->refusal));
    } else if (event->text != NULL) {
        snprintf(peer->refusal, sizeof(peer->refusal), "%s", event->text);
        status = code_of(status);
    }
    txn_peer_drop(peer, status);
}

void txn_event(struct cairn_ctx *ctx, const struct rd_event *event)
{
    struct txn_peer *peer = event->conn == NULL ? NULL : event->conn->user;

    if (peer == NULL || peer->ctx != ctx || peer->conn != event->conn)
        return;
    switch (event->type) {
    case RD_EV_UP:
        if (peer->state == TXN_PEER_CONNECTING)
            peer_up(peer, event);
        break;
    case RD_EV_DOWN:
        if (peer->state == TXN_PEER_CONNECTING)
            connect_failed(peer, event);
        else
            drop(peer, event->status != 0 ? event->status : CAIRN_E_NODE_DOWN, event->text);
        break;
    case RD_EV_MESSAGE: txn_message(peer, event->data, event->size); break;
    case RD_EV_COMPLETION: /* taken by txn_poll() */
    case RD_EV_CONNECT: /* a coordinator does not listen */ break;
    }
}

static int unanswered(const struct txn_peer *peer)
{
    return cn_fail(CAIRN_E_TIMEOUT,
        "node %u (%s): no answer within %u ms; is it overloaded or stopped?", peer->node,
        peer->address, peer->ctx->cluster->options.connect_timeout_ms);
}

/* The error of a try to connect that failed, with its text. */
static int unreached(const struct txn_peer *peer)
{
    int status = peer->down_status;

    if (peer->refusal[0] != '\0')
        return cn_fail(status, "node %u (%s): %s", peer->node, peer->address, peer->refusal);
    if (status == CAIRN_E_TIMEOUT)
        return unanswered(peer);
    if (status == -EACCES || status == -EPERM)
        return cn_fail(CAIRN_E_NODE_DOWN,
            "node %u (%s): permission denied; run as the user that runs the node", peer->node,
            peer->address);
    return cn_fail(code_of(status),
        "node %u (%s): cannot be reached (%s); is it running, and is the address right?",
        peer->node, peer->address, cairn_error_name(status));
}

/* The try to connect that is under way: 0 or the error, with its text. `own`: this transaction's,
 * which alone ends it at its deadline: who has joined may see the next one, which has just begun.
 */
static int await_connected(struct txn_peer *peer, uint64_t deadline_ns, bool own)
{
    struct cairn_ctx *ctx = peer->ctx;

    while (peer->state == TXN_PEER_CONNECTING && ctx->lost == 0) {
        if (txn_now(ctx) < deadline_ns) {
            txn_rest(ctx, deadline_ns);
            continue;
        }
        if (!own)
            return unanswered(peer);
        txn_peer_drop(peer, CAIRN_E_TIMEOUT);
    }
    if (peer->state == TXN_PEER_UP)
        return 0;
    if (ctx->lost != 0) {
        txn_peer_drop(peer, CAIRN_E_NODE_DOWN);
        return txn_lost_error(ctx);
    }
    return unreached(peer);
}

struct connect {
    struct txn_peer *peer;
    const struct rd_hello_wire *hello;
    uint64_t deadline_ns;
};

static int begin_connect(void *arg)
{
    struct connect *c = arg;

    return rd_connect(c->peer->ctx->ep, c->peer->address, c->hello, sizeof(*c->hello),
        c->deadline_ns, &c->peer->conn);
}

/* One try to connect; another transaction's, if one is under way or has succeeded meanwhile. */
static int connect_once(struct txn_peer *peer, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct rd_hello_wire hello = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make(RD_ROLE_COORDINATOR),
        .cluster = ctx->cluster->config->cluster,
        .peer = ctx->session,
        .view = le32_make(ctx->cluster->config->view),
        .node = le16_make(peer->node),
    };

    struct connect connect = {peer, &hello, deadline_ns};

    if (peer->state == TXN_PEER_UP || peer->state == TXN_PEER_CONNECTING)
        return await_connected(peer, deadline_ns, false);
    cn_step(ctx->env, CN_STEP_c_connect);
    peer->refusal[0] = '\0';
    peer->down_status = 0;
    int rc = txn_on_caller(ctx, begin_connect, &connect); /* it looks up addresses */
    if (rc != 0) {
        peer->conn = NULL;
        return txn_peer_fail(peer, rc);
    }
    peer->conn->user = peer;
    peer->state = TXN_PEER_CONNECTING;
    return await_connected(peer, deadline_ns, true);
}

int txn_peer_need(struct txn_peer *peer)
{
    struct cairn_ctx *ctx = peer->ctx;

    if (CN_LIKELY(peer->state == TXN_PEER_UP))
        return 0;
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    uint64_t deadline = txn_now(ctx) +
        (uint64_t)ctx->cluster->options.connect_timeout_ms * 1000000u;
    for (uint32_t tries = 0;; tries++) {
        int rc = connect_once(peer, deadline);
        if (rc == 0 || ctx->lost != 0)
            return rc;
        /* AGAIN: the node lives but does not serve yet. */
        uint64_t until = txn_now(ctx) + 1000000u + txn_backoff_ns(ctx, tries + 4);
        if (rc != CAIRN_E_AGAIN || until >= deadline)
            return rc == CAIRN_E_AGAIN ? cn_fail_context(CAIRN_E_NODE_DOWN, "not serving yet: ")
                                       : rc;
        txn_pause(ctx, until);
    }
}

/* Say goodbye and await the answers for a moment; what does not answer is cut. */
static void close_cleanly(struct cairn_ctx *ctx)
{
    uint64_t limit = cn_min64(
        TXN_CLOSE_WAIT_NS, (uint64_t)ctx->cluster->options.op_timeout_ms * 1000000u);
    uint64_t deadline = txn_now(ctx) + limit;
    uint32_t id;

    ctx->closing = true;
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        peer->close_replied = peer->state != TXN_PEER_UP;
        if (peer->state == TXN_PEER_UP &&
            txn_send_by(peer, RD_MSG_CLOSE, NULL, 0, deadline, &id) != 0)
            peer->close_replied = true;
    }
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        while (!peer->close_replied && peer->state == TXN_PEER_UP && txn_now(ctx) < deadline)
            txn_rest(ctx, deadline);
    }
    ctx->closing = false;
}

void txn_session_end(struct cairn_ctx *ctx, bool clean)
{
    uint64_t deadline = txn_op_deadline(ctx);

    (void)txn_wait(ctx, &ctx->background, deadline);
    for (uint32_t i = 0; i < ctx->tx_count; i++)
        (void)txn_wait(ctx, &ctx->tx[i].background, deadline);
    if (clean)
        close_cleanly(ctx);
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        if (peer->conn != NULL)
            rd_conn_delete(peer->conn);
        peer->conn = NULL;
        peer->state = TXN_PEER_NONE;
        peer->down_status = 0;
        txn_ops_fail(ctx, peer->at, CAIRN_E_NODE_DOWN);
        peer->void_seq = 0;
        txn_stock_reset(peer);
    }
    for (struct txn_request *r = ctx->request; r != NULL; r = r->next)
        r->done = r->cut = true;
    ctx->blocker.off = 0;
}

void txn_session_renew(struct cairn_ctx *ctx)
{
    CAIRN_ASSERT(!ctx->renewing && ctx->tx_open == 0);
    ctx->renewing = true;
    txn_session_end(ctx, true);
    txn_session_begin(ctx);
    ctx->renewing = false;
    ctx->progress++;
    ctx->stats.reconnects++;
}

/* The context is being closed, and all transactions that are open are the caller's, who ends them
 * only when all lanes are through: to wait for that would be to wait for ourselves. */
static bool waits_for_us(const struct cairn_ctx *ctx)
{
    bool waits = ctx->shut && !ctx->renewing;

    for (uint32_t i = 0; i < ctx->tx_count && waits; i++)
        waits = !ctx->tx[i].open || !ctx->tx[i].busy;
    return waits;
}

/* May the transactions that are open end without the one that calls? Not if it has one open. */
static bool may_wait(const struct cairn_ctx *ctx, bool patient)
{
    if (ctx->renewing)
        return true;
    return ctx->running != NULL ? !ctx->running->open : patient && ctx->lanes != 0;
}

int txn_session_need(struct cairn_ctx *ctx, uint64_t deadline_ns, bool patient)
{
    uint32_t idle = 0;

    while (ctx->renewing || ctx->alone || (ctx->lost != 0 && ctx->tx_open != 0)) {
        bool in_time = ctx->renewing || txn_now(ctx) < deadline_ns;
        if (waits_for_us(ctx))
            return txn_none_free(ctx);
        if (in_time && may_wait(ctx, patient)) {
            txn_wait_some(ctx, &idle, deadline_ns);
            continue;
        }
        if (ctx->lost != 0)
            return txn_lost_error(ctx);
        return cn_fail(in_time ? CAIRN_E_STATE : CAIRN_E_TIMEOUT,
            "this context has an open transaction that has taken its token: end it first");
    }
    if (ctx->lost != 0)
        txn_session_renew(ctx);
    return 0;
}

void txn_session_begin(struct cairn_ctx *ctx)
{
    cn_random(ctx->env, ctx->session.b, sizeof(ctx->session.b));
    ctx->tx_counter = 0;
    ctx->lost = 0;
    ctx->lost_text[0] = '\0';
    ctx->background = (struct txn_batch){0};
    for (uint32_t i = 0; i < ctx->tx_count; i++)
        ctx->tx[i].background = (struct txn_batch){0};
}
