/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_probe.c: ask every RDMA device what it can do. A device that cannot be opened is reported with
 * its error, not left out.
 */
#include "rdma/rd_probe.h"

#include <errno.h>
#include <infiniband/verbs.h>

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static int query(struct ibv_context *context, struct rd_probe_device *d)
{
    struct ibv_device_attr_ex attr = {0};
    const uint32_t rc_needs = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;

    int rc = ibv_query_device_ex(context, NULL, &attr);
    if (rc != 0)
        return rc > 0 ? -rc : -EIO;
    uint32_t caps = attr.odp_caps.per_transport_caps.rc_odp_caps;
    bool odp = (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
    d->atomics = attr.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
    d->odp = odp && (caps & rc_needs) == rc_needs;
    d->odp_atomics = odp && (caps & IBV_ODP_SUPPORT_ATOMIC) != 0;
    d->max_qp_wr = (uint32_t)attr.orig_attr.max_qp_wr;
    d->max_rd_atomic = (uint32_t)attr.orig_attr.max_qp_rd_atom;
    d->max_mr_size = attr.orig_attr.max_mr_size;
    d->port_count = attr.orig_attr.phys_port_cnt;
    for (uint32_t i = 0; i < d->port_count && i < RD_PROBE_PORTS_MAX; i++) {
        struct ibv_port_attr port = {0};
        if (ibv_query_port(context, (uint8_t)(i + 1), &port) != 0)
            continue;
        d->port[i].mtu = mtu_bytes(port.active_mtu);
        d->port[i].mtu_max = mtu_bytes(port.max_mtu);
    }
    return 0;
}

static void probe_one(struct ibv_device *device, struct rd_probe_device *d)
{
    memset(d, 0, sizeof(*d));
    (void)snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(device));
    errno = 0;
    struct ibv_context *context = ibv_open_device(device);
    if (context == NULL) {
        d->error = errno != 0 ? -errno : -EIO;
        return;
    }
    d->error = query(context, d);
    (void)ibv_close_device(context);
}

int rd_probe(struct rd_probe_device *devices, uint32_t max, uint32_t *ret_count)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);

    if (list == NULL) {
        int rc = errno != 0 ? -errno : -EIO;
        if (rc == -ENOSYS) { /* no RDMA in this kernel: no devices */
            *ret_count = 0;
            return 0;
        }
        return cn_fail(rc, "the RDMA devices cannot be listed: %s", strerror(-rc));
    }
    uint32_t used = 0;
    for (; used < max && used < (uint32_t)count; used++)
        probe_one(list[used], &devices[used]);
    ibv_free_device_list(list);
    *ret_count = used;
    return 0;
}
