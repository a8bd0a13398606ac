/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch_record.c: reads of records in a ring that tell recovery less than the words read.
 *
 * A record is tens of words, each lost or kept, and all of them go into its checksum. What is
 * learned by that is only whether the record checks. So, while the images of a run's set differ in
 * words of a record (wrapped functions, ld --wrap):
 *
 * - pm_record_fault() compares a crc with what is stated: over the words that are open that is a
 *   system of linear equations over bits, and its solutions are all images in which the crc fits.
 *   Mostly there is one, the whole record, and it is cut off from the set; for all others the
 *   answer is the same, and none of their words has been read. More than 32 words always have
 *   others, that pass by chance: that is what a crc of 32 bits is. Those are not visited; moments
 *   with such a record are counted (cr_explore_stats.by_chance).
 * - pm_record_peek() and pm_record_is_elsewhere() are asked before it, at the same place, by one
 *   caller (pm_ring.c), for which "not a record" and "a record of another place" are what "does not
 *   check" is. The former is asked for each combination of what is open, and has read nothing if
 *   the answer is one; the latter may say no at once.
 * - txn_part_find_damaged() looks at the mark's word of every line that no record covers. A word
 *   that is no mark that it could look for, whichever value it has, has not been read.
 *
 * All of them are functions of the bytes alone.
 */
#include "pmem/pm_record.h"
#include "tools/crash/explore/cr_explore_internal.h"
#include "txn/txn_part_internal.h"

#define RECORD_MAX 4096u
#define OPEN_MAX 128u       /* words of a record that are open */
#define PEEK_MAX 64u

static const size_t mark_off = offsetof(struct pm_record_pm, mark);

uint32_t __real_pm_record_peek(const void *line, uint64_t room);
uint32_t __wrap_pm_record_peek(const void *line, uint64_t room);
bool __real_pm_record_is_elsewhere(
    const void *record, uint32_t size, const struct pm_place *place, uint16_t node);
bool __wrap_pm_record_is_elsewhere(
    const void *record, uint32_t size, const struct pm_place *place, uint16_t node);
const char *__real_pm_record_fault(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret);
const char *__wrap_pm_record_fault(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret);
int __real_txn_part_find_damaged(
    struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring);
int __wrap_txn_part_find_damaged(
    struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring);

/* ---- the words of a record ---- */

struct open_word {
    uint32_t unit, other; /* the alternative that it has not, of two */
    uint32_t at;          /* offset in the record */
    uint64_t value;       /* of `other` */
};

struct open_record {
    struct cr_level *level;
    uint32_t pool;
    uint64_t off;
    struct open_word word[OPEN_MAX];
    uint32_t count;
    _Alignas(8) uint8_t bytes[RECORD_MAX];
};

static uint64_t value_of(const struct cr_level *level, uint32_t unit, uint32_t k, unsigned w)
{
    const struct sim_units *units = &level->moment.units;

    return units->alternative[units->unit[unit].first + k].value[w];
}

/* The level whose run is watched, if there is an open word in these bytes of one of its pools. */
static struct cr_level *level_of(const void *at, uint64_t size, uint32_t *ret_pool,
    uint64_t *ret_off)
{
    struct cr_level *level = cr_reads_level();

    if (level == NULL)
        return NULL;
    *ret_pool = cr_reads_pool(level, at, ret_off);
    if (*ret_pool == UINT32_MAX)
        return NULL;
    for (uint64_t i = *ret_off / 8; i <= (*ret_off + size - 1) / 8; i++) {
        uint32_t unit = level->reads.open[*ret_pool][i];
        if (unit != 0 && cr_reads_differs(level, unit - 1, (unsigned)(i % 8)))
            return level;
    }
    return NULL;
}

/* Words that are open, but for the mark. False: they are not simply lost or kept. */
static bool find_open(struct open_record *o, uint32_t size)
{
    const struct cr_level *level = o->level;

    o->count = 0;
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = (o->off + at) / 8;
        uint32_t unit = level->reads.open[o->pool][word], other = UINT32_MAX;
        unsigned w = (unsigned)(word % 8);
        if (at == mark_off || unit == 0 || !cr_reads_differs(level, unit - 1, w))
            continue;
        const struct sim_unit *u = &level->moment.units.unit[unit - 1];
        if (u->words != 1u << w || cr_reads_count(level, unit - 1) != 2 || o->count == OPEN_MAX)
            return false;
        for (uint32_t k = 0; k < u->count; k++)
            if (k != level->moment.digit[unit - 1] && cr_reads_has(level, unit - 1, k))
                other = k;
        o->word[o->count++] =
            (struct open_word){unit - 1, other, at, value_of(level, unit - 1, other, w)};
    }
    return true;
}

static void turn(struct open_record *o, uint32_t i)
{
    uint64_t now = cr_load(o->bytes + o->word[i].at);

    memcpy(o->bytes + o->word[i].at, &o->word[i].value, sizeof(now));
    o->word[i].value = now;
}

/* Bits in which the crc that is stated and that of the bytes differ. An affine function of the
 * bytes as long as size and type are what they are. */
static uint32_t misfit(const struct open_record *o, uint32_t size, const struct pm_place *place)
{
    struct le32 stated;

    memcpy(&stated, o->bytes + offsetof(struct pm_record_pm, crc), sizeof(stated));
    return le32_get(stated) ^ pm_record_crc(o->bytes, size, place);
}

/* ---- all images in which the crc fits ---- */

struct combination { uint64_t bits[OPEN_MAX / 64]; };

struct equations {
    uint32_t row[32]; /* in echelon form: the highest bit of row[i] is i; 0: none */
    struct combination of[32];
    uint32_t dimension; /* of the kernel */
};

static void add_to(struct combination *a, const struct combination *b)
{
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(a->bits); i++)
        a->bits[i] ^= b->bits[i];
}

/* What is left of `value` when rows are taken away; *sum: which words that turns. */
static uint32_t reduce(const struct equations *e, uint32_t value, struct combination *sum)
{
    for (uint32_t bit = 32; bit-- > 0;)
        if ((value >> bit & 1) != 0 && e->row[bit] != 0) {
            value ^= e->row[bit];
            add_to(sum, &e->of[bit]);
        }
    return value;
}

static void add_equation(struct equations *e, uint32_t value, uint32_t word)
{
    struct combination sum = {{0}};

    sum.bits[word / 64] |= UINT64_C(1) << word % 64;
    value = reduce(e, value, &sum);
    if (value != 0) {
        uint32_t bit = 31 - (uint32_t)__builtin_clz(value);
        e->row[bit] = value;
        e->of[bit] = sum;
        return;
    }
    e->dimension++;
}

/* The words of a combination otherwise than they are: all of the record's units, as they are then.
 */
static uint32_t list_taken(
    const struct open_record *o, uint32_t size, const struct combination *c, struct cr_taken *ret)
{
    const struct cr_level *level = o->level;
    uint32_t count = 0, next = 0;

    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = (o->off + at) / 8;
        uint32_t unit = level->reads.at[o->pool][word];
        if (unit == 0 || at == mark_off)
            continue;
        uint32_t k = level->moment.digit[unit - 1];
        if (next < o->count && o->word[next].at == at) {
            if ((c->bits[next / 64] >> next % 64 & 1) != 0)
                k = o->word[next].other;
            next++;
        }
        ret[count++] = (struct cr_taken){unit - 1, k};
    }
    return count;
}

static bool is_none(const struct combination *c)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(c->bits); i++)
        any |= c->bits[i];
    return any == 0;
}

static void cut(struct open_record *o, uint32_t size, const struct combination *c)
{
    struct cr_taken taken[CR_TAKEN_MAX];
    uint32_t count = list_taken(o, size, c, taken);

    cr_reads_cut(o->level, taken, count, is_none(c));
}

/* All that is open as the peer wrote it. */
static struct combination all_written(const struct open_record *o)
{
    const struct sim_units *units = &o->level->moment.units;
    struct combination c = {{0}};

    for (uint32_t i = 0; i < o->count; i++)
        if (o->level->moment.digit[o->word[i].unit] != units->unit[o->word[i].unit].kept)
            c.bits[i / 64] |= UINT64_C(1) << i % 64;
    return c;
}

static bool fits_so(struct open_record *o, uint32_t size, const struct pm_place *place,
    const struct combination *c)
{
    bool fits = false;

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < o->count; i++)
            if ((c->bits[i / 64] >> i % 64 & 1) != 0)
                turn(o, i);
        if (pass == 0)
            fits = misfit(o, size, place) == 0;
    }
    return fits;
}

/* Cut off from the run's set what fits; of the words up to `head` it must be as the peer wrote it.
 * True: the run's image is what fits. */
static bool cut_fitting(
    struct open_record *o, uint32_t size, const struct pm_place *place, uint32_t head)
{
    struct equations e = {.dimension = 0};
    struct combination one = {{0}}, all = all_written(o);
    uint32_t goal, first = 0;
    bool fits = fits_so(o, size, place, &all);

    for (; first < o->count && o->word[first].at < head; first++)
        if ((all.bits[0] >> first & 1) != 0)
            turn(o, first);
    goal = misfit(o, size, place);
    for (uint32_t i = first; i < o->count; i++) {
        turn(o, i);
        add_equation(&e, misfit(o, size, place) ^ goal, i);
        turn(o, i);
    }
    if (reduce(&e, goal, &one) != 0)
        return false; /* none does */
    if (e.dimension > 0 || !fits)
        o->level->reads.by_chance = true; /* others than the whole record do */
    if (fits)
        cut(o, size, &all);
    return fits && is_none(&all);
}

/* Size and type are not open, or the same whatever is. */
static bool has_one_frame(const struct open_record *o, uint32_t size)
{
    for (uint32_t i = 0; i < o->count && o->word[i].at < 16; i++) {
        uint8_t other[16];
        memcpy(other, o->bytes, sizeof(other));
        memcpy(other + o->word[i].at, &o->word[i].value, 8);
        if (memcmp(other + offsetof(struct pm_record_pm, type),
                o->bytes + offsetof(struct pm_record_pm, type), 1) != 0)
            return false;
    }
    return o->bytes[offsetof(struct pm_record_pm, type)] != PM_RECORD_PAD &&
        size >= PM_RECORD_ALIGN;
}

const char *__wrap_pm_record_fault(const void *copy, uint32_t size, const struct pm_place *place,
    uint16_t node, struct pm_record *ret)
{
    static struct open_record o;
    struct cr_watch watch;
    bool told = false;

    o.level = size <= RECORD_MAX && size > 0 ? level_of(copy, size, &o.pool, &o.off) : NULL;
    if (o.level == NULL)
        return __real_pm_record_fault(copy, size, place, node, ret);
    watch = cr_watch_stop();
    memcpy(o.bytes, copy, size);
    if (find_open(&o, size) && o.count > 0 && has_one_frame(&o, size))
        told = o.level->nesting || !cut_fitting(&o, size, place, 0);
    (void)cr_watch_set(watch);
    return told ? "torn" : __real_pm_record_fault(copy, size, place, node, ret);
}

/* ---- what is asked before ---- */

bool __wrap_pm_record_is_elsewhere(
    const void *record, uint32_t size, const struct pm_place *place, uint16_t node)
{
    uint32_t pool;
    uint64_t off;

    return level_of(record, size, &pool, &off) == NULL &&
        __real_pm_record_is_elsewhere(record, size, place, node);
}

/* The answer for each combination of what the first two words may be; false: it is not one. */
static bool peek_all(struct cr_level *level, uint32_t pool, uint64_t off, const uint8_t *line,
    uint64_t room, uint32_t *ret_size)
{
    uint64_t value[2][PEEK_MAX];
    uint32_t count[2] = {0}, first = 0;
    _Alignas(8) uint8_t bytes[PM_RECORD_ALIGN];

    for (uint32_t i = 0; i < 2; i++) {
        uint32_t unit = level->reads.open[pool][off / 8 + i];
        unsigned w = (unsigned)((off / 8 + i) % 8);
        value[i][count[i]++] = cr_load(line + 8 * i);
        if (unit == 0)
            continue;
        const struct sim_unit *u = &level->moment.units.unit[unit - 1];
        if (u->words != 1u << w || u->count > PEEK_MAX)
            return false;
        count[i] = 0;
        for (uint32_t k = 0; k < u->count; k++)
            if (cr_reads_has(level, unit - 1, k))
                value[i][count[i]++] = value_of(level, unit - 1, k, w);
    }
    memcpy(bytes, line, sizeof(bytes));
    for (uint32_t i = 0; i < count[0] * count[1]; i++) {
        memcpy(bytes, &value[0][i % count[0]], 8);
        memcpy(bytes + 8, &value[1][i / count[0]], 8);
        uint32_t size = __real_pm_record_peek(bytes, room);
        if (i > 0 && size != first)
            return false;
        first = size;
    }
    *ret_size = first;
    return true;
}

/* The ring that is being scanned. */
static struct { const struct pm_pool *pool; const struct pm_slot *slot; const uint8_t *ring; } scan;

static struct pm_place place_of(const uint8_t *line)
{
    uint64_t ring_size = scan.pool->super.geometry.ring_size, from = scan.slot->position_off;
    uint64_t at = from - from % ring_size + (uint64_t)(line - scan.ring);

    return pm_slot_place(scan.pool, scan.slot, at < from ? at + ring_size : at);
}

/* A record that begins here is there as a whole or not: true, and the run goes on without one.
 * False: its header tells by itself. */
static bool is_not_whole(
    struct cr_level *level, uint32_t pool, uint64_t off, const uint8_t *line, uint64_t room)
{
    static struct open_record o;
    const struct sim_units *units = &level->moment.units;
    uint64_t written[2], other[2];
    uint32_t size;

    if (scan.ring == NULL || line < scan.ring ||
        line >= scan.ring + scan.pool->super.geometry.ring_size)
        return false;
    o.level = level;
    o.pool = pool;
    o.off = off;
    if (!find_open(&o, 16) || o.count == 0)
        return false;
    memcpy(o.bytes, line, PM_RECORD_ALIGN);
    memcpy(written, line, 16);
    memcpy(other, line, 16);
    for (uint32_t i = 0; i < o.count; i++) {
        uint32_t unit = o.word[i].unit, w = o.word[i].at / 8;
        if (units->unit[unit].kept >= units->unit[unit].count)
            return false;
        written[w] = value_of(level, unit, units->unit[unit].kept, (off / 8 + w) % 8);
        other[w] = o.word[i].value == written[w] ? other[w] : o.word[i].value;
    }
    for (uint32_t n = 0; n < 1u << o.count; n++) { /* of the words that are open, some are lost */
        uint64_t head[2] = {written[0], written[1]};
        for (uint32_t i = 0; i < o.count; i++)
            if ((n >> i & 1) != 0)
                head[o.word[i].at / 8] = other[o.word[i].at / 8];
        memcpy(o.bytes, head, sizeof(head));
        uint32_t is = __real_pm_record_peek(o.bytes, room);
        if (n == 0)
            size = is;
        if (n == 0 ? is == 0 || is > RECORD_MAX : is != 0)
            return false;
    }
    memcpy(o.bytes, line, size);
    if (!find_open(&o, size) || (uint8_t)(written[1] >> 32) == PM_RECORD_PAD)
        return false;
    struct pm_place place = place_of(line);
    return level->nesting || !cut_fitting(&o, size, &place, 16);
}

uint32_t __wrap_pm_record_peek(const void *line, uint64_t room)
{
    uint32_t pool, size = 0;
    uint64_t off;
    struct cr_level *level = level_of(line, 16, &pool, &off);
    bool one;

    if (level == NULL)
        return __real_pm_record_peek(line, room);
    struct cr_watch watch = cr_watch_stop();
    one = peek_all(level, pool, off, line, room, &size);
    if (one)
        memset(&level->reads.guarded[pool][off / 8], CR_GUARD_VALUE, 2);
    else
        one = is_not_whole(level, pool, off, line, room);
    (void)cr_watch_set(watch);
    return one ? size : __real_pm_record_peek(line, room);
}

int __real_pm_slot_scan(const struct pm_pool *pool, const struct pm_slot *slot, const void *ring,
    pm_slot_found_fn found, void *arg);
int __wrap_pm_slot_scan(const struct pm_pool *pool, const struct pm_slot *slot, const void *ring,
    pm_slot_found_fn found, void *arg);
int __wrap_pm_slot_scan(const struct pm_pool *pool, const struct pm_slot *slot, const void *ring,
    pm_slot_found_fn found, void *arg)
{
    bool watched = cr_reads_level() != NULL;

    scan.ring = watched ? ring : NULL;
    scan.pool = pool;
    scan.slot = slot;
    int rc = __real_pm_slot_scan(pool, slot, ring, found, arg);
    scan.ring = NULL;
    return rc;
}

int __wrap_txn_part_find_damaged(
    struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring)
{
    struct cr_level *level = cr_reads_level();
    struct cr_reads *r = level != NULL ? &level->reads : NULL;

    if (r != NULL && part->window <= CN_ARRAY_SIZE(r->mark)) {
        r->marks = part->window;
        for (uint32_t i = 0; i < part->window; i++)
            r->mark[i] = pm_word_value(
                slot->media.nonce, slot->media.position_seq + 1 + i, PM_WORD_MARK);
        r->marks_from = (uintptr_t)ring;
        r->marks_to = (uintptr_t)ring + part->pool->super.geometry.ring_size;
    }
    int error = __real_txn_part_find_damaged(part, slot, ring);
    if (r != NULL)
        r->marks_from = r->marks_to = 0;
    return error;
}
