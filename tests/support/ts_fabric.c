/* SPDX-License-Identifier: BSD-3-Clause */
/* ts_fabric.c: see ts_fabric.h. */
#include "tests/support/ts_fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIPE_SIZE (UINT64_C(2) << 20) /* devdax is mapped in whole huge pages */

static const char *setting(const char *name, const char *otherwise)
{
    const char *text = getenv(name);

    return text == NULL || text[0] == '\0' ? otherwise : text;
}

static void die(const char *name, const char *allowed)
{
    (void)fprintf(stderr, "%s=%s: must be %s\n", name, setting(name, "(not set)"), allowed);
    abort();
}

enum cn_log_level ts_fabric_log_level(void)
{
    static const struct {
        const char *name;
        enum cn_log_level level;
    } levels[] = {{"error", CN_LOG_ERROR}, {"warning", CN_LOG_WARNING}, {"info", CN_LOG_INFO},
        {"debug", CN_LOG_DEBUG}};
    const char *text = setting("CAIRN_TEST_LOG", "error");

    for (size_t i = 0; i < CN_ARRAY_SIZE(levels); i++)
        if (strcmp(text, levels[i].name) == 0)
            return levels[i].level;
    die("CAIRN_TEST_LOG", "error, warning, info or debug");
    return CN_LOG_ERROR;
}

const char *ts_fabric_name(void)
{
    const char *name = setting("CAIRN_TEST_FABRIC", "emu");

    if (strcmp(name, "emu") != 0 && strcmp(name, "rpma") != 0)
        die("CAIRN_TEST_FABRIC", "emu or rpma");
    return name;
}

bool ts_fabric_is_emu(void)
{
    return strcmp(ts_fabric_name(), "emu") == 0;
}

void ts_fabric_options(struct txn_config *config)
{
    const char *atomics = setting("CAIRN_TEST_ATOMICS", "nic");
    const char *queue_pairs = setting("CAIRN_TEST_QPS", "0");
    char *end;

    (void)snprintf(config->fabric, sizeof(config->fabric), "%s", ts_fabric_name());
    config->fabric_config.message_atomics = strcmp(atomics, "message") == 0;
    if (strcmp(atomics, "nic") != 0 && strcmp(atomics, "message") != 0)
        die("CAIRN_TEST_ATOMICS", "nic or message");
    config->fabric_config.queue_pairs = (uint32_t)strtoul(queue_pairs, &end, 10);
    if (*end != '\0' || config->fabric_config.queue_pairs > 8)
        die("CAIRN_TEST_QPS", "a number from 1 to 8");
}

static enum txn_persistence persistence(void)
{
    const char *text = setting("CAIRN_TEST_PERSISTENCE", "auto");

    for (int i = TXN_PERSISTENCE_AUTO; i <= TXN_PERSISTENCE_EMULATED; i++)
        if (strcmp(text, txn_persistence_name((enum txn_persistence)i)) == 0)
            return (enum txn_persistence)i;
    die("CAIRN_TEST_PERSISTENCE", "auto, apm, gpspm, eadr or emulated");
    return TXN_PERSISTENCE_AUTO;
}

/* The n-th of the list; false: it has not so many. */
static bool listed_pool(uint32_t at, char *ret, size_t ret_size)
{
    const char *list = setting("CAIRN_TEST_POOLS", "");

    for (; at > 0; at--) {
        list = strchr(list, ',');
        if (list == NULL)
            return false;
        list++;
    }
    size_t size = strcspn(list, ",");
    if (size == 0)
        return false;
    (void)snprintf(ret, ret_size, "%.*s", (int)size, list);
    return true;
}

static bool is_device(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

void ts_fabric_node(const char *dir, uint32_t at, uint64_t size, struct txn_config_node *ret_node)
{
    const char *ip = setting("CAIRN_TEST_ADDRESS", "");

    if (ts_fabric_is_emu())
        (void)snprintf(
            ret_node->address, sizeof(ret_node->address), "%.80s/n%u.sock", dir, at + 1);
    else if (ip[0] == '\0')
        die("CAIRN_TEST_ADDRESS", "the IP of an RDMA device where CAIRN_TEST_FABRIC=rpma");
    else
        (void)snprintf(ret_node->address, sizeof(ret_node->address),
            strchr(ip, ':') != NULL ? "[%.64s]:%u" : "%.64s:%u", ip,
            TS_FABRIC_PORT + TS_FABRIC_PORT_STEP * at);
    if (!listed_pool(at, ret_node->pool, sizeof(ret_node->pool)))
        (void)snprintf(ret_node->pool, sizeof(ret_node->pool), "%s/n%u.pool", dir, at + 1);
    ret_node->pool_size = is_device(ret_node->pool) ? 0 : size;
    ret_node->persistence = persistence();
}

/* libpmemobj makes no pool where there seems to be one: as `pmempool rm` and daxio do. */
static int wipe_device(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return cn_fail(-errno, "%s: cannot wipe it: %s", path, strerror(errno));
    void *base = mmap(NULL, WIPE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = base == MAP_FAILED ? -errno : 0;
    (void)close(fd);
    if (error != 0)
        return cn_fail(error, "%s: cannot map it: %s", path, strerror(-error));
    (void)pmem_memset_persist(base, 0, WIPE_SIZE);
    (void)munmap(base, WIPE_SIZE);
    return 0;
}

int ts_fabric_make_pool(
    const struct txn_config *config, const struct txn_config_node *at, const struct cn_env *env)
{
    if (is_device(at->pool)) {
        int error = wipe_device(at->pool);
        if (error != 0)
            return error;
    } else {
        (void)unlink(at->pool);
    }
    return pm_pool_create(
        at->pool, at->pool_size, &config->geometry, &config->cluster, at->id, env);
}

void ts_fabric_remove(const struct txn_config_node *at)
{
    if (!is_device(at->pool))
        (void)unlink(at->pool);
    if (at->address[0] == '/')
        (void)unlink(at->address);
}
