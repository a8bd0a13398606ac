/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo.c: `cairn demo`: three nodes, some coordinators, SmallBank, SIGKILL; then the exact check
 * that nothing acknowledged was lost. The seed gives the workload and the moments and victims of
 * the kills; how the processes interleave is up to the machine.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/demo.h"

#define LOAD_TIMEOUT_NS UINT64_C(60000000000)
#define ENTRIES_PER_SECOND 100000u
#define ENTRIES_MAX 8000000u
#define POOL_BASE (UINT64_C(96) << 20)
#define POOL_PER_ACCOUNT 600u                  /* two items of a 128-byte block, index, and slack */
#define LEDGER_PER_SECOND (UINT64_C(25) << 20) /* of all contexts together, about */
#define SPACE_SPARE (UINT64_C(64) << 20)

/* ---- the folder ---- */

static uint64_t pool_size(const struct demo *d)
{
    uint64_t size = POOL_BASE + d->accounts * POOL_PER_ACCOUNT / DEMO_NODES;
    return cn_align_up(size, UINT64_C(1) << 21);
}

static int make_folder(struct demo *d)
{
    uint64_t needed = DEMO_NODES * pool_size(d) + d->seconds * LEDGER_PER_SECOND + SPACE_SPARE;
    int rc = tl_folder_make("cairn-demo", needed, d->folder);

    if (rc == -ENOSPC) {
        char text[256];
        cn_error_copy(text, sizeof(text));
        return cn_fail(rc, "%s, or lower --accounts", text);
    }
    (void)snprintf(d->config, sizeof(d->config), "%s/cairn.conf", d->folder);
    return rc;
}

static int write_config(const struct demo *d)
{
    char uuid[CN_UUID_TEXT_SIZE];
    struct cn_uuid cluster;
    FILE *f = fopen(d->config, "wxe");

    if (f == NULL)
        return cn_fail(-errno, "%s: cannot write: %s", d->config, strerror(errno));
    cn_random(cn_env_system(), cluster.b, sizeof(cluster.b));
    cn_uuid_format(&cluster, uuid);
    fprintf(f, "cluster = \"%s\";\nfabric = \"emu\";\nnodes = (\n", uuid);
    for (uint32_t i = 1; i <= DEMO_NODES; i++)
        fprintf(f,
            "    { id = %u; address = \"n%u.sock\"; pool = \"n%u.pool\"; size = \"%" PRIu64
            "M\"; }%s\n",
            i, i, i, pool_size(d) >> 20, i == DEMO_NODES ? "" : ",");
    fprintf(f,
        ");\ntables = ( { id = 1; name = \"savings\"; }, { id = 2; name = \"checking\"; } );\n"
        "options = { slots = 64; ring_size = \"512k\"; window = 256; lease_ms = 500;\n"
        "            resolve_ms = 200; verdict_s = 3600; };\n");
    if (fclose(f) != 0)
        return cn_fail(-errno, "%s: cannot write: %s", d->config, strerror(errno));
    return 0;
}

static int prepare(struct demo *d)
{
    int rc = make_folder(d);

    if (rc == 0)
        rc = write_config(d);
    if (rc == 0)
        rc = demo_control_map(d->folder, true, &d->control);
    if (rc != 0)
        return rc;
    struct demo_control *c = d->control;
    c->seed = d->seed;
    c->accounts = (uint32_t)d->accounts;
    c->processes = (uint32_t)d->processes;
    c->contexts = (uint32_t)d->contexts;
    c->entry_max = (uint32_t)cn_min64(ENTRIES_MAX, (d->seconds + 20) * ENTRIES_PER_SECOND);
    c->loading = c->processes * c->contexts;
    c->magic = DEMO_MAGIC;
    return 0;
}

/* ---- the run ---- */

static int start_all_nodes(struct demo *d, bool recovery)
{
    int rc = 0;

    for (uint32_t i = 0; i < DEMO_NODES && rc == 0; i++)
        rc = demo_start_node(d, i);
    for (uint32_t i = 0; i < DEMO_NODES && rc == 0; i++)
        rc = demo_await_node(d, i, recovery);
    return rc;
}

static int start_all_workers(struct demo *d)
{
    int rc = 0;

    for (uint32_t i = 0; i < d->processes && rc == 0; i++)
        rc = demo_start_worker(d, i);
    return rc;
}

static int wait_until(struct demo *d, uint64_t at_ns)
{
    int rc = 0;

    while (rc == 0 && cn_now_ns(cn_env_system()) < at_ns) {
        (void)usleep(20000);
        rc = demo_check_children(d);
        demo_tick(d);
    }
    return rc;
}

static int load(struct demo *d)
{
    uint64_t deadline = cn_now_ns(cn_env_system()) + LOAD_TIMEOUT_NS;
    int rc = start_all_workers(d);

    (void)snprintf(d->state, sizeof(d->state), "loading");
    while (rc == 0 && __atomic_load_n(&d->control->loading, __ATOMIC_ACQUIRE) != 0) {
        if (cn_now_ns(cn_env_system()) > deadline)
            return cn_fail(CAIRN_E_TIMEOUT, "loading takes too long");
        rc = wait_until(d, cn_now_ns(cn_env_system()) + 50000000);
    }
    return rc;
}

static int kill_a_node(struct demo *d, uint64_t *random)
{
    uint32_t i = (uint32_t)(sb_random(random) % DEMO_NODES);

    demo_kill(d, &d->node[i]);
    demo_say(d, "SIGKILL %s", d->node[i].name);
    (void)snprintf(d->state, sizeof(d->state), "%s is down", d->node[i].name);
    /* A while without it, so that transactions meet a node that is down. */
    int rc = wait_until(d, cn_now_ns(cn_env_system()) + sb_random(random) % 300000000);
    if (rc == 0)
        rc = demo_start_node(d, i);
    return rc == 0 ? demo_await_node(d, i, true) : rc;
}

static int kill_a_coordinator(struct demo *d, uint64_t *random)
{
    struct tl_child *child = &d->worker[sb_random(random) % d->processes];

    demo_aim(d, child);
    demo_kill(d, child);
    demo_say(d, "SIGKILL %s (all its contexts)", child->name);
    (void)snprintf(d->state, sizeof(d->state), "%s is down", child->name);
    int rc = wait_until(d, cn_now_ns(cn_env_system()) + sb_random(random) % 300000000);
    child->generation++;
    return rc == 0 ? demo_start_worker(d, child->id - 1) : rc;
}

static int kill_everything(struct demo *d)
{
    demo_aim(d, NULL);
    /* All at one moment, before the first is reaped. */
    for (uint32_t i = 0; i < DEMO_NODES; i++)
        (void)kill(d->node[i].pid, SIGKILL);
    for (uint32_t i = 0; i < d->processes; i++)
        (void)kill(d->worker[i].pid, SIGKILL);
    for (uint32_t i = 0; i < DEMO_NODES; i++)
        demo_kill(d, &d->node[i]);
    for (uint32_t i = 0; i < d->processes; i++)
        demo_kill(d, &d->worker[i]);
    demo_say(d, "SIGKILL everything at once: %u nodes, %u coordinators", DEMO_NODES,
        (unsigned)d->processes);
    (void)snprintf(d->state, sizeof(d->state), "all are down");
    int rc = start_all_nodes(d, true);
    for (uint32_t i = 0; i < d->processes; i++)
        d->worker[i].generation++;
    return rc == 0 ? start_all_workers(d) : rc;
}

static int kill_step(struct demo *d, unsigned step, uint64_t *random)
{
    int rc;

    switch (step) {
    case 0: rc = kill_a_node(d, random); break;
    case 1: rc = kill_a_coordinator(d, random); break;
    default: rc = kill_everything(d); break;
    }
    if (rc == 0)
        (void)snprintf(d->state, sizeof(d->state), "running");
    return rc;
}

static int run_workload(struct demo *d)
{
    uint64_t random = d->seed ^ UINT64_C(0x6b696c6c73), span = d->seconds * UINT64_C(1000000000);
    int rc = 0;

    d->run_ns = cn_now_ns(cn_env_system());
    demo_say(d, "loaded; SmallBank runs for %u s", (unsigned)d->seconds);
    (void)snprintf(d->state, sizeof(d->state), "running");
    __atomic_store_n(&d->control->phase, DEMO_RUN, __ATOMIC_RELEASE);
    for (unsigned step = 0; step < 3 && rc == 0 && !d->no_kills; step++) {
        uint64_t jitter = sb_random(&random) % (span / 10 + 1);
        rc = wait_until(d, d->run_ns + span * (step + 1) / 4 - jitter);
        if (rc == 0)
            rc = kill_step(d, step, &random);
    }
    if (rc == 0)
        rc = wait_until(d, d->run_ns + span);
    __atomic_store_n(&d->control->phase, DEMO_STOP, __ATOMIC_RELEASE);
    (void)snprintf(d->state, sizeof(d->state), "stopping");
    for (uint32_t i = 0; i < d->processes && rc == 0; i++)
        rc = demo_await_end(d, &d->worker[i], 30);
    return rc;
}

static int stop_nodes(struct demo *d)
{
    int rc = 0;

    for (uint32_t i = 0; i < DEMO_NODES; i++)
        (void)kill(d->node[i].pid, SIGTERM);
    for (uint32_t i = 0; i < DEMO_NODES && rc == 0; i++)
        rc = demo_await_end(d, &d->node[i], 20);
    return rc;
}

static int run_demo(struct demo *d)
{
    int rc = prepare(d);

    if (rc != 0)
        return rc;
    demo_say(d, "seed %" PRIu64 ", in %s", d->seed, d->folder);
    (void)snprintf(d->state, sizeof(d->state), "making pools");
    rc = start_all_nodes(d, false);
    if (rc == 0)
        rc = load(d);
    if (rc == 0)
        rc = run_workload(d);
    if (rc == 0)
        rc = demo_verify(d);
    if (rc == 0)
        rc = stop_nodes(d);
    if (rc == 0)
        rc = demo_verify_pools(d);
    return rc;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct demo d = {
        .self = self, .seconds = 20, .accounts = 100000, .processes = 2, .contexts = 2};
    const struct tl_option options[] = {
        {.name = "seed",
            .arg = "N",
            .help = "of workload and kills (default: random)",
            .number = &d.seed,
            .max = INT64_MAX},
        {.name = "seconds",
            .arg = "S",
            .help = "how long SmallBank runs (default 20)",
            .number = &d.seconds,
            .min = 1,
            .max = 3600},
        {.name = "accounts",
            .arg = "N",
            .help = "two keys each (default 100000)",
            .number = &d.accounts,
            .min = 2,
            .max = 10000000},
        {.name = "processes",
            .arg = "N",
            .help = "coordinator processes (default 2)",
            .number = &d.processes,
            .min = 1,
            .max = DEMO_PROCESSES_MAX},
        {.name = "contexts",
            .arg = "N",
            .help = "threads of each (default 2)",
            .number = &d.contexts,
            .min = 1,
            .max = DEMO_CONTEXTS_MAX},
        {.name = "no-kills", .help = "kill nobody", .flag = &d.no_kills},
        {.name = "keep", .help = "keep the folder with pools, ledgers and logs", .flag = &d.keep},
        {.name = "json", .help = "end with one JSON object on stdout", .flag = &d.json},
        {.name = NULL},
    };
    int first;

    cn_random(cn_env_system(), &d.seed, sizeof(d.seed));
    d.seed %= 1000000;
    int rc = tl_parse(self, options, argc, argv, 0, 0, &first);
    if (rc != -1)
        return rc;
    d.terminal = isatty(STDERR_FILENO) == 1;
    d.begin_ns = cn_now_ns(cn_env_system());
    cn_env_system_log_level(CN_LOG_ERROR);
    tl_catch_signals();
    rc = run_demo(&d);
    demo_kill_all(&d);
    demo_report(&d, rc);
    bool good = rc == 0 && demo_is_good(&d);
    if (d.control != NULL)
        (void)munmap(d.control, sizeof(*d.control));
    if (d.folder[0] != '\0' && (d.keep || (!good && !tl_interrupted)))
        fprintf(stderr, "pools, ledgers and logs are kept in %s\n", d.folder);
    else if (d.folder[0] != '\0')
        tl_folder_remove(d.folder);
    return good ? TL_OK : rc != 0 ? TL_USAGE : TL_BAD;
}

const struct tl_command cmd_demo = {
    .name = "demo",
    .args = "[OPTION...]",
    .summary = "Run SmallBank on three nodes, kill everybody, check that nothing is lost.",
    .example = "  cairn demo --seed 1\n"
               "  cairn demo --seed 7 --json | jq .verdict\n"
               "  (exit 0 only when nothing was lost, torn, leaked or left over)\n",
    .run = run,
};
