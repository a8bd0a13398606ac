/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: a node and everybody who talks to it: hellos, messages, records in rings, answers of
 * other nodes, connections that break, in any order (rec_node.c, rec_message.c, rec_slot.c,
 * rec_verdict.c, rec_resolve.c, rec_purge.c, txn_part.c).
 * Input: flags (1: the busy image; 2: slots are not waited for), then steps (enum step).
 * Oracle: the node lives; what it sends is well-formed (fz_fabric.c); after a clean close nothing
 * of it is left and the store has no damage: no peer here touches more than its own ring.
 */
#include "recovery/rec_node.h"

#include "tests/fuzz/fz_fabric.h"

#define STEPS_MAX 64u
#define WAIT_TURNS 64u

enum step { CONNECT, MESSAGE, RECORD, DOWN, TURN, CALLED, FULL, STEP_COUNT };

struct fuzz {
    struct fz_fabric fabric;
    struct fz_pool *p;
    struct pm_pool pool;
    struct rec_node *node;
    uint8_t bytes[RD_MESSAGE_SIZE_MAX + 64];
};

static struct txn_config config;

static void configure(void)
{
    config = (struct txn_config){.cluster = fz_cluster_uuid, .fabric = "emu", .view = 1,
        .node_count = 2, .table_count = 1, .lease_ms = 100, .resolve_ms = 20, .verdict_s = 1,
        .node = {{.id = 1, .address = "a", .pool = "p", .pool_size = 1 << 30},
            {.id = 2, .address = "b", .pool = "q", .pool_size = 1 << 30}},
        .table = {{.id = FZ_TABLE, .name = "t"}}};
    if (txn_config_check(&config) != 0)
        FZ_NEED(false, "configuration: %s", cairn_last_error());
}

static struct fz_conn *pick(struct fuzz *f, struct fz_input *in)
{
    return &f->fabric.conn[fz_u8(in) % FZ_CONNS];
}

static void turn(struct fuzz *f)
{
    (void)rec_node_poll(f->node);
}

/* Until what earlier owners left has been scrubbed and their slots can be handed out again. */
static void wait_for_slots(struct fuzz *f)
{
    struct rec_node_stats stats = {.slots_free = 0};

    for (unsigned i = 0; i < WAIT_TURNS && stats.slots_free < 3; i++) {
        fz_pool_advance(UINT64_C(2000000));
        turn(f);
        rec_node_stats(f->node, &stats);
    }
}

static void step_connect(struct fuzz *f, struct fz_input *in)
{
    struct fz_conn *c = pick(f, in);
    uint8_t how = fz_u8(in);
    struct rd_hello_wire hello = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .role = le16_make((uint16_t)(1 + how % 3)),
        .cluster = fz_cluster_uuid, .view = le32_make(1), .node = le16_make(FZ_NODE)};
    size_t size = sizeof(hello);
    const void *data = &hello;

    if (c->state != FZ_CONN_FREE)
        return;
    if (le16_get(hello.role) == RD_ROLE_COORDINATOR)
        hello.peer = (struct cn_uuid){{1, how}};
    if (le16_get(hello.role) == RD_ROLE_NODE)
        hello.from_node = le16_make(2);
    if (how >= 240)
        data = fz_bytes(in, how - 240u + 40, &size);
    memcpy(f->bytes, data, size);
    *c = (struct fz_conn){.rd = c->rd, .state = FZ_CONN_ASKS};
    c->rd.user = NULL;
    fz_fabric_put(c, RD_EV_CONNECT, 0, fz_guard_end(1, f->bytes, size), (uint32_t)size);
    turn(f);
    FZ_NEED(c->state != FZ_CONN_ASKS || c->rd.user == NULL, "neither accepted nor refused");
    if (c->state == FZ_CONN_ASKS)
        c->state = FZ_CONN_FREE;
}

/* The place of a record of the image, or of the last one of a connection. */
static struct rd_place_wire place_of(struct fuzz *f, uint8_t which)
{
    uint32_t size;
    const struct pm_record_pm *r = fz_pool_record(which, &size);
    const struct pm_participant_pm *p = (const void *)(r + 1);
    const struct fz_conn *c = &f->fabric.conn[which % FZ_CONNS];

    if (which >= 128 && c->state == FZ_CONN_UP)
        return (struct rd_place_wire){.coordinator = fz_session_uuid,
            .count = le64_make(c->seq - 1), .epoch = c->welcome.slot_epoch,
            .seq = le64_make(c->seq - 1), .view = le32_make(1), .slot = c->welcome.slot,
            .node = le16_make(FZ_NODE)};
    return (struct rd_place_wire){.coordinator = r->coordinator, .count = r->count,
        .epoch = p->epoch, .seq = r->seq, .view = le32_make(1), .slot = p->slot,
        .node = le16_make(FZ_NODE)};
}

/* type, how, body. `how` 1: the first words are places of objects; 2: it is a record's place;
 * 16: it begins as what the node said last; 4: raw, as long as the input says. */
static uint32_t make_message(struct fuzz *f, struct fz_input *in, const struct fz_conn *c)
{
    uint8_t type = fz_u8(in), how = fz_u8(in);
    struct rd_message_wire head = {.magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(type % (RD_MSG_TYPE_COUNT + 1)), .id = le32_make(c->last_id)};
    uint32_t body = rd_wire_body_size(le16_get(head.type));
    struct rd_place_wire place;
    struct le64 word;
    const uint8_t *raw;
    size_t size;

    if (body == UINT32_MAX || (how & 4) != 0)
        body = fz_u8(in);
    head.size = le16_make((uint16_t)body);
    memset(f->bytes, 0, sizeof(head) + body);
    memcpy(f->bytes, &head, sizeof(head));
    if ((how & 1) != 0 && body >= 8) {
        enum fz_region region = FZ_ROOT + fz_u8(in) % 3;
        uint32_t ignored;
        word = le64_make(fz_pool_place(f->p, region, fz_u8(in), &ignored));
        memcpy(f->bytes + sizeof(head), &word, 8);
        if (body >= 16 && (how & 8) != 0) { /* the word as it is there */
            memcpy(&word, f->p->pm.base + le64_get(word), 8);
            memcpy(f->bytes + sizeof(head) + 8, &word, 8);
        }
    }
    if ((how & 18) != 0 && body >= sizeof(place)) {
        if ((how & 2) != 0)
            place = place_of(f, fz_u8(in));
        else
            memcpy(&place, c->last_body, sizeof(place));
        memcpy(f->bytes + sizeof(head), &place, sizeof(place));
        if (body > sizeof(place))
            f->bytes[sizeof(head) + sizeof(place)] = (uint8_t)(1 + fz_u8(in) % 5);
    }
    raw = fz_bytes(in, (how & 19) == 0 ? body : fz_u8(in) % 8u, &size);
    for (size_t i = 0; i < size; i++)
        f->bytes[sizeof(head) + i % (body > 0 ? body : 1)] ^= raw[i];
    return (uint32_t)sizeof(head) + body;
}

static void step_message(struct fuzz *f, struct fz_input *in)
{
    struct fz_conn *c = pick(f, in);
    uint32_t size = make_message(f, in, c);

    if (c->state != FZ_CONN_UP || c->rd.user == NULL)
        return;
    fz_fabric_put(c, RD_EV_MESSAGE, 0,
        size % 8 == 0 ? fz_guard_end(1, f->bytes, size) : fz_guard_begin(1, f->bytes, size), size);
    turn(f);
}

/* One of two participants, which is in doubt until node 2 says something or its mark comes. */
static uint32_t make_shared(uint8_t *copy, const struct fz_conn *c, const struct pm_place *place)
{
    struct cn_txid id = {.coordinator = fz_session_uuid, .count = c->seq};
    struct pm_record_writer w;

    pm_record_begin(&w, copy, 512);
    pm_record_add_participant(&w, FZ_NODE, 0, 0, place->slot, place->epoch, c->seq);
    pm_record_add_participant(&w, 2, 1, 0, 3, 9, 4);
    return pm_record_end(&w, PM_RECORD_TX, &id, c->seq, 1, place);
}

/* The mark of the last record that this peer wrote. */
static void put_mark(struct fuzz *f, const struct fz_conn *c)
{
    uint64_t ring = le64_get(c->welcome.ring_size);
    struct le64 mark =
        le64_make(pm_word_value(le64_get(c->welcome.nonce), c->seq - 1, PM_WORD_MARK));

    if (ring != 0 && c->log_off >= c->last_size)
        memcpy(f->p->pm.base + le64_get(c->welcome.ring_off) + 4096 +
                (c->log_off - c->last_size) % ring + offsetof(struct pm_record_pm, mark),
            &mark, sizeof(mark));
}

/* A record of the image as this peer would write it, with changed bytes, in its ring; or one that
 * is shared with node 2, or only the mark of the last one. */
static void step_record(struct fuzz *f, struct fz_input *in)
{
    static uint8_t copy[65536] __attribute__((aligned(8)));
    struct fz_conn *c = pick(f, in);
    uint8_t which = fz_u8(in), how = fz_u8(in), edits = how % 6;
    uint64_t ring = le64_get(c->welcome.ring_size), log = le64_get(c->welcome.ring_off) + 4096;
    struct pm_place place = {.pool = f->pool.super.pool, .slot = le16_get(c->welcome.slot),
        .epoch = le64_get(c->welcome.slot_epoch), .nonce = le64_get(c->welcome.nonce),
        .log_off = c->log_off};
    struct pm_record_pm *r = (void *)copy;
    struct pm_participant_pm *p = (void *)(r + 1);
    uint32_t size, mend = 0;

    const void *sample = fz_pool_record(which, &size);
    memcpy(copy, sample, cn_min64(size, sizeof(copy)));
    if ((how & 0x40) != 0) {
        put_mark(f, c);
        turn(f);
        return;
    }
    if ((how & 0x80) != 0 && c->state == FZ_CONN_UP && ring != 0)
        size = make_shared(copy, c, &place);
    if (c->state != FZ_CONN_UP || ring == 0 || size > ring - c->log_off % ring)
        return;
    r->seq = p->seq = le64_make(c->seq);
    r->coordinator = fz_session_uuid;
    r->count = le64_make(c->seq);
    r->done = le64_make(r->type == PM_RECORD_TX ? c->seq - 1 : 0);
    p->epoch = c->welcome.slot_epoch;
    p->slot = c->welcome.slot;
    for (; edits > 0; edits--) {
        uint16_t at = fz_u16(in);
        copy[at % size] = (uint8_t)(copy[at % size] + fz_u8(in));
    }
    memcpy(copy + 8, &mend, 4);
    if (pm_record_peek(copy, size) != 0)
        fz_mend_record(copy, size, &place, ring);
    memcpy(f->p->pm.base + log + c->log_off % ring, copy, size);
    c->log_off += size;
    c->last_size = size;
    c->seq++;
    turn(f);
}

/* What becomes of a connection that the node makes to node 2, and what comes on it. */
static void step_called(struct fuzz *f, struct fz_input *in)
{
    uint8_t how = fz_u8(in);
    struct rd_welcome_wire welcome = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .node = le16_make(2), .pool = fz_pool_uuid,
        .incarnation = le64_make(1), .pool_size = le64_make(4096), .view = le32_make(1)};

    for (unsigned i = 0; i < FZ_CONNS; i++) {
        struct fz_conn *c = &f->fabric.conn[i];

        if (c->state != FZ_CONN_CALLED || c->rd.user == NULL)
            continue;
        if (how % 4 == 0) {
            fz_fabric_put(c, RD_EV_DOWN, CAIRN_E_NODE_DOWN, NULL, 0);
        } else {
            c->state = FZ_CONN_UP;
            if (how % 4 == 1)
                ((uint8_t *)&welcome)[fz_u8(in) % sizeof(welcome)] ^= how;
            fz_fabric_put(c, RD_EV_UP, 0, fz_guard_end(1, &welcome, sizeof(welcome)),
                sizeof(welcome));
        }
        turn(f);
        return;
    }
}

static void one_step(struct fuzz *f, struct fz_input *in)
{
    struct fz_conn *c;

    switch (fz_u8(in) % STEP_COUNT) {
    case CONNECT: step_connect(f, in); break;
    case MESSAGE: step_message(f, in); break;
    case RECORD: step_record(f, in); break;
    case DOWN:
        c = pick(f, in);
        if (c->state == FZ_CONN_UP && c->rd.user != NULL)
            fz_fabric_put(c, RD_EV_DOWN, CAIRN_E_NODE_DOWN, NULL, 0);
        turn(f);
        break;
    case TURN:
        fz_pool_advance(fz_u8(in) * UINT64_C(10000000));
        turn(f);
        break;
    case CALLED: step_called(f, in); break;
    default:
        c = pick(f, in);
        c->takes_none = !c->takes_none;
        break;
    }
}

static void say_damage(void *arg CN_UNUSED, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        fprintf(stderr, "fsck: %s\n", text);
}

/* No record that was made here has locked what it names, so what is not applied holds nothing. */
static void check_pool(struct fuzz *f)
{
    struct pm_fsck_options o = {.report = say_damage};
    struct pm_fsck_report report;
    struct pm_pool pool;

    FZ_NEED(pm_attach(&pool, &f->p->pm, f->p->super_off) == 0, "%s", cairn_last_error());
    FZ_NEED(pm_fsck(&pool, &o, &report) == 0, "%s", cairn_last_error());
    FZ_NEED(report.damages == 0, "peers have damaged the store");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz f;
    struct fz_input in = {data, size};
    uint8_t flags = fz_u8(&in);
    struct rec_node_options options = {.config = &config, .node = FZ_NODE};

    if (config.node_count == 0)
        configure();
    memset(&f, 0, sizeof(f));
    f.p = fz_pool((flags & 1) != 0 ? FZ_BUSY : FZ_CALM);
    fz_fabric_open(&f.fabric, f.p);
    FZ_NEED(pm_attach(&f.pool, &f.p->pm, f.p->super_off) == 0, "%s", cairn_last_error());
    options.env = f.p->pm.env;
    options.pool = &f.pool;
    options.fabric = &f.fabric.rd;
    FZ_NEED(rec_node_open(&options, &f.node) == 0, "a good node does not start: %s",
        cairn_last_error());
    if ((flags & 2) == 0)
        wait_for_slots(&f);
    for (unsigned i = 0; i < STEPS_MAX && in.left > 0; i++)
        one_step(&f, &in);
    for (unsigned i = 0; i < 8; i++)
        turn(&f);
    rec_node_close(&f.node);
    fz_fabric_check(&f.fabric);
    check_pool(&f);
    return 0;
}
