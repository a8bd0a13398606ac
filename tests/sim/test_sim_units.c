/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the images that sim_units.h enumerates are exactly those that rules R19 to R31 admit: no
 * more (a false alarm) and no fewer (a bug that stays hidden). Method: the litmus programs on
 * memory alone (L1 to L7, L10, L11) against their sets; random programs against a slow reference
 * that tries every subset of the stores and keeps those that the rules allow, written down
 * otherwise than the code does it; and the images that sim_pool_power_fail() draws.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "tools/sim/sim_units.h"

#define SIZE 4096u
#define WORDS 16u /* two lines */
#define IMAGES_MAX 20000u
#define STORES_MAX 10u

/* ---- sets of images of the first WORDS words ---- */

struct image { uint64_t word[WORDS]; };
struct set { struct image *image; uint32_t count; };

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct image));
}

static void set_add(struct set *s, const struct image *image)
{
    assert_true(s->count < IMAGES_MAX);
    s->image[s->count++] = *image;
}

static struct set set_new(void)
{
    struct set s = {.image = calloc(IMAGES_MAX, sizeof(struct image))};
    assert_non_null(s.image);
    return s;
}

static void set_sort(struct set *s)
{
    uint32_t kept = 0;

    qsort(s->image, s->count, sizeof(s->image[0]), by_bytes);
    for (uint32_t i = 0; i < s->count; i++)
        if (kept == 0 || memcmp(&s->image[kept - 1], &s->image[i], sizeof(struct image)) != 0)
            s->image[kept++] = s->image[i];
    s->count = kept;
}

static void expect_equal(struct set *a, struct set *b)
{
    set_sort(a);
    set_sort(b);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->image, b->image, a->count * sizeof(struct image));
}

/* ---- what the code under test says ---- */

/* All of them; none may come twice. */
static struct set enumerate(const struct sim_pool *pool)
{
    struct set s = set_new();
    struct sim_units u = {0};
    uint32_t digit[64] = {0}, i = 0;

    sim_units_clear(&u);
    sim_units_add(&u, pool, 0);
    assert_true(u.complete && u.count < 64);
    do {
        struct image image;
        memcpy(&image, pool->persistent, sizeof(image));
        for (uint32_t k = 0; k < u.count; k++) {
            const struct sim_alternative *a = &u.alternative[u.unit[k].first + digit[k]];
            for (uint32_t w = 0; w < 8; w++)
                if ((a->mask >> w & 1) != 0)
                    image.word[u.unit[k].line * 8 + w] = a->value[w];
        }
        set_add(&s, &image);
        for (i = 0; i < u.count && ++digit[i] == u.unit[i].count; i++)
            digit[i] = 0;
    } while (i < u.count);
    uint32_t count = s.count;
    set_sort(&s);
    assert_int_equal(s.count, count);
    assert_true(exp2(u.log2) > count - 0.01 && exp2(u.log2) < count + 0.01);
    sim_units_free(&u);
    return s;
}

/* ---- the reference ---- */

struct store { uint32_t word; uint64_t value; bool nic, sure; };

/*
 * A subset of the stores, in order, is admissible when what is sure is in it, and
 * - a store of the CPU: so are all earlier ones of the CPU to its line;
 * - a store of the fabric: so are all earlier ones of the CPU to its word.
 */
static bool is_admissible(const struct store *store, uint32_t count, uint32_t subset)
{
    for (uint32_t i = 0; i < count; i++) {
        bool in = (subset >> i & 1) != 0;
        if (store[i].sure && !in)
            return false;
        for (uint32_t k = 0; in && k < i; k++) {
            bool needs = !store[k].nic &&
                (store[i].nic ? store[k].word == store[i].word
                              : store[k].word / 8 == store[i].word / 8);
            if (needs && (subset >> k & 1) == 0)
                return false;
        }
    }
    return true;
}

static struct set reference(const struct store *store, uint32_t count)
{
    struct set s = set_new();

    for (uint32_t subset = 0; subset < 1u << count; subset++) {
        struct image image = {{0}};
        if (!is_admissible(store, count, subset))
            continue;
        for (uint32_t i = 0; i < count; i++)
            if ((subset >> i & 1) != 0)
                image.word[store[i].word] = store[i].value;
        set_add(&s, &image);
    }
    return s;
}

/* ---- programs ---- */

static void nic(struct sim_pool *pool, uint32_t word, uint64_t value)
{
    sim_pool_nic_store(pool, word * 8u, &value, 8);
}

static void cpu(struct sim_pool *pool, uint32_t word, uint64_t value)
{
    memcpy(pool->visible + word * 8u, &value, 8);
    pool->tracer.store(pool->tracer.arg, word * 8u, 8);
}

static void write_back(struct sim_pool *pool, uint32_t word)
{
    pool->tracer.flush(pool->tracer.arg, word * 8u, 8);
}

static void fence(struct sim_pool *pool)
{
    pool->tracer.fence(pool->tracer.arg, CN_STEP_a_body);
}

/* An acknowledged flush of the fabric, of all that it wrote. */
static void flush(struct sim_pool *pool)
{
    for (uint32_t w = 0; w < WORDS; w++)
        sim_pool_persist(pool, w * 8u, 8, pool->seq);
}

#define X 0u
#define Y 8u /* another line */

/* The outcomes of words a and b, as pairs. */
static void expect(struct sim_pool *pool, uint32_t a, uint32_t b, const char *expected)
{
    char seen[64] = "";
    struct set s = enumerate(pool);

    for (uint64_t x = 0; x < 3; x++)
        for (uint64_t y = 0; y < 3; y++)
            for (uint32_t i = 0; i < s.count; i++)
                if (s.image[i].word[a] == x && s.image[i].word[b] == y) {
                    snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s%u%u",
                        seen[0] == 0 ? "" : " ", (unsigned)x, (unsigned)y);
                    break;
                }
    assert_string_equal(seen, expected);
    free(s.image);
    sim_pool_delete(pool);
}

static void l1__two_writes__any(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    nic(p, Y, 1);
    expect(p, X, Y, "00 01 10 11");
}

static void l2__flush_polled_between__first_is_sure(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    flush(p);
    nic(p, Y, 1);
    expect(p, X, Y, "10 11");
}

/* L3, and L4 before its READ has executed: a flush that nobody polled promises nothing. */
static void l3__flush_not_polled__any(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    nic(p, Y, 1);
    sim_pool_persist(p, X * 8u, 8, 0); /* of a time before the write */
    expect(p, X, Y, "00 01 10 11");
}

/* L4: W(y) was executed, so the READ before it was, and with it W(x) is persistent. */
static void l4__fenced_write_executed__not_without_the_first(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    uint64_t seq = p->seq;
    sim_pool_persist(p, X * 8u, 8, seq);
    nic(p, Y, 1);
    expect(p, X, Y, "10 11");
}

/* L5: a flush of another queue pair covers nothing of this one. */
static void l5__flush_elsewhere__any(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    sim_pool_persist(p, Y * 8u, 8, p->seq);
    expect(p, X, Y, "00 10");
}

static void l6__word_twice__each_value(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    nic(p, X, 1);
    nic(p, X, 2);
    expect(p, X, Y, "00 10 20");
}

static void l7__whole_line__any_subset_of_words(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    for (uint32_t w = 0; w < 8; w++)
        nic(p, w, 1);
    struct set s = enumerate(p);
    assert_int_equal(s.count, 256);
    free(s.image);
    sim_pool_delete(p);
}

static void l9__eadr__all_is_kept(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    p->keeps_all = true;
    nic(p, X, 1);
    cpu(p, Y, 1);
    cpu(p, Y, 2);
    expect(p, X, Y, "12");
}

static void l10__write_back_without_fence__any(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    cpu(p, X, 1);
    write_back(p, X);
    cpu(p, Y, 1);
    expect(p, X, Y, "00 01 10 11");
}

static void l10__write_back_and_fence__sure(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    cpu(p, X, 1);
    write_back(p, X);
    fence(p);
    cpu(p, Y, 1);
    expect(p, X, Y, "10 11");
}

static void l11__one_line__in_order(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    cpu(p, X, 1);
    cpu(p, X + 1, 1);
    expect(p, X, X + 1, "00 10 11");
}

/* A store that changes nothing makes no image of its own. */
static void units__same_value__one_alternative(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    struct sim_units u = {0};
    (void)state;
    cpu(p, X, 0);
    nic(p, Y, 0);
    sim_units_clear(&u);
    sim_units_add(&u, p, 0);
    assert_int_equal(u.count, 0);
    sim_units_free(&u);
    sim_pool_delete(p);
}

static uint64_t next(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(*seed);
}

/* A short random program; the same as a list for the reference. */
static uint32_t run_random(uint64_t seed, struct sim_pool *pool, struct store *store)
{
    uint32_t count = 0, words = 1 + (uint32_t)(next(&seed) % 4);

    while (count < STORES_MAX) {
        uint32_t word = (uint32_t)(next(&seed) % words) * (next(&seed) % 4 == 0 ? 5 : 1);
        struct store *s = &store[count];
        switch (next(&seed) % 12) {
        case 0: /* the CPU makes the line durable */
            write_back(pool, word);
            fence(pool);
            for (uint32_t i = 0; i < count; i++)
                store[i].sure = store[i].sure || store[i].word / 8 == word / 8;
            break;
        case 1: /* the fabric: a word, and with it what the CPU stored in the line before */
            sim_pool_persist(pool, word * 8u, 8, pool->seq);
            for (uint32_t i = count; i-- > 0;)
                if (store[i].word == word)
                    store[i].sure = true;
            for (uint32_t i = count; i-- > 0;)
                for (uint32_t k = i + 1; !store[i].nic && k < count; k++)
                    if (!store[k].nic && store[k].sure && store[k].word / 8 == store[i].word / 8)
                        store[i].sure = true;
            break;
        default:
            *s = (struct store){word, next(&seed) % 3, next(&seed) % 2 == 0, false};
            if (s->nic)
                nic(pool, word, s->value);
            else
                cpu(pool, word, s->value);
            count++;
        }
    }
    return count;
}

static void units__random_programs__as_the_reference(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct sim_pool *pool = sim_pool_new(NULL, SIZE);
        struct store store[STORES_MAX];
        uint32_t count = run_random(seed, pool, store);
        struct set a = enumerate(pool), b = reference(store, count);
        expect_equal(&a, &b);
        free(a.image);
        free(b.image);
        sim_pool_delete(pool);
    }
}

/* What a power failure draws is one of them, and with enough draws it is each. */
static void power_fail__many_draws__the_same_set(void **state)
{
    (void)state;
    for (uint64_t program = 1; program <= 8; program++) {
        struct set drawn = set_new(), all = {0};
        for (uint64_t seed = 1; seed <= 6000; seed++) {
            struct store store[STORES_MAX];
            struct image image;
            struct sim sim;
            sim_init(&sim, seed, false);
            struct sim_pool *pool = sim_pool_new(&sim, SIZE);
            (void)run_random(program, pool, store);
            if (seed == 1)
                all = enumerate(pool);
            sim_pool_power_fail(pool);
            memcpy(&image, pool->visible, sizeof(image));
            set_add(&drawn, &image);
            sim_pool_delete(pool);
            sim_fini(&sim);
        }
        expect_equal(&drawn, &all);
        free(drawn.image);
        free(all.image);
    }
}

/* R38: a log that makes word after word durable. Each image is a prefix. */
static void units__reference_log__each_image_is_a_prefix(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    (void)state;
    for (uint32_t w = 0; w < WORDS; w++) {
        cpu(p, w, w + 1);
        struct set s = enumerate(p);
        assert_int_equal(s.count, 2);
        for (uint32_t i = 0; i < s.count; i++)
            for (uint32_t k = 1; k < WORDS; k++)
                assert_true(s.image[i].word[k] == 0 || s.image[i].word[k - 1] == k);
        free(s.image);
        write_back(p, w);
        fence(p);
    }
    sim_pool_delete(p);
}

/* ---- the hook ---- */

struct told { uint32_t count, dirty; const char *what; };

static void note(void *arg, struct sim_pool *pool, const char *what)
{
    struct told *t = arg;
    t->count++;
    t->dirty = pool->dirty_count;
    t->what = what;
}

static void before_persist__called_while_it_is_dirty(void **state)
{
    struct sim_pool *p = sim_pool_new(NULL, SIZE);
    struct told t = {0};
    (void)state;
    p->before_persist = note;
    p->before_persist_arg = &t;
    cpu(p, X, 1);
    fence(p); /* nothing was written back */
    assert_int_equal(t.count, 0);
    write_back(p, X);
    assert_int_equal(t.count, 0);
    fence(p);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.dirty, 1);
    assert_string_equal(t.what, "a_body");
    assert_int_equal(p->dirty_count, 0);
    nic(p, X, 2);
    sim_pool_persist(p, X * 8u, 8, p->seq);
    assert_int_equal(t.count, 2);
    sim_pool_persist(p, X * 8u, 8, p->seq); /* nothing is left */
    assert_int_equal(t.count, 2);
    cpu(p, X, 3);
    sim_pool_write_back(p, X * 8u, 8);
    assert_int_equal(t.count, 3);
    p->keeps_all = true; /* each store is durable at once */
    cpu(p, X, 4);
    assert_int_equal(t.count, 4);
    sim_pool_delete(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l1__two_writes__any),
        cmocka_unit_test(l2__flush_polled_between__first_is_sure),
        cmocka_unit_test(l3__flush_not_polled__any),
        cmocka_unit_test(l4__fenced_write_executed__not_without_the_first),
        cmocka_unit_test(l5__flush_elsewhere__any),
        cmocka_unit_test(l6__word_twice__each_value),
        cmocka_unit_test(l7__whole_line__any_subset_of_words),
        cmocka_unit_test(l9__eadr__all_is_kept),
        cmocka_unit_test(l10__write_back_without_fence__any),
        cmocka_unit_test(l10__write_back_and_fence__sure),
        cmocka_unit_test(l11__one_line__in_order),
        cmocka_unit_test(units__same_value__one_alternative),
        cmocka_unit_test(units__random_programs__as_the_reference),
        cmocka_unit_test(power_fail__many_draws__the_same_set),
        cmocka_unit_test(units__reference_log__each_image_is_a_prefix),
        cmocka_unit_test(before_persist__called_while_it_is_dirty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
