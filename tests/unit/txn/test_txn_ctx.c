/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a context's arena is laid out as the fabric wants it, and it waits as the pace says.
 * Method: the fake fabric refuses local memory of the wrong kind, and counts polls and sleeps; its
 * time is virtual.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

static struct ts_fs fs;

static int setup(void **state)
{
    (void)state;
    ts_fs_open(&fs, 2, PM_BUCKET_SLOTS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_fs_close(&fs);
    return 0;
}

static void arena__kinds__objects_first_then_rings(void **state)
{
    uintptr_t base = (uintptr_t)fs.fake.arena, ring = base + fs.fake.arena_size - fs.fake.log_size;
    uintptr_t end = base + fs.fake.arena_size;

    (void)state;
    assert_int_equal(fs.fake.arena_size % 64, 0);
    assert_int_equal(fs.fake.log_size % 64, 0);
    assert_true(fs.fake.log_size >= 2 * (TXN_STAGING_SIZE + PM_RECORD_VOID_SIZE + 64));
    const struct cairn_tx *tx = &fs.ctx->tx[0];
    assert_true((uintptr_t)tx->scratch >= base);
    assert_true((uintptr_t)tx->scratch + TXN_SCRATCH_SIZE <= ring);
    assert_true((uintptr_t)(tx->words + TXN_LOCKS_MAX + CAIRN_TX_KEYS_MAX) <= ring);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true((uintptr_t)fs.ctx->peer[i].position >= ring);
        assert_true((uintptr_t)(fs.ctx->peer[i].position + 1) <= end);
        assert_true((uintptr_t)fs.ctx->peer[i].line >= ring);
        assert_true((uintptr_t)fs.ctx->peer[i].line + PM_RECORD_VOID_SIZE <= end);
        assert_true((uintptr_t)fs.ctx->peer[i].staging >= ring);
        assert_true((uintptr_t)fs.ctx->peer[i].staging + TXN_STAGING_SIZE <= end);
    }
}

/* A get at a connected node that has fallen silent: polls and sleeps until the deadline. */
static void wait_in_vain(const struct cn_pace *pace, uint64_t *ret_polls, uint64_t *ret_sleeps)
{
    struct cairn_tx *tx;
    char key[16], buf[64];
    size_t size;

    ts_fs_key(&fs, 1, 1, key);
    (void)ts_fs_add(&fs, key, "value");
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    assert_int_equal(cairn_get(tx, 1, key, strlen(key), buf, sizeof(buf), &size), 0);
    cairn_abort(tx);
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    fs.cluster->pace = *pace;
    fs.cluster->options.op_timeout_ms = 1;
    fs.fake.node[0].silent = true;
    *ret_polls = fs.fake.polls;
    *ret_sleeps = fs.fake.sleeps;
    assert_int_equal(
        cairn_get(tx, 1, key, strlen(key), buf, sizeof(buf), &size), CAIRN_E_TIMEOUT);
    *ret_polls = fs.fake.polls - *ret_polls;
    *ret_sleeps = fs.fake.sleeps - *ret_sleeps;
    fs.fake.node[0].silent = false;
    cairn_abort(tx);
    assert_int_equal(fs.ctx->op_count, 0);
}

static void wait__poll__never_sleeps_and_ends_at_the_deadline(void **state)
{
    const struct cn_pace pace = {.mode = CN_PACE_POLL, .threshold = 700};
    uint64_t polls, sleeps;

    (void)state;
    wait_in_vain(&pace, &polls, &sleeps);
    assert_int_equal(sleeps, 0);
    assert_true(polls > 10000); /* virtual time goes on by looks at the clock alone */
}

static void wait__event__sleeps_at_once(void **state)
{
    const struct cn_pace pace = {.mode = CN_PACE_EVENT, .threshold = 700, .spins = 5000};
    uint64_t polls, sleeps;

    (void)state;
    wait_in_vain(&pace, &polls, &sleeps);
    assert_in_range(sleeps, 1, 20);
    assert_true(polls < 100);
}

static void wait__adaptive__polls_for_its_spins_then_sleeps(void **state)
{
    const struct cn_pace pace = {.mode = CN_PACE_ADAPTIVE, .threshold = 700, .spins = 5000};
    uint64_t polls, sleeps;

    (void)state;
    wait_in_vain(&pace, &polls, &sleeps);
    assert_in_range(sleeps, 1, 20);
    assert_in_range(polls, 5000, 20 * 5100);
}

static void wait__adaptive_with_much_outstanding__polls_on(void **state)
{
    const struct cn_pace pace = {.mode = CN_PACE_ADAPTIVE, .threshold = 0, .spins = 0};
    uint64_t polls, sleeps;

    (void)state;
    wait_in_vain(&pace, &polls, &sleeps); /* one READ is more than nothing */
    assert_int_equal(sleeps, 0);
    assert_true(polls > 10000);
}

/* A pause between two tries is of microseconds, in which nobody can sleep and wake up. */
static void pause__short_while_adaptive__polls(void **state)
{
    static const struct {
        enum cn_pace_mode mode;
        uint64_t ns;
        bool sleeps;
    } c[] = {
        {CN_PACE_ADAPTIVE, 5000, false},
        {CN_PACE_ADAPTIVE, 100000000, true},
        {CN_PACE_EVENT, 5000, true},
        {CN_PACE_POLL, 5000, false},
    };

    (void)state;
    for (unsigned i = 0; i < CN_ARRAY_SIZE(c); i++) {
        fs.cluster->pace = (struct cn_pace){.mode = c[i].mode, .threshold = 700, .spins = 5000};
        uint64_t sleeps = fs.fake.sleeps, polls = fs.fake.polls, until = txn_now(fs.ctx) + c[i].ns;
        txn_pause(fs.ctx, until);
        assert_true(txn_now(fs.ctx) >= until);
        assert_true(fs.fake.polls > polls);
        assert_int_equal(fs.fake.sleeps > sleeps, c[i].sleeps);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(arena__kinds__objects_first_then_rings),
        CASE(wait__poll__never_sleeps_and_ends_at_the_deadline),
        CASE(wait__event__sleeps_at_once),
        CASE(wait__adaptive__polls_for_its_spins_then_sleeps),
        CASE(wait__adaptive_with_much_outstanding__polls_on),
        CASE(pause__short_while_adaptive__polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
