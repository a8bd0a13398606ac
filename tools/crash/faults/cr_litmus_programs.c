/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_litmus_programs.c: the programs L1 to L14 of the crash model, and those about lanes,
 * compare-and-swaps and what the node's CPU does for its peers (L15 and up). Two digits name an
 * outcome: the values of x and y (of u and v in the extent) after the crash; initially both are 0.
 *
 * What the platform modes change: under `adr` a polled flush makes durable, under `adr_ddio` it
 * only makes visible, under `eadr` what is visible is durable, and a connection's writes become
 * visible in post order.
 */
#include "tools/crash/faults/cr_litmus_internal.h"

#define LOG CR_LITMUS_LOG
#define FAR CR_LITMUS_FAR

/* ---- outcomes ---- */

static uint64_t word(const struct cr_litmus_run *run, uint64_t off)
{
    uint64_t v;

    memcpy(&v, run->pool->visible + off, 8);
    return v;
}

/* Two small values; else something that no outcome is. */
static uint32_t pair(uint64_t a, uint64_t b)
{
    return a > 15 || b > 15 ? UINT32_MAX : (uint32_t)(a << 4 | b);
}

static uint32_t outcome_xy(const struct cr_litmus_run *run)
{
    return pair(word(run, LOG), word(run, LOG + FAR));
}

static uint32_t outcome_line(const struct cr_litmus_run *run)
{
    return pair(word(run, LOG), word(run, LOG + 8));
}

static uint32_t outcome_uv(const struct cr_litmus_run *run)
{
    return pair(word(run, 0), word(run, FAR));
}

static uint32_t outcome_seen(const struct cr_litmus_run *run)
{
    return pair(0, run->seen);
}

/* Which of the first eight words are there. */
static uint32_t outcome_words(const struct cr_litmus_run *run)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < 8; i++) {
        uint64_t v = word(run, LOG + 8 * i);
        if (v != 0 && v != i + 1)
            return UINT32_MAX;
        set |= (v != 0 ? 1u : 0u) << i;
    }
    return set;
}

/* Which of three lines are there, each as a whole. */
static uint32_t outcome_packets(const struct cr_litmus_run *run)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < 24; i++) {
        uint64_t v = word(run, LOG + 8 * i);
        if (v != (word(run, LOG + i / 8 * 64) != 0 ? i + 1 : 0))
            return UINT32_MAX;
        set |= (v != 0 ? 1u : 0u) << i / 8;
    }
    return set;
}

/* ---- writes, flushes, marks ---- */

static void write_word(struct cr_litmus_run *run, uint64_t off, uint64_t value, unsigned flags)
{
    const uint64_t *from = cr_litmus_log_memory(run);

    cr_litmus_expect(run, 0, rd_write(run->conn, 1, LOG + off, &from[value - 1], 8, flags));
}

static void flush(struct cr_litmus_run *run, struct rd_conn *conn, unsigned flags)
{
    cr_litmus_expect(run, 0, rd_flush(conn, 2, LOG, 8, flags));
    if ((flags & RD_SIGNALED) != 0)
        cr_litmus_await(run, RD_EV_COMPLETION);
}

static void two_writes(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, RD_MORE);
    write_word(run, FAR, 1, 0);
}

static void flush_polled(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, 0);
    flush(run, run->conn, RD_SIGNALED);
    write_word(run, FAR, 1, 0);
}

static void flush_not_polled(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, 0);
    flush(run, run->conn, 0);
    write_word(run, FAR, 1, 0);
}

static void flush_then_mark(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, 0);
    flush(run, run->conn, 0);
    cr_litmus_expect(run, 0, rd_mark(run->conn, 3, LOG + FAR, 1, 0));
}

static void flush_elsewhere(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, 0);
    flush(run, run->second, RD_SIGNALED);
}

static void same_word_twice(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, 0);
    write_word(run, 0, 2, 0);
}

static void write_line(struct cr_litmus_run *run)
{
    cr_litmus_expect(run, 0, rd_write(run->conn, 1, LOG, cr_litmus_log_memory(run), 64, 0));
}

static void write_polled(struct cr_litmus_run *run)
{
    write_word(run, 0, 1, RD_SIGNALED);
    cr_litmus_await(run, RD_EV_COMPLETION);
}

static void three_packets(struct cr_litmus_run *run)
{
    cr_litmus_expect(run, 0, rd_write(run->conn, 1, LOG, cr_litmus_log_memory(run), 192, 0));
}

/* ---- stores of the node's CPU ---- */

static void two_lines(struct cr_litmus_run *run)
{
    struct pm pm;

    sim_pool_pm(run->pool, &run->node_actor->env, &pm);
    pm_store64(&pm, LOG, 1);
    pm_flush(&pm, LOG, 8);
    pm_store64(&pm, LOG + FAR, 1);
}

static void fenced_lines(struct cr_litmus_run *run)
{
    struct pm pm;

    two_lines(run);
    sim_pool_pm(run->pool, &run->node_actor->env, &pm);
    pm_fence(&pm, CN_STEP_a_body);
}

static void one_line(struct cr_litmus_run *run)
{
    struct pm pm;

    sim_pool_pm(run->pool, &run->node_actor->env, &pm);
    pm_store64(&pm, LOG, 1);
    pm_store64(&pm, LOG + 8, 1);
}

/* ---- reads and compare-and-swaps: u lies at 0, v at FAR of the extent ---- */

static void cas(struct cr_litmus_run *run, uint64_t remote, uint64_t expected, unsigned flags)
{
    uint64_t *old = (uint64_t *)rd_ep_memory(run->ep) + expected;

    cr_litmus_expect(run, 0, rd_cas(run->conn, 1, remote, expected, expected + 1, old, flags));
}

static void store_u(void *arg, uint64_t tag)
{
    struct cr_litmus_run *run = arg;
    struct pm pm;

    sim_pool_pm(run->pool, &run->sim->env, &pm);
    pm_store64(&pm, 0, tag);
}

static void read_while_stored(struct cr_litmus_run *run)
{
    uint64_t *to = (uint64_t *)rd_ep_memory(run->ep) + 8;

    sim_after(run->sim, sim_delay(run->sim, "store"), store_u, run, 1);
    cr_litmus_expect(run, 0, rd_read(run->conn, 2, 0, to, 8, RD_SIGNALED));
    cr_litmus_await(run, RD_EV_COMPLETION);
    run->seen = *to;
}

static void two_words(struct cr_litmus_run *run)
{
    cas(run, 0, 0, 0);
    cas(run, FAR, 0, 0);
}

static void one_word_often(struct cr_litmus_run *run)
{
    for (uint64_t i = 0; i < 3; i++)
        cas(run, 0, i, RD_SIGNALED);
    for (uint64_t i = 0; i < 3; i++)
        cr_litmus_await(run, RD_EV_COMPLETION);
}

static void read_behind_cas(struct cr_litmus_run *run)
{
    uint64_t *to = (uint64_t *)rd_ep_memory(run->ep) + 8;

    cas(run, 0, 0, RD_SIGNALED);
    cr_litmus_expect(run, 0, rd_read(run->conn, 2, 0, to, 8, RD_SIGNALED));
    cr_litmus_await(run, RD_EV_COMPLETION);
    cr_litmus_await(run, RD_EV_COMPLETION);
    run->seen = *to;
}

/* ---- what the node's CPU does ---- */

/* Does the flush complete within a hundred milliseconds? */
static void flush_alone(struct cr_litmus_run *run)
{
    uint64_t until = run->sim->now + 100 * SIM_MS;
    struct rd_event e;

    write_word(run, 0, 1, 0);
    cr_litmus_expect(run, 0, rd_flush(run->conn, 2, LOG, 8, RD_SIGNALED));
    while (run->sim->now < until && run->seen == 0)
        run->seen = rd_poll(run->ep, &e, 1);
}

static void mark_too_early(struct cr_litmus_run *run)
{
    bool by_cpu = run->program->durability == RD_DURABILITY_GPSPM;

    write_word(run, 0, 1, 0);
    cr_litmus_expect(run, 0, rd_flush(run->conn, 2, LOG, 8, RD_SIGNALED));
    cr_litmus_expect(
        run, by_cpu ? CAIRN_E_STATE : 0, rd_mark(run->conn, 3, LOG + FAR, 1, 0));
    cr_litmus_await(run, RD_EV_COMPLETION);
    cr_litmus_expect(run, 0, rd_mark(run->conn, 3, LOG + FAR, 1, RD_SIGNALED));
    cr_litmus_await(run, RD_EV_COMPLETION);
}

static void header_page(struct cr_litmus_run *run)
{
    void *from = cr_litmus_log_memory(run);

    cr_litmus_expect(
        run, CAIRN_E_FABRIC, rd_write(run->conn, 1, CR_LITMUS_RING + 8, from, 8, 0));
    cr_litmus_expect(run, CAIRN_E_FABRIC, rd_mark(run->conn, 1, CR_LITMUS_RING + 4088, 1, 0));
    cr_litmus_expect(
        run, 0, rd_read(run->conn, 1, CR_LITMUS_RING + 8, from, 8, RD_SIGNALED));
    cr_litmus_await(run, RD_EV_COMPLETION);
}

#define POWER .crash = SIM_CRASH_POWER
#define PROCESS .crash = SIM_CRASH_PROCESS
#define SENDER .crash = SIM_CRASH_PROCESS, .client_dies = true
#define GPSPM .durability = RD_DURABILITY_GPSPM
#define XY .outcome = outcome_xy
#define UV .outcome = outcome_uv

const struct cr_litmus_program cr_litmus_programs[] = {
    {"L1", "W(x=1); W(y=1); power", {"00 01 10 11", "00 01 10 11", "00 10 11"}, POWER,
        .client = two_writes, XY},
    {"L2", "W(x=1); flush; poll; W(y=1); power", {"10 11", NULL, NULL}, POWER,
        .client = flush_polled, XY},
    {"L3", "W(x=1); flush; W(y=1); power", {"00 01 10 11", "00 01 10 11", "00 10 11"}, POWER,
        .client = flush_not_polled, XY},
    {"L4", "W(x=1); flush; fenced mark(y=1); power", {"00 10 11", "00 01 10 11", "00 10 11"},
        POWER, .client = flush_then_mark, XY},
    {"L5", "conn 1 W(x=1); conn 2 flush; poll; power", {"00 10", "00 10", "00 10"}, POWER,
        .connections = 2, .client = flush_elsewhere, XY},
    {"L6", "W(x=1); W(x=2); power", {"00 10 20", "00 10 20", "00 10 20"}, POWER,
        .client = same_word_twice, XY},
    {"L7", "W(a line of 8 words); power", {"00-ff", "00-ff", "00 ff"}, POWER,
        .client = write_line, .outcome = outcome_words},
    {"L8", "L2 where NIC writes go to the cache", {NULL, "00 01 10 11", NULL}, POWER,
        .client = flush_polled, XY},
    {"L9", "L2 where caches are durable", {NULL, NULL, "10 11"}, POWER, .client = flush_polled,
        XY},
    {"L10", "CPU x=1; clwb x; y=1; power", {"00 01 10 11", "00 01 10 11", "11"}, POWER,
        .node = two_lines, XY},
    {"L10f", "CPU x=1; clwb x; y=1; sfence; power", {"10 11", "10 11", "11"}, POWER,
        .node = fenced_lines, XY},
    {"L11", "CPU a=1; b=1, one line; power", {"00 10 11", "00 10 11", "11"}, POWER,
        .node = one_line, .outcome = outcome_line},
    {"L12", "W(x=1); poll; node's process dies", {"10", "10", "10"}, PROCESS,
        .client = write_polled, XY},
    {"L13", "W(3 packets); sender dies", {"00 01 03 07", "00 01 03 07", "00 01 03 07"}, SENDER,
        .client = three_packets, .outcome = outcome_packets},
    {"L14", "R(u) while the CPU stores u=1", {"00 01", NULL, NULL}, PROCESS,
        .client = read_while_stored, .outcome = outcome_seen},
    {"L15", "cas(u); cas(v); sender dies", {"00 01 10 11", NULL, NULL}, SENDER,
        .client = two_words, UV},
    {"L15o", "the same over one lane", {"00 10 11", NULL, NULL}, SENDER, .lanes = 1,
        .client = two_words, UV},
    {"L16", "cas(u 0-1); cas(u 1-2); cas(u 2-3); poll", {"30", NULL, NULL}, PROCESS,
        .client = one_word_often, UV},
    {"L16m", "the same by message", {"30", NULL, NULL}, PROCESS, .message_atomics = true,
        .client = one_word_often, UV},
    {"L17", "cas(u 0-1); R(u); poll: what R saw", {"00 01", NULL, NULL}, PROCESS,
        .client = read_behind_cas, .outcome = outcome_seen},
    {"L17o", "the same over one lane", {"01", NULL, NULL}, PROCESS, .lanes = 1,
        .client = read_behind_cas, .outcome = outcome_seen},
    {"L18", "cas(u); cas(v) by message; node dies", {"00 01 10 11", NULL, NULL}, PROCESS,
        .message_atomics = true, .client = two_words, UV},
    {"L18d", "the same, the node does not poll", {"00", NULL, NULL}, PROCESS,
        .message_atomics = true, .deaf = true, .client = two_words, UV},
    {"L19", "W(x=1); flush by message; poll; W(y=1); power", {"10 11", "10 11", "10 11"}, POWER,
        GPSPM, .client = flush_polled, XY},
    {"L19u", "the same, not polled", {"00 01 10 11", "00 01 10 11", "00 10 11"}, POWER, GPSPM,
        .client = flush_not_polled, XY},
    {"L20", "flush; the node does not poll: completed?", {"01", NULL, NULL}, PROCESS,
        .deaf = true, .client = flush_alone, .outcome = outcome_seen},
    {"L20m", "the same by message", {"00", NULL, NULL}, PROCESS, GPSPM, .deaf = true,
        .client = flush_alone, .outcome = outcome_seen},
    {"L21", "W(x=1); flush; mark at once, and after poll", {"11", NULL, NULL}, PROCESS,
        .client = mark_too_early, XY},
    {"L21m", "the same by message: refused at once", {NULL, "11", NULL}, PROCESS, GPSPM,
        .client = mark_too_early, XY},
    {"L22", "W and mark to a ring's header page: refused", {"00", NULL, NULL}, PROCESS,
        .client = header_page, XY},
};
const uint32_t cr_litmus_program_count = CN_ARRAY_SIZE(cr_litmus_programs);
