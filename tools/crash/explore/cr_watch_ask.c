/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch_ask.c: what is asked of functions of the product that read much and say little.
 *
 * A function of the bytes of a pool, which stores nothing, can be asked for each combination of
 * what the images of a run's set have where it reads. Then the run's set is divided by the answers,
 * not by the words: if there is one answer, nothing has been read.
 *
 * Where it reads is either said before (objects), or found out: all open words that it reads for
 * any combination. Where the combinations are too many, and the function looks at objects one by
 * one (who calls cr_ask() says so), there is one answer if there is one for each object's
 * combinations with the others as they are.
 */
#include "tools/crash/explore/cr_watch_ask.h"

uint64_t cr_ask_hash(uint64_t hash, const void *at, size_t size)
{
    const uint8_t *bytes = at;

    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, cn_min64(8, size - i));
        hash = cn_mix64(hash + word) + i;
    }
    return hash;
}

/* ---- what is open ---- */

bool cr_ask_object(struct cr_question *q, uint64_t off, uint64_t size)
{
    for (uint32_t i = 0; i < q->objects; i++)
        if (q->object[i].off == off)
            return true;
    if (q->objects == CR_ASK_OBJECTS || off % CR_LINE != 0 ||
        !cn_range_inside(off, size, 0, q->level->x->base[q->pool].size))
        return false;
    q->object[q->objects].off = off;
    q->object[q->objects++].size = size;
    return true;
}

static bool add_unit(struct cr_question *q, uint32_t number, uint32_t object)
{
    for (uint32_t i = 0; i < q->units; i++)
        if (q->unit[i].number == number)
            return q->unit[i].object == object;
    if (q->units == CR_ASK_UNITS)
        return false;
    q->unit[q->units].number = number;
    q->unit[q->units++].object = object;
    return true;
}

/* False: they are too many. */
static bool find_units(struct cr_question *q)
{
    for (uint32_t i = 0; i < q->objects; i++)
        for (uint64_t at = q->object[i].off; at < q->object[i].off + q->object[i].size; at += 8) {
            uint32_t unit = q->level->reads.open[q->pool][at / 8];
            if (unit != 0 && cr_reads_differs(q->level, unit - 1, (unsigned)(at / 8 % 8)) &&
                !add_unit(q, unit - 1, i))
                return false;
        }
    return true;
}

/* What is asked, and of which bytes, as a number. */
static uint64_t key_of(const struct cr_question *q)
{
    const struct cr_level *level = q->level;
    const struct sim_units *units = &level->moment.units;
    const uint8_t *visible = level->place[q->pool].arena.pool->visible;
    uint64_t key = q->salt + q->pool;

    for (uint32_t i = 0; i < q->objects; i++)
        for (uint64_t at = q->object[i].off; at < q->object[i].off + q->object[i].size; at += 8)
            key = cn_mix64(key + at) +
                (level->reads.open[q->pool][at / 8] != 0 ? 1 : cr_load(visible + at));
    for (uint32_t i = 0; i < q->units; i++) {
        const struct sim_unit *u = &units->unit[q->unit[i].number];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < u->count; k++)
            if (cr_reads_has(level, q->unit[i].number, k))
                sum += cr_ask_hash(u->words, units->alternative[u->first + k].value, CR_LINE);
        key = cn_mix64(key + sum);
    }
    return key;
}

/* ---- asking ---- */

/* The unit's words that are open, with this alternative. */
static void put(const struct cr_question *q, uint32_t i, uint32_t k)
{
    const struct cr_level *level = q->level;
    const struct sim_unit *u = &level->moment.units.unit[q->unit[i].number];
    const uint64_t *value = level->moment.units.alternative[u->first + k].value;
    uint8_t *line = level->place[q->pool].arena.pool->visible + (uint64_t)u->line * CR_LINE;

    for (unsigned w = 0; w < 8; w++)
        if (level->reads.open[q->pool][(uint64_t)u->line * 8 + w] == q->unit[i].number + 1u)
            memcpy(line + 8 * w, &value[w], 8);
}

static uint32_t digit_of(const struct cr_question *q, uint32_t i)
{
    return q->level->moment.digit[q->unit[i].number];
}

/* The units first..last-1, counted through, the last the fastest; in place. Returns how many
 * combinations there are, 0: too many; ret: an answer for each. */
static uint32_t ask_all(const struct cr_question *q, uint32_t first, uint32_t last, uint64_t *ret)
{
    const struct cr_level *level = q->level;
    uint32_t k[CR_ASK_UNITS], count = 0, i;
    uint64_t total = 1;

    for (i = first; i < last; i++) {
        total *= cr_reads_count(level, q->unit[i].number);
        if (total > CR_ASK_COMBINATIONS || (q->limit != 0 && total > q->limit))
            return 0;
        for (k[i] = 0; !cr_reads_has(level, q->unit[i].number, k[i]);)
            k[i]++;
        put(q, i, k[i]);
    }
    do {
        ret[count++] = q->answer(q->arg);
        for (i = last; i > first; i--) {
            const struct sim_unit *u = &level->moment.units.unit[q->unit[i - 1].number];
            do {
                k[i - 1]++;
            } while (k[i - 1] < u->count && !cr_reads_has(level, q->unit[i - 1].number, k[i - 1]));
            if (k[i - 1] < u->count) {
                put(q, i - 1, k[i - 1]);
                break;
            }
            for (k[i - 1] = 0; !cr_reads_has(level, q->unit[i - 1].number, k[i - 1]);)
                k[i - 1]++;
            put(q, i - 1, k[i - 1]);
        }
    } while (i > first);
    for (i = first; i < last; i++)
        put(q, i, digit_of(q, i));
    return count;
}

static bool all_same(const uint64_t *answer, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (answer[i] != answer[0])
            return false;
    return count > 0;
}

/* One combination has another answer than all the others: that one is cut off. False: there is
 * more. */
static bool cut_one(const struct cr_question *q, const uint64_t *answer, uint32_t count)
{
    struct cr_taken taken[CR_ASK_UNITS];
    uint32_t odd = answer[0] == answer[1] ? 2 : answer[1] == answer[count - 1] ? 0 : 1, at, n = 0;
    uint64_t most = answer[odd == 0 ? 1 : 0];
    bool same = true;

    if (odd == 2)
        while (odd < count && answer[odd] == most)
            odd++;
    for (uint32_t i = 0; i < count; i++)
        if (i != odd && answer[i] != most)
            return false;
    at = odd;
    for (uint32_t i = q->units; i-- > 0;) {
        uint32_t number = q->unit[i].number, each = cr_reads_count(q->level, number), k = 0;
        for (uint32_t left = at % each;; k++)
            if (cr_reads_has(q->level, number, k) && left-- == 0)
                break;
        at /= each;
        taken[n++] = (struct cr_taken){number, k};
        same = same && k == digit_of(q, i);
    }
    cr_reads_cut(q->level, taken, n, same);
    return true;
}

/* Divide the run's set by the answers: unit by unit, alternatives for which those of all
 * combinations of the units behind are the same stay together. */
static void divide(const struct cr_question *q, const uint64_t *answer, uint32_t count)
{
    static uint64_t class_of[SIM_ALTERNATIVES_MAX];

    for (uint32_t i = 0; i < q->units && !all_same(answer, count); i++) {
        uint32_t number = q->unit[i].number, n = 0, here = 0;
        uint32_t of = q->level->moment.units.unit[number].count;
        uint32_t each = count / cr_reads_count(q->level, number);
        bool differ = false;
        uint64_t first = 0;
        for (uint32_t k = 0; k < of; k++) {
            if (!cr_reads_has(q->level, number, k))
                continue;
            class_of[k] = cr_ask_hash(1, answer + (size_t)n * each, each * sizeof(*answer));
            first = n == 0 ? class_of[k] : first;
            differ = differ || class_of[k] != first;
            if (k == digit_of(q, i))
                here = n;
            n++;
        }
        if (differ)
            cr_reads_split(q->level, number, class_of);
        answer += (size_t)here * each;
        count = each;
    }
}

/* By object: is the answer the same for each? */
static bool ask_objects(const struct cr_question *q, uint64_t *answer)
{
    uint64_t here = q->answer(q->arg);

    for (uint32_t first = 0, last; first < q->units; first = last) {
        for (last = first; last < q->units && q->unit[last].object == q->unit[first].object;)
            last++;
        uint32_t count = ask_all(q, first, last, answer);
        if (!all_same(answer, count) || answer[0] != here)
            return false;
    }
    return true;
}

/* While it is asked. What is open is in its objects, or it is the next one. */
static void on_read(void *arg, const void *at, size_t size)
{
    struct cr_question *q = arg;
    const struct cr_level *level = q->level;
    uint64_t off;

    if (cr_reads_pool(level, at, &off) != q->pool)
        return;
    for (uint64_t i = off / 8; i <= (off + size - 1) / 8; i++) {
        uint32_t unit = level->reads.open[q->pool][i];
        bool inside = unit == 0 || !cr_reads_differs(level, unit - 1, (unsigned)(i % 8));
        for (uint32_t k = 0; !inside && k < q->objects; k++)
            inside = cn_range_inside(8 * i, 8, q->object[k].off, q->object[k].size);
        if (!inside && q->finds)
            q->strange = !add_unit(q, unit - 1, CR_ASK_OBJECTS + unit) || q->strange;
        else
            q->strange = q->strange || !inside;
    }
}

/* All combinations of what it reads. Returns how many; 0: too many. */
static uint32_t ask_found(struct cr_question *q, uint64_t *answer)
{
    uint32_t units, count;

    (void)q->answer(q->arg);
    do {
        units = q->units;
        count = ask_all(q, 0, units, answer);
    } while (count > 0 && q->units > units);
    return count;
}

/* Locks alone: the first word of an object, which the fabric wrote. */
static bool are_locks(const struct cr_question *q)
{
    for (uint32_t i = 0; i < q->units; i++)
        if (q->level->moment.units.unit[q->unit[i].number].words != 1)
            return false;
    return true;
}

static void guard_units(const struct cr_question *q)
{
    for (uint32_t i = 0; i < q->units; i++)
        cr_reads_guard(q->level, q->unit[i].number, CR_GUARD_VALUE);
}

bool cr_ask(struct cr_question *q)
{
    static uint64_t answer[CR_ASK_COMBINATIONS];
    struct cr_explorer *x = q->level->x;
    bool told = false, is_new;
    uint64_t key = 0;

    if (!q->finds) {
        if (!find_units(q) || q->units == 0)
            return false;
        key = key_of(q);
        if (*cr_known_at(&x->asked, key, &is_new) == 1) {
            guard_units(q);
            return true;
        }
    }
    if (q->level->nesting)
        return true; /* the set was divided when nothing failed */
    struct cr_watch watch = cr_watch_stop();
    struct cr_watch own = watch;
    own.read = on_read;
    own.copy_size = 0;
    own.arg = q;
    (void)cr_watch_set(own);
    uint32_t count = q->finds ? ask_found(q, answer) : ask_all(q, 0, q->units, answer);
    if (count > 0 && !q->strange) {
        told = true;
        if (all_same(answer, count) && !q->finds)
            *cr_known_at(&x->asked, key, &is_new) = 1;
        else if (!all_same(answer, count) && (count < 3 || !cut_one(q, answer, count)))
            divide(q, answer, count);
    } else if (count == 0 && q->by_object && !q->strange && (!q->finds || are_locks(q))) {
        uint32_t units = q->units;
        told = ask_objects(q, answer) && !q->strange && q->units == units;
        if (told && !q->finds)
            *cr_known_at(&x->asked, key, &is_new) = 1;
    }
    (void)cr_watch_set(watch);
    if (told)
        guard_units(q);
    return told;
}
