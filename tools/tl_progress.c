/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_progress.c: a thread that speaks when something takes longer than two seconds: a line that is
 * rewritten each second on a terminal, one new line each ten seconds elsewhere.
 */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "tools/tl.h"

#define QUIET_S 2
#define LOG_EVERY_S 10

struct tl_progress {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool end, spoke;
    char what[256];
};

static void speak(struct tl_progress *p, int seconds, bool terminal)
{
    if (terminal)
        fprintf(stderr, "\r%s ... %d s ", p->what, seconds);
    else if (seconds % LOG_EVERY_S == QUIET_S)
        fprintf(stderr, "%s ... %d s\n", p->what, seconds);
    p->spoke = true;
}

static void *watch(void *arg)
{
    struct tl_progress *p = arg;
    bool terminal = isatty(STDERR_FILENO) == 1;
    struct timespec at;

    (void)clock_gettime(CLOCK_REALTIME, &at);
    (void)pthread_mutex_lock(&p->mutex);
    for (int seconds = 1; !p->end; seconds++) {
        at.tv_sec++;
        while (!p->end && pthread_cond_timedwait(&p->cond, &p->mutex, &at) == 0)
            ;
        if (!p->end && seconds >= QUIET_S)
            speak(p, seconds, terminal);
    }
    if (p->spoke)
        fprintf(stderr, terminal ? "\r%s: done          \n" : "%s: done\n", p->what);
    (void)pthread_mutex_unlock(&p->mutex);
    return NULL;
}

struct tl_progress *tl_progress_start(const char *what)
{
    struct tl_progress *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    (void)snprintf(p->what, sizeof(p->what), "%s", what);
    (void)pthread_mutex_init(&p->mutex, NULL);
    (void)pthread_cond_init(&p->cond, NULL);
    if (pthread_create(&p->thread, NULL, watch, p) != 0) {
        free(p);
        return NULL;
    }
    return p;
}

void tl_progress_end(struct tl_progress *p)
{
    if (p == NULL)
        return;
    (void)pthread_mutex_lock(&p->mutex);
    p->end = true;
    (void)pthread_cond_signal(&p->cond);
    (void)pthread_mutex_unlock(&p->mutex);
    (void)pthread_join(p->thread, NULL);
    (void)pthread_cond_destroy(&p->cond);
    (void)pthread_mutex_destroy(&p->mutex);
    free(p);
}
