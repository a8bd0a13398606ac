/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_lies.c: F25, peers that keep to the messages and lie about everything else: locks in
 * the name of nobody, records of several participants that are one, somebody who asks and leaves;
 * and F13, calls of the node's fabric that fail while such a peer is served. A coordinator can lock
 * any word and so keep others from it; nothing that it does may make a value wrong.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_object.h"
#include "pmem/pm_record.h"
#include "tools/crash/faults/cr_peer.h"

#define SESSION 41u
#define STEP_US 20u
#define LEASE_US 20000u
#define WAITER_US 300000u /* how long a node lets somebody wait for a verdict */
#define FLOOD 4096u

/* ---- locks ---- */

static enum rd_word_answer ask_word(struct cr_peer *p, uint64_t off, uint64_t word)
{
    const struct rd_word_wire ask = {.off = le64_make(off), .word = le64_make(word)};

    (void)!cr_peer_post(p, RD_MSG_WORD, &ask, sizeof(ask));
    for (uint32_t i = 0; i < 1000 && p->type == 0 && !p->down; i++)
        cr_peer_rest(p, STEP_US);
    if (p->type != RD_MSG_WORD_REPLY || p->status != 0)
        return 0;
    return (enum rd_word_answer)le32_get(
        ((const struct rd_word_reply_wire *)(const void *)p->body)->answer);
}

static uint64_t swap(struct cr_peer *p, uint64_t off, uint64_t expected, uint64_t desired)
{
    uint64_t *old = rd_ep_memory(p->ep);

    p->completed = 0;
    if (rd_cas(p->conn, 1, off, expected, desired, old, RD_SIGNALED) != 0)
        cr_peer_wrong(p, "a lock", cairn_last_error());
    for (uint32_t i = 0; i < 1000 && p->completed == 0 && !p->down; i++)
        cr_peer_rest(p, STEP_US);
    return *old;
}

/* Lock the next word behind `off`; its value; *off becomes its place. */
static uint64_t lock_next(struct cr_peer *p, uint64_t *off, uint16_t slot, uint64_t raise)
{
    const struct pm_super *super = &p->stand->super[0];

    for (*off = cn_max64(*off + 64, super->heap_off); *off < p->stand->pool_size; *off += 64) {
        if (p->down || ask_word(p, *off, 0) != RD_WORD_CHANGED)
            continue;
        uint64_t have = swap(p, *off, 0, 0);
        uint64_t want = pm_word_make_locked(
            le16_get(p->welcome.tag), slot, pm_word_version(have) + raise);
        if (pm_word_version(have) != 0 && !pm_word_locked_bit(have) &&
            swap(p, *off, have, want) == have)
            return want;
    }
    cr_peer_wrong(p, "words", "none could be locked");
    return 0;
}

/* Of an owner that does not exist, of the node itself, and of its own at another version than the
 * object has. It goes, and the node does not give back what it cannot account for. */
static void lock_in_vain(struct cr_peer *p)
{
    const struct { uint16_t slot; uint64_t raise; enum rd_word_answer answer; } locks[] = {
        {0xfff, 0, RD_WORD_IN_DOUBT}, {0, 0, RD_WORD_CHECKING}, {1, 7, RD_WORD_IN_DOUBT}};
    uint64_t off[CN_ARRAY_SIZE(locks)] = {0}, word[CN_ARRAY_SIZE(locks)];

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION + 1, "another coordinator");
    struct rd_conn *other = p->conn;
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(locks); i++) {
        off[i] = i > 0 ? off[i - 1] : 0;
        word[i] = lock_next(p, &off[i],
            locks[i].slot == 1 ? le16_get(p->welcome.slot) : locks[i].slot, locks[i].raise);
    }
    cr_peer_end(p);
    cr_peer_rest(p, 10 * LEASE_US); /* its slot ends, and all words are looked at */
    p->conn = other;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(locks); i++) {
        char have[60];
        enum rd_word_answer answer = ask_word(p, off[i], word[i]);
        (void)snprintf(
            have, sizeof(have), "%d, not %d", (int)answer, (int)locks[i].answer);
        if (answer != locks[i].answer)
            cr_peer_wrong(p, "what is said of a lock of nobody", have);
    }
}

/* It dies with a lock. The node gives it back when somebody asks, but its own fabric fails: the
 * scrub does it later. */
static void lock_and_die(struct cr_peer *p)
{
    struct sim *sim = p->actor->sim;
    uint64_t off = 0;

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION + 1, "another coordinator");
    struct rd_conn *other = p->conn;
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    uint64_t word = lock_next(p, &off, le16_get(p->welcome.slot), 0);
    struct rd_conn *first = p->conn;
    cr_peer_rest(p, LEASE_US / 5); /* it was not heard of for a while: it is asked */
    p->conn = other;
    if (ask_word(p, off, word) != RD_WORD_CHECKING)
        cr_peer_wrong(p, "a lock of who is silent", "is not asked about");
    p->conn = first;
    sim_actor_pause(&sim->actor[0], sim->now + 5 * SIM_MS); /* both come to it at once */
    cr_peer_end(p);
    cr_peer_rest(p, 1000);
    p->conn = other;
    sim->fabric->failure[0].at = sim->fabric->failure[0].made + 1;
    if (ask_word(p, off, word) != RD_WORD_CHECKING)
        cr_peer_wrong(p, "a lock that cannot be given back", "is said to be");
    cr_peer_rest(p, 10 * LEASE_US);
    if (ask_word(p, off, word) != RD_WORD_CHANGED)
        cr_peer_wrong(p, "a lock of the dead", "stays");
}

/* ---- records ---- */

static struct rd_place_wire place_at(const struct cr_peer *p, uint64_t seq)
{
    return (struct rd_place_wire){.coordinator = {{SESSION}}, .count = le64_make(seq),
        .epoch = p->welcome.slot_epoch, .seq = le64_make(seq), .view = le32_make(1),
        .slot = p->welcome.slot, .node = le16_make(1)};
}

/* A record of two participants, the first of them here, behind `log_off`; unmarked. `bad`: its
 * checksum does not fit. Returns where the log ends. */
static uint64_t log_record(struct cr_peer *p, uint64_t log_off, uint64_t seq, uint16_t second,
    const struct rd_block_wire *block, bool bad)
{
    uint8_t *bytes = (uint8_t *)rd_ep_memory(p->ep) + 2048;
    uint64_t at = le64_get(p->welcome.ring_off) + RD_RING_HEADER_SIZE + log_off;
    const struct pm_place place = {.pool = p->welcome.pool, .slot = le16_get(p->welcome.slot),
        .epoch = le64_get(p->welcome.slot_epoch), .nonce = le64_get(p->welcome.nonce),
        .log_off = log_off};
    const struct cn_txid txid = {.coordinator = {{SESSION}}, .count = seq};
    struct pm_record_writer w;

    pm_record_begin(&w, bytes, 1024);
    pm_record_add_participant(&w, 1, 0, 0, place.slot, place.epoch, seq);
    pm_record_add_participant(&w, second, 1, 0, second == 1 ? place.slot : 2,
        second == 1 ? place.epoch : 77, second == 1 ? seq : 4);
    if (block != NULL)
        pm_record_add_block(&w, le64_get(block->off), le64_get(block->version));
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, seq, 1, &place);
    if (bad)
        bytes[72] ^= 1;
    if (size == 0 || rd_write(p->conn, 1, at, bytes, size, 0) != 0 ||
        rd_flush(p->conn, 2, at, size, 0) != 0)
        cr_peer_wrong(p, "a record", cairn_last_error());
    else if (bad && rd_mark(p->conn, 3, at + offsetof(struct pm_record_pm, mark),
                 pm_word_value(place.nonce, seq, PM_WORD_MARK), 0) != 0)
        cr_peer_wrong(p, "a mark", cairn_last_error());
    rd_doorbell(p->conn);
    cr_peer_rest(p, 100);
    return log_off + size;
}

static uint32_t verdict_on(struct cr_peer *p, const struct rd_place_wire *place)
{
    const struct rd_ask_wire ask = {*place};

    (void)!cr_peer_post(p, RD_MSG_RESOLVE, &ask, sizeof(ask));
    for (uint32_t i = 0; i < 2 * WAITER_US / STEP_US && p->type == 0 && !p->down; i++)
        cr_peer_rest(p, STEP_US);
    return p->type != RD_MSG_RESOLVE_REPLY
        ? RD_VERDICT_NONE
        : le32_get(((const struct rd_answer_wire *)(const void *)p->body)->verdict);
}

/* It is marked, and the node sees mark and question at once. */
static void ask_for_what_is_marked(struct cr_peer *p)
{
    struct sim *sim = p->actor->sim;

    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    struct rd_conn *tool = p->conn;
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    const struct rd_place_wire place = place_at(p, 1);
    sim_actor_pause(&sim->actor[0], sim->now + 2 * SIM_MS);
    (void)log_record(p, 0, 1, 2, NULL, false);
    if (rd_mark(p->conn, 3, le64_get(p->welcome.ring_off) + RD_RING_HEADER_SIZE +
                    offsetof(struct pm_record_pm, mark),
            pm_word_value(le64_get(p->welcome.nonce), 1, PM_WORD_MARK), 0) != 0)
        cr_peer_wrong(p, "a mark", cairn_last_error());
    cr_peer_rest(p, 100);
    struct rd_conn *first = p->conn;
    p->conn = tool;
    if (verdict_on(p, &place) != RD_VERDICT_COMMITTED)
        cr_peer_wrong(p, "a record that is marked", "is not committed");
    rd_conn_delete(first);
}

/* It connects twice, and the first connection cannot be cut off: nobody knows what its owner still
 * does, so a lock of it stays. */
static void meet_twice(struct cr_peer *p)
{
    uint64_t off = 0;

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    struct rd_conn *first = p->conn;
    uint64_t word = lock_next(p, &off, le16_get(p->welcome.slot), 0);
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "the same coordinator");
    rd_conn_delete(first);
    cr_peer_rest(p, 1000);
    if (ask_word(p, off, word) != RD_WORD_CHECKING)
        cr_peer_wrong(p, "a lock of who was not cut off", "is answered for");
}

/* Who asks for a verdict is gone when the node would tell that there is none: both come to it at
 * once, for it stands still meanwhile. */
static void ask_and_leave(struct cr_peer *p, const struct rd_place_wire *place)
{
    struct sim *sim = p->actor->sim;
    const struct rd_ask_wire ask = {*place};

    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    (void)!cr_peer_post(p, RD_MSG_RESOLVE, &ask, sizeof(ask));
    cr_peer_rest(p, 1000);
    cr_peer_end(p); /* long before */
    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    (void)!cr_peer_post(p, RD_MSG_RESOLVE, &ask, sizeof(ask));
    cr_peer_rest(p, WAITER_US - 1000);
    sim_actor_pause(&sim->actor[0], sim->now + 10 * SIM_MS);
    cr_peer_end(p);
    cr_peer_rest(p, 20000);
}

/* As the second node: it is asked about what is in doubt, and the question cannot be sent; the
 * first one connects anew. */
static void cannot_be_asked(struct cr_peer *p)
{
    struct sim_failure *failure = &p->actor->sim->fabric->failure[0];
    const struct rd_welcome_wire welcome = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .node = le16_make(2),
        .pool = p->stand->super[1].pool, .incarnation = le64_make(1), .view = le32_make(1),
        .durability = RD_DURABILITY_APM};
    const uint32_t wanted = failure->call == SIM_CALL_CONNECT ? 1 : 2;
    uint32_t connects = 0;

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    (void)log_record(p, 0, 1, 2, NULL, false);
    if (rd_listen(p->ep, p->stand->config.node[1].address) != 0)
        cr_peer_wrong(p, "listen", cairn_last_error());
    for (uint64_t until = p->actor->sim->now + 3000 * SIM_MS;
         connects < wanted && p->actor->sim->now < until;) {
        struct rd_event e;
        if (rd_poll(p->ep, &e, 1) != 1)
            continue;
        if (e.type == RD_EV_CONNECT) {
            connects++;
            if (rd_accept(e.conn, NULL, 0, NULL, &welcome, sizeof(welcome)) != 0)
                cr_peer_wrong(p, "accept", cairn_last_error());
        } else if (e.type == RD_EV_MESSAGE && e.conn != p->conn && failure->at == 0) {
            failure->at = failure->made + 1;
        }
    }
    if (connects < wanted)
        cr_peer_wrong(p, "a node that could not be asked", "is not asked again");
}

static void expect_unrest(struct cr_peer *p)
{
    static const char text[] = "\"quiet\":false";

    cr_peer_expect(p, RD_MSG_STATS, NULL, RD_MSG_STATS_REPLY, 0);
    if (memmem(p->body, p->body_size, text, strlen(text)) == NULL)
        cr_peer_wrong(p, "a node with a record that is not decided", "is quiet");
}

/* Both participants are this node: it has all answers at once. The next one's second participant is
 * away: it stays in doubt, and so does the block that it names. */
static void name_itself_twice(struct cr_peer *p)
{
    const struct rd_grant_wire grant = {.count = le32_make(1)};

    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    cr_peer_expect(p, RD_MSG_GRANT, &grant, RD_MSG_GRANT_REPLY, 0);
    const struct rd_block_wire block =
        ((const struct rd_grant_reply_wire *)(const void *)p->body)->block[0];
    const struct rd_place_wire first = place_at(p, 1), second = place_at(p, 2);
    uint64_t end = log_record(p, 0, 1, 1, NULL, false);
    cr_peer_rest(p, LEASE_US);
    (void)log_record(p, end, 2, 2, &block, false);
    expect_unrest(p); /* it waits for a mark */
    cr_peer_rest(p, LEASE_US);
    if (ask_word(p, le64_get(block.off), 0) != RD_WORD_IN_DOUBT)
        cr_peer_wrong(p, "a block of a record in doubt", "is free");
    uint64_t other = p->stand->super[0].heap_off;
    while (other < p->stand->pool_size &&
        (other == le64_get(block.off) || ask_word(p, other, 0) == 0))
        other += 64;
    if (ask_word(p, other, 0) != RD_WORD_CHANGED)
        cr_peer_wrong(p, "what no record names", "is not free");
    cr_peer_end(p);
    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    if (verdict_on(p, &first) != RD_VERDICT_COMMITTED)
        cr_peer_wrong(p, "a record of one node that is named twice", "is not committed");
    if (verdict_on(p, &second) != RD_VERDICT_IN_DOUBT)
        cr_peer_wrong(p, "a record whose participant is away", "has a verdict");
    expect_unrest(p); /* it is in doubt */
    cr_peer_end(p);
    ask_and_leave(p, &second);
}

/* A mark on what does not check: it is cut off. */
static void mark_rubbish(struct cr_peer *p)
{
    cr_peer_must_meet(p, RD_ROLE_COORDINATOR, SESSION, "a coordinator");
    (void)log_record(p, 0, 1, 2, NULL, true);
    cr_peer_rest(p, LEASE_US);
}

/* ---- answers that are not taken ---- */

/* It asks and looks at nothing, until the node has had enough of it. */
static void take_no_answer(struct cr_peer *p)
{
    uint32_t sent = 0;

    cr_peer_must_meet(p, RD_ROLE_TOOL, 0, "a tool");
    while (sent < FLOOD && cr_peer_post(p, RD_MSG_STATS, NULL, 0) != CAIRN_E_NODE_DOWN) {
        sim_sleep(p->actor->sim, p->actor->sim->now + 5 * SIM_US);
        sent++;
    }
    cr_peer_rest(p, 500);
    if (!p->down)
        cr_peer_wrong(p, "who takes no answers", "is kept");
}

static void wrong_hello(struct cr_peer *p)
{
    struct rd_hello_wire hello = cr_peer_hello(p, RD_ROLE_COORDINATOR);

    hello.cluster.b[0] ^= 1;
    cr_peer_meet(p, &hello, sizeof(hello));
    if (!p->down)
        cr_peer_wrong(p, "another cluster", "is let in");
}

/* Until there are none left. */
static void take_all_slots(struct cr_peer *p)
{
    struct rd_conn *taken[64];
    uint32_t n = 0;

    for (; n < CN_ARRAY_SIZE(taken) && !p->down; n++) {
        struct rd_hello_wire hello = cr_peer_hello(p, RD_ROLE_COORDINATOR);
        hello.peer.b[0] = (uint8_t)(SESSION + n);
        cr_peer_meet(p, &hello, sizeof(hello));
        taken[n] = p->conn;
        p->conn = NULL;
    }
    if (!p->down)
        cr_peer_wrong(p, "slots", "never end");
    while (n > 0)
        rd_conn_delete(taken[--n]);
    cr_peer_rest(p, 200000);
}

static void new_tool(struct cr_peer *p)
{
    struct rd_hello_wire hello = cr_peer_hello(p, RD_ROLE_TOOL);

    cr_peer_meet(p, &hello, sizeof(hello));
    cr_peer_end(p);
    cr_peer_rest(p, 500);
}

/* ---- the cases ---- */

static const struct cn_pace adaptive = {CN_PACE_ADAPTIVE, 700, 10, 20};

static const struct lie {
    const char *what;
    void (*script)(struct cr_peer *peer);
    bool served; /* all others are, as if nothing had been */
    bool alone;  /* the second node comes late */
    const struct cn_pace *pace;
    enum sim_call call; /* of the first node's fabric, that fails, and `then` another one ... */
    enum sim_call then;
    uint64_t at;        /* ... as so manyth; 0: when the script says */
} lies[] = {
    {"locks of nobody", lock_in_vain, .served = false},
    {"a node that is named twice", name_itself_twice, .alone = true, .pace = &adaptive},
    {"a question about what is marked", ask_for_what_is_marked, .alone = true},
    {"answers that nobody takes", take_no_answer, .served = true},
    {"rubbish that is marked", mark_rubbish, .served = true},
    /* the same, and a call fails */
    {"answers that nobody takes, sent again in vain", take_no_answer, .served = true,
        .call = SIM_CALL_SEND, .at = 200},
    {"rubbish that is marked, and cannot be cut off", mark_rubbish, .served = true,
        .call = SIM_CALL_FENCE, .at = 1},
    {"a lock of the dead that cannot be given back", lock_and_die, .served = true,
        .call = SIM_CALL_LOOP_POST},
    {"the same, and there is no other connection to be had", lock_and_die, .served = true,
        .call = SIM_CALL_LOOP_POST, .then = SIM_CALL_LOOPBACK},
    {"a connection to ask that cannot be made", cannot_be_asked, .served = false, .alone = true,
        .call = SIM_CALL_CONNECT, .at = 1},
    {"all slots taken, which cannot be said", take_all_slots, .served = true,
        .call = SIM_CALL_REJECT, .at = 1},
    {"a question that cannot be sent", cannot_be_asked, .served = false, .alone = true,
        .call = SIM_CALL_SEND},
    {"a session that connects again, and cannot be cut off", meet_twice, .served = false,
        .call = SIM_CALL_FENCE, .at = 1},
    {"a refusal that cannot be sent", wrong_hello, .served = true, .call = SIM_CALL_REJECT,
        .at = 1},
    {"a welcome that cannot be sent", new_tool, .served = true, .call = SIM_CALL_ACCEPT, .at = 1},
};

static void judge(const struct lie *lie, struct cr_stand_outcome *o)
{
    if (o->what[0] != '\0' || (lie->call != SIM_CALL_NONE && !o->call_failed)) {
        o->hung = true;
        if (o->what[0] == '\0')
            (void)snprintf(o->what, sizeof(o->what), "the call that was to fail was not made");
    } else if (lie->served && (o->right != CR_STAND_KEYS || o->write != 0)) {
        o->hung = true;
        (void)snprintf(o->what, sizeof(o->what), "others: %u right, %s, %s", o->right,
            cairn_error_name(o->error), cairn_error_name(o->write));
    }
}

void cr_faults_lies(struct cr_faults *f)
{
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(lies) && !cr_faults_time_is_up(f); i++) {
        const struct lie *lie = &lies[i];
        struct cr_faults_tally *t = cr_faults_tally(f,
            lie->call != SIM_CALL_NONE ? "F13" : "F25",
            lie->call != SIM_CALL_NONE ? "calls while a peer lies" : "peers that lie");
        struct cr_peer_play play = {.script = lie->script};
        struct cr_stand_variant v = {.seed = f->options.seed + i, .attack = cr_peer_run,
            .attack_arg = &play, .trusted = !lie->served, .quick = !lie->served,
            .pace = lie->pace, .close = true,
            .fail = {.call = lie->call, .then = lie->then, .at = lie->at}};
        struct cr_stand_outcome o;
        if (t == NULL)
            continue;
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            v.bytes[n] = cr_stand_copy(f->stand, n, false);
        v.late_ns[1] = lie->alone ? UINT64_C(3600000) * SIM_MS : 0;
        cr_stand_try(f->stand, &v, &o);
        if (o.what[0] == '\0')
            memcpy(o.what, play.why, sizeof(o.what));
        judge(lie, &o);
        cr_faults_count(f, t, &o, false, lie->what);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            sim_free(v.bytes[n]);
    }
}
