/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_file.c: a pool file seen from outside libpmemobj, read-only: is it a pool of ours, is it
 * finished, has it its size, and where is the superblock.
 *
 * libpmemobj opens a pool only for writing, runs its own recovery on it, and reports every misfit
 * as EINVAL. So before it is asked, and where nothing may change, the file is looked at here. Of
 * libpmemobj's format (version 6, libpmemobj 1.x) three fields are used: signature, layout name,
 * and the root object's offset. Should the last one not lead to a root object, the superblock is
 * searched for.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "pmem/pm_format.h"

#define OBJ_SIGNATURE "PMEMOBJ"  /* with its zero: 8 bytes at 0 */
#define OBJ_LAYOUT_OFF 4096u     /* layout name, zero-terminated */
#define OBJ_ROOT_OFF 6144u       /* le64: offset of the root object, 0: none */
#define OBJ_HEADER_SIZE 8192u
#define SEARCH_SIZE (UINT64_C(256) << 20) /* the first extent begins in the first few MiB */
#define SEARCH_STEP 4096u        /* the smallest chunk */

static int device_size(const char *path, const struct stat *st, uint64_t *ret_size)
{
    char name[96], text[32];
    ssize_t got;
    int fd;

    (void)snprintf(name, sizeof(name), "/sys/dev/char/%u:%u/size", major(st->st_rdev),
        minor(st->st_rdev));
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cn_fail(CAIRN_E_NOT_A_POOL, "%s is a device, but not a devdax device", path);
    got = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (got <= 0)
        return cn_fail(-EIO, "%s: cannot read %s", path, name);
    text[got] = '\0';
    *ret_size = strtoull(text, NULL, 10);
    return 0;
}

int pm_file_map(const char *path, struct pm_file *ret)
{
    struct pm_file file = {.fd = -1};
    struct stat st;
    void *base;
    int flags = MAP_PRIVATE, rc;

    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang us */
    if (file.fd < 0)
        return cn_fail(-errno, "%s: %s", path, strerror(errno));
    if (fstat(file.fd, &st) != 0) {
        rc = cn_fail(-errno, "%s: %s", path, strerror(errno));
        goto err_close;
    }
    if (S_ISCHR(st.st_mode)) {
        flags = MAP_SHARED; /* the only way devdax can be mapped */
        rc = device_size(path, &st, &file.size);
        if (rc != 0)
            goto err_close;
    } else if (S_ISREG(st.st_mode)) {
        file.size = (uint64_t)st.st_size;
    } else {
        rc = cn_fail(CAIRN_E_NOT_A_POOL, "%s is neither a file nor a devdax device", path);
        goto err_close;
    }
    if (file.size < OBJ_HEADER_SIZE) {
        rc = cn_fail(CAIRN_E_NOT_A_POOL, "%s has only %llu bytes", path,
            (unsigned long long)file.size);
        goto err_close;
    }
    base = mmap(NULL, file.size, PROT_READ, flags, file.fd, 0);
    if (base == MAP_FAILED) {
        rc = cn_fail(-errno, "%s: cannot map it: %s", path, strerror(errno));
        goto err_close;
    }
    file.base = base;
    *ret = file;
    return 0;

err_close:
    (void)close(file.fd);
    return rc;
}

void pm_file_unmap(struct pm_file *file)
{
    (void)munmap((void *)(uintptr_t)file->base, file->size);
    (void)close(file->fd);
    *file = (struct pm_file){.fd = -1};
}

static uint64_t read64(const struct pm_file *file, uint64_t off)
{
    struct le64 v;

    memcpy(&v, file->base + off, sizeof(v));
    return le64_get(v);
}

/* No root object was found: look for a superblock that says that it is where it is. */
static int search_super(const struct pm_file *file, uint64_t *ret_super_off)
{
    uint64_t end = cn_min64(file->size, SEARCH_SIZE);

    for (uint64_t off = SEARCH_STEP; off + PM_SUPER_AREA_SIZE <= end; off += SEARCH_STEP) {
        struct pm_super_pm media;
        struct pm_super super;
        int rc;

        if (read64(file, off) != PM_SUPER_MAGIC)
            continue;
        memcpy(&media, file->base + off, sizeof(media));
        rc = pm_super_decode(&media, off, file->size, true, &super);
        if (rc == 0 || rc == CAIRN_E_POOL_SIZE) { /* that one has a good crc */
            *ret_super_off = off;
            return rc;
        }
    }
    return cn_fail(CAIRN_E_NOT_A_POOL,
        "the pool was never finished: delete the file and create it again");
}

/* The root object's extents are those of the superblock: the root has no crc of its own. */
static int check_root(const struct pm_file *file, const struct pm_root_pm *root, uint64_t super_off)
{
    struct pm_super_pm media;
    struct pm_super super;
    int rc;

    memcpy(&media, file->base + super_off, sizeof(media));
    if (le64_get(media.magic) != PM_SUPER_MAGIC) /* the root object says that it was finished */
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "the superblock's magic is wrong");
    rc = pm_super_decode(&media, super_off, file->size, true, &super);
    if (rc != 0)
        return rc;
    if (le32_get(root->layout_version) != PM_LAYOUT_VERSION ||
        le64_get(root->pool_size) != super.pool_size || le64_get(root->reserved) != 0 ||
        le32_get(root->extent_count) != super.extent_count ||
        memcmp(root->extent, media.extent, sizeof(media.extent)) != 0)
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "the root object and the superblock disagree");
    return 0;
}

/* There is no magic where the root object should be: never finished, or damaged? A creation that
 * was interrupted has seen no incarnation, and has no other magic than 0. */
static int judge_rootless(const struct pm_file *file, uint64_t magic)
{
    const struct pm pm = {
        .base = (uint8_t *)(uintptr_t)file->base, .size = file->size, .read_only = true};
    struct pm_pool pool;
    uint64_t super_off;
    int rc = search_super(file, &super_off);

    if (rc == 0 && (magic != 0 || (pm_attach(&pool, &pm, super_off) == 0 && pool.incarnation > 0)))
        return cn_fail(CAIRN_E_CORRUPT_SUPER,
            "the root object is damaged or not where libpmemobj's header says; the superblock is "
            "good");
    if (rc == CAIRN_E_POOL_SIZE)
        return rc;
    return cn_fail(CAIRN_E_NOT_A_POOL,
        "the pool was never finished: delete the file and create it again");
}

static int use_root(const struct pm_file *file, uint64_t root_off, uint64_t *ret_super_off)
{
    struct pm_root_pm root;
    uint64_t super_off;
    int rc;

    memcpy(&root, file->base + root_off, sizeof(root));
    if (le64_get(root.magic) != PM_ROOT_MAGIC)
        return judge_rootless(file, le64_get(root.magic));
    if (le64_get(root.pool_size) != file->size &&
        le32_get(root.layout_version) == PM_LAYOUT_VERSION) {
        /* Told from a flipped bit by the superblock, if that is still there. */
        if (search_super(file, ret_super_off) == 0)
            return cn_fail(CAIRN_E_CORRUPT_SUPER, "the root object and the superblock disagree");
        return cn_fail(CAIRN_E_POOL_SIZE, "the pool was made with %llu bytes and has %llu now",
            (unsigned long long)le64_get(root.pool_size), (unsigned long long)file->size);
    }
    super_off = le64_get(root.extent[0].off);
    if (super_off % SEARCH_STEP != 0 ||
        !cn_range_inside(super_off, PM_SUPER_AREA_SIZE, SEARCH_STEP, file->size - SEARCH_STEP))
        return cn_fail(CAIRN_E_CORRUPT_SUPER, "the root object's first extent is impossible");
    rc = check_root(file, &root, super_off);
    if (rc == 0)
        *ret_super_off = super_off;
    return rc;
}

int pm_file_find_super(const struct pm_file *file, uint64_t *ret_super_off)
{
    static const char layout[] = PM_LAYOUT_NAME;
    uint64_t root_off;

    if (memcmp(file->base, OBJ_SIGNATURE, sizeof(OBJ_SIGNATURE)) != 0)
        return cn_fail(CAIRN_E_NOT_A_POOL, "it is no libpmemobj pool");
    if (memcmp(file->base + OBJ_LAYOUT_OFF, layout, sizeof(layout)) != 0) {
        char name[33] = "";

        memcpy(name, file->base + OBJ_LAYOUT_OFF, sizeof(name) - 1);
        for (char *at = name; *at != '\0'; at++)
            if (*at < ' ' || *at > '~')
                *at = '?';
        return cn_fail(CAIRN_E_NOT_A_POOL,
            "it is a libpmemobj pool of layout \"%s\", not \"" PM_LAYOUT_NAME "\"", name);
    }
    root_off = read64(file, OBJ_ROOT_OFF);
    if (root_off % 8 == 0 && root_off >= OBJ_HEADER_SIZE &&
        cn_range_inside(root_off, sizeof(struct pm_root_pm), 0, file->size))
        return use_root(file, root_off, ret_super_off);
    return search_super(file, ret_super_off);
}
