/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_attack.c: F25, a peer that knows the formats and wants harm: requests beyond what was
 * granted to it, and records in its own ring that name what is not its own. It holds no lock and is
 * granted no block, so nothing that it writes may have any effect: every value of the others stays,
 * and they are still served.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_store.h"
#include "rdma/rd_wire.h"

#define RECORDS_MAX 16u
#define ARENA 32768u /* half of it for rings */
#define RECORD_ROOM 8192u

struct stolen { uint64_t off; uint32_t size, node; };
struct attack {
    struct cr_faults *f;
    const struct cr_stand *stand;
    struct sim_actor *actor;
    struct rd_ep *ep;
    struct rd_conn *conn;
    struct rd_welcome_wire welcome;
    struct stolen stolen[RECORDS_MAX]; /* records of others, to be made one's own */
    uint32_t stolen_count;
    uint32_t rounds;
    bool down;
    uint64_t seq, log_off;
    char why[160]; /* what was allowed and must not be */
};

/* ---- a session ---- */

static void turn(struct attack *a)
{
    struct rd_event e;

    while (rd_poll(a->ep, &e, 1) == 1) {
        if (e.type == RD_EV_UP)
            memcpy(&a->welcome, e.data, cn_min64(e.size, sizeof(a->welcome)));
        if (e.type == RD_EV_DOWN)
            a->down = true;
    }
}

static void rest(struct attack *a, uint64_t us)
{
    for (uint64_t until = a->actor->sim->now + us * SIM_US; a->actor->sim->now < until;)
        turn(a);
}

static bool begin(struct attack *a, uint32_t node, uint8_t session)
{
    const struct txn_config *config = &a->stand->config;
    struct rd_hello_wire hello = {.magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION), .role = le16_make(RD_ROLE_COORDINATOR),
        .cluster = config->cluster, .view = le32_make(config->view),
        .node = le16_make((uint16_t)(node + 1))};

    memset(hello.peer.b, session, sizeof(hello.peer.b));
    memset(&a->welcome, 0, sizeof(a->welcome));
    a->down = false;
    a->seq = a->log_off = 0;
    if (rd_connect(a->ep, config->node[node].address, &hello, sizeof(hello),
            a->actor->sim->now + 20 * SIM_MS, &a->conn) != 0)
        return false;
    while (!a->down && le64_get(a->welcome.ring_size) == 0)
        turn(a);
    if (a->down) {
        rd_conn_delete(a->conn);
        rest(a, 500);
    }
    return !a->down;
}

/* ---- beyond what was granted ---- */

static void allowed(struct attack *a, const char *what, uint64_t off, uint64_t size)
{
    if (a->why[0] == '\0')
        snprintf(a->why, sizeof(a->why), "%s of %lu bytes at %lu was allowed", what, size, off);
}

static void try_write(struct attack *a, uint64_t off, uint32_t size)
{
    void *from = (uint8_t *)rd_ep_memory(a->ep) + ARENA / 2;
    uint64_t first = le64_get(a->welcome.ring_off) + RD_RING_HEADER_SIZE;

    if (cn_range_inside(off, size, first, le64_get(a->welcome.ring_size)))
        return;
    if (rd_write(a->conn, 1, off, from, size, 0) == 0)
        allowed(a, "a write", off, size);
    if (off % 8 == 0 && size == 8 && rd_mark(a->conn, 1, off, 1, 0) == 0)
        allowed(a, "a mark", off, size);
}

static void reach_out(struct attack *a, const struct pm_super *super)
{
    static const uint32_t sizes[] = {1, 64, 8192, 16384, UINT32_MAX};
    uint64_t ring = le64_get(a->welcome.ring_off), size = le64_get(a->welcome.ring_size);
    uint64_t places[] = {0, ring, ring + RD_RING_HEADER_SIZE - 8, ring + RD_RING_HEADER_SIZE,
        ring + RD_RING_HEADER_SIZE + size - 8, ring + RD_RING_HEADER_SIZE + size,
        a->stand->pool_size - 8, a->stand->pool_size, UINT64_MAX - 7, UINT64_MAX / 2};
    void *to = rd_ep_memory(a->ep);

    for (uint64_t off = 0; off < a->stand->pool_size; off += 64)
        try_write(a, off, 8);
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(places); i++)
        for (uint32_t k = 0; k < CN_ARRAY_SIZE(sizes); k++)
            try_write(a, places[i], sizes[k]);
    /* Below the heap lies nothing that a coordinator has to do with, but its own ring. */
    for (uint64_t off = 0; off < super->heap_off; off += 64) {
        if (rd_cas(a->conn, 1, off, 1, 2, to, 0) == 0)
            allowed(a, "a compare-and-swap", off, 8);
        if (!cn_range_inside(off, 8, ring, RD_RING_HEADER_SIZE + size) &&
            rd_read(a->conn, 1, off, to, 8, 0) == 0)
            allowed(a, "a read", off, 8);
    }
    rest(a, 50);
}

/* ---- forged records ---- */

static struct pm_place place_of(const struct attack *a)
{
    return (struct pm_place){.pool = a->welcome.pool, .slot = le16_get(a->welcome.slot),
        .epoch = le64_get(a->welcome.slot_epoch), .nonce = le64_get(a->welcome.nonce),
        .log_off = a->log_off};
}

/* All checksums of a record fit, as this peer can make them do. */
static void mend(const struct attack *a, uint8_t *bytes, uint32_t size)
{
    struct pm_record_pm head;
    struct pm_place place = place_of(a);

    memcpy(&head, bytes, sizeof(head));
    head.crc = le32_make(pm_record_crc(bytes, size, &place));
    memcpy(bytes, &head, sizeof(head));
    if (head.type == PM_RECORD_TX && le16_get(head.participant_count) == 1) {
        head.mark = le64_make(pm_record_seal(bytes, size, &place));
        memcpy(bytes, &head, sizeof(head));
    }
}

/* Another's record under one's own name: its slot, epoch and sequence are this one's. */
static void adopt(const struct attack *a, uint8_t *bytes, uint32_t node)
{
    struct pm_record_pm head;

    memcpy(&head, bytes, sizeof(head));
    head.seq = le64_make(a->seq + 1);
    head.mark = le64_make(0);
    head.done = le64_make(0);
    for (uint16_t i = 0; i < le16_get(head.participant_count); i++) {
        struct pm_participant_pm p;
        uint8_t *at = bytes + sizeof(head) + i * sizeof(p);
        memcpy(&p, at, sizeof(p));
        if (le16_get(p.node) == node + 1) {
            p.slot = a->welcome.slot;
            p.epoch = a->welcome.slot_epoch;
            p.seq = head.seq;
        }
        memcpy(at, &p, sizeof(p));
    }
    memcpy(bytes, &head, sizeof(head));
}

static uint64_t nasty(struct attack *a)
{
    static const uint64_t values[] = {0, 1, 7, 8, 63, 64, 4095, 4096, UINT32_MAX,
        UINT64_C(1) << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 63, (UINT64_C(1) << 40) - 1};

    if (cr_faults_below(a->f, 3) == 0)
        return (uint64_t)cr_faults_below(a->f, a->stand->pool_size / 64) * 64;
    return values[cr_faults_below(a->f, CN_ARRAY_SIZE(values))];
}

static void mutate(struct attack *a, uint8_t *bytes, uint32_t size)
{
    static const uint32_t widths[] = {1, 2, 4, 8};

    for (uint32_t k = cr_faults_below(a->f, 4); k > 0; k--) {
        uint32_t width = widths[cr_faults_below(a->f, 4)];
        uint64_t v = nasty(a);
        /* Mostly the header behind the size, and the lists: there are all numbers. */
        uint64_t end = cr_faults_below(a->f, 4) == 0 ? size : cn_min64(size, 240);
        memcpy(bytes + 12 + cr_faults_below(a->f, end - 12 - width), &v, width);
    }
}

static void log_record(struct attack *a, uint32_t node)
{
    const struct stolen *s = &a->stolen[cr_faults_below(a->f, a->stolen_count)];
    uint8_t *bytes = (uint8_t *)rd_ep_memory(a->ep) + ARENA / 2;
    uint64_t at = le64_get(a->welcome.ring_off) + RD_RING_HEADER_SIZE + a->log_off;

    memcpy(bytes, a->stand->pool[s->node].bytes + s->off, s->size);
    if (cr_faults_below(a->f, 8) != 0) { /* else as it is: a replay */
        adopt(a, bytes, node);
        mutate(a, bytes, s->size);
        mend(a, bytes, s->size);
    }
    (void)!rd_write(a->conn, 1, at, bytes, s->size, 0);
    (void)!rd_flush(a->conn, 2, at, s->size, 0);
    if (cr_faults_below(a->f, 3) != 0)
        (void)!rd_mark(a->conn, 3, at + offsetof(struct pm_record_pm, mark),
            pm_word_value(le64_get(a->welcome.nonce), a->seq + 1, PM_WORD_MARK), 0);
    rd_doorbell(a->conn);
    a->log_off += s->size;
    a->seq++;
    rest(a, 20);
}

static void attack(struct sim_actor *actor, const struct cr_stand *stand, void *arg)
{
    struct attack *a = arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 4,
        .outstanding_max = 4096, .memory_size = ARENA, .log_memory_size = ARENA / 2,
        .name = "attacker"};

    a->actor = actor;
    a->stand = stand;
    if (rd_ep_open(&actor->sim->fabric->base, &config, &a->ep) != 0)
        return;
    for (uint32_t round = 0; round < a->rounds; round++) {
        uint32_t node = round % CR_STAND_NODES;
        if (!begin(a, node, (uint8_t)(1 + round)))
            continue;
        if (round < CR_STAND_NODES)
            reach_out(a, &stand->super[node]);
        for (uint32_t i = 0; i < 8 && !a->down && a->log_off + RECORD_ROOM / 8 < RECORD_ROOM; i++)
            log_record(a, node);
        rd_conn_delete(a->conn);
        rest(a, 500);
    }
    rd_ep_close(a->ep);
}

/* ---- what is stolen ---- */

struct thief { struct attack *a; const struct pm_pool *pool; uint16_t slot; uint32_t node; };

static int on_record(void *arg, const struct pm_record *record)
{
    struct thief *t = arg;
    struct attack *a = t->a;

    if (a->stolen_count < RECORDS_MAX && record->size <= RECORD_ROOM / 8)
        a->stolen[a->stolen_count++] =
            (struct stolen){pm_slot_log_at(t->pool, t->slot, record->log_off), record->size,
                t->node};
    return 0;
}

static void steal(struct attack *a, const struct cr_stand *stand, uint32_t node)
{
    uint8_t *bytes = cr_stand_copy(stand, node, false);
    struct pm_pool pool;

    if (cr_stand_look(stand, bytes, &pool) == 0) {
        uint8_t *ring = sim_calloc(1, pool.super.geometry.ring_size);
        for (uint16_t i = 1; i < pool.super.geometry.slot_count; i++) {
            struct thief thief = {a, &pool, i, node};
            struct pm_slot slot;
            if (pm_slot_load(&pool, i, &slot) != 0 || slot.state == PM_SLOT_FREE)
                continue;
            pm_slot_snapshot(&pool, i, ring);
            (void)!pm_slot_scan(&pool, &slot, ring, on_record, &thief);
        }
        sim_free(ring);
    }
    sim_free(bytes);
}

void cr_faults_attack(struct cr_faults *f)
{
    struct cr_faults_tally *t = cr_faults_tally(f, "F25", "requests and records of an attacker");
    uint32_t cases = f->options.exhaustive ? 200 : 6;

    for (uint32_t i = 0; t != NULL && i < cases && !cr_faults_time_is_up(f); i++) {
        struct attack a = {.f = f, .rounds = 12};
        struct cr_stand_variant v = {.seed = f->options.seed + i, .attack = attack,
            .attack_arg = &a};
        struct cr_stand_outcome o;
        for (uint32_t n = 0; n < CR_STAND_NODES; n++) {
            v.bytes[n] = cr_stand_copy(f->stand, n, false);
            steal(&a, f->stand, n);
        }
        cr_stand_try(f->stand, &v, &o);
        if (a.why[0] != '\0') {
            o.hung = true;
            snprintf(o.what, sizeof(o.what), "%.150s", a.why);
        } else if ((o.right != CR_STAND_KEYS || o.write != 0) && o.what[0] == '\0') {
            o.hung = true;
            snprintf(o.what, sizeof(o.what), "others are not served: %s, %s",
                cairn_error_name(o.error), cairn_error_name(o.write));
        }
        char how[32];
        snprintf(how, sizeof(how), "case %u", i);
        cr_faults_count(f, t, &o, false, how);
        for (uint32_t n = 0; n < CR_STAND_NODES; n++)
            sim_free(v.bytes[n]);
    }
}
