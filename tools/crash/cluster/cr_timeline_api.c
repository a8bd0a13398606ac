/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline_api.c: what clients read and write, for timelines: the calls of the public API that
 * carry data are wrapped (ld --wrap). While nobody watches that is one comparison.
 */
#include "tools/crash/cluster/cr_timeline_api.h"

#define VALUE_TEXT 120u

static struct sim *watched; /* NULL: nobody watches */

int __real_cairn_get(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size);
int __real_cairn_get_for_update(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, size_t *ret_size);
int __real_cairn_put(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size);
int __real_cairn_delete(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size);
void __real_cairn_abort(struct cairn_tx *tx);
int __wrap_cairn_get(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size);
int __wrap_cairn_get_for_update(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, size_t *ret_size);
int __wrap_cairn_put(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size);
int __wrap_cairn_delete(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size);
void __wrap_cairn_abort(struct cairn_tx *tx);

void cr_timeline_api_use(struct sim *sim)
{
    watched = sim != NULL && sim_is_watched(sim) ? sim : NULL;
}

static bool is_text(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i] < ' ' || p[i] > '~')
            return false;
    return size > 0;
}

static int64_t number_at(const uint8_t *p, size_t size)
{
    int64_t wide = 0;
    int32_t narrow = 0;

    if (size == 8) {
        memcpy(&wide, p, 8);
        return wide;
    }
    memcpy(&narrow, p, 4);
    return narrow;
}

/* Small numbers of 8 bytes each: no upper half says anything. */
static bool are_long(const uint8_t *p, size_t size)
{
    bool all = size % 8 == 0;

    for (size_t i = 0; all && i < size; i += 8) {
        int64_t v = number_at(p + i, 8);
        all = v >= INT32_MIN && v <= INT32_MAX;
    }
    return all;
}

/* 8 bytes: a number; a few words: a list of numbers; text as it is; else its size. */
static void value_text(const void *value, size_t size, char *text)
{
    const uint8_t *p = value;
    size_t at = 0;

    if (is_text(p, size < 40 ? size : 40))
        snprintf(text, VALUE_TEXT, "\"%.*s\"%s", (int)(size < 40 ? size : 40), (const char *)value,
            size > 40 ? "..." : "");
    else if (size == 8 && are_long(p, size)) {
        snprintf(text, VALUE_TEXT, "%ld", number_at(p, 8));
    } else if (size % 4 == 0 && size > 0 && size <= 64) {
        size_t step = are_long(p, size) ? 8 : 4;
        for (size_t i = 0; i < size && at < VALUE_TEXT; i += step)
            at += (size_t)snprintf(text + at, VALUE_TEXT - at, "%s%ld%s", i == 0 ? "[" : " ",
                number_at(p + i, step), i + step == size ? "]" : "");
    } else {
        snprintf(text, VALUE_TEXT, "%zu bytes (crc %08x)", size, cn_crc32c(0, value, size));
    }
}

static bool is_watched(void)
{
    return CN_UNLIKELY(watched != NULL) && watched->running != NULL;
}

static void say(const char *what, const void *key, size_t key_size, const char *rest)
{
    bool good = is_text(key, key_size) && key_size < 64;

    sim_tell(watched, NULL, (struct sim_moment){.kind = SIM_MOMENT_SAY}, "%s \"%.*s\"%s", what,
        good ? (int)key_size : 1, good ? (const char *)key : "?", rest);
}

static int say_read(const char *what, int rc, const void *key, size_t key_size, const void *buf,
    size_t size)
{
    char rest[VALUE_TEXT + 4] = ": ";

    if (!is_watched())
        return rc;
    if (rc == 0)
        value_text(buf, size, rest + 2);
    else
        snprintf(rest + 2, VALUE_TEXT, "%s", cairn_error_name(rc));
    say(what, key, key_size, rest);
    return rc;
}

int __wrap_cairn_get(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size)
{
    int rc = __real_cairn_get(tx, table, key, key_size, buf, buf_size, ret_size);

    return say_read("reads", rc, key, key_size, buf, rc == 0 ? *ret_size : 0);
}

int __wrap_cairn_get_for_update(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, size_t *ret_size)
{
    int rc = __real_cairn_get_for_update(tx, table, key, key_size, buf, buf_size, ret_size);

    return say_read("locks and reads", rc, key, key_size, buf, rc == 0 ? *ret_size : 0);
}

int __wrap_cairn_put(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size)
{
    char rest[VALUE_TEXT + 4] = ": ";

    if (is_watched()) {
        value_text(value, value_size, rest + 2);
        say("will write", key, key_size, rest);
    }
    return __real_cairn_put(tx, table, key, key_size, value, value_size);
}

int __wrap_cairn_delete(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size)
{
    if (is_watched())
        say("will delete", key, key_size, "");
    return __real_cairn_delete(tx, table, key, key_size);
}

void __wrap_cairn_abort(struct cairn_tx *tx)
{
    if (is_watched() && tx != NULL)
        sim_tell(watched, NULL, (struct sim_moment){.kind = SIM_MOMENT_SAY}, "aborts");
    __real_cairn_abort(tx);
}
