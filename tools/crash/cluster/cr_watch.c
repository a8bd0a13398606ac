/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_watch.c: a timer's signal looks whether the simulation moves on. The handler runs on the stack
 * of the client's fiber, in the middle of the workload's code, and leaves it by ending the fiber.
 */
#include "tools/crash/cluster/cr_watch.h"

#include "tools/crash/cluster/cr_cluster.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define TICKS 4u /* looks in the allowed time: a debugger that holds the program costs one */

static struct {
    struct cr_cluster *cluster;
    uint64_t seen; /* how far the simulation was at the last look */
    uint32_t still; /* looks at which it had not moved */
    uint32_t seconds;
    volatile sig_atomic_t busy;
    timer_t timer;
    bool armed;
} watch;

static int watch_signal(void)
{
    return SIGRTMIN + 5;
}

/* What only code that lets time pass changes: choices and operations do not count. */
static uint64_t progress_of(const struct sim *sim)
{
    return sim->stats.events + sim->stats.switches + sim->stats.yields;
}

static void on_tick(int signal_number)
{
    struct cr_cluster *c = watch.cluster;
    struct sim_actor *actor = c != NULL ? c->sim.running : NULL;
    struct cairn_run *run = actor != NULL && actor->role == SIM_CLIENT
        ? &((struct cr_client *)actor->arg)->run : NULL;

    (void)signal_number;
    if (run == NULL || run->call == CR_CALL_NONE || watch.busy != 0 ||
        progress_of(&c->sim) != watch.seen) {
        watch.seen = c != NULL ? progress_of(&c->sim) : 0;
        watch.still = 0;
        return;
    }
    if (++watch.still < TICKS)
        return;
    watch.still = 0;
    sim_fail(&c->sim, "%s: %s of client %s has let no time pass for %u s: an endless loop, or a "
        "call that blocks. A loop must call Cairn, which waits; for anything else there is no "
        "time in a run", run->part->workload->name, cr_call_name(run->call), actor->name,
        watch.seconds);
    sim_actor_die(actor, SIM_CRASH_PROCESS);
}

void cr_watch_start(struct cr_cluster *c, uint32_t seconds)
{
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_NODEFER | SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = watch_signal()};
    long long ns = (long long)seconds * 1000000000 / TICKS;
    struct itimerspec every = {{ns / 1000000000, ns % 1000000000}, {0, 1}};

    every.it_value = every.it_interval;
    memset(&watch, 0, sizeof(watch));
    watch.cluster = c;
    watch.seconds = seconds;
    event._sigev_un._tid = gettid();
    if (sigaction(watch_signal(), &action, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &event, &watch.timer) != 0)
        return; /* no timers: it only guards against mistakes */
    watch.armed = timer_settime(watch.timer, 0, &every, NULL) == 0;
}

void cr_watch_stop(void)
{
    watch.cluster = NULL;
    if (watch.armed)
        (void)timer_delete(watch.timer);
    watch.armed = false;
}

void cr_watch_excuse(bool busy)
{
    watch.busy = busy;
}
