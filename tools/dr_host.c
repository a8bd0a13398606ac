/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_host.c: what the host gives: locked memory, huge pages, the interfaces of the RDMA stack,
 * persistent memory as the nd bus shows it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "tools/dr.h"

#define CAP_IPC_LOCK_BIT 14u

/* The line that begins with `name`, behind it. NULL: none. */
static const char *find_line(const char *text, const char *name)
{
    size_t size = strlen(name);

    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, size) == 0)
            return line + size;
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return NULL;
}

static bool parse_limit(const char **text, uint64_t *ret)
{
    char word[24] = "";
    int used = 0;
    char *end;

    if (sscanf(*text, " %23s%n", word, &used) != 1)
        return false;
    *text += used;
    if (strcmp(word, "unlimited") == 0) {
        *ret = UINT64_MAX;
        return true;
    }
    errno = 0;
    *ret = strtoull(word, &end, 10);
    return word[0] >= '0' && word[0] <= '9' && *end == '\0' && errno == 0;
}

static void read_memlock(struct dr_root *root, const char *folder, struct dr_host *h)
{
    char path[DR_PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/limits", folder);
    char *text = dr_read_file(root, path);
    const char *line = text == NULL ? NULL : find_line(text, "Max locked memory");
    uint64_t soft, hard;
    if (line != NULL && parse_limit(&line, &soft) && parse_limit(&line, &hard)) {
        h->memlock_known = DR_YES;
        h->memlock = soft;
        h->memlock_hard = hard;
    }
    free(text);

    (void)snprintf(path, sizeof(path), "%s/status", folder);
    text = dr_read_file(root, path);
    line = text == NULL ? NULL : find_line(text, "CapEff:");
    uint64_t caps;
    if (line != NULL && sscanf(line, " %16" SCNx64, &caps) == 1)
        h->ipc_lock = (caps >> CAP_IPC_LOCK_BIT & 1) != 0 ? DR_YES : DR_NO;
    free(text);
}

/* "HugePages_Total:       0", "MemTotal:  1234 kB". */
static bool take_value(const char *text, const char *name, uint64_t unit, uint64_t *ret)
{
    const char *line = find_line(text, name);
    uint64_t value;

    if (line == NULL || sscanf(line, " %" SCNu64, &value) != 1 ||
        __builtin_mul_overflow(value, unit, &value))
        return false;
    *ret = value;
    return true;
}

static void read_memory(struct dr_root *root, struct dr_host *h)
{
    char *text = dr_read_file(root, "/proc/meminfo"), thp[DR_TEXT_SIZE];

    if (text != NULL) {
        (void)take_value(text, "MemTotal:", 1024, &h->memory);
        (void)take_value(text, "HugePages_Free:", 1, &h->huge_free);
        h->huge_known = take_value(text, "HugePages_Total:", 1, &h->huge_total) &&
            take_value(text, "Hugepagesize:", 1024, &h->huge_size);
    }
    free(text);
    /* "always [madvise] never" */
    if (dr_read(root, thp, sizeof(thp), "/sys/kernel/mm/transparent_hugepage/enabled") > 0) {
        char *begin = strchr(thp, '['), *end = begin == NULL ? NULL : strchr(begin, ']');
        if (end != NULL) {
            *end = '\0';
            (void)snprintf(h->thp, sizeof(h->thp), "%.15s", begin + 1);
        }
    }
}

static void read_interfaces(struct dr_root *root, struct dr_host *h)
{
    static const char path[] = "/dev/infiniband/rdma_cm";

    h->uverbs = dr_exists(root, "/sys/class/infiniband_verbs");
    if (dr_exists(root, "/sys/class/misc"))
        h->rdma_cm = dr_exists(root, "/sys/class/misc/rdma_cm") ? DR_YES : DR_NO;
    if (!root->live || h->rdma_cm != DR_YES)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        (void)close(fd);
    else
        (void)snprintf(h->cm_error, sizeof(h->cm_error), "%s: %s", path, strerror(errno));
}

static void read_nd(struct dr_root *root, struct dr_host *h)
{
    char names[DR_REGIONS_MAX * 3][DR_NAME_SIZE];
    unsigned count = dr_list(root, names, DR_REGIONS_MAX * 3, "/sys/bus/nd/devices");

    for (unsigned i = 0; i < count; i++) {
        const char *name = names[i];
        if (strncmp(name, "region", 6) == 0 && h->region_count < DR_REGIONS_MAX) {
            struct dr_region *r = &h->region[h->region_count++];
            memcpy(r->name, name, sizeof(r->name));
            (void)dr_read(root, r->domain, sizeof(r->domain),
                "/sys/bus/nd/devices/%s/persistence_domain", name);
        } else if (strncmp(name, "namespace", 9) == 0 && h->namespace_count < DR_REGIONS_MAX) {
            struct dr_namespace *n = &h->namespace[h->namespace_count++];
            memcpy(n->name, name, sizeof(n->name));
            (void)dr_read(root, n->mode, sizeof(n->mode), "/sys/bus/nd/devices/%s/mode", name);
            (void)dr_read_u64(root, &n->size, "/sys/bus/nd/devices/%s/size", name);
        } else if (strncmp(name, "nmem", 4) == 0 && h->nvdimm_count < DR_REGIONS_MAX) {
            struct dr_nvdimm *n = &h->nvdimm[h->nvdimm_count++];
            memcpy(n->name, name, sizeof(n->name));
            (void)dr_read(
                root, n->flags, sizeof(n->flags), "/sys/bus/nd/devices/%s/nfit/flags", name);
        }
    }
}

void dr_host_read(struct dr_root *root, uint64_t pid, struct dr_host *h)
{
    char folder[64] = "/proc/self";
    unsigned major, minor;

    memset(h, 0, sizeof(*h));
    if (pid != 0)
        (void)snprintf(folder, sizeof(folder), "/proc/%" PRIu64, pid);
    (void)dr_read(root, h->release, sizeof(h->release), "/proc/sys/kernel/osrelease");
    if (sscanf(h->release, "%3u.%3u", &major, &minor) == 2)
        h->kernel = major * 1000 + minor;
    read_memlock(root, folder, h);
    read_memory(root, h);
    read_interfaces(root, h);
    read_nd(root, h);
}
