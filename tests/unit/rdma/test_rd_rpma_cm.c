/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: ids and queue pairs come with the parameters that loss is found by, and go without a trace;
 * what cannot be is refused with a text.
 * Method: the pieces one by one on an endpoint, and a raw listener that looks at what arrives.
 * Invariants: rd_live counts every id and queue pair.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/epoll.h>

#include "tests/support/rd_rpma_test.h"

static struct r_side node, peer;
static char address[RD_ADDRESS_SIZE_MAX];

static bool has_device(void)
{
    return r_host != NULL;
}

/* Where there is rdma_cm, it opens; where there is none, the text says so. */
static void cm_open__with_and_without_rdma_cm__channel_or_no_device(void **state)
{
    (void)state;
    struct nic_ep ep = {.env = cn_env_system(), .name = "test"};
    ep.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(ep.epoll_fd >= 0);
    int err = rd_rpma_cm_open(&ep);
    if (err != 0) {
        assert_false(has_device());
        assert_int_equal(err, CAIRN_E_NO_DEVICE);
        assert_non_null(strstr(cairn_last_error(), "rdma_ucm"));
        assert_null(ep.cm);
        rd_rpma_cm_close(&ep); /* nothing to do */
    } else {
        struct rd_live live;
        rd_live_get(&live);
        assert_int_equal(live.descriptors, 2);
        rd_rpma_cm_look(&ep); /* no event: returns */
        assert_true(rd_rpma_look_at(&ep, -1, 1) < 0);
        assert_int_equal(rd_rpma_look_at(&ep, ep.cm->fd, 1), -EEXIST);
        rd_rpma_cm_close(&ep);
        rd_rpma_cm_close(&ep);
    }
    (void)close(ep.epoll_fd);
    t_check_live_zero();
}

static void id__made_and_deleted__counted(void **state)
{
    (void)state;
    struct rd_live live;
    if (!has_device())
        skip();
    r_open(&peer, NULL, (struct r_config){0});
    struct nic_conn *c = &nic_ep(peer.ep)->conns[0];
    assert_int_equal(rd_rpma_id_new(c, 3), 0);
    assert_ptr_equal(c->qp[3].id->context, c);
    rd_live_get(&live);
    assert_int_equal(live.cm_ids, 1);
    rd_rpma_qp_delete(c, 3);
    rd_rpma_qp_delete(c, 3);
    assert_null(c->qp[3].id);
    rd_live_get(&live);
    assert_int_equal(live.cm_ids, 0);
    r_close(&peer);
    t_check_live_zero();
}

static void ack_limits__any_heartbeat__no_shorter_than_it_no_much_longer(void **state)
{
    (void)state;
    uint8_t timeout, retries;
    for (uint32_t ms = 10; ms <= 60000; ms += ms < 1000 ? 1 : 997) {
        uint64_t found = 3 * ms * T_MS, total = rd_rpma_ack_limits(ms, &timeout, &retries);
        assert_true(retries >= 3 && retries <= 6); /* 7: for ever on some devices */
        assert_true(timeout >= 1 && timeout <= 31);
        assert_int_equal(total, (retries + 1u) * (UINT64_C(4096) << timeout));
        assert_true(total >= found && total <= found / 4 * 5);
    }
    (void)rd_rpma_ack_limits(500, &timeout, &retries);
    assert_int_equal(timeout, 16); /* 268 ms */
    assert_int_equal(retries, 5);
}

static void check_parameters(const struct nic_conn *c)
{
    uint8_t timeout, retries;
    (void)rd_rpma_ack_limits(nic_conn_ep(c)->fabric->config.heartbeat_ms, &timeout, &retries);
    for (uint32_t i = 0; i < c->qp_count; i++) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        assert_true(c->qp[i].has_qp);
        assert_int_equal(c->qp[i].number, c->qp[i].id->qp->qp_num);
        assert_int_equal(ibv_query_qp(c->qp[i].id->qp, &attr,
                             IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_STATE, &init), 0);
        if (!nic_conn_ep(c)->device->iwarp) { /* there TCP does all that */
            assert_int_equal(attr.qp_state, IBV_QPS_RTS);
            assert_int_equal(attr.timeout, timeout);
            assert_int_equal(attr.retry_cnt, retries);
            assert_int_equal(attr.rnr_retry, 7);
            assert_true(attr.max_rd_atomic >= 4);
        }
        assert_true(init.cap.max_send_wr >= (c->active ? c->qp[i].queue.size : 1));
        assert_ptr_equal(c->qp[i].id->verbs, nic_conn_ep(c)->device->verbs);
    }
}

static void qp__connected__finds_a_loss_after_few_tries(void **state)
{
    (void)state;
    struct rd_conn *passive;
    if (!has_device())
        skip();
    r_open(&node, r_address(address, NULL), (struct r_config){0});
    r_open(&peer, NULL, (struct r_config){.queue_pairs = 3, .outstanding = 100});
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    check_parameters(nic_conn(c));
    check_parameters(nic_conn(passive));
    r_close(&peer);
    r_close(&node);
    t_check_live_zero();
}

static void connect__what_a_listener_sees__first_with_a_beat(void **state)
{
    (void)state;
    struct r_raw raw;
    struct rd_rpma_cm_wire wire;
    uint16_t port;
    if (!has_device())
        skip();
    r_open(&peer, NULL, (struct r_config){0});
    (void)r_address(address, &port);
    r_raw_listen(&raw, port);
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    assert_true(r_raw_next(&raw, R_WAIT_MS));
    assert_int_equal(raw.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_true(raw.size >= sizeof(wire));
    assert_int_equal(rd_rpma_check_cm(raw.data, raw.size, &wire), 0);
    struct nic_ep *ep = nic_ep(peer.ep);
    assert_int_equal(le64_get(wire.beat_addr), (uintptr_t)&ep->beats[nic_conn(c)->index]);
    assert_int_equal(le32_get(wire.beat_rkey), ep->beat_mr->rkey);
    assert_int_equal(nic_conn(c)->state, NIC_FIRST);
    rd_conn_delete(c);
    r_raw_close(&raw);
    r_close(&peer);
    t_check_live_zero();
}

static void cm_listen__no_local_address__error(void **state)
{
    (void)state;
    if (!has_device())
        skip();
    r_open(&node, r_address(address, NULL), (struct r_config){0});
    const struct rd_ep_config config = {.env = cn_env_system(),
        .connections_max = 1,
        .outstanding_max = 1,
        .memory_size = 4096,
        .name = "second"};
    struct rd_ep *second = NULL;
    assert_int_equal(rd_ep_open(node.fabric, &config, &second), 0);
    struct sockaddr_storage addr = r_sockaddr(1);
    ((struct sockaddr_in *)(void *)&addr)->sin_addr.s_addr = htonl(0xcb007109); /* 203.0.113.9 */
    assert_true(rd_rpma_cm_listen(nic_ep(second), &addr) < 0);
    assert_null(nic_ep(second)->listen_id);
    assert_true(rd_listen(second, "203.0.113.9:7471") < 0);
    rd_ep_close(second);
    r_close(&node);
    t_check_live_zero();
}

int main(void)
{
    if (getenv("CAIRN_TEST_ADDRESS") != NULL)
        (void)r_main_address();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cm_open__with_and_without_rdma_cm__channel_or_no_device),
        cmocka_unit_test(id__made_and_deleted__counted),
        cmocka_unit_test(ack_limits__any_heartbeat__no_shorter_than_it_no_much_longer),
        cmocka_unit_test(qp__connected__finds_a_loss_after_few_tries),
        cmocka_unit_test(connect__what_a_listener_sees__first_with_a_beat),
        cmocka_unit_test(cm_listen__no_local_address__error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
