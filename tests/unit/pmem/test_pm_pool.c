/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: real pools through libpmemobj, on tmpfs and on an ordinary file: creation, opening, and one
 * error per thing that can be wrong; looking read-only changes no byte. Method: each case runs in
 * both places; the file is damaged from outside.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <libpmemobj.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmem/pm_format.h"
#include "tests/support/ts_pool.h"

#if defined(__x86_64__)
#include <ucontext.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

static const char *const places[] = {"/dev/shm", "/tmp"};
static char dir[64], path[96];
static const struct cn_uuid cluster = {{0xab, 0xcd}};

static int setup(void **state)
{
    (void)snprintf(dir, sizeof(dir), "%s/cairn-test-XXXXXX", *(const char *const *)*state);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/pool", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)rmdir(dir);
    return 0;
}

static void create(void)
{
    uint64_t size = pm_pool_size_min(&ts_geometry_small, 1 << 20);

    if (pm_pool_create(path, size, &ts_geometry_small, &cluster, 3, cn_env_system()) != 0)
        fail_msg("%s", cairn_last_error());
}

static int open_as(enum pm_open_mode mode, struct pm_pool **pool)
{
    return pm_pool_open(path, mode, 0, cn_env_system(), pool);
}

static uint64_t super_off(void)
{
    struct pm_pool *pool;
    uint64_t off;

    assert_int_equal(open_as(PM_OPEN_READ_ONLY, &pool), 0);
    off = pool->super_off;
    pm_pool_close(&pool);
    return off;
}

static uint32_t file_crc(void)
{
    static uint8_t buf[65536];
    int fd = open(path, O_RDONLY);
    uint32_t crc = 0;
    ssize_t got;

    assert_true(fd >= 0);
    while ((got = read(fd, buf, sizeof(buf))) > 0)
        crc = cn_crc32c(crc, buf, (size_t)got);
    (void)close(fd);
    return crc;
}

static void flip(uint64_t off, uint8_t mask)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
    (void)close(fd);
}

/* Both ways of opening say the same, name the file, and leave it alone. */
static void expect(int error)
{
    struct pm_pool *pool = NULL;
    uint32_t crc = file_crc();

    for (int mode = PM_OPEN_OWNER; mode <= PM_OPEN_READ_ONLY; mode++) {
        int rc = open_as((enum pm_open_mode)mode, &pool);

        if (rc != error)
            fail_msg("mode %d: %s (%s), not %s", mode, cairn_error_name(rc), cairn_last_error(),
                cairn_error_name(error));
        assert_non_null(strstr(cairn_last_error(), path));
        assert_null(pool);
    }
    assert_int_equal(file_crc(), crc);
}

static void pm_pool_open__fresh_pool__as_created(void **state)
{
    struct pm_pool *pool;
    struct stat st;

    (void)state;
    create();
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    assert_int_equal(pool->super.node, 3);
    assert_true(cn_uuid_equal(&pool->super.cluster, &cluster));
    assert_int_equal(pool->super.geometry.window, 8);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(pool->pm.size, st.st_size);
    assert_true(pool->fd >= 0);
    assert_string_equal(pool->path, path);
    assert_true(pool->super.extent[0].off + pool->super.extent[0].size - pool->super.heap_off >=
        1 << 20);
    for (uint64_t off = pool->super.slots_off;
         off < pool->super.extent[0].off + pool->super.extent[0].size; off += 8)
        assert_true(pm_load64(&pool->pm, off) == 0);
    /* Offsets of the pool are offsets of the file. */
    pm_store64(&pool->pm, pool->super.heap_off, UINT64_C(0x1122334455667788));
    pm_flush(&pool->pm, pool->super.heap_off, 8);
    pm_fence(&pool->pm, CN_STEP_h_hint);
    {
        uint64_t value = 0;

        assert_int_equal(pread(pool->fd, &value, 8, (off_t)pool->super.heap_off), 8);
        assert_true(value == UINT64_C(0x1122334455667788));
    }
    pm_pool_close(&pool);
    assert_null(pool);
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    assert_true(pm_load64(&pool->pm, pool->super.heap_off) == UINT64_C(0x1122334455667788));
    pm_pool_close(&pool);
    pm_pool_close(&pool); /* nothing to close is fine */
}

static void pm_pool_open__incarnation__kept_with_its_opener(void **state)
{
    struct pm_pool *pool;

    (void)state;
    create();
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
        assert_int_equal(pool->opened_clean, i != 3);
        assert_int_equal(pool->incarnation, i - 1);
        assert_int_equal(pm_pool_raise_incarnation(pool), 0);
        assert_int_equal(pool->last_opener.pid, getpid());
        if (i != 2)
            pm_pool_note_clean(pool);
        pm_pool_close(&pool);
    }
}

static void pm_pool_open__already_open__busy_but_readable(void **state)
{
    struct pm_pool *pool, *second = NULL;
    uint32_t crc;

    (void)state;
    create();
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    assert_int_equal(pm_pool_raise_incarnation(pool), 0);
    assert_int_equal(open_as(PM_OPEN_OWNER, &second), CAIRN_E_POOL_BUSY);
    assert_null(second);
    crc = file_crc();
    assert_int_equal(open_as(PM_OPEN_READ_ONLY, &second), 0);
    assert_true(second->pm.read_only);
    assert_int_equal(second->incarnation, 1);
    assert_int_equal(second->super_off, pool->super_off);
    assert_true(cn_uuid_equal(&second->super.pool, &pool->super.pool));
    pm_pool_close(&second);
    assert_int_equal(file_crc(), crc);
    pm_pool_close(&pool);
}

static void pm_pool_open__opened_by_a_living_process__waits_for_its_end(void **state)
{
    struct pm_pool *pool;
    int pipe_fd[2];
    char byte;
    pid_t pid;

    (void)state;
    create();
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* lets go of the file and its lock, but lives on */
        if (open_as(PM_OPEN_OWNER, &pool) != 0 || pm_pool_raise_incarnation(pool) != 0)
            _exit(1);
        pm_pool_close(&pool);
        (void)!write(pipe_fd[1], "x", 1);
        (void)usleep(300000);
        _exit(0);
    }
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    assert_int_equal(pm_pool_open(path, PM_OPEN_OWNER, 20, cn_env_system(), &pool),
        CAIRN_E_POOL_BUSY);
    assert_non_null(strstr(cairn_last_error(), "has not ended"));
    assert_int_equal(pm_pool_open(path, PM_OPEN_OWNER, 10000, cn_env_system(), &pool), 0);
    assert_false(pool->opened_clean);
    assert_int_equal(pool->last_opener.pid, pid);
    pm_pool_close(&pool);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
}

static void pm_pool_open__killed_opener__opens(void **state)
{
    struct pm_pool *pool;
    int pipe_fd[2];
    char byte;
    pid_t pid;

    (void)state;
    create();
    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (open_as(PM_OPEN_OWNER, &pool) != 0 || pm_pool_raise_incarnation(pool) != 0)
            _exit(1);
        (void)!write(pipe_fd[1], "x", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), CAIRN_E_POOL_BUSY);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(pm_pool_open(path, PM_OPEN_OWNER, 10000, cn_env_system(), &pool), 0);
    assert_int_equal(pool->incarnation, 1);
    pm_pool_close(&pool);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
}

static void pm_pool_create__not_possible__errors_and_no_file(void **state)
{
    struct pm_geometry bad = {.window = 1}, big = {.slot_count = 4096};

    (void)state;
    assert_int_equal(pm_pool_create(path, 64 << 20, &bad, &cluster, 1, cn_env_system()),
        CAIRN_E_CONFIG);
    assert_int_equal(pm_pool_create(path, 16 << 20, &big, &cluster, 1, cn_env_system()),
        CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), path));
    assert_int_equal(pm_pool_create(path, 4096, &ts_geometry_small, &cluster, 1, cn_env_system()),
        CAIRN_E_CONFIG);
    assert_int_equal(access(path, F_OK), -1);
    create();
    assert_int_equal(
        pm_pool_create(path, 16 << 20, &ts_geometry_small, &cluster, 1, cn_env_system()), -EEXIST);
    assert_non_null(strstr(cairn_last_error(), path));
    assert_int_equal(access(path, F_OK), 0); /* the one that was there stays */
    assert_int_equal(pm_pool_create("/nonexistent/dir/pool", 16 << 20, &ts_geometry_small, &cluster,
                         1, cn_env_system()),
        -ENOENT);
}

static void pm_pool_open__no_file_or_no_pool__says_so(void **state)
{
    struct pm_pool *pool;
    PMEMobjpool *pop;
    int fd;

    (void)state;
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), -ENOENT);
    assert_int_equal(open_as(PM_OPEN_READ_ONLY, &pool), -ENOENT);
    assert_true(pm_pool_is_missing(path));
    fd = open(path, O_RDWR | O_CREAT, 0600);
    expect(CAIRN_E_NOT_A_POOL); /* empty */
    assert_int_equal(ftruncate(fd, 16 << 20), 0);
    expect(CAIRN_E_NOT_A_POOL); /* all zero */
    assert_false(pm_pool_is_missing(path)); /* somebody's file: only a device may be blank */
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    pop = pmemobj_create(path, "other", PMEMOBJ_MIN_POOL, 0600);
    assert_non_null(pop);
    pmemobj_close(pop);
    expect(CAIRN_E_NOT_A_POOL);
    assert_non_null(strstr(cairn_last_error(), "\"other\""));
}

static void pm_pool_open__half_made__not_a_pool(void **state)
{
    PMEMobjpool *pop;
    struct pm_root_pm *root;

    (void)state;
    pop = pmemobj_create(path, PM_LAYOUT_NAME, PMEMOBJ_MIN_POOL, 0600);
    assert_non_null(pop);
    pmemobj_close(pop);
    expect(CAIRN_E_NOT_A_POOL); /* before there is a root object */
    pop = pmemobj_open(path, PM_LAYOUT_NAME);
    assert_non_null(pop);
    (void)pmemobj_root(pop, sizeof(struct pm_root_pm));
    pmemobj_close(pop);
    expect(CAIRN_E_NOT_A_POOL); /* before it is filled in */
    assert_int_equal(unlink(path), 0);
    create();
    pop = pmemobj_open(path, PM_LAYOUT_NAME);
    assert_non_null(pop);
    root = pmemobj_direct(pmemobj_root(pop, sizeof(struct pm_root_pm)));
    root->magic = le64_make(0);
    pmemobj_persist(pop, root, 8);
    pmemobj_close(pop);
    expect(CAIRN_E_NOT_A_POOL); /* all but its last store */
}

static void pm_pool_open__cut_or_grown__pool_size(void **state)
{
    struct stat st;

    (void)state;
    create();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 4096), 0);
    expect(CAIRN_E_POOL_SIZE);
    assert_int_equal(truncate(path, 1 << 20), 0); /* not even the root object is left */
    assert_int_equal(truncate(path, st.st_size + (1 << 20)), 0);
    (void)unlink(path);
    create();
    assert_int_equal(truncate(path, st.st_size + 4096), 0);
    expect(CAIRN_E_POOL_SIZE);
}

static void pm_pool_open__flipped_bits__corrupt(void **state)
{
    struct pm_pool *pool;
    uint64_t off, root_off;
    int fd;

    (void)state;
    create();
    off = super_off();
    for (unsigned i = 0; i < 256; i += 5) { /* all the superblock's fields */
        flip(off + i, 0x10);
        expect(CAIRN_E_CORRUPT_SUPER);
        flip(off + i, 0x10);
    }
    fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &root_off, 8, 6144), 8);
    (void)close(fd);
    for (unsigned i = 0; i < sizeof(struct pm_root_pm);
         i += i < 64 ? 1 : 97) { /* the root object */
        flip(root_off + i, 0x10);
        expect(CAIRN_E_CORRUPT_SUPER);
        flip(root_off + i, 0x10);
    }
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    pm_pool_close(&pool);
    flip(off + PM_SUPER_DYN_OFF + 20, 1); /* one dynamic copy: the other does */
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    pm_pool_close(&pool);
    flip(off + PM_SUPER_DYN_OFF + PM_SUPER_DYN_STRIDE + 20, 1);
    expect(CAIRN_E_CORRUPT_SUPER);
}

static void pm_pool_open__damaged_libpmemobj_header__refused(void **state)
{
    struct pm_pool *pool = NULL;

    (void)state;
    create();
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    assert_int_equal(pm_pool_raise_incarnation(pool), 0);
    pm_pool_close(&pool);
    flip(8, 1); /* its version: behind the signature */
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), CAIRN_E_CORRUPT_SUPER);
    assert_null(pool);
    flip(8, 1);
    flip(3, 1); /* its signature */
    expect(CAIRN_E_NOT_A_POOL);
    flip(3, 1);
    flip(6145, 0x55); /* where the root object is: this is not a pool that was never finished */
    expect(CAIRN_E_CORRUPT_SUPER);
    flip(6145, 0x55);
    flip(6150, 0x55); /* beyond the end: the superblock is found all the same */
    assert_int_equal(open_as(PM_OPEN_READ_ONLY, &pool), 0);
    pm_pool_close(&pool);
}

static void pm_pool_open__read_only__changes_no_byte(void **state)
{
    struct pm_pool *pool;
    struct stat before, after;
    uint32_t crc;

    (void)state;
    create();
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    assert_int_equal(pm_pool_raise_incarnation(pool), 0);
    pm_pool_close(&pool);
    assert_int_equal(chmod(path, 0400), 0);
    crc = file_crc();
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(open_as(PM_OPEN_READ_ONLY, &pool), 0);
    assert_int_equal(pool->incarnation, 1);
    assert_int_equal(pool->last_opener.pid, getpid());
    assert_int_equal(pool->is_pmem, false);
    pm_pool_close(&pool);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(file_crc(), crc);
    assert_int_equal(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

#define CASE(fn, i) {#fn, fn, setup, teardown, (void *)(uintptr_t)&places[i]}
#define BOTH(fn) CASE(fn, 0), CASE(fn, 1)

/* ---- the fence ---- */

#if defined(__x86_64__)

#define BELOW_RED_ZONE(code) "lea -128(%%rsp), %%rsp; " code "; lea 128(%%rsp), %%rsp"

static volatile sig_atomic_t fences_seen;

static void look_at_instruction(int number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    const uint8_t *code = (const uint8_t *)(uintptr_t)at->uc_mcontext.gregs[REG_RIP];

    (void)number;
    (void)info;
    fences_seen += code[0] == 0x0f && code[1] == 0xae && code[2] == 0xf8; /* sfence */
}

/* How many store fences the call executes: step by step. */
static int count_fences(void (*call)(void))
{
    struct sigaction look = {.sa_sigaction = look_at_instruction, .sa_flags = SA_SIGINFO}, before;

    call(); /* whatever is done once */
    fences_seen = 0;
    assert_int_equal(sigaction(SIGTRAP, &look, &before), 0);
    __asm__ volatile(BELOW_RED_ZONE("pushfq; orl $0x100, (%%rsp); popfq") ::: "memory", "cc");
    call();
    __asm__ volatile(BELOW_RED_ZONE("pushfq; andl $~0x100, (%%rsp); popfq") ::: "memory", "cc");
    assert_int_equal(sigaction(SIGTRAP, &before, NULL), 0);
    return fences_seen;
}

/* libpmem looks at the environment when it is loaded: the case runs in this program anew. */
static int fence_of_old_cpu(void)
{
    const char *place = places[0];
    void *state = &place;
    struct pm_pool *pool;

    assert_int_equal(setup(&state), 0);
    create();
    assert_int_equal(open_as(PM_OPEN_OWNER, &pool), 0);
    int count = count_fences(pool->pm.drain);
    pm_pool_close(&pool);
    assert_int_equal(teardown(&state), 0);
    return count > 0 ? 0 : 1;
}

/* CLFLUSH needs no fence, and pmem_drain() does nothing then; what is stored past the caches
 * (pm_copy_flush) needs one all the same. */
static void pm_fence__only_clflush__waits_for_streams_too(void **state)
{
    int status;

    (void)state;
    if (RUNNING_ON_VALGRIND)
        skip(); /* it does not step */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("PMEM_NO_CLWB", "1", 1);
        (void)setenv("PMEM_NO_CLFLUSHOPT", "1", 1);
        (void)execl("/proc/self/exe", "test", "fence", (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif

int main(int argc, char **argv)
{
#if defined(__x86_64__)
    if (argc == 2 && strcmp(argv[1], "fence") == 0)
        return fence_of_old_cpu();
#else
    (void)argc;
    (void)argv;
#endif
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(pm_fence__only_clflush__waits_for_streams_too),
#endif
        BOTH(pm_pool_open__fresh_pool__as_created),
        BOTH(pm_pool_open__incarnation__kept_with_its_opener),
        BOTH(pm_pool_open__already_open__busy_but_readable),
        CASE(pm_pool_open__opened_by_a_living_process__waits_for_its_end, 0),
        BOTH(pm_pool_open__killed_opener__opens),
        BOTH(pm_pool_create__not_possible__errors_and_no_file),
        BOTH(pm_pool_open__no_file_or_no_pool__says_so),
        BOTH(pm_pool_open__half_made__not_a_pool),
        BOTH(pm_pool_open__cut_or_grown__pool_size),
        CASE(pm_pool_open__flipped_bits__corrupt, 0),
        BOTH(pm_pool_open__damaged_libpmemobj_header__refused),
        BOTH(pm_pool_open__read_only__changes_no_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
