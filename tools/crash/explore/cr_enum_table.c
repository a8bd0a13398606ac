/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_table.c: the pairs and the rings, and how a case is told.
 *
 * Pairs: shapes of two transactions that meet on keys, each over every placement of its keys (up to
 * renaming) and in a number of interleavings, which seeds draw.
 *
 * Rings: three transactions one after the other in the smallest ring that there is, the first of
 * them at every offset, in units of 64 bytes, from which one of the three meets the ring's end; a
 * coordinator that dies at each of its steps, and another that is given its slot; and a cluster
 * that is looked at from the start of its nodes on.
 */
#include "tools/crash/explore/cr_enum_case.h"

#include <stdarg.h>

#include "pmem/pm_layout.h"

#define INTERLEAVINGS 8u

/* ---- pairs ---- */

/* An operation is a letter and a key: "RaWb". */
struct shape { const char *first, *second; unsigned present; };
static const struct shape shapes[] = {
    {"Wa", "Wa", 1},       /* write, write */
    {"WaWb", "WaWb", 3},
    {"WaWb", "WbWa", 3},
    {"RaWb", "Wa", 3},     /* write after read, read after write */
    {"Wa", "RaWb", 3},
    {"RaWa", "RaWa", 1},   /* lost update */
    {"RaRb", "WaWb", 3},   /* a reader sees both or none */
    {"RaWb", "RbWa", 3},   /* write skew */
    {"RaWb", "RbWa", 0},   /* write skew on absence */
    {"RaRbWa", "RaRbWb", 0},
    {"Wa", "Wa", 0},       /* insert, insert */
    {"Da", "Wa", 1},       /* delete, then insert or update */
    {"Da", "Wa", 0},
    {"Da", "Da", 1},
    {"DaWb", "WaDb", 1},
    {"DaWb", "DbWa", 1},
    {"WaWb", "WbWc", 7},   /* they share one of three */
    {"RaWb", "RbWc", 7},
    {"WaDbWc", "RaRbRc", 2},
};

static void parse(const char *text, struct cr_case_tx *tx, uint8_t *key_count)
{
    for (; *text != '\0'; text += 2) {
        struct cr_case_op *op = &tx->op[tx->count++];
        op->kind = text[0] == 'R' ? CR_OP_READ : text[0] == 'W' ? CR_OP_PUT : CR_OP_DELETE;
        op->key = (uint8_t)(text[1] - 'a');
        *key_count = (uint8_t)cn_max64(*key_count, op->key + 1u);
    }
}

static const char *const placements[CR_CASE_KEYS + 1][5] = {
    {NULL}, {"0"}, {"00", "01"}, {"000", "001", "010", "011", "012"}};
static const uint32_t placement_count[] = {0, 1, 2, 5};

static void place(struct cr_case *c, const char *nodes)
{
    for (uint32_t i = 0; i < c->key_count; i++) {
        c->at[i] = (uint8_t)(nodes[i] - '0');
        c->node_count = (uint8_t)cn_max64(c->node_count, c->at[i] + 1u);
    }
}

bool cr_case_pair(uint32_t number, struct cr_case *ret)
{
    uint32_t interleaving = number % INTERLEAVINGS;

    number /= INTERLEAVINGS;
    for (size_t s = 0; s < CN_ARRAY_SIZE(shapes); s++) {
        struct cr_case c = {.set = CR_ENUM_PAIRS, .client_count = 2, .tx_count = 2,
            .interleaving = interleaving};
        c.tx[1].client = 1;
        parse(shapes[s].first, &c.tx[0], &c.key_count);
        parse(shapes[s].second, &c.tx[1], &c.key_count);
        if (number >= placement_count[c.key_count]) {
            number -= placement_count[c.key_count];
            continue;
        }
        for (uint32_t i = 0; i < c.key_count; i++)
            c.present[i] = (shapes[s].present >> i & 1) != 0;
        place(&c, placements[c.key_count][number]);
        *ret = c;
        return true;
    }
    return false;
}

/* ---- rings ---- */

#define BEFORE_END_MAX 15u /* units in front of the ring's end: more than three records take */

/* Three transactions in a row, over one and over two nodes. */
static void make_run(struct cr_case *c, uint32_t nodes)
{
    static const char *const texts[2][3] = {{"Wa", "Da", "Wa"}, {"WaWb", "DaWb", "WaRb"}};

    *c = (struct cr_case){.set = CR_ENUM_RINGS, .client_count = 1, .tx_count = 3, .turned = true,
        .present = {true, false}};
    for (uint32_t t = 0; t < 3; t++)
        parse(texts[nodes - 1][t], &c->tx[t], &c->key_count);
    place(c, placements[c->key_count][nodes - 1]);
}

/* Steps of a coordinator; those that come once per participant also the second time: then one
 * record, or one mark, is there and the other is not. */
struct death { enum cn_step step; uint8_t nth; };
static const struct death deaths[] = {{CN_STEP_c_lock, 1}, {CN_STEP_c_locked, 1},
    {CN_STEP_c_log, 1}, {CN_STEP_c_log, 2}, {CN_STEP_c_logged, 1}, {CN_STEP_c_flushed, 1},
    {CN_STEP_c_mark, 1}, {CN_STEP_c_mark, 2}, {CN_STEP_c_marked, 1}};

/* One participant never comes to the second: inserts at two instead. */
static void make_death(struct cr_case *c, uint32_t nodes, const struct death *death)
{
    bool absent = nodes == 1 && (death->nth > 1 || death->step == CN_STEP_c_mark);

    nodes = absent ? 2 : nodes;
    *c = (struct cr_case){.set = CR_ENUM_RINGS, .client_count = 2, .tx_count = 2,
        .present = {!absent, false}, .dies = true, .death = death->step,
        .death_nth = death->nth};
    parse(nodes == 1 ? "Wa" : "WaWb", &c->tx[0], &c->key_count);
    parse(nodes == 1 ? "RaDa" : absent ? "RaWb" : "DaWb", &c->tx[1], &c->key_count);
    c->tx[1].client = 1;
    place(c, placements[c->key_count][nodes - 1]);
}

static void make_cold(struct cr_case *c, uint32_t nodes)
{
    *c = (struct cr_case){.set = CR_ENUM_RINGS, .client_count = 1, .tx_count = 1, .cold = true};
    parse(nodes == 1 ? "Wa" : "WaWb", &c->tx[0], &c->key_count);
    place(c, placements[c->key_count][nodes - 1]);
}

bool cr_case_ring(uint32_t number, struct cr_case *ret)
{
    uint32_t nodes = 1 + number % 2;

    number /= 2;
    if (number <= BEFORE_END_MAX) {
        make_run(ret, nodes);
        ret->before_end = (uint8_t)number;
        return true;
    }
    number -= BEFORE_END_MAX + 1;
    if (number < CN_ARRAY_SIZE(deaths)) {
        make_death(ret, nodes, &deaths[number]);
        return true;
    }
    if (number > CN_ARRAY_SIZE(deaths))
        return false;
    make_cold(ret, nodes);
    return true;
}

/* ---- telling ---- */

struct text { char *at; size_t left; };

static void add(struct text *t, const char *format, ...) CN_PRINTF(2, 3);
static void add(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t used = cn_min64((uint64_t)n, t->left == 0 ? 0 : t->left - 1);
    t->at += used;
    t->left -= used;
}

void cr_case_describe(const struct cr_case *c, char *buf, size_t size)
{
    static const char *const kinds[] = {"read", "put", "delete"};
    struct text t = {buf, size};

    for (uint32_t x = 0; x < c->tx_count; x++) {
        add(&t, "%s", x == 0 ? "" : " | ");
        for (uint32_t i = 0; i < c->tx[x].count; i++)
            add(&t, "%s%s %c", i == 0 ? "" : ", ", kinds[c->tx[x].op[i].kind],
                'a' + c->tx[x].op[i].key);
    }
    add(&t, "; keys");
    for (uint32_t i = 0; i < c->key_count; i++)
        add(&t, " %c@%u%s", 'a' + (int)i, c->at[i] + 1u, c->present[i] ? "" : " (absent)");
    if (c->set == CR_ENUM_PAIRS)
        add(&t, "; interleaving %u", c->interleaving);
    if (c->turned)
        add(&t, "; log %u bytes before the ring's end", c->before_end * PM_RECORD_ALIGN);
    if (c->dies)
        add(&t, "; the first coordinator dies at %s%s", cn_step_name(c->death),
            c->death_nth > 1 ? ", the second time" : "");
    if (c->cold)
        add(&t, "; from the start of the nodes on");
}
