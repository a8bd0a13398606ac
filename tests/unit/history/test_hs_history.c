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

#include "tools/history/hs_history.h"

static char path[64];

static int set_up(void **state)
{
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/hs_history_XXXXXX");
    fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void fill(struct hs_history *h)
{
    static const uint32_t list[] = {1, 2, 4};

    hs_event_begin(h, HS_INVOKE, HS_F_TXN, 0, 10);
    hs_event_append(h, 253, 1);
    hs_event_read(h, 256, NULL, HS_UNREAD);
    hs_event_end(h);
    hs_event_begin(h, HS_OK, HS_F_TXN, 0, 12);
    hs_event_append(h, 253, 1);
    hs_event_read(h, 256, list, 3);
    hs_event_read(h, 257, NULL, 0);
    hs_event_end(h);
    hs_event_begin(h, HS_INVOKE, HS_F_TRANSFER, 6, 13);
    hs_event_transfer(h, 6, 1, 5);
    hs_event_end(h);
    hs_event_begin(h, HS_INFO, HS_F_TRANSFER, 6, 14);
    hs_event_transfer(h, 6, 1, 5);
    hs_event_end(h);
    hs_event_begin(h, HS_INVOKE, HS_F_BANK_READ, 7, 15);
    hs_event_end(h);
    hs_event_begin(h, HS_OK, HS_F_BANK_READ, 7, 16);
    hs_event_balance(h, 0, -3);
    hs_event_balance(h, 1, 13);
    hs_event_end(h);
}

static void assert_same_event(
    const struct hs_history *a, const struct hs_history *b, uint64_t index)
{
    const struct hs_event *ea = &a->events[index], *eb = &b->events[index];

    assert_int_equal(ea->time_ns, eb->time_ns);
    assert_int_equal(ea->process, eb->process);
    assert_int_equal(ea->type, eb->type);
    assert_int_equal(ea->f, eb->f);
    assert_int_equal(ea->mop_count, eb->mop_count);
    for (uint32_t i = 0; i < ea->mop_count; i++) {
        const struct hs_mop *ma = &a->mops[ea->mop_first + i], *mb = &b->mops[eb->mop_first + i];
        assert_int_equal(ma->key, mb->key);
        assert_int_equal(ma->kind, mb->kind);
        assert_int_equal(ma->count, mb->count);
        if (ma->kind != HS_READ)
            assert_int_equal(ma->value, mb->value);
        else if (ma->count != HS_UNREAD && ma->count > 0)
            assert_memory_equal(a->elements + ma->value, b->elements + mb->value, 4 * ma->count);
    }
}

static struct hs_history *logged(bool keep)
{
    struct hs_history *h = hs_history_new();

    assert_int_equal(hs_history_log_to(h, path, keep), 0);
    fill(h);
    return h;
}

static void hs_history_load__whole_log__same_events(void **state)
{
    struct hs_history *h = logged(true), *back = hs_history_new();
    bool torn = true;

    (void)state;
    assert_int_equal(hs_history_load(back, path, &torn), 0);
    assert_false(torn);
    assert_int_equal(back->event_count, 6);
    for (uint64_t i = 0; i < 6; i++)
        assert_same_event(h, back, i);
    hs_history_delete(&h);
    hs_history_delete(&back);
}

static void hs_history_log_to__not_kept__memory_stays_empty(void **state)
{
    struct hs_history *h = logged(false);

    (void)state;
    assert_int_equal(h->event_count, 0);
    assert_int_equal(h->mop_count, 0);
    assert_int_equal(h->element_count, 0);
    hs_history_delete(&h);
}

static void hs_history_log_to__process_killed__all_before_is_kept(void **state)
{
    struct hs_history *h = hs_history_new();
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
    assert_int_equal(hs_history_load(h, path, &torn), 0);
    assert_int_equal(h->event_count, 6);
    hs_history_delete(&h);
}

static void hs_history_load__cut_anywhere__prefix(void **state)
{
    struct hs_history *h = logged(true);
    FILE *file = fopen(path, "r");
    char bytes[4096];
    size_t size;

    (void)state;
    assert_non_null(file);
    size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    assert_true(size > 100 && size < sizeof(bytes));
    for (size_t cut = 0; cut < size; cut++) {
        struct hs_history *back = hs_history_new();
        bool torn;
        assert_int_equal(truncate(path, (off_t)(size - cut)), 0);
        assert_int_equal(hs_history_load(back, path, &torn), 0);
        assert_true(back->event_count <= 6);
        assert_true(cut == 0 || back->event_count < 6);
        for (uint64_t i = 0; i < back->event_count; i++)
            assert_same_event(h, back, i);
        hs_history_delete(&back);
    }
    hs_history_delete(&h);
}

static void hs_history_load__byte_flipped__damage_or_torn(void **state)
{
    struct hs_history *h = logged(true);
    FILE *file = fopen(path, "r+");
    uint32_t damaged = 0;
    long size;

    (void)state;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    for (long at = 0; at < size; at++) {
        struct hs_history *back = hs_history_new();
        bool torn = false;
        (void)fseek(file, at, SEEK_SET);
        const int byte = fgetc(file);
        (void)fseek(file, at, SEEK_SET);
        (void)fputc(byte ^ 0x40, file);
        (void)fflush(file);
        const int r = hs_history_load(back, path, &torn);
        assert_true(r == CAIRN_E_PROTOCOL || torn);
        damaged += r == CAIRN_E_PROTOCOL;
        (void)fseek(file, at, SEEK_SET);
        (void)fputc(byte, file);
        (void)fflush(file);
        hs_history_delete(&back);
    }
    assert_true(damaged > (uint32_t)size / 2);
    (void)fclose(file);
    hs_history_delete(&h);
}

/* A micro-operation that its event's f does not have would be read as one that it has. */
static void hs_history_load__micro_operation_of_another_f__damage(void **state)
{
    struct hs_history *h = hs_history_new();
    bool torn;

    (void)state;
    assert_int_equal(hs_history_log_to(h, path, false), 0);
    hs_event_begin(h, HS_OK, HS_F_TXN, 1, 1);
    hs_event_transfer(h, 6, 1000000, 5); /* as a read it would have a million elements */
    hs_event_end(h);
    hs_history_delete(&h);
    h = hs_history_new();
    assert_int_equal(hs_history_load(h, path, &torn), CAIRN_E_PROTOCOL);
    hs_history_delete(&h);
}

static void hs_history_load__no_file__enoent(void **state)
{
    struct hs_history *h = hs_history_new();
    bool torn;

    (void)state;
    assert_int_equal(hs_history_load(h, "/nonexistent/log", &torn), -2);
    hs_history_delete(&h);
}

static void add(struct hs_history *h, enum hs_type type, uint64_t process, uint64_t time)
{
    hs_event_begin(h, type, HS_F_TXN, process, time);
    hs_event_append(h, process, (uint32_t)time);
    hs_event_end(h);
}

static void hs_history_merge__ties__invoke_first_and_parts_in_order(void **state)
{
    struct hs_history *a = hs_history_new(), *b = hs_history_new(), *c = hs_history_new();
    const struct hs_history *parts[] = {a, b, c};
    static const uint64_t times[] = {1, 5, 5, 5, 5, 6};
    uint64_t seen[3] = {0};

    (void)state;
    add(a, HS_INVOKE, 1, 5);
    add(a, HS_OK, 1, 5);
    add(b, HS_INVOKE, 2, 1);
    add(b, HS_OK, 2, 5);
    add(b, HS_INVOKE, 2, 5);
    add(b, HS_OK, 2, 6);
    struct hs_history *all = hs_history_merge(parts, 3);
    assert_int_equal(all->event_count, 6);
    /* Order inside a part holds; of two heads at one time the invoke goes first. */
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(all->events[i].time_ns, times[i]);
    for (uint64_t i = 0; i < 6; i++)
        assert_true(
            all->events[i].type == (seen[all->events[i].process]++ % 2 == 0 ? HS_INVOKE : HS_OK));
    assert_int_equal(all->events[1].type, HS_INVOKE);
    assert_int_equal(all->events[1].process, 1);
    hs_history_delete(&a);
    hs_history_delete(&b);
    hs_history_delete(&c);
    hs_history_delete(&all);
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

static void hs_history_write_edn__lists_and_bank__as_elle_reads(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    fill(h);
    assert_int_equal(hs_history_write_edn(h, HS_WRITE_LISTS, path), 0);
    assert_file_is("{:index 0, :type :invoke, :process 0, :time 10, :f :txn, "
                   ":value [[:append 253 1] [:r 256 nil]]}\n"
                   "{:index 1, :type :ok, :process 0, :time 12, :f :txn, "
                   ":value [[:append 253 1] [:r 256 [1 2 4]] [:r 257 []]]}\n");
    assert_int_equal(hs_history_write_edn(h, HS_WRITE_BANK, path), 0);
    assert_file_is("{:index 0, :type :invoke, :process 6, :time 13, :f :transfer, "
                   ":value {:from 6, :to 1, :amount 5}}\n"
                   "{:index 1, :type :info, :process 6, :time 14, :f :transfer, "
                   ":value {:from 6, :to 1, :amount 5}}\n"
                   "{:index 2, :type :invoke, :process 7, :time 15, :f :read, :value nil}\n"
                   "{:index 3, :type :ok, :process 7, :time 16, :f :read, :value {0 -3 1 13}}\n");
    hs_history_delete(&h);
}

static void hs_history_write_json__lists_and_bank__as_elle_reads(void **state)
{
    struct hs_history *h = hs_history_new();

    (void)state;
    fill(h);
    assert_int_equal(hs_history_write_json(h, HS_WRITE_LISTS, path), 0);
    assert_file_is("{\"index\":0,\"type\":\"invoke\",\"process\":0,\"time\":10,\"f\":\"txn\","
                   "\"value\":[[\"append\",253,1],[\"r\",256,null]]}\n"
                   "{\"index\":1,\"type\":\"ok\",\"process\":0,\"time\":12,\"f\":\"txn\","
                   "\"value\":[[\"append\",253,1],[\"r\",256,[1,2,4]],[\"r\",257,[]]]}\n");
    assert_int_equal(hs_history_write_json(h, HS_WRITE_BANK, path), 0);
    assert_file_is("{\"index\":0,\"type\":\"invoke\",\"process\":6,\"time\":13,\"f\":\"transfer\","
                   "\"value\":{\"from\":6,\"to\":1,\"amount\":5}}\n"
                   "{\"index\":1,\"type\":\"info\",\"process\":6,\"time\":14,\"f\":\"transfer\","
                   "\"value\":{\"from\":6,\"to\":1,\"amount\":5}}\n"
                   "{\"index\":2,\"type\":\"invoke\",\"process\":7,\"time\":15,\"f\":\"read\","
                   "\"value\":null}\n"
                   "{\"index\":3,\"type\":\"ok\",\"process\":7,\"time\":16,\"f\":\"read\","
                   "\"value\":{\"0\":-3,\"1\":13}}\n");
    hs_history_delete(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hs_history_load__whole_log__same_events),
        cmocka_unit_test(hs_history_log_to__not_kept__memory_stays_empty),
        cmocka_unit_test(hs_history_log_to__process_killed__all_before_is_kept),
        cmocka_unit_test(hs_history_load__cut_anywhere__prefix),
        cmocka_unit_test(hs_history_load__byte_flipped__damage_or_torn),
        cmocka_unit_test(hs_history_load__micro_operation_of_another_f__damage),
        cmocka_unit_test(hs_history_load__no_file__enoent),
        cmocka_unit_test(hs_history_merge__ties__invoke_first_and_parts_in_order),
        cmocka_unit_test(hs_history_write_edn__lists_and_bank__as_elle_reads),
        cmocka_unit_test(hs_history_write_json__lists_and_bank__as_elle_reads),
    };
    struct CMUnitTest with_file[CN_ARRAY_SIZE(tests)];

    for (size_t i = 0; i < CN_ARRAY_SIZE(tests); i++) {
        with_file[i] = tests[i];
        with_file[i].setup_func = set_up;
        with_file[i].teardown_func = tear_down;
    }
    return cmocka_run_group_tests(with_file, NULL, NULL);
}
