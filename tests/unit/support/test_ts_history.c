/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what was recorded is what is read back, after a kill too; damage is told from a torn end;
 * a merge keeps the real order; the text forms are those that elle-cli reads.
 * Method: small histories through files; each byte of a log flipped, each length of it cut.
 * Invariants: a cut log yields a prefix of the events, never other ones.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/ts_history.h"

static char path[64];

static int set_up(void **state)
{
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/ts_history_XXXXXX");
    fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void fill(struct ts_history *h)
{
    static const uint32_t list[] = {1, 2, 4};

    ts_event_begin(h, TS_INVOKE, TS_F_TXN, 0, 10);
    ts_event_append(h, 253, 1);
    ts_event_read(h, 256, NULL, TS_UNREAD);
    ts_event_end(h);
    ts_event_begin(h, TS_OK, TS_F_TXN, 0, 12);
    ts_event_append(h, 253, 1);
    ts_event_read(h, 256, list, 3);
    ts_event_read(h, 257, NULL, 0);
    ts_event_end(h);
    ts_event_begin(h, TS_INVOKE, TS_F_TRANSFER, 6, 13);
    ts_event_transfer(h, 6, 1, 5);
    ts_event_end(h);
    ts_event_begin(h, TS_INFO, TS_F_TRANSFER, 6, 14);
    ts_event_transfer(h, 6, 1, 5);
    ts_event_end(h);
    ts_event_begin(h, TS_INVOKE, TS_F_BANK_READ, 7, 15);
    ts_event_end(h);
    ts_event_begin(h, TS_OK, TS_F_BANK_READ, 7, 16);
    ts_event_balance(h, 0, -3);
    ts_event_balance(h, 1, 13);
    ts_event_end(h);
}

static void assert_same_event(
    const struct ts_history *a, const struct ts_history *b, uint64_t index)
{
    const struct ts_event *ea = &a->events[index], *eb = &b->events[index];

    assert_int_equal(ea->time_ns, eb->time_ns);
    assert_int_equal(ea->process, eb->process);
    assert_int_equal(ea->type, eb->type);
    assert_int_equal(ea->f, eb->f);
    assert_int_equal(ea->mop_count, eb->mop_count);
    for (uint32_t i = 0; i < ea->mop_count; i++) {
        const struct ts_mop *ma = &a->mops[ea->mop_first + i], *mb = &b->mops[eb->mop_first + i];
        assert_int_equal(ma->key, mb->key);
        assert_int_equal(ma->kind, mb->kind);
        assert_int_equal(ma->count, mb->count);
        if (ma->kind != TS_READ)
            assert_int_equal(ma->value, mb->value);
        else if (ma->count != TS_UNREAD && ma->count > 0)
            assert_memory_equal(a->elements + ma->value, b->elements + mb->value, 4 * ma->count);
    }
}

static struct ts_history *logged(bool keep)
{
    struct ts_history *h = ts_history_new();

    assert_int_equal(ts_history_log_to(h, path, keep), 0);
    fill(h);
    return h;
}

static void ts_history_load__whole_log__same_events(void **state)
{
    struct ts_history *h = logged(true), *back = ts_history_new();
    bool torn = true;

    (void)state;
    assert_int_equal(ts_history_load(back, path, &torn), 0);
    assert_false(torn);
    assert_int_equal(back->event_count, 6);
    for (uint64_t i = 0; i < 6; i++)
        assert_same_event(h, back, i);
    ts_history_delete(&h);
    ts_history_delete(&back);
}

static void ts_history_log_to__not_kept__memory_stays_empty(void **state)
{
    struct ts_history *h = logged(false);

    (void)state;
    assert_int_equal(h->event_count, 0);
    assert_int_equal(h->mop_count, 0);
    assert_int_equal(h->element_count, 0);
    ts_history_delete(&h);
}

static void ts_history_log_to__process_killed__all_before_is_kept(void **state)
{
    struct ts_history *h = ts_history_new();
    int status;
    bool torn;
    const pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)logged(false);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(ts_history_load(h, path, &torn), 0);
    assert_int_equal(h->event_count, 6);
    ts_history_delete(&h);
}

static void ts_history_load__cut_anywhere__prefix(void **state)
{
    struct ts_history *h = logged(true);
    FILE *file = fopen(path, "r");
    char bytes[4096];
    size_t size;

    (void)state;
    assert_non_null(file);
    size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    assert_true(size > 100 && size < sizeof(bytes));
    for (size_t cut = 0; cut < size; cut++) {
        struct ts_history *back = ts_history_new();
        bool torn;
        assert_int_equal(truncate(path, (off_t)(size - cut)), 0);
        assert_int_equal(ts_history_load(back, path, &torn), 0);
        assert_true(back->event_count <= 6);
        assert_true(cut == 0 || back->event_count < 6);
        for (uint64_t i = 0; i < back->event_count; i++)
            assert_same_event(h, back, i);
        ts_history_delete(&back);
    }
    ts_history_delete(&h);
}

static void ts_history_load__byte_flipped__damage_or_torn(void **state)
{
    struct ts_history *h = logged(true);
    FILE *file = fopen(path, "r+");
    uint32_t damaged = 0;
    long size;

    (void)state;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    for (long at = 0; at < size; at++) {
        struct ts_history *back = ts_history_new();
        bool torn = false;
        (void)fseek(file, at, SEEK_SET);
        const int byte = fgetc(file);
        (void)fseek(file, at, SEEK_SET);
        (void)fputc(byte ^ 0x40, file);
        (void)fflush(file);
        const int r = ts_history_load(back, path, &torn);
        assert_true(r == CAIRN_E_PROTOCOL || torn);
        damaged += r == CAIRN_E_PROTOCOL;
        (void)fseek(file, at, SEEK_SET);
        (void)fputc(byte, file);
        (void)fflush(file);
        ts_history_delete(&back);
    }
    assert_true(damaged > (uint32_t)size / 2);
    (void)fclose(file);
    ts_history_delete(&h);
}

static void ts_history_load__no_file__enoent(void **state)
{
    struct ts_history *h = ts_history_new();
    bool torn;

    (void)state;
    assert_int_equal(ts_history_load(h, "/nonexistent/log", &torn), -2);
    ts_history_delete(&h);
}

static void add(struct ts_history *h, enum ts_type type, uint64_t process, uint64_t time)
{
    ts_event_begin(h, type, TS_F_TXN, process, time);
    ts_event_append(h, process, (uint32_t)time);
    ts_event_end(h);
}

static void ts_history_merge__ties__invoke_first_and_parts_in_order(void **state)
{
    struct ts_history *a = ts_history_new(), *b = ts_history_new(), *c = ts_history_new();
    const struct ts_history *parts[] = {a, b, c};
    static const uint64_t times[] = {1, 5, 5, 5, 5, 6};
    uint64_t seen[3] = {0};

    (void)state;
    add(a, TS_INVOKE, 1, 5);
    add(a, TS_OK, 1, 5);
    add(b, TS_INVOKE, 2, 1);
    add(b, TS_OK, 2, 5);
    add(b, TS_INVOKE, 2, 5);
    add(b, TS_OK, 2, 6);
    struct ts_history *all = ts_history_merge(parts, 3);
    assert_int_equal(all->event_count, 6);
    /* Order inside a part holds; of two heads at one time the invoke goes first. */
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(all->events[i].time_ns, times[i]);
    for (uint64_t i = 0; i < 6; i++)
        assert_true(
            all->events[i].type == (seen[all->events[i].process]++ % 2 == 0 ? TS_INVOKE : TS_OK));
    assert_int_equal(all->events[1].type, TS_INVOKE);
    assert_int_equal(all->events[1].process, 1);
    ts_history_delete(&a);
    ts_history_delete(&b);
    ts_history_delete(&c);
    ts_history_delete(&all);
}

static void assert_file_is(const char *want)
{
    char text[4096];
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    assert_string_equal(text, want);
}

static void ts_history_write_edn__lists_and_bank__as_elle_reads(void **state)
{
    struct ts_history *h = ts_history_new();

    (void)state;
    fill(h);
    assert_int_equal(ts_history_write_edn(h, TS_WRITE_LISTS, path), 0);
    assert_file_is("{:index 0, :type :invoke, :process 0, :time 10, :f :txn, "
                   ":value [[:append 253 1] [:r 256 nil]]}\n"
                   "{:index 1, :type :ok, :process 0, :time 12, :f :txn, "
                   ":value [[:append 253 1] [:r 256 [1 2 4]] [:r 257 []]]}\n");
    assert_int_equal(ts_history_write_edn(h, TS_WRITE_BANK, path), 0);
    assert_file_is("{:index 0, :type :invoke, :process 6, :time 13, :f :transfer, "
                   ":value {:from 6, :to 1, :amount 5}}\n"
                   "{:index 1, :type :info, :process 6, :time 14, :f :transfer, "
                   ":value {:from 6, :to 1, :amount 5}}\n"
                   "{:index 2, :type :invoke, :process 7, :time 15, :f :read, :value nil}\n"
                   "{:index 3, :type :ok, :process 7, :time 16, :f :read, :value {0 -3 1 13}}\n");
    ts_history_delete(&h);
}

static void ts_history_write_json__lists_and_bank__as_elle_reads(void **state)
{
    struct ts_history *h = ts_history_new();

    (void)state;
    fill(h);
    assert_int_equal(ts_history_write_json(h, TS_WRITE_LISTS, path), 0);
    assert_file_is("{\"index\":0,\"type\":\"invoke\",\"process\":0,\"time\":10,\"f\":\"txn\","
                   "\"value\":[[\"append\",253,1],[\"r\",256,null]]}\n"
                   "{\"index\":1,\"type\":\"ok\",\"process\":0,\"time\":12,\"f\":\"txn\","
                   "\"value\":[[\"append\",253,1],[\"r\",256,[1,2,4]],[\"r\",257,[]]]}\n");
    assert_int_equal(ts_history_write_json(h, TS_WRITE_BANK, path), 0);
    assert_file_is("{\"index\":0,\"type\":\"invoke\",\"process\":6,\"time\":13,\"f\":\"transfer\","
                   "\"value\":{\"from\":6,\"to\":1,\"amount\":5}}\n"
                   "{\"index\":1,\"type\":\"info\",\"process\":6,\"time\":14,\"f\":\"transfer\","
                   "\"value\":{\"from\":6,\"to\":1,\"amount\":5}}\n"
                   "{\"index\":2,\"type\":\"invoke\",\"process\":7,\"time\":15,\"f\":\"read\","
                   "\"value\":null}\n"
                   "{\"index\":3,\"type\":\"ok\",\"process\":7,\"time\":16,\"f\":\"read\","
                   "\"value\":{\"0\":-3,\"1\":13}}\n");
    ts_history_delete(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ts_history_load__whole_log__same_events),
        cmocka_unit_test(ts_history_log_to__not_kept__memory_stays_empty),
        cmocka_unit_test(ts_history_log_to__process_killed__all_before_is_kept),
        cmocka_unit_test(ts_history_load__cut_anywhere__prefix),
        cmocka_unit_test(ts_history_load__byte_flipped__damage_or_torn),
        cmocka_unit_test(ts_history_load__no_file__enoent),
        cmocka_unit_test(ts_history_merge__ties__invoke_first_and_parts_in_order),
        cmocka_unit_test(ts_history_write_edn__lists_and_bank__as_elle_reads),
        cmocka_unit_test(ts_history_write_json__lists_and_bank__as_elle_reads),
    };
    struct CMUnitTest with_file[CN_ARRAY_SIZE(tests)];

    for (size_t i = 0; i < CN_ARRAY_SIZE(tests); i++) {
        with_file[i] = tests[i];
        with_file[i].setup_func = set_up;
        with_file[i].teardown_func = tear_down;
    }
    return cmocka_run_group_tests(with_file, NULL, NULL);
}
