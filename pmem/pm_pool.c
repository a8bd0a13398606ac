/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_pool.c: a pool in a file or on a devdax device, through libpmemobj: creation, opening,
 * closing.
 *
 * libpmemobj is used once, for the root object and for the extents it hands out; it keeps the file
 * locked while it is open. Of a pool of one file, the offset in the pool is the offset in the file,
 * and the address of the mapping is the address of libpmemobj's handle.
 *
 * The root object's magic is set last of all: a creation that was interrupted leaves no pool.
 *
 * Lines are written back with CLWB (or what the CPU has) and SFENCE also where the mapping is not
 * persistent memory (tmpfs, page cache): there a store survives the death of the process, but no
 * power failure. `is_pmem` says which it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libpmem.h>
#include <libpmemobj.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "pmem/pm_format.h"

#define BLANK_SIZE 8192u /* the headers that libpmemobj wants to find zeroed */
#define DEVICE_ALIGN (UINT64_C(2) << 20) /* devdax maps in these units */
#define EXTENT_TYPE 1u
#define EXTENT_GRAIN (UINT64_C(256) << 10) /* libpmemobj's own unit */
#define WAIT_STEP_MS 10u

/* pmem_drain() is this instruction, but does nothing where CLFLUSH is the best that the CPU has:
 * that waits by itself. What goes past the caches (pm_copy_flush) does not. */
static void drain(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#else
    pmem_drain();
#endif
}

static void set_pm(struct pm *pm, void *base, uint64_t size, const struct cn_env *env)
{
    *pm = (struct pm){
        .base = base,
        .size = size,
        .flush_lines = pmem_flush,
        .drain = drain,
        .env = env,
    };
}

static int fail_pmemobj(const char *path, const char *what)
{
    int cause = errno != 0 ? -errno : -EIO;

    return cn_fail(cause, "%s: %s: %s", path, what, pmemobj_errormsg());
}

/* ---- creation ---- */

/* Reserve an object of exactly `size` bytes: its offset, 0 if there is no room. */
static uint64_t try_reserve(PMEMobjpool *pop, uint64_t size, struct pobj_action *act)
{
    PMEMoid oid = pmemobj_xreserve(pop, act, size, EXTENT_TYPE, 0);

    return OID_IS_NULL(oid) ? 0 : oid.off;
}

/* The biggest object that can still be had, between `min` and `max`; published. */
static int take_biggest(PMEMobjpool *pop, uint64_t min, uint64_t max, uint64_t *ret_off,
    uint64_t *ret_size)
{
    uint64_t low = min / EXTENT_GRAIN, high = max / EXTENT_GRAIN; /* in grains; low fits */
    struct pobj_action act;

    if (max < min || try_reserve(pop, min, &act) == 0)
        return -ENOMEM;
    pmemobj_cancel(pop, &act, 1);
    low = low == 0 ? 1 : low;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (try_reserve(pop, middle * EXTENT_GRAIN, &act) != 0) {
            pmemobj_cancel(pop, &act, 1);
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *ret_size = cn_max64(low * EXTENT_GRAIN, min);
    *ret_off = try_reserve(pop, *ret_size, &act);
    if (*ret_off == 0)
        return -ENOMEM;
    return pmemobj_publish(pop, &act, 1) != 0 ? -errno : 0;
}

/* Take all the pool has, in objects as big as they come. Extents are whole chunks within them. */
static int take_extents(
    PMEMobjpool *pop, uint64_t pool_size, uint64_t chunk, struct pm_root_pm *root)
{
    uint64_t min = 4 * chunk + EXTENT_GRAIN, left = pool_size;
    uint32_t count = 0;

    while (count < PM_EXTENTS_MAX && left > min) {
        uint64_t off, size, begin, end;
        int rc = take_biggest(pop, min, cn_min64(left, PMEMOBJ_MAX_ALLOC_SIZE), &off, &size);

        if (rc == -ENOMEM)
            break;
        if (rc != 0)
            return cn_fail(rc, "cannot take an extent: %s", pmemobj_errormsg());
        begin = cn_align_up(off, chunk);
        end = (off + size) / chunk * chunk;
        CAIRN_ASSERT(end > begin);
        root->extent[count].off = le64_make(begin);
        root->extent[count].size = le64_make(end - begin);
        count++;
        left -= cn_min64(left, size);
    }
    root->extent_count = le32_make(count);
    if (count == 0)
        return cn_fail(CAIRN_E_CONFIG, "the pool is too small for even one chunk: make it bigger");
    return 0;
}

/* Biggest extent first: it carries the fixed areas. */
static void put_biggest_first(struct pm_root_pm *root)
{
    uint32_t best = 0;
    struct pm_extent_pm swap;

    for (uint32_t i = 1; i < le32_get(root->extent_count); i++) {
        if (le64_get(root->extent[i].size) > le64_get(root->extent[best].size))
            best = i;
    }
    swap = root->extent[0];
    root->extent[0] = root->extent[best];
    root->extent[best] = swap;
}

static int fill_pool(PMEMobjpool *pop, uint64_t size, const struct pm_geometry *geometry,
    const struct cn_uuid *cluster, uint16_t node, const struct cn_env *env)
{
    PMEMoid oid = pmemobj_root(pop, sizeof(struct pm_root_pm));
    struct pm_root_pm *root, build = {.layout_version = le32_make(PM_LAYOUT_VERSION)};
    struct pm pm;
    int rc;

    if (OID_IS_NULL(oid))
        return cn_fail(errno != 0 ? -errno : -EIO, "no root object: %s", pmemobj_errormsg());
    rc = take_extents(pop, size, UINT64_C(1) << geometry->chunk_shift, &build);
    if (rc != 0)
        return rc;
    put_biggest_first(&build);
    set_pm(&pm, pop, size, env);
    for (uint32_t i = 0; i < le32_get(build.extent_count); i++)
        (void)pmem_memset_persist(pm.base + le64_get(build.extent[i].off), 0,
            le64_get(build.extent[i].size));
    rc = pm_format(&pm, build.extent, le32_get(build.extent_count), geometry, cluster, node);
    if (rc != 0)
        return rc;
    build.pool_size = le64_make(size);
    root = pmemobj_direct(oid);
    memcpy(root, &build, sizeof(build)); /* the magic is still 0 */
    pmemobj_persist(pop, root, sizeof(*root));
    root->magic = le64_make(PM_ROOT_MAGIC);
    pmemobj_persist(pop, root, sizeof(root->magic));
    return 0;
}

static int path_size(const char *path, uint64_t *ret_size, bool *ret_is_file)
{
    struct pm_file file;
    int rc = pm_file_map(path, &file);
    struct stat st;

    if (rc != 0)
        return rc;
    *ret_size = file.size;
    *ret_is_file = fstat(file.fd, &st) == 0 && S_ISREG(st.st_mode);
    pm_file_unmap(&file);
    return 0;
}

int pm_pool_create(const char *path, uint64_t size, const struct pm_geometry *geometry,
    const struct cn_uuid *cluster, uint16_t node, const struct cn_env *env)
{
    struct pm_geometry complete = *geometry, wanted = *geometry;
    PMEMobjpool *pop;
    bool is_file = true;
    int rc = pm_geometry_complete(&complete);

    if (rc != 0)
        return rc;
    if (node == 0)
        return cn_fail(CAIRN_E_CONFIG, "0 is not a node id: use 1 to 65535");
    if (size != 0 && size < PMEMOBJ_MIN_POOL)
        return cn_fail(CAIRN_E_CONFIG, "%s: a pool has at least %llu bytes, not %llu", path,
            (unsigned long long)pm_pool_size_min(geometry, 0), (unsigned long long)size);
    errno = 0;
    pop = pmemobj_create(path, PM_LAYOUT_NAME, size, 0600);
    if (pop == NULL)
        return fail_pmemobj(path, "cannot create the pool");
    rc = path_size(path, &size, &is_file);
    if (rc == 0) {
        wanted.chunk_shift = complete.chunk_shift; /* the rest pm_format() completes */
        rc = fill_pool(pop, size, &wanted, cluster, node, env);
        if (rc == CAIRN_E_CONFIG)
            (void)cn_fail_context(rc, "%s (%llu bytes; try %llu): ", path, (unsigned long long)size,
                (unsigned long long)pm_pool_size_min(geometry, 0));
        else if (rc != 0)
            (void)cn_fail_context(rc, "%s: ", path);
    }
    pmemobj_close(pop);
    if (rc != 0 && is_file)
        (void)unlink(path); /* ours: creating fails where a file exists */
    return rc;
}

/* ---- opening ---- */

static void wait_a_step(void)
{
    const struct timespec step = {.tv_nsec = WAIT_STEP_MS * 1000000l};

    (void)nanosleep(&step, NULL);
}

/* Where the superblock is, and who had the pool last. */
static int look_at_file(const char *path, const struct cn_env *env, uint64_t *ret_super_off,
    struct pm_opener *ret_opener)
{
    struct pm_pool pool;
    struct pm_file file;
    struct pm pm;
    int rc = pm_file_map(path, &file);

    if (rc != 0)
        return rc;
    rc = pm_file_find_super(&file, ret_super_off);
    if (rc == 0) {
        set_pm(&pm, (void *)(uintptr_t)file.base, file.size, env);
        pm.read_only = true;
        rc = pm_attach(&pool, &pm, *ret_super_off);
    }
    if (rc == 0)
        *ret_opener = (struct pm_opener){
            pool.last_opener.pid, pool.last_opener.start, pool.last_opener.boot};
    pm_file_unmap(&file);
    return rc != 0 ? cn_fail_context(rc, "%s: ", path) : 0;
}

static int open_pmemobj(const char *path, PMEMobjpool **ret_pop)
{
    errno = 0;
    *ret_pop = pmemobj_open(path, PM_LAYOUT_NAME);
    if (*ret_pop != NULL)
        return 0;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return cn_fail(CAIRN_E_POOL_BUSY,
            "%s is open in another process: stop that node, or look at the pool read-only", path);
    if (errno == EINVAL) /* our own parts are good: its header or heap is not */
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "%s: libpmemobj refuses the pool: %s", path,
            pmemobj_errormsg());
    if (errno == EEXIST) /* libpmemobj knows open pools by their uuid */
        return cn_fail(
            CAIRN_E_WRONG_NODE, "%s is a copy of a pool that this process has open", path);
    return fail_pmemobj(path, "cannot open the pool");
}

/* Lock the pool, and be sure that nobody is left who had it. Waits within `wait_ms`. */
static int open_exclusive(const char *path, uint32_t wait_ms, const struct cn_env *env,
    uint64_t *ret_super_off, PMEMobjpool **ret_pop)
{
    uint32_t steps = wait_ms / WAIT_STEP_MS;

    for (;;) {
        struct pm_opener opener;
        int rc = look_at_file(path, env, ret_super_off, &opener);

        if (rc != 0)
            return rc;
        if (!pm_opener_is_alive(&opener)) {
            rc = open_pmemobj(path, ret_pop);
            if (rc != CAIRN_E_POOL_BUSY || opener.pid == (uint64_t)getpid())
                return rc;
        } else {
            rc = cn_fail(CAIRN_E_POOL_BUSY,
                "%s: process %llu, which had the pool last, has not ended: stop it, or wait longer",
                path, (unsigned long long)opener.pid);
        }
        if (steps-- == 0)
            return rc;
        wait_a_step();
    }
}

bool pm_pool_is_missing(const char *path)
{
    static const uint8_t zero[BLANK_SIZE];
    struct stat st;
    bool missing = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT;
    if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode)) {
        void *base = mmap(NULL, DEVICE_ALIGN, PROT_READ, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED) {
            missing = memcmp(base, zero, sizeof(zero)) == 0;
            (void)munmap(base, DEVICE_ALIGN);
        }
    }
    (void)close(fd);
    return missing;
}

/* What a node that opened it would find; nothing is written. */
static bool is_pmem_file(int fd)
{
    long page = sysconf(_SC_PAGESIZE);
    struct stat st;

    if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode))
        return true; /* devdax: nothing else is let through */
    /* Only a file on persistent memory, with dax, can be mapped so. */
    void *base = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (base == MAP_FAILED)
        return false;
    (void)munmap(base, (size_t)page);
    return true;
}

static int open_owner(const char *path, uint32_t wait_ms, const struct cn_env *env,
    struct pm_pool *pool)
{
    PMEMobjpool *pop;
    uint64_t super_off, size;
    struct pm pm;
    bool is_file;
    int fd, rc = open_exclusive(path, wait_ms, env, &super_off, &pop);

    if (rc != 0)
        return rc;
    rc = path_size(path, &size, &is_file);
    if (rc != 0)
        goto err_close;
    /* For whoever shares the memory. (libpmemobj's lock belongs to its own descriptor.) */
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        rc = cn_fail(-errno, "%s: %s", path, strerror(errno));
        goto err_close;
    }
    set_pm(&pm, pop, size, env);
    rc = pm_attach(pool, &pm, super_off);
    if (rc != 0) {
        rc = cn_fail_context(rc, "%s: ", path);
        goto err_close_fd;
    }
    pool->fd = fd;
    pool->pmemobj = pop;
    pool->is_pmem = is_pmem_file(fd);
    pool->auto_flush = pmem_has_auto_flush() == 1;
    return 0;

err_close_fd:
    (void)close(fd);
err_close:
    pmemobj_close(pop);
    return rc;
}

static int open_read_only(const char *path, const struct cn_env *env, struct pm_pool *pool)
{
    struct pm_file file;
    struct pm pm;
    uint64_t super_off;
    int rc = pm_file_map(path, &file);

    if (rc != 0)
        return rc;
    rc = pm_file_find_super(&file, &super_off);
    if (rc == 0) {
        set_pm(&pm, (void *)(uintptr_t)file.base, file.size, env);
        pm.read_only = true;
        rc = pm_attach(pool, &pm, super_off);
    }
    if (rc != 0) {
        pm_file_unmap(&file);
        return cn_fail_context(rc, "%s: ", path);
    }
    pool->fd = file.fd;
    pool->is_pmem = is_pmem_file(file.fd);
    pool->auto_flush = pmem_has_auto_flush() == 1;
    return 0;
}

int pm_pool_open(const char *path, enum pm_open_mode mode, uint32_t wait_ms,
    const struct cn_env *env, struct pm_pool **ret_pool)
{
    struct pm_pool *pool = calloc(1, sizeof(*pool));
    char *path_copy = strdup(path);
    int rc;

    if (pool == NULL || path_copy == NULL) {
        rc = cn_fail(-ENOMEM, "%s: no memory", path);
        goto err_free;
    }
    rc = mode == PM_OPEN_OWNER ? open_owner(path, wait_ms, env, pool)
                               : open_read_only(path, env, pool);
    if (rc != 0)
        goto err_free;
    pool->path = path_copy;
    *ret_pool = pool;
    return 0;

err_free:
    free(path_copy);
    free(pool);
    return rc;
}

void pm_pool_close(struct pm_pool **pool)
{
    struct pm_pool *p = *pool;

    *pool = NULL;
    if (p == NULL)
        return;
    if (p->pmemobj != NULL) {
        (void)close(p->fd);
        pmemobj_close(p->pmemobj);
    } else if (p->fd >= 0) {
        struct pm_file file = {.fd = p->fd, .base = p->pm.base, .size = p->pm.size};

        pm_file_unmap(&file);
    }
    free(p->path);
    free(p);
}
