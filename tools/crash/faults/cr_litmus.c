/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_litmus.c: runs litmus programs over all tapes and compares outcomes as sets.
 *
 * One run: a node with a small pool, a client connected to it. Up to there the tape draws as ever,
 * the same in each run. From the program's first request on the odometer counts: delays (least and
 * greatest), lanes, packets, halves of a compare-and-swap, what a dying connection still executes,
 * when the crash comes, and what each word of the image is.
 */
#include "tools/crash/faults/cr_litmus_internal.h"

#define RUNS_MAX UINT64_C(1000000)
#define TIME_MAX (1000 * SIM_MS) /* virtual, of one run */

static const char *const mode_names[] = {"adr", "adr_ddio", "eadr"};
/* When somebody looks, not what there is to be seen: first values do. */
static const char *const fixed[] = {"wake", "poll", "notice", "welcome", NULL};

void cr_litmus_expect(struct cr_litmus_run *run, int expected, int rc)
{
    if (rc != expected)
        sim_fail(run->sim, "%s: returned %s (%s), expected %s", run->program->id,
            rc == 0 ? "0" : cairn_error_name(rc), cairn_last_error(),
            expected == 0 ? "0" : cairn_error_name(expected));
}

void cr_litmus_await(struct cr_litmus_run *run, enum rd_event_type type)
{
    while (!run->sim->stop) {
        struct rd_event e[1];
        if (rd_poll(run->ep, e, 1) == 1 && e[0].type == type)
            return;
    }
}

uint64_t *cr_litmus_log_memory(struct cr_litmus_run *run)
{
    return (void *)((uint8_t *)rd_ep_memory(run->ep) + 1024 - CR_LITMUS_LOG_MEMORY);
}

/* ---- the actors ---- */

static void serve(struct cr_litmus_run *run, struct rd_ep *ep, struct rd_region *extent,
    struct rd_region *ring)
{
    struct sim *sim = run->sim;

    for (;;) {
        struct rd_event e[4];
        uint32_t n = rd_poll(ep, e, 4);
        for (uint32_t i = 0; i < n; i++) {
            if (e[i].type != RD_EV_CONNECT)
                continue;
            cr_litmus_expect(run, 0, rd_accept(e[i].conn, &extent, 1, ring, "w", 1));
            while (run->program->deaf)
                sim_sleep(sim, SIM_FOREVER);
        }
        rd_ep_arm(ep);
        rd_ep_sleep(ep, sim->now + SIM_MS);
    }
}

static void run_node(struct sim_actor *actor)
{
    struct cr_litmus_run *run = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 8, .outstanding_max = 8,
        .memory_size = 64, .name = "node"};
    struct rd_memory memory = {.base = run->pool->visible, .size = CR_LITMUS_RING, .fd = -1};
    struct rd_region *extent = NULL, *ring = NULL;
    struct rd_ep *ep = NULL;

    cr_litmus_expect(run, 0, rd_ep_open(&actor->sim->fabric->base, &config, &ep));
    cr_litmus_expect(
        run, 0, rd_region_new(ep, &memory, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &extent));
    memory = (struct rd_memory){.base = run->pool->visible + CR_LITMUS_RING,
        .pool_off = CR_LITMUS_RING, .size = CR_LITMUS_POOL - CR_LITMUS_RING, .fd = -1,
        .durability = run->program->durability};
    cr_litmus_expect(run, 0, rd_region_new(ep, &memory, RD_ACCESS_READ | RD_ACCESS_WRITE, &ring));
    cr_litmus_expect(run, 0, rd_listen(ep, "n1"));
    if (run->program->node != NULL) {
        run->odometer->on = true;
        run->program->node(run);
        run->done = true;
    }
    serve(run, ep, extent, ring);
}

static void run_client(struct sim_actor *actor)
{
    struct cr_litmus_run *run = actor->arg;
    struct rd_ep_config config = {.env = &actor->env, .connections_max = 2, .outstanding_max = 16,
        .memory_size = 1024, .log_memory_size = CR_LITMUS_LOG_MEMORY, .name = "client"};
    uint64_t limit = actor->sim->now + 50 * SIM_MS;

    if (run->program->client == NULL)
        return;
    cr_litmus_expect(run, 0, rd_ep_open(&actor->sim->fabric->base, &config, &run->ep));
    cr_litmus_expect(run, 0, rd_connect(run->ep, "n1", "h", 1, limit, &run->conn));
    cr_litmus_await(run, RD_EV_UP);
    if (run->program->connections == 2) {
        cr_litmus_expect(run, 0, rd_connect(run->ep, "n1", "h", 1, limit, &run->second));
        cr_litmus_await(run, RD_EV_UP);
    }
    uint64_t *value = cr_litmus_log_memory(run);
    for (uint64_t i = 0; i < CR_LITMUS_LOG_MEMORY / 8; i++)
        value[i] = i + 1;
    run->odometer->on = true;
    run->program->client(run);
    run->done = true;
    if (run->program->client_dies)
        sim_actor_die(actor, SIM_CRASH_PROCESS);
    sim_sleep(actor->sim, SIM_FOREVER);
}

/* ---- one run ---- */

static void crash(struct cr_litmus_run *run)
{
    static const uint64_t rest[] = {0, 700, 2500, 5 * SIM_US, 50 * SIM_US};
    const struct cr_litmus_program *p = run->program;
    struct sim *sim = run->sim;

    if (p->client_dies) {
        sim_run(sim, sim->now + 20 * SIM_MS);
        run->odometer->on = false;
    } else {
        /* The crash comes at any time from now on. */
        sim_run(sim, sim->now + rest[sim_choose(sim, "rest", CN_ARRAY_SIZE(rest))]);
        /* Tails of connections to a node that is gone have no say: nothing runs any more. */
        run->odometer->on = false;
        sim_actor_crash(run->node_actor, p->crash);
    }
    run->odometer->on = true;
    if (p->crash == SIM_CRASH_POWER)
        sim_pool_power_fail(run->pool);
    run->odometer->on = false;
}

static uint32_t run_once(
    struct cr_litmus_run *run, enum sim_mode mode, struct cr_litmus_result *result)
{
    const struct cr_litmus_program *p = run->program;
    struct sim *sim = run->sim;

    sim_init(sim, 1, false);
    sim->tape.odometer = run->odometer;
    sim->mode = mode;
    sim->calm = sim->product = true;
    sim->jitter = 0;
    sim->fabric->message_atomics = p->message_atomics;
    sim->fabric->lanes = p->lanes != 0 ? p->lanes : 2;
    sim->fabric->packet_max = 64;
    run->done = false;
    run->seen = 0;
    run->pool = sim_pool_new(sim, CR_LITMUS_POOL);
    sim_fabric_add_pool(sim->fabric, run->pool);
    run->node_actor = sim_actor_new(sim, SIM_NODE, "n1", run_node, NULL, run);
    run->client_actor = sim_actor_new(sim, SIM_CLIENT, "c1", run_client, NULL, run);
    run->pool->owner = run->node_actor;
    sim_actor_start(run->node_actor, 0);
    sim_actor_start(run->client_actor, 10 * SIM_US);
    while (!run->done && !sim->stop && sim->now < TIME_MAX)
        sim_run(sim, sim->now + 100);
    if (!run->done)
        sim_fail(sim, "%s: the program did not end", p->id);
    uint32_t outcome = 0;
    if (!sim->failed) {
        crash(run);
        outcome = p->outcome(run);
        if (outcome >= CR_LITMUS_OUTCOMES)
            sim_fail(sim, "%s: outcome %x: a value that nobody wrote", p->id, outcome);
    }
    if (sim->failed) {
        result->failed = true;
        snprintf(result->why, sizeof(result->why), "%.250s", sim->failure);
    }
    run->odometer->on = false;
    sim_fini(sim);
    sim_pool_delete(run->pool);
    return outcome;
}

/* ---- sets ---- */

static void put(uint64_t *set, uint32_t outcome)
{
    set[outcome / 64] |= UINT64_C(1) << (outcome % 64);
}

static bool has(const uint64_t *set, uint32_t outcome)
{
    return (set[outcome / 64] >> (outcome % 64) & 1) != 0;
}

static uint32_t size_of(const uint64_t *set)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < CR_LITMUS_OUTCOMES / 64; i++)
        count += (uint32_t)__builtin_popcountll(set[i]);
    return count;
}

static void parse(const char *text, uint64_t *set)
{
    while (*text != 0) {
        char *end;
        uint32_t from = (uint32_t)strtoul(text, &end, 16), to = from;
        if (*end == '-')
            to = (uint32_t)strtoul(end + 1, &end, 16);
        CAIRN_ASSERT(end != text && to < CR_LITMUS_OUTCOMES);
        for (uint32_t i = from; i <= to; i++)
            put(set, i);
        text = *end == ' ' ? end + 1 : end;
    }
}

void cr_litmus_text(const uint64_t *set, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < CR_LITMUS_OUTCOMES && used + 12 < size; i++) {
        uint32_t last = i;
        if (!has(set, i))
            continue;
        while (last + 1 < CR_LITMUS_OUTCOMES && has(set, last + 1))
            last++;
        const char *space = used == 0 ? "" : " ";
        int n = last - i > 1 ? snprintf(text + used, size - used, "%s%02x-%02x", space, i, last)
                             : snprintf(text + used, size - used, "%s%02x", space, i);
        used += (size_t)n;
        if (last - i > 1)
            i = last;
    }
}

/* ---- all tapes of one ---- */

static void judge(struct cr_litmus_result *r)
{
    r->allowed_count = size_of(r->allowed_set);
    r->seen_count = size_of(r->seen_set);
    r->verdict = r->failed ? CR_VIOLATION : CR_PASS;
    for (uint32_t i = 0; i < CR_LITMUS_OUTCOMES && r->verdict == CR_PASS; i++) {
        bool allowed = has(r->allowed_set, i), seen = has(r->seen_set, i);
        if (allowed == seen || (allowed && !r->exhausted))
            continue;
        r->verdict = CR_VIOLATION;
        snprintf(r->why, sizeof(r->why), "outcome %02x %s", i,
            allowed ? "is allowed and was never seen" : "is not allowed and was seen");
    }
    if (r->verdict == CR_PASS && !r->exhausted) {
        r->verdict = CR_INCONCLUSIVE;
        snprintf(r->why, sizeof(r->why), "not all tapes were run");
    }
}

/* Number `at` of the pairs (program, mode in which it runs). */
static const struct cr_litmus_program *find(uint32_t at, enum sim_mode *ret_mode)
{
    for (uint32_t i = 0; i < cr_litmus_program_count; i++)
        for (uint32_t mode = SIM_ADR; mode <= SIM_EADR; mode++)
            if (cr_litmus_programs[i].allowed[mode] != NULL && at-- == 0) {
                *ret_mode = mode;
                return &cr_litmus_programs[i];
            }
    return NULL;
}

uint32_t cr_litmus_count(void)
{
    enum sim_mode mode;
    uint32_t count = 0;

    while (find(count, &mode) != NULL)
        count++;
    return count;
}

void cr_litmus_run(uint32_t at, uint64_t runs_max, struct cr_litmus_result *ret)
{
    struct sim *sim = sim_calloc(1, sizeof(*sim));
    struct sim_odometer odometer;
    enum sim_mode mode = SIM_ADR;
    struct cr_litmus_run run = {.program = find(at, &mode), .sim = sim, .odometer = &odometer};

    CAIRN_ASSERT(run.program != NULL);
    *ret = (struct cr_litmus_result){.id = run.program->id, .mode = mode_names[mode],
        .program = run.program->text, .allowed = run.program->allowed[mode]};
    parse(ret->allowed, ret->allowed_set);
    sim_odometer_init(&odometer);
    odometer.fixed = fixed;
    do {
        uint32_t outcome = run_once(&run, mode, ret);
        if (!ret->failed)
            put(ret->seen_set, outcome);
        ret->exhausted = !sim_odometer_next(&odometer);
    } while (!ret->exhausted && !ret->failed &&
        odometer.runs < (runs_max != 0 ? runs_max : RUNS_MAX));
    if (odometer.diverged && !ret->failed) {
        ret->failed = true;
        snprintf(ret->why, sizeof(ret->why), "two runs of one tape differ");
    }
    ret->runs = odometer.runs;
    judge(ret);
    sim_odometer_fini(&odometer);
    sim_free(sim);
}

enum cr_verdict cr_litmus_run_all(struct cr_litmus_result *results)
{
    uint32_t count = cr_litmus_count();
    enum cr_verdict worst = CR_PASS;

    for (uint32_t i = 0; i < count; i++) {
        cr_litmus_run(i, 0, &results[i]);
        if (results[i].verdict == CR_VIOLATION ||
            (results[i].verdict == CR_INCONCLUSIVE && worst == CR_PASS))
            worst = results[i].verdict;
    }
    return worst;
}

void cr_litmus_print(const struct cr_litmus_result *results, uint32_t count, FILE *to)
{
    static const char *const names[] = {"exact", "WRONG", "unknown"};
    uint64_t runs = 0, wrong = 0, open = 0;

    fprintf(to, "%-5s %-9s %-8s %7s  %-14s %s\n", "id", "mode", "verdict", "tapes", "outcomes",
        "program");
    for (uint32_t i = 0; i < count; i++) {
        const struct cr_litmus_result *r = &results[i];
        fprintf(to, "%-5s %-9s %-8s %7lu  %-14s %s\n", r->id, r->mode, names[r->verdict], r->runs,
            r->allowed, r->program);
        if (r->verdict != CR_PASS) {
            char seen[256];
            cr_litmus_text(r->seen_set, seen, sizeof(seen));
            fprintf(to, "      %s; seen: %s\n", r->why, seen);
        }
        runs += r->runs;
        wrong += r->verdict == CR_VIOLATION;
        open += r->verdict == CR_INCONCLUSIVE;
    }
    fprintf(to, "litmus: %u programs, %lu tapes, %lu wrong, %lu not decided\n", count, runs, wrong,
        open);
}
