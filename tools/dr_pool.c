/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_pool.c: what a pool of the configuration lies on, and what a node that has it will lock.
 *
 * A device is known by its class (dax), a file by its mount: the longest mount point above it in
 * /proc/self/mounts. fsdax is ext4 or xfs mounted with dax; in a live system a file says itself
 * whether it is mapped so. The nd region behind it is found in the path of its device.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tools/dr.h"

/* An estimate from above: message buffers and bookkeeping that a node locks per connection. */
#define BYTES_PER_CONNECTION (128u * 1024)
#define CONNECTIONS_BESIDE 32u

struct mount {
    char device[DR_PATH_SIZE], point[PATH_MAX], fs[24], options[512];
};

/* \040 for a blank, as the kernel writes it. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0';) {
        unsigned value;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1 && strlen(from) >= 4) {
            *to++ = value >= 0x20 && value < 0x7f ? (char)value : '?';
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static bool is_above(const char *point, const char *path)
{
    size_t size = strlen(point);

    if (strcmp(point, "/") == 0)
        return true;
    return strncmp(point, path, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

static bool find_mount(struct dr_root *root, const char *path, struct mount *ret)
{
    char *text = dr_read_file(root, "/proc/self/mounts"), *save = NULL;
    struct mount *m = malloc(sizeof(*m));
    bool found = false;

    if (text != NULL && m != NULL) {
        for (char *line = strtok_r(text, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            if (sscanf(line, "%255s %4095s %23s %511s", m->device, m->point, m->fs, m->options) !=
                4)
                continue;
            unescape(m->point);
            if (is_above(m->point, path) &&
                (!found || strlen(m->point) >= strlen(ret->point))) { /* the last one covers */
                *ret = *m;
                found = true;
            }
        }
    }
    free(m);
    free(text);
    return found;
}

static bool has_option(const char *options, const char *name)
{
    size_t size = strlen(name);

    for (const char *o = options; o != NULL; o = strchr(o, ',')) {
        if (*o == ',')
            o++;
        if (strncmp(o, name, size) == 0 && (o[size] == ',' || o[size] == '\0'))
            return true;
    }
    return false;
}

/* "../../devices/LNXSYSTM:00/.../ndbus0/region3/namespace3.0/..." names region3. */
static void find_region(const char *link, const struct dr_host *host, struct dr_pool *p)
{
    for (unsigned i = 0; i < host->region_count; i++) {
        char part[DR_NAME_SIZE + 2];
        (void)snprintf(part, sizeof(part), "/%s/", host->region[i].name);
        if (strstr(link, part) == NULL)
            continue;
        memcpy(p->region, host->region[i].name, sizeof(p->region));
        memcpy(p->domain, host->region[i].domain, sizeof(p->domain));
    }
}

static void read_numa(struct dr_root *root, const char *folder, struct dr_pool *p)
{
    uint64_t node;
    char text[DR_TEXT_SIZE];

    if (dr_read(root, text, sizeof(text), "%s/numa_node", folder) > 0 && text[0] != '-' &&
        dr_read_u64(root, &node, "%s/numa_node", folder) && node < 4096)
        p->numa = (int64_t)node;
}

static void read_dax(
    struct dr_root *root, const struct dr_host *host, const char *name, struct dr_pool *p)
{
    char link[DR_PATH_SIZE], folder[DR_PATH_SIZE];

    p->kind = DR_POOL_DEVDAX;
    (void)snprintf(folder, sizeof(folder), "/sys/bus/dax/devices/%.64s", name);
    if (dr_link(root, link, sizeof(link), "%s", folder))
        find_region(link, host, p);
    (void)dr_read_u64(root, &p->size, "%s/size", folder);
    (void)dr_read_u64(root, &p->align, "%s/align", folder);
    read_numa(root, folder, p);
}

static void read_fs(
    struct dr_root *root, const struct dr_host *host, const char *path, int fd, struct dr_pool *p)
{
    struct mount *m = malloc(sizeof(*m));
    char link[DR_PATH_SIZE];
    struct statx sx;

    if (m == NULL || !find_mount(root, path, m)) {
        free(m);
        return;
    }
    dr_copy_printable(p->fs, sizeof(p->fs), m->fs);
    bool dax_fs = strcmp(m->fs, "ext4") == 0 || strcmp(m->fs, "xfs") == 0 ||
        strcmp(m->fs, "ext2") == 0;
    bool dax = dax_fs && (has_option(m->options, "dax") || has_option(m->options, "dax=always"));
    if (root->live && fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) == 0 &&
        (sx.stx_attributes_mask & STATX_ATTR_DAX) != 0)
        dax = (sx.stx_attributes & STATX_ATTR_DAX) != 0;
    if (strcmp(m->fs, "tmpfs") == 0 || strcmp(m->fs, "ramfs") == 0 ||
        strcmp(m->fs, "hugetlbfs") == 0)
        p->kind = DR_POOL_TMPFS;
    else
        p->kind = dax ? DR_POOL_FSDAX : DR_POOL_FILE;
    const char *block = dr_base_name(m->device);
    if (dr_name_is_plain(block) && strlen(block) < DR_NAME_SIZE &&
        dr_link(root, link, sizeof(link), "/sys/class/block/%s", block)) {
        find_region(link, host, p);
        if (p->region[0] != '\0') {
            (void)snprintf(link, sizeof(link), "/sys/bus/nd/devices/%s", p->region);
            read_numa(root, link, p);
        }
    }
    free(m);
}

/* In a live system links are followed; of a path that is not there, its folder's. */
static void resolve(const struct dr_root *root, const char *path, char full[PATH_MAX])
{
    char copy[PATH_MAX], folder[PATH_MAX];

    (void)snprintf(full, PATH_MAX, "%s", path);
    if (!root->live || realpath(path, full) != NULL)
        return;
    (void)snprintf(copy, sizeof(copy), "%s", path);
    if (realpath(dirname(copy), folder) == NULL)
        (void)snprintf(full, PATH_MAX, "%s", path);
    else
        (void)snprintf(full, PATH_MAX, "%.2000s/%.2000s", folder, dr_base_name(path));
}

static void read_object(
    struct dr_root *root, const struct dr_host *host, const char *path, struct dr_pool *p)
{
    const char *name = dr_base_name(path);
    char link[DR_PATH_SIZE];
    struct stat st;
    int fd = dr_open_path(root, path);

    p->exists = fd >= 0;
    /* A captured tree cannot hold devices: there the name decides. */
    if (strncmp(path, "/dev/dax", 8) == 0 && dr_name_is_plain(name) &&
        dr_exists(root, "/sys/bus/dax/devices/%.64s", name)) {
        read_dax(root, host, name, p);
        p->exists = p->exists || !root->live;
    } else if (fd < 0 && strncmp(path, "/dev/dax", 8) != 0) {
        read_fs(root, host, path, -1, p);
    } else if (fd < 0) {
        p->kind = DR_POOL_UNKNOWN; /* no node makes a device */
    } else if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode)) {
        p->kind = DR_POOL_OTHER;
        if (dr_link(root, link, sizeof(link), "/sys/dev/char/%u:%u/subsystem", major(st.st_rdev),
                minor(st.st_rdev)) &&
            strcmp(dr_base_name(link), "dax") == 0 &&
            dr_link(root, link, sizeof(link), "/sys/dev/char/%u:%u", major(st.st_rdev),
                minor(st.st_rdev)) &&
            dr_name_is_plain(dr_base_name(link)))
            read_dax(root, host, dr_base_name(link), p);
    } else if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        p->size = (uint64_t)st.st_size;
        read_fs(root, host, path, fd, p);
    } else {
        p->kind = DR_POOL_OTHER;
    }
    if (fd >= 0)
        (void)close(fd);
}

void dr_pool_read(struct dr_root *root, const struct dr_host *host, const struct txn_config *config,
    const struct txn_config_node *node, struct dr_pool *p)
{
    char *full = malloc(PATH_MAX);

    memset(p, 0, sizeof(*p));
    p->node = node->id;
    p->numa = -1;
    p->persistence = node->persistence;
    dr_copy_printable(p->path, sizeof(p->path), node->pool);
    if (full != NULL) {
        resolve(root, node->pool, full);
        read_object(root, host, full, p);
    }
    free(full);
    if (p->size == 0)
        p->size = node->pool_size;
    if (root->live && p->exists && access(node->pool, R_OK | W_OK) != 0)
        (void)snprintf(p->denied, sizeof(p->denied), "%.63s", strerror(errno));
    uint64_t connections = 2 * (uint64_t)config->geometry.slot_count + 2 * config->node_count +
        CONNECTIONS_BESIDE;
    if (__builtin_add_overflow(p->size, connections * BYTES_PER_CONNECTION, &p->pinned))
        p->pinned = UINT64_MAX;
}
