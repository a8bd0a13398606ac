/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: records, flushes, marks, ring space and sequences: rules R1, R3, R4, R15 as seen on the
 * wire; outcomes when connections break at each step. Method: real context over the fake fabric
 * with two nodes; the test decodes what lies in the rings and breaks connections from the hook that
 * sees every post.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

#define RING 4096u
#define RING_SIZE 16384u

static struct ts_fs fs;
static char ka[16], kb[16]; /* a key of node 1 and one of node 2 */
static uint64_t ia, ib;

static int setup(void **state)
{
    (void)state;
    ts_fs_open(&fs, 2, 56);
    ts_fs_key(&fs, 1, 0, ka);
    ts_fs_key(&fs, 2, 0, kb);
    ia = ts_fs_add(&fs, ka, "value a");
    ib = ts_fs_add(&fs, kb, "value b");
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    ts_fs_close(&fs);
    return 0;
}

static struct cairn_tx *begin(void)
{
    struct cairn_tx *tx = NULL;

    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    return tx;
}
static void put(struct cairn_tx *tx, const char *key, const char *value)
{
    assert_int_equal(cairn_put(tx, 1, key, strlen(key), value, strlen(value)), 0);
}
static int commit(struct cairn_tx *tx, enum cairn_outcome *outcome)
{
    *outcome = CAIRN_OUTCOME_NONE;
    return cairn_commit(tx, outcome);
}
static uint64_t word(uint16_t node, uint64_t off)
{
    return le64toh(*ts_fs_word(&fs, node, off));
}

/* Do as a node that has applied everything: words to base + 1, bodies to match, position to the
 * end. */
static void apply(
    uint16_t node, uint64_t off, const char *key, const char *value, uint64_t seq, uint64_t end)
{
    ts_fs_item(&fs, node, off, pm_word_version(word(node, off)) + 1, key, value);
    *ts_fs_word(&fs, node, RING + 64) = htole64(seq);
    *ts_fs_word(&fs, node, RING + 72) = htole64(end);
}

static struct pm_place place(uint16_t node, uint64_t log_off)
{
    const struct txn_peer *p = &fs.ctx->peer[node - 1];

    return (struct pm_place){.pool = p->pool,
        .slot = p->slot,
        .epoch = p->epoch,
        .nonce = p->nonce,
        .log_off = log_off};
}

static uint8_t copy[RING_SIZE];
/* The record at a log offset; aborts the test if it is not valid there. */
static void load(uint16_t node, uint64_t log_off, struct pm_record *r)
{
    const uint8_t *at = fs.fake.node[node - 1].memory + RING + 4096 + log_off % RING_SIZE;
    struct pm_place p = place(node, log_off);
    uint32_t n = pm_record_peek(at, RING_SIZE - log_off % RING_SIZE);

    assert_int_not_equal(n, 0);
    memcpy(copy, at, n);
    int rc = pm_record_check(copy, n, &p, node, r);
    if (rc != 0)
        fail_msg("%s", cairn_last_error());
}

static void put_again(const char *value)
{
    enum cairn_outcome outcome;
    struct cairn_tx *tx = begin();
    uint64_t seq = fs.ctx->peer[0].seq + 1;

    put(tx, ka, value);
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    apply(1, ia, ka, value, seq, fs.ctx->peer[0].log_off);
}

/* With something in front that is on its way still, so that it does not begin anew. */
static void commit__record_ends_with_the_staging__next_at_its_start(void **state)
{
    (void)state;
    put_again("new a");
    struct txn_peer *peer = &fs.ctx->peer[0];
    uint32_t size = fs.ctx->tx[0].rec[0].size;
    peer->staging_off = TXN_STAGING_SIZE - size;
    peer->staging_head = peer->staging_tail + 64;
    put_again("newer");
    assert_int_equal(peer->staging_off, 0);
    peer->staging_head = peer->staging_tail + 64;
    put_again("last.");
    assert_int_equal(peer->staging_off, size);
    assert_ptr_equal(fs.ctx->tx[0].rec[0].bytes, peer->staging);
    peer->staging_off = TXN_STAGING_SIZE - size + 64;
    peer->staging_head = peer->staging_tail + 64;
    put_again("one..");
    assert_ptr_equal(fs.ctx->tx[0].rec[0].bytes, peer->staging);
}

static void commit__two_nodes__records_flushes_then_marks(void **state)
{
    enum cairn_outcome outcome;
    struct pm_record r;
    struct pm_record_write w;
    uint32_t last_flush = 0, first_mark = UINT32_MAX, last_cas = 0, first_write = UINT32_MAX;

    (void)state;
    struct cairn_tx *tx = begin();
    put(tx, ka, "new a");
    put(tx, kb, "new b");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    for (uint32_t i = 0; i < fs.fake.post_count; i++) {
        switch (fs.fake.post[i].op) {
        case TS_FAKE_CAS: last_cas = i; break;
        case TS_FAKE_WRITE:
            if (first_write == UINT32_MAX)
                first_write = i;
            break;
        case TS_FAKE_FLUSH: last_flush = i; break;
        case TS_FAKE_MARK:
            if (first_mark == UINT32_MAX)
                first_mark = i;
            break;
        default: break;
        }
    }
    assert_true(last_cas < first_write && last_flush < first_mark); /* R1, R3 */
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_FLUSH), 2);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 2);
    for (uint16_t node = 1; node <= 2; node++) {
        uint32_t cursor;
        load(node, 0, &r);
        assert_int_equal(r.type, PM_RECORD_TX);
        assert_int_equal(r.seq, 1);
        assert_int_equal(r.participant_count, 2);
        assert_int_equal(r.lock_count, 1);
        assert_int_equal(r.block_count, 0);
        assert_int_equal(le64_get(r.lock[0].off), node == 1 ? ia : ib);
        assert_int_equal(le64_get(r.lock[0].base), 5);
        cursor = r.writes_off;
        assert_true(pm_record_next_write(&r, &cursor, &w));
        assert_int_equal(w.op, PM_OP_UPDATE);
        assert_int_equal(w.key_base, 5);
        assert_memory_equal(w.value, node == 1 ? "new a" : "new b", 5);
        assert_false(pm_record_next_write(&r, &cursor, &w));
        assert_int_equal(
            le64_get(r.head->mark), pm_word_value(0x1234567 + node - 1u, 1, PM_WORD_MARK));
        assert_int_equal(word(node, node == 1 ? ia : ib), pm_word_make_locked(8, 3, 5));
    }
    assert_int_equal(fs.fake.step_count[CN_STEP_c_log], 2);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_mark], 2);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_flushed], 1);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_marked], 1);
}

/* One participant: a seal in place of the mark; the next record calls it done. */
static void commit__one_node_twice__sealed_and_the_second_calls_the_first_done(void **state)
{
    enum cairn_outcome outcome;
    struct pm_record first, second;
    char key[16];

    (void)state;
    ts_fs_key(&fs, 1, 50, key);
    (void)ts_fs_add(&fs, key, "value");
    struct cairn_tx *tx = begin();
    put(tx, ka, "new a");
    assert_int_equal(commit(tx, &outcome), 0);
    load(1, 0, &first);
    assert_int_equal(first.done, 0);
    uint64_t next = first.size;
    tx = begin();
    put(tx, key, "other");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    load(1, next, &second);
    assert_int_equal(second.seq, 2);
    assert_int_equal(second.done, 1);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 0);
}

static void commit__insert_move_delete__ops_and_blocks(void **state)
{
    enum cairn_outcome outcome;
    struct pm_record r;
    struct pm_record_write w;
    static char big[2000];
    char key[16], gone[16];
    unsigned seen = 0;

    (void)state;
    ts_fs_key(&fs, 1, 50, key);
    ts_fs_key(&fs, 1, 51, gone);
    uint64_t ig = ts_fs_add(&fs, gone, "value");
    struct cairn_tx *tx = begin();
    put(tx, key, "inserted");
    assert_int_equal(
        cairn_put(tx, 1, ka, strlen(ka), big, sizeof(big)), 0); /* does not fit its block */
    assert_int_equal(cairn_delete(tx, 1, gone, strlen(gone)), 0);
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    load(1, 0, &r);
    assert_int_equal(r.write_count, 3);
    assert_int_equal(r.lock_count, 3); /* the bucket once, two items */
    assert_int_equal(r.block_count, 2);
    for (uint32_t cursor = r.writes_off; pm_record_next_write(&r, &cursor, &w);) {
        seen |= 1u << w.op;
        assert_int_equal(w.bucket, TS_BUCKETS);
        assert_int_equal(w.block != 0, w.op != PM_OP_DELETE);
        if (w.op == PM_OP_DELETE)
            assert_int_equal(w.item, ig);
        if (w.op == PM_OP_MOVE)
            assert_int_equal(w.item, ia);
    }
    assert_int_equal(seen, 1u << PM_OP_INSERT | 1u << PM_OP_MOVE | 1u << PM_OP_DELETE);
}

static void commit__bucket_full__asks_room_before_locking(void **state)
{
    enum cairn_outcome outcome;
    char key[16];

    (void)state;
    fs.ctx->index[0].known = false;
    struct cairn_tx *tx = begin();
    uint64_t slots[56];
    for (uint32_t i = 0; i < 56; i++)
        slots[i] = pm_slot_ref_pack(TS_ITEMS + 1024 * i, TS_CLASS, (uint16_t)(i + 1));
    ts_fs_bucket(&fs, 1, 0, 0, 0, 9, slots, 56);
    ts_fs_key(&fs, 1, 60, key);
    put(tx, key, "v");
    fs.room_status = CAIRN_E_POOL_FULL;
    assert_int_equal(commit(tx, &outcome), CAIRN_E_POOL_FULL);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(fs.rooms, 1);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 0);
    fs.room_status = 0; /* says yes, and it stays full: bounded */
    tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_in_range(fs.rooms, 2, 1 + TXN_ROOM_TRIES_MAX);
}

/* The bucket is locked for a key that is not written, and others go into it on the cache's word:
 * they must not overfill it, for its node would refuse the record after the commit. */
static void commit__held_bucket_and_remembered_keys__never_overfilled(void **state)
{
    enum cairn_outcome outcome;
    char key[3][16], buf[8];
    uint64_t slots[56];
    size_t size;

    (void)state;
    for (uint32_t i = 0; i < 55; i++)
        slots[i] = pm_slot_ref_pack(TS_ITEMS + 1024 * i, TS_CLASS, (uint16_t)(i + 1));
    ts_fs_bucket(&fs, 1, 0, 0, 0, 9, slots, 55);
    struct cairn_tx *tx = begin();
    for (uint32_t i = 0; i < 3; i++) {
        ts_fs_key(&fs, 1, 60 + i, key[i]);
        assert_int_equal(
            cairn_get(tx, 1, key[i], strlen(key[i]), buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    }
    assert_int_equal(commit(tx, &outcome), 0);
    for (uint32_t writes = 1; writes <= 2; writes++) {
        tx = begin();
        assert_int_equal(
            cairn_get_for_update(tx, 1, key[0], strlen(key[0]), buf, sizeof(buf), &size),
            CAIRN_E_NOT_FOUND);
        for (uint32_t i = 3 - writes; i < 3; i++)
            put(tx, key[i], "v");
        uint64_t logged = fs.ctx->peer[0].log_off;
        assert_int_equal(commit(tx, &outcome), 0);
        bool fits = writes == 1;
        assert_int_equal(outcome, fits ? CAIRN_OUTCOME_COMMITTED : CAIRN_OUTCOME_ABORTED);
        assert_int_equal(fs.ctx->peer[0].log_off != logged, fits);
        assert_int_equal(fs.rooms, fits ? 0 : 1);
        *ts_fs_word(&fs, 1, TS_BUCKETS) = htole64(9); /* as if nothing had been applied */
        for (uint32_t i = 0; i < 3; i++) {
            struct txn_hint hint = {.bucket = TS_BUCKETS, .bucket_version = 9};
            txn_cache_put(fs.cluster->cache, 1, fs.ctx->peer[0].incarnation, 1,
                ts_fs_hash(&fs, 1, key[i]), &hint);
        }
    }
}

static void commit__no_block__pool_full_before_any_lock(void **state)
{
    enum cairn_outcome outcome;
    char key[16];

    (void)state;
    ts_fs_key(&fs, 1, 60, key);
    fs.grant_status = CAIRN_E_POOL_FULL;
    struct cairn_tx *tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), CAIRN_E_POOL_FULL);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 0);
    fs.grant_status = CAIRN_E_AGAIN;
    tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), CAIRN_E_TIMEOUT);
    fs.grant_status = 0;
    tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
}

static void (*answer_all)(struct ts_fake *fake, struct ts_fake_conn *c,
    const struct rd_message_wire *head, const void *body);
static void answer_no_grant(struct ts_fake *fake, struct ts_fake_conn *c,
    const struct rd_message_wire *head, const void *body)
{
    if (le16_get(head->type) != RD_MSG_GRANT)
        answer_all(fake, c, head, body);
}

/* A node with small chunks has no such block, and would never have one: nobody is asked. */
static void commit__block_larger_than_a_chunk__too_large_before_any_lock(void **state)
{
    enum cairn_outcome outcome;
    char key[16], value[5000];

    (void)state;
    memset(value, 'v', sizeof(value));
    ts_fs_key(&fs, 1, 7, key);
    struct cairn_tx *tx = begin();
    put(tx, ka, "connects");
    assert_int_equal(commit(tx, &outcome), 0);
    fs.ctx->peer[0].chunk_shift = 12;
    fs.fake.post_count = 0;
    tx = begin();
    int rc = cairn_put(tx, 1, key, strlen(key), value, sizeof(value));
    if (rc == 0)
        rc = commit(tx, &outcome);
    else
        cairn_abort(tx);
    assert_int_equal(rc, CAIRN_E_TX_SIZE);
    assert_non_null(strstr(cairn_last_error(), "chunks of 4096"));
    assert_int_equal(0, ts_fake_count(&fs.fake, TS_FAKE_CAS));
    assert_int_equal(0, ts_fake_count(&fs.fake, TS_FAKE_SEND));
}

/* A grant that is never answered costs its call the time-out, not the context its inserts. */
static void commit__grant_not_answered__timeout_then_works_again(void **state)
{
    enum cairn_outcome outcome;
    char key[16];

    (void)state;
    ts_fs_key(&fs, 1, 60, key);
    answer_all = fs.fake.on_message;
    fs.fake.on_message = answer_no_grant;
    struct cairn_tx *tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), CAIRN_E_TIMEOUT);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    fs.fake.on_message = answer_all;
    tx = begin();
    put(tx, key, "v");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
}

/* ---- ring space ---- */

static void commit__many__wrap_with_pads_and_fit(void **state)
{
    enum cairn_outcome outcome;
    static char value[900];
    uint64_t pads = 0;

    (void)state;
    memset(value, 'v', sizeof(value) - 1);
    for (uint32_t i = 0; i < 60; i++) {
        struct pm_record r;
        const struct txn_peer *p = &fs.ctx->peer[0];
        struct cairn_tx *tx = begin();
        value[100 + i * 13] = 0; /* lengths differ */
        put(tx, ka, value);
        assert_int_equal(commit(tx, &outcome), 0);
        assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
        value[100 + i * 13] = 'v';
        uint64_t off = tx->rec[0].off;
        load(1, off, &r);
        assert_int_equal(r.seq, i + 1);
        assert_true(off % RING_SIZE + r.size <= RING_SIZE);
        pads += off % RING_SIZE == 0 && off != 0;
        apply(1, ia, ka, "v", i + 1, p->log_off);
    }
    assert_true(pads >= 1);
}

/* From half of the window on the position is read along with a record; what was read is taken with
 * the next one, so that a node which keeps up is asked once per half window. */
static void commit__node_keeps_up__position_read_once_per_half_window(void **state)
{
    const uint32_t commits = 32;
    enum cairn_outcome outcome;
    uint32_t reads = 0;

    (void)state;
    for (uint32_t i = 1; i <= commits; i++) {
        struct cairn_tx *tx = begin();
        put(tx, ka, "v");
        assert_int_equal(commit(tx, &outcome), 0);
        assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
        apply(1, ia, ka, "v", fs.ctx->peer[0].seq, fs.ctx->peer[0].log_off);
    }
    for (uint32_t i = 0; i < fs.fake.post_count; i++)
        reads += fs.fake.post[i].op == TS_FAKE_READ && fs.fake.post[i].remote == RING + 64;
    assert_in_range(reads, 1, 2 * commits / fs.ctx->peer[0].window + 1);
}

/* One participant: no mark; the record is built and flushed as any other. */
static void commit__one_node__no_mark(void **state)
{
    enum cairn_outcome outcome;
    struct pm_record r;

    (void)state;
    struct cairn_tx *tx = begin();
    put(tx, ka, "new a");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_FLUSH), 1);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 0);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_flushed], 1);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_mark], 0);
    load(1, 0, &r);
    assert_int_equal(r.participant_count, 1);
    assert_int_not_equal(
        le64_get(r.head->mark), pm_word_value(fs.ctx->peer[0].nonce, 1, PM_WORD_MARK));
}

static void commit__position_stays__ring_full_and_nothing_logged(void **state)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_COMMITTED;
    int rc = 0;
    uint32_t commits = 0;

    (void)state;
    while (rc == 0 && commits < 100) { /* applied, but the position is not persisted */
        struct cairn_tx *tx = begin();
        put(tx, ka, "v");
        rc = commit(tx, &outcome);
        if (rc == 0) {
            assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
            commits++;
            ts_fs_item(&fs, 1, ia, pm_word_version(word(1, ia)) + 1, ka, "v");
        }
    }
    assert_int_equal(rc, CAIRN_E_RING_FULL);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(commits, 8); /* the window */
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_WRITE), 8);
    assert_false(pm_word_locked_bit(word(1, ia)));
    *ts_fs_word(&fs, 1, RING + 64) = htole64(99); /* ahead of what was logged: a lie */
    struct cairn_tx *tx = begin();
    put(tx, ka, "v");
    assert_int_equal(commit(tx, &outcome), CAIRN_E_PROTOCOL);
    *ts_fs_word(&fs, 1, RING + 64) = htole64(3);
    tx = begin();
    put(tx, ka, "v");
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
}

/* ---- connections that break ---- */

static enum ts_fake_op break_op;
static uint16_t break_node;
static uint32_t break_after;
static int break_now(struct ts_fake *fake, const struct ts_fake_post *post)
{
    if (break_after == 0 || post->op != break_op || post->node != break_node || --break_after != 0)
        return 0;
    ts_fake_down(fake, post->node, CAIRN_E_NODE_DOWN);
    return CAIRN_E_NODE_DOWN;
}

static int commit_broken(enum ts_fake_op op, uint16_t node, enum cairn_outcome *outcome)
{
    struct cairn_tx *tx = begin();

    put(tx, ka, "x");
    put(tx, kb, "x");
    fs.fake.on_post = break_now;
    break_op = op;
    break_node = node;
    break_after = 1;
    int rc = commit(tx, outcome);
    assert_int_equal(break_after, 0);
    fs.fake.on_post = NULL;
    return rc;
}

static void commit__lost_at_lock__aborted_and_the_other_released(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    assert_int_equal(commit_broken(TS_FAKE_CAS, 2, &outcome), CAIRN_E_NODE_DOWN);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(word(1, ia), 5);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_WRITE), 0);
    assert_null(ts_fake_conn(&fs.fake, 1)); /* the session is over everywhere (R2) */
}

static void commit__lost_before_the_first_record__aborted(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    assert_int_equal(commit_broken(TS_FAKE_WRITE, 1, &outcome), CAIRN_E_NODE_DOWN);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_WRITE), 0);
    assert_int_equal(word(2, ib), 5); /* released where the connection stands */
}

static void commit__lost_after_a_record__unknown_no_mark_no_release(void **state)
{
    enum cairn_outcome outcome;
    char token[CAIRN_TOKEN_SIZE];

    (void)state;
    assert_int_equal(commit_broken(TS_FAKE_WRITE, 2, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_UNKNOWN);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 0);
    assert_int_equal(word(1, ia), pm_word_make_locked(8, 3, 5)); /* the record's now */
    assert_int_equal(cairn_ctx_token(fs.ctx, token), 0);
    struct txn_token t;
    assert_int_equal(txn_token_parse(token, &fs.config.cluster, &t), 0);
    assert_int_equal(t.node, 1);
    assert_int_equal(t.seq, 1);
}

static void commit__lost_at_a_flush__unknown(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    assert_int_equal(commit_broken(TS_FAKE_FLUSH, 2, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_UNKNOWN);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 0);
    assert_int_equal(fs.fake.step_count[CN_STEP_c_flushed], 0);
}

static void commit__lost_at_a_mark__committed(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    assert_int_equal(commit_broken(TS_FAKE_MARK, 1, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_MARK), 1); /* the other one */
}

static void commit__flush_never_completes__unknown_by_the_deadline(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    struct cairn_tx *tx = begin();
    char buf[16];
    size_t size;
    assert_int_equal(cairn_get_for_update(tx, 1, ka, strlen(ka), buf, sizeof(buf), &size), 0);
    put(tx, ka, "x");
    fs.fake.node[0].silent = true;
    assert_int_equal(commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_UNKNOWN);
    fs.fake.node[0].silent = false;
}

/* ---- tokens ---- */

static void token__aborted__void_record_takes_the_sequence(void **state)
{
    enum cairn_outcome outcome;
    char token[CAIRN_TOKEN_SIZE];
    struct pm_record r;

    (void)state;
    struct cairn_tx *tx = begin();
    put(tx, ka, "x");
    assert_int_equal(cairn_tx_token(tx, token), 0);
    struct cn_txid txid = tx->txid;
    cairn_abort(tx);
    load(1, 0, &r);
    assert_int_equal(r.type, PM_RECORD_VOID);
    assert_int_equal(r.seq, 1);
    assert_true(cn_txid_equal(&r.txid, &txid));
    assert_int_equal(fs.fake.step_count[CN_STEP_c_void], 1);
    tx = begin();
    put(tx, ka, "y");
    assert_int_equal(commit(tx, &outcome), 0);
    load(1, PM_RECORD_VOID_SIZE, &r);
    assert_int_equal(r.type, PM_RECORD_TX);
    assert_int_equal(r.seq, 2); /* never the first again (R15) */
}

static void token__commits__record_stands_at_its_place(void **state)
{
    enum cairn_outcome outcome;
    char token[CAIRN_TOKEN_SIZE];
    struct txn_token t;
    struct pm_record r;

    (void)state;
    struct cairn_tx *tx = begin();
    put(tx, ka, "x");
    assert_int_equal(cairn_tx_token(tx, token), 0);
    assert_int_equal(txn_token_parse(token, &fs.config.cluster, &t), 0);
    assert_int_equal(commit(tx, &outcome), 0);
    load(1, 0, &r);
    assert_int_equal(r.seq, t.seq);
    assert_true(cn_txid_equal(&r.txid, &t.txid));
    assert_int_equal(t.epoch, fs.ctx->peer[0].epoch);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(commit__record_ends_with_the_staging__next_at_its_start),
        CASE(commit__two_nodes__records_flushes_then_marks),
        CASE(commit__one_node_twice__sealed_and_the_second_calls_the_first_done),
        CASE(commit__insert_move_delete__ops_and_blocks),
        CASE(commit__block_larger_than_a_chunk__too_large_before_any_lock),
        CASE(commit__bucket_full__asks_room_before_locking),
        CASE(commit__held_bucket_and_remembered_keys__never_overfilled),
        CASE(commit__no_block__pool_full_before_any_lock),
        CASE(commit__grant_not_answered__timeout_then_works_again),
        CASE(commit__many__wrap_with_pads_and_fit),
        CASE(commit__node_keeps_up__position_read_once_per_half_window),
        CASE(commit__one_node__no_mark),
        CASE(commit__position_stays__ring_full_and_nothing_logged),
        CASE(commit__lost_at_lock__aborted_and_the_other_released),
        CASE(commit__lost_before_the_first_record__aborted),
        CASE(commit__lost_after_a_record__unknown_no_mark_no_release),
        CASE(commit__lost_at_a_flush__unknown),
        CASE(commit__lost_at_a_mark__committed),
        CASE(commit__flush_never_completes__unknown_by_the_deadline),
        CASE(token__aborted__void_record_takes_the_sequence),
        CASE(token__commits__record_stands_at_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
