/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no block is ever in two hands, and none is lost (I4; T3, T4, T7, T8).
 * Method: grants, frees, set-asides and restarts over a pool of 4 KiB chunks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

#define CLASS 5u /* 512 bytes: 8 blocks in a chunk */
#define PER_CHUNK 8u

static uint64_t grant_one(struct ts_store *s, uint16_t slot)
{
    struct pm_lock_pm got;
    uint32_t count = 0;

    assert_int_equal(pm_heap_grant(s->s, slot, CLASS, 1, &got, &count), 0);
    assert_int_equal(count, 1);
    return le64_get(got.off);
}

/* A free block of some version: as a delete leaves it. */
static void make_dead(struct ts_store *s, uint64_t off, uint64_t version)
{
    struct pm_item_pm h = {.head = {.index = le32_make(1)}};

    h.head.meta = le64_make(pm_meta_make(version, PM_KIND_DEAD, CLASS));
    h.head.crc = le32_make(pm_object_crc(&h, sizeof(h), off, s->t->pool.crc_seed));
    h.head.word = le64_make(version);
    memcpy(pm_at(&s->t->pm, off), &h, sizeof(h));
    ts_pool_settle(s->t);
}

static void grant__bad_requests__are_refused(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    struct pm_lock_pm got;
    uint32_t count;

    (void)state;
    assert_int_equal(pm_heap_grant(s->s, 1, PM_CLASS_COUNT, 1, &got, &count), CAIRN_E_PROTOCOL);
    assert_int_equal(
        pm_heap_grant(s->s, 1, 14, 1, &got, &count), CAIRN_E_PROTOCOL); /* over 4 KiB */
    assert_int_equal(pm_heap_grant(s->s, 0, 1, 1, &got, &count), CAIRN_E_PROTOCOL);
    assert_int_equal(pm_heap_grant(s->s, 99, 1, 1, &got, &count), CAIRN_E_PROTOCOL);
    ts_store_delete(&s);
}

static void grant__until_full__every_block_once(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t seen[4096] = {0};
    struct pm_store_stats st;
    struct pm_lock_pm got[5];
    uint32_t total = 0, count;
    int rc;

    (void)state;
    for (;;) {
        rc = pm_heap_grant(s->s, (uint16_t)(1 + total % 3), CLASS, 5, got, &count);
        if (rc != 0)
            break;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t off = le64_get(got[i].off);

            assert_int_equal(pm_place_kind(&s->s->c, off), PM_KIND_ITEM);
            assert_int_equal(le64_get(got[i].base), 0);
            for (uint32_t k = 0; k < total; k++)
                assert_int_not_equal(seen[k], off);
            assert_true(pm_heap_is_granted(s->s, (uint16_t)(1 + total % 3), off) || i > 0);
            seen[total++] = off;
        }
    }
    assert_int_equal(rc, CAIRN_E_POOL_FULL);
    pm_store_stats(s->s, &st);
    assert_int_equal(total, st.class_[CLASS].chunks * PER_CHUNK);
    assert_int_equal(st.class_[CLASS].granted, total);
    assert_int_equal(st.grants, total);
    assert_true(st.grants_full >= 1);
    /* The index can still grow: the reserve. */
    assert_int_equal(st.chunks_free, pm_growth_reserve(s->s));
    assert_int_equal(pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, 0, 100), 0);
    ts_store_delete(&s);
}

static void release_slot__grants_of_that_slot__are_free_again(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t mine[4], other;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        mine[i] = grant_one(s, 1);
    other = grant_one(s, 2);
    for (uint32_t i = 0; i < 3; i++) /* T4: nothing comes back before */
        assert_true(grant_one(s, 3) != mine[i]);
    pm_heap_release_slot(s->s, 1);
    assert_false(pm_heap_is_granted(s->s, 1, mine[0]));
    assert_true(pm_heap_is_granted(s->s, 2, other));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(grant_one(s, 3), mine[i]); /* reused at once */
    ts_store_delete(&s);
}

static void return__is_a_set__twice_is_once(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t off = grant_one(s, 1);

    (void)state;
    pm_heap_return(s->s, off);
    pm_heap_return(s->s, off);
    pm_heap_free(s->s, off);
    assert_int_equal(grant_one(s, 2), off);
    assert_int_not_equal(grant_one(s, 3), off);
    /* Granted to slot 2 now: what the release of slot 1 repeats must not take it away. */
    pm_heap_free(s->s, off);
    pm_heap_release_slot(s->s, 1);
    assert_int_not_equal(grant_one(s, 3), off);
    ts_store_delete(&s);
}

static void survey__after_restart__finds_free_and_not_live(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    struct ts_place p;
    struct pm_store_stats st;

    (void)state;
    assert_int_equal(ts_store_put(s, 1, 0, 400), 0);
    assert_int_equal(ts_store_put(s, 1, 1, 400), 0);
    assert_int_equal(ts_store_del(s, 1, 1), 0);
    assert_int_equal(ts_store_lookup(s, 0, &p), TS_FOUND);
    ts_store_restart(s);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.class_[CLASS].free_known, 0);
    for (uint32_t i = 0; i < PER_CHUNK - 1; i++)
        assert_int_not_equal(grant_one(s, 1), p.item);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.surveys, 1);
    assert_int_equal(st.class_[CLASS].chunks, 1); /* the dead one was found: no second chunk yet */
    ts_store_delete(&s);
}

static void free__in_a_chunk_not_surveyed__is_not_handed_out_twice(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t seen[2 * PER_CHUNK], off;

    (void)state;
    off = grant_one(s, 1);
    make_dead(s, off, 5);
    ts_store_restart(s);
    pm_heap_free(s->s, off); /* T7: only a hint */
    for (uint32_t i = 0; i < 2 * PER_CHUNK; i++) {
        seen[i] = grant_one(s, 1);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(seen[i], seen[k]);
    }
    ts_store_delete(&s);
}

static void free__during_a_survey__is_found_once(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t off[PER_CHUNK], seen[PER_CHUNK];
    struct pm_store_stats st;

    (void)state;
    for (uint32_t i = 0; i < PER_CHUNK; i++) {
        off[i] = grant_one(s, 1);
        make_dead(s, off[i], 5);
    }
    ts_store_restart(s);
    s->s->class_[CLASS].wanted = true;
    assert_int_equal(pm_heap_survey_step(s->s, 3), 3);
    pm_heap_free(s->s, off[0]); /* behind the cursor: already there */
    pm_heap_free(s->s, off[7]); /* ahead: the survey comes by */
    for (uint32_t i = 0; i < PER_CHUNK; i++) {
        seen[i] = grant_one(s, 1);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(seen[i], seen[k]);
    }
    pm_store_stats(s->s, &st);
    assert_int_equal(st.class_[CLASS].chunks, 1);
    ts_store_delete(&s);
}

static void set_aside__before_and_after_the_survey__is_not_granted(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t first = grant_one(s, 1), second = grant_one(s, 1), got;

    (void)state;
    ts_store_restart(s);
    pm_heap_set_aside(s->s, first); /* T8 */
    pm_heap_set_aside(s->s, first);
    pm_heap_set_aside(s->s, first + 8); /* no block: ignored */
    pm_heap_set_aside(s->s, UINT64_MAX);
    got = grant_one(s, 1);
    assert_int_not_equal(got, first);
    if (got != second)
        pm_heap_set_aside(s->s, second);
    for (uint32_t i = 0; i < 2 * PER_CHUNK; i++) {
        got = grant_one(s, 2);
        assert_true(got != first && got != second);
    }
    pm_heap_release_slot(s->s, 2); /* not a grant */
    assert_false(pm_heap_is_granted(s->s, 0, first));
    pm_heap_return(s->s, first);
    for (uint32_t i = 0; i < 200 && got != first; i++)
        got = grant_one(s, 2);
    assert_int_equal(got, first);
    ts_store_delete(&s);
}

static void grant__version_near_its_end__is_left_out(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t off = grant_one(s, 1), good = grant_one(s, 1);
    bool seen = false;

    (void)state;
    make_dead(s, off, PM_VERSION_MAX - PM_VERSION_MARGIN); /* T3 */
    make_dead(s, good, PM_VERSION_MAX - PM_VERSION_MARGIN - 1);
    ts_store_restart(s);
    for (uint32_t i = 0; i < 3 * PER_CHUNK; i++) {
        uint64_t got = grant_one(s, 1);

        assert_int_not_equal(got, off);
        seen = seen || got == good;
    }
    assert_true(seen);
    ts_store_delete(&s);
}

static void free__version_near_its_end__block_is_retired(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t off = grant_one(s, 1);

    (void)state;
    make_dead(s, off, PM_VERSION_MAX - 3); /* T3 */
    pm_heap_consume(s->s, off);
    pm_heap_free(s->s, off);
    for (uint32_t i = 0; i < PER_CHUNK; i++)
        assert_int_not_equal(grant_one(s, 1), off);
    ts_store_delete(&s);
}

static void grant__corrupt_or_locked_header__is_left_out(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t off[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        off[i] = grant_one(s, 1);
        make_dead(s, off[i], 5);
    }
    pm_store64(&s->t->pm, off[0] + 32, 1); /* crc */
    pm_store64(&s->t->pm, off[1], 4);      /* released half */
    pm_store64(&s->t->pm, off[2], pm_word_make_locked(s->t->pool.tag, 1, 5));
    ts_store_restart(s);
    for (uint32_t i = 0; i < 3 * PER_CHUNK; i++) {
        uint64_t got = grant_one(s, 1);

        assert_true(got != off[0] && got != off[1] && got != off[2]);
    }
    ts_store_delete(&s);
}

static void hints__step__are_stored(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    uint64_t first_chunk, off = 0;
    struct pm_chunk_pm d;

    (void)state;
    for (uint32_t i = 0; i < 48; i++) { /* class 0: 64 blocks in a chunk */
        struct pm_lock_pm got;
        uint32_t count;

        assert_int_equal(pm_heap_grant(s->s, 1, 0, 1, &got, &count), 0);
        off = le64_get(got.off);
    }
    first_chunk = off >> s->s->c.shift;
    while (pm_growth_step(s->s, 10) != 0)
        ;
    memcpy(&d, pm_at(&s->t->pm, pm_chunk_desc_off(&s->s->c, (uint32_t)first_chunk)), sizeof(d));
    assert_int_equal(le16_get(d.free_hint), 1);
    assert_true(pm_chunk_is_good(&s->s->c, &d, (uint32_t)first_chunk));
    assert_true(s->t->step_count[CN_STEP_h_hint] > 0);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grant__bad_requests__are_refused),
        cmocka_unit_test(grant__until_full__every_block_once),
        cmocka_unit_test(release_slot__grants_of_that_slot__are_free_again),
        cmocka_unit_test(return__is_a_set__twice_is_once),
        cmocka_unit_test(survey__after_restart__finds_free_and_not_live),
        cmocka_unit_test(free__in_a_chunk_not_surveyed__is_not_handed_out_twice),
        cmocka_unit_test(free__during_a_survey__is_found_once),
        cmocka_unit_test(set_aside__before_and_after_the_survey__is_not_granted),
        cmocka_unit_test(grant__version_near_its_end__is_left_out),
        cmocka_unit_test(free__version_near_its_end__block_is_retired),
        cmocka_unit_test(grant__corrupt_or_locked_header__is_left_out),
        cmocka_unit_test(hints__step__are_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
