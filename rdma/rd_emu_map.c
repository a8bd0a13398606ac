/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_map.c: regions on the passive side; mapping what was granted on the active side; ring
 * locks and the fence word.
 *
 * The ring lock means "a process still has this ring mapped". The active side opens the passed
 * descriptor again, so that the open file description is its own, takes an OFD lock on the ring's
 * bytes in it, maps the regions from it and closes the descriptor. The mappings then hold the
 * description, and the kernel drops the lock with the last of them: on munmap, or when the process
 * has really ended. The lock is taken before the mapping, and the mapping before READY is sent; the
 * passive side shuts the socket before it probes. So a peer whose READY got through is seen by the
 * probe, and one whose READY did not never comes up. Mappings are not inherited by fork: a child
 * would keep the lock.
 *
 * The probe is F_OFD_GETLK: it never holds a lock itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rdma/rd_emu.h"
#include "rdma/rd_live.h"

#define DEVDAX_ALIGNMENT (UINT64_C(2) << 20)

const uint64_t rd_emu_no_fence = 0;

int rd_emu_reopen(int fd)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return rd_emu_own_fd(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

static struct emu_ring_header *ring_header(const struct emu_region *region)
{
    return (struct emu_ring_header *)(void *)region->memory;
}

static struct flock lock_of(uint64_t off, uint64_t size)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)off, .l_len = (off_t)size};
}

/* ---- regions, passive side ---- */

static int region_open_file(struct emu_region *region, int fd)
{
    struct stat st;
    region->fd = -1;
    if (fd < 0)
        return 0;
    if (fstat(fd, &st) != 0)
        return cn_fail(-errno, "region: cannot look at its file: %s", strerror(errno));
    int own = rd_emu_reopen(fd);
    if (own < 0)
        return cn_fail(own, "region: cannot open its file again through /proc/self/fd: %s",
            strerror(-own));
    region->fd = own;
    region->device = st.st_dev;
    region->inode = st.st_ino;
    return 0;
}

int rd_emu_region_new(struct rd_ep *rd_ep, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region)
{
    struct emu_ep *ep = emu_ep(rd_ep);
    const unsigned all = RD_ACCESS_READ | RD_ACCESS_WRITE | RD_ACCESS_ATOMIC;
    CAIRN_ASSERT(access != 0 && (access & ~all) == 0);
    CAIRN_ASSERT((uintptr_t)memory->base % 8 == 0 && memory->pool_off % 8 == 0);
    if (memory->size == 0 || !cn_range_inside(memory->pool_off, memory->size, 0, INT64_MAX))
        return cn_fail(CAIRN_E_FABRIC, "region at %#llx: impossible size %llu",
            (unsigned long long)memory->pool_off, (unsigned long long)memory->size);
    struct emu_region *region = calloc(1, sizeof(*region));
    if (region == NULL)
        return cn_fail(-ENOMEM, "no memory for a region");
    int err = region_open_file(region, memory->fd);
    if (err != 0) {
        free(region);
        return err;
    }
    region->base = (struct rd_region){ep->base.ops, memory->pool_off, memory->size, access};
    region->ep = ep;
    region->memory = memory->base;
    region->durability = memory->durability != 0 ? memory->durability : RD_DURABILITY_EMULATED;
    region->next = ep->regions;
    ep->regions = region;
    ep->counters.registrations++;
    rd_live_change(RD_LIVE_REGION, 1);
    *ret_region = &region->base;
    return 0;
}

void rd_emu_region_delete(struct rd_region *rd_region)
{
    struct emu_region *region = emu_region(rd_region);
    struct emu_ep *ep = region->ep;
    struct emu_region **at = &ep->regions;
    while (*at != region) {
        CAIRN_ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = region->next;
    (void)pthread_mutex_lock(&ep->lock);
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        if (ep->conns[i].ring == rd_region)
            ep->conns[i].ring = NULL;
    }
    (void)pthread_mutex_unlock(&ep->lock);
    rd_emu_close(region->fd);
    free(region);
    rd_live_change(RD_LIVE_REGION, -1);
}

/* ---- fencing, passive side ---- */

void rd_emu_ring_set_fence(struct rd_region *ring)
{
    __atomic_store_n(&ring_header(emu_region(ring))->fence, 1, __ATOMIC_SEQ_CST);
    emu_full_barrier();
}

static int probe_ring(const struct emu_region *region, bool *ret_busy)
{
    if (region->fd < 0) {
        *ret_busy = __atomic_load_n(&ring_header(region)->users, __ATOMIC_SEQ_CST) != 0;
        return 0;
    }
    struct flock lock = lock_of(region->base.pool_off, region->base.size);
    if (fcntl(region->fd, F_OFD_GETLK, &lock) != 0)
        return cn_fail(-errno, "cannot ask who has the ring at %#llx mapped: %s",
            (unsigned long long)region->base.pool_off, strerror(errno));
    *ret_busy = lock.l_type != F_UNLCK;
    return 0;
}

int rd_emu_ring_revoke(struct rd_region *ring, bool *ret_busy)
{
    CAIRN_ASSERT((ring->access & RD_ACCESS_WRITE) != 0 && ring->size > RD_RING_HEADER_SIZE);
    rd_emu_ring_set_fence(ring);
    return probe_ring(emu_region(ring), ret_busy);
}

int rd_emu_ring_rearm(struct rd_region *ring)
{
    CAIRN_ASSERT((ring->access & RD_ACCESS_WRITE) != 0 && ring->size > RD_RING_HEADER_SIZE);
    bool busy;
    int err = probe_ring(emu_region(ring), &busy);
    if (err != 0)
        return err;
    if (busy)
        return cn_fail(CAIRN_E_STATE, "the ring at %#llx is still mapped by a peer process",
            (unsigned long long)ring->pool_off);
    __atomic_store_n(&ring_header(emu_region(ring))->fence, 0, __ATOMIC_SEQ_CST);
    emu_full_barrier();
    return 0;
}

/* ---- mapping, active side ---- */

int rd_emu_add_map(struct emu_conn *c, const struct emu_map *map)
{
    if (c->map_count == RD_EMU_REGIONS_MAX)
        return cn_fail(CAIRN_E_LIMIT, "more than %u regions are granted", RD_EMU_REGIONS_MAX);
    uint32_t at = c->map_count;
    while (at > 0 && c->maps[at - 1].pool_off > map->pool_off)
        at--;
    if ((at > 0 && c->maps[at - 1].pool_off + c->maps[at - 1].size > map->pool_off) ||
        (at < c->map_count && map->pool_off + map->size > c->maps[at].pool_off))
        return cn_fail(CAIRN_E_PROTOCOL, "the granted region at %#llx overlaps another",
            (unsigned long long)map->pool_off);
    memmove(&c->maps[at + 1], &c->maps[at], (c->map_count - at) * sizeof(*map));
    c->maps[at] = *map;
    c->map_count++;
    return 0;
}

void rd_emu_unmap_all(struct emu_conn *c)
{
    for (uint32_t i = 0; i < c->map_count; i++) {
        struct emu_map *map = &c->maps[i];
        if (map->ring && map->mapped == NULL && c->ring_header != NULL)
            __atomic_fetch_sub(&c->ring_header->users, 1, __ATOMIC_SEQ_CST);
        rd_emu_unmap(map->mapped, map->mapped_size);
    }
    c->map_count = 0;
    c->ring_header = NULL;
    c->fence = &rd_emu_no_fence;
    c->write_back = false;
}

/* What is being mapped: the passed files, opened again. */
struct grant {
    struct emu_conn *conn;
    bool same_process;
    uint32_t file_count;
    int files[RD_EMU_FILES_MAX];
    struct stat stats[RD_EMU_FILES_MAX];
};

/* Is it persistent memory that programs map directly: devdax, or a file on fsdax? */
static bool is_dax(int fd, const struct stat *st)
{
    if (S_ISCHR(st->st_mode))
        return true;
    /* Nothing else can be mapped so. */
    void *page = mmap(NULL, EMU_PAGE_SIZE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (page == MAP_FAILED)
        return false;
    (void)munmap(page, EMU_PAGE_SIZE);
    return true;
}

static int open_files(struct grant *g, const int *fds, uint32_t count)
{
    for (g->file_count = 0; g->file_count < count; g->file_count++) {
        struct stat *st = &g->stats[g->file_count];
        if (fstat(fds[g->file_count], st) != 0 || (!S_ISREG(st->st_mode) && !S_ISCHR(st->st_mode)))
            return cn_fail(CAIRN_E_PROTOCOL, "the peer passed something that is not a pool file");
        int fd = rd_emu_reopen(fds[g->file_count]);
        if (fd < 0)
            return cn_fail(fd, "cannot open the peer's pool file through /proc/self/fd: %s",
                strerror(-fd));
        g->files[g->file_count] = fd;
    }
    return 0;
}

static int lock_ring(int fd, const struct emu_map *map)
{
    struct flock lock = lock_of(map->pool_off, map->size);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return cn_fail(CAIRN_E_FABRIC, "another process still has the ring at %#llx mapped",
            (unsigned long long)map->pool_off);
    return cn_fail(-errno, "cannot lock the ring at %#llx: %s", (unsigned long long)map->pool_off,
        strerror(errno));
}

static int map_file(const struct grant *g, uint32_t file, struct emu_map *map)
{
    if (file >= g->file_count)
        return cn_fail(
            CAIRN_E_PROTOCOL, "a granted region is in file %u of %u", file, g->file_count);
    const struct stat *st = &g->stats[file];
    uint64_t end = map->pool_off + map->size;
    if (S_ISREG(st->st_mode) && end > (uint64_t)st->st_size)
        return cn_fail(CAIRN_E_PROTOCOL, "the granted region at %#llx ends behind the pool file",
            (unsigned long long)map->pool_off);
    if (map->ring) {
        int err = lock_ring(g->files[file], map);
        if (err != 0)
            return err;
    }
    uint64_t alignment = S_ISCHR(st->st_mode) ? DEVDAX_ALIGNMENT : EMU_PAGE_SIZE;
    uint64_t start = map->pool_off / alignment * alignment;
    bool writable = (map->access & (RD_ACCESS_WRITE | RD_ACCESS_ATOMIC)) != 0;
    map->mapped_size = (size_t)(cn_align_up(end, alignment) - start);
    map->mapped = rd_emu_map(g->files[file], start, map->mapped_size,
        writable ? PROT_READ | PROT_WRITE : PROT_READ);
    if (map->mapped == NULL)
        return cn_fail(-errno, "cannot map %zu bytes of the peer's pool: %s", map->mapped_size,
            strerror(errno));
    (void)madvise(map->mapped, map->mapped_size, MADV_DONTFORK);
    map->base = (uint8_t *)map->mapped + (map->pool_off - start);
    return 0;
}

/* Whether what is written is durable only when its cache lines are written back. What is to survive
 * no more than processes survives in the caches. A pool on persistent memory survives the host. */
static bool needs_write_back(const struct grant *g, uint16_t file)
{
    const struct emu_conn *c = g->conn;
    if (emu_conn_ep(c)->fabric->write_back || c->base.durability == RD_DURABILITY_APM ||
        c->base.durability == RD_DURABILITY_GPSPM)
        return true;
    return c->base.durability != RD_DURABILITY_EADR && file != RD_EMU_NO_FILE &&
           is_dax(g->files[file], &g->stats[file]);
}

/* Check one region of the accept frame and map it. */
static int map_region(const struct grant *g, const struct rd_emu_region_wire *wire)
{
    struct emu_conn *c = g->conn;
    const unsigned all = RD_ACCESS_READ | RD_ACCESS_WRITE | RD_ACCESS_ATOMIC;
    struct emu_map map = {
        .pool_off = le64_get(wire->pool_off),
        .size = le64_get(wire->size),
        .access = le16_get(wire->access),
        .ring = le16_get(wire->ring) == 1,
    };
    if (map.size == 0 || map.pool_off % 8 != 0 ||
        !cn_range_inside(map.pool_off, map.size, 0, INT64_MAX - DEVDAX_ALIGNMENT) ||
        map.access == 0 || (map.access & ~all) != 0 || le16_get(wire->ring) > 1)
        return cn_fail(CAIRN_E_PROTOCOL, "malformed region in the peer's answer");
    uint16_t durability = le16_get(wire->durability);
    if (durability > (map.ring ? RD_DURABILITY_EADR : 0) || (map.ring && durability == 0))
        return cn_fail(CAIRN_E_PROTOCOL, "malformed durability in the peer's answer");
    if (map.ring && ((map.access & RD_ACCESS_WRITE) == 0 || map.size <= RD_RING_HEADER_SIZE ||
                        c->ring_header != NULL))
        return cn_fail(CAIRN_E_PROTOCOL, "malformed ring in the peer's answer");

    if (le16_get(wire->file) != RD_EMU_NO_FILE) {
        int err = map_file(g, le16_get(wire->file), &map);
        if (err != 0)
            return err;
    } else if (g->same_process) {
        map.base = (uint8_t *)(uintptr_t)le64_get(wire->base);
    } else {
        return cn_fail(CAIRN_E_FABRIC,
            "the region at %#llx has no file behind it and the peer is another process",
            (unsigned long long)map.pool_off);
    }
    int err = rd_emu_add_map(c, &map);
    if (err != 0) {
        rd_emu_unmap(map.mapped, map.mapped_size);
        return err;
    }
    if (map.ring) {
        c->ring_header = (struct emu_ring_header *)(void *)map.base;
        c->fence = &c->ring_header->fence;
        c->base.durability = (enum rd_durability)durability;
        c->write_back = needs_write_back(g, le16_get(wire->file));
        if (map.mapped == NULL)
            __atomic_fetch_add(&c->ring_header->users, 1, __ATOMIC_SEQ_CST);
    }
    return 0;
}

static int map_bell(struct emu_conn *c, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)EMU_PAGE_SIZE)
        return cn_fail(CAIRN_E_PROTOCOL, "the peer's doorbell page is malformed");
    c->peer_bell = rd_emu_map(fd, 0, EMU_PAGE_SIZE, PROT_READ | PROT_WRITE);
    if (c->peer_bell == NULL)
        return cn_fail(-errno, "cannot map the peer's doorbell page: %s", strerror(errno));
    (void)madvise(c->peer_bell, EMU_PAGE_SIZE, MADV_DONTFORK);
    return 0;
}

/* Whether the listener was made by this very process, whatever the frame says. */
static bool is_same_process(const struct emu_conn *c, uint32_t pid)
{
    struct ucred cred;
    socklen_t size = sizeof(cred);
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0)
        return false;
    return cred.pid == getpid() && pid == (uint32_t)getpid();
}

static int map_regions(
    struct grant *g, const uint8_t *wire, uint32_t count, const int *fds, uint32_t file_count)
{
    int err = open_files(g, fds, file_count);
    for (uint32_t i = 0; i < count && err == 0; i++) {
        struct rd_emu_region_wire region;
        memcpy(&region, wire + i * sizeof(region), sizeof(region));
        err = map_region(g, &region);
    }
    if (err == 0 && g->conn->ring_header != NULL &&
        __atomic_load_n(&g->conn->ring_header->fence, __ATOMIC_SEQ_CST) != 0)
        err = cn_fail(CAIRN_E_FENCED, "the ring was fenced before the connection came up");
    for (uint32_t i = 0; i < g->file_count; i++)
        rd_emu_close(g->files[i]); /* the mappings keep the description, and the lock in it */
    return err;
}

int rd_emu_map_grant(struct emu_conn *c, const uint8_t *payload, uint32_t size, const int *fds,
    uint32_t fd_count, uint32_t *ret_welcome_off)
{
    struct rd_emu_accept_wire accept;
    if (size < sizeof(accept))
        return cn_fail(CAIRN_E_PROTOCOL, "answer of %u bytes is too short", size);
    memcpy(&accept, payload, sizeof(accept));
    uint32_t count = le32_get(accept.region_count);
    uint32_t file_count = le32_get(accept.file_count);
    uint32_t welcome_size = le32_get(accept.welcome_size);
    if (count > RD_EMU_REGIONS_MAX || file_count > RD_EMU_FILES_MAX ||
        welcome_size > RD_WELCOME_SIZE_MAX ||
        size != sizeof(accept) + count * sizeof(struct rd_emu_region_wire) + welcome_size)
        return cn_fail(CAIRN_E_PROTOCOL, "the counts of an answer of %u bytes do not fit it", size);
    if (fd_count != file_count + 1)
        return cn_fail(CAIRN_E_PROTOCOL, "answer with %u descriptors where %u are due", fd_count,
            file_count + 1);

    struct grant g = {.conn = c, .same_process = is_same_process(c, le32_get(accept.pid))};
    int err = map_bell(c, fds[0]);
    if (err == 0)
        err = map_regions(&g, payload + sizeof(accept), count, fds + 1, file_count);
    if (err != 0) {
        rd_emu_unmap_all(c);
        return err;
    }
    *ret_welcome_off = (uint32_t)(sizeof(accept) + count * sizeof(struct rd_emu_region_wire));
    return 0;
}
