/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_env.c: names of steps, the log's formatting, and the environment of a real process.
 *
 * Random bytes come from the kernel through a buffer per thread; what was given out is wiped, and a
 * forked child throws its copy of the buffer away, so that no two users ever get the same bytes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "include/internal/cn_env.h"

static const char *const step_names[CN_STEP_COUNT] = {
#define CN_X(name) #name,
    CN_STEPS(CN_X)
#undef CN_X
};

const char *cn_step_name(enum cn_step step)
{
    if ((unsigned)step >= CN_STEP_COUNT)
        return "invalid";
    return step_names[step];
}

void cn_log(const struct cn_env *env, enum cn_log_level level, const char *format, ...)
{
    char text[768];
    va_list args;

    if (env->log == NULL)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++) { /* one event is one line, whatever a peer sent */
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    }
    env->log(env->arg, level, text);
}

/* ---- a real process ---- */

CN_HOT
static uint64_t system_now_ns(void *arg CN_UNUSED)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t system_wall_s(void *arg CN_UNUSED)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

#define RANDOM_BUFFER_SIZE 512u

static _Thread_local struct {
    uint8_t bytes[RANDOM_BUFFER_SIZE];
    size_t left; /* the last `left` bytes are fresh */
} pool;

/* In the one thread that a forked child has. No look at the process number with each number drawn:
 * that is a system call, and who meets a lock draws how long to wait. */
static void forget_pool(void)
{
    pool.left = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    int rc = pthread_atfork(NULL, NULL, forget_pool);

    CAIRN_ASSERT(rc == 0); /* else a child would have our nonces */
}

static void fill_random(void *buf, size_t size)
{
    uint8_t *at = buf;

    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);

        if (got < 0) {
            /* Nothing sensible can be done without randomness: nonces would repeat. */
            CAIRN_ASSERT(errno == EINTR);
            continue;
        }
        at += got;
        size -= (size_t)got;
    }
}

static void system_random(void *arg CN_UNUSED, void *buf, size_t size)
{
    uint8_t *from;

    if (size > sizeof(pool.bytes)) {
        fill_random(buf, size);
        return;
    }
    if (pool.left < size) {
        fill_random(pool.bytes, sizeof(pool.bytes));
        pool.left = sizeof(pool.bytes);
    }
    from = pool.bytes + (sizeof(pool.bytes) - pool.left);
    memcpy(buf, from, size);
    memset(from, 0, size);
    pool.left -= size;
}

/* Set at start by the program, read by any thread. */
static int system_level = CN_LOG_WARNING;

void cn_env_system_log_level(enum cn_log_level level)
{
    __atomic_store_n(&system_level, (int)level, __ATOMIC_RELAXED);
}

static void system_log(void *arg CN_UNUSED, enum cn_log_level level, const char *text)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[1024], when[32] = "";
    struct timespec now;
    struct tm parts;
    int size;

    if ((unsigned)level >= CN_ARRAY_SIZE(names) ||
        (int)level > __atomic_load_n(&system_level, __ATOMIC_RELAXED))
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &parts) != NULL)
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &parts);
    size = snprintf(line, sizeof(line), "%s.%06ldZ cairn[%ld] %s: %s", when, now.tv_nsec / 1000,
        (long)getpid(), names[level], text);
    if (size < 0)
        return;
    if (size > (int)sizeof(line) - 2)
        size = (int)sizeof(line) - 2;
    line[size] = '\n';
    /* One write per line: lines of several threads and processes do not mix. */
    ssize_t written = write(STDERR_FILENO, line, (size_t)size + 1);
    (void)written;
}

const struct cn_env *cn_env_system(void)
{
    static const struct cn_env env = {
        .now_ns = system_now_ns,
        .wall_s = system_wall_s,
        .random = system_random,
        .log = system_log,
    };

    return &env;
}
