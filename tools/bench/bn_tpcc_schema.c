/* SPDX-License-Identifier: BSD-3-Clause */
/* bn_tpcc_schema.c: see bn_tpcc.h: keys, and the random draws of clauses 2.1.6 and 4.3.2. */
#include "tools/bench/bn_tpcc.h"

/* ---- keys ---- */

uint32_t bn_tpcc_key_w(uint8_t *ret_key, uint32_t w)
{
    bn_put_be32(ret_key, w);
    return 4;
}

uint32_t bn_tpcc_key_wd(uint8_t *ret_key, uint32_t w, uint32_t d)
{
    bn_put_be32(ret_key, w);
    ret_key[4] = (uint8_t)d;
    return 5;
}

uint32_t bn_tpcc_key_wdn(uint8_t *ret_key, uint32_t w, uint32_t d, uint32_t n)
{
    bn_put_be32(ret_key + bn_tpcc_key_wd(ret_key, w, d), n);
    return 9;
}

uint32_t bn_tpcc_key_line(uint8_t *ret_key, uint32_t w, uint32_t d, uint32_t o, uint32_t number)
{
    ret_key[bn_tpcc_key_wdn(ret_key, w, d, o)] = (uint8_t)number;
    return 10;
}

uint32_t bn_tpcc_key_stock(uint8_t *ret_key, uint32_t w, uint32_t i)
{
    bn_put_be32(ret_key, w);
    bn_put_be32(ret_key + 4, i);
    return 8;
}

uint32_t bn_tpcc_key_name(
    uint8_t *ret_key, uint32_t w, uint32_t d, const char name[BN_TPCC_NAME_SIZE])
{
    memcpy(ret_key + bn_tpcc_key_wd(ret_key, w, d), name, BN_TPCC_NAME_SIZE);
    return 5 + BN_TPCC_NAME_SIZE;
}

uint32_t bn_tpcc_key_history(uint8_t *ret_key, uint32_t worker, uint64_t number)
{
    bn_put_be32(ret_key, worker);
    bn_put_be64(ret_key + 4, number);
    return 12;
}

/* ---- draws ---- */

uint32_t bn_tpcc_between(uint64_t *random, uint32_t low, uint32_t high)
{
    return low + (uint32_t)bn_below(random, (uint64_t)high - low + 1);
}

uint32_t bn_tpcc_nurand(uint64_t *random, uint32_t a, uint32_t x, uint32_t y, uint32_t c)
{
    uint32_t first = bn_tpcc_between(random, 0, a);

    return ((first | bn_tpcc_between(random, x, y)) + c) % (y - x + 1) + x;
}

void bn_tpcc_last_name(uint32_t number, char ret_name[BN_TPCC_NAME_SIZE])
{
    static const char *const syllable[10] = {
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"};
    char text[BN_TPCC_NAME_SIZE + 1] = {0};

    (void)snprintf(text, sizeof(text), "%s%s%s", syllable[number / 100 % 10],
        syllable[number / 10 % 10], syllable[number % 10]);
    memcpy(ret_name, text, BN_TPCC_NAME_SIZE);
}

/* The two must differ by 65 to 119, but not by 96 or 112. */
uint32_t bn_tpcc_run_constant(uint64_t *random, uint32_t c_load)
{
    uint32_t delta;

    do
        delta = bn_tpcc_between(random, 65, 119);
    while (delta == 96 || delta == 112);
    return c_load + delta <= 255 ? c_load + delta : c_load - delta;
}

uint32_t bn_tpcc_text(uint64_t *random, char *to, uint32_t min, uint32_t max)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    uint32_t size = bn_tpcc_between(random, min, max);
    uint64_t x = 0;

    for (uint32_t i = 0; i < size; i++, x >>= 6) {
        if (i % 10 == 0)
            x = bn_random(random);
        to[i] = letters[x % 64];
    }
    return size;
}

void bn_tpcc_digits(uint64_t *random, char *to, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = (char)('0' + bn_below(random, 10));
}
