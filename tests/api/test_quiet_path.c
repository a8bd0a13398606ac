/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: from cairn_begin() to the return of cairn_commit() a warm context takes no memory, no lock
 * and makes no system call, but for waking a sleeping node. Method: malloc and the locks of
 * pthread are replaced in this program and count in the thread that is told so; the kernel
 * reports every system call of that thread to another one (seccomp), which counts and lets it go
 * on. FUTEX_WAKE, the wake-up of a node, is counted apart. Invariants: each counter is first seen
 * to count, in the same thread and the same way.
 *
 * Over a real provider of verbs (ts_fabric.h) system calls and locks that the provider itself makes
 * are its own; what Cairn and librpma do stays counted.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_cluster.h"
#include "txn/txn_ctx.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define T 1u
#define KEYS 6u
#define ROUNDS 200u

/* ---- what the thread does by itself ---- */

struct counts {
    uint64_t allocations, locks;
};
static __thread struct counts counted;
static __thread bool counting;

/* Who took a lock: code of a provider's library is told by its place afterwards. */
#define CALLERS_MAX 64u
struct caller {
    void *code;
    uint64_t locks;
};
static __thread struct caller callers[CALLERS_MAX];

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the run time allocates, locks and calls the kernel as it likes */
#else
#define SANITIZED 0

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);
void *malloc(size_t size)
{
    counted.allocations += counting;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    counted.allocations += counting;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    counted.allocations += counting;
    return __libc_realloc(p, size);
}
void *aligned_alloc(size_t alignment, size_t size)
{
    counted.allocations += counting;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **ret, size_t alignment, size_t size)
{
    counted.allocations += counting;
    *ret = __libc_memalign(alignment, size);
    return *ret == NULL ? ENOMEM : 0;
}
void free(void *p)
{
    counted.allocations += counting && p != NULL;
    __libc_free(p);
}

static void count_lock(void *code)
{
    if (!counting)
        return;
    counted.locks++;
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        if (callers[i].code != NULL && callers[i].code != code)
            continue;
        callers[i].code = code;
        callers[i].locks++;
        return;
    }
}

/* Looked up before main(): dlsym() may allocate and lock. */
#define LOCK_CALLS(X)                             \
    X(pthread_mutex_lock, pthread_mutex_t)        \
    X(pthread_mutex_trylock, pthread_mutex_t)     \
    X(pthread_rwlock_rdlock, pthread_rwlock_t)    \
    X(pthread_rwlock_wrlock, pthread_rwlock_t)    \
    X(pthread_rwlock_tryrdlock, pthread_rwlock_t) \
    X(pthread_rwlock_trywrlock, pthread_rwlock_t)
#define DEFINE_LOCK(name, type)                               \
    static int (*real_##name)(type * object);                 \
    int name(type *object)                                    \
    {                                                         \
        count_lock(__builtin_return_address(0));              \
        if (real_##name == NULL)                              \
            *(void **)&real_##name = dlsym(RTLD_NEXT, #name); \
        return real_##name(object);                           \
    }
LOCK_CALLS(DEFINE_LOCK)
static int (*real_spin)(pthread_spinlock_t *);
int pthread_spin_lock(pthread_spinlock_t *lock)
{
    count_lock(__builtin_return_address(0));
    if (real_spin == NULL)
        *(void **)&real_spin = dlsym(RTLD_NEXT, "pthread_spin_lock");
    return real_spin(lock);
}
#endif

/* Locks that providers of verbs took, of this thread and since `callers` was cleared. */
static uint64_t provider_locks(void)
{
    uint64_t locks = 0;

    for (uint32_t i = 0; i < CALLERS_MAX && callers[i].code != NULL; i++) {
        Dl_info info;
        if (dladdr(callers[i].code, &info) != 0 && info.dli_fname != NULL &&
            (strstr(info.dli_fname, "rdmav") != NULL || strstr(info.dli_fname, "libmlx") != NULL ||
                strstr(info.dli_fname, "libibverbs") != NULL))
            locks += callers[i].locks;
    }
    return locks;
}

/* ---- what the kernel sees ---- */

struct watch { /* written by the watching thread alone, read after `seen` says so */
    int fd;
    pthread_t thread;
    uint64_t calls, wakes; /* atomic */
    int last;              /* number of the last call that is no wake-up */
};

/* Lets every call go on, counted. Ends when the watched thread has ended. */
static void *watch_calls(void *arg)
{
    struct watch *w = arg;
    struct pollfd pfd = {.fd = w->fd, .events = POLLIN};

    while (poll(&pfd, 1, -1) == 1 && (pfd.revents & POLLIN) != 0) {
        struct seccomp_notif call = {0};
        struct seccomp_notif_resp answer = {0};
        if (ioctl(w->fd, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
            continue;
        bool wake = call.data.nr == SYS_futex &&
            ((int)call.data.args[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
        if (!wake)
            w->last = call.data.nr;
        __atomic_fetch_add(wake ? &w->wakes : &w->calls, 1, __ATOMIC_SEQ_CST);
        answer.id = call.id;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        (void)ioctl(w->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    return NULL;
}

/* From now on every call of this thread is reported. False: the kernel does not offer that. */
static bool watch_me(struct watch *w)
{
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};
    struct sock_fprog program = {1, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    w->fd = (int)syscall(
        SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    return w->fd >= 0;
}

/* ---- the measured thread ---- */

enum path { PATH_UPDATE, PATH_READ, PATH_INSERT_DELETE, PATH_ASYNC, PATH_COUNT };

struct measure {
    struct ts_cluster *cluster;
    enum path path;
    bool unable;
    char text[160]; /* of a failure: cmocka's own way out is for its thread only */
    char key[KEYS][32];
    size_t key_size[KEYS];
    struct watch watch;
    volatile int watched; /* the listener is there, or will not be */
    uint64_t trips; /* of the path without a wait: the most frequent number while warming up */
    uint32_t commits, quiet; /* rounds: committed; of these without a wait */
    uint64_t calls, wakes, wakeups;
    struct counts counts;
    uint64_t self_calls, self_allocations, self_locks; /* what the counters said of a provocation */
};

/* ---- several at once, on stacks of their own ---- */

#define AT_ONCE 3u /* each with two keys of its own */

struct body {
    struct measure *m;
    uint32_t first;
};

static int update_two(struct cairn_tx *tx, void *arg)
{
    const struct body *b = arg;
    char buf[16];
    size_t size;
    int rc = 0;

    for (uint32_t i = b->first; i < b->first + 2 && rc == 0; i++) {
        rc = cairn_get_for_update(tx, T, b->m->key[i], b->m->key_size[i], buf, sizeof(buf), &size);
        if (rc == 0)
            rc = cairn_put(tx, T, b->m->key[i], b->m->key_size[i], "value", 5);
    }
    return rc;
}

static bool some_at_once(struct measure *m, struct cairn_ctx *ctx)
{
    struct cairn_op op[AT_ONCE] = {{.done = NULL}};
    struct body body[AT_ONCE];
    bool all = true;

    for (uint32_t i = 0; i < AT_ONCE; i++) {
        body[i] = (struct body){m, 2 * i};
        if (cairn_run_async(ctx, update_two, &body[i], 1000, &op[i]) != 0)
            return false;
    }
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        while (op[i].result == CAIRN_PENDING)
            (void)cairn_poll(ctx);
        all = all && op[i].result == 0 && op[i].tries == 1;
    }
    return all;
}

static bool one_transaction(struct measure *m, struct cairn_ctx *ctx, uint32_t round)
{
    if (m->path == PATH_ASYNC)
        return some_at_once(m, ctx);
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    struct cairn_tx *tx;
    char buf[16];
    size_t size;
    int rc = cairn_begin(ctx, &tx);

    if (rc != 0)
        return false;
    uint32_t a = round % KEYS, b = (round + 1) % KEYS, c = (round + 2) % KEYS;
    if (m->path == PATH_READ) {
        for (uint32_t i = 0; i < KEYS && rc == 0; i++)
            rc = cairn_get(tx, T, m->key[i], m->key_size[i], buf, sizeof(buf), &size);
    } else if (m->path == PATH_UPDATE) {
        rc = cairn_get_for_update(tx, T, m->key[a], m->key_size[a], buf, sizeof(buf), &size);
        if (rc == 0)
            rc = cairn_get(tx, T, m->key[b], m->key_size[b], buf, sizeof(buf), &size);
        if (rc == 0)
            rc = cairn_put(tx, T, m->key[a], m->key_size[a], "value", 5);
        if (rc == 0)
            rc = cairn_put(tx, T, m->key[c], m->key_size[c], "value", 5);
    } else
        rc = (round / KEYS) % 2 == 0 ? cairn_delete(tx, T, m->key[a], m->key_size[a])
                                     : cairn_put(tx, T, m->key[a], m->key_size[a], "value", 5);
    if (rc != 0) {
        cairn_abort(tx);
        return false;
    }
    return cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED;
}

/* A call, an allocation and a lock on purpose: each counter must say one. */
static void provoke(struct measure *m)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    uint64_t before = __atomic_load_n(&m->watch.calls, __ATOMIC_SEQ_CST);

    (void)syscall(SYS_getppid);
    m->self_calls = __atomic_load_n(&m->watch.calls, __ATOMIC_SEQ_CST) - before;
    counted = (struct counts){0, 0};
    counting = true;
    void *volatile p = malloc(10);
    free(p);
    (void)pthread_mutex_lock(&mutex);
    (void)pthread_mutex_unlock(&mutex);
    counting = false;
    m->self_allocations = counted.allocations;
    m->self_locks = counted.locks;
}

/* Measured rounds, each after a pause in which the nodes apply. A round that met a lock which is
 * still held waits for its node, and sleeping is a call. Such a round is no path without conflict:
 * it reads again, which shows in its round trips. */
static void measure_rounds(struct measure *m, struct cairn_ctx *ctx)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct cairn_stats s0, s1;
        (void)usleep(3000);
        cairn_ctx_stats(ctx, &s0);
        uint64_t calls = __atomic_load_n(&m->watch.calls, __ATOMIC_SEQ_CST);
        uint64_t wakes = __atomic_load_n(&m->watch.wakes, __ATOMIC_SEQ_CST);
        counted = (struct counts){0, 0};
        memset(callers, 0, sizeof(callers));
        counting = true;
        bool committed = one_transaction(m, ctx, round);
        counting = false;
        calls = __atomic_load_n(&m->watch.calls, __ATOMIC_SEQ_CST) - calls;
        wakes = __atomic_load_n(&m->watch.wakes, __ATOMIC_SEQ_CST) - wakes;
        struct counts here = counted;
        here.locks -= provider_locks();
        cairn_ctx_stats(ctx, &s1);
        m->commits += committed;
        /* A grant or a question is a message. */
        if (!committed || s1.messages != s0.messages || s1.round_trips - s0.round_trips != m->trips)
            continue;
        m->quiet++;
        m->calls += calls;
        m->wakes += wakes;
        m->wakeups += s1.wakeups - s0.wakeups;
        m->counts.allocations += here.allocations;
        m->counts.locks += here.locks;
    }
}

static void warm_up(struct measure *m, struct cairn_ctx *ctx)
{
    uint32_t rounds[16] = {0}, best = 0;

    for (uint32_t round = 0; round < 120; round++) {
        struct cairn_stats s0, s1;
        cairn_ctx_stats(ctx, &s0);
        bool committed = one_transaction(m, ctx, round);
        cairn_ctx_stats(ctx, &s1);
        if (committed && s1.messages == s0.messages)
            rounds[cn_min64(s1.round_trips - s0.round_trips, 15)]++;
        (void)usleep(2000);
    }
    for (uint32_t i = 1; i < 16; i++)
        best = rounds[i] > rounds[best] ? i : best;
    m->trips = best;
}

static void *measured_thread(void *arg)
{
    struct measure *m = arg;
    struct cairn_ctx *ctx;

    if (cairn_ctx_open(m->cluster->cairn, &ctx) != 0) {
        (void)snprintf(m->text, sizeof(m->text), "%.150s", cairn_last_error());
        m->watch.fd = -1;
        m->watched = 1;
        return NULL;
    }
    warm_up(m, ctx);
    m->unable = !watch_me(&m->watch);
    __atomic_store_n(&m->watched, 1, __ATOMIC_RELEASE); /* by the parent's polling: no call */
    if (!m->unable) {
        provoke(m);
        measure_rounds(m, ctx);
    }
    cairn_ctx_close(&ctx);
    return NULL;
}

static void run_measure(struct measure *m)
{
    pthread_t thread;

    struct cairn_options options = CAIRN_OPTIONS_DEFAULT;
    options.inflight = m->path == PATH_ASYNC ? AT_ONCE : 1;
    m->cluster = ts_cluster_new(3, NULL, &options);
    struct cairn_ctx *ctx;
    struct cairn_tx *tx;
    enum cairn_outcome outcome;
    assert_int_equal(cairn_ctx_open(m->cluster->cairn, &ctx), 0);
    assert_int_equal(cairn_begin(ctx, &tx), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        m->key_size[i] = ts_cluster_key(m->cluster, T, i % 3, i, m->key[i]);
        assert_int_equal(cairn_put(tx, T, m->key[i], m->key_size[i], "value", 5), 0);
    }
    assert_int_equal(cairn_commit(tx, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    cairn_ctx_close(&ctx);
    assert_int_equal(pthread_create(&thread, NULL, measured_thread, m), 0);
    while (!__atomic_load_n(&m->watched, __ATOMIC_ACQUIRE))
        (void)usleep(1000);
    bool watching = !m->unable && m->watch.fd >= 0;
    if (watching)
        assert_int_equal(pthread_create(&m->watch.thread, NULL, watch_calls, &m->watch), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (watching) {
        assert_int_equal(pthread_join(m->watch.thread, NULL), 0);
        (void)close(m->watch.fd);
    }
    ts_cluster_delete(&m->cluster);
    assert_string_equal(m->text, "");
}

static void check_path(enum path path)
{
    struct measure *m = calloc(1, sizeof(*m));

    m->path = path;
    run_measure(m);
    if (m->unable) {
        print_message("skipped: the kernel does not report system calls here\n");
        free(m);
        skip();
    }
    print_message("quiet rounds %u of %u committed; calls %llu (last %d), allocations %llu, locks "
                  "%llu, wake-ups %llu\n",
        m->quiet, m->commits, (unsigned long long)m->calls, m->watch.last,
        (unsigned long long)m->counts.allocations, (unsigned long long)m->counts.locks,
        (unsigned long long)m->wakes);
    /* the counters count */
    assert_int_equal(m->self_calls, 1);
    assert_int_equal(m->self_allocations, 2);
    assert_int_equal(m->self_locks, 1);
    /* and the path is quiet */
    assert_true(m->quiet >= ROUNDS / 10);
    assert_int_equal(m->counts.allocations, 0);
    assert_int_equal(m->counts.locks, 0);
    if (ts_fabric_is_emu()) {
        assert_int_equal(m->calls, 0);
        assert_int_equal(m->wakes, m->wakeups); /* and the context's own counter says so too */
    }
    free(m);
}

static void path__read__no_memory_no_lock_no_call(void **state)
{
    (void)state;
    check_path(PATH_READ);
}

static void path__update__no_memory_no_lock_no_call(void **state)
{
    (void)state;
    check_path(PATH_UPDATE);
}

static void path__insert_and_delete__no_memory_no_lock_no_call(void **state)
{
    (void)state;
    check_path(PATH_INSERT_DELETE);
}

static void path__async__no_memory_no_lock_no_call(void **state)
{
    (void)state;
    check_path(PATH_ASYNC);
}

int main(void)
{
    if (SANITIZED)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(path__read__no_memory_no_lock_no_call),
        cmocka_unit_test(path__update__no_memory_no_lock_no_call),
        cmocka_unit_test(path__insert_and_delete__no_memory_no_lock_no_call),
        cmocka_unit_test(path__async__no_memory_no_lock_no_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
