/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the checks of the workloads that are built in find what is wrong, and nothing else: chains
 * of values (cr_kit.c) and linearizability of registers (cr_work_register.c). Method: ledgers and
 * final values written by hand, over fakes of the calls of workload.h; one planted fault each.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/crash/workload/cr_kit.c"
#include "tools/crash/workload/cr_work_register.c"

/* ---- fakes ---- */

#define OPS 16u
#define ALLOCS 16u
#define GOOD CAIRN_OUTCOME_COMMITTED
#define GONE CAIRN_OUTCOME_ABORTED
#define OPEN CAIRN_OUTCOME_UNKNOWN

struct cairn_run {
    enum cairn_outcome outcome[OPS];
    char failure[512]; /* the first one */
    void *memory[ALLOCS];
    uint32_t allocs;
};

enum cairn_outcome cairn_run_outcome(const struct cairn_run *run, uint64_t op)
{
    return op < OPS ? run->outcome[op] : CAIRN_OUTCOME_NONE;
}

void cairn_run_fail(struct cairn_run *run, const char *format, ...)
{
    va_list args;

    if (run->failure[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(run->failure, sizeof(run->failure), format, args);
    va_end(args);
}

void *cairn_run_alloc(struct cairn_run *run, size_t size)
{
    assert_true(run->allocs < ALLOCS);
    return run->memory[run->allocs++] = calloc(1, size);
}

const char *cairn_outcome_name(enum cairn_outcome outcome)
{
    return outcome == OPEN ? "UNKNOWN" : outcome == GOOD ? "COMMITTED" : "ABORTED";
}

static void expect(struct cairn_run *run, const char *words)
{
    char failure[sizeof(run->failure)];

    memcpy(failure, run->failure, sizeof(failure));
    while (run->allocs > 0)
        free(run->memory[--run->allocs]);
    run->failure[0] = '\0';
    if (words == NULL ? failure[0] != '\0' : strstr(failure, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", failure, words != NULL ? words : "");
}

/* ---- chains: two keys, 100 each; 1 moves 5, 2 moves 7 behind it ---- */

struct fixture {
    struct cairn_run run;
    struct cr_chain *chain;
    struct cr_link final[2];
};
static const int64_t first[2] = {100, 100};

static void move(struct fixture *f, uint64_t op, int64_t amount, uint64_t op_before, int64_t before)
{
    struct cr_chain_op *o = &f->chain->op[op];

    o->count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        int64_t old = 100 + (i == 0 ? -before : before);
        o->touch[i] = (struct cr_touch){.key = i, .written = true,
            .old = {old, op_before, op_before == 0 ? 0 : 1}, .value = old +
                (i == 0 ? -amount : amount)};
    }
    f->run.outcome[op] = GOOD;
    f->chain->ops = op;
}

static void make(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->chain = calloc(1, sizeof(*f->chain));
    move(f, 1, 5, 0, 0);
    move(f, 2, 7, 1, 5);
    f->final[0] = (struct cr_link){88, 2, 2};
    f->final[1] = (struct cr_link){112, 2, 2};
}

static void check_chain(struct fixture *f, const char *words)
{
    cr_chain_check(f->chain, &f->run, f->final, first, 2);
    expect(&f->run, words);
    free(f->chain);
    make(f);
}

static void chain_check__right_ledger__passes(void **state)
{
    (void)state;
    struct fixture f;

    make(&f);
    check_chain(&f, NULL);
    f.run.outcome[2] = OPEN; /* all of it is there */
    check_chain(&f, NULL);
    f.run.outcome[2] = OPEN; /* nothing of it */
    f.final[0] = (struct cr_link){95, 1, 1};
    f.final[1] = (struct cr_link){105, 1, 1};
    check_chain(&f, NULL);
    free(f.chain);
}

static void chain_check__planted_faults__found(void **state)
{
    (void)state;
    struct fixture f;

    make(&f);
    f.final[0] = (struct cr_link){95, 1, 1};
    f.final[1] = (struct cr_link){105, 1, 1};
    check_chain(&f, "lost: operation 2 was COMMITTED, and none of its 2 writes");
    f.final[1] = (struct cr_link){105, 1, 1};
    check_chain(&f, "not atomic: of operation 2 (COMMITTED) 1 of 2 writes");
    f.run.outcome[2] = OPEN;
    f.final[0] = (struct cr_link){95, 1, 1};
    check_chain(&f, "not atomic: of operation 2 (UNKNOWN) 1 of 2 writes");
    f.run.outcome[2] = GONE;
    check_chain(&f, "operation 2 was ABORTED, and its value 88 is there");
    move(&f, 2, 7, 0, 0); /* did not see 1 */
    f.final[0] = (struct cr_link){93, 2, 1};
    f.final[1] = (struct cr_link){107, 2, 1};
    check_chain(&f, "lost: operation 1");
    f.final[0].value = 87;
    check_chain(&f, "operation 2 wrote 88 as the 2. value, and 87 is there as the 2.");
    f.final[0].count = 3;
    check_chain(&f, "88 is there as the 3.");
    f.final[0].op = 9;
    check_chain(&f, "key 0 has a value of operation 9, which never wrote it");
    f.final[0] = (struct cr_link){0, 0, 0};
    check_chain(&f, "its first value is 0, not 100");
    free(f.chain);
}

/* ---- registers ---- */

static struct registers *registers;
static struct cairn_run run_of_registers;

/* An operation on register 0: from begin to end; read: the value, or -1: it wrote. */
static void add(uint64_t op, uint64_t begin, uint64_t end, int read)
{
    struct entry *e = &registers->entry[op];

    *e = (struct entry){.begin = begin, .end = end, .count = 1, .committed = true,
        .touch = {{.reg = 0, .wrote = read < 0, .value = read < 0 ? 0 : (uint32_t)read}}};
    run_of_registers.outcome[op] = GOOD;
    registers->ops = op > registers->ops ? op : registers->ops;
    registers->clock = end != NEVER && end > registers->clock ? end : registers->clock;
}

static void check_registers(uint32_t final, const char *words)
{
    check_register(&run_of_registers, registers, 0, final);
    for (uint64_t op = 1; op <= registers->ops; op++)
        check_whole(&run_of_registers, registers, op);
    expect(&run_of_registers, words);
    memset(registers, 0, sizeof(*registers));
    memset(&run_of_registers, 0, sizeof(run_of_registers));
}

static void register_check__right_ledger__passes(void **state)
{
    (void)state;
    registers = calloc(1, sizeof(*registers));
    check_registers(0, NULL);
    add(1, 1, 2, 0); /* read, write, read */
    add(2, 3, 4, -1);
    add(3, 5, 6, 2);
    check_registers(2, NULL);
    add(1, 1, 10, -1); /* two writes at once, seen one after the other */
    add(2, 2, 9, -1);
    add(3, 3, 4, 2);
    add(4, 5, 6, 1);
    check_registers(1, NULL);
    add(1, 1, NEVER, -1); /* nobody knows, and it took effect late */
    run_of_registers.outcome[1] = OPEN;
    add(2, 2, 3, -1);
    add(3, 4, 5, 2);
    add(4, 6, 7, 1);
    check_registers(1, NULL);
    add(1, 1, NEVER, -1); /* nobody knows, and nobody saw it */
    run_of_registers.outcome[1] = OPEN;
    check_registers(0, NULL);
    free(registers);
}

static void register_check__planted_faults__found(void **state)
{
    (void)state;
    registers = calloc(1, sizeof(*registers));
    add(1, 1, 2, -1); /* a stale read */
    add(2, 3, 4, -1);
    add(3, 5, 6, 1);
    check_registers(2, "not linearizable");
    add(1, 1, 2, -1); /* lost */
    check_registers(0, "not linearizable");
    add(1, 1, 10, -1); /* two writes at once, seen to and fro */
    add(2, 2, 9, -1);
    add(3, 3, 4, 2);
    add(4, 5, 6, 1);
    add(5, 7, 8, 2);
    check_registers(1, "not linearizable");
    add(1, 1, 2, -1); /* written and gone while another was there all the time */
    add(2, 3, 6, -1);
    add(3, 7, 8, 2);
    add(4, 9, 10, -1);
    add(5, 11, 12, 2);
    check_registers(4, "not linearizable");
    add(1, 1, 2, -1);
    run_of_registers.outcome[1] = GONE;
    add(2, 3, 4, 1);
    check_registers(0, "read as 1, which was ABORTED");
    add(1, 1, 2, 7);
    check_registers(0, "read as 7, which nobody wrote");
    add(1, 1, 2, 2);
    add(2, 3, 4, -1);
    check_registers(2, "before the write began");
    free(registers);
}

static void register_check__half_a_transaction_seen__found(void **state)
{
    (void)state;
    registers = calloc(1, sizeof(*registers));
    add(1, 1, 2, -1);
    registers->entry[1].touch[1] = (struct touch){.reg = 1, .wrote = true};
    registers->entry[1].count = 2;
    add(2, 3, 4, 1);
    registers->entry[2].touch[1] = (struct touch){.reg = 1, .value = 0};
    registers->entry[2].count = 2;
    check_registers(1, "fractured read: operation 2 saw register 0 as operation 1 wrote it");
    free(registers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_check__right_ledger__passes),
        cmocka_unit_test(chain_check__planted_faults__found),
        cmocka_unit_test(register_check__right_ledger__passes),
        cmocka_unit_test(register_check__planted_faults__found),
        cmocka_unit_test(register_check__half_a_transaction_seen__found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
