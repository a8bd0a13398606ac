/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_faults_forged.c: F25, records whose checksums fit, because the peer that wrote them knows the
 * formats, and which break one rule of the format each: every one is refused, and one that breaks
 * none is not. Below it, what a node's own rings may state of its durability: never more than the
 * platform can keep.
 */
#include "tools/crash/faults/cr_faults.h"

#include "pmem/pm_record.h"
#include "recovery/rec_node.h"

#define NODE 1u
#define SEQ 9u
#define ROOM 8192u

struct forge {
    uint8_t bytes[ROOM] __attribute__((aligned(8)));
    uint32_t size, participants, locks_at, writes_at;
    struct pm_place place;
    char why[160];
};

static const struct cn_txid txid = {.coordinator = {{7}}, .count = 5};

static void add_participant(struct pm_record_writer *w, const struct forge *g, uint16_t node)
{
    pm_record_add_participant(w, node, node, 0, node == NODE ? g->place.slot : 2,
        node == NODE ? g->place.epoch : 77, node == NODE ? SEQ : 4);
}

/* A record that is good, of `locks` locks; `twice`: one of them is the block as well. */
static void make(struct forge *g, uint16_t participants, uint32_t locks, bool twice)
{
    struct pm_record_writer w;
    const struct pm_write_pm write = {.op = PM_OP_UPDATE, .key_size = le16_make(5),
        .value_size = le32_make(13), .block = le64_make(65536)};

    memset(g, 0, sizeof(*g));
    g->place = (struct pm_place){
        .pool = {{3}}, .slot = 4, .epoch = 11, .nonce = 0x1234567890, .log_off = 640};
    g->participants = sizeof(struct pm_record_pm);
    g->locks_at = g->participants + participants * (uint32_t)sizeof(struct pm_participant_pm);
    g->writes_at = g->locks_at + (locks + 1) * (uint32_t)sizeof(struct pm_lock_pm);
    pm_record_begin(&w, g->bytes, ROOM);
    for (uint16_t i = 0; i < participants; i++)
        add_participant(&w, g, (uint16_t)(NODE + i));
    for (uint32_t i = 0; i < locks; i++)
        pm_record_add_lock(&w, 64 * (uint64_t)(1 + i * 37 % locks), 3);
    pm_record_add_block(&w, twice ? 64 : 65536, 1);
    (void)pm_record_add_write(&w, &write, "apple", "thirteen here");
    g->size = pm_record_end(&w, PM_RECORD_TX, &txid, SEQ, 1, &g->place);
}

static void mend(struct forge *g)
{
    struct le32 crc = le32_make(pm_record_crc(g->bytes, g->size, &g->place));
    struct pm_record_pm head;

    memcpy(g->bytes + offsetof(struct pm_record_pm, crc), &crc, sizeof(crc));
    memcpy(&head, g->bytes, sizeof(head));
    if (head.type != PM_RECORD_TX || le16_get(head.participant_count) != 1 || g->size < 128)
        return;
    struct le64 seal = le64_make(pm_record_seal(g->bytes, g->size, &g->place));
    memcpy(g->bytes + offsetof(struct pm_record_pm, mark), &seal, sizeof(seal));
}

static void put(struct forge *g, uint32_t at, uint32_t width, uint64_t value)
{
    struct le64 v = le64_make(value);

    memcpy(g->bytes + at, &v, width);
}

static void check(struct cr_faults *f, struct cr_faults_tally *t, struct forge *g, bool good,
    const char *how)
{
    struct cr_stand_outcome o = {.right = CR_STAND_KEYS};
    struct pm_record record;

    int rc = g->why[0] != '\0' ? 0 : pm_record_check(g->bytes, g->size, &g->place, NODE, &record);
    if (rc != (good ? 0 : CAIRN_E_CORRUPT_RECORD) || g->why[0] != '\0') {
        o.hung = true;
        (void)snprintf(o.what, sizeof(o.what), "%s (%.100s)",
            good ? "a good record is refused" : "a bad record is taken", g->why);
    } else if (!good) {
        o.error = rc;
    }
    cr_faults_count(f, t, &o, false, how);
}

#define HEAD(field) offsetof(struct pm_record_pm, field)
#define WRITE(field) offsetof(struct pm_write_pm, field)
#define PLACE(field) offsetof(struct pm_participant_pm, field)
enum base { FROM_RECORD, FROM_PARTICIPANT, FROM_SECOND, FROM_LOCKS, FROM_WRITES, FROM_END };

/* One number of a record of two participants is another. */
static const struct edit {
    const char *what;
    enum base base;
    size_t at;
    uint32_t width;
    uint64_t value;
} edits[] = {
    {"no magic", FROM_RECORD, HEAD(magic), 4, 0},
    {"a size that is none", FROM_RECORD, HEAD(size), 4, 100},
    {"a size of one line", FROM_RECORD, HEAD(size), 4, 64},
    {"another size", FROM_RECORD, HEAD(size), 4, 1024},
    {"no type", FROM_RECORD, HEAD(type), 1, 0},
    {"reserved bytes", FROM_RECORD, HEAD(reserved0), 1, 1},
    {"no sequence", FROM_RECORD, HEAD(seq), 8, 0},
    {"a growth record from a coordinator", FROM_RECORD, HEAD(type), 1, PM_RECORD_GROWTH},
    {"done before it was written", FROM_RECORD, HEAD(done), 8, SEQ},
    {"too many participants", FROM_RECORD, HEAD(participant_count), 2, 257},
    {"too many locks", FROM_RECORD, HEAD(lock_count), 2, 1025},
    {"too many blocks", FROM_RECORD, HEAD(block_count), 2, 513},
    {"too many writes", FROM_RECORD, HEAD(write_count), 2, 513},
    {"lists beyond its end", FROM_RECORD, HEAD(lock_count), 2, 1000},
    {"a write beyond its end", FROM_RECORD, HEAD(write_count), 2, 2},
    {"no writes", FROM_RECORD, HEAD(write_count), 2, 0},
    {"contents of a void record", FROM_RECORD, HEAD(type), 1, PM_RECORD_VOID},
    {"an operation of growth", FROM_WRITES, WRITE(op), 1, PM_OP_SPLIT},
    {"no operation", FROM_WRITES, WRITE(op), 1, 0},
    {"reserved bytes of a write", FROM_WRITES, WRITE(reserved), 4, 1},
    {"no key", FROM_WRITES, WRITE(key_size), 2, 0},
    {"a long key", FROM_WRITES, WRITE(key_size), 2, CAIRN_KEY_SIZE_MAX + 1},
    {"a long value", FROM_WRITES, WRITE(value_size), 4, CAIRN_VALUE_SIZE_MAX + 1},
    {"a value beyond its end", FROM_WRITES, WRITE(value_size), 4, 4096},
    {"a shorter value", FROM_WRITES, WRITE(value_size), 4, 12},
    {"bytes behind the last write", FROM_END, 0, 1, 1},
    {"reserved byte of a participant", FROM_PARTICIPANT, PLACE(reserved), 1, 1},
    {"for another slot", FROM_PARTICIPANT, PLACE(slot), 2, 5},
    {"for another epoch", FROM_PARTICIPANT, PLACE(epoch), 8, 12},
    {"for another sequence", FROM_PARTICIPANT, PLACE(seq), 8, SEQ + 1},
    {"for other nodes", FROM_PARTICIPANT, PLACE(node), 2, 9},
    {"a lock twice", FROM_LOCKS, 0, 8, 128},
};

static void edit_each(struct cr_faults *f, struct cr_faults_tally *t)
{
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(edits); i++) {
        struct forge g;
        const struct edit *e = &edits[i];
        make(&g, 2, 3, false);
        const uint32_t base[] = {[FROM_PARTICIPANT] = g.participants,
            [FROM_SECOND] = g.participants + (uint32_t)sizeof(struct pm_participant_pm),
            [FROM_LOCKS] = g.locks_at, [FROM_WRITES] = g.writes_at, [FROM_END] = g.size - 1};
        put(&g, base[e->base] + (uint32_t)e->at, e->width, e->value);
        mend(&g);
        check(f, t, &g, false, e->what);
    }
}

static void list_twice(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct forge g;
    const uint32_t first = sizeof(struct pm_record_pm);
    const uint32_t second = first + (uint32_t)sizeof(struct pm_participant_pm);

    make(&g, 2, 3, false);
    memcpy(g.bytes + second, g.bytes + first, sizeof(struct pm_participant_pm));
    mend(&g);
    check(f, t, &g, false, "a participant twice");
    make(&g, 3, 3, false);
    put(&g, second + (uint32_t)(sizeof(struct pm_participant_pm) + PLACE(node)), 2, NODE + 1);
    mend(&g);
    check(f, t, &g, true, "two shards of one node");
    put(&g, second + (uint32_t)(sizeof(struct pm_participant_pm) + PLACE(epoch)), 8, 78);
    mend(&g);
    check(f, t, &g, false, "one node with two places");
    make(&g, 2, 120, false);
    check(f, t, &g, true, "many locks");
    make(&g, 2, 120, true);
    check(f, t, &g, false, "many locks, one of them twice");
    make(&g, 1, 3, false);
    check(f, t, &g, true, "one participant");
    put(&g, HEAD(mark), 8, 1);
    check(f, t, &g, false, "another seal");
    make(&g, 2, 3, false);
    g.size -= 64;
    check(f, t, &g, false, "a part of it");
    g.size = 32;
    check(f, t, &g, false, "a part of a line");
}

static void pad_and_void(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct forge g;

    make(&g, 1, 1, false);
    pm_record_make_pad(g.bytes, 192, &g.place);
    g.size = 64;
    check(f, t, &g, true, "a pad");
    put(&g, HEAD(seq), 8, 1);
    mend(&g);
    check(f, t, &g, false, "a pad with contents");
    make(&g, 1, 1, false);
    pm_record_make_void(g.bytes, &txid, SEQ, 1, &g.place);
    g.size = PM_RECORD_VOID_SIZE;
    check(f, t, &g, true, "a void record");
    put(&g, HEAD(done), 8, 1);
    mend(&g);
    check(f, t, &g, false, "a void record that calls others done");
}

/* The writer says 0 rather than make what the reader would refuse. */
static void overflow(struct cr_faults *f, struct cr_faults_tally *t)
{
    struct pm_write_pm write = {.op = PM_OP_UPDATE, .key_size = le16_make(5),
        .value_size = le32_make(PM_RECORD_SIZE_MAX + 1)};

    for (uint32_t kind = 0; kind < 4; kind++) {
        static const char *const how[] = {"a value beyond all bounds", "more participants than fit",
            "no room for the padding", "no room for a write"};
        struct forge g;
        struct pm_record_writer w;
        make(&g, 2, 3, false);
        pm_record_begin(&w, g.bytes, kind == 0 ? ROOM : 152);
        for (uint16_t i = 0; i < (kind == 1 ? 300 : 1); i++)
            add_participant(&w, &g, NODE);
        write.value_size = le32_make(kind == 0 ? PM_RECORD_SIZE_MAX + 1 : 64);
        if ((kind == 0 || kind == 3) &&
            pm_record_add_write(&w, &write, "apple", g.bytes) != NULL)
            (void)snprintf(g.why, sizeof(g.why), "a write had room");
        if (pm_record_end(&w, PM_RECORD_TX, &txid, SEQ, 1, &g.place) != (kind == 2 ? 128 : 0))
            (void)snprintf(g.why, sizeof(g.why), "an end had room");
        if (g.why[0] == '\0')
            g.bytes[0] = 0;
        check(f, t, &g, false, how[kind]);
    }
}

/* ---- what a node states of its rings ---- */

static bool can_keep(
    enum rd_durability d, const char *fabric, const struct pm_pool *pool)
{
    if (d == RD_DURABILITY_EMULATED)
        return true;
    return strcmp(fabric, "emu") != 0 && pool->is_pmem &&
        (d != RD_DURABILITY_EADR || pool->auto_flush);
}

static void states_no_more(struct cr_faults *f, struct cr_faults_tally *t, uint32_t number)
{
    static const char *const fabrics[] = {"emu", "rpma"};
    const char *fabric = fabrics[number & 1];
    const struct pm_pool pool = {
        .is_pmem = (number >> 1 & 1) != 0, .auto_flush = (number >> 2 & 1) != 0};
    const struct txn_config_node node = {
        .id = 1, .pool = "p", .persistence = (enum txn_persistence)(number >> 3)};
    enum rd_durability have = 0, asked = txn_persistence_durability(node.persistence);
    struct cr_stand_outcome o = {.right = CR_STAND_KEYS};
    char how[80];

    int rc = rec_durability_choose(&node, fabric, &pool, &have);
    (void)snprintf(how, sizeof(how), "%s over %s, pmem %d, power-fail safe caches %d",
        txn_persistence_name(node.persistence), fabric, pool.is_pmem, pool.auto_flush);
    bool may = can_keep(asked != 0 ? asked : RD_DURABILITY_EMULATED, fabric, &pool);
    if (rc != (may ? 0 : CAIRN_E_DURABILITY) ||
        (rc == 0 && (!can_keep(have, fabric, &pool) || have == 0 ||
            (asked != 0 && have != asked) || (asked == 0 && have == RD_DURABILITY_APM)))) {
        o.hung = true;
        (void)snprintf(o.what, sizeof(o.what), "%s, stated as %s",
            rc == 0 ? "0" : cairn_error_name(rc), rd_durability_name(have));
    }
    o.error = o.hung ? 0 : rc;
    cr_faults_count(f, t, &o, false, how);
}

void cr_faults_forged(struct cr_faults *f)
{
    struct cr_faults_tally *t = cr_faults_tally(f, "F25", "forged records, rule by rule");

    if (t != NULL && !cr_faults_time_is_up(f)) {
        edit_each(f, t);
        list_twice(f, t);
        pad_and_void(f, t);
        overflow(f, t);
    }
    t = cr_faults_tally(f, "I2", "what rings state of their durability");
    for (uint32_t i = 0; t != NULL && i <= TXN_PERSISTENCE_EMULATED * 8 + 7; i++)
        states_no_more(f, t, i);
}
