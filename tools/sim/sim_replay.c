/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_replay.c: a hash table by (label, who): how many were asked, and the chain of those on the
 * tape, in ascending order of `nth`. Labels are compared as text: those of a tape that was read
 * from a file are at other addresses than the program's.
 */
#include "tools/sim/sim_replay.h"

#include "tools/sim/sim_alloc.h"
#include "tools/sim/sim_calm.h"

#define NONE UINT32_MAX

struct key {
    const char *label; /* NULL: empty */
    uint32_t who, asked;
    uint32_t calm; /* sim_calm_find() */
    uint32_t first, last; /* of the chain, as places on the tape; NONE: none is left */
};

struct sim_keys {
    const struct sim_choice *choice;
    uint32_t *next; /* by place on the tape */
    struct key *key;
    size_t size, used; /* size is a power of two */
};

static size_t home(const struct sim_keys *keys, const char *label, uint32_t who)
{
    uint64_t h = who;

    for (const char *p = label; *p != '\0'; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    return (size_t)cn_mix64(h) & (keys->size - 1);
}

static struct key *place(const struct sim_keys *keys, const char *label, uint32_t who)
{
    size_t i = home(keys, label, who);

    while (keys->key[i].label != NULL &&
        (keys->key[i].who != who ||
            (keys->key[i].label != label && strcmp(keys->key[i].label, label) != 0)))
        i = (i + 1) & (keys->size - 1);
    return &keys->key[i];
}

static void grow(struct sim_keys *keys)
{
    struct sim_keys old = *keys;

    keys->size = old.size == 0 ? 256 : 2 * old.size;
    keys->key = sim_calloc(keys->size, sizeof(*keys->key));
    for (size_t i = 0; i < old.size; i++)
        if (old.key[i].label != NULL)
            *place(keys, old.key[i].label, old.key[i].who) = old.key[i];
    sim_free(old.key);
}

static struct key *get(struct sim_keys *keys, const char *label, uint32_t who)
{
    struct key *k = place(keys, label, who);

    if (k->label != NULL)
        return k;
    if (2 * (keys->used + 1) > keys->size) {
        grow(keys);
        k = place(keys, label, who);
    }
    keys->used++;
    *k = (struct key){.label = label, .who = who, .calm = sim_calm_find(label),
        .first = NONE, .last = NONE};
    return k;
}

struct sim_keys *sim_keys_new(const struct sim_choice *choice, size_t count)
{
    struct sim_keys *keys = sim_calloc(1, sizeof(*keys));

    CAIRN_ASSERT(count < NONE);
    grow(keys);
    keys->choice = choice;
    if (count > 0)
        keys->next = sim_calloc(count, sizeof(*keys->next));
    for (uint32_t i = 0; i < count; i++) {
        struct key *k = get(keys, choice[i].label, choice[i].who);
        keys->next[i] = NONE;
        if (k->first == NONE)
            k->first = i;
        else
            keys->next[k->last] = i;
        k->last = i;
    }
    return keys;
}

void sim_keys_delete(struct sim_keys **keys)
{
    if (*keys == NULL)
        return;
    sim_free((*keys)->next);
    sim_free((*keys)->key);
    sim_free(*keys);
    *keys = NULL;
}

size_t sim_keys_next(struct sim_keys *keys, const char *label, uint32_t who, uint32_t *ret_nth,
    uint32_t *ret_calm)
{
    struct key *k = get(keys, label, who);
    uint32_t nth = k->asked++;

    *ret_nth = nth;
    *ret_calm = k->calm;
    while (k->first != NONE && keys->choice[k->first].nth < nth)
        k->first = keys->next[k->first];
    if (k->first == NONE || keys->choice[k->first].nth != nth)
        return SIZE_MAX;
    size_t found = k->first;
    k->first = keys->next[found];
    return found;
}
