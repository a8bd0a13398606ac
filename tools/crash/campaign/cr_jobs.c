/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_jobs.c: workers over pipes: the parent writes the number of an item, the worker answers with
 * that number and the result. Results that come out of order wait in a window of a few per worker.
 */
#include "tools/crash/campaign/cr_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(CAIRN_COVERAGE)
#include <gcov.h>
#endif

#define WINDOW 8u /* results waiting, per worker */
#define WORDS_MAX 512u
#define QUIET_S 2.0
#define LOG_EVERY_S 10.0

struct worker {
    pid_t pid; /* 0: none */
    int to, from, words; /* pipes, and the file its stderr goes to */
    bool busy;
    uint64_t item;
    struct cr_note *note; /* shared */
    uint64_t beats;       /* as last seen, at ... */
    double beat_at;
    uint8_t *buffer; /* item and result as they come in */
    size_t filled;
};

struct pool {
    struct cr_jobs *jobs;
    struct worker worker[CR_JOBS_MAX];
    uint32_t count, window;
    uint8_t *slot;     /* window results, by item % window */
    bool *full;
    uint64_t next, added; /* items: to begin, added */
    bool enough;
    double begun, said_at;
    bool terminal, spoke;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void cr_jobs_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool cr_jobs_interrupted(void)
{
    return interrupted != 0;
}

uint32_t cr_jobs_default(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return n < 1 ? 1 : n > (int)CR_JOBS_MAX ? CR_JOBS_MAX : (uint32_t)n;
}

double cr_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- in a worker ---- */

static bool read_all(int fd, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (uint8_t *)to + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const uint8_t *)from + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static void leave_nothing(pid_t parent, bool patient)
{
    struct rlimit none = {0, 0};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* it died before that */
    (void)setrlimit(RLIMIT_CORE, &none);
    if (!patient) { /* else the handler stays; the parent ends its workers */
        (void)signal(SIGINT, SIG_IGN);
        (void)signal(SIGTERM, SIG_DFL);
    }
    (void)signal(SIGPIPE, SIG_DFL);
}

CN_NORETURN static void work(const struct cr_jobs *jobs, struct worker *w, int in, int out)
{
    uint64_t item;
    uint8_t *result = malloc(jobs->result_size);

    if (!jobs->talk) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0)
            (void)dup2(null, STDOUT_FILENO);
        (void)dup2(w->words, STDERR_FILENO);
    }
    while (result != NULL && read_all(in, &item, sizeof(item))) {
        if (!jobs->talk) {
            (void)ftruncate(w->words, 0);
            (void)lseek(w->words, 0, SEEK_SET);
        }
        memset(result, 0, jobs->result_size);
        jobs->run(jobs->arg, item, w->note, result);
        (void)fflush(stdout);
        if (!write_all(out, &item, sizeof(item)) || !write_all(out, result, jobs->result_size))
            _exit(1);
    }
    free(result);
#if defined(CAIRN_COVERAGE)
    __gcov_dump(); /* _exit() does not */
#endif
    _exit(0);
}

/* ---- workers come and go ---- */

static void forget(struct worker *w)
{
    if (w->to >= 0)
        (void)close(w->to);
    if (w->from >= 0)
        (void)close(w->from);
    if (w->words >= 0)
        (void)close(w->words);
    w->to = w->from = w->words = -1;
    w->pid = 0;
    w->busy = false;
    w->filled = 0;
}

static int start(struct pool *p, struct worker *w)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    pid_t parent = getpid();

    w->to = w->from = w->words = -1;
    if (pipe2(in, O_CLOEXEC) != 0)
        return cn_fail(-errno, "no pipe for a worker: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0 || (w->words = memfd_create("words", MFD_CLOEXEC)) < 0) {
        int error = errno;
        for (int i = 0; i < 2; i++) {
            (void)close(in[i]);
            if (out[i] >= 0)
                (void)close(out[i]);
        }
        return cn_fail(-error, "no pipe for a worker: %s", strerror(error));
    }
    (void)fflush(stdout);
    memset(w->note, 0, sizeof(*w->note));
    w->pid = fork();
    if (w->pid == 0) {
        leave_nothing(parent, p->jobs->patient);
        for (uint32_t i = 0; i < p->count; i++)
            if (&p->worker[i] != w && p->worker[i].pid > 0) {
                (void)close(p->worker[i].to);
                (void)close(p->worker[i].from);
            }
        (void)close(in[1]);
        (void)close(out[0]);
        work(p->jobs, w, in[0], out[1]);
    }
    int error = errno;
    (void)close(in[0]);
    (void)close(out[1]);
    w->to = in[1];
    w->from = out[0];
    if (w->pid < 0) {
        forget(w);
        return cn_fail(-error, "no process for a worker: %s", strerror(error));
    }
    return 0;
}

static void end(struct worker *w, bool kill_it)
{
    if (w->pid <= 0)
        return;
    if (kill_it)
        (void)kill(w->pid, SIGKILL);
    if (w->to >= 0)
        (void)close(w->to); /* an idle worker ends by this */
    w->to = -1;
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    forget(w);
}

static void tell_how(const struct worker *w, int status, bool stuck, char *how, size_t size)
{
    char words[WORDS_MAX + 1] = "";
    off_t length = lseek(w->words, 0, SEEK_END);
    off_t from = length > (off_t)WORDS_MAX ? length - (off_t)WORDS_MAX : 0;
    ssize_t n = length > 0 ? pread(w->words, words, WORDS_MAX, from) : 0;

    words[n > 0 ? n : 0] = '\0';
    while (n > 0 && words[n - 1] == '\n')
        words[--n] = '\0';
    if (stuck)
        (void)snprintf(how, size, "the run does not end");
    else if (WIFSIGNALED(status))
        (void)snprintf(how, size, "the process died of signal %d (%s)", WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    else
        (void)snprintf(how, size, "the process ended with exit code %d", WEXITSTATUS(status));
    size_t at = strlen(how);
    if (n > 0)
        (void)snprintf(how + at, size - at, "; last words: %s", words);
}

/* ---- results ---- */

static void keep(struct pool *p, uint64_t item, const void *result)
{
    uint64_t at = item % p->window;

    memcpy(p->slot + at * p->jobs->result_size, result, p->jobs->result_size);
    p->full[at] = true;
    while (!p->enough && p->full[p->added % p->window]) {
        at = p->added % p->window;
        p->full[at] = false;
        p->enough =
            !p->jobs->add(p->jobs->arg, p->added, p->slot + at * p->jobs->result_size);
        p->added++;
    }
}

static int bury(struct pool *p, struct worker *w, bool stuck)
{
    char how[WORDS_MAX + 128];
    int status = 0;
    uint8_t *result = calloc(1, p->jobs->result_size);
    bool was_busy = w->busy;
    uint64_t item = w->item;

    if (result == NULL)
        return cn_fail(-ENOMEM, "no memory for a result");
    if (stuck)
        (void)kill(w->pid, SIGKILL);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    tell_how(w, status, stuck, how, sizeof(how));
    forget(w);
    if (was_busy) {
        p->jobs->died(p->jobs->arg, item, w->note, how, stuck, result);
        keep(p, item, result);
    }
    free(result);
    return was_busy ? 0 : cn_fail(-EIO, "an idle worker is gone: %s", how);
}

/* What a worker has written. */
static int receive(struct pool *p, struct worker *w)
{
    size_t size = sizeof(w->item) + p->jobs->result_size;
    ssize_t n = read(w->from, w->buffer + w->filled, size - w->filled);
    uint64_t item;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0)
        return bury(p, w, false);
    w->filled += (size_t)n;
    if (w->filled < size)
        return 0;
    w->filled = 0;
    w->busy = false;
    memcpy(&item, w->buffer, sizeof(item));
    CAIRN_ASSERT(item == w->item);
    keep(p, item, w->buffer + sizeof(item));
    return 0;
}

static bool more(struct pool *p)
{
    struct cr_jobs *jobs = p->jobs;

    if (p->enough || interrupted || p->next >= jobs->items)
        return false;
    if (jobs->seconds > 0 && cr_seconds() - p->begun > jobs->seconds) {
        jobs->out_of_time = jobs->items != UINT64_MAX;
        return false;
    }
    return true;
}

static int hand_out(struct pool *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct worker *w = &p->worker[i];
        if (w->busy || p->next - p->added >= p->window || !more(p))
            continue;
        if (w->pid == 0) {
            int rc = start(p, w);
            if (rc != 0)
                return rc;
        }
        w->item = p->next;
        w->busy = true;
        w->beats = w->note->beats;
        w->beat_at = cr_seconds();
        p->next++;
        /* A worker that has died meanwhile is seen by its pipe: the item is its last one. */
        (void)write_all(w->to, &w->item, sizeof(w->item));
    }
    return 0;
}

static void say(struct pool *p, bool last)
{
    double now = cr_seconds(), took = now - p->begun;
    char of[32] = "";

    if (p->jobs->what == NULL || took < QUIET_S || (last && !p->spoke) ||
        (!last && now - p->said_at < (p->terminal ? 1.0 : LOG_EVERY_S) && p->spoke))
        return;
    p->said_at = now;
    p->spoke = true;
    if (p->jobs->items != UINT64_MAX)
        (void)snprintf(of, sizeof(of), " of %" PRIu64, p->jobs->items);
    fprintf(stderr, "%s%s: %" PRIu64 "%s, %.0f s%s", p->terminal ? "\r" : "", p->jobs->what,
        p->added, of, took, p->terminal && !last ? "  " : "\n");
    (void)fflush(stderr);
}

static int look_for_stuck(struct pool *p)
{
    double now = cr_seconds();
    uint32_t patience = p->jobs->stuck_s != 0 ? p->jobs->stuck_s : 300;
    int rc = 0;

    for (uint32_t i = 0; i < p->count && rc == 0; i++) {
        struct worker *w = &p->worker[i];
        if (!w->busy)
            continue;
        if (w->note->beats != w->beats) {
            w->beats = w->note->beats;
            w->beat_at = now;
        } else if (now - w->beat_at > patience) {
            rc = bury(p, w, true);
        }
    }
    return rc;
}

static int turn(struct pool *p, bool *ret_busy)
{
    struct pollfd fds[CR_JOBS_MAX];
    struct worker *of[CR_JOBS_MAX];
    nfds_t n = 0;
    int rc = hand_out(p);

    for (uint32_t i = 0; i < p->count; i++)
        if (p->worker[i].busy) {
            of[n] = &p->worker[i];
            fds[n++] = (struct pollfd){.fd = p->worker[i].from, .events = POLLIN};
        }
    *ret_busy = n > 0;
    if (rc != 0 || n == 0 || (interrupted && !p->jobs->patient) || p->enough)
        return rc;
    int ready = poll(fds, n, 500);
    for (nfds_t i = 0; i < n && ready > 0 && rc == 0; i++)
        if (fds[i].revents != 0)
            rc = receive(p, of[i]);
    if (rc == 0)
        rc = look_for_stuck(p);
    say(p, false);
    return rc;
}

static int open_pool(struct pool *p, struct cr_jobs *jobs)
{
    memset(p, 0, sizeof(*p));
    p->jobs = jobs;
    p->count = jobs->jobs > CR_JOBS_MAX ? CR_JOBS_MAX : jobs->jobs == 0 ? 1 : jobs->jobs;
    p->window = p->count * WINDOW;
    p->slot = calloc(p->window, jobs->result_size);
    p->full = calloc(p->window, sizeof(*p->full));
    p->begun = cr_seconds();
    p->terminal = isatty(STDERR_FILENO) == 1;
    struct cr_note *notes = mmap(NULL, p->count * sizeof(*notes), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (notes == MAP_FAILED || p->slot == NULL || p->full == NULL)
        return cn_fail(-ENOMEM, "no memory for workers");
    for (uint32_t i = 0; i < p->count; i++) {
        struct worker *w = &p->worker[i];
        w->to = w->from = w->words = -1;
        w->note = &notes[i];
        w->buffer = malloc(sizeof(w->item) + jobs->result_size);
        if (w->buffer == NULL)
            return cn_fail(-ENOMEM, "no memory for workers");
    }
    return 0;
}

static void close_pool(struct pool *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        end(&p->worker[i], p->worker[i].busy);
        free(p->worker[i].buffer);
    }
    if (p->worker[0].note != NULL)
        (void)munmap(p->worker[0].note, p->count * sizeof(struct cr_note));
    free(p->slot);
    free(p->full);
}

int cr_jobs_run(struct cr_jobs *jobs)
{
    struct pool *p = malloc(sizeof(*p));
    bool busy = true;

    if (p == NULL)
        return cn_fail(-ENOMEM, "no memory for workers");
    void (*pipe_handler)(int) = signal(SIGPIPE, SIG_IGN);
    int rc = open_pool(p, jobs);
    while (rc == 0 && busy && (!interrupted || jobs->patient) && !p->enough)
        rc = turn(p, &busy);
    say(p, true);
    jobs->done = p->added;
    jobs->interrupted = interrupted != 0;
    close_pool(p);
    free(p);
    (void)signal(SIGPIPE, pipe_handler);
    return rc;
}
