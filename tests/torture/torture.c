/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torture: three nodes and four coordinators in processes of their own, list-append and bank
 * transactions, and a nemesis that kills (SIGKILL) and pauses (SIGSTOP, SIGCONT) anyone at random,
 * and restarts the dead; and the processes kill and stop themselves at named steps, that is, in
 * the middle of commit and recovery. At the end everything is healed, every token gets its
 * verdict, every key is read, and it is checked that
 *   - the lists are strictly serializable, and nothing acknowledged is lost (hs_check.h),
 *   - every snapshot of the bank has the right total,
 *   - a token's transaction is there when COMMITTED and nowhere when ABORTED,
 *   - no process ended but by the nemesis, and all end when told,
 *   - pools are sound: no damage, no lock left, rings empty.
 *
 * --plant runs a broken client and no nemesis: then the checker has to find the anomaly.
 * --no-kills: pauses only. Soft-iWARP's kernel module needs that: who is killed while connecting
 * takes the listener of the node along, and now and then the kernel.
 *
 * The nemesis's choices come from --seed; their timing is real, so a seed is not a replay.
 * Over which fabric and on which pools: --fabric and the environment (ts_fabric.h).
 * Exit: 0 all is well, 1 a violation, 2 inconclusive. The folder is kept unless all is well.
 */
#include "tools/history/hs_check.h"
#include "tests/torture/tt_load.h"

#include <getopt.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define COORDINATORS 4u
#define NODES 3u
#define HEALED_MS 1500u

static const struct tt_faults node_faults = {.kill = 20000, .stop = 20000, .rare_kill = 100};
static const struct tt_faults client_faults = {.kill = 30000, .stop = 6000};

struct coordinator {
    struct tt_load load;
    pid_t pid;
};

struct actor { /* nodes, then coordinators */
    bool paused;
    uint64_t due_ns; /* continue when paused, start when dead */
};

struct torture {
    struct tt_cluster cluster;
    struct coordinator coordinator[COORDINATORS];
    struct actor actor[NODES + COORDINATORS];
    struct tt_random random;
    uint64_t seed;
    uint32_t seconds, threads, pause_us;
    enum tt_plant plant;
    bool keep, nemesis, kills;
    struct tt_end *end; /* shared */
    struct hs_check_report lists, bank;
    uint64_t node_kills, coordinator_kills, pauses, all_kills;
    uint32_t violations; /* beside what the checkers say */
    uint32_t unsure;
};

static void violation(struct torture *t, const char *format, ...) CN_PRINTF(2, 3);
static void violation(struct torture *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)fprintf(stderr, "VIOLATION: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    t->violations++;
}

/* ---- the actors ---- */

static pid_t *pid_of(struct torture *t, uint32_t i)
{
    return i < NODES ? &t->cluster.node_pid[i] : &t->coordinator[i - NODES].pid;
}

static void start_coordinator(struct torture *t, uint32_t i)
{
    struct coordinator *c = &t->coordinator[i];
    char log[32];

    (void)snprintf(log, sizeof(log), "coordinator%u.log", i);
    __atomic_store_n(&t->cluster.shared->striking[TT_NODES_MAX + i], 0, __ATOMIC_RELEASE);
    c->pid = tt_fork(&t->cluster, log, tt_run_load, &c->load);
    c->load.generation++;
}

static void start_actor(struct torture *t, uint32_t i)
{
    if (i < NODES)
        tt_node_start(&t->cluster, i);
    else
        start_coordinator(t, i - NODES);
}

/* Everybody who is dead without our doing is a finding: a failed assertion, an error at start.
 * Faults at steps kill and stop too. */
static void look_after(struct torture *t, uint32_t i)
{
    pid_t *pid = pid_of(t, i);
    int status;

    if (*pid == 0 || waitpid(*pid, &status, WNOHANG | WUNTRACED) != *pid)
        return;
    if (WIFSTOPPED(status)) {
        if (!t->actor[i].paused)
            t->actor[i].due_ns =
                tt_now_ns() + (20 + tt_random_below(&t->random, 1500)) * UINT64_C(1000000);
        t->actor[i].paused = true;
        return;
    }
    *pid = 0;
    t->actor[i].paused = false;
    t->actor[i].due_ns = tt_now_ns() + tt_random_below(&t->random, 400) * UINT64_C(1000000);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && t->nemesis)
        return;
    violation(t, "%s %u ended by itself: %s %d", i < NODES ? "node" : "coordinator",
        i < NODES ? i + 1 : i - NODES, WIFSIGNALED(status) ? "signal" : "status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void kill_actor(struct torture *t, uint32_t i)
{
    pid_t *pid = pid_of(t, i);

    if (*pid == 0)
        return;
    (void)kill(*pid, SIGKILL);
    (void)waitpid(*pid, NULL, 0);
    *pid = 0;
    t->actor[i].paused = false;
    t->actor[i].due_ns = tt_now_ns() + tt_random_below(&t->random, 400) * UINT64_C(1000000);
    (*(i < NODES ? &t->node_kills : &t->coordinator_kills))++;
}

static void pause_actor(struct torture *t, uint32_t i)
{
    if (*pid_of(t, i) == 0 || t->actor[i].paused)
        return;
    (void)kill(*pid_of(t, i), SIGSTOP);
    t->actor[i].paused = true;
    t->actor[i].due_ns = tt_now_ns() + (20 + tt_random_below(&t->random, 1500)) * UINT64_C(1000000);
    t->pauses++;
}

/* Who is due: go on, or start again. With `all` now. */
static void revive(struct torture *t, bool all)
{
    const uint64_t now = tt_now_ns();

    for (uint32_t i = 0; i < NODES + COORDINATORS; i++) {
        look_after(t, i);
        if (!all && now < t->actor[i].due_ns)
            continue;
        if (t->actor[i].paused) {
            (void)kill(*pid_of(t, i), SIGCONT);
            t->actor[i].paused = false;
        } else if (*pid_of(t, i) == 0) {
            start_actor(t, i);
        }
    }
}

/* ---- the nemesis ---- */

static void strike(struct torture *t)
{
    const uint32_t what = tt_random_below(&t->random, 100);
    const uint32_t node = tt_random_below(&t->random, NODES);
    const uint32_t coordinator = NODES + tt_random_below(&t->random, COORDINATORS);

    if (!t->kills) {
        pause_actor(t, what < 50 ? node : coordinator);
    } else if (what < 25) {
        kill_actor(t, node);
    } else if (what < 50) {
        kill_actor(t, coordinator);
    } else if (what < 68) {
        pause_actor(t, node);
    } else if (what < 92) {
        pause_actor(t, coordinator);
    } else {
        t->all_kills++;
        for (uint32_t i = 0; i < NODES; i++)
            kill_actor(t, i);
        for (uint32_t i = 0; i < COORDINATORS && what >= 97; i++)
            kill_actor(t, NODES + i);
    }
}

static void rage(struct torture *t)
{
    const uint64_t end = tt_now_ns() + t->seconds * UINT64_C(1000000000);
    uint64_t next = tt_now_ns() + 300000000u;

    if (t->nemesis) {
        t->cluster.shared->node_faults = node_faults;
        t->cluster.shared->client_faults = client_faults;
        if (!t->kills) {
            t->cluster.shared->node_faults.kill = t->cluster.shared->node_faults.rare_kill = 0;
            t->cluster.shared->client_faults.kill = 0;
        }
    }
    while (tt_now_ns() < end) {
        revive(t, false);
        if (t->nemesis && tt_now_ns() >= next) {
            strike(t);
            next = tt_now_ns() + (30 + tt_random_below(&t->random, 400)) * UINT64_C(1000000);
        }
        tt_sleep_us(5000);
    }
}

/* All run again: they must make progress, and end when told. */
/* No more faults at steps: also none of those that have seen the faults and not struck yet. */
static void end_step_faults(struct torture *t)
{
    struct tt_shared *shared = t->cluster.shared;
    const uint64_t end = tt_now_ns() + UINT64_C(10000000000);

    memset(&shared->node_faults, 0, sizeof(shared->node_faults));
    memset(&shared->client_faults, 0, sizeof(shared->client_faults));
    (void)__atomic_fetch_add(&shared->step_kills, 0, __ATOMIC_SEQ_CST); /* before the looks */
    for (uint32_t i = 0; i < NODES + COORDINATORS; i++) {
        const uint32_t *striking =
            &shared->striking[i < NODES ? i : TT_NODES_MAX + i - NODES];
        while (__atomic_load_n(striking, __ATOMIC_SEQ_CST) != 0 && tt_now_ns() < end) {
            look_after(t, i);
            if (*pid_of(t, i) == 0 || t->actor[i].paused)
                break; /* it struck */
            tt_sleep_us(1000);
        }
    }
}

static void heal(struct torture *t)
{
    struct tt_shared *shared = t->cluster.shared;
    uint64_t before;

    end_step_faults(t);
    revive(t, true);
    for (uint32_t i = 0; i < NODES; i++)
        if (!tt_node_await(&t->cluster, i, 20000))
            violation(t, "node %u does not come up", i + 1);
    before = __atomic_load_n(&shared->ok, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < 10; i++) {
        tt_sleep_us(HEALED_MS * 1000);
        if (__atomic_load_n(&shared->ok, __ATOMIC_RELAXED) > before + 10)
            break;
    }
    if (__atomic_load_n(&shared->ok, __ATOMIC_RELAXED) <= before + 10)
        violation(t, "no progress after healing");
    for (uint32_t i = 0; i < NODES + COORDINATORS; i++)
        look_after(t, i);
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < COORDINATORS; i++) {
        const pid_t pid = t->coordinator[i].pid;
        const int r = pid != 0 ? tt_wait(pid, 30000) : 0;
        t->coordinator[i].pid = 0;
        if (r != 0)
            violation(t, "coordinator %u does not end: status %d", i, r);
    }
}

/* ---- checking ---- */

static struct hs_history *load_history(struct torture *t)
{
    char pattern[300];
    glob_t files = {0};
    struct hs_history *all, **parts;
    size_t count = 0;

    (void)snprintf(pattern, sizeof(pattern), "%s/hist-*.log", t->cluster.dir);
    (void)glob(pattern, 0, NULL, &files);
    parts = calloc(files.gl_pathc + 1, sizeof(struct hs_history *));
    CAIRN_ASSERT(parts != NULL);
    for (; count < files.gl_pathc; count++) {
        bool torn;
        parts[count] = hs_history_new();
        if (hs_history_load(parts[count], files.gl_pathv[count], &torn) == 0)
            continue;
        (void)fprintf(stderr, "%s\n", cairn_last_error());
        t->unsure++;
    }
    all = hs_history_merge((const struct hs_history *const *)parts, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        hs_history_delete(&parts[i]);
    free(parts);
    globfree(&files);
    return all;
}

static void write_texts(struct torture *t, const struct hs_history *all)
{
    static const char *const names[2] = {"history", "history-bank"};
    char path[400];

    for (unsigned what = HS_WRITE_LISTS; what <= HS_WRITE_BANK; what++) {
        (void)snprintf(path, sizeof(path), "%s/%s.edn", t->cluster.dir, names[what]);
        if (hs_history_write_edn(all, (enum hs_write_what)what, path) != 0)
            t->unsure++;
        (void)snprintf(path, sizeof(path), "%s/%s.json", t->cluster.dir, names[what]);
        if (hs_history_write_json(all, (enum hs_write_what)what, path) != 0)
            t->unsure++;
    }
    (void)fprintf(stderr,
        "elle-cli --model list-append --consistency-models strict-serializable %s/history.json\n",
        t->cluster.dir);
}

static void check_histories(struct torture *t)
{
    const struct hs_bank_options bank = {
        .accounts = TT_ACCOUNTS, .total = (int64_t)TT_ACCOUNTS * TT_BALANCE};
    char dot[300];
    const struct hs_check_options options = {.need_final = true, .dot_path = dot};
    struct hs_history *all = load_history(t);

    (void)snprintf(dot, sizeof(dot), "%s/cycle.dot", t->cluster.dir);
    if (hs_check_lists(all, &options, &t->lists) != HS_TRUE)
        (void)fprintf(stderr, "lists: %s\n%s", hs_verdict_name(t->lists.verdict), t->lists.text);
    if (hs_check_bank(all, &bank, &t->bank) != HS_TRUE)
        (void)fprintf(stderr, "bank: %s\n%s", hs_verdict_name(t->bank.verdict), t->bank.text);
    if (t->keep || t->lists.verdict != HS_TRUE || t->bank.verdict != HS_TRUE)
        write_texts(t, all);
    hs_history_delete(&all);
}

static void end_and_check(struct torture *t)
{
    const uint32_t timeout_ms = 30000;
    int r;

    *t->end = (struct tt_end){.cluster = &t->cluster, .timeout_ms = timeout_ms};
    r = tt_wait(tt_fork(&t->cluster, "end.log", tt_run_end, t->end), timeout_ms + 30000);
    if (r != 0)
        violation(t, "the final reads fail: status %d (end.log)", r);
    if (t->end->wrong != 0)
        violation(t, "%llu tokens have a wrong verdict or none (end.log)",
            (unsigned long long)t->end->wrong);
    if (__atomic_load_n(&t->cluster.shared->errors, __ATOMIC_RELAXED) != 0)
        violation(t, "a coordinator met errors (coordinator*.log)");
    if (!tt_cluster_await_quiet(&t->cluster, 30000))
        violation(t, "the nodes do not become quiet");
    if (!tt_cluster_stop(&t->cluster, 10000))
        violation(t, "a node does not stop");
    else if (tt_cluster_check_pools(&t->cluster) != 0)
        violation(t, "a pool is not sound");
    check_histories(t);
}

/* ---- verdict ---- */

static enum hs_verdict planted_verdict(const struct torture *t)
{
    const uint64_t *count = t->lists.count;
    const uint64_t skew = count[HS_A_G_SINGLE] + count[HS_A_G2_ITEM] +
                          count[HS_A_G_SINGLE_PROCESS] + count[HS_A_G2_ITEM_PROCESS] +
                          count[HS_A_G_SINGLE_REALTIME] + count[HS_A_G2_ITEM_REALTIME];
    const uint64_t lost = count[HS_A_LOST_UPDATE] + count[HS_A_LOST_APPEND];

    if (t->violations != 0)
        return HS_FALSE;
    if (t->plant == TT_PLANT_SKEW)
        return skew > 0 && lost == 0 ? HS_TRUE : HS_FALSE;
    return lost > 0 ? HS_TRUE : HS_FALSE;
}

static enum hs_verdict verdict_of(const struct torture *t)
{
    if (t->plant != TT_PLANT_NONE)
        return planted_verdict(t);
    if (t->violations != 0 || t->lists.verdict == HS_FALSE || t->bank.verdict == HS_FALSE)
        return HS_FALSE;
    if (t->unsure != 0 || t->lists.verdict != HS_TRUE || t->bank.verdict != HS_TRUE)
        return HS_UNKNOWN;
    return HS_TRUE;
}

static void print_json(const struct torture *t, enum hs_verdict verdict)
{
    const struct tt_shared *s = t->cluster.shared;
    uint64_t starts = 0, open_ns = 0;

    for (uint32_t i = 0; i < NODES; i++) {
        starts += s->node[i].starts;
        open_ns = cn_max64(open_ns, s->node[i].open_ns_max);
    }
#define U(x) ((unsigned long long)(x))
    printf("{\"seed\":%llu,\"seconds\":%u,\"ok\":%llu,\"fail\":%llu,\"info\":%llu,\"unknown\":%llu,"
           "\"resolved\":%llu,\"transfers\":%llu,\"bank_reads\":%llu,",
        U(t->seed), t->seconds, U(s->ok), U(s->fail), U(s->info), U(s->unknown), U(s->resolved),
        U(s->transfers), U(s->bank_reads));
    printf(
        "\"tokens\":%llu,\"tokens_committed\":%llu,\"tokens_aborted\":%llu,\"tokens_expired\":%llu,"
        "\"node_kills\":%llu,\"coordinator_kills\":%llu,\"pauses\":%llu,\"all_kills\":%llu,"
        "\"step_kills\":%llu,\"step_stops\":%llu,",
        U(t->end->tokens), U(t->end->committed), U(t->end->aborted), U(t->end->expired),
        U(t->node_kills), U(t->coordinator_kills), U(t->pauses), U(t->all_kills), U(s->step_kills),
        U(s->step_stops));
    printf(
        "\"node_starts\":%llu,\"open_ms_max\":%.3f,\"keys\":%llu,\"elements\":%llu,\"edges\":%llu,"
        "\"check_ms\":%.1f,\"lists\":\"%s\",\"bank\":\"%s\",\"violations\":%u,\"anomalies\":{",
        U(starts), (double)open_ns / 1e6, U(t->lists.keys), U(t->lists.elements), U(t->lists.edges),
        (double)t->lists.ns / 1e6, hs_verdict_name(t->lists.verdict),
        hs_verdict_name(t->bank.verdict), t->violations);
    for (unsigned a = 0, n = 0; a < HS_ANOMALY_COUNT; a++)
        if (t->lists.count[a] + t->bank.count[a] > 0)
            printf("%s\"%s\":%llu", n++ > 0 ? "," : "", hs_anomaly_name((enum hs_anomaly)a),
                U(t->lists.count[a] + t->bank.count[a]));
    printf("},\"verdict\":\"%s\"}\n", hs_verdict_name(verdict));
#undef U
}

/* ---- options ---- */

static bool parse_options(struct torture *t, int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 't'}, {"threads", required_argument, NULL, 'j'},
        {"pause-us", required_argument, NULL, 'p'}, {"plant", required_argument, NULL, 'P'},
        {"fabric", required_argument, NULL, 'f'}, {"keep", no_argument, NULL, 'k'},
        {"no-nemesis", no_argument, NULL, 'n'}, {"no-kills", no_argument, NULL, 'l'}, {0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': t->seed = strtoull(optarg, NULL, 0); break;
        case 't': t->seconds = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'j': t->threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'p': t->pause_us = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'k': t->keep = true; break;
        case 'l': t->kills = false; break;
        case 'n': t->nemesis = false; break;
        case 'f':
            if (setenv("CAIRN_TEST_FABRIC", optarg, 1) != 0)
                return false;
            break;
        case 'P':
            t->plant = strcmp(optarg, "write-skew") == 0    ? TT_PLANT_SKEW
                       : strcmp(optarg, "lost-update") == 0 ? TT_PLANT_LOST_UPDATE
                                                            : TT_PLANT_NONE;
            t->nemesis = false;
            if (t->plant != TT_PLANT_NONE)
                break;
            return false;
        default: return false;
        }
    }
    return optind == argc && t->threads >= 1 && t->threads <= 16;
}

static bool set_up(struct torture *t)
{
    static const struct tt_options options = {
        .nodes = NODES,
        .pool_size = "256M",
        .geometry =
            "slots = 256; ring_size = \"128k\"; window = 256; lease_ms = 300; resolve_ms = 200;",
    };

    t->end = mmap(NULL, sizeof(*t->end), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->end == MAP_FAILED || tt_cluster_make(&t->cluster, &options) != 0)
        return false;
    (void)fprintf(stderr, "torture: seed %llu, %u s, folder %s\n", (unsigned long long)t->seed,
        t->seconds, t->cluster.dir);
    if (!tt_cluster_start(&t->cluster, 20000) ||
        tt_wait(tt_fork(&t->cluster, "setup.log", tt_run_setup, &t->cluster), 20000) != 0) {
        (void)fprintf(stderr, "the cluster does not start: see the logs in %s\n", t->cluster.dir);
        return false;
    }
    for (uint32_t i = 0; i < COORDINATORS; i++) {
        t->coordinator[i].load = (struct tt_load){.cluster = &t->cluster, .coordinator = i,
            .threads = t->threads, .pause_us_max = t->pause_us, .seed = t->seed, .plant = t->plant,
            .keys = t->plant != TT_PLANT_NONE ? 3 : TT_ACTIVE_KEYS};
        start_coordinator(t, i);
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct torture t = {.seconds = 60, .threads = 2, .pause_us = 2000, .nemesis = true,
        .kills = true};
    enum hs_verdict verdict;

    (void)signal(SIGPIPE, SIG_IGN); /* Soft-iWARP sends it, see rdma/README.md */
    t.seed = tt_now_ns();
    if (!parse_options(&t, argc, argv)) {
        (void)fprintf(stderr,
            "usage: torture [--seed N] [--seconds N] [--threads N] [--pause-us N] "
            "[--fabric emu|rpma] [--keep] [--no-nemesis] [--no-kills] "
            "[--plant write-skew|lost-update]\n");
        return 2;
    }
    t.random.state = cn_mix64(t.seed);
    if (!set_up(&t))
        return 2;
    rage(&t);
    heal(&t);
    end_and_check(&t);
    verdict = verdict_of(&t);
    print_json(&t, verdict);
    printf(
        "torture: seed %llu: verdict %s\n", (unsigned long long)t.seed, hs_verdict_name(verdict));
    if (verdict == HS_TRUE && !t.keep)
        tt_cluster_remove(&t.cluster);
    else
        printf("torture: kept in %s\n", t.cluster.dir);
    return verdict == HS_TRUE ? 0 : verdict == HS_FALSE ? 1 : 2;
}
