/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_nic_fake.h: a connection of the `rpma` back end without a device: structs filled by hand, and
 * a provider in the test that takes work requests down and gives completions as told. For what
 * needs no librpma. Header-only. Include after cmocka.h.
 */
#ifndef RD_NIC_FAKE_H
#define RD_NIC_FAKE_H

#include "rdma/rd_rpma.h"

#define F_SIZE 8u

struct fake {
    struct nic_device device;
    struct nic_fabric fabric;
    struct nic_ep ep;
    struct nic_conn c;
    struct nic_op ops[NIC_QPS_MAX + 3][F_SIZE];
    struct nic_asked asked[2 * F_SIZE];
    struct nic_event events[64];
    struct rd_rpma_beat beat;
    uint64_t memory[64];
    struct ibv_mr mr, beat_mr;
    struct ibv_context verbs;
    struct ibv_qp qp;
    struct ibv_cq cq;
    struct rdma_cm_id id;
};

static struct { /* what the provider was given */
    uint32_t calls, requests, signaled;
    uint32_t last; /* requests of the last call */
    int error;
    struct ibv_send_wr first;
    struct ibv_sge first_sge;
    struct ibv_wc wc[16]; /* what it gives, by and by */
    int wc_count, polls, asked; /* `asked` for in the last poll */
    uint32_t *stale;            /* one more entry becomes stale while a poll goes on */
} provider;

static inline int fake_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp;
    provider.calls++;
    provider.last = 0;
    provider.first = *wr;
    provider.first_sge = *wr->sg_list;
    for (; wr != NULL; wr = wr->next) {
        provider.last++;
        provider.signaled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
        *bad = wr;
    }
    provider.requests += provider.last;
    return provider.error;
}

static inline int fake_poll(struct ibv_cq *cq, int want, struct ibv_wc *wc)
{
    (void)cq;
    int n = want < provider.wc_count ? want : provider.wc_count;
    provider.polls++;
    provider.asked = want;
    if (provider.stale != NULL)
        ++*provider.stale;
    memcpy(wc, provider.wc, (size_t)n * sizeof(*wc));
    provider.wc_count -= n;
    memmove(provider.wc, provider.wc + n, (size_t)provider.wc_count * sizeof(*wc));
    return n;
}

static inline struct fake *fake_open(void)
{
    struct fake *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    memset(&provider, 0, sizeof(provider));
    f->ep = (struct nic_ep){.fabric = &f->fabric, .env = cn_env_system(), .connections_max = 1,
        .outstanding_max = 64, .memory = (uint8_t *)f->memory, .memory_size = sizeof(f->memory),
        .device = &f->device, .object_mr = &f->mr, .beat_mr = &f->beat_mr, .cq_size = 64,
        .conns = &f->c, .events = f->events, .event_size = 64, .beats = &f->beat};
    f->mr.lkey = 71;
    f->beat_mr.lkey = 72;
    f->verbs.ops.post_send = fake_post;
    f->verbs.ops.poll_cq = fake_poll;
    f->qp.context = f->cq.context = &f->verbs;
    f->ep.cq = &f->cq;
    f->id.qp = &f->qp;
    f->c.base.ep = &f->ep.base;
    for (uint32_t i = 0; i < NIC_QPS_MAX + 3; i++) {
        struct nic_queue *queue = i < NIC_QPS_MAX        ? &f->c.qp[i].queue
                                  : i == NIC_QPS_MAX     ? &f->c.log_queue
                                  : i == NIC_QPS_MAX + 1 ? &f->c.persist
                                                         : &f->c.cas;
        queue->op = f->ops[i];
        queue->size = F_SIZE;
    }
    f->c.asked = f->asked;
    f->c.qp[0].id = &f->id;
    f->c.qp[0].has_qp = f->c.qp[0].up = true;
    f->c.qp_count = 1;
    f->c.state = NIC_LOOPBACK;
    f->c.active = true;
    f->c.peer_beat_addr = 0x9000;
    f->c.peer_beat_rkey = 73;
    f->c.grant[0] = (struct nic_grant){.pool_off = 0x1000, .size = 0x1000, .addr = 0x7000,
        .rkey = 70, .access = RD_ACCESS_READ | RD_ACCESS_ATOMIC};
    f->c.grant[1] = (struct nic_grant){
        .pool_off = 0x4000, .size = 0x100, .addr = 0xa000, .rkey = 69, .access = RD_ACCESS_READ};
    f->c.grant_count = 2;
    return f;
}

#endif
