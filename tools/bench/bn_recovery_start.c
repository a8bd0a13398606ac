/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_recovery_start.c: the start of a node after a crash, in this process: the product's own steps
 * (rec_start.c), which say themselves how long they took. Then every key is looked up in the pool
 * and held against what was committed; a figure is given for nothing less.
 *
 * Figures are per core: while it starts, the clock that the node is given is the processor time of
 * its only thread, and copies are measured by the same; so who else is at work on the machine does
 * not count. The time on the wall is told besides.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "recovery/rec_node.h"
#include "tools/bench/bn_recovery.h"

#define OPENER_WAIT_MS 10000u
#define PAGE 4096u
#define COPY_BYTES (UINT64_C(64) << 20) /* so much is copied to find the rate, or so often: */
#define COPIES_MAX 16u

/* ---- the clock ---- */

static bool starting; /* a node, in this thread */

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return starting ? cpu_ns() : cn_now_ns(cn_env_system());
}

/* ---- what must be there ---- */

struct check {
    const struct rv_cluster *c;
    uint32_t at;
    uint64_t good;
    char wrong[160];
    uint8_t *value;
    uint32_t *slot; /* open addressing over the node's keys: number + 1 */
    uint32_t mask;
};

static int index_keys(struct check *k)
{
    uint32_t capacity = 2;

    while (capacity < 2 * k->c->shape.keys)
        capacity *= 2;
    k->mask = capacity - 1;
    k->slot = calloc(capacity, sizeof(*k->slot));
    k->value = malloc(CAIRN_VALUE_SIZE_MAX + 8);
    if (k->slot == NULL || k->value == NULL)
        return cn_fail(-ENOMEM, "no memory for %u keys", k->c->shape.keys);
    for (uint32_t i = 0; i < k->c->shape.keys; i++) {
        uint32_t at = (uint32_t)cn_mix64(k->c->key[k->at][i]) & k->mask;
        while (k->slot[at] != 0)
            at = (at + 1) & k->mask;
        k->slot[at] = i + 1;
    }
    return 0;
}

static void look_at_item(
    void *arg, const struct pm_index *index, const struct pm_item_view *item)
{
    struct check *k = arg;
    const struct rv_cluster *c = k->c;
    uint64_t key = 0;

    (void)index;
    memcpy(&key, item->key, cn_min64(item->key_size, sizeof(key)));
    uint32_t at = (uint32_t)cn_mix64(key) & k->mask;
    while (k->slot[at] != 0 && c->key[k->at][k->slot[at] - 1] != key)
        at = (at + 1) & k->mask;
    if (k->slot[at] == 0 || item->key_size != sizeof(key)) {
        (void)snprintf(k->wrong, sizeof(k->wrong), "a key that nobody put");
        return;
    }
    uint32_t round = c->round[k->slot[at] - 1];
    rv_value(c, key, round, k->value);
    if (item->value_size == c->shape.value_size &&
        memcmp(item->value, k->value, item->value_size) == 0)
        k->good++;
    else
        (void)snprintf(k->wrong, sizeof(k->wrong), "key %llu has not the value of round %u",
            (unsigned long long)key, round);
}

static void look_at_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    struct check *k = arg;

    if (severity == PM_FSCK_DAMAGE)
        (void)snprintf(k->wrong, sizeof(k->wrong), "%.150s", text);
}

static int check_pool(const struct rv_cluster *c, uint32_t at, const struct pm_pool *pool)
{
    struct check k = {.c = c, .at = at};
    struct pm_fsck_options options = {
        .report = look_at_damage, .item = look_at_item, .arg = &k};
    struct pm_fsck_report report;
    int rc = index_keys(&k);

    if (rc == 0)
        rc = pm_fsck(pool, &options, &report);
    if (rc == 0 && (k.good != c->shape.keys || report.items != c->shape.keys ||
                       report.words_locked != 0 || report.damages != 0))
        rc = cn_fail(CAIRN_E_STATE,
            "node %u after its start: %llu of %u values are right, %llu words locked, %llu "
            "damages%s%s",
            at + 1, (unsigned long long)k.good, c->shape.keys,
            (unsigned long long)report.words_locked, (unsigned long long)report.damages,
            k.wrong[0] == '\0' ? "" : ": ", k.wrong);
    free(k.slot);
    free(k.value);
    return rc;
}

/* ---- the copy rate ---- */

static int make_file(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)size) == 0)
        return fd;
    int rc = cn_fail(-errno, "%s: cannot make %llu bytes: %s", path, (unsigned long long)size,
        strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

/* Copy `bytes` from the first half of a file to the second, value by value; nanoseconds. 0: it
 * cannot be mapped. */
static uint64_t copy_once(int fd, uint64_t bytes, uint64_t size, bool mapped)
{
    uint8_t *base = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
        MAP_SHARED | (mapped ? MAP_POPULATE : 0), fd, 0);
    uint64_t begin = cpu_ns();

    if (base == MAP_FAILED)
        return 0;
    for (uint64_t at = 0; at < bytes; at += size)
        memcpy(base + bytes + at, base + at, size);
    begin = cpu_ns() - begin;
    (void)munmap(base, 2 * bytes);
    return begin;
}

/* Values of a log, one by one, from memory to memory of the same kind as the pool's. */
static int measure_copy(
    const struct rv_cluster *c, uint32_t records, bool mapped, double *ret_rate)
{
    char path[TL_PATH_MAX + 8];
    uint64_t size = c->shape.value_size, bytes = size * records, copied = 0, took = 0;

    *ret_rate = 0;
    if (bytes == 0)
        return 0;
    (void)snprintf(path, sizeof(path), "%s/copy", c->folder);
    int fd = make_file(path, 2 * bytes);
    if (fd < 0)
        return fd;
    (void)copy_once(fd, bytes, size, mapped); /* the file's memory is all there now */
    for (uint32_t i = 0; i < COPIES_MAX && copied < COPY_BYTES; i++) {
        uint64_t ns = copy_once(fd, bytes, size, mapped);
        took += ns;
        copied += ns == 0 ? 0 : bytes;
    }
    (void)close(fd);
    (void)unlink(path);
    if (took == 0)
        return cn_fail(-ENOMEM, "%s: cannot map it", path);
    *ret_rate = (double)copied * 1e9 / (double)took;
    return 0;
}

/* ---- a start ---- */

/* Page by page, as no hint would. */
static void map_pages(const struct pm_pool *pool)
{
    const volatile uint8_t *base = pool->pm.base;

    for (uint64_t at = 0; at < pool->pm.size; at += PAGE)
        (void)base[at];
}

static int open_node(struct rv_cluster *c, uint32_t at, bool mapped, struct rd_fabric *fabric,
    struct pm_pool **ret_pool, struct rec_node **ret_node)
{
    const struct txn_config_node *place = txn_config_find_node(c->config, (uint16_t)(at + 1));
    static struct cn_env env; /* outlives the node */
    int rc = pm_pool_open(place->pool, PM_OPEN_OWNER, OPENER_WAIT_MS, cn_env_system(), ret_pool);

    if (rc != 0)
        return rc;
    struct rec_node_options options = {
        .config = c->config,
        .node = place->id,
        .fabric = fabric,
        .env = &env,
        .pool = *ret_pool,
    };
    if (mapped)
        map_pages(*ret_pool);
    env = *cn_env_system();
    env.now_ns = now_ns;
    starting = true;
    rc = rec_node_open(&options, ret_node);
    starting = false;
    if (rc != 0)
        pm_pool_close(ret_pool);
    return rc;
}

static int look_at_start(const struct rv_cluster *c, uint32_t at, uint32_t records,
    const struct rec_node *node, struct rv_start *ret)
{
    struct rec_node_stats stats;

    rec_node_stats(node, &stats);
    *ret = (struct rv_start){.records = records,
        .pool_size = c->shape.pool_size,
        .open_ns = stats.open_ns,
        .scan_ns = stats.scan_ns,
        .replay_ns = stats.replay_ns};
    if (stats.records_replayed != records || stats.records_in_doubt_at_start != 0)
        return cn_fail(CAIRN_E_STATE,
            "node %u: %u records were committed, and its start replayed %llu (%llu in doubt)",
            at + 1, records, (unsigned long long)stats.records_replayed,
            (unsigned long long)stats.records_in_doubt_at_start);
    return 0;
}

int rv_start_node(
    struct rv_cluster *c, uint32_t at, uint32_t records, bool mapped, struct rv_start *ret)
{
    struct rd_fabric *fabric;
    struct rec_node *node;
    struct pm_pool *pool;
    double before = 0, after = 0;
    uint64_t wall_ns;
    int rc = measure_copy(c, records, mapped, &before);

    if (rc == 0)
        rc = txn_config_open_fabric(c->config, &fabric);
    if (rc != 0)
        return rc;
    wall_ns = cn_now_ns(cn_env_system());
    rc = open_node(c, at, mapped, fabric, &pool, &node);
    wall_ns = cn_now_ns(cn_env_system()) - wall_ns;
    if (rc == 0) {
        rc = look_at_start(c, at, records, node, ret);
        ret->wall_ns = wall_ns;
        if (rc == 0)
            rc = check_pool(c, at, pool);
        rec_node_close(&node);
    }
    rd_fabric_delete(fabric);
    if (rc == 0)
        rc = measure_copy(c, records, mapped, &after);
    ret->copy_rate = (before + after) / 2;
    return rc;
}
