/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_seed_pool.c: seeds of hostile pools (edits) and of single objects. */
#include "rdma/rd_wire.h"
#include "tests/fuzz/fz_pool.h"
#include "tests/fuzz/fz_seed.h"

static void edit(uint8_t *at, uint8_t what, uint8_t index, uint16_t off, uint8_t mode,
    uint64_t value)
{
    at[0] = what;
    at[1] = index;
    at[2] = (uint8_t)off;
    at[3] = (uint8_t)(off >> 8);
    at[4] = mode;
    for (unsigned i = 0; i < 7; i++)
        at[5 + i] = (uint8_t)(value >> (8 * i));
}

/* For each region: one byte more, once with and once without a good checksum, a reference to
 * another object, a copy of another, and a number of interest. */
static void edits(void)
{
    static const char *const region_name[] = {"super", "dynamic", "scrub", "slot", "words",
        "retired", "chunk", "root", "bucket", "item", "record", "ring", "anywhere"};
    static const struct { const char *name; uint16_t off; uint8_t width, mode; uint64_t value; }
        kind[] = {{"flip", 8, 0, FZ_XOR, 1}, {"add", 16, 3, FZ_ADD, 1},
            {"big", 24, 3, FZ_INTERESTING, 45}, {"place", 32, 3, FZ_PLACE, FZ_ITEM | 3 << 8},
            {"copy", 0, 0, FZ_COPY, 1}, {"zero", 12, 2, FZ_SET, 0}};
    static const char *const target[] = {"super", "recover", "fsck", "store"};
    uint8_t input[1 + 3 * FZ_EDIT_SIZE];
    char name[64];

    for (unsigned r = 0; r < FZ_REGION_COUNT; r++) {
        for (unsigned k = 0; k < CN_ARRAY_SIZE(kind); k++) {
            uint8_t what = (uint8_t)(0x90 | r | (unsigned)kind[k].width << 5);

            input[0] = 0;
            edit(input + 1, what, (uint8_t)(k + 1), kind[k].off, kind[k].mode, kind[k].value);
            edit(input + 1 + FZ_EDIT_SIZE, (uint8_t)(what & ~0x10), (uint8_t)(k + 2),
                (uint16_t)(kind[k].off + 8), kind[k].mode, kind[k].value);
            (void)snprintf(name, sizeof(name), "%s-%s", region_name[r], kind[k].name);
            for (unsigned t = 0; t < CN_ARRAY_SIZE(target); t++) {
                if (t == 0 && r > FZ_RETIRED && r < FZ_ANYWHERE)
                    continue;
                input[0] = (uint8_t)(t == 3 ? 37 * (r + k) : t == 0 ? 0 : r == FZ_RECORD);
                fz_seed_put(
                    target[t], name, input, 1u + FZ_EDIT_SIZE * (k % 2 == 0 ? 1u : 2u));
            }
        }
    }
    input[0] = 1;
    fz_seed_put("super", "read-only", input, 1);
    fz_seed_put("recover", "calm", input, 1);
    fz_seed_put("fsck", "calm", input, 1);
    input[0] = 0;
    fz_seed_put("recover", "busy", input, 1);
    fz_seed_put("fsck", "busy", input, 1);
    fz_seed_put("store", "busy", input, 1);
}

static void objects(void)
{
    static const struct { enum fz_region region; uint8_t kind; const char *name; } of[] = {
        {FZ_ITEM, 0, "item"}, {FZ_BUCKET, 1, "bucket"}, {FZ_ROOT, 2, "root"}};
    static uint8_t input[2 + 4096];
    struct fz_pool *p = fz_pool(FZ_BUSY);
    char name[64];

    for (unsigned i = 0; i < CN_ARRAY_SIZE(of); i++) {
        for (uint32_t n = 0; n < 12 && n < fz_pool_count(p, of[i].region); n++) {
            uint32_t size;
            uint64_t off = fz_pool_place(p, of[i].region, n * 3, &size);

            size = (uint32_t)cn_min64(size, sizeof(input) - 2);
            input[0] = of[i].kind;
            input[1] = (uint8_t)(1 + 2 * (n % 2));
            memcpy(input + 2, p->pm.base + off, size);
            (void)snprintf(name, sizeof(name), "%s-%u", of[i].name, n);
            fz_seed_put("object", name, input, 2 + size);
        }
    }
}

/* ---- target `node`: steps (fz_node.c) ---- */

struct steps {
    uint8_t b[512];
    size_t n;
};

static void add(struct steps *s, size_t count, const uint8_t *bytes)
{
    memcpy(s->b + s->n, bytes, count);
    s->n += count;
}
#define ADD(s, ...) add(s, sizeof((uint8_t[]){__VA_ARGS__}), (uint8_t[]){__VA_ARGS__})

/* A coordinator (0), a node (1), a tool (2), a tool that names no cluster (3). */
static void begin_node(struct steps *s, uint8_t flags)
{
    s->n = 0;
    ADD(s, flags, 0, 0, 0, 0, 1, 1, 0, 2, 2);
}

static void node_messages(void)
{
    struct steps s;
    char name[64];

    for (uint8_t type = 1; type < RD_MSG_TYPE_COUNT; type++) {
        uint32_t body = rd_wire_body_size(type);

        for (uint8_t how = 0; how < 4; how++) {
            begin_node(&s, type % 2);
            for (uint8_t conn = 0; conn < 3; conn++) {
                ADD(&s, 1, conn, type, how == 3 ? 9 : how);
                if (how == 1 || how == 3)
                    ADD(&s, conn, (uint8_t)(type + conn));
                if (how == 2 && body >= sizeof(struct rd_place_wire))
                    ADD(&s, (uint8_t)(4 + 40 * conn));
                if (how == 2 && body > sizeof(struct rd_place_wire))
                    ADD(&s, conn);
                if (how != 0)
                    ADD(&s, 0);
                for (uint32_t i = 0; how == 0 && i < body; i++)
                    ADD(&s, (uint8_t)(type == RD_MSG_GRANT ? (i == 0 ? 2 : i == 4) : i % 8 == 0));
            }
            ADD(&s, 4, 20, 3, 0);
            if (how == 0 || body >= 8)
                (void)snprintf(name, sizeof(name), "%s-%u", rd_wire_type_name(type), how);
            fz_seed_put("node", name, s.b, s.n);
        }
    }
}

static void node_records(void)
{
    struct steps s;
    char name[64];

    for (uint8_t first = 0; first < 24; first += 6) {
        begin_node(&s, first % 12 == 0);
        for (uint8_t i = 0; i < 6; i++)
            ADD(&s, 2, 0, (uint8_t)(first + i), (uint8_t)(i == 5 ? 1 : 0));
        ADD(&s, 40, 0, 1, 4, 30, 1, 1, RD_MSG_ASK, 2, 140, 0, 1, 2, RD_MSG_RESOLVE, 2, 5, 0);
        ADD(&s, 3, 0, 4, 30, 5, 2, 4, 60, 5, 0, 4, 200, 0, 0, 3, 4, 255);
        (void)snprintf(name, sizeof(name), "records-%u", first);
        fz_seed_put("node", name, s.b, s.n);
    }
    /* In doubt: node 2 is asked (or a mark comes), and says each of the verdicts. */
    for (uint8_t verdict = 0; verdict < 6; verdict++) {
        begin_node(&s, 0);
        ADD(&s, 2, 0, 0, 0x80, 2, 0, 0, 0x80, 1, 0, RD_MSG_RESOLVE, 2, 132, 0, 4, 60);
        if (verdict == 5)
            ADD(&s, 2, 0, 0, 0x40, 4, 1, 1, 1, RD_MSG_ASK, 2, 132, 0);
        else
            ADD(&s, 5, 2, 4, 60, 4, 60);
        ADD(&s, 1, 3, RD_MSG_ANSWER, 16, verdict, 0, 4, 60, 1, 3, RD_MSG_ANSWER, 16, verdict, 0);
        ADD(&s, 1, 1, RD_MSG_TOLD, 2, 132, verdict, 0, 1, 1, RD_MSG_ASK, 2, 132, 0, 4, 255);
        ADD(&s, 1, 2, RD_MSG_RESOLVE, 2, 132, 0, 3, 0, 4, 255, 4, 255, 1, 2, RD_MSG_STATS, 0, 4, 5);
        (void)snprintf(name, sizeof(name), "doubt-%u", verdict);
        fz_seed_put("node", name, s.b, s.n);
    }
    begin_node(&s, 1);
    ADD(&s, 6, 0);
    for (uint8_t i = 0; i < 40; i++)
        ADD(&s, 1, 0, (uint8_t)(RD_MSG_CLOSE + i % 2 * 2), 2, 4, 0);
    fz_seed_put("node", "takes-no-answer", s.b, s.n);
}

/* Target `lookup`: damages (fz_lookup.c). */
static void lookups(void)
{
    static const struct { uint8_t what; uint16_t at; uint8_t mode; uint32_t value; } one[] = {
        {0, 6, 0x06, 1}, {0, 25, 0x04, 3}, {1, 0, 0x0b, 42}, {2, 1, 0x17, 5}, {2, 3, 0x17, 7},
        {2, 32, 0x15, 40}, {2, 8, 0x07, 0x0500}, {2, 8, 0x1f, 39}, {3, 0, 0x0b, 47},
        {3, 1, 0x17, 9}, {3, 6, 0x06, 900}, {3, 14, 0x05, 1}, {3, 13, 0x14, 3}, {3, 13, 0x14, 4},
        {4, 0, 0x0b, 40}, {4, 1, 0x03, 64}};
    uint8_t input[1 + 4 * 10];
    char name[32];

    for (unsigned i = 0; i < CN_ARRAY_SIZE(one); i++) {
        for (unsigned k = 0; k < 4; k++) {
            uint8_t *d = input + 10 * k;

            d[0] = (uint8_t)(i % 5 + k);
            d[1] = one[i].what;
            d[2] = (uint8_t)k;
            d[3] = (uint8_t)one[i].at;
            d[4] = (uint8_t)(one[i].at >> 8);
            d[5] = one[i].mode;
            for (unsigned b = 0; b < 4; b++)
                d[6 + b] = (uint8_t)((one[i].value + k) >> (8 * b));
        }
        (void)snprintf(name, sizeof(name), "damage-%02u", i);
        fz_seed_put("lookup", name, input, 1 + 10 * (i % 3 + 1));
    }
    fz_seed_put("lookup", "none", input, 1);
}

void fz_seed_pool(void)
{
    lookups();
    node_messages();
    node_records();
    edits();
    objects();
}
