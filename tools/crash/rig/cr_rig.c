/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig.c: the second rig's run: a cluster of processes, set-up, clients under faults, healing,
 * the check, a clean stop, and a look at the pools (`cairn inspect --check`).
 */
#include "tools/crash/rig/cr_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/crash/rig/cr_rig_shared.h"
#include "tools/history/hs_check.h"
#include "tools/tl_cluster.h"

#define NODES 3u
#define CLIENTS 4u
#define SLOTS 32u
#define TICK_US 5000
#define END_TIMEOUT_S 60u
#define IDLE_S 10u /* of work in which no operation ends: the rest of the time shows nothing */

struct rig {
    const struct cr_rig_options *options;
    struct cr_report *report;
    struct tl_cluster cluster;
    struct rig_shared *shared;
    struct tl_child client[RIG_CLIENTS_MAX + 1];
    const struct cairn_workload *part[RIG_PARTS_MAX];
    uint32_t parts, nodes, clients;
    bool unable; /* a process could not do its work: that is told as a doubt */
    uint64_t random, begun;
    uint64_t ops, ops_at, worked_until; /* operations that ended, when the last one was seen */
    char shared_path[TL_PATH_MAX], cairn[TL_PATH_MAX], program[TL_PATH_MAX];
};

static uint64_t now(void)
{
    return cn_now_ns(cn_env_system());
}

static uint32_t draw(struct rig *r, uint32_t bound)
{
    return tl_draw(&r->random, bound);
}

static void say(const struct rig *r, const char *format, ...) CN_PRINTF(2, 3);

static void say(const struct rig *r, const char *format, ...)
{
    va_list args;

    if (!r->options->verbose)
        return;
    fprintf(stderr, "%7.2f s  ", (double)(now() - r->begun) / 1e9);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* What is wrong with the product. It cannot be shown again by itself: no command goes with it. */
static void violate(struct rig *r, const char *format, ...) CN_PRINTF(2, 3);

static void violate(struct rig *r, const char *format, ...)
{
    char text[CR_TEXT_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    cr_report_fail(r->report, r->options->seed, text, "");
}

/* Or it cannot go on: nothing more is to be seen. */
static bool has_failed(const struct rig *r)
{
    return r->report->violations != 0 || r->unable || rig_failure(r->shared) != NULL;
}

/* ---- processes ---- */

static int start_client(struct rig *r, uint32_t i, const char *call)
{
    struct tl_child *child = &r->client[i];
    char number[16], generation[16], text[16], name[] = "cairn-crash-client";
    char config_name[] = "--config", shared_name[] = "--shared", call_name[] = "--call";
    char client_name[] = "--client", generation_name[] = "--generation";
    char mutant_name[] = "--mutant-number", mutant[16];
    char *argv[] = {name, config_name, r->cluster.path, shared_name, r->shared_path, call_name,
        text, client_name, number, generation_name, generation, mutant_name, mutant, NULL};

    child->program = r->program;
    child->id = i;
    (void)snprintf(child->name, sizeof(child->name), i < r->clients ? "client %u" : "checker %u",
        i);
    (void)snprintf(text, sizeof(text), "%s", call);
    (void)snprintf(mutant, sizeof(mutant), "%d", r->options->mutant);
    (void)snprintf(number, sizeof(number), "%u", i);
    (void)snprintf(generation, sizeof(generation), "%u", child->generation++);
    return tl_proc_start(child, r->cluster.folder, argv, false);
}

/* As tl_proc_ended(). A client that ends with TL_USAGE could not do its work (memory, files, the
 * environment): nothing is said of the product. */
static int client_ended(struct rig *r, struct tl_child *child)
{
    siginfo_t info = {0};
    bool gone = child->pid != 0 &&
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == child->pid;
    bool gave_up = gone && info.si_code == CLD_EXITED && info.si_status == TL_USAGE;
    int rc = tl_proc_ended(child, r->cluster.folder);

    if (rc == CAIRN_E_STATE && gave_up) {
        cr_report_doubt(r->report, "%s", cairn_last_error());
        r->unable = true;
    }
    return rc;
}

/* A child that is gone and was not killed: the product's fault. */
static int check_children(struct rig *r)
{
    int rc = tl_cluster_check(&r->cluster);

    for (uint32_t i = 0; i < r->clients && rc == 0; i++) {
        struct tl_child *child = &r->client[i];
        if (child->pid == 0)
            continue;
        rc = client_ended(r, child);
        if (rc == 1 && r->shared->client[i].full != 0)
            rc = 0; /* its log is full */
        else if (rc == 1)
            rc = cn_fail(CAIRN_E_STATE, "%s ended before its time", child->name);
    }
    if (rc == CAIRN_E_STATE && !has_failed(r)) {
        violate(r, "%s", cairn_last_error());
        return 0;
    }
    return rc == CAIRN_E_STATE ? 0 : rc;
}

/* Run one call to its end, alone. */
static int run_alone(struct rig *r, const char *call)
{
    struct tl_child *child = &r->client[r->clients];
    uint64_t deadline = now() + END_TIMEOUT_S * UINT64_C(1000000000);
    int rc = start_client(r, r->clients, call);

    while (rc == 0) {
        rc = client_ended(r, child);
        if (rc == 1)
            return 0;
        if (rc == 0 && now() > deadline) {
            violate(r, "liveness: %s() does not end within %u s", call, END_TIMEOUT_S);
            (void)tl_proc_kill(child);
            return 0;
        }
        if (rc == 0)
            rc = tl_cluster_check(&r->cluster);
        (void)usleep(TICK_US);
    }
    if (rc == CAIRN_E_STATE && !has_failed(r))
        violate(r, "%s", cairn_last_error());
    return rc == CAIRN_E_STATE ? 0 : rc;
}

/* ---- faults ---- */

static void see_progress(struct rig *r)
{
    uint64_t ops = 0;

    for (uint32_t i = 0; i < r->clients; i++) {
        const struct rig_client *c = &r->shared->client[i];
        ops += c->committed + c->aborted + c->unknown;
    }
    r->worked_until = now();
    if (ops != r->ops)
        r->ops_at = r->worked_until;
    r->ops = ops;
}

static int rest(struct rig *r, uint32_t ms)
{
    uint64_t until = now() + ms * UINT64_C(1000000);
    int rc = 0;

    while (rc == 0 && now() < until && !has_failed(r)) {
        (void)usleep(TICK_US);
        see_progress(r);
        rc = check_children(r);
    }
    return rc;
}

static void kill_node(struct rig *r, uint32_t i)
{
    if (tl_proc_kill(&r->cluster.node[i]))
        r->report->crashes_node++;
}

static int revive_node(struct rig *r, uint32_t i)
{
    int rc = tl_cluster_restart(&r->cluster, i);

    r->report->restarts++;
    r->report->recoveries++;
    if (rc == 0)
        rc = tl_cluster_await(&r->cluster, i);
    if (rc != CAIRN_E_STATE && rc != CAIRN_E_TIMEOUT)
        return rc;
    violate(r, "%s", cairn_last_error());
    return 0;
}

static int crash_node(struct rig *r)
{
    uint32_t i = draw(r, r->nodes);

    say(r, "SIGKILL %s", r->cluster.node[i].name);
    kill_node(r, i);
    int rc = rest(r, draw(r, 2) == 0 ? 0 : draw(r, 300));
    return rc == 0 ? revive_node(r, i) : rc;
}

static int crash_client(struct rig *r)
{
    uint32_t i = draw(r, r->clients);

    say(r, "SIGKILL %s", r->client[i].name);
    r->report->crashes_client += tl_proc_kill(&r->client[i]);
    return start_client(r, i, "step");
}

static int crash_all(struct rig *r)
{
    bool clients = draw(r, 2) == 0;
    int rc = 0;

    say(r, "SIGKILL all nodes%s", clients ? " and clients" : "");
    for (uint32_t i = 0; i < r->nodes; i++)
        kill_node(r, i);
    for (uint32_t i = 0; i < r->clients && clients; i++)
        r->report->crashes_client += tl_proc_kill(&r->client[i]);
    for (uint32_t i = 0; i < r->nodes && rc == 0; i++)
        rc = revive_node(r, i);
    for (uint32_t i = 0; i < r->clients && clients && rc == 0; i++)
        rc = start_client(r, i, "step");
    return rc;
}

static int pause_one(struct rig *r)
{
    uint32_t i = draw(r, r->nodes + r->clients);
    const struct tl_child *child =
        i < r->nodes ? &r->cluster.node[i] : &r->client[i - r->nodes];

    if (child->pid == 0) /* its log is full: and 0 would be all of us */
        return 0;
    say(r, "SIGSTOP %s", child->name);
    r->report->pauses++;
    (void)kill(child->pid, SIGSTOP);
    int rc = rest(r, 1 + draw(r, draw(r, 2) == 0 ? 20 : 600));
    if (child->pid != 0) /* somebody else may have ended it meanwhile */
        (void)kill(child->pid, SIGCONT);
    return rc;
}

static int fault(struct rig *r)
{
    switch (draw(r, 8)) {
    case 0:
        return crash_all(r);
    case 1:
    case 2:
        return crash_node(r);
    case 3:
    case 4:
        return crash_client(r);
    default:
        return pause_one(r);
    }
}

/* ---- the run ---- */

static int work(struct rig *r)
{
    uint64_t until = now() + (uint64_t)(r->options->seconds * 1e9);
    int rc = 0;

    r->ops_at = r->shared->work_begin_ns = now();
    r->shared->work_ns = (uint64_t)(r->options->seconds * 1e9);
    for (uint32_t i = 0; i < r->clients && rc == 0; i++)
        rc = start_client(r, i, "step");
    while (rc == 0 && now() < until && !has_failed(r)) {
        rc = rest(r, 20 + draw(r, 250));
        if (rc == 0 && !r->options->no_faults && !has_failed(r))
            rc = fault(r);
    }
    return rc;
}

/* No fault any more: every client ends its step. */
static int stop_clients(struct rig *r)
{
    uint64_t deadline = now() + END_TIMEOUT_S * UINT64_C(1000000000);
    int rc = 0;

    __atomic_store_n(&r->shared->stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < r->clients && rc == 0; i++) {
        struct tl_child *child = &r->client[i];
        while (child->pid != 0 && (rc = client_ended(r, child)) == 0) {
            if (now() > deadline) {
                violate(r, "liveness: %s does not end its step within %u s", child->name,
                    END_TIMEOUT_S);
                (void)tl_proc_kill(child);
                break;
            }
            rc = tl_cluster_check(&r->cluster);
            if (rc != 0)
                break;
            (void)usleep(TICK_US);
        }
        if (rc == CAIRN_E_STATE && !has_failed(r))
            violate(r, "%s", cairn_last_error());
        rc = rc == 1 || rc == CAIRN_E_STATE ? 0 : rc;
    }
    return rc;
}

static void write_history(const struct rig *r, const struct hs_history *h, uint32_t part)
{
    char path[TL_PATH_MAX];
    int rc = 0;

    if (r->options->history == NULL)
        return;
    (void)snprintf(path, sizeof(path), "%s/%s.edn", r->options->history, r->part[part]->name);
    rc = hs_history_write_edn(h, HS_WRITE_LISTS, path);
    (void)snprintf(path, sizeof(path), "%s/%s.json", r->options->history, r->part[part]->name);
    if (rc == 0)
        rc = hs_history_write_json(h, HS_WRITE_LISTS, path);
    if (rc != 0)
        fprintf(stderr, "cairn crash: the history is not written: %s\n", cairn_last_error());
}

static void check_histories(struct rig *r)
{
    struct hs_check_report *report = calloc(1, sizeof(*report));

    if (report == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a check");
    for (uint32_t i = 0; i < r->parts; i++) {
        struct hs_history *h = rig_history(r->shared, i);
        if (h == NULL)
            continue;
        write_history(r, h, i);
        enum hs_verdict verdict = hs_check_lists(h, NULL, report);
        if (verdict == HS_UNKNOWN)
            cr_report_doubt(r->report, "%s: its history was not checked: %.800s",
                r->part[i]->name, report->text);
        else if (verdict == HS_FALSE)
            violate(r, "%s: history: %s: %.800s", r->part[i]->name,
                hs_verdict_name(report->verdict), report->text);
        hs_history_delete(&h);
    }
    free(report);
}

/* The nodes are stopped. */
static int check_pools(struct rig *r)
{
    char pool[TL_PATH_MAX], name[] = "cairn", inspect[] = "inspect", check[] = "--check";
    char *argv[] = {name, inspect, check, pool, NULL};
    struct tl_child child = {.program = r->cairn};
    int rc = 0;

    for (uint32_t i = 0; i < r->nodes && rc == 0; i++) {
        (void)snprintf(pool, sizeof(pool), "%s/n%u.pool", r->cluster.folder, i + 1);
        (void)snprintf(child.name, sizeof(child.name), "inspect %u", i + 1);
        rc = tl_proc_start(&child, r->cluster.folder, argv, false);
        uint64_t deadline = now() + END_TIMEOUT_S * UINT64_C(1000000000);
        while (rc == 0 && (rc = tl_proc_ended(&child, r->cluster.folder)) == 0) {
            if (now() > deadline || tl_interrupted)
                rc = tl_interrupted ? cn_fail(-EINTR, "interrupted")
                                    : cn_fail(CAIRN_E_STATE, "does not end");
            (void)usleep(TICK_US);
        }
        (void)tl_proc_kill(&child);
        if (rc == CAIRN_E_STATE)
            violate(r, "fsck of node %u's pool: %s", i + 1, cairn_last_error());
        rc = rc == 1 || rc == CAIRN_E_STATE ? 0 : rc;
    }
    return rc;
}

static int run_phases(struct rig *r)
{
    int rc = run_alone(r, "setup");

    if (rc == 0 && !has_failed(r))
        rc = work(r);
    if (rc == 0 && !has_failed(r)) {
        say(r, "healed");
        rc = stop_clients(r);
    }
    if (rc == 0 && !has_failed(r))
        rc = run_alone(r, "check");
    if (rc == 0 && !has_failed(r))
        check_histories(r);
    return rc;
}

static void add_counts(struct rig *r)
{
    struct cr_report *to = r->report;

    for (uint32_t i = 0; i < r->clients; i++) {
        const struct rig_client *c = &r->shared->client[i];
        to->ok += c->committed;
        to->fail += c->aborted;
        to->unknown += c->unknown;
        to->txns += c->committed + c->aborted + c->unknown;
    }
    for (uint32_t i = 0; i <= r->clients; i++)
        if (r->shared->client[i].full != 0)
            cr_report_doubt(to, "the log of client %u was full before the time was over", i);
    to->resolved += r->shared->resolved;
    to->seeds++;
    to->seconds += (double)(now() - r->begun) / 1e9;
    (void)snprintf(to->workload, sizeof(to->workload), "%.63s", r->shared->workload);
    (void)snprintf(to->mode, sizeof(to->mode), "processes over %.40s",
        r->options->fabric != NULL ? r->options->fabric : "emu");
    if (rig_failure(r->shared) != NULL)
        violate(r, "%s", rig_failure(r->shared));
    if (!r->options->no_faults && to->crashes_node + to->crashes_client + to->pauses == 0)
        cr_report_doubt(to, "there was no time for a fault");
    if (r->worked_until > r->ops_at + IDLE_S * UINT64_C(1000000000))
        cr_report_doubt(to, "no operation ended in the last %.0f s: workloads end when their "
            "ledgers are full; ask for less --time, or for other workloads",
            (double)(r->worked_until - r->ops_at) / 1e9);
}

static int start(struct rig *r)
{
    const struct cr_rig_options *o = r->options;
    struct tl_cluster_options cluster = {.fabric = o->fabric != NULL ? o->fabric : "emu",
        .address = o->address, .persistence = o->persistence, .name = "crash",
        .program = r->cairn, .nodes = r->nodes, .slots = SLOTS};
    int rc = rig_parts(o->workload, r->part, &r->parts);
    const struct rig_shape shape = {.workload = o->workload, .parts = r->part,
        .part_count = r->parts, .clients = r->clients, .seed = o->seed, .seconds = o->seconds};

    cluster.space = rig_shared_size(&shape);
    if (rc == 0)
        rc = tl_program_find("cairn", r->cairn);
    if (rc == 0)
        rc = tl_program_find(
            o->mutant != 0 ? "cairn-crash-client-mutants" : "cairn-crash-client", r->program);
    if (rc == 0)
        rc = tl_cluster_start(&cluster, &r->cluster);
    if (rc != 0)
        return rc;
    (void)snprintf(
        r->shared_path, sizeof(r->shared_path), "%.480s/shared", r->cluster.folder);
    return rig_shared_make(r->shared_path, &shape, &r->shared);
}

int cr_rig_run(const struct cr_rig_options *options, struct cr_report *report)
{
    struct rig *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return cn_fail(-ENOMEM, "no memory");
    r->options = options;
    r->report = report;
    r->nodes = options->nodes != 0 ? options->nodes : NODES;
    r->clients = options->clients != 0 ? options->clients : CLIENTS;
    CAIRN_ASSERT(r->nodes <= TL_NODES_MAX && r->clients <= RIG_CLIENTS_MAX);
    r->random = options->seed;
    r->begun = now();
    struct tl_progress *progress = tl_progress_start("crashing processes");
    int rc = start(r);
    if (rc == 0)
        rc = run_phases(r);
    for (uint32_t i = 0; i <= r->clients; i++)
        (void)tl_proc_kill(&r->client[i]);
    int stopped = tl_cluster_stop(&r->cluster, true);
    if (rc == 0 && stopped != 0 && !has_failed(r))
        violate(r, "%s", cairn_last_error());
    if (rc == 0 && !has_failed(r))
        rc = check_pools(r);
    if (r->shared != NULL)
        add_counts(r);
    if (report->ok == 0)
        cr_report_doubt(report, "nothing was committed");
    cr_report_close(report);
    tl_progress_end(progress);
    if (r->cluster.own && (options->keep || (r->shared != NULL && report->violations != 0)))
        fprintf(stderr, "pools and logs are kept in %s\n", r->cluster.folder);
    else if (r->cluster.own)
        tl_folder_remove(r->cluster.folder);
    rig_shared_unmap(&r->shared);
    free(r);
    return rc;
}
