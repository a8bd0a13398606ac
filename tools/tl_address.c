/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_address.c: where nodes on this host listen for RDMA: the address of the network device that
 * belongs to the RDMA device, as sysfs tells it.
 */
#include "tools/tl_cluster.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

/* First line of a file, "" if there is none. */
static void read_line(const char *path, char *ret, size_t size)
{
    FILE *f = fopen(path, "re");

    ret[0] = '\0';
    if (f == NULL)
        return;
    if (fgets(ret, (int)size, f) != NULL)
        ret[strcspn(ret, "\n")] = '\0';
    (void)fclose(f);
}

/* The network device under an RDMA device: of its first GID, or (Soft-RoCE) its parent. */
static void read_netdev(const char *sysfs, const char *device, char ret[IF_NAMESIZE])
{
    char path[TL_PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/class/infiniband/%.64s/ports/1/gid_attrs/ndevs/0", sysfs,
        device);
    read_line(path, ret, IF_NAMESIZE);
    if (ret[0] != '\0')
        return;
    (void)snprintf(path, sizeof(path), "%s/class/infiniband/%.64s/parent", sysfs, device);
    read_line(path, ret, IF_NAMESIZE);
}

static bool read_ipv4(const char *netdev, char ret[64])
{
    struct ifaddrs *all;
    bool found = false;

    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *a = all; a != NULL && !found; a = a->ifa_next) {
        struct sockaddr_in in;
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_INET ||
            strcmp(a->ifa_name, netdev) != 0)
            continue;
        memcpy(&in, a->ifa_addr, sizeof(in));
        found = inet_ntop(AF_INET, &in.sin_addr, ret, 64) != NULL;
    }
    freeifaddrs(all);
    return found;
}

int tl_find_address(const char *sysfs, char ret_address[64])
{
    char path[TL_PATH_MAX], device[65] = "", netdev[IF_NAMESIZE];
    uint32_t count = 0;
    struct dirent *e;

    (void)snprintf(path, sizeof(path), "%.400s/class/infiniband", sysfs);
    DIR *dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        count++;
        (void)snprintf(device, sizeof(device), "%.64s", e->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (count == 0)
        return cn_fail(CAIRN_E_NO_DEVICE,
            "this host has no RDMA device (%s is empty); `cairn doctor` says more, and "
            "`--fabric emu` works without one",
            path);
    if (count > 1)
        return cn_fail(CAIRN_E_CONFIG,
            "this host has %u RDMA devices: say which one with --address IP", count);
    read_netdev(sysfs, device, netdev);
    if (netdev[0] == '\0' || !read_ipv4(netdev, ret_address))
        return cn_fail(CAIRN_E_CONFIG,
            "RDMA device %s: no IPv4 address on its network device \"%s\": give it one, or name "
            "one with --address IP",
            device, netdev);
    return 0;
}
