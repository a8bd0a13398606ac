/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_device.c: addresses, and RDMA devices with what is made once per device and fabric:
 * librpma's peer and our protection domain.
 *
 * Device contexts belong to librdmacm, which opens each device once per process; librpma and
 * rdma_create_qp() accept no others. They are compared by pointer and never closed here.
 *
 * The control lock is the one lock of the process: librpma and rdma-core are not thread-safe where
 * they make and destroy things.
 */
#include <errno.h>
#include <netdb.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;

void rd_rpma_control_lock(void)
{
    int err = pthread_mutex_lock(&control);
    CAIRN_ASSERT(err == 0);
}

void rd_rpma_control_unlock(void)
{
    int err = pthread_mutex_unlock(&control);
    CAIRN_ASSERT(err == 0);
}

/* ---- addresses ---- */

/* Splits "HOST:PORT" and "[HOST]:PORT". */
static bool split_address(
    const char *address, char host[RD_ADDRESS_SIZE_MAX], const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL)
        return false;
    size_t size = (size_t)(colon - address);
    bool bracket = address[0] == '[';
    if (bracket && (size < 3 || colon[-1] != ']'))
        return false;
    if (bracket) {
        address++;
        size -= 2;
    }
    if (size == 0 || size >= RD_ADDRESS_SIZE_MAX)
        return false;
    if (!bracket && memchr(address, ':', size) != NULL)
        return false; /* where would the port begin? */
    memcpy(host, address, size);
    host[size] = 0;
    *ret_port = colon + 1;
    return true;
}

/* 1 to 65534, as the next one is used too; 0: malformed. */
static uint16_t parse_port(const char *text)
{
    uint32_t port = 0;
    if (text[0] == 0 || strlen(text) > 5)
        return 0;
    for (; *text != 0; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        port = port * 10 + (uint32_t)(*text - '0');
    }
    return port < 65535 ? (uint16_t)port : 0;
}

int rd_rpma_parse_address(
    const char *address, struct sockaddr_storage *ret_addr, socklen_t *ret_size)
{
    char host[RD_ADDRESS_SIZE_MAX];
    const char *port_text = NULL;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (address == NULL || address[0] == 0)
        return cn_fail(
            CAIRN_E_CONFIG, "no address; give it as 10.0.0.1:7471 or [fe80::1%%eth0]:7471");
    if (strnlen(address, RD_ADDRESS_SIZE_MAX) >= RD_ADDRESS_SIZE_MAX)
        return cn_fail(CAIRN_E_CONFIG, "the address has more than %u characters: \"%.40s...\"",
            RD_ADDRESS_SIZE_MAX - 1, address);
    if (!split_address(address, host, &port_text))
        return cn_fail(CAIRN_E_CONFIG,
            "address \"%s\": an address and a port are needed, as 10.0.0.1:7471 or [fe80::1]:7471",
            address);
    uint16_t port = parse_port(port_text);
    if (port == 0)
        return cn_fail(CAIRN_E_CONFIG,
            "address \"%s\": the port must be 1 to 65534 (the next one is used too)", address);
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return cn_fail(CAIRN_E_CONFIG,
            "address \"%s\": \"%s\" is no numeric IPv4 or IPv6 address; names are not looked up",
            address, host);
    memset(ret_addr, 0, sizeof(*ret_addr));
    memcpy(ret_addr, found->ai_addr, found->ai_addrlen);
    *ret_size = found->ai_addrlen;
    freeaddrinfo(found);
    rd_rpma_set_port(ret_addr, port);
    return 0;
}

void rd_rpma_set_port(struct sockaddr_storage *addr, uint16_t port)
{
    if (addr->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)addr)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)addr)->sin_port = htons(port);
}

uint16_t rd_rpma_port(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)addr)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
}

/* ---- choosing ---- */

static int fail_name(struct ibv_context **list, int count, const char *name)
{
    char names[256] = "";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
            ibv_get_device_name(list[i]->device));
    }
    return cn_fail(
        CAIRN_E_NO_DEVICE, "no RDMA device is named \"%s\"; there is: %s", name, names);
}

int rd_rpma_choose(const char *name, struct ibv_context **ret_verbs)
{
    int count = 0, rc = 0;
    rd_rpma_control_lock();
    struct ibv_context **list = rdma_get_devices(&count);
    rd_rpma_control_unlock();
    if (list == NULL || count == 0) {
        rc = cn_fail(CAIRN_E_NO_DEVICE,
            "this host has no RDMA device that rdma_cm can use (are ib_uverbs and rdma_ucm "
            "loaded?); see `cairn doctor`");
        goto out;
    }
    struct ibv_context *found = count == 1 ? list[0] : NULL;
    if (name != NULL && name[0] != 0) {
        found = NULL;
        for (int i = 0; i < count; i++) {
            if (strcmp(ibv_get_device_name(list[i]->device), name) == 0)
                found = list[i];
        }
        if (found == NULL)
            rc = fail_name(list, count, name);
    }
    if (rc == 0)
        *ret_verbs = found;
out:
    if (list != NULL)
        rdma_free_devices(list);
    return rc;
}

static int fail_local(int error, const char *address)
{
    if (error == EADDRNOTAVAIL)
        return cn_fail(
            CAIRN_E_CONFIG, "no interface of this host has the address of \"%s\"", address);
    return cn_fail(CAIRN_E_NO_DEVICE,
        "the address of \"%s\" does not belong to an RDMA device (%s); see `cairn doctor`", address,
        error != 0 ? strerrordesc_np(error) : "it is of another kind of interface");
}

int rd_rpma_choose_local(const char *address, struct ibv_context **ret_verbs)
{
    struct sockaddr_storage addr;
    socklen_t size;
    struct rdma_cm_id *id = NULL;
    int rc = rd_rpma_parse_address(address, &addr, &size);
    if (rc != 0)
        return rc;
    rd_rpma_set_port(&addr, 0);
    rd_rpma_control_lock();
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0) {
        rc = fail_local(errno, address);
    } else {
        if (rdma_bind_addr(id, (struct sockaddr *)(void *)&addr) != 0)
            rc = fail_local(errno, address);
        else if (id->verbs == NULL)
            rc = fail_local(0, address);
        else
            *ret_verbs = id->verbs;
        (void)rdma_destroy_id(id);
    }
    rd_rpma_control_unlock();
    return rc;
}

/* ---- devices ---- */

/* What one operation can carry over every port that could be used. */
static uint32_t find_message_max(const struct nic_device *device)
{
    uint32_t least = UINT32_MAX;
    for (uint8_t port = 1; port <= device->attr.phys_port_cnt; port++) {
        struct ibv_port_attr attr = {0};
        if (ibv_query_port(device->verbs, port, &attr) == 0 && attr.state == IBV_PORT_ACTIVE &&
            attr.max_msg_sz > 0 && attr.max_msg_sz < least)
            least = attr.max_msg_sz;
    }
    return least != UINT32_MAX ? least : 0;
}

static int open_device(struct nic_device *device)
{
    char what[128];
    struct ibv_device *named = device->verbs->device;
    (void)snprintf(device->name, sizeof(device->name), "%s", ibv_get_device_name(named));
    (void)snprintf(what, sizeof(what), "device %s", device->name);
    int err = ibv_query_device(device->verbs, &device->attr);
    if (err != 0)
        return rd_rpma_fail_errno(err, what);
    device->iwarp = named->transport_type == IBV_TRANSPORT_IWARP;
    device->message_max = find_message_max(device);
    device->has_atomics = !device->iwarp && device->attr.atomic_cap != IBV_ATOMIC_NONE;
    rd_rpma_log_clear();
    err = rpma_peer_new(device->verbs, &device->peer);
    if (err != 0)
        return rd_rpma_fail(err, what);
    rd_live_change(RD_LIVE_PROTECTION_DOMAIN, 1);
    errno = 0;
    device->pd = ibv_alloc_pd(device->verbs);
    if (device->pd == NULL)
        return rd_rpma_fail_errno(errno, what);
    rd_live_change(RD_LIVE_PROTECTION_DOMAIN, 1);
    return 0;
}

static void close_device(struct nic_device *device)
{
    if (device->pd != NULL) {
        int err = ibv_dealloc_pd(device->pd);
        CAIRN_ASSERT(err != EBUSY); /* something of it would be alive */
        rd_live_change(RD_LIVE_PROTECTION_DOMAIN, -1);
    }
    if (device->peer != NULL) {
        (void)rpma_peer_delete(&device->peer);
        rd_live_change(RD_LIVE_PROTECTION_DOMAIN, -1);
    }
    free(device);
}

static int get_locked(
    struct nic_fabric *fabric, struct ibv_context *verbs, struct nic_device **ret_device)
{
    for (struct nic_device *d = fabric->devices; d != NULL; d = d->next) {
        if (d->verbs == verbs) {
            d->users++;
            *ret_device = d;
            return 0;
        }
    }
    struct nic_device *device = calloc(1, sizeof(*device));
    if (device == NULL)
        return cn_fail(-ENOMEM, "no memory for a device");
    device->verbs = verbs;
    device->users = 1;
    int rc = open_device(device);
    if (rc != 0) {
        close_device(device);
        return rc;
    }
    device->next = fabric->devices;
    fabric->devices = device;
    rd_live_change(RD_LIVE_DEVICE, 1);
    *ret_device = device;
    return 0;
}

int rd_rpma_device_get(
    struct nic_fabric *fabric, struct ibv_context *verbs, struct nic_device **ret_device)
{
    (void)pthread_mutex_lock(&fabric->lock);
    int rc = get_locked(fabric, verbs, ret_device);
    (void)pthread_mutex_unlock(&fabric->lock);
    return rc;
}

void rd_rpma_device_put(struct nic_fabric *fabric, struct nic_device *device)
{
    (void)pthread_mutex_lock(&fabric->lock);
    CAIRN_ASSERT(device->users > 0);
    if (--device->users == 0) {
        struct nic_device **at = &fabric->devices;
        while (*at != device)
            at = &(*at)->next;
        *at = device->next;
        close_device(device);
        rd_live_change(RD_LIVE_DEVICE, -1);
    }
    (void)pthread_mutex_unlock(&fabric->lock);
}
