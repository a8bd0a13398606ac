/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_list.c: the singles: every transaction of 1 to 3 operations (read, put, delete) on 1 to 3
 * keys over 1 to 3 participants, for every presence of its keys.
 *
 * Up to renaming: nothing in the protocol depends on which of its keys comes first in a
 * transaction, or on which node a key lies, but through hashes and ids, and these decide places and
 * the order of loops only. So the key of the first operation is a, the next new one b, ...; the
 * participant of a is 1, the next new one 2, ...: restricted growth strings, of which there are
 * Bell(n) = 1, 2, 5. A key that no operation names is not part of the case, nor is a participant
 * without a key. For k operations on m keys that is (strings of length k with m letters) x 3^k x
 * Bell(m) x 2^m:
 *
 *     k = 1:                            1 x  3 x (1 x 2)                             =    6
 *     k = 2:   (1 x 1 x 2 + 1 x 2 x 4)  x  9                                         =   90
 *     k = 3:   (1 x 1 x 2 + 3 x 2 x 4 + 1 x 5 x 8) x 27                              = 1782
 *
 * together 1878; the test counts them again by canonising all 3-key, 3-node transactions. The order
 * of loops is what a renaming can still change: another seed gives other names.
 */
#include "tools/crash/explore/cr_enum_case.h"

/* Restricted growth strings by length. */
#define STRINGS_MAX 5u
static const uint32_t string_count[] = {1, 1, 2, STRINGS_MAX};
static const char strings[CR_CASE_OPS + 1][STRINGS_MAX][CR_CASE_OPS + 1] = {
    {""}, {"0"}, {"00", "01"}, {"000", "001", "010", "011", "012"}};

static uint32_t letters(const char *string)
{
    uint32_t n = 0;

    for (; *string != '\0'; string++)
        n = (uint32_t)cn_max64(n, (uint64_t)(*string - '0') + 1);
    return n;
}

static uint32_t take(uint32_t *number, uint32_t bound)
{
    uint32_t digit = *number % bound;

    *number /= bound;
    return digit;
}

/* Cases with the keys of one string. */
static uint32_t block_size(uint32_t ops, const char *keys)
{
    uint32_t m = letters(keys), size = string_count[m] << m;

    for (uint32_t i = 0; i < ops; i++)
        size *= CR_OP_KINDS;
    return size;
}

static void decode(uint32_t number, uint32_t ops, const char *keys, struct cr_case *ret)
{
    uint32_t m = letters(keys);

    *ret = (struct cr_case){.set = CR_ENUM_SINGLES, .key_count = (uint8_t)m, .client_count = 1,
        .tx_count = 1};
    ret->tx[0].count = (uint8_t)ops;
    for (uint32_t i = 0; i < m; i++)
        ret->present[i] = take(&number, 2) != 0;
    for (uint32_t i = 0; i < ops; i++)
        ret->tx[0].op[i] =
            (struct cr_case_op){(uint8_t)take(&number, CR_OP_KINDS), (uint8_t)(keys[i] - '0')};
    const char *nodes = strings[m][number];
    for (uint32_t i = 0; i < m; i++)
        ret->at[i] = (uint8_t)(nodes[i] - '0');
    ret->node_count = (uint8_t)letters(nodes);
}

bool cr_case_single(uint32_t number, struct cr_case *ret)
{
    for (uint32_t ops = 1; ops <= CR_CASE_OPS; ops++) {
        for (uint32_t k = 0; k < string_count[ops]; k++) {
            uint32_t size = block_size(ops, strings[ops][k]);
            if (number < size) {
                decode(number, ops, strings[ops][k], ret);
                return true;
            }
            number -= size;
        }
    }
    return false;
}

/* ---- canonical codes ---- */

/* New names in order of first use. */
struct names { uint8_t name[8], count; };

static uint8_t rename_to(struct names *names, uint8_t old)
{
    for (uint8_t i = 0; i < names->count; i++)
        if (names->name[i] == old)
            return i;
    names->name[names->count] = old;
    return names->count++;
}

uint64_t cr_case_code(const struct cr_case *c)
{
    struct names keys = {.count = 0}, nodes = {.count = 0};
    uint64_t code = c->tx[0].count;

    for (uint32_t i = 0; i < c->tx[0].count; i++) {
        const struct cr_case_op *op = &c->tx[0].op[i];
        code = code * 16 + op->kind * 4u + rename_to(&keys, op->key);
    }
    for (uint32_t i = 0; i < keys.count; i++) {
        uint8_t key = keys.name[i];
        code = code * 16 + rename_to(&nodes, c->at[key]) * 2u + c->present[key];
    }
    return code;
}

/* ---- all sets ---- */

typedef bool (*case_fn)(uint32_t number, struct cr_case *ret);
static const struct { enum cr_enum_set set; case_fn get; } sets[] = {
    {CR_ENUM_SINGLES, cr_case_single},
    {CR_ENUM_PAIRS, cr_case_pair},
    {CR_ENUM_RINGS, cr_case_ring},
};

static uint32_t count_one(size_t set)
{
    static uint32_t counts[CN_ARRAY_SIZE(sets)]; /* 0: not counted yet */
    struct cr_case ignored;

    if (counts[set] == 0)
        while (sets[set].get(counts[set], &ignored))
            counts[set]++;
    return counts[set];
}

uint32_t cr_enum_count(unsigned which)
{
    uint32_t n = 0;

    for (size_t i = 0; i < CN_ARRAY_SIZE(sets); i++)
        if ((which & sets[i].set) != 0)
            n += count_one(i);
    return n;
}

bool cr_case_get(uint32_t number, struct cr_case *ret)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(sets); i++) {
        if (number < count_one(i))
            return sets[i].get(number, ret);
        number -= count_one(i);
    }
    return false;
}

bool cr_enum_describe(uint32_t number, char *buf, size_t size)
{
    struct cr_case c;

    if (!cr_case_get(number, &c))
        return false;
    cr_case_describe(&c, buf, size);
    return true;
}
