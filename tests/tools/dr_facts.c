/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_facts.c: see dr_facts.h.
 */
#include "tests/tools/dr_facts.h"

#define PUT(field, text) (void)snprintf((field), sizeof(field), "%s", (text))

static void make_port(struct dr_port *p)
{
    p->number = 1;
    p->link = DR_LINK_ETHERNET;
    p->state = DR_STATE_ACTIVE;
    p->phys = DR_PHYS_UP;
    PUT(p->state_text, "ACTIVE");
    PUT(p->phys_text, "LinkUp");
    PUT(p->rate, "100 Gb/sec (4X EDR)");
    p->rate_mbps = 100000;
    p->sm_known = true;
    p->gid_count = 2;
    p->roce2 = 2;
    p->routable = 1;
    p->netdev_count = 1;
    PUT(p->netdev[0].name, "eth0");
    PUT(p->netdev[0].operstate, "up");
    p->netdev[0].mtu = 9000;
    p->netdev[0].ecn_np = 0xff;
    p->netdev[0].ecn_rp = 0xff;
    p->tos = -1;
}

static void make_device(struct dr_device *d, const char *name)
{
    memset(d, 0, sizeof(*d));
    PUT(d->name, name);
    PUT(d->node_type, "1: CA");
    PUT(d->driver, "mlx5_ib");
    PUT(d->pci, "0000:5e:00.0");
    d->transport = DR_ROCE;
    d->speed = d->speed_max = 80;
    d->width = d->width_max = 16;
    d->numa = 0;
    d->atomics = d->odp = d->opened = DR_YES;
    d->port_count = 1;
    make_port(&d->port[0]);
}

void dr_sample_make(struct dr_sample *s)
{
    struct dr_host *h = &s->facts.host;

    memset(s, 0, sizeof(*s));
    s->facts.live = true;
    s->facts.device = s->device;
    s->facts.device_count = s->facts.device_all = 1;
    s->facts.pool = s->pool;
    s->facts.owners_known = DR_YES;
    make_device(&s->device[0], "mlx5_0");
    make_device(&s->device[1], "mlx5_1");
    PUT(h->release, "6.1.0-18-amd64");
    h->kernel = 6001;
    h->memlock_known = DR_YES;
    h->memlock = h->memlock_hard = UINT64_MAX;
    h->ipc_lock = DR_NO;
    h->huge_known = true;
    h->huge_total = 64;
    PUT(h->thp, "madvise");
    h->uverbs = true;
    h->rdma_cm = DR_YES;
}

void dr_sample_add_pool(struct dr_sample *s)
{
    struct dr_pool *p = &s->pool[0];

    PUT(s->config.fabric, "rpma");
    s->facts.config = &s->config;
    s->facts.pool_count = 1;
    p->node = 1;
    PUT(p->path, "/dev/dax0.0");
    p->kind = DR_POOL_DEVDAX;
    p->exists = true;
    p->size = 1 << 30;
    p->pinned = (1 << 30) + (1 << 20);
    PUT(p->region, "region0");
    PUT(p->domain, "cpu_cache");
    p->numa = 0;
}

const struct dr_finding *dr_sample_find(const struct dr_sample *s, const char *id)
{
    for (unsigned i = 0; i < s->report.count; i++) {
        if (strcmp(s->report.finding[i].id, id) == 0)
            return &s->report.finding[i];
    }
    return NULL;
}

unsigned dr_sample_count(struct dr_sample *s, const char *id)
{
    unsigned count = 0;

    dr_rules_run(&s->facts, &s->report);
    for (unsigned i = 0; i < s->report.count; i++)
        count += strcmp(s->report.finding[i].id, id) == 0;
    return count;
}

enum dr_severity dr_sample_severity(struct dr_sample *s, const char *id)
{
    dr_rules_run(&s->facts, &s->report);
    const struct dr_finding *f = dr_sample_find(s, id);
    return f == NULL ? DR_OK : f->severity;
}

void dr_sample_counter(
    struct dr_sample *s, const char *name, enum dr_counter_class class, uint64_t value)
{
    struct dr_port *p = &s->device[0].port[0];

    CAIRN_ASSERT(p->counter_count < DR_COUNTERS_MAX);
    p->counter[p->counter_count++] = (struct dr_counter){name, class, value};
}
