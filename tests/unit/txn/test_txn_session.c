/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a caller learns of a node that cannot be reached or is lost: the code and the words of
 * the fabric come through; and a node whose writes are durable in another way than declared gets no
 * byte. Method: the fake fabric, whose nodes fail as told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/support/ts_fake_store.h"

#define REMEDY "the cable is out; plug it in"

static struct ts_fs fs;

static int setup(void **state)
{
    (void)state;
    ts_fs_open(&fs, 1, PM_BUCKET_SLOTS);
    (void)ts_fs_add(&fs, "a", "value");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_fs_close(&fs);
    return 0;
}

static int get(void)
{
    struct cairn_tx *tx;
    char buf[64];
    size_t size;
    int rc = cairn_begin(fs.ctx, &tx);

    if (rc != 0)
        return rc;
    rc = cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size);
    char text[512];
    (void)snprintf(text, sizeof(text), "%s", cairn_last_error());
    cairn_abort(tx);
    return rc == 0 ? 0 : cn_fail(rc, "%s", text);
}

static void expect(int code, const char *words)
{
    int rc = get();

    if (rc != code)
        fail_msg("%s instead of %s: %s", cairn_error_name(rc), cairn_error_name(code),
            cairn_last_error());
    assert_non_null(strstr(cairn_last_error(), "node 1 (fake1)"));
    if (strstr(cairn_last_error(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, cairn_last_error());
}

/* Codes that come through as they are. */
static const int distinct[] = {CAIRN_E_TIMEOUT, CAIRN_E_UNREACHABLE, CAIRN_E_REJECTED,
    CAIRN_E_WIRE_VERSION, CAIRN_E_MEMLOCK, CAIRN_E_NO_ATOMICS, CAIRN_E_NO_DEVICE, CAIRN_E_FABRIC,
    CAIRN_E_FENCED, CAIRN_E_NODE_DOWN};
/* Others are NODE_DOWN. */
static const int folded[] = {-ENOENT, -ECONNREFUSED, -EACCES, CAIRN_E_LIMIT, CAIRN_E_AGAIN};

static void connect__fabric_fails__its_code_and_words(void **state)
{
    struct ts_fake_node *node = &fs.fake.node[0];

    (void)state;
    node->fail_text = REMEDY;
    for (size_t i = 0; i < CN_ARRAY_SIZE(distinct); i++) {
        node->fail = distinct[i];
        expect(distinct[i], REMEDY);
    }
    for (size_t i = 0; i < CN_ARRAY_SIZE(folded); i++) {
        node->fail = folded[i];
        expect(CAIRN_E_NODE_DOWN, REMEDY);
    }
    node->fail = 0;
    assert_int_equal(get(), 0); /* and it recovers */
}

static void connect__fabric_fails_without_words__our_own(void **state)
{
    struct ts_fake_node *node = &fs.fake.node[0];

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(distinct); i++) {
        node->fail = distinct[i];
        expect(distinct[i],
            distinct[i] == CAIRN_E_TIMEOUT ? "no answer within" : cairn_error_name(distinct[i]));
    }
    node->fail = -EACCES;
    expect(CAIRN_E_NODE_DOWN, "run as the user that runs the node");
    node->fail = -ENOENT;
    expect(CAIRN_E_NODE_DOWN, "is it running");
}

static void lost__in_a_transaction__its_code_and_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(distinct) + CN_ARRAY_SIZE(folded); i++) {
        bool own = i < CN_ARRAY_SIZE(distinct);
        int status = own ? distinct[i] : folded[i - CN_ARRAY_SIZE(distinct)];
        struct cairn_tx *tx;
        char buf[64];
        size_t size;
        assert_int_equal(get(), 0);
        assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
        ts_fake_down_text(&fs.fake, 1, status, REMEDY);
        int rc = cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size);
        assert_int_equal(rc, own ? status : CAIRN_E_NODE_DOWN);
        if (strstr(cairn_last_error(), "connection lost: " REMEDY) == NULL)
            fail_msg("%s: %s", cairn_error_name(status), cairn_last_error());
        /* such a failure dooms the transaction */
        assert_int_equal(cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size), CAIRN_E_STATE);
        cairn_abort(tx);
    }
}

static int stay_down(struct ts_fake *fake, const struct ts_fake_post *post)
{
    (void)fake;
    (void)post;
    return CAIRN_E_NODE_DOWN;
}

static void lost__a_post_meets_it_first__words_follow(void **state)
{
    struct cairn_tx *tx;
    char buf[64];
    size_t size;

    (void)state;
    assert_int_equal(get(), 0);
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    fs.fake.on_post = stay_down; /* the post fails without words, and the event comes behind it */
    ts_fake_down_text(&fs.fake, 1, CAIRN_E_FABRIC, REMEDY);
    ts_fake_conn(&fs.fake, 1)->down = 0;
    assert_int_equal(cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), REMEDY));
    fs.fake.on_post = NULL;
    cairn_abort(tx);
}

static void resolve__device_missing__not_tried_again(void **state)
{
    struct cairn_tx *tx;
    enum cairn_outcome outcome;
    char token[CAIRN_TOKEN_SIZE];

    (void)state;
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    assert_int_equal(cairn_put(tx, 1, "a", 1, "new", 3), 0);
    assert_int_equal(cairn_tx_token(tx, token), 0);
    cairn_abort(tx);
    ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
    fs.fake.node[0].fail = CAIRN_E_NO_DEVICE;
    uint32_t connects = fs.fake.node[0].connects;
    assert_int_equal(cairn_resolve(fs.ctx, token, &outcome), CAIRN_E_NO_DEVICE);
    assert_in_range(fs.fake.node[0].connects - connects, 1, 2);
    fs.fake.node[0].fail = CAIRN_E_REJECTED; /* this may pass: asked until the deadline */
    connects = fs.fake.node[0].connects;
    assert_int_equal(cairn_resolve(fs.ctx, token, &outcome), CAIRN_E_REJECTED);
    assert_true(fs.fake.node[0].connects > connects + 5);
}

/* ---- a full queue of messages ---- */

static uint32_t full; /* sends that find no room */

static int no_room(struct ts_fake *fake, const struct ts_fake_post *post)
{
    (void)fake;
    if (post->op != TS_FAKE_SEND || full == 0)
        return 0;
    full--;
    return cn_fail(CAIRN_E_AGAIN, "the queue is full");
}

static void send__queue_full__waits_for_room(void **state)
{
    struct cairn_tx *tx;
    enum cairn_outcome outcome;

    (void)state;
    full = 20;
    fs.fake.on_post = no_room;
    assert_int_equal(get(), 0); /* asks for the table's root */
    assert_int_equal(full, 0);
    full = 20;
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    assert_int_equal(cairn_put(tx, 1, "new", 3, "value", 5), 0); /* asks for a block */
    assert_int_equal(cairn_commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(full, 0);
}

static void send__queue_stays_full__times_out(void **state)
{
    (void)state;
    fs.cluster->options.op_timeout_ms = 50;
    full = UINT32_MAX;
    fs.fake.on_post = no_room;
    expect(CAIRN_E_TIMEOUT, "does not take table in time");
    full = 0;
    assert_int_equal(get(), 0);
}

/* ---- durability ---- */

static void durability__declared__must_be_what_the_node_states(void **state)
{
    struct ts_fake_node *node = &fs.fake.node[0];

    (void)state;
    for (int declared = TXN_PERSISTENCE_AUTO; declared <= TXN_PERSISTENCE_EMULATED; declared++) {
        for (int stated = RD_DURABILITY_EMULATED; stated <= RD_DURABILITY_EADR; stated++) {
            enum txn_persistence persistence = (enum txn_persistence)declared;
            fs.config.node[0].persistence = persistence;
            node->welcome.durability = (uint8_t)stated;
            uint32_t posts = fs.fake.post_count;
            int rc = get();
            bool fits = declared == TXN_PERSISTENCE_AUTO ||
                (int)txn_persistence_durability(persistence) == stated;
            assert_int_equal(rc, fits ? 0 : CAIRN_E_DURABILITY);
            if (fits) {
                ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
                continue;
            }
            assert_int_equal(fs.fake.post_count, posts); /* not a byte, not even a message */
            assert_non_null(strstr(cairn_last_error(), "node 1 (fake1)"));
            assert_non_null(
                strstr(cairn_last_error(), rd_durability_name((enum rd_durability)stated)));
            assert_non_null(strstr(cairn_last_error(), txn_persistence_name(persistence)));
        }
    }
}

static void durability__ring_of_another_mode__refused(void **state)
{
    struct ts_fake_node *node = &fs.fake.node[0];

    (void)state;
    node->welcome.durability = RD_DURABILITY_APM;
    node->ring_durability = RD_DURABILITY_EMULATED;
    expect(CAIRN_E_DURABILITY, "\"apm\"");
    assert_non_null(strstr(cairn_last_error(), "\"emulated\""));
    assert_int_equal(fs.fake.post_count, 0);
    node->ring_durability = RD_DURABILITY_APM;
    assert_int_equal(get(), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(connect__fabric_fails__its_code_and_words),
        CASE(connect__fabric_fails_without_words__our_own),
        CASE(lost__in_a_transaction__its_code_and_words),
        CASE(lost__a_post_meets_it_first__words_follow),
        CASE(resolve__device_missing__not_tried_again),
        CASE(send__queue_full__waits_for_room),
        CASE(send__queue_stays_full__times_out),
        CASE(durability__declared__must_be_what_the_node_states),
        CASE(durability__ring_of_another_mode__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
